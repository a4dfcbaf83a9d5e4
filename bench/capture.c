/* What a call of a compiled function costs besides its work, and what the first calls cost when
 * sizes and numbers change: eager and compiled, least of many calls, in microseconds, a JSON line
 * for each case. compare_capture.py runs PyTorch's beside it. "first" is the time of all different
 * calls in turn, compilations included; the folder of the cache should be empty.
 *
 *     bench_capture [THREADS] [RUNS] [PART OF A NAME]
 *     {"case": "100 inputs", "eager_us": 12.1, ...} */
#include <carbide.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { INPUTS = 100, SIZES = 100, RATES = 100, OPS = 1000 };

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- functions ------------------------------------------------------------------------------- */

static int adds_all(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)user;
    out[0] = cb_relu(x[0]);
    for (int i = 1; i < count; i++) out[0] = cb_add(out[0], x[i]);
    return 1;
}

static int block(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *wide = cb_gelu(cb_matmul(x[0], x[1]));
    out[0] = cb_softmax(cb_add(wide, cb_mean(wide, 1, true)), 1);
    return 1;
}

static double rate;
static int step(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = cb_sub(x[0], cb_mul(cb_add(x[1], cb_mul(x[0], 0.01)), rate));
    return 1;
}

static int many_ops(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = x[0];
    for (int i = 0; i < OPS / 2; i++) out[0] = cb_add(cb_mul(out[0], 0.5), x[1]);
    return 1;
}

/* ---- measuring ------------------------------------------------------------------------------- */

typedef struct Calls { /* of the same function, in turn */
    cb_function_n *function;
    cb_function *compiled; /* NULL: eagerly */
    const char *options;
    cb_tensor *input[SIZES][INPUTS];
    int inputs, sizes, rates;
} Calls;

static void call(const Calls *calls, int k) {
    cb_tensor *out;
    cb_scope_open();
    rate = 0.1 / (1 + k % calls->rates);
    cb_tensor *const *input = calls->input[k % calls->sizes];
    if (calls->compiled)
        cb_call_n(calls->compiled, input, calls->inputs, &out, 1);
    else
        calls->function(input, calls->inputs, &out, NULL);
    cb_scope_close();
}

/* Of one call, the least mean over all that differ. */
static double least(const Calls *calls, int runs) {
    int different = calls->sizes * calls->rates;
    double best = 1e30;
    for (int run = -2; run < runs; run++) {
        double start = now_us();
        for (int k = 0; k < different; k++) call(calls, k);
        double taken = (now_us() - start) / different;
        if (run >= 0 && taken < best) best = taken;
    }
    return best;
}

static const char *part = ""; /* of the names of the cases that are measured */
static void measure(const char *name, Calls *calls, int runs) {
    if (!strstr(name, part)) return;
    int different = calls->sizes * calls->rates;
    calls->compiled = NULL;
    double eager = least(calls, runs);
    calls->compiled = cb_compile_n(calls->function, NULL, calls->options);
    double start = now_us();
    for (int k = 0; k < different; k++) call(calls, k);
    double first = now_us() - start;
    double compiled = least(calls, runs);
    cb_function_stats stats = cb_stats(calls->compiled);
    printf("{\"case\": \"%s\", \"graphs\": %lld, \"compiled_graphs\": %lld, \"eager_us\": %.2f, "
           "\"compiled_us\": %.2f, \"first_us\": %.0f}\n",
           name, (long long)stats.graphs, (long long)stats.compiled, eager, compiled, first);
    fflush(stdout);
    cb_function_free(calls->compiled);
}

int main(int argc, char **argv) {
    cb_set_threads(argc > 1 ? atoi(argv[1]) : 2);
    int runs = argc > 2 ? atoi(argv[2]) : 200;
    if (argc > 3) part = argv[3];
    static Calls adds = {.function = adds_all, .sizes = 1, .rates = 1};
    static Calls blocks = {.function = block, .inputs = 2, .rates = 1};
    static Calls steps = {.function = step, .inputs = 2, .sizes = 1, .rates = RATES};
    static Calls ops = {.function = many_ops, .inputs = 2, .sizes = 1, .rates = 1};
    for (int i = 0; i < INPUTS; i++) adds.input[0][i] = cb_ones(cb_dims(2, 2));
    static const int counts[] = {1, 16, INPUTS};
    for (int i = 0; i < 3; i++) {
        char name[32];
        adds.inputs = counts[i];
        snprintf(name, sizeof name, "%d inputs", adds.inputs);
        measure(name, &adds, 20 * runs);
    }
    cb_tensor *weight = cb_randn(cb_dims(64, 256));
    for (int k = 0; k < SIZES; k++) {
        blocks.input[k][0] = cb_randn(cb_dims(8 + 3 * k, 64));
        blocks.input[k][1] = weight;
    }
    blocks.sizes = 20;
    measure("20 batch sizes", &blocks, runs);
    blocks.sizes = SIZES;
    measure("100 batch sizes", &blocks, runs / 4);
    steps.input[0][0] = cb_randn(cb_dims(10000)), steps.input[0][1] = cb_randn(cb_dims(10000));
    measure("100 learning rates", &steps, runs / 4);
    ops.input[0][0] = cb_randn(cb_dims(4)), ops.input[0][1] = cb_randn(cb_dims(4));
    measure("1000 ops", &ops, 5 * runs);
    ops.options = adds.options = "fullgraph=1"; /* the function itself does not run again */
    measure("1000 ops fullgraph", &ops, 5 * runs);
    adds.inputs = 1;
    measure("1 inputs fullgraph", &adds, 20 * runs);
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    return cb_error() != NULL;
}
