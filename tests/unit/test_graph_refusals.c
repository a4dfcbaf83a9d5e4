/* Texts of graphs that make no sense, each refused by its place and what was expected there, and
 * the forms that print and parse back but stand in no golden. */
#include "graph_support.h"

static const struct {
    const char *text, *error;
} refused[] = {
    {"graph", "expected '('"},
    {"graph(", "expected the name of an input"},
    {"graph(x", "expected ':'"},
    {"graph(x: ", "expected a dtype"},
    {"graph(x: f32[", "expected a size"},
    {"graph(x: f32[2 3]) {\n}", "expected ','"},
    {"graph(x: f32[2] y: f32[2]) {\n}", "expected ','"},
    {"graph(x: f32[2], x: f32[2]) {\n return x\n}", "expected a new name"},
    {"graph(x: f32[2])", "expected '{'"},
    {"graph(x: f32[2]) {", "expected a statement"},
    {"graph(x: f32[2]) {\n 7\n}", "expected a statement"},
    {"graph(x: f32[2]) {\n y exp(x)\n return y\n}", "expected '='"},
    {"graph(x: f32[2]) {\n return x", "expected '}'"},
    {"graph(x: f32[2]) {\n return x, [1]\n}", "expected a tensor"},
    {"graph(x: f32[2]) {\n return f32\n}", "'f32' is not defined"},
    {"graph(x: f32[2]) {\n mutate x x\n return x\n}", "expected '='"},
    {"graph(x: f32[2]) {\n mutate 1 = x\n return x\n}", "expected the name of an input"},
    {"graph(x: f32[2]) {\n y = exp(x)\n mutate y = x\n return x\n}",
     "expected the name of an input"},
    {"graph(x: f32[2]) {\n mutate x = q\n return x\n}", "'q' is not defined"},
    {"graph(x: f32[2]) {\n mutate x = [1]\n return x\n}", "expected a tensor"},
    {"graph(x: f32[2]) {\n draws x\n return x\n}", "expected the number of draws"},
    {"graph(x: f32[2]) {\n r = rand_like(x)\n draws 0\n return r\n}",
     "expected the number of draws"},
    {"graph(x: f32[2]) {\n draws 3000000000\n return x\n}", "expected the number of draws"},
    {"graph(x: f32[2]) {\n return sum(x, [0.5])\n}", "expected an integer"},
    {"graph(x: f32[2]) {\n return sum(x, [q])\n}", "'q' is not defined"},
    {"graph(x: f32[2]) {\n return sum(x, [0,1,2,3,4,5,6,7,8])\n}", "more than 8 dimensions"},
    {"graph(x: f32[2]) {\n return sum(x, 0.5)\n}", "expected a list of integers for 'dim'"},
    {"graph(x: f32[2]) {\n return sum(x, dim=0, dim=0)\n}", "'dim' is given twice"},
    {"graph(x: f32[2]) {\n return sum(x, 0, dim=0)\n}", "'dim' is given twice"},
    {"graph(x: f32[2]) {\n return softmax(x, 0.5)\n}", "expected an integer for 'dim'"},
    {"graph(x: f32[2]) {\n return to(x, f31)\n}", "expected a dtype"},
    {"graph(x: f32[2]) {\n return to(x, 3)\n}", "expected a dtype for 'dtype'"},
    {"graph(x: f32[2]) {\n return layer_norm(x, [2], eps=x)\n}", "for 'eps'"},
    {"graph(x: f32[2]) {\n return exp([1])\n}", "expected a tensor for"},
    {"graph(x: f32[2]) {\n return input(x)\n}", "there is no op 'input'"},
    {"graph(x: f32[2]) {\n return rand([2], draw=x)\n}", "expected a draw number"},
    {"graph(x: f32[2]) {\n return rand([2], draw=-1)\n}", "expected a draw number"},
    {"graph(x: f32[2]) {\n return rand([2], draw=0.5)\n}", "expected a draw number"},
    {"graph(x: f32[2]) {\n return exp(x, draw=1)\n}", "exp has no parameter 'draw'"},
    {"graph(x: f32[1, 1, 4]) {\n return interpolate(x, scale_factor=[x])\n}", "expected a number"},
    {"graph(x: f32[1, 1, 4]) {\n return interpolate(x, scale_factor=[q])\n}", "'q' is not defined"},
    {"graph(x: f32[1, 1, 4]) {\n return interpolate(x, scale_factor=[1,1,1,1,1,1,1,1,1])\n}",
     "more than 8 numbers"},
    {"graph(x: f32[2]) {\n return count(x)\n}", "count takes a tensor and dims"},
    {"graph(x: f32[2]) {\n return x + count(x, f32)\n}", "'f32' is not defined"},
    {"graph(x: f32[2]) {\n return x + count(1, 0)\n}", "count takes a tensor and dims"},
    {"graph(x: f32[2]) {\n return x + count(x, 0.5)\n}", "count takes a tensor and dims"},
    {"graph(x: f32[2]) {\n return x + count(x, 1)\n}", "count: there is no dimension 1"},
    {"graph(x: f32[2]) {\n return x + count(q, 1)\n}", "'q' is not defined"},
    {"graph(x: f32[2]) {\n return choose(true, x)\n}", "choose takes a flag and two values"},
    {"graph(x: f32[2]) {\n return choose(x, x, x)\n}", "the flag must be true or false"},
    {"graph(x: f32[2]) {\n return choose(q, x, x)\n}", "'q' is not defined"},
    {"graph(x: f32[2]) {\n return constant(1)\n}", "constant takes a number and a dtype"},
    {"graph(x: f32[2]) {\n return constant(x, f32)\n}", "constant takes a number and a dtype"},
    {"graph(x: f32[2]) {\n return constant(1, 2)\n}", "constant takes a number and a dtype"},
    {"graph(x: f32[2]) {\n return constant(q, f32)\n}", "'q' is not defined"},
    {"graph(x: f32[2]) {\n return constant(1, q)\n}", "expected a dtype"},
    {"graph(x: f32[2]) {\n return bitwise_and(1, 0.5)\n}", "bitwise_and: expected integers"},
    {"graph(x: f32[2]) {\n return (x\n}", "expected"},
    {"graph(x: f32[2]) {\n return x +\n}", "expected an operand"},
    {"graph(x: f32[2]) {\n return exp(none)\n}", "expected a tensor for 'x'"},
    {"graph(x: f32[2]) {\n return rms_norm(x, [2], eps=x)\n}", "expected a number for 'eps'"},
    {"graph(x: f32[2]) {\n return rand([2], draw=q)\n}", "'q' is not defined"},
    {"graph(x: f32[2]) {\n return rand([2], draw=2147483647)\n}", "expected a draw number"},
    {"graph(x: f32[2]) {\n return rand([2], drew=1)\n}", "rand has no parameter 'drew'"},
    {"graph(x: f32[2]) {\n return x + left_shift(1, 0.5)\n}", "expected integers"},
    {"graph(x: f32[2]) {\n return count(x, -2)\n}", "count: there is no dimension -2"},
    {"graph(x: f32[2]) {\n return choose([1], x, x)\n}", "the flag must be true or false"},
    {"graph(x: f32[2]) {\n return interpolate(x, scale_factor=none)\n}", "expected a number"},
    {"graph(x: f32[2]) {\n y = 1\n mutate y = x\n return x\n}", "expected the name of an input"},
    {"graph(i: i64[2]) {\n check i < 5 for gather\n return i\n}", "expected 'below'"},
    {"graph(i: i64[2]) {\n check below 5 for gather\n return i\n}", "'below' is not defined"},
    {"graph(i: i64[2]) {\n check i below i for gather\n return i\n}", "expected a bound"},
    {"graph(i: i64[2]) {\n check i below -1 for gather\n return i\n}", "expected a bound"},
    {"graph(i: i64[2]) {\n check i below 5\n return i\n}", "expected 'for'"},
    {"graph(i: i64[2]) {\n check i below 5 for 5\n return i\n}", "expected an op with an index"},
    {"graph(i: i64[2]) {\n check i below 5 for add\n return i\n}",
     "line 2, column 22: expected an op with an index"},
    {"graph(i: i64[2]) {\n check i below 5 for garter\n return i\n}", "an op with an index"},
    {"graph(i: i32[2]) {\n check i below 5 for gather\n return i\n}", "an index is i64, not i32"},
    {"graph1(x: f32[2]) {\n return x\n}", "expected 'graph'"},
    {"graphs(x: f32[2]) {\n return x\n}", "expected 'graph'"},
    {"graph(x: f32[2]) {\n return sum(x, dim=)\n}", "expected an operand"},
    {"graph(x: f32[2]) {\n return sum(x, [1,\n}", "expected an operand"},
    {"graph(x: f32[2]) {\n return sum(x, [1 2])\n}", "expected ',' or ']'"},
    {"graph(x: f32[2]) {\n return -(\n}", "expected an operand"},
    {"graph(x: f32[2]) {\n return x == \n}", "expected an operand"},
    {"graph(x: f32[2]) {\n return x * 2e\n}", "found 'e'"},
    {"graph(x: f32[2]) {\n return x * 2e+\n}", "found 'e+'"},
    {"graph(x: f32[2]) {\n return x * 2Ex\n}", "found 'Ex'"},
    {"graph(x: f32[2]) {\n return x * "
     "10000000000000000000000000000000000000000000000000000000000000000000000\n}",
     "expected a shorter number"},
    {"graph(x: f32[2]) {\n return x # the end", "found the end"},
};

static void texts_are_refused_by_place(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        cb_clear_error();
        if (graph_parse(arena, refused[i].text)) fail_msg("taken: %s", refused[i].text);
        if (!cb_error() || !strstr(cb_error(), refused[i].error))
            fail_msg("'%s' lacks '%s': %s", cb_error() ? cb_error() : "", refused[i].error,
                     refused[i].text);
        cb_clear_error();
    }
}

/* What comes out, and that it reads back as the same graph. */
static void expect_printed(const char *text, const char *line) {
    Graph *graph = parse(text);
    const char *printed = print(graph);
    if (!strstr(printed, line)) fail_msg("no '%s' in\n%s", line, printed);
    Graph *again = parse(printed);
    assert_string_equal(print(again), printed);
    assert_true(graph_equal(graph, again));
}

static void every_form_prints_and_reads_back(void **state) {
    (void)state;
    expect_printed("graph(x: f32[1, 1, 4]) {\n return interpolate(x, scale_factor=1.5)\n}",
                   "scale_factor=1.5");
    expect_printed("graph(x: f32[1, 1, 4, 4]) {\n return interpolate(x, scale_factor=[1.5, 2])\n}",
                   "scale_factor=[1.5, 2.0]");
    expect_printed("graph(x: f32[2]) {\n return x\n}", "return arg0");
    expect_printed(
        "graph() {\n return constant(2.5, f32), constant(7, i64), constant(true, bool)\n}",
        "constant(");
    expect_printed("graph(x: f32[2]) {\n return sum(x, all)\n}", "sum(arg0");
    expect_printed("graph(x: f32[2]) {\n draws 3\n return x\n}", "draws 3");
    expect_printed("graph(i: i64[2]) {\n check i * 2 below 5 for scatter\n return\n}",
                   "check mul below 5 for scatter");
    expect_printed("graph(i: i64[2]) {\n check constant(7, i64) below 0 for gather\n return i\n}",
                   "check constant(7, i64) below 0 for gather");
    expect_printed("graph(x: f32[2], i: i32[2]) {\n y = embedding(i, reshape(x, [2, 1]))\n"
                   " check to(i, i64) below 2 for gather\n return to(i, i64)\n}",
                   "check to below 2 for index_select");
    expect_printed("graph(x: f32[2]) {\n return x * 0.1, x * 1e300, x * 3.0000001\n}", "0.1");
    expect_printed("graph(x: f64[2]) {\n return x * 0.30000000000000004\n}", "0.30000000000000004");
    expect_printed("graph(x: f32[2]) {\n return x + inf, x * -inf, x - nan\n}", "inf");
    expect_printed("graph(X_1: f32) {\n return X_1 * 25E-1, X_1 * 1e+5, X_1 * 1e-1\n}", "2.5");
    expect_printed("graph(x: f32[2, 2]) {\n return softmax(x, true), sum(x, 0, 1)\n}", "dim=1");
    expect_printed("graph(x: f32[2]) {\n return rms_norm(x, [2], eps=none)\n}", "rms_norm(arg0, "
                                                                                "normalized=[2])");
    expect_printed("graph(x: f32[2]) {\n return choose(1, x, q), x * where(true, 2, 3)\n}",
                   "return arg0, mul");
    expect_printed("graph(x: bool[2]) {\n return logical_or(x, logical_and(1, 0)), to(3, f32)\n}",
                   "logical_or(arg0, false)");
    expect_printed("graph(x: f32[2]) {\n return exp(constant(1, f32))\n}",
                   "exp(constant(1.0, f32))");
    expect_printed("graph(c: bool[2]) {\n return where(c, constant(1, f64), constant(2, f64))\n}",
                   "where(arg0, constant(1.0, f64), constant(2.0, f64))");
    expect_printed("graph(x: f32[2]) {\n a = rand([2], draw=3)\n b = rand([2], draw=1)\n"
                   " return a + b, rand([2])\n}",
                   "draw=4");
}

/* Those that an op makes which is needed are in no text, nor is one of them there twice. */
static void needed_checks_are_not_printed(void **state) {
    (void)state;
    static const char *const texts[] = {
        "graph(x: f32[2], i: i64[2]) {\n return gather(x, 0, reshape(i, [2]))\n}",
        "graph(i: i64[2]) {\n return one_hot(i, 5)\n}",
        "graph(w: f32[5, 2], i: i32[2]) {\n return embedding(i, w)\n}",
        "graph(x: f32[2, 5], i: i64[2]) {\n return cross_entropy(x, i)\n}",
        "graph(x: f32[2]) {\n y = gather(x, 0, argsort(x, 0))\n return x\n}",
        "graph(x: f32[2], i: i64[0]) {\n y = gather(x, 0, i)\n return x\n}",
        "graph(x: f32[2], i: i64[1]) {\n y = gather(x, 0, expand(i, [0]))\n return x\n}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Graph *graph = parse(texts[i]);
        if (strstr(print(graph), "check")) fail_msg("%s", print(graph));
        graph_optimize(graph, NULL);
        if (strstr(print(graph), "check")) fail_msg("optimized: %s", print(graph));
    }
    const char *printed = print(parse("graph(x: f32[5, 5], i: i64[2, 2]) {\n a = gather(x, 0, i)\n"
                                      " b = gather(x, 1, i)\n c = one_hot(i, 5)\n return x\n}"));
    const char *first = strstr(printed, "check arg1 below 5 for gather");
    assert_true(first && !strstr(first + 1, "check"));
}

static void graphs_differ_in_one_thing(void **state) {
    (void)state;
    static const char *const different[] = {
        "graph(x: f32[2], y: f32[2]) {\n return x + y\n}",
        "graph(x: f32[2], y: f32[2]) {\n return x - y\n}",
        "graph(x: f32[2], y: f32[2]) {\n return y - x\n}",
        "graph(x: f32[2], y: f32[2]) {\n return x + y, x\n}",
        "graph(x: f32[2], y: f32[2]) {\n return x + y, y\n}",
        "graph(x: f32[2]) {\n return x + x\n}",
        "graph(x: f64[2], y: f64[2]) {\n return x + y\n}",
        "graph(x: f32[2], y: f32[2]) {\n mutate x = x + y\n return x + y\n}",
        "graph(x: f32[2], y: f32[2]) {\n mutate y = x + y\n return x + y\n}",
        "graph(x: f32[2], y: f32[2]) {\n mutate x = y\n return x + y\n}",
        "graph(x: f32[2], y: f32[2]) {\n draws 1\n return x + y\n}",
        "graph(x: f32[2], y: f32[2]) {\n return sum(x, 0), y\n}",
        "graph(x: f32[2], y: f32[2]) {\n return sum(x, 0, true), y\n}",
        "graph(x: f32[2], y: f32[2]) {\n return layer_norm(x, [2], y)\n}",
        "graph(x: f32[2], y: f32[2]) {\n return layer_norm(x, [2], none, y)\n}",
        "graph(x: f32[2], y: f32[2]) {\n return exp(x), y\n}",
        "graph(x: f32[2], y: f32[2]) {\n return sin(x), y\n}",
        "graph(x: f32[2], y: f32[2], z: f32[2]) {\n return x + y\n}",
        "graph(x: f32[2], y: f32[2], z: f32[2]) {\n return x, y\n}",
        "graph(x: f32[2], y: f32[2]) {\n return exp(y), y\n}",
        "graph(x: f32[2], i: i64[2]) {\n return x\n}",
        "graph(x: f32[2], i: i64[2]) {\n y = gather(x, 0, i)\n return x\n}",
        "graph(x: f32[2], i: i64[2]) {\n check i below 1 for gather\n return x\n}",
        "graph(x: f32[2], i: i64[2]) {\n check i below 2 for scatter\n return x\n}",
        "graph(x: f32[2], i: i64[2]) {\n check neg(i) below 2 for gather\n return x\n}",
        "graph(x: f32[2], i: i64[2], j: i64[2]) {\n check i below 2 for gather\n return x\n}",
        "graph(x: f32[2], i: i64[2], j: i64[2]) {\n check j below 2 for gather\n return x\n}",
        "graph(x: f32[2], i: i64[2]) {\n return gather(x, 0, i)\n}",
        "graph(x: f32[2], i: i64[2]) {\n check i below 1 for gather\n return gather(x, 0, i)\n}",
    };
    int count = sizeof different / sizeof *different;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++) {
            bool same = graph_equal(parse(different[i]), parse(different[k]));
            if (same != (i == k)) fail_msg("%s\n%s", different[i], different[k]);
        }
}

/* ---- broken graphs -------------------------------------------------------------------------- */

static void expect_broken(Graph *graph, const char *expected) {
    Buffer why = buffer_new(arena);
    if (graph_verify(graph, &why)) fail_msg("well-formed, not '%s'", expected);
    if (!strstr(buffer_text(&why), expected))
        fail_msg("'%s' lacks '%s'", buffer_text(&why), expected);
    cb_clear_error();
}

static const char sums[] = "graph(x: f32[2], y: f32[2]) {\n mutate x = y\n return exp(x + y)\n}";

static void roots_are_checked(void **state) {
    (void)state;
    Graph *graph = parse(sums);
    graph->input[1] = graph->output[0];
    expect_broken(graph, "input 1 is broken");
    graph = parse(sums);
    graph->input[1] = graph->input[0];
    expect_broken(graph, "input 1 is broken");
    graph = parse(sums);
    graph->input[0] = parse(sums)->input[0];
    expect_broken(graph, "input 0 is broken");
    graph = parse(sums);
    graph->output[0] = NULL;
    expect_broken(graph, "output 0 is not of the graph");
    for (int kind = 0; kind < 6; kind++) {
        graph = parse("graph(x: f32[2], y: f32[2]) {\n mutate x = y\n return sum(x, 0)\n}");
        Mutation *mutation = &graph->mutation[0];
        if (kind == 0) mutation->input = -1;
        if (kind == 1) mutation->input = 2;
        if (kind == 2) mutation->value = NULL;
        if (kind == 3) mutation->value = graph->output[0];
        if (kind == 4) mutation->value = parse(sums)->input[1];
        if (kind == 5) graph->mutation[0].value->dtype = CB_F64;
        expect_broken(graph, "mutation 0 is broken");
    }
    for (int kind = 0; kind < 3; kind++) {
        static const char checked[] =
            "graph(x: f32[2], i: i64[2]) {\n check i below 2 for gather\n return x\n}";
        graph = parse(checked);
        IndexCheck *check = &graph->check[0];
        if (kind == 0) check->index = NULL;
        if (kind == 1) check->index = parse(checked)->input[1];
        if (kind == 2) check->index = graph->input[0];
        expect_broken(graph, "check 0 is broken");
    }
}

static void nodes_are_checked(void **state) {
    (void)state;
    Graph *graph = parse(sums);
    graph->output[0]->input_count = 0;
    expect_broken(graph, "it has 0 inputs");
    graph = parse(sums);
    Node *add = graph->output[0]->input[0];
    add->input[1] = graph->output[0];
    graph->output[0] = add;
    expect_broken(graph, "input 1 comes later");
    graph = parse("graph(x: f32[2, 3]) {\n return softmax(x, 1)\n}");
    Node *softmax = graph->output[0], *expansion = softmax->expansion;
    softmax->expansion = NULL;
    expect_broken(graph, "it has no expansion");
    softmax->expansion = softmax;
    expect_broken(graph, "its expansion is not before it in the graph");
    softmax->expansion = parse(sums)->output[0];
    expect_broken(graph, "its expansion is not before it in the graph");
    softmax->expansion = expansion->input[1];
    expect_broken(graph, "its type is not its expansion's");
    graph = parse(sums);
    graph->output[0]->input[0]->input[1] = NULL;
    expect_broken(graph, "input 1 is absent: add");
    graph = parse("graph(x: f32[2], y: f32[2]) {\n return exp(x)\n}");
    graph->input[1]->dtype = CB_F64;
    expect_broken(graph, "it is not interned: arg1");
    graph = parse("graph(x: f32[2, 3]) {\n return softmax(x, 1)\n}");
    graph->output[0]->expansion->dtype = CB_F64;
    expect_broken(graph, "its type is not its expansion's");
    Meta meta = node_meta(graph->input[0]);
    Attrs attrs = attrs_default(OP_sum);
    attr_set_dims(&attrs, ATTR_sum_dim, cb_dims(7));
    graph = parse("graph(x: f32[2, 3]) {\n return exp(x)\n}");
    graph->output[0] = graph_intern(graph, OP_sum, &meta, graph->input, 1, &attrs);
    expect_broken(graph, "it cannot be inferred (sum: dim 7 is outside");
    meta.dtype = CB_F64;
    graph->output[0] = graph_intern(graph, OP_exp, &meta, graph->input, 1, NULL);
    expect_broken(graph, "it is f64[2, 3] and should be f32[2, 3]: exp");
    meta = (Meta){.dtype = CB_F32, .rank = 1, .size = {2}};
    graph->output[0] = graph_intern(graph, OP_sin, &meta, graph->input, 1, NULL);
    expect_broken(graph, "it is f32[2] and should be f32[2, 3]: sin");
    graph = parse("graph() {\n return rand([2], draw=0)\n}");
    attrs = *graph->output[0]->attrs;
    attrs.word[op_info(OP_rand)->word_count] = -1;
    meta = node_meta(graph->output[0]);
    graph->output[0] = graph_intern(graph, OP_rand, &meta, NULL, 0, &attrs);
    expect_broken(graph, "1 draws were taken");
    graph = parse("graph() {\n draws 1\n return rand([2])\n}");
    graph->random_count = 0;
    expect_broken(graph, "0 draws were taken");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(texts_are_refused_by_place),
        TEST(every_form_prints_and_reads_back),
        TEST(needed_checks_are_not_printed),
        TEST(graphs_differ_in_one_thing),
        TEST(roots_are_checked),
        TEST(nodes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
