// Exceptions out of the user's functions: whatever the library had open for them is as it was before
// the call, and what they did before they threw stays done. Exits 0 when all of it is right.
#include "../settle.h"

#include <carbide.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

static int failures = 0;

static void expect(const std::string &what, bool right) {
    if (right) return;
    std::fprintf(stderr, "test_unwind: %s: %s\n", what.c_str(), cb_error() ? cb_error() : "wrong");
    failures++;
}

static long blocks = 0;

static void *counting_resize(void *, void *pointer, size_t bytes) {
    if (bytes == 0) {
        if (pointer) blocks--;
        std::free(pointer);
        return nullptr;
    }
    void *grown = std::realloc(pointer, bytes);
    if (grown && !pointer) blocks++;
    return grown;
}

// ---- functions that throw when they are told to -------------------------------------------------

static bool throws = false;
static cb_tensor *counter = nullptr, *kept = nullptr;
static cb_function *inner = nullptr;

static void maybe_throw() {
    if (throws) throw std::runtime_error("thrown");
}

static cb_tensor *opens_and_throws(cb_tensor *x) {
    cb_scope_open();
    cb_autocast_open(CB_BF16);
    cb_tensor *y = cb_mul(x, 2.0);
    cb_add_(counter, 1.0);
    cb_free(kept);
    kept = cb_keep(cb_add(y, 1.0));
    cb_scope_open();
    cb_exp(y);
    maybe_throw();
    cb_scope_close();
    cb_tensor *z = cb_keep(cb_mul(y, 3.0));
    cb_autocast_close();
    cb_scope_close();
    return cb_scope_add(z);
}

static cb_tensor *calls_inner(cb_tensor *x) { return cb_add(cb_call(inner, cb_mul(x, 1.0)), 0.0); }

// The caller goes on: what came before in the same trace is not lost.
static cb_tensor *catches_inner(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 1.0);
    try {
        y = cb_call(inner, y);
    } catch (const std::runtime_error &) {
        if (cb_autocast_dtype() != CB_SAME) return nullptr;
        y = cb_add(y, 100.0);
    }
    return cb_add(y, 0.0);
}

static cb_tensor *asks_and_throws(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 6.0);
    cb_add_(counter, cb_item(cb_sum(y)) > 1e9 ? 0.0 : 1.0);
    maybe_throw();
    return y;
}

static cb_tensor *throws_at_once(cb_tensor *x) {
    cb_add_(counter, 1.0);
    maybe_throw();
    return cb_mul(x, 6.0);
}

static cb_tensor *forward(cb_module *, cb_tensor *const *x, int) { return opens_and_throws(x[0]); }

static cb_tensor *forward_child(cb_module *self, cb_tensor *const *x, int) {
    return cb_mul(cb_forward(cb_module_child(self, "child"), x[0]), 1.0);
}

static int graph_function(cb_tensor *const *in, int, cb_tensor **out, void *) {
    out[0] = cb_mul(cb_add(in[0], 0.0), 6.0);
    maybe_throw();
    return 1;
}

static void visitor(const char *, cb_tensor *, bool, void *) { maybe_throw(); }

// ---- what must be as it was ---------------------------------------------------------------------

template <typename Call> static bool throws_out(Call call) {
    try {
        call();
    } catch (const std::runtime_error &) {
        return true;
    }
    return false;
}

static void expect_value(cb_tensor *y, double value) {
    expect("value", y && std::fabs(cb_item(cb_sum(y)) - value) < 0.02 * value); // bf16
}

// Calls that return and throw in turn. Each adds one to the counter, as eager would have, and leaves
// the thread as it was: ops are eager, no scope, no autocast and no tensor is left over.
template <typename Call>
static void expect_unwound(const std::string &what, const std::string &turns, Call call,
                           bool counts = true) {
    int64_t tensors = 0;
    long live = 0;
    for (size_t i = 0; i < turns.size(); i++) {
        double before = cb_item(counter);
        throws = turns[i] == 't';
        cb_scope_open();
        expect(what + ": thrown", throws_out(call) == throws);
        expect(what + ": no error", !cb_error());
        cb_scope_close();
        throws = false;
        expect(what + ": no autocast", cb_autocast_dtype() == CB_SAME);
        cb_scope_close();
        expect(what + ": no scope", cb_error_status() == CB_ERR_ARGUMENT);
        cb_clear_error();
        expect(what + ": effects", cb_item(counter) == before + counts);
        if (i == 1) tensors = cb_memory().live_tensors; // by then all is compiled and kept
        if (i > 1) expect(what + ": tensors", cb_memory().live_tensors == tensors);
        if (i == turns.size() / 2) live = blocks;
        if (i > turns.size() / 2) expect(what + ": blocks", blocks == live);
    }
}

static void test_functions(const char *options) {
    cb_tensor *x = cb_keep(cb_full(cb_dims(2), 1.0, CB_F32));
    for (const char *turns : {"rtrtttrtrtrt", "ttrrtttttrtt"}) {
        inner = cb_compile(opens_and_throws, options);
        cb_function *fast = cb_compile(calls_inner, options);
        cb_function *asking = cb_compile(asks_and_throws, options);
        expect_unwound("a function", turns, [&] { expect_value(cb_call(inner, x), 12); });
        expect_unwound("one in another", turns, [&] { expect_value(cb_call(fast, x), 12); });
        expect_unwound("an eager one", turns, [&] { expect_value(cb_call(asking, x), 12); });
        cb_function_free(fast);
        cb_function_free(asking);
        cb_function *catching = cb_compile(catches_inner, options);
        for (const char *turn = turns; *turn; turn++) {
            throws = *turn == 't';
            cb_scope_open();
            expect_value(cb_call(catching, x), throws ? 202 : 12);
            cb_scope_close();
        }
        throws = false;
        expect("caught inside", !cb_error());
        cb_function_free(catching);
        cb_function_free(inner);
    }
    cb_free(x);
}

static void test_fullgraph() {
    cb_tensor *x = cb_keep(cb_full(cb_dims(2), 1.0, CB_F32));
    cb_function *fast = cb_compile(throws_at_once, "fullgraph=1, backend=vm");
    expect_unwound("fullgraph", "tttttt", [&] { expect_value(cb_call(fast, x), 12); });
    expect_unwound("fullgraph", "rrr", [&] { expect_value(cb_call(fast, x), 12); });
    cb_function_free(fast);
    cb_free(x);
}

static void test_modules() {
    cb_tensor *x = cb_keep(cb_full(cb_dims(2), 1.0, CB_F32));
    cb_module *net = cb_module_new("Net", forward_child, nullptr);
    cb_module_add(net, "child", cb_module_new("Child", forward, nullptr));
    cb_module_parameter(net, "weight", cb_ones(cb_dims(1)));
    cb_function *fast = cb_compile(net, "backend=vm");
    for (const char *turns : {"rtrtttrtrtrt", "ttrrtttttrtt"}) {
        expect_unwound("a forward", turns, [&] { expect_value(cb_forward(net, x), 12); });
        expect_unwound("a module", turns, [&] { expect_value(cb_call(fast, x), 12); });
        expect_unwound(
            "a visit", turns, [&] { cb_module_visit(net, visitor, nullptr); }, false);
    }
    cb_function_free(fast);
    cb_module_free(net);
    cb_free(x);
}

static void test_graphs() {
    cb_tensor *x = cb_keep(cb_full(cb_dims(2), 1.0, CB_F32)), *out;
    cb_module *net = cb_module_new("Net", forward_child, nullptr);
    cb_module_add(net, "child", cb_module_new("Child", forward, nullptr));
    cb_graph *graph = cb_graph_new(net);
    cb_node *input = cb_graph_placeholder(graph, "x");
    cb_arg argument = cb_arg_node(input);
    cb_arg result = cb_arg_node(cb_graph_call_module(graph, "child", &argument, 1));
    cb_graph_output(graph, result);
    for (const char *turns : {"rtrtttrtrtrt", "ttrrtttttrtt"}) {
        auto trace = [&] {
            cb_graph_free(cb_symbolic_trace_function(graph_function, nullptr, 1, "x"));
        };
        auto trace_with = [&] {
            cb_graph_free(cb_symbolic_trace_function_with(graph_function, nullptr, "x", &x, 1));
        };
        auto run = [&] {
            if (cb_graph_run(graph, &x, 1, &out, 1) == 1) expect_value(out, 12);
        };
        auto propagate = [&] { cb_graph_propagate_shapes(graph, &x, 1); };
        expect_unwound("a symbolic trace", turns, trace, false);
        expect_unwound("one with examples", turns, trace_with, false);
        expect_unwound("a graph", turns, run);
        expect_unwound("its shapes", turns, propagate);
    }
    cb_graph_free(graph);
    cb_module_free(net);
    cb_free(x);
}

int main() {
    cb_set_allocator({counting_resize, nullptr});
    counter = cb_keep(cb_zeros(cb_dims(1)));
    settle_slots();
    // The library remembers the last 64 that were freed (src/base/tomb.h): now it holds so many.
    for (int i = 0; i < 64; i++) cb_function_free(cb_compile(calls_inner));
    test_functions("backend=vm");
    test_functions("backend=vm, freeze=1");
    test_fullgraph();
    test_modules();
    test_graphs();
    cb_free(counter);
    cb_free(kept);
    expect("no error", !cb_error());
    cb_cleanup();
    expect("nothing leaks", blocks == 0);
    return failures != 0;
}
