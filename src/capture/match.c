/* Whether an op of a run is the next one of the trace, or of another entry that did the same so
 * far, and why not.
 *
 * In: an op call, and the trace that the call stands in. Out: call->at one further, tensors and
 * arguments bound; or another entry that the call has gone over to. */
#include "capture/match.h"

#include "capture/find.h"

#include "eager/tape.h"
#include "nn/module.h"
#include <string.h>

static bool same_history(const Call *call, const TraceValue *value, const Tensor *x) {
    HistoryKind history = tape_kind(x, call->grad);
    return value->tracked == (history == HISTORY_OF_LEAF) &&
           value->foreign == (history == HISTORY_FOREIGN);
}

/* Where it is contiguous any strides are that say so; those of the trace do. */
static bool same_layout(const TraceValue *value, const Tensor *x) {
    if (value->meta.dtype != x->dtype || value->meta.rank != x->rank ||
        value->meta.device != x->device)
        return false;
    bool same = true;
    for (int d = 0; d < x->rank; d++) {
        if (value->meta.size[d] != x->size[d]) return false;
        same &= value->stride[d] == x->stride[d];
    }
    return same || (value->contiguous && tensor_contiguous(x));
}

/* An entry that writes in place cannot take an input for a tensor from elsewhere. */
static bool found_elsewhere(const Call *call, const Tensor *x) {
    for (int i = 0; call->entry->mutated_count && i < call->input_count; i++)
        if (call->value[i]->storage == x->storage && same_tensor(call->value[i], x)) return false;
    return true;
}

/* True when x may be value v of the trace: the tensor that has been it so far in this call, or one
 * from elsewhere that the entry holds for. */
static bool is_value(const Call *call, int v, const Tensor *x) {
    if (call->value[v]) return same_tensor(call->value[v], x);
    return frozen_holds(call->entry, v, x) && found_elsewhere(call, x);
}

/* The k-th captured tensor, when the call has met it. */
static const Tensor *captured_met(const Call *call, int k) {
    int v = call->entry->captured[k];
    return v == NO_VALUE ? NULL : call->value[v];
}

enum { FEW_LEAVES = 16 };

static bool note_history(Set *leaf, const Tensor *x) {
    return !x || !x->history || set_add(leaf, (uintptr_t)x->history);
}

/* Among many a set knows the histories of all that have been met. False: x may be one of them. */
static bool is_new_leaf(Call *call, const Tensor *x) {
    Set *leaf = &call->leaf;
    bool all = true, begins = !leaf->count;
    for (int i = 0; begins && i < call->input_count; i++) all &= note_history(leaf, call->value[i]);
    for (int k = 0; begins && k < call->entry->captured_count; k++)
        all &= note_history(leaf, captured_met(call, k));
    bool known = set_has(leaf, (uintptr_t)x->history);
    all &= note_history(leaf, x);
    if (!all) set_free(leaf); /* no memory */
    return all && !known;
}

/* As another value of the trace: each of the two would be given its own part of the gradient. */
static bool is_leaf_already(Call *call, const Tensor *x) {
    int captured = call->entry->captured_count;
    bool many = call->leaf.count || call->input_count + captured > FEW_LEAVES, is = false;
    if (many && is_new_leaf(call, x)) return false;
    for (int i = 0; i < call->input_count; i++) is |= call->value[i]->history == x->history;
    for (int k = 0; k < captured; k++) {
        const Tensor *met = captured_met(call, k);
        is |= met && met->history == x->history;
    }
    return is;
}

bool match_real(Call *call, int v, Tensor *x) {
    if (!x->storage || !is_value(call, v, x)) return false;
    if (call->value[v]) return true;
    const TraceValue *value = &call->trace->value[v];
    return value->kind == VALUE_IS_CAPTURED && same_history(call, value, x) &&
           same_layout(value, x) && !(value->tracked && is_leaf_already(call, x)) &&
           call_bind(call, v, x);
}

/* A tensor that this call has met as the value that the trace has there, or the trace's number. */
static bool is_met(const Call *call, const TraceOperand *operand, const cb_operand *given) {
    if ((int)operand->kind != given->kind) return false;
    if (given->kind == CB_OPERAND_TENSOR)
        return given->tensor && call->value[operand->value] == given->tensor;
    return operand->value == NO_ARGUMENT && operand->bits == given->i;
}

static bool match_tensor(Call *call, const TraceOperand *operand, Tensor *x) {
    if (!x) return operand->kind == OPERAND_ABSENT;
    return operand->kind == OPERAND_VALUE && call_traced(call, x) == NO_VALUE &&
           match_real(call, operand->value, x);
}

static bool match_operand(Call *call, const TraceOperand *operand, const cb_operand *given) {
    return is_met(call, operand, given) ||
           (given->kind == CB_OPERAND_TENSOR && match_tensor(call, operand, given->tensor));
}

/* An operand, or behind them an attribute, as it is given. */
static cb_operand given_operand(const TraceOp *op, int k, const cb_operand *input,
                                const Attrs *attrs) {
    if (k < op->input_count) return input[k];
    cb_operand number = attr_varying(op_varying(op->op, k - op->input_count), attrs->word);
    return number_given(&number) ? number : cb_operand_tensor(NULL);
}

/* Attributes as traces have them. NULL with an error. */
static const Attrs *as_traced(int op, const cb_operand *input, const Attrs *attrs, Attrs *normal) {
    if (op == OP_assign || !view_has_start(op) || !input[0].tensor) return attrs;
    Meta meta = tensor_meta(input[0].tensor);
    attrs_copy(normal, attrs, op);
    return view_normalize(op, &meta, normal) ? normal : NULL;
}

/* What the op is besides its operands is what the trace has next. */
static const TraceOp *match_op(const Call *call, int op, int input_count, const Attrs *attrs) {
    if (call->at >= length(call->trace->op)) return NULL;
    const TraceOp *next = &call->trace->op[call->at];
    if (next->op != op || next->input_count != input_count || next->quiet != call_is_quiet(call))
        return NULL;
    if (next->word_count && !attrs) return NULL;
    for (int i = 0; i < next->word_count; i++)
        if (next->word[i] != attrs->word[i] && !(next->number_words >> i & 1)) return NULL;
    return next;
}

/* What gradients are taken by: which leaves there are follows from the ops before. The gradient by
 * what is from outside is the one behind its hooks, and recorded where it has none. */
static bool match_wrt(Call *call, const TraceBack *back) {
    const GoingBack *given = call->back;
    if (back->leaves || !given->wrt) return back->leaves && !given->wrt;
    bool same = back->count == given->count && back->graph == given->graph;
    for (int k = 0; same && k < back->count; k++) {
        Tensor *x = given->wrt[k];
        int v = call_traced(call, x), wanted = trace_back_value(back, k);
        bool hooked = call->trace->value[wanted].foreign && tape_is_hooked(x);
        same = !hooked && (v == NO_VALUE ? match_real(call, wanted, x) : v == wanted);
    }
    return same;
}

bool match_here(Call *call, int op, const cb_operand *input, int input_count, const Attrs *attrs) {
    Attrs normal;
    attrs = as_traced(op, input, attrs, &normal);
    const TraceOp *next = match_op(call, op, input_count, attrs);
    if (!next || (next->back && !match_wrt(call, next->back))) return false;
    for (int i = 0; i < input_count; i++)
        if (!operand_is_argument(&next->input[i]) &&
            !match_operand(call, &next->input[i], &input[i]))
            return false;
    if (!match_numbers(call, next, input, attrs)) return false;
    if (next->makes && device_default() != call->ambient.device) return false;
    call->at++;
    return true;
}

/* The tensors from outside that the run has met so far are constants of e, or none. */
static bool constants_hold(const Call *call, const Entry *e, int first) {
    for (int k = 0; k < e->captured_count; k++) {
        int v = e->captured[k];
        if (v != NO_VALUE && v < first && !frozen_holds(e, v, call->value[v])) return false;
    }
    return true;
}

/* The call stands in the entry's trace where it stood in another one; there is room for it. */
static void go_over(Call *call, Entry *e) {
    int64_t *argument = call->argument, *was = argument + call->argument_capacity;
    if (call->trace->argument_count)
        memcpy(was, argument, sizeof *was * (size_t)call->trace->argument_count);
    trace_arguments(call->trace, was, call->at, e->trace, argument);
    call->entry = e;
    call->trace = e->trace;
}

/* The entry behind another one (NULL: the first): of all, or of those with this key. */
static Entry *entry_behind(Call *call, const uint64_t *key, const Entry *behind) {
    if (key) return find_by(call->function, FIND_BY_OP, *key, behind);
    return atomic_load(behind ? &behind->next : &call->function->first);
}

/* Goes over to the next entry behind `behind` (NULL: the first one) that did the same as `left` so
 * far. NULL: there is none, and the call is back at `left`. */
Entry *match_next_entry(Call *call, Entry *left, Entry *behind, const uint64_t *key) {
    int first = trace_values_after(left->trace, call->at);
    call_unbind_from(call, first);
    call_stand_up(call);
    Entry *e = behind;
    while ((e = entry_behind(call, key, e))) {
        if (e == left || e->resumes != call->resumed || entry_widest(e) != e) continue;
        if (!entry_holds(e, call->ambient, call->grad, call->value, call->input_count)) continue;
        if (!trace_repeats(call->trace, call->argument, call->at, e->trace)) continue;
        if (!constants_hold(call, e, first)) continue;
        if (call_reserve_trace(call, e->trace)) break;
    }
    go_over(call, e ? e : left);
    return e;
}

void match_first_entry(Call *call) {
    Entry *left = call->entry, *e = match_next_entry(call, left, NULL, NULL);
    const Entry *first = NULL;
    do first = entry_behind(call, NULL, first);
    while (first && first != left && first != e);
    if (first == left) go_over(call, left);
}

static uint64_t key_of_call(const Call *call, int op, const cb_operand *input, int input_count,
                            const Attrs *attrs) {
    Attrs normal;
    attrs = as_traced(op, input, attrs, &normal);
    int words = attrs ? op_info(op)->word_count : 0;
    return find_key_of_op(call->at, op, input, input_count, attrs ? attrs->word : NULL, words);
}

bool match_by_op(Call *call, int op, const cb_operand *input, int input_count, const Attrs *attrs) {
    if (atomic_load(&call->function->entry_count) <= FEW_ENTRIES) return false;
    uint64_t key = key_of_call(call, op, input, input_count, attrs);
    for (Entry *left = call->entry, *e = NULL; (e = match_next_entry(call, left, e, &key));)
        if (match_here(call, op, input, input_count, attrs)) return true;
    return false;
}

bool match_any(Call *call, int op, const cb_operand *input, int input_count, const Attrs *attrs) {
    if (match_by_op(call, op, input, input_count, attrs)) return true;
    for (Entry *left = call->entry, *e = NULL; (e = match_next_entry(call, left, e, NULL));)
        if (match_here(call, op, input, input_count, attrs)) return true;
    match_first_entry(call);
    return false;
}

Reason match_other_tensor(const Call *call, const TraceOperand *known, const cb_operand *given) {
    if (known->kind != OPERAND_VALUE || given->kind != CB_OPERAND_TENSOR || !given->tensor)
        return REASON_NONE;
    const TraceValue *value = &call->trace->value[known->value];
    const Tensor *x = given->tensor;
    if (!x->storage || value->kind == VALUE_IS_RESULT) return REASON_NONE;
    bool is = is_value(call, known->value, x);
    if (!is && match_is_written(call, known, given)) return REASON_constant_written;
    if (!same_layout(value, x))
        return call->resumed ? REASON_goes_on_otherwise : REASON_found_otherwise;
    if (!is) return REASON_tensor_changed;
    return same_history(call, value, x) ? REASON_NONE : REASON_history_changed;
}

bool match_is_written(const Call *call, const TraceOperand *known, const cb_operand *given) {
    const Entry *entry = call->entry;
    if (known->kind != OPERAND_VALUE || given->kind != CB_OPERAND_TENSOR || !entry->frozen)
        return false;
    const Frozen *frozen = &entry->frozen[known->value];
    const Tensor *x = given->tensor;
    return frozen->serial && x && x->storage && frozen->serial == x->storage->serial &&
           frozen->version != storage_version(x->storage);
}

bool match_mode_changed(const Call *call) {
    int last = length(call->trace->op) - 1, at = call->at < last ? call->at : last;
    ModuleMode then = at < 0 ? MODULE_UNKNOWN : call->trace->op[at].mode, now = module_mode();
    return then != MODULE_UNKNOWN && now != MODULE_UNKNOWN && then != now;
}

/* Why the run leaves the trace: the same op with another number or tensor, or another op. */
Reason match_departure(const Call *call, int op, const cb_operand *input, int input_count,
                       const Attrs *attrs) {
    bool has;
    if (leaves_find_departed(call, &has) != NO_VALUE) return REASON_gradient_changed;
    if (match_mode_changed(call)) return REASON_mode_changed;
    if (call->at >= length(call->trace->op)) return REASON_path_changed;
    const TraceOp *next = &call->trace->op[call->at];
    if (next->op != op || next->input_count != input_count) return REASON_path_changed;
    Attrs normal;
    attrs = as_traced(op, input, attrs, &normal);
    if (!attrs && next->word_count) return REASON_path_changed;
    for (int i = 0; i < next->word_count; i++)
        if (next->word[i] != attrs->word[i] && !trace_word_varies(next, i))
            return REASON_attribute_changed;
    for (int i = 0; i < next->operand_count; i++) {
        const TraceOperand *known = &next->input[i];
        cb_operand given = given_operand(next, i, input, attrs);
        Reason other = match_other_tensor(call, known, &given);
        if (other != REASON_NONE) return other;
        if (!operand_is_number(known) || known->kind != (OperandKind)given.kind) continue;
        if (operand_is_argument(known) || trace_number(&given).bits != known->bits)
            return site_same(next->site, site_current()) &&
                           number_may_be_argument(call, call->trace, next, i, &given, attrs)
                       ? REASON_number_argument
                       : REASON_scalar_changed;
    }
    return REASON_path_changed;
}
