/* argsort and argtopk of rows: values -> indices in order, equal elements in the order in which
 * they stand.
 *
 * Every element becomes an unsigned key whose order is the wanted one: integers with the sign bit
 * turned, floats by the usual trick on their bits, -0 as 0, NaN above everything; descending turns
 * all bits around. Then short rows are merge-sorted, long ones radix-sorted by bytes (bytes that
 * all keys share are skipped), and a small top-k keeps a heap of the k best.
 *
 *     [2, NaN, -1] -> keys in order -1, 2, NaN -> [2, 0, 1] */
#include "base/parallel.h"
#include "cpu/own.h"
#include "tensor/tensor.h"
#include <stdatomic.h>
#include <string.h>

enum { RUN = 16, RADIX_FROM = 256, GRAIN_ELEMENTS = 4096, HEAP_SHARE = 16 };

typedef struct SortItem {
    uint64_t key;
    int64_t index;
} SortItem;

typedef struct Sort {
    const SortTask *task;
    const char *in;
    cb_dtype dtype;
    int64_t *out;
    _Atomic bool failed;
} Sort;

/* Equal keys never meet twice with the same index, so this order is total and every sort by it is
 * stable. */
static bool before(SortItem a, SortItem b) {
    return a.key < b.key || (a.key == b.key && a.index < b.index);
}

/* ---- keys ---- */

static uint64_t key_of_float(double value) {
    uint64_t bits;
    if (value != value) return UINT64_MAX;
    value += 0.0; /* -0 becomes 0 */
    memcpy(&bits, &value, sizeof bits);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

/* Keys of narrow floats keep their upper bits only, so that the radix sort has fewer bytes to
 * do. */
static uint64_t key_of_narrow(float value) {
    uint32_t bits;
    if (value != value) return UINT32_MAX;
    value += 0.0f;
    memcpy(&bits, &value, sizeof bits);
    return bits >> 31 ? ~bits : bits | (uint32_t)1 << 31;
}

#define KEYS(id, type, expression)                                                                 \
    case CB_##id:                                                                                  \
        for (int64_t i = 0; i < count; i++) {                                                      \
            type x = ((const type *)row)[i * stride];                                              \
            item[i] = (SortItem){(expression) ^ turn, i};                                          \
        }                                                                                          \
        break;
/* The least integer of a type, which becomes key 0: keys of narrow ones have few bytes. */
#define LEAST(type) ((type)-1 < 1 ? UINT64_MAX << (8 * sizeof(type) - 1) : 0)

/* All that are not the same in every key. */
static int key_bytes(cb_dtype dtype) {
    return dtype_is_half(dtype) ? (int)sizeof(float) : (int)cb_dtype_size(dtype);
}

static void make_keys(const void *row, cb_dtype dtype, int64_t stride, int64_t count,
                      bool descending, SortItem *item) {
    uint64_t turn = descending ? UINT64_MAX : 0;
    switch (dtype) {
#define BOOL_ROW(id, name, storage, ...) KEYS(id, storage, (uint64_t)(x != 0))
#define NARROW_ROW(id, name, storage, ...) KEYS(id, storage, (uint64_t)x - LEAST(storage))
#define INTEGER_ROW NARROW_ROW
#define HALF_ROW(id, name, storage, ...) KEYS(id, storage, key_of_narrow(name##_to_f32(x)))
#define FLOAT_ROW(id, name, storage, ...)                                                          \
    KEYS(id, storage, sizeof x == sizeof(float) ? key_of_narrow((float)x) : key_of_float(x))
#include "op/dtype_rows.h"
    default:
        check(false, "sort of dtype %d", (int)dtype);
    }
}

/* ---- three ways to sort; each leaves the result in item ---- */

static void insertion_sort(SortItem *item, int64_t count) {
    for (int64_t i = 1; i < count; i++) {
        SortItem moving = item[i];
        int64_t at = i;
        for (; at > 0 && before(moving, item[at - 1]); at--) item[at] = item[at - 1];
        item[at] = moving;
    }
}

static void merge(const SortItem *low, const SortItem *high, const SortItem *end, SortItem *out) {
    const SortItem *a = low, *b = high;
    while (a < high && b < end) *out++ = before(*b, *a) ? *b++ : *a++;
    while (a < high) *out++ = *a++;
    while (b < end) *out++ = *b++;
}

static void merge_sort(SortItem *item, SortItem *other, int64_t count) {
    for (int64_t i = 0; i < count; i += RUN)
        insertion_sort(item + i, count - i < RUN ? count - i : RUN);
    SortItem *from = item, *to = other;
    for (int64_t width = RUN; width < count; width *= 2) {
        for (int64_t i = 0; i < count; i += 2 * width) {
            int64_t middle = i + width < count ? i + width : count;
            int64_t end = i + 2 * width < count ? i + 2 * width : count;
            merge(from + i, from + middle, from + end, to + i);
        }
        SortItem *swapped = from;
        from = to, to = swapped;
    }
    if (from != item) memcpy(item, from, (size_t)count * sizeof *item);
}

/* Keys have so many bytes that may differ. Where the sorted items are: in either block. */
static const SortItem *radix_sort(SortItem *item, SortItem *other, int64_t count, int bytes) {
    int64_t histogram[8][256] = {0};
    for (int64_t i = 0; i < count; i++)
        for (int byte = 0; byte < bytes; byte++) histogram[byte][item[i].key >> 8 * byte & 255]++;
    SortItem *from = item, *to = other;
    for (int byte = 0; byte < bytes; byte++) {
        int64_t *start = histogram[byte], sum = 0;
        if (start[item[0].key >> 8 * byte & 255] == count) continue;
        for (int value = 0; value < 256; value++) {
            int64_t here = start[value];
            start[value] = sum, sum += here;
        }
        for (int64_t i = 0; i < count; i++) to[start[from[i].key >> 8 * byte & 255]++] = from[i];
        SortItem *swapped = from;
        from = to, to = swapped;
    }
    return from;
}

/* Restores the heap below `at`: the parent is the last in order of its family. */
static void sift(SortItem *heap, int64_t count, int64_t at) {
    SortItem moving = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && before(heap[child], heap[child + 1])) child++;
        if (!before(moving, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

/* The first `keep` of the order, sorted, at the front of item. */
static void select_first(SortItem *item, SortItem *other, int64_t count, int64_t keep) {
    for (int64_t i = keep / 2 - 1; i >= 0; i--) sift(item, keep, i);
    for (int64_t i = keep; i < count; i++)
        if (before(item[i], item[0])) {
            item[0] = item[i];
            sift(item, keep, 0);
        }
    merge_sort(item, other, keep);
}

/* ---- entry ---- */

/* In elements. */
static int64_t row_start(const SortTask *task, int64_t row) {
    int64_t start = task->offset;
    for (int d = task->row_rank - 1; d >= 0; d--) {
        start += row % task->row_size[d] * task->row_stride[d];
        row /= task->row_size[d];
    }
    return start;
}

static void sort_rows(void *user, int64_t low, int64_t high) {
    Sort *sort = user;
    const SortTask *task = sort->task;
    Storage *storage = storage_new(2 * (size_t)task->length * sizeof(SortItem));
    if (!storage) {
        atomic_store_explicit(&sort->failed, true, memory_order_relaxed);
        return;
    }
    SortItem *item = storage->data, *other = item + task->length;
    int bytes = key_bytes(sort->dtype);
    for (int64_t row = low; row < high; row++) {
        const char *in = sort->in + row_start(task, row) * (int64_t)cb_dtype_size(sort->dtype);
        make_keys(in, sort->dtype, task->element, task->length, task->descending, item);
        const SortItem *sorted = item;
        if (task->keep > 0 && task->keep <= task->length / HEAP_SHARE)
            select_first(item, other, task->length, task->keep);
        else if (task->length >= RADIX_FROM)
            sorted = radix_sort(item, other, task->length, bytes);
        else
            merge_sort(item, other, task->length);
        int64_t *out = sort->out + row * task->keep;
        for (int64_t i = 0; i < task->keep; i++) out[i] = sorted[i].index;
    }
    storage_release(storage);
}

bool sort_run(const SortTask *task, const Operands *operands) {
    Sort sort = {.task = task, .in = operands->in[0], .dtype = task->dtype, .out = operands->out};
    parallel_for(task->rows, GRAIN_ELEMENTS / task->length + 1, sort_rows, &sort);
    return !atomic_load_explicit(&sort.failed, memory_order_relaxed);
}
