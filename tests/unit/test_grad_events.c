/* Gradients where a compiled call does not run as one graph: behind events, where it breaks, where
 * its ops run one by one. Each program runs eagerly and compiled, and leaves the same gradients. */
#include "fixture.h"

#include <math.h>
#include <stdio.h>

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

enum { CALLS = 4 };

static cb_tensor *w, *v; /* leaves */
static int call_number;  /* of the course */

typedef struct Course { /* what each call came to */
    double result[CALLS], of_w[CALLS], of_v[CALLS];
} Course;

/* A number that tells elements apart. */
static double told(cb_tensor *x) {
    if (!x) return -77;
    cb_tensor *flat = cb_reshape(cb_detach(x), cb_dims(cb_numel(x)));
    return cb_item(cb_sum(cb_mul(flat, cb_cos(cb_arange(0, cb_numel(x), 1, CB_F64)))));
}

static void expect_near(const char *what, int call, double got, double wanted) {
    if (!(fabs(got - wanted) <= 1e-9 * (1 + fabs(wanted))))
        fail_msg("call %d: %s is %.17g, eager has %.17g", call, what, got, wanted);
}

static Course run(cb_function_1 *program, cb_function *fast) {
    Course course;
    cb_scope_open();
    w = cb_requires_grad_(cb_add(cb_arange(0, 3, 1, CB_F64), 1.5), true);
    v = cb_requires_grad_(cb_add(cb_arange(0, 3, 1, CB_F64), 0.25), true);
    for (call_number = 0; call_number < CALLS; call_number++) {
        cb_tensor *x = cb_full(cb_dims(3), 5, CB_F64);
        cb_tensor *y = fast ? cb_call(fast, x) : program(x);
        if (cb_error()) fail_msg("call %d: %s", call_number, cb_error());
        course.result[call_number] = told(y);
        course.of_w[call_number] = told(cb_tensor_grad(w));
        course.of_v[call_number] = told(cb_tensor_grad(v));
        cb_zero_grad(w), cb_zero_grad(v);
    }
    cb_scope_close();
    return course;
}

/* The counts of the compiled run. */
static cb_function_stats as_eager(cb_function_1 *program, const char *options) {
    cb_function *fast = cb_compile(program, options);
    Course eager = run(program, NULL), compiled = run(program, fast);
    for (int i = 0; i < CALLS; i++) {
        expect_near("the result", i, compiled.result[i], eager.result[i]);
        expect_near("w's gradient", i, compiled.of_w[i], eager.of_w[i]);
        expect_near("v's gradient", i, compiled.of_v[i], eager.of_v[i]);
    }
    cb_function_stats stats = cb_stats(fast);
    cb_function_free(fast);
    return stats;
}

/* ---- gradients of gradients, op by op -------------------------------------------------------- */

/* The gradient's history is asked for behind an op that has none. */
static cb_tensor *penalty_behind_a_plain_op(cb_tensor *x) {
    cb_tensor *loss = cb_sum(cb_pow(cb_mul(w, x), 3.0)), *g = NULL;
    cb_tensor *plain = cb_add(x, 1.0);
    cb_grad_graph(loss, NULL, &w, 1, &g);
    cb_backward(cb_add(loss, cb_sum(cb_mul(g, g))), NULL);
    return cb_mul(plain, cb_item(cb_sum(plain)));
}

static void gradients_keep_their_graph(void **state) {
    (void)state;
    as_eager(penalty_behind_a_plain_op, NULL);
    as_eager(penalty_behind_a_plain_op, "backend=vm");
}

static cb_tensor *buffer;

/* The two overlap, so that the order of ops matters. */
static cb_tensor *penalty_behind_a_write(cb_tensor *x) {
    cb_tensor *loss = cb_sum(cb_pow(cb_mul(w, x), 3.0)), *g = NULL;
    cb_assign(cb_slice(buffer, 0, 1, 4), cb_slice(buffer, 0, 0, 3));
    cb_grad_graph(loss, NULL, &w, 1, &g);
    cb_backward(cb_add(loss, cb_sum(cb_mul(g, g))), NULL);
    return cb_detach(loss);
}

static void gradients_keep_their_graph_behind_writes(void **state) {
    (void)state;
    buffer = cb_arange(0, 4, 1, CB_F64);
    as_eager(penalty_behind_a_write, NULL);
    as_eager(penalty_behind_a_write, "fullgraph=1");
}

/* ---- what lives behind an event -------------------------------------------------------------- */

/* A gradient to look at, and its value; then the same ops are gone back over, with others. */
static cb_tensor *again_behind_a_value(cb_tensor *x) {
    cb_tensor *y = cb_mul(w, x), *g = NULL;
    cb_grad(cb_sum(y), NULL, &w, 1, &g);
    double size = cb_item(cb_sum(g));
    if (!cb_requires_grad(y) || cb_requires_grad(g)) return NULL;
    cb_tensor *loss = cb_sum(cb_mul(cb_mul(y, w), size));
    cb_backward(loss, NULL);
    return cb_detach(loss);
}

static cb_tensor *again_behind_a_pointer(cb_tensor *x) {
    cb_tensor *y = cb_mul(w, x), *g = NULL;
    cb_grad(cb_sum(y), NULL, &w, 1, &g);
    cb_data(y);
    cb_backward(cb_sum(cb_mul(y, w)), NULL);
    return x;
}

static cb_tensor *again_while_disabled(cb_tensor *x) {
    cb_tensor *y = cb_mul(w, x), *g = NULL;
    cb_grad(cb_sum(y), NULL, &w, 1, &g);
    cb_disable_open();
    cb_tensor *z = cb_mul(y, w);
    cb_disable_close();
    cb_backward(cb_sum(z), NULL);
    return x;
}

static cb_tensor *by_what_was_gone_over(cb_tensor *x) {
    cb_tensor *y = cb_mul(w, x), *loss = cb_sum(cb_mul(cb_mul(y, y), v)), *g = NULL;
    cb_backward(loss, NULL);
    double size = cb_item(loss);
    cb_grad(loss, NULL, &y, 1, &g);
    return cb_mul(g, size);
}

static cb_tensor *with_a_seed_of_it(cb_tensor *x) {
    cb_tensor *y = cb_mul(w, x), *loss = cb_sum(y), *g = NULL;
    cb_backward(loss, NULL);
    double size = cb_item(loss);
    cb_grad_graph(cb_mul(cb_mul(w, v), size), y, &v, 1, &g);
    cb_backward(cb_sum(g), NULL);
    return cb_detach(g);
}

static cb_tensor *with_a_gradient_of_it(cb_tensor *x) {
    cb_tensor *loss = cb_sum(cb_pow(cb_mul(w, x), 3.0)), *g = NULL;
    cb_grad_graph(loss, NULL, &w, 1, &g);
    cb_tensor *penalty = cb_sum(cb_mul(g, g));
    cb_backward(penalty, NULL);
    double size = cb_item(penalty);
    cb_backward(cb_sum(cb_mul(cb_mul(g, v), size)), NULL);
    return cb_detach(loss);
}

/* The same elements, once with a history and once without. */
static cb_tensor *beside_its_twin(cb_tensor *x) {
    cb_tensor *y = cb_mul(w, x), *twin = cb_detach(y), *g = NULL;
    cb_grad(cb_sum(y), NULL, &w, 1, &g);
    double size = cb_item(cb_sum(twin));
    cb_tensor *a = cb_mul(twin, v), *b = call_number % 2 ? cb_mul(y, v) : a;
    cb_backward(cb_sum(cb_mul(cb_mul(a, b), size)), NULL);
    return cb_detach(a);
}

/* Two events on, and computed from one another. */
static cb_tensor *behind_two_values(cb_tensor *x) {
    cb_tensor *y = cb_mul(w, x), *z = cb_exp(cb_mul(y, 0.01)), *g = NULL, *h = NULL;
    cb_grad(cb_sum(z), NULL, &w, 1, &g);
    double size = cb_item(cb_sum(g));
    cb_tensor *u = cb_mul(cb_detach(z), v);
    cb_grad(cb_sum(u), NULL, &v, 1, &h);
    size += cb_item(cb_sum(h));
    cb_grad(cb_sum(cb_mul(z, size)), NULL, &y, 1, &g);
    cb_backward(cb_sum(cb_mul(cb_mul(z, u), g)), NULL);
    return cb_detach(u);
}

/* In a loop, whose rounds are compiled when there are many. */
static cb_tensor *in_the_last_round(cb_tensor *x) {
    cb_tensor *y = NULL, *g = NULL;
    for (int round = 0; round < 5; round++) {
        y = cb_mul(w, x);
        cb_grad(cb_sum(cb_mul(y, y)), NULL, &w, 1, &g);
        x = cb_add(x, cb_mul(g, 0.001 * cb_item(cb_sum(g)) > 0));
    }
    cb_backward(cb_sum(cb_mul(y, v)), NULL);
    return x;
}

static void it_is_gone_back_over_again(void **state) {
    (void)state;
    static cb_function_1 *const program[] = {
        again_behind_a_value,  again_behind_a_pointer, again_while_disabled,
        by_what_was_gone_over, with_a_seed_of_it,      with_a_gradient_of_it,
        beside_its_twin,       behind_two_values,      in_the_last_round};
    for (size_t i = 0; i < sizeof program / sizeof *program; i++) {
        as_eager(program[i], NULL);
        as_eager(program[i], "backend=vm");
    }
}

/* What uses it has no history, so there is nothing to go back over: the step stays compiled. */
static cb_tensor *a_step(cb_tensor *x) {
    cb_tensor *y = cb_tanh(cb_mul(w, cb_mul(x, 0.1))), *loss = cb_mean(cb_mul(y, v));
    cb_backward(loss, NULL);
    double seen = cb_item(loss);
    cb_tensor *right = cb_mean(cb_to(cb_eq(cb_argmax(y, 0), 2), CB_F64));
    cb_no_grad_open();
    cb_sub_(w, cb_mul(cb_tensor_grad(w), seen > 100 ? 0.01 : 0.1));
    cb_tensor *size = cb_sum(cb_mul(y, y));
    cb_no_grad_close();
    seen = cb_item(right);
    return cb_add(cb_add(cb_detach(loss), cb_mul(right, 2)), size);
}

static cb_tensor *a_step_that_gives_its_loss(cb_tensor *x) {
    cb_tensor *loss = cb_mean(cb_mul(cb_tanh(cb_mul(w, x)), v));
    cb_backward(loss, NULL);
    return cb_item(loss) > 100 ? NULL : loss;
}

static void steps_stay_compiled(void **state) {
    (void)state;
    cb_function_stats stats = as_eager(a_step, NULL);
    assert_int_equal(stats.eager_calls, 0);
    assert_int_equal(stats.graphs, 4); /* y is used behind the event: the first one again, wider */
    stats = as_eager(a_step_that_gives_its_loss, NULL);
    assert_int_equal(stats.eager_calls, 0);
    assert_int_equal(stats.graphs, 1);
}

/* Neither when it was recorded nor in a replay. */
static void results_come_without_history(void **state) {
    (void)state;
    cb_function *fast = cb_compile(a_step_that_gives_its_loss, NULL);
    w = cb_requires_grad_(cb_ones(cb_dims(3), CB_F64), true);
    v = cb_requires_grad_(cb_ones(cb_dims(3), CB_F64), true);
    for (int call = 0; call < 3; call++)
        assert_false(cb_requires_grad(cb_call(fast, cb_ones(cb_dims(3), CB_F64))));
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

/* ---- what is wanted later than it was recorded ----------------------------------------------- */

static bool wanted; /* the calls before did not */

static cb_tensor *sometimes_again(cb_tensor *x) {
    cb_tensor *y = cb_mul(w, x), *g = NULL;
    cb_grad(cb_sum(y), NULL, &w, 1, &g);
    double size = cb_item(cb_sum(g));
    if (wanted) cb_backward(cb_sum(cb_mul(cb_mul(y, w), size)), NULL);
    return cb_mul(g, size);
}

/* y waits for the event's value alone, and is computed before w is written to. */
static cb_tensor *sometimes_behind_a_write(cb_tensor *x) {
    cb_tensor *y = cb_mul(w, x), *g = NULL;
    cb_grad(cb_sum(y), NULL, &w, 1, &g);
    double size = cb_item(cb_sum(g));
    cb_no_grad_open();
    cb_sub_(w, cb_mul(g, 0.01));
    cb_no_grad_close();
    size += cb_item(cb_sum(w));
    if (wanted) cb_backward(cb_sum(cb_mul(cb_mul(y, v), size)), NULL);
    return cb_mul(g, size);
}

static cb_tensor *sometimes_given(cb_tensor *x) {
    cb_scope_open();
    cb_tensor *y = cb_mul(w, x);
    if (wanted) cb_keep(y);
    cb_scope_close();
    double size = cb_item(cb_sum(x));
    return wanted ? cb_scope_add(y) : cb_mul(x, size);
}

/* The segment adds to gradients, which what is wanted does not read. */
static cb_tensor *sometimes_beside_gradients(cb_tensor *x) {
    cb_tensor *y = cb_mul(w, x), *loss = cb_sum(cb_mul(y, v));
    cb_backward(loss, NULL);
    double size = cb_item(loss);
    if (wanted) cb_backward(cb_sum(cb_mul(cb_mul(y, w), size)), NULL);
    return cb_detach(y);
}

/* It draws, so what is drawn again has to be the same. */
static cb_tensor *sometimes_of_what_is_drawn(cb_tensor *x) {
    cb_manual_seed(3);
    cb_scope_open();
    cb_rand(cb_dims(3), CB_F64); /* which comes first, and y does not read */
    cb_tensor *y = cb_keep(cb_mul(cb_mul(w, x), cb_rand_like(x)));
    cb_tensor *loss = cb_keep(cb_sum(y));
    cb_backward(loss, NULL);
    cb_scope_close(); /* nothing waits */
    cb_scope_add(y), cb_scope_add(loss);
    double size = cb_item(loss);
    if (wanted) cb_backward(cb_sum(cb_mul(cb_mul(y, y), size)), NULL);
    return cb_detach(y);
}

/* What a constant was before has a history now. */
static cb_tensor *sometimes_of_a_leaf(cb_tensor *x) {
    cb_tensor *y = cb_mul(wanted ? w : cb_detach(w), x), *g = NULL;
    cb_grad(cb_sum(cb_mul(y, w)), NULL, &w, 1, &g);
    double size = cb_item(cb_sum(g));
    cb_backward(cb_sum(cb_mul(cb_mul(y, v), size)), NULL);
    return cb_detach(y);
}

static void expect_wanted(cb_function_1 *program, int after, bool outside) {
    cb_function *fast = cb_compile(program, NULL);
    double got[2];
    for (int compiled = 0; compiled < 2; compiled++) {
        w = cb_requires_grad_(cb_add(cb_arange(0, 3, 1, CB_F64), 1.5), true);
        v = cb_requires_grad_(cb_add(cb_arange(0, 3, 1, CB_F64), 0.25), true);
        for (int call = 0; call <= after; call++) {
            cb_tensor *x = cb_full(cb_dims(3), 5, CB_F64);
            wanted = call == after;
            cb_tensor *y = compiled ? cb_call(fast, x) : program(x);
            if (outside && wanted) cb_backward(cb_sum(y), NULL);
            if (cb_error()) fail_msg("call %d: %s", call, cb_error());
        }
        got[compiled] = told(cb_tensor_grad(w)) + 3 * told(cb_tensor_grad(v));
    }
    expect_near("the sum of gradients", after, got[1], got[0]);
    cb_function_free(fast);
}

static void paths_change(void **state) {
    (void)state;
    for (int after = 0; after < 4; after++) {
        expect_wanted(sometimes_again, after, false);
        expect_wanted(sometimes_of_a_leaf, after, false);
        expect_wanted(sometimes_beside_gradients, after, false);
        expect_wanted(sometimes_of_what_is_drawn, after, false);
        expect_wanted(sometimes_behind_a_write, after, false);
        expect_wanted(sometimes_given, after, true);
    }
}

/* y is all that lives, and was computed by the graph: its ops would read another w. */
static cb_tensor *sometimes_too_late(cb_tensor *x) {
    cb_scope_open();
    cb_tensor *y = cb_keep(cb_mul(w, x)), *g = NULL;
    cb_grad(cb_sum(y), NULL, &w, 1, &g);
    cb_sum(g);
    cb_scope_close();
    cb_scope_add(y);
    double size = cb_item(cb_sum(cb_detach(y)));
    cb_no_grad_open();
    cb_sub_(w, 0.25);
    size += cb_item(cb_sum(w));
    cb_no_grad_close();
    if (wanted) cb_backward(cb_sum(cb_mul(cb_mul(y, v), size)), NULL);
    return cb_mul(cb_detach(y), size);
}

static cb_tensor *sometimes_written_before(cb_tensor *x) {
    cb_tensor *y = cb_mul(w, x), *g = NULL;
    cb_grad(cb_sum(y), NULL, &w, 1, &g);
    cb_no_grad_open();
    cb_sub_(w, g);
    cb_no_grad_close();
    double size = cb_item(cb_sum(g));
    if (wanted) cb_backward(cb_sum(cb_mul(y, size)), NULL);
    return cb_mul(cb_detach(y), size);
}

static void histories_are_lost_within(void **state) {
    (void)state;
    cb_function *fast = cb_compile(sometimes_written_before, NULL);
    w = cb_requires_grad_(cb_ones(cb_dims(3), CB_F64), true);
    cb_tensor *x = cb_full(cb_dims(3), 5, CB_F64);
    for (int call = 0; call < 4; call++) {
        wanted = call == 3;
        cb_call(fast, x);
        if (!wanted && cb_error()) fail_msg("call %d: %s", call, cb_error());
    }
    expect_error("cannot be computed again with its history");
    cb_function_free(fast);
}

/* It says so, and is right from then on. */
static void lost_histories_are_errors(void **state) {
    (void)state;
    cb_function *fast = cb_compile(sometimes_too_late, NULL);
    w = cb_requires_grad_(cb_ones(cb_dims(3), CB_F64), true);
    v = cb_requires_grad_(cb_ones(cb_dims(3), CB_F64), true);
    cb_tensor *x = cb_full(cb_dims(3), 5, CB_F64);
    for (int call = 0; call < 4; call++) {
        wanted = call == 3;
        cb_call(fast, x);
        if (!wanted && cb_error()) fail_msg("call %d: %s", call, cb_error());
    }
    expect_error("cannot be computed again with its history");
    cb_zero_grad(w), cb_zero_grad(v);
    assert_non_null(cb_call(fast, x));
    double at = cb_item(cb_select(cb_detach(w), 0, 0)), size = 15 * (at + 0.25) + 3 * at;
    assert_true(cb_item(cb_select(cb_tensor_grad(w), 0, 1)) == 5 * size);
    assert_true(cb_item(cb_select(cb_tensor_grad(v), 0, 1)) == 5 * (at + 0.25) * size);
    cb_function_free(fast);
}

/* ---- writes, and breaks ---------------------------------------------------------------------- */

static cb_tensor *writes_to_it(cb_tensor *x) {
    cb_tensor *y = cb_mul(w, x), *loss = cb_sum(y);
    cb_backward(loss, NULL);
    if (cb_item(loss) > 0) cb_add_(y, 1);
    return x;
}

static cb_tensor *writes_it_where_nothing_is_followed(cb_tensor *x) {
    cb_tensor *y = cb_mul(w, x), *loss = cb_sum(y);
    cb_backward(loss, NULL);
    double size = cb_item(loss);
    cb_no_grad_open();
    cb_add_(y, size);
    cb_no_grad_close();
    return cb_detach(y);
}

static void writes_behind_events(void **state) {
    (void)state;
    cb_function *fast = cb_compile(writes_to_it, NULL);
    w = cb_requires_grad_(cb_ones(cb_dims(3), CB_F64), true);
    for (int call = 0; call < 3; call++) {
        cb_call(fast, cb_full(cb_dims(3), 5, CB_F64));
        expect_error("the target requires a gradient");
    }
    cb_function_free(fast);
    as_eager(writes_it_where_nothing_is_followed, NULL);
}

/* More and more of it is new, until that is too much and the call breaks in its middle. */
static cb_tensor *longer_each_time(cb_tensor *x) {
    cb_tensor *y = cb_mul(w, x), *g = NULL;
    cb_grad(cb_sum(y), NULL, &w, 1, &g);
    cb_tensor *z = cb_sum(cb_mul(y, w));
    for (int i = 0; i < call_number; i++) z = i % 2 ? cb_sin(z) : cb_mul(z, 0.5);
    cb_backward(cb_add(z, cb_sum(cb_mul(y, w))), NULL);
    return cb_detach(z);
}

static void histories_outlive_breaks(void **state) {
    (void)state;
    cb_set_option("recompile_limit", "2");
    cb_set_option("notices", "0");
    cb_function_stats stats = as_eager(longer_each_time, NULL);
    cb_set_option("recompile_limit", "8");
    cb_set_option("notices", "1");
    assert_int_equal(stats.graphs, 2);
    assert_int_equal(stats.eager_calls, CALLS - 2);
}

/* ---- leaves that begin inside ---------------------------------------------------------------- */

/* Of nothing, of a value, of the input; what is before them has no gradient by them. */
static cb_tensor *begins_leaves(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0), *own = cb_full(cb_dims(3), 3.0, CB_F64);
    cb_tensor *before = cb_sum(cb_mul(cb_mul(y, own), w));
    if (call_number & 1) cb_item(before);
    cb_requires_grad_(own, true);
    cb_requires_grad_(y, true);
    cb_requires_grad_(x, true);
    cb_tensor *loss = cb_add(cb_sum(cb_mul(cb_mul(own, y), cb_mul(v, x))), before);
    cb_backward(loss, NULL);
    if (!cb_tensor_grad(y)) return NULL;
    return cb_add(cb_add(cb_tensor_grad(own), cb_mul(cb_tensor_grad(y), 3.0)), cb_tensor_grad(x));
}

static void leaves_begin_inside(void **state) {
    (void)state;
    as_eager(begins_leaves, NULL);
    as_eager(begins_leaves, "backend=vm");
    cb_function *whole = cb_compile(begins_leaves, "fullgraph=1");
    w = v = cb_ones(cb_dims(3), CB_F64);
    REFUSED(cb_call(whole, cb_ones(cb_dims(3), CB_F64)), "a tensor requires a gradient from here");
    cb_function_free(whole);
}

/* ---- recorded again -------------------------------------------------------------------------- */

enum { OTHERS = 6 };
static cb_tensor *other[OTHERS]; /* that no op has used when the trace is recorded again */

/* Of two equal ops the gradient is by one, so they are recorded again, apart. */
static cb_tensor *by_one_of_two(cb_tensor *x, void (*between)(cb_tensor *x)) {
    cb_tensor *a = cb_mul(w, 2.0), *b = cb_mul(w, 2.0), *g = NULL;
    cb_tensor *loss = cb_sum(cb_add(cb_mul(a, x), cb_mul(b, b)));
    between(x);
    cb_grad(loss, NULL, &a, 1, &g);
    for (int i = 0; i < OTHERS && g; i++) g = cb_add(g, cb_sum(other[i]));
    return g;
}

static void look(cb_tensor *x) {
    (void)x;
    for (int i = 0; i < OTHERS; i++) assert_false(cb_requires_grad(other[i]));
}

static void fail_to_add(cb_tensor *x) {
    for (int i = 0; i < OTHERS; i++) REFUSED(cb_add(x, other[i]), "add");
}

static cb_tensor *with_what_was_looked_at(cb_tensor *x) { return by_one_of_two(x, look); }
static cb_tensor *with_what_failed(cb_tensor *x) { return by_one_of_two(x, fail_to_add); }

static void values_that_no_op_uses(void **state) {
    (void)state;
    for (int i = 0; i < OTHERS; i++) other[i] = cb_full(cb_dims(5), i, CB_F64);
    as_eager(with_what_was_looked_at, NULL);
    as_eager(with_what_was_looked_at, "fullgraph=1");
    as_eager(with_what_failed, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(gradients_keep_their_graph),   TEST(gradients_keep_their_graph_behind_writes),
        TEST(it_is_gone_back_over_again),   TEST(steps_stay_compiled),
        TEST(results_come_without_history), TEST(paths_change),
        TEST(lost_histories_are_errors),    TEST(histories_are_lost_within),
        TEST(writes_behind_events),         TEST(histories_outlive_breaks),
        TEST(values_that_no_op_uses),       TEST(leaves_begin_inside),
    };
    return cmocka_run_group_tests_name("grad_events", tests, NULL, NULL);
}
