/* Writes to parts of an input: nothing else of it is computed or moved.
 *
 *     k[5:6] = v; k[7:8] = w                          of k f32[4096, 64]
 *     first = slice_scatter(k, v, dim=0, start=5, end=6)
 *     mutate k = slice_scatter(first, w, dim=0, start=7, end=8)
 *         k takes v in the region [5:6], then w in [7:8]; who reads k behind them reads the
 *         scatters where they stand, which have no memory of their own
 *
 * Where somebody needs all of a scatter in memory, it is there besides. */
#include "sched/region.h"

#include "graph/node.h"
#include "sched/schedule.h"

enum { MOST_SCATTERS = 256 }; /* each is a copy of its own, and an output of the plan */

const Node **region_scatters(const Graph *graph, Arena *arena, const Node *input,
                             const Node *value) {
    const Node **scatter = NULL;
    for (; value != input; value = value->input[0]) {
        bool part = value->op == OP_slice_scatter || graph_shifts(graph, value);
        if (!part || length(scatter) == MOST_SCATTERS) return NULL;
        push(arena, scatter, value);
    }
    for (int i = 0, j = length(scatter) - 1; i < j; i++, j--) {
        const Node *node = scatter[i];
        scatter[i] = scatter[j], scatter[j] = node;
    }
    return scatter;
}

static bool is_same_window(const Node *node, const Node *scatter) {
    const Node *source = scatter->input[1];
    int64_t dim = scatter->attrs->word[ATTR_dynamic_slice_scatter_dim];
    return node->op == OP_dynamic_slice && node->input[0] == scatter->input[0] &&
           node->input[1] == scatter->input[2] && node_same_meta(node, source) &&
           node->attrs->word[ATTR_dynamic_slice_dim] == dim;
}

/* The node is what the scatter writes to, before it does. */
static bool is_same_slice(const Node *node, const Node *scatter) {
    const int64_t *of = scatter->attrs->word;
    if (scatter->op == OP_dynamic_slice_scatter) return is_same_window(node, scatter);
    return node->op == OP_slice && node->input[0] == scatter->input[0] &&
           node->attrs->word[ATTR_slice_dim] == of[ATTR_slice_scatter_dim] &&
           node->attrs->word[ATTR_slice_start] == of[ATTR_slice_scatter_start] &&
           node->attrs->word[ATTR_slice_step] == of[ATTR_slice_scatter_step];
}

/* It comes first: below it are slices alone. */
static void begin_at_input(const Node *scatter, Region *region) {
    int dim = (int)scatter->attrs->word[ATTR_dynamic_slice_scatter_dim];
    region->shift.input = (int)scatter->input[2]->attrs->word[0];
    region->shift.most = scatter->size[dim] - scatter->input[1]->size[dim];
    region->shifted = dim;
}

static void narrow_to_slice(const Node *scatter, Region *region) {
    const int64_t *of = scatter->attrs->word;
    int dim = (int)of[ATTR_slice_scatter_dim];
    region->start[dim] += of[ATTR_slice_scatter_start] * region->step[dim];
    region->step[dim] *= of[ATTR_slice_scatter_step];
}

const Node *region_written(const Node *scatter, Region *region) {
    *region = (Region){.rank = scatter->rank, .shift.input = NO_INPUT};
    for (int d = 0; d < scatter->rank; d++) region->step[d] = 1;
    for (bool further = true; further;) {
        if (scatter->op == OP_slice_scatter)
            narrow_to_slice(scatter, region);
        else
            begin_at_input(scatter, region);
        const Node *part = scatter->input[1];
        further = part->op == OP_slice_scatter && is_same_slice(part->input[0], scatter);
        scatter = part;
    }
    for (int d = 0; d < region->rank; d++) region->size[d] = scatter->size[d];
    return scatter;
}

void find_regions(Schedule *s) {
    const Graph *graph = s->graph;
    s->scatter = arena_new_array(s->arena, const Node **, length(graph->mutation) + 1);
    s->scatters = arena_new_array(s->arena, bool, length(graph->node) + 1);
    for (int i = 0; i < length(graph->mutation); i++) {
        const Mutation *mutation = &graph->mutation[i];
        const Node *input = graph->input[mutation->input];
        s->scatter[i] = region_scatters(graph, s->arena, input, mutation->value);
        for (int k = 0; k < length(s->scatter[i]); k++) s->scatters[s->scatter[i][k]->id] = true;
    }
}

int mutation_count(const Schedule *s, int number) {
    return s->scatter[number] ? length(s->scatter[number]) : 1;
}

const Node *mutation_value(const Schedule *s, int number, int part) {
    Region region;
    return s->scatter[number] ? region_written(s->scatter[number][part], &region)
                              : s->graph->mutation[number].value;
}
