/* Operands of library steps that are views. Of products, convolutions and attention some are
 * results of the function, too: those have memory of their own, in which a view has other strides
 * than in what it is a view of. Sorts read inputs of the function as they lie. */
#include "capture_support.h"

#include <math.h>

typedef int Body(cb_tensor *const *in, int count, cb_tensor **out, void *user);

static int flipped(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[1] = cb_flip(in[0], cb_dims(1));
    out[0] = cb_matmul(cb_select(out[1], 0, 2), cb_transpose(in[0], 0, 1));
    return 2;
}

static int part(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[1] = cb_narrow(in[0], 1, 1, 5);
    out[0] = cb_matmul(cb_transpose(out[1], 0, 1), in[0]);
    return 2;
}

static int turned(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[1] = cb_transpose(in[0], 0, 1);
    out[0] = cb_matmul(in[0], cb_transpose(cb_transpose(out[1], 0, 1), 0, 1));
    return 2;
}

/* Of in[0] the operand is a plain view, of the result in between it is none by strides. */
static int tangled(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *line = cb_reshape(in[0], cb_dims(8, 6));
    out[1] = cb_transpose(line, 0, 1);
    out[0] = cb_matmul(cb_reshape(cb_transpose(out[1], 0, 1), cb_dims(2, 24)),
                       cb_reshape(cb_transpose(cb_flip(out[1], cb_dims(0)), 0, 1), cb_dims(24, 2)));
    return 2;
}

/* By strides of in[0] the operand is a matrix; by those of the result in between it is none. */
static int tangled_through_a_part(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[1] = cb_flip(cb_transpose(cb_reshape(in[0], cb_dims(2, 3, 8)), 0, 1), cb_dims(1));
    cb_tensor *back = cb_transpose(cb_narrow(out[1], 0, 0, 2), 0, 1);
    out[0] = cb_matmul(cb_reshape(back, cb_dims(2, 16)), cb_reshape(back, cb_dims(16, 2)));
    return 2;
}

static int convolved(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *image = cb_reshape(in[0], cb_dims(1, 2, 4, 6));
    out[1] = cb_flip(image, cb_dims(3));
    cb_tensor *weight = cb_narrow(cb_narrow(out[1], 2, 0, 3), 3, 1, 2);
    out[0] = cb_conv2d(cb_transpose(out[1], 2, 3), weight, NULL);
    return 2;
}

static int attended(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *heads = cb_reshape(in[0], cb_dims(1, 2, 4, 6));
    out[1] = cb_flip(heads, cb_dims(2));
    cb_tensor *key = cb_narrow(out[1], 2, 1, 3);
    out[0] = cb_scaled_dot_product_attention(out[1], key, key);
    return 2;
}

/* Relative to the largest element: the engines sum in their own order. */
static void expect_near(cb_tensor *got, cb_tensor *wanted) {
    double a[64], b[64], largest = 1;
    int count = (int)cb_numel(wanted);
    if (!got) fail_msg("%s", cb_error());
    assert_int_equal(cb_numel(got), count);
    assert_int_equal(cb_read(got, a, CB_F64), CB_OK);
    assert_int_equal(cb_read(wanted, b, CB_F64), CB_OK);
    for (int i = 0; i < count; i++) largest = fmax(largest, fabs(b[i]));
    for (int i = 0; i < count; i++)
        if (!(fabs(a[i] - b[i]) <= 1e-5 * largest)) fail_msg("%d: %g, not %g", i, a[i], b[i]);
}

static void views_of_results_are_operands(void **state) {
    (void)state;
    static Body *const body[] = {flipped,   part,    turned, tangled, tangled_through_a_part,
                                 convolved, attended};
    for (size_t i = 0; i < sizeof body / sizeof *body; i++) {
        cb_scope_open();
        cb_manual_seed(3);
        cb_tensor *x = cb_randn(cb_dims(6, 8)), *wanted[2] = {0}, *got[2] = {0};
        cb_function *fast = cb_compile_n(body[i], NULL, VM);
        assert_int_equal(body[i](&x, 1, wanted, NULL), 2);
        assert_int_equal(cb_call_n(fast, &x, 1, got, 2), 2);
        for (int k = 0; k < 2; k++) expect_near(got[k], wanted[k]);
        assert_int_equal(cb_stats(fast).breaks, 0);
        cb_function_free(fast);
        cb_scope_close();
        assert_null(cb_error());
    }
}

/* ---- rows of sorts --------------------------------------------------------------------------- */

typedef struct Order {
    int64_t dim, keep; /* keep 0: argsort */
} Order;

static int order_body(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    const Order *order = user;
    (void)count;
    out[0] = order->keep ? cb_argtopk(in[0], order->keep, order->dim, true)
                         : cb_argsort(in[0], order->dim, false);
    out[1] = order->keep ? cb_topk(in[0], order->keep, order->dim, true, &out[2])
                         : cb_sort(in[0], order->dim, false, &out[2]);
    return out[0] && out[1] && out[2] ? 3 : -1;
}

static void expect_same(cb_tensor *got, cb_tensor *wanted) {
    if (!got) fail_msg("%s", cb_error());
    assert_int_equal(cb_numel(got), cb_numel(wanted));
    size_t bytes = (size_t)cb_numel(got) * sizeof(double);
    double *a = malloc(bytes + 1), *b = malloc(bytes + 1);
    assert_int_equal(cb_read(got, a, CB_F64), CB_OK);
    assert_int_equal(cb_read(wanted, b, CB_F64), CB_OK);
    assert_memory_equal(a, b, bytes);
    free(a), free(b);
}

/* An input of the call, and the same elements side by side. */
static void expect_order_of(cb_tensor *x, Order order) {
    cb_tensor *plain = cb_clone(x), *wanted[3], *got[3];
    assert_int_equal(order_body(&plain, 1, wanted, &order), 3);
    assert_int_equal(order_body(&x, 1, got, &order), 3);
    for (int i = 0; i < 3; i++) expect_same(got[i], wanted[i]);
    cb_function *fast = cb_compile_n(order_body, &order, "backend=vm");
    assert_int_equal(cb_call_n(fast, &x, 1, got, 3), 3);
    for (int i = 0; i < 3; i++) expect_same(got[i], wanted[i]);
    cb_function_free(fast);
}

static void inputs_are_read_where_they_lie(void **state) {
    (void)state;
    static const Order orders[] = {{0, 0}, {1, 0}, {2, 0}, {-1, 3}, {0, 2}};
    cb_scope_open();
    cb_tensor *x = cb_randn(cb_dims(40, 6, 700));
    cb_tensor *laid[] = {
        cb_slice(x, 2, 0, 700, 2),
        cb_slice(cb_slice(x, 0, 1, 40, 3), 1, 1, 6, 2),
        cb_permute(x, cb_dims(2, 0, 1)),
        cb_permute(x, cb_dims(0, 2, 1)),
        cb_flip(x, cb_dims(0, 2)),
        cb_expand(cb_narrow(x, 1, 2, 1), cb_dims(40, 5, 700)),
        cb_expand(cb_narrow(x, 2, 2, 1), cb_dims(40, 6, 300)),
        cb_window(cb_select(x, 1, 3), 1, 50, 20, 2),
    };
    for (size_t i = 0; i < sizeof laid / sizeof *laid; i++)
        for (size_t k = 0; k < sizeof orders / sizeof *orders; k++)
            expect_order_of(laid[i], orders[k]);
    cb_tensor *scalar = cb_select(cb_narrow(cb_reshape(x, cb_dims(168000)), 0, 7, 1), 0, 0);
    cb_tensor *row = cb_expand(scalar, cb_dims(5));
    expect_order_of(row, (Order){0, 0});
    cb_scope_close();
    assert_null(cb_error());
}

/* 16 KB that stand for 1.6 GB are read where they are, and never copied out. */
static void expanded_rows_take_no_memory(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *line = cb_arange(0, 4096, 1, CB_F32);
    cb_tensor *best = cb_argtopk(cb_expand(line, cb_dims(20000, 4096)), 1, 1, true);
    assert_non_null(best);
    assert_int_equal(cb_size(best, 0), 20000);
    assert_int_equal(cb_item_int(cb_amin(best)), 4095);
    assert_int_equal(cb_item_int(cb_amax(best)), 4095);
    assert_true(cb_memory().peak_bytes < 64 << 20);
    cb_scope_close();
    assert_null(cb_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expanded_rows_take_no_memory), /* first: it asks for the peak */
        cmocka_unit_test(views_of_results_are_operands),
        cmocka_unit_test(inputs_are_read_where_they_lie),
    };
    return cmocka_run_group_tests_name("operands", tests, NULL, NULL);
}
