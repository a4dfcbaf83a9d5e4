/* The sign of zero where the larger or the smaller of two numbers is asked for. -0 lies below 0 in
 * maximum, minimum, amax and amin, whatever the order of the elements, so that lanes, threads and
 * engines agree (PyTorch's depend on the lane); a limit leaves what equals it alone, as PyTorch's
 * relu and clamp do. The integer 0 is no -0, whatever was truncated to it, and what is computed
 * from it has the signs of IEEE 754. */
#include "engines.h"

enum { MOST = 200000, OUTPUTS = 8 };

static float left[MOST], right[MOST];
static double expected[OUTPUTS][MOST];
static double *const columns[OUTPUTS] = {expected[0], expected[1], expected[2], expected[3],
                                         expected[4], expected[5], expected[6], expected[7]};

static void check(cb_function_n *function, cb_dtype dtype, int64_t rows, int64_t length,
                  int outputs) {
    cb_dim_list sizes = cb_dims(rows, length);
    cb_scope_open();
    cb_tensor *x[2] = {cb_to(cb_from_data(left, CB_F32, sizes), dtype),
                       cb_to(cb_from_data(right, CB_F32, sizes), dtype)};
    expect_everywhere(function, x, 2, columns, outputs);
    cb_scope_close();
}

static const cb_dtype dtypes[] = {CB_F32, CB_F64, CB_F16, CB_BF16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static int of_two(cb_tensor *const *x, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    outputs[0] = cb_maximum(x[0], x[1]);
    outputs[1] = cb_minimum(x[0], x[1]);
    outputs[2] = cb_relu(x[0]);
    outputs[3] = cb_clamp(x[0], 0.0, 6.0);
    outputs[4] = cb_clamp(x[0], NULL, 0.0);
    outputs[5] = cb_clamp(x[0], 0.0);
    outputs[6] = cb_relu6(x[0]);
    outputs[7] = cb_minimum(cb_maximum(x[0], 0.0), 6.0);
    return OUTPUTS;
}

static double larger(double a, double b) {
    if (a == b) return signbit(a) ? b : a;
    return a > b || isnan(a) ? a : b;
}

static double smaller(double a, double b) { return -larger(-a, -b); }

static void between_two(void **state) {
    static const float some[] = {-0.0f, 0.0f, 1, -1, NAN, 7, INFINITY, -INFINITY};
    enum { SOME = sizeof some / sizeof *some, COUNT = 3 * SOME * SOME + 5 };
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        float x = left[i] = some[i / SOME % SOME], y = right[i] = some[i % SOME];
        expected[0][i] = larger(x, y);
        expected[1][i] = smaller(x, y);
        expected[2][i] = x < 0 ? 0 : x;
        expected[3][i] = expected[6][i] = x < 0 ? 0 : x > 6 ? 6 : x;
        expected[4][i] = x > 0 ? 0 : x;
        expected[5][i] = x < 0 ? 0 : x;
        expected[7][i] = smaller(larger(x, 0), 6);
    }
    for (int d = 0; d < DTYPES; d++) check(of_two, dtypes[d], 1, COUNT, OUTPUTS);
}

static int of_rows(cb_tensor *const *x, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    outputs[0] = cb_amax(x[0], 1, false);
    outputs[1] = cb_amin(x[0], 1, false);
    outputs[2] = cb_amax(cb_t(x[0]), 0, false);
    outputs[3] = cb_reciprocal(cb_amin(cb_mul(x[0], 2.0), 1, false));
    return 4;
}

/* Rows of zeros of one sign, with one of the other at a place of its own; the last one has none. */
static void along_rows(void **state) {
    static const struct {
        int64_t rows, length;
    } shapes[] = {{70, 2}, {70, 9}, {70, 64}, {34, 1000}, {17, 5000}, {2, 100000}};
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        int64_t rows = shapes[s].rows, length = shapes[s].length;
        for (int64_t r = 0; r < rows; r++) {
            float usual = r % 2 ? -0.0f : 0.0f;
            for (int64_t i = 0; i < length; i++)
                left[r * length + i] = right[r * length + i] = usual;
            if (r + 1 < rows) left[r * length + r * 7919 % length] = -usual;
            bool mixed = r + 1 < rows;
            expected[0][r] = expected[2][r] = mixed ? 0.0 : (double)usual;
            expected[1][r] = mixed ? -0.0 : (double)usual;
            expected[3][r] = 1 / expected[1][r];
        }
        int every = s < 2 ? 1 : 2;
        for (int d = 0; d < DTYPES; d += every) check(of_rows, dtypes[d], rows, length, 4);
    }
}

/* All floats that a number has been on its way, by way of an integer. */
static cb_dtype integer;

static int of_integers(cb_tensor *const *x, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    for (int d = 0; d < DTYPES; d++) outputs[d] = cb_to(cb_to(x[0], integer), dtypes[d]);
    return DTYPES;
}

static void truncated_to_zero(void **state) {
    static const cb_dtype integers[] = {CB_I8, CB_I16, CB_I32, CB_I64, CB_U8};
    static const float some[] = {-0.5f, -0.0f, 0.25f, NAN, 1.5f, -0.99f, 100, 0.75f};
    enum { SOME = sizeof some / sizeof *some, COUNT = 67 };
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        left[i] = some[i % SOME];
        double wanted = left[i] > 1 ? floor(left[i]) : 0;
        for (int d = 0; d < DTYPES; d++) expected[d][i] = wanted;
    }
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        for (int d = 0; d < DTYPES; d++) {
            integer = integers[i];
            cb_scope_open();
            cb_tensor *x = cb_to(cb_from_data(left, CB_F32, cb_dims(COUNT)), dtypes[d]);
            expect_everywhere(of_integers, &x, 1, columns, DTYPES);
            cb_scope_close();
        }
}

/* What tells +0 from -0 behind an integer that became a float. */
static cb_dtype floating;

static int of_converted(cb_tensor *const *x, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    cb_tensor *f = cb_to(x[0], floating), *g = cb_to(x[1], floating);
    outputs[0] = cb_sub(0.0, f);
    outputs[1] = cb_add(cb_neg(f), 0.0);
    outputs[2] = cb_add(cb_mul(f, -1.0), 0.0);
    outputs[3] = cb_add(0.0, cb_div(f, -1.0));
    outputs[4] = cb_sub(0.0, cb_abs(f));
    outputs[5] = cb_sub(0.0, cb_to(cb_ne(x[0], 0), floating));
    outputs[6] = cb_sub(cb_mul(f, 0.0), g);
    cb_tensor *zero = cb_eq(x[0], 0);
    outputs[7] = cb_where(zero, cb_sub(0.0, cb_where(zero, 0.0, 1.0)), -1.0);
    return OUTPUTS;
}

static int of_negatives(cb_tensor *const *x, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    cb_tensor *f = cb_to(x[0], floating);
    outputs[0] = cb_neg(f);
    outputs[1] = cb_mul(f, -2.0);
    outputs[2] = cb_mul(f, 0.0);
    outputs[3] = cb_sub(f, cb_to(x[1], floating));
    outputs[4] = cb_div(0.0, cb_sub(-1.0, cb_abs(f)));
    outputs[5] = cb_copysign(1.0, cb_sub(0.0, f));
    outputs[6] = cb_minimum(cb_neg(f), 0.0);
    outputs[7] = cb_sub(0.0, cb_add(f, 0.0));
    return OUTPUTS;
}

static void expect_converted(int i, double f) {
    double opposite = 0 - f, size = fabs(f); /* a variable: gcc takes 0 - fabs(f) for -fabs(f) */
    for (int o = 0; o < 4; o++) expected[o][i] = opposite;
    expected[4][i] = 0 - size;
    expected[5][i] = f != 0 ? -1.0 : 0.0;
    expected[6][i] = f * 0 - f;
    expected[7][i] = expected[5][i];
}

static void expect_negatives(int i, double f) {
    double negative = -f, opposite = 0 - f;
    expected[0][i] = negative;
    expected[1][i] = f * -2;
    expected[2][i] = f * 0;
    expected[3][i] = 0;
    expected[4][i] = -0.0;
    expected[5][i] = copysign(1, opposite);
    expected[6][i] = smaller(negative, 0);
    expected[7][i] = opposite;
}

static void check_converted(cb_dtype from, cb_dtype to) {
    static const int some[] = {0, 1, -1, 0, 5, -3, 0, 0, 7};
    enum { SOME = sizeof some / sizeof *some, COUNT = 67 };
    double value[COUNT];
    floating = to;
    cb_scope_open();
    for (int i = 0; i < COUNT; i++) left[i] = (float)some[i % SOME];
    cb_tensor *given = cb_from_data(left, CB_F32, cb_dims(COUNT));
    cb_tensor *x[2] = {cb_to(given, from), cb_to(given, from)};
    assert_int_equal(cb_read(x[0], value, CB_F64), CB_OK);
    for (int i = 0; i < COUNT; i++) expect_converted(i, value[i]);
    expect_everywhere(of_converted, x, 2, columns, OUTPUTS);
    for (int i = 0; i < COUNT; i++) expect_negatives(i, value[i]);
    expect_everywhere(of_negatives, x, 2, columns, OUTPUTS);
    cb_scope_close();
}

static void converted_zero(void **state) {
    static const cb_dtype integers[] = {CB_I64, CB_U8, CB_I32, CB_I8, CB_BOOL};
    (void)state;
    for (size_t k = 0; k < sizeof integers / sizeof *integers; k++)
        for (int d = 0; d < (k < 2 ? DTYPES : 1); d++) check_converted(integers[k], dtypes[d]);
    assert_int_equal(cb_set_option("skip", "fold,rewrite"), CB_OK); /* as they are written above */
    for (int k = 0; k < 2; k++)
        for (int d = 0; d < 2; d++) check_converted(integers[k], dtypes[d]);
    assert_int_equal(cb_set_option("skip", ""), CB_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_two),
        cmocka_unit_test(along_rows),
        cmocka_unit_test(truncated_to_zero),
        cmocka_unit_test(converted_zero),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
