/* Calls of ops with inputs of f64, whose gradients tests compare with differences: for every op of
 * the table that has one. Rows where the table's kinds do not say the call. */
#ifndef CARBIDE_TEST_GRADIENTS_H
#define CARBIDE_TEST_GRADIENTS_H

#include "op/op.h"

/* Where floating point inputs lie: away from the places where an op has no derivative. */
typedef enum GradientDomain { SIGNED, POSITIVE, ABOVE_ONE, WIDE } GradientDomain;

typedef struct GradientRow {
    Op op;
    const char *inputs, *call; /* i64 inputs are random indices below 3, bool ones random */
    GradientDomain domain;
} GradientRow;

static const GradientRow gradient_rows[] = {
    {OP_pow, "x: f64[3, 4], y: f64[4]", "pow(x, y)", POSITIVE},
    {OP_pow, "x: f64[3, 4]", "pow(x, 3)", SIGNED},
    {OP_pow, "x: f64[3, 4]", "pow(x, 0)", SIGNED},
    {OP_pow, "x: f64[3, 4]", "pow(2.5, x)", SIGNED},
    {OP_where, "x: f64[3, 4], y: f64[4], c: bool[3, 1]", "where(c, x, y)", SIGNED},
    {OP_maximum, "x: f64[3, 4], y: f64[3, 4]", "maximum(x, y)", SIGNED},
    {OP_minimum, "x: f64[3, 4], y: f64[]", "minimum(x, y)", SIGNED},
    {OP_amax, "x: f64[3, 4, 2]", "amax(x, [0, 2])", SIGNED},
    {OP_amin, "x: f64[3, 4, 2]", "amin(x, 1, true)", SIGNED},
    {OP_prod, "x: f64[3, 4, 2]", "prod(x, [0, 2])", SIGNED},
    {OP_prod, "x: f64[3, 4]", "prod(x * where(x > 0.5, 0, 1))", SIGNED},
    {OP_prod, "x: f64[]", "prod(x)", SIGNED},
    {OP_cumprod, "x: f64[3, 4, 2]", "cumprod(x, 1)", SIGNED},
    {OP_cumprod, "x: f64[3, 4]", "cumprod(x * where(x > 0.6, 0, 1), 0)", SIGNED},
    {OP_cumsum, "x: f64[3, 4, 2]", "cumsum(x, 1)", SIGNED},
    {OP_sum, "x: f64[3, 4, 2]", "sum(x, [0, 2])", SIGNED},
    {OP_sum, "x: f64[3, 0]", "sum(x, 1)", SIGNED},
    {OP_sum, "x: f64[]", "sum(x)", SIGNED},
    {OP_reshape, "x: f64[3, 4]", "reshape(x, [2, 6])", SIGNED},
    {OP_permute, "x: f64[3, 4, 2]", "permute(x, [2, 0, 1])", SIGNED},
    {OP_expand, "x: f64[3, 1]", "expand(x, [5, 3, 4])", SIGNED},
    {OP_slice, "x: f64[7, 4]", "slice(x, 0, 1, 6, 2)", SIGNED},
    {OP_flip, "x: f64[3, 4]", "flip(x, [0, 1])", SIGNED},
    {OP_window, "x: f64[2, 11]", "window(x, 1, 3, 2, 2)", SIGNED},
    {OP_window, "x: f64[11, 3]", "window(x, 0, 3, 4)", SIGNED},
    {OP_window, "x: f64[2, 11]", "window(x, 1, 2, 4, 3)", SIGNED},
    {OP_window, "x: f64[2, 60]", "window(x, 1, 20, 7)", SIGNED},
    {OP_window, "x: f64[5]", "window(x, 0, 1, 2)", SIGNED},
    {OP_view, "x: f64[3, 4]", "view(x, [12])", SIGNED},
    {OP_flatten, "x: f64[3, 4]", "flatten(x)", SIGNED},
    {OP_unflatten, "x: f64[3, 4]", "unflatten(x, 1, [2, 2])", SIGNED},
    {OP_squeeze, "x: f64[3, 1]", "squeeze(x)", SIGNED},
    {OP_unsqueeze, "x: f64[3, 1]", "unsqueeze(x, 1)", SIGNED},
    {OP_transpose, "x: f64[3, 4, 2]", "transpose(x, 0, 2)", SIGNED},
    {OP_t, "x: f64[3, 4]", "t(x)", SIGNED},
    {OP_select, "x: f64[3, 4]", "select(x, 1, 2)", SIGNED},
    {OP_narrow, "x: f64[3, 4]", "narrow(x, 1, 1, 2)", SIGNED},
    {OP_broadcast_to, "x: f64[3, 1]", "broadcast_to(x, [3, 4])", SIGNED},
    {OP_to, "x: f64[3, 4]", "to(to(x, f64), f64)", SIGNED},
    {OP_to, "x: f64[3, 4]", "x * to(to(x * 7, i64), f64)", SIGNED}, /* a step has none */
    {OP_contiguous, "x: f64[3, 4]", "contiguous(t(x))", SIGNED},
    {OP_clone, "x: f64[3, 4]", "clone(x)", SIGNED},
    {OP_concat, "x: f64[3, 4], y: f64[3, 2]", "concat(x, y, 1)", SIGNED},
    {OP_concat, "x: f64[3, 4]", "concat(x, x, -2)", SIGNED},
    {OP_pad, "x: f64[3, 4]", "pad(x, [1, -2, 0, 3], 7)", SIGNED},
    {OP_slice_scatter, "x: f64[3, 7], y: f64[3, 3]", "slice_scatter(x, y, 1, 0, 6, 2)", SIGNED},
    {OP_gather, "x: f64[3, 4], i: i64[3, 5]", "gather(x, 1, i)", SIGNED},
    {OP_gather, "x: f64[3, 4], i: i64[3, 1]", "gather(x, 1, i)", SIGNED},
    {OP_gather, "x: f64[3, 4], i: i64[2, 1]", "gather(x, 1, i)", SIGNED},
    {OP_gather, "x: f64[3, 4, 2]", "gather(x, 1, argsort(x, 1))", SIGNED},
    {OP_gather, "x: f64[3, 4]", "gather(x, 1, argtopk(x, 2, 1))", SIGNED},
    {OP_gather, "x: f64[3, 4], i: i64[0, 1]", "gather(x, 1, i)", SIGNED},
    {OP_index_select, "x: f64[3, 4, 2], i: i64[5]", "index_select(x, 1, i)", SIGNED},
    {OP_index_select, "x: f64[3, 4], i: i64[]", "index_select(x, 1, i)", SIGNED},
    {OP_scatter, "x: f64[3, 4], s: f64[3, 5]", "scatter(x, 1, reshape(arange(0, 4), [1, 4]), s)",
     SIGNED},
    {OP_scatter_add, "x: f64[3, 4], i: i64[2, 5], s: f64[3, 6]", "scatter_add(x, 1, i, s)", SIGNED},
    {OP_matmul, "x: f64[3, 4], y: f64[4, 2]", "matmul(x, y)", SIGNED},
    {OP_matmul, "x: f64[2, 3, 4], y: f64[4, 2]", "matmul(x, y)", SIGNED},
    {OP_matmul, "x: f64[2, 1, 3, 4], y: f64[5, 4, 2]", "matmul(x, y)", SIGNED},
    {OP_matmul, "x: f64[4], y: f64[4]", "matmul(x, y)", SIGNED},
    {OP_matmul, "x: f64[4], y: f64[2, 4, 3]", "matmul(x, y)", SIGNED},
    {OP_matmul, "x: f64[2, 3, 4], y: f64[4]", "matmul(x, y)", SIGNED},
    {OP_matmul, "x: f64[4], y: f64[4, 3]", "matmul(x, y)", SIGNED},
    {OP_convolution, "x: f64[2, 4, 6, 5], w: f64[6, 2, 3, 2]",
     "convolution(x, w, stride=[2, 1], padding=[1, 0], dilation=[1, 2], groups=2)", SIGNED},
    {OP_convolution, "x: f64[2, 3, 6, 7], w: f64[2, 3, 2, 3]",
     "convolution(x, w, stride=[2, 1], padding=[1, 2], dilation=[1, 2])", SIGNED},
    {OP_convolution, "x: f64[2, 8, 4, 5], w: f64[3, 8, 3, 2]", /* windows in rows of channels */
     "convolution(x, w, stride=[2, 1], padding=[1, 0], dilation=[1, 2])", SIGNED},
    {OP_convolution, "x: f64[2, 2, 36], w: f64[2, 2, 34]", /* as many windows are not stored */
     "convolution(x, w, stride=[1], padding=[1], dilation=[1])", SIGNED},
    {OP_convolution, "x: f64[2, 3, 6, 7], w: f64[3, 1, 3, 2]", /* depthwise: a sum for each tap */
     "convolution(x, w, stride=[2, 1], padding=[1, 0], dilation=[1, 2], groups=3)", SIGNED},
    {OP_convolution, "x: f64[2, 2, 40], w: f64[2, 1, 33]", /* of windows: taps are too many */
     "convolution(x, w, stride=[2], padding=[1], dilation=[1], groups=2)", SIGNED},
    {OP_convolution, "x: f64[2, 6, 5, 3], w: f64[4, 3, 3, 3]",
     "convolution(x, w, stride=2, padding=1, channels_last=true)", SIGNED},
    {OP_repeat, "x: f64[3, 2]", "repeat(x, [2, 1, 3])", SIGNED},
    {OP_roll, "x: f64[3, 4]", "roll(x, 3, 1)", SIGNED},
    {OP_tril, "x: f64[3, 4]", "tril(x)", SIGNED},
    {OP_triu, "x: f64[3, 4]", "triu(x, 1)", SIGNED},
    {OP_embedding, "i: i64[2, 5], w: f64[3, 4]", "embedding(i, w)", SIGNED},
    {OP_masked_fill, "x: f64[3, 4], m: bool[4]", "masked_fill(x, m, 2)", SIGNED},
    {OP_clamp, "x: f64[3, 4]", "clamp(x, -0.5, 0.4)", SIGNED},
    {OP_lerp, "x: f64[3, 4], y: f64[4]", "lerp(x, y, 0.3)", SIGNED},
    {OP_addcmul, "x: f64[3, 4], y: f64[3, 4], w: f64[4]", "addcmul(x, y, w, 0.7)", SIGNED},
    {OP_addcdiv, "x: f64[3, 4], y: f64[3, 4], w: f64[4]", "addcdiv(x, y, w, 0.7)", SIGNED},
    {OP_mean, "x: f64[3, 4]", "mean(x, [1])", SIGNED},
    {OP_var, "x: f64[3, 4, 2]", "var(x, [0, 2])", SIGNED},
    {OP_var, "x: f64[3, 4]", "var(x, correction=0, keepdim=true)", SIGNED},
    {OP_std, "x: f64[3, 4]", "std(x)", SIGNED},
    {OP_std, "x: f64[3, 4]", "std(x, -1, 0, true)", SIGNED},
    {OP_max, "x: f64[3, 4]", "max(x)", SIGNED},
    {OP_min, "x: f64[3, 4]", "min(x)", SIGNED},
    {OP_norm, "x: f64[3, 4]", "norm(x, dim=[-1])", SIGNED},
    {OP_norm, "x: f64[3, 4]", "norm(x, keepdim=true)", SIGNED},
    {OP_logsumexp, "x: f64[3, 4]", "logsumexp(x, [1])", WIDE},
    {OP_logsumexp, "x: f64[3, 4]", "logsumexp(x, [0, 1], true)", WIDE},
    {OP_linear, "x: f64[2, 3, 4], w: f64[5, 4], b: f64[5]", "linear(x, w, b)", SIGNED},
    {OP_addmm, "x: f64[2], y: f64[3, 4], w: f64[4, 2]", "addmm(x, y, w)", SIGNED},
    {OP_prelu, "x: f64[3, 4, 2], w: f64[4]", "prelu(x, w)", SIGNED},
    {OP_glu, "x: f64[3, 4]", "glu(x, 1)", SIGNED},
    {OP_hardtanh, "x: f64[3, 4]", "hardtanh(x, -0.5, 0.6)", SIGNED},
    {OP_threshold, "x: f64[3, 4]", "threshold(x, 0.1, 20)", SIGNED},
    {OP_softmin, "x: f64[3, 4]", "softmin(x, 1)", WIDE},
    {OP_softmax, "x: f64[3, 4]", "softmax(x, -1)", WIDE},
    {OP_log_softmax, "x: f64[3, 4]", "log_softmax(x, 0)", WIDE},
    {OP_layer_norm, "x: f64[3, 4], w: f64[4], b: f64[4]", "layer_norm(x, [4], w, b)", WIDE},
    {OP_rms_norm, "x: f64[3, 4], w: f64[4]", "rms_norm(x, [4], w)", WIDE},
    {OP_normalize, "x: f64[3, 4]", "normalize(x)", SIGNED},
    {OP_cosine_similarity, "x: f64[3, 4], y: f64[3, 4]", "cosine_similarity(x, y)", SIGNED},
    {OP_mse_loss, "x: f64[3, 4], y: f64[3, 4]", "mse_loss(x, y)", SIGNED},
    {OP_l1_loss, "x: f64[3, 4], y: f64[3, 4]", "l1_loss(x, y)", SIGNED},
    {OP_smooth_l1_loss, "x: f64[3, 4], y: f64[3, 4]", "smooth_l1_loss(x, y, beta=0.7)", SIGNED},
    {OP_binary_cross_entropy_with_logits, "x: f64[3, 4], y: f64[3, 4]",
     "binary_cross_entropy_with_logits(x, y)", WIDE},
    {OP_nll_loss, "x: f64[4, 3], i: i64[4]", "nll_loss(x, i, ignore_index=1)", SIGNED},
    {OP_cross_entropy, "x: f64[4, 3], i: i64[4]", "cross_entropy(x, i)", WIDE},
    {OP_cross_entropy, "x: f64[4, 3], i: i64[4]",
     "cross_entropy(x, i, ignore_index=1, label_smoothing=0.1)", WIDE},
    {OP_cross_entropy, "x: f64[4, 3], y: f64[4, 3]", "cross_entropy(x, y)", WIDE},
    {OP_mse_loss, "x: f64[3, 4], y: f64[3, 4]", "mse_loss(x, y, reduction=0)", SIGNED},
    {OP_smooth_l1_loss, "x: f64[3, 4], y: f64[3, 4]", "smooth_l1_loss(x, y, 2, 0)", SIGNED},
    {OP_huber_loss, "x: f64[3, 4], y: f64[3, 4]", "huber_loss(x, y, delta=0.7)", SIGNED},
    {OP_binary_cross_entropy, "x: f64[3, 4], y: f64[3, 4], w: f64[4]",
     "binary_cross_entropy(sigmoid(x), sigmoid(y), w)", SIGNED},
    {OP_binary_cross_entropy, "x: f64[3, 4], y: f64[3, 4]",
     "binary_cross_entropy(sigmoid(x), sigmoid(y), reduction=2)", SIGNED},
    {OP_binary_cross_entropy_with_logits, "x: f64[3, 4], y: f64[3, 4], w: f64[4], p: f64[4]",
     "binary_cross_entropy_with_logits(x, y, w, 0, p)", SIGNED},
    {OP_kl_div, "x: f64[3, 4], y: f64[3, 4]", "kl_div(x, y)", POSITIVE},
    {OP_kl_div, "x: f64[3, 4], y: f64[3, 4]", "kl_div(x, y, 3, true)", SIGNED},
    {OP_pairwise_distance, "x: f64[3, 4], y: f64[3, 4]", "pairwise_distance(x, y)", SIGNED},
    {OP_pairwise_distance, "x: f64[3, 4], y: f64[4]", "pairwise_distance(x, y, 3)", SIGNED},
    {OP_cosine_embedding_loss, "x: f64[4, 3], y: f64[4, 3]",
     "cosine_embedding_loss(x, y, arange(0, 4) * 2 - 3, 0.1)", SIGNED},
    {OP_cosine_embedding_loss, "x: f64[4, 3], y: f64[4, 3]",
     "cosine_embedding_loss(x, y, remainder(arange(0, 4), 2) * 2 - 1, -0.9, 0)", SIGNED},
    {OP_triplet_margin_loss, "x: f64[3, 4], y: f64[3, 4], w: f64[3, 4]",
     "triplet_margin_loss(x, y, w, 3)", SIGNED},
    {OP_triplet_margin_loss, "x: f64[3, 4], y: f64[3, 4], w: f64[3, 4]",
     "triplet_margin_loss(x, y, w, 2.5, 1, swap=true, reduction=0)", SIGNED},
    {OP_nll_loss, "x: f64[4, 3, 2], i: i64[4, 2], w: f64[3]", "nll_loss(x, i, w, 1)", POSITIVE},
    {OP_cross_entropy, "x: f64[4, 3], i: i64[4], w: f64[3]", "cross_entropy(x, i, w)", POSITIVE},
    {OP_cross_entropy, "x: f64[4, 3, 2], i: i64[4, 2], w: f64[3]",
     "cross_entropy(x, i, w, 1, 0, 0.2)", POSITIVE},
    {OP_cross_entropy, "x: f64[4, 3], y: f64[4, 3], w: f64[3]",
     "cross_entropy(x, y, w, reduction=2, label_smoothing=0.1)", POSITIVE},
    {OP_dropout, "x: f64[3, 4]", "dropout(x, 0.3)", SIGNED},
    {OP_conv1d, "x: f64[2, 3, 9], w: f64[4, 3, 5], b: f64[4]", "conv1d(x, w, b, padding=same)",
     SIGNED},
    {OP_conv2d, "x: f64[2, 3, 5, 6], w: f64[4, 3, 3, 2], b: f64[4]",
     "conv2d(x, w, b, stride=2, padding=1)", SIGNED},
    {OP_conv2d, "x: f64[4, 5, 6], w: f64[4, 1, 2, 2]", "conv2d(x, w, groups=4)", SIGNED},
    {OP_conv3d, "x: f64[1, 2, 3, 4, 3], w: f64[2, 2, 2, 2, 2]", "conv3d(x, w)", SIGNED},
    {OP_conv_transpose1d, "x: f64[2, 4, 5], w: f64[4, 3, 3], b: f64[3]",
     "conv_transpose1d(x, w, b, stride=2, output_padding=1)", SIGNED},
    {OP_conv_transpose2d, "x: f64[2, 4, 3, 4], w: f64[4, 2, 3, 3]",
     "conv_transpose2d(x, w, stride=2, padding=1, groups=2)", SIGNED},
    {OP_conv_transpose3d, "x: f64[1, 2, 2, 3, 2], w: f64[2, 2, 2, 2, 2]", "conv_transpose3d(x, w)",
     SIGNED},
    {OP_max_pool1d, "x: f64[2, 3, 9]", "max_pool1d(x, 3, 2, 1)", SIGNED},
    {OP_max_pool2d, "x: f64[2, 3, 6, 5]", "max_pool2d(x, [3, 2], 2, ceil_mode=true)", SIGNED},
    {OP_max_pool3d, "x: f64[3, 4, 4, 5]", "max_pool3d(x, 2, dilation=2)", SIGNED},
    {OP_avg_pool1d, "x: f64[2, 3, 9]", "avg_pool1d(x, 3, 1)", SIGNED},
    {OP_avg_pool2d, "x: f64[2, 3, 6, 5]", "avg_pool2d(x, 3, 2, 1, count_include_pad=false)",
     SIGNED},
    {OP_avg_pool3d, "x: f64[1, 2, 4, 4, 5]", "avg_pool3d(x, 2)", SIGNED},
    {OP_adaptive_avg_pool1d, "x: f64[2, 3, 9]", "adaptive_avg_pool1d(x, 4)", SIGNED},
    {OP_adaptive_avg_pool2d, "x: f64[2, 3, 6, 5]", "adaptive_avg_pool2d(x, [3, 2])", SIGNED},
    {OP_adaptive_avg_pool3d, "x: f64[1, 2, 4, 4, 5]", "adaptive_avg_pool3d(x, 1)", SIGNED},
    {OP_adaptive_max_pool1d, "x: f64[2, 3, 9]", "adaptive_max_pool1d(x, 4)", SIGNED},
    {OP_adaptive_max_pool2d, "x: f64[2, 3, 6, 5]", "adaptive_max_pool2d(x, [3, 2])", SIGNED},
    {OP_adaptive_max_pool3d, "x: f64[1, 2, 4, 4, 5]", "adaptive_max_pool3d(x, 2)", SIGNED},
    {OP_batch_norm, "x: f64[3, 4, 2], m: f64[4], v: f64[4], w: f64[4], b: f64[4]",
     "batch_norm(x, m, square(v) + 0.5, w, b)", SIGNED},
    {OP_batch_norm, "x: f64[3, 4, 2], w: f64[4]", "batch_norm(x, weight=w, training=true)", SIGNED},
    {OP_instance_norm, "x: f64[3, 4, 5], w: f64[4]", "instance_norm(x, weight=w)", SIGNED},
    {OP_group_norm, "x: f64[3, 4, 2], w: f64[4]", "group_norm(x, 2, w)", SIGNED},
    {OP_scaled_dot_product_attention,
     "x: f64[2, 3, 4], k: f64[2, 5, 4], v: f64[2, 5, 3], m: f64[3, 5]",
     "scaled_dot_product_attention(x, k, v, m)", SIGNED},
    {OP_scaled_dot_product_attention, "x: f64[2, 9, 4], k: f64[2, 2, 4], m: bool[9, 2]",
     "scaled_dot_product_attention(x, k, k, m)", SIGNED}, /* rows that see one key, or none */
    {OP_scaled_dot_product_attention, "x: f64[4, 5, 4], k: f64[2, 5, 4]",
     "scaled_dot_product_attention(x, k, k, is_causal=true, enable_gqa=true)", SIGNED},
    {OP_scaled_dot_product_attention, /* a step of its own: all but whole panels of queries */
     "x: f64[2, 30, 5], k: f64[2, 7, 5], v: f64[1, 7, 3]", "scaled_dot_product_attention(x, k, v)",
     SIGNED},
    {OP_scaled_dot_product_attention, "x: f64[1, 4, 31, 4], k: f64[3, 2, 31, 4]",
     "scaled_dot_product_attention(x, k, k, is_causal=true, enable_gqa=true, scale=0.7)", SIGNED},
    {OP_scaled_dot_product_attention, "x: f64[2, 30, 4], k: f64[2, 3, 4], m: bool[30, 3]",
     "scaled_dot_product_attention(x, k, k, m)", SIGNED},
    {OP_attention_gradient,
     "x: f64[2, 3, 4], k: f64[2, 5, 4], v: f64[2, 5, 3], g: f64[2, 3, 3], m: f64[3, 5]",
     "attention_gradient(x, k, v, g, m, 0.4)", SIGNED},
    {OP_attention_gradient, "x: f64[2, 6, 4], k: f64[1, 5, 4], v: f64[2, 5, 3], g: f64[2, 6, 3]",
     "attention_gradient(x, k, v, g, true, 0.4, true)", SIGNED},
    {OP_interpolate, "x: f64[2, 3, 5, 6]", "interpolate(x, [7, 4], linear=true)", SIGNED},
    {OP_interpolate, "x: f64[2, 3, 5]", "interpolate(x, 8)", SIGNED},
    {OP_interpolate, "x: f64[1, 2, 5, 6]", "interpolate(x, [7, 9], cubic=true)", SIGNED},
    {OP_reflection_pad, "x: f64[2, 4, 5]", "reflection_pad(x, [1, 2, 3, 0])", SIGNED},
    {OP_replication_pad, "x: f64[2, 4, 5]", "replication_pad(x, [1, 2, 3, 0])", SIGNED},
    {OP_circular_pad, "x: f64[2, 4, 5]", "circular_pad(x, [1, 2, 3, 0])", SIGNED},
    {OP_pixel_shuffle, "x: f64[1, 4, 2, 3]", "pixel_shuffle(x, 2)", SIGNED},
    {OP_pixel_unshuffle, "x: f64[1, 1, 4, 6]", "pixel_unshuffle(x, 2)", SIGNED},
    {OP_channel_shuffle, "x: f64[1, 4, 2, 3]", "channel_shuffle(x, 2)", SIGNED},
    {OP_unfold, "x: f64[2, 3, 5, 6]", "unfold(x, [3, 2], padding=1)", SIGNED},
    {OP_fold, "x: f64[2, 12, 12]", "fold(x, [4, 5], [2, 2])", SIGNED},
};
enum { GRADIENT_ROWS = sizeof gradient_rows / sizeof *gradient_rows };

static inline bool has_gradient_row(Op op) {
    for (int i = 0; i < GRADIENT_ROWS; i++)
        if (gradient_rows[i].op == op) return true;
    return false;
}

/* The tensors of a call, and whether nothing else must be given. */
static inline bool tensors_alone(const OpInfo *info, int *tensors) {
    *tensors = 0;
    for (int p = 0; p < info->param_count; p++) {
        *tensors += info->param[p].type == PARAM_TENSOR;
        if (info->param[p].type != PARAM_TENSOR && !info->param[p].has_default) return false;
    }
    return true;
}

/* Pointwise ops, reductions, scans and composites of one tensor without attributes that must be
 * given need no row. */
static inline GradientDomain domain_of(Op op) {
    switch (op) {
    case OP_sqrt:
    case OP_rsqrt:
    case OP_log:
    case OP_log2:
    case OP_log10:
    case OP_log1p:
        return POSITIVE;
    case OP_acosh:
        return ABOVE_ONE;
    case OP_hardsigmoid:
    case OP_hardswish:
    case OP_relu6:
    case OP_softplus:
    case OP_elu:
    case OP_gelu:
    case OP_mish:
        return WIDE;
    default:
        return SIGNED;
    }
}

#endif
