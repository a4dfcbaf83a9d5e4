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
#include "capture/backend.h"
#include "capture/functional.h"

bool number_may_be_argument(const Call *call, const Trace *trace, const TraceOp *op, int k,
                            const cb_operand *number, const Attrs *attrs) {
    const FunctionOptions *options = &call->function->options;
    bool asked = options->dynamic != DYNAMIC_OFF && !options->fullgraph;
    bool written = k >= op->input_count && backend_of(options); /* as numbers of the FX graph */
    return asked && !written && trace_may_vary(trace, op, k, number, attrs);
}

static bool is_free(const Trace *trace, const TraceOp *op, int k) {
    Attrs attrs;
    cb_operand number = trace_operand_number(&op->input[k], NULL);
    trace_attrs(op, NULL, &attrs);
    return trace_may_vary(trace, op, k, &number, &attrs);
}

static bool may_differ(const Trace *a, const Trace *b, int op, int k) {
    const TraceOperand *p = &a->op[op].input[k], *q = &b->op[op].input[k];
    if (operand_is_argument(p) || operand_is_argument(q) || p->bits == q->bits) return true;
    return is_free(a, &a->op[op], k) && is_free(b, &b->op[op], k);
}

bool numbers_may_differ(const Trace *a, const Trace *b) {
    bool may = true;
    for (int i = 0; may && i < length(a->op); i++)
        for (int k = 0; may && k < a->op[i].operand_count; k++)
            if (operand_is_number(&a->op[i].input[k])) may = may_differ(a, b, i, k);
    return may;
}

/* ---- what is repeated ------------------------------------------------------------------------ */

static bool goes_on_alike(const Call *call, const Trace *trace, const TraceOp *op) {
    return length(trace->op) > call->at && trace_alike_op(&trace->op[call->at], op);
}

/* Numbers are compared with those of the same line: another loop may call the same ops so far. */
static bool has_its_line(const Call *call, const Trace *trace, const TraceOp *op) {
    bool numbers = false;
    for (int i = 0; i < op->operand_count; i++) numbers |= operand_is_number(&op->input[i]);
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
    if (recording->models.new_path) return NULL;
    if (!recording->models.like || !goes_on_alike(call, recording->models.like, op) ||
        !has_its_line(call, recording->models.like, op))
        recording->models.like = find_like(call, op);
    recording->models.new_path = !recording->models.like;
    return recording->models.like ? &recording->models.like->op[call->at] : NULL;
}

/* ---- what is repeated over other sizes ------------------------------------------------------- */

/* The same op at the same line, of any sizes. */
static bool is_same_call(const TraceOp *a, const TraceOp *b) {
    return a->op == b->op && a->input_count == b->input_count && a->result == b->result &&
           site_same(a->site, b->site);
}

/* It has called the same so far and here. */
static bool is_resized(const Call *call, const Trace *trace, const TraceOp *op) {
    bool is = length(trace->op) > call->at && is_same_call(&trace->op[call->at], op);
    for (int i = call->at - 1; i >= 0 && is; i--)
        is = is_same_call(&trace->op[i], &call->trace->op[i]);
    return is;
}

/* The op that stands in this one's place in an entry over other sizes; NULL: none does. What
 * changes there, or from there, is an argument here, so a size learns nothing again. */
static const TraceOp *find_resized(const Call *call, const TraceOp *op) {
    Recording *recording = call->recording;
    const Trace *known = recording->models.resized;
    if (recording->models.new_sizes) return NULL;
    if (!known || length(known->op) <= call->at || !is_same_call(&known->op[call->at], op)) {
        known = NULL;
        for (Entry *e = atomic_load(&call->function->first); e && !known; e = atomic_load(&e->next))
            if (e->resumes == call->resumed && entry_widest(e) == e &&
                is_resized(call, e->trace, op))
                known = e->trace;
    }
    recording->models.resized = known;
    recording->models.new_sizes = !known;
    return known ? &known->op[call->at] : NULL;
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

/* Over other sizes it is another number, or any. A start that differs mostly follows the size, the
 * last row of a text: kernels take that as they take sizes, and graphs know where it is. */
static bool differs_from(const TraceOp *op, const TraceOperand *operand,
                         const TraceOperand *resized) {
    if (resized->kind != operand->kind) return false;
    return operand_is_argument(resized) ||
           (resized->bits != operand->bits && !view_has_start(op->op));
}

static bool make_argument(Call *call, TraceOperand *operand) {
    Trace *trace = call->recording->trace;
    if (!call_reserve_arguments(call, trace->argument_count + 1)) return false;
    call->argument[trace->argument_count] = operand->bits;
    operand->value = trace->argument_count++;
    operand->bits = 0;
    return true;
}

/* Attributes that are numbers stand behind the inputs. */
static void add_attributes(TraceOp *op) {
    const Param *param;
    if (op->op == OP_assign) return;
    for (int k = 0; (param = op_varying(op->op, k)); k++) {
        cb_operand number = attr_varying(param, op->word);
        check(op->operand_count < TRACE_OPERANDS, "%s has too many numbers", op_info(op->op)->name);
        TraceOperand *operand = &op->input[op->operand_count++];
        *operand =
            number_given(&number) ? trace_number(&number) : (TraceOperand){.kind = OPERAND_ABSENT};
    }
}

bool number_choose(Call *call, TraceOp *op) {
    const FunctionOptions *options = &call->function->options;
    Attrs attrs;
    add_attributes(op);
    trace_attrs(op, NULL, &attrs);
    const TraceOp *like = find_op(call, op), *resized = like ? NULL : find_resized(call, op);
    for (int i = 0; i < op->operand_count; i++) {
        TraceOperand *operand = &op->input[i];
        if (!operand_is_number(operand)) continue;
        bool changed = has_changed(op, like, i);
        bool varies = (options->dynamic == DYNAMIC_ASKED && !view_has_start(op->op)) || changed ||
                      (like && operand_is_argument(&like->input[i])) ||
                      (resized && differs_from(op, operand, &resized->input[i]));
        cb_operand number = trace_operand_number(operand, NULL);
        if (!varies || !number_may_be_argument(call, call->trace, op, i, &number, &attrs)) continue;
        if (changed) note_change(call, op->site, &like->input[i], operand);
        if (!make_argument(call, operand)) return false;
        op->varies |= i >= op->input_count;
    }
    return true;
}
