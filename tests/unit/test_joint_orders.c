/* Gradients of gradients over calls of compiled functions: those of eager, of any order. */
#include "elements.h"
#include "fixture.h"
#include "joint_programs.h"

#include <pthread.h>

#define VM "backend=vm"
#define ORDERS VM ", backward=orders"
#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

static cb_tensor *square_sum(cb_tensor *x) { return cb_sum(cb_mul(x, x)); }

static cb_tensor *gradient(cb_tensor *y, cb_tensor *by) {
    cb_tensor *g = NULL;
    assert_int_equal(cb_grad_graph(y, NULL, &by, 1, &g), CB_OK);
    assert_non_null(g);
    return g;
}

/* What is left in w by the third order, in v by the second. */
typedef struct OrdersOutcome {
    cb_tensor *g[4];
} OrdersOutcome;

static OrdersOutcome go_far(cb_function *fast, cb_function_1 *plain, cb_tensor *x) {
    OrdersOutcome outcome;
    cb_zero_grad(w), cb_zero_grad(v);
    cb_manual_seed(11);
    cb_tensor *y = fast ? cb_call(fast, x) : plain(x);
    cb_tensor *first = gradient(square_sum(y), w), *second = first;
    if (cb_requires_grad(first)) second = gradient(square_sum(first), w);
    cb_tensor *penalty = cb_add(square_sum(second), cb_sum(first));
    if (cb_requires_grad(penalty)) assert_int_equal(cb_backward(penalty, NULL), CB_OK);
    outcome.g[0] = first, outcome.g[1] = second;
    outcome.g[2] = cb_tensor_grad(w) ? cb_clone(cb_tensor_grad(w)) : NULL;
    outcome.g[3] = cb_tensor_grad(v) ? cb_clone(cb_tensor_grad(v)) : NULL;
    return outcome;
}

static void orders_as_eager(void **state) {
    (void)state;
    static const char *const options[] = {VM, VM ", fullgraph=1", ORDERS ", dynamic=1"};
    begin();
    for (int k = 0; k < PROGRAMS; k++)
        for (int o = 0; o < 3; o++) {
            bool keeps = o == 1 && programs[k] == trains_a_norm; /* its own tensors */
            cb_function *fast = cb_compile(programs[k], options[o]);
            for (int call = 0; call < 2 && !keeps; call++) {
                cb_scope_open();
                cb_tensor *x = cb_mul(cb_randn(cb_dims(4, 4)), 0.5);
                OrdersOutcome wanted = go_far(NULL, programs[k], x);
                OrdersOutcome got = go_far(fast, programs[k], x);
                for (int i = 0; i < 4; i++) {
                    assert_true(!wanted.g[i] == !got.g[i]);
                    if (wanted.g[i]) expect_tensor(got.g[i], wanted.g[i], 1e-4, 1e-4);
                }
                cb_scope_close();
            }
            assert_int_equal(cb_stats(fast).eager_calls, 0);
            cb_function_free(fast);
        }
}

/* Of results of one call by another, and over two functions, with an op of eager between. */
static cb_tensor *first_half(cb_tensor *x) { return cb_tanh(cb_matmul(x, w)); }
static cb_tensor *second_half(cb_tensor *h) { return cb_exp(cb_mul(cb_matmul(h, v), 0.3)); }

static void products_with_vectors(void **state) {
    (void)state;
    begin();
    cb_function *a = cb_compile(first_half, VM), *b = cb_compile(second_half, VM);
    cb_tensor *x = leaf(cb_randn(cb_dims(3, 4))), *by = cb_randn(cb_dims(4, 4)), *of[2][2];
    for (int compiled = 0; compiled < 2; compiled++) {
        cb_tensor *h = cb_sin(compiled ? cb_call(a, x) : first_half(x));
        cb_tensor *y = compiled ? cb_call(b, h) : second_half(h), *g = gradient(cb_sum(y), w);
        assert_int_equal(cb_grad(cb_sum(cb_mul(g, by)), NULL, &v, 1, &of[compiled][0]), CB_OK);
        assert_int_equal(cb_jvp(y, &w, &by, 1, &of[compiled][1]), CB_OK);
    }
    for (int k = 0; k < 2; k++) expect_tensor(of[1][k], of[0][k], 1e-5, 1e-5);
    cb_function_free(a);
    cb_function_free(b);
}

/* ---- a gradient penalty ---------------------------------------------------------------------- */

/* As of WGAN-GP (Gulrajani and others, 2017), with a norm whose statistics move, and a count. */
static cb_tensor *mean, *var, *calls, *rounds;

static cb_tensor *critic(cb_tensor *x) {
    cb_tensor *h = cb_batch_norm(cb_matmul(x, w), mean, var, NULL, NULL, true);
    cb_no_grad_open();
    cb_add_(calls, 1);
    cb_add_(rounds, 1);
    cb_add_(mean, cb_rand(cb_dims(4)));
    cb_no_grad_close();
    return cb_mean(
        cb_matmul(cb_leaky_relu(cb_dropout(h, 0.25, true), 0.2), cb_div(v, cb_clone(calls))), 1);
}

static void train_critic(cb_function *fast, cb_tensor *const *batch, cb_tensor **out) {
    mean = cb_zeros(cb_dims(4)), var = cb_ones(cb_dims(4)), calls = cb_zeros(CB_NO_DIMS);
    rounds = cb_zeros(CB_NO_DIMS);
    begin();
    for (int step = 0; step < 2; step++) {
        cb_tensor *mixed = leaf(batch[step]);
        cb_tensor *g = gradient(cb_sum(fast ? cb_call(fast, mixed) : critic(mixed)), mixed);
        cb_tensor *norm = cb_sqrt(cb_sum(cb_mul(g, g), 1));
        cb_tensor *penalty = cb_mean(cb_square(cb_sub(norm, 1)));
        cb_tensor *real = fast ? cb_call(fast, batch[step]) : critic(batch[step]);
        assert_int_equal(cb_backward(cb_sub(cb_mul(penalty, 10), cb_mean(real)), NULL), CB_OK);
        cb_no_grad_open();
        cb_tensor *parameter[] = {w, v};
        for (int i = 0; i < 2; i++) {
            cb_sub_(parameter[i], cb_mul(cb_tensor_grad(parameter[i]), 0.1));
            cb_zero_grad(parameter[i]);
        }
        cb_no_grad_close();
    }
    cb_tensor *kept[] = {cb_detach(w), cb_detach(v), mean, var, calls};
    for (int i = 0; i < 5; i++) out[i] = cb_clone(kept[i]);
}

static void gradient_penalty(void **state) {
    (void)state;
    cb_function *fast = cb_compile(critic, ORDERS);
    cb_tensor *batch[] = {cb_randn(cb_dims(5, 4)), cb_randn(cb_dims(5, 4))}, *of[2][5];
    train_critic(NULL, batch, of[0]);
    train_critic(fast, batch, of[1]);
    for (int i = 0; i < 5; i++) expect_tensor(of[1][i], of[0][i], 1e-5, 1e-5);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

/* What a call writes to it has as it was, each time, where eager refuses. */
static cb_tensor *moving;

static cb_tensor *written_between(cb_tensor *x) {
    cb_tensor *own = cb_mul(x, 2), *y = cb_mul(cb_mul(cb_exp(w), moving), own);
    cb_no_grad_open();
    cb_add_(moving, 1.0);
    cb_add_(own, moving);
    cb_no_grad_close();
    return cb_mul(y, cb_mul(cb_sin(v), own));
}

static cb_tensor *copied_between(cb_tensor *x) {
    cb_tensor *own = cb_mul(x, 2), *y = cb_mul(cb_mul(cb_exp(w), moving), own);
    return cb_mul(y, cb_mul(cb_sin(v), cb_add(own, cb_add(moving, 1.0))));
}

static void written_inside(void **state) {
    (void)state;
    begin();
    moving = cb_ones(CB_NO_DIMS);
    cb_function *fast = cb_compile(written_between, ORDERS);
    for (int call = 0; call < 2; call++) {
        cb_tensor *x = cb_randn(cb_dims(4, 4));
        cb_tensor *of[] = {cb_call(fast, x), cb_call(fast, x)}; /* the second one moves it, too */
        for (int k = 0; k < 4; k++) {
            cb_fill_(moving, 1 + 2 * call + k % 2);
            cb_tensor *wanted = gradient(cb_sum(gradient(square_sum(copied_between(x)), w)), v);
            cb_tensor *got = gradient(cb_sum(gradient(square_sum(of[k % 2]), w)), v);
            expect_tensor(got, wanted, 1e-4, 1e-4);
        }
        cb_fill_(moving, 3 + 2 * call);
    }
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

/* As they lay: r is a copy of what is transposed or expanded, as often as the ops run. */
static bool writes;

static cb_tensor *copied_by_reshape(cb_tensor *x) {
    cb_no_grad_open();
    cb_tensor *r = cb_reshape(x, 16);
    cb_add_(r, 5.0);
    cb_no_grad_close();
    cb_tensor *y = cb_mul(cb_mul(cb_exp(w), x), cb_reshape(r, cb_dims(4, 4)));
    cb_no_grad_open();
    if (writes) cb_add_(cb_select(x, 1, 0), 1.0);
    cb_no_grad_close();
    return y;
}

static cb_tensor *lies(int how) {
    if (how == 0) return cb_randn(cb_dims(4, 4));
    if (how == 1) return cb_transpose(cb_randn(cb_dims(4, 4)), 0, 1);
    if (how == 2) return cb_slice(cb_randn(cb_dims(4, 9)), 1, 1, 9, 2);
    return cb_transpose(cb_expand(cb_randn(cb_dims(4, 1)), cb_dims(4, 4)), 0, 1);
}

static void written_as_it_lies(void **state) {
    (void)state;
    begin();
    for (int how = 0; how < 4; how++) {
        cb_function *fast = cb_compile(copied_by_reshape, ORDERS);
        for (int call = 0; call < 2; call++) {
            writes = how < 3; /* no element may be written to twice */
            cb_tensor *x = lies(how), *own = cb_clone(x), *y = cb_call(fast, x);
            cb_tensor *got = gradient(square_sum(gradient(square_sum(y), w)), w);
            if (how) own = cb_transpose(cb_clone(cb_transpose(own, 0, 1)), 0, 1);
            writes = false;
            y = copied_by_reshape(own);
            cb_tensor *wanted = gradient(square_sum(gradient(square_sum(y), w)), w);
            expect_tensor(got, wanted, 1e-3, 1e-4);
        }
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
}

/* ---- what a call holds ----------------------------------------------------------------------- */

static cb_tensor *shifts(cb_tensor *x) { return cb_add(cb_mul(x, 2.0), cb_select(w, 0, 0)); }

/* What gradients read, and no more, until somebody wants gradients of gradients. */
static void holds_what_is_read(void **state) {
    (void)state;
    begin();
    cb_function *fast[] = {cb_compile(shifts, VM), cb_compile(shifts, ORDERS)};
    cb_tensor *g, *y = NULL;
    for (int k = 0; k < 2; k++)
        for (int asked = k; asked < 2; asked++) {
            int64_t bytes[2], layers = 8;
            for (int i = 0; i < 2; i++) { /* the first call makes kernels */
                y = cb_randn(cb_dims(64, 4));
                bytes[0] = cb_memory().live_bytes;
                for (int layer = 0; layer < layers; layer++) {
                    cb_tensor *x = y;
                    y = cb_call(fast[k], x);
                    cb_free(x);
                }
                bytes[1] = cb_memory().live_bytes;
                if (i == 0) assert_int_equal(cb_backward(cb_sum(y), NULL), CB_OK);
            }
            assert_int_equal(bytes[1] - bytes[0], asked ? layers * 1024 : 0);
            if (asked) {
                assert_int_equal(cb_grad_graph(cb_sum(y), NULL, &w, 1, &g), CB_OK);
                char *text = cb_explain(fast[k]);
                assert_non_null(strstr(text, "gone over op by op: 7 times"));
                cb_free_text(text);
            } else
                REFUSES(cb_grad_graph(cb_sum(y), NULL, &w, 1, &g), CB_ERR_ARGUMENT,
                        "f32[64, 4] that they read is not there any more: from its next call on");
        }
    for (int k = 0; k < 2; k++) cb_function_free(fast[k]);
}

static cb_tensor *moves(cb_tensor *x) { return cb_add(cb_mul(x, moving), cb_select(w, 0, 0)); }

/* From where it lies, as long as it does. */
static void *asks_elsewhere(void *y) {
    cb_tensor *g;
    cb_scope_open();
    REFUSES(cb_grad_graph(y, NULL, &w, 1, &g), CB_ERR_ARGUMENT, "is not there any more");
    cb_scope_close();
    return NULL;
}

static void found_where_it_lies(void **state) {
    (void)state;
    begin();
    pthread_t thread;
    cb_function *fast = cb_compile(shifts, VM);
    cb_tensor *x = cb_randn(cb_dims(4, 4)), *g, *y = cb_sum(cb_call(fast, x));
    assert_int_equal(pthread_create(&thread, NULL, asks_elsewhere, y), 0);
    pthread_join(thread, NULL);
    cb_function_free(fast);
    fast = cb_compile(shifts, VM);
    y = cb_sum(cb_call(fast, x));
    assert_int_equal(cb_grad_graph(y, NULL, &w, 1, &g), CB_OK);
    cb_function_free(fast);
    moving = cb_ones(CB_NO_DIMS);
    fast = cb_compile(moves, VM);
    for (int call = 0; call < 2; call++) y = cb_sum(cb_call(fast, x));
    cb_free(moving);
    REFUSES(cb_grad_graph(y, NULL, &w, 1, &g), CB_ERR_ARGUMENT, "f32[] that they read is not");
    cb_function_free(fast);
}

static void written_by_the_call(void **state) {
    (void)state;
    begin();
    moving = cb_ones(CB_NO_DIMS);
    cb_function *fast = cb_compile(written_between, VM);
    cb_tensor *g, *x = cb_randn(cb_dims(4, 4));
    cb_tensor *first = cb_sum(cb_call(fast, x)), *second = cb_sum(cb_call(fast, x));
    assert_int_equal(cb_grad(second, NULL, &w, 1, &g), CB_OK);
    REFUSES(cb_grad_graph(second, NULL, &w, 1, &g), CB_ERR_ARGUMENT,
            "f32[] that they read was written to by the call: from its next call on");
    assert_int_equal(cb_grad_graph(first, NULL, &w, 1, &g), CB_OK); /* which has copies */
    assert_int_equal(cb_grad_graph(cb_sum(cb_call(fast, x)), NULL, &w, 1, &g), CB_OK);
    cb_function_free(fast);
}

/* Gradients that the function takes itself, of which it gives some. */
static cb_tensor *other; /* a leaf, on which the result does not depend */

static cb_tensor *penalizes(cb_tensor *x) {
    cb_tensor *g = gradient(square_sum(cb_mul(x, cb_tanh(cb_matmul(w, v)))), w);
    cb_tensor *of_other = gradient(cb_add(cb_sum(cb_mul(other, x)), cb_sum(w)), other);
    return cb_mul(cb_square(g), cb_mul(v, of_other));
}

static cb_tensor *by_its_other_name(cb_tensor *x) {
    return cb_square(gradient(square_sum(cb_mul(cb_exp(w), v)), x));
}

static void of_two_names(void **state) {
    (void)state;
    begin();
    cb_function *fast = cb_compile(by_its_other_name, VM ", fullgraph=1");
    OrdersOutcome wanted = go_far(NULL, by_its_other_name, w);
    OrdersOutcome got = go_far(fast, by_its_other_name, w);
    for (int i = 0; i < 4; i++) expect_tensor(got.g[i], wanted.g[i], 1e-2, 1e-4);
    cb_function_free(fast);
}

static void gradients_inside(void **state) {
    (void)state;
    begin();
    other = leaf(cb_randn(cb_dims(4, 4)));
    cb_function *fast = cb_compile(penalizes, VM);
    for (int call = 0; call < 2; call++) {
        cb_tensor *x = cb_randn(cb_dims(4, 4));
        OrdersOutcome wanted = go_far(NULL, penalizes, x), got = go_far(fast, penalizes, x);
        for (int i = 0; i < 4; i++) expect_tensor(got.g[i], wanted.g[i], 1e-2, 1e-4);
    }
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

/* ---- what the ops need, to run once more ----------------------------------------------------- */

static cb_tensor *shifted(cb_tensor *x) { return cb_mul(cb_exp(w), cb_add(x, v)); }

/* Of x nothing is read by the first gradients. */
static void written_since(void **state) {
    (void)state;
    begin();
    cb_function *fast = cb_compile(shifted, VM);
    cb_tensor *g, *x = cb_randn(cb_dims(4, 4)), *y = cb_call(fast, x);
    assert_int_equal(cb_grad_graph(cb_sum(y), NULL, &v, 1, &g), CB_OK);
    cb_add_(x, 1);
    REFUSES(cb_grad_graph(cb_sum(y), NULL, &w, 1, &g), CB_ERR_ARGUMENT,
            "grad: f32[4, 4] that the function compiled at");
    REFUSES(cb_jvp(y, &w, &v, 1, &g), CB_ERR_ARGUMENT, "jvp: f32[4, 4] that the function");
    cb_function_free(fast);
}

/* A second run would have them twice. */
static int kernels;

static cb_status count_run(const cb_op_call *call) {
    const float *x = call->input[call->input_count - 1].data;
    float *y = call->output[0].data;
    for (int i = 0; i < 16; i++) y[i] = 2 * x[i];
    kernels++;
    return CB_OK;
}

static cb_tensor *counted_twice(cb_tensor *x) {
    return cb_mul(
        cb_call_op("joint.counted", (cb_tensor *[]){cb_mul(x, w)}, 1, CB_NO_DIMS, cb_floats()), v);
}

static void effects_come_once(void **state) {
    (void)state;
    const cb_custom_op ops[] = {
        {.name = "joint.twice", .inputs = 2, .outputs = 1, .kernel = count_run},
        {.name = "joint.counted",
         .inputs = 1,
         .outputs = 1,
         .effects = true,
         .kernel = count_run,
         .gradient = "joint.twice"}};
    for (int i = 0; i < 2; i++) assert_int_equal(cb_register_op(&ops[i]), CB_OK);
    begin();
    cb_function *fast = cb_compile(counted_twice, VM);
    cb_tensor *g, *y = cb_call(fast, cb_randn(cb_dims(4, 4)));
    kernels = 0;
    assert_int_equal(cb_grad(cb_sum(y), NULL, &w, 1, &g), CB_OK);
    assert_int_equal(kernels, 1);
    REFUSES(cb_grad_graph(cb_sum(y), NULL, &w, 1, &g), CB_ERR_ARGUMENT, "has effects");
    REFUSES(cb_jvp(y, &w, &v, 1, &g), CB_ERR_ARGUMENT, "jvp: it comes to the function compiled");
    assert_int_equal(kernels, 1);
    cb_function_free(fast);
}

/* What is not gone over stays as it is: the first function's call is not run again. */
static void what_leads_nowhere(void **state) {
    (void)state;
    begin();
    cb_function *a = cb_compile(first_half, VM), *b = cb_compile(second_half, VM);
    cb_tensor *x = cb_randn(cb_dims(4, 4)), *g, *y = cb_call(b, cb_call(a, x));
    cb_add_(x, 1);
    assert_int_equal(cb_grad_graph(cb_sum(y), NULL, &v, 1, &g), CB_OK);
    REFUSES(cb_grad_graph(cb_sum(y), NULL, &w, 1, &g), CB_ERR_ARGUMENT, "modified in place since");
    cb_function_free(a);
    cb_function_free(b);
}

/* A hook on a result: it sees what comes to that from outside, as for the first gradients. */
static cb_tensor *halves(cb_tensor *g, void *user) {
    (void)user;
    return cb_mul(g, 0.5);
}

static void hooked_results(void **state) {
    (void)state;
    begin();
    cb_function *fast = cb_compile(first_half, VM);
    cb_tensor *x = cb_randn(cb_dims(3, 4)), *of[2];
    for (int compiled = 0; compiled < 2; compiled++) {
        cb_tensor *y = compiled ? cb_call(fast, x) : first_half(x);
        assert_true(cb_register_hook(y, halves, NULL) > 0);
        cb_tensor *g = gradient(square_sum(y), w);
        assert_int_equal(cb_grad(cb_sum(g), NULL, &w, 1, &of[compiled]), CB_OK);
    }
    expect_tensor(of[1], of[0], 1e-5, 1e-5);
    cb_function_free(fast);
}

/* The call that is run again asks for gradients itself, and does so again in a checkpoint. */
static int asks_within(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = cb_mul(in[0], w);
    out[1] = gradient(square_sum(cb_sin(out[0])), w);
    return 2;
}

static int asks_behind(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    cb_tensor *of[2];
    if (user)
        assert_int_equal(cb_call_n(user, in, count, of, 2), 2);
    else
        asks_within(in, count, of, NULL);
    out[0] = cb_mul(gradient(square_sum(of[1]), w), v);
    return 1;
}

static void within_a_checkpoint(void **state) {
    (void)state;
    begin();
    cb_function *fast = cb_compile_n(asks_within, NULL, ORDERS);
    cb_tensor *x = cb_randn(cb_dims(4, 4)), *of[2];
    for (int compiled = 0; compiled < 2; compiled++) {
        cb_tensor *y = cb_checkpoint(asks_behind, compiled ? fast : NULL, &x, 1);
        assert_int_equal(cb_grad(square_sum(y), NULL, &w, 1, &of[compiled]), CB_OK);
    }
    expect_tensor(of[1], of[0], 1e-4, 1e-4);
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(orders_as_eager),     TEST(products_with_vectors), TEST(gradient_penalty),
        TEST(written_since),       TEST(effects_come_once),     TEST(what_leads_nowhere),
        TEST(hooked_results),      TEST(written_inside),        TEST(gradients_inside),
        TEST(of_two_names),        TEST(written_as_it_lies),    TEST(holds_what_is_read),
        TEST(found_where_it_lies), TEST(written_by_the_call),   TEST(within_a_checkpoint),
    };
    return cmocka_run_group_tests_name("joint_orders", tests, NULL, NULL);
}
