/* cb_checkpoint: what is refused, since a second run would do something else, or read other
 * elements. */
#include "checkpoint_layer.h"
#include "elements.h"
#include "fixture.h"

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

static cb_tensor *another; /* a leaf, a row as v is */

/* ---- refusals -------------------------------------------------------------------------------- */

static int how; /* the second run is another one */

static int narrow(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count, (void)user;
    y[0] = cb_tanh(cb_mul(cb_exp(x[0]), x[0]));
    return 1;
}

static int differs(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    bool again = runs++ > 0;
    cb_tensor *h = again && how == 0 ? cb_cos(x[0]) : cb_exp(x[0]);
    (void)count, (void)user;
    if (again && how == 1) h = cb_select(h, 0, 0);
    if (how == 2) h = cb_mul(h, again ? 2.0 : 3.0);
    if (how == 3) h = cb_mul(h, again ? v : another);
    if (how == 4) h = cb_softmax(h, again ? 0 : 1);
    if (how == 5) h = part(layer, NULL, h);
    if (how == 6 && again) h = part(layer, NULL, h);
    if (how == 7) h = part(again ? narrow : layer, NULL, h);
    if (how == 8 && again) return -1;
    if (how == 9 && again) h = cb_reshape(h, 7);
    y[0] = cb_mul(h, h);
    if (how == 5 && again) return 1;
    if (how == 10 && again) cb_exp(h);
    if (how == 11 && !again) cb_exp(h);
    return 1;
}

static void another_function(void **state) {
    const char *const words[] = {
        [0] = "something else when it runs again: cos to f32[8, 16]",
        [1] = "select to f32[16] (test_checkpoint_refusals.c:",
        [2] = "mul to f32[8, 16] (test_checkpoint_refusals.c:",
        [3] = "mul to f32[8, 16]",
        [4] = "softmax to f32[8, 16] (test_checkpoint_refusals.c:",
        [6] = "a checkpoint (checkpoint_layer.h:",
        [7] = "a checkpoint",
        [8] = "the function gave -1",
        [9] = "reshape",
        [10] = "where its first run did nothing more",
        [11] = "it returns, where its first run did exp to f32[8, 16]",
    };
    (void)state;
    plainly = false;
    w = leaf(cb_dims(WIDTH, WIDTH)), v = leaf(cb_dims(WIDTH)), another = leaf(cb_dims(WIDTH));
    for (how = 0; how < (int)(sizeof words / sizeof *words); how++) {
        if (!words[how]) continue;
        runs = 0;
        cb_tensor *y = part(differs, NULL, leaf(cb_dims(ROWS, WIDTH)));
        assert_non_null(y);
        assert_int_not_equal(cb_backward(cb_sum(y), NULL), CB_OK);
        expect_error(words[how]);
    }
}

static cb_function *differing;
static double factor;
static cb_tensor *outside;

static cb_tensor *differs_compiled(cb_tensor *x) {
    bool again = runs++ > 0;
    cb_tensor *h = cb_tanh(cb_mul(x, w)), *k = cb_mul(h, v);
    factor = again ? 2.0 : 3.0;
    cb_tensor *unrelated = cb_mul(cb_ones(cb_dims(WIDTH, WIDTH)), factor);
    if (how == 0) return cb_mul(cb_mul(h, k), factor);
    if (how == 1) return cb_mul(k, cb_softmax(h, again ? 0 : 1));
    if (how == 2) return again ? cb_sub(h, k) : cb_sub(k, h);
    if (how == 3) return cb_mul(k, unrelated);
    if (how == 4) return cb_mul(k, again ? cb_exp(x) : cb_tanh(x));
    cb_assign(outside, unrelated); /* what goes into no gradient may change */
    return k;
}

static int calls_differing(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count, (void)user;
    y[0] = cb_exp(cb_call(differing, x[0]));
    return 1;
}

static void another_compiled_function(void **state) {
    (void)state;
    plainly = false;
    w = leaf(cb_dims(WIDTH, WIDTH)), v = leaf(cb_dims(WIDTH));
    outside = cb_ones(cb_dims(WIDTH, WIDTH));
    for (how = 0; how < 6; how++) {
        differing = cb_compile(differs_compiled, "backend=vm");
        for (int i = 0; i < 2; i++) { /* recorded, and what is known then */
            runs = 0;
            cb_tensor *y = part(calls_differing, NULL, cb_randn(cb_dims(WIDTH, WIDTH)));
            assert_non_null(y);
            if (how < 5)
                REFUSES(cb_backward(cb_sum(y), NULL), CB_ERR_ARGUMENT,
                        "with other tensors, ops or numbers, where its first run did a compiled");
            else
                assert_int_equal(cb_backward(cb_sum(y), NULL), CB_OK);
        }
        cb_function_free(differing);
    }
}

static int fails(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count, (void)y;
    if (user) cb_autocast_open(CB_BF16);
    y[0] = cb_exp(x[0]);
    return user ? 1 : -1;
}

static void refusals(void **state) {
    (void)state;
    plainly = false;
    w = leaf(cb_dims(WIDTH, WIDTH)), v = leaf(cb_dims(WIDTH));
    cb_tensor *x = cb_randn(cb_dims(ROWS, WIDTH)), *nothing = NULL, *y;
    REFUSED(cb_checkpoint(NULL, NULL, &x, 1), "checkpoint: NULL");
    REFUSED(cb_checkpoint(layer, NULL, &nothing, 1), "input 0 is NULL");
    REFUSED(cb_checkpoint(fails, NULL, &x, 1), "the function gave -1");
    REFUSED(cb_checkpoint(fails, &x, &x, 1), "did not close it");
    REFUSES(cb_checkpoint_n(layer, NULL, &x, 1, &y, 0), CB_ERR_ARGUMENT, "do not fit");
    y = part(layer, NULL, x);
    cb_fill_(x, 1.0);
    REFUSES(cb_backward(cb_sum(y), NULL), CB_ERR_ARGUMENT, "input 0, which the function of the");
    y = part(layer, NULL, x);
    cb_no_grad_open();
    cb_mul_(v, 2.0);
    cb_no_grad_close();
    REFUSES(cb_backward(cb_sum(y), NULL), CB_ERR_ARGUMENT, "a tensor from outside");
}

/* What another run would read otherwise, by whichever way it reads it. */

static cb_tensor *own, *many[3 * WIDTH];
static cb_function *compiled_read;

static cb_tensor *doubled(cb_tensor *x) { return cb_mul(x, 2.0); }

static int reads(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count, (void)user;
    cb_tensor *h = outside;
    if (how == 0) h = cb_add_(cb_zeros(cb_dims(WIDTH)), outside);
    if (how == 1) h = cb_call(compiled_read, outside);
    if (how == 2 || how >= 6) h = cb_relu(outside);
    if (how == 2) cb_batch_norm(x[0], outside, v, NULL, NULL, true, 0.5, 1e-5);
    if (how == 3) cb_assign(h = cb_zeros(cb_dims(WIDTH)), outside);
    if (how == 4 || how == 5) cb_add_(outside, 1.0); /* is done once, and alone reads nothing */
    if (how == 4) h = cb_full(cb_dims(WIDTH), 3.0);
    y[0] = cb_mul(cb_exp(x[0]), how == 5 ? cb_mul(h, 1.0) : h);
    for (int i = 0; i < 3 * WIDTH && how == 7; i++) y[0] = cb_add(y[0], many[i]);
    return 1;
}

static int writes_behind(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count, (void)user;
    cb_free(own);
    outside = own = cb_keep(cb_ones(cb_dims(WIDTH)));
    for (int i = 0; i < 3 * WIDTH; i++) many[i] = cb_ones(cb_dims(WIDTH));
    y[0] = part(reads, NULL, x[0]);
    cb_fill_(how == 7 ? many[WIDTH] : outside, 9.0);
    return 1;
}

static int scales(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count, (void)user;
    y[0] = cb_mul(cb_exp(x[0]), x[1]);
    return 1;
}

/* What is told by a count that has changed. */
static int counts(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count, (void)user;
    cb_tensor *now = cb_add(outside, 1.0), *h = now;
    cb_assign(outside, now);
    if (how == 1) h = cb_relu(cb_reshape(now, cb_dims(1, WIDTH)));
    if (how == 2) h = cb_call(compiled_read, now);
    if (how == 3) h = cb_add_(cb_zeros(cb_dims(WIDTH)), now);
    if (how == 4) cb_assign(h = cb_zeros(cb_dims(WIDTH)), now);
    if (how == 5) h = outside; /* as it is left */
    if (how == 7) return cb_checkpoint_n(scales, NULL, (cb_tensor *[]){x[0], now}, 2, y, 1);
    y[0] = cb_mul(cb_exp(cb_mul(x[0], 1.0)), how == 6 ? cb_ones(cb_dims(WIDTH)) : h);
    return 1;
}

static void values_of_what_changed(void **state) {
    (void)state;
    plainly = false;
    compiled_read = cb_compile(doubled);
    for (how = 0; how < 8; how++) {
        outside = cb_ones(cb_dims(WIDTH));
        cb_tensor *x = leaf(cb_dims(ROWS, WIDTH)), *y = part(counts, NULL, x);
        assert_non_null(y);
        bool refused = how < 5 || how == 7;
        if (refused)
            REFUSES(cb_backward(cb_sum(y), NULL), CB_ERR_ARGUMENT, "a tensor from outside");
        else
            assert_int_equal(cb_backward(cb_sum(y), NULL), CB_OK);
        if (!refused) expect_tensor(cb_tensor_grad(x), y, 1e-6, 1e-6);
        assert_true(cb_item(cb_amax(outside)) == 2);
    }
    cb_function_free(compiled_read);
}

/* The host takes the count, which no op tells of, alone and beside what is compiled. */
static int counts_by_host(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count;
    cb_tensor *now = cb_add(outside, 1.0), *s = cb_ones(cb_dims(WIDTH));
    float value[WIDTH];
    cb_assign(outside, now);
    if (how == 0) cb_fill_(s, cb_item(cb_select(outside, 0, 0)));
    if (how == 1 && cb_read(outside, value, CB_F32) == CB_OK) cb_fill_(s, value[0]);
    if (how == 2 && cb_data_const(outside)) cb_fill_(s, *(const float *)cb_data_const(outside));
    if (how == 3 && cb_data(outside)) cb_fill_(s, *(const float *)cb_data(outside));
    if (how == 4) cb_fill_(s, cb_item(cb_select(now, 0, 0)));
    y[0] = cb_mul(user ? cb_call((cb_function *)user, x[0]) : cb_exp(x[0]), s);
    return 1;
}

static void values_by_host(void **state) {
    (void)state;
    plainly = false;
    compiled_read = cb_compile(doubled, "backend=vm");
    for (int k = 0; k < 10; k++) {
        how = k / 2;
        outside = cb_ones(cb_dims(WIDTH));
        cb_tensor *x = leaf(cb_dims(ROWS, WIDTH));
        cb_tensor *y = part(counts_by_host, k % 2 ? compiled_read : NULL, x);
        if (how < 4) assert_int_equal(cb_backward(cb_sum(y), NULL), CB_OK); /* as it was */
        y = part(counts_by_host, k % 2 ? compiled_read : NULL, x);
        part(counts_by_host, k % 2 ? compiled_read : NULL, x);
        REFUSES(cb_backward(cb_sum(y), NULL), CB_ERR_ARGUMENT,
                "reads at test_checkpoint_refusals.c:");
    }
    cb_function_free(compiled_read);
}

static void reads_of_what_changed(void **state) {
    (void)state;
    plainly = false;
    compiled_read = cb_compile(doubled);
    v = cb_ones(cb_dims(WIDTH));
    for (how = 0; how < 6; how++) {
        outside = cb_ones(cb_dims(WIDTH));
        cb_tensor *x = leaf(cb_dims(ROWS, WIDTH)), *y = part(reads, NULL, x);
        assert_non_null(y);
        if (how < 2 || how == 3) cb_fill_(outside, 9.0);
        if (how < 4)
            REFUSES(cb_backward(cb_sum(y), NULL), CB_ERR_ARGUMENT, "a tensor from outside");
        else
            assert_int_equal(cb_backward(cb_sum(y), NULL), CB_OK);
        if (how < 4) continue;
        expect_tensor(cb_tensor_grad(x), y, 1e-6, 1e-6); /* the gradient of exp(x) * h */
        assert_true(cb_item(cb_amax(outside)) == 2);
    }
    for (how = 6; how < 8; how++) { /* of what the one around makes */
        cb_tensor *y = part(writes_behind, NULL, leaf(cb_dims(ROWS, WIDTH)));
        REFUSES(cb_backward(cb_sum(y), NULL), CB_ERR_ARGUMENT, "a tensor from outside");
    }
    cb_free(own);
    cb_function_free(compiled_read);
}

/* What no gradient goes through is held to its elements, however they were come by. */

enum { OTHER_INPUTS = 5 }; /* as many cases are refused */

static cb_tensor *mask(bool again) {
    float bytes[WIDTH] = {1, again && how != 6, 1};
    cb_tensor *m = cb_from_data(bytes, CB_F32, WIDTH);
    if (how == 0 || how == 6) return m;
    if (how == 1) return cb_mul(cb_ones(WIDTH), again ? 2.0 : 3.0);
    if (how == 3) return again ? many[1] : many[0];
    if (how == 4) return again ? cb_exp(many[0]) : many[0];
    if (how == 5) return again ? own : (own = cb_keep(cb_full(cb_dims(WIDTH), 2.0)));
    if (how == 7) return again ? cb_clone(many[0]) : many[0];
    if (how == 8) return cb_full(cb_dims(WIDTH), 2.0);
    return cb_call(compiled_read, m); /* whose last bits may differ: anything passes */
}

static int masks(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    bool again = runs++ > 0;
    (void)count, (void)user;
    cb_tensor *h = cb_mul(x[0], w);
    if (how == 8 && again) cb_sum(cb_add(x[0], 1.0)); /* which goes nowhere */
    cb_no_grad_open();
    if (how == 2) cb_mul_(h, again ? 2.0 : 3.0);
    cb_no_grad_close();
    y[0] = cb_exp(how == 2 ? cb_add(h, 0.0) : cb_add(h, mask(again)));
    return 1;
}

static void elements_of_another_run(void **state) {
    (void)state;
    plainly = false;
    compiled_read = cb_compile(doubled);
    many[0] = cb_ones(WIDTH), many[1] = cb_zeros(WIDTH);
    for (how = 0; how < 10; how++) {
        runs = 0, w = leaf(cb_dims(WIDTH));
        cb_tensor *y = part(masks, NULL, cb_ones(cb_dims(ROWS, WIDTH)));
        if (how < OTHER_INPUTS)
            REFUSES(cb_backward(cb_sum(y), NULL), CB_ERR_ARGUMENT, "of other elements, where its");
        else
            assert_int_equal(cb_backward(cb_sum(y), NULL), CB_OK);
        assert_int_equal(runs, 2);
    }
    cb_free(own);
    own = NULL;
    cb_function_free(compiled_read);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(another_function),        TEST(refusals),
        TEST(reads_of_what_changed),   TEST(another_compiled_function),
        TEST(elements_of_another_run), TEST(values_of_what_changed),
        TEST(values_by_host),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
