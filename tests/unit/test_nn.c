/* Modules: the tree, lookup, ownership, layers, PyTorch's initialization, names and repr. */
#include "elements.h"
#include "fixture.h"

#include "nn/module.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void expect_repr(cb_module *module, const char *expected) {
    char *text = cb_module_text(module);
    assert_string_equal(text, expected);
    cb_free_text(text);
    cb_module_free(module);
}

static void expect_close(cb_tensor *a, cb_tensor *b) { expect_tensor(a, b, 1e-6, 1e-6); }

/* relu(linear(x) + x) */
static cb_tensor *block_forward(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)count;
    cb_tensor *x = inputs[0];
    return cb_relu(cb_add(cb_forward(cb_module_child(self, "linear"), x), x));
}

static cb_module *block_new(void) {
    cb_module *block = cb_module_new("Block", block_forward, NULL);
    cb_module_add(block, "linear", cb_nn_linear(4, 4, true));
    return block;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void users_module_computes(void **state) {
    (void)state;
    cb_module *block = block_new();
    cb_tensor *x = cb_randn(cb_dims(3, 4));
    cb_tensor *weight = cb_module_get(block, "linear.weight");
    cb_tensor *bias = cb_module_get(block, "linear.bias");
    cb_tensor *expected = cb_relu(cb_add(cb_linear(x, weight, bias), x));
    expect_close(cb_forward(block, x), expected);
    assert_null(cb_error());
    cb_module_free(block);
}

static void repr_is_pytorchs(void **state) {
    (void)state;
    expect_repr(block_new(), "Block(\n"
                             "  (linear): Linear(in_features=4, out_features=4, bias=True)\n"
                             ")");
    expect_repr(cb_nn_linear(2, 3, false), "Linear(in_features=2, out_features=3, bias=False)");
    expect_repr(cb_nn_embedding(10, 4), "Embedding(10, 4)");
    expect_repr(cb_nn_layer_norm(cb_dims(3, 4), 1e-5),
                "LayerNorm((3, 4), eps=1e-05, elementwise_affine=True)");
    expect_repr(cb_nn_rms_norm(cb_dims(4), 1e-6),
                "RMSNorm((4,), eps=1e-06, elementwise_affine=True)");
    expect_repr(cb_nn_dropout(0.1), "Dropout(p=0.1, inplace=False)");
    expect_repr(cb_nn_gelu(false), "GELU(approximate='none')");
    expect_repr(cb_nn_gelu(true), "GELU(approximate='tanh')");
    expect_repr(cb_nn_softmax(-1), "Softmax(dim=-1)");
    expect_repr(cb_nn_log_softmax(1), "LogSoftmax(dim=1)");
    expect_repr(cb_nn_flatten(1, -1), "Flatten(start_dim=1, end_dim=-1)");
    expect_repr(cb_nn_leaky_relu(0.01), "LeakyReLU(negative_slope=0.01)");
    expect_repr(cb_nn_relu(), "ReLU()");
    expect_repr(cb_nn_identity(), "Identity()");
    expect_repr(cb_nn_sequential_n(NULL, 0), "Sequential()");
}

static void nested_repr_is_pytorchs(void **state) {
    (void)state;
    cb_module *inner = cb_nn_sequential(cb_nn_linear(8, 4, true), cb_nn_dropout(0.1));
    expect_repr(cb_nn_sequential(cb_nn_linear(4, 8, true), cb_nn_relu(), inner),
                "Sequential(\n"
                "  (0): Linear(in_features=4, out_features=8, bias=True)\n"
                "  (1): ReLU()\n"
                "  (2): Sequential(\n"
                "    (0): Linear(in_features=8, out_features=4, bias=True)\n"
                "    (1): Dropout(p=0.1, inplace=False)\n"
                "  )\n"
                ")");
    expect_repr(
        cb_nn_module_list(cb_nn_linear(4, 4, true), cb_nn_linear(4, 4, true), cb_nn_gelu(false)),
        "ModuleList(\n"
        "  (0-1): 2 x Linear(in_features=4, out_features=4, bias=True)\n"
        "  (2): GELU(approximate='none')\n"
        ")");
}

static void append_name(const char *name, cb_tensor *tensor, bool buffer, void *user) {
    (void)tensor;
    strcat(strcat((char *)user, name), buffer ? "* " : " ");
}

static void names_are_the_state_dicts(void **state) {
    (void)state;
    cb_module *block = block_new();
    cb_module_parameter(block, "scale", cb_ones(cb_dims(4)));
    cb_module_buffer(block, "steps", cb_zeros(cb_dims(1)));
    cb_module_add(block, "net",
                  cb_nn_sequential(cb_nn_linear(4, 8, false), cb_nn_relu(),
                                   cb_nn_layer_norm(cb_dims(8), 1e-5)));
    char names[256] = "";
    cb_module_visit(block, append_name, names);
    assert_string_equal(names, "scale steps* linear.weight linear.bias net.0.weight net.2.weight "
                               "net.2.bias ");
    cb_tensor *parameters[8];
    assert_int_equal(cb_module_parameters(block, parameters, 8), 6);
    assert_ptr_equal(parameters[3], cb_module_get(block, "net.0.weight"));
    assert_null(cb_module_get(block, "net.0.bias"));
    assert_null(cb_error());
    assert_ptr_equal(cb_module_child(block, "net.2"),
                     cb_module_child_at(cb_module_child(block, "net"), 2, NULL));
    cb_module_free(block);
}

static void initialization_is_pytorchs(void **state) {
    (void)state;
    cb_module *linear = cb_nn_linear(64, 48, true);
    cb_tensor *weight = cb_module_get(linear, "weight");
    assert_int_equal(cb_size(weight, 0), 48);
    assert_int_equal(cb_size(weight, 1), 64);
    double most = cb_item(cb_max(cb_abs(weight))), mean = cb_item(cb_mean(weight));
    assert_true(most <= 0.125 && most > 0.12);
    assert_true(fabs(mean) < 0.01);
    assert_true(fabs(cb_item(cb_std(weight)) - 0.125 / sqrt(3)) < 0.005);
    assert_true(cb_item(cb_max(cb_abs(cb_module_get(linear, "bias")))) <= 0.125);
    cb_module_free(linear);
    cb_module *norm = cb_nn_layer_norm(cb_dims(4), 1e-5);
    assert_true(cb_item(cb_min(cb_module_get(norm, "weight"))) == 1);
    assert_true(cb_item(cb_max(cb_module_get(norm, "bias"))) == 0);
    cb_module_free(norm);
}

static void layers_compute_their_ops(void **state) {
    (void)state;
    cb_tensor *x = cb_randn(cb_dims(2, 3, 4));
    struct {
        cb_module *layer;
        cb_tensor *expected;
    } cases[] = {{cb_nn_relu(), cb_relu(x)},
                 {cb_nn_gelu(false), cb_gelu(x)},
                 {cb_nn_gelu(true), cb_gelu(x, true)},
                 {cb_nn_silu(), cb_silu(x)},
                 {cb_nn_tanh(), cb_tanh(x)},
                 {cb_nn_sigmoid(), cb_sigmoid(x)},
                 {cb_nn_softmax(-1), cb_softmax(x, -1)},
                 {cb_nn_log_softmax(1), cb_log_softmax(x, 1)},
                 {cb_nn_leaky_relu(0.2), cb_leaky_relu(x, 0.2)},
                 {cb_nn_identity(), x},
                 {cb_nn_flatten(1, -1), cb_reshape(x, cb_dims(2, 12))},
                 {cb_nn_layer_norm(cb_dims(4), 1e-5), cb_layer_norm(x, cb_dims(4), NULL, NULL)},
                 {cb_nn_rms_norm(cb_dims(4), 1e-6), cb_rms_norm(x, cb_dims(4), NULL, 1e-6)}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_close(cb_forward(cases[i].layer, x), cases[i].expected);
        cb_module_free(cases[i].layer);
    }
    const int64_t rows[] = {2, 0, 2};
    cb_module *table = cb_nn_embedding(5, 4);
    cb_tensor *index = cb_from_data(rows, CB_I64, cb_dims(3));
    expect_close(cb_forward(table, index), cb_embedding(index, cb_module_get(table, "weight")));
    cb_module_free(table);
}

static void dropout_acts_while_training(void **state) {
    (void)state;
    cb_module *net = cb_nn_sequential(cb_nn_dropout(0.5));
    cb_tensor *x = cb_ones(cb_dims(1000));
    double zeros = 1000 - (double)cb_item_int(cb_count_nonzero(cb_forward(net, x)));
    assert_true(zeros > 400 && zeros < 600);
    cb_module_train(net, false);
    assert_false(cb_module_training(cb_module_child(net, "0")));
    assert_ptr_equal(cb_forward(net, x), x);
    cb_module_free(net);
}

static void destroyed(void *user) { ++*(int *)user; }

static void trees_own_what_they_hold(void **state) {
    (void)state;
    int64_t before = cb_memory().live_tensors;
    int freed = 0;
    cb_module *shared = cb_module_new("Shared", block_forward, &freed);
    cb_module_on_free(shared, destroyed);
    cb_module_parameter(shared, "w", cb_ones(cb_dims(3)));
    cb_module *a = cb_module_new("A", NULL, NULL), *b = cb_module_new("B", NULL, NULL);
    assert_ptr_equal(cb_module_add(a, "s", shared), shared);
    assert_ptr_equal(cb_module_add(b, "s", shared), shared);
    cb_module_free(shared);
    expect_error("has a parent");
    cb_module_free(a);
    assert_int_equal(freed, 0);
    cb_module_parameter(shared, "w", cb_zeros(cb_dims(3))); /* the first one goes */
    cb_module_free(b);
    assert_int_equal(freed, 1);
    assert_int_equal(cb_memory().live_tensors, before);
}

static cb_module *counted(const char *type, int *freed) {
    cb_module *module = cb_module_new(type, block_forward, freed);
    cb_module_on_free(module, destroyed);
    return module;
}

/* Nobody else may know it: it was made inside of the call. */
static void a_child_without_a_place_is_freed(void **state) {
    (void)state;
    int freed = 0;
    cb_module *net = counted("Net", &freed), *held = cb_module_add(net, "held", cb_nn_relu());
    REFUSED(cb_module_add(net, "held", counted("Child", &freed)), "'held' exists already");
    assert_int_equal(freed, 1);
    REFUSED(cb_module_add(net, "a.b", counted("Child", &freed)), "hold a dot");
    assert_int_equal(freed, 2);
    assert_null(cb_module_add(NULL, "a", counted("Child", &freed)));
    assert_int_equal(freed, 3);
    cb_module *child = counted("Child", &freed);
    allocations_left = 0;
    assert_null(cb_module_add(net, "more", child));
    allocations_left = -1;
    expect_status(CB_ERR_MEMORY, "out of memory");
    assert_int_equal(freed, 4);
    REFUSED(cb_module_add(net, "more", child), "was freed");
    REFUSED(cb_module_add(net, "a.b", held), "hold a dot");
    assert_ptr_equal(cb_module_child(net, "held"), held);
    REFUSED(cb_module_add(held, "around", net), "its own descendant");
    REFUSED(cb_module_add(net, "self", net), "its own descendant");
    assert_int_equal(freed, 4);
    cb_module_free(net);
    assert_int_equal(freed, 5);
    child = counted("Child", &freed);
    REFUSED(cb_module_add(net, "a", child), "was freed");
    assert_int_equal(freed, 6);
}

static void tied_weights_share_storage(void **state) {
    (void)state;
    cb_module *net = cb_nn_sequential(cb_nn_embedding(5, 4), cb_nn_linear(4, 5, false));
    cb_tensor *table = cb_module_get(net, "0.weight");
    cb_module_share(cb_module_child(net, "1"), "weight", table);
    assert_ptr_equal(cb_module_get(net, "1.weight"), table);
    assert_int_equal(cb_module_parameters(net, NULL, 0), 1);
    cb_fill_(table, 3);
    assert_true(cb_item(cb_max(cb_module_get(net, "1.weight"))) == 3);
    assert_int_equal(cb_module_to(net, CB_BF16), CB_OK);
    assert_int_equal(cb_dtype_of(cb_module_get(net, "1.weight")), CB_BF16);
    assert_ptr_equal(cb_module_get(net, "1.weight"), cb_module_get(net, "0.weight"));
    cb_module_free(net);
}

/* Two modules of which neither holds the other: the last one frees it. */
static void a_tied_weight_outlives_its_first_module(void **state) {
    (void)state;
    int64_t live = cb_memory().live_tensors;
    cb_module *first = cb_nn_linear(3, 3, false), *second = cb_nn_linear(3, 3, false);
    cb_tensor *weight = cb_module_share(second, "weight", cb_module_get(first, "weight"));
    cb_fill_(weight, 2);
    cb_module_free(first);
    assert_int_equal(cb_memory().live_tensors, live + 1);
    float kept[9];
    assert_int_equal(cb_read(cb_module_get(second, "weight"), kept, CB_F32), CB_OK);
    assert_true(kept[8] == 2);
    cb_module_free(second);
    assert_int_equal(cb_memory().live_tensors, live);
}

/* A leaf frees its gradient, whoever else would: a module shares its elements. */
static void gradients_are_their_leaves(void **state) {
    (void)state;
    cb_module *net = cb_module_new("Net", NULL, NULL);
    cb_tensor *w = cb_requires_grad_(cb_full(cb_dims(3), 2.0), true);
    cb_backward(cb_sum(cb_mul(w, 5.0)), NULL);
    cb_tensor *gradient = cb_tensor_grad(w), *shared = cb_module_share(net, "g", gradient);
    assert_ptr_not_equal(shared, gradient);
    REFUSED(cb_module_parameter(net, "p", gradient), "'p' is the gradient of a tensor");
    REFUSED(cb_module_buffer(net, "b", gradient), "'b' is the gradient of a tensor");
    cb_free(gradient);
    expect_error("free: the tensor is the gradient of one that requires it (cb_zero_grad)");
    REFUSED(cb_scope_add(gradient), "scope_add: the tensor is the gradient of one");
    assert_ptr_equal(cb_tensor_grad(w), gradient);
    cb_add_(gradient, 1.0);
    cb_zero_grad(w);
    for (int i = 0; i < 50; i++) cb_full(cb_dims(3), 77.0);
    assert_ptr_equal(cb_module_get(net, "g"), shared);
    assert_true(cb_item(cb_sum(shared)) == 18);
    cb_module_free(net);
}

/* What a tensor was last registered as, it is where it is shared, and in other dtypes. */
static void shared_as_registered_last(void **state) {
    (void)state;
    cb_module *first = cb_module_new("First", NULL, NULL);
    cb_tensor *x = cb_module_parameter(first, "x", cb_ones(cb_dims(2)));
    for (int buffer = 1; buffer >= 0; buffer--) {
        cb_module *second = cb_module_new("Second", NULL, NULL);
        x = (buffer ? cb_module_buffer : cb_module_parameter)(first, "x", x);
        cb_module_share(second, "x", x);
        assert_int_equal(cb_module_parameters(first, NULL, 0), !buffer);
        assert_int_equal(cb_module_parameters(second, NULL, 0), !buffer);
        cb_module_free(second);
        cb_module_to(first, (cb_dtype)(buffer ? CB_F64 : CB_F32));
        second = cb_module_new("Second", NULL, NULL);
        cb_module_share(second, "x", x = cb_module_get(first, "x"));
        assert_int_equal(cb_module_parameters(second, NULL, 0), !buffer);
        cb_module_free(second);
    }
    cb_module_free(first);
}

static void conversion_keeps_leaves(void **state) {
    (void)state;
    cb_module *net = cb_nn_linear(2, 2, false);
    cb_requires_grad_(cb_module_get(net, "weight"), true);
    cb_module_to(net, CB_F64);
    cb_tensor *weight = cb_module_get(net, "weight");
    cb_backward(cb_sum(cb_forward(net, cb_ones(cb_dims(1, 2), CB_F64))), NULL);
    assert_true(cb_item(cb_sum(cb_tensor_grad(weight))) == 4);
    cb_module_free(net);
}

static void conversion_changes_floats(void **state) {
    (void)state;
    cb_module *net = cb_nn_sequential(cb_nn_linear(4, 4, true));
    const int64_t steps = 1;
    cb_module_buffer(net, "steps", cb_from_data(&steps, CB_I64, cb_dims(1)));
    assert_int_equal(cb_module_to(net, CB_BF16), CB_OK);
    assert_int_equal(cb_dtype_of(cb_module_get(net, "0.weight")), CB_BF16);
    assert_int_equal(cb_dtype_of(cb_module_get(net, "steps")), CB_I64);
    assert_int_equal(cb_module_to(net, CB_I32), CB_ERR_DTYPE);
    cb_clear_error();
    cb_module_free(net);
}

static void mistakes_are_named(void **state) {
    (void)state;
    cb_module *block = block_new();
    assert_null(cb_module_child(block, "linear.deep"));
    expect_error("Block has no child 'linear.deep'");
    assert_null(cb_module_child(block, "linaer"));
    expect_error("did you mean 'linear'?");
    assert_null(cb_module_child(block, "linear."));
    expect_error("no child");
    assert_null(cb_module_get(block, "linear.wight"));
    expect_error(
        "no parameter or buffer 'linear.wight' (linear is a Linear); did you mean 'weight'?");
    assert_null(cb_module_get(block, "lienar.weight"));
    expect_error("did you mean 'linear'?");
    assert_null(cb_module_add(block, "a.b", block));
    expect_error("must not be empty or hold a dot");
    assert_null(cb_module_add(block, "self", block));
    expect_error("its own descendant");
    assert_null(cb_module_add(block, "linear", cb_nn_relu()));
    expect_error("'linear' exists already");
    cb_module *relu = cb_nn_relu();
    assert_null(cb_module_forward(relu, NULL, 2));
    expect_error("no inputs");
    cb_tensor *x = cb_ones(cb_dims(2, 4));
    assert_null(cb_forward(relu, x, x));
    expect_error("ReLU takes one input, not 2");
    assert_null(cb_forward(cb_module_child(block, "linear"), cb_ones(cb_dims(2, 3))));
    expect_error("inner sizes differ");
    cb_module_free(relu);
    cb_module_free(block);
    assert_null(cb_nn_dropout(1.5));
    expect_error("between 0 and 1");
    assert_null(cb_nn_linear(-1, 2, true));
    expect_error("negative");
    assert_null(cb_nn_sequential(cb_nn_relu(), NULL, cb_nn_linear(2, 2, true)));
    expect_error("a layer is NULL");
    cb_module *list = cb_nn_module_list(cb_nn_relu());
    assert_null(cb_forward(list, x));
    expect_error("ModuleList has no forward");
    cb_module_free(list);
}

/* ---- allocations that fail ------------------------------------------------------------------ */

static void every_allocation_may_fail(void **state) {
    (void)state;
    int64_t before = cb_memory().live_tensors;
    bool done = false;
    for (int limit = 0; limit < 200 && !done; limit++) {
        cb_scope_open();
        allocations_left = limit;
        cb_module *list = cb_nn_module_list(cb_nn_relu(), cb_nn_tanh(), cb_nn_dropout(0.5));
        cb_module *net = list ? cb_module_new("Net", block_forward, NULL) : NULL;
        cb_module_add(net, "list", list);
        char *text = cb_module_text(net);
        done = text != NULL;
        if (!done) assert_int_equal(cb_error_status(), CB_ERR_MEMORY);
        allocations_left = -1;
        cb_free_text(text);
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
        ONE(users_module_computes),
        ONE(repr_is_pytorchs),
        ONE(nested_repr_is_pytorchs),
        ONE(names_are_the_state_dicts),
        ONE(initialization_is_pytorchs),
        ONE(layers_compute_their_ops),
        ONE(dropout_acts_while_training),
        ONE(trees_own_what_they_hold),
        ONE(a_child_without_a_place_is_freed),
        ONE(tied_weights_share_storage),
        ONE(a_tied_weight_outlives_its_first_module),
        ONE(gradients_are_their_leaves),
        ONE(shared_as_registered_last),
        ONE(conversion_keeps_leaves),
        ONE(conversion_changes_floats),
        ONE(mistakes_are_named),
        ONE(every_allocation_may_fail),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
