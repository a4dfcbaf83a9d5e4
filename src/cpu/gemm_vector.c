/* One row times a matrix, or a matrix times one column, and a few of them: bound by reading the
 * matrix, so nothing is packed. y[j] = sum over k of x[k] * w(k, j) for each vector x, where w has
 * a unit stride along k (dot products) or, for one vector, along j (sums of rows). f32 and f64, and
 * for one vector halves, which are widened a few KB at a time. */
#include "base/parallel.h"
#include "base/round.h"
#include "cpu/gemm_internal.h"
#include <math.h>
#include <string.h>

enum {
    DOT_COLUMNS = 64,
    DOT_TOGETHER = 4, /* columns that share a vector's elements, and stay in L1 for the next one */
    SWEEP_COLUMNS = 1024, /* a task's sums are in L1 ... */
    LEAST_COLUMNS = 128,  /* ... and its part of a row is some lines of the cache */
    MOST_VECTORS = 6,     /* more take less time from a packed matrix */
    PIECE = 32 * 1024,    /* elements of a long sum that a thread takes */
    FEW_SUMS = 8,         /* more are tasks enough by themselves */
    WIDE_ROOM = 4096,   /* f32 that a piece of a matrix of halves is widened to: they stay in L1 */
    WIDE_COLUMNS = 256, /* sums of rows that such a piece has */
    NEAR_BYTES = 32 << 10, /* of columns that L1 has for the next vector */
    LEAST_K = 64,          /* of several vectors: shorter sums spend their time on their ends */
    TASK_BYTES = 64 * 1024 /* of the matrix: what is worth waking a thread for */
};

typedef struct VectorJob {
    const Gemm *gemm;
    bool swapped; /* the matrix is A */
    int64_t vectors, columns, k, w_k, w_j;
    int64_t x_stride, x_step; /* of a vector: from k to k; from one to the next */
    int64_t y_stride, y_step; /* the same of the results */
    int64_t block, blocks;    /* columns of a task, tasks of a batch item */
} VectorJob;

/* The matrix is the larger factor, or the one whose sums lie in a row. */
static bool matrix_is_a(const MatmulTask *task) {
    if (task->m == 1 || task->n == 1) return task->m != 1;
    bool b_is_dot = task->b_k == 1 && task->m <= MOST_VECTORS;
    bool a_is_dot = task->a_k == 1 && task->n <= MOST_VECTORS;
    return a_is_dot && (task->n < task->m || !b_is_dot);
}

/* Of a task: no sum depends on where columns are cut, so every thread gets some. */
static int64_t sweep_columns(const Gemm *gemm, int64_t columns) {
    int64_t parts = least(divide_up(gemm->threads, gemm->task.batch > 0 ? gemm->task.batch : 1),
                          divide_up(columns, LEAST_COLUMNS));
    return parts > 1 ? least(SWEEP_COLUMNS, divide_up(columns, parts)) : SWEEP_COLUMNS;
}

static VectorJob describe(const Gemm *gemm) {
    const MatmulTask *s = &gemm->task;
    VectorJob job = {.gemm = gemm, .swapped = matrix_is_a(s), .k = s->k};
    if (job.swapped) {
        job.vectors = s->n, job.columns = s->m, job.w_k = s->a_k, job.w_j = s->a_m;
        job.x_stride = s->b_k, job.x_step = s->b_n, job.y_stride = s->n, job.y_step = 1;
    } else {
        job.vectors = s->m, job.columns = s->n, job.w_k = s->b_k, job.w_j = s->b_n;
        job.x_stride = s->a_k, job.x_step = s->a_m, job.y_stride = 1, job.y_step = s->n;
    }
    job.block = job.w_k == 1 ? DOT_COLUMNS : sweep_columns(gemm, job.columns);
    job.blocks = divide_up(job.columns, job.block);
    return job;
}

bool gemm_fits_vector(const MatmulTask *task) {
    if (!dtype_is_float(task->dtype)) return false;
    VectorJob job = describe(&(Gemm){.task = *task});
    /* a matrix to the right of bf16 is read as fast by what multiplies these, or packed once */
    if (task->dtype == CB_BF16 && gemm_bf16() && !job.swapped && job.columns > FEW_SUMS)
        return false;
    if (job.vectors == 1) return job.w_k == 1 || job.w_j == 1;
    return !task->reduced && !dtype_is_half(task->dtype) && job.vectors <= MOST_VECTORS &&
           job.w_k == 1 && job.k >= LEAST_K;
}

/* Dot products of four columns at a time read each element of these once; sums of eight rows at a
 * time read and write what they add to. Ends of rows go element by element. */
double gemm_vector_cycles(const MatmulTask *task) {
    static const double begin = 100, fold = 35, end = 14;
    const GemmType *type = gemm_choose(task->dtype, false, false).type;
    VectorJob job = describe(&(Gemm){.task = *task, .threads = 1});
    double lanes = (double)type->columns / 2, k = (double)job.k, item = begin;
    bool near = job.vectors == 1 ||
                DOT_TOGETHER * job.k * (int64_t)cb_dtype_size(task->dtype) <= NEAR_BYTES;
    double step = near ? 8 : 16;
    if (job.x_stride != 1) item += (double)job.vectors * k;
    if (job.w_k == 1) {
        double columns = (double)(job.columns / DOT_TOGETHER + job.columns % DOT_TOGETHER);
        item += (double)job.vectors * columns * (k / (2 * lanes) * step + fold);
    } else {
        double whole = floor((double)job.columns / lanes),
               rest = (double)job.columns - whole * lanes;
        item += k / 8 * (whole * step + rest * end + begin / 8);
    }
    return (double)task->batch * item;
}

bool gemm_vector_wants_panels(const MatmulTask *task) {
    VectorJob job = describe(&(Gemm){.task = *task});
    return job.vectors > 1 && !job.swapped;
}

static void copy_vector(void *out, const char *in, int64_t stride, int64_t count, size_t element) {
    if (element == sizeof(float))
        for (int64_t i = 0; i < count; i++) ((float *)out)[i] = ((const float *)in)[i * stride];
    else
        for (int64_t i = 0; i < count; i++) ((double *)out)[i] = ((const double *)in)[i * stride];
}

static void copy_result(void *out, const void *in, int64_t stride, int64_t count, size_t element) {
    if (element == sizeof(float))
        for (int64_t i = 0; i < count; i++) ((float *)out)[i * stride] = ((const float *)in)[i];
    else
        for (int64_t i = 0; i < count; i++) ((double *)out)[i * stride] = ((const double *)in)[i];
}

/* Several vectors: a few columns at a time, which come from memory once. */
static void dots(const VectorJob *job, const char *x, int64_t x_step, const char *w, int64_t count,
                 char *y) {
    const Gemm *gemm = job->gemm;
    int64_t element = gemm->input_bytes;
    double result[DOT_TOGETHER];
    for (int64_t j = 0; j < count; j += DOT_TOGETHER) {
        int64_t columns = least(DOT_TOGETHER, count - j);
        for (int64_t v = 0; v < job->vectors; v++) {
            gemm->type->dot(job->k, columns, x + v * x_step * element, w + j * job->w_j * element,
                            job->w_j, result);
            copy_result(y + (j * job->y_stride + v * job->y_step) * element, result, job->y_stride,
                        columns, gemm->element);
        }
    }
}

/* One vector, which is widened already, and pieces of a matrix of halves. */
static void widened(const VectorJob *job, const float *x, const char *w, int64_t count, char *y) {
    const Gemm *gemm = job->gemm;
    int64_t element = gemm->input_bytes, to = gemm->narrow ? element : (int64_t)sizeof(float);
    bool dot = job->w_k == 1;
    int64_t columns = dot ? DOT_TOGETHER : WIDE_COLUMNS, rows = WIDE_ROOM / columns;
    float matrix[WIDE_ROOM], part[WIDE_COLUMNS];
    for (int64_t j = 0; j < count; j += columns) {
        int64_t here = least(columns, count - j);
        double sum[WIDE_COLUMNS] = {0};
        for (int64_t k = 0; k < job->k; k += rows) {
            int64_t deep = least(rows, job->k - k), lines = dot ? here : deep;
            const char *from = w + (k * job->w_k + j * job->w_j) * element;
            for (int64_t l = 0; l < lines; l++)
                gemm->convert(from + l * (dot ? job->w_j : job->w_k) * element,
                              matrix + l * (dot ? rows : columns), dot ? deep : here);
            if (dot)
                gemm->type->dot(deep, here, x + k, matrix, rows, part);
            else
                gemm->type->sweep(deep, here, x + k, matrix, columns, part);
            for (int64_t c = 0; c < here; c++) sum[c] += (double)part[c];
        }
        for (int64_t c = 0; c < here; c++) part[c] = (float)sum[c];
        if (gemm->narrow)
            gemm->narrow(part, y + j * to, here);
        else
            memcpy(y + j * to, part, (size_t)(here * to));
    }
}

static void finish(const VectorJob *job, int64_t batch, int64_t j, int64_t count) {
    const MatmulTask *task = &job->gemm->task;
    if (job->swapped)
        gemm_epilogue(job->gemm, batch * task->m + j, count, 0, task->n);
    else
        for (int64_t v = 0; v < job->vectors; v++)
            gemm_epilogue(job->gemm, batch * task->m + v, 1, j, count);
}

static void run_task(const VectorJob *job, int64_t task, const char *x, int64_t x_step) {
    const Gemm *gemm = job->gemm;
    int64_t batch = task / job->blocks, j = task % job->blocks * job->block;
    int64_t count = least(job->block, job->columns - j);
    int64_t a_offset, b_offset, element = gemm->input_bytes;
    gemm_batch_offsets(&gemm->task, batch, &a_offset, &b_offset);
    const char *w = job->swapped ? gemm->a + a_offset * element : gemm->b + b_offset * element;
    w += j * job->w_j * element;
    int64_t to = gemm->task.wide ? (int64_t)sizeof(float) : element;
    char *y = gemm->out + (batch * gemm->task.m * gemm->task.n + j * job->y_stride) * to;
    if (gemm->convert)
        widened(job, (const float *)(const void *)x, w, count, y);
    else if (job->vectors > 1)
        dots(job, x, x_step, w, count, y);
    else if (job->w_k == 1)
        gemm->type->dot(job->k, count, x, w, job->w_j, y);
    else
        gemm->type->sweep(job->k, count, x, w, job->w_k, y);
    finish(job, batch, j, count);
}

/* The vectors of a batch item: where they are, or gathered, halves as f32. */
static const char *vectors_of(const VectorJob *job, int64_t batch, char *gathered) {
    const Gemm *gemm = job->gemm;
    int64_t a_offset, b_offset, element = gemm->input_bytes;
    gemm_batch_offsets(&gemm->task, batch, &a_offset, &b_offset);
    const char *x = job->swapped ? gemm->b + b_offset * element : gemm->a + a_offset * element;
    if (!gathered) return x;
    if (gemm->convert) {
        int64_t run = job->x_stride == 1 ? job->k : 1;
        for (int64_t i = 0; i < job->k; i += run)
            gemm->convert(x + i * job->x_stride * element, (float *)(void *)gathered + i, run);
        return gathered;
    }
    for (int64_t v = 0; v < job->vectors; v++)
        copy_vector(gathered + v * job->k * element, x + v * job->x_step * element, job->x_stride,
                    job->k, gemm->element);
    return gathered;
}

static void run_tasks(void *user, int64_t low, int64_t high) {
    const VectorJob *job = user;
    Storage *storage = NULL;
    int64_t x_step = job->x_stride == 1 ? job->x_step : job->k, batch = -1;
    if (job->x_stride != 1 || job->gemm->convert) {
        storage = storage_new((size_t)(job->vectors * job->k) * job->gemm->element);
        if (!storage) {
            atomic_store_explicit(job->gemm->failed, true, memory_order_relaxed);
            return;
        }
    }
    const char *x = NULL;
    for (int64_t task = low; task < high; task++) {
        if (task / job->blocks != batch) {
            batch = task / job->blocks;
            x = vectors_of(job, batch, storage ? storage->data : NULL);
        }
        run_task(job, task, x, x_step);
    }
    if (storage) storage_release(storage);
}

/* ---- few long sums ---- */

typedef struct LongSums {
    const VectorJob *job;
    const char *x, *w;
    char *partial; /* [piece][column] */
} LongSums;

static bool is_long(const VectorJob *job) {
    return !job->gemm->convert && job->gemm->task.batch == 1 && job->vectors == 1 &&
           job->w_k == 1 && job->x_stride == 1 && job->columns <= FEW_SUMS && job->k >= 2 * PIECE;
}

static void sum_pieces(void *user, int64_t low, int64_t high) {
    const LongSums *l = user;
    const VectorJob *job = l->job;
    int64_t element = job->gemm->input_bytes;
    for (int64_t piece = low; piece < high; piece++) {
        int64_t from = piece * PIECE, k = least(PIECE, job->k - from);
        job->gemm->type->dot(k, job->columns, l->x + from * element, l->w + from * element,
                             job->w_j, l->partial + piece * job->columns * element);
    }
}

static double element_at(const char *data, int64_t i, int64_t element) {
    if (element == sizeof(float)) return (double)((const float *)data)[i];
    return ((const double *)data)[i];
}

/* By pieces of one size, added in their order: the number of threads changes no bit. */
static bool long_sums(const VectorJob *job) {
    const Gemm *gemm = job->gemm;
    const MatmulTask *task = &gemm->task;
    int64_t pieces = divide_up(job->k, PIECE), element = gemm->input_bytes, a, b;
    Storage *storage = storage_new((size_t)(pieces * job->columns * element));
    if (!storage) return false;
    gemm_batch_offsets(task, 0, &a, &b);
    LongSums l = {job, gemm->a + a * element, gemm->b + b * element, storage->data};
    if (job->swapped) l.x = gemm->b + b * element, l.w = gemm->a + a * element;
    parallel_for(pieces, 1, sum_pieces, &l);
    for (int64_t j = 0; j < job->columns; j++) {
        double sum = 0;
        for (int64_t p = 0; p < pieces; p++)
            sum += element_at(l.partial, p * job->columns + j, element);
        if (element == sizeof(float))
            ((float *)gemm->out)[j * job->y_stride] = (float)sum;
        else
            ((double *)gemm->out)[j * job->y_stride] = sum;
    }
    storage_release(storage);
    finish(job, 0, 0, job->columns);
    return true;
}

bool gemm_vector(const Gemm *gemm) {
    VectorJob job = describe(gemm);
    if (is_long(&job)) return long_sums(&job);
    int64_t bytes = job.k * least(job.block, job.columns) * gemm->input_bytes;
    int64_t grain = TASK_BYTES / bytes + 1;
    parallel_for(gemm->task.batch * job.blocks, grain, run_tasks, &job);
    return !atomic_load_explicit(gemm->failed, memory_order_relaxed);
}
