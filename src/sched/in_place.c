/* Which inputs take their new value right where they lie, while the plan runs.
 *
 * In: a plan whose steps and outputs are final. Out: PlanOutput.in_place of mutations. A mutated
 * input may take its value early when nothing can fail from the step on that writes it, and nobody
 * reads the input's old elements any more, but for that step itself at the very element that it
 * writes. Otherwise the value is computed aside, and copied at the end.
 *
 *     w <- w - g * 0.1: one kernel that loads w[a0] and stores value[a0]: in place */
#include "sched/memory.h"

/* ---- which values a step reads and writes ---- */

bool kernel_reads(const Kernel *kernel, int value) {
    for (int i = 0; i < length(kernel->buffer); i++)
        if (kernel->buffer[i].value == value) return true;
    return false;
}

static bool kernel_writes(const Kernel *kernel, int value) {
    for (int i = 0; i < length(kernel->buffer); i++)
        if (kernel->buffer[i].value == value && kernel->buffer[i].role != BUFFER_IN) return true;
    return false;
}

static bool step_writes(const Plan *plan, const Step *step, int value) {
    if (step->out == value) return true;
    for (int i = 0; i < step_kernels(step); i++)
        if (kernel_writes(plan->kernel[step_kernel(step, i)], value)) return true;
    return false;
}

/* ---- in place or aside ---- */

/* The kernel's only store of the value; NULL: there are several. */
static const Store *store_of(const Kernel *kernel, int value) {
    const Store *only = NULL;
    for (int i = 0; i < length(kernel->store); i++) {
        if (kernel->buffer[kernel->store[i].buffer].value != value) continue;
        if (only) return NULL;
        only = &kernel->store[i];
    }
    return only;
}

static int input_value(const Plan *plan, int input) {
    for (int v = 0; v < length(plan->value); v++)
        if (plan->value[v].place == VALUE_INPUT && plan->value[v].number == input) return v;
    return -1;
}

/* A kernel that is cut takes memory before it writes anything. */
static bool may_fail(const Kernel *kernel, bool first) {
    if (kernel_has_sink(kernel)) return true;
    for (int i = 0; i < length(kernel->store); i++)
        if (store_adds(kernel->store[i].mode) && kernel->split > 1) return true;
    return kernel->split > 1 && !first;
}

/* Of a kernel of the step that writes value where input lies, or of a later one; those of one step
 * run at the same time. first: nothing was written before it begins. */
static bool may_follow(const Plan *plan, const Kernel *kernel, int value, int input, bool first) {
    if (may_fail(kernel, first)) return false;
    if (input < 0 || !kernel_reads(kernel, input)) return true;
    const Store *store = store_of(kernel, value);
    return store && kernel_updates(kernel, store, input) && kernel_shares(kernel, store, input) &&
           plan->value[value].numel == kernel->outer_size * kernel->inner_size;
}

static bool may_be_in_place(const Plan *plan, const PlanOutput *output) {
    if (plan->value[output->value].place != VALUE_TEMPORARY || output->region) return false;
    for (int i = 0; i < length(plan->output); i++)
        if (&plan->output[i] != output && plan->output[i].value == output->value) return false;
    int input = input_value(plan, output->mutated_input);
    bool written = false;
    for (int s = 0; s < length(plan->step); s++) {
        const Step *step = &plan->step[s];
        bool first = !written && step_kernels(step) == 1;
        written |= step_writes(plan, step, output->value);
        if (!written) continue;
        if (step->kind != STEP_KERNEL) return false;
        for (int i = 0; i < step_kernels(step); i++)
            if (!may_follow(plan, plan->kernel[step_kernel(step, i)], output->value, input, first))
                return false;
    }
    return written;
}

void plan_in_place(Plan *plan) {
    for (int i = plan->output_count; i < length(plan->output); i++)
        plan->output[i].in_place = may_be_in_place(plan, &plan->output[i]);
}
