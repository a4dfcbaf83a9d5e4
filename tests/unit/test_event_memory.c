/* One allocation fails in a call that asks for a value: what its first segment did, draws, writes
 * to leaves and gradients, is done once, and the call gives what eager does or an error. */
#include "capture_support.h"
#include "fixture.h"

enum { TWICE = 3, MOST_ALLOCATIONS = 200 };

static int way, until_failure = -1;
static cb_tensor *leaf;

static void *fail_one(void *user, void *pointer, size_t bytes) {
    (void)user;
    if (bytes && until_failure >= 0 && until_failure-- == 0) return NULL;
    if (bytes) return realloc(pointer, bytes);
    free(pointer);
    return NULL;
}

static cb_tensor *draws(cb_tensor *x) {
    cb_tensor *a = cb_mul(x, 2.0), *d = cb_dropout(a, 0.5, true);
    if (way) cb_item(cb_sum(a));
    cb_data(x);
    return cb_add(d, 1.0);
}

static cb_tensor *trains(cb_tensor *x) {
    cb_backward(cb_mul(cb_sum(cb_mul(leaf, leaf)), cb_sum(x)), NULL);
    cb_tensor *g = cb_tensor_grad(leaf);
    cb_no_grad_open();
    if (way) cb_assign_result(leaf, cb_sub(leaf, g));
    cb_no_grad_close();
    cb_data(x);
    return cb_mul(g, 1.0);
}

/* The gradient comes over the event. */
static cb_tensor *goes_over(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, leaf), *z = way ? cb_mul(y, y) : y;
    double size = cb_item(cb_sum(z));
    cb_backward(cb_mul(cb_sum(cb_mul(z, leaf)), size), NULL);
    return cb_tensor_grad(leaf) ? cb_mul(cb_tensor_grad(leaf), 1.0) : NULL;
}

static cb_tensor *new_leaf(void) {
    return cb_requires_grad_(cb_from_data(((float[]){1, 2, 3, -1}), CB_F32, cb_dims(4)), true);
}

/* All that a call leaves behind: results, the leaf, its gradient, the generator. */
typedef struct Seen {
    float result[4], leaf[4], gradient[4], next;
} Seen;

static Seen seen_of(cb_tensor *y) {
    Seen seen;
    memset(&seen, 0, sizeof seen);
    cb_read(cb_detach(y), seen.result, CB_F32);
    cb_read(cb_detach(leaf), seen.leaf, CB_F32);
    if (cb_tensor_grad(leaf)) cb_read(cb_tensor_grad(leaf), seen.gradient, CB_F32);
    seen.next = (float)cb_item(cb_rand(1));
    return seen;
}

/* After so many calls before; false: as many allocations as that there are not. */
static bool fails_at(cb_function_1 *function, int before, int at) {
    cb_scope_open();
    cb_function *fast = cb_compile(function, VM);
    cb_tensor *x = cb_ones(4), *mine = new_leaf(), *other = new_leaf();
    for (int i = 0; i < before; i++) {
        leaf = mine, function(x);
        leaf = other, cb_call(fast, x);
    }
    cb_manual_seed(1);
    leaf = mine;
    Seen wanted = seen_of(function(x));
    cb_manual_seed(1);
    leaf = other;
    until_failure = at;
    cb_tensor *y = cb_call(fast, x);
    bool failed = until_failure < 0;
    until_failure = -1;
    bool told = cb_error() != NULL;
    cb_clear_error();
    if (!told) {
        Seen got = seen_of(y);
        if (memcmp(&got, &wanted, sizeof got)) FAIL("way %d, call %d, %d", way, before, at);
    }
    cb_function_free(fast);
    cb_scope_close();
    return failed;
}

static void what_has_run_is_done_once(void **state) {
    (void)state;
    cb_function_1 *const function[] = {draws, trains, goes_over};
    cb_set_option("notices", "0");
    for (int k = 0; k < 3; k++)
        for (way = 0; way < 2; way++)
            for (int before = 0; before < TWICE; before++) {
                int at = 0;
                while (at < MOST_ALLOCATIONS && fails_at(function[k], before, at)) at++;
                assert_in_range(at, 1, MOST_ALLOCATIONS - 1);
            }
    cb_set_option("notices", "1");
}

int main(void) {
    cb_set_allocator((cb_allocator){fail_one, NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_has_run_is_done_once, open_scope, close_scope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
