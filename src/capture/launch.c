/* Running an entry: tensors in, results out, with the aliasing that eager would have given.
 *
 * In: the values that the trace names as inputs and captured tensors. Out: the storages of the
 * function's shells (entry_settle), or new tensors when the function itself did not run
 * (entry_call). */
#include "capture/backend.h"
#include "capture/joint.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/set.h"
#include "eager/eager.h"
#include "eager/tape.h"
#include <string.h>

enum { LOCAL_TENSORS = 128, LOCAL_NUMBERS = 32 };

/* Replaces an output that is no storage of its own by a copy. */
static bool separate(const Entry *entry, Tensor *const *input, Tensor **output) {
    int inputs = entry->input_count + entry->captured_count;
    for (int k = 0; k < entry->graph_output_count; k++) {
        if (!entry->copied[k]) continue;
        bool shared = false;
        for (int i = 0; i < inputs; i++) shared |= input[i]->storage == output[k]->storage;
        for (int i = 0; i < k; i++) shared |= output[i]->storage == output[k]->storage;
        if (!shared) continue;
        Tensor *copy = eager_clone(output[k]);
        if (!copy) return false;
        tensor_destroy(output[k]);
        output[k] = copy;
    }
    return true;
}

/* The graph's inputs; arguments become tensors in number[]. */
static void list_inputs(const Entry *entry, Tensor *const *value, const int64_t *argument,
                        Number *number, Tensor **input) {
    memcpy(input, value, sizeof *input * (size_t)entry->input_count);
    for (int k = 0, next = 0; k < entry->captured_count; k++) {
        int i = entry->input_count + k, v = entry->captured[k];
        if (v != NO_VALUE) {
            input[i] = value[v];
            continue;
        }
        Scalar given = {.i = argument[next]};
        input[i] = number_hold(&number[next++], entry->graph->input[i]->dtype, given);
    }
}

bool entry_compute(const Entry *entry, Tensor *const *input, Tensor **output) {
    return entry->code ? backend_run(entry, input, output)
                       : executable_run(entry->executable, input, output);
}

/* Into the shells of those results that live: value is of a call whose function has run. */
static bool compute_shells(const Entry *entry, Tensor *const *value, Tensor *const *input,
                           Tensor **output) {
    int count = entry->graph_output_count;
    Tensor *shell[LOCAL_TENSORS];
    if (!entry->shell || count > LOCAL_TENSORS) return entry_compute(entry, input, output);
    for (int k = 0; k < count; k++) {
        Tensor *x = entry->shell[k] == NO_VALUE ? NULL : value[entry->shell[k]];
        shell[k] = x && !x->storage ? x : NULL;
    }
    return executable_run_for(entry->executable, input, output, shell);
}

void entry_drop_outputs(const Entry *entry, Tensor *const *value, Tensor *const *graph_output,
                        bool done) {
    for (int k = 0; k < entry->graph_output_count; k++) {
        Tensor *x = graph_output[k];
        bool is_shell = entry->shell && entry->shell[k] != NO_VALUE && x == value[entry->shell[k]];
        if (is_shell && !done) storage_release(x->storage), x->storage = NULL;
        if (!is_shell) tensor_destroy(x);
    }
}

static bool run(const Entry *entry, Tensor *const *value, Tensor **input, Tensor **output) {
    bool done = entry->oracle ? check_run(entry, input, output)
                              : compute_shells(entry, value, input, output);
    if (!done) return false;
    if (separate(entry, input, output)) return true;
    entry_drop_outputs(entry, value, output, false);
    return false;
}

static void dump_run(const Entry *entry) {
    const char *stages = option_text(OPTION_dump);
    if (!*stages || !strchr(stages, 'r')) return;
    const Plan *plan = executable_plan(entry->executable);
    fprintf(stderr, "run: entry %d, %d steps, %lld bytes moved, %lld bytes of temporaries\n",
            entry->number, length(plan->step), (long long)plan->bytes,
            (long long)plan->arena_bytes);
}

static bool run_with(const Entry *entry, Tensor *const *value, const int64_t *argument,
                     Number *number, Tensor **graph_output) {
    int inputs = entry->input_count + entry->captured_count;
    Tensor *local[LOCAL_TENSORS], **input = local;
    if (inputs > LOCAL_TENSORS) input = memory_alloc(sizeof *input * (size_t)inputs);
    if (!input) {
        fail_memory(sizeof *input * (size_t)inputs);
        return false;
    }
    list_inputs(entry, value, argument, number, input);
    bool done = run(entry, value, input, graph_output);
    if (input != local) memory_free(input);
    return done;
}

/* For the checkpoint whose function calls it; false with an error. What it writes to is no read,
 * too: that comes twice. */
static bool values_read(const Entry *entry, Tensor *const *value) {
    Set written = {0};
    bool done = true;
    checkpoint_runs_graph();
    for (int i = 0; i < entry->mutated_count && done; i++) {
        const Storage *storage = value[entry->mutated[i]]->storage;
        checkpoint_writes(storage);
        done = set_add(&written, storage->serial);
    }
    if (!done) fail_memory(0);
    for (int v = 0; v < length(entry->trace->value) && done; v++) {
        const Tensor *x = entry->trace->value[v].kind == VALUE_IS_RESULT ? NULL : value[v];
        bool reads = x && !(x->storage && set_has(&written, x->storage->serial));
        if (reads) done = checkpoint_reads(x);
    }
    set_free(&written);
    return done;
}

bool entry_run(const Entry *entry, Tensor *const *value, const int64_t *argument,
               Tensor **graph_output) {
    if (checkpoint_current() && !values_read(entry, value)) return false;
    if (entry->executable) dump_run(entry);
    if (!job_is_idle(&entry->job)) worker_continue();
    Number local[LOCAL_NUMBERS], *number = local;
    int count = entry->trace->argument_count;
    if (count > LOCAL_NUMBERS) number = memory_alloc(sizeof *number * (size_t)count);
    if (!number) {
        fail_memory(sizeof *number * (size_t)count);
        return false;
    }
    if (entry->times) entry_time_eager(entry, value, argument);
    int64_t start = entry->times ? clock_ns() : 0;
    bool done = run_with(entry, value, argument, number, graph_output);
    if (entry->times && done) entry_ran(entry, start);
    if (number != local) memory_free(number);
    return done;
}

/* Of a part that is computed by itself: contiguous, but for what was expanded. */
static void part_strides(const TraceValue *value, int64_t *stride) {
    int64_t next = 1;
    for (int d = value->meta.rank - 1; d >= 0; d--) {
        bool expanded = value_is_expanded(value, d);
        stride[d] = expanded ? 0 : next;
        if (!expanded && value->meta.size[d]) next *= value->meta.size[d];
    }
}

void entry_settle(const Entry *entry, Tensor *const *value, Tensor *const *graph_output) {
    for (int k = 0; k < trace_result_count(entry->trace); k++) {
        const EntryResult *result = &entry->result[k];
        if (result->source == RESULT_NULL || result->source == RESULT_REAL) continue;
        Tensor *x = value[result->value];
        if (!x || x->storage) continue; /* returned twice */
        const Tensor *from = result->source == RESULT_VIEW
                                 ? value[entry->trace->value[result->value].root]
                                 : graph_output[result->output];
        if (result->source == RESULT_VALUE) {
            part_strides(&entry->trace->value[result->value], x->stride);
            x->offset = 0;
        }
        x->storage = storage_retain(from->storage);
    }
}

/* ---- fullgraph: without the function -------------------------------------------------------- */

/* The tensor itself, with its history: but what the entry or this call has in its place stays
 * theirs. */
static Tensor *real_result(const Entry *entry, int v, Tensor *real) {
    for (int k = 0; k < entry->captured_count; k++)
        if (entry->captured[k] == v && (entry->shown[k] || entry->held[k] == real))
            return tensor_double(real);
    return real;
}

static Tensor *make_result(const Entry *entry, const EntryResult *result, Tensor *const *value,
                           Tensor *const *graph_output) {
    if (result->source == RESULT_NULL) return NULL;
    const TraceValue *traced = &entry->trace->value[result->value];
    Tensor *real = value[traced->root];
    switch (result->source) {
    case RESULT_REAL:
        return real_result(entry, result->value, real);
    case RESULT_VIEW:
        return tensor_view_of(real, &traced->meta, traced->stride, real->offset + traced->offset);
    case RESULT_VALUE: {
        Tensor *own = graph_output[result->output];
        int64_t stride[CB_MAX_RANK];
        part_strides(traced, stride);
        return tensor_view_of(own, &traced->meta, stride, own->offset);
    }
    default:
        return tensor_view_of(graph_output[result->output], &traced->meta, traced->stride,
                              traced->offset);
    }
}

/* The earlier output that is the same tensor, or k. */
static int first_output(const Trace *trace, int k) {
    for (int i = 0; i < k; i++)
        if (trace->output[i] == trace->output[k]) return i;
    return k;
}

static int make_results(const Entry *entry, Tensor *const *value, Tensor *const *graph_output,
                        Tensor **output) {
    int count = length(entry->trace->output);
    for (int k = 0; k < count; k++) {
        int first = first_output(entry->trace, k);
        output[k] =
            first < k ? output[first] : make_result(entry, &entry->result[k], value, graph_output);
        if (!output[k] && entry->result[k].source != RESULT_NULL) return cb_error_status();
    }
    return count;
}

typedef struct Made {            /* by a run */
    Tensor **value;              /* of a run op by op, which may be taken */
    Tensor *const *graph_output; /* NULL: it was one op by op */
    Tensor *const *output;       /* NULL: it failed */
} Made;

/* What a leaf keeps: it may be an output, too. */
static Tensor *leaf_result(const Entry *entry, int v, void *user) {
    const Made *made = user;
    const Trace *trace = entry->trace;
    int outputs = length(trace->output);
    for (int k = 0; k < trace_result_count(trace); k++) {
        if (trace_result(trace, k) != v) continue;
        if (k < outputs && made->output) return made->output[k];
        if (made->graph_output)
            return make_result(entry, &entry->result[k], made->value, made->graph_output);
    }
    Tensor *x = made->value[v];
    made->value[v] = NULL;
    return x;
}

/* The results of a run op by op: the tensors themselves, which leave value. */
static int take_results(const Entry *entry, Tensor **value, Tensor **output) {
    const Trace *trace = entry->trace;
    for (int k = 0; k < length(trace->output); k++) {
        int v = trace->output[k], first = first_output(trace, k);
        if (first < k) {
            output[k] = output[first];
        } else if (v >= 0 && trace->value[v].kind == VALUE_IS_RESULT) {
            output[k] = cb_scope_add(value[v]);
            value[v] = NULL;
        } else {
            output[k] = make_result(entry, &entry->result[k], value, NULL);
        }
    }
    return length(trace->output);
}

/* As eager would have gone on: where the order of writes matters, and after a step that failed,
 * before which ops may have written to inputs. Leaves get what gradients there are in any case. */
static int call_ops(const Entry *entry, Tensor **value, Tensor **output, bool effects) {
    const Trace *trace = entry->trace;
    atomic_fetch_add_explicit(&entry->function->eager_calls, 1, memory_order_relaxed);
    for (int v = 0; v < length(trace->value); v++)
        if (trace->value[v].kind == VALUE_IS_RESULT) value[v] = NULL;
    bool done = effects && trace_run(trace, length(trace->op), NULL, value);
    if (!effects) trace_run_without_effects(trace, length(trace->op), NULL, value);
    int count = done ? take_results(entry, value, output) : (int)cb_error_status();
    Made made = {value, NULL, done ? output : NULL};
    if (!leaves_take(entry, value, leaf_result, &made)) count = cb_error_status();
    for (int v = 0; v < length(trace->value); v++)
        if (trace->value[v].kind == VALUE_IS_RESULT) tensor_destroy(value[v]);
    return count;
}

/* To what is returned: nothing else lives on under fullgraph, but leaves' gradients. */
static void hand_histories(const Entry *entry, History *kept, Tensor *const *output, int count) {
    const Trace *trace = entry->trace;
    if (!kept) return;
    for (int k = 0; k < count; k++) {
        int root = backward_root(entry->backward, trace->output[k]);
        if (root >= 0 && first_output(trace, k) == k)
            output[k]->history = backward_history(kept, root);
    }
    backward_drop(kept);
}

static int call_values(const Entry *entry, Tensor **value, Tensor **graph_output, Tensor **output) {
    char detail[160];
    leaves_find(entry, value);
    if (!entry_values_apart(entry, value, detail, sizeof detail)) {
        function_note(entry->function, REASON_written_overlap, site_current(), "%s", detail);
        return call_ops(entry, value, output, true);
    }
    cb_status before = cb_error_status();
    for (int k = 0; entry->shell && k < entry->graph_output_count; k++)
        if (entry->shell[k] != NO_VALUE) value[entry->shell[k]] = NULL; /* nobody has any */
    RandomState random;
    History *kept;
    if (!entry_run_kept(entry, value, NULL, graph_output, &random, &kept)) {
        bool effects = entry_has_effects(entry);           /* which are not done twice */
        if (before == CB_OK && !effects) cb_clear_error(); /* the op says it, at its own line */
        return call_ops(entry, value, output, !effects);
    }
    int count = make_results(entry, value, graph_output, output);
    hand_histories(entry, kept, output, count);
    Made made = {value, graph_output, output};
    if (count >= 0 && !leaves_take(entry, value, leaf_result, &made)) count = cb_error_status();
    for (int k = 0; k < entry->graph_output_count; k++) tensor_destroy(graph_output[k]);
    return count;
}

/* What is shown is a tensor of this call, in the caller's scope or the results'. */
static bool find_captured(const Entry *entry, Tensor **value) {
    bool found = true;
    for (int k = 0; k < entry->captured_count; k++) {
        Tensor **x = &value[entry->captured[k]];
        *x = entry->shown[k] ? cb_keep(eager_clone(entry->held[k])) : entry_captured(entry, k);
        found &= *x || !entry->shown[k];
    }
    return found;
}

static void drop_shown(const Entry *entry, Tensor **value) {
    for (int k = 0; k < entry->captured_count; k++)
        if (entry->shown[k]) tensor_destroy(value[entry->captured[k]]); /* NULL is allowed */
}

int entry_call(const Entry *entry, Tensor *const *input, Tensor **output) {
    Tensor *local[LOCAL_TENSORS], **value = local;
    int values = length(entry->trace->value), count = values + entry->graph_output_count;
    if (count > LOCAL_TENSORS) value = memory_alloc(sizeof *value * (size_t)count);
    if (!value) return fail_memory(sizeof *value * (size_t)count);
    memcpy(value, input, sizeof *value * (size_t)entry->input_count);
    bool found = find_captured(entry, value);
    int made = found ? call_values(entry, value, value + values, output) : cb_error_status();
    drop_shown(entry, value);
    if (value != local) memory_free(value);
    return made;
}
