/* Means, variances and norms of numbers that lie far from 0 and close together: what rounding a sum
 * or a mean loses is more than all that they differ by. */
#include "engines.h"

enum { MOST = 300000, OUTPUTS = 3 };

static double number[MOST], mean[MOST], variance[MOST], standard[MOST];

/* Statistics along dim 1 of [rows, columns], or along dim 0. */
typedef struct Sizes {
    int64_t rows, columns;
    int dim;
} Sizes;

static const Sizes shapes[] = {
    {3, 7, 1},    {40, 32, 1},    {16, 100, 1}, {20, 1000, 1}, {16, 1024, 1}, {4, 5000, 1},
    {5, 8192, 1}, {2, 140000, 1}, {7, 64, 0},   {1000, 33, 0}, {100, 64, 0},  {70000, 4, 0},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static int along(cb_tensor *x, int dim, cb_tensor **outputs) {
    outputs[0] = cb_mean(x, dim, true);
    outputs[1] = cb_var(x, dim, 1, true);
    cb_tensor *row = dim ? x : cb_t(x);
    cb_tensor *y = cb_layer_norm(row, cb_dims(cb_size(row, 1)), NULL, NULL, 1e-5);
    outputs[2] = dim ? y : cb_t(y);
    return OUTPUTS;
}

static int along_rows(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    return along(inputs[0], 1, outputs);
}

static int along_columns(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    return along(inputs[0], 0, outputs);
}

/* The statistics of `number`, as f64 knows them. */
static void take(const Sizes *s) {
    int64_t lines = s->dim ? s->rows : s->columns, length = s->dim ? s->columns : s->rows;
    int64_t across = s->dim ? s->columns : 1, step = s->dim ? 1 : s->columns;
    for (int64_t l = 0; l < lines; l++) {
        const double *x = number + l * across;
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < length; i++) sum += x[i * step] - x[0];
        mean[l] = x[0] + sum / (double)length;
        for (int64_t i = 0; i < length; i++)
            squares += (x[i * step] - mean[l]) * (x[i * step] - mean[l]);
        variance[l] = squares / (double)(length - 1);
        for (int64_t i = 0; i < length; i++)
            standard[l * across + i * step] =
                (x[i * step] - mean[l]) / sqrt(squares / (double)length + 1e-5);
    }
}

/* base + {0, step}, in an order without a pattern, or base alone. tolerance: of the mean. */
static void check(cb_dtype dtype, double base, double step, double tolerance, double relative) {
    double *const expected[] = {mean, variance, standard};
    for (int k = 0; k < SHAPES; k++) {
        const Sizes *s = &shapes[k];
        for (int64_t i = 0; i < s->rows * s->columns; i++)
            number[i] = base + (i * i % 7 < 3 || i % s->columns == 1 ? step : 0);
        cb_scope_open();
        cb_tensor *x = cb_to(cb_from_data(number, CB_F64, cb_dims(s->rows, s->columns)), dtype);
        cb_read(x, number, CB_F64);
        take(s);
        double near[] = {tolerance, step ? relative * step * step : 1e-9 * base * base * relative,
                         step ? 4 * relative : 1e-3};
        expect_near(s->dim ? along_rows : along_columns, &x, 1, expected, near, OUTPUTS);
        cb_scope_close();
    }
}

static void numbers_far_from_zero(void **state) {
    (void)state;
    check(CB_F32, 1e6, 1, 1, 1e-5);
    check(CB_F64, 1e12, 0.5, 1e-3, 1e-3);
}

static void halves_far_from_zero(void **state) {
    (void)state;
    check(CB_F16, 1000, 1, 0.5, 1e-3);
    check(CB_BF16, 128, 1, 1, 1e-2);
}

/* PyTorch's layer_norm of a constant is 0; with a rounded mean it was 0.5. */
static void a_constant_has_no_variance(void **state) {
    (void)state;
    check(CB_F32, 12345.6, 0, 15e-3, 1e-5);
}

enum { CHANNELS = 8 };

static int norms(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    cb_tensor *x = inputs[0];
    (void)count, (void)user;
    outputs[0] = cb_batch_norm(x, NULL, NULL, NULL, NULL, true, 0.1, 1e-5);
    outputs[1] = cb_instance_norm(x, NULL, NULL, NULL, NULL, true, 0.1, 1e-5);
    outputs[2] = cb_group_norm(x, CHANNELS, NULL, NULL, 1e-5);
    return OUTPUTS;
}

/* Every channel of every picture holds both numbers equally often: all norms give 1 and -1. */
static void norms_by_channel(void **state) {
    (void)state;
    enum { PICTURES = 3, SIDE = 10, COUNT = PICTURES * CHANNELS * SIDE * SIDE };
    double *const expected[] = {standard, standard, standard};
    static const double near[] = {1e-3, 1e-3, 1e-3};
    for (int i = 0; i < COUNT; i++) {
        number[i] = 1e6 + (i * 3 % 10 < 5);
        standard[i] = number[i] > 1e6 ? 1 : -1;
    }
    cb_scope_open();
    cb_tensor *x = cb_from_data(number, CB_F64, cb_dims(PICTURES, CHANNELS, SIDE, SIDE));
    x = cb_to(x, CB_F32);
    expect_near(norms, &x, 1, expected, near, OUTPUTS);
    cb_scope_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_far_from_zero),
        cmocka_unit_test(halves_far_from_zero),
        cmocka_unit_test(a_constant_has_no_variance),
        cmocka_unit_test(norms_by_channel),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
