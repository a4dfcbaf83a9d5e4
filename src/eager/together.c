/* Results that were computed together, as by a compiled function, on the tape.
 *
 *     a, b = f(x, w)        together, from the leaves x and w; a is part 0 of it, b part 1
 *     cb_backward(a + b)    part 0, part 1: their gradients come together, and are gone over once
 *
 * In: the histories of what it was computed from. Out: one for each result. */
#include "base/memory.h"
#include "eager/tape_node.h"

static bool read_sources(Tensor *const *source, int count) {
    for (int i = 0; i < count; i++)
        if (!checkpoint_reads(source[i])) return false;
    return true;
}

static bool is_same(const TapeNode *node, const TogetherSteps *steps, const void *state,
                    Tensor *const *source, int count) {
    bool same = node->steps == steps && node->count == count && steps->is_same(node->state, state);
    for (int i = 0; i < count && same; i++) same = node->producer[i] == tape_node(source[i]);
    return same;
}

static TapeNode *node_of(Tensor *const *source, int count) {
    TapeNode *node = tape_node_new(TAPE_TOGETHER, OP_backward, count, &(Meta){.rank = 0});
    if (!node) return NULL;
    for (int i = 0; i < count; i++) node->producer[i] = tape_retain(tape_node(source[i]));
    if (read_sources(source, count) && checkpoint_add(node)) return node;
    history_release(&node->history);
    return NULL;
}

History *tape_together(const TogetherSteps *steps, void *state, Tensor *const *source, int count) {
    TapeNode *node;
    if (!checkpoint_meet(OP_backward, &(Meta){.rank = 0}, &node)) return NULL;
    bool known = node, same = known && is_same(node, steps, state, source, count);
    if (known && !same) checkpoint_differs(node, "with other tensors, ops or numbers");
    if (known) node = same ? tape_retain(node) : NULL;
    if (!known) node = node_of(source, count);
    if (!node) return NULL;
    if (known) steps->free(node->state);
    node->steps = steps;
    node->state = state;
    node->forgotten = false;
    return &node->history;
}

History *tape_part(History *together, int k, const Meta *meta, Op op, Site site) {
    TapeNode *node, *whole = (TapeNode *)(void *)together;
    if (!checkpoint_meet(op, meta, &node)) return NULL;
    bool same = node && node->kind == TAPE_PART && node->producer[0] == whole && node->part == k;
    if (node && !same) checkpoint_differs(node, "of another function");
    if (node) return same ? &tape_retain(node)->history : NULL;
    node = tape_node_new(TAPE_PART, op, 1, meta);
    if (!node) return NULL;
    node->producer[0] = tape_retain(whole);
    node->part = k;
    node->site = site;
    if (whole->part < k) whole->part = k; /* the last one that there is */
    if (checkpoint_add(node)) return &node->history;
    history_release(&node->history);
    return NULL;
}

History *tape_whole(const Tensor *x) {
    TapeNode *node = x->history ? tape_node(x) : NULL;
    return node && node->kind == TAPE_PART ? &node->producer[0]->history : NULL;
}

bool tape_takes_ops(History *together, Tensor *const *result) {
    TapeNode *whole = (TapeNode *)(void *)together;
    size_t bytes = sizeof(TapeNode *) * (size_t)(whole->part + 1);
    TapeNode **ops = whole->ops ? NULL : memory_zalloc(bytes);
    if (!ops && !whole->ops) fail_memory(bytes);
    for (int k = 0; ops && k <= whole->part; k++) {
        if (!result[k] || !result[k]->history) continue;
        ops[k] = tape_retain(tape_node(result[k]));
        hooks_move(whole, k, ops[k]);
    }
    if (ops) whole->ops = ops, whole->since = serial_next();
    return whole->ops;
}
