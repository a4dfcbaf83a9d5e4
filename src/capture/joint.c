/* Results with a history, of what is compiled: the joint graph.
 *
 *     f(x) = gelu(matmul(x, w))     w requires a gradient, and f does not go back itself
 *     cb_backward(loss(f(x)))       outside
 *
 * The recording's graph gets an input for the gradient of each such result, and the gradients that
 * lead from there to the leaves as more outputs. When the passes have seen all of it, it is parted
 * (graph/partition.c): the entry computes the results, and what is worth being saved, and the
 * gradients are a graph of their own, which is compiled when somebody goes back for the first time.
 * The tape knows each call as one step (eager/together.c).
 *
 * What the gradients read of inputs and leaves is read where it lies: a write between the call and
 * cb_backward is an error, as in eager. Nothing else of them is held, unless somebody has gone over
 * the function's ops for gradients of gradients (unroll.c). */
#include "capture/joint.h"

#include "base/map.h"
#include "base/memory.h"
#include "base/option.h"
#include "capture/backend.h"
#include "graph/call.h"
#include "graph/grad/grad.h"

static bool is_listed(const int *list, int v) {
    for (int i = 0; i < length(list); i++)
        if (list[i] == v) return true;
    return false;
}

static void list_roots(Joint *joint, const Recording *recording, int done) {
    const Trace *trace = recording->trace;
    for (int k = 0; k < trace_result_count(trace) && !trace->goes_on; k++) {
        int v = trace_result(trace, k);
        if (v >= 0 && trace_has_history(trace, v, done) && !is_listed(joint->root, v))
            push(trace->arena, joint->root, v);
    }
    for (int i = 0; i < length(trace->leads); i++) push(trace->arena, joint->root, trace->leads[i]);
}

/* What has a history outside and was written to is not what that is of; NO_VALUE: nothing. */
static int find_written_outside(const Recording *recording) {
    for (int i = 0; i < length(recording->foreign); i++)
        if (recording->value[recording->foreign[i].value].version)
            return recording->foreign[i].value;
    return NO_VALUE;
}

/* Leaves, and what has a history outside. */
static int *list_sources(const Recording *recording) {
    int *source = record_leaves(recording);
    for (int i = 0; i < length(recording->foreign); i++)
        push(recording->graph->arena, source, recording->foreign[i].value);
    return source;
}

/* By root: a gradient by this value comes from it. */
static bool *roots_of(Recording *recording, const Joint *joint, int source, int nodes) {
    const Graph *graph = recording->graph;
    bool *roots = arena_new_array(recording->trace->arena, bool, length(joint->root));
    bool *reached = arena_new_array(graph->arena, bool, nodes + 1);
    reached[functional_node(recording, source)->id] = true;
    for (int i = 0; i < length(recording->leaf); i++)
        if (recording->leaf[i].value == source) reached[recording->leaf[i].node->id] = true;
    grad_reach(graph, 0, nodes, reached);
    for (int i = 0; i < length(joint->root); i++)
        roots[i] = reached[functional_node(recording, joint->root[i])->id];
    return roots;
}

/* By root: the function has computed it from this other one. Nodes do not tell: a view that changes
 * nothing has that of what it shows, and so have equal values, which are none of each other's. */
static bool *roots_behind(const Recording *recording, const Joint *joint, int root) {
    const Trace *trace = recording->trace;
    bool *roots = arena_new_array(trace->arena, bool, length(joint->root));
    bool *led = arena_new_array(recording->graph->arena, bool, length(trace->value) + 1);
    led[joint->root[root]] = true;
    trace_mark_tracked(trace, length(trace->op), led);
    for (int i = 0; i < length(joint->root); i++) roots[i] = i != root && led[joint->root[i]];
    return roots;
}

/* The gradients of the roots, each with an input for its own, by all sources. */
static bool add_gradients(Recording *recording, Joint *joint) {
    Graph *graph = recording->graph;
    const int *source = list_sources(recording);
    int roots = length(joint->root), sources = length(source);
    Node **gradient = arena_new_array(graph->arena, Node *, sources + 1);
    Node **given = arena_new_array(graph->arena, Node *, roots + 1);
    Node **root = arena_new_array(graph->arena, Node *, roots + 1);
    for (int i = 0; i < roots; i++) {
        root[i] = functional_node(recording, joint->root[i]);
        given[i] = graph_input(graph, &recording->trace->value[joint->root[i]].meta);
    }
    int nodes = length(graph->node);
    for (int i = 0; i < roots; i++)
        push(recording->trace->arena, joint->behind, roots_behind(recording, joint, i));
    joint->graph.given = roots;
    graph->origin = (Origin){.call = NULL}; /* it is of no op of the function */
    joint->graph.budget = option_int(OPTION_memory_budget) / 100.0;
    if (!functional_gradients(recording, root, given, roots, source, sources, gradient, NULL))
        return false;
    for (int k = 0; k < sources; k++) {
        if (!gradient[k]) continue;
        push(recording->trace->arena, joint->source, source[k]);
        push(recording->trace->arena, joint->from, roots_of(recording, joint, source[k], nodes));
        push(graph->arena, joint->graph.gradient, gradient[k]);
    }
    return joint->source;
}

bool joint_wanted(const Function *function) {
    const FunctionOptions *options = &function->options;
    return options->backward != BACKWARD_TAPE && !backend_of(options) &&
           options->backend != BACKEND_EAGER;
}

bool joint_may_follow(const Recording *recording) {
    return recording->joins && find_written_outside(recording) == NO_VALUE;
}

bool joint_record(Call *call) {
    Recording *recording = call->recording;
    cb_status before = cb_error_status();
    call->outside = NO_VALUE;
    if (!recording->joins || RECORD_GUARD(recording)) return false;
    Joint *joint = arena_new_array(recording->graph->arena, Joint, 1);
    int inputs = length(recording->graph->input), ops = length(recording->trace->op);
    list_roots(joint, recording, ops);
    call->outside = find_written_outside(recording);
    bool done = call->outside == NO_VALUE && joint->root && add_gradients(recording, joint);
    if (!done && before == CB_OK) cb_clear_error(); /* who goes back op by op says it */
    if (!done) truncate_to(recording->graph->input, inputs);
    if (done) recording->joint = joint;
    if (done) recording->trace->draws = trace_draws(recording->trace, ops, call->argument);
    return done;
}

bool joint_is_promised(const Entry *entry, Tensor *const *value) {
    const Backward *backward = entry->backward;
    for (int i = 0; backward && i < backward->sources; i++)
        if (tape_is_promised(value[backward->source[i]])) return true;
    return false;
}

/* ---- what a run does, for checkpoints -------------------------------------------------------- */

/* Values that the results are computed from, in order of appearance: others do not count. */
typedef struct Digest {
    const int64_t *argument;
    uint64_t key;
    int *place; /* by value; 0: none yet */
    int places;
} Digest;

static int place_of(Digest *digest, int v) {
    if (!digest->place[v]) digest->place[v] = ++digest->places;
    return digest->place[v];
}

static void digest_op(Digest *digest, const TraceOp *op) {
    uint64_t key = hash_mix(digest->key, (uint64_t)op->op);
    for (int k = 0; k < trace_op_results(op); k++) place_of(digest, op->result + k);
    for (int k = 0; k < op->input_count; k++) {
        const TraceOperand *operand = &op->input[k];
        key = hash_mix(key, (uint64_t)operand->kind);
        if (operand->kind == OPERAND_VALUE)
            key = hash_mix(key, (uint64_t)place_of(digest, operand->value));
        else
            key = hash_mix(key, (uint64_t)trace_operand_number(operand, digest->argument).i);
    }
    Attrs attrs = {{0}};
    if (!op->back) trace_attrs(op, digest->argument, &attrs);
    for (int w = 0; w < op->word_count && !op->back; w++)
        key = hash_mix(key, (uint64_t)attrs.word[w]);
    digest->key = key;
}

/* Runs whose gradients are computed alike have the same one. False with an error: no memory. */
static bool digest_run(const Backward *backward, const int64_t *argument, uint64_t *key) {
    const Trace *trace = backward->trace;
    size_t bytes = sizeof(int) * ((size_t)length(trace->value) + 1);
    int *place = memory_zalloc(bytes);
    if (!place) {
        fail_memory(bytes);
        return false;
    }
    Digest digest = {argument, .place = place};
    for (int i = 0; i < length(trace->op); i++)
        if (backward->followed[i]) digest_op(&digest, &trace->op[i]);
    memory_free(place);
    *key = digest.key;
    return true;
}

/* ---- around a run ---------------------------------------------------------------------------- */

bool entry_run_kept(const Entry *entry, Tensor *const *value, const int64_t *argument,
                    Tensor **graph_output, RandomState *random, History **kept) {
    int draws = entry->trace->draws;
    uint64_t digest = 0;
    *kept = NULL;
    if (entry->backward && checkpoint_current() && !digest_run(entry->backward, argument, &digest))
        return false;
    if (entry->backward && !(*kept = backward_keep(entry->backward, value, argument, digest)))
        return false;
    RandomState own = *random = draws ? random_take(draws) : (RandomState){0, 0};
    RandomState *before = draws ? random_lend(&own) : NULL;
    bool done = entry_run(entry, value, argument, graph_output);
    if (draws) random_lend(before);
    if (!done && draws) random_return(*random, draws);
    if (!done && *kept) backward_drop(*kept), *kept = NULL;
    if (*kept) backward_ran(*kept, *random, graph_output + entry_results(entry));
    return done;
}

void entry_hand_histories(const Entry *entry, History *kept, Tensor *const *value) {
    for (int i = 0; kept && i < entry->backward->roots; i++) {
        Tensor *x = value[entry->backward->root[i].value];
        if (x) x->history = backward_history(kept, i);
    }
    if (kept) backward_drop(kept);
}
