/* Coded expansions of the classification losses, reduced to their mean.
 *
 * x has the classes in dimension 1, or 0 when it has no other; target lacks that dimension. With
 * m = amax(x) and s = log(sum(exp(x - m))) over the classes, log_softmax of class t is (x[t] - m) -
 * s; the class is gathered from x itself, so that no log_softmax tensor is ever needed:
 *
 *     cross_entropy = mean over targets that are not ignored of  s - (x[target] - m)
 *
 * Targets of a floating dtype are probabilities of the classes. Half precision is computed in
 * f32. */
#include "graph/expand/expand.h"

#include <string.h>

typedef struct Classes {
    Graph *graph;
    Op op;
    Node *x; /* scores, f32 or wider */
    int dim; /* of the classes */
    int64_t count;
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

/* x[target] along the classes, without that dimension; an ignored target reads class 0. */
static Node *pick(const Classes *c, Node *target, Node *valid) {
    Node *zero = graph_constant(c->graph, CB_I64, (Scalar){.i = 0});
    Node *safe = call3(c->graph, OP_where, valid, target, zero);
    Attrs attrs = attrs_default(OP_gather);
    attrs.word[ATTR_gather_dim] = c->dim;
    Node *input[] = {c->x, without_classes(c, safe, true)};
    Node *picked = graph_op(c->graph, OP_gather, input, 2, &attrs, NULL);
    return without_classes(c, picked, false);
}

/* The mean of the losses whose target is valid; NaN when none is. */
static Node *mean_valid(const Classes *c, Node *loss, Node *valid) {
    Graph *graph = c->graph;
    cb_dim_list all = {-1, {0}};
    Node *zero = call_constant(graph, c->x->dtype, 0);
    Node *kept = call3(graph, OP_where, valid, loss, zero);
    Node *sum = call_reduce(graph, OP_sum, kept, all, false);
    Node *count = call_reduce(graph, OP_sum, valid, all, false);
    return call2(graph, OP_div, sum, count);
}

static Node *nll_loss(const Classes *c, Node *target, int64_t ignore) {
    if (!target_fits(c, target)) return NULL;
    target = node_convert(c->graph, target, CB_I64);
    Node *valid = call_number(c->graph, OP_ne, target, (double)ignore);
    return mean_valid(c, call1(c->graph, OP_neg, pick(c, target, valid)), valid);
}

/* (1 - smoothing) * (s - (x[target] - m)) + smoothing * (s - mean(x - m)) */
static Node *class_entropy(const Classes *c, Node *target, int64_t ignore, double smoothing) {
    Graph *graph = c->graph;
    if (!target_fits(c, target)) return NULL;
    target = node_convert(graph, target, CB_I64);
    Node *most = call_reduce(graph, OP_amax, c->x, dims_one(c->dim), true);
    most = call1(graph, OP_detach, most); /* the loss is the same for any shift */
    Node *shifted = call2(graph, OP_sub, c->x, most);
    Node *sum = call_reduce(graph, OP_sum, call1(graph, OP_exp, shifted), dims_one(c->dim), false);
    Node *log_sum = call1(graph, OP_log, sum);
    Node *valid = call_number(graph, OP_ne, target, (double)ignore);
    Node *picked = call2(graph, OP_sub, pick(c, target, valid), without_classes(c, most, false));
    Node *loss = call2(graph, OP_sub, log_sum, picked);
    if (smoothing != 0) {
        Node *average = call_reduce(graph, OP_mean, shifted, dims_one(c->dim), false);
        Node *smooth = call2(graph, OP_sub, log_sum, average);
        loss = call2(graph, OP_add, call_number(graph, OP_mul, loss, 1 - smoothing),
                     call_number(graph, OP_mul, smooth, smoothing));
    }
    return mean_valid(c, loss, valid);
}

static Node *probability_entropy(const Classes *c, Node *target, double smoothing) {
    Graph *graph = c->graph;
    cb_dim_list all = {-1, {0}};
    if (smoothing != 0)
        target = call_number(graph, OP_add, call_number(graph, OP_mul, target, 1 - smoothing),
                             smoothing / (double)c->count);
    Attrs attrs = attrs_default(OP_log_softmax);
    attrs.word[ATTR_log_softmax_dim] = c->dim;
    Node *log_softmax = graph_op(graph, OP_log_softmax, &c->x, 1, &attrs, NULL);
    Node *sum = call_reduce(graph, OP_sum, call2(graph, OP_mul, target, log_softmax), all, false);
    int64_t rows = c->count ? node_numel(c->x) / c->count : 0;
    return call_number(graph, OP_div, call1(graph, OP_neg, sum), (double)rows);
}

static bool same_sizes(const Node *a, const Node *b) {
    return a->rank == b->rank && !memcmp(a->size, b->size, sizeof(int64_t) * a->rank);
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
    Classes classes = {graph, op, wide, dim, x->size[dim]};
    if (op == OP_nll_loss) {
        loss = nll_loss(&classes, target, attrs->word[ATTR_nll_loss_ignore_index]);
    } else {
        double smoothing = attr_float(attrs, ATTR_cross_entropy_label_smoothing);
        int64_t ignore = attrs->word[ATTR_cross_entropy_ignore_index];
        bool probabilities = dtype_is_float(target->dtype) && same_sizes(x, target);
        loss = probabilities ? probability_entropy(&classes, target, smoothing)
                             : class_entropy(&classes, target, ignore, smoothing);
    }
    return node_convert(graph, loss, dtype);
}
