/* Two threads that record at once: one segment, of which one uses more behind its end, so that the
 * entry that lets less cross is made last, and stands in for no other one; and one graph. */
#include "capture/function.h"
#include "capture_support.h"
#include "fixture.h"

#include <pthread.h>
#include <unistd.h>

static pthread_barrier_t both;
static __thread bool uses_product;
static bool at_once;

static cb_tensor *asks(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.5), *sum = cb_sum(y);
    cb_item(sum);
    cb_tensor *result = uses_product ? y : sum;
    if (at_once) pthread_barrier_wait(&both);
    if (at_once && !uses_product) usleep(20000); /* so that the other one is compiled first */
    return result;
}

typedef struct Stepper {
    cb_function *fast;
    bool uses_product;
} Stepper;

static void *call(void *user) {
    const Stepper *caller = user;
    cb_scope_open();
    uses_product = caller->uses_product;
    cb_tensor *x = cb_from_data(((float[]){1, 2, 3, 4}), CB_F32, cb_dims(4));
    cb_tensor *y = cb_call(caller->fast, x);
    float expected = uses_product ? 2.5F : 25;
    bool right = y && ((const float *)cb_data_const(y))[0] == expected;
    cb_scope_close();
    return right ? user : NULL;
}

static void narrow_after_wide(void **state) {
    (void)state;
    Stepper caller[2] = {{.uses_product = true}, {.uses_product = false}};
    pthread_t thread[2];
    void *right[2];
    pthread_barrier_init(&both, NULL, 2);
    cb_function *fast = caller[0].fast = caller[1].fast = cb_compile(asks, "dynamic=1");
    cb_set_option("cache", "0"); /* so that the first one takes its time */
    at_once = true;
    for (int t = 0; t < 2; t++)
        assert_int_equal(pthread_create(&thread[t], NULL, call, &caller[t]), 0);
    for (int t = 0; t < 2; t++) pthread_join(thread[t], &right[t]);
    assert_true(right[0] && right[1]);
    at_once = false;
    cb_set_option("cache", "1");
    for (int i = 0; i < 8; i++) assert_non_null(call(&caller[i / 2 % 2]));
    for (Entry *e = atomic_load(&fast->first); e; e = atomic_load(&e->next)) {
        int steps = 0; /* it ends */
        for (const Entry *w = e; w; w = atomic_load(&w->wider)) assert_in_range(++steps, 1, 8);
    }
    cb_function_free(fast);
    pthread_barrier_destroy(&both);
}

static cb_tensor *meets(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.5);
    if (at_once) pthread_barrier_wait(&both);
    return y;
}

static void *call_of_five(void *fast) {
    cb_scope_open();
    cb_tensor *y = cb_call((cb_function *)fast, cb_ones(5));
    cb_scope_close();
    return y ? fast : NULL;
}

/* Both threads miss a graph of their size, and one of them makes it: the reason is counted as the
 * graphs are. */
static void missed_by_both(void **state) {
    (void)state;
    pthread_t thread[2];
    void *right[2];
    pthread_barrier_init(&both, NULL, 2);
    cb_function *fast = cb_compile(meets, "dynamic=0, backend=vm");
    assert_non_null(cb_call(fast, cb_ones(3)));
    at_once = true;
    for (int t = 0; t < 2; t++)
        assert_int_equal(pthread_create(&thread[t], NULL, call_of_five, fast), 0);
    for (int t = 0; t < 2; t++) pthread_join(thread[t], &right[t]);
    assert_true(right[0] && right[1]);
    at_once = false;
    char *text = cb_explain(fast);
    assert_int_equal(cb_stats(fast).recompiles, 1);
    assert_non_null(strstr(text, "  recorded again: an input differs from every recorded graph ("));
    assert_null(strstr(text, " times"));
    cb_free_text(text);
    cb_function_free(fast);
    pthread_barrier_destroy(&both);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(narrow_after_wide, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(missed_by_both, open_scope, close_scope),
    };
    return run_counted(tests);
}
