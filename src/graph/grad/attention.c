/* Gradients of attention: a step of its own, which keeps no scores in memory, where the forward
 * pass has one (graph/claim.c); else, with dropout, and to a mask, those of its expansion.
 *
 *     y = scaled_dot_product_attention(q, k, v, mask)
 *         ->  attention_gradient(q, k, v, g, mask): [to q, to k, to v], cut and reshaped
 *
 * The gradient of that is written out in single ops, so that there are third orders, too. */
#include "base/option.h"
#include "graph/expand/expand.h"
#include "graph/grad/grad.h"
#include "graph/rewrite.h"

#include <string.h>

typedef struct GradAttention {
    Graph *graph;
    Node *query, *key, *value, *given, *mask;
} GradAttention;

/* Part `from` on of what the step gives, as [batch of given..., rows, columns]. */
static Node *part(const GradAttention *a, Node *packed, int64_t *from, int64_t rows,
                  int64_t columns) {
    int64_t size[CB_MAX_RANK], numel = rows * columns;
    int rank = a->given->rank;
    memcpy(size, a->given->size, sizeof *size * (size_t)rank);
    for (int i = 0; i < rank - 2; i++) numel *= size[i];
    size[rank - 2] = rows, size[rank - 1] = columns;
    Node *cut = call_slice(a->graph, packed, 0, *from, *from + numel);
    *from += numel;
    return node_reshape(a->graph, cut, rank, size);
}

static void cut(const GradAttention *a, Node *packed, Node *out[3]) {
    int64_t from = 0;
    int last = a->given->rank - 1;
    int64_t rows = a->given->size[last - 1], columns = a->key->size[a->key->rank - 2];
    int64_t depth = a->key->size[a->key->rank - 1];
    out[0] = part(a, packed, &from, rows, depth);
    out[1] = part(a, packed, &from, columns, depth);
    out[2] = part(a, packed, &from, columns, a->given->size[last]);
}

/* ---- of scaled_dot_product_attention --------------------------------------------------------- */

/* Heads of query that share one of key and value stand in a dim of their own, the third last. */
static Node *without_shares(Graph *graph, Node *x, bool sums) {
    int64_t size[CB_MAX_RANK];
    int at = x->rank - 3;
    if (sums) return call_reduce(graph, OP_sum, x, dims_one(at), false);
    memcpy(size, x->size, sizeof size);
    size[at - 1] *= size[at];
    memmove(size + at, size + at + 1, 2 * sizeof *size);
    return node_reshape(graph, x, x->rank - 1, size);
}

static bool heads_differ(const Node *x, const Node *y) {
    return x->rank < 3 || x->size[x->rank - 3] != y->size[y->rank - 3];
}

static bool is_step(const GradCall *call) {
    const Node *node = call->node;
    bool shares = node->attrs->word[ATTR_scaled_dot_product_attention_enable_gqa];
    bool wanted = call->wanted[3] || option_lists(OPTION_skip, "claim");
    if (wanted || node_numel(node) == 0 || node_numel(node->input[1]) == 0) return false;
    if (shares && heads_differ(node->input[1], node->input[2])) return false; /* repeated */
    return attention_pays(node) == REASON_NONE;
}

bool grad_attention(const GradCall *call) {
    Graph *graph = call->graph;
    const Node *node = call->node;
    const int64_t *word = node->attrs->word;
    if (!is_step(call)) return false;
    Node *mask = node->input[3] ? node->input[3] : graph_constant(graph, CB_BOOL, (Scalar){.i = 1});
    GradAttention a = {graph, node->input[0], node->input[1], node->input[2], call->given, mask};
    Attrs attrs = attrs_default(OP_attention_gradient);
    attr_set_float(&attrs, ATTR_attention_gradient_scale,
                   attention_scale(node->attrs, a.query->size[a.query->rank - 1]));
    attrs.word[ATTR_attention_gradient_is_causal] =
        word[ATTR_scaled_dot_product_attention_is_causal];
    if (word[ATTR_scaled_dot_product_attention_enable_gqa] &&
        !attention_share_heads(graph, &a.query, &a.key, &a.value, &a.mask))
        return true;
    bool shares = a.query->rank > node->rank;
    if (shares) {
        int64_t size[CB_MAX_RANK];
        int at = node->rank - 3;
        memcpy(size, node->size, sizeof *size * (size_t)at);
        memcpy(size + at, a.query->size + at, 2 * sizeof *size);
        memcpy(size + at + 2, node->size + at + 1, 2 * sizeof *size);
        a.given = node_reshape(graph, a.given, a.query->rank, size);
    }
    Node *operand[] = {a.query, a.key, a.value, a.given, a.mask};
    Node *packed = graph_op(graph, OP_attention_gradient, operand, 5, &attrs, NULL);
    if (!packed) return true;
    cut(&a, packed, call->result);
    for (int k = 0; k < 3 && shares; k++)
        call->result[k] = without_shares(graph, call->result[k], k > 0);
    return true;
}

/* ---- of the step ----------------------------------------------------------------------------- */

static Node *product(Graph *graph, Node *x, Node *y) { return call2(graph, OP_matmul, x, y); }

static Node *add(Graph *graph, Node *x, Node *y) { return call2(graph, OP_add, x, y); }

static Node *mul(Graph *graph, Node *x, Node *y) { return call2(graph, OP_mul, x, y); }

static Node *sub(Graph *graph, Node *x, Node *y) { return call2(graph, OP_sub, x, y); }

static Node *row_sum(Graph *graph, Node *x, Node *y) {
    return call_reduce(graph, OP_sum, mul(graph, x, y), dims_one(-1), true);
}

/* With p the weights, d = g @ vT, e = d - sum(p * d) over a row, s = scale * p * e, the step gives
 * s @ k, sT @ q, pT @ g. Their gradients qq, kk, vv come back:
 *
 *     w = scale * (qq @ kT + q @ kkT)          of p * e
 *     y = p * (w - r),  r = sum(p * w)         of d
 *     z = w * e - d * r + g @ vvT              of p
 *     u = p * (z - sum(p * z))                 of the scores, with the mask */
void grad_attention_gradient(const GradCall *call) {
    Graph *graph = call->graph;
    const Node *node = call->node;
    double scale = attr_float(node->attrs, ATTR_attention_gradient_scale);
    bool causal = node->attrs->word[ATTR_attention_gradient_is_causal];
    Node *q = node_widen(graph, node->input[0]), *k = node_widen(graph, node->input[1]);
    Node *v = node_widen(graph, node->input[2]), *g = node_widen(graph, node->input[3]);
    Node *mask = node->input[4]->op == OP_constant ? NULL : node->input[4], *back[3];
    GradAttention a = {graph, q, k, v, g, mask};
    cut(&a, node_widen(graph, call->given), back);
    Node *p = attention_weights(graph, q, k, mask, scale, causal);
    Node *d = product(graph, g, attention_turned(graph, v));
    Node *e = sub(graph, d, row_sum(graph, p, d));
    Node *s = call_number(graph, OP_mul, mul(graph, p, e), scale);
    Node *w = add(graph, product(graph, back[0], attention_turned(graph, k)),
                  product(graph, q, attention_turned(graph, back[1])));
    w = call_number(graph, OP_mul, w, scale);
    Node *r = row_sum(graph, p, w), *y = mul(graph, p, sub(graph, w, r));
    Node *z = sub(graph, mul(graph, w, e), mul(graph, d, r));
    z = add(graph, z, product(graph, g, attention_turned(graph, back[2])));
    Node *u = mul(graph, p, sub(graph, z, row_sum(graph, p, z)));
    call->result[4] = u;
    u = call_number(graph, OP_mul, u, scale);
    call->result[0] = add(graph, product(graph, u, k), product(graph, s, back[1]));
    call->result[1] = add(graph, product(graph, attention_turned(graph, u), q),
                          product(graph, attention_turned(graph, s), back[0]));
    call->result[2] = product(graph, attention_turned(graph, y), g);
    call->result[3] = add(graph, product(graph, y, v), product(graph, p, back[2]));
}
