/* A product whose B lies with its sums in rows (a Linear's weight, [n, k]), read where it lies: as
 * rows of the register tile, while A, which is small beside it, becomes the panels.
 *
 *     sums[r][t] = sum over k of B[row + r][k] * A[t][k]      a tile, rows by tokens
 *     out[t][row + r] = sums[r][t]
 *
 * Nothing of B is copied: neither now, as panels would be by each call, nor once, which would take
 * its memory twice. Every element sums in the order that panels give: not a bit differs. */
#include "base/parallel.h"
#include "base/round.h"
#include "cpu/gemm_internal.h"
#include <math.h>

enum {
    RUN_COLUMNS = 224,  /* of the result in a task: the epilogue's runs */
    PACK_K = 256,       /* of k in a piece of packing */
    LEAST_K = 64,       /* shorter sums spend their time on turning the result */
    MOST_ROWS = 512,    /* of A: all of its panels are read for every tile */
    LEAST_COLUMNS = 64, /* of the result: tiles are full */
    A_BYTES = 3 << 19,  /* of panels that stay in L2 from tile to tile */
    MOST_SUMS = GEMM_MAX_WIDTH * GEMM_MAX_WIDTH
};

typedef struct TurnedJob {
    const Gemm *gemm;
    int64_t panels;       /* of A, each as wide as the tile; the last one may be half as wide */
    int64_t tasks, block; /* columns of the result in a task; the last one takes the rest, too */
    int64_t k_block;      /* each is summed by itself, as from panels */
    char *packed;         /* A, panel after panel */
} TurnedJob;

typedef struct TurnedPanel { /* of A */
    int64_t first, tokens;   /* rows of A */
    int width;
    char *at;
} TurnedPanel;

static TurnedPanel panel_at(const TurnedJob *job, int64_t number) {
    const Gemm *gemm = job->gemm;
    int64_t columns = gemm->type->columns, first = number * columns;
    TurnedPanel panel = {first, least(columns, gemm->task.m - first), (int)columns, NULL};
    if (panel.tokens <= columns / 2) panel.width = (int)columns / 2;
    panel.at = job->packed + first * gemm->task.k * (int64_t)gemm->element;
    return panel;
}

static int64_t pieces_of(const Gemm *gemm) { return divide_up(gemm->task.k, PACK_K); }

static void pack_pieces(void *user, int64_t low, int64_t high) {
    const TurnedJob *job = user;
    const Gemm *gemm = job->gemm;
    const MatmulTask *s = &gemm->task;
    int64_t element = (int64_t)gemm->element;
    for (int64_t i = low; i < high; i++) {
        TurnedPanel panel = panel_at(job, i / pieces_of(gemm));
        int64_t k = i % pieces_of(gemm) * PACK_K;
        int64_t from = s->a_offset + panel.first * s->a_m + k * s->a_k;
        gemm->type->pack(panel.at + k * panel.width * element, gemm->a + from * element, s->a_m,
                         s->a_k, (int)panel.tokens, panel.width, least(PACK_K, s->k - k));
    }
}

#define TURN(name, type)                                                                           \
    static void name(const type *sums, int64_t width, int64_t rows, int64_t tokens, type *out,     \
                     int64_t stride) {                                                             \
        for (int64_t t = 0; t < tokens; t++, out += stride)                                        \
            for (int64_t r = 0; r < rows; r++) out[r] = sums[r * width + t];                       \
    }
TURN(turn_f32, float)
TURN(turn_f64, double)

/* One block of k, of as many rows of B as the tile has; asks for what lies at next. */
static void run_block(const TurnedJob *job, const TurnedPanel *panel, const char *b, int64_t k,
                      void *sums, const char *next) {
    const Gemm *gemm = job->gemm;
    const GemmType *type = gemm->type;
    const MatmulTask *s = &gemm->task;
    const void *row[GEMM_MAX_WIDTH];
    int64_t element = (int64_t)gemm->element, count = least(job->k_block, s->k - k);
    int64_t ahead = type->rows * s->b_n * element / job->panels / s->k * count;
    const char *a = panel->at + k * panel->width * element;
    for (int r = 0; r < type->rows; r++) row[r] = b + (r * s->b_n + k) * element;
    if (panel->width == type->columns)
        type->rows_tile_ahead(1, count, row, a, sums, panel->width, type->rows, panel->width, k > 0,
                              &(GemmAhead){next, ahead, 0, 1});
    else
        type->rows_half_tile(count, row, a, sums, k > 0, next, divide_up(ahead, count));
}

/* Rows of B from `column` on, as many as the tile has, times all of A. While they are in the cache
 * the processor is asked for those behind them. */
static void run_tile(const TurnedJob *job, int64_t column) {
    const Gemm *gemm = job->gemm;
    const MatmulTask *s = &gemm->task;
    int64_t element = (int64_t)gemm->element, rows = gemm->type->rows;
    _Alignas(64) double sums[MOST_SUMS];
    const char *b = gemm->b + (s->b_offset + column * s->b_n) * element;
    int64_t bytes = rows * s->b_n * element, each = bytes / job->panels;
    for (int64_t i = 0; i < job->panels; i++) {
        TurnedPanel panel = panel_at(job, i);
        const char *next = b + bytes + i * each;
        for (int64_t k = 0; k < s->k; k += job->k_block)
            run_block(job, &panel, b, k, sums, next + each / s->k * k);
        char *out = gemm->out + (panel.first * s->n + column) * element;
        if (element == sizeof(float))
            turn_f32((const float *)(const void *)sums, panel.width, rows, panel.tokens,
                     (float *)(void *)out, s->n);
        else
            turn_f64(sums, panel.width, rows, panel.tokens, (double *)(void *)out, s->n);
    }
}

/* The last tile of a task ends with it, and computes some columns for the second time. */
static void run_tasks(void *user, int64_t low, int64_t high) {
    const TurnedJob *job = user;
    const Gemm *gemm = job->gemm;
    int64_t rows = gemm->type->rows, n = gemm->task.n;
    for (int64_t i = low; i < high; i++) {
        int64_t first = i * job->block, end = i + 1 == job->tasks ? n : first + job->block;
        for (int64_t column = first; column < end; column += rows)
            run_tile(job, least(column, end - rows));
        gemm_epilogue(gemm, 0, gemm->task.m, first, end - first);
    }
}

bool gemm_fits_turned(const MatmulTask *task) {
    if (task->dtype != CB_F32 && task->dtype != CB_F64) return false;
    return task->batch == 1 && task->b_k == 1 && task->k >= LEAST_K && task->m <= MOST_ROWS &&
           task->n >= LEAST_COLUMNS && task->m <= task->n;
}

/* Panels that are packed once, for all entries, are faster for GPT-2's 128 rows: 2 to 8 % on two
 * threads of an EPYC, 15 % on 16 of a Xeon. What may change, or is not to be copied, is read where
 * it lies: packing it for each call would cost more, unless A comes from beyond L2 for each tile:
 * 256 rows by 3072 of k took 10.6 ms on a Xeon, 9.3 from panels, by 4096 21 and 16; by 768 both
 * took 9.8. */
MethodCost gemm_turned_cost(const MatmulTask *task, bool constant) {
    bool stays = task->m * task->k * (int64_t)cb_dtype_size(task->dtype) < A_BYTES;
    bool panels = !stays || (constant && gemm_copies(task));
    return gemm_cost_of(panels ? INFINITY : gemm_turned_cycles(task));
}

bool gemm_turned(const Gemm *gemm) {
    const MatmulTask *s = &gemm->task;
    int64_t rows = gemm->type->rows, columns = gemm->type->columns;
    TurnedJob job = {.gemm = gemm, .panels = divide_up(s->m, columns)};
    job.k_block = gemm_k_block(gemm);
    Storage *storage = storage_new((size_t)(job.panels * columns * s->k) * gemm->element);
    if (!storage) return false;
    job.packed = storage->data;
    parallel_for(job.panels * pieces_of(gemm), 4, pack_pieces, &job);
    int64_t wanted = round_up(divide_up(s->n, RUN_COLUMNS), gemm->threads);
    job.block = least(s->n, round_up(divide_up(s->n, wanted), rows));
    job.tasks = s->n / job.block; /* the rest, less than a block, goes to the last */
    parallel_for(job.tasks, 1, run_tasks, &job);
    storage_release(storage);
    return true;
}
