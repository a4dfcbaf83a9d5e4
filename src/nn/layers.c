/* Layers with weights: Linear, Embedding, LayerNorm, RMSNorm, initialized as PyTorch does.
 *
 *     cb_nn_linear(4, 8, true): parameters weight f32[8, 4] and bias f32[8], both uniform in
 *     (-1/sqrt(4), 1/sqrt(4)): what kaiming_uniform with a = sqrt(5) comes to. */
#include "nn/layer.h"
#include <math.h>

static Tensor *linear(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count)) return NULL;
    return (cb_linear)(inputs[0], layer_own(self, 0), layer_own(self, 1));
}

cb_module *cb_nn_linear(int64_t in_features, int64_t out_features, bool bias) {
    if (in_features < 0 || out_features < 0) {
        fail(CB_ERR_ARGUMENT, "Linear: negative number of features: %lld, %lld",
             (long long)in_features, (long long)out_features);
        return NULL;
    }
    Module *module =
        layer_new("Linear", linear, "in_features=%lld, out_features=%lld, bias=%s",
                  (long long)in_features, (long long)out_features, bias ? "True" : "False");
    double bound = in_features > 0 ? 1.0 / sqrt((double)in_features) : 0.0;
    if (!module_init(&module, "weight", layer_uniform(cb_dims(out_features, in_features), bound),
                     false))
        return NULL;
    if (bias)
        module_init(&module, "bias", layer_uniform(cb_dims(out_features), bound), false);
    else
        cb_module_parameter(module, "bias", NULL);
    return module;
}

static Tensor *embedding(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count)) return NULL;
    return (cb_embedding)(inputs[0], layer_own(self, 0));
}

cb_module *cb_nn_embedding(int64_t count, int64_t dim) {
    if (count < 0 || dim < 0) {
        fail(CB_ERR_ARGUMENT, "Embedding: negative size: %lld, %lld", (long long)count,
             (long long)dim);
        return NULL;
    }
    Module *module =
        layer_new("Embedding", embedding, "%lld, %lld", (long long)count, (long long)dim);
    module_init(&module, "weight", layer_normal(cb_dims(count, dim)), false);
    return module;
}

/* "(3, 4)", "(4,)": the sizes as Python prints a tuple; eps as its repr. */
static Module *norm_layer(const char *type, cb_forward_function *forward, cb_dim_list sizes,
                          double eps) {
    if (sizes.count < 1 || sizes.count > CB_MAX_RANK) {
        fail(CB_ERR_ARGUMENT, "%s: the normalized shape has 1 to %d dimensions", type, CB_MAX_RANK);
        return NULL;
    }
    Arena *arena = arena_new();
    if (!arena || arena_guard(arena)) {
        arena_free(arena);
        fail_memory(0);
        return NULL;
    }
    Buffer extra = buffer_new(arena);
    for (int i = 0; i < sizes.count; i++)
        putf(&extra, "%s%lld", i ? ", " : "(", (long long)sizes.at[i]);
    put(&extra, sizes.count == 1 ? ",), eps=" : "), eps=");
    put_double(&extra, eps);
    put(&extra, ", elementwise_affine=True");
    Module *module = layer_new(type, forward, "%s", buffer_text(&extra));
    arena_free(arena);
    if (!module) return NULL;
    module->config.dims = sizes;
    module->config.number = eps;
    return module;
}

static Tensor *layer_norm(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count)) return NULL;
    return (cb_layer_norm)(inputs[0], self->config.dims, layer_own(self, 0), layer_own(self, 1),
                           self->config.number);
}

cb_module *cb_nn_layer_norm(cb_dim_list normalized_shape, double eps) {
    Module *module = norm_layer("LayerNorm", layer_norm, normalized_shape, eps);
    if (!module ||
        !module_init(&module, "weight", layer_filled(normalized_shape, 1, CB_F32), false))
        return NULL;
    module_init(&module, "bias", layer_filled(normalized_shape, 0, CB_F32), false);
    return module;
}

static Tensor *rms_norm(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count)) return NULL;
    return (cb_rms_norm)(inputs[0], self->config.dims, layer_own(self, 0), self->config.number);
}

cb_module *cb_nn_rms_norm(cb_dim_list normalized_shape, double eps) {
    Module *module = norm_layer("RMSNorm", rms_norm, normalized_shape, eps);
    if (module) module_init(&module, "weight", layer_filled(normalized_shape, 1, CB_F32), false);
    return module;
}
