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

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(gradients_keep_their_graph),
        TEST(gradients_keep_their_graph_behind_writes),
    };
    return cmocka_run_group_tests_name("grad_events", tests, NULL, NULL);
}
