/* Compiled functions whose results are gone back from outside: the results and the gradients are
 * those of eager, and no call runs op by op. */
#include "elements.h"
#include "fixture.h"
#include "joint_programs.h"
#include "threads.h"

#define VM "backend=vm"
#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

/* ---- beside eager ---------------------------------------------------------------------------- */

typedef struct JointOutcome {
    cb_tensor *y, *of_w, *of_v;
} JointOutcome;

static JointOutcome run(cb_function *fast, cb_function_1 *plain, cb_tensor *x) {
    cb_zero_grad(w), cb_zero_grad(v);
    cb_manual_seed(11);
    cb_tensor *y = fast ? cb_call(fast, x) : plain(x);
    assert_non_null(y);
    assert_true(cb_requires_grad(y));
    cb_tensor *turned = cb_transpose(y, 0, 1), *by = cb_clone(cb_tanh(cb_detach(turned)));
    assert_int_equal(cb_backward(cb_sum(cb_mul(turned, by)), NULL), CB_OK);
    return (JointOutcome){cb_detach(y), cb_clone(cb_tensor_grad(w)), cb_clone(cb_tensor_grad(v))};
}

static void expect_as_eager(cb_function *fast, cb_function_1 *plain, cb_tensor *x) {
    JointOutcome wanted = run(NULL, plain, x), got = run(fast, plain, x);
    expect_tensor(got.y, wanted.y, 1e-5, 1e-5);
    expect_tensor(got.of_w, wanted.of_w, 1e-5, 1e-5);
    expect_tensor(got.of_v, wanted.of_v, 1e-5, 1e-5);
}

static void as_eager(void **state) {
    (void)state;
    static const char *const options[] = {VM, VM ", fullgraph=1", "", VM ", dynamic=1"};
    begin();
    for (int k = 0; k < PROGRAMS; k++)
        for (int o = 0; o < 4; o++) {
            bool keeps = o == 1 && programs[k] == trains_a_norm; /* its own tensors */
            cb_function *fast = cb_compile(programs[k], options[o]);
            for (int call = 0; call < 3 && !keeps; call++) {
                cb_scope_open();
                cb_tensor *x = cb_randn(cb_dims(4, 4));
                expect_as_eager(fast, programs[k], x);
                expect_as_eager(fast, programs[k], cb_t(x)); /* read as it lies, later, too */
                cb_scope_close();
            }
            assert_int_equal(cb_stats(fast).eager_calls, 0);
            assert_int_equal(cb_stats(fast).breaks, 0);
            cb_function_free(fast);
        }
}

/* A batch of another size, and a number that is another one. */
static double factor;
static cb_tensor *scaled(cb_tensor *x) {
    return cb_tanh(cb_mul(cb_matmul(x, w), cb_add(v, factor)));
}
static cb_tensor *widened(cb_tensor *x) {
    return cb_tanh(cb_matmul(cb_mul(x, factor), cb_add(w, v)));
}

static void sizes_and_numbers(void **state) {
    (void)state;
    begin();
    cb_function *numbers = cb_compile(scaled, VM), *sizes = cb_compile(widened, VM);
    for (int i = 0; i < 6; i++) {
        factor = 0.5 + i;
        expect_as_eager(numbers, scaled, cb_randn(cb_dims(4, 4)));
        expect_as_eager(sizes, widened, cb_randn(cb_dims(3 + i, 4)));
    }
    assert_int_equal(cb_stats(numbers).graphs, 2);
    assert_int_equal(cb_stats(numbers).eager_calls, 0);
    assert_int_equal(cb_stats(sizes).eager_calls, 0);
    cb_function_free(numbers);
    cb_function_free(sizes);
}

/* What the gradient reads is written to by the call itself: it has the elements as they were, where
 * eager refuses. */
static cb_tensor *moving;
static cb_tensor *by_a_tensor(cb_tensor *x) { return cb_add(cb_mul(cb_mul(w, moving), x), v); }
static cb_tensor *moves_a_tensor(cb_tensor *x) {
    cb_tensor *y = by_a_tensor(x);
    cb_no_grad_open();
    cb_add_(moving, 1.0);
    cb_no_grad_close();
    return y;
}

static void written_inputs(void **state) {
    (void)state;
    begin();
    cb_function *fast = cb_compile(moves_a_tensor, VM);
    moving = cb_ones(cb_dims(4, 4));
    for (int call = 0; call < 3; call++) {
        cb_tensor *x = cb_randn(cb_dims(4, 4));
        JointOutcome wanted = run(NULL, by_a_tensor, x);
        JointOutcome got = run(fast, moves_a_tensor, x);
        expect_tensor(got.of_w, wanted.of_w, 1e-5, 1e-5);
    }
    assert_true(cb_item(cb_amax(moving)) == 4);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

/* ---- several results ------------------------------------------------------------------------- */

static int two(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *h = cb_exp(cb_mul(in[0], w));
    out[0] = cb_mul(h, v);
    out[1] = cb_sum(h);
    return 2;
}

static void go_back(cb_tensor *y, double scale) {
    assert_int_equal(cb_backward(cb_mul(cb_sum(y), scale), NULL), CB_OK);
}

/* From one, from both at once, twice, and what is added up. */
static void several_results(void **state) {
    (void)state;
    begin();
    cb_function *fast = cb_compile_n(two, NULL, VM);
    cb_tensor *x = cb_randn(cb_dims(4, 4)), *of[2][4];
    for (int compiled = 0; compiled < 2; compiled++)
        for (int way = 0; way < 4; way++) {
            cb_tensor *out[2];
            cb_zero_grad(w), cb_zero_grad(v);
            int count = compiled ? cb_call_n(fast, &x, 1, out, 2) : two(&x, 1, out, NULL);
            assert_int_equal(count, 2);
            if (way == 0) go_back(out[0], 2);
            if (way == 1) go_back(out[1], 3);
            if (way == 2) go_back(cb_add(cb_sum(out[0]), out[1]), 1);
            if (way == 3) go_back(out[0], 1), go_back(out[1], 2), go_back(out[1], 5);
            of[compiled][way] = cb_clone(cb_tensor_grad(w));
            if (way == 1) assert_null(cb_tensor_grad(v)); /* on which the sum does not depend */
        }
    for (int way = 0; way < 4; way++) expect_tensor(of[1][way], of[0][way], 1e-5, 1e-5);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

/* What gradients begin with may lie in any way. */
static void turned_gradients(void **state) {
    (void)state;
    begin();
    cb_function *fast = cb_compile(product, VM);
    cb_tensor *x = cb_randn(cb_dims(4, 4)), *g = cb_randn(cb_dims(4, 4)), *of[2];
    for (int compiled = 0; compiled < 2; compiled++) {
        cb_zero_grad(w);
        cb_tensor *y = compiled ? cb_call(fast, x) : product(x);
        assert_int_equal(cb_backward(y, cb_t(g)), CB_OK);
        of[compiled] = cb_clone(cb_tensor_grad(w));
    }
    expect_tensor(of[1], of[0], 1e-5, 1e-5);
    cb_function_free(fast);
}

/* One compiled function behind another, with an op of eager between. */
static cb_tensor *first(cb_tensor *x) { return cb_tanh(cb_matmul(x, w)); }
static cb_tensor *second(cb_tensor *h) { return cb_softmax(cb_matmul(h, v), 1); }

static void one_behind_the_other(void **state) {
    (void)state;
    begin();
    cb_function *a = cb_compile(first, VM), *b = cb_compile(second, VM);
    cb_tensor *x = cb_randn(cb_dims(4, 4)), *of[2];
    for (int round = 0; round < 6; round++) {
        cb_zero_grad(w), cb_zero_grad(v);
        cb_tensor *h = round % 2 ? cb_call(a, x) : first(x);
        cb_tensor *y = cb_square(cb_add(h, 1)), *z = round % 2 ? cb_call(b, y) : second(y);
        go_back(cb_mul(z, cb_detach(z)), 1);
        go_back(h, 0.5);
        of[round % 2] = cb_clone(cb_tensor_grad(w));
        if (round % 2) expect_tensor(of[1], of[0], 1e-5, 1e-5);
    }
    assert_int_equal(cb_stats(a).eager_calls + cb_stats(b).eager_calls, 0);
    assert_int_equal(cb_stats(a).graphs + cb_stats(b).graphs, 2);
    cb_function_free(a);
    cb_function_free(b);
}

/* ---- what lives, and what was written -------------------------------------------------------- */

static void outlives_the_function(void **state) {
    (void)state;
    begin();
    cb_tensor *x = cb_randn(cb_dims(4, 4));
    JointOutcome wanted = run(NULL, product, x);
    for (int way = 0; way < 3; way++) {
        cb_function *fast = cb_compile(product, VM);
        cb_zero_grad(w);
        cb_tensor *y = cb_call(fast, x);
        if (way == 1) cb_reset();
        if (way < 2) cb_function_free(fast);
        cb_backward(cb_sum(cb_mul(y, cb_tanh(cb_detach(y)))), NULL);
        expect_tensor(cb_tensor_grad(w), wanted.of_w, 1e-5, 1e-5);
        if (way == 2) cb_function_free(fast);
    }
}

static void writes_are_noticed(void **state) {
    (void)state;
    begin();
    cb_function *fast = cb_compile(product, VM);
    cb_tensor *x = cb_randn(cb_dims(4, 4)), *y = cb_call(fast, x);
    cb_add_(x, 1.0);
    REFUSES(cb_backward(cb_sum(y), NULL), CB_ERR_ARGUMENT,
            "f32[4, 4] that the function compiled at test_joint.c:");
    y = cb_call(fast, x);
    cb_no_grad_open();
    cb_mul_(y, 0.0); /* a result is the caller's */
    cb_no_grad_close();
    cb_zero_grad(w);
    assert_int_equal(cb_backward(cb_sum(y), NULL), CB_OK);
    assert_true(cb_item(cb_sum(cb_abs(cb_tensor_grad(w)))) > 0);
    cb_function_free(fast);
}

static int three(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = cb_exp(cb_mul(in[0], w));
    out[1] = cb_sum(cb_mul(out[0], out[0]));
    out[2] = cb_exp(cb_mul(in[0], w));
    return 3;
}

/* Of what was computed from it; of what was not, there is none, as in eager. */
static void gradients_by_results(void **state) {
    (void)state;
    begin();
    cb_tensor *out[3], *by[2], *g[2][2], *x = cb_randn(cb_dims(4, 4));
    cb_function *fast = cb_compile_n(three, NULL, VM);
    for (int way = 0; way < 2; way++)
        for (int compiled = 0; compiled < 2; compiled++) {
            if (compiled) assert_int_equal(cb_call_n(fast, &x, 1, out, 3), 3);
            if (!compiled) three(&x, 1, out, NULL);
            cb_tensor *y = cb_mul(out[1], 2); /* and by itself, too */
            if (way) y = cb_add(y, cb_sum(out[0]));
            assert_int_equal(cb_grad(y, NULL, &out[0], 1, &g[way][compiled]), CB_OK);
        }
    for (int way = 0; way < 2; way++) expect_tensor(g[way][1], g[way][0], 1e-5, 1e-5);
    by[0] = out[1], by[1] = out[2];
    assert_int_equal(cb_grad(cb_sum(out[0]), NULL, by, 2, g[0]), CB_OK);
    assert_true(!g[0][0] && !g[0][1]);
    cb_function_free(fast);
}

/* Without gradients wanted there is no history, and nothing is saved. */
static void none_where_none_is_wanted(void **state) {
    (void)state;
    begin();
    cb_function *fast = cb_compile(product, VM);
    cb_tensor *x = cb_randn(cb_dims(4, 4));
    cb_no_grad_open();
    assert_false(cb_requires_grad(cb_call(fast, x)));
    cb_no_grad_close();
    assert_true(cb_requires_grad(cb_call(fast, x)));
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_function_free(fast);
}

/* ---- the budget ------------------------------------------------------------------------------ */

static cb_tensor *deep(cb_tensor *x) {
    for (int i = 0; i < 6; i++) x = cb_tanh(cb_matmul(x, cb_add(w, v)));
    return x;
}

/* Bytes that live behind a call, besides its result. */
static int64_t bytes_kept(const char *budget, JointOutcome *outcome) {
    cb_set_option("memory_budget", budget);
    cb_function *fast = cb_compile(deep, VM);
    cb_tensor *x = cb_full(cb_dims(64, 4), 0.25);
    *outcome = run(fast, deep, x);
    cb_scope_open();
    int64_t before = cb_memory().live_bytes;
    cb_tensor *y = cb_call(fast, x);
    int64_t kept = cb_memory().live_bytes - before - cb_numel(y) * 4;
    cb_scope_close();
    cb_function_free(fast);
    cb_set_option("memory_budget", "100");
    return kept;
}

static void less_memory(void **state) {
    (void)state;
    begin();
    JointOutcome all, half, none;
    int64_t most = bytes_kept("100", &all), some = bytes_kept("50", &half),
            least = bytes_kept("0", &none);
    assert_true(most >= 5 * 1024 && some < most && some > least && least < 512);
    expect_tensor(half.of_w, all.of_w, 1e-5, 1e-5);
    expect_tensor(none.of_w, all.of_w, 1e-5, 1e-5);
}

/* What a greatest element is compared with has the bits that it had, whatever is computed again. */
static cb_tensor *below_the_greatest(cb_tensor *x) {
    cb_tensor *y = cb_layer_norm(cb_matmul(x, w), 4, NULL, NULL);
    y = cb_mul(cb_rms_norm(cb_exp(y), 4, NULL), cb_select(v, 0, 0));
    return cb_sub(y, cb_amax(y, 1, true));
}

/* A product is a sum's in one loop, and somebody else's, too, in the other. */
static cb_tensor *times_the_greatest(cb_tensor *x) {
    cb_tensor *m = cb_mul(cb_reshape(x, cb_dims(-1, 16)), cb_reshape(w, cb_dims(16)));
    return cb_mul(m, cb_amax(cb_add(m, cb_reshape(v, cb_dims(16))), 1, true));
}

/* In f64, whose last bits a sum in another order changes. */
static cb_tensor *scale;
static cb_tensor *below_the_greatest_of_all(cb_tensor *x) {
    cb_tensor *y = cb_rms_norm(x, 6, scale);
    return cb_sub(y, cb_amax(y, cb_dims(2, 3), true));
}

static void expect_no_other_ties(cb_function *fast, int64_t rows) {
    cb_tensor *x = leaf(cb_randn(cb_dims(rows, 4, 6, 6), CB_F64)), *of[2];
    for (int compiled = 0; compiled < 2; compiled++) {
        cb_zero_grad(scale);
        cb_tensor *y = compiled ? cb_call(fast, x) : below_the_greatest_of_all(x);
        cb_backward(cb_sum(cb_tanh(y)), NULL);
        of[compiled] = cb_clone(cb_tensor_grad(scale));
    }
    expect_tensor(of[1], of[0], 1e-9, 1e-9);
}

static void greatest_elements(void **state) {
    (void)state;
    begin();
    scale = leaf(cb_rand(cb_dims(6), CB_F64));
    for (int budget = 25; budget <= 100; budget += 25) {
        char text[8];
        snprintf(text, sizeof text, "%d", budget);
        cb_set_option("memory_budget", text);
        cb_function *all = cb_compile(below_the_greatest_of_all, VM);
        for (int rows = 3; rows > 0; rows--) expect_no_other_ties(all, rows);
        cb_function_free(all);
    }
    cb_function *alike = cb_compile(times_the_greatest);
    for (int call = 0; call < 4; call++)
        expect_as_eager(alike, times_the_greatest, cb_randn(cb_dims(32 + 4 * call, 4)));
    cb_function_free(alike);
    for (int budget = 0; budget <= 100; budget += 25) {
        char text[8];
        snprintf(text, sizeof text, "%d", budget);
        cb_set_option("memory_budget", text);
        cb_function *fast = cb_compile(below_the_greatest, budget ? VM : "");
        for (int call = 0; call < 4; call++)
            expect_as_eager(fast, below_the_greatest, cb_randn(cb_dims(64 - call, 4)));
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
    cb_set_option("memory_budget", "100");
}

/* ---- threads --------------------------------------------------------------------------------- */

static cb_function *shared;

static int of_given(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = cb_tanh(cb_matmul(in[0], in[1]));
    return 1;
}

static void *go_back_often(void *wrong) {
    cb_scope_open();
    cb_tensor *x = cb_full(cb_dims(4, 4), 0.25), *own = leaf(cb_full(cb_dims(4, 4), 0.5)), *y;
    for (int i = 0; i < 30; i++) {
        cb_scope_open();
        cb_zero_grad(own);
        cb_call_n(shared, (cb_tensor *[]){x, own}, 2, &y, 1);
        if (cb_backward(cb_sum(y), NULL) != CB_OK) *(bool *)wrong = true;
        double g = cb_item(cb_sum(cb_tensor_grad(own))), t = 0.46211715726; /* tanh(0.5) */
        if (!(g - 16 * (1 - t * t) < 1e-4 && g - 16 * (1 - t * t) > -1e-4)) *(bool *)wrong = true;
        cb_scope_close();
    }
    cb_scope_close();
    return NULL;
}

static void by_threads(void **state) {
    (void)state;
    shared = cb_compile_n(of_given, NULL, VM);
    run_at_once(go_back_often);
    cb_function_free(shared);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(as_eager),
        TEST(sizes_and_numbers),
        TEST(written_inputs),
        TEST(several_results),
        TEST(turned_gradients),
        TEST(one_behind_the_other),
        TEST(outlives_the_function),
        TEST(writes_are_noticed),
        TEST(gradients_by_results),
        TEST(none_where_none_is_wanted),
        TEST(less_memory),
        TEST(greatest_elements),
        TEST(by_threads),
    };
    return cmocka_run_group_tests_name("joint", tests, NULL, NULL);
}
