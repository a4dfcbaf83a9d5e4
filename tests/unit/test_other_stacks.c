/* A function of the user's that runs on a stack of its own, a coroutine, and is left for the main
 * stack, which calls the library: that takes the function for one that a jump left, and says so.
 * When the function goes on and returns, what called it gives an error, and touches nothing that
 * was put back. */
#include "capture_support.h"
#include <ucontext.h>

static ucontext_t main_stack, own_stack;
static bool leaves;
static cb_tensor *input;
static cb_module *net;

static void maybe_leave(void) {
    if (!leaves) return;
    leaves = false;
    swapcontext(&own_stack, &main_stack);
}

static cb_tensor *adds_and_leaves(cb_tensor *x) {
    cb_tensor *y = cb_add(x, 1.0);
    maybe_leave();
    return cb_mul(y, 3.0);
}

static cb_tensor *forward(cb_module *self, cb_tensor *const *x, int count) {
    (void)self, (void)count;
    return adds_and_leaves(x[0]);
}

static cb_tensor *forward_child(cb_module *self, cb_tensor *const *x, int count) {
    (void)count;
    return cb_forward(cb_module_child(self, "child"), x[0]);
}

static int traced(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = adds_and_leaves(in[0]);
    return 1;
}

static void visit(const char *name, cb_tensor *tensor, bool buffer, void *user) {
    (void)name, (void)tensor, (void)buffer, (void)user;
    maybe_leave();
}

/* ---- ways to come to them: true when there is a result --------------------------------------- */

static bool call(const char *options) {
    cb_function *fast = cb_compile(adds_and_leaves, options);
    cb_tensor *y = cb_call(fast, input);
    cb_function_free(fast);
    return y;
}
static bool by_call(void) { return call(VM); }
static bool by_fullgraph(void) { return call("fullgraph=1, " VM); }
static bool by_forward(void) { return cb_forward(net, input); }
static bool by_compiled_net(void) {
    cb_function *fast = cb_compile(net, VM);
    cb_tensor *y = cb_call(fast, input);
    cb_function_free(fast);
    return y;
}
static bool by_graph(void) {
    cb_graph *graph = cb_graph_new(net);
    cb_arg x = cb_arg_node(cb_graph_placeholder(graph, "x"));
    cb_graph_output(graph, cb_arg_node(cb_graph_call_module(graph, "child", &x, 1)));
    cb_tensor *out;
    int count = cb_graph_run(graph, &input, 1, &out, 1);
    cb_graph_free(graph);
    return count == 1;
}
static bool given(cb_graph *graph) {
    cb_graph_free(graph);
    return graph;
}
static bool by_trace(void) { return given(cb_symbolic_trace_function(traced, NULL, 1, NULL)); }
static bool by_trace_with(void) {
    return given(cb_symbolic_trace_function_with(traced, NULL, NULL, &input, 1));
}
static bool by_traced_leaf(void) { return given(cb_symbolic_trace_with(net, &input, 1)); }
static bool by_visit(void) {
    cb_module_visit(net, visit, NULL);
    return !cb_error();
}

static bool (*const ways[])(void) = {by_call,         by_fullgraph,   by_forward,
                                     by_compiled_net, by_graph,       by_trace,
                                     by_trace_with,   by_traced_leaf, by_visit};
enum { WAYS = sizeof ways / sizeof *ways, STACK_BYTES = 4 << 20 };

static bool (*go)(void);
static bool given_anything;
static void run_way(void) { given_anything = go(); }

static void test_functions_that_are_left(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_because("sanitizers know nothing of this stack");
#endif
    void *stack = malloc(STACK_BYTES);
    input = cb_keep(cb_ones(cb_dims(2)));
    net = cb_module_new("Net", forward_child, NULL);
    cb_module *child = cb_module_new("Child", forward, NULL);
    cb_module_set_leaf(child, true);
    cb_module_add(net, "child", child);
    cb_module_parameter(net, "weight", cb_ones(cb_dims(2)));
    for (int round = 0; round < 2 * WAYS; round++) {
        cb_scope_open();
        getcontext(&own_stack);
        own_stack.uc_stack = (stack_t){.ss_sp = stack, .ss_size = STACK_BYTES};
        own_stack.uc_link = &main_stack;
        makecontext(&own_stack, run_way, 0);
        go = ways[round / 2];
        leaves = round % 2 == 0;
        swapcontext(&main_stack, &own_stack);
        if (round % 2 == 0) {
            assert_false(leaves);
            assert_true(cb_item(cb_sum(input)) == 2);
            swapcontext(&main_stack, &own_stack);
        }
        if (given_anything != (round % 2 == 1)) fail_msg("way %d: %s", round / 2, cb_error());
        assert_int_equal(cb_error() != NULL, round % 2 == 0);
        if (cb_error())
            assert_non_null(strstr(cb_error(), "a jump left a compiled function or a forward"));
        cb_clear_error();
        assert_int_equal(cb_autocast_dtype(), CB_SAME);
        cb_scope_close();
        assert_null(cb_error());
    }
    cb_module_free(net);
    cb_free(input);
    free(stack);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_functions_that_are_left)};
    return run_counted(tests);
}
