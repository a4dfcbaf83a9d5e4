/* What each kind of step reads and writes. */
#include "sched/plan.h"

StepUse step_use(const Step *step) {
    const MatmulStep *m = &step->matmul;
    const ConvolutionStep *c = &step->convolution;
    const OpaqueStep *o = &step->opaque;
    switch (step->kind) {
    case STEP_KERNEL:
        return (StepUse){.out = -1, .epilogue = step->kernel};
    case STEP_MATMUL:
        return (StepUse){{m->a, m->b}, 2, m->out, m->epilogue};
    case STEP_CONVOLUTION:
        return (StepUse){{c->x, c->weight}, 2, c->out, c->epilogue};
    case STEP_OPAQUE:
        return (StepUse){{o->in}, 1, o->out, -1};
    case STEP_CHECK:
        return (StepUse){{step->check.value}, 1, -1, -1};
    }
    check(false, "step of kind %d", step->kind);
}

int64_t step_flops(const Step *step) {
    const MatmulStep *m = &step->matmul;
    const ConvolutionStep *c = &step->convolution;
    int64_t window = 1, positions = 1;
    if (step->kind == STEP_MATMUL) return 2 * m->batch * m->m * m->n * m->k;
    if (step->kind != STEP_CONVOLUTION) return 0;
    for (int d = 0; d < 3; d++) window *= c->kernel[d], positions *= c->out_size[d];
    return 2 * c->batch * positions * c->out_channels * (c->channels / c->groups) * window;
}
