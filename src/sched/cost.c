/* What eager does for a graph as the user wrote it, for comparison: one launch per op that
 * computes, each reading its inputs and writing its result; views, literals and inputs cost
 * nothing. Indices are checked before they are used, and a scatter updates a copy. Ops that nothing
 * needs are not counted. */
#include "graph/node.h"
#include "sched/plan.h"

void graph_eager_cost(Graph *graph, int *kernels, int64_t *bytes) {
    Node **order = graph_walk(graph, graph->arena, NULL, false);
    *kernels = 0;
    *bytes = 0;
    for (int i = 0; i < length(order); i++) {
        const Node *node = order[i];
        OpKind kind = op_info(node->op)->kind;
        if (kind == KIND_VIEW || kind == KIND_SPECIAL) continue;
        *kernels += 1;
        *bytes += node_bytes(node);
        for (int k = 0; k < node->input_count; k++)
            if (node->input[k]) *bytes += node_bytes(node->input[k]);
        if (op_has_index(node->op)) *kernels += 1, *bytes += node_bytes(node->input[1]);
        if (kind == KIND_SCATTER) *kernels += 1, *bytes += 2 * node_bytes(node);
    }
    for (int i = 0; i < length(graph->mutation); i++)
        *kernels += 1, *bytes += 2 * node_bytes(graph->mutation[i].value);
}
