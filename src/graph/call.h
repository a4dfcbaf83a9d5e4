/* Calls of graph_op in few words, for the coded expansions. A NULL operand gives NULL. */
#ifndef CARBIDE_GRAPH_CALL_H
#define CARBIDE_GRAPH_CALL_H

#include "graph/node.h"

Node *call1(Graph *graph, Op op, Node *x);
Node *call2(Graph *graph, Op op, Node *x, Node *y);
Node *call3(Graph *graph, Op op, Node *x, Node *y, Node *z);
/* With a plain number as the second operand; an integral one counts as an integer. It may stand for
 * an argument (attr_argument). */
Node *call_number(Graph *graph, Op op, Node *x, double number);
/* A number of the call: a constant, or an argument of the graph. NULL: there is none. */
Node *call_given(Graph *graph, cb_operand number);
Node *call_reduce(Graph *graph, Op op, Node *x, cb_dim_list dims, bool keepdim);
Node *call_slice(Graph *graph, Node *x, int dim, int64_t start, int64_t end);
Node *call_concat(Graph *graph, Node *x, Node *y, int dim);
Node *call_permute(Graph *graph, Node *x, cb_dim_list dims);
Node *call_flip(Graph *graph, Node *x, int dim);
Node *call_arange(Graph *graph, int64_t count, cb_dtype dtype);
Node *call_full(Graph *graph, int rank, const int64_t *size, cb_operand value, cb_dtype dtype);
/* A constant that takes part in promotion: not weak. */
Node *call_constant(Graph *graph, cb_dtype dtype, double value);
/* A loss by its reduction, CB_REDUCE_NONE, _MEAN or _SUM; NULL with an error that names the op for
 * another. */
Node *call_loss_reduced(Graph *graph, const char *op, Node *loss, int64_t reduction);
/* Random values that share the composite's draw number, the word behind its parameters. */
Node *call_random(Graph *graph, Op op, const Node *like, cb_dtype dtype, int64_t draw);

/* Pads the last n dims, in their order; nothing when there is nothing to pad. */
Node *call_pad(Graph *graph, Node *x, int n, const int64_t *left, const int64_t *right,
               cb_operand value);
Node *call_window(Graph *graph, Node *x, int dim, int64_t size, int64_t step, int64_t dilation);

/* f16 and bf16 as f32; back to the dtype of `as` when that is floating point. NULL gives NULL. */
Node *node_widen(Graph *graph, Node *x);
Node *node_narrow(Graph *graph, Node *x, const Node *as);

/* x as a node of its own: OP_apart. */
Node *call_apart(Graph *graph, Node *x, int64_t number, bool own);

/* value everywhere, in the sizes and dtype of like */
Node *node_splat(Graph *graph, const Node *like, Scalar value);

cb_dim_list dims_one(int64_t dim);
/* A list attribute for n spatial dims, a single number repeated, each at least low; false with an
 * error naming the op. */
bool spatial_numbers(Op op, const Attrs *attrs, int word, const char *name, int n, int64_t low,
                     int64_t *out);
/* A dimension counted from the front; -1 with an error naming the op. */
int checked_dim(Op op, int64_t dim, int rank);

#endif
