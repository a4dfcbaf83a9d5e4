/* A recorded graph as an FX graph, for backends of the user's.
 *
 *     graph(arg0: f32[2], arg1: f32[2]) {      %arg0, %linear_bias = placeholder
 *       mul = mul(arg0, 2.0)                   %mul = call_function[operator.mul](%arg0, 2.0)
 *       return mul
 *       arg1 := mul                            return (mul, mul)
 *     }
 *
 * In: the graph as it was recorded: ops as they were called, converted to common dtypes, writes
 * told as new values. Out: the same ops in the order of their calls, so that draws and effects are
 * as in eager. Node ids grow from inputs to users, and from call to call. */
#include "capture/backend.h"

#include "graph/node.h"

#include <string.h>

typedef struct Writer {
    FxGraph *fx;
    Graph *graph;
    bool *needed;   /* by node id */
    bool *in_parts; /* by node id: a composite that stands as what it expands to */
    FxNode **made;  /* by node id */
} Writer;

/* ---- what is needed -------------------------------------------------------------------------- */

/* Draws that nothing reads move the next ones; indices are looked at where nothing reads what they
 * lead to. Of a composite, its own node is that of the call. */
static bool happens(const Node *node) {
    if (node->origin.call) return false;
    return op_has_index(node->op) || (node->attrs && op_draws(node->op, node->attrs));
}

static void need_inputs(Writer *writer) {
    for (int id = length(writer->graph->node) - 1; id >= 0; id--) {
        const Node *node = writer->graph->node[id];
        bool *needed = &writer->needed[id];
        *needed = !writer->in_parts[id] && (*needed || happens(node));
        for (int i = 0; *needed && i < node->input_count; i++)
            if (node->input[i] && !node_has_literal(node, i))
                writer->needed[node->input[i]->id] = true;
    }
}

/* A gradient reads the draw of its composite: there is one draw for both then. */
static bool find_shared_draws(Writer *writer) {
    Graph *graph = writer->graph;
    bool found = false;
    for (int id = 0; id < length(graph->node); id++) {
        const Node *node = graph->node[id];
        if (!writer->needed[id] || !node->expansion || !op_draws(node->op, node->attrs)) continue;
        for (int k = 0; k < length(graph->node); k++) {
            const Node *other = graph->node[k];
            if (k == id || !writer->needed[k] || !other->attrs) continue;
            if (!op_draws(other->op, other->attrs) || node_draw(other) != node_draw(node)) continue;
            writer->in_parts[id] = found = true;
            writer->needed[node->expansion->id] = true;
        }
    }
    return found;
}

static void find_needed(Writer *writer) {
    Graph *graph = writer->graph;
    for (int i = 0; i < length(graph->output); i++) writer->needed[graph->output[i]->id] = true;
    for (int i = 0; i < length(graph->mutation); i++)
        writer->needed[graph->mutation[i].value->id] = true;
    need_inputs(writer);
    if (find_shared_draws(writer)) need_inputs(writer);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void note_meta(FxNode *made, const Meta *meta, const int64_t *stride) {
    made->meta = *meta;
    made->has_meta = true;
    if (stride)
        memcpy(made->stride, stride, sizeof made->stride);
    else
        contiguous_strides(meta->rank, meta->size, made->stride);
}

/* torch.full((), value, dtype=dtype) */
static FxNode *write_constant(Writer *writer, const Node *node) {
    Attrs attrs = attrs_default(OP_full);
    attr_set_dims(&attrs, ATTR_full_sizes, (cb_dim_list){0, {0}});
    attr_set_number(&attrs, ATTR_full_value, node_literal(node));
    attrs.word[ATTR_full_dtype] = node->dtype;
    return fx_record(writer->fx, OP_full, NULL, 0, &attrs);
}

static FxNode *made_of(const Writer *writer, const Node *node) {
    return writer->made[writer->in_parts[node->id] ? node->expansion->id : node->id];
}

/* Running statistics, which the call would move: their new values are among the outputs. */
static bool is_moved(const Node *node, int i) {
    return op_moves(node->op) && (i == 1 || i == 2) && node->attrs->word[ATTR_batch_norm_training];
}

static cb_arg operand_of(const Writer *writer, const Node *node, int i) {
    const Node *input = node->input[i];
    if (!input || is_moved(node, i)) return cb_arg_none();
    if (!node_has_literal(node, i)) return cb_arg_node(made_of(writer, input));
    cb_operand number = node_literal(input);
    if (number.kind == CB_OPERAND_FLOAT) return cb_arg_float(number.f);
    return number.kind == CB_OPERAND_INT ? cb_arg_int(number.i) : cb_arg_bool(number.i != 0);
}

static FxNode *write_op(Writer *writer, const Node *node) {
    cb_arg operand[OP_MAX_INPUTS];
    for (int i = 0; i < node->input_count; i++) operand[i] = operand_of(writer, node, i);
    return fx_record(writer->fx, node->op, operand, node->input_count, node->attrs);
}

static void write_node(Writer *writer, const Node *node) {
    if (node->op == OP_input || !writer->needed[node->id]) return;
    if (node->op == OP_apart) { /* of gradients, which are there by now */
        writer->made[node->id] = made_of(writer, node->input[0]);
        return;
    }
    FxNode *made = node->op == OP_constant ? write_constant(writer, node) : write_op(writer, node);
    Meta meta = node_meta(node);
    note_meta(made, &meta, NULL);
    made->site = (Site){.file = node->origin.site.file, .line = node->origin.site.line};
    writer->made[node->id] = made;
}

/* ---- inputs and outputs ---------------------------------------------------------------------- */

/* The value behind the k-th input, NO_VALUE: an argument. */
static int value_of(const Entry *entry, int k) {
    return k < entry->input_count ? k : entry->captured[k - entry->input_count];
}

/* numbers: arguments before this one. */
static const char *input_name(const Writer *writer, const Entry *entry, int k, int numbers) {
    Arena *arena = writer->fx->arena;
    int v = value_of(entry, k);
    if (v == NO_VALUE) return arena_format(arena, "number%d", numbers);
    if (k < entry->input_count) return arena_format(arena, "arg%d", k);
    const char *path = entry->trace->value[v].path;
    return path ? path : arena_format(arena, "captured%d", k - entry->input_count - numbers);
}

static void write_inputs(Writer *writer, const Entry *entry) {
    for (int k = 0, numbers = 0; k < length(writer->graph->input); k++) {
        const Node *node = writer->graph->input[k];
        int v = value_of(entry, k);
        const char *name = input_name(writer, entry, k, numbers);
        FxNode *made = fx_create(writer->fx, NULL, CB_PLACEHOLDER, name, NULL, 0);
        made->target = made->name;
        Meta meta = node_meta(node);
        if (v != NO_VALUE) meta.device = entry->trace->value[v].meta.device;
        note_meta(made, &meta, v == NO_VALUE ? NULL : entry->trace->value[v].stride);
        writer->made[node->id] = made;
        numbers += v == NO_VALUE;
    }
}

static void write_outputs(Writer *writer) {
    const Graph *graph = writer->graph;
    int outputs = length(graph->output), count = outputs + length(graph->mutation);
    cb_arg *value = arena_new_array(writer->fx->arena, cb_arg, count + 1);
    for (int i = 0; i < count; i++) {
        const Node *node = i < outputs ? graph->output[i] : graph->mutation[i - outputs].value;
        value[i] = cb_arg_node(made_of(writer, node));
    }
    cb_arg all = cb_arg_tuple(value, count);
    fx_create(writer->fx, NULL, CB_OUTPUT, "output", &all, 1);
}

static bool write(FxGraph *fx, const Entry *entry, Graph *graph) {
    FX_GUARD(fx, false);
    int count = length(graph->node);
    Writer writer = {.fx = fx, .graph = graph};
    writer.needed = arena_new_array(fx->arena, bool, count + 1);
    writer.in_parts = arena_new_array(fx->arena, bool, count + 1);
    writer.made = arena_new_array(fx->arena, FxNode *, count + 1);
    find_needed(&writer);
    write_inputs(&writer, entry);
    for (int id = 0; id < count; id++) write_node(&writer, graph->node[id]);
    write_outputs(&writer);
    return true;
}

FxGraph *backend_graph(const Entry *entry, Graph *graph) {
    FxGraph *fx = fx_graph_new(NULL);
    if (!fx || write(fx, entry, graph)) return fx;
    cb_graph_free(fx);
    return NULL;
}
