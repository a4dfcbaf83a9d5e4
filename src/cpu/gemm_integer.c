/* Integer and bool products: row by row, out[j] += a * b[j] for four k at a time, which the
 * compiler vectorizes where B's rows are contiguous. Sums wrap to the dtype; bool is "any of
 * both". */
#include "base/parallel.h"
#include "cpu/gemm_internal.h"
#include <string.h>

enum { TASK_PRODUCTS = 32 * 1000 };

/* Unsigned arithmetic of at least 32 bits: wrapping is defined, and the bits are those of the
 * signed product. */
#define ROW(type, wide)                                                                            \
    static void row_##type(const MatmulTask *task, const void *left, const void *right,            \
                           void *restrict to) {                                                    \
        const type##_t *a = left, *b = right;                                                      \
        type##_t *restrict out = to;                                                               \
        int64_t k = 0, a_k = task->a_k;                                                            \
        for (; k + 4 <= task->k && task->b_n == 1; k += 4) { /* out is read and written once */    \
            const type##_t *from = b + k * task->b_k, *second = from + task->b_k;                  \
            const type##_t *third = second + task->b_k, *fourth = third + task->b_k;               \
            const type##_t *x = a + k * a_k;                                                       \
            wide##_t s0 = x[0], s1 = x[a_k], s2 = x[2 * a_k], s3 = x[3 * a_k];                     \
            _Pragma("omp simd") for (int64_t j = 0; j < task->n; j++) out[j] = (type##_t)(         \
                out[j] + s0 * from[j] + s1 * second[j] + s2 * third[j] + s3 * fourth[j]);          \
        }                                                                                          \
        for (; k < task->k; k++) { /* few, or columns that lie apart */                            \
            wide##_t scale = a[k * task->a_k];                                                     \
            const type##_t *from = b + k * task->b_k;                                              \
            for (int64_t j = 0; j < task->n; j++)                                                  \
                out[j] = (type##_t)(out[j] + scale * from[j * task->b_n]);                         \
        }                                                                                          \
    }
ROW(uint8, uint32)
ROW(uint16, uint32)
ROW(uint32, uint32)
ROW(uint64, uint64)

static void row_bool(const MatmulTask *task, const void *left, const void *right, void *to) {
    const bool *a = left, *b = right;
    bool *out = to;
    for (int64_t k = 0; k < task->k; k++)
        if (a[k * task->a_k])
            for (int64_t j = 0; j < task->n; j++) out[j] |= b[k * task->b_k + j * task->b_n];
}

typedef void IntegerProduct(const MatmulTask *task, const void *a, const void *b, void *out);

static IntegerProduct *row_of(cb_dtype dtype) {
    if (dtype == CB_BOOL) return row_bool;
    switch (cb_dtype_size(dtype)) {
    case 1:
        return row_uint8;
    case 2:
        return row_uint16;
    case 4:
        return row_uint32;
    default:
        return row_uint64;
    }
}

static void run_rows(void *user, int64_t low, int64_t high) {
    const Gemm *gemm = user;
    const MatmulTask *task = &gemm->task;
    IntegerProduct *row = row_of(task->dtype);
    int64_t size = gemm->input_bytes;
    for (int64_t r = low; r < high; r++) {
        int64_t a_offset, b_offset;
        gemm_batch_offsets(task, r / task->m, &a_offset, &b_offset);
        a_offset += r % task->m * task->a_m;
        char *out = gemm->out + r * task->n * size;
        memset(out, 0, (size_t)(task->n * size));
        row(task, gemm->a + a_offset * size, gemm->b + b_offset * size, out);
        gemm_epilogue(gemm, r, 1, 0, task->n);
    }
}

bool gemm_integer(const Gemm *gemm) {
    const MatmulTask *task = &gemm->task;
    int64_t grain = TASK_PRODUCTS / (task->n * task->k) + 1;
    parallel_for(task->batch * task->m, grain, run_rows, (void *)(uintptr_t)gemm);
    return true;
}
