/* Scales and shifts that go into the frozen weights of the product before them, and those that do
 * not: a scale of other dims, of half precision, of a product that somebody else reads as well.
 * Each against the module run eagerly, with the ops that its kernels are left with. */
#include "elements.h"

#include "carbide.h"

#include <math.h>
#include <string.h>

typedef cb_tensor *Body(cb_module *self, cb_tensor *x);

static Body *body;

static cb_tensor *forward(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)count;
    return body(self, inputs[0]);
}

/* In eval, with a weight, a bias b, a scale s and a shift t of these sizes. */
static cb_module *module_of(Body *function, cb_dim_list weight, cb_dim_list small) {
    body = function;
    cb_manual_seed(11);
    cb_module *module = cb_module_new("Scaled", forward, NULL);
    cb_module_parameter(module, "w", cb_randn(weight));
    cb_module_parameter(module, "b", cb_randn(small));
    cb_module_parameter(module, "s", cb_randn(small));
    cb_module_parameter(module, "t", cb_randn(small));
    cb_module_train(module, false);
    return module;
}

static void expect_kernels(Body *function, cb_dim_list weight, cb_dim_list small, cb_dim_list x,
                           int kernels, const char *first) {
    cb_scope_open();
    cb_module *module = module_of(function, weight, small);
    cb_function *fast = cb_compile(module, "backend=vm");
    cb_tensor *input = cb_randn(x), *expected = cb_forward(module, input);
    cb_tensor *found = cb_call(fast, input);
    expect_tensor(found, expected, 1e-5, 0);
    assert_int_equal(cb_stats(fast).kernels, kernels);
    char *text = cb_explain(fast);
    if (!strstr(text, first)) fail_msg("no %s in\n%s", first, text);
    cb_free_text(text);
    cb_function_free(fast);
    cb_module_free(module);
    assert_null(cb_error());
    cb_scope_close();
}

static cb_tensor *get(cb_module *self, const char *name) { return cb_module_get(self, name); }

static cb_tensor *product(cb_module *self, cb_tensor *x) { return cb_matmul(x, get(self, "w")); }

static cb_tensor *image(cb_module *self, cb_tensor *x) {
    return cb_conv2d(x, get(self, "w"), NULL, 1, 1);
}

/* ---- what is absorbed ----------------------------------------------------------------------- */

static cb_tensor *scaled_and_shifted(cb_module *self, cb_tensor *x) {
    cb_tensor *y = cb_add(product(self, x), get(self, "b"));
    y = cb_sub(cb_mul(y, get(self, "s")), get(self, "t"));
    return cb_add(get(self, "t"), cb_mul(get(self, "s"), y));
}

static cb_tensor *image_scaled(cb_module *self, cb_tensor *x) {
    return cb_mul(cb_add(image(self, x), get(self, "b")), get(self, "s"));
}

static void scales_go_into_weights(void **state) {
    (void)state;
    expect_kernels(scaled_and_shifted, cb_dims(4, 3), cb_dims(3), cb_dims(5, 4), 1,
                   "k0_add: add\n");
    expect_kernels(image_scaled, cb_dims(4, 3, 3, 3), cb_dims(4, 1, 1), cb_dims(2, 3, 4, 4), 1,
                   "k0_add: add\n");
}

/* ---- what is not ---------------------------------------------------------------------------- */

static cb_tensor *subtracted(cb_module *self, cb_tensor *x) {
    return cb_sub(get(self, "t"), cb_add(product(self, x), get(self, "b")));
}

static void a_product_that_is_subtracted(void **state) {
    (void)state;
    expect_kernels(subtracted, cb_dims(4, 3), cb_dims(3), cb_dims(5, 4), 1,
                   "k0_add_sub: add, sub\n");
}

static cb_tensor *rows_scaled(cb_module *self, cb_tensor *x) {
    return cb_mul(product(self, x), get(self, "s"));
}

/* As many rows as columns, and as many columns of an image as channels. */
static void scales_along_other_dims(void **state) {
    (void)state;
    expect_kernels(rows_scaled, cb_dims(4, 3), cb_dims(3, 1), cb_dims(3, 4), 1, "k0_mul: mul\n");
    expect_kernels(image_scaled, cb_dims(4, 3, 3, 3), cb_dims(4), cb_dims(2, 3, 4, 4), 1,
                   "k0_add_mul: add, mul\n");
    expect_kernels(image_scaled, cb_dims(4, 3, 3, 3), cb_dims(4, 1), cb_dims(2, 3, 4, 4), 1,
                   "k0_add_mul: add, mul\n");
}

static cb_tensor *sum_read_twice(cb_module *self, cb_tensor *x) {
    cb_tensor *y = cb_add(product(self, x), get(self, "b"));
    return cb_matmul(cb_mul(y, get(self, "s")), cb_transpose(y, 0, 1));
}

static cb_tensor *product_read_twice(cb_module *self, cb_tensor *x) {
    cb_tensor *y = product(self, x), *z = cb_mul(cb_add(y, get(self, "b")), get(self, "s"));
    return cb_matmul(z, cb_transpose(y, 0, 1));
}

/* The product is computed once. */
static void products_that_are_read_twice(void **state) {
    (void)state;
    expect_kernels(sum_read_twice, cb_dims(4, 3), cb_dims(3), cb_dims(5, 4), 2,
                   "k0_add_mul: add, mul\n");
    expect_kernels(product_read_twice, cb_dims(4, 3), cb_dims(3), cb_dims(5, 4), 2,
                   "k0_add_mul: add, mul\n");
}

static cb_tensor *by_input(cb_module *self, cb_tensor *x) {
    return cb_mul(cb_matmul(x, cb_transpose(x, 0, 1)), get(self, "s"));
}

/* Its scaled copy would be made in every call. */
static void weights_that_change(void **state) {
    (void)state;
    expect_kernels(by_input, cb_dims(1), cb_dims(5), cb_dims(5, 4), 1, "k0_mul: mul\n");
}

/* (1 + u) * (1 + u) is no bf16, with u = 2^-7: of the difference to 1 * (1 + u) the scale would
 * go. */
static void half_precision_is_left_alone(void **state) {
    const float weight[] = {1 + 0x1p-7f, 1, 1 + 0x1p-7f, 1}, scale[] = {1 + 0x1p-7f, 1 + 0x1p-7f},
                row[] = {1, -1};
    const cb_dtype dtypes[] = {CB_BF16, CB_F32};
    (void)state;
    for (int i = 0; i < 2; i++) {
        cb_scope_open();
        body = rows_scaled;
        cb_module *module = cb_module_new("Half", forward, NULL);
        cb_tensor *w = cb_transpose(cb_from_data(weight, CB_F32, cb_dims(2, 2)), 0, 1);
        cb_module_parameter(module, "w", cb_to(w, dtypes[i]));
        cb_module_parameter(module, "s", cb_to(cb_from_data(scale, CB_F32, cb_dims(2)), dtypes[i]));
        cb_module_train(module, false);
        cb_function *fast = cb_compile(module, "backend=vm");
        cb_tensor *x = cb_to(cb_from_data(row, CB_F32, cb_dims(1, 2)), dtypes[i]);
        assert_true(cb_item(cb_max(cb_call(fast, x))) == 0x1p-7 * (1 + 0x1p-7));
        cb_function_free(fast);
        cb_module_free(module);
        cb_scope_close();
    }
    assert_null(cb_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_go_into_weights),
        cmocka_unit_test(scales_along_other_dims),
        cmocka_unit_test(a_product_that_is_subtracted),
        cmocka_unit_test(weights_that_change),
        cmocka_unit_test(products_that_are_read_twice),
        cmocka_unit_test(half_precision_is_left_alone),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
