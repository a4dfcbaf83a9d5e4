/* The node list of an FX graph: creation, arguments, users, constants.
 *
 * In:  fx_create(graph, NULL, CB_CALL_METHOD, "relu", args, 1)
 * Out: a linked node with a free name, copied args, and its users lists up to date.
 * Invariant: b is in a->users exactly when a is in b->inputs, which is exactly when a stands in b's
 * args or kwargs; each once.
 *
 *     x + x is one input and one user: args (%x, %x), inputs {x}, x.users {add} */
#include "fx/fx.h"

#include "base/memory.h"
#include <stdarg.h>
#include <string.h>

static bool build(FxGraph *graph, Arena *arena, Module *root) {
    if (arena_guard(arena)) return false;
    graph->arena = arena;
    graph->root = root;
    graph->names = map_new(arena);
    graph->name_counts = map_new(arena);
    return true;
}

FxGraph *fx_graph_new(Module *root) {
    FxGraph *graph = memory_zalloc(sizeof *graph);
    Arena *arena = graph ? arena_new() : NULL;
    if (arena && build(graph, arena, root)) return graph;
    arena_free(arena);
    memory_free(graph);
    fail_memory(sizeof *graph);
    return NULL;
}

void cb_graph_free(cb_graph *graph) {
    if (!fx_lives(graph, "cb_graph_free: the graph")) return;
    for (int i = 0; i < length(graph->constants); i++) tensor_destroy(graph->constants[i].tensor);
    arena_free(graph->arena);
    *graph = (FxGraph){.tomb = graph->tomb};
    tomb_bury(&graph->tomb);
}

FxNode *fx_node_new(FxGraph *graph, cb_opcode opcode, const char *target, const char *name) {
    FxNode *node = arena_zalloc(graph->arena, sizeof *node);
    node->graph = graph;
    node->opcode = opcode;
    node->id = graph->next_id++;
    node->target = arena_text(graph->arena, target);
    if (name) {
        node->name = arena_text(graph->arena, name);
        fx_name_take(graph, node->name);
    } else {
        node->name = fx_unique_name(graph, fx_name_hint(graph, opcode, target));
    }
    fx_resolve(node);
    return node;
}

void fx_link_before(FxGraph *graph, FxNode *node, FxNode *where) {
    node->next = where;
    node->previous = where ? where->previous : graph->last;
    if (node->previous)
        node->previous->next = node;
    else
        graph->first = node;
    if (where)
        where->previous = node;
    else
        graph->last = node;
    graph->count++;
}

void fx_unlink(FxNode *node) {
    FxGraph *graph = node->graph;
    if (node->previous)
        node->previous->next = node->next;
    else
        graph->first = node->next;
    if (node->next)
        node->next->previous = node->previous;
    else
        graph->last = node->previous;
    graph->count--;
    node->args = NULL;
    node->kwargs = NULL;
    fx_refresh(node);
    node->graph = NULL;
}

FxNode *fx_output_node(const FxGraph *graph) {
    return graph->last && graph->last->opcode == CB_OUTPUT ? graph->last : NULL;
}

FxNode *fx_create(FxGraph *graph, FxNode *where, cb_opcode opcode, const char *target,
                  const cb_arg *args, int count) {
    FxNode *node = fx_node_new(graph, opcode, target, NULL);
    for (int i = 0; i < count; i++)
        push(graph->arena, node->args, fx_copy_arg(graph, &args[i], NULL, NULL));
    fx_link_before(graph, node, where);
    fx_refresh(node);
    return node;
}

void fx_add_kwarg(FxNode *node, const char *key, cb_arg value) {
    FxGraph *graph = node->graph;
    FxKwarg kwarg = {arena_text(graph->arena, key), fx_copy_arg(graph, &value, NULL, NULL)};
    push(graph->arena, node->kwargs, kwarg);
}

/* ---- arguments ------------------------------------------------------------------------------ */

cb_arg fx_copy_arg(FxGraph *graph, const cb_arg *arg, FxMap *map, void *user) {
    if (arg->kind == CB_ARG_NODE) return map ? map(user, arg->node) : *arg;
    cb_arg copy = *arg;
    if (arg->kind == CB_ARG_STRING)
        copy.text = arena_text(graph->arena, arg->text ? arg->text : "");
    if (arg->count == 0) return copy;
    cb_arg *items = arena_new_array(graph->arena, cb_arg, arg->count);
    for (int i = 0; i < arg->count; i++) items[i] = fx_copy_arg(graph, &arg->items[i], map, user);
    copy.items = items;
    if (arg->kind == CB_ARG_DICT) {
        const char **keys = arena_new_array(graph->arena, const char *, arg->count);
        for (int i = 0; i < arg->count; i++) keys[i] = arena_text(graph->arena, arg->keys[i]);
        copy.keys = keys;
    }
    return copy;
}

bool fx_arg_belongs(const FxGraph *graph, const cb_arg *arg) {
    if (arg->kind == CB_ARG_NODE) return arg->node && arg->node->graph == graph;
    for (int i = 0; i < arg->count; i++)
        if (!fx_arg_belongs(graph, &arg->items[i])) return false;
    return true;
}

static void visit_nodes(const cb_arg *arg, FxVisit *visit, void *user) {
    if (arg->kind == CB_ARG_NODE) visit(user, arg->node);
    for (int i = 0; i < arg->count; i++) visit_nodes(&arg->items[i], visit, user);
}

void fx_visit_inputs(const FxNode *node, FxVisit *visit, void *user) {
    for (int i = 0; i < length(node->args); i++) visit_nodes(&node->args[i], visit, user);
    for (int i = 0; i < length(node->kwargs); i++) visit_nodes(&node->kwargs[i].value, visit, user);
}

static bool among(FxNode *const *nodes, const FxNode *wanted) {
    for (int i = 0; i < length(nodes); i++)
        if (nodes[i] == wanted) return true;
    return false;
}

static void add_input(void *user, FxNode *input) {
    FxNode *node = user;
    if (!among(node->inputs, input)) push(node->graph->arena, node->inputs, input);
}

static void drop_user(FxNode *node, const FxNode *user) {
    int count = length(node->users), kept = 0;
    for (int i = 0; i < count; i++)
        if (node->users[i] != user) node->users[kept++] = node->users[i];
    truncate_to(node->users, kept);
}

/* Users keep their order: a node that stays an input keeps its place among that input's users. */
void fx_refresh(FxNode *node) {
    Arena *arena = node->graph->arena;
    node->graph->edits++;
    FxNode **before = node->inputs;
    node->inputs = NULL;
    fx_visit_inputs(node, add_input, node);
    for (int i = 0; i < length(before); i++)
        if (!among(node->inputs, before[i])) drop_user(before[i], node);
    for (int i = 0; i < length(node->inputs); i++)
        if (!among(before, node->inputs[i])) push(arena, node->inputs[i]->users, node);
}

typedef struct Replacement {
    const FxNode *node;
    cb_arg by;
} Replacement;

static cb_arg replaced(void *user, FxNode *node) {
    const Replacement *replacement = user;
    return node == replacement->node ? replacement->by : cb_arg_node(node);
}

void fx_replace_uses(FxNode *user, FxNode *node, cb_arg by) {
    FxGraph *graph = user->graph;
    Replacement replacement = {node, by};
    for (int i = 0; i < length(user->args); i++)
        user->args[i] = fx_copy_arg(graph, &user->args[i], replaced, &replacement);
    for (int i = 0; i < length(user->kwargs); i++)
        user->kwargs[i].value = fx_copy_arg(graph, &user->kwargs[i].value, replaced, &replacement);
    fx_refresh(user);
}

/* ---- constants ------------------------------------------------------------------------------ */

const char *fx_constant_add(FxGraph *graph, Tensor *tensor) {
    char name[40];
    snprintf(name, sizeof name, "_tensor_constant%d", length(graph->constants));
    FxConstant constant = {arena_text(graph->arena, name), NULL};
    push(graph->arena, graph->constants, constant);
    Tensor *alias = tensor_alias(tensor);
    if (!alias) {
        truncate_to(graph->constants, length(graph->constants) - 1);
        return NULL;
    }
    graph->constants[length(graph->constants) - 1].tensor = cb_keep(alias);
    return constant.name;
}

Tensor *fx_constant(const FxGraph *graph, const char *name) {
    for (int i = 0; i < length(graph->constants); i++)
        if (strcmp(graph->constants[i].name, name) == 0) return graph->constants[i].tensor;
    return NULL;
}

cb_status fx_fail(cb_status status, const FxNode *node, const char *format, ...) {
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return fail(status, "node %%%s (%s %s): %s", node->name, cb_opcode_name(node->opcode),
                node->target, message);
}
