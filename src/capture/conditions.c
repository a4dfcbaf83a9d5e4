/* What a call finds around its inputs, and an entry holds for alone: the ambient state
 * (tensor/ambient.h), and under fullgraph, where the function does not run again, the modules that
 * it ran, or asked for their mode or settings, as they are.
 *
 *     an entry compiled under "medium", a call under "highest"
 *         ->  input_changed, "float32 matmul precision is not medium, for entry 0 it was medium" */
#include "capture/functional.h"

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
    uint64_t hash = (uint64_t)module->tensor_count;
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

Ambient function_ambient(const Function *function) {
    static const cb_dtype named[] = {
        [CAST_BF16] = CB_BF16, [CAST_F16] = CB_F16, [CAST_OFF] = CB_SAME};
    Ambient now = ambient_now();
    CastMode autocast = function->options.autocast;
    if (autocast != CAST_AS_THREAD) now.autocast = named[autocast];
    return now;
}

/* ---- modules --------------------------------------------------------------------------------- */

static bool is_known(const Trace *trace, const cb_module *module) {
    for (int i = 0; i < length(trace->module); i++) {
        const cb_module *known = trace->module[i].module;
        if (!tomb_is_dead(&known->tomb) && module_contains(known, module)) return true;
    }
    return false;
}

/* May escape through the trace's arena. */
static void add_module(Trace *trace, const cb_module *module) {
    if (is_known(trace, module)) return;
    TraceModule met = {(cb_module *)(uintptr_t)module, modes_of(module), tensors_of(module)};
    push(trace->arena, trace->module, met);
    tomb_hold(&met.module->tomb);
}

void modules_forget_dead(Trace *trace) {
    for (int i = 0; i < length(trace->module); i++) {
        TraceModule *met = &trace->module[i];
        if (!met->module || !tomb_is_dead(&met->module->tomb)) continue;
        tomb_drop(&met->module->tomb);
        met->module = NULL;
    }
}

bool modules_same(const Trace *a, const Trace *b) {
    bool same = length(a->module) == length(b->module);
    for (int i = 0; same && i < length(a->module); i++)
        same = a->module[i].module == b->module[i].module &&
               a->module[i].modes == b->module[i].modes &&
               a->module[i].tensors == b->module[i].tensors;
    return same;
}

/* The first module that is another one than it was; modes: in which of its parts train. */
static const TraceModule *find_changed(const Trace *trace, bool *modes) {
    for (int i = 0; i < length(trace->module); i++) {
        const TraceModule *met = &trace->module[i];
        if (!met->module) continue;
        bool dead = tomb_is_dead(&met->module->tomb);
        *modes = !dead && met->modes != modes_of(met->module);
        if (dead || *modes || met->tensors != tensors_of(met->module)) return met;
    }
    return NULL;
}

bool modules_hold(const Trace *trace) {
    bool modes;
    return !length(trace->module) || !find_changed(trace, &modes);
}

Reason conditions_differ(const Entry *entry, Ambient now, char *out, size_t bytes) {
    bool modes;
    if (!ambient_equal(entry->ambient, now)) {
        char whose[32];
        snprintf(whose, sizeof whose, "entry %d", entry->number);
        ambient_print_change(now, entry->ambient, whose, out, bytes);
        return REASON_input_changed;
    }
    const TraceModule *changed = find_changed(entry->trace, &modes);
    if (!changed) return REASON_NONE;
    if (modes)
        snprintf(out, bytes, "%s: entry %d was compiled before", changed->module->type,
                 entry->number);
    else
        snprintf(out, bytes, "a module holds other parameters or settings");
    return modes ? REASON_mode_changed : REASON_input_changed;
}

/* ---- during a call --------------------------------------------------------------------------- */

/* Another seed is for draws behind it: where there were none before, for all of the segment. */
static bool seed_changes(Call *call) {
    if (call->mode == CALL_IS_EAGER || !trace_draws(call->trace, call->at, call->argument))
        return true;
    return call_event(call, REASON_ambient_changed);
}

/* Ops behind it are of another segment. */
bool call_changes_ambient(Tracer *tracer, const char *what, AmbientChange change) {
    Call *call = call_of(tracer);
    if (call->function->options.fullgraph) return call_break(call, REASON_ambient_changed, what);
    if (change == CHANGES_DRAWS) return seed_changes(call);
    if (call->mode == CALL_RECORDS && !call->at)
        function_note(call->function, REASON_ambient_changed, site_current(), "%s", what);
    call->stale = true;
    bool done = call_event(call, REASON_ambient_changed);
    if (call->mode != CALL_IS_EAGER) segment_compute_all(call);
    return done;
}

void call_meets_module(Tracer *tracer, const cb_module *module) {
    Call *call = call_of(tracer);
    if (call->mode != CALL_RECORDS || call->refused) return;
    if (arena_guard(call->trace->arena))
        call_break(call, REASON_out_of_memory, "while recording");
    else
        add_module(call->recording->trace, module);
}
