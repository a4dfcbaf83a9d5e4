/* The option anomaly: the first op that gives a NaN is an error that names it, forward and back,
 * eagerly and in compiled functions. */
#include "test_support.h"

#include <carbide.h>

#include <math.h>
#include <string.h>

static void says(const char *text) {
    if (!strstr(cb_error(), text)) fail_msg("'%s' is not in '%s'", text, cb_error());
    assert_int_equal(cb_error_status(), CB_ERR_ARGUMENT);
    cb_clear_error();
}

static cb_tensor *of(const float *value, int count) {
    return cb_from_data(value, CB_F32, cb_dims(count));
}

static cb_tensor *x_with(float third) {
    const float value[] = {1, 2, third, 4};
    return of(value, 4);
}

static void ops_are_named(void **state) {
    (void)state;
    cb_scope_open();
    assert_null(cb_log(cb_reshape(x_with(-1), cb_dims(2, 2))));
    says("log(f32[2, 2]) gives the first NaN, at [1, 0]");
    assert_null(cb_sub(x_with(INFINITY), x_with(INFINITY)));
    says("sub(f32[4], f32[4]) gives the first NaN, at [2]");
    assert_null(cb_mul(x_with(0), INFINITY));
    says("mul(f32[4], inf) gives the first NaN, at [2]");
    assert_null(cb_softmax(cb_mul(cb_ones(cb_dims(3)), -INFINITY), 0));
    says("softmax(f32[3]) gives the first NaN, at [0]");
    assert_null(cb_log(cb_to(x_with(-1), CB_F16)));
    says("log(f16[4]) gives the first NaN, at [2]");
    cb_tensor *zero = x_with(0);
    assert_null(cb_div_(zero, zero));
    says("div(f32[4], f32[4]) gives the first NaN, at [2]");
    cb_scope_close();
}

static void large_tensors_are_searched_to_their_end(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = cb_ones(cb_dims(3, 1000));
    cb_fill_(cb_select(cb_select(x, 0, 2), 0, 999), -1.0);
    assert_null(cb_sqrt(cb_transpose(x, 0, 1)));
    says("sqrt(f32[1000, 3]) gives the first NaN, at [999, 2]");
    cb_scope_close();
}

static void what_came_from_outside_is_told(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = x_with(NAN);
    assert_null(cb_add(cb_ones(cb_dims(4)), x));
    says("operand 1 of add(f32[4], f32[4]) has a NaN, at [2], that no op gave");
    assert_null(cb_mul(cb_ones(cb_dims(4)), NAN));
    says("operand 1 of mul(f32[4], nan) is NaN, that no op gave");
    cb_tensor *clean = cb_where(cb_isnan(x), 0.0, x); /* no NaN is left */
    assert_non_null(clean);
    assert_non_null(cb_full(cb_dims(2), NAN));
    assert_non_null(cb_view(x, cb_dims(2, 2)));
    assert_non_null(cb_isnan(x));
    assert_true(cb_item(cb_sum(clean)) == 7);
    cb_scope_close();
}

static void gradients_are_named(void **state) {
    (void)state;
    for (int graph = 0; graph < 2; graph++) {
        cb_scope_open();
        cb_tensor *x = cb_requires_grad_(x_with(0), true), *g;
        cb_tensor *y = cb_where(cb_gt(x, 0.0), cb_sqrt(x), 0.0); /* 0 of infinity */
        cb_status status =
            graph ? cb_grad_graph(cb_sum(y), NULL, &x, 1, &g) : cb_grad(cb_sum(y), NULL, &x, 1, &g);
        assert_int_equal(status, CB_ERR_ARGUMENT);
        if (!graph) assert_non_null(strstr(cb_error(), "test_anomaly.c:"));
        says(graph ? "gives the first NaN, at [2]"
                   : "by its operand 0 has the first NaN, at element 2 of f32[4]");
        assert_int_equal(cb_grad(cb_sqrt(x), x_with(NAN), &x, 1, &g), CB_ERR_ARGUMENT);
        says("the gradient that came to sqrt");
        cb_scope_close();
    }
}

static cb_tensor *loss(cb_tensor *x) { return cb_sum(cb_log(cb_sub(x, 1.5))); }

static void compiled_functions_run_op_by_op_meanwhile(void **state) {
    (void)state;
    const char *const options[] = {"", "fullgraph=1"};
    for (int i = 0; i < 2; i++) {
        cb_scope_open();
        cb_function *f = cb_compile(loss, options[i]);
        cb_tensor *x = x_with(2);
        cb_set_option("anomaly", "0");
        assert_true(isnan(cb_item(cb_call(f, x)))); /* 1 - 1.5 */
        cb_set_option("anomaly", "1");
        assert_null(cb_call(f, x));
        says("log(f32[4]) gives the first NaN, at [0]");
        cb_set_option("anomaly", "0");
        assert_true(isnan(cb_item(cb_call(f, x))));
        cb_function_stats stats = cb_stats(f);
        assert_int_equal(stats.calls, 3);
        assert_int_equal(stats.eager_calls, 1);
        cb_set_option("anomaly", "1");
        cb_function_free(f);
        cb_scope_close();
    }
}

int main(void) {
    cb_set_option("anomaly", "1");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_are_named),
        cmocka_unit_test(large_tensors_are_searched_to_their_end),
        cmocka_unit_test(what_came_from_outside_is_told),
        cmocka_unit_test(gradients_are_named),
        cmocka_unit_test(compiled_functions_run_op_by_op_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
