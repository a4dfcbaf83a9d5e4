/* Rows that lie one behind the other, walked as one run.
 *
 *     store b2[a0*9 + a1] = b0[a0*9 + a1] * b1[a0]     one run; b1 has one value for each row
 *
 * Kernel in, answer out. */
#include "lower/index.h"

/* Whether e is a place among the points of these axes. */
static bool is_position(const Expr *e, uint32_t axes) {
    return (e->axes & axes) && index_is_computed(e);
}

static bool load_is_flat(Kernel *kernel, const Expr *e, int axis, bool guarded) {
    return (guarded || e->input_count == 1) && index_continues(kernel, e->input[0], axis - 1, axis);
}

/* Values of a point are made of loads along the run, and of values of its row or its column alone.
 */
static bool value_is_flat(Kernel *kernel, const Expr *e, int axis, bool guarded) {
    uint32_t both = 3u << (axis - 1);
    if (e->op == EX_scan) return false; /* starts anew in every row, whatever it adds up */
    if ((e->axes & both) != both || index_is_computed(e)) return true;
    if (e->op == EX_load) return load_is_flat(kernel, e, axis, guarded);
    for (int k = 0; k < e->input_count; k++)
        if (is_position(e->input[k], both)) return false;
    return true;
}

static bool store_is_flat(Kernel *kernel, const Store *store, int axis) {
    uint32_t both = 3u << (axis - 1);
    if (!((store->index->axes | store->value->axes) >> axis & 1)) return true; /* of a row */
    return store->mode == STORE_SET && !store->guard && !is_position(store->value, both) &&
           (store->index->axes & both) == both &&
           index_continues(kernel, store->index, axis - 1, axis);
}

bool kernel_runs_flat(Kernel *kernel, int axis, bool guarded) {
    for (int b = 0; b < length(kernel->buffer); b++)
        if (kernel->buffer[b].role == BUFFER_INOUT) return false;
    for (int id = 0, count = length(kernel->expr); id < count; id++)
        if (!value_is_flat(kernel, kernel->expr[id], axis, guarded)) return false;
    for (int s = 0; s < length(kernel->store); s++)
        if (!store_is_flat(kernel, &kernel->store[s], axis)) return false;
    return true;
}
