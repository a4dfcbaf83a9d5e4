/* Initial values: bounds and moments that follow from the sizes, orthogonality, the seed. */
#include "fixture.h"

#include "carbide_nn.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

enum { ROWS = 96, IN = 8, FIELD = 6, MANY = ROWS * IN * FIELD };

static double value[MANY];

/* No second tensor of a weight's size is made beside it. Before all others: the peak is the
 * process's. */
static void weights_are_drawn_where_they_lie(void **state) {
    (void)state;
    enum { IN_FEATURES = 1024, OUT_FEATURES = 2048, MOST = 4 * IN_FEATURES * (OUT_FEATURES + 20) };
    cb_module *layer = cb_nn_linear(IN_FEATURES, OUT_FEATURES);
    cb_tensor *x = cb_module_get(layer, "weight");
    assert_ptr_equal(cb_init_normal_(x, 1, 2), x);
    assert_ptr_equal(cb_init_kaiming_uniform_(x), x);
    int64_t peak = cb_memory().peak_bytes;
    if (peak > MOST) fail_msg("%lld bytes at the peak", (long long)peak);
    cb_module_free(layer);
    cb_cleanup();
}

static cb_tensor *weight(void) { return cb_zeros(cb_dims(ROWS, IN, 2, 3)); }

static void expect_near(const char *what, double found, double expected, double tolerance) {
    if (!(fabs(found - expected) <= tolerance)) fail_msg("%s: %g, not %g", what, found, expected);
}

/* Mean and standard deviation of 4608 draws are within 5 % of std, and the extremes of a uniform
 * distribution within 1 %. bound 0: a normal one. */
static void expect_drawn(const char *what, cb_tensor *x, double mean, double std, double bound) {
    if (cb_error()) fail_msg("%s: %s", what, cb_error());
    assert_int_equal(cb_read(x, value, CB_F64), CB_OK);
    double sum = 0, squares = 0, most = 0;
    for (int i = 0; i < MANY; i++) {
        sum += value[i];
        squares += (value[i] - mean) * (value[i] - mean);
        most = fmax(most, fabs(value[i] - mean));
    }
    expect_near(what, sum / MANY, mean, 0.05 * std);
    expect_near(what, sqrt(squares / MANY), std, 0.05 * std);
    if (bound > 0) assert_true(most <= bound && most > 0.99 * bound);
    if (bound == 0) assert_true(most > 3 * std);
}

static void distributions(void **state) {
    (void)state;
    double in = IN * FIELD, out = ROWS * FIELD, root = sqrt(3);
    cb_manual_seed(3);
    cb_tensor *x = cb_requires_grad_(weight(), true);
    expect_drawn("uniform", cb_init_uniform_(x), 0.5, 0.5 / root, 0.5);
    expect_drawn("uniform 2", cb_init_uniform_(x, -3, 1), -1, 2 / root, 2);
    expect_drawn("normal", cb_init_normal_(x, 2, 0.5), 2, 0.5, 0);
    double std = sqrt(2 / (in + out));
    expect_drawn("xavier", cb_init_xavier_uniform_(x), 0, std, std * root);
    expect_drawn("xavier normal", cb_init_xavier_normal_(x, 2), 0, 2 * std, 0);
    std = sqrt(2 / in);
    expect_drawn("kaiming", cb_init_kaiming_uniform_(x), 0, std, std * root);
    std = sqrt(2 / out / (1 + 0.25));
    expect_drawn("kaiming out", cb_init_kaiming_normal_(x, 0.5, "fan_out"), 0, std, 0);
    std = 5 / sqrt(in) / 3;
    expect_drawn("tanh", cb_init_kaiming_normal_(x, 0, "fan_in", "tanh"), 0, std, 0);
    expect_drawn("constant", cb_init_constant_(x, 4), 4, 0, -1);
    assert_true(cb_requires_grad(x));
}

/* Of -2..2, a normal distribution has a standard deviation of 0.87963. */
static void truncated(void **state) {
    (void)state;
    cb_tensor *x = weight();
    expect_drawn("truncated", cb_init_trunc_normal_(x), 0, 0.87963, -1);
    for (int i = 0; i < MANY; i++) assert_true(fabs(value[i]) <= 2);
    cb_read(cb_init_trunc_normal_(x, 1, 0.02, 1.01, 9), value, CB_F64);
    double least = 9;
    for (int i = 0; i < MANY; i++) least = fmin(least, value[i]);
    assert_true(least >= 1.0099999 && least < 1.0101);
}

static void expect_orthogonal(cb_tensor *x, int rows, double gain) {
    cb_tensor *flat = cb_to(cb_reshape(x, cb_dims(rows, -1)), CB_F64);
    bool tall = cb_size(flat, 0) > cb_size(flat, 1);
    cb_tensor *product = tall ? cb_matmul(cb_t(flat), flat) : cb_matmul(flat, cb_t(flat));
    cb_tensor *wanted = cb_mul(cb_eye(cb_size(product, 0)), gain * gain);
    expect_near("product", cb_item(cb_amax(cb_abs(cb_sub(product, wanted)))), 0, 1e-6);
}

static void orthogonal(void **state) {
    (void)state;
    expect_orthogonal(cb_init_orthogonal_(weight(), 1), ROWS, 1);
    expect_orthogonal(cb_init_orthogonal_(cb_zeros(cb_dims(7, 12)), 0.5), 7, 0.5);
    expect_orthogonal(cb_init_orthogonal_(cb_zeros(cb_dims(30, 5)), 1.5), 30, 1.5);
    assert_non_null(cb_init_orthogonal_(cb_zeros(cb_dims(0, 5))));
}

static void the_seed_decides(void **state) {
    (void)state;
    static double again[MANY];
    cb_manual_seed(5);
    cb_read(cb_init_kaiming_normal_(weight()), value, CB_F64);
    cb_manual_seed(5);
    cb_read(cb_init_kaiming_normal_(weight()), again, CB_F64);
    assert_memory_equal(value, again, sizeof value);
    cb_read(cb_init_kaiming_normal_(weight()), again, CB_F64);
    assert_memory_not_equal(value, again, sizeof value);
}

/* x[:, 1] of x: f32[3, 4]; what lies between its elements stays. */
static void views_are_drawn(void **state) {
    (void)state;
    cb_tensor *x = cb_zeros(cb_dims(3, 4)), *column = cb_select(x, 1, 1);
    cb_manual_seed(3);
    assert_ptr_equal(cb_init_uniform_(column, 1, 2), column);
    cb_manual_seed(3);
    cb_tensor *same = cb_init_uniform_(cb_zeros(3), 1, 2);
    cb_read(x, value, CB_F64);
    cb_read(same, value + 12, CB_F64);
    for (int i = 0; i < 12; i++) assert_true(value[i] == (i % 4 == 1 ? value[12 + i / 4] : 0));
    assert_null(cb_init_uniform_(cb_expand(cb_zeros(cb_dims(1, 4)), cb_dims(3, 4))));
    expect_error("dimension 0 of the target is expanded");
    assert_null(cb_init_normal_(cb_zeros(3, CB_I64)));
    expect_error("i64 is not a floating point dtype");
}

/* exp(weight) is computed once while the weight is frozen. */
static cb_tensor *scale(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)count;
    return cb_mul(inputs[0], cb_exp(cb_module_get(self, "weight")));
}

static cb_tensor *drawn(cb_tensor *x) { return cb_mul(cb_init_normal_(x, 1, 2), 2.0); }

/* Steps in place round as ops do, compiled ones too, and frozen weights are asked for again. */
static void compiled_code_sees_them(void **state) {
    (void)state;
    cb_manual_seed(3);
    cb_tensor *x = cb_zeros(24), *y = drawn(x), *z = cb_zeros(24);
    cb_manual_seed(3);
    cb_function *f = cb_compile(drawn, "backend=vm,fullgraph=1");
    cb_tensor *same = cb_call(f, z);
    cb_manual_seed(3);
    cb_tensor *written = cb_mul(cb_add(cb_mul(cb_randn(24), 2.0), 1.0), 2.0);
    assert_memory_equal(cb_data(y), cb_data(same), 24 * sizeof(float));
    assert_memory_equal(cb_data(y), cb_data(written), 24 * sizeof(float));
    assert_memory_equal(cb_data(x), cb_data(z), 24 * sizeof(float));
    cb_function_free(f);
    cb_module *scaled = cb_module_new("Scaled", scale, NULL);
    cb_module_parameter(scaled, "weight", cb_zeros(4));
    cb_module_train(scaled, false);
    f = cb_compile_module(scaled, "backend=vm");
    assert_true(cb_item(cb_sum(cb_call(f, cb_ones(4)))) == 4);
    cb_init_uniform_(cb_module_get(scaled, "weight"), 1, 2);
    assert_true(cb_item(cb_sum(cb_call(f, cb_ones(4)))) > 10);
    cb_function_free(f);
    cb_module_free(scaled);
}

static void gains(void **state) {
    (void)state;
    expect_near("relu", cb_calculate_gain("relu", 0), sqrt(2), 1e-15);
    expect_near("leaky", cb_calculate_gain("leaky_relu", 0.2), sqrt(2 / 1.04), 1e-15);
    expect_near("selu", cb_calculate_gain("selu", 0), 0.75, 0);
    expect_near("conv2d", cb_calculate_gain("conv2d", 0), 1, 0);
    assert_true(isnan(cb_calculate_gain("gelu", 0)));
    expect_error("unknown nonlinearity 'gelu'");
    assert_null(cb_init_xavier_uniform_(cb_zeros(3)));
    expect_error("needs two dimensions at least, not 1");
    assert_null(cb_init_kaiming_normal_(weight(), 0, "fan"));
    expect_error("not \"fan\"");
    assert_null(cb_init_trunc_normal_(weight(), 0, 0));
    expect_error("a std of 0");
    assert_null(cb_init_normal_(weight(), 0, -1));
    expect_error("a std of -1");
    assert_null(cb_init_uniform_(weight(), 1, 0));
    expect_error("from 1 to 0");
    assert_null(cb_init_uniform_(weight(), -DBL_MAX, DBL_MAX));
    expect_error("init_uniform_: from -1.79769e+308");
    assert_null(cb_init_uniform_(weight(), NAN, 0));
    expect_error("from nan to 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(weights_are_drawn_where_they_lie),
        TEST(distributions),
        TEST(truncated),
        TEST(orthogonal),
        TEST(the_seed_decides),
        TEST(views_are_drawn),
        TEST(compiled_code_sees_them),
        TEST(gains),
    };
    return cmocka_run_group_tests_name("init", tests, NULL, NULL);
}
