/* FX: walking, editing, linting, pattern rewrite, dead code, text in. */
#include "fx_support.h"

static const char *const chain_text =
    "graph():\n"
    "    %x : [num_users=2] = placeholder[target=x]\n"
    "    %exp : [num_users=1] = call_method[target=exp](args = (%x,), kwargs = {})\n"
    "    %add : [num_users=1] = call_function[target=operator.add](args = (%exp, %x), kwargs = "
    "{})\n"
    "    %relu : [num_users=1] = call_method[target=relu](args = (%add,), kwargs = {})\n"
    "    return relu";

/* ---- walking and editing -------------------------------------------------------------------- */

static void graphs_can_be_walked(void **state) {
    (void)state;
    cb_graph *graph = parse(chain_text);
    const char *const names[] = {"x", "exp", "add", "relu", "output"};
    int count = 0;
    for (cb_node *node = cb_graph_first(graph); node; node = cb_node_next(node))
        assert_string_equal(cb_node_name(node), names[count++]);
    assert_int_equal(count, 5);
    assert_int_equal(cb_graph_node_count(graph), 5);
    cb_node *add = cb_graph_find(graph, "add"), *x = cb_graph_find(graph, "x");
    assert_int_equal(cb_node_opcode(add), CB_CALL_FUNCTION);
    assert_string_equal(cb_opcode_name(cb_node_opcode(add)), "call_function");
    assert_string_equal(cb_node_target(add), "operator.add");
    assert_int_equal(cb_node_arg_count(add), 2);
    assert_ptr_equal(cb_node_arg(add, 1).node, x);
    assert_int_equal(cb_node_arg(add, 2).kind, CB_ARG_NONE);
    assert_int_equal(cb_node_kwarg_count(add), 0);
    assert_int_equal(cb_node_input_count(add), 2);
    assert_int_equal(cb_node_user_count(x), 2);
    assert_ptr_equal(cb_node_user(x, 1), add);
    assert_ptr_equal(cb_node_previous(add), cb_graph_find(graph, "exp"));
    assert_null(cb_graph_find(graph, "y"));
    assert_null(cb_node_user(x, 2));
    assert_int_equal(cb_node_opcode(cb_graph_last(graph)), CB_OUTPUT);
    cb_graph_free(graph);
}

static void nodes_are_inserted_and_replaced(void **state) {
    (void)state;
    cb_graph *graph = parse(chain_text);
    cb_node *x = cb_graph_find(graph, "x"), *add = cb_graph_find(graph, "add");
    cb_arg args[] = {cb_arg_node(add), cb_arg_float(0.5)};
    cb_node *mul = cb_graph_insert_after(graph, add, CB_CALL_FUNCTION, "operator.mul", args, 2);
    assert_int_equal(cb_node_replace_all_uses(add, mul), 1); /* relu, and not mul itself */
    args[0] = cb_arg_node(x);
    cb_node *neg = cb_graph_insert_before(graph, add, CB_CALL_METHOD, "neg", args, 1);
    assert_int_equal(cb_node_set_arg(add, 1, cb_arg_node(neg)), CB_OK);
    cb_node *sum = cb_graph_call_method(graph, "sum", (cb_arg[]){cb_arg_node(mul)}, 1);
    cb_arg dims[] = {cb_arg_int(0), cb_arg_int(1)};
    assert_int_equal(cb_node_set_kwarg(sum, "dim", cb_arg_tuple(dims, 2)), CB_OK);
    assert_int_equal(cb_node_set_kwarg(sum, "keepdim", cb_arg_bool(false)), CB_OK);
    assert_int_equal(cb_node_set_kwarg(sum, "keepdim", cb_arg_bool(true)), CB_OK);
    assert_int_equal(cb_node_set_target(cb_graph_find(graph, "relu"), "sigmoid"), CB_OK);
    cb_arg results[] = {cb_arg_node(cb_graph_find(graph, "relu")), cb_arg_node(sum)};
    cb_graph_output(graph, cb_arg_tuple(results, 2));
    expect_text(
        cb_graph_text(graph),
        "graph():\n"
        "    %x : [num_users=2] = placeholder[target=x]\n"
        "    %exp : [num_users=1] = call_method[target=exp](args = (%x,), kwargs = {})\n"
        "    %neg : [num_users=1] = call_method[target=neg](args = (%x,), kwargs = {})\n"
        "    %add : [num_users=1] = call_function[target=operator.add](args = (%exp, %neg), kwargs "
        "= {})\n"
        "    %mul : [num_users=2] = call_function[target=operator.mul](args = (%add, 0.5), kwargs "
        "= "
        "{})\n"
        "    %relu : [num_users=1] = call_method[target=sigmoid](args = (%mul,), kwargs = {})\n"
        "    %sum_1 : [num_users=1] = call_method[target=sum](args = (%mul,), kwargs = {dim: (0, "
        "1), keepdim: True})\n"
        "    return (relu, sum_1)");
    assert_int_equal(cb_graph_lint(graph), CB_OK);
    cb_tensor *in = cb_randn(cb_dims(2, 3)), *out[2];
    assert_int_equal(cb_graph_run(graph, &in, 1, out, 2), 2);
    cb_tensor *half = cb_mul(cb_sub(cb_exp(in), in), 0.5);
    expect_close(out[0], cb_sigmoid(half));
    expect_close(out[1], cb_sum(half, cb_dims(0, 1), true));
    cb_graph_free(graph);
}

static void graphs_are_built_by_hand(void **state) {
    (void)state;
    cb_module *net = cb_nn_sequential(cb_nn_linear(4, 2, true));
    cb_graph *graph = cb_graph_new(net);
    cb_node *x = cb_graph_placeholder(graph, "x");
    cb_node *linear = cb_graph_call_module(graph, "0", (cb_arg[]){cb_arg_node(x)}, 1);
    cb_node *scale = cb_graph_placeholder(graph, "scale"); /* goes before linear */
    cb_arg args[] = {cb_arg_node(linear), cb_arg_node(scale)};
    cb_node *mul = cb_graph_call_function(graph, "operator.mul", args, 2);
    cb_arg bias[] = {cb_arg_node(mul), cb_arg_node(cb_graph_get_attr(graph, "0.bias"))};
    cb_graph_output(graph, cb_arg_node(cb_graph_call_function(graph, "torch.sub", bias, 2)));
    assert_ptr_equal(cb_node_next(x), scale);
    assert_int_equal(cb_graph_lint(graph), CB_OK);
    cb_tensor *in[] = {cb_randn(cb_dims(3, 4)), cb_randn(cb_dims(2))}, *out;
    assert_int_equal(cb_graph_run(graph, in, 2, &out, 1), 1);
    expect_close(out, cb_sub(cb_mul(cb_forward(net, in[0]), in[1]), cb_module_get(net, "0.bias")));
    cb_graph_free(graph);
    cb_module_free(net);
}

static void erasing_and_dead_code(void **state) {
    (void)state;
    cb_graph *graph = parse(chain_text);
    cb_node *exp = cb_graph_find(graph, "exp"), *add = cb_graph_find(graph, "add");
    assert_int_equal(cb_graph_erase(graph, exp), CB_ERR_GRAPH);
    expect_error("node %exp (call_method exp): it still has 1 users, the first is %add");
    cb_node_set_arg(add, 0, cb_arg_int(1));
    assert_int_equal(cb_graph_erase(graph, exp), CB_OK);
    assert_null(cb_graph_find(graph, "exp"));
    assert_int_equal(cb_graph_erase(graph, exp), CB_ERR_GRAPH);
    expect_error("node %exp is not in this graph");
    assert_int_equal(cb_node_set_arg(exp, 0, cb_arg_int(1)), CB_ERR_GRAPH);
    expect_error("node %exp is in no graph");
    cb_graph_output(graph, cb_arg_node(cb_graph_find(graph, "x")));
    cb_node *rand = cb_graph_call_function(graph, "torch.rand", (cb_arg[]){cb_arg_int(3)}, 1);
    assert_int_equal(cb_graph_dead_code(graph), 2); /* relu, then add; a draw stays */
    assert_int_equal(cb_node_user_count(rand), 0);
    assert_int_equal(cb_graph_node_count(graph), 3);
    assert_int_equal(cb_graph_lint(graph), CB_OK);
    cb_graph_free(graph);
}

static void foreign_nodes_are_refused(void **state) {
    (void)state;
    cb_graph *graph = parse(chain_text), *other = parse(chain_text);
    cb_node *x = cb_graph_find(graph, "x"), *foreign = cb_graph_find(other, "exp");
    assert_int_equal(cb_node_set_arg(x, 0, cb_arg_node(foreign)), CB_ERR_GRAPH);
    expect_error("argument 0 (%exp) is no node of this graph");
    cb_arg list[] = {cb_arg_node(x), cb_arg_node(foreign)}, args[] = {cb_arg_list(list, 2)};
    assert_null(cb_graph_call_function(graph, "torch.cat", args, 1));
    expect_error("no node of this graph");
    assert_true(cb_node_replace_all_uses(x, foreign) < 0);
    expect_error("node %exp is not in this graph");
    assert_null(cb_graph_insert_before(graph, foreign, CB_CALL_METHOD, "exp", NULL, 0));
    expect_error("not in this graph");
    assert_null(cb_graph_insert_before(graph, x, 9, "exp", NULL, 0));
    expect_error("unknown opcode 9");
    assert_null(cb_graph_insert_before(graph, x, CB_OUTPUT, "output", NULL, 0));
    expect_error("an output node already");
    assert_int_equal(cb_node_set_arg(x, 2, cb_arg_int(0)), CB_ERR_INDEX);
    expect_error("there is no argument 2");
    cb_graph_free(other);
    expect_text(cb_graph_text(graph), chain_text);
    cb_graph_free(graph);
}

/* ---- lint ----------------------------------------------------------------------------------- */

static void lint_names_the_node(void **state) {
    (void)state;
    cb_module *block = block_new();
    cb_graph *graph = cb_symbolic_trace(block);
    cb_node *linear = cb_graph_find(graph, "linear"), *add = cb_graph_find(graph, "add");
    cb_node_set_arg(linear, 0, cb_arg_node(add));
    assert_int_equal(cb_graph_lint(graph), CB_ERR_GRAPH);
    expect_error("node %linear (call_module linear): uses %add before its definition");
    cb_node_set_arg(linear, 0, cb_arg_node(cb_graph_find(graph, "x")));
    assert_int_equal(cb_graph_lint(graph), CB_OK);
    cb_node_set_target(linear, "conv");
    assert_int_equal(cb_graph_lint(graph), CB_ERR_GRAPH);
    expect_error("node %linear (call_module conv): its target names no attribute of the module");
    cb_node_set_target(linear, "linear");
    cb_node_set_target(add, "operator.plus");
    assert_int_equal(cb_graph_lint(graph), CB_ERR_GRAPH);
    expect_error("node %add (call_function operator.plus): its target names no op");
    cb_node_set_target(add, "operator.add");
    const char *name = add->name;
    add->name = "x";
    assert_int_equal(cb_graph_lint(graph), CB_ERR_GRAPH);
    expect_error("node %x (call_function operator.add): its name is defined twice");
    add->name = name;
    add->opcode = 17;
    assert_int_equal(cb_graph_lint(graph), CB_ERR_GRAPH);
    expect_error("unknown opcode 17");
    add->opcode = CB_CALL_FUNCTION;
    cb_graph *other = parse(chain_text);
    add->args[1].node = cb_graph_find(other, "exp");
    assert_int_equal(cb_graph_lint(graph), CB_ERR_GRAPH);
    expect_error("node %add (call_function operator.add): uses %exp, a node of another graph");
    add->args[1].node = linear;
    fx_refresh(add);
    cb_node *relu = cb_graph_find(graph, "relu");
    relu->graph = other;
    assert_int_equal(cb_graph_lint(graph), CB_ERR_GRAPH);
    expect_error("node %relu (call_method relu): belongs to another graph");
    relu->graph = graph;
    cb_node *output = cb_graph_last(graph);
    cb_arg args[] = {cb_arg_node(add)};
    assert_non_null(cb_graph_insert_after(graph, output, CB_CALL_METHOD, "neg", args, 1));
    assert_int_equal(cb_graph_lint(graph), CB_ERR_GRAPH);
    expect_error("node %output (output output): nodes follow the output");
    assert_int_equal(cb_graph_lint(NULL), CB_ERR_ARGUMENT);
    expect_error("cb_graph_lint: NULL");
    cb_graph_free(other);
    cb_graph_free(graph);
    cb_module_free(block);
}

/* ---- patterns ------------------------------------------------------------------------------- */

static int add_relu(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    (void)user;
    out[0] = cb_relu(cb_add(in[0], in[1]));
    return 1;
}

static int max_zero(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    (void)user;
    out[0] = cb_maximum(cb_add(in[1], in[0]), 0);
    return 1;
}

static int two_blocks(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    (void)user;
    cb_tensor *a = cb_relu(cb_add(in[0], 2.0));
    out[0] = cb_relu(cb_add(a, cb_exp(a)));
    return 1;
}

static cb_graph *trace(cb_function_n *function, int count) {
    cb_graph *graph = cb_symbolic_trace_function(function, NULL, count, NULL);
    assert_non_null(graph);
    return graph;
}

static void patterns_are_replaced(void **state) {
    (void)state;
    cb_graph *graph = trace(two_blocks, 1), *pattern = trace(add_relu, 2),
             *replacement = trace(max_zero, 2);
    cb_tensor *x = cb_randn(cb_dims(8)), *before, *after;
    assert_int_equal(cb_graph_run(graph, &x, 1, &before, 1), 1);
    assert_int_equal(cb_graph_replace_pattern(graph, pattern, replacement), 2);
    expect_text(
        cb_graph_text(graph),
        "graph():\n"
        "    %x : [num_users=1] = placeholder[target=x]\n"
        "    %add_2 : [num_users=1] = call_function[target=operator.add](args = (2.0, %x), kwargs "
        "= "
        "{})\n"
        "    %maximum : [num_users=2] = call_function[target=torch.maximum](args = (%add_2, 0), "
        "kwargs = {})\n"
        "    %exp : [num_users=1] = call_method[target=exp](args = (%maximum,), kwargs = {})\n"
        "    %add_3 : [num_users=1] = call_function[target=operator.add](args = (%exp, %maximum), "
        "kwargs = {})\n"
        "    %maximum_1 : [num_users=1] = call_function[target=torch.maximum](args = (%add_3, 0), "
        "kwargs = {})\n"
        "    return maximum_1");
    assert_int_equal(cb_graph_lint(graph), CB_OK);
    assert_int_equal(cb_graph_run(graph, &x, 1, &after, 1), 1);
    expect_close(after, before);
    assert_int_equal(cb_graph_replace_pattern(graph, pattern, replacement), 0);
    cb_graph_free(replacement);
    cb_graph_free(pattern);
    cb_graph_free(graph);
}

static int shared_inside(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    (void)user;
    cb_tensor *sum = cb_add(in[0], in[1]);
    out[0] = cb_relu(sum);
    out[1] = cb_exp(sum);
    return 2;
}

static int add_same(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    (void)user;
    out[0] = cb_add(in[0], in[0]);
    return 1;
}

static int twice(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    (void)user;
    out[0] = cb_mul(in[0], 2);
    return 1;
}

static int forget(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    (void)user;
    out[0] = in[0];
    return 1;
}

static void patterns_know_their_limits(void **state) {
    (void)state;
    cb_graph *pattern = trace(add_relu, 2), *replacement = trace(max_zero, 2);
    cb_graph *graph = trace(shared_inside, 2); /* exp needs the sum, too */
    assert_int_equal(cb_graph_replace_pattern(graph, pattern, replacement), 0);
    cb_graph *same = trace(add_same, 1), *doubled = trace(twice, 1); /* x + y is not x + x */
    assert_int_equal(cb_graph_replace_pattern(graph, same, doubled), 0);
    cb_graph *identity = trace(forget, 1);
    assert_true(cb_graph_replace_pattern(graph, identity, doubled) < 0);
    expect_error("the pattern must return one computed value");
    assert_true(cb_graph_replace_pattern(graph, same, replacement) < 0);
    expect_error("takes 2 inputs, more than the pattern");
    assert_true(cb_graph_replace_pattern(graph, graph, same) < 0);
    expect_error("the graph itself");
    cb_graph *blocks = trace(two_blocks, 1); /* relu(add(x, 2)) -> x, and the other likewise */
    assert_int_equal(cb_graph_replace_pattern(blocks, pattern, identity), 2);
    assert_int_equal(cb_graph_dead_code(blocks), 1);
    expect_text(cb_graph_text(blocks), "graph():\n"
                                       "    %x : [num_users=1] = placeholder[target=x]\n"
                                       "    return x");
    cb_graph *all[] = {pattern, replacement, graph, same, doubled, identity, blocks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) cb_graph_free(all[i]);
}

/* However a call is written, it is the same op. */
static void patterns_see_through_spelling(void **state) {
    (void)state;
    cb_graph *graph =
        parse("graph():\n"
              "    %x : [num_users=1] = placeholder[target=x]\n"
              "    %a : [num_users=1] = call_function[target=torch.softmax](args = (%x,), kwargs = "
              "{dim: 1})\n"
              "    %b : [num_users=1] = call_method[target=softmax](args = (%a, 0), kwargs = {})\n"
              "    return b");
    cb_graph *pattern =
        parse("graph():\n"
              "    %y : [num_users=1] = placeholder[target=y]\n"
              "    %s : [num_users=1] = call_method[target=softmax](args = (%y, 1), kwargs = {})\n"
              "    return s");
    cb_graph *replacement = trace(twice, 1);
    assert_int_equal(cb_graph_replace_pattern(graph, pattern, replacement), 1);
    assert_null(cb_graph_find(graph, "a"));
    assert_non_null(cb_graph_find(graph, "b"));
    cb_graph_free(replacement);
    cb_graph_free(pattern);
    cb_graph_free(graph);
}

/* ---- text in -------------------------------------------------------------------------------- */

static void every_value_comes_back(void **state) {
    (void)state;
    const char *text = "graph():\n"
                       "    %x : torch.Tensor [num_users=1] = placeholder[target=x]\n"
                       "    %y : [num_users=1] = placeholder[target=y](default=-1.5)\n"
                       "    %f : [num_users=1] = call_function[target=torch.f](args = (%x, 3, -4, "
                       "2.5e-07, inf, -inf, "
                       "nan, True, None, torch.bfloat16, some text, Ellipsis, [], (), (1,), [%x, "
                       "[%y]], (slice(None, 2, "
                       "None), None)), kwargs = {approximate: tanh, nested: {a: 1, b: [%y]}})\n"
                       "    %w : [num_users=0] = get_attr[target=layers.0.weight]\n"
                       "    return (f, {'a': f, 'text': 'it is'}, [None, 1.0])";
    cb_graph *graph = parse(text);
    expect_text(cb_graph_text(graph), text);
    cb_node *f = cb_graph_find(graph, "f");
    assert_int_equal(cb_node_arg_count(f), 17);
    assert_int_equal(cb_node_arg(f, 9).i, CB_BF16);
    assert_int_equal(cb_node_arg(f, 1).kind, CB_ARG_INT);
    assert_true(isinf(cb_node_arg(f, 5).f) && cb_node_arg(f, 5).f < 0);
    assert_int_equal(cb_node_kwarg(f, "nested").kind, CB_ARG_DICT);
    cb_graph *copy = cb_graph_copy(graph);
    expect_text(cb_graph_text(copy), text);
    cb_graph_free(copy);
    cb_graph_free(graph);
}

/* Spaces, ends of lines, quotes and numbers that are not what cb_graph_text writes. */
static void other_spellings_are_read(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"\n \t\r\ngraph():\r\n\t%x : [num_users=1] = placeholder[target=x]\r\n\r\n  return x\r\n",
         "x"},
        {"graph():\n return ( 1 ,2,3 , )", "(1, 2, 3)"},
        {"graph():\n return [.5, 1E5, -2e-3, 1., -inf, nan, -0]",
         "[0.5, 100000.0, -0.002, 1.0, -inf, nan, 0]"},
        {"graph():\n return {a: 1, \"b\": 2, 'it\\'s': None}", "{'a': 1, 'b': 2, \"it's\": None}"},
        {"graph():\n return ('a\\nb', \"it's\", 'q\"\\\\')", "('a\\nb', \"it's\", 'q\"\\\\')"},
        {"graph():\n return {}", "{}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cb_graph *graph = parse(cases[i][0]);
        char *text = cb_graph_text(graph);
        assert_string_equal(strstr(text, "return ") + 7, cases[i][1]);
        cb_graph *back = parse(text);
        expect_text(cb_graph_text(back), text);
        cb_free_text(text);
        cb_graph_free(graph), cb_graph_free(back);
    }
    cb_graph *graph =
        parse("graph():\n    %x : [num_users=0] = call_method[target=f](args = (1.2.3, "
              "infinite, inf2, -x, a b , +1), kwargs = {a  b: c})");
    const char *const words[] = {"1.2.3", "infinite", "inf2", "-x", "a b", "+1"};
    for (int i = 0; i < 6; i++) {
        cb_arg arg = cb_node_arg(cb_graph_first(graph), i);
        assert_int_equal(arg.kind, CB_ARG_STRING);
        assert_string_equal(arg.text, words[i]);
    }
    assert_int_equal(cb_node_kwarg(cb_graph_first(graph), "a  b").kind, CB_ARG_STRING);
    cb_graph_free(graph);
}

static void broken_text_is_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"", "line 1: expected 'graph():'"},
        {"\n \n", "line 3: expected 'graph():'"},
        {"graph():\n    return (1, , 2)", "a value is missing: ', 2)'"},
        {"graph():\n    return", "expected a node or return: 'return'"},
        {"graph():\n    return {'a", "a quoted text does not end"},
        {"graph():\n    return 'a\\", "a quoted text does not end"},
        {"graph():\n    return 'a\\\n'", "a quoted text does not end"},
        {"graph():\n    %x : [num_users=1] = placeholder[target=x](default=1", "expected ')'"},
        {"graph():\n    % : [num_users=1] = placeholder[target=x]", "defined twice or empty"},
        {"graph():\n    %x : \n[num_users=1] = placeholder[target=x]", "expected [num_users=N]"},
        {"graph():\n    %x : [num_users=1] = placeholder", "unknown opcode: 'placeholder'"},
        {"graph():\n    %x : [num_users=1 = placeholder[target=x]", "expected '] = '"},
        {"graph():\n    %e : [num_users=0] = call_method[target=exp](args = (1,), kwargs = {",
         "expected ': '"},
        {"graph():\n    %e : [num_users=0] = call_method[target=exp](args = (1,)",
         "expected ', kw"},
        {"graph()\n", "expected 'graph():'"},
        {"graph():\n    nonsense", "line 2: expected a node or return: 'nonsense'"},
        {"graph():\n    %x : placeholder[target=x]", "line 2: expected [num_users=N]"},
        {"graph():\n    %x : [num_users=1] = input[target=x]", "line 2: unknown opcode: 'input'"},
        {"graph():\n    %x : [num_users=1] = placeholder[target=]", "the target is empty"},
        {"graph():\n    %x : [num_users=1] = placeholder[target=x", "expected ']'"},
        {"graph():\n    %x : [num_users=1] = placeholder[target=x] y", "the line goes on"},
        {"graph():\n    %x : [num_users=0] = placeholder[target=x]\n    %x : [num_users=0] = "
         "placeholder[target=x]",
         "line 3: this name is defined twice or empty: 'x'"},
        {"graph():\n    return y", "this node is not defined: 'y'"},
        {"graph():\n    return None\n    return None", "line 3: nodes follow the return"},
        {"graph():\n    %e : [num_users=0] = call_method[target=exp](args = (%x,), kwargs = {})",
         "not defined before it is used: 'x'"},
        {"graph():\n    %e : [num_users=0] = call_method[target=exp](args = (1", "expected ','"},
        {"graph():\n    %e : [num_users=0] = call_method[target=exp](args = (slice(1),), kwargs = "
         "{})",
         "a slice has three parts"},
        {"graph():\n    %e : [num_users=0] = call_method[target=exp](args = ('a), kwargs = {})",
         "a quoted text does not end"},
        {"graph():\n    %e : [num_users=0] = call_method[target=exp](args = (1,), kwargs = {a 1})",
         "expected ': '"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_null(cb_graph_parse(cases[i][0], NULL));
        expect_error(cases[i][1]);
    }
    assert_null(cb_graph_parse(NULL, NULL));
    expect_error("the text is NULL");
    char deep[400] = "graph():\n    return ";
    memset(deep + strlen(deep), '(', 300);
    assert_null(cb_graph_parse(deep, NULL));
    expect_error("nested too deeply");
}

/* Every prefix of a text, and every text with one changed character, is refused or read. */
static void damaged_text_does_no_harm(void **state) {
    (void)state;
    size_t size = strlen(chain_text);
    char *text = malloc(size + 1);
    for (size_t i = 0; i <= size; i++) {
        memcpy(text, chain_text, size + 1);
        text[i] = 0;
        cb_graph_free(cb_graph_parse(text, NULL));
        memcpy(text, chain_text, size + 1);
        if (i < size) text[i] = "%([{'\n"[i % 6];
        cb_graph_free(cb_graph_parse(text, NULL));
        cb_clear_error();
    }
    free(text);
}

/* ---- allocations that fail ------------------------------------------------------------------ */

static void every_allocation_may_fail(void **state) {
    (void)state;
    cb_module *block = block_new();
    int64_t before = cb_memory().live_tensors;
    bool done = false;
    for (int limit = 0; limit < 400 && !done; limit++) {
        cb_scope_open(); /* where the tensors of a scope that could not be opened go */
        allocations_left = limit;
        cb_graph *graph = cb_symbolic_trace(block), *copy = cb_graph_copy(graph);
        char *text = cb_graph_text(copy), *code = cb_graph_code(copy, "f");
        cb_graph *back = text ? cb_graph_parse(text, block) : NULL;
        done = code && back && cb_graph_lint(back) == CB_OK;
        if (!done) assert_int_equal(cb_error_status(), CB_ERR_MEMORY);
        allocations_left = -1;
        cb_free_text(text);
        cb_free_text(code);
        cb_graph_free(back);
        cb_graph_free(copy);
        cb_graph_free(graph);
        cb_clear_error();
        cb_scope_close();
    }
    assert_true(done);
    assert_int_equal(cb_memory().live_tensors, before);
    cb_module_free(block);
}

/* Ten thousand nodes: names, users and rewriting stay near linear. */
static void large_graphs(void **state) {
    (void)state;
    cb_graph *graph = cb_graph_new(NULL);
    cb_node *node = cb_graph_placeholder(graph, "x"), *x = node;
    for (int i = 0; i < 5000; i++) {
        cb_arg args[] = {cb_arg_node(node), cb_arg_node(x)};
        node = cb_graph_call_function(graph, "operator.add", args, 2);
        args[0] = cb_arg_node(node);
        node = cb_graph_call_method(graph, "relu", args, 1);
    }
    cb_graph_output(graph, cb_arg_node(node));
    assert_int_equal(cb_graph_lint(graph), CB_OK);
    assert_int_equal(cb_node_user_count(x), 5000);
    char *text = cb_graph_text(graph);
    assert_true(strlen(text) > 500000);
    cb_free_text(text);
    assert_int_equal(cb_graph_dead_code(graph), 0);
    cb_graph_free(graph);
}

int main(void) {
    cb_set_allocator((cb_allocator){failing_resize, NULL});
    const struct CMUnitTest tests[] = {
        ONE(graphs_can_be_walked),
        ONE(nodes_are_inserted_and_replaced),
        ONE(graphs_are_built_by_hand),
        ONE(erasing_and_dead_code),
        ONE(foreign_nodes_are_refused),
        ONE(lint_names_the_node),
        ONE(patterns_are_replaced),
        ONE(patterns_know_their_limits),
        ONE(patterns_see_through_spelling),
        ONE(every_value_comes_back),
        ONE(other_spellings_are_read),
        ONE(broken_text_is_refused),
        ONE(damaged_text_does_no_harm),
        ONE(every_allocation_may_fail),
        ONE(large_graphs),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
