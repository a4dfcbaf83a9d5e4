/* Gradients inside of a call: cb_backward and cb_grad are one op of the trace, with a value per
 * gradient, and the graph is the tape.
 *
 *     l = sum(mul(x, w))             w requires a gradient: so do the two results
 *     cb_backward(l, NULL)           %5 of %1 = backward(%4)
 *     sub_(w, mul(lr, w's gradient)) an op like any other: mul(lr, %5)
 *     cb_zero_grad(w)                the shell of %5 dies
 *
 * A leaf's gradient is a shell that the leaf keeps: one that lives when the function returns is
 * kept as any other tensor that outlives its call, and one that does not is never stored. Where
 * there is a gradient already, the new one is added to it in place, by two more ops.
 *
 * What has a history when the call ends, and was not gone back over, cannot come from a graph: such
 * a call runs op by op, with the tape. */
#include "capture/functional.h"

#include "base/memory.h"
#include "eager/tape.h"
#include <string.h>

bool call_requires_grad(Tracer *tracer, const Tensor *x) {
    const Call *call = call_of(tracer);
    if (x->trace == call->left_serial) return segment_requires_grad(x);
    int v = call_traced(call, x);
    return v != NO_VALUE && call->trace->value[v].tracked;
}

bool call_keeps_history(const Call *call, int count) {
    for (int v = call->input_count; call->grad && v < call->bound; v++)
        if (call->value[v] && call_traced(call, call->value[v]) != NO_VALUE &&
            trace_has_history(call->trace, v, count))
            return true;
    return false;
}

/* The shell becomes the leaf's gradient, or is added to the one that it has. */
static bool add_to_leaf(Tensor **gradient, Tensor *shell) {
    if (!*gradient) {
        shell->owners = 1;
        *gradient = cb_keep(shell);
        return true;
    }
    cb_operand pair[] = {cb_operand_tensor(*gradient), cb_operand_tensor(shell)};
    Tensor *sum = apply(OP_add, pair, 2, NULL);
    cb_operand value = cb_operand_tensor(sum);
    bool added = sum && apply_assign(*gradient, &value);
    tensor_destroy(sum);
    tensor_destroy(shell);
    return added;
}

static bool give_to_leaf(Call *call, Tensor *leaf, Tensor *shell) {
    if (call->function->options.fullgraph) call_meets_gradient(&call->tracer, leaf, false);
    return add_to_leaf(tape_gradient(leaf), shell);
}

/* The op that the call has just done hands out its results. */
static bool hand_out(Call *call, const TraceOp *op, Tensor **out) {
    const TraceBack *back = op->back;
    int results = trace_back_results(back), next = 0;
    size_t bytes = sizeof(Tensor *) * (size_t)(results + 1);
    Tensor **shell = memory_zalloc(bytes);
    if (!shell) {
        fail_memory(bytes);
        return false;
    }
    bool done = true;
    for (int k = 0; k < results && done; k++) {
        shell[k] = call_shell(call, op->result + k);
        done = shell[k];
    }
    for (int k = 0; k < back->count && done && !back->leaves; k++)
        out[k] = back->wrt[k] >= 0 ? shell[next++] : NULL;
    for (int k = 0; k < results && done && back->leaves; k++)
        done = give_to_leaf(call, call->value[back->wrt[k]], shell[k]);
    memory_free(shell);
    return done;
}

/* Somebody's tape is needed: what was recorded runs op by op, and so does the rest. */
static bool leave_to_tape(Call *call) {
    call_break(call, REASON_gradients, "from outside");
    return false;
}

bool call_goes_back(Tracer *tracer, const GoingBack *back, Tensor **out) {
    Call *call = call_of(tracer);
    call_meet(call, back->y);
    call_meet(call, back->given);
    for (int k = 0; k < back->count; k++) call_meet(call, back->wrt[k]);
    if (call->stale && !tracer->disabled && !segment_renew(call)) return false;
    if (call->refused) return false;
    const cb_operand input[] = {cb_operand_tensor(back->y), cb_operand_tensor(back->given)};
    if (tracer->disabled || (call->exposed_count && expose_meets(call, input, 2)))
        return leave_to_tape(call);
    call->back = back;
    bool done = call->mode == CALL_REPLAYS && call_replays_backward(call, input);
    if (!done && call->mode == CALL_RECORDS) done = record_backward(call, back, input);
    return done && hand_out(call, &call->trace->op[call->at - 1], out);
}

/* ---- fullgraph: without the function -------------------------------------------------------- */

/* The function does not run again, so an entry has what it does to leaves' gradients. */

static int find_leaf(const Call *call, const Tensor *x) {
    const TraceLeaf *leaf = call->trace->leaf;
    for (int i = 0; i < length(leaf); i++)
        if (call->value[leaf[i].value]->history == x->history) return i;
    return NO_VALUE;
}

static void push_leaf(Call *call, TraceLeaf leaf) {
    Arena *arena = call->recording->trace->arena;
    if (arena_guard(arena)) {
        call->failed = true;
        return;
    }
    push(arena, call->recording->trace->leaf, leaf);
}

void call_meets_gradient(Tracer *tracer, Tensor *x, bool frees) {
    Call *call = call_of(tracer);
    if (call->mode != CALL_RECORDS || call->refused || find_leaf(call, x) != NO_VALUE) return;
    Tensor *gradient = *tape_gradient(x);
    int v = record_value(call, x), before = LEAF_NONE;
    bool found = v >= 0;
    if (found && !frees && gradient) {
        before = record_value(call, gradient);
        found = before >= 0;
    }
    if (found)
        push_leaf(call, (TraceLeaf){v, frees ? LEAF_ANY : before, LEAF_SAME});
    else
        call->failed = true;
}

bool call_ends_leaves(const Call *call) {
    Trace *trace = call->recording->trace;
    int given = 0;
    for (int i = 0; i < length(trace->leaf); i++) {
        TraceLeaf *leaf = &trace->leaf[i];
        const Tensor *gradient = *tape_gradient(call->value[leaf->value]);
        int v = gradient ? call_traced(call, gradient) : LEAF_NONE;
        leaf->after = gradient && v == NO_VALUE ? LEAF_SAME : v;
        for (int k = 0; k < length(trace->escaped); k++) given += trace->escaped[k] == v;
    }
    return given == length(trace->escaped);
}

static Tensor *real_tensor(const Entry *entry, Tensor *const *input, int v) {
    if (v < entry->input_count) return input[v];
    for (int k = 0; k < entry->captured_count; k++)
        if (entry->captured[k] == v) return entry->held[k];
    return NULL; /* unreachable: all of them are captured */
}

bool leaves_hold(const Entry *entry, Tensor *const *input) {
    for (int i = 0; i < length(entry->trace->leaf); i++) {
        const TraceLeaf *leaf = &entry->trace->leaf[i];
        Tensor **gradient = tape_gradient(real_tensor(entry, input, leaf->value));
        if (!gradient) return false; /* it is a leaf no more */
        if (leaf->before != LEAF_ANY && (leaf->before == LEAF_NONE) != !*gradient) return false;
    }
    return true;
}

void leaves_find(const Entry *entry, Tensor **value) {
    for (int i = 0; i < length(entry->trace->leaf); i++) {
        const TraceLeaf *leaf = &entry->trace->leaf[i];
        if (leaf->before >= 0) value[leaf->before] = *tape_gradient(value[leaf->value]);
    }
}

bool leaves_take(const Entry *entry, Tensor *const *value, LeafResult *result, void *made) {
    bool done = true;
    for (int i = 0; i < length(entry->trace->leaf); i++) {
        const TraceLeaf *leaf = &entry->trace->leaf[i];
        if (leaf->after == LEAF_SAME) continue;
        Tensor **gradient = tape_gradient(value[leaf->value]), *now = NULL;
        if (leaf->after >= 0 && !(now = cb_keep(result(entry, leaf->after, made)))) done = false;
        if (now) now->owners = 1;
        tensor_destroy(*gradient);
        *gradient = now;
    }
    return done;
}
