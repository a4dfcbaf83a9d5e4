/* A few rows times a matrix whose rows lie one after the other: the matrix is read once, where it
 * lies, some of its rows at a time from left to right, and each element is multiplied by all rows
 * of A while it is in a register. Packing it would read and write it once more. Sums wait in the
 * result. f32 and f64.
 *
 *     for each run of k:        rows of B
 *       for each panel:           as many columns as the tile has
 *         for some rows of A:       out[r][j] += sum over the run of a[r][k] * b[k][j] */
#include "base/parallel.h"
#include "base/round.h"
#include "cpu/gemm_internal.h"
#include <string.h>

enum {
    MOST_ROWS = 64,        /* of A: more hide the packing of B */
    TASK_BYTES = 64 << 10, /* of B: what is worth waking a thread for */
    LEAST_COLUMNS = 128    /* of a task: its part of a row is some lines of the cache */
};

typedef struct SweptJob {
    const Gemm *gemm;
    int64_t block, blocks; /* columns of a task, tasks of a batch item */
} SweptJob;

typedef struct SweptPart { /* of the result */
    const char *a, *b;
    char *out;
    int64_t columns;
} SweptPart;

bool gemm_fits_swept(const MatmulTask *task) {
    if (task->dtype != CB_F32 && task->dtype != CB_F64) return false;
    return !gemm_may_be_bf16(task) && task->b_n == 1 && task->m > 1 && task->m <= MOST_ROWS &&
           task->n >= GEMM_MAX_WIDTH;
}

/* Columns behind the last full panel: sums wait in a panel of their own, whose first lanes are
 * columns of the panel before. */
static void run_rest(const Gemm *gemm, const SweptPart *part, int64_t column) {
    const MatmulTask *s = &gemm->task;
    _Alignas(64) char sums[MOST_ROWS * GEMM_MAX_WIDTH * sizeof(float)]; /* f64 has half as many */
    int64_t element = (int64_t)gemm->element, rest = part->columns - column;
    int64_t width = gemm_lanes_for(gemm->type->columns, rest);
    for (int64_t k = 0; k < s->k; k += GEMM_RUN_K)
        gemm->type->thin(s->m, least(GEMM_RUN_K, s->k - k), part->a + k * s->a_k * element, s->a_m,
                         s->a_k, part->b + (k * s->b_k + part->columns - width) * element, s->b_k,
                         (int)width, sums, width, k > 0);
    for (int64_t r = 0; r < s->m; r++)
        memcpy(part->out + (r * s->n + column) * element,
               sums + (r * width + width - rest) * element, (size_t)(rest * element));
}

static void run_part(const Gemm *gemm, const SweptPart *part) {
    const MatmulTask *s = &gemm->task;
    int64_t element = (int64_t)gemm->element, width = gemm->type->columns;
    int64_t full = part->columns / width * width;
    for (int64_t k = 0; k < s->k; k += GEMM_RUN_K) {
        int64_t rows = least(GEMM_RUN_K, s->k - k);
        const char *a = part->a + k * s->a_k * element, *b = part->b + k * s->b_k * element;
        for (int64_t j = 0; j < full; j += width)
            gemm->type->thin(s->m, rows, a, s->a_m, s->a_k, b + j * element, s->b_k, (int)width,
                             part->out + j * element, s->n, k > 0);
    }
    if (full < part->columns) run_rest(gemm, part, full);
}

static void run_tasks(void *user, int64_t low, int64_t high) {
    const SweptJob *job = user;
    const Gemm *gemm = job->gemm;
    const MatmulTask *s = &gemm->task;
    int64_t element = (int64_t)gemm->element;
    for (int64_t task = low; task < high; task++) {
        int64_t item = task / job->blocks, block = task % job->blocks, a, b;
        int64_t column = block * job->block;
        gemm_batch_offsets(s, item, &a, &b);
        SweptPart part = {.a = gemm->a + a * element, .b = gemm->b + (b + column) * element};
        part.out = gemm->out + (item * s->m * s->n + column) * element;
        part.columns = least(job->block, s->n - column);
        run_part(gemm, &part);
        gemm_epilogue(gemm, item * s->m, s->m, column, part.columns);
    }
}

/* Where columns are cut changes no sum. */
bool gemm_swept(const Gemm *gemm) {
    const MatmulTask *s = &gemm->task;
    SweptJob job = {.gemm = gemm};
    int64_t parts = least(divide_up(gemm->threads, s->batch), divide_up(s->n, LEAST_COLUMNS));
    job.block = round_up(divide_up(s->n, parts), gemm->type->columns);
    job.blocks = divide_up(s->n, job.block);
    int64_t bytes = s->k * least(job.block, s->n) * (int64_t)gemm->element;
    parallel_for(s->batch * job.blocks, divide_up(TASK_BYTES, bytes), run_tasks, &job);
    return true;
}
