/* Leaves: tensors whose gradient is wanted, and what cb_backward adds up in them.
 *
 *     cb_requires_grad_(w, true)      w has a leaf for its history
 *     cb_requires_grad_(w, false)     none: the leaf is paused, so that what was computed from it
 *                                     leads there again, should it begin again
 *
 * A tracer hears of it all (meet_leaf, change_leaf): under fullgraph an entry has what the function
 * does to the gradients that it finds. */
#include "eager/tape_node.h"
#include "tensor/tracer.h"

Tensor **tape_gradient(const Tensor *x) {
    if (!x->history || tape_node(x)->op != OP_none || tape_node(x)->ended || tape_node(x)->promised)
        return NULL;
    return &tape_node(x)->gradient;
}

History *tape_promise(const Tensor *x) {
    Meta meta = tensor_meta(x);
    TapeNode *node = tape_node_new(TAPE_OP, OP_none, 0, &meta);
    if (!node) return NULL;
    node->ended = node->promised = true;
    return &node->history;
}

Op tape_origin(const Tensor *x, Site *site) {
    *site = tape_node(x)->site;
    return tape_node(x)->op;
}

bool tape_is_promised(const Tensor *x) { return x->history && tape_node(x)->promised; }

static bool may_change(Tracer *tracer) {
    return !tracer || !tracer->change_leaf || tracer->change_leaf(tracer);
}

static bool leaf_begin(Tensor *x) {
    if (!dtype_is_float(x->dtype)) {
        fail(CB_ERR_DTYPE, "requires_grad: a tensor of %s has no gradient",
             cb_dtype_name(x->dtype));
        return false;
    }
    Tracer *tracer = tracer_current();
    if (!may_change(tracer)) return false;
    if ((tracer && !tracer->change_leaf) || !x->storage) {
        fail(CB_ERR_GRAPH, "requires_grad: not inside of what is being traced: make the leaf "
                           "outside");
        return false;
    }
    if (x->paused) { /* what was computed from it comes back to it */
        x->history = x->paused;
        x->paused = NULL;
        tape_node(x)->ended = false;
        return true;
    }
    Meta meta = tensor_meta(x);
    TapeNode *leaf = tape_node_new(TAPE_OP, OP_none, 0, &meta);
    if (!leaf) return false;
    x->history = &leaf->history;
    return true;
}

static void meet_leaf(Tensor *x, LeafMeeting how) {
    Tracer *tracer = tracer_current();
    if (x->storage && tracer && tracer->meet_leaf) tracer->meet_leaf(tracer, x, how);
}

static bool is_required(Tensor *x) {
    Tracer *tracer = tracer_current();
    meet_leaf(x, ASKS_WHETHER);
    return x->history ||
           (tracer && tracer->requires_grad && x->trace && tracer->requires_grad(tracer, x));
}

static void drop_gradient(Tensor **gradient) {
    tensor_destroy(*gradient);
    *gradient = NULL;
}

void leaf_take(Tensor **gradient, Tensor *g) {
    *gradient = g;
    if (!g) return;
    cb_keep(g);
    g->is_gradient = true;
    g->gradient = gradient;
}

void leaf_forget(Tensor *x) {
    if (x->is_gradient) drop_gradient(x->gradient);
}

static bool leaf_end(Tensor *x) {
    Tensor **gradient = tape_gradient(x);
    if (!gradient) {
        fail(CB_ERR_ARGUMENT,
             "requires_grad: the tensor is the result of %s; cb_detach gives one "
             "without a gradient",
             x->history && !tape_node(x)->promised ? op_info(tape_node(x)->op)->name : "an op");
        return false;
    }
    if (!may_change(tracer_current())) return false;
    drop_gradient(gradient);
    tape_node(x)->ended = true;
    x->paused = x->history;
    x->history = NULL;
    return true;
}

cb_tensor *(cb_requires_grad_)(cb_tensor *handle, bool on) {
    Tensor *x = tensor_in(handle, "requires_grad");
    if (!x) return NULL;
    bool is = is_required(x);
    return is == on || (on ? leaf_begin : leaf_end)(x) ? handle : NULL;
}

bool cb_requires_grad(const cb_tensor *handle) {
    Tensor *x = tensor_in(handle, "requires_grad");
    return x && is_required(x);
}

/* Where x's gradient is, for somebody who looks at it, or frees it. */
static Tensor **meet_gradient(Tensor *x, LeafMeeting how) {
    Tensor **gradient = x ? tape_gradient(x) : NULL;
    if (x) meet_leaf(x, gradient ? how : ASKS_WHETHER);
    return gradient;
}

cb_tensor *cb_tensor_grad(const cb_tensor *handle) {
    Tensor **gradient = meet_gradient(tensor_in(handle, "tensor_grad"), READS_GRADIENT);
    return gradient ? tensor_out(*gradient) : NULL;
}

void cb_zero_grad(cb_tensor *handle) {
    Tensor **gradient = meet_gradient(tensor_in(handle, "zero_grad"), FREES_GRADIENT);
    if (gradient) drop_gradient(gradient);
}
