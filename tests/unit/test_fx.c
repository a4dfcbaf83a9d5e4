/* FX: tracing, the printed forms, running, shapes, generated code. */
#include "fx_support.h"

#include <libgen.h>
#include <unistd.h>

static cb_tensor *run_one(cb_graph *graph, cb_tensor *x) {
    cb_tensor *y = NULL;
    int count = cb_graph_run(graph, &x, 1, &y, 1);
    if (count != 1) print_error("%s\n", cb_error());
    assert_int_equal(count, 1);
    return y;
}

/* ---- text ----------------------------------------------------------------------------------- */

static void design_page_to_the_letter(void **state) {
    (void)state;
    cb_module *block = block_new();
    cb_graph *graph = cb_symbolic_trace(block);
    expect_text(
        cb_graph_text(graph),
        "graph():\n"
        "    %x : [num_users=2] = placeholder[target=x]\n"
        "    %linear : [num_users=1] = call_module[target=linear](args = (%x,), kwargs = {})\n"
        "    %add : [num_users=1] = call_function[target=operator.add](args = (%linear, %x), "
        "kwargs = {})\n"
        "    %relu : [num_users=1] = call_method[target=relu](args = (%add,), kwargs = {})\n"
        "    return relu");
    expect_text(cb_graph_tabular(graph),
                "opcode         name    target                   args         kwargs\n"
                "-------------  ------  -----------------------  -----------  --------\n"
                "placeholder    x       x                        ()           {}\n"
                "call_module    linear  linear                   (x,)         {}\n"
                "call_function  add     <built-in function add>  (linear, x)  {}\n"
                "call_method    relu    relu                     (add,)       {}\n"
                "output         output  output                   (relu,)      {}\n");
    expect_text(cb_graph_readable(graph, 0), "class Block(torch.nn.Module):\n"
                                             "    def forward(self, x):\n"
                                             "        linear = self.linear(x)\n"
                                             "        add = linear + x;  linear = x = None\n"
                                             "        relu = add.relu();  add = None\n"
                                             "        return relu\n");
    assert_int_equal(cb_graph_lint(graph), CB_OK);
    cb_graph_free(graph);
    cb_module_free(block);
}

/* The program whose torch.fx text is known; see the expected text. */
static cb_tensor *long_forward(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)count;
    cb_tensor *x = inputs[0];
    cb_tensor *a = cb_relu(cb_add(cb_forward(cb_module_child(self, "linear"), x), x));
    cb_tensor *b = cb_mul(cb_softmax(a, -1), cb_module_get(self, "w"));
    cb_tensor *c = cb_sum(cb_softmax(b, 1), 1, true);
    c = cb_add(c, cb_sum(b, cb_dims(0, 1)));
    c = cb_add(c, cb_module_get(self, "w"));
    cb_tensor *d = cb_slice(cb_forward(cb_module_child(self, "seq"), c), 1, 1, 3);
    cb_tensor *both[] = {d, d, d, d}; /* cb_cat joins pairs; the graph shows one cat */
    cb_tensor *e = cb_sub(1, cb_cat(both, 4, 1));
    cb_tensor *f = cb_view(cb_to(e, CB_F64), cb_dims(-1, 2));
    f = cb_add(cb_mul(cb_add(cb_div(f, 2.5e-7), 1e5), 1e+20), 1e-5);
    cb_tensor *g = cb_unsqueeze(cb_sum(f, cb_dims(0, 1), true), 0);
    cb_tensor *i = cb_gelu(g, true);
    cb_tensor *j = cb_where(cb_gt(i, 0), i, 0.0);
    cb_tensor *k = cb_cat((cb_tensor *[]){j, i, j, i}, 4, -1);
    return cb_neg(cb_mul(cb_clamp(k, -1, 1), cb_module_get(self, "w")));
}

static cb_module *long_new(void) {
    cb_module *m = cb_module_new("M", long_forward, NULL);
    cb_module_add(m, "linear", cb_nn_linear(4, 4, true));
    cb_module_parameter(m, "w", cb_randn(cb_dims(4)));
    cb_module *inner = cb_nn_sequential(cb_nn_linear(8, 4, true), cb_nn_dropout(0.1));
    cb_module_add(m, "seq", cb_nn_sequential(cb_nn_linear(4, 8, true), cb_nn_relu(), inner));
    return m;
}

static const char *const long_text =
    "graph():\n"
    "    %x : [num_users=2] = placeholder[target=x]\n"
    "    %linear : [num_users=1] = call_module[target=linear](args = (%x,), kwargs = {})\n"
    "    %add : [num_users=1] = call_function[target=operator.add](args = (%linear, %x), kwargs = "
    "{})\n"
    "    %relu : [num_users=1] = call_method[target=relu](args = (%add,), kwargs = {})\n"
    "    %softmax : [num_users=1] = call_method[target=softmax](args = (%relu, -1), kwargs = {})\n"
    "    %w : [num_users=3] = get_attr[target=w]\n"
    "    %mul : [num_users=2] = call_function[target=operator.mul](args = (%softmax, %w), kwargs = "
    "{})\n"
    "    %softmax_1 : [num_users=1] = call_method[target=softmax](args = (%mul, 1), kwargs = {})\n"
    "    %sum_1 : [num_users=1] = call_method[target=sum](args = (%softmax_1,), kwargs = {dim: 1, "
    "keepdim: True})\n"
    "    %sum_2 : [num_users=1] = call_method[target=sum](args = (%mul,), kwargs = {dim: (0, 1)})\n"
    "    %add_1 : [num_users=1] = call_function[target=operator.add](args = (%sum_1, %sum_2), "
    "kwargs = {})\n"
    "    %add_2 : [num_users=1] = call_function[target=operator.add](args = (%add_1, %w), kwargs = "
    "{})\n"
    "    %seq_0 : [num_users=1] = call_module[target=seq.0](args = (%add_2,), kwargs = {})\n"
    "    %seq_1 : [num_users=1] = call_module[target=seq.1](args = (%seq_0,), kwargs = {})\n"
    "    %seq_2_0 : [num_users=1] = call_module[target=seq.2.0](args = (%seq_1,), kwargs = {})\n"
    "    %seq_2_1 : [num_users=1] = call_module[target=seq.2.1](args = (%seq_2_0,), kwargs = {})\n"
    "    %getitem : [num_users=1] = call_function[target=operator.getitem](args = (%seq_2_1, "
    "(slice(None, None, None), slice(1, 3, None))), kwargs = {})\n"
    "    %cat : [num_users=1] = call_function[target=torch.cat](args = ([%getitem, %getitem, "
    "%getitem, %getitem],), kwargs = {dim: 1})\n"
    "    %sub : [num_users=1] = call_function[target=operator.sub](args = (1, %cat), kwargs = {})\n"
    "    %to : [num_users=1] = call_method[target=to](args = (%sub, torch.float64), kwargs = {})\n"
    "    %view : [num_users=1] = call_method[target=view](args = (%to, -1, 2), kwargs = {})\n"
    "    %truediv : [num_users=1] = call_function[target=operator.truediv](args = (%view, "
    "2.5e-07), kwargs = {})\n"
    "    %add_3 : [num_users=1] = call_function[target=operator.add](args = (%truediv, 100000.0), "
    "kwargs = {})\n"
    "    %mul_1 : [num_users=1] = call_function[target=operator.mul](args = (%add_3, 1e+20), "
    "kwargs = {})\n"
    "    %add_4 : [num_users=1] = call_function[target=operator.add](args = (%mul_1, 1e-05), "
    "kwargs = {})\n"
    "    %sum_3 : [num_users=1] = call_method[target=sum](args = (%add_4,), kwargs = {dim: (0, 1), "
    "keepdim: True})\n"
    "    %unsqueeze : [num_users=1] = call_method[target=unsqueeze](args = (%sum_3, 0), kwargs = "
    "{})\n"
    "    %gelu : [num_users=3] = call_function[target=torch.nn.functional.gelu](args = "
    "(%unsqueeze,), kwargs = {approximate: tanh})\n"
    "    %gt : [num_users=1] = call_function[target=operator.gt](args = (%gelu, 0), kwargs = {})\n"
    "    %where : [num_users=1] = call_function[target=torch.where](args = (%gt, %gelu, 0.0), "
    "kwargs = {})\n"
    "    %cat_1 : [num_users=1] = call_function[target=torch.cat](args = ([%where, %gelu, %where, "
    "%gelu],), kwargs = {dim: -1})\n"
    "    %clamp : [num_users=1] = call_method[target=clamp](args = (%cat_1,), kwargs = {min: -1.0, "
    "max: 1.0})\n"
    "    %mul_2 : [num_users=1] = call_function[target=operator.mul](args = (%clamp, %w), kwargs = "
    "{})\n"
    "    %neg : [num_users=1] = call_function[target=operator.neg](args = (%mul_2,), kwargs = {})\n"
    "    return neg";

static void long_program_prints_as_torch_does(void **state) {
    (void)state;
    cb_module *m = long_new();
    cb_graph *graph = cb_symbolic_trace(m);
    expect_no_error();
    expect_text(cb_graph_text(graph), long_text);
    assert_int_equal(cb_graph_lint(graph), CB_OK);
    cb_graph *back = cb_graph_parse(long_text, m);
    expect_no_error();
    expect_text(cb_graph_text(back), long_text);
    char *code = cb_graph_readable(graph, 0);
    assert_non_null(strstr(code, "seq_0 = getattr(self.seq, \"0\")(add_2);  add_2 = None\n"));
    assert_non_null(
        strstr(code, "getitem = seq_2_1[(slice(None, None, None), slice(1, 3, None))];"));
    assert_non_null(
        strstr(code, "gelu = torch.nn.functional.gelu(unsqueeze, approximate = 'tanh');"));
    assert_non_null(strstr(code, "sub = 1 - cat;  cat = None\n"));
    cb_free_text(code);
    cb_graph_free(back);
    cb_graph_free(graph);
    cb_module_free(m);
}

static int three_ways(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)user;
    (void)count;
    out[0] = cb_maximum(in[0], in[1]);
    out[1] = cb_max(out[0]);
    cb_abs(out[0]); /* nobody uses it */
    out[2] = in[0];
    return 3;
}

static void names_avoid_python(void **state) {
    (void)state;
    cb_graph *graph = cb_symbolic_trace_function(three_ways, NULL, 2, "x, max");
    expect_text(
        cb_graph_text(graph),
        "graph():\n"
        "    %x : [num_users=2] = placeholder[target=x]\n"
        "    %max_1 : [num_users=1] = placeholder[target=max]\n"
        "    %maximum : [num_users=3] = call_function[target=torch.maximum](args = (%x, %max_1), "
        "kwargs = {})\n"
        "    %max_2 : [num_users=1] = call_method[target=max](args = (%maximum,), kwargs = {})\n"
        "    %abs_1 : [num_users=0] = call_method[target=abs](args = (%maximum,), kwargs = {})\n"
        "    return (maximum, max_2, x)");
    expect_text(cb_graph_readable(graph, 0),
                "class GraphModule(torch.nn.Module):\n"
                "    def forward(self, x, max):\n"
                "        max_1 = max\n"
                "        maximum = torch.maximum(x, max_1);  max_1 = None\n"
                "        max_2 = maximum.max()\n"
                "        abs_1 = maximum.abs();  abs_1 = None\n"
                "        return (maximum, max_2, x)\n");
    cb_graph_free(graph);
}

static void name_forms(void **state) {
    (void)state;
    static const char *const cases[][2] = {{"x", "x"},
                                           {"x", "x_1"},
                                           {"x_1", "x_2"},
                                           {"layer1.0", "layer1_0"},
                                           {"0.weight", "_0_weight"},
                                           {"a--b", "a_b"},
                                           {"sum", "sum_1"},
                                           {"sum", "sum_2"},
                                           {"lambda", "lambda_1"},
                                           {"inf", "inf_1"},
                                           {"fcProj", "fc_proj"},
                                           {"x", "x_3"},
                                           {"add_5", "add_5"},
                                           {"add", "add"},
                                           {"add", "add_6"},
                                           {"", "_unnamed"}};
    FxGraph *graph = fx_graph_new(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *hint = fx_name_hint(graph, CB_CALL_MODULE, cases[i][0]);
        assert_string_equal(fx_unique_name(graph, hint), cases[i][1]);
    }
    cb_graph_free(graph);
}

static void readable_with_examples(void **state) {
    (void)state;
    cb_module *block = block_new();
    cb_tensor *x = cb_randn(cb_dims(4, 4));
    cb_graph *graph = cb_symbolic_trace_with(block, &x, 1);
    expect_text(cb_graph_readable(graph, 0),
                "class Block(torch.nn.Module):\n"
                "    def forward(self, x: \"f32[4, 4]\"):\n"
                "        linear: \"f32[4, 4]\" = self.linear(x)\n"
                "        add: \"f32[4, 4]\" = linear + x;  linear = x = None\n"
                "        relu: \"f32[4, 4]\" = add.relu();  add = None\n"
                "        return relu\n");
    char *text =
        cb_graph_readable(graph, CB_READABLE_STRIDE | CB_READABLE_DEVICE | CB_READABLE_SITES);
    assert_non_null(strstr(text, "relu: \"f32[4, 4][4, 1]cpu\" = add.relu()"));
    assert_non_null(strstr(text, "fx_support.h:"));
    cb_free_text(text);
    cb_dtype dtype;
    cb_dim_list sizes;
    assert_true(cb_node_meta(cb_graph_find(graph, "relu"), &dtype, &sizes));
    assert_int_equal(dtype, CB_F32);
    assert_int_equal(sizes.count, 2);
    text = cb_graph_dot(graph);
    assert_non_null(strstr(text, "\"linear\" -> \"add\";"));
    cb_free_text(text);
    cb_graph_free(graph);
    cb_module_free(block);
}

static void shapes_propagate(void **state) {
    (void)state;
    cb_module *m = long_new();
    cb_module_train(m, false);
    cb_graph *graph = cb_symbolic_trace(m);
    cb_tensor *x = cb_randn(cb_dims(3, 4));
    assert_false(cb_node_meta(cb_graph_find(graph, "mul"), NULL, NULL));
    assert_int_equal(cb_graph_propagate_shapes(graph, &x, 1), CB_OK);
    char *text = cb_graph_readable(graph, 0);
    assert_non_null(strstr(text, "seq_0: \"f32[3, 8]\""));
    assert_non_null(strstr(text, "cat: \"f32[3, 8]\""));
    assert_non_null(strstr(text, "gt: \"b8[1, 1, 1]\""));
    assert_non_null(strstr(text, "truediv: \"f64[12, 2]\""));
    cb_free_text(text);
    cb_graph_free(graph);
    cb_module_free(m);
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

static int with_outside(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    cb_tensor *table = user;
    out[0] = cb_add(cb_mul(in[0], table), table);
    cb_assign(in[1], out[0]);
    cb_add_(in[1], 1);
    out[1] = cb_exp(in[1]);
    return 2;
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
    assert_null(cb_symbolic_trace_function(three_ways, NULL, 65, NULL));
    expect_error("65 inputs");
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
        "    %w : [num_users=1] = call_function[target=torch.nn.functional.conv2d](args = (%n, "
        "%n), kwargs = {padding: same})\n"
        "    return w");
    cb_tensor *x = cb_randn(cb_dims(1, 1, 3, 4));
    cb_tensor *y = cb_reflection_pad(x, cb_dims(1, 2, 0, 1));
    y = cb_interpolate(y, CB_NO_DIMS, 2.0, true, true);
    y = cb_interpolate(y, cb_dims(3, 5), 0.0, false, false, true);
    expect_close(run_one(graph, x), cb_conv2d(y, y, NULL, 1, "same"));
    char *code = cb_graph_code(graph, "f");
    assert_non_null(strstr(code, "cb_reflection_pad(x, cb_dims(1, 2, 0, 1))"));
    assert_non_null(strstr(code, "\"same\""));
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
                  "args = (%x,), kwargs = {size: 3, mode: bicubic})\n"
                  "    return i");
    cb_tensor *none;
    assert_true(cb_graph_run(graph, &x, 1, &none, 1) < 0);
    expect_error("linear must be a mode that Carbide has");
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

/* ---- every op of the table ------------------------------------------------------------------ */

/* Attributes that are not the defaults, but plausible. */
static Attrs unusual_attrs(const OpInfo *info, Op op) {
    Attrs attrs = attrs_default(op);
    for (int i = 0; i < info->param_count; i++) {
        const Param *param = &info->param[i];
        if (param->type == PARAM_INT) attrs.word[param->word] = 3 + i;
        if (param->type == PARAM_BOOL) attrs.word[param->word] = !param->default_int;
        if (param->type == PARAM_DTYPE) attrs.word[param->word] = CB_F16;
        if (param->type == PARAM_FLOAT) attr_set_float(&attrs, param->word, 0.1 + i);
        if (param->type == PARAM_DIMS) attr_set_dims(&attrs, param->word, cb_dims(2, 1));
    }
    if (op == OP_interpolate) attrs.word[ATTR_interpolate_exact] = 0; /* one mode at a time */
    return attrs;
}

static void expect_same_call(const FxNode *node, Op op, const Attrs *attrs, int arity) {
    FxCall call;
    if (!fx_bind(node, &call)) print_error("%s: %s\n", op_info(op)->name, cb_error());
    expect_no_error();
    if (call.op != op)
        print_error("%s came back as %s\n", op_info(op)->name, op_info(call.op)->name);
    assert_int_equal(call.op, op);
    if (call.indexing) {
        assert_int_equal(call.step_count, 1);
        assert_int_equal(call.step[0].dim, attrs->word[ATTR_slice_dim]);
        assert_int_equal(call.step[0].start, attrs->word[ATTR_slice_start]);
        assert_int_equal(call.step[0].end, attrs->word[ATTR_slice_end]);
        assert_int_equal(call.step[0].step, attrs->word[ATTR_slice_step]);
        return;
    }
    if (memcmp(&call.attrs, attrs, sizeof(int64_t) * op_info(op)->word_count) != 0)
        print_error("%s: other attributes came back\n", op_info(op)->name);
    assert_memory_equal(&call.attrs, attrs, sizeof(int64_t) * op_info(op)->word_count);
    assert_int_equal(call.list ? call.list->count : call.operand_count, arity);
}

static void every_op_comes_back(void **state) {
    (void)state;
    for (int op = OP_constant + 1; op < OP_COUNT; op++) {
        const OpInfo *info = op_info((Op)op);
        if (info->flags & LOWERED) continue;
        cb_graph *graph = cb_graph_new(NULL);
        cb_arg operand[OP_MAX_PARAMS];
        for (int i = 0; i < info->arity; i++)
            operand[i] = cb_arg_node(cb_graph_placeholder(graph, "x"));
        for (int unusual = 0; unusual < 2; unusual++) {
            Attrs attrs = unusual ? unusual_attrs(info, (Op)op) : attrs_default((Op)op);
            FxNode *node = fx_record(graph, (Op)op, operand, info->arity, &attrs);
            if (!unusual && op == OP_slice) continue; /* all of x: no step at all */
            expect_same_call(node, (Op)op, &attrs, info->arity);
        }
        char *text = cb_graph_text(graph);
        cb_graph *back = parse(text);
        expect_text(cb_graph_text(back), text);
        FxNode *node = back->last;
        Attrs attrs = unusual_attrs(info, (Op)op);
        expect_same_call(node, (Op)op, &attrs, info->arity);
        cb_free_text(text);
        cb_graph_free(back);
        cb_graph_free(graph);
    }
}

/* ---- generated code ------------------------------------------------------------------------- */

static void code_of_the_design_page(void **state) {
    (void)state;
    cb_module *block = block_new();
    cb_graph *graph = cb_symbolic_trace(block);
    expect_text(
        cb_graph_code(graph, "block"),
        "#include <carbide.h>\n\n"
        "int block(cb_tensor *const *inputs, int input_count, cb_tensor **outputs, void *user);\n"
        "int block(cb_tensor *const *inputs, int input_count, cb_tensor **outputs, void *user) {\n"
        "    cb_module *self = (cb_module *)user;\n"
        "    if (input_count != 1) return CB_ERR_ARGUMENT;\n"
        "    cb_tensor *x = inputs[0];\n"
        "    cb_tensor *linear = cb_module_forward(cb_module_child(self, \"linear\"), (cb_tensor "
        "*[]){x}, 1);\n"
        "    cb_tensor *add = cb_add(linear, x);\n"
        "    cb_free(linear);\n"
        "    cb_tensor *relu = cb_relu(add);\n"
        "    cb_free(add);\n"
        "    outputs[0] = relu;\n"
        "    return cb_error() ? (int)cb_error_status() : 1;\n"
        "}\n");
    assert_null(cb_graph_code(graph, "a block"));
    expect_error("no name of a C function");
    cb_graph_free(graph);
    cb_module_free(block);
}

/* What is awkward in C: a variable named int, constants, in-place ops, lists, infinities. */
static int awkward(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    cb_tensor *parts[] = {in[0], in[1], cb_slice(in[1], 1, 1, 3)};
    cb_tensor *all = cb_cat(parts, 3, 1);
    cb_tensor *big = cb_where(cb_gt(all, 0.5), all, -__builtin_inf());
    cb_assign(in[1], cb_mul(in[1], (cb_tensor *)user));
    out[0] = cb_amax(big, 1, true);
    out[1] = cb_layer_norm(in[1], cb_dims(4), NULL, NULL, 1e-3);
    out[2] = cb_select(cb_to(cb_add(cb_square(in[0]), true), CB_F64), 0, -1);
    return 3;
}

static cb_tensor *awkward_input(int k) {
    cb_tensor *x = cb_to(cb_arange(0, 8), CB_F32);
    return cb_reshape(cb_sin(cb_mul(x, k + 1)), cb_dims(2, 4));
}

static const char *const main_text = "\nint main(void) {\n"
                                     "    cb_tensor *in[2], *out[3];\n"
                                     "    for (int k = 0; k < 2; k++)\n"
                                     "        in[k] = cb_reshape(cb_sin(cb_mul(cb_to(cb_arange(0, "
                                     "8), CB_F32), k + 1)), cb_dims(2, 4));\n"
                                     "    int count = traced(in, 2, out, NULL);\n"
                                     "    if (count != 3) return puts(cb_error()), 1;\n"
                                     "    for (int i = 0; i < 3; i++) cb_print(out[i]);\n"
                                     "    cb_print(in[1]);\n"
                                     "    return 0;\n"
                                     "}\n";

/* Compiles text against the library that this test is linked with. */
static bool compile_text(const char *text, const char *program) {
    char exe[4096], source[4200], command[16384];
    ssize_t size = readlink("/proc/self/exe", exe, sizeof exe - 1);
    assert_true(size > 0);
    exe[size] = 0;
    const char *build = dirname(dirname(exe));
    snprintf(source, sizeof source, "%s.c", program);
    FILE *file = fopen(source, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    snprintf(command, sizeof command,
             "cc -std=gnu11 -Wall -Wextra -Werror -Iinclude -I%s/gen %s %s/libcarbide.a -lm -ldl "
             "-fopenmp -lpthread -o %s",
             build, source, build, program);
    int status = system(command);
    unlink(source);
    return status == 0;
}

static void generated_code_compiles_and_agrees(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_because("the library needs the sanitizer's runtime, which plain cc does not link");
#endif
    const float factor[] = {1, -2, 0.1f, 3};
    cb_tensor *table = cb_from_data(factor, CB_F32, cb_dims(4));
    cb_graph *graph = cb_symbolic_trace_function(awkward, table, 2, "int, outputs");
    expect_no_error();
    char *code = cb_graph_code(graph, "traced");
    expect_no_error();
    char text[16384], program[] = "/tmp/carbide-fx-XXXXXX";
    snprintf(text, sizeof text, "%s%s", code, main_text);
    cb_free_text(code);
    int handle = mkstemp(program);
    assert_true(handle >= 0);
    close(handle);
    assert_true(compile_text(text, program));
    char got[8192] = "", expected[8192] = "";
    FILE *pipe = popen(program, "r");
    assert_non_null(pipe);
    got[fread(got, 1, sizeof got - 1, pipe)] = 0;
    assert_int_equal(pclose(pipe), 0);
    unlink(program);
    cb_tensor *in[] = {awkward_input(0), awkward_input(1)}, *out[3];
    assert_int_equal(cb_graph_run(graph, in, 2, out, 3), 3);
    cb_tensor *shown[] = {out[0], out[1], out[2], in[1]};
    for (int i = 0; i < 4; i++) {
        char one[2048];
        cb_format(shown[i], one, sizeof one);
        strcat(strcat(expected, one), "\n");
    }
    assert_string_equal(got, expected);
    cb_graph_free(graph);
}

static void code_refuses_what_c_cannot_say(void **state) {
    (void)state;
    cb_tensor *large = cb_zeros(cb_dims(5000));
    cb_graph *graph = cb_symbolic_trace_function(with_outside, large, 2, NULL);
    assert_null(cb_graph_code(graph, "f"));
    expect_error(
        "node %_tensor_constant0 (get_attr _tensor_constant0): a constant of 5000 elements");
    cb_graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ONE(design_page_to_the_letter),
        ONE(long_program_prints_as_torch_does),
        ONE(names_avoid_python),
        ONE(name_forms),
        ONE(readable_with_examples),
        ONE(shapes_propagate),
        ONE(value_requests_fail),
        ONE(constants_and_assignments),
        ONE(leaves_are_settable),
        ONE(inputs_are_named),
        ONE(tracing_leaves_nothing),
        ONE(running_equals_the_module),
        ONE(graphs_compile),
        ONE(python_spellings_run),
        ONE(modes_are_texts),
        ONE(failed_runs_name_the_node),
        ONE(every_op_comes_back),
        ONE(code_of_the_design_page),
        ONE(generated_code_compiles_and_agrees),
        ONE(code_refuses_what_c_cannot_say),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
