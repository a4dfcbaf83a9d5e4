/* Compiled functions in which something fails: what they did before it stays done, as in eager. */
#include "capture_support.h"

static cb_tensor *positions, *counter;

static cb_tensor *row_of(cb_tensor *x) { return cb_index_select(x, 0, positions); }

/* ---- functions ------------------------------------------------------------------------------ */

static cb_tensor *writes_then_looks_up(cb_tensor *x) {
    cb_add_(x, 1.0);
    cb_tensor *row = row_of(x);
    cb_mul_(counter, 2.0); /* nobody has looked at row */
    cb_mul_(x, cb_sum(row));
    return cb_mul(row, 2.0);
}

static cb_tensor *writes_then_misfits(cb_tensor *x) {
    cb_add_(x, 1.0);
    cb_tensor *sum = cb_add(x, cb_ones(cb_dims(7)));
    cb_mul_(counter, 2.0);
    return sum;
}

static cb_tensor *writes_random(cb_tensor *x) {
    cb_assign(x, cb_rand_like(x));
    return row_of(x);
}

static cb_tensor *complains(cb_tensor *x) {
    cb_add_(x, 1.0);
    cb_fail(CB_ERR_ARGUMENT, "it complains");
    return x;
}

/* ---- the comparison ------------------------------------------------------------------------- */

static cb_tensor *place(int64_t at) { return cb_from_data(&at, CB_I64, cb_dims(1)); }

/* A call that works (or not), one that fails, one that works, in both worlds. */
static void expect_same_effects(cb_function_1 *function, const char *options, bool works) {
    cb_function *fast = cb_compile(function, options);
    cb_scope_open();
    cb_tensor *x = ramp(3, 4), *u = ramp(3, 4), *count = cb_ones(cb_dims(1));
    cb_tensor *other = cb_ones(cb_dims(1));
    for (int step = works ? 0 : 1; step < (works ? 4 : 2); step++) {
        positions = place(step == 1 ? 3 : 2);
        counter = count;
        cb_manual_seed(5);
        cb_tensor *expected = function(u);
        char said[256] = "";
        if (cb_error()) snprintf(said, sizeof said, "%s", cb_error());
        double drawn = cb_item(cb_rand(cb_dims(1)));
        cb_clear_error();
        counter = other;
        cb_manual_seed(5);
        cb_tensor *got = cb_call(fast, x);
        if (step == 1) {
            assert_null(got);
            assert_non_null(cb_error());
            assert_string_equal(cb_error(), said);
            cb_clear_error();
        } else {
            expect_equal(got, expected);
        }
        assert_true(cb_item(cb_rand(cb_dims(1))) == drawn);
        expect_equal(x, u);
        expect_equal(other, count);
        assert_null(cb_error());
    }
    cb_scope_close();
    cb_function_free(fast);
}

static void test_effects(void **state) {
    (void)state;
    const char *options[] = {VM, "freeze=1, " VM};
    for (int o = 0; o < 2; o++) {
        expect_same_effects(writes_then_looks_up, options[o], true);
        expect_same_effects(writes_random, options[o], true);
        expect_same_effects(writes_then_looks_up, options[o], false);
        expect_same_effects(writes_then_misfits, options[o], false);
        expect_same_effects(complains, options[o], false);
    }
    expect_same_effects(writes_then_misfits, "fullgraph=1, " VM, false);
    expect_same_effects(writes_then_looks_up, "fullgraph=1, " VM, false);
}

static cb_tensor *goes_on(cb_tensor *x) {
    cb_tensor *y = cb_matmul(x, x); /* f32[3, 4] */
    return y ? y : cb_mul(x, 2.0);
}

static cb_tensor *goes_on_cleared(cb_tensor *x) {
    cb_tensor *y = cb_matmul(x, x);
    if (!y) cb_clear_error();
    return y ? y : cb_mul(x, 2.0);
}

/* An error that the function leaves fails the call, whether there was one before or not. */
static void test_errors_before(void **state) {
    (void)state;
    cb_function *leaves = cb_compile(goes_on, VM), *clears = cb_compile(goes_on_cleared, VM);
    cb_function *works = cb_compile(gelu, VM);
    cb_scope_open();
    cb_tensor *x = ramp(3, 4);
    for (int i = 0; i < 4; i++) {
        assert_null(cb_call(leaves, x));
        assert_non_null(strstr(cb_error(), "inner sizes differ"));
    }
    cb_set_option("stance", "force_eager");
    assert_null(cb_call(leaves, x));
    cb_set_option("stance", "default");
    expect_equal(cb_call(works, x), gelu(x)); /* the one before is the caller's */
    assert_non_null(cb_error());
    cb_clear_error();
    for (int i = 0; i < 3; i++) expect_equal(cb_call(clears, x), cb_mul(x, 2.0));
    assert_null(cb_error());
    cb_scope_close();
    cb_function_free(leaves), cb_function_free(clears), cb_function_free(works);
}

/* fullgraph runs the entry alone, and its ops when a step of it fails. */
static int looks_up(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_add_(x[0], 1.0);
    out[0] = cb_index_select(x[0], 0, x[1]);
    out[1] = cb_mul_(x[0], 2.0);
    return 2;
}

static void test_fullgraph(void **state) {
    (void)state;
    cb_function *fast = cb_compile_n(looks_up, NULL, "fullgraph=1, " VM);
    cb_scope_open();
    cb_tensor *x[2] = {ramp(3, 4)}, *u[2] = {ramp(3, 4)}, *got[2], *expected[2];
    for (int step = 0; step < 4; step++) {
        x[1] = u[1] = place(step == 2 ? -4 : 1);
        looks_up(u, 2, expected, NULL);
        cb_clear_error();
        int count = cb_call_n(fast, x, 2, got, 2);
        if (step == 2) {
            assert_int_equal(count, CB_ERR_INDEX);
            cb_clear_error();
        } else {
            assert_int_equal(count, 2);
            expect_equal(got[0], expected[0]);
            assert_ptr_equal(got[1], x[0]);
        }
        expect_equal(x[0], u[0]);
    }
    assert_int_equal(cb_stats(fast).graphs, 1);
    assert_int_equal(cb_stats(fast).eager_calls, 1);
    assert_null(cb_error());
    cb_scope_close();
    cb_function_free(fast);
}

static int gives_up(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)out;
    cb_add_(x[0], 1.0);
    return *(int *)user;
}

static void test_negative_count(void **state) {
    (void)state;
    int status = 0;
    cb_function *fast = cb_compile_n(gives_up, &status, VM);
    cb_scope_open();
    cb_tensor *x = cb_zeros(cb_dims(1)), *out[1];
    for (int step = 1; step <= 4; step++) {
        status = step % 2 ? 0 : -7;
        bool gives_up = status < 0;
        assert_int_equal(cb_call_n(fast, &x, 1, out, 1), gives_up ? CB_ERR_ARGUMENT : 0);
        assert_int_equal(cb_error() && strstr(cb_error(), "gave -7 and recorded no error"),
                         gives_up);
        cb_clear_error();
        assert_true(cb_item(x) == step);
    }
    cb_scope_close();
    cb_function_free(fast);
}

/* What was kept before the failure has its value. */
static cb_tensor *memory;

static cb_tensor *keeps_and_fails(cb_tensor *x) {
    memory = cb_keep(cb_mul(x, 2.0));
    return row_of(x);
}

static void test_kept_before_failure(void **state) {
    (void)state;
    cb_function *fast = cb_compile(keeps_and_fails, VM);
    cb_scope_open();
    cb_tensor *x = ramp(3, 4);
    for (int step = 0; step < 3; step++) {
        positions = place(step == 1 ? 7 : 0);
        cb_tensor *got = cb_call(fast, x);
        assert_int_equal(got == NULL, step == 1);
        cb_clear_error();
        expect_equal(memory, cb_mul(x, 2.0));
        cb_free(memory);
    }
    cb_scope_close();
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_effects),
        cmocka_unit_test(test_errors_before),
        cmocka_unit_test(test_fullgraph),
        cmocka_unit_test(test_negative_count),
        cmocka_unit_test(test_kept_before_failure),
    };
    return run_counted(tests);
}
