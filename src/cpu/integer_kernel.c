/* The integer products of one instruction set (base/level.h). Unsigned arithmetic: wrapping is
 * defined, and the bits are those of the signed product. */
#include "cpu/integer_kernel.h"
#include "base/level.h"

/* 16 bits are multiplied as unsigned of 32: as int they could overflow. */
#define PRODUCTS(wide, arithmetic)                                                                 \
    static void sweep_##wide(int64_t k, int64_t columns, const void *left, const void *right,      \
                             int64_t b_k, void *restrict to) {                                     \
        const wide##_t *a = left, *b = right;                                                      \
        wide##_t *restrict sum = to;                                                               \
        for (; k > 0; k -= 4, a += 4, b += 4 * b_k) { /* a sum is read and written once */         \
            const wide##_t *second = k > 1 ? b + b_k : b, *third = k > 2 ? b + 2 * b_k : b;        \
            const wide##_t *fourth = k > 3 ? b + 3 * b_k : b; /* of no more: 0 times the first */  \
            arithmetic##_t s0 = a[0], s1 = k > 1 ? a[1] : 0, s2 = k > 2 ? a[2] : 0;                \
            arithmetic##_t s3 = k > 3 ? a[3] : 0;                                                  \
            _Pragma("omp simd") for (int64_t j = 0; j < columns; j++) sum[j] =                     \
                (wide##_t)(sum[j] + s0 * b[j] + s1 * second[j] + s2 * third[j] + s3 * fourth[j]);  \
        }                                                                                          \
    }                                                                                              \
    static void dots_##wide(int64_t k, int64_t columns, const void *left, const void *right,       \
                            int64_t b_j, void *to) {                                               \
        const wide##_t *a = left, *b = right;                                                      \
        for (int64_t j = 0; j < columns; j++, b += b_j) {                                          \
            wide##_t total = 0;                                                                    \
            _Pragma("omp simd reduction(+ : total)") for (int64_t i = 0; i < k; i++) total =       \
                (wide##_t)(total + (arithmetic##_t)a[i] * b[i]);                                   \
            ((wide##_t *)to)[j] += total;                                                          \
        }                                                                                          \
    }
PRODUCTS(uint16, uint32)
PRODUCTS(uint32, uint32)
PRODUCTS(uint64, uint64)

#define KERNEL(wide)                                                                               \
    { sweep_##wide, dots_##wide }
const IntegerKernel LEVEL_TABLE(integer_kernels_)[INTEGER_WIDTHS] = {KERNEL(uint16), KERNEL(uint32),
                                                                     KERNEL(uint64)};
