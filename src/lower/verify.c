/* What every kernel must satisfy between lowering and an engine: indices within their buffers
 * (where bounds are known), dtypes that agree, row-level stores without inner axes in their
 * index. */
#include "lower/loop.h"

#include <stdint.h>

static bool within(const Expr *index, int64_t numel) {
    return !expr_bounded(index) || index->high < index->low ||
           (index->low >= 0 && index->high < numel);
}

static bool load_ok(const Kernel *kernel, const Expr *e, Buffer *why) {
    if (e->imm.i < 0 || e->imm.i >= length(kernel->buffer)) {
        putf(why, "t%u loads from buffer %lld, which is not there", e->id, (long long)e->imm.i);
        return false;
    }
    const KernelBuffer *b = &kernel->buffer[e->imm.i];
    if (e->dtype != compute_dtype(b->dtype)) {
        putf(why, "t%u loads %s from a buffer of %s", e->id, cb_dtype_name(e->dtype),
             cb_dtype_name(b->dtype));
        return false;
    }
    if (b->role == BUFFER_OUT) {
        putf(why, "t%u loads from b%lld, which is only written", e->id, (long long)e->imm.i);
        return false;
    }
    if (e->input_count == 2 || within(e->input[0], b->numel)) return true;
    putf(why, "t%u loads b%lld[%lld..%lld] of %lld", e->id, (long long)e->imm.i,
         (long long)e->input[0]->low, (long long)e->input[0]->high, (long long)b->numel);
    return false;
}

static bool store_ok(const Kernel *kernel, int number, Buffer *why) {
    const Store *store = &kernel->store[number];
    if (store->buffer < 0 || store->buffer >= length(kernel->buffer) ||
        kernel->buffer[store->buffer].role == BUFFER_IN) {
        putf(why, "store %d writes to b%d, which is not an output", number, store->buffer);
        return false;
    }
    const KernelBuffer *b = &kernel->buffer[store->buffer];
    if (store->value->dtype != compute_dtype(b->dtype)) {
        putf(why, "store %d puts %s into a buffer of %s", number,
             cb_dtype_name(store->value->dtype), cb_dtype_name(b->dtype));
        return false;
    }
    if (!store->guard && !within(store->index, b->numel)) {
        putf(why, "store %d writes b%d[%lld..%lld] of %lld", number, store->buffer,
             (long long)store->index->low, (long long)store->index->high, (long long)b->numel);
        return false;
    }
    return true;
}

bool kernel_verify(const Kernel *kernel, Buffer *why) {
    if (kernel->split > 1 && !kernel_may_split(kernel)) {
        putf(why, "%s is split, and its inner points go in order", kernel->name);
        return false;
    }
    const bool *live = length(kernel->store) ? kernel_live(kernel, why->arena) : NULL;
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *e = kernel->expr[i];
        for (int k = 0; k < e->input_count; k++)
            if (e->input[k]->id >= e->id) {
                putf(why, "t%u uses t%u, which comes later", e->id, e->input[k]->id);
                return false;
            }
        bool reads = e->op == EX_load && (!live || live[i]); /* what is left over may be of halves
                                                              * that are moved as bits */
        if (reads && !load_ok(kernel, e, why)) return false;
        if (e->op == EX_scan && !expr_uses_inner(kernel, e)) {
            putf(why, "t%u scans, and there is no inner axis", e->id);
            return false;
        }
    }
    for (int i = 0; i < length(kernel->store); i++)
        if (!store_ok(kernel, i, why)) return false;
    return true;
}
