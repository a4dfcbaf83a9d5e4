/* Families: kernels whose text differs in numbers alone (codegen/hole.h), and the code that was
 * compiled for them in this process (family.c).
 *
 * A *variant* is code with some of the numbers as arguments, the others literal. It serves every
 * kernel of the family whose literals are the same, and whose numbers are equal where one argument
 * stands for several. */
#ifndef CARBIDE_JIT_FAMILY_H
#define CARBIDE_JIT_FAMILY_H

#include "codegen/hole.h"
#include "jit/code.h"
#include "lower/loop.h"

typedef struct FamilyKernel { /* a kernel of a family */
    uint64_t key[2];          /* of its open text */
    uint64_t kernel[2];       /* Kernel.key */
    Holes holes;              /* its numbers; once chosen, which of them are arguments */
} FamilyKernel;

/* The kernel's family and numbers. Escapes through the arena, in which it all lives. */
FamilyKernel family_kernel(const Kernel *kernel, Arena *arena);
/* Code that there is for it, which is the caller's to release; NULL: none. */
Code *family_find(FamilyKernel *kernel, KernelFunction **function);
/* What numbers are as long as nothing is known of the kernel. */
typedef struct FamilyUsual {
    const FamilyKernel *kernel; /* of other sizes: theirs are literal */
    int count;
    const int64_t *varying; /* vec: where there are none, multiples of these are not */
} FamilyUsual;
/* Chooses the arguments of code that is to be compiled: what differs from before, the same kernel
 * of other sizes (NULL: there is none), and what was an argument there. */
void family_choose(FamilyKernel *kernel, const FamilyKernel *before, const FamilyUsual *usual);
/* The same for kernels of a family that are compiled at once, from the text of any: what they
 * differ in. */
void family_choose_shared(FamilyKernel *const *kernel, int count);
/* Code with the kernel's arguments has been compiled. */
void family_add(const FamilyKernel *kernel, Code *code, KernelFunction *function);
/* What the function takes behind its buffers, by argument; NULL: nothing. */
void *family_arguments(const FamilyKernel *kernel, Arena *arena);
void families_cleanup(void); /* forgets all of them, for cb_cleanup */

#endif
