/* Pass pieces: a concatenation of many, which a library step reads, is written piece by piece.
 *
 *     matmul(stack(h0 .. h47), w)     a loop over all asks each row which of 48 it is, and is
 *                                     compiled with 48 operands; each h stands where it is computed
 *                                     otherwise, by kernels of one text
 *
 * needs primitive, normal ops; gives and breaks nothing. The pieces are written in the order in
 * which they are computed, into zeros, so pieces of zeros are there already. Others read what is
 * joined in their own loops: short runs, and few pieces, are left as they are. */
#include "graph/call.h"
#include "graph/node.h"
#include "graph/rewrite.h"

#include <stdlib.h>

enum {
    MANY = 9,      /* pieces; of fewer, each range has a loop of its own in one kernel */
    LEAST_RUN = 64 /* bytes of a piece that lie side by side, on average */
};

typedef struct JoinedPiece {
    Node *node;
    int64_t start;
} JoinedPiece;

/* The nodes as they were, by id. */
typedef struct Pieces {
    Graph *graph;
    const int *users;
    bool *read; /* by a library step, below views */
    Node **now;
} Pieces;

static bool joins_along(const Node *node, int64_t dim) {
    return node->op == OP_concat && node->attrs->word[ATTR_concat_dim] == dim;
}

/* Those of the node, through what is joined for nothing else. */
static JoinedPiece *list_pieces(const Pieces *p, Node *node) {
    Arena *arena = p->graph->arena;
    JoinedPiece *piece = NULL, *left = NULL;
    int64_t dim = node->attrs->word[ATTR_concat_dim];
    push(arena, left, ((JoinedPiece){node, 0}));
    while (length(left)) {
        JoinedPiece top = pop(left);
        bool parts =
            joins_along(top.node, dim) && (top.node == node || p->users[top.node->id] == 1);
        if (!parts) {
            push(arena, piece, top);
            continue;
        }
        Node *a = top.node->input[0], *b = top.node->input[1];
        push(arena, left, ((JoinedPiece){a, top.start}));
        push(arena, left, ((JoinedPiece){b, top.start + a->size[dim]}));
    }
    return piece;
}

static bool is_long(const Node *node, int pieces) {
    int64_t bytes = (int64_t)cb_dtype_size(node->dtype);
    for (int i = (int)node->attrs->word[ATTR_concat_dim]; i < node->rank; i++)
        bytes *= node->size[i];
    return bytes >= (int64_t)pieces * LEAST_RUN;
}

static int by_age(const void *first, const void *second) {
    const JoinedPiece *a = first, *b = second;
    if (a->node->id != b->node->id) return a->node->id < b->node->id ? -1 : 1;
    return a->start < b->start ? -1 : 1;
}

static Node *written(const Pieces *p, const Node *node, JoinedPiece *piece) {
    int64_t dim = node->attrs->word[ATTR_concat_dim];
    Node *all = node_splat(p->graph, node, (Scalar){0});
    qsort(piece, (size_t)length(piece), sizeof *piece, by_age);
    for (int i = 0; i < length(piece); i++) {
        const Node *part = piece[i].node;
        Attrs place = attrs_default(OP_slice_scatter);
        place.word[ATTR_slice_scatter_dim] = dim;
        place.word[ATTR_slice_scatter_start] = piece[i].start;
        place.word[ATTR_slice_scatter_end] = piece[i].start + part->size[dim];
        if (node_is_number(node_below_views(part), 0)) continue;
        Node *input[] = {all, p->now[part->id]};
        all = graph_op(p->graph, OP_slice_scatter, input, 2, &place, NULL);
    }
    return all;
}

static Node *replaced(const Pieces *p, Node *node, Budget *budget) {
    bool asked = node->op == OP_concat && p->read[node->id];
    JoinedPiece *piece = asked ? list_pieces(p, node) : NULL;
    bool many = length(piece) >= MANY && is_long(node, length(piece));
    p->graph->origin = node->origin;
    return many && budget_spend(budget) ? written(p, node, piece)
                                        : graph_copy_node(p->graph, node, p->now);
}

static bool mark_read(const Pieces *p, Node *const *order) {
    bool any = false;
    for (int i = 0; i < length(order); i++) {
        OpKind kind = op_info(order[i]->op)->kind;
        for (int k = 0; k < order[i]->input_count; k++) {
            if ((kind != KIND_CONTRACT && kind != KIND_OPAQUE) || !order[i]->input[k]) continue;
            const Node *below = node_below_views(order[i]->input[k]);
            p->read[below->id] = true;
            any |= below->op == OP_concat;
        }
    }
    return any;
}

void pass_pieces(Graph *graph, Budget *budget) {
    Origin origin = graph->origin;
    Node **order = graph_order(graph);
    int count = length(graph->node) + 1;
    Pieces p = {.graph = graph, .read = arena_new_array(graph->arena, bool, count)};
    if (!mark_read(&p, order)) return;
    p.users = graph_users(graph, order);
    p.now = arena_new_array(graph->arena, Node *, count);
    for (int i = 0; i < length(order); i++) p.now[order[i]->id] = replaced(&p, order[i], budget);
    graph_replace_results(graph, p.now);
    graph->origin = origin;
}
