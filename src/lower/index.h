/* Index arithmetic in normal form: affine sums with floor-division and remainder.
 *
 *     ((i / 8) * 8 + i % 8)  ->  i           (a0*64 + a1) % 64, a1 < 64  ->  a1
 *     i % 64 / 8             ->  i / 8 % 8   i / 8 % 8 * 8 + i % 8        ->  i % 64
 *
 * A normal form is a sum: terms ordered by expression id, each an atom or atom * constant, a
 * constant last; an atom is an axis, a floor-division, a remainder or a value that index arithmetic
 * cannot see into (a loaded index). Expressions are interned, so equal normal forms are one
 * pointer, and "reads the same element" is a pointer comparison. Division is floor division for
 * every sign; divisors are positive. */
#ifndef CARBIDE_LOWER_INDEX_H
#define CARBIDE_LOWER_INDEX_H

#include "lower/loop.h"

/* Numbers of elements, and in positions, as texts hold them. */
static inline bool index_writes(int64_t number) {
    const int64_t most = INT64_C(1) << 50;
    return number <= most && number >= -most;
}

/* A quotient or remainder as positions are made of. One that a user divides by another value, by 0
 * or by what is negative is a value like any other. */
static inline bool index_divides(const Expr *e, Op op) {
    return e->op == op && e->input[1]->op == OP_constant && e->input[1]->imm.i > 0;
}

/* Numbers added, scaled and divided, or a coordinate; and whether there is nothing else below. */
bool index_is_arithmetic(const Expr *e);
bool index_is_computed(const Expr *e);
/* Does walking axis `next` to its end and stepping `axis` once continue with the same stride? */
bool index_continues(Kernel *kernel, Expr *index, int axis, int next);

Expr *index_add(Kernel *kernel, Expr *a, Expr *b);
Expr *index_scale(Kernel *kernel, Expr *a, int64_t factor);
Expr *index_divide(Kernel *kernel, Expr *a, int64_t divisor);
Expr *index_remainder(Kernel *kernel, Expr *a, int64_t divisor);
Expr *index_offset(Kernel *kernel, Expr *a, int64_t offset); /* a + offset */

/* The index where the condition holds: of q % k == 0 it is told that q / k * k is q. */
Expr *index_where(Kernel *kernel, Expr *index, const Expr *condition);

/* position < number, or >= number, said of the one coordinate or value that the position is made
 * of: 2 * (i / 3) - 1 < 4 is i < 9. */
Expr *index_compare(Kernel *kernel, Op op, Expr *position, int64_t number);

/* Row-major: position -> flat index and back. sizes outer to inner. */
/* The sum of position[i] * stride[i]. */
Expr *index_dot(Kernel *kernel, int rank, const int64_t *stride, Expr *const *position);
Expr *index_flatten(Kernel *kernel, int rank, const int64_t *size, Expr *const *position);
void index_unflatten(Kernel *kernel, int rank, const int64_t *size, Expr *flat, Expr **position);

#endif
