/* Which kernels are split, and chunks of a kernel on two threads at once: a thread stores its own
 * partial sums and nothing else, not even what was there before. GCC's predictive commoning does
 * that: where sums lie two vectors apart, as those of a variance and of a correction do here, it
 * reads the ones between them and stores them again at the end of the loop. Two in a hundred calls
 * were wrong. */
#include "capture_support.h"
#include "fixture.h"
#include "graph/graph.h"
#include "sched/plan.h"

enum { CHANNELS = 16, CALLS = 3000 };

static cb_module *net;

static cb_tensor *normalized(cb_tensor *x) {
    cb_no_grad_open();
    x = cb_forward(net, x);
    cb_no_grad_close();
    return x;
}

static void threads_store_their_own(void **state) {
    (void)state;
    cb_manual_seed(1);
    net = cb_nn_sequential(cb_nn_conv2d(CHANNELS, CHANNELS, 3, 1, 1, 1, 1, false),
                           cb_nn_batch_norm2d(CHANNELS), cb_nn_relu());
    cb_module_train(net, true);
    cb_tensor *x = cb_randn(cb_dims(CHANNELS, CHANNELS, 8, 8));
    cb_function *fast = cb_compile(normalized, "backend=c");
    int threads = cb_threads(), wrong = 0;
    cb_set_threads(2);
    cb_tensor *first = cb_keep(cb_call(fast, x));
    size_t bytes = (size_t)cb_numel(first) * sizeof(float);
    for (int i = 0; i < CALLS; i++) {
        cb_scope_open();
        cb_tensor *y = cb_call(fast, x);
        wrong += memcmp(cb_data_const(first), cb_data_const(y), bytes) != 0;
        cb_scope_close();
    }
    cb_set_threads(threads);
    assert_int_equal(wrong, 0);
    cb_free(first);
    cb_function_free(fast);
    cb_module_free(net);
}

/* Of softmax over rows; vary: other calls have other rows. */
static int64_t split_of_softmax(int64_t rows, int64_t columns, bool vary) {
    Arena *arena = arena_new();
    assert_false(!arena || arena_guard(arena));
    Graph *graph = graph_parse(
        arena, arena_format(arena, "graph(x: f32[%lld, %lld]) { return softmax(x, dim=1) }",
                            (long long)rows, (long long)columns));
    assert_non_null(graph);
    graph_optimize(graph, NULL);
    PlanOptions options = {.fuse = true, .generate = true, .sizes = {.vary = vary}};
    int64_t *varying = NULL;
    push(arena, varying, rows);
    if (vary) options.sizes.varying = varying;
    int64_t split = plan_build(graph, arena, NULL, options)->kernel[0]->split;
    arena_free(arena);
    return split;
}

/* 11 rows of 1600 are enough for two parts, but where their number varies, other code for 8 of them
 * and for 16 costs more. A row that is worth it is split in any case. */
static void rows_that_vary_are_whole(void **state) {
    (void)state;
    assert_int_equal(split_of_softmax(11, 1600, false), 2);
    assert_int_equal(split_of_softmax(11, 1600, true), 1);
    assert_int_equal(split_of_softmax(16, 1600, false), 1);
    assert_in_range(split_of_softmax(2, 1 << 17, true), 2, 256);
    assert_int_equal(split_of_softmax(2, 1 << 17, true), split_of_softmax(2, 1 << 17, false));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_that_vary_are_whole, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(threads_store_their_own, open_scope, close_scope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
