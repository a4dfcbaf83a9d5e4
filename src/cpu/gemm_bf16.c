/* The gemm kernels of bf16 where the processor multiplies pairs of bf16 into f32 sums
 * (AVX512-BF16). Compiled with that level's flags; gemm_type.c asks the processor first.
 *
 * A panel holds k in pairs, the pair (2i, 2i + 1) of a lane side by side: pair i of a lane is the
 * 32-bit element i * width + lane, so that all is laid out as for f32 with half of its k. An odd k
 * ends with a pair whose second half is 0.
 *
 *     sum[r][j] += a(r, 2i) * b(2i, j) + a(r, 2i + 1) * b(2i + 1, j)
 *
 * The instruction takes denormal factors as 0. */
#include "cpu/gemm_bf16.h"
#include "cpu/tile.h"
#include <immintrin.h>
#include <string.h>

enum {
    LANES = 16,
    ROWS = 14,
    COLUMNS = 2 * LANES,
    LINE = 64,       /* of the cache */
    ROWS_AHEAD = 48, /* of lanes side by side: short rows far from each other, which the processor
                      * does not see coming */
    AHEAD = 8192     /* bytes between what a tile reads of b and what it asks for */
};

typedef uint32_t Bf16Pair __attribute__((aligned(2), may_alias));

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
    static void tile_##count(int64_t k, const Bf16Pair *a, const Bf16Pair *b, float *c,            \
                             int64_t stride, bool add, const char *next, int64_t step) {           \
        EACH_##count(OPEN);                                                                        \
        for (; k > 0; k -= 2, a += ROWS, b += COLUMNS, next += step) {                             \
            __builtin_prefetch(next), __builtin_prefetch(next + LINE);                             \
            LOAD_B;                                                                                \
            EACH_##count(STEP);                                                                    \
        }                                                                                          \
        EACH_##count(CLOSE);                                                                       \
    }
EACH_COUNT(TILE)

#define ROW(r) const Bf16Pair *a##r = row[r];
#define ROW_STEP(r) STEP_BY(r, a##r[i])
#define ROW_LAST(r) STEP_BY(r, *(const uint16_t *)(a##r + pairs))
#define ROWS_TILE(count)                                                                           \
    static void rows_tile_##count(int64_t taps, int64_t k, const Bf16Pair *const *row,             \
                                  const Bf16Pair *b, float *c, int64_t stride, bool add) {         \
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

typedef void Bf16Tile(int64_t k, const Bf16Pair *a, const Bf16Pair *b, float *c, int64_t stride,
                      bool add, const char *next, int64_t step);
typedef void Bf16RowsTile(int64_t taps, int64_t k, const Bf16Pair *const *row, const Bf16Pair *b,
                          float *c, int64_t stride, bool add);
#define TILE_NAME(count) tile_##count,
#define ROWS_TILE_NAME(count) rows_tile_##count,
static Bf16Tile *const tiles[ROWS] = {EACH_COUNT(TILE_NAME)};
static Bf16RowsTile *const rows_tiles[ROWS] = {EACH_COUNT(ROWS_TILE_NAME)};

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
                       int columns, bool add, const GemmAhead *ahead) {
    int64_t bytes = ahead->bytes / ahead->parts, pairs = (k + 1) / 2;
    any_tile(k, a, b, c, stride, rows, columns, add, ahead->panel + ahead->part * bytes,
             (bytes + pairs - 1) / pairs);
}

static void tile(int64_t k, const void *a, const void *b, void *c, int64_t stride, int rows,
                 int columns, bool add) {
    any_tile(k, a, b, c, stride, rows, columns, add, (const char *)b + AHEAD,
             COLUMNS * (int64_t)sizeof(Bf16Pair));
}

static void rows_tile(int64_t taps, int64_t k, const void *const *row, const void *b, void *c,
                      int64_t stride, int rows, int columns, bool add) {
    const Bf16Pair *const *from = (const Bf16Pair *const *)row;
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

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE __mmask16 first_lanes(int64_t count) {
    return (__mmask16)(count >= LANES ? -1 : count <= 0 ? 0 : (1 << count) - 1);
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
        __mmask16 mask = first_lanes(count - i);
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

/* Where a panel's elements are: bf16, or f32 to be rounded (wide). The functions below are compiled
 * once for each. */
typedef struct Source {
    const char *at;                       /* lane 0, k 0 */
    int64_t lane_stride, k_stride, bytes; /* strides in elements of `bytes` bytes */
} Source;

typedef uint32_t PairVector __attribute__((vector_size(LANES * sizeof(Bf16Pair)), may_alias));

/* 16 elements at a and 16 at b as bf16, those outside of the masks 0. */
ALWAYS_INLINE __m512i halves(const char *at_a, __mmask16 mask_a, const char *at_b, __mmask16 mask_b,
                             bool wide) {
    if (wide) {
        __m512 a = _mm512_maskz_loadu_ps(mask_a, at_a), b = _mm512_maskz_loadu_ps(mask_b, at_b);
        return (__m512i)_mm512_cvtne2ps_pbh(b, a);
    }
    __m256i a = _mm256_maskz_loadu_epi16(mask_a, at_a);
    __m256i b = _mm256_maskz_loadu_epi16(mask_b, at_b);
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

/* Lanes side by side: k = 2i and 2i + 1 of 16 lanes, element by element in turn. */
ALWAYS_INLINE void pack_adjacent(Bf16Pair *out, Source s, int lanes, int width, int64_t k,
                                 bool wide) {
    static const uint16_t turns[2 * LANES] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                              21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                              11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i in_turn = _mm512_loadu_si512(turns);
    int64_t row = s.k_stride * s.bytes;
    for (int64_t i = 0; i < k; i += 2, out += width, s.at += 2 * row) {
        for (int lane = 0; lane < width; lane += LANES) {
            const char *from = s.at + lane * s.bytes;
            __mmask16 read = first_lanes(lanes - lane), next = i + 1 < k ? read : 0;
            _mm_prefetch(from + ROWS_AHEAD * row, _MM_HINT_T0);
            _mm_prefetch(from + (ROWS_AHEAD + 1) * row, _MM_HINT_T0);
            __m512i both = halves(from, read, from + row, next, wide);
            _mm512_mask_storeu_epi32(out + lane, first_lanes(width - lane),
                                     _mm512_permutexvar_epi16(in_turn, both));
        }
    }
}

/* Lanes that are contiguous along k: 16 lanes of 16 pairs are transposed in registers. */
ALWAYS_INLINE void pack_contiguous(Bf16Pair *out, Source s, int lanes, int width, int64_t k,
                                   __mmask16 written, bool wide) {
    int64_t step = s.lane_stride * s.bytes;
    for (int64_t i = 0; i < k; i += 2 * LANES) {
        int64_t pairs = k - i < 2 * LANES ? (k - i + 1) / 2 : LANES;
        __mmask16 low = first_lanes(k - i), high = first_lanes(k - i - LANES);
        PairVector row[LANES];
        for (int r = 0; r < LANES; r++) {
            const char *from = s.at + r * step + i * s.bytes;
            _mm_prefetch(from + LANES * step, _MM_HINT_T0); /* the next 16 lanes: far away, too */
            if (wide) _mm_prefetch(from + LANES * step + LINE, _MM_HINT_T0);
            row[r] = r < lanes ? (PairVector)halves(from, low, from + LANES * s.bytes, high, wide)
                               : (PairVector){0};
        }
        TRANSPOSE(PairVector, row, LANES, LOW_16, HIGH_16);
        for (int64_t r = 0; r < pairs; r++, out += width)
            _mm512_mask_storeu_epi32(out, written, (__m512i)row[r]);
    }
}

/* Neither: one element after the other. */
ALWAYS_INLINE void pack_scattered(Bf16Pair *out, Source s, int lanes, int width, int64_t k,
                                  bool wide) {
    for (int64_t i = 0; i < k; i += 2, out += width)
        for (int lane = 0; lane < width; lane++) {
            const char *from = s.at + (lane * s.lane_stride + i * s.k_stride) * s.bytes;
            __mmask16 read = first_lanes(lane < lanes), next = i + 1 < k ? read : 0;
            __m512i both = halves(from, read, from + s.k_stride * s.bytes, next, wide);
            uint16_t half[2 * LANES];
            _mm512_storeu_si512(half, both);
            out[lane] = half[0] | (uint32_t)half[LANES] << 16;
        }
}

ALWAYS_INLINE void pack_panel(Bf16Pair *out, Source s, int lanes, int width, int64_t k, bool wide) {
    if (s.lane_stride == 1) {
        pack_adjacent(out, s, lanes, width, k, wide);
        return;
    }
    if (s.k_stride != 1) {
        pack_scattered(out, s, lanes, width, k, wide);
        return;
    }
    for (int lane = 0; lane < width; lane += LANES) {
        Source part = s;
        part.at += lane * s.lane_stride * s.bytes;
        pack_contiguous(out + lane, part, lanes - lane, width, k, first_lanes(width - lane), wide);
    }
}

void gemm_bf16_pack(void *panel, const void *matrix, int64_t lane_stride, int64_t k_stride,
                    int lanes, int width, int64_t k) {
    Source s = {matrix, lane_stride, k_stride, sizeof(uint16_t)};
    pack_panel(panel, s, lanes, width, k, false);
}

void gemm_bf16_pack_f32(void *panel, const void *matrix, int64_t lane_stride, int64_t k_stride,
                        int lanes, int width, int64_t k) {
    Source s = {matrix, lane_stride, k_stride, sizeof(float)};
    pack_panel(panel, s, lanes, width, k, true);
}

const GemmType gemm_bf16_dot = {
    .rows = ROWS,
    .columns = COLUMNS,
    .together = 2,
    .k_unit = 2,
    .k_bytes = GEMM_K_BYTES,
    .sum_bytes = GEMM_SUM_BYTES,
    .tile = tile,
    .tile_ahead = tile_ahead,
    .end = end,
    .narrow = gemm_bf16_narrow,
    .stream = gemm_bf16_stream,
    .rows_tile = rows_tile,
    .pack = gemm_bf16_pack,
    .pack_f32 = gemm_bf16_pack_f32,
    .pack_rows = gemm_bf16_pack,
};
