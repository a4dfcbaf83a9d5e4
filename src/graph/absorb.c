/* Pass absorb: scales and shifts of products go into operands that are frozen.
 * needs primitive ops; keeps them; breaks nothing.
 *
 *     convolution(x, w) * s + t             ->  convolution(x, w * s) + t
 *     (matmul(x, w) + b) * s                ->  matmul(x, w * s) + b * s
 *     (convolution(x, w) + b) + t           ->  convolution(x, w) + (b + t)
 *
 * where w, b, s and t are frozen and vary along the channels of the result alone: a batch norm in
 * eval disappears into the layer before it. What is new depends on frozen values alone, and is
 * computed when it is compiled. Equal up to the last bits; half precision is left alone, whose
 * weights would be rounded once more. */
#include "graph/node.h"
#include "graph/rewrite.h"

typedef struct Absorb {
    Graph *graph;
    Fixed *fixed; /* vec: graph_fixed */
    int *uses;    /* vec by node id: users in the new graph; 1 for what this pass makes inside */
} Absorb;

static bool frozen(Absorb *a, const Node *node) {
    a->fixed = graph_fixed(a->graph, a->fixed);
    return a->fixed[node->id] == FIXED_FROZEN;
}

static void set_uses(Absorb *a, const Node *node, int uses) {
    while (length(a->uses) <= (int)node->id) push(a->graph->arena, a->uses, 1);
    a->uses[node->id] = uses;
}

static bool used_once(const Absorb *a, const Node *node) {
    return (int)node->id >= length(a->uses) || a->uses[node->id] == 1;
}

/* A product with a frozen second operand, f32 or f64. */
static bool is_layer(Absorb *a, const Node *node) {
    bool product =
        node->op == OP_convolution || (node->op == OP_matmul && node->input[1]->rank > 1);
    bool wide = node->dtype == CB_F32 || node->dtype == CB_F64;
    return product && wide && frozen(a, node->input[1]);
}

static int channel_dim(const Node *product) {
    bool first =
        product->op == OP_convolution && !product->attrs->word[ATTR_convolution_channels_last];
    return first ? 1 : product->rank - 1;
}

/* Does s broadcast along everything but the channels of the product? */
static bool by_channel(Absorb *a, const Node *product, const Node *s) {
    int shift = product->rank - s->rank, channel = channel_dim(product);
    if (shift < 0 || s->dtype != product->dtype || !frozen(a, s)) return false;
    for (int i = 0; i < s->rank; i++) {
        bool along = i + shift == channel && s->size[i] == product->size[channel];
        if (s->size[i] != 1 && !along) return false;
    }
    return true;
}

static Node *binary(Absorb *a, Op op, Node *x, Node *y) {
    return graph_op(a->graph, op, (Node *[]){x, y}, 2, NULL, NULL);
}

static Node *scaled(Absorb *a, Node *product, Node *s) {
    Node *weight = product->input[1];
    int64_t shape[CB_MAX_RANK] = {node_numel(s), 1, 1, 1, 1, 1, 1, 1};
    int rank = product->op == OP_convolution ? weight->rank : 1;
    weight = binary(a, OP_mul, weight, node_reshape(a->graph, s, rank, shape));
    return graph_with_inputs(a->graph, product, (Node *[]){product->input[0], weight});
}

/* node is x op y: does x consist of a layer and perhaps a frozen addend? *layer and *addend (or
 * NULL) are its parts. */
static bool take_apart(Absorb *a, Node *x, Node **layer, Node **addend) {
    *layer = x;
    *addend = NULL;
    if (!used_once(a, x)) return false;
    for (int i = 0; x->op == OP_add && i < 2; i++) {
        Node *part = x->input[i], *other = x->input[1 - i];
        if (!is_layer(a, part) || !used_once(a, part) || !by_channel(a, part, other)) continue;
        *layer = part;
        *addend = other;
        return true;
    }
    return is_layer(a, x);
}

static Node *absorb(Absorb *a, Node *node) {
    Node *layer, *addend;
    if (node->op != OP_mul && node->op != OP_add && node->op != OP_sub) return node;
    for (int i = 0; i < 2; i++) {
        Node *x = node->input[i], *s = node->input[1 - i];
        if (i == 1 && node->op == OP_sub) return node;
        if (!take_apart(a, x, &layer, &addend) || !by_channel(a, layer, s)) continue;
        if (node->rank != layer->rank || node_numel(node) != node_numel(layer)) continue;
        if (node->op == OP_mul) {
            Node *product = scaled(a, layer, s);
            return addend ? binary(a, OP_add, product, binary(a, OP_mul, addend, s)) : product;
        }
        return addend ? binary(a, OP_add, layer, binary(a, node->op, addend, s)) : node;
    }
    return node;
}

void pass_absorb(Graph *graph, Budget *budget) {
    if (!graph->frozen) return;
    Absorb a = {.graph = graph};
    Origin origin = graph->origin;
    Node **order = graph_order(graph);
    Node **now = arena_new_array(graph->arena, Node *, length(graph->node) + 1);
    const int *uses = graph_uses(graph, order);
    for (int i = 0; i < length(order); i++) {
        Node *node = order[i], *input[NODE_MAX_INPUTS];
        graph->origin = node->origin;
        node_inputs_now(node, now, input);
        Node *same = graph_with_inputs(graph, node, input), *made = absorb(&a, same);
        now[node->id] = made != same && budget_spend(budget) ? made : same;
        set_uses(&a, now[node->id], uses[node->id]);
    }
    graph_replace_results(graph, now);
    graph->origin = origin;
}
