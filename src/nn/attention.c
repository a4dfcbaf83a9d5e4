/* MultiheadAttention, batch first unless it is made otherwise.
 *
 * In:  query [batch, length, embed], key [batch, source, kdim], value [batch, source, vdim],
 *      perhaps masks.
 * Out: out_proj(attention of each head, side by side), [batch, length, embed].
 * Parameters as PyTorch's: in_proj_weight [3 * embed, embed] (query, key, value below one another),
 * or, where key or value is of another width, q_proj_weight, k_proj_weight and v_proj_weight;
 * in_proj_bias, out_proj.weight, out_proj.bias. bias_k and bias_v [1, 1, embed] are one more key
 * and value, behind the projected ones; add_zero_attn puts zeros behind these. Masks do not hide
 * what was added.
 *
 *     cb_forward(attention, x): self-attention, one product for query, key and value */
#include "nn/layer.h"
#include "op_calls.h"
#include <math.h>

/* The places of the parameters, absent ones too. */
enum { PACKED, SEPARATE, BIAS = SEPARATE + 3, BIAS_K, BIAS_V };

typedef struct MultiheadCall {
    Module *self;
    Tensor *x[3]; /* query, key, value, with a batch */
    int64_t batch, length, source;
    Tensor *keys;   /* bool or numbers, [batch, 1, 1, source], or NULL */
    Tensor *scores; /* the same, [length, source] or [batch, heads, length, source] */
    bool causal;    /* scores is NULL, and a query sees the keys up to its own place */
    bool flat;      /* given without a batch */
} MultiheadCall;

static int64_t heads_of(const Module *self) { return self->config.first; }
static int64_t width_of(const Module *self) { return self->config.second; }
static double dropout_of(const Module *self) { return self->training ? self->config.number : 0.0; }

/* [2, 5, 8] */
static LayerText shape_of(const Tensor *x) {
    LayerText text = {"["};
    size_t used = 1;
    for (int i = 0; i < cb_rank(x); i++)
        used += (size_t)snprintf(text.at + used, sizeof text.at - used, "%s%lld", i ? ", " : "",
                                 (long long)cb_size(x, i));
    snprintf(text.at + used, sizeof text.at - used, "]");
    return text;
}

/* ---- projections ---------------------------------------------------------------------------- */

/* [batch, length, embed] -> [batch, heads, length, embed / heads] */
static Tensor *split_heads(const Module *self, Tensor *x) {
    int64_t heads = heads_of(self), embed = width_of(self);
    x = x ? op_reshape(x, cb_dims(cb_size(x, 0), cb_size(x, 1), heads, embed / heads)) : NULL;
    return op_transpose(x, 1, 2);
}

/* Projections first .. first + count - 1 of one x, side by side. */
static Tensor *project(const Module *self, Tensor *x, int first, int count) {
    int64_t embed = width_of(self);
    Tensor *weight = layer_own(self, PACKED), *bias = layer_own(self, BIAS);
    if (!weight)
        weight = layer_own(self, SEPARATE + first);
    else if (count < 3)
        weight = op_narrow(weight, 0, first * embed, count * embed);
    if (bias && count < 3) bias = op_narrow(bias, 0, first * embed, count * embed);
    return weight ? op_linear(x, weight, bias) : NULL;
}

/* Inputs that are one tensor share a product. */
static void project_all(const MultiheadCall *a, Tensor **part) {
    int64_t embed = width_of(a->self);
    bool packed = layer_own(a->self, PACKED);
    for (int first = 0, count; first < 3; first += count) {
        count = 1;
        while (packed && first + count < 3 && a->x[first + count] == a->x[first]) count++;
        Tensor *all = project(a->self, a->x[first], first, count);
        for (int i = 0; i < count; i++)
            part[first + i] = count > 1 ? op_narrow(all, 2, i * embed, embed) : all;
    }
}

/* One more row behind x [batch, source, embed]: row is [1, 1, embed]. */
static Tensor *with_row(const MultiheadCall *a, Tensor *x, Tensor *row) {
    row = op_expand(row, cb_dims(a->batch, 1, width_of(a->self)));
    return x && row ? tensors_cat((Tensor *[]){x, row}, 2, 1) : NULL;
}

/* Query, key and value of each head, with what is added to key and value. */
static bool open_heads(const MultiheadCall *a, Tensor **part) {
    project_all(a, part);
    for (int i = 0; i < 3; i++) {
        Tensor *added = i ? layer_own(a->self, BIAS_K + i - 1) : NULL;
        if (added) part[i] = with_row(a, part[i], added);
        if (i && part[i] && a->self->config.other)
            part[i] = with_row(a, part[i],
                               op_zeros(cb_dims(1, 1, width_of(a->self)), cb_dtype_of(part[i])));
        part[i] = split_heads(a->self, part[i]);
        if (!part[i]) return false;
    }
    return true;
}

/* ---- masks ---------------------------------------------------------------------------------- */

/* PyTorch's module says with true what is forbidden. */
static Tensor *as_numbers(Tensor *mask) {
    if (!mask || cb_dtype_of(mask) != CB_BOOL) return mask;
    return op_where(cb_operand_tensor(mask), cb_operand_float(-(double)INFINITY),
                    cb_operand_float(0));
}

/* Both of two masks, each of them absent or to broadcast to [batch, heads, length, source]. */
static Tensor *merged(Tensor *a, Tensor *b) {
    if (!a || !b) return a ? a : b;
    if (cb_dtype_of(a) == CB_BOOL && cb_dtype_of(b) == CB_BOOL)
        return op_logical_or(cb_operand_tensor(a), cb_operand_tensor(b));
    return op_add(cb_operand_tensor(as_numbers(a)), cb_operand_tensor(as_numbers(b)));
}

static Tensor *causal_mask(int64_t length, int64_t source) {
    Tensor *row = op_arange(0, (double)length, 1, CB_I64);
    Tensor *column = op_arange(0, (double)source, 1, CB_I64);
    row = row ? op_reshape(row, cb_dims(length, 1)) : NULL;
    return op_gt(cb_operand_tensor(column), cb_operand_tensor(row));
}

static int64_t added_keys(const Module *self) {
    return (layer_own(self, BIAS_K) != NULL) + self->config.other;
}

/* All masks as one that broadcasts to [batch, heads, length, source and what is added]; NULL
 * without any, and with an error. */
static Tensor *whole_mask(const MultiheadCall *a) {
    int64_t added = added_keys(a->self);
    Tensor *scores = a->causal ? causal_mask(a->length, a->source) : a->scores;
    if (a->causal && !scores) return NULL;
    Tensor *mask = merged(a->keys, scores);
    return mask && added ? op_pad(mask, cb_dims(0, added), cb_operand_int(0)) : mask;
}

static bool mask_refused(const Module *self, const char *name, Tensor *mask, const char *shapes) {
    fail(CB_ERR_SHAPE, "%s: %s is %s, bool or floating point, not %s%s", self->type, name, shapes,
         cb_dtype_name(cb_dtype_of(mask)), shape_of(mask).at);
    return false;
}

static bool mask_dtype(const Tensor *mask) {
    return cb_dtype_of(mask) == CB_BOOL || dtype_is_float(cb_dtype_of(mask));
}

/* [batch, source], or [source] without a batch -> [batch, 1, 1, source] */
static bool take_keys(MultiheadCall *a, Tensor *mask) {
    if (!mask) return true;
    char wanted[96];
    bool fits = mask_dtype(mask) && cb_rank(mask) == (a->flat ? 1 : 2) &&
                cb_size(mask, -1) == a->source && (a->flat || cb_size(mask, 0) == a->batch);
    if (a->flat)
        snprintf(wanted, sizeof wanted, "[%lld]", (long long)a->source);
    else
        snprintf(wanted, sizeof wanted, "[%lld, %lld]", (long long)a->batch, (long long)a->source);
    if (!fits) return mask_refused(a->self, "key_padding_mask", mask, wanted);
    return (a->keys = op_reshape(mask, cb_dims(a->batch, 1, 1, a->source))) != NULL;
}

/* [length, source], or [batch * heads, length, source] -> [batch, heads, length, source] */
static bool take_scores(MultiheadCall *a, Tensor *mask) {
    if (!mask) return true;
    char wanted[160];
    int rank = cb_rank(mask);
    int64_t heads = heads_of(a->self), length = a->length, source = a->source;
    bool fits = (rank == 2 || (rank == 3 && cb_size(mask, 0) == a->batch * heads)) &&
                mask_dtype(mask) && cb_size(mask, -2) == length && cb_size(mask, -1) == source;
    snprintf(wanted, sizeof wanted, "[%lld, %lld] or [%lld, %lld, %lld]", (long long)length,
             (long long)source, (long long)(a->batch * heads), (long long)length,
             (long long)source);
    if (!fits) return mask_refused(a->self, "attn_mask", mask, wanted);
    a->scores = rank == 2 ? mask : op_reshape(mask, cb_dims(a->batch, heads, length, source));
    return a->scores != NULL;
}

/* ---- attention ------------------------------------------------------------------------------ */

/* Heads side by side again, through the projection out. */
static Tensor *finish(Module *self, Tensor *y) {
    y = op_transpose(y, 1, 2);
    y = y ? op_reshape(y, cb_dims(cb_size(y, 0), cb_size(y, 1), width_of(self))) : NULL;
    return module_forward(self->child[0].module, &y, 1);
}

/* scaled_dot_product_attention says with true what is allowed. */
static Tensor *attend(const MultiheadCall *a) {
    Tensor *part[3], *mask = NULL;
    bool causal = a->causal && !a->keys && !added_keys(a->self);
    bool masked = (a->causal && !causal) || a->keys || a->scores;
    if (!open_heads(a, part) || (masked && !(mask = whole_mask(a)))) return NULL;
    if (mask && cb_dtype_of(mask) == CB_BOOL) {
        mask = op_logical_not(cb_operand_tensor(mask));
        if (!mask) return NULL;
    }
    return finish(a->self, op_scaled_dot_product_attention(part[0], part[1], part[2], mask,
                                                           dropout_of(a->self), causal,
                                                           cb_operand_tensor(NULL), false));
}

/* The same with its weights, after dropout, as PyTorch gives them. */
static Tensor *attend_with_weights(const MultiheadCall *a, bool average, Tensor **weights) {
    Tensor *part[3], *mask = NULL;
    const Module *self = a->self;
    bool masked = a->causal || a->keys || a->scores;
    double scale = 1 / sqrt((double)(width_of(self) / heads_of(self)));
    if (!open_heads(a, part) || (masked && !(mask = as_numbers(whole_mask(a))))) return NULL;
    Tensor *scores = op_matmul(part[0], op_transpose(part[1], -2, -1));
    scores = op_mul(cb_operand_tensor(scores), cb_operand_float(scale));
    if (mask && scores)
        scores = op_add(cb_operand_tensor(scores), cb_operand_tensor(op_to(mask, scores->dtype)));
    Tensor *each = op_softmax(scores, -1);
    if (dropout_of(self) > 0) each = op_dropout(each, dropout_of(self), true);
    *weights = average ? op_mean(each, cb_dims_one(1), false) : each;
    return finish(a->self, op_matmul(each, part[2]));
}

/* ---- calls ---------------------------------------------------------------------------------- */

static const char *const input_names[] = {"query", "key", "value"};

static bool check_input(const MultiheadCall *a, int i) {
    const Module *self = a->self;
    const Tensor *x = a->x[i];
    int64_t width = i ? self->config.dims.at[i - 1] : width_of(self);
    if (cb_rank(x) == 3 && cb_size(x, 2) == width) return true;
    fail(CB_ERR_SHAPE, "%s: %s is [batch, length, %lld] or [length, %lld], not %s", self->type,
         input_names[i], (long long)width, (long long)width, shape_of(x).at);
    return false;
}

static bool check_lengths(const MultiheadCall *a) {
    const Tensor *q = a->x[0], *k = a->x[1], *v = a->x[2];
    bool fits =
        cb_size(k, 0) == a->batch && cb_size(v, 0) == a->batch && cb_size(v, 1) == a->source;
    if (fits) return true;
    fail(CB_ERR_SHAPE,
         "%s: query, key and value have one batch, key and value one length: not %s, %s and %s "
         "(batch first)",
         a->self->type, shape_of(q).at, shape_of(k).at, shape_of(v).at);
    return false;
}

/* The inputs as [batch, length, width]; equal ones stay one tensor. */
static bool open_attention(MultiheadCall *a, Module *self, Tensor *const *x) {
    *a = (MultiheadCall){.self = self};
    a->flat = x[0] && cb_rank(x[0]) == 2;
    for (int i = 0; i < 3; i++) {
        if (!x[i]) return false;
        a->x[i] = x[i];
        if (i && x[i] == x[i - 1])
            a->x[i] = a->x[i - 1];
        else if (a->flat && cb_rank(x[i]) == 2)
            a->x[i] = op_unsqueeze(x[i], 0);
        else if (!self->config.flag && cb_rank(x[i]) == 3)
            a->x[i] = op_transpose(x[i], 0, 1);
        if (!a->x[i] || !check_input(a, i)) return false;
    }
    a->batch = cb_size(a->x[0], 0);
    a->length = cb_size(a->x[0], 1);
    a->source = cb_size(a->x[1], 1);
    return check_lengths(a);
}

/* The result as the inputs were given. */
static Tensor *as_given(const MultiheadCall *a, Tensor *y) {
    if (a->flat) return op_squeeze(y, cb_dims_one(0));
    return a->self->config.flag ? y : op_transpose(y, 0, 1);
}

static Tensor *attention(Module *self, Tensor *const *inputs, int count) {
    if (count != 1 && count != 3 && count != 4) {
        fail(CB_ERR_ARGUMENT, "%s takes x, or query, key, value and perhaps a mask: not %d inputs",
             self->type, count);
        return NULL;
    }
    MultiheadCall a;
    Tensor *const all[] = {inputs[0], inputs[count == 1 ? 0 : 1], inputs[count == 1 ? 0 : 2]};
    if (!open_attention(&a, self, all)) return NULL;
    if (count == 4 && (!inputs[3] || !take_scores(&a, inputs[3]))) return NULL;
    return as_given(&a, attend(&a));
}

cb_tensor *(cb_multihead_attention)(cb_module *attention_module, cb_tensor *query, cb_tensor *key,
                                    cb_tensor *value, cb_tensor *key_padding_mask,
                                    cb_tensor *attn_mask, bool average_attn_weights,
                                    cb_tensor **weights, bool is_causal) {
    MultiheadCall a;
    Module *self = attention_module;
    cb_tensor *const given[] = {query, key, value, key_padding_mask, attn_mask};
    Tensor *x[5], *matrix = NULL;
    if (weights) *weights = NULL;
    if (!tensors_in(given, 5, "cb_multihead_attention", x)) return NULL;
    if (self && self->forward != attention) {
        fail(CB_ERR_ARGUMENT, "cb_multihead_attention: %s is no MultiheadAttention", self->type);
        return NULL;
    }
    if (!self || !open_attention(&a, self, x)) return NULL;
    if (!take_keys(&a, x[3]) || !take_scores(&a, x[4])) return NULL;
    a.causal = is_causal && !x[4]; /* with a mask it says no more than that mask does */
    Tensor *y = weights ? attend_with_weights(&a, average_attn_weights, &matrix) : attend(&a);
    if (matrix && a.flat) matrix = op_squeeze(matrix, cb_dims_one(0));
    if (weights) *weights = tensor_out(matrix);
    return tensor_out(as_given(&a, y));
}

/* ---- construction --------------------------------------------------------------------------- */

/* The projection out, which PyTorch keeps apart from other Linears by its type; its bias starts
 * at 0. */
static Module *projection_new(int64_t embed, bool bias) {
    Module *linear = (cb_nn_linear)(embed, embed, bias);
    if (bias) layer_value(&linear, "bias", layer_filled(cb_dims(embed), 0, CB_F32));
    if (linear && module_set_type(linear, "NonDynamicallyQuantizableLinear")) return linear;
    cb_module_free(linear);
    return NULL;
}

/* xavier_uniform of a [rows, columns] weight. */
static Tensor *xavier(int64_t rows, int64_t columns) {
    return layer_uniform(cb_dims(rows, columns), sqrt(6.0 / (double)(rows + columns)));
}

static void add_weights(Module **module, int64_t embed, int64_t kdim, int64_t vdim) {
    static const char *const names[] = {"q_proj_weight", "k_proj_weight", "v_proj_weight"};
    const int64_t width[] = {embed, kdim, vdim};
    bool packed = kdim == embed && vdim == embed;
    if (packed)
        layer_value(module, "in_proj_weight", xavier(3 * embed, embed));
    else
        layer_absent(module, "in_proj_weight");
    for (int i = 0; i < 3; i++) {
        if (packed)
            layer_absent(module, names[i]);
        else
            layer_value(module, names[i], xavier(embed, width[i]));
    }
}

/* xavier_normal of [1, 1, embed]: a standard deviation of 1 / sqrt(embed). */
static Tensor *added_row(int64_t embed) {
    Tracer *tracer = tracer_set(NULL);
    cb_scope_open();
    Tensor *row = op_mul(cb_operand_tensor(op_randn(cb_dims(1, 1, embed), CB_F32)),
                         cb_operand_float(1 / sqrt((double)embed)));
    if (row) cb_keep(row);
    cb_scope_close();
    tracer_set(tracer);
    return row;
}

static void add_biases(Module **module, int64_t embed, bool bias, bool add_bias_kv) {
    if (bias)
        layer_value(module, "in_proj_bias", layer_filled(cb_dims(3 * embed), 0, CB_F32));
    else
        layer_absent(module, "in_proj_bias");
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "bias_v" : "bias_k";
        if (add_bias_kv)
            layer_value(module, name, added_row(embed));
        else
            layer_absent(module, name);
    }
}

static bool sizes_valid(int64_t embed_dim, int64_t num_heads, int64_t kdim, int64_t vdim) {
    if (embed_dim < 1)
        fail(CB_ERR_ARGUMENT, "MultiheadAttention: embed_dim %lld is below 1",
             (long long)embed_dim);
    else if (num_heads < 1)
        fail(CB_ERR_ARGUMENT, "MultiheadAttention: num_heads %lld is below 1",
             (long long)num_heads);
    else if (embed_dim % num_heads)
        fail(CB_ERR_ARGUMENT, "MultiheadAttention: %lld heads do not divide embed_dim %lld",
             (long long)num_heads, (long long)embed_dim);
    else if (kdim < 0 || vdim < 0)
        fail(CB_ERR_ARGUMENT, "MultiheadAttention: %s %lld is negative", kdim < 0 ? "kdim" : "vdim",
             (long long)(kdim < 0 ? kdim : vdim));
    else
        return true;
    return false;
}

cb_module *(cb_nn_multihead_attention)(int64_t embed_dim, int64_t num_heads, double dropout,
                                       bool bias, bool add_bias_kv, bool add_zero_attn,
                                       int64_t kdim, int64_t vdim, bool batch_first) {
    if (!sizes_valid(embed_dim, num_heads, kdim, vdim)) return NULL;
    if (!(dropout >= 0 && dropout <= 1)) {
        fail(CB_ERR_ARGUMENT, "MultiheadAttention: dropout %g is no probability", dropout);
        return NULL;
    }
    kdim = kdim ? kdim : embed_dim;
    vdim = vdim ? vdim : embed_dim;
    Module *module = module_layer("MultiheadAttention", attention, "");
    add_weights(&module, embed_dim, kdim, vdim);
    add_biases(&module, embed_dim, bias, add_bias_kv);
    if (!module) return NULL;
    module->fresh = true;
    module->config = (Config){.number = dropout,
                              .first = num_heads,
                              .second = embed_dim,
                              .dims = cb_dims(kdim, vdim),
                              .flag = batch_first,
                              .other = add_zero_attn};
    if (cb_module_inputs(module, "query, key, value") == CB_OK &&
        cb_module_add(module, "out_proj", projection_new(embed_dim, bias)))
        return module;
    cb_module_free(module);
    return NULL;
}
