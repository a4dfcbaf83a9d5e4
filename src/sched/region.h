/* Parts of inputs that a graph writes to (region.c). */
#ifndef CARBIDE_SCHED_REGION_H
#define CARBIDE_SCHED_REGION_H

#include "graph/graph.h"

/* In elements of the whole, by dim: element i lies at start + i * step. */
typedef struct Region {
    int rank;
    int64_t start[CB_MAX_RANK], step[CB_MAX_RANK], size[CB_MAX_RANK];
} Region;

/* The slice_scatters (vec, in order) that make the value of the input; NULL: it is made otherwise,
 * or by too many of them. */
const Node **region_scatters(Arena *arena, const Node *input, const Node *value);
/* What one of them writes, and where: through further ones into the slice that it replaces. */
const Node *region_written(const Node *scatter, Region *region);

#endif
