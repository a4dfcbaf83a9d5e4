/* Where bits are defined they are the same in every engine: behind a value that IEEE 754 rounds
 * correctly stand floors, comparisons and casts, which show one unit in the last place. */
#include "engines.h"

enum { MOST = 300000, STEPS = 4 };

static float number[MOST];
static double quotient[MOST], floored[MOST], one[MOST], whole[MOST];
static double *const expected[STEPS] = {quotient, floored, one, whole};

/* Each row of x (with columns: each column) divided by its largest element. */
typedef struct Case {
    int64_t rows, columns;
    bool down;
} Case;

static const Case cases[] = {
    {3, 7, false},      {5, 64, false}, {100, 1000, false}, {4, 5000, false},
    {2, 140000, false}, {7, 64, true},  {1000, 33, true},   {70000, 4, true},
};
enum { CASES = sizeof cases / sizeof *cases };

static int over_largest(cb_tensor *const *inputs, int dim, cb_tensor **outputs) {
    cb_tensor *share = cb_div(inputs[0], cb_amax(inputs[0], dim, true));
    outputs[0] = share;
    outputs[1] = cb_floor(share);
    outputs[2] = cb_eq(share, 1.0);
    outputs[3] = cb_to(cb_floor(cb_div(inputs[0], cb_amax(cb_abs(inputs[0]), dim, true))), CB_I32);
    return STEPS;
}

static int over_row(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    return over_largest(inputs, 1, outputs);
}

static int over_column(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    return over_largest(inputs, 0, outputs);
}

/* Position i as row (or column) and place along it. */
static int64_t line_of(const Case *c, int64_t i) {
    return c->down ? i % c->columns : i / c->columns;
}
static int64_t along(const Case *c, int64_t i) { return c->down ? i / c->columns : i % c->columns; }

/* Whole numbers up to the row's own: x / x is 1, while x times the rounded inverse of x is not for
 * 41, 47, 55, 61 ... */
static float step(int64_t line, int64_t place) {
    int64_t most = 41 + line * 3 % 80;
    return (float)(place % 2 ? most : place * 7919 % most);
}

/* Denormals over a denormal, and numbers near the end of the range: one of the inverses would be
 * infinite, the other a denormal itself. */
static float end(int64_t line, int64_t place) {
    float unit = line % 2 ? 0x1p-149f : 0x1.fffffep117f;
    return unit * (float)(1000 - place * 7919 % 1000);
}

static void expect(const Case *c, cb_tensor *x) {
    int64_t count = c->rows * c->columns, lines = c->down ? c->columns : c->rows;
    float *most = malloc(sizeof *most * (size_t)lines);
    for (int64_t l = 0; l < lines; l++) most[l] = -INFINITY;
    cb_read(x, number, CB_F32);
    for (int64_t i = 0; i < count; i++) most[line_of(c, i)] = fmaxf(most[line_of(c, i)], number[i]);
    for (int64_t i = 0; i < count; i++) {
        double share = (double)number[i] / (double)most[line_of(c, i)];
        quotient[i] = cb_dtype_of(x) == CB_F64 ? share : (double)(float)share;
        floored[i] = whole[i] = floor(quotient[i]);
        one[i] = quotient[i] == 1;
    }
    free(most);
    cb_read(cb_to(cb_from_data(quotient, CB_F64, cb_dims(count)), cb_dtype_of(x)), quotient,
            CB_F64);
}

static void check_division(float element(int64_t line, int64_t place), cb_dtype dtype, int every) {
    for (int k = 0; k < CASES; k += every) {
        const Case *c = &cases[k];
        int64_t count = c->rows * c->columns;
        for (int64_t i = 0; i < count; i++) number[i] = element(line_of(c, i), along(c, i));
        cb_scope_open();
        cb_tensor *x = cb_to(cb_from_data(number, CB_F32, cb_dims(c->rows, c->columns)), dtype);
        expect(c, x);
        expect_everywhere(c->down ? over_column : over_row, &x, 1, expected, STEPS);
        cb_scope_close();
    }
}

static void divides_by_the_number_of_a_row(void **state) {
    (void)state;
    check_division(step, CB_F32, 1);
}

static void divides_at_both_ends(void **state) {
    (void)state;
    check_division(end, CB_F32, 2);
}

static void divides_halves(void **state) {
    (void)state;
    check_division(step, CB_F16, 3);
    check_division(step, CB_BF16, 3);
}

static void divides_doubles(void **state) {
    (void)state;
    check_division(step, CB_F64, 3);
}

static int to_halves(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    outputs[0] = cb_to(inputs[0], CB_BF16);
    outputs[1] = cb_to(inputs[0], CB_F16);
    return 2;
}

/* A NaN becomes the same bits in every engine: quiet, of its sign, with what fits of its payload
 * (as the instructions do it). */
static void nan_becomes_the_same_half(void **state) {
    static const uint32_t bits[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xff812345, 0x7fffffff};
    enum { COUNT = sizeof bits / sizeof *bits };
    static const char *const engines[] = {NULL, "backend=vm", "backend=c"};
    (void)state;
    cb_scope_open();
    float values[COUNT];
    memcpy(values, bits, sizeof bits);
    cb_tensor *x = cb_from_data(values, CB_F32, cb_dims(COUNT)), *y[2];
    for (int e = 0; e < 3; e++) {
        cb_function *fast = e ? cb_compile_n(to_halves, NULL, engines[e]) : NULL;
        if (fast)
            cb_call_n(fast, &x, 1, y, 2);
        else
            to_halves(&x, 1, y, NULL);
        const uint16_t *bf16 = cb_data(y[0]), *f16 = cb_data(y[1]);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(bf16[i], bits[i] >> 16 | 0x40);
            assert_int_equal(f16[i], (bits[i] >> 16 & 0x8000) | 0x7e00 | (bits[i] >> 13 & 0x1ff));
        }
        cb_function_free(fast);
    }
    cb_scope_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divides_by_the_number_of_a_row),
        cmocka_unit_test(divides_at_both_ends),
        cmocka_unit_test(divides_halves),
        cmocka_unit_test(divides_doubles),
        cmocka_unit_test(nan_becomes_the_same_half),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
