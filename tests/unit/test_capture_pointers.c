/* Compiled functions that read and write tensors behind the ops: through pointers, by asking for
 * values, and by freeing what they were given. Against the same functions run eagerly. */
#include "capture_support.h"

static float *taken; /* before the call */
static cb_tensor *table;

/* ---- pointers taken inside ------------------------------------------------------------------ */

static cb_tensor *writes_after(cb_tensor *x) {
    float *p = cb_data(x);
    cb_tensor *y = cb_add(x, 1.0);
    p[0] = 5;
    return y;
}

static cb_tensor *takes_between(cb_tensor *x) {
    cb_tensor *y = cb_add(x, 1.0);
    float *p = cb_data(x);
    p[1] = 5;
    cb_changed(x);
    return cb_mul(y, x);
}

static cb_tensor *takes_a_view(cb_tensor *x) {
    cb_tensor *y = cb_add(x, 1.0);
    cb_mul_(cb_select(x, 0, 0), 2.0);
    float *p = cb_data(cb_select(x, 0, 1));
    cb_tensor *z = cb_mul(x, 2.0);
    p[2] = p[1] - 8;
    return cb_sub(z, y);
}

static cb_tensor *takes_a_result(cb_tensor *x) {
    cb_tensor *y = cb_add(x, 1.0), *z = cb_mul(y, 2.0);
    ((float *)cb_data(y))[0] = 7;
    return cb_add(cb_sub(y, x), z);
}

static cb_tensor *takes_a_fresh_one(cb_tensor *x) {
    cb_tensor *y = cb_empty(cb_dims(4), CB_F32);
    float *p = cb_data(y);
    for (int i = 0; i < 4; i++) p[i] = (float)i;
    cb_tensor *z = cb_mul(x, y);
    for (int i = 0; i < 4; i++) p[i] = 9;
    return cb_add(z, y);
}

/* Each op on one of them runs at once, however many there are. */
static cb_tensor *takes_many(cb_tensor *x) {
    enum { MANY = 50 };
    cb_tensor *y[MANY], *sum = x;
    float *p[MANY];
    for (int i = 0; i < MANY; i++) {
        y[i] = cb_clone(x);
        p[i] = cb_data(y[i]);
    }
    for (int i = 0; i < MANY; i++) {
        cb_tensor *z = cb_mul(y[i], 2.0);
        p[i][0] = 100 + i; /* z does not see it */
        sum = cb_add(sum, z);
    }
    return sum;
}

static cb_tensor *reads_what_was_written(cb_tensor *x) {
    float *p = cb_data(x);
    cb_add_(table, 1.0);             /* recorded */
    cb_tensor *y = cb_mul(x, table); /* at once, behind it */
    p[0] = 5;
    return cb_sub(y, table);
}

static cb_tensor *writes_into_a_result(cb_tensor *x) {
    float *p = cb_data(x);
    cb_tensor *y = cb_mul(table, 2.0); /* recorded */
    cb_assign(y, x);                   /* at once, into what was recorded */
    p[0] = 5;
    return cb_add(y, 1.0);
}

static cb_tensor *draws_in_turn(cb_tensor *x) {
    cb_manual_seed(7);
    float *p = cb_data(x);
    cb_tensor *noise = cb_rand(cb_dims(2, 4), CB_F32), *dropped = cb_dropout(x, 0.5, true);
    p[0] = 5;
    return cb_add(cb_mul(noise, 100.0), dropped);
}

/* ---- pointers taken before ------------------------------------------------------------------ */

static cb_tensor *announces(cb_tensor *x) {
    cb_tensor *y = cb_add(x, table);
    cb_changed(table);
    taken[0] = 5;
    return cb_mul(y, table);
}

static cb_tensor *announces_a_view(cb_tensor *x) {
    cb_tensor *y = cb_add(x, table);
    cb_add_(table, 1.0);
    cb_changed(cb_select(table, 0, 0));
    taken[0] += 5;
    return cb_mul(y, table);
}

/* Nothing that is recorded reads the table yet. */
static cb_tensor *announces_early(cb_tensor *x) {
    cb_tensor *y = cb_exp(x);
    cb_changed(table);
    taken[0] += 5;
    return cb_mul(y, table);
}

/* ---- values --------------------------------------------------------------------------------- */

static cb_tensor *asks_written(cb_tensor *x) {
    cb_mul_(x, 2.0);
    float y[2];
    assert_int_equal(cb_read(cb_narrow(cb_view(x, cb_dims(8)), 0, 0, 2), y, CB_F32), CB_OK);
    return cb_add(x, y[0] + y[1]);
}

static cb_tensor *asks_outside(cb_tensor *x) {
    cb_tensor *y = cb_exp(x);
    float a[8];
    assert_int_equal(cb_read(table, a, CB_F32), CB_OK);
    return cb_mul(y, a[5]);
}

/* ---- the comparison ------------------------------------------------------------------------- */

typedef struct Case {
    cb_function_1 *function;
    const char *reason; /* of its one break; NULL: there is none */
} Case;

static void expect_same(const Case *c) {
    cb_function *fast = cb_compile(c->function, VM);
    cb_tensor *tables[2] = {ramp(2, 4), ramp(2, 4)};
    for (int round = 0; round < 3; round++) {
        cb_scope_open();
        cb_tensor *x = ramp(2, 4), *u = ramp(2, 4);
        taken = cb_data(table = tables[0]);
        cb_tensor *expected = c->function(u);
        taken = cb_data(table = tables[1]);
        expect_equal(cb_call(fast, x), expected);
        expect_equal(x, u);
        expect_equal(tables[0], tables[1]);
        cb_scope_close();
    }
    cb_function_stats stats = cb_stats(fast);
    assert_int_equal(stats.eager_calls, 0);
    assert_true(stats.graphs <= 2);
    char *said = cb_explain(fast);
    if (c->reason) assert_non_null(strstr(said, c->reason));
    cb_free_text(said);
    cb_function_free(fast);
    assert_null(cb_error());
}

static void test_pointers(void **state) {
    (void)state;
    const Case cases[] = {
        {writes_after, "asked for a pointer"},
        {takes_between, "asked for a pointer"},
        {takes_a_view, "asked for a pointer"},
        {takes_a_result, "asked for a pointer"},
        {takes_a_fresh_one, "asked for a pointer"},
        {reads_what_was_written, "asked for a pointer"},
        {writes_into_a_result, "asked for a pointer"},
        {draws_in_turn, "asked for a pointer"},
        {announces, "writes to a tensor through a pointer"},
        {announces_a_view, "writes to a tensor through a pointer"},
        {announces_early, NULL},
        {asks_written, "asked for a value"},
        {asks_outside, NULL},
    };
    cb_scope_open();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_same(&cases[i]);
    cb_scope_close();
}

static void test_many_pointers(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(takes_many, VM);
    cb_tensor *expected = takes_many(ramp(2, 4));
    for (int call = 0; call < 3; call++) expect_equal(cb_call(fast, ramp(2, 4)), expected);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    cb_scope_close();
}

static cb_tensor *frees_and_asks(cb_tensor *x, cb_tensor *old) {
    cb_free(old);
    cb_item(cb_sum(x));
    return cb_mul(x, 2);
}

/* The view of it that the call keeps for the segment is gone with the segment. */
static void test_freed_before_a_value(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(frees_and_asks, VM);
    int64_t live = 0;
    for (int call = 0; call < 6; call++) {
        cb_scope_open();
        assert_non_null(cb_call(fast, ramp(2, 4), cb_keep(ramp(3, 3))));
        cb_scope_close();
        if (call == 2) live = cb_memory().live_tensors;
    }
    assert_int_equal(cb_memory().live_tensors, live);
    cb_function_free(fast);
    cb_scope_close();
}

static bool by_pointer;
static cb_tensor *asks_either_way(cb_tensor *x) {
    cb_tensor *u = cb_add(x, 1.0);
    float *p = by_pointer ? cb_data(u) : NULL;
    if (!p) cb_item(cb_select(cb_select(u, 0, 0), 0, 0));
    cb_tensor *y = cb_mul(table, 2.0), *z = cb_mul(u, 2.0), *w = cb_mul(u, 3.0);
    if (p) p[0] = 5;
    return cb_add(cb_add(y, z), w);
}

/* What was recorded behind a value is no trace of what follows a pointer. */
static void test_either_way(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(asks_either_way, VM);
    table = ramp(2, 4);
    for (int call = 0; call < 6; call++) {
        by_pointer = call % 2;
        cb_tensor *expected = asks_either_way(ramp(2, 4));
        expect_equal(cb_call(fast, ramp(2, 4)), expected);
    }
    cb_function_free(fast);
    cb_scope_close();
}

static cb_tensor *takes_or_leaves(cb_tensor *x) { return cb_data(x) ? x : NULL; }

/* ---- a pointer that is kept through the call ------------------------------------------------- */

static cb_tensor *goes_on(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0), *waits = cb_exp(y), *noise;
    cb_manual_seed(3);
    noise = cb_rand(cb_dims(2, 4), CB_F32);
    float *p = cb_data(x);
    cb_tensor *z = cb_add(x, 1.0); /* at once */
    p[0] = 5;
    cb_tensor *dropped = cb_dropout(x, 0.5, true); /* which draws behind noise */
    cb_tensor *w = cb_sigmoid(cb_add(cb_mul(y, z), waits));
    p[1] += 3;
    cb_assign(cb_select(x, 0, 1), cb_select(w, 0, 0)); /* needs what is recorded */
    cb_add_(w, x);
    p[4] *= 2;
    cb_assign(y, x); /* y is read by what is recorded */
    p[5] = 1;
    w = cb_tanh(cb_add(cb_add(w, y), noise));
    return cb_add(cb_add(w, dropped), p[4]);
}

/* Ops on the tensor run at once, those around them compiled, in each call. */
static void test_goes_on(void **state) {
    (void)state;
    cb_function *fast = cb_compile(goes_on, VM);
    int64_t graphs = 0;
    for (int i = 0; i < 6; i++) {
        cb_scope_open();
        cb_tensor *x = ramp(2, 4), *u = ramp(2, 4);
        cb_tensor *expected = goes_on(u);
        expect_equal(cb_call(fast, x), expected);
        expect_equal(x, u);
        cb_scope_close();
        if (i == 2) graphs = cb_stats(fast).graphs;
    }
    assert_null(cb_error());
    assert_in_range(graphs, 3, 7);
    assert_int_equal(cb_stats(fast).graphs, graphs);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

static cb_tensor *looks(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    const float *p = cb_data_const(y);
    float first = p[0], last = p[7];
    return cb_add(cb_mul(y, first), last);
}

/* One that only reads is a value request. */
static void test_reads(void **state) {
    (void)state;
    cb_function *fast = cb_compile(looks, VM);
    for (int i = 0; i < 3; i++) expect_equal(cb_call(fast, ramp(2, 4)), looks(ramp(2, 4)));
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_function_free(fast);
}

/* Many of them, each in memory of its own. */
static cb_tensor *fills_many(cb_tensor *x) {
    cb_tensor *y = x;
    for (int i = 0; i < 20; i++) {
        cb_tensor *made = cb_zeros(cb_dims(2, 4), CB_F32);
        ((float *)cb_data(made))[i % 8] = (float)i;
        y = cb_add(y, made);
    }
    return y;
}

static void test_many(void **state) {
    (void)state;
    cb_function *fast = cb_compile(fills_many, VM);
    for (int i = 0; i < 3; i++) {
        cb_scope_open();
        expect_equal(cb_call(fast, ramp(2, 4)), fills_many(ramp(2, 4)));
        cb_scope_close();
    }
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

/* fullgraph does not run the function again, so it may not write behind the ops. */
static void test_fullgraph(void **state) {
    (void)state;
    cb_function_1 *functions[] = {takes_or_leaves, announces, announces_early};
    cb_scope_open();
    taken = cb_data(table = ramp(2, 4));
    for (int i = 0; i < 3; i++) {
        cb_function *fast = cb_compile(functions[i], "fullgraph=1, " VM);
        assert_null(cb_call(fast, ramp(2, 4)));
        assert_int_equal(cb_error_status(), CB_ERR_COMPILE);
        assert_non_null(strstr(cb_error(), i ? "through a pointer" : "asked for a pointer"));
        cb_clear_error();
        cb_function_free(fast);
    }
    cb_scope_close();
}

/* ---- what is touched ------------------------------------------------------------------------ */

static cb_tensor *beside;
static bool asks;

static cb_tensor *asks_beside(cb_tensor *x) {
    cb_add_(x, 1.0);
    cb_tensor *y = cb_exp(x);
    return asks ? cb_mul(y, cb_item(beside)) : y;
}

/* A value request ends the recording when the tensor overlaps one that the recorded ops use, not
 * when it merely lies in the same storage; also when it comes in a replay. */
static void test_touched(void **state) {
    (void)state;
    const struct {
        int64_t first, count, at;
        bool breaks;
    } cases[] = {{0, 4, 3, true}, {0, 4, 4, false}, {4, 4, 4, true}, {4, 4, 3, false}};
    for (int i = 0; i < 8; i++) {
        cb_function *fast = cb_compile(asks_beside, VM);
        cb_scope_open();
        cb_tensor *all[2] = {cb_view(ramp(2, 4), cb_dims(8)), cb_view(ramp(2, 4), cb_dims(8))};
        for (int round = 0; round < 3; round++) {
            cb_tensor *result[2];
            asks = i % 2 || round == 2;
            for (int k = 0; k < 2; k++) {
                cb_tensor *x = cb_narrow(all[k], 0, cases[i / 2].first, cases[i / 2].count);
                beside = cb_narrow(all[k], 0, cases[i / 2].at, 1);
                result[k] = k ? cb_call(fast, x) : asks_beside(x);
            }
            expect_equal(result[1], result[0]);
            expect_equal(all[1], all[0]);
        }
        assert_int_equal(cb_stats(fast).breaks, cases[i / 2].breaks);
        cb_scope_close();
        cb_function_free(fast);
    }
    assert_null(cb_error());
}

/* ---- asked for by what the function calls --------------------------------------------------- */

static cb_function *inner;
static cb_module *module;
static jmp_buf out;

static cb_tensor *asks_for_a_value(cb_tensor *x) { return cb_add(x, cb_item(cb_sum(x))); }
static cb_tensor *asks_for_a_pointer(cb_tensor *x) { return cb_add(x, ((float *)cb_data(x))[3]); }
static cb_tensor *has_a_history;
static cb_tensor *reads_a_history(cb_tensor *x) { return cb_add(x, has_a_history); }
static cb_tensor *asks_and_jumps(cb_tensor *x) {
    cb_add_(x, cb_item(cb_sum(x)));
    longjmp(out, 1);
}
static cb_tensor *forward_asks(cb_module *self, cb_tensor *const *x, int count) {
    (void)self, (void)count;
    return asks_for_a_value(x[0]);
}

static __attribute__((noinline)) cb_tensor *call_inner(cb_tensor *x) {
    if (setjmp(out) == 0) return cb_call(inner, x);
    x = cb_neg(x); /* which finds what the jump left */
    cb_clear_error();
    return x;
}

static cb_tensor *calls_one_that_asks(cb_tensor *x) {
    return cb_sub(cb_mul(call_inner(cb_mul(x, 2.0)), 0.5), 1.0);
}

static cb_tensor *runs_a_graph_that_asks(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    cb_graph *graph = cb_graph_new(module);
    cb_arg input = cb_arg_node(cb_graph_placeholder(graph, "x"));
    cb_graph_output(graph, cb_arg_node(cb_graph_call_module(graph, "layer", &input, 1)));
    assert_int_equal(cb_graph_propagate_shapes(graph, &y, 1), CB_OK);
    cb_graph_free(graph);
    return cb_sub(cb_mul(y, 0.5), 1.0);
}

static void expect_both_ways(cb_function_1 *function) {
    cb_function *fast = cb_compile(function, VM);
    for (int i = 0; i < 3; i++) {
        cb_scope_open();
        cb_tensor *got = cb_call(fast, ramp(2, 4)), *expected = function(ramp(2, 4));
        assert_null(cb_error());
        expect_equal(got, expected);
        cb_scope_close();
    }
    cb_function_free(fast);
}

/* The recording ends below other calls that are not over: none of them puts its tracer back. */
static void test_asked_inside(void **state) {
    (void)state;
    cb_function_1 *const asking[] = {asks_for_a_value, asks_for_a_pointer, reads_a_history,
                                     asks_and_jumps};
    cb_tensor *leaf = cb_requires_grad_(ramp(2, 4), true);
    has_a_history = cb_mul(leaf, 3.0);
    for (int i = 0; i < 4; i++) {
        inner = cb_compile_1(asking[i], VM);
        expect_both_ways(calls_one_that_asks);
        cb_function_free(inner);
    }
    module = cb_module_new("Net", NULL, NULL);
    cb_module_add(module, "layer", cb_module_new("Asks", forward_asks, NULL));
    expect_both_ways(runs_a_graph_that_asks);
    cb_module_free(module);
}

/* ---- inputs that the function frees ---------------------------------------------------------- */

static cb_tensor *consumes(cb_tensor *x, cb_tensor *y) {
    cb_tensor *z = cb_mul(x, y);
    cb_free(x);
    return cb_add(cb_exp(z), z);
}

static void test_consumed(void **state) {
    (void)state;
    cb_function *fast = cb_compile(consumes, VM);
    for (int i = 0; i < 3; i++) {
        int64_t live = cb_memory().live_tensors;
        cb_scope_open();
        cb_tensor *x = cb_keep(ramp(2, 4)), *y = ramp(2, 4);
        cb_tensor *expected = consumes(cb_keep(ramp(2, 4)), y);
        cb_tensor *got = cb_call(fast, x, y);
        cb_tensor *next = ramp(2, 4); /* where x was */
        cb_fill_(next, 3.0);
        expect_equal(got, expected);
        cb_scope_close();
        assert_int_equal(cb_memory().live_tensors, live);
    }
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    assert_int_equal(cb_stats(fast).graphs, 1);
    assert_null(cb_error());
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_pointers), cmocka_unit_test(test_freed_before_a_value),
        cmocka_unit_test(test_either_way),    cmocka_unit_test(test_pointers),
        cmocka_unit_test(test_fullgraph),     cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_reads),         cmocka_unit_test(test_many),
        cmocka_unit_test(test_touched),       cmocka_unit_test(test_asked_inside),
        cmocka_unit_test(test_consumed),
    };
    return run_counted(tests);
}
