/* Whether a kernel may store where its own loads come from.
 *
 *     load b0[a0], store b1[a0] = mul(t0, 2)      b1 may lie where b0 does
 *     load b0[a0 + 1], store b1[a0] = t0          it may not
 *     store b1[a0] = t0 + 1, b2[a0] = t0 * 2      it may, if all values are there before a store
 *     sum of what is stored at b1[a0]             it may: the sweep that stores is the last one
 *     store b1[a0] = t0, then t0 / sum of t0      it may not: a later sweep loads t0 again
 *
 * A compiler that was told of no aliases may load behind a store what it loaded before. So nothing
 * but the store uses what is loaded; or folds and other stores do, in a kernel that is told of it
 * (KernelBuffer.shared): engines load all that an element needs before they store any of it. */
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

static bool folds(const Kernel *kernel) {
    for (int i = 0; i < length(kernel->expr); i++)
        if (kernel->expr[i]->op == EX_reduce) return true;
    return false;
}

/* No sweep behind the one that does the store, which is no row's, loads anything. */
static bool stores_last(const Kernel *kernel, const Store *store) {
    Arena *arena = arena_inner(kernel->arena);
    KernelInfo info = kernel_analyze(kernel, arena);
    bool last = info.store_pass[store - kernel->store] == info.pass_count - 1;
    arena_free(arena);
    return last;
}

static bool others_use(const Kernel *kernel, const Store *store, int input) {
    for (int i = 0; i < length(kernel->store); i++)
        if (&kernel->store[i] != store && store_uses(kernel, &kernel->store[i], input)) return true;
    return false;
}

bool kernel_updates(const Kernel *kernel, const Store *store, int input) {
    if (store->mode != STORE_SET || kernel_has_scan(kernel)) return false;
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *e = kernel->expr[i];
        if (loads(kernel, e, input) && e->input[0] != store->index) return false;
    }
    return !folds(kernel) || stores_last(kernel, store);
}

/* The buffers that are one place then. */
static bool is_of_update(const Kernel *kernel, const Store *store, int input, int buffer) {
    return buffer == store->buffer || kernel->buffer[buffer].value == input;
}

static bool must_share(const Kernel *kernel, const Store *store, int input) {
    return folds(kernel) || others_use(kernel, store, input);
}

bool kernel_shares(const Kernel *kernel, const Store *store, int input) {
    if (!must_share(kernel, store, input)) return true;
    for (int b = 0; b < length(kernel->buffer); b++)
        if (is_of_update(kernel, store, input, b) && !kernel->buffer[b].shared) return false;
    return true;
}

void kernel_share(Kernel *kernel, const Store *store, int input) {
    if (!must_share(kernel, store, input)) return;
    for (int b = 0; b < length(kernel->buffer); b++)
        if (is_of_update(kernel, store, input, b)) kernel->buffer[b].shared = true;
}
