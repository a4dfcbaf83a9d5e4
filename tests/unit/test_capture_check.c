/* The option check: a result that is further from the float64 VM than its dtype allows is reported,
 * any other one is not. */
#include "capture_support.h"
#include "fixture.h"

#include <unistd.h>

static cb_tensor *counter; /* a tensor from outside */
static double large;       /* next to which the inputs are lost in rounding */

static cb_tensor *cancels(cb_tensor *x) { return cb_sub(cb_add(x, large), large); }
static cb_tensor *writes(cb_tensor *x) { return cb_assign(x, cancels(x)) ? cb_mul(x, 0.0) : NULL; }
static cb_tensor *writes_outside(cb_tensor *x) {
    cb_tensor *y = cb_add(x, cb_mul(counter, 0.0));
    cb_assign(counter, cancels(x));
    return y;
}
static cb_tensor *squares(cb_tensor *x) { return cb_mul(x, x); }
static cb_tensor *overflows(cb_tensor *x) { return cb_exp(cb_mul(x, 400.0)); }
static cb_tensor *loses_infinity(cb_tensor *x) { return cb_sub(overflows(x), overflows(x)); }
static cb_tensor *is_nan(cb_tensor *x) { return cb_log(cb_neg(x)); }
static cb_tensor *is_infinite(cb_tensor *x) { return cb_div(x, 0.0); }
static cb_tensor *compares(cb_tensor *x) { return cb_gt(x, 0.5); }
static cb_tensor *counts_far(cb_tensor *x) {
    return cb_add(cb_to(cb_mul(cancels(x), 4), CB_I64), INT64_C(1) << 60);
}
static cb_tensor *rounds_to_f16(cb_tensor *x) {
    return cb_to(cb_to(cb_add(x, 1.0003), CB_F16), CB_F32);
}
static cb_tensor *loses_more(cb_tensor *x) { return cb_mul(rounds_to_f16(cancels(x)), 1.5); }
static cb_tensor *counts(cb_tensor *x) { return cb_to(x, CB_I64); }

static const struct {
    cb_function_1 *function;
    cb_dtype dtype;
    double large;
    const char *report; /* NULL: none */
} cases[] = {
    {cancels, CB_F32, 1e8, "entry 0, output 0, element 0: 0, the float64 VM says 0.25"},
    {cancels, CB_F32, 0, NULL},
    {cancels, CB_F64, 1e8, NULL},
    {writes, CB_F32, 1e8, "mutated input 0, element 0: 0, the float64 VM says 0.25"},
    {writes, CB_F32, 1, NULL},
    {writes_outside, CB_F32, 1e8, "mutated input 1, element 0: 0, the float64 VM says 0.25"},
    {squares, CB_F16, 0, NULL},
    {squares, CB_BF16, 0, NULL},
    {squares, CB_F64, 0, NULL},
    {squares, CB_I32, 0, NULL},
    {overflows, CB_F32, 0, NULL},
    {loses_infinity, CB_F32, 0, "nan, the float64 VM says 0"},
    {is_nan, CB_F32, 0, NULL},
    {is_infinite, CB_F32, 0, NULL},
    {compares, CB_F32, 0, NULL},
    {counts, CB_F32, 0, NULL},
    {rounds_to_f16, CB_F32, 0, NULL},
    {loses_more, CB_F32, 1e8, "1.5, the float64 VM says 1.87545"},
    {counts_far, CB_F32, 1e8, "1152921504606846976, the float64 VM says 1152921504606846977"},
};

static void test_reports(void **state) {
    (void)state;
    cb_set_option("check", "1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cb_tensor *x = cb_full(cb_dims(3), 0.25, cases[i].dtype);
        counter = cb_ones(cb_dims(3), cases[i].dtype);
        large = cases[i].large;
        cb_function *fast = cb_compile(cases[i].function, "backend=vm,fuse=0");
        assert_non_null(cb_call(fast, x));
        char *text = cb_explain(fast), *report = strstr(text, "float64 VM");
        bool right = cases[i].report ? strstr(text, cases[i].report) != NULL : !report;
        if (!right) print_error("case %zu\n%s\n", i, text);
        assert_true(right);
        cb_free_text(text);
        cb_function_free(fast);
    }
    cb_set_option("check", "0");
    assert_null(cb_error());
}

/* How often the words stand in the text. */
static int count_of(const char *text, const char *words) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, words)); at++) count++;
    return count;
}

static int line_of_writes; /* of the op and of the write */
static cb_tensor *writes_and_gives(cb_tensor *x) {
    line_of_writes = __LINE__ + 1;
    cb_tensor *y = cb_sub(cb_add(x, 1e8), 1e8);
    cb_assign(counter, y);
    return y;
}

static int reports_on_stderr(cb_function *fast, cb_tensor *x, char *text, size_t bytes) {
    fflush(stderr);
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    for (int call = 0; call < 3; call++) cb_call(fast, x);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(file);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    fclose(file);
    return count_of(text, "carbide: check: ");
}

/* Of what, by the op that made it and its line; once on stderr, and each time in explain. */
static void test_names_what_differs(void **state) {
    (void)state;
    cb_set_option("check", "1");
    cb_tensor *x = cb_full(cb_dims(3), 0.25);
    counter = cb_ones(cb_dims(3));
    cb_function *fast = cb_compile(writes_and_gives, "backend=vm,fuse=0");
    char text[2048], words[2][120];
    assert_int_equal(reports_on_stderr(fast, x, text, sizeof text), 2);
    snprintf(words[0], sizeof words[0], "says 0.25, sub at test_capture_check.c:%d",
             line_of_writes);
    snprintf(words[1], sizeof words[1], "says 0.25, a write at test_capture_check.c:%d",
             line_of_writes + 1);
    char *explained = cb_explain(fast);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(count_of(text, words[i]), 1);
        assert_int_equal(count_of(explained, words[i]), 1);
    }
    assert_int_equal(count_of(explained, ", 3 times"), 2);
    assert_int_equal(count_of(text, "check: writes_and_gives, compiled at "), 2);
    cb_free_text(explained);
    cb_function_free(fast);
    cb_set_option("check", "0");
}

/* A parameter goes by its path. */
static cb_tensor *moves(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)count;
    cb_tensor *y = cb_sub(cb_add(inputs[0], 1e8), 1e8);
    cb_assign(cb_module_get(self, "mean"), y);
    return cb_mul(y, 0.0);
}

static void test_names_a_parameter(void **state) {
    (void)state;
    cb_set_option("check", "1");
    cb_module *module = cb_module_new("Moving", moves, NULL);
    cb_module_buffer(module, "mean", cb_ones(cb_dims(3)));
    cb_function *fast = cb_compile(module, "backend=vm,fuse=0");
    char text[2048];
    int count = reports_on_stderr(fast, cb_full(cb_dims(3), 0.25), text, sizeof text);
    assert_int_equal(count, 1);
    if (!strstr(text, "Moving, compiled at ") || !strstr(text, "mutated input 1 (mean), element 0"))
        fail_msg("%s", text);
    cb_function_free(fast);
    cb_module_free(module);
    cb_set_option("check", "0");
}

/* A step that fails on the float64 VM fails as it does without the check: at the op. */
static cb_tensor *looks_up(cb_tensor *x) {
    cb_add_(x, 1.0);
    return cb_index_select(x, 0, counter);
}

static void test_failing_step(void **state) {
    (void)state;
    cb_set_option("check", "1");
    cb_function *fast = cb_compile(looks_up, VM);
    cb_tensor *x = ramp(2, 3), *same = ramp(2, 3);
    for (int i = 0; i < 3; i++) {
        int64_t row = i == 1 ? 5 : 1;
        counter = cb_from_data(&row, CB_I64, cb_dims(1));
        cb_tensor *expected = looks_up(same);
        cb_clear_error();
        if (i == 1)
            REFUSED(cb_call(fast, x), "index");
        else
            expect_equal(cb_call(fast, x), expected);
        expect_equal(x, same);
    }
    cb_function_free(fast);
    cb_set_option("check", "0");
}

/* Both draw the same numbers. */
static cb_tensor *draws(cb_tensor *x) { return cb_add(cb_rand(cb_dims(3)), x); }

static void test_draws(void **state) {
    (void)state;
    static const char *const options[] = {VM, "fullgraph=1," VM};
    cb_set_option("check", "1");
    for (int i = 0; i < 2; i++) {
        cb_function *fast = cb_compile(draws, options[i]);
        for (int call = 0; call < 3; call++) {
            cb_manual_seed(call);
            cb_tensor *y = cb_call(fast, cb_zeros(cb_dims(3)));
            cb_manual_seed(call);
            expect_equal(y, draws(cb_zeros(cb_dims(3))));
        }
        char *text = cb_explain(fast);
        assert_null(strstr(text, "float64 VM"));
        cb_free_text(text);
        cb_function_free(fast);
    }
    cb_set_option("check", "0");
}

static cb_tensor *writes_and_asks(cb_tensor *x) {
    cb_add_(x, 1.0);
    return cb_mul(x, cb_item(cb_sum(x)));
}

/* What is compared was written before an event, and is read while the call is not over. */
static void test_event_behind_a_write(void **state) {
    (void)state;
    cb_set_option("check", "1");
    cb_function *fast = cb_compile(writes_and_asks, VM);
    for (int call = 0; call < 3; call++) {
        cb_tensor *x = cb_ones(3);
        expect_equal(cb_call(fast, x), cb_full(3, 12.0));
        expect_equal(x, cb_full(3, 2.0));
    }
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    cb_set_option("check", "0");
}

static cb_tensor *weight;
static cb_tensor *saves(cb_tensor *x) { return cb_sin(cb_matmul(x, weight)); }

/* Values that gradients read are results, too, which nothing is compared with. */
static void test_saved_values(void **state) {
    (void)state;
    cb_set_option("check", "1");
    weight = cb_requires_grad_(cb_full(cb_dims(3, 3), 0.5), true);
    cb_function *fast = cb_compile(saves, VM);
    for (int call = 0; call < 2; call++) {
        cb_tensor *g, *wanted;
        cb_grad(cb_sum(cb_call(fast, cb_ones(cb_dims(3, 3)))), NULL, &weight, 1, &g);
        cb_grad(cb_sum(saves(cb_ones(cb_dims(3, 3)))), NULL, &weight, 1, &wanted);
        expect_tensor(g, wanted, 1e-6, 1e-6);
    }
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "1 value saved"));
    cb_free_text(text);
    cb_function_free(fast);
    cb_set_option("check", "0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reports, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_names_what_differs, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_names_a_parameter, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_failing_step, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_draws, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_event_behind_a_write, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_saved_values, open_scope, close_scope),
    };
    return run_counted(tests);
}
