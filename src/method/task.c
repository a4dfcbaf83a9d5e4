/* Step -> task: sizes and strides, and the epilogue kernel where it is one that providers know.
 *
 * Such an epilogue multiplies with a scale along the channels (a batch norm that could not be
 * absorbed), adds a bias along them, adds a tensor that lies as the result does, and ends in a
 * relu, or leaves out any of these; it writes what it read:
 *
 *     t20 = f32 load b0[a0*16 + a1]        the result
 *     t21 = f32 load b1[a1]                bias
 *     t23 = f32 relu (add t20, t21)
 *     store b0[a0*16 + a1] = t23
 *
 * Conversions of bf16 in between are left out, as f32 is computed without rounding in between
 * (option precise keeps them, and so such an epilogue stays with us). Sums in another order would
 * round otherwise, so only result * scale + bias + residual counts. */
#include "method/task.h"

#include "cpu/gemm.h"
#include <math.h>
#include <string.h>

/* ---- the epilogue ------------------------------------------------------------------------- */

typedef struct EndPattern {
    const Kernel *kernel;
    const Store *store;
    int out; /* plan value of the result */
    int8_t dtype;
    bool precise;             /* the option */
    int64_t channels, stride; /* of the channel dim in the result */
    int scale, bias, residual;
} EndPattern;

/* Of an axis in an index that is a sum of products with constants; else NAN, as of any sum with
 * it. */
static double coefficient(const Expr *e, int64_t axis) {
    switch (e->op) {
    case EX_axis:
        return e->imm.i == axis;
    case OP_add:
        return coefficient(e->input[0], axis) + coefficient(e->input[1], axis);
    case OP_mul:
        return coefficient(e->input[0], axis) *
               (e->input[1]->op == OP_constant ? (double)e->input[1]->imm.i : NAN);
    default:
        return NAN;
    }
}

static bool is_result(const EndPattern *p, const Expr *e) {
    return e->op == EX_load && e->imm.i == p->store->buffer && e->input[0] == p->store->index;
}

/* A load along the channels. */
static bool is_by_channel(const EndPattern *p, const Expr *e) {
    if (e->op != EX_load || e->input_count != 1 || e->input[0]->op != EX_axis) return false;
    int64_t axis = e->input[0]->imm.i;
    return p->kernel->axis[axis].size == p->channels &&
           coefficient(p->store->index, axis) == (double)p->stride;
}

/* A load of the bias or of the residual; each may occur once, the bias first. */
static bool take_operand(EndPattern *p, const Expr *e) {
    if (e->op != EX_load || e->input_count != 1) return false;
    const Expr *index = e->input[0];
    int buffer = (int)e->imm.i;
    int8_t dtype = p->kernel->buffer[buffer].dtype;
    if (index == p->store->index && buffer != p->store->buffer) {
        if (p->residual >= 0 || dtype != p->dtype) return false;
        p->residual = buffer;
        return true;
    }
    if (dtype != p->dtype && dtype != CB_F32) return false;
    if (p->bias >= 0 || p->residual >= 0 || !is_by_channel(p, e)) return false;
    p->bias = buffer;
    return true;
}

static bool match_product(EndPattern *p, const Expr *e) {
    for (int k = 0; e->op == OP_mul && e->dtype == CB_F32 && k < 2; k++) {
        const Expr *scale = e->input[1 - k];
        if (!is_result(p, e->input[k]) || !is_by_channel(p, scale)) continue;
        if (p->kernel->buffer[scale->imm.i].dtype != CB_F32) continue;
        p->scale = (int)scale->imm.i;
        return true;
    }
    return false;
}

/* The result is rounded once, when it is stored. */
static const Expr *without_rounding(const EndPattern *p, const Expr *e) {
    bool rounds = e->op == OP_to && e->imm.i == p->dtype && p->dtype == CB_BF16;
    return rounds && !p->precise ? e->input[0] : e;
}

/* result * scale + bias + residual, where any may be missing. */
static bool match_sum(EndPattern *p, const Expr *e) {
    e = without_rounding(p, e);
    if (is_result(p, e) || match_product(p, e)) return true;
    if (e->op != OP_add || e->dtype != CB_F32) return false;
    for (int k = 0; k < 2; k++) {
        EndPattern before = *p;
        if (match_sum(p, e->input[k]) && take_operand(p, e->input[1 - k])) return true;
        *p = before;
    }
    return false;
}

static bool match(EndPattern *p, ProviderTask *task) {
    const Kernel *kernel = p->kernel;
    if (length(kernel->store) != 1) return false;
    p->store = &kernel->store[0];
    const KernelBuffer *buffer = &kernel->buffer[p->store->buffer];
    if (buffer->value != p->out) return false;
    check(!p->store->guard && p->store->mode == STORE_SET, "an epilogue that keeps elements");
    const Expr *value = without_rounding(p, p->store->value);
    task->relu = value->op == OP_relu;
    if (task->relu) value = value->input[0];
    if (!match_sum(p, value)) return false;
    task->scale = p->scale >= 0;
    task->bias = p->bias >= 0;
    task->bias_dtype = task->bias ? (cb_dtype)kernel->buffer[p->bias].dtype : task->dtype;
    task->residual = p->residual >= 0;
    return true;
}

static void take_epilogue(const Plan *plan, const Step *step, int64_t channels, int64_t stride,
                          StepTask *out) {
    out->scale = out->bias = out->residual = -1;
    out->fused = step->kernel < 0;
    if (out->fused) return;
    EndPattern p = {.kernel = plan->kernel[step->kernel],
                    .precise = plan->ambient.precise,
                    .out = step->out,
                    .scale = -1,
                    .bias = -1,
                    .residual = -1};
    p.dtype = plan->value[step->out].dtype, p.channels = channels, p.stride = stride;
    out->fused = match(&p, &out->task);
    if (out->fused)
        out->scale = p.scale, out->bias = p.bias, out->residual = p.residual;
    else
        task_unfuse(out);
}

void task_unfuse(StepTask *task) {
    task->fused = false;
    task->scale = task->bias = task->residual = -1;
    task->task.scale = task->task.bias = task->task.residual = task->task.relu = false;
}

/* ---- sizes -------------------------------------------------------------------------------- */

static void add_dim(ProviderTensor *x, int64_t size, int64_t stride) {
    x->size[x->rank] = size;
    x->stride[x->rank++] = stride;
}

static bool set_matmul(const MatmulTask *given, StepTask *out) {
    MatmulTask step = *given;
    ProviderTask *task = &out->task;
    gemm_fold(&step);
    task->kind = PROVIDER_MATMUL;
    task->groups = 1;
    for (int d = 0; d < step.batch_rank; d++) {
        int64_t size = step.batch_size[d];
        if (size > 1 && step.a_batch[d] == 0 && step.b_batch[d] == 0) return false;
        add_dim(&task->x, step.a_batch[d] ? size : 1, step.a_batch[d]);
        add_dim(&task->weight, step.b_batch[d] ? size : 1, step.b_batch[d]);
        add_dim(&task->out, size, 0);
    }
    add_dim(&task->x, step.m, step.a_m), add_dim(&task->x, step.k, step.a_k);
    add_dim(&task->weight, step.k, step.b_k), add_dim(&task->weight, step.n, step.b_n);
    add_dim(&task->out, step.m, 0), add_dim(&task->out, step.n, 0);
    contiguous_strides(task->out.rank, task->out.size, task->out.stride);
    out->x_offset = step.a_offset, out->weight_offset = step.b_offset;
    return true;
}

static void set_convolution(const ConvolutionTask *step, StepTask *out) {
    ProviderTask *task = &out->task;
    int64_t inner = step->channels / step->groups, positions = 1;
    task->kind = PROVIDER_CONVOLUTION;
    task->groups = step->groups;
    add_dim(&task->x, step->batch, step->x_batch);
    add_dim(&task->x, step->channels, step->x_channel);
    add_dim(&task->weight, step->out_channels, step->weight_out);
    add_dim(&task->weight, inner, step->weight_in);
    add_dim(&task->out, step->batch, 0), add_dim(&task->out, step->out_channels, 0);
    for (int k = 3 - step->rank, d = 0; k < 3; k++, d++) {
        add_dim(&task->x, step->in_size[k], step->x_spatial[k]);
        add_dim(&task->weight, step->kernel[k], step->weight_spatial[k]);
        add_dim(&task->out, step->out_size[k], 0);
        task->stride[d] = step->stride[k], task->padding[d] = step->padding[k];
        task->dilation[d] = step->dilation[k];
        positions *= step->out_size[k];
    }
    contiguous_strides(task->out.rank, task->out.size, task->out.stride);
    if (step->channels_last) {
        for (int d = task->out.rank - 1; d >= 2; d--) task->out.stride[d] *= step->out_channels;
        task->out.stride[1] = 1;
        task->out.stride[0] = positions * step->out_channels;
    }
    out->x_offset = step->x_offset, out->weight_offset = step->weight_offset;
}

static int64_t span_of(const ProviderTensor *x) {
    int64_t span = 1;
    for (int d = 0; d < x->rank; d++) span += (x->size[d] - 1) * x->stride[d];
    return span;
}

static bool is_empty(const ProviderTensor *x) {
    for (int d = 0; d < x->rank; d++)
        if (x->size[d] == 0) return true;
    return false;
}

bool task_of(const Plan *plan, const Step *step, bool packs, StepTask *out) {
    *out = (StepTask){0};
    ProviderTask *task = &out->task;
    const MatmulTask *matmul = &step->task.matmul;
    const ConvolutionTask *convolution = &step->task.convolution;
    bool product = step->task.kind == TASK_MATMUL;
    task->dtype = (cb_dtype)(product ? matmul->dtype : convolution->dtype);
    if (task->dtype != CB_F32 && task->dtype != CB_BF16) return false;
    if (product ? matmul->wide : convolution->wide) return false;
    task->pack = packs;
    task->reduced = product ? matmul->reduced : convolution->reduced;
    if (!product) set_convolution(convolution, out);
    if (product && !set_matmul(matmul, out)) return false;
    if (is_empty(&task->x) || is_empty(&task->weight)) return false;
    out->weight_span = span_of(&task->weight);
    int channel = product ? task->out.rank - 1 : 1;
    take_epilogue(plan, step, task->out.size[channel], task->out.stride[channel], out);
    return true;
}
