/* The tape: what eager ops computed from tensors that require a gradient, so that cb_backward can
 * go back over it. A result holds its op, an op its operands' ops and the elements that its
 * gradient reads: define by run, freed with the last result. */
#ifndef CARBIDE_EAGER_TAPE_H
#define CARBIDE_EAGER_TAPE_H

#include "tensor/tracer.h"

/* Does one of the operands have a history, in a thread that records? */
bool tape_follows(const cb_operand *input, int count);
/* Ops are being recorded, or may be: this thread records, and something requires a gradient. What
 * is compiled has no tape. */
bool tape_in_use(void);
/* Of operands with histories: would the result have one? */
bool tape_follows_result(Op op, const cb_operand *input, int count, const Attrs *attrs);
/* False with an error: the op has no gradient, and its result would. Asked before it runs. */
bool tape_takes(Op op, const Attrs *attrs);
/* Gives y, the result of the op, its history; y, or NULL with an error when there is no memory: y
 * is freed then. */
Tensor *tape_record(Tensor *y, Op op, const cb_operand *input, int count, const Attrs *attrs);
/* Dropout that draws, as ops that each have a gradient: the mask is one of them. */
Tensor *tape_dropout(Tensor *x, const Attrs *attrs);

/* Results that were computed together, by something that knows the way back from all of them
 * (together.c). */
typedef struct TogetherSteps {
    /* given[k]: the gradient of result k, contiguous; NULL: none came. out[i]: by source i, in the
     * scope; NULL: none. False with an error, of what was called. */
    bool (*go_back)(void *state, const char *what, Tensor *const *given, Tensor **out);
    /* out[k]: result k once more, in the scope, with the history of the ops that computed it, which
     * begin with those of the sources. False with an error. */
    bool (*unroll)(void *state, const char *what, History *const *source, Tensor **out);
    bool (*is_behind)(const void *state, int k, int before); /* result k, of this other one */
    bool (*is_same)(const void *state, const void *other); /* as far as gradients tell, they are
                                                            * computed alike from the same */
    void (*forget)(void *state); /* what gradients read: they are gone back over no more with it */
    void (*free)(void *state);
} TogetherSteps;
/* The history of what computed them from sources, whose histories it holds on to; state is taken
 * over. NULL with an error: no memory, and state is still the caller's. */
History *tape_together(const TogetherSteps *steps, void *state, Tensor *const *source, int count);
/* Of result k, which op gave at site: holds on to `together`. NULL with an error: no memory. */
History *tape_part(History *together, int k, const Meta *meta, Op op, Site site);

/* What x's history is a part of, or NULL. */
History *tape_whole(const Tensor *x);
/* The ops that gave the results of `together` ran once more, from what that was computed from:
 * result[k] is that of result k, or NULL. They are gone over from now on, in its place, so that one
 * leads to what else they gave. False with an error: no memory. */
bool tape_takes_ops(History *together, Tensor *const *result);

/* For tensors of the library: what comes out is kept. */
bool tape_go_back(const GoingBack *back, Tensor **out);
/* The gradients of an op as ops that are recorded (tape_ops.c): input are its operands with their
 * histories, without storage where nothing reads them; g the gradient of its result, own what that
 * result has as its history; out takes those of the wanted operands (bits), in their order. False
 * with an error. */
bool tape_ops(Op op, const cb_operand *input, int count, const Attrs *attrs, unsigned wanted,
              Tensor *g, History *own, Tensor **out);
/* False with an error: `given` (NULL: none) cannot be the gradient of something like y. */
bool tape_fits(const char *what, const Meta *y, const Meta *given);
/* A write in place that somebody's gradient would have to know of; false. */
bool tape_refuses_write(bool target);
bool tape_refuses_untracked(const char *what); /* what has no gradient to go back from; false */
/* A history in place of one that may be computed yet, or was lost: to go back over it is an error.
 * NULL: no memory. */
History *tape_promise(const Tensor *x);
bool tape_is_promised(const Tensor *x); /* that is what x has */
/* Of what op x, which has a history, is the result, and where it ran; OP_none: not known, or x is a
 * leaf. */
Op tape_origin(const Tensor *x, Site *site);
/* Where a leaf's gradient is kept, NULL for anything else. */
Tensor **tape_gradient(const Tensor *x);
bool tape_is_hooked(const Tensor *x); /* the user's code sees its gradient (hook.c) */
/* g, which is in no scope from then on, or NULL, is what a leaf has there. */
void leaf_take(Tensor **gradient, Tensor *g);
/* x has no value, and the trace that it is of is over: a leaf whose gradient it is has none. */
void leaf_forget(Tensor *x);
/* What a graph that x comes to from outside has of its history, where gradients are wanted: it goes
 * back to a leaf, and to what ops computed elsewhere, or hooks wait for, it does not. */
typedef enum __attribute__((packed)) HistoryKind {
    HISTORY_NONE,
    HISTORY_OF_LEAF,
    HISTORY_FOREIGN
} HistoryKind;
static inline HistoryKind tape_kind(const Tensor *x, bool wanted) {
    if (!wanted || !x->history) return HISTORY_NONE;
    return tape_gradient(x) && !tape_is_hooked(x) ? HISTORY_OF_LEAF : HISTORY_FOREIGN;
}

/* For the thread's checkpoint, where it has one (checkpoint.h). An op reads x: false with an error,
 * as where it runs again and x is another one. doubts: no gradient goes through the op, so that is
 * no error, but noted there; then what it makes is doubtful, and an error where one does. A write
 * to what was there before the function ran again is not done twice: may it be done? It runs again:
 * what it does besides was done. */
bool checkpoint_reads(const Tensor *x);
bool checkpoint_reads_else(const Tensor *x, bool *doubts);
bool checkpoint_doubts(const Storage *made); /* false with an error: no memory */
bool checkpoint_writes(const Storage *storage);
bool checkpoint_is_again(void);
void checkpoint_runs_graph(void); /* of which the same bits are not to be asked for */
/* What its function is told by something that is no op, such as the number of a hook: in its first
 * run that is remembered, false with an error; another one is told the same, in the same order,
 * false: this is none. */
bool checkpoint_tell(int answer);
bool checkpoint_told(int *answer);

#endif
