/* Constants of a plan: tensors, some of them computed only when they are asked for. */
#ifndef CARBIDE_RUN_CONSTANT_H
#define CARBIDE_RUN_CONSTANT_H

#include "graph/graph.h"
#include "tensor/tensor.h"

typedef struct Executable Executable;

/* Computes one constant. Most large ones are conversions, which products do by themselves when they
 * pack: those are planned when they are asked for after all. */
typedef struct ConstantRecipe {
    Executable *executable; /* with one output; owned; NULL: input[0], contiguous, in `dtype` */
    cb_dtype dtype;
    Tensor *input[]; /* not kept: they outlive the compilation */
} ConstantRecipe;

typedef struct Constants {
    Tensor **tensor;         /* heap array of kept tensors; NULL: not made yet, or dropped */
    ConstantRecipe **recipe; /* heap array; NULL: there is none, or it was used */
    int count;
} Constants;

/* Those of a graph that went through the passes (graph->constant). value, stride: by argument, as
 * for compile_graph; the large ones are recipes, which read the arguments. False: memory ran out,
 * and what was made so far is for constants_free. */
bool constants_make(Constants *out, const Graph *graph, Tensor *const *value,
                    const int64_t *const *stride);
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
