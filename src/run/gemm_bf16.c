/* The gemm kernels of bf16 where the processor multiplies pairs of bf16 into f32 sums
 * (AVX512-BF16). Compiled with that level's flags; run/gemm.c asks the processor first.
 *
 * A panel holds k in pairs, the pair (2i, 2i + 1) of a lane side by side: pair i of a lane is the
 * 32-bit element i * width + lane, so that all is laid out as for f32 with half of its k. An odd k
 * ends with a pair whose second half is 0.
 *
 *     sum[r][j] += a(r, 2i) * b(2i, j) + a(r, 2i + 1) * b(2i + 1, j)
 *
 * The instruction takes denormal factors as 0. */
#include "run/gemm_bf16.h"
#include "run/tile.h"
#include <immintrin.h>
#include <string.h>

enum {
    LANES = 16,
    ROWS = 14,
    COLUMNS = 2 * LANES,
    LINE = 64,   /* of the cache */
    AHEAD = 8192 /* bytes between what a tile reads of b and what it asks for */
};

typedef uint32_t Pair __attribute__((aligned(2), may_alias));

#define EACH_COUNT UP_TO_14

/* ---- register tiles, as in gemm_tile.h ---- */

#define OPEN(r) __m512 c##r##_0 = _mm512_setzero_ps(), c##r##_1 = _mm512_setzero_ps();
#define LOAD_B                                                                                     \
    __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + LANES);
#define STEP_BY(r, pair)                                                                           \
    {                                                                                              \
        __m512bh factor = (__m512bh)_mm512_set1_epi32((int)(pair));                                \
        c##r##_0 = _mm512_dpbf16_ps(c##r##_0, factor, b0);                                         \
        c##r##_1 = _mm512_dpbf16_ps(c##r##_1, factor, b1);                                         \
    }
#define CLOSE(r)                                                                                   \
    {                                                                                              \
        float *to = c + r * stride;                                                                \
        if (add) {                                                                                 \
            c##r##_0 = _mm512_add_ps(c##r##_0, _mm512_loadu_ps(to));                               \
            c##r##_1 = _mm512_add_ps(c##r##_1, _mm512_loadu_ps(to + LANES));                       \
        }                                                                                          \
        _mm512_storeu_ps(to, c##r##_0);                                                            \
        _mm512_storeu_ps(to + LANES, c##r##_1);                                                    \
    }

#define STEP(r) STEP_BY(r, a[r])
#define TILE(count)                                                                                \
    static void tile_##count(int64_t k, const Pair *a, const Pair *b, float *c, int64_t stride,    \
                             bool add, const char *next, int64_t step) {                           \
        EACH_##count(OPEN);                                                                        \
        for (; k > 0; k -= 2, a += ROWS, b += COLUMNS, next += step) {                             \
            __builtin_prefetch(next), __builtin_prefetch(next + LINE);                             \
            LOAD_B;                                                                                \
            EACH_##count(STEP);                                                                    \
        }                                                                                          \
        EACH_##count(CLOSE);                                                                       \
    }
EACH_COUNT(TILE)

#define ROW(r) const Pair *a##r = row[r];
#define ROW_STEP(r) STEP_BY(r, a##r[i])
#define ROW_LAST(r) STEP_BY(r, *(const uint16_t *)(a##r + pairs))
#define ROWS_TILE(count)                                                                           \
    static void rows_tile_##count(int64_t taps, int64_t k, const Pair *const *row, const Pair *b,  \
                                  float *c, int64_t stride, bool add) {                            \
        int64_t pairs = k / 2;                                                                     \
        EACH_##count(OPEN);                                                                        \
        for (; taps > 0; taps--, row += ROWS) {                                                    \
            EACH_##count(ROW);                                                                     \
            for (int64_t i = 0; i < pairs; i++, b += COLUMNS) {                                    \
                LOAD_B;                                                                            \
                EACH_##count(ROW_STEP);                                                            \
            }                                                                                      \
            if (k % 2) {                                                                           \
                LOAD_B;                                                                            \
                EACH_##count(ROW_LAST);                                                            \
                b += COLUMNS;                                                                      \
            }                                                                                      \
        }                                                                                          \
        EACH_##count(CLOSE);                                                                       \
    }
EACH_COUNT(ROWS_TILE)

typedef void Tile(int64_t k, const Pair *a, const Pair *b, float *c, int64_t stride, bool add,
                  const char *next, int64_t step);
typedef void RowsTile(int64_t taps, int64_t k, const Pair *const *row, const Pair *b, float *c,
                      int64_t stride, bool add);
#define TILE_NAME(count) tile_##count,
#define ROWS_TILE_NAME(count) rows_tile_##count,
static Tile *const tiles[ROWS] = {EACH_COUNT(TILE_NAME)};
static RowsTile *const rows_tiles[ROWS] = {EACH_COUNT(ROWS_TILE_NAME)};

static inline void any_tile(int64_t k, const void *a, const void *b, void *c, int64_t stride,
                            int rows, int columns, bool add, const char *next, int64_t step) {
    if (columns == COLUMNS) {
        tiles[rows - 1](k, a, b, c, stride, add, next, step);
        return;
    }
    float full[ROWS * COLUMNS];
    tiles[rows - 1](k, a, b, full, COLUMNS, false, next, step);
    gemm_bf16_move(full, COLUMNS, c, stride, rows, columns, add);
}

static void tile_ahead(int64_t k, const void *a, const void *b, void *c, int64_t stride, int rows,
                       int columns, bool add, GemmAhead ahead) {
    int64_t bytes = ahead.bytes / ahead.parts, pairs = (k + 1) / 2;
    any_tile(k, a, b, c, stride, rows, columns, add, ahead.panel + ahead.part * bytes,
             (bytes + pairs - 1) / pairs);
}

static void tile(int64_t k, const void *a, const void *b, void *c, int64_t stride, int rows,
                 int columns, bool add) {
    any_tile(k, a, b, c, stride, rows, columns, add, (const char *)b + AHEAD,
             COLUMNS * (int64_t)sizeof(Pair));
}

static void rows_tile(int64_t taps, int64_t k, const void *const *row, const void *b, void *c,
                      int64_t stride, int rows, int columns, bool add) {
    const Pair *const *from = (const Pair *const *)row;
    if (columns == COLUMNS) {
        rows_tiles[rows - 1](taps, k, from, b, c, stride, add);
        return;
    }
    float full[ROWS * COLUMNS];
    rows_tiles[rows - 1](taps, k, from, b, full, COLUMNS, false);
    gemm_bf16_move(full, COLUMNS, c, stride, rows, columns, add);
}

void gemm_bf16_move(const float *from, int64_t from_stride, float *to, int64_t stride, int rows,
                    int columns, bool add) {
    for (int r = 0; r < rows; r++, from += from_stride, to += stride)
        for (int j = 0; j < columns; j++) to[j] = add ? to[j] + from[j] : from[j];
}

/* Rounds to nearest even; denormals become 0, as they are to the products. */
void gemm_bf16_narrow(const void *from, void *to, int64_t count) {
    const float *in = from;
    uint16_t *out = to;
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        __m512 low = _mm512_loadu_ps(in + i), high = _mm512_loadu_ps(in + i + LANES);
        _mm512_storeu_si512(out + i, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
    for (; i < count; i += LANES) {
        __mmask16 mask = (__mmask16)(count - i < LANES ? (1 << (count - i)) - 1 : -1);
        __m256i half = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, in + i));
        _mm256_mask_storeu_epi16(out + i, mask, half);
    }
}

/* The same, past the caches where whole lines are written. */
void gemm_bf16_stream(const void *from, void *to, int64_t count) {
    const float *in = from;
    uint16_t *out = to;
    int64_t whole = (uintptr_t)to % LINE ? 0 : count / (2 * LANES) * (2 * LANES);
    for (int64_t i = 0; i < whole; i += 2 * LANES) {
        __m512 low = _mm512_loadu_ps(in + i), high = _mm512_loadu_ps(in + i + LANES);
        _mm512_stream_si512((void *)(out + i), (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
    gemm_bf16_narrow(in + whole, out + whole, count - whole);
}

static void end(void) { _mm_sfence(); /* after gemm_bf16_stream */ }

/* ---- packing ---- */

static void pack_lanes(Pair *out, const uint16_t *in, int64_t k_stride, int lanes, int width,
                       int64_t k) {
    for (int64_t i = 0; i + 2 <= k; i += 2, in += 2 * k_stride, out += width)
        for (int j = 0; j < lanes; j++) out[j] = in[j] | (uint32_t)in[k_stride + j] << 16;
    for (int j = 0; j < lanes && k % 2; j++) out[j] = in[j];
}

/* Four lanes, each contiguous along k: 4 x 4 pairs are transposed in registers. */
static void pack_four(Pair *out, const uint16_t *in, int64_t lane_stride, int width, int64_t k) {
    const uint16_t *r0 = in, *r1 = in + lane_stride, *r2 = r1 + lane_stride, *r3 = r2 + lane_stride;
    int64_t i = 0;
    for (; i + 8 <= k; i += 8, out += 4 * width) {
        __m128i a = _mm_loadu_si128((const __m128i *)(r0 + i));
        __m128i b = _mm_loadu_si128((const __m128i *)(r1 + i));
        __m128i c = _mm_loadu_si128((const __m128i *)(r2 + i));
        __m128i d = _mm_loadu_si128((const __m128i *)(r3 + i));
        __m128i ab = _mm_unpacklo_epi32(a, b), cd = _mm_unpacklo_epi32(c, d);
        __m128i ab2 = _mm_unpackhi_epi32(a, b), cd2 = _mm_unpackhi_epi32(c, d);
        _mm_storeu_si128((__m128i *)out, _mm_unpacklo_epi64(ab, cd));
        _mm_storeu_si128((__m128i *)(out + width), _mm_unpackhi_epi64(ab, cd));
        _mm_storeu_si128((__m128i *)(out + 2 * width), _mm_unpacklo_epi64(ab2, cd2));
        _mm_storeu_si128((__m128i *)(out + 3 * width), _mm_unpackhi_epi64(ab2, cd2));
    }
    for (; i + 2 <= k; i += 2, out += width)
        for (int j = 0; j < 4; j++) out[j] = *(const Pair *)(in + j * lane_stride + i);
    for (int j = 0; j < 4 && i < k; j++) out[j] = in[j * lane_stride + i];
}

void gemm_bf16_pack(void *panel, const void *matrix, int64_t lane_stride, int64_t k_stride,
                    int lanes, int width, int64_t k) {
    Pair *out = panel;
    const uint16_t *in = matrix;
    int64_t pairs = (k + 1) / 2;
    int lane = 0;
    if (lane_stride == 1) {
        pack_lanes(out, in, k_stride, lanes, width, k);
        lane = lanes;
    } else if (k_stride == 1) {
        for (; lane + 4 <= lanes; lane += 4)
            pack_four(out + lane, in + lane * lane_stride, lane_stride, width, k);
    }
    for (int64_t i = 0; i < pairs && lane < lanes; i++)
        for (int j = lane; j < lanes; j++) {
            const uint16_t *from = in + j * lane_stride + 2 * i * k_stride;
            out[i * width + j] = from[0] | (2 * i + 1 < k ? (uint32_t)from[k_stride] << 16 : 0);
        }
    for (int64_t i = 0; i < pairs && lanes < width; i++)
        memset(out + i * width + lanes, 0, (size_t)(width - lanes) * sizeof *out);
}

const GemmType gemm_bf16_dot = {
    .rows = ROWS,
    .columns = COLUMNS,
    .together = 2,
    .k_unit = 2,
    .k_bytes = GEMM_K_BYTES,
    .tile = tile,
    .tile_ahead = tile_ahead,
    .end = end,
    .narrow = gemm_bf16_narrow,
    .stream = gemm_bf16_stream,
    .rows_tile = rows_tile,
    .pack = gemm_bf16_pack,
    .pack_rows = gemm_bf16_pack,
};
