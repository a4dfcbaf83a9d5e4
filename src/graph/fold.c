/* Pass fold: what follows from constants alone becomes a constant.
 * needs primitive ops; keeps them; breaks nothing.
 *
 *     add(constant(1, f32), constant(2, f32))       ->  constant(3, f32)
 *     mul(full([8, 4], 2), constant(3, f32))        ->  expand(constant(6, f32), [8, 4])
 *     reshape(expand(constant(6, f32), [8, 4]), [32]) -> expand(constant(6, f32), [32])
 *
 * A tensor with one value everywhere is an expanded constant, so that no element of it is ever
 * stored or looked at. Values come from scalar_eval: the functions of the op table, in double. */
#include "graph/call.h"
#include "graph/rewrite.h"

Node *node_uniform(Node *node) {
    while (node->op == OP_expand) node = node->input[0];
    return node->op == OP_constant ? node : NULL;
}

static Node *fold_full(Graph *graph, Node *node) {
    cb_operand value = attr_number(node->attrs, ATTR_full_value);
    return node_splat(graph, node,
                      scalar_convert(number_scalar(&value), number_dtype(&value), node->dtype));
}

static Node *fold_pointwise(Graph *graph, Node *node) {
    Scalar value[NODE_MAX_INPUTS];
    cb_dtype dtype = CB_F64;
    for (int i = 0; i < node->input_count; i++) {
        const Node *constant = node_uniform(node->input[i]);
        if (!constant) return node;
        value[i] = node_constant(constant);
        dtype = constant->dtype;
    }
    if (node->op == OP_to)
        return node_splat(graph, node, scalar_convert(value[0], dtype, node->dtype));
    Scalar folded = scalar_eval(node->op, compute_dtype(dtype), value);
    if (graph->ambient.precise && dtype_is_half(node->dtype))
        folded = scalar_convert(folded, compute_dtype(node->dtype), node->dtype);
    return node_splat(graph, node, folded);
}

/* Where the order and number of additions cannot show: not in sums and products of floats. */
static Node *fold_reduce(Graph *graph, Node *node) {
    const Node *constant = node_uniform(node->input[0]);
    int64_t count = node_numel(node->input[0]), results = node_numel(node);
    if (count == 0 && results > 0)
        return node_splat(graph, node, scalar_identity(node->op, node->dtype));
    if (!constant || count == 0 || node->op == OP_prod) return node;
    Scalar value = node_constant(constant);
    if (node->op == OP_sum) {
        if (dtype_is_float(node->dtype)) return node;
        value.i = (int64_t)((uint64_t)value.i * (uint64_t)(count / results));
    }
    return node_splat(graph, node, value);
}

Node *fold_node(Graph *graph, Node *node) {
    if (node->op == OP_full) return fold_full(graph, node);
    Node *uniform;
    switch (op_info(node->op)->kind) {
    case KIND_POINTWISE:
        return fold_pointwise(graph, node);
    case KIND_REDUCE:
        return fold_reduce(graph, node);
    case KIND_VIEW:
        uniform = node_uniform(node->input[0]);
        return uniform ? node_expand_to(graph, uniform, node->rank, node->size) : node;
    default:
        return node;
    }
}

bool budget_spend(Budget *budget) {
    if (budget->left > 0) {
        budget->left--;
        return true;
    }
    return budget->left < 0;
}

static Node *fold_within(Graph *graph, Node *node, void *budget) {
    Node *folded = fold_node(graph, node);
    return folded != node && budget_spend(budget) ? folded : node;
}

void pass_fold(Graph *graph, Budget *budget) { graph_rewrite(graph, fold_within, budget); }
