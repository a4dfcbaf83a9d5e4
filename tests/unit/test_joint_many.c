/* Functions of many results, of which one is gone back from: what had no part in it has no
 * gradient, and hooks of others see none. Eagerly and compiled. */
#include "fixture.h"

#include <string.h>

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

enum { SEVERAL = 70, MANY = 130 }; /* more than the bits of one word, and of two */

typedef cb_tensor *T;
static T w[MANY]; /* leaves */
static int heads;

/* Each second one is computed from the one before. */
static int many(T const *in, int count, T *out, void *user) {
    (void)count, (void)user;
    for (int i = 0; i < heads; i++)
        out[i] = i % 2 ? cb_sum(cb_tanh(cb_mul(out[i - 1], w[i]))) : cb_sum(cb_mul(in[0], w[i]));
    return heads;
}

static cb_function *begin(int count) {
    heads = count;
    for (int i = 0; i < heads; i++) w[i] = cb_requires_grad_(cb_full(cb_dims(2), 0.01 * i), true);
    return cb_compile_n(many, NULL, "backend=vm");
}

static void call(cb_function *fast, T *out) {
    T x = cb_ones(cb_dims(2));
    assert_int_equal(fast ? cb_call_n(fast, &x, 1, out, heads) : many(&x, 1, out, NULL), heads);
}

/* The leaves that the loss, result k, depends on, and no other ones, have a gradient. */
static void expect_leaves(cb_function *fast, int k) {
    T out[MANY];
    cb_scope_open();
    call(fast, out);
    assert_int_equal(cb_backward(out[k], NULL), CB_OK);
    for (int i = 0; i < heads; i++) {
        bool part = i == k || (k % 2 && i == k - 1);
        if (part != (cb_tensor_grad(w[i]) != NULL)) fail_msg("loss %d, leaf %d", k, i);
        cb_zero_grad(w[i]);
    }
    cb_scope_close();
}

/* result k by one leaf of another head, and by its own. */
static void expect_asked_leaves(cb_function *fast, int k, int other) {
    T out[MANY], by[] = {w[other], w[k]}, g[2];
    cb_scope_open();
    call(fast, out);
    assert_int_equal(cb_grad(out[k], NULL, by, 2, g), CB_OK);
    assert_null(g[0]);
    assert_non_null(g[1]);
    cb_scope_close();
}

/* A result by itself, for which nothing is gone over op by op. */
static void expect_asked_itself(cb_function *fast, int k) {
    T out[MANY];
    cb_scope_open();
    call(fast, out);
    T by[] = {out[k], w[k]}, g[2];
    assert_int_equal(cb_grad(out[k], NULL, by, 2, g), CB_OK);
    assert_true(cb_item(g[0]) == 1);
    assert_non_null(g[1]);
    cb_scope_close();
}

/* Result k, which is computed from the one before, by that, and by one beside. */
static void expect_asked_results(cb_function *fast, int k, int other) {
    T out[MANY];
    cb_scope_open();
    call(fast, out);
    T by[] = {out[other], out[k - 1]}, g[2];
    assert_int_equal(cb_grad(out[k], NULL, by, 2, g), CB_OK);
    assert_null(g[0]);
    assert_non_null(g[1]);
    cb_scope_close();
}

static int seen;
static T doubles_it(T g, void *user) {
    (void)user;
    seen++;
    return cb_mul(g, 2);
}

/* The gradient by leaf k - 1, where the results have hooks: what one of the loss's own sees counts
 * twice. */
static double hooked(cb_function *fast, int k, const int *hook, int hooks) {
    T out[MANY], g;
    cb_scope_open();
    call(fast, out);
    for (int i = 0; i < hooks; i++) assert_true(cb_register_hook(out[hook[i]], doubles_it, NULL));
    seen = 0;
    assert_int_equal(cb_grad(out[k], NULL, &w[k - 1], 1, &g), CB_OK);
    double value = cb_item(cb_sum(g));
    cb_scope_close();
    return value;
}

static bool has_gone_over_ops(cb_function *fast) {
    char *text = cb_explain(fast);
    bool has = strstr(text, "gone over op by op") != NULL;
    cb_free_text(text);
    return has;
}

static void expect_hooks(cb_function *fast, int k) {
    double plain = hooked(fast, k, NULL, 0);
    assert_true(plain > 0);
    int others[] = {k - 2, k + 2}, own[] = {k - 2, k - 1};
    assert_true(hooked(fast, k, others, 2) == plain);
    assert_int_equal(seen, 0);
    assert_false(fast && has_gone_over_ops(fast)); /* nothing asks for that */
    assert_true(hooked(fast, k, own, 2) == 2 * plain);
    assert_int_equal(seen, 1);
}

static void run(cb_function *fast) {
    int last = heads - 1; /* an odd one */
    expect_leaves(fast, 0);
    expect_leaves(fast, 64);
    expect_leaves(fast, last - 1);
    expect_leaves(fast, last);
    expect_asked_leaves(fast, 64, 66);
    expect_asked_leaves(fast, 66, 64);
    expect_asked_leaves(fast, last, 2);
    expect_asked_itself(fast, 65);
    expect_hooks(fast, 67);
    expect_asked_results(fast, last, 66);
    expect_asked_results(fast, 67, 65);
}

static void eager_and_compiled(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        cb_function *fast = begin(i ? MANY : SEVERAL);
        run(NULL);
        run(fast);
        assert_int_equal(cb_stats(fast).graphs, 1);
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(eager_and_compiled)};
    return cmocka_run_group_tests_name("joint_many", tests, NULL, NULL);
}
