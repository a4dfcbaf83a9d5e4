/* One leaf where a recording has two: the gradient is the sum of what comes to both. Each program
 * runs eagerly and compiled, on the branch that was recorded first and on another one. */
#include "fixture.h"

static const char *const ways[] = {NULL, "backend=vm", "freeze=1", "fullgraph=1"};
enum { WAYS = sizeof ways / sizeof *ways, CALLS = 6, RESULTS = 2 };

static cb_tensor *p, *q; /* what the program finds */
static cb_tensor *given; /* NULL: p, too */
static bool squares;     /* the branch that it takes */

static cb_tensor *leaf(double value) {
    return cb_requires_grad_(cb_full(cb_dims(2), value, CB_F64), true);
}

static cb_tensor *or_zero(cb_tensor *x) {
    return x ? cb_mul(x, 1.0) : cb_zeros(cb_dims(2), CB_F64);
}

/* ---- programs -------------------------------------------------------------------------------- */

static int asks_by_the_second(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)in, (void)count, (void)user;
    cb_tensor *g = NULL;
    cb_grad(cb_sum(cb_mul(p, q)), NULL, &q, 1, &g);
    out[0] = or_zero(g);
    return 1;
}

static int adds_up(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)in, (void)count, (void)user;
    cb_backward(cb_sum(cb_exp(cb_mul(p, q))), NULL);
    out[0] = or_zero(cb_tensor_grad(p));
    out[1] = or_zero(cb_tensor_grad(q));
    return 2;
}

static int squares_or_multiplies(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)in, (void)count, (void)user;
    cb_tensor *y = squares ? cb_relu(cb_mul(q, q)) : cb_mul(p, q);
    cb_backward(cb_sum(y), NULL);
    out[0] = or_zero(cb_tensor_grad(q));
    return 1;
}

static int by_the_input(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *x = in[0], *g = NULL;
    cb_grad(cb_sum(cb_mul(x, q)), NULL, &x, 1, &g);
    out[0] = or_zero(g);
    return 1;
}

static int of_the_input_by_what_is_found(cb_tensor *const *in, int count, cb_tensor **out,
                                         void *user) {
    (void)count, (void)user;
    cb_backward(cb_sum(cb_mul(in[0], cb_mul(in[0], q))), NULL);
    out[0] = or_zero(cb_tensor_grad(q));
    return 1;
}

enum { OTHERS = 40 };
static cb_tensor *other[OTHERS]; /* leaves that are no other one */

static cb_tensor *with_others(cb_tensor *y) {
    for (int i = 0; i < OTHERS; i++) y = cb_add(y, other[i]);
    return y;
}

static int input_among_many(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *x = in[0];
    cb_grad(cb_sum(cb_mul(with_others(x), q)), NULL, &x, 1, out);
    return 1;
}

static int found_among_many(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)in, (void)count, (void)user;
    cb_grad(cb_sum(cb_mul(with_others(p), q)), NULL, &q, 1, out);
    return 1;
}

/* ---- eagerly and compiled -------------------------------------------------------------------- */

typedef struct Leaves {
    cb_tensor *first, *second; /* two, and then one */
} Leaves;

static void forget(const Leaves *leaves) {
    cb_zero_grad(leaves->first);
    cb_zero_grad(leaves->second);
}

/* In the order of the bits of pattern: 1: what is found, and given, is one leaf. */
static void compare(cb_function_n *program, const char *way, unsigned pattern, bool branches) {
    Leaves leaves = {leaf(3), leaf(5)};
    cb_function *fast = cb_compile_n(program, NULL, way);
    for (int i = 0; i < CALLS; i++) {
        bool one = pattern >> i & 1;
        q = leaves.second;
        p = one && !branches ? q : leaves.first;
        squares = one && branches;
        cb_tensor *in = given ? given : p, *got[RESULTS], *wanted[RESULTS];
        int count = cb_call_n(fast, &in, 1, got, RESULTS);
        if (count < 0) fail_msg("%s: call %d: %s", way ? way : "", i, cb_error());
        forget(&leaves);
        assert_int_equal(program(&in, 1, wanted, NULL), count);
        forget(&leaves);
        for (int k = 0; k < count; k++) {
            double a = cb_item(cb_sum(got[k])), b = cb_item(cb_sum(wanted[k]));
            if (a != b)
                fail_msg("%s: call %d: result %d is %g, eager has %g", way ? way : "", i, k, a, b);
        }
    }
    cb_function_free(fast);
}

static void expect_as_eager(cb_function_n *program, bool branches, bool finds) {
    static const unsigned patterns[] = {6, 9, 44}; /* two leaves first; one; two, and one again */
    for (int way = 0; way < WAYS; way++)
        for (int k = 0; k < 3; k++) {
            bool whole = ways[way] && strstr(ways[way], "fullgraph");
            if (whole && finds) continue; /* what it finds is what it found first */
            compare(program, ways[way], patterns[k], branches);
        }
}

static void of_what_is_found(void **state) {
    (void)state;
    expect_as_eager(asks_by_the_second, false, true);
    expect_as_eager(adds_up, false, true);
}

static void of_another_branch(void **state) {
    (void)state;
    expect_as_eager(squares_or_multiplies, true, true);
}

static void of_the_input(void **state) {
    (void)state;
    expect_as_eager(by_the_input, false, false);
    expect_as_eager(of_the_input_by_what_is_found, false, false);
}

static void among_many(void **state) {
    (void)state;
    for (int i = 0; i < OTHERS; i++) other[i] = leaf(i);
    expect_as_eager(input_among_many, false, true);
    given = leaf(7);
    expect_as_eager(found_among_many, false, true);
    given = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(of_what_is_found, open_scope, close_scope_without_tensors),
        cmocka_unit_test_setup_teardown(of_another_branch, open_scope, close_scope_without_tensors),
        cmocka_unit_test_setup_teardown(of_the_input, open_scope, close_scope_without_tensors),
        cmocka_unit_test_setup_teardown(among_many, open_scope, close_scope_without_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
