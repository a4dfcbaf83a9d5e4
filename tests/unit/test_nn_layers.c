/* Layers of convolutional networks and attention: repr, keys, initialization, modes, mistakes.
 * Their values are compared with PyTorch's in test_models.c. */
#include "fixture.h"

#include "carbide.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void expect_repr(cb_module *module, const char *expected) {
    char *text = cb_module_text(module);
    if (!text) print_error("%s\n", cb_error());
    assert_string_equal(text, expected);
    cb_free_text(text);
    cb_module_free(module);
}

static double greatest(cb_tensor *x) { return cb_item(cb_max(cb_abs(x))); }

static void expect_near(double value, double expected) {
    if (!(fabs(value - expected) <= 1e-5 * (1 + fabs(expected))))
        print_error("%.9g is not %.9g\n", value, expected);
    assert_true(fabs(value - expected) <= 1e-5 * (1 + fabs(expected)));
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* Forms beside those that test_models.c compares with PyTorch's. */
static void repr_is_pytorchs(void **state) {
    (void)state;
    expect_repr(cb_nn_conv2d(3, 64, 11, 4, 2),
                "Conv2d(3, 64, kernel_size=(11, 11), stride=(4, 4), padding=(2, 2))");
    expect_repr(cb_nn_conv2d(3, 4, 3, 1, "valid"),
                "Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1))");
    expect_repr(
        cb_nn_max_pool2d(cb_dims(2, 3)),
        "MaxPool2d(kernel_size=(2, 3), stride=(2, 3), padding=0, dilation=1, ceil_mode=False)");
    expect_repr(cb_nn_adaptive_avg_pool2d(1), "AdaptiveAvgPool2d(output_size=1)");
    expect_repr(cb_nn_embedding(10, 3), "Embedding(10, 3)");
    expect_repr(cb_nn_dropout2d(0.25), "Dropout2d(p=0.25, inplace=False)");
}

/* The printed texts are PyTorch's. */
static void options_are_printed(void **state) {
    (void)state;
    expect_repr(cb_nn_conv1d(4, 4, 3, 1, 2, 2, 2, false, "replicate"),
                "Conv1d(4, 4, kernel_size=(3,), stride=(1,), padding=(2,), dilation=(2,), "
                "groups=2, bias=False, padding_mode=replicate)");
    expect_repr(cb_nn_conv_transpose2d(4, 2, 3, 2, 1, 1, 1, true, 1),
                "ConvTranspose2d(4, 2, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), "
                "output_padding=(1, 1))");
    expect_repr(cb_nn_layer_norm(cb_dims(2, 3), 1e-6, false),
                "LayerNorm((2, 3), eps=1e-06, elementwise_affine=False)");
    expect_repr(cb_nn_layer_norm(4, 1e-5, true, false),
                "LayerNorm((4,), eps=1e-05, elementwise_affine=True)");
    expect_repr(cb_nn_rms_norm(4, 1, false), "RMSNorm((4,), eps=1, elementwise_affine=False)");
    expect_repr(cb_nn_rms_norm(4), "RMSNorm((4,), eps=None, elementwise_affine=True)");
    expect_repr(cb_nn_threshold(20000000.0, 0.0), "Threshold(threshold=20000000.0, value=0.0)");
    expect_repr(cb_nn_threshold(1, (bool)true), "Threshold(threshold=1, value=True)");
    expect_repr(cb_nn_hardtanh(0.1 + 0.2, (bool)false),
                "Hardtanh(min_val=0.30000000000000004, max_val=False)");
    expect_repr(cb_nn_threshold(1e300, -1e16), "Threshold(threshold=1e+300, value=-1e+16)");
    expect_repr(cb_nn_avg_pool1d(3), "AvgPool1d(kernel_size=(3,), stride=(3,), padding=(0,))");
    expect_repr(cb_nn_upsample(CB_NO_DIMS, cb_floats(2, 1.5), "bilinear", true),
                "Upsample(scale_factor=(2.0, 1.5), mode='bilinear')");
    expect_repr(cb_nn_upsample(cb_dims(4, 5), 0, "area"), "Upsample(size=(4, 5), mode='area')");
    expect_repr(cb_nn_instance_norm2d(3),
                "InstanceNorm2d(3, eps=1e-05, momentum=0.1, affine=False, "
                "track_running_stats=False)");
    expect_repr(cb_nn_replication_pad3d(1), "ReplicationPad3d((1, 1, 1, 1, 1, 1))");
    expect_repr(cb_nn_circular_pad1d(cb_dims(1, 2)), "CircularPad1d((1, 2))");
    expect_repr(cb_nn_constant_pad3d(1, 2), "ConstantPad3d(padding=(1, 1, 1, 1, 1, 1), value=2)");
    expect_repr(cb_nn_linear(0, 2), "Linear(in_features=0, out_features=2, bias=True)");
}

/* One instance without its batch is one of a batch of it. */
static void modes_without_a_batch(void **state) {
    (void)state;
    cb_module *norm = cb_nn_instance_norm1d(2, 1e-5, 0.5, true, true);
    cb_tensor *x = cb_reshape(cb_arange(0, 8, 1, CB_F32), cb_dims(2, 4));
    cb_tensor *y = cb_forward(norm, x), *z = cb_forward(norm, cb_unsqueeze(x, 0));
    expect_near(greatest(cb_sub(z, y)), 0);
    cb_module_train(norm, false);
    assert_int_equal(cb_rank(cb_forward(norm, x)), 2);
    cb_module_free(norm);
    norm = cb_nn_batch_norm1d(2, 1e-5, -1);
    cb_module_train(norm, false);
    y = cb_t(x); /* nothing moved the statistics: but for eps, x itself */
    assert_true(greatest(cb_sub(cb_forward(norm, y), y)) < 1e-4);
    cb_module_free(norm);
    cb_module *drop = cb_nn_dropout2d(0), *all = cb_nn_dropout(1);
    y = cb_unsqueeze(x, 0);
    assert_ptr_equal(cb_forward(drop, y), y);
    cb_module_free(drop);
    expect_near(greatest(cb_forward(all, x)), 0);
    cb_module_free(all);
    cb_module *a = cb_nn_multihead_attention(4, 2, 1.0);
    cb_tensor *weights;
    y = cb_multihead_attention(a, x, x, x, NULL, NULL, true, &weights);
    assert_int_equal(cb_rank(weights), 2);
    expect_near(cb_item(cb_max(weights)), 0);
    cb_module_free(a);
}

static void dropout_drops_whole_channels(void **state) {
    (void)state;
    cb_module *dropout = cb_nn_dropout2d(0.5);
    cb_tensor *x = cb_ones(cb_dims(8, 16, 3, 4)), *y = cb_forward(dropout, x);
    cb_tensor *least = cb_amin(y, cb_dims(2, 3)), *most = cb_amax(y, cb_dims(2, 3));
    assert_true(cb_item(cb_max(cb_abs(cb_sub(least, most)))) == 0); /* all of a channel alike */
    double kept = cb_item(cb_sum(cb_gt(most, 0)));
    assert_true(kept > 40 && kept < 88 && cb_item(cb_max(most)) == 2);
    assert_null(cb_forward(dropout, cb_ones(cb_dims(3, 4))));
    expect_error("Dropout2d: expected 3D or 4D input (got 2D input)");
    cb_module_train(dropout, false);
    assert_ptr_equal(cb_forward(dropout, x), x);
    cb_module_free(dropout);
}

static void append_name(const char *name, cb_tensor *tensor, bool buffer, void *user) {
    (void)tensor;
    strcat(strcat((char *)user, name), buffer ? "* " : " ");
}

static void keys_are_pytorchs(void **state) {
    (void)state;
    cb_module *net = cb_nn_sequential(cb_nn_conv2d(3, 4, 3), cb_nn_batch_norm2d(4, 1e-5, 0.1),
                                      cb_nn_multihead_attention(4, 2, 0, true));
    char names[512] = "";
    cb_module_visit(net, append_name, names);
    assert_string_equal(names,
                        "0.weight 0.bias 1.weight 1.bias 1.running_mean* 1.running_var* "
                        "1.num_batches_tracked* 2.in_proj_weight 2.in_proj_bias 2.out_proj.weight "
                        "2.out_proj.bias ");
    assert_int_equal(cb_rank(cb_module_get(net, "1.num_batches_tracked")), 0);
    assert_int_equal(cb_dtype_of(cb_module_get(net, "1.num_batches_tracked")), CB_I64);
    cb_module_free(net);
}

static void initialization_is_pytorchs(void **state) {
    (void)state;
    cb_module *conv = cb_nn_conv2d(16, 32, 3, 1, 0, 1, 2);
    cb_tensor *weight = cb_module_get(conv, "weight");
    double bound = 1 / sqrt(8.0 * 9);
    assert_int_equal(cb_size(weight, 1), 8);
    assert_true(greatest(weight) <= bound && greatest(weight) > 0.98 * bound);
    assert_true(fabs(cb_item(cb_std(weight)) - bound / sqrt(3)) < 0.03 * bound);
    assert_true(greatest(cb_module_get(conv, "bias")) <= bound);
    cb_module_free(conv);
    conv = cb_nn_conv_transpose2d(16, 4, 3, 1, 0, 0, 2, false);
    weight = cb_module_get(conv, "weight");
    assert_int_equal(cb_size(weight, 0), 16);
    assert_int_equal(cb_size(weight, 1), 2);
    bound = 1 / sqrt(2.0 * 9);
    assert_true(greatest(weight) <= bound && greatest(weight) > 0.95 * bound);
    assert_null(cb_module_get(conv, "bias"));
    assert_null(cb_error());
    cb_module_free(conv);
    cb_module *attention = cb_nn_multihead_attention(16, 4, 0, true);
    bound = sqrt(6.0 / 64);
    weight = cb_module_get(attention, "in_proj_weight");
    assert_true(greatest(weight) <= bound && greatest(weight) > 0.98 * bound);
    assert_true(greatest(cb_module_get(attention, "out_proj.bias")) == 0);
    cb_module_free(attention);
}

/* As PyTorch, which counts the batch, too. */
static void empty_batches_move_no_statistics(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        cb_module *norm = i < 2 ? cb_nn_batch_norm1d(2, 1e-5, i ? -1 : 0.1)
                                : cb_nn_instance_norm1d(2, 1e-5, 0.1, false, true);
        cb_tensor *y = cb_forward(norm, cb_ones(i < 2 ? cb_dims(0, 2, 3) : cb_dims(2, 2, 0)));
        assert_null(cb_error());
        assert_int_equal(cb_numel(y), 0);
        expect_near(cb_item(cb_select(cb_module_get(norm, "running_mean"), 0, 0)), 0);
        expect_near(cb_item(cb_select(cb_module_get(norm, "running_var"), 0, 0)), 1);
        assert_int_equal(cb_item_int(cb_module_get(norm, "num_batches_tracked")), i < 2);
        cb_module_free(norm);
    }
}

/* Then it always takes those of the batch. */
static void batch_norm_without_statistics(void **state) {
    (void)state;
    cb_module *norm = cb_nn_batch_norm1d(2, 1e-5, 0.1, true, false);
    cb_tensor *x = cb_from_data(((float[]){1, 10, 3, 30, 5, 80}), CB_F32, cb_dims(3, 2));
    for (int training = 0; training < 2; training++) {
        cb_module_train(norm, training);
        cb_tensor *y = cb_forward(norm, x);
        assert_non_null(y);
        expect_near(cb_item(cb_select(cb_select(y, 0, 0), 0, 0)), -2 / sqrt(8.0 / 3 + 1e-5));
    }
    cb_module_free(norm);
}

static void batch_norm_tracks_in_training(void **state) {
    (void)state;
    cb_module *norm = cb_nn_batch_norm1d(2, 1e-5, 0.1);
    cb_tensor *mean = cb_module_get(norm, "running_mean");
    const float rows[] = {1, 10, 3, 30, 5, 80};
    cb_tensor *x = cb_from_data(rows, CB_F32, cb_dims(3, 2));
    cb_tensor *y = cb_forward(norm, x);
    assert_null(cb_error());
    expect_near(cb_item(cb_select(cb_select(y, 0, 0), 0, 0)), -2 / sqrt(8.0 / 3 + 1e-5));
    assert_ptr_equal(mean, cb_module_get(norm, "running_mean")); /* in place */
    expect_near(cb_item(cb_select(mean, 0, 0)), 0.3);
    expect_near(cb_item(cb_select(mean, 0, 1)), 4);
    expect_near(cb_item(cb_select(cb_module_get(norm, "running_var"), 0, 0)), 0.9 + 0.4);
    assert_int_equal(cb_item_int(cb_module_get(norm, "num_batches_tracked")), 1);
    cb_module_train(norm, false);
    y = cb_forward(norm, x);
    expect_near(cb_item(cb_select(cb_select(y, 0, 0), 0, 0)), 0.7 / sqrt(1.3 + 1e-5));
    assert_int_equal(cb_item_int(cb_module_get(norm, "num_batches_tracked")), 1);
    cb_module_train(norm, true);
    assert_null(cb_forward(norm, cb_ones(cb_dims(1, 2))));
    expect_error("more than 1 value per channel");
    assert_null(cb_forward(norm, cb_ones(cb_dims(2))));
    expect_error("expected 2D or 3D input (got 1D input)");
    cb_module_free(norm);
}

/* A compiled training step moves the statistics as an eager one does. */
static void batch_norm_tracks_when_compiled(void **state) {
    (void)state;
    cb_module *eager = cb_nn_batch_norm2d(3, 1e-5, 0.1), *other = cb_nn_batch_norm2d(3, 1e-5, 0.1);
    cb_function *compiled = cb_compile(other, "backend=vm");
    for (int step = 0; step < 3; step++) {
        cb_tensor *x = cb_add(cb_mul(cb_randn(cb_dims(4, 3, 5, 5)), 2.0), 1.0);
        cb_tensor *a = cb_forward(eager, x), *b = cb_call(compiled, x);
        if (cb_error()) print_error("%s\n", cb_error());
        assert_true(greatest(cb_sub(a, b)) < 1e-4);
    }
    const char *names[] = {"running_mean", "running_var", "num_batches_tracked"};
    for (int i = 0; i < 3; i++)
        assert_true(greatest(cb_sub(cb_module_get(eager, names[i]),
                                    cb_module_get(other, names[i]))) < 1e-5);
    assert_int_equal(cb_item_int(cb_module_get(other, "num_batches_tracked")), 3);
    cb_function_free(compiled);
    cb_module_free(eager);
    cb_module_free(other);
}

static void attention_attends(void **state) {
    (void)state;
    cb_module *attention = cb_nn_multihead_attention(8, 2, 0.0, true, false, false, 0, 0, true);
    cb_tensor *x = cb_randn(cb_dims(2, 5, 8)), *other = cb_add(x, 0.0);
    cb_tensor *y = cb_forward(attention, x);
    assert_null(cb_error());
    assert_true(greatest(cb_sub(y, cb_forward(attention, x, other, other))) < 1e-6);
    assert_true(greatest(cb_sub(cb_select(y, 0, 1), cb_forward(attention, cb_select(x, 0, 1)))) <
                1e-6);
    /* With the last source forbidden, it does not matter what it holds. */
    cb_tensor *mask = cb_eq(cb_add(cb_arange(0, 5), cb_zeros(cb_dims(5, 5))), 4);
    cb_tensor *changed = cb_clone(x);
    cb_assign(cb_select(changed, 1, 4), cb_randn(cb_dims(2, 8)));
    cb_tensor *a = cb_forward(attention, x, x, x, mask);
    cb_tensor *b = cb_forward(attention, x, changed, changed, mask);
    assert_null(cb_error());
    assert_true(greatest(cb_sub(a, b)) < 1e-6);
    assert_true(greatest(cb_sub(a, y)) > 1e-4);
    assert_null(cb_forward(attention, x, x));
    expect_error("not 2 inputs");
    assert_null(cb_forward(attention, cb_ones(cb_dims(2, 5, 7))));
    expect_error("query is [batch, length, 8] or [length, 8], not [2, 5, 7]");
    cb_module_free(attention);
}

static void mistakes_are_named(void **state) {
    (void)state;
    assert_null(cb_nn_conv2d(3, 4, 3, 1, 0, 1, 2));
    expect_error("Conv2d: 2 groups do not divide 3 input and 4 output channels");
    assert_null(cb_nn_conv2d(3, 4, cb_dims(3, 3, 3)));
    expect_error("kernel_size has one or 2 numbers");
    assert_null(cb_nn_conv2d(3, 4, 3, 0));
    expect_error("stride has one or 2 numbers, each at least 1");
    assert_null(cb_nn_conv2d(3, 4, 3, 1, "sam"));
    expect_error("padding is \"same\" or \"valid\" or numbers, not \"sam\"");
    assert_null(cb_nn_conv2d(3, 4, 3, 2, "same"));
    expect_error("padding 'same' goes with a stride of 1, not (2, 2)");
    assert_null(cb_nn_conv2d(3, 4, 3, 1, 0, 1, 1, true, "mirror"));
    expect_error("padding_mode is zeros, reflect, replicate or circular, not mirror");
    assert_null(cb_nn_reflection_pad2d(cb_dims(1, 2)));
    expect_error("ReflectionPad2d: padding is one number, or 4, not 2");
    assert_null(cb_nn_upsample(3, 2));
    expect_error("either a size or a positive scale_factor");
    assert_null(cb_nn_group_norm(3, 4, 1e-5));
    expect_error("3 groups do not divide 4 channels");
    assert_null(cb_nn_upsample(CB_NO_DIMS, 2, "cubic"));
    expect_error("not cubic");
    assert_null(cb_nn_upsample(CB_NO_DIMS, cb_floats(2, -1), "bicubic"));
    expect_error("positive scale_factor, not () and (2.0, -1.0)");
    assert_null(cb_interpolate(cb_ones(cb_dims(1, 1, 2, 2)), CB_NO_DIMS, cb_floats(2, 2, 2)));
    expect_error("one for each of 2 spatial dims, not 3");
    assert_null(cb_interpolate(cb_ones(cb_dims(1, 1, 2)), 4, 0, false, false, false, true));
    expect_error("cubic needs two spatial dims, not 1");
    assert_null(cb_interpolate(cb_ones(cb_dims(1, 1, 2)), 4, 0, true, false, true));
    expect_error("are one mode each");
    assert_null(cb_nn_multihead_attention(8, 3, 0, true));
    expect_error("3 heads do not divide");
    cb_module *conv = cb_nn_conv2d(3, 4, 3);
    assert_null(cb_forward(conv, cb_ones(cb_dims(1, 2, 8, 8))));
    expect_error("conv2d: the weight takes 3 channels");
    cb_module_free(conv);
}

/* ---- allocations that fail ------------------------------------------------------------------ */

static void every_allocation_may_fail(void **state) {
    (void)state;
    int64_t before = cb_memory().live_tensors;
    bool done = false;
    for (int limit = 0; limit < 600 && !done; limit++) {
        cb_scope_open();
        allocations_left = limit;
        cb_module *net =
            cb_nn_sequential(cb_nn_batch_norm2d(3, 1e-5, 0.1), cb_nn_conv2d(3, 4, 3),
                             cb_nn_max_pool2d(2), cb_nn_multihead_attention(4, 2, 0, true));
        done = net != NULL;
        if (!done) assert_int_equal(cb_error_status(), CB_ERR_MEMORY);
        allocations_left = -1;
        cb_module_free(net);
        cb_clear_error();
        cb_scope_close();
    }
    assert_true(done);
    assert_int_equal(cb_memory().live_tensors, before);
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, open_scope, close_scope)

int main(void) {
    cb_set_allocator((cb_allocator){failing_resize, NULL});
    const struct CMUnitTest tests[] = {
        ONE(repr_is_pytorchs),
        ONE(options_are_printed),
        ONE(modes_without_a_batch),
        ONE(dropout_drops_whole_channels),
        ONE(keys_are_pytorchs),
        ONE(initialization_is_pytorchs),
        ONE(empty_batches_move_no_statistics),
        ONE(batch_norm_without_statistics),
        ONE(batch_norm_tracks_in_training),
        ONE(batch_norm_tracks_when_compiled),
        ONE(attention_attends),
        ONE(mistakes_are_named),
        ONE(every_allocation_may_fail),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
