/* Rows that are walked by whole vectors, although they end within one: what the last vector reads
 * beyond its row is there in most rows, and what it writes there the next row writes again.
 *
 *     store b1[a0*14 + a1] = amax of b0[a0*56 + a1*2 ..]      14 points as 16, but the last row
 *
 * Guards of loads are decided by the same question: where the element is in memory, it may be read
 * and left out afterwards. */
#include "base/round.h"
#include "lower/index.h"

enum { WHOLE_VECTOR = 16 }; /* lanes of f32; shorter rows are shorter vectors */

/* Compilers read lanes that lie a few elements apart as all that lies between, and where they need
 * not all of it, leave the last lane to a loop of its own: it would read behind. Windows as wide as
 * their step need all. */
static bool leaves_gaps(Kernel *kernel, int row) {
    int last = length(kernel->axis) - 1;
    int64_t apart, step;
    Expr *rest;
    for (int id = 0, count = length(kernel->expr); id < count; id++) {
        const Expr *x = kernel->expr[id];
        if (x->op != EX_load || !expr_uses_axis(x, row)) continue;
        index_linear(kernel, x->input[0], row, &apart, &rest);
        index_linear(kernel, rest, last, &step, &rest);
        bool window = last > row && step == 1;
        if (apart > 1 && !(window && kernel->axis[last].size % apart == 0)) return true;
    }
    return false;
}

/* What is no whole vector of f32 gcc takes lane by lane where these become bf16. */
static int64_t least_vector(const Kernel *kernel) {
    for (int b = 0; b < length(kernel->buffer); b++)
        if (kernel->buffer[b].dtype == CB_BF16) return WHOLE_VECTOR;
    return WHOLE_VECTOR / 2;
}

int64_t kernel_whole_row(Kernel *kernel, int row) {
    int64_t size = kernel->axis[row].size, points = WHOLE_VECTOR / 4;
    while (points < size && points < WHOLE_VECTOR) points *= 2;
    if (size > WHOLE_VECTOR) points = round_up(size, least_vector(kernel));
    return points + leaves_gaps(kernel, row);
}

/* Narrows, by outer axis, from which coordinate on a load is not before its buffer, and up to which
 * one not behind it, whatever the other coordinates are. False: nobody knows where it is. */
static bool bound_load(Kernel *kernel, const Expr *load, int row, int64_t points, int64_t *low,
                       int64_t *high) {
    int64_t stride[EXPR_AXES], first, last, most = kernel->buffer[load->imm.i].numel - 1;
    Expr *rest;
    if (!index_affine(kernel, load->input[0], stride, &rest) || rest->op != OP_constant)
        return false;
    first = last = rest->imm.i;
    for (int a = 0; a < length(kernel->axis); a++) {
        const Expr *axis = expr_axis(kernel, a);
        if (stride[a] < 0) return false;
        first += stride[a] * axis->low;
        last += stride[a] * (a == row ? points - 1 : axis->high);
    }
    for (int a = 0; a < row; a++) {
        const Expr *axis = expr_axis(kernel, a);
        int64_t per = stride[a], lack = first < 0 ? -first : 0,
                over = last > most ? last - most : 0;
        int64_t begin = !lack ? axis->low : per ? axis->low + divide_up(lack, per) : INT64_MAX;
        int64_t end = !over ? axis->high : per ? axis->high - divide_up(over, per) : -1;
        if (begin > low[a]) low[a] = begin;
        if (end < high[a]) high[a] = end;
    }
    return true;
}

static double share(const Kernel *kernel, int axis, int64_t coordinates) {
    double share = (double)coordinates / (double)kernel->axis[axis].size;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

bool kernel_bounds_rows(Kernel *kernel, int row, int64_t points, int64_t *low, int64_t *high) {
    double before = 1, behind = 1; /* shares of the rows that lack elements there */
    for (int a = 0; a < row; a++) low[a] = 0, high[a] = INT64_MAX;
    for (int id = 0, count = length(kernel->expr); id < count; id++) {
        const Expr *x = kernel->expr[id];
        if (x->op == EX_load && !bound_load(kernel, x, row, points, low, high)) return false;
    }
    for (int a = 0; a < row; a++) {
        const Expr *axis = expr_axis(kernel, a);
        before *= share(kernel, a, low[a] - axis->low);
        behind *= share(kernel, a, axis->high - high[a]);
    }
    return before + behind < 0.25;
}

/* What is stored may lie where that was loaded from (sched/in_place.c): the next row would load
 * what this one has stored beyond itself. */
static bool loads_where_it_stores(const Kernel *kernel, const Store *store) {
    for (int id = 0; id < length(kernel->expr); id++) {
        const Expr *x = kernel->expr[id];
        if (x->op == EX_load && x->input[0] == store->index) return true;
    }
    return false;
}

/* Outer points are stored one behind the other, in their own order, and nowhere else. */
bool kernel_stores_in_order(Kernel *kernel) {
    for (int s = 0; s < length(kernel->store); s++) {
        const Store *store = &kernel->store[s];
        int64_t stride[EXPR_AXES], points = 1;
        Expr *rest;
        bool sets = store->mode == STORE_SET && !store->guard;
        if (!sets || kernel->buffer[store->buffer].role != BUFFER_OUT) return false;
        if (loads_where_it_stores(kernel, store)) return false;
        if (!index_affine(kernel, store->index, stride, &rest)) return false;
        if (rest->op != OP_constant || rest->imm.i) return false;
        for (int a = length(kernel->axis) - 1; a >= 0; a--) {
            bool inner = a >= kernel->outer_count;
            if (stride[a] != (inner ? 0 : points) && kernel->axis[a].size > 1) return false;
            points *= inner ? 1 : kernel->axis[a].size;
        }
    }
    return true;
}
