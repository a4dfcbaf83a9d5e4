/* Gradients of convolutions: a transposed one for the data, a product for the weight.
 *
 *     y = convolution(x: [N, I, h, w], weight: [O, I / groups, kh, kw])
 *     to x:       conv_transpose(g, weight), as large as x
 *     to weight:  g as [O, N * oh * ow] @ the windows of x as [N * oh * ow, kh * kw * I]
 *                 of few channels, the windows as [I * kh * kw, N * oh * ow] @ g as [.., O]
 *     of 3x3:     convolution(g as [O, oh, ow, N], x as [I, h, w, N]): 3 x 3 positions, flipped
 *     or:         convolution(x as [I / groups, groups * N, h, w], g as [O, N, ...]), strides and
 *                 dilations exchanged, cut to the kernel
 *     depthwise:  for each tap of the kernel the sum of g times what it meets of x
 *
 * The product stores the windows, kh * kw / stride^2 times as much as x; so it is for kernels that
 * are not large, without groups. The exchanged convolution stores nothing and has few positions, of
 * long sums each. In eager, where the VM would copy the windows, it is as fast. */
#include "graph/grad/grad.h"

#include "base/round.h"
#include "device/device.h"

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

/* ---- to the weight, by a product ------------------------------------------------------------- */

enum { FEW_CHANNELS = 8 };                           /* fewer make no vector, as in layout.c */
enum { MOST_COPIES = 32, MOST_COPIES_IN_EAGER = 1 }; /* of an element of x, in its windows */

static bool windows_are_few(const GradConvolution *c) {
    int64_t copies = 1;
    for (int i = 0; i < c->n; i++) copies *= divide_up(c->weight->size[2 + i], c->stride.at[i]);
    return copies <= (c->graph->single ? MOST_COPIES_IN_EAGER : MOST_COPIES);
}

static Node *padded(const GradConvolution *c) {
    return call_pad(c->graph, c->x, c->n, c->padding.at, c->padding.at, cb_operand_int(0));
}

/* x as [N, I, out spatial, kernel]. */
static Node *windows(const GradConvolution *c) {
    Node *x = padded(c);
    for (int i = 0; i < c->n; i++)
        x = call_window(c->graph, x, 2 + i, c->weight->size[2 + i], c->stride.at[i],
                        c->dilation.at[i]);
    return x;
}

/* The windows of x: [N, I, spatial] as the rows [N, out spatial] of [kernel, I]; or, turned, as the
 * rows [I, kernel] of [N, out spatial], each of which is read along memory. */
static Node *window_rows(const GradConvolution *c, bool turned) {
    int n = c->n, first = turned ? n + 1 : 0; /* of N and positions */
    int64_t taps = c->x->size[1], positions = c->x->size[0];
    cb_dim_list order = {2 * n + 2, {0}};
    order.at[first] = 0;
    order.at[turned ? 0 : 2 * n + 1] = 1;
    for (int i = 0; i < n; i++) {
        order.at[first + 1 + i] = 2 + i;
        order.at[1 + (turned ? 0 : n) + i] = 2 + n + i;
        taps *= c->weight->size[2 + i];
        positions *= c->g->size[2 + i];
    }
    Node *x = call_permute(c->graph, windows(c), order);
    return node_reshape(c->graph, x, 2,
                        (int64_t[]){turned ? taps : positions, turned ? positions : taps});
}

/* Of few channels: rows of the other order begin with these, too few for a vector. */
static Node *to_weight_by_taps(const GradConvolution *c) {
    Graph *graph = c->graph;
    int64_t outputs = c->weight->size[0];
    Node *g = channels_moved(graph, c->g, false);
    g = node_reshape(graph, g, 2, (int64_t[]){node_numel(g) / outputs, outputs});
    Node *y = call2(graph, OP_matmul, window_rows(c, true), g);
    return y ? node_reshape(graph, exchanged(graph, y), c->weight->rank, c->weight->size) : NULL;
}

static Node *to_weight_by_product(const GradConvolution *c) {
    Graph *graph = c->graph;
    int n = c->n;
    int64_t outputs = c->weight->size[0], size[CB_MAX_RANK] = {outputs};
    cb_dim_list order = {n + 2, {1, 0}}, back = {n + 2, {0, n + 1}};
    for (int i = 0; i < n; i++) {
        order.at[2 + i] = 2 + i;
        back.at[2 + i] = 1 + i;
        size[1 + i] = c->weight->size[2 + i];
    }
    size[n + 1] = c->x->size[1];
    Node *g = call_permute(graph, c->g, order), *windows = window_rows(c, false);
    g = node_reshape(graph, g, 2, (int64_t[]){outputs, g ? node_numel(g) / outputs : 0});
    Node *y = call2(graph, OP_matmul, g, windows);
    return y ? call_permute(graph, node_reshape(graph, y, n + 2, size), back) : NULL;
}

/* ---- to the weight, by sums ------------------------------------------------------------------ */

/* By taps one kernel reads x and g once, with a sum for each of them. */
enum { MOST_TAPS = 32 };

/* Each channel by itself: a product or a convolution would have tiles of one channel. */
static bool is_depthwise(const GradConvolution *c) {
    return c->groups > 1 && c->weight->size[1] == 1 && c->weight->size[0] == c->groups &&
           2 * c->n + 2 <= CB_MAX_RANK;
}

static Node *window_sums(const GradConvolution *c) {
    int64_t size[CB_MAX_RANK] = {c->g->size[0], c->groups};
    cb_dim_list dims = {c->n + 1, {0}};
    for (int i = 0; i < c->n; i++) {
        size[2 + i] = c->g->size[2 + i];
        size[2 + c->n + i] = 1;
        dims.at[1 + i] = 2 + i;
    }
    Node *g = node_reshape(c->graph, c->g, 2 * c->n + 2, size);
    return call_reduce(c->graph, OP_sum, call2(c->graph, OP_mul, windows(c), g), dims, false);
}

/* Of one position of the kernel: what it meets of x beside each element of g. */
static Node *tap_sum(const GradConvolution *c, Node *x, int64_t tap) {
    cb_dim_list dims = {c->n + 1, {0}};
    for (int i = c->n - 1; i >= 0; tap /= c->weight->size[2 + i], i--) {
        int64_t first = tap % c->weight->size[2 + i] * c->dilation.at[i];
        int64_t last = first + (c->g->size[2 + i] - 1) * c->stride.at[i];
        Attrs attrs = {{0}};
        attrs.word[ATTR_slice_dim] = 2 + i;
        attrs.word[ATTR_slice_start] = first;
        attrs.word[ATTR_slice_end] = last + 1;
        attrs.word[ATTR_slice_step] = c->stride.at[i];
        x = graph_op(c->graph, OP_slice, &x, 1, &attrs, NULL);
        dims.at[1 + i] = 2 + i;
    }
    Node *sum = call_reduce(c->graph, OP_sum, call2(c->graph, OP_mul, x, c->g), dims, false);
    return node_reshape(c->graph, sum, 2, (int64_t[]){c->groups, 1});
}

static Node *tap_sums(const GradConvolution *c, int64_t taps) {
    Node *x = padded(c), *y = tap_sum(c, x, 0);
    for (int64_t tap = 1; tap < taps; tap++) y = call_concat(c->graph, y, tap_sum(c, x, tap), 1);
    return y;
}

static Node *to_weight_by_sums(const GradConvolution *c) {
    int64_t taps = node_numel(c->weight) / c->groups;
    Node *y = taps > MOST_TAPS ? window_sums(c) : tap_sums(c, taps);
    return node_reshape(c->graph, y, c->weight->rank, c->weight->size);
}

/* ---- to the weight, by squares --------------------------------------------------------------- */

/* What cpu/conv_winograd_sums.c is for, and no method of another device: a convolution whose
 * pictures are channels. That g slides over x, and not x over g, leaves the result in the order of
 * the weight but for its channels. */
enum { SUMS_KERNEL = 3, SUMS_LANES = 16 };

static bool suits_squares(const GradConvolution *c) {
    bool fits = c->n == 2 && c->groups == 1 && c->x->dtype == CB_F32 && !c->graph->single;
    fits &= device_is_host(c->graph->device);
    for (int i = 0; i < c->n && fits; i++)
        fits = c->weight->size[2 + i] == SUMS_KERNEL && c->stride.at[i] == 1 &&
               c->dilation.at[i] == 1 && c->padding.at[i] < SUMS_KERNEL && c->g->size[2 + i] > 2;
    return fits && c->x->size[1] >= SUMS_LANES && c->g->size[1] >= SUMS_LANES;
}

/* [N, C, h, w] -> [C, h, w, N] */
static Node *pictures_last(Graph *graph, Node *x) {
    return call_permute(graph, x, (cb_dim_list){4, {1, 2, 3, 0}});
}

static Node *to_weight_by_squares(const GradConvolution *c) {
    Graph *graph = c->graph;
    Attrs attrs = attrs_default(OP_convolution), flip = {{0}};
    cb_dim_list padding = {2, {0}};
    for (int i = 0; i < 2; i++) padding.at[i] = SUMS_KERNEL - 1 - c->padding.at[i];
    attr_set_dims(&attrs, ATTR_convolution_padding, padding);
    attrs.word[ATTR_convolution_channels_last] = true;
    Node *input[] = {pictures_last(graph, c->g), pictures_last(graph, c->x)};
    Node *y = graph_op(graph, OP_convolution, input, 2, &attrs, NULL);
    attr_set_dims(&flip, ATTR_flip_dims, (cb_dim_list){2, {1, 2}});
    y = y ? graph_op(graph, OP_flip, &y, 1, &flip, NULL) : NULL;
    return call_permute(graph, y, (cb_dim_list){4, {0, 3, 1, 2}});
}

/* ---- to the weight, by a convolution --------------------------------------------------------- */

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
        bool product = k && c.groups == 1 && windows_are_few(&c);
        bool few = c.x->size[1] < FEW_CHANNELS;
        Node *to = k && suits_squares(&c)  ? to_weight_by_squares(&c)
                   : product && few        ? to_weight_by_taps(&c)
                   : product               ? to_weight_by_product(&c)
                   : k && is_depthwise(&c) ? to_weight_by_sums(&c)
                   : k                     ? to_weight(&c)
                                           : to_data(&c);
        call->result[k] = to && last ? channels_moved(graph, to, false) : to;
    }
}
