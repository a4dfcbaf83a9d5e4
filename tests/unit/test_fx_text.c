/* FX: the printed forms, shapes. */
#include "fx_support.h"

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
                                           {"__add__", "add_7"},
                                           {"____", "____"},
                                           {"__x", "__x"},
                                           {"__x_y", "__x_y"},
                                           {"end--", "end_"},
                                           {"a-.b", "a_b_1"},
                                           {"a-_b", "a__b"},
                                           {"a_1234567890", "a_1234567890"},
                                           {"aBc", "a_bc"},
                                           {"ABC", "abc"},
                                           {"1", "_1"},
                                           {"", "_unnamed"}};
    FxGraph *graph = fx_graph_new(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *hint = fx_name_hint(graph, CB_CALL_MODULE, cases[i][0]);
        assert_string_equal(fx_unique_name(graph, hint), cases[i][1]);
    }
    cb_graph_free(graph);
}

/* What the other tests' graphs do not have: every way to write a call in Python. */
static void readable_forms(void **state) {
    (void)state;
    cb_graph *graph = parse(
        "graph():\n"
        "    %x : torch.Tensor [num_users=1] = placeholder[target=x]\n"
        "    %k : [num_users=1] = placeholder[target=k](default=it's)\n"
        "    %w : [num_users=1] = get_attr[target=layers.0.weight]\n"
        "    %a : [num_users=1] = call_function[target=operator.neg](args = (%x,), kwargs = {})\n"
        "    %b : float [num_users=1] = call_function[target=operator.neg](args = (%x, 1), kwargs "
        "= {})\n"
        "    %c : [num_users=1] = call_function[target=operator.add](args = (%x, 1), kwargs = "
        "{alpha: 2})\n"
        "    %d : [num_users=1] = call_function[target=operator.concat](args = (%x, 1), kwargs = "
        "{})\n"
        "    %e : [num_users=1] = call_method[target=exp](args = (), kwargs = {})\n"
        "    %f : [num_users=1] = call_function[target=local](args = (%x,), kwargs = {to: some})\n"
        "    %g : [num_users=1] = call_module[target=net](args = (%x,), kwargs = {a: 1, b: 2})\n"
        "    return [a, \"it's\", 'say \"it\\'s\"', 'a\\nb\\\\']");
    expect_text(cb_graph_readable(graph, 0),
                "class GraphModule(torch.nn.Module):\n"
                "    def forward(self, x : torch.Tensor, k = \"it's\"):\n"
                "        w = getattr(self.layers, \"0\").weight;  w = None\n"
                "        a = -x\n"
                "        b : float = operator.neg(x, 1);  b = None\n"
                "        c = operator.add(x, 1, alpha = 2);  c = None\n"
                "        d = operator.concat(x, 1);  d = None\n"
                "        e = exp();  e = None\n"
                "        f = local(x, to = 'some');  f = None\n"
                "        g = self.net(x, a = 1, b = 2);  x = g = None\n"
                "        return [a, \"it's\", 'say \"it\\'s\"', 'a\\nb\\\\']\n");
    cb_graph *copy = cb_graph_copy(graph);
    char *text = cb_graph_text(graph);
    cb_graph *back = parse(text);
    expect_text(cb_graph_text(back), text);
    cb_free_text(text);
    char *table = cb_graph_tabular(graph);
    assert_non_null(strstr(table, "  local  "));
    assert_non_null(strstr(table, "  {'to': 'some'}\n"));
    cb_free_text(table);
    text = cb_graph_readable(copy, CB_READABLE_SITES); /* a text has no lines of C */
    assert_null(strstr(text, "File:"));
    cb_free_text(text);
    cb_graph_free(graph), cb_graph_free(copy), cb_graph_free(back);
}

static void tables_name_functions_as_python(void **state) {
    (void)state;
    cb_graph *graph =
        parse("graph():\n"
              "    %x : [num_users=1] = placeholder[target=x]\n"
              "    %a : [num_users=1] = call_function[target=torch.nn.functional.gelu](args = "
              "(%x,), kwargs = {})\n"
              "    %b : [num_users=1] = call_function[target=torch.exp](args = (%a,), kwargs = "
              "{})\n"
              "    return b");
    expect_text(cb_graph_tabular(graph),
                "opcode         name    target                 args    kwargs\n"
                "-------------  ------  ---------------------  ------  --------\n"
                "placeholder    x       x                      ()      {}\n"
                "call_function  a       <function gelu>        (x,)    {}\n"
                "call_function  b       <built-in method exp>  (a,)    {}\n"
                "output         output  output                 (b,)    {}\n");
    cb_graph_free(graph);
}

/* An argument may hold a dtype that is none, and a text that is NULL: they print as nothing. */
static void arguments_without_a_value(void **state) {
    (void)state;
    cb_graph *graph = cb_graph_new(NULL);
    cb_arg args[] = {cb_arg_dtype(99), cb_arg_dtype(-1), cb_arg_string(NULL)};
    cb_graph_call_function(graph, "torch.f", args, 3);
    expect_text(cb_graph_text(graph), "graph():\n    %f : [num_users=0] = call_function[target="
                                      "torch.f](args = (None, None, ), kwargs = {})");
    assert_string_equal(cb_opcode_name(-1), "unknown");
    assert_string_equal(cb_opcode_name(CB_OPCODE_COUNT), "unknown");
    cb_graph_free(graph);
}

static void dot_escapes_what_labels_mean(void **state) {
    (void)state;
    cb_graph *graph = parse("graph():\n    %x : [num_users=1] = placeholder[target=a|b{}<>\"\\]\n"
                            "    return x");
    cb_tensor *x = cb_ones(cb_dims(2));
    assert_int_equal(cb_graph_propagate_shapes(graph, &x, 1), CB_OK);
    expect_text(cb_graph_dot(graph),
                "digraph \"graph\" {\n    rankdir=TB;\n    node [shape=record, "
                "style=\"filled,rounded\"];\n"
                "    \"x\" [fillcolor=aliceblue, label=\"{name=%x|op_code=placeholder|target="
                "a\\|b\\{\\}\\<\\>\\\"\\\\|f32[2]|num_users=1}\"];\n"
                "    \"output\" [fillcolor=lightgrey, label=\"{name=%output|op_code=output|target="
                "output|num_users=0}\"];\n"
                "    \"x\" -> \"output\";\n}\n");
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
    const char *first = strstr(text, "# File:"); /* add and relu stand on linear's line */
    assert_null(strstr(first + 1, "# File:"));
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

int main(void) {
    const struct CMUnitTest tests[] = {
        ONE(design_page_to_the_letter),
        ONE(long_program_prints_as_torch_does),
        ONE(names_avoid_python),
        ONE(name_forms),
        ONE(readable_with_examples),
        ONE(shapes_propagate),
        ONE(readable_forms),
        ONE(tables_name_functions_as_python),
        ONE(arguments_without_a_value),
        ONE(dot_escapes_what_labels_mean),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
