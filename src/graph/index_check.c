/* Index checks: an index out of range is an error of the op that was called with it, whether or not
 * anybody needs the result. So the checks are roots of the graph, as outputs are: what goes away is
 * the op.
 *
 *     y = gather(x: f32[5], 0, i)             nobody reads y
 *     z = isnan(scatter(x: i64[5], 0, i, s))  false, whatever was scattered
 *     check i below 5 for gather
 *     check i below 5 for scatter
 *
 * In: ops as they are called, before the passes. Out: graph->check, which the passes keep. An op
 * that is still there when steps are made is checked because of that, and a check like it says
 * nothing more; nor does the text of a graph repeat it. */
#include "graph/index_check.h"

#include "graph/node.h"

IndexBound index_bound(const Node *node) {
    int dim = (int)node->attrs->word[ATTR_along_dim];
    return (IndexBound){.bound = node->input[0]->size[dim],
                        .op = node->op,
                        .origin = node->origin,
                        .dim = dim,
                        .of = {node_meta(node->input[0]), node_meta(node->input[1])}};
}

Node *index_base(Node *index) {
    while (index->op == OP_reshape || index->op == OP_permute || index->op == OP_expand)
        index = index->input[0];
    return index;
}

/* Positions and sorts. */
bool index_in_range(const Node *base, int64_t bound) {
    if (node_numel(base) == 0) return true;
    if (base->op == OP_argsort || base->op == OP_argtopk) {
        int dim =
            (int)base->attrs->word[base->op == OP_argsort ? ATTR_argsort_dim : ATTR_argtopk_dim];
        return base->input[0]->size[dim] <= bound;
    }
    if (base->op == OP_positions) return node_numel(base->input[0]) <= bound;
    if (base->op != OP_arange) return false;
    int64_t first = base->attrs->word[ATTR_arange_start],
            step = base->attrs->word[ATTR_arange_step];
    int64_t last = first + step * (base->size[0] - 1);
    return first >= 0 && first < bound && last >= 0 && last < bound;
}

/* Ops of gradients have the index of the op that they are of, which was called with it, or made it
 * themselves. */
void index_check_called(Graph *graph, const Node *node) {
    if (node_of_gradients(node)) return;
    Node *index = node->input[1], *base = index_base(index);
    IndexBound bound = index_bound(node);
    if (graph->optimizing || node_numel(index) == 0 || index_in_range(base, bound.bound)) return;
    push(graph->arena, graph->check, ((IndexCheck){base, bound}));
}

/* 0 as a divisor of integers; what is no probability, NaN included, as in PyTorch. */
static Node *refused_values(Graph *graph, const Node *node) {
    bool divides = op_divides(node->op);
    Node *x = index_base(node->input[divides]);
    if (divides && dtype_is_float(node->dtype)) return NULL;
    if (divides) return graph_op(graph, OP_logical_not, &x, 1, NULL, NULL);
    Attrs unit = attrs_default(OP_clamp);
    attr_set_number(&unit, ATTR_clamp_low, (cb_operand){.kind = CB_OPERAND_FLOAT, .f = 0});
    attr_set_number(&unit, ATTR_clamp_high, (cb_operand){.kind = CB_OPERAND_FLOAT, .f = 1});
    Node *clamped = graph_op(graph, OP_clamp, &x, 1, &unit, NULL);
    return graph_op(graph, OP_ne, (Node *[]){x, clamped}, 2, NULL, NULL);
}

void value_check_called(Graph *graph, const Node *node) {
    bool asked = graph->ambient.checked && !graph->optimizing;
    if (!asked || node_numel(node) == 0) return;
    Node *refused = refused_values(graph, node);
    Node *index = refused ? node_convert(graph, refused, CB_I64) : NULL;
    if (index)
        push(graph->arena, graph->check,
             ((IndexCheck){index, {.bound = 1, .op = node->op, .origin = node->origin}}));
}

void index_checks_replace(Graph *graph, Node *const *now) {
    int count = 0;
    for (int i = 0; i < length(graph->check); i++) {
        IndexCheck check = graph->check[i];
        check.index = index_base(now[check.index->id]);
        if (!index_in_range(check.index, check.in.bound)) graph->check[count++] = check;
    }
    truncate_to(graph->check, count);
}

/* ---- sets ---------------------------------------------------------------------------------- */

CheckSet check_set_new(const Graph *graph, Arena *arena) {
    return (CheckSet){.arena = arena, .last = arena_new_array(arena, int, length(graph->node) + 1)};
}

void check_set_add(CheckSet *set, Node *index, const IndexBound *bound) {
    int *last = &set->last[index->id];
    for (int i = *last; i; i = set->before[i - 1])
        if (set->check[i - 1].in.bound == bound->bound) return;
    push(set->arena, set->check, ((IndexCheck){index, *bound}));
    push(set->arena, set->before, *last);
    *last = length(set->check);
}

IndexCheck *index_checks_left(const Graph *graph, Arena *arena) {
    CheckSet set = check_set_new(graph, arena);
    if (!length(graph->check)) return NULL;
    Node **order = graph_walk(graph, arena, NULL, true);
    for (int i = 0; i < length(order); i++) {
        if (!op_has_index(order[i]->op)) continue;
        IndexBound bound = index_bound(order[i]);
        check_set_add(&set, index_base(order[i]->input[1]), &bound);
    }
    int made = length(set.check);
    for (int i = 0; i < length(graph->check); i++)
        check_set_add(&set, graph->check[i].index, &graph->check[i].in);
    IndexCheck *left = NULL;
    for (int i = made; i < length(set.check); i++) push(arena, left, set.check[i]);
    return left;
}
