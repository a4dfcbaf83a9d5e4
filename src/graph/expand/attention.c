/* The expansion of scaled_dot_product_attention.
 *
 *     softmax(query @ transpose(key) * scale + mask) @ value      over the last dim of the scores
 *
 * A bool mask keeps the scores where it is true; a row that is masked as a whole gives zeros. The
 * causal mask keeps column <= row; without keys there are zeros, too. With enable_gqa, a head of
 * key and value serves several heads of query in a row: the heads become [heads of key, repeats]
 * and key and value broadcast; where they have different numbers of heads, both are repeated. The
 * softmax of half precision is taken in f32; over few keys and values its weights stay so and the
 * result alone is rounded, as f16 has few digits for small weights. */
#include "graph/expand/expand.h"

#include <string.h>

typedef struct AttentionNodes {
    Graph *graph;
    Node *query, *key, *value, *mask;
} AttentionNodes;

static bool refuse(cb_status status, const char *why) {
    fail(status, "scaled_dot_product_attention: %s", why);
    return false;
}

static bool operands_fit(const AttentionNodes *a) {
    const Node *q = a->query, *k = a->key, *v = a->value;
    if (q->rank < 2 || k->rank != q->rank || v->rank != q->rank)
        return refuse(CB_ERR_SHAPE, "all need one rank of at least 2");
    if (q->dtype != k->dtype || q->dtype != v->dtype)
        return refuse(CB_ERR_DTYPE, "all need one floating point dtype");
    if (q->size[q->rank - 1] != k->size[k->rank - 1])
        return refuse(CB_ERR_SHAPE, "the last sizes of query and key differ");
    if (k->size[k->rank - 2] != v->size[v->rank - 2])
        return refuse(CB_ERR_SHAPE, "key and value have different lengths");
    bool mask_fits = !a->mask || a->mask->dtype == CB_BOOL || dtype_is_float(a->mask->dtype);
    if (!mask_fits) return refuse(CB_ERR_DTYPE, "the mask must be bool or floating point");
    return true;
}

/* [..., heads, rows, columns] -> [..., heads / repeats, repeats, rows, columns] */
static Node *split_heads(Graph *graph, Node *x, int64_t heads, int64_t repeats) {
    int64_t size[CB_MAX_RANK];
    int at = x->rank - 3;
    memcpy(size, x->size, sizeof *size * (size_t)at);
    size[at] = x->size[at] == 1 ? 1 : heads;
    size[at + 1] = x->size[at] == 1 ? 1 : repeats;
    memcpy(size + at + 2, x->size + at + 1, 2 * sizeof *size);
    return node_reshape(graph, x, x->rank + 1, size);
}

/* [..., heads, rows, columns] -> [..., wanted, rows, columns], each head several times in a row */
static Node *repeat_heads(Graph *graph, Node *x, int64_t wanted) {
    int64_t size[CB_MAX_RANK];
    int rank = x->rank, at = rank - 3;
    int64_t heads = x->size[at];
    if (heads == wanted) return x;
    x = split_heads(graph, x, heads, 1);
    memcpy(size, x->size, sizeof *size * (size_t)(rank + 1));
    size[at] = heads;
    size[at + 1] = wanted / heads;
    x = node_expand_to(graph, x, rank + 1, size);
    size[at] = wanted;
    memmove(size + at + 1, size + at + 2, 2 * sizeof *size);
    return node_reshape(graph, x, rank, size);
}

bool attention_share_heads(Graph *graph, Node **query, Node **key, Node **value, Node **mask) {
    int rank = (*query)->rank, at = rank - 3;
    if (rank < 3 || rank == CB_MAX_RANK) return refuse(CB_ERR_SHAPE, "enable_gqa needs heads");
    int64_t wanted = (*query)->size[at], heads = (*key)->size[at], others = (*value)->size[at];
    if (!heads || !others || wanted % heads || wanted % others)
        return refuse(CB_ERR_SHAPE, "the heads of key and value do not divide those of query");
    if (heads != others) {
        *key = repeat_heads(graph, *key, wanted);
        *value = repeat_heads(graph, *value, wanted);
    }
    if (heads != others || wanted == heads) return true;
    *query = split_heads(graph, *query, heads, wanted / heads);
    *key = split_heads(graph, *key, heads, 1);
    *value = split_heads(graph, *value, heads, 1);
    if (*mask && (*mask)->rank >= 3) {
        int64_t masks = (*mask)->size[(*mask)->rank - 3];
        if (masks != 1 && masks != wanted)
            return refuse(CB_ERR_SHAPE, "the mask has another number of heads");
        *mask = split_heads(graph, *mask, heads, wanted / heads);
    }
    return true;
}

static Node *causal_mask(Graph *graph, int64_t rows, int64_t columns) {
    Node *row = node_reshape(graph, call_arange(graph, rows, CB_I64), 2, (int64_t[]){rows, 1});
    return call2(graph, OP_le, call_arange(graph, columns, CB_I64), row);
}

static Node *masked(Graph *graph, Node *scores, Node *mask) {
    if (mask->dtype != CB_BOOL)
        return call2(graph, OP_add, scores, node_convert(graph, mask, scores->dtype));
    Node *never = call_constant(graph, scores->dtype, -__builtin_inf());
    return call3(graph, OP_where, mask, scores, never);
}

/* exp(s - max) / sum: where the maximum is -inf there is nothing to see, and the result is 0. */
static Node *safe_softmax(Graph *graph, Node *scores) {
    cb_dim_list last = dims_one(-1);
    Node *most = call_reduce(graph, OP_amax, scores, last, true);
    if (!most) return NULL;
    Node *none = call_number(graph, OP_eq, most, -__builtin_inf());
    most = call3(graph, OP_where, none, call_constant(graph, most->dtype, 0), most);
    most = call1(graph, OP_detach, most); /* any shift gives the same */
    Node *weight = call1(graph, OP_exp, call2(graph, OP_sub, scores, most));
    Node *sum = call_reduce(graph, OP_sum, weight, last, true); /* 0 where there is nothing */
    sum = call3(graph, OP_where, none, call_constant(graph, sum->dtype, 1), sum);
    return call2(graph, OP_div, weight, sum);
}

static Node *softmax(Graph *graph, Node *scores) {
    Attrs attrs = attrs_default(OP_softmax);
    attrs.word[ATTR_softmax_dim] = -1;
    return graph_op(graph, OP_softmax, &scores, 1, &attrs, NULL);
}

Node *attention_turned(Graph *graph, Node *x) {
    Attrs attrs = attrs_default(OP_transpose);
    attrs.word[ATTR_transpose_dim0] = -2;
    attrs.word[ATTR_transpose_dim1] = -1;
    return graph_op(graph, OP_transpose, &x, 1, &attrs, NULL);
}

/* Values of so many elements are worth a copy in f32. */
enum { WIDENED_ELEMENTS = 1 << 14 };

static Node *weigh(const AttentionNodes *a, Node *weights) {
    Graph *graph = a->graph;
    if (node_numel(a->value) > WIDENED_ELEMENTS)
        return call2(graph, OP_matmul, node_narrow(graph, weights, a->query), a->value);
    Node *y = call2(graph, OP_matmul, weights, node_widen(graph, a->value));
    return node_narrow(graph, y, a->query);
}

Node *attention_weights(Graph *graph, Node *query, Node *key, Node *mask, double scale,
                        bool causal) {
    Node *scores = call2(graph, OP_matmul, query, attention_turned(graph, key));
    if (!scores) return NULL;
    scores = call_number(graph, OP_mul, node_widen(graph, scores), scale);
    if (causal)
        scores = masked(
            graph, scores,
            causal_mask(graph, scores->size[scores->rank - 2], scores->size[scores->rank - 1]));
    if (mask) scores = masked(graph, scores, mask);
    return mask ? safe_softmax(graph, scores) : softmax(graph, scores);
}

/* Without keys every query sees nothing. */
static Node *nothing_seen(const AttentionNodes *a) {
    const Node *q = a->query;
    int64_t size[CB_MAX_RANK];
    memcpy(size, q->size, sizeof *size * q->rank);
    size[q->rank - 1] = a->value->size[q->rank - 1];
    return call_full(a->graph, q->rank, size, cb_operand_int(0), q->dtype);
}

double attention_scale(const Attrs *attrs, int64_t width) {
    cb_operand scale = attr_number(attrs, ATTR_scaled_dot_product_attention_scale);
    if (number_given(&scale))
        return scalar_convert(number_scalar(&scale), number_dtype(&scale), CB_F64).f;
    return width ? 1 / __builtin_sqrt((double)width) : 1;
}

Node *expand_attention(Graph *graph, Node *const *input, const Attrs *attrs) {
    const int64_t *word = attrs->word;
    AttentionNodes a = {graph, input[0], input[1], input[2], input[3]};
    double p = attr_float(attrs, ATTR_scaled_dot_product_attention_dropout_p);
    bool causal = word[ATTR_scaled_dot_product_attention_is_causal];
    if (!operands_fit(&a)) return NULL;
    if (causal && a.mask) {
        refuse(CB_ERR_ARGUMENT, "is_causal excludes a mask");
        return NULL;
    }
    if (!(p >= 0 && p <= 1)) {
        fail(CB_ERR_ARGUMENT, "scaled_dot_product_attention: dropout_p %g is outside of 0..1", p);
        return NULL;
    }
    int64_t rank = a.query->rank;
    double scale = attention_scale(attrs, a.query->size[rank - 1]);
    if (a.key->size[rank - 2] == 0) return nothing_seen(&a);
    if (word[ATTR_scaled_dot_product_attention_enable_gqa] &&
        !attention_share_heads(graph, &a.query, &a.key, &a.value, &a.mask))
        return NULL;
    Node *weights = attention_weights(graph, a.query, a.key, a.mask, scale, causal);
    int64_t draw = op_draw(OP_scaled_dot_product_attention, word);
    if (weights && p > 0) weights = expand_drawn(graph, weights, p, draw);
    Node *y = weights ? weigh(&a, weights) : NULL;
    if (!y || a.query == input[0]) return y;
    int64_t size[CB_MAX_RANK]; /* the heads in one dim again */
    memcpy(size, y->size, sizeof size);
    size[rank - 3] *= size[rank - 2];
    memcpy(size + rank - 2, y->size + rank - 1, 2 * sizeof *size);
    return node_reshape(graph, y, (int)rank, size);
}
