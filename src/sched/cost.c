/* What eager does for a graph as the user wrote it, for comparison: one launch per op that
 * computes, each reading its inputs and writing its result; views, literals and inputs cost
 * nothing. Indices are checked before they are used, and a scatter updates a copy. Ops that nothing
 * needs are not counted. */
#include "graph/node.h"
#include "sched/plan.h"

typedef struct Cost {
    int kernels;
    int64_t bytes;
} Cost;

/* Op by op a write to a part is no op, but what it moves: nothing, where the source was computed in
 * place. The nodes between that and the result are left out, down by what a view is of, and by what
 * a scatter writes. */
static bool add_write(const Graph *graph, const Node *node, bool *part, Cost *cost) {
    RegionWrite write;
    if (!region_write(graph, node, &write)) return false;
    for (; node != write.source; node = node->input[op_info(node->op)->kind != KIND_VIEW])
        part[node->id] = true;
    if (!write.updates) cost->kernels += 1, cost->bytes += 2 * node_bytes(write.source);
    return true;
}

static void add_mutation(const Graph *graph, const Mutation *mutation, Cost *cost) {
    const Node *input = graph->input[mutation->input];
    if (region_writes(graph, graph->arena, input, NULL, mutation->value)) return;
    cost->kernels += 1, cost->bytes += 2 * node_bytes(mutation->value);
}

static void add_op(const Node *node, Cost *cost) {
    OpKind kind = op_info(node->op)->kind;
    if (kind == KIND_VIEW || node->op == OP_dynamic_slice || kind == KIND_SPECIAL) return;
    cost->kernels += 1;
    cost->bytes += node_bytes(node);
    for (int k = 0; k < node->input_count; k++)
        if (node->input[k]) cost->bytes += node_bytes(node->input[k]);
    if (op_has_index(node->op)) cost->kernels += 1, cost->bytes += node_bytes(node->input[1]);
    if (kind == KIND_SCATTER) cost->kernels += 1, cost->bytes += 2 * node_bytes(node);
}

void graph_eager_cost(Graph *graph, int *kernels, int64_t *bytes) {
    Node **order = graph_walk(graph, graph->arena, NULL, false);
    bool *part = arena_new_array(graph->arena, bool, length(graph->node) + 1);
    Cost cost = {0};
    for (int i = length(order) - 1; i >= 0; i--)
        if (!part[order[i]->id] && !add_write(graph, order[i], part, &cost))
            add_op(order[i], &cost);
    for (int i = 0; i < length(graph->mutation); i++)
        add_mutation(graph, &graph->mutation[i], &cost);
    *kernels = cost.kernels;
    *bytes = cost.bytes;
}
