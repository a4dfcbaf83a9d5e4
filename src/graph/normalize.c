/* Pass normalize: shapes that steps and loops do not know give way to those that they know.
 * needs primitive ops; gives normal ones; breaks nothing.
 *
 *     matmul(a: f32[3], b: f32[3, 4])  ->  reshape(matmul(reshape(a, [1, 3]), b), [4])
 *     argsort(x, dim=0)                ->  permute(argsort(permute(x, [1, 0]), dim=1), [1, 0])
 *     sum(x: f32[4, 1], dim=[1])       ->  reshape(x, [4])
 *     sum(x: f32[0, 4], dim=[0])       ->  expand(0, [4]) */
#include "graph/call.h"
#include "graph/node.h"
#include "graph/rewrite.h"

static Node *swap_last(Graph *graph, Node *node, int dim) {
    cb_dim_list dims = {node->rank, {0}};
    for (int i = 0; i < node->rank; i++) dims.at[i] = i;
    dims.at[dim] = node->rank - 1;
    dims.at[node->rank - 1] = dim;
    return call_permute(graph, node, dims);
}

/* Sorts run along the last dimension. */
static Node *sort_last(Graph *graph, Node *node, int word) {
    int dim = (int)node->attrs->word[word];
    if (node->rank == 0 || dim == node->rank - 1) return node;
    Attrs attrs = *node->attrs;
    attrs.word[word] = node->rank - 1;
    Node *input = swap_last(graph, node->input[0], dim);
    return swap_last(graph, graph_op(graph, node->op, &input, 1, &attrs, NULL), dim);
}

/* Vectors in a matmul are matrices of one row or column. */
static Node *matmul_matrices(Graph *graph, Node *node) {
    Node *a = node->input[0], *b = node->input[1];
    if (a->rank > 1 && b->rank > 1) return node;
    if (a->rank == 1) a = node_reshape(graph, a, 2, (int64_t[]){1, a->size[0]});
    if (b->rank == 1) b = node_reshape(graph, b, 2, (int64_t[]){b->size[0], 1});
    return node_reshape(graph, call2(graph, OP_matmul, a, b), node->rank, node->size);
}

/* A fold over one element is that element. */
static Node *fold_of_one(Graph *graph, Node *node) {
    if (node_numel(node) != node_numel(node->input[0]) || node_numel(node) == 0) return node;
    Node *same = node_convert(graph, node->input[0], node->dtype);
    return node_reshape(graph, same, node->rank, node->size);
}

static bool takes_nothing(const Node *node) {
    OpKind kind = op_info(node->op)->kind;
    if (kind == KIND_SCATTER) return node_numel(node->input[1]) == 0;
    return kind == KIND_REDUCE && node_numel(node->input[0]) == 0;
}

/* A fold over no elements is its identity, a base into which nothing is scattered stays. So every
 * loop has something to walk over, and code outside of it reads only what is there. */
static Node *of_nothing(Graph *graph, Node *node) {
    if (op_info(node->op)->kind == KIND_REDUCE)
        return node_splat(graph, node, scalar_identity(node->op, node->dtype));
    return call1(graph, OP_clone, node->input[0]);
}

static Node *normal(Graph *graph, Node *node, void *user) {
    (void)user;
    OpKind kind = op_info(node->op)->kind;
    if (kind == KIND_VIEW || kind == KIND_SPECIAL) return node;
    bool acts = node->op == OP_custom && op_draws(OP_custom, node->attrs);
    if (node_numel(node) == 0 && !acts) return node_splat(graph, node, (Scalar){.i = 0});
    if (takes_nothing(node)) return of_nothing(graph, node);
    if (node->op == OP_matmul) return matmul_matrices(graph, node);
    if (node->op == OP_argsort) return sort_last(graph, node, ATTR_argsort_dim);
    if (node->op == OP_argtopk) return sort_last(graph, node, ATTR_argtopk_dim);
    bool one = kind == KIND_REDUCE;
    if (kind == KIND_SCAN)
        one = node->rank == 0 || node->size[node->attrs->word[ATTR_along_dim]] == 1;
    return one ? fold_of_one(graph, node) : node;
}

bool node_is_normal(Graph *graph, Node *node) { return normal(graph, node, NULL) == node; }

void pass_normalize(Graph *graph, Budget *budget) {
    (void)budget; /* scheduling needs normal nodes: this pass is never cut short */
    graph_rewrite(graph, normal, NULL);
}
