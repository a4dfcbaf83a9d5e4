/* Repeats scatter_add of 2^22 numbers into 2^10, 2^16 and 2^22 bins, and of 8192 rows of 64 into
 * 1000: every run against the plain loop in f64, and its bits against the first run's.
 *
 *     build/bench_scatter [RUNS [THREADS]]        RUNS: of each (1000); THREADS: 2
 *
 * Afterwards once more on 1, 2, 3 and 16 threads, which give the same bits. bench/compare_cpu.py
 * puts the times of the same cases beside PyTorch's. */
#include <carbide.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Case {
    const char *name;
    int64_t bins, points, columns;
} Case;

static const Case cases[] = {
    {"2^22 into 2^10", 1 << 10, 1 << 22, 1},
    {"2^22 into 2^16", 1 << 16, 1 << 22, 1},
    {"2^22 into 2^22", 1 << 22, 1 << 22, 1},
    {"8192 x 64 into 1000 x 64", 1000, 8192, 64},
};

typedef struct Data {
    cb_tensor *in[3];
    int64_t numel;
    double *wanted; /* by the plain loop */
    double *scale;  /* sums of magnitudes: what rounding is measured by */
    float *first;   /* bits of the first run */
} Data;

static int scatter(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = cb_scatter_add(in[0], 0, cb_expand(in[1], cb_dims(-1, cb_size(in[2], 1))), in[2]);
    return out[0] ? 1 : -1;
}

static void *allocate(int64_t count, size_t width) {
    void *data = calloc((size_t)count, width);
    if (!data) exit((fprintf(stderr, "no memory\n"), 1));
    return data;
}

static Data make(const Case *c) {
    Data d = {.numel = c->bins * c->columns};
    int64_t points = c->points * c->columns, *index = allocate(c->points, sizeof *index);
    float *src = allocate(points, sizeof *src);
    d.in[0] = cb_zeros(cb_dims(c->bins, c->columns));
    d.in[1] = cb_randint(0, c->bins, cb_dims(c->points, 1));
    d.in[2] = cb_randn(cb_dims(c->points, c->columns));
    d.wanted = allocate(d.numel, sizeof *d.wanted);
    d.scale = allocate(d.numel, sizeof *d.scale);
    d.first = allocate(d.numel, sizeof *d.first);
    cb_read(d.in[1], index, CB_I64);
    cb_read(d.in[2], src, CB_F32);
    for (int64_t i = 0; i < points; i++) {
        int64_t at = index[i / c->columns] * c->columns + i % c->columns;
        d.wanted[at] += (double)src[i];
        d.scale[at] += fabs((double)src[i]);
    }
    free(index), free(src);
    return d;
}

/* One run: whether it is near the plain loop, and has the bits of the first one. */
static bool check_run(cb_function *fast, Data *d, float *got, bool first) {
    cb_tensor *out[1] = {NULL};
    bool right = true;
    cb_scope_open();
    int made = fast ? cb_call_n(fast, d->in, 3, out, 1) : scatter(d->in, 3, out, NULL);
    if (made != 1) exit((fprintf(stderr, "%s\n", cb_error()), 1));
    cb_read(out[0], got, CB_F32);
    cb_scope_close();
    if (!first) return memcmp(got, d->first, (size_t)d->numel * sizeof *got) == 0;
    memcpy(d->first, got, (size_t)d->numel * sizeof *got);
    for (int64_t i = 0; i < d->numel; i++)
        right &= fabs((double)got[i] - d->wanted[i]) <= 1e-5 * (d->scale[i] + 1);
    return right;
}

static int check_case(const Case *c, int runs, int threads) {
    static const int counts[] = {1, 2, 3, 16};
    static const char *const engine[] = {"eager", "backend=vm", "backend=c"};
    cb_scope_open();
    Data d = make(c);
    float *got = allocate(d.numel, sizeof *got);
    int wrong = 0;
    for (int e = 0; e < 3; e++) {
        cb_function *fast = e ? cb_compile_n(scatter, NULL, engine[e]) : NULL;
        int right = 0, same = 0;
        cb_set_threads(threads);
        for (int i = 0; i < runs; i++) right += check_run(fast, &d, got, e + i == 0);
        for (int t = 0; t < 4; t++) {
            cb_set_threads(counts[t]);
            same += check_run(fast, &d, got, false);
        }
        printf("%-26s %-11s right in %d of %d runs, same bits on %d of 4 numbers of threads\n",
               c->name, engine[e], right, runs, same);
        fflush(stdout);
        wrong += right < runs || same < 4;
        cb_function_free(fast);
    }
    free(d.wanted), free(d.scale), free(d.first), free(got);
    cb_scope_close();
    return wrong;
}

int main(int argc, char **argv) {
    int runs = argc > 1 ? atoi(argv[1]) : 1000, threads = argc > 2 ? atoi(argv[2]) : 2, wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        wrong += check_case(&cases[i], runs, threads);
    cb_cleanup();
    return wrong > 0;
}
