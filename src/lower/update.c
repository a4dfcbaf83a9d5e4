/* Whether a kernel may store where its own loads come from.
 *
 *     load b0[a0], store b1[a0] = mul(t0, 2)      b1 may lie where b0 does
 *     load b0[a0 + 1], store b1[a0] = t0          it may not */
#include "lower/loop.h"

static bool loads(const Kernel *kernel, const Expr *e, int input) {
    return e->op == EX_load && kernel->buffer[e->imm.i].value == input;
}

/* Does what the store writes, or where, depend on elements of input? */
static bool store_uses(const Kernel *kernel, const Store *store, int input) {
    bool *seen = arena_new_array(kernel->arena, bool, length(kernel->expr) + 1);
    seen[store->value->id] = seen[store->index->id] = true;
    if (store->guard) seen[store->guard->id] = true;
    for (int id = length(kernel->expr) - 1; id >= 0; id--) {
        const Expr *e = kernel->expr[id];
        if (!seen[id]) continue;
        if (loads(kernel, e, input)) return true;
        for (int k = 0; k < e->input_count; k++) seen[e->input[k]->id] = true;
    }
    return false;
}

bool kernel_updates(const Kernel *kernel, const Store *store, int input) {
    if (store->guard || store->mode != STORE_SET) return false;
    for (int i = 0; i < length(kernel->store); i++)
        if (&kernel->store[i] != store && store_uses(kernel, &kernel->store[i], input))
            return false;
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *e = kernel->expr[i];
        if (e->op == EX_reduce || e->op == EX_scan) return false;
        if (loads(kernel, e, input) && e->input[0] != store->index) return false;
    }
    return true;
}
