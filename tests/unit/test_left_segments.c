/* What a call keeps of the segments that it has left: who is computed before which write. */
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

int main(void) {
    cb_set_allocator((cb_allocator){poison_freed, NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_values_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
