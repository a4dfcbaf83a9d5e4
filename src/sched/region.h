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
enum { NO_INPUT = -1, MOST_SHIFTS = 4 };

/* Where the elements of a part lie, in elements of the whole: as a strided view of it, shifted. */
typedef struct Region {
    int rank, shift_count;
    int64_t size[CB_MAX_RANK], stride[CB_MAX_RANK], offset;
    Shift shift[MOST_SHIFTS];
} Region;

typedef struct RegionWrite {
    const Node *scatter; /* the whole with that part written, as a node */
    const Node *source;  /* what is written */
    Region region;       /* and where */
    bool updates;        /* it is computed from what stood there, as by cb_add_ */
} RegionWrite;

/* What a scatter writes to a part; false: no strides say which. */
bool region_write(const Graph *graph, const Node *scatter, RegionWrite *write);
/* The writes to parts, in order, that make the value of the input, which lies with these strides
 * (NULL: contiguous): vec; NULL: it is made otherwise, or by too many of them. */
RegionWrite *region_writes(const Graph *graph, Arena *arena, const Node *input,
                           const int64_t *stride, const Node *value);

/* The same of a value that is no input's, contiguous: what the writes are to, which is another
 * node, or one of them that is real (by node id); NULL: it is made otherwise. */
const Node *region_base(const Graph *graph, Arena *arena, const Node *value, const bool *real,
                        RegionWrite **found);
Region region_whole(const Node *node, const int64_t *stride); /* NULL: contiguous */
/* Where the elements of a node lie in what stands below its views. NULL: no strides say so. */
const Node *region_below(const Graph *graph, const Node *node, Region *region);

/* The coordinates of a region's elements in the whole, along each of its dims. */
typedef struct RegionBox {
    int rank;
    int64_t low[CB_MAX_RANK], high[CB_MAX_RANK], step[CB_MAX_RANK]; /* low .. high */
} RegionBox;

/* Of a region of a contiguous whole; where no box says it, and of shifted ones, it is all. */
void region_box(const Region *region, const Node *whole, RegionBox *box);
bool region_boxes_meet(const RegionBox *a, const RegionBox *b); /* false: no element is in both */

#endif
