/* Sums by index of f16 and bf16: every addend of one goes through memory, which would round it.
 * In: a scatter_add of halves and its inputs as they are now. Out: its value, summed in f32.
 *
 *     scatter_add(x, dim, i, s)   ->  to(scatter_add(to(x, f32), dim, i, to(s, f32)), bf16)
 *
 * Where few rows are added to many, as to those of a vocabulary, all of x in f32 would be most of
 * the work. Then rows that go to the same place are summed beside each other, and the sums written:
 *
 *     i: [7, 2, 7]   slot = [2, 1, 2], the last row of each place; sum[2] = s[0] + s[2], sum[1] =
 *     s[1]
 *                    x with x[i[k]] + sum[slot[k]] at i[k], for k = 0, 1, 2 */
#include "graph/call.h"
#include "graph/node.h"
#include "graph/rewrite.h"

enum { FEW = 4 }; /* so many times the elements that are added: those of x, or more */

/* A gather or scatter whose index was checked where it came from. */
static Node *indexed(Graph *graph, Op op, int64_t dim, Node *x, Node *index, Node *src) {
    Attrs attrs = attrs_default(op);
    attrs.word[ATTR_along_dim] = dim;
    Meta meta = node_meta(src ? x : index);
    meta.dtype = x->dtype;
    return graph_intern(graph, op, &meta, (Node *[]){x, index, src}, src ? 3 : 2, &attrs);
}

/* The positions of whole rows as a vector; NULL: an index that differs within rows. */
static Node *row_positions(Graph *graph, Node *index, int64_t dim) {
    Node *below = index->op == OP_expand ? index->input[0] : index;
    bool same = below->rank == index->rank;
    for (int i = 0; same && i < index->rank; i++)
        same = below->size[i] == (i == dim ? index->size[dim] : 1);
    return same ? node_reshape(graph, below, 1, &index->size[dim]) : NULL;
}

static Node *sum_rows(Graph *graph, const Node *node, Node *const *input, Node *position) {
    Node *x = input[0], *index = input[1];
    int64_t dim = node->attrs->word[ATTR_along_dim], along[CB_MAX_RANK];
    Node *none = node_expand_to(graph, call_constant(graph, CB_I32, 0), 1, &x->size[dim]);
    Node *row = call_arange(graph, position->size[0], CB_I32);
    Node *slot = indexed(graph, OP_scatter, 0, none, position, row);
    slot = node_convert(graph, indexed(graph, OP_gather, 0, slot, position, NULL), CB_I64);
    for (int i = 0; i < index->rank; i++) along[i] = i == dim ? index->size[i] : 1;
    slot = node_reshape(graph, slot, index->rank, along);
    slot = node_expand_to(graph, slot, index->rank, index->size);
    Node *zeros = call_constant(graph, input[2]->dtype, 0);
    zeros = node_expand_to(graph, zeros, index->rank, index->size);
    Node *sum = indexed(graph, OP_scatter_add, dim, zeros, slot, input[2]);
    Node *before = indexed(graph, OP_gather, dim, x, index, NULL);
    before = node_convert(graph, before, sum->dtype);
    sum = call2(graph, OP_add, before, indexed(graph, OP_gather, dim, sum, slot, NULL));
    return indexed(graph, OP_scatter, dim, x, index, node_convert(graph, sum, x->dtype));
}

Node *sum_halves(Graph *graph, const Node *node, Node *const *input) {
    cb_dtype wide = compute_dtype(node->dtype);
    Node *x = input[0], *index = input[1], *src = node_convert(graph, input[2], wide);
    int64_t dim = node->attrs->word[ATTR_along_dim];
    int64_t count = node_numel(index);
    bool few = count > 0 && count <= INT32_MAX && count * FEW <= node_numel(x);
    Node *position = few ? row_positions(graph, index, dim) : NULL;
    if (position) return sum_rows(graph, node, (Node *[]){x, index, src}, position);
    Node *sum = indexed(graph, OP_scatter_add, dim, node_convert(graph, x, wide), index, src);
    return node_convert(graph, sum, node->dtype);
}
