/* Parts of tensors whose place is told: those of inputs that a graph writes to (region.c). */
#ifndef CARBIDE_SCHED_REGION_H
#define CARBIDE_SCHED_REGION_H

#include "graph/graph.h"

/* How far behind where it lies a part begins, which an integer among the inputs of the call says:
 * the start of a dynamic slice. */
typedef struct Shift {
    int input;       /* which; NO_INPUT: it begins there */
    int64_t most;    /* what is more counts as this, what is less than 0 as 0 */
    int64_t element; /* in elements, for each */
} Shift;
enum { NO_INPUT = -1 };

/* In elements of the whole, by dim: element i lies at start + i * step, and shifted along a dim. */
typedef struct Region {
    int rank;
    int64_t start[CB_MAX_RANK], step[CB_MAX_RANK], size[CB_MAX_RANK];
    Shift shift; /* its `element` is the stride of the tensor along that dim */
    int shifted; /* the dim */
} Region;

/* The slice_scatters (vec, in order) that make the value of the input; NULL: it is made otherwise,
 * or by too many of them. */
const Node **region_scatters(const Graph *graph, Arena *arena, const Node *input,
                             const Node *value);
/* What one of them writes, and where: through further ones into the slice that it replaces. */
const Node *region_written(const Node *scatter, Region *region);

#endif
