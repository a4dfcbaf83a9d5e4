/* Matrix multiplication on the CPU: packed, register-tiled, multi-threaded, with the epilogue
 * kernel run on each finished block of rows while it is in cache. */
#ifndef CARBIDE_CPU_GEMM_H
#define CARBIDE_CPU_GEMM_H

#include "cpu/operands.h"
#include "tensor/tensor.h"

typedef enum GemmMethod {
#define GEMM_METHOD(id, ...) GEMM_##id,
#include "cpu/gemm_methods.def"
#undef GEMM_METHOD
} GemmMethod;

/* Whether the method can compute the task, and its time (constant: b is packed once). */
bool gemm_fits(const MatmulTask *task, GemmMethod method);
MethodCost gemm_cost(const MatmulTask *task, GemmMethod method, bool constant);

/* f32, f64, f16, bf16 (f32 accumulation) and integers; operands a, b; method: one that fits. The
 * epilogue is a launch over outer points (batch*m rows, n columns). Results do not depend on the
 * number of threads. false: no memory for packing. */
bool gemm_run(const MatmulTask *task, GemmMethod method, const Operands *operands);

/* Whether a packed copy of a constant b is worth its memory, whoever computes the product. */
bool gemm_copies(const MatmulTask *task);
/* Packs a b that never changes, for Operands.packed of runs with the same method: they do not read
 * b itself. *packed is NULL when that would win nothing. dtype: of b, the task's or one that
 * gemm_packs_from tells. false: no memory. */
bool gemm_pack(const MatmulTask *task, GemmMethod method, const void *b, cb_dtype dtype,
               Storage **packed);
/* What the packed form depends on besides the elements of b: not on the rows of a. false: packing
 * would win nothing. */
bool gemm_layout(const MatmulTask *task, GemmMethod method, Buffer *out);
/* Whether gemm_pack converts b from another dtype on the way: what is packed is the same. */
bool gemm_packs_from(const MatmulTask *task, GemmMethod method, cb_dtype dtype);

/* A batch that shares its B is one tall matrix when the rows of A follow each other evenly: then
 * the task becomes that. */
void gemm_fold(MatmulTask *task);

#endif
