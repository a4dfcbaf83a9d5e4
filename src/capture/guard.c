/* Guards: what an entry was compiled for, and whether a call's inputs are that.
 *
 * dtype, rank and sizes must be equal; so must strides, unless both are contiguous. Which tensors
 * share memory is no guard: it matters only for an entry that writes in place, which checks it
 * before it runs (entry.c). */
#include "capture/function.h"

#include <string.h>

void guard_make(Guard *guard, const Tensor *x) {
    memset(guard, 0, sizeof *guard);
    guard->dtype = x->dtype;
    guard->rank = x->rank;
    guard->contiguous = tensor_contiguous(x);
    memcpy(guard->size, x->size, sizeof(int64_t) * x->rank);
    if (!guard->contiguous) memcpy(guard->stride, x->stride, sizeof(int64_t) * x->rank);
}

bool guard_holds(const Guard *guard, const Tensor *x) {
    if (guard->dtype != x->dtype || guard->rank != x->rank) return false;
    for (int i = 0; i < guard->rank; i++)
        if (guard->size[i] != x->size[i]) return false;
    if (guard->contiguous) return tensor_contiguous(x);
    for (int i = 0; i < guard->rank; i++)
        if (guard->stride[i] != x->stride[i]) return false;
    return true;
}

bool guard_same(const Guard *a, const Guard *b) { return !memcmp(a, b, sizeof *a); }

void guard_print(const Guard *guard, Buffer *out) {
    put(out, cb_dtype_name((cb_dtype)guard->dtype));
    put_sizes(out, guard->rank, guard->size);
    if (guard->contiguous) return;
    put(out, " strides ");
    put_sizes(out, guard->rank, guard->stride);
}

bool entry_guards_hold(const Entry *entry, Tensor *const *input, int input_count) {
    if (entry->input_count != input_count) return false;
    for (int i = 0; i < input_count; i++)
        if (!guard_holds(&entry->guard[i], input[i])) return false;
    return true;
}

bool tensors_overlap(const Tensor *x, const Tensor *y) {
    if (x->storage != y->storage) return false;
    int64_t x_start = x->offset * (int64_t)cb_dtype_size((cb_dtype)x->dtype);
    int64_t y_start = y->offset * (int64_t)cb_dtype_size((cb_dtype)y->dtype);
    return x_start < y_start + (int64_t)tensor_span_bytes(y) &&
           y_start < x_start + (int64_t)tensor_span_bytes(x);
}
