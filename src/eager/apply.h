/* The door of op calls, with an entrance for each who comes:
 *
 *     cb_add(x, 1.0)      apply_two: two operands and no attributes
 *     cb_softmax(x, -1)   apply_handles: any other op of the user's
 *     cb_add_(x, 1.0)     in_place (apply.c): to eager, or by apply_handles and an assignment
 *     inside              apply; apply_call for what may move statistics: operands are tensors
 *     cb_split(x, 2, 0)   several.c, selected.c: public functions of a few calls of apply
 *
 * The first two ask the thread's tracer whether it expects the op (Tracer.expect_two and expect):
 * one that repeats a trace does, and the op ends there. All others come to Tracer.apply or to
 * eager. A NULL operand ends at the door: NULL comes back. */
#ifndef CARBIDE_EAGER_APPLY_H
#define CARBIDE_EAGER_APPLY_H

#include "tensor/tracer.h"

Tensor *apply(Op op, const cb_operand *input, int input_count, const Attrs *attrs);
Tensor *apply_to(Tensor *x, cb_dtype dtype); /* the op `to` */
Tensor *apply_assign(Tensor *target, const cb_operand *value);
const char *write_name(void); /* what the user called it, for errors */
/* The same for the result of an op in place, which must not be of a higher kind than the target:
 * a float of an integer one. */
Tensor *apply_result(Tensor *target, Tensor *result);
/* The op in place, attributes as they are by default: target's own elements take the result where
 * nothing traces, which needs no memory besides. An operand that shares memory with target is
 * target, and read element by element, or not at all; no gradient follows. */
Tensor *apply_into(Tensor *target, Op op, const cb_operand *input, int input_count);

/* Whether input i of the op is a statistic that it moves, and does not read (running.c). */
bool norm_moves(Op op, const Attrs *attrs, int i);
/* The result y of a norm, when it has moved its running statistics; NULL with an error. */
Tensor *norm_moved(Tensor *y, Op op, const cb_operand *input, const Attrs *attrs);
/* The statistics of x by channel that a norm moves its running ones towards; false with an
 * error. */
bool norm_statistics(Op op, Tensor *x, Tensor **mean, Tensor **var);
/* Around all that moves statistics: a scope in which nothing is remembered, and whose reads no
 * checkpoint is held to. False: a checkpoint's function runs again, and they have moved. */
typedef struct NormMove {
    struct Checkpoint *checkpoint; /* the thread's */
} NormMove;
bool norm_move_begin(NormMove *move);
void norm_move_end(const NormMove *move);
/* A call as users make it: the op, and what it writes to besides. */
Tensor *apply_call(Op op, const cb_operand *input, int input_count, const Attrs *attrs);

/* A call of the user's, with handles in input, which become tensors, and for the result; of two
 * operands and no attributes. The same where the tracer does not expect the op. */
cb_tensor *apply_handles(Op op, cb_operand *input, int input_count, const Attrs *attrs);
cb_tensor *apply_two(cb_operand a, cb_operand b, int op);
cb_tensor *apply_unexpected(Op op, cb_operand *input, int input_count, const Attrs *attrs);
cb_tensor *apply_two_unexpected(cb_operand a, cb_operand b, int op, Tracer *tracer);

/* The op on operands that autocast has converted (autocast.c). */
Tensor *autocast_apply(Op op, const cb_operand *input, int input_count, const Attrs *attrs);

Tensor *tensors_cat(Tensor *const *x, int count, int dim); /* cb_cat, inside */

#endif
