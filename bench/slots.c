/* What a write to a part of a large tensor costs, and what results as large as a value says:
 *
 *     build/bench_slots
 *
 * eager and compiled, microseconds, the least of 300 calls. bench/compare_slots.py puts PyTorch's
 * beside them. */
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
    if (cb_error()) puts(cb_error());
    cb_scope_close();
}
