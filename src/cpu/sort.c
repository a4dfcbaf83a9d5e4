/* argsort and argtopk of rows: values -> indices in order, equal elements in the order in which
 * they stand.
 *
 * Every element becomes an unsigned key whose order is the wanted one: integers with the sign bit
 * turned, floats by the usual trick on their bits, -0 as 0, NaN above everything; descending turns
 * all bits around. Keys of up to 32 bits are one number with their position (sort_kernel.h), wider
 * ones stand beside it. Then short rows are sorted by counting, longer ones merge-sorted, long ones
 * radix-sorted by bytes (bytes that all keys share are skipped), and a small top-k keeps a heap of
 * the k best.
 *
 *     [2, NaN, -1] -> keys in order -1, 2, NaN -> [2, 0, 1] */
#include "base/cpu.h"
#include "base/parallel.h"
#include "base/round.h"
#include "cpu/own.h"
#include "cpu/sort_kernel.h"
#include "tensor/tensor.h"
#include <stdatomic.h>
#include <string.h>

enum { RUN = 16, RADIX_FROM = 256, GRAIN_ELEMENTS = 4096, HEAP_SHARE = 16, KEYS_AT_ONCE = 256 };

typedef struct WideItem {
    uint64_t key;
    int64_t index;
} WideItem;

typedef struct Sort {
    const SortTask *task;
    const SortKernel *kernel;
    const char *in;
    cb_dtype dtype;
    int64_t *out;
    _Atomic bool failed;
} Sort;

static const SortKernel *kernel_of_level(void) {
    static const SortKernel *const of_level[] = CPU_LEVELS(&sort_kernel_);
    return of_level[cpu_level()];
}

/* ---- sorts ---- */

static bool before(WideItem a, WideItem b) {
    return a.key < b.key || (a.key == b.key && a.index < b.index);
}

static int64_t next_before(const WideItem *item, int64_t i, int64_t count, WideItem bound) {
    while (i < count && !before(item[i], bound)) i++;
    return i;
}

#define ITEM WideItem
#define NAME(x) x##_wide
#define BEFORE(a, b) before(a, b)
#define KEY(a) (a).key
#define NEXT(item, i, count, bound) next_before(item, i, count, bound)
#include "cpu/sort_items.h"

#define ITEM uint64_t
#define NAME(x) x##_numbers
#define BEFORE(a, b) ((a) < (b))
#define KEY(a) ((a) >> 32)
#define NEXT(item, i, count, bound) kernel_of_level()->below(item, i, count, bound)
#include "cpu/sort_items.h"

/* ---- rows of numbers ---- */

/* All bytes that are not the same in every key. */
static int key_bytes(cb_dtype dtype) {
    return dtype_is_half(dtype) ? (int)sizeof(float) : (int)cb_dtype_size(dtype);
}

static void sort_numbers(const Sort *sort, const char *in, uint64_t *item, int64_t *out) {
    const SortTask *task = sort->task;
    int64_t length = task->length;
    sort->kernel->keys(sort->dtype, in, task->element, length, task->descending, item);
    if (length <= sort->kernel->ranked) {
        sort->kernel->rank(item, length, task->keep, out);
        return;
    }
    uint64_t *other = item + round_up(length, SORT_GROUP);
    const uint64_t *sorted = order_numbers(item, other, task, key_bytes(sort->dtype));
    for (int64_t i = 0; i < task->keep; i++) out[i] = (int64_t)(sorted[i] & UINT32_MAX);
}

/* ---- rows of wide elements, or of more than 32 bits count ---- */

static uint64_t key_of_double(double value) {
    uint64_t bits;
    if (value != value) return UINT64_MAX;
    value += 0.0; /* -0 becomes 0 */
    memcpy(&bits, &value, sizeof bits);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

/* Eight bytes to an element. */
static void wide_items(const Sort *sort, const char *in, WideItem *item) {
    const SortTask *task = sort->task;
    uint64_t turn = task->descending ? UINT64_MAX : 0, step = (uint64_t)task->element;
    const double *value = (const double *)(const void *)in;
    const uint64_t *bits = (const uint64_t *)(const void *)in;
    for (int64_t i = 0; i < task->length && sort->dtype == CB_F64; i++, value += step)
        item[i] = (WideItem){key_of_double(*value) ^ turn, i};
    for (int64_t i = 0; i < task->length && sort->dtype != CB_F64; i++, bits += step)
        item[i] = (WideItem){*bits ^ (uint64_t)1 << 63 ^ turn, i};
}

static void narrow_items(const Sort *sort, const char *in, WideItem *item) {
    const SortTask *task = sort->task;
    uint64_t key[KEYS_AT_ONCE];
    int64_t step = task->element * (int64_t)cb_dtype_size(sort->dtype);
    for (int64_t from = 0; from < task->length; from += KEYS_AT_ONCE) {
        int64_t count = least(KEYS_AT_ONCE, task->length - from);
        sort->kernel->keys(sort->dtype, in + from * step, task->element, count, task->descending,
                           key);
        for (int64_t i = 0; i < count; i++) item[from + i] = (WideItem){key[i] >> 32, from + i};
    }
}

static void sort_wide(const Sort *sort, const char *in, WideItem *item, int64_t *out) {
    const SortTask *task = sort->task;
    if (cb_dtype_size(sort->dtype) == sizeof(uint64_t))
        wide_items(sort, in, item);
    else
        narrow_items(sort, in, item);
    const WideItem *sorted = order_wide(item, item + task->length, task, key_bytes(sort->dtype));
    for (int64_t i = 0; i < task->keep; i++) out[i] = sorted[i].index;
}

/* ---- entry ---- */

/* In elements. */
static int64_t row_start(const SortTask *task, int64_t row) {
    int64_t start = task->offset;
    if (task->row_rank == 1) return start + row * task->row_stride[0];
    for (int d = task->row_rank - 1; d >= 0; d--) {
        start += row % task->row_size[d] * task->row_stride[d];
        row /= task->row_size[d];
    }
    return start;
}

static bool is_wide(const Sort *sort) {
    return cb_dtype_size(sort->dtype) > sizeof(uint32_t) || sort->task->length > INT32_MAX;
}

/* Rows of up to SORT_GROUP elements, one after the other: their keys are made together. */
static void sort_short(const Sort *sort, int64_t low, int64_t high) {
    const SortTask *task = sort->task;
    int64_t length = task->length, most = KEYS_AT_ONCE / length, count;
    uint64_t number[KEYS_AT_ONCE];
    for (; low < high; low += count) {
        const char *in = sort->in + row_start(task, low) * (int64_t)cb_dtype_size(sort->dtype);
        count = least(most, high - low);
        sort->kernel->keys(sort->dtype, in, 1, count * length, task->descending, number);
        for (int64_t r = 0; r < count; r++)
            sort->kernel->rank(number + r * length, length, task->keep,
                               sort->out + (low + r) * task->keep);
    }
}

static bool is_short(const Sort *sort) {
    const SortTask *task = sort->task;
    bool follow = task->element == 1 && task->row_rank == 1 && task->row_stride[0] == task->length;
    return follow && !is_wide(sort) && task->length > 0 && task->length <= SORT_GROUP;
}

static void sort_rows(void *user, int64_t low, int64_t high) {
    Sort *sort = user;
    const SortTask *task = sort->task;
    int64_t size = (int64_t)cb_dtype_size(sort->dtype), room = round_up(task->length, SORT_GROUP);
    if (is_short(sort)) {
        sort_short(sort, low, high);
        return;
    }
    Storage *storage = storage_new(2 * (size_t)room * sizeof(WideItem));
    if (!storage) {
        atomic_store_explicit(&sort->failed, true, memory_order_relaxed);
        return;
    }
    for (int64_t row = low; row < high; row++) {
        const char *in = sort->in + row_start(task, row) * size;
        int64_t *out = sort->out + row * task->keep;
        if (is_wide(sort))
            sort_wide(sort, in, storage->data, out);
        else
            sort_numbers(sort, in, storage->data, out);
    }
    storage_release(storage);
}

bool sort_run(const SortTask *task, const Operands *operands) {
    Sort sort = {.task = task, .in = operands->in[0], .dtype = task->dtype, .out = operands->out};
    sort.kernel = kernel_of_level();
    parallel_for(task->rows, GRAIN_ELEMENTS / task->length + 1, sort_rows, &sort);
    return !atomic_load_explicit(&sort.failed, memory_order_relaxed);
}
