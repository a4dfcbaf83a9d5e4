/* What keeps a compiled call from taking what was recorded for another one: guards on inputs and on
 * tensors that the function finds, numbers to the bit, which values it lets go of, and in which
 * order it gives them back. Every call is compared with the function run eagerly. */
#include "capture_support.h"

typedef cb_tensor *GuardedFunction(cb_tensor *x);

/* Calls with each x in turn, twice over, against eager; the number of entries at the end. */
static void expect_calls(GuardedFunction *function, cb_tensor *const *x, int count, int graphs) {
    cb_function *fast = cb_compile(function, VM);
    for (int i = 0; i < 2 * count; i++)
        expect_equal(cb_call(fast, x[i % count]), function(x[i % count]));
    assert_int_equal(cb_stats(fast).graphs, graphs);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    char *text = cb_explain(fast);
    const char *miss = strstr(text, "an input differs from every recorded graph (input 0 is f32[");
    assert_int_equal(miss != NULL, graphs > 1);
    if (miss) assert_non_null(strstr(miss, "] of strides ["));
    cb_free_text(text);
    cb_function_free(fast);
    assert_null(cb_error());
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static cb_tensor *twice(cb_tensor *x) { return cb_mul(cb_add(x, 1.0), 2.0); }

static void strides_are_a_guard(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *base = ramp(8, 8);
    cb_tensor *plain = ramp(4, 4), *turned = cb_transpose(ramp(4, 4), 0, 1);
    cb_tensor *part = cb_narrow(cb_narrow(base, 0, 2, 4), 1, 1, 4);
    cb_tensor *rows = cb_slice(cb_narrow(base, 1, 0, 4), 0, 0, 8, 2);
    cb_tensor *plain_first[] = {plain, turned, part, rows};
    cb_tensor *turned_first[] = {turned, plain, rows, part};
    expect_calls(twice, plain_first, 4, 4);
    expect_calls(twice, turned_first, 4, 4);
    cb_tensor *alike[] = {part, cb_narrow(cb_narrow(base, 0, 4, 4), 1, 3, 4)};
    expect_calls(twice, alike, 2, 1); /* another offset is no other layout */
    cb_scope_close();
}

/* ---- numbers --------------------------------------------------------------------------------- */

static double number;
static int whole;
static bool as_float;

static cb_tensor *divided(cb_tensor *x) { return cb_div(x, cb_add(cb_mul(x, 0.0), number)); }

static void zero_has_a_sign(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = cb_ones(cb_dims(3), CB_F32);
    cb_function *fast = cb_compile(divided, VM);
    for (int i = 0; i < 6; i++) {
        number = i % 2 ? -0.0 : 0.0;
        double got = cb_item(cb_amax(cb_call(fast, x), CB_ALL, false));
        assert_true(isinf(got) && got > 0); /* 0 + -0 is 0 */
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_function_free(fast);
    cb_scope_close();
}

static cb_tensor *added(cb_tensor *x) { return as_float ? cb_add(x, number) : cb_add(x, whole); }

static bool quietly;
static cb_tensor *tripled(cb_tensor *x) {
    if (quietly) cb_no_grad_open();
    cb_tensor *y = cb_mul(x, 3.0);
    if (quietly) cb_no_grad_close();
    return cb_add(y, 1.0);
}

static void gradients_may_be_off_for_an_op(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = ramp(4, 4);
    cb_function *fast = cb_compile(tripled, VM);
    for (int i = 0; i < 6; i++) {
        quietly = i % 2;
        expect_equal(cb_call(fast, x), tripled(x));
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_function_free(fast);
    cb_scope_close();
}

/* 0 and 0.0 are the same bits, and not the same sum with an integer. */
static void a_number_has_a_kind(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(added, VM);
    cb_tensor *x = cb_arange(0, 6);
    number = 0.0, whole = 0;
    for (int i = 0; i < 4; i++) {
        as_float = i % 2;
        cb_tensor *y = cb_call(fast, x);
        assert_int_equal(cb_dtype_of(y), as_float ? CB_F32 : CB_I64);
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_function_free(fast);
    cb_scope_close();
}

/* ---- operands -------------------------------------------------------------------------------- */

static int turn;

static cb_tensor *either(cb_tensor *x) {
    cb_tensor *a = cb_exp(x), *b = cb_sin(x);
    return cb_sub(turn ? a : b, turn ? b : a);
}

static cb_tensor *with_bias(cb_tensor *x) {
    cb_tensor *w = cb_exp(x);
    return turn ? cb_linear(x, w, cb_select(x, 0, 0)) : cb_linear(x, w, NULL);
}

static void expect_turns(GuardedFunction *function, int turns, int graphs) {
    cb_scope_open();
    cb_function *fast = cb_compile(function, VM);
    cb_tensor *x = ramp(4, 4);
    for (int i = 0; i < 3 * turns; i++) {
        turn = i % turns;
        expect_equal(cb_call(fast, x), function(x));
    }
    assert_int_equal(cb_stats(fast).graphs, graphs);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

static void operands_keep_their_places(void **state) {
    (void)state;
    expect_turns(either, 2, 2);
    expect_turns(with_bias, 2, 2);
}

/* ---- tensors that the function finds --------------------------------------------------------- */

static cb_tensor *found;

static cb_tensor *with_found(cb_tensor *x) { return cb_add(cb_mul(x, 2.0), found); }

static void found_tensors_are_guarded(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(with_found, VM);
    cb_tensor *x = ramp(4, 4), *row = cb_select(ramp(4, 4), 0, 1), *square = ramp(4, 4);
    cb_tensor *of[] = {square, row, cb_transpose(square, 0, 1), cb_to(square, CB_F64),
                       cb_narrow(ramp(4, 8), 1, 2, 4)};
    for (int i = 0; i < 15; i++) {
        found = of[i % 5];
        cb_tensor *got = cb_call(fast, x), *wanted = with_found(x);
        assert_int_equal(cb_dtype_of(got), cb_dtype_of(wanted));
        expect_equal(cb_contiguous(got), cb_contiguous(wanted));
    }
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

/* ---- ends ------------------------------------------------------------------------------------ */

static cb_tensor *kept;

/* Keeps a value for later, or lets it go. */
static cb_tensor *keeps(cb_tensor *x) {
    cb_tensor *y = cb_exp(x), *z = cb_mul(y, 2.0);
    if (turn) kept = cb_keep(y);
    return z;
}

static void kept_values_are_computed(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(keeps, VM);
    cb_tensor *x = ramp(4, 4);
    for (int i = 0; i < 9; i++) {
        turn = i % 3 != 1;
        kept = NULL;
        cb_scope_open();
        cb_tensor *z = cb_call(fast, x);
        expect_equal(z, cb_mul(cb_exp(x), 2.0));
        cb_scope_close();
        if (kept) expect_equal(kept, cb_exp(x));
        if (kept) cb_scope_add(kept);
    }
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

static int pair(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *a = cb_exp(in[0]), *b = cb_sin(in[0]);
    out[0] = turn == 1 ? b : a;
    out[1] = turn == 1 ? a : turn == 2 ? a : b;
    return turn == 3 ? 1 : 2;
}

static void results_keep_their_places(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile_n(pair, NULL, VM);
    cb_tensor *x = ramp(4, 4);
    for (int i = 0; i < 12; i++) {
        cb_tensor *got[2] = {0}, *wanted[2] = {0};
        turn = i % 4;
        int count = pair(&x, 1, wanted, NULL);
        assert_int_equal(cb_call_n(fast, &x, 1, got, 2), count);
        for (int k = 0; k < count; k++) expect_equal(got[k], wanted[k]);
    }
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

/* Two entries for inputs of two shapes, each of which then takes a new path: the other one's end
 * would fit, and is for other inputs. */
static cb_tensor *ends_later(cb_tensor *x) {
    cb_tensor *y = cb_exp(x);
    return turn ? cb_mul(y, 3.0) : y;
}

static void other_entries_are_for_other_inputs(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(ends_later, VM);
    cb_tensor *x[] = {ramp(4, 4), ramp(2, 3)};
    static const int turns[][2] = {{0, 0}, {1, 1}, {0, 1}, {1, 0}, {0, 0}, {1, 1}, {1, 0}, {0, 1}};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        turn = turns[i][1];
        expect_equal(cb_call(fast, x[turns[i][0]]), ends_later(x[turns[i][0]]));
    }
    assert_int_equal(cb_stats(fast).graphs, 4);
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

/* An entry of the other path was compiled while products were allowed to round. */
static cb_tensor *product_later(cb_tensor *x) {
    cb_tensor *y = cb_exp(x);
    return turn ? cb_matmul(y, y) : y;
}

static void other_entries_are_for_other_precisions(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(product_later, VM);
    static const struct {
        int turn;
        const char *precision;
        int graphs; /* so far */
    } calls[] = {{0, "highest", 1}, {1, "medium", 2}, {1, "highest", 3}, {1, "medium", 3},
                 {0, "medium", 4},  {1, "high", 4},   {0, "highest", 4}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        turn = calls[i].turn;
        cb_set_float32_matmul_precision(calls[i].precision);
        assert_non_null(cb_call(fast, ramp(4, 4)));
        assert_int_equal(cb_stats(fast).graphs, calls[i].graphs);
    }
    cb_set_float32_matmul_precision("highest");
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

/* fullgraph does not ask the module: what it holds may be another view of the same memory. */
static cb_tensor *plus_w(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)count;
    return cb_add(inputs[0], cb_module_get(self, "w"));
}

static void a_parameter_is_guarded_with_its_strides(void **state) {
    (void)state;
    static const char *const options[] = {VM, VM ", fullgraph=1", VM ", fullgraph=1, freeze=0"};
    for (int i = 0; i < 6; i++) {
        cb_scope_open();
        cb_module *module = cb_module_new("Plus", plus_w, NULL);
        cb_module_parameter(module, "w", ramp(4, 4));
        cb_module_train(module, i < 3);
        cb_function *fast = cb_compile(module, options[i % 3]);
        cb_tensor *x = ramp(4, 4);
        for (int k = 0; k < 3; k++) {
            expect_equal(cb_call(fast, x), cb_forward(module, x));
            cb_tensor *w = cb_module_get(module, "w");
            cb_module_parameter(module, "w", k ? cb_flip(w, cb_dims(0)) : cb_t(w));
        }
        expect_equal(cb_call(fast, x), cb_forward(module, x));
        cb_function_free(fast);
        cb_module_free(module);
        cb_scope_close();
        assert_null(cb_error());
    }
}

/* What was recorded for two tensors does not hold for one that is both, and is written. */
static cb_tensor *writes_first(cb_tensor *x, cb_tensor *y) {
    cb_tensor *z = cb_exp(x);
    if (!turn) return cb_mul(z, 2.0);
    cb_add_(x, 1.0);
    return cb_add(z, y);
}

static void other_entries_are_for_other_names(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(writes_first, VM);
    static const int turns[][2] = {{1, 1}, {0, 0}, {1, 0}, {1, 1}, {1, 0}, {0, 1}};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        bool two = turns[i][1];
        cb_tensor *x = ramp(4, 4), *u = ramp(4, 4), *y = two ? ramp(4, 4) : x;
        turn = turns[i][0];
        cb_tensor *wanted = writes_first(x, y);
        expect_equal(cb_call(fast, u, two ? cb_clone(y) : u), wanted);
        expect_equal(u, x);
    }
    assert_int_equal(cb_stats(fast).graphs, 4);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

static cb_tensor *writes_last(cb_tensor *x) {
    cb_tensor *y = cb_exp(x);
    if (turn) cb_add_(x, 1.0);
    return y;
}

/* The result is there before the trace ends: what is behind it is not done. */
static void a_run_may_end_earlier(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(writes_last, VM);
    for (int i = 0; i < 6; i++) {
        cb_tensor *x = ramp(4, 4), *u = ramp(4, 4);
        turn = i % 3 != 1;
        cb_tensor *wanted = writes_last(x);
        expect_equal(cb_call(fast, u), wanted);
        expect_equal(u, x);
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

/* ---- what surrounds an op that the trace has next -------------------------------------------- */

static bool around; /* the function does something before its first op */

static cb_tensor *writes_through(cb_tensor *x) {
    float *p = around ? cb_data(x) : NULL;
    cb_tensor *y = cb_sub(cb_mul(x, 2.0), 1.0);
    if (p) p[0] = 100;
    return y;
}

static cb_tensor *disables(cb_tensor *x) {
    if (around) cb_disable_open();
    cb_tensor *y = cb_mul(x, 2.0);
    if (around) cb_disable_close();
    return cb_sub(y, 1.0);
}

static cb_tensor *changes_precision(cb_tensor *x) {
    if (around) cb_set_float32_matmul_precision("medium");
    return cb_sub(cb_mul(x, 2.0), 1.0);
}

static void expect_apart(cb_function_1 *function) {
    cb_scope_open();
    cb_function *fast = cb_compile(function, VM);
    for (int round = 0; round < 6; round++) {
        cb_tensor *x = ramp(3, 4), *u = ramp(3, 4);
        around = round > 1;
        cb_tensor *wanted = function(x);
        cb_set_float32_matmul_precision("highest");
        cb_tensor *given = cb_call(fast, u);
        cb_set_float32_matmul_precision("highest");
        expect_equal(given, wanted);
        expect_equal(u, x);
        int graphs = (int)cb_stats(fast).graphs;
        if (round < 2)
            assert_int_equal(graphs, 1);
        else
            assert_true(graphs > 1 || function == writes_through);
    }
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

/* The same ops on the same inputs: at once, or of a segment of its own. */
static void surroundings_of_the_first_op(void **state) {
    (void)state;
    expect_apart(writes_through);
    expect_apart(disables);
    expect_apart(changes_precision);
}

/* ---- gradients, and who is one --------------------------------------------------------------- */

static cb_tensor *factor;

static cb_tensor *goes_back(cb_tensor *x) {
    cb_tensor *loss = cb_sum(cb_mul(x, factor));
    cb_backward(loss, NULL);
    return cb_detach(loss);
}

/* What was a leaf as it was recorded is the result of ops outside now, behind which the leaf is. */
static void a_result_is_no_leaf(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(goes_back, VM);
    for (int i = 0; i < 6; i++) {
        cb_tensor *leaf = cb_requires_grad_(ramp(3, 4), true), *x = ramp(3, 4);
        factor = i % 2 ? cb_mul(leaf, 3.0) : leaf;
        assert_non_null(cb_call(fast, x));
        cb_tensor *g = cb_tensor_grad(leaf);
        assert_non_null(g);
        expect_equal(cb_mul(g, 1.0), cb_mul(x, i % 2 ? 3.0 : 1.0));
    }
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

static cb_tensor *adds_into_the_second(cb_tensor *x, cb_tensor *y) {
    cb_add_(y, x);
    return cb_mul(x, 2.0);
}

/* One tensor is an entry of its own, whichever of the two is written; and is no miss again. */
static void what_is_written_joins_what_stands_before(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(adds_into_the_second, VM);
    for (int i = 0; i < 6; i++) {
        cb_tensor *x = ramp(3, 4), *y = i % 2 ? x : ramp(3, 4);
        cb_tensor *u = ramp(3, 4), *v = i % 2 ? u : ramp(3, 4);
        cb_tensor *wanted = adds_into_the_second(x, y);
        expect_equal(cb_call(fast, u, v), wanted);
        expect_equal(v, y);
        assert_int_equal(cb_stats(fast).graphs, i ? 2 : 1);
    }
    assert_int_equal(cb_stats(fast).breaks, 0);
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(surroundings_of_the_first_op),
        cmocka_unit_test(strides_are_a_guard),
        cmocka_unit_test(zero_has_a_sign),
        cmocka_unit_test(gradients_may_be_off_for_an_op),
        cmocka_unit_test(a_number_has_a_kind),
        cmocka_unit_test(operands_keep_their_places),
        cmocka_unit_test(found_tensors_are_guarded),
        cmocka_unit_test(kept_values_are_computed),
        cmocka_unit_test(results_keep_their_places),
        cmocka_unit_test(other_entries_are_for_other_inputs),
        cmocka_unit_test(other_entries_are_for_other_precisions),
        cmocka_unit_test(a_parameter_is_guarded_with_its_strides),
        cmocka_unit_test(other_entries_are_for_other_names),
        cmocka_unit_test(a_run_may_end_earlier),
        cmocka_unit_test(a_result_is_no_leaf),
        cmocka_unit_test(what_is_written_joins_what_stands_before),
    };
    return run_counted(tests);
}
