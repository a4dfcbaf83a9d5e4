/* The walk: from the outputs back to the inputs, each node once.
 *
 *     y = exp(x) * w,  cotangent g          nodes by falling id: mul, exp
 *         mul   to exp(x): g * w            to w: sum(g * exp(x)) to the sizes of w
 *         exp   to x: (g * w) * exp(x)      the forward pass's own exp: nodes are interned
 *
 * An input has a smaller id than its users, and an expansion than its composite, so a node's
 * gradient is complete when the walk comes to it. Nothing is built for a node that does not lead
 * from wrt to the outputs. A gradient that is 0 by its row (of floor) is a mark, which adds nothing
 * to others, and zeros to an op that is gone over: behind 1 / x, 0 times infinity is NaN. */
#include "graph/grad/grad.h"

#include "op/custom.h"

#include <string.h>

typedef struct Walk {
    Graph *graph;
    int count;             /* of nodes before the first gradient: the others are gradients */
    bool *reached;         /* by id: it depends on wrt by floating point values alone */
    bool *touched;         /* by id: it has a gradient, if one of zeros that nobody has built */
    GradSum *sum;          /* by id: what that is beside zeros so far */
    Node **from;           /* by id, where it is touched: as graph_grad says */
    const Syntax **parsed; /* by op */
    int checkpoint;        /* that the walk is in; 0: none */
    bool failed_before;
} Walk;

/* A composite without a gradient of its own. */
static bool through_expansion(const Node *node) {
    return node->expansion && !*op_gradient(node->op);
}

void grad_reach(const Graph *graph, int first, int end, bool *reached) {
    for (int id = first; id < end; id++) { /* inputs come before what is made of them */
        const Node *node = graph->node[id];
        if (!dtype_is_float(node->dtype) || !op_has_gradient(node->op, node->attrs)) continue;
        if (through_expansion(node))
            reached[id] |= reached[node->expansion->id];
        else
            for (int k = 0; k < node->input_count; k++)
                reached[id] |= node->input[k] && reached[node->input[k]->id];
    }
}

/* Marks what leads from wrt to the outputs. */
static void reach(Walk *walk, Node *const *wrt, int count) {
    for (int i = 0; i < count; i++) walk->reached[wrt[i]->id] = dtype_is_float(wrt[i]->dtype);
    grad_reach(walk->graph, 0, walk->count, walk->reached);
}

/* The gradient in the sizes and dtype of what it belongs to: summed over what was broadcast. */
static Node *fitted(Graph *graph, Node *g, const Node *x) {
    cb_dim_list dims = {0, {0}};
    int64_t size[CB_MAX_RANK];
    int lead = g->rank - x->rank;
    for (int i = 0, kept = 0; i < g->rank; i++) {
        bool broadcast = i < lead || (x->size[i - lead] == 1 && g->size[i] != 1);
        if (broadcast) dims.at[dims.count++] = i;
        if (i >= lead) size[kept++] = broadcast ? 1 : g->size[i];
    }
    if (dims.count) g = call_reduce(graph, OP_sum, g, dims, true);
    if (lead > 0) g = node_reshape(graph, g, x->rank, size);
    return node_expand_to(graph, node_convert(graph, g, x->dtype), x->rank, x->size);
}

/* g NULL: zeros. of: the node whose gradient g is, as it came there; NULL: no node's. */
static void add(Walk *walk, Node *x, Node *g, const Node *of) {
    if (!walk->reached[x->id]) return;
    Node *fit = g ? fitted(walk->graph, g, x) : NULL;
    bool handed_on = of && g && fit == g && !walk->touched[x->id];
    walk->from[x->id] = handed_on ? walk->from[of->id] : x;
    walk->touched[x->id] = true;
    if (g) grad_sum_add(walk->graph, &walk->sum[x->id], fit);
}

bool grad_refuses(Op op, Site site) {
    char line[64];
    site_format(site, line, sizeof line);
    fail(CB_ERR_ARGUMENT,
         "backward: it comes to %s (%s), which has no gradient (%s): cb_detach its result",
         op_info(op)->name, line, op_gradient(op) + 1);
    return false;
}

/* given NULL: zeros. out: what the gradient of node's op reads as its result. */
static bool step_over(Walk *walk, Node *node, Node *out, Node *given) {
    bool wanted[NODE_MAX_INPUTS], stated[NODE_MAX_INPUTS] = {false};
    Node *result[NODE_MAX_INPUTS] = {NULL};
    bool any = false;
    for (int k = 0; k < node->input_count; k++)
        any |= wanted[k] = node->input[k] && walk->reached[node->input[k]->id];
    /* It is one of wrt, and depends on no other, or cuts them off. */
    if (!any || !op_has_gradient(node->op, node->attrs)) return true;
    if (op_refuses_gradient(node->op)) return grad_refuses(node->op, node->origin.site);
    if (!given) given = node_splat(walk->graph, node, (Scalar){0});
    GradCall call = {walk->graph, node, given, out, wanted, result};
    const Syntax **text = &walk->parsed[node->op];
    if (*op_gradient(node->op) == '@' || node->op == OP_custom) {
        if (!grad_code(&call)) add(walk, node->expansion, given, out);
        memcpy(stated, wanted, sizeof *wanted * (size_t)node->input_count);
    } else if (!grad_text(&call, *text ? *text : (*text = grad_parse(walk->graph, node->op)),
                          stated))
        return false;
    for (int k = 0; k < node->input_count; k++)
        if (stated[k]) add(walk, node->input[k], result[k], result[k] == given ? out : NULL);
    return walk->failed_before || !cb_error();
}

/* Of equal ops, each goes back over its own, with its own result in what it reads. */
static bool step(Walk *walk, Node *out) {
    Node *given = grad_sum(walk->graph, out, &walk->sum[out->id]);
    bool own = out->op == OP_apart && out->attrs->word[ATTR_apart_own];
    Node *node = own ? out->input[0] : out;
    bool inside = walk->checkpoint && node->origin.site.checkpoint == walk->checkpoint;
    walk->graph->origin = node->origin;
    if (!inside) walk->graph->origin.site.checkpoint = OF_GRADIENTS;
    if (!through_expansion(node)) return step_over(walk, node, out, given);
    add(walk, node->expansion, given, out);
    return true;
}

bool graph_grad(Graph *graph, Node *const *output, Node *const *cotangent, int outputs,
                Node *const *wrt, int count, Node **gradient, Node **from) {
    Arena *arena = graph->arena;
    Walk walk = {.graph = graph, .count = length(graph->node), .failed_before = cb_error() != NULL};
    Origin origin = graph->origin;
    bool expanding = graph->expanding, fine = true;
    walk.checkpoint = origin.site.checkpoint;
    walk.reached = arena_new_array(arena, bool, walk.count + 1);
    walk.touched = arena_new_array(arena, bool, walk.count + 1);
    walk.sum = arena_new_array(arena, GradSum, walk.count + 1);
    walk.from = arena_new_array(arena, Node *, walk.count + 1);
    walk.parsed = arena_new_array(arena, const Syntax *, OP_COUNT);
    reach(&walk, wrt, count);
    graph->expanding = true; /* numbers of gradients are not rounded to f16, as those of formulas */
    for (int i = 0; i < outputs; i++)
        if (output[i] && cotangent[i]) add(&walk, output[i], cotangent[i], NULL);
    for (int id = walk.count - 1; id >= 0 && fine; id--) {
        if (walk.touched[id]) fine = step(&walk, graph->node[id]);
    }
    for (int i = 0; i < count; i++) {
        int id = wrt[i]->id;
        Node *sum = walk.sum[id].whole;
        bool zeros = walk.touched[id] && !sum;
        gradient[i] = zeros ? node_splat(graph, wrt[i], (Scalar){0}) : sum;
        if (from) from[i] = sum ? walk.from[id] : NULL;
    }
    graph->expanding = expanding;
    graph->origin = origin;
    return fine;
}
