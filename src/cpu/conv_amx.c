/* Convolution on AMX tiles: the kernels of conv_tiles.c, compiled with that level's flags.
 *
 * Tiles 0-3 sum, 4 and 5 hold 16 positions each, 6 and 7 16 out channels each; gemm_bf16_amx
 * configures them. Four products take 64 cycles, their four loads 33 from L1 and 84 from L2: so x
 * should come from L1, and the loads of the next step stand between the products of this one.
 *
 * Sums are narrowed after the steps of the next ones, while the last products of those are still
 * under way; what was stored from a tile just before cannot be loaded without waiting. */
#include "cpu/conv_amx.h"
#include <immintrin.h>
#include <math.h>

/* The intrinsics of loads do not tell the compiler that they read memory. */
#define MEMORY_IS_READ __asm__ volatile("" ::: "memory")

/* ---- the end of sums ---------------------------------------------------------------------- */

static inline __m512 load_bf16(const uint16_t *from, __mmask16 mask) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* What sets rows apart is known where this is called: most are of full width, in bf16. */
static inline __attribute__((always_inline)) void end_rows(const End *end, const TileSums *s,
                                                           int columns, bool f32, bool residual) {
    const float *scale = end->scale + s->channel, *bias = end->bias + s->channel;
    __m512 scale_a = _mm512_loadu_ps(scale), scale_b = _mm512_loadu_ps(scale + TILE_SIDE);
    __m512 bias_a = _mm512_loadu_ps(bias), bias_b = _mm512_loadu_ps(bias + TILE_SIDE);
    __m512 least = _mm512_set1_ps(end->relu ? 0 : -INFINITY);
    __mmask32 mask = (__mmask32)(0xffffffffu >> (TILE_SPAN - columns));
    __mmask16 low = (__mmask16)mask, high = (__mmask16)(mask >> TILE_SIDE);
    for (int i = 0; i < s->block->count; i++) {
        const float *sum = s->sum + s->block->lane[i] * TILE_SPAN;
        int64_t at = s->block->at[i] + s->channel;
        __m512 a = _mm512_fmadd_ps(_mm512_loadu_ps(sum), scale_a, bias_a);
        __m512 b = _mm512_fmadd_ps(_mm512_loadu_ps(sum + TILE_SIDE), scale_b, bias_b);
        if (residual && f32) {
            const float *more = (const float *)end->residual + at;
            a = _mm512_add_ps(a, _mm512_maskz_loadu_ps(low, more));
            b = _mm512_add_ps(b, _mm512_maskz_loadu_ps(high, more + TILE_SIDE));
        } else if (residual) {
            const uint16_t *more = (const uint16_t *)end->residual + at;
            a = _mm512_add_ps(a, load_bf16(more, low));
            b = _mm512_add_ps(b, load_bf16(more + TILE_SIDE, high));
        }
        a = _mm512_max_ps(least, a); /* the second operand where one is NaN */
        b = _mm512_max_ps(least, b);
        if (f32) {
            float *to = (float *)end->out + at;
            _mm512_mask_storeu_ps(to, low, a);
            _mm512_mask_storeu_ps(to + TILE_SIDE, high, b);
        } else {
            __m512i both = (__m512i)_mm512_cvtne2ps_pbh(b, a);
            _mm512_mask_storeu_epi16((uint16_t *)end->out + at, mask, both);
        }
    }
}

static void end_sums(const End *end, TileSums *s) {
    bool full = s->columns == TILE_SPAN && !end->f32;
    if (!s->block) return;
    if (full && !end->residual)
        end_rows(end, s, TILE_SPAN, false, false);
    else if (full)
        end_rows(end, s, TILE_SPAN, false, true);
    else
        end_rows(end, s, s->columns, end->f32, end->residual != NULL);
    s->block = NULL;
}

/* ---- products ----------------------------------------------------------------------------- */

#define LOAD_LOW(i) _tile_loadd(4, block->low + offset[i], stride)
#define LOAD_HIGH(i) _tile_loadd(5, block->high + offset[i], stride)
#define LOAD_FIRST _tile_loadd(6, weight, TILE_ROW_BYTES)
#define LOAD_SECOND _tile_loadd(7, weight + TILE_BYTES, TILE_ROW_BYTES)

static inline void sum_two(const TileSteps *steps, const TileBlock *block, const char *weight) {
    const int64_t *offset = steps->offset, stride = steps->stride;
    LOAD_LOW(0);
    LOAD_FIRST;
    for (int64_t i = 0; i < steps->count; i++) {
        LOAD_SECOND;
        _tile_dpbf16ps(0, 4, 6);
        LOAD_HIGH(i);
        _tile_dpbf16ps(1, 4, 7);
        LOAD_LOW(i + 1);
        _tile_dpbf16ps(2, 5, 6);
        weight += TILE_STEP_BYTES;
        LOAD_FIRST;
        _tile_dpbf16ps(3, 5, 7);
    }
}

static inline void sum_one(const TileSteps *steps, const TileBlock *block, const char *weight) {
    const int64_t *offset = steps->offset, stride = steps->stride;
    for (int64_t i = 0; i < steps->count; i++, weight += TILE_STEP_BYTES) {
        LOAD_FIRST;
        LOAD_LOW(i);
        _tile_dpbf16ps(0, 4, 6);
        LOAD_SECOND;
        _tile_dpbf16ps(1, 4, 7);
    }
}

static void multiply(const TileSteps *steps, const TileSums *now, const char *weight,
                     const End *end, TileSums *before) {
    enum { BYTES = TILE_SPAN * sizeof(float) };
    bool two = now->block->high != NULL;
    MEMORY_IS_READ;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (two)
        sum_two(steps, now->block, weight);
    else
        sum_one(steps, now->block, weight);
    end_sums(end, before);
    float *low = now->sum, *high = low + TILE_SIDE * TILE_SPAN;
    _tile_stored(0, low, BYTES);
    _tile_stored(1, low + TILE_SIDE, BYTES);
    if (two) {
        _tile_stored(2, high, BYTES);
        _tile_stored(3, high + TILE_SIDE, BYTES);
    }
    MEMORY_IS_READ;
}

/* ---- copies ------------------------------------------------------------------------------- */

static void store_rows(const char *from, int64_t step, int64_t count, int64_t elements, char *to) {
    __mmask32 mask = (__mmask32)((UINT64_C(1) << elements) - 1);
    for (int64_t i = 0; i < count; i++, from += step, to += TILE_ROW_BYTES)
        _mm512_storeu_si512(to, _mm512_maskz_loadu_epi16(mask, from));
}

/* Element e of three vectors belongs to channel e % 3 of pixel e / 3. */
#define PICK_TWO(e) ((e) % 3 == 1) * 32 + (e) / 3
#define PICK_THIRD(e) ((e) % 3 == 2 ? 32 + (e) / 3 : (e) % 32)
#define LIST_4(M, e) M(e), M((e) + 1), M((e) + 2), M((e) + 3)
#define LIST_16(M, e) LIST_4(M, e), LIST_4(M, (e) + 4), LIST_4(M, (e) + 8), LIST_4(M, (e) + 12)
#define LIST_32(M, e) LIST_16(M, e), LIST_16(M, (e) + 16)

static void interleave(const char *const *plane, int64_t count, char *to) {
    enum { LANES = 32 };
    static const _Alignas(64) uint16_t pick_two[3 * LANES] = {
        LIST_32(PICK_TWO, 0), LIST_32(PICK_TWO, 32), LIST_32(PICK_TWO, 64)};
    static const _Alignas(64) uint16_t pick_third[3 * LANES] = {
        LIST_32(PICK_THIRD, 0), LIST_32(PICK_THIRD, 32), LIST_32(PICK_THIRD, 64)};
    for (int64_t i = 0; i < count; i += LANES, to += 3 * LANES * 2) {
        int64_t here = count - i < LANES ? count - i : LANES;
        __mmask32 mask = (__mmask32)((UINT64_C(1) << here) - 1);
        __m512i a = _mm512_maskz_loadu_epi16(mask, plane[0] + 2 * i);
        __m512i b = _mm512_maskz_loadu_epi16(mask, plane[1] + 2 * i);
        __m512i c = _mm512_maskz_loadu_epi16(mask, plane[2] + 2 * i);
        for (int v = 0; v < 3 && here * 3 > v * LANES; v++) {
            int64_t left = here * 3 - v * LANES;
            __m512i two = _mm512_permutex2var_epi16(a, _mm512_load_si512(pick_two + v * LANES), b);
            __m512i all =
                _mm512_permutex2var_epi16(two, _mm512_load_si512(pick_third + v * LANES), c);
            __mmask32 write = left < LANES ? (__mmask32)((UINT64_C(1) << left) - 1) : (__mmask32)-1;
            _mm512_mask_storeu_epi16(to + v * LANES * 2, write, all);
        }
    }
}

const TileKernels conv_tiles_amx = {
    .multiply = multiply, .end = end_sums, .rows = store_rows, .interleave = interleave};
