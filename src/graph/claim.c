/* Pass claim: composites that a template computes as a whole are given to it.
 * needs nothing; gives nothing; breaks nothing.
 *
 *     scaled_dot_product_attention(q, k, v, mask)  ->  attention(q, k, v, mask, scale)
 *
 * The result of attention lies as its reader wants it: when that exchanges heads and rows, as
 * before an output projection, the heads stand behind the rows and the exchange undoes itself. What
 * is not claimed leaves a reason in graph->declined, and is expanded by pass decompose. */
#include "base/round.h"
#include "graph/call.h"
#include "graph/expand/expand.h"
#include "graph/rewrite.h"

#include <math.h>
#include <string.h>

/* Queries stand in panels of 32. With 64 of them or more attention wins whatever the rest of the
 * last panel; below that it does when an eighth of the lanes is empty at the most. Measured in f32,
 * 12 heads of 64, on 2 threads of an AMD EPYC (Zen 5), in ms, attention and products:
 *     queries             16           32           40           64           128          1024
 *     over 1024 keys  0.37 0.25    0.37 0.37    0.61 0.44    0.61 0.74                 8.63 11.34
 *     over 128 keys                0.05 0.06    0.08 0.07    0.09 0.10    0.15 0.19 */
enum { LANES = 32, MANY_QUERIES = 64 };

/* ---- operands ------------------------------------------------------------------------------- */

static Node *permuted(Graph *graph, Node *x, const int64_t *order) {
    cb_dim_list dims = {x->rank, {0}};
    memcpy(dims.at, order, sizeof *order * x->rank);
    return call_permute(graph, x, dims);
}

/* [..., rows, heads, width] with its rows and heads exchanged. */
static Node *exchanged(Graph *graph, Node *x) {
    int64_t order[CB_MAX_RANK];
    for (int i = 0; i < x->rank; i++) order[i] = i;
    order[x->rank - 3] = x->rank - 2;
    order[x->rank - 2] = x->rank - 3;
    return permuted(graph, x, order);
}

/* ---- claiming ------------------------------------------------------------------------------- */

typedef struct Claim {
    Graph *graph;
    bool *exchanged; /* by node id: its only reader exchanges heads and rows */
} Claim;

Reason attention_pays(const Node *node) {
    const Node *query = node->input[0];
    if (op_draws(OP_scaled_dot_product_attention, node->attrs)) return REASON_attention_dropout;
    int64_t rows = query->size[query->rank - 2], lanes = round_up(rows, LANES);
    bool many = rows >= MANY_QUERIES || lanes - rows <= lanes / 8;
    return many ? REASON_NONE : REASON_attention_few_queries;
}

static Node *claim_attention(const Claim *c, const Node *node, Node *const *input) {
    Graph *graph = c->graph;
    const int64_t *word = node->attrs->word;
    Node *query = input[0], *key = input[1], *value = input[2];
    Node *mask = input[3] ? input[3] : graph_constant(graph, CB_BOOL, (Scalar){.i = 1});
    Attrs attrs = attrs_default(OP_attention);
    attr_set_float(&attrs, ATTR_attention_scale,
                   attention_scale(node->attrs, query->size[query->rank - 1]));
    attrs.word[ATTR_attention_is_causal] = word[ATTR_scaled_dot_product_attention_is_causal];
    if (word[ATTR_scaled_dot_product_attention_enable_gqa]) {
        bool shared = attention_share_heads(graph, &query, &key, &value, &mask);
        check(shared, "heads that expand are not shared: %s", cb_error());
    }
    bool shares = query->rank > node->rank, behind = c->exchanged[node->id];
    attrs.word[ATTR_attention_behind] = behind ? 1 + shares : 0;
    Node *operand[] = {query, key, value, mask};
    Node *result = graph_op(graph, OP_attention, operand, 4, &attrs, NULL);
    check(result, "an attention that expands is not taken: %s", cb_error());
    int64_t size[CB_MAX_RANK];
    memcpy(size, node->size, sizeof *size * node->rank);
    if (behind) size[node->rank - 3] = node->size[node->rank - 2];
    if (behind) size[node->rank - 2] = node->size[node->rank - 3];
    result = node_reshape(graph, result, node->rank, size);
    return behind ? exchanged(graph, result) : result;
}

/* Does the reader exchange the third and the second dim from the end? */
static bool is_exchange(const Node *reader, const Node *x) {
    if (reader->op != OP_permute || x->rank < 3) return false;
    cb_dim_list dims = attr_dims(reader->attrs, ATTR_permute_dims);
    for (int i = 0; i < x->rank; i++) {
        int from_end = x->rank - i;
        int64_t wanted = from_end == 3 ? i + 1 : from_end == 2 ? i - 1 : i;
        if (dims.at[i] != wanted) return false;
    }
    return true;
}

static bool *find_exchanges(Graph *graph, Node *const *order) {
    bool *exchanged = arena_new_array(graph->arena, bool, length(graph->node) + 1);
    int *users = graph_users(graph, order);
    for (int i = 0; i < length(order); i++) {
        const Node *reader = order[i];
        if (reader->op != OP_permute) continue;
        const Node *x = reader->input[0];
        exchanged[x->id] = users[x->id] == 1 && is_exchange(reader, x);
    }
    return exchanged;
}

static Node *claim(const Claim *c, const Node *node, Node *const *input, Budget *budget) {
    if (node->op != OP_scaled_dot_product_attention) return NULL;
    Reason reason = attention_pays(node);
    if (reason == REASON_NONE) return budget_spend(budget) ? claim_attention(c, node, input) : NULL;
    push(c->graph->arena, c->graph->declined, ((Declined){node->op, reason}));
    return NULL;
}

void pass_claim(Graph *graph, Budget *budget) {
    Node **order = graph_order(graph);
    Claim c = {graph, find_exchanges(graph, order)};
    Node **now = arena_new_array(graph->arena, Node *, length(graph->node) + 1);
    Origin origin = graph->origin;
    for (int i = 0; i < length(order); i++) {
        const Node *node = order[i];
        Node *input[NODE_MAX_INPUTS], *claimed;
        node_inputs_now(node, now, input);
        graph->origin = node->origin;
        claimed = claim(&c, node, input, budget);
        now[node->id] = claimed ? claimed : graph_with_inputs(graph, node, input);
    }
    graph_replace_results(graph, now);
    graph->origin = origin;
}
