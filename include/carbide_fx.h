/* FX graphs: a module or function as a list of nodes that prints, changes, runs and becomes C
 * again. Included by carbide.h; include that.
 *
 *   cb_graph *graph = cb_symbolic_trace(module);      relu(linear(x) + x)
 *   cb_graph_print(graph);
 *
 *  graph():
 *      %x : [num_users=2] = placeholder[target=x]
 *      %linear : [num_users=1] = call_module[target=linear](args = (%x,), kwargs = {})
 *      %add : [num_users=1] = call_function[target=operator.add](args = (%linear, %x), kwargs = {})
 *      %relu : [num_users=1] = call_method[target=relu](args = (%add,), kwargs = {})
 *      return relu
 *
 * The opcodes, the names and the text are those of torch.fx. Functions and methods are the ops of
 * the op table by their PyTorch names (operator.add, torch.relu, torch.nn.functional.gelu, relu).
 * A graph refers to its module and does not own it. Nodes belong to their graph and live until
 * cb_graph_free, erased ones too. A graph that nobody changes may be printed and run by several
 * threads. Texts (char *) are freed with cb_free_text. */
#ifndef CARBIDE_FX_H
#define CARBIDE_FX_H

typedef enum cb_opcode {
    CB_PLACEHOLDER,   /* an input; target is its name, args its default, if it has one */
    CB_GET_ATTR,      /* a parameter or buffer; target is its path */
    CB_CALL_FUNCTION, /* target is a function's qualified name */
    CB_CALL_METHOD,   /* target is a method of args[0] */
    CB_CALL_MODULE,   /* target is a module's path */
    CB_OUTPUT,        /* args[0] is what the graph returns */
    CB_OPCODE_COUNT
} cb_opcode;

/* ---- arguments: values that stand in a node's args and kwargs ------------------------------- */

typedef enum cb_arg_kind {
    CB_ARG_NONE, CB_ARG_NODE, CB_ARG_INT, CB_ARG_FLOAT, CB_ARG_BOOL, CB_ARG_STRING, CB_ARG_DTYPE,
    CB_ARG_LIST, CB_ARG_TUPLE, CB_ARG_DICT, CB_ARG_SLICE, CB_ARG_ELLIPSIS
} cb_arg_kind;

/* Graphs copy the arguments that they are given, with everything in them. */
typedef struct cb_arg {
    cb_arg_kind kind;
    int count;                  /* list, tuple, dict: items; slice: 3 (start, stop, step) */
    int64_t i;                  /* int, bool, dtype */
    double f;                   /* float */
    cb_node *node;
    const char *text;           /* string */
    const struct cb_arg *items;
    const char *const *keys;    /* dict */
} cb_arg;

static inline cb_arg cb_arg_none(void) {
    cb_arg a = {CB_ARG_NONE, 0, 0, 0.0, CB_NULL, CB_NULL, CB_NULL, CB_NULL};
    return a;
}
static inline cb_arg cb_arg_node(cb_node *node) {
    cb_arg a = {CB_ARG_NODE, 0, 0, 0.0, node, CB_NULL, CB_NULL, CB_NULL};
    return a;
}
static inline cb_arg cb_arg_int(int64_t i) {
    cb_arg a = {CB_ARG_INT, 0, i, 0.0, CB_NULL, CB_NULL, CB_NULL, CB_NULL};
    return a;
}
static inline cb_arg cb_arg_float(double f) {
    cb_arg a = {CB_ARG_FLOAT, 0, 0, f, CB_NULL, CB_NULL, CB_NULL, CB_NULL};
    return a;
}
static inline cb_arg cb_arg_bool(bool b) {
    cb_arg a = {CB_ARG_BOOL, 0, b, 0.0, CB_NULL, CB_NULL, CB_NULL, CB_NULL};
    return a;
}
static inline cb_arg cb_arg_dtype(cb_dtype dtype) {
    cb_arg a = {CB_ARG_DTYPE, 0, dtype, 0.0, CB_NULL, CB_NULL, CB_NULL, CB_NULL};
    return a;
}
static inline cb_arg cb_arg_string(const char *text) {
    cb_arg a = {CB_ARG_STRING, 0, 0, 0.0, CB_NULL, text, CB_NULL, CB_NULL};
    return a;
}
static inline cb_arg cb_arg_list(const cb_arg *items, int count) {
    cb_arg a = {CB_ARG_LIST, count, 0, 0.0, CB_NULL, CB_NULL, items, CB_NULL};
    return a;
}
static inline cb_arg cb_arg_tuple(const cb_arg *items, int count) {
    cb_arg a = {CB_ARG_TUPLE, count, 0, 0.0, CB_NULL, CB_NULL, items, CB_NULL};
    return a;
}

/* ---- making graphs -------------------------------------------------------------------------- */

/* Records the module's forward with stand-ins for its inputs (named by cb_module_inputs), leaf
 * modules as single nodes, parameters as get_attr nodes, numbers as they are. Asking a stand-in for
 * its sizes or its value is an error; with examples, forward also runs eagerly on the side, so
 * sizes are known while tracing and nodes carry dtype and shape. NULL with an error when forward
 * fails. */
CB_API cb_graph *cb_symbolic_trace(cb_module *module);
CB_API cb_graph *cb_symbolic_trace_with(cb_module *module, cb_tensor *const *examples, int count);
/* The same for a function. names: of the inputs, "x, y"; NULL: x, y, z, input_3... Tensors from
 * outside become constants of the graph (_tensor_constant0). */
CB_API cb_graph *cb_symbolic_trace_function(cb_function_n *function, void *user, int input_count,
                                            const char *names);
CB_API cb_graph *cb_symbolic_trace_function_with(cb_function_n *function, void *user,
                                                 const char *names, cb_tensor *const *examples,
                                                 int count);
CB_API cb_graph *cb_graph_new(cb_module *module); /* empty; module may be NULL */
/* Reads the text that cb_graph_text writes. NULL with an error that names the line. */
CB_API cb_graph *cb_graph_parse(const char *text, cb_module *module);
CB_API cb_graph *cb_graph_copy(const cb_graph *graph);
CB_API void cb_graph_free(cb_graph *graph);
CB_API cb_module *cb_graph_module(const cb_graph *graph);

/* ---- text ----------------------------------------------------------------------------------- */

CB_API void cb_graph_print(const cb_graph *graph); /* cb_graph_text and a newline, to stdout */
CB_API char *cb_graph_text(const cb_graph *graph);    /* print(graph) of torch.fx */
CB_API char *cb_graph_tabular(const cb_graph *graph); /* print_tabular() */
/* print_readable(), with dtypes and shapes where they are known. flags: a sum of these. */
enum {
    CB_READABLE_STRIDE = 1, /* strides after the shape: f32[4, 4][4, 1] */
    CB_READABLE_DEVICE = 2, /* f32[4, 4]cpu */
    CB_READABLE_SITES = 4   /* a comment with file and line before the nodes of each source line */
};
CB_API char *cb_graph_readable(const cb_graph *graph, int flags);
CB_API char *cb_graph_dot(const cb_graph *graph); /* for Graphviz */
/* A C function over carbide.h, a cb_function_n named as given, that computes what the graph
 * computes; its user pointer is the graph's module. NULL with an error that names the node which
 * has no C form. */
CB_API char *cb_graph_code(const cb_graph *graph, const char *function_name);

/* ---- running -------------------------------------------------------------------------------- */

/* Executes node by node through the public ops: eagerly, or recorded when called inside a compiled
 * function. Fills outputs (a returned tuple or dict gives several), returns how many, or a negative
 * status. */
CB_API int cb_graph_run(const cb_graph *graph, cb_tensor *const *inputs, int input_count,
                        cb_tensor **outputs, int capacity);
/* Runs the graph once and notes the dtype and shape of every node: ShapeProp of torch.fx. */
CB_API cb_status cb_graph_propagate_shapes(cb_graph *graph, cb_tensor *const *inputs, int count);

/* ---- walking -------------------------------------------------------------------------------- */

CB_API cb_node *cb_graph_first(const cb_graph *graph); /* NULL when empty */
CB_API cb_node *cb_graph_last(const cb_graph *graph);
CB_API cb_node *cb_node_next(const cb_node *node); /* NULL after the last */
CB_API cb_node *cb_node_previous(const cb_node *node);
CB_API cb_node *cb_graph_find(const cb_graph *graph, const char *name); /* NULL: no such node */
CB_API int cb_graph_node_count(const cb_graph *graph);

CB_API cb_opcode cb_node_opcode(const cb_node *node);
CB_API const char *cb_opcode_name(cb_opcode opcode); /* "call_function" */
CB_API const char *cb_node_name(const cb_node *node);
CB_API const char *cb_node_target(const cb_node *node);
CB_API int cb_node_arg_count(const cb_node *node);
CB_API cb_arg cb_node_arg(const cb_node *node, int index); /* CB_ARG_NONE outside of the list */
CB_API int cb_node_kwarg_count(const cb_node *node);
CB_API cb_arg cb_node_kwarg_at(const cb_node *node, int index, const char **key);
CB_API cb_arg cb_node_kwarg(const cb_node *node, const char *key); /* CB_ARG_NONE when absent */
CB_API int cb_node_input_count(const cb_node *node); /* distinct nodes in args and kwargs */
CB_API cb_node *cb_node_input(const cb_node *node, int index);
CB_API int cb_node_user_count(const cb_node *node);  /* distinct nodes that use this one */
CB_API cb_node *cb_node_user(const cb_node *node, int index);
/* dtype and shape; false when they are not known (see cb_symbolic_trace_with). */
CB_API bool cb_node_meta(const cb_node *node, cb_dtype *dtype, cb_dim_list *sizes);

/* where the meta is known */
CB_API bool cb_node_strides(const cb_node *node, cb_dim_list *strides);

/* ---- editing --------------------------------------------------------------------------------
 * New nodes get a free name made from their target. Arguments must be nodes of the same graph. */

/* At the end of the graph, before its output node if it has one. */
CB_API cb_node *cb_graph_placeholder(cb_graph *graph, const char *name); /* after the other ones */
CB_API cb_node *cb_graph_get_attr(cb_graph *graph, const char *path);
CB_API cb_node *cb_graph_call_function(cb_graph *graph, const char *target, const cb_arg *args,
                                       int count);
CB_API cb_node *cb_graph_call_method(cb_graph *graph, const char *target, const cb_arg *args,
                                     int count);
CB_API cb_node *cb_graph_call_module(cb_graph *graph, const char *path, const cb_arg *args,
                                     int count);
/* Makes the output node, or gives it a new value. */
CB_API cb_node *cb_graph_output(cb_graph *graph, cb_arg value);
CB_API cb_node *cb_graph_insert_before(cb_graph *graph, cb_node *where, cb_opcode opcode,
                                       const char *target, const cb_arg *args, int count);
CB_API cb_node *cb_graph_insert_after(cb_graph *graph, cb_node *where, cb_opcode opcode,
                                      const char *target, const cb_arg *args, int count);

CB_API cb_status cb_node_set_arg(cb_node *node, int index, cb_arg value); /* at count: appends */
CB_API cb_status cb_node_set_kwarg(cb_node *node, const char *key, cb_arg value);
CB_API cb_status cb_node_set_target(cb_node *node, const char *target); /* the name stays */
/* Every user of node uses by instead (by itself excepted). Returns how many nodes changed. */
CB_API int cb_node_replace_all_uses(cb_node *node, cb_node *by);
CB_API cb_status cb_graph_erase(cb_graph *graph, cb_node *node); /* refused while it has users */
/* Removes nodes that nobody uses; inputs, in-place methods and random draws stay. Returns how
 * many. */
CB_API int cb_graph_dead_code(cb_graph *graph);

/* Replaces every place that looks like pattern by replacement. Both return one value; their
 * placeholders, taken in order, stand for any value. A place whose inner nodes are used elsewhere
 * is left alone, and so is one with a write between its nodes. Returns the number of places, or a
 * negative status. */
CB_API int cb_graph_replace_pattern(cb_graph *graph, const cb_graph *pattern,
                                    const cb_graph *replacement);

/* CB_OK, or an error that names the first broken node: an opcode that does not exist, a node of
 * another graph, a use before its definition, a name defined twice, a target that names nothing. */
CB_API cb_status cb_graph_lint(const cb_graph *graph);

#endif
