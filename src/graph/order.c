/* Orders and whole-graph operations: what the outputs need, users, bottom-up rewriting, comparison.
 *
 * In: a graph. Out: vectors and arrays in its arena, in time linear in its nodes, with an explicit
 * stack, so that a chain of any length is no problem.
 *
 *     return relu(add(x, w))    order: x, w, add, relu */
#include "graph/index_check.h"
#include "graph/node.h"

#include <string.h>

typedef struct NodeVisit {
    Node *node;
    int next; /* input to look at */
} NodeVisit;

static Node *child(const Node *node, int i, bool through) {
    return through && node->expansion ? node->expansion : node->input[i];
}

static int child_count(const Node *node, bool through) {
    return through && node->expansion ? 1 : node->input_count;
}

static bool comes_before(const Node *a, const Node *b, const int *depth) {
    if (!node_again(a) != !node_again(b)) return node_again(b);
    return depth[a->id] < depth[b->id];
}

/* The input to go to: the next one that was not seen, or, where depths are given, that which is
 * come to first, and what is computed again last; NULL: there is none. */
static Node *next_child(NodeVisit *top, bool through, const bool *seen, const int *depth) {
    Node *best = NULL;
    int count = child_count(top->node, through);
    while (!depth && top->next < count) {
        Node *input = child(top->node, top->next++, through);
        if (input && !seen[input->id]) return input;
    }
    for (int i = 0; depth && i < count; i++) {
        Node *input = child(top->node, i, through);
        if (!input || seen[input->id]) continue;
        if (!best || comes_before(input, best, depth)) best = input;
    }
    return best;
}

/* Inputs before users: the post-order of a depth-first walk from the root. */
static void visit(Arena *arena, Node *root, bool through, bool *seen, const int *depth,
                  NodeVisit **stack, Node ***order) {
    if (seen[root->id]) return;
    seen[root->id] = true;
    push(arena, *stack, (NodeVisit){root, 0});
    while (length(*stack)) {
        NodeVisit *top = &(*stack)[length(*stack) - 1];
        Node *input = next_child(top, through, seen, depth);
        if (!input) {
            push(arena, *order, top->node);
            (void)pop(*stack);
            continue;
        }
        seen[input->id] = true;
        push(arena, *stack, (NodeVisit){input, 0});
    }
}

/* What is wanted: as it is listed, or, where depths are given, that which is come to first. */
static Node **list_roots(const Graph *graph, Arena *arena, const IndexCheck *check,
                         const int *depth) {
    Node **root = NULL;
    for (int i = 0; i < length(graph->output); i++) push(arena, root, graph->output[i]);
    for (int i = 0; i < length(graph->mutation); i++) push(arena, root, graph->mutation[i].value);
    for (int i = 0; i < length(check); i++) push(arena, root, check[i].index);
    for (int i = 1; depth && i < length(root); i++) {
        Node *node = root[i];
        int at = i;
        for (; at > 0 && depth[root[at - 1]->id] > depth[node->id]; at--) root[at] = root[at - 1];
        root[at] = node;
    }
    return root;
}

static Node **walk(const Graph *graph, Arena *arena, const IndexCheck *check, bool through,
                   const int *depth) {
    bool *seen = arena_new_array(arena, bool, length(graph->node) + 1);
    NodeVisit *stack = NULL;
    Node **order = NULL;
    for (int i = 0; i < length(graph->input); i++)
        visit(arena, graph->input[i], through, seen, depth, &stack, &order);
    for (int i = 0; i < length(graph->effect); i++)
        visit(arena, graph->effect[i], through, seen, depth, &stack, &order);
    Node **root = list_roots(graph, arena, check, depth);
    for (int i = 0; i < length(root); i++)
        visit(arena, root[i], through, seen, depth, &stack, &order);
    return order;
}

Node **graph_walk(const Graph *graph, Arena *arena, const IndexCheck *check, bool through) {
    return walk(graph, arena, check, through, NULL);
}

Node **graph_walk_late(const Graph *graph, Arena *arena, const IndexCheck *check) {
    Node **order = graph_walk(graph, arena, check, false);
    int *depth = arena_new_array(arena, int, length(graph->node) + 1);
    bool again = false;
    for (int i = 0; i < length(order); i++) {
        const Node *node = order[i];
        again |= node_again(node);
        for (int k = 0; k < node->input_count; k++)
            if (node->input[k] && depth[node->input[k]->id] >= depth[node->id])
                depth[node->id] = depth[node->input[k]->id] + 1;
    }
    return again ? walk(graph, arena, check, false, depth) : order;
}

Node **graph_order(Graph *graph) { return graph_walk(graph, graph->arena, graph->check, false); }

int *graph_users(Graph *graph, Node *const *order) {
    int *users = arena_new_array(graph->arena, int, length(graph->node) + 1);
    for (int i = 0; i < length(order); i++) {
        const Node *node = order[i];
        for (int k = 0; k < node->input_count; k++) {
            bool repeated = !node->input[k];
            for (int j = 0; j < k; j++) repeated |= node->input[j] == node->input[k];
            if (!repeated) users[node->input[k]->id]++;
        }
    }
    return users;
}

int *graph_uses(Graph *graph, Node *const *order) {
    int *uses = graph_users(graph, order);
    for (int i = 0; i < length(graph->output); i++) uses[graph->output[i]->id]++;
    for (int i = 0; i < length(graph->mutation); i++) uses[graph->mutation[i].value->id]++;
    return uses;
}

static Fixed fixed_input(const Graph *graph, const Node *node) {
    int number = (int)node->attrs->word[0];
    bool constant = number >= length(graph->input) - length(graph->constant);
    return constant || (graph->frozen && graph->frozen[number]) ? FIXED_FROZEN : FIXED_NOT;
}

Fixed *graph_fixed(Graph *graph, Fixed *known) {
    for (int id = length(known); id < length(graph->node); id++) {
        const Node *node = graph->node[id];
        Fixed fixed =
            op_may_draw(node->op) || node->op == OP_custom_part ? FIXED_NOT : FIXED_LITERAL;
        for (int k = 0; k < node->input_count; k++) {
            Fixed input = node->input[k] ? known[node->input[k]->id] : FIXED_LITERAL;
            if (input == FIXED_NOT || fixed == FIXED_NOT)
                fixed = FIXED_NOT;
            else if (input == FIXED_FROZEN)
                fixed = FIXED_FROZEN;
        }
        if (node->op == OP_input) fixed = fixed_input(graph, node);
        push(graph->arena, known, fixed);
    }
    return known;
}

void node_inputs_now(const Node *node, Node *const *now, Node **input) {
    for (int k = 0; k < node->input_count; k++)
        input[k] = node->input[k] ? now[node->input[k]->id] : NULL;
}

void graph_replace_results(Graph *graph, Node *const *now) {
    for (int i = 0; i < length(graph->effect); i++) graph->effect[i] = now[graph->effect[i]->id];
    for (int i = 0; i < length(graph->output); i++) graph->output[i] = now[graph->output[i]->id];
    for (int i = 0; i < length(graph->mutation); i++)
        graph->mutation[i].value = now[graph->mutation[i].value->id];
    index_checks_replace(graph, now);
}

void graph_rewrite(Graph *graph, NodeReplace *replace, void *user) {
    Origin origin = graph->origin;
    Node **order = graph_order(graph);
    Node **now = arena_new_array(graph->arena, Node *, length(graph->node) + 1);
    for (int i = 0; i < length(order); i++) {
        Node *node = order[i], *input[NODE_MAX_INPUTS];
        graph->origin = node->origin;
        node_inputs_now(node, now, input);
        Node *replaced = replace(graph, graph_with_inputs(graph, node, input), user);
        check(node_same_meta(node, replaced), "a rewrite of %s changed its type",
              op_info(node->op)->name);
        now[node->id] = replaced;
    }
    graph_replace_results(graph, now);
    graph->origin = origin;
}

/* ---- comparison --------------------------------------------------------------------------- */

static int *positions(Graph *graph, Node *const *order) {
    int *position = arena_new_array(graph->arena, int, length(graph->node) + 1);
    for (int i = 0; i < length(order); i++) position[order[i]->id] = i;
    return position;
}

static bool same_node(const Node *a, const Node *b, const int *in_a, const int *in_b) {
    if (a->op != b->op || !node_same_meta(a, b) || a->input_count != b->input_count) return false;
    size_t bytes = sizeof(int64_t) * (size_t)op_attr_words(a->op);
    if (bytes && memcmp(a->attrs->word, b->attrs->word, bytes)) return false;
    for (int i = 0; i < a->input_count; i++) {
        if (!a->input[i] != !b->input[i]) return false;
        if (a->input[i] && in_a[a->input[i]->id] != in_b[b->input[i]->id]) return false;
    }
    return true;
}

static bool same_check(const IndexCheck *a, const IndexCheck *b, const int *in_a, const int *in_b) {
    return in_a[a->index->id] == in_b[b->index->id] && a->in.bound == b->in.bound &&
           a->in.op == b->in.op;
}

bool graph_equal(Graph *a, Graph *b) {
    IndexCheck *check_a = index_checks_left(a, a->arena), *check_b = index_checks_left(b, b->arena);
    Node **order_a = graph_walk(a, a->arena, check_a, false),
         **order_b = graph_walk(b, b->arena, check_b, false);
    int *in_a = positions(a, order_a), *in_b = positions(b, order_b);
    if (length(order_a) != length(order_b) || length(a->input) != length(b->input) ||
        length(a->output) != length(b->output) || length(a->mutation) != length(b->mutation) ||
        length(check_a) != length(check_b) || length(a->effect) != length(b->effect) ||
        a->random_count != b->random_count)
        return false;
    for (int i = 0; i < length(order_a); i++)
        if (!same_node(order_a[i], order_b[i], in_a, in_b)) return false;
    for (int i = 0; i < length(a->output); i++)
        if (in_a[a->output[i]->id] != in_b[b->output[i]->id]) return false;
    for (int i = 0; i < length(a->mutation); i++)
        if (a->mutation[i].input != b->mutation[i].input ||
            in_a[a->mutation[i].value->id] != in_b[b->mutation[i].value->id])
            return false;
    for (int i = 0; i < length(check_a); i++)
        if (!same_check(&check_a[i], &check_b[i], in_a, in_b)) return false;
    return true;
}
