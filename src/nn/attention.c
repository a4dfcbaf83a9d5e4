/* MultiheadAttention, batch first unless it is made otherwise.
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

/* ---- masks ---------------------------------------------------------------------------------- */

/* PyTorch's module says with true what is forbidden. */
static Tensor *as_numbers(Tensor *mask) {
    if (!mask || cb_dtype_of(mask) != CB_BOOL) return mask;
    return (cb_where)(cb_operand_tensor(mask), cb_operand_float(-(double)INFINITY),
                      cb_operand_float(0));
}

/* Both of two masks, each of them absent or to broadcast to [batch, heads, length, source]. */
static Tensor *merged(Tensor *a, Tensor *b) {
    if (!a || !b) return a ? a : b;
    if (cb_dtype_of(a) == CB_BOOL && cb_dtype_of(b) == CB_BOOL)
        return (cb_logical_or)(cb_operand_tensor(a), cb_operand_tensor(b));
    return (cb_add)(cb_operand_tensor(as_numbers(a)), cb_operand_tensor(as_numbers(b)));
}

/* [batch * heads, length, source] -> [batch, heads, length, source] */
static Tensor *by_heads(const Module *self, Tensor *mask, int64_t batch) {
    if (!mask || cb_rank(mask) != 3) return mask;
    return (cb_reshape)(mask,
                        cb_dims(batch, self->config.first, cb_size(mask, 1), cb_size(mask, 2)));
}

/* [batch, source], or [source] without a batch -> [batch, 1, 1, source] */
static Tensor *by_keys(const Module *self, Tensor *mask, int64_t batch, int64_t source) {
    int rank = cb_rank(mask);
    bool fits = rank >= 1 && cb_size(mask, -1) == source &&
                (rank == 2 ? cb_size(mask, 0) == batch : rank == 1 && batch == 1);
    if (fits) return (cb_reshape)(mask, cb_dims(batch, 1, 1, source));
    fail(CB_ERR_SHAPE, "%s: key_padding_mask is [%lld, %lld]", self->type, (long long)batch,
         (long long)source);
    return NULL;
}

/* ---- attention ------------------------------------------------------------------------------ */

static bool check_input(const Module *self, const Tensor *x) {
    if (cb_rank(x) == 3 && cb_size(x, 2) == self->config.second) return true;
    fail(CB_ERR_SHAPE, "%s: inputs are [batch, length, %lld] or [length, %lld]", self->type,
         (long long)self->config.second, (long long)self->config.second);
    return false;
}

typedef struct Attention {
    Module *self;
    Tensor *x[3]; /* query, key, value, with a batch */
    Tensor *mask; /* to broadcast to [batch, heads, length, source], or NULL */
    bool same;    /* all three are one: one product makes their projections */
    bool flat;    /* given without a batch */
} Attention;

static double dropout_of(const Module *self) { return self->training ? self->config.number : 0.0; }

/* Heads side by side again, through the projection out. */
static Tensor *finish(Module *self, Tensor *y) {
    y = (cb_transpose)(y, 1, 2);
    y = y ? (cb_reshape)(y, cb_dims(cb_size(y, 0), cb_size(y, 1), self->config.second)) : NULL;
    return cb_module_forward(self->child[0].module, &y, 1);
}

static void project_all(const Attention *a, Tensor **part) {
    int64_t embed = a->self->config.second;
    Tensor *all =
        a->same ? (cb_linear)(a->x[0], layer_own(a->self, 0), layer_own(a->self, 1)) : NULL;
    for (int i = 0; i < 3; i++) {
        part[i] = a->same ? (cb_narrow)(all, 2, i * embed, embed) : project(a->self, a->x[i], i);
        part[i] = split_heads(a->self, part[i]);
    }
}

/* scaled_dot_product_attention says with true what is allowed. */
static Tensor *attend(const Attention *a) {
    Tensor *part[3], *mask = a->mask;
    project_all(a, part);
    if (mask && cb_dtype_of(mask) == CB_BOOL) {
        mask = (cb_logical_not)(cb_operand_tensor(mask));
        if (!mask) return NULL;
    }
    return finish(a->self,
                  (cb_scaled_dot_product_attention)(part[0], part[1], part[2], mask,
                                                    dropout_of(a->self), false, 0.0, false));
}

/* The same with its weights, after dropout, as PyTorch gives them. */
static Tensor *attend_with_weights(const Attention *a, bool average, Tensor **weights) {
    Tensor *part[3];
    const Module *self = a->self;
    double scale = 1 / sqrt((double)(self->config.second / self->config.first));
    project_all(a, part);
    Tensor *scores = (cb_matmul)(part[0], (cb_transpose)(part[1], -2, -1));
    scores = (cb_mul)(cb_operand_tensor(scores), cb_operand_float(scale));
    if (a->mask)
        scores = (cb_add)(cb_operand_tensor(scores), cb_operand_tensor(as_numbers(a->mask)));
    Tensor *each = (cb_softmax)(scores, -1);
    if (dropout_of(self) > 0) each = (cb_dropout)(each, dropout_of(self), true);
    *weights = average ? (cb_mean)(each, cb_dims_one(1), false) : each;
    return finish(a->self, (cb_matmul)(each, part[2]));
}

/* The inputs as [batch, length, embed]. */
static bool open_attention(Attention *a, Module *self, Tensor *const *x) {
    *a = (Attention){.self = self, .same = x[0] == x[1] && x[1] == x[2]};
    a->flat = x[0] && cb_rank(x[0]) == 2;
    for (int i = 0; i < 3; i++) {
        if (!x[i]) return false;
        a->x[i] = x[i];
        if (a->flat)
            a->x[i] = (cb_unsqueeze)(x[i], 0);
        else if (!self->config.flag && cb_rank(x[i]) == 3)
            a->x[i] = (cb_transpose)(x[i], 0, 1);
        if (!a->x[i] || !check_input(self, a->x[i])) return false;
    }
    return true;
}

/* The result as the inputs were given. */
static Tensor *as_given(const Attention *a, Tensor *y) {
    if (a->flat) return (cb_squeeze)(y, cb_dims_one(0));
    return a->self->config.flag ? y : (cb_transpose)(y, 0, 1);
}

static Tensor *attention(Module *self, Tensor *const *inputs, int count) {
    if (count != 1 && count != 3 && count != 4) {
        fail(CB_ERR_ARGUMENT, "%s takes x, or query, key, value and perhaps a mask: not %d inputs",
             self->type, count);
        return NULL;
    }
    Attention a;
    Tensor *const all[] = {inputs[0], inputs[count == 1 ? 0 : 1], inputs[count == 1 ? 0 : 2]};
    if (!open_attention(&a, self, all)) return NULL;
    if (count == 4 && !(a.mask = by_heads(self, inputs[3], cb_size(a.x[0], 0)))) return NULL;
    return as_given(&a, attend(&a));
}

cb_tensor *cb_multihead_attention(cb_module *attention_module, cb_tensor *query, cb_tensor *key,
                                  cb_tensor *value, cb_tensor *key_padding_mask,
                                  cb_tensor *attn_mask, bool average_attn_weights,
                                  cb_tensor **weights) {
    Attention a;
    Module *self = attention_module;
    Tensor *const x[] = {query, key, value};
    if (weights) *weights = NULL;
    if (self && self->forward != attention) {
        fail(CB_ERR_ARGUMENT, "cb_multihead_attention: %s is no MultiheadAttention", self->type);
        return NULL;
    }
    if (!self || !open_attention(&a, self, x)) return NULL;
    int64_t batch = cb_size(a.x[0], 0), source = cb_size(a.x[1], 1);
    Tensor *keys = key_padding_mask ? by_keys(self, key_padding_mask, batch, source) : NULL;
    Tensor *scores = by_heads(self, attn_mask, batch);
    if ((key_padding_mask && !keys) || (attn_mask && !scores)) return NULL;
    a.mask = merged(keys, scores);
    if ((keys || scores) && !a.mask) return NULL;
    Tensor *y = weights ? attend_with_weights(&a, average_attn_weights, weights) : attend(&a);
    if (weights && a.flat) *weights = (cb_squeeze)(*weights, cb_dims_one(0));
    return as_given(&a, y);
}

/* The projection out, which PyTorch keeps apart from other Linears by its type; its bias starts
 * at 0. */
static Module *projection_new(int64_t embed, bool bias) {
    Module *linear = (cb_nn_linear)(embed, embed, bias);
    if (bias) layer_value(&linear, "bias", layer_filled(cb_dims(embed), 0, CB_F32));
    char *type = memory_copy_text("NonDynamicallyQuantizableLinear");
    if (linear && type) {
        memory_free(linear->type);
        linear->type = type;
        return linear;
    }
    if (!type) fail_memory(32);
    memory_free(type);
    cb_module_free(linear);
    return NULL;
}

cb_module *(cb_nn_multihead_attention)(int64_t embed_dim, int64_t num_heads, double dropout,
                                       bool bias, bool batch_first) {
    if (embed_dim < 1 || num_heads < 1 || embed_dim % num_heads ||
        !(dropout >= 0 && dropout <= 1)) {
        fail(CB_ERR_ARGUMENT,
             "MultiheadAttention: %lld heads do not divide embed_dim %lld, or "
             "dropout %g is no probability",
             (long long)num_heads, (long long)embed_dim, dropout);
        return NULL;
    }
    double bound = sqrt(6.0 / (4.0 * (double)embed_dim)); /* xavier_uniform */
    Module *module = module_layer("MultiheadAttention", attention, "");
    layer_value(&module, "in_proj_weight", layer_uniform(cb_dims(3 * embed_dim, embed_dim), bound));
    if (bias)
        layer_value(&module, "in_proj_bias", layer_filled(cb_dims(3 * embed_dim), 0, CB_F32));
    else
        layer_absent(&module, "in_proj_bias");
    if (!module) return NULL;
    module->fresh = true;
    module->config =
        (Config){.number = dropout, .first = num_heads, .second = embed_dim, .flag = batch_first};
    Module *out = projection_new(embed_dim, bias);
    if (out && cb_module_inputs(module, "query, key, value") == CB_OK &&
        cb_module_add(module, "out_proj", out))
        return module;
    cb_module_free(out);
    cb_module_free(module);
    return NULL;
}
