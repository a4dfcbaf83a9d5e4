/* Expansions of normalization layers.
 *
 *     layer_norm(x, [n])      ->  (d - mean(d)) * rsqrt(mean(square(d)) - square(mean(d)) + eps),
 *                             d = x - mean(x), over the last dims
 *     batch_norm(x, m, v)     ->  x * s + (bias - m * s), s = weight * rsqrt(v + eps), by channels
 *
 * Half precision is normalized in f32 and rounded once, at the end. What a batch norm does to x in
 * eval is one multiplication and one addition by channel, both of which fold into a convolution
 * before it when the statistics are frozen. */
#include "graph/expand/expand.h"

#include <float.h>

static const char *sizes_text(Graph *graph, cb_dim_list sizes) {
    Buffer text = buffer_new(graph->arena);
    int count = sizes.count < CB_MAX_RANK ? sizes.count : CB_MAX_RANK;
    put_sizes(&text, count, sizes.at);
    return buffer_text(&text);
}

/* The trailing dims that a norm runs over; false with an error when x does not end with them. */
static bool norm_dims(Graph *graph, Op op, const Node *x, cb_dim_list normalized,
                      cb_dim_list *dims) {
    int first = x->rank - normalized.count;
    bool fits = normalized.count > 0 && first >= 0;
    for (int i = 0; fits && i < normalized.count; i++)
        fits = x->size[first + i] == normalized.at[i];
    *dims = (cb_dim_list){normalized.count, {0}};
    for (int i = 0; i < normalized.count && fits; i++) dims->at[i] = first + i;
    if (!fits)
        fail(CB_ERR_SHAPE, "%s: the normalized sizes %s are not the last ones of x",
             op_info(op)->name, sizes_text(graph, normalized));
    return fits;
}

/* A weight or bias has the sizes that are normalized, and no others that broadcast. */
static bool fits_normalized(Graph *graph, Op op, const Node *parameter, const char *name,
                            cb_dim_list normalized) {
    bool fits = !parameter || parameter->rank == normalized.count;
    for (int i = 0; parameter && fits && i < normalized.count; i++)
        fits = parameter->size[i] == normalized.at[i];
    if (!fits)
        fail(CB_ERR_SHAPE, "%s: %s must have the normalized sizes %s", op_info(op)->name, name,
             sizes_text(graph, normalized));
    return fits;
}

static Node *finish_norm(Graph *graph, Node *y, const Node *x, Node *weight, Node *bias) {
    if (weight) y = call2(graph, OP_mul, y, weight);
    if (bias) y = call2(graph, OP_add, y, bias);
    return node_narrow(graph, y, x);
}

/* (x - mean) * rsqrt(variance + eps) over dims. The mean is rounded, which is much beside a small
 * deviation; so what is left of it in x - mean is taken off again. So the result is the same
 * whatever is taken off first: a number, of which no gradient need be known, and gradients ask for
 * two sums of each row, not for one of what these give. */
static Node *standardized(Graph *graph, Node *x, cb_dim_list dims, double eps) {
    Node *center = call1(graph, OP_detach, call_reduce(graph, OP_mean, x, dims, true));
    Node *apart = call2(graph, OP_sub, x, center);
    Node *rest = call_reduce(graph, OP_mean, apart, dims, true);
    Node *power = call_reduce(graph, OP_mean, call1(graph, OP_square, apart), dims, true);
    Node *variance = call2(graph, OP_sub, power, call1(graph, OP_square, rest));
    variance = call_number(graph, OP_maximum, variance, 0);
    Node *scale = call1(graph, OP_rsqrt, call_number(graph, OP_add, variance, eps));
    Node *scaled = call2(graph, OP_mul, apart, scale); /* one instruction, with the subtraction */
    return call2(graph, OP_sub, scaled, call2(graph, OP_mul, rest, scale));
}

static Node *layer_norm(Graph *graph, Node *const *input, const Attrs *attrs) {
    cb_dim_list dims, normalized = attr_dims(attrs, ATTR_layer_norm_normalized);
    if (!norm_dims(graph, OP_layer_norm, input[0], normalized, &dims) ||
        !fits_normalized(graph, OP_layer_norm, input[1], "weight", normalized) ||
        !fits_normalized(graph, OP_layer_norm, input[2], "bias", normalized))
        return NULL;
    double eps = attr_float(attrs, ATTR_layer_norm_eps);
    Node *y = standardized(graph, node_widen(graph, input[0]), dims, eps);
    return finish_norm(graph, y, input[0], input[1], input[2]);
}

static Node *rms_norm(Graph *graph, Node *const *input, const Attrs *attrs) {
    cb_dim_list dims, normalized = attr_dims(attrs, ATTR_rms_norm_normalized);
    if (!norm_dims(graph, OP_rms_norm, input[0], normalized, &dims) ||
        !fits_normalized(graph, OP_rms_norm, input[1], "weight", normalized))
        return NULL;
    Node *x = node_widen(graph, input[0]);
    Node *power = call_reduce(graph, OP_mean, call1(graph, OP_square, x), dims, true);
    cb_operand given = attr_number(attrs, ATTR_rms_norm_eps);
    double eps = x->dtype == CB_F64 ? DBL_EPSILON : FLT_EPSILON;
    if (number_given(&given) && attr_argument(given.f) >= 0)
        eps = given.f;
    else if (number_given(&given))
        eps = scalar_convert(number_scalar(&given), number_dtype(&given), CB_F64).f;
    Node *scale = call1(graph, OP_rsqrt, call_number(graph, OP_add, power, eps));
    return finish_norm(graph, call2(graph, OP_mul, x, scale), input[0], input[1], NULL);
}

/* ---- by channels -------------------------------------------------------------------------- */

typedef struct Channels {
    Graph *graph;
    Op op;
    const Node *given; /* [batch, channels, ...] */
    Node *x;           /* the same, f32 or wider */
} Channels;

/* A vector with one element for each channel, to broadcast over x; NULL with an error, or when it
 * is absent. */
static Node *by_channel(const Channels *c, Node *vector, const char *name, bool *fine) {
    int64_t shape[CB_MAX_RANK] = {c->x->size[1], 1, 1, 1, 1, 1, 1, 1};
    if (!vector || !*fine) return NULL;
    if (vector->rank == 1 && vector->size[0] == shape[0]) {
        vector = node_widen(c->graph, vector);
        return node_reshape(c->graph, vector, c->x->rank - 1, shape);
    }
    fail(CB_ERR_SHAPE, "%s: %s must have one element for each of %lld channels",
         op_info(c->op)->name, name, (long long)shape[0]);
    *fine = false;
    return NULL;
}

static bool open_channels(Channels *c, Graph *graph, Op op, Node *x, int least_rank) {
    *c = (Channels){graph, op, x, node_widen(graph, x)};
    if (x->rank >= least_rank && dtype_is_float(x->dtype)) return true;
    fail(CB_ERR_SHAPE, "%s: needs floating point channels in dim 1 of at least %d dims",
         op_info(op)->name, least_rank);
    return false;
}

/* x * scale + shift, with the statistics known. */
static Node *norm_with(const Channels *c, Node *const *input, double eps) {
    bool fine = true;
    Graph *graph = c->graph;
    Node *mean = by_channel(c, input[1], "running_mean", &fine);
    Node *variance = by_channel(c, input[2], "running_var", &fine);
    Node *weight = by_channel(c, input[3], "weight", &fine);
    Node *bias = by_channel(c, input[4], "bias", &fine);
    if (!fine) return NULL;
    if (!mean || !variance) {
        fail(CB_ERR_ARGUMENT, "%s: needs running_mean and running_var when it does not train",
             op_info(c->op)->name);
        return NULL;
    }
    Node *scale = call1(graph, OP_rsqrt, call_number(graph, OP_add, variance, eps));
    if (weight) scale = call2(graph, OP_mul, scale, weight);
    Node *shift = call2(graph, OP_mul, mean, scale);
    shift = bias ? call2(graph, OP_sub, bias, shift) : call1(graph, OP_neg, shift);
    Node *y = call2(graph, OP_add, call2(graph, OP_mul, c->x, scale), shift);
    return node_narrow(graph, y, c->given);
}

/* One element has no variance to be divided by: PyTorch refuses it, too. */
static bool varied(const Channels *c, int64_t elements) {
    if (elements != 1) return true;
    fail(CB_ERR_SHAPE, "%s: needs more than one element to take a mean and variance of",
         op_info(c->op)->name);
    return false;
}

/* Standardized over dims, then weight and bias by channel. */
static Node *norm_of(const Channels *c, Node *x, cb_dim_list dims, Node *weight, Node *bias,
                     double eps) {
    bool fine = true;
    Graph *graph = c->graph;
    weight = by_channel(c, weight, "weight", &fine);
    bias = by_channel(c, bias, "bias", &fine);
    if (!fine) return NULL;
    Node *y = standardized(graph, x, dims, eps);
    y = node_reshape(graph, y, c->x->rank, c->x->size);
    return finish_norm(graph, y, c->given, weight, bias);
}

static cb_dim_list dims_from(int first, int rank) {
    cb_dim_list dims = {0, {0}};
    for (int i = first; i < rank; i++) dims.at[dims.count++] = i;
    return dims;
}

_Static_assert(ATTR_batch_norm_training == ATTR_instance_norm_use_input_stats &&
                   ATTR_batch_norm_eps == ATTR_instance_norm_eps,
               "batch_norm and instance_norm are called alike");

static bool running_fit(const Channels *c, Node *mean, Node *var) {
    bool fine = true;
    by_channel(c, mean, "running_mean", &fine);
    by_channel(c, var, "running_var", &fine);
    if (!fine || !mean == !var) return fine;
    fail(CB_ERR_ARGUMENT, "%s: running_mean and running_var go together", op_info(c->op)->name);
    return false;
}

/* Who calls the op moves the running statistics (eager/running.c); here they only have to fit. */
static Node *batch_norm(Graph *graph, Op op, Node *const *input, const Attrs *attrs) {
    Channels c;
    bool instance = op == OP_instance_norm;
    double eps = attr_float(attrs, ATTR_batch_norm_eps);
    if (!open_channels(&c, graph, op, input[0], instance ? 3 : 2)) return NULL;
    if (!attrs->word[ATTR_batch_norm_training]) return norm_with(&c, input, eps);
    if (!running_fit(&c, input[1], input[2])) return NULL;
    cb_dim_list dims = dims_from(instance ? 2 : 1, c.x->rank);
    if (!instance) dims.at[0] = 0;
    int64_t elements = node_numel(c.x);
    for (int i = 0; i < (instance ? 2 : 1) && elements; i++) elements /= c.x->size[1 - i];
    if (!varied(&c, elements)) return NULL;
    return norm_of(&c, c.x, dims, input[3], input[4], eps);
}

static Node *group_norm(Graph *graph, Node *const *input, const Attrs *attrs) {
    Channels c;
    int64_t groups = attrs->word[ATTR_group_norm_num_groups];
    if (!open_channels(&c, graph, OP_group_norm, input[0], 2)) return NULL;
    if (groups < 1 || c.x->size[1] % groups) {
        fail(CB_ERR_ARGUMENT, "group_norm: %lld groups do not divide %lld channels",
             (long long)groups, (long long)c.x->size[1]);
        return NULL;
    }
    int64_t rows = c.x->size[0] * groups, numel = node_numel(c.x);
    if (!varied(&c, numel / groups)) return NULL;
    int64_t size[] = {c.x->size[0], groups, rows ? numel / rows : 0};
    Node *x = node_reshape(graph, c.x, 3, size);
    return norm_of(&c, x, dims_one(2), input[1], input[2], attr_float(attrs, ATTR_group_norm_eps));
}

/* The norm, or eps where that is more; either way with the gradient of the norm, as PyTorch. */
static Node *at_least(Graph *graph, Node *norm, double eps) {
    Node *apart = call2(graph, OP_sub, norm, call1(graph, OP_detach, norm)); /* 0 */
    Node *least = call_number(graph, OP_add, apart, eps);
    return call3(graph, OP_where, call_number(graph, OP_lt, norm, eps), least, norm);
}

/* The product of both divided by their norms, which are at least eps. The shapes broadcast first: a
 * norm counts an element as often as it is repeated. */
static Node *cosine_similarity(Graph *graph, Node *a, Node *b, const Attrs *attrs) {
    const Node *both = call2(graph, OP_mul, a, b);
    if (!both) return NULL;
    Node *unit[2] = {a, b};
    cb_dim_list dim = dims_one(attrs->word[ATTR_cosine_similarity_dim]);
    double eps = attr_float(attrs, ATTR_cosine_similarity_eps);
    for (int i = 0; i < 2; i++) {
        Node *x = node_convert(graph, unit[i], both->dtype);
        x = node_widen(graph, node_expand_to(graph, x, both->rank, both->size));
        Node *length = at_least(graph, call_reduce(graph, OP_norm, x, dim, true), eps);
        unit[i] = call2(graph, OP_div, x, length);
    }
    Node *sum = call_reduce(graph, OP_sum, call2(graph, OP_mul, unit[0], unit[1]), dim, false);
    return node_narrow(graph, sum, both);
}

Node *expand_norm(Graph *graph, Op op, Node *const *input, const Attrs *attrs) {
    switch (op) {
    case OP_layer_norm:
        return layer_norm(graph, input, attrs);
    case OP_rms_norm:
        return rms_norm(graph, input, attrs);
    case OP_cosine_similarity:
        return cosine_similarity(graph, input[0], input[1], attrs);
    case OP_group_norm:
        return group_norm(graph, input, attrs);
    default:
        return batch_norm(graph, op, input, attrs);
    }
}
