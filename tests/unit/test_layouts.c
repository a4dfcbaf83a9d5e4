/* Every op of the table on inputs of a graph that lie in memory in every way: turned around, with
 * gaps, repeated, inside of something larger. The result is that of the same elements side by side.
 * Gaps hold NaN and wild indices. Sizes are large enough for splits and tiles.
 *
 * Pointwise ops, reductions, scans, and composites of one tensor, with their defaults, are called
 * as the table says; every other op has its rows below, and one without is an error. */
#include "test_support.h"

#include "carbide.h"
#include "graph/graph.h"
#include "inside.h"
#include "run/execute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* All of them are wanted, not the first alone. */
#define COMPLAIN(...) (print_error(__VA_ARGS__), print_error("\n"), complaints++)

static int complaints;

typedef struct Row {
    Op op;
    const char *inputs, *call;
    bool generated; /* as generated C, too: a compiler runs for it */
} Row;

/* i64 are indices below 7, i32 from 0 to 6, floats normal. */
static const Row rows[] = {
    {OP_reshape, "x: f32[40, 30, 70]", "reshape(x, [35, 80, 30])", true},
    {OP_permute, "x: f32[40, 30, 70]", "permute(x, [2, 0, 1])", false},
    {OP_expand, "x: f32[30, 70]", "expand(x, [9, 30, 70])", false},
    {OP_slice, "x: f32[40, 30, 70]", "slice(x, 1, 3, 27, 4)", false},
    {OP_flip, "x: f32[40, 30, 70]", "flip(x, [0, 2])", true},
    {OP_view, "x: f32[40, 30, 70]", "view(x, [1200, 70])", false},
    {OP_flatten, "x: f32[40, 30, 70]", "flatten(x)", false},
    {OP_unflatten, "x: f32[40, 30, 70]", "unflatten(x, 2, [7, 10])", false},
    {OP_squeeze, "x: f32[40, 1, 70]", "squeeze(x)", false},
    {OP_unsqueeze, "x: f32[40, 70]", "unsqueeze(x, 1)", false},
    {OP_transpose, "x: f32[40, 30, 70]", "transpose(x, 0, 2)", false},
    {OP_t, "x: f32[140, 170]", "t(x)", false},
    {OP_select, "x: f32[40, 30, 70]", "select(x, 1, 4)", false},
    {OP_narrow, "x: f32[40, 30, 70]", "narrow(x, 2, 3, 60)", false},
    {OP_broadcast_to, "x: f32[30, 70]", "broadcast_to(x, [5, 30, 70])", false},
    {OP_window, "x: f32[40, 300]", "window(x, 1, 5, 3, 2)", false},
    {OP_to, "x: f32[40, 30, 70]", "to(x, f16)", false},
    {OP_contiguous, "x: f32[40, 30, 70]", "contiguous(x)", false},
    {OP_clone, "x: f32[40, 30, 70]", "clone(x)", false},
    {OP_concat, "x: f32[40, 30, 70], y: f32[40, 11, 70]", "concat(x, y, 1)", true},
    {OP_pad, "x: f32[40, 30, 70]", "pad(x, [1, 2, 0, 3])", false},
    {OP_slice_scatter, "x: f32[40, 30, 70], y: f32[40, 10, 70]", "slice_scatter(x, y, 1, 0, 30, 3)",
     false},
    {OP_gather, "x: f32[40, 30, 70], i: i64[40, 90, 60]", "gather(x, 1, i)", true},
    {OP_gather, "x: f32[50000], i: i64[90000]", "gather(x, 0, i)", false},
    {OP_index_select, "x: f32[40, 30, 70], i: i64[50]", "index_select(x, 0, i)", false},
    {OP_scatter, "x: f32[40, 30, 70], i: i64[39, 90, 60], s: f32[40, 90, 61]",
     "scatter(x, 1, i, s)", true},
    {OP_scatter, "x: f32[16], i: i64[70000], s: f32[70000]", "scatter(x, 0, i, s)", true},
    {OP_scatter_add, "x: f32[40, 30, 70], i: i64[39, 90, 60], s: f32[40, 90, 61]",
     "scatter_add(x, 1, i, s)", true},
    {OP_scatter_add, "x: f32[16], i: i64[70000], s: f32[70000]", "scatter_add(x, 0, i, s)", true},
    {OP_scatter_add, "x: f32[9, 5], i: i64[9000, 5], s: f32[9000, 5]", "scatter_add(x, 0, i, s)",
     true},
    {OP_matmul, "x: f32[3, 70, 90], y: f32[3, 90, 110]", "matmul(x, y)", false},
    {OP_matmul, "x: f32[700], y: f32[700]", "matmul(x, y)", false},
    {OP_matmul, "x: f32[5, 70, 90], y: f32[90]", "matmul(x, y)", false},
    {OP_matmul, "x: bf16[70, 90], y: bf16[90, 110]", "matmul(x, y)", false},
    {OP_matmul, "x: i64[70, 90], y: i64[90, 110]", "matmul(x, y)", false},
    {OP_convolution, "x: f32[2, 8, 20, 22], w: f32[16, 8, 3, 3]", "convolution(x, w)", false},
    {OP_convolution, "x: f32[2, 20, 22, 8], w: f32[16, 3, 3, 8]",
     "convolution(x, w, channels_last=true)", false},
    {OP_attention, "x: f32[2, 3, 40, 16], k: f32[2, 3, 50, 16], v: f32[2, 3, 50, 16]",
     "attention(x, k, v, true, scale=0.25)", false},
    {OP_attention_gradient,
     "x: f32[2, 3, 40, 16], k: f32[2, 3, 50, 16], v: f32[2, 3, 50, 16], g: f32[2, 3, 40, 16]",
     "attention_gradient(x, k, v, g, true, scale=0.25)", false},
    {OP_argsort, "x: f32[40, 30, 70]", "argsort(x, 0)", false},
    {OP_argsort, "x: f32[40, 30, 70]", "argsort(x, 2, true)", false},
    {OP_argsort, "x: f32[90000]", "argsort(x)", false},
    {OP_argtopk, "x: f32[40, 30, 70]", "argtopk(x, 3, 1)", false},
    {OP_argtopk, "x: f32[30, 7000]", "argtopk(x, 3)", false},
    {OP_full_like, "x: f32[40, 30, 70]", "full_like(x, 3)", false},
    {OP_zeros_like, "x: f32[40, 30, 70]", "zeros_like(x)", false},
    {OP_ones_like, "x: f32[40, 30, 70]", "ones_like(x)", false},
    {OP_rand_like, "x: f32[40, 30, 70]", "rand_like(x)", false},
    {OP_randn_like, "x: f32[40, 30, 70]", "randn_like(x)", false},
    {OP_tril, "x: f32[9, 130, 70]", "tril(x, 2)", false},
    {OP_triu, "x: f32[9, 130, 70]", "triu(x)", false},
    {OP_repeat, "x: f32[40, 70]", "repeat(x, [2, 3, 2])", false},
    {OP_roll, "x: f32[40, 30, 70]", "roll(x, 5, 1)", false},
    {OP_one_hot, "i: i64[40, 70]", "one_hot(i, 7)", false},
    {OP_embedding, "i: i64[40, 70], w: f32[7, 64]", "embedding(i, w)", true},
    {OP_masked_fill, "x: f32[40, 30, 70], m: bool[30, 70]", "masked_fill(x, m, 2)", false},
    {OP_clamp, "x: f32[40, 30, 70]", "clamp(x, -0.5, 0.5)", false},
    {OP_lerp, "x: f32[40, 30, 70], y: f32[30, 70]", "lerp(x, y, 0.3)", false},
    {OP_addcmul, "x: f32[40, 30, 70], y: f32[40, 30, 70], w: f32[70]", "addcmul(x, y, w)", false},
    {OP_addcdiv, "x: f32[40, 30, 70], y: f32[40, 30, 70], w: f32[70]", "addcdiv(x, y, w)", false},
    {OP_mean, "x: f32[40, 30, 70]", "mean(x, [1])", false},
    {OP_var, "x: f32[40, 30, 70]", "var(x, [0, 2])", true},
    {OP_std, "x: f32[40, 30, 70]", "std(x)", false},
    {OP_max, "x: f32[40, 30, 70]", "max(x)", false},
    {OP_min, "x: f32[40, 30, 70]", "min(x)", false},
    {OP_argmax, "x: f32[40, 30, 70]", "argmax(x, [1])", false},
    {OP_argmin, "x: f32[40, 30, 70]", "argmin(x)", false},
    {OP_count_nonzero, "x: f32[40, 30, 70]", "count_nonzero(x, [2])", false},
    {OP_norm, "x: f32[40, 30, 70]", "norm(x, dim=[1])", false},
    {OP_logsumexp, "x: f32[40, 30, 70]", "logsumexp(x, [1])", false},
    {OP_linear, "x: f32[70, 90], w: f32[50, 90], b: f32[50]", "linear(x, w, b)", false},
    {OP_addmm, "x: f32[50], y: f32[70, 90], w: f32[90, 50]", "addmm(x, y, w)", false},
    {OP_prelu, "x: f32[20, 30, 70], w: f32[30]", "prelu(x, w)", false},
    {OP_glu, "x: f32[40, 30, 70]", "glu(x, 2)", false},
    {OP_threshold, "x: f32[40, 30, 70]", "threshold(x, 0.1, 20)", false},
    {OP_softmin, "x: f32[40, 30, 70]", "softmin(x, 1)", false},
    {OP_softmax, "x: f32[40, 30, 70]", "softmax(x, 2)", true},
    {OP_log_softmax, "x: f32[40, 30, 70]", "log_softmax(x, 0)", true},
    {OP_layer_norm, "x: f32[40, 30, 70], w: f32[70], b: f32[70]", "layer_norm(x, [70], w, b)",
     true},
    {OP_rms_norm, "x: f32[40, 30, 70], w: f32[70]", "rms_norm(x, [70], w)", false},
    {OP_normalize, "x: f32[40, 30, 70]", "normalize(x)", false},
    {OP_cosine_similarity, "x: f32[40, 30, 70], y: f32[40, 30, 70]", "cosine_similarity(x, y)",
     false},
    {OP_mse_loss, "x: f32[40, 30, 70], y: f32[40, 30, 70]", "mse_loss(x, y)", false},
    {OP_l1_loss, "x: f32[40, 30, 70], y: f32[40, 30, 70]", "l1_loss(x, y)", false},
    {OP_smooth_l1_loss, "x: f32[40, 30, 70], y: f32[40, 30, 70]", "smooth_l1_loss(x, y)", false},
    {OP_binary_cross_entropy_with_logits, "x: f32[40, 30, 70], y: f32[40, 30, 70]",
     "binary_cross_entropy_with_logits(x, y)", false},
    {OP_huber_loss, "x: f32[40, 30, 70], y: f32[40, 30, 70]", "huber_loss(x, y)", false},
    {OP_binary_cross_entropy, "x: f32[40, 30, 70], y: f32[40, 30, 70]",
     "binary_cross_entropy(x, y)", false},
    {OP_kl_div, "x: f32[40, 30, 70], y: f32[40, 30, 70]", "kl_div(x, y)", false},
    {OP_pairwise_distance, "x: f32[400, 70], y: f32[400, 70]", "pairwise_distance(x, y)", false},
    {OP_cosine_embedding_loss, "x: f32[400, 9], y: f32[400, 9], i: i64[400]",
     "cosine_embedding_loss(x, y, i)", false},
    {OP_triplet_margin_loss, "x: f32[400, 9], y: f32[400, 9], w: f32[400, 9]",
     "triplet_margin_loss(x, y, w)", false},
    {OP_nll_loss, "x: f32[400, 9], i: i64[400]", "nll_loss(x, i)", false},
    {OP_cross_entropy, "x: f32[400, 9], i: i64[400]", "cross_entropy(x, i)", true},
    {OP_dropout, "x: f32[40, 30, 70]", "dropout(x, 0.5, true)", false},
    {OP_conv1d, "x: f32[2, 8, 90], w: f32[12, 8, 5], b: f32[12]", "conv1d(x, w, b)", false},
    {OP_conv2d, "x: f32[2, 8, 20, 22], w: f32[16, 8, 3, 3], b: f32[16]", "conv2d(x, w, b)", false},
    {OP_conv2d, "x: f32[2, 8, 20, 22], w: f32[8, 1, 3, 3]", "conv2d(x, w, groups=8)", false},
    {OP_conv3d, "x: f32[1, 3, 8, 9, 10], w: f32[4, 3, 2, 2, 2]", "conv3d(x, w)", false},
    {OP_conv_transpose1d, "x: f32[2, 8, 30], w: f32[8, 6, 3]", "conv_transpose1d(x, w)", false},
    {OP_conv_transpose2d, "x: f32[2, 8, 9, 8], w: f32[8, 6, 3, 3]", "conv_transpose2d(x, w)",
     false},
    {OP_conv_transpose3d, "x: f32[1, 3, 5, 6, 7], w: f32[3, 4, 2, 2, 2]", "conv_transpose3d(x, w)",
     false},
    {OP_max_pool1d, "x: f32[4, 8, 90]", "max_pool1d(x, [3])", false},
    {OP_max_pool2d, "x: f32[4, 8, 20, 22]", "max_pool2d(x, [3, 2])", true},
    {OP_max_pool3d, "x: f32[2, 3, 8, 9, 10]", "max_pool3d(x, [2])", false},
    {OP_avg_pool1d, "x: f32[4, 8, 90]", "avg_pool1d(x, [3])", false},
    {OP_avg_pool2d, "x: f32[4, 8, 20, 22]", "avg_pool2d(x, [3, 2])", false},
    {OP_avg_pool3d, "x: f32[2, 3, 8, 9, 10]", "avg_pool3d(x, [2])", false},
    {OP_adaptive_avg_pool1d, "x: f32[4, 8, 90]", "adaptive_avg_pool1d(x, [7])", false},
    {OP_adaptive_avg_pool2d, "x: f32[4, 8, 20, 22]", "adaptive_avg_pool2d(x, [7, 5])", false},
    {OP_adaptive_avg_pool3d, "x: f32[2, 3, 8, 9, 10]", "adaptive_avg_pool3d(x, [2, 3, 4])", false},
    {OP_adaptive_max_pool1d, "x: f32[4, 8, 90]", "adaptive_max_pool1d(x, [7])", false},
    {OP_adaptive_max_pool2d, "x: f32[4, 8, 20, 22]", "adaptive_max_pool2d(x, [7, 5])", false},
    {OP_adaptive_max_pool3d, "x: f32[2, 3, 8, 9, 10]", "adaptive_max_pool3d(x, [2, 3, 4])", false},
    {OP_max_pool1d_indices, "x: f32[4, 8, 90]", "max_pool1d_indices(x, [3])", false},
    {OP_max_pool2d_indices, "x: f32[4, 8, 20, 22]", "max_pool2d_indices(x, [3, 2])", false},
    {OP_max_pool3d_indices, "x: f32[2, 3, 8, 9, 10]", "max_pool3d_indices(x, [2])", false},
    {OP_batch_norm, "x: f32[4, 8, 20, 22], m: f32[8], v: f32[8], w: f32[8], b: f32[8]",
     "batch_norm(x, m, square(v) + 0.5, w, b)", false},
    {OP_batch_norm, "x: f32[4, 8, 20, 22], w: f32[8]", "batch_norm(x, weight=w, training=true)",
     true},
    {OP_instance_norm, "x: f32[4, 8, 20, 22], w: f32[8]", "instance_norm(x, weight=w)", false},
    {OP_group_norm, "x: f32[4, 8, 20, 22], w: f32[8]", "group_norm(x, 2, w)", false},
    {OP_scaled_dot_product_attention,
     "x: f32[2, 3, 40, 16], k: f32[2, 3, 50, 16], v: f32[2, 3, 50, 16], m: f32[40, 50]",
     "scaled_dot_product_attention(x, k, v, m)", false},
    {OP_scaled_dot_product_attention, "x: f32[2, 4, 130, 32], k: f32[2, 4, 130, 32]",
     "scaled_dot_product_attention(x, k, k, is_causal=true)", false},
    {OP_interpolate, "x: f32[2, 3, 20, 22]", "interpolate(x, [31, 40], linear=true)", false},
    {OP_reflection_pad, "x: f32[4, 8, 20, 22]", "reflection_pad(x, [1, 2, 3, 0])", false},
    {OP_replication_pad, "x: f32[4, 8, 20, 22]", "replication_pad(x, [1, 2, 3, 0])", false},
    {OP_circular_pad, "x: f32[4, 8, 20, 22]", "circular_pad(x, [1, 2, 3, 0])", false},
    {OP_pixel_shuffle, "x: f32[4, 8, 20, 22]", "pixel_shuffle(x, 2)", false},
    {OP_pixel_unshuffle, "x: f32[4, 8, 20, 22]", "pixel_unshuffle(x, 2)", false},
    {OP_channel_shuffle, "x: f32[4, 8, 20, 22]", "channel_shuffle(x, 2)", false},
    {OP_unfold, "x: f32[4, 8, 20, 22]", "unfold(x, [3, 2])", false},
    {OP_fold, "x: f32[4, 48, 81]", "fold(x, [10, 11], [2, 3])", false},
};

enum { ROWS = sizeof rows / sizeof *rows, MOST_INPUTS = 8 };

/* ---- layouts --------------------------------------------------------------------------------- */

typedef enum InputLayout { PLAIN, TURNED, SPARSE, INSIDE, REPEATED, SPREAD, LAYOUTS } InputLayout;

static const char *const layout_name[LAYOUTS] = {"side by side",        "turned around",
                                                 "every other element", "inside of a larger one",
                                                 "expanded, first dim", "expanded, last dim"};

/* What no right read of the tensor sees. */
static cb_tensor *garbage(cb_dim_list sizes, cb_dtype dtype) {
    if (dtype == CB_BOOL) return cb_zeros(sizes, dtype);
    if (dtype == CB_I64) return cb_mul(cb_ones(sizes, dtype), (int64_t)1 << 40);
    return dtype == CB_I32 ? cb_full(sizes, 1e6, dtype) : cb_full(sizes, NAN, dtype);
}

static cb_dim_list sizes_of(cb_tensor *x) {
    cb_dim_list sizes = {cb_rank(x), {0}};
    for (int i = 0; i < sizes.count; i++) sizes.at[i] = cb_size(x, i);
    return sizes;
}

static cb_tensor *turned(cb_tensor *x) {
    cb_dim_list turn = {cb_rank(x), {0}};
    for (int i = 0; i < turn.count; i++) turn.at[i] = turn.count - 1 - i;
    return cb_permute(cb_contiguous(cb_permute(x, turn)), turn);
}

static cb_tensor *sparse(cb_tensor *x) {
    cb_tensor *pair[2] = {cb_unsqueeze(x, -1),
                          cb_unsqueeze(garbage(sizes_of(x), cb_dtype_of(x)), -1)};
    return cb_select(cb_cat(pair, 2, -1), -1, 0);
}

static cb_tensor *inside(cb_tensor *x) {
    cb_dim_list sizes = sizes_of(x);
    for (int i = 0; i < sizes.count; i++) sizes.at[i] += 3;
    cb_tensor *part = garbage(sizes, cb_dtype_of(x));
    for (int i = 0; i < sizes.count; i++) part = cb_narrow(part, i, 1, cb_size(x, i));
    return cb_assign(part, x);
}

static cb_tensor *laid(cb_tensor *x, InputLayout layout) {
    int dim = layout == SPREAD ? -1 : 0;
    if (cb_rank(x) == 0) return x;
    switch (layout) {
    case TURNED:
        return turned(x);
    case SPARSE:
        return sparse(x);
    case INSIDE:
        return inside(x);
    case REPEATED:
    case SPREAD:
        return cb_expand(cb_narrow(x, dim, 1 % cb_size(x, dim), 1), sizes_of(x));
    default:
        return x;
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static cb_tensor *input_of(const Meta *meta) {
    cb_dim_list sizes = {meta->rank, {0}};
    memcpy(sizes.at, meta->size, sizeof meta->size);
    cb_dtype dtype = meta->dtype;
    if (dtype == CB_BOOL) return cb_to(cb_randint(0, 2, sizes), dtype);
    return cb_to(dtype_is_float(dtype) ? cb_randn(sizes) : cb_randint(0, 7, sizes), dtype);
}

static Graph *graph_of(const Row *row, Arena *own) {
    const char *text = arena_format(own, "graph(%s) { z = %s\nreturn z }", row->inputs, row->call);
    Graph *graph = graph_parse(own, text);
    if (graph) graph_optimize(graph, NULL);
    return graph;
}

/* NULL with an error. The arena goes with the executable. */
static Executable *build(const Row *row, cb_tensor *const *in, bool generate) {
    Arena *own = arena_new();
    Graph *graph = graph_of(row, own);
    if (!graph) {
        arena_free(own);
        return NULL;
    }
    graph->device = device_default();
    const int64_t *stride[MOST_INPUTS];
    for (int i = 0; i < length(graph->input); i++)
        stride[i] = cb_is_contiguous(in[i]) ? NULL : tensor_at(in[i])->stride;
    return executable_new(plan_build(graph, own, stride, (PlanOptions){.fuse = true}),
                          (ExecutableOptions){.generate = generate});
}

static cb_tensor *run(const Row *row, cb_tensor *const *in, bool generate) {
    cb_tensor *out = NULL;
    Executable *executable = build(row, in, generate);
    if (!executable) return NULL;
    cb_manual_seed(5);
    bool done = run_executable(executable, in, &out);
    executable_free(executable);
    return done ? out : NULL;
}

static double *read_all(cb_tensor *x) {
    double *data = malloc((size_t)cb_numel(x) * sizeof *data + 1);
    assert_int_equal(cb_read(x, data, CB_F64), CB_OK);
    return data;
}

/* Relative to the largest element: other layouts sum in another order. */
static void compare(const Row *row, const char *how, cb_tensor *got, cb_tensor *wanted) {
    if (!got || !wanted) {
        COMPLAIN("%s of %s, %s: %s", row->call, row->inputs, how, cb_error());
        cb_clear_error();
        return;
    }
    double *a = read_all(got), *b = read_all(wanted), largest = 0;
    int64_t count = cb_numel(got), i = 0;
    for (int64_t k = 0; k < count; k++)
        if (isfinite(b[k])) largest = fmax(largest, fabs(b[k]));
    double tolerance = dtype_is_float(cb_dtype_of(wanted)) ? 2e-5 * largest : 0;
    if (cb_dtype_size(cb_dtype_of(wanted)) < 4) tolerance *= 400; /* bf16 */
    while (i < count &&
           (a[i] == b[i] || fabs(a[i] - b[i]) <= tolerance || (isnan(a[i]) && isnan(b[i]))))
        i++;
    if (i < count)
        COMPLAIN("%s of %s, %s: element %lld is %.9g, not %.9g", row->call, row->inputs, how,
                 (long long)i, a[i], b[i]);
    free(a), free(b);
}

static void check_layout(const Row *row, InputLayout layout, int inputs, cb_tensor *const *plain) {
    cb_tensor *in[MOST_INPUTS], *same[MOST_INPUTS];
    for (int i = 0; i < inputs; i++) {
        in[i] = laid(plain[i], layout);
        same[i] = cb_clone(in[i]);
    }
    cb_tensor *wanted = run(row, same, false);
    compare(row, layout_name[layout], run(row, in, false), wanted);
    bool generated = row->generated && (layout == TURNED || layout == REPEATED);
    if (generated) compare(row, "as generated C", run(row, in, true), wanted);
}

static void check_row(const Row *row) {
    cb_tensor *plain[MOST_INPUTS];
    cb_scope_open();
    Arena *own = arena_new();
    Graph *graph = graph_of(row, own);
    int inputs = graph ? length(graph->input) : 0;
    if (!graph) COMPLAIN("%s of %s: %s", row->call, row->inputs, cb_error());
    cb_clear_error();
    for (int i = 0; i < inputs; i++) {
        Meta meta = node_meta(graph->input[i]);
        plain[i] = input_of(&meta);
    }
    arena_free(own);
    for (InputLayout layout = TURNED; inputs && layout < LAYOUTS; layout++)
        check_layout(row, layout, inputs, plain);
    cb_scope_close();
}

/* ---- rows from the table --------------------------------------------------------------------- */

static void check_pointwise(const OpInfo *info) {
    const char *dtype = info->dtype == DTYPE_INT || info->dtype == DTYPE_SHIFT ? "i32" : "f32";
    char inputs[128], call[96];
    if (info->dtype == DTYPE_WHERE) {
        check_row(&(Row){OP_where, "c: bool[30, 1, 70], x: f32[30, 40, 70], y: f32[40, 70]",
                         "where(c, x, y)", true});
        return;
    }
    snprintf(inputs, sizeof inputs, "x: %s[30, 40, 70]%s%s%s", dtype,
             info->arity > 1 ? ", y: " : "", info->arity > 1 ? dtype : "",
             info->arity > 1 ? "[40, 70]" : "");
    snprintf(call, sizeof call, "%s(x%s)", info->name, info->arity > 1 ? ", y" : "");
    check_row(&(Row){OP_none, inputs, call, false});
}

static void check_folds(const OpInfo *info) {
    static const char *const dims[] = {"dim=[0]", "dim=[1]", "dim=[2]", "dim=[0, 2]",
                                       "dim=[0, 1, 2]"};
    static const char *const dim[] = {"0", "1", "2"};
    char call[64];
    bool scan = info->kind == KIND_SCAN;
    bool far = info->scan_of == OP_prod || strcmp(info->name, "prod") == 0; /* to 0, or to inf */
    for (int i = 0; i < (scan || far ? 3 : 5); i++) {
        snprintf(call, sizeof call, "%s(x, %s)", info->name, scan ? dim[i] : dims[i]);
        check_row(&(Row){OP_none, "x: f32[40, 30, 70]", call, i == 1});
    }
}

static void check_alone(const OpInfo *info) {
    char call[96];
    snprintf(call, sizeof call, "%s(x)", info->name);
    check_row(&(Row){OP_none, "x: f32[30, 40, 70]", call, false});
}

static bool has_row(Op op) {
    for (int i = 0; i < ROWS; i++)
        if (rows[i].op == op) return true;
    return false;
}

static bool takes_tensors(const OpInfo *info) {
    for (int p = 0; p < info->param_count; p++)
        if (info->param[p].type == PARAM_TENSOR) return true;
    return false;
}

/* One tensor, and defaults for all else: such a composite needs no row of its own. */
static bool takes_one_alone(const OpInfo *info) {
    int tensors = 0;
    for (int p = 0; p < info->param_count; p++) {
        tensors += info->param[p].type == PARAM_TENSOR;
        if (info->param[p].type != PARAM_TENSOR && !info->param[p].has_default) return false;
    }
    return tensors == 1;
}

static void every_op(void **state) {
    (void)state;
    for (Op op = OP_none + 1; op < OP_COUNT; op++) {
        const OpInfo *info = op_info(op);
        if (!info->name || info->kind == KIND_SPECIAL || info->flags & LOWERED) continue;
        if (has_row(op) || !takes_tensors(info)) continue;
        if (info->kind == KIND_POINTWISE)
            check_pointwise(info);
        else if (info->kind == KIND_REDUCE || info->kind == KIND_SCAN)
            check_folds(info);
        else if (info->kind == KIND_COMPOSITE && takes_one_alone(info))
            check_alone(info);
        else
            COMPLAIN("%s has no row here", info->name);
    }
    assert_int_equal(complaints, 0);
}

static void every_row(void **state) {
    (void)state;
    for (int i = 0; i < ROWS; i++) check_row(&rows[i]);
    assert_int_equal(complaints, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_op), cmocka_unit_test(every_row)};
    return cmocka_run_group_tests_name("layouts", tests, NULL, NULL);
}
