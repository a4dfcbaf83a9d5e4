/* Composites as other ops: by the formula of their row or, for what needs sizes, a loop or an
 * optional input, by code.
 *
 *     linear(x, weight, bias)  ->  add(matmul(x, permute(weight, [1, 0])), bias)
 *     argmax(x, dim=1)         ->  amin(where(x == amax(x, 1, true), position, n), 1)
 *
 * In: the inputs and attributes of a call, both checked no further than their number. Out: a node,
 * or NULL with an error. This file has reductions, limits and the smallest layers; the others of
 * the folder have a family of ops each, and formula.c the formulas. */
#include "graph/expand/expand.h"

#include <math.h>

/* ---- reductions --------------------------------------------------------------------------- */

/* The first position of the extreme value; NaN counts as extreme. Without a dim, of all
 * elements. */
static Node *argument_extreme(Graph *graph, Op op, Node *x, cb_dim_list dims, bool keepdim) {
    Op extreme = op == OP_argmax ? OP_amax : OP_amin;
    bool all = dims.count < 0;
    int rank = x->rank;
    if (!all && dims.count != 1) {
        fail(CB_ERR_ARGUMENT, "%s: takes one dim or all", op_info(op)->name);
        return NULL;
    }
    if (all || rank == 0) {
        int64_t numel = node_numel(x), ones[CB_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
        if (!all && dims.at[0] != 0 && dims.at[0] != -1)
            return checked_dim(op, dims.at[0], 1), NULL;
        Node *flat = node_reshape(graph, x, 1, &numel);
        Node *found = argument_extreme(graph, op, flat, dims_one(0), false);
        return found && keepdim ? node_reshape(graph, found, rank, ones) : found;
    }
    int dim = checked_dim(op, dims.at[0], rank);
    if (dim < 0) return NULL;
    int64_t count = x->size[dim], along[CB_MAX_RANK];
    for (int i = 0; i < rank - dim; i++) along[i] = i ? 1 : count;
    Node *most = call_reduce(graph, extreme, x, dims_one(dim), true);
    if (!most) return NULL;
    /* positions as wide as most elements: vectors of them are no more than of these */
    cb_dtype type = count < INT32_MAX ? CB_I32 : CB_I64;
    Node *position = node_reshape(graph, call_arange(graph, count, type), rank - dim, along);
    Node *found = call2(graph, OP_eq, x, most);
    if (dtype_is_float(x->dtype))
        found = call2(graph, OP_logical_or, found, call1(graph, OP_isnan, x));
    Node *none = graph_constant(graph, type, (Scalar){.i = count});
    Node *candidates = call3(graph, OP_where, found, position, none);
    Node *first = call_reduce(graph, OP_amin, candidates, dims_one(dim), keepdim);
    return first ? node_convert(graph, first, CB_I64) : NULL;
}

/* max + log(sum(exp(x - max))), where an infinite maximum counts as 0: it shows in the sum
 * anyway. */
static Node *logsumexp(Graph *graph, Node *x, cb_dim_list dims, bool keepdim) {
    if (node_numel(x) == 0) {
        Node *none = call_reduce(graph, OP_sum, call1(graph, OP_exp, x), dims, keepdim);
        return call1(graph, OP_log, none);
    }
    Node *most = call_reduce(graph, OP_amax, x, dims, true);
    if (!most) return NULL;
    most = call3(graph, OP_where, call1(graph, OP_isinf, most), call_constant(graph, x->dtype, 0),
                 most);
    Node *exponentials = call1(graph, OP_exp, call2(graph, OP_sub, x, most));
    Node *sum = call_reduce(graph, OP_sum, exponentials, dims, keepdim);
    Node *shift = node_reshape(graph, most, sum->rank, sum->size);
    return call2(graph, OP_add, call1(graph, OP_log, sum), shift);
}

/* Of nothing, nothing: the formula would ask for its greatest element. */
static Node *softmax_of_nothing(Graph *graph, Op op, Node *x, int64_t dim) {
    return checked_dim(op, dim, x->rank) < 0 ? NULL : graph_op(graph, OP_exp, &x, 1, NULL, NULL);
}

/* ---- limits ------------------------------------------------------------------------------- */

typedef enum { LIMIT_ALONE, LIMIT_OF_TWO } LimitPlace;

/* x where it is on this side of the limit. What equals the limit stays: a -0 that is clamped to 0,
 * unlike the maximum of the two. A NaN stays, too; one that is a limit gives NaN, but nothing is
 * beyond it where it is the only one, as in PyTorch. */
static Node *limited(Graph *graph, Op beyond, Node *x, Node *limit, LimitPlace place, bool weak) {
    bool known = place == LIMIT_OF_TWO && limit->op == OP_constant;
    bool wins = known && dtype_is_float(limit->dtype) && isnan(node_constant(limit).f);
    bool numbers[] = {false, weak, false};
    if (wins || !dtype_is_float(x->dtype)) {
        Op op = beyond == OP_lt ? OP_maximum : OP_minimum;
        return graph_op(graph, op, (Node *[]){x, limit}, 2, NULL, numbers);
    }
    Node *out = graph_op(graph, beyond, (Node *[]){x, limit}, 2, NULL, numbers);
    return graph_op(graph, OP_where, (Node *[]){out, limit, x}, 3, NULL, numbers);
}

/* Its own check, since where takes what f16 cannot hold, as an infinity. */
static bool limit_fits(Graph *graph, const Node *x, const Node *limit) {
    if (!limit || limit->op != OP_constant) return true;
    cb_operand number = number_from(limit->dtype, node_constant(limit));
    return node_number(graph, "clamp", number, x->dtype);
}

/* In the dtype that x and both limits have in common. */
static Node *clamp(Graph *graph, Node *x, const Attrs *attrs) {
    Node *low = call_given(graph, attr_number(attrs, ATTR_clamp_low));
    Node *high = call_given(graph, attr_number(attrs, ATTR_clamp_high));
    int kind = dtype_kind(x->dtype), above = kind;
    if (low) above = dtype_kind(low->dtype);
    if (high && dtype_kind(high->dtype) > above) above = dtype_kind(high->dtype);
    if (above > kind) x = node_convert(graph, x, above == 2 ? CB_F32 : CB_I64);
    if (!limit_fits(graph, x, low) || !limit_fits(graph, x, high)) return NULL;
    LimitPlace place = low && high ? LIMIT_OF_TWO : LIMIT_ALONE;
    if (low) x = limited(graph, OP_lt, x, low, place, true);
    if (high) x = limited(graph, OP_gt, x, high, place, true);
    if (low || high) return x;
    fail(CB_ERR_ARGUMENT, "clamp: needs low, high or both");
    return NULL;
}

/* Unlike clamp's, its limits become values of the dtype of x; of integers, they are truncated
 * first. */
static Node *hardtanh_limit(Graph *graph, const Node *x, cb_operand limit) {
    cb_dtype dtype = x->dtype, own = number_dtype(&limit);
    Node *node = call_given(graph, limit);
    if (node->op != OP_constant) return node_convert(graph, node, dtype);
    if (!dtype_is_float(dtype))
        limit = cb_operand_int(scalar_convert(number_scalar(&limit), own, CB_I64).i);
    if (dtype != CB_U8 || limit.i >= 0) return node_number(graph, "hardtanh", limit, dtype);
    fail(CB_ERR_ARGUMENT, "hardtanh: a limit of %lld for u8", (long long)limit.i);
    return NULL;
}

/* As they were given (0.5 and 0.25 are no limits, though both are 0 in u8), and in the dtype, which
 * tells integers apart that are one double. */
static bool in_order(const Node *low, const Node *high, const cb_operand given[2]) {
    if (low->op != OP_constant || high->op != OP_constant) return true; /* hardtanh_varies */
    if (number_as_double(&given[0]) > number_as_double(&given[1])) return false;
    Scalar least = node_constant(low), most = node_constant(high);
    return dtype_is_float(low->dtype) || least.i <= most.i;
}

static Node *hardtanh(Graph *graph, Node *x, const Attrs *attrs) {
    cb_operand given[2] = {attr_number(attrs, ATTR_hardtanh_low),
                           attr_number(attrs, ATTR_hardtanh_high)};
    Node *low = hardtanh_limit(graph, x, given[0]), *high = hardtanh_limit(graph, x, given[1]);
    if (!low || !high) return NULL;
    if (!in_order(low, high, given)) {
        fail(CB_ERR_ARGUMENT, "hardtanh: low is above high");
        return NULL;
    }
    x = limited(graph, OP_lt, x, low, LIMIT_OF_TWO, false);
    return limited(graph, OP_gt, x, high, LIMIT_OF_TWO, false);
}

/* ---- layers ------------------------------------------------------------------------------- */

static Node *linear(Graph *graph, Node *x, Node *weight, Node *bias) {
    if (weight->rank > 2) {
        fail(CB_ERR_SHAPE, "linear: the weight has %d dimensions, more than 2", weight->rank);
        return NULL;
    }
    Node *product = call2(graph, OP_matmul, x, call1(graph, OP_t, weight));
    return bias ? call2(graph, OP_add, product, bias) : product;
}

static Node *scale_kept(Graph *graph, Node *x, Node *p) {
    Node *one = call_constant(graph, CB_F64, 1);
    Node *scale = call2(graph, OP_div, one, call2(graph, OP_sub, one, p));
    return graph_op(graph, OP_mul, (Node *[]){x, scale}, 2, NULL, (bool[]){false, true});
}

Node *expand_drawn(Graph *graph, Node *x, double p, int64_t draw) {
    int number = attr_argument(p);
    Node *zero = call_constant(graph, x->dtype, 0);
    Node *keep = call_number(graph, OP_ge, call_random(graph, OP_rand, x, CB_F32, draw), p);
    Node *scaled = number >= 0 ? scale_kept(graph, x, graph->input[number])
                               : call_number(graph, OP_mul, x, 1 / (1 - p));
    return call3(graph, OP_where, keep, scaled, zero);
}

static Node *dropout(Graph *graph, Node *x, const Attrs *attrs) {
    double p = attr_float(attrs, ATTR_dropout_p);
    if (attr_argument(p) < 0 && !(p >= 0 && p <= 1)) {
        fail(CB_ERR_ARGUMENT, "dropout: the probability %g is outside of 0..1", p);
        return NULL;
    }
    if (!attrs->word[ATTR_dropout_training] || p == 0) return x;
    cb_dtype dtype = x->dtype;
    if (p == 1) /* of x, so that it requires a gradient */
        return call2(graph, OP_mul, x, call_constant(graph, dtype, 0));
    if (!dtype_is_float(dtype)) {
        fail(CB_ERR_DTYPE, "dropout: %s cannot hold what is kept, times 1 / (1 - p)",
             cb_dtype_name(dtype));
        return NULL;
    }
    return expand_drawn(graph, x, p, op_draw(OP_dropout, attrs->word));
}

/* ---- entry -------------------------------------------------------------------------------- */

static Node *expand_by_code(Graph *graph, Op op, Node *const *input, const Attrs *attrs) {
    switch (op) {
    case OP_argmax:
    case OP_argmin: /* the schemas are equal */
        return argument_extreme(graph, op, input[0], attr_dims(attrs, ATTR_argmax_dim),
                                attrs->word[ATTR_argmax_keepdim]);
    case OP_logsumexp:
        return logsumexp(graph, input[0], attr_dims(attrs, ATTR_logsumexp_dim),
                         attrs->word[ATTR_logsumexp_keepdim]);
    case OP_clamp:
        return clamp(graph, input[0], attrs);
    case OP_hardtanh:
        return hardtanh(graph, input[0], attrs);
    case OP_linear:
        return linear(graph, input[0], input[1], input[2]);
    case OP_dropout:
        return dropout(graph, input[0], attrs);
    case OP_nll_loss:
    case OP_cross_entropy:
        return expand_loss(graph, op, input, attrs);
    case OP_layer_norm:
    case OP_rms_norm:
    case OP_cosine_similarity:
    case OP_batch_norm:
    case OP_instance_norm:
    case OP_group_norm:
        return expand_norm(graph, op, input, attrs);
    case OP_scaled_dot_product_attention:
        return expand_attention(graph, input, attrs);
    case OP_interpolate:
        return expand_resize(graph, input[0], attrs);
    case OP_glu:
    case OP_prelu:
    case OP_pixel_shuffle:
    case OP_pixel_unshuffle:
    case OP_channel_shuffle:
    case OP_reflection_pad:
    case OP_replication_pad:
    case OP_circular_pad:
        return expand_channel(graph, op, input, attrs);
    case OP_unfold:
    case OP_fold:
        return expand_convolution(graph, op, input, attrs);
    default:
        break;
    }
    if (op >= OP_conv1d && op <= OP_conv_transpose3d)
        return expand_convolution(graph, op, input, attrs);
    if (op >= OP_max_pool1d && op <= OP_max_pool3d_indices)
        return expand_pool(graph, op, input[0], attrs);
    return expand_shape(graph, op, input, attrs);
}

Node *expand_composite(Graph *graph, Op op, Node *const *input, const Attrs *attrs) {
    if ((op == OP_softmax || op == OP_log_softmax) && node_numel(input[0]) == 0)
        return softmax_of_nothing(graph, op, input[0], attrs->word[ATTR_softmax_dim]);
    return op_info(op)->formula ? expand_formula(graph, op, input, attrs)
                                : expand_by_code(graph, op, input, attrs);
}
