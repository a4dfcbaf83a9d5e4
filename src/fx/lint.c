/* The checker of FX graphs: every refusal names the node.
 *
 *     node %add (call_function operator.add): uses %x before its definition
 *
 * Beyond what torch.fx checks, functions and methods must name an op, and a graph ends with its
 * only output. */
#include "fx/fx.h"
#include <string.h>

typedef struct Lint {
    const FxGraph *graph;
    const FxNode *node;
    bool *defined; /* by node id */
    Map names;
    bool order; /* nothing but the order of nodes is checked */
    bool good;
} Lint;

static void check_input(void *user, FxNode *input) {
    Lint *lint = user;
    if (!lint->good) return;
    lint->good = false;
    if (input->graph != lint->graph)
        fx_fail(CB_ERR_GRAPH, lint->node, "uses %%%s, a node of another graph", input->name);
    else if (!lint->defined[input->id])
        fx_fail(CB_ERR_GRAPH, lint->node, "uses %%%s before its definition", input->name);
    else
        lint->good = true;
}

static bool name_is_new(Lint *lint, const FxNode *node) {
    uint64_t key = hash_text(node->name);
    MapEntry *entry = map_first(&lint->names, key);
    for (; entry; entry = map_next(entry))
        if (strcmp(entry->value, node->name) == 0) return false; /* untested: equal hashes */
    map_put(&lint->names, key, (void *)node->name);
    return true;
}

static bool target_exists(const FxGraph *graph, const FxNode *node) {
    if (node->opcode == CB_CALL_FUNCTION || node->opcode == CB_CALL_METHOD)
        return node->op != OP_none;
    if (node->opcode == CB_GET_ATTR) {
        if (fx_constant(graph, node->target)) return true;
        return !graph->root || module_find_tensor(graph->root, node->target);
    }
    if (node->opcode != CB_CALL_MODULE) return true;
    return !graph->root || module_find_child(graph->root, node->target);
}

static bool check_node(Lint *lint, const FxNode *node) {
    const FxGraph *graph = lint->graph;
    if (node->opcode < 0 || node->opcode >= CB_OPCODE_COUNT)
        return fx_fail(CB_ERR_GRAPH, node, "unknown opcode %d", (int)node->opcode) == CB_OK;
    if (node->graph != graph)
        return fx_fail(CB_ERR_GRAPH, node, "belongs to another graph") == CB_OK;
    lint->node = node;
    fx_visit_inputs(node, check_input, lint);
    if (!lint->good) return false;
    lint->defined[node->id] = true;
    if (lint->order) return true;
    if (!name_is_new(lint, node))
        return fx_fail(CB_ERR_GRAPH, node, "its name is defined twice") == CB_OK;
    if (!target_exists(graph, node)) {
        bool op = node->opcode == CB_CALL_FUNCTION || node->opcode == CB_CALL_METHOD;
        return fx_fail(CB_ERR_GRAPH, node, "its target names no %s",
                       op ? "op" : "attribute of the module") == CB_OK;
    }
    if (node->opcode == CB_OUTPUT && node->next)
        return fx_fail(CB_ERR_GRAPH, node, "nodes follow the output") == CB_OK;
    return true;
}

static cb_status lint_nodes(Arena *arena, const FxGraph *graph, bool order) {
    if (arena_guard(arena)) return fail_memory(0);
    Lint lint = {graph,          NULL,  arena_new_array(arena, bool, graph->next_id + 1),
                 map_new(arena), order, true};
    for (const FxNode *node = graph->first; node; node = node->next)
        if (!check_node(&lint, node)) return CB_ERR_GRAPH;
    return CB_OK;
}

static cb_status lint_graph(const FxGraph *graph, bool order) {
    Arena *arena = arena_new();
    if (!arena) return fail_memory(0);
    cb_status status = lint_nodes(arena, graph, order);
    arena_free(arena);
    return status;
}

cb_status fx_check_order(const FxGraph *graph) { return lint_graph(graph, true); }

cb_status cb_graph_lint(const cb_graph *graph) {
    if (!graph) return fail(CB_ERR_ARGUMENT, "cb_graph_lint: NULL");
    if (!fx_lives(graph, "cb_graph_lint: the graph")) return CB_ERR_ARGUMENT;
    if (!fx_module_lives(graph, "cb_graph_lint: the graph's module")) return CB_ERR_ARGUMENT;
    return lint_graph(graph, false);
}
