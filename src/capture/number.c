/* Numbers that change become arguments: of a graph, as those of an eager op are of its kernel.
 *
 *     mul(x, 0.1)       recorded first: 0.1 is part of the graph
 *     mul(x, 0.05)      the same op at the same line: once more, and its number is an argument
 *     mul(x, argument)  takes every other one
 *
 * In: an op that is being recorded, and the recordings so far that began as this one does but for
 * numbers. Out: which of its numbers are arguments. An entry that takes every run that another one
 * takes stands in for it from then on (Entry.wider).
 *
 * What an op computes otherwise, cheaper or not at all with some numbers stays part of the graph
 * (number_may_vary). Under fullgraph the function does not run, so nobody sees its numbers. */
#include "capture/functional.h"

static bool is_half(const Trace *trace, const TraceOperand *operand) {
    if (operand->kind != OPERAND_VALUE) return false;
    cb_dtype dtype = trace->value[operand->value].meta.dtype;
    return compute_dtype(dtype) != dtype;
}

/* What conversion on the way to the target's dtype does is the same at run time. */
static bool may_be_assigned(const Trace *trace, const TraceOp *op, const cb_operand *number) {
    cb_dtype target = trace->value[op->input[0].value].meta.dtype;
    if (is_half(trace, &op->input[0])) return false;
    return dtype_is_float(target) || !dtype_is_float(number_dtype(number));
}

static bool may_vary(const Trace *trace, const TraceOp *op, const cb_operand *number) {
    if (op->op == OP_assign) return may_be_assigned(trace, op, number);
    bool half = false;
    for (int i = 0; i < op->input_count; i++) half |= is_half(trace, &op->input[i]);
    return number_may_vary(op->op, number, half);
}

bool number_may_be_argument(const Call *call, const Trace *trace, const TraceOp *op,
                            const cb_operand *number) {
    const FunctionOptions *options = &call->function->options;
    bool asked = options->dynamic != DYNAMIC_OFF && !options->fullgraph;
    return asked && may_vary(trace, op, number);
}

static bool may_differ(const Trace *trace, const TraceOp *op, const TraceOperand *a,
                       const TraceOperand *b) {
    if (operand_is_argument(a) || operand_is_argument(b) || a->bits == b->bits) return true;
    cb_operand number[2] = {trace_operand_number(a, NULL), trace_operand_number(b, NULL)};
    return may_vary(trace, op, &number[0]) && may_vary(trace, op, &number[1]);
}

bool numbers_may_differ(const Trace *a, const Trace *b) {
    bool may = true;
    for (int i = 0; may && i < length(a->op); i++)
        for (int k = 0; may && k < a->op[i].input_count; k++)
            if (operand_is_number(&a->op[i].input[k]))
                may = may_differ(a, &a->op[i], &a->op[i].input[k], &b->op[i].input[k]);
    return may;
}

/* ---- what is repeated ------------------------------------------------------------------------ */

static bool goes_on_alike(const Call *call, const Trace *trace, const TraceOp *op) {
    return length(trace->op) > call->at && trace_alike_op(&trace->op[call->at], op);
}

/* Numbers are compared with those of the same line: another loop may call the same ops so far. */
static bool has_its_line(const Call *call, const Trace *trace, const TraceOp *op) {
    bool numbers = false;
    for (int i = 0; i < op->input_count; i++) numbers |= operand_is_number(&op->input[i]);
    return !numbers || site_same(trace->op[call->at].site, op->site);
}

/* Into *found, unless there is a better one. True: there can be none. */
static bool take_like(const Call *call, const Trace *trace, const TraceOp *op,
                      const Trace **found) {
    if (!goes_on_alike(call, trace, op) || !trace_alike(call->trace, trace, call->at)) return false;
    bool here = has_its_line(call, trace, op);
    if (here || !*found) *found = trace;
    return here;
}

static const Trace *find_like(const Call *call, const TraceOp *op) {
    const Trace *found = NULL;
    LeftSegment *left = NULL;
    for (const Trace *trace; (trace = segment_recorded(call, &left));)
        if (take_like(call, trace, op, &found)) return found;
    for (Entry *e = atomic_load(&call->function->first); e; e = atomic_load(&e->next))
        if (e->resumes == call->resumed && entry_widest(e) == e &&
            entry_holds(e, call->ambient, call->grad, call->value, call->input_count) &&
            take_like(call, e->trace, op, &found))
            return found;
    return found;
}

/* The op that stands in this one's place in what is repeated; NULL: none does. */
static const TraceOp *find_op(const Call *call, const TraceOp *op) {
    Recording *recording = call->recording;
    if (recording->new_path) return NULL;
    if (!recording->like || !goes_on_alike(call, recording->like, op) ||
        !has_its_line(call, recording->like, op))
        recording->like = find_like(call, op);
    recording->new_path = !recording->like;
    return recording->like ? &recording->like->op[call->at] : NULL;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static void note_change(const Call *call, Site site, const TraceOperand *was,
                        const TraceOperand *is) {
    Arena *arena = arena_new();
    if (arena && !arena_guard(arena)) {
        Buffer out = buffer_new(arena);
        trace_print_operand(was, &out);
        put(&out, ", then ");
        trace_print_operand(is, &out);
        function_note(call->function, REASON_number_argument, site, "%s", buffer_text(&out));
    }
    arena_free(arena);
}

/* Is the number at the same line another one than it was? */
static bool has_changed(const TraceOp *op, const TraceOp *like, int operand) {
    return like && site_same(like->site, op->site) && !operand_is_argument(&like->input[operand]) &&
           like->input[operand].bits != op->input[operand].bits;
}

static bool make_argument(Call *call, TraceOperand *operand) {
    Trace *trace = call->recording->trace;
    if (!call_reserve_arguments(call, trace->argument_count + 1)) return false;
    call->argument[trace->argument_count] = operand->bits;
    operand->value = trace->argument_count++;
    operand->bits = 0;
    return true;
}

bool number_choose(Call *call, TraceOp *op) {
    const FunctionOptions *options = &call->function->options;
    const TraceOp *like = find_op(call, op);
    for (int i = 0; i < op->input_count; i++) {
        TraceOperand *operand = &op->input[i];
        if (!operand_is_number(operand)) continue;
        bool changed = has_changed(op, like, i);
        bool varies = options->dynamic == DYNAMIC_ASKED || changed ||
                      (like && operand_is_argument(&like->input[i]));
        cb_operand number = trace_operand_number(operand, NULL);
        if (!varies || !number_may_be_argument(call, call->trace, op, &number)) continue;
        if (changed) note_change(call, op->site, &like->input[i], operand);
        if (!make_argument(call, operand)) return false;
    }
    return true;
}
