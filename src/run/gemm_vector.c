/* One row times a matrix, or a matrix times one column: bound by reading the matrix, so nothing is
 * packed. Both are y[j] = sum over k of x[k] * w(k, j), where w has a unit stride along k (dot
 * products) or along j (sums of rows). f32 and f64. */
#include "base/parallel.h"
#include "base/round.h"
#include "run/gemm_internal.h"

enum {
    DOT_COLUMNS = 64,
    SWEEP_COLUMNS = 1024,
    TASK_BYTES = 64 * 1024 /* of the matrix: what is worth waking a thread for */
};

typedef struct VectorJob {
    const Gemm *gemm;
    bool swapped; /* the matrix is A */
    int64_t columns, k, w_k, w_j, x_stride;
    int64_t block, blocks; /* columns of a task, tasks of a batch item */
} VectorJob;

static VectorJob describe(const Gemm *gemm) {
    const MatmulStep *step = &gemm->step;
    bool swapped = step->m != 1;
    VectorJob job = {.gemm = gemm, .swapped = swapped, .k = step->k};
    job.columns = swapped ? step->m : step->n;
    job.w_k = swapped ? step->a_k : step->b_k;
    job.w_j = swapped ? step->a_m : step->b_n;
    job.x_stride = swapped ? step->b_k : step->a_k;
    job.block = job.w_k == 1 ? DOT_COLUMNS : SWEEP_COLUMNS;
    job.blocks = divide_up(job.columns, job.block);
    return job;
}

bool gemm_is_vector(const Gemm *gemm) {
    const MatmulStep *step = &gemm->step;
    if (step->dtype != CB_F32 && step->dtype != CB_F64) return false;
    if (step->m != 1 && step->n != 1) return false;
    VectorJob job = describe(gemm);
    return job.w_k == 1 || job.w_j == 1;
}

static void copy_vector(void *out, const char *in, int64_t stride, int64_t count, size_t element) {
    if (element == sizeof(float))
        for (int64_t i = 0; i < count; i++) ((float *)out)[i] = ((const float *)in)[i * stride];
    else
        for (int64_t i = 0; i < count; i++) ((double *)out)[i] = ((const double *)in)[i * stride];
}

static void run_task(const VectorJob *job, int64_t task, void *gathered) {
    const Gemm *gemm = job->gemm;
    int64_t batch = task / job->blocks, j = task % job->blocks * job->block;
    int64_t count = j + job->block < job->columns ? job->block : job->columns - j;
    int64_t a_offset, b_offset, element = gemm->input_bytes;
    gemm_batch_offsets(&gemm->step, batch, &a_offset, &b_offset);
    const char *w = job->swapped ? gemm->a + a_offset * element : gemm->b + b_offset * element;
    const char *x = job->swapped ? gemm->b + b_offset * element : gemm->a + a_offset * element;
    if (job->x_stride != 1) {
        copy_vector(gathered, x, job->x_stride, job->k, gemm->element);
        x = gathered;
    }
    w += j * job->w_j * element;
    char *y = gemm->out + (batch * job->columns + j) * element;
    if (job->w_k == 1)
        gemm->type->dot(job->k, count, x, w, job->w_j, y);
    else
        gemm->type->sweep(job->k, count, x, w, job->w_k, y);
    if (job->swapped)
        gemm_epilogue(gemm, batch * gemm->step.m + j, count, 0, 1);
    else
        gemm_epilogue(gemm, batch, 1, j, count);
}

static void run_tasks(void *user, int64_t low, int64_t high) {
    const VectorJob *job = user;
    Storage *gathered = NULL;
    if (job->x_stride != 1) {
        gathered = storage_new((size_t)job->k * job->gemm->element);
        if (!gathered) {
            atomic_store_explicit(job->gemm->failed, true, memory_order_relaxed);
            return;
        }
    }
    for (int64_t task = low; task < high; task++)
        run_task(job, task, gathered ? gathered->data : NULL);
    if (gathered) storage_release(gathered);
}

bool gemm_vector(Gemm *gemm) {
    VectorJob job = describe(gemm);
    int64_t bytes = job.k * (job.block < job.columns ? job.block : job.columns) * gemm->input_bytes;
    int64_t grain = TASK_BYTES / bytes + 1;
    parallel_for(gemm->step.batch * job.blocks, grain, run_tasks, &job);
    return !atomic_load_explicit(gemm->failed, memory_order_relaxed);
}
