/* What values in the middle of a compiled function cost: eager and compiled, least of many calls,
 * in microseconds, one JSON line a case. compare_breaks.py runs PyTorch's beside it.
 *
 *     bench_breaks [THREADS] [RUNS]       {"case": "branch", "eager_us": 2210.1, ...} */
#include "beam_search.h"

#include <carbide_models.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static cb_tensor *activation(cb_tensor *x) {
    cb_tensor *cube = cb_mul(cb_mul(cb_mul(x, x), x), 0.044715);
    return cb_mul(cb_mul(x, 0.5), cb_add(cb_tanh(cb_mul(cb_add(x, cube), 0.79788456)), 1.0));
}

/* One value decides over the rest. */
static cb_tensor *branch(cb_tensor *x) {
    cb_tensor *y = activation(cb_add(x, 0.5));
    if (cb_item(cb_mean(y)) > 0) return activation(cb_sub(y, 0.25));
    return cb_neg(y);
}

/* Newton's square root, until it stands still. */
static cb_tensor *newton(cb_tensor *x) {
    cb_tensor *goal = cb_add(cb_abs(x), 1.0), *root = goal;
    for (int i = 0; i < 50; i++) {
        cb_tensor *next = cb_mul(cb_add(root, cb_div(goal, root)), 0.5);
        bool still = cb_item(cb_max(cb_abs(cb_sub(next, root)))) < 1e-5;
        root = next;
        if (still) break;
    }
    return root;
}

/* Sixteen centres, until none of them moves. */
static cb_tensor *k_means(cb_tensor *x) {
    cb_tensor *centre = cb_narrow(x, 0, 0, 16), *number = cb_arange(0, 16);
    for (int i = 0; i < 30; i++) {
        cb_tensor *squares = cb_sum(cb_square(centre), 1);
        cb_tensor *far = cb_sub(squares, cb_mul(cb_matmul(x, cb_transpose(centre, 0, 1)), 2.0));
        cb_tensor *nearest = cb_unsqueeze(cb_argmin(far, 1), 0);
        cb_tensor *mine = cb_to(cb_eq(cb_unsqueeze(number, 1), nearest), CB_F32);
        cb_tensor *count = cb_maximum(cb_sum(mine, 1), 1.0);
        cb_tensor *next = cb_div(cb_matmul(mine, x), cb_unsqueeze(count, 1));
        bool still = cb_item(cb_max(cb_abs(cb_sub(next, centre)))) < 1e-4;
        centre = next;
        if (still) break;
    }
    return centre;
}

static cb_tensor *loss(cb_tensor *w, cb_tensor *x) {
    return cb_sum(
        cb_add(cb_sqrt(cb_add(cb_square(cb_sub(w, x)), 0.01)), cb_mul(cb_square(w), 0.05)));
}

/* Newton's method on a smooth absolute value, each step halved until it helps enough. */
static cb_tensor *line_search(cb_tensor *x) {
    cb_tensor *w = cb_mul(x, 0.0);
    double now = cb_item(loss(w, x));
    for (int i = 0; i < 30; i++) {
        cb_tensor *off = cb_sub(w, x), *root = cb_sqrt(cb_add(cb_square(off), 0.01));
        cb_tensor *slope = cb_add(cb_div(off, root), cb_mul(w, 0.1));
        cb_tensor *bend = cb_add(cb_div(0.01, cb_mul(root, cb_square(root))), 0.1);
        cb_tensor *step = cb_div(slope, bend);
        double gain = cb_item(cb_sum(cb_mul(slope, step))), rate = 1, next = now;
        for (int halved = 0; halved < 12; halved++, rate *= 0.5) {
            next = cb_item(loss(cb_sub(w, cb_mul(step, rate)), x));
            if (next <= now - 1e-4 * rate * gain) break;
        }
        w = cb_sub(w, cb_mul(step, rate));
        if (now - next < 1e-4 * now) break;
        now = next;
    }
    return w;
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double least(cb_function_1 *function, cb_function *fast, cb_tensor *x, int runs) {
    double best = 1e30;
    for (int run = -5; run < runs; run++) {
        cb_scope_open();
        double start = now_us();
        if (!(fast ? cb_call(fast, x) : function(x))) exit(1);
        double taken = now_us() - start;
        if (run >= 0 && taken < best) best = taken;
        cb_scope_close();
    }
    return best;
}

static void print_row(const char *name, double eager, double compiled, cb_function *fast) {
    cb_function_stats stats = cb_stats(fast);
    if (cb_error() || stats.eager_calls) exit(1);
    printf("{\"case\": \"%s\", \"eager_us\": %.1f, \"compiled_us\": %.1f, \"graphs\": %lld}\n",
           name, eager, compiled, (long long)stats.graphs);
}

static void measure(const char *name, cb_function_1 *function, int rows, int columns, int runs) {
    cb_scope_open();
    cb_manual_seed(1);
    cb_tensor *x = cb_randn(cb_dims(rows, columns));
    cb_function *fast = cb_compile(function);
    double eager = least(function, NULL, x, runs), compiled = least(NULL, fast, x, runs);
    char label[64];
    snprintf(label, sizeof label, "%s %dx%d", name, rows, columns);
    print_row(label, eager, compiled, fast);
    cb_function_free(fast);
    cb_scope_close();
}

/* Of examples/beam_search.h, on GPT-2 with 124 million random weights: 4 texts from 8 tokens to
 * `longest`, in turn eager and compiled. */
static void measure_beam_search(int longest, int runs) {
    cb_scope_open();
    cb_manual_seed(1);
    cb_gpt2_config config = cb_gpt2_124m_config();
    Search search = {cb_model_gpt2(config), longest, 1};
    cb_module_train(search.net, false);
    cb_tensor *prompt = cb_randint(1, config.vocabulary, cb_dims(1, 8)), *out[2];
    cb_function *fast = cb_compile_n(beam_search, &search, NULL);
    double best[2] = {1e30, 1e30};
    for (int run = -2; run < 2 * runs; run++) {
        bool compiled = run & 1;
        cb_scope_open();
        cb_manual_seed(2);
        double start = now_us();
        if (compiled)
            cb_call_n(fast, &prompt, 1, out, 2);
        else
            beam_search(&prompt, 1, out, &search);
        if (run >= 0) best[compiled] = fmin(best[compiled], now_us() - start);
        cb_scope_close();
    }
    char label[64];
    snprintf(label, sizeof label, "beam_search 4x%d", longest);
    print_row(label, best[0], best[1], fast);
    cb_function_free(fast);
    cb_module_free(search.net);
    cb_scope_close();
}

int main(int argc, char **argv) {
    cb_set_threads(argc > 1 ? atoi(argv[1]) : 2);
    int runs = argc > 2 ? atoi(argv[2]) : 100;
    measure("branch", branch, 1024, 1024, runs);
    measure("branch", branch, 16, 16, 10 * runs);
    measure("newton", newton, 256, 1024, runs);
    measure("newton", newton, 4, 16, 10 * runs);
    measure("k_means", k_means, 20000, 16, runs);
    measure("k_means", k_means, 64, 16, runs);
    measure("line_search", line_search, 256, 1024, runs / 5);
    measure("line_search", line_search, 4, 16, runs);
    measure_beam_search(32, 3);
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    return cb_error() != NULL;
}
