/* What a write to a part of a large tensor costs, and what results as large as a value says:
 *
 *     build/bench_slots
 *
 * eager and compiled, microseconds, the least of 300 calls; and what functions of a position cost
 * that is another one in every call, milliseconds for 256 of them: eager, compiled the first time,
 * with all compiling, and the least of 5 more. bench/compare_slots.py puts PyTorch's beside
 * them. */
#include <carbide.h>
#include <stdio.h>
#include <time.h>

enum { CALLS = 300 };

static cb_tensor *cache, *rows, *grid;

static cb_tensor *slot(cb_tensor *v) {
    cb_assign(cb_slice(cache, 1, 5, 6), v);
    return cb_sum(v);
}

static cb_tensor *row(cb_tensor *v) {
    cb_assign(cb_select(rows, 0, 5), cb_mul(cb_select(v, 0, 0), 2.0));
    return cb_sum(v);
}

static cb_tensor *every_other(cb_tensor *v) {
    cb_mul_(cb_slice(grid, 1, 0, 512, 2), 0.5);
    return cb_sum(v);
}

static cb_tensor *selected(cb_tensor *v) {
    (void)v;
    return cb_masked_select(grid, cb_gt(grid, 0.5));
}

static cb_tensor *places(cb_tensor *v) {
    (void)v;
    return cb_nonzero(cb_gt(grid, 0.5));
}

/* ---- a position that moves ---- */

enum { PLACES = 256, PASSES = 5 };

static int64_t at;
static cb_tensor *keys, *values, *series;

/* One token of attention over a cache of fixed length, with a mask. */
static cb_tensor *decodes(cb_tensor *v) {
    cb_tensor *token = cb_mul(v, 0.5);
    cb_assign(cb_slice(keys, 1, at, at + 1), token);
    cb_assign(cb_slice(values, 1, at, at + 1), cb_add(token, 1.0));
    cb_tensor *seen = cb_le(cb_arange(0, PLACES), cb_full(cb_dims(1), (double)at, CB_I64));
    return cb_scaled_dot_product_attention(v, keys, values, seen);
}

static cb_tensor *batches(cb_tensor *v) {
    cb_tensor *x = cb_slice(series, 0, at * 16, at * 16 + 16);
    return cb_mean(cb_square(cb_sub(cb_softmax(x, -1), cb_sum(cb_select(v, 0, 0)))));
}

static cb_tensor *recurs(cb_tensor *v) {
    cb_tensor *h = cb_select(v, 0, 0);
    for (int i = 0; i < 8; i++) h = cb_tanh(cb_add(cb_mul(h, 0.9), cb_select(series, 0, at + i)));
    return h;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double least(cb_function_1 *function, cb_function *fast, cb_tensor *v) {
    double best = 1e30;
    for (int i = 0; i < CALLS; i++) {
        cb_scope_open();
        double start = now();
        if (fast)
            cb_call(fast, v);
        else
            function(v);
        double taken = now() - start;
        if (taken < best) best = taken;
        cb_scope_close();
    }
    return best;
}

static double pass(cb_function_1 *function, cb_function *fast, cb_tensor *v) {
    double start = now();
    for (at = 0; at < PLACES; at++) {
        cb_scope_open();
        if (fast)
            cb_call(fast, v);
        else
            function(v);
        cb_scope_close();
    }
    return (now() - start) / 1e3;
}

static double least_pass(cb_function_1 *function, cb_function *fast, cb_tensor *v) {
    double best = 1e30;
    for (int i = 0; i < PASSES; i++) {
        double taken = pass(function, fast, v);
        if (taken < best) best = taken;
    }
    return best;
}

static void show_positions(cb_tensor *v) {
    static const struct {
        const char *name;
        cb_function_1 *function;
    } cases[] = {{"attention over a cache of 256", decodes},
                 {"batches of 16 rows", batches},
                 {"eight steps from there on", recurs}};
    keys = cb_zeros(cb_dims(8, PLACES, 64)), values = cb_zeros(cb_dims(8, PLACES, 64));
    series = cb_rand(cb_dims(PLACES * 16, 64));
    printf("\n%-38s %10s %10s %10s\n", "", "eager ms", "first ms", "then ms");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cb_function *fast = cb_compile(cases[i].function);
        double eager = least_pass(cases[i].function, NULL, v), first = pass(NULL, fast, v);
        printf("%-38s %10.2f %10.2f %10.2f   %lld graphs\n", cases[i].name, eager, first,
               least_pass(NULL, fast, v), (long long)cb_stats(fast).graphs);
        cb_function_free(fast);
    }
}

int main(void) {
    static const struct {
        const char *name;
        cb_function_1 *function;
    } cases[] = {{"a slot of f32[8, 4096, 64]", slot},
                 {"a row of f32[4096, 512]", row},
                 {"every other column of f32[512, 512]", every_other},
                 {"masked_select, half of 2^18", selected},
                 {"nonzero, half of 2^18", places}};
    cb_set_option("threads", "2");
    cb_scope_open();
    cache = cb_zeros(cb_dims(8, 4096, 64));
    rows = cb_zeros(cb_dims(4096, 512));
    cb_tensor *v = cb_ones(cb_dims(8, 1, 64));
    printf("%-38s %10s %10s\n", "", "eager us", "compiled us");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cb_tensor *given = cases[i].function == row ? cb_ones(cb_dims(1, 512)) : v;
        grid = cb_rand(cb_dims(512, 512));
        cb_function *fast = cb_compile(cases[i].function);
        double eager = least(cases[i].function, NULL, given);
        printf("%-38s %10.1f %10.1f\n", cases[i].name, eager, least(NULL, fast, given));
        cb_function_free(fast);
    }
    show_positions(v);
    if (cb_error()) puts(cb_error());
    cb_scope_close();
}
