/* Compiled functions that do what few do: they deal with failures themselves, keep what they may
 * not, depart from their trace in each way, write through each kind of view. */
#include "capture_support.h"
#include "fixture.h"
#include <unistd.h>

static void expect_words(cb_function *fast, const char *words) {
    char *text = cb_explain(fast);
    assert_non_null(text);
    if (!strstr(text, words)) print_error("no '%s' in\n%s\n", words, text);
    assert_non_null(strstr(text, words));
    cb_free_text(text);
}

/* ---- what is no call ------------------------------------------------------------------------- */

static cb_tensor *add_3(cb_tensor *a, cb_tensor *b, cb_tensor *c) {
    return cb_add(cb_add(a, b), c);
}
static cb_tensor *add_4(cb_tensor *a, cb_tensor *b, cb_tensor *c, cb_tensor *d) {
    return cb_sub(add_3(a, b, c), d);
}
static int first_of(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)user;
    out[0] = count ? cb_neg(x[0]) : cb_ones(cb_dims(2));
    return 1;
}

static void test_three_and_four(void **state) {
    (void)state;
    cb_function *three = cb_compile(add_3, VM), *four = cb_compile(add_4, VM);
    cb_tensor *x = ramp(2, 3), *y = cb_exp(x), *z = cb_mul(y, 3.0);
    for (int i = 0; i < 2; i++) {
        expect_equal(cb_call(three, x, y, z), add_3(x, y, z));
        expect_equal(cb_call(four, x, y, z, x), add_4(x, y, z, x));
    }
    REFUSED(cb_call(three, x, y), "add_3 takes 3 tensors, not 2");
    REFUSED(cb_call(four, x), "takes 4 tensors, not 1");
    REFUSED(cb_compile(add_3, "nothing=1"), "there is no option 'nothing'");
    REFUSED(cb_compile(add_3, "fues=1"), "did you mean 'fuse'?");
    REFUSED(cb_compile(add_4, "\tbackend\n=\tgpu "), "backend");
    REFUSED(cb_compile_n(NULL, NULL, VM), "there is nothing to compile");
    cb_function_free(three);
    cb_function_free(four);
}

static void test_arrays(void **state) {
    (void)state;
    cb_function *fast = cb_compile_n(first_of, NULL, VM);
    cb_tensor *x = ramp(2, 3), *out[1], *many[CB_MAX_ARGS + 1];
    for (int i = 0; i <= CB_MAX_ARGS; i++) many[i] = x;
    REFUSES(cb_call_n(NULL, &x, 1, out, 1), CB_ERR_ARGUMENT, "the function or an array is NULL");
    REFUSES(cb_call_n(fast, NULL, 1, out, 1), CB_ERR_ARGUMENT, "an array is NULL");
    REFUSES(cb_call_n(fast, &x, 1, NULL, 1), CB_ERR_ARGUMENT, "an array is NULL");
    REFUSES(cb_call_n(fast, &x, -1, out, 1), CB_ERR_ARGUMENT, "takes 1024 tensors, not -1");
    REFUSES(cb_call_n(fast, many, CB_MAX_ARGS + 1, out, 1), CB_ERR_ARGUMENT, "not 1025");
    REFUSES(cb_call_n(fast, &x, 1, NULL, 0), CB_ERR_ARGUMENT, "do not fit into an array of 0");
    many[1] = NULL;
    REFUSES(cb_call_n(fast, many, 2, out, 1), CB_ERR_ARGUMENT, "input 1 is NULL");
    assert_int_equal(cb_call_n(fast, NULL, 0, out, 1), 1); /* there are none */
    assert_true(cb_item(cb_sum(out[0])) == 2);
    assert_int_equal(cb_call_n(fast, &x, 1, out, 1), 1);
    expect_equal(out[0], cb_neg(x));
    expect_words(fast, "another number of inputs");
    cb_function_free(fast);
}

static void test_reduce_overhead(void **state) {
    (void)state;
    const char *mode[] = {"mode=reduce-overhead," VM, "mode=max-autotune," VM, "mode=default," VM};
    for (int i = 0; i < 3; i++) {
        cb_function *fast = cb_compile(gelu, mode[i]);
        cb_tensor *x = ramp(2, 3);
        expect_equal(cb_call(fast, x), gelu(x));
        char *text = cb_explain(fast);
        assert_int_equal(strstr(text, "CUDA graphs") != NULL, i < 2);
        cb_free_text(text);
        cb_function_free(fast);
    }
}

/* ---- functions that deal with a failure ------------------------------------------------------ */

static cb_tensor *tries(cb_tensor *x) {
    cb_tensor *y = cb_add(x, cb_ones(cb_dims(7)));
    if (y) return y;
    cb_clear_error();
    return cb_mul(x, 2.0);
}

/* Every call breaks at the op that fails; from the limit on it is not tried any more. */
static void test_failing_again(void **state) {
    (void)state;
    cb_function *fast = cb_compile(tries, VM);
    cb_tensor *x = ramp(2, 3);
    cb_set_option("recompile_limit", "3");
    for (int i = 0; i < 6; i++) {
        expect_equal(cb_call(fast, x), tries(x));
        assert_null(cb_error());
        assert_int_equal(cb_stats(fast).breaks, i < 3 ? i + 1 : 3);
    }
    cb_set_option("recompile_limit", "8");
    cb_function_free(fast);
}

/* What fullgraph refuses stays refused when the function clears the error. */
static cb_tensor *asks_and_clears(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    (void)cb_item(cb_select(cb_select(y, 0, 0), 0, 0));
    cb_clear_error();
    return y;
}

static void test_refused_and_cleared(void **state) {
    (void)state;
    cb_function *fast = cb_compile(asks_and_clears, "fullgraph=1," VM);
    for (int i = 0; i < 2; i++) REFUSED(cb_call(fast, ramp(2, 3)), "fullgraph");
    cb_function_free(fast);
}

/* An op of the trace fails when a value is asked for; the function goes on without it. */
static cb_tensor *outside;

static cb_tensor *looks_up_and_clears(cb_tensor *x) {
    cb_tensor *row = cb_index_select(x, 0, outside);
    double sum = cb_item(cb_sum(row));
    if (!cb_error()) return cb_add(x, sum);
    cb_clear_error();
    return cb_mul(x, 2.0);
}

static void test_broken_and_cleared(void **state) {
    (void)state;
    cb_tensor *x = ramp(2, 3);
    for (int first = 0; first < 2; first++) {
        cb_function *fast = cb_compile(looks_up_and_clears, VM);
        for (int i = first; i < first + 2; i++) {
            int64_t row = i == 1 ? 9 : 1;
            outside = cb_from_data(&row, CB_I64, cb_dims(1));
            expect_equal(cb_call(fast, x), looks_up_and_clears(x));
            assert_null(cb_error());
        }
        cb_function_free(fast);
    }
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static cb_tensor *left;

static cb_tensor *keeps(cb_tensor *x) {
    left = cb_keep(cb_mul(x, 2.0));
    return cb_add(x, 1.0);
}
static cb_tensor *adds_left(cb_tensor *x) { return cb_add(x, left); }
static cb_tensor *writes_left(cb_tensor *x) { return cb_assign(left, x) ? cb_neg(x) : NULL; }
static cb_tensor *writes_from_left(cb_tensor *x) { return cb_assign(x, left); }
static cb_tensor *returns_left(cb_tensor *x) { return (void)x, left; }

/* Whatever asks for its elements says that it has none. */
static void expect_useless(cb_tensor *none) {
    float data[6];
    cb_tensor *x = ramp(2, 3);
    REFUSED(cb_neg(none), "was traced, and never computed: it has no value. What another thread");
    REFUSED(cb_t(none), "has no value");
    REFUSED(cb_assign(none, x), "assign: the target was traced");
    REFUSED(cb_assign(x, none), "assign: the value was traced");
    REFUSED(cb_fill_(none, 1.0), "fill_: the target was traced");
    REFUSES(cb_read(none, data, CB_F32), CB_ERR_GRAPH, "no value");
    REFUSED(cb_data(none), "no value");
    REFUSES(cb_npy_save("/tmp/never.npy", none), CB_ERR_GRAPH, "no value");
    cb_changed(none); /* nobody has read it */
    cb_changed(NULL);
    assert_null(cb_error());
    assert_false(cb_shares_storage(none, x));
    assert_false(cb_shares_storage(none, none));
    cb_autocast_open(CB_BF16);
    REFUSED(cb_matmul(none, cb_t(x)), "has no value");
    cb_autocast_close();
    cb_module *module = cb_module_new("Holds", NULL, NULL);
    REFUSED(cb_module_share(module, "shared", none), "no value");
    cb_module_free(module);
    const char *name = "x", *path = "/tmp/carbide-never.safetensors";
    REFUSES(cb_safetensors_save(path, &name, &none, 1), CB_ERR_GRAPH, "no value");
}

static void test_kept_under_fullgraph(void **state) {
    (void)state;
    static const char *const options[] = {VM, "fullgraph=1," VM};
    cb_function_1 *const uses[] = {adds_left, writes_left, writes_from_left};
    cb_tensor *x = ramp(2, 3), *none;
    cb_function *fast = cb_compile(keeps, "fullgraph=1," VM);
    REFUSED(cb_call(fast, x), "fullgraph: the function keeps a tensor that it does not return: "
                              "what mul gave at test_capture_rare.c:");
    none = left; /* it was never computed */
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++) {
            cb_function *user = cb_compile(uses[k], options[i]);
            cb_tensor *before = cb_clone(x);
            left = none;
            REFUSED(cb_call(user, x), "has no value");
            left = ramp(2, 3);
            expect_equal(cb_call(user, x), uses[k](before)); /* a real one: it works */
            left = none; /* fullgraph holds on to the one that it met */
            if (!i) REFUSED(cb_call(user, x), "has no value");
            cb_function_free(user);
        }
        cb_function *user = cb_compile(returns_left, options[i]);
        REFUSED(cb_call(user, x), i ? "a result has no value" : "result 0 was traced");
        cb_function_free(user);
    }
    cb_function *user = cb_compile(gelu, VM);
    REFUSED(cb_call(user, none), "input 0 has no value");
    expect_useless(none);
    cb_function_free(user);
    cb_free(none);
    cb_function_free(fast);
}

/* ---- departures ------------------------------------------------------------------------------ */

static int way;

static int ways(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *y = cb_mul(x[0], 2.0);
    switch (way) {
    case 0:
        out[0] = cb_add(y, 1.0);
        return 1;
    case 1: /* another number */
        out[0] = cb_add(y, 2.0);
        return 1;
    case 2: /* another kind of number */
        out[0] = cb_add(y, 1);
        return 1;
    case 3: /* a tensor in its place */
        out[0] = cb_add(y, x[0]);
        return 1;
    case 4: /* another op */
        out[0] = cb_sub(y, 1.0);
        return 1;
    case 5: /* more results */
        out[0] = cb_add(y, 1.0);
        out[1] = x[0];
        return 2;
    case 6: /* no result */
        cb_add(y, 1.0);
        out[0] = NULL;
        out[1] = NULL;
        return 2;
    case 7: /* a tensor from outside as the second result */
        out[0] = cb_add(y, 1.0);
        out[1] = outside;
        return 2;
    case 8: /* a write */
        cb_fill_(y, 1.0);
        out[0] = y;
        return 1;
    case 9: /* a write of something else */
        cb_assign(y, x[0]);
        out[0] = y;
        return 1;
    case 10: /* one op less */
        out[0] = y;
        return 1;
    case 11: /* one op more */
        out[0] = cb_neg(cb_add(y, 1.0));
        return 1;
    case 12: /* a bool */
        out[0] = cb_where(cb_gt(y, 0.0), y, cb_operand_bool(true));
        return 1;
    case 13:
        out[0] = cb_where(cb_gt(y, 0.0), y, cb_operand_bool(false));
        return 1;
    case 14: /* a tensor that may be absent */
        out[0] = cb_linear(y, x[0], NULL);
        return 1;
    case 15:
        out[0] = cb_linear(y, x[0], cb_select(outside, 1, 0));
        return 1;
    case 16: /* a write from outside, and two ways on */
        cb_assign(y, outside);
        out[0] = cb_neg(y);
        return 1;
    case 17:
        cb_assign(y, outside);
        out[0] = cb_abs(y);
        return 1;
    case 18: /* an op on a number */
        out[0] = cb_add(y, (cb_exp)(cb_operand_float(1.0)));
        return 1;
    default:
        out[0] = cb_add(y, outside);
        return 1;
    }
}
enum { WAYS = 20 };

/* Every way after every other one, then all again: each is recorded once, and repeats. */
static void test_ways(void **state) {
    (void)state;
    cb_set_option("recompile_limit", "40");
    cb_function *fast = cb_compile_n(ways, NULL, VM);
    cb_tensor *x = ramp(2, 3), *got[2], *expected[2];
    outside = ramp(2, 3);
    for (int round = 0; round < 3; round++)
        for (int k = 0; k < WAYS; k++) {
            way = round == 1 ? WAYS - 1 - k : k;
            int count = ways(&x, 1, expected, NULL);
            assert_int_equal(cb_call_n(fast, &x, 1, got, 2), count);
            for (int i = 0; i < count; i++) {
                assert_int_equal(got[i] == NULL, expected[i] == NULL);
                if (got[i]) expect_equal(got[i], expected[i]);
            }
            if (way == 5) assert_ptr_equal(got[1], x);
            if (way == 7) assert_ptr_equal(got[1], outside);
        }
    assert_int_equal(cb_stats(fast).graphs, WAYS);
    assert_int_equal(cb_stats(fast).breaks, 0);
    expect_words(fast, "true");
    expect_words(fast, "return NULL, NULL");
    cb_function_free(fast);
    cb_set_option("recompile_limit", "8");
}

/* From the limit on, a call that departs goes on eagerly, or is refused. */
static void test_departing_at_the_limit(void **state) {
    (void)state;
    cb_set_option("recompile_limit", "1");
    cb_tensor *x = ramp(2, 3), *got[2], *expected[2];
    outside = ramp(2, 3);
    for (int first = 0; first < 2; first++)
        for (int k = 1; k < WAYS; k++) {
            cb_function *fast = cb_compile_n(ways, NULL, VM);
            way = first ? 8 : 0;
            assert_int_equal(cb_call_n(fast, &x, 1, got, 2), 1);
            way = first && k == 8 ? 0 : k;
            int count = ways(&x, 1, expected, NULL);
            assert_int_equal(cb_call_n(fast, &x, 1, got, 2), count);
            for (int i = 0; i < count; i++)
                if (expected[i]) expect_equal(got[i], expected[i]);
            assert_int_equal(cb_stats(fast).graphs, 1);
            assert_int_equal(cb_stats(fast).eager_calls, 1);
            expect_words(fast, "the recompile limit was reached");
            cb_function_free(fast);
        }
    cb_set_option("recompile_limit", "8");
    assert_null(cb_error());
}

/* What is recorded takes the weight as it was. */
static cb_module *loaded;
static const char *saved;
static cb_tensor *reads_then_loads(cb_tensor *x) {
    cb_tensor *y = cb_mul(cb_module_get(loaded, "w"), x);
    return cb_module_load_state(loaded, saved, true) == CB_OK ? cb_add(y, 0.0) : NULL;
}

static void test_loading_behind_a_read(void **state) {
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "/tmp/carbide-loaded-%d", (int)getpid());
    saved = path;
    loaded = cb_module_new("Net", NULL, NULL);
    cb_tensor *w = cb_module_parameter(loaded, "w", cb_full(2, 5.0));
    assert_int_equal(cb_module_save_state(loaded, path), CB_OK);
    cb_function *fast = cb_compile(reads_then_loads, VM);
    for (int i = 0; i < 3; i++) {
        cb_fill_(w, 3.0 + i);
        expect_equal(cb_call(fast, cb_ones(2)), cb_full(2, 3.0 + i));
        expect_equal(w, cb_full(2, 5.0));
    }
    cb_function_free(fast);
    cb_module_free(loaded);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_three_and_four, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_arrays, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_reduce_overhead, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_failing_again, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_refused_and_cleared, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_broken_and_cleared, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_kept_under_fullgraph, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_ways, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_departing_at_the_limit, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(test_loading_behind_a_read, open_scope, close_scope),
    };
    return run_counted(tests);
}
