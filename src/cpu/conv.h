/* Convolution on the CPU: threaded, with the epilogue kernel run on each finished piece while it is
 * in cache. */
#ifndef CARBIDE_CPU_CONV_H
#define CARBIDE_CPU_CONV_H

#include "cpu/operands.h"
#include "tensor/tensor.h"

/* How a convolution can be computed. Every method that fits gives the
 * result, within the rounding of its own order of sums; conv.c says which is which. */
typedef enum ConvolutionMethod {
    CONV_AUTO, /* what convolution_choose says */
    CONV_DIRECT,
    CONV_DEPTHWISE,
    CONV_GATHER,
    CONV_WINOGRAD_4, /* tiles of 4 x 4: F(2x2, 3x3) */
    CONV_WINOGRAD_6, /* tiles of 6 x 6: F(4x4, 3x3), F(2x2, 5x5) */
    CONV_WINOGRAD_7, /* tiles of 7 x 7: F(5x5, 3x3), F(3x3, 5x5) */
    CONV_WINOGRAD_9, /* tiles of 9 x 9: F(7x7, 3x3), F(5x5, 5x5); not where f32 has to be exact */
    CONV_TILES,      /* bf16 on AMX */
    CONV_TURNED,     /* channels first: another method, over copies with channels last */
    CONV_MATRIX,     /* channels first, a kernel of 1: a matrix product */
    CONV_METHODS
} ConvolutionMethod;

const char *convolution_method_name(int method);
/* Whether a method other than CONV_AUTO can compute the task. */
bool convolution_fits(const ConvolutionTask *task, int method);
/* The recorded model: the method that was fastest where it was measured (bench/layers.c), by sizes
 * alone, so that the number of threads changes no result. constant: the weight is packed once. */
int convolution_choose(const ConvolutionTask *task, bool constant);

/* f32, f64, f16 and bf16 (f32 accumulation); operands x, weight. method: one that fits, or
 * CONV_AUTO. Results do not depend on the number of threads. false: no memory for packing. */
bool convolution_run(const ConvolutionTask *task, int method, const Operands *operands);

/* Packs a weight that never changes, for Operands.packed of runs with the same method: they do not
 * read the weight itself. *packed is NULL when packing would win nothing. false: no memory. */
bool convolution_pack(const ConvolutionTask *task, int method, const void *weight,
                      Storage **packed);

#endif
