/* Gradient scaling, as torch.amp.GradScaler: small gradients of half floats would be 0, so the loss
 * is multiplied, and the gradients are divided, by a number that is halved whenever one of them is
 * none, and doubled after many steps without such.
 *
 * Nothing reads a value: whether a step is skipped is a tensor, by which each write of the update
 * chooses, so that all of it is part of a captured step. */
#include "base/memory.h"
#include "tensor/read.h"
#include "train/train.h"

#include <math.h>

enum { MOST_OPTIMIZERS = 8 };

typedef enum ScalerStage { STAGE_READY, STAGE_UNSCALED, STAGE_STEPPED } ScalerStage;

typedef struct Checked { /* since the last update */
    cb_optimizer *optimizer;
    cb_tensor *found; /* bool: one of its gradients was no number */
    ScalerStage stage;
} Checked;

struct cb_scaler {
    Tomb tomb; /* first */
    bool enabled;
    cb_module *root, *checks; /* the state dict; who owns `found` */
    cb_tensor *scale, *tracker;
    Checked checked[MOST_OPTIMIZERS];
    int count;
};

static bool scaler_lives(const cb_scaler *scaler, const char *what) {
    return tomb_lives(scaler ? &scaler->tomb : NULL, what);
}

/* ---- making ---------------------------------------------------------------------------------- */

static bool buffers_make(cb_scaler *scaler, const TrainArguments *arguments) {
    static const char *const kept[] = {"growth_factor", "backoff_factor", "growth_interval"};
    scaler->root = cb_module_new("Scaler", NULL, NULL);
    scaler->checks = scaler->root ? cb_module_new("Checks", NULL, NULL) : NULL;
    if (!scaler->checks) return false;
    scaler->scale = buffer_number(scaler->root, "scale", argument(arguments, "init_scale"), CB_F32);
    for (int i = 0; i < 3; i++)
        if (!buffer_number(scaler->root, kept[i], argument(arguments, kept[i]), CB_F64))
            return false;
    scaler->tracker = buffer_number(scaler->root, "_growth_tracker", 0, CB_I64);
    return scaler->scale && scaler->tracker;
}

cb_scaler *cb_scaler_new(const char *text) {
    TrainArguments arguments =
        arguments_of("GradScaler", "init_scale=65536, growth_factor=2, backoff_factor=0.5, "
                                   "growth_interval=2000, enabled=True");
    if (!arguments_take(&arguments, text) || !arguments_within(&arguments)) return NULL;
    cb_scaler *scaler = memory_zalloc(sizeof *scaler);
    if (!scaler) return fail_memory(sizeof *scaler), NULL;
    scaler->enabled = argument(&arguments, "enabled") != 0;
    Tracer *tracer = tracer_set(NULL);
    cb_scope_open();
    bool made = buffers_make(scaler, &arguments);
    cb_scope_close();
    tracer_set(tracer);
    if (made) return scaler;
    cb_scaler_free(scaler);
    return NULL;
}

void cb_scaler_free(cb_scaler *scaler) {
    if (!scaler || !scaler_lives(scaler, "cb_scaler_free: the scaler")) return;
    cb_module_free(scaler->root);
    cb_module_free(scaler->checks);
    tomb_bury(&scaler->tomb);
}

cb_module *cb_scaler_state(cb_scaler *scaler) {
    return scaler_lives(scaler, "cb_scaler_state: the scaler") ? scaler->root : NULL;
}

double cb_scaler_scale_now(cb_scaler *scaler) {
    if (!scaler_lives(scaler, "cb_scaler_scale_now: the scaler")) return NAN;
    const char *before = asking_begin("scaler_scale_now");
    double scale = scaler->enabled ? cb_item(scaler->scale) : 1;
    asking_end(before);
    return scale;
}

/* ---- a step ---------------------------------------------------------------------------------- */

cb_tensor *cb_scaler_scale(cb_scaler *scaler, cb_tensor *loss) {
    if (!scaler_lives(scaler, "cb_scaler_scale: the scaler")) return NULL;
    return scaler->enabled ? cb_mul(loss, scaler->scale) : cb_mul(loss, 1.0);
}

/* What is known of an optimizer; NULL with an error. One keeps its place, and so its tensor, which
 * captured steps know, until all places are taken and another needs one. */
static Checked *checked_of(cb_scaler *scaler, cb_optimizer *optimizer) {
    for (int i = 0; i < scaler->count; i++)
        if (scaler->checked[i].optimizer == optimizer) return &scaler->checked[i];
    for (int i = 0; i < MOST_OPTIMIZERS && scaler->count == MOST_OPTIMIZERS; i++) {
        if (scaler->checked[i].stage != STAGE_READY) continue;
        scaler->checked[i].optimizer = optimizer;
        return &scaler->checked[i];
    }
    if (scaler->count == MOST_OPTIMIZERS) {
        fail(CB_ERR_ARGUMENT, "GradScaler: more than %d optimizers since the last update",
             MOST_OPTIMIZERS);
        return NULL;
    }
    char name[16];
    snprintf(name, sizeof name, "%d", scaler->count);
    Tracer *tracer = tracer_set(NULL);
    cb_tensor *found = buffer_number(scaler->checks, name, 0, CB_BOOL);
    tracer_set(tracer);
    if (!found) return NULL;
    scaler->checked[scaler->count] = (Checked){optimizer, found, STAGE_READY};
    return &scaler->checked[scaler->count++];
}

/* Some gradient is there, and none of f16, whose quotients could be 0; else false with an error. */
static bool may_divide(const cb_optimizer *optimizer) {
    int found = 0;
    for (int i = 0; i < optimizer->slots; i++) {
        cb_tensor *gradient;
        if (!gradient_of(optimizer->slot[i].parameter, "GradScaler: a parameter", &gradient))
            return false;
        if (!gradient) continue;
        found++;
        if (cb_dtype_of(gradient) != CB_F16) continue;
        fail(CB_ERR_DTYPE, "GradScaler: gradients of f16 cannot be unscaled: parameters are f32 "
                           "under autocast");
        return false;
    }
    if (!found) fail(CB_ERR_ARGUMENT, "GradScaler: no parameter of the optimizer has a gradient");
    return found;
}

/* Gradients are divided; is one of them no number? NULL with an error. */
static cb_tensor *divide(const cb_optimizer *optimizer, cb_tensor *factor) {
    cb_tensor *fine = NULL;
    for (int i = 0; i < optimizer->slots; i++) {
        cb_tensor *gradient = cb_tensor_grad(optimizer->slot[i].parameter);
        if (!gradient) continue;
        cb_tensor *each = cb_all(cb_isfinite(gradient));
        fine = fine ? cb_logical_and(fine, each) : each;
        if (!fine || !cb_mul_(gradient, factor)) return NULL;
    }
    return cb_logical_not(fine);
}

static bool unscale(cb_scaler *scaler, Checked *checked) {
    if (!may_divide(checked->optimizer)) return false;
    cb_scope_open();
    cb_no_grad_open();
    cb_tensor *factor = cb_to(cb_reciprocal(cb_to(scaler->scale, CB_F64)), CB_F32);
    cb_tensor *found = divide(checked->optimizer, factor);
    bool done = found && cb_assign(checked->found, found);
    cb_no_grad_close();
    cb_scope_close();
    if (done) checked->stage = STAGE_UNSCALED;
    return done;
}

/* NULL with an error, unless the stage is at most this. */
static Checked *begin(cb_scaler *scaler, cb_optimizer *optimizer, ScalerStage most,
                      const char *what) {
    if (!scaler_lives(scaler, "GradScaler") || !optimizer_lives(optimizer, "GradScaler"))
        return NULL;
    Checked *checked = checked_of(scaler, optimizer);
    if (!checked || checked->stage <= most) return checked;
    fail(CB_ERR_ARGUMENT, "%s: the optimizer was %s already since the last update", what,
         checked->stage == STAGE_STEPPED ? "stepped" : "unscaled");
    return NULL;
}

cb_status cb_scaler_unscale_(cb_scaler *scaler, cb_optimizer *optimizer) {
    if (scaler && scaler_lives(scaler, "GradScaler") && !scaler->enabled) return CB_OK;
    Checked *checked = begin(scaler, optimizer, STAGE_READY, "cb_scaler_unscale_");
    return checked && unscale(scaler, checked) ? CB_OK : cb_error_status();
}

cb_status cb_scaler_step(cb_scaler *scaler, cb_optimizer *optimizer) {
    if (scaler && scaler_lives(scaler, "GradScaler") && !scaler->enabled)
        return (cb_optimizer_step)(optimizer);
    Checked *checked = begin(scaler, optimizer, STAGE_UNSCALED, "cb_scaler_step");
    if (!checked || (checked->stage == STAGE_READY && !unscale(scaler, checked)))
        return cb_error_status();
    cb_status status = optimizer_step_unless(optimizer, checked->found);
    if (status == CB_OK) checked->stage = STAGE_STEPPED; /* else it may be made again */
    return status;
}

/* What scale and tracker become. */
static bool adapt(cb_scaler *scaler, cb_tensor *found) {
    cb_tensor *scale = scaler->scale, *grown, *next = cb_add(scaler->tracker, 1);
    cb_tensor *due = cb_ge(next, cb_module_get(scaler->root, "growth_interval"));
    grown = cb_to(cb_mul(scale, cb_module_get(scaler->root, "growth_factor")), CB_F32);
    grown = cb_where(cb_logical_and(due, cb_isfinite(grown)), grown, scale);
    cb_tensor *less = cb_mul(scale, cb_module_get(scaler->root, "backoff_factor"));
    cb_tensor *reset = cb_logical_or(found, due);
    return cb_assign(scale, cb_where(found, less, grown)) &&
           cb_assign(scaler->tracker, cb_where(reset, 0, next));
}

cb_status cb_scaler_update(cb_scaler *scaler) {
    if (!scaler_lives(scaler, "cb_scaler_update: the scaler")) return cb_error_status();
    if (!scaler->enabled) return CB_OK;
    cb_scope_open();
    cb_tensor *found = NULL;
    for (int i = 0; i < scaler->count; i++) {
        Checked *checked = &scaler->checked[i];
        if (checked->stage != STAGE_READY)
            found = found ? cb_logical_or(found, checked->found) : checked->found;
        checked->stage = STAGE_READY;
    }
    if (!found) fail(CB_ERR_ARGUMENT, "cb_scaler_update: nothing was unscaled since the last one");
    bool done = found && adapt(scaler, found);
    cb_scope_close();
    return done ? CB_OK : cb_error_status();
}
