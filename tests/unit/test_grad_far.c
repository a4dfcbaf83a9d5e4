/* Derivatives of activations where they are 0 or 1 as far as their dtype can tell: of the first and
 * of the second order, with gradients that overflow where the argument is multiplied in, eagerly
 * and compiled. */
#include "fixture.h"

#include <math.h>

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

static cb_tensor *silu(cb_tensor *x) { return cb_silu(x); }
static cb_tensor *mish(cb_tensor *x) { return cb_mish(x); }
static cb_tensor *gelu(cb_tensor *x) { return cb_gelu(x); }
static cb_tensor *gelu_by_tanh(cb_tensor *x) { return cb_gelu(x, true); }
static cb_tensor *softplus(cb_tensor *x) { return cb_softplus(x); }
static cb_tensor *logsigmoid(cb_tensor *x) { return cb_logsigmoid(x); }
static cb_tensor *hardswish(cb_tensor *x) { return cb_hardswish(x); }
static cb_tensor *elu(cb_tensor *x) { return cb_elu(x); }
static cb_tensor *celu(cb_tensor *x) { return cb_celu(x, 0.5); }
static cb_tensor *selu(cb_tensor *x) { return cb_selu(x); }
static cb_tensor *tanhshrink(cb_tensor *x) { return cb_tanhshrink(x); }
static cb_tensor *sigmoid(cb_tensor *x) { return cb_sigmoid(x); }
static cb_tensor *tanh_of(cb_tensor *x) { return cb_tanh(x); }
static cb_tensor *erf_of(cb_tensor *x) { return cb_erf(x); }

typedef struct Activation {
    const char *name;
    cb_tensor *(*of)(cb_tensor *);
    double below, above; /* the slope far out on either side */
    bool doubtful;       /* the second order is NaN, as PyTorch's, where g * x is infinite */
} Activation;

static const Activation activations[] = {
    {"silu", silu, 0, 1, true},
    {"mish", mish, 0, 1, true},
    {"gelu", gelu, 0, 1, false},
    {"gelu by tanh", gelu_by_tanh, 0, 1, false},
    {"softplus", softplus, 0, 1, false},
    {"logsigmoid", logsigmoid, 1, 0, false},
    {"hardswish", hardswish, 0, 1, false},
    {"elu", elu, 0, 1, false},
    {"celu", celu, 0, 1, false},
    {"selu", selu, 0, 1.0507009873554805, false},
    {"tanhshrink", tanhshrink, 1, 1, false},
    {"sigmoid", sigmoid, 0, 0, false},
    {"tanh", tanh_of, 0, 0, false},
    {"erf", erf_of, 0, 0, false},
};
enum { ACTIVATIONS = sizeof activations / sizeof *activations };

/* What a dtype has of them. */
typedef struct FarRange {
    cb_dtype dtype;
    double within; /* of g */
    double x[6], g[4];
} FarRange;

static const FarRange ranges[] = {
    {CB_F32, 4e-3, {8, 20, 88, 1e4, 1e10, 1e19}, {1, 1e3, 1e20, 1e30}},
    {CB_BF16, 2e-2, {8, 20, 88, 1e4, 1e10, 1e19}, {1, 1e3, 1e20, 1e30}},
    {CB_F16, 5e-3, {8, 13, 20, 88, 300, 6e4}, {1, 1e3, 1e4, 3e4}},
    {CB_F64, 4e-3, {8, 20, 88, 800, 1e19, 1e100}, {1, 1e3, 1e100, 1e250}},
};
enum { POINTS = 6, GRADIENTS = 4, NUMBERS = 2 * POINTS * GRADIENTS };

static const Activation *now;

/* g times the slope, and the slope of that. */
static cb_tensor *both_orders(cb_tensor *x, cb_tensor *g) {
    cb_tensor *order[2];
    if (cb_grad_graph(now->of(x), g, &x, 1, &order[0])) return NULL;
    if (cb_grad(cb_sum(order[0]), NULL, &x, 1, &order[1])) return NULL;
    return cb_stack(order, 2, 0);
}

/* By number: each x and -x, of each g. */
static void numbers_of(const FarRange *range, double *x, double *g) {
    for (int i = 0; i < NUMBERS; i++) {
        double sign = i % 2 ? -1 : 1;
        x[i] = sign * range->x[i / 2 % POINTS];
        g[i] = range->g[i / (2 * POINTS)];
    }
}

static void check_orders(const FarRange *range, const char *how, cb_tensor *orders, const double *x,
                         const double *g) {
    double got[2 * NUMBERS];
    if (!orders) fail_msg("%s of %s: %s", now->name, cb_dtype_name(range->dtype), cb_error());
    assert_int_equal(cb_read(orders, got, CB_F64), CB_OK);
    for (int i = 0; i < NUMBERS; i++) {
        double want = g[i] * (x[i] < 0 ? now->below : now->above), most = range->within * g[i];
        double top = range->dtype == CB_F64 ? 1e300 : 1e38;
        bool doubtful = now->doubtful && fabs(x[i]) > top / g[i];
        bool fine = fabs(got[i] - want) <= most && /* nor NaN */
                    (doubtful || fabs(got[NUMBERS + i]) <= most);
        if (!fine)
            fail_msg("%s of %s, %s: x %g, g %g: %g and %g, not %g and 0", now->name,
                     cb_dtype_name(range->dtype), how, x[i], g[i], got[i], got[NUMBERS + i], want);
    }
}

static void check_range(const FarRange *range, cb_function *fast) {
    double at[NUMBERS], by[NUMBERS];
    numbers_of(range, at, by);
    cb_tensor *x = cb_clone(cb_to(cb_from_data(at, CB_F64, cb_dims(NUMBERS)), range->dtype));
    cb_tensor *g = cb_to(cb_from_data(by, CB_F64, cb_dims(NUMBERS)), range->dtype);
    cb_requires_grad_(x, true);
    check_orders(range, "eager", both_orders(x, g), at, by);
    check_orders(range, "compiled", cb_call(fast, x, g), at, by);
}

static void far_out(void **state) {
    (void)state;
    for (int i = 0; i < ACTIVATIONS; i++) {
        now = &activations[i];
        cb_function *fast = cb_compile(both_orders, "backend=vm");
        for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++) check_range(&ranges[k], fast);
        cb_function_free(fast);
    }
}

/* Of halves, too, the second order rounds where it is complete: as far as it is from that in f64,
 * so it would be rounded from there. */
static void halves_round_once(void **state) {
    (void)state;
    cb_tensor *x = cb_mul(cb_arange(-40, 41), 0.1);
    for (int i = 0; i < ACTIVATIONS; i++) {
        now = &activations[i];
        for (int bf16 = 0; bf16 < 2; bf16++) {
            cb_dtype dtype = bf16 ? CB_BF16 : CB_F16;
            cb_tensor *half = cb_requires_grad_(cb_to(x, dtype), true);
            cb_tensor *exact = cb_requires_grad_(cb_to(cb_detach(half), CB_F64), true);
            cb_tensor *wanted = both_orders(exact, cb_ones_like(exact));
            cb_tensor *got = both_orders(half, cb_ones_like(half));
            cb_tensor *most = cb_mul(cb_maximum(cb_abs(wanted), 0.01), bf16 ? 0.0079 : 0.00098);
            double worst = cb_item(cb_amax(cb_div(cb_abs(cb_sub(got, wanted)), most)));
            if (!(worst <= 1)) fail_msg("%s, bf16 %d: %g", now->name, bf16, worst);
        }
    }
}

/* What the gradient of a half reads of the result is that result, unrounded: there is a gradient by
 * it, of s * (1 - s). */
static void by_the_result_of_halves(void **state) {
    (void)state;
    cb_tensor *x = cb_requires_grad_(cb_full(1, 0.25, CB_F16), true), *s = cb_sigmoid(x);
    cb_tensor *slope, *by;
    assert_int_equal(cb_grad_graph(cb_sum(s), NULL, &x, 1, &slope), CB_OK);
    assert_int_equal(cb_grad(cb_sum(slope), NULL, &s, 1, &by), CB_OK);
    assert_non_null(by);
    assert_true(fabs(cb_item(by) - (1 - 2 * cb_item(s))) < 1e-3);
}

/* 1 - 1e-4 is below 1, and rounded to f16 it is not: huber_loss is a square there. */
static void halves_are_compared_unrounded(void **state) {
    (void)state;
    cb_tensor *x = cb_requires_grad_(cb_full(1, 1.0, CB_F16), true), *slope, *second;
    cb_tensor *loss = cb_huber_loss(x, cb_full(1, 1e-4, CB_F16));
    assert_int_equal(cb_grad_graph(loss, NULL, &x, 1, &slope), CB_OK);
    assert_int_equal(cb_grad(slope, NULL, &x, 1, &second), CB_OK);
    assert_true(cb_item(second) == 1);
}

/* Where a sum of 1 and little loses bits. */
static void of_gelu(void **state) {
    (void)state;
    now = &activations[3];
    cb_tensor *x = cb_requires_grad_(cb_mul(cb_arange(-900, 900), 0.01), true);
    cb_tensor *exact = cb_requires_grad_(cb_to(cb_detach(x), CB_F64), true);
    cb_tensor *g = cb_ones_like(x), *wanted = both_orders(exact, cb_to(g, CB_F64));
    cb_function *fast = cb_compile(both_orders, "backend=vm");
    cb_tensor *got[] = {both_orders(x, g), cb_call(fast, x, g)};
    for (int k = 0; k < 2; k++)
        assert_true(cb_item(cb_amax(cb_abs(cb_sub(got[k], wanted)))) < 8e-7);
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(far_out), TEST(halves_round_once),
                                       TEST(by_the_result_of_halves),
                                       TEST(halves_are_compared_unrounded), TEST(of_gelu)};
    return cmocka_run_group_tests_name("grad_far", tests, NULL, NULL);
}
