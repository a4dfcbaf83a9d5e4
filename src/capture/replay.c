/* The tracer while a recorded trace repeats: the k-th op is compared with the k-th op of the trace,
 * and a shell comes back. No graph, no inference, no work.
 *
 * A run that differs from its entry's trace is looked up among the other entries; when none of them
 * goes the same way, it becomes a recording that starts with the ops that did match. */
#include "capture/match.h"
#include "capture/segment.h"

#include "base/memory.h"
#include "eager/tape.h"
#include "nn/module.h"
#include <string.h>

enum { MOST_PLACES = 8 }; /* behind events: each may go on in as many ways as a function begins */

/* From here on the run is new; what NULL: nothing is known that it differs from. False: the rest
 * runs eagerly. */
static bool begin_recording(Call *call, Reason why, const char *what) {
    Function *function = call->function;
    int limit = function_limit() * (call->resumed ? MOST_PLACES : 1);
    if (why == REASON_number_argument) limit++; /* it takes the place of another one */
    int alternatives = function_alternatives(function, call->resumed, false);
    Reason obstacle = stance_find(alternatives, limit);
    if (obstacle != REASON_NONE) {
        char text[160];
        snprintf(text, sizeof text, "%s%s%s", reason_info(why)->text, what ? ", " : "",
                 what ? what : "");
        call_break(call, obstacle, text);
        return false;
    }
    Site site = site_current();
    call_begins_recording(call);
    if (record_from(call, call->trace, call->at)) {
        Reason told = why == REASON_number_argument ? REASON_NONE : why; /* by number.c */
        trace_say_again(call->recording->trace, &(TraceAgain){told, site, what});
        return true;
    }
    call_break(call, REASON_out_of_memory, "while recording");
    return false;
}

/* It ends, where the trace goes on. */
static bool record_end_of(Call *call, Reason why) {
    char what[160];
    int length_known = length(call->trace->op);
    if (miss_describe_gradient(call, what, sizeof what))
        why = REASON_gradient_changed;
    else if (call->at < length_known)
        snprintf(what, sizeof what, "after %d op%s, entry %d has %d", call->at, plural(call->at),
                 call->entry->number, length_known);
    else
        snprintf(what, sizeof what, "after %d op%s: other results", call->at, plural(call->at));
    return begin_recording(call, why, call->at || !call->resumed ? what : NULL);
}

/* ---- the tracer ---------------------------------------------------------------------------- */

static bool begins_with(const Call *call, Op op) {
    const TraceOp *first = call->trace->op;
    return length(first) && first->op == op && site_same(first->site, site_current());
}

/* Behind an event the call stands at whatever entry was guessed: goes over to one that begins at
 * the same line, but for what it meets there. False: none does, the place is new. */
static bool find_beginning(Call *call, Op op) {
    if (begins_with(call, op)) return true;
    for (Entry *left = call->entry, *e = NULL; (e = match_next_entry(call, left, e, NULL));)
        if (begins_with(call, op)) return true;
    return false;
}

/* The op is another one than the trace has. */
static bool record_departure(Call *call, Op op, const cb_operand *input, int input_count,
                             const Attrs *attrs) {
    char what[160];
    bool begins = call->resumed && !call->at;
    if (begins && !find_beginning(call, op))
        return begin_recording(call, REASON_path_changed, NULL);
    miss_describe_op(call, op, input, input_count, attrs, what, sizeof what);
    Reason why = match_departure(call, op, input, input_count, attrs);
    bool otherwise = why == REASON_path_changed || why == REASON_attribute_changed ||
                     why == REASON_tensor_changed;
    if (begins && otherwise) why = REASON_goes_on_otherwise;
    return begin_recording(call, why, what);
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
    for (Entry *left = call->entry, *e = NULL; (e = match_next_entry(call, left, e, NULL));)
        if (ends(call)) return true;
    match_first_entry(call);
    return false;
}

static Tensor *matched(Call *call) {
    call_expect_next(call);
    return call_shell(call, call->trace->op[call->at - 1].result);
}

/* The op is not the next one of the trace. */
static __attribute__((noinline, cold)) Tensor *depart(Call *call, Op op, const cb_operand *input,
                                                      int input_count, const Attrs *attrs) {
    bool cut = is_cut_here(call); /* mostly: of hundreds of lengths, each is cut here */
    if (cut ? match_by_op(call, op, input, input_count, attrs)
            : match_any(call, op, input, input_count, attrs))
        return matched(call);
    if (cut || find_ending(call, is_cut_here))
        return apply_behind(call, op, input, input_count, attrs);
    if (!record_departure(call, op, input, input_count, attrs))
        return call->failed ? NULL : apply(op, input, input_count, attrs);
    return record_next(call, op, input, input_count, attrs);
}

static __attribute__((noinline)) Tensor *apply_any(Call *call, Op op, const cb_operand *input,
                                                   int input_count, const Attrs *attrs) {
    call->next = &no_line;
    for (int i = 0; call->left && i < input_count; i++)
        if (input[i].kind == CB_OPERAND_TENSOR) call_meet(call, input[i].tensor);
    if (call->stale && !call->tracer.disabled && !segment_renew(call))
        return call->failed ? NULL : apply(op, input, input_count, attrs);
    if (call->refused) return NULL; /* memory may have run out in the middle of a recording */
    if (call->tracer.disabled || (call->exposed.count && expose_meets(call, input, input_count)))
        return expose_apply(call, op, input, input_count, attrs);
    if (call->mode != CALL_REPLAYS) return record_next(call, op, input, input_count, attrs);
    if (!match_here(call, op, input, input_count, attrs))
        return depart(call, op, input, input_count, attrs);
    return matched(call);
}

/* Most ops of a replay meet what is expected; the others begin anew. */
static Tensor *trace_apply(Tracer *tracer, Op op, const cb_operand *input, int input_count,
                           const Attrs *attrs) {
    Call *call = call_of(tracer);
    Tensor *y = call_meets_line(call, op, input, input_count, attrs);
    return y ? y : apply_any(call, op, input, input_count, attrs);
}

static Tensor *trace_assign(Tracer *tracer, Tensor *target, const cb_operand *value) {
    Call *call = call_interrupted(tracer);
    call_meet(call, target);
    if (value->kind == CB_OPERAND_TENSOR) call_meet(call, value->tensor);
    if (call->stale && !tracer->disabled && !segment_renew(call))
        return call->failed ? NULL : apply_assign(target, value);
    if (call->refused) return NULL;
    const cb_operand input[2] = {cb_operand_tensor(target), *value};
    if (tracer->disabled || (call->exposed.count && expose_meets(call, input, 2)))
        return expose_assign(call, target, value);
    if (call->mode == CALL_REPLAYS) {
        if (match_here(call, OP_assign, input, 2, NULL) ||
            match_any(call, OP_assign, input, 2, NULL)) {
            call_expect_next(call);
            return target;
        }
        if (!record_departure(call, OP_assign, input, 2, NULL))
            return call->failed ? NULL : apply_assign(target, value);
    }
    return record_assign(call, target, value);
}

bool call_replays_backward(Call *call, const cb_operand *input, bool *ends) {
    if (match_here(call, OP_backward, input, 2, NULL) ||
        match_any(call, OP_backward, input, 2, NULL))
        return true;
    *ends = *ends && find_ending(call, segment_ends_here);
    if (!*ends) record_departure(call, OP_backward, input, 2, NULL);
    return false;
}

bool call_touches(const Call *call, const Tensor *x) {
    const TraceMeeting *meeting = call->trace ? call->trace->meeting : NULL;
    for (int i = 0; i < length(meeting) && meeting[i].op < call->at; i++)
        if (tensors_overlap(call->value[meeting[i].root], x)) return true;
    return false;
}

/* A value is an event; where a pointer leaves, the tensor is recorded no more. */
static bool trace_materialize(Tracer *tracer, Tensor *x, TensorAccess access) {
    static const Reason why[] = {[ACCESS_NOW] = REASON_value_requested,
                                 [ACCESS_WRITE] = REASON_value_requested,
                                 [ACCESS_POINTER] = REASON_pointer_given,
                                 [ACCESS_CHANGE] = REASON_pointer_write};
    Call *call = call_interrupted(tracer);
    if (call->function->options.fullgraph) {
        const char *asks = thread_state.asks;
        char what[64] = "";
        if (asks) snprintf(what, sizeof what, "cb_%s", asks);
        return call_break(call, why[access], what);
    }
    call_meet(call, x);
    if (access == ACCESS_WRITE) segment_before_writes(call, x);
    bool real = call_traced(call, x) == NO_VALUE && access != ACCESS_POINTER;
    if (real && (!x->storage || !call_touches(call, x))) return true;
    if (access == ACCESS_POINTER || access == ACCESS_CHANGE) return expose(call, x, why[access]);
    bool done = call_event(call, why[access], x);
    call_meet(call, x);
    return done;
}

static bool trace_pause(Tracer *tracer) {
    Call *call = call_interrupted(tracer);
    if (call->function->options.fullgraph) return call_break(call, REASON_disabled, "");
    if (call->mode == CALL_RECORDS && !call->at)
        function_note(call->function, REASON_disabled, site_current(), "%s", "");
    return call_event(call, REASON_disabled, NULL);
}

/* ---- beginning and end of a call ------------------------------------------------------------- */

/* As calls begin. */
static const Tracer tracer_of_calls = {
    .apply = trace_apply,
    .expect = call_expects,
    .expect_two = call_expects_two,
    .assign = trace_assign,
    .expect_assign = call_expects_assign,
    .materialize = trace_materialize,
    .destroy_tensor = call_loses_tensor,
    .storage_of = call_storage_of,
    .pause = trace_pause,
    .change_ambient = call_changes_ambient,
    .requires_grad = call_requires_grad,
    .go_back = call_goes_back,
    .change_leaf = call_changes_leaf,
    .take_hook = call_takes_hook,
    .meet_code = call_meets_code,
};

/* Under fullgraph, where the function does not run again: what it asks is part of the trace. */
static void hear_questions(Tracer *tracer) {
    tracer->meet_leaf = call_meets_leaf;
    tracer->meet_layout = call_meets_layout;
    tracer->meet_module = call_meets_module;
    tracer->meet_graph = call_meets_graph;
}

bool call_start(Call *call, Function *function, Ambient now, Tensor *const *input, int input_count,
                Entry *entry) {
    call->tracer = tracer_of_calls;
    call->tracer.serial = serial_next();
    if (function->options.fullgraph) hear_questions(&call->tracer);
    call->start_ms = 0;
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
    call->next = &no_line;
    call->recording = NULL;
    call->failed = call->lost = false;
    call->failure = NULL;
    call->refused = REASON_NONE;
    call_stand_nowhere(call);
    call->resumed = false;
    call->before = NULL;
    call->left = call->due = call->reserved = NULL;
    call->read_count = call->read_room = 0;
    call->exposed = call->leaf = (Set){0};
    call->seats = NULL;
    call->left_serial = serial_next();
    if (!(entry ? call_sit(call) : call_reserve(call, input_count))) return false;
    for (int i = 0; i < input_count; i++) {
        call->value[i] = input[i];
        call->tracer.handle[i] = (uintptr_t)tensor_out(input[i]);
    }
    module_mode_forget();
    if (!entry) call_begins_recording(call);
    if (!entry) return record_from(call, NULL, 0);
    call_expect_next(call);
    return true;
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
    for (Entry *e = NULL; (e = match_next_entry(call, left, e, NULL));)
        if (ends_here(call, output, output_count, value)) return true;
    match_first_entry(call);
    return false;
}

bool call_end(Call *call, Tensor *const *output, int output_count, int *value) {
    if (call->mode == CALL_REPLAYS) {
        if (ends_here(call, output, output_count, value)) return true;
        if (other_ends_here(call, output, output_count, value)) return true;
        Reason why = match_mode_changed(call) ? REASON_mode_changed : REASON_path_changed;
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

void call_finish(Call *call) {
    int first = call->input_count;
    for (int k = 0; call->seats && k < call->entry->captured_count; k++) {
        int v = call->entry->captured[k];
        if (v != NO_VALUE && call->value[v]) call_unbind(call, v);
    }
    call_stand_up(call);
    for (int v = first; (v = values_next(&call->tracer, v, call->bound)) < call->bound; v++) {
        Tensor *x = call->value[v];
        if (call_traced(call, x) == NO_VALUE) { /* our view of one from outside */
            call_unbind(call, v);
        } else {
            call->value[v] = NULL;
            x->trace = 0;
            if (!x->storage) leaf_forget(x);
        }
    }
    for (int i = 0; i < first; i++) {
        Tensor *x = call->value[i];
        call->value[i] = NULL; /* dead, it is no input that the function frees */
        if (call_owns_input(call, i)) tensor_destroy(x);
    }
    call_drops_recording(call);
    record_free(call->recording);
    segment_drop_reserved(call);
    if (call->leaf.count) set_free(&call->leaf);
    call_drop_values(call);
    if (call->argument != call->local_argument) memory_free(call->argument);
    call->recording = NULL;
    call_stand_nowhere(call);
}
