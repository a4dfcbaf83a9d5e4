/* What comes to one node from all of its users, added up.
 *
 *     x: f32[8, 4], each column read       4 times slice_scatter(zeros, g, 1, t, t + 1)
 *     their sum                            concat(g0, g1, g2, g3), and no zeros
 *
 *     w: f32[1024, 256], read by 32 steps  32 times matmul(permute(g), h), f32[1024, 256] each
 *     their sum                            matmul(permute(concat(g0 .. g31)), concat(h0 .. h31))
 *
 * Gradients of slices are kept as they are until all of them are there. Then those that lie side by
 * side are joined, with zeros in the gaps, and what overlaps is joined apart: windows of w
 * elements, a step of one between them, are w sums. What was scattered to zeros, as by a table of
 * which rows are looked up, is scattered to the sum of the others; but for a few rows, of which
 * readers find the sums (`read_row_sums`). Products of few rows take less time to be put below each
 * other than to be added up. */
#include "graph/grad/grad.h"
#include "graph/rewrite.h"

#include <stdlib.h>

typedef struct PlacedPart {
    Node *scatter;
    int64_t dim, first, end;
    int number; /* in the order in which they came */
} PlacedPart;

/* Parts that do not overlap, from the first to the last. */
typedef struct PlacedRow {
    PlacedPart *part; /* vec */
} PlacedRow;

static bool is_zeros(const Node *node) {
    const Node *below = node_below_views(node);
    return node->op == OP_zeros_like || node_is_number(below, 0);
}

static bool is_part(const Node *g) {
    return g->op == OP_slice_scatter && g->attrs->word[ATTR_slice_scatter_step] == 1 &&
           is_zeros(g->input[0]);
}

/* g as a product of two matrices, which may be turned. */
static Node *product_below(Node *g) {
    return g->op == OP_permute && g->rank == 2 ? g->input[0] : g;
}

/* Fewer elements to copy than to add; turned, or not, as the first one. */
static bool joins_products(const GradSum *sum, Node *g) {
    const Node *product = product_below(g);
    if (sum->product && sum->product[0]->op != g->op) return false;
    if (product->op != OP_matmul || product->input[0]->rank != 2 || product->input[1]->rank != 2)
        return false;
    int64_t sums = product->input[0]->size[1];
    return sums * (product->size[0] + product->size[1]) < product->size[0] * product->size[1];
}

void grad_sum_add(Graph *graph, GradSum *sum, Node *g) {
    if (is_part(g))
        push(graph->arena, sum->part, g);
    else if (g->op == OP_scatter_add && is_zeros(g->input[0]) && !adds_few_rows(g))
        push(graph->arena, sum->scatter, g);
    else if (joins_products(sum, g))
        push(graph->arena, sum->product, g);
    else
        sum->whole = sum->whole ? call2(graph, OP_add, sum->whole, g) : g;
}

static int by_place(const void *first, const void *second) {
    const PlacedPart *a = first, *b = second;
    if (a->dim != b->dim) return a->dim < b->dim ? -1 : 1;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return a->number < b->number ? -1 : 1;
}

static PlacedPart *list_parts(Arena *arena, Node *const *scatter) {
    PlacedPart *list = NULL;
    for (int i = 0; i < length(scatter); i++) {
        const int64_t *word = scatter[i]->attrs->word;
        int64_t dim = word[ATTR_slice_scatter_dim], first = word[ATTR_slice_scatter_start];
        int64_t end = first + scatter[i]->input[1]->size[dim];
        push(arena, list, ((PlacedPart){scatter[i], dim, first, end, i}));
    }
    if (list) qsort(list, (size_t)length(list), sizeof *list, by_place);
    return list;
}

/* Each part goes to the first row that ends before it. */
static PlacedRow *list_rows(Arena *arena, const PlacedPart *part) {
    PlacedRow *row = NULL;
    for (int i = 0; i < length(part); i++) {
        int r = 0;
        for (; r < length(row); r++) {
            const PlacedPart *last = &row[r].part[length(row[r].part) - 1];
            if (last->dim == part[i].dim && last->end <= part[i].first) break;
        }
        if (r == length(row)) push(arena, row, ((PlacedRow){NULL}));
        push(arena, row[r].part, part[i]);
    }
    return row;
}

static Node *zeros_between(Graph *graph, const Node *like, int64_t dim, int64_t first,
                           int64_t end) {
    int64_t size[CB_MAX_RANK];
    for (int i = 0; i < like->rank; i++) size[i] = i == dim ? end - first : like->size[i];
    Node *zero = call_constant(graph, like->dtype, 0);
    return node_expand_to(graph, zero, like->rank, size);
}

/* A balanced tree, as cb_cat. */
static Node *joined(Graph *graph, Node *const *piece, int count, int64_t dim) {
    if (count == 1) return piece[0];
    Node *a = joined(graph, piece, count / 2, dim);
    Node *b = joined(graph, piece + count / 2, count - count / 2, dim);
    return call_concat(graph, a, b, (int)dim);
}

static Node *row_sum(Graph *graph, const Node *x, const PlacedRow *row) {
    Node **piece = NULL;
    int64_t at = 0, dim = row->part[0].dim;
    if (length(row->part) == 1) return row->part[0].scatter;
    for (int i = 0; i < length(row->part); i++) {
        const PlacedPart *part = &row->part[i];
        if (part->first > at)
            push(graph->arena, piece, zeros_between(graph, x, dim, at, part->first));
        push(graph->arena, piece, part->scatter->input[1]);
        at = part->end;
    }
    if (at < x->size[dim])
        push(graph->arena, piece, zeros_between(graph, x, dim, at, x->size[dim]));
    return joined(graph, piece, length(piece), dim);
}

static void add_parts(Graph *graph, const Node *x, GradSum *sum) {
    const PlacedRow *row = list_rows(graph->arena, list_parts(graph->arena, sum->part));
    graph->origin = sum->part[length(sum->part) - 1]->origin;
    for (int r = 0; r < length(row); r++) {
        Node *one = row_sum(graph, x, &row[r]);
        sum->whole = sum->whole ? call2(graph, OP_add, sum->whole, one) : one;
    }
    sum->part = NULL;
}

static void add_scatters(Graph *graph, GradSum *sum) {
    for (int i = 0; i < length(sum->scatter); i++) {
        Node *one = sum->scatter[i], *input[] = {sum->whole, one->input[1], one->input[2]};
        graph->origin = one->origin;
        sum->whole = sum->whole ? graph_op(graph, one->op, input, 3, one->attrs, NULL) : one;
    }
}

static Node *turned(Graph *graph, Node *x) {
    return call_permute(graph, x, (cb_dim_list){2, {1, 0}});
}

/* The factors of all below each other, the first step's first. */
static Node *joined_factors(Graph *graph, Node *const *product, bool left) {
    Node **piece = NULL;
    for (int i = length(product) - 1; i >= 0; i--) {
        Node *matmul = product_below(product[i]);
        push(graph->arena, piece, left ? turned(graph, matmul->input[0]) : matmul->input[1]);
    }
    return joined(graph, piece, length(piece), 0);
}

static void add_products(Graph *graph, GradSum *sum) {
    Node **product = sum->product, *one = product[0];
    graph->origin = product[length(product) - 1]->origin;
    if (length(product) > 1) {
        Node *left = turned(graph, joined_factors(graph, product, true));
        one = call2(graph, OP_matmul, left, joined_factors(graph, product, false));
        if (one && product[0]->op == OP_permute) one = turned(graph, one);
    }
    sum->whole = sum->whole ? call2(graph, OP_add, one, sum->whole) : one;
    sum->product = NULL;
}

Node *grad_sum(Graph *graph, const Node *x, GradSum *sum) {
    if (sum->product) add_products(graph, sum);
    if (sum->part) add_parts(graph, x, sum);
    if (sum->scatter) add_scatters(graph, sum);
    return sum->whole;
}
