/* Constants of a plan: tensors, some of them computed only when they are asked for. */
#ifndef CARBIDE_RUN_CONSTANT_H
#define CARBIDE_RUN_CONSTANT_H

#include "tensor/tensor.h"

typedef struct Executable Executable;

typedef struct Recipe {     /* computes one constant */
    Executable *executable; /* with one output; owned */
    const Tensor *source;   /* contiguous: the constant is it in another dtype, no more; or NULL */
    Tensor *input[];        /* not kept: they outlive the compilation */
} Recipe;

typedef struct Constants {
    Tensor **tensor; /* heap array of kept tensors; NULL: not made yet, or dropped */
    Recipe **recipe; /* heap array; NULL: there is none, or it was used */
    int count;
} Constants;

bool constants_new(Constants *out, int count); /* all NULL; false: memory ran out */
void constants_free(Constants *constants);
/* Makes constant `number` if its recipe is still there; false: memory ran out. */
bool constant_make(Constants *constants, int number);
/* What constant `number`, not made yet, is in another dtype, element by element; or NULL. */
const Tensor *constant_source(const Constants *constants, int number);
/* Element 0 of constant `number`, made if need be; NULL: memory ran out. */
const void *constant_data(Constants *constants, int number);
/* Nobody will ask for it any more. */
void constant_drop(Constants *constants, int number);

#endif
