/* The end of sums, where a convolution's epilogue is one that is known (KnownEnd), compiled
 * once per instruction set (end_kernel.c). */
#ifndef CARBIDE_CPU_END_KERNEL_H
#define CARBIDE_CPU_END_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

enum { END_PADDING = 32 }; /* floats that follow scale and bias */

/* result = max(sum * scale + bias + residual, 0); the last two where they are asked for. */
typedef struct End {
    bool f32, relu; /* f32: out and residual, which are bf16 otherwise */
    char *out;
    const char *residual;      /* NULL: none */
    const float *scale, *bias; /* by channel */
} End;

/* `count` sums of the channels from `channel` on, to elements `at` and on of a result of bf16. */
typedef void EndRow(const End *end, const float *sum, int64_t channel, int64_t at, int64_t count);

extern EndRow end_row_base;
#if defined(__x86_64__)
extern EndRow end_row_v3, end_row_v4;
#if defined(CARBIDE_HAVE_BF16)
extern EndRow end_row_bf16; /* for processors that round to bf16 themselves */
#endif
#endif

#endif
