/* What a kernel does to its rows, by which their lanes are chosen: along a short row, or across as
 * many as there are (sched/form.c, codegen/c/prepare.c).
 *
 *     softmax       two folds, a store of every point, an exponential: dear
 *     sum(x, 1)     one fold of values that are read: not dear */
#include "lower/index.h"

RowWork kernel_row_work(const Kernel *kernel) {
    RowWork work = {0};
    for (int s = 0; s < length(kernel->store); s++)
        work.stores |= expr_uses_inner(kernel, kernel->store[s].index);
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *x = kernel->expr[i];
        work.reduces += x->op == EX_reduce;
        bool computes = x->op < OP_COUNT && x->op != OP_constant && !index_is_arithmetic(x);
        int *cost = expr_uses_inner(kernel, x) ? &work.points : &work.rows;
        if (computes) *cost += op_info(x->op)->cost;
    }
    return work;
}

bool row_is_dear(const RowWork *work) {
    bool costs = work->points + work->rows >= DEAR_POINT;
    return work->reduces && (work->stores || work->reduces > 1 || costs);
}
