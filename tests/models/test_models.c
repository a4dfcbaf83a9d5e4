/* Layers and whole networks against PyTorch: the same weights and inputs give the same outputs.
 * tests/models/reference.py wrote tests/models/data; the test runs in the root of the tree. */
#include "fixture.h"

#include "carbide_models.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA "tests/models/data/"

static cb_safetensors *open_file(const char *path) {
    cb_safetensors *file = cb_safetensors_open(path);
    if (!file) print_error("%s\n", cb_error());
    assert_non_null(file);
    return file;
}

static void load(cb_module *module, const char *path) {
    assert_non_null(module);
    if (cb_module_load_state(module, path, true)) print_error("%s\n", cb_error());
    assert_null(cb_error());
}

/* Within 1e-5 of the greatest value of y: a few roundings of f32 per layer. */
static void expect_close(const char *name, cb_tensor *x, cb_tensor *y) {
    if (!x) print_error("%s: %s\n", name, cb_error());
    assert_non_null(x);
    assert_non_null(y);
    assert_int_equal(cb_rank(x), cb_rank(y));
    for (int i = 0; i < cb_rank(x); i++) assert_int_equal(cb_size(x, i), cb_size(y, i));
    double scale = cb_item(cb_max(cb_abs(cb_to(y, CB_F32))));
    double worst = cb_item(cb_max(cb_abs(cb_sub(x, y))));
    assert_null(cb_error());
    if (!(worst <= 1e-5 * (1 + scale))) print_error("%s: off by %g of %g\n", name, worst, scale);
    assert_true(worst <= 1e-5 * (1 + scale));
}

/* ---- layers --------------------------------------------------------------------------------- */

/* Each under the name that reference.py gives it, with the same arguments. */
#define LAYERS(X)                                                                                  \
    X(conv1d, cb_nn_conv1d(4, 6, 3, 2, 1, 1, 2))                                                   \
    X(conv1d_same, cb_nn_conv1d(2, 3, 4, 1, "same", 3))                                            \
    X(conv1d_circular, cb_nn_conv1d(2, 3, 3, 2, 2, 1, 1, true, "circular"))                        \
    X(conv2d,                                                                                      \
      cb_nn_conv2d(3, 5, cb_dims(3, 2), cb_dims(2, 1), cb_dims(1, 0), cb_dims(1, 2), 1, false))    \
    X(conv2d_same, cb_nn_conv2d(2, 3, cb_dims(4, 3), 1, "same", cb_dims(1, 2)))                    \
    X(conv2d_reflect, cb_nn_conv2d(2, 3, 3, 1, cb_dims(2, 1), 1, 1, true, "reflect"))              \
    X(conv2d_replicate, cb_nn_conv2d(2, 4, 3, 2, cb_dims(1, 2), 1, 2, true, "replicate"))          \
    X(conv2d_reflect_same, cb_nn_conv2d(2, 3, cb_dims(2, 4), 1, "same", 1, 1, true, "reflect"))    \
    X(conv3d, cb_nn_conv3d(2, 3, 2, 1, 1))                                                         \
    X(conv3d_circular, cb_nn_conv3d(1, 2, 3, 1, cb_dims(1, 2, 0), 1, 1, true, "circular"))         \
    X(conv_transpose1d, cb_nn_conv_transpose1d(4, 6, 3, 2, 1, 1, 2))                               \
    X(conv_transpose2d, cb_nn_conv_transpose2d(4, 6, 3, 2, 1, 1, 2))                               \
    X(conv_transpose3d, cb_nn_conv_transpose3d(2, 3, cb_dims(2, 3, 1), 2, 0, 0, 1, true, 2))       \
    X(batch_norm1d, cb_nn_batch_norm1d(4))                                                         \
    X(batch_norm1d_bare, cb_nn_batch_norm1d(4, 1e-3, 0.1, false, false))                           \
    X(batch_norm2d, cb_nn_batch_norm2d(3))                                                         \
    X(batch_norm2d_average, cb_nn_batch_norm2d(3, 1e-5, -1))                                       \
    X(batch_norm3d, cb_nn_batch_norm3d(2, 1e-5, 0.1, false))                                       \
    X(instance_norm1d, cb_nn_instance_norm1d(3))                                                   \
    X(instance_norm2d, cb_nn_instance_norm2d(3, 1e-5, 0.1, true))                                  \
    X(instance_norm2d_tracks, cb_nn_instance_norm2d(3, 1e-5, 0.1, false, true))                    \
    X(instance_norm3d, cb_nn_instance_norm3d(2, 1e-5, 0.1, true, true))                            \
    X(group_norm, cb_nn_group_norm(2, 6))                                                          \
    X(group_norm_bare, cb_nn_group_norm(3, 6, 0.1, false))                                         \
    X(layer_norm, cb_nn_layer_norm(cb_dims(3, 4)))                                                 \
    X(layer_norm_unbiased, cb_nn_layer_norm(4, 1e-5, true, false))                                 \
    X(layer_norm_bare, cb_nn_layer_norm(4, 0.01, false))                                           \
    X(rms_norm, cb_nn_rms_norm(4, 1e-6))                                                           \
    X(linear, cb_nn_linear(5, 3))                                                                  \
    X(embedding, cb_nn_embedding(7, 3, 2))                                                         \
    X(max_pool1d, cb_nn_max_pool1d(3, 2, 1))                                                       \
    X(max_pool2d, cb_nn_max_pool2d(3, 2, 1, 1, true))                                              \
    X(max_pool3d, cb_nn_max_pool3d(cb_dims(1, 2, 3), CB_NO_DIMS, 0, cb_dims(1, 2, 1)))             \
    X(avg_pool1d, cb_nn_avg_pool1d(4, 3, 2, true))                                                 \
    X(avg_pool2d, cb_nn_avg_pool2d(3, 2, 1, true, false))                                          \
    X(avg_pool3d, cb_nn_avg_pool3d(2, 2, 1, false, true, 3))                                       \
    X(adaptive_avg_pool1d, cb_nn_adaptive_avg_pool1d(4))                                           \
    X(adaptive_avg_pool2d, cb_nn_adaptive_avg_pool2d(cb_dims(3, 2)))                               \
    X(adaptive_avg_pool3d, cb_nn_adaptive_avg_pool3d(cb_dims(2, 3, 1)))                            \
    X(adaptive_max_pool1d, cb_nn_adaptive_max_pool1d(3))                                           \
    X(adaptive_max_pool2d, cb_nn_adaptive_max_pool2d(cb_dims(3, 2)))                               \
    X(adaptive_max_pool3d, cb_nn_adaptive_max_pool3d(2))                                           \
    X(zero_pad1d, cb_nn_zero_pad1d(2))                                                             \
    X(zero_pad2d, cb_nn_zero_pad2d(cb_dims(1, -1, 0, 2)))                                          \
    X(zero_pad3d, cb_nn_zero_pad3d(1))                                                             \
    X(constant_pad1d, cb_nn_constant_pad1d(cb_dims(3, 1), 0.5))                                    \
    X(constant_pad2d, cb_nn_constant_pad2d(1, -1.5))                                               \
    X(constant_pad3d, cb_nn_constant_pad3d(1, 2.0))                                                \
    X(reflection_pad1d, cb_nn_reflection_pad1d(cb_dims(3, 1)))                                     \
    X(reflection_pad2d, cb_nn_reflection_pad2d(cb_dims(1, 2, 0, 2)))                               \
    X(reflection_pad3d, cb_nn_reflection_pad3d(1))                                                 \
    X(replication_pad1d, cb_nn_replication_pad1d(cb_dims(3, 7)))                                   \
    X(replication_pad2d, cb_nn_replication_pad2d(2))                                               \
    X(replication_pad3d, cb_nn_replication_pad3d(cb_dims(1, 0, 2, 1, 0, 3)))                       \
    X(circular_pad1d, cb_nn_circular_pad1d(cb_dims(4, 1)))                                         \
    X(circular_pad2d, cb_nn_circular_pad2d(cb_dims(1, 2, 3, 0)))                                   \
    X(circular_pad3d, cb_nn_circular_pad3d(1))                                                     \
    X(upsample, cb_nn_upsample(CB_NO_DIMS, 2, "bilinear"))                                         \
    X(upsample_nearest, cb_nn_upsample(cb_dims(5, 7)))                                             \
    X(upsample_corners, cb_nn_upsample(7, 0, "linear", true))                                      \
    X(upsample_cubic, cb_nn_upsample(CB_NO_DIMS, cb_floats(2, 1.5), "bicubic"))                    \
    X(upsample_area, cb_nn_upsample(CB_NO_DIMS, cb_floats(1.5, 0.5, 1), "area"))                   \
    X(upsample_again, cb_nn_upsample(CB_NO_DIMS, cb_floats(1.3, 2.6), "bilinear", false, true))    \
    X(upsample_exact, cb_nn_upsample(CB_NO_DIMS, 1.5, "nearest-exact"))                            \
    X(unfold, cb_nn_unfold(cb_dims(2, 3), 1, cb_dims(1, 0), 2))                                    \
    X(fold, cb_nn_fold(cb_dims(4, 5), 2))                                                          \
    X(pixel_shuffle, cb_nn_pixel_shuffle(2))                                                       \
    X(pixel_unshuffle, cb_nn_pixel_unshuffle(2))                                                   \
    X(channel_shuffle, cb_nn_channel_shuffle(2))                                                   \
    X(flatten, cb_nn_flatten())                                                                    \
    X(unflatten, cb_nn_unflatten(1, cb_dims(2, 3)))                                                \
    X(relu, cb_nn_relu())                                                                          \
    X(silu, cb_nn_silu())                                                                          \
    X(tanh, cb_nn_tanh())                                                                          \
    X(sigmoid, cb_nn_sigmoid())                                                                    \
    X(relu6, cb_nn_relu6())                                                                        \
    X(selu, cb_nn_selu())                                                                          \
    X(hardswish, cb_nn_hardswish())                                                                \
    X(hardsigmoid, cb_nn_hardsigmoid())                                                            \
    X(mish, cb_nn_mish())                                                                          \
    X(softsign, cb_nn_softsign())                                                                  \
    X(logsigmoid, cb_nn_logsigmoid())                                                              \
    X(tanhshrink, cb_nn_tanhshrink())                                                              \
    X(elu, cb_nn_elu(0.7))                                                                         \
    X(celu, cb_nn_celu(1.5))                                                                       \
    X(leaky_relu, cb_nn_leaky_relu())                                                              \
    X(hardtanh, cb_nn_hardtanh(-2.0, 0.5))                                                         \
    X(hardshrink, cb_nn_hardshrink())                                                              \
    X(softshrink, cb_nn_softshrink(0.25))                                                          \
    X(softplus, cb_nn_softplus(2, 3))                                                              \
    X(threshold, cb_nn_threshold(0.5, 20.0))                                                       \
    X(glu, cb_nn_glu())                                                                            \
    X(softmax, cb_nn_softmax(-1))                                                                  \
    X(softmin, cb_nn_softmin(0))                                                                   \
    X(log_softmax, cb_nn_log_softmax(1))                                                           \
    X(gelu, cb_nn_gelu())                                                                          \
    X(gelu_tanh, cb_nn_gelu(true))                                                                 \
    X(prelu, cb_nn_prelu())                                                                        \
    X(prelu_channels, cb_nn_prelu(3, 0.5))

#define MAKE(name, ...) cb_module_add(all, #name, __VA_ARGS__);

static cb_module *all_layers(void) {
    cb_module *all = cb_module_new("Layers", NULL, NULL);
    LAYERS(MAKE)
    cb_module_add(all, "attention",
                  cb_nn_multihead_attention(8, 2, 0, true, false, false, 0, 0, true));
    if (cb_error()) print_error("%s\n", cb_error());
    assert_null(cb_error());
    return all;
}

static cb_tensor *value_of(cb_safetensors *io, const char *layer, const char *what) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", layer, what);
    cb_tensor *x = cb_safetensors_get(io, key);
    assert_non_null(x);
    return x;
}

static void expect_text(cb_module *layer, const char *expected) {
    char *text = cb_module_text(layer);
    assert_non_null(expected);
    assert_string_equal(text, expected);
    cb_free_text(text);
}

/* In the state dict's order; what a norm left behind. */
static void expect_statistics(const char *name, cb_module *layer, cb_safetensors *io) {
    const char *buffers[] = {"running_mean", "running_var", "num_batches_tracked"};
    for (int i = 0; i < 3; i++) {
        cb_tensor *value = cb_module_get(layer, buffers[i]);
        cb_clear_error();
        if (value) expect_close(name, value, value_of(io, name, buffers[i]));
    }
}

static void layers_are_pytorchs(void **state) {
    (void)state;
    cb_module *all = all_layers();
    load(all, DATA "layers.safetensors");
    cb_safetensors *io = open_file(DATA "layers_io.safetensors");
    for (int i = 0; i < cb_module_child_count(all); i++) {
        const char *name;
        cb_module *layer = cb_module_child_at(all, i, &name);
        expect_text(layer, cb_safetensors_metadata(io, name));
        if (strcmp(name, "attention") == 0) continue;
        cb_tensor *x = value_of(io, name, "x"), *y = value_of(io, name, "y");
        expect_close(name, cb_forward(layer, x), y);
        expect_statistics(name, layer, io);
    }
    cb_module *attention = cb_module_child(all, "attention");
    cb_tensor *x = value_of(io, "attention", "x"), *source = value_of(io, "attention", "source");
    cb_tensor *mask = value_of(io, "attention", "mask");
    expect_close("self", cb_forward(attention, x), value_of(io, "attention", "self"));
    expect_close("attention", cb_forward(attention, x, source, source, mask),
                 value_of(io, "attention", "y"));
    cb_module *rows = cb_nn_multihead_attention(8, 2);
    cb_module_save_state(attention, "attention.safetensors.tmp");
    load(rows, "attention.safetensors.tmp");
    remove("attention.safetensors.tmp");
    expect_close("rows", cb_forward(rows, x), value_of(io, "attention", "rows"));
    cb_module_free(rows);
    cb_safetensors_close(io);
    cb_module_free(all);
}

/* One by one, through the whole compiler but the C compiler. */
static void layers_compile(void **state) {
    (void)state;
    cb_module *all = all_layers();
    load(all, DATA "layers.safetensors");
    cb_safetensors *io = open_file(DATA "layers_io.safetensors");
    for (int i = 0; i < cb_module_child_count(all) - 1; i++) {
        const char *name;
        cb_module *layer = cb_module_child_at(all, i, &name);
        cb_function *compiled = cb_compile(layer, "backend=vm,fullgraph=1");
        expect_close(name, cb_call(compiled, value_of(io, name, "x")), value_of(io, name, "y"));
        expect_statistics(name, layer, io);
        cb_function_free(compiled);
    }
    cb_safetensors_close(io);
    cb_module_free(all);
}

/* ---- networks ------------------------------------------------------------------------------- */

/* Eager and compiled. */
static void expect_as_pytorch(cb_module *net, const char *weights, const char *io) {
    load(net, weights);
    cb_module_train(net, false);
    cb_safetensors *file = open_file(io);
    cb_tensor *x = cb_safetensors_get(file, "x"), *y = cb_safetensors_get(file, "y");
    cb_safetensors_close(file);
    expect_close("eager", cb_forward(net, x), y);
    cb_function *compiled = cb_compile(net, "backend=vm,fullgraph=1");
    expect_close("compiled", cb_call(compiled, x), y);
    cb_function_free(compiled);
    cb_module_free(net);
}

static void alexnet_is_pytorchs(void **state) {
    (void)state;
    cb_alexnet_config tiny = {{2, 6, 12, 8, 8}, 128, 10, 0.5};
    expect_as_pytorch(cb_model_alexnet(tiny), DATA "alexnet.safetensors",
                      DATA "alexnet_io.safetensors");
}

static void resnet18_is_pytorchs(void **state) {
    (void)state;
    cb_resnet_config tiny = cb_resnet18_config();
    tiny.width = 2;
    tiny.classes = 10;
    expect_as_pytorch(cb_model_resnet(tiny), DATA "resnet18.safetensors",
                      DATA "resnet18_io.safetensors");
}

static void resnet50_is_pytorchs(void **state) {
    (void)state;
    cb_resnet_config tiny = cb_resnet50_config();
    tiny.width = 2;
    tiny.classes = 10;
    expect_as_pytorch(cb_model_resnet(tiny), DATA "resnet50.safetensors",
                      DATA "resnet50_io.safetensors");
}

static void gpt2_is_pytorchs(void **state) {
    (void)state;
    expect_as_pytorch(cb_model_gpt2(cb_gpt2_tiny_config()), DATA "gpt2.safetensors",
                      DATA "gpt2_io.safetensors");
}

/* ---- Hugging Face's GPT-2 ------------------------------------------------------------------- */

enum { MOST_WEIGHTS = 64 };

typedef struct Renamed {
    char name[MOST_WEIGHTS][64];
    const char *names[MOST_WEIGHTS];
    cb_tensor *tensor[MOST_WEIGHTS];
    int count;
    const char *prefix;
} Renamed;

static void rename_as_theirs(const char *name, cb_tensor *x, bool buffer, void *user) {
    static const char *const pairs[][2] = {{".ln1.", ".ln_1."},        {".ln2.", ".ln_2."},
                                           {".qkv.", ".attn.c_attn."}, {".proj.", ".attn.c_proj."},
                                           {".fc.", ".mlp.c_fc."},     {".fc2.", ".mlp.c_proj."},
                                           {"lnf.", "ln_f."}};
    Renamed *to = user;
    if (buffer || !strcmp(name, "head.weight")) return;
    char *theirs = to->name[to->count];
    snprintf(theirs, sizeof to->name[0], "%s%s", to->prefix, name);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *at = strstr(name, pairs[i][0]);
        if (at)
            snprintf(theirs, sizeof to->name[0], "%s%.*s%s%s", to->prefix, (int)(at - name), name,
                     pairs[i][1], at + strlen(pairs[i][0]));
    }
    bool linear = name[0] == 'h' && cb_rank(x) == 2;
    to->names[to->count] = theirs;
    to->tensor[to->count++] = linear ? cb_t(x) : x;
}

static cb_tensor *logits_of(cb_module *net) {
    cb_safetensors *io = open_file(DATA "gpt2_io.safetensors");
    cb_tensor *y = cb_forward(net, cb_safetensors_get(io, "x"));
    cb_safetensors_close(io);
    return y;
}

static void expect_refused(Renamed *weights, const char *path, const char *message) {
    assert_int_equal(cb_safetensors_save(path, weights->names, weights->tensor, weights->count),
                     CB_OK);
    assert_null(cb_model_gpt2_load(path, 4));
    assert_non_null(strstr(cb_error(), message));
    cb_clear_error();
}

/* With the mask that older files have, too. */
static void gpt2_of_hugging_face(void **state) {
    (void)state;
    char path[] = "/tmp/carbide_gpt2_XXXXXX";
    close(mkstemp(path));
    cb_module *net = cb_model_gpt2(cb_gpt2_tiny_config());
    load(net, DATA "gpt2.safetensors");
    static const char *const prefixes[] = {"", "transformer."};
    for (int i = 0; i < 2; i++) {
        Renamed weights = {.prefix = prefixes[i]};
        cb_module_visit(net, rename_as_theirs, &weights);
        assert_int_equal(weights.count, 2 + 2 * 12 + 2);
        weights.names[weights.count] = i ? "transformer.h.0.attn.bias" : "h.0.attn.bias";
        weights.tensor[weights.count++] = cb_ones(cb_dims(1, 1, 32, 32));
        assert_int_equal(cb_safetensors_save(path, weights.names, weights.tensor, weights.count),
                         CB_OK);
        cb_module *loaded = cb_model_gpt2_load(path, 4);
        assert_non_null(loaded);
        assert_true(cb_item(cb_all(cb_eq(logits_of(loaded), logits_of(net)))) != 0);
        cb_module_free(loaded);
        weights.tensor[2] = cb_ones(cb_dims(3));
        expect_refused(&weights, path, "ln_1.weight has other sizes than the rest");
        weights.names[2] = "other";
        expect_refused(&weights, path, "ln_1.weight");
        weights.tensor[0] = cb_ones(cb_dims(3));
        expect_refused(&weights, path, "the embeddings are no matrices");
    }
    assert_null(cb_model_gpt2_load(path, 0)); /* heads 64 wide, in a width of 32 */
    cb_clear_error();
    unlink(path);
    assert_null(cb_model_gpt2_load(path, 4));
    cb_clear_error();
    cb_module_free(net);
}

/* The head is wte's table: none of its own is made. Before all others: the peak is the process's.
 */
static void heads_are_tied_without_a_table(void **state) {
    (void)state;
    enum { TOKENS = 16384, WIDTH = 256, MOST = 4 * WIDTH * (TOKENS + 100) };
    cb_module *net = cb_model_gpt2((cb_gpt2_config){TOKENS, 16, WIDTH, 0, 4});
    int64_t peak = cb_memory().peak_bytes;
    if (peak > MOST) fail_msg("%lld bytes at the peak", (long long)peak);
    assert_ptr_equal(cb_data(cb_module_get(net, "head.weight")),
                     cb_data(cb_module_get(net, "wte.weight")));
    expect_text(cb_module_child(net, "head"),
                "Linear(in_features=256, out_features=16384, bias=False)");
    cb_module_free(net);
    cb_cleanup();
}

static cb_module *writer;

static cb_tensor *write_on(cb_tensor *tokens) { return cb_forward(writer, tokens); }

/* A text that grows, its number of tokens that of its heads, of their width and of the model's
 * among them: the first length is compiled for itself, the second one for all that come. */
static void growing_texts_compile_twice(void **state) {
    (void)state;
    int lengths = 0;
    writer = cb_model_gpt2((cb_gpt2_config){64, 160, 96, 2, 6});
    assert_non_null(writer);
    cb_set_option("passing_sizes", "0"); /* all lengths are compiled for */
    cb_function *fast = cb_compile(write_on, "");
    for (int n = 2; n <= 128; n += n < 40 ? 1 : 8, lengths++) {
        cb_scope_open();
        cb_tensor *token = cb_remainder(cb_mul(cb_arange(0, n), 37), 61);
        token = cb_reshape(token, cb_dims(1, n));
        expect_close("text", cb_call(fast, token), write_on(token));
        cb_scope_close();
    }
    cb_function_stats stats = cb_stats(fast);
    assert_int_equal(stats.eager_calls, 0);
    assert_int_equal(stats.graphs, lengths);
    assert_int_equal(stats.compiled, 2);
    cb_set_option("passing_sizes", "8");
    cb_function_free(fast);
    cb_module_free(writer);
}

static void expect_start(const char *name, cb_tensor *tensor, bool buffer, void *layers) {
    (void)buffer;
    bool norm = strstr(name, "ln") != NULL, ends = strstr(name, ".proj.") || strstr(name, ".fc2.");
    double mean = cb_item(cb_mean(tensor));
    double deviation = cb_item(cb_sqrt(cb_mean(cb_square(cb_sub(tensor, mean)))));
    double wanted = ends ? 0.02 / sqrt(2.0 * *(int *)layers) : 0.02;
    if (cb_rank(tensor) == 1) wanted = 0;
    if (fabs(deviation - wanted) > 0.03 * wanted) fail_msg("%s: deviation %g", name, deviation);
    double off = mean - (norm && strstr(name, "weight") ? 1 : 0);
    if (fabs(off) > 0.03 * wanted) fail_msg("%s: mean %g", name, mean);
}

/* What bench_train measures: from tables of deviation 1 four in ten elements of the gradient were
 * below 1e-38, and its products took up to ten times as long. */
static void gpt2_begins_with_its_own_values(void **state) {
    (void)state;
    enum { TOKENS = 256, TEXTS = 4, LENGTH = 64 };
    int layers = 2;
    cb_module *net = cb_model_gpt2((cb_gpt2_config){TOKENS, LENGTH, 128, layers, 4});
    cb_module_visit(net, expect_start, &layers);
    cb_tensor *logits = cb_forward(net, cb_randint(0, TOKENS, cb_dims(TEXTS, LENGTH))), *gradient;
    logits = cb_requires_grad_(cb_reshape(logits, cb_dims(-1, TOKENS)), true);
    cb_tensor *loss = cb_cross_entropy(logits, cb_randint(0, TOKENS, cb_dims(TEXTS * LENGTH)));
    assert_true(fabs(cb_item(loss) - log(TOKENS)) < 0.2);
    assert_int_equal(cb_grad(loss, NULL, &logits, 1, &gradient), CB_OK);
    assert_true(cb_item(cb_min(cb_abs(gradient))) > 1e-6);
    cb_module_free(net);
}

static void count_elements(const char *name, cb_tensor *tensor, bool buffer, void *user) {
    (void)name;
    if (!buffer) *(int64_t *)user += cb_numel(tensor);
}

static int64_t parameters_of(cb_module *net) {
    int64_t count = 0;
    assert_non_null(net);
    cb_module_visit(net, count_elements, &count);
    cb_module_free(net);
    return count;
}

/* The counts that torchvision names; resnet50's state dict has 320 entries. */
static void full_sizes_are_the_originals(void **state) {
    (void)state;
    assert_int_equal(parameters_of(cb_model_resnet(cb_resnet18_config())), 11689512);
    cb_alexnet_config alexnet = cb_alexnet_config_default();
    assert_int_equal(alexnet.channels[4] * 36, 9216);
    assert_int_equal(alexnet.hidden, 4096);
    cb_gpt2_config gpt2 = cb_gpt2_124m_config();
    assert_int_equal(gpt2.width / gpt2.heads, 64);
}

static void failures_leave_nothing(void **state) {
    (void)state;
    int64_t before = cb_memory().live_tensors;
    cb_gpt2_config config = cb_gpt2_tiny_config();
    config.vocabulary = -1;
    assert_null(cb_model_gpt2(config));
    assert_non_null(strstr(cb_error(), "negative size"));
    cb_clear_error();
    for (int i = 0; i < 3; i++) {
        static const int64_t wrong[][2] = {{2, 0}, {2, 5}, {-3, 4}}; /* layers, heads */
        config = cb_gpt2_tiny_config(), config.layers = wrong[i][0], config.heads = wrong[i][1];
        assert_null(cb_model_gpt2(config));
        assert_non_null(strstr(cb_error(), i < 2 ? "heads do not divide a width of 32" : "layers"));
        cb_clear_error();
    }
    cb_resnet_config resnet = cb_resnet18_config();
    for (int i = 0; i < 2; i++) {
        resnet.blocks[2] = i ? -1 : 65;
        assert_null(cb_model_resnet(resnet));
        assert_non_null(strstr(cb_error(), "blocks in layer3"));
        cb_clear_error();
    }
    cb_alexnet_config alexnet = {{2, 6, 0, 8, 8}, 128, 10, 0.5};
    assert_null(cb_model_alexnet(alexnet));
    assert_non_null(strstr(cb_error(), "Conv2d"));
    cb_clear_error();
    assert_int_equal(cb_memory().live_tensors, before);
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, open_scope, close_scope)

int main(void) {
    const struct CMUnitTest tests[] = {
        ONE(heads_are_tied_without_a_table),
        ONE(layers_are_pytorchs),
        ONE(layers_compile),
        ONE(alexnet_is_pytorchs),
        ONE(resnet18_is_pytorchs),
        ONE(resnet50_is_pytorchs),
        ONE(gpt2_is_pytorchs),
        ONE(gpt2_of_hugging_face),
        ONE(gpt2_begins_with_its_own_values),
        ONE(full_sizes_are_the_originals),
        ONE(failures_leave_nothing),
        ONE(growing_texts_compile_twice),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
