/* The op layer against PyTorch's known results: names, promotion, shapes, views, scalars,
 * errors. */
#include "op/op.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static Meta meta_of(cb_dtype dtype, cb_dim_list sizes) {
    Meta meta = {.dtype = dtype, .rank = (uint8_t)sizes.count};
    memcpy(meta.size, sizes.at, sizeof meta.size);
    return meta;
}

static Meta number_of(cb_dtype dtype) { return (Meta){.dtype = dtype, .number = true}; }

#define TENSOR(dtype, ...) meta_of(CB_##dtype, cb_dims(__VA_ARGS__))
#define ZERO_DIM(dtype) meta_of(CB_##dtype, CB_NO_DIMS)

/* Infers and gives the result as text; "!message" when it fails. */
static const char *infer_text(Op op, Attrs *attrs, const Meta *input, int count) {
    static char text[512];
    Inferred out;
    cb_clear_error();
    if (op_infer(op, input, count, attrs, &out))
        meta_format(&out.result, text, sizeof text);
    else
        snprintf(text, sizeof text, "!%s", cb_error());
    return text;
}

static void expect_infer(Op op, Attrs *attrs, const char *expected, Meta a) {
    assert_string_equal(infer_text(op, attrs, &a, 1), expected);
}

static void expect_two(Op op, const char *expected, Meta a, Meta b) {
    Attrs attrs = attrs_default(op);
    Meta input[2] = {a, b};
    assert_string_equal(infer_text(op, &attrs, input, 2), expected);
}

static void test_names(void **state) {
    (void)state;
    assert_int_equal(op_find("exp", 3), OP_exp);
    assert_int_equal(op_find("exp2", 4), OP_exp2);
    assert_int_equal(op_find("exp2", 3), OP_exp);
    assert_int_equal(op_find("expp", 4), OP_none);
    assert_int_equal(op_find("", 0), OP_none);
    for (Op op = OP_none + 1; op < OP_COUNT; op++) {
        const char *name = op_info(op)->name;
        assert_int_equal(op_find(name, strlen(name)), op);
    }
}

static void test_attrs(void **state) {
    (void)state;
    Attrs attrs = attrs_default(OP_layer_norm);
    assert_true(attr_float(&attrs, ATTR_layer_norm_eps) == 1e-5);
    attrs = attrs_default(OP_sum);
    assert_int_equal(attr_dims(&attrs, ATTR_sum_dim).count, -1);
    attr_set_dims(&attrs, ATTR_sum_dim, cb_dims(3, 1));
    attr_set_dims(&attrs, ATTR_sum_dim, cb_dims(2));
    Attrs fresh = attrs_default(OP_sum);
    attr_set_dims(&fresh, ATTR_sum_dim, cb_dims(2));
    assert_memory_equal(&attrs, &fresh, sizeof attrs); /* equal attributes are equal bytes */
}

/* A list of parameters in each row made the table 180 KB of the library. */
static void test_shared_parameters(void **state) {
    (void)state;
    assert_ptr_equal(op_info(OP_exp)->param, op_info(OP_neg)->param);
    assert_ptr_equal(op_info(OP_amax)->param, op_info(OP_sum)->param);
    assert_ptr_not_equal(op_info(OP_add)->param, op_info(OP_neg)->param);
    assert_string_equal(op_info(OP_add)->param[1].name, "b");
}

static void test_promotion_lattice(void **state) {
    (void)state;
    enum {
        b = CB_BOOL,
        u = CB_U8,
        c = CB_I8,
        s = CB_I16,
        i = CB_I32,
        l = CB_I64,
        h = CB_F16,
        z = CB_BF16,
        f = CB_F32,
        d = CB_F64
    };
    static const int torch[10][10] = {
        {b, u, c, s, i, l, h, z, f, d}, {u, u, s, s, i, l, h, z, f, d},
        {c, s, c, s, i, l, h, z, f, d}, {s, s, s, s, i, l, h, z, f, d},
        {i, i, i, i, i, l, h, z, f, d}, {l, l, l, l, l, l, h, z, f, d},
        {h, h, h, h, h, h, h, f, f, d}, {z, z, z, z, z, z, f, z, f, d},
        {f, f, f, f, f, f, f, f, f, d}, {d, d, d, d, d, d, d, d, d, d},
    };
    for (cb_dtype p = 0; p < 10; p++)
        for (cb_dtype q = 0; q < 10; q++) assert_int_equal(cb_promote(p, q), torch[p][q]);
}

static void test_weak_inputs(void **state) {
    (void)state;
    expect_two(OP_add, "f32[3]", TENSOR(I32, 3), number_of(CB_F64));
    expect_two(OP_add, "i64[3]", TENSOR(BOOL, 3), number_of(CB_I64));
    expect_two(OP_add, "u8[3]", TENSOR(U8, 3), number_of(CB_I64));
    expect_two(OP_add, "bool[3]", TENSOR(BOOL, 3), number_of(CB_BOOL));
    expect_two(OP_mul, "f16[3]", TENSOR(F16, 3), number_of(CB_F64));
    expect_two(OP_mul, "bf16[3]", TENSOR(BF16, 3), ZERO_DIM(F64));
    expect_two(OP_mul, "f64[3]", TENSOR(I32, 3), ZERO_DIM(F64));
    expect_two(OP_mul, "i32[3]", TENSOR(I32, 3), ZERO_DIM(I64));
    expect_two(OP_mul, "f64[]", ZERO_DIM(F64), number_of(CB_F64));
    expect_two(OP_mul, "f32[]", ZERO_DIM(I64), number_of(CB_F64));
    expect_two(OP_div, "f32[3]", TENSOR(I64, 3), TENSOR(I64, 3));
    expect_two(OP_div, "f16[3]", TENSOR(F16, 3), TENSOR(I64, 3));
    expect_two(OP_eq, "bool[3]", TENSOR(F16, 3), TENSOR(BF16, 3));
    expect_two(OP_logical_and, "bool[3]", TENSOR(F32, 3), TENSOR(I8, 3));
    expect_two(OP_bitwise_and, "i16[3]", TENSOR(U8, 3), TENSOR(I8, 3));
}

static void test_input_dtypes(void **state) {
    (void)state;
    Inferred out;
    Attrs attrs = attrs_default(OP_where);
    Meta where[3] = {TENSOR(BOOL, 3), TENSOR(I32, 3), number_of(CB_F64)};
    assert_true(op_infer(OP_where, where, 3, &attrs, &out));
    assert_int_equal(out.input_dtype[0], CB_BOOL);
    assert_int_equal(out.input_dtype[1], CB_F32);
    assert_int_equal(out.input_dtype[2], CB_F32);
    assert_int_equal(out.result.dtype, CB_F32);
    Meta bytes[3] = {TENSOR(U8, 3), TENSOR(I8, 3), TENSOR(I8, 3)};
    assert_true(op_infer(OP_where, bytes, 3, &attrs, &out)); /* of the values alone: not i16 */
    assert_int_equal(out.input_dtype[0], CB_BOOL);
    assert_int_equal(out.input_dtype[1], CB_I8);
    assert_int_equal(out.result.dtype, CB_I8);
    attrs = attrs_default(OP_eq);
    Meta equal[2] = {TENSOR(I32, 3), TENSOR(F64, 3)};
    assert_true(op_infer(OP_eq, equal, 2, &attrs, &out));
    assert_int_equal(out.input_dtype[0], CB_F64);
    assert_int_equal(out.result.dtype, CB_BOOL);
    attrs = attrs_default(OP_gather);
    Meta gather[2] = {TENSOR(F16, 4, 9), TENSOR(I32, 4, 2)};
    attrs.word[ATTR_gather_dim] = -1;
    assert_true(op_infer(OP_gather, gather, 2, &attrs, &out));
    assert_int_equal(out.input_dtype[1], CB_I64);
    assert_int_equal(out.result.dtype, CB_F16);
    assert_int_equal(out.result.size[1], 2);
    assert_int_equal(attrs.word[ATTR_gather_dim], 1);
}

static void test_dtype_errors(void **state) {
    (void)state;
    expect_two(OP_sub, "!sub: bool is not a number dtype: bool[3], bool[3]", TENSOR(BOOL, 3),
               TENSOR(BOOL, 3));
    expect_two(OP_bitwise_or, "!bitwise_or: f32 is not an integer or bool dtype: f32[3], i64[3]",
               TENSOR(F32, 3), TENSOR(I64, 3));
    expect_two(OP_left_shift, "!left_shift: bool is not an integer dtype: bool[1], bool[1]",
               TENSOR(BOOL, 1), TENSOR(BOOL, 1));
    Attrs attrs = attrs_default(OP_rand);
    attrs.word[ATTR_rand_dtype] = CB_I32;
    assert_string_equal(infer_text(OP_rand, &attrs, NULL, 0),
                        "!rand: i32 is not a floating point dtype");
    assert_int_equal(cb_error_status(), CB_ERR_DTYPE);
    cb_clear_error();
}

static void test_broadcast(void **state) {
    (void)state;
    expect_two(OP_add, "f32[4, 3]", TENSOR(F32, 4, 1), TENSOR(F32, 3));
    expect_two(OP_add, "f32[2, 4, 3]", TENSOR(F32, 3), TENSOR(F32, 2, 4, 1));
    expect_two(OP_add, "f32[0, 3]", TENSOR(F32, 0, 1), TENSOR(F32, 1, 3));
    expect_two(OP_add, "!add: sizes do not broadcast (2 and 3): f32[2], f32[3]", TENSOR(F32, 2),
               TENSOR(F32, 3));
    expect_two(OP_add, "!add: sizes do not broadcast (0 and 3): f32[0], f32[3]", TENSOR(F32, 0),
               TENSOR(F32, 3));
}

static void test_matmul(void **state) {
    (void)state;
    expect_two(OP_matmul, "f32[4, 2]", TENSOR(F32, 4, 3), TENSOR(F32, 3, 2));
    expect_two(OP_matmul, "f32[]", TENSOR(F32, 3), TENSOR(F32, 3));
    expect_two(OP_matmul, "f32[5, 2]", TENSOR(F32, 3), TENSOR(F32, 5, 3, 2));
    expect_two(OP_matmul, "f32[5, 4]", TENSOR(F32, 5, 4, 3), TENSOR(F32, 3));
    expect_two(OP_matmul, "f32[7, 5, 4, 2]", TENSOR(F32, 5, 4, 3), TENSOR(F32, 7, 1, 3, 2));
    expect_two(OP_matmul, "!matmul: inner sizes differ: f32[4, 3] x f32[5, 2]", TENSOR(F32, 4, 3),
               TENSOR(F32, 5, 2));
    expect_two(OP_matmul, "!matmul: both need at least one dimension: f32[] x f32[5, 2]",
               ZERO_DIM(F32), TENSOR(F32, 5, 2));
}

static void test_reduce(void **state) {
    (void)state;
    Attrs attrs = attrs_default(OP_sum);
    expect_infer(OP_sum, &attrs, "i64[]", TENSOR(BOOL, 2, 3));
    assert_int_equal(attr_dims(&attrs, ATTR_sum_dim).count, 2); /* CB_ALL spelled out */
    attr_set_dims(&attrs, ATTR_sum_dim, cb_dims(-1, 0));
    attrs.word[ATTR_sum_keepdim] = 1;
    expect_infer(OP_sum, &attrs, "f16[1, 3, 1]", TENSOR(F16, 2, 3, 4));
    assert_int_equal(attr_dims(&attrs, ATTR_sum_dim).at[1], 2);
    attr_set_dims(&attrs, ATTR_sum_dim, cb_dims(1, -2));
    expect_infer(OP_sum, &attrs, "!sum: dim 1 is given twice: f32[2, 3, 4]", TENSOR(F32, 2, 3, 4));
    attr_set_dims(&attrs, ATTR_sum_dim, cb_dims(3));
    expect_infer(OP_sum, &attrs, "!sum: dim 3 is outside of -2..1: f32[2, 3]", TENSOR(F32, 2, 3));
    attrs = attrs_default(OP_amax);
    attr_set_dims(&attrs, ATTR_amax_dim, cb_dims(0));
    expect_infer(OP_amax, &attrs, "!amax: dim 0 is empty and has no extreme value: f32[0, 3]",
                 TENSOR(F32, 0, 3));
    attr_set_dims(&attrs, ATTR_amax_dim, cb_dims(1));
    expect_infer(OP_amax, &attrs, "f32[0]", TENSOR(F32, 0, 3));
    attr_set_dims(&attrs, ATTR_amax_dim, cb_dims(-1));
    expect_infer(OP_amax, &attrs, "f32[]", ZERO_DIM(F32));
    attrs = attrs_default(OP_cumsum);
    attrs.word[ATTR_cumsum_dim] = -1;
    expect_infer(OP_cumsum, &attrs, "i64[2, 3]", TENSOR(U8, 2, 3));
    assert_int_equal(attrs.word[ATTR_cumsum_dim], 1);
}

static void expect_sizes(Op op, int word, cb_dim_list sizes, const char *expected, Meta x) {
    Attrs attrs = attrs_default(op);
    attr_set_dims(&attrs, word, sizes);
    expect_infer(op, &attrs, expected, x);
}

static void test_view_shapes(void **state) {
    (void)state;
    expect_sizes(OP_reshape, 0, cb_dims(3, -1), "f32[3, 4]", TENSOR(F32, 2, 6));
    expect_sizes(OP_reshape, 0, CB_NO_DIMS, "f32[]", TENSOR(F32, 1));
    expect_sizes(OP_reshape, 0, cb_dims(5, -1),
                 "!reshape: no sizes [5, -1]: 12 elements are no multiple of 5: f32[2, 6]",
                 TENSOR(F32, 2, 6));
    expect_sizes(OP_reshape, 0, cb_dims(-1, 0),
                 "!reshape: -1 may be any size beside a size of 0: f32[0, 6]", TENSOR(F32, 0, 6));
    expect_sizes(OP_expand, 0, cb_dims(5, -1, 4), "f32[5, 3, 4]", TENSOR(F32, 3, 1));
    expect_sizes(OP_expand, 0, cb_dims(-1, 3, 4), "!expand: size -1 cannot be taken: f32[3, 1]",
                 TENSOR(F32, 3, 1));
    expect_sizes(OP_expand, 0, cb_dims(3, 4),
                 "!expand: a dimension of size 2 does not expand to 4: f32[3, 2]",
                 TENSOR(F32, 3, 2));
    expect_sizes(OP_permute, 0, cb_dims(-1, 0, 1), "f32[4, 2, 3]", TENSOR(F32, 2, 3, 4));
    expect_sizes(OP_permute, 0, cb_dims(0, 0), "!permute: dim 0 is given twice: f32[2, 3]",
                 TENSOR(F32, 2, 3));
    expect_sizes(OP_squeeze, 0, CB_ALL, "f32[3]", TENSOR(F32, 1, 3, 1));
    expect_sizes(OP_squeeze, 0, cb_dims(0, 1), "f32[3, 1]", TENSOR(F32, 1, 3, 1));
    expect_sizes(OP_flip, 0, cb_dims(-1), "f32[2, 3]", TENSOR(F32, 2, 3));
    Attrs attrs = attrs_default(OP_flatten);
    expect_infer(OP_flatten, &attrs, "f32[1]", ZERO_DIM(F32));
    attrs = attrs_default(OP_flatten);
    attrs.word[ATTR_flatten_start_dim] = 1;
    expect_infer(OP_flatten, &attrs, "f32[2, 12]", TENSOR(F32, 2, 3, 4));
    attrs = attrs_default(OP_unflatten);
    attrs.word[ATTR_unflatten_dim] = 1;
    attr_set_dims(&attrs, ATTR_unflatten_sizes, cb_dims(-1, 4));
    expect_infer(OP_unflatten, &attrs, "f32[2, 3, 4]", TENSOR(F32, 2, 12));
    attrs = attrs_default(OP_unsqueeze);
    attrs.word[ATTR_unsqueeze_dim] = -1;
    expect_infer(OP_unsqueeze, &attrs, "f32[2, 1]", TENSOR(F32, 2));
    attrs = attrs_default(OP_select);
    attrs.word[ATTR_select_dim] = -1;
    attrs.word[ATTR_select_index] = -1;
    expect_infer(OP_select, &attrs, "f32[2]", TENSOR(F32, 2, 5));
    assert_int_equal(attrs.word[ATTR_select_index], 4);
    attrs.word[ATTR_select_index] = 5;
    expect_infer(OP_select, &attrs, "!select: index 5 is outside of dim 1 of size 5: f32[2, 5]",
                 TENSOR(F32, 2, 5));
}

static void expect_slice(int64_t start, int64_t end, int64_t step, int64_t count) {
    Attrs attrs = attrs_default(OP_slice);
    attrs.word[ATTR_slice_start] = start;
    attrs.word[ATTR_slice_end] = end;
    attrs.word[ATTR_slice_step] = step;
    Inferred out;
    Meta x = TENSOR(F32, 10);
    assert_true(op_infer(OP_slice, &x, 1, &attrs, &out));
    assert_int_equal(out.result.size[0], count);
    Attrs again = attrs; /* canonical attributes infer to themselves */
    assert_true(op_infer(OP_slice, &x, 1, &again, &out));
    assert_memory_equal(&again, &attrs, sizeof attrs);
}

static void test_slices(void **state) {
    (void)state;
    expect_slice(0, INT64_MAX, 1, 10);
    expect_slice(-3, INT64_MAX, 1, 3);
    expect_slice(-30, -2, 1, 8);
    expect_slice(7, 3, 1, 0);
    expect_slice(20, 30, 1, 0);
    expect_slice(1, 10, 4, 3);
    expect_slice(INT64_MIN, INT64_MAX, INT64_MAX, 1);
    Attrs attrs = attrs_default(OP_slice);
    attrs.word[ATTR_slice_step] = 0;
    expect_infer(OP_slice, &attrs, "!slice: step 0 is not positive: f32[10]", TENSOR(F32, 10));
}

static void test_index_shapes(void **state) {
    (void)state;
    expect_two(OP_concat, "f32[5, 3]", TENSOR(F32, 2, 3), TENSOR(I64, 3, 3));
    expect_two(OP_concat, "!concat: sizes of dim 1 differ: f32[2, 3], f32[2, 4]", TENSOR(F32, 2, 3),
               TENSOR(F32, 2, 4));
    Attrs attrs = attrs_default(OP_pad);
    attr_set_dims(&attrs, ATTR_pad_padding, cb_dims(1, 0, 2, 2));
    expect_infer(OP_pad, &attrs, "f32[6, 4]", TENSOR(F32, 2, 3));
    attr_set_dims(&attrs, ATTR_pad_padding, cb_dims(-1, -1));
    expect_infer(OP_pad, &attrs, "f32[2, 1]", TENSOR(F32, 2, 3));
    attr_set_dims(&attrs, ATTR_pad_padding, cb_dims(1));
    expect_infer(OP_pad, &attrs, "!pad: padding needs pairs, at most one per dimension: f32[2, 3]",
                 TENSOR(F32, 2, 3));
    attrs = attrs_default(OP_argtopk);
    attrs.word[ATTR_argtopk_k] = 2;
    expect_infer(OP_argtopk, &attrs, "i64[3, 2]", TENSOR(F32, 3, 5));
    attrs.word[ATTR_argtopk_k] = 6;
    expect_infer(OP_argtopk, &attrs, "!argtopk: k 6 is outside of dim 1 of size 5: f32[3, 5]",
                 TENSOR(F32, 3, 5));
    attrs = attrs_default(OP_scatter);
    Meta scatter[3] = {TENSOR(F32, 3, 5), TENSOR(I64, 2, 9), TENSOR(F32, 2, 9)};
    attrs.word[ATTR_scatter_dim] = 1;
    assert_string_equal(infer_text(OP_scatter, &attrs, scatter, 3), "f32[3, 5]");
    scatter[2] = TENSOR(F32, 1, 9);
    assert_string_equal(infer_text(OP_scatter, &attrs, scatter, 3),
                        "!scatter: the index is larger than the source in dim 0: "
                        "f32[3, 5], i64[2, 9], f32[1, 9]");
    scatter[2] = TENSOR(F32, 2, 8);
    assert_string_equal(infer_text(OP_scatter, &attrs, scatter, 3),
                        "!scatter: the index is larger than the source in dim 1: "
                        "f32[3, 5], i64[2, 9], f32[2, 8]");
    scatter[1] = TENSOR(F32, 2, 9);
    scatter[2] = TENSOR(F32, 1, 9);
    assert_string_equal(infer_text(OP_scatter, &attrs, scatter, 3),
                        "!scatter: f32 is not an index dtype: f32[3, 5], f32[2, 9], f32[1, 9]");
}

static void test_layer_shapes(void **state) {
    (void)state;
    Attrs attrs = attrs_default(OP_convolution);
    Meta image[3] = {TENSOR(F32, 1, 4, 5, 5), TENSOR(F32, 3, 2, 1, 1), TENSOR(F32, 3)};
    attrs.word[ATTR_convolution_groups] = 2;
    assert_non_null(strstr(infer_text(OP_convolution, &attrs, image, 2),
                           "!convolution: 2 groups do not divide 4 channels into 3"));
    image[1] = TENSOR(F32, 6, 2, 1, 1);
    assert_string_equal(infer_text(OP_convolution, &attrs, image, 2), "f32[1, 6, 5, 5]");
    attrs = attrs_default(OP_attention);
    Meta words[4] = {TENSOR(F32, 2, 8), TENSOR(F32, 5, 8), TENSOR(F32, 5, 7), TENSOR(BOOL, 2, 5)};
    assert_string_equal(infer_text(OP_attention, &attrs, words, 4), "f32[2, 7]");
    for (int values = 4; values < 7; values += 2) { /* less and more of them than keys */
        words[2] = TENSOR(F32, values, 7);
        assert_non_null(strstr(infer_text(OP_attention, &attrs, words, 4),
                               "!attention: key and value have different lengths"));
    }
    cb_clear_error();
}

static void test_sources(void **state) {
    (void)state;
    Attrs attrs = attrs_default(OP_arange);
    attrs.word[ATTR_arange_start] = 10;
    attrs.word[ATTR_arange_step] = -3;
    assert_string_equal(infer_text(OP_arange, &attrs, NULL, 0), "i64[4]");
    attrs.word[ATTR_arange_step] = 1;
    assert_string_equal(infer_text(OP_arange, &attrs, NULL, 0),
                        "!arange: step 1 leads away from the end");
    attrs = attrs_default(OP_full);
    attr_set_dims(&attrs, ATTR_full_sizes, cb_dims(2, 0));
    attrs.word[ATTR_full_dtype] = CB_SAME;
    attr_set_number(&attrs, ATTR_full_value, cb_operand_float(1));
    assert_string_equal(infer_text(OP_full, &attrs, NULL, 0), "f32[2, 0]");
    attr_set_dims(&attrs, ATTR_full_sizes, cb_dims(INT64_MAX / 2, 0, 3));
    assert_string_equal(infer_text(OP_full, &attrs, NULL, 0),
                        "!full: the result has too many elements");
    attr_set_dims(&attrs, ATTR_full_sizes, cb_dims(-1));
    assert_string_equal(infer_text(OP_full, &attrs, NULL, 0), "!full: size -1 is negative");
    cb_clear_error();
}

/* Element i of a view, read through its strides, against the same element by the op's
 * definition. */
static bool reshape_works(Meta from, const int64_t *stride, cb_dim_list sizes, int64_t *out) {
    Attrs attrs = attrs_default(OP_reshape);
    attr_set_dims(&attrs, ATTR_reshape_sizes, sizes);
    Inferred inferred;
    int64_t offset;
    assert_true(op_infer(OP_reshape, &from, 1, &attrs, &inferred));
    return view_strides(OP_reshape, &attrs, &from, &inferred.result, stride, 7, out, &offset);
}

static void test_view_strides(void **state) {
    (void)state;
    int64_t out[CB_MAX_RANK];
    assert_true(reshape_works(TENSOR(F32, 4, 6), (int64_t[]){6, 1}, cb_dims(2, 2, 3, 2), out));
    assert_memory_equal(out, ((int64_t[]){12, 6, 2, 1}), 4 * sizeof *out);
    assert_false(reshape_works(TENSOR(F32, 3, 2), (int64_t[]){1, 3}, cb_dims(6), out));
    assert_true(reshape_works(TENSOR(F32, 4, 6), (int64_t[]){12, 2}, cb_dims(24), out));
    assert_int_equal(out[0], 2);
    assert_true(reshape_works(TENSOR(F32, 4, 6), (int64_t[]){10, 1}, cb_dims(2, 2, 6), out));
    assert_memory_equal(out, ((int64_t[]){20, 10, 1}), 3 * sizeof *out);
    assert_false(reshape_works(TENSOR(F32, 4, 6), (int64_t[]){10, 1}, cb_dims(24), out));
    assert_true(reshape_works(TENSOR(F32, 4, 1, 6), (int64_t[]){6, 99, 1}, cb_dims(24), out));
    assert_true(reshape_works(TENSOR(F32, 0, 6), (int64_t[]){1, 1}, cb_dims(3, 0), out));
    Attrs attrs = attrs_default(OP_slice);
    attrs.word[ATTR_slice_dim] = 1, attrs.word[ATTR_slice_start] = 2,
    attrs.word[ATTR_slice_step] = 3;
    Meta x = TENSOR(F32, 4, 9);
    Inferred inferred;
    int64_t offset;
    assert_true(op_infer(OP_slice, &x, 1, &attrs, &inferred));
    assert_true(
        view_strides(OP_slice, &attrs, &x, &inferred.result, (int64_t[]){9, 1}, 5, out, &offset));
    assert_int_equal(offset, 7);
    assert_memory_equal(out, ((int64_t[]){9, 3}), 2 * sizeof *out);
}

static void test_view_canonical(void **state) {
    (void)state;
    Attrs attrs = attrs_default(OP_transpose), out;
    attrs.word[ATTR_transpose_dim0] = 0, attrs.word[ATTR_transpose_dim1] = -1;
    Meta x = TENSOR(F32, 2, 3, 4);
    Inferred inferred;
    assert_true(op_infer(OP_transpose, &x, 1, &attrs, &inferred));
    assert_int_equal(view_canonical(OP_transpose, &attrs, &x, &inferred.result, &out), OP_permute);
    cb_dim_list dims = attr_dims(&out, ATTR_permute_dims);
    assert_int_equal(dims.count, 3);
    assert_memory_equal(dims.at, ((int64_t[]){2, 1, 0}), 3 * sizeof *dims.at);
    attrs = attrs_default(OP_narrow);
    attrs.word[ATTR_narrow_start] = 1, attrs.word[ATTR_narrow_length] = 1;
    assert_true(op_infer(OP_narrow, &x, 1, &attrs, &inferred));
    assert_int_equal(view_canonical(OP_narrow, &attrs, &x, &inferred.result, &out), OP_slice);
    assert_int_equal(out.word[ATTR_slice_end], 2);
}

static void test_half(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) { /* every value survives the round trip */
        uint16_t half = (uint16_t)bits;
        if ((bits & 0x7c00) != 0x7c00 || !(bits & 0x3ff))
            assert_int_equal(f16_from_f32(f16_to_f32(half)), half);
        if ((bits & 0x7f80) != 0x7f80 || !(bits & 0x7f))
            assert_int_equal(bf16_from_f32(bf16_to_f32(half)), half);
    }
    assert_int_equal(f16_from_f32(65519.0f), 0x7bff);
    assert_int_equal(f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(f16_from_f32(1e9f), 0x7c00);
    assert_int_equal(f16_from_f32(0x1p-25f), 0); /* a tie, to even */
    assert_int_equal(f16_from_f32(0x1.8p-25f), 1);
    assert_int_equal(f16_from_f32(1.0f + 0x1p-11f), 0x3c00);
    assert_int_equal(f16_from_f32(1.0f + 0x3p-11f), 0x3c02);
    assert_int_equal(f16_from_f32(-0x1.ff8p-15f), 0x83ff); /* the greatest denormal */
    assert_true(isnan(f16_to_f32(f16_from_f32(NAN))));
    assert_true(isnan(bf16_to_f32(bf16_from_f32(NAN))));
    assert_int_equal(bf16_from_f32(1.0f + 0x1p-8f), 0x3f80);
    assert_int_equal(bf16_from_f32(INFINITY), 0x7f80);
}

static double eval_float(Op op, cb_dtype dtype, double a, double b) {
    return scalar_eval(op, dtype, (Scalar[]){{.f = a}, {.f = b}}).f;
}

static int64_t eval_int(Op op, cb_dtype dtype, int64_t a, int64_t b) {
    return scalar_eval(op, dtype, (Scalar[]){{.i = a}, {.i = b}}).i;
}

static void test_scalar_eval(void **state) {
    (void)state;
    assert_int_equal(eval_int(OP_mul, CB_U8, 200, 2), 144);
    assert_int_equal(eval_int(OP_add, CB_BOOL, 1, 1), 1);
    assert_int_equal(eval_int(OP_bitwise_not, CB_BOOL, 1, 0), 0);
    assert_int_equal(eval_int(OP_bitwise_not, CB_U8, 1, 0), 254);
    assert_int_equal(eval_int(OP_add, CB_I64, INT64_MAX, 1), INT64_MIN);
    assert_int_equal(eval_int(OP_floor_divide, CB_I32, -7, 2), -4);
    assert_int_equal(eval_int(OP_remainder, CB_I32, -7, 2), 1);
    assert_int_equal(eval_int(OP_isfinite, CB_I64, INT64_MAX, 0), 1);
    assert_int_equal(eval_int(OP_isinf, CB_I64, INT64_MAX, 0), 0);
    assert_true(eval_float(OP_add, CB_F32, 1.0, 0x1p-25) == 1.0);
    assert_true(eval_float(OP_add, CB_F64, 1.0, 0x1p-25) > 1.0);
    assert_true(eval_float(OP_add, CB_F16, 2048.0, 1.0) == 2048.0);
    assert_true(fabs(eval_float(OP_exp, CB_F64, 1.0, 0) - 2.718281828459045) < 1e-15);
    assert_true(isnan(eval_float(OP_maximum, CB_F32, NAN, 1.0)));
    assert_true(isnan(eval_float(OP_maximum, CB_F32, 1.0, NAN)));
    assert_true(isnan(eval_float(OP_relu, CB_F32, NAN, 0)));
    assert_int_equal(scalar_eval(OP_lt, CB_F32, (Scalar[]){{.f = 1}, {.f = 2}}).i, 1);
    assert_true(scalar_eval(OP_where, CB_F32, (Scalar[]){{.i = 0}, {.f = 2}, {.f = 3}}).f == 3);
}

static void test_scalar_convert(void **state) {
    (void)state;
    assert_int_equal(scalar_convert((Scalar){.f = -1.9}, CB_F32, CB_I32).i, -1);
    assert_int_equal(scalar_convert((Scalar){.f = 300}, CB_F32, CB_U8).i, 44);
    assert_int_equal(scalar_convert((Scalar){.f = NAN}, CB_F32, CB_I64).i, 0);
    assert_int_equal(scalar_convert((Scalar){.f = NAN}, CB_F32, CB_BOOL).i, 1);
    assert_int_equal(scalar_convert((Scalar){.f = 0.5}, CB_F32, CB_BOOL).i, 1);
    assert_int_equal(scalar_convert((Scalar){.f = 1e300}, CB_F64, CB_I64).i, INT64_MIN);
    assert_int_equal(scalar_convert((Scalar){.f = 0x1p63}, CB_F32, CB_I64).i, INT64_MIN);
    assert_int_equal(scalar_convert((Scalar){.f = -1e300}, CB_F64, CB_I64).i, INT64_MIN);
    assert_int_equal(scalar_convert((Scalar){.i = 200}, CB_I64, CB_I8).i, -56);
    assert_int_equal(scalar_convert((Scalar){.i = 40000}, CB_I64, CB_I16).i, 40000 - 65536);
    assert_true(scalar_convert((Scalar){.i = 16777217}, CB_I64, CB_F32).f == 16777216.0);
    Scalar above_half = {.i = (1ll << 60) + (1ll << 36) + 1}; /* a tie, when it was an f64 before */
    assert_true(scalar_convert(above_half, CB_I64, CB_F32).f == 0x1p60 + 0x1p37);
    assert_true(scalar_convert(above_half, CB_I64, CB_F64).f == 0x1p60 + 0x1p36);
    assert_true(scalar_convert((Scalar){.f = 1e6}, CB_F64, CB_F16).f == INFINITY);
    for (cb_dtype dtype = 0; dtype < CB_DTYPE_COUNT; dtype++) {
        char bytes[8];
        Scalar one = scalar_convert((Scalar){.i = 1}, CB_I64, dtype);
        scalar_store(bytes, dtype, one);
        Scalar back = scalar_load(bytes, dtype);
        assert_int_equal(scalar_convert(back, dtype, CB_I64).i, 1);
    }
    assert_int_equal(scalar_identity(OP_amax, CB_I8).i, -128);
    assert_true(scalar_identity(OP_amin, CB_F32).f == INFINITY);
    assert_true(scalar_identity(OP_amax, CB_F32).f == -INFINITY);
    assert_int_equal(scalar_identity(OP_all, CB_BOOL).i, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_attrs),
        cmocka_unit_test(test_shared_parameters),
        cmocka_unit_test(test_promotion_lattice),
        cmocka_unit_test(test_weak_inputs),
        cmocka_unit_test(test_input_dtypes),
        cmocka_unit_test(test_dtype_errors),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_view_shapes),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_index_shapes),
        cmocka_unit_test(test_layer_shapes),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_view_strides),
        cmocka_unit_test(test_view_canonical),
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_scalar_eval),
        cmocka_unit_test(test_scalar_convert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
