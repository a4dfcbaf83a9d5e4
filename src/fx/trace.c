/* Symbolic trace: a function or a module's forward, run once on stand-ins, becomes an FX graph.
 *
 * In:  forward(x) = cb_relu(cb_add(cb_forward(linear, x), x))
 * Out: placeholder x, call_module linear, call_function operator.add, call_method relu, output
 * Every op call of the thread comes to trace_apply, every call of a leaf module to trace_module;
 * each records a node and returns a shell that stands for its value. Without examples a shell knows
 * no dtype and no shape (dtype CB_SAME, rank 0). With examples each node also computes a real
 * value, its shadow, whose meta the shell shows; in-place writes are recorded and not done, so
 * examples and parameters stay as they are. Parameters become get_attr nodes, once each; other
 * tensors constants of the graph. */
#include "base/memory.h"
#include "fx/fx.h"
#include "tensor/frame.h"
#include <string.h>

typedef struct FxTrace {
    Frame frame; /* first: around the user's function */
    Tracer tracer;
    ModuleTracer modules, *before; /* before: of the thread */
    FxGraph *graph;
    Map attributes;  /* address of a real tensor -> its get_attr node */
    Tensor **shadow; /* vec, by node id; kept, NULL without examples */
    Tensor *pending; /* the shadow of a node that is not made yet; kept */
    bool examples;
    bool running; /* the user's function is on the stack */
} FxTrace;

typedef struct TraceRequest { /* what is traced */
    Module *module;
    cb_function_n *function;
    void *user;
    const char *names; /* of the inputs; NULL: x, y, z, input_3... */
    int count;
    Tensor *const *examples; /* NULL: none */
} TraceRequest;

static FxTrace *trace_of(Tracer *tracer) {
    return (FxTrace *)(void *)((char *)tracer - offsetof(FxTrace, tracer));
}

/* ---- values --------------------------------------------------------------------------------- */

/* Kept, and destroyed with the trace when memory ends before its node has it. */
static void set_pending(FxTrace *trace, Tensor *value) {
    tensor_destroy(trace->pending);
    trace->pending = value;
}

/* The pending one. */
static void set_shadow(FxTrace *trace, const FxNode *node) {
    while (length(trace->shadow) <= node->id) push(trace->graph->arena, trace->shadow, NULL);
    trace->shadow[node->id] = trace->pending;
    trace->pending = NULL;
}

/* An alias of a real tensor becomes the node's shadow. */
static bool shadow_as(FxTrace *trace, const FxNode *node, Tensor *tensor) {
    Tensor *alias = tensor_alias(tensor);
    if (!alias) return false;
    set_pending(trace, cb_keep(alias));
    set_shadow(trace, node);
    return true;
}

static Tensor *shadow_of(const FxTrace *trace, const FxNode *node) {
    return node->id < length(trace->shadow) ? trace->shadow[node->id] : NULL;
}

/* The stand-in of a node's value. */
static Tensor *stand_in(FxTrace *trace, FxNode *node) {
    const Tensor *shadow = shadow_of(trace, node);
    Meta unknown = {.dtype = CB_SAME};
    if (shadow) {
        node->meta = tensor_meta(shadow);
        memcpy(node->stride, shadow->stride, sizeof node->stride);
        node->has_meta = true;
    }
    Tensor *shell = tensor_shell(shadow ? &node->meta : &unknown);
    if (!shell) return NULL;
    shell->value = node;
    shell->trace = trace->tracer.serial;
    return shell;
}

/* The get_attr node of a tensor from outside. */
static FxNode *attribute(FxTrace *trace, Tensor *tensor) {
    FxGraph *graph = trace->graph;
    uint64_t key = (uint64_t)(uintptr_t)tensor;
    FxNode *node = map_get(&trace->attributes, key);
    if (node) return node;
    if (!tensor->storage) {
        fail(CB_ERR_GRAPH, "symbolic trace: a tensor of another trace is used");
        return NULL;
    }
    Buffer path = buffer_new(graph->arena);
    const char *name;
    if (graph->root && module_path_of_tensor(graph->root, tensor, &path))
        name = path.text;
    else
        name = fx_constant_add(graph, tensor);
    if (!name) return NULL;
    node = fx_create(graph, NULL, CB_GET_ATTR, name, NULL, 0);
    map_put(&trace->attributes, key, node);
    if (!trace->examples) return node;
    if (!shadow_as(trace, node, tensor)) return NULL;
    node->meta = tensor_meta(tensor);
    memcpy(node->stride, tensor->stride, sizeof node->stride);
    node->has_meta = true;
    return node;
}

static FxNode *node_of(FxTrace *trace, Tensor *tensor) {
    if (tensor->trace == trace->tracer.serial) return tensor->value;
    return attribute(trace, tensor);
}

static bool arg_of(FxTrace *trace, const cb_operand *operand, cb_arg *arg) {
    switch (operand->kind) {
    case CB_OPERAND_FLOAT:
        *arg = cb_arg_float(operand->f);
        return true;
    case CB_OPERAND_INT:
        *arg = cb_arg_int(operand->i);
        return true;
    case CB_OPERAND_BOOL:
        *arg = cb_arg_bool(operand->i != 0);
        return true;
    default:
        break;
    }
    *arg = cb_arg_none();
    if (!operand->tensor) return true;
    *arg = cb_arg_node(node_of(trace, operand->tensor));
    return arg->node != NULL;
}

/* Eager work on the side: neither this trace nor the user's scope sees it. Returns a kept
 * tensor. */
static OPENS_FRAME Tensor *run_aside(Op op, const cb_operand *operand, Tensor *const *inputs,
                                     int count, const Attrs *attrs, Module *module) {
    FRAME_MARK(mark);
    Frame *frame = frame_open(sizeof *frame, NULL, FRAME_OF_FUNCTION, mark);
    if (!frame) return NULL;
    Frame *left UNWINDS_FRAME = frame;
    tracer_set(NULL);
    Tensor *result = module ? module_run(module, inputs, count) : apply(op, operand, count, attrs);
    left = NULL;
    if (!frame_is_open(frame, mark)) return NULL;
    if (result) result = tensor_alias(result); /* perhaps of an input or a parameter */
    if (result) cb_keep(result);
    if (!frame_close(frame))
        fail(CB_ERR_ARGUMENT, "symbolic trace: a forward opened an autocast and did not close it");
    frame_free(frame);
    return result;
}

/* The value of the node to be made is pending; false with an error. */
static bool compute(FxTrace *trace, Op op, const cb_arg *arg, int count, const Attrs *attrs,
                    Module *module) {
    cb_operand operand[OP_MAX_PARAMS];
    Tensor *inputs[CB_MAX_ARGS];
    for (int i = 0; i < count; i++) {
        Tensor *real = arg[i].kind == CB_ARG_NODE ? shadow_of(trace, arg[i].node) : NULL;
        inputs[i] = real;
        if (module) continue;
        operand[i] = cb_operand_tensor(real);
        if (arg[i].kind == CB_ARG_FLOAT) operand[i] = cb_operand_float(arg[i].f);
        if (arg[i].kind == CB_ARG_INT) operand[i] = cb_operand_int(arg[i].i);
        if (arg[i].kind == CB_ARG_BOOL) operand[i] = cb_operand_bool(arg[i].i != 0);
    }
    set_pending(trace, run_aside(op, operand, inputs, count, attrs, module));
    return trace->pending;
}

/* ---- the hooks ------------------------------------------------------------------------------ */

static Tensor *trace_apply(Tracer *tracer, Op op, const cb_operand *input, int count,
                           const Attrs *attrs) {
    FxTrace *trace = trace_of(tracer);
    FX_GUARD(trace->graph, NULL);
    cb_arg arg[OP_MAX_PARAMS];
    for (int i = 0; i < count; i++)
        if (!arg_of(trace, &input[i], &arg[i])) return NULL;
    if (trace->examples && !compute(trace, op, arg, count, attrs, NULL)) return NULL;
    FxNode *node = fx_record(trace->graph, op, arg, count, attrs);
    set_shadow(trace, node);
    return stand_in(trace, node);
}

static Tensor *trace_assign(Tracer *tracer, Tensor *target, const cb_operand *value) {
    FxTrace *trace = trace_of(tracer);
    FX_GUARD(trace->graph, NULL);
    cb_operand self = cb_operand_tensor(target);
    cb_arg arg[2];
    if (!arg_of(trace, &self, &arg[0]) || !arg_of(trace, value, &arg[1])) return NULL;
    FxNode *node = fx_create(trace->graph, NULL, CB_CALL_METHOD, "copy_", arg, 2);
    node->site = site_current();
    return target;
}

static bool trace_materialize(Tracer *tracer, Tensor *x, TensorAccess access) {
    FxTrace *trace = trace_of(tracer);
    (void)access;
    const FxNode *node = x->trace == trace->tracer.serial ? x->value : NULL;
    if (!node) return x->storage != NULL;
    fx_fail(CB_ERR_GRAPH, node, "its value was asked for in a symbolic trace, which has none");
    return false;
}

/* cb_cat joins many tensors two by two and drops the halves. A half that only the next cat used is
 * spliced into it, so that cat([a, b, c]) is one node with the name that it would have had
 * alone. Not over a write: the half has what its tensors held before. */
static void splice(FxGraph *graph, FxNode *half) {
    FxNode *user = length(half->users) == 1 ? half->users[0] : NULL;
    if (half->op != OP_concat || !user || user->op != OP_concat) return;
    FxCall a, b;
    check(fx_bind(half, &a), "a traced cat does not bind");
    check(fx_bind(user, &b), "a traced cat does not bind");
    if (a.attrs.word[ATTR_concat_dim] != b.attrs.word[ATTR_concat_dim]) return;
    if (fx_written_between(half, user)) return;
    int at = 0, count = a.list->count + b.list->count - 1, n = 0;
    while (b.list->items[at].node != half) at++;
    cb_arg *items = arena_new_array(graph->arena, cb_arg, count);
    for (int i = 0; i < b.list->count; i++) {
        if (i != at) items[n++] = b.list->items[i];
        for (int j = 0; i == at && j < a.list->count; j++) items[n++] = a.list->items[j];
    }
    user->args[0] = cb_arg_list(items, count);
    fx_refresh(user);
    if (length(half->users)) return;
    const char *first = half->name, *second = user->name;
    fx_unlink(half);
    bool older = strlen(first) < strlen(second) ||
                 (strlen(first) == strlen(second) && strcmp(first, second) < 0);
    user->name = older ? first : second;
    fx_name_give_back(graph, user->name == first ? second : first);
}

static bool splice_guarded(FxGraph *graph, FxNode *half) {
    FX_GUARD(graph, false);
    splice(graph, half);
    return true;
}

static void trace_destroy(Tracer *tracer, Tensor *x) {
    FxTrace *trace = trace_of(tracer);
    if (x->trace != trace->tracer.serial) { /* the next tensor may get its address */
        MapEntry *known = map_first(&trace->attributes, (uint64_t)(uintptr_t)x);
        if (known) known->value = NULL;
        return;
    }
    if (!trace->running) return;
    FxNode *node = x->value;
    if (node->opcode == CB_CALL_FUNCTION) splice_guarded(trace->graph, node);
}

static Tensor *trace_module(ModuleTracer *modules, Module *module, Tensor *const *inputs,
                            int count) {
    FxTrace *trace = (FxTrace *)((char *)modules - offsetof(FxTrace, modules));
    FxGraph *graph = trace->graph;
    FX_GUARD(graph, NULL);
    Buffer path = buffer_new(graph->arena);
    if (!graph->root || !module_path_of_child(graph->root, module, &path)) {
        fail(CB_ERR_GRAPH, "symbolic trace: this %s is no descendant of the traced module",
             cb_module_type(module));
        return NULL;
    }
    cb_arg arg[CB_MAX_ARGS];
    for (int i = 0; i < count; i++) {
        if (!inputs[i]) { /* of a call that failed, or an input that the module can do without */
            fail(CB_ERR_GRAPH, "symbolic trace: input %d of %s is NULL", i, cb_module_type(module));
            return NULL;
        }
        cb_operand operand = cb_operand_tensor(inputs[i]);
        if (!arg_of(trace, &operand, &arg[i])) return NULL;
    }
    if (trace->examples && !compute(trace, OP_none, arg, count, NULL, module)) return NULL;
    FxNode *node = fx_create(graph, NULL, CB_CALL_MODULE, buffer_text(&path), arg, count);
    node->site = site_current();
    set_shadow(trace, node);
    return stand_in(trace, node);
}

/* ---- the run -------------------------------------------------------------------------------- */

/* The k-th name of "x, mask". */
static const char *input_name(FxGraph *graph, const char *names, int index) {
    static const char *const usual[] = {"x", "y", "z"};
    if (!names || !*names)
        return index < 3 ? usual[index] : arena_format(graph->arena, "input_%d", index);
    for (int i = 0; i < index; i++) {
        names = strchr(names, ',');
        if (!names) return arena_format(graph->arena, "input_%d", index);
        names++;
    }
    names += strspn(names, " ");
    size_t size = strcspn(names, ", ");
    return arena_format(graph->arena, "%.*s", (int)size, names);
}

static bool add_inputs(FxTrace *trace, const TraceRequest *request, Tensor **inputs) {
    FX_GUARD(trace->graph, false);
    trace->attributes = map_new(trace->graph->arena);
    for (int i = 0; i < request->count; i++) {
        const char *name = input_name(trace->graph, request->names, i);
        FxNode *node = fx_create(trace->graph, NULL, CB_PLACEHOLDER, name, NULL, 0);
        if (request->examples) {
            Tensor *example = tensor_in(request->examples[i], "symbolic trace");
            if (!example || !tensor_materialize(example)) {
                fail(CB_ERR_ARGUMENT, "symbolic trace: example %d is NULL", i);
                return false;
            }
            if (!shadow_as(trace, node, example)) return false;
        }
        inputs[i] = stand_in(trace, node);
        if (!inputs[i]) return false;
    }
    return true;
}

static bool add_output(FxTrace *trace, Tensor *const *outputs, int count) {
    FX_GUARD(trace->graph, false);
    cb_arg value[CB_MAX_ARGS];
    for (int i = 0; i < count; i++) {
        cb_operand operand = cb_operand_tensor(outputs[i]);
        if (!outputs[i]) {
            fail(CB_ERR_GRAPH, "symbolic trace: result %d is NULL", i);
            return false;
        }
        if (!arg_of(trace, &operand, &value[i])) return false;
    }
    cb_arg result = count == 0 ? cb_arg_none() : count == 1 ? value[0] : cb_arg_tuple(value, count);
    fx_create(trace->graph, NULL, CB_OUTPUT, "output", &result, 1);
    return true;
}

static bool trace_body(FxTrace *trace, const TraceRequest *request) {
    Tensor *inputs[CB_MAX_ARGS], *outputs[OUTPUT_ROOM];
    if (!add_inputs(trace, request, inputs)) return false;
    int count = 1;
    bool failed_before = cb_error() != NULL;
    trace->running = true;
    if (request->module)
        outputs[0] = module_run(request->module, inputs, request->count);
    else
        count = tensors_call(request->function, inputs, request->count, outputs, request->user);
    trace->running = false;
    if (request->module && !outputs[0]) count = -1;
    if (cb_error() && !failed_before) return false; /* a size query came back as -1, say */
    if (count >= 0) return add_output(trace, outputs, count);
    fail(CB_ERR_GRAPH, "symbolic trace: the function failed"); /* unless it said why */
    return false;
}

static bool request_good(const TraceRequest *request) {
    if (request->count < 0 || request->count > CB_MAX_ARGS) {
        fail(CB_ERR_ARGUMENT, "symbolic trace: %d inputs; 0 to %d are possible", request->count,
             CB_MAX_ARGS);
        return false;
    }
    if (request->module && !request->module->forward) {
        fail(CB_ERR_ARGUMENT, "symbolic trace: %s has no forward", request->module->type);
        return false;
    }
    return true;
}

static void begin(FxTrace *trace, const TraceRequest *request, FxGraph *graph) {
    trace->tracer = (Tracer){.apply = trace_apply,
                             .expect_two = apply_two_unexpected,
                             .assign = trace_assign,
                             .materialize = trace_materialize,
                             .destroy_tensor = trace_destroy,
                             .whole_calls = true,
                             .serial = serial_next()};
    trace->modules = (ModuleTracer){.tracer = &trace->tracer, .call = trace_module};
    trace->graph = graph;
    trace->attributes = (Map){0};
    trace->shadow = NULL;
    trace->pending = NULL;
    trace->examples = request->examples != NULL;
    trace->running = false;
    tracer_set(&trace->tracer);
    trace->before = module_tracer_set(&trace->modules);
    autocast_set(CB_SAME); /* a graph has the ops as written: it is run under autocast */
}

/* The graph when it is good. */
static FxGraph *end(FxTrace *trace, bool good) {
    set_pending(trace, NULL);
    for (int i = 0; i < length(trace->shadow); i++) tensor_destroy(trace->shadow[i]);
    if (good) return trace->graph;
    cb_graph_free(trace->graph);
    return NULL;
}

static void abandon(Frame *frame) {
    FxTrace *trace = (FxTrace *)frame;
    tracer_set(NULL);
    module_tracer_set(trace->before);
    end(trace, false);
}

static OPENS_FRAME FxGraph *trace_request(const TraceRequest *request) {
    FRAME_MARK(mark);
    frames_check();
    FxGraph *graph = request_good(request) ? fx_graph_new(request->module) : NULL;
    if (!graph) return NULL;
    FxTrace *trace = (FxTrace *)frame_open(sizeof *trace, abandon, FRAME_OF_FUNCTION, mark);
    if (!trace) {
        cb_graph_free(graph);
        return NULL;
    }
    Frame *left UNWINDS_FRAME = &trace->frame;
    begin(trace, request, graph);
    bool good = trace_body(trace, request);
    left = NULL;
    if (!frame_is_open(&trace->frame, mark)) return NULL;
    module_tracer_set(trace->before);
    if (!frame_close(&trace->frame)) {
        fail(CB_ERR_ARGUMENT,
             "symbolic trace: the function opened an autocast and did not close it");
        good = false;
    }
    graph = end(trace, good);
    frame_free(&trace->frame);
    return graph;
}

/* ---- the public API ------------------------------------------------------------------------- */

static int count_names(const char *names) {
    int count = 1;
    if (!names[strspn(names, " ")]) return 0;
    for (; *names; names++) count += *names == ',';
    return count;
}

cb_graph *cb_symbolic_trace(cb_module *module) {
    if (!module_lives(module, "symbolic trace: the module")) return NULL;
    TraceRequest request = {
        .module = module, .names = module->inputs, .count = count_names(module->inputs)};
    return trace_request(&request);
}

cb_graph *cb_symbolic_trace_with(cb_module *module, cb_tensor *const *examples, int count) {
    if (!module_lives(module, "symbolic trace: the module")) return NULL;
    TraceRequest request = {
        .module = module, .names = module->inputs, .count = count, .examples = examples};
    return trace_request(&request);
}

cb_graph *cb_symbolic_trace_function(cb_function_n *function, void *user, int input_count,
                                     const char *names) {
    if (!function) return NULL;
    TraceRequest request = {
        .function = function, .user = user, .names = names, .count = input_count};
    return trace_request(&request);
}

cb_graph *cb_symbolic_trace_function_with(cb_function_n *function, void *user, const char *names,
                                          cb_tensor *const *examples, int count) {
    if (!function) return NULL;
    TraceRequest request = {
        .function = function, .user = user, .names = names, .count = count, .examples = examples};
    return trace_request(&request);
}
