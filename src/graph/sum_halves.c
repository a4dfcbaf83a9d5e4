/* Sums by index where memory is the work: of halves, which it would round, and of few rows.
 *
 * Every addend of a half goes through memory. In: a scatter_add of halves and its inputs as they
 * are now. Out: its value, summed in f32.
 *
 *     scatter_add(x, dim, i, s)   ->  to(scatter_add(to(x, f32), dim, i, to(s, f32)), bf16)
 *
 * Where few rows are added to many, as to those of a vocabulary, all of x in f32 would be most of
 * the work. Then rows that go to the same place are summed beside each other, and the sums written:
 *
 *     i: [7, 2, 7]   slot = [2, 1, 2], the last row of each place
 *                    sum[2] = s[0] + s[2], sum[1] = s[1]
 *                    x with x[i[k]] + sum[slot[k]] at i[k], for k = 0, 1, 2
 *
 * Of few rows that are added to zeros, the gradient of an embedding, what computes with the result
 * reads the sums: zeros are not written, nor read again by each of its readers.
 *
 *     row: [-1, -1, 1, -1, -1, -1, -1, 2]   by place: the last row that goes there
 *                    where(row >= 0, sum[row], 0) */
#include "graph/call.h"
#include "graph/node.h"
#include "graph/rewrite.h"

enum { FEW = 4 };        /* so many times the elements that are added: those of x, or more */
enum { MANY = 1 << 15 }; /* so many zeros take as long to write and to read as five kernels */

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

/* A vector along dim of what has the other's sizes. */
static Node *along_dim(Graph *graph, Node *vector, const Node *like, int64_t dim) {
    int64_t size[CB_MAX_RANK];
    for (int i = 0; i < like->rank; i++) size[i] = i == dim ? vector->size[0] : 1;
    return node_reshape(graph, vector, like->rank, size);
}

typedef struct RowSums {
    Node *row;  /* by place: the last row that goes there, or -1 */
    Node *slot; /* that row, for every element of what is added */
    Node *sum;  /* of all rows that go to the place of this one, where it is the last; or 0 */
} RowSums;

static RowSums sum_by_place(Graph *graph, const Node *x, int64_t dim, const Node *index, Node *src,
                            Node *position) {
    RowSums sums;
    Node *none = node_expand_to(graph, call_constant(graph, CB_I32, -1), 1, &x->size[dim]);
    Node *row = call_arange(graph, position->size[0], CB_I32);
    sums.row = indexed(graph, OP_scatter, 0, none, position, row);
    Node *slot =
        node_convert(graph, indexed(graph, OP_gather, 0, sums.row, position, NULL), CB_I64);
    slot = along_dim(graph, slot, index, dim);
    sums.slot = node_expand_to(graph, slot, index->rank, index->size);
    Node *zeros = call_constant(graph, src->dtype, 0);
    zeros = node_expand_to(graph, zeros, index->rank, index->size);
    sums.sum = indexed(graph, OP_scatter_add, dim, zeros, sums.slot, src);
    return sums;
}

static Node *sum_rows(Graph *graph, const Node *node, Node *const *input, Node *position) {
    Node *x = input[0], *index = input[1];
    int64_t dim = node->attrs->word[ATTR_along_dim];
    RowSums sums = sum_by_place(graph, x, dim, index, input[2], position);
    Node *before = indexed(graph, OP_gather, dim, x, index, NULL);
    before = node_convert(graph, before, sums.sum->dtype);
    Node *added = indexed(graph, OP_gather, dim, sums.sum, sums.slot, NULL);
    added = node_convert(graph, call2(graph, OP_add, before, added), x->dtype);
    return indexed(graph, OP_scatter, dim, x, index, added);
}

/* Few rows are added to many. */
static bool adds_few(const Node *x, const Node *index) {
    int64_t count = node_numel(index);
    return count > 0 && count <= INT32_MAX && count * FEW <= node_numel(x);
}

bool adds_few_rows(const Node *scatter_add) {
    const Node *x = scatter_add->input[0], *index = scatter_add->input[1];
    if (node_numel(x) < MANY) return false;
    for (int i = 0; i < x->rank; i++)
        if (i != scatter_add->attrs->word[ATTR_along_dim] && index->size[i] != x->size[i])
            return false; /* its rows are shorter */
    return adds_few(x, index);
}

Node *read_row_sums(Graph *graph, Node *node) {
    if (node->op != OP_scatter_add) return node;
    Node *x = node->input[0], *index = node->input[1], *zero = node_uniform(x);
    int64_t dim = node->attrs->word[ATTR_along_dim];
    bool zeros = zero && node_is_number(zero, 0);
    Node *position = zeros && adds_few_rows(node) ? row_positions(graph, index, dim) : NULL;
    if (!position) return node;
    RowSums sums = sum_by_place(graph, x, dim, index, node->input[2], position);
    Attrs attrs = attrs_default(OP_index_select);
    attrs.word[ATTR_along_dim] = dim;
    Node *none = call_constant(graph, CB_I32, 0);
    Node *place = node_convert(graph, call2(graph, OP_maximum, sums.row, none), CB_I64);
    Node *sum = graph_op(graph, OP_index_select, (Node *[]){sums.sum, place}, 2, &attrs, NULL);
    Node *has = call2(graph, OP_ge, along_dim(graph, sums.row, node, dim), none);
    return call3(graph, OP_where, has, sum, call_constant(graph, node->dtype, 0));
}

Node *sum_halves(Graph *graph, const Node *node, Node *const *input) {
    cb_dtype wide = compute_dtype(node->dtype);
    Node *x = input[0], *index = input[1], *src = node_convert(graph, input[2], wide);
    int64_t dim = node->attrs->word[ATTR_along_dim];
    Node *position = adds_few(x, index) ? row_positions(graph, index, dim) : NULL;
    if (position) return sum_rows(graph, node, (Node *[]){x, index, src}, position);
    Node *sum = indexed(graph, OP_scatter_add, dim, node_convert(graph, x, wide), index, src);
    return node_convert(graph, sum, node->dtype);
}
