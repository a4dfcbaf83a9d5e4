/* The rows (table.h). A kind of task has a row of our own at least. */
#include "method/table.h"

#include "cpu/conv.h"
#include "cpu/gemm.h"
#include "cpu/own.h"
#include "method/provided.h"
#include "method/provider.h"
#include <math.h>

/* ---- products ---- */

static bool fits_matmul(const Task *task, int variant) { return gemm_fits(&task->matmul, variant); }

static MethodCost cost_of_matmul(const Task *task, int variant, bool constant) {
    return gemm_cost(&task->matmul, variant, constant);
}

static bool run_matmul(const Work *work, const Operands *operands) {
    return gemm_run(&work->task->matmul, work->method->variant, operands);
}

static bool pack_matmul(const Task *task, int variant, const void *weight, cb_dtype dtype,
                        Storage **packed) {
    return gemm_pack(&task->matmul, variant, weight, dtype, packed);
}

static bool layout_matmul(const Task *task, int variant, Buffer *out) {
    return gemm_layout(&task->matmul, variant, out);
}

static bool matmul_packs_from(const Task *task, int variant, cb_dtype dtype) {
    return gemm_packs_from(&task->matmul, variant, dtype);
}

/* ---- convolutions ---- */

static bool fits_convolution(const Task *task, int variant) {
    return convolution_fits(&task->convolution, variant);
}

static MethodCost cost_of_convolution(const Task *task, int variant, bool constant) {
    return convolution_cost(&task->convolution, variant, constant);
}

static bool run_convolution(const Work *work, const Operands *operands) {
    return convolution_run(&work->task->convolution, work->method->variant, operands);
}

static bool pack_convolution(const Task *task, int variant, const void *weight, cb_dtype dtype,
                             Storage **packed) {
    (void)dtype;
    return convolution_pack(&task->convolution, variant, weight, packed);
}

static bool layout_convolution(const Task *task, int variant, Buffer *out) {
    return convolution_layout(&task->convolution, variant, out);
}

/* ---- others ---- */

#define OWN_METHOD(id, name, description)                                                          \
    static bool run_##name(const Work *work, const Operands *operands) {                           \
        return name##_run(&work->task->name, operands);                                            \
    }
#include "cpu/own_methods.def"
#undef OWN_METHOD

/* ---- providers ---- */

/* They are asked by name or by measuring alone: few published benchmarks are faster with one. */
static MethodCost cost_of_provider(const Task *task, int variant, bool constant) {
    (void)task, (void)variant, (void)constant;
    return (MethodCost){INFINITY, 1};
}

/* ---- the table ---- */

static const Method rows[] = {
#define GEMM_METHOD(id, text, ...)                                                                 \
    {.kind = TASK_MATMUL,                                                                          \
     .name = text,                                                                                 \
     .variant = GEMM_##id,                                                                         \
     .fits = fits_matmul,                                                                          \
     .cost = cost_of_matmul,                                                                       \
     .pack = pack_matmul,                                                                          \
     .layout = layout_matmul,                                                                      \
     .packs_from = matmul_packs_from,                                                              \
     .run = run_matmul},
#include "cpu/gemm_methods.def"
#undef GEMM_METHOD
#define CONV_METHOD(id, text, ...)                                                                 \
    {.kind = TASK_CONVOLUTION,                                                                     \
     .name = text,                                                                                 \
     .variant = CONV_##id,                                                                         \
     .fits = fits_convolution,                                                                     \
     .cost = cost_of_convolution,                                                                  \
     .pack = pack_convolution,                                                                     \
     .layout = layout_convolution,                                                                 \
     .run = run_convolution},
#include "cpu/conv_methods.def"
#undef CONV_METHOD
#define OWN_METHOD(id, text, ...) {.kind = TASK_##id, .name = "own", .run = run_##text},
#include "cpu/own_methods.def"
#undef OWN_METHOD
#define PROVIDER(id)                                                                               \
    {                                                                                              \
        .kind = TASK_##id, .name = "onednn", .variant = PROVIDER_##id, .provider = true,           \
        .cost = cost_of_provider, .create = provided_create, .run = provided_run,                  \
        .free = provided_free                                                                      \
    }
    PROVIDER(MATMUL),
    PROVIDER(CONVOLUTION),
#undef PROVIDER
};

const Method *method_row(TaskKind kind, int number) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].kind == kind && number-- == 0) return &rows[i];
    return NULL;
}

const Method *method_provider(TaskKind kind) {
    const Method *method;
    for (int i = 0; (method = method_row(kind, i)) && !method->provider;) i++;
    return method;
}

bool method_fits(const Method *method, const Task *task) {
    return !method->fits || method->fits(task, method->variant);
}

const Method *method_own(const Task *task, bool constant) {
    const Method *best = NULL;
    double least_ns = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const Method *m = &rows[i];
        if (m->kind != task->kind || !method_fits(m, task)) continue;
        MethodCost cost = m->cost ? m->cost(task, m->variant, constant) : (MethodCost){0, 1};
        if (!best || cost.ns < cost.share * least_ns) best = m, least_ns = cost.ns;
    }
    check(best, "no method of our own for a %s", op_info(task_info(task->kind)->op[0])->name);
    return best;
}
