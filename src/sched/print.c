/* Plan -> text: values, kernels and steps, as goldens and explain show it. */
#include "sched/plan.h"

static void put_values(const Plan *plan, Buffer *out) {
    static const char *const place[] = {"input", "output", "temporary", "random"};
    for (int i = 0; i < length(plan->value); i++) {
        const PlanValue *v = &plan->value[i];
        putf(out, "  v%d: %s %s[%lld]", i, place[v->place], cb_dtype_name(v->dtype),
             (long long)v->numel);
        if (v->place == VALUE_TEMPORARY)
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

static void put_step(const Plan *plan, const Step *step, Buffer *out) {
    const MatmulStep *m = &step->matmul;
    switch (step->kind) {
    case STEP_KERNEL:
        put_kernel_step(plan->kernel[step->kernel], out);
        break;
    case STEP_MATMUL:
        putf(out, "matmul v%d = v%d @ v%d [%lld x %lld x %lld x %lld]", m->out, m->a, m->b,
             (long long)m->batch, (long long)m->m, (long long)m->n, (long long)m->k);
        if (m->epilogue >= 0) put(out, " then "), put_kernel_step(plan->kernel[m->epilogue], out);
        break;
    case STEP_OPAQUE:
        putf(out, "%s v%d = v%d [%lld rows of %lld]", op_info(step->opaque.op)->name,
             step->opaque.out, step->opaque.in, (long long)step->opaque.rows,
             (long long)step->opaque.length);
        break;
    case STEP_CHECK:
        putf(out, "check v%d in [0, %lld) for %s", step->check.value, (long long)step->check.bound,
             op_info(step->check.node->op)->name);
        break;
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
        put(out, "\n");
    }
}

void plan_print(const Plan *plan, Buffer *out) {
    putf(out, "plan: %d steps, %lld bytes of traffic, %lld bytes of temporaries\n",
         length(plan->step), (long long)plan->bytes, (long long)plan->arena_bytes);
    put_values(plan, out);
    plan_print_steps(plan, out);
}
