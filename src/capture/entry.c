/* Entries: a finished recording becomes an executable, which launch.c runs in place of the ops.
 *
 * What the function returned becomes graph outputs by storage, so that aliasing is as in eager: a
 * view of an input comes back as a view of it; two views of one result share its storage. Only a
 * lone view that is smaller than its storage (the last row of a matrix) is computed by itself.
 * Invariant: an entry, its results and its lists live in its trace's arena. */
#include "capture/backend.h"
#include "capture/find.h"
#include "capture/joint.h"

#include "base/clock.h"
#include "base/option.h"
#include "base/timeline.h"
#include "eager/eager.h"
#include "graph/call.h"
#include "tensor/thread.h"
#include <string.h>

/* ---- results ------------------------------------------------------------------------------- */

/* True when v is the only result on its storage and covers a part of it. */
static bool lone_part(const Trace *trace, int v) {
    int root = trace->value[v].root;
    for (int k = 0; k < trace_result_count(trace); k++) {
        int other = trace_result(trace, k);
        if (other >= 0 && other != v && trace->value[other].root == root) return false;
    }
    int64_t shown = 1;
    for (int d = 0; d < trace->value[v].meta.rank; d++)
        if (!value_is_expanded(&trace->value[v], d)) shown *= trace->value[v].meta.size[d];
    return shown < meta_numel(&trace->value[root].meta);
}

/* What lies in memory of a lone part. */
static Node *part_node(Recording *recording, int v) {
    Node *node = functional_node(recording, v);
    for (int d = 0; d < node->rank; d++)
        if (value_is_expanded(&recording->trace->value[v], d))
            node = call_slice(recording->graph, node, d, 0, 1);
    return node;
}

/* The graph output that computes value v, a root unless it is a lone part. */
static int output_of(Recording *recording, int **computed, int v, bool part) {
    Graph *graph = recording->graph;
    for (int i = 0; i < length(*computed); i++)
        if ((*computed)[i] == v) return i;
    push(recording->trace->arena, *computed, v);
    push(graph->arena, graph->output,
         part ? part_node(recording, v) : functional_node(recording, v));
    return length(*computed) - 1;
}

static void choose_results(Entry *entry, Recording *recording) {
    const Trace *trace = recording->trace;
    int count = trace_result_count(trace), *computed = NULL;
    entry->result = arena_new_array(trace->arena, EntryResult, count + 1);
    for (int k = 0; k < count; k++) {
        EntryResult *result = &entry->result[k];
        int v = trace_result(trace, k);
        *result = (EntryResult){RESULT_NULL, v, -1};
        if (v < 0) continue;
        const TraceValue *value = &trace->value[v];
        if (trace->value[value->root].kind != VALUE_IS_RESULT) {
            result->source = value->kind == VALUE_IS_RESULT ? RESULT_VIEW : RESULT_REAL;
            continue;
        }
        bool part = !trace->goes_on && lone_part(trace, v);
        result->source = part ? RESULT_VALUE : RESULT_GRAPH;
        result->output = output_of(recording, &computed, part ? v : value->root, part);
    }
    entry->graph_output_count = length(computed);
}

static void choose_mutations(Entry *entry, Recording *recording) {
    const Trace *trace = recording->trace;
    Graph *graph = recording->graph;
    for (int v = 0; v < length(trace->value); v++) {
        FunctionalValue *functional = &recording->value[v];
        if (functional->input < 0 || !functional->version) continue;
        push(trace->arena, entry->mutated, v);
        if (functional->node == graph->input[functional->input]) continue;
        push(graph->arena, graph->mutation, ((Mutation){functional->input, functional->node}));
    }
    entry->mutated_count = length(entry->mutated);
}

/* Somebody writes to value v's storage, or is given it. */
static bool shows(const Entry *entry, int v) {
    bool seen = false;
    for (int i = 0; i < entry->mutated_count; i++) seen |= entry->mutated[i] == v;
    for (int k = 0; k < trace_result_count(entry->trace); k++) {
        int result = trace_result(entry->trace, k);
        seen |= result >= 0 && entry->trace->value[result].root == v;
    }
    return seen;
}

static void find_shown(Entry *entry) {
    for (int k = 0; k < entry->captured_count; k++) {
        int v = entry->captured[k];
        entry->shown[k] = v != NO_VALUE && entry->trace->value[v].own && shows(entry, v);
    }
}

/* ---- making -------------------------------------------------------------------------------- */

Entry *entry_prepare(const Call *call, Recording *recording) {
    if (arena_guard(recording->trace->arena) || arena_guard(recording->graph->arena)) return NULL;
    Trace *trace = recording->trace;
    Entry *entry = arena_new_array(trace->arena, Entry, 1);
    entry->function = call->function;
    entry->number = call->number;
    entry->trace = trace;
    objects_forget_dead(trace);
    trace_make_lines(trace);
    trace_make_likeness(trace);
    entry->graph = recording->graph;
    entry->resumes = call->resumed;
    entry->input_count = call->input_count;
    entry->ambient = recording->graph->ambient;
    entry->guard = arena_new_array(trace->arena, Guard, call->input_count + 1);
    entry->first = arena_new_array(trace->arena, int, call->input_count + 1);
    for (int i = 0; i < call->input_count; i++) {
        guard_make(&entry->guard[i], call->value[i], call->grad);
        entry->first[i] = input_first(call->value, i);
    }
    for (int k = 0; k < length(recording->captured); k++)
        push(trace->arena, entry->captured, recording->captured[k]);
    entry->captured_count = length(entry->captured);
    choose_results(entry, recording);
    choose_mutations(entry, recording);
    entry->copied = arena_new_array(trace->arena, bool, entry->graph_output_count + 1);
    entry->told = arena_new_array(trace->arena, atomic_bool,
                                  entry->graph_output_count + entry->mutated_count + 1);
    entry->held = arena_new_array(trace->arena, Tensor *, entry->captured_count + 1);
    entry->shown = arena_new_array(trace->arena, bool, entry->captured_count + 1);
    find_shown(entry);
    leaves_find_joined(entry, call);
    if (call->function->options.fullgraph) entry_note_handles(entry, call->input);
    return entry;
}

bool entry_hold_own(Entry *entry, int k, Tensor *x) {
    if (!entry->held[k]) entry->held[k] = cb_keep(eager_clone(x));
    return entry->held[k];
}

/* fullgraph bakes captured tensors in, so it holds on to them: but to the gradients of leaves,
 * which it finds there. */
static bool hold_captured(Entry *entry, const Call *call) {
    if (!call->function->options.fullgraph) return true;
    for (int i = 0; i < entry->captured_count; i++) {
        int v = entry->captured[i];
        if (trace_is_gradient(entry->trace, v)) continue;
        bool own = entry->trace->value[v].own && entry_hold_own(entry, i, call->value[v]);
        if (!own) entry->held[i] = cb_keep(tensor_double(call->value[v]));
        if (!entry->held[i]) return false;
    }
    return true;
}

/* Where an output has memory of its own, any of its views gets that, so that one which begins with
 * it stands for the output. */
static void choose_shells(Entry *entry) {
    entry->shell = arena_new_array(entry->trace->arena, int, entry->graph_output_count + 1);
    for (int k = 0; k < entry->graph_output_count; k++) entry->shell[k] = NO_VALUE;
    for (int i = 0; i < trace_result_count(entry->trace); i++) {
        const EntryResult *result = &entry->result[i];
        if (result->source != RESULT_GRAPH) continue;
        const TraceValue *value = &entry->trace->value[result->value];
        if (!value->offset && !value->shift) entry->shell[result->output] = result->value;
    }
}

/* A backend's outputs have storages of their own. */
static void find_copied(Entry *entry) {
    const Plan *plan = executable_plan(entry->executable);
    for (int k = 0; k < entry->graph_output_count; k++) {
        entry->copied[k] = plan->output[k].alias_input >= 0;
        for (int i = 0; i < k; i++)
            if (plan->output[i].value == plan->output[k].value) entry->copied[k] = true;
    }
}

const int64_t *const *entry_strides(Recording *recording, const Entry *entry) {
    Arena *arena = recording->graph->arena;
    if (arena_guard(arena)) return NULL;
    int count = entry->input_count + entry->captured_count;
    const int64_t **stride = arena_new_array(arena, const int64_t *, count + 1);
    for (int k = 0; k < count; k++) {
        int v = k < entry->input_count ? k : entry->captured[k - entry->input_count];
        const TraceValue *value = v == NO_VALUE ? NULL : &entry->trace->value[v];
        stride[k] = !value || value->contiguous ? NULL : value->stride;
    }
    return (const int64_t *const *)stride;
}

/* What of the call's tensors the code may rely on, and what it may not. False: no memory. */
static bool choose_assumed(Entry *entry, const Call *call, CompileOptions *options) {
    if (arena_guard(entry->trace->arena)) return false;
    options->sizes = sizes_choose(entry, call->value);
    return frozen_choose(entry, call, options);
}

CompileOptions entry_compile_options(const FunctionOptions *options) {
    bool tunes = options->mode == MODE_MAX_AUTOTUNE || options->mode == MODE_MAX_AUTOTUNE_NO_GRAPHS;
    return (CompileOptions){.optimize = true,
                            .generate = options->backend != BACKEND_VM,
                            .later = options->async == CODE_LATER,
                            .choose = true,
                            .tune = tunes,
                            .report = true,
                            .fuse = options->fuse == FUSE_ON && !option_lists(OPTION_skip, "fuse")};
}

/* What is saved for gradients is an output of its own. */
static bool add_saved(Entry *entry, const Backward *backward) {
    if (arena_guard(entry->trace->arena)) return false;
    entry->graph_output_count += backward->saved;
    entry->copied = arena_new_array(entry->trace->arena, bool, entry->graph_output_count + 1);
    return true;
}

static bool take_backward(Entry *entry, Joint *joint, CompileOptions how) {
    entry->backward = backward_new(entry, joint, how);
    return entry->backward && add_saved(entry, entry->backward);
}

int entry_results(const Entry *entry) {
    return entry->graph_output_count - (entry->backward ? entry->backward->saved : 0);
}

static bool compile_own(Entry *entry, Call *call) {
    Recording *recording = call->recording;
    const int64_t *const *stride = entry_strides(recording, entry);
    if (!stride) return false;
    CompileOptions how = entry_compile_options(&call->function->options);
    Graph *graph = recording->graph;
    Joint joint = recording->joint ? *recording->joint : (Joint){.root = NULL};
    if (!choose_assumed(entry, call, &how)) return false;
    if (recording->joint) how.joint = &joint.graph, how.backward = &joint.backward;
    recording->graph = NULL;
    entry->executable = compile_graph(graph, stride, how);
    if (entry->executable) entry->graph = executable_plan(entry->executable)->graph;
    if (entry->executable && how.joint) take_backward(entry, &joint, how);
    if (joint.backward.graph) arena_free(joint.backward.graph->arena);
    if (!entry->executable || (how.joint && !entry->backward)) return false;
    find_copied(entry);
    choose_shells(entry);
    return true;
}

static bool compile(Entry *entry, Call *call) {
    double start = clock_ms();
    entry->start_ms = call->start_ms;
    entry->trace_ms = call->end_ms - call->start_ms;
    bool takes = backend_of(&call->function->options) && backend_take(entry, call);
    if (!takes && !compile_own(entry, call)) return false;
    entry->compile_ms = clock_ms() - start;
    char stage[80];
    const char *name = call->function->name;
    snprintf(stage, sizeof stage, "recording%s%s", *name ? " " : "", name);
    timeline_add("capture", stage, (int64_t)(call->start_ms * 1e6), (int64_t)(call->end_ms * 1e6));
    if (option_int(OPTION_check) && !check_build(entry, call)) return false;
    entry_times_begin(entry);
    return true;
}

bool entry_same(const Entry *a, const Entry *b) {
    bool same = a->resumes == b->resumes && a->input_count == b->input_count &&
                ambient_equal(a->ambient, b->ambient) && trace_same(a->trace, b->trace) &&
                objects_same(a->trace, b->trace);
    for (int i = 0; same && i < b->input_count; i++) /* what their guards say is in the traces */
        same = a->first[i] == b->first[i] && (!a->joined || a->joined[i] == b->joined[i]) &&
               (!a->handle || a->handle[i] == b->handle[i]);
    return same;
}

static Entry *find_same(const Call *call, const Entry *made) {
    for (Entry *e = atomic_load(&call->function->first); e; e = atomic_load(&e->next))
        if (entry_same(e, made) && frozen_all_hold(e, call)) return e;
    return NULL;
}

Entry *entry_widest(Entry *entry) {
    for (Entry *wider = entry; wider; wider = atomic_load(&entry->wider)) entry = wider;
    return entry;
}

static bool has_all(const int *list, const int *other) {
    bool all = true;
    for (int i = 0; i < length(other) && all; i++) {
        all = false;
        for (int k = 0; k < length(list) && !all; k++) all = list[k] == other[i];
    }
    return all;
}

/* Whether what crosses the end of the other one does so here, too. Of two that were recorded at
 * once the one that lets less cross may come later. */
static bool crosses_all(const Trace *trace, const Trace *other) {
    return !other->goes_on ||
           (has_all(trace->escaped, other->escaped) && has_all(trace->leads, other->leads));
}

/* True when every call that `other` takes is one for the entry, too. */
static bool covers(const Entry *entry, const Entry *other) {
    bool same = entry->resumes == other->resumes && entry->input_count == other->input_count &&
                ambient_equal(entry->ambient, other->ambient);
    for (int i = 0; same && i < entry->input_count; i++) same = entry->first[i] == other->first[i];
    return same && trace_covers(entry->trace, other->trace) &&
           crosses_all(entry->trace, other->trace) && frozen_alike(entry, other);
}

/* What it covers needs no place of its own any more. */
static void replace_covered(const Function *function, Entry *entry) {
    for (Entry *e = atomic_load(&function->first); entry->trace->argument_count && e;
         e = atomic_load(&e->next))
        if (e != entry && !atomic_load(&e->wider) && covers(entry, e)) entry_set_wider(e, entry);
}

/* Behind those whose recordings began before: of the segments of a call the last one is compiled
 * first, since it runs. */
static void insert(Function *function, Entry *entry) {
    _Atomic(Entry *) *at = &function->first, *place = at;
    for (Entry *e = atomic_load(at); e; at = &e->next, e = atomic_load(at))
        if (e->start_ms <= entry->start_ms) place = &e->next;
    atomic_store(&entry->next, atomic_load(place));
    atomic_store(place, entry);
}

static void append(Function *function, Entry *entry) {
    if (entry->trace->again.text) atomic_fetch_add(&function->recompiles, 1);
    entry->made = atomic_load(&function->calls); /* before it is in the list */
    atomic_store(&entry->used, entry->made);
    for (int i = 0; i < entry->input_count; i++)
        if (entry->first[i] != i) atomic_store(&function->joins, true);
    insert(function, entry);
    find_add(function, entry);
    replace_covered(function, entry);
    atomic_fetch_add(&function->entry_count, 1);
    function_retire(function, entry);
}

/* An entry that another thread has made meanwhile, or NULL: this one makes it. A compiler runs too
 * long for a lock: fork() would wait for it. What was being made when this process was forked is
 * made again. */
static Entry *begin_making(const Call *call, const Entry *entry) {
    Function *function = call->function;
    int lock = function_lock(function);
    lock_take(lock);
    while (function->making == process_number()) lock_wait(lock);
    Entry *same = find_same(call, entry);
    if (!same) function->making = process_number();
    if (!same) atomic_store(&function->maker, &thread_state);
    lock_give(lock);
    return same;
}

static void end_making(Function *function, Entry *made) {
    int lock = function_lock(function);
    lock_take(lock);
    if (made) append(function, made);
    function->making = 0;
    atomic_store(&function->maker, NULL);
    lock_wake(lock);
    lock_give(lock);
}

/* Where it is counted: several threads may have missed the same one. */
static void note_again(const Entry *entry) {
    const TraceAgain *again = &entry->trace->again;
    if (!again->text || again->reason == REASON_NONE) return;
    bool more = strcmp(again->text, reason_info(again->reason)->text) != 0;
    function_note(entry->function, again->reason, again->site, "%s", more ? again->text : "");
}

Entry *entry_make(Call *call) {
    Function *function = call->function;
    Recording *recording = call->recording;
    Entry *entry = entry_prepare(call, recording);
    if (!entry) return NULL;
    Entry *same = begin_making(call, entry);
    bool made = !same && hold_captured(entry, call) && compile(entry, call);
    if (made) arena_seal(entry->trace->arena);
    if (made) entry_compile_later(entry); /* who finds the entry finds what is to be waited for */
    if (!same) end_making(function, made ? entry : NULL);
    if (made) note_again(entry);
    if (same) return same;
    if (!made) {
        entry->trace = NULL; /* the recording still needs it */
        entry_free(entry);
        return NULL;
    }
    recording->trace = NULL; /* the entry owns it now */
    if (strchr(option_text(OPTION_dump), 'c')) entry_dump(entry);
    return entry;
}

void entry_free(Entry *entry) {
    entry_drop_job(entry);
    executable_free(entry->executable);
    backend_free(entry->code);
    executable_free(entry->oracle);
    backward_release(entry->backward);
    for (int i = 0; i < entry->captured_count; i++) tensor_destroy(entry->held[i]);
    trace_release(entry->trace);
}
