/* Kernels as programs of vector instructions over blocks that stay in L1; they need no compiler.
 * Eager, the oracle (floats computed in f64) and the fallback of generated code run so. */
#ifndef CARBIDE_VM_PROGRAM_H
#define CARBIDE_VM_PROGRAM_H

#include "lower/loop.h"

typedef struct Program Program; /* heap-allocated, immutable, shared by threads */
/* oracle: every float expression is computed in f64. NULL: out of memory. */
Program *program_build(const Kernel *kernel, bool oracle);
void program_free(Program *program);
size_t program_bytes(const Program *program); /* NULL: 0 */
/* A run begins and ends at a multiple of so many outer points, or takes longer for the rest. */
int64_t program_unit(const Program *program);
void program_run(const Program *program, void *const *buffer, int64_t low, int64_t high, int pass,
                 void *slot);
void program_print(const Program *program, Buffer *out);

#endif
