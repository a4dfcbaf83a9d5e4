/* What each kind of step reads, writes and computes. */
#include "sched/plan.h"

StepUse step_use(const Step *step) {
    const MatmulStep *m = &step->matmul;
    const ConvolutionStep *c = &step->convolution;
    const AttentionStep *a = &step->attention;
    const OpaqueStep *o = &step->opaque;
    switch (step->kind) {
    case STEP_KERNEL:
        return (StepUse){.out = -1, .epilogue = step->kernel};
    case STEP_MATMUL:
        return (StepUse){{m->a, m->b}, 2, m->out, m->epilogue};
    case STEP_CONVOLUTION:
        return (StepUse){{c->x, c->weight}, 2, c->out, c->epilogue};
    case STEP_ATTENTION:
        return (StepUse){{a->query.value, a->key.value, a->values.value, a->mask.value},
                         a->mask.value < 0 ? 3 : 4,
                         a->out.value,
                         -1};
    case STEP_OPAQUE:
        return (StepUse){{o->in}, 1, o->out, -1};
    case STEP_CHECK:
        return (StepUse){{step->check.value}, 1, -1, -1};
    }
    check(false, "step of kind %d", step->kind);
}

/* A causal step looks at every key that some query sees: half of them where there are as many. */
static int64_t attention_flops(const AttentionStep *a) {
    int64_t seen = a->rows * a->columns, edge = a->rows < a->columns ? a->rows : a->columns;
    if (a->causal) seen = edge * (edge + 1) / 2 + (a->rows - edge) * a->columns;
    return 2 * a->batch * seen * (a->depth + a->width);
}

int64_t step_flops(const Step *step) {
    const MatmulStep *m = &step->matmul;
    const ConvolutionStep *c = &step->convolution;
    int64_t window = 1, positions = 1;
    if (step->kind == STEP_MATMUL) return 2 * m->batch * m->m * m->n * m->k;
    if (step->kind == STEP_ATTENTION) return attention_flops(&step->attention);
    if (step->kind != STEP_CONVOLUTION) return 0;
    for (int d = 0; d < 3; d++) window *= c->kernel[d], positions *= c->out_size[d];
    return 2 * c->batch * positions * c->out_channels * (c->channels / c->groups) * window;
}

/* The first product writes the scores, softmax reads them and writes weights, which the second one
 * reads. */
int64_t attention_saved_bytes(const AttentionStep *step) {
    int64_t bytes = (int64_t)cb_dtype_size((cb_dtype)step->dtype);
    return 4 * step->batch * step->rows * step->columns * bytes;
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
    StepUse use = step_use(step);
    if (step->kind == STEP_KERNEL) return plan->kernel[step->kernel]->bytes;
    int64_t bytes = use.out < 0 ? 0 : value_bytes(plan, use.out);
    for (int i = 0; i < use.in_count; i++) {
        bool again = false; /* query, key and value may be parts of one value */
        for (int k = 0; k < i; k++) again |= use.in[k] == use.in[i];
        if (!again) bytes += value_bytes(plan, use.in[i]);
    }
    if (use.epilogue >= 0) bytes += epilogue_bytes(plan, plan->kernel[use.epilogue], use.out);
    return bytes;
}
