/* What eager does for a graph as the user wrote it, for comparison: one launch per op that
 * computes, each reading its inputs and writing its result; views, literals and inputs cost
 * nothing. Indices are checked before they are used, and a scatter updates a copy. A write to a
 * part of an input moves that part. Ops that nothing needs are not counted. */
#include "graph/node.h"
#include "sched/plan.h"

static RegionWrite *writes_of(const Graph *graph, int mutation) {
    const Mutation *m = &graph->mutation[mutation];
    return region_writes(graph, graph->arena, graph->input[m->input], NULL, m->value);
}

/* Op by op a write to a part of an input is no op, but what it moves: the nodes between the source
 * of each write and its result are left out, down by what a view is of, and by what a scatter
 * writes. */
static bool *written_parts(const Graph *graph) {
    bool *part = arena_new_array(graph->arena, bool, length(graph->node) + 1);
    for (int i = 0; i < length(graph->mutation); i++) {
        const RegionWrite *write = writes_of(graph, i);
        for (int k = 0; k < length(write); k++)
            for (const Node *n = write[k].scatter; n != write[k].source;) {
                part[n->id] = true;
                n = n->input[op_info(n->op)->kind != KIND_VIEW];
            }
    }
    return part;
}

static void add_mutation(const Graph *graph, int mutation, int *kernels, int64_t *bytes) {
    const RegionWrite *write = writes_of(graph, mutation);
    for (int k = 0; k < length(write); k++)
        *kernels += 1, *bytes += 2 * node_bytes(write[k].source);
    if (!write) *kernels += 1, *bytes += 2 * node_bytes(graph->mutation[mutation].value);
}

void graph_eager_cost(Graph *graph, int *kernels, int64_t *bytes) {
    Node **order = graph_walk(graph, graph->arena, NULL, false);
    const bool *part = written_parts(graph);
    *kernels = 0;
    *bytes = 0;
    for (int i = 0; i < length(order); i++) {
        const Node *node = order[i];
        OpKind kind = op_info(node->op)->kind;
        bool view = kind == KIND_VIEW || node->op == OP_dynamic_slice;
        if (view || kind == KIND_SPECIAL || part[node->id]) continue;
        *kernels += 1;
        *bytes += node_bytes(node);
        for (int k = 0; k < node->input_count; k++)
            if (node->input[k]) *bytes += node_bytes(node->input[k]);
        if (op_has_index(node->op)) *kernels += 1, *bytes += node_bytes(node->input[1]);
        if (kind == KIND_SCATTER) *kernels += 1, *bytes += 2 * node_bytes(node);
    }
    for (int i = 0; i < length(graph->mutation); i++) add_mutation(graph, i, kernels, bytes);
}
