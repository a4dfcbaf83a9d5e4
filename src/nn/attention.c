/* MultiheadAttention, batch first.
 *
 * In:  query [batch, length, embed], key and value [batch, source, embed], perhaps a mask.
 * Out: out_proj(attention of each head, side by side), [batch, length, embed].
 * Parameters as PyTorch's: in_proj_weight [3 * embed, embed] (query, key, value below one another),
 * in_proj_bias, out_proj.weight, out_proj.bias.
 *
 *     cb_forward(attention, x): self-attention, one product for query, key and value */
#include "base/memory.h"
#include "nn/layer.h"
#include <math.h>

/* [batch, length, embed] -> [batch, heads, length, embed / heads] */
static Tensor *split_heads(const Module *self, Tensor *x) {
    int64_t heads = self->config.first, embed = self->config.second;
    x = x ? (cb_reshape)(x, cb_dims(cb_size(x, 0), cb_size(x, 1), heads, embed / heads)) : NULL;
    return (cb_transpose)(x, 1, 2);
}

/* One of the three projections: rows [part * embed, ...) of the weight. */
static Tensor *project(const Module *self, Tensor *x, int part) {
    int64_t embed = self->config.second;
    Tensor *weight = layer_own(self, 0), *bias = layer_own(self, 1);
    return (cb_linear)(x, (cb_narrow)(weight, 0, part * embed, embed),
                       bias ? (cb_narrow)(bias, 0, part * embed, embed) : NULL);
}

/* PyTorch's module says with true what is forbidden, scaled_dot_product_attention what is
 * allowed. */
static Tensor *mask_of(const Module *self, Tensor *mask, int64_t batch) {
    if (mask && cb_dtype_of(mask) == CB_BOOL) mask = (cb_logical_not)(cb_operand_tensor(mask));
    if (!mask || cb_rank(mask) != 3) return mask;
    return (cb_reshape)(mask,
                        cb_dims(batch, self->config.first, cb_size(mask, 1), cb_size(mask, 2)));
}

static bool check_input(const Module *self, const Tensor *x) {
    if (cb_rank(x) == 3 && cb_size(x, 2) == self->config.second) return true;
    fail(CB_ERR_SHAPE, "%s: inputs are [batch, length, %lld] or [length, %lld]", self->type,
         (long long)self->config.second, (long long)self->config.second);
    return false;
}

static Tensor *attend(Module *self, Tensor *const *x, bool same, Tensor *mask) {
    int64_t embed = self->config.second;
    Tensor *part[3];
    Tensor *all = same ? (cb_linear)(x[0], layer_own(self, 0), layer_own(self, 1)) : NULL;
    for (int i = 0; i < 3; i++) {
        part[i] = same ? (cb_narrow)(all, 2, i * embed, embed) : project(self, x[i], i);
        part[i] = split_heads(self, part[i]);
    }
    double dropout = self->training ? self->config.number : 0.0;
    Tensor *y = (cb_scaled_dot_product_attention)(part[0], part[1], part[2], mask, dropout, false,
                                                  0.0, false);
    y = (cb_transpose)(y, 1, 2);
    y = y ? (cb_reshape)(y, cb_dims(cb_size(y, 0), cb_size(y, 1), embed)) : NULL;
    return cb_module_forward(self->child[0].module, &y, 1);
}

static Tensor *attention(Module *self, Tensor *const *inputs, int count) {
    if (count != 1 && count != 3 && count != 4) {
        fail(CB_ERR_ARGUMENT, "%s takes x, or query, key, value and perhaps a mask: not %d inputs",
             self->type, count);
        return NULL;
    }
    bool same = count == 1 || (inputs[0] == inputs[1] && inputs[1] == inputs[2]);
    Tensor *x[3];
    bool flat = inputs[0] && cb_rank(inputs[0]) == 2;
    for (int i = 0; i < 3; i++) {
        x[i] = inputs[count == 1 ? 0 : i];
        if (!x[i]) return NULL;
        if (flat) x[i] = (cb_unsqueeze)(x[i], 0);
        if (!x[i] || !check_input(self, x[i])) return NULL;
    }
    Tensor *mask = count == 4 ? mask_of(self, inputs[3], cb_size(x[0], 0)) : NULL;
    if (count == 4 && !mask) return NULL;
    Tensor *y = attend(self, x, same, mask);
    return flat ? (cb_squeeze)(y, cb_dims(0)) : y;
}

/* The projection out, which PyTorch keeps apart from other Linears by its type; its bias starts
 * at 0. */
static Module *projection_new(int64_t embed, bool bias) {
    Module *linear = cb_nn_linear(embed, embed, bias);
    char *type = linear ? memory_copy_text("NonDynamicallyQuantizableLinear") : NULL;
    if (type) {
        memory_free(linear->type);
        linear->type = type;
        if (bias) module_init(&linear, "bias", layer_filled(cb_dims(embed), 0, CB_F32), false);
        return linear;
    }
    if (linear) fail_memory(32);
    cb_module_free(linear);
    return NULL;
}

cb_module *cb_nn_multihead_attention(int64_t embed_dim, int64_t heads, double dropout, bool bias) {
    if (embed_dim < 1 || heads < 1 || embed_dim % heads || !(dropout >= 0 && dropout <= 1)) {
        fail(CB_ERR_ARGUMENT,
             "MultiheadAttention: %lld heads do not divide embed_dim %lld, or "
             "dropout %g is no probability",
             (long long)heads, (long long)embed_dim, dropout);
        return NULL;
    }
    Module *module = layer_new("MultiheadAttention", attention, "%s", "");
    if (!module) return NULL;
    module->config = (Config){.number = dropout, .first = heads, .second = embed_dim};
    double bound = sqrt(6.0 / (4.0 * (double)embed_dim)); /* xavier_uniform */
    cb_dim_list sizes = cb_dims(3 * embed_dim, embed_dim);
    if (!module_init(&module, "in_proj_weight", layer_uniform(sizes, bound), false)) return NULL;
    if (!bias)
        cb_module_parameter(module, "in_proj_bias", NULL);
    else if (!module_init(&module, "in_proj_bias", layer_filled(cb_dims(3 * embed_dim), 0, CB_F32),
                          false))
        return NULL;
    Module *out = projection_new(embed_dim, bias);
    if (out && cb_module_inputs(module, "query, key, value") == CB_OK &&
        cb_module_add(module, "out_proj", out))
        return module;
    cb_module_free(out);
    cb_module_free(module);
    return NULL;
}
