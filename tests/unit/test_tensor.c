/* Tensors: construction, metadata, views, reads, dispatch, many tensors, random state. */
#include "fixture.h"

#include "eager/apply.h"
#include "inside.h"
#include "tensor/random.h"
#include <math.h>
#include <string.h>

/* 0, 1, 2, ... */
static cb_tensor *count_up(cb_dim_list sizes, cb_dtype dtype) {
    cb_tensor *x = cb_empty(sizes, dtype);
    char *data = cb_data(x);
    for (int64_t i = 0; i < cb_numel(x); i++) {
        Scalar value = scalar_convert((Scalar){.i = i}, CB_I64, dtype);
        scalar_store(data + (size_t)i * cb_dtype_size(dtype), dtype, value);
    }
    return x;
}

static void expect_values(cb_tensor *x, int count, const double *expected) {
    double got[64];
    assert_non_null(x);
    assert_int_equal(cb_numel(x), count);
    assert_int_equal(cb_read(x, got, CB_F64), CB_OK);
    for (int i = 0; i < count; i++) assert_float_equal(got[i], expected[i], 0);
}
#define EXPECT(x, ...)                                                                             \
    expect_values((x), (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)),                    \
                  (const double[]){__VA_ARGS__})

/* ---- construction and metadata --------------------------------------------------------------- */

static void test_metadata(void **state) {
    (void)state;
    cb_tensor *x = cb_from_data((const float[]){1, 2, 3, 4, 5, 6}, CB_F32, cb_dims(2, 3));
    assert_int_equal(cb_rank(x), 2);
    assert_int_equal(cb_size(x, 0), 2);
    assert_int_equal(cb_size(x, -1), 3);
    assert_int_equal(cb_stride(x, 0), 3);
    assert_int_equal(cb_stride(x, -1), 1);
    assert_int_equal(cb_numel(x), 6);
    assert_int_equal(cb_dtype_of(x), CB_F32);
    assert_true(cb_is_contiguous(x));
    EXPECT(x, 1, 2, 3, 4, 5, 6);
    cb_tensor *scalar = cb_empty(CB_NO_DIMS, CB_I64);
    assert_int_equal(cb_rank(scalar), 0);
    assert_int_equal(cb_numel(scalar), 1);
    assert_true(cb_is_contiguous(scalar));
    cb_tensor *empty = cb_from_data(NULL, CB_F64, cb_dims(2, 0, 3));
    assert_int_equal(cb_numel(empty), 0);
    assert_int_equal(cb_stride(empty, 0), 3); /* zeros count as ones, as in PyTorch */
    assert_true(cb_is_contiguous(empty));
    assert_int_equal(tensor_span_bytes(tensor_at(empty)), 0);
    assert_non_null(cb_data(empty));
}

static void test_alignment(void **state) {
    (void)state;
    for (int64_t bytes = 0; bytes < 3000; bytes += 37) {
        cb_tensor *x = cb_empty(cb_dims(bytes), CB_U8);
        assert_int_equal((uintptr_t)cb_data(x) % 64, 0);
        memset(cb_data(x), 1, (size_t)bytes);
    }
    for (int64_t megabytes = 1; megabytes < 20; megabytes += 3) {
        cb_tensor *x = cb_empty(cb_dims(megabytes << 20), CB_U8);
        assert_int_equal((uintptr_t)cb_data(x) % 64, 0);
        ((char *)cb_data(x))[(megabytes << 20) - 1] = 1;
    }
}

static void test_bad_construction(void **state) {
    (void)state;
    assert_null(cb_empty(cb_dims(2, -1), CB_F32));
    expect_status(CB_ERR_SHAPE, "empty: size -1 of dimension 1 is negative");
    assert_null(cb_empty(CB_ALL, CB_F32));
    expect_status(CB_ERR_SHAPE, "empty: -1 sizes");
    assert_null(cb_empty((cb_dim_list){.count = 9}, CB_F32));
    expect_status(CB_ERR_SHAPE, "empty: 9 sizes; a tensor has 0 to 8 dimensions");
    assert_null(cb_empty(cb_dims(2), (cb_dtype)CB_DTYPE_COUNT));
    char text[64];
    snprintf(text, sizeof text, "empty: %d is not a dtype", (int)CB_DTYPE_COUNT);
    expect_status(CB_ERR_DTYPE, text);
    assert_null(cb_empty(cb_dims(2), CB_SAME));
    expect_status(CB_ERR_DTYPE, "empty: -1 is not a dtype");
    assert_null(cb_empty(cb_dims(1LL << 40, 1LL << 40), CB_F32));
    expect_status(CB_ERR_SHAPE, "overflows");
    assert_null(cb_empty(cb_dims(1LL << 40, 0, 1LL << 40), CB_F32));
    expect_status(CB_ERR_SHAPE, "overflows");
    assert_null(cb_empty(cb_dims(1LL << 60), CB_U8));
    expect_status(CB_ERR_MEMORY, "out of memory");
    assert_null(cb_from_data(NULL, CB_F32, cb_dims(3)));
    expect_status(CB_ERR_ARGUMENT, "from_data: data is NULL");
}

static void test_null_arguments(void **state) {
    (void)state;
    assert_int_equal(cb_rank(NULL), -1);
    expect_status(CB_ERR_ARGUMENT, "rank: x is NULL");
    assert_int_equal(cb_size(NULL, 0), -1);
    expect_status(CB_ERR_ARGUMENT, "size: x is NULL");
    assert_int_equal(cb_stride(NULL, 0), -1);
    assert_int_equal(cb_numel(NULL), -1);
    expect_status(CB_ERR_ARGUMENT, "stride: x is NULL"); /* the first of the two */
    assert_int_equal(cb_dtype_of(NULL), CB_SAME);
    assert_false(cb_is_contiguous(NULL));
    assert_false(cb_shares_storage(NULL, NULL));
    expect_status(CB_ERR_ARGUMENT, "dtype_of: x is NULL");
    assert_true(isnan(cb_item(NULL)));
    expect_status(CB_ERR_ARGUMENT, "item: x is NULL");
    assert_int_equal(cb_item_int(NULL), 0);
    expect_status(CB_ERR_ARGUMENT, "item_int: x is NULL");
    assert_null(cb_data(NULL));
    expect_status(CB_ERR_ARGUMENT, "data: x is NULL");
    float out;
    assert_int_equal(cb_read(NULL, &out, CB_F32), CB_ERR_ARGUMENT);
    expect_status(CB_ERR_ARGUMENT, "read: x is NULL");
    assert_null(cb_keep(NULL));
    assert_null(cb_scope_add(NULL));
    cb_free(NULL);
    assert_null(cb_error());
    cb_tensor *x = cb_empty(cb_dims(2, 3), CB_F32);
    assert_int_equal(cb_size(x, 2), -1);
    expect_status(CB_ERR_INDEX, "size: f32[2, 3] has no dimension 2");
    assert_int_equal(cb_stride(x, -3), -1);
    expect_status(CB_ERR_INDEX, "stride: f32[2, 3] has no dimension -3");
}

/* ---- views ----------------------------------------------------------------------------------- */

static void test_views(void **state) {
    (void)state;
    cb_tensor *x = count_up(cb_dims(2, 3), CB_I32);
    cb_tensor *y = cb_transpose(x, 0, 1);
    EXPECT(y, 0, 3, 1, 4, 2, 5);
    assert_true(cb_shares_storage(x, y));
    assert_false(cb_is_contiguous(y));
    EXPECT(cb_reshape(x, cb_dims(3, -1)), 0, 1, 2, 3, 4, 5);
    EXPECT(cb_view(x, cb_dims(6)), 0, 1, 2, 3, 4, 5);
    EXPECT(cb_select(y, 0, 2), 2, 5);
    EXPECT(cb_slice(x, 1, 0, 3, 2), 0, 2, 3, 5);
    EXPECT(cb_expand(cb_slice(x, 1, 1, 2), cb_dims(2, 2)), 1, 1, 4, 4);
    EXPECT(cb_permute(cb_unsqueeze(x, 0), cb_dims(2, 0, 1)), 0, 3, 1, 4, 2, 5);
    cb_tensor *last = cb_select(cb_select(x, 0, 1), 0, 2);
    assert_int_equal(cb_rank(last), 0);
    *(int32_t *)cb_data(last) = 50;
    EXPECT(x, 0, 1, 2, 3, 4, 50);
    assert_int_equal(tensor_span_bytes(tensor_at(y)), 24);
    assert_int_equal(tensor_span_bytes(tensor_at(cb_select(y, 0, 0))), 16);
    assert_null(cb_error());
}

static void test_view_needs_strides(void **state) {
    (void)state;
    cb_tensor *x = cb_empty(cb_dims(2, 3), CB_F32);
    assert_null(cb_view(cb_t(x), cb_dims(6)));
    expect_status(CB_ERR_SHAPE, "use reshape");
    assert_null(cb_view(x, cb_dims(5)));
    assert_int_equal(cb_error_status(), CB_ERR_SHAPE);
    cb_clear_error();
}

static void test_views_of_leading_ones(void **state) {
    (void)state;
    cb_tensor *line = cb_zeros(4), *table = cb_zeros(cb_dims(2, 3));
    cb_fill_(cb_view(line, cb_dims(1, 4)), 2);
    cb_fill_(cb_reshape(cb_t(table), cb_dims(1, 3, 2)), 4);
    assert_true(cb_item(cb_sum(line)) == 8 && cb_item(cb_sum(table)) == 24);
    assert_non_null(cb_view(cb_t(table), cb_dims(1, 3, 1, 2)));
}

static void test_identities_share(void **state) {
    (void)state;
    cb_tensor *x = count_up(cb_dims(2, 3), CB_F32);
    cb_tensor *same[] = {cb_contiguous(x), cb_to(x, CB_F32), cb_to(x, CB_SAME),
                         cb_reshape(x, cb_dims(2, 3)), cb_to(cb_t(x), CB_F32)};
    for (int i = 0; i < 5; i++) {
        assert_non_null(same[i]);
        assert_ptr_not_equal(same[i], x);
        assert_true(cb_shares_storage(same[i], x));
    }
    assert_int_equal(cb_stride(same[4], 0), 1);
}

static void test_view_outlives_base(void **state) {
    (void)state;
    cb_tensor *x = count_up(cb_dims(4), CB_F32);
    cb_tensor *y = cb_narrow(x, 0, 2, 2);
    cb_free(x);
    EXPECT(y, 2, 3);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void test_read_pairs(void **state) {
    (void)state;
    for (cb_dtype from = 0; from < CB_DTYPE_COUNT; from++) {
        cb_tensor *x = cb_transpose(count_up(cb_dims(3, 2, 5), from), 0, 2); /* 5, 2, 3 */
        for (cb_dtype to = 0; to < CB_DTYPE_COUNT; to++) {
            char out[30 * 8];
            assert_int_equal(cb_read(x, out, to), CB_OK);
            for (int k = 0; k < 30; k++) {
                int64_t source = k / 6 + k / 3 % 2 * 5 + k % 3 * 10;
                Scalar stored = scalar_convert((Scalar){.i = source}, CB_I64, from);
                Scalar expected = scalar_convert(stored, from, to);
                Scalar got = scalar_load(out + (size_t)k * cb_dtype_size(to), to);
                if (dtype_is_float(to))
                    assert_float_equal(got.f, expected.f, 0);
                else
                    assert_int_equal(got.i, expected.i);
            }
        }
    }
}

static void test_read_long_runs(void **state) {
    (void)state;
    cb_tensor *x = count_up(cb_dims(3000), CB_I32);
    static double out[3000];
    assert_int_equal(cb_read(cb_slice(x, 0, 1, 3000, 2), out, CB_F64), CB_OK);
    for (int i = 0; i < 1500; i++) assert_float_equal(out[i], 2 * i + 1, 0);
    static int32_t same[3000];
    assert_int_equal(cb_read(cb_slice(x, 0, 1, 3000, 2), same, CB_I32), CB_OK);
    for (int i = 0; i < 1500; i++) assert_int_equal(same[i], 2 * i + 1);
    assert_int_equal(cb_read(cb_expand(cb_slice(x, 0, 7, 8), cb_dims(2, 4)), same, CB_I32), CB_OK);
    for (int i = 0; i < 8; i++) assert_int_equal(same[i], 7);
    assert_int_equal(cb_read(cb_empty(cb_dims(0), CB_F32), NULL, CB_F32), CB_OK);
    assert_int_equal(cb_read(x, NULL, CB_F32), CB_ERR_ARGUMENT);
    expect_status(CB_ERR_ARGUMENT, "read: out is NULL");
    assert_int_equal(cb_read(x, same, (cb_dtype)77), CB_ERR_DTYPE);
    expect_status(CB_ERR_DTYPE, "read: 77 is not a dtype");
}

static void test_read_extremes(void **state) {
    (void)state;
    const double values[] = {NAN, INFINITY, -INFINITY, -1.9, 300.7, 0.25};
    cb_tensor *x = cb_from_data(values, CB_F64, cb_dims(6));
    uint8_t bytes[6];
    int64_t wide[6];
    bool truth[6];
    assert_int_equal(cb_read(x, bytes, CB_U8), CB_OK);
    assert_int_equal(cb_read(x, wide, CB_I64), CB_OK);
    assert_int_equal(cb_read(x, truth, CB_BOOL), CB_OK);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(bytes[i], scalar_convert((Scalar){.f = values[i]}, CB_F64, CB_U8).i);
        assert_int_equal(wide[i], scalar_convert((Scalar){.f = values[i]}, CB_F64, CB_I64).i);
        assert_true(truth[i]);
    }
    const int64_t large[] = {INT64_MAX, INT64_MIN, (1LL << 53) + 1};
    cb_tensor *y = cb_from_data(large, CB_I64, cb_dims(3));
    float f[3];
    int64_t back[3];
    assert_int_equal(cb_read(y, f, CB_F32), CB_OK);
    assert_int_equal(cb_read(y, back, CB_I64), CB_OK);
    for (int i = 0; i < 3; i++) {
        assert_true(f[i] == (float)large[i]);
        assert_true(back[i] == large[i]);
    }
}

static void test_item(void **state) {
    (void)state;
    cb_tensor *x = cb_from_data((const float[]){1.75f, -2.5f}, CB_F32, cb_dims(2));
    cb_tensor *last = cb_select(x, 0, 1);
    assert_float_equal(cb_item(last), -2.5, 0);
    assert_int_equal(cb_item_int(last), -2);
    cb_tensor *big = cb_from_data((const int64_t[]){INT64_MAX}, CB_I64, cb_dims(1, 1));
    assert_true(cb_item_int(big) == INT64_MAX);
    assert_true(isnan(cb_item(x)));
    expect_status(CB_ERR_SHAPE, "item: f32[2] has 2 elements, not one");
    assert_int_equal(cb_item_int(cb_empty(cb_dims(0), CB_F32)), 0);
    expect_status(CB_ERR_SHAPE, "item_int: f32[0] has 0 elements, not one");
}

/* ---- dispatch -------------------------------------------------------------------------------- */

typedef struct Recorder {
    Tracer tracer;
    Op op;
    int applied, assigned, requested, destroyed;
} Recorder;

static Tensor *record_apply(Tracer *tracer, Op op, const cb_operand *input, int input_count,
                            const Attrs *attrs) {
    (void)attrs;
    Recorder *r = (Recorder *)tracer;
    r->op = op;
    r->applied++;
    Meta meta = tensor_meta(input[input_count - 1].tensor);
    Tensor *x = tensor_shell(&meta);
    x->trace = tracer->serial;
    return x;
}

static Tensor *record_assign(Tracer *tracer, Tensor *target, const cb_operand *value) {
    (void)value;
    ((Recorder *)tracer)->assigned++;
    return target;
}

static bool record_materialize(Tracer *tracer, Tensor *x, TensorAccess access) {
    (void)access;
    ((Recorder *)tracer)->requested++;
    if (x->storage) return true;
    x->storage = storage_new(tensor_span_bytes(x));
    memset(x->storage->data, 0, tensor_span_bytes(x));
    return true;
}

static void record_destroy(Tracer *tracer, Tensor *x) {
    (void)x;
    ((Recorder *)tracer)->destroyed++;
}

static void test_tracer(void **state) {
    (void)state;
    Recorder r = {.tracer = {.apply = record_apply,
                             .expect_two = apply_two_unexpected,
                             .assign = record_assign,
                             .materialize = record_materialize,
                             .destroy_tensor = record_destroy,
                             .serial = serial_next()}};
    cb_tensor *x = count_up(cb_dims(2), CB_F32);
    assert_null(tracer_set(&r.tracer));
    assert_ptr_equal(tracer_current(), &r.tracer);
    cb_tensor *y = cb_add(x, x);
    assert_int_equal(r.op, OP_add);
    assert_int_equal(cb_numel(y), 2);
    assert_null(tensor_data(tensor_at(y)));
    assert_ptr_equal(cb_assign(x, y), x);
    assert_null(cb_assign(x, cb_empty(cb_dims(3), CB_F32)));
    expect_status(CB_ERR_SHAPE, "assign: f32[3] does not broadcast to f32[2]");
    assert_int_equal(r.assigned, 1);
    cb_free(cb_t(y));
    assert_int_equal(r.destroyed, 1);
    EXPECT(y, 0, 0);
    cb_tensor *late = cb_mul(x, x);
    tracer_set(NULL);
    assert_int_equal(r.requested, 1);
    assert_int_equal(r.applied, 3);
    assert_null(cb_data(late));
    expect_status(CB_ERR_GRAPH, "f32[2] was traced");
    assert_null(cb_t(late));
    expect_status(CB_ERR_GRAPH, "t: input 0 was traced");
    assert_null(cb_assign(late, x));
    expect_status(CB_ERR_GRAPH, "assign: the target was traced");
}

static void test_null_operands(void **state) {
    (void)state;
    cb_tensor *x = cb_empty(cb_dims(2), CB_F32), *none = NULL;
    assert_null(cb_add(none, x));
    expect_status(CB_ERR_ARGUMENT, "add: input 0 (a) is NULL");
    assert_null(cb_matmul(x, none));
    expect_status(CB_ERR_ARGUMENT, "matmul: input 1 (b) is NULL");
    assert_null(cb_t(none));
    assert_null(cb_add(cb_t(none), 1.0));
    expect_status(CB_ERR_ARGUMENT, "t: input 0 (x) is NULL"); /* the first, and no second */
    assert_null(cb_assign(NULL, x));
    expect_status(CB_ERR_ARGUMENT, "assign: the target is NULL");
    assert_null(cb_assign(x, NULL));
    expect_status(CB_ERR_ARGUMENT, "assign: the value is NULL");
    assert_null(cb_fill_(NULL, 1));
    expect_status(CB_ERR_ARGUMENT, "fill_: the target is NULL");
    assert_null(cb_cat(&none, 1, 0));
    expect_status(CB_ERR_ARGUMENT, "cat: input 0 is NULL");
    assert_null(cb_sort(none, 0, false, NULL));
    expect_status(CB_ERR_ARGUMENT, "sort: input 0 (x) is NULL");
}

static void test_bad_assign(void **state) {
    (void)state;
    cb_tensor *x = cb_empty(cb_dims(2, 1), CB_F32);
    assert_null(cb_assign(x, cb_empty(cb_dims(2, 3), CB_F32)));
    expect_status(CB_ERR_SHAPE, "assign: f32[2, 3] does not broadcast to f32[2, 1]");
    assert_null(cb_assign(x, cb_empty(cb_dims(1, 2, 1), CB_F32)));
    expect_status(CB_ERR_SHAPE, "assign: f32[1, 2, 1] does not broadcast to f32[2, 1]");
    assert_null(cb_fill_(cb_expand(x, cb_dims(2, 3)), 1));
    expect_status(CB_ERR_SHAPE, "fill_: dimension 1 of the target is expanded");
    assert_null(cb_add_(x, cb_empty(cb_dims(2, 3), CB_F32)));
    expect_status(CB_ERR_SHAPE, "add_: f32[2, 3] does not broadcast to f32[2, 1]");
    assert_null(cb_relu_(cb_expand(x, cb_dims(2, 3))));
    expect_status(CB_ERR_SHAPE, "relu_: dimension 1 of the target is expanded");
    assert_null(cb_div_(cb_zeros(2, CB_I8), 2));
    expect_status(CB_ERR_DTYPE, "div_: a result of f32[2] does not fit i8[2] in place");
    assert_null(cb_mul_(cb_requires_grad_(cb_ones(2), true), 2));
    expect_status(CB_ERR_ARGUMENT, "mul_: the target requires a gradient");
    assert_null(cb_assign(cb_requires_grad_(cb_ones(2), true), cb_ones(2)));
    expect_status(CB_ERR_ARGUMENT, "assign: the target requires a gradient");
}

/* ---- several tensors ------------------------------------------------------------------------- */

static void test_split(void **state) {
    (void)state;
    cb_tensor *x = count_up(cb_dims(2, 5), CB_I64), *out[8];
    assert_int_equal(cb_split(x, 2, 1, out, 8), 3);
    EXPECT(out[0], 0, 1, 5, 6);
    EXPECT(out[2], 4, 9);
    assert_true(cb_shares_storage(out[1], x));
    assert_int_equal(cb_chunk(x, 3, -1, out, 8), 3);
    EXPECT(out[1], 2, 3, 7, 8);
    assert_int_equal(cb_chunk(x, 4, 1, out, 8), 3); /* ceil(5 / 4) elements each */
    cb_tensor *none = cb_empty(cb_dims(0, 2), CB_F32);
    assert_int_equal(cb_chunk(none, 3, 0, out, 8), 3);
    assert_int_equal(cb_size(out[2], 0), 0);
    assert_int_equal(cb_split(none, 0, 0, out, 8), 1);
    int64_t live = cb_memory().live_tensors;
    assert_int_equal(cb_split(x, 1, 1, out, 4), CB_ERR_ARGUMENT);
    expect_status(CB_ERR_ARGUMENT, "split: 5 pieces do not fit into an array of 4");
    assert_int_equal(cb_split(x, 0, 1, out, 8), CB_ERR_ARGUMENT);
    expect_status(CB_ERR_ARGUMENT, "pieces of size 0");
    assert_int_equal(cb_split(x, 1, 2, out, 8), CB_ERR_INDEX);
    expect_status(CB_ERR_INDEX, "split: dimension 2 is out of range [-2, 1]");
    assert_int_equal(cb_chunk(x, 0, 0, out, 8), CB_ERR_ARGUMENT);
    expect_status(CB_ERR_ARGUMENT, "chunk: 0 chunks");
    assert_int_equal(cb_memory().live_tensors, live);
}

static void test_bad_lists(void **state) {
    (void)state;
    cb_tensor *x[] = {cb_empty(cb_dims(2), CB_F32), cb_empty(cb_dims(3), CB_F32)};
    assert_null(cb_cat(x, 0, 0));
    expect_status(CB_ERR_ARGUMENT, "cat: expects at least one tensor");
    assert_null(cb_stack(NULL, 2, 0));
    expect_status(CB_ERR_ARGUMENT, "stack: expects at least one tensor");
    assert_null(cb_stack(x, 2, 0));
    expect_status(CB_ERR_SHAPE, "stack: input 1 is f32[3], input 0 is f32[2]");
    assert_null(cb_cat(x, 2, 1));
    expect_status(CB_ERR_INDEX, "cat: dimension 1 is out of range [-1, 0]");
    assert_null(cb_stack(x, 1, 2));
    expect_status(CB_ERR_INDEX, "stack: dimension 2 is out of range [-2, 1]");
}

/* Through a recording tracer: how many concats a list becomes, and that none is left over. */
static void test_join(void **state) {
    (void)state;
    Recorder r = {.tracer = {.apply = record_apply,
                             .expect_two = apply_two_unexpected,
                             .assign = record_assign,
                             .materialize = record_materialize,
                             .destroy_tensor = record_destroy,
                             .serial = serial_next()}};
    cb_tensor *x[7];
    for (int i = 0; i < 7; i++) x[i] = cb_empty(cb_dims(1), CB_F32);
    int64_t live = cb_memory().live_tensors;
    tracer_set(&r.tracer);
    cb_tensor *y = cb_cat(x, 7, 0);
    assert_non_null(y);
    assert_int_equal(r.applied, 6);
    assert_int_equal(cb_memory().live_tensors, live + 1);
    assert_non_null(cb_cat(x, 1, 0));
    assert_int_equal(r.op, OP_clone);
    r.applied = 0;
    assert_non_null(cb_stack(x, 7, 0));
    assert_int_equal(r.applied, 13);
    x[3] = cb_empty(cb_dims(0), CB_F32); /* left out */
    r.applied = 0;
    assert_non_null(cb_cat(x, 7, 0));
    assert_int_equal(r.applied, 5);
    tracer_set(NULL);
}

/* ---- random ---------------------------------------------------------------------------------- */

static void test_random_state(void **state) {
    (void)state;
    cb_manual_seed(7);
    RandomState a = random_take(3), b = random_take(1);
    assert_int_equal(a.seed, 7);
    assert_int_equal(a.offset, 0);
    assert_int_equal(b.offset, 3);
    cb_manual_seed(7);
    assert_int_equal(random_take(1).offset, 0);
}

int main(void) {
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_##name, open_scope, close_scope_without_tensors)
    const struct CMUnitTest tests[] = {
        TEST(metadata),
        TEST(alignment),
        TEST(bad_construction),
        TEST(null_arguments),
        TEST(views),
        TEST(view_needs_strides),
        TEST(views_of_leading_ones),
        TEST(identities_share),
        TEST(view_outlives_base),
        TEST(read_pairs),
        TEST(read_long_runs),
        TEST(read_extremes),
        TEST(item),
        TEST(tracer),
        TEST(null_operands),
        TEST(bad_assign),
        TEST(split),
        TEST(bad_lists),
        TEST(join),
        TEST(random_state),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
