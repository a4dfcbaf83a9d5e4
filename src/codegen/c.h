/* Loop IR -> C text: one file per plan, one function per kernel (KernelFunction of
 * run/engine.h). */
#ifndef CARBIDE_CODEGEN_C_H
#define CARBIDE_CODEGEN_C_H

#include "lower/loop.h"

/* The whole file: the scalar functions that the kernels use, then the kernels. No #include;
 * compiles with gcc and clang. Every kernel is an extern function under its name. */
void c_render(Kernel *const *kernel, int count, Buffer *out);
/* The kernel's own function alone, for explain. */
void c_render_kernel(const Kernel *kernel, Buffer *out);

#endif
