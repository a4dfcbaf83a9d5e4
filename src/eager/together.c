/* Results that were computed together, as by a compiled function, on the tape.
 *
 *     a, b = f(x, w)        together, from the leaves x and w; a is part 0 of it, b part 1
 *     cb_backward(a + b)    part 0, part 1: their gradients come together, and are gone over once
 *
 * In: the histories of what it was computed from. Out: one for each result. */
#include "eager/tape_node.h"

History *tape_together(const TogetherSteps *steps, void *state, Tensor *const *source, int count) {
    TapeNode *node = tape_node_new(TAPE_TOGETHER, OP_backward, count, &(Meta){.rank = 0});
    if (!node) return NULL;
    for (int i = 0; i < count; i++) node->producer[i] = tape_retain(tape_node(source[i]));
    node->steps = steps;
    node->state = state;
    return &node->history;
}

History *tape_part(History *together, int k, const Meta *meta, Op op, Site site) {
    TapeNode *node = tape_node_new(TAPE_PART, op, 1, meta);
    if (!node) return NULL;
    TapeNode *whole = (TapeNode *)(void *)together;
    node->producer[0] = tape_retain(whole);
    node->part = k;
    node->site = site;
    if (whole->part < k) whole->part = k; /* the last one that there is */
    return &node->history;
}
