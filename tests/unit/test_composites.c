/* The types of all composites, and that each expands into primitive ops; their errors. */
#include "graph_support.h"

/* An argument list that suits most schemas; what a composite needs otherwise stands in the
 * table. */
static const struct {
    Op op;
    const char *call, *type;
} composite_calls[] = {
    {OP_zeros, "zeros([2, 3], f64)", "f64[2, 3]"},
    {OP_ones, "ones([2])", "f32[2]"},
    {OP_full_like, "full_like(x, 2)", "f32[4, 6]"},
    {OP_zeros_like, "zeros_like(i)", "i64[4]"},
    {OP_ones_like, "ones_like(x)", "f32[4, 6]"},
    {OP_rand_like, "rand_like(x)", "f32[4, 6]"},
    {OP_randn_like, "randn_like(x)", "f32[4, 6]"},
    {OP_eye, "eye(3, 5)", "f32[3, 5]"},
    {OP_linspace, "linspace(0, 1, 5)", "f32[5]"},
    {OP_tril, "tril(x, -1)", "f32[4, 6]"},
    {OP_triu, "triu(b)", "bool[4, 6]"},
    {OP_repeat, "repeat(x, [2, 1, 3])", "f32[2, 4, 18]"},
    {OP_roll, "roll(x, -2, 1)", "f32[4, 6]"},
    {OP_one_hot, "one_hot(i, 6)", "i64[4, 6]"},
    {OP_embedding, "embedding(i, x)", "f32[4, 6]"},
    {OP_masked_fill, "masked_fill(x, b, -inf)", "f32[4, 6]"},
    {OP_clamp, "clamp(i, 0, 6)", "i64[4]"},
    {OP_lerp, "lerp(x, y, 0.5)", "f32[4, 6]"},
    {OP_addcmul, "addcmul(x, y, y)", "f32[4, 6]"},
    {OP_addcdiv, "addcdiv(x, y, y, 0.5)", "f32[4, 6]"},
    {OP_mean, "mean(x, [0, -1])", "f32[]"},
    {OP_var, "var(x, 1)", "f32[4]"},
    {OP_std, "std(x, 1, 0, true)", "f32[4, 1]"},
    {OP_max, "max(x)", "f32[]"},
    {OP_min, "min(i)", "i64[]"},
    {OP_argmax, "argmax(x, 1, true)", "i64[4, 1]"},
    {OP_argmin, "argmin(x, keepdim=true)", "i64[1, 1]"},
    {OP_count_nonzero, "count_nonzero(x, 0)", "i64[6]"},
    {OP_norm, "norm(x, 1)", "f32[4]"},
    {OP_logsumexp, "logsumexp(x, 1)", "f32[4]"},
    {OP_linear, "linear(x, w, v)", "f32[4, 5]"},
    {OP_addmm, "addmm(v, x, transpose(w, 0, 1))", "f32[4, 5]"},
    {OP_leaky_relu, "leaky_relu(h)", "f16[3]"},
    {OP_layer_norm, "layer_norm(h, [3], h)", "f16[3]"},
    {OP_rms_norm, "rms_norm(x, [6])", "f32[4, 6]"},
    {OP_normalize, "normalize(x)", "f32[4, 6]"},
    {OP_cosine_similarity, "cosine_similarity(x, y)", "f32[4]"},
    {OP_mse_loss, "mse_loss(x, y)", "f32[]"},
    {OP_l1_loss, "l1_loss(x, 1.0)", "f32[]"},
    {OP_smooth_l1_loss, "smooth_l1_loss(x, y)", "f32[]"},
    {OP_binary_cross_entropy_with_logits, "binary_cross_entropy_with_logits(x, y)", "f32[]"},
    {OP_huber_loss, "huber_loss(x, y)", "f32[]"},
    {OP_binary_cross_entropy, "binary_cross_entropy(x, y, y, 0)", "f32[4, 6]"},
    {OP_kl_div, "kl_div(x, y)", "f32[]"},
    {OP_pairwise_distance, "pairwise_distance(x, y)", "f32[4]"},
    {OP_cosine_embedding_loss, "cosine_embedding_loss(x, y, i)", "f32[]"},
    {OP_triplet_margin_loss, "triplet_margin_loss(x, y, y * 2, reduction=0)", "f32[4]"},
    {OP_nll_loss, "nll_loss(x, i)", "f32[]"},
    {OP_cross_entropy, "cross_entropy(x, i, label_smoothing=0.1)", "f32[]"},
    {OP_threshold, "threshold(x, 0.5, 2)", "f32[4, 6]"},
    {OP_glu, "glu(x)", "f32[4, 3]"},
    {OP_prelu, "prelu(x, slice(v, 0, 0, 1))", "f32[4, 6]"},
    {OP_softmin, "softmin(x, 0)", "f32[4, 6]"},
    {OP_softmax, "softmax(x, 1)", "f32[4, 6]"},
    {OP_log_softmax, "log_softmax(x, -1)", "f32[4, 6]"},
    {OP_dropout, "dropout(x, 0.25)", "f32[4, 6]"},
    {OP_conv1d, "conv1d(reshape(x, [1, 4, 6]), reshape(y, [2, 4, 3]), padding=1)", "f32[1, 2, 6]"},
    {OP_conv1d, "conv1d(x, reshape(y, [3, 4, 2]), padding=same)", "f32[3, 6]"},
    {OP_conv2d, "conv2d(reshape(x, [1, 2, 3, 4]), reshape(y, [3, 2, 2, 2]), slice(v, 0, 0, 3))",
     "f32[1, 3, 2, 3]"},
    {OP_conv3d, "conv3d(reshape(x, [1, 2, 2, 2, 3]), reshape(y, [3, 2, 2, 2, 1]))",
     "f32[1, 3, 1, 1, 3]"},
    {OP_conv_transpose1d, "conv_transpose1d(x, reshape(y, [4, 2, 3]), stride=2)", "f32[2, 13]"},
    {OP_conv_transpose2d, "conv_transpose2d(reshape(x, [1, 2, 3, 4]), reshape(y, [2, 3, 2, 2]))",
     "f32[1, 3, 4, 5]"},
    {OP_conv_transpose3d,
     "conv_transpose3d(reshape(x, [1, 2, 2, 2, 3]), reshape(y, [2, 3, 2, 2, 1]), stride=2, "
     "output_padding=1)",
     "f32[1, 3, 5, 5, 6]"},
    {OP_max_pool1d, "max_pool1d(x, 2)", "f32[4, 3]"},
    {OP_max_pool2d, "max_pool2d(reshape(x, [1, 2, 3, 4]), [3, 2], stride=1, padding=1)",
     "f32[1, 2, 3, 5]"},
    {OP_max_pool3d, "max_pool3d(reshape(x, [1, 2, 2, 2, 3]), 2, ceil_mode=true)",
     "f32[1, 2, 1, 1, 2]"},
    {OP_avg_pool1d, "avg_pool1d(x, 4, ceil_mode=true)", "f32[4, 2]"},
    {OP_avg_pool2d, "avg_pool2d(reshape(x, [1, 2, 3, 4]), 2, 1, 1, count_include_pad=false)",
     "f32[1, 2, 4, 5]"},
    {OP_avg_pool3d, "avg_pool3d(reshape(x, [1, 2, 2, 2, 3]), [2, 1, 3], divisor_override=3)",
     "f32[1, 2, 1, 2, 1]"},
    {OP_adaptive_avg_pool1d, "adaptive_avg_pool1d(x, 4)", "f32[4, 4]"},
    {OP_adaptive_avg_pool2d, "adaptive_avg_pool2d(reshape(x, [1, 2, 3, 4]), [2, 1])",
     "f32[1, 2, 2, 1]"},
    {OP_adaptive_avg_pool3d, "adaptive_avg_pool3d(reshape(x, [1, 2, 2, 2, 3]), 1)",
     "f32[1, 2, 1, 1, 1]"},
    {OP_adaptive_max_pool1d, "adaptive_max_pool1d(x, 4)", "f32[4, 4]"},
    {OP_adaptive_max_pool2d, "adaptive_max_pool2d(reshape(x, [1, 2, 3, 4]), 3)", "f32[1, 2, 3, 3]"},
    {OP_adaptive_max_pool3d, "adaptive_max_pool3d(reshape(x, [1, 2, 2, 2, 3]), 2)",
     "f32[1, 2, 2, 2, 2]"},
    {OP_max_pool1d_indices, "max_pool1d_indices(x, 2)", "i64[4, 3]"},
    {OP_max_pool2d_indices, "max_pool2d_indices(reshape(i, [1, 2, 2]), 2, 1, 1)", "i64[1, 3, 3]"},
    {OP_max_pool3d_indices, "max_pool3d_indices(reshape(x, [1, 2, 2, 2, 3]), 2)",
     "i64[1, 2, 1, 1, 1]"},
    {OP_batch_norm, "batch_norm(x, select(y, 0, 0), select(w, 0, 0))", "f32[4, 6]"},
    {OP_instance_norm, "instance_norm(reshape(x, [2, 3, 4]))", "f32[2, 3, 4]"},
    {OP_group_norm, "group_norm(x, 3)", "f32[4, 6]"},
    {OP_scaled_dot_product_attention, "scaled_dot_product_attention(x, w, w, dropout_p=0.5)",
     "f32[4, 6]"},
    {OP_interpolate, "interpolate(reshape(x, [1, 2, 3, 4]), [5, 4], linear=true)",
     "f32[1, 2, 5, 4]"},
    {OP_reflection_pad, "reflection_pad(x, [1, 2])", "f32[4, 9]"},
    {OP_replication_pad, "replication_pad(x, [0, 3])", "f32[4, 9]"},
    {OP_circular_pad, "circular_pad(reshape(x, [2, 3, 4]), [-1, 2, 3, 0])", "f32[2, 6, 5]"},
    {OP_pixel_shuffle, "pixel_shuffle(reshape(x, [4, 2, 3]), 2)", "f32[1, 4, 6]"},
    {OP_pixel_unshuffle, "pixel_unshuffle(reshape(x, [1, 4, 6]), 2)", "f32[4, 2, 3]"},
    {OP_channel_shuffle, "channel_shuffle(reshape(x, [1, 4, 6]), 2)", "f32[1, 4, 6]"},
    {OP_unfold, "unfold(reshape(x, [1, 2, 3, 4]), 2)", "f32[1, 8, 6]"},
    {OP_fold, "fold(reshape(x, [1, 4, 6]), [3, 4], 2)", "f32[1, 1, 3, 4]"},
};

static const char header[] =
    "graph(x: f32[4, 6], y: f32[4, 6], b: bool[4, 6], i: i64[4], w: f32[5, 6], "
    "v: f32[5], h: f16[3]) {\n  return ";

static void expect_composite(Op op, const char *text, const char *type) {
    Graph *graph = parse(arena_format(arena, "%s%s\n}\n", header, text));
    Node *node = graph->output[0];
    char found[128];
    Meta meta = node_meta(node);
    meta_format(&meta, found, sizeof found);
    if (node->op != op || strcmp(found, type)) fail_msg("%s is %s of %d", text, found, node->op);
    expect_verified(graph);
    assert_true(graph_equal(graph, parse(print(graph))));
    graph_optimize(graph, NULL);
    expect_verified(graph);
    Node **order = graph_order(graph);
    for (int k = 0; k < length(order); k++) {
        OpKind kind = op_info(order[k]->op)->kind;
        if (kind == KIND_COMPOSITE) fail_msg("%s leaves %s", text, op_info(order[k]->op)->name);
    }
    assert_true(graph_equal(graph, parse(print(graph))));
}

static void test_composites(void **state) {
    (void)state;
    for (Op op = OP_none + 1; op < OP_COUNT; op++) {
        if (op_info(op)->kind != KIND_COMPOSITE) continue;
        bool listed = false;
        for (size_t k = 0; k < sizeof composite_calls / sizeof *composite_calls; k++) {
            if (composite_calls[k].op != op) continue;
            listed = true;
            expect_composite(op, composite_calls[k].call, composite_calls[k].type);
        }
        if (listed) continue; /* the others are activations of one tensor */
        expect_composite(op, arena_format(arena, "%s(x)", op_info(op)->name), "f32[4, 6]");
    }
}

static void test_composite_errors(void **state) {
    (void)state;
    static const char *const calls[][2] = {
        {"softmax(x, 2)", "dim 2"},
        {"layer_norm(x, [5])", "not the last ones of x, in layer_norm(f32[4, 6])"},
        {"linear(x, v)", "inner sizes differ"},
        {"dropout(x, 1.5)", "outside of 0..1"},
        {"cross_entropy(x, y + constant(0, f64), none, -1, 1, 0) * cross_entropy(x, v)",
         "the target must be"},
        {"cross_entropy(x, i, v * 2)", "one element for each of the 6 classes"},
        {"cross_entropy(x, i, reduction=3)", "cross_entropy: there is no reduction 3"},
        {"cross_entropy(x, y, none, 2)", "no class to ignore"},
        {"mse_loss(x, y, 7)", "mse_loss: there is no reduction 7"},
        {"huber_loss(x, y, 1, 0)", "huber_loss: needs delta > 0, in"},
        {"smooth_l1_loss(x, y, 1, -1)", "smooth_l1_loss: needs beta >= 0"},
        {"triplet_margin_loss(x, y, y, 0)", "triplet_margin_loss: needs margin > 0"},
        {"argmax(x, [0, 1])", "one dim or all"},
        {"repeat(x, 2)", "needs a count"},
        {"one_hot(x, 3)", "needs i64"},
        {"tril(v)", "at least two dimensions"},
        {"roll(x, 1, 7)", "dim 7"},
        {"repeat(x, [1099511627776, 1099511627776])", "too many elements"},
        {"eye(4611686018427387904)", "too many elements"},
    };
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++)
        expect_parse_error(arena_format(arena, "%s%s }", header, calls[k][0]), calls[k][1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_composites),
        TEST(test_composite_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
