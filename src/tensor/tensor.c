/* Tensor shells, their metadata, and the constructors of the public API.
 *
 * Invariants: sizes are >= 0 and their product (zeros counted as ones) times the element size
 * fits into ptrdiff_t, so no index arithmetic on a tensor overflows; strides are >= 0.
 *
 *     tensor_new(f32[2, 3]) -> strides [3, 1], offset 0, a storage of its own */
#include "tensor/thread.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a contiguous value; false when they do not fit. */
static bool byte_count(const Meta *meta, size_t *bytes) {
    int64_t extent = (int64_t)cb_dtype_size(meta->dtype);
    bool empty = false;
    for (int i = 0; i < meta->rank; i++) {
        if (meta->size[i] == 0) empty = true;
        int64_t size = meta->size[i] > 1 ? meta->size[i] : 1;
        if (__builtin_mul_overflow(extent, size, &extent)) return false;
    }
    *bytes = empty ? 0 : (size_t)extent;
    return true;
}

static Tensor *shell_of(const Meta *meta, const int64_t *stride, int64_t offset) {
    Tensor *x = tensor_alloc();
    if (!x) return NULL;
    x->storage = NULL;
    x->offset = offset;
    x->dtype = meta->dtype;
    x->rank = meta->rank;
    x->device = meta->device;
    for (int i = 0; i < meta->rank; i++) {
        x->size[i] = meta->size[i];
        x->stride[i] = stride[i];
    }
    return x;
}

Tensor *tensor_shell(const Meta *meta) {
    int64_t stride[CB_MAX_RANK];
    contiguous_strides(meta->rank, meta->size, stride);
    return shell_of(meta, stride, 0);
}

Tensor *tensor_new(const Meta *meta) {
    size_t bytes;
    if (!byte_count(meta, &bytes)) {
        fail_memory(SIZE_MAX);
        return NULL;
    }
    Storage *storage = storage_new_on(meta->device, bytes);
    if (!storage) return NULL;
    Tensor *x = tensor_shell(meta);
    if (!x) {
        storage_release(storage);
        return NULL;
    }
    x->storage = storage;
    return x;
}

Tensor *tensor_view_of(const Tensor *base, const Meta *meta, const int64_t *stride,
                       int64_t offset) {
    Tensor *x = shell_of(meta, stride, offset);
    if (!x) return NULL;
    if (base->storage) x->storage = storage_retain(base->storage);
    x->device = base->device;
    return x;
}

Tensor *tensor_alias(const Tensor *x) {
    Meta meta = tensor_meta(x);
    return tensor_view_of(x, &meta, x->stride, x->offset);
}

Tensor *tensor_double(const Tensor *x) {
    Tensor *y = tensor_alias(x);
    if (y && x->history) y->history = history_retain(x->history);
    return y;
}

History *history_retain(History *history) {
    atomic_fetch_add_explicit(&history->references, 1, memory_order_relaxed);
    return history;
}

void history_release(History *history) {
    if (atomic_fetch_sub_explicit(&history->references, 1, memory_order_acq_rel) == 1)
        history->free(history);
}

Meta tensor_meta(const Tensor *x) {
    Meta meta = {.dtype = x->dtype, .rank = x->rank, .device = x->device};
    for (int i = 0; i < x->rank; i++) meta.size[i] = x->size[i];
    return meta;
}

bool tensor_contiguous(const Tensor *x) { return strides_contiguous(x->rank, x->size, x->stride); }

bool same_tensor(const Tensor *x, const Tensor *y) {
    if (x == y) return true;
    if (x->storage != y->storage || x->offset != y->offset || x->dtype != y->dtype ||
        x->rank != y->rank || x->history != y->history)
        return false;
    for (int i = 0; i < x->rank; i++)
        if (x->size[i] != y->size[i] || x->stride[i] != y->stride[i]) return false;
    return true;
}

/* By a table of them, or of their storages; at most MOST_APART. */
static bool all_differ(Tensor *const *x, int count, bool storages) {
    const void *seen[2 * MOST_APART];
    unsigned bits = 6;
    while (1 << bits < 2 * count) bits++;
    memset(seen, 0, sizeof *seen << bits);
    for (int i = 0; i < count; i++) {
        const void *key = storages ? (const void *)x[i]->storage : x[i];
        uint64_t at = (uintptr_t)key * UINT64_C(0x9E3779B97F4A7C15) >> (64 - bits);
        for (; seen[at]; at = (at + 1) & ((UINT64_C(1) << bits) - 1))
            if (seen[at] == key) return false;
        seen[at] = key;
    }
    return true;
}

/* Of a few, as most calls have: no two are of one storage. */
static bool few_share_none(Tensor *const *x, int count) {
    for (int i = 1; i < count; i++)
        for (int k = 0; k < i; k++)
            if (x[i]->storage == x[k]->storage) return false;
    return true;
}

bool tensors_apart(Tensor *const *x, int count, int some) {
    enum { FEW_TENSORS = 8, FEW_PAIRS = 64 };
    if (count <= FEW_TENSORS) return few_share_none(x, count);
    if (count > MOST_APART || count * some <= FEW_PAIRS) return false;
    return all_differ(x, count, true);
}

bool tensors_differ(Tensor *const *x, int count) { return all_differ(x, count, false); }

void *tensor_data(const Tensor *x) {
    if (!x->storage) return NULL;
    char *first = x->storage->data;
    return x->offset ? first + x->offset * (int64_t)cb_dtype_size(x->dtype) : first;
}

size_t tensor_span_bytes(const Tensor *x) {
    int64_t last = 0;
    for (int i = 0; i < x->rank; i++) {
        if (x->size[i] == 0) return 0;
        last += (x->size[i] - 1) * x->stride[i];
    }
    return (size_t)(last + 1) * cb_dtype_size(x->dtype);
}

/* ---- overlaps ------------------------------------------------------------------------------ */

bool tensors_overlap(const Tensor *x, const Tensor *y) {
    if (x->storage != y->storage) return false;
    int64_t x_start = x->offset * (int64_t)cb_dtype_size(x->dtype);
    int64_t y_start = y->offset * (int64_t)cb_dtype_size(y->dtype);
    return x_start < y_start + (int64_t)tensor_span_bytes(y) &&
           y_start < x_start + (int64_t)tensor_span_bytes(x);
}

typedef struct ByteSpan { /* bytes of a storage */
    const Storage *storage;
    int64_t start, end;
    int tensor;
} ByteSpan;

static int compare_spans(const void *a, const void *b) {
    const ByteSpan *x = a, *y = b;
    if (x->storage != y->storage) return (uintptr_t)x->storage < (uintptr_t)y->storage ? -1 : 1;
    return (x->start > y->start) - (x->start < y->start);
}

static int list_spans(Tensor *const *x, int count, ByteSpan *span) {
    int spans = 0;
    bool sorted = true;
    for (int i = 0; i < count; i++) {
        int64_t start = x[i]->offset * (int64_t)cb_dtype_size(x[i]->dtype);
        int64_t bytes = (int64_t)tensor_span_bytes(x[i]);
        if (!bytes) continue;
        span[spans] = (ByteSpan){x[i]->storage, start, start + bytes, i};
        sorted &= !spans || compare_spans(&span[spans - 1], &span[spans]) <= 0;
        spans++;
    }
    if (!sorted) qsort(span, (size_t)spans, sizeof *span, compare_spans);
    return spans;
}

void tensors_mark_overlaps(Tensor *const *x, int count, bool *overlaps) {
    ByteSpan span[MOST_APART];
    memset(overlaps, 0, sizeof *overlaps * (size_t)count);
    int spans = list_spans(x, count, span), furthest = 0; /* whose end is, of those so far */
    for (int i = 1; i < spans; i++) {
        bool same = span[i].storage == span[furthest].storage;
        if (same && span[i].start < span[furthest].end)
            overlaps[span[i].tensor] = overlaps[span[furthest].tensor] = true;
        if (!same || span[i].end > span[furthest].end) furthest = i;
    }
}

/* ---- the public API ------------------------------------------------------------------------ */

static bool check_sizes(const char *what, cb_dim_list sizes, cb_dtype dtype, Meta *meta,
                        size_t *bytes) {
    if (dtype < 0 || dtype >= CB_DTYPE_COUNT) {
        fail(CB_ERR_DTYPE, "%s: %d is not a dtype", what, (int)dtype);
        return false;
    }
    if (sizes.count < 0 || sizes.count > CB_MAX_RANK) {
        fail(CB_ERR_SHAPE, "%s: %d sizes; a tensor has 0 to %d dimensions", what, sizes.count,
             CB_MAX_RANK);
        return false;
    }
    *meta =
        (Meta){.dtype = dtype, .rank = (uint8_t)sizes.count, .device = (uint8_t)device_default()};
    for (int i = 0; i < sizes.count; i++) {
        if (sizes.at[i] < 0) {
            fail(CB_ERR_SHAPE, "%s: size %lld of dimension %d is negative", what,
                 (long long)sizes.at[i], i);
            return false;
        }
        meta->size[i] = sizes.at[i];
    }
    if (!byte_count(meta, bytes)) {
        fail(CB_ERR_SHAPE, "%s: the sizes are too large: their product overflows", what);
        return false;
    }
    return true;
}

cb_tensor *cb_empty(cb_dim_list sizes, cb_dtype dtype) {
    Meta meta;
    size_t bytes;
    return check_sizes("empty", sizes, dtype, &meta, &bytes) ? tensor_out(tensor_new(&meta)) : NULL;
}

bool tensor_data_fits(const char *what, cb_dtype dtype) {
    int pointed = (int)dtype / 16 + 3, named = (int)dtype % 16;
    if (dtype < 16 || pointed >= CB_DTYPE_COUNT || named >= CB_DTYPE_COUNT) return true;
    fail(CB_ERR_DTYPE, "%s: the pointer is to %s, and the dtype is %s: a void pointer is believed",
         what, cb_dtype_name((cb_dtype)pointed), cb_dtype_name((cb_dtype)named));
    return false;
}

cb_tensor *cb_from_data(const void *data, cb_dtype dtype, cb_dim_list sizes) {
    Meta meta;
    size_t bytes;
    if (!tensor_data_fits("from_data", dtype)) return NULL;
    if (!check_sizes("from_data", sizes, dtype, &meta, &bytes)) return NULL;
    if (!data && bytes) {
        fail(CB_ERR_ARGUMENT, "from_data: data is NULL");
        return NULL;
    }
    Tensor *x = tensor_new(&meta);
    if (x && !devices[x->device]->upload(x->storage->data, data, bytes)) return NULL;
    return tensor_out(x);
}

bool tensor_known(const Tensor *x, const char *what) {
    if (x->dtype >= 0) return true;
    fail(CB_ERR_GRAPH,
         "%s: dtype and size are not known in a symbolic trace without example inputs", what);
    return false;
}

/* Refusals, apart from the functions below, which take a few nanoseconds. */
#define REFUSING static __attribute__((noinline, cold))

REFUSING Tensor *present_other(const cb_tensor *handle, const char *what) {
    Tensor *x = tensor_in(handle, what);
    if (!x) fail(CB_ERR_ARGUMENT, "%s: x is NULL", what);
    return x && tensor_known(x, what) ? x : NULL;
}

/* The tensor of a handle; NULL with an error when there is none, or its shape is not known. */
static inline Tensor *present(const cb_tensor *handle, const char *what) {
    Tensor *x;
    return handle_lives(handle, &x) && x->dtype >= 0 ? x : present_other(handle, what);
}

REFUSING int refuse_position(const Tensor *x, int dim, const char *what) {
    char text[128];
    Meta meta = tensor_meta(x);
    meta_format(&meta, text, sizeof text);
    fail(CB_ERR_INDEX, "%s: %s has no dimension %d", what, text, dim);
    return -1;
}

/* The dimension counted from the front, or -1 with an error. */
static inline int position(const Tensor *x, int dim, const char *what) {
    if (!x) return -1;
    int i = dim < 0 ? dim + x->rank : dim;
    return i >= 0 && i < x->rank ? i : refuse_position(x, dim, what);
}

int cb_rank(const cb_tensor *handle) {
    const Tensor *x = present(handle, "rank");
    return x ? x->rank : -1;
}

int64_t cb_size(const cb_tensor *handle, int dim) {
    const Tensor *x = present(handle, "size");
    int i = position(x, dim, "size");
    return i < 0 ? -1 : x->size[i];
}

static void meet_layout(Tensor *x, Tensor *y) {
    Tracer *tracer = tracer_current();
    if (tracer && tracer->meet_layout) tracer->meet_layout(tracer, x, y);
}

int64_t cb_stride(const cb_tensor *handle, int dim) {
    Tensor *x = present(handle, "stride");
    int i = position(x, dim, "stride");
    if (i < 0) return -1;
    meet_layout(x, NULL);
    return x->stride[i];
}

int64_t cb_numel(const cb_tensor *handle) {
    const Tensor *x = present(handle, "numel");
    return x ? sizes_numel(x->rank, x->size) : -1;
}

cb_dtype cb_dtype_of(const cb_tensor *handle) {
    const Tensor *x = present(handle, "dtype_of");
    return x ? x->dtype : CB_SAME;
}

bool cb_is_contiguous(const cb_tensor *handle) {
    const Tensor *x = present(handle, "is_contiguous");
    return x && tensor_contiguous(x);
}

static const void *storage_of(const Tensor *x) {
    Tracer *tracer = x->storage ? NULL : tracer_current();
    return tracer && tracer->storage_of ? tracer->storage_of(tracer, x) : x->storage;
}

bool cb_shares_storage(const cb_tensor *a, const cb_tensor *b) {
    Tensor *x = present(a, "shares_storage"), *y = present(b, "shares_storage");
    if (!x || !y) return false;
    meet_layout(x, y);
    const void *storage = storage_of(x);
    return storage && storage == storage_of(y);
}
