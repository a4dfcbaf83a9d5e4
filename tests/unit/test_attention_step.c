/* The attention step against sums in double, over odd sizes, strides, masks, dtypes and layouts;
 * claimed attention against the same graph in single ops; what is declined and why. */
#include "base/cpu.h"
#include "carbide.h"
#include "cpu/attention_kernel.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 1 << 17 };

typedef enum GivenMask { NO_MASK, BOOL_MASK, FLOAT_MASK, ROW_MASK, KEY_MASK } GivenMask;

typedef struct Case {
    int64_t batch, heads, rows, columns, depth, width;
    bool causal;
    GivenMask mask;
    cb_dtype dtype;
} Case;

static const Case cases[] = {
    {1, 1, 1, 1, 1, 1, false, NO_MASK, CB_F32},
    {1, 2, 1, 300, 64, 64, false, NO_MASK, CB_F32},
    {2, 3, 5, 7, 4, 5, false, NO_MASK, CB_F32},
    {2, 3, 33, 130, 16, 24, false, NO_MASK, CB_F32},
    {1, 2, 70, 127, 33, 13, false, BOOL_MASK, CB_F32},
    {1, 2, 70, 70, 64, 64, true, NO_MASK, CB_F32},
    {1, 2, 70, 31, 8, 8, true, NO_MASK, CB_F32},
    {1, 2, 31, 300, 8, 15, true, FLOAT_MASK, CB_F32},
    {3, 1, 257, 129, 20, 17, true, BOOL_MASK, CB_F32},
    {2, 2, 40, 41, 16, 16, false, ROW_MASK, CB_F32},
    {2, 2, 40, 41, 16, 16, false, KEY_MASK, CB_F32},
    {1, 2, 45, 140, 12, 9, false, FLOAT_MASK, CB_F64},
    {1, 2, 45, 140, 12, 9, true, BOOL_MASK, CB_F64},
    {1, 2, 45, 140, 12, 9, true, BOOL_MASK, CB_BF16},
    {1, 2, 45, 140, 12, 9, false, FLOAT_MASK, CB_BF16},
    {2, 1, 65, 129, 64, 64, true, NO_MASK, CB_BF16},
    {2, 3, 5, 7, 4, 5, false, NO_MASK, CB_BF16},
    {1, 2, 70, 31, 8, 8, true, NO_MASK, CB_BF16},
    {1, 2, 31, 301, 33, 15, true, FLOAT_MASK, CB_BF16},
    {3, 1, 257, 129, 20, 17, true, BOOL_MASK, CB_BF16},
    {2, 2, 40, 255, 64, 48, false, KEY_MASK, CB_BF16},
    {2, 1, 65, 129, 64, 64, false, KEY_MASK, CB_F16},
};
enum { CASES = sizeof cases / sizeof *cases };

static const double tolerance[CB_DTYPE_COUNT] = {
    [CB_F32] = 3e-6, [CB_F64] = 1e-13, [CB_F16] = 2e-3, [CB_BF16] = 2e-2};

static int64_t mask_index(const Case *c, int64_t b, int64_t r, int64_t k) {
    switch (c->mask) {
    case ROW_MASK:
        return r;
    case KEY_MASK:
        return (b / c->heads) * c->columns + k;
    default:
        return (b * c->rows + r) * c->columns + k;
    }
}

static cb_tensor *mask_of(const Case *c) {
    cb_dim_list sizes = cb_dims(c->batch, c->heads, c->rows, c->columns);
    if (c->mask == ROW_MASK) sizes = cb_dims(c->rows, 1);
    if (c->mask == KEY_MASK) sizes = cb_dims(c->batch, 1, 1, c->columns);
    if (c->mask == NO_MASK) return NULL;
    cb_tensor *noise = cb_rand(sizes);
    if (c->mask == BOOL_MASK) { /* and one query that sees nothing */
        cb_tensor *row = cb_arange(0, c->rows);
        return cb_logical_and(cb_gt(noise, 0.4), cb_ne(cb_reshape(row, cb_dims(-1, 1)), 3));
    }
    if (c->mask == KEY_MASK) return cb_gt(noise, 0.5);
    cb_tensor *numbers = cb_where(cb_gt(noise, 0.8), -INFINITY, cb_mul(noise, 3.0));
    return cb_to(numbers, c->dtype);
}

/* One row of scores, kept or hidden, to one row of the result. */
static void expect_row(const Case *c, const double *q, const double *k, const double *v,
                       const double *mask, int64_t b, int64_t r, double scale, double *out) {
    double weight[512], most = -INFINITY, total = 0;
    for (int64_t j = 0; j < c->columns; j++) {
        double score = 0;
        for (int64_t d = 0; d < c->depth; d++)
            score += q[(b * c->rows + r) * c->depth + d] * k[(b * c->columns + j) * c->depth + d];
        score *= scale;
        bool is_bool = c->mask == BOOL_MASK || c->mask == KEY_MASK;
        double m = mask ? mask[mask_index(c, b, r, j)] : 0;
        if (mask) score = is_bool ? (m != 0 ? score : -INFINITY) : score + m;
        if (c->causal && j > r) score = -INFINITY;
        weight[j] = score;
        if (score > most) most = score;
    }
    for (int64_t j = 0; j < c->columns; j++) {
        weight[j] = most == -INFINITY ? 0 : exp(weight[j] - most);
        total += weight[j];
    }
    for (int64_t e = 0; e < c->width; e++) {
        double sum = 0;
        for (int64_t j = 0; j < c->columns; j++)
            sum += weight[j] * v[(b * c->columns + j) * c->width + e];
        out[e] = total > 0 ? sum / total : 0;
    }
}

static double *read_all(cb_tensor *x) {
    double *values = malloc(sizeof *values * (size_t)(cb_numel(x) + 1));
    assert_int_equal(cb_read(x, values, CB_F64), CB_OK);
    return values;
}

static void expect_values(const Case *c, int number, cb_tensor *q, cb_tensor *k, cb_tensor *v,
                          cb_tensor *mask, double scale, cb_tensor *y) {
    if (!y) fail_msg("case %d: %s", number, cb_error());
    double *dq = read_all(q), *dk = read_all(k), *dv = read_all(v), *found = read_all(y);
    double *dm = mask ? read_all(mask) : NULL, row[64];
    assert_int_equal(cb_numel(y), c->batch * c->heads * c->rows * c->width);
    for (int64_t b = 0; b < c->batch * c->heads; b++)
        for (int64_t r = 0; r < c->rows; r++) {
            expect_row(c, dq, dk, dv, dm, b, r, scale, row);
            for (int64_t e = 0; e < c->width; e++) {
                double got = found[(b * c->rows + r) * c->width + e];
                if (!(fabs(got - row[e]) <= tolerance[c->dtype] * (1 + fabs(row[e]))))
                    fail_msg("case %d: [%d, %d, %d] is %.9g, not %.9g", number, (int)b, (int)r,
                             (int)e, got, row[e]);
            }
        }
    free(dq), free(dk), free(dv), free(found), free(dm);
}

/* Heads behind the rows in memory, as they are after a product of all of them. */
static cb_tensor *operand(const Case *c, int64_t rows, int64_t columns) {
    cb_tensor *x = cb_randn(cb_dims(c->batch, rows, c->heads, columns + 3));
    return cb_to(cb_transpose(cb_narrow(x, 3, 2, columns), 1, 2), c->dtype);
}

static cb_tensor *strided(const Case *c, int64_t rows, int64_t columns) {
    cb_tensor *x = cb_to(cb_randn(cb_dims(c->batch, rows, c->heads, columns + 3)), c->dtype);
    return cb_transpose(cb_narrow(x, 3, 2, columns), 1, 2);
}

static void run_case(const Case *c, int number, bool in_place) {
    cb_tensor *(*make)(const Case *, int64_t, int64_t) = in_place ? strided : operand;
    cb_scope_open();
    cb_tensor *q = make(c, c->rows, c->depth), *k = make(c, c->columns, c->depth);
    cb_tensor *v = make(c, c->columns, c->width), *mask = mask_of(c);
    cb_tensor *given = mask ? mask : cb_full(CB_NO_DIMS, 1, CB_BOOL);
    cb_tensor *y = cb_attention(q, k, v, given, 0.3, c->causal);
    expect_values(c, number, q, k, v, mask, 0.3, y);
    cb_tensor *z = cb_attention(q, k, v, given, 0.3, c->causal, 1);
    assert_int_equal(cb_size(z, 1), c->rows);
    expect_values(c, number, q, k, v, mask, 0.3, cb_transpose(z, 1, 2));
    cb_scope_close();
}

static void sums_in_double_agree(void **state) {
    (void)state;
    cb_manual_seed(3);
    for (int i = 0; i < CASES; i++) {
        run_case(&cases[i], i, false);
        run_case(&cases[i], i, true);
    }
    assert_null(cb_error());
}

static void threads_do_not_count(void **state) {
    (void)state;
    static float one[MOST], many[MOST];
    static const cb_dtype dtypes[] = {CB_F32, CB_BF16};
    for (int d = 0; d < 2; d++) {
        cb_scope_open();
        cb_tensor *q = cb_to(cb_randn(cb_dims(2, 2, 300, 32)), dtypes[d]);
        cb_tensor *k = cb_to(cb_randn(cb_dims(2, 2, 300, 32)), dtypes[d]);
        cb_tensor *none = cb_full(CB_NO_DIMS, 1, CB_BOOL);
        cb_set_threads(1);
        cb_read(cb_attention(q, k, k, none, 0.2, true), one, CB_F32);
        for (int threads = 2; threads < 12; threads += 3) {
            cb_set_threads(threads);
            cb_read(cb_attention(q, k, k, none, 0.2, true), many, CB_F32);
            assert_memory_equal(one, many, sizeof *one * 2 * 2 * 300 * 32);
        }
        cb_set_threads(0);
        cb_scope_close();
    }
}

static void what_is_not_a_number_stays(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *q = cb_randn(cb_dims(1, 1, 40, 8)), *k = cb_randn(cb_dims(1, 1, 50, 8));
    cb_tensor *none = cb_full(CB_NO_DIMS, 1, CB_BOOL);
    float *data = cb_data(q);
    data[3 * 8 + 2] = NAN; /* a query: its row alone */
    cb_tensor *y = cb_attention(q, k, k, none, 1.0);
    assert_int_equal((int)cb_item(cb_sum(cb_isnan(y))), 8);
    assert_true(isnan(cb_item(cb_select(cb_select(cb_flatten(y, 0, 2), 0, 3), 0, 5))));
    data[3 * 8 + 2] = 1;
    ((float *)cb_data(k))[45 * 8] = INFINITY; /* inf - inf */
    y = cb_attention(q, k, cb_ones(cb_dims(1, 1, 50, 8)), none, 1.0);
    assert_true(cb_item(cb_sum(cb_isnan(y))) > 8);
    cb_scope_close();
    assert_null(cb_error());
}

/* ---- the kernels of each level --------------------------------------------------------------- */

static void online_softmax(const AttentionType *type, bool is_double) {
    enum { KEYS = 23, BLOCKS = 3, WIDEST = 64 };
    _Alignas(64) static double space[KEYS * WIDEST], most[WIDEST], total[WIDEST], shrink[WIDEST];
    double all[BLOCKS * KEYS], weight;
    int lanes = type->lanes;
    for (int i = 0; i < lanes; i++) {
        if (is_double)
            most[i] = -INFINITY, total[i] = 0;
        else
            ((float *)most)[i] = -INFINITY, ((float *)total)[i] = 0;
    }
    for (int b = 0; b < BLOCKS; b++) {
        for (int k = 0; k < KEYS; k++)
            for (int q = 0; q < lanes; q++) {
                double score = (double)((k * 37 + q * 11 + b * 7) % 41 - 20) / 4 + b;
                if (q == 3) score = -INFINITY;
                if (q == 1) all[b * KEYS + k] = score;
                if (is_double)
                    space[k * lanes + q] = score;
                else
                    ((float *)space)[k * lanes + q] = (float)score;
            }
        assert_true(type->softmax(KEYS, space, most, total, shrink));
    }
    double sum = 0, high = -INFINITY, limit = is_double ? 1e-14 : 1e-6;
    for (int i = 0; i < BLOCKS * KEYS; i++) high = fmax(high, all[i]);
    for (int i = 0; i < BLOCKS * KEYS; i++) sum += exp2(all[i] - high);
    assert_true((is_double ? most[1] : ((float *)most)[1]) == high);
    assert_true(fabs((is_double ? total[1] : ((float *)total)[1]) / sum - 1) < limit);
    assert_true((is_double ? total[3] : ((float *)total)[3]) == 0); /* all is masked */
    weight = is_double ? space[4 * lanes + 1] : ((float *)space)[4 * lanes + 1];
    assert_true(fabs(weight / exp2(all[2 * KEYS + 4] - high) - 1) < limit);
    assert_false(type->softmax(0, space, most, total, shrink)); /* nothing is raised */
    type->invert(total);
    type->multiply(2, space, total);
    double scaled = is_double ? space[4 * lanes + 1] : ((float *)space)[4 * lanes + 1];
    assert_true(scaled == weight); /* row 4 is not among the first two */
    assert_true((is_double ? total[3] : ((float *)total)[3]) == 0);
}

static void every_level(void **state) {
    (void)state;
    const AttentionKernels *levels[] = {
        &attention_kernels_base,
#if defined(__x86_64__)
        &attention_kernels_v3,
        &attention_kernels_v4
#endif
    };
    for (int i = 0; i <= cpu_level(); i++) {
        online_softmax(&levels[i]->f32, false);
        online_softmax(&levels[i]->f64, true);
    }
}

/* ---- claimed --------------------------------------------------------------------------------- */

static bool causal, groups;
static cb_tensor *mask_now;

static cb_tensor *attend(cb_tensor *q, cb_tensor *k, cb_tensor *v) {
    return cb_scaled_dot_product_attention(q, k, v, mask_now, 0, causal, NULL, groups);
}

static cb_tensor *compiled(cb_function_3 *function, const char *skip, cb_tensor *const *x,
                           char **text) {
    cb_set_option("skip", skip);
    cb_function *f = cb_compile(function, "backend=vm");
    cb_tensor *y = cb_call(f, x[0], x[1], x[2]);
    if (!y) fail_msg("%s", cb_error());
    if (text) *text = cb_explain(f);
    cb_function_free(f);
    cb_set_option("skip", "");
    return y;
}

static void expect_near(cb_tensor *found, cb_tensor *expected, double limit) {
    assert_int_equal(cb_rank(found), cb_rank(expected));
    for (int i = 0; i < cb_rank(found); i++)
        assert_int_equal(cb_size(found, i), cb_size(expected, i));
    cb_tensor *off = cb_abs(cb_sub(cb_to(found, CB_F64), cb_to(expected, CB_F64)));
    if (!(cb_item(cb_max(off)) <= limit)) fail_msg("off by %g", cb_item(cb_max(off)));
}

static void claimed_like_single_ops(cb_tensor *const *x, double limit) {
    char *text;
    cb_tensor *single = compiled(attend, "claim", x, NULL);
    cb_tensor *claimed = compiled(attend, "", x, &text);
    if (!strstr(text, "  attention ")) fail_msg("%s", text);
    cb_free_text(text);
    expect_near(claimed, single, limit);
}

static void single_ops_agree(void **state) {
    (void)state;
    cb_manual_seed(4);
    const cb_dtype dtypes[] = {CB_F32, CB_BF16, CB_F16, CB_F64};
    for (int i = 0; i < 32; i++) {
        cb_scope_open();
        cb_dtype dtype = dtypes[i % 4];
        double limit = 8 * tolerance[dtype];
        causal = i & 4, groups = i & 8;
        int64_t heads = groups ? 2 : 6, rows = 64 + i * 3, columns = 20 + 11 * i;
        cb_tensor *x[] = {cb_to(cb_randn(cb_dims(2, 6, rows, 16)), dtype),
                          cb_to(cb_randn(cb_dims(2, heads, columns, 16)), dtype),
                          cb_to(cb_randn(cb_dims(2, heads, columns, 10)), dtype)};
        cb_tensor *noise = cb_randn(cb_dims(i & 1 ? 6 : 1, rows, columns));
        mask_now = i & 16 && !causal ? i & 2 ? cb_gt(noise, -1) : cb_to(noise, dtype) : NULL;
        claimed_like_single_ops(x, limit);
        cb_scope_close();
    }
    causal = groups = false;
    mask_now = NULL;
    assert_null(cb_error());
}

/* q, k and v are columns of one product; heads exchange with rows on both sides: nothing is
 * copied. */
static cb_tensor *heads_of(cb_tensor *x) {
    return cb_transpose(cb_view(x, cb_dims(2, 64, 4, 16)), 1, 2);
}

static cb_tensor *layer(cb_tensor *x, cb_tensor *w, cb_tensor *p) {
    cb_tensor *part[3];
    cb_split(cb_matmul(x, w), 64, 2, part, 3);
    cb_tensor *y = cb_scaled_dot_product_attention(heads_of(part[0]), heads_of(part[1]),
                                                   heads_of(part[2]), NULL, 0, true);
    return cb_matmul(cb_reshape(cb_transpose(y, 1, 2), cb_dims(2, 64, 64)), p);
}

static void nothing_is_copied(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x[] = {cb_randn(cb_dims(2, 64, 32)), cb_randn(cb_dims(32, 192)),
                      cb_randn(cb_dims(64, 8))};
    char *text;
    cb_tensor *y = compiled(layer, "", x, &text);
    if (!strstr(text, "  steps: 3,")) fail_msg("%s", text);
    assert_non_null(strstr(text, "    attention f32: 8 heads, 64 queries over 64 keys of 16, "
                                 "causal, keeps 524.3 KB of scores out of memory\n"));
    cb_free_text(text);
    expect_near(y, compiled(layer, "claim", x, NULL), 1e-3);
    cb_scope_close();
    assert_null(cb_error());
}

static cb_tensor *with_dropout(cb_tensor *q, cb_tensor *k, cb_tensor *v) {
    return cb_scaled_dot_product_attention(q, k, v, NULL, 0.5);
}

static cb_tensor *sharing(cb_tensor *q, cb_tensor *k, cb_tensor *v) {
    return cb_scaled_dot_product_attention(q, k, v, NULL, 0, false, NULL, true);
}

static void heads_are_shared(void **state) {
    (void)state;
    static const int heads[][3] = {{6, 3, 3}, {6, 1, 1}, {6, 3, 2}, {6, 1, 3}, {4, 4, 2}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        cb_scope_open();
        cb_tensor *x[] = {cb_randn(cb_dims(2, heads[i][0], 64, 8)),
                          cb_randn(cb_dims(2, heads[i][1], 50, 8)),
                          cb_randn(cb_dims(2, heads[i][2], 50, 8))};
        char *text;
        cb_tensor *y = compiled(sharing, "", x, &text);
        if (!strstr(text, "attention f32: ")) fail_msg("%s", text);
        cb_free_text(text);
        expect_near(y, compiled(sharing, "claim", x, NULL), 1e-5);
        cb_scope_close();
        assert_null(cb_error());
    }
}

/* Over the identity, the result is the weights: each is dropped, or as much larger as others are
 * missing. */
static void dropout_drops_weights(void **state) {
    (void)state;
    enum { ROWS = 60, COLUMNS = 70 };
    static float kept[2 * ROWS * COLUMNS], all[2 * ROWS * COLUMNS];
    cb_scope_open();
    cb_manual_seed(5);
    cb_tensor *q = cb_randn(cb_dims(2, ROWS, 8)), *k = cb_randn(cb_dims(2, COLUMNS, 8));
    cb_tensor *one =
        cb_to(cb_eq(cb_reshape(cb_arange(0, COLUMNS), cb_dims(COLUMNS, 1)), cb_arange(0, COLUMNS)),
              CB_F32);
    one = cb_expand(one, cb_dims(2, COLUMNS, COLUMNS));
    cb_read(cb_scaled_dot_product_attention(q, k, one), all, CB_F32);
    for (double p = 0; p <= 1; p += 0.25) {
        int dropped = 0, count = 2 * ROWS * COLUMNS;
        cb_read(cb_scaled_dot_product_attention(q, k, one, NULL, p), kept, CB_F32);
        for (int i = 0; i < count; i++) {
            double expected = all[i] / (1 - p);
            dropped += kept[i] == 0;
            assert_true(kept[i] == 0 || fabs(kept[i] - expected) <= 1e-5 * expected);
        }
        assert_true(fabs(dropped - p * count) <= 4 * sqrt(p * (1 - p) * count));
    }
    cb_scope_close();
    assert_null(cb_error());
}

static void declined_with_a_reason(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x[] = {cb_randn(cb_dims(2, 1, 8)), cb_randn(cb_dims(2, 90, 8)),
                      cb_randn(cb_dims(2, 90, 8))};
    char *text;
    cb_tensor *y = compiled(attend, "", x, &text); /* decoding: one query */
    assert_non_null(strstr(text, "    scaled_dot_product_attention: attention of few queries"));
    cb_free_text(text);
    expect_near(y, cb_attention(x[0], x[1], x[2], cb_full(CB_NO_DIMS, 1, CB_BOOL), 1 / sqrt(8)),
                1e-6);
    x[0] = cb_randn(cb_dims(2, 64, 8));
    compiled(with_dropout, "", x, &text);
    assert_non_null(strstr(text, "scaled_dot_product_attention: attention with dropout"));
    cb_free_text(text);
    x[1] = x[2] = cb_randn(cb_dims(2, 0, 8)); /* no keys: nothing to see */
    assert_true(cb_item(cb_max(cb_abs(compiled(attend, "", x, NULL)))) == 0);
    cb_scope_close();
    assert_null(cb_error());
}

static cb_tensor *attend_plainly(cb_tensor *q, cb_tensor *k, cb_tensor *v) {
    return cb_scaled_dot_product_attention(q, k, v);
}

/* Queries and keys of no elements: every score is 0, whatever the scale (1 / sqrt(0)), and the
 * result the mean of the values. */
static void without_depth(void **state) {
    (void)state;
    static const cb_dtype dtype[] = {CB_F32, CB_BF16, CB_F16, CB_F64};
    cb_scope_open();
    for (int i = 0; i < 4; i++) {
        cb_tensor *q = cb_zeros(cb_dims(2, 100, 0), dtype[i]);
        cb_tensor *k = cb_zeros(cb_dims(2, 7, 0), dtype[i]);
        cb_tensor *v = cb_to(cb_randn(cb_dims(2, 7, 8)), dtype[i]);
        cb_function *fast = cb_compile(attend_plainly, "backend=vm");
        cb_tensor *y = cb_to(cb_call(fast, q, k, v), CB_F64);
        cb_tensor *mean = cb_mean(cb_to(v, CB_F64), 1, true);
        assert_true(cb_item(cb_max(cb_abs(cb_sub(y, mean)))) < 5e-3);
        cb_function_free(fast);
    }
    cb_scope_close();
}

static void errors(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *q = cb_ones(cb_dims(2, 3, 4)), *none = cb_full(CB_NO_DIMS, 1, CB_BOOL);
    assert_null(cb_attention(q, cb_ones(cb_dims(2, 3, 5)), q, none, 1.0));
    assert_non_null(strstr(cb_error(), "the last sizes of query and key differ"));
    cb_clear_error();
    assert_null(cb_attention(q, q, q, cb_full(cb_dims(2), 1, CB_BOOL), 1.0));
    assert_non_null(strstr(cb_error(), "the mask does not broadcast to 3 x 3"));
    cb_clear_error();
    assert_null(cb_attention(q, q, q, none, 1.0, false, 2));
    assert_non_null(strstr(cb_error(), "cannot stand behind"));
    cb_clear_error();
    cb_scope_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_in_double_agree),
        cmocka_unit_test(threads_do_not_count),
        cmocka_unit_test(what_is_not_a_number_stays),
        cmocka_unit_test(single_ops_agree),
        cmocka_unit_test(nothing_is_copied),
        cmocka_unit_test(declined_with_a_reason),
        cmocka_unit_test(heads_are_shared),
        cmocka_unit_test(dropout_drops_weights),
        cmocka_unit_test(every_level),
        cmocka_unit_test(without_depth),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
