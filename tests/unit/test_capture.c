/* Compiled functions against the same functions run eagerly: replay, paths, captured tensors,
 * breaks, fullgraph, random numbers. */
#include "capture_support.h"

/* ---- replay -------------------------------------------------------------------------------- */

static void test_gelu(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(gelu, VM);
    cb_tensor *x = ramp(4, 8);
    for (int i = 0; i < 3; i++) expect_equal(cb_call(fast, x), gelu(x));
    cb_function_stats stats = cb_stats(fast);
    assert_int_equal(stats.calls, 3);
    assert_int_equal(stats.graphs, 1);
    assert_int_equal(stats.kernels, 1);
    assert_int_equal(stats.kernels_eager, 8);
    assert_int_equal(stats.eager_calls, 0);
    assert_int_equal(stats.recompiles, 0);
    cb_function_free(fast);
    cb_scope_close();
}

static void test_guards(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(gelu, VM);
    cb_tensor *x = ramp(4, 8), *y = ramp(2, 3), *t = cb_transpose(x, 0, 1);
    for (int i = 0; i < 2; i++) {
        expect_equal(cb_call(fast, x), gelu(x));
        expect_equal(cb_call(fast, y), gelu(y));
        cb_tensor *half = cb_to(y, CB_F16);
        expect_equal(cb_call(fast, half), gelu(half));
        cb_tensor *strided = cb_call(fast, t), *expected = gelu(t);
        expect_equal(cb_contiguous(strided), cb_contiguous(expected));
    }
    assert_int_equal(cb_stats(fast).graphs, 4);
    assert_int_equal(cb_stats(fast).recompiles, 3);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "input 0 is f32[2, 3], entry 0 has f32[4, 8]"));
    cb_free_text(text);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    cb_scope_close();
}

static int many(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = gelu(x[0]);
    return 1;
}

static void expect_name(cb_function *fast, const char *summary, const char *explained) {
    char *text = cb_explain_summary(fast);
    assert_int_equal(strncmp(text, summary, strlen(summary)), 0);
    cb_free_text(text);
    text = cb_explain(fast);
    assert_int_equal(strncmp(text, explained, strlen(explained)), 0);
    cb_free_text(text);
    cb_function_free(fast);
}

/* As it is called in the program; what is no name has none, nor has a call without the macro. */
static void test_names(void **state) {
    (void)state;
    cb_function_1 *kinds[] = {gelu};
    expect_name(cb_compile(gelu),
                "gelu, compiled at tests/unit/test_capture.c:", "compiled function gelu: ");
    expect_name(cb_compile(&gelu, VM), "gelu, compiled at ", "compiled function gelu: ");
    expect_name(cb_compile_n(many, NULL, VM), "many, ", "compiled function many: ");
    expect_name(cb_compile_1(gelu, VM), "gelu, ", "compiled function gelu: ");
    expect_name(cb_compile(kinds[0], VM), "function, ", "compiled function: ");
    expect_name((cb_compile_1)(gelu, VM), "function, ", "compiled function: ");
    cb_function *fast = cb_compile(gelu, VM);
    assert_null(cb_call(fast, NULL, NULL));
    assert_string_equal(strstr(cb_error(), "call: "), "call: gelu takes 1 tensor, not 2");
    cb_clear_error();
    cb_function_free(fast);
    assert_null(cb_compile(gelu, "no=option"));
    cb_clear_error();
}

static void test_recompile_limit(void **state) {
    (void)state;
    cb_scope_open();
    cb_set_option("recompile_limit", "2");
    cb_function *fast = cb_compile(gelu, "dynamic=0, " VM);
    for (int n = 1; n <= 4; n++) {
        cb_tensor *x = ramp(1, n);
        expect_equal(cb_call(fast, x), gelu(x));
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    assert_int_equal(cb_stats(fast).eager_calls, 2);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "recompile limit"));
    cb_free_text(text);
    cb_set_option("recompile_limit", "8");
    cb_function_free(fast);
    cb_scope_close();
}

static bool bad;

/* Two events, and in a bad call an op that fails, which it deals with itself. */
static cb_tensor *asks_twice(cb_tensor *x) {
    if (bad) {
        cb_add(x, cb_ones(cb_dims(7)));
        cb_clear_error();
    }
    cb_tensor *y = cb_mul(x, cb_item(cb_sum(x)) > 1e9 ? 3.0 : 2.0);
    return cb_add(y, cb_item(cb_amax(cb_exp(y))) > 1e9 ? 3.0 : 2.0);
}

/* Calls that could not be recorded count towards giving up, and no events. */
static void test_giving_up(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = ramp(2, 3);
    cb_set_option("recompile_limit", "2");
    cb_function *fast = cb_compile(asks_twice, VM);
    for (int k = 0; k < 12; k++) {
        bad = k == 2 || k == 6;
        cb_call(fast, x);
        assert_int_equal(cb_stats(fast).eager_calls, k < 2 ? 0 : k < 6 ? 1 : k - 4);
    }
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "it runs eagerly from now on, until cb_reset (a call that cannot "
                                 "be recorded"));
    cb_free_text(text);
    cb_reset();
    cb_call(fast, x);
    assert_int_equal(cb_stats(fast).eager_calls, 7);
    assert_int_equal(cb_stats(fast).breaks, 2);
    bad = true;
    cb_call(fast, x);
    bad = false;
    cb_call(fast, x);
    assert_int_equal(cb_stats(fast).eager_calls, 8);
    cb_set_option("recompile_limit", "8");
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

/* As long as a chain of views is, so deep is no stack. */
static cb_tensor *turns(cb_tensor *x) {
    for (int i = 0; i < 100000; i++) x = cb_t(x);
    return cb_mul(x, 2.0);
}

static void test_long_chain(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = ramp(2, 3);
    cb_function *fast = cb_compile(turns, VM);
    expect_equal(cb_call(fast, x), cb_mul(x, 2.0));
    assert_int_equal(cb_stats(fast).graphs, 1);
    cb_function_free(fast);
    cb_scope_close();
}

static int step;

static cb_tensor *branching(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    switch (step % 4) {
    case 0:
        return cb_exp(y);
    case 1:
        return cb_add(cb_sin(y), x);
    case 2:
        return y; /* ends where the others go on */
    default:
        return cb_add(cb_sin(y), 1.0);
    }
}

static void test_paths(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(branching, VM);
    cb_tensor *x = ramp(2, 3);
    for (step = 0; step < 16; step++) expect_equal(cb_call(fast, x), branching(x));
    assert_int_equal(cb_stats(fast).graphs, 4);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    cb_scope_close();
}

static double factor;

static cb_tensor *scaled(cb_tensor *x) { return cb_mul(x, factor); }

static void test_baked_number(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(scaled, "backend=vm, dynamic=off");
    cb_tensor *x = ramp(2, 3);
    for (int i = 0; i < 4; i++) {
        factor = i % 2 ? 3.0 : -0.5;
        expect_equal(cb_call(fast, x), scaled(x));
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "a number baked into the graph changed"));
    cb_free_text(text);
    cb_function_free(fast);
    cb_scope_close();
}

/* ---- captured tensors ----------------------------------------------------------------------- */

static cb_tensor *weight;

static cb_tensor *with_global(cb_tensor *x) { return cb_add(cb_mul(x, weight), weight); }

static cb_tensor *with_fresh(cb_tensor *x) {
    float data[2] = {(float)step, 1.0f};
    return cb_add(x, cb_from_data(data, CB_F32, cb_dims(2)));
}

static void test_captured(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(with_global, VM), *fresh = cb_compile(with_fresh, VM);
    cb_tensor *x = ramp(3, 2), *first = ramp(1, 2), *second = cb_mul(first, 5.0);
    for (step = 0; step < 4; step++) {
        weight = step % 2 ? first : second;
        expect_equal(cb_call(fast, x), with_global(x));
        expect_equal(cb_call(fresh, x), with_fresh(x));
    }
    assert_int_equal(cb_stats(fast).graphs, 1);
    bool host = !strcmp(cb_get_option("device"), "cpu"); /* a constant there, then an input */
    assert_int_equal(cb_stats(fresh).graphs, host ? 2 : 1);
    cb_function_free(fast);
    cb_function_free(fresh);
    cb_scope_close();
}

/* ---- breaks -------------------------------------------------------------------------------- */

static int side_effects;

static cb_tensor *asks(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0), *z = cb_exp(y);
    cb_add_(y, 1.0);
    side_effects++;
    if (cb_item(cb_sum(y)) > 0) z = cb_neg(z);
    return cb_add(z, y);
}

static void test_value_request(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(asks, VM);
    cb_tensor *x = ramp(4, 8), *y = cb_neg(x);
    side_effects = 0;
    cb_tensor *got[3] = {cb_call(fast, x), cb_call(fast, y), cb_call(fast, x)};
    assert_int_equal(side_effects, 3);
    expect_equal(got[0], asks(x));
    expect_equal(got[1], asks(y));
    expect_equal(got[2], asks(x));
    assert_int_equal(cb_stats(fast).breaks, 1);
    assert_int_equal(cb_stats(fast).graphs, 3); /* one before the value, two ways behind it */
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "asked for a value"));
    assert_non_null(strstr(text, "test_capture.c:"));
    cb_free_text(text);
    cb_function_free(fast);
    cb_scope_close();
}

static cb_tensor *asks_later(cb_tensor *x) {
    cb_tensor *y = cb_rand_like(x);
    cb_mul_(x, 2.0);
    if (step > 2) assert_true(cb_item(cb_sum(x)) < 1e9);
    return cb_add(cb_mul(y, x), cb_rand_like(x));
}

static void test_value_request_in_replay(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(asks_later, VM);
    for (step = 0; step < 6; step++) {
        cb_tensor *x = ramp(4, 8), *y = ramp(4, 8);
        cb_manual_seed(7);
        cb_tensor *got = cb_call(fast, x);
        cb_manual_seed(7);
        expect_equal(got, asks_later(y));
        expect_equal(x, y);
    }
    assert_int_equal(cb_stats(fast).breaks, 1);
    cb_function_free(fast);
    cb_scope_close();
}

/* ---- fullgraph ----------------------------------------------------------------------------- */

static cb_tensor *counted(cb_tensor *x) {
    side_effects++;
    cb_add_(weight, 1.0);
    return cb_mul(x, weight);
}

static void test_fullgraph(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(counted, "fullgraph=1, " VM);
    cb_tensor *x = ramp(3, 2);
    weight = ramp(1, 2);
    cb_tensor *expected[4];
    for (int i = 0; i < 4; i++) expected[i] = counted(x);
    weight = ramp(1, 2);
    side_effects = 0;
    for (int i = 0; i < 4; i++) expect_equal(cb_call(fast, x), expected[i]);
    assert_int_equal(side_effects, 1);
    cb_function_free(fast);
    cb_function *broken = cb_compile(asks, "fullgraph=1, " VM);
    assert_null(cb_call(broken, x));
    assert_non_null(strstr(cb_error(), "test_capture.c:"));
    assert_non_null(strstr(cb_error(), "fullgraph"));
    assert_int_equal(cb_error_status(), CB_ERR_COMPILE);
    cb_clear_error();
    cb_function_free(broken);
    cb_function *whole = cb_compile(write_views, "fullgraph=1, " VM);
    for (int i = 0; i < 3; i++)
        expect_equal(cb_call(whole, ramp(3, 4), ramp(3, 4)), write_views(ramp(3, 4), ramp(3, 4)));
    cb_function_free(whole);
    cb_scope_close();
}

/* ---- random numbers ------------------------------------------------------------------------ */

static void test_random(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(noisy, VM);
    cb_tensor *x = ramp(8, 4), *expected[3];
    cb_manual_seed(3);
    for (int i = 0; i < 3; i++) expected[i] = noisy(x);
    cb_manual_seed(3);
    for (int i = 0; i < 3; i++) expect_equal(cb_call(fast, x), expected[i]);
    cb_function_free(fast);
    cb_scope_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_guards),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_recompile_limit),
        cmocka_unit_test(test_giving_up),
        cmocka_unit_test(test_long_chain),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_baked_number),
        cmocka_unit_test(test_captured),
        cmocka_unit_test(test_value_request),
        cmocka_unit_test(test_value_request_in_replay),
        cmocka_unit_test(test_fullgraph),
        cmocka_unit_test(test_random),
    };
    return run_counted(tests);
}
