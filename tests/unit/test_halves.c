/* Products of half precision with work behind them round once: the bias is added to the sums, not
 * to what is left of them in bf16 or f16. Every sum here is 4096 and a small odd or even number,
 * which neither dtype holds; the bias takes the 4096 away, so the result is exact, or off by whole
 * numbers. Steps stand behind it. */
#include "engines.h"

enum { LARGE = 4096, ELEMENTS = 4096, OUTPUTS = 3 };

static double exact[OUTPUTS][ELEMENTS];

static int steps(cb_tensor *y, cb_tensor **output) {
    output[0] = y;
    output[1] = cb_relu(cb_mul(y, 0.5));
    output[2] = cb_to(cb_floor(cb_div(y, 4.0)), CB_I32);
    return OUTPUTS;
}

static int linear(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count, (void)user;
    return steps(cb_linear(x[0], x[1], x[2]), output);
}

static int addmm(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count, (void)user;
    return steps(cb_addmm(x[2], x[0], cb_transpose(x[1], 0, 1)), output);
}

/* One row: a product of its own in f32, none in half precision. */
static int one_row(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count, (void)user;
    return steps(cb_linear(cb_slice(x[0], 0, 1, 2), x[1], x[2]), output);
}

static int conv1d(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count, (void)user;
    return steps(cb_conv1d(x[0], x[1], x[2]), output);
}

static int conv2d(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count, (void)user;
    return steps(cb_conv2d(x[0], x[1], x[2]), output);
}

static int depthwise(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count, (void)user;
    return steps(cb_conv2d(x[0], x[1], x[2], 1, 0, 1, cb_size(x[0], 1)), output);
}

typedef struct Case {
    cb_function_n *function;
    cb_dim_list x, weight, bias;
} Case;

/* Whole numbers from -3 to 3, in the weight from -1 to 1. Channel 0 of dim 1 is 1 in x; in the
 * weight it is 0 but for the first element, which is large. */
static cb_tensor *whole(cb_dim_list sizes, bool weight) {
    int64_t inner = 1, count = sizes.at[0] * sizes.at[1];
    for (int d = 2; d < sizes.count; d++) inner *= sizes.at[d];
    float *value = malloc(sizeof *value * (size_t)(count *= inner));
    for (int64_t i = 0; i < count; i++) {
        bool channel = sizes.at[1] == 1 || i / inner % sizes.at[1] > 0;
        value[i] = (float)(weight ? i * 7919 % 1013 % 3 - 1 : i * 7919 % 1013 % 7 - 3);
        if (!weight && (!channel || i % 5 == 0)) value[i] = 1;
        if (weight && !channel) value[i] = 0;
        if (weight && i % (inner * sizes.at[1]) == 0) value[i] = LARGE;
    }
    cb_tensor *y = cb_from_data(value, CB_F32, sizes);
    free(value);
    return y;
}

static void expect_one_rounding(const Case *c, cb_dtype dtype) {
    cb_tensor *input[3], *wide[3], *y[OUTPUTS];
    double *expected[OUTPUTS];
    cb_scope_open();
    bool shared = c->x.at[1] == c->weight.at[1]; /* else the large element meets every channel */
    input[0] = cb_to(shared ? whole(c->x, false) : cb_ones(c->x), dtype);
    input[1] = cb_to(whole(c->weight, true), dtype);
    input[2] = cb_full(c->bias, -LARGE, dtype);
    for (int i = 0; i < 3; i++) wide[i] = cb_to(input[i], CB_F64);
    assert_int_equal(c->function(wide, 3, y, NULL), OUTPUTS);
    for (int o = 0; o < OUTPUTS; o++) {
        expected[o] = exact[o];
        if (!y[o]) fail_msg("%s", cb_error());
        assert_true(cb_numel(y[o]) <= ELEMENTS);
        assert_int_equal(cb_read(y[o], exact[o], CB_F64), CB_OK);
    }
    expect_everywhere(c->function, input, 3, expected, OUTPUTS);
    cb_scope_close();
}

static void results_and_bias_round_once(void **state) {
    (void)state;
    const Case cases[] = {
        {linear, cb_dims(17, 11), cb_dims(23, 11), cb_dims(23)},
        {linear, cb_dims(30, 300), cb_dims(7, 300), cb_dims(7)},
        {addmm, cb_dims(17, 11), cb_dims(23, 11), cb_dims(17, 23)},
        {one_row, cb_dims(3, 40), cb_dims(50, 40), cb_dims(50)},
        {conv1d, cb_dims(3, 5, 19), cb_dims(7, 5, 3), cb_dims(7)},
        {conv2d, cb_dims(2, 5, 9, 8), cb_dims(6, 5, 3, 2), cb_dims(6)},
        {conv2d, cb_dims(1, 32, 9, 9), cb_dims(32, 32, 3, 3), cb_dims(32)},
        {conv2d, cb_dims(2, 16, 5, 5), cb_dims(24, 16, 1, 1), cb_dims(24)},
        {depthwise, cb_dims(2, 6, 9, 8), cb_dims(6, 1, 3, 3), cb_dims(6)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_one_rounding(&cases[i], CB_BF16);
        expect_one_rounding(&cases[i], CB_F16);
    }
}

/* Sums over nothing are zeros in the dtype that the readers expect. */
static int of_nothing(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count, (void)user;
    output[0] = cb_linear(x[0], x[1], x[2]);
    return 1;
}

static void sums_of_nothing(void **state) {
    (void)state;
    cb_tensor *input[] = {cb_zeros(cb_dims(5, 0), CB_BF16), cb_zeros(cb_dims(9, 0), CB_BF16),
                          cb_full(cb_dims(9), 3, CB_BF16)};
    for (int i = 0; i < 45; i++) exact[0][i] = 3;
    expect_everywhere(of_nothing, input, 3, (double *[]){exact[0]}, 1);
}

/* What is returned, or read by another product, is rounded as its dtype says: 4097 is 4096 in both
 * dtypes. With precise every op rounds. */
static int chain(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count, (void)user;
    cb_tensor *y = cb_matmul(x[0], x[1]), *other = cb_matmul(cb_neg(x[0]), x[1]);
    output[0] = y;
    output[1] = cb_sub(y, (double)LARGE);
    output[2] = cb_add(cb_matmul(other, cb_slice(x[1], 0, 0, 1)), (double)LARGE);
    return OUTPUTS;
}

static void what_has_a_dtype_in_memory_is_rounded(void **state) {
    (void)state;
    static double large[] = {LARGE}, none[] = {0};
    static const cb_dtype dtypes[] = {CB_F16, CB_BF16};
    for (int d = 0; d < 2; d++) {
        cb_tensor *x = cb_reshape(cb_arange(0, 2, 1, dtypes[d]), cb_dims(1, 2));
        x = cb_add(cb_mul(x, 1.0 - LARGE), (double)LARGE); /* 4096, 1 */
        cb_tensor *input[] = {x, cb_ones(cb_dims(2, 1), dtypes[d])};
        expect_everywhere(chain, input, 2, (double *[]){large, none, none}, OUTPUTS);
    }
}

static void precise_rounds_every_op(void **state) {
    (void)state;
    const Case c = {linear, cb_dims(4, 2), cb_dims(1, 2), cb_dims(1)};
    cb_tensor *x = cb_ones(cb_dims(4, 2), CB_BF16), *weight = cb_to(whole(c.weight, true), CB_BF16);
    cb_tensor *bias = cb_full(c.bias, -LARGE, CB_BF16), *input[] = {x, weight, bias}, *y[OUTPUTS];
    cb_function *fast = cb_compile_n(linear, NULL, "backend=vm");
    cb_set_option("precise", "1");
    assert_int_equal(cb_call_n(fast, input, 3, y, OUTPUTS), OUTPUTS);
    assert_true(cb_item(cb_max(cb_abs(y[0]))) == 0);
    cb_set_option("precise", "0");
    cb_function_free(fast);
}

/* An op that has run before is built anew: its rows are those of a call that has not. */
static void precise_is_asked_in_every_call(void **state) {
    (void)state;
    cb_tensor *x = cb_to(cb_mul(cb_randn(cb_dims(64, 100)), 3.0), CB_BF16);
    cb_tensor *rows = cb_slice(x, 0, 0, 63), *fast = cb_gelu(x);
    cb_set_option("precise", "1");
    cb_tensor *part = cb_gelu(rows), *whole_again = cb_slice(cb_gelu(x), 0, 0, 63);
    cb_set_option("precise", "0");
    assert_true(cb_item(cb_all(cb_eq(part, whole_again))));
    assert_false(cb_item(cb_all(cb_eq(part, cb_slice(fast, 0, 0, 63)))));
    assert_true(cb_item(cb_all(cb_eq(fast, cb_gelu(x)))));
}

/* ---- attention ---- */

/* Few queries, so it is two products and a softmax: scores and weights stay f32. */
static int attention(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count, (void)user;
    output[0] = cb_scaled_dot_product_attention(x[0], x[1], x[2]);
    return 1;
}

static double rms_between(cb_tensor *x, cb_tensor *y) {
    cb_tensor *off = cb_sub(cb_to(x, CB_F64), y);
    return sqrt(cb_item(cb_mean(cb_mul(off, off))));
}

static void expect_no_more_than_its_rounding(cb_tensor *const *input, cb_dtype dtype) {
    static const char *const engines[] = {"eager", "backend=vm", "backend=c"};
    cb_tensor *half[3], *wide[3], *exact_result, *y;
    for (int i = 0; i < 3; i++) {
        half[i] = cb_to(input[i], dtype);
        wide[i] = cb_to(half[i], CB_F64);
    }
    assert_int_equal(attention(wide, 3, &exact_result, NULL), 1);
    double rounding = rms_between(cb_to(exact_result, dtype), exact_result);
    for (int e = 0; e < 3; e++) {
        cb_function *fast = e ? cb_compile_n(attention, NULL, engines[e]) : NULL;
        int results = fast ? cb_call_n(fast, half, 3, &y, 1) : attention(half, 3, &y, NULL);
        assert_int_equal(results, 1);
        double off = rms_between(y, exact_result);
        if (!(off <= 1.1 * rounding))
            fail_msg("%s in %s: off by %g, rounding alone by %g", engines[e], cb_dtype_name(dtype),
                     off, rounding);
        cb_function_free(fast);
    }
}

static void attention_rounds_once(void **state) {
    (void)state;
    static const int64_t sizes[][4] = {
        {1, 1, 2, 4}, {3, 9, 21, 16}, {2, 16, 40, 64}, {4, 1, 30, 8}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t heads = sizes[i][0], rows = sizes[i][1], keys = sizes[i][2], depth = sizes[i][3];
        cb_tensor *input[] = {cb_randn(cb_dims(2, heads, rows, depth), CB_F32),
                              cb_randn(cb_dims(2, heads, keys, depth), CB_F32),
                              cb_randn(cb_dims(2, heads, keys, depth), CB_F32)};
        expect_no_more_than_its_rounding(input, CB_BF16);
        expect_no_more_than_its_rounding(input, CB_F16);
    }
}

static int replaces(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count, (void)user;
    cb_assign(x[0], cb_matmul(x[1], x[2]));
    output[0] = cb_sub(cb_to(x[0], CB_F32), 4096.0);
    return 1;
}

/* What a product is written to has its dtype, and that is what is read of it: 4097 is 4096. */
static void products_that_are_written(void **state) {
    (void)state;
    static const char *const options[] = {"backend=vm", NULL};
    const float one[2] = {64, 1};
    for (int i = 0; i < 2; i++) {
        cb_function *fast = cb_compile_n(replaces, NULL, options[i]);
        cb_tensor *a = cb_to(cb_from_data(one, CB_F32, cb_dims(1, 2)), CB_BF16), *y;
        cb_tensor *x[] = {cb_zeros(cb_dims(3, 3), CB_BF16),
                          cb_contiguous(cb_expand(a, cb_dims(3, 2))),
                          cb_contiguous(cb_expand(cb_transpose(a, 0, 1), cb_dims(2, 3)))};
        assert_int_equal(cb_call_n(fast, x, 3, &y, 1), 1);
        assert_true(cb_item(cb_amin(x[0])) == 4096 && cb_item(cb_amax(x[0])) == 4096);
        assert_true(cb_item(cb_amin(y)) == 0 && cb_item(cb_amax(y)) == 0);
        cb_function_free(fast);
    }
}

/* ---- halves that are only moved ---- */

enum { SIDE = 256, MOVES = 8 };

/* All halves there are, through every kind of copy: strided, in pieces, by a mask, beside zeros. */
static int moves(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count, (void)user;
    cb_tensor *wide = cb_slice(x[0], 1, 3, 40), *turned = cb_transpose(x[0], 0, 1);
    output[0] = cb_cat(((cb_tensor *[]){x[0], cb_slice(x[0], 0, 0, 1), turned}), 3, 0);
    output[1] = cb_cat(((cb_tensor *[]){wide, cb_slice(turned, 1, 7, 8)}), 2, 1);
    output[2] = cb_stack(((cb_tensor *[]){wide, wide, cb_slice(turned, 1, 1, 38)}), 3, 1);
    output[3] =
        cb_contiguous(cb_permute(cb_reshape(x[0], cb_dims(4, 64, 16, 16)), cb_dims(0, 2, 1, 3)));
    output[4] = cb_roll(wide, 5, 1);
    output[5] = cb_where(x[1], x[0], turned);
    output[6] = cb_pad(x[0], cb_dims(2, 3));
    output[7] = cb_slice(x[0], 1, 0, SIDE, 3);
    output[7] = cb_contiguous(output[7]);
    return MOVES;
}

static void expect_same_bits(cb_tensor *got, cb_tensor *expected) {
    int64_t count = cb_numel(got);
    uint16_t *bits = malloc((size_t)count * 2 * sizeof *bits);
    assert_int_equal(cb_numel(expected), count);
    assert_int_equal(cb_read(got, bits, cb_dtype_of(got)), 0);
    assert_int_equal(cb_read(expected, bits + count, cb_dtype_of(expected)), 0);
    assert_memory_equal(bits, bits + count, (size_t)count * sizeof *bits);
    free(bits);
}

static void copies_move_bits(void **state) {
    (void)state;
    static uint16_t all[SIDE * SIDE];
    static bool mask[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++) all[i] = (uint16_t)i, mask[i] = i % 3 == 0;
    cb_dim_list sizes = cb_dims(SIDE, SIDE);
    cb_tensor *which = cb_from_data(mask, CB_BOOL, sizes), *expected[MOVES], *got[MOVES];
    cb_tensor *bits[] = {cb_from_data(all, CB_I16, sizes), which};
    assert_int_equal(moves(bits, 2, expected, NULL), MOVES);
    static const cb_dtype halves[] = {CB_F16, CB_BF16};
    for (int d = 0; d < 2; d++)
        for (int e = 0; e < 3; e++) {
            cb_tensor *x[] = {cb_from_data(all, halves[d], sizes), which};
            static const char *const engines[] = {NULL, "backend=c", "backend=vm"};
            cb_function *fast = e ? cb_compile_n(moves, NULL, engines[e]) : NULL;
            if (fast) assert_int_equal(cb_call_n(fast, x, 2, got, MOVES), MOVES);
            if (!fast) assert_int_equal(moves(x, 2, got, NULL), MOVES);
            for (int i = 0; i < MOVES; i++) {
                assert_int_equal(cb_dtype_of(got[i]), halves[d]);
                expect_same_bits(got[i], expected[i]);
            }
            cb_function_free(fast);
        }
}

/* Conditions read halves as numbers: such a kernel is none of copies. */
static int chooses(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count, (void)user;
    output[0] = cb_where(cb_gt(x[0], 0.0), x[0], x[1]);
    output[1] = cb_cumsum(x[0], 1); /* one at a time */
    output[2] = cb_to(cb_cumsum(cb_to(x[0], CB_F32), 1), cb_dtype_of(x[0]));
    return OUTPUTS;
}

static void halves_one_at_a_time(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 7, 9};
    for (int i = 0; i < 6; i++) {
        cb_dim_list sizes = cb_dims(rows[i / 2], 1001);
        cb_dtype half = i % 2 ? CB_F16 : CB_BF16;
        cb_tensor *x[] = {cb_to(cb_randn(sizes), half), cb_to(cb_randn(sizes), half)};
        cb_tensor *expected[OUTPUTS], *got[OUTPUTS];
        chooses(x, 2, expected, NULL);
        cb_function *fast = cb_compile_n(chooses, NULL, "backend=c");
        assert_int_equal(cb_call_n(fast, x, 2, got, OUTPUTS), OUTPUTS);
        for (int k = 0; k < OUTPUTS; k++) expect_same_bits(got[k], expected[k]);
        expect_same_bits(got[1], got[2]);
        cb_function_free(fast);
    }
}

/* ---- sums by index --------------------------------------------------------------------------- */

/* Ones of which each but the last raises a sum that neither dtype holds: where every addend is
 * rounded, those behind 2048 or 256 are lost. */
static int add_by_index(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count, (void)user;
    cb_tensor *w = x[3], *row = cb_select(x[1], 1, 0);
    output[0] = cb_scatter_add(x[0], 0, x[1], x[2]);
    cb_grad(cb_gather(w, 0, x[1]), x[2], &w, 1, output + 1);
    cb_grad(cb_index_select(w, 0, row), x[2], &w, 1, output + 2);
    cb_grad(cb_embedding(row, w), x[2], &w, 1, output + 3);
    return 4;
}

static void check_sums_by_index(cb_dtype dtype, int64_t rows) {
    static double ones[2 * 4 * LARGE], more[2 * 4 * LARGE];
    for (int i = 0; i < 2 * rows; i++)
        ones[i] = i / 2 == 1 ? LARGE : 0, more[i] = i / 2 == 1 ? LARGE : 1;
    cb_tensor *x = cb_ones(cb_dims(rows, 2), dtype), *g = cb_ones(cb_dims(LARGE, 2), dtype);
    cb_tensor *w = cb_requires_grad_(cb_clone(x), true);
    cb_tensor *input[] = {x, cb_ones(cb_dims(LARGE, 2), CB_I64), g, w};
    expect_everywhere(add_by_index, input, 4, (double *[]){more, ones, ones, ones}, 4);
}

/* To few rows, and to many more than are added. */
static void sums_by_index_round_once(void **state) {
    (void)state;
    static const cb_dtype dtypes[] = {CB_F16, CB_BF16};
    for (int d = 0; d < 2; d++) {
        check_sums_by_index(dtypes[d], 2);
        check_sums_by_index(dtypes[d], 4 * LARGE);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sums_by_index_round_once, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(results_and_bias_round_once, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(sums_of_nothing, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(what_has_a_dtype_in_memory_is_rounded, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(products_that_are_written, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(attention_rounds_once, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(precise_rounds_every_op, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(copies_move_bits, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(halves_one_at_a_time, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(precise_is_asked_in_every_call, open_scope,
                                        close_scope_without_error),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
