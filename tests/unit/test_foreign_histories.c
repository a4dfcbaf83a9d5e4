/* What ops outside of a compiled function computed from a leaf: an input of it, or found by it.
 * Where nothing goes on from that history the call is a graph, and so it is where its results do,
 * which lead back there. Where the call itself goes back there, or writes, it runs with the tape.
 * From call to call the tensor has a history, is a leaf, or is
 * neither. */
#include "fixture.h"

static cb_tensor *u, *found; /* the leaf that it is computed from; the tensor, where it is found */

static cb_tensor *values(double a, double b) {
    return cb_from_data((double[]){a, b}, CB_F64, cb_dims(2));
}

/* ---- programs: y is the tensor, x another one ------------------------------------------------ */

static cb_tensor *between_no_grad(cb_tensor *y, cb_tensor *x) {
    cb_no_grad_open();
    cb_tensor *z = cb_mul(y, x), *v = cb_reshape(y, cb_dims(2, 1));
    z = cb_add(z, cb_sum(v));
    cb_no_grad_close();
    return z;
}

static cb_tensor *detaches(cb_tensor *y, cb_tensor *x) { return cb_mul(cb_detach(y), x); }
static cb_tensor *compares(cb_tensor *y, cb_tensor *x) { return cb_where(cb_gt(y, 2.5), x, 7.0); }
static cb_tensor *gives_it(cb_tensor *y, cb_tensor *x) { return cb_sum(x) ? y : NULL; }

static cb_tensor *asks_whether(cb_tensor *y, cb_tensor *x) {
    return cb_mul(x, cb_requires_grad(y) ? 3.0 : 5.0);
}

static cb_tensor *by_it(cb_tensor *y, cb_tensor *x) {
    cb_tensor *g = NULL, *l = cb_sum(cb_mul(u, u));
    cb_grad(l, NULL, &y, 1, &g);
    return g ? g : cb_add(x, cb_detach(l));
}

static cb_tensor *as_a_seed(cb_tensor *y, cb_tensor *x) {
    cb_tensor *g = NULL;
    cb_grad(cb_mul(u, x), y, &u, 1, &g);
    return g;
}

static cb_tensor *writes(cb_tensor *y, cb_tensor *x) {
    cb_no_grad_open();
    cb_mul_(y, x);
    cb_no_grad_close();
    return cb_add(cb_detach(y), 1.0);
}

static cb_tensor *writes_its_elements(cb_tensor *y, cb_tensor *x) {
    cb_tensor *d = cb_detach(y);
    cb_mul_(d, x);
    return cb_add(d, 1.0);
}

static cb_tensor *multiplies(cb_tensor *y, cb_tensor *x) { return cb_mul(cb_mul(x, 2.0), y); }

static cb_tensor *multiplies_behind(cb_tensor *y, cb_tensor *x) {
    return cb_add(cb_mul(y, x), cb_mul(cb_detach(y), between_no_grad(y, x)));
}

/* The write changes the elements, and not the history. */
static cb_tensor *multiplies_behind_a_write(cb_tensor *y, cb_tensor *x) {
    cb_no_grad_open();
    cb_mul_(y, x);
    cb_fill_(cb_select(y, 0, 1), 3.0);
    cb_no_grad_close();
    return cb_mul(y, x);
}

static cb_tensor *views_behind_a_write(cb_tensor *y, cb_tensor *x) {
    cb_mul_(cb_detach(y), x);
    return cb_reshape(y, cb_dims(2, 1));
}

static cb_tensor *goes_back_behind_a_write(cb_tensor *y, cb_tensor *x) {
    cb_no_grad_open();
    cb_assign(y, cb_mul(y, x));
    cb_no_grad_close();
    if (cb_requires_grad(y)) cb_backward(cb_sum(cb_mul(y, 2.0)), NULL);
    return cb_add(x, 1.0);
}

static cb_tensor *views(cb_tensor *y, cb_tensor *x) {
    return cb_requires_grad(x) ? NULL : cb_reshape(y, cb_dims(2, 1));
}

static cb_tensor *goes_back(cb_tensor *y, cb_tensor *x) {
    if (cb_requires_grad(y)) cb_backward(y, x);
    return cb_add(x, 1.0);
}

static cb_tensor *as_a_seed_of_graphs(cb_tensor *y, cb_tensor *x) {
    cb_tensor *g = NULL;
    cb_grad_graph(cb_mul(u, x), y, &u, 1, &g);
    return g;
}

static cb_tensor *trains(cb_tensor *y, cb_tensor *x) {
    cb_tensor *l = cb_sum(cb_mul(cb_mul(y, x), u));
    cb_backward(l, NULL);
    return cb_detach(l);
}

/* u is what y was computed from, too. */
static cb_tensor *by_a_leaf(cb_tensor *y, cb_tensor *x) {
    cb_tensor *g = NULL;
    cb_grad(cb_sum(cb_mul(cb_mul(y, x), u)), NULL, &u, 1, &g);
    return g;
}

static cb_tensor *by_both(cb_tensor *y, cb_tensor *x) {
    cb_tensor *by[] = {cb_requires_grad(y) ? y : u, u}, *g[2] = {NULL};
    cb_grad(cb_sum(cb_mul(cb_mul(y, x), u)), NULL, by, 2, g);
    return g[1] ? cb_add(cb_mul(g[0], 10), g[1]) : g[0];
}

/* By what the call computed, which is one graph, and then to what is outside. */
static cb_tensor *by_a_result_and_beyond(cb_tensor *y, cb_tensor *x) {
    cb_tensor *z = cb_mul(cb_mul(y, x), u), *l = cb_sum(cb_mul(z, z)), *g = NULL;
    cb_grad(l, NULL, &z, 1, &g);
    cb_backward(l, NULL);
    return g;
}

typedef enum Follows { /* it goes on from the history */
                       FOLLOWS_NOT,
                       FOLLOWS_IN_ITS_RESULT,
                       FOLLOWS_OVER_GRAPHS, /* one before cb_backward, and another one behind */
                       FOLLOWS_BY_THE_TAPE
} Follows;
typedef struct ForeignProgram {
    cb_tensor *(*run)(cb_tensor *y, cb_tensor *x);
    Follows follows;
} ForeignProgram;

static const ForeignProgram programs[] = {
    {between_no_grad, FOLLOWS_NOT},
    {detaches, FOLLOWS_NOT},
    {compares, FOLLOWS_NOT},
    {gives_it, FOLLOWS_NOT},
    {asks_whether, FOLLOWS_NOT},
    {by_it, FOLLOWS_NOT},
    {as_a_seed, FOLLOWS_NOT},
    {writes, FOLLOWS_NOT},
    {writes_its_elements, FOLLOWS_NOT},
    {multiplies, FOLLOWS_IN_ITS_RESULT},
    {multiplies_behind, FOLLOWS_IN_ITS_RESULT},
    {multiplies_behind_a_write, FOLLOWS_BY_THE_TAPE},
    {views_behind_a_write, FOLLOWS_BY_THE_TAPE},
    {goes_back_behind_a_write, FOLLOWS_BY_THE_TAPE},
    {views, FOLLOWS_IN_ITS_RESULT},
    {goes_back, FOLLOWS_OVER_GRAPHS},
    {trains, FOLLOWS_OVER_GRAPHS},
    {by_a_leaf, FOLLOWS_OVER_GRAPHS},
    {by_both, FOLLOWS_OVER_GRAPHS},
    {as_a_seed_of_graphs, FOLLOWS_BY_THE_TAPE},
    {by_a_result_and_beyond, FOLLOWS_BY_THE_TAPE},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static const ForeignProgram *program; /* that runs */
static cb_tensor *given(cb_tensor *y, cb_tensor *x) { return program->run(y, x); }
static cb_tensor *finds(cb_tensor *y, cb_tensor *x) {
    (void)y;
    return program->run(found, x);
}

/* ---- eagerly and compiled -------------------------------------------------------------------- */

/* h: with a history, l: a leaf, n: neither. */
static cb_tensor *tensor_of(char kind, int call) {
    cb_tensor *y = values(2 + call, 3);
    if (kind == 'h') return cb_mul(u, y);
    return kind == 'l' ? cb_requires_grad_(y, true) : y;
}

static bool same(cb_tensor *a, cb_tensor *b) {
    if (!a || !b) return a == b;
    if (cb_dtype_of(a) != cb_dtype_of(b) || cb_requires_grad(a) != cb_requires_grad(b))
        return false;
    a = cb_to(cb_detach(a), CB_F64), b = cb_to(cb_detach(b), CB_F64);
    bool same = cb_numel(a) == cb_numel(b);
    for (int64_t i = 0; same && i < cb_numel(a); i++)
        same = cb_item(cb_select(cb_reshape(a, cb_dims(-1)), 0, i)) ==
               cb_item(cb_select(cb_reshape(b, cb_dims(-1)), 0, i));
    return same;
}

typedef struct ForeignOutcome {
    cb_tensor *result, *y, *own, *of_u; /* gradients of y, where it is a leaf, and of u */
} ForeignOutcome;

static ForeignOutcome run(cb_function *fast, bool is_given, char kind, int call) {
    u = cb_requires_grad_(values(1, 2), true);
    cb_tensor *y = tensor_of(kind, call), *x = values(3, 5 + call);
    found = y;
    cb_function_2 *plain = is_given ? given : finds;
    cb_tensor *z = fast ? cb_call(fast, is_given ? y : x, x) : plain(is_given ? y : x, x);
    if (z && cb_requires_grad(z)) cb_backward(cb_sum(z), NULL);
    return (ForeignOutcome){z, y, cb_tensor_grad(y), cb_tensor_grad(u)};
}

static void compare(const char *options, bool is_given, const char *kinds) {
    cb_function *fast = cb_compile(is_given ? given : finds, options);
    for (int i = 0; kinds[i]; i++) {
        ForeignOutcome wanted = run(NULL, is_given, kinds[i], i);
        ForeignOutcome got = run(fast, is_given, kinds[i], i);
        if (!same(got.result, wanted.result) || !same(got.y, wanted.y) ||
            !same(got.own, wanted.own) || !same(got.of_u, wanted.of_u) || cb_error())
            fail_msg("program %d, %s, call %d of %s: not as eager: %s", (int)(program - programs),
                     is_given ? "given" : "found", i, kinds, cb_error() ? cb_error() : "");
    }
    bool tape = strchr(kinds, 'h') && program->follows == FOLLOWS_BY_THE_TAPE;
    if (!tape && !strchr(kinds, 'l')) assert_int_equal(cb_stats(fast).eager_calls, 0);
    if (tape) assert_int_not_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

static void as_eager(void **state) {
    (void)state;
    for (int k = 0; k < PROGRAMS; k++) {
        program = &programs[k];
        for (int is_given = 0; is_given < 2; is_given++) {
            compare("backend=vm", is_given, "hhhh");
            compare("backend=vm", is_given, "nhnhh");
            compare("backend=vm", is_given, "hnhn");
            compare("backend=vm", is_given, "nlnl");
            compare("backend=vm", is_given, "lhnlhn");
        }
    }
}

/* What is found is what it found first, so each kind has a function of its own. */
static void as_one_graph(void **state) {
    (void)state;
    for (int k = 0; k < PROGRAMS; k++) {
        program = &programs[k];
        bool binds = program->run == by_it || program->run == as_a_seed;
        /* u is another one in each call */
        if (program->follows >= FOLLOWS_OVER_GRAPHS || binds) continue;
        compare("backend=vm,fullgraph=1", true, "hhhh");
        compare("backend=vm,fullgraph=1", true, "nhnhh");
        compare("backend=vm,fullgraph=1", true, "lhnlhn");
    }
}

static void one_graph_of_what_is_found(void **state) {
    (void)state;
    cb_tensor *x = values(3, 5);
    u = cb_requires_grad_(values(1, 2), true);
    for (int k = 0; k < PROGRAMS; k++) {
        program = &programs[k];
        cb_function *fast = cb_compile(finds, "backend=vm,fullgraph=1");
        for (int call = 0; call < 3; call++) {
            found = call ? found : cb_mul(u, 2.0);
            cb_tensor *got = cb_call(fast, x, x);
            if (program->follows >= FOLLOWS_OVER_GRAPHS) {
                assert_null(got);
                expect_error("a tensor that the function finds is the result of mul at ");
                continue;
            }
            if (program->run != writes && program->run != writes_its_elements)
                assert_true(same(got, finds(x, x)));
            assert_null(cb_error());
        }
        assert_int_equal(cb_stats(fast).graphs, program->follows < FOLLOWS_OVER_GRAPHS);
        cb_function_free(fast);
    }
}

/* What was recorded where no gradient was wanted is no graph for where one is. */
static void another_one_where_gradients_are_wanted(void **state) {
    (void)state;
    cb_tensor *x = values(3, 5);
    u = cb_requires_grad_(values(1, 2), true);
    found = cb_mul(u, 2.0);
    program = &programs[PROGRAMS - 1];
    while (program->run != multiplies) program--;
    cb_function *fast = cb_compile(finds, "backend=vm,fullgraph=1");
    for (int call = 0; call < 2; call++) {
        cb_no_grad_open();
        assert_true(same(cb_call(fast, x, x), finds(x, x)));
        cb_no_grad_close();
        assert_true(same(cb_call(fast, x, x), finds(x, x)));
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_function_free(fast);
}

/* Once it was gone on from an input's history, calls with one are eager from the beginning. */
static void inputs_are_tried_once(void **state) {
    (void)state;
    program = &programs[PROGRAMS - 1];
    while (program->run != multiplies) program--;
    cb_function *fast = cb_compile(given, "backend=vm, backward=tape");
    for (int i = 0; i < 4; i++) run(fast, true, 'h', i);
    assert_int_equal(cb_stats(fast).breaks, 1);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "input 0 is the result of mul at "));
    assert_null(strstr(text, "a call before gave")); /* is not why */
    cb_free_text(text);
    run(fast, true, 'n', 4);
    assert_int_equal(cb_stats(fast).eager_calls, 4);
    assert_int_equal(cb_stats(fast).graphs, 1);
    cb_function_free(fast);
}

/* It is said of a graph, and of a call that it does not take. */
static void is_told(void **state) {
    (void)state;
    cb_function *fast = cb_compile(given, "backend=vm");
    program = &programs[PROGRAMS - 1];
    while (program->run != detaches) program--;
    run(fast, true, 'h', 0);
    run(fast, true, 'n', 1);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "f64[2] with a history"));
    assert_non_null(strstr(text, "input 0 is f64[2] that requires no gradient, entry 0 has f64[2] "
                                 "that ops outside computed from what requires a gradient"));
    cb_free_text(text);
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(as_eager, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(as_one_graph, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(one_graph_of_what_is_found, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(another_one_where_gradients_are_wanted, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(inputs_are_tried_once, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(is_told, open_scope, close_scope_without_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
