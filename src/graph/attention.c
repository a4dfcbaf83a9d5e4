/* Pass attention: attention that is written by hand becomes scaled_dot_product_attention, which a
 * template may then claim as a whole.
 * needs nothing; gives nothing; breaks nothing.
 *
 *     matmul(softmax(where(mask, matmul(q, transpose(k)) * c, -inf), -1), v)
 *         ->  scaled_dot_product_attention(q, k, v, mask, scale=c), or with is_causal=true
 *
 * The mask, when there is one, must be a literal: made of arange, comparisons, views. Its elements
 * are looked at, all of them: a mask with column <= row is the causal one by value, however it was
 * written, and a row that is masked as a whole gives NaN by hand and 0 by the op, so it is left
 * alone. Dropout in eval and copies on the way are looked through. The op itself loses a mask that
 * is the causal one, too. */
#include "graph/call.h"
#include "graph/node.h"
#include "graph/rewrite.h"

#include <math.h>
#include <string.h>

enum { MOST_ELEMENTS = 1 << 18, MOST_DEPTH = 32 };

/* ---- literals, element by element --------------------------------------------------------- */

static bool literal(const Node *node, const int64_t *position, int depth, Scalar *out);

static bool literal_view(const Node *node, const int64_t *position, int depth, Scalar *out) {
    const Node *x = node->input[0];
    int64_t at[CB_MAX_RANK], flat = 0;
    cb_dim_list dims;
    switch (node->op) {
    case OP_reshape:
        for (int i = 0; i < node->rank; i++) flat = flat * node->size[i] + position[i];
        for (int i = x->rank - 1; i >= 0; i--) {
            at[i] = flat % x->size[i];
            flat /= x->size[i];
        }
        return literal(x, at, depth, out);
    case OP_permute:
        dims = attr_dims(node->attrs, ATTR_permute_dims);
        for (int i = 0; i < node->rank; i++) at[dims.at[i]] = position[i];
        return literal(x, at, depth, out);
    case OP_expand:
        for (int i = 0; i < x->rank; i++)
            at[i] = x->size[i] == 1 ? 0 : position[i + node->rank - x->rank];
        return literal(x, at, depth, out);
    case OP_slice:
        memcpy(at, position, sizeof *at * node->rank);
        at[node->attrs->word[ATTR_slice_dim]] =
            node->attrs->word[ATTR_slice_start] +
            position[node->attrs->word[ATTR_slice_dim]] * node->attrs->word[ATTR_slice_step];
        return literal(x, at, depth, out);
    default:
        return false;
    }
}

static bool literal_pointwise(const Node *node, const int64_t *position, int depth, Scalar *out) {
    Scalar value[NODE_MAX_INPUTS];
    cb_dtype dtype = CB_F64;
    for (int k = 0; k < node->input_count; k++) {
        const Node *input = node->input[k];
        int64_t at[CB_MAX_RANK];
        for (int i = 0; i < input->rank; i++)
            at[i] = input->size[i] == 1 ? 0 : position[i + node->rank - input->rank];
        if (!literal(input, at, depth, &value[k])) return false;
        dtype = input->dtype;
    }
    if (node->op == OP_contiguous || node->op == OP_clone)
        *out = value[0];
    else if (node->op == OP_to)
        *out = scalar_convert(value[0], dtype, node->dtype);
    else
        *out = scalar_eval(node->op, compute_dtype(dtype), value);
    return true;
}

/* The element at position; false when it depends on an input, a draw, or is too far down. */
static bool literal(const Node *node, const int64_t *position, int depth, Scalar *out) {
    cb_operand number;
    if (depth == 0) return false;
    if (node->expansion) return literal(node->expansion, position, depth - 1, out);
    switch (node->op) {
    case OP_constant:
        *out = node_constant(node);
        return true;
    case OP_full:
        number = attr_number(node->attrs, ATTR_full_value);
        *out = scalar_convert(number_scalar(&number), number_dtype(&number), node->dtype);
        return true;
    case OP_arange:
        *out = scalar_convert((Scalar){.i = node->attrs->word[ATTR_arange_start] +
                                            position[0] * node->attrs->word[ATTR_arange_step]},
                              CB_I64, node->dtype);
        return true;
    default:
        break;
    }
    switch (op_info(node->op)->kind) {
    case KIND_VIEW:
        return literal_view(node, position, depth - 1, out);
    case KIND_POINTWISE:
        return literal_pointwise(node, position, depth - 1, out);
    default:
        return false;
    }
}

typedef enum MaskKind { MASK_UNKNOWN, MASK_GENERAL, MASK_CAUSAL } MaskKind;

/* A bool mask [..., rows, columns] whose leading dims are 1; keep: the value that keeps a score. */
static MaskKind mask_kind(const Node *mask, int64_t rows, int64_t columns, bool keep) {
    int rank = mask->rank;
    bool fits = mask->dtype == CB_BOOL && rank >= 2 && mask->size[rank - 2] == rows &&
                mask->size[rank - 1] == columns && node_numel(mask) == rows * columns;
    if (!fits || rows * columns > MOST_ELEMENTS) return MASK_UNKNOWN;
    int64_t position[CB_MAX_RANK] = {0};
    MaskKind kind = MASK_CAUSAL;
    for (int64_t i = 0; i < rows; i++) {
        bool any = false;
        position[rank - 2] = i;
        for (int64_t j = 0; j < columns; j++) {
            Scalar value;
            position[rank - 1] = j;
            if (!literal(mask, position, MOST_DEPTH, &value)) return MASK_UNKNOWN;
            bool kept = (value.i != 0) == keep;
            any |= kept;
            if (kept != (j <= i)) kind = MASK_GENERAL;
        }
        if (!any) return MASK_UNKNOWN;
    }
    return kind;
}

/* ---- the pattern -------------------------------------------------------------------------- */

typedef struct AttentionPattern {
    Graph *graph;
    const int *users; /* by id of the old node */
    Node *query, *key, *mask;
    double scale;
    bool causal, keep; /* keep: the mask's value that keeps a score */
} AttentionPattern;

/* What copies and dropout that does nothing are copies of. */
static Node *through(const AttentionPattern *p, Node *node) {
    for (;;) {
        bool copy = node->op == OP_contiguous || node->op == OP_clone ||
                    (node->op == OP_dropout && !op_draws(OP_dropout, node->attrs) &&
                     node->expansion == node->input[0]);
        if (!copy || p->users[node->id] != 1) return node;
        node = node->input[0];
    }
}

static bool minus_infinity(Node *node) {
    Node *uniform = node_uniform(node);
    return uniform && node_is_number(uniform, -(double)INFINITY);
}

/* where(mask, scores, -inf), or the other way round, or masked_fill(scores, mask, -inf). */
static Node *take_mask(AttentionPattern *p, Node *node) {
    if (node->op == OP_masked_fill) {
        cb_operand value = attr_number(node->attrs, ATTR_masked_fill_value);
        if (value.kind != CB_OPERAND_FLOAT || value.f != -(double)INFINITY) return node;
        p->mask = node->input[1];
        p->keep = false;
        return through(p, node->input[0]);
    }
    if (node->op != OP_where) return node;
    p->keep = minus_infinity(node->input[2]);
    if (!p->keep && !minus_infinity(node->input[1])) return node;
    p->mask = node->input[0];
    return through(p, node->input[p->keep ? 1 : 2]);
}

static Node *take_scale(AttentionPattern *p, Node *node) {
    while ((node->op == OP_mul || node->op == OP_div) && p->users[node->id] == 1) {
        Node *number = node_uniform(node->input[1]);
        if (!number) return node;
        double value = node_constant(number).f;
        p->scale = node->op == OP_mul ? p->scale * value : p->scale / value;
        node = through(p, node->input[0]);
    }
    return node;
}

static bool same_batch(const Node *a, const Node *b) {
    return a->rank == b->rank && !memcmp(a->size, b->size, sizeof(int64_t) * (size_t)(a->rank - 2));
}

static bool softmax_over_last(const Node *node) {
    if (node->op != OP_softmax) return false;
    int64_t dim = node->attrs->word[ATTR_softmax_dim];
    return dim == -1 || dim == node->rank - 1;
}

/* Is old a product of attention weights with values? Fills the pattern. */
static bool match(AttentionPattern *p, const Node *old) {
    if (old->op != OP_matmul || old->rank < 2 || !dtype_is_float(old->dtype)) return false;
    Node *weights = through(p, old->input[0]);
    const Node *value = old->input[1];
    p->mask = NULL;
    p->scale = 1;
    if (!softmax_over_last(weights) || p->users[weights->id] != 1) return false;
    Node *scores = through(p, weights->input[0]);
    if (p->users[scores->id] != 1) return false;
    Node *product = take_scale(p, take_mask(p, scores));
    if (product->op != OP_matmul || p->users[product->id] != 1 || !(p->scale != 0)) return false;
    p->query = product->input[0];
    p->key = product->input[1];
    if (p->query->rank < 2 || !same_batch(p->query, p->key) || !same_batch(p->query, value))
        return false;
    if (!p->mask) return true;
    MaskKind kind = mask_kind(p->mask, product->size[product->rank - 2],
                              product->size[product->rank - 1], p->keep);
    p->causal = kind == MASK_CAUSAL;
    return kind != MASK_UNKNOWN;
}

/* ---- the walk ----------------------------------------------------------------------------- */

static Node *transposed(Graph *graph, Node *x) {
    Attrs attrs = attrs_default(OP_transpose);
    attrs.word[ATTR_transpose_dim0] = -2;
    attrs.word[ATTR_transpose_dim1] = -1;
    Node *node = graph_op(graph, OP_transpose, &x, 1, &attrs, NULL);
    return node->op == OP_permute ? simplify_node(graph, node) : node;
}

static Node *attend(const AttentionPattern *p, Node *const *now, const Node *old) {
    const int scale = ATTR_scaled_dot_product_attention_scale;
    Attrs attrs = attrs_default(OP_scaled_dot_product_attention);
    Node *mask = p->mask && !p->causal ? now[p->mask->id] : NULL;
    if (mask && !p->keep) mask = call1(p->graph, OP_logical_not, mask);
    attrs.word[ATTR_scaled_dot_product_attention_is_causal] = p->mask && p->causal;
    attr_set_number(&attrs, scale, cb_operand_float(p->scale));
    Node *input[] = {now[p->query->id], transposed(p->graph, now[p->key->id]),
                     now[old->input[1]->id], mask};
    return graph_op(p->graph, OP_scaled_dot_product_attention, input, 4, &attrs, NULL);
}

/* The op itself, with a mask that is the causal one by value. */
static bool is_causal_by_value(const Node *node) {
    const Node *query = node->input[0], *key = node->input[1];
    return mask_kind(node->input[3], query->size[query->rank - 2], key->size[key->rank - 2],
                     true) == MASK_CAUSAL;
}

/* By node id. The layers of a network share one mask, which is looked at once. */
static bool *find_causal(Graph *graph, Node *const *order) {
    bool *causal = arena_new_array(graph->arena, bool, length(graph->node) + 1), known = false;
    const Node *mask = NULL, *query = NULL, *key = NULL;
    for (int i = 0; i < length(order); i++) {
        const Node *node = order[i];
        if (node->op != OP_scaled_dot_product_attention || !node->input[3]) continue;
        bool again = mask == node->input[3] && node_same_meta(query, node->input[0]) &&
                     node_same_meta(key, node->input[1]);
        if (!again) known = is_causal_by_value(node);
        query = node->input[0], key = node->input[1], mask = node->input[3];
        causal[node->id] = known && !op_draws(OP_scaled_dot_product_attention, node->attrs);
    }
    return causal;
}

static Node *attend_causally(Graph *graph, const Node *node, Node *const *input) {
    Attrs attrs = attrs_default(OP_scaled_dot_product_attention);
    attrs_copy(&attrs, node->attrs, OP_scaled_dot_product_attention);
    attrs.word[ATTR_scaled_dot_product_attention_is_causal] = true;
    return graph_op(graph, OP_scaled_dot_product_attention, input, 3, &attrs, NULL);
}

void pass_attention(Graph *graph, Budget *budget) {
    Node **order = graph_order(graph);
    int *users = graph_users(graph, order);
    bool any = false, *causal = find_causal(graph, order);
    for (int i = 0; i < length(order); i++)
        any |= order[i]->op == OP_softmax || causal[order[i]->id];
    if (!any) return;
    for (int i = 0; i < length(graph->output); i++) users[graph->output[i]->id]++;
    for (int i = 0; i < length(graph->mutation); i++) users[graph->mutation[i].value->id]++;
    Origin origin = graph->origin;
    Node **now = arena_new_array(graph->arena, Node *, length(graph->node) + 1);
    AttentionPattern pattern = {.graph = graph, .users = users};
    for (int i = 0; i < length(order); i++) {
        Node *node = order[i], *input[NODE_MAX_INPUTS];
        graph->origin = node->origin;
        if (match(&pattern, node) && budget_spend(budget)) {
            now[node->id] = attend(&pattern, now, node);
            continue;
        }
        node_inputs_now(node, now, input);
        if (causal[node->id] && budget_spend(budget))
            now[node->id] = attend_causally(graph, node, input);
        else
            now[node->id] = graph_with_inputs(graph, node, input);
    }
    graph_replace_results(graph, now);
    graph->origin = origin;
}
