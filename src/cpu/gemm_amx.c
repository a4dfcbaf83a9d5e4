/* The gemm kernels of bf16 on AMX tiles: 32 x 32 of the result in four tiles of 16 rows of 16 f32,
 * 32 of k at a time. Compiled with that level's flags; gemm_type.c asks the processor first.
 *
 * Panels of columns are those of gemm_bf16.c, with zeros up to a multiple of 32 of k: 16 pairs of k
 * by 16 columns are a tile as they lie. A panel of rows holds, for each 32 of k, 32 rows of 64
 * bytes. A row past the matrix is zeros there, and whatever a tile sums for it is dropped.
 *
 * A product of tiles takes 16 cycles, the four loads of a step 33 from L1 and 84 from L2, against
 * 64 for its four products: hence the short blocks of k.
 *
 * Tiles 0-3 sum, 4 and 5 hold rows, 6 and 7 columns. They are configured in begin, for the thread,
 * and let go in end: other libraries have their own configuration. */
#include "cpu/gemm_bf16.h"
#include "cpu/tile.h"
#include <immintrin.h>
#include <string.h>

enum {
    HALF = 16,       /* rows, and columns, of one tile */
    SPAN = 2 * HALF, /* of four */
    K_STEP = 32,     /* bf16 in a row of a tile */
    ROW_BYTES = 64,  /* the same in bytes */
    LINE = 64,       /* of the cache */
    PAGE = 4096,
    B_STRIDE = SPAN * 4,
    K_BYTES = 512,                /* a panel of columns and the rows of a tile: both stay in L1 */
    SUM_BYTES = 768 * 1024,       /* processors that have tiles have 2 MB of L2 for each core */
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

static void end(void) {
    _tile_release();
    _mm_sfence(); /* after gemm_bf16_stream */
}

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

/* What is read soon, for one tile: a run in each of its pages, `share` bytes of each with a step.
 * The processor's own prefetcher goes a few lines ahead within a page, and has the time to where
 * several pages take turns: GPT-2's head took 3.72 ms, not 3.88. */
typedef struct Runs {
    const char *from;
    int64_t pages, share;
} Runs;

static Runs runs_of(const GemmAhead *ahead, int64_t steps) {
    if (!ahead->bytes) return (Runs){ahead->panel, 0, 0};
    int64_t pages = (ahead->bytes + PAGE - 1) / PAGE;
    int64_t run = (ahead->bytes / pages + ahead->parts - 1) / ahead->parts;
    return (Runs){ahead->panel + ahead->part * run, pages, steps ? (run + steps - 1) / steps : 0};
}

/* Adds `steps` steps of k. two: rows 16 to 31 as well. */
static inline void sum_steps(int64_t steps, Half low, Half high, const char *b, bool two,
                             Runs ahead) {
    MEMORY_IS_READ;
    for (int64_t i = 0; i < steps; i++, b += STEP_BYTES, ahead.from += ahead.share) {
        for (int64_t j = 0; j < ahead.share; j += LINE)
            for (int64_t page = 0; page < ahead.pages; page++)
                __builtin_prefetch(ahead.from + page * PAGE + j, 0, 2); /* into L2 */
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
typedef struct SumTarget {
    float *c, *given;
    int64_t stride, given_stride;
    int rows, columns;
    bool two, add, partial;
} SumTarget;

static SumTarget target_of(void *c, int64_t stride, int rows, int columns, bool add, float *full) {
    SumTarget t = {c, c, stride, stride, rows, columns, rows > HALF, add, false};
    t.partial = columns < SPAN || (rows != HALF && rows != SPAN);
    if (t.partial) t.c = full, t.stride = SPAN, t.add = false;
    return t;
}

static inline void close_target(const SumTarget *t, bool add) {
    close_sums(t->c, t->stride, t->two);
    if (t->partial) gemm_bf16_move(t->c, SPAN, t->given, t->given_stride, t->rows, t->columns, add);
}

static void tile_ahead(int64_t k, const void *a, const void *b, void *c, int64_t stride, int rows,
                       int columns, bool add, const GemmAhead *ahead) {
    float full[SPAN * SPAN];
    int64_t steps = (k + K_STEP - 1) / K_STEP;
    SumTarget t = target_of(c, stride, rows, columns, add, full);
    Half low = {a, STEP_BYTES, ROW_BYTES};
    Half high = {(const char *)a + HALF * ROW_BYTES, STEP_BYTES, ROW_BYTES};
    open_sums(t.c, t.stride, t.two, t.add);
    sum_steps(steps, low, high, b, t.two, runs_of(ahead, steps));
    close_target(&t, add);
}

static void tile(int64_t k, const void *a, const void *b, void *c, int64_t stride, int rows,
                 int columns, bool add) {
    tile_ahead(k, a, b, c, stride, rows, columns, add, &(GemmAhead){b, 0, 0, 1});
}

/* ---- packing ---- */

/* The rest of a step of k. */
static void fill_up(void *panel, int width, int64_t k) {
    int64_t pairs = (k + 1) / 2, all = (k + K_STEP - 1) / K_STEP * (K_STEP / 2);
    memset((char *)panel + pairs * width * 4, 0, (size_t)((all - pairs) * width * 4));
}

static void pack(void *panel, const void *matrix, int64_t lane_stride, int64_t k_stride, int lanes,
                 int width, int64_t k) {
    gemm_bf16_pack(panel, matrix, lane_stride, k_stride, lanes, width, k);
    fill_up(panel, width, k);
}

static void pack_f32(void *panel, const void *matrix, int64_t lane_stride, int64_t k_stride,
                     int lanes, int width, int64_t k) {
    gemm_bf16_pack_f32(panel, matrix, lane_stride, k_stride, lanes, width, k);
    fill_up(panel, width, k);
}

typedef uint32_t Pairs __attribute__((vector_size(ROW_BYTES)));

/* Lanes that lie side by side, of one k. */
static inline Pairs lanes_at(const uint16_t *in, __mmask16 read) {
    return (Pairs)_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(read, in));
}

/* Up to 32 of k of up to 16 lanes that lie side by side: pairs along k, then 16 x 16 pairs turned
 * about. */
static void turn(uint16_t *out, const uint16_t *in, int64_t k_stride, int lanes, int64_t count) {
    __mmask16 read = (__mmask16)((1u << lanes) - 1);
    Pairs row[HALF];
    for (int i = 0; i < HALF; i++, in += 2 * k_stride) {
        row[i] = lanes_at(in, 2 * i < count ? read : 0);
        row[i] |= lanes_at(in + k_stride, 2 * i + 1 < count ? read : 0) << 16;
    }
    TRANSPOSE(Pairs, row, HALF, LOW_16, HIGH_16);
    for (int r = 0; r < HALF; r++) _mm512_storeu_si512(out + r * K_STEP, (__m512i)row[r]);
}

/* A step of k from rows that lie along it, or from elements by themselves. */
static void pack_step(uint16_t *out, const uint16_t *in, int64_t lane_stride, int64_t k_stride,
                      int lanes, int64_t count) {
    __mmask32 read = (__mmask32)((UINT64_C(1) << count) - 1);
    for (int r = 0; r < SPAN; r++, out += K_STEP, in += lane_stride) {
        if (k_stride == 1)
            _mm512_storeu_si512(out, _mm512_maskz_loadu_epi16(r < lanes ? read : 0, in));
        else
            for (int64_t k = 0; k < K_STEP; k++)
                out[k] = r < lanes && k < count ? in[k * k_stride] : 0;
    }
}

static void pack_rows(void *panel, const void *matrix, int64_t lane_stride, int64_t k_stride,
                      int lanes, int width, int64_t k) {
    (void)width; /* SPAN */
    const uint16_t *in = matrix;
    uint16_t *out = panel;
    for (int64_t i = 0; i < k; i += K_STEP, in += K_STEP * k_stride, out += SPAN * K_STEP) {
        int64_t count = k - i < K_STEP ? k - i : K_STEP;
        if (lane_stride != 1) {
            pack_step(out, in, lane_stride, k_stride, lanes, count);
            continue;
        }
        for (int64_t r = 0; r < K_STEP; r++) __builtin_prefetch(in + (K_STEP + r) * k_stride);
        turn(out, in, k_stride, lanes < HALF ? lanes : HALF, count);
        if (lanes > HALF)
            turn(out + HALF * K_STEP, in + HALF, k_stride, lanes - HALF, count);
        else
            memset(out + HALF * K_STEP, 0, HALF * ROW_BYTES);
    }
}

const GemmType gemm_bf16_amx = {
    .rows = SPAN,
    .columns = SPAN,
    .together = 2,
    .k_unit = K_STEP,
    .k_bytes = K_BYTES,
    .sum_bytes = SUM_BYTES,
    .begin = begin,
    .end = end,
    .tile = tile,
    .tile_ahead = tile_ahead,
    .narrow = gemm_bf16_narrow,
    .stream = gemm_bf16_stream,
    .pack = pack,
    .pack_f32 = pack_f32,
    .pack_rows = pack_rows,
};
