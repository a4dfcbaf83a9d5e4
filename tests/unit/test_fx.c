/* FX: tracing and running. */
#include "fx_support.h"

static cb_tensor *run_one(cb_graph *graph, cb_tensor *x) {
    cb_tensor *y = NULL;
    int count = cb_graph_run(graph, &x, 1, &y, 1);
    if (count != 1) print_error("%s\n", cb_error());
    assert_int_equal(count, 1);
    return y;
}

/* ---- tracing -------------------------------------------------------------------------------- */

static int asks_value(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)user;
    (void)count;
    out[0] = cb_item(in[0]) > 0 ? cb_exp(in[0]) : NULL;
    return 1;
}

static int asks_size(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)user;
    (void)count;
    out[0] = cb_mul(in[0], (double)cb_size(in[0], 0));
    return 1;
}

static void value_requests_fail(void **state) {
    (void)state;
    assert_null(cb_symbolic_trace_function(asks_value, NULL, 1, NULL));
    expect_error("not known in a symbolic trace without example inputs");
    assert_null(cb_symbolic_trace_function(asks_size, NULL, 1, NULL));
    expect_error("size: dtype and size are not known in a symbolic trace");
    cb_tensor *x = cb_ones(cb_dims(1));
    assert_null(cb_symbolic_trace_function_with(asks_value, NULL, "x", &x, 1));
    expect_error("node %x (placeholder x): its value was asked for in a symbolic trace");
    x = cb_ones(cb_dims(5, 2));
    cb_graph *graph = cb_symbolic_trace_function_with(asks_size, NULL, "x", &x, 1);
    char *text = cb_graph_text(graph);
    assert_non_null(strstr(text, "operator.mul](args = (%x, 5.0), kwargs = {})"));
    cb_free_text(text);
    cb_graph_free(graph);
}

static int adds_fresh_ones(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = in[0];
    for (int i = 1; i <= 3; i++) {
        float data = (float)(i * i);
        cb_tensor *fresh = cb_from_data(&data, CB_F32, cb_dims(1));
        out[0] = cb_add(out[0], fresh);
        cb_free(fresh); /* the next one may lie where it was */
    }
    return 1;
}

static void constants_that_are_freed(void **state) {
    (void)state;
    cb_graph *graph = cb_symbolic_trace_function(adds_fresh_ones, NULL, 1, NULL);
    cb_tensor *in = cb_zeros(cb_dims(2)), *out;
    assert_int_equal(cb_graph_run(graph, &in, 1, &out, 1), 1);
    expect_close(out, cb_full(cb_dims(2), 14.0));
    cb_graph_free(graph);
}

static void constants_and_assignments(void **state) {
    (void)state;
    const float data[] = {1, 2, 3};
    cb_tensor *table = cb_from_data(data, CB_F32, cb_dims(3));
    cb_graph *graph = cb_symbolic_trace_function(with_outside, table, 2, NULL);
    const char *text =
        "graph():\n"
        "    %x : [num_users=1] = placeholder[target=x]\n"
        "    %y : [num_users=4] = placeholder[target=y]\n"
        "    %_tensor_constant0 : [num_users=2] = get_attr[target=_tensor_constant0]\n"
        "    %mul : [num_users=1] = call_function[target=operator.mul](args = (%x, "
        "%_tensor_constant0), kwargs = {})\n"
        "    %add : [num_users=2] = call_function[target=operator.add](args = (%mul, "
        "%_tensor_constant0), kwargs = {})\n"
        "    %copy_ : [num_users=0] = call_method[target=copy_](args = (%y, %add), kwargs = {})\n"
        "    %add_1 : [num_users=1] = call_function[target=operator.add](args = (%y, 1), kwargs = "
        "{})\n"
        "    %copy__1 : [num_users=0] = call_method[target=copy_](args = (%y, %add_1), kwargs = "
        "{})\n"
        "    %exp : [num_users=1] = call_method[target=exp](args = (%y,), kwargs = {})\n"
        "    return (add, exp)";
    expect_text(cb_graph_text(graph), text);
    assert_int_equal(cb_graph_lint(graph), CB_OK);
    assert_int_equal(cb_graph_dead_code(graph), 0);
    cb_tensor *in[] = {cb_ones(cb_dims(3)), cb_zeros(cb_dims(3))}, *out[2];
    assert_int_equal(cb_graph_run(graph, in, 2, out, 2), 2);
    expect_close(out[0], cb_mul(table, 2));
    expect_close(in[1], cb_add(cb_mul(table, 2), 1));
    expect_close(out[1], cb_exp(in[1]));
    cb_graph_free(graph);
}

static cb_tensor *stray_forward(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)count;
    return cb_forward((cb_module *)cb_module_user(self), inputs[0]);
}

static void leaves_are_settable(void **state) {
    (void)state;
    cb_module *block = block_new(), *net = cb_nn_sequential(block);
    cb_graph *inlined = cb_symbolic_trace(net);
    assert_non_null(cb_graph_find(inlined, "_0_linear"));
    cb_graph_free(inlined);
    cb_module_set_leaf(block, true);
    cb_module_set_leaf(cb_module_child(block, "linear"), false);
    cb_graph *whole = cb_symbolic_trace(net);
    assert_int_equal(cb_graph_node_count(whole), 3);
    assert_string_equal(cb_node_target(cb_graph_find(whole, "_0")), "0");
    cb_graph_free(whole);
    cb_module_set_leaf(block, false);
    cb_graph *open = cb_symbolic_trace(net);
    assert_string_equal(cb_node_target(cb_graph_find(open, "_0_linear_weight")), "0.linear.weight");
    assert_string_equal(cb_node_target(cb_graph_find(open, "linear")),
                        "torch.nn.functional.linear");
    cb_graph_free(open);
    cb_module *outsider = cb_nn_relu(), *stray = cb_module_new("Stray", stray_forward, outsider);
    assert_null(cb_symbolic_trace(stray));
    expect_error("this ReLU is no descendant of the traced module");
    cb_module_free(stray);
    cb_module_free(outsider);
    cb_module_free(net);
}

static cb_tensor *two_inputs(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)self;
    return count == 2 ? cb_masked_fill(inputs[0], inputs[1], -1.0) : NULL;
}

static void inputs_are_named(void **state) {
    (void)state;
    cb_module *m = cb_module_new("Mask", two_inputs, NULL);
    cb_module_inputs(m, "x, mask");
    cb_graph *graph = cb_symbolic_trace(m);
    expect_text(cb_graph_text(graph),
                "graph():\n"
                "    %x : [num_users=1] = placeholder[target=x]\n"
                "    %mask : [num_users=1] = placeholder[target=mask]\n"
                "    %masked_fill : [num_users=1] = call_method[target=masked_fill](args = (%x, "
                "%mask, -1.0), kwargs = {})\n"
                "    return masked_fill");
    cb_graph_free(graph);
    cb_module_free(m);
    assert_null(cb_symbolic_trace_function(three_ways, NULL, 1025, NULL));
    expect_error("1025 inputs");
}

static void tracing_leaves_nothing(void **state) {
    (void)state;
    cb_module *m = long_new();
    cb_tensor *x = cb_randn(cb_dims(3, 4));
    int64_t before = cb_memory().live_tensors;
    for (int i = 0; i < 3; i++) {
        cb_graph_free(cb_symbolic_trace(m));
        cb_graph_free(cb_symbolic_trace_with(m, &x, 1));
        assert_null(cb_symbolic_trace_function(asks_value, NULL, 1, NULL));
        cb_clear_error();
    }
    assert_int_equal(cb_memory().live_tensors, before);
    cb_module_free(m);
}

/* ---- running -------------------------------------------------------------------------------- */

static void running_equals_the_module(void **state) {
    (void)state;
    cb_module *m = long_new();
    cb_module_train(m, false);
    cb_graph *graph = cb_symbolic_trace(m);
    cb_tensor *x = cb_randn(cb_dims(3, 4));
    cb_tensor *expected = cb_forward(m, x);
    int64_t before = cb_memory().live_tensors;
    expect_close(run_one(graph, x), expected);
    /* the result, and what went through Dropout, which may give back its input */
    assert_true(cb_memory().live_tensors - before <= 3);
    cb_graph *copy = cb_graph_copy(graph);
    expect_text(cb_graph_text(copy), long_text);
    cb_graph_free(graph);
    expect_close(run_one(copy, x), expected);
    cb_graph_free(copy);
    cb_module_free(m);
}

/* Inside a compiled function the interpreter's ops are recorded: the graph becomes few kernels. */
static void graphs_compile(void **state) {
    (void)state;
    cb_module *m = long_new();
    cb_module_train(m, false);
    cb_graph *graph = cb_symbolic_trace(m);
    cb_tensor *x = cb_randn(cb_dims(3, 4));
    cb_function *compiled = cb_compile(graph, "fullgraph=1,backend=vm");
    for (int i = 0; i < 2; i++) expect_close(cb_call(compiled, x), cb_forward(m, x));
    cb_function_stats stats = cb_stats(compiled);
    assert_int_equal(stats.graphs, 1);
    assert_int_equal(stats.eager_calls, 0);
    assert_true(stats.kernels < stats.kernels_eager);
    cb_function_free(compiled);
    cb_graph_free(graph);
    cb_module_free(m);
}

static void python_spellings_run(void **state) {
    (void)state;
    cb_graph *graph = parse(
        "graph():\n"
        "    %x : torch.Tensor [num_users=9] = placeholder[target=x]\n"
        "    %k : [num_users=1] = placeholder[target=k](default=2.0)\n"
        "    %a : [num_users=1] = call_function[target=torch.add](args = (%x, %k), kwargs = {})\n"
        "    %b : [num_users=1] = call_function[target=torch.softmax](args = (%a,), kwargs = {dim: "
        "-1, dtype: None})\n"
        "    %c : [num_users=1] = call_method[target=sum](args = (%b, (0, 1)), kwargs = {})\n"
        "    %d : [num_users=1] = call_method[target=permute](args = (%x, 1, 0), kwargs = {})\n"
        "    %e : [num_users=1] = call_method[target=reshape](args = (%d, (2, -1)), kwargs = {})\n"
        "    %f : [num_users=1] = call_function[target=operator.getitem](args = (%e, (Ellipsis, 1, "
        "slice(None, None, 2))), kwargs = {})\n"
        "    %g : [num_users=1] = call_function[target=operator.getitem](args = (%x, (0, None, "
        "slice(1, None, None))), kwargs = {})\n"
        "    %h : [num_users=1] = call_function[target=torch.nn.functional.relu](args = (%g,), "
        "kwargs = {inplace: False})\n"
        "    %i : [num_users=1] = call_method[target=mul_](args = (%e, 3), kwargs = {})\n"
        "    return {'c': c, 'f': f, 'rest': [h, e]}");
    cb_tensor *x = cb_randn(cb_dims(2, 6)), *out[4];
    int count = cb_graph_run(graph, &x, 1, out, 4);
    expect_no_error();
    assert_int_equal(count, 4);
    cb_tensor *e = cb_reshape(cb_transpose(x, 0, 1), cb_dims(2, -1));
    expect_close(out[0], cb_sum(cb_softmax(cb_add(x, 2.0), -1)));
    expect_close(out[2], cb_relu(cb_unsqueeze(cb_slice(cb_select(x, 0, 0), 0, 1), 0)));
    expect_close(out[3], cb_mul(e, 3));
    cb_graph_free(graph);
    graph = parse("graph():\n"
                  "    %x : [num_users=1] = placeholder[target=x]\n"
                  "    %f : [num_users=1] = call_function[target=operator.getitem](args = (%x, "
                  "(Ellipsis, 1, slice(None, None, 2))), kwargs = {})\n"
                  "    return f");
    x = cb_randn(cb_dims(2, 3, 5));
    expect_close(run_one(graph, x), cb_slice(cb_select(x, 1, 1), 1, 0, INT64_MAX, 2));
    cb_graph_free(graph);
}

static cb_tensor *replicated(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)self, (void)count;
    return cb_replication_pad(inputs[0], cb_dims(2, 1));
}

static void modes_are_texts(void **state) {
    (void)state;
    cb_graph *graph = parse(
        "graph():\n"
        "    %x : [num_users=1] = placeholder[target=x]\n"
        "    %p : [num_users=1] = call_function[target=torch.nn.functional.pad](args = (%x, (1, 2, "
        "0, 1)), kwargs = {mode: reflect, value: None})\n"
        "    %i : [num_users=1] = call_function[target=torch.nn.functional.interpolate](args = "
        "(%p,), kwargs = {size: None, scale_factor: 2.0, mode: bilinear, align_corners: True, "
        "recompute_scale_factor: None, antialias: False})\n"
        "    %n : [num_users=1] = call_function[target=torch.nn.functional.interpolate](args = "
        "(%i,), kwargs = {size: (3, 5), mode: nearest-exact})\n"
        "    %c : [num_users=1] = call_function[target=torch.nn.functional.interpolate](args = "
        "(%n,), kwargs = {scale_factor: (2.0, 1.5), mode: bicubic})\n"
        "    %w : [num_users=1] = call_function[target=torch.nn.functional.conv2d](args = (%c, "
        "%c), kwargs = {padding: same})\n"
        "    return w");
    cb_tensor *x = cb_randn(cb_dims(1, 1, 3, 4));
    cb_tensor *y = cb_reflection_pad(x, cb_dims(1, 2, 0, 1));
    y = cb_interpolate(y, CB_NO_DIMS, 2.0, true, true);
    y = cb_interpolate(y, cb_dims(3, 5), 0.0, false, false, true);
    y = cb_interpolate(y, CB_NO_DIMS, cb_floats(2, 1.5), false, false, false, true);
    expect_close(run_one(graph, x), cb_conv2d(y, y, NULL, 1, "same"));
    char *code = cb_graph_code(graph, "f");
    assert_non_null(strstr(code, "cb_reflection_pad(x, cb_dims(1, 2, 0, 1))"));
    assert_non_null(strstr(code, "\"same\""));
    assert_non_null(strstr(code, "CB_NO_DIMS, cb_floats(2.0, 1.5), false, false, false, true)"));
    cb_free_text(code);
    cb_graph_free(graph);
    cb_module *pads = cb_module_new("Pads", replicated, NULL);
    graph = cb_symbolic_trace(pads);
    expect_text(cb_graph_text(graph),
                "graph():\n"
                "    %x : [num_users=1] = placeholder[target=x]\n"
                "    %pad : [num_users=1] = call_function[target=torch.nn.functional.pad](args = "
                "(%x, (2, 1)), kwargs = {mode: replicate})\n"
                "    return pad");
    cb_graph_free(graph);
    cb_module_free(pads);
    graph = parse("graph():\n"
                  "    %x : [num_users=1] = placeholder[target=x]\n"
                  "    %i : [num_users=1] = call_function[target=torch.nn.functional.interpolate]("
                  "args = (%x,), kwargs = {size: 3, mode: lanczos})\n"
                  "    return i");
    cb_tensor *none;
    assert_true(cb_graph_run(graph, &x, 1, &none, 1) < 0);
    expect_error("mode must be a mode that Carbide has");
    cb_graph_free(graph);
}

static cb_tensor *weighed(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)self, (void)count;
    cb_tensor *x = inputs[0];
    return cb_binary_cross_entropy_with_logits(x, x, NULL, CB_REDUCE_SUM, x);
}

static void reductions_are_texts(void **state) {
    (void)state;
    cb_tensor *x = cb_randn(cb_dims(3, 4)), *none;
    cb_module *module = cb_module_new("Loss", weighed, NULL);
    cb_graph *graph = cb_symbolic_trace(module);
    expect_text(cb_graph_text(graph),
                "graph():\n"
                "    %x : [num_users=1] = placeholder[target=x]\n"
                "    %binary_cross_entropy_with_logits : [num_users=1] = call_function[target="
                "torch.nn.functional.binary_cross_entropy_with_logits](args = (%x, %x), kwargs = "
                "{reduction: sum, pos_weight: %x})\n"
                "    return binary_cross_entropy_with_logits");
    expect_close(run_one(graph, x), cb_module_forward(module, &x, 1));
    cb_graph_free(graph);
    cb_module_free(module);
    graph = parse("graph():\n"
                  "    %x : [num_users=2] = placeholder[target=x]\n"
                  "    %l : [num_users=1] = call_function[target=torch.nn.functional.mse_loss]("
                  "args = (%x, %x), kwargs = {reduction: most})\n"
                  "    return l");
    assert_true(cb_graph_run(graph, &x, 1, &none, 1) < 0);
    expect_error("reduction must be a reduction");
    cb_graph_free(graph);
}

static void failed_runs_name_the_node(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"call_method[target=frobnicate](args = (%x,), kwargs = {})",
         "node %y (call_method frobnicate): no op"},
        {"call_method[target=sum](args = (%x, 0, True, 3), kwargs = {})",
         "node %y (call_method sum): 4 arguments are too many"},
        {"call_method[target=sum](args = (%x,), kwargs = {axis: 1})", "no parameter is named axis"},
        {"call_method[target=softmax](args = (%x,), kwargs = {})", "dim must be given"},
        {"call_method[target=softmax](args = (%x, 1.5), kwargs = {})", "dim must be an integer"},
        {"call_function[target=operator.add](args = (%x, None), kwargs = {})",
         "b must be a tensor or a number"},
        {"call_function[target=torch.cat](args = (%x,), kwargs = {})", "must be a list of tensors"},
        {"call_function[target=operator.getitem](args = (%x, two), kwargs = {})", "an index holds"},
        {"call_module[target=conv](args = (%x,), kwargs = {})",
         "node %y (call_module conv): no such module"},
        {"get_attr[target=w]", "node %y (get_attr w): no parameter"},
        {"call_method[target=softmax](args = (%x, 7), kwargs = {})", "7"},
    };
    cb_tensor *x = cb_ones(cb_dims(2, 2)), *y;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "graph():\n"
                 "    %%x : [num_users=1] = placeholder[target=x]\n"
                 "    %%y : [num_users=1] = %s\n"
                 "    return y",
                 cases[i][0]);
        cb_graph *graph = parse(text);
        assert_true(cb_graph_run(graph, &x, 1, &y, 1) < 0);
        expect_error(cases[i][1]);
        cb_graph_free(graph);
    }
    cb_graph *graph = cb_symbolic_trace_function(three_ways, NULL, 2, NULL);
    cb_tensor *out[3];
    assert_true(cb_graph_run(graph, &x, 1, out, 3) < 0);
    expect_error("input 1 is missing");
    assert_true(cb_graph_run(graph, (cb_tensor *[]){x, x}, 2, out, 2) < 0);
    expect_error("more than the 2 outputs");
    assert_true(cb_graph_run(graph, (cb_tensor *[]){x, x, x}, 3, out, 3) < 0);
    expect_error("takes 2 inputs, not 3");
    cb_graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ONE(value_requests_fail),       ONE(constants_that_are_freed),
        ONE(constants_and_assignments), ONE(leaves_are_settable),
        ONE(inputs_are_named),          ONE(tracing_leaves_nothing),
        ONE(running_equals_the_module), ONE(graphs_compile),
        ONE(python_spellings_run),      ONE(modes_are_texts),
        ONE(reductions_are_texts),      ONE(failed_runs_name_the_node),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
