/* What a call keeps of the segments that it has left: who is computed before which write, what is
 * learnt of a round for those after it, and what ends where the state around the call changes. */
#include "capture_support.h"
#include "poisoning.h"

/* ---- what waits for a write ------------------------------------------------------------------ */

enum { WEIGHTS = 24, ROUNDS = 96 };

static cb_tensor *weight[WEIGHTS];
static bool uses;

/* Each round leaves a value that waits for one of the weights, or for two; some die, and weights
 * are written to, so that those that wait for them are computed, and others are not. */
static cb_tensor *many_wait(cb_tensor *x) {
    cb_tensor *waits[ROUNDS], *sum = x;
    for (int i = 0; i < ROUNDS; i++) {
        cb_tensor *a = weight[i * 5 % WEIGHTS], *b = weight[i * 7 % WEIGHTS];
        waits[i] = i % 2 ? cb_mul(a, 3.0) : cb_mul(a, b);
        double first = cb_item(cb_sum(i % 2 ? a : b));
        if (i % 3 == 0) cb_add_(weight[i * 11 % WEIGHTS], 1.0);
        if (i % 8 == 7) cb_free(waits[i - 4]), waits[i - 4] = NULL;
        sum = cb_add(sum, first + cb_item(cb_sum(weight[i * 11 % WEIGHTS])));
    }
    for (int i = 0; uses && i < ROUNDS; i++)
        if (waits[i]) sum = cb_add(sum, cb_mul(waits[i], 1.0 + i));
    return sum;
}

static cb_tensor *from_the_beginning(cb_function *fast, cb_tensor *x) {
    for (int k = 0; k < WEIGHTS; k++) cb_fill_(weight[k], 0.125 * k);
    return fast ? cb_call(fast, x) : many_wait(x);
}

static void many_values_wait(void **state) {
    (void)state;
    for (int k = 0; k < WEIGHTS; k++) weight[k] = ramp(2, 3);
    cb_function *fast = cb_compile(many_wait, VM);
    cb_tensor *x = ramp(2, 3);
    for (int call = 0; call < 6; call++) {
        uses = call >= 3;
        expect_equal(from_the_beginning(fast, x), from_the_beginning(NULL, x));
    }
    uses = false;
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

/* A write that is never recorded, between two values. */
static cb_tensor *writes_at_once(cb_tensor *x) {
    cb_tensor *waits = cb_exp(x);
    double sum = cb_item(cb_sum(x));
    cb_disable_open();
    cb_add_(x, 1.0);
    cb_disable_close();
    return uses ? cb_mul(waits, sum) : cb_mul(x, sum);
}

static void values_wait_for_no_write_at_once(void **state) {
    (void)state;
    cb_function *fast = cb_compile(writes_at_once, VM);
    for (int call = 0; call < 6; call++) {
        uses = call >= 3;
        cb_tensor *x = ramp(3, 4), *y = ramp(3, 4);
        expect_equal(cb_call(fast, x), writes_at_once(y));
        expect_equal(x, y);
    }
    uses = false;
    cb_function_free(fast);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* All that lives of the first round, which the others are like, dies before one of them is asked
 * for. */
static cb_tensor *rounds_outlive_the_first(cb_tensor *x) {
    cb_tensor *value[5];
    double sum = cb_item(cb_sum(x));
    for (int i = 0; i < 5; i++) {
        cb_scope_open();
        value[i] = cb_keep(cb_mul(x, 2.0));
        sum += cb_item(cb_sum(value[i]));
        cb_scope_close();
    }
    for (int i = 0; i < 5; i++) cb_scope_add(value[i]);
    cb_free(value[0]), cb_free(value[1]);
    return cb_add(cb_add(value[2], value[4]), sum);
}

static void others_outlive_the_first(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        cb_function *fast = cb_compile(rounds_outlive_the_first, VM);
        cb_tensor *x = ramp(3, 4);
        for (int call = 0; call < 3; call++)
            expect_equal(cb_call(fast, x), rounds_outlive_the_first(x));
        cb_function_free(fast);
    }
}

/* In the first round its value is used behind the event; the second one, with another number, is
 * the one that is compiled. */
static cb_tensor *uses_the_first(cb_tensor *x) {
    cb_tensor *result = x;
    cb_item(cb_sum(x));
    for (int i = 0; i < 2; i++) {
        cb_tensor *value = cb_exp(cb_mul(weight[0], 2.0 + i));
        double sum = cb_item(cb_sum(value));
        if (i == 0) result = cb_add(result, cb_mul(value, sum));
        cb_item(cb_sum(result));
    }
    return result;
}

static void rounds_learn_of_each_other(void **state) {
    (void)state;
    weight[0] = cb_mul(ramp(3, 4), 0.1);
    cb_function *fast = cb_compile(uses_the_first, VM);
    cb_tensor *x = ramp(3, 4);
    for (int call = 0; call < 4; call++) expect_equal(cb_call(fast, x), uses_the_first(x));
    assert_int_equal(cb_stats(fast).graphs, 4); /* of which none had to be made wider */
    cb_function_free(fast);
}

/* ---- the state around the call --------------------------------------------------------------- */

static bool sets;

/* 1 + 2^-11, which is no f16, minus 1: what precise rounds away. */
static cb_tensor *sets_behind_a_value(cb_tensor *x) {
    double sum = cb_item(cb_sum(cb_mul(x, 2.0)));
    if (sets) cb_set_option("precise", "1");
    return cb_sub(cb_add(x, sum < 1e9), 1);
}

static void segments_follow_in_their_state(void **state) {
    (void)state;
    cb_function *fast = cb_compile(sets_behind_a_value, VM);
    cb_tensor *x = cb_to(cb_full(cb_dims(3), 0x1p-11), CB_F16);
    for (int call = 0; call < 9; call++) {
        sets = call % 3 == 2;
        cb_tensor *y = cb_call(fast, x);
        cb_set_option("precise", "0");
        expect_tensor(y, sets ? cb_zeros_like(x) : x, 0, 0);
    }
    cb_function_free(fast);
}

static bool halves;

static cb_tensor *opens_autocast(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    if (halves) cb_autocast_open(CB_BF16);
    y = cb_matmul(y, x);
    if (halves) cb_autocast_close();
    return y;
}

static void autocast_is_that_of_each_op(void **state) {
    (void)state;
    cb_function *fast = cb_compile(opens_autocast, VM);
    cb_tensor *x = ramp(3, 3);
    for (int call = 0; call < 6; call++) {
        halves = call >= 2 && call != 4;
        expect_tensor(cb_call(fast, x), opens_autocast(x), 1e-5, 1e-5);
    }
    cb_function_free(fast);
}

static int runs;

static cb_status count_run(const cb_op_call *call) {
    runs++;
    memcpy(call->output[0].data, call->input[0].data, 6 * sizeof(float));
    return CB_OK;
}

/* Behind what was counted the state changes, and nobody asks for what lives there, if it does. */
static cb_tensor *changes_the_state(cb_tensor *x) {
    cb_tensor *counted = cb_call_op("left.count", &x, 1, CB_NO_DIMS, CB_NO_FLOATS);
    cb_tensor *lives = cb_add(counted, 1.0), *sum = cb_sum(counted);
    if (!uses) cb_free(lives);
    cb_set_option("precise", "1");
    double value = cb_item(sum);
    cb_set_option("precise", "0");
    return cb_add(x, value);
}

/* Nothing waits there, to be computed once more, and no call but the first is recorded for it. */
static void what_lives_where_the_state_changes_crosses(void **state) {
    (void)state;
    const cb_custom_op op = {.name = "left.count", .inputs = 1, .outputs = 1, .kernel = count_run};
    assert_int_equal(cb_register_op(&op), CB_OK);
    for (int i = 0; i < 2; i++) {
        cb_function *fast = cb_compile(changes_the_state, VM);
        cb_tensor *x = ramp(2, 3);
        for (int call = 0; call < 6; call++) {
            uses = i || call >= 3;
            cb_tensor *expected = changes_the_state(x);
            int64_t breaks = cb_stats(fast).breaks;
            runs = 0;
            expect_equal(cb_call(fast, x), expected);
            assert_int_equal(runs, 1);
            assert_true(call % 3 == 0 || cb_stats(fast).breaks == breaks);
        }
        cb_function_free(fast);
    }
    uses = false;
}

int main(void) {
    cb_set_allocator((cb_allocator){poison_freed, NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_values_wait),
        cmocka_unit_test(values_wait_for_no_write_at_once),
        cmocka_unit_test(others_outlive_the_first),
        cmocka_unit_test(rounds_learn_of_each_other),
        cmocka_unit_test(segments_follow_in_their_state),
        cmocka_unit_test(autocast_is_that_of_each_op),
        cmocka_unit_test(what_lives_where_the_state_changes_crosses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
