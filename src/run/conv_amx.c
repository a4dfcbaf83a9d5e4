/* Convolution on AMX tiles: the kernels of conv_tiles.c, compiled with that level's flags.
 *
 * Tiles 0-3 sum, 4 and 5 hold 16 positions each, 6 and 7 16 out channels each; gemm_bf16_amx
 * configures them. Four products take 64 cycles, their four loads 33 from L1 and 84 from L2: so x
 * should come from L1, and the loads of the next step stand between the products of this one.
 *
 * Narrowing and storing 32 x 32 sums takes as long as five steps, and the tiles would wait for it:
 * it is done row by row between the steps of the sums that follow. */
#include "run/conv_amx.h"
#include <immintrin.h>

/* The intrinsics of loads do not tell the compiler that they read memory. */
#define MEMORY_IS_READ __asm__ volatile("" ::: "memory")

/* ---- the end of sums ---------------------------------------------------------------------- */

static inline __m512 load_bf16(const uint16_t *from, __mmask16 mask) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline void end_row(const TileEnd *end, const TileSums *s, int row) {
    const float *sum = s->sum + s->block->lane[row] * TILE_SPAN, *bias = end->bias + s->channel;
    int64_t at = s->block->at[row] * end->out_channels + s->channel;
    __mmask32 mask = (__mmask32)(0xffffffffu >> (TILE_SPAN - s->columns));
    __mmask16 low = (__mmask16)mask, high = (__mmask16)(mask >> TILE_SIDE);
    const float *scale = end->scale + s->channel;
    __m512 a = _mm512_fmadd_ps(_mm512_loadu_ps(sum), _mm512_loadu_ps(scale), _mm512_loadu_ps(bias));
    __m512 b = _mm512_fmadd_ps(_mm512_loadu_ps(sum + TILE_SIDE), _mm512_loadu_ps(scale + TILE_SIDE),
                               _mm512_loadu_ps(bias + TILE_SIDE));
    if (end->residual && end->f32) {
        const float *more = (const float *)end->residual + at;
        a = _mm512_add_ps(a, _mm512_maskz_loadu_ps(low, more));
        b = _mm512_add_ps(b, _mm512_maskz_loadu_ps(high, more + TILE_SIDE));
    } else if (end->residual) {
        const uint16_t *more = (const uint16_t *)end->residual + at;
        a = _mm512_add_ps(a, load_bf16(more, low));
        b = _mm512_add_ps(b, load_bf16(more + TILE_SIDE, high));
    }
    if (end->relu) { /* the second operand where one is NaN */
        a = _mm512_max_ps(_mm512_setzero_ps(), a);
        b = _mm512_max_ps(_mm512_setzero_ps(), b);
    }
    if (end->f32) {
        float *to = (float *)end->out + at;
        _mm512_mask_storeu_ps(to, low, a);
        _mm512_mask_storeu_ps(to + TILE_SIDE, high, b);
    } else {
        __m512i both = (__m512i)_mm512_cvtne2ps_pbh(b, a);
        _mm512_mask_storeu_epi16((uint16_t *)end->out + at, mask, both);
    }
}

static inline void end_rows(const TileEnd *end, TileSums *s, int count) {
    int last = s->done + count < s->block->count ? s->done + count : s->block->count;
    for (; s->done < last; s->done++) end_row(end, s, s->done);
}

static void end_all(const TileEnd *end, TileSums *sums) {
    if (sums->block) end_rows(end, sums, TILE_SPAN);
    sums->block = NULL;
}

/* ---- products ----------------------------------------------------------------------------- */

/* What goes on between the steps of sums: a share of it in each. */
typedef struct Meanwhile {
    const TileEnd *end;
    TileSums *before;
    const TileSums *now;
    int rows, wanted, asked;
} Meanwhile;

/* The rows of the result that these sums will go to, and what is added to them, are on their way
 * from L3 or memory while the sums are made. */
static inline void ask_row(const Meanwhile *m, int row) {
    int64_t at = m->now->block->at[row] * m->end->out_channels + m->now->channel;
    int64_t bytes = at * (m->end->f32 ? 4 : 2);
    __builtin_prefetch(m->end->out + bytes, 1);
    if (m->end->residual) __builtin_prefetch(m->end->residual + bytes);
    if (!m->end->f32) return;
    __builtin_prefetch(m->end->out + bytes + TILE_ROW_BYTES, 1);
    if (m->end->residual) __builtin_prefetch(m->end->residual + bytes + TILE_ROW_BYTES);
}

static inline void go_on(Meanwhile *m) {
    if (m->rows) end_rows(m->end, m->before, m->rows);
    int count = m->now->block->count;
    for (int i = 0; i < m->wanted && m->asked < count; i++, m->asked++) ask_row(m, m->asked);
}

enum { AHEAD = 16 * TILE_STEP_BYTES };

#define ASK_AHEAD                                                                                  \
    for (int line = 0; line < TILE_STEP_BYTES && ahead; line += 64)                                \
        _mm_prefetch(weight + AHEAD + line, _MM_HINT_T1);
#define LOAD_LOW(i) _tile_loadd(4, block->low + offset[i], stride)
#define LOAD_HIGH(i) _tile_loadd(5, block->high + offset[i], stride)
#define LOAD_FIRST _tile_loadd(6, weight, TILE_ROW_BYTES)
#define LOAD_SECOND _tile_loadd(7, weight + TILE_BYTES, TILE_ROW_BYTES)

static inline void sum_two(const TileSteps *steps, const char *weight, bool ahead, Meanwhile *m) {
    const TileBlock *block = m->now->block;
    const int64_t *offset = steps->offset, stride = steps->stride;
    LOAD_LOW(0);
    LOAD_FIRST;
    for (int64_t i = 0; i < steps->count; i++) {
        ASK_AHEAD;
        LOAD_SECOND;
        _tile_dpbf16ps(0, 4, 6);
        LOAD_HIGH(i);
        _tile_dpbf16ps(1, 4, 7);
        LOAD_LOW(i + 1);
        _tile_dpbf16ps(2, 5, 6);
        weight += TILE_STEP_BYTES;
        LOAD_FIRST;
        _tile_dpbf16ps(3, 5, 7);
        go_on(m);
    }
}

static inline void sum_one(const TileSteps *steps, const char *weight, bool ahead, Meanwhile *m) {
    const TileBlock *block = m->now->block;
    const int64_t *offset = steps->offset, stride = steps->stride;
    for (int64_t i = 0; i < steps->count; i++, weight += TILE_STEP_BYTES) {
        ASK_AHEAD;
        LOAD_FIRST;
        LOAD_LOW(i);
        _tile_dpbf16ps(0, 4, 6);
        LOAD_SECOND;
        _tile_dpbf16ps(1, 4, 7);
        go_on(m);
    }
}

static void multiply(const TileSteps *steps, const TileSums *now, const char *weight, bool ahead,
                     const TileEnd *end, TileSums *before) {
    enum { BYTES = TILE_SPAN * sizeof(float) };
    int64_t count = steps->count;
    Meanwhile meanwhile = {.end = end, .before = before, .now = now};
    meanwhile.rows = before->block ? (int)((before->block->count + count - 1) / count) : 0;
    meanwhile.wanted = (int)((now->block->count + count - 1) / count);
    MEMORY_IS_READ;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    bool two = now->block->high != NULL;
    if (two && ahead)
        sum_two(steps, weight, true, &meanwhile);
    else if (two)
        sum_two(steps, weight, false, &meanwhile);
    else
        sum_one(steps, weight, ahead, &meanwhile);
    float *low = now->sum, *high = low + TILE_SIDE * TILE_SPAN;
    _tile_stored(0, low, BYTES);
    _tile_stored(1, low + TILE_SIDE, BYTES);
    if (two) {
        _tile_stored(2, high, BYTES);
        _tile_stored(3, high + TILE_SIDE, BYTES);
    }
    MEMORY_IS_READ;
    end_all(end, before);
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
#define EACH_4(M, e) M(e), M((e) + 1), M((e) + 2), M((e) + 3)
#define EACH_16(M, e) EACH_4(M, e), EACH_4(M, (e) + 4), EACH_4(M, (e) + 8), EACH_4(M, (e) + 12)
#define EACH_32(M, e) EACH_16(M, e), EACH_16(M, (e) + 16)

static void interleave(const char *const *plane, int64_t count, char *to) {
    enum { LANES = 32 };
    static const _Alignas(64) uint16_t pick_two[3 * LANES] = {
        EACH_32(PICK_TWO, 0), EACH_32(PICK_TWO, 32), EACH_32(PICK_TWO, 64)};
    static const _Alignas(64) uint16_t pick_third[3 * LANES] = {
        EACH_32(PICK_THIRD, 0), EACH_32(PICK_THIRD, 32), EACH_32(PICK_THIRD, 64)};
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
    .multiply = multiply, .end = end_all, .rows = store_rows, .interleave = interleave};
