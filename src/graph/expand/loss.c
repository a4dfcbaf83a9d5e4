/* Coded expansions of the classification losses.
 *
 * x has the classes in dimension 1, or 0 when it has no other; target lacks that dimension. With
 * m = amax(x) and s = log(sum(exp(x - m))) over the classes, log_softmax of class t is (x[t] - m) -
 * s; the class is gathered from x itself, so that no log_softmax tensor is ever needed:
 *
 *     cross_entropy = mean over targets that are not ignored of  s - (x[target] - m)
 *
 * where the mean counts each row by the weight of its class.
 *
 * Targets of a floating dtype are probabilities of the classes. Half precision is computed in
 * f32. */
#include "graph/expand/expand.h"

typedef struct Classes {
    Graph *graph;
    Op op;
    Node *x;      /* scores, f32 or wider */
    Node *weight; /* of the classes, in the sizes of x; or NULL */
    int dim;      /* of the classes */
    int64_t count, reduction;
} Classes;

/* Without the class dimension, or with it as 1. */
static Node *without_classes(const Classes *c, Node *node, bool keep) {
    int64_t size[CB_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < c->x->rank; i++) {
        if (i != c->dim)
            size[rank++] = c->x->size[i];
        else if (keep)
            size[rank++] = 1;
    }
    return node_reshape(c->graph, node, rank, size);
}

static bool target_fits(const Classes *c, const Node *target) {
    bool fits = target->rank == c->x->rank - 1;
    for (int i = 0, k = 0; fits && i < c->x->rank; i++)
        if (i != c->dim) fits = target->size[k++] == c->x->size[i];
    if (fits && dtype_is_int(target->dtype)) return true;
    fail(CB_ERR_SHAPE, "%s: the target must be integers with the sizes of x without dim %d",
         op_info(c->op)->name, c->dim);
    return false;
}

/* source[target] along the classes, without that dimension; an ignored target reads class 0. */
static Node *pick(const Classes *c, Node *source, Node *target, Node *valid) {
    Node *zero = graph_constant(c->graph, CB_I64, (Scalar){.i = 0});
    Node *safe = call3(c->graph, OP_where, valid, target, zero);
    Attrs attrs = attrs_default(OP_gather);
    attrs.word[ATTR_gather_dim] = c->dim;
    Node *input[] = {source, without_classes(c, safe, true)};
    Node *picked = graph_op(c->graph, OP_gather, input, 2, &attrs, NULL);
    return without_classes(c, picked, false);
}

static Node *sum_of(const Classes *c, Node *x) {
    return call_reduce(c->graph, OP_sum, x, (cb_dim_list){-1, {0}}, false);
}

/* The losses whose target is valid, 0 for the others. Their mean counts each by the weight of its
 * class; NaN when none is valid. Each takes its share of the mean, which is known before any loss:
 * then nobody waits for their sum, and one kernel makes the losses and the gradient. */
static Node *reduced_valid(const Classes *c, Node *loss, Node *valid, Node *weight) {
    Graph *graph = c->graph;
    Node *zero = call_constant(graph, c->x->dtype, 0);
    Node *kept = call3(graph, OP_where, valid, loss, zero);
    if (c->reduction != CB_REDUCE_MEAN)
        return call_loss_reduced(graph, op_info(c->op)->name, kept, c->reduction);
    Node *counts = weight ? call3(graph, OP_where, valid, weight, zero) : valid;
    Node *total = sum_of(c, counts);
    if (node_numel(kept) == 0) return call2(graph, OP_div, sum_of(c, kept), total);
    return sum_of(c, call2(graph, OP_div, kept, total));
}

static Node *times(const Classes *c, Node *x, Node *weight) {
    return weight ? call2(c->graph, OP_mul, x, weight) : x;
}

static Node *nll_loss(const Classes *c, Node *target, int64_t ignore) {
    if (!target_fits(c, target)) return NULL;
    target = node_convert(c->graph, target, CB_I64);
    Node *valid = call_number(c->graph, OP_ne, target, (double)ignore);
    Node *weight = c->weight ? pick(c, c->weight, target, valid) : NULL;
    Node *loss = call1(c->graph, OP_neg, pick(c, c->x, target, valid));
    return reduced_valid(c, times(c, loss, weight), valid, weight);
}

/* (1 - smoothing) * w[target] * (s - (x[target] - m)) + smoothing * mean of w * (s - (x - m)) */
static Node *class_entropy(const Classes *c, Node *target, int64_t ignore, double smoothing) {
    Graph *graph = c->graph;
    cb_dim_list along = dims_one(c->dim);
    if (!target_fits(c, target)) return NULL;
    target = node_convert(graph, target, CB_I64);
    Node *most = call_reduce(graph, OP_amax, c->x, along, true);
    most = call1(graph, OP_detach, most); /* the loss is the same for any shift */
    Node *shifted = call2(graph, OP_sub, c->x, most);
    Node *sum = call_reduce(graph, OP_sum, call1(graph, OP_exp, shifted), along, false);
    Node *log_sum = call1(graph, OP_log, sum);
    Node *valid = call_number(graph, OP_ne, target, (double)ignore);
    Node *weight = c->weight ? pick(c, c->weight, target, valid) : NULL;
    Node *picked =
        call2(graph, OP_sub, pick(c, c->x, target, valid), without_classes(c, most, false));
    Node *loss = times(c, call2(graph, OP_sub, log_sum, picked), weight);
    if (smoothing != 0) {
        Node *average = call_reduce(graph, OP_mean, times(c, shifted, c->weight), along, false);
        Node *share = c->weight ? call_reduce(graph, OP_mean, c->weight, along, false) : NULL;
        Node *smooth = call2(graph, OP_sub, times(c, log_sum, share), average);
        loss = call2(graph, OP_add, call_number(graph, OP_mul, loss, 1 - smoothing),
                     call_number(graph, OP_mul, smooth, smoothing));
    }
    return reduced_valid(c, loss, valid, weight);
}

static Node *probability_entropy(const Classes *c, Node *target, double smoothing) {
    Graph *graph = c->graph;
    if (smoothing != 0)
        target = call_number(graph, OP_add, call_number(graph, OP_mul, target, 1 - smoothing),
                             smoothing / (double)c->count);
    Attrs attrs = attrs_default(OP_log_softmax);
    attrs.word[ATTR_log_softmax_dim] = c->dim;
    Node *log_softmax = graph_op(graph, OP_log_softmax, &c->x, 1, &attrs, NULL);
    Node *terms = times(c, call2(graph, OP_mul, target, log_softmax), c->weight);
    if (c->reduction == CB_REDUCE_MEAN) {
        int64_t rows = c->count ? node_numel(c->x) / c->count : 0;
        return call_number(graph, OP_div, call1(graph, OP_neg, sum_of(c, terms)), (double)rows);
    }
    Node *loss = call1(graph, OP_neg, call_reduce(graph, OP_sum, terms, dims_one(c->dim), false));
    return call_loss_reduced(graph, op_info(c->op)->name, loss, c->reduction);
}

/* One weight per class, in the sizes of x. */
static bool spread_weight(Classes *c, Node *weight) {
    int64_t along[CB_MAX_RANK];
    if (!weight) return true;
    if (weight->rank != 1 || weight->size[0] != c->count) {
        fail(CB_ERR_SHAPE, "%s: weight needs one element for each of the %lld classes",
             op_info(c->op)->name, (long long)c->count);
        return false;
    }
    for (int i = c->dim; i < c->x->rank; i++) along[i - c->dim] = i == c->dim ? c->count : 1;
    weight = node_convert(c->graph, weight, c->x->dtype);
    weight = node_reshape(c->graph, weight, c->x->rank - c->dim, along);
    c->weight = node_expand_to(c->graph, weight, c->x->rank, c->x->size);
    return true;
}

Node *expand_loss(Graph *graph, Op op, Node *const *input, const Attrs *attrs) {
    Node *x = input[0], *target = input[1], *loss;
    cb_dtype dtype = x->dtype;
    if (!x->rank || !dtype_is_float(dtype)) {
        fail(CB_ERR_DTYPE, "%s: needs floating point scores with a dimension of classes",
             op_info(op)->name);
        return NULL;
    }
    Node *wide = dtype == CB_F64 ? x : node_convert(graph, x, CB_F32);
    int dim = x->rank > 1 ? 1 : 0;
    Classes classes = {graph, op, wide, NULL, dim, x->size[dim], 0};
    if (!spread_weight(&classes, input[2])) return NULL;
    if (op == OP_nll_loss) {
        classes.reduction = attrs->word[ATTR_nll_loss_reduction];
        loss = nll_loss(&classes, target, attrs->word[ATTR_nll_loss_ignore_index]);
    } else {
        double smoothing = attr_float(attrs, ATTR_cross_entropy_label_smoothing);
        int64_t ignore = attrs->word[ATTR_cross_entropy_ignore_index];
        classes.reduction = attrs->word[ATTR_cross_entropy_reduction];
        if (smoothing < 0 || smoothing > 1) {
            fail(CB_ERR_ARGUMENT, "cross_entropy: label_smoothing %g is not in 0..1", smoothing);
            return NULL;
        }
        bool probabilities =
            dtype_is_float(target->dtype) && node_has_sizes(x, target->rank, target->size);
        if (probabilities && ignore >= 0) {
            fail(CB_ERR_ARGUMENT, "cross_entropy: probabilities have no class to ignore");
            return NULL;
        }
        loss = probabilities ? probability_entropy(&classes, target, smoothing)
                             : class_entropy(&classes, target, ignore, smoothing);
    }
    return node_convert(graph, loss, dtype);
}
