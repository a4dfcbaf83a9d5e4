/* The interpreter: a graph, node by node, through the door of every op call.
 *
 * In:  cb_graph_run(graph, {x}, 1, out, 1)
 * Out: what the traced function would return: eagerly, or recorded when a trace is active.
 * Values that nothing else can refer to are freed after their last use, so a run needs no more
 * memory than the function itself. The graph is only read: threads may run one graph at once. */
#include "base/memory.h"
#include "fx/fx.h"
#include "op_calls.h"
#include "tensor/frame.h"
#include <string.h>

typedef struct RunRequest {
    const FxGraph *graph;
    cb_tensor *const *inputs;
    int input_count;
    cb_tensor **outputs; /* NULL: no room */
    int capacity;
    bool notes; /* metas are written into the nodes, which then keep their values until the end */
} RunRequest;

typedef struct FxRun {
    Frame frame; /* first: around modules of the user's */
    ModuleFrame around;
    const FxGraph *graph;
    cb_tensor *const *inputs;
    int input_count, next_input;
    cb_tensor **outputs;
    int output_count, capacity;
    bool notes;
    cb_operand *value; /* by node id */
    int *remaining; /* uses that are still to come, by node id; only for values that may be freed */
} FxRun;

static cb_operand operand_of(const FxRun *run, const cb_arg *arg) {
    switch (arg->kind) {
    case CB_ARG_NODE:
        return run->value[arg->node->id];
    case CB_ARG_FLOAT:
        return cb_operand_float(arg->f);
    case CB_ARG_INT:
        return cb_operand_int(arg->i);
    case CB_ARG_BOOL:
        return cb_operand_bool(arg->i != 0);
    default:
        return cb_operand_tensor(NULL);
    }
}

static Tensor *tensor_of(const FxRun *run, const FxNode *user, const cb_arg *arg) {
    cb_operand operand = operand_of(run, arg);
    if (operand.kind == CB_OPERAND_TENSOR && operand.tensor) return operand.tensor;
    fx_fail(CB_ERR_GRAPH, user, "a tensor is needed here");
    return NULL;
}

static bool run_placeholder(FxRun *run, const FxNode *node) {
    int index = run->next_input++;
    cb_operand *value = &run->value[node->id];
    if (index < run->input_count && run->inputs[index]) {
        *value = cb_operand_tensor(tensor_in(run->inputs[index], "cb_graph_run"));
        return value->tensor;
    }
    if (length(node->args)) {
        *value = operand_of(run, &node->args[0]);
        return true;
    }
    fx_fail(CB_ERR_ARGUMENT, node,
            index < run->input_count ? "input %d is NULL" : "input %d is missing", index);
    return false;
}

static bool run_get_attr(FxRun *run, const FxNode *node) {
    const FxGraph *graph = run->graph;
    Tensor *tensor = fx_constant(graph, node->target);
    if (!tensor && graph->root) {
        ModuleTensor *slot = module_find_tensor(graph->root, node->target);
        tensor = slot ? slot->tensor : NULL;
    }
    if (!tensor) fx_fail(CB_ERR_GRAPH, node, "no parameter, buffer or constant of this name");
    run->value[node->id] = cb_operand_tensor(tensor);
    return tensor != NULL;
}

static Tensor *run_module(FxRun *run, const FxNode *node) {
    Module *root = run->graph->root;
    Module *module = root ? module_find_child(root, node->target) : NULL;
    int count = length(node->args);
    if (!module || count > CB_MAX_ARGS || length(node->kwargs)) {
        fx_fail(CB_ERR_GRAPH, node, module ? "modules take positional tensors" : "no such module");
        return NULL;
    }
    Tensor *inputs[count + 1];
    for (int i = 0; i < count; i++)
        if (!(inputs[i] = tensor_of(run, node, &node->args[i]))) return NULL;
    return module_forward(module, inputs, count);
}

static Tensor *run_list(FxRun *run, const FxNode *node, const FxCall *call) {
    int count = call->list->count;
    Tensor **parts = memory_alloc(sizeof *parts * (size_t)count);
    if (!parts) {
        fail_memory(sizeof *parts * (size_t)count);
        return NULL;
    }
    Tensor *result = NULL;
    int i = 0;
    while (i < count && (parts[i] = tensor_of(run, node, &call->list->items[i]))) i++;
    if (i == count) result = tensors_cat(parts, count, (int)call->attrs.word[ATTR_concat_dim]);
    memory_free(parts);
    return result;
}

static Tensor *index_once(Tensor *x, const FxIndex *step) {
    if (step->op == OP_select) return op_select(x, step->dim, step->start);
    if (step->op == OP_unsqueeze) return op_unsqueeze(x, step->dim);
    return op_slice(x, step->dim, step->start, step->end, step->step);
}

static Tensor *run_index(FxRun *run, const FxNode *node, const FxCall *call) {
    Tensor *x = tensor_of(run, node, &call->operand[0]);
    if (!x) return NULL;
    if (call->step_count == 0) return op_slice(x, 0, 0, INT64_MAX, 1);
    Tensor *result = x;
    for (int i = 0; i < call->step_count && result; i++) {
        Tensor *before = result;
        result = index_once(before, &call->step[i]);
        if (before != x) tensor_destroy(before);
    }
    return result;
}

static Tensor *run_op(FxRun *run, const FxNode *node) {
    FxCall call;
    if (!fx_bind(node, &call)) return NULL;
    if (node->site.file) cb_site(node->site.file, node->site.line);
    if (call.list) return run_list(run, node, &call);
    if (call.indexing) return run_index(run, node, &call);
    cb_operand operand[OP_MAX_PARAMS];
    for (int i = 0; i < call.operand_count; i++) operand[i] = operand_of(run, &call.operand[i]);
    if (!call.inplace) return apply_call(call.op, operand, call.operand_count, &call.attrs);
    Tensor *target = tensor_of(run, node, &node->args[0]);
    if (!target) return NULL;
    if (strcmp(node->target, "copy_") == 0) return apply_assign(target, &operand[0]);
    Tensor *value = apply(call.op, operand, call.operand_count, &call.attrs);
    if (!value) return NULL;
    Tensor *result = apply_result(target, value);
    tensor_destroy(value);
    return result;
}

static bool collect(FxRun *run, const FxNode *node, const cb_arg *arg) {
    bool group = arg->kind == CB_ARG_TUPLE || arg->kind == CB_ARG_LIST || arg->kind == CB_ARG_DICT;
    for (int i = 0; group && i < arg->count; i++)
        if (!collect(run, node, &arg->items[i])) return false;
    if (group) return true;
    Tensor *tensor = tensor_of(run, node, arg);
    if (!tensor) return false;
    if (run->output_count >= run->capacity) {
        fx_fail(CB_ERR_ARGUMENT, node, "more than the %d outputs that there is room for",
                run->capacity);
        return false;
    }
    run->outputs[run->output_count++] = tensor;
    return true;
}

static void release_inputs(FxRun *run, const FxNode *node) {
    for (int i = 0; i < length(node->inputs); i++) {
        int id = node->inputs[i]->id;
        if (run->remaining[id] == 0 || --run->remaining[id] > 0) continue;
        tensor_destroy(run->value[id].tensor);
        run->value[id].tensor = NULL;
    }
}

static bool run_node(FxRun *run, FxNode *node) {
    Tensor *result = NULL;
    switch (node->opcode) {
    case CB_PLACEHOLDER:
        return run_placeholder(run, node);
    case CB_GET_ATTR:
        return run_get_attr(run, node);
    case CB_OUTPUT:
        if (!length(node->args) || node->args[0].kind == CB_ARG_NONE) return true;
        return collect(run, node, &node->args[0]);
    case CB_CALL_MODULE:
        result = run_module(run, node);
        break;
    case CB_CALL_FUNCTION:
    case CB_CALL_METHOD:
        result = run_op(run, node);
        break;
    default:
        check(false, "node %%%s has no opcode", node->name);
    }
    if (!result) return false;
    run->value[node->id] = cb_operand_tensor(result);
    if (fx_is_temporary(node)) run->remaining[node->id] = length(node->users);
    release_inputs(run, node);
    if (!length(node->users) && fx_is_temporary(node)) tensor_destroy(result);
    return true;
}

static void note_meta(FxNode *node, const cb_operand *value) {
    if (value->kind != CB_OPERAND_TENSOR || !value->tensor) return;
    node->meta = tensor_meta(value->tensor);
    memcpy(node->stride, value->tensor->stride, sizeof node->stride);
    node->has_meta = true;
}

static int run_nodes(FxRun *run) {
    const FxGraph *graph = run->graph;
    for (FxNode *node = graph->first; node; node = node->next) {
        if (!run_node(run, node)) return (int)cb_error_status();
        if (run->notes && (length(node->users) || !fx_is_temporary(node)))
            note_meta(node, &run->value[node->id]);
    }
    return run->output_count;
}

static bool begin(FxRun *run, const RunRequest *request) {
    size_t count = (size_t)request->graph->next_id + 1;
    Tracer *tracer = tracer_current();
    if (tracer && tracer->meet_graph) tracer->meet_graph(tracer, request->graph);
    run->graph = request->graph;
    run->inputs = request->inputs;
    run->input_count = request->input_count;
    run->outputs = request->outputs;
    run->capacity = request->outputs ? request->capacity : 0;
    run->notes = request->notes;
    run->next_input = run->output_count = 0;
    run->value = memory_zalloc(count * sizeof *run->value);
    run->remaining = memory_zalloc(count * sizeof *run->remaining);
    if (run->value && run->remaining) return true;
    fail_memory(count * sizeof *run->value);
    return false;
}

static void end(Frame *frame) {
    FxRun *run = (FxRun *)frame;
    memory_free(run->value);
    memory_free(run->remaining);
}

/* Its modules are found, in errors, where they stand below the graph's own. */
static int run_below_root(FxRun *run) {
    if (!run->graph->root) return run_nodes(run);
    module_enter(&run->around, run->graph->root);
    int count = run_nodes(run);
    module_leave(&run->around);
    return count;
}

static OPENS_FRAME int run_request(const RunRequest *request) {
    FRAME_MARK(mark);
    frames_check();
    FrameKind kind = request->notes ? FRAME_OF_FUNCTION : FRAME_OF_FORWARD;
    FxRun *run = (FxRun *)frame_open(sizeof *run, end, kind, mark);
    if (!run) return CB_ERR_MEMORY;
    Frame *left UNWINDS_FRAME = &run->frame;
    int count = begin(run, request) ? run_below_root(run) : CB_ERR_MEMORY;
    left = NULL;
    if (!frame_is_open(&run->frame, mark)) return CB_ERR_ARGUMENT;
    frame_close(&run->frame);
    end(&run->frame);
    frame_free(&run->frame);
    return count;
}

static int count_placeholders(const FxGraph *graph) {
    int count = 0;
    for (const FxNode *node = graph->first; node; node = node->next)
        count += node->opcode == CB_PLACEHOLDER;
    return count;
}

static int check_call(const FxGraph *graph, cb_tensor *const *inputs, int count) {
    if (!graph || count < 0 || (count > 0 && !inputs))
        return fail(CB_ERR_ARGUMENT, "cb_graph_run: the graph or the inputs are NULL");
    if (!fx_lives(graph, "cb_graph_run: the graph")) return cb_error_status();
    if (!fx_module_lives(graph, "cb_graph_run: the graph's module")) return CB_ERR_ARGUMENT;
    int wanted = count_placeholders(graph);
    if (count <= wanted) return CB_OK;
    return fail(CB_ERR_ARGUMENT, "cb_graph_run: the graph takes %d inputs, not %d", wanted, count);
}

int fx_run(const FxGraph *graph, Tensor *const *inputs, int count, Tensor **outputs, int capacity) {
    int status = check_call(graph, inputs, count);
    if (status) return status;
    const RunRequest request = {graph, inputs, count, outputs, capacity, false};
    return run_request(&request);
}

int cb_graph_run(const cb_graph *graph, cb_tensor *const *inputs, int input_count,
                 cb_tensor **outputs, int capacity) {
    int count = fx_run(graph, inputs, input_count, outputs, capacity);
    for (int i = 0; i < count; i++) outputs[i] = tensor_out(outputs[i]);
    return count;
}

cb_status cb_graph_propagate_shapes(cb_graph *graph, cb_tensor *const *inputs, int count) {
    frames_check();
    int status = check_call(graph, inputs, count);
    if (status) return status;
    Tensor *outputs[CB_MAX_ARGS];
    const RunRequest request = {graph, inputs, count, outputs, CB_MAX_ARGS, true};
    int result = run_request(&request);
    return result < 0 ? result : CB_OK;
}
