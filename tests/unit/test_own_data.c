/* Tensors that a compiled function makes of its own data: new ones in every call, whatever the
 * caller does to those that it was given before, and whatever the compiler knows of them. */
#include "fixture.h"

enum { CALLS = 4 };

static const char *const ways[] = {
    NULL,
    "backend=vm",
    "dynamic=1",
    "freeze=0",
    "freeze=1",
    "backend=eager",
    "fullgraph=1",
    "fullgraph=1,backend=vm",
    "fullgraph=1,freeze=0",
    "fullgraph=1,freeze=1",
};
enum { WAYS = sizeof ways / sizeof *ways };

static cb_tensor *data(void) { return cb_from_data(((float[]){1, 2, 3, 4}), CB_F32, cb_dims(4)); }

static void expect_elements(cb_tensor *x, float first, float step) {
    float got[4];
    assert_non_null(x);
    assert_int_equal(cb_read(x, got, CB_F32), CB_OK);
    for (int i = 0; i < 4; i++) assert_float_equal(got[i], first + (float)i * step, 0);
}

/* ---- the caller writes to what it was given -------------------------------------------------- */

static int product_and_itself(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *own = data();
    out[0] = cb_mul(in[0], own);
    out[1] = own;
    return 2;
}

static void written_by_the_caller(void **state) {
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        cb_function *fast = cb_compile_n(product_and_itself, NULL, ways[way]);
        cb_tensor *x = cb_ones(4), *out[2], *first = NULL;
        for (int i = 0; i < CALLS; i++) {
            assert_int_equal(cb_call_n(fast, &x, 1, out, 2), 2);
            expect_elements(out[0], 1, 1);
            expect_elements(out[1], 1, 1);
            if (i) assert_false(cb_shares_storage(out[1], first));
            if (i) expect_elements(first, 101, 1);
            first = cb_add_(out[1], 100.0);
        }
        assert_int_equal(cb_stats(fast).graphs, 1);
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
}

static cb_tensor *itself(cb_tensor *x) { return (void)x, data(); }
static cb_tensor *view_of_itself(cb_tensor *x) { return (void)x, cb_flip(data(), 0); }

static void returned_and_nothing_else(void **state) {
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        cb_function *fast = cb_compile(itself, ways[way]);
        cb_function *flipped = cb_compile(view_of_itself, ways[way]);
        for (int i = 0; i < CALLS; i++) {
            cb_tensor *x = cb_ones(4), *y = cb_call(fast, x), *z = cb_call(flipped, x);
            expect_elements(y, 1, 1);
            expect_elements(z, 4, -1);
            cb_mul_(y, 10.0), cb_mul_(z, 10.0);
        }
        cb_function_free(fast);
        cb_function_free(flipped);
    }
}

/* ---- the function writes to it --------------------------------------------------------------- */

static cb_tensor *counts(cb_tensor *x) {
    cb_tensor *own = data();
    cb_add_(own, x);
    return cb_mul(own, 2.0);
}

static cb_tensor *counts_in_a_part(cb_tensor *x) {
    cb_tensor *own = data();
    cb_add_(cb_slice(own, 0, 0, 4, 1), x);
    return own;
}

static void written_by_the_function(void **state) {
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        cb_function *fast = cb_compile(counts, ways[way]);
        cb_function *part = cb_compile(counts_in_a_part, ways[way]);
        for (int i = 0; i < CALLS; i++) {
            expect_elements(cb_call(fast, cb_ones(4)), 4, 2);
            expect_elements(cb_call(part, cb_ones(4)), 2, 1);
        }
        cb_function_free(fast);
        cb_function_free(part);
    }
}

/* ---- what somebody keeps is found again ------------------------------------------------------ */

static cb_tensor *kept;

static cb_tensor *counts_for_ever(cb_tensor *x) {
    if (!kept) kept = cb_keep(data());
    return cb_clone(cb_add_(kept, x));
}

static void kept_by_the_function(void **state) {
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        cb_function *fast = cb_compile(counts_for_ever, ways[way]);
        for (int i = 0; i < CALLS; i++) {
            expect_elements(cb_call(fast, cb_ones(4)), 2 + (float)i, 1);
            expect_elements(kept, 2 + (float)i, 1);
        }
        cb_free(kept);
        kept = NULL;
        cb_function_free(fast);
    }
}

static cb_tensor *keeps_what_it_used(cb_tensor *x) {
    cb_tensor *own = data(), *y = cb_mul(x, own);
    if (!kept) kept = cb_keep(own);
    return y;
}

/* It lives, and is written to, but the next call makes another one. */
static void kept_when_it_was_used(void **state) {
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        cb_function *fast = cb_compile(keeps_what_it_used, ways[way]);
        for (int i = 0; i < CALLS; i++) {
            expect_elements(cb_call(fast, cb_ones(4)), 1, 1);
            cb_add_(kept, 100.0);
        }
        cb_free(kept);
        kept = NULL;
        cb_function_free(fast);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(written_by_the_caller, open_scope,
                                        close_scope_without_tensors),
        cmocka_unit_test_setup_teardown(returned_and_nothing_else, open_scope,
                                        close_scope_without_tensors),
        cmocka_unit_test_setup_teardown(written_by_the_function, open_scope,
                                        close_scope_without_tensors),
        cmocka_unit_test_setup_teardown(kept_by_the_function, open_scope,
                                        close_scope_without_tensors),
        cmocka_unit_test_setup_teardown(kept_when_it_was_used, open_scope,
                                        close_scope_without_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
