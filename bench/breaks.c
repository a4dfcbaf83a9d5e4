/* What values in the middle of a compiled function cost: eager and compiled, least of many calls,
 * in microseconds, one JSON line a case. compare_breaks.py runs PyTorch's beside it.
 *
 *     bench_breaks [THREADS] [RUNS]       {"case": "branch", "eager_us": 2210.1, ...} */
#include <carbide.h>
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

static void measure(const char *name, cb_function_1 *function, int rows, int columns, int runs) {
    cb_scope_open();
    cb_manual_seed(1);
    cb_tensor *x = cb_randn(cb_dims(rows, columns));
    cb_function *fast = cb_compile(function);
    double eager = least(function, NULL, x, runs), compiled = least(NULL, fast, x, runs);
    printf(
        "{\"case\": \"%s %dx%d\", \"eager_us\": %.1f, \"compiled_us\": %.1f, \"graphs\": %lld}\n",
        name, rows, columns, eager, compiled, (long long)cb_stats(fast).graphs);
    cb_function_free(fast);
    cb_scope_close();
}

int main(int argc, char **argv) {
    cb_set_threads(argc > 1 ? atoi(argv[1]) : 2);
    int runs = argc > 2 ? atoi(argv[2]) : 100;
    measure("branch", branch, 1024, 1024, runs);
    measure("branch", branch, 16, 16, 10 * runs);
    measure("newton", newton, 256, 1024, runs);
    measure("newton", newton, 4, 16, 10 * runs);
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    return cb_error() != NULL;
}
