/* Many products of a few elements each: packing a panel would take longer than multiplying. Both
 * factors are read where they lie, the columns of B as lanes; fewer than four go one by one. f32
 * and f64. */
#include "base/parallel.h"
#include "base/round.h"
#include "cpu/gemm_internal.h"

enum {
    MOST_PRODUCTS = 250 * 1000,  /* multiplications of an item: work for one thread */
    MANY_PRODUCTS = 1200 * 1000, /* the same, where there are items for many */
    MANY_ITEMS = 8,
    MOST_BYTES = 64 << 10,       /* of B, which is read for every few rows */
    FEW_PRODUCTS = 16 * 16 * 16, /* multiplications where columns are few */
    BLOCK_ELEMENTS = 4096,       /* of the result, between two epilogues: a part of L1 */
    TASK_CYCLES = 12 * 1000      /* what is worth waking a thread for */
};

static int64_t products(const MatmulTask *task) { return task->m * task->n * task->k; }

bool gemm_fits_small(const MatmulTask *task) {
    if (task->dtype != CB_F32 && task->dtype != CB_F64) return false;
    bool few = task->n < GEMM_LEAST_WIDTH;
    int64_t most = few ? FEW_PRODUCTS : task->batch < MANY_ITEMS ? MOST_PRODUCTS : MANY_PRODUCTS;
    if (task->m > most || task->n > most || task->k > most || products(task) > most) return false;
    if (few) return task->batch > 1;
    int64_t bytes = task->k * task->n * (int64_t)cb_dtype_size(task->dtype);
    return (task->b_n == 1 || task->k <= GEMM_SMALL_K) && bytes <= MOST_BYTES;
}

/* ---- few columns ---- */

typedef void SmallProduct(const MatmulTask *task, const void *a, const void *b, void *out);

#define FEW(name, type)                                                                            \
    static inline void name##_of(const MatmulTask *s, const type *a, const type *b, type *out,     \
                                 int64_t count) {                                                  \
        for (int64_t i = 0; i < s->m; i++, a += s->a_m)                                            \
            for (int64_t j = 0; j < s->n; j++) {                                                   \
                const type *x = a, *w = b + j * s->b_n;                                            \
                type sum = 0;                                                                      \
                for (int64_t k = 0; k < count; k++, x += s->a_k, w += s->b_k) sum += *x * *w;      \
                *out++ = sum;                                                                      \
            }                                                                                      \
    }                                                                                              \
    static void name(const MatmulTask *task, const void *a, const void *b, void *out) {            \
        MatmulTask s = *task;                                                                      \
        if (s.k == 4) /* a loop whose length is known is unrolled */                               \
            name##_of(&s, a, b, out, 4);                                                           \
        else                                                                                       \
            name##_of(&s, a, b, out, s.k);                                                         \
    }
FEW(few_f32, float)
FEW(few_f64, double)

/* ---- items ---- */

/* Items of the batch whose place differs by that in its last dim alone. */
static void run_row(const Gemm *gemm, int64_t item, int64_t count) {
    const MatmulTask *task = &gemm->task;
    int64_t a, b, element = gemm->input_bytes, last = task->batch_rank - 1; /* -1: one item */
    char *out = gemm->out + item * task->m * task->n * element;
    SmallProduct *few = task->dtype == CB_F32 ? few_f32 : few_f64;
    SmallProduct *small = task->n < GEMM_LEAST_WIDTH ? few : gemm->type->small;
    gemm_batch_offsets(task, item, &a, &b);
    for (; count > 0; count--) {
        small(task, gemm->a + a * element, gemm->b + b * element, out);
        out += task->m * task->n * element;
        if (last >= 0) a += task->a_batch[last], b += task->b_batch[last];
    }
}

static void run_items(void *user, int64_t low, int64_t high) {
    const Gemm *gemm = user;
    const MatmulTask *task = &gemm->task;
    int64_t row = task->batch_rank ? task->batch_size[task->batch_rank - 1] : 1;
    int64_t block = divide_up(BLOCK_ELEMENTS, task->m * task->n), done = low;
    while (low < high) {
        int64_t count = least(least(high - low, row - low % row), block);
        run_row(gemm, low, count);
        low += count;
        if (low < high && low - done < block) continue;
        gemm_epilogue(gemm, done * task->m, (low - done) * task->m, 0, task->n);
        done = low;
    }
}

bool gemm_small(const Gemm *gemm) {
    int64_t cycles = (int64_t)gemm_small_cycles(&gemm->task);
    parallel_for(gemm->task.batch, divide_up(TASK_CYCLES, cycles), run_items,
                 (void *)(uintptr_t)gemm);
    return true;
}
