/* What a call costs besides its work: eager ops on four elements, views, queries, scopes, and an op
 * of a compiled function that is replayed. The least of many short runs, in nanoseconds.
 *
 *     bench_calls [RUNS]                  eager op 212.3, view 31.0, query 3.1, ... */
#include <carbide.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 1000, SHORT = 16, LONG = 80 };

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static cb_tensor *x;

static void eager(void) { cb_free(cb_add(x, 1.0)); }

static void view(void) { cb_free(cb_transpose(x, 0, 1)); }

static int64_t sum;
static void query(void) { sum += cb_size(x, 0); }

static void scope(void) {
    cb_scope_open();
    for (int i = 0; i < 8; i++) cb_transpose(x, 0, 1);
    cb_scope_close();
}

static cb_tensor *chain(cb_tensor *y, int count) {
    for (int i = 0; i < count; i++) y = cb_relu(y);
    return y;
}
static cb_tensor *short_chain(cb_tensor *y) { return chain(y, SHORT); }
static cb_tensor *long_chain(cb_tensor *y) { return chain(y, LONG); }

static cb_function *fast_short, *fast_long;
static void replay_short(void) { cb_free(cb_call(fast_short, x)); }
static void replay_long(void) { cb_free(cb_call(fast_long, x)); }

static double least(void (*work)(void), int runs) {
    double best = 1e30;
    for (int i = 0; i < 100; i++) work();
    for (int run = 0; run < runs; run++) {
        double start = now_ns();
        for (int i = 0; i < BATCH; i++) work();
        double taken = (now_ns() - start) / BATCH;
        if (taken < best) best = taken;
    }
    return best;
}

int main(int argc, char **argv) {
    int runs = argc > 1 ? atoi(argv[1]) : 300;
    cb_set_threads(1);
    x = cb_ones(cb_dims(2, 2));
    fast_short = cb_compile(short_chain, "backend=vm");
    fast_long = cb_compile(long_chain, "backend=vm");
    double per_op = (least(replay_long, runs) - least(replay_short, runs)) / (LONG - SHORT);
    printf("eager op %.1f, view %.1f, query %.1f, view in a scope %.1f, replayed op %.1f\n",
           least(eager, runs), least(view, runs), least(query, runs), least(scope, runs) / 8,
           per_op);
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    cb_function_free(fast_short);
    cb_function_free(fast_long);
    bool failed = cb_error() != NULL || sum == 0;
    cb_cleanup();
    return failed;
}
