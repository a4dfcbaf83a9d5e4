/* FX without memory: every edit, trace and run says so, leaves the graph as it was and nothing
 * behind. */
#include "fx_support.h"

/* The arena holds no more, and gets no more. */
static void exhaust(Arena *arena) {
    allocations_left = 0;
    if (arena_guard(arena)) return;
    for (;;) (void)arena_alloc(arena, 16);
}

static void expect_out_of_memory(void) {
    allocations_left = -1;
    assert_int_equal(cb_error_status(), CB_ERR_MEMORY);
    cb_clear_error();
}

#define WITHOUT_MEMORY(graph, expression, expected)                                                \
    do {                                                                                           \
        exhaust((graph)->arena);                                                                   \
        bool same = (expression) == (expected);                                                    \
        expect_out_of_memory();                                                                    \
        assert_true(same);                                                                         \
    } while (0)

static const char *const text_of_graph =
    "graph():\n"
    "    %x : [num_users=2] = placeholder[target=x]\n"
    "    %exp : [num_users=1] = call_method[target=exp](args = (%x,), kwargs = {})\n"
    "    %add : [num_users=1] = call_function[target=operator.add](args = (%exp, %x), kwargs = "
    "{})\n"
    "    return add";

static void edits_without_memory(void **state) {
    (void)state;
    cb_graph *graph = parse(text_of_graph);
    cb_graph *pattern =
        parse("graph():\n"
              "    %x : [num_users=1] = placeholder[target=x]\n"
              "    %exp : [num_users=1] = call_method[target=exp](args = (%x,), kwargs = {})\n"
              "    return exp");
    cb_node *x = cb_graph_find(graph, "x"), *exp = cb_graph_find(graph, "exp");
    cb_arg args[] = {cb_arg_node(x)}, list = cb_arg_list(args, 1);
    WITHOUT_MEMORY(graph, cb_graph_call_method(graph, "relu", args, 1), NULL);
    WITHOUT_MEMORY(graph, cb_node_set_arg(exp, 1, list), CB_ERR_MEMORY);
    WITHOUT_MEMORY(graph, cb_node_set_kwarg(exp, "dim", list), CB_ERR_MEMORY);
    WITHOUT_MEMORY(graph, cb_node_set_target(exp, "sin"), CB_ERR_MEMORY);
    WITHOUT_MEMORY(graph, cb_node_replace_all_uses(x, exp), CB_ERR_MEMORY);
    WITHOUT_MEMORY(graph, cb_graph_replace_pattern(graph, pattern, pattern), CB_ERR_MEMORY);
    expect_text(cb_graph_text(graph), text_of_graph);
    exhaust(graph->arena); /* taking away needs none */
    assert_int_equal(cb_graph_erase(graph, cb_graph_last(graph)), CB_OK);
    assert_int_equal(cb_graph_dead_code(graph), 2);
    allocations_left = -1;
    assert_int_equal(cb_graph_node_count(graph), 1);
    expect_no_error();
    cb_graph_free(graph), cb_graph_free(pattern);
}

/* What is done when memory ends: in a forward, with everything that the trace knows of it. */
typedef enum { OP, ASSIGN, MODULE, SPLICE, OUTPUT, ENDS } FxEnd;

static struct {
    FxEnd end;
    cb_module *leaf;
} current;

static cb_tensor *ends_with(cb_module *self, cb_tensor *const *in, int count) {
    (void)self, (void)count;
    cb_tensor *pair[] = {in[0], in[0]}, *half = cb_cat(pair, 2, 0);
    cb_tensor *whole[] = {half, in[0]}, *all = cb_cat(whole, 2, 0);
    cb_tensor *negative = cb_neg(in[0]);
    const FxNode *node = tensor_in(in[0], "test")->value;
    exhaust(node->graph->arena);
    if (current.end == OP) all = cb_relu(all);
    if (current.end == ASSIGN) all = cb_assign(in[0], negative);
    if (current.end == MODULE) all = cb_forward(current.leaf, in[0]);
    if (current.end == SPLICE) cb_free(half);
    return all;
}

static cb_tensor *identity(cb_module *self, cb_tensor *const *in, int count) {
    (void)self, (void)count;
    return cb_neg(in[0]);
}

static void traces_without_memory(void **state) {
    (void)state;
    cb_module *net = cb_module_new("Net", ends_with, NULL);
    current.leaf = cb_module_new("Leaf", identity, NULL);
    cb_module_set_leaf(current.leaf, true);
    cb_module_add(net, "leaf", current.leaf);
    cb_tensor *x = cb_ones(cb_dims(2));
    int64_t before = cb_memory().live_tensors;
    for (int k = 0; k < 2 * ENDS; k++) {
        current.end = k / 2;
        cb_graph *graph = k % 2 ? cb_symbolic_trace_with(net, &x, 1) : cb_symbolic_trace(net);
        expect_out_of_memory();
        assert_null(graph);
        assert_int_equal(cb_memory().live_tensors, before);
    }
    cb_module_free(net);
}

/* ---- every allocation ----------------------------------------------------------------------- */

static cb_tensor *constant;

static int uses_everything(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *parts[] = {in[0], constant, in[0], constant}, *all = cb_cat(parts, 4, 0);
    cb_add_(in[0], 1);
    cb_tensor *fresh = cb_ones(cb_dims(3));
    out[0] = cb_add(all, cb_slice(fresh, 0, 0, 1));
    out[1] = constant;
    return 2;
}

static cb_tensor *leaf_and_weight(cb_module *self, cb_tensor *const *in, int count) {
    (void)count;
    return cb_mul(cb_forward(cb_module_child(self, "leaf"), in[0]), cb_module_get(self, "weight"));
}

/* A name of more than a chunk for each input. */
static char long_names[8 * 3000];

static bool trace_with_constants(void) {
    cb_tensor *x = cb_ones(cb_dims(3));
    cb_graph *graph = x ? cb_symbolic_trace_function_with(uses_everything, NULL, "x", &x, 1) : NULL;
    cb_graph *copy = graph ? cb_graph_copy(graph) : NULL, *plain = NULL;
    char *code = copy ? cb_graph_code(copy, "f") : NULL;
    cb_tensor *out[2];
    bool good = code && cb_graph_run(copy, &x, 1, out, 2) == 2;
    if (good) plain = cb_symbolic_trace_function(uses_everything, NULL, 1, long_names);
    good = good && plain && cb_graph_lint(copy) == CB_OK;
    cb_free_text(code);
    cb_graph_free(graph), cb_graph_free(copy), cb_graph_free(plain);
    return good;
}

static cb_module *network;

static bool trace_network(void) {
    cb_tensor *x = cb_ones(cb_dims(2));
    cb_graph *graph = x ? cb_symbolic_trace_with(network, &x, 1) : NULL;
    bool good = graph && cb_graph_propagate_shapes(graph, &x, 1) == CB_OK;
    cb_graph_free(graph);
    return good;
}

static bool trace_many_inputs(void) {
    cb_graph *graph = cb_symbolic_trace_function(three_ways, NULL, 8, long_names);
    cb_graph_free(graph);
    return graph;
}

/* Tensors come in blocks: the next count ones need none, the one after that a new block. */
static void leave_tensors(int count) {
    static cb_tensor *view[1 << 16];
    int views = 0;
    view[0] = cb_ones(cb_dims(1));
    allocations_left = 0;
    while (view[views] && views + 1 < (int)(sizeof view / sizeof *view)) {
        views++;
        view[views] = cb_slice(view[0], 0, 0, 1);
    }
    assert_null(view[views]);
    expect_out_of_memory();
    while (count-- > 0 && views-- > 1) cb_free(view[views]);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    bool (*const cases[])(void) = {trace_with_constants, trace_network, trace_many_inputs};
    enum { CASES = sizeof cases / sizeof *cases, FILLS = 10 };
    memset(long_names, 'n', sizeof long_names - 1);
    for (int i = 1; i < 8; i++) long_names[i * 3000] = ',';
    constant = cb_keep(cb_ones(cb_dims(3)));
    network = cb_module_new("Net", leaf_and_weight, NULL);
    cb_module_parameter(network, "weight", cb_ones(cb_dims(2)));
    cb_module *leaf = cb_module_new("Leaf", identity, NULL);
    cb_module_set_leaf(leaf, true);
    cb_module_add(network, "leaf", leaf);
    for (int i = 0; i < CASES * FILLS; i++) {
        cb_cleanup();
        int64_t before = cb_memory().live_tensors;
        bool done = false;
        for (int limit = 0; limit < 600 && !done; limit++) {
            cb_scope_open();
            leave_tensors(i / CASES);
            allocations_left = limit;
            done = cases[i % CASES]();
            allocations_left = -1;
            if (!done) assert_int_equal(cb_error_status(), CB_ERR_MEMORY);
            cb_clear_error();
            cb_scope_close();
            cb_cleanup(); /* what is kept for the next tensor is freed: it is allocated again */
            if (cb_memory().live_tensors != before)
                print_error("way %d, limit %d\n", (int)i, limit);
            assert_int_equal(cb_memory().live_tensors, before);
        }
        assert_true(done);
    }
    cb_free(constant);
    cb_module_free(network);
}

int main(void) {
    cb_set_allocator((cb_allocator){failing_resize, NULL});
    const struct CMUnitTest tests[] = {
        ONE(edits_without_memory),
        ONE(traces_without_memory),
        ONE(every_allocation_may_fail),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
