/* The kinds of tasks, and what running and packing are for each (work.h). */
#include "method/work.h"

#include "cpu/attention.h"
#include "cpu/conv.h"
#include "cpu/gemm.h"

/* ---- one row per kind ---- */

typedef struct Kind {
    bool (*run)(const Work *work, const Operands *operands);
    bool (*pack)(const Work *work, const void *weight, cb_dtype dtype, Storage **packed);
} Kind;

static bool run_matmul(const Work *work, const Operands *operands) {
    return gemm_run(&work->task->matmul, operands);
}

static bool run_convolution(const Work *work, const Operands *operands) {
    return convolution_run(&work->task->convolution, work->method, operands);
}

static bool run_attention(const Work *work, const Operands *operands) {
    return attention_run(&work->task->attention, operands);
}

static bool run_sort(const Work *work, const Operands *operands) {
    return sort_run(&work->task->sort, operands);
}

static bool pack_matmul(const Work *work, const void *weight, cb_dtype dtype, Storage **packed) {
    return gemm_pack(&work->task->matmul, weight, dtype, packed);
}

static bool pack_convolution(const Work *work, const void *weight, cb_dtype dtype,
                             Storage **packed) {
    (void)dtype;
    return convolution_pack(&work->task->convolution, work->method, weight, packed);
}

static const Kind kinds[] = {
    [TASK_MATMUL] = {run_matmul, pack_matmul},
    [TASK_CONVOLUTION] = {run_convolution, pack_convolution},
    [TASK_ATTENTION] = {run_attention, NULL},
    [TASK_SORT] = {run_sort, NULL},
};
_Static_assert(sizeof kinds / sizeof *kinds == TASK_KINDS, "a kind of task that nobody runs");

/* ---- entry ---- */

bool work_may_pack(const Task *task) { return kinds[task->kind].pack; }

bool work_packs_from(const Work *work, cb_dtype dtype) {
    const Task *task = work->task;
    return task->kind == TASK_MATMUL && gemm_packs_from(&task->matmul, dtype);
}

bool work_pack(Work *work, const void *weight, cb_dtype dtype) {
    return kinds[work->task->kind].pack(work, weight, dtype, &work->packed);
}

bool work_packs(const Work *work) {
    return work->provided ? provided_packs(work->provided) : work->packed != NULL;
}

bool work_run(const Work *work, Operands operands) {
    if (work->provided) return provided_run(work->provided, &operands);
    operands.packed = work->packed ? work->packed->data : NULL;
    operands.end = &work->end;
    return kinds[work->task->kind].run(work, &operands);
}

void work_free(Work *work) {
    if (work->packed) storage_release(work->packed);
    provided_free(work->provided);
}
