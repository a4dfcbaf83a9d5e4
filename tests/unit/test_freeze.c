/* Frozen parameters: what follows from them is computed once, and again when they change. */
#include "elements.h"

#include "carbide.h"
#include "failing_once.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* conv + batch norm + relu, then linear: a small network with every kind of frozen part. */
static cb_tensor *forward(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)count;
    cb_tensor *x =
        cb_conv2d(inputs[0], cb_module_get(self, "weight"), cb_module_get(self, "bias"), 1, 1);
    x = cb_batch_norm(x, cb_module_get(self, "mean"), cb_module_get(self, "variance"),
                      cb_module_get(self, "gain"), NULL, cb_module_training(self));
    x = cb_adaptive_avg_pool2d(cb_relu(x), 1);
    return cb_linear(cb_flatten(x, 1), cb_mul(cb_module_get(self, "last"), 0.5), NULL);
}

static cb_module *network(void) {
    cb_manual_seed(7);
    cb_module *module = cb_module_new("Net", forward, NULL);
    cb_module_parameter(module, "weight", cb_randn(cb_dims(6, 3, 3, 3)));
    cb_module_parameter(module, "bias", cb_randn(cb_dims(6)));
    cb_module_buffer(module, "mean", cb_randn(cb_dims(6)));
    cb_module_buffer(module, "variance", cb_add(cb_rand(cb_dims(6)), 0.5));
    cb_module_parameter(module, "gain", cb_randn(cb_dims(6)));
    cb_module_parameter(module, "last", cb_randn(cb_dims(4, 6)));
    cb_module_train(module, false);
    return module;
}

static void expect_near(cb_tensor *found, cb_tensor *expected) {
    expect_tensor(found, expected, 1e-5, 0);
}

static void run(const char *options) {
    cb_scope_open();
    cb_module *module = network();
    cb_function *fast = cb_compile(module, options);
    cb_tensor *x = cb_randn(cb_dims(2, 3, 8, 8));
    for (int i = 0; i < 3; i++) expect_near(cb_call(fast, x), cb_forward(module, x));
    assert_int_equal(cb_stats(fast).graphs, 1);
    assert_int_equal(cb_stats(fast).kernels, 3); /* convolution, pool, product */
    cb_assign(cb_module_get(module, "gain"), cb_randn(cb_dims(6)));
    for (int i = 0; i < 3; i++) expect_near(cb_call(fast, x), cb_forward(module, x));
    assert_int_equal(cb_stats(fast).graphs, 2);
    ((float *)cb_data(cb_module_get(module, "last")))[5] = 3;
    cb_changed(cb_module_get(module, "last"));
    expect_near(cb_call(fast, x), cb_forward(module, x));
    for (int i = 0; i < 3; i++) { /* after three changes nothing is frozen any more */
        cb_fill_(cb_module_get(module, "bias"), 0.25 * i);
        expect_near(cb_call(fast, x), cb_forward(module, x));
    }
    assert_int_equal(cb_stats(fast).graphs, 4);
    assert_true(cb_stats(fast).kernels > 3);
    cb_function_free(fast);
    cb_module_free(module);
    assert_null(cb_error());
    cb_scope_close();
}

static void a_module_in_eval(void **state) {
    (void)state;
    run("backend=vm");
}

static void fullgraph(void **state) {
    (void)state;
    run("backend=vm, fullgraph=1");
}

static int kernels_of(cb_module *module, cb_tensor *x) {
    cb_function *fast = cb_compile(module, "backend=vm");
    expect_near(cb_call(fast, x), cb_forward(module, x));
    int kernels = (int)cb_stats(fast).kernels;
    cb_function_free(fast);
    return kernels;
}

/* Freezing is verified, left out and cut short by name and number, as every pass is. */
static void freezing_is_a_pass(void **state) {
    (void)state;
    cb_scope_open();
    cb_module *module = network();
    cb_tensor *x = cb_randn(cb_dims(2, 3, 8, 8));
    assert_int_equal(cb_set_option("verify", "1"), CB_OK);
    int frozen = kernels_of(module, x);
    assert_int_equal(cb_set_option("skip", "freeze"), CB_OK);
    int skipped = kernels_of(module, x);
    assert_int_equal(cb_set_option("skip", "attention,claim,fold,rewrite,absorb,layout"), CB_OK);
    int alone = kernels_of(module, x);
    assert_int_equal(cb_set_option("passes", "0"), CB_OK);
    int none = kernels_of(module, x);
    assert_int_equal(cb_set_option("passes", "-1"), CB_OK);
    assert_int_equal(cb_set_option("skip", ""), CB_OK);
    assert_int_equal(cb_set_option("verify", "0"), CB_OK);
    assert_true(frozen < skipped && alone < none);
    cb_module_free(module);
    assert_null(cb_error());
    cb_scope_close();
}

static void not_frozen(void **state) {
    (void)state;
    cb_scope_open();
    cb_module *module = network();
    cb_function *plain = cb_compile(module, "backend=vm, freeze=0");
    cb_tensor *x = cb_randn(cb_dims(2, 3, 8, 8));
    expect_near(cb_call(plain, x), cb_forward(module, x));
    assert_true(cb_stats(plain).kernels > 3);
    cb_function_free(plain);
    cb_module_train(module, true); /* statistics of the batch: nothing is frozen */
    cb_function *training = cb_compile(module, "backend=vm");
    expect_near(cb_call(training, x), cb_forward(module, x));
    cb_fill_(cb_module_get(module, "bias"), 0.25);
    expect_near(cb_call(training, x), cb_forward(module, x));
    assert_int_equal(cb_stats(training).graphs, 1);
    cb_function_free(training);
    cb_module_free(module);
    cb_scope_close();
}

static void a_replaced_parameter(void **state) {
    (void)state;
    cb_scope_open();
    cb_module *module = network();
    cb_function *fast = cb_compile(module, "backend=vm");
    cb_tensor *x = cb_randn(cb_dims(2, 3, 8, 8));
    expect_near(cb_call(fast, x), cb_forward(module, x));
    cb_module_buffer(module, "mean", cb_zeros(6));
    expect_near(cb_call(fast, x), cb_forward(module, x));
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_function_free(fast);
    cb_module_free(module);
    cb_scope_close();
}

static cb_tensor *table; /* what a plain function finds outside */

static cb_tensor *look_up(cb_tensor *i) { return cb_embedding(i, cb_square(table)); }
static cb_tensor *return_it(cb_tensor *x) {
    cb_add_(x, cb_mul(table, 2.0));
    return cb_transpose(cb_mul(table, 2.0), 0, 1);
}

static double factor;

static cb_tensor *add_and_scale(cb_tensor *x) { return cb_mul(cb_add(x, table), factor); }

static void captured_tensors(void **state) {
    (void)state;
    cb_scope_open();
    table = cb_transpose(cb_randn(cb_dims(3, 5)), 0, 1); /* strided */
    int64_t index[] = {4, 0, 2};
    cb_tensor *i = cb_from_data(index, CB_I64, cb_dims(3));
    cb_function *fast = cb_compile(look_up, "backend=vm, freeze=1");
    expect_near(cb_call(fast, i), look_up(i));
    assert_int_equal(cb_stats(fast).kernels, 2); /* the check of the indices, and one kernel */
    cb_function *second = cb_compile(return_it, "backend=vm, freeze=1");
    cb_tensor *x = cb_zeros(cb_dims(5, 3));
    cb_tensor *y = cb_call(second, x);
    expect_near(y, cb_transpose(cb_mul(table, 2.0), 0, 1));
    expect_near(x, cb_mul(table, 2.0));
    cb_fill_(table, 1);
    expect_near(cb_call(fast, i), cb_ones(cb_dims(3, 3)));
    cb_function_free(fast);
    cb_function_free(second);
    cb_scope_close();
}

/* A run that leaves its entry goes on in none that holds for another table. */
static void another_way_with_the_first_table(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *tables[] = {cb_full(cb_dims(3), 1.0), cb_full(cb_dims(3), 10.0)};
    cb_function *fast = cb_compile(add_and_scale, "backend=vm, freeze=1");
    static const int calls[][2] = {{0, 2}, {1, 2}, {1, 3}, {0, 3}, {1, 3}, {0, 2}};
    for (int i = 0; i < 6; i++) {
        table = tables[calls[i][0]], factor = calls[i][1];
        double expected = (calls[i][0] ? 11 : 2) * factor;
        expect_near(cb_call(fast, cb_ones(cb_dims(3))), cb_full(cb_dims(3), expected));
    }
    assert_int_equal(cb_stats(fast).graphs, 4);
    cb_function_free(fast);
    cb_scope_close();
}

/* ---- indices --------------------------------------------------------------------------------- */

static cb_tensor *place;

static cb_tensor *find_in_vain(cb_tensor *x) {
    cb_gather(x, 0, cb_add(place, 0));
    return cb_add(x, 1.0);
}

static cb_tensor *find_a_constant(cb_tensor *x) {
    return cb_add(x, cb_gather(cb_mul(table, 2.0), 0, place));
}

/* A frozen index is looked at once, with the constants; where it is out of range, by every call. */
static void expect_settled(cb_function_1 *function, const char *options) {
    cb_tensor *x = cb_ones(cb_dims(3));
    cb_function *fast = cb_compile(function, options);
    for (int value = 1; value < 5; value += 2)
        for (int i = 0; i < 3; i++) {
            char said[256] = "";
            if (i == 0) cb_fill_(place, value);
            cb_tensor *expected = function(x);
            if (cb_error()) snprintf(said, sizeof said, "%s", cb_error());
            cb_clear_error();
            assert_int_equal(*said != 0, value == 3);
            cb_tensor *got = cb_call(fast, x);
            if (value == 1) {
                expect_near(got, expected);
                continue;
            }
            assert_null(got);
            assert_non_null(cb_error());
            assert_string_equal(cb_error(), said);
            cb_clear_error();
        }
    assert_int_equal(cb_stats(fast).kernels, 1);
    assert_int_equal(cb_stats(fast).graphs, 1);
    char *explained = cb_explain(fast);
    if (strstr(explained, "while compiling")) fail_msg("%s", explained);
    free(explained);
    cb_function_free(fast);
}

static void frozen_indices_are_looked_at_once(void **state) {
    (void)state;
    cb_scope_open();
    table = cb_randn(cb_dims(3));
    place = cb_zeros(cb_dims(3), CB_I64);
    static const char *const options[] = {"backend=vm, freeze=1",
                                          "backend=vm, freeze=1, fullgraph=1"};
    for (int o = 0; o < 2; o++) {
        expect_settled(find_in_vain, options[o]);
        expect_settled(find_a_constant, options[o]);
    }
    assert_null(cb_error());
    cb_scope_close();
}

static cb_tensor *find_what_is_asked(cb_tensor *index) {
    cb_gather(table, 0, index); /* which nobody needs: its check is all that is left of it */
    return cb_mul(table, 2.0);
}

/* An index that is no frozen one is looked at by every call. */
static void other_indices_are_looked_at_always(void **state) {
    (void)state;
    cb_scope_open();
    table = cb_randn(cb_dims(3));
    cb_function *fast = cb_compile(find_what_is_asked, "backend=vm, freeze=1");
    for (int i = 1; i < 6; i++) {
        cb_tensor *index = cb_full(cb_dims(2), i % 2 ? i / 2 : 3, CB_I64);
        cb_tensor *got = cb_call(fast, index);
        if (i % 2) {
            expect_near(got, find_what_is_asked(index));
            continue;
        }
        assert_null(got);
        assert_non_null(strstr(cb_error(), "index 3 is out of range"));
        cb_clear_error();
    }
    assert_int_equal(cb_stats(fast).graphs, 1);
    cb_function_free(fast);
    cb_scope_close();
}

/* ---- large constants: made when they are wanted, one after the other ------------------------- */

enum { WIDE = 768, LAYERS = 6, WEIGHT_BYTES = WIDE * WIDE * 2 };

/* Products with converted weights; the last weight is read as it is as well. */
static cb_tensor *stack(cb_module *self, cb_tensor *const *inputs, int count) {
    static const char *const names[LAYERS] = {"0", "1", "2", "3", "4", "5"};
    cb_tensor *x = inputs[0], *weight = NULL;
    (void)count;
    for (int i = 0; i < LAYERS; i++) {
        weight = cb_to(cb_module_get(self, names[i]), CB_BF16);
        x = cb_relu(cb_linear(x, weight, NULL));
    }
    return cb_add(x, cb_narrow(weight, 0, 0, cb_size(x, 0)));
}

static cb_module *wide_stack(void) {
    static const char *const names[LAYERS] = {"0", "1", "2", "3", "4", "5"};
    cb_module *module = cb_module_new("Stack", stack, NULL);
    for (int i = 0; i < LAYERS; i++)
        cb_module_parameter(module, names[i], cb_mul(cb_randn(cb_dims(WIDE, WIDE)), 0.036));
    cb_module_train(module, false);
    return module;
}

static void large_constants(void **state) {
    (void)state;
    cb_set_option("provider", "own");
    cb_module *module = wide_stack();
    cb_scope_open();
    cb_tensor *x = cb_randn(cb_dims(4, WIDE), CB_BF16), *expected = cb_forward(module, x);
    cb_function *fast = cb_compile(module, "backend=vm");
    cb_scope_open();
    int64_t before = cb_memory().live_bytes;
    cb_tensor *y = cb_call(fast, x);
    double off = cb_item(cb_max(cb_abs(cb_sub(cb_to(y, CB_F32), cb_to(expected, CB_F32)))));
    assert_true(off < 0.05);
    cb_scope_close();
    /* packed weights, and the last as it is: the others are gone */
    int64_t held = cb_memory().live_bytes - before;
    int64_t least = (LAYERS + 1) * (int64_t)WEIGHT_BYTES, most = least + least / 8;
    if (cb_memory().peak_bytes - before > most + 2 * WEIGHT_BYTES || held > most)
        fail_msg("%lld bytes held, %lld at the peak", (long long)held,
                 (long long)(cb_memory().peak_bytes - before));
    cb_function_free(fast);
    cb_scope_close();
    cb_module_free(module);
    cb_set_option("provider", "auto");
}

/* ---- memory -------------------------------------------------------------------------------- */

static void fail_each_allocation(cb_module *module, cb_tensor *x) {
    cb_tensor *expected = cb_to(cb_forward(module, x), CB_F32);
    for (int64_t n = 0, done = 0; !done; n++) {
        cb_scope_open();
        cb_function *fast = cb_compile(module, "backend=vm");
        countdown = n;
        cb_tensor *y = cb_call(fast, x);
        done = countdown >= 0;
        countdown = -1;
        if (y && cb_dtype_of(y) == CB_F32) expect_near(y, expected);
        assert_true(y || cb_error());
        cb_clear_error();
        cb_function_free(fast);
        cb_scope_close();
    }
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    cb_module *module[] = {network(), wide_stack()};
    cb_scope_open();
    fail_each_allocation(module[0], cb_randn(cb_dims(1, 3, 4, 4)));
    fail_each_allocation(module[1], cb_randn(cb_dims(1, WIDE), CB_BF16));
    cb_scope_close();
    for (int i = 0; i < 2; i++) cb_module_free(module[i]);
}

int main(void) {
    cb_set_allocator((cb_allocator){fail_once, NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_module_in_eval),
        cmocka_unit_test(fullgraph),
        cmocka_unit_test(freezing_is_a_pass),
        cmocka_unit_test(not_frozen),
        cmocka_unit_test(a_replaced_parameter),
        cmocka_unit_test(captured_tensors),
        cmocka_unit_test(frozen_indices_are_looked_at_once),
        cmocka_unit_test(other_indices_are_looked_at_always),
        cmocka_unit_test(another_way_with_the_first_table),
        cmocka_unit_test(large_constants),
        cmocka_unit_test(every_allocation_may_fail),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
