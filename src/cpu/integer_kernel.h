/* The inner loops of integer products, compiled once per instruction set. Sums wrap, so one set of
 * loops serves signed and unsigned elements of a size; single bytes are summed in 16 bits, which
 * processors multiply in vectors. */
#ifndef CARBIDE_CPU_INTEGER_KERNEL_H
#define CARBIDE_CPU_INTEGER_KERNEL_H

#include <stdint.h>

typedef struct IntegerKernel { /* for sums of one width */
    /* sum[j] += sum over k of a[k] * b[k * b_k + j] */
    void (*sweep)(int64_t k, int64_t columns, const void *a, const void *b, int64_t b_k, void *sum);
    /* sum[j] += sum over k of a[k] * b[j * b_j + k] */
    void (*dots)(int64_t k, int64_t columns, const void *a, const void *b, int64_t b_j, void *sum);
} IntegerKernel;

enum { INTEGER_WIDTHS = 3 }; /* 2, 4 and 8 bytes */
extern const IntegerKernel integer_kernels_base[INTEGER_WIDTHS];
#if defined(__x86_64__)
extern const IntegerKernel integer_kernels_v3[INTEGER_WIDTHS], integer_kernels_v4[INTEGER_WIDTHS];
#endif

#endif
