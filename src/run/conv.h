/* Convolution on the CPU: threaded, with the epilogue kernel run on each finished piece while it is
 * in cache. */
#ifndef CARBIDE_RUN_CONV_H
#define CARBIDE_RUN_CONV_H

#include "run/engine.h"
#include "sched/plan.h"
#include "tensor/tensor.h"

/* How a convolution can be computed (ConvolutionStep.method). Every method that fits gives the
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
/* Whether a method other than CONV_AUTO can compute the step. */
bool convolution_fits(const ConvolutionStep *step, int method);
/* The recorded model: the method that was fastest where it was measured (bench/layers.c), by sizes
 * alone, so that the number of threads changes no result. constant: the weight is packed once. */
int convolution_choose(const ConvolutionStep *step, bool constant);

/* f32, f64, f16 and bf16 (f32 accumulation). x, weight, out point at element 0 of the values;
 * epilogue: NULL, or a launch over the elements of the result, in order, with its buffers. Results
 * do not depend on the number of threads. false: no memory for packing. */
bool convolution_run(const ConvolutionStep *step, const void *x, const void *weight, void *out,
                     const Launch *epilogue, void *const *epilogue_buffer);

/* Packs a weight that never changes, for step->packed: convolution_run does not read the weight
 * itself then. The step keeps its method from here on. *packed is NULL when packing
 * would win nothing. false: no memory. */
bool convolution_pack(const ConvolutionStep *step, const void *weight, Storage **packed);

#endif
