/* One op at once: the compiler applied to a graph of one node, on the vector VM.
 *
 * The key is everything that the built op depends on: op, attributes, the ambient state, and per
 * operand dtype, device, sizes and strides. Built ops are cached, so that a repeated call is a
 * look-up and a run. A plain number of a pointwise op is an input without
 * dimensions, so that a changing number builds nothing; elsewhere, for pow, which is much cheaper
 * with a known exponent, for WIDE_NUMBER ops on f16 and bf16, and where some dtype refuses it
 * (number_may_vary), its value is part of the key.
 *
 *     cb_add(x: f32[4096], 1.5) -> key {add, f32[4096], float} -> kernel b2[a0] = b0[a0] + b1[0] */
#include "eager/eager.h"
#include "base/map.h"
#include "graph/grad/grad.h"
#include "run/compile.h"
#include "run/enqueue.h"
#include "tensor/place.h"
#include <string.h>

enum {
    MOST_OPERANDS = OP_MAX_INPUTS,
    KEY_WORDS = 2 + ATTR_WORDS + MOST_OPERANDS * (1 + 2 * CB_MAX_RANK),
    OF_GRADIENT = 1 << 29, /* in the key's first word: the last one says by which operands */
    IN_PLACE = 1 << 30
};

typedef struct EagerCall {
    Op op;
    const cb_operand *operand;
    int count;
    const Attrs *attrs;
    Ambient ambient;
    int64_t key[KEY_WORDS];
    int words;
    int input_count; /* of the executable: tensors and numbers that are not in the key */
    Tensor *input[MOST_OPERANDS];
    Number number[MOST_OPERANDS];
    unsigned wanted;      /* of a gradient: operands, as bits */
    GradientNeeds *needs; /* NULL: the op itself */
    bool apart;           /* its gradient reads the result as a node of its own */
    bool in_place;        /* the first operand takes the result, where that is of its type */
} EagerCall;

/* ---- numbers ---- */

static bool is_half(const cb_operand *operand) {
    return operand->kind == CB_OPERAND_TENSOR && operand->tensor &&
           dtype_is_half(operand->tensor->dtype);
}

static bool in_key(const EagerCall *call, const cb_operand *number) {
    bool half = false;
    for (int i = 0; i < call->count; i++) half |= is_half(&call->operand[i]);
    return !number_may_vary(call->op, number, half);
}

Tensor *number_hold(Number *number, cb_dtype dtype, Scalar value) {
    number->value = value;
    if (dtype == CB_BOOL) scalar_store(&number->value, dtype, value);
    atomic_init(&number->storage.references, 1);
    number->storage.data = &number->value;
    atomic_init(&number->tensor.handle, 0); /* nobody holds it (capture/backend.c) */
    number->tensor.storage = &number->storage;
    number->tensor.offset = 0;
    number->tensor.dtype = dtype;
    number->tensor.rank = 0;
    number->tensor.device = DEVICE_cpu;
    return &number->tensor;
}

Tensor *number_wrap(Number *number, const cb_operand *operand) {
    return number_hold(number, number_dtype(operand), number_scalar(operand));
}

/* ---- the key ---- */

static void add_tensor(EagerCall *call, Tensor *x) {
    bool dense = tensor_contiguous(x);
    int64_t *word = call->key + call->words;
    *word++ = 1 | x->dtype << 8 | x->rank << 16 | (int64_t)dense << 24 | (int64_t)x->device << 32;
    for (int i = 0; i < x->rank; i++) *word++ = x->size[i];
    if (!dense)
        for (int i = 0; i < x->rank; i++) *word++ = x->size[i] == 1 ? 0 : x->stride[i];
    call->words = (int)(word - call->key);
    call->input[call->input_count++] = x;
}

static void add_number(EagerCall *call, int position) {
    const cb_operand *operand = &call->operand[position];
    bool known = in_key(call, operand);
    call->key[call->words++] = 2 | operand->kind << 8 | (int64_t)known << 16;
    if (known)
        call->key[call->words++] = number_scalar(operand).i;
    else
        call->input[call->input_count++] = number_wrap(&call->number[position], operand);
}

static void describe(EagerCall *call) {
    int attributes = op_info(call->op)->word_count;
    int what = (call->wanted ? OF_GRADIENT : 0) | (call->in_place ? IN_PLACE : 0);
    call->key[0] = call->op | call->count << 16 | what | (int64_t)ambient_word(call->ambient) << 32;
    memcpy(call->key + 1, call->attrs->word, sizeof(int64_t) * (size_t)attributes);
    call->words = 1 + attributes;
    for (int i = 0; i < call->count; i++) {
        const cb_operand *operand = &call->operand[i];
        if (operand->kind != CB_OPERAND_TENSOR)
            add_number(call, i);
        else if (operand->tensor)
            add_tensor(call, operand->tensor);
        else
            call->key[call->words++] = 0; /* an optional tensor that is not there */
    }
    if (call->wanted) call->key[call->words++] = call->wanted;
}

/* ---- a key that is not in the cache ---- */

static Node *operand_node(Graph *graph, const EagerCall *call, int position) {
    const cb_operand *operand = &call->operand[position];
    if (operand->kind == CB_OPERAND_TENSOR) {
        if (!operand->tensor) return NULL;
        Meta meta = tensor_meta(operand->tensor);
        return graph_input(graph, &meta);
    }
    cb_dtype dtype = number_dtype(operand);
    if (in_key(call, operand)) return graph_constant(graph, dtype, number_scalar(operand));
    Meta meta = {.dtype = dtype};
    return graph_input(graph, &meta);
}

/* Inputs that the graph's results are computed from, as bits by number. */
static unsigned inputs_read(Graph *graph) {
    bool *read = arena_new_array(graph->arena, bool, length(graph->node) + 1);
    unsigned bits = 0;
    for (int i = 0; i < length(graph->output); i++) read[graph->output[i]->id] = true;
    for (int id = length(graph->node) - 1; id >= 0; id--) {
        const Node *node = graph->node[id];
        if (!read[id]) continue;
        if (node->op == OP_input) bits |= 1u << node->attrs->word[0];
        if (node->expansion) read[node->expansion->id] = true;
        for (int k = 0; k < node->input_count && !node->expansion; k++)
            if (node->input[k]) read[node->input[k]->id] = true;
    }
    return bits;
}

/* The graph of one op becomes that of its gradients. */
static bool differentiate(Graph *graph, Node *const *operand, const EagerCall *call) {
    Node *y = pop(graph->output), *wrt[MOST_OPERANDS], *gradient[MOST_OPERANDS];
    graph->check = NULL; /* the op itself has looked at them, and they need not be saved */
    Meta meta = node_meta(y);
    Node *g = graph_input(graph, &meta);
    GradientNeeds *needs = call->needs;
    int count = 0, which[MOST_OPERANDS];
    for (int i = 0, input = 0; i < call->count; i++) {
        if (!operand[i] || operand[i]->op != OP_input) continue;
        needs->fed |= (uint16_t)(1u << i);
        which[input++] = i;
        if (call->wanted >> i & 1) wrt[count++] = operand[i];
    }
    graph->single = true;
    bool *reached = arena_new_array(graph->arena, bool, length(graph->node));
    for (int i = 0; i < count; i++) reached[wrt[i]->id] = true;
    grad_reach(graph, 0, length(graph->node), reached);
    needs->followed = reached[y->id];
    if (op_refuses_gradient(call->op)) { /* not here: where somebody goes back to it */
        for (int i = 0; i < count; i++)
            needs->produced |= (uint16_t)(1u << which[wrt[i]->attrs->word[0]]);
        return true;
    }
    bool own = call->apart && y->op != OP_input; /* a view of all of it is its input */
    if (own) y = call_apart(graph, y, 0, true);
    if (!graph_grad(graph, &y, &g, 1, wrt, count, gradient, NULL)) return false;
    for (int i = 0; i < count; i++) {
        if (!gradient[i]) continue;
        needs->produced |= (uint16_t)(1u << which[wrt[i]->attrs->word[0]]);
        push(graph->arena, graph->output, gradient[i]);
    }
    unsigned read = inputs_read(graph);
    for (int i = 0; i < call->input_count; i++)
        if (read >> i & 1) needs->read |= (uint16_t)(1u << which[i]);
    return true;
}

static Graph *one_node(Arena *arena, const EagerCall *call, int device) {
    if (!arena || arena_guard(arena)) {
        fail_memory(0);
        return NULL;
    }
    Graph *graph = graph_new(arena);
    graph->ambient = call->ambient;
    graph->device = device;
    Node *input[MOST_OPERANDS];
    bool number[MOST_OPERANDS];
    for (int i = 0; i < call->count; i++) {
        input[i] = operand_node(graph, call, i);
        number[i] = call->operand[i].kind != CB_OPERAND_TENSOR;
    }
    Node *node = graph_op(graph, call->op, input, call->count, call->attrs, number);
    if (!node) return NULL;
    if (call->in_place && node_same_meta(node, input[0]) && device == call->operand->tensor->device)
        push(arena, graph->mutation, ((Mutation){0, node}));
    else
        push(arena, graph->output, node);
    return !call->needs || differentiate(graph, input, call) ? graph : NULL;
}

static bool find_place(const EagerCall *call, int *device) {
    int place = PLACE_NOWHERE;
    for (int i = 0; i < call->count; i++) {
        const cb_operand *operand = &call->operand[i];
        if (operand->kind != CB_OPERAND_TENSOR || !operand->tensor) continue;
        Meta meta = tensor_meta(operand->tensor);
        if (!place_operand(&place, op_info(call->op)->name, &meta)) return false;
    }
    *device = place_device(place, call->ambient.device);
    return true;
}

static Executable *build(const EagerCall *call) {
    int device;
    if (!find_place(call, &device)) return NULL;
    Arena *arena = arena_new();
    Graph *graph = one_node(arena, call, device);
    if (!graph) {
        arena_free(arena);
        return NULL;
    }
    const int64_t *stride[MOST_OPERANDS + 1];
    stride[call->input_count] = NULL; /* a gradient's last input */
    for (int i = 0; i < call->input_count; i++)
        stride[i] = tensor_contiguous(call->input[i]) ? NULL : call->input[i]->stride;
    CompileOptions how = {.optimize = true, .fuse = true, .lean = true};
    Executable *executable = compile_graph(graph, stride, how);
    if (!executable) fail_memory(0); /* unless that is said already */
    return executable;
}

/* ---- copies, which need no engine ---- */

static Tensor *copy_of(const Tensor *x) {
    Meta meta = tensor_meta(x);
    Tensor *copy = tensor_new(&meta);
    bool copied = copy && elements_copy(x->device, tensor_data(copy), copy->stride, tensor_data(x),
                                        x->stride, x->rank, x->size, cb_dtype_size(x->dtype));
    return copied ? copy : NULL;
}

/* A new shape that strides do not express: the elements in order, under that shape. */
static Tensor *copy_reshaped(Op op, const Tensor *x, const Attrs *attrs) {
    Meta meta = tensor_meta(x);
    Attrs canonical;
    Inferred inferred;
    attrs_copy(&canonical, attrs, op);
    if (!op_infer(op, &meta, 1, &canonical, &inferred)) return NULL;
    Tensor *copy = copy_of(x);
    if (!copy) return NULL;
    int64_t stride[CB_MAX_RANK];
    contiguous_strides(inferred.result.rank, inferred.result.size, stride);
    Tensor *result = tensor_view_of(copy, &inferred.result, stride, 0);
    tensor_destroy(copy);
    return result;
}

static bool is_copy(Op op) {
    return op == OP_clone || op == OP_contiguous ||
           (op_info(op)->kind == KIND_VIEW && op != OP_flip);
}

/* ---- entry ---- */

/* An op that turns out to be its input (x ** 1) gives a tensor of its own all the same. */
static Tensor *run(const EagerCall *call, const Executable *executable) {
    const PlanOutput *output = &executable_plan(executable)->output[0];
    if (output->alias_input >= 0) return copy_of(call->input[output->alias_input]);
    Tensor *result;
    return executable_run(executable, call->input, &result) ? result : NULL;
}

/* Its entry in the cache, built if it is not there; NULL with an error. */
static EagerEntry *entry_of(EagerCall *call) {
    uint64_t hash = hash_bytes(call->key, sizeof *call->key * (size_t)call->words, 0);
    EagerEntry *entry = eager_find(call->key, call->words, hash);
    if (entry) return entry;
    Executable *executable = build(call);
    GradientNeeds needs = call->needs ? *call->needs : (GradientNeeds){0};
    return executable ? eager_add(call->key, call->words, hash, executable, needs) : NULL;
}

static void open_call(EagerCall *call, Op op, const cb_operand *input, int input_count,
                      const Attrs *attrs) {
    call->op = op, call->operand = input, call->count = input_count, call->attrs = attrs;
    call->ambient = ambient_of_op();
    call->input_count = 0, call->wanted = 0;
    call->needs = NULL, call->apart = call->in_place = false;
}

EagerEntry *eager_gradient(Op op, const cb_operand *input, int input_count, const Attrs *attrs,
                           unsigned wanted, GradientNeeds *needs) {
    EagerCall call;
    Attrs defaults = attrs_default(op);
    open_call(&call, op, input, input_count, attrs ? attrs : &defaults);
    *needs = (GradientNeeds){0};
    call.wanted = wanted, call.needs = needs;
    describe(&call);
    EagerEntry *entry = entry_of(&call);
    if (entry) *needs = eager_needs(entry);
    return entry;
}

Graph *eager_gradient_graph(Arena *arena, Op op, const cb_operand *input, int input_count,
                            const Attrs *attrs, unsigned wanted, GradientNeeds *needs) {
    EagerCall call;
    int device;
    open_call(&call, op, input, input_count, attrs);
    *needs = (GradientNeeds){0};
    call.wanted = wanted, call.needs = needs, call.apart = true;
    describe(&call);
    return find_place(&call, &device) ? one_node(arena, &call, device) : NULL;
}

Tensor *eager_apply(Op op, const cb_operand *input, int input_count, const Attrs *attrs) {
    check(input_count <= MOST_OPERANDS, "%s with %d operands", op_info(op)->name, input_count);
    EagerCall call;
    open_call(&call, op, input, input_count, attrs);
    Attrs defaults;
    if (!attrs) {
        defaults = attrs_default(op);
        call.attrs = &defaults;
    }
    bool tensor = input_count > 0 && input->kind == CB_OPERAND_TENSOR;
    if (tensor && is_copy(op)) return copy_reshaped(op, input->tensor, call.attrs);
    describe(&call);
    EagerEntry *entry = entry_of(&call);
    if (!entry) return NULL;
    Tensor *result = run(&call, eager_executable(entry));
    eager_release(entry);
    return result;
}

Tensor *eager_in_place(Op op, const cb_operand *input, int input_count) {
    EagerCall call;
    open_call(&call, op, input, input_count, &attrs_none);
    call.in_place = true;
    describe(&call);
    EagerEntry *entry = entry_of(&call);
    if (!entry) return NULL;
    const Executable *executable = eager_executable(entry);
    Tensor *result = input->tensor;
    if (executable_plan(executable)->output_count)
        result = run(&call, executable);
    else if (!executable_run(executable, call.input, NULL))
        result = NULL;
    eager_release(entry);
    return result;
}

Tensor *eager_full(const Meta *meta, cb_operand number) {
    Attrs attrs = attrs_default(OP_full);
    attr_set_dims(&attrs, ATTR_full_sizes, size_list(meta->rank, meta->size));
    attr_set_number(&attrs, ATTR_full_value, number);
    attrs.word[ATTR_full_dtype] = meta->dtype;
    return eager_apply(OP_full, NULL, 0, &attrs);
}

Tensor *eager_clone(Tensor *x) {
    cb_operand operand = cb_operand_tensor(x);
    return eager_apply(OP_clone, &operand, 1, &attrs_none);
}

/* Whether the op's result can be computed where target lies: only where sizes and dtype are its
 * own, and no input is handed on as the result. */
static bool fits(const PlanOutput *output, const Tensor *target) {
    const Meta *meta = &output->meta;
    return output->alias_input < 0 && tensor_contiguous(target) && meta->dtype == target->dtype &&
           meta->rank == target->rank &&
           !memcmp(meta->size, target->size, sizeof *meta->size * meta->rank);
}

bool eager_into(Tensor *target, Op op, const cb_operand *input, int input_count) {
    EagerCall call;
    Attrs defaults = attrs_default(op);
    open_call(&call, op, input, input_count, &defaults);
    describe(&call);
    EagerEntry *entry = entry_of(&call);
    if (!entry) return false;
    const Executable *executable = eager_executable(entry);
    bool done;
    if (fits(&executable_plan(executable)->output[0], target)) {
        done = executable_run_into(executable, call.input, target);
    } else {
        Tensor *result = run(&call, executable);
        cb_operand value = cb_operand_tensor(result);
        done = result && eager_assign(target, &value);
        tensor_destroy(result);
    }
    eager_release(entry);
    return done;
}

/* ---- assignment ---- */

static bool fill(Tensor *target, const cb_operand *value) {
    cb_dtype dtype = target->dtype;
    Scalar element;
    scalar_store(&element, dtype, scalar_convert(number_scalar(value), number_dtype(value), dtype));
    return elements_fill(target->device, tensor_data(target), target->stride, &element,
                         target->rank, target->size, cb_dtype_size(dtype));
}

/* Do the two share a byte? Compares the spans of memory that they lie in. */
static bool may_overlap(const Tensor *a, const Tensor *b) {
    if (a->storage != b->storage) return false;
    const char *a_low = tensor_data(a), *b_low = tensor_data(b);
    return a_low < b_low + tensor_span_bytes(b) && b_low < a_low + tensor_span_bytes(a);
}

static bool same_elements(const Tensor *a, const Tensor *b) {
    if (a->storage != b->storage || a->offset != b->offset || a->dtype != b->dtype) return false;
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->size[i] != b->size[i] || (a->size[i] > 1 && a->stride[i] != b->stride[i]))
            return false;
    return true;
}

static bool copy_broadcast(Tensor *target, const Tensor *value) {
    int64_t stride[CB_MAX_RANK] = {0};
    int shift = target->rank - value->rank;
    for (int i = 0; i < value->rank; i++)
        stride[i + shift] = value->size[i] == 1 ? 0 : value->stride[i];
    return elements_copy(target->device, tensor_data(target), target->stride, tensor_data(value),
                         stride, target->rank, target->size, cb_dtype_size(target->dtype));
}

static Tensor *separate_value(const Tensor *target, Tensor *value);

/* The move comes first. */
static Tensor *value_from_elsewhere(const Tensor *target, Tensor *value) {
    Tensor *there = tensor_to(value, target->device);
    Tensor *separate = there ? separate_value(target, there) : NULL;
    if (separate != there) tensor_destroy(there);
    return separate;
}

/* The value in the target's dtype, on its device and in memory of its own: value itself, or a new
 * tensor. */
static Tensor *separate_value(const Tensor *target, Tensor *value) {
    if (value->device != target->device) return value_from_elsewhere(target, value);
    if (value->dtype != target->dtype) {
        Attrs attrs = attrs_default(OP_to);
        attrs.word[ATTR_to_dtype] = target->dtype;
        cb_operand operand = cb_operand_tensor(value);
        return eager_apply(OP_to, &operand, 1, &attrs);
    }
    return may_overlap(target, value) ? copy_of(value) : value;
}

bool eager_assign(Tensor *target, const cb_operand *value) {
    if (value->kind != CB_OPERAND_TENSOR) return fill(target, value);
    if (same_elements(target, value->tensor)) return true;
    Tensor *source = separate_value(target, value->tensor);
    if (!source) return false;
    bool copied = copy_broadcast(target, source);
    if (source != value->tensor) tensor_destroy(source);
    return copied;
}
