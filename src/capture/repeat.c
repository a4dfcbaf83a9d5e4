/* Ops of a trace, recorded once more: where a run leaves the trace that it replayed, where a
 * recording ends earlier than it went, where a second graph is wanted of the same ops, and where
 * results that gradients are asked by have to be nodes of their own.
 *
 * In: a trace, and how many of its ops. Out: a recording with the same values by the same numbers.
 * Nothing of the user's runs. */
#include "capture/functional.h"

/* As it was, in another recording. */
static bool repeat_back(Recording *recording, const TraceOp *op, Call *call) {
    int count = op->back->count;
    if (RECORD_GUARD(recording)) return false;
    int *list = arena_new_array(recording->trace->arena, int, count + 1);
    for (int k = 0; k < count; k++) {
        list[k] = trace_back_value(op->back, k);
        if (list[k] < call->input_count) list[k] = input_first(call->value, list[k]);
    }
    recording->quiet = op->quiet;
    if (!record_gradients(recording, *op, *op->back, list, count)) return false;
    const Trace *trace = recording->trace;
    const TraceOp *now = &trace->op[length(trace->op) - 1];
    check(now->result == op->result &&
              trace_back_results(now->back) == trace_back_results(op->back),
          "a trace repeats with other gradients");
    return true;
}

static bool add_inputs(Call *call, Recording *recording) {
    if (RECORD_GUARD(recording)) return false;
    for (int i = 0; i < call->input_count; i++)
        functional_add(recording, VALUE_IS_INPUT, call->value[i]);
    return true;
}

static void repeat_captured(Call *call, Recording *recording, const Trace *trace, int v) {
    const char *path = trace->value[v].path;
    int again = functional_add(recording, VALUE_IS_CAPTURED, call->value[v]);
    if (path) recording->trace->value[again].path = arena_text(recording->trace->arena, path);
    recording->trace->value[again].own = trace->value[v].own;
}

/* Captured tensors that an op of a trace meets for the first time get the numbers that they had. */
static bool add_captured(Call *call, Recording *recording, const Trace *trace, const TraceOp *op) {
    if (RECORD_GUARD(recording)) return false;
    for (int v = length(recording->trace->value);
         v < length(trace->value) && trace->value[v].kind == VALUE_IS_CAPTURED; v++) {
        bool used = v < op->first_value; /* by no op: its gradient was looked at */
        for (int i = 0; i < op->input_count; i++)
            used |= op->input[i].kind == OPERAND_VALUE && op->input[i].value == v;
        for (int k = 0; op->back && k < op->back->count; k++)
            used |= trace_back_value(op->back, k) == v;
        if (used) repeat_captured(call, recording, trace, v);
    }
    return true;
}

/* Inputs that were two when the trace was recorded may be one now, which has one name. */
static void rename_inputs(const Call *call, TraceOp *op) {
    for (int i = 0; i < op->input_count; i++) {
        TraceOperand *operand = &op->input[i];
        if (operand->kind == OPERAND_VALUE && operand->value < call->input_count)
            operand->value = input_first(call->value, operand->value);
    }
}

static bool repeat(Call *call, Recording *recording, const Trace *trace, int count) {
    for (int i = 0; i < count; i++) {
        TraceOp op = trace->op[i];
        rename_inputs(call, &op);
        for (int k = 0; k < op.operand_count; k++)
            recording->trace->argument_count += operand_is_argument(&op.input[k]);
        if (!add_captured(call, recording, trace, &trace->op[i])) return false;
        site_set(op.site);
        if (op.back && !repeat_back(recording, &op, call)) return false;
        if (op.back) continue;
        bool assigns = op.op == OP_assign;
        int result = assigns ? record_write(recording, op) : record_op(recording, op);
        if (result < 0) return false;
        check(assigns || result == op.result, "a trace repeats with other values");
    }
    return true;
}

static void mark_apart(const TraceBack *back, const Trace *trace, bool *apart) {
    for (int k = 0; back && back->apart && k < back->count; k++) {
        int v = trace->value[trace_back_value(back, k)].same;
        apart[v] = trace->value[v].kind == VALUE_IS_RESULT;
    }
}

/* What the first count ops ask gradients by, and the next one (NULL: no gradients). */
static bool find_apart(Recording *recording, const Trace *trace, int count, const TraceBack *next) {
    if (RECORD_GUARD(recording)) return false;
    recording->apart = arena_new_array(recording->graph->arena, bool, length(trace->value) + 1);
    recording->apart_count = length(trace->value);
    for (int i = 0; i < count; i++) mark_apart(trace->op[i].back, trace, recording->apart);
    mark_apart(next, trace, recording->apart);
    return true;
}

/* Captured tensors that no op has used: only returned, looked at, or of an op that failed. */
static bool copy_unused(Call *call, Recording *recording, const Trace *from) {
    if (RECORD_GUARD(recording)) return false;
    for (int v = length(recording->trace->value); v < length(from->value); v++) {
        check(from->value[v].kind == VALUE_IS_CAPTURED, "a trace repeats without a result");
        repeat_captured(call, recording, from, v);
    }
    return true;
}

/* A recording of the first count ops of a trace. */
static Recording *record_prefix(Call *call, const Trace *trace, int count, const TraceBack *next) {
    Recording *recording = recording_new(call);
    Site site = site_current();
    bool done = recording && add_inputs(call, recording) &&
                (count == 0 || (find_apart(recording, trace, count, next) &&
                                repeat(call, recording, trace, count)));
    site_set(site);
    if (done && trace) recording->trace->parted = trace->parted;
    if (done) return recording;
    record_free(recording);
    return NULL;
}

bool record_apart(Call *call, const GoingBack *back, TraceBack *how) {
    Recording *recording = call->recording, *again;
    int list[CB_MAX_ARGS];
    how->wrt = list;
    if (RECORD_GUARD(recording)) return false;
    for (int k = 0; k < back->count; k++) {
        int v = call_traced(call, back->wrt[k]);
        const TraceValue *value = v == NO_VALUE ? NULL : &recording->trace->value[v];
        if (!value || value->kind != VALUE_IS_RESULT || !value->tracked) continue;
        list[how->count++] = v;
        how->apart |= functional_shares(recording, v);
    }
    if (!how->apart) return true;
    again = record_prefix(call, recording->trace, call->at, how);
    if (!again || !copy_unused(call, again, recording->trace)) {
        record_free(again);
        return false;
    }
    Trace *same = again->trace;
    again->trace = recording->trace;
    recording->trace = same;
    again->models = recording->models;
    call->recording = again;
    record_free(recording);
    return true;
}

bool record_from(Call *call, const Trace *trace, int count) {
    Recording *recording = record_prefix(call, trace, count, NULL);
    if (!recording) return false;
    call_stand_up(call);
    recording->trace->parted = count;
    call->recording = recording;
    call->trace = recording->trace;
    call->entry = NULL;
    call->mode = CALL_RECORDS;
    call->at = count;
    return true;
}

bool record_shorten(Call *call, int count) {
    Recording *recording = call->recording;
    Recording *shorter = record_prefix(call, recording->trace, count, NULL);
    if (!shorter) return false;
    shorter->models = recording->models;
    trace_say_again(shorter->trace, &recording->trace->again);
    call->recording = shorter;
    call->trace = shorter->trace;
    call->at = count;
    record_free(recording);
    return true;
}

static bool copy_results(Recording *recording, const Trace *from) {
    if (RECORD_GUARD(recording)) return false;
    Trace *to = recording->trace;
    for (int i = 0; i < length(from->output); i++) push(to->arena, to->output, from->output[i]);
    for (int i = 0; i < length(from->escaped); i++) push(to->arena, to->escaped, from->escaped[i]);
    to->goes_on = from->goes_on, to->cut = from->cut;
    return true;
}

Recording *record_again(Call *call, const Trace *trace) {
    Recording *recording = record_prefix(call, trace, length(trace->op), NULL);
    if (recording && copy_unused(call, recording, trace) && copy_results(recording, trace))
        return recording;
    record_free(recording);
    return NULL;
}
