/* Compiled functions called with all kinds of inputs and found tensors, in all contexts, with all
 * kinds of results: each is compiled once, and told from the others. */
#include "capture_support.h"
#include "fixture.h"

static cb_tensor *outside; /* a tensor that the functions find */
static int way;            /* that they take */

static void expect_words(cb_function *fast, const char *words) {
    char *text = cb_explain(fast);
    assert_non_null(text);
    if (!strstr(text, words)) print_error("no '%s' in\n%s\n", words, text);
    assert_non_null(strstr(text, words));
    cb_free_text(text);
}

/* ---- entries of one trace -------------------------------------------------------------------- */

/* The same ops, compiled for another context each: what a call meets decides. */
static int negates_first(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = cb_matmul(x[0], cb_t(x[0]));
    return 1;
}

static void test_contexts(void **state) {
    (void)state;
    cb_function *fast = cb_compile_n(negates_first, NULL, VM);
    cb_tensor *x[2] = {ramp(2, 3), ramp(2, 3)}, *same[2] = {x[0], x[0]}, *out[1], *expected[1];
    const char *before = cb_get_float32_matmul_precision();
    for (int round = 0; round < 2; round++) {
        negates_first(x, 2, expected, NULL);
        assert_int_equal(cb_call_n(fast, same, 2, out, 1), 1); /* one tensor twice */
        expect_equal(out[0], expected[0]);
        assert_int_equal(cb_call_n(fast, x, 2, out, 1), 1); /* two: the trace is equal */
        expect_equal(out[0], expected[0]);
        assert_int_equal(cb_set_float32_matmul_precision("medium"), CB_OK);
        assert_int_equal(cb_call_n(fast, x, 2, out, 1), 1);
        assert_int_equal(cb_set_float32_matmul_precision(before), CB_OK);
        assert_int_equal(cb_stats(fast).graphs, 3);
    }
    expect_words(fast, "float32 matmul precision is medium, for entry 1 it was not medium");
    expect_words(fast, "input 1 is another tensor than input 0, for entry 0 it was the same");
    cb_function_free(fast);
    fast = cb_compile_n(negates_first, NULL, VM);
    assert_int_equal(cb_set_float32_matmul_precision("medium"), CB_OK);
    assert_int_equal(cb_call_n(fast, x, 2, out, 1), 1);
    assert_int_equal(cb_set_float32_matmul_precision("highest"), CB_OK);
    assert_int_equal(cb_call_n(fast, x, 2, out, 1), 1);
    assert_int_equal(cb_set_float32_matmul_precision(before), CB_OK);
    expect_words(fast, "float32 matmul precision is not medium, for entry 0 it was medium");
    cb_function_free(fast);
}

static cb_tensor *negates(cb_tensor *x) { return cb_neg(x); }

static void test_autocast_of_one_trace(void **state) {
    (void)state;
    cb_function *fast = cb_compile(negates, VM);
    cb_tensor *x = ramp(2, 3);
    for (int i = 0; i < 4; i++) {
        if (i % 2) cb_autocast_open(CB_BF16);
        expect_equal(cb_call(fast, x), cb_neg(x));
        if (i % 2) cb_autocast_close();
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    expect_words(fast, "autocast is bf16, for entry 0 it was off");
    cb_function_free(fast);
}

/* 1 + 2^-11, which is no f16, minus 1. */
static cb_tensor *loses_a_bit(cb_tensor *x) { return cb_sub(cb_add(x, 1), 1); }

static void test_rounding_of_one_trace(void **state) {
    (void)state;
    cb_function *fast = cb_compile(loses_a_bit, VM);
    cb_tensor *x = cb_to(cb_full(cb_dims(3), 0x1p-11), CB_F16);
    for (int i = 0; i < 4; i++) {
        cb_set_option("precise", i % 2 ? "1" : "0");
        assert_true(cb_item(cb_sum(cb_call(fast, x))) == (i % 2 ? 0 : 3 * 0x1p-11));
    }
    cb_set_option("precise", "0");
    assert_int_equal(cb_stats(fast).graphs, 2);
    expect_words(fast, "option precise is 1, for entry 0 it was 0");
    expect_words(fast, "  option precise: 1\n");
    cb_function_free(fast);
}

/* Of several things that differ, each is named. */
static void test_two_contexts_at_once(void **state) {
    (void)state;
    cb_function *fast = cb_compile(negates, VM);
    cb_call(fast, ramp(2, 3));
    cb_autocast_open(CB_F16);
    cb_set_option("precise", "1");
    cb_call(fast, ramp(2, 3));
    cb_set_option("precise", "0");
    cb_autocast_close();
    expect_words(fast, "autocast is f16, for entry 0 it was off; option precise is 1, for entry 0");
    cb_function_free(fast);
}

static cb_module *net, *other;

static cb_tensor *runs_a_net(cb_tensor *x) { return cb_forward(net, x); }
static cb_tensor *runs_two(cb_tensor *x) { return cb_forward(other, cb_forward(net, x)); }
static cb_tensor *asks_for_the_mode(cb_tensor *x) {
    return cb_module_training(net) ? cb_neg(x) : cb_exp(x);
}

/* Made for itself, and freed: later calls depend on no such module. */
static cb_tensor *makes_its_own(cb_tensor *x) {
    cb_module *own = cb_nn_relu();
    cb_tensor *y = cb_forward(own, x);
    cb_module_free(own);
    return cb_forward(net, y);
}

/* Under fullgraph the function does not run again, so which modules train, wherever they are run
 * from, is asked before. */
static void test_modes_of_what_ran(void **state) {
    (void)state;
    cb_function_1 *functions[] = {runs_a_net, runs_two, asks_for_the_mode, makes_its_own};
    cb_tensor *x = ramp(4, 6);
    for (int i = 0; i < 4; i++) {
        net = i % 2 ? cb_nn_sequential(cb_nn_dropout(0.5)) : cb_nn_dropout(0.5);
        other = cb_nn_dropout(0.25);
        cb_function *fast = cb_compile(functions[i], "fullgraph=1," VM);
        for (int call = 0; call < 6; call++) {
            cb_module_train(net, call % 2 == 0);
            cb_module_train(other, call % 2 == 0);
            cb_manual_seed(7);
            cb_tensor *got = cb_call(fast, x);
            cb_manual_seed(7);
            expect_equal(got, functions[i](x));
        }
        assert_int_equal(cb_stats(fast).graphs, 2);
        expect_words(fast, "was switched between train and eval");
        cb_module_train(other, true); /* of two that ran, one is enough */
        cb_call(fast, x);
        assert_int_equal(cb_stats(fast).graphs, i == 1 ? 3 : 2);
        cb_module_free(net);
        cb_module_free(other);
        for (int k = 0; k < 80; k++) cb_module_free(cb_nn_relu()); /* its tomb is not asked */
        assert_null(cb_call(fast, x));
        assert_non_null(strstr(cb_error(), "was freed at"));
        cb_clear_error();
        cb_function_free(fast);
    }
    net = cb_nn_relu(); /* of which nothing but its life is known */
    cb_module_set_leaf(net, false);
    cb_module_train(net, false);
    cb_function *fast = cb_compile(runs_a_net, "fullgraph=1," VM);
    for (int call = 0; call < 2; call++) expect_equal(cb_call(fast, x), runs_a_net(x));
    cb_module_free(net);
    assert_null(cb_call(fast, x));
    assert_non_null(strstr(cb_error(), "was freed at"));
    cb_clear_error();
    cb_function_free(fast);
}

/* Inputs of other dtypes, ranks, sizes and strides: an entry each, which is found again. */
static void test_inputs(void **state) {
    (void)state;
    cb_function *fast = cb_compile(gelu, VM);
    cb_tensor *x = ramp(4, 6);
    cb_tensor *inputs[] = {x,
                           cb_to(x, CB_F64),
                           cb_view(x, cb_dims(24)),
                           cb_view(x, cb_dims(4, 6, 1)),
                           cb_slice(x, 0, 0, 3),
                           cb_slice(x, 1, 0, 5),
                           cb_t(x),
                           cb_slice(x, 1, 0, 6, 2)};
    enum { COUNT = sizeof inputs / sizeof *inputs };
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < COUNT; i++)
            expect_equal(cb_to(cb_call(fast, inputs[i]), CB_F32), cb_to(gelu(inputs[i]), CB_F32));
    assert_int_equal(cb_stats(fast).graphs, COUNT);
    cb_function_free(fast);
}

/* Tensors from outside of each kind, and what comes after them: all are told apart. */
static cb_tensor *adds_outside(cb_tensor *x) {
    cb_tensor *y = cb_add(x, outside);
    return cb_to(way ? cb_exp(y) : cb_abs(y), CB_F32);
}

static void test_tensors_from_outside(void **state) {
    (void)state;
    cb_set_option("recompile_limit", "40");
    cb_function *fast = cb_compile(adds_outside, VM);
    cb_tensor *x = ramp(4, 4), *large = ramp(8, 8);
    cb_tensor *found[] = {cb_slice(cb_slice(large, 0, 0, 4), 1, 0, 4),
                          ramp(4, 4),
                          cb_to(ramp(4, 4), CB_F64),
                          cb_slice(ramp(4, 4), 0, 0, 1),
                          cb_select(ramp(4, 4), 0, 1),
                          cb_t(ramp(4, 4)),
                          cb_slice(ramp(4, 4), 1, 0, 1),
                          cb_sum(ramp(2, 2))};
    enum { COUNT = sizeof found / sizeof *found };
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 2 * COUNT; i++) {
            outside = found[round == 1 ? COUNT - 1 - i / 2 : i / 2];
            way = i % 2;
            expect_equal(cb_call(fast, x), adds_outside(x));
        }
    assert_int_equal(cb_stats(fast).graphs, 2 * COUNT);
    cb_function_free(fast);
    cb_set_option("recompile_limit", "8");
}

/* ---- notes ----------------------------------------------------------------------------------- */

static cb_tensor *scales(cb_tensor *x) {
    cb_site(way % 2 ? "elsewhere.c" : "otherwhere.c", way / 2);
    return (cb_mul)(cb_operand_tensor(x), cb_operand_float(way));
}

/* One note per reason and line, of which a function keeps the first 32. */
static void test_many_notes(void **state) {
    (void)state;
    cb_set_option("recompile_limit", "100");
    cb_function *fast = cb_compile(scales, VM);
    cb_tensor *x = ramp(2, 3);
    for (way = 1; way < 60; way++) expect_equal(cb_call(fast, x), scales(x));
    char *text = cb_explain(fast);
    int notes = 0;
    for (const char *at = text; (at = strstr(at, "a number baked into the graph changed")); at++)
        notes++;
    cb_free_text(text);
    assert_in_range(notes, 30, 32);
    assert_int_equal(cb_stats(fast).graphs, 59);
    cb_function_free(fast);
    cb_set_option("recompile_limit", "8");
}

/* ---- writes through views -------------------------------------------------------------------- */

static cb_tensor *writes_a_number(cb_tensor *x, cb_tensor *y) {
    cb_tensor *s = cb_sum(x), *t = cb_sum(y);
    cb_fill_(cb_view(s, cb_dims(1)), 7.0); /* a view of no dimension */
    cb_assign(t, s);
    return cb_add(cb_add(x, s), t);
}

static cb_tensor *writes_permuted(cb_tensor *x, cb_tensor *y) {
    cb_tensor *z = cb_mul(cb_view(x, cb_dims(3, 2, 2)), 3.0);
    cb_tensor *turned = cb_permute(z, cb_dims(2, 0, 1));
    cb_assign(cb_select(turned, 0, 1), cb_view(cb_slice(y, 1, 0, 2), cb_dims(3, 2)));
    cb_assign(cb_permute(x, cb_dims(1, 0)), cb_t(y));
    return cb_add(cb_view(z, cb_dims(3, 4)), x);
}

static cb_tensor *writes_broadcast(cb_tensor *x, cb_tensor *y) {
    cb_assign(x, cb_slice(y, 0, 1, 2)); /* of the same rank */
    cb_assign(y, cb_slice(x, 1, 1, 2));
    return cb_add(x, y);
}

static cb_tensor *writes_nothing_into(cb_tensor *x, cb_tensor *y) {
    cb_assign(cb_slice(x, 0, 1, 1), cb_slice(y, 0, 1, 1));
    cb_fill_(cb_narrow(x, 1, 2, 0), 3.0);
    return cb_add(x, y);
}

static void test_writes(void **state) {
    (void)state;
    expect_same_2(writes_a_number, VM, 1);
    expect_same_2(writes_permuted, VM, 1);
    expect_same_2(writes_broadcast, VM, 1);
    expect_same_2(writes_nothing_into, VM, 1);
}

static cb_tensor *views_turned(cb_tensor *x) { return cb_view(cb_t(x), cb_dims(6)); }
static cb_tensor *views_badly(cb_tensor *x) { return cb_view(x, cb_dims(5)); }
static cb_tensor *writes_too_much(cb_tensor *x) { return cb_assign(x, cb_ones(cb_dims(7))); }

/* What is refused is refused with the words that eager has. */
static void test_refused_views(void **state) {
    (void)state;
    cb_function_1 *const functions[] = {views_turned, views_badly, writes_too_much};
    static const char *const options[] = {VM, "fullgraph=1," VM};
    cb_tensor *x = ramp(2, 3);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            char said[256];
            cb_function *fast = cb_compile(functions[i], options[k]);
            assert_null(functions[i](x));
            snprintf(said, sizeof said, "%s", cb_error());
            cb_clear_error();
            assert_null(cb_call(fast, x));
            assert_string_equal(cb_error(), said);
            cb_clear_error();
            cb_function_free(fast);
        }
}

/* ---- results of one graph -------------------------------------------------------------------- */

/* A part of a result, one result twice, none, the input, a view of it, a tensor from outside. */
static int results(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *y = cb_mul(x[0], 2.0), *row = cb_index_select(x[0], 0, x[1]);
    cb_tensor *const made[] = {
        cb_select(cb_exp(x[0]), 0, 1), y, y, NULL, x[0], cb_t(x[0]), outside, row};
    memcpy(out, made, sizeof made);
    return 8;
}

/* Also when a step fails, after which the ops run one by one, and with an error from before. */
static void test_results(void **state) {
    (void)state;
    static const char *const options[] = {VM, "fullgraph=1," VM};
    outside = ramp(2, 3);
    for (int k = 0; k < 2; k++) {
        cb_function *fast = cb_compile_n(results, NULL, options[k]);
        cb_tensor *x[2] = {ramp(2, 3)}, *got[8], *expected[8];
        for (int round = 0; round < 6; round++) {
            int64_t row = round == 1 || round == 4 ? 9 : 1;
            x[1] = cb_from_data(&row, CB_I64, cb_dims(1));
            if (round == 4) cb_fail(CB_ERR_IO, "from before");
            int count = cb_call_n(fast, x, 2, got, 8);
            if (row == 9) {
                assert_true(count < 0);
                expect_error(round == 4 ? "from before" : "index");
                continue;
            }
            assert_int_equal(count, 8);
            results(x, 2, expected, NULL);
            for (int i = 0; i < 8; i++)
                if (expected[i]) expect_equal(got[i], expected[i]);
            assert_ptr_equal(got[1], got[2]);
            assert_null(got[3]);
            assert_ptr_equal(got[4], x[0]);
            assert_true(cb_shares_storage(got[5], x[0]));
            assert_true(cb_shares_storage(got[6], outside));
        }
        cb_function_free(fast);
    }
    assert_null(cb_error());
}

/* What is written shows in what else is returned: the ops run one by one. */
static int writes_and_returns(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_add_(x[0], 1.0);
    cb_tensor *y = cb_mul(x[1], 2.0);
    cb_tensor *const made[] = {y, y, NULL, x[0], cb_t(x[1])};
    memcpy(out, made, sizeof made);
    return 5;
}

static void test_results_of_ops(void **state) {
    (void)state;
    cb_function *fast = cb_compile_n(writes_and_returns, NULL, "fullgraph=1," VM);
    for (int round = 0; round < 4; round++) {
        cb_tensor *a = ramp(4, 3), *b = ramp(4, 3), *got[5], *expected[5];
        bool overlap = round % 2;
        cb_tensor *x[] = {cb_slice(a, 0, 0, 2), cb_slice(overlap ? a : b, 0, 1, 3)};
        cb_tensor *c = cb_clone(a), *d = cb_clone(b);
        cb_tensor *y[] = {cb_slice(c, 0, 0, 2), cb_slice(overlap ? c : d, 0, 1, 3)};
        assert_int_equal(cb_call_n(fast, x, 2, got, 5), 5);
        writes_and_returns(y, 2, expected, NULL);
        for (int i = 0; i < 5; i++)
            if (expected[i]) expect_equal(got[i], expected[i]);
        assert_ptr_equal(got[0], got[1]);
        assert_null(got[2]);
        assert_ptr_equal(got[3], x[0]);
    }
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_contexts, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_autocast_of_one_trace, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_rounding_of_one_trace, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_two_contexts_at_once, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_modes_of_what_ran, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_inputs, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_tensors_from_outside, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_many_notes, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_writes, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_refused_views, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_results, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_results_of_ops, open_scope, close_scope),
    };
    return run_counted(tests);
}
