/* What sizes as arguments of kernels cost beside sizes that are written into their code: functions
 * compiled with `dynamic=1` and `dynamic=0`, called in turn; the least of each, in microseconds.
 *
 *     bench_sizes [THREADS] [RUNS]     {"case": "softmax 512x200", "literal_us": 44.1, ...} */
#include <carbide.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- functions of one matrix ----------------------------------------------------------------- */

static cb_tensor *softmax(cb_tensor *x) { return cb_softmax(x, 1); }
static cb_tensor *gelu(cb_tensor *x) { return cb_gelu(x); }
static cb_tensor *columns(cb_tensor *x) { return cb_sum(cb_mul(x, x), 0); }
static cb_tensor *turned(cb_tensor *x) { return cb_contiguous(cb_transpose(cb_add(x, 1), 0, 1)); }
static cb_tensor *product(cb_tensor *x) {
    return cb_relu(cb_matmul(x, cb_transpose(cb_add(x, 1), 0, 1)));
}
static cb_tensor *norm(cb_tensor *x) {
    return cb_gelu(cb_layer_norm(x, cb_dims(cb_size(x, 1)), NULL, NULL, 1e-5));
}

/* ---- measuring ------------------------------------------------------------------------------- */

static void measure(const char *name, cb_function_1 *function, int rows, int width, int runs) {
    cb_scope_open();
    cb_tensor *x = cb_randn(cb_dims(rows, width));
    cb_function *fast[] = {cb_compile(function, "fullgraph=1,dynamic=0"),
                           cb_compile(function, "fullgraph=1,dynamic=1")};
    double best[] = {INFINITY, INFINITY};
    for (int run = -3; run < runs; run++)
        for (int i = 0; i < 2; i++) {
            double start = now_us();
            cb_scope_open();
            if (!cb_call(fast[i], x)) exit(1);
            cb_scope_close();
            if (run >= 0) best[i] = fmin(best[i], now_us() - start);
        }
    printf("{\"case\": \"%s %dx%d\", \"literal_us\": %.1f, \"arguments_us\": %.1f, \"ratio\": "
           "%.2f}\n",
           name, rows, width, best[0], best[1], best[1] / best[0]);
    fflush(stdout);
    cb_function_free(fast[0]), cb_function_free(fast[1]);
    cb_scope_close();
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        cb_function_1 *function;
        int rows, width;
    } cases[] = {
        {"softmax", softmax, 4096, 1024}, {"softmax", softmax, 4096, 1000},
        {"softmax", softmax, 512, 200},   {"softmax", softmax, 2000, 37},
        {"layer norm", norm, 4096, 1024}, {"layer norm", norm, 500, 768},
        {"layer norm", norm, 1000, 100},  {"gelu", gelu, 4096, 4096},
        {"gelu", gelu, 128, 768},         {"columns", columns, 2000, 768},
        {"columns", columns, 5000, 50},   {"turned", turned, 1000, 770},
        {"product", product, 300, 200},   {"product", product, 33, 65},
    };
    cb_set_threads(argc > 1 ? atoi(argv[1]) : 1);
    int runs = argc > 2 ? atoi(argv[2]) : 60;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        measure(cases[i].name, cases[i].function, cases[i].rows, cases[i].width, runs);
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    return cb_error() != NULL;
}
