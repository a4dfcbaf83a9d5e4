/* Entries: a finished recording becomes an executable, which runs in place of the function's ops.
 *
 * What the function returned becomes graph outputs by storage, so that aliasing is as in eager: a view of
 * an input comes back as a view of it; two views of one result share its storage. Only a lone view that is
 * smaller than its storage (the last row of a matrix) is computed by itself.
 * Invariant: an entry, its results and its lists live in its trace's arena. */
#include "capture/functional.h"

#include "base/memory.h"
#include "base/option.h"
#include <string.h>

enum { LOCAL_TENSORS = 128 };

/* ---- results ------------------------------------------------------------------------------- */

static int result_value(const Trace *trace, int k) {
    int outputs = length(trace->output);
    return k < outputs ? trace->output[k] : trace->escaped[k - outputs];
}

static int result_count(const Trace *trace) {
    return length(trace->output) + length(trace->escaped);
}

/* True when v is the only result on its storage and covers a part of it. */
static bool lone_part(const Trace *trace, int v) {
    int root = trace->value[v].root;
    for (int k = 0; k < result_count(trace); k++) {
        int other = result_value(trace, k);
        if (other >= 0 && other != v && trace->value[other].root == root) return false;
    }
    return meta_numel(&trace->value[v].meta) < meta_numel(&trace->value[root].meta);
}

/* The graph output that computes value v, a root unless it is a lone part. */
static int output_of(Recording *recording, int **computed, int v) {
    Graph *graph = recording->graph;
    for (int i = 0; i < length(*computed); i++)
        if ((*computed)[i] == v) return i;
    push(recording->trace->arena, *computed, v);
    push(graph->arena, graph->output, functional_node(recording, v));
    return length(*computed) - 1;
}

static void choose_results(Entry *entry, Recording *recording) {
    const Trace *trace = recording->trace;
    int count = result_count(trace), *computed = NULL;
    entry->result = arena_new_array(trace->arena, Result, count + 1);
    for (int k = 0; k < count; k++) {
        Result *result = &entry->result[k];
        int v = result_value(trace, k);
        *result = (Result){RESULT_NULL, v, -1};
        if (v < 0) continue;
        const TraceValue *value = &trace->value[v];
        if (trace->value[value->root].kind != VALUE_IS_RESULT) {
            result->source = value->kind == VALUE_IS_RESULT ? RESULT_VIEW : RESULT_REAL;
            continue;
        }
        bool part = lone_part(trace, v);
        result->source = part ? RESULT_VALUE : RESULT_GRAPH;
        result->output = output_of(recording, &computed, part ? v : value->root);
    }
    entry->graph_output_count = length(computed);
}

static void choose_mutations(Entry *entry, Recording *recording) {
    const Trace *trace = recording->trace;
    Graph *graph = recording->graph;
    for (int v = 0; v < length(trace->value); v++) {
        FunctionalValue *functional = &recording->value[v];
        if (functional->input < 0 || !functional_written(recording, v)) continue;
        push(trace->arena, entry->mutated, v);
        if (functional->node == graph->input[functional->input]) continue;
        push(graph->arena, graph->mutation, ((Mutation){functional->input, functional->node}));
    }
    entry->mutated_count = length(entry->mutated);
}

/* ---- making -------------------------------------------------------------------------------- */

static Entry *prepare(const Call *call, Recording *recording) {
    if (arena_guard(recording->trace->arena) || arena_guard(recording->graph->arena)) return NULL;
    Trace *trace = recording->trace;
    Entry *entry = arena_new_array(trace->arena, Entry, 1);
    entry->trace = trace;
    entry->graph = recording->graph;
    entry->input_count = call->input_count;
    entry->guard = arena_new_array(trace->arena, Guard, call->input_count + 1);
    for (int i = 0; i < call->input_count; i++) guard_make(&entry->guard[i], call->input[i]);
    for (int k = 0; k < length(recording->captured); k++)
        push(trace->arena, entry->captured, recording->captured[k]);
    entry->captured_count = length(entry->captured);
    choose_results(entry, recording);
    choose_mutations(entry, recording);
    entry->copied = arena_new_array(trace->arena, bool, entry->graph_output_count + 1);
    entry->held = arena_new_array(trace->arena, Tensor *, entry->captured_count + 1);
    return entry;
}

/* fullgraph bakes captured tensors in, so it holds on to them. */
static bool hold_captured(Entry *entry, const Call *call) {
    if (!call->function->options.fullgraph) return true;
    for (int i = 0; i < entry->captured_count; i++) {
        Tensor *x = call->value[entry->captured[i]];
        Meta meta = tensor_meta(x);
        entry->held[i] = cb_keep(tensor_view_of(x, &meta, x->stride, x->offset));
        if (!entry->held[i]) return false;
    }
    return true;
}

static void find_copied(Entry *entry) {
    const Plan *plan = executable_plan(entry->executable);
    for (int k = 0; k < entry->graph_output_count; k++) {
        entry->copied[k] = plan->output[k].alias_input >= 0;
        for (int i = 0; i < k; i++)
            if (plan->output[i].value == plan->output[k].value) entry->copied[k] = true;
    }
}

static const int64_t **input_strides(Recording *recording, const Entry *entry) {
    Arena *arena = recording->graph->arena;
    if (arena_guard(arena)) return NULL;
    int count = entry->input_count + entry->captured_count;
    const int64_t **stride = arena_new_array(arena, const int64_t *, count + 1);
    for (int k = 0; k < count; k++) {
        int v = k < entry->input_count ? k : entry->captured[k - entry->input_count];
        const TraceValue *value = &entry->trace->value[v];
        stride[k] = value->contiguous ? NULL : value->stride;
    }
    return stride;
}

static bool compile(Entry *entry, Call *call) {
    const FunctionOptions *options = &call->function->options;
    Recording *recording = call->recording;
    const int64_t **stride = input_strides(recording, entry);
    if (!stride) return false;
    Graph *graph = recording->graph;
    recording->graph = NULL;
    CompileOptions how = {.generate = options->backend == 0,
                          .fuse = options->fuse == 0 && !option_lists(OPTION_skip, "fuse")};
    double start = now_ms();
    entry->trace_ms = start - call->start_ms;
    entry->executable = compile_graph(graph, (const int64_t *const *)stride, how);
    entry->compile_ms = now_ms() - start;
    if (!entry->executable) return false;
    find_copied(entry);
    return true;
}

static Entry *find_same(const Function *function, const Entry *made) {
    for (Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next)) {
        bool same = e->input_count == made->input_count && trace_same(e->trace, made->trace);
        for (int i = 0; same && i < made->input_count; i++)
            same = guard_same(&e->guard[i], &made->guard[i]);
        if (same) return e;
    }
    return NULL;
}

static void append(Function *function, Entry *entry) {
    entry->number = atomic_load(&function->entry_count);
    if (entry->number > 0) atomic_fetch_add(&function->recompiles, 1);
    _Atomic(Entry *) *last = &function->first;
    for (Entry *e = atomic_load(last); e; e = atomic_load(last)) last = &e->next;
    atomic_store(last, entry);
    atomic_fetch_add(&function->entry_count, 1);
}

/* The notice that the process runs without a C compiler is given once. */
static void notice_no_compiler(void) {
    static atomic_flag given = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&given)) return;
    const ReasonInfo *info = reason_info(REASON_no_compiler);
    fprintf(stderr, "carbide: %s (%s)\n", info->text, info->hint);
}

static void note_engine(Function *function, const Entry *entry) {
    ExecutableInfo info = executable_info(entry->executable);
    if (info.reason == REASON_no_compiler) notice_no_compiler();
    if (info.from_disk)
        atomic_fetch_add(&function->cache_hits, length(executable_plan(entry->executable)->kernel));
    if (info.reason == REASON_NONE) return;
    function_note(function, info.reason, (Site){0}, "%s", info.message ? info.message : "");
}

Entry *entry_make(Call *call) {
    Function *function = call->function;
    Recording *recording = call->recording;
    Entry *entry = prepare(call, recording);
    if (!entry) return NULL;
    pthread_mutex_lock(&function->lock);
    Entry *same = find_same(function, entry);
    bool made = !same && hold_captured(entry, call) && compile(entry, call);
    if (made) append(function, entry);
    pthread_mutex_unlock(&function->lock);
    if (same) return same;
    if (!made) {
        for (int i = 0; i < entry->captured_count; i++) tensor_destroy(entry->held[i]);
        return NULL;
    }
    recording->trace = NULL; /* the entry owns it now */
    note_engine(function, entry);
    if (strchr(option_text(OPTION_dump), 'c')) entry_dump(entry);
    return entry;
}

void entry_free(Entry *entry) {
    executable_free(entry->executable);
    for (int i = 0; i < entry->captured_count; i++) tensor_destroy(entry->held[i]);
    trace_free(entry->trace);
}

/* ---- running ------------------------------------------------------------------------------- */

bool entry_writes_apart(const Entry *entry, Tensor *const *value) {
    for (int i = 0; i < entry->mutated_count; i++) {
        int m = entry->mutated[i];
        for (int v = 0; v < entry->input_count; v++)
            if (v != m && tensors_overlap(value[v], value[m])) return false;
        for (int k = 0; k < entry->captured_count; k++) {
            int v = entry->captured[k];
            if (v != m && tensors_overlap(value[v], value[m])) return false;
        }
    }
    return true;
}

/* Replaces an output that is no storage of its own by a copy. */
static bool separate(const Entry *entry, Tensor *const *input, Tensor **output) {
    int inputs = entry->input_count + entry->captured_count;
    for (int k = 0; k < entry->graph_output_count; k++) {
        if (!entry->copied[k]) continue;
        bool shared = false;
        for (int i = 0; i < inputs; i++) shared |= input[i]->storage == output[k]->storage;
        for (int i = 0; i < k; i++) shared |= output[i]->storage == output[k]->storage;
        if (!shared) continue;
        cb_operand operand = cb_operand_tensor(output[k]);
        const Attrs attrs = {{0}};
        Tensor *copy = eager_apply(OP_clone, &operand, 1, &attrs);
        if (!copy) return false;
        tensor_destroy(output[k]);
        output[k] = copy;
    }
    return true;
}

static bool run(const Entry *entry, Tensor *const *value, Tensor **input, Tensor **output) {
    memcpy(input, value, sizeof *input * (size_t)entry->input_count);
    for (int k = 0; k < entry->captured_count; k++)
        input[entry->input_count + k] = value[entry->captured[k]];
    if (!executable_run(entry->executable, input, output)) return false;
    if (separate(entry, input, output)) return true;
    for (int k = 0; k < entry->graph_output_count; k++) tensor_destroy(output[k]);
    return false;
}

static void dump_run(const Entry *entry) {
    const Plan *plan = executable_plan(entry->executable);
    fprintf(stderr, "run: entry %d, %d steps, %lld bytes moved, %lld bytes of temporaries\n",
            entry->number, length(plan->step), (long long)plan->bytes,
            (long long)plan->arena_bytes);
}

bool entry_run(const Entry *entry, Tensor *const *value, Tensor **graph_output) {
    if (strchr(option_text(OPTION_dump), 'r')) dump_run(entry);
    int inputs = entry->input_count + entry->captured_count;
    Tensor *local[LOCAL_TENSORS], **input = local;
    if (inputs > LOCAL_TENSORS) input = memory_alloc(sizeof *input * (size_t)inputs);
    if (!input) {
        fail_memory(sizeof *input * (size_t)inputs);
        return false;
    }
    bool done = run(entry, value, input, graph_output);
    if (input != local) memory_free(input);
    return done;
}

static void set_contiguous(Tensor *x) {
    int64_t stride = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        x->stride[i] = stride;
        stride *= x->size[i] > 1 ? x->size[i] : 1;
    }
    x->offset = 0;
}

void entry_settle(const Entry *entry, Tensor *const *value, Tensor *const *graph_output) {
    for (int k = 0; k < result_count(entry->trace); k++) {
        const Result *result = &entry->result[k];
        if (result->source == RESULT_NULL || result->source == RESULT_REAL) continue;
        Tensor *x = value[result->value];
        if (!x || x->storage) continue; /* returned twice */
        const Tensor *from = result->source == RESULT_VIEW
                                 ? value[entry->trace->value[result->value].root]
                                 : graph_output[result->output];
        if (result->source == RESULT_VALUE) set_contiguous(x);
        x->storage = storage_retain(from->storage);
    }
}

/* ---- fullgraph: without the function ---------------------------------------------------------- */

static Tensor *make_result(const Entry *entry, const Result *result, Tensor *const *value,
                           Tensor *const *graph_output) {
    if (result->source == RESULT_NULL) return NULL;
    const TraceValue *traced = &entry->trace->value[result->value];
    Tensor *real = value[traced->root];
    switch (result->source) {
    case RESULT_REAL:
        if (traced->kind == VALUE_IS_INPUT) return real;
        return tensor_view_of(real, &traced->meta, real->stride, real->offset);
    case RESULT_VIEW:
        return tensor_view_of(real, &traced->meta, traced->stride, real->offset + traced->offset);
    case RESULT_VALUE: {
        Tensor *own = graph_output[result->output];
        return tensor_view_of(own, &traced->meta, own->stride, own->offset);
    }
    default:
        return tensor_view_of(graph_output[result->output], &traced->meta, traced->stride,
                              traced->offset);
    }
}

static int make_results(const Entry *entry, Tensor *const *value, Tensor *const *graph_output,
                        Tensor **output) {
    int count = length(entry->trace->output);
    for (int k = 0; k < count; k++) {
        output[k] = make_result(entry, &entry->result[k], value, graph_output);
        if (!output[k] && entry->result[k].source != RESULT_NULL) return cb_error_status();
    }
    return count;
}

/* An error recorded before this one keeps its status: any negative number will do then. */
static int failure_status(void) {
    return cb_error_status() != CB_OK ? (int)cb_error_status() : CB_ERR_COMPILE;
}

static int call_values(const Entry *entry, Tensor **value, Tensor **output) {
    Tensor *graph_output[CB_MAX_ARGS];
    for (int k = 0; k < entry->captured_count; k++) value[entry->captured[k]] = entry->held[k];
    if (!entry_writes_apart(entry, value)) return ENTRY_OVERLAPS;
    if (!entry_run(entry, value, graph_output)) return failure_status();
    int made = make_results(entry, value, graph_output, output);
    for (int k = 0; k < entry->graph_output_count; k++) tensor_destroy(graph_output[k]);
    return made;
}

int entry_call(const Entry *entry, Tensor *const *input, Tensor **output) {
    Tensor *local[LOCAL_TENSORS], **value = local;
    int count = length(entry->trace->value);
    if (count > LOCAL_TENSORS) value = memory_alloc(sizeof *value * (size_t)count);
    if (!value) return fail_memory(sizeof *value * (size_t)count);
    memcpy(value, input, sizeof *value * (size_t)entry->input_count);
    int made = call_values(entry, value, output);
    if (value != local) memory_free(value);
    return made;
}
