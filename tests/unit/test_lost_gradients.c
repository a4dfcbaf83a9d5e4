/* What a call leaves with leaves when an op of it fails, or when it is refused: never a gradient
 * that nobody has computed. Each course of calls runs eagerly and compiled, and the leaf can be
 * gone back to by the tape in between. */
#include "capture_support.h"

static const char *const ways[] = {NULL, VM, "fullgraph=1," VM, "backend=eager"};
enum { WAYS = sizeof ways / sizeof *ways, CALLS = 6, NOTHING = -77 };

static cb_tensor *w, *kept;
static bool fails; /* the custom op */

static double told(cb_tensor *x) {
    return x ? cb_item(cb_sum(cb_mul(cb_detach(x), cb_add(cb_arange(0, 2, 1, CB_F64), 1.0))))
             : NOTHING;
}

/* ---- programs -------------------------------------------------------------------------------- */

static cb_tensor *goes_back(cb_tensor *x, cb_tensor *index) {
    cb_tensor *loss = cb_sum(cb_mul(w, cb_index_select(x, 0, index)));
    cb_backward(loss, NULL);
    return cb_detach(loss);
}

static cb_tensor *empties_first(cb_tensor *x, cb_tensor *index) {
    cb_zero_grad(w);
    return goes_back(x, index);
}

static cb_tensor *goes_back_twice(cb_tensor *x, cb_tensor *index) {
    cb_backward(cb_sum(cb_mul(w, 3.0)), NULL);
    return goes_back(x, index);
}

static cb_status copy_shape(const cb_op_call *call) {
    call->output[0] = call->input[0];
    return CB_OK;
}

static cb_status copy_or_fail(const cb_op_call *call) {
    if (fails) return cb_fail(CB_ERR_ARGUMENT, "the kernel fails");
    memcpy(call->output[0].data, call->input[0].data, sizeof(double) * 2);
    return CB_OK;
}

static cb_tensor *has_effects(cb_tensor *x, cb_tensor *index) {
    (void)index;
    x = cb_slice(x, 0, 0, 2, 1);
    cb_tensor *y = cb_call_op("lost.copy", &x, 1, CB_NO_DIMS, CB_NO_FLOATS);
    cb_tensor *loss = cb_sum(cb_mul(w, y));
    cb_backward(loss, NULL);
    return cb_detach(loss);
}

static void course(cb_function_2 *program, const char *options, bool good_first, double *out) {
    static const int64_t good[] = {0, 1}, bad[] = {0, 9};
    cb_scope_open();
    w = cb_requires_grad_(cb_full(cb_dims(2), 1.0, CB_F64), true);
    cb_tensor *x = cb_full(cb_dims(3), 2.0, CB_F64);
    cb_tensor *index[] = {cb_from_data(good, CB_I64, cb_dims(2)),
                          cb_from_data(bad, CB_I64, cb_dims(2))};
    cb_function *fast = options ? cb_compile(program, options) : NULL;
    for (int call = 0; call < CALLS; call++) {
        fails = (call & 1) == good_first;
        cb_tensor *y = fast ? cb_call(fast, x, index[fails]) : program(x, index[fails]);
        assert_int_equal(y == NULL, fails);
        assert_int_equal(cb_error() != NULL, fails);
        cb_clear_error();
        *out++ = told(y);
        *out++ = told(cb_tensor_grad(w));
        if (call & 2) cb_backward(cb_sum(cb_mul(w, 5.0)), NULL);
        assert_null(cb_error());
        *out++ = told(cb_tensor_grad(w));
    }
    cb_function_free(fast);
    cb_scope_close();
}

static void a_failed_op_leaves_no_gradient(void **state) {
    (void)state;
    static cb_function_2 *const programs[] = {goes_back, empties_first, goes_back_twice,
                                              has_effects};
    cb_register_op(&(cb_custom_op){.name = "lost.copy",
                                   .inputs = 1,
                                   .outputs = 1,
                                   .shape = copy_shape,
                                   .kernel = copy_or_fail,
                                   .effects = true});
    for (int p = 0; p < 4; p++)
        for (int order = 0; order < 2; order++) {
            double expected[3 * CALLS], got[3 * CALLS];
            course(programs[p], NULL, order, expected);
            for (int way = 1; way < WAYS; way++) {
                course(programs[p], ways[way], order, got);
                for (int i = 0; i < 3 * CALLS; i++)
                    if (got[i] != expected[i])
                        fail_msg("program %d, %s, order %d, call %d: %g for %g", p, ways[way],
                                 order, i / 3, got[i], expected[i]);
            }
        }
}

/* ---- failures that the function deals with --------------------------------------------------- */

/* What failed is kept, and asked for by nobody. */
static cb_tensor *goes_on(cb_tensor *x, cb_tensor *index) {
    kept = cb_keep(cb_index_select(x, 0, index));
    cb_tensor *loss = cb_sum(cb_mul(w, kept));
    cb_backward(loss, NULL);
    double sum = cb_item(cb_sum(x)), of_loss = cb_item(cb_detach(loss));
    cb_clear_error();
    return cb_mul(x, sum + (of_loss > 0));
}

static void a_failure_is_not_told_again(void **state) {
    (void)state;
    static const int64_t index[2][2] = {{0, 1}, {0, 9}};
    for (int way = 0; way < 2; way++)
        for (int first = 0; first < 2; first++) {
            cb_scope_open();
            w = cb_requires_grad_(cb_full(cb_dims(2), 1.0, CB_F64), true);
            cb_tensor *x = cb_full(cb_dims(3), 2.0, CB_F64);
            cb_function *fast = cb_compile(goes_on, VM);
            for (int call = first; call < CALLS; call++) {
                cb_tensor *i = cb_from_data(index[call & 1], CB_I64, cb_dims(2));
                cb_tensor *y = way ? cb_call(fast, x, i) : goes_on(x, i);
                if (!y || cb_error()) fail_msg("call %d: %s", call, cb_error());
                assert_true(cb_item(cb_select(y, 0, 0)) == (call & 1 ? 12 : 14));
                assert_int_equal(cb_tensor_grad(w) == NULL, call & 1);
                cb_zero_grad(w);
                cb_free(kept);
            }
            cb_function_free(fast);
            cb_scope_close();
            assert_null(cb_error());
        }
}

/* ---- calls that are refused ------------------------------------------------------------------ */

static int way_out;

static cb_tensor *is_refused(cb_tensor *x) {
    cb_tensor *loss = cb_sum(cb_mul(w, x));
    cb_backward(loss, NULL);
    if (way_out == 0) return cb_mul(x, cb_item(cb_detach(loss)));
    if (way_out == 1) kept = cb_keep(cb_exp(x));
    if (way_out == 2) cb_requires_grad_(w, false);
    if (way_out != 3) return cb_detach(loss);
    cb_item(cb_detach(loss));
    cb_clear_error();
    return NULL;
}

/* And its reason is told, whatever the function does about it. */
static void a_refused_call_leaves_no_gradient(void **state) {
    (void)state;
    static const char *const reasons[] = {"the function asked for a value",
                                          "not return: what exp gave at test_lost_gradients.c:",
                                          "does not any more", "the function asked for a value"};
    for (way_out = 0; way_out < 4; way_out++) {
        cb_scope_open();
        w = cb_requires_grad_(cb_full(cb_dims(2), 1.0, CB_F64), true);
        cb_tensor *x = cb_full(cb_dims(2), 2.0, CB_F64);
        cb_function *fast = cb_compile(is_refused, ways[2]);
        for (int call = 0; call < 3; call++) {
            assert_null(cb_call(fast, x));
            if (!cb_error() || !strstr(cb_error(), reasons[way_out]))
                fail_msg("%d: %s", way_out, cb_error());
            cb_clear_error();
            assert_null(cb_tensor_grad(w));
            cb_backward(cb_sum(cb_mul(w, 5.0)), NULL);
            assert_true(told(cb_tensor_grad(w)) == 15);
            cb_zero_grad(w);
            if (way_out == 1) cb_free(kept);
        }
        cb_function_free(fast);
        cb_scope_close();
        assert_null(cb_error());
    }
}

static cb_tensor *takes_two_paths(cb_tensor *x) {
    cb_backward(cb_sum(cb_mul(w, x)), NULL);
    double sum = cb_item(cb_sum(x));
    return sum > 4 ? cb_exp(x) : cb_neg(x);
}

/* What came before the event has been done, whoever waits for it. */
static void a_path_that_is_refused(void **state) {
    (void)state;
    cb_scope_open();
    w = cb_requires_grad_(cb_full(cb_dims(2), 1.0, CB_F64), true);
    cb_function *fast = cb_compile(takes_two_paths, VM);
    for (int call = 0; call < 6; call++) {
        bool refused = call == 4;
        cb_set_option("stance", refused ? "fail_on_recompile" : "default");
        cb_tensor *y = cb_call(fast, cb_full(cb_dims(2), refused ? 3.0 : 2.0, CB_F64));
        assert_int_equal(y == NULL, refused);
        cb_clear_error();
        assert_true(told(cb_tensor_grad(w)) == (refused ? 9 : 6));
        cb_backward(cb_sum(cb_mul(w, 5.0)), NULL);
        assert_true(told(cb_tensor_grad(w)) == (refused ? 24 : 21));
        cb_zero_grad(w);
    }
    cb_set_option("stance", "default");
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

static bool tries;

/* Of everything that the gradient reads the elements are others before cb_backward. */
static cb_tensor *writes_and_goes_back(cb_tensor *x, cb_tensor *y) {
    cb_tensor *made = cb_add(y, 1.0), *of_input = cb_mul(w, x), *of_part = cb_select(x, 0, 1);
    cb_tensor *sum = cb_add(cb_add(of_input, cb_mul(w, made)), cb_mul(w, w));
    sum = cb_add(cb_add(sum, cb_mul(w, of_part)), cb_mul(w, y));
    cb_mul_(made, 5.0);
    cb_mul_(x, 2.0);
    cb_no_grad_open();
    cb_fill_(w, 9.0);
    cb_no_grad_close();
    if (tries && !cb_mul_(of_input, 2.0)) cb_clear_error();
    assert_int_equal(cb_backward(cb_sum(sum), NULL), CB_OK);
    return cb_add(x, y);
}

/* The same whether a graph runs or, where inputs overlap or an op was refused, its ops do: no
 * cb_backward that went well fails later. */
static void a_walk_behind_writes(void **state) {
    (void)state;
    for (int way = 0; way < 8; way++) {
        cb_function *fast = cb_compile(writes_and_goes_back, way & 4 ? "backend=eager" : VM);
        tries = way & 1;
        for (int call = 0; call < 3; call++) {
            cb_scope_open();
            w = cb_requires_grad_(cb_full(cb_dims(2), 3.0, CB_F64), true);
            cb_tensor *memory = cb_add(cb_arange(0, 3, 1, CB_F64), 2.0);
            cb_tensor *x = cb_slice(memory, 0, 0, 2), *y = cb_slice(memory, 0, 1, 3);
            if (!(way & 2)) y = cb_clone(y);
            cb_tensor *got = cb_call(fast, x, y);
            if (!got) fail_msg("way %d, call %d: %s", way, call, cb_error());
            /* x + (y + 1) + 2 w + x[1] + y, where x is {2, 3}, y {3, 4} and w {3, 3} */
            assert_true(told(cb_tensor_grad(w)) == 18 + 2 * 21);
            assert_true(told(got) == (way & 2 ? 10 + 2 * 10 : 7 + 2 * 10));
            cb_scope_close();
        }
        cb_function_free(fast);
    }
    assert_null(cb_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_op_leaves_no_gradient),
        cmocka_unit_test(a_failure_is_not_told_again),
        cmocka_unit_test(a_refused_call_leaves_no_gradient),
        cmocka_unit_test(a_path_that_is_refused),
        cmocka_unit_test(a_walk_behind_writes),
    };
    return run_counted(tests);
}
