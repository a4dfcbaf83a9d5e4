/* Pass recompute: what a checkpoint's function computes for itself is computed again for gradients.
 * needs normal primitive ops; keeps them; breaks nothing.
 *
 *     h = exp(x)             of a checkpoint          h = exp(x)
 *     y = h * h              its result               y = h * h
 *     dh = dy * h * 2        a gradient         ->    h2 = exp(x)         the same op, another node
 *                                                     dh = dy * h2 * 2
 *
 * So nothing of h is kept from its readers in the function to the gradients: the planner takes the
 * second one when they come (graph_walk_late), and fusion does not take it back to the first one.
 * What a checkpoint gives is there for others, and so the second run begins with what the one
 * before it gave. Draws have their numbers, so they are the same twice. Writes to inputs, running
 * statistics and checks of indices are roots, which stay with what the function itself computed. */
#include "graph/node.h"
#include "graph/rewrite.h"

/* ---- what is inside -------------------------------------------------------------------------- */

/* What acts, or was drawn by what is no op of the table, is done once. */
static bool may_be_repeated(const Node *node) {
    return op_info(node->op)->kind != KIND_CUSTOM && node->input_count + op_may_draw(node->op) > 0;
}

/* By id: what stays, since it is a result, or is taken by an input, or checked. */
static bool *find_roots(const Graph *graph) {
    bool *root = arena_new_array(graph->arena, bool, length(graph->node) + 1);
    for (int i = 0; i < length(graph->output); i++) root[graph->output[i]->id] = true;
    for (int i = 0; i < length(graph->mutation); i++) root[graph->mutation[i].value->id] = true;
    for (int i = 0; i < length(graph->check); i++) root[graph->check[i].index->id] = true;
    return root;
}

/* What is compared with a greatest element that stays has the bits that it had then: it stays. */
static void keep_compared(Node *const *order, bool *inside) {
    for (int i = 0; i < length(order); i++)
        for (int k = 0; k < 2; k++) {
            const Node *extreme = node_own_extreme(order[i], k);
            if (extreme && !inside[extreme->id])
                inside[node_below_views(extreme->input[0])->id] = false;
        }
}

void graph_find_inside(const Graph *graph, Node *const *order, bool *inside, bool *given) {
    bool *leaves = find_roots(graph);
    for (int i = length(order) - 1; i >= 0; i--) {
        const Node *node = order[i];
        int own = node->origin.site.checkpoint;
        bool passes = op_info(node->op)->kind == KIND_VIEW && leaves[node->id];
        inside[node->id] = own > 0 && !leaves[node->id] && may_be_repeated(node);
        given[node->id] = own > 0 && leaves[node->id] && !passes;
        for (int k = 0; k < node->input_count && own >= 0; k++) {
            const Node *x = node->input[k];
            if (x) leaves[x->id] |= passes || x->origin.site.checkpoint != own;
        }
    }
    keep_compared(order, inside);
}

/* ---- computing again ------------------------------------------------------------------------- */

typedef struct Recompute {
    Graph *graph;
    const bool *inside; /* by id of the nodes as they were */
    Node **now, **again;
} Recompute;

static Node *copy(const Recompute *r, const Node *node, bool reads_again, int checkpoint) {
    Node *input[NODE_MAX_INPUTS];
    Meta meta = node_meta(node);
    node_inputs_now(node, r->now, input);
    for (int k = 0; k < node->input_count && reads_again; k++)
        if (node->input[k] && r->inside[node->input[k]->id])
            input[k] = r->again[node->input[k]->id];
    r->graph->origin = node->origin;
    r->graph->origin.site.checkpoint = checkpoint;
    return graph_intern(r->graph, node->op, &meta, input, node->input_count, node->attrs);
}

/* A factor that gradients follow from, of nothing but what is computed again, is so, too: the
 * checkpoint that it belongs to. */
static int place_of(const Recompute *r, const Node *node) {
    int place = OF_GRADIENTS;
    for (int k = 0; k < node->input_count; k++) {
        const Node *x = node->input[k];
        if (!x) continue;
        const Node *now = r->inside[x->id] ? r->again[x->id] : r->now[x->id];
        if (node_of_gradients(now)) return OF_GRADIENTS;
        if (node_again(now)) place = node_again(now);
    }
    return place;
}

void pass_recompute(Graph *graph, Budget *budget) {
    Origin origin = graph->origin;
    Node **order = graph_order(graph);
    int count = length(graph->node) + 1;
    bool *inside = arena_new_array(graph->arena, bool, count), any = false;
    graph_find_inside(graph, order, inside, arena_new_array(graph->arena, bool, count));
    for (int i = 0; i < length(order); i++) {
        inside[order[i]->id] &= inside[order[i]->id] && budget_spend(budget);
        any |= inside[order[i]->id];
    }
    if (!any) return;
    Recompute r = {graph, inside, arena_new_array(graph->arena, Node *, count),
                   arena_new_array(graph->arena, Node *, count)};
    for (int i = 0; i < length(order); i++) {
        Node *node = order[i];
        bool gradient = node_of_gradients(node);
        int own = node->origin.site.checkpoint;
        r.now[node->id] = copy(&r, node, gradient, gradient ? place_of(&r, node) : own);
        if (inside[node->id]) r.again[node->id] = copy(&r, node, true, -own);
    }
    graph_replace_results(graph, r.now);
    graph->origin = origin;
}
