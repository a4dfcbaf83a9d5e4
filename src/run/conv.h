/* Convolution on the CPU: threaded, with the epilogue kernel run on each finished piece while it is
 * in cache. */
#ifndef CARBIDE_RUN_CONV_H
#define CARBIDE_RUN_CONV_H

#include "run/engine.h"
#include "sched/plan.h"
#include "tensor/tensor.h"

/* f32, f64, f16 and bf16 (f32 accumulation). x, weight, out point at element 0 of the values;
 * epilogue: NULL, or a launch over the elements of the result, in order, with its buffers. Results
 * do not depend on the number of threads. false: no memory for packing. */
bool convolution_run(const ConvolutionStep *step, const void *x, const void *weight, void *out,
                     const Launch *epilogue, void *const *epilogue_buffer);

/* Packs a weight that never changes, for step->packed: convolution_run does not read the weight
 * itself then. *packed is NULL when that would win nothing. false: no memory. */
bool convolution_pack(const ConvolutionStep *step, const void *weight, Storage **packed);

#endif
