/* The one door: every op call passes apply().
 *     cb_add(x, 1.0) -> apply(OP_add, {x, 1.0}, attrs) -> the thread's tracer, or eager
 * A NULL operand ends there: NULL comes back. */
#ifndef CARBIDE_TENSOR_APPLY_H
#define CARBIDE_TENSOR_APPLY_H

#include "tensor/tensor.h"

Tensor *apply(Op op, const cb_operand *input, int input_count, const Attrs *attrs);
Tensor *apply_assign(Tensor *target, const cb_operand *value);
/* The same for the result of an op in place, which must not be of a higher kind than the target:
 * a float of an integer one. */
Tensor *apply_result(Tensor *target, Tensor *result);

/* A call as users make it: the op, and what it writes to besides (tensor/running.c). The statistics
 * of x by channel that a norm moves its running ones towards; false with an error. */
Tensor *norm_moved(Tensor *y, Op op, const cb_operand *input, const Attrs *attrs);
bool norm_statistics(Op op, Tensor *x, Tensor **mean, Tensor **var);
static inline Tensor *apply_call(Op op, const cb_operand *input, int input_count,
                                 const Attrs *attrs) {
    Tensor *y = apply(op, input, input_count, attrs);
    bool moves = op == OP_batch_norm || op == OP_instance_norm;
    return moves ? norm_moved(y, op, input, attrs) : y;
}

/* A call of the user's, with handles in input, which become tensors, and for the result. */
cb_tensor *apply_handles(Op op, cb_operand *input, int input_count, const Attrs *attrs);

Tensor *tensors_cat(Tensor *const *x, int count, int dim); /* cb_cat, inside */

/* What stands in for eager while a thread records: capture (graph) or symbolic trace (FX). */
typedef enum TensorAccess {
    ACCESS_NOW,     /* its elements are read or written before the call returns */
    ACCESS_POINTER, /* a pointer to them leaves: nobody sees when they are read or written */
    ACCESS_CHANGE   /* the caller says that it writes them through such a pointer */
} TensorAccess;

typedef struct Tracer Tracer;
struct Tracer {
    Tensor *(*apply)(Tracer *tracer, Op op, const cb_operand *input, int input_count,
                     const Attrs *attrs);
    Tensor *(*assign)(Tracer *tracer, Tensor *target, const cb_operand *value);
    /* A value request; false with an error. Also asked for a tensor that has storage, since what
     * was recorded may be due to write it, or to read what the caller is about to change: true
     * when nothing is. */
    bool (*materialize)(Tracer *tracer, Tensor *x, TensorAccess access);
    /* Any tensor of the thread is about to die, traced or not. May be NULL. */
    void (*destroy_tensor)(Tracer *tracer, Tensor *x);
    bool whole_calls; /* records calls, with all that they write to */
    uint64_t serial;
};
Tracer *tracer_current(void);
Tracer *tracer_set(Tracer *tracer); /* returns the one before */
uint64_t serial_next(void);         /* unique numbers for traces and storages */

/* The dtype that autocast computes in, CB_SAME: off. Sets it without a scope; returns the one
 * before. For what works on op calls that are converted already. */
cb_dtype autocast_set(cb_dtype dtype);
/* Around a function of the user's: its autocast scopes are its own. False when it left some open,
 * which are closed then. */
typedef struct AutocastFrame {
    int depth, base;
    cb_dtype lower;
} AutocastFrame;
AutocastFrame autocast_enter(void);
AutocastFrame autocast_frame(void); /* as it is now, to leave to it from further inside */
bool autocast_leave(AutocastFrame frame);

/* Calls a function of the user's with handles; its results, as many as come back, are tensors. It
 * may fill CB_MAX_ARGS of them. It is given room for OUTPUT_ROOM, so that one which fills more, and
 * says so, is an error and not a write to somebody else's memory. */
enum { OUTPUT_ROOM = 16 * CB_MAX_ARGS };
static inline int tensors_call(cb_function_n *function, Tensor *const *inputs, int count,
                               Tensor **outputs, void *user) {
    cb_tensor *handle[CB_MAX_ARGS];
    tensors_out(inputs, count, handle);
    for (int i = 0; i < CB_MAX_ARGS; i++) outputs[i] = NULL;
    int given = function(handle, count, outputs, user);
    if (given > CB_MAX_ARGS)
        return fail(CB_ERR_ARGUMENT, "the function returned %d tensors, more than %d", given,
                    CB_MAX_ARGS);
    if (given <= 0 || tensors_in(outputs, given, "a result of the function", outputs)) return given;
    return cb_error_status();
}

/* Eager execution of one op on real tensors: run/eager.c, the layer above that this one declares.
 * Views are already done; attrs are not yet canonical. */
Tensor *eager_apply(Op op, const cb_operand *input, int input_count, const Attrs *attrs);
/* Writes value, broadcast and converted, into target's elements. */
bool eager_assign(Tensor *target, const cb_operand *value);

/* The random state: one draw takes one offset (tensor/random.c). */
typedef struct RandomState {
    int64_t seed, offset;
} RandomState;
RandomState random_take(int draws); /* state for the first of them; advances by draws */

#endif
