/* What a function under fullgraph gives back of what it found, and what it may know of its tensors
 * besides their layouts: by which handles it has them, whether they share memory, the strides that
 * no op asks for. It does not run again, so each of that is a guard. Each call is compared with the
 * function run eagerly. */
#include "fullgraph_support.h"

static cb_tensor *w[2], *given;

static cb_tensor *gives_what_it_found(cb_tensor *x) { return cb_rank(x) ? given : NULL; }

/* The tensor itself, as in eager: a leaf goes on being one. When it is gone, what the entry holds
 * in its place stays the entry's. */
static void what_is_found_and_returned(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = cb_full(cb_dims(3), 2.0);
    cb_tensor *leaf = cb_requires_grad_(cb_full(cb_dims(3), 3.0), true);
    cb_tensor *found[] = {cb_full(cb_dims(3), 6.0), leaf};
    for (int i = 0; i < 2; i++) {
        cb_function *fast = cb_compile(gives_what_it_found, FULL);
        given = found[i];
        for (int call = 0; call < 4; call++) assert_ptr_equal(cb_call(fast, x), given);
        assert_int_equal(cb_stats(fast).graphs, 1);
        cb_backward(cb_sum(cb_add(cb_call(fast, x), cb_mul(leaf, 10.0))), NULL);
        assert_float_equal(first_of(cb_tensor_grad(leaf)), i ? 11 : 10, 1e-6);
        cb_zero_grad(leaf);
        double value = first_of(given);
        cb_free(given);
        for (int call = 0; call < 3; call++) {
            cb_tensor *got = cb_call(fast, x);
            assert_true(first_of(got) == value);
            assert_int_equal(cb_requires_grad(got), i);
            cb_free(got);
        }
        cb_function_free(fast);
    }
    cb_scope_close();
    assert_null(cb_error());
}

static cb_tensor *compares_handles(cb_tensor *x, cb_tensor *y) {
    return x == y ? cb_mul(x, 10.0) : cb_add(x, y);
}

static cb_tensor *asks_storages(cb_tensor *x, cb_tensor *y) {
    bool one = cb_shares_storage(cb_t(x), y), found = cb_shares_storage(y, given);
    bool results = cb_shares_storage(x, cb_mul(y, 1.0)) || !cb_shares_storage(x, cb_t(x));
    return cb_add(cb_mul(x, one ? 100.0 : 1.0), cb_mul(y, found || results ? 1000.0 : 1.0));
}

static cb_tensor *asks_strides(cb_tensor *x, cb_tensor *y) {
    return cb_add(y, (double)cb_stride(x, 0));
}

static int runs;

static cb_tensor *asks_of_a_gradient(cb_tensor *x) {
    runs++;
    cb_tensor *g = cb_tensor_grad(w[0]);
    return cb_add(x, g ? (double)cb_stride(g, 0) + 100 * cb_shares_storage(x, g) : -1.0);
}

/* It is the leaf's, whatever it is at a call. */
static void how_gradients_lie_is_a_guard(void **state) {
    (void)state;
    cb_scope_open();
    w[0] = cb_requires_grad_(cb_full(cb_dims(2, 3), 3.0), true);
    cb_tensor *x = cb_full(cb_dims(2, 3), 2.0);
    cb_function *fast = cb_compile(asks_of_a_gradient, FULL);
    runs = 0;
    cb_no_grad_open();
    for (int call = 0; call < 8; call++) {
        if (call % 4 == 1) {
            cb_no_grad_close();
            cb_backward(cb_sum(w[0]), NULL);
            cb_no_grad_open();
        }
        cb_tensor *in = call % 4 == 3 ? cb_tensor_grad(w[0]) : x;
        expect_call(fast, asks_of_a_gradient, in, call < 1 ? 1 : call < 3 ? 2 : 3);
        if (call % 4 == 3) cb_zero_grad(w[0]);
    }
    cb_no_grad_close();
    assert_int_equal(runs, 8 + 3); /* eagerly, and once for each graph */
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

typedef struct Lying {
    const char *told;
    cb_function_2 *function;
    int graphs;
} Lying;

/* The function may compare its handles, and ask how they lie, which no guard of an op holds for. */
static void how_tensors_lie_is_a_guard(void **state) {
    (void)state;
    static const Lying cases[] = {
        {"input 1 is the handle of input 0: not in entry 0", compares_handles, 2},
        {"%0 and %1 share no storage: not in entry 0, which asked for it", asks_storages, 5},
        {"%0 has another stride along dim 0, which entry 0 asked for", asks_strides, 4}};
    cb_scope_open();
    cb_tensor *base = cb_reshape(cb_arange(0, 64, 1, CB_F32), cb_dims(4, 16)), *x[4];
    x[0] = cb_slice(base, 1, 0, 4, 1), x[0] = cb_slice(x[0], 0, 1, 2, 1);
    x[1] = cb_slice(cb_slice(base, 1, 4, 8, 1), 0, 2, 3, 1);
    x[2] = cb_full(cb_dims(1, 4), 3.0);
    given = x[3] = cb_full(cb_dims(1, 4), 5.0);
    for (int c = 0; c < 3; c++) {
        cb_function *fast = cb_compile(cases[c].function, FULL);
        for (int round = 0; round < 3; round++)
            for (int pair = 0; pair < 16; pair++) {
                cb_tensor *a = x[pair % 4], *b = x[(pair % 4 + pair / 4 + 1) % 4];
                cb_tensor *got = cb_call(fast, a, b), *expected = cases[c].function(a, b);
                if (!got) fail_msg("%s", cb_error());
                assert_float_equal(first_of(got), first_of(expected), 1e-6);
            }
        assert_int_equal(cb_stats(fast).graphs, cases[c].graphs);
        expect_told(fast, cases[c].told);
        cb_function_free(fast);
    }
    cb_function *fast = cb_compile(compares_handles, FULL);
    for (int call = 0; call < 4; call++) {
        cb_tensor *other = call % 2 ? cb_detach(x[2]) : x[2]; /* one tensor by two handles */
        double sum = call % 2 ? 6 : 30;
        assert_float_equal(first_of(cb_call(fast, x[2], other)), sum, 1e-6);
    }
    expect_told(fast, "input 1 is the handle of input 0 no more: not in entry 0");
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_found_and_returned),
        cmocka_unit_test(how_tensors_lie_is_a_guard),
        cmocka_unit_test(how_gradients_lie_is_a_guard),
    };
    return run_counted(tests);
}
