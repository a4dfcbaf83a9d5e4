/* Functions over x, of the leaves w and v, whose results are gone back from outside. */
#ifndef CARBIDE_TESTS_JOINT_PROGRAMS_H
#define CARBIDE_TESTS_JOINT_PROGRAMS_H

#include "fixture.h"

static cb_tensor *w, *v; /* leaves */

static cb_tensor *leaf(cb_tensor *x) { return cb_requires_grad_(cb_clone(cb_detach(x)), true); }

static cb_tensor *product(cb_tensor *x) {
    return cb_gelu(cb_add(cb_matmul(x, w), cb_select(v, 0, 0)), false);
}

static cb_tensor *rows(cb_tensor *x) {
    return cb_layer_norm(cb_mul(cb_softmax(cb_matmul(x, w), 1), v), 4, NULL, NULL);
}

static cb_tensor *drops(cb_tensor *x) {
    return cb_mul(cb_dropout(cb_matmul(x, w), 0.5, true), cb_dropout(v, 0.25, true));
}

static cb_tensor *scans(cb_tensor *x) {
    return cb_cumsum(cb_mul(cb_gather(cb_matmul(x, w), 1, cb_argsort(cb_mul(x, v), 1)), v), 0);
}

static cb_tensor *trains_a_norm(cb_tensor *x) {
    static cb_tensor *mean, *var;
    mean = cb_zeros(cb_dims(4)), var = cb_ones(cb_dims(4));
    return cb_batch_norm(cb_matmul(x, w), mean, var, cb_select(v, 0, 1), NULL, true);
}

static cb_tensor *views(cb_tensor *x) {
    return cb_transpose(cb_slice(cb_mul(x, cb_add(w, v)), 1, 1, 4, 2), 0, 1);
}

static cb_tensor *constant(cb_tensor *x) { return cb_add(cb_add(w, x), v); }

static cb_tensor *of_no_grad(cb_tensor *x) {
    cb_no_grad_open();
    cb_tensor *scale = cb_mul(cb_exp(w), x);
    cb_no_grad_close();
    return cb_sub(cb_mul(cb_add(v, w), scale), cb_detach(cb_mul(v, w)));
}

static cb_tensor *attends(cb_tensor *x) {
    cb_tensor *q = cb_reshape(cb_matmul(x, w), cb_dims(1, 4, 4));
    cb_tensor *k = cb_unsqueeze(cb_matmul(x, v), 0);
    return cb_scaled_dot_product_attention(q, k, q);
}

static cb_function_1 *const programs[] = {product, rows,     drops,      scans,  trains_a_norm,
                                          views,   constant, of_no_grad, attends};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static void begin(void) {
    cb_manual_seed(3);
    w = leaf(cb_randn(cb_dims(4, 4)));
    v = leaf(cb_randn(cb_dims(4, 4)));
}

#endif
