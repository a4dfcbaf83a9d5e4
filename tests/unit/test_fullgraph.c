/* What an entry under fullgraph holds for besides its inputs' layouts. The function does not run
 * again, so whatever it saw is a guard: who requires a gradient and who has one, the modules and FX
 * graphs. Each call is compared with the function run eagerly. */
#include "fullgraph_support.h"

static cb_tensor *w[2], *given;
static cb_module *net;

/* ---- gradients ------------------------------------------------------------------------------- */

static cb_tensor *step(cb_tensor *x) {
    cb_tensor *loss = cb_sum(cb_mul(cb_mul(x, w[0]), w[1]));
    cb_backward(loss, NULL);
    return loss;
}

/* The gradients' first elements, 0 where there is none, which are let go. */
static void take(double *out) {
    for (int i = 0; i < 2; i++) {
        cb_tensor *g = cb_tensor_grad(w[i]);
        out[i] = g ? first_of(g) : 0;
        cb_zero_grad(w[i]);
    }
}

/* Which tensors are frozen changes from step to step; bit i: w[i] is not. */
static void frozen_tensors_are_a_guard(void **state) {
    (void)state;
    static const int order[] = {2, 3, 1, 3, 2, 1, 3}, graphs[] = {1, 2, 3, 3, 3, 3, 3};
    cb_scope_open();
    cb_tensor *x = cb_full(cb_dims(3), 2.0);
    for (int i = 0; i < 2; i++) w[i] = cb_full(cb_dims(3), 3.0 + 2 * i);
    cb_function *fast = cb_compile(step, FULL);
    for (int call = 0; call < 7; call++) {
        double got[2], expected[2];
        for (int i = 0; i < 2; i++) cb_requires_grad_(w[i], order[call] >> i & 1);
        expect_call(fast, step, x, graphs[call]); /* runs it eagerly, too: gradients add up */
        take(got);
        step(x);
        take(expected);
        for (int i = 0; i < 2; i++) assert_float_equal(got[i], 2 * expected[i], 1e-6);
    }
    expect_told(fast, "captured %1 requires a gradient now, or does not any more");
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

static cb_tensor *product(cb_tensor *x) { return cb_sum(cb_mul(x, w[0])); }

/* A result with a history is an error where it is to be one of the tape, whatever was compiled
 * where gradients are off. */
static void grad_mode_is_a_guard(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = cb_full(cb_dims(3), 2.0);
    w[0] = cb_requires_grad_(cb_full(cb_dims(3), 3.0), true);
    cb_function *fast = cb_compile(product, FULL ", backward=tape");
    for (int round = 0; round < 3; round++) {
        cb_no_grad_open();
        expect_call(fast, product, x, 1);
        cb_no_grad_close();
        assert_null(cb_call(fast, x));
        assert_non_null(strstr(cb_error(), "fullgraph: gradients are recorded"));
        cb_clear_error();
    }
    cb_requires_grad_(w[0], false); /* what was an error before is none any more */
    cb_tensor *leaf = cb_requires_grad_(cb_full(cb_dims(3), 2.0), true);
    expect_call(fast, product, x, 1);
    assert_true(cb_requires_grad(leaf));
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

/* A tensor that is a leaf again is so by another gradient: of the same entry. */
static void gradients_go_to_the_leaf_that_there_is(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = cb_full(cb_dims(3), 2.0);
    for (int i = 0; i < 2; i++) w[i] = cb_requires_grad_(cb_full(cb_dims(3), 3.0 + 2 * i), true);
    cb_function *fast = cb_compile(step, FULL);
    for (int round = 0; round < 4; round++) {
        assert_non_null(cb_call(fast, x));
        assert_int_equal(cb_stats(fast).graphs, 1);
        double got[2];
        take(got);
        assert_float_equal(got[0], 10, 1e-6);
        assert_float_equal(got[1], 6, 1e-6);
        cb_requires_grad_(w[1], false);
        cb_requires_grad_(w[1], true);
    }
    cb_free(w[0]); /* the entry has its own hold on it */
    assert_non_null(cb_call(fast, x));
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

static cb_tensor *asks_the_input(cb_tensor *x) {
    return cb_mul(cb_detach(x), cb_requires_grad(x) ? 10.0 : 1.0);
}

static cb_tensor *asks_what_it_found(cb_tensor *x) {
    return cb_mul(x, cb_requires_grad(given) ? 10.0 : 1.0);
}

static cb_tensor *looks_for_a_gradient(cb_tensor *x) {
    cb_tensor *g = cb_tensor_grad(given);
    return g ? cb_add(x, g) : cb_mul(x, 3.0);
}

/* Whatever the answer is, the ops are the same. */
static cb_tensor *asks_for_nothing(cb_tensor *x) {
    cb_requires_grad(given);
    return cb_mul(x, 2.0);
}

/* A result of ops outside requires a gradient for ever: that may be asked with gradients on. */
static void answers_that_change_nothing(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = given = cb_full(cb_dims(3), 2.0);
    cb_function *fast = cb_compile(asks_for_nothing, FULL);
    for (int call = 0; call < 6; call++) {
        cb_requires_grad_(given, call % 2);
        cb_no_grad_open();
        expect_call(fast, asks_for_nothing, cb_full(cb_dims(3), 4.0), call ? 2 : 1);
        cb_no_grad_close();
    }
    given = cb_mul(x, 3.0);
    cb_function *result = cb_compile(asks_what_it_found, FULL);
    for (int call = 0; call < 2; call++)
        expect_call(result, asks_what_it_found, cb_full(cb_dims(3), 4.0), 1);
    cb_function_free(fast);
    cb_function_free(result);
    cb_scope_close();
    assert_null(cb_error());
}

/* One whose gradient was read and that is a leaf no more has none: where gradients are off, too. */
static void leaves_that_end(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = cb_full(cb_dims(3), 2.0);
    given = cb_requires_grad_(cb_full(cb_dims(3), 3.0), true);
    cb_backward(cb_sum(given), NULL);
    cb_no_grad_open();
    cb_function *fast = cb_compile(looks_for_a_gradient, FULL);
    for (int i = 0; i < 2; i++) expect_call(fast, looks_for_a_gradient, x, 1);
    cb_requires_grad_(given, false);
    expect_call(fast, looks_for_a_gradient, x, 2);
    cb_no_grad_close();
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

static cb_tensor *gives_the_gradient(cb_tensor *x) {
    cb_backward(cb_sum(cb_mul(w[0], x)), NULL);
    return cb_tensor_grad(w[0]);
}

/* One tensor, which the leaf frees, however it was computed. */
static void gradients_that_are_returned(void **state) {
    (void)state;
    cb_scope_open();
    w[0] = cb_requires_grad_(cb_full(cb_dims(3), 3.0), true);
    cb_tensor *x = cb_full(cb_dims(3), 2.0);
    for (int mode = 0; mode < 3; mode++) {
        cb_function *fast = cb_compile(gives_the_gradient, mode == 2 ? FULL : VM);
        for (int call = 0; call < 3; call++) {
            cb_scope_open();
            cb_tensor *y = mode ? cb_call(fast, x) : gives_the_gradient(x);
            assert_ptr_equal(y, cb_tensor_grad(w[0]));
            cb_scope_close();
            assert_true(first_of(y) == 2);
            cb_zero_grad(w[0]);
            assert_int_equal(cb_rank(y), -1);
            assert_non_null(strstr(cb_error(), "the tensor is gone"));
            cb_clear_error();
        }
        cb_function_free(fast);
    }
    cb_scope_close();
}

static int way;

/* Where gradients go back, and which tensor is a leaf no more: one that is found, or an input. */
static cb_tensor *ends_a_leaf(cb_tensor *x) {
    cb_tensor *leaf = way & 4 ? x : w[0], *loss = cb_sum(cb_mul(w[0], x)), *g = NULL;
    if (way & 1) cb_backward(loss, NULL);
    if (way & 2) g = cb_mul(cb_tensor_grad(w[0]), 2.0);
    if (!cb_requires_grad_(leaf, false)) return NULL;
    assert_false(cb_requires_grad(leaf));
    assert_null(cb_tensor_grad(leaf));
    if (!(way & 1)) cb_backward(loss, NULL);
    return g ? g : cb_add(cb_detach(loss), cb_sum(cb_detach(cb_mul(leaf, 3.0))));
}

/* In every mode as in eager: one that is compiled runs op by op from there. Without the function
 * nobody would end the leaf, so that is refused. */
static void leaves_that_end_inside(void **state) {
    (void)state;
    for (way = 0; way < 8; way++) {
        if ((way & 3) == 2) continue; /* no gradient to read yet */
        cb_scope_open();
        cb_function *fast = cb_compile(ends_a_leaf, VM), *full = cb_compile(ends_a_leaf, FULL);
        for (int call = 0; call < 5; call++) {
            double got[2];
            for (int compiled = 0; compiled < 2; compiled++) {
                cb_tensor *x = cb_requires_grad_(cb_full(cb_dims(3), 5.0 + call), call != 2);
                w[0] = cb_requires_grad_(cb_full(cb_dims(3), 2.0), true);
                cb_tensor *y = compiled ? cb_call(fast, x) : ends_a_leaf(x);
                if (!y) fail_msg("way %d: %s", way, cb_error());
                assert_int_equal(cb_requires_grad(w[0]), way >> 2);
                assert_int_equal(cb_requires_grad(x), !(way & 4) && call != 2);
                cb_tensor *other = cb_tensor_grad(way & 4 ? w[0] : x);
                got[compiled] = first_of(y) + (other ? 100 * first_of(other) : 0);
            }
            assert_float_equal(got[1], got[0], 1e-6);
        }
        w[0] = cb_requires_grad_(cb_full(cb_dims(3), 2.0), true);
        cb_tensor *x = cb_requires_grad_(cb_full(cb_dims(3), 5.0), true);
        assert_null(cb_call(full, x));
        assert_non_null(strstr(cb_error(), "does not any more"));
        cb_clear_error();
        assert_true(cb_requires_grad(w[0]) && cb_requires_grad(x));
        cb_function_free(fast);
        cb_function_free(full);
        cb_scope_close();
    }
    assert_null(cb_error());
}

static cb_tensor *frees_it_of_gradients(cb_tensor *x) {
    return cb_requires_grad_(given, false) ? cb_mul(x, 2.0) : NULL;
}

/* To end none is nothing, but for a leaf that comes later. */
static void what_ends_none_is_a_guard(void **state) {
    (void)state;
    cb_scope_open();
    given = cb_full(cb_dims(3), 2.0);
    cb_tensor *x = cb_full(cb_dims(3), 2.0);
    cb_function *fast = cb_compile(frees_it_of_gradients, FULL);
    for (int call = 0; call < 2; call++) expect_call(fast, frees_it_of_gradients, x, 1);
    cb_requires_grad_(given, true);
    assert_null(cb_call(fast, x));
    assert_non_null(strstr(cb_error(), "does not any more"));
    cb_clear_error();
    cb_function_free(fast);
    cb_scope_close();
}

static cb_tensor *asks_results(cb_tensor *x) {
    cb_tensor *y = cb_mul(w[0], x);
    assert_ptr_equal(cb_requires_grad_(y, true), y);
    return cb_requires_grad_(y, false) ? x : NULL;
}

/* A result of the function is none that could be ended, as in eager. */
static void results_are_no_leaves(void **state) {
    (void)state;
    cb_scope_open();
    w[0] = cb_requires_grad_(cb_full(cb_dims(3), 2.0), true);
    cb_tensor *x = cb_full(cb_dims(3), 2.0);
    for (int mode = 0; mode < 3; mode++) {
        cb_function *fast = cb_compile(asks_results, mode == 2 ? FULL : VM);
        assert_null(mode ? cb_call(fast, x) : asks_results(x));
        assert_non_null(strstr(cb_error(), "the tensor is the result of"));
        cb_clear_error();
        cb_function_free(fast);
    }
    cb_scope_close();
}

static int sum_of_any(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)user;
    for (out[0] = x[0]; --count;) out[0] = cb_add(out[0], x[count]);
    return 1;
}

/* So that what lies beyond the inputs of a call is nobody's address. */
static __attribute__((noinline)) void overwrite_stack(void) {
    char bytes[1 << 17];
    memset(bytes, 0x41, sizeof bytes);
    __asm__ volatile("" : : "r"(bytes) : "memory");
}

static void fewer_inputs(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile_n(sum_of_any, NULL, FULL);
    cb_tensor *x[4], *y;
    for (int i = 0; i < 4; i++) x[i] = cb_full(cb_dims(3), 1.0);
    for (int count = 4; count; count--) {
        overwrite_stack();
        assert_int_equal(cb_call_n(fast, x, count, &y, 1), 1);
        assert_true(first_of(y) == count);
    }
    assert_int_equal(cb_stats(fast).graphs, 4);
    expect_told(fast, "another number of inputs, 3: entry 0 has 4");
    cb_function_free(fast);
    cb_scope_close();
}

static void what_was_asked_is_a_guard(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = given = cb_full(cb_dims(3), 2.0);
    cb_function *input = cb_compile(asks_the_input, FULL);
    cb_function *found = cb_compile(asks_what_it_found, FULL);
    cb_function *gradient = cb_compile(looks_for_a_gradient, FULL);
    for (int call = 0; call < 6; call++) {
        int graphs = call ? 2 : 1;
        cb_requires_grad_(x, call % 2);
        cb_no_grad_open();
        expect_call(input, asks_the_input, x, graphs);
        cb_tensor *other = cb_full(cb_dims(3), 4.0);
        expect_call(found, asks_what_it_found, other, graphs);
        expect_call(gradient, looks_for_a_gradient, other, graphs > 1 && call > 2 ? 3 : graphs);
        cb_no_grad_close();
        if (call % 2 && call > 1) cb_zero_grad(x);
        if (call == 1) cb_requires_grad_(x, false);
        if (call == 2) {
            cb_requires_grad_(x, true);
            cb_backward(cb_sum(cb_mul(x, 5.0)), NULL);
        }
    }
    cb_function_free(input);
    cb_function_free(found);
    cb_function_free(gradient);
    cb_scope_close();
    assert_null(cb_error());
}

/* ---- modules --------------------------------------------------------------------------------- */

static cb_tensor *counts_parameters(cb_tensor *x) {
    return cb_add(x, (double)cb_module_parameters(net, NULL, 0));
}

static cb_tensor *counts_children(cb_tensor *x) {
    return cb_add(x, (double)cb_module_child_count(net));
}

static cb_tensor *asks_for_a_leaf(cb_tensor *x) {
    return cb_add(x, cb_module_is_leaf(net) ? 1.0 : 2.0);
}

static cb_tensor *gets_a_parameter(cb_tensor *x) { return cb_add(x, cb_module_get(net, "bias")); }

static cb_tensor *asks_a_child(cb_tensor *x) {
    const char *name = "";
    cb_module *child = cb_module_child_at(net, 0, &name);
    return cb_add(x, child ? (double)strlen(name) : 0.0);
}

static void add_parameter(const char *name, cb_tensor *tensor, bool buffer, void *user) {
    (void)name;
    (void)buffer;
    cb_tensor **sum = user;
    *sum = cb_add(*sum, cb_sum(tensor));
}

static cb_tensor *visits(cb_tensor *x) {
    cb_module_visit(net, add_parameter, &x);
    return x;
}

static void what_modules_were_asked_is_a_guard(void **state) {
    (void)state;
    cb_function_1 *functions[] = {counts_parameters, counts_children, gets_a_parameter,
                                  asks_a_child,      visits,          asks_for_a_leaf};
    for (int i = 0; i < 6; i++) {
        cb_scope_open();
        net = cb_nn_linear(2, 2);
        cb_function *fast = cb_compile(functions[i], FULL);
        cb_tensor *x = cb_ones(cb_dims(2));
        cb_no_grad_open();
        for (int call = 0; call < 2; call++) expect_call(fast, functions[i], x, 1);
        cb_module_parameter(net, "bias", cb_full(cb_dims(2), 7.0));
        cb_module_parameter(net, "more", cb_full(cb_dims(2), 9.0));
        cb_module_add(net, "child", cb_nn_relu());
        cb_module_set_leaf(net, !cb_module_is_leaf(net));
        for (int call = 0; call < 2; call++) expect_call(fast, functions[i], x, 2);
        cb_no_grad_close();
        expect_told(fast, "a module holds other parameters or settings");
        cb_function_free(fast);
        cb_module_free(net);
        cb_scope_close();
    }
    assert_null(cb_error());
}

/* ---- FX graphs ------------------------------------------------------------------------------- */

static cb_graph *graph;

static cb_tensor *runs_a_graph(cb_tensor *x) {
    cb_tensor *y = NULL;
    for (int i = 0; i < 2; i++)
        if (cb_graph_run(graph, &x, 1, &y, 1) == 1) x = y;
    return cb_neg(x);
}

/* The edits one after the other; false: that was the last one. */
static bool edit(int number, cb_node *x, cb_node *node) {
    cb_arg ten = cb_arg_float(10), pair[] = {cb_arg_node(node), cb_arg_float(3)};
    switch (number) {
    case 0:
        return cb_node_set_target(node, "operator.add") == CB_OK;
    case 1:
        return cb_node_set_arg(node, 1, ten) == CB_OK;
    case 2:
        return cb_graph_output(graph, cb_arg_node(cb_graph_insert_after(
                                          graph, node, CB_CALL_FUNCTION, "operator.mul", pair, 2)));
    case 3:
        return cb_graph_output(graph, cb_arg_node(node)) && cb_graph_dead_code(graph) == 1;
    case 4:
        return cb_node_replace_all_uses(node, x) == 1 && cb_graph_erase(graph, node) == CB_OK;
    default:
        return false;
    }
}

static void edits_of_a_graph_are_seen(void **state) {
    (void)state;
    cb_scope_open();
    graph = cb_graph_new(NULL);
    cb_node *x = cb_graph_placeholder(graph, "x");
    cb_arg pair[] = {cb_arg_node(x), cb_arg_float(2)};
    cb_node *node = cb_graph_call_function(graph, "operator.mul", pair, 2);
    cb_graph_output(graph, cb_arg_node(node));
    cb_function *whole = cb_compile(graph, FULL), *inside = cb_compile(runs_a_graph, FULL);
    cb_tensor *t = cb_full(cb_dims(3), 4.0);
    int edits = 0;
    do {
        for (int call = 0; call < 2; call++) {
            cb_tensor *y = NULL, *got = cb_call(whole, t);
            assert_int_equal(cb_graph_run(graph, &t, 1, &y, 1), 1);
            assert_float_equal(first_of(got), first_of(y), 0);
            assert_int_equal(cb_stats(whole).graphs, edits + 1);
            expect_call(inside, runs_a_graph, t, edits + 1);
        }
    } while (edit(edits, x, node) && ++edits);
    assert_int_equal(edits, 5);
    expect_told(whole, "or a graph was edited (the FX graph was edited");
    cb_graph_free(graph);
    for (int i = 0; i < 80; i++) cb_graph_free(cb_graph_new(NULL)); /* its tomb is not asked */
    assert_null(cb_call(whole, t));
    assert_non_null(strstr(cb_error(), "was freed at"));
    cb_clear_error();
    cb_function_free(whole);
    cb_function_free(inside);
    cb_scope_close();
}

/* An index is out of range in the fourth call: behind the gradient and a write, or before. */
static cb_tensor *steps_and_looks(cb_tensor *x, cb_tensor *index) {
    cb_backward(cb_sum(cb_mul(w[0], x)), NULL);
    cb_add_(w[1], 1.0);
    return cb_index_select(x, 0, index);
}

static cb_tensor *looks_and_steps(cb_tensor *x, cb_tensor *index) {
    cb_tensor *found = cb_index_select(x, 0, index);
    cb_backward(cb_sum(cb_mul(w[0], found)), NULL);
    return found;
}

static cb_tensor *forgets_looks_and_steps(cb_tensor *x, cb_tensor *index) {
    cb_zero_grad(w[0]);
    return looks_and_steps(x, index);
}

static void expect_gradient(double wanted) {
    cb_tensor *gradient = cb_tensor_grad(w[0]);
    assert_non_null(gradient);
    assert_true(first_of(gradient) == wanted);
}

static cb_tensor *call_with_index(cb_function *fast, int call) {
    int64_t place = call == 4 ? 9 : 2;
    cb_tensor *y =
        cb_call(fast, cb_full(cb_dims(3), (double)call), cb_from_data(&place, CB_I64, cb_dims(1)));
    assert_int_equal(y == NULL, call == 4);
    cb_clear_error();
    return y;
}

static void what_came_before_a_failure_is_done(void **state) {
    (void)state;
    static const char *const options[] = {FULL, "fullgraph=1,backend=eager"};
    for (int i = 0; i < 2; i++) {
        cb_scope_open();
        w[0] = cb_requires_grad_(cb_ones(3), true), w[1] = cb_zeros(1);
        cb_function *fast = cb_compile(steps_and_looks, options[i]);
        for (int call = 1; call < 6; call++) {
            cb_zero_grad(w[0]);
            call_with_index(fast, call);
            expect_gradient(call);
            assert_true(first_of(w[1]) == call);
        }
        cb_function *late = cb_compile(looks_and_steps, options[i]);
        cb_zero_grad(w[0]);
        double sum = 0;
        for (int call = 1; call < 6; call++) {
            call_with_index(late, call);
            sum += call == 4 ? 0 : call;
            expect_gradient(sum);
        }
        cb_function_free(late);
        cb_function *anew = cb_compile(forgets_looks_and_steps, options[i]);
        for (int call = 1; call < 6; call++) {
            call_with_index(anew, call);
            if (call == 4)
                assert_null(cb_tensor_grad(w[0])); /* it was let go before */
            else
                expect_gradient(call);
        }
        cb_function_free(anew);
        cb_function_free(fast);
        cb_scope_close();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_tensors_are_a_guard),
        cmocka_unit_test(leaves_that_end),
        cmocka_unit_test(gradients_that_are_returned),
        cmocka_unit_test(leaves_that_end_inside),
        cmocka_unit_test(what_ends_none_is_a_guard),
        cmocka_unit_test(results_are_no_leaves),
        cmocka_unit_test(fewer_inputs),
        cmocka_unit_test(grad_mode_is_a_guard),
        cmocka_unit_test(gradients_go_to_the_leaf_that_there_is),
        cmocka_unit_test(answers_that_change_nothing),
        cmocka_unit_test(what_was_asked_is_a_guard),
        cmocka_unit_test(what_modules_were_asked_is_a_guard),
        cmocka_unit_test(edits_of_a_graph_are_seen),
        cmocka_unit_test(what_came_before_a_failure_is_done),
    };
    return run_counted(tests);
}
