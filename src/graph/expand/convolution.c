/* Expansions of convolutions: conv1d to conv3d become the primitive and an addition, transposed
 * ones a convolution per phase of the stride; unfold and fold move windows.
 *
 *     conv2d(x, weight, bias)          -> convolution(x, weight) + reshape(bias, [out, 1, 1])
 *     conv_transpose2d(x, w, stride=2) -> convolution(x, all phases of flip(w)), interleaved */
#include "base/round.h"
#include "graph/expand/expand.h"

#include <string.h>

static bool ranks_fit(Op op, const Node *x, const Node *weight, int n) {
    if ((x->rank == n + 1 || x->rank == n + 2) && weight->rank == n + 2) return true;
    fail(CB_ERR_SHAPE, "%s: needs channels and %d spatial dims, and a weight of %d dims",
         op_info(op)->name, n, n + 2);
    return false;
}

static Node *add_bias(Graph *graph, Op op, Node *y, Node *bias) {
    if (!bias || !y) return y;
    int64_t shape[CB_MAX_RANK] = {y->size[1], 1, 1, 1};
    if (bias->rank == 1 && bias->size[0] == shape[0])
        return call2(graph, OP_add, y, node_reshape(graph, bias, y->rank - 1, shape));
    fail(CB_ERR_SHAPE, "%s: the bias must have one element for each of %lld channels",
         op_info(op)->name, (long long)shape[0]);
    return NULL;
}

/* A missing batch is one of size 1. */
static Node *with_batch(Graph *graph, Node *x, int n) {
    int64_t size[CB_MAX_RANK] = {1};
    if (x->rank == n + 2) return x;
    memcpy(size + 1, x->size, sizeof *size * x->rank);
    return node_reshape(graph, x, n + 2, size);
}

static Node *without_batch(Graph *graph, Node *y, bool batched) {
    return !y || batched ? y : node_reshape(graph, y, y->rank - 1, y->size + 1);
}

/* From the first element of a dilated kernel to its last; false with an error. */
static bool reach(Op op, int64_t dilation, int64_t size, int64_t *out) {
    if (!__builtin_mul_overflow(dilation, size - 1, out)) return true;
    fail(CB_ERR_SHAPE, "%s: a kernel of %lld elements reaches too far with a dilation of %lld",
         op_info(op)->name, (long long)size, (long long)dilation);
    return false;
}

/* "same": as many zeros as the kernel takes away, an odd one behind x. What goes before and behind
 * alike becomes *padding, x gets the rest. */
static Node *pad_same(Graph *graph, Op op, Node *x, const Node *weight, const Attrs *attrs, int n,
                      cb_dim_list *padding) {
    int64_t dilation[3], stride[3], none[3] = {0}, right[3];
    if (!spatial_numbers(op, attrs, ATTR_conv1d_dilation, "dilation", n, 1, dilation) ||
        !spatial_numbers(op, attrs, ATTR_conv1d_stride, "stride", n, 1, stride))
        return NULL;
    padding->count = n;
    for (int i = 0; i < n; i++) {
        int64_t taken;
        if (!reach(op, dilation[i], weight->size[2 + i], &taken)) return NULL;
        if (stride[i] != 1) {
            fail(CB_ERR_ARGUMENT, "%s: padding 'same' goes with a stride of 1, not %lld",
                 op_info(op)->name, (long long)stride[i]);
            return NULL;
        }
        padding->at[i] = taken > 0 ? taken / 2 : 0;
        right[i] = taken > 0 ? taken % 2 : 0;
    }
    return call_pad(graph, x, n, none, right, cb_operand_int(0));
}

/* Integers: their windows as columns, times the weight. attrs are canonical. */
static Node *convolve_integers(Graph *graph, Node *x, Node *weight, const Attrs *attrs,
                               const Meta *result) {
    int n = x->rank - 2;
    cb_dim_list padding = attr_dims(attrs, ATTR_convolution_padding), order = {2 + 2 * n, {0, 1}};
    int64_t groups = attrs->word[ATTR_convolution_groups], places = 1, taps = weight->size[1];
    int64_t batch = x->size[0], outputs = weight->size[0] / groups;
    x = call_pad(graph, x, n, padding.at, padding.at, cb_operand_int(0));
    for (int i = 0; i < n; i++) {
        int64_t kernel = weight->size[2 + i];
        x = call_window(graph, x, 2 + i, kernel, attrs->word[ATTR_convolution_stride + 1 + i],
                        attrs->word[ATTR_convolution_dilation + 1 + i]);
        order.at[2 + i] = 2 + n + i;
        order.at[2 + n + i] = 2 + i;
        places *= result->size[2 + i];
        taps *= kernel;
    }
    x = call_permute(graph, x, order);
    x = node_reshape(graph, x, 4, (int64_t[]){batch, groups, taps, places});
    weight = node_reshape(graph, weight, 3, (int64_t[]){groups, outputs, taps});
    Node *y = call2(graph, OP_matmul, weight, x); /* NULL when the windows are too many */
    return node_reshape(graph, y, result->rank, result->size);
}

/* The primitive, which is floating point's alone. */
static Node *convolve(Graph *graph, Node *x, Node *weight, Attrs *attrs) {
    Node *input[] = {x, weight};
    if (!x || !weight) return NULL;
    cb_dtype dtype = cb_promote(x->dtype, weight->dtype);
    if (!dtype_is_int(dtype)) return graph_op(graph, OP_convolution, input, 2, attrs, NULL);
    Meta meta[] = {node_meta(x), node_meta(weight)};
    Inferred inferred;
    meta[0].dtype = meta[1].dtype = CB_F32;
    if (!op_infer(OP_convolution, meta, 2, attrs, &inferred)) return NULL;
    return convolve_integers(graph, x, weight, attrs, &inferred.result);
}

static Node *convolution(Graph *graph, Op op, Node *const *input, const Attrs *attrs) {
    int n = op - OP_conv1d + 1;
    cb_dim_list padding = attr_dims(attrs, ATTR_conv1d_padding);
    if (!ranks_fit(op, input[0], input[1], n)) return NULL;
    Node *x = with_batch(graph, input[0], n);
    if (dims_are_same(padding)) x = pad_same(graph, op, x, input[1], attrs, n, &padding);
    if (!x) return NULL;
    Attrs own = attrs_default(OP_convolution);
    attr_set_dims(&own, ATTR_convolution_stride, attr_dims(attrs, ATTR_conv1d_stride));
    attr_set_dims(&own, ATTR_convolution_padding, padding);
    attr_set_dims(&own, ATTR_convolution_dilation, attr_dims(attrs, ATTR_conv1d_dilation));
    own.word[ATTR_convolution_groups] = attrs->word[ATTR_conv1d_groups];
    Node *y = convolve(graph, x, input[1], &own);
    return without_batch(graph, add_bias(graph, op, y, input[2]), input[0]->rank == n + 2);
}

/* ---- transposed ---------------------------------------------------------------------------

 * Along one dim element i and tap k meet in the result at o = i * stride + k - padding. With
 * o + padding = q * stride + r, only the taps k = r + j * stride count for phase r:
 *
 *     y[q * stride + r - padding] = sum over j of x[q - j] * weight[r + j * stride]
 *
 * a convolution over q without a stride. Phases with equally many taps are out channels of one
 * convolution; there are two such parts of the stride where it does not divide the kernel. The
 * phases then stand beside each other: [..., Q, stride] is the result with both dims joined. */

typedef struct Transposed {
    int n; /* spatial dims */
    int64_t stride[3], padding[3], output_padding[3], dilation[3];
    int64_t groups;
    int64_t size[3];          /* of the result */
    int64_t first[3], row[3]; /* q of the first element, how many q there are */
} Transposed;

typedef struct Phases { /* of one dim: `count` of them from `first` on, all of so many taps */
    int64_t first, count, taps;
} Phases;

static bool open_transposed(Op op, const Attrs *attrs, int n, Transposed *t) {
    const int word = ATTR_conv_transpose1d_output_padding;
    t->n = n;
    t->groups = attrs->word[ATTR_conv_transpose1d_groups];
    if (!spatial_numbers(op, attrs, ATTR_conv_transpose1d_stride, "stride", n, 1, t->stride) ||
        !spatial_numbers(op, attrs, ATTR_conv_transpose1d_padding, "padding", n, 0, t->padding) ||
        !spatial_numbers(op, attrs, word, "output_padding", n, 0, t->output_padding) ||
        !spatial_numbers(op, attrs, ATTR_conv_transpose1d_dilation, "dilation", n, 1, t->dilation))
        return false;
    for (int i = 0; i < n; i++) {
        if (t->output_padding[i] < t->stride[i] || t->output_padding[i] < t->dilation[i]) continue;
        fail(CB_ERR_ARGUMENT, "%s: output_padding %lld is not below the stride or the dilation",
             op_info(op)->name, (long long)t->output_padding[i]);
        return false;
    }
    return true;
}

/* (size - 1) * stride - 2 * padding + the kernel's reach + output_padding + 1. */
static bool result_size(Op op, const Node *x, const Node *weight, int i, Transposed *t) {
    int64_t span, taken, *size = &t->size[i];
    if (!reach(op, t->dilation[i], weight->size[2 + i], &taken)) return false;
    if (__builtin_mul_overflow(x->size[2 + i] - 1, t->stride[i], &span) ||
        __builtin_sub_overflow(span, t->padding[i], &span) ||
        __builtin_sub_overflow(span, t->padding[i], &span) ||
        __builtin_add_overflow(span, taken + t->output_padding[i] + 1, size)) {
        fail(CB_ERR_SHAPE, "%s: the result has too many elements", op_info(op)->name);
        return false;
    }
    if (*size > 0) return true;
    fail(CB_ERR_SHAPE, "%s: a result of %lld elements", op_info(op)->name, (long long)*size);
    return false;
}

/* [I, O / g, kernel...] -> [O, I / g, flipped kernel...] */
static Node *transposed_weight(Graph *graph, Node *weight, int n, int64_t groups) {
    if (!weight) return NULL;
    int64_t inputs = weight->size[0] / groups, outputs = weight->size[1];
    int64_t apart[CB_MAX_RANK] = {groups, inputs, outputs};
    int64_t joined[CB_MAX_RANK] = {groups * outputs, inputs};
    cb_dim_list swap = {n + 3, {0, 2, 1, 3, 4, 5}}, spatial = {n, {2, 3, 4}};
    for (int i = 0; i < n; i++) apart[3 + i] = joined[2 + i] = weight->size[2 + i];
    Attrs attrs = {{0}};
    weight = call_permute(graph, node_reshape(graph, weight, n + 3, apart), swap);
    weight = node_reshape(graph, weight, n + 2, joined);
    attr_set_dims(&attrs, ATTR_flip_dims, spatial);
    return graph_op(graph, OP_flip, &weight, 1, &attrs, NULL);
}

/* [I, O / g, kernel...] -> [I, O / g * phases, taps...] of the phases p */
static Node *phase_weight(Graph *graph, Node *weight, const Transposed *t, const Phases *p) {
    int64_t size[CB_MAX_RANK] = {weight->size[0], weight->size[1]};
    int64_t none[3] = {0}, fill[3], outputs = weight->size[1];
    cb_dim_list order = {2 + 2 * t->n, {0, 1}};
    for (int i = 0; i < t->n; i++) {
        int64_t kernel = weight->size[2 + i], row = least(t->stride[i], kernel);
        size[2 + 2 * i] = row ? divide_up(kernel, row) : 0;
        size[3 + 2 * i] = row;
        fill[i] = size[2 + 2 * i] * row - kernel;
        order.at[2 + i] = 3 + 2 * i, order.at[2 + t->n + i] = 2 + 2 * i;
    }
    weight = call_pad(graph, weight, t->n, none, fill, cb_operand_int(0));
    weight = node_reshape(graph, weight, 2 + 2 * t->n, size);
    for (int i = 0; i < t->n; i++) {
        weight = call_slice(graph, weight, 2 + 2 * i, 0, p[i].taps);
        weight = call_slice(graph, weight, 3 + 2 * i, p[i].first, p[i].first + p[i].count);
        outputs *= p[i].count;
        size[2 + i] = p[i].taps;
    }
    size[1] = outputs;
    return node_reshape(graph, call_permute(graph, weight, order), 2 + t->n, size);
}

/* One convolution: [N, O, phases..., q...]. */
static Node *convolve_phases(Graph *graph, Node *x, Node *weight, const Transposed *t,
                             const Phases *p) {
    int n = t->n;
    Attrs own = attrs_default(OP_convolution);
    cb_dim_list dilation = {n, {0}}, padding = {n, {0}};
    int64_t size[CB_MAX_RANK] = {x->size[0], weight->size[1] * t->groups}, start[3];
    for (int i = 0; i < n; i++) {
        int64_t left = (p[i].taps - 1) * t->dilation[i] - t->first[i];
        int64_t right = t->first[i] + t->row[i] - x->size[2 + i];
        padding.at[i] = left > right ? left : right;
        if (padding.at[i] < 0) padding.at[i] = 0;
        start[i] = padding.at[i] - left;
        dilation.at[i] = t->dilation[i];
        size[2 + i] = p[i].count, size[2 + n + i] = t->row[i];
    }
    attr_set_dims(&own, ATTR_convolution_dilation, dilation);
    attr_set_dims(&own, ATTR_convolution_padding, padding);
    own.word[ATTR_convolution_groups] = t->groups;
    weight = transposed_weight(graph, phase_weight(graph, weight, t, p), n, t->groups);
    Node *y = convolve(graph, x, weight, &own);
    for (int i = 0; i < n; i++) y = call_slice(graph, y, 2 + i, start[i], start[i] + t->row[i]);
    return node_reshape(graph, y, 2 + 2 * n, size);
}

/* `count` zeros behind the last element of the dim. */
static Node *pad_behind(Graph *graph, Node *x, int dim, int64_t count) {
    int64_t before = 1, rest = 1, size[CB_MAX_RANK];
    if (!x || !count) return x;
    for (int d = 0; d < x->rank; d++) {
        size[d] = x->size[d] + (d == dim ? count : 0);
        if (d != dim) *(d < dim ? &before : &rest) *= x->size[d];
    }
    int rank = x->rank;
    x = node_reshape(graph, x, 3, (int64_t[]){before, x->size[dim], rest});
    x = call_pad(graph, x, 2, (int64_t[]){0, 0}, (int64_t[]){count, 0}, cb_operand_int(0));
    return node_reshape(graph, x, rank, size);
}

/* stride - 1 zeros behind each element of the dim. */
static Node *put_zeros(Graph *graph, Node *x, int dim, int64_t stride) {
    int64_t apart[CB_MAX_RANK] = {1}, joined[CB_MAX_RANK];
    for (int d = 0, to = 0; d < x->rank; d++) {
        joined[d] = x->size[d] * (d == dim ? stride : 1);
        apart[to++] = x->size[d];
        if (d == dim) apart[to++] = 1;
    }
    int rank = x->rank;
    x = pad_behind(graph, node_reshape(graph, x, rank + 1, apart), dim + 1, stride - 1);
    return node_reshape(graph, x, rank, joined);
}

/* The phases of dim i and those behind it; chosen: of the dims before it. */
static Node *join_phases(Graph *graph, Node *x, Node *weight, const Transposed *t, Phases *chosen,
                         int i) {
    if (i == t->n) return convolve_phases(graph, x, weight, t, chosen);
    int64_t kernel = weight->size[2 + i], stride = t->stride[i], more = kernel % stride;
    Phases part[] = {{0, more, kernel / stride + 1}, {more, stride - more, kernel / stride}};
    Node *joined = NULL;
    for (int k = 0; k < 2; k++) {
        if (!part[k].count || (kernel && !part[k].taps)) continue;
        chosen[i] = part[k];
        Node *y = join_phases(graph, x, weight, t, chosen, i + 1);
        if (!y) return NULL;
        joined = joined ? call_concat(graph, joined, y, 2 + i) : y;
    }
    return pad_behind(graph, joined, 2 + i, kernel < stride ? stride - kernel : 0);
}

/* [N, O, stride..., q...] -> [N, O, size...] */
static Node *interleave(Graph *graph, Node *y, const Transposed *t) {
    int n = t->n;
    if (!y) return NULL;
    int64_t size[CB_MAX_RANK] = {y->size[0], y->size[1]};
    cb_dim_list order = {2 + 2 * n, {0, 1}};
    for (int i = 0; i < n; i++) {
        order.at[2 + 2 * i] = 2 + n + i, order.at[3 + 2 * i] = 2 + i;
        size[2 + i] = t->row[i] * t->stride[i];
    }
    y = node_reshape(graph, call_permute(graph, y, order), 2 + n, size);
    for (int i = 0; i < n; i++) {
        int64_t start = t->padding[i] - t->first[i] * t->stride[i];
        y = call_slice(graph, y, 2 + i, start, start + t->size[i]);
    }
    return y;
}

static Node *conv_transpose(Graph *graph, Op op, Node *const *input, const Attrs *attrs) {
    int n = op - OP_conv_transpose1d + 1;
    Node *weight = input[1];
    Transposed t;
    Phases chosen[3];
    if (!ranks_fit(op, input[0], weight, n) || !open_transposed(op, attrs, n, &t)) return NULL;
    Node *x = with_batch(graph, input[0], n);
    if (t.groups < 1 || weight->size[0] % t.groups || weight->size[0] != x->size[1]) {
        fail(CB_ERR_SHAPE, "%s: a weight of %lld channels and %lld groups for %lld channels",
             op_info(op)->name, (long long)weight->size[0], (long long)t.groups,
             (long long)x->size[1]);
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        if (!result_size(op, x, weight, i, &t)) return NULL;
        if (t.dilation[i] > 1 && t.stride[i] > 1) { /* the taps of a phase lie anywhere */
            x = put_zeros(graph, x, 2 + i, t.stride[i]);
            if (!x) return NULL;
            t.stride[i] = 1;
        }
        t.first[i] = t.padding[i] / t.stride[i];
        t.row[i] = (t.padding[i] + t.size[i] - 1) / t.stride[i] - t.first[i] + 1;
    }
    Node *y = interleave(graph, join_phases(graph, x, weight, &t, chosen, 0), &t);
    return without_batch(graph, add_bias(graph, op, y, input[2]), input[0]->rank == n + 2);
}

/* ---- unfold and fold ---------------------------------------------------------------------- */

typedef struct Blocks { /* of unfold and fold, over two spatial dims */
    int64_t kernel[2], dilation[2], padding[2], stride[2];
} Blocks;

_Static_assert(ATTR_unfold_dilation - ATTR_unfold_kernel_size ==
                   ATTR_fold_dilation - ATTR_fold_kernel_size,
               "unfold and fold describe their blocks alike");

static bool open_blocks(Op op, const Attrs *attrs, int word, Blocks *b) {
    return spatial_numbers(op, attrs, word, "kernel_size", 2, 1, b->kernel) &&
           spatial_numbers(op, attrs, word + LIST_WORDS, "dilation", 2, 1, b->dilation) &&
           spatial_numbers(op, attrs, word + 2 * LIST_WORDS, "padding", 2, 0, b->padding) &&
           spatial_numbers(op, attrs, word + 3 * LIST_WORDS, "stride", 2, 1, b->stride);
}

/* [N, C, H, W] -> [N, C * kernel, blocks] */
static Node *unfold(Graph *graph, Node *given, const Attrs *attrs) {
    Blocks b;
    if (given->rank != 3 && given->rank != 4)
        return fail(CB_ERR_SHAPE, "unfold: needs channels and two spatial dims"), NULL;
    if (!open_blocks(OP_unfold, attrs, ATTR_unfold_kernel_size, &b)) return NULL;
    Node *x = with_batch(graph, given, 2);
    x = call_pad(graph, x, 2, b.padding, b.padding, cb_operand_int(0));
    for (int i = 0; i < 2; i++)
        x = call_window(graph, x, 2 + i, b.kernel[i], b.stride[i], b.dilation[i]);
    if (!x) return NULL;
    int64_t size[] = {x->size[0], x->size[1] * b.kernel[0] * b.kernel[1], x->size[2] * x->size[3]};
    x = call_permute(graph, x, (cb_dim_list){6, {0, 1, 4, 5, 2, 3}});
    return without_batch(graph, node_reshape(graph, x, 3, size), given->rank == 4);
}

/* Where element (kernel, block) of one spatial dim lands: kernel * dilation + block * stride, as
 * [kernel, 1, blocks, 1] times scale for the rows, [kernel, 1, blocks] for the columns. */
static Node *landing(Graph *graph, const Blocks *b, int i, int64_t blocks, int64_t scale) {
    Node *inside = call_number(graph, OP_mul, call_arange(graph, b->kernel[i], CB_I64),
                               (double)(b->dilation[i] * scale));
    Node *start = call_number(graph, OP_mul, call_arange(graph, blocks, CB_I64),
                              (double)(b->stride[i] * scale));
    int64_t tall[] = {b->kernel[i], 1, 1, 1}, wide[] = {blocks, 1};
    inside = node_reshape(graph, inside, i ? 3 : 4, tall);
    start = node_reshape(graph, start, i ? 1 : 2, wide);
    return call2(graph, OP_add, inside, start);
}

/* [N, C * kernel, blocks] -> [N, C, H, W]: every element is added to its place. */
static Node *fold(Graph *graph, Node *given, const Attrs *attrs) {
    Blocks b;
    int64_t output[2], padded[2], blocks[2];
    if (given->rank != 2 && given->rank != 3)
        return fail(CB_ERR_SHAPE, "fold: needs block elements and blocks"), NULL;
    if (!spatial_numbers(OP_fold, attrs, ATTR_fold_output_size, "output_size", 2, 1, output) ||
        !open_blocks(OP_fold, attrs, ATTR_fold_kernel_size, &b))
        return NULL;
    for (int i = 0; i < 2; i++) {
        padded[i] = output[i] + 2 * b.padding[i];
        int64_t room = padded[i] - (b.kernel[i] - 1) * b.dilation[i] - 1;
        blocks[i] = room < 0 ? 0 : room / b.stride[i] + 1;
    }
    Node *x = with_batch(graph, given, 1);
    int64_t kernel = b.kernel[0] * b.kernel[1], count = blocks[0] * blocks[1];
    if (x->size[1] % kernel || x->size[2] != count || !count) {
        fail(CB_ERR_SHAPE,
             "fold: needs a multiple of %lld elements in each of %lld blocks, not "
             "%lld in %lld",
             (long long)kernel, (long long)count, (long long)x->size[1], (long long)x->size[2]);
        return NULL;
    }
    int64_t channels = x->size[1] / kernel, planes = x->size[0] * channels;
    Node *place = call2(graph, OP_add, landing(graph, &b, 0, blocks[0], padded[1]),
                        landing(graph, &b, 1, blocks[1], 1));
    place = node_reshape(graph, place, 1, (int64_t[]){kernel * count});
    place = node_expand_to(graph, place, 2, (int64_t[]){planes, kernel * count});
    Node *zeros = call_full(graph, 2, (int64_t[]){planes, padded[0] * padded[1]}, cb_operand_int(0),
                            x->dtype);
    x = node_reshape(graph, x, 2, (int64_t[]){planes, kernel * count});
    Attrs scatter = attrs_default(OP_scatter_add);
    scatter.word[ATTR_scatter_add_dim] = 1;
    x = graph_op(graph, OP_scatter_add, (Node *[]){zeros, place, x}, 3, &scatter, NULL);
    if (!x) return NULL;
    x = node_reshape(graph, x, 4, (int64_t[]){planes / channels, channels, padded[0], padded[1]});
    for (int i = 0; i < 2; i++)
        x = call_slice(graph, x, 2 + i, b.padding[i], b.padding[i] + output[i]);
    return without_batch(graph, x, given->rank == 3);
}

Node *expand_convolution(Graph *graph, Op op, Node *const *input, const Attrs *attrs) {
    if (op == OP_unfold) return unfold(graph, input[0], attrs);
    if (op == OP_fold) return fold(graph, input[0], attrs);
    if (op <= OP_conv3d) return convolution(graph, op, input, attrs);
    return conv_transpose(graph, op, input, attrs);
}
