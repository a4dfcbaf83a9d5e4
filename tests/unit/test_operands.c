/* Operands of products, convolutions and attention that are views of views, some of which are
 * results of the function, too: those have memory of their own, in which a view has other strides
 * than in what it is a view of. */
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
    static Body *const body[] = {flipped, part, turned, tangled, convolved, attended};
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_of_results_are_operands),
    };
    return cmocka_run_group_tests_name("operands", tests, NULL, NULL);
}
