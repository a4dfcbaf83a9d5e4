/* The part of attention that is compiled once per instruction set (attention_kernel.c), for f32 and
 * f64: what happens to a block of scores between the two products. cpu/attention.c drives it.
 *
 * A block of scores is [keys][lanes]: a lane is a query, and as many lanes as the register tile of
 * gemm has columns stand side by side. So everything here works on vectors, and what leaves is a
 * panel for the second product. Scores count in powers of two. */
#ifndef CARBIDE_CPU_ATTENTION_KERNEL_H
#define CARBIDE_CPU_ATTENTION_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct AttentionType {
    int lanes;
    void (*scale)(int64_t count, void *x, double by);
    /* scores += mask * by */
    void (*add)(int64_t count, void *scores, const void *mask, double by);
    /* Scores of keys behind their query become -infinity: lane q keeps keys up to shift + q. */
    void (*causal)(int64_t keys, void *scores, int64_t shift);
    /* One step of the online softmax: scores become weights 2^(score - most); most, of each lane,
     * is raised to the block's maximum, total grows by the weights, and is scaled before, by
     * 2^(old most - most), as the sums so far have to be: by shrink, when true comes back. */
    bool (*softmax)(int64_t keys, void *scores, void *most, void *total, void *shrink);
    /* Weights as a panel of bf16 (gemm_bf16.c): keys in pairs, those of a lane side by side; an odd
     * last one beside 0. Of f32 alone. */
    void (*pair)(int64_t keys, const void *weights, void *out);
    /* x[i][lane] *= by[lane] */
    void (*multiply)(int64_t rows, void *x, const void *by);
    /* total becomes its inverse; 0 stays 0: there was nothing to see */
    void (*invert)(void *total);
    /* Of a panel's gradient (attention_gradient.c): x = w * (x - inverse * sum of w * x) * by, the
     * sum of each lane over all keys. */
    void (*slope)(int64_t keys, const void *weights, void *slopes, const void *inverse, double by);
    /* a bool mask as numbers: 0 where it is true, else -infinity */
    void (*widen_bool)(const uint8_t *in, int64_t stride, void *out, int64_t count);
} AttentionType;

typedef struct AttentionKernels {
    AttentionType f32, f64;
} AttentionKernels;

extern const AttentionKernels attention_kernels_base;
#if defined(__x86_64__)
extern const AttentionKernels attention_kernels_v3, attention_kernels_v4;
#endif

#endif
