/* What the files of this folder share about nodes, beyond graph.h. */
#ifndef CARBIDE_GRAPH_NODE_H
#define CARBIDE_GRAPH_NODE_H

#include "graph/graph.h"

enum { NODE_MAX_INPUTS = OP_MAX_INPUTS };

/* True for ops that may draw random numbers: the word behind their parameters holds the draw
 * number. */
bool op_may_draw(Op op);
/* True when this call draws: dropout in eval does not. attrs may be NULL for ops without
 * attributes. */
bool op_draws(Op op, const Attrs *attrs);
/* Words that tell nodes of an op apart: its parameters and its draw number. */
int op_attr_words(Op op);

/* Finds or makes the node. A composite comes with its expansion. */
Node *node_intern(Graph *graph, Op op, const Meta *meta, Node *const *input, int input_count,
                  const Attrs *attrs, Node *expansion);
/* The node that interning the same call would find: itself, unless the table is broken. */
Node *node_lookup(const Graph *graph, const Node *node);
bool node_has_sizes(const Node *node, int rank, const int64_t *size);
bool node_same_meta(const Node *a, const Node *b);
/* What stands below the views that the node is of. */
const Node *node_below_views(const Node *node);
/* The greatest or least elements that input k of a comparison is, of what the other input is: no
 * element is equal to them where that has other bits (exact.c). NULL: it is something else. */
const Node *node_own_extreme(const Node *comparison, int k);
/* needed, by id: what these nodes are computed from, too. */
void graph_need_inputs(const Graph *graph, bool *needed);
/* The node in another graph, where its inputs are what `now` says by their id. */
Node *graph_copy_node(Graph *copy, const Node *node, Node *const *now);

/* Input i may be given as a number, node_literal: the op would convert it to what it is. */
bool node_has_literal(const Node *node, int i);
cb_operand node_literal(const Node *constant);

/* Conversion and views without a call's checks; NULL gives NULL. */
Node *node_convert(Graph *graph, Node *node, cb_dtype dtype); /* constants in place, else OP_to */
/* A number as a constant of dtype, rounded to it; NULL with an error naming the op when PyTorch
 * would call it an overflow. */
Node *node_number(Graph *graph, const char *op, cb_operand number, cb_dtype dtype);
Node *node_expand_to(Graph *graph, Node *node, int rank, const int64_t *size);
Node *node_reshape(Graph *graph, Node *node, int rank, const int64_t *size);

/* The order of what outputs, mutations and these checks need, into any arena; through: the only
 * input of a composite is its expansion. */
Node **graph_walk(const Graph *graph, Arena *arena, const IndexCheck *check, bool through);
/* By id: what a checkpoint's function computes for itself, which is computed again for gradients;
 * and what it gives, which others read, perhaps through views of its own. */
void graph_find_inside(const Graph *graph, Node *const *order, bool *inside, bool *given);
/* The same, without `through`, where nodes are among them that a checkpoint computes again for its
 * gradients: each of them comes right before those, and gradients that are come to first do, too,
 * so that what one checkpoint computes is gone when the next one does. */
Node **graph_walk_late(const Graph *graph, Arena *arena, const IndexCheck *check);

#endif
