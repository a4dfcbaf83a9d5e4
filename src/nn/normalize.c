/* BatchNorm, InstanceNorm, 1d to 3d, and GroupNorm: norms by channel.
 *
 *     cb_nn_batch_norm2d(64): weight, bias; running_mean, running_var, num_batches_tracked
 *
 * While it trains, a norm that tracks takes the batch's own mean and variance, and moves the
 * running ones towards them in place: running = running + momentum * (batch - running), the
 * variance with n - 1. In evaluation it uses the running ones. What tracks nothing always takes the
 * batch's own, as an instance norm does by default. */
#include "nn/layer.h"
#include "op_calls.h"

enum { WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VAR, BATCHES };

_Static_assert(ATTR_batch_norm_training == ATTR_instance_norm_use_input_stats &&
                   ATTR_batch_norm_eps == ATTR_instance_norm_eps &&
                   ATTR_batch_norm_momentum == ATTR_instance_norm_momentum,
               "batch_norm and instance_norm are called alike");

/* ---- running statistics, besides what the op does -------------------------------------------- */

/* Without a momentum (below 0) all batches so far have the same weight. */
static bool average(Tensor *value, Tensor *batch, Tensor *batches) {
    Tensor *step = op_sub(cb_operand_tensor(batch), cb_operand_tensor(value));
    step = op_div(cb_operand_tensor(step), cb_operand_tensor(batches));
    return (cb_assign)(value, op_add(cb_operand_tensor(value), cb_operand_tensor(step)));
}

static bool count_one(const Module *self, Tensor *x) {
    Tensor *mean = layer_own(self, RUNNING_MEAN), *var = layer_own(self, RUNNING_VAR);
    Tensor *batches = layer_own(self, BATCHES), *batch_mean, *batch_var;
    Tensor *next = op_add(cb_operand_tensor(batches), cb_operand_int(1));
    bool moves = attr_float(&self->attrs, ATTR_batch_norm_momentum) < 0 && cb_numel(x) > 0;
    if (moves && !(norm_statistics(self->op, x, &batch_mean, &batch_var) &&
                   average(mean, batch_mean, next) && average(var, batch_var, next)))
        return false;
    return (cb_assign)(batches, next);
}

/* PyTorch's instance norm does not count its batches, and stays where it is without a momentum. */
static bool count_batch(const Module *self, Tensor *x) {
    NormMove move;
    if (self->op == OP_instance_norm || !norm_move_begin(&move)) return true;
    bool done = count_one(self, x);
    norm_move_end(&move);
    return done;
}

/* ---- forward -------------------------------------------------------------------------------- */

static bool check_batch(const Module *self, const Tensor *x) {
    int rank = cb_rank(x), least = (int)self->config.first, most = (int)self->config.second;
    if (rank < least || rank > most) {
        char other[24] = "";
        if (most > least) snprintf(other, sizeof other, " or %dD", most);
        fail(CB_ERR_SHAPE, "%s: expected %dD%s input (got %dD input)", self->type, least, other,
             rank);
        return false;
    }
    if (self->op == OP_instance_norm || cb_numel(x) != (cb_size)(x, 1)) return true;
    if (!self->training && layer_own(self, RUNNING_MEAN)) return true;
    fail(CB_ERR_SHAPE, "%s: expected more than 1 value per channel when training", self->type);
    return false;
}

/* InstanceNorm takes what has no batch as one instance. */
static Tensor *norm_forward(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count)) return NULL;
    Tensor *x = inputs[0];
    if (!x || !check_batch(self, x)) return NULL;
    bool alone = self->op == OP_instance_norm && cb_rank(x) < self->config.second;
    if (alone) x = op_unsqueeze(x, 0);
    Tensor *mean = layer_own(self, RUNNING_MEAN), *var = layer_own(self, RUNNING_VAR);
    Attrs attrs = self->attrs;
    attrs.word[ATTR_batch_norm_training] = self->training || !mean;
    bool averages = attr_float(&attrs, ATTR_batch_norm_momentum) < 0 && self->training;
    cb_operand operand[] = {cb_operand_tensor(x), cb_operand_tensor(averages ? NULL : mean),
                            cb_operand_tensor(averages ? NULL : var),
                            cb_operand_tensor(layer_own(self, WEIGHT)),
                            cb_operand_tensor(layer_own(self, BIAS))};
    Tensor *y = apply_call(self->op, operand, 5, &attrs);
    if (y && self->training && mean && !count_batch(self, x)) return NULL;
    return alone ? op_squeeze(y, cb_dims_one(0)) : y;
}

/* ---- making --------------------------------------------------------------------------------- */

static void add_affine(Module **module, int64_t features, bool affine) {
    if (!affine) {
        layer_absent(module, "weight");
        layer_absent(module, "bias");
        return;
    }
    layer_value(module, "weight", layer_filled(cb_dims(features), 1, CB_F32));
    layer_value(module, "bias", layer_filled(cb_dims(features), 0, CB_F32));
}

typedef struct Norm {
    const char *type;
    Op op;
    int least, most; /* rank of the input */
    int64_t features;
    double eps, momentum;
    bool affine, track;
} Norm;

static Module *norm_new(Norm n) {
    if (n.features < 1) {
        fail(CB_ERR_ARGUMENT, "%s: %lld features", n.type, (long long)n.features);
        return NULL;
    }
    Attrs attrs = attrs_default(n.op);
    attr_set_float(&attrs, ATTR_batch_norm_eps, n.eps);
    attr_set_float(&attrs, ATTR_batch_norm_momentum, n.momentum);
    Module *module = layer_new(n.type, n.op, &attrs,
                               "%lld, eps=%s, momentum=%s, affine=%s, track_running_stats=%s",
                               (long long)n.features, layer_number(n.eps).at,
                               n.momentum < 0 ? "None" : layer_number(n.momentum).at,
                               layer_bool(n.affine), layer_bool(n.track));
    add_affine(&module, n.features, n.affine);
    if (n.track) {
        layer_buffer(&module, "running_mean", layer_filled(cb_dims(n.features), 0, CB_F32));
        layer_buffer(&module, "running_var", layer_filled(cb_dims(n.features), 1, CB_F32));
        layer_buffer(&module, "num_batches_tracked", layer_filled(CB_NO_DIMS, 0, CB_I64));
    }
    if (!module) return NULL;
    module->forward = norm_forward;
    module->config = (Config){.first = n.least, .second = n.most};
    return module;
}

#define NORM(name, type, op, least, most)                                                          \
    cb_module *(cb_nn_##name)(int64_t num_features, double eps, double momentum, bool affine,      \
                              bool track_running_stats) {                                          \
        return norm_new((Norm){type, op, least, most, num_features, eps, momentum, affine,         \
                               track_running_stats});                                              \
    }

NORM(batch_norm1d, "BatchNorm1d", OP_batch_norm, 2, 3)
NORM(batch_norm2d, "BatchNorm2d", OP_batch_norm, 4, 4)
NORM(batch_norm3d, "BatchNorm3d", OP_batch_norm, 5, 5)
NORM(instance_norm1d, "InstanceNorm1d", OP_instance_norm, 2, 3)
NORM(instance_norm2d, "InstanceNorm2d", OP_instance_norm, 3, 4)
NORM(instance_norm3d, "InstanceNorm3d", OP_instance_norm, 4, 5)

cb_module *(cb_nn_group_norm)(int64_t num_groups, int64_t num_channels, double eps, bool affine) {
    if (num_groups < 1 || num_channels < 1 || num_channels % num_groups) {
        fail(CB_ERR_ARGUMENT, "GroupNorm: %lld groups do not divide %lld channels",
             (long long)num_groups, (long long)num_channels);
        return NULL;
    }
    Attrs attrs = attrs_default(OP_group_norm);
    attrs.word[ATTR_group_norm_num_groups] = num_groups;
    attr_set_float(&attrs, ATTR_group_norm_eps, eps);
    Module *module = layer_new("GroupNorm", OP_group_norm, &attrs, "%lld, %lld, eps=%s, affine=%s",
                               (long long)num_groups, (long long)num_channels, layer_number(eps).at,
                               layer_bool(affine));
    add_affine(&module, num_channels, affine);
    return module;
}
