/* A leaf that is an input of the call, and is found by the function, too: every loss of the two
 * names, by every way to its gradient, with what is done to the leaf or its gradient by either.
 * Each program runs eagerly and compiled, with that leaf and with another one as the input, which
 * comes first. */
#include "fixture.h"

static const char *const ways[] = {"backend=vm", "backend=vm,fullgraph=1",
                                   "backend=eager,fullgraph=1"};
static const char *const orders[] = {"ffofo", "oofof", "fofo"}; /* found, or other */
enum { WAYS = sizeof ways / sizeof *ways, ORDERS = sizeof orders / sizeof *orders };

typedef enum Loss { OF_INPUT, OF_FOUND, OF_PRODUCT, OF_SUM, BESIDE_INPUT, LOSSES } Loss;
typedef enum Ask {
    BACKWARD,
    BACKWARD_TWICE,
    GRAD_BY_INPUT,
    GRAD_BY_FOUND,
    GRAD_BY_BOTH,
    SECOND_BY_INPUT,
    SECOND_BY_FOUND,
    ASKS
} Ask;
typedef enum Deed {
    NOTHING,
    FREES_INPUT,
    FREES_FOUND,
    READS_INPUT,
    READS_FOUND,
    UPDATES_INPUT,
    UPDATES_FOUND,
    WRITES_INPUT,
    WRITES_FOUND,
    FREES_FOUND_BEHIND,
    DEEDS
} Deed;

typedef struct JoinedProgram {
    Loss loss;
    Ask ask;
    Deed deed;
} JoinedProgram;

static cb_tensor *w; /* what the program finds */
static int runs;     /* of the program itself */

static cb_tensor *loss_of(Loss loss, cb_tensor *x) {
    switch (loss) {
    case OF_INPUT:
        return cb_sum(cb_mul(cb_square(x), 3.0));
    case OF_FOUND:
        return cb_sum(cb_mul(cb_square(w), 2.0));
    case OF_PRODUCT:
        return cb_sum(cb_mul(x, cb_square(w)));
    case OF_SUM:
        return cb_add(cb_sum(cb_square(x)), cb_sum(cb_mul(cb_square(w), 2.0)));
    default:
        return cb_sum(cb_mul(cb_square(w), cb_detach(x)));
    }
}

static cb_tensor *or_zero(cb_tensor *x) {
    return x ? cb_mul(x, 1.0) : cb_zeros(cb_dims(2), CB_F64);
}

/* The sum of the gradients by the tensors, each of which counts ten times the one before. */
static cb_tensor *gradients(cb_tensor *l, cb_tensor *const *by, int count, bool second) {
    cb_tensor *g[2] = {NULL, NULL}, *all;
    if (second)
        cb_grad_graph(l, NULL, by, count, g);
    else
        cb_grad(l, NULL, by, count, g);
    if (second && g[0] && cb_requires_grad(g[0])) {
        cb_backward(cb_sum(cb_mul(g[0], g[0])), NULL);
        return cb_detach(g[0]);
    }
    all = or_zero(g[0]);
    return count > 1 ? cb_add(all, cb_mul(or_zero(g[1]), 10.0)) : all;
}

static cb_tensor *ask(const JoinedProgram *program, cb_tensor *x) {
    cb_tensor *l = loss_of(program->loss, x);
    switch (program->ask) {
    case GRAD_BY_INPUT:
        return gradients(l, &x, 1, false);
    case GRAD_BY_FOUND:
        return gradients(l, &w, 1, false);
    case GRAD_BY_BOTH:
        return gradients(l, (cb_tensor *[]){x, w}, 2, false);
    case SECOND_BY_INPUT:
        return gradients(l, &x, 1, true);
    case SECOND_BY_FOUND:
        return gradients(l, &w, 1, true);
    default:
        cb_backward(l, NULL);
        if (program->ask == BACKWARD_TWICE) cb_backward(cb_sum(cb_mul(w, 5.0)), NULL);
        return cb_detach(l);
    }
}

static void update(cb_tensor *x, const cb_tensor *like) {
    cb_tensor *g = cb_tensor_grad(like);
    cb_no_grad_open();
    if (g) cb_sub_(x, cb_mul(g, 0.25));
    cb_no_grad_close();
}

static void begin(Deed deed, cb_tensor *x) {
    if (deed == FREES_INPUT) cb_zero_grad(x);
    if (deed == FREES_FOUND) cb_zero_grad(w);
    cb_no_grad_open();
    if (deed == WRITES_INPUT) cb_mul_(x, 2.0);
    if (deed == WRITES_FOUND) cb_mul_(w, 2.0);
    cb_no_grad_close();
}

static int run(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    const JoinedProgram *program = user;
    cb_tensor *x = in[0];
    runs++;
    begin(program->deed, x);
    out[0] = ask(program, x);
    out[1] = NULL;
    if (program->deed == READS_INPUT) out[1] = or_zero(cb_tensor_grad(x));
    if (program->deed == READS_FOUND) out[1] = or_zero(cb_tensor_grad(w));
    if (program->deed == UPDATES_INPUT) update(x, w);
    if (program->deed == UPDATES_FOUND) update(w, x);
    if (program->deed == FREES_FOUND_BEHIND) cb_zero_grad(w);
    return 2;
}

/* ---- eagerly and compiled -------------------------------------------------------------------- */

typedef struct Leaves {
    cb_tensor *found, *other;
} Leaves;

static Leaves leaves_new(void) {
    return (Leaves){cb_requires_grad_(cb_full(cb_dims(2), 3, CB_F64), true),
                    cb_requires_grad_(cb_full(cb_dims(2), 5, CB_F64), true)};
}

static int call(cb_function *fast, JoinedProgram *program, const Leaves *leaves, char which,
                cb_tensor **out) {
    cb_tensor *in = which == 'f' ? leaves->found : leaves->other;
    w = leaves->found;
    return fast ? cb_call_n(fast, &in, 1, out, 2) : run(&in, 1, out, program);
}

static bool same(cb_tensor *a, cb_tensor *b) {
    if (!a || !b) return a == b;
    return cb_item(cb_sum(cb_detach(a))) == cb_item(cb_sum(cb_detach(b)));
}

static bool same_leaf(cb_tensor *a, cb_tensor *b) {
    return same(a, b) && same(cb_tensor_grad(a), cb_tensor_grad(b));
}

static void compare(JoinedProgram *program, const char *way, const char *order) {
    cb_scope_open();
    Leaves compiled = leaves_new(), eager = leaves_new();
    cb_function *fast = cb_compile_n(run, program, way);
    for (int i = 0; order[i]; i++) {
        cb_tensor *got[2], *wanted[2];
        int count = call(fast, program, &compiled, order[i], got);
        bool good = count == call(NULL, program, &eager, order[i], wanted) && count == 2;
        for (int k = 0; good && k < 2; k++) good = same(got[k], wanted[k]);
        good = good && same_leaf(compiled.found, eager.found);
        if (!good || !same_leaf(compiled.other, eager.other) || cb_error())
            fail_msg("loss %d, ask %d, deed %d, %s, call %d of %s: not as eager: %s", program->loss,
                     program->ask, program->deed, way, i, order, cb_error() ? cb_error() : "");
    }
    cb_function_free(fast);
    cb_scope_close();
}

static void every_combination(void **state) {
    (void)state;
    for (int n = 0; n < LOSSES * ASKS * DEEDS; n++) {
        JoinedProgram program = {n % LOSSES, n / LOSSES % ASKS, n / LOSSES / ASKS};
        for (int way = 0; way < WAYS; way++)
            for (int k = 0; k < ORDERS; k++) compare(&program, ways[way], orders[k]);
    }
}

static void expect_graphs(JoinedProgram program, const char *order, int graphs) {
    cb_function *fast = cb_compile_n(run, &program, "backend=vm,fullgraph=1");
    Leaves leaves = leaves_new();
    cb_tensor *out[2];
    runs = 0;
    for (int i = 0; order[i]; i++)
        assert_int_equal(call(fast, &program, &leaves, order[i], out), 2);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    assert_int_equal(cb_stats(fast).graphs, graphs);
    assert_int_equal(runs, graphs);
    cb_function_free(fast);
}

/* Such a call is one graph, that nothing breaks; and one graph is for all inputs where the function
 * finds none of them. */
static void are_graphs(void **state) {
    (void)state;
    expect_graphs((JoinedProgram){OF_SUM, BACKWARD, NOTHING}, "ffff",
                  2); /* with a gradient, and without */
    expect_graphs((JoinedProgram){OF_INPUT, BACKWARD, FREES_INPUT}, "fofo", 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_combination, open_scope, close_scope_without_tensors),
        cmocka_unit_test_setup_teardown(are_graphs, open_scope, close_scope_without_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
