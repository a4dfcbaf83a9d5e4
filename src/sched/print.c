/* Plan -> text: values, kernels and steps, as goldens and explain show it. */
#include "sched/plan.h"

/* The input that the value may be computed in; -1: none. */
static int input_of(const Plan *plan, int value) {
    for (int i = plan->output_count; i < length(plan->output); i++)
        if (plan->output[i].in_place && plan->output[i].value == value)
            return plan->output[i].mutated_input;
    return -1;
}

static void put_values(const Plan *plan, Buffer *out) {
    static const char *const place[] = {"input", "output", "temporary", "constant", "random"};
    for (int i = 0; i < length(plan->value); i++) {
        const PlanValue *v = &plan->value[i];
        putf(out, "  v%d: %s %s[%lld]", i, place[v->place], cb_dtype_name(v->dtype),
             (long long)v->numel);
        int input = v->place == VALUE_TEMPORARY ? input_of(plan, i) : -1;
        if (input >= 0)
            putf(out, " in input %d", input);
        else if (v->place == VALUE_TEMPORARY)
            putf(out, " at %lld", (long long)v->offset);
        else if (v->place != VALUE_RANDOM)
            putf(out, " %d", v->number);
        put(out, "\n");
    }
}

static void put_kernel_step(const Kernel *kernel, Buffer *out) {
    putf(out, "%s(", kernel->name);
    for (int i = 0; i < length(kernel->buffer); i++)
        putf(out, "%sv%d", i ? ", " : "", kernel->buffer[i].value);
    putf(out, ")");
}

/* matmul v2 = v0 @ v1 [1 x 64 x 64 x 64] */
static void put_task(const Step *step, Buffer *out) {
    const TaskInfo *info = task_info(step->task.kind);
    int arity = op_info(info->op[0])->arity;
    putf(out, "%s v%d = ", step->origin, step->out);
    for (int i = 0; i < step->in_count; i++) {
        if (i) put(out, info->between);
        if (info->optional && i == arity - 1) putf(out, "%s ", info->optional);
        putf(out, "v%d", step->in[i]);
    }
    put(out, " [");
    info->print(&step->task, out);
    put(out, "]");
}

/* at 320 + arg4 * 64 by [64, 1]: in elements. */
static void put_region(const Region *region, Buffer *out) {
    putf(out, " at %lld", (long long)region->offset);
    for (int i = 0; i < region->shift_count; i++)
        putf(out, " + arg%d * %lld", region->shift[i].input, (long long)region->shift[i].element);
    put(out, " by ");
    put_sizes(out, region->rank, region->stride);
}

static void put_step(const Plan *plan, const Step *step, Buffer *out) {
    switch (step->kind) {
    case STEP_KERNEL:
        for (int i = 0; i < step_kernels(step); i++) {
            if (i) put(out, i == 1 ? " with " : ", ");
            put_kernel_step(plan->kernel[step_kernel(step, i)], out);
        }
        return;
    case STEP_TASK:
        put_task(step, out);
        break;
    case STEP_CHECK:
        putf(out, "check v%d in [0, %lld) for %s", step->in[0], (long long)step->check.bound,
             step->origin);
        break;
    case STEP_CUSTOM:
        putf(out, "%s v%d =", step->origin, step->out);
        for (int i = 0; i < step->in_count; i++) putf(out, " v%d", step->in[i]);
        break;
    case STEP_WRITE:
        putf(out, "write v%d", step->out);
        for (int i = 0; i < length(step->part); i++) {
            putf(out, "%s v%d", i ? "," : "", step->part[i].value);
            put_region(&step->part[i].region, out);
        }
        break;
    }
    if (step->kernel >= 0) {
        put(out, " then ");
        put_kernel_step(plan->kernel[step->kernel], out);
    }
}

void plan_print_steps(const Plan *plan, Buffer *out) {
    for (int i = 0; i < length(plan->step); i++) {
        put(out, "  ");
        put_step(plan, &plan->step[i], out);
        put(out, "\n");
    }
    for (int i = 0; i < length(plan->output); i++) {
        const PlanOutput *o = &plan->output[i];
        char meta[128];
        meta_format(&o->meta, meta, sizeof meta);
        putf(out, "  %s v%d %s", o->mutated_input >= 0 ? "mutate" : "return", o->value, meta);
        if (o->mutated_input >= 0) putf(out, " -> input %d", o->mutated_input);
        if (o->region) put_region(o->region, out);
        if (o->direct) put(out, ", in place");
        put(out, "\n");
    }
}

void plan_print(const Plan *plan, Buffer *out) {
    putf(out, "plan: %d steps, %lld bytes of traffic, %lld bytes of temporaries\n",
         length(plan->step), (long long)plan->bytes, (long long)plan->arena_bytes);
    put_values(plan, out);
    plan_print_steps(plan, out);
}
