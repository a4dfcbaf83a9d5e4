/* Layers with weights: Linear, Embedding, LayerNorm, RMSNorm, initialized as PyTorch does.
 *
 *     cb_nn_linear(4, 8, true): parameters weight f32[8, 4] and bias f32[8], both uniform in
 *     (-1/sqrt(4), 1/sqrt(4)): what kaiming_uniform with a = sqrt(5) comes to. */
#include "nn/module.h"
#include <math.h>
#include <stdarg.h>

/* Layers may be made inside a traced function: their initial values are not part of its graph. */
static Tensor *uniform(cb_dim_list sizes, double bound) {
    Tracer *tracer = tracer_set(NULL);
    cb_scope_open();
    Tensor *unit = (cb_rand)(sizes, CB_F32);
    Tensor *scaled = (cb_mul)(cb_operand_tensor(unit), cb_operand_float(2 * bound));
    Tensor *result = (cb_sub)(cb_operand_tensor(scaled), cb_operand_float(bound));
    if (result) cb_keep(result);
    cb_scope_close();
    tracer_set(tracer);
    return result;
}

static Tensor *normal(cb_dim_list sizes) {
    Tracer *tracer = tracer_set(NULL);
    Tensor *result = (cb_randn)(sizes, CB_F32);
    tracer_set(tracer);
    return result;
}

static Tensor *filled(cb_dim_list sizes, double value) {
    Tracer *tracer = tracer_set(NULL);
    Tensor *result = (cb_full)(sizes, value, CB_F32);
    tracer_set(tracer);
    return result;
}

static Module *layer(const char *type, cb_forward_function *forward, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static Module *layer(const char *type, cb_forward_function *forward, const char *format, ...) {
    char extra[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(extra, sizeof extra, format, arguments);
    va_end(arguments);
    return module_layer(type, forward, true, extra);
}

static bool one_input(const Module *module, int count) {
    if (count == 1) return true;
    fail(CB_ERR_ARGUMENT, "%s takes one input, not %d", module->type, count);
    return false;
}

/* Parameters of the layer itself stand at fixed places: no lookup by name on each call. */
static Tensor *own(const Module *module, int index) {
    return index < module->tensor_count ? module->tensor[index].tensor : NULL;
}

static Tensor *linear(Module *self, Tensor *const *inputs, int count) {
    if (!one_input(self, count)) return NULL;
    return (cb_linear)(inputs[0], own(self, 0), own(self, 1));
}

cb_module *cb_nn_linear(int64_t in_features, int64_t out_features, bool bias) {
    if (in_features < 0 || out_features < 0) {
        fail(CB_ERR_ARGUMENT, "Linear: negative number of features: %lld, %lld",
             (long long)in_features, (long long)out_features);
        return NULL;
    }
    Module *module =
        layer("Linear", linear, "in_features=%lld, out_features=%lld, bias=%s",
              (long long)in_features, (long long)out_features, bias ? "True" : "False");
    double bound = in_features > 0 ? 1.0 / sqrt((double)in_features) : 0.0;
    if (!module_init(&module, "weight", uniform(cb_dims(out_features, in_features), bound)))
        return NULL;
    if (bias)
        module_init(&module, "bias", uniform(cb_dims(out_features), bound));
    else
        cb_module_parameter(module, "bias", NULL);
    return module;
}

static Tensor *embedding(Module *self, Tensor *const *inputs, int count) {
    if (!one_input(self, count)) return NULL;
    return (cb_embedding)(inputs[0], own(self, 0));
}

cb_module *cb_nn_embedding(int64_t count, int64_t dim) {
    if (count < 0 || dim < 0) {
        fail(CB_ERR_ARGUMENT, "Embedding: negative size: %lld, %lld", (long long)count,
             (long long)dim);
        return NULL;
    }
    Module *module = layer("Embedding", embedding, "%lld, %lld", (long long)count, (long long)dim);
    module_init(&module, "weight", normal(cb_dims(count, dim)));
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
    Module *module = layer(type, forward, "%s", buffer_text(&extra));
    arena_free(arena);
    if (!module) return NULL;
    module->config.dims = sizes;
    module->config.number = eps;
    return module;
}

static Tensor *layer_norm(Module *self, Tensor *const *inputs, int count) {
    if (!one_input(self, count)) return NULL;
    return (cb_layer_norm)(inputs[0], self->config.dims, own(self, 0), own(self, 1),
                           self->config.number);
}

cb_module *cb_nn_layer_norm(cb_dim_list normalized_shape, double eps) {
    Module *module = norm_layer("LayerNorm", layer_norm, normalized_shape, eps);
    if (!module || !module_init(&module, "weight", filled(normalized_shape, 1))) return NULL;
    module_init(&module, "bias", filled(normalized_shape, 0));
    return module;
}

static Tensor *rms_norm(Module *self, Tensor *const *inputs, int count) {
    if (!one_input(self, count)) return NULL;
    return (cb_rms_norm)(inputs[0], self->config.dims, own(self, 0), self->config.number);
}

cb_module *cb_nn_rms_norm(cb_dim_list normalized_shape, double eps) {
    Module *module = norm_layer("RMSNorm", rms_norm, normalized_shape, eps);
    if (module) module_init(&module, "weight", filled(normalized_shape, 1));
    return module;
}
