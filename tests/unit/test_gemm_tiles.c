/* The tiles of matrix products, each by itself and on every instruction set: packing, sums of any
 * size, narrowing to bf16. */
#include "small_integers.h"

#include "base/cpu.h"
#include "cpu/gemm_internal.h"
#include <math.h>
#include <string.h>

/* Runs of any length, from any place, and nothing behind them. */
static void native_narrowing_rounds_to_even(void **state) {
    (void)state;
    enum { COUNT = 150 };
    _Alignas(64) float in[COUNT];
    _Alignas(64) uint16_t out[COUNT + 1];
    const GemmType *type = gemm_bf16();
    if (!type) return;
    GemmConvert *const convert[] = {type->narrow, type->stream};
    for (int i = 0; i < COUNT; i++) in[i] = (float)small() * 1.2345f + (float)small() * 0x1p-9f;
    in[7] = INFINITY, in[40] = NAN, in[41] = 1 + 0x1p-8f, in[42] = 1 + 3 * 0x1p-8f;
    if (type->begin) type->begin();
    for (int way = 0; way < 2; way++)
        for (int from = 0; from < 34; from++)
            for (int count = 0; from + count <= COUNT; count++) {
                memset(out, 0x55, sizeof out);
                convert[way](in + from, out + from, count);
                for (int i = 0; i <= COUNT; i++) {
                    bool inside = i >= from && i < from + count;
                    if (inside && isnan(in[i]))
                        assert_true(isnan(bf16_to_f32(out[i])));
                    else
                        assert_int_equal(out[i], inside ? bf16_from_f32(in[i]) : 0x5555);
                }
            }
    if (type->end) type->end();
}

enum { SPAN = 40, MOST_K = 77, TILE_ROWS = 32 };

static void expect_tile(cb_dtype dtype, int k, const char *a, const char *b, const char *out,
                        int rows, int columns) {
    for (int r = 0; r < SPAN; r++)
        for (int j = 0; j < SPAN; j++) {
            double sum = 0;
            for (int i = 0; i < k && r < rows && j < columns; i++)
                sum += 2 * value_at(a, dtype, r * k + i) * value_at(b, dtype, i * SPAN + j);
            assert_true(value_at(out, dtype == CB_F64 ? CB_F64 : CB_F32, r * SPAN + j) == sum);
        }
}

/* The rows of A in two taps where they lie, the columns packed tap by tap. */
static void rows_tile_of(const GemmType *type, cb_dtype dtype, int k, const char *a, const char *b,
                         char *b_pack, char *out, int rows, int columns) {
    size_t width = cb_dtype_size(dtype);
    int tap = k / 2, padded = (tap + type->k_unit - 1) / type->k_unit * type->k_unit;
    const void *row[2 * TILE_ROWS];
    for (int t = 0; t < 2; t++) {
        for (int r = 0; r < type->rows; r++)
            row[t * type->rows + r] = a + (size_t)(r * k + t * tap) * width;
        type->pack(b_pack + (size_t)(t * padded * type->columns) * width,
                   b + (size_t)(t * tap * SPAN) * width, 1, SPAN, columns, type->columns, tap);
    }
    for (int again = 0; again < 2; again++)
        type->rows_tile(2, tap, row, b_pack, out, SPAN, rows, columns, again);
}

/* One tile of every size, packed and added to what is there, on one instruction set. */
static void tiles_of(const GemmType *type, cb_dtype dtype, int k) {
    size_t width = cb_dtype_size(dtype), sums = SPAN * SPAN * sizeof(double);
    char *a = random_matrix(dtype, SPAN * k), *b = random_matrix(dtype, SPAN * k);
    char *a_pack = malloc(SPAN * (MOST_K + 32) * width), *out = malloc(sums);
    char *b_pack = malloc(SPAN * (MOST_K + 64) * width);
    if (type->begin) type->begin();
    for (int rows = 1; rows <= type->rows; rows++)
        for (int columns = 1; columns <= type->columns; columns++) {
            memset(out, 0, sums);
            type->pack_rows(a_pack, a, k, 1, rows, type->rows, k);
            type->pack(b_pack, b, 1, SPAN, columns, type->columns, k);
            for (int again = 0; again < 2; again++)
                type->tile(k, a_pack, b_pack, out, SPAN, rows, columns, again);
            expect_tile(dtype, k, a, b, out, rows, columns);
            if (k % 2 || !type->rows_tile) continue;
            memset(out, 0, sums);
            rows_tile_of(type, dtype, k, a, b, b_pack, out, rows, columns);
            expect_tile(dtype, k, a, b, out, rows, columns);
        }
    if (type->end) type->end();
    free(a), free(b), free(a_pack), free(b_pack), free(out);
}

static void every_tile(void **state) {
    const GemmKernels *kernels = *state;
    for (int k = 9; k <= 10; k++) {
        tiles_of(&kernels->f32, CB_F32, k);
        tiles_of(&kernels->f64, CB_F64, k);
    }
}

/* Rows that are shorter than their vectors too, of which the next ones write over what is left;
 * whole ones are added to, too. */
static void thin_rows_of(const GemmType *type, cb_dtype dtype, int width) {
    enum { K = 9, ROWS = 30 };
    size_t element = cb_dtype_size(dtype);
    char *a = random_matrix(dtype, SPAN * K), *b = random_matrix(dtype, SPAN * K);
    char *out = malloc((ROWS + 1) * SPAN * element);
    for (int rows = 1; rows <= ROWS; rows++)
        for (int columns = width / 2 + 1; columns <= width; columns++) {
            int times = columns == width ? 2 : 1;
            for (int i = 0; i < times; i++)
                type->thin(rows, K, a, 1, SPAN, b, SPAN, width, out, columns, i > 0);
            for (int i = 0; i < rows * columns; i++) {
                double sum = 0;
                for (int k = 0; k < K; k++)
                    sum += value_at(a, dtype, k * SPAN + i / columns) *
                           value_at(b, dtype, k * SPAN + i % columns);
                assert_true(value_at(out, dtype, i) == times * sum);
            }
        }
    free(a), free(b), free(out);
}

static void every_thin_width(void **state) {
    const GemmKernels *kernels = *state;
    for (int width = 4; width <= kernels->f32.columns; width *= 2)
        thin_rows_of(&kernels->f32, CB_F32, width);
    for (int width = 4; width <= kernels->f64.columns; width *= 2)
        thin_rows_of(&kernels->f64, CB_F64, width);
}

/* A column alone is summed as with three others, whatever is left of k behind whole vectors. */
static void dots_of(const GemmType *type, cb_dtype dtype, int most) {
    size_t element = cb_dtype_size(dtype);
    char *x = random_matrix(dtype, most), *w = random_matrix(dtype, 5 * most), y[5 * 8], one[8];
    for (int k = 1; k <= most; k++) {
        type->dot(k, 5, x, w, most, y);
        for (int j = 0; j < 5; j++) {
            double sum = 0;
            for (int i = 0; i < k; i++)
                sum += value_at(x, dtype, i) * value_at(w, dtype, j * most + i);
            assert_true(value_at(y, dtype, j) == sum);
            type->dot(k, 1, x, w + (size_t)(j * most) * element, most, one);
            assert_memory_equal(one, y + (size_t)j * element, element);
        }
    }
    free(x), free(w);
}

static void dots_of_every_length(void **state) {
    const GemmKernels *kernels = *state;
    dots_of(&kernels->f32, CB_F32, 2 * kernels->f32.columns + 3);
    dots_of(&kernels->f64, CB_F64, 2 * kernels->f64.columns + 3);
}

static void every_tile_of_bf16(void **state) {
    (void)state;
    static const int k[] = {1, 2, 9, 10, 64, 70, MOST_K};
    if (!gemm_bf16()) skip_because("bf16 is widened: no instructions for it, or CARBIDE_SKIP");
    for (size_t i = 0; i < sizeof k / sizeof *k; i++) tiles_of(gemm_bf16(), CB_BF16, k[i]);
}

static void test_level(const GemmKernels *kernels, int *failed) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_tile, (void *)kernels),
        cmocka_unit_test_prestate(every_thin_width, (void *)kernels),
        cmocka_unit_test_prestate(dots_of_every_length, (void *)kernels),
    };
    *failed += cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_of_bf16),
        cmocka_unit_test(native_narrowing_rounds_to_even),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_level(&gemm_kernels_base, &failed);
#if defined(__x86_64__)
    if (cpu_level() >= CPU_V3) test_level(&gemm_kernels_v3, &failed);
    if (cpu_level() >= CPU_V4) test_level(&gemm_kernels_v4, &failed);
#endif
    return failed;
}
