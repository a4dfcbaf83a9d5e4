/* Pass exact: what meets its own greatest element in an op is rounded as that is.
 * needs primitive ops; keeps them; breaks nothing.
 *
 *     y = x * w + b                           y = muladd(x, w, b)
 *     m = amax(y, dim=1, keepdim=true)   ->   m = amax(y, dim=1, keepdim=true)
 *     where(y == m, g, 0)                     where(y == m, g, 0)
 *
 * Where y is computed in two loops, a C compiler may contract the product with the sum in one of
 * them and not in the other, by what else is there. Then no element is equal to the greatest one,
 * and the gradient of amax is divided among no elements. So the sum says that it is contracted.
 *
 *     y = x * w                               y = muladd(x, w, -0.0)
 *     sqrt(y - amin(y))                  ->   sqrt(y - amin(y))
 *
 * Here the product could be contracted with the difference, and be less than the least of those
 * that were rounded. With -0.0 it is rounded by itself, and has the sign that it has. */
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

static const Node *below_signs(const Node *node) {
    while (op_info(node->op)->kind == KIND_VIEW || node->op == OP_abs || node->op == OP_neg)
        node = node->input[0];
    return node;
}

/* Operand k, if that is the greatest or least element of another one, or the furthest from 0. */
static const Node *own_extreme(const Node *node, int k) {
    if (!node->input[k]) return NULL;
    const Node *chosen = node_below_views(node->input[k]);
    if (op_info(chosen->op)->kind != KIND_REDUCE || !reduce_chooses(chosen->op)) return NULL;
    const Node *of = below_signs(chosen->input[0]);
    bool own = false;
    for (int i = 0; i < node->input_count; i++)
        own |= i != k && node->input[i] && below_signs(node->input[i]) == of;
    return own && dtype_is_float(of->dtype) ? chosen : NULL;
}

const Node *node_own_extreme(const Node *comparison, int k) {
    return compares(comparison->op) ? own_extreme(comparison, k) : NULL;
}

/* By id: what has to have the same bits wherever it is computed; rounded: before a difference to
 * its own extreme. */
static bool *find_exact(const Graph *graph, Node *const *order, bool *rounded, bool *any) {
    bool *exact = arena_new_array(graph->arena, bool, length(graph->node) + 1);
    for (int i = 0; i < length(order); i++) {
        const Node *node = order[i];
        bool meets = op_info(node->op)->kind == KIND_POINTWISE;
        for (int k = 0; k < node->input_count && meets; k++) {
            const Node *extreme = own_extreme(node, k);
            if (!extreme) continue;
            const Node *of = below_signs(extreme->input[0]);
            exact[of->id] = *any = true;
            rounded[of->id] |= node->op == OP_sub;
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

/* Such a product takes no rounding, but among the subnormal numbers. */
static bool is_doubling(const Node *product) {
    return node_is_power_of_two(product->input[0]) || node_is_power_of_two(product->input[1]);
}

static Node *rounded_product(Graph *graph, const Node *node) {
    Meta meta = node_meta(node);
    Node *input[] = {node->input[0], node->input[1], call_constant(graph, node->dtype, -0.0)};
    return graph_intern(graph, OP_muladd, &meta, input, 3, NULL);
}

void pass_exact(Graph *graph, Budget *budget) {
    Origin origin = graph->origin;
    Node **order = graph_order(graph);
    bool any = false;
    bool *rounded = arena_new_array(graph->arena, bool, length(graph->node) + 1);
    const bool *exact = find_exact(graph, order, rounded, &any);
    if (!any) return;
    Node **now = arena_new_array(graph->arena, Node *, length(graph->node) + 1);
    for (int i = 0; i < length(order); i++) {
        const Node *node = order[i];
        Node *input[NODE_MAX_INPUTS];
        graph->origin = node->origin;
        node_inputs_now(node, now, input);
        bool adds = node->op == OP_add || node->op == OP_sub;
        Node *same = graph_with_inputs(graph, node, input);
        bool multiplies = rounded[node->id] && node->op == OP_mul && !is_doubling(node);
        bool takes = exact[node->id] && (adds || multiplies) && dtype_is_float(node->dtype) &&
                     budget_spend(budget);
        now[node->id] = !takes ? same
                        : adds ? contracted(graph, same)
                               : rounded_product(graph, same);
    }
    graph_replace_results(graph, now);
    graph->origin = origin;
}
