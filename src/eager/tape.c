/* Recording: what cb_backward goes back over (tape_walk.c).
 *
 *     w requires a gradient      a leaf
 *     y = x * w                  node mul: the leaf w; x is saved, w is not wanted by anybody
 *     l = sum(y)                 node sum: node mul; nothing is saved
 *     cb_backward(l)             sum: 1 spread over y, mul: x * that, to the leaf's gradient
 *
 * The gradient of an op is graph_grad of a graph of that one op, a cached executable as the op
 * itself is one (eager.c). What it reads of the operands is saved: a storage with the version that
 * it had. One that was written to since is an error, with the op and its line. Values that the op
 * computed on the way, its result among them, are computed again. */
#include "base/memory.h"
#include "eager/apply.h"
#include "eager/checkpoint.h"
#include "eager/eager.h"
#include "op/custom.h"

#include <string.h>

static _Atomic int64_t leaves; /* that live, in the process */

/* ---- lifetime ------------------------------------------------------------------------------- */

static bool is_last(TapeNode *node) {
    return atomic_fetch_sub_explicit(&node->history.references, 1, memory_order_acq_rel) == 1;
}

TapeNode *tape_drop(TapeNode *node, TapeNode *first) {
    if (!node || !is_last(node)) return first;
    node->next = first;
    return node;
}

/* With a list in place of recursion: a chain may be of any length. */
void tape_free(TapeNode *first) {
    while (first) {
        TapeNode *node = first;
        first = node->next;
        for (int i = 0; i < node->saves; i++)
            if (node->saved[i].storage) storage_release(node->saved[i].storage);
        for (int i = 0; i < node->count; i++) first = tape_drop(node->producer[i], first);
        for (int k = 0; node->ops && k <= node->part; k++) first = tape_drop(node->ops[k], first);
        first = checkpoint_drop_node(node, tape_drop(node->shows, first));
        if (node->op == OP_none) atomic_fetch_sub(&leaves, 1);
        if (node->entry) eager_release(node->entry);
        if (node->steps) node->steps->free(node->state);
        tensor_destroy(node->gradient);
        hooks_free(node);
        memory_free(node->ops);
        memory_free(node);
    }
}

static void free_history(History *history) {
    TapeNode *node = (TapeNode *)(void *)history;
    node->next = NULL;
    tape_free(node);
}

TapeNode *tape_node_new(TapeKind kind, Op op, int count, const Meta *meta) {
    int saves = kind == TAPE_OP ? count : 0;
    size_t words = kind != TAPE_OP || op == OP_none ? 0 : op_info(op)->word_count;
    size_t bytes = sizeof(TapeNode) + sizeof(Saved) * (size_t)saves +
                   sizeof(TapeNode *) * (size_t)count + sizeof(int64_t) * words;
    TapeNode *node = memory_zalloc(bytes);
    if (!node) {
        fail_memory(bytes);
        return NULL;
    }
    atomic_init(&node->history.references, 1);
    node->history.free = free_history;
    node->kind = kind;
    node->op = op;
    node->count = count;
    node->saves = saves;
    node->site = site_current();
    node->meta = *meta;
    node->producer = (TapeNode **)(void *)&node->saved[saves];
    node->word = (int64_t *)(void *)&node->producer[count];
    if (op == OP_none) atomic_fetch_add(&leaves, 1);
    return node;
}

/* ---- recording ------------------------------------------------------------------------------ */

bool tape_follows(const cb_operand *input, int count) {
    for (int i = 0; i < count; i++)
        if (input[i].kind == CB_OPERAND_TENSOR && input[i].tensor && input[i].tensor->history)
            return grad_mode();
    return false;
}

bool tape_in_use(void) {
    return atomic_load_explicit(&leaves, memory_order_relaxed) > 0 && grad_mode();
}

bool tape_takes(Op op, const Attrs *attrs) {
    const OpInfo *info = op_info(op);
    const char *why = op_gradient(op);
    bool floating = info->dtype == DTYPE_KEEP || info->dtype == DTYPE_NUMERIC;
    bool drops = op == OP_scaled_dot_product_attention && attrs &&
                 attr_float(attrs, ATTR_scaled_dot_product_attention_dropout_p) > 0;
    bool refuses = *why == '!' && floating && info->kind != KIND_VIEW;
    if (op == OP_custom) {
        const cb_custom_op *own = custom_of(attrs);
        refuses = (own->outputs || own->mutates) && !op_has_gradient(op, attrs);
        why = " it was registered without one";
    }
    if (!refuses && !drops) return true;
    fail(CB_ERR_ARGUMENT,
         "%s: there is no gradient for it (%s): cb_detach its inputs, or "
         "open cb_no_grad_open",
         op_call_name(op, attrs ? attrs->word : NULL),
         drops ? "dropout inside of attention" : why + 1);
    return false;
}

static EagerEntry *gradient_of(Op op, const cb_operand *input, int count, const Attrs *attrs,
                               GradientNeeds *needs) {
    unsigned wanted = 0;
    for (int i = 0; i < count; i++)
        if (input[i].kind == CB_OPERAND_TENSOR && input[i].tensor && input[i].tensor->history)
            wanted |= 1u << i;
    return eager_gradient(op, input, count, attrs, wanted, needs);
}

bool tape_follows_result(Op op, const cb_operand *input, int count, const Attrs *attrs) {
    GradientNeeds needs;
    EagerEntry *entry = gradient_of(op, input, count, attrs, &needs);
    if (!entry) return false;
    eager_release(entry);
    return needs.followed;
}

static TapeNode *node_of(Op op, const cb_operand *input, int count, const Attrs *attrs,
                         const Meta *meta, GradientNeeds needs) {
    TapeNode *node = tape_node_new(TAPE_OP, op, count, meta);
    if (!node) return NULL;
    node->needs = needs;
    bool noted = checkpoint_current();
    if (attrs) memcpy(node->word, attrs->word, sizeof(int64_t) * op_info(op)->word_count);
    for (int i = 0; i < count; i++) {
        Saved *saved = &node->saved[i];
        Tensor *x = input[i].kind == CB_OPERAND_TENSOR ? input[i].tensor : NULL;
        if (!x) saved->number = input[i];
        if (x) saved->meta = tensor_meta(x);
        if (x && needs.read >> i & 1) checkpoint_save(saved, x);
        if (needs.produced >> i & 1) node->producer[i] = tape_retain(tape_node(x));
        if (x && noted && !norm_moves(op, attrs, i)) checkpoint_note(saved, x);
    }
    if (checkpoint_add(node)) return node;
    tape_free(tape_drop(node, NULL));
    return NULL;
}

/* The node of an op, held: of an earlier run of what computes it, or a new one. NULL with an
 * error. */
static TapeNode *node_for(Op op, const cb_operand *input, int count, const Attrs *attrs,
                          const Meta *meta, GradientNeeds needs) {
    TapeNode *node;
    if (!checkpoint_meet(op, meta, &node)) return NULL;
    if (!node) return node_of(op, input, count, attrs, meta, needs);
    return checkpoint_take(node, input, attrs) ? tape_retain(node) : NULL;
}

Tensor *tape_record(Tensor *y, Op op, const cb_operand *input, int count, const Attrs *attrs) {
    GradientNeeds needs;
    if (!y || !dtype_is_float(y->dtype) || op == OP_detach) return y;
    EagerEntry *entry = gradient_of(op, input, count, attrs, &needs);
    bool follows = !entry || needs.followed; /* not rand_like, and others of sizes alone */
    Meta meta = tensor_meta(y);
    TapeNode *node = entry && follows ? node_for(op, input, count, attrs, &meta, needs) : NULL;
    if (node && !node->entry)
        node->entry = entry;
    else if (entry)
        eager_release(entry);
    if (node) y->history = &node->history;
    if (node || !follows) return y;
    tensor_destroy(y);
    return NULL;
}

/* As the expansion has it (graph/expand/expand.c), with the same numbers. */
Tensor *tape_dropout(Tensor *x, const Attrs *attrs) {
    double p = attr_float(attrs, ATTR_dropout_p);
    Attrs sizes = attrs_default(OP_rand);
    attr_set_dims(&sizes, ATTR_rand_sizes, size_list(x->rank, x->size));
    Tensor *drawn = apply(OP_rand, NULL, 0, &sizes), *keep = NULL, *scaled = NULL, *y = NULL;
    if (drawn)
        keep = apply(OP_ge, (cb_operand[]){cb_operand_tensor(drawn), cb_operand_float(p)}, 2, NULL);
    if (keep)
        scaled = apply(OP_mul, (cb_operand[]){cb_operand_tensor(x), cb_operand_float(1 / (1 - p))},
                       2, NULL);
    if (scaled)
        y = apply(
            OP_where,
            (cb_operand[]){cb_operand_tensor(keep), cb_operand_tensor(scaled), cb_operand_int(0)},
            3, NULL);
    tensor_destroy(drawn);
    tensor_destroy(keep);
    tensor_destroy(scaled);
    return y;
}

/* ---- refusals -------------------------------------------------------------------------------- */

bool tape_refuses_untracked(const char *what) {
    fail(CB_ERR_ARGUMENT,
         "%s: nothing that the tensor was computed from requires a gradient, "
         "it was computed without one (cb_no_grad_open, cb_detach), or gradients went back from it "
         "in a compiled function already",
         what);
    return false;
}

bool tape_refuses_write(bool target) {
    fail(CB_ERR_ARGUMENT,
         "%s: %s requires a gradient, and a write in place has none: compute a new tensor "
         "(cb_slice_scatter, cb_where, cb_stack), or write between cb_no_grad_open and "
         "cb_no_grad_close",
         write_name(), target ? "the target" : "the value");
    return false;
}

bool tape_fits(const char *what, const Meta *y, const Meta *given) {
    char texts[2][128];
    meta_format(y, texts[0], sizeof texts[0]);
    if (!given) {
        if (meta_numel(y) == 1) return true;
        fail(CB_ERR_SHAPE, "%s: %s is no single number: give the gradient to begin with", what,
             texts[0]);
        return false;
    }
    meta_format(given, texts[1], sizeof texts[1]);
    if (given->dtype == y->dtype && given->rank == y->rank &&
        !memcmp(given->size, y->size, sizeof *y->size * y->rank))
        return true;
    fail(CB_ERR_SHAPE, "%s: a gradient of %s for a tensor of %s", what, texts[1], texts[0]);
    return false;
}
