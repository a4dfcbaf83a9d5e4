/* Loop IR -> C text: one file per plan, one function per kernel (KernelFunction of
 * lower/function.h). */
#ifndef CARBIDE_CODEGEN_C_C_H
#define CARBIDE_CODEGEN_C_C_H

#include "codegen/hole.h"
#include "lower/loop.h"

/* A file that opens with this line has a kernel with so much arithmetic that vector code for the
 * ends of its loops would double its compile time; jit/code.c then leaves that to scalar code. */
#define C_HEAVY "/* heavy */\n"

/* The same of many small kernels, whose loops are shorter than what vector code of them would cost:
 * all of it is scalar code. Whoever has them rendered puts it in front. */
#define C_SLIGHT "/* slight */\n"

/* The whole file: the scalar functions that the kernels use, then the kernels. No #include;
 * compiles with gcc and clang. Every kernel is an extern function under its name. holes: by kernel,
 * or NULL; one with arguments takes them behind its buffers. */
void c_render(const Kernel *const *kernel, Holes *holes, int count, Buffer *out);
/* The kernel's own function alone: what its holes are is known then. NULL: it has none. */
void c_render_kernel(const Kernel *kernel, Holes *holes, Buffer *out);

#endif
