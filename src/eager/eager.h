/* Eager: one op, run at once on the vector VM (eager.c). */
#ifndef CARBIDE_EAGER_EAGER_H
#define CARBIDE_EAGER_EAGER_H

#include "run/execute.h"

/* A number where an executable wants a tensor: lives as long as one call, in its caller's frame. */
typedef struct Number {
    Scalar value;
    Storage storage;
    Tensor tensor;
} Number;
Tensor *number_wrap(Number *number, const cb_operand *operand);
Tensor *number_hold(Number *number, cb_dtype dtype, Scalar value); /* f64, i64 or bool */

/* An op on real tensors, where the door (apply.c) has done views already; attrs are not yet
 * canonical. */
Tensor *eager_apply(Op op, const cb_operand *input, int input_count, const Attrs *attrs);
/* The same into target's elements, of which none is read after the one at its place is written:
 * without a tensor for the result where it is of target's sizes and dtype and target is contiguous,
 * and else as the assignment of one. */
bool eager_into(Tensor *target, Op op, const cb_operand *input, int input_count);
/* x = op(x, ...) on x's own elements, where the result has x's sizes and dtype: then x
 * itself comes back. Otherwise a new tensor, to be assigned to it; NULL with an error. */
Tensor *eager_in_place(Op op, const cb_operand *input, int input_count);
/* A new tensor of which every element is the number. */
Tensor *eager_full(const Meta *meta, cb_operand number);
/* A copy in a storage of its own, contiguous. */
Tensor *eager_clone(Tensor *x);
/* Writes value, broadcast and converted, into target's elements. */
bool eager_assign(Tensor *target, const cb_operand *value);

void eager_cleanup(void); /* for cb_cleanup: frees the built ops; no op may run meanwhile */

typedef struct EagerEntry EagerEntry;

/* Of an op's operands, as bits: those that its gradient takes as inputs; reads, of these; and has
 * results for, in their order. */
typedef struct GradientNeeds {
    uint16_t fed, read, produced;
    bool followed; /* the op's result depends on a wanted one, and has a history (grad_reach) */
} GradientNeeds;
/* The gradients of an op by its wanted operands (bits): held until it is released; NULL with an
 * error. Its inputs are the operands that are fed, then the result's gradient. */
EagerEntry *eager_gradient(Op op, const cb_operand *input, int input_count, const Attrs *attrs,
                           unsigned wanted, GradientNeeds *needs);

/* The same gradients as a graph that no pass has seen, in an arena of the caller's, where the op's
 * result is read as an OP_apart of it; NULL with an error. */
Graph *eager_gradient_graph(Arena *arena, Op op, const cb_operand *input, int input_count,
                            const Attrs *attrs, unsigned wanted, GradientNeeds *needs);

/* The cache (cache.c): keys are words, compared exactly. A found or added entry is held
 * until it is released; an entry that is thrown out while held lives until then. */
EagerEntry *eager_find(const int64_t *key, int words, uint64_t hash); /* NULL: not there */
/* Takes the executable over, also on failure, which is NULL with an error. */
EagerEntry *eager_add(const int64_t *key, int words, uint64_t hash, Executable *executable,
                      GradientNeeds needs);
GradientNeeds eager_needs(const EagerEntry *entry); /* of a gradient */
const Executable *eager_executable(const EagerEntry *entry);
void eager_release(EagerEntry *entry);

/* Built since the process began; and what the table holds now, with bytes of built ops. */
typedef struct EagerCounts {
    int64_t built, entries, bytes;
} EagerCounts;
EagerCounts eager_counts(void);

#endif
