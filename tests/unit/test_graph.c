/* The graph: interning, building, text both ways, passes, verifier. */
#include "base/option.h"

#include "graph/node.h"
#include "graph/rewrite.h"
#include "graph_support.h"

#include <math.h>
#include <time.h>

/* The body is parsed and printed; the text parses back to an equal graph. */
static void expect_text(const char *text, const char *expected) {
    Graph *graph = parse(text);
    expect_verified(graph);
    assert_string_equal(print(graph), expected);
    Graph *again = parse(print(graph));
    assert_true(graph_equal(graph, again));
    assert_string_equal(print(again), expected);
}

static void expect_optimized(const char *text, const char *expected) {
    Graph *graph = parse(text);
    graph_optimize(graph, NULL);
    expect_verified(graph);
    assert_string_equal(print(graph), expected);
    assert_true(graph_equal(graph, parse(print(graph))));
}

static Meta meta_of(cb_dtype dtype, cb_dim_list sizes) {
    Meta meta = {.dtype = dtype, .rank = (uint8_t)sizes.count};
    memcpy(meta.size, sizes.at, sizeof meta.size);
    return meta;
}

static Node *input_of(Graph *graph, cb_dtype dtype, cb_dim_list sizes) {
    Meta meta = meta_of(dtype, sizes);
    return graph_input(graph, &meta);
}

static Node *call(Graph *graph, Op op, Node *a, Node *b) {
    return graph_op(graph, op, (Node *[]){a, b}, b ? 2 : 1, NULL, NULL);
}

/* ---- nodes -------------------------------------------------------------------------------- */

static void test_intern(void **state) {
    (void)state;
    Graph *graph = graph_new(arena);
    Node *x = input_of(graph, CB_F32, cb_dims(2, 3)), *y = input_of(graph, CB_F32, cb_dims(3));
    assert_ptr_not_equal(x, y);
    assert_ptr_equal(call(graph, OP_add, x, y), call(graph, OP_add, x, y));
    assert_ptr_equal(call(graph, OP_add, x, y), call(graph, OP_add, y, x));
    assert_ptr_not_equal(call(graph, OP_sub, x, y), call(graph, OP_sub, y, x));
    assert_ptr_not_equal(call(graph, OP_add, x, y), call(graph, OP_mul, x, y));
    Node *one = graph_constant(graph, CB_F32, (Scalar){.f = 1});
    assert_ptr_equal(one, graph_constant(graph, CB_F32, (Scalar){.f = 1}));
    assert_ptr_not_equal(one, graph_constant(graph, CB_F64, (Scalar){.f = 1}));
    Node *zero = graph_constant(graph, CB_F32, (Scalar){.f = 0.0});
    assert_ptr_not_equal(zero, graph_constant(graph, CB_F32, (Scalar){.f = -0.0}));
    assert_true(node_is_number(zero, 0) && !node_is_number(zero, 1) && !node_is_number(x, 0));
    assert_true(node_is_number(graph_constant(graph, CB_I64, (Scalar){.i = 3}), 3));
    assert_ptr_equal(graph_constant(graph, CB_F32, (Scalar){.f = NAN}),
                     graph_constant(graph, CB_F32, (Scalar){.f = -NAN}));
    assert_ptr_equal(call(graph, OP_mul, one, x)->input[1], one);
    assert_int_equal(node_numel(x), 6);
}

static void test_build(void **state) {
    (void)state;
    Graph *graph = graph_new(arena);
    Node *i = input_of(graph, CB_I32, cb_dims(4, 6));
    Node *half = graph_constant(graph, CB_F64, (Scalar){.f = 0.5});
    Node *sum = graph_op(graph, OP_add, (Node *[]){i, half}, 2, NULL, (bool[]){false, true});
    assert_int_equal(sum->dtype, CB_F32);
    assert_int_equal(sum->input[0]->op, OP_to);
    assert_true(sum->input[1]->op == OP_constant && sum->input[1]->dtype == CB_F32);
    Attrs attrs = attrs_default(OP_to);
    attrs.word[ATTR_to_dtype] = CB_I32;
    assert_ptr_equal(graph_op(graph, OP_to, &i, 1, &attrs, NULL), i);
    Node *t = call(graph, OP_t, i, NULL);
    assert_int_equal(t->op, OP_permute);
    attrs = attrs_default(OP_select);
    attrs.word[ATTR_select_dim] = 1;
    attrs.word[ATTR_select_index] = -1;
    Node *last = graph_op(graph, OP_select, &i, 1, &attrs, NULL);
    assert_true(last->op == OP_reshape && last->rank == 1 && last->input[0]->op == OP_slice);
    assert_int_equal(last->input[0]->attrs->word[ATTR_slice_end], 6);
    assert_null(call(graph, OP_add, i, input_of(graph, CB_I32, cb_dims(5))));
    assert_non_null(strstr(cb_error(), "do not broadcast"));
    cb_clear_error();
    assert_null(call(graph, OP_exp, NULL, NULL));
    assert_null(cb_error());
}

static void test_random_nodes(void **state) {
    (void)state;
    Graph *graph = graph_new(arena);
    Node *x = input_of(graph, CB_F32, cb_dims(8));
    Node *a = call(graph, OP_dropout, x, NULL), *b = call(graph, OP_dropout, x, NULL);
    assert_ptr_not_equal(a, b);
    assert_ptr_not_equal(a->expansion, b->expansion);
    assert_int_equal(graph->random_count, 2);
    Node *c = call(graph, OP_rand_like, x, NULL);
    assert_int_equal(c->expansion->op, OP_rand);
    Attrs eval = attrs_default(OP_dropout);
    eval.word[ATTR_dropout_training] = false;
    Node *d = graph_op(graph, OP_dropout, &x, 1, &eval, NULL);
    assert_ptr_equal(d->expansion, x);
    assert_int_equal(graph->random_count, 3);
    push(arena, graph->output, call(graph, OP_add, b, d));
    expect_verified(graph);
    Graph *again = parse(print(graph));
    assert_int_equal(again->random_count, 3);
    assert_true(graph_equal(graph, again));
    Node *moved = graph_with_inputs(graph, b, (Node *[]){call(graph, OP_relu, x, NULL)});
    assert_int_equal(moved->attrs->word[2], b->attrs->word[2]);
    assert_int_equal(graph->random_count, 3);
}

/* ---- text --------------------------------------------------------------------------------- */

static void test_text(void **state) {
    (void)state;
    expect_text("graph(x: f32[128, 512], w: f32[512]) { # a comment\n"
                "  y = softmax(exp(x) * 2 + w, dim=1)\n"
                "  mutate x = y\n"
                "  return y, exp(y)\n"
                "}\n",
                "graph(arg0: f32[128, 512], arg1: f32[512]) {\n"
                "  exp = exp(arg0)\n"
                "  mul = mul(exp, 2.0)\n"
                "  add = add(mul, arg1)\n"
                "  softmax = softmax(add, dim=1)\n"
                "  exp_1 = exp(softmax)\n"
                "  mutate arg0 = softmax\n"
                "  return softmax, exp_1\n"
                "}\n");
    expect_text("graph() { return }", "graph() {\n  return\n}\n");
    expect_text(
        "graph(x: f16[], b: bool[2]) { return x * 0.1, b == true, -x, constant(-0.0, bf16) }",
        "graph(arg0: f16[], arg1: bool[2]) {\n"
        "  mul = mul(arg0, 0.1)\n"
        "  eq = eq(arg1, true)\n"
        "  neg = neg(arg0)\n"
        "  return mul, eq, neg, constant(-0.0, bf16)\n"
        "}\n");
}

static void test_typed_constants(void **state) {
    (void)state;
    expect_text("graph(x: f32[]) { return x + constant(2, f64), x + 2, 0 - -x * (1 / 4 + 2) }",
                "graph(arg0: f32[]) {\n"
                "  to = to(arg0, dtype=f64)\n"
                "  add = add(to, 2.0)\n"
                "  add_1 = add(arg0, 2.0)\n"
                "  neg = neg(arg0)\n"
                "  mul = mul(neg, 2.25)\n"
                "  sub = sub(0.0, mul)\n"
                "  return add, add_1, sub\n"
                "}\n");
    expect_text("graph(i: i64[3]) { return maximum(i, -9223372036854775808), i < 1e400, i * nan }",
                "graph(arg0: i64[3]) {\n"
                "  maximum = maximum(arg0, -9223372036854775808)\n"
                "  to = to(arg0, dtype=f32)\n"
                "  lt = lt(to, inf)\n"
                "  mul = mul(to, nan)\n"
                "  return maximum, lt, mul\n"
                "}\n");
}

static void test_attributes(void **state) {
    (void)state;
    expect_text("graph(x: f32[4, 6], i: i64[4, 2]) {\n"
                "  s = sum(x, -1, true)\n"
                "  g = gather(x, 1, i)\n"
                "  n = layer_norm(x, [4, 6], bias=x)\n"
                "  f = full([2, 3], 0.5, f64)\n"
                "  r = rand([2], draw=4)\n"
                "  v = slice(x, 1, 1, step=2)\n"
                "  m = mean(x, dim=all)\n"
                "  return s, g, n, f, r, v, m\n"
                "}\n",
                "graph(arg0: f32[4, 6], arg1: i64[4, 2]) {\n"
                "  sum = sum(arg0, dim=[1], keepdim=true)\n"
                "  gather = gather(arg0, dim=1, index=arg1)\n"
                "  layer_norm = layer_norm(arg0, normalized=[4, 6], bias=arg0)\n"
                "  full = full(sizes=[2, 3], value=0.5, dtype=f64)\n"
                "  rand = rand(sizes=[2], draw=4)\n"
                "  slice = slice(arg0, dim=1, start=1, end=6, step=2)\n"
                "  mean = mean(arg0)\n"
                "  return sum, gather, layer_norm, full, rand, slice, mean\n"
                "}\n");
}

static void test_parse_errors(void **state) {
    (void)state;
    expect_parse_error("", "line 1, column 1: expected 'graph', found the end");
    expect_parse_error("graph(x f32[2]) { return x }",
                       "line 1, column 9: expected ':', found 'f32[2])'");
    expect_parse_error("graph(x: f33[2]) { return x }", "column 10: expected a dtype");
    expect_parse_error("graph(x: f32[2]) {\n  y = exp(x\n  return y\n}", "expected ',' or ')'");
    expect_parse_error("graph(x: f32[2]) {\n  y = x +\n}", "line 3, column 1: expected an operand");
    expect_parse_error("graph(x: f32[2]) {\n  y = foo(x)\n return y }",
                       "line 2, column 7: there is no op 'foo'");
    expect_parse_error("graph(x: f32[2]) { return q }", "'q' is not defined");
    expect_parse_error("graph(x: f32[2]) { x = x\n return x }", "expected a new name");
    expect_parse_error("graph(x: f32[2]) { return sum(x, when=2) }", "sum has no parameter 'when'");
    expect_parse_error("graph(x: f32[2]) { return sum(x, 0, x) }",
                       "expected true or false for 'keepdim'");
    expect_parse_error("graph(x: f32[2]) { return softmax(x) }", "softmax: 'dim' is missing");
    expect_parse_error("graph(x: f32[2]) { return exp(x, x) }", "exp takes 1 arguments");
    expect_parse_error("graph(x: f32[2], y: f32[3]) {\n  z = 1\n  w = x + y\n return w }",
                       "graph text:3: add: sizes do not broadcast");
    expect_parse_error("graph(x: f32[2]) { mutate y = x\n return x }",
                       "expected the name of an input");
    expect_parse_error("graph(x: f32[2]) { mutate x = sum(x)\n return x }", "differs in type");
    expect_parse_error("graph(x: f32[2]) { return x } tail", "expected nothing after the graph");
    expect_parse_error("graph(x: f32[1, 1, 1, 1, 1, 1, 1, 1, 1]) { return x }", "at most 8");
    char deep[2000] = "graph(x: f32[2]) { return ";
    memset(deep + strlen(deep), '(', 1500);
    expect_parse_error(deep, "nested");
}

/* ---- orders ------------------------------------------------------------------------------- */

static void test_order(void **state) {
    (void)state;
    enum { CHAIN = 20000 };
    Graph *graph = graph_new(arena);
    Node *x = input_of(graph, CB_F32, cb_dims(16)), *y = x;
    Node *unused = input_of(graph, CB_F32, cb_dims(16));
    for (int i = 0; i < CHAIN; i++) y = call(graph, i % 2 ? OP_sin : OP_cos, y, NULL);
    call(graph, OP_exp, y, NULL);
    push(arena, graph->output, y);
    Node **order = graph_order(graph);
    assert_int_equal(length(order), CHAIN + 2);
    assert_true(order[0] == x && order[1] == unused && order[CHAIN + 1] == y);
    int *users = graph_users(graph, order);
    assert_true(users[x->id] == 1 && users[unused->id] == 0 && users[y->id] == 0);
    expect_verified(graph);
    Graph *again = parse(print(graph));
    assert_true(graph_equal(graph, again));
    graph_optimize(graph, NULL);
    assert_int_equal(length(graph_order(graph)), CHAIN + 2);
}

static void test_users(void **state) {
    (void)state;
    Graph *graph = parse("graph(x: f32[2]) { y = exp(x)\n return y * y, y + x }");
    int *users = graph_users(graph, graph_order(graph));
    assert_int_equal(users[graph->input[0]->id], 2);
    assert_int_equal(users[graph->output[0]->input[0]->id], 2);
}

/* Linear: four times the nodes may take little more than four times as long. Generous, for slow
 * days. */
static double optimize_seconds(int count) {
    Arena *own = arena_new();
    Graph *graph = graph_new(own);
    Meta meta = meta_of(CB_F32, cb_dims(16));
    Node *x = graph_input(graph, &meta), *y = x;
    Node *number = graph_constant(graph, CB_F64, (Scalar){.f = 0.5});
    for (int i = 0; i < count / 4; i++) {
        y = graph_op(graph, OP_mul, (Node *[]){y, number}, 2, NULL, (bool[]){false, true});
        y = call(graph, OP_add, call(graph, OP_relu, y, NULL), call(graph, OP_exp, x, NULL));
    }
    push(own, graph->output, y);
    struct timespec start, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    graph_optimize(graph, NULL);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    arena_free(own);
    return (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
}

static void test_linear_time(void **state) {
    (void)state;
    double small = optimize_seconds(10000), large = optimize_seconds(80000);
    print_message("optimize: %.0f ns per node, %.0f at eight times the size\n", small / 10000 * 1e9,
                  large / 80000 * 1e9);
    assert_true(large < 40 * small + 0.05);
}

/* ---- passes ------------------------------------------------------------------------------- */

static void test_passes(void **state) {
    (void)state;
    expect_optimized("graph(x: f32[4, 8], b: f32[8]) {\n"
                     "  y = relu(relu(x * 1 + expand(b, [4, 8]) / 4)) * (full([4, 8], 2) + 1)\n"
                     "  return transpose(transpose(y, 0, 1), 1, 0), contiguous(y)\n"
                     "}\n",
                     "graph(arg0: f32[4, 8], arg1: f32[8]) {\n"
                     "  mul = mul(arg1, 0.25)\n"
                     "  add = add(arg0, mul)\n"
                     "  relu = relu(add)\n"
                     "  mul_1 = mul(relu, 3.0)\n"
                     "  return mul_1, mul_1\n"
                     "}\n");
}

static void test_structure(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"to(to(u, f32), f64)", "to(u, f64)"},
        {"to(to(x, f64), f32)", "x"},
        {"to(to(x, i32), f32)", NULL},
        {"to(to(i, f32), i64)", NULL},
        {"slice(slice(x, 1, 1, 7, 2), 1, 1)", "slice(x, 1, 3, 6, 2)"},
        {"slice(slice(x, 1, 2), 0, 2)", NULL},
        {"slice(x, 1, 2, 7, 3)", "slice(x, 1, 2, 6, 3)"},
        {"flip(flip(x, [0, 1]), 1)", "flip(x, 0)"},
        {"flip(flip(x, 1), 1)", "x"},
        {"reshape(reshape(x, [32]), [2, 16])", "reshape(x, [2, 16])"},
        {"permute(unsqueeze(x, 0), [1, 0, 2])", "reshape(x, [4, 1, 8])"},
        {"expand(expand(b, [4, 8]), [2, 4, 8])", "expand(b, [2, 4, 8])"},
        {"sum(unsqueeze(x, 1), 1)", "x"},
        {"sum(full([3, 4], 2, i64), 1)", "full([3], 8, i64)"},
        {"sum(slice(x, 0, 0, 0), 0)", "full([8], 0.0)"},
        {"amax(full([3, 4], 2.0))", "constant(2, f32)"},
        {"sum(concat(unsqueeze(x, 1), unsqueeze(b + x, 1), 1), 1)", "x + 0.0 + (b + x)"},
        {"amax(concat(unsqueeze(b, 0), concat(slice(x, 0, 1, 2), slice(x, 0, 3))), 0, true)",
         "maximum(maximum(unsqueeze(b, 0), slice(x, 0, 1, 2)), slice(x, 0, 3))"},
        {"sum(concat(unsqueeze(u, 0), unsqueeze(u, 0)), 0)", "to(u, i64) + to(u, i64)"},
        {"all(concat(unsqueeze(u == 2, 0), unsqueeze(u == 1, 0)), 0)",
         "logical_and(u == 2, u == 1)"},
        {"sum(concat(x, x), 0)", NULL},
        {"sum(concat(unsqueeze(x, 1), unsqueeze(b + x, 1), 1), [0, 1])", NULL},
        {"sum(to(concat(slice(x, 0, 1, 2), slice(x, 0, 3)), f16), 0)", NULL},
        {"pad(x, [0, 0])", "x"},
        {"concat(x, slice(x, 0, 4))", "x"},
        {"slice_scatter(x, x * 2, 0)", "x * 2"},
        {"cumsum(slice(x, 1, 0, 1), 1)", "slice(x, 1, 0, 1)"},
        {"where(full([4, 8], 1, bool), b, 0)", "expand(b, [4, 8])"},
        {"where(u == 1, full([3], 2), 0)", "where(u == 1, full([], 2), 0)"},
        {"x * full([2, 1, 1], 3)", "expand(x * 3, [2, 4, 8])"},
        {"exp(expand(b, [2, 8])) + 1", "expand(exp(b) + 1, [2, 8])"},
        {"pow(x, 2.0)", "square(x)"},
        {"b * to(b != b, f32)", "b * to(isnan(b), f32)"},
        {"mean(x, 1)", "sum(x, 1) * 0.125"},
        {"gelu(x) * 1", "gelu(x)"},
    };
    static const char *const format =
        "graph(x: f32[4, 8], b: f32[8], u: u8[3], i: i64[2]) {\n return %s\n}\n";
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const char *expected = cases[k][1] ? cases[k][1] : cases[k][0];
        Graph *left = parse(arena_format(arena, format, cases[k][0]));
        Graph *right = parse(arena_format(arena, format, expected));
        graph_optimize(left, NULL);
        if (cases[k][1]) graph_optimize(right, NULL); /* without: the left side stays as it is */
        expect_verified(left);
        if (!graph_equal(left, right)) fail_msg("%s becomes\n%s", cases[k][0], print(left));
    }
}

static void test_normalize(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"matmul(b, m)", "reshape(matmul(reshape(b, [1, 8]), m), [3])"},
        {"matmul(b, b)", "reshape(matmul(reshape(b, [1, 8]), reshape(b, [8, 1])), [])"},
        {"argsort(m, dim=0)", "permute(argsort(permute(m, [1, 0]), dim=1), [1, 0])"},
        {"argtopk(m, 2, dim=0)", "permute(argtopk(permute(m, [1, 0]), 2, dim=1), [1, 0])"},
        {"argsort(m, dim=1)", NULL},
        {"sum(one, 1)", "reshape(one, [4])"},
        {"sum(to(one, bool), 1)", "reshape(to(to(one, bool), i64), [4])"},
        {"cumsum(one, 1)", "one"},
        {"cumsum(one, 0)", NULL},
        {"sum(none, 0)", "expand(constant(0, f32), [4])"},
        {"exp(none)", "expand(constant(0, f32), [0, 4])"},
        {"scatter(one, 0, to(slice(one, 0, 0, 0), i64), slice(one, 0, 0, 0))", "clone(one)"},
        {"exp(one * 1)", NULL}, /* no other pass runs */
    };
    static const char *const format =
        "graph(b: f32[8], m: f32[8, 3], one: f32[4, 1], none: f32[0, 4]) {\n return %s\n}\n";
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        Graph *left = parse(arena_format(arena, format, cases[k][0]));
        Graph *right = parse(arena_format(arena, format, cases[k][cases[k][1] ? 1 : 0]));
        graph_prepare(left);
        expect_verified(left);
        if (!graph_equal(left, right)) fail_msg("%s becomes\n%s", cases[k][0], print(left));
    }
}

static void test_options(void **state) {
    (void)state;
    static const char text[] = "graph(x: f32[2]) { return relu(relu(x * 1)) * 1 }";
    Graph *graph = parse(text);
    assert_int_equal(cb_set_option("skip", "rewrite"), CB_OK);
    graph_optimize(graph, NULL);
    assert_int_equal(length(graph_order(graph)), 6);
    assert_int_equal(cb_set_option("skip", ""), CB_OK);
    static const int nodes[] = {6, 5, 3, 2};
    for (int limit = 0; limit < 4; limit++) {
        char value[16];
        snprintf(value, sizeof value, "%d", limit);
        assert_int_equal(cb_set_option("passes", value), CB_OK);
        graph = parse(text);
        graph_optimize(graph, NULL);
        expect_verified(graph);
        if (limit == 0 || limit == 3) assert_int_equal(length(graph_order(graph)), nodes[limit]);
    }
    assert_int_equal(cb_set_option("passes", "-1"), CB_OK);
    assert_int_equal(cb_set_option("verify", "1"), CB_OK);
    Buffer dump = buffer_new(arena);
    graph = parse("graph(x: f32[2]) { return mean(x) }");
    graph_optimize(graph, &dump);
    assert_int_equal(cb_set_option("verify", "0"), CB_OK);
    assert_non_null(
        strstr(buffer_text(&dump), "# as captured\ngraph(arg0: f32[2]) {\n  mean = mean(arg0)\n"));
    assert_non_null(strstr(buffer_text(&dump), "# d: after decompose\n"));
    assert_non_null(strstr(buffer_text(&dump), "# r: after rewrite\n"));
    assert_non_null(strstr(buffer_text(&dump), "# n: after normalize\n"));
}

/* A pass that may do nothing changes nothing. */
static void test_no_budget(void **state) {
    (void)state;
    static const struct {
        void (*pass)(Graph *graph, Budget *budget);
        const char *text;
        bool frozen;
    } cases[] = {
        {pass_fold, "graph(x: f32[2]) {\n return x + (full([2], 1) + full([2], 2))\n}", false},
        {pass_rewrite, "graph(x: f32[2]) {\n return relu(relu(x * 1)) + to(to(x, f64), f32)\n}",
         false},
        {pass_claim, "graph(q: f32[2, 64, 8]) {\n return scaled_dot_product_attention(q, q, q)\n}",
         false},
        {pass_narrow,
         "graph(x: f32[2, 4], w: f32[4, 3]) {\n return narrow(matmul(x, w), 0, 1, 1)\n}", false},
        {pass_absorb, "graph(x: f32[2, 4], w: f32[4, 3], s: f32[3]) {\n return matmul(x, w) * s\n}",
         true},
        {pass_freeze, "graph(x: f32[2, 4], w: f32[4, 3], s: f32[3]) {\n return matmul(x, w * s)\n}",
         true},
        {pass_layout,
         "graph(x: f32[1, 8, 9, 9], w: f32[8, 8, 3, 3]) {\n y = convolution(x, w)\n"
         " mutate x = x * 2\n return convolution(convolution(y, w), w)\n}",
         false},
    };
    static const bool frozen[] = {false, true, true};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int left = -1; left < 1; left++) {
            Graph *graph = parse(cases[i].text);
            graph->frozen = cases[i].frozen ? frozen : NULL;
            cases[i].pass(graph, &(Budget){left});
            expect_verified(graph);
            bool same = graph_equal(graph, parse(cases[i].text));
            if (same != (left == 0)) fail_msg("%s\n%s", cases[i].text, print(graph));
        }
    Graph *graph = parse("graph(x: f32[2]) {\n return x + (full([2], 1) + full([2], 2))\n}");
    assert_int_equal(cb_set_option("skip", "fold"), CB_OK);
    graph_optimize(graph, NULL);
    assert_int_equal(cb_set_option("skip", ""), CB_OK);
    expect_verified(graph);
    assert_non_null(strstr(print(graph), "full(sizes=[2], value=1, dtype=i64)"));
}

static void test_mutations_survive(void **state) {
    (void)state;
    expect_optimized("graph(x: f32[2]) { mutate x = x * 1 + 2\n draws 3\n return }",
                     "graph(arg0: f32[2]) {\n"
                     "  add = add(arg0, 2.0)\n"
                     "  draws 3\n"
                     "  mutate arg0 = add\n"
                     "  return\n"
                     "}\n");
}

/* ---- copies ------------------------------------------------------------------------------- */

/* In an arena of its own; the graph's goes, and so does whatever the copy still points at. */
static Graph *moved(const char *text, bool optimize) {
    Arena *outer = arena;
    arena = arena_new();
    Graph *graph = parse(text);
    if (optimize) graph_optimize(graph, NULL);
    const char *expected = arena_text(outer, print(graph));
    Graph *copy = graph_copy(graph, outer);
    assert_true(graph_equal(graph, copy));
    assert_true(length(copy->node) <= length(graph->node));
    if (optimize) assert_true(length(copy->node) < length(graph->node));
    arena_free(arena);
    arena = outer;
    expect_verified(copy);
    assert_string_equal(print(copy), expected);
    return copy;
}

static void test_copies(void **state) {
    (void)state;
    static const char *const text[] = {
        "graph(x: f32[2], y: f32[2]) {\n z = x * 1 + 2\n mutate x = z\n draws 3\n return }",
        "graph(x: f32[4, 8], b: f32[8]) {\n"
        " y = softmax(gelu(layer_norm(x, [8], b, b)), -1)\n return transpose(y, 0, 1), y }",
        "graph(x: f32[5], i: i64[3]) {\n y = isnan(gather(x, 0, i))\n return logical_and(y, 0) }",
        "graph(x: f32[9]) {\n return dropout(x, 0.5, true), rand_like(x) }"};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        moved(text[i], false);
        Graph *copy = moved(text[i], true);
        Node *again = graph_copy_node(copy, copy->input[0], NULL);
        assert_ptr_equal(again, copy->input[0]); /* interned as before */
    }
}

/* What a check's error says of the call that it is part of. */
static void test_copied_calls(void **state) {
    (void)state;
    Graph *copy = moved("graph(x: f32[4, 8], i: i64[4]) { return nll_loss(x, i) }", true);
    int checks = length(copy->check), named = 0;
    for (int id = 0; id < length(copy->node); id++) {
        const CompositeCall *call = copy->node[id]->origin.call;
        if (!call) continue;
        named++;
        assert_true(op_has_index(copy->node[id]->op) && call->op == OP_nll_loss);
        assert_int_equal(call->input[0]->size[1], 8);
        assert_int_equal(call->input[1]->dtype, CB_I64);
    }
    assert_true(named);
    for (int i = 0; i < checks; i++)
        assert_int_equal(copy->check[i].in.origin.call->input[0]->rank, 2);
}

/* ---- verifier ----------------------------------------------------------------------------- */

static void expect_broken(Graph *graph, const char *expected) {
    Buffer why = buffer_new(arena);
    assert_false(graph_verify(graph, &why));
    if (!strstr(buffer_text(&why), expected))
        fail_msg("'%s' lacks '%s'", buffer_text(&why), expected);
    cb_clear_error();
}

static void test_verifier(void **state) {
    (void)state;
    static const char text[] = "graph(x: f32[4, 6]) {\n return exp(sum(x, 1))\n}\n";
    Graph *graph = parse(text);
    graph->output[0]->dtype = CB_F64;
    expect_broken(graph, "not interned: exp = exp(sum)");
    graph = parse(text);
    Meta wrong = meta_of(CB_F32, cb_dims(5));
    Node *sum = graph->output[0]->input[0];
    graph->output[0] = graph_intern(graph, OP_sin, &wrong, &sum, 1, NULL);
    expect_broken(graph, "it is f32[5] and should be f32[4]: sin = sin(sum)");
    graph = parse(text);
    Attrs attrs = *graph->output[0]->input[0]->attrs;
    attrs.word[ATTR_sum_dim + 1] = -1;
    Meta right = meta_of(CB_F32, cb_dims(4));
    graph->output[0] = graph_intern(graph, OP_sum, &right, graph->input, 1, &attrs);
    expect_broken(graph, "not canonical: sum = sum(arg0, dim=[-1])");
    graph = parse(text);
    graph->output[0] = parse(text)->output[0];
    expect_broken(graph, "output 0 is not of the graph");
    graph = parse(text);
    Node *half = input_of(graph, CB_F16, cb_dims(4));
    graph->output[0] = graph_intern(graph, OP_add, &right, (Node *[]){sum, half}, 2, NULL);
    expect_broken(graph, "of another graph");
    sum = graph->input[0];
    half = input_of(graph, CB_F16, cb_dims(6));
    right = meta_of(CB_F32, cb_dims(4, 6));
    graph->output[0] = graph_intern(graph, OP_add, &right, (Node *[]){sum, half}, 2, NULL);
    expect_broken(graph, "input 1 should be f32: add = add(arg0, arg2)");
}

/* What is no slice of a product's rows stays, and asking was no error. */
static void test_narrow_leaves(void **state) {
    (void)state;
    static const char *const texts[] = {
        "graph(x: f32[2, 8, 16], w: f32[16, 24]) {\n return narrow(matmul(x, w), 2, 3, 5)\n}",
        "graph(x: f32[8, 16], w: f32[16, 24], c: f32[8, 24]) {\n"
        " return narrow(matmul(x, w) + c, 0, 2, 2)\n}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Graph *graph = parse(texts[i]);
        pass_narrow(graph, &(Budget){-1});
        expect_verified(graph);
        assert_true(graph_equal(graph, parse(texts[i])));
        assert_null(cb_error());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_intern),          TEST(test_build),
        TEST(test_random_nodes),    TEST(test_text),
        TEST(test_typed_constants), TEST(test_attributes),
        TEST(test_parse_errors),    TEST(test_order),
        TEST(test_users),           TEST(test_linear_time),
        TEST(test_passes),          TEST(test_structure),
        TEST(test_normalize),       TEST(test_options),
        TEST(test_no_budget),       TEST(test_mutations_survive),
        TEST(test_verifier),        TEST(test_narrow_leaves),
        TEST(test_copies),          TEST(test_copied_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
