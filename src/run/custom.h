/* STEP_CUSTOM: an operation of the user's, on the host (run/custom.c). */
#ifndef CARBIDE_RUN_CUSTOM_H
#define CARBIDE_RUN_CUSTOM_H

#include "graph/graph.h"
#include "tensor/random.h"
#include "tensor/tensor.h"

typedef struct CustomOperand {
    const void *data;
    const Tensor *tensor; /* that it is, with its own strides; NULL: contiguous elements at data */
} CustomOperand;

/* False with an error. */
bool run_custom(const Node *node, const CustomOperand *operand, void *out,
                const RandomState *random);

#endif
