/* Gradients of the user's operations, which are operations of the user's: on the tape, in compiled
 * functions on both backends, and of higher order. */
#include "fixture.h"

#include <math.h>

#define TEST(function) cmocka_unit_test_setup_teardown(function, begin, close_scope_without_tensors)

static int kernel_runs;

static int64_t count_of(const cb_array *array) {
    int64_t count = 1;
    for (int i = 0; i < array->rank; i++) count *= array->size[i];
    return count;
}

/* a x^3 */
static cb_status cube(const cb_op_call *call) {
    const double *x = call->input[0].data;
    double *y = call->output[0].data;
    for (int64_t i = 0; i < count_of(call->input); i++) y[i] = call->floats[0] * x[i] * x[i] * x[i];
    return CB_OK;
}

/* of x and g: 3 a x^2 g */
static cb_status cube_back(const cb_op_call *call) {
    const double *x = call->input[0].data, *g = call->input[1].data;
    double *to = call->output[0].data;
    for (int64_t i = 0; i < count_of(call->input); i++)
        to[i] = 3 * call->floats[0] * x[i] * x[i] * g[i];
    kernel_runs++;
    return CB_OK;
}

/* of x, g and h: 6 a x g h to x, 3 a x^2 h to g */
static cb_status cube_twice(const cb_op_call *call) {
    const double *x = call->input[0].data, *g = call->input[1].data, *h = call->input[2].data;
    double *to_x = call->output[0].data, *to_g = call->output[1].data, a = call->floats[0];
    for (int64_t i = 0; i < count_of(call->input); i++) {
        to_x[i] = 6 * a * x[i] * g[i] * h[i];
        to_g[i] = 3 * a * x[i] * x[i] * h[i];
    }
    return CB_OK;
}

/* x[i] + w * (the element of x that index names), of x: f64[n], index: i64[n], w: f64[] */
static cb_status jump(const cb_op_call *call) {
    const double *x = call->input[0].data, *w = call->input[2].data;
    const int64_t *index = call->input[1].data;
    double *y = call->output[0].data;
    for (int64_t i = 0; i < count_of(call->input); i++) y[i] = x[i] + *w * x[index[i]];
    return CB_OK;
}

static cb_status jump_shape(const cb_op_call *call) {
    call->output[0] = call->input[0];
    call->output[1] = call->input[2];
    return CB_OK;
}

static cb_status jump_back(const cb_op_call *call) {
    const double *x = call->input[0].data, *w = call->input[2].data, *g = call->input[3].data;
    const int64_t *index = call->input[1].data;
    double *to_x = call->output[0].data, *to_w = call->output[1].data;
    memcpy(to_x, g, sizeof *g * (size_t)count_of(call->input));
    *to_w = 0;
    for (int64_t i = 0; i < count_of(call->input); i++)
        to_x[index[i]] += *w * g[i], *to_w += g[i] * x[index[i]];
    return CB_OK;
}

static cb_status one_number(const cb_op_call *call) {
    call->output[0] = (cb_array){.dtype = CB_F64};
    return CB_OK;
}

static int begin(void **state) {
    const cb_custom_op ops[] = {
        {.name = "test.cube_twice", .inputs = 3, .outputs = 2, .floats = 1, .kernel = cube_twice},
        {.name = "test.cube_back",
         .inputs = 2,
         .outputs = 1,
         .floats = 1,
         .kernel = cube_back,
         .gradient = "test.cube_twice"},
        {.name = "test.cube",
         .inputs = 1,
         .outputs = 1,
         .floats = 1,
         .kernel = cube,
         .gradient = "test.cube_back"},
        {.name = "test.jump_back",
         .inputs = 4,
         .outputs = 2,
         .shape = jump_shape,
         .kernel = jump_back},
        {.name = "test.jump",
         .inputs = 3,
         .outputs = 1,
         .kernel = jump,
         .gradient = "test.jump_back"},
        {.name = "test.number_back",
         .inputs = 2,
         .outputs = 1,
         .floats = 1,
         .shape = one_number,
         .kernel = cube_back},
        {.name = "test.wrong",
         .inputs = 1,
         .outputs = 1,
         .floats = 1,
         .kernel = cube,
         .gradient = "test.number_back"},
        {.name = "test.plain", .inputs = 1, .outputs = 1, .floats = 1, .kernel = cube}};
    open_scope(state);
    kernel_runs = 0;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (cb_register_op(&ops[i]) != CB_OK) return -1;
    return cb_register_op(&ops[2]) == CB_OK ? 0 : -1; /* the same again */
}

static cb_tensor *call(const char *name, cb_tensor *x, double a) {
    return cb_call_op(name, &x, 1, CB_NO_DIMS, cb_floats(a));
}

static cb_tensor *leaf(double a, double b) {
    return cb_requires_grad_(cb_from_data((double[]){a, b}, CB_F64, cb_dims(2)), true);
}

static void expect(cb_tensor *x, double a, double b) {
    double value[2];
    if (cb_error()) FAIL("%s", cb_error());
    assert_non_null(x);
    assert_int_equal(cb_read(x, value, CB_F64), CB_OK);
    if (!(fabs(value[0] - a) < 1e-12 && fabs(value[1] - b) < 1e-12))
        FAIL("%g and %g, not %g and %g", value[0], value[1], a, b);
}

static void on_the_tape(void **state) {
    (void)state;
    cb_tensor *x = leaf(1, -2);
    cb_tensor *y = call("test.cube", cb_mul(x, 2), 0.5);
    assert_true(cb_requires_grad(y));
    assert_int_equal(cb_backward(cb_sum(y), NULL), CB_OK);
    expect(cb_tensor_grad(x), 12, 48); /* of 4 x^3 */
    cb_no_grad_open();
    assert_false(cb_requires_grad(call("test.cube", x, 1)));
    cb_no_grad_close();
}

/* An input of integers has none, and takes no place among the results. */
static void several_inputs(void **state) {
    (void)state;
    cb_tensor *x = leaf(3, 5), *w = cb_requires_grad_(cb_full(CB_NO_DIMS, 2, CB_F64), true);
    cb_tensor *index = cb_from_data((int64_t[]){1, 1}, CB_I64, cb_dims(2));
    cb_tensor *input[] = {x, index, w};
    cb_tensor *y = cb_call_op("test.jump", input, 3, CB_NO_DIMS, CB_NO_FLOATS);
    assert_int_equal(cb_backward(cb_sum(y), NULL), CB_OK);
    expect(cb_tensor_grad(x), 1, 5);
    assert_true(cb_item(cb_tensor_grad(w)) == 10);
    input[0] = cb_detach(x);
    y = cb_call_op("test.jump", input, 3, CB_NO_DIMS, CB_NO_FLOATS);
    assert_int_equal(cb_backward(cb_sum(y), NULL), CB_OK);
    assert_true(cb_item(cb_tensor_grad(w)) == 20);
}

static void of_higher_order(void **state) {
    (void)state;
    cb_tensor *x = leaf(1, -2), *g, *h;
    assert_int_equal(cb_grad_graph(cb_sum(call("test.cube", x, 1)), NULL, &x, 1, &g), CB_OK);
    expect(g, 3, 12);
    assert_int_equal(cb_grad(cb_sum(g), NULL, &x, 1, &h), CB_OK);
    expect(h, 6, -12);
    cb_grad_graph(cb_sum(g), NULL, &x, 1, &h); /* the op of the second order has none */
    expect_error("test.cube_twice: there is no gradient for it");
}

static cb_tensor *step(cb_tensor *x, cb_tensor *scale) {
    cb_tensor *y = call("test.cube", cb_mul(x, scale), 0.5), *g;
    if (cb_grad_graph(cb_sum(y), NULL, &x, 1, &g)) return NULL;
    cb_backward(cb_sum(cb_add(y, cb_mul(g, g))), NULL);
    return cb_tensor_grad(x);
}

/* One graph, in which the gradients are steps as the op is. */
static void compiled(void **state) {
    (void)state;
    static const char *const options[] = {"backend=vm", "backend=c", "backend=vm,fullgraph=1"};
    cb_tensor *x = leaf(1, -2), *two = cb_full(CB_NO_DIMS, 2, CB_F64);
    double wanted[2], got[2];
    assert_int_equal(cb_read(step(x, two), wanted, CB_F64), CB_OK);
    assert_true(wanted[0] == 12 + 2 * 12 * 24); /* of 4 x^3 and 144 x^4 */
    for (int i = 0; i < 3; i++) {
        cb_function *fast = cb_compile(step, options[i]);
        for (int k = 0; k < 3; k++) {
            cb_zero_grad(x);
            kernel_runs = 0;
            cb_tensor *y = cb_call(fast, x, two);
            if (!y) FAIL("%s: %s", options[i], cb_error());
            assert_int_equal(cb_read(y, got, CB_F64), CB_OK);
            assert_memory_equal(got, wanted, sizeof got);
        }
        assert_int_equal(cb_stats(fast).graphs, 1);
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        assert_true(kernel_runs > 0);
        cb_function_free(fast);
    }
}

static cb_tensor *plain(cb_tensor *x) { return call("test.plain", x, 1); }

static void refusals(void **state) {
    (void)state;
    cb_tensor *x = leaf(1, 2);
    cb_function *fast = cb_compile(plain, NULL);
    assert_null(plain(x));
    expect_error("test_custom_gradient.c");
    assert_null(plain(x));
    expect_error("test.plain: there is no gradient for it (it was registered without one)");
    assert_null(cb_call(fast, x));
    expect_error("test.plain: there is no gradient for it");
    assert_non_null(plain(cb_detach(x)));
    cb_function_free(fast);
    assert_null(call("test.wrong", x, 1));
    expect_error("test.number_back gives no gradient for input 0 of test.wrong in its sizes");
    cb_custom_op op = {.name = "test.other", .inputs = 1, .outputs = 1, .kernel = cube};
    op.gradient = "test.nobody";
    assert_int_equal(cb_register_op(&op), CB_ERR_ARGUMENT);
    expect_error("test.other: no operation 'test.nobody' is registered");
    op.gradient = "test.cube_back"; /* of one float */
    assert_int_equal(cb_register_op(&op), CB_ERR_ARGUMENT);
    expect_error("test.cube_back cannot be the gradient of test.other");
    op =
        (cb_custom_op){.name = "test.cube", .inputs = 1, .outputs = 1, .floats = 1, .kernel = cube};
    assert_int_equal(cb_register_op(&op), CB_ERR_ARGUMENT);
    expect_error("test.cube is another op already");
}

int main(void) {
    cb_set_option("verify", "1");
    const struct CMUnitTest tests[] = {TEST(on_the_tape), TEST(several_inputs),
                                       TEST(of_higher_order), TEST(compiled), TEST(refusals)};
    return cmocka_run_group_tests_name("custom_gradient", tests, NULL, NULL);
}
