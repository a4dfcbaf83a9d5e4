/* The expansions of composites. graph/build.c asks for one when it makes a composite's node. */
#ifndef CARBIDE_GRAPH_EXPAND_EXPAND_H
#define CARBIDE_GRAPH_EXPAND_EXPAND_H

#include "graph/call.h"
#include "graph/evaluate.h"

/* The same value from other ops; NULL with an error. */
Node *expand_composite(Graph *graph, Op op, Node *const *input, const Attrs *attrs);

/* By the formula of its row: text over the op's parameters (formula.c). */
Node *expand_formula(Graph *graph, Op op, Node *const *input, const Attrs *attrs);

/* What a name means that is a parameter of the op: the input or the attribute of this call; false
 * when it is none. */
bool formula_parameter(const Graph *graph, Op op, Node *const *inputs, const Attrs *attrs,
                       Word name, Term *out);

/* By family, one file each. */
Node *expand_shape(Graph *graph, Op op, Node *const *input, const Attrs *attrs);
Node *expand_loss(Graph *graph, Op op, Node *const *input, const Attrs *attrs);
Node *expand_norm(Graph *graph, Op op, Node *const *input, const Attrs *attrs);
Node *expand_pool(Graph *graph, Op op, Node *x, const Attrs *attrs);
Node *expand_channel(Graph *graph, Op op, Node *const *input, const Attrs *attrs);
Node *expand_convolution(Graph *graph, Op op, Node *const *input, const Attrs *attrs);
Node *expand_attention(Graph *graph, Node *const *input, const Attrs *attrs);
Node *expand_resize(Graph *graph, Node *x, const Attrs *attrs);

/* Of x, which is floating: elements survive with probability 1 - p, which may be that of an
 * argument, and are scaled to keep the mean. tape_dropout does the same to tensors. */
Node *expand_drawn(Graph *graph, Node *x, double p, int64_t draw);

/* scaled_dot_product_attention's, for queries of this width. */
double attention_scale(const Attrs *attrs, int64_t width);
/* enable_gqa: operands whose heads broadcast or are equal, with the heads of query split in two
 * dims where they broadcast. mask may be NULL. False with an error when the heads do not divide. */
bool attention_share_heads(Graph *graph, Node **query, Node **key, Node **value, Node **mask);

/* softmax(query @ transpose(key) * scale + mask), at least in f32; mask may be NULL. NULL with an
 * error. */
Node *attention_weights(Graph *graph, Node *query, Node *key, Node *mask, double scale,
                        bool causal);
Node *attention_turned(Graph *graph, Node *x); /* its last two dims exchanged */

#endif
