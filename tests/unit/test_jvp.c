/* Products of Jacobians with vectors, beside differences: eagerly, and in one graph. */
#include "elements.h"
#include "fixture.h"

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

typedef cb_tensor *Of(cb_tensor *x, cb_tensor *z);

static cb_tensor *smooth(cb_tensor *x, cb_tensor *z) {
    return cb_mul(cb_tanh(cb_matmul(x, z)), cb_exp(cb_sum(x, 1, true)));
}
static cb_tensor *rows(cb_tensor *x, cb_tensor *z) { return cb_softmax(cb_add(x, cb_t(z)), 1); }
static cb_tensor *linear(cb_tensor *x, cb_tensor *z) { return cb_sub(cb_mul(x, 3.0), cb_t(z)); }
static cb_tensor *of_one(cb_tensor *x, cb_tensor *z) { return z ? cb_cumsum(cb_sin(x), 0) : NULL; }
static Of *const functions[] = {smooth, rows, linear, of_one};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static Of *function;

static cb_tensor *leaf(cb_tensor *x) { return cb_requires_grad_(cb_clone(x), true); }
static cb_tensor *drawn(void) { return cb_randn(cb_dims(3, 3), CB_F64); }

/* {x, z, their directions} -> J v */
static int product(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    return cb_jvp(function(in[0], in[1]), in, in + 2, 2, out) == CB_OK ? 1 : -1;
}

static cb_tensor *difference(cb_tensor *const *in) {
    const double step = 1e-6;
    cb_no_grad_open();
    cb_tensor *y[2];
    for (int i = 0; i < 2; i++) {
        double by = i ? step : -step;
        y[i] = function(cb_add(in[0], cb_mul(in[2], by)), cb_add(in[1], cb_mul(in[3], by)));
    }
    cb_tensor *slope = cb_div(cb_sub(y[1], y[0]), 2 * step);
    cb_no_grad_close();
    return slope;
}

static void as_differences(void **state) {
    (void)state;
    for (int k = 0; k < FUNCTIONS; k++) {
        function = functions[k];
        cb_function *fast = cb_compile_n(product, NULL, "backend=vm");
        for (int call = 0; call < 3; call++) {
            cb_tensor *in[] = {leaf(drawn()), leaf(drawn()), drawn(), drawn()}, *eager, *compiled;
            cb_tensor *wanted = difference(in);
            assert_int_equal(product(in, 4, &eager, NULL), 1);
            expect_tensor(eager, wanted, 1e-7, 1e-7);
            assert_false(cb_requires_grad(eager));
            assert_null(cb_tensor_grad(in[0]));
            assert_int_equal(cb_call_n(fast, in, 4, &compiled, 1), 1);
            expect_tensor(compiled, wanted, 1e-7, 1e-7);
        }
        assert_int_equal(cb_stats(fast).graphs, 1);
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
}

static void what_it_does_not_depend_on(void **state) {
    (void)state;
    cb_tensor *x = leaf(drawn()), *z = leaf(drawn()), *v = drawn(), *out = x;
    assert_int_equal(cb_jvp(cb_exp(x), &z, &v, 1, &out), CB_OK);
    assert_null(out);
    REFUSES(cb_jvp(cb_exp(x), &x, (cb_tensor *[]){cb_ones(cb_dims(2), CB_F64)}, 1, &out),
            CB_ERR_SHAPE, "jvp: a gradient of f64[2] for a tensor of f64[3, 3]");
    REFUSES(cb_jvp(cb_exp(v), &x, &v, 1, &out), CB_ERR_ARGUMENT, "jvp: nothing that the tensor");
    REFUSES(cb_jvp(NULL, &x, &v, 1, &out), CB_ERR_ARGUMENT, "jvp: NULL");
    REFUSES(cb_jvp(cb_exp(x), &x, (cb_tensor *[]){NULL}, 1, &out), CB_ERR_ARGUMENT,
            "jvp: tensor 0 is NULL");
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(as_differences), TEST(what_it_does_not_depend_on)};
    return cmocka_run_group_tests_name("jvp", tests, NULL, NULL);
}
