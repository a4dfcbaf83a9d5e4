/* cb_checkpoint: programs with it and with plain calls in its place, whose values, gradients and
 * draws are the same bits; what is kept meanwhile. */
#include "checkpoint_layer.h"
#include "elements.h"
#include "fixture.h"

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

enum { LAYERS = 4, MOST = 16, ELEMENTS = 4096 };

static int hooked;
static cb_tensor *left[MOST]; /* of a program: to compare */
static int leaves;

static void keep(cb_tensor *x) {
    assert_non_null(x);
    left[leaves++] = cb_to(cb_detach(x), CB_F64);
}

static void keep_gradients(void) {
    keep(cb_tensor_grad(w));
    keep(cb_tensor_grad(v));
}

/* ---- programs -------------------------------------------------------------------------------- */

static void layers(void) {
    cb_tensor *h = cb_randn(cb_dims(ROWS, WIDTH));
    for (int i = 0; i < LAYERS; i++) h = part(layer, NULL, h);
    keep(h);
    cb_backward(cb_sum(cb_mul(h, h)), NULL);
    keep_gradients();
}

static void back_twice(void) {
    cb_tensor *loss = cb_sum(part(layer, NULL, part(layer, NULL, cb_randn(cb_dims(ROWS, WIDTH)))));
    for (int i = 0; i < 2; i++) cb_backward(loss, NULL);
    keep_gradients();
}

static int nest(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    int depth = *(int *)user, less = depth - 1;
    cb_tensor *h = cb_tanh(x[0]);
    static int depths[] = {0, 1, 2, 3};
    (void)count;
    for (int i = 0; i < 2; i++) h = less ? part(nest, &depths[less], h) : part(layer, NULL, h);
    y[0] = cb_mul(cb_sin(h), cb_exp(h));
    return 1;
}

static void nested(void) {
    int depth = 3;
    cb_tensor *h = part(nest, &depth, cb_randn(cb_dims(ROWS, WIDTH)));
    cb_backward(cb_sum(h), NULL);
    keep_gradients();
}

static int drops(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count;
    if (user) cb_manual_seed(11);
    cb_tensor *noise = cb_rand(cb_dims(WIDTH));
    y[0] = cb_mul(cb_dropout(cb_exp(cb_mul(x[0], w)), 0.5, true), noise);
    return 1;
}

static void draws(void) {
    cb_tensor *h = cb_randn(cb_dims(WIDTH, WIDTH));
    for (int i = 0; i < 3; i++) h = part(drops, i == 1 ? &h : NULL, h);
    keep(cb_rand(4));
    cb_backward(cb_sum(cb_mul(h, v)), NULL);
    keep(cb_rand(4)); /* the generator has not moved */
    keep_gradients();
}

static int divide(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count, (void)user;
    cb_tensor *h = cb_exp(cb_mul(x[0], w));
    cb_exp(cb_exp(h)); /* which nobody needs: its history is gone when the function runs again */
    y[0] = cb_mul(h, h);
    y[1] = NULL;
    y[2] = cb_sin(cb_mul(cb_cos(h), x[1]));
    return 3;
}

static void several(void) {
    cb_tensor *x[] = {cb_randn(cb_dims(WIDTH, WIDTH)), v}, *y[3];
    if (plainly)
        divide(x, 2, y, NULL);
    else
        assert_int_equal(cb_checkpoint_n(divide, NULL, x, 2, y, 3), 3);
    assert_null(y[1]);
    cb_tensor *g;
    assert_int_equal(cb_grad(cb_sum(y[0]), NULL, &w, 1, &g), CB_OK);
    keep(g);
    cb_backward(cb_sum(cb_mul(y[0], y[2])), NULL);
    keep_gradients();
}

static void lower(void) {
    cb_autocast_open(CB_BF16);
    cb_tensor *h = part(layer, NULL, part(layer, NULL, cb_randn(cb_dims(ROWS, WIDTH))));
    cb_autocast_close();
    cb_backward(cb_sum(cb_to(h, CB_F32)), NULL);
    keep_gradients();
}

static void second_order(void) {
    cb_tensor *h = part(layer, NULL, part(layer, NULL, cb_randn(cb_dims(ROWS, WIDTH)))), *g;
    assert_int_equal(cb_grad_graph(cb_sum(cb_mul(h, h)), NULL, &w, 1, &g), CB_OK);
    keep(g);
    cb_backward(cb_sum(cb_mul(g, g)), NULL);
    keep_gradients();
}

static cb_tensor *halves(cb_tensor *gradient, void *user) {
    (void)user;
    hooked++;
    return cb_mul(gradient, 0.5);
}

static int hooks(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count, (void)user;
    cb_tensor *h = cb_exp(cb_mul(x[0], w));
    int gone = cb_register_hook(h, halves, NULL);
    assert_true(gone > 0);
    cb_remove_hook(h, gone);
    assert_true(cb_register_hook(h, halves, NULL) > 0);
    y[0] = cb_mul(h, h);
    return 1;
}

static void with_hooks(void) {
    hooked = 0;
    cb_tensor *h = part(hooks, NULL, cb_randn(cb_dims(WIDTH, WIDTH)));
    for (int i = 0; i < 2; i++) cb_backward(cb_sum(cb_mul(h, v)), NULL);
    keep_gradients();
    assert_int_equal(hooked, 2);
}

/* Values are asked for, and gradients are gone back over, within; the leaf gets its own once. */
static int looks(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count, (void)user;
    cb_tensor *h = cb_exp(cb_mul(x[0], w)), *g;
    assert_int_equal(cb_grad(cb_sum(cb_mul(h, h)), NULL, &w, 1, &g), CB_OK);
    cb_backward(cb_sum(cb_mul(h, v)), NULL);
    y[0] = cb_mul(cb_mul(h, g), cb_item(cb_mean(h)));
    return 1;
}

static void within(void) {
    cb_tensor *h = part(looks, NULL, cb_mul(cb_randn(cb_dims(WIDTH, WIDTH)), 0.1));
    cb_backward(cb_sum(h), NULL);
    keep_gradients();
}

typedef struct Statistics {
    cb_tensor *mean, *var, *steps;
} Statistics;

static int normalizes(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    const Statistics *norm = user;
    (void)count;
    cb_tensor *h =
        cb_batch_norm(cb_mul(x[0], w), norm->mean, norm->var, NULL, NULL, true, 0.1, 1e-5);
    cb_fill_(norm->steps, 0.5);
    y[0] = cb_exp(cb_mul(cb_exp(h), norm->steps));
    return 1;
}

static cb_tensor *compiled_layer(cb_tensor *x) {
    return cb_dropout(cb_exp(cb_softmax(cb_matmul(x, w), 1)), 0.25, true);
}

/* A count, a mean that follows, a seed: by new values of themselves. */
static cb_tensor *kept_count, *kept_mean;

static int counts_up(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count;
    cb_assign(kept_count, cb_add(kept_count, 1));
    cb_no_grad_open();
    cb_tensor *mean = cb_mean(cb_mul(x[0], w), 0), *own = cb_zeros(cb_dims(WIDTH));
    cb_assign(kept_mean, cb_lerp(kept_mean, mean, 0.1));
    cb_assign(kept_mean, cb_add(kept_mean, cb_mul(cb_rand(WIDTH), 0.01)));
    cb_add_(own, kept_mean);
    cb_assign(own, cb_mul(own, kept_count));
    cb_no_grad_close();
    y[0] = user ? cb_exp(cb_call((cb_function *)user, x[0])) : cb_exp(cb_mul(x[0], v));
    return 1;
}

static int counts_within(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    counts_up(x, count, y, NULL);
    y[0] = cb_sin(part(counts_up, user, y[0]));
    return counts_up(y, 1, y, user);
}

static void forward_counts(void) {
    cb_function *fast = cb_compile(compiled_layer, "backend=vm");
    cb_tensor *h = cb_mul(cb_randn(cb_dims(WIDTH, WIDTH)), w);
    kept_count = cb_zeros(CB_NO_DIMS), kept_mean = cb_zeros(WIDTH);
    for (int i = 0; i < 2; i++) h = part(counts_within, i ? fast : NULL, h);
    cb_backward(cb_sum(h), NULL);
    keep(kept_count);
    keep(kept_mean);
    keep_gradients();
    cb_function_free(fast);
}

static int forward(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count;
    y[0] = cb_forward(user, cb_mul(x[0], w));
    return 1;
}

static void statistics(void) {
    Statistics norm = {cb_zeros(WIDTH), cb_ones(WIDTH), cb_zeros(CB_NO_DIMS)};
    cb_tensor *x = cb_randn(cb_dims(WIDTH, WIDTH)), *h = part(normalizes, &norm, x);
    keep(norm.mean);
    keep(norm.var);
    keep(norm.steps);
    cb_module *net[2];
    for (int i = 0; i < 2; i++) { /* with a momentum, and the mean over all batches */
        net[i] = cb_nn_batch_norm1d(WIDTH, 1e-5, i ? -1 : 0.1);
        h = part(forward, net[i], part(forward, net[i], h)); /* as two batches */
        keep(cb_module_get(net[i], "running_mean"));
        keep(cb_module_get(net[i], "running_var"));
    }
    cb_backward(cb_sum(cb_mul(h, v)), NULL);
    for (int i = 0; i < 2; i++) {
        keep(cb_module_get(net[i], "num_batches_tracked")); /* once, not in the other run */
        cb_module_free(net[i]);
    }
    keep_gradients();
}

static int counts(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    const Statistics *norm = user;
    (void)count;
    cb_no_grad_open();
    cb_add_(norm->steps, 1.0);
    cb_no_grad_close();
    y[0] = cb_batch_norm(cb_exp(x[0]), norm->mean, norm->var, NULL, NULL, true, 0.5, 1e-5);
    return 1;
}

static int counts_aside(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count;
    cb_tensor *h = cb_sin(cb_mul(x[0], w));
    cb_scope_open(); /* what it gives is gone before gradients come */
    part(counts, user, h);
    cb_scope_close();
    y[0] = cb_exp(h);
    return 1;
}

static void nested_and_gone(void) {
    Statistics norm = {cb_zeros(WIDTH), cb_ones(WIDTH), cb_zeros(WIDTH)};
    cb_tensor *h = part(counts_aside, &norm, cb_randn(cb_dims(WIDTH, WIDTH)));
    cb_backward(cb_sum(cb_mul(h, v)), NULL);
    keep(norm.mean);
    keep(norm.var);
    keep(norm.steps);
    keep_gradients();
}

static int calls(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count;
    y[0] = cb_exp(cb_call((cb_function *)user, cb_mul(x[0], v)));
    return 1;
}

static void compiled_within(void) {
    cb_function *fast = cb_compile(compiled_layer, "backend=vm");
    cb_tensor *h = cb_randn(cb_dims(ROWS, WIDTH));
    for (int i = 0; i < 3; i++) h = part(calls, fast, h);
    for (int i = 0; i < 2; i++) cb_backward(cb_sum(h), NULL);
    keep_gradients();
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

static int penalized(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    cb_tensor *h, *g;
    calls(x, count, &h, user);
    assert_int_equal(cb_grad_graph(cb_sum(cb_mul(h, h)), NULL, &v, 1, &g), CB_OK);
    y[0] = cb_mul(h, g);
    return 1;
}

/* Outside of the checkpoint, and in it. */
static void compiled_second_order(void) {
    cb_function *fast = cb_compile(compiled_layer, "backend=vm");
    cb_tensor *h = part(calls, fast, cb_randn(cb_dims(ROWS, WIDTH))), *g;
    assert_int_equal(cb_grad_graph(cb_sum(cb_mul(h, h)), NULL, &w, 1, &g), CB_OK);
    h = part(penalized, fast, cb_randn(cb_dims(ROWS, WIDTH)));
    for (int i = 0; i < 2; i++) cb_backward(cb_add(cb_sum(cb_mul(g, g)), cb_sum(h)), NULL);
    keep_gradients();
    cb_function_free(fast);
}

static cb_tensor *product(cb_tensor *x) { return cb_mul(cb_sin(cb_mul(x, w)), cb_exp(x)); }

static int calls_alone(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count;
    y[0] = cb_call((cb_function *)user, x[0]);
    return 1;
}

/* What it keeps is asked for by nothing but its own gradients. */
static void compiled_alone(void) {
    cb_function *fast = cb_compile(product, "backend=vm");
    cb_tensor *h = part(calls_alone, fast, cb_mul(v, cb_randn(cb_dims(WIDTH, WIDTH))));
    for (int i = 0; i < 2; i++) cb_backward(cb_sum(h), NULL);
    keep_gradients();
    cb_function_free(fast);
}

static cb_function *fast_product, *compiled_asks;
static cb_tensor *counted;

/* What comes before the value was asked for is recorded, with what is called there. */
static cb_tensor *asks(cb_tensor *x) {
    cb_tensor *h = plainly ? product(x) : cb_call(fast_product, x);
    cb_no_grad_open();
    cb_add_(counted, 1.0);
    cb_no_grad_close();
    h = cb_mul(cb_select(cb_exp(cb_mul(h, 0.1)), -1, 0), cb_item(cb_mean(h)));
    return plainly ? product(h) : cb_call(fast_product, h);
}

static cb_tensor *hooks_within(cb_tensor *x) {
    cb_tensor *h = cb_exp(cb_mul(x, w));
    assert_true(cb_register_hook(h, halves, NULL) > 0);
    return cb_mul(cb_sin(h), h);
}

static int calls_twice(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count;
    cb_function_1 *target = user ? hooks_within : asks;
    cb_function *fast = user ? user : compiled_asks;
    cb_tensor *h = plainly ? target(x[0]) : cb_call(fast, x[0]);
    y[0] = cb_mul(cb_exp(cb_mul(h, 0.1)), plainly ? target(x[0]) : cb_call(fast, x[0]));
    return 1;
}

/* With events in the middle they run op by op, in every run. */
static void compiled_breaks(void) {
    cb_function *hooking = cb_compile(hooks_within, "backend=vm");
    compiled_asks = cb_compile(asks, "backend=vm");
    fast_product = cb_compile(product, "backend=vm");
    counted = cb_zeros(1);
    for (int i = 0; i < 2; i++) {
        cb_tensor *x = cb_mul(cb_randn(cb_dims(WIDTH, WIDTH)), 0.1);
        cb_backward(cb_sum(part(calls_twice, NULL, x)), NULL);
        cb_backward(cb_sum(part(calls_twice, hooking, x)), NULL);
    }
    keep(counted);
    keep(cb_tensor_grad(w));
    /* the first call, and when it runs again: those behind them know it */
    assert_int_equal(cb_stats(compiled_asks).breaks, plainly ? 0 : 2);
    cb_function_free(hooking);
    cb_function_free(compiled_asks);
    cb_function_free(fast_product);
}

/* What a program leaves, as numbers. */
static int run(void (*program)(void), bool plain, double *out) {
    int total = 0;
    cb_scope_open();
    cb_manual_seed(3);
    plainly = plain;
    leaves = 0;
    w = leaf(cb_dims(WIDTH, WIDTH));
    v = leaf(cb_dims(WIDTH));
    program();
    if (cb_error()) print_error("%s\n", cb_error());
    assert_null(cb_error());
    for (int i = 0; i < leaves; i++) {
        assert_true(total + cb_numel(left[i]) <= ELEMENTS);
        cb_read(left[i], out + total, CB_F64);
        total += (int)cb_numel(left[i]);
    }
    cb_scope_close();
    return total;
}

static void same_as_without(void **state) {
    static double with[ELEMENTS], without[ELEMENTS];
    void (*program[])(void) = {layers,
                               back_twice,
                               nested,
                               draws,
                               several,
                               lower,
                               within,
                               second_order,
                               with_hooks,
                               statistics,
                               compiled_within,
                               compiled_alone,
                               compiled_second_order,
                               forward_counts,
                               compiled_breaks,
                               nested_and_gone};
    (void)state;
    for (size_t i = 0; i < sizeof program / sizeof *program; i++) {
        int count = run(program[i], false, with), other = run(program[i], true, without);
        assert_int_equal(count, other);
        if (memcmp(with, without, sizeof *with * (size_t)count) != 0) fail_msg("program %zu", i);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { WIDE = 128, DEEP = 8 };

static bool wide_within;

static int narrow(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count, (void)user;
    y[0] = cb_tanh(cb_mul(cb_exp(x[0]), x[0]));
    return 1;
}

static int wide(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    cb_tensor *h = x[0];
    (void)count, (void)user;
    for (int i = 0; i < 4; i++)
        if (wide_within)
            h = part(narrow, NULL, h);
        else
            narrow(&h, 1, &h, NULL);
    y[0] = h;
    runs++;
    return 1;
}

/* Of DEEP layers: the bytes that tensors hold before and behind going back. */
static void hold(bool plain, int64_t bytes[2]) {
    cb_scope_open();
    plainly = plain;
    int64_t before = cb_memory().live_bytes;
    cb_tensor *x = leaf(cb_dims(WIDE, WIDE)), *h = x;
    for (int i = 0; i < DEEP; i++) h = part(wide, NULL, h);
    cb_tensor *loss = cb_sum(h);
    bytes[0] = cb_memory().live_bytes - before;
    cb_backward(loss, NULL);
    bytes[1] = cb_memory().live_bytes - before;
    cb_scope_close();
}

/* One layer holds 4 tensors for each of its 4 parts; x, h and the gradient are there besides. */
static void memory(void **state) {
    const int64_t tensor = sizeof(float) * WIDE * WIDE;
    int64_t bytes[2], peak;
    (void)state;
    runs = 0;
    hold(false, bytes);
    peak = cb_memory().peak_bytes;
    assert_int_equal(runs, 2 * DEEP);
    assert_true(bytes[0] < (DEEP + 3) * tensor && bytes[1] < (DEEP + 4) * tensor);
    assert_true(peak < (DEEP + 24) * tensor);
    wide_within = true; /* what is within holds no more */
    hold(false, bytes);
    assert_true(bytes[0] < (DEEP + 3) * tensor && cb_memory().peak_bytes < peak + 2 * tensor);
    runs = 0, wide_within = false;
    hold(true, bytes);
    assert_int_equal(runs, DEEP);
    assert_true(bytes[0] > 8 * DEEP * tensor && cb_memory().peak_bytes > 2 * peak);
}

/* Where gradients do not come, or there is nothing to compute again. */
static void runs_once(void **state) {
    (void)state;
    plainly = false;
    w = leaf(cb_dims(WIDTH, WIDTH)), v = leaf(cb_dims(WIDTH));
    cb_tensor *x = cb_randn(cb_dims(ROWS, WIDTH)), *g;
    runs = 0;
    cb_no_grad_open();
    assert_false(cb_requires_grad(part(layer, NULL, x)));
    cb_no_grad_close();
    cb_tensor *h = part(wide, NULL, x), *y = part(layer, NULL, h), *z = part(layer, NULL, h);
    assert_false(cb_requires_grad(h));
    assert_int_equal(cb_grad(cb_sum(z), NULL, &v, 1, &g), CB_OK);
    assert_int_equal(runs, 5); /* z's again, y's not */
    assert_true(cb_requires_grad(y));
}

/* ---- hooks ----------------------------------------------------------------------------------- */

static int number;

static int registers(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count, (void)user;
    number = cb_register_hook(v, halves, NULL);
    y[0] = cb_mul(cb_exp(x[0]), v);
    return 1;
}

static void hooks_keep_their_numbers(void **state) {
    (void)state;
    plainly = false, hooked = 0;
    v = leaf(cb_dims(WIDTH));
    assert_int_equal(cb_register_hook(v, halves, NULL), 1);
    cb_tensor *y = part(registers, NULL, cb_randn(cb_dims(ROWS, WIDTH)));
    assert_int_equal(number, 2);
    assert_int_equal(cb_backward(cb_sum(y), NULL), CB_OK);
    assert_int_equal(number, 2);
    assert_int_equal(hooked, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(memory),
        TEST(same_as_without),
        TEST(runs_once),
        TEST(hooks_keep_their_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
