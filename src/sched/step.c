/* What a step moves (plan.h). */
#include "sched/plan.h"

int64_t step_flops(const Step *step) {
    return step->kind == STEP_TASK ? task_flops(&step->task) : 0;
}

static int64_t value_bytes(const Plan *plan, int value) {
    const PlanValue *v = &plan->value[value];
    return v->numel * (int64_t)cb_dtype_size(v->dtype);
}

/* An epilogue finds the result of its step in cache, and leaves it there when it writes to it. */
static int64_t epilogue_bytes(const Plan *plan, const Kernel *kernel, int out) {
    int64_t bytes = kernel->bytes;
    for (int i = 0; i < length(kernel->buffer); i++)
        if (kernel->buffer[i].value == out)
            bytes -= value_bytes(plan, out) * (kernel->buffer[i].role == BUFFER_INOUT ? 2 : 1);
    return bytes;
}

int64_t step_bytes(const Plan *plan, const Step *step) {
    int64_t bytes = step->out < 0 ? 0 : value_bytes(plan, step->out);
    for (int i = 0; i < step_kernels(step) && step->kind == STEP_KERNEL; i++)
        bytes += plan->kernel[step_kernel(step, i)]->bytes;
    if (step->kind == STEP_KERNEL) return bytes;
    if (step->kind == STEP_WRITE) bytes = 0;
    for (int i = 0; i < length(step->part); i++)
        bytes += 2 * value_bytes(plan, step->part[i].value);
    for (int i = 0; i < step->in_count; i++) {
        bool again = false; /* query, key and value may be parts of one value */
        for (int k = 0; k < i; k++) again |= step->in[k] == step->in[i];
        if (!again) bytes += value_bytes(plan, step->in[i]);
    }
    if (step->kernel >= 0) bytes += epilogue_bytes(plan, plan->kernel[step->kernel], step->out);
    return bytes;
}
