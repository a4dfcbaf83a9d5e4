/* Promises: the histories of what lives behind an event. What nothing went back over has its own as
 * soon as somebody meets it: of the segment's joint graph (joint.h) or, the first time, of its ops.
 *
 *     y = mul(w, x)                 w requires a gradient, so y has a history
 *     cb_grad(sum(y), ..)           one graph with y: nobody needs a tape so far
 *     cb_item(..)                   the event: the segment is left, and y is promised its history
 *     detach(y), argmax(y)          are of the next segment, which y comes to from outside
 *     mul(y, w)                     has a history that begins with y's: the promise is kept, and
 *                                   the call goes on with the tape, op by op
 *
 * A promise is a history itself, one that nobody can go back over (tape_promise), so none is lost
 * without an error. It is kept with what the ops of the segment gave when they ran one by one, or
 * by running once more those of them that it takes. Then what crossed with a history of the joint
 * graph has that of its op, too (backward_takes_ops). That is not possible after a write to what
 * they read: there the promise stays. What was gone back over is freed of it when the call ends. */
#include "capture/joint.h"
#include "capture/segment.h"

#include "base/memory.h"
#include "eager/tape.h"
#include "graph/node.h"
#include "op/custom.h"

static uint64_t version_of(const LeftSegment *left, int v) {
    const Storage *storage = left->value[v] ? left->value[v]->storage : NULL;
    return storage ? storage_version(storage) : 0;
}

static bool note_versions(LeftSegment *left) {
    size_t bytes = sizeof *left->version * (size_t)left->values;
    left->version = memory_alloc(bytes);
    if (!left->version) fail_memory(bytes);
    for (int v = 0; left->version && v < left->values; v++) left->version[v] = version_of(left, v);
    return left->version;
}

bool promises_make(LeftSegment *left) {
    History *promise = NULL;
    for (int k = 0; k < left->shells; k++) {
        Tensor *x = left->shell[k].x;
        if (!left->trace->value[left->shell[k].value].tracked) continue;
        if (!promise && !note_versions(left)) return false;
        promise = promise ? history_retain(promise) : tape_promise(x);
        if (!promise) return false;
        x->history = promise;
    }
    return true;
}

/* Nobody has gone back over what it was computed from. */
static bool has_history(const LeftShell *shell) {
    const Trace *trace = shell->left->trace;
    return trace_has_history(trace, shell->value, length(trace->op));
}

static void take_history(LeftShell *shell) {
    history_release(shell->x->history);
    shell->x->history = shell->history;
    shell->history = NULL;
}

void promise_take(LeftShell *shell, Tensor *made) {
    if (!tape_is_promised(shell->x) || !made->history) return;
    if (shell->history) history_release(shell->history);
    shell->history = made->history;
    made->history = NULL;
    if (has_history(shell)) take_history(shell);
}

void promise_forget(LeftShell *shell, bool frees) {
    if (shell->history) history_release(shell->history);
    shell->history = NULL;
    if (!frees || !shell->x || !tape_is_promised(shell->x)) return;
    history_release(shell->x->history);
    shell->x->history = NULL;
}

const char promise_followed[] =
    "an op goes on from what cb_backward went back over before a value was asked for: cb_detach it";

/* ---- keeping them ---------------------------------------------------------------------------- */

/* What the promises are of comes from these ops, over these values. */
typedef struct PromisedPart {
    Trace trace;  /* the segment's, with those ops alone */
    bool *needed; /* by value */
} PromisedPart;

static bool is_needed(const PromisedPart *part, const TraceOp *op) {
    bool needed = part->trace.draws && !op->back && op->op != OP_assign && op_may_draw(op->op);
    for (int k = 0; k < trace_op_results(op); k++) needed |= part->needed[op->result + k];
    return needed;
}

static void need_operands(PromisedPart *part, const TraceOp *op) {
    for (int k = 0; k < op->input_count; k++)
        if (op->input[k].kind == OPERAND_VALUE) part->needed[op->input[k].value] = true;
    for (int k = 0; op->back && k < op->back->count; k++)
        part->needed[trace_back_value(op->back, k)] = true;
}

/* In arena, through which it may escape. */
static PromisedPart find_part(const LeftSegment *left, Arena *arena) {
    const Trace *trace = left->trace;
    int count = length(trace->op);
    PromisedPart part = {*trace, arena_new_array(arena, bool, left->values + 1)};
    bool *takes = arena_new_array(arena, bool, count + 1);
    for (int k = 0; k < left->shells; k++)
        if (left->shell[k].x && tape_is_promised(left->shell[k].x))
            part.needed[left->shell[k].value] = true;
    if (left->together) backward_mark_roots(left->entry->backward, part.needed);
    for (int i = count - 1; i >= 0; i--) {
        takes[i] = is_needed(&part, &trace->op[i]);
        if (takes[i]) need_operands(&part, &trace->op[i]);
    }
    part.trace.op = NULL;
    for (int i = 0; i < count; i++)
        if (takes[i]) push(arena, part.trace.op, trace->op[i]);
    return part;
}

/* By the segment itself. */
static bool is_written(const LeftSegment *left, int v) {
    const Trace *trace = left->trace;
    const void *storage = value_storage(trace, left->value, v);
    for (int i = 0; i < length(trace->op); i++)
        if (trace->op[i].op == OP_assign &&
            value_storage(trace, left->value, trace->op[i].input[0].value) == storage)
            return true;
    return false;
}

/* It comes to the same, and does nothing else. */
static bool may_run_again(const LeftSegment *left, const PromisedPart *part) {
    for (int v = 0; v < left->values; v++)
        if (part->needed[v] && (left->version[v] != version_of(left, v) || is_written(left, v)))
            return false;
    for (int i = 0; i < length(part->trace.op); i++)
        if (trace_has_effects(&part->trace.op[i])) return false;
    return true;
}

/* Its ops run once more, or too much has been written to: who goes back over it will say so. */
static void run_again(LeftSegment *left) {
    cb_status before = cb_error_status();
    RandomState own = left->random;
    Arena *arena = arena_new();
    if (arena && !arena_guard(arena)) {
        PromisedPart part = find_part(left, arena);
        if (may_run_again(left, &part)) left_compute(left, &part.trace, &own);
    }
    if (before == CB_OK) cb_clear_error();
    arena_free(arena);
}

static bool owes_history(const LeftSegment *left) {
    for (int k = 0; k < left->shells; k++)
        if (left->shell[k].x && tape_is_promised(left->shell[k].x) && !left->shell[k].history)
            return true;
    return false;
}

static void keep(LeftSegment *left) {
    if (owes_history(left)) run_again(left);
    for (int k = 0; k < left->shells; k++)
        if (left->shell[k].x && left->shell[k].history) take_history(&left->shell[k]);
}

void segment_keep_promises(Call *call) {
    for (LeftSegment *left = call->left; left; left = left->next) keep(left);
}

void promise_met(LeftShell *shell) {
    if (tape_is_promised(shell->x) && has_history(shell)) run_again(shell->left);
}

bool segment_keeps_history(Call *call) {
    bool keeps = false;
    for (LeftSegment *left = call->left; left; left = left->next)
        for (int k = 0; k < left->shells; k++) {
            LeftShell *shell = &left->shell[k];
            if (!shell->x || !tape_is_promised(shell->x) || !has_history(shell)) continue;
            segment_met(call, shell->x);
            keeps |= tape_is_promised(shell->x);
        }
    return keeps;
}
