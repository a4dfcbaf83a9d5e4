/* The gemm kernels of bf16 on AMX tiles: 32 x 32 of the result in four tiles of 16 rows of 16 f32,
 * 32 of k at a time. Compiled with that level's flags; run/gemm.c asks the processor first.
 *
 * Panels of columns are those of gemm_bf16.c, with zeros up to a multiple of 32 of k: 16 pairs of k
 * by 16 columns are a tile as they lie. A panel of rows holds, for each 32 of k, 32 rows of 64
 * bytes. A row past the matrix is zeros there, and whatever a tile sums for it is dropped.
 *
 * Tiles 0-3 sum, 4 and 5 hold rows, 6 and 7 columns. They are configured in begin, for the thread,
 * and let go in end: other libraries have their own configuration. */
#include "run/gemm_bf16.h"
#include <immintrin.h>
#include <string.h>

enum {
    HALF = 16,        /* rows, and columns, of one tile */
    SPAN = 2 * HALF,  /* of four */
    K_STEP = 32,      /* bf16 in a row of a tile */
    ROW_BYTES = 64,   /* the same in bytes */
    COPIED_STEPS = 8, /* steps of k that are copied at once, where rows lie unevenly */
    B_STRIDE = SPAN * 4,
    STEP_BYTES = SPAN * ROW_BYTES /* of a panel of either kind */
};

static void begin(void) {
    struct {
        uint8_t palette, start_row, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int t = 0; t < 8; t++) config.row_bytes[t] = ROW_BYTES, config.rows[t] = HALF;
    __asm__ volatile("" : : "r"(&config) : "memory"); /* the intrinsic reads more than it says */
    _tile_loadconfig(&config);
}

static void end(void) { _tile_release(); }

/* ---- sums ---- */

/* The intrinsics of loads do not tell the compiler that they read memory. */
#define MEMORY_IS_READ __asm__ volatile("" ::: "memory")

static inline void open_sums(const float *c, int64_t stride, bool two, bool add) {
    int64_t bytes = stride * 4;
    MEMORY_IS_READ;
    if (add) {
        _tile_loadd(0, c, bytes);
        _tile_loadd(1, c + HALF, bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
    }
    if (!two) return;
    if (add) {
        _tile_loadd(2, c + HALF * stride, bytes);
        _tile_loadd(3, c + HALF * stride + HALF, bytes);
    } else {
        _tile_zero(2);
        _tile_zero(3);
    }
}

static inline void close_sums(float *c, int64_t stride, bool two) {
    int64_t bytes = stride * 4;
    _tile_stored(0, c, bytes);
    _tile_stored(1, c + HALF, bytes);
    if (!two) return;
    _tile_stored(2, c + HALF * stride, bytes);
    _tile_stored(3, c + HALF * stride + HALF, bytes);
}

typedef struct Half { /* 16 rows of A: step i of k at from + i * step, row r at r * stride more */
    const char *from;
    int64_t step, stride;
} Half;

/* Adds `steps` steps of k. two: rows 16 to 31 as well. */
static inline void sum_steps(int64_t steps, Half low, Half high, const char *b, bool two) {
    MEMORY_IS_READ;
    for (int64_t i = 0; i < steps; i++, b += STEP_BYTES) {
        _tile_loadd(6, b, B_STRIDE);
        _tile_loadd(4, low.from + i * low.step, low.stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + ROW_BYTES, B_STRIDE);
        _tile_dpbf16ps(1, 4, 7);
        if (!two) continue;
        _tile_loadd(5, high.from + i * high.step, high.stride);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

/* Where a tile is not full, its sums go through a full one on the stack. */
typedef struct Target {
    float *c, *given;
    int64_t stride, given_stride;
    int rows, columns;
    bool two, add, partial;
} Target;

static Target target_of(void *c, int64_t stride, int rows, int columns, bool add, float *full) {
    Target t = {c, c, stride, stride, rows, columns, rows > HALF, add, false};
    t.partial = columns < SPAN || (rows != HALF && rows != SPAN);
    if (t.partial) t.c = full, t.stride = SPAN, t.add = false;
    return t;
}

static inline void close_target(const Target *t, bool add) {
    close_sums(t->c, t->stride, t->two);
    if (t->partial) gemm_bf16_move(t->c, SPAN, t->given, t->given_stride, t->rows, t->columns, add);
}

static void tile(int64_t k, const void *a, const void *b, void *c, int64_t stride, int rows,
                 int columns, bool add) {
    float full[SPAN * SPAN];
    Target t = target_of(c, stride, rows, columns, add, full);
    Half low = {a, STEP_BYTES, ROW_BYTES};
    Half high = {(const char *)a + HALF * ROW_BYTES, STEP_BYTES, ROW_BYTES};
    open_sums(t.c, t.stride, t.two, t.add);
    sum_steps((k + K_STEP - 1) / K_STEP, low, high, b, t.two);
    close_target(&t, add);
}

/* ---- rows where they lie ---- */

/* The distance from each of the rows to the next, where it is the same; or 0. */
static int64_t even_stride(const char *const *row, int rows) {
    int64_t stride = row[1] - row[0];
    bool even = rows == HALF;
    for (int r = 1; r < HALF && even; r++) even = row[r] - row[r - 1] == stride;
    return even ? stride : 0;
}

/* The first `count` of k of a row, at most 32; zeros follow. */
static inline void copy_part(char *to, const char *from, int64_t count) {
#if defined(__AVX512BW__)
    __mmask32 mask = (__mmask32)(((uint64_t)1 << count) - 1);
    _mm512_storeu_si512(to, _mm512_maskz_loadu_epi16(mask, from));
#else
    memset(to, 0, ROW_BYTES);
    memcpy(to, from, (size_t)count * 2);
#endif
}

/* k [first, first + steps * 32) of 16 rows as a half panel; `rows` of them exist. */
static void copy_half(char *to, const char *const *row, int rows, int64_t first, int64_t steps,
                      int64_t k) {
    for (int r = 0; r < HALF; r++, to += ROW_BYTES) {
        for (int64_t i = 0; i < steps; i++) {
            int64_t at = first + i * K_STEP, count = r < rows ? k - at : 0;
            char *piece = to + i * STEP_BYTES;
            if (count >= K_STEP)
                memcpy(piece, row[r] + at * 2, ROW_BYTES);
            else if (count > 0)
                copy_part(piece, row[r] + at * 2, count);
            else
                memset(piece, 0, ROW_BYTES);
        }
    }
}

typedef struct Rows { /* one tap: 32 rows, and room for a copy of a part of them */
    const char *const *row;
    int64_t k, stride[2]; /* of each half: 0 where it has to be copied */
    int rows[2];
    char *copy;
} Rows;

static Half half_of(const Rows *rows, int which, int64_t first, int64_t steps, bool whole) {
    const char *const *row = rows->row + which * HALF;
    if (whole && rows->stride[which])
        return (Half){row[0] + first * 2, ROW_BYTES, rows->stride[which]};
    char *copy = rows->copy + which * HALF * ROW_BYTES;
    copy_half(copy, row, rows->rows[which], first, steps, rows->k);
    return (Half){copy, STEP_BYTES, ROW_BYTES};
}

static inline void sum_tap(const Rows *rows, const char *b, bool two) {
    int64_t all = (rows->k + K_STEP - 1) / K_STEP, whole = rows->k / K_STEP;
    bool copies = !rows->stride[0] || (two && !rows->stride[1]);
    for (int64_t i = 0; i < all;) {
        int64_t steps = i < whole ? whole - i : all - i;
        if (copies && steps > COPIED_STEPS) steps = COPIED_STEPS;
        bool in_place = i < whole;
        Half low = half_of(rows, 0, i * K_STEP, steps, in_place), high = low;
        if (two) high = half_of(rows, 1, i * K_STEP, steps, in_place);
        sum_steps(steps, low, high, b + i * STEP_BYTES, two);
        i += steps;
    }
}

static void rows_tile(int64_t taps, int64_t k, const void *const *row, const void *b, void *c,
                      int64_t stride, int rows, int columns, bool add) {
    float full[SPAN * SPAN];
    char copy[COPIED_STEPS * STEP_BYTES];
    Target t = target_of(c, stride, rows, columns, add, full);
    Rows from = {.row = (const char *const *)row, .k = k, .copy = copy};
    from.rows[0] = rows < HALF ? rows : HALF, from.rows[1] = rows - from.rows[0];
    int64_t tap_bytes = (k + K_STEP - 1) / K_STEP * STEP_BYTES;
    open_sums(t.c, t.stride, t.two, t.add);
    for (; taps > 0; taps--, from.row += SPAN, b = (const char *)b + tap_bytes) {
        from.stride[0] = even_stride(from.row, from.rows[0]);
        from.stride[1] = t.two ? even_stride(from.row + HALF, from.rows[1]) : 0;
        sum_tap(&from, b, t.two);
    }
    close_target(&t, add);
}

/* ---- packing ---- */

static void pack(void *panel, const void *matrix, int64_t lane_stride, int64_t k_stride, int lanes,
                 int width, int64_t k) {
    int64_t pairs = (k + 1) / 2, all = (k + K_STEP - 1) / K_STEP * (K_STEP / 2);
    gemm_bf16_pack(panel, matrix, lane_stride, k_stride, lanes, width, k);
    memset((char *)panel + pairs * width * 4, 0, (size_t)((all - pairs) * width * 4));
}

static void pack_rows(void *panel, const void *matrix, int64_t lane_stride, int64_t k_stride,
                      int lanes, int width, int64_t k) {
    const uint16_t *in = matrix;
    uint16_t *out = panel;
    for (int64_t i = 0; i < k; i += K_STEP) {
        int64_t count = k - i < K_STEP ? k - i : K_STEP;
        for (int r = 0; r < width; r++, out += K_STEP) {
            const uint16_t *from = in + r * lane_stride + i * k_stride;
            int64_t here = r < lanes ? count : 0, at = 0;
            if (k_stride == 1 && here == K_STEP) memcpy(out, from, ROW_BYTES), at = K_STEP;
            for (; at < here; at++) out[at] = from[at * k_stride];
            for (; at < K_STEP; at++) out[at] = 0;
        }
    }
}

const GemmType gemm_bf16_amx = {
    .rows = SPAN,
    .columns = SPAN,
    .together = 2,
    .k_unit = K_STEP,
    .begin = begin,
    .end = end,
    .tile = tile,
    .rows_tile = rows_tile,
    .pack = pack,
    .pack_rows = pack_rows,
};
