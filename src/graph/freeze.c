/* Pass freeze: what frozen inputs alone determine becomes constants: inputs of the graph, behind
 * those of the call.
 * needs primitive ops; gives nothing; breaks nothing.
 *
 *     graph(x, w, s, t) with w, s, t frozen             graph(x, c0: f32[64, 3, 7, 7], c1: f32[64])
 *       y = convolution(x, w * s) + t        ->           y = convolution(x, c0) + c1
 *
 * graph->constant says what they are: w * s, and t itself. Whoever compiles the graph computes them
 * (run/constant.c). Views of frozen values stay views: they cost nothing, and a copy would take
 * memory. So does what would become much larger than the frozen values that it comes from, and what
 * is returned. Checks of frozen indices go to graph->fixed. */
#include "graph/node.h"
#include "graph/rewrite.h"

enum {
    ALWAYS_KEPT = 1 << 16, /* elements that may always be kept */
    GROWTH = 2             /* others, when they are at most this many times what they come from */
};

typedef struct FrozenPart {
    Graph *graph;
    Budget *budget;
    Node **order;
    const Node **base; /* by node id */
    bool *frozen;
    Node **computed, **used; /* vecs: results to compute, frozen inputs that stay in use */
    bool *listed;            /* by node id: in one of the two */
} FrozenPart;

/* ---- choosing ----------------------------------------------------------------------------- */

/* By node id: what stands below the views. */
static const Node **bases(const FrozenPart *p) {
    const Node **base = arena_new_array(p->graph->arena, const Node *, length(p->graph->node) + 1);
    for (int i = 0; i < length(p->order); i++) {
        const Node *node = p->order[i];
        bool view = op_info(node->op)->kind == KIND_VIEW;
        base[node->id] = view ? base[node->input[0]->id] : node;
    }
    return base;
}

/* Elements of the largest frozen input below each node. */
static int64_t *largest_inputs(const FrozenPart *p) {
    int64_t *largest = arena_new_array(p->graph->arena, int64_t, length(p->graph->node) + 1);
    for (int i = 0; i < length(p->order); i++) {
        const Node *node = p->order[i];
        if (node->op == OP_input) largest[node->id] = node_numel(node);
        for (int k = 0; k < node->input_count; k++)
            if (largest[node->input[k]->id] > largest[node->id])
                largest[node->id] = largest[node->input[k]->id];
    }
    return largest;
}

/* What is too large, or an output, is not kept: it does not count as frozen, its inputs do. */
static void exclude(FrozenPart *p) {
    const int64_t *largest = largest_inputs(p);
    bool *output = arena_new_array(p->graph->arena, bool, length(p->graph->node) + 1);
    for (int i = 0; i < length(p->graph->output); i++)
        output[p->base[p->graph->output[i]->id]->id] = output[p->graph->output[i]->id] = true;
    for (int i = 0; i < length(p->graph->mutation); i++) {
        const Node *value = p->graph->mutation[i].value;
        output[p->base[value->id]->id] = output[value->id] = true;
    }
    for (int i = 0; i < length(p->order); i++) {
        const Node *node = p->order[i];
        bool view = op_info(node->op)->kind == KIND_VIEW, lost = output[node->id];
        int64_t numel = node_numel(node);
        lost |= !view && numel > ALWAYS_KEPT && numel > GROWTH * largest[node->id];
        for (int k = 0; k < node->input_count; k++) {
            const Node *input = node->input[k]; /* excluded inputs exclude */
            lost |= p->frozen[node->id] && largest[input->id] && !p->frozen[input->id];
        }
        if (lost) p->frozen[node->id] = false;
    }
}

static void list(FrozenPart *p, const Node *user_input) {
    if (!p->frozen[user_input->id]) return;
    Node *base = p->graph->node[p->base[user_input->id]->id];
    if (!p->frozen[base->id] || p->listed[base->id]) return; /* a view of a literal */
    if (!budget_spend(p->budget)) return;
    p->listed[base->id] = true;
    if (base->op == OP_input)
        push(p->graph->arena, p->used, base);
    else
        push(p->graph->arena, p->computed, base);
}

/* An index that frozen inputs alone determine is checked once, with the constants. */
static void settle_checks(Graph *graph, const Fixed *fixed) {
    int left = 0;
    for (int i = 0; i < length(graph->check); i++) {
        IndexCheck check = graph->check[i];
        if (fixed[check.index->id] == FIXED_FROZEN)
            push(graph->arena, graph->fixed, check);
        else
            graph->check[left++] = check;
    }
    truncate_to(graph->check, left);
}

static void choose(FrozenPart *p) {
    Graph *graph = p->graph;
    const Fixed *fixed = graph_fixed(graph, NULL);
    settle_checks(graph, fixed);
    p->order = graph_order(graph);
    p->frozen = arena_new_array(graph->arena, bool, length(graph->node) + 1);
    for (int id = 0; id < length(graph->node); id++) p->frozen[id] = fixed[id] == FIXED_FROZEN;
    p->base = bases(p);
    p->listed = arena_new_array(graph->arena, bool, length(graph->node) + 1);
    exclude(p);
    for (int i = 0; i < length(p->order); i++) {
        const Node *node = p->order[i];
        for (int k = 0; k < node->input_count && !p->frozen[node->id]; k++) list(p, node->input[k]);
    }
}

/* ---- replacing ---------------------------------------------------------------------------- */

static void make_inputs(Graph *graph, Node *const *value, Node **now) {
    for (int i = 0; i < length(value); i++) {
        Meta meta = node_meta(value[i]);
        push(graph->arena, graph->constant, value[i]);
        now[value[i]->id] = graph_input(graph, &meta);
    }
}

void pass_freeze(Graph *graph, Budget *budget) {
    if (!graph->frozen) return;
    FrozenPart p = {.graph = graph, .budget = budget};
    Origin origin = graph->origin;
    choose(&p);
    Node **now = arena_new_array(graph->arena, Node *, length(graph->node) + 1);
    make_inputs(graph, p.computed, now);
    make_inputs(graph, p.used, now);
    if (!length(graph->constant)) return;
    for (int i = 0; i < length(p.order); i++) {
        Node *node = p.order[i], *input[NODE_MAX_INPUTS];
        if (now[node->id]) continue;
        graph->origin = node->origin;
        node_inputs_now(node, now, input);
        now[node->id] = graph_with_inputs(graph, node, input);
    }
    graph_replace_results(graph, now);
    graph->origin = origin;
}
