/* Compiled functions that write their inputs, return them or views of them, or have several
 * results, against the same functions run eagerly. */
#include "capture_support.h"

#include "device/device.h"
#include "op/op.h"

/* ---- in-place writes and views --------------------------------------------------------------- */

static cb_tensor *write_input(cb_tensor *x, cb_tensor *y) {
    cb_add_(x, y);
    return cb_mul(x, 2.0);
}

static cb_tensor *write_twice(cb_tensor *x, cb_tensor *y) {
    cb_tensor *old = cb_add(x, 0.0);
    cb_assign(x, y);
    cb_assign(y, old);
    return cb_sub(x, y);
}

static cb_tensor *write_copy(cb_tensor *x, cb_tensor *y) {
    cb_tensor *same = cb_contiguous(x), *copy = cb_clone(x), *cut = cb_reshape(x, cb_dims(12));
    cb_fill_(copy, 5.0);
    cb_fill_(cb_narrow(cut, 0, 0, 1), 9.0);
    cb_add_(same, y);
    return cb_add(copy, x);
}

static cb_tensor *returns_input(cb_tensor *x, cb_tensor *y) {
    cb_mul_(x, y);
    return x;
}

static cb_tensor *returns_input_view(cb_tensor *x, cb_tensor *y) {
    cb_mul_(x, y);
    return cb_slice(cb_transpose(x, 0, 1), 0, 1, 4, 2);
}

static cb_tensor *returns_turned(cb_tensor *x, cb_tensor *y) {
    return cb_transpose(cb_add(x, y), 0, 1);
}

static cb_tensor *returns_copy(cb_tensor *x, cb_tensor *y) {
    (void)y;
    return cb_mul(cb_clone(x), 1.0);
}

static cb_tensor *writes_only(cb_tensor *x, cb_tensor *y) {
    cb_sub_(x, cb_mul(y, 0.5));
    return cb_zeros(cb_dims(1));
}

static void test_writes(void **state) {
    (void)state;
    cb_function_2 *functions[] = {write_input,  write_views,   write_input_view,   write_twice,
                                  write_copy,   returns_input, returns_input_view, returns_turned,
                                  returns_copy, writes_only};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        expect_same_2(functions[i], VM, 1);
}

/* ---- writes to parts of inputs --------------------------------------------------------------- */

static cb_tensor *writes_rows(cb_tensor *x, cb_tensor *y) {
    cb_assign(cb_slice(x, 0, 1, 2), cb_slice(y, 0, 2, 3));
    cb_mul_(cb_select(x, 0, 0), 3.0);
    cb_tensor *two = cb_narrow(cb_slice(y, 0, 1, 2), 1, 0, 2); /* the rest is another row's */
    cb_assign(cb_slice(x, 0, 2, 3), cb_slice_scatter(cb_slice(x, 0, 0, 1), two, 1, 1, 3));
    return cb_sum(x, cb_dims(1));
}

/* The second write reads what the first one wrote, the third a place of the old x. */
static cb_tensor *writes_steps(cb_tensor *x, cb_tensor *y) {
    cb_tensor *old = cb_mul(x, 1.5);
    cb_assign(cb_slice(cb_slice(x, 0, 0, 3, 2), 1, 1, 4, 2),
              cb_narrow(cb_slice(y, 0, 0, 2), 1, 0, 2));
    cb_add_(cb_slice(x, 0, 1, 3), cb_slice(x, 0, 0, 2));
    cb_assign(cb_select(x, 1, 3), cb_select(old, 1, 2));
    return cb_add(x, old);
}

static cb_tensor *writes_steps_of_y(cb_tensor *x, cb_tensor *y) {
    cb_assign(cb_slice(cb_slice(x, 0, 0, 3, 2), 1, 1, 4, 2),
              cb_narrow(cb_narrow(y, 0, 0, 2), 1, 2, 2));
    return cb_matmul(x, cb_transpose(y, 0, 1)); /* x is needed in memory */
}

/* Each input takes a part of the other one. */
static cb_tensor *writes_across(cb_tensor *x, cb_tensor *y) {
    cb_tensor *first = cb_clone(cb_select(x, 0, 0));
    cb_assign(cb_select(x, 0, 0), cb_select(y, 0, 1));
    cb_assign(cb_select(y, 0, 1), first);
    cb_fill_(cb_slice(x, 1, 2, 2), 7.0); /* nothing */
    return cb_neg(cb_select(x, 1, 1));
}

static cb_tensor *writes_turned(cb_tensor *x, cb_tensor *y) {
    cb_tensor *turned = cb_transpose(x, 0, 1);
    cb_assign(cb_slice(turned, 0, 1, 3), cb_slice(cb_transpose(y, 0, 1), 0, 0, 2));
    cb_fill_(cb_select(cb_flip(x, cb_dims(0)), 0, 0), 2.0);
    return cb_add(turned, 1.0);
}

static cb_tensor *writes_often(cb_tensor *x, cb_tensor *y) {
    for (int i = 0; i < 24; i++) cb_add_(cb_select(x, 1, i % 4), cb_select(y, 1, i % 3));
    return cb_sum(x);
}

static void test_parts(void **state) {
    (void)state;
    static cb_function_2 *const functions[] = {writes_rows,   writes_steps,  writes_steps_of_y,
                                               writes_across, writes_turned, writes_often};
    for (size_t i = 0; i < 2 * sizeof functions / sizeof *functions; i++)
        expect_same_2(functions[i / 2], i % 2 ? "backend=c" : VM,
                      functions[i / 2] == writes_often ? 4 : 1); /* cut behind 8 writes */
}

/* ---- writes through each view of the op table ------------------------------------------------ */

static Op view_op;

/* Of f32[3, 4]; a new view has a line here. */
static cb_tensor *view_of(cb_tensor *x) {
    cb_tensor *one = cb_slice(x, 1, 0, 1);
    switch (view_op) {
    case OP_reshape:
        return cb_reshape(x, cb_dims(2, 6));
    case OP_permute:
        return cb_permute(cb_reshape(x, cb_dims(3, 2, 2)), cb_dims(2, 0, 1));
    case OP_expand:
        return cb_expand(one, cb_dims(1, 3, 1));
    case OP_slice:
        return cb_slice(x, 1, 1, 4, 2);
    case OP_flip:
        return cb_flip(x, cb_dims(0));
    case OP_view:
        return cb_view(x, cb_dims(4, 3));
    case OP_flatten:
        return cb_flatten(x, 0, 1);
    case OP_unflatten:
        return cb_unflatten(x, 1, cb_dims(2, 2));
    case OP_squeeze:
        return cb_squeeze(one, 1);
    case OP_unsqueeze:
        return cb_unsqueeze(x, 1);
    case OP_transpose:
        return cb_transpose(x, 0, 1);
    case OP_t:
        return cb_t(x);
    case OP_select:
        return cb_select(x, 1, 2);
    case OP_narrow:
        return cb_narrow(x, 1, 1, 2);
    case OP_broadcast_to:
        return cb_broadcast_to(one, cb_dims(1, 3, 1));
    case OP_window:
        return cb_window(x, 1, 2, 2, 1);
    default:
        return NULL;
    }
}

static cb_tensor *writes_through(cb_tensor *x, cb_tensor *y) {
    cb_tensor *view = view_of(x);
    cb_mul_(view, 3.0);
    cb_add_(view_of(x), cb_mul(view_of(y), 2.0));
    return cb_add(view, 1.0);
}

static void test_each_view(void **state) {
    (void)state;
    for (view_op = 0; view_op < OP_COUNT; view_op++)
        if (op_info(view_op)->kind == KIND_VIEW) expect_same_2(writes_through, VM, 1);
}

/* ---- parts that are written by the kernel that computes them --------------------------------- */

enum { SIDE = 100 };

static cb_tensor *inside(cb_tensor *x) {
    return cb_slice(cb_slice(x, 0, 1, SIDE - 1), 1, 1, SIDE - 1);
}

static cb_tensor *updates(cb_tensor *x, cb_tensor *y) {
    cb_tensor *old = cb_clone(cb_slice(x, 0, 9, 25));
    cb_mul_(inside(x), 0.5);
    return cb_assign(cb_slice(y, 0, 0, 16), cb_exp(old));
}

/* What is read elsewhere, and what is read behind the write. */
static cb_tensor *reads_around(cb_tensor *x, cb_tensor *y) {
    cb_tensor *before = cb_sum(x, cb_dims(0));
    cb_assign(inside(x), cb_add(cb_mul(inside(x), 2.0), inside(y)));
    cb_assign(inside(y), cb_sin(cb_slice(cb_slice(y, 0, 0, SIDE - 2), 1, 1, SIDE - 1)));
    return before;
}

/* Two of one kernel, of which one reads what the other writes. */
static cb_tensor *writes_beside(cb_tensor *x, cb_tensor *y) {
    cb_tensor *sum = cb_add(inside(x), inside(y));
    cb_assign(inside(x), sum);
    cb_assign(inside(y), cb_mul(sum, 0.25));
    return cb_neg(x);
}

static void test_written_where_it_lies(void **state) {
    (void)state;
    static cb_function_2 *const functions[] = {updates, reads_around, writes_beside};
    cb_scope_open();
    for (int k = 0; k < 6; k++) {
        cb_function_2 *function = functions[k / 2];
        cb_function *fast = cb_compile(function, k % 2 ? "backend=c" : VM);
        for (int turned = 0; turned < 2; turned++) {
            cb_tensor *x[2], *y[2];
            for (int i = 0; i < 2; i++) {
                x[i] = cb_mul(cb_reshape(cb_arange(0, SIDE * SIDE), cb_dims(SIDE, SIDE)), 1e-4);
                y[i] = cb_sin(x[i]);
                if (turned) x[i] = cb_t(x[i]);
            }
            expect_tensor(cb_call(fast, x[0], y[0]), function(x[1], y[1]), 1e-6, 1e-6);
            expect_tensor(x[0], x[1], 1e-6, 1e-6);
            expect_tensor(y[0], y[1], 1e-6, 1e-6);
        }
        cb_function_free(fast);
    }
    cb_scope_close();
}

static cb_tensor *writes_far(cb_tensor *x) {
    cb_tensor *every_third = cb_slice(x, 0, 100, 200, 3);
    cb_fill_(cb_slice(every_third, 0, 2, 20, 2), 5.0);
    return cb_sum(cb_slice(x, 0, 90, 150));
}

static void test_steps_of_steps(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(writes_far, VM);
    cb_tensor *x = cb_arange(0, 300), *y = cb_arange(0, 300);
    expect_equal(cb_call(fast, x), writes_far(y));
    expect_equal(x, y);
    cb_function_free(fast);
    cb_scope_close();
}

static cb_tensor *cache;

static cb_tensor *puts_slot(cb_tensor *x) {
    cb_assign(cb_slice(cache, 1, 5, 6), x);
    return cb_sum(cb_slice(cache, 1, 4, 7));
}

/* A slot of a cache costs what the slot has, wherever the cache lies. */
static void test_slot_of_a_cache(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(puts_slot, VM);
    cb_tensor *x = cb_ones(cb_dims(2, 1, 3));
    for (int i = 0; i < 3; i++) {
        cache =
            i < 2 ? cb_zeros(cb_dims(2, 900, 3)) : cb_transpose(cb_zeros(cb_dims(3, 900, 2)), 0, 2);
        assert_true(cb_item(cb_call(fast, x)) == 6);
        assert_true(cb_item(cb_sum(cache)) == 6);
        assert_true(cb_item(cb_sum(cb_select(cache, 1, 5))) == 6);
    }
    char *text = cb_explain(fast);

    assert_non_null(strstr(text, "memory traffic: 148 bytes"));
    cb_free_text(text);
    cb_function_free(fast);
    cb_scope_close();
}

/* ---- views that show an element at several places -------------------------------------------- */

static cb_tensor *through_expanded(cb_tensor *x, cb_tensor *y) {
    cb_tensor *rows = cb_expand(cb_slice(x, 0, 0, 1), cb_dims(3, 4));
    cb_assign(cb_select(rows, 0, 2), cb_select(y, 0, 1));
    return cb_add(rows, x);
}

static cb_tensor *through_windows(cb_tensor *x, cb_tensor *y) {
    cb_tensor *windows = cb_window(x, 1, 2);
    cb_assign(cb_select(windows, 2, 0), cb_slice(y, 1, 1));
    return cb_mul(windows, 2.0);
}

static cb_tensor *through_apart(cb_tensor *x, cb_tensor *y) { /* windows that do not overlap */
    cb_assign(cb_select(cb_window(x, 1, 2, 2), 2, 1), cb_slice(y, 1, 2));
    return cb_mul(x, 2.0);
}

static cb_tensor *through_dilated(cb_tensor *x, cb_tensor *y) { /* columns 0 and 2, 1 and 3 */
    cb_assign(cb_select(cb_window(x, 1, 2, 1, 2), 2, 1), cb_slice(y, 1, 0, 2));
    return cb_mul(x, 2.0);
}

static cb_tensor *through_a_window_of_a_number(cb_tensor *x, cb_tensor *y) {
    cb_tensor *sum = cb_mul(cb_sum(x), 2.0);
    cb_sub_(cb_window(sum, 0, 1), cb_select(cb_select(y, 0, 0), 0, 1));
    return sum;
}

static void test_repeating_views(void **state) {
    (void)state;
    expect_same_2(through_expanded, VM, 0);
    expect_same_2(through_windows, VM, 0);
    expect_same_2(through_apart, VM, 1);
    expect_same_2(through_dilated, VM, 1);
    expect_same_2(through_a_window_of_a_number, VM, 1);
    cb_function *whole = cb_compile(through_windows, "fullgraph=1," VM);
    cb_scope_open();
    cb_tensor *x = ramp(3, 4), *y = ramp(3, 4);
    assert_null(cb_call(whole, x, y));
    assert_non_null(strstr(cb_error(), "at several places"));
    cb_clear_error();
    expect_equal(x, ramp(3, 4));
    cb_scope_close();
    cb_function_free(whole);
}

/* An expanded input: its rows are one in memory. */
static cb_tensor *writes_a_row(cb_tensor *x, cb_tensor *y) {
    cb_assign(cb_select(x, 0, 1), cb_select(y, 0, 1));
    return cb_add(x, 1.0);
}

static void test_repeating_input(void **state) {
    (void)state;
    cb_function *fast = cb_compile(writes_a_row, VM);
    cb_scope_open();
    cb_tensor *y = ramp(3, 4);
    for (int round = 0; round < 3; round++) {
        cb_tensor *x = cb_expand(cb_slice(ramp(3, 4), 0, 0, 1), cb_dims(3, 4));
        cb_tensor *same = cb_expand(cb_slice(ramp(3, 4), 0, 0, 1), cb_dims(3, 4));
        cb_tensor *expected = writes_a_row(same, y);
        expect_equal(cb_call(fast, x, y), expected);
        expect_equal(x, same);
    }
    cb_scope_close();
    cb_function_free(fast);
}

/* A view without elements of a base that has some. */
static cb_tensor *writes_nothing(cb_tensor *x, cb_tensor *y) {
    cb_assign(cb_expand(cb_slice(x, 1, 0, 1), cb_dims(0, 3, 4)), y);
    return cb_add(x, y);
}

static void test_nothing_of_something(void **state) {
    (void)state;
    expect_same_2(writes_nothing, VM, 1);
}

/* With every call checked against the float64 VM nothing is reported, and results stay the same. */
static void test_checked(void **state) {
    (void)state;
    cb_scope_open();
    cb_set_option("check", "1");
    expect_same_2(write_views, VM, 1);
    expect_same_2(write_input_view, VM, 1);
    cb_function *fast = cb_compile(noisy, VM);
    cb_tensor *x = ramp(8, 4);
    for (int i = 0; i < 3; i++) {
        cb_manual_seed(3);
        cb_tensor *expected = noisy(x);
        cb_manual_seed(3);
        expect_equal(cb_call(fast, x), expected);
    }
    char *text = cb_explain(fast);
    assert_null(strstr(text, "float64"));
    cb_free_text(text);
    cb_function_free(fast);
    cb_set_option("check", "0");
    cb_scope_close();
}

static void test_identity_of_results(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *self = cb_compile(returns_input, VM), *view = cb_compile(returns_input_view, VM);
    cb_function *copy = cb_compile(returns_copy, VM);
    cb_tensor *x = ramp(3, 4), *y = ramp(3, 4);
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(cb_call(self, x, y), x);
        assert_true(cb_shares_storage(cb_call(view, x, y), x));
        assert_false(cb_shares_storage(cb_call(copy, x, y), x));
    }
    cb_function_free(self);
    cb_function_free(view);
    cb_function_free(copy);
    cb_scope_close();
}

static void test_shared_inputs(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(write_input, VM);
    cb_tensor *x = ramp(3, 4), *y = ramp(3, 4);
    expect_equal(cb_call(fast, x, x), write_input(y, y)); /* x += x */
    expect_equal(x, y);
    expect_equal(cb_call(fast, x, ramp(3, 4)), write_input(y, ramp(3, 4)));
    expect_equal(cb_call(fast, x, x), write_input(y, y));
    cb_tensor *whole = ramp(6, 4), *other = ramp(6, 4); /* two halves of one storage are apart */
    cb_tensor *result = cb_call(fast, cb_narrow(whole, 0, 0, 3), cb_narrow(whole, 0, 3, 3));
    expect_equal(result, write_input(cb_narrow(other, 0, 0, 3), cb_narrow(other, 0, 3, 3)));
    expect_equal(whole, other);
    assert_int_equal(cb_stats(fast).graphs, 2);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    cb_scope_close();
}

/* ---- several results ----------------------------------------------------------------------- */

static int several(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)count;
    (void)user;
    cb_tensor *y = cb_exp(inputs[0]);
    outputs[0] = y;
    outputs[1] = cb_select(y, 0, 1);
    outputs[2] = NULL;
    outputs[3] = y;
    outputs[4] = inputs[0];
    outputs[5] = cb_exp(inputs[0]); /* the same node, another storage */
    outputs[6] = cb_select(cb_mul(y, 2.0), 0, 0);
    return 7;
}

static void test_several(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile_n(several, NULL, VM);
    cb_tensor *x = ramp(3, 4), *got[7], *expected[7];
    several(&x, 1, expected, NULL);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(cb_call_n(fast, &x, 1, got, 7), 7);
        assert_null(got[2]);
        assert_ptr_equal(got[3], got[0]);
        assert_ptr_equal(got[4], x);
        assert_true(cb_shares_storage(got[1], got[0]));
        assert_false(cb_shares_storage(got[5], got[0]));
        for (int k = 0; k < 7; k++)
            if (k != 2) expect_equal(got[k], expected[k]);
    }
    assert_int_equal(cb_call_n(fast, &x, 1, got, 3), CB_ERR_ARGUMENT);
    assert_non_null(strstr(cb_error(), "7 results"));
    cb_clear_error();
    cb_function_free(fast);
    cb_scope_close();
}

static cb_tensor *hidden;

static cb_tensor *recurrent(cb_tensor *x) {
    cb_tensor *old = hidden;
    hidden = cb_keep(cb_tanh(cb_add(x, hidden)));
    cb_free(old);
    return cb_mul(hidden, 2.0);
}

static void test_kept_state(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(recurrent, VM);
    cb_tensor *x = ramp(2, 3), *expected[4];
    hidden = cb_keep(cb_zeros(cb_dims(2, 3)));
    for (int i = 0; i < 4; i++) expected[i] = recurrent(x);
    cb_free(hidden);
    hidden = cb_keep(cb_zeros(cb_dims(2, 3)));
    for (int i = 0; i < 4; i++) expect_equal(cb_call(fast, x), expected[i]);
    cb_free(hidden);
    assert_int_equal(cb_stats(fast).graphs, 1);
    cb_function_free(fast);
    cb_scope_close();
}

/* ---- several tensors, each element from those at its place ----------------------------------- */

static cb_tensor *exchanges(cb_tensor *p, cb_tensor *g, cb_tensor *m, cb_tensor *v) {
    cb_tensor *was = cb_clone(m), *first = cb_clone(p);
    cb_tensor *difference = cb_sub(v, g);
    cb_assign(m, difference);
    cb_assign(v, cb_sub(was, g));
    cb_assign(p, cb_mul(g, 2.0));
    cb_assign(g, cb_mul(first, difference));
    return cb_zeros(1);
}

static cb_tensor *adam(cb_tensor *p, cb_tensor *g, cb_tensor *m, cb_tensor *v) {
    g = cb_add(g, cb_mul(p, 0.0625));
    cb_add_(cb_mul_(m, 0.875), cb_mul(g, 0.125));
    cb_add_(cb_mul_(v, 0.75), cb_mul(cb_square(g), 0.25));
    cb_sub_(p, cb_div(m, cb_add(cb_sqrt(v), 1e-3)));
    return cb_zeros(1);
}

/* Steps of lanes with arrays between, of which the last one stores. */
static cb_tensor *chains(cb_tensor *p, cb_tensor *g, cb_tensor *m, cb_tensor *v) {
    cb_tensor *sum = cb_add(cb_add(m, v), g);
    cb_assign(m, cb_mul(g, 2.0));
    for (int i = 0; i < 6; i++) sum = cb_sin(cb_tanh(sum));
    cb_assign(g, cb_add(sum, p));
    cb_assign(v, cb_sub(sum, g));
    cb_mul_(p, 0.5);
    return cb_zeros(1);
}

static cb_tensor *middle(cb_tensor *x) { return cb_slice(x, 0, 1, 6); }

static cb_tensor *chains_of_parts(cb_tensor *p, cb_tensor *g, cb_tensor *m, cb_tensor *v) {
    return chains(middle(p), middle(g), middle(m), middle(v));
}
/* In pieces. */
static cb_tensor *rolls(cb_tensor *p, cb_tensor *g, cb_tensor *m, cb_tensor *v) {
    cb_tensor *rolled = cb_roll(g, 1, -1), *was = cb_clone(p);
    cb_assign(p, cb_add(rolled, m));
    cb_assign(m, cb_sub(was, rolled));
    cb_assign(v, cb_add(was, v));
    return cb_zeros(1);
}

/* All values of an element are there before one of them is stored: nothing is computed aside. */
static void test_updated_together(void **state) {
    (void)state;
    static const struct {
        cb_function_4 *function;
        cb_dtype dtype;
        const char *options;
        double limit;
    } cases[] = {{exchanges, CB_F32, "", 0}, {adam, CB_F32, "", 1e-5},
                 {chains, CB_F16, "", 2e-2}, {exchanges, CB_F16, VM, 1e-2},
                 {adam, CB_F64, VM, 1e-12},  {chains, CB_F32, VM, 1e-6},
                 {rolls, CB_F32, VM, 0},     {chains_of_parts, CB_F32, "", 1e-5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cb_scope_open();
        cb_function *fast = cb_compile(cases[i].function, cases[i].options);
        cb_tensor *x[4], *own[4];
        for (int k = 0; k < 4; k++) {
            x[k] = cb_sin(cb_mul(cb_reshape(cb_arange(0, 7 * 333), cb_dims(7, 333)), 0.5 + k));
            x[k] = cb_to(k == 3 ? cb_square(x[k]) : x[k], cases[i].dtype);
            own[k] = cb_clone(x[k]);
        }
        for (int call = 0; call < 2; call++) {
            cases[i].function(own[0], own[1], own[2], own[3]);
            cb_call(fast, x[0], x[1], x[2], x[3]);
        }
        for (int k = 0; k < 4; k++) expect_tensor(x[k], own[k], cases[i].limit, cases[i].limit);
        char *text = cb_explain(fast);
        /* Parts are stored where they lie on the host (sched/direct.c). */
        bool copies = cases[i].function == chains_of_parts && !device_is_host(device_default());
        if (!copies && strstr(text, "behind all steps")) FAIL("copies in\n%s", text);
        cb_free_text(text);
        assert_int_equal(cb_stats(fast).kernels, 2); /* and zeros */
        cb_function_free(fast);
        cb_scope_close();
    }
}

static cb_tensor *two_waves(cb_tensor *x, cb_tensor *y) {
    cb_tensor *at = cb_reshape(cb_arange(0, cb_numel(x)), cb_dims(cb_size(x, 0), cb_size(x, 1)));
    cb_assign(x, cb_sin(cb_mul(at, 1.0)));
    cb_assign(y, cb_sub(cb_cos(at), 1.0));
    return cb_zeros(1);
}

static cb_tensor *part(cb_tensor *base, int way) {
    if (way == 2) return cb_transpose(base, 0, 1);
    return way ? cb_slice(base, 1, 0, 8, 2) : cb_slice(base, 1, 0, 4);
}

/* What may be computed in place and lies elsewhere has a place of its own. */
static void test_together_with_gaps(void **state) {
    (void)state;
    for (int way = 0; way < 3; way++) {
        cb_scope_open();
        cb_function *fast = cb_compile(two_waves, VM);
        cb_tensor *x[] = {ramp(8, 8), ramp(8, 8)}, *own[] = {ramp(8, 8), ramp(8, 8)};
        two_waves(part(own[0], way), part(own[1], way));
        cb_call(fast, part(x[0], way), part(x[1], way));
        expect_equal(x[0], own[0]);
        expect_equal(x[1], own[1]);
        cb_function_free(fast);
        cb_scope_close();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writes),
        cmocka_unit_test(test_repeating_views),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_each_view),
        cmocka_unit_test(test_written_where_it_lies),
        cmocka_unit_test(test_slot_of_a_cache),
        cmocka_unit_test(test_steps_of_steps),
        cmocka_unit_test(test_repeating_input),
        cmocka_unit_test(test_nothing_of_something),
        cmocka_unit_test(test_checked),
        cmocka_unit_test(test_identity_of_results),
        cmocka_unit_test(test_shared_inputs),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_kept_state),
        cmocka_unit_test(test_updated_together),
        cmocka_unit_test(test_together_with_gaps),
    };
    return run_counted(tests);
}
