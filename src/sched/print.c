/* Plan -> text: values, kernels and steps, as goldens and explain show it. */
#include "sched/plan.h"

static void put_values(const Plan *plan, Buffer *out) {
    static const char *const place[] = {"input", "output", "temporary", "constant", "random"};
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

static void put_sizes_by(int rank, const int64_t *size, Buffer *out) {
    for (int i = 3 - rank; i < 3; i++)
        putf(out, "%s%lld", i > 3 - rank ? "x" : "", (long long)size[i]);
}

static void put_unless(const char *name, int rank, const int64_t *size, int64_t usual,
                       Buffer *out) {
    bool shown = false;
    for (int i = 3 - rank; i < 3; i++) shown |= size[i] != usual;
    if (!shown) return;
    putf(out, ", %s ", name);
    put_sizes_by(rank, size, out);
}

/* convolution v2 = v0 * v1 [8 x 3 of 224x224 -> 64 of 112x112, kernel 7x7, stride 2x2, padding
 * 3x3] */
static void put_convolution(const Step *step, Buffer *out) {
    const ConvolutionTask *c = &step->task.convolution;
    putf(out, "convolution v%d = v%d * v%d [%lld x %lld of ", step->out, step->in[0], step->in[1],
         (long long)c->batch, (long long)c->channels);
    put_sizes_by(c->rank, c->in_size, out);
    putf(out, " -> %lld of ", (long long)c->out_channels);
    put_sizes_by(c->rank, c->out_size, out);
    put(out, ", kernel ");
    put_sizes_by(c->rank, c->kernel, out);
    put_unless("stride", c->rank, c->stride, 1, out);
    put_unless("padding", c->rank, c->padding, 0, out);
    put_unless("dilation", c->rank, c->dilation, 1, out);
    if (c->groups > 1) putf(out, ", groups %lld", (long long)c->groups);
    if (c->reduced) put(out, ", may round to bf16");
    if (c->wide) put(out, ", sums in f32");
    put(out, c->channels_last ? ", channels last]" : "]");
}

/* attention v3 = v0, v1, v2 [12 x 128 rows of 64 over 128, causal] */
static void put_attention(const Step *step, Buffer *out) {
    const AttentionTask *a = &step->task.attention;
    putf(out, "attention v%d = v%d, v%d, v%d", step->out, step->in[0], step->in[1], step->in[2]);
    if (a->masked) putf(out, ", mask v%d", step->in[3]);
    putf(out, " [%lld x %lld rows of %lld over %lld", (long long)a->batch, (long long)a->rows,
         (long long)a->depth, (long long)a->columns);
    if (a->width != a->depth) putf(out, " of %lld", (long long)a->width);
    put(out, a->causal ? ", causal]" : "]");
}

static void put_matmul(const Step *step, Buffer *out) {
    const MatmulTask *m = &step->task.matmul;
    putf(out, "matmul v%d = v%d @ v%d [%lld x %lld x %lld x %lld%s]", step->out, step->in[0],
         step->in[1], (long long)m->batch, (long long)m->m, (long long)m->n, (long long)m->k,
         m->reduced ? ", may round to bf16"
         : m->wide  ? ", sums in f32"
                    : "");
}

/* argsort v1 = v0 [12 rows of 100] */
static void put_sort(const Step *step, Buffer *out) {
    putf(out, "%s v%d = v%d [%lld rows of %lld]", step->origin, step->out, step->in[0],
         (long long)step->task.sort.rows, (long long)step->task.sort.length);
}

static void put_step(const Plan *plan, const Step *step, Buffer *out) {
    static void (*const put_task[])(const Step *, Buffer *) = {[TASK_MATMUL] = put_matmul,
                                                               [TASK_CONVOLUTION] = put_convolution,
                                                               [TASK_ATTENTION] = put_attention,
                                                               [TASK_SORT] = put_sort};
    _Static_assert(sizeof put_task / sizeof *put_task == TASK_KINDS, "a task without a text");
    switch (step->kind) {
    case STEP_KERNEL:
        put_kernel_step(plan->kernel[step->kernel], out);
        return;
    case STEP_TASK:
        put_task[step->task.kind](step, out);
        break;
    case STEP_CHECK:
        putf(out, "check v%d in [0, %lld) for %s", step->in[0], (long long)step->check.bound,
             step->origin);
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
        put(out, "\n");
    }
}

void plan_print(const Plan *plan, Buffer *out) {
    putf(out, "plan: %d steps, %lld bytes of traffic, %lld bytes of temporaries\n",
         length(plan->step), (long long)plan->bytes, (long long)plan->arena_bytes);
    put_values(plan, out);
    plan_print_steps(plan, out);
}
