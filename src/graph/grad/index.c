/* Gradients of gathers and scatters: each other's, over the same index.
 *
 *     y = gather(x, dim, index)            to x: scatter_add(zeros, dim, index, g)
 *     y = gather(x: f32[n, k], 1, t[n, 1]) to x: where(position == t, g, 0): one pass over x, no
 *                                          zeros before and no scatter
 *     y = scatter(x, dim, index, src)      to x: g with 0 where src went; to src: gather(g) */
#include "graph/grad/grad.h"

static Node *call_scatter(Graph *graph, Op op, Node *x, int64_t dim, Node *index, Node *src) {
    Attrs attrs = attrs_default(op);
    attrs.word[ATTR_along_dim] = dim;
    return graph_op(graph, op, (Node *[]){x, index, src}, 3, &attrs, NULL);
}

/* One position for each row of x along dim. */
static bool picks_one(const Node *x, const Node *index, int64_t dim) {
    for (int i = 0; i < x->rank; i++)
        if (index->size[i] != (i == dim ? 1 : x->size[i])) return false;
    return true;
}

static Node *grad_gather(Graph *graph, const Node *x, Node *index, int64_t dim, Node *g) {
    Node *zero = call_constant(graph, g->dtype, 0);
    if (!picks_one(x, index, dim))
        return call_scatter(graph, OP_scatter_add, node_splat(graph, x, (Scalar){0}), dim, index,
                            g);
    int64_t along[CB_MAX_RANK];
    for (int i = (int)dim; i < x->rank; i++) along[i - dim] = i == dim ? x->size[i] : 1;
    Node *place = call_arange(graph, x->size[dim], CB_I64);
    place = node_reshape(graph, place, x->rank - (int)dim, along);
    return call3(graph, OP_where, call2(graph, OP_eq, place, index), g, zero);
}

/* The index vector along dim, for every element of g. */
static Node *spread_index(Graph *graph, Node *index, int64_t dim, const Node *g) {
    int64_t along[CB_MAX_RANK];
    for (int i = 0; i < g->rank; i++) along[i] = i == dim ? g->size[i] : 1;
    return node_expand_to(graph, node_reshape(graph, index, g->rank, along), g->rank, g->size);
}

/* Elements of src behind those of the index went nowhere. */
static Node *grad_source(Graph *graph, const Node *src, Node *index, int64_t dim, Node *g) {
    Attrs attrs = attrs_default(OP_gather);
    int64_t none[CB_MAX_RANK] = {0}, behind[CB_MAX_RANK];
    attrs.word[ATTR_gather_dim] = dim;
    for (int i = 0; i < src->rank; i++) behind[i] = src->size[i] - index->size[i];
    Node *picked = graph_op(graph, OP_gather, (Node *[]){g, index}, 2, &attrs, NULL);
    return picked ? call_pad(graph, picked, src->rank, none, behind, cb_operand_int(0)) : NULL;
}

void grad_index(const GradCall *call) {
    Graph *graph = call->graph;
    const Node *node = call->node;
    Node *x = node->input[0], *index = node->input[1], *g = call->given;
    int64_t dim = node->attrs->word[ATTR_along_dim];
    bool scatters = op_info(node->op)->kind == KIND_SCATTER, empty = node_numel(index) == 0;
    if (scatters && call->wanted[2] && !empty)
        call->result[2] = grad_source(graph, node->input[2], index, dim, g);
    if (!call->wanted[0]) return;
    if (scatters && (empty || node->op == OP_scatter_add))
        call->result[0] = g;
    else if (scatters)
        call->result[0] = call_scatter(graph, OP_scatter, g, dim, index,
                                       node_splat(graph, node->input[2], (Scalar){0}));
    else if (!empty && node->op == OP_index_select)
        call->result[0] = call_scatter(graph, OP_scatter_add, node_splat(graph, x, (Scalar){0}),
                                       dim, spread_index(graph, index, dim, g), g);
    else if (!empty)
        call->result[0] = grad_gather(graph, x, index, dim, g);
}
