/* A layer, as itself or in a checkpoint. */
#ifndef CARBIDE_TEST_CHECKPOINT_LAYER_H
#define CARBIDE_TEST_CHECKPOINT_LAYER_H

#include "carbide.h"

enum { ROWS = 8, WIDTH = 16 };

static bool plainly;     /* without checkpoints */
static cb_tensor *w, *v; /* leaves: a matrix and a row */
static int runs;         /* of the layer */

/* As cb_checkpoint, with one input. */
static cb_tensor *part(cb_function_n *function, void *user, cb_tensor *x) {
    cb_tensor *y = NULL;
    if (!plainly) return cb_checkpoint(function, user, &x, 1);
    return function(&x, 1, &y, user) > 0 ? y : NULL;
}

static cb_tensor *leaf(cb_dim_list sizes) {
    return cb_requires_grad_(cb_mul(cb_randn(sizes), 0.5), true);
}

static int layer(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count, (void)user;
    cb_tensor *h = cb_softmax(cb_gelu(cb_matmul(x[0], w)), 1);
    y[0] = cb_add(cb_mul(cb_exp(h), v), x[0]);
    runs++;
    return 1;
}

#endif
