/* The rows (table.h). A kind of task has a row of our own at least. */
#include "method/table.h"

#include "cpu/attention.h"
#include "cpu/conv.h"
#include "cpu/gemm.h"

/* ---- products ---- */

static bool run_matmul(const Task *task, int variant, const Operands *operands) {
    (void)variant;
    return gemm_run(&task->matmul, operands);
}

static bool pack_matmul(const Task *task, int variant, const void *weight, cb_dtype dtype,
                        Storage **packed) {
    (void)variant;
    return gemm_pack(&task->matmul, weight, dtype, packed);
}

static bool matmul_packs_from(const Task *task, cb_dtype dtype) {
    return gemm_packs_from(&task->matmul, dtype);
}

/* ---- convolutions ---- */

static bool fits_convolution(const Task *task, int variant) {
    return convolution_fits(&task->convolution, variant);
}

static bool run_convolution(const Task *task, int variant, const Operands *operands) {
    return convolution_run(&task->convolution, variant, operands);
}

static bool pack_convolution(const Task *task, int variant, const void *weight, cb_dtype dtype,
                             Storage **packed) {
    (void)dtype;
    return convolution_pack(&task->convolution, variant, weight, packed);
}

/* ---- others ---- */

static bool run_attention(const Task *task, int variant, const Operands *operands) {
    (void)variant;
    return attention_run(&task->attention, operands);
}

static bool run_sort(const Task *task, int variant, const Operands *operands) {
    (void)variant;
    return sort_run(&task->sort, operands);
}

/* ---- the table ---- */

static const Method rows[] = {
    {.kind = TASK_MATMUL,
     .name = "own",
     .pack = pack_matmul,
     .packs_from = matmul_packs_from,
     .run = run_matmul},
#define CONV_METHOD(id, text, fits_, fits_bf16, pack_, run_, tile, ends, leads_)                   \
    {.kind = TASK_CONVOLUTION,                                                                     \
     .name = text,                                                                                 \
     .variant = CONV_##id,                                                                         \
     .leads = leads_,                                                                              \
     .fits = fits_convolution,                                                                     \
     .pack = pack_convolution,                                                                     \
     .run = run_convolution},
#include "cpu/conv_methods.def"
#undef CONV_METHOD
    {.kind = TASK_ATTENTION, .name = "own", .run = run_attention},
    {.kind = TASK_SORT, .name = "own", .run = run_sort},
    {.kind = TASK_MATMUL, .name = "onednn", .provider = true},
    {.kind = TASK_CONVOLUTION, .name = "onednn", .provider = true},
};

const Method *method_row(TaskKind kind, int number) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].kind == kind && number-- == 0) return &rows[i];
    return NULL;
}

bool method_fits(const Method *method, const Task *task) {
    return !method->fits || method->fits(task, method->variant);
}

const Method *method_own(const Task *task, bool constant) {
    int variant = 0, number = 0;
    if (task->kind == TASK_CONVOLUTION) variant = convolution_choose(&task->convolution, constant);
    const Method *method = method_row(task->kind, number);
    while (method && (method->provider || method->variant != variant))
        method = method_row(task->kind, ++number);
    check(method, "no method of our own for a task of kind %d", task->kind);
    return method;
}
