/* Promises: the histories of what lives behind an event.
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
 * by running them so, once more. That is not possible after a write to what they read: there the
 * promise stays. A result that was gone back over is freed of it when the call ends. */
#include "capture/segment.h"

#include "eager/tape.h"

/* Together they are another number when one has been written to. */
static uint64_t versions_of(const LeftSegment *left) {
    uint64_t versions = 0;
    for (int v = 0; v < left->values; v++) {
        const Storage *storage = left->value[v] ? left->value[v]->storage : NULL;
        if (storage) versions += atomic_load_explicit(&storage->version, memory_order_relaxed);
    }
    return versions;
}

bool promises_make(LeftSegment *left) {
    History *promise = NULL;
    left->versions = versions_of(left);
    for (int k = 0; k < left->shells; k++) {
        Tensor *x = left->shell[k].x;
        if (!left->trace->value[left->shell[k].value].tracked) continue;
        promise = promise ? history_retain(promise) : tape_promise(x);
        if (!promise) return false;
        x->history = promise;
    }
    return true;
}

void promise_take(LeftShell *shell, Tensor *made) {
    if (!tape_is_promised(shell->x)) return;
    if (shell->history) history_release(shell->history);
    shell->history = made->history;
    made->history = NULL;
}

void promise_forget(LeftShell *shell, bool frees) {
    if (shell->history) history_release(shell->history);
    shell->history = NULL;
    if (!frees || !shell->x || !tape_is_promised(shell->x)) return;
    history_release(shell->x->history);
    shell->x->history = NULL;
}

bool segment_keeps_history(const Call *call) {
    for (const LeftSegment *left = call->left; left; left = left->next)
        for (int k = 0; k < left->shells; k++)
            if (left->shell[k].x && tape_is_promised(left->shell[k].x) &&
                trace_has_history(left->trace, left->shell[k].value, length(left->trace->op)))
                return true;
    return false;
}

/* ---- keeping them ---------------------------------------------------------------------------- */

/* It comes to the same. */
static bool may_run_again(const LeftSegment *left) {
    return left->versions == versions_of(left) && !trace_acts(left->trace);
}

static bool owes_history(const LeftSegment *left) {
    for (int k = 0; k < left->shells; k++)
        if (left->shell[k].x && tape_is_promised(left->shell[k].x) && !left->shell[k].history)
            return true;
    return false;
}

static void keep(LeftSegment *left) {
    cb_status before = cb_error_status();
    RandomState own = left->random;
    if (owes_history(left) && may_run_again(left) && !left_compute(left, &own) && before == CB_OK)
        cb_clear_error(); /* who goes back over it will say so */
    for (int k = 0; k < left->shells; k++) {
        LeftShell *shell = &left->shell[k];
        if (!shell->x || !shell->history) continue;
        history_release(shell->x->history);
        shell->x->history = shell->history;
        shell->history = NULL;
    }
}

void segment_keep_promises(Call *call) {
    for (LeftSegment *left = call->left; left; left = left->next) keep(left);
}

/* ---- who goes on from them ------------------------------------------------------------------- */

bool back_goes_to_promise(const GoingBack *back) {
    bool seeded = back->graph && back->given; /* and the seed's history is the gradients' */
    return tape_is_promised(back->y) || (seeded && tape_is_promised(back->given));
}
