/* Gradients of convolutions, by convolutions: a transposed one for the data, one with batch and
 * channels exchanged for the weight.
 *
 *     y = convolution(x: [N, I, h, w], weight: [O, I / groups, kh, kw])
 *     to x:       conv_transpose(g, weight), as large as x
 *     to weight:  convolution(x as [I / groups, groups * N, h, w], g as [O, N, ...]), strides and
 *                 dilations exchanged, cut to the kernel */
#include "graph/grad/grad.h"

#include <string.h>

/* channels_last: [N, spatial..., C] to [N, C, spatial...], and back. */
static Node *channels_moved(Graph *graph, Node *x, bool forward) {
    cb_dim_list order = {x->rank, {0}};
    for (int i = 1; i < x->rank; i++)
        order.at[i] = forward ? (i == 1 ? x->rank - 1 : i - 1) : (i == x->rank - 1 ? 1 : i + 1);
    return call_permute(graph, x, order);
}

typedef struct GradConvolution {
    Graph *graph;
    int n; /* spatial dims */
    Node *x, *weight, *g;
    cb_dim_list stride, padding, dilation;
    int64_t groups;
} GradConvolution;

/* conv_transpose is as large as the last window reaches; what x has behind that is
 * output_padding. */
static Node *to_data(const GradConvolution *c) {
    Op op = OP_conv_transpose1d + (c->n - 1);
    Attrs attrs = attrs_default(op);
    cb_dim_list rest = {c->n, {0}};
    for (int i = 0; i < c->n; i++) {
        int64_t reach = (c->weight->size[2 + i] - 1) * c->dilation.at[i];
        int64_t covered = (c->g->size[2 + i] - 1) * c->stride.at[i] - 2 * c->padding.at[i] + reach;
        rest.at[i] = c->x->size[2 + i] - covered - 1;
    }
    attr_set_dims(&attrs, ATTR_conv_transpose1d_stride, c->stride);
    attr_set_dims(&attrs, ATTR_conv_transpose1d_padding, c->padding);
    attr_set_dims(&attrs, ATTR_conv_transpose1d_output_padding, rest);
    attr_set_dims(&attrs, ATTR_conv_transpose1d_dilation, c->dilation);
    attrs.word[ATTR_conv_transpose1d_groups] = c->groups;
    return graph_op(c->graph, op, (Node *[]){c->g, c->weight, NULL}, 3, &attrs, NULL);
}

static Node *exchanged(Graph *graph, Node *x) {
    cb_dim_list order = {x->rank, {1, 0, 2, 3, 4, 5, 6, 7}};
    return call_permute(graph, x, order);
}

static Node *to_weight(const GradConvolution *c) {
    Graph *graph = c->graph;
    int n = c->n;
    int64_t batch = c->x->size[0], inputs = c->weight->size[1];
    int64_t apart[CB_MAX_RANK] = {batch, c->groups, inputs};
    int64_t joined[CB_MAX_RANK] = {inputs, c->groups * batch};
    cb_dim_list order = {n + 3, {2, 1, 0, 3, 4, 5}};
    for (int i = 0; i < n; i++) apart[3 + i] = joined[2 + i] = c->x->size[2 + i];
    Node *x = call_permute(graph, node_reshape(graph, c->x, n + 3, apart), order);
    x = node_reshape(graph, x, n + 2, joined);
    Attrs attrs = attrs_default(OP_convolution);
    attr_set_dims(&attrs, ATTR_convolution_stride, c->dilation);
    attr_set_dims(&attrs, ATTR_convolution_padding, c->padding);
    attr_set_dims(&attrs, ATTR_convolution_dilation, c->stride);
    attrs.word[ATTR_convolution_groups] = c->groups;
    Node *y =
        graph_op(graph, OP_convolution, (Node *[]){x, exchanged(graph, c->g)}, 2, &attrs, NULL);
    for (int i = 0; y && i < n; i++) y = call_slice(graph, y, 2 + i, 0, c->weight->size[2 + i]);
    return y ? exchanged(graph, y) : NULL;
}

void grad_convolution(const GradCall *call) {
    Graph *graph = call->graph;
    const Node *node = call->node;
    const Attrs *attrs = node->attrs;
    bool last = attrs->word[ATTR_convolution_channels_last];
    GradConvolution c = {.graph = graph,
                         .n = node->rank - 2,
                         .x = node->input[0],
                         .weight = node->input[1],
                         .g = call->given,
                         .stride = attr_dims(attrs, ATTR_convolution_stride),
                         .padding = attr_dims(attrs, ATTR_convolution_padding),
                         .dilation = attr_dims(attrs, ATTR_convolution_dilation),
                         .groups = attrs->word[ATTR_convolution_groups]};
    if (node_numel(node) == 0) return;
    if (last) {
        c.x = channels_moved(graph, c.x, true);
        c.weight = channels_moved(graph, c.weight, true);
        c.g = channels_moved(graph, c.g, true);
    }
    for (int k = 0; k < 2; k++) {
        if (!call->wanted[k]) continue;
        Node *to = k ? to_weight(&c) : to_data(&c);
        call->result[k] = to && last ? channels_moved(graph, to, false) : to;
    }
}
