/* Pass decompose: every composite gives way to its expansion, sums by index of halves to such of
 * f32. needs nothing; gives primitive ops; breaks nothing.
 *
 *     softmax(x, dim=1)  ->  e = exp(sub(x, amax(x, dim=[1], keepdim=true))); div(e, sum(e, ...))
 *     scatter_add(x, i, s) of bf16  ->  to(scatter_add(to(x, f32), i, to(s, f32)), bf16)
 *
 * The expansions exist since their composites were built, and nest. One walk that goes through the
 * expansions instead of the composites' inputs therefore meets every node that remains, once. */
#include "graph/node.h"
#include "graph/rewrite.h"

void pass_decompose(Graph *graph, Budget *budget) {
    (void)budget; /* what comes later needs primitive ops: this pass is never cut short */
    Origin origin = graph->origin;
    Node **order = graph_walk(graph, graph->arena, graph->check, true);
    Node **now = arena_new_array(graph->arena, Node *, length(graph->node) + 1);
    for (int i = 0; i < length(order); i++) {
        Node *node = order[i], *input[NODE_MAX_INPUTS];
        if (node->expansion) {
            now[node->id] = now[node->expansion->id];
            continue;
        }
        graph->origin = node->origin;
        node_inputs_now(node, now, input);
        bool wide = node->op == OP_scatter_add && dtype_is_half(node->dtype);
        now[node->id] =
            wide ? sum_halves(graph, node, input) : graph_with_inputs(graph, node, input);
    }
    graph_replace_results(graph, now);
    graph->origin = origin;
}
