/* Where the time of a compilation goes, and that it grows linearly with the graph.
 *
 *     build/bench_compile [LARGEST [BACKEND [KIND]]]     LARGEST: nodes (10000); BACKEND: c or vm
 *
 * Five kinds of graphs: one long pointwise chain, many small outputs, a chain of layers (product,
 * bias, relu), a chain heavy with tanh, and a chain of views. Out: milliseconds, from a first call
 * with no disk cache: recording, graph passes, fusion (with memory planning), writing C, the C
 * compiler. */
#include <carbide.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int BuildGraph(cb_tensor *const *x, int nodes, cb_tensor **out);

static const struct cb_dim_list shape = {2, {32, 32}};

/* add, mul, maximum, sub in turn, each with another number */
static int pointwise(cb_tensor *const *x, int nodes, cb_tensor **out) {
    cb_tensor *y = x[0];
    for (int i = 0; i < nodes; i++) {
        double number = 1.0 + i / 8192.0;
        y = i % 4 == 0   ? cb_add(y, x[i / 4 % 3 + 1])
            : i % 4 == 1 ? cb_mul(y, number)
            : i % 4 == 2 ? cb_maximum(y, -number)
                         : cb_sub(y, number);
    }
    *out = y;
    return 1;
}

/* 60 results, each by a chain of its own over another size */
static int outputs(cb_tensor *const *x, int nodes, cb_tensor **out) {
    const int count = 60;
    for (int k = 0; k < count; k++) {
        cb_tensor *y = cb_narrow(x[k % 4], 0, k % 8, 8 + k % 16);
        for (int i = 0; i + 2 < nodes / count; i++)
            y = i % 3 == 2 ? cb_abs(y) : i % 3 ? cb_mul(y, 1.5 + i) : cb_sub(y, 0.25 * (k + i));
        out[k] = cb_sum(y, 1);
    }
    return count;
}

static int layers(cb_tensor *const *x, int nodes, cb_tensor **out) {
    cb_tensor *y = x[0];
    for (int i = 0; i < nodes / 3; i++)
        y = cb_relu(cb_add(cb_matmul(y, x[i % 2 + 1]), cb_select(x[3], 0, i % 32)));
    *out = y;
    return 1;
}

static int tanh_heavy(cb_tensor *const *x, int nodes, cb_tensor **out) {
    cb_tensor *y = x[0];
    for (int i = 0; i < nodes; i++) y = i % 2 ? cb_tanh(y) : cb_mul(y, 1.0 + i / 8192.0);
    *out = y;
    return 1;
}

/* Neither cancels the one before it. */
static int views(cb_tensor *const *x, int nodes, cb_tensor **out) {
    cb_tensor *y = x[0];
    for (int i = 0; i < nodes; i++) y = i % 2 ? cb_flip(y, cb_dims(0)) : cb_transpose(y, 0, 1);
    *out = y;
    return 1;
}

typedef struct Case {
    const char *name;
    BuildGraph *build;
    int nodes;
} Case;

static int run(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    const Case *c = user;
    (void)count;
    return c->build(x, c->nodes, out);
}

static void measure(const Case *c, const char *options) {
    cb_tensor *x[4], *out[CB_MAX_ARGS];
    cb_scope_open();
    for (int i = 0; i < 4; i++) x[i] = cb_mul(cb_rand(shape), 0.05);
    cb_function *f = cb_compile_n(run, (void *)c, options);
    if (cb_call_n(f, x, 4, out, CB_MAX_ARGS) < 0) exit((fprintf(stderr, "%s\n", cb_error()), 1));
    cb_function_stats s = cb_stats(f);
    printf("%-10s %6d nodes: trace %7.1f, passes %7.1f, schedule %7.1f, source %7.1f, cc %8.1f, "
           "in all %8.1f ms; %d steps\n",
           c->name, c->nodes, s.trace_ms, s.passes_ms, s.schedule_ms, s.source_ms, s.compiler_ms,
           s.trace_ms + s.compile_ms, (int)s.kernels);
    fflush(stdout);
    cb_function_free(f);
    cb_scope_close();
}

int main(int argc, char **argv) {
    static const int sizes[] = {100, 1000, 3000, 10000};
    static const Case kinds[] = {{"pointwise", pointwise, 0},
                                 {"outputs", outputs, 0},
                                 {"layers", layers, 0},
                                 {"tanh", tanh_heavy, 0},
                                 {"views", views, 0}};
    int largest = argc > 1 ? atoi(argv[1]) : 10000;
    char options[64];
    snprintf(options, sizeof options, "backend=%s", argc > 2 ? argv[2] : "c");
    cb_set_option("cache", "0");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (argc > 3 && strcmp(argv[3], kinds[k].name) != 0) continue;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] <= largest; i++) {
            Case c = kinds[k];
            c.nodes = sizes[i];
            measure(&c, options);
        }
    }
    cb_cleanup();
    return 0;
}
