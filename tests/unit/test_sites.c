/* Where errors say that they happened: the line of the public call, whatever it is, the line again
 * after a function of the user's ran inside it, and the path of the module. */
#include "fixture.h"

#include "base/error.h"

/* The error opens with this file and the line, and has the words. */
static void expect_line(int line, const char *words) {
    char start[64];
    snprintf(start, sizeof start, "test_sites.c:%d: ", line);
    if (!cb_error() || strncmp(cb_error(), start, strlen(start)) || !strstr(cb_error(), words))
        print_error("expected '%s...%s' in '%s'\n", start, words, cb_error());
    assert_non_null(cb_error());
    assert_memory_equal(cb_error(), start, strlen(start));
    expect_error(words);
}

/* The call fails where it stands, though an op of another line came before it. */
#define EXPECT_HERE(call, words)                                                                   \
    do {                                                                                           \
        cb_site("elsewhere.c", 1);                                                                 \
        (void)(call);                                                                              \
        expect_line(__LINE__, words);                                                              \
    } while (0)

static cb_tensor *same(cb_tensor *x) { return x; }

static void calls_that_are_no_ops(void **state) {
    (void)state;
    cb_tensor *x = cb_zeros(cb_dims(2, 3)), *out[1];
    EXPECT_HERE(cb_set_option("no such", "1"), "unknown option");
    EXPECT_HERE(cb_get_option("no such"), "unknown option");
    EXPECT_HERE(cb_set_float32_matmul_precision("low"), "no precision 'low'");
    EXPECT_HERE(cb_compile(same, "no=1"), "no option 'no'");
    EXPECT_HERE(cb_compile_n(NULL, NULL, NULL), "nothing to compile");
    EXPECT_HERE(cb_explain(NULL), "the function is NULL");
    EXPECT_HERE(cb_stats(NULL), "the function is NULL");
    EXPECT_HERE(cb_call(NULL, x), "the function or an array is NULL");
    EXPECT_HERE(cb_rank(NULL), "rank: x is NULL");
    EXPECT_HERE(cb_numel(NULL), "numel: x is NULL");
    EXPECT_HERE(cb_stride(x, 2), "no dimension 2");
    EXPECT_HERE(cb_fail(CB_ERR_ARGUMENT, "mine"), "mine");
    EXPECT_HERE(cb_split(x, -1, 0, out, 1), "pieces of size -1");
    EXPECT_HERE(cb_npy_load("/no/such/file"), "/no/such/file");
    EXPECT_HERE(cb_safetensors_open("/no/such/file"), "/no/such/file");
    EXPECT_HERE(cb_graph_parse("no graph", NULL), "");
    EXPECT_HERE(cb_symbolic_trace_function(NULL, NULL, -1, NULL) ? 0 : cb_fail(CB_ERR_GRAPH, "no"),
                "no");
}

static void calls_of_modules(void **state) {
    (void)state;
    cb_module *net = cb_nn_sequential(cb_nn_relu(), cb_nn_linear(2, 2));
    EXPECT_HERE(cb_module_new("", NULL, NULL), "needs a type name");
    EXPECT_HERE(cb_module_child(net, "7"), "no child '7'");
    EXPECT_HERE(cb_module_get(net, "1.gain"), "no parameter or buffer '1.gain'");
    EXPECT_HERE(cb_module_add(net, "a.b", net), "hold a dot");
    EXPECT_HERE(cb_module_free(cb_module_child(net, "0")), "has a parent");
    EXPECT_HERE(cb_module_to(net, CB_I32), "floating point");
    EXPECT_HERE(cb_module_load_state(net, "/no/such/file", true), "/no/such/file");
    EXPECT_HERE(cb_nn_sequential(cb_nn_relu(), NULL), "");
    EXPECT_HERE(cb_nn_conv2d(0, 1, 1), "");
    cb_module_free(net);
}

static void scopes_without_an_opening(void **state) {
    (void)state;
    cb_scope_close(); /* the fixture's */
    cb_site("elsewhere.c", 1);
    cb_scope_close();
    expect_line(__LINE__ - 1, "no scope is open");
    cb_scope_open();
}

/* ---- after functions of the user's ----------------------------------------------------------- */

static cb_tensor *doubled(cb_tensor *x) { return cb_add(x, x); /* another line */ }

static int none(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)outputs, (void)count, (void)user;
    doubled(inputs[0]);
    return 0;
}

static void the_call_has_its_line_again(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(2), *out[1];
    cb_function *fast = cb_compile(doubled, "backend=vm");
    for (int i = 0; i < 2; i++) EXPECT_HERE(cb_call_n(fast, &x, 1, out, 0), "do not fit");
    cb_function_free(fast);
    fast = cb_compile_n(none, NULL, "backend=vm");
    for (int i = 0; i < 2; i++) EXPECT_HERE(cb_call(fast, x), "gave no result");
    cb_function_free(fast);
    cb_module *net = cb_nn_sequential(cb_nn_linear(2, 3), cb_nn_linear(4, 2));
    EXPECT_HERE(cb_matmul(cb_forward(cb_module_child(net, "0"), x), x), "matmul");
    cb_module_free(net);
}

/* ---- arguments that make calls --------------------------------------------------------------- */

static cb_tensor *layer(cb_tensor *x) { return cb_relu(cb_add(x, 1)); }
static cb_module *block(void) { return cb_nn_sequential(cb_nn_linear(2, 2), cb_nn_relu()); }

static void arguments_come_before_the_line(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(cb_dims(2, 3)), *out[1];
    EXPECT_HERE(cb_matmul(layer(x), layer(x)), ": matmul: ");
    EXPECT_HERE(cb_sum(layer(x), 5), "sum");
    EXPECT_HERE(cb_clamp(layer(x)), "clamp");
    EXPECT_HERE(cb_add(layer(layer(x)), cb_add(layer(x), layer(cb_ones(5)))), ": add: ");
    EXPECT_HERE(cb_add_(x, layer(cb_ones(5))), "");
    EXPECT_HERE(cb_assign(x, layer(cb_ones(5))), "");
    EXPECT_HERE(cb_fill_(x, layer(cb_ones(5))), "");
    EXPECT_HERE(cb_item(layer(x)), "item");
    EXPECT_HERE(cb_size(layer(x), 2), "no dimension 2");
    EXPECT_HERE(cb_split(layer(x), -1, 0, out, 1), "pieces of size -1");
    EXPECT_HERE(cb_mark_dynamic(layer(x), 2), "");
    EXPECT_HERE(cb_backward(layer(x), NULL), "backward");
}

static void modules_and_functions_of_arguments(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(cb_dims(2, 3));
    cb_module *net = block();
    cb_function *fast = cb_compile(net, "backend=vm");
    EXPECT_HERE(cb_forward(cb_module_child(net, "0"), layer(x)), ": linear: ");
    EXPECT_HERE(cb_call(NULL, layer(x)), "the function or an array is NULL");
    EXPECT_HERE(cb_module_free(cb_module_add(net, "more", block())), "has a parent");
    EXPECT_HERE(cb_compile(net = cb_nn_sequential(net, block()), "no=1"), "no option 'no'");
    cb_function_free(fast);
    cb_module_free(net);
}

/* A call by address has no line of its own. */
static void names_in_parentheses_leave_the_line(void **state) {
    (void)state;
    double (*value_of)(cb_tensor *) = cb_item;
    cb_tensor *x = cb_ones(2);
    int line = __LINE__ + 1;
    cb_tensor *y = cb_neg(x);
    (void)value_of(y);
    expect_line(line, "item");
    (void)(cb_item)(y);
    expect_line(line, "item");
}

/* An index is out of range when the function has long returned. */
static int line_of_gather;
static cb_tensor *picked(cb_tensor *x, cb_tensor *index) {
    line_of_gather = __LINE__ + 1;
    cb_tensor *y = cb_gather(x, 0, index);
    return cb_mul(y, 2);
}

static void an_index_names_the_line_of_its_op(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(3), *bad = cb_full(2, 7, CB_I64), *good = cb_full(2, 1, CB_I64);
    cb_function *fast = cb_compile(picked, "backend=vm");
    assert_non_null(cb_call(fast, x, good));
    for (int i = 0; i < 2; i++) {
        assert_null(cb_call(fast, x, bad));
        expect_line(line_of_gather, "gather: index 7 is out of range");
    }
    cb_function_free(fast);
    for (int i = 0; i < 2; i++) EXPECT_HERE(cb_gather(x, 0, bad), "index 7"); /* kept by eager */
}

/* ---- paths ----------------------------------------------------------------------------------- */

static cb_tensor *encode(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)count;
    cb_tensor *x = inputs[0];
    for (int i = 0; i < 2; i++) {
        char path[] = "layers.0";
        path[7] = (char)('0' + i);
        x = cb_forward(cb_module_child(self, path), x);
    }
    return x;
}

/* Net(encoder=Encoder(layers=[Sequential(linear), Sequential(linear)])) */
static cb_module *net_new(int64_t inner) {
    cb_module *encoder = cb_module_new("Encoder", encode, NULL);
    cb_module_add(encoder, "layers",
                  cb_nn_module_list(cb_nn_sequential(cb_nn_relu(), cb_nn_linear(2, inner)),
                                    cb_nn_sequential(cb_nn_relu(), cb_nn_linear(3, 2))));
    return cb_nn_sequential(cb_nn_identity(), encoder);
}

static void layers_are_named_by_their_path(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(cb_dims(4, 2));
    cb_module *net = net_new(5);
    assert_null(cb_forward(net, x));
    expect_error(": 1.layers.1.1: linear: ");
    cb_function *fast = cb_compile(net, "backend=vm");
    assert_null(cb_call(fast, x));
    expect_error(": 1.layers.1.1: linear: ");
    cb_function_free(fast);
    cb_module *encoder = cb_module_child(net, "1");
    assert_null(cb_forward(encoder, x));
    expect_error(": layers.1.1: linear: ");
    cb_graph *graph = cb_symbolic_trace(net);
    cb_tensor *out[1];
    assert_true(cb_graph_run(graph, &x, 1, out, 1) < 0);
    expect_error(": 1.layers.1.1: linear: ");
    cb_graph_free(graph);
    assert_null(cb_forward(cb_module_child(net, "1.layers.1.1"), x)); /* the outermost has none */
    expect_line(__LINE__ - 1, ": linear: ");
    assert_null(cb_add(x, cb_ones(3)));
    expect_line(__LINE__ - 1, ": add: ");
    cb_module_free(net);
}

static void an_index_names_the_layer(void **state) {
    (void)state;
    cb_module *net = cb_nn_sequential(cb_nn_sequential(cb_nn_embedding(3, 2)), cb_nn_relu());
    cb_tensor *tokens = cb_full(4, 1, CB_I64), *bad = cb_full(4, 3, CB_I64);
    cb_function *fast = cb_compile(net, "backend=vm");
    assert_non_null(cb_call(fast, tokens));
    for (int i = 0; i < 2; i++) {
        assert_null(cb_call(fast, bad));
        expect_error(": 0.0: embedding: index 3 is out of range");
    }
    assert_null(cb_forward(net, bad));
    expect_error(": 0.0: embedding: index 3 is out of range");
    cb_function_free(fast);
    cb_module_free(net);
}

/* ---- the op that was called ------------------------------------------------------------------ */

static cb_tensor *hot(cb_tensor *classes) {
    cb_tensor *y = cb_one_hot(classes, 3);
    return cb_mul(y, 2);
}

/* Not the one of its expansion that fails. */
static void errors_name_the_op_that_was_called(void **state) {
    (void)state;
    cb_tensor *bad = cb_full(cb_dims(2), 5, CB_I64), *x = cb_ones(cb_dims(4, 5)), *places;
    const char *words = "one_hot: index 5 is out of range for size 3, in one_hot(i64[2])";
    EXPECT_HERE(cb_one_hot(bad, 3), words);
    EXPECT_HERE(cb_one_hot(bad, 3), words); /* kept by eager */
    for (int i = 0; i < 3; i++) {
        cb_function *fast = cb_compile(hot, i == 0   ? "backend=vm"
                                            : i == 1 ? "backend=c"
                                                     : "backend=vm, fullgraph=1");
        assert_null(cb_call(fast, bad));
        expect_error(words);
        cb_function_free(fast);
    }
    cb_tensor *rows = cb_ones(cb_dims(2, 4)), *classes = cb_full(cb_dims(2), 4, CB_I64);
    EXPECT_HERE(cb_cross_entropy(rows, classes), "cross_entropy: index 4 is out of range for size");
    EXPECT_HERE(cb_softmax(x, 2), "softmax: dim 2 is outside of -2..1: f32[4, 5]");
    EXPECT_HERE(cb_addmm(x, x, x), "addmm: inner sizes differ: f32[4, 5] x f32[4, 5]");
    EXPECT_HERE(cb_sort(x, 2, false, &places), "sort: dim 2 is outside");
    EXPECT_HERE(cb_topk(x, 9, 1, true, &places), "topk: k 9 is outside");
    EXPECT_HERE(cb_cat(((cb_tensor *[]){x, rows}), 2, 0), "cat: sizes of dim 1 differ");
    cb_fail(CB_ERR_ARGUMENT, "argtopk: mine");
    cb_topk(x, 9, 1, true, &places); /* an earlier error stays as it is */
    cb_cat(((cb_tensor *[]){x, rows}), 2, 0);
    cb_one_hot(bad, 3);
    cb_softmax(x, 2);
    expect_error("argtopk: mine");
}

/* ---- NULL without an error ------------------------------------------------------------------- */

static cb_tensor *forgets(cb_tensor *x) {
    doubled(x);
    return NULL;
}

static cb_tensor *forward_forgets(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)self, (void)inputs, (void)count;
    return NULL;
}

static cb_tensor *fails(cb_tensor *x) {
    (void)x;
    cb_fail(CB_ERR_SHAPE, "of my own");
    return NULL;
}

static void null_is_an_error(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(2), *out[1];
    static const char *const options[] = {"backend=vm", "backend=vm, fullgraph=on"};
    for (int i = 0; i < 2; i++) {
        cb_function *fast = cb_compile(forgets, options[i]);
        for (int k = 0; k < 3; k++)
            EXPECT_HERE(cb_call(fast, x), "gave NULL and recorded no error");
        assert_int_equal(cb_call_n(fast, &x, 1, out, 1), CB_ERR_ARGUMENT);
        expect_error("gave NULL and recorded no error");
        cb_function_free(fast);
        fast = cb_compile(fails, options[i]);
        assert_null(cb_call(fast, x));
        expect_error("of my own");
        cb_function_free(fast);
    }
    cb_module *module = cb_module_new("Forgetful", forward_forgets, NULL);
    cb_module *net = cb_nn_sequential(module);
    assert_null(cb_forward(net, x));
    expect_error(": 0: Forgetful: forward gave NULL and recorded no error");
    cb_module_free(net);
}

/* ---- more outputs than there are ------------------------------------------------------------- */

static int count_of_outputs;

static int fills(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    for (int i = 0; i < count_of_outputs; i++) outputs[i] = cb_add(inputs[0], i);
    return count_of_outputs;
}

static int fills_none(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)inputs, (void)count, (void)outputs, (void)user;
    return 3;
}

static void outputs_are_counted(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(2), *out[CB_MAX_ARGS];
    cb_function *fast = cb_compile_n(fills, NULL, "backend=vm");
    count_of_outputs = CB_MAX_ARGS;
    assert_int_equal(cb_call_n(fast, &x, 1, out, CB_MAX_ARGS), CB_MAX_ARGS);
    count_of_outputs = 3 * CB_MAX_ARGS;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cb_call_n(fast, &x, 1, out, CB_MAX_ARGS), CB_ERR_ARGUMENT);
        expect_error("returned 3072 tensors, more than 1024");
    }
    cb_function_free(fast);
    assert_null(cb_symbolic_trace_function(fills, NULL, 1, "x"));
    expect_error("returned 3072 tensors, more than 1024");
    fast = cb_compile_n(fills_none, NULL, "backend=vm");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cb_call_n(fast, &x, 1, out, CB_MAX_ARGS), 3);
        for (int k = 0; k < 3; k++) assert_null(out[k]);
    }
    cb_function_free(fast);
    assert_null(cb_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_that_are_no_ops, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(calls_of_modules, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(scopes_without_an_opening, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(the_call_has_its_line_again, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(arguments_come_before_the_line, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(modules_and_functions_of_arguments, open_scope,
                                        close_scope),
        cmocka_unit_test_setup_teardown(names_in_parentheses_leave_the_line, open_scope,
                                        close_scope),
        cmocka_unit_test_setup_teardown(an_index_names_the_line_of_its_op, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(layers_are_named_by_their_path, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(an_index_names_the_layer, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(errors_name_the_op_that_was_called, open_scope,
                                        close_scope),
        cmocka_unit_test_setup_teardown(null_is_an_error, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(outputs_are_counted, open_scope, close_scope),
    };
    return cmocka_run_group_tests_name("sites", tests, NULL, clean_up);
}
