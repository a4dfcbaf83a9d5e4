/* A gradient that can be gone back over itself: op by op, through the door, which records them.
 *
 *     y = mul(x, w), gradient g      to x: mul(g, w), of g and w with what they were computed from
 *     y = exp(x), gradient g         to x: mul(g, y), where a gradient comes to y, as in PyTorch
 *
 * In: an op, its operands and the gradient of its result. Out: the nodes of the same one-op graph
 * that the cached executable (eager.c) was built from, as calls: composites whole, so that each is
 * recorded with the gradient that its row has. Of halves, what that executable does not round in
 * between is not rounded here: x * x * x is f32 until the gradient is complete, and so finite. */
#include "eager/apply.h"
#include "eager/eager.h"
#include "eager/tape.h"
#include "graph/node.h"

typedef struct Replay {
    Graph *graph;
    const cb_operand *input; /* of the op */
    int count;
    GradientNeeds needs;
    Tensor *g;
    History *own;         /* of the op's result */
    bool *known, *needed; /* by node id */
    bool *whole;          /* by node id: as the op that it is, not through its expansion */
    bool *wide;           /* by node id: a half, and its value is f32 */
    Tensor **value;       /* by node id */
    Tensor **converted;   /* by node id: from or to f32 */
} Replay;

/* The operand behind the graph's n-th input; count: none, it is the result's gradient. */
static int position_of(const Replay *replay, int64_t n) {
    int i = 0;
    while (i < replay->count && (!(replay->needs.fed >> i & 1) || n-- > 0)) i++;
    return i;
}

static Tensor *number_tensor(const cb_operand *number, cb_dtype dtype) {
    return eager_full(&(Meta){.dtype = dtype}, *number);
}

static Tensor *input_of(const Replay *replay, const Node *node) {
    int i = position_of(replay, node->attrs->word[0]);
    if (i == replay->count) return replay->g;
    const cb_operand *operand = &replay->input[i];
    if (operand->kind == CB_OPERAND_TENSOR) return operand->tensor;
    return number_tensor(operand, node->dtype);
}

/* What elements there are for: an operand that nothing reads has none, and a composite of it that
 * asks for its sizes alone is one through its expansion. */
static void find_known(Replay *replay) {
    for (int id = 0; id < length(replay->graph->node); id++) {
        const Node *node = replay->graph->node[id];
        bool known = true;
        if (node->op == OP_input) {
            int i = position_of(replay, node->attrs->word[0]);
            const cb_operand *operand = i < replay->count ? &replay->input[i] : NULL;
            known = !operand || operand->kind != CB_OPERAND_TENSOR || operand->tensor->storage;
        }
        for (int k = 0; k < node->input_count; k++)
            known &= !node->input[k] || replay->known[node->input[k]->id];
        replay->whole[id] = known;
        replay->known[id] = known || (node->expansion && replay->known[node->expansion->id]);
    }
}

static void find_needed(Replay *replay) {
    const Graph *graph = replay->graph;
    for (int i = 0; i < length(graph->output); i++) replay->needed[graph->output[i]->id] = true;
    for (int id = length(graph->node) - 1; id >= 0; id--) {
        const Node *node = graph->node[id];
        if (!replay->needed[id]) continue;
        if (!replay->whole[id]) replay->needed[node->expansion->id] = true;
        for (int k = 0; k < node->input_count && replay->whole[id]; k++)
            if (node->input[k] && !node_has_literal(node, k))
                replay->needed[node->input[k]->id] = true;
    }
}

/* Gives the elements of its input on. */
static bool passes(const Node *node) {
    return op_info(node->op)->kind == KIND_VIEW || node->op == OP_contiguous ||
           node->op == OP_clone || node->op == OP_apart;
}

/* Computes halves in f32, and would round them. */
static bool is_arithmetic(const Replay *replay, const Node *node) {
    OpKind kind = op_info(node->op)->kind;
    bool computes = kind == KIND_POINTWISE || kind == KIND_REDUCE || kind == KIND_COMPOSITE;
    return dtype_is_half(node->dtype) && computes && op_info(node->op)->dtype != DTYPE_ATTR &&
           replay->whole[node->id] && !passes(node);
}

/* Reads halves as f32, whatever they are. */
static bool widens(const Node *node) {
    return op_info(node->op)->kind == KIND_POINTWISE && !dtype_is_half(node->dtype);
}

static bool any_input(const Node *node, const bool *marked) {
    bool any = false;
    for (int k = 0; k < node->input_count; k++) any |= node->input[k] && marked[node->input[k]->id];
    return any;
}

/* Arithmetic that comes of arithmetic, or goes into it, perhaps through views. What stands alone
 * rounds once as it is. */
static void find_wide(Replay *replay, Arena *arena) {
    int count = length(replay->graph->node);
    bool *arithmetic = arena_new_array(arena, bool, count + 1);
    bool *unrounded = arena_new_array(arena, bool, count + 1);
    bool *read = arena_new_array(arena, bool, count + 1);
    for (int id = 0; id < count; id++) {
        const Node *node = replay->graph->node[id];
        arithmetic[id] = is_arithmetic(replay, node);
        unrounded[id] = arithmetic[id] || (passes(node) && any_input(node, unrounded));
    }
    for (int id = count - 1; id >= 0; id--) {
        const Node *node = replay->graph->node[id];
        bool reads = arithmetic[id] || widens(node) || (passes(node) && read[id]);
        replay->wide[id] =
            unrounded[id] && (read[id] || (arithmetic[id] && any_input(node, unrounded)));
        for (int k = 0; k < node->input_count && reads && replay->needed[id]; k++)
            if (node->input[k]) read[node->input[k]->id] = true;
    }
}

static Tensor *converted(Replay *replay, const Node *node, cb_dtype dtype) {
    Tensor **known = &replay->converted[node->id];
    Attrs attrs = {{dtype}};
    cb_operand value = cb_operand_tensor(replay->value[node->id]);
    if (!*known) *known = apply(OP_to, &value, 1, &attrs);
    return *known;
}

/* As the node says that it is, or f32 in place of a half. NULL with an error. */
static Tensor *value_as(Replay *replay, const Node *node, bool wide) {
    bool same = !dtype_is_half(node->dtype) || replay->wide[node->id] == wide;
    return same ? replay->value[node->id] : converted(replay, node, wide ? CB_F32 : node->dtype);
}

/* The op's result: its elements are computed again, but it is that of which y is. Of those that are
 * not rounded, what y was converted to. */
static Tensor *result_of(Replay *replay, const Node *apart) {
    const Tensor *again = value_as(replay, apart->input[0], false);
    if (!again) return NULL;
    Tensor shell = *again;
    shell.history = replay->own;
    if (!replay->wide[apart->id]) return tensor_double(&shell);
    Attrs attrs = {{CB_F32}};
    cb_operand operand = cb_operand_tensor(&shell);
    const Tensor *wide = apply(OP_to, &operand, 1, &attrs);
    if (!wide) return NULL;
    shell = *replay->value[apart->input[0]->id];
    shell.history = wide->history;
    return tensor_double(&shell);
}

static Tensor *value_of(Replay *replay, const Node *node) {
    cb_operand operand[OP_MAX_INPUTS];
    if (node->op == OP_input) return input_of(replay, node);
    if (node->op == OP_constant) {
        cb_operand number = node_literal(node);
        return number_tensor(&number, node->dtype);
    }
    if (node->op == OP_apart) return result_of(replay, node);
    if (!replay->whole[node->id]) return value_as(replay, node->expansion, false);
    bool wide = replay->wide[node->id] || (widens(node) && any_input(node, replay->wide));
    for (int k = 0; k < node->input_count; k++) {
        const Node *input = node->input[k];
        bool literal = input && node_has_literal(node, k);
        operand[k] = literal ? node_literal(input)
                             : cb_operand_tensor(input ? value_as(replay, input, wide) : NULL);
        if (input && !literal && !operand[k].tensor) return NULL;
    }
    if (*op_gradient(node->op) != '!' || node->op == OP_custom)
        return apply(node->op, operand, node->input_count, node->attrs);
    int scopes = no_grad_set(1); /* a step: what it is computed from does not change it */
    Tensor *y = apply(node->op, operand, node->input_count, node->attrs);
    no_grad_set(scopes);
    return y;
}

static bool run(Replay *replay, Arena *arena) {
    find_known(replay);
    find_needed(replay);
    find_wide(replay, arena);
    for (int id = 0; id < length(replay->graph->node); id++) {
        const Node *node = replay->graph->node[id];
        if (!replay->needed[id]) continue;
        replay->value[id] = value_of(replay, node);
        if (!replay->value[id]) return false;
    }
    return true;
}

static bool replay_in(Arena *arena, Replay *replay, Op op, const Attrs *attrs, unsigned wanted,
                      Tensor **out) {
    Graph *graph = eager_gradient_graph(arena, op, replay->input, replay->count, attrs, wanted,
                                        &replay->needs);
    if (!graph) return false;
    if (arena_guard(arena)) {
        fail_memory(0);
        return false;
    }
    int nodes = length(graph->node) + 1;
    replay->graph = graph;
    replay->known = arena_new_array(arena, bool, nodes);
    replay->whole = arena_new_array(arena, bool, nodes);
    replay->needed = arena_new_array(arena, bool, nodes);
    replay->wide = arena_new_array(arena, bool, nodes);
    replay->value = arena_new_array(arena, Tensor *, nodes);
    replay->converted = arena_new_array(arena, Tensor *, nodes);
    if (!run(replay, arena)) return false;
    for (int i = 0; i < length(graph->output); i++)
        if (!(out[i] = value_as(replay, graph->output[i], false))) return false;
    return true;
}

bool tape_ops(Op op, const cb_operand *input, int count, const Attrs *attrs, unsigned wanted,
              Tensor *g, History *own, Tensor **out) {
    Arena *arena = arena_new();
    if (!arena) {
        fail_memory(0);
        return false;
    }
    Replay replay = {.input = input, .count = count, .g = g, .own = own};
    bool done = replay_in(arena, &replay, op, attrs, wanted, out);
    arena_free(arena);
    return done;
}
