/* What a call finds around its inputs, and an entry holds for alone: the ambient state
 * (tensor/ambient.h), and under fullgraph, where the function does not run again, the modules that
 * it ran, or asked of something, and the FX graphs that it ran, as they are; and what it was told
 * of how its tensors lie.
 *
 *     an entry compiled under "medium", a call under "highest"
 *         ->  input_changed, "float32 matmul precision is not medium, for entry 0 it was medium" */
#include "capture/functional.h"

#include "eager/tape.h"
#include "fx/fx.h"
#include "nn/module.h"

static uint64_t modes_of(const cb_module *module) {
    uint64_t hash = module->training;
    for (int i = 0; i < module->child_count; i++)
        hash = hash_mix(hash, modes_of(module->child[i].module));
    return hash;
}

/* A handle names one tensor, with its sizes, strides and place, and no other one after it; of those
 * that decide what is recorded, the elements too, whose every write raises the version. */
static uint64_t tensors_of(const cb_module *module) {
    uint64_t hash = hash_mix((uint64_t)module->tensor_count, module->leaf);
    for (int i = 0; i < module->tensor_count; i++) {
        const ModuleTensor *own = &module->tensor[i];
        hash = hash_mix(hash, (uintptr_t)tensor_out(own->tensor));
        if (own->decides && own->tensor && own->tensor->storage)
            hash = hash_mix(hash, atomic_load(&own->tensor->storage->version));
    }
    for (int i = 0; i < module->child_count; i++)
        hash = hash_mix(hash, tensors_of(module->child[i].module));
    return hash;
}

cb_dtype function_autocast(const Function *function) {
    static const cb_dtype named[] = {
        [CAST_BF16] = CB_BF16, [CAST_F16] = CB_F16, [CAST_OFF] = CB_SAME};
    CastMode autocast = function->options.autocast;
    return autocast == CAST_AS_THREAD ? cb_autocast_dtype() : named[autocast];
}

Ambient function_ambient(const Function *function) {
    Ambient now = ambient_of_op();
    now.autocast = function_autocast(function);
    return now;
}

/* ---- modules and FX graphs ------------------------------------------------------------------- */

static bool knows_graph(const Trace *trace, const cb_graph *graph) {
    for (int i = 0; i < length(trace->object); i++)
        if (trace->object[i].graph == graph) return true;
    return false;
}

static bool knows_module(const Trace *trace, const cb_module *module) {
    for (int i = 0; i < length(trace->object); i++) {
        const TraceObject *known = &trace->object[i];
        if (known->is_graph || tomb_is_dead(known->tomb)) continue;
        if (module_contains(known->module, module)) return true;
    }
    return false;
}

static TraceObject object_of(const cb_module *module) {
    return (TraceObject){.module = module, .modes = modes_of(module), .parts = tensors_of(module)};
}

static TraceObject graph_object(const cb_graph *graph) {
    return (TraceObject){.graph = graph, .is_graph = true, .parts = graph->edits};
}

static void meet_object(Tracer *tracer, TraceObject met) {
    Call *call = call_interrupted(tracer);
    if (call->refused) return;
    Trace *trace = call->recording->trace;
    if (arena_guard(trace->arena)) {
        call_break(call, REASON_out_of_memory, "while recording");
        return;
    }
    push(trace->arena, trace->object, met);
    tomb_hold(met.tomb);
}

void objects_forget_dead(Trace *trace) {
    for (int i = 0; i < length(trace->object); i++) {
        TraceObject *met = &trace->object[i];
        if (!met->tomb || !tomb_is_dead(met->tomb)) continue;
        tomb_drop(met->tomb);
        met->tomb = NULL;
    }
}

bool objects_same(const Trace *a, const Trace *b) {
    bool same = length(a->object) == length(b->object);
    for (int i = 0; same && i < length(a->object); i++)
        same = a->object[i].tomb == b->object[i].tomb && a->object[i].modes == b->object[i].modes &&
               a->object[i].parts == b->object[i].parts;
    return same;
}

/* The first one that is another than it was; modes: only in which parts of the module train. */
static const TraceObject *find_changed(const Trace *trace, bool *modes) {
    for (int i = 0; i < length(trace->object); i++) {
        const TraceObject *met = &trace->object[i];
        if (!met->tomb) continue;
        *modes = false;
        if (tomb_is_dead(met->tomb)) return met;
        TraceObject now = met->is_graph ? graph_object(met->graph) : object_of(met->module);
        *modes = met->parts == now.parts;
        if (!*modes || met->modes != now.modes) return met;
    }
    return NULL;
}

bool objects_hold(const Trace *trace) {
    bool modes;
    return !length(trace->object) || !find_changed(trace, &modes);
}

Reason conditions_differ(const Entry *entry, Ambient now, char *out, size_t bytes) {
    bool modes;
    if (!ambient_equal(entry->ambient, now)) {
        char whose[32];
        snprintf(whose, sizeof whose, "entry %d", entry->number);
        ambient_print_change(now, entry->ambient, whose, out, bytes);
        return REASON_begins_otherwise;
    }
    const TraceObject *changed = find_changed(entry->trace, &modes);
    if (!changed) return REASON_NONE;
    if (modes)
        snprintf(out, bytes, "%s: entry %d was compiled before", changed->module->type,
                 entry->number);
    else
        snprintf(out, bytes,
                 changed->is_graph ? "the FX graph was edited"
                                   : "a module holds other parameters or settings");
    return modes ? REASON_mode_changed : REASON_parts_changed;
}

/* ---- answers: how tensors lie ---------------------------------------------------------------- */

/* An input, what the function would find, or the gradient that a leaf of both has; NULL: none. */
static const Tensor *find_now(const Entry *entry, Tensor *const *input, int v) {
    const TraceLeaf *leaf = entry->trace->leaf;
    for (int i = 0; i < length(leaf); i++) {
        if (leaf[i].before != v) continue;
        Tensor **gradient = tape_gradient(entry_real(entry, input, leaf[i].value));
        return gradient ? *gradient : NULL;
    }
    return entry_real(entry, input, v);
}

/* Guards take other strides of one element, and tensors that overlap: the function may not. */
static bool is_answer_now(const Entry *entry, Tensor *const *input, const TraceAnswer *told) {
    const Tensor *x = find_now(entry, input, told->value), *y = x;
    if (told->other != NO_VALUE) y = find_now(entry, input, told->other);
    if (!x || !y) return false;
    int64_t now = told->other == NO_VALUE ? x->stride[told->dim] : x->storage == y->storage;
    return now == told->answer;
}

static const TraceAnswer *find_other_answer(const Entry *entry, Tensor *const *input) {
    for (int i = 0; i < length(entry->trace->answer); i++) {
        const TraceAnswer *told = &entry->trace->answer[i];
        if (!is_answer_now(entry, input, told)) return told;
    }
    return NULL;
}

bool answers_hold(const Entry *entry, Tensor *const *input) {
    return !find_other_answer(entry, input);
}

void answers_describe(const Entry *entry, Tensor *const *input, char *out, size_t bytes) {
    const TraceAnswer *told = find_other_answer(entry, input);
    if (!told) return;
    if (told->other == NO_VALUE)
        snprintf(out, bytes, "%%%d has another stride along dim %d, which entry %d asked for",
                 told->value, (int)told->dim, entry->number);
    else
        snprintf(out, bytes, "%%%d and %%%d %s: not in entry %d, which asked for it", told->value,
                 told->other, told->answer ? "share no storage" : "share a storage", entry->number);
}

/* ---- during a call --------------------------------------------------------------------------- */

/* Another seed is for draws behind it: where there were none before, for all of the segment. */
static bool seed_changes(Call *call) {
    if (call->mode == CALL_IS_EAGER || !trace_draws(call->trace, call->at, call->argument))
        return true;
    return call_event(call, REASON_ambient_changed, NULL);
}

/* Ops behind it are of another segment. */
bool call_changes_ambient(Tracer *tracer, const char *what, AmbientChange change) {
    Call *call = call_interrupted(tracer);
    if (call->function->options.fullgraph) return call_break(call, REASON_ambient_changed, what);
    if (change == CHANGES_DRAWS) return seed_changes(call);
    if (call->mode == CALL_RECORDS && !call->at)
        function_note(call->function, REASON_ambient_changed, site_current(), "%s", what);
    call->stale = true;
    bool done = call_event(call, REASON_ambient_changed, NULL);
    if (call->mode != CALL_IS_EAGER) segment_compute_all(call);
    return done;
}

void call_meets_module(Tracer *tracer, const cb_module *module) {
    const Call *call = call_of(tracer);
    if (call->mode == CALL_RECORDS && !knows_module(call->recording->trace, module))
        meet_object(tracer, object_of(module));
}

void call_meets_graph(Tracer *tracer, const cb_graph *graph) {
    const Call *call = call_of(tracer);
    if (call->mode == CALL_RECORDS && !knows_graph(call->recording->trace, graph))
        meet_object(tracer, graph_object(graph));
}

static int value_asked_of(Call *call, Tensor *x) {
    int v = record_value(call, x);
    if (v < 0) call->failed = true;
    return v < 0 ? NO_VALUE : v;
}

static void note_answer(Call *call, TraceAnswer told) {
    Trace *trace = call->recording->trace;
    for (int i = 0; i < length(trace->answer); i++)
        if (!memcmp(&trace->answer[i], &told, sizeof told)) return;
    if (arena_guard(trace->arena))
        call->failed = true;
    else
        push(trace->arena, trace->answer, told);
}

/* Results lie as the graph says, with the strides that they have in the trace. */
void call_meets_layout(Tracer *tracer, Tensor *x, Tensor *y) {
    Call *call = call_interrupted(tracer);
    if (call->mode != CALL_RECORDS || call->refused) return;
    int v = value_asked_of(call, x), other = y ? value_asked_of(call, y) : v;
    if (v == NO_VALUE || other == NO_VALUE) return;
    const TraceValue *value = call->trace->value;
    if (!y && value[v].kind == VALUE_IS_RESULT) return;
    v = value[v].root, other = value[other].root;
    const Tensor *own = call->value[v];
    if (v != other && value[v].kind != VALUE_IS_RESULT && value[other].kind != VALUE_IS_RESULT)
        note_answer(call, (TraceAnswer){v, other, 0, own->storage == call->value[other]->storage});
    for (int i = 0; !y && i < own->rank; i++)
        note_answer(call, (TraceAnswer){v, NO_VALUE, i, own->stride[i]});
}
