/* Pass narrow: a slice of a product's rows is a product of the slice.
 * needs primitive ops; keeps them; breaks nothing.
 *
 *     slice(matmul(x, w) + b, dim=1, start=31, end=32)
 *         ->  matmul(slice(x, dim=1, start=31, end=32), w) + b
 *
 * where nothing else needs the product: of a language model's logits only the last row is asked
 * for, and they are a third of all its work. Pointwise ops may stand between the two, whose other
 * operands have no such dimension. Equal up to the order of sums, which goes by the number of
 * rows. */
#include "graph/call.h"
#include "graph/node.h"
#include "graph/rewrite.h"

typedef struct Narrow {
    Graph *graph;
    Node *const *now; /* by id: what stands for a node */
    const int *uses;  /* by id */
    const Node *slice;
} Narrow;

static bool has_dim(const Node *x, const Node *node, int dim) {
    int own = dim - (node->rank - x->rank);
    return own >= 0 && x->size[own] != 1;
}

static Node *narrow(const Narrow *n, const Node *node, int dim);

static Node *narrow_product(const Narrow *n, const Node *node, int dim) {
    const Node *x = node->input[0], *w = node->input[1];
    if (x->rank != node->rank || w->rank != 2 || dim == node->rank - 1) return NULL;
    Node *input[2] = {n->now[x->id], n->now[w->id]};
    input[0] = graph_op(n->graph, OP_slice, input, 1, n->slice->attrs, NULL);
    return graph_op(n->graph, OP_matmul, input, 2, NULL, NULL);
}

static Node *narrow_pointwise(const Narrow *n, const Node *node, int dim) {
    Node *input[NODE_MAX_INPUTS];
    for (int i = 0; i < node->input_count; i++) {
        const Node *x = node->input[i];
        bool full = has_dim(x, node, dim);
        input[i] = !full ? n->now[x->id] : x->rank == node->rank ? narrow(n, x, dim) : NULL;
        if (!input[i]) return NULL;
    }
    return graph_op(n->graph, node->op, input, node->input_count, node->attrs, NULL);
}

/* The slice of the node; NULL: it is none of a product. */
static Node *narrow(const Narrow *n, const Node *node, int dim) {
    if (n->uses[node->id] != 1) return NULL;
    if (node->op == OP_matmul) return narrow_product(n, node, dim);
    bool pointwise = op_info(node->op)->kind == KIND_POINTWISE && node->input_count <= 2;
    return pointwise ? narrow_pointwise(n, node, dim) : NULL;
}

void pass_narrow(Graph *graph, Budget *budget) {
    Origin origin = graph->origin;
    Node **order = graph_order(graph);
    Node **now = arena_new_array(graph->arena, Node *, length(graph->node) + 1);
    Narrow n = {graph, now, graph_uses(graph, order), NULL};
    for (int i = 0; i < length(order); i++) {
        Node *node = order[i], *input[NODE_MAX_INPUTS], *made = NULL;
        graph->origin = node->origin;
        n.slice = node;
        if (node->op == OP_slice)
            made = narrow(&n, node->input[0], (int)node->attrs->word[ATTR_slice_dim]);
        node_inputs_now(node, now, input);
        bool takes = made && node_same_meta(made, node) && budget_spend(budget);
        now[node->id] = takes ? made : graph_with_inputs(graph, node, input);
    }
    graph_replace_results(graph, now);
    graph->origin = origin;
}
