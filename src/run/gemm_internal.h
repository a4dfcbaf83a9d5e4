/* What the files of gemm share. */
#ifndef CARBIDE_RUN_GEMM_INTERNAL_H
#define CARBIDE_RUN_GEMM_INTERNAL_H

#include "run/gemm.h"
#include "run/gemm_kernel.h"
#include "tensor/tensor.h"
#include <stdatomic.h>

enum { GEMM_MAX_WIDTH = 32 }; /* rows or columns of the largest register tile */

typedef struct Gemm { /* one call of gemm_run */
    MatmulStep step;  /* the batch folded into rows where that is possible */
    const char *a, *b;
    char *out, *sum; /* sum: out, or the f32 scratch of f16 and bf16 */
    const Launch *epilogue;
    void *const *epilogue_buffer;
    const GemmKernels *kernels;
    const GemmType *type;
    size_t element;      /* bytes of one summed element */
    int64_t input_bytes; /* bytes of one element of a, b, out */
    int threads;
    _Atomic bool *failed; /* a thread found no memory */
} Gemm;

const GemmKernels *gemm_kernels(void);
/* Offsets of a batch item in elements, a_offset and b_offset included. */
void gemm_batch_offsets(const MatmulStep *step, int64_t batch, int64_t *a, int64_t *b);
/* Runs the epilogue on rows [row, row + rows) of the batch*m rows, columns [column, column +
 * columns). */
void gemm_epilogue(const Gemm *gemm, int64_t row, int64_t rows, int64_t column, int64_t columns);

bool gemm_is_vector(const Gemm *gemm);
bool gemm_vector(Gemm *gemm);
bool gemm_integer(Gemm *gemm);

#endif
