/* What backends of the user's hand graphs on to: Carbide's own compiler, and the interpreter.
 *
 * In: an FX graph of ops, as backend_graph writes it or the user has changed it. Out: code, whose
 * state is an executable with what it expects of its inputs, or the graph itself. */
#include "capture/backend.h"

#include "base/memory.h"
#include "graph/node.h"
#include "run/compile.h"
#include <string.h>

typedef struct Inner {
    Executable *executable;
    int input_count, output_count;
    Guard guard[];
} Inner;

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct GraphReader {
    Graph *graph;
    Node **made; /* by id of the FX node */
} GraphReader;

static bool read_placeholder(const GraphReader *reader, const FxNode *node, Guard *guard) {
    if (!node->has_meta) {
        fx_fail(CB_ERR_GRAPH, node, "its dtype and sizes are not known");
        return false;
    }
    const Meta *meta = &node->meta;
    *guard = (Guard){.dtype = meta->dtype, .rank = meta->rank, .device = meta->device};
    memcpy(guard->size, meta->size, sizeof guard->size);
    memcpy(guard->stride, node->stride, sizeof guard->stride);
    guard->contiguous = strides_contiguous(meta->rank, meta->size, node->stride);
    reader->made[node->id] = graph_input(reader->graph, meta);
    if (!device_is_host(meta->device)) reader->graph->device = meta->device;
    return true;
}

static Node *read_list(const GraphReader *reader, const FxCall *call) {
    const cb_arg *list = call->list;
    Node *joined = reader->made[list->items[0].node->id];
    cb_dtype dtype = joined->dtype; /* of all: pairs may promote to less on the way */
    for (int i = 1; i < list->count; i++)
        dtype = cb_promote(dtype, reader->made[list->items[i].node->id]->dtype);
    joined = node_convert(reader->graph, joined, dtype);
    for (int i = 1; i < list->count && joined; i++) {
        Node *pair[] = {joined, reader->made[list->items[i].node->id]};
        joined = graph_op(reader->graph, OP_concat, pair, 2, &call->attrs, NULL);
    }
    return joined;
}

static Node *read_index(const GraphReader *reader, const FxCall *call) {
    Node *x = reader->made[call->operand[0].node->id];
    for (int i = 0; i < call->step_count && x; i++) {
        const FxIndex *step = &call->step[i];
        Attrs attrs = attrs_default(step->op);
        if (step->op == OP_select) {
            attrs.word[ATTR_select_dim] = step->dim;
            attrs.word[ATTR_select_index] = step->start;
        } else if (step->op == OP_unsqueeze) {
            attrs.word[ATTR_unsqueeze_dim] = step->dim;
        } else {
            attrs.word[ATTR_slice_dim] = step->dim;
            attrs.word[ATTR_slice_start] = step->start;
            attrs.word[ATTR_slice_end] = step->end;
            attrs.word[ATTR_slice_step] = step->step;
        }
        x = graph_op(reader->graph, step->op, &x, 1, &attrs, NULL);
    }
    return x;
}

static Node *read_operands(const GraphReader *reader, const FxCall *call) {
    Node *input[OP_MAX_PARAMS];
    bool number[OP_MAX_PARAMS];
    for (int i = 0; i < call->operand_count; i++) {
        const cb_arg *arg = &call->operand[i];
        number[i] = fx_is_number(arg);
        input[i] = arg->kind == CB_ARG_NODE ? reader->made[arg->node->id] : NULL;
        if (!number[i]) continue;
        cb_operand operand = fx_operand(arg);
        input[i] = graph_constant(reader->graph, number_dtype(&operand), number_scalar(&operand));
    }
    return graph_op(reader->graph, call->op, input, call->operand_count, &call->attrs, number);
}

static bool read_call(const GraphReader *reader, const FxNode *node) {
    FxCall call;
    bool is_op = node->opcode == CB_CALL_FUNCTION || node->opcode == CB_CALL_METHOD;
    if (!is_op || node->inplace) {
        fx_fail(CB_ERR_GRAPH, node, "the compiler takes ops that write to nothing");
        return false;
    }
    if (!fx_bind(node, &call)) return false;
    reader->graph->origin.site = node->site;
    Node *made = call.list       ? read_list(reader, &call)
                 : call.indexing ? read_index(reader, &call)
                                 : read_operands(reader, &call);
    reader->made[node->id] = made;
    if (!made) fx_fail(CB_ERR_GRAPH, node, "it cannot be compiled"); /* unless it is said why */
    return made;
}

static bool read_output(const GraphReader *reader, const FxNode *node, const cb_arg *arg) {
    bool group = arg->kind == CB_ARG_TUPLE || arg->kind == CB_ARG_LIST;
    for (int i = 0; group && i < arg->count; i++)
        if (!read_output(reader, node, &arg->items[i])) return false;
    if (group || arg->kind == CB_ARG_NONE) return true;
    if (arg->kind == CB_ARG_NODE) {
        push(reader->graph->arena, reader->graph->output, reader->made[arg->node->id]);
        return true;
    }
    fx_fail(CB_ERR_GRAPH, node, "an output is a tensor");
    return false;
}

static bool read_nodes(const GraphReader *reader, const FxGraph *fx, Guard *guard) {
    for (const FxNode *node = fx->first; node; node = node->next) {
        bool done = node->opcode == CB_PLACEHOLDER ? read_placeholder(reader, node, guard)
                    : node->opcode == CB_OUTPUT    ? read_output(reader, node, &node->args[0])
                                                   : read_call(reader, node);
        if (!done) return false;
        guard += node->opcode == CB_PLACEHOLDER;
    }
    return true;
}

/* Strides of the inputs in the graph's arena; NULL with an error. */
static const int64_t *const *read_graph(Graph *graph, const FxGraph *fx, Inner *inner) {
    if (arena_guard(graph->arena)) {
        fail_memory(0);
        return NULL;
    }
    GraphReader reader = {graph, arena_new_array(graph->arena, Node *, fx->next_id + 1)};
    graph->ambient = ambient_of_op();
    graph->device = inner->input_count ? DEVICE_cpu : graph->ambient.device;
    if (!read_nodes(&reader, fx, inner->guard)) return NULL;
    inner->output_count = length(graph->output);
    const int64_t **stride = arena_new_array(graph->arena, const int64_t *, inner->input_count + 1);
    for (int i = 0; i < inner->input_count; i++) {
        const Guard *guard = &inner->guard[i];
        if (guard->contiguous) continue;
        int64_t *own = arena_new_array(graph->arena, int64_t, CB_MAX_RANK);
        memcpy(own, guard->stride, sizeof guard->stride);
        stride[i] = own;
    }
    return (const int64_t *const *)stride;
}

/* ---- running --------------------------------------------------------------------------------- */

static bool input_fits(const Inner *inner, Tensor *x, int i) {
    if (x && tensor_materialize(x) && guard_holds(&inner->guard[i], x, false)) return true;
    fail(CB_ERR_ARGUMENT, "backend_inner: input %d is not as its placeholder says", i);
    return false;
}

static cb_status run_inner(void *state, cb_tensor *const *inputs, int input_count,
                           cb_tensor **outputs, int output_count) {
    const Inner *inner = state;
    if (input_count != inner->input_count || output_count != inner->output_count)
        return fail(CB_ERR_ARGUMENT, "backend_inner: %d inputs and %d outputs, not %d and %d",
                    inner->input_count, inner->output_count, input_count, output_count);
    size_t bytes = sizeof(Tensor *) * (size_t)(input_count + output_count + 1);
    Tensor **input = memory_alloc(bytes);
    if (!input) return fail_memory(bytes);
    bool done = tensors_in(inputs, input_count, "backend_inner", input);
    for (int i = 0; i < input_count && done; i++) done = input_fits(inner, input[i], i);
    done = done && executable_run(inner->executable, input, input + input_count);
    if (done) tensors_out(input + input_count, output_count, outputs);
    memory_free(input);
    return done ? CB_OK : cb_error_status();
}

static void free_inner(void *state) {
    Inner *inner = state;
    executable_free(inner->executable);
    memory_free(inner);
}

static cb_status run_eager(void *state, cb_tensor *const *inputs, int input_count,
                           cb_tensor **outputs, int output_count) {
    int count = cb_graph_run(state, inputs, input_count, outputs, output_count);
    if (count == output_count) return CB_OK;
    if (count < 0) return (cb_status)count;
    return fail(CB_ERR_GRAPH, "backend_eager: %d outputs, not %d", count, output_count);
}

/* ---- the public API -------------------------------------------------------------------------- */

static bool is_given(const cb_graph *graph, const cb_backend_code *code, const char *what) {
    if (graph && code) return fx_lives(graph, what);
    fail(CB_ERR_ARGUMENT, "%s or the code is NULL", what);
    return false;
}

static Inner *inner_new(const FxGraph *fx) {
    int count = 0;
    for (const FxNode *node = fx->first; node; node = node->next)
        count += node->opcode == CB_PLACEHOLDER;
    size_t bytes = sizeof(Inner) + sizeof(Guard) * (size_t)count;
    Inner *inner = memory_zalloc(bytes);
    if (!inner) fail_memory(bytes);
    if (inner) inner->input_count = count;
    return inner;
}

static bool compile(const FxGraph *fx, Inner *inner, CompileOptions how) {
    Arena *arena = arena_new();
    Graph *graph = arena ? graph_new(arena) : NULL;
    if (!graph) fail_memory(0);
    const int64_t *const *stride = graph ? read_graph(graph, fx, inner) : NULL;
    if (stride)
        inner->executable = compile_graph(graph, stride, how);
    else
        arena_free(arena);
    if (stride && !inner->executable) fail_memory(0);
    return inner->executable;
}

cb_status cb_backend_inner(const cb_graph *graph, const char *options, cb_backend_code *code) {
    FunctionOptions parsed;
    if (!is_given(graph, code, "backend_inner: the graph")) return cb_error_status();
    if (!options_parse(options, &parsed)) return cb_error_status();
    if (backend_of(&parsed))
        return fail(CB_ERR_OPTION, "backend_inner: the backend is Carbide's own: c or vm");
    if (cb_graph_lint(graph) != CB_OK) return cb_error_status();
    Inner *inner = inner_new(graph);
    if (!inner) return cb_error_status();
    if (!compile(graph, inner, entry_compile_options(&parsed))) {
        memory_free(inner);
        return cb_error_status();
    }
    *code = (cb_backend_code){run_inner, free_inner, inner};
    return CB_OK;
}

cb_status cb_backend_eager(const cb_graph *graph, cb_backend_code *code) {
    if (!is_given(graph, code, "backend_eager: the graph")) return cb_error_status();
    *code = (cb_backend_code){run_eager, NULL, (void *)(uintptr_t)graph};
    return CB_OK;
}
