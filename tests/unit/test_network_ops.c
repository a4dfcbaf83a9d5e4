/* The ops of networks against PyTorch's values, in f32, f64 and bf16: each case is an expression
 * over x, w and v, built as a graph, planned, and run on the vector VM. Errors are checked by their
 * words. */
#include "expression.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "network_cases.h"

static bool near(double found, double expected, double tolerance) {
    return fabs(found - expected) <= tolerance * (1 + fabs(expected));
}

static void expect_case(size_t k, cb_dtype dtype, double tolerance) {
    static double value[4096];
    cb_tensor *y = evaluate(cases[k].call, dtype);
    if (!y) fail_msg("%s: %s", cases[k].call, cb_error());
    assert_int_equal(cb_rank(y), cases[k].sizes.count);
    for (int i = 0; i < cb_rank(y); i++) assert_int_equal(cb_size(y, i), cases[k].sizes.at[i]);
    assert_int_equal(cb_dtype_of(y), dtype);
    cb_read(y, value, CB_F64);
    double sum = 0;
    for (int64_t i = 0; i < cb_numel(y); i++) {
        sum += value[i] * (double)(i * 7 % 13 + 1);
        if (i < FIRST && !near(value[i], cases[k].first[i], tolerance))
            fail_msg("%s %s [%d] is %.9g, not %.9g", cb_dtype_name(dtype), cases[k].call, (int)i,
                     value[i], cases[k].first[i]);
    }
    if (!(fabs(sum - cases[k].sum) <= tolerance * (1 + cases[k].magnitude)))
        fail_msg("%s %s: the sum is %.9g, not %.9g", cb_dtype_name(dtype), cases[k].call, sum,
                 cases[k].sum);
}

static void expect_cases(cb_dtype dtype, double tolerance) {
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        cb_scope_open();
        expect_case(k, dtype, tolerance);
        cb_scope_close();
    }
}

static void values_in_f32(void **state) {
    (void)state;
    expect_cases(CB_F32, 2e-6);
}

static void values_in_f64(void **state) {
    (void)state;
    expect_cases(CB_F64, 1e-7); /* what PyTorch itself computes in f32: positions of interpolate */
}

static void values_in_bf16(void **state) {
    (void)state;
    expect_cases(CB_BF16, 0.05);
}

/* Networks of three convolutions, which run channels-last, against the same run as written. */
#define WEIGHT(start, end) "reshape(slice(w, 0, " #start ", " #end "), [8, 8, 3, 3])"
#define CONV(x) "conv2d(" x ", " WEIGHT(100, 676) ", slice(v, 0, 0, 8), padding=1)"
#define TWICE(x) CONV("relu(" CONV(x) ")")
#define IMAGE "reshape(x, [2, 8, 8, 8])"

static const char *const networks[] = {
    TWICE(CONV(IMAGE)),
    TWICE(CONV(IMAGE)) " + " IMAGE,
    "max_pool2d(" TWICE(CONV(IMAGE)) ", 3, 2, 1)",
    "avg_pool2d(" TWICE(CONV(IMAGE)) ", 3, 2, 1, true, false)",
    "flatten(adaptive_avg_pool2d(" TWICE(CONV(IMAGE)) ", [2, 3]), 1)",
    "matmul(flatten(adaptive_max_pool2d(" TWICE(
        CONV(IMAGE)) ", 2), 1), reshape(slice(v, 0, 0, 64), "
                     "[32, 2]))",
    "concat(" TWICE(CONV(IMAGE)) ", " IMAGE ", 1) * 0.5",
    "concat(" IMAGE ", " TWICE(CONV(IMAGE)) ", -1)",
    "softmax(" TWICE(CONV(IMAGE)) ", 1)",
    "batch_norm(" TWICE(CONV(IMAGE)) ", weight=slice(v, 0, 0, 8), training=true)",
    "group_norm(" TWICE(CONV(IMAGE)) ", 2)",
    "layer_norm(permute(" TWICE(CONV(IMAGE)) ", [0, 2, 3, 1]), [8])",
    "interpolate(" TWICE(CONV(IMAGE)) ", [5, 11], linear=true)",
    "interpolate(" TWICE(CONV(IMAGE)) ", scale_factor=2)",
    "flip(slice(" TWICE(CONV(IMAGE)) ", 1, 1, 4), [0, 3])",
    "cumsum(" TWICE(CONV(IMAGE)) ", 1)",
    "sum(" TWICE(CONV(IMAGE)) ", [1, 2])",
    "amax(" TWICE(CONV(IMAGE)) ", [0, 3], true)",
    "where(" TWICE(CONV(IMAGE)) " > 0, reshape(slice(v, 0, 0, 64), [8, 8]), 1)",
    "pad(" TWICE(CONV(IMAGE)) ", [1, 2, 0, 1, 1, 0], 0.5)",
    "conv_transpose2d(" TWICE(CONV(IMAGE)) ", " WEIGHT(200, 776) ", stride=2)",
    "permute(" TWICE(CONV(IMAGE)) ", [3, 1, 0, 2])",
    "relu(reshape(" TWICE(CONV(IMAGE)) ", [2, 8, 64]) - 0.1)",
    "amax(reshape(" TWICE(CONV(IMAGE)) ", [2, 8, 4, 2, 2, 4]) * 2, [3, 5])",
    "sum(reshape(" TWICE(CONV(IMAGE)) ", [16, 8, 8]) * 3, 0)",
    "neg(reshape(" TWICE(CONV(IMAGE)) ", [2, 8, 1, 8, 1, 8, 1]))",
    "reshape(permute(reshape(" TWICE(
        CONV(IMAGE)) ", [2, 2, 4, 8, 8]), [0, 2, 1, 3, 4]), [2, 8, 8, 8])",
    "reshape(permute(reshape(" TWICE(CONV(IMAGE)) ", [2, 2, 2, 2, 8, 8]), [0, 1, 4, 2, 5, 3]), "
                                                  "[2, 2, 16, 16]) + 1",
    "softmax(permute(reshape(" TWICE(CONV(IMAGE)) ", [2, 8, 64]), [0, 2, 1]), 1)",
    "scatter_add(reshape(slice(x, 0, 0, 80), [2, 8, 5]), 2, to(reshape(" TWICE(
        CONV(IMAGE)) ", [2, 8, 64]) > 0.0, i64) * 3, reshape(" TWICE(CONV(IMAGE)) ", [2, 8, 64]))",
    "scatter_add(" IMAGE ", 1, to(" TWICE(CONV(IMAGE)) " > 0.0, i64) * 3, " TWICE(CONV(IMAGE)) ")",
    "scatter_add(" IMAGE ", 1, to(permute(" TWICE(
        CONV(IMAGE)) ", [0, 1, 3, 2]) > 0.0, i64) * 3, " TWICE(CONV(IMAGE)) ")",
    "scatter_add(reshape(slice(x, 0, 0, 80), [2, 8, 5]), 2, reshape(to(arange(0, 1024) > 500, "
    "i64), [2, 8, 64]), "
    "reshape(" TWICE(CONV(IMAGE)) ", [2, 8, 64]))",
    "conv1d(conv1d(conv1d(reshape(slice(x, 0, 0, 256), [2, 8, 16]), reshape(slice(w, 0, 0, 64), "
    "[8, 8, 1])), reshape(slice(w, 0, 0, 24), [8, 1, 3]), groups=8), "
    "reshape(slice(w, 0, 0, 128), [8, 8, 2]), stride=3)",
};

static void channels_last_changes_nothing(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof networks / sizeof *networks; k++) {
        cb_scope_open();
        cb_tensor *y = evaluate(networks[k], CB_F64);
        if (!y) fail_msg("%s: %s", networks[k], cb_error());
        cb_set_option("skip", "layout");
        cb_tensor *expected = evaluate(networks[k], CB_F64);
        cb_set_option("skip", "");
        double scale = cb_item(cb_max(cb_abs(expected)));
        double off = cb_item(cb_max(cb_abs(cb_sub(y, expected))));
        if (!(off <= 1e-12 * (1 + scale))) fail_msg("%s is off by %g", networks[k], off);
        cb_scope_close();
    }
}

/* Transposed convolutions whose weight, or one element of x, is inf: a product with a zero that
 * stands between elements, or behind the kernel, would be NaN. */
#define INF_AT "reshape(where(eq(arange(0, 16), 5), inf, 1.0), "
static const struct {
    const char *call;
    int64_t infinite;
} no_zeros[] = {
    {"conv_transpose1d(reshape(abs(slice(x, 0, 0, 3)) + 1, [1, 1, 3]), full([1, 1, 2], inf), "
     "stride=2)",
     6},
    {"conv_transpose2d(reshape(abs(slice(x, 0, 0, 6)) + 1, [1, 1, 2, 3]), full([1, 1, 2, 3], inf), "
     "stride=[3, 4])",
     36},
    {"conv_transpose1d(" INF_AT "[1, 1, 16]), full([1, 1, 3], 1.0), stride=2)", 3},
    {"conv_transpose2d(" INF_AT "[1, 1, 4, 4]), full([1, 1, 3, 5], 1.0), stride=[2, 4])", 15},
    {"conv_transpose2d(" INF_AT "[1, 2, 2, 4]), full([2, 1, 1, 4], 1.0), stride=3, groups=2)", 4},
};

static void transposed_convolutions_multiply_no_zeros(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof no_zeros / sizeof *no_zeros; k++) {
        cb_scope_open();
        cb_tensor *y = evaluate(no_zeros[k].call, CB_F32);
        if (!y) fail_msg("%s: %s", no_zeros[k].call, cb_error());
        double infinite = cb_item(cb_count_nonzero(cb_eq(y, INFINITY)));
        if (cb_item(cb_any(cb_isnan(y))) != 0) fail_msg("%s has a NaN", no_zeros[k].call);
        if (infinite != (double)no_zeros[k].infinite)
            fail_msg("%s has %g infinities", no_zeros[k].call, infinite);
        cb_scope_close();
    }
}

/* A call with an error, and words that its message has. */
static const char *const refused[][2] = {
    {"conv2d(reshape(x, [2, 8, 8, 8]), reshape(w, [16, 4, 4, 4]))", "takes 4 channels"},
    {"conv2d(reshape(x, [2, 8, 8, 8]), reshape(w, [2, 8, 8, 8]), stride=0)", "stride 0"},
    {"conv2d(reshape(x, [2, 8, 8, 8]), reshape(w, [1, 8, 16, 8]))", "larger than 8"},
    {"conv2d(reshape(x, [2, 8, 8, 8]), reshape(w, [128, 8]))", "a weight of 4 dims"},
    {"conv2d(reshape(x, [2, 8, 8, 8]), reshape(w, [2, 8, 8, 8]), groups=3)", "3 groups"},
    {"conv2d(reshape(x, [2, 8, 8, 8]), reshape(w, [2, 8, 8, 8]), v)", "the bias"},
    {"conv2d(reshape(x, [2, 8, 8, 8]), reshape(w, [2, 8, 8, 8]), padding=[1, 2, 3])", "padding"},
    {"conv_transpose1d(reshape(x, [2, 8, 64]), reshape(w, [8, 8, 16]), output_padding=1)",
     "output_padding 1"},
    {"max_pool2d(reshape(x, [2, 8, 8, 8]), 3, 1, 2)", "padding 2 is more than half"},
    {"max_pool2d(reshape(x, [2, 8, 8, 8]), 9)", "does not fit into dim 2"},
    {"max_pool2d(x, 2)", "2 spatial dims"},
    {"embedding(reshape(w, [128, 8]), arange(0, 9))", "the index stands first"},
    {"dropout(arange(0, 9), 0.25)", "dropout: i64 cannot hold what is kept"},
    {"adaptive_avg_pool2d(reshape(x, [2, 8, 64]), -1)", "output_size cannot be -1"},
    {"linear(reshape(x, [128, 8]), reshape(w, [64, 16]))",
     "linear: inner sizes differ: f32[128, 8] x f32[16, 64], in linear(f32[128, 8], f32[64, 16])"},
    {"linear(reshape(x, [128, 8]), reshape(w, [128, 8]), slice(v, 0, 0, 3))",
     "in linear(f32[128, 8], f32[128, 8], f32[3])"},
    {"layer_norm(reshape(x, [128, 8]), [8], slice(v, 0, 0, 4))",
     "weight must have the normalized sizes [8], in layer_norm(f32[128, 8], f32[4])"},
    {"layer_norm(reshape(x, [128, 8]), [4])",
     "the normalized sizes [4] are not the last ones of x, in layer_norm(f32[128, 8])"},
    {"masked_fill(x, x, 1.0)", "masked_fill: the condition or mask is f32 and must be bool"},
    {"softmax(x, 1)", "softmax: dim 1 is outside of -1..0: f32[1024]"},
    {"conv2d(reshape(x, [2, 8, 8, 8]), reshape(w, [2, 8, 8, 8]), stride=2, padding=same)",
     "conv2d: padding 'same' goes with a stride of 1, not 2"},
    {"scaled_dot_product_attention(reshape(x, [64, 16]), reshape(w, [64, 16]), reshape(v, [64, "
     "16]), arange(0, 64))",
     "the mask must be bool or floating point"},
    {"interpolate(reshape(x, [2, 8, 64]), 7, align_corners=true)",
     "align_corners goes with linear"},
    {"embedding(reshape(x, [2, 512]), reshape(w, [64, 16]))", "in embedding(f32[2, 512], f32[64, "},
    {"reflection_pad(reshape(x, [2, 8, 64]), [64, 0])", "padding of 64 and 0 for dim 2 of size 64"},
    {"circular_pad(reshape(x, [2, 8, 64]), 1)", "a left and a right number for 1 to 3 dims"},
    {"glu(reshape(x, [1024, 1]))", "an even number of elements"},
    {"prelu(reshape(x, [2, 512]), slice(v, 0, 0, 2))", "a vector of one for each channel"},
    {"pixel_shuffle(reshape(x, [2, 8, 8, 8]), 3)", "channels that upscale_factor squared divides"},
    {"pixel_unshuffle(reshape(x, [2, 8, 8, 8]), 3)", "sizes that downscale_factor divides"},
    {"channel_shuffle(reshape(x, [2, 8, 8, 8]), 3)", "3 groups do not divide 8 channels"},
    {"batch_norm(reshape(x, [2, 512]), w, v)", "running_mean must have one element"},
    {"batch_norm(reshape(x, [2, 512]))", "needs running_mean"},
    {"group_norm(reshape(x, [2, 512]), 3)", "3 groups"},
    {"scaled_dot_product_attention(reshape(x, [64, 16]), reshape(w, [32, 32]), v)", "one rank"},
    {"scaled_dot_product_attention(reshape(x, [64, 16]), reshape(w, [32, 32]), "
     "reshape(v, [32, 32]))",
     "the last sizes"},
    {"interpolate(reshape(x, [2, 8, 64]))", "either a size or"},
    {"unfold(reshape(x, [2, 8, 8, 8]), 9)", "larger than dim 2"},
    {"fold(reshape(x, [2, 8, 64]), 8, 2)", "64"},
    {"window(x, 0, 1025)", "larger than dim 0"},
};

static void errors_in_words(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof refused / sizeof *refused; k++) {
        cb_clear_error();
        if (evaluate(refused[k][0], CB_F32)) fail_msg("%s was not refused", refused[k][0]);
        if (!strstr(cb_error(), refused[k][1]))
            fail_msg("%s: '%s' lacks '%s'", refused[k][0], cb_error(), refused[k][1]);
    }
    cb_clear_error();
}

/* The public functions, with their defaults, and a window that is written through. */
static void the_api(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = cb_reshape(input(0, CB_F32), cb_dims(1, 4, 16, 16));
    cb_tensor *w = cb_reshape(cb_slice(input(1, CB_F32), 0, 0, 288), cb_dims(8, 4, 3, 3));
    cb_tensor *y = cb_conv2d(x, w, NULL, 2, 1);
    cb_tensor *same = cb_conv2d(x, w, NULL, cb_dims(2, 2), cb_dims(1, 1), 1, 1);
    assert_int_equal(cb_size(y, 2), 8);
    assert_true(cb_item(cb_all(cb_eq(y, same))) == 1);
    assert_int_equal(cb_size(cb_max_pool2d(x, 2), 3), 8);
    assert_int_equal(cb_size(cb_max_pool2d(x, 3, 2), 3), 7);
    assert_null(cb_error());
    cb_tensor *line = cb_zeros(10);
    cb_tensor *window = cb_window(line, 0, 2, 5);
    assert_true(cb_shares_storage(line, window));
    assert_non_null(cb_fill_(window, 1));
    assert_true(cb_item(cb_sum(line)) == 4);
    assert_null(cb_fill_(cb_window(line, 0, 3, 2), 1));
    assert_non_null(strstr(cb_error(), "overlap"));
    cb_clear_error();
    cb_scope_close();
}

static cb_tensor *write_windows(cb_tensor *x, cb_tensor *pair) {
    cb_tensor *copy = cb_mul(x, 1.5);
    cb_assign(cb_window(copy, 1, 2, 3), pair);
    return copy;
}

static cb_tensor *write_slices(cb_tensor *x, cb_tensor *pair) {
    cb_tensor *copy = cb_mul(x, 1.5);
    for (int start = 0; start < 6; start += 3) cb_assign(cb_narrow(copy, 1, start, 2), pair);
    return copy;
}

static void written_windows_compile(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = cb_reshape(cb_slice(input(0, CB_F32), 0, 0, 12), cb_dims(2, 6));
    cb_tensor *pair = cb_slice(input(1, CB_F32), 0, 0, 2);
    cb_function *function = cb_compile(write_windows, "backend=vm");
    cb_tensor *y = cb_call(function, x, pair);
    assert_non_null(y);
    assert_true(cb_item(cb_all(cb_eq(y, write_slices(x, pair)))) == 1);
    assert_true(cb_item(cb_all(cb_eq(y, write_windows(x, pair)))) == 1);
    cb_function_free(function);
    cb_scope_close();
}

/* A dim of one position has any stride: it says nothing of how the others lie. */
static void kernels_of_one_over_turned_images(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = cb_randn(cb_dims(2, 3, 40, 60, 1)), *weight = cb_randn(cb_dims(5, 3, 1, 1, 1));
    for (int i = 0; i < 3; i++) { /* 40 x 60, 60 x 40 and 60 x 1 x 40 positions */
        cb_tensor *turned =
            i ? cb_permute(x, i == 1 ? cb_dims(0, 1, 3, 2, 4) : cb_dims(0, 1, 3, 4, 2)) : x;
        cb_tensor *wanted = cb_conv3d(cb_contiguous(turned), weight);
        assert_true(cb_item(cb_max(cb_abs(cb_sub(cb_conv3d(turned, weight), wanted)))) < 1e-5);
    }
    cb_scope_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_in_f32),
        cmocka_unit_test(values_in_f64),
        cmocka_unit_test(values_in_bf16),
        cmocka_unit_test(errors_in_words),
        cmocka_unit_test(channels_last_changes_nothing),
        cmocka_unit_test(transposed_convolutions_multiply_no_zeros),
        cmocka_unit_test(the_api),
        cmocka_unit_test(written_windows_compile),
        cmocka_unit_test(kernels_of_one_over_turned_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
