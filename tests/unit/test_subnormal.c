/* cb_set_flush_denormal: each op is computed under what its thread had set when the function called
 * it, compiled, folded or launched as in eager. */
#include "fixture.h"

#define VM "backend=vm"

/* 1e-40 in f32, or 0. */
static cb_tensor *tiny(cb_tensor *x) {
    return cb_mul(cb_mul(x, 1e-20), cb_full(cb_dims(4), 1e-20));
}

/* Larger than 0 where subnormal numbers count, once they do. */
static double read_one(cb_tensor *x) {
    double value[4];
    assert_int_equal(cb_read(cb_mul(x, 1e30), value, CB_F64), CB_OK);
    return value[3];
}

static int counted_again(void **state) {
    cb_set_flush_denormal(false);
    return close_scope_without_error(state);
}

/* ---- set inside of a function ---------------------------------------------------------------- */

static bool set_first, set_then;

static int sets(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_set_flush_denormal(set_first);
    out[0] = tiny(x[0]);
    cb_set_flush_denormal(set_then);
    out[1] = tiny(x[0]);
    cb_set_flush_denormal(false);
    return 2;
}

static void each_op_has_its_own(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        set_first = i & 1, set_then = i >> 1;
        cb_function *fast = cb_compile_n(sets, NULL, VM);
        for (int call = 0; call < 4; call++) {
            cb_tensor *x = cb_ones(cb_dims(4)), *out[2];
            if (call)
                assert_int_equal(cb_call_n(fast, &x, 1, out, 2), 2);
            else
                sets(&x, 1, out, NULL);
            assert_int_equal(read_one(out[0]) == 0, set_first);
            assert_int_equal(read_one(out[1]) == 0, set_then);
        }
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
}

static void a_whole_graph_has_one(void **state) {
    (void)state;
    set_first = true, set_then = false;
    cb_function *whole = cb_compile_n(sets, NULL, "fullgraph=1," VM);
    cb_tensor *x = cb_ones(cb_dims(4)), *out[2];
    assert_true(cb_call_n(whole, &x, 1, out, 2) < 0);
    cb_set_flush_denormal(false);
    expect_error("flush denormal");
    cb_function_free(whole);
}

/* ---- what is folded -------------------------------------------------------------------------- */

/* a * b is a constant of the graph. */
static cb_tensor *scale(cb_module *self, cb_tensor *const *in, int count) {
    (void)count;
    cb_tensor *factor = cb_mul(cb_module_get(self, "a"), cb_module_get(self, "b"));
    return cb_mul(in[0], factor);
}

static cb_module *scale_new(void) {
    cb_module *module = cb_module_new("Scale", scale, NULL);
    cb_module_buffer(module, "a", cb_full(cb_dims(4), 1e-20));
    cb_module_buffer(module, "b", cb_full(cb_dims(4), 1e-20));
    cb_module_train(module, false);
    return module;
}

static void constants_are_of_one_setting(void **state) {
    (void)state;
    cb_module *module = scale_new();
    cb_tensor *x = cb_full(cb_dims(4), 1e20);
    cb_function *first = cb_compile(module, VM);
    for (int call = 0; call < 4; call++) {
        bool on = call % 2 == 0;
        cb_set_flush_denormal(on);
        double eager = read_one(cb_forward(module, x)), compiled = read_one(cb_call(first, x));
        assert_int_equal(eager == 0, on);
        assert_true(compiled == eager);
        cb_function *other = cb_compile(module, VM); /* constants that are there serve it, too */
        assert_true(read_one(cb_call(other, x)) == eager);
        cb_function_free(other);
    }
    assert_int_equal(cb_stats(first).graphs, 2);
    cb_function_free(first);
    cb_module_free(module);
}

/* The walk back is one of its own time. */
static cb_tensor *times_small(cb_tensor *x) { return cb_mul(x, 1e-20); }

static double gradient_of(cb_tensor *y, cb_tensor *x, bool on) {
    cb_set_flush_denormal(on);
    assert_int_equal(cb_backward(y, cb_full(cb_dims(4), 1e-20)), CB_OK);
    cb_set_flush_denormal(false);
    double value = read_one(cb_tensor_grad(x));
    cb_zero_grad(x);
    return value;
}

static void gradients_are_of_their_walk(void **state) {
    (void)state;
    cb_function *fast = cb_compile(times_small, VM);
    cb_tensor *x = cb_requires_grad_(cb_ones(cb_dims(4)), true);
    for (int call = 0; call < 4; call++) {
        bool on = call % 2 == 0;
        assert_int_equal(gradient_of(times_small(x), x, on) == 0, on);
        assert_int_equal(gradient_of(cb_call(fast, x), x, on) == 0, on);
    }
    cb_function_free(fast);
}

/* ---- other threads --------------------------------------------------------------------------- */

/* A device's thread computes as who launched it, whatever that had set when it began. */
static void launches_take_it_along(void **state) {
    (void)state;
    for (int call = 0; call < 4; call++) {
        bool on = call % 2 == 0;
        cb_tensor *x = cb_to_device(cb_full(cb_dims(4), 1e-20), "guarded");
        cb_set_flush_denormal(on);
        cb_tensor *y = cb_to_device(cb_mul(x, 1e-20), "cpu");
        cb_set_flush_denormal(false);
        assert_int_equal(read_one(y) == 0, on);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_op_has_its_own, open_scope, counted_again),
        cmocka_unit_test_setup_teardown(a_whole_graph_has_one, open_scope, counted_again),
        cmocka_unit_test_setup_teardown(constants_are_of_one_setting, open_scope, counted_again),
        cmocka_unit_test_setup_teardown(gradients_are_of_their_walk, open_scope, counted_again),
        cmocka_unit_test_setup_teardown(launches_take_it_along, open_scope, counted_again),
    };
    if (!cb_set_flush_denormal(false)) return 0; /* this processor cannot */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
