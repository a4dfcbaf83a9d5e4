/* argsort and argtopk: order, stability, NaN, -0, every dtype, the three algorithms against a plain
 * sort. */
#include "each_fails.h"

#include "cpu/own.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void expect_order(cb_dtype dtype, const void *in, int64_t length, int64_t keep,
                         bool descending, const int64_t *expected) {
    SortTask task = {.dtype = dtype, .rows = 1, .length = length, .keep = keep, .element = 1};
    task.descending = descending;
    int64_t *out = malloc(sizeof *out * (size_t)(keep + 1));
    out[keep] = -7;
    assert_true(sort_run(&task, &(Operands){.in = {in}, .out = out}));
    for (int64_t i = 0; i < keep; i++) assert_int_equal(out[i], expected[i]);
    assert_int_equal(out[keep], -7);
    free(out);
}

static void nan_is_the_greatest(void **state) {
    (void)state;
    const float x[] = {2, NAN, -1, INFINITY, -INFINITY, -NAN, 0};
    expect_order(CB_F32, x, 7, 7, false, (int64_t[]){4, 2, 6, 0, 3, 1, 5});
    expect_order(CB_F32, x, 7, 7, true, (int64_t[]){1, 5, 3, 0, 6, 2, 4});
    const double y[] = {NAN, 1e-310, -1e300, NAN};
    expect_order(CB_F64, y, 4, 4, false, (int64_t[]){2, 1, 0, 3});
}

static void equal_elements_keep_their_order(void **state) {
    (void)state;
    const float zeros[] = {0.0f, -0.0f, 0.0f, -0.0f, -1.0f};
    expect_order(CB_F32, zeros, 5, 5, false, (int64_t[]){4, 0, 1, 2, 3});
    expect_order(CB_F32, zeros, 5, 5, true, (int64_t[]){0, 1, 2, 3, 4});
    const double wide[] = {0.0, -0.0, 0.0, -0.0, -1.0};
    expect_order(CB_F64, wide, 5, 5, false, (int64_t[]){4, 0, 1, 2, 3});
    expect_order(CB_F64, wide, 5, 5, true, (int64_t[]){0, 1, 2, 3, 4});
    const bool flags[] = {true, false, true, false};
    expect_order(CB_BOOL, flags, 4, 4, false, (int64_t[]){1, 3, 0, 2});
    expect_order(CB_BOOL, flags, 4, 4, true, (int64_t[]){0, 2, 1, 3});
}

static void extreme_integers(void **state) {
    (void)state;
    const int64_t x[] = {0, INT64_MAX, INT64_MIN, -1, 1};
    expect_order(CB_I64, x, 5, 5, false, (int64_t[]){2, 3, 0, 4, 1});
    const int32_t y[] = {0, INT32_MAX, INT32_MIN, -1, 1};
    expect_order(CB_I32, y, 5, 5, true, (int64_t[]){1, 4, 0, 3, 2});
    const int16_t z[] = {0, INT16_MAX, INT16_MIN};
    expect_order(CB_I16, z, 3, 3, false, (int64_t[]){2, 0, 1});
    const int8_t v[] = {0, 127, -128};
    expect_order(CB_I8, v, 3, 3, false, (int64_t[]){2, 0, 1});
    const uint8_t w[] = {0, 255, 128};
    expect_order(CB_U8, w, 3, 3, true, (int64_t[]){1, 2, 0});
}

/* Long rows whose order stands in the highest bytes of their elements. */
static void high_bytes_count(void **state) {
    (void)state;
    enum { N = 300 };
    int16_t i16[N];
    int32_t i32[N];
    int64_t i64[N], order[N];
    float f32[N];
    double f64[N];
    for (int i = 0; i < N; i++) {
        int rank = i * 7 % N - N / 2;
        i16[i] = (int16_t)(rank * (1 << 7)), i32[i] = rank * (1 << 23);
        i64[i] = rank * ((int64_t)1 << 55), f32[i] = (float)rank, f64[i] = rank;
        order[i] = i * 43 % N; /* 7 * 43 is 1 modulo N */
    }
    expect_order(CB_I16, i16, N, N, false, order);
    expect_order(CB_I32, i32, N, N, false, order);
    expect_order(CB_I64, i64, N, N, false, order);
    expect_order(CB_F32, f32, N, N, false, order);
    expect_order(CB_F64, f64, N, N, false, order);
}

static void halves(void **state) {
    (void)state;
    const uint16_t f16[] = {f16_from_f32(1.5f), f16_from_f32(-2), 0x7e00, 0x8000, 0};
    expect_order(CB_F16, f16, 5, 5, false, (int64_t[]){1, 3, 4, 0, 2});
    const uint16_t bf16[] = {bf16_from_f32(3), bf16_from_f32(-2), 0x7fc0};
    expect_order(CB_BF16, bf16, 3, 2, true, (int64_t[]){2, 0});
}

static void nothing_to_sort(void **state) {
    (void)state;
    const float x[] = {1, 2, 3};
    expect_order(CB_F32, x, 3, 0, false, NULL);
    expect_order(CB_F32, x, 1, 1, false, (int64_t[]){0});
}

/* ---- against a plain sort, in many lengths ---- */

static const float *sorted_values;
static int compare(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    float x = sorted_values[a], y = sorted_values[b];
    return x < y ? -1 : x > y ? 1 : a < b ? -1 : a > b;
}

static void expect_like_qsort(int64_t rows, int64_t length, int64_t keep, int distinct) {
    size_t count = (size_t)(rows * length);
    float *x = malloc(sizeof *x * count);
    int64_t *out = malloc(sizeof *out * (size_t)(rows * keep) + 8);
    int64_t *expected = malloc(sizeof *expected * (size_t)length);
    uint32_t seed = (uint32_t)length;
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        x[i] = (float)((int)(seed >> 8) % distinct - distinct / 2) * 0.37f;
    }
    SortTask task = {.dtype = CB_F32, .rows = rows, .length = length, .keep = keep, .element = 1};
    task.row_rank = 1, task.row_size[0] = rows, task.row_stride[0] = length;
    assert_true(sort_run(&task, &(Operands){.in = {x}, .out = out}));
    for (int64_t r = 0; r < rows; r++) {
        sorted_values = x + r * length;
        for (int64_t i = 0; i < length; i++) expected[i] = i;
        qsort(expected, (size_t)length, sizeof *expected, compare);
        assert_memory_equal(out + r * keep, expected, sizeof *out * (size_t)keep);
    }
    free(x), free(out), free(expected);
}

static void every_length_agrees_with_qsort(void **state) {
    (void)state;
    for (int64_t length = 1; length < 100; length++) expect_like_qsort(3, length, length, 50);
    static const int64_t lengths[] = {128, 255, 256, 257, 1000, 5000, 70000};
    for (int i = 0; i < 7; i++) {
        expect_like_qsort(2, lengths[i], lengths[i], 100);
        expect_like_qsort(2, lengths[i], lengths[i], 1 << 20);
        expect_like_qsort(2, lengths[i], 5, 100);
        expect_like_qsort(2, lengths[i], lengths[i] / 3, 1 << 20);
    }
    expect_like_qsort(500, 40, 40, 10);
    for (int64_t length = 1; length < 10; length++)
        expect_like_qsort(301, length, (length + 1) / 2, 4);
    for (int64_t keep = 1; keep < 9; keep++) expect_like_qsort(50, 16 * keep, keep, 1 << 20);
}

/* Rows of a few elements that do not follow each other. */
static void short_rows_apart(void **state) {
    (void)state;
    const int16_t x[] = {5, 9, 3, 9, 4, 9, 9, 9, 1, 0, 8, 0, 7, 0};
    int64_t out[6];
    SortTask task = {.dtype = CB_I16, .rows = 2, .length = 3, .keep = 3, .element = 2};
    task.row_rank = 1, task.row_size[0] = 2, task.row_stride[0] = 8;
    assert_true(sort_run(&task, &(Operands){.in = {x}, .out = out}));
    assert_memory_equal(out, ((int64_t[]){1, 2, 0, 0, 2, 1}), sizeof out);
}

typedef struct Run {
    SortTask task;
    const int32_t *in;
    int64_t out[4];
} Run;

static bool run_sort(void *user) {
    Run *r = user;
    return sort_run(&r->task, &(Operands){.in = {r->in}, .out = r->out});
}

static void no_memory_is_an_error(void **state) {
    (void)state;
    const int32_t x[] = {3, 1, 2, 0};
    Run r = {.task = {.dtype = CB_I32, .rows = 1, .length = 4, .keep = 4, .element = 1}, .in = x};
    each_allocation_fails(run_sort, &r);
    assert_memory_equal(r.out, ((int64_t[]){3, 1, 2, 0}), sizeof r.out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nan_is_the_greatest),
        cmocka_unit_test(equal_elements_keep_their_order),
        cmocka_unit_test(extreme_integers),
        cmocka_unit_test(halves),
        cmocka_unit_test(high_bytes_count),
        cmocka_unit_test(nothing_to_sort),
        cmocka_unit_test(every_length_agrees_with_qsort),
        cmocka_unit_test(short_rows_apart),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
