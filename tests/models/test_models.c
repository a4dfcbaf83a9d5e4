/* Layers and whole networks against PyTorch: the same weights and inputs give the same outputs.
 * tests/models/reference.py wrote tests/models/data; the test runs in the root of the tree. */
#include "test_support.h"

#include "carbide_models.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DATA "tests/models/data/"

static int open_scope(void **state) {
    (void)state;
    cb_clear_error();
    cb_manual_seed(7);
    cb_scope_open();
    return 0;
}

static int close_scope(void **state) {
    (void)state;
    cb_scope_close();
    cb_clear_error();
    return 0;
}

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

static void layers_compute_as_pytorchs(void **state) {
    (void)state;
    cb_module *all = cb_module_new("Layers", NULL, NULL);
    cb_module_add(all, "conv1d", cb_nn_conv1d(4, 6, 3, 2, 1, 1, 2));
    cb_module_add(
        all, "conv2d",
        cb_nn_conv2d(3, 5, cb_dims(3, 2), cb_dims(2, 1), cb_dims(1, 0), cb_dims(1, 2), 1, false));
    cb_module_add(all, "conv3d", cb_nn_conv3d(2, 3, 2, 1, 1));
    cb_module_add(all, "conv_transpose2d", cb_nn_conv_transpose2d(4, 6, 3, 2, 1, 1, 2));
    cb_module_add(all, "batch_norm1d", cb_nn_batch_norm1d(4, 1e-5, 0.1));
    cb_module_add(all, "batch_norm2d", cb_nn_batch_norm2d(3, 1e-5, 0.1));
    cb_module_add(all, "group_norm", cb_nn_group_norm(2, 6, 1e-5));
    cb_module_add(all, "instance_norm2d", cb_nn_instance_norm2d(3, 1e-5, true));
    cb_module_add(all, "max_pool2d", cb_nn_max_pool2d(3, 2, 1, 1, true));
    cb_module_add(all, "avg_pool2d", cb_nn_avg_pool2d(3, 2, 1, true, false));
    cb_module_add(all, "adaptive_avg_pool2d", cb_nn_adaptive_avg_pool2d(cb_dims(3, 2)));
    cb_module_add(all, "upsample", cb_nn_upsample(2, "bilinear"));
    cb_module_add(all, "elu", cb_nn_elu(0.7));
    cb_module_add(all, "relu6", cb_nn_relu6());
    cb_module_add(all, "mish", cb_nn_mish());
    cb_module_add(all, "hardswish", cb_nn_hardswish());
    cb_module_add(all, "softplus", cb_nn_softplus(2, 3));
    cb_module_add(all, "attention", cb_nn_multihead_attention(8, 2, 0, true));
    load(all, DATA "layers.safetensors");
    cb_safetensors *io = open_file(DATA "layers_io.safetensors");
    for (int i = 0; i < cb_module_child_count(all) - 1; i++) {
        char key[64];
        const char *name;
        cb_module *layer = cb_module_child_at(all, i, &name);
        snprintf(key, sizeof key, "%s.x", name);
        cb_tensor *x = cb_safetensors_get(io, key);
        snprintf(key, sizeof key, "%s.y", name);
        expect_close(name, cb_forward(layer, x), cb_safetensors_get(io, key));
    }
    const char *statistics[] = {
        "batch_norm1d.running_mean",        "batch_norm1d.running_var",
        "batch_norm1d.num_batches_tracked", "batch_norm2d.running_mean",
        "batch_norm2d.running_var",         "batch_norm2d.num_batches_tracked"};
    for (int i = 0; i < 6; i++)
        expect_close(statistics[i], cb_module_get(all, statistics[i]),
                     cb_safetensors_get(io, statistics[i]));
    cb_module *attention = cb_module_child(all, "attention");
    cb_tensor *x = cb_safetensors_get(io, "attention.x");
    cb_tensor *source = cb_safetensors_get(io, "attention.source");
    cb_tensor *mask = cb_safetensors_get(io, "attention.mask");
    expect_close("self", cb_forward(attention, x), cb_safetensors_get(io, "attention.self"));
    expect_close("attention", cb_forward(attention, x, source, source, mask),
                 cb_safetensors_get(io, "attention.y"));
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
    cb_alexnet_config alexnet = {{2, 6, 0, 8, 8}, 128, 10, 0.5};
    assert_null(cb_model_alexnet(alexnet));
    assert_non_null(strstr(cb_error(), "Conv2d"));
    cb_clear_error();
    assert_int_equal(cb_memory().live_tensors, before);
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, open_scope, close_scope)

int main(void) {
    const struct CMUnitTest tests[] = {
        ONE(layers_compute_as_pytorchs), ONE(alexnet_is_pytorchs),
        ONE(resnet18_is_pytorchs),       ONE(resnet50_is_pytorchs),
        ONE(gpt2_is_pytorchs),           ONE(full_sizes_are_the_originals),
        ONE(failures_leave_nothing),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
