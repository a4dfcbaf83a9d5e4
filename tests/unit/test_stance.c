/* What may be compiled: stances, the limit of entries and what is said of it; compiled functions
 * within each other. */
#include "capture/function.h"
#include "capture_support.h"

#include <unistd.h>

static double factor = 2;
static int runs;

static cb_tensor *scaled(cb_tensor *x) {
    runs++;
    return cb_exp(cb_mul(x, factor));
}

static cb_tensor *asks(cb_tensor *x) {
    double sum = cb_item(cb_sum(x));
    cb_tensor *y = cb_mul(x, 0.5);
    return sum > 0 ? cb_exp(y) : cb_sin(y);
}

static void set(const char *stance) { assert_int_equal(cb_set_option("stance", stance), CB_OK); }

static void expect(cb_function *fast, cb_function_1 *function, cb_tensor *x, int64_t graphs,
                   int64_t eager_calls) {
    expect_equal(cb_call(fast, x), function(x));
    assert_int_equal(cb_stats(fast).graphs, graphs);
    assert_int_equal(cb_stats(fast).eager_calls, eager_calls);
}

static void stances(void **state) {
    (void)state;
    cb_tensor *small = ramp(2, 3), *large = ramp(3, 4);
    cb_function *fast = cb_compile(scaled, VM);
    set("force_eager");
    expect(fast, scaled, small, 0, 1);
    set("eager_on_recompile");
    expect(fast, scaled, small, 0, 2);
    set("default");
    expect(fast, scaled, small, 1, 2);
    set("eager_on_recompile");
    expect(fast, scaled, small, 1, 2);
    expect(fast, scaled, large, 1, 3);
    factor = 3;
    expect(fast, scaled, small, 1, 4); /* in its middle */
    factor = 2;
    set("force_eager");
    expect(fast, scaled, small, 1, 5);
    set("eager_then_compile");
    expect(fast, scaled, large, 2, 5);
    cb_function *other = cb_compile(scaled, VM);
    expect(other, scaled, small, 0, 1);
    expect(other, scaled, small, 1, 1);
    set("default");
    cb_function_free(other);
    cb_function_free(fast);
    assert_int_equal(cb_set_option("stance", "lazy"), CB_ERR_OPTION);
    cb_clear_error();
}

static void expect_refused(cb_function *fast, cb_tensor *x, const char *text) {
    assert_null(cb_call(fast, x));
    assert_int_equal(cb_error_status(), CB_ERR_COMPILE);
    assert_non_null(strstr(cb_error(), text));
    cb_clear_error();
}

static void fails(void **state) {
    (void)state;
    cb_tensor *small = ramp(2, 3), *large = ramp(3, 4);
    cb_function *fast = cb_compile(scaled, VM), *cut = cb_compile(asks, VM);
    cb_call(fast, small), cb_call(cut, small);
    set("fail_on_recompile");
    expect(fast, scaled, small, 1, 0);
    expect_refused(fast, large, "the stance is against it: input 0 is f32[3, 4], entry 0 has");
    factor = 3;
    expect_refused(fast, small, "a number changed");
    factor = 2;
    expect(cut, asks, small, 2, 0);
    expect_refused(cut, cb_add(small, 3.0), "the function took another path");
    set("default");
    expect(cut, asks, cb_add(small, 3.0), 3, 0);
    cb_function_free(fast), cb_function_free(cut);
}

/* A segment that nothing is known of is no recompilation before its first op. */
static bool goes_on;
static cb_tensor *asks_last(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    double sum = cb_item(cb_sum(y));
    if (goes_on) return cb_fill_(cb_zeros(cb_dims(2, 3), CB_F32), sum);
    return y;
}

static void begins_a_segment(void **state) {
    (void)state;
    cb_tensor *x = ramp(2, 3);
    cb_function *fast = cb_compile(asks_last, VM);
    expect(fast, asks_last, x, 1, 0);
    set("fail_on_recompile");
    expect(fast, asks_last, x, 1, 0);
    goes_on = true;
    expect_refused(fast, x, "another path");
    set("eager_on_recompile");
    expect(fast, asks_last, x, 1, 1);
    set("default");
    goes_on = false;
    cb_function_free(fast);
}

/* ---- the limit ------------------------------------------------------------------------------- */

/* What the calls of n sizes say on stderr. */
static void calls_of_sizes(cb_function *fast, int count, char *said, size_t bytes) {
    int pipes[2], before = dup(STDERR_FILENO);
    assert_int_equal(pipe(pipes), 0);
    fflush(stderr);
    dup2(pipes[1], STDERR_FILENO);
    for (int n = 1; n <= count; n++) cb_call(fast, ramp(1, n));
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(pipes[1]), close(before);
    ssize_t read_bytes = read(pipes[0], said, bytes - 1);
    said[read_bytes > 0 ? read_bytes : 0] = '\0';
    close(pipes[0]);
}

static void limit(void **state) {
    (void)state;
    char said[1024];
    cb_set_option("recompile_limit", "2");
    cb_function *fast = cb_compile(scaled, "dynamic=0, " VM);
    calls_of_sizes(fast, 5, said, sizeof said);
    assert_non_null(strstr(said, "test_stance.c:"));
    assert_non_null(strstr(said, "the recompile limit was reached: the function runs eagerly: "
                                 "input 0 is f32[1, 3], entry 1 has f32[1, 2] (scaled, "
                                 "compiled at "));
    assert_null(strstr(strstr(said, "the recompile limit") + 1, "the recompile limit"));
    assert_int_equal(cb_stats(fast).eager_calls, 3);
    cb_function_free(fast);
    fast = cb_compile(scaled, "dynamic=0, " VM);
    cb_set_option("notices", "0");
    calls_of_sizes(fast, 5, said, sizeof said);
    assert_string_equal(said, "");
    cb_set_option("notices", "1");
    cb_function_free(fast);
    fast = cb_compile(scaled, "fullgraph=1, dynamic=0, " VM);
    for (int n = 1; n <= 2; n++) assert_non_null(cb_call(fast, ramp(1, n)));
    expect_refused(fast, ramp(1, 3),
                   "the recompile limit was reached: the function runs eagerly, which fullgraph=1 "
                   "refuses: input 0 is f32[1, 3], entry 1 has f32[1, 2] (raise "
                   "CARBIDE_RECOMPILE_LIMIT");
    assert_non_null(cb_call(fast, ramp(1, 2)));
    cb_set_option("recompile_limit", "8");
    cb_function_free(fast);
}

static cb_tensor *widened(cb_tensor *x) { return cb_relu(cb_mul(cb_to(x, CB_F32), 2)); }

/* Behind the limit other sizes of what is compiled go on: nothing is compiled for them. */
static void sizes_behind_the_limit(void **state) {
    (void)state;
    static const cb_dtype kinds[] = {CB_F32, CB_F64, CB_I32, CB_U8};
    cb_set_option("recompile_limit", "2");
    cb_set_option("notices", "0");
    cb_function *fast = cb_compile(widened);
    for (int n = 20; n < 24; n++) cb_call(fast, cb_ones(cb_dims(n, n + 3)));
    for (int k = 1; k < 4; k++) cb_call(fast, cb_ones(cb_dims(7, 9), kinds[k]));
    assert_int_equal(cb_stats(fast).eager_calls, 2);
    for (int n = 50; n < 54; n++) cb_call(fast, cb_ones(cb_dims(n, 5)));
    assert_int_equal(cb_stats(fast).eager_calls, 2);
    cb_function_free(fast);
    cb_set_option("notices", "1");
    cb_set_option("recompile_limit", "8");
}

/* What runs op by op is compiled for no size. */
static void sizes_of_backend_eager(void **state) {
    (void)state;
    cb_function *fast = cb_compile(scaled, "fullgraph=1, backend=eager");
    for (int n = 1; n <= 20; n++) assert_non_null(cb_call(fast, ramp(2, n)));
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    assert_int_equal(cb_stats(fast).compiled, 0);
    cb_function_free(fast);
}

/* A function that breaks at many lines: the notice comes, and what is not kept is counted. */
static void many_notes(void **state) {
    (void)state;
    char said[1024], file[] = "net.c", again[] = "net.c";
    cb_set_option("recompile_limit", "2");
    cb_function *fast = cb_compile(scaled, "dynamic=0, " VM);
    for (int line = 1; line <= 40; line++) {
        function_note(fast, REASON_value_requested, (Site){.file = file, .line = line}, "%s", "");
        function_note(fast, REASON_value_requested, (Site){.file = again, .line = line}, "%s", "");
    }
    calls_of_sizes(fast, 5, said, sizeof said);
    assert_non_null(strstr(said, "the recompile limit was reached"));
    assert_null(strstr(strstr(said, "the recompile limit") + 1, "the recompile limit"));
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "at net.c:31, 2 times")); /* by whichever copy of its name */
    assert_null(strstr(text, "net.c:32"));
    assert_non_null(
        strstr(text, "note: reasons at further lines, which are counted and not kept, 22 times"));
    cb_free_text(text);
    cb_set_option("recompile_limit", "8");
    cb_function_free(fast);
}

/* ---- within each other ----------------------------------------------------------------------- */

static cb_function *inner;
static int depth;

static cb_tensor *calls_another(cb_tensor *x) { return cb_add(cb_call(inner, x), 1.0); }

static cb_tensor *calls_itself(cb_tensor *x) {
    if (depth == 0) return cb_sin(x);
    depth--;
    cb_tensor *y = cb_mul(cb_call(inner, cb_mul(x, 0.5)), 2.0);
    depth++;
    return y;
}

/* A compiled function that another one calls is part of its graph; so is one that calls itself, and
 * each depth is a path. */
static void nested(void **state) {
    (void)state;
    cb_tensor *x = ramp(2, 3);
    inner = cb_compile(scaled, VM);
    cb_function *outer = cb_compile(calls_another, VM);
    for (int i = 0; i < 3; i++) expect_equal(cb_call(outer, x), cb_add(scaled(x), 1.0));
    assert_int_equal(cb_stats(outer).graphs, 1);
    assert_int_equal(cb_stats(inner).graphs, 0);
    cb_function_free(inner), cb_function_free(outer);
    inner = cb_compile(calls_itself, VM);
    for (int round = 0; round < 2; round++)
        for (depth = 0; depth < 5; depth++) {
            cb_tensor *wanted = cb_mul(cb_sin(cb_mul(x, pow(0.5, depth))), pow(2, depth));
            expect_equal(cb_call(inner, x), wanted);
        }
    assert_int_equal(cb_stats(inner).graphs, 5);
    assert_int_equal(cb_stats(inner).eager_calls, 0);
    cb_function_free(inner);
}

/* ---- off for a part, and anew ---------------------------------------------------------------- */

static int ops_seen;

static cb_tensor *partly(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0), *unused = cb_exp(y);
    cb_disable_open();
    cb_tensor *z = cb_add(y, 1.0);
    cb_disable_open();
    const float *after = cb_data_const(z), *before = cb_data_const(x);
    if (!after || !before) return NULL;
    ops_seen += after[0] == 2 * before[0] + 1;
    z = cb_call(inner, z);
    cb_add_(y, z);
    cb_disable_close();
    z = cb_mul(z, factor);
    cb_disable_close();
    return cb_sin(cb_add(cb_mul(y, z), unused));
}

/* What lies between runs at once, with what it needs; what is around it is compiled. */
static void disabled(void **state) {
    (void)state;
    inner = cb_compile(scaled, VM);
    cb_function *fast = cb_compile(partly, VM);
    for (int i = 0; i < 4; i++) {
        factor = 2 + i; /* part of no graph */
        expect_equal(cb_call(fast, ramp(2, 3)), partly(ramp(2, 3)));
    }
    factor = 2;
    assert_int_equal(ops_seen, 8);
    assert_in_range(cb_stats(fast).graphs, 2, 3); /* perhaps the first one wider */
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    assert_int_equal(cb_stats(inner).graphs, 0);
    cb_function_free(fast);
    fast = cb_compile(partly, "fullgraph=1, " VM);
    expect_refused(fast, ramp(2, 3), "cb_disable_open");
    cb_function_free(fast);
    cb_disable_close();
    assert_int_equal(cb_error_status(), CB_ERR_ARGUMENT);
    cb_clear_error();
    cb_disable_open();
    expect_equal(cb_call(inner, ramp(2, 3)), scaled(ramp(2, 3)));
    cb_disable_close();
    assert_int_equal(cb_stats(inner).graphs, 0);
    cb_function_free(inner);
}

static cb_tensor *resets(cb_tensor *x) {
    assert_int_equal((cb_reset)(), CB_ERR_ARGUMENT);
    cb_clear_error();
    return cb_neg(x);
}

static void reset(void **state) {
    (void)state;
    cb_function *fast = cb_compile(scaled, VM), *inside = cb_compile(resets, VM);
    for (int i = 0; i < 3; i++) {
        expect(fast, scaled, ramp(2, 3), 1, 0);
        expect(fast, scaled, ramp(1, 3), 2, 0);
        expect(fast, scaled, ramp(2, 3), 2, 0);
        assert_int_equal(cb_reset(), CB_OK);
    }
    expect(fast, scaled, ramp(2, 3), 1, 0);
    assert_non_null(cb_call(inside, ramp(2, 3)));
    cb_function_free(fast), cb_function_free(inside);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stances),
        cmocka_unit_test(fails),
        cmocka_unit_test(begins_a_segment),
        cmocka_unit_test(limit),
        cmocka_unit_test(sizes_behind_the_limit),
        cmocka_unit_test(sizes_of_backend_eager),
        cmocka_unit_test(many_notes),
        cmocka_unit_test(nested),
        cmocka_unit_test(disabled),
        cmocka_unit_test(reset),
    };
    return run_counted(tests);
}
