/* The public views of nodes, and changes to a graph.
 *
 *     cb_node *square = cb_graph_insert_after(graph, x, CB_CALL_FUNCTION, "operator.mul", args, 2);
 *     cb_node_replace_all_uses(x, square);    (square itself keeps using x)
 *     cb_graph_erase(graph, dead);            refused while dead has users
 *
 * Arguments must be nodes of the same graph: a foreign one is refused here, by name. */
#include "fx/fx.h"
#include <string.h>

/* ---- accessors ------------------------------------------------------------------------------ */

cb_module *cb_graph_module(const cb_graph *graph) { return graph ? graph->root : NULL; }
cb_node *cb_graph_first(const cb_graph *graph) { return graph ? graph->first : NULL; }
cb_node *cb_graph_last(const cb_graph *graph) { return graph ? graph->last : NULL; }
int cb_graph_node_count(const cb_graph *graph) { return graph ? graph->count : 0; }
cb_node *cb_node_next(const cb_node *node) { return node ? node->next : NULL; }
cb_node *cb_node_previous(const cb_node *node) { return node ? node->previous : NULL; }
cb_opcode cb_node_opcode(const cb_node *node) { return node ? node->opcode : CB_OPCODE_COUNT; }
const char *cb_node_name(const cb_node *node) { return node ? node->name : NULL; }
const char *cb_node_target(const cb_node *node) { return node ? node->target : NULL; }
int cb_node_arg_count(const cb_node *node) { return node ? length(node->args) : 0; }
int cb_node_kwarg_count(const cb_node *node) { return node ? length(node->kwargs) : 0; }
int cb_node_input_count(const cb_node *node) { return node ? length(node->inputs) : 0; }
int cb_node_user_count(const cb_node *node) { return node ? length(node->users) : 0; }

cb_node *cb_graph_find(const cb_graph *graph, const char *name) {
    for (FxNode *node = graph && name ? graph->first : NULL; node; node = node->next)
        if (strcmp(node->name, name) == 0) return node;
    return NULL;
}

cb_arg cb_node_arg(const cb_node *node, int index) {
    bool inside = node && index >= 0 && index < length(node->args);
    return inside ? node->args[index] : cb_arg_none();
}

cb_arg cb_node_kwarg_at(const cb_node *node, int index, const char **key) {
    bool inside = node && index >= 0 && index < length(node->kwargs);
    if (key) *key = inside ? node->kwargs[index].key : NULL;
    return inside ? node->kwargs[index].value : cb_arg_none();
}

cb_arg cb_node_kwarg(const cb_node *node, const char *key) {
    for (int i = 0; node && key && i < length(node->kwargs); i++)
        if (strcmp(node->kwargs[i].key, key) == 0) return node->kwargs[i].value;
    return cb_arg_none();
}

cb_node *cb_node_input(const cb_node *node, int index) {
    return node && index >= 0 && index < length(node->inputs) ? node->inputs[index] : NULL;
}

cb_node *cb_node_user(const cb_node *node, int index) {
    return node && index >= 0 && index < length(node->users) ? node->users[index] : NULL;
}

bool cb_node_meta(const cb_node *node, cb_dtype *dtype, cb_dim_list *sizes) {
    if (!node || !node->has_meta) return false;
    if (dtype) *dtype = node->meta.dtype;
    if (sizes) {
        *sizes = (cb_dim_list){.count = node->meta.rank};
        for (int i = 0; i < node->meta.rank; i++) sizes->at[i] = node->meta.size[i];
    }
    return true;
}

bool cb_node_strides(const cb_node *node, cb_dim_list *strides) {
    if (!cb_node_meta(node, NULL, strides)) return false;
    for (int i = 0; strides && i < strides->count; i++) strides->at[i] = node->stride[i];
    return true;
}

/* ---- new nodes ------------------------------------------------------------------------------ */

cb_graph *cb_graph_new(cb_module *module) {
    if (module && !module_lives(module, "cb_graph_new: the module")) return NULL;
    return fx_graph_new(module);
}

/* The first foreign node in a list of arguments is named. */
static bool args_belong(const FxGraph *graph, const char *target, const cb_arg *args, int count) {
    for (int i = 0; i < count; i++) {
        if (fx_arg_belongs(graph, &args[i])) continue;
        const FxNode *node = args[i].kind == CB_ARG_NODE ? args[i].node : NULL;
        fail(CB_ERR_GRAPH, "%s: argument %d (%%%s) is no node of this graph", target, i,
             node ? node->name : "?");
        return false;
    }
    return true;
}

static FxNode *insert(FxGraph *graph, FxNode *where, cb_opcode opcode, const char *target,
                      const cb_arg *args, int count) {
    if (!graph || !target || !*target || count < 0 || (count && !args)) {
        fail(CB_ERR_ARGUMENT, "FX graph: a new node needs a graph, a target and its arguments");
        return NULL;
    }
    if (!fx_lives(graph, "FX graph: the graph of a new node")) return NULL;
    if (opcode < 0 || opcode >= CB_OPCODE_COUNT) {
        fail(CB_ERR_ARGUMENT, "%s: unknown opcode %d", target, (int)opcode);
        return NULL;
    }
    if (opcode == CB_OUTPUT && fx_output_node(graph)) {
        fail(CB_ERR_GRAPH, "FX graph: there is an output node already");
        return NULL;
    }
    if (!args_belong(graph, target, args, count)) return NULL;
    FX_GUARD(graph, NULL);
    return fx_create(graph, where, opcode, target, args, count);
}

static bool inside(const FxGraph *graph, const FxNode *node) {
    if (graph && !fx_lives(graph, "FX graph: the graph of a node")) return false;
    if (graph && node && node->graph == graph) return true;
    fail(CB_ERR_GRAPH, "node %%%s is not in this graph", node ? node->name : "?");
    return false;
}

cb_node *cb_graph_insert_before(cb_graph *graph, cb_node *where, cb_opcode opcode,
                                const char *target, const cb_arg *args, int count) {
    if (!inside(graph, where)) return NULL;
    return insert(graph, where, opcode, target, args, count);
}

cb_node *cb_graph_insert_after(cb_graph *graph, cb_node *where, cb_opcode opcode,
                               const char *target, const cb_arg *args, int count) {
    if (!inside(graph, where)) return NULL;
    return insert(graph, where->next, opcode, target, args, count);
}

cb_node *cb_graph_placeholder(cb_graph *graph, const char *name) {
    FxNode *where = graph ? graph->first : NULL;
    while (where && where->opcode == CB_PLACEHOLDER) where = where->next;
    return insert(graph, where, CB_PLACEHOLDER, name, NULL, 0);
}

static FxNode *append(FxGraph *graph, cb_opcode opcode, const char *target, const cb_arg *args,
                      int count) {
    return insert(graph, graph ? fx_output_node(graph) : NULL, opcode, target, args, count);
}

cb_node *cb_graph_get_attr(cb_graph *graph, const char *path) {
    return append(graph, CB_GET_ATTR, path, NULL, 0);
}

cb_node *cb_graph_call_function(cb_graph *graph, const char *target, const cb_arg *args,
                                int count) {
    return append(graph, CB_CALL_FUNCTION, target, args, count);
}

cb_node *cb_graph_call_method(cb_graph *graph, const char *target, const cb_arg *args, int count) {
    return append(graph, CB_CALL_METHOD, target, args, count);
}

cb_node *cb_graph_call_module(cb_graph *graph, const char *path, const cb_arg *args, int count) {
    return append(graph, CB_CALL_MODULE, path, args, count);
}

cb_node *cb_graph_output(cb_graph *graph, cb_arg value) {
    FxNode *output = graph ? fx_output_node(graph) : NULL;
    if (!output) return insert(graph, NULL, CB_OUTPUT, "output", &value, 1);
    return cb_node_set_arg(output, 0, value) == CB_OK ? output : NULL;
}

/* ---- changes -------------------------------------------------------------------------------- */

static bool editable(const FxNode *node) {
    if (node && node->graph) return true;
    fail(CB_ERR_GRAPH, "node %%%s is in no graph", node ? node->name : "?");
    return false;
}

cb_status cb_node_set_arg(cb_node *node, int index, cb_arg value) {
    if (!editable(node)) return CB_ERR_GRAPH;
    FxGraph *graph = node->graph;
    if (index < 0 || index > length(node->args))
        return fx_fail(CB_ERR_INDEX, node, "there is no argument %d", index);
    if (!args_belong(graph, node->target, &value, 1)) return CB_ERR_GRAPH;
    FX_GUARD(graph, CB_ERR_MEMORY);
    cb_arg copy = fx_copy_arg(graph, &value, NULL, NULL);
    if (index == length(node->args))
        push(graph->arena, node->args, copy);
    else
        node->args[index] = copy;
    fx_refresh(node);
    return CB_OK;
}

cb_status cb_node_set_kwarg(cb_node *node, const char *key, cb_arg value) {
    if (!editable(node)) return CB_ERR_GRAPH;
    FxGraph *graph = node->graph;
    if (!key || !*key) return fx_fail(CB_ERR_ARGUMENT, node, "a keyword needs a name");
    if (!args_belong(graph, node->target, &value, 1)) return CB_ERR_GRAPH;
    FX_GUARD(graph, CB_ERR_MEMORY);
    int at = 0;
    while (at < length(node->kwargs) && strcmp(node->kwargs[at].key, key) != 0) at++;
    if (at == length(node->kwargs))
        fx_add_kwarg(node, key, value);
    else
        node->kwargs[at].value = fx_copy_arg(graph, &value, NULL, NULL);
    fx_refresh(node);
    return CB_OK;
}

cb_status cb_node_set_target(cb_node *node, const char *target) {
    if (!editable(node)) return CB_ERR_GRAPH;
    if (!target || !*target) return fx_fail(CB_ERR_ARGUMENT, node, "a node needs a target");
    FX_GUARD(node->graph, CB_ERR_MEMORY);
    node->target = arena_text(node->graph->arena, target);
    node->has_meta = false;
    fx_resolve(node);
    return CB_OK;
}

static int replace_all(FxGraph *graph, FxNode *node, FxNode *by) {
    FX_GUARD(graph, CB_ERR_MEMORY);
    FxNode **users = NULL;
    for (int i = 0; i < length(node->users); i++)
        if (node->users[i] != by) push(graph->arena, users, node->users[i]);
    for (int i = 0; i < length(users); i++) fx_replace_uses(users[i], node, cb_arg_node(by));
    return length(users);
}

int cb_node_replace_all_uses(cb_node *node, cb_node *by) {
    if (!editable(node) || !inside(node->graph, by)) return CB_ERR_GRAPH;
    return node == by ? 0 : replace_all(node->graph, node, by);
}

cb_status cb_graph_erase(cb_graph *graph, cb_node *node) {
    if (!inside(graph, node)) return CB_ERR_GRAPH;
    if (length(node->users))
        return fx_fail(CB_ERR_GRAPH, node, "it still has %d users, the first is %%%s",
                       length(node->users), node->users[0]->name);
    fx_unlink(node);
    return CB_OK;
}

static bool is_dead(const FxNode *node) {
    if (length(node->users) || node->opcode == CB_PLACEHOLDER || node->opcode == CB_OUTPUT)
        return false;
    return !node->inplace && !fx_random(node) && !fx_opaque(node);
}

int cb_graph_dead_code(cb_graph *graph) {
    if (!graph) return 0;
    if (!fx_lives(graph, "cb_graph_dead_code: the graph")) return CB_ERR_ARGUMENT;
    int removed = 0;
    for (FxNode *node = graph->last, *previous; node; node = previous) {
        previous = node->previous;
        if (!is_dead(node)) continue;
        fx_unlink(node);
        removed++;
    }
    return removed;
}

/* ---- copies --------------------------------------------------------------------------------- */

static cb_arg by_id(void *user, FxNode *node) {
    FxNode **copies = user;
    return cb_arg_node(copies[node->id]);
}

static bool copy_into(FxGraph *copy, const FxGraph *graph) {
    FX_GUARD(copy, false);
    FxNode **copies = arena_new_array(copy->arena, FxNode *, graph->next_id + 1);
    for (int i = 0; i < length(graph->constants); i++)
        if (!fx_constant_add(copy, graph->constants[i].tensor)) return false;
    for (const FxNode *node = graph->first; node; node = node->next) /* uses may come first */
        copies[node->id] = fx_node_new(copy, node->opcode, node->target, node->name);
    for (const FxNode *node = graph->first; node; node = node->next) {
        FxNode *made = copies[node->id];
        for (int i = 0; i < length(node->args); i++)
            push(copy->arena, made->args, fx_copy_arg(copy, &node->args[i], by_id, copies));
        for (int i = 0; i < length(node->kwargs); i++)
            fx_add_kwarg(made, node->kwargs[i].key,
                         fx_copy_arg(copy, &node->kwargs[i].value, by_id, copies));
        made->type = node->type ? arena_text(copy->arena, node->type) : NULL;
        made->has_meta = node->has_meta;
        made->meta = node->meta;
        made->site = node->site;
        memcpy(made->stride, node->stride, sizeof made->stride);
        fx_link_before(copy, made, NULL);
        fx_refresh(made);
    }
    return true;
}

cb_graph *cb_graph_copy(const cb_graph *graph) {
    if (!fx_lives(graph, "cb_graph_copy: the graph")) return NULL;
    FxGraph *copy = fx_graph_new(graph->root);
    if (!copy || copy_into(copy, graph)) return copy;
    cb_graph_free(copy);
    return NULL;
}
