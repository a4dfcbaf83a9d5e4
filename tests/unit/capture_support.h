/* What the tests of compiled functions share: the comparison with eager, functions to compile, an
 * allocator that counts. */
#ifndef CARBIDE_TEST_CAPTURE_SUPPORT_H
#define CARBIDE_TEST_CAPTURE_SUPPORT_H

#include "../settle.h"
#include "elements.h"

#include "carbide.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VM "backend=vm"

static inline cb_tensor *ramp(int64_t rows, int64_t columns) {
    float data[64];
    assert_true(rows * columns <= 64);
    for (int64_t i = 0; i < rows * columns; i++) data[i] = (float)i * 0.25f - 1.0f;
    return cb_from_data(data, CB_F32, cb_dims(rows, columns));
}

static inline void expect_equal(cb_tensor *x, cb_tensor *y) {
    double limit = x && cb_dtype_of(x) == CB_F16 ? 2e-3 : 1e-5; /* fused chains keep f32 */
    expect_tensor(x, y, limit, limit);
    for (int d = 0; d < cb_rank(x); d++) assert_int_equal(cb_stride(x, d), cb_stride(y, d));
}

/* The function compiled and eager on the same fresh inputs, three times; inputs are compared
 * too. */
static inline void expect_same_2(cb_function_2 *function, const char *options, int graphs) {
    cb_function *fast = cb_compile(function, options);
    assert_non_null(fast);
    for (int round = 0; round < 3; round++) {
        cb_scope_open();
        cb_tensor *x = ramp(3, 4), *y = ramp(3, 4), *u = ramp(3, 4), *v = ramp(3, 4);
        cb_tensor *expected = function(x, y);
        expect_equal(cb_call(fast, u, v), expected);
        expect_equal(u, x);
        expect_equal(v, y);
        cb_scope_close();
    }
    assert_int_equal(cb_stats(fast).graphs, graphs);
    cb_function_free(fast);
    assert_null(cb_error());
}

static inline cb_tensor *gelu(cb_tensor *x) {
    cb_tensor *u = cb_mul(cb_add(x, cb_mul(cb_pow(x, 3.0), 0.044715)), 0.7978845608);
    return cb_mul(cb_mul(x, 0.5), cb_add(cb_tanh(u), 1.0));
}

static inline cb_tensor *write_views(cb_tensor *x, cb_tensor *y) {
    cb_tensor *z = cb_mul(x, 3.0);
    cb_tensor *row = cb_select(z, 0, 1), *even = cb_slice(z, 1, 0, 4, 2);
    cb_tensor *turned = cb_transpose(z, 0, 1), *flat = cb_view(z, cb_dims(12));
    cb_assign(row, cb_select(y, 0, 2));
    cb_mul_(even, 10.0);
    cb_assign(cb_select(turned, 0, 3), cb_exp(cb_select(turned, 0, 0)));
    cb_fill_(cb_narrow(flat, 0, 9, 2), 7.0);
    cb_add_(cb_unsqueeze(row, 0), 1.0);
    return cb_add(z, y);
}

static inline cb_tensor *write_input_view(cb_tensor *x, cb_tensor *y) {
    cb_tensor *last = cb_select(x, 1, -1);
    cb_assign(last, cb_sum(y, 1));
    cb_add_(x, 1.0);
    return cb_add(last, 1.0);
}

static inline cb_tensor *noisy(cb_tensor *x) {
    cb_tensor *dead = cb_rand_like(x);
    (void)dead;
    cb_tensor *a = cb_randn_like(x), *b = cb_dropout(x, 0.5, true);
    return cb_add(cb_add(a, b), cb_rand(cb_dims(4)));
}

/* ---- allocations ----------------------------------------------------------------------------- */

static int64_t blocks __attribute__((unused)), countdown __attribute__((unused)) = -1;

/* Counts blocks that live; the countdown-th allocation from now fails, and all after it. */
static inline void *counting_resize(void *user, void *pointer, size_t bytes) {
    (void)user;
    if (bytes == 0) {
        if (pointer) __atomic_sub_fetch(&blocks, 1, __ATOMIC_RELAXED);
        free(pointer);
        return NULL;
    }
    if (countdown == 0) return NULL;
    if (countdown > 0) countdown--;
    void *grown = realloc(pointer, bytes);
    if (grown && !pointer) __atomic_add_fetch(&blocks, 1, __ATOMIC_RELAXED);
    return grown;
}

static inline int free_everything(void **state) {
    (void)state;
    cb_cleanup();
    if (blocks) print_error("%lld blocks leaked\n", (long long)blocks);
    return blocks != 0;
}

/* The tests one after the other, then that nothing is left. */
#define run_counted(tests)                                                                         \
    (cb_set_allocator((cb_allocator){counting_resize, NULL}), settle_slots(),                      \
     cmocka_run_group_tests(tests, NULL, free_everything))

#endif
