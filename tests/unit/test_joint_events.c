/* Gradients over calls that are cut where a value is asked for: each segment is compiled, and so is
 * what leads back from it, and the tape goes over them. Each program runs eagerly and compiled. */
#include "fixture.h"
#include "threads.h"

#include <math.h>
#include <stdio.h>

#define VM "backend=vm"
#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

enum { CALLS = 6 };

typedef cb_tensor *T;
static T w, v;          /* leaves */
static T left;          /* what a program keeps in place of returning it */
static int call_number; /* of the course */

typedef enum Way {
    WITHIN,  /* it goes back itself */
    OUTSIDE, /* what it returns, or keeps, is gone back from */
    BY_TAPE  /* it goes back itself in a way that cannot be compiled */
} Way;
typedef struct EventProgram {
    cb_function_1 *run;
    Way way;
} EventProgram;

/* ---- programs -------------------------------------------------------------------------------- */

static T branches(T x) {
    T y = cb_tanh(cb_mul(x, w));
    double size = cb_item(cb_sum(cb_detach(y)));
    return size > (call_number % 3 ? 0.1 : 1e9) ? cb_mul(cb_mul(y, v), 2) : cb_exp(cb_mul(y, w));
}

static T draws(T x) {
    T y = cb_tanh(cb_mul(x, w)), some = cb_dropout(y, 0.5, true);
    double most = cb_item(cb_amax(some));
    T z = cb_mul(cb_dropout(cb_mul(some, v), 0.25, true), most);
    return cb_add(cb_mul(z, y), cb_item(cb_sum(z)));
}

static T rounds(T x) {
    for (int i = 0; i < 6; i++) {
        x = cb_tanh(cb_add(cb_mul(x, w), v));
        if (cb_item(cb_sum(x)) > 1e9) break;
    }
    return x;
}

static T trains(T x) {
    T y = cb_tanh(cb_mul(x, w)), loss = cb_mean(cb_square(cb_sub(cb_mul(y, v), 1)));
    double rate = cb_item(loss) > 0 ? 0.1 : 0.2;
    cb_backward(loss, NULL);
    cb_no_grad_open();
    cb_sub_(w, cb_mul(cb_tensor_grad(w), rate));
    cb_no_grad_close();
    return cb_detach(loss);
}

/* Gradients are there already: written to while a left value waits that read them, and that only
 * later calls use. */
static T adds_up(T x) {
    T y = cb_tanh(cb_mul(x, w)), before = cb_tensor_grad(w);
    T twice = cb_mul(before ? before : cb_detach(w), 2);
    T loss = cb_sum(cb_mul(cb_mul(y, v), cb_item(cb_sum(y))));
    cb_backward(loss, NULL);
    cb_backward(cb_sum(cb_mul(y, y)), NULL);
    return cb_add(cb_tensor_grad(w), call_number < 4 ? cb_detach(y) : twice);
}

static T by_a_leaf(T x) {
    T y = cb_tanh(cb_mul(x, w)), g = NULL;
    T loss = cb_sum(cb_mul(cb_mul(y, w), cb_item(cb_sum(y))));
    cb_grad(loss, NULL, &w, 1, &g);
    return cb_mul(g, cb_detach(y));
}

/* Views of a leaf and of a result, of which the segments behind go on. */
static T views(T x) {
    x = cb_reshape(x, cb_dims(-1, 2));
    T square = cb_reshape(w, cb_dims(2, 2)), turned = cb_t(square), y = cb_matmul(x, turned);
    T of_y = cb_t(y);
    double size = cb_item(cb_sum(y));
    return cb_add(cb_mul(cb_matmul(of_y, x), turned), cb_mul(square, size));
}

/* What waits in some calls is used in others. */
static T paths(T x) {
    T a = cb_exp(cb_mul(x, w)), b = cb_sin(cb_mul(x, v));
    double size = cb_item(cb_sum(cb_detach(a)));
    if (call_number >= 4) return cb_mul(cb_mul(a, b), size);
    return cb_mul(call_number >= 2 ? a : cb_mul(x, w), size);
}

/* So is a view of what crosses for its own sake, with its history. */
static T paths_of_views(T x) {
    T y = cb_exp(cb_mul(x, w)), flat = cb_reshape(y, cb_dims(-1));
    double size = cb_item(cb_sum(x));
    return cb_mul(call_number < 2 ? y : flat, size);
}

static T keeps_a_view(T x) {
    T y = cb_exp(cb_mul(x, w)), flat = cb_reshape(y, cb_dims(-1));
    double size = cb_item(cb_sum(x));
    if (call_number > 1) left = cb_keep(flat);
    return cb_mul(y, size);
}

static T keeps(T x) {
    T a = cb_exp(cb_mul(x, w));
    double size = cb_item(cb_sum(x));
    left = cb_keep(cb_mul(a, v));
    return cb_mul(x, size + cb_item(cb_sum(x)));
}

static T behind_a_pointer(T x) {
    T a = cb_exp(cb_mul(x, w));
    cb_data(a);
    T b = cb_mul(a, v);
    return cb_mul(b, cb_tanh(a));
}

static T goes_back_behind_a_pointer(T x) {
    T a = cb_exp(cb_mul(x, w));
    cb_data(a);
    T b = cb_mul(a, v);
    cb_backward(cb_sum(b), NULL);
    return cb_mul(cb_detach(b), cb_tensor_grad(w));
}

static T while_disabled(T x) {
    T a = cb_exp(cb_mul(x, w));
    cb_disable_open();
    T b = cb_mul(a, v);
    cb_backward(cb_sum(b), NULL);
    cb_disable_close();
    return cb_mul(b, cb_add(cb_tanh(a), cb_tensor_grad(w)));
}

static T steps_in_a_loop(T x) {
    T y = cb_mul(x, w);
    for (int i = 0; i < 5; i++) {
        T loss = cb_sum(cb_square(cb_mul(y, v)));
        if (cb_item(loss) < 0) return y;
        cb_backward(loss, NULL);
        cb_no_grad_open();
        cb_sub_(v, cb_mul(cb_tensor_grad(v), 0.001));
        cb_no_grad_close();
        cb_zero_grad(v);
        y = cb_mul(x, w);
    }
    return y;
}

/* One value was gone back over, the other was not. */
static T beside_what_was_gone_over(T x) {
    T a = cb_exp(cb_mul(x, w)), b = cb_sin(cb_mul(x, v));
    cb_backward(cb_sum(a), NULL);
    return cb_mul(b, cb_item(cb_sum(a)));
}

static T by_a_result(T x) {
    T a = cb_exp(cb_mul(x, w)), b = cb_mul(a, v), g = NULL;
    cb_grad(cb_mul(cb_sum(b), cb_item(cb_sum(b))), NULL, &a, 1, &g);
    return g;
}

static T of_gradients(T x) {
    T b = cb_mul(cb_exp(cb_mul(x, w)), v), g = NULL;
    cb_grad_graph(cb_mul(cb_sum(b), cb_item(cb_sum(b))), NULL, &w, 1, &g);
    cb_backward(cb_sum(cb_mul(g, g)), NULL);
    return cb_detach(g);
}

static const EventProgram programs[] = {
    {branches, OUTSIDE},
    {draws, OUTSIDE},
    {rounds, OUTSIDE},
    {trains, WITHIN},
    {adds_up, WITHIN},
    {by_a_leaf, WITHIN},
    {views, OUTSIDE},
    {paths, OUTSIDE},
    {paths_of_views, OUTSIDE},
    {keeps_a_view, OUTSIDE},
    {keeps, OUTSIDE},
    {behind_a_pointer, OUTSIDE},
    {goes_back_behind_a_pointer, WITHIN},
    {while_disabled, OUTSIDE},
    {steps_in_a_loop, OUTSIDE},
    {beside_what_was_gone_over, OUTSIDE},
    {by_a_result, BY_TAPE},
    {of_gradients, BY_TAPE},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

/* ---- eagerly and compiled -------------------------------------------------------------------- */

/* A number that tells elements apart. */
static double told(T x) {
    if (!x) return -77;
    T flat = cb_reshape(cb_detach(x), cb_dims(cb_numel(x)));
    return cb_item(cb_sum(cb_mul(flat, cb_cos(cb_arange(0, cb_numel(x), 1, CB_F64)))));
}

typedef struct EventCourse { /* what each call came to */
    double result[CALLS], of_w[CALLS], of_v[CALLS];
} EventCourse;

static void begin(void) {
    cb_manual_seed(7);
    w = cb_requires_grad_(cb_add(cb_mul(cb_arange(0, 4, 1, CB_F64), 0.1), 0.5), true);
    v = cb_requires_grad_(cb_add(cb_mul(cb_arange(0, 4, 1, CB_F64), -0.2), 0.7), true);
}

static void go_back_outside(T y) {
    T from = left ? cb_scope_add(left) : y;
    assert_true(cb_requires_grad(from));
    cb_backward(cb_sum(cb_mul(from, cb_sin(cb_detach(from)))), NULL);
}

/* sizes: each call has others. foreign: the input has a history. */
static EventCourse run(const EventProgram *program, cb_function *fast, bool sizes, bool foreign) {
    EventCourse course;
    cb_scope_open();
    begin();
    for (call_number = 0; call_number < CALLS; call_number++) {
        T x = cb_rand(cb_dims(sizes ? 2 + call_number % 4 : 3, 4), CB_F64);
        if (foreign) x = cb_mul(x, cb_mul(w, w));
        left = NULL;
        T y = fast ? cb_call(fast, x) : program->run(x);
        if (program->way == OUTSIDE) go_back_outside(y);
        if (cb_error()) fail_msg("program %d: %s", (int)(program - programs), cb_error());
        course.result[call_number] = told(y);
        course.of_w[call_number] = told(cb_tensor_grad(w));
        course.of_v[call_number] = told(cb_tensor_grad(v));
        if (call_number % 3 == 2) cb_zero_grad(w), cb_zero_grad(v);
    }
    cb_scope_close();
    return course;
}

static void expect_near(const EventProgram *program, int call, double got, double wanted) {
    if (!(fabs(got - wanted) <= 1e-9 * (1 + fabs(wanted))))
        fail_msg("program %d, call %d: %.17g, eager has %.17g", (int)(program - programs), call,
                 got, wanted);
}

static void compare(const EventProgram *program, const char *options, bool sizes, bool foreign) {
    cb_function *fast = cb_compile(program->run, options);
    EventCourse wanted = run(program, NULL, sizes, foreign);
    EventCourse got = run(program, fast, sizes, foreign);
    for (int i = 0; i < CALLS; i++) {
        expect_near(program, i, got.result[i], wanted.result[i]);
        expect_near(program, i, got.of_w[i], wanted.of_w[i]);
        expect_near(program, i, got.of_v[i], wanted.of_v[i]);
    }
    assert_int_equal(cb_stats(fast).eager_calls, program->way == BY_TAPE ? CALLS : 0);
    cb_function_free(fast);
}

static void as_eager(void **state) {
    (void)state;
    for (int k = 0; k < PROGRAMS; k++) {
        compare(&programs[k], VM, false, false);
        compare(&programs[k], VM, true, false);
        compare(&programs[k], VM ", dynamic=1", true, true);
    }
    compare(&programs[0], NULL, false, false);
}

/* The second run of each is a replay, of graphs that are no more and no fewer. */
static void replays(void **state) {
    (void)state;
    static const struct {
        cb_function_1 *run;
        int graphs;
    } of[] = {{trains, 2}, {rounds, 2}, {views, 2}, {paths_of_views, 4}};
    begin();
    left = NULL;
    T x = cb_rand(cb_dims(2, 4), CB_F64);
    for (int k = 0; k < 4; k++) {
        cb_function *fast = cb_compile(of[k].run, VM);
        for (call_number = 0; call_number < 5; call_number++) {
            T y = cb_call(fast, x);
            if (cb_requires_grad(y)) go_back_outside(y);
        }
        int64_t graphs = cb_stats(fast).graphs;
        for (int call = 0; call < 3; call++) assert_non_null(cb_call(fast, x));
        assert_int_equal(cb_stats(fast).graphs, graphs);
        assert_int_equal(graphs, of[k].graphs);
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
}

/* What was compiled before, without the gradients of gradients that are asked for later. */
static bool twice;
static T sometimes_of_gradients(T x) {
    T y = cb_mul(cb_exp(cb_mul(x, w)), v), g = NULL;
    double size = cb_item(cb_sum(y));
    if (!twice) return cb_mul(y, size);
    if (cb_grad_graph(cb_mul(cb_sum(y), size), NULL, &w, 1, &g) != CB_OK) return NULL;
    cb_backward(cb_sum(cb_mul(g, g)), NULL);
    return cb_detach(g);
}

static void gradients_of_gradients(void **state) {
    (void)state;
    begin();
    T x = cb_rand(cb_dims(2, 4), CB_F64), of_w[3];
    cb_function *fast = cb_compile(sometimes_of_gradients, VM);
    twice = false;
    for (int call = 0; call < 3; call++) assert_non_null(cb_call(fast, x));
    twice = true;
    for (int way = 0; way < 3; way++) {
        cb_zero_grad(w);
        assert_non_null(way ? cb_call(fast, x) : sometimes_of_gradients(x));
        of_w[way] = cb_clone(cb_tensor_grad(w));
        assert_true(fabs(told(of_w[way]) - told(of_w[0])) <= 1e-9);
    }
    cb_function_free(fast);
}

/* ---- threads --------------------------------------------------------------------------------- */

static cb_function *shared;

static int of_given(T const *in, int count, T *out, void *user) {
    (void)count, (void)user;
    T y = cb_tanh(cb_mul(in[0], in[1]));
    out[0] = cb_mul(y, cb_item(cb_sum(y)) > 0 ? 2 : 3);
    return 1;
}

static T penalty; /* now and then, computed outside */
static T adds_a_penalty(T x) {
    cb_backward(cb_sum(cb_mul(x, w)), NULL);
    double logged = cb_item(cb_sum(x));
    if (penalty) cb_backward(penalty, NULL);
    return cb_mul(x, logged);
}

/* The leaf's gradient is of a segment that was left, and has no value yet. */
static void onto_what_waits(void **state) {
    (void)state;
    cb_function *fast = cb_compile(adds_a_penalty, VM);
    w = cb_requires_grad_(cb_full(cb_dims(4), 0.5, CB_F64), true);
    for (int call = 0; call < 8; call++) {
        double got[2];
        for (int k = 0; k < 2; k++) {
            cb_zero_grad(w);
            penalty = call == 1 || call >= 6 ? cb_sum(cb_mul(w, w)) : NULL;
            T x = cb_full(cb_dims(4), 0.25 + call, CB_F64),
              y = k ? cb_call(fast, x) : adds_a_penalty(x);
            assert_non_null(y);
            got[k] = cb_item(cb_sum(cb_tensor_grad(w)));
        }
        if (got[0] != got[1]) fail_msg("call %d: %g, eager has %g", call, got[1], got[0]);
    }
    penalty = NULL;
    cb_function_free(fast);
}

static void *go_back_often(void *wrong) {
    cb_scope_open();
    T x = cb_full(cb_dims(4), 1, CB_F64), y;
    T own = cb_requires_grad_(cb_full(cb_dims(4), 0.5, CB_F64), true);
    for (int i = 0; i < 20; i++) {
        cb_zero_grad(own);
        cb_call_n(shared, (T[]){x, own}, 2, &y, 1);
        if (cb_backward(cb_sum(y), NULL) != CB_OK) *(bool *)wrong = true;
        double g = cb_item(cb_sum(cb_tensor_grad(own))), t = tanh(0.5);
        if (!(fabs(g - 8 * (1 - t * t)) < 1e-9)) *(bool *)wrong = true;
    }
    cb_scope_close();
    return NULL;
}

static void by_threads(void **state) {
    (void)state;
    shared = cb_compile_n(of_given, NULL, VM);
    run_at_once(go_back_often);
    assert_int_equal(cb_stats(shared).eager_calls, 0);
    cb_function_free(shared);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(as_eager),   TEST(replays),         TEST(gradients_of_gradients),
        TEST(by_threads), TEST(onto_what_waits),
    };
    return cmocka_run_group_tests_name("joint_events", tests, NULL, NULL);
}
