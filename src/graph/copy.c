/* A graph in another arena, of the nodes that it needs: what recording and the passes made on the
 * way, several times as much, may go with theirs.
 *
 * In: a graph. Out: the same one (graph_equal), whose nodes keep their order and their sites. Of
 * the call that a composite's node comes from, errors that only a run can find, those of indices,
 * need the operands' metas; others are said while the graph is built. */
#include "graph/index_check.h"
#include "graph/node.h"

#include <string.h>

static void need(bool *needed, const Node *node) {
    if (node) needed[node->id] = true;
}

void graph_need_inputs(const Graph *graph, bool *needed) {
    for (int id = length(graph->node) - 1; id >= 0; id--) {
        const Node *node = graph->node[id];
        if (!needed[id]) continue;
        need(needed, node->expansion);
        for (int k = 0; k < node->input_count; k++) need(needed, node->input[k]);
    }
}

static bool *find_needed(const Graph *graph, Arena *arena) {
    bool *needed = arena_new_array(arena, bool, length(graph->node) + 1);
    for (int i = 0; i < length(graph->input); i++) need(needed, graph->input[i]);
    for (int i = 0; i < length(graph->effect); i++) need(needed, graph->effect[i]);
    for (int i = 0; i < length(graph->constant); i++) need(needed, graph->constant[i]);
    for (int i = 0; i < length(graph->output); i++) need(needed, graph->output[i]);
    for (int i = 0; i < length(graph->mutation); i++) need(needed, graph->mutation[i].value);
    for (int i = 0; i < length(graph->check); i++) need(needed, graph->check[i].index);
    for (int i = 0; i < length(graph->fixed); i++) need(needed, graph->fixed[i].index);
    graph_need_inputs(graph, needed);
    return needed;
}

Node *graph_copy_node(Graph *copy, const Node *node, Node *const *now) {
    Node *input[NODE_MAX_INPUTS];
    Meta meta = node_meta(node);
    node_inputs_now(node, now, input);
    return node_intern(copy, node->op, &meta, input, node->input_count, node->attrs,
                       node->expansion ? now[node->expansion->id] : NULL);
}

/* An operand of a call that is over: nobody asks for more than its meta. */
static Node *copy_operand(Arena *arena, const Node *node) {
    if (!node) return NULL;
    size_t bytes = sizeof *node->size * node->rank;
    Node *copy = arena_zalloc(arena, sizeof *copy);
    copy->op = node->op, copy->dtype = node->dtype, copy->rank = node->rank;
    if (bytes) copy->size = memcpy(arena_alloc(arena, bytes), node->size, bytes);
    return copy;
}

static const CompositeCall *copy_call(Arena *arena, const CompositeCall *call) {
    if (!call) return NULL;
    CompositeCall *copy = arena_alloc(arena, sizeof *copy);
    Node **input = arena_new_array(arena, Node *, call->count + 1);
    for (int i = 0; i < call->count; i++) input[i] = copy_operand(arena, call->input[i]);
    *copy = (CompositeCall){call->op, call->count, input};
    return copy;
}

static IndexCheck *copy_checks(Arena *arena, const IndexCheck *check, Node *const *now) {
    IndexCheck *copy = NULL;
    for (int i = 0; i < length(check); i++) {
        IndexCheck one = {now[check[i].index->id], check[i].in};
        one.in.origin.call = copy_call(arena, one.in.origin.call);
        push(arena, copy, one);
    }
    return copy;
}

static Node **copy_list(Arena *arena, Node *const *list, Node *const *now) {
    Node **copy = list ? vec_grow(arena, NULL, length(list), sizeof *copy) : NULL;
    for (int i = 0; i < length(list); i++) push(arena, copy, now[list[i]->id]);
    return copy;
}

/* now: by id of the graph's. */
static void copy_nodes(Graph *copy, const Graph *graph, Node **now) {
    const bool *needed = find_needed(graph, graph->arena);
    int count = 0;
    for (int id = 0; id < length(graph->node); id++) count += needed[id];
    copy->node = vec_grow(copy->arena, NULL, count, sizeof *copy->node);
    for (int id = 0; id < length(graph->node); id++) {
        const Node *node = graph->node[id];
        if (!needed[id]) continue;
        copy->origin = (Origin){.site = node->origin.site};
        if (op_has_index(node->op)) copy->origin.call = copy_call(copy->arena, node->origin.call);
        now[id] = graph_copy_node(copy, node, now);
    }
}

Graph *graph_copy(const Graph *graph, Arena *arena) {
    Graph *copy = arena_alloc(arena, sizeof *copy);
    Node **now = arena_new_array(graph->arena, Node *, length(graph->node) + 1);
    *copy = *graph;
    copy->arena = arena, copy->table = map_new(arena), copy->attrs = map_new(arena);
    copy_nodes(copy, graph, now);
    copy->origin = (Origin){.call = NULL};
    copy->input = copy_list(arena, graph->input, now);
    copy->output = copy_list(arena, graph->output, now);
    copy->effect = copy_list(arena, graph->effect, now);
    copy->constant = copy_list(arena, graph->constant, now);
    copy->check = copy_checks(arena, graph->check, now);
    copy->fixed = copy_checks(arena, graph->fixed, now);
    copy->mutation = NULL, copy->declined = NULL;
    for (int i = 0; i < length(graph->mutation); i++) {
        Mutation mutation = graph->mutation[i];
        mutation.value = now[mutation.value->id];
        push(arena, copy->mutation, mutation);
    }
    for (int i = 0; i < length(graph->declined); i++)
        push(arena, copy->declined, graph->declined[i]);
    return copy;
}
