/* The graph: interning, building, text both ways, expansions of every composite, passes,
 * verifier. */
#include "base/option.h"
#include "graph/graph.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static Arena *arena;

static int open_arena(void **state) {
    (void)state;
    cb_clear_error();
    arena = arena_new();
    return arena ? 0 : -1;
}

static int close_arena(void **state) {
    (void)state;
    arena_free(arena);
    return 0;
}

static Graph *parse(const char *text) {
    Graph *graph = graph_parse(arena, text);
    if (!graph) fail_msg("%s\n%s", cb_error(), text);
    return graph;
}

static const char *print(Graph *graph) {
    Buffer out = buffer_new(arena);
    graph_print(graph, &out);
    return buffer_text(&out);
}

static void expect_verified(Graph *graph) {
    Buffer why = buffer_new(arena);
    if (!graph_verify(graph, &why)) fail_msg("%s\n%s", buffer_text(&why), print(graph));
}

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
    Meta meta = {(int8_t)dtype, (uint8_t)sizes.count, false, {0}};
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
    assert_true(node_is_number(zero, 0) && !node_is_number(zero, 1));
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

static void expect_parse_error(const char *text, const char *expected) {
    cb_clear_error();
    if (graph_parse(arena, text)) fail_msg("parsed: %s", text);
    assert_non_null(cb_error());
    if (!strstr(cb_error(), expected)) fail_msg("'%s' is not in '%s'", expected, cb_error());
    cb_clear_error();
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

/* ---- composites --------------------------------------------------------------------------- */

/* An argument list that suits most schemas; what a composite needs otherwise stands in the
 * table. */
static const struct {
    Op op;
    const char *call, *type;
} composite_calls[] = {
    {OP_zeros, "zeros([2, 3], f64)", "f64[2, 3]"},
    {OP_ones, "ones([2])", "f32[2]"},
    {OP_full_like, "full_like(x, 2)", "f32[4, 6]"},
    {OP_zeros_like, "zeros_like(i)", "i64[4]"},
    {OP_ones_like, "ones_like(x)", "f32[4, 6]"},
    {OP_rand_like, "rand_like(x)", "f32[4, 6]"},
    {OP_randn_like, "randn_like(x)", "f32[4, 6]"},
    {OP_eye, "eye(3, 5)", "f32[3, 5]"},
    {OP_linspace, "linspace(0, 1, 5)", "f32[5]"},
    {OP_tril, "tril(x, -1)", "f32[4, 6]"},
    {OP_triu, "triu(b)", "bool[4, 6]"},
    {OP_repeat, "repeat(x, [2, 1, 3])", "f32[2, 4, 18]"},
    {OP_roll, "roll(x, -2, 1)", "f32[4, 6]"},
    {OP_one_hot, "one_hot(i, 6)", "i64[4, 6]"},
    {OP_embedding, "embedding(i, x)", "f32[4, 6]"},
    {OP_masked_fill, "masked_fill(x, b, -inf)", "f32[4, 6]"},
    {OP_clamp, "clamp(i, 0, 6)", "i64[4]"},
    {OP_lerp, "lerp(x, y, 0.5)", "f32[4, 6]"},
    {OP_addcmul, "addcmul(x, y, y)", "f32[4, 6]"},
    {OP_addcdiv, "addcdiv(x, y, y, 0.5)", "f32[4, 6]"},
    {OP_mean, "mean(x, [0, -1])", "f32[]"},
    {OP_var, "var(x, 1)", "f32[4]"},
    {OP_std, "std(x, 1, 0, true)", "f32[4, 1]"},
    {OP_max, "max(x)", "f32[]"},
    {OP_min, "min(i)", "i64[]"},
    {OP_argmax, "argmax(x, 1, true)", "i64[4, 1]"},
    {OP_argmin, "argmin(x, keepdim=true)", "i64[1, 1]"},
    {OP_count_nonzero, "count_nonzero(x, 0)", "i64[6]"},
    {OP_norm, "norm(x, 1)", "f32[4]"},
    {OP_logsumexp, "logsumexp(x, 1)", "f32[4]"},
    {OP_linear, "linear(x, w, v)", "f32[4, 5]"},
    {OP_addmm, "addmm(v, x, transpose(w, 0, 1))", "f32[4, 5]"},
    {OP_leaky_relu, "leaky_relu(h)", "f16[3]"},
    {OP_layer_norm, "layer_norm(h, [3], h)", "f16[3]"},
    {OP_rms_norm, "rms_norm(x, [6])", "f32[4, 6]"},
    {OP_normalize, "normalize(x)", "f32[4, 6]"},
    {OP_cosine_similarity, "cosine_similarity(x, y)", "f32[4]"},
    {OP_mse_loss, "mse_loss(x, y)", "f32[]"},
    {OP_l1_loss, "l1_loss(x, 1.0)", "f32[]"},
    {OP_smooth_l1_loss, "smooth_l1_loss(x, y)", "f32[]"},
    {OP_binary_cross_entropy_with_logits, "binary_cross_entropy_with_logits(x, y)", "f32[]"},
    {OP_nll_loss, "nll_loss(x, i)", "f32[]"},
    {OP_cross_entropy, "cross_entropy(x, i, label_smoothing=0.1)", "f32[]"},
    {OP_threshold, "threshold(x, 0.5, 2)", "f32[4, 6]"},
    {OP_glu, "glu(x)", "f32[4, 3]"},
    {OP_prelu, "prelu(x, slice(v, 0, 0, 1))", "f32[4, 6]"},
    {OP_softmin, "softmin(x, 0)", "f32[4, 6]"},
    {OP_softmax, "softmax(x, 1)", "f32[4, 6]"},
    {OP_log_softmax, "log_softmax(x, -1)", "f32[4, 6]"},
    {OP_dropout, "dropout(x, 0.25)", "f32[4, 6]"},
    {OP_conv1d, "conv1d(reshape(x, [1, 4, 6]), reshape(y, [2, 4, 3]), padding=1)", "f32[1, 2, 6]"},
    {OP_conv1d, "conv1d(x, reshape(y, [3, 4, 2]), padding=same)", "f32[3, 6]"},
    {OP_conv2d, "conv2d(reshape(x, [1, 2, 3, 4]), reshape(y, [3, 2, 2, 2]), slice(v, 0, 0, 3))",
     "f32[1, 3, 2, 3]"},
    {OP_conv3d, "conv3d(reshape(x, [1, 2, 2, 2, 3]), reshape(y, [3, 2, 2, 2, 1]))",
     "f32[1, 3, 1, 1, 3]"},
    {OP_conv_transpose1d, "conv_transpose1d(x, reshape(y, [4, 2, 3]), stride=2)", "f32[2, 13]"},
    {OP_conv_transpose2d, "conv_transpose2d(reshape(x, [1, 2, 3, 4]), reshape(y, [2, 3, 2, 2]))",
     "f32[1, 3, 4, 5]"},
    {OP_conv_transpose3d,
     "conv_transpose3d(reshape(x, [1, 2, 2, 2, 3]), reshape(y, [2, 3, 2, 2, 1]), stride=2, "
     "output_padding=1)",
     "f32[1, 3, 5, 5, 6]"},
    {OP_max_pool1d, "max_pool1d(x, 2)", "f32[4, 3]"},
    {OP_max_pool2d, "max_pool2d(reshape(x, [1, 2, 3, 4]), [3, 2], stride=1, padding=1)",
     "f32[1, 2, 3, 5]"},
    {OP_max_pool3d, "max_pool3d(reshape(x, [1, 2, 2, 2, 3]), 2, ceil_mode=true)",
     "f32[1, 2, 1, 1, 2]"},
    {OP_avg_pool1d, "avg_pool1d(x, 4, ceil_mode=true)", "f32[4, 2]"},
    {OP_avg_pool2d, "avg_pool2d(reshape(x, [1, 2, 3, 4]), 2, 1, 1, count_include_pad=false)",
     "f32[1, 2, 4, 5]"},
    {OP_avg_pool3d, "avg_pool3d(reshape(x, [1, 2, 2, 2, 3]), [2, 1, 3], divisor_override=3)",
     "f32[1, 2, 1, 2, 1]"},
    {OP_adaptive_avg_pool1d, "adaptive_avg_pool1d(x, 4)", "f32[4, 4]"},
    {OP_adaptive_avg_pool2d, "adaptive_avg_pool2d(reshape(x, [1, 2, 3, 4]), [2, 1])",
     "f32[1, 2, 2, 1]"},
    {OP_adaptive_avg_pool3d, "adaptive_avg_pool3d(reshape(x, [1, 2, 2, 2, 3]), 1)",
     "f32[1, 2, 1, 1, 1]"},
    {OP_adaptive_max_pool1d, "adaptive_max_pool1d(x, 4)", "f32[4, 4]"},
    {OP_adaptive_max_pool2d, "adaptive_max_pool2d(reshape(x, [1, 2, 3, 4]), 3)", "f32[1, 2, 3, 3]"},
    {OP_adaptive_max_pool3d, "adaptive_max_pool3d(reshape(x, [1, 2, 2, 2, 3]), 2)",
     "f32[1, 2, 2, 2, 2]"},
    {OP_max_pool1d_indices, "max_pool1d_indices(x, 2)", "i64[4, 3]"},
    {OP_max_pool2d_indices, "max_pool2d_indices(reshape(i, [1, 2, 2]), 2, 1, 1)", "i64[1, 3, 3]"},
    {OP_max_pool3d_indices, "max_pool3d_indices(reshape(x, [1, 2, 2, 2, 3]), 2)",
     "i64[1, 2, 1, 1, 1]"},
    {OP_batch_norm, "batch_norm(x, select(y, 0, 0), select(w, 0, 0))", "f32[4, 6]"},
    {OP_instance_norm, "instance_norm(reshape(x, [2, 3, 4]))", "f32[2, 3, 4]"},
    {OP_group_norm, "group_norm(x, 3)", "f32[4, 6]"},
    {OP_scaled_dot_product_attention, "scaled_dot_product_attention(x, w, w, dropout_p=0.5)",
     "f32[4, 6]"},
    {OP_interpolate, "interpolate(reshape(x, [1, 2, 3, 4]), [5, 4], linear=true)",
     "f32[1, 2, 5, 4]"},
    {OP_reflection_pad, "reflection_pad(x, [1, 2])", "f32[4, 9]"},
    {OP_replication_pad, "replication_pad(x, [0, 3])", "f32[4, 9]"},
    {OP_circular_pad, "circular_pad(reshape(x, [2, 3, 4]), [-1, 2, 3, 0])", "f32[2, 6, 5]"},
    {OP_pixel_shuffle, "pixel_shuffle(reshape(x, [4, 2, 3]), 2)", "f32[1, 4, 6]"},
    {OP_pixel_unshuffle, "pixel_unshuffle(reshape(x, [1, 4, 6]), 2)", "f32[4, 2, 3]"},
    {OP_channel_shuffle, "channel_shuffle(reshape(x, [1, 4, 6]), 2)", "f32[1, 4, 6]"},
    {OP_unfold, "unfold(reshape(x, [1, 2, 3, 4]), 2)", "f32[1, 8, 6]"},
    {OP_fold, "fold(reshape(x, [1, 4, 6]), [3, 4], 2)", "f32[1, 1, 3, 4]"},
};

static const char header[] =
    "graph(x: f32[4, 6], y: f32[4, 6], b: bool[4, 6], i: i64[4], w: f32[5, 6], "
    "v: f32[5], h: f16[3]) {\n  return ";

static void expect_composite(Op op, const char *text, const char *type) {
    Graph *graph = parse(arena_format(arena, "%s%s\n}\n", header, text));
    Node *node = graph->output[0];
    char found[128];
    Meta meta = node_meta(node);
    meta_format(&meta, found, sizeof found);
    if (node->op != op || strcmp(found, type)) fail_msg("%s is %s of %d", text, found, node->op);
    expect_verified(graph);
    assert_true(graph_equal(graph, parse(print(graph))));
    graph_optimize(graph, NULL);
    expect_verified(graph);
    Node **order = graph_order(graph);
    for (int k = 0; k < length(order); k++) {
        OpKind kind = op_info((Op)order[k]->op)->kind;
        if (kind == KIND_COMPOSITE) fail_msg("%s leaves %s", text, op_info((Op)order[k]->op)->name);
    }
    assert_true(graph_equal(graph, parse(print(graph))));
}

static void test_composites(void **state) {
    (void)state;
    for (int op = OP_none + 1; op < OP_COUNT; op++) {
        if (op_info((Op)op)->kind != KIND_COMPOSITE) continue;
        bool listed = false;
        for (size_t k = 0; k < sizeof composite_calls / sizeof *composite_calls; k++) {
            if (composite_calls[k].op != (Op)op) continue;
            listed = true;
            expect_composite((Op)op, composite_calls[k].call, composite_calls[k].type);
        }
        if (listed) continue; /* the others are activations of one tensor */
        expect_composite((Op)op, arena_format(arena, "%s(x)", op_info((Op)op)->name), "f32[4, 6]");
    }
}

static void test_composite_errors(void **state) {
    (void)state;
    static const char *const calls[][2] = {
        {"softmax(x, 2)", "dim 2"},
        {"layer_norm(x, [5])", "not the last ones of x, in layer_norm(f32[4, 6])"},
        {"linear(x, v)", "inner sizes differ"},
        {"dropout(x, 1.5)", "outside of 0..1"},
        {"cross_entropy(x, y + constant(0, f64), 1, 0) * cross_entropy(x, v)",
         "the target must be"},
        {"argmax(x, [0, 1])", "one dim or all"},
        {"repeat(x, 2)", "needs a count"},
        {"one_hot(x, 3)", "needs integers"},
        {"tril(v)", "at least two dimensions"},
        {"roll(x, 1, 7)", "dim 7"},
        {"repeat(x, [1099511627776, 1099511627776])", "too many elements"},
        {"eye(4611686018427387904)", "too many elements"},
    };
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++)
        expect_parse_error(arena_format(arena, "%s%s }", header, calls[k][0]), calls[k][1]);
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
        {"sum(slice(x, 0, 0, 0), 0)", "full([8], 0)"},
        {"amax(full([3, 4], 2))", "constant(2, f32)"},
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

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_arena, close_arena)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_intern),          TEST(test_build),
        TEST(test_random_nodes),    TEST(test_text),
        TEST(test_typed_constants), TEST(test_attributes),
        TEST(test_parse_errors),    TEST(test_order),
        TEST(test_users),           TEST(test_linear_time),
        TEST(test_composites),      TEST(test_composite_errors),
        TEST(test_passes),          TEST(test_structure),
        TEST(test_options),         TEST(test_mutations_survive),
        TEST(test_verifier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
