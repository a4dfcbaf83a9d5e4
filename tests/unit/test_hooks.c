/* Hooks: the user's code sees gradients on their way back, of leaves and results, eagerly and where
 * compiled functions computed them. Each program leaves the same gradients, and calls the same
 * hooks as often. */
#include "fixture.h"

#include <math.h>

#define VM "backend=vm"
#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

enum { CALLS = 5 };

static cb_tensor *w, *v; /* leaves */
static int hooked;       /* calls of hooks */
static double sum;       /* of what they saw */

static cb_tensor *doubles(cb_tensor *gradient, void *user) {
    hooked++;
    sum += cb_item(cb_sum(gradient));
    return cb_mul(gradient, *(double *)user);
}

static cb_tensor *looks(cb_tensor *gradient, void *user) {
    hooked += *(int *)user;
    sum += cb_item(cb_sum(cb_mul(gradient, gradient)));
    return NULL;
}

static double two = 2;
static int ten = 10;

/* ---- eagerly --------------------------------------------------------------------------------- */

static double element(cb_tensor *x) { return cb_item(cb_select(cb_detach(x), 0, 0)); }

static void one_behind_the_other(void **state) {
    (void)state;
    w = cb_requires_grad_(cb_full(cb_dims(2), 3, CB_F64), true);
    hooked = 0;
    int first = cb_register_hook(w, doubles, &two), second = cb_register_hook(w, looks, &ten);
    assert_true(first > 0 && second > 0 && first != second);
    cb_tensor *y = cb_mul(w, w);
    assert_true(cb_register_hook(y, doubles, &two) > 0);
    cb_backward(cb_sum(cb_add(y, w)), NULL); /* w's own, and what comes by y, are added up first */
    assert_true(element(cb_tensor_grad(w)) == 2 * (2 * 6 + 1) && hooked == 12);
    cb_remove_hook(w, first);
    cb_remove_hook(w, first); /* gone */
    cb_zero_grad(w);
    cb_tensor *g, *both[] = {y, w}, *of[2];
    assert_int_equal(cb_grad(cb_sum(y), NULL, &w, 1, &g), CB_OK);
    assert_true(element(g) == 12 && hooked == 23);
    assert_int_equal(cb_grad(cb_sum(y), NULL, both, 2, of), CB_OK);
    assert_true(element(of[0]) == 2 && element(of[1]) == 12 && hooked == 34);
    cb_remove_hook(w, second);
    assert_int_equal(cb_grad(cb_sum(cb_exp(w)), NULL, &w, 1, &g), CB_OK);
    assert_int_equal(hooked, 34);
}

static cb_tensor *squares(cb_tensor *gradient, void *user) {
    (void)user;
    return cb_mul(gradient, gradient);
}

static void with_a_history(void **state) {
    (void)state;
    w = cb_requires_grad_(cb_full(cb_dims(2), 3, CB_F64), true);
    cb_tensor *y = cb_mul(w, w), *g, *second;
    cb_register_hook(w, squares, NULL);
    assert_int_equal(cb_grad_graph(cb_sum(y), NULL, &w, 1, &g), CB_OK); /* (2 w) squared */
    assert_int_equal(cb_grad(cb_sum(g), NULL, &y, 1, &second), CB_OK);
    assert_null(second);
    assert_true(element(g) == 36);
    cb_backward(cb_sum(g), NULL); /* 8 w, squared by the hook */
    assert_true(element(cb_tensor_grad(w)) == 24 * 24);
}

static cb_tensor *of_other_sizes(cb_tensor *gradient, void *user) {
    (void)user;
    return cb_sum(gradient);
}
static cb_tensor *fails(cb_tensor *gradient, void *user) {
    (void)user;
    return cb_reshape(gradient, cb_dims(7));
}
static cb_tensor *by_the_leaf(cb_tensor *gradient, void *user) {
    (void)user;
    cb_tensor *g = cb_mul(gradient, w);
    assert_false(cb_requires_grad(g));
    return g;
}
static cb_tensor *kept;
static cb_tensor *keeps(cb_tensor *gradient, void *user) {
    (void)user;
    kept = cb_keep(gradient);
    return NULL;
}

static void refusals(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(cb_dims(2), CB_F64);
    w = cb_requires_grad_(cb_full(cb_dims(2), 3, CB_F64), true);
    REFUSED(cb_register_hook(x, looks, &ten), "nothing that the tensor was computed from");
    REFUSED(cb_register_hook(w, NULL, NULL), "the hook is NULL");
    cb_gradient_hook *const hook[] = {of_other_sizes, fails};
    const char *const words[] = {"a gradient of f64[] for a tensor of f64[2]", "reshape"};
    for (int i = 0; i < 2; i++) {
        int number = cb_register_hook(w, hook[i], NULL);
        REFUSES(cb_backward(cb_sum(cb_mul(w, w)), NULL), CB_ERR_SHAPE, words[i]);
        assert_null(cb_tensor_grad(w));
        cb_remove_hook(w, number);
    }
    cb_register_hook(w, keeps, NULL);
    cb_backward(cb_sum(cb_mul(w, w)), NULL);
    cb_mul_(kept, 0.0); /* it is another tensor than the gradient */
    assert_true(element(cb_tensor_grad(w)) == 6);
    cb_free(kept);
    w = cb_requires_grad_(cb_full(cb_dims(2), 3, CB_F64), true);
    cb_register_hook(w, by_the_leaf, NULL);
    cb_backward(cb_sum(cb_mul(w, w)), NULL);
    assert_true(element(cb_tensor_grad(w)) == 18);
}

/* An optimizer takes a leaf with a hook. */
static void optimizers(void **state) {
    (void)state;
    w = cb_requires_grad_(cb_full(cb_dims(2), 3, CB_F64), true);
    cb_register_hook(w, doubles, &two);
    cb_optimizer *optimizer = cb_optimizer_new("SGD", "lr=0.5");
    assert_int_equal(cb_optimizer_add(optimizer, &w, 1, NULL), CB_OK);
    cb_backward(cb_sum(w), NULL);
    assert_int_equal(cb_optimizer_step(optimizer), CB_OK);
    assert_true(element(w) == 2);
    cb_optimizer_free(optimizer);
}

/* ---- compiled -------------------------------------------------------------------------------- */

static cb_tensor *forward(cb_tensor *x) { return cb_tanh(cb_mul(cb_exp(cb_mul(x, w)), v)); }

static cb_tensor *trains(cb_tensor *x) {
    cb_tensor *loss = cb_sum(forward(x));
    cb_backward(loss, NULL);
    cb_no_grad_open();
    cb_sub_(w, cb_mul(cb_tensor_grad(w), 0.01));
    cb_no_grad_close();
    return cb_detach(loss);
}

static cb_tensor *asks_by_a_leaf(cb_tensor *x) {
    cb_tensor *g = NULL;
    cb_grad(cb_sum(forward(x)), NULL, &w, 1, &g);
    return g;
}

/* A hook for each call's own result. */
static cb_tensor *on_a_result(cb_tensor *x) {
    cb_tensor *y = cb_exp(cb_mul(x, w));
    cb_register_hook(y, doubles, &two);
    return cb_mul(cb_tanh(y), v);
}

static cb_tensor *on_a_result_and_back(cb_tensor *x) {
    cb_tensor *y = cb_exp(cb_mul(x, w));
    cb_register_hook(y, doubles, &two);
    cb_backward(cb_sum(cb_mul(cb_tanh(y), v)), NULL);
    return cb_detach(y);
}

/* What was computed from it before has no history. */
static cb_tensor *behind_what_is_detached(cb_tensor *x) {
    cb_tensor *y = cb_exp(cb_mul(x, w)), *seen = cb_detach(y), *most = cb_amax(seen, -1, true);
    cb_register_hook(y, doubles, &two);
    return cb_mul(cb_tanh(cb_div(y, most)), v);
}

static cb_tensor *on_a_leaf(cb_tensor *x) {
    cb_tensor *y = cb_exp(cb_mul(x, w));
    int number = cb_register_hook(v, doubles, &two);
    cb_backward(cb_sum(cb_mul(cb_tanh(y), v)), NULL);
    cb_remove_hook(v, number);
    return cb_detach(y);
}

/* What was computed from it before comes back over it. */
static cb_tensor *behind_others(cb_tensor *x) {
    cb_tensor *y = cb_exp(cb_mul(x, w)), *z = cb_tanh(cb_reshape(y, cb_dims(-1, 2, 2)));
    cb_register_hook(y, doubles, &two);
    return cb_mul(cb_reshape(z, cb_dims(-1, 4)), v);
}

/* Gradients went back over it already. */
static cb_tensor *on_what_was_gone_over(cb_tensor *x) {
    cb_tensor *y = cb_exp(cb_mul(x, w)), *loss = cb_sum(cb_mul(y, v));
    cb_backward(loss, NULL);
    double size = x == kept ? cb_item(loss) : 2;
    cb_register_hook(y, doubles, &two);
    return cb_mul(cb_tanh(y), size);
}

/* Nothing that came of it lives, so it is left with its segment, and has nothing to go back
 * over. */
static cb_tensor *on_what_is_left(cb_tensor *x) {
    cb_tensor *y = cb_exp(cb_mul(x, w));
    cb_scope_open();
    cb_backward(cb_sum(cb_mul(y, v)), NULL);
    cb_scope_close();
    cb_register_hook(y, doubles, &two);
    return cb_tanh(y);
}

/* It has a history outside, since the hook has it run op by op. */
static cb_tensor *on_what_it_returns(cb_tensor *x) {
    cb_tensor *y = cb_exp(cb_mul(x, w)), *loss = cb_sum(cb_mul(y, v));
    cb_backward(loss, NULL);
    if (cb_item(loss) > -1) cb_register_hook(y, doubles, &two);
    return y;
}

/* And what it was computed from has been written to: nobody goes back over it again. */
static cb_tensor *on_what_was_left_behind(cb_tensor *x) {
    cb_tensor *y = cb_exp(cb_mul(x, w)), *loss = cb_sum(cb_mul(y, v));
    cb_backward(loss, NULL);
    cb_no_grad_open();
    cb_assign(w, cb_mul(w, 0.9));
    cb_no_grad_close();
    if (cb_item(loss) > -1) cb_register_hook(y, doubles, &two);
    return cb_tanh(cb_detach(y));
}

typedef struct HookCourse {
    double result[CALLS], of_w[CALLS], of_v[CALLS], sum;
    int hooked;
} HookCourse;

static double told(cb_tensor *x) {
    return x ? cb_item(cb_sum(cb_mul(cb_detach(x), cb_cos(cb_arange(0, 4, 1, CB_F64))))) : -77;
}

/* w has a hook in all calls but the first and the last. */
static HookCourse run(cb_function_1 *program, cb_function *fast) {
    HookCourse course;
    hooked = 0, sum = 0;
    w = cb_requires_grad_(cb_mul(cb_arange(1, 5, 1, CB_F64), 0.1), true);
    v = cb_requires_grad_(cb_full(cb_dims(4), 0.5, CB_F64), true);
    int number = 0;
    for (int i = 0; i < CALLS; i++) {
        if (i == 1) number = cb_register_hook(w, doubles, &two);
        if (i == CALLS - 1) cb_remove_hook(w, number);
        cb_tensor *x = cb_full(cb_dims(2 + i % 2, 4), 0.25, CB_F64);
        kept = i % 2 ? x : NULL;
        cb_tensor *y = fast ? cb_call(fast, x) : program(x);
        if (cb_error()) fail_msg("call %d: %s", i, cb_error());
        if (cb_requires_grad(y)) {
            cb_register_hook(y, looks, &ten); /* on what the compiled function gave */
            cb_backward(cb_sum(cb_mul(y, cb_sin(cb_detach(y)))), NULL);
        }
        course.result[i] = told(y);
        course.of_w[i] = told(cb_tensor_grad(w));
        course.of_v[i] = told(cb_tensor_grad(v));
        if (i % 2) cb_zero_grad(w), cb_zero_grad(v);
    }
    course.hooked = hooked;
    course.sum = sum;
    return course;
}

static void expect_near(double got, double wanted) {
    if (!(fabs(got - wanted) <= 1e-9 * (1 + fabs(wanted))))
        fail_msg("%.17g, eager has %.17g", got, wanted);
}

static void as_eager(void **state) {
    (void)state;
    static cb_function_1 *const program[] = {
        forward,
        trains,
        asks_by_a_leaf,
        on_a_result,
        on_a_result_and_back,
        behind_what_is_detached, /* of which none runs eagerly */
        on_a_leaf,
        behind_others,
        on_what_was_gone_over,
        on_what_is_left,
        on_what_it_returns,
        on_what_was_left_behind};
    for (int k = 0; k < 12; k++)
        for (int way = 0; way < 2; way++) {
            cb_function *fast = cb_compile(program[k], way ? VM ", dynamic=1" : VM);
            HookCourse wanted = run(program[k], NULL), got = run(program[k], fast);
            for (int i = 0; i < CALLS; i++) {
                expect_near(got.result[i], wanted.result[i]);
                expect_near(got.of_w[i], wanted.of_w[i]);
                expect_near(got.of_v[i], wanted.of_v[i]);
            }
            assert_int_equal(got.hooked, wanted.hooked);
            expect_near(got.sum, wanted.sum);
            assert_int_equal(cb_stats(fast).eager_calls, k < 6 ? 0 : CALLS);
            cb_function_free(fast);
        }
}

static int two_results(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = cb_exp(cb_mul(in[0], w));
    out[1] = cb_tanh(out[0]);
    return 2;
}

/* By gradients that read operands; those above read results. */
static int two_by_operands(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = cb_mul(cb_mul(in[0], w), w);
    out[1] = cb_add(cb_mul(cb_sin(out[0]), w), out[0]);
    return 2;
}

/* What comes to w by result `to` of the function where result `from` has a hook and, perhaps, is
 * gone, behind so many gradients of gradients, the first of which the hook misses where it is late;
 * fast NULL: eagerly. What the hook has seen is in sum. */
enum { MANY = 70, ORDERS = 3 };
typedef struct HookCase {
    int from, to, orders;
    bool gone, late;
} HookCase;

static double hooked_gradient(cb_function_n *function, cb_function *fast, HookCase of) {
    cb_tensor *x = cb_full(cb_dims(4), 0.25, CB_F64), *out[MANY];
    w = cb_requires_grad_(cb_full(cb_dims(4), 0.5, CB_F64), true);
    int count = fast ? cb_call_n(fast, &x, 1, out, MANY) : function(&x, 1, out, NULL);
    assert_in_range(of.to, 0, count - 1);
    hooked = 0, sum = 0;
    if (!of.late) assert_true(cb_register_hook(out[of.from], doubles, &two) > 0);
    cb_tensor *y = cb_add(cb_sum(cb_mul(out[of.to], out[of.to])), cb_sum(out[of.from])), *g;
    for (int order = 0; order < of.orders; order++) {
        assert_int_equal(cb_grad_graph(y, NULL, &w, 1, &g), CB_OK);
        if (!order && of.late) assert_true(cb_register_hook(out[of.from], doubles, &two) > 0);
        if (of.gone) cb_free(out[of.from]), of.gone = false;
        y = cb_sum(cb_mul(g, cb_sin(g)));
    }
    if (of.gone) cb_free(out[of.from]);
    assert_int_equal(cb_backward(y, NULL), CB_OK);
    return told(cb_tensor_grad(w));
}

static void expect_hooked(cb_function_n *function, int from, int to, int orders) {
    for (int k = 0; k < (orders ? 4 : 2); k++) {
        HookCase of = {from, to, orders, k % 2, k / 2};
        cb_function *fast = cb_compile_n(function, NULL, VM);
        double wanted = hooked_gradient(function, NULL, of), seen = sum, calls = hooked;
        expect_near(hooked_gradient(function, fast, of), wanted);
        expect_near(sum, seen);
        assert_int_equal(hooked, calls);
        cb_function_free(fast);
    }
}

static void of_several_results(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++)
        for (int orders = 0; orders < ORDERS; orders++)
            expect_hooked(two_results, k / 2, k % 2, orders),
                expect_hooked(two_by_operands, k / 2, k % 2, orders);
}

static cb_tensor *waiting, *given; /* of a segment that was left; what that reads */
static cb_tensor *uses_and_writes(cb_tensor *gradient, void *user) {
    (void)user;
    cb_tensor *g = cb_mul(gradient, waiting);
    cb_mul_(given, 0);
    return g;
}

static bool asks_late;
static cb_tensor *hook_uses_what_waits(cb_tensor *x) {
    cb_tensor *late = cb_add(x, 1);
    waiting = cb_mul(x, 3);
    cb_tensor *y = cb_exp(cb_mul(w, 2));
    cb_register_hook(y, uses_and_writes, NULL);
    cb_backward(cb_sum(cb_tanh(y)), NULL);
    return asks_late ? cb_add(late, 1) : cb_detach(y);
}

/* A hook uses values of the function, and writes to what others of it are still to read. */
static void with_what_waits(void **state) {
    (void)state;
    cb_function *fast = cb_compile(hook_uses_what_waits, VM);
    w = cb_requires_grad_(cb_full(cb_dims(4), 0.5, CB_F64), true);
    for (int call = 0; call < 8; call++) {
        double result[2], of_w[2];
        asks_late = call >= 6;
        for (int k = 0; k < 2; k++) {
            cb_zero_grad(w);
            given = cb_full(cb_dims(4), 0.25 + call, CB_F64);
            cb_tensor *y = k ? cb_call(fast, given) : hook_uses_what_waits(given);
            if (cb_error()) fail_msg("call %d: %s", call, cb_error());
            result[k] = told(y), of_w[k] = told(cb_tensor_grad(w));
        }
        expect_near(result[1], result[0]);
        expect_near(of_w[1], of_w[0]);
    }
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

static int many_results(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = cb_exp(cb_mul(in[0], w));
    out[1] = cb_reshape(out[0], cb_dims(4)); /* shows all of it */
    for (int i = 2; i < MANY; i++) out[i] = cb_mul(out[i - 1], 1.01);
    return MANY;
}

/* Which result was computed from which is told by what the function did, of however many. */
static void of_results_from_results(void **state) {
    (void)state;
    cb_tensor *x = cb_full(cb_dims(4), 0.25, CB_F64), *out[MANY], *g;
    w = cb_requires_grad_(cb_full(cb_dims(4), 0.5, CB_F64), true);
    cb_function *fast = cb_compile_n(many_results, NULL, VM);
    assert_int_equal(cb_call_n(fast, &x, 1, out, MANY), MANY);
    const int from[] = {0, MANY - 2}, to[] = {1, MANY - 1};
    for (int k = 0; k < 2; k++) {
        for (int hooks = 0; hooks < 2; hooks++) {
            int number = hooks ? cb_register_hook(out[from[k]], doubles, &two) : 0;
            assert_int_equal(cb_grad(cb_sum(out[to[k]]), NULL, &out[from[k]], 1, &g), CB_OK);
            expect_near(cb_item(cb_sum(g)), (k ? 4.04 : 4) * (1 + hooks));
            cb_remove_hook(out[from[k]], number);
        }
        expect_hooked(many_results, from[k], to[k], 0);
        expect_hooked(many_results, to[k], from[k], 0);
    }
    cb_function_free(fast);
}

static int beside(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = cb_exp(cb_mul(in[0], w));
    out[1] = cb_mul(cb_tanh(cb_detach(out[0])), w); /* no gradient comes by it */
    return 2;
}

static void of_results_beside_each_other(void **state) {
    (void)state;
    cb_tensor *x = cb_full(cb_dims(4), 0.25, CB_F64), *out[2];
    w = cb_requires_grad_(cb_full(cb_dims(4), 0.5, CB_F64), true);
    cb_function *fast = cb_compile_n(beside, NULL, VM);
    assert_int_equal(cb_call_n(fast, &x, 1, out, 2), 2);
    cb_register_hook(out[0], doubles, &two);
    assert_int_equal(cb_backward(cb_sum(out[1]), NULL), CB_OK);
    cb_function_free(fast);
}

/* ---- on what comes from before the call ------------------------------------------------------ */

typedef enum HookCut { CUTS_NOWHERE, CUTS_BEFORE, CUTS_BEHIND, NEVER_HOOKS, CUTS } HookCut;
static HookCut cut;
static bool of_gradients; /* the gradient has a history */

/* A gradient by x does not see the hook that x gets behind it, however late it is computed. */
static cb_tensor *gradient_by_a_given(cb_tensor *x) {
    cb_tensor *g = NULL, *y = cb_sum(cb_exp(cb_mul(x, 0.5)));
    (of_gradients ? cb_grad_graph : cb_grad)(y, NULL, &x, 1, &g);
    if (cut == CUTS_BEFORE) cb_item(cb_sum(cb_detach(x)));
    if (cut != NEVER_HOOKS) cb_register_hook(x, doubles, &two);
    cb_tensor *next = cb_mul(cb_sin(x), 3);
    if (cut == CUTS_BEHIND) cb_item(cb_sum(cb_detach(next)));
    return asks_late ? cb_mul(g, cb_detach(next)) : cb_detach(next);
}

static cb_tensor *hooks_a_given(cb_tensor *x) {
    cb_register_hook(x, doubles, &two);
    return cb_mul(cb_detach(x), 2);
}

/* In some calls it has a hook already. */
static void of_a_given_result(void **state) {
    (void)state;
    for (int way = 0; way < 2 * CUTS; way++) {
        cut = way % CUTS, of_gradients = way / CUTS;
        cb_function *fast = cb_compile(gradient_by_a_given, VM);
        for (int call = 0; call < 7; call++) {
            double result[2], of_w[2];
            asks_late = call == 3 || call > 4;
            for (int k = 0; k < 2; k++) {
                w = cb_requires_grad_(cb_full(cb_dims(4), 0.5, CB_F64), true);
                cb_tensor *x = cb_mul(w, 1.5 + call);
                if (call % 4 == 2) cb_register_hook(x, doubles, &two);
                cb_tensor *y = k ? cb_call(fast, x) : gradient_by_a_given(x);
                if (cb_error()) fail_msg("cut %d, call %d: %s", cut, call, cb_error());
                if (cb_requires_grad(y)) cb_backward(cb_sum(cb_mul(y, y)), NULL);
                result[k] = told(y), of_w[k] = told(cb_tensor_grad(w));
            }
            expect_near(result[1], result[0]);
            expect_near(of_w[1], of_w[0]);
        }
        cb_function_free(fast);
    }
    cb_function *whole = cb_compile(hooks_a_given, VM ", fullgraph=1");
    REFUSED(cb_call(whole, cb_exp(w)), "gets a hook");
    cb_function_free(whole);
}

static cb_tensor *loss;
static cb_tensor *frees_the_loss(cb_tensor *gradient, void *user) {
    (void)user;
    if (loss) cb_free(loss);
    loss = NULL;
    return cb_mul(gradient, 2);
}

static void frees_what_is_gone_back_from(void **state) {
    (void)state;
    w = cb_requires_grad_(cb_full(cb_dims(4), 0.5, CB_F64), true);
    cb_tensor *y = cb_exp(w);
    cb_register_hook(y, frees_the_loss, NULL);
    loss = cb_sum(cb_mul(y, y));
    cb_free(y);
    assert_int_equal(cb_backward(loss, NULL), CB_OK);
    expect_near(element(cb_tensor_grad(w)), 4 * exp(1.0));
}

/* A joint graph goes back to a leaf with a hook; a step cannot call it, and nothing within can. */
static void as_one_graph(void **state) {
    (void)state;
    cb_tensor *x = cb_full(cb_dims(2, 4), 0.25, CB_F64);
    w = cb_requires_grad_(cb_full(cb_dims(4), 0.5, CB_F64), true);
    v = cb_requires_grad_(cb_full(cb_dims(4), 0.5, CB_F64), true);
    cb_register_hook(w, doubles, &two);
    double of_w[2];
    cb_function *fast = cb_compile(forward, VM ", fullgraph=1");
    for (int compiled = 0; compiled < 2; compiled++) {
        cb_zero_grad(w);
        cb_backward(cb_sum(compiled ? cb_call(fast, x) : forward(x)), NULL);
        of_w[compiled] = told(cb_tensor_grad(w));
    }
    expect_near(of_w[1], of_w[0]);
    cb_function_free(fast);
    fast = cb_compile(trains, VM ", fullgraph=1");
    REFUSED(cb_call(fast, x), "is a leaf with a hook");
    cb_function_free(fast);
    fast = cb_compile(on_a_result, VM ", fullgraph=1");
    REFUSED(cb_call(fast, x), "fullgraph");
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(one_behind_the_other),
        TEST(with_a_history),
        TEST(refusals),
        TEST(optimizers),
        TEST(as_eager),
        TEST(of_several_results),
        TEST(as_one_graph),
        TEST(with_what_waits),
        TEST(of_results_from_results),
        TEST(of_results_beside_each_other),
        TEST(frees_what_is_gone_back_from),
        TEST(of_a_given_result),
    };
    return cmocka_run_group_tests_name("hooks", tests, NULL, NULL);
}
