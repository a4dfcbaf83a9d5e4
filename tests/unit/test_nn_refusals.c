/* What modules refuse, with the words of the error: arguments of constructors, calls with other
 * inputs, NULL; and that all of it frees what it had begun. */
#include "fixture.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static cb_tensor *first_input(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)self;
    return count ? inputs[0] : NULL;
}

/* ---- constructors --------------------------------------------------------------------------- */

static void layers_refuse_sizes(void **state) {
    (void)state;
    REFUSED(cb_nn_linear(2, -1), "negative number of features: 2, -1");
    REFUSED(cb_nn_embedding(-1, 2), "Embedding: negative size");
    REFUSED(cb_nn_embedding(2, -1), "Embedding: negative size");
    REFUSED(cb_nn_embedding(2, 3, 2), "padding_idx 2");
    REFUSED(cb_nn_layer_norm(CB_NO_DIMS), "LayerNorm: the normalized shape has 1 to 8");
    REFUSED(cb_nn_rms_norm(CB_NO_DIMS), "RMSNorm: the normalized shape has 1 to 8");
    cb_dim_list long_list = {CB_MAX_RANK + 1, {1}};
    REFUSED(cb_nn_rms_norm(long_list), "has 1 to 8");
    REFUSED((cb_nn_rms_norm)(cb_dims_one(2), cb_operand_tensor(cb_ones(cb_dims(1))), true),
            "RMSNorm: eps is a number, and no tensor");
    REFUSED((cb_nn_constant_pad2d)(cb_dims_one(1), cb_operand_tensor(cb_ones(cb_dims(1)))),
            "ConstantPad2d: value is a number, and no tensor");
    REFUSED(cb_nn_constant_pad1d(cb_dims(1, 2, 3), 0), "padding is one number, or 2, not 3");
    REFUSED(cb_nn_prelu(0), "PReLU: 0 parameters");
    REFUSED(cb_nn_batch_norm1d(0), "BatchNorm1d: 0 features");
    REFUSED(cb_nn_group_norm(0, 4), "0 groups do not divide 4");
    REFUSED(cb_nn_group_norm(1, 0), "1 groups do not divide 0");
    REFUSED(cb_nn_dropout(-0.5), "between 0 and 1, not -0.5");
    REFUSED(cb_nn_dropout1d((double)NAN), "Dropout1d: the probability");
    REFUSED(cb_nn_multihead_attention(0, 1), "MultiheadAttention: embed_dim 0 is below 1");
    REFUSED(cb_nn_multihead_attention(4, 0), "MultiheadAttention: num_heads 0 is below 1");
    assert_null(cb_nn_multihead_attention(8, 3)); /* and nothing of what is right */
    assert_string_equal(strstr(cb_error(), "Multi"),
                        "MultiheadAttention: 3 heads do not divide embed_dim 8");
    REFUSED(cb_nn_multihead_attention(4, 2, -0.1), "Attention: dropout -0.1 is no probability");
    REFUSED(cb_nn_multihead_attention(4, 2, 0, true, false, false, -1), "kdim -1 is negative");
    REFUSED(cb_nn_multihead_attention(4, 2, 1.1), "dropout 1.1 is no probability");
    REFUSED(cb_nn_multihead_attention(4, 2, 0, true, false, false, 0, -2), "vdim -2 is negative");
}

static void convolutions_refuse_windows(void **state) {
    (void)state;
    REFUSED(cb_nn_conv1d(0, 4, 3), "do not divide 0 input");
    REFUSED(cb_nn_conv1d(4, 0, 3), "and 0 output");
    REFUSED(cb_nn_conv1d(4, 4, 3, 1, 0, 1, 0), "0 groups");
    REFUSED(cb_nn_conv1d(4, 3, 3, 1, 0, 1, 2), "2 groups do not divide 4 input and 3 output");
    REFUSED(cb_nn_conv1d(4, 4, 0), "kernel_size has one or 1 numbers, each at least 1");
    REFUSED(cb_nn_conv3d(4, 4, 3, 1, cb_dims(1, 1)), "padding has one or 3 numbers");
    REFUSED(cb_nn_conv3d(4, 4, 3, 1, 0, 0), "dilation has one or 3 numbers, each at least 1");
    REFUSED(cb_nn_conv_transpose1d(4, 4, 3, 1, 0, -1), "output_padding has one or 1 numbers");
    REFUSED(cb_nn_conv_transpose2d(4, 4, 3, 1, -1), "ConvTranspose2d: padding");
    REFUSED(cb_nn_conv2d(3, 4, 3, 1, 0, 1, 1, true, NULL), "padding_mode is zeros");
    REFUSED(cb_nn_conv2d(3, 4, 3, 1, 0, 1, 1, true, "constant"), "not constant");
    REFUSED(cb_nn_conv2d(3, 4, 3, 1, (const char *)NULL), "padding is \"same\" or \"valid\"");
}

static void upsample_refuses_what_contradicts(void **state) {
    (void)state;
    cb_float_list none = {0};
    REFUSED((cb_nn_upsample)(cb_dims_one(4), none, NULL, false, false), "not NULL");
    REFUSED(cb_nn_upsample(CB_NO_DIMS, none), "needs either a size or a positive scale_factor");
    REFUSED(cb_nn_upsample(4, none, "nearest", true), "align_corners goes with linear modes");
    REFUSED(cb_nn_upsample(4, none, "nearest", false, true), "recompute_scale_factor with a");
}

static void containers_refuse_null(void **state) {
    (void)state;
    REFUSED(cb_nn_sequential_n(NULL, 1), "Sequential: a layer is NULL");
    REFUSED(cb_nn_module_list_n(NULL, 2), "ModuleList: a layer is NULL");
    cb_module *nothing = cb_nn_sequential_n(NULL, 0);
    cb_tensor *x = cb_ones(cb_dims(2));
    assert_ptr_equal(cb_forward(nothing, x), x);
    cb_module_free(nothing);
    /* A layer that stands there twice is freed once; one that has a parent is not freed. */
    cb_module *relu = cb_nn_relu(), *held = cb_nn_tanh();
    cb_module *parent = cb_nn_sequential(held);
    REFUSED(cb_nn_sequential(relu, relu, held, NULL), "a layer is NULL");
    assert_ptr_equal(cb_module_child(parent, "0"), held);
    cb_module_free(parent);
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void every_layer_takes_one_input(void **state) {
    (void)state;
    cb_module *layers[] = {
        cb_nn_linear(2, 2),
        cb_nn_identity(),
        cb_nn_dropout(0.5),
        cb_nn_dropout2d(0.5),
        cb_nn_batch_norm1d(2),
        cb_nn_instance_norm1d(2),
        cb_nn_sequential(cb_nn_relu()),
        cb_nn_conv1d(2, 2, 3, 1, 1, 1, 1, true, "reflect"),
        cb_nn_group_norm(1, 2),
        cb_nn_softmax(1),
        cb_nn_zero_pad1d(1),
    };
    cb_tensor *x = cb_ones(cb_dims(2, 2, 3));
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        REFUSED(cb_forward(layers[i], x, x), "takes one input, not 2");
        REFUSED(cb_module_forward(layers[i], &x, 0), "takes one input, not 0");
        REFUSED(cb_module_forward(layers[i], &x, -1), "no inputs");
        cb_tensor *y = cb_forward(layers[i], NULL);
        if (y) fail_msg("layer %zu takes NULL", i);
        cb_module_free(layers[i]);
    }
    assert_null(cb_module_forward(NULL, &x, 1));
}

static void norms_and_dropouts_check_ranks(void **state) {
    (void)state;
    cb_tensor *flat = cb_ones(cb_dims(4)), *plane = cb_ones(cb_dims(2, 3));
    struct {
        cb_module *made;
        const char *words;
    } cases[] = {
        {cb_nn_batch_norm1d(4), "expected 2D or 3D input (got 1D input)"},
        {cb_nn_batch_norm2d(4), "expected 4D input (got 1D input)"},
        {cb_nn_batch_norm3d(4), "expected 5D input (got 1D input)"},
        {cb_nn_instance_norm3d(4), "expected 4D or 5D input (got 1D input)"},
        {cb_nn_dropout1d(0.5), "expected 2D or 3D input (got 1D input)"},
        {cb_nn_dropout3d(0.5), "expected 4D or 5D input (got 1D input)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        REFUSED(cb_forward(cases[i].made, flat), cases[i].words);
        cb_module_free(cases[i].made);
    }
    cb_module *norm = cb_nn_batch_norm1d(3, 1e-5, 0.1, true, false);
    cb_module_train(norm, false); /* tracks nothing: the batch's own statistics, even here */
    REFUSED(cb_forward(norm, cb_ones(cb_dims(1, 3))), "expected more than 1 value per channel");
    assert_non_null(cb_forward(norm, plane));
    cb_module_free(norm);
    norm = cb_nn_batch_norm1d(5);
    REFUSED(cb_forward(norm, plane), "batch_norm");
    cb_module_free(norm);
}

/* The running statistics may be of a shape that nothing can move. */
static void statistics_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const char *const names[] = {"running_mean", "running_var", "num_batches_tracked"};
    for (int average = 0; average < 2; average++)
        for (int i = 0; i < 3; i++) {
            cb_module *norm = cb_nn_batch_norm1d(3, 1e-5, average ? -1 : 0.1);
            cb_module_buffer(norm, names[i], i < 2 ? cb_ones(cb_dims(2)) : cb_ones(cb_dims(2, 2)));
            cb_tensor *y = cb_forward(norm, cb_ones(cb_dims(2, 3)));
            if (i < 2 && y) fail_msg("%s of another size is taken", names[i]);
            cb_clear_error();
            cb_module_free(norm);
        }
}

/* ---- attention ------------------------------------------------------------------------------ */

static void attention_refuses_masks(void **state) {
    (void)state;
    cb_module *a = cb_nn_multihead_attention(4, 2, 0, true, false, false, 0, 0, true);
    cb_tensor *x = cb_ones(cb_dims(2, 3, 4)), *flat = cb_ones(cb_dims(3, 4)), *weights;
#define CALL(q, k, v, keys, scores) cb_multihead_attention(a, q, k, v, keys, scores, true, NULL)
    static const char keys[] = "key_padding_mask is [2, 3], bool or floating point";
    static const char scores[] = "attn_mask is [3, 3] or [4, 3, 3], bool or floating point";
    REFUSED(CALL(x, x, x, cb_ones(cb_dims(2, 3), CB_I32), NULL), keys);
    REFUSED(CALL(x, x, x, cb_ones(cb_dims(2, 2)), NULL), keys);
    REFUSED(CALL(x, x, x, cb_ones(cb_dims(3, 3)), NULL), keys);
    REFUSED(CALL(flat, flat, flat, cb_ones(cb_dims(1, 3)), NULL), "key_padding_mask is [3]");
    REFUSED(CALL(flat, flat, flat, cb_ones(cb_dims(2)), NULL), "key_padding_mask is [3]");
    REFUSED(CALL(x, x, x, NULL, cb_ones(cb_dims(3))), scores);
    REFUSED(CALL(x, x, x, NULL, cb_ones(cb_dims(2, 3))), scores);
    REFUSED(CALL(x, x, x, NULL, cb_ones(cb_dims(3, 2))), scores);
    REFUSED(CALL(x, x, x, NULL, cb_ones(cb_dims(3, 3, 3))), scores);
    REFUSED(cb_forward(a, x, x, x, cb_ones(cb_dims(3))), scores);
    REFUSED(CALL(cb_ones(cb_dims(4)), x, x, NULL, NULL), "query is [batch, length, 4]");
    REFUSED(CALL(x, cb_ones(cb_dims(1, 3, 4)), x, NULL, NULL), "have one batch");
    REFUSED(CALL(x, x, cb_ones(cb_dims(1, 3, 4)), NULL, NULL), "have one batch");
    REFUSED(CALL(x, flat, x, NULL, NULL), "key is [batch, length, 4]");
    REFUSED(CALL(flat, x, x, NULL, NULL), "have one batch");
    assert_null(CALL(NULL, x, x, NULL, NULL));
    assert_null(CALL(x, NULL, x, NULL, NULL));
    assert_null(cb_forward(a, x, x, x, NULL));
    assert_null(cb_multihead_attention(NULL, x, x, x, NULL, NULL, true, &weights));
    assert_null(weights);
#undef CALL
    cb_module_free(a);
}

/* Weights of another shape come in by cb_module_parameter: the call says what does not fit. */
static void attention_refuses_foreign_weights(void **state) {
    (void)state;
    static const char *const names[] = {"in_proj_weight", "in_proj_bias", "bias_k", "bias_v"};
    cb_tensor *x = cb_ones(cb_dims(2, 3, 4)), *y = cb_ones(cb_dims(2, 3, 4)), *weights;
    for (int i = 0; i < 4; i++) {
        cb_module *a = cb_nn_multihead_attention(4, 2, 0, true, true, true, 0, 0, true);
        cb_module_parameter(a, names[i], cb_ones(cb_dims(5, 3)));
        assert_null(cb_multihead_attention(a, x, x, x, NULL, NULL, true, NULL));
        assert_non_null(cb_error());
        cb_clear_error();
        assert_null(cb_multihead_attention(a, x, y, x, NULL, NULL, true, &weights));
        assert_non_null(cb_error());
        cb_clear_error();
        cb_module_free(a);
    }
    cb_module *a = cb_nn_multihead_attention(4, 2, 0, true, false, false, 0, 0, true);
    cb_module_parameter(a, "in_proj_weight", NULL);
    assert_null(cb_forward(a, x));
    cb_module_free(a);
}

/* ---- trees ---------------------------------------------------------------------------------- */

static void trees_refuse_names(void **state) {
    (void)state;
    cb_module *block = cb_module_new("Block", first_input, NULL);
    cb_tensor *x = cb_ones(cb_dims(2));
    REFUSED(cb_module_new(NULL, NULL, NULL), "a module needs a type name");
    REFUSED(cb_module_new("", NULL, NULL), "a module needs a type name");
    cb_module *relu = cb_module_add(block, "relu", cb_nn_relu());
    cb_module_parameter(block, "weight", x);
    REFUSED(cb_module_add(block, NULL, cb_nn_tanh()), "must not be empty");
    REFUSED(cb_module_add(block, "", cb_nn_tanh()), "must not be empty");
    REFUSED(cb_module_add(block, "weight", cb_nn_tanh()), "'weight' exists already");
    REFUSED(cb_module_parameter(block, "a.b", x), "hold a dot");
    REFUSED(cb_module_parameter(block, "relu", x), "'relu' is the name of a child");
    REFUSED(cb_module_parameter(block, "other", cb_module_get(block, "weight")), "ties it");
    cb_module *inner = cb_module_new("Inner", first_input, NULL), *middle = cb_nn_sequential(inner);
    cb_module_add(block, "middle", middle);
    REFUSED(cb_module_add(inner, "around", block), "would make the module its own descendant");
    REFUSED(cb_module_child(block, "rel"), "no child 'rel'");
    REFUSED(cb_module_child(block, "relu2"), "no child 'relu2'");
    REFUSED(cb_module_get(block, "relu2.weight"), "no parameter or buffer 'relu2.weight'");
    REFUSED((cb_module_free(relu), (void *)NULL), "this ReLU has a parent, which frees it");
    REFUSES(cb_module_inputs(NULL, "x"), CB_ERR_ARGUMENT, "cb_module_inputs: NULL");
    REFUSES(cb_module_inputs(block, NULL), CB_ERR_ARGUMENT, "cb_module_inputs: NULL");
    REFUSES(cb_module_extra(NULL, "x"), CB_ERR_ARGUMENT, "cb_module_extra: NULL");
    REFUSES(cb_module_extra(block, NULL), CB_ERR_ARGUMENT, "cb_module_extra: NULL");
    REFUSES(cb_module_to(NULL, CB_F32), CB_ERR_ARGUMENT, "cb_module_to: NULL");
    REFUSES(cb_module_to(block, (cb_dtype)-1), CB_ERR_DTYPE, "floating point");
    REFUSES(cb_module_to(block, (cb_dtype)CB_DTYPE_COUNT), CB_ERR_DTYPE, "floating point");
    REFUSES(cb_module_load_state(NULL, "x", true), CB_ERR_ARGUMENT, "load_state: NULL");
    REFUSES(cb_module_load_state(block, NULL, true), CB_ERR_ARGUMENT, "load_state: NULL");
    REFUSES(cb_module_save_state(NULL, "x"), CB_ERR_ARGUMENT, "save_state: NULL");
    REFUSES(cb_module_save_state(block, NULL), CB_ERR_ARGUMENT, "save_state: NULL");
    cb_module_free(block);
}

static void visit_nothing(const char *name, cb_tensor *tensor, bool buffer, void *user) {
    (void)name, (void)tensor, (void)buffer;
    ++*(int *)user;
}

/* A constructor that failed hands its NULL on: nothing happens, and the first error stays. */
static void null_modules_do_nothing(void **state) {
    (void)state;
    int visited = 0;
    cb_module *relu = cb_nn_relu();
    cb_tensor *x = cb_ones(cb_dims(2)), *out[1];
    const char *name;
    assert_null(cb_module_add(NULL, "a", cb_nn_tanh()));
    assert_null(cb_module_add(relu, "a", NULL));
    assert_null(cb_module_parameter(NULL, "a", x));
    assert_null(cb_module_share(NULL, "a", x));
    assert_null(cb_module_share(relu, "a", NULL));
    assert_null(cb_module_child(NULL, "a"));
    assert_null(cb_module_child(relu, NULL));
    assert_null(cb_module_get(NULL, "a"));
    assert_null(cb_module_get(relu, NULL));
    assert_null(cb_module_user(NULL));
    assert_null(cb_module_type(NULL));
    assert_null(cb_module_text(NULL));
    assert_false(cb_module_training(NULL));
    assert_false(cb_module_is_leaf(NULL));
    assert_true(cb_module_is_leaf(relu));
    cb_module_set_leaf(relu, false);
    assert_false(cb_module_is_leaf(relu));
    assert_int_equal(cb_module_child_count(relu), 0);
    assert_int_equal(cb_module_child_count(NULL), 0);
    assert_null(cb_module_child_at(NULL, 0, &name));
    assert_null(cb_module_child_at(relu, -1, &name));
    assert_null(cb_module_child_at(relu, 0, &name));
    assert_int_equal(cb_module_parameters(NULL, out, 1), 0);
    cb_module_on_free(NULL, NULL);
    cb_module_set_leaf(NULL, true);
    cb_module_train(NULL, true);
    cb_module_print(NULL);
    cb_module_visit(NULL, visit_nothing, &visited);
    cb_module_visit(relu, NULL, &visited);
    assert_int_equal(visited, 0);
    cb_module_free(NULL);
    assert_null(cb_error());
    cb_module_free(relu);
}

static void modules_are_told_about(void **state) {
    (void)state;
    int mine = 0;
    cb_module *block = cb_module_new("Block", first_input, &mine);
    assert_int_equal(cb_module_extra(block, "width=2"), CB_OK);
    assert_ptr_equal(cb_module_user(block), &mine);
    char *text = cb_module_text(block);
    assert_string_equal(text, "Block(width=2)");
    cb_free_text(text);
    cb_module *relu = cb_module_add(block, "relu", cb_nn_relu());
    text = cb_module_text(block);
    assert_string_equal(text, "Block(\n  width=2\n  (relu): ReLU()\n)");
    cb_free_text(text);
    const char *name = NULL;
    assert_ptr_equal(cb_module_child_at(block, 0, &name), relu);
    assert_string_equal(name, "relu");
    assert_ptr_equal(cb_module_child_at(block, 0, NULL), relu);
    cb_tensor *both[2] = {NULL, NULL};
    cb_module_parameter(block, "a", cb_ones(cb_dims(2)));
    cb_module_parameter(block, "b", cb_ones(cb_dims(3)));
    assert_int_equal(cb_module_parameters(block, NULL, 2), 2);
    assert_int_equal(cb_module_parameters(block, both, 1), 2);
    assert_ptr_equal(both[0], cb_module_get(block, "a"));
    assert_null(both[1]);
    cb_module_free(block);
}

/* Ties are the same elements: views of others are saved for themselves. A long list is cut. */
static void states_tell_ties_and_long_lists(void **state) {
    (void)state;
    char path[64], name[8];
    snprintf(path, sizeof path, "/tmp/carbide-states-%d", (int)getpid());
    cb_module *net = cb_module_new("Net", first_input, NULL);
    cb_tensor *w = cb_reshape(cb_arange(0, 9, 1, CB_F32), cb_dims(3, 3));
    cb_module_parameter(net, "w", w);
    cb_module_share(net, "same", w);
    cb_module_parameter(net, "turned", cb_t(w));
    cb_module_parameter(net, "row", cb_select(w, 0, 0));
    cb_module_parameter(net, "later", cb_select(w, 0, 1));
    cb_module_parameter(net, "less", cb_narrow(w, 0, 0, 2));
    assert_int_equal(cb_module_save_state(net, path), CB_OK);
    cb_safetensors *file = cb_safetensors_open(path);
    assert_int_equal(cb_safetensors_count(file), 5);
    cb_safetensors_close(file);
    assert_int_equal(cb_module_load_state(net, path, true), CB_OK);
    cb_module *other = cb_module_new("Other", first_input, NULL);
    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "p%d", i);
        cb_module_parameter(other, name, cb_ones(cb_dims(1)));
    }
    REFUSES(cb_module_load_state(other, path, true), CB_ERR_ARGUMENT,
            "\"p0\", \"p1\", \"p2\", \"p3\", \"p4\", \"p5\", \"p6\", \"p7\", ....");
    cb_module_buffer(other, "num_batches_tracked", cb_zeros(CB_NO_DIMS, CB_I64));
    char *keys;
    assert_int_equal(cb_module_load_state_keys(other, path, false, &keys), CB_OK);
    assert_null(strstr(keys, "num_batches_tracked")); /* files of old do not have it */
    cb_free_text(keys);
    cb_module_free(other);
    cb_module_free(net);
    unlink(path);
}

/* Eight names fit into an error, of nine the last is left out. */
static void many_missing_keys(void **state) {
    (void)state;
    char path[64], name[2] = "a";
    snprintf(path, sizeof path, "/tmp/carbide-missing-%d", (int)getpid());
    cb_module *none = cb_module_new("None", NULL, NULL), *net = cb_module_new("Net", NULL, NULL);
    assert_int_equal(cb_module_save_state(none, path), CB_OK);
    for (; *name < 'i'; ++*name) cb_module_parameter(net, name, cb_ones(1));
    REFUSES(cb_module_load_state(net, path, true), CB_ERR_ARGUMENT, "\"g\", \"h\".");
    cb_module_parameter(net, name, cb_ones(1));
    REFUSES(cb_module_load_state(net, path, true), CB_ERR_ARGUMENT, "\"g\", \"h\", ....");
    cb_module_free(none);
    cb_module_free(net);
    unlink(path);
}

/* Of a file that holds all of a module, and of a module that holds all of a file. */
static void states_lack_one_side(void **state) {
    (void)state;
    char path[64], *keys;
    snprintf(path, sizeof path, "/tmp/carbide-sides-%d", (int)getpid());
    cb_module *net = cb_nn_linear(3, 2);
    assert_int_equal(cb_module_save_state(net, path), CB_OK);
    cb_module_parameter(net, "w", cb_ones(cb_dims(1)));
    assert_int_equal(cb_module_load_state_keys(net, path, false, &keys), CB_OK);
    assert_string_equal(keys, "_IncompatibleKeys(missing_keys=['w'], unexpected_keys=[])");
    cb_free_text(keys);
    cb_module_free(net);
    net = cb_nn_linear(3, 2, false);
    assert_int_equal(cb_module_load_state_keys(net, path, false, &keys), CB_OK);
    assert_string_equal(keys, "_IncompatibleKeys(missing_keys=[], unexpected_keys=['bias'])");
    cb_free_text(keys);
    cb_module_parameter(net, "bias", cb_ones(cb_dims(1, 2)));
    REFUSES(cb_module_load_state(net, path, false), CB_ERR_ARGUMENT,
            "torch.Size([2]) from checkpoint, the shape in current model is torch.Size([1, 2])");
    cb_module_free(net);
    unlink(path);
}

/* An error in a module that is called without being a descendant has its type; one in a descendant
 * its path. */
static cb_module *called;

static cb_tensor *calls_it(cb_module *self, cb_tensor *const *x, int count) {
    (void)self, (void)count;
    return cb_forward(called, x[0]);
}

static void errors_have_places(void **state) {
    (void)state;
    cb_module *root = cb_module_new("Root", calls_it, NULL), *foreign = cb_nn_linear(3, 2);
    cb_module *empty = cb_nn_sequential(), *block = cb_module_new("Block", calls_it, NULL);
    cb_module_add(root, "empty", empty);
    cb_module_add(root, "holder", cb_nn_sequential(cb_nn_relu(), block));
    cb_tensor *x = cb_ones(cb_dims(2, 4));
    called = foreign;
    REFUSED(cb_forward(root, x), ": (Linear): ");
    called = block;
    cb_module *outer = cb_module_new("Outer", calls_it, NULL), *inner = cb_nn_sequential(outer);
    cb_module_free(inner);
    cb_module_add(block, "own", cb_nn_linear(5, 2));
    called = cb_module_child(block, "own");
    REFUSED(cb_forward(root, x), ": holder.1.own: ");
    REFUSED(cb_module_forward(root, NULL, 1), "Root: no inputs");
    REFUSED(cb_module_forward(root, &x, CB_MAX_ARGS + 1), "Root: ");
    cb_module_free(foreign);
    cb_module_free(root);
}

/* Ties by a transposition are other elements: cb_module_to keeps each kind apart. */
static void conversion_tells_ties(void **state) {
    (void)state;
    cb_module *net = cb_module_new("Net", first_input, NULL);
    cb_tensor *w = cb_module_parameter(net, "w", cb_arange(0, 9, 1, CB_F32));
    cb_module_free(net);
    net = cb_module_new("Net", first_input, NULL);
    w = cb_module_parameter(net, "w", cb_reshape(cb_arange(0, 9, 1, CB_F32), cb_dims(3, 3)));
    cb_module_share(net, "same", w);
    cb_module_parameter(net, "turned", cb_t(w));
    cb_module_parameter(net, "row", cb_select(w, 0, 0));
    cb_module_parameter(net, "later", cb_select(w, 0, 1));
    cb_module_parameter(net, "less", cb_narrow(w, 0, 0, 2));
    cb_module_parameter(net, "absent", NULL);
    assert_int_equal(cb_module_to(net, CB_F64), CB_OK);
    assert_true(cb_shares_storage(cb_module_get(net, "w"), cb_module_get(net, "same")));
    static const char *const names[] = {"w", "same", "turned", "row", "later", "less"};
    for (int i = 0; i < 6; i++) assert_int_equal(cb_dtype_of(cb_module_get(net, names[i])), CB_F64);
    assert_true(cb_item(cb_select(cb_module_get(net, "later"), 0, 1)) == 4);
    assert_true(cb_item(cb_select(cb_select(cb_module_get(net, "turned"), 0, 1), 0, 0)) == 1);
    cb_module_free(net);
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, open_scope, close_scope_without_tensors)

int main(void) {
    const struct CMUnitTest tests[] = {
        ONE(layers_refuse_sizes),
        ONE(convolutions_refuse_windows),
        ONE(upsample_refuses_what_contradicts),
        ONE(containers_refuse_null),
        ONE(every_layer_takes_one_input),
        ONE(norms_and_dropouts_check_ranks),
        ONE(statistics_that_do_not_fit_are_refused),
        ONE(attention_refuses_masks),
        ONE(attention_refuses_foreign_weights),
        ONE(trees_refuse_names),
        ONE(null_modules_do_nothing),
        ONE(modules_are_told_about),
        ONE(states_tell_ties_and_long_lists),
        ONE(many_missing_keys),
        ONE(states_lack_one_side),
        ONE(errors_have_places),
        ONE(conversion_tells_ties),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
