/* Writes to parts of an input: nothing else of it is computed or moved.
 *
 *     k[5:6] = v; k.T[7:8] = w                        of k f32[4096, 64]
 *     first = slice_scatter(k, v, dim=0, start=5, end=6)
 *     second = permute(slice_scatter(permute(first), w, dim=0, start=7, end=8))
 *     mutate k = second
 *         k takes v at 320 by [64, 1], then w at 7 by [1, 64]; who reads k behind them reads the
 *         scatters where they stand, which have no memory of their own
 *
 * The walk goes from the value to the input. What it stands at has the elements of the whole, in
 * another order, so a Region says where each of them lies; a scatter on the way is a write, and
 * its source one to a part of that part where it is itself a scatter over what was there.
 *
 * Where somebody needs all of a scatter in memory, it is there besides. */
#include "sched/region.h"

#include "graph/node.h"
#include "sched/schedule.h"

#include <string.h>

enum {
    MOST_WRITES = 2048, /* each is a copy of its own, and an output of the plan */
    MOST_VIEWS = 16     /* between a part and what it is a part of */
};

Region region_whole(const Node *node, const int64_t *stride) {
    Region whole = {.rank = node->rank};
    if (node->rank) memcpy(whole.size, node->size, sizeof *whole.size * node->rank);
    contiguous_strides(node->rank, node->size, whole.stride);
    if (stride) memcpy(whole.stride, stride, sizeof *stride * node->rank);
    return whole;
}

static bool same_region(const Region *a, const Region *b) {
    bool same = a->rank == b->rank && a->offset == b->offset && a->shift_count == b->shift_count;
    for (int d = 0; same && d < a->rank; d++)
        same = a->size[d] == b->size[d] && (a->size[d] < 2 || a->stride[d] == b->stride[d]);
    for (int i = 0; same && i < a->shift_count; i++)
        same = a->shift[i].input == b->shift[i].input && a->shift[i].most == b->shift[i].most &&
               a->shift[i].element == b->shift[i].element;
    return same;
}

/* ---- from a region to another one ---------------------------------------------------------- */

/* `size` elements along a dim, from where an argument says. */
static bool shift_region(Region *region, const Node *start, int dim, int64_t size) {
    if (region->shift_count == MOST_SHIFTS) return false;
    Shift shift = {(int)start->attrs->word[0], region->size[dim] - size, region->stride[dim]};
    region->shift[region->shift_count++] = shift;
    region->size[dim] = size;
    return true;
}

/* Of what the scatter is over to what it writes there. */
static bool narrow_to_part(const Node *scatter, Region *region) {
    const int64_t *of = scatter->attrs->word;
    int dim = (int)of[ATTR_slice_scatter_dim];
    if (scatter->op == OP_dynamic_slice_scatter) {
        dim = (int)of[ATTR_dynamic_slice_scatter_dim];
        return shift_region(region, scatter->input[2], dim, scatter->input[1]->size[dim]);
    }
    region->offset += of[ATTR_slice_scatter_start] * region->stride[dim];
    region->stride[dim] *= of[ATTR_slice_scatter_step];
    region->size[dim] = scatter->input[1]->size[dim];
    return true;
}

/* Of what a view is of to the view; false: no strides say where that lies. */
static bool narrow_to_view(const Node *view, Region *region) {
    if (view->op == OP_dynamic_slice) {
        int dim = (int)view->attrs->word[ATTR_dynamic_slice_dim];
        return shift_region(region, view->input[1], dim, view->size[dim]);
    }
    Meta from = node_meta(view->input[0]), to = node_meta(view);
    Region now = *region;
    now.rank = view->rank;
    if (!view_strides(view->op, view->attrs, &from, &to, region->stride, region->offset, now.stride,
                      &now.offset))
        return false;
    if (view->rank) memcpy(now.size, view->size, sizeof *now.size * view->rank);
    *region = now;
    return true;
}

/* Of a view that has all elements of what it is of, to that. */
static bool undo_view(const Node *view, Region *region) {
    const Node *of = view->input[0];
    Region now = *region;
    now.rank = of->rank;
    if (of->rank) memcpy(now.size, of->size, sizeof *now.size * of->rank);
    if (view->op == OP_permute) {
        cb_dim_list dims = attr_dims(view->attrs, ATTR_permute_dims);
        for (int i = 0; i < dims.count; i++) now.stride[dims.at[i]] = region->stride[i];
    } else {
        Attrs attrs = {{0}};
        attr_set_dims(&attrs, ATTR_reshape_sizes, size_list(of->rank, of->size));
        Meta from = node_meta(view), to = node_meta(of);
        if (!view_strides(OP_reshape, &attrs, &from, &to, region->stride, region->offset,
                          now.stride, &now.offset))
            return false;
    }
    *region = now;
    return true;
}

/* Through views that have all elements of what they are of. */
static bool undo_views(const Node **node, Region *region) {
    for (; (*node)->op == OP_permute || (*node)->op == OP_reshape; *node = (*node)->input[0])
        if (!undo_view(*node, region)) return false;
    return true;
}

/* ---- writes -------------------------------------------------------------------------------- */

static bool is_scatter(const Graph *graph, const Node *node) {
    return node->op == OP_slice_scatter ||
           (node->op == OP_dynamic_slice_scatter && graph_shifts(graph, node));
}

const Node *region_below(const Graph *graph, const Node *node, Region *region) {
    const Node *view[MOST_VIEWS];
    int count = 0;
    for (; graph_views(graph, node); node = node->input[0]) {
        if (count == MOST_VIEWS) return NULL;
        view[count++] = node;
    }
    *region = region_whole(node, NULL);
    while (count--)
        if (!narrow_to_view(view[count], region)) return NULL;
    return node;
}

/* What a scatter writes to, without writes beside its own: slices of it are of that. */
static const Node *before_writes(const Node *scatter) {
    const int64_t *word = scatter->attrs->word;
    if (scatter->op != OP_slice_scatter) return scatter->input[0];
    int64_t dim = word[ATTR_slice_scatter_dim];
    return node_past_writes(scatter->input[0], dim, word[ATTR_slice_scatter_start],
                            scatter->input[1]->size[dim], word[ATTR_slice_scatter_step]);
}

static bool is_over(const Graph *graph, const Node *inner, const Node *outer, const Node *before) {
    Region there, is;
    const Node *below = region_below(graph, before, &there), *node = outer->input[1];
    return below && narrow_to_part(outer, &there) && undo_views(&node, &there) && node == inner &&
           region_below(graph, inner->input[0], &is) == below && same_region(&is, &there);
}

/* Whether inner, which the outer scatter writes, is computed from what was there before. */
static bool is_over_part(const Graph *graph, const Node *inner, const Node *outer) {
    return is_over(graph, inner, outer, before_writes(outer)) ||
           is_over(graph, inner, outer, outer->input[0]);
}

/* What a scatter writes, which is a part of what it stands in. */
static bool find_write(const Graph *graph, const Node *scatter, RegionWrite *write) {
    if (!narrow_to_part(scatter, &write->region)) return false;
    write->source = scatter->input[1];
    for (;;) {
        Region part = write->region;
        const Node *inner = write->source;
        write->updates =
            undo_views(&inner, &part) && inner->input_count && is_over_part(graph, inner, scatter);
        if (!write->updates || !is_scatter(graph, inner) || !narrow_to_part(inner, &part))
            return true;
        write->region = part;
        write->source = inner->input[1];
        scatter = inner;
    }
}

bool region_write(const Graph *graph, const Node *scatter, RegionWrite *write) {
    *write = (RegionWrite){.scatter = scatter, .region = region_whole(scatter, NULL)};
    return is_scatter(graph, scatter) && find_write(graph, scatter, write);
}

static void reverse(RegionWrite *write) {
    for (int i = 0, j = length(write) - 1; i < j; i++, j--) {
        RegionWrite last = write[j];
        write[j] = write[i], write[i] = last;
    }
}

/* The writes that make the value, which lies in *region, and what they are written to, which lies
 * there then: what none makes, or one that is in memory (by node id; NULL: none is). NULL: no
 * strides say so. */
static const Node *find_writes(const Graph *graph, Arena *arena, const Node *value, Region *region,
                               const bool *real, RegionWrite **found) {
    const Node *node = value;
    for (;; node = node->input[0]) {
        if (!undo_views(&node, region)) return NULL;
        if (!is_scatter(graph, node) || (node != value && real && real[node->id])) break;
        RegionWrite write = {.scatter = node, .region = *region};
        if (length(*found) == MOST_WRITES || !find_write(graph, node, &write)) return NULL;
        push(arena, *found, write);
    }
    reverse(*found);
    return node;
}

RegionWrite *region_writes(const Graph *graph, Arena *arena, const Node *input,
                           const int64_t *stride, const Node *value) {
    Region whole = region_whole(input, stride), region = whole;
    RegionWrite *found = NULL;
    const Node *base = find_writes(graph, arena, value, &region, NULL, &found);
    return base == input && same_region(&region, &whole) ? found : NULL;
}

const Node *region_base(const Graph *graph, Arena *arena, const Node *value, const bool *real,
                        RegionWrite **found) {
    Region region = region_whole(value, NULL);
    const Node *base = find_writes(graph, arena, value, &region, real, found);
    if (!base) return NULL;
    Region whole = region_whole(base, NULL);
    return same_region(&region, &whole) ? base : NULL;
}

/* ---- regions that meet --------------------------------------------------------------------- */

/* Along the dim of the whole whose stride goes into that of the region's dim; false: it leaves
 * that, as a diagonal does. */
static bool box_along(const Region *region, int d, const Node *whole, const int64_t *stride,
                      RegionBox *box) {
    int64_t count = region->size[d], along = region->stride[d];
    if (count == 1 || along == 0) return true;
    for (int i = 0; i < box->rank; i++) {
        if (along < stride[i] || along % stride[i]) continue;
        int64_t last = box->high[i] + (count - 1) * (along / stride[i]);
        bool single = box->low[i] == box->high[i] && last < whole->size[i];
        box->step[i] = along / stride[i];
        box->high[i] = last;
        return single;
    }
    return false;
}

void region_box(const Region *region, const Node *whole, RegionBox *box) {
    int64_t stride[CB_MAX_RANK], offset = region->offset;
    bool says = region->shift_count == 0;
    contiguous_strides(whole->rank, whole->size, stride);
    *box = (RegionBox){.rank = whole->rank};
    for (int i = 0; i < box->rank; i++) {
        box->low[i] = box->high[i] = offset / stride[i];
        offset %= stride[i];
    }
    for (int d = 0; d < region->rank && says; d++) says = box_along(region, d, whole, stride, box);
    for (int i = 0; i < box->rank && !says; i++)
        box->low[i] = 0, box->high[i] = whole->size[i] - 1, box->step[i] = 1;
}

static int64_t greatest_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

bool region_boxes_meet(const RegionBox *a, const RegionBox *b) {
    for (int i = 0; i < a->rank; i++) {
        int64_t divisor = greatest_divisor(a->step[i], b->step[i]);
        if (a->high[i] < b->low[i] || b->high[i] < a->low[i]) return false;
        if (divisor > 1 && (a->low[i] - b->low[i]) % divisor) return false;
    }
    return true;
}

/* ---- of a schedule ------------------------------------------------------------------------- */

void mark_scatters(Schedule *s, const RegionWrite *write) {
    s->scatters[write->scatter->id] = true;
    for (const Node *node = write->scatter->input[1]; node != write->source;) {
        bool scatters = is_scatter(s->graph, node);
        s->scatters[node->id] |= scatters;
        node = node->input[scatters];
    }
}

void find_regions(Schedule *s) {
    const Graph *graph = s->graph;
    s->write = arena_new_array(s->arena, RegionWrite *, length(graph->mutation) + 1);
    s->scatters = arena_new_array(s->arena, bool, length(graph->node) + 1);
    for (int i = 0; i < length(graph->mutation); i++) {
        const Mutation *mutation = &graph->mutation[i];
        const Node *input = graph->input[mutation->input];
        int64_t stride[CB_MAX_RANK];
        buffer_strides(s, input, stride);
        s->write[i] = region_writes(graph, s->arena, input, stride, mutation->value);
        for (int k = 0; k < length(s->write[i]); k++) mark_scatters(s, &s->write[i][k]);
    }
}

int mutation_count(const Schedule *s, int number) {
    return s->write[number] ? length(s->write[number]) : 1;
}

const Node *mutation_value(const Schedule *s, int number, int part) {
    return s->write[number] ? s->write[number][part].source : s->graph->mutation[number].value;
}
