/* Graph nodes -> loop IR: the value of a node at one position, as an expression.
 *
 * Views, pointwise ops, sources and index ops are functions of a position and are expanded in
 * place, down to leaves: nodes that live in a buffer, or that the same kernel computes. */
#ifndef CARBIDE_LOWER_LOWER_H
#define CARBIDE_LOWER_LOWER_H

#include "graph/graph.h"
#include "lower/index.h"

typedef struct Lowering Lowering;
struct Lowering {
    Kernel *kernel;
    /* Is node a leaf here? Then leaf gives its value at position (loads are guarded), or NULL when
     * it cannot be had there: the lowering fails. */
    bool (*is_leaf)(Lowering *lowering, const Node *node);
    Expr *(*leaf)(Lowering *lowering, const Node *node, Expr *const *position, Expr *guard);
    /* The i64[2] buffer of the random state. */
    Expr *(*random_state)(Lowering *lowering, int word);
    void *user;
    Map memo;
    bool precise; /* round f16 and bf16 after every op */
};

Lowering lowering_new(Kernel *kernel, void *user);
/* guard: a bool expression under which position is valid, or NULL. NULL when a leaf refused. */
Expr *lower_at(Lowering *lowering, const Node *node, Expr *const *position, Expr *guard);
/* The same, but expands node itself even when it is a leaf to others. */
Expr *lower_expand(Lowering *lowering, const Node *node, Expr *const *position);
/* Can node be expanded in place, without a loop of its own? */
bool lower_expands(const Node *node);

/* Views (lower/view.c): output position -> input position. */
void view_position(Kernel *kernel, const Node *node, Expr *const *position, Expr **input_position);
/* Position of input number i of a broadcasting node. */
void broadcast_position(Kernel *kernel, const Node *node, const Node *input, Expr *const *position,
                        Expr **input_position);

#endif
