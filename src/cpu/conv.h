/* Convolution on the CPU: threaded, with the epilogue kernel run on each finished piece while it is
 * in cache. */
#ifndef CARBIDE_CPU_CONV_H
#define CARBIDE_CPU_CONV_H

#include "cpu/operands.h"
#include "tensor/tensor.h"

typedef enum ConvolutionMethod {
#define CONV_METHOD(id, ...) CONV_##id,
#include "cpu/conv_methods.def"
#undef CONV_METHOD
    CONV_METHODS
} ConvolutionMethod;

const char *convolution_method_name(int method);
/* Whether the method can compute the task, and its time by the recorded model (bench/layers.c
 * measures): by sizes alone, so that the number of threads changes no result. constant: the weight
 * is packed once. */
bool convolution_fits(const ConvolutionTask *task, int method);
MethodCost convolution_cost(const ConvolutionTask *task, int method, bool constant);

/* f32, f64, f16 and bf16 (f32 accumulation); operands x, weight. method: one that fits. Results do
 * not depend on the number of threads. false: no memory for packing. */
bool convolution_run(const ConvolutionTask *task, int method, const Operands *operands);

/* Packs a weight that never changes, for Operands.packed of runs with the same method: they do not
 * read the weight itself. *packed is NULL when packing would win nothing. false: no memory. */
bool convolution_pack(const ConvolutionTask *task, int method, const void *weight,
                      Storage **packed);
/* What the packed form depends on besides the elements of the weight: not on the batch, and for
 * most methods not on the sizes of x. false: packing would win nothing. */
bool convolution_layout(const ConvolutionTask *task, int method, Buffer *out);

#endif
