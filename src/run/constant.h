/* Constants of a plan: tensors, some of them computed only when they are asked for. */
#ifndef CARBIDE_RUN_CONSTANT_H
#define CARBIDE_RUN_CONSTANT_H

#include "graph/graph.h"
#include "run/derived.h"
#include "tensor/tensor.h"

typedef struct Executable Executable;

/* Computes constants. Most large ones are conversions, which products do by themselves when they
 * pack; whatever it is, it is planned when somebody asks for it after all. */
typedef struct ConstantRecipe {
    bool converts; /* one constant, which is input[0], contiguous, in `dtype` */
    cb_dtype dtype;
    Graph *graph;           /* owned, with its arena; NULL: planned already, or a conversion */
    const int64_t **stride; /* vec, there: by input */
    Executable *executable; /* owned; NULL: not planned yet */
    Tensor *input[];        /* not kept: they outlive the compilation */
} ConstantRecipe;

/* All that a constant follows from, as a number: equal ones of two plans are one. */
typedef struct ConstantDigest {
    uint64_t word[2];
} ConstantDigest;

typedef struct Constant {
    Tensor *tensor;         /* NULL: not made yet, or dropped */
    Derived *derived;       /* whose the tensor is; NULL: a kept tensor of our own */
    ConstantRecipe *recipe; /* NULL: one of the group, or it was used */
    Tensor *computed;       /* with the group, and nobody has asked for it yet; or NULL */
    ConstantDigest digest;
    bool dropped; /* nobody will ask */
} Constant;

/* Small constants, which one plan computes when the first of them is asked for. */
typedef struct ConstantGroup {
    ConstantRecipe *recipe; /* owned; NULL: there is none, or it was used */
    int *number;            /* heap array, by output */
    int count;
} ConstantGroup;

typedef struct Constants {
    Constant *at; /* heap array */
    int count;
    ConstantGroup group;
} Constants;

/* Those of a graph that went through the passes (graph->constant), none of them made yet. value,
 * stride: by argument, as for compile_graph; they read the arguments. False: memory ran out, and
 * what there is so far is for constants_free. */
bool constants_make(Constants *out, const Graph *graph, Tensor *const *value,
                    const int64_t *const *stride);
void constants_free(Constants *constants);
/* Makes constant `number` unless it is there: for this plan, or for any other one. False: memory
 * ran out. */
bool constant_make(Constants *constants, int number);
/* What constant `number`, not made yet, is in another dtype, element by element; or NULL. */
const Tensor *constant_source(const Constants *constants, int number);
/* Element 0 of constant `number`, made if need be; NULL: memory ran out. */
const void *constant_data(Constants *constants, int number);
/* Nobody will ask for it any more. */
void constant_drop(Constants *constants, int number);

#endif
