/* cb_explain reads: it leaves no memory behind, threads may call it at once and beside calls of the
 * function, and memory may run out in it. */
#include "capture_support.h"
#include <pthread.h>

enum { READERS = 4, ROUNDS = 25 };

static cb_tensor *network(cb_tensor *x) {
    cb_tensor *y = cb_softmax(gelu(x), 1);
    cb_tensor *z = cb_matmul(cb_transpose(y, 0, 1), x);
    cb_add_(x, 1.0);
    return cb_sum(cb_mul(z, 2.0), 0);
}

static cb_function *compiled(cb_tensor *x) {
    cb_function *fast = cb_compile(network, VM);
    assert_non_null(cb_call(fast, x));
    return fast;
}

static void test_leaves_nothing(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = compiled(ramp(4, 8));
    int64_t before = blocks;
    for (int i = 0; i < ROUNDS; i++) {
        char *text = cb_explain(fast);
        assert_non_null(strstr(text, "graph(arg0: f32[4, 8]) {"));
        cb_free_text(text);
        assert_int_equal(blocks, before);
    }
    cb_function_free(fast);
    cb_scope_close();
}

/* From the first entry on: the numbers before count calls. */
static const char *entries(const char *text) { return strstr(text, "\nentry 0"); }

typedef struct LineReader {
    cb_function *fast;
    const char *expected;
    int equal;
} LineReader;

static void *read_often(void *user) {
    LineReader *reader = user;
    for (int i = 0; i < ROUNDS; i++) {
        char *text = cb_explain(reader->fast);
        reader->equal += text && !strcmp(entries(text), reader->expected);
        cb_free_text(text);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = ramp(4, 8);
    cb_function *fast = compiled(x);
    char *text = cb_explain(fast);
    pthread_t thread[READERS];
    LineReader reader[READERS];
    for (int i = 0; i < READERS; i++) {
        reader[i] = (LineReader){fast, entries(text), 0};
        assert_int_equal(pthread_create(&thread[i], NULL, read_often, &reader[i]), 0);
    }
    for (int i = 0; i < ROUNDS; i++) assert_non_null(cb_call(fast, x));
    for (int i = 0; i < READERS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(reader[i].equal, ROUNDS);
    }
    cb_free_text(text);
    cb_function_free(fast);
    cb_scope_close();
}

static void read_without_memory(char *(*explain)(cb_function *), const char *begin) {
    cb_scope_open();
    cb_function *fast = compiled(ramp(4, 8));
    int64_t before = blocks;
    char *text = NULL;
    int failures = 0;
    for (int64_t limit = 0; !text; limit++) {
        countdown = limit;
        text = explain(fast);
        countdown = -1;
        if (text) break;
        failures++;
        assert_int_equal(cb_error_status(), CB_ERR_MEMORY);
        cb_clear_error();
        assert_int_equal(blocks, before);
    }
    assert_true(failures > 1);
    assert_non_null(strstr(text, begin));
    cb_free_text(text);
    cb_function_free(fast);
    cb_scope_close();
}

static void test_out_of_memory(void **state) {
    (void)state;
    read_without_memory(cb_explain, "\nentry 0");
    read_without_memory(cb_explain_summary, "\ngraph 0");
}

/* Ops of a network in eval mode keep their layers, whatever of it is frozen. */
static void layers_are_named(void **state) {
    (void)state;
    cb_module *net =
        cb_nn_sequential(cb_nn_conv2d(3, 8, 3, 1, 1), cb_nn_relu(), cb_nn_max_pool2d(2),
                         cb_nn_conv2d(8, 8, 3, 1, 1), cb_nn_flatten(), cb_nn_linear(8 * 4 * 4, 10));
    cb_module_train(net, false);
    cb_function *fast = cb_compile(net);
    assert_non_null(cb_call(fast, cb_randn(cb_dims(1, 3, 8, 8))));
    char *text = cb_explain_summary(fast);
    if (!strstr(text, "amax (2) -> convolution (3)")) print_error("%s\n", text);
    assert_non_null(strstr(text, "amax (2) -> convolution (3)"));
    cb_free_text(text);
    cb_function_free(fast);
    cb_module_free(net);
    cb_scope_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaves_nothing),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(layers_are_named),
    };
    return run_counted(tests);
}
