/* Gradients: a graph and the gradients of its outputs -> those of its inputs.
 *
 * grad.c walks the graph backwards; sum.c adds up what comes to a node; text.c has the gradients
 * that are texts of the op table, code.c, index.c, convolution.c and attention.c those that the
 * table leaves to code. What is built are ordinary nodes of the same graph, so a gradient shares
 * what the forward pass computes, and has a gradient itself. */
#ifndef CARBIDE_GRAPH_GRAD_GRAD_H
#define CARBIDE_GRAPH_GRAD_GRAD_H

#include "graph/call.h"
#include "graph/syntax.h"

/* gradient[k]: of the sum of output[i] * cotangent[i] over all elements, by wrt[k]: a node with
 * its dtype and sizes, or NULL where the outputs do not depend on it, as far as the op table knows.
 * wrt may be what cuts off others, a detach: nothing comes through it.
 * A cotangent has the dtype and sizes of its output; both may be NULL. Before any pass: composites
 * are asked first, and their expansions where they have no gradient of their own. Where several
 * users add to one gradient, the last one in the graph comes first. False with an error.
 * from, or NULL: from[k] is the node whose gradient gradient[k] is, which the ops between have
 * handed on as it was: both gradients of an add are that of its result. wrt[k] itself where it is
 * none but its own; NULL where there is none. */
bool graph_grad(Graph *graph, Node *const *output, Node *const *cotangent, int outputs,
                Node *const *wrt, int count, Node **gradient, Node **from);

/* Of nodes first..end-1, by id: marks what floating point values lead to from nodes that are
 * marked. A composite of an input's sizes alone, as zeros_like, has nothing of it. It is the one
 * place that says which results require a gradient: the tape asks it, a recording, and the walk
 * back. */
void grad_reach(const Graph *graph, int first, int end, bool *reached);

/* An error, and false, for a walk back that comes to such an op (op_refuses_gradient). */
bool grad_refuses(Op op, Site site);

/* One node: `given` is the gradient of its result, `result` takes those of its wanted inputs in any
 * dtype that converts and any sizes that sum or broadcast to the input's; NULL: none. */
typedef struct GradCall {
    Graph *graph;
    Node *node, *given;
    Node *out;          /* node, or where it stands apart, that */
    const bool *wanted; /* by input */
    Node **result;      /* by input */
} GradCall;

/* What has come to a node so far; {NULL}: nothing. */
typedef struct GradSum {
    Node *whole; /* NULL: none */
    Node **part; /* vec: of slices, zeros elsewhere, that are not in `whole` */
    Node **scatter; /* vec: added to zeros, nor are those */
    Node **product; /* vec: products of matrices, or those turned, nor are those */
} GradSum;

/* g is of the node's sizes and dtype. */
void grad_sum_add(Graph *graph, GradSum *sum, Node *g);
/* All that came to x; NULL: nothing did. */
Node *grad_sum(Graph *graph, const Node *x, GradSum *sum);

/* By its text, parsed before (grad_parse, which keeps it in the graph's arena). */
const Syntax *grad_parse(Graph *graph, Op op);
/* stated[k]: the text has a gradient for the wanted input k, if it is 0: result[k] is NULL then. */
bool grad_text(const GradCall *call, const Syntax *text, bool *stated);

/* By code. A part that fails leaves NULL and an error. False: the composite's expansion is to be
 * asked. */
bool grad_code(const GradCall *call);
void grad_index(const GradCall *call); /* gathers and scatters */
void grad_convolution(const GradCall *call);
/* Of scaled_dot_product_attention; false: it has the gradient of its expansion. */
bool grad_attention(const GradCall *call);
void grad_attention_gradient(const GradCall *call);

#endif
