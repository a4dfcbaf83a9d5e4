/* cb_set_float32_matmul_precision: names, what medium may round, and that everything built before
 * is built anew. Where no instruction multiplies bf16, medium gives what highest does. */
#include "test_support.h"

#include "cpu/gemm_internal.h"
#include <math.h>
#include <string.h>

enum { SIZE = 80, COUNT = SIZE * SIZE }; /* small ones are faster as they are */

static int back_to_highest(void **state) {
    (void)state;
    cb_scope_close();
    return cb_set_float32_matmul_precision("highest");
}

static int in_scope(void **state) {
    (void)state;
    cb_scope_open();
    cb_manual_seed(3);
    return 0;
}

static void names_are_those_of_pytorch(void **state) {
    (void)state;
    static const char *const names[] = {"medium", "high", "highest"};
    assert_string_equal(cb_get_float32_matmul_precision(), "highest");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cb_set_float32_matmul_precision(names[i]), CB_OK);
        assert_string_equal(cb_get_float32_matmul_precision(), names[i]);
    }
    assert_int_equal(cb_set_float32_matmul_precision("low"), CB_ERR_ARGUMENT);
    assert_non_null(strstr(cb_error(), ": set_float32_matmul_precision: there is no precision "
                                       "'low'; there are highest, high and medium"));
    cb_clear_error();
    assert_int_equal(cb_set_float32_matmul_precision(NULL), CB_ERR_ARGUMENT);
    cb_clear_error();
    assert_string_equal(cb_get_float32_matmul_precision(), "highest");
}

/* Differs by what rounding the factors to bf16 does, and by nothing where they are not rounded. */
static void expect_rounded(cb_tensor *rounded, cb_tensor *exact, bool may_round) {
    float a[4 * COUNT], b[4 * COUNT];
    int64_t count = cb_numel(exact);
    double most = 0, scale = 0;
    assert_true(count <= 4 * COUNT);
    assert_int_equal(cb_read(rounded, a, CB_F32), CB_OK);
    assert_int_equal(cb_read(exact, b, CB_F32), CB_OK);
    for (int64_t i = 0; i < count; i++) {
        assert_false(isnan(a[i])); /* which fmax leaves out */
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        scale = fmax(scale, fabs((double)b[i]));
    }
    if (may_round && gemm_bf16()) assert_true(most > 0 && most < 0.02 * scale);
    if (!may_round || !gemm_bf16()) assert_true(most == 0);
}

static cb_tensor *product(cb_tensor *x, cb_tensor *y) { return cb_relu(cb_matmul(x, y)); }

static cb_tensor *picture(cb_tensor *x, cb_tensor *weight) {
    return cb_conv2d(x, weight, NULL, cb_dims(1, 1), cb_dims(1, 1), cb_dims(1, 1), 1);
}

static void expect_eager_and_compiled(cb_function_2 *function, cb_tensor *x, cb_tensor *y) {
    cb_function *compiled = cb_compile(function);
    cb_tensor *eager = function(x, y), *first = cb_call(compiled, x, y);
    assert_non_null(first);
    cb_set_float32_matmul_precision("high");
    expect_rounded(cb_call(compiled, x, y), first, false);
    assert_int_equal(cb_stats(compiled).recompiles, 0);
    cb_set_float32_matmul_precision("medium");
    expect_rounded(function(x, y), eager, true);
    expect_rounded(cb_call(compiled, x, y), first, true);
    assert_int_equal(cb_stats(compiled).recompiles, 1);
    cb_set_float32_matmul_precision("highest");
    expect_rounded(function(x, y), eager, false);
    expect_rounded(cb_call(compiled, x, y), first, false); /* the first entry again */
    assert_int_equal(cb_stats(compiled).recompiles, 1);
    assert_int_equal(cb_stats(compiled).graphs, 2);
    char *text = cb_explain(compiled);
    assert_non_null(strstr(text, "float32 matmul precision: medium"));
    assert_non_null(
        strstr(text, "float32 matmul precision is medium, for entry 0 it was not medium"));
    cb_free_text(text);
    cb_function_free(compiled);
}

static void products_follow(void **state) {
    (void)state;
    cb_tensor *x = cb_randn(cb_dims(SIZE, SIZE), CB_F32),
              *y = cb_randn(cb_dims(SIZE, SIZE), CB_F32);
    expect_eager_and_compiled(product, x, y);
}

static void convolutions_follow(void **state) {
    (void)state;
    cb_tensor *x = cb_randn(cb_dims(1, 16, 9, 9), CB_F32);
    expect_eager_and_compiled(picture, x, cb_randn(cb_dims(8, 16, 3, 3), CB_F32));
}

static void other_dtypes_stay(void **state) {
    (void)state;
    static const cb_dtype dtypes[] = {CB_F64, CB_BF16, CB_F16};
    for (int i = 0; i < 3; i++) {
        cb_tensor *x = cb_randn(cb_dims(SIZE, SIZE), dtypes[i]);
        cb_tensor *y = cb_randn(cb_dims(SIZE, SIZE), dtypes[i]);
        cb_tensor *before = product(x, y);
        cb_set_float32_matmul_precision("medium");
        expect_rounded(product(x, y), before, false);
        cb_set_float32_matmul_precision("highest");
    }
}

/* Weights of a module in eval mode are packed for one precision, and packed again for another. */
static void frozen_modules_follow(void **state) {
    (void)state;
    cb_module *module = cb_nn_linear(SIZE, SIZE, true);
    cb_module_train(module, false);
    cb_function *compiled = cb_compile(module);
    cb_tensor *x = cb_randn(cb_dims(SIZE, SIZE), CB_F32), *exact = cb_call(compiled, x);
    for (int again = 0; again < 2; again++) {
        cb_set_float32_matmul_precision("medium");
        expect_rounded(cb_call(compiled, x), exact, true);
        cb_set_float32_matmul_precision("highest");
        expect_rounded(cb_call(compiled, x), exact, false);
    }
    assert_int_equal(cb_stats(compiled).graphs, 2);
    cb_function_free(compiled);
    cb_module_free(module);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names_are_those_of_pytorch, in_scope, back_to_highest),
        cmocka_unit_test_setup_teardown(products_follow, in_scope, back_to_highest),
        cmocka_unit_test_setup_teardown(convolutions_follow, in_scope, back_to_highest),
        cmocka_unit_test_setup_teardown(other_dtypes_stay, in_scope, back_to_highest),
        cmocka_unit_test_setup_teardown(frozen_modules_follow, in_scope, back_to_highest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
