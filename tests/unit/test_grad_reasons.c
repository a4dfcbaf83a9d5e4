/* Why calls with gradients are refused, or run op by op with the tape: what explain and errors say,
 * and that it is the result, the input or the write that was the cause. */
#include "fixture.h"

#include <string.h>

#define BY_TAPE "backend=vm, backward=tape"
#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

static cb_tensor *w; /* a leaf */

static void expect_told(cb_function *fast, const char *words) {
    char *text = cb_explain_summary(fast);
    assert_non_null(text);
    if (!strstr(text, words) || strstr(text, "memory")) fail_msg("no '%s' in: %s", words, text);
    cb_free_text(text);
    cb_function_free(fast);
}

static cb_tensor *writes_to_a_leaf(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    REFUSED(cb_add_(w, y), "the target requires a gradient");
    return cb_add(y, 1.0);
}

static cb_tensor *has_no_gradient(cb_tensor *x) {
    cb_tensor *loss = cb_sum(cb_floor_divide(w, x));
    assert_int_not_equal(cb_backward(loss, NULL), CB_OK);
    expect_error("comes to floor_divide (test_grad_reasons.c:");
    return cb_add(x, 1.0);
}

/* Neither is for want of memory. */
static void refusals_are_the_users(void **state) {
    (void)state;
    cb_function_1 *const program[] = {writes_to_a_leaf, has_no_gradient};
    w = cb_requires_grad_(cb_ones(cb_dims(3), CB_F64), true);
    cb_tensor *x = cb_ones(cb_dims(3), CB_F64);
    for (int i = 0; i < 2; i++) {
        cb_function *fast = cb_compile(program[i], NULL);
        for (int call = 0; call < 3; call++) assert_non_null(cb_call(fast, x));
        expect_told(fast, "an op failed");
        fast = cb_compile(program[i], "fullgraph=1");
        for (int call = 0; call < 3; call++) REFUSED(cb_call(fast, x), "an op failed");
        cb_function_free(fast);
    }
}

static cb_tensor *found;
static cb_tensor *gives_what_it_found(cb_tensor *x) { return cb_sum(x) ? found : NULL; }

static void results_of_ops_outside(void **state) {
    (void)state;
    w = cb_requires_grad_(cb_ones(cb_dims(3), CB_F64), true);
    found = cb_mul(w, 2.0);
    cb_function *fast = cb_compile(gives_what_it_found, NULL);
    for (int call = 0; call < 3; call++)
        assert_ptr_equal(cb_call(fast, cb_ones(cb_dims(3), CB_F64)), found);
    assert_true(cb_requires_grad(found));
    expect_told(fast, "3 calls, 1 graph, 0 breaks");
}

/* A metric beside the loss, with the history that nobody wants. */
static int loss_and_metric(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *off = cb_sub(cb_mul(in[0], w), 1);
    out[0] = cb_mean(cb_square(off));
    out[1] = cb_amax(cb_abs(off));
    if (cb_backward(out[0], NULL) != CB_OK) return -1;
    cb_zero_grad(w);
    return 2;
}

/* What is asked for before anything goes back. */
static cb_tensor *asks_first(cb_tensor *x) {
    cb_tensor *y = cb_exp(cb_mul(x, w)), *loss = cb_sum(cb_mul(y, cb_item(cb_amax(x))));
    if (cb_backward(loss, NULL) != CB_OK) return NULL;
    cb_zero_grad(w);
    return loss;
}

static void left_histories_are_named(void **state) {
    (void)state;
    w = cb_requires_grad_(cb_ones(cb_dims(3), CB_F64), true);
    cb_tensor *x = cb_mul(cb_ones(cb_dims(3), CB_F64), 2), *out[2];
    cb_function *fast = cb_compile_n(loss_and_metric, NULL, BY_TAPE);
    for (int i = 0; i < 3; i++) assert_int_equal(cb_call_n(fast, &x, 1, out, 2), 2);
    assert_int_equal(cb_stats(fast).eager_calls, 3);
    expect_told(fast, "result 1, of amax at test_grad_reasons.c:");
    fast = cb_compile_n(loss_and_metric, NULL, BY_TAPE ", fullgraph=1");
    assert_true(cb_call_n(fast, &x, 1, out, 2) < 0);
    expect_error(
        "has a history that nothing went back over: cb_detach it, or leave backward=tape out");
    cb_function_free(fast);
    fast = cb_compile(asks_first, BY_TAPE);
    for (int i = 0; i < 3; i++) assert_non_null(cb_call(fast, x));
    expect_told(fast, "as in a call before: the result of exp at test_grad_reasons.c:");
    fast = cb_compile(asks_first, "backend=vm");
    for (int i = 0; i < 3; i++) assert_non_null(cb_call(fast, x));
    expect_told(fast, "gradients go on to what was");
}

static cb_tensor *takes_w_times(cb_tensor *x) { return cb_mul(x, w); }

/* Why calls begin with the tape is what began it, and is forgotten with what was compiled. */
static void resets_forget_histories(void **state) {
    (void)state;
    w = cb_requires_grad_(cb_ones(cb_dims(3), CB_F64), true);
    cb_tensor *plain = cb_full(cb_dims(3), 2, CB_F64), *foreign = cb_mul(w, 3.0);
    cb_function *fast = cb_compile(takes_w_times, BY_TAPE);
    for (int round = 0; round < 2; round++) {
        for (int call = 0; call < 2; call++) assert_non_null(cb_call(fast, foreign));
        assert_non_null(cb_call(fast, plain));
        for (int call = 0; call < 2; call++) assert_non_null(cb_call(fast, plain));
        assert_int_equal(cb_stats(fast).eager_calls, round * 5 + 5);
        char *text = cb_explain(fast);
        const char *named = strstr(text, "(input 0 is the result of mul at test_grad_reasons.c:");
        assert_true(named && strstr(named + 1, "(input 0 is the result of mul at")); /* by itself */
        assert_non_null(
            strstr(text, "(as in a call before: result 0, of mul at test_grad_reasons.c:"));
        cb_free_text(text);
        assert_int_equal(cb_reset(), CB_OK);
        cb_no_grad_open();
        for (int call = 0; call < 2; call++) assert_non_null(cb_call(fast, plain));
        cb_no_grad_close();
        assert_int_equal(cb_stats(fast).eager_calls, round * 5 + 5);
    }
    cb_requires_grad_(w, false);
    cb_tensor *leaf = cb_requires_grad_(cb_full(cb_dims(3), 2, CB_F64), true);
    assert_int_equal(cb_reset(), CB_OK);
    for (int call = 0; call < 3; call++) assert_non_null(cb_call(fast, plain));
    assert_true(cb_requires_grad(leaf)); /* something has a tape meanwhile */
    assert_int_equal(cb_stats(fast).eager_calls, 10);
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(refusals_are_the_users),
        TEST(results_of_ops_outside),
        TEST(left_histories_are_named),
        TEST(resets_forget_histories),
    };
    return cmocka_run_group_tests_name("grad_reasons", tests, NULL, NULL);
}
