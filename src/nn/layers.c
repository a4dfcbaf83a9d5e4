/* Layers with a constructor of their own: Linear, Embedding, LayerNorm, RMSNorm, PReLU with their
 * weights, initialized as PyTorch does; GELU, Upsample, Identity, the dropouts.
 *
 *     cb_nn_linear(4, 8, true): parameters weight f32[8, 4] and bias f32[8], both uniform in
 *     (-1/sqrt(4), 1/sqrt(4)): what kaiming_uniform with a = sqrt(5) comes to.
 *
 * Layers that are one op and nothing else are rows of layers.def. */
#include "nn/layer.h"
#include "op_calls.h"
#include <math.h>
#include <string.h>

/* ---- with weights --------------------------------------------------------------------------- */

cb_module *(cb_nn_linear)(int64_t in_features, int64_t out_features, bool bias) {
    if (in_features < 0 || out_features < 0) {
        fail(CB_ERR_ARGUMENT, "Linear: negative number of features: %lld, %lld",
             (long long)in_features, (long long)out_features);
        return NULL;
    }
    double bound = in_features > 0 ? 1.0 / sqrt((double)in_features) : 0.0;
    Module *module =
        layer_new("Linear", OP_linear, NULL, "in_features=%lld, out_features=%lld, bias=%s",
                  (long long)in_features, (long long)out_features, layer_bool(bias));
    layer_value(&module, "weight", layer_uniform(cb_dims(out_features, in_features), bound));
    if (bias)
        layer_value(&module, "bias", layer_uniform(cb_dims(out_features), bound));
    else
        layer_absent(&module, "bias");
    return module;
}

/* A row of zeros, drawn like the others: the same seed gives the others the same values. */
static Tensor *without_row(Tensor *weight, int64_t row) {
    Tracer *tracer = tracer_set(NULL);
    cb_scope_open();
    Tensor *padding = op_select(weight, 0, row);
    bool cleared = padding && (cb_fill_)(padding, cb_operand_int(0));
    cb_scope_close();
    tracer_set(tracer);
    if (cleared) return weight;
    tensor_destroy(weight);
    return NULL;
}

/* The op takes the numbers first, as the layer does. */
cb_module *(cb_nn_embedding)(int64_t num_embeddings, int64_t embedding_dim, int64_t padding_idx) {
    if (num_embeddings < 0 || embedding_dim < 0 || padding_idx >= num_embeddings) {
        fail(CB_ERR_ARGUMENT,
             "Embedding: negative size or padding_idx outside: %lld, %lld, padding_idx %lld",
             (long long)num_embeddings, (long long)embedding_dim, (long long)padding_idx);
        return NULL;
    }
    char padding[48] = "";
    if (padding_idx >= 0)
        snprintf(padding, sizeof padding, ", padding_idx=%lld", (long long)padding_idx);
    Module *module = layer_new("Embedding", OP_embedding, NULL, "%lld, %lld%s",
                               (long long)num_embeddings, (long long)embedding_dim, padding);
    Tensor *weight = layer_normal(cb_dims(num_embeddings, embedding_dim));
    if (weight && padding_idx >= 0) weight = without_row(weight, padding_idx);
    layer_value(&module, "weight", weight);
    return module;
}

_Static_assert(ATTR_layer_norm_normalized == ATTR_rms_norm_normalized,
               "layer_norm and rms_norm are called alike");

static Module *norm_layer(const char *type, Op op, cb_dim_list sizes, const Attrs *given,
                          LayerText eps, bool affine) {
    if (sizes.count < 1 || sizes.count > CB_MAX_RANK) {
        fail(CB_ERR_ARGUMENT, "%s: the normalized shape has 1 to %d dimensions", type, CB_MAX_RANK);
        return NULL;
    }
    Attrs attrs = *given;
    attr_set_dims(&attrs, ATTR_layer_norm_normalized, sizes);
    Module *module = layer_new(type, op, &attrs, "%s, eps=%s, elementwise_affine=%s",
                               layer_tuple(sizes).at, eps.at, layer_bool(affine));
    if (affine)
        layer_value(&module, "weight", layer_filled(sizes, 1, CB_F32));
    else
        layer_absent(&module, "weight");
    return module;
}

cb_module *(cb_nn_layer_norm)(cb_dim_list normalized_shape, double eps, bool elementwise_affine,
                              bool bias) {
    Attrs attrs = attrs_default(OP_layer_norm);
    attr_set_float(&attrs, ATTR_layer_norm_eps, eps);
    Module *module = norm_layer("LayerNorm", OP_layer_norm, normalized_shape, &attrs,
                                layer_number(eps), elementwise_affine);
    if (elementwise_affine && bias)
        layer_value(&module, "bias", layer_filled(normalized_shape, 0, CB_F32));
    else
        layer_absent(&module, "bias");
    return module;
}

cb_module *(cb_nn_rms_norm)(cb_dim_list normalized_shape, cb_operand eps, bool elementwise_affine) {
    Attrs attrs = attrs_default(OP_rms_norm);
    if (!attr_take_number(&attrs, ATTR_rms_norm_eps, eps, "RMSNorm", "eps")) return NULL;
    return norm_layer("RMSNorm", OP_rms_norm, normalized_shape, &attrs, layer_operand(eps),
                      elementwise_affine);
}

cb_module *(cb_nn_prelu)(int64_t num_parameters, double init) {
    if (num_parameters < 1) {
        fail(CB_ERR_ARGUMENT, "PReLU: %lld parameters", (long long)num_parameters);
        return NULL;
    }
    Module *module =
        layer_new("PReLU", OP_prelu, NULL, "num_parameters=%lld", (long long)num_parameters);
    layer_value(&module, "weight", layer_filled(cb_dims(num_parameters), init, CB_F32));
    return module;
}

/* ---- without -------------------------------------------------------------------------------- */

cb_module *(cb_nn_gelu)(bool tanh_form) {
    Attrs attrs = attrs_default(OP_gelu);
    attrs.word[ATTR_gelu_tanh] = tanh_form;
    return layer_new("GELU", OP_gelu, &attrs, "approximate='%s'", tanh_form ? "tanh" : "none");
}

static Tensor *identity(Module *self, Tensor *const *inputs, int count) {
    return layer_one_input(self, count) ? inputs[0] : NULL;
}

cb_module *(cb_nn_identity)(void) { return module_layer("Identity", identity, ""); }

static bool set_mode(Attrs *attrs, const char *mode) {
    int word;
    if (mode && flag_of_text(OP_interpolate, mode, &word)) {
        if (word != NO_FLAG) attrs->word[word] = true;
        return true;
    }
    fail(CB_ERR_ARGUMENT,
         "Upsample: the mode is nearest, nearest-exact, linear, bilinear, trilinear, bicubic or "
         "area, not %s",
         mode ? mode : "NULL");
    return false;
}

static bool positive(cb_float_list list) {
    for (int i = 0; i < list.count; i++)
        if (!(list.at[i] > 0)) return false;
    return list.count > 0;
}

cb_module *(cb_nn_upsample)(cb_dim_list size, cb_float_list scale_factor, const char *mode,
                            bool align_corners, bool recompute_scale_factor) {
    Attrs attrs = attrs_default(OP_interpolate);
    if (!set_mode(&attrs, mode)) return NULL;
    bool sized = size.count > 0;
    bool smooth = attrs.word[ATTR_interpolate_linear] || attrs.word[ATTR_interpolate_cubic];
    if (sized == (scale_factor.count > 0) || (!sized && !positive(scale_factor)) ||
        (align_corners && !smooth) || (sized && recompute_scale_factor)) {
        fail(CB_ERR_ARGUMENT,
             "Upsample: needs either a size or a positive scale_factor, not %s and %s; "
             "align_corners goes with linear modes and bicubic, recompute_scale_factor with a "
             "scale_factor",
             layer_given(size).at, layer_numbers(scale_factor).at);
        return NULL;
    }
    attr_set_dims(&attrs, ATTR_interpolate_size, size);
    attr_set_floats(&attrs, ATTR_interpolate_scale_factor, scale_factor);
    attrs.word[ATTR_interpolate_align_corners] = align_corners;
    attrs.word[ATTR_interpolate_recompute_scale_factor] = recompute_scale_factor;
    return layer_new("Upsample", OP_interpolate, &attrs, "%s=%s, mode='%s'",
                     sized ? "size" : "scale_factor",
                     sized ? layer_given(size).at : layer_numbers(scale_factor).at, mode);
}

/* ---- dropout -------------------------------------------------------------------------------- */

/* In evaluation the input itself comes back, as in PyTorch. */
static Tensor *dropout(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count)) return NULL;
    if (!self->training || self->config.number == 0) return inputs[0];
    return op_dropout(inputs[0], self->config.number, true);
}

/* Whole channels: what dropout leaves of ones, [batch, channels, 1...] or [channels, 1...]. */
static Tensor *channel_dropout(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count) || !inputs[0]) return NULL;
    Tensor *x = inputs[0];
    int spatial = (int)self->config.first, rank = cb_rank(x);
    if (rank != spatial + 1 && rank != spatial + 2) {
        fail(CB_ERR_SHAPE, "%s: expected %dD or %dD input (got %dD input)", self->type, spatial + 1,
             spatial + 2, rank);
        return NULL;
    }
    if (!self->training || self->config.number == 0) return x;
    cb_dim_list sizes = {rank, {1, 1, 1, 1, 1, 1, 1, 1}};
    for (int i = 0; i < rank - spatial; i++) sizes.at[i] = cb_size(x, i);
    Tensor *channels = op_dropout(op_ones(sizes, cb_dtype_of(x)), self->config.number, true);
    return op_mul(cb_operand_tensor(x), cb_operand_tensor(channels));
}

static Module *dropout_layer(const char *type, cb_forward_function *forward, double p,
                             int spatial) {
    if (!(p >= 0 && p <= 1)) {
        fail(CB_ERR_ARGUMENT, "%s: the probability is between 0 and 1, not %g", type, p);
        return NULL;
    }
    Module *module = layer_new(type, OP_dropout, NULL, "p=%s, inplace=False", layer_number(p).at);
    if (!module) return NULL;
    module->forward = forward;
    module->fresh = false;
    module->config = (Config){.number = p, .first = spatial};
    return module;
}

cb_module *(cb_nn_dropout)(double p) { return dropout_layer("Dropout", dropout, p, 0); }

cb_module *(cb_nn_dropout1d)(double p) { return dropout_layer("Dropout1d", channel_dropout, p, 1); }

cb_module *(cb_nn_dropout2d)(double p) { return dropout_layer("Dropout2d", channel_dropout, p, 2); }

cb_module *(cb_nn_dropout3d)(double p) { return dropout_layer("Dropout3d", channel_dropout, p, 3); }
