/* The public API of going back: by the thread's tracer or the tape, and what is made of it.
 *
 * A product of the Jacobian with a vector comes by going back twice (Townsend, "A new trick for
 * calculating Jacobian vector products", 2017): the gradient by x is linear in the gradient u that
 * it begins with, and what leads from u to it, gone back over with v, is J v.
 *
 *     g = J^T u, recorded         cb_grad_graph(y, u, x)
 *     J v                         the gradient of sum(g * v) by u */
#include "eager/apply.h"
#include "eager/tape.h"

#include <string.h>

/* By the thread's tracer, as long as there is one; then by the tape. */
static bool go_back_here(const GoingBack *back, Tensor **out) {
    Tracer *tracer = tracer_current();
    bool traced = tracer && tracer->go_back;
    if (traced && tracer->go_back(tracer, back, out)) return true;
    if (!tracer_current()) return tape_go_back(back, out);
    if (!traced) fail(CB_ERR_GRAPH, "%s: not inside of what is being traced", back->what);
    return false;
}

cb_status(cb_backward)(cb_tensor *handle, cb_tensor *gradient) {
    Tensor *y = tensor_in(handle, "backward"), *g = tensor_in(gradient, "backward: the gradient");
    if (!y) return fail(CB_ERR_ARGUMENT, "backward: the tensor is NULL");
    if (gradient && !g) return cb_error_status();
    const GoingBack back = {.what = "backward", .y = y, .given = g};
    return go_back_here(&back, NULL) ? CB_OK : cb_error_status();
}

static cb_status take_gradients(cb_tensor *handle, cb_tensor *gradient, cb_tensor *const *wrt,
                                int count, cb_tensor **out, bool graph) {
    Tensor *y = tensor_in(handle, "grad"), *g = tensor_in(gradient, "grad: the gradient");
    Tensor *x[CB_MAX_ARGS], *result[CB_MAX_ARGS] = {NULL};
    if (!y || !wrt || !out || count < 0 || count > CB_MAX_ARGS)
        return fail(CB_ERR_ARGUMENT, "grad: NULL, or not 0 to %d tensors", CB_MAX_ARGS);
    if ((gradient && !g) || !tensors_in(wrt, count, "grad", x)) return cb_error_status();
    for (int k = 0; k < count; k++)
        if (!x[k]) return fail(CB_ERR_ARGUMENT, "grad: tensor %d is NULL", k);
    const GoingBack back = {"grad", y, g, x, count, graph};
    bool done = go_back_here(&back, result);
    for (int k = 0; k < count; k++) {
        if (result[k] && result[k]->kept) cb_scope_add(result[k]);
        out[k] = tensor_out(result[k]);
    }
    return done ? CB_OK : cb_error_status();
}

cb_status(cb_grad)(cb_tensor *y, cb_tensor *gradient, cb_tensor *const *wrt, int count,
                   cb_tensor **out) {
    return take_gradients(y, gradient, wrt, count, out, false);
}

cb_status(cb_grad_graph)(cb_tensor *y, cb_tensor *gradient, cb_tensor *const *wrt, int count,
                         cb_tensor **out) {
    return take_gradients(y, gradient, wrt, count, out, true);
}

/* ---- J v ------------------------------------------------------------------------------------- */

/* u: like y, with a history that nobody asks for. */
static Tensor *begin_with(Tensor *y) {
    cb_operand input[] = {cb_operand_tensor(y), cb_operand_int(0)};
    return apply(OP_mul, input, 2, NULL);
}

static Tensor *product_sum(Tensor *g, Tensor *v) {
    cb_operand pair[] = {cb_operand_tensor(g), cb_operand_tensor(v)};
    Tensor *product = apply(OP_mul, pair, 2, NULL);
    cb_operand input = cb_operand_tensor(product);
    Attrs attrs = attrs_default(OP_sum);
    return product ? apply(OP_sum, &input, 1, &attrs) : NULL;
}

/* The sum of g[k] * v[k] over all elements; *sum is NULL where no g is there. False with an
 * error. */
static bool add_products(Tensor *const *g, Tensor *const *v, int count, Tensor **sum) {
    *sum = NULL;
    for (int k = 0; k < count; k++) {
        if (!g[k]) continue;
        Tensor *one = product_sum(g[k], v[k]);
        if (!one) return false;
        cb_operand pair[] = {cb_operand_tensor(*sum), cb_operand_tensor(one)};
        *sum = *sum ? apply(OP_add, pair, 2, NULL) : one;
        if (!*sum) return false;
    }
    return true;
}

/* What comes is kept; all else is the scope's. False with an error. */
static bool go_back_twice(Tensor *y, Tensor *const *x, Tensor *const *v, int count, Tensor **out) {
    Tensor *g[CB_MAX_ARGS] = {NULL}, *u = begin_with(y), *sum;
    if (!u) return false;
    const GoingBack first = {"jvp", y, u, x, count, true};
    if (!go_back_here(&first, g)) return false;
    for (int k = 0; k < count; k++)
        if (g[k] && g[k]->kept) cb_scope_add(g[k]);
    if (!add_products(g, v, count, &sum)) return false;
    const GoingBack second = {"jvp", sum, NULL, &u, 1, false};
    return !sum || go_back_here(&second, out);
}

cb_status(cb_jvp)(cb_tensor *handle, cb_tensor *const *wrt, cb_tensor *const *direction, int count,
                  cb_tensor **out) {
    Tensor *y = tensor_in(handle, "jvp"), *x[CB_MAX_ARGS], *v[CB_MAX_ARGS], *result = NULL;
    if (!y || !wrt || !direction || !out || count < 0 || count > CB_MAX_ARGS)
        return fail(CB_ERR_ARGUMENT, "jvp: NULL, or not 0 to %d tensors", CB_MAX_ARGS);
    if (!tensors_in(wrt, count, "jvp", x) || !tensors_in(direction, count, "jvp: a direction", v))
        return cb_error_status();
    for (int k = 0; k < count; k++) {
        if (!x[k] || !v[k]) return fail(CB_ERR_ARGUMENT, "jvp: tensor %d is NULL", k);
        Meta of = tensor_meta(x[k]), given = tensor_meta(v[k]);
        if (!tape_fits("jvp", &of, &given)) return cb_error_status();
    }
    cb_scope_open();
    bool done = go_back_twice(y, x, v, count, &result);
    if (result && !result->kept) cb_keep(result);
    cb_scope_close();
    if (result) cb_scope_add(result);
    *out = tensor_out(result);
    return done ? CB_OK : cb_error_status();
}
