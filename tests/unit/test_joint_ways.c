/* Gradients by what a call left behind an event, where the calls before went back otherwise: what
 * crossed has the history of a graph, what waits that of ops, and one leads to the other. Each
 * program runs eagerly and compiled. */
#include "fixture.h"

#include <math.h>
#include <string.h>

#define VM "backend=vm"
#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

enum { CALLS = 6, TURN = 3 };

typedef cb_tensor *T;
static T w; /* a leaf */
static bool turned;
static int hooks_met;

static T by(T y, T x) {
    T g = NULL;
    cb_grad(y, NULL, &x, 1, &g);
    return g ? cb_detach(g) : cb_full(cb_dims(4), -77, CB_F64);
}

/* ---- programs -------------------------------------------------------------------------------- */

static T loss_by_what_waits(T x) {
    T h = cb_mul(w, x), loss = cb_sum(cb_tanh(h));
    cb_item(loss);
    return by(loss, turned ? h : w);
}

static T what_waits_by_what_crossed(T x) {
    T h = cb_mul(w, x), y = cb_tanh(h), more = cb_exp(y);
    cb_item(cb_sum(y));
    return turned ? by(cb_sum(more), y) : by(cb_sum(cb_mul(y, y)), w);
}

/* h's elements cross for their own sake, its history does not. */
static T by_what_crossed_without_history(T x) {
    T h = cb_mul(w, x), loss = cb_sum(cb_tanh(h));
    cb_item(loss);
    T again = cb_detach(h);
    return cb_add(by(loss, turned ? h : w), again);
}

static T over_two_segments(T x) {
    T h = cb_mul(w, x), y = cb_tanh(h);
    cb_item(cb_sum(y));
    T loss = cb_sum(cb_exp(cb_mul(y, x)));
    cb_item(loss);
    return by(loss, turned ? h : w);
}

static T over_ops_behind(T x) {
    T h = cb_mul(w, x), loss = cb_sum(cb_tanh(h));
    cb_item(loss);
    T more = cb_mul(loss, loss);
    return cb_add(by(more, turned ? h : w), by(loss, w));
}

static T of_second_order(T x) {
    T h = cb_mul(w, x), loss = cb_sum(cb_tanh(h)), g = NULL;
    cb_item(loss);
    if (!turned) return by(loss, w);
    cb_grad_graph(loss, NULL, &h, 1, &g);
    return by(cb_sum(cb_mul(g, g)), h);
}

static T doubles_it(T g, void *user) {
    (void)user;
    hooks_met++;
    return cb_mul(g, 2);
}

/* Hooks see what comes by one or the other, those that are there before and those behind. */
static T with_hooks(T x) {
    T h = cb_mul(w, x), loss = cb_sum(cb_tanh(h)), y = cb_mul(loss, 3);
    cb_item(loss);
    if (!turned) return by(y, w);
    cb_register_hook(loss, doubles_it, NULL);
    int number = cb_register_hook(loss, doubles_it, NULL);
    cb_register_hook(h, doubles_it, NULL);
    cb_register_hook(loss, doubles_it, NULL);
    cb_remove_hook(loss, number);
    return by(y, h);
}

static T asked; /* of a segment that was left */
static T adds_what_is_asked(T g, void *user) {
    (void)user;
    return cb_add(g, cb_sum(cb_detach(asked)));
}

/* The walk is on its way to loss when the hook has ops run again. */
static T with_a_hook_that_asks(T x) {
    T h = cb_mul(w, x), loss = cb_sum(cb_tanh(h));
    cb_item(loss);
    T y = cb_mul(cb_mul(loss, loss), 3);
    asked = h;
    if (turned) cb_register_hook(y, adds_what_is_asked, NULL);
    return by(y, w);
}

static T halves_it(T g, void *user) {
    (void)user;
    return cb_mul(g, 0.5);
}

static T with_hooks_of_two(T x) {
    T h = cb_mul(w, x), loss = cb_sum(cb_tanh(h)), other = cb_sum(cb_mul(h, h));
    cb_item(loss);
    T y = cb_mul(loss, other);
    if (!turned) return by(y, w);
    cb_register_hook(loss, doubles_it, NULL);
    cb_register_hook(other, halves_it, NULL);
    return by(y, h);
}

/* Elements of a view cross with those of y, its history does not; and what waits without one has
 * all of the ops run again. */
static T by_a_view(T x) {
    T y = cb_mul(w, x), h = cb_reshape(y, cb_dims(4)), loss = cb_sum(cb_tanh(h)),
      more = cb_mul(x, 3);
    cb_item(loss);
    T again = cb_detach(y), g = by(loss, turned ? h : w);
    return turned ? cb_add(cb_mul(cb_add(g, again), more), by(loss, h)) : cb_add(g, again);
}

/* Nothing that lives was computed from it: none, as ever. */
static T by_something_else(T x) {
    T h = cb_mul(w, x), other = cb_exp(h), loss = cb_sum(cb_tanh(h));
    cb_item(loss);
    return by(loss, turned ? other : w);
}

static T draws(T x) {
    T h = cb_mul(cb_dropout(w, 0.5, true), x), loss = cb_sum(cb_tanh(h));
    cb_item(loss);
    cb_rand(cb_dims(2), CB_F64);
    return by(loss, turned ? h : w);
}

static cb_function_1 *const programs[] = {
    loss_by_what_waits,
    what_waits_by_what_crossed,
    by_what_crossed_without_history,
    over_two_segments,
    over_ops_behind,
    of_second_order,
    with_hooks,
    with_a_hook_that_asks,
    with_hooks_of_two,
    by_a_view,
    by_something_else,
    draws,
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

/* ---- eagerly and compiled -------------------------------------------------------------------- */

static void begin(void) {
    cb_manual_seed(7);
    w = cb_requires_grad_(cb_sub(cb_mul(cb_arange(0, 4, 1, CB_F64), 0.4), 0.5), true);
}

static void run(cb_function_1 *program, cb_function *fast, double (*of)[4]) {
    cb_scope_open();
    begin();
    hooks_met = 0;
    for (int call = 0; call < CALLS; call++) {
        T x = cb_add(cb_rand(cb_dims(4), CB_F64), 0.5);
        turned = call >= TURN;
        T y = fast ? cb_call(fast, x) : program(x);
        if (!y) fail_msg("call %d: %s", call, cb_error());
        assert_int_equal(cb_read(y, of[call], CB_F64), CB_OK);
    }
    cb_scope_close();
}

static void as_eager(void **state) {
    (void)state;
    for (int k = 0; k < PROGRAMS; k++) {
        double wanted[CALLS][4], got[CALLS][4];
        cb_function *fast = cb_compile(programs[k], VM);
        run(programs[k], NULL, wanted);
        int met = hooks_met;
        run(programs[k], fast, got);
        assert_int_equal(hooks_met, met);
        for (int i = 0; i < CALLS * 4; i++)
            if (!(fabs(got[i / 4][i % 4] - wanted[i / 4][i % 4]) < 1e-12))
                fail_msg("program %d, call %d: %g, eager has %g", k, i / 4, got[i / 4][i % 4],
                         wanted[i / 4][i % 4]);
        cb_function_free(fast);
    }
}

/* What h was computed from is another one by then: h is computed before that, should anybody ask.
 * But where its elements crossed, and its history did not, who goes back by it is told. */
static bool crossed;
static T behind_a_write(T x) {
    T h = cb_mul(w, x), loss = cb_sum(cb_tanh(h)), g = NULL;
    cb_item(loss);
    T again = crossed && !turned ? cb_detach(h) : cb_detach(loss);
    if (!turned) g = by(loss, w);
    cb_mul_(x, 2);
    cb_item(cb_sum(x));
    if (turned && cb_grad(loss, NULL, &h, 1, &g) != CB_OK) return NULL;
    return g ? cb_add(cb_detach(g), again) : NULL;
}

static void over_writes(void **state) {
    (void)state;
    begin();
    for (int k = 0; k < 2; k++) {
        cb_function *fast = cb_compile(behind_a_write, VM);
        crossed = k;
        for (int call = 0; call < CALLS; call++) {
            T in = cb_full(cb_dims(4), 0.5, CB_F64), same = cb_clone(in);
            turned = call >= TURN;
            T y = cb_call(fast, in), wanted = behind_a_write(same);
            assert_non_null(wanted);
            if (crossed && turned && !y) {
                assert_non_null(strstr(cb_error(), "cannot be computed again"));
                cb_clear_error();
            } else {
                assert_non_null(y);
                assert_true(cb_item(cb_amax(cb_abs(cb_sub(y, wanted)))) < 1e-12);
            }
        }
        cb_function_free(fast);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(as_eager), TEST(over_writes)};
    return cmocka_run_group_tests_name("joint_ways", tests, NULL, NULL);
}
