/* Thin products, whose time is that of reading A and writing the result: packing panels of A would
 * take longer than multiplying, and a register tile of them would be mostly empty. A is read where
 * it lies, an element for all columns at once; the columns of B are lanes.
 *
 *     gemm_tall   k is short: B is packed once, each row of the result is written from left to
 *                 right
 *     gemm_long   m and n are few, k is long: pieces of k, whose sums are added in their order
 *
 * Where k is cut depends on k alone, so that the number of threads changes no bit. A piece is read
 * in runs of k that stay in L1 while all panels of columns meet them. */
#include "base/parallel.h"
#include "base/round.h"
#include "cpu/gemm_internal.h"
#include <string.h>

enum {
    MOST_K = 512,               /* of tall ones: a row group's elements of A stay in L1 */
    LEAST_ROWS = 64,            /* of tall ones */
    MOST_B = 512,               /* elements of a B that tiles of bf16 do not multiply faster */
    PACKED_BYTES = 96 << 10,    /* of B, as it is packed: a part of L2 */
    BLOCK_BYTES = 32 << 10,     /* of A and the result, between two epilogues: L1 */
    TASK_BYTES = 64 << 10,      /* the same: what is worth waking a thread for */
    MOST_SIDE = 256,            /* rows, and columns, of long ones */
    MOST_SUMS = 17 << 10,       /* of a piece of those: a part of L2 */
    LEAST_LONG_K = 513,         /* of long ones: several pieces */
    TASK_PRODUCTS = 250 * 1000, /* multiplications that are as well */
    MOST_LAST = 4               /* rows whose vectors reach beyond a block */
};

typedef struct ThinPanel { /* of B, or of the result */
    int64_t column;
    int width, columns; /* lanes, and those of them that are columns */
} ThinPanel;

/* Full tiles, and at the end what it takes. */
static ThinPanel panel_at(const Gemm *gemm, int64_t number) {
    int64_t full = gemm->type->columns, column = number * full, rest = gemm->task.n - column;
    int width = gemm_lanes_for(full, rest);
    return (ThinPanel){column, width, (int)least(width, rest)};
}

/* The same where it begins before the last tile's end: columns are computed twice rather than lanes
 * left empty, as far as there are so many. */
static ThinPanel full_panel_at(const Gemm *gemm, int64_t number) {
    ThinPanel panel = panel_at(gemm, number);
    int64_t before = panel.width - panel.columns;
    if (panel.column >= before) panel.column -= before, panel.columns = panel.width;
    return panel;
}

static int64_t panels_of(const Gemm *gemm) { return divide_up(gemm->task.n, gemm->type->columns); }

/* ---- tall ---- */

typedef struct TallJob {
    const Gemm *gemm;
    int64_t panels, rows; /* rows: of a block */
    char *packed;         /* B, panel after panel, each of them as if it were full */
} TallJob;

bool gemm_fits_tall(const MatmulTask *task) {
    if (!dtype_is_float(task->dtype) || task->batch != 1) return false;
    if (dtype_is_half(task->dtype) && task->a_k != 1) return false;
    if (gemm_may_be_bf16(task) && task->n * task->k > MOST_B) return false;
    int64_t element = task->dtype == CB_F64 ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    return task->k <= MOST_K && task->m >= LEAST_ROWS &&
           round_up(task->n, GEMM_MAX_WIDTH) * task->k * element <= PACKED_BYTES;
}

/* B as it is summed, row after row where its rows lie, else column after column. */
static void widen_b(const Gemm *gemm, MatmulTask *s, float *wide) {
    bool rows = s->b_n == 1;
    int64_t lines = rows ? s->k : s->n, line = rows ? s->n : s->k;
    int64_t next = rows ? s->b_k : s->b_n, step = rows ? 1 : s->b_k, run = step == 1 ? line : 1;
    for (int64_t l = 0; l < lines; l++)
        for (int64_t i = 0; i < line; i += run)
            gemm->convert(gemm->b + (s->b_offset + l * next + i * step) * gemm->input_bytes,
                          wide + l * line + i, run);
    s->b_k = rows ? line : 1, s->b_n = rows ? 1 : line;
}

static bool pack_b(const TallJob *job) {
    const Gemm *gemm = job->gemm;
    MatmulTask s = gemm->task;
    int64_t element = (int64_t)gemm->element;
    const char *b = gemm->b + s.b_offset * gemm->input_bytes;
    Storage *wide = NULL;
    if (gemm->convert) {
        wide = storage_new((size_t)(s.n * s.k) * gemm->element);
        if (!wide) return false;
        widen_b(gemm, &s, wide->data);
        b = wide->data;
    }
    for (int64_t i = 0; i < job->panels; i++) {
        ThinPanel panel = full_panel_at(gemm, i);
        gemm->type->pack(job->packed + i * gemm->type->columns * s.k * element,
                         b + panel.column * s.b_n * element, s.b_n, s.b_k, panel.columns,
                         panel.width, s.k);
    }
    if (wide) storage_release(wide);
    return true;
}

/* Rows of A, `a_m` elements apart, to those of the result: a few of them through all panels. */
static void multiply_rows(const TallJob *job, const char *a, int64_t a_m, int64_t a_k, int64_t rows,
                          char *out, int64_t stride) {
    const Gemm *gemm = job->gemm;
    int64_t element = (int64_t)gemm->element, k = gemm->task.k;
    int64_t step = job->panels == 1 ? rows : gemm->type->thin_rows;
    for (int64_t r = 0; r < rows; r += step)
        for (int64_t i = 0; i < job->panels; i++) {
            ThinPanel panel = full_panel_at(gemm, i);
            gemm->type->thin(least(step, rows - r), k, a + r * a_m * element, a_m, a_k,
                             job->packed + i * gemm->type->columns * k * element, panel.width,
                             panel.width, out + (r * stride + panel.column) * element, stride,
                             false);
        }
}

/* The last rows of a block, whose vectors would reach beyond it, pass by way of a copy. */
static void multiply_block(const TallJob *job, const char *a, int64_t a_m, int64_t a_k,
                           int64_t rows, char *out) {
    int64_t n = job->gemm->task.n, element = (int64_t)job->gemm->element;
    int64_t width = full_panel_at(job->gemm, job->panels - 1).width;
    int64_t last = n < width ? least(rows, divide_up(width, n) - 1) : 0, first = rows - last;
    multiply_rows(job, a, a_m, a_k, first, out, n);
    if (last == 0) return;
    _Alignas(64) char copy[MOST_LAST * GEMM_MAX_WIDTH * sizeof(double)];
    multiply_rows(job, a + first * a_m * element, a_m, a_k, last, copy, width);
    for (int64_t r = 0; r < last; r++)
        memcpy(out + (first + r) * n * element, copy + r * width * element, (size_t)(n * element));
}

/* room: for rows of A and of the result, where these are halves */
static void run_block(const TallJob *job, int64_t block, char *room) {
    const Gemm *gemm = job->gemm;
    const MatmulTask *s = &gemm->task;
    int64_t row = block * job->rows, rows = least(job->rows, s->m - row), a_m = s->a_m;
    const char *a = gemm->a + (s->a_offset + row * a_m) * gemm->input_bytes;
    int64_t result = gemm->narrow || !gemm->convert ? gemm->input_bytes : (int64_t)gemm->element;
    char *out = gemm->out + row * s->n * result;
    if (gemm->convert) {
        int64_t runs = a_m == s->k ? 1 : rows, run = a_m == s->k ? rows * s->k : s->k;
        for (int64_t r = 0; r < runs; r++)
            gemm->convert(a + r * a_m * gemm->input_bytes, room + r * s->k * (int64_t)gemm->element,
                          run);
        a = room, a_m = s->k;
        room += rows * s->k * (int64_t)gemm->element;
    }
    multiply_block(job, a, a_m, s->a_k, rows, gemm->narrow ? room : out);
    if (gemm->narrow) gemm->narrow(room, out, rows * s->n);
    gemm_epilogue(gemm, row, rows, 0, s->n);
}

static void run_blocks(void *user, int64_t low, int64_t high) {
    const TallJob *job = user;
    const Gemm *gemm = job->gemm;
    Storage *room = NULL;
    if (gemm->convert) {
        room = storage_new((size_t)(job->rows * (gemm->task.k + gemm->task.n)) * gemm->element);
        if (!room) {
            atomic_store_explicit(gemm->failed, true, memory_order_relaxed);
            return;
        }
    }
    for (int64_t block = low; block < high; block++)
        run_block(job, block, room ? room->data : NULL);
    if (room) storage_release(room);
}

bool gemm_tall(const Gemm *gemm) {
    const MatmulTask *s = &gemm->task;
    TallJob job = {.gemm = gemm, .panels = panels_of(gemm)};
    int64_t row_bytes = (s->k + s->n) * (int64_t)gemm->element, most = BLOCK_BYTES / row_bytes;
    job.rows = round_up(most < 1 ? 1 : most, gemm->type->thin_rows);
    Storage *packed =
        storage_new((size_t)(job.panels * gemm->type->columns * s->k) * gemm->element);
    if (!packed) return false;
    job.packed = packed->data;
    bool done = pack_b(&job);
    int64_t grain = least(divide_up(TASK_BYTES, job.rows * row_bytes),
                          divide_up(TASK_PRODUCTS, job.rows * s->k * s->n));
    if (done) parallel_for(divide_up(s->m, job.rows), grain, run_blocks, &job);
    storage_release(packed);
    return done && !atomic_load_explicit(gemm->failed, memory_order_relaxed);
}

/* ---- long ---- */

typedef struct LongJob {
    const Gemm *gemm;
    const char *a, *b;
    int64_t pieces, stride; /* from row to row of a piece's sums */
    char *sums;             /* [piece][row][column] */
} LongJob;

bool gemm_fits_long(const MatmulTask *task) {
    if (task->dtype != CB_F32 && task->dtype != CB_F64) return false;
    return task->batch == 1 && task->m <= MOST_SIDE && task->n <= MOST_SIDE &&
           task->m * task->n <= MOST_SUMS && task->k >= LEAST_LONG_K;
}

/* Rows [from, from + count) of B, whose columns lie side by side, with the elements behind these in
 * the lanes that are no columns: all but the last rows of B have such. */
static int64_t rows_that_lie(const MatmulTask *s, const ThinPanel *panel, int64_t from,
                             int64_t count) {
    int64_t more = panel->width - panel->columns;
    if (s->b_n != 1) return 0;
    int64_t last = more == 0 ? 0 : s->b_k > 0 ? divide_up(more, s->b_k) : s->k;
    return least(count, s->k - last > from ? s->k - last - from : 0);
}

/* One panel of k rows of a piece: B where it lies, and what does not packed. */
static void run_panel(const LongJob *job, int64_t from, int64_t k, const ThinPanel *panel,
                      char *packed) {
    const Gemm *gemm = job->gemm;
    const MatmulTask *s = &gemm->task;
    int64_t element = (int64_t)gemm->element, piece = from / GEMM_LONG_PIECE;
    int64_t lie = rows_that_lie(s, panel, from, k);
    bool add = from % GEMM_LONG_PIECE != 0;
    const char *a = job->a + from * s->a_k * element;
    const char *b = job->b + (from * s->b_k + panel->column * s->b_n) * element;
    char *sums = job->sums + (piece * s->m * job->stride + panel->column) * element;
    if (lie > 0)
        gemm->type->thin(s->m, lie, a, s->a_m, s->a_k, b, s->b_k, panel->width, sums, job->stride,
                         add);
    if (lie == k) return;
    gemm->type->pack(packed, b + lie * s->b_k * element, s->b_n, s->b_k, panel->columns,
                     panel->width, k - lie);
    gemm->type->thin(s->m, k - lie, a + lie * s->a_k * element, s->a_m, s->a_k, packed,
                     panel->width, panel->width, sums, job->stride, add || lie > 0);
}

static void run_pieces(void *user, int64_t low, int64_t high) {
    const LongJob *job = user;
    /* f64 has half as many */
    _Alignas(64) char packed[GEMM_RUN_K * GEMM_MAX_WIDTH * sizeof(float)];
    const MatmulTask *s = &job->gemm->task;
    int64_t end = least(high * GEMM_LONG_PIECE, s->k), panels = panels_of(job->gemm);
    int64_t run = panels == 1 && s->b_n == 1 && s->b_k > 0 ? GEMM_LONG_PIECE : GEMM_RUN_K;
    for (int64_t k = low * GEMM_LONG_PIECE; k < end; k += run)
        for (int64_t i = 0; i < panels; i++) {
            ThinPanel panel = panel_at(job->gemm, i);
            run_panel(job, k, least(run, end - k), &panel, packed);
        }
}

#define ADD_PIECES(name, type)                                                                     \
    static void name(const LongJob *job, type *out) {                                              \
        const MatmulTask *s = &job->gemm->task;                                                    \
        const type *row = (const type *)(const void *)job->sums;                                   \
        for (int64_t r = 0; r < s->m; r++, row += job->stride) {                                   \
            double sum[MOST_SIDE];                                                                 \
            for (int64_t j = 0; j < s->n; j++) sum[j] = (double)row[j];                            \
            for (int64_t p = 1; p < job->pieces; p++)                                              \
                for (int64_t j = 0; j < s->n; j++)                                                 \
                    sum[j] += (double)row[p * s->m * job->stride + j];                             \
            for (int64_t j = 0; j < s->n; j++) *out++ = (type)sum[j];                              \
        }                                                                                          \
    }
ADD_PIECES(add_pieces_f32, float)
ADD_PIECES(add_pieces_f64, double)

bool gemm_long(const Gemm *gemm) {
    const MatmulTask *s = &gemm->task;
    int64_t element = (int64_t)gemm->element;
    LongJob job = {.gemm = gemm, .pieces = divide_up(s->k, GEMM_LONG_PIECE)};
    job.a = gemm->a + s->a_offset * element, job.b = gemm->b + s->b_offset * element;
    job.stride = round_up(s->n, GEMM_MAX_WIDTH);
    Storage *sums = storage_new((size_t)(job.pieces * s->m * job.stride * element));
    if (!sums) return false;
    job.sums = sums->data;
    parallel_for(job.pieces, divide_up(TASK_PRODUCTS, GEMM_LONG_PIECE * s->m * s->n), run_pieces,
                 &job);
    if (element == sizeof(float))
        add_pieces_f32(&job, (float *)(void *)gemm->out);
    else
        add_pieces_f64(&job, (double *)(void *)gemm->out);
    storage_release(sums);
    gemm_epilogue(gemm, 0, s->m, 0, s->n);
    return true;
}
