/* Clipping: gradients of several tensors, scaled together or limited one by one.
 *
 *     norm = sqrt(sum of all g * g);  g *= min(1, max_norm / (norm + 1e-6))
 *
 * As torch's, norms have the gradients' dtype, and what adds them up is f32 at least: 300 * 300 is
 * no f16, and a sum of ones in bf16 ends at 256. */
#include "train/train.h"

#include <math.h>

static cb_tensor *at_least_f32(cb_tensor *x) {
    return x ? cb_to(x, cb_promote(cb_dtype_of(x), CB_F32)) : NULL;
}

static cb_tensor *norm_of(cb_tensor *x, double type) {
    if (isinf(type)) return cb_amax(cb_abs(x));
    if (type == 2) return cb_norm(x);
    return cb_pow(cb_sum(cb_pow(at_least_f32(cb_abs(x)), type)), 1 / type);
}

/* The norm of all norms; NULL with an error. */
static cb_tensor *total_norm(cb_tensor *const *tensors, int count, double type) {
    cb_tensor *total = NULL;
    cb_dtype widest = CB_BOOL; /* of the gradients */
    for (int i = 0; i < count; i++) {
        cb_tensor *gradient;
        if (!gradient_of(tensors[i], "cb_clip_grad_norm_: a tensor", &gradient)) return NULL;
        if (!gradient) continue;
        cb_tensor *norm = at_least_f32(norm_of(gradient, type));
        if (!isinf(type)) norm = cb_pow(norm, type);
        if (total) norm = isinf(type) ? cb_maximum(total, norm) : cb_add(total, norm);
        if (!norm) return NULL;
        widest = (cb_promote)(widest, cb_dtype_of(gradient));
        total = norm;
    }
    if (!total) return cb_zeros(CB_NO_DIMS);
    return cb_to(isinf(type) ? total : cb_pow(total, 1 / type), widest);
}

static bool scale(cb_tensor *const *tensors, int count, cb_tensor *factor) {
    for (int i = 0; i < count; i++) {
        cb_tensor *gradient = cb_tensor_grad(tensors[i]);
        if (gradient && !cb_mul_(gradient, factor)) return false;
    }
    return true;
}

cb_tensor *cb_clip_grad_norm_(cb_tensor *const *tensors, int count, double max_norm,
                              double norm_type) {
    if (!(norm_type > 0) || !(max_norm >= 0)) {
        fail(CB_ERR_ARGUMENT, "cb_clip_grad_norm_: the norm %g of at most %g", norm_type, max_norm);
        return NULL;
    }
    cb_no_grad_open();
    cb_tensor *total = total_norm(tensors, count, norm_type);
    cb_tensor *factor = cb_minimum(cb_div(max_norm, cb_add(total, 1e-6)), 1.0);
    bool fine = factor && scale(tensors, count, factor);
    cb_no_grad_close();
    return fine ? total : NULL;
}

cb_status cb_clip_grad_value_(cb_tensor *const *tensors, int count, double value) {
    if (!(value >= 0)) return fail(CB_ERR_ARGUMENT, "cb_clip_grad_value_: at most %g", value);
    bool fine = true;
    cb_scope_open();
    cb_no_grad_open();
    for (int i = 0; i < count && fine; i++) {
        cb_tensor *gradient;
        fine = gradient_of(tensors[i], "cb_clip_grad_value_: a tensor", &gradient);
        if (gradient) fine = cb_assign(gradient, cb_clamp(gradient, -value, value)) != NULL;
    }
    cb_no_grad_close();
    cb_scope_close();
    return fine ? CB_OK : cb_error_status();
}
