/* Pass exact: what is compared with its own greatest element is rounded as that is.
 * needs primitive ops; keeps them; breaks nothing.
 *
 *     y = x * w + b                           y = muladd(x, w, b)
 *     m = amax(y, dim=1, keepdim=true)   ->   m = amax(y, dim=1, keepdim=true)
 *     where(y == m, g, 0)                     where(y == m, g, 0)
 *
 * Where y is computed in two loops, a C compiler may contract the product with the sum in one of
 * them and not in the other, by what else is there. Then no element is equal to the greatest one,
 * and the gradient of amax is divided among no elements. So the sum says that it is contracted. */
#include "graph/call.h"
#include "graph/node.h"
#include "graph/rewrite.h"

const Node *node_below_views(const Node *node) {
    while (op_info(node->op)->kind == KIND_VIEW) node = node->input[0];
    return node;
}

static bool compares(Op op) {
    return op == OP_eq || op == OP_ne || op == OP_lt || op == OP_le || op == OP_gt || op == OP_ge;
}

const Node *node_own_extreme(const Node *comparison, int k) {
    if (!compares(comparison->op)) return NULL;
    const Node *chosen = node_below_views(comparison->input[k]);
    if (op_info(chosen->op)->kind != KIND_REDUCE || !reduce_chooses(chosen->op)) return NULL;
    const Node *of = node_below_views(chosen->input[0]);
    bool own = of == node_below_views(comparison->input[1 - k]);
    return own && dtype_is_float(of->dtype) ? chosen : NULL;
}

/* By id: what has to have the same bits wherever it is computed. */
static bool *find_exact(const Graph *graph, Node *const *order, bool *any) {
    bool *exact = arena_new_array(graph->arena, bool, length(graph->node) + 1);
    for (int i = 0; i < length(order); i++) {
        const Node *node = order[i];
        for (int k = 0; k < 2; k++) {
            const Node *extreme = node_own_extreme(node, k);
            if (extreme) exact[node_below_views(extreme->input[0])->id] = *any = true;
        }
    }
    for (int i = length(order) - 1; i >= 0; i--) {
        const Node *node = order[i];
        OpKind kind = op_info(node->op)->kind;
        bool through = kind == KIND_POINTWISE || kind == KIND_VIEW;
        for (int k = 0; k < node->input_count && exact[node->id] && through; k++)
            if (node->input[k]) exact[node->input[k]->id] = true;
    }
    return exact;
}

static Node *negative(Graph *graph, Node *x) { return call1(graph, OP_neg, x); }

/* The sum or difference, of which an operand is a product, as one op; or itself. */
static Node *contracted(Graph *graph, Node *node) {
    bool minus = node->op == OP_sub, first = node->input[0]->op == OP_mul;
    if (!first && node->input[1]->op != OP_mul) return node;
    const Node *product = node->input[!first];
    Node *other = node->input[first], *a = product->input[0];
    if (minus && first) other = negative(graph, other);
    if (minus && !first) a = negative(graph, a);
    Meta meta = node_meta(node);
    Node *input[] = {a, product->input[1], other};
    return graph_intern(graph, OP_muladd, &meta, input, 3, NULL);
}

void pass_exact(Graph *graph, Budget *budget) {
    Origin origin = graph->origin;
    Node **order = graph_order(graph);
    bool any = false;
    const bool *exact = find_exact(graph, order, &any);
    if (!any) return;
    Node **now = arena_new_array(graph->arena, Node *, length(graph->node) + 1);
    for (int i = 0; i < length(order); i++) {
        const Node *node = order[i];
        Node *input[NODE_MAX_INPUTS];
        graph->origin = node->origin;
        node_inputs_now(node, now, input);
        bool adds = node->op == OP_add || node->op == OP_sub;
        Node *same = graph_with_inputs(graph, node, input);
        bool takes = exact[node->id] && adds && dtype_is_float(node->dtype) && budget_spend(budget);
        now[node->id] = takes ? contracted(graph, same) : same;
    }
    graph_replace_results(graph, now);
    graph->origin = origin;
}
