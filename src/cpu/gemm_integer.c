/* Integer and bool products. A task is a block of the result's rows and columns, whose sums lie in
 * a scratch; for a piece of k at a time, what is not side by side there, or single bytes, is
 * gathered, and each row of A goes over B in one of two ways:
 *
 *     sweep   the columns of B as lanes:       sum[j] += a[k] * b[k][j], four k at a time
 *     dots    k as lanes, for few rows or columns, which would not pay for turning B or fill
 *             lanes:                           sum[j] += a[.] * b[.][j]
 *
 * A few columns of a B beside an A that lies turned change places with it (out' = B' A'). Where B
 * is a few elements, as in batches of tiny matrices, there is neither scratch nor piece: a plain
 * loop. Sums wrap to the dtype; bool is "any of both". */
#include "base/cpu.h"
#include "base/parallel.h"
#include "base/round.h"
#include "cpu/gemm_internal.h"
#include "cpu/integer_kernel.h"
#include <string.h>

enum {
    TASK_PRODUCTS = 32 * 1000,
    LINE_BYTES = 1024,      /* of lanes, and of a row of sums */
    DEEP = 64,              /* the other side of a piece of B, which is 64 KB then: a part of L2 */
    SUM_BYTES = 256 * 1024, /* of a task's sums: rows share what was gathered of B */
    LEAST_ROWS = 8,         /* so many rows a task has to share it, when threads want tasks */
    FEW = 8,                /* rows or columns that are few */
    FEW_ROWS = 32,          /* rows that do not pay for turning B, where A need not be */
    TINY = 64,              /* elements of B that are */
    LEAST_K = 16,           /* of dots */
    TOGETHER = 16,          /* rows of A that are gathered together */
    SQUARE = 16             /* columns of B whose lines of the cache are read together to turn it */
};

/* ---- to what is summed, and back ---- */

typedef struct Factor { /* in elements, along rows or columns of the result and along k */
    const char *data;
    int64_t step, k_step;
} Factor;

typedef struct IntegerMoves { /* of elements of one size */
    int64_t wide;             /* bytes of a summed element */
    /* out[i * width + j] = in[i * row_step + j * column_step], widened; j < columns <= width */
    void (*gather)(void *out, int64_t width, const void *in, int64_t row_step, int64_t column_step,
                   int64_t rows, int64_t columns);
    /* out[j * step] = sum[j], cut to the element */
    void (*scatter)(void *out, int64_t step, const void *sum, int64_t columns);
    /* out[i * row_step + j * step] = the sum of a[i][.] * b[.][j] */
    void (*multiply)(void *out, int64_t row_step, int64_t step, const Factor *a, const Factor *b,
                     int64_t rows, int64_t columns, int64_t depth);
} IntegerMoves;

#define MOVES(type, wide)                                                                          \
    static void gather_##type(void *to, int64_t width, const void *from, int64_t row_step,         \
                              int64_t column_step, int64_t rows, int64_t columns) {                \
        const type##_t *in = from;                                                                 \
        wide##_t *restrict out = to;                                                               \
        for (int64_t i = 0; i < rows && column_step == 1; i++)                                     \
            _Pragma("omp simd") for (int64_t j = 0; j < columns; j++) out[i * width + j] =         \
                in[i * row_step + j];                                                              \
        for (int64_t low = 0; low < columns && column_step != 1; low += SQUARE)                    \
            for (int64_t i = 0; i < rows; i++)                                                     \
                for (int64_t j = low; j < least(columns, low + SQUARE); j++)                       \
                    out[i * width + j] = in[i * row_step + j * column_step];                       \
    }                                                                                              \
    static void scatter_##type(void *to, int64_t step, const void *from, int64_t columns) {        \
        const wide##_t *sum = from;                                                                \
        type##_t *restrict out = to;                                                               \
        if (step == 1)                                                                             \
            _Pragma("omp simd") for (int64_t j = 0; j < columns; j++) out[j] = (type##_t)sum[j];   \
        else                                                                                       \
            for (int64_t j = 0; j < columns; j++) out[j * step] = (type##_t)sum[j];                \
    }                                                                                              \
    static void multiply_##type(void *to, int64_t row_step, int64_t step, const Factor *a,         \
                                const Factor *b, int64_t rows, int64_t columns, int64_t depth) {   \
        type##_t *restrict out = to;                                                               \
        for (int64_t i = 0; i < rows; i++)                                                         \
            for (int64_t j = 0; j < columns; j++) {                                                \
                const type##_t *x = (const type##_t *)a->data + i * a->step;                       \
                const type##_t *y = (const type##_t *)b->data + j * b->step;                       \
                wide##_t sum = 0;                                                                  \
                for (int64_t k = 0; k < depth; k++)                                                \
                    sum += (wide##_t)((wide##_t)x[k * a->k_step] * (wide##_t)y[k * b->k_step]);    \
                out[i * row_step + j * step] = (type##_t)sum;                                      \
            }                                                                                      \
    }
MOVES(uint8, uint16)
MOVES(uint16, uint16)
MOVES(uint32, uint32)
MOVES(uint64, uint64)

#define MOVES_OF(type, wide)                                                                       \
    { sizeof(wide##_t), gather_##type, scatter_##type, multiply_##type }
static const IntegerMoves moves_of_size[] = {MOVES_OF(uint8, uint16), MOVES_OF(uint16, uint16),
                                             MOVES_OF(uint32, uint32), MOVES_OF(uint64, uint64)};

/* ---- the job ---- */

typedef struct IntegerJob {
    const Gemm *gemm;
    const IntegerMoves *moves;
    const IntegerKernel *kernel;
    bool swapped, dots, tiny;
    int64_t rows, columns;
    Factor a, b; /* of the first batch item */
    int64_t row_block, column_block, k_block, row_blocks, column_blocks;
} IntegerJob;

typedef struct IntegerPart { /* rows and columns of one task, and its scratch */
    int64_t row, rows, column, columns;
    Factor a, b;
    char *sum, *gathered_a, *gathered_b;
} IntegerPart;

static IntegerJob describe(const Gemm *gemm) {
    static const IntegerKernel *const of_level[] = CPU_LEVELS(integer_kernels_);
    const MatmulTask *s = &gemm->task;
    int size = 0;
    while (1 << size < gemm->input_bytes) size++;
    IntegerJob job = {gemm, &moves_of_size[size], .rows = s->m, .columns = s->n};
    job.kernel = of_level[cpu_level()] + (size > 0 ? size - 1 : 0);
    job.a = (Factor){gemm->a, s->a_m, s->a_k}, job.b = (Factor){gemm->b, s->b_n, s->b_k};
    job.swapped = s->n < FEW && s->m >= FEW && s->a_m == 1 && s->a_k != 1;
    if (job.swapped) {
        Factor a = job.a;
        job.a = job.b, job.b = a, job.rows = s->n, job.columns = s->m;
    }
    bool turned = job.b.k_step == 1 && job.b.step != 1;
    bool narrow = job.columns < FEW && job.a.k_step == 1;
    int64_t few_rows = job.a.k_step == 1 ? FEW_ROWS : FEW, lanes = LINE_BYTES / job.moves->wide;
    bool flat = turned && (job.rows < few_rows || (job.a.k_step == 1 && job.columns < lanes / 8));
    job.dots = s->k >= LEAST_K && (flat || narrow);
    job.tiny = job.columns * s->k <= TINY && s->dtype != CB_BOOL;
    return job;
}

static void cut(IntegerJob *job) {
    const MatmulTask *s = &job->gemm->task;
    int64_t wide = job->moves->wide, lanes = LINE_BYTES / wide;
    job->k_block = least(s->k, job->dots ? lanes : DEEP);
    job->column_block = least(job->columns, job->dots ? DEEP : lanes);
    job->column_blocks = divide_up(job->columns, job->column_block);
    job->row_block = least(job->rows, SUM_BYTES / (job->column_block * wide));
    int64_t tasks = s->batch * job->column_blocks;
    if (job->gemm->threads > 1 && !job->swapped) { /* two for each, if there are rows for them */
        int64_t rows = job->rows * tasks / (2 * job->gemm->threads);
        job->row_block = least(job->row_block, rows < LEAST_ROWS ? LEAST_ROWS : rows);
    }
    job->row_blocks = divide_up(job->rows, job->row_block);
}

/* Rows of a side from `first` on, pieces of k that lie side by side: where they are, or gathered.
 * *width: from one to the next. */
static const char *lines_of_k(const IntegerJob *job, const Factor *side, int64_t first, int64_t k,
                              int64_t lines, int64_t count, char *gathered, int64_t *width) {
    int64_t size = job->gemm->input_bytes;
    const char *from = side->data + (first * side->step + k * side->k_step) * size;
    *width = side->step;
    if (side->k_step == 1 && size == job->moves->wide) return from;
    *width = job->k_block;
    job->moves->gather(gathered, *width, from, side->step, side->k_step, lines, count);
    return gathered;
}

/* The same of B along its columns. */
static const char *lines_of_columns(const IntegerJob *job, const IntegerPart *part, int64_t k,
                                    int64_t count, int64_t *width) {
    int64_t size = job->gemm->input_bytes;
    const Factor *b = &part->b;
    const char *from = b->data + (part->column * b->step + k * b->k_step) * size;
    *width = b->k_step;
    if (b->step == 1 && size == job->moves->wide) return from;
    *width = job->column_block;
    job->moves->gather(part->gathered_b, *width, from, b->k_step, b->step, count, part->columns);
    return part->gathered_b;
}

/* Sums of bools are 16 bits wide and would wrap: between pieces of k they become 0 or 1. */
static void keep_any(uint16_t *sum, int64_t count) {
    for (int64_t i = 0; i < count; i++) sum[i] = sum[i] != 0;
}

static void add_piece(const IntegerJob *job, const IntegerPart *part, int64_t k, int64_t count) {
    const IntegerKernel *kernel = job->kernel;
    int64_t b_width, a_width, wide = job->moves->wide;
    const char *b = job->dots ? lines_of_k(job, &part->b, part->column, k, part->columns, count,
                                           part->gathered_b, &b_width)
                              : lines_of_columns(job, part, k, count, &b_width);
    for (int64_t low = 0; low < part->rows; low += TOGETHER) {
        int64_t rows = least(TOGETHER, part->rows - low);
        const char *a =
            lines_of_k(job, &part->a, part->row + low, k, rows, count, part->gathered_a, &a_width);
        for (int64_t r = 0; r < rows; r++) {
            char *sum = part->sum + (low + r) * part->columns * wide;
            (job->dots ? kernel->dots : kernel->sweep)(count, part->columns, a + r * a_width * wide,
                                                       b, b_width, sum);
        }
    }
    if (job->gemm->task.dtype == CB_BOOL) keep_any((void *)part->sum, part->rows * part->columns);
}

static void write_sums(const IntegerJob *job, const IntegerPart *part, char *out, int64_t row_step,
                       int64_t column_step) {
    int64_t wide = job->moves->wide, size = job->gemm->input_bytes, k = job->gemm->task.k;
    memset(part->sum, 0, (size_t)(part->rows * part->columns * wide));
    for (int64_t low = 0; low < k; low += job->k_block)
        add_piece(job, part, low, least(job->k_block, k - low));
    for (int64_t r = 0; r < part->rows; r++)
        job->moves->scatter(out + r * row_step * size, column_step,
                            part->sum + r * part->columns * wide, part->columns);
}

static void multiply_tiny(const IntegerJob *job, const IntegerPart *part, char *out,
                          int64_t row_step, int64_t column_step) {
    int64_t size = job->gemm->input_bytes;
    Factor a = part->a, b = part->b;
    a.data += part->row * a.step * size, b.data += part->column * b.step * size;
    job->moves->multiply(out, row_step, column_step, &a, &b, part->rows, part->columns,
                         job->gemm->task.k);
}

static void write_part(const IntegerJob *job, const IntegerPart *part, int64_t batch) {
    const Gemm *gemm = job->gemm;
    int64_t n = gemm->task.n, first = batch * gemm->task.m;
    int64_t row_step = job->swapped ? 1 : n, column_step = job->swapped ? n : 1;
    int64_t at = first * n + part->row * row_step + part->column * column_step;
    (job->tiny ? multiply_tiny : write_sums)(job, part, gemm->out + at * gemm->input_bytes,
                                             row_step, column_step);
    if (job->swapped)
        gemm_epilogue(gemm, first + part->column, part->columns, 0, n);
    else
        gemm_epilogue(gemm, first + part->row, part->rows, part->column, part->columns);
}

static void run_part(const IntegerJob *job, IntegerPart *part, int64_t task) {
    const Gemm *gemm = job->gemm;
    int64_t blocks = job->row_blocks * job->column_blocks, batch = task / blocks;
    int64_t a_offset, b_offset, size = gemm->input_bytes;
    gemm_batch_offsets(&gemm->task, batch, &a_offset, &b_offset);
    part->a = job->a, part->b = job->b;
    part->a.data += (job->swapped ? b_offset : a_offset) * size;
    part->b.data += (job->swapped ? a_offset : b_offset) * size;
    part->row = task % blocks / job->column_blocks * job->row_block;
    part->column = task % job->column_blocks * job->column_block;
    part->rows = least(job->row_block, job->rows - part->row);
    part->columns = least(job->column_block, job->columns - part->column);
    write_part(job, part, batch);
}

static void run_parts(void *user, int64_t low, int64_t high) {
    const IntegerJob *job = user;
    int64_t wide = job->moves->wide;
    int64_t sum = round_up(job->row_block * job->column_block * wide, 64);
    int64_t a = round_up(least(TOGETHER, job->row_block) * job->k_block * wide, 64);
    int64_t b = job->column_block * job->k_block * wide;
    Storage *storage = storage_new((size_t)(sum + a + b));
    if (!storage) {
        atomic_store_explicit(job->gemm->failed, true, memory_order_relaxed);
        return;
    }
    IntegerPart part = {.sum = storage->data};
    part.gathered_a = part.sum + sum, part.gathered_b = part.gathered_a + a;
    for (int64_t task = low; task < high; task++) run_part(job, &part, task);
    storage_release(storage);
}

bool gemm_integer(const Gemm *gemm) {
    IntegerJob job = describe(gemm);
    cut(&job);
    int64_t products = job.row_block * job.column_block * gemm->task.k;
    parallel_for(gemm->task.batch * job.row_blocks * job.column_blocks,
                 divide_up(TASK_PRODUCTS, products), run_parts, &job);
    return !atomic_load_explicit(gemm->failed, memory_order_relaxed);
}
