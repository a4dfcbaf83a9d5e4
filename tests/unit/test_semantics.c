/* Dtypes, values and refusals where PyTorch's are not the obvious ones, eager and compiled. What is
 * expected here was computed by PyTorch 2.11. */
#include "test_support.h"

#include "carbide.h"
#include "carbide_fx.h"

#include <math.h>
#include <string.h>

enum { MOST = 64 };

typedef cb_tensor *Body(cb_tensor *const *in);

static int compiled(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)count;
    outputs[0] = (*(Body **)user)(inputs);
    return 1;
}

/* Each dtype has [1, 2, 0] and [3, 1, 2], in that order. */
static cb_tensor *sample[CB_DTYPE_COUNT], *other[CB_DTYPE_COUNT];

static int make_samples(void **state) {
    static const int64_t first[] = {1, 2, 0}, second[] = {3, 1, 2};
    (void)state;
    cb_scope_open();
    for (cb_dtype d = 0; d < CB_DTYPE_COUNT; d++) {
        sample[d] = cb_to(cb_from_data(first, CB_I64, cb_dims(3)), d);
        other[d] = cb_to(cb_from_data(second, CB_I64, cb_dims(3)), d);
    }
    return 0;
}

static int free_samples(void **state) {
    (void)state;
    cb_scope_close();
    return cb_error() != NULL;
}

static void expect_values(cb_tensor *y, cb_dtype dtype, cb_dim_list sizes, const double *value) {
    double found[MOST];
    if (!y) fail_msg("%s", cb_error());
    assert_string_equal(cb_dtype_name(cb_dtype_of(y)), cb_dtype_name(dtype));
    assert_int_equal(cb_rank(y), sizes.count);
    for (int i = 0; i < sizes.count; i++) assert_int_equal(cb_size(y, i), sizes.at[i]);
    assert_int_equal(cb_read(y, found, CB_F64), CB_OK);
    for (int64_t i = 0; i < cb_numel(y); i++) {
        bool same = found[i] == value[i] || (isnan(found[i]) && isnan(value[i])) ||
                    fabs(found[i] - value[i]) <= 2e-6 * fabs(value[i]);
        if (!same) fail_msg("element %lld is %.9g, not %.9g", (long long)i, found[i], value[i]);
    }
}

/* inputs: at most two. */
static void expect(Body *body, cb_tensor *x, cb_tensor *y, cb_dtype dtype, cb_dim_list sizes,
                   const double *value) {
    cb_tensor *const inputs[] = {x, y};
    int count = y ? 2 : 1;
    cb_scope_open();
    expect_values(body(inputs), dtype, sizes, value);
    cb_function *f = cb_compile_n(compiled, (void *)&body, "backend=vm,fullgraph=1");
    cb_tensor *out[1] = {NULL};
    assert_int_equal(cb_call_n(f, inputs, count, out, 1), 1);
    expect_values(out[0], dtype, sizes, value);
    cb_function_free(f);
    cb_scope_close();
    assert_null(cb_error());
}

static void expect_refused(Body *body, cb_tensor *x, cb_tensor *y, const char *message) {
    cb_tensor *const inputs[] = {x, y};
    cb_scope_open();
    assert_null(body(inputs));
    if (!cb_error() || !strstr(cb_error(), message))
        fail_msg("'%s' lacks '%s'", cb_error() ? cb_error() : "", message);
    cb_clear_error();
    cb_function *f = cb_compile_n(compiled, (void *)&body, "backend=vm");
    cb_tensor *out[1] = {NULL};
    assert_true(cb_call_n(f, inputs, y ? 2 : 1, out, 1) < 0 || !out[0]);
    assert_non_null(cb_error());
    cb_function_free(f);
    cb_clear_error();
    cb_scope_close();
}

#define VALUES(...) ((const double[]){__VA_ARGS__})
#define SCALAR CB_NO_DIMS

/* ---- integers ------------------------------------------------------------------------------- */

static cb_tensor *logsumexp(cb_tensor *const *in) { return cb_logsumexp(in[0], 0); }

static void logsumexp_of_integers_is_computed_in_f32(void **state) {
    (void)state;
    expect(logsumexp, sample[CB_U8], NULL, CB_F32, SCALAR, VALUES(2.40760589));
    expect(logsumexp, sample[CB_I64], NULL, CB_F32, SCALAR, VALUES(2.40760589));
    expect(logsumexp, sample[CB_BOOL], NULL, CB_F32, SCALAR, VALUES(1.86199474));
}

static cb_tensor *square(cb_tensor *const *in) { return cb_square(in[0]); }

static void the_square_of_bool_is_an_integer(void **state) {
    (void)state;
    expect(square, sample[CB_BOOL], NULL, CB_I64, cb_dims(3), VALUES(1, 1, 0));
    expect(square, sample[CB_U8], NULL, CB_U8, cb_dims(3), VALUES(1, 4, 0));
}

static cb_tensor *any(cb_tensor *const *in) { return cb_any(in[0]); }
static cb_tensor *all(cb_tensor *const *in) { return cb_all(in[0], 0, true); }

static void any_and_all_of_u8_are_u8(void **state) {
    (void)state;
    expect(any, sample[CB_U8], NULL, CB_U8, SCALAR, VALUES(1));
    expect(all, sample[CB_U8], NULL, CB_U8, cb_dims(1), VALUES(0));
    expect(any, sample[CB_I8], NULL, CB_BOOL, SCALAR, VALUES(1));
    expect(all, sample[CB_F32], NULL, CB_BOOL, cb_dims(1), VALUES(0));
}

static cb_tensor *mean(cb_tensor *const *in) { return cb_mean(in[0]); }
static cb_tensor *std(cb_tensor *const *in) { return cb_std(in[0]); }
static cb_tensor *norm(cb_tensor *const *in) { return cb_norm(in[0]); }
static cb_tensor *softmax(cb_tensor *const *in) { return cb_softmax(in[0], 0); }
static cb_tensor *elu(cb_tensor *const *in) { return cb_elu(in[0]); }
static cb_tensor *argmax(cb_tensor *const *in) { return cb_argmax(in[0]); }
static cb_tensor *relu6(cb_tensor *const *in) { return cb_relu6(in[0]); }
static cb_tensor *mse(cb_tensor *const *in) { return cb_mse_loss(in[0], in[1]); }

static void what_needs_floating_point_refuses_integers(void **state) {
    Body *const body[] = {mean, std, norm, softmax, elu};
    (void)state;
    for (size_t i = 0; i < sizeof body / sizeof *body; i++) {
        expect_refused(body[i], sample[CB_I64], NULL, "i64 is not a floating point dtype: i64[3]");
        expect_refused(body[i], sample[CB_BOOL], NULL, "bool is not a floating point dtype");
    }
    expect_refused(argmax, sample[CB_BOOL], NULL, "argmax: bool is not a number dtype");
    expect_refused(relu6, sample[CB_BOOL], NULL, "relu6: bool is not a number dtype");
    expect_refused(mse, sample[CB_I32], other[CB_U8], "i32 is not a floating point dtype");
    expect(mse, sample[CB_I32], other[CB_F32], CB_F32, SCALAR, VALUES(3));
}

/* ---- numbers -------------------------------------------------------------------------------- */

#define BODY(name, call)                                                                           \
    static cb_tensor *name(cb_tensor *const *in) { return (void)in, call; }

BODY(full_largest, cb_full(cb_dims(1), INT64_MAX))
BODY(full_odd, cb_full(cb_dims(1), (1ll << 53) + 1, CB_I64))
BODY(full_float, cb_full(cb_dims(1), 1.5))
BODY(full_bool, cb_full(cb_dims(1), cb_operand_bool(true)))
BODY(full_of_float, cb_full(cb_dims(1), 2.7, CB_I32))
BODY(full_wrapped, cb_full(cb_dims(1), -255, CB_U8))
BODY(full_like_odd, cb_full_like(cb_to(in[0], CB_I64), (1ll << 53) + 1))
BODY(full_too_large, cb_full(cb_dims(1), 300, CB_U8))
BODY(full_nan, cb_full(cb_dims(1), (double)NAN, CB_I32))
BODY(full_f16, cb_full(cb_dims(1), 65505.0, CB_F16))
BODY(full_nothing, cb_full(cb_dims(1), NULL))
BODY(full_tensor, cb_full(cb_dims(1), in[0]))

/* Values that no double holds are compared as differences to near ones. */
BODY(largest_distance, cb_sub(full_largest(in), INT64_MAX - 7))
BODY(odd_distance, cb_sub(full_odd(in), 1ll << 53))
BODY(like_distance, cb_sub(full_like_odd(in), 1ll << 53))
BODY(clamp_distance, cb_sub(cb_clamp(full_largest(in), 0, (1ll << 53) + 1), 1ll << 53))
BODY(pad_distance, cb_sub(cb_pad(cb_to(in[0], CB_I64), cb_dims(0, 1), (1ll << 53) + 1), 1ll << 53))
BODY(fill_distance, cb_sub(cb_fill_(cb_to(in[0], CB_I64), (1ll << 53) + 1), 1ll << 53))

static void numbers_are_kept_exactly(void **state) {
    double big = -0x1p53;
    (void)state;
    expect(largest_distance, sample[CB_F32], NULL, CB_I64, cb_dims(1), VALUES(7));
    expect(odd_distance, sample[CB_F32], NULL, CB_I64, cb_dims(1), VALUES(1));
    expect(like_distance, sample[CB_F32], NULL, CB_I64, cb_dims(3), VALUES(1, 1, 1));
    expect(clamp_distance, sample[CB_F32], NULL, CB_I64, cb_dims(1), VALUES(1));
    expect(pad_distance, sample[CB_F32], NULL, CB_I64, cb_dims(4),
           VALUES(big + 1, big + 2, big, 1));
    expect(fill_distance, sample[CB_F32], NULL, CB_I64, cb_dims(3), VALUES(1, 1, 1));
}

static void full_takes_its_dtype_from_the_number(void **state) {
    (void)state;
    expect(full_float, sample[CB_F32], NULL, CB_F32, cb_dims(1), VALUES(1.5));
    expect(full_bool, sample[CB_F32], NULL, CB_BOOL, cb_dims(1), VALUES(1));
    expect(full_of_float, sample[CB_F32], NULL, CB_I32, cb_dims(1), VALUES(2));
    expect(full_wrapped, sample[CB_F32], NULL, CB_U8, cb_dims(1), VALUES(1));
    expect_refused(full_too_large, sample[CB_F32], NULL, "full: the number 300 is no u8");
    expect_refused(full_nan, sample[CB_F32], NULL, "full: the number nan is no i32");
    expect_refused(full_f16, sample[CB_F32], NULL, "full: the number 65505 is no f16");
    expect_refused(full_nothing, sample[CB_F32], NULL, "full: value must be a number");
    expect_refused(full_tensor, sample[CB_F32], NULL,
                   "full: value is a number, and no tensor, in full(");
}

BODY(fill_with_half, cb_masked_fill(in[0], cb_eq(in[0], 1), 3.5))
BODY(fill_with_300, cb_masked_fill(in[0], cb_eq(in[0], 1), 300))
BODY(clamp_ints, cb_clamp(in[0], 0, 1))
BODY(clamp_floats, cb_clamp(in[0], 0.0, 6.0))
BODY(clamp_above, cb_clamp(in[0], NULL, 1))
BODY(clamp_at_nan, cb_clamp(in[0], NAN))
BODY(clamp_above_nan, cb_clamp(in[0], NULL, NAN))
BODY(clamp_below_nan, cb_clamp(in[0], 1, NAN))
BODY(clamp_from_nan, cb_clamp(in[0], NAN, 1.0))
BODY(clamp_nothing, cb_clamp(in[0]))
BODY(clamp_at_300, cb_clamp(in[0], 300, -2))
BODY(clamp_to_300, cb_clamp(in[0], 1, 300))
BODY(clamp_at_1e39, cb_clamp(in[0], 1e39, 2e39))
BODY(larger_than_300, cb_maximum(in[0], 300))
BODY(larger_of_300, cb_maximum(300, in[0]))
BODY(smaller_than_300, cb_minimum(in[0], 300))
BODY(smaller_than_1e39, cb_minimum(in[0], 1e39))
BODY(smaller_than_70000, cb_minimum(in[0], 70000))
BODY(power_of_300, cb_pow(300, in[0]))
BODY(hardtanh, cb_hardtanh(in[0], 0.5, 1.5))
BODY(hardtanh_below, cb_hardtanh(in[0], -0.5, 1))
BODY(hardtanh_negative, cb_hardtanh(in[0], -1, 1))
BODY(hardtanh_wrong, cb_hardtanh(in[0], 1.0, 0.5))
BODY(hardtanh_equal, cb_hardtanh(in[0], 0.5, 0.25))                   /* both are 0 of integers */
BODY(hardtanh_double, cb_hardtanh(in[0], (1ll << 53) + 1, 1ll << 53)) /* one double */
BODY(clamp_1e5, cb_clamp(in[0], -1e5, 1e5))
BODY(threshold, cb_threshold(in[0], 0.5, 5.5))
BODY(threshold_1e5, cb_threshold(cb_mul(in[0], 0.3), 1e5, 1))
BODY(threshold_of_0_3, cb_threshold(cb_full(cb_dims(1), 0.3, cb_dtype_of(in[0])), 0.3, 9))
BODY(threshold_to_1e5, cb_threshold(in[0], 0, 1e5))
BODY(addcmul_1e5, cb_addcmul(in[0], cb_mul(in[0], 0x1p-10), in[0], 0x1p17)) /* no f16 */
BODY(addcmul_1e39, cb_addcmul(in[0], in[0], in[0], 1e39))
BODY(addcmul, cb_addcmul(in[0], in[0], in[0], 2.5))
BODY(softshrink_wrong, cb_softshrink(in[0], -0.5))
BODY(celu_wrong, cb_celu(in[0], 0))
BODY(celu_below_0, cb_celu(in[0], -2))

static void attributes_promote_as_in_pytorch(void **state) {
    (void)state;
    expect(fill_with_half, sample[CB_I64], NULL, CB_I64, cb_dims(3), VALUES(3, 2, 0));
    expect(fill_with_half, sample[CB_BOOL], NULL, CB_BOOL, cb_dims(3), VALUES(1, 1, 0));
    expect(fill_with_half, sample[CB_F16], NULL, CB_F16, cb_dims(3), VALUES(3.5, 2, 0));
    expect_refused(fill_with_300, sample[CB_U8], NULL, "masked_fill: the number 300 is no u8");
    expect(clamp_ints, sample[CB_I32], NULL, CB_I32, cb_dims(3), VALUES(1, 1, 0));
    expect(clamp_ints, sample[CB_BOOL], NULL, CB_I64, cb_dims(3), VALUES(1, 1, 0));
    expect(clamp_floats, sample[CB_I64], NULL, CB_F32, cb_dims(3), VALUES(1, 2, 0));
    expect(clamp_above, sample[CB_U8], NULL, CB_U8, cb_dims(3), VALUES(1, 1, 0));
    expect(clamp_at_nan, sample[CB_F16], NULL, CB_F16, cb_dims(3), VALUES(1, 2, 0));
    expect(clamp_at_nan, sample[CB_I64], NULL, CB_F32, cb_dims(3), VALUES(1, 2, 0));
    expect(clamp_above_nan, sample[CB_F32], NULL, CB_F32, cb_dims(3), VALUES(1, 2, 0));
    expect(clamp_below_nan, sample[CB_F32], NULL, CB_F32, cb_dims(3), VALUES(NAN, NAN, NAN));
    expect(clamp_from_nan, sample[CB_U8], NULL, CB_F32, cb_dims(3), VALUES(NAN, NAN, NAN));
    expect_refused(clamp_nothing, sample[CB_F32], NULL, "clamp: needs low, high or both");
    expect(hardtanh, sample[CB_I64], NULL, CB_I64, cb_dims(3), VALUES(1, 1, 0));
    expect(hardtanh, sample[CB_F16], NULL, CB_F16, cb_dims(3), VALUES(1, 1.5, 0.5));
    expect(hardtanh_below, sample[CB_U8], NULL, CB_U8, cb_dims(3), VALUES(1, 1, 0));
    expect_refused(hardtanh_negative, sample[CB_U8], NULL, "hardtanh: a limit of -1 for u8");
    expect_refused(hardtanh_wrong, sample[CB_F32], NULL, "hardtanh: low is above high");
    expect_refused(hardtanh_equal, sample[CB_U8], NULL, "hardtanh: low is above high");
    expect_refused(hardtanh_double, sample[CB_I64], NULL, "hardtanh: low is above high");
    expect_refused(threshold_to_1e5, sample[CB_F16], NULL,
                   "threshold: the number 100000 is no f16");
    expect(threshold_1e5, sample[CB_F16], NULL, CB_F16, cb_dims(3), VALUES(1, 1, 1));
    expect(threshold_of_0_3, sample[CB_F16], NULL, CB_F16, cb_dims(1), VALUES(0.300048828125));
    expect(threshold, sample[CB_I64], NULL, CB_I64, cb_dims(3), VALUES(1, 2, 5));
    expect(addcmul, sample[CB_I64], NULL, CB_I64, cb_dims(3), VALUES(3, 10, 0));
    expect(addcmul, sample[CB_F32], NULL, CB_F32, cb_dims(3), VALUES(3.5, 12, 0));
    expect(addcmul_1e5, sample[CB_F16], NULL, CB_F16, cb_dims(3), VALUES(129, 514, 0));
    expect_refused(addcmul_1e39, sample[CB_BF16], NULL, "addcmul: the number 1e+39 is no f32");
    expect_refused(softshrink_wrong, sample[CB_F32], NULL, "softshrink: needs lambd >= 0");
    expect_refused(celu_wrong, sample[CB_F32], NULL, "celu: needs alpha != 0");
    expect(celu_below_0, sample[CB_F32], NULL, CB_F32, cb_dims(3), VALUES(1, 2, 0));
}

static void numbers_that_overflow_are_refused(void **state) {
    (void)state;
    expect_refused(clamp_at_300, sample[CB_I8], NULL, "clamp: the number 300 is no i8");
    expect_refused(clamp_to_300, sample[CB_U8], NULL, "clamp: the number 300 is no u8");
    expect_refused(clamp_at_1e39, sample[CB_F32], NULL, "clamp: the number 1e+39 is no f32");
    expect_refused(clamp_1e5, sample[CB_F16], NULL, "clamp: the number -100000 is no f16");
    expect_refused(larger_than_300, sample[CB_I8], NULL, "maximum: the number 300 is no i8");
    expect_refused(larger_of_300, sample[CB_I8], NULL, "maximum: the number 300 is no i8");
    expect_refused(smaller_than_300, sample[CB_U8], NULL, "minimum: the number 300 is no u8");
    expect_refused(smaller_than_1e39, sample[CB_F32], NULL, "minimum: the number 1e+39 is no f32");
    expect_refused(smaller_than_70000, sample[CB_F16], NULL, "minimum: the number 70000 is no f16");
    expect(smaller_than_300, sample[CB_I16], NULL, CB_I16, cb_dims(3), VALUES(1, 2, 0));
    expect(power_of_300, sample[CB_I8], NULL, CB_I8, cb_dims(3), VALUES(44, -112, 1));
}

BODY(line, cb_linspace(0, 3, 7, cb_dtype_of(in[0])))
BODY(line_down, cb_linspace(0.5, -3.5, 5, cb_dtype_of(in[0])))
BODY(line_of_one, cb_linspace(300, 5, 1, CB_U8))
BODY(line_whole, cb_linspace(0, 58, 15, CB_I8)) /* 7 * (58 / 14.0) is below 29 */
BODY(line_middle, cb_sub(cb_linspace(0, 1ll << 62, 3, CB_I64), 1ll << 61))

static void linspace_of_integers_truncates(void **state) {
    (void)state;
    expect(line, sample[CB_I64], NULL, CB_I64, cb_dims(7), VALUES(0, 0, 1, 1, 2, 2, 3));
    expect(line, sample[CB_U8], NULL, CB_U8, cb_dims(7), VALUES(0, 0, 1, 1, 2, 2, 3));
    expect(line_down, sample[CB_I32], NULL, CB_I32, cb_dims(5), VALUES(0, 0, -1, -2, -3));
    expect(line_whole, sample[CB_I64], NULL, CB_I8, cb_dims(15),
           VALUES(0, 4, 8, 12, 16, 20, 24, 29, 33, 37, 41, 45, 49, 53, 58));
    expect(line_middle, sample[CB_I64], NULL, CB_I64, cb_dims(3), VALUES(-0x1p61, 0, 0x1p61));
    expect_refused(line_down, sample[CB_U8], NULL, "linspace: the number -3.5 is no u8");
    expect_refused(line_of_one, sample[CB_U8], NULL, "the number 300 is no u8");
    expect_refused(line, sample[CB_BOOL], NULL, "linspace: 7 steps of bool");
}

BODY(rms, cb_rms_norm(cb_mul(in[0], 1e-3), cb_dims(3)))
BODY(attend,
     cb_scaled_dot_product_attention(cb_reshape(in[0], cb_dims(1, 3, 1)),
                                     cb_reshape(in[0], cb_dims(1, 3, 1)),
                                     cb_reshape(in[1], cb_dims(1, 3, 1)), NULL, 0.0, false, 0))

static void random_integers_fit_the_dtype(void **state) {
    (void)state;
    static const struct {
        int64_t low, high;
        cb_dtype dtype;
        bool fits;
    } cases[] = {
        {-1, 5, CB_U8, false},      {0, 257, CB_U8, false},   {0, 256, CB_U8, true},
        {0, 129, CB_I8, false},     {-128, 128, CB_I8, true}, {0, 1LL << 40, CB_I32, false},
        {0, 100000, CB_F16, false}, {-9, 9, CB_F16, true},    {0, 1LL << 40, CB_F32, true}};
    cb_scope_open();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cb_tensor *x = cb_randint(cases[i].low, cases[i].high, cb_dims(3), cases[i].dtype);
        assert_int_equal(x != NULL, cases[i].fits);
        assert_int_equal(cb_error() && strstr(cb_error(), "does not hold every number"),
                         !cases[i].fits);
        cb_clear_error();
    }
    cb_tensor *scores = cb_ones(cb_dims(2, 3)), *classes = cb_zeros(cb_dims(2), CB_I64);
    assert_null(cb_cross_entropy(scores, classes, NULL, -100, CB_REDUCE_MEAN, 1.5));
    assert_non_null(strstr(cb_error(), "label_smoothing 1.5 is not in 0..1"));
    cb_clear_error();
    cb_scope_close();
}

static void numbers_left_out_are_not_zero(void **state) {
    (void)state;
    expect(rms, sample[CB_F32], NULL, CB_F32, cb_dims(3), VALUES(0.748297572, 1.49659514, 0));
    expect(rms, sample[CB_F64], NULL, CB_F64, cb_dims(3), VALUES(0.774596669, 1.549193338, 0));
    expect(attend, sample[CB_F32], other[CB_F32], CB_F32, cb_dims(1, 3, 1), VALUES(2, 2, 2));
}

/* ---- shapes --------------------------------------------------------------------------------- */

static cb_tensor *cosine(cb_tensor *const *in) {
    cb_tensor *row = cb_reshape(in[0], cb_dims(1, 3)), *column = cb_reshape(in[1], cb_dims(3, 1));
    return cb_cosine_similarity(row, column, 1);
}

static void cosine_similarity_broadcasts_before_it_takes_norms(void **state) {
    (void)state;
    double same = 3 / sqrt(15);
    expect(cosine, sample[CB_F32], other[CB_F32], CB_F32, cb_dims(3), VALUES(same, same, same));
}

static cb_tensor *circular(cb_tensor *const *in) {
    return cb_circular_pad(cb_reshape(in[0], cb_dims(1, 3)), cb_dims(-1, 2));
}
static cb_tensor *circular_too_far(cb_tensor *const *in) {
    return cb_circular_pad(cb_reshape(in[0], cb_dims(1, 3)), cb_dims(-1, 3));
}

static void a_cropped_circle_goes_on_with_what_is_left(void **state) {
    (void)state;
    expect(circular, sample[CB_F32], NULL, CB_F32, cb_dims(1, 4), VALUES(2, 0, 2, 0));
    expect_refused(circular_too_far, sample[CB_F32], NULL, "padding of -1 and 3 for dim 1");
}

/* Of 0 to 4, PyTorch's. What is mirrored or repeated is read before anything is cropped. */
static void cropped_pads_are_those_of_pytorch(void **state) {
    (void)state;
    static const struct {
        enum { REFLECT, REPLICATE, CIRCULAR } op;
        int64_t left, right;
        const char *expected;
    } row[] = {{REFLECT, -1, 2, "1 2 3 4 3 2 "},  {REFLECT, 4, -3, "4 3 2 1 0 1 "},
               {REFLECT, -6, 4, "2 1 0 "},        {REPLICATE, 2, -1, "0 0 0 1 2 3 "},
               {REPLICATE, -6, 6, "4 4 4 4 4 "},  {REPLICATE, 6, -6, "0 0 0 0 0 "},
               {CIRCULAR, 2, -1, "2 3 0 1 2 3 "}, {CIRCULAR, -3, -2, ""}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char text[64] = "";
        cb_dim_list sides = cb_dims(row[i].left, row[i].right);
        cb_tensor *x = cb_reshape(cb_arange(0, 5, 1, CB_F32), cb_dims(1, 5));
        cb_tensor *y = row[i].op == REFLECT     ? cb_reflection_pad(x, sides)
                       : row[i].op == REPLICATE ? cb_replication_pad(x, sides)
                                                : cb_circular_pad(x, sides);
        if (!y) fail_msg("row %zu: %s", i, cb_error());
        float element[16];
        assert_in_range(cb_numel(y), 0, 16);
        assert_int_equal(cb_read(y, element, CB_F32), CB_OK);
        for (int64_t k = 0; k < cb_numel(y); k++)
            snprintf(text + 2 * k, sizeof text - 2 * (size_t)k, "%d ", (int)element[k]);
        if (strcmp(text, row[i].expected)) fail_msg("row %zu: %s", i, text);
    }
}

/* ---- rank 0 --------------------------------------------------------------------------------- */

static cb_tensor *at(cb_tensor *x, int64_t i) { return cb_select(x, 0, i); }
static cb_tensor *zero(void) { return cb_full(CB_NO_DIMS, 0); }

BODY(scan_0, cb_cumsum(at(in[0], 1), -1))
BODY(sort_0, cb_sort(at(in[0], 1), 0, true, NULL))
BODY(topk_0, cb_topk(at(in[0], 1), 1, -1, true, NULL))
BODY(argsort_0, cb_argsort(at(in[0], 1), 0))
BODY(gather_0, cb_gather(at(in[0], 1), 0, zero()))
BODY(gather_1, cb_gather(at(in[0], 1), -1, cb_reshape(zero(), cb_dims(1))))
BODY(gather_of_1, cb_gather(in[0], 0, cb_add(zero(), 1)))
BODY(select_0, cb_index_select(at(in[0], 1), 0, zero()))
BODY(scatter_0, cb_scatter(at(in[0], 1), 0, zero(), at(in[0], 0)))
BODY(scatter_to_1, cb_scatter(in[0], 0, zero(), at(in[0], 1)))
BODY(added_0, cb_scatter_add(at(in[0], 1), 0, zero(), at(in[0], 0)))
BODY(window_0, cb_window(at(in[0], 1), -1, 1))
BODY(mean_0, cb_mean(at(in[0], 1), 0))
BODY(mean_last, cb_mean(at(in[0], 1), -1))
BODY(softmax_0, cb_softmax(at(in[0], 1), -1))
BODY(flip_0, cb_flip(at(in[0], 1), 0))
BODY(scan_beyond, cb_cumsum(at(in[0], 1), 1))
BODY(mean_twice, cb_mean(at(in[0], 1), cb_dims(0, -1)))
BODY(topk_2, cb_topk(at(in[0], 1), 2, 0, true, NULL))

static void rank_0_takes_dims_as_rank_1(void **state) {
    static const struct {
        Body *body;
        double value;
    } cases[] = {{scan_0, 2},      {sort_0, 2},    {topk_0, 2},    {gather_0, 2},
                 {gather_of_1, 2}, {mean_last, 2}, {scatter_0, 1}, {added_0, 3},
                 {mean_0, 2},      {softmax_0, 1}, {flip_0, 2},    {select_0, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(cases[i].body, sample[CB_F32], NULL, CB_F32, SCALAR, &cases[i].value);
    expect(argsort_0, sample[CB_F32], NULL, CB_I64, SCALAR, VALUES(0));
    expect(gather_1, sample[CB_F32], NULL, CB_F32, cb_dims(1), VALUES(2));
    expect(window_0, sample[CB_F32], NULL, CB_F32, cb_dims(1), VALUES(2));
    expect(scatter_to_1, sample[CB_F32], NULL, CB_F32, cb_dims(3), VALUES(2, 2, 0));
    expect_refused(scan_beyond, sample[CB_F32], NULL, "cumsum: dim 1 is outside of -1..0");
    expect_refused(mean_twice, sample[CB_F32], NULL, "dim 0 is given twice");
    expect_refused(topk_2, sample[CB_F32], NULL, "k 2 is outside of dim 0 of size 1");
}

/* ---- found beside PyTorch by random calls (tests/oracle/every_op.py) ------------------------- */

BODY(add_mixed, cb_addcmul(in[0], at(in[1], 0), cb_to(in[0], CB_I32)))
BODY(divide_integers, cb_addcdiv(cb_to(in[0], CB_F32), in[0], in[1]))
BODY(subtract_true, cb_sub(in[0], cb_operand_bool(true)))
BODY(subtract_mask, cb_sub(in[0], cb_gt(in[0], 1)))
BODY(all_of_none, cb_all(in[0], CB_NO_DIMS))
BODY(where_bytes, cb_where(cb_to(in[0], CB_U8), in[1], 7))
BODY(divide_by_0, cb_floor_divide(in[0], 0))
BODY(remainder_by_0, cb_remainder(in[0], 0))
BODY(inverse, cb_pow(in[0], -1))
BODY(root, cb_pow(cb_mul(in[0], -INFINITY), 0.5)) /* a square root, which pow is not */
BODY(inverse_root, cb_pow(cb_mul(in[0], -INFINITY), -0.5))
BODY(power_of_half, cb_pow(cb_mul(in[0], -INFINITY), cb_full_like(in[0], 0.5)))
BODY(inverse_square, cb_pow(in[0], -2))
BODY(odd_power, cb_pow(cb_neg(in[0]), 16777217)) /* no f32 */
BODY(odd_inverse, cb_pow(cb_neg(in[0]), -2147483647.0))
BODY(rounded_power, cb_pow(cb_neg(in[0]), 2049)) /* no f16 */
BODY(where_300, cb_where(cb_gt(in[0], 1), in[0], 300))
BODY(clamp_300, cb_clamp(in[0], 0, 300))
BODY(clamp_mixed, cb_clamp(in[0], -1, 1.5))
BODY(crop_too_much, cb_pad(in[0], cb_dims(5, -4)))

static void random_calls_found(void **state) {
    (void)state;
    expect(add_mixed, sample[CB_F32], other[CB_F64], CB_F32, cb_dims(3), VALUES(4, 8, 0));
    expect_refused(divide_integers, sample[CB_I64], other[CB_I64], "integers are not divided");
    expect_refused(subtract_true, sample[CB_F32], NULL, "sub: bool is not a number dtype");
    expect_refused(subtract_mask, sample[CB_F32], NULL, "sub: bool is not a number dtype");
    expect(all_of_none, sample[CB_F32], NULL, CB_BOOL, cb_dims(3), VALUES(1, 1, 0));
    expect(all_of_none, sample[CB_U8], NULL, CB_U8, cb_dims(3), VALUES(1, 1, 0));
    expect(where_bytes, sample[CB_U8], other[CB_I64], CB_I64, cb_dims(3), VALUES(3, 1, 7));
    expect_refused(divide_by_0, sample[CB_I64], NULL, "integers are not divided by 0: i64[3]");
    expect_refused(remainder_by_0, sample[CB_U8], NULL, "remainder: integers are not divided by 0");
    expect(divide_by_0, sample[CB_F32], NULL, CB_F32, cb_dims(3),
           VALUES(INFINITY, INFINITY, (double)NAN));
    expect_refused(inverse, sample[CB_I64], NULL, "pow: integers have no power of -1: i64[3]");
    expect(inverse, sample[CB_F32], NULL, CB_F32, cb_dims(3), VALUES(1, 0.5, INFINITY));
    expect(inverse_square, sample[CB_F32], NULL, CB_F32, cb_dims(3), VALUES(1, 0.25, INFINITY));
    expect_refused(where_300, sample[CB_U8], NULL, "where: the number 300 is no u8");
    expect(clamp_mixed, sample[CB_U8], NULL, CB_F32, cb_dims(3), VALUES(1, 1.5, 0));
    expect_refused(crop_too_much, sample[CB_F32], NULL, "padding (5, -4) gives no possible size");
    expect_refused(clamp_300, sample[CB_U8], NULL, "the number 300 is no u8");
}

/* An exponent that is a number: 0.5 and -0.5 take roots but of f16, and whether one is odd is seen
 * before it is rounded to f32, but not to f16. */
static void powers_by_numbers(void **state) {
    (void)state;
    const double nan = (double)NAN;
    expect(root, sample[CB_F32], NULL, CB_F32, cb_dims(3), VALUES(nan, nan, nan));
    expect(root, sample[CB_F16], NULL, CB_F16, cb_dims(3), VALUES(INFINITY, INFINITY, nan));
    expect(inverse_root, sample[CB_F16], NULL, CB_F16, cb_dims(3), VALUES(0, 0, nan));
    expect(inverse_root, sample[CB_BF16], NULL, CB_BF16, cb_dims(3), VALUES(nan, nan, nan));
    expect(power_of_half, sample[CB_F32], NULL, CB_F32, cb_dims(3),
           VALUES(INFINITY, INFINITY, nan));
    expect(odd_power, sample[CB_F32], NULL, CB_F32, cb_dims(3), VALUES(-1, -INFINITY, 0));
    expect(odd_power, sample[CB_F64], NULL, CB_F64, cb_dims(3), VALUES(-1, -INFINITY, 0));
    expect(odd_power, sample[CB_BF16], NULL, CB_BF16, cb_dims(3), VALUES(1, INFINITY, 0));
    expect(odd_inverse, sample[CB_F32], NULL, CB_F32, cb_dims(3), VALUES(-1, 0, -INFINITY));
    expect(odd_inverse, sample[CB_I32], NULL, CB_F32, cb_dims(3), VALUES(-1, 0, INFINITY));
    expect(rounded_power, sample[CB_F16], NULL, CB_F16, cb_dims(3), VALUES(1, INFINITY, 0));
}

/* ---- in place, classes, attention ----------------------------------------------------------- */

BODY(add_half, cb_add_(cb_clone(in[0]), 0.5))
BODY(add_one, cb_add_(cb_clone(in[0]), 1))
BODY(add_other, cb_add_(cb_clone(in[0]), in[1]))
BODY(divide, cb_div_(cb_clone(in[0]), 2))

static void results_in_place_fit_the_dtype(void **state) {
    (void)state;
    expect_refused(add_half, sample[CB_I64], NULL,
                   "a result of f32[3] does not fit i64[3] in place");
    expect_refused(add_one, sample[CB_BOOL], NULL,
                   "a result of i64[3] does not fit bool[3] in place");
    expect_refused(divide, sample[CB_U8], NULL, "a result of f32[3] does not fit u8[3] in place");
    expect(add_half, sample[CB_F16], NULL, CB_F16, cb_dims(3), VALUES(1.5, 2.5, 0.5));
    expect(add_other, sample[CB_U8], other[CB_I64], CB_U8, cb_dims(3), VALUES(4, 3, 2));
    expect(add_other, sample[CB_F32], other[CB_F64], CB_F32, cb_dims(3), VALUES(4, 3, 2));
}

BODY(classes, cb_one_hot(in[0], 3))
BODY(few_classes, cb_one_hot(in[0], 2))
BODY(no_class, cb_one_hot(in[0], -1))
BODY(one_more_dim, cb_one_hot(cb_expand(in[0], cb_dims(1, 1, 1, 1, 1, 1, 1, 3)), 3))
BODY(negative_class, cb_one_hot(cb_sub(in[0], 1), 3))

static void a_class_out_of_range_is_refused(void **state) {
    (void)state;
    expect(classes, sample[CB_I64], NULL, CB_I64, cb_dims(3, 3), VALUES(0, 1, 0, 0, 0, 1, 1, 0, 0));
    expect_refused(few_classes, sample[CB_I64], NULL, "index");
    expect_refused(negative_class, sample[CB_I64], NULL, "index");
    expect_refused(classes, sample[CB_I32], NULL, "one_hot: needs i64, not i32");
    expect_refused(no_class, sample[CB_I64], NULL, "one_hot: -1 classes: at least 1, ");
    expect_refused(one_more_dim, sample[CB_I64], NULL, "one_hot: needs fewer than 8 dimensions");
}

static cb_tensor *heads(cb_tensor *x) {
    return cb_expand(cb_reshape(x, cb_dims(1, 1, 3, 1)), cb_dims(2, 2, 3, 1));
}
BODY(attend_few_to_many,
     cb_scaled_dot_product_attention(cb_reshape(in[0], cb_dims(1, 3, 1)), heads(in[0]),
                                     heads(in[1]), NULL, 0.0, false, 0))
BODY(attend_many_to_few,
     cb_scaled_dot_product_attention(heads(in[0]), cb_reshape(in[0], cb_dims(3, 1)),
                                     cb_reshape(in[1], cb_dims(3, 1)), NULL, 0.0, false, 0))

static void attention_broadcasts_ranks(void **state) {
    const double two[12] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
    (void)state;
    expect(attend_few_to_many, sample[CB_F32], other[CB_F32], CB_F32, cb_dims(2, 2, 3, 1), two);
    expect(attend_many_to_few, sample[CB_F32], other[CB_F32], CB_F32, cb_dims(2, 2, 3, 1), two);
}

BODY(convolved, cb_conv1d(cb_reshape(in[0], cb_dims(1, 1, 3)),
                          cb_narrow(cb_reshape(in[1], cb_dims(1, 1, 3)), 2, 0, 2)))
BODY(convolved_apart,
     cb_conv2d(cb_reshape(cb_cat((cb_tensor *[]){in[0], in[1]}, 2, 0), cb_dims(2, 1, 3)),
               cb_reshape(cb_narrow(in[1], 0, 0, 2), cb_dims(2, 1, 1, 1)),
               cb_narrow(in[0], 0, 0, 2), cb_dims(1, 2), cb_dims(0, 1), 1, 2))
BODY(convolved_back, cb_conv_transpose1d(cb_reshape(in[0], cb_dims(1, 1, 3)),
                                         cb_narrow(cb_reshape(in[1], cb_dims(1, 1, 3)), 2, 0, 2)))

static void integers_convolve(void **state) {
    (void)state;
    expect(convolved, sample[CB_I64], other[CB_I64], CB_I64, cb_dims(1, 1, 2), VALUES(5, 6));
    expect(convolved, sample[CB_U8], other[CB_U8], CB_U8, cb_dims(1, 1, 2), VALUES(5, 6));
    expect(convolved_apart, sample[CB_I32], other[CB_I32], CB_I32, cb_dims(2, 1, 3),
           VALUES(1, 7, 1, 2, 3, 2));
    expect(convolved_back, sample[CB_I64], other[CB_I64], CB_I64, cb_dims(1, 1, 4),
           VALUES(3, 7, 2, 0));
    expect_refused(convolved, sample[CB_BOOL], other[CB_BOOL], "bool is not a");
}

/* ---- pictures of integers ------------------------------------------------------------------- */

static cb_tensor *picture(cb_tensor *x) {
    static const int64_t value[] = {7, 250, 0, 31, 90, 200, 255, 3, 128};
    cb_tensor *y = cb_from_data(value, CB_I64, cb_dims(1, 1, 3, 3));
    if (cb_dtype_of(x) == CB_I64) y = cb_sub(y, 130);
    return cb_to(y, cb_dtype_of(x));
}

BODY(average, cb_avg_pool2d(picture(in[0]), 2, 1))
BODY(average_padded,
     cb_avg_pool1d(cb_reshape(picture(in[0]), cb_dims(3, 3)), 3, 3, 1, false, false))
BODY(average_over, cb_avg_pool2d(picture(in[0]), 2, 2, 0, false, true, -3))
BODY(bilinear, cb_interpolate(picture(in[0]), cb_dims(2, 5), CB_NO_FLOATS, true))
BODY(bilinear_aligned, cb_interpolate(picture(in[0]), cb_dims(4, 2), CB_NO_FLOATS, true, true))
BODY(bicubic,
     cb_interpolate(picture(in[0]), cb_dims(4, 2), CB_NO_FLOATS, false, false, false, true))

static void pictures_of_integers_stay_integers(void **state) {
    (void)state;
    expect(average, sample[CB_I64], NULL, CB_I64, cb_dims(1, 1, 2, 2), VALUES(-35, 5, -35, -24));
    expect(average_padded, sample[CB_I64], NULL, CB_I64, cb_dims(3, 1), VALUES(-1, -69, -1));
    expect(average_over, sample[CB_I64], NULL, CB_I64, cb_dims(1, 1, 1, 1), VALUES(47));
    expect(bilinear, sample[CB_U8], NULL, CB_U8, cb_dims(1, 1, 2, 5),
           VALUES(13, 92, 210, 114, 50, 199, 129, 25, 98, 146));
    expect(bilinear_aligned, sample[CB_U8], NULL, CB_U8, cb_dims(1, 1, 4, 2),
           VALUES(7, 0, 23, 133, 106, 176, 255, 128));
    expect(bicubic, sample[CB_U8], NULL, CB_U8, cb_dims(1, 1, 4, 2),
           VALUES(73, 57, 35, 146, 93, 158, 205, 85));
    expect_refused(bilinear, sample[CB_I64], NULL, "interpolate: i64 is neither u8 nor");
    expect_refused(average, sample[CB_BOOL], NULL, "avg_pool2d: bool is not a number dtype");
}

/* [1, 2, 0]: its last window is a 0, or -inf, and padding as low. */
BODY(places, cb_max_pool1d_indices(cb_reshape(in[0], cb_dims(1, 3)), 2, 1, 1))
BODY(places_of_logs, cb_max_pool1d_indices(cb_log(cb_reshape(in[0], cb_dims(1, 3))), 2, 1, 1))
BODY(places_of_padding, cb_max_pool1d_indices(cb_reshape(in[0], cb_dims(1, 3)), 2, 3, 1, 4))

static void padding_is_never_the_greatest(void **state) {
    (void)state;
    expect(places, sample[CB_U8], NULL, CB_I64, cb_dims(1, 4), VALUES(0, 1, 1, 2));
    expect(places_of_logs, sample[CB_F32], NULL, CB_I64, cb_dims(1, 4), VALUES(0, 1, 1, 2));
    expect(places_of_padding, sample[CB_U8], NULL, CB_I64, cb_dims(1, 1), VALUES(0));
}

/* ---- running statistics --------------------------------------------------------------------- */

/* in: x, mean, var. The result is x's, and then what the running ones have become. */
static cb_tensor *trained(cb_tensor *const *in, bool instance, double momentum) {
    cb_tensor *y = instance ? cb_instance_norm(in[0], in[1], in[2], NULL, NULL, true, momentum)
                            : cb_batch_norm(in[0], in[1], in[2], NULL, NULL, true, momentum);
    if (!y) return NULL;
    cb_tensor *seen = cb_to(cb_reshape(cb_sum(cb_lt(y, 9.0)), 1), CB_F32); /* 12: y is needed */
    return cb_cat((cb_tensor *[]){in[1], in[2], seen}, 3, 0);
}

BODY(batch_trained, trained(in, false, 0.25))
BODY(batch_still, trained(in, false, 0))
BODY(instance_trained, trained(in, true, 0.25))
BODY(batch_evaluated,
     (cb_batch_norm(in[0], in[1], in[2]), cb_cat((cb_tensor *[]){in[1], in[2]}, 2, 0)))
BODY(mean_alone, cb_batch_norm(in[0], in[1], NULL, NULL, NULL, true))
BODY(mean_too_long, cb_batch_norm(in[0], in[1], in[1], NULL, NULL, true))

static cb_tensor *images(void) {
    static const float value[] = {1, 2, 3, 4, 5, 7, 0, -1, 2, 2, 6, 8};
    return cb_from_data(value, CB_F32, cb_dims(2, 2, 3));
}

static void expect_moved(Body *body, const char *options, const double *value, int64_t count) {
    cb_scope_open();
    cb_tensor *in[] = {images(), cb_full(cb_dims(2), 10.0), cb_full(cb_dims(2), 20.0)};
    if (!options) {
        expect_values(body(in), CB_F32, cb_dims(count), value);
    } else {
        cb_tensor *out[1] = {NULL};
        cb_function *f = cb_compile_n(compiled, (void *)&body, options);
        assert_int_equal(cb_call_n(f, in, 3, out, 1), 1);
        expect_values(out[0], CB_F32, cb_dims(count), value);
        cb_function_free(f);
    }
    cb_scope_close();
}

static void norms_move_their_running_statistics(void **state) {
    static const char *const options[] = {NULL, "backend=vm", "backend=vm,fullgraph=1",
                                          "backend=eager"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        expect_moved(batch_trained, options[i],
                     VALUES(7.79166651, 8.83333302, 15.5416670, 16.1666661, 12), 5);
        expect_moved(batch_still, options[i], VALUES(10, 10, 20, 20, 12), 5);
        expect_moved(batch_evaluated, options[i], VALUES(10, 10, 20, 20), 4);
        expect_moved(instance_trained, options[i],
                     VALUES(7.79166651, 8.83333302, 15.4166670, 16.4583340, 12), 5);
    }
    cb_tensor *pair = cb_narrow(sample[CB_F32], 0, 0, 2);
    expect_refused(mean_alone, images(), pair, "running_mean and running_var go together");
    expect_refused(mean_too_long, images(), sample[CB_F32], "running_mean must have one element");
}

/* A recorded graph holds the call, and moves them each time it runs, not while it is recorded. */
static void graphs_of_norms_move_them_when_they_run(void **state) {
    (void)state;
    cb_scope_open();
    Body *body = batch_trained;
    cb_graph *graph = cb_symbolic_trace_function(compiled, (void *)&body, 3, "x, mean, var");
    cb_tensor *in[] = {images(), cb_full(cb_dims(2), 10.0), cb_full(cb_dims(2), 20.0)}, *out[1];
    assert_int_equal(cb_graph_run(graph, in, 3, out, 1), 1);
    expect_values(out[0], CB_F32, cb_dims(5),
                  VALUES(7.79166651, 8.83333302, 15.5416670, 16.1666661, 12));
    cb_graph_free(graph);
    cb_scope_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logsumexp_of_integers_is_computed_in_f32),
        cmocka_unit_test(the_square_of_bool_is_an_integer),
        cmocka_unit_test(any_and_all_of_u8_are_u8),
        cmocka_unit_test(what_needs_floating_point_refuses_integers),
        cmocka_unit_test(numbers_are_kept_exactly),
        cmocka_unit_test(full_takes_its_dtype_from_the_number),
        cmocka_unit_test(attributes_promote_as_in_pytorch),
        cmocka_unit_test(numbers_that_overflow_are_refused),
        cmocka_unit_test(linspace_of_integers_truncates),
        cmocka_unit_test(random_integers_fit_the_dtype),
        cmocka_unit_test(numbers_left_out_are_not_zero),
        cmocka_unit_test(rank_0_takes_dims_as_rank_1),
        cmocka_unit_test(random_calls_found),
        cmocka_unit_test(powers_by_numbers),
        cmocka_unit_test(results_in_place_fit_the_dtype),
        cmocka_unit_test(a_class_out_of_range_is_refused),
        cmocka_unit_test(attention_broadcasts_ranks),
        cmocka_unit_test(integers_convolve),
        cmocka_unit_test(pictures_of_integers_stay_integers),
        cmocka_unit_test(padding_is_never_the_greatest),
        cmocka_unit_test(norms_move_their_running_statistics),
        cmocka_unit_test(graphs_of_norms_move_them_when_they_run),
        cmocka_unit_test(cosine_similarity_broadcasts_before_it_takes_norms),
        cmocka_unit_test(a_cropped_circle_goes_on_with_what_is_left),
        cmocka_unit_test(cropped_pads_are_those_of_pytorch),
    };
    return cmocka_run_group_tests(tests, make_samples, free_samples);
}
