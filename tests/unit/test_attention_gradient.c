/* The gradient step of attention against the same in single ops and f64, over sizes on both sides
 * of its panels, groups, blocks and runs, strides, masks and dtypes; and where graphs and eager
 * calls take it. */
#include "carbide.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

typedef enum GivenMask { NO_MASK, BOOL_MASK, FLOAT_MASK, ROW_MASK, KEY_MASK } GivenMask;

typedef struct Case {
    int64_t batch, heads, rows, columns, depth, width;
    bool causal;
    GivenMask mask;
    cb_dtype dtype;
} Case;

static const Case cases[] = {
    {1, 1, 1, 1, 1, 1, false, NO_MASK, CB_F32},
    {1, 2, 1, 300, 64, 64, false, NO_MASK, CB_F32},
    {2, 3, 5, 7, 4, 5, false, NO_MASK, CB_F32},
    {1, 1, 300, 1, 3, 2, true, NO_MASK, CB_F32},
    {2, 3, 33, 130, 16, 24, false, NO_MASK, CB_F32},
    {1, 2, 70, 127, 33, 13, false, BOOL_MASK, CB_F32},
    {1, 2, 200, 200, 64, 64, true, NO_MASK, CB_F32},
    {3, 3, 129, 129, 64, 64, true, NO_MASK, CB_F32},  /* an item is a task */
    {1, 1, 330, 600, 40, 33, false, NO_MASK, CB_F32}, /* groups of fewer panels */
    {1, 1, 65, 2100, 8, 8, false, KEY_MASK, CB_F32},  /* of one */
    {1, 2, 170, 31, 8, 8, true, NO_MASK, CB_F32},
    {1, 2, 31, 300, 8, 15, true, FLOAT_MASK, CB_F32},
    {3, 1, 257, 129, 20, 17, true, BOOL_MASK, CB_F32},
    {2, 2, 40, 141, 16, 16, false, ROW_MASK, CB_F32},
    {2, 2, 40, 41, 16, 16, false, KEY_MASK, CB_F32},
    {1, 2, 145, 140, 12, 9, false, FLOAT_MASK, CB_F64},
    {1, 2, 145, 140, 12, 9, true, BOOL_MASK, CB_F64},
    {1, 2, 145, 140, 12, 9, true, BOOL_MASK, CB_BF16},
    {2, 4, 65, 129, 64, 64, true, NO_MASK, CB_BF16},
    {2, 1, 65, 129, 64, 64, false, KEY_MASK, CB_F16},
};
enum { CASES = sizeof cases / sizeof *cases };

static const double tolerance[CB_DTYPE_COUNT] = {
    [CB_F32] = 3e-6, [CB_F64] = 1e-13, [CB_F16] = 1e-3, [CB_BF16] = 8e-3};

static cb_tensor *mask_of(const Case *c) {
    cb_dim_list sizes = cb_dims(c->batch, c->heads, c->rows, c->columns);
    if (c->mask == NO_MASK) return NULL;
    if (c->mask == ROW_MASK) sizes = cb_dims(c->rows, 1);
    if (c->mask == KEY_MASK) sizes = cb_dims(c->batch, 1, 1, c->columns);
    cb_tensor *noise = cb_rand(sizes);
    if (c->mask == BOOL_MASK) { /* and one query that sees nothing */
        cb_tensor *row = cb_reshape(cb_arange(0, c->rows), cb_dims(-1, 1));
        return cb_logical_and(cb_gt(noise, 0.4), cb_ne(row, 3));
    }
    if (c->mask == KEY_MASK) return cb_gt(noise, 0.5);
    return cb_to(cb_where(cb_gt(noise, 0.8), -INFINITY, cb_mul(noise, 3.0)), c->dtype);
}

static cb_tensor *turned(cb_tensor *x) { return cb_transpose(x, -2, -1); }

/* Weights in f64, 0 where there is nothing to see. */
static cb_tensor *weights_of(const Case *c, cb_tensor *q, cb_tensor *k, cb_tensor *mask,
                             double scale) {
    cb_tensor *scores = cb_mul(cb_matmul(q, turned(k)), scale);
    cb_tensor *row = cb_reshape(cb_arange(0, c->rows), cb_dims(-1, 1));
    if (c->causal) scores = cb_where(cb_le(cb_arange(0, c->columns), row), scores, -INFINITY);
    if (mask && cb_dtype_of(mask) == CB_BOOL) scores = cb_where(mask, scores, -INFINITY);
    if (mask && cb_dtype_of(mask) != CB_BOOL) scores = cb_add(scores, cb_to(mask, CB_F64));
    cb_tensor *weights = cb_softmax(scores, -1);
    return cb_where(cb_isnan(weights), 0, weights);
}

static void expect_part(cb_tensor *packed, int64_t *from, cb_tensor *expected, double limit,
                        int number, const char *name) {
    cb_tensor *part = cb_slice(packed, 0, *from, *from + cb_numel(expected));
    cb_tensor *off = cb_sub(cb_to(part, CB_F64), cb_flatten(expected));
    double worst = cb_item(cb_max(cb_abs(off))), most = cb_item(cb_max(cb_abs(expected)));
    if (!(worst <= limit * (1 + most)))
        fail_msg("case %d: the gradient of %s is off by %g of %g", number, name, worst, most);
    *from += cb_numel(expected);
}

static void expect_gradients(const Case *c, int number, cb_tensor *const *x, cb_tensor *mask,
                             cb_tensor *found) {
    cb_tensor *q = cb_to(x[0], CB_F64), *k = cb_to(x[1], CB_F64), *v = cb_to(x[2], CB_F64);
    cb_tensor *g = cb_to(x[3], CB_F64), *p = weights_of(c, q, k, mask, 0.3);
    cb_tensor *d = cb_matmul(g, turned(v)), *sum = cb_sum(cb_mul(p, d), cb_dims(-1), true);
    cb_tensor *slope = cb_mul(cb_mul(p, cb_sub(d, sum)), 0.3);
    int64_t from = 0;
    expect_part(found, &from, cb_matmul(slope, k), tolerance[c->dtype], number, "query");
    expect_part(found, &from, cb_matmul(turned(slope), q), tolerance[c->dtype], number, "key");
    expect_part(found, &from, cb_matmul(turned(p), g), tolerance[c->dtype], number, "value");
    assert_int_equal(from, cb_numel(found));
}

/* Heads behind the rows in memory, as they are after a product of all of them. */
static cb_tensor *operand(const Case *c, int64_t rows, int64_t columns, bool strided) {
    cb_tensor *x = cb_to(cb_randn(cb_dims(c->batch, rows, c->heads, columns + 3)), c->dtype);
    x = cb_transpose(cb_narrow(x, 3, 2, columns), 1, 2);
    return strided ? x : cb_contiguous(x);
}

static cb_tensor *gradient(cb_tensor *const *x, cb_tensor *mask, bool causal) {
    cb_tensor *given = mask ? mask : cb_full(CB_NO_DIMS, 1, CB_BOOL);
    cb_tensor *y = cb_attention_gradient(x[0], x[1], x[2], x[3], given, 0.3, causal);
    if (!y) fail_msg("%s", cb_error());
    return y;
}

static void sums_in_double_agree(void **state) {
    (void)state;
    cb_manual_seed(3);
    for (int i = 0; i < 2 * CASES; i++) {
        const Case *c = &cases[i / 2];
        cb_scope_open();
        cb_tensor *x[] = {
            operand(c, c->rows, c->depth, i % 2), operand(c, c->columns, c->depth, i % 2),
            operand(c, c->columns, c->width, i % 2), operand(c, c->rows, c->width, i % 2)};
        cb_tensor *mask = mask_of(c);
        expect_gradients(c, i / 2, x, mask, gradient(x, mask, c->causal));
        cb_scope_close();
    }
    assert_null(cb_error());
}

/* One key for all heads, one value for all items. */
static void operands_broadcast(void **state) {
    (void)state;
    const Case c = {2, 3, 40, 50, 8, 6, false, NO_MASK, CB_F32};
    cb_scope_open();
    cb_tensor *x[] = {cb_randn(cb_dims(2, 3, 40, 8)), cb_randn(cb_dims(2, 1, 50, 8)),
                      cb_randn(cb_dims(3, 50, 6)), cb_randn(cb_dims(2, 3, 40, 6))};
    cb_tensor *y = gradient(x, NULL, false);
    x[1] = cb_expand(x[1], cb_dims(2, 3, 50, 8)), x[2] = cb_expand(x[2], cb_dims(2, 3, 50, 6));
    expect_gradients(&c, 0, x, NULL, y);
    cb_scope_close();
    assert_null(cb_error());
}

static void threads_do_not_count(void **state) {
    (void)state;
    static const cb_dtype dtypes[] = {CB_F32, CB_BF16, CB_F64};
    for (int d = 0; d < 3; d++) {
        cb_scope_open();
        cb_tensor *x[4];
        for (int i = 0; i < 4; i++) x[i] = cb_to(cb_randn(cb_dims(3, 300, 32)), dtypes[d]);
        cb_set_threads(1);
        cb_tensor *one = gradient(x, NULL, true);
        for (int threads = 2; threads < 17; threads += 3) {
            cb_set_threads(threads);
            cb_tensor *many = gradient(x, NULL, true);
            size_t bytes = (size_t)cb_numel(one) * cb_dtype_size(dtypes[d]);
            assert_memory_equal(cb_data(one), cb_data(many), bytes);
        }
        cb_set_threads(0);
        cb_scope_close();
    }
}

/* A key that no query sees, as its score is -inf, changes no value, though the lanes behind the
 * last query see 0 times infinity. */
static void empty_lanes_are_not_seen(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x[4];
    for (int i = 0; i < 4; i++) x[i] = cb_rand(cb_dims(1, 40, 8));
    ((float *)cb_data(x[1]))[5 * 8] = -INFINITY;
    cb_tensor *value = cb_slice(gradient(x, NULL, false), 0, 640, 960);
    assert_int_equal((int)cb_item(cb_sum(cb_isfinite(value))), 320);
    assert_true(cb_item(cb_sum(cb_abs(cb_slice(value, 0, 40, 48)))) == 0);
    cb_scope_close();
    assert_null(cb_error());
}

static void nothing_is_computed_of_nothing(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *none = cb_randn(cb_dims(0, 40, 8)), *x[] = {none, none, none, none};
    assert_int_equal(cb_numel(gradient(x, NULL, true)), 0);
    cb_tensor *q = cb_randn(cb_dims(2, 40, 8)), *k = cb_randn(cb_dims(2, 3, 8));
    cb_tensor *true_ = cb_full(CB_NO_DIMS, 1, CB_BOOL);
    assert_null(cb_attention_gradient(q, k, k, k, true_, 1.0));
    assert_non_null(strstr(cb_error(), "the gradient has other sizes than the result: f32[2, 40, "
                                       "8], f32[2, 3, 8], f32[2, 3, 8], f32[2, 3, 8]"));
    cb_clear_error();
    cb_scope_close();
}

/* ---- whose gradient it is -------------------------------------------------------------------- */

static bool causal, groups, masked;

static int differentiate(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *y = cb_scaled_dot_product_attention(x[0], x[1], x[2], masked ? x[4] : NULL, 0,
                                                   causal, NULL, groups);
    return y && cb_grad(y, x[3], x, 3, out) == CB_OK ? 3 : -1;
}

static void compiled(cb_tensor *const *x, const char *skip, cb_tensor **out, char **text) {
    cb_set_option("skip", skip);
    cb_function *f = cb_compile_n(differentiate, NULL, "backend=vm");
    if (cb_call_n(f, x, masked ? 5 : 4, out, 3) != 3) fail_msg("%s", cb_error());
    if (text) *text = cb_explain(f);
    cb_function_free(f);
    cb_set_option("skip", "");
}

static void expect_near(cb_tensor *found, cb_tensor *expected, double limit) {
    cb_tensor *off = cb_abs(cb_sub(cb_to(found, CB_F64), cb_to(expected, CB_F64)));
    double most = cb_item(cb_max(cb_abs(cb_to(expected, CB_F64))));
    if (!(cb_item(cb_max(off)) <= limit * (1 + most))) fail_msg("off by %g", cb_item(cb_max(off)));
}

/* Compiled, eager, and in single ops. */
static void calls_agree(void **state) {
    (void)state;
    static const cb_dtype dtypes[] = {CB_F32, CB_F64, CB_BF16};
    for (int i = 0; i < 24; i++) {
        cb_scope_open();
        cb_dtype dtype = dtypes[i % 3];
        causal = i & 1, groups = i & 2, masked = !causal && i & 4;
        cb_tensor *x[5] = {
            cb_to(cb_randn(cb_dims(2, 6, 64 + 9 * i, 16)), dtype),
            cb_to(cb_randn(cb_dims(i & 8 ? 1 : 2, groups ? 2 : 6, 20 + 7 * i, 16)), dtype),
            cb_to(cb_randn(cb_dims(2, groups ? 2 : 6, 20 + 7 * i, 10)), dtype),
            cb_to(cb_randn(cb_dims(2, 6, 64 + 9 * i, 10)), dtype)};
        cb_tensor *noise = cb_randn(cb_dims(groups ? 6 : 1, 64 + 9 * i, 20 + 7 * i));
        x[4] = i & 8 ? cb_gt(noise, -1) : cb_to(noise, dtype);
        for (int k = 0; k < 3; k++) cb_requires_grad_(x[k], true);
        cb_tensor *step[3], *single[3], *eager[3];
        char *text;
        compiled(x, "", step, &text);
        if (!strstr(text, "  attention_gradient ")) fail_msg("%s", text);
        cb_free_text(text);
        compiled(x, "claim", single, NULL);
        assert_int_equal(differentiate(x, 5, eager, NULL), 3);
        for (int k = 0; k < 3; k++) {
            expect_near(step[k], single[k], 4 * tolerance[dtype]);
            expect_near(eager[k], step[k], tolerance[dtype] / 10);
        }
        cb_scope_close();
    }
    causal = groups = masked = false;
    assert_null(cb_error());
}

/* A mask whose gradient is wanted, few queries: in single ops. */
static void others_are_single_ops(void **state) {
    (void)state;
    cb_scope_open();
    char *text;
    cb_tensor *out[3], *x[5] = {cb_randn(cb_dims(1, 5, 8)), cb_randn(cb_dims(1, 70, 8)),
                                cb_randn(cb_dims(1, 70, 8)), cb_randn(cb_dims(1, 5, 8))};
    for (int k = 0; k < 3; k++) cb_requires_grad_(x[k], true);
    compiled(x, "", out, &text);
    if (strstr(text, "  attention_gradient ")) fail_msg("%s", text);
    cb_free_text(text);
    cb_tensor *q = cb_randn(cb_dims(1, 70, 8)), *mask = cb_randn(cb_dims(70, 70)), *to[1];
    cb_requires_grad_(mask, true);
    cb_tensor *y = cb_scaled_dot_product_attention(q, q, q, mask);
    assert_int_equal(cb_grad(y, q, &mask, 1, to), CB_OK);
    assert_int_equal(cb_numel(to[0]), 4900);
    assert_true(cb_item(cb_max(cb_abs(cb_sum(to[0], cb_dims(1))))) < 1e-5); /* of a softmax */
    assert_true(cb_item(cb_max(cb_abs(to[0]))) > 1e-3);
    cb_scope_close();
    assert_null(cb_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_in_double_agree),
                                       cmocka_unit_test(operands_broadcast),
                                       cmocka_unit_test(threads_do_not_count),
                                       cmocka_unit_test(empty_lanes_are_not_seen),
                                       cmocka_unit_test(nothing_is_computed_of_nothing),
                                       cmocka_unit_test(calls_agree),
                                       cmocka_unit_test(others_are_single_ops)};
    return cmocka_run_group_tests_name("attention_gradient", tests, NULL, NULL);
}
