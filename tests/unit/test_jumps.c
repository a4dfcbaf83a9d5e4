/* longjmp out of the user's functions: the next call of the library, whichever it is and however
 * deep on the stack, finds what was left behind, puts the thread back and says so. What the
 * functions did before they jumped stays done. Exceptions are in tests/cpp/test_unwind.cc. */
#include "capture_support.h"

#include "capture/function.h"
#define fail() _fail(__FILE__, __LINE__) /* cmocka's, for fail_msg */
#include <pthread.h>

static jmp_buf target;
static bool jumps;
static cb_tensor *counter, *memory, *input;
static cb_function *inner;

static void maybe_jump(void) {
    if (jumps) longjmp(target, 1);
}

/* ---- functions that jump --------------------------------------------------------------------- */

static cb_tensor *opens_and_jumps(cb_tensor *x) {
    cb_scope_open();
    cb_autocast_open(CB_BF16);
    cb_add_(counter, 1.0);
    cb_free(memory);
    memory = cb_keep(cb_mul(x, 2.0));
    maybe_jump();
    cb_tensor *y = cb_keep(cb_mul(x, 3.0));
    cb_autocast_close();
    cb_scope_close();
    return cb_scope_add(y);
}

static cb_tensor *adds_and_jumps(cb_tensor *x) {
    cb_add_(counter, 1.0);
    maybe_jump();
    return cb_mul(x, 3.0);
}

static cb_tensor *calls_inner(cb_tensor *x) { return cb_add(cb_call(inner, x), 0.0); }

static cb_tensor *asks_and_jumps(cb_tensor *x) {
    cb_add_(counter, 1.0);
    if (cb_item(cb_sum(x)) > 1e9) return NULL;
    maybe_jump();
    return cb_mul(x, 3.0);
}

static cb_tensor *forward(cb_module *self, cb_tensor *const *x, int count) {
    (void)self, (void)count;
    return opens_and_jumps(x[0]);
}

static cb_tensor *forward_child(cb_module *self, cb_tensor *const *x, int count) {
    (void)count;
    return cb_add(cb_forward(cb_module_child(self, "child"), x[0]), 0.0);
}

static int traced(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = cb_mul(cb_add(in[0], 0.0), 3.0);
    maybe_jump();
    return 1;
}

/* ---- ways to come to them -------------------------------------------------------------------- */

static cb_function *outer, *asking, *whole, *compiled_net;
static cb_module *net;
static cb_graph *graph;

static void by_call(void) { cb_call(inner, input); }
static void by_outer(void) { cb_call(outer, input); }
static void by_asking(void) { cb_call(asking, input); }
static void by_fullgraph(void) { cb_call(whole, input); }
static void by_forward(void) { cb_forward(net, input); }
static void by_compiled_net(void) { cb_call(compiled_net, input); }
static void by_graph(void) {
    cb_tensor *out;
    cb_graph_run(graph, &input, 1, &out, 1);
}
static void by_trace(void) { cb_graph_free(cb_symbolic_trace_function(traced, NULL, 1, NULL)); }
static void by_trace_with(void) {
    cb_graph_free(cb_symbolic_trace_function_with(traced, NULL, NULL, &input, 1));
}

static const struct Way {
    void (*go)(void);
    bool counts;
} ways[] = {{by_call, true},         {by_outer, true}, {by_asking, true}, {by_forward, true},
            {by_compiled_net, true}, {by_graph, true}, {by_trace, false}, {by_trace_with, false}};
enum { WAYS = sizeof ways / sizeof *ways };

/* ---- calls that find it ---------------------------------------------------------------------- */

static void find_by_op(void) { cb_neg(input); }
static void find_by_value(void) { assert_true(cb_item(cb_sum(input)) == 2); }
static void find_by_scope(void) {
    cb_scope_open();
    cb_scope_close();
}
static void find_by_data(void) {
    float data = 1;
    cb_from_data(&data, CB_F32, cb_dims(1));
}
static void find_by_free(void) { cb_free(cb_keep(cb_ones(cb_dims(1)))); }
static void find_by_autocast(void) { assert_int_equal(cb_autocast_dtype(), CB_SAME); }
static void find_by_call(void) { by_call(); }
static void find_by_forward(void) { by_forward(); }
static void find_by_trace(void) { by_trace(); }

static const struct Finder {
    void (*find)(void);
    bool counts;
} finders[] = {{find_by_op, false},   {find_by_value, false},  {find_by_scope, false},
               {find_by_data, false}, {find_by_free, false},   {find_by_autocast, false},
               {find_by_call, true},  {find_by_forward, true}, {find_by_trace, false}};
enum { FINDERS = sizeof finders / sizeof *finders };

/* Deeper on the stack than what was left there, over which it has written. */
static __attribute__((noinline)) void go_deep(void (*find)(void)) {
    volatile char pages[1 << 16];
    memset((char *)pages, 0, sizeof pages);
    find();
    assert_int_equal(pages[77], 0);
}

static void jump_out(void (*go)(void)) {
    jumps = true;
    if (!setjmp(target)) {
        go();
        fail_msg("nobody jumped");
    }
    jumps = false;
}

static double count(void) { return cb_item(counter); }

static void expect_found(const struct Way *way, const struct Finder *finder, bool deep) {
    double before = count();
    cb_scope_open();
    jump_out(way->go);
    if (deep)
        go_deep(finder->find);
    else
        finder->find();
    if (!cb_error() || !strstr(cb_error(), "a jump left a compiled function or a forward"))
        fail_msg("way %d, finder %d: %s", (int)(way - ways), (int)(finder - finders), cb_error());
    cb_clear_error();
    assert_true(count() == before + way->counts + finder->counts);
    if (way->counts) assert_true(cb_item(cb_sum(memory)) == 4);
    assert_int_equal(cb_autocast_dtype(), CB_SAME);
    cb_scope_close();
    assert_null(cb_error());
    cb_scope_close();
    assert_non_null(strstr(cb_error(), "no scope is open in this thread"));
    cb_clear_error();
}

static void make_all(void) {
    input = cb_keep(cb_ones(cb_dims(2)));
    counter = cb_keep(cb_zeros(cb_dims(1)));
    inner = cb_compile(opens_and_jumps, VM);
    outer = cb_compile(calls_inner, VM);
    asking = cb_compile(asks_and_jumps, VM);
    whole = cb_compile(adds_and_jumps, "fullgraph=1, " VM);
    net = cb_module_new("Net", forward_child, NULL);
    cb_module_add(net, "child", cb_module_new("Child", forward, NULL));
    compiled_net = cb_compile(net, VM);
    graph = cb_graph_new(net);
    cb_arg x = cb_arg_node(cb_graph_placeholder(graph, "x"));
    cb_graph_output(graph, cb_arg_node(cb_graph_call_module(graph, "child", &x, 1)));
}

static void free_all(void) {
    cb_function **function[] = {&inner, &outer, &asking, &whole, &compiled_net};
    for (int i = 0; i < 5; i++) cb_function_free(*function[i]);
    cb_graph_free(graph);
    cb_module_free(net);
    cb_free(input);
    cb_free(counter);
    cb_free(memory);
    memory = NULL;
}

/* Every way out, found by every call: while functions are recorded, and while they are replayed. */
static void test_found(void **state) {
    (void)state;
    make_all();
    for (int round = 0; round < 3; round++) {
        for (int way = 0; way < WAYS; way++)
            for (int finder = 0; finder < FINDERS; finder++)
                expect_found(&ways[way], &finders[finder], round == 1);
        cb_scope_open();
        for (int way = 0; way < WAYS; way++) ways[way].go();
        cb_scope_close();
    }
    free_all();
}

static void test_leaves_nothing(void **state) {
    (void)state;
    make_all();
    int64_t live = 0, tensors = 0;
    for (int round = 0; round < 6; round++) {
        for (int way = 0; way < WAYS; way++) expect_found(&ways[way], &finders[0], false);
        cb_scope_open();
        for (int way = 0; way < WAYS; way++) ways[way].go();
        cb_scope_close();
        if (round == 2) live = blocks, tensors = cb_memory().live_tensors;
    }
    assert_int_equal(cb_memory().live_tensors, tensors);
    assert_int_equal(blocks, live);
    free_all();
}

static void call_with_sizes(cb_function *f, int from, int to) {
    for (int n = from; n < to; n++) {
        cb_scope_open();
        cb_call(f, cb_ones(cb_dims(n)));
        cb_scope_close();
    }
}

/* Entries that make room for others go, although a call that stood on one never came back. */
static void test_entries_leave(void **state) {
    (void)state;
    counter = cb_keep(cb_zeros(cb_dims(1)));
    input = cb_keep(cb_ones(cb_dims(150)));
    cb_set_option("entries_mb", "0");
    cb_set_option("passing_sizes", "0");
    inner = cb_compile(adds_and_jumps, "");
    call_with_sizes(inner, 141, 146);
    for (int round = 0; round < 2; round++) {
        jump_out(by_call);
        cb_neg(input);
        assert_non_null(strstr(cb_error(), "a jump left"));
        cb_clear_error();
    }
    call_with_sizes(inner, 146, 190);
    assert_true(cb_stats(inner).graphs > 30);
    assert_null(atomic_load(&inner->left)); /* all that left the list are freed */
    jump_out(by_call);
    cb_function_free(inner); /* whose entry is the call's still */
    assert_non_null(strstr(cb_error(), "a jump left"));
    cb_clear_error();
    assert_true(count() == 49 + 3);
    cb_set_option("entries_mb", "64");
    cb_free(input), cb_free(counter);
    assert_null(cb_error());
}

/* A function that does not become one graph is not done in part. */
static cb_tensor *fails_then_jumps(cb_tensor *x) {
    cb_add_(counter, 1.0);
    cb_item(x);
    maybe_jump();
    return x;
}

static void test_fullgraph(void **state) {
    (void)state;
    make_all();
    jump_out(by_fullgraph);
    find_by_op();
    cb_clear_error();
    assert_true(count() == 1);
    by_fullgraph();
    assert_true(count() == 2);
    cb_function_free(whole);
    cb_free(input);
    input = cb_keep(cb_ones(cb_dims(1)));
    whole = cb_compile(fails_then_jumps, "fullgraph=1, " VM);
    jump_out(by_fullgraph);
    assert_non_null(strstr(cb_error(), "fullgraph: the function asked for a value"));
    cb_clear_error();
    assert_true(count() == 2);
    assert_non_null(strstr(cb_error(), "a jump left"));
    cb_clear_error();
    free_all();
}

/* Jumps that stay inside are none of the library's business. */
static cb_tensor *jumps_inside(cb_tensor *x) {
    cb_add_(counter, 1.0);
    if (setjmp(target)) return cb_mul(x, 3.0);
    cb_exp(x);
    longjmp(target, 1);
}

static void test_inside(void **state) {
    (void)state;
    cb_scope_open();
    counter = cb_zeros(cb_dims(1));
    cb_tensor *x = cb_ones(cb_dims(2));
    cb_function *fast = cb_compile(jumps_inside, VM);
    for (int i = 1; i <= 3; i++) {
        assert_true(cb_item(cb_sum(cb_call(fast, x))) == 6);
        assert_true(count() == i);
    }
    assert_int_equal(cb_stats(fast).graphs, 1);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    assert_null(cb_error());
    cb_function_free(fast);
    cb_scope_close();
}

/* ---- what a function opens and does not close, or closes and has not opened ------------------ */

static int opened;

static cb_tensor *unbalanced(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    for (int i = 0; i < opened; i++) cb_scope_open();
    for (int i = 0; i > opened; i--) cb_scope_close();
    return cb_add(y, cb_mul(y, 2.0));
}

static void test_unbalanced_scopes(void **state) {
    (void)state;
    cb_function *fast = cb_compile(unbalanced, VM);
    cb_tensor *x = cb_keep(cb_ones(cb_dims(2)));
    for (int i = 0; i < 6; i++) {
        cb_scope_open();
        opened = i % 3 - 1;
        cb_tensor *y = cb_call(fast, x);
        if (opened < 0) {
            assert_null(y);
            assert_non_null(strstr(cb_error(), "no scope is open in this compiled function"));
            cb_clear_error();
        } else {
            assert_true(cb_item(cb_sum(y)) == 12);
        }
        cb_scope_close();
        assert_null(cb_error());
        cb_scope_close();
        assert_non_null(strstr(cb_error(), "no scope is open in this thread"));
        cb_clear_error();
    }
    cb_free(x);
    cb_function_free(fast);
}

/* A scope that there was no memory for is forgotten with the others. */
static cb_tensor *opens_without_memory(cb_tensor *x) {
    countdown = 0;
    cb_scope_open();
    countdown = -1;
    cb_clear_error();
    maybe_jump();
    return x;
}

static void test_unopened_scopes(void **state) {
    (void)state;
    input = cb_keep(cb_ones(cb_dims(2)));
    inner = cb_compile(opens_without_memory, VM);
    for (int i = 0; i < 4; i++) {
        cb_scope_open();
        if (i % 2)
            by_call();
        else
            jump_out(by_call);
        cb_neg(input);
        cb_clear_error();
        cb_scope_close();
        assert_null(cb_error());
        cb_scope_close();
        assert_non_null(strstr(cb_error(), "no scope is open in this thread"));
        cb_clear_error();
    }
    cb_function_free(inner);
    cb_free(input);
}

/* A forward is a part of its caller: what it leaves open, its caller may close. */
static cb_tensor *leaves_open(cb_module *self, cb_tensor *const *x, int n) {
    (void)self, (void)n;
    cb_scope_open();
    cb_autocast_open(CB_BF16);
    return cb_neg(x[0]);
}

static void test_forward_leaves_open(void **state) {
    (void)state;
    cb_module *module = cb_module_new("Opens", leaves_open, NULL);
    cb_tensor *x = cb_keep(cb_ones(cb_dims(2)));
    assert_true(cb_item(cb_sum(cb_forward(module, x))) == -2);
    assert_int_equal(cb_autocast_dtype(), CB_BF16);
    cb_autocast_close();
    cb_scope_close();
    assert_null(cb_error());
    assert_int_equal(cb_autocast_dtype(), CB_SAME);
    cb_scope_close();
    assert_non_null(strstr(cb_error(), "no scope is open in this thread"));
    cb_clear_error();
    cb_free(x);
    cb_module_free(module);
}

/* A thread may end in the middle of a function. */
static cb_tensor *ends_thread(cb_tensor *x) {
    cb_scope_open();
    cb_add_(counter, 1.0);
    cb_exp(x);
    pthread_exit(NULL);
}

static void *call_and_end(void *user) {
    cb_tensor *x = user;
    cb_call(outer, x); /* which calls inner: two functions end with the thread */
    return user;
}

static void test_thread_ends(void **state) {
    (void)state;
    cb_tensor *x = cb_keep(cb_ones(cb_dims(2)));
    counter = cb_keep(cb_zeros(cb_dims(1)));
    inner = cb_compile(ends_thread, VM);
    outer = cb_compile(calls_inner, VM);
    int64_t live = 0, tensors = 0;
    for (int i = 1; i <= 4; i++) {
        pthread_t thread;
        void *result = x;
        assert_int_equal(pthread_create(&thread, NULL, call_and_end, x), 0);
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_null(result);
        assert_true(count() == i);
        if (i == 2) live = blocks, tensors = cb_memory().live_tensors;
    }
    assert_int_equal(cb_memory().live_tensors, tensors);
    assert_int_equal(blocks, live);
    cb_function_free(inner);
    cb_function_free(outer);
    cb_free(x);
    cb_free(counter);
}

/* A forward may close its caller's scope, and jump then: that scope stays closed. */
static cb_tensor *closes_and_jumps(cb_module *self, cb_tensor *const *x, int n) {
    (void)self, (void)n;
    cb_scope_close();
    maybe_jump();
    return cb_neg(x[0]);
}

static void test_forward_closes(void **state) {
    (void)state;
    net = cb_module_new("Closes", closes_and_jumps, NULL);
    input = cb_keep(cb_ones(cb_dims(2)));
    cb_scope_open();
    cb_tensor *mine = cb_neg(input);
    jump_out(by_forward);
    cb_neg(input);
    assert_non_null(strstr(cb_error(), "a jump left a compiled function or a forward"));
    cb_clear_error();
    assert_int_equal(cb_rank(mine), -1);
    cb_clear_error();
    cb_scope_close();
    assert_non_null(strstr(cb_error(), "no scope is open in this thread"));
    cb_clear_error();
    cb_module_free(net);
    cb_free(input);
}

/* The function catches the jump of another one that it calls, and goes on. */
static cb_tensor *catches(cb_tensor *x) {
    volatile bool jumped = setjmp(target);
    if (!jumped) return cb_call(inner, x);
    cb_tensor *y = cb_add(x, 1.0); /* finds it */
    cb_clear_error();
    return cb_mul(y, 2.0);
}

static void test_caught_inside(void **state) {
    (void)state;
    input = cb_keep(cb_ones(cb_dims(2)));
    counter = cb_keep(cb_zeros(cb_dims(1)));
    inner = cb_compile(adds_and_jumps, VM);
    outer = cb_compile(catches, VM);
    for (int i = 1; i <= 3; i++) {
        cb_scope_open();
        jumps = true;
        cb_tensor *y = cb_call(outer, input);
        assert_non_null(y);
        assert_true(cb_item(cb_sum(y)) == 8);
        assert_null(cb_error());
        assert_true(count() == i);
        cb_scope_close();
    }
    jumps = false;
    cb_function_free(inner);
    cb_function_free(outer);
    cb_free(input);
    cb_free(counter);
}

/* cb_cleanup frees nothing while a function runs that may need it. */
static cb_tensor *cleans(cb_tensor *x) {
    cb_cleanup();
    return x;
}
static cb_tensor *cleans_forward(cb_module *self, cb_tensor *const *x, int n) {
    (void)self, (void)n;
    return cleans(x[0]);
}
static int cleans_traced(cb_tensor *const *in, int n, cb_tensor **out, void *user) {
    (void)n, (void)user;
    out[0] = cleans(in[0]);
    return 1;
}
static void cleans_visited(const char *name, cb_tensor *x, bool buffer, void *user) {
    (void)name, (void)x, (void)buffer, (void)user;
    cb_cleanup();
}

static cb_function *itself;

static cb_tensor *frees_itself(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    cb_function_free(itself);
    if (cb_error() && strstr(cb_error(), "free: the compiled function runs")) cb_clear_error();
    return y;
}

/* Traced, and where calls run it as it is. */
static void test_free_inside(void **state) {
    (void)state;
    cb_tensor *x = cb_keep(cb_ones(cb_dims(2)));
    itself = cb_compile(frees_itself, VM);
    for (int i = 0; i < 6; i++) {
        cb_scope_open();
        cb_set_option("stance", i % 2 ? "force_eager" : "default");
        assert_true(cb_item(cb_sum(cb_call(itself, x))) == 4);
        cb_scope_close();
    }
    cb_set_option("stance", "default");
    cb_function_free(itself);
    cb_free(x);
    assert_null(cb_error());
}

static void expect_cleanup_said(void) {
    assert_non_null(cb_error());
    assert_non_null(strstr(cb_error(), "cleanup: a compiled function or a forward runs"));
    cb_clear_error();
}

static void test_cleanup_inside(void **state) {
    (void)state;
    input = cb_keep(cb_ones(cb_dims(2)));
    inner = cb_compile(cleans, VM), whole = cb_compile(cleans, "fullgraph=1, " VM);
    outer = cb_compile(calls_inner, VM);
    net = cb_module_new("Cleans", cleans_forward, NULL);
    cb_module_parameter(net, "p", cb_ones(cb_dims(2)));
    for (int i = 0; i < 2; i++) {
        assert_null(cb_call(inner, input));
        expect_cleanup_said();
        assert_null(cb_call(outer, input));
        expect_cleanup_said();
        assert_null(cb_call(whole, input));
        expect_cleanup_said();
        cb_scope_open();
        cb_forward(net, input);
        cb_scope_close();
        expect_cleanup_said();
        cb_module_visit(net, cleans_visited, NULL);
        expect_cleanup_said();
        assert_null(cb_symbolic_trace_function(cleans_traced, NULL, 1, NULL));
        expect_cleanup_said();
    }
    assert_true(cb_item(cb_sum(input)) == 2);
    cb_function_free(inner), cb_function_free(outer), cb_function_free(whole);
    cb_module_free(net);
    cb_free(input);
}

/* ---- functions that call themselves --------------------------------------------------------- */

static int levels;

static cb_tensor *calls_itself(cb_tensor *x) {
    return levels-- ? cb_add(cb_call(itself, cb_mul(x, 1.0)), 1.0) : cb_mul(x, 2.0);
}

static int calls_itself_n(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)user;
    if (!levels--) return out[0] = cb_mul(in[0], 2.0), 1;
    return cb_call_n(itself, in, count, out, 1) == 1 ? 1 : -1;
}

static cb_tensor *forward_itself(cb_module *self, cb_tensor *const *in, int count) {
    (void)count;
    return levels-- ? cb_forward(self, in[0]) : cb_mul(in[0], 2.0);
}

static int checkpoints_itself(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    out[0] = levels-- ? cb_checkpoint(checkpoints_itself, user, in, count) : cb_mul(in[0], 2.0);
    return out[0] ? 1 : -1;
}

enum { STACK = 1536 << 10, LEVELS = 150 }; /* 8.5 KB for each, behind what is left for the last */

static bool is_deep_and_ends(cb_tensor *x) {
    levels = LEVELS;
    cb_tensor *y = cb_call(itself, x);
    bool deep = y && levels == -1 && !cb_error();
    levels = INT_MAX;
    bool ends = !cb_call(itself, x) && cb_error() && strstr(cb_error(), "the stack ends soon");
    cb_clear_error();
    cb_function_free(itself);
    return deep && ends;
}

static void *nest(void *state) {
    bool *good = state;
    cb_scope_open();
    cb_tensor *x = cb_ones(cb_dims(2));
    cb_module *nested = cb_module_new("Nested", forward_itself, NULL);
    *good = true;
    for (int i = 0; i < 2; i++) { /* compiled, and op by op */
        cb_set_option("stance", i ? "force_eager" : "default");
        itself = cb_compile(calls_itself, VM);
        *good &= is_deep_and_ends(x);
        itself = cb_compile_n(calls_itself_n, NULL, VM);
        *good &= is_deep_and_ends(x);
        itself = cb_compile(nested, VM);
        *good &= is_deep_and_ends(x);
        itself = cb_compile_n(checkpoints_itself, NULL, VM);
        *good &= is_deep_and_ends(x);
    }
    cb_set_option("stance", "default");
    cb_module_free(nested);
    cb_scope_close();
    return NULL;
}

static void test_calls_itself(void **state) {
    (void)state;
    pthread_t thread;
    pthread_attr_t attributes;
    bool good = false;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, STACK), 0);
    assert_int_equal(pthread_create(&thread, &attributes, nest, &good), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    assert_true(good);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),           cmocka_unit_test(test_leaves_nothing),
        cmocka_unit_test(test_entries_leave),   cmocka_unit_test(test_fullgraph),
        cmocka_unit_test(test_inside),          cmocka_unit_test(test_unbalanced_scopes),
        cmocka_unit_test(test_unopened_scopes), cmocka_unit_test(test_forward_leaves_open),
        cmocka_unit_test(test_thread_ends),     cmocka_unit_test(test_forward_closes),
        cmocka_unit_test(test_caught_inside),   cmocka_unit_test(test_cleanup_inside),
        cmocka_unit_test(test_free_inside),     cmocka_unit_test(test_calls_itself),
    };
    return run_counted(tests);
}
