/* Matrix multiplication on the CPU: packed, register-tiled, multi-threaded, with the epilogue
 * kernel run on each finished block of rows while it is in cache. */
#ifndef CARBIDE_RUN_GEMM_H
#define CARBIDE_RUN_GEMM_H

#include "run/engine.h"
#include "sched/plan.h"
#include "tensor/tensor.h"

/* f32, f64, f16, bf16 (f32 accumulation) and integers. a, b, out point at element 0 of the values;
 * epilogue: NULL, or a launch over outer points (batch*m rows, n columns) with its buffers.
 * Results do not depend on the number of threads. false: no memory for packing. */
bool gemm_run(const MatmulStep *step, const void *a, const void *b, void *out,
              const Launch *epilogue, void *const *epilogue_buffer);

/* Whether a packed copy of a constant b is worth its memory, whoever computes the product. */
bool gemm_copies(const MatmulStep *step);
/* Packs a b that never changes, for step->packed: gemm_run does not read b itself then. *packed is
 * NULL when that would win nothing. dtype: of b, the step's or one that gemm_packs_from tells.
 * false: no memory. */
bool gemm_pack(const MatmulStep *step, const void *b, cb_dtype dtype, Storage **packed);
/* Whether gemm_pack converts b from another dtype on the way: what is packed is the same. */
bool gemm_packs_from(const MatmulStep *step, cb_dtype dtype);

/* A batch that shares its B is one tall matrix when the rows of A follow each other evenly: then
 * the step becomes that. */
void gemm_fold(MatmulStep *step);

/* argsort and argtopk along rows (run/sort.c): stable merge sort; NaN is the greatest, as in
 * PyTorch. Of at least one element. */
bool sort_run(const OpaqueStep *step, const void *in, cb_dtype dtype, int64_t *out);

#endif
