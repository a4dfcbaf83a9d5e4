/* The tracer while a recorded trace repeats: the k-th op is compared with the k-th op of the trace,
 * and a shell comes back. No graph, no inference, no work.
 *
 * A run that differs from its entry's trace is looked up among the other entries; when none of them
 * goes the same way, it becomes a recording that starts with the ops that did match. */
#include "capture/functional.h"
#include "capture/segment.h"

#include "base/clock.h"
#include "base/memory.h"
#include "eager/tape.h"
#include "nn/module.h"
#include <string.h>

/* ---- matching ------------------------------------------------------------------------------ */

static bool same_value(const Call *call, const TraceValue *value, const Tensor *x) {
    HistoryKind history = tape_kind(x, call->grad);
    if (value->tracked != (history == HISTORY_OF_LEAF)) return false;
    if (value->foreign != (history == HISTORY_FOREIGN)) return false;
    if (value->meta.dtype != x->dtype || value->meta.rank != x->rank ||
        value->meta.device != x->device)
        return false;
    size_t bytes = sizeof(int64_t) * x->rank;
    if (memcmp(value->meta.size, x->size, bytes)) return false;
    return value->contiguous ? tensor_contiguous(x) : !memcmp(value->stride, x->stride, bytes);
}

/* An entry that writes in place cannot take an input for a tensor from elsewhere. */
static bool found_elsewhere(const Call *call, const Tensor *x) {
    for (int i = 0; call->entry->mutated_count && i < call->input_count; i++)
        if (same_tensor(call->value[i], x)) return false;
    return true;
}

/* True when x may be value v of the trace: the tensor that has been it so far in this call, or one
 * from elsewhere that the entry holds for. */
static bool is_value(const Call *call, int v, const Tensor *x) {
    if (call->value[v]) return same_tensor(call->value[v], x);
    return frozen_holds(call->entry, v, x) && found_elsewhere(call, x);
}

/* As another value of the trace: each of the two would be given its own part of the gradient. */
static bool is_leaf_already(const Call *call, const Tensor *x) {
    const Entry *entry = call->entry;
    bool is = false;
    for (int i = 0; i < call->input_count; i++) is |= call->value[i]->history == x->history;
    for (int k = 0; k < entry->captured_count; k++) {
        int v = entry->captured[k];
        is |= v != NO_VALUE && call->value[v] && call->value[v]->history == x->history;
    }
    return is;
}

/* x is a real tensor where the trace has value v: the same input, or a captured tensor that
 * fits. */
static bool match_real(Call *call, int v, Tensor *x) {
    if (!x->storage || !is_value(call, v, x)) return false;
    if (call->value[v]) return true;
    const TraceValue *value = &call->trace->value[v];
    return value->kind == VALUE_IS_CAPTURED && same_value(call, value, x) &&
           !(value->tracked && is_leaf_already(call, x)) && call_bind(call, v, x);
}

/* Any number of its kind that changes nothing but itself. */
static bool match_argument(Call *call, const TraceOp *op, int k, const cb_operand *given,
                           const Attrs *attrs) {
    const TraceOperand *operand = &op->input[k];
    if (!operand_is_argument(operand) || (int)operand->kind != given->kind) return false;
    if (op->op != OP_assign && !trace_may_vary(call->trace, op, k, given, attrs)) return false;
    call->argument[operand->value] = given->i;
    return true;
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

static bool match_operand(Call *call, const TraceOp *op, int k, const cb_operand *given,
                          const Attrs *attrs) {
    const TraceOperand *operand = &op->input[k];
    if (is_met(call, operand, given)) return true;
    return given->kind == CB_OPERAND_TENSOR ? match_tensor(call, operand, given->tensor)
                                            : match_argument(call, op, k, given, attrs);
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
        if (next->word[i] != attrs->word[i] && !(next->varies && trace_word_varies(next, i)))
            return NULL;
    return next;
}

/* What gradients are taken by: which leaves there are follows from the ops before. */
static bool match_wrt(Call *call, const TraceBack *back) {
    const GoingBack *given = call->back;
    if (back->leaves || !given->wrt) return back->leaves && !given->wrt;
    bool same = back->count == given->count && back->graph == given->graph;
    for (int k = 0; same && k < back->count; k++) {
        Tensor *x = given->wrt[k];
        int v = call_traced(call, x), wanted = trace_back_value(back, k);
        same = v == NO_VALUE ? match_real(call, wanted, x) : v == wanted;
    }
    return same;
}

static bool match(Call *call, int op, const cb_operand *input, int input_count,
                  const Attrs *attrs) {
    Attrs normal;
    attrs = as_traced(op, input, attrs, &normal);
    const TraceOp *next = match_op(call, op, input_count, attrs);
    if (!next || (next->back && !match_wrt(call, next->back))) return false;
    for (int i = 0; i < (next->varies ? next->operand_count : input_count); i++) {
        cb_operand given = given_operand(next, i, input, attrs);
        if (!match_operand(call, next, i, &given, attrs)) return false;
    }
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
static Entry *next_entry(Call *call, Entry *left, Entry *behind, const uint64_t *key) {
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

static uint64_t key_of_call(const Call *call, int op, const cb_operand *input, int input_count,
                            const Attrs *attrs) {
    Attrs normal;
    attrs = as_traced(op, input, attrs, &normal);
    int words = attrs && op < OP_COUNT ? op_info(op)->word_count : 0;
    return find_key_of_op(call->at, op, input, input_count, attrs ? attrs->word : NULL, words);
}

/* Goes over to another entry that did the same so far and left what was known with this op. */
static bool switch_by_op(Call *call, int op, const cb_operand *input, int input_count,
                         const Attrs *attrs) {
    if (atomic_load(&call->function->entry_count) <= FEW_ENTRIES) return false;
    uint64_t key = key_of_call(call, op, input, input_count, attrs);
    for (Entry *left = call->entry, *e = NULL; (e = next_entry(call, left, e, &key));)
        if (match(call, op, input, input_count, attrs)) return true;
    return false;
}

/* The same, to any that continues with it. */
static bool switch_entry(Call *call, int op, const cb_operand *input, int input_count,
                         const Attrs *attrs) {
    if (switch_by_op(call, op, input, input_count, attrs)) return true;
    for (Entry *left = call->entry, *e = NULL; (e = next_entry(call, left, e, NULL));)
        if (match(call, op, input, input_count, attrs)) return true;
    return false;
}

/* A tensor from outside stands where the trace has another one from outside. */
static bool other_tensor(const Call *call, const TraceOperand *known, const cb_operand *given) {
    if (known->kind != OPERAND_VALUE || given->kind != CB_OPERAND_TENSOR || !given->tensor)
        return false;
    const Tensor *x = given->tensor;
    if (!x->storage || call->trace->value[known->value].kind == VALUE_IS_RESULT) return false;
    return !is_value(call, known->value, x);
}

/* True when the modules that have run so far were set otherwise as the trace was recorded. */
static bool mode_changed(const Call *call) {
    int last = length(call->trace->op) - 1, at = call->at < last ? call->at : last;
    ModuleMode then = at < 0 ? MODULE_UNKNOWN : call->trace->op[at].mode, now = module_mode();
    return then != MODULE_UNKNOWN && now != MODULE_UNKNOWN && then != now;
}

/* Why the run leaves the trace: the same op with another number or tensor, or another op. */
static Reason departure(const Call *call, int op, const cb_operand *input, int input_count,
                        const Attrs *attrs) {
    if (mode_changed(call)) return REASON_mode_changed;
    if (call->at >= length(call->trace->op)) return REASON_path_changed;
    const TraceOp *next = &call->trace->op[call->at];
    if (next->op != op || next->input_count != input_count) return REASON_path_changed;
    Attrs normal;
    attrs = as_traced(op, input, attrs, &normal);
    if (!attrs && next->word_count) return REASON_path_changed;
    for (int i = 0; i < next->word_count; i++)
        if (next->word[i] != attrs->word[i] && !trace_word_varies(next, i))
            return REASON_path_changed;
    for (int i = 0; i < next->operand_count; i++) {
        const TraceOperand *known = &next->input[i];
        cb_operand given = given_operand(next, i, input, attrs);
        if (other_tensor(call, known, &given)) return REASON_tensor_changed;
        if (!operand_is_number(known) || known->kind != (OperandKind)given.kind) continue;
        if (operand_is_argument(known) || trace_number(&given).bits != known->bits)
            return site_same(next->site, site_current()) &&
                           number_may_be_argument(call, call->trace, next, i, &given, attrs)
                       ? REASON_number_argument
                       : REASON_scalar_changed;
    }
    return REASON_path_changed;
}

enum { MOST_PLACES = 8 }; /* behind events: each may go on in as many ways as a function begins */

/* From here on the run is new. False: the rest runs eagerly. */
static bool begin_recording(Call *call, Reason why, const char *what) {
    Function *function = call->function;
    int limit = function_limit() * (call->resumed ? MOST_PLACES : 1);
    if (why == REASON_number_argument) limit++; /* it takes the place of another one */
    int alternatives = function_alternatives(function, call->resumed, false);
    Reason obstacle = stance_find(alternatives, limit);
    if (obstacle != REASON_NONE) {
        char text[160];
        snprintf(text, sizeof text, "%s, %s", reason_info(why)->text, what);
        call_break(call, obstacle, text);
        return false;
    }
    if (why != REASON_number_argument && (call->at || !call->resumed))
        function_note(function, why, site_current(), "%s", what);
    call->start_ms = clock_ms();
    if (record_from(call, call->trace, call->at)) return true;
    call_break(call, REASON_out_of_memory, "while recording");
    return false;
}

/* It ends, where the trace goes on. */
static bool record_end_of(Call *call, Reason why) {
    char what[160];
    int length_known = length(call->trace->op);
    if (call->at < length_known)
        snprintf(what, sizeof what, "after %d ops, entry %d has %d", call->at, call->entry->number,
                 length_known);
    else
        snprintf(what, sizeof what, "after %d ops: other results", call->at);
    return begin_recording(call, why, what);
}

/* ---- the tracer ---------------------------------------------------------------------------- */

/* The op is another one than the trace has. */
static bool record_departure(Call *call, Op op, const cb_operand *input, int input_count,
                             const Attrs *attrs) {
    char what[160];
    miss_describe_op(call, op, input, input_count, attrs, what, sizeof what);
    return begin_recording(call, departure(call, op, input, input_count, attrs), what);
}

static Tensor *apply_any(Call *call, Op op, const cb_operand *input, int input_count,
                         const Attrs *attrs);

/* The call is cut, and the op is the first one behind. */
static Tensor *apply_behind(Call *call, Op op, const cb_operand *input, int input_count,
                            const Attrs *attrs) {
    if (slot_cut(call)) return apply_any(call, op, input, input_count, attrs);
    return call->failed ? NULL : apply(op, input, input_count, attrs);
}

static Tensor *record_next(Call *call, Op op, const cb_operand *input, int input_count,
                           const Attrs *attrs) {
    if (call->mode == CALL_RECORDS && slot_is_read(call, op, input, input_count))
        return apply_behind(call, op, input, input_count, attrs);
    return record_apply(call, op, input, input_count, attrs);
}

static bool is_cut_here(const Call *call) {
    return call->trace->cut && length(call->trace->op) == call->at;
}

/* The entry is one that does, or the call has gone over to one that did the same so far. */
static bool find_ending(Call *call, bool (*ends)(const Call *call)) {
    if (ends(call)) return true;
    for (Entry *left = call->entry, *e = NULL; (e = next_entry(call, left, e, NULL));)
        if (ends(call)) return true;
    return false;
}

/* The op is not the next one of the trace. */
static __attribute__((noinline, cold)) Tensor *
leave_trace(Call *call, Op op, const cb_operand *input, int input_count, const Attrs *attrs) {
    bool cut = is_cut_here(call); /* mostly: of hundreds of lengths, each is cut here */
    if (cut ? switch_by_op(call, op, input, input_count, attrs)
            : switch_entry(call, op, input, input_count, attrs))
        return call_shell(call, call->trace->op[call->at - 1].result);
    if (cut || find_ending(call, is_cut_here))
        return apply_behind(call, op, input, input_count, attrs);
    if (!record_departure(call, op, input, input_count, attrs))
        return call->failed ? NULL : apply(op, input, input_count, attrs);
    return record_next(call, op, input, input_count, attrs);
}

static __attribute__((noinline)) Tensor *apply_any(Call *call, Op op, const cb_operand *input,
                                                   int input_count, const Attrs *attrs) {
    for (int i = 0; call->left && i < input_count; i++)
        if (input[i].kind == CB_OPERAND_TENSOR) call_meet(call, input[i].tensor);
    if (call->stale && !call->tracer.disabled && !segment_renew(call))
        return call->failed ? NULL : apply(op, input, input_count, attrs);
    if (call->refused) return NULL; /* memory may have run out in the middle of a recording */
    if (call->tracer.disabled || (call->exposed_count && expose_meets(call, input, input_count)))
        return expose_apply(call, op, input, input_count, attrs);
    if (call->mode != CALL_REPLAYS) return record_next(call, op, input, input_count, attrs);
    if (!match(call, op, input, input_count, attrs))
        return leave_trace(call, op, input, input_count, attrs);
    return call_shell(call, call->trace->op[call->at - 1].result);
}

/* Most ops of a replay meet what is expected; the others begin anew. */
static Tensor *trace_apply(Tracer *tracer, Op op, const cb_operand *input, int input_count,
                           const Attrs *attrs) {
    Call *call = call_of(tracer);
    Tensor *y = call_meets_line(call, op, input, input_count, attrs);
    return y ? y : apply_any(call, op, input, input_count, attrs);
}

static Tensor *trace_assign(Tracer *tracer, Tensor *target, const cb_operand *value) {
    Call *call = call_of(tracer);
    call_meet(call, target);
    if (value->kind == CB_OPERAND_TENSOR) call_meet(call, value->tensor);
    if (call->stale && !tracer->disabled && !segment_renew(call))
        return call->failed ? NULL : apply_assign(target, value);
    if (call->refused) return NULL;
    const cb_operand input[2] = {cb_operand_tensor(target), *value};
    if (tracer->disabled || (call->exposed_count && expose_meets(call, input, 2)))
        return expose_assign(call, target, value);
    if (call->mode == CALL_REPLAYS) {
        if (match(call, OP_assign, input, 2, NULL) || switch_entry(call, OP_assign, input, 2, NULL))
            return target;
        if (!record_departure(call, OP_assign, input, 2, NULL))
            return call->failed ? NULL : apply_assign(target, value);
    }
    return record_assign(call, target, value);
}

bool call_replays_backward(Call *call, const cb_operand *input) {
    return match(call, OP_backward, input, 2, NULL) ||
           switch_entry(call, OP_backward, input, 2, NULL) ||
           (record_departure(call, OP_backward, input, 2, NULL) && false);
}

bool call_touches(const Call *call, const Tensor *x) {
    for (int i = 0; i < call->at; i++) {
        const TraceOp *op = &call->trace->op[i];
        for (int k = 0; k < op->input_count; k++) {
            if (op->input[k].kind != OPERAND_VALUE) continue;
            int root = call->trace->value[op->input[k].value].root;
            if (call->trace->value[root].kind == VALUE_IS_RESULT) continue;
            if (tensors_overlap(call->value[root], x)) return true;
        }
    }
    return false;
}

/* A value is an event; where a pointer leaves, the tensor is recorded no more. */
static bool trace_materialize(Tracer *tracer, Tensor *x, TensorAccess access) {
    static const Reason why[] = {[ACCESS_NOW] = REASON_value_requested,
                                 [ACCESS_WRITE] = REASON_value_requested,
                                 [ACCESS_POINTER] = REASON_pointer_given,
                                 [ACCESS_CHANGE] = REASON_pointer_write};
    Call *call = call_of(tracer);
    if (call->function->options.fullgraph) return call_break(call, why[access], "");
    call_meet(call, x);
    if (access == ACCESS_WRITE) segment_before_writes(call, x);
    bool real = call_traced(call, x) == NO_VALUE && access != ACCESS_POINTER;
    if (real && (!x->storage || !call_touches(call, x))) return true;
    if (access == ACCESS_POINTER || access == ACCESS_CHANGE) return expose(call, x, why[access]);
    bool done = call_event(call, why[access]);
    call_meet(call, x);
    return done;
}

static bool trace_pause(Tracer *tracer) {
    Call *call = call_of(tracer);
    if (call->function->options.fullgraph) return call_break(call, REASON_disabled, "");
    if (call->mode == CALL_RECORDS && !call->at)
        function_note(call->function, REASON_disabled, site_current(), "%s", "");
    return call_event(call, REASON_disabled);
}

/* ---- beginning and end of a call ------------------------------------------------------------- */

bool call_start(Call *call, Function *function, Ambient now, Tensor *const *input, int input_count,
                Entry *entry) {
    call->tracer = (Tracer){.apply = trace_apply,
                            .expect = call_expects,
                            .expect_two = call_expects_two,
                            .assign = trace_assign,
                            .materialize = trace_materialize,
                            .destroy_tensor = call_loses_tensor,
                            .storage_of = call_storage_of,
                            .pause = trace_pause,
                            .change_ambient = call_changes_ambient,
                            .requires_grad = call_requires_grad,
                            .go_back = call_goes_back,
                            .meet_leaf = function->options.fullgraph ? call_meets_leaf : NULL,
                            .meet_layout = function->options.fullgraph ? call_meets_layout : NULL,
                            .end_leaf = call_loses_leaf,
                            .meet_module = function->options.fullgraph ? call_meets_module : NULL,
                            .meet_graph = function->options.fullgraph ? call_meets_graph : NULL,
                            .serial = serial_next()};
    call->start_ms = entry ? 0 : clock_ms();
    call->function = function;
    call->ambient = now;
    call->stale = false;
    call->grad = grad_mode();
    call->back = NULL;
    call->input = input;
    call->input_count = input_count;
    call->own_inputs = 0;
    call->mode = CALL_REPLAYS;
    call->entry = entry;
    call->trace = entry ? entry->trace : NULL;
    call->at = 0;
    call->recording = NULL;
    call->failed = call->lost = false;
    call->failure = NULL;
    call->refused = REASON_NONE;
    call->value = call->local;
    call->value_capacity = LOCAL_VALUES;
    call->bound = 0;
    call->argument = call->local_argument;
    call->argument_capacity = LOCAL_ARGUMENTS;
    call->resumed = false;
    call->before = NULL;
    call->left = call->due = call->reserved = NULL;
    call->exposed = NULL;
    call->exposed_count = 0;
    call->seats = NULL;
    call->left_serial = serial_next();
    if (!call_reserve(call, input_count) || (entry && !call_sit(call))) return false;
    for (int i = 0; i < input_count; i++) call->value[i] = input[i];
    module_mode_forget();
    return entry || record_from(call, NULL, 0);
}

/* False: the replayed trace does not return this there, or (recording) memory ran out. */
static bool output_value(Call *call, int position, Tensor *x, int *value) {
    *value = NO_VALUE;
    if (!x) return true;
    *value = call_traced(call, x);
    if (*value != NO_VALUE) return true;
    if (call->mode == CALL_RECORDS) {
        *value = record_output(call, x, call->moved[position]);
        return *value != NO_VALUE;
    }
    *value = call->trace->output[position];
    return *value >= 0 && match_real(call, *value, x);
}

static bool output_values(Call *call, Tensor *const *output, int count, int *value) {
    for (int i = 0; i < count; i++)
        if (!output_value(call, i, output[i], &value[i])) return false;
    return true;
}

static bool listed(int value, const int *list, int count) {
    for (int i = 0; i < count; i++)
        if (list[i] == value) return true;
    return false;
}

bool call_escapes(const Call *call, int v, const int *output, int output_count) {
    return call->value[v] && call->trace->value[v].kind == VALUE_IS_RESULT &&
           !listed(v, output, output_count);
}

/* All results of the trace that live are those that its outputs and escaped values name. */
static bool same_survivors(const Call *call, const Trace *trace) {
    int expected = length(trace->escaped);
    for (int i = 0; i < length(trace->escaped); i++)
        if (!call->value[trace->escaped[i]]) return false;
    for (int i = 0; i < length(trace->output); i++) {
        int v = trace->output[i];
        if (v >= 0 && trace->value[v].kind == VALUE_IS_RESULT && !listed(v, trace->output, i))
            expected++;
    }
    return expected == call->tracer.alive;
}

static bool ends_here(Call *call, Tensor *const *output, int output_count, int *value) {
    const Trace *trace = call->trace;
    if (trace->goes_on || length(trace->op) != call->at || length(trace->output) != output_count)
        return false;
    if (!output_values(call, output, output_count, value)) return false;
    for (int i = 0; i < output_count; i++)
        if (trace->output[i] != value[i]) return false;
    return same_survivors(call, trace);
}

static bool other_ends_here(Call *call, Tensor *const *output, int output_count, int *value) {
    Entry *left = call->entry;
    for (Entry *e = NULL; (e = next_entry(call, left, e, NULL));)
        if (ends_here(call, output, output_count, value)) return true;
    return false;
}

bool call_end(Call *call, Tensor *const *output, int output_count, int *value) {
    if (call->mode == CALL_REPLAYS) {
        if (ends_here(call, output, output_count, value)) return true;
        if (other_ends_here(call, output, output_count, value)) return true;
        Reason why = mode_changed(call) ? REASON_mode_changed : REASON_path_changed;
        if (!record_end_of(call, why)) return false;
    }
    if (output_values(call, output, output_count, value) && record_end(call, value, output_count))
        return true;
    call_break(call, REASON_out_of_memory, "while recording");
    return false;
}

bool call_at_event(Call *call) {
    return find_ending(call, segment_ends_here) || record_end_of(call, REASON_path_changed);
}

/* The first value from v on that is there, or how many there are: most are not. */
static int find_value(const Call *call, int v) {
    Tensor *const *x = call->value;
    while (v + 4 <= call->bound && !x[v] && !x[v + 1] && !x[v + 2] && !x[v + 3]) v += 4;
    while (v < call->bound && !x[v]) v++;
    return v;
}

void call_finish(Call *call) {
    int first = call->input_count;
    for (int v = first; (v = find_value(call, v)) < call->bound; v++) {
        Tensor *x = call->value[v];
        call->value[v] = NULL;
        if (call_traced(call, x) == NO_VALUE) { /* our view of one from outside */
            tensor_destroy(x);
        } else {
            x->trace = 0;
            if (!x->storage) leaf_forget(x);
        }
    }
    for (int i = 0; i < first; i++)
        if (call_owns_input(call, i)) tensor_destroy(call->value[i]);
    record_free(call->recording);
    segment_drop_reserved(call);
    call_stand_up(call);
    if (call->value != call->local) memory_free(call->value);
    if (call->argument != call->local_argument) memory_free(call->argument);
    call->recording = NULL;
    call->value = call->local;
    call->value_capacity = LOCAL_VALUES;
    call->argument = call->local_argument;
    call->argument_capacity = LOCAL_ARGUMENTS;
    call->bound = 0;
}
