/* BatchNorm1d, BatchNorm2d, GroupNorm, InstanceNorm2d: norms by channel.
 *
 *     cb_nn_batch_norm2d(64): weight, bias; running_mean, running_var, num_batches_tracked
 *
 * While it trains, a batch norm takes the batch's own mean and variance, and moves the running ones
 * towards them in place: running = running + momentum * (batch - running), the variance with n - 1.
 * In evaluation it uses the running ones. */
#include "nn/layer.h"

enum { WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VAR, BATCHES };

static cb_dim_list all_but_channels(int rank) {
    cb_dim_list dims = {0, {0}};
    for (int i = 0; i < rank; i++)
        if (i != 1) dims.at[dims.count++] = i;
    return dims;
}

static bool move_statistics(Module *self, Tensor *x) {
    cb_dtype dtype = cb_dtype_of(x);
    cb_dim_list dims = all_but_channels(cb_rank(x));
    if (dtype != CB_F64) x = (cb_to)(x, CB_F32);
    Tensor *mean = layer_own(self, RUNNING_MEAN), *var = layer_own(self, RUNNING_VAR);
    Tensor *batches = layer_own(self, BATCHES);
    double momentum = self->config.second_number;
    Tensor *new_mean = (cb_lerp)(mean, (cb_mean)(x, dims, false), momentum);
    Tensor *new_var = (cb_lerp)(var, (cb_var)(x, dims, 1, false), momentum);
    Tensor *next = (cb_add)(cb_operand_tensor(batches), cb_operand_int(1));
    return (cb_assign)(mean, new_mean) && (cb_assign)(var, new_var) && (cb_assign)(batches, next);
}

static bool check_batch(const Module *self, const Tensor *x) {
    int rank = cb_rank(x), least = (int)self->config.first, most = (int)self->config.second;
    if (rank < least || rank > most) {
        fail(CB_ERR_SHAPE, "%s: expected %dD%s input (got %dD input)", self->type, least,
             most > least ? " or 3D" : "", rank);
        return false;
    }
    if (!self->training || cb_numel(x) != (cb_size)(x, 1)) return true;
    fail(CB_ERR_SHAPE, "%s: expected more than 1 value per channel when training", self->type);
    return false;
}

static Tensor *batch_norm(Module *self, Tensor *const *inputs, int count) {
    Tensor *x = count == 1 ? inputs[0] : NULL;
    double eps = self->config.number;
    if (!layer_one_input(self, count) || !x || !check_batch(self, x)) return NULL;
    Tensor *weight = layer_own(self, WEIGHT), *bias = layer_own(self, BIAS);
    if (!self->training)
        return (cb_batch_norm)(x, layer_own(self, RUNNING_MEAN), layer_own(self, RUNNING_VAR),
                               weight, bias, false, 0.0, eps);
    Tensor *y = (cb_batch_norm)(x, NULL, NULL, weight, bias, true, 0.0, eps);
    return y && move_statistics(self, x) ? y : NULL;
}

static Module *affine(Module *module, int64_t features) {
    if (!module_init(&module, "weight", layer_filled(cb_dims(features), 1, CB_F32), false))
        return NULL;
    module_init(&module, "bias", layer_filled(cb_dims(features), 0, CB_F32), false);
    return module;
}

static Module *batch_norm_new(const char *type, int64_t features, double eps, double momentum,
                              int least, int most) {
    if (features < 1) {
        fail(CB_ERR_ARGUMENT, "%s: %lld features", type, (long long)features);
        return NULL;
    }
    Module *module = layer_new(
        type, batch_norm, "%lld, eps=%s, momentum=%s, affine=True, track_running_stats=True",
        (long long)features, layer_number(eps).at, layer_number(momentum).at);
    if (!module) return NULL;
    module->config =
        (Config){.number = eps, .second_number = momentum, .first = least, .second = most};
    module = affine(module, features);
    if (module_init(&module, "running_mean", layer_filled(cb_dims(features), 0, CB_F32), true) &&
        module_init(&module, "running_var", layer_filled(cb_dims(features), 1, CB_F32), true))
        module_init(&module, "num_batches_tracked", layer_filled(CB_NO_DIMS, 0, CB_I64), true);
    return module;
}

cb_module *cb_nn_batch_norm1d(int64_t features, double eps, double momentum) {
    return batch_norm_new("BatchNorm1d", features, eps, momentum, 2, 3);
}

cb_module *cb_nn_batch_norm2d(int64_t features, double eps, double momentum) {
    return batch_norm_new("BatchNorm2d", features, eps, momentum, 4, 4);
}

static Tensor *group_norm(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count)) return NULL;
    return (cb_group_norm)(inputs[0], self->config.first, layer_own(self, WEIGHT),
                           layer_own(self, BIAS), self->config.number);
}

cb_module *cb_nn_group_norm(int64_t groups, int64_t channels, double eps) {
    if (groups < 1 || channels < 1 || channels % groups) {
        fail(CB_ERR_ARGUMENT, "GroupNorm: %lld groups do not divide %lld channels",
             (long long)groups, (long long)channels);
        return NULL;
    }
    Module *module = layer_new("GroupNorm", group_norm, "%lld, %lld, eps=%s, affine=True",
                               (long long)groups, (long long)channels, layer_number(eps).at);
    if (!module) return NULL;
    module->config = (Config){.number = eps, .first = groups};
    return affine(module, channels);
}

static Tensor *instance_norm(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count)) return NULL;
    return (cb_instance_norm)(inputs[0], NULL, NULL, layer_own(self, WEIGHT), layer_own(self, BIAS),
                              true, 0.0, self->config.number);
}

cb_module *cb_nn_instance_norm2d(int64_t features, double eps, bool with_affine) {
    Module *module =
        layer_new("InstanceNorm2d", instance_norm,
                  "%lld, eps=%s, momentum=0.1, affine=%s, track_running_stats=False",
                  (long long)features, layer_number(eps).at, with_affine ? "True" : "False");
    if (!module) return NULL;
    module->config.number = eps;
    return with_affine ? affine(module, features) : module;
}
