/* What a call costs besides its work: eager ops on four elements, views, queries, scopes, an op of
 * a compiled function that is replayed, a write, what it costs more where a number, an attribute or
 * where a view begins is an argument, and an input more, with its guards; what 100 inputs cost, of
 * which 30 are written, too. The least of many short runs, in nanoseconds.
 *
 *     bench_calls [RUNS]                  eager op 212.3, view 31.0, query 3.1, ... */
#include <carbide.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 1000, SHORT = 16, LONG = 80, INPUTS = 100, WRITTEN = 30 };

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

static double rate = 1;
static cb_tensor *scaled(cb_tensor *y) {
    for (int i = 0; i < SHORT; i++) y = cb_mul(y, rate);
    return y;
}
static cb_function *fast_numbers, *fast_arguments;
static void numbers(void) { cb_free(cb_call(fast_numbers, x)); }
static void arguments(void) { cb_free(cb_call(fast_arguments, x)); }

static cb_tensor *leaking(cb_tensor *y) {
    for (int i = 0; i < SHORT; i++) y = cb_leaky_relu(y, rate / 2);
    return y;
}
static cb_function *fast_slopes, *fast_attributes;
static void slopes(void) { cb_free(cb_call(fast_slopes, x)); }
static void attributes(void) { cb_free(cb_call(fast_attributes, x)); }

static int64_t row;
static cb_tensor *rows(cb_tensor *y) {
    cb_tensor *z = y;
    for (int i = 0; i < SHORT; i++) z = cb_select(y, 0, row);
    return cb_relu(z);
}
static cb_function *fast_rows, *fast_starts;
static void same_row(void) { cb_free(cb_call(fast_rows, x)); }
static void starts(void) { cb_free(cb_call(fast_starts, x)); }

static cb_tensor *writes(cb_tensor *y, int count) {
    cb_tensor *z = cb_clone(y);
    for (int i = 0; i < count; i++) cb_assign(z, y);
    return z;
}
static cb_tensor *few_writes(cb_tensor *y) { return writes(y, SHORT); }
static cb_tensor *many_writes(cb_tensor *y) { return writes(y, LONG); }
static cb_function *fast_few, *fast_many;
static void write_few(void) { cb_free(cb_call(fast_few, x)); }
static void write_many(void) { cb_free(cb_call(fast_many, x)); }

static int takes_inputs(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    outputs[0] = cb_relu(inputs[0]);
    return 1;
}
static cb_function *fast_inputs;
static int writes_inputs(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)user;
    int written = count < WRITTEN ? count : WRITTEN;
    for (int i = 0; i < written; i++) cb_relu_(inputs[i]);
    outputs[0] = inputs[0];
    return 1;
}
static cb_function *fast_inputs_written;
static cb_tensor *inputs[INPUTS];
static void call_inputs(int count) {
    cb_tensor *y;
    cb_call_n(fast_inputs, inputs, count, &y, 1);
    cb_free(y);
}
static void one_input(void) { call_inputs(1); }
static void all_inputs(void) { call_inputs(INPUTS); }
static void call_written(int count) {
    cb_tensor *y;
    cb_call_n(fast_inputs_written, inputs, count, &y, 1);
}
static void few_written(void) { call_written(WRITTEN); }
static void all_written(void) { call_written(INPUTS); }

/* Of runs that end before the system takes the processor away. */
static double least_of(int batch, void (*work)(void), int runs) {
    double best = 1e30;
    for (int i = 0; i < 100; i++) work();
    for (int run = 0; run < runs; run++) {
        double start = now_ns();
        for (int i = 0; i < batch; i++) work();
        double taken = (now_ns() - start) / batch;
        if (taken < best) best = taken;
    }
    return best;
}
static double least(void (*work)(void), int runs) { return least_of(BATCH, work, runs); }

int main(int argc, char **argv) {
    int runs = argc > 1 ? atoi(argv[1]) : 300;
    cb_set_threads(1);
    x = cb_ones(cb_dims(2, 2));
    fast_short = cb_compile(short_chain, "backend=vm");
    fast_long = cb_compile(long_chain, "backend=vm");
    fast_numbers = cb_compile(scaled, "backend=vm, dynamic=0");
    fast_arguments = cb_compile(scaled, "backend=vm, dynamic=1");
    fast_slopes = cb_compile(leaking, "backend=vm, dynamic=0");
    fast_attributes = cb_compile(leaking, "backend=vm, dynamic=1");
    fast_rows = cb_compile(rows, "backend=vm, dynamic=0");
    fast_starts = cb_compile(rows, "backend=vm");
    fast_few = cb_compile(few_writes, "backend=vm");
    fast_many = cb_compile(many_writes, "backend=vm");
    for (row = 0; row < 2; row++) starts(); /* another one makes it an argument */
    row = 1;
    fast_inputs = cb_compile_n(takes_inputs, NULL, "backend=vm");
    fast_inputs_written = cb_compile_n(writes_inputs, NULL, "backend=vm");
    for (int i = 0; i < INPUTS; i++) inputs[i] = cb_ones(cb_dims(2, 2));
    double per_input = (least(all_inputs, runs) - least(one_input, runs)) / (INPUTS - 1);
    double written =
        least_of(SHORT, all_written, 50 * runs) - least_of(SHORT, few_written, 50 * runs);
    double per_argument = (least(arguments, runs) - least(numbers, runs)) / SHORT;
    double per_attribute = (least(attributes, runs) - least(slopes, runs)) / SHORT;
    double per_start = (least(starts, runs) - least(same_row, runs)) / SHORT;
    double per_write = (least(write_many, runs) - least(write_few, runs)) / (LONG - SHORT);
    double per_op = (least(replay_long, runs) - least(replay_short, runs)) / (LONG - SHORT);
    printf("eager op %.1f, view %.1f, query %.1f, view in a scope %.1f, replayed op %.1f, write "
           "%.1f, argument %.1f, attribute %.1f, start %.1f, input %.1f, %d inputs beside %d that "
           "are written %.1f\n",
           least(eager, runs), least(view, runs), least(query, runs), least(scope, runs) / 8,
           per_op, per_write, per_argument, per_attribute, per_start, per_input, INPUTS - WRITTEN,
           WRITTEN, written);
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    cb_function_free(fast_short);
    cb_function_free(fast_long);
    cb_function_free(fast_numbers);
    cb_function_free(fast_arguments);
    cb_function_free(fast_slopes);
    cb_function_free(fast_attributes);
    cb_function_free(fast_rows);
    cb_function_free(fast_starts);
    cb_function_free(fast_few);
    cb_function_free(fast_many);
    cb_function_free(fast_inputs);
    cb_function_free(fast_inputs_written);
    bool failed = cb_error() != NULL || sum == 0;
    cb_cleanup();
    return failed;
}
