/* Dtypes, values and refusals where PyTorch's are not the obvious ones, eager and compiled. What is
 * expected here was computed by PyTorch 2.11. */
#include "test_support.h"

#include "carbide.h"

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
    for (int d = 0; d < CB_DTYPE_COUNT; d++) {
        sample[d] = cb_to(cb_from_data(first, CB_I64, cb_dims(3)), (cb_dtype)d);
        other[d] = cb_to(cb_from_data(second, CB_I64, cb_dims(3)), (cb_dtype)d);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logsumexp_of_integers_is_computed_in_f32),
        cmocka_unit_test(the_square_of_bool_is_an_integer),
        cmocka_unit_test(any_and_all_of_u8_are_u8),
        cmocka_unit_test(what_needs_floating_point_refuses_integers),
        cmocka_unit_test(cosine_similarity_broadcasts_before_it_takes_norms),
        cmocka_unit_test(a_cropped_circle_goes_on_with_what_is_left),
    };
    return cmocka_run_group_tests(tests, make_samples, free_samples);
}
