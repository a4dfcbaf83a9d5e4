/* What the epilogue kernel of a task amounts to, where it is one that methods and providers know.
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
#include "method/epilogue.h"

#include <math.h>

typedef struct EndPattern {
    const Kernel *kernel;
    const Store *store;
    int out; /* plan value of the result */
    cb_dtype dtype;
    int64_t channels, stride; /* of the channel dim in the result */
    int scale, bias, residual;
    bool relu;
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
    cb_dtype dtype = p->kernel->buffer[buffer].dtype;
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
    return rounds ? e->input[0] : e;
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

static bool match(EndPattern *p) {
    const Kernel *kernel = p->kernel;
    if (length(kernel->store) != 1) return false;
    p->store = &kernel->store[0];
    const KernelBuffer *buffer = &kernel->buffer[p->store->buffer];
    if (buffer->value != p->out) return false;
    check(!p->store->guard && p->store->mode == STORE_SET, "an epilogue that keeps elements");
    const Expr *value = without_rounding(p, p->store->value);
    p->relu = value->op == OP_relu;
    if (p->relu) value = value->input[0];
    return match_sum(p, value);
}

KnownEnd known_end(const Plan *plan, const Step *step) {
    const TaskInfo *info = task_info(step->task.kind);
    KnownEnd none = {.scale = -1, .bias = -1, .residual = -1};
    cb_dtype dtype = plan->value[step->out].dtype;
    bool same = plan->value[step->in[0]].dtype == dtype; /* sums of halves may be wide */
    if (step->kernel < 0 || !info->channels || !same) return none;
    if (dtype != CB_F32 && dtype != CB_BF16) return none;
    if (dtype == CB_BF16 && plan->ambient.precise) return none; /* each op rounds */
    EndPattern p = {.kernel = plan->kernel[step->kernel],
                    .out = step->out,
                    .dtype = dtype,
                    .scale = -1,
                    .bias = -1,
                    .residual = -1};
    info->channels(&step->task, &p.channels, &p.stride);
    if (!match(&p)) return none;
    cb_dtype bias_dtype = p.bias < 0 ? dtype : p.kernel->buffer[p.bias].dtype;
    return (KnownEnd){.fused = true,
                      .relu = p.relu,
                      .bias_dtype = bias_dtype,
                      .scale = p.scale,
                      .bias = p.bias,
                      .residual = p.residual};
}
