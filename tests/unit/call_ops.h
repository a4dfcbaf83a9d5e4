/* A call that is written as the text of graphs, op by op through the door: eagerly, or inside of a
 * function that is being compiled. */
#ifndef CARBIDE_TEST_CALL_OPS_H
#define CARBIDE_TEST_CALL_OPS_H

#include "carbide.h"
#include "graph/graph.h"
#include "graph/node.h"
#include "inside.h"

/* inputs: "x: f32[3], y: i64[]", call: "add(x, y)"; a graph in the arena, or NULL with an error. */
static inline Graph *graph_of_call(Arena *own, const char *inputs, const char *call) {
    return graph_parse(own, arena_format(own, "graph(%s) { z = %s\nreturn z }", inputs, call));
}

static inline cb_tensor *call_node(const Node *node, cb_tensor *const *value) {
    cb_operand operand[OP_MAX_INPUTS] = {{0}};
    for (int k = 0; k < node->input_count; k++)
        if (node->input[k])
            operand[k] = node_has_literal(node, k) ? node_literal(node->input[k])
                                                   : cb_operand_tensor(value[node->input[k]->id]);
    return apply_op(node->op, operand, node->input_count, node->attrs);
}

/* What the result is made of, without what composites expand to. */
static inline bool *needed_nodes(Arena *own, const Graph *graph) {
    bool *needed = arena_new_array(own, bool, length(graph->node) + 1);
    needed[graph->output[0]->id] = true;
    for (int id = length(graph->node) - 1; id >= 0; id--)
        for (int k = 0; needed[id] && k < graph->node[id]->input_count; k++)
            if (graph->node[id]->input[k]) needed[graph->node[id]->input[k]->id] = true;
    return needed;
}

/* NULL with an error. */
static inline cb_tensor *call_ops(const char *inputs, const char *call, cb_tensor *const *in) {
    Arena *own = arena_new();
    Graph *graph = graph_of_call(own, inputs, call);
    int count = graph ? length(graph->node) : 0;
    cb_tensor **value = arena_new_array(own, cb_tensor *, count + 1);
    const bool *needed = graph ? needed_nodes(own, graph) : NULL;
    for (int id = 0; id < count; id++) {
        const Node *node = graph->node[id];
        if (!needed[id]) continue;
        if (node->op == OP_constant)
            value[id] = (cb_full)(CB_NO_DIMS, node_literal(node), node->dtype);
        else if (node->op == OP_input)
            value[id] = in[node->attrs->word[0]];
        else
            value[id] = call_node(node, value);
    }
    cb_tensor *y = graph ? value[graph->output[0]->id] : NULL;
    arena_free(own);
    return y;
}

#endif
