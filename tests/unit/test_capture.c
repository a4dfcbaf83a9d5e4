/* Compiled functions against the same functions run eagerly: replay, paths, captured tensors,
 * writes, breaks, fullgraph, random numbers, errors, threads, memory. */
#include "carbide.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- helpers ------------------------------------------------------------------------------- */

static cb_tensor *ramp(int64_t rows, int64_t columns) {
    float data[64];
    for (int64_t i = 0; i < rows * columns; i++) data[i] = (float)i * 0.25f - 1.0f;
    return cb_from_data(data, CB_F32, cb_dims(rows, columns));
}

static void expect_equal(cb_tensor *x, cb_tensor *y) {
    float a[256], b[256];
    assert_non_null(x);
    assert_non_null(y);
    assert_int_equal(cb_rank(x), cb_rank(y));
    assert_int_equal(cb_dtype_of(x), cb_dtype_of(y));
    for (int d = 0; d < cb_rank(x); d++) {
        assert_int_equal(cb_size(x, d), cb_size(y, d));
        assert_int_equal(cb_stride(x, d), cb_stride(y, d));
    }
    assert_int_equal(cb_read(x, a, CB_F32), CB_OK);
    assert_int_equal(cb_read(y, b, CB_F32), CB_OK);
    float tolerance = cb_dtype_of(x) == CB_F16 ? 2e-3f : 1e-5f; /* fused chains keep f32 */
    for (int64_t i = 0; i < cb_numel(x); i++)
        if (!(fabsf(a[i] - b[i]) <= tolerance + tolerance * fabsf(b[i])))
            fail_msg("element %lld: %g, eager %g", (long long)i, (double)a[i], (double)b[i]);
}

/* The function compiled and eager on the same fresh inputs, three times; inputs are compared
 * too. */
static void expect_same_2(cb_function_2 *function, const char *options, int graphs) {
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

#define VM "backend=vm"

/* ---- replay -------------------------------------------------------------------------------- */

static cb_tensor *gelu(cb_tensor *x) {
    cb_tensor *u = cb_mul(cb_add(x, cb_mul(cb_pow(x, 3.0), 0.044715)), 0.7978845608);
    return cb_mul(cb_mul(x, 0.5), cb_add(cb_tanh(u), 1.0));
}

static void test_gelu(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(gelu, VM);
    cb_tensor *x = ramp(4, 8);
    for (int i = 0; i < 3; i++) expect_equal(cb_call(fast, x), gelu(x));
    cb_function_stats stats = cb_stats(fast);
    assert_int_equal(stats.calls, 3);
    assert_int_equal(stats.graphs, 1);
    assert_int_equal(stats.kernels, 1);
    assert_int_equal(stats.kernels_eager, 8);
    assert_int_equal(stats.eager_calls, 0);
    assert_int_equal(stats.recompiles, 0);
    cb_function_free(fast);
    cb_scope_close();
}

static void test_guards(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(gelu, VM);
    cb_tensor *x = ramp(4, 8), *y = ramp(2, 3), *t = cb_transpose(x, 0, 1);
    for (int i = 0; i < 2; i++) {
        expect_equal(cb_call(fast, x), gelu(x));
        expect_equal(cb_call(fast, y), gelu(y));
        cb_tensor *half = cb_to(y, CB_F16);
        expect_equal(cb_call(fast, half), gelu(half));
        cb_tensor *strided = cb_call(fast, t), *expected = gelu(t);
        expect_equal(cb_contiguous(strided), cb_contiguous(expected));
    }
    assert_int_equal(cb_stats(fast).graphs, 4);
    assert_int_equal(cb_stats(fast).recompiles, 3);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "input 0 is f32[2, 3], entry 0 has f32[4, 8]"));
    cb_free_text(text);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    cb_scope_close();
}

static void test_recompile_limit(void **state) {
    (void)state;
    cb_scope_open();
    cb_set_option("recompile_limit", "2");
    cb_function *fast = cb_compile(gelu, VM);
    for (int n = 1; n <= 4; n++) {
        cb_tensor *x = ramp(1, n);
        expect_equal(cb_call(fast, x), gelu(x));
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    assert_int_equal(cb_stats(fast).eager_calls, 2);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "recompile limit"));
    cb_free_text(text);
    cb_set_option("recompile_limit", "8");
    cb_function_free(fast);
    cb_scope_close();
}

static int step;

static cb_tensor *branching(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    switch (step % 4) {
    case 0:
        return cb_exp(y);
    case 1:
        return cb_add(cb_sin(y), x);
    case 2:
        return y; /* ends where the others go on */
    default:
        return cb_add(cb_sin(y), 1.0);
    }
}

static void test_paths(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(branching, VM);
    cb_tensor *x = ramp(2, 3);
    for (step = 0; step < 16; step++) expect_equal(cb_call(fast, x), branching(x));
    assert_int_equal(cb_stats(fast).graphs, 4);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    cb_scope_close();
}

static double factor;

static cb_tensor *scaled(cb_tensor *x) { return cb_mul(x, factor); }

static void test_baked_number(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(scaled, VM);
    cb_tensor *x = ramp(2, 3);
    for (int i = 0; i < 4; i++) {
        factor = i % 2 ? 3.0 : -0.5;
        expect_equal(cb_call(fast, x), scaled(x));
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "a number baked into the graph changed"));
    cb_free_text(text);
    cb_function_free(fast);
    cb_scope_close();
}

/* ---- captured tensors ----------------------------------------------------------------------- */

static cb_tensor *weight;

static cb_tensor *with_global(cb_tensor *x) { return cb_add(cb_mul(x, weight), weight); }

static cb_tensor *with_fresh(cb_tensor *x) {
    float data[2] = {(float)step, 1.0f};
    return cb_add(x, cb_from_data(data, CB_F32, cb_dims(2)));
}

static void test_captured(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(with_global, VM), *fresh = cb_compile(with_fresh, VM);
    cb_tensor *x = ramp(3, 2), *first = ramp(1, 2), *second = cb_mul(first, 5.0);
    for (step = 0; step < 4; step++) {
        weight = step % 2 ? first : second;
        expect_equal(cb_call(fast, x), with_global(x));
        expect_equal(cb_call(fresh, x), with_fresh(x));
    }
    assert_int_equal(cb_stats(fast).graphs, 1);
    assert_int_equal(cb_stats(fresh).graphs, 1);
    cb_function_free(fast);
    cb_function_free(fresh);
    cb_scope_close();
}

/* ---- in-place writes and views --------------------------------------------------------------- */

static cb_tensor *write_input(cb_tensor *x, cb_tensor *y) {
    cb_add_(x, y);
    return cb_mul(x, 2.0);
}
static cb_tensor *write_views(cb_tensor *x, cb_tensor *y) {
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
static cb_tensor *write_input_view(cb_tensor *x, cb_tensor *y) {
    cb_tensor *last = cb_select(x, 1, -1);
    cb_assign(last, cb_sum(y, 1));
    cb_add_(x, 1.0);
    return cb_add(last, 1.0);
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

static cb_tensor *noisy(cb_tensor *x) {
    cb_tensor *dead = cb_rand_like(x);
    (void)dead;
    cb_tensor *a = cb_randn_like(x), *b = cb_dropout(x, 0.5, true);
    return cb_add(cb_add(a, b), cb_rand(cb_dims(4)));
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
    assert_int_equal(cb_stats(fast).eager_calls, 2);
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

/* ---- breaks -------------------------------------------------------------------------------- */

static int side_effects;

static cb_tensor *asks(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0), *z = cb_exp(y);
    cb_add_(y, 1.0);
    side_effects++;
    if (cb_item(cb_sum(y)) > 0) z = cb_neg(z);
    return cb_add(z, y);
}

static void test_value_request(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(asks, VM);
    cb_tensor *x = ramp(4, 8), *y = cb_neg(x);
    side_effects = 0;
    cb_tensor *got[3] = {cb_call(fast, x), cb_call(fast, y), cb_call(fast, x)};
    assert_int_equal(side_effects, 3);
    expect_equal(got[0], asks(x));
    expect_equal(got[1], asks(y));
    expect_equal(got[2], asks(x));
    assert_int_equal(cb_stats(fast).breaks, 1);
    assert_int_equal(cb_stats(fast).eager_calls, 3);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "asked for a value"));
    assert_non_null(strstr(text, "test_capture.c:"));
    cb_free_text(text);
    cb_function_free(fast);
    cb_scope_close();
}

static cb_tensor *asks_later(cb_tensor *x) {
    cb_tensor *y = cb_rand_like(x);
    cb_mul_(x, 2.0);
    if (step > 2) assert_true(cb_item(cb_sum(x)) < 1e9);
    return cb_add(cb_mul(y, x), cb_rand_like(x));
}

static void test_value_request_in_replay(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(asks_later, VM);
    for (step = 0; step < 6; step++) {
        cb_tensor *x = ramp(4, 8), *y = ramp(4, 8);
        cb_manual_seed(7);
        cb_tensor *got = cb_call(fast, x);
        cb_manual_seed(7);
        expect_equal(got, asks_later(y));
        expect_equal(x, y);
    }
    assert_int_equal(cb_stats(fast).breaks, 1);
    cb_function_free(fast);
    cb_scope_close();
}

/* ---- fullgraph ----------------------------------------------------------------------------- */

static cb_tensor *counted(cb_tensor *x) {
    side_effects++;
    cb_add_(weight, 1.0);
    return cb_mul(x, weight);
}

static void test_fullgraph(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(counted, "fullgraph=1, " VM);
    cb_tensor *x = ramp(3, 2);
    weight = ramp(1, 2);
    cb_tensor *expected[4];
    for (int i = 0; i < 4; i++) expected[i] = counted(x);
    weight = ramp(1, 2);
    side_effects = 0;
    for (int i = 0; i < 4; i++) expect_equal(cb_call(fast, x), expected[i]);
    assert_int_equal(side_effects, 1);
    cb_function_free(fast);
    cb_function *broken = cb_compile(asks, "fullgraph=1, " VM);
    assert_null(cb_call(broken, x));
    assert_non_null(strstr(cb_error(), "test_capture.c:"));
    assert_non_null(strstr(cb_error(), "fullgraph"));
    assert_int_equal(cb_error_status(), CB_ERR_COMPILE);
    cb_clear_error();
    cb_function_free(broken);
    cb_function *whole = cb_compile(write_views, "fullgraph=1, " VM);
    for (int i = 0; i < 3; i++)
        expect_equal(cb_call(whole, ramp(3, 4), ramp(3, 4)), write_views(ramp(3, 4), ramp(3, 4)));
    cb_function_free(whole);
    cb_scope_close();
}

/* ---- random numbers ------------------------------------------------------------------------ */

static void test_random(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(noisy, VM);
    cb_tensor *x = ramp(8, 4), *expected[3];
    cb_manual_seed(3);
    for (int i = 0; i < 3; i++) expected[i] = noisy(x);
    cb_manual_seed(3);
    for (int i = 0; i < 3; i++) expect_equal(cb_call(fast, x), expected[i]);
    cb_function_free(fast);
    cb_scope_close();
}

/* ---- nesting, modules ------------------------------------------------------------------------ */

static cb_function *inner;

static cb_tensor *outer(cb_tensor *x) { return cb_add(cb_call(inner, cb_mul(x, 2.0)), 1.0); }

static void test_nested(void **state) {
    (void)state;
    cb_scope_open();
    inner = cb_compile(gelu, VM);
    cb_function *fast = cb_compile(outer, VM);
    cb_tensor *x = ramp(3, 4);
    for (int i = 0; i < 3; i++) expect_equal(cb_call(fast, x), outer(x));
    assert_int_equal(cb_stats(fast).kernels, 1); /* inlined */
    cb_function_free(fast);
    cb_function_free(inner);
    cb_scope_close();
}

static void test_module(void **state) {
    (void)state;
    cb_scope_open();
    cb_module *net = cb_nn_sequential(cb_nn_linear(4, 6, true), cb_nn_gelu(false),
                                      cb_nn_dropout(0.5), cb_nn_linear(6, 2, true));
    cb_graph *graph = cb_symbolic_trace(net);
    assert_non_null(graph);
    cb_function *fast = cb_compile(net, VM), *whole = cb_compile(net, "fullgraph=1," VM);
    cb_function *traced = cb_compile(graph, VM);
    cb_tensor *x = ramp(3, 4);
    cb_module_train(net, false);
    for (int i = 0; i < 4; i++) {
        cb_module_train(net, i % 2);
        cb_manual_seed(5);
        cb_tensor *expected = cb_forward(net, x);
        cb_manual_seed(5);
        expect_equal(cb_call(fast, x), expected);
        cb_manual_seed(5);
        expect_equal(cb_call(whole, x), expected);
        if (i % 2 == 0) expect_equal(cb_call(traced, x), expected);
    }
    assert_int_equal(cb_stats(fast).graphs, 2); /* training and evaluation */
    assert_int_equal(cb_stats(whole).graphs, 2);
    assert_int_equal(cb_stats(traced).graphs, 1);
    cb_function_free(fast);
    cb_function_free(whole);
    cb_function_free(traced);
    cb_graph_free(graph);
    cb_module_free(net);
    cb_scope_close();
    assert_null(cb_error());
}

/* fullgraph does not run the forward again: it must see that a module holds another tensor. */
static void test_replaced_parameter(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = ramp(3, 4);
    for (int eval = 0; eval < 2; eval++) {
        cb_module *net = cb_nn_sequential(cb_nn_linear(4, 6, true), cb_nn_relu());
        cb_module_train(net, !eval);
        cb_function *whole = cb_compile(net, "fullgraph=1," VM);
        expect_equal(cb_call(whole, x), cb_forward(net, x));
        cb_module_parameter(cb_module_child(net, "0"), "weight", ramp(6, 4));
        expect_equal(cb_call(whole, x), cb_forward(net, x));
        expect_equal(cb_call(whole, x), cb_forward(net, x));
        assert_int_equal(cb_stats(whole).graphs, 2);
        cb_function_free(whole);
        cb_module_free(net);
    }
    cb_scope_close();
    assert_null(cb_error());
}

static cb_tensor *clones(cb_tensor *x) { return cb_clone(x); }
static cb_tensor *stores(cb_tensor *x, cb_tensor *y) { return cb_assign(x, y); }

/* What only copies says that it does. */
static void test_copies(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = ramp(3, 4), *y = cb_mul(cb_t(ramp(4, 3)), 2.0);
    cb_function *f = cb_compile(clones, VM), *g = cb_compile(stores, VM);
    cb_tensor *z = cb_call(f, x);
    assert_false(cb_shares_storage(x, z));
    expect_equal(z, x);
    assert_true(cb_call(g, x, y) == x);
    expect_equal(x, y);
    cb_function_stats stats[] = {cb_stats(f), cb_stats(g)};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stats[i].kernels, 1);
        assert_int_equal(stats[i].kernels_eager, 1);
        assert_int_equal(stats[i].bytes, stats[i].bytes_eager);
    }
    cb_function_free(f);
    cb_function_free(g);
    cb_scope_close();
}

/* ---- errors -------------------------------------------------------------------------------- */

static void expect_refused(const char *options, const char *named) {
    assert_null(cb_compile(gelu, options));
    assert_int_equal(cb_error_status(), CB_ERR_OPTION);
    assert_non_null(strstr(cb_error(), named));
    cb_clear_error();
}

static void test_options(void **state) {
    (void)state;
    expect_refused("mode=fastest", "fastest");
    expect_refused("speed=1", "speed");
    expect_refused("fullgraph", "fullgraph");
    expect_refused("device=cuda", "cuda");
    expect_refused("fullgraph=2", "fullgraph");
    cb_function *fast =
        cb_compile(gelu, " mode=max-autotune ,fullgraph=0,dynamic=auto,,device=cpu,fuse=1," VM);
    assert_non_null(fast);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "mode=max-autotune"));
    assert_non_null(strstr(text, "CUDA graphs"));
    cb_free_text(text);
    cb_function_free(fast);
    assert_null(cb_compile_1(NULL, NULL));
    cb_clear_error();
    cb_function_free(NULL);
}

static cb_tensor *bad_shapes(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    return cb_add(y, cb_ones(cb_dims(7)));
}

static cb_tensor *recovers(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    if (!cb_add(y, cb_ones(cb_dims(7)))) cb_clear_error();
    return cb_add(y, 1.0);
}

static void test_errors(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(bad_shapes, VM), *safe = cb_compile(recovers, VM);
    cb_tensor *x = ramp(3, 4);
    for (int i = 0; i < 2; i++) {
        assert_null(cb_call(fast, x));
        assert_non_null(strstr(cb_error(), "add: sizes do not broadcast"));
        assert_non_null(strstr(cb_error(), "test_capture.c:"));
        cb_clear_error();
        expect_equal(cb_call(safe, x), recovers(x));
    }
    assert_int_equal(cb_stats(fast).graphs, 0);
    assert_null(cb_call(fast, NULL));
    assert_non_null(strstr(cb_error(), "input 0 is NULL"));
    cb_clear_error();
    cb_tensor *two[2] = {x, x};
    assert_null(cb_call_1(fast, two, 2));
    assert_non_null(strstr(cb_error(), "takes 1 tensors, not 2"));
    cb_clear_error();
    cb_function_free(fast);
    cb_function_free(safe);
    cb_scope_close();
}

static void test_explain(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(gelu, NULL);
    cb_tensor *x = ramp(4, 8);
    expect_equal(cb_call(fast, x), gelu(x));
    char *text = cb_explain(fast);
    const char *expected[] = {"f32[4, 8]",       "pow(",    "graph(", "memory traffic",
                              "test_capture.c:", "1 graphs"};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (!strstr(text, expected[i])) fail_msg("no '%s' in:\n%s", expected[i], text);
    cb_free_text(text);
    cb_function_free(fast);
    cb_scope_close();
}

/* ---- threads and memory ---------------------------------------------------------------------- */

static cb_function *shared;

static void *caller(void *failed) {
    for (int i = 0; i < 200; i++) {
        cb_scope_open();
        int64_t n = 1 + i % 5;
        cb_tensor *x = ramp(2, n), *y = cb_call(shared, x), *z = gelu(x);
        float a[16], b[16];
        if (!y || cb_read(y, a, CB_F32) || cb_read(z, b, CB_F32))
            *(int *)failed = 1;
        else
            for (int64_t k = 0; k < 2 * n; k++)
                if (fabsf(a[k] - b[k]) > 1e-5f) *(int *)failed = 1;
        cb_scope_close();
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    pthread_t thread[4];
    int failed[4] = {0};
    shared = cb_compile(gelu, VM);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, caller, &failed[i]), 0);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++) assert_int_equal(failed[i], 0);
    assert_int_equal(cb_stats(shared).calls, 800);
    assert_int_equal(cb_stats(shared).graphs, 5);
    cb_function_free(shared);
}

static int64_t blocks, countdown = -1;

/* Counts blocks that live; the countdown-th allocation from now fails, and all after it. */
static void *counting_resize(void *user, void *pointer, size_t bytes) {
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

static void test_memory_flat(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(gelu, VM);
    cb_tensor *x = ramp(4, 8);
    int64_t live = 0, held = 0;
    for (int i = 0; i < 20000; i++) {
        if (i == 100) live = cb_memory().live_tensors, held = blocks;
        cb_free(cb_call(fast, x));
    }
    assert_int_equal(cb_memory().live_tensors, live);
    assert_int_equal(blocks, held);
    cb_function_free(fast);
    cb_scope_close();
}

/* Every allocation of compile and first calls fails in turn: a right result or an error, and no
 * leak. */
static void test_failing_allocations(void **state) {
    (void)state;
    bool succeeded = false;
    for (int n = 0; n < 3000 && !succeeded; n++) {
        cb_scope_open();
        cb_tensor *x = ramp(3, 4), *y = ramp(3, 4), *u = ramp(3, 4), *v = ramp(3, 4);
        cb_tensor *expected = write_input_view(x, y);
        countdown = n;
        cb_function *fast = cb_compile(write_input_view, VM);
        cb_tensor *got = fast ? cb_call(fast, u, v) : NULL;
        succeeded = countdown > 0;
        countdown = -1;
        if (got) {
            cb_clear_error();
            expect_equal(got, expected);
            expect_equal(u, x);
        } else {
            assert_int_equal(cb_error_status(), CB_ERR_MEMORY);
            cb_clear_error();
        }
        cb_function_free(fast);
        cb_scope_close();
    }
    assert_true(succeeded);
}

static int free_everything(void **state) {
    (void)state;
    cb_cleanup();
    if (blocks) print_error("%lld blocks leaked\n", (long long)blocks);
    return blocks != 0;
}

int main(void) {
    cb_set_allocator((cb_allocator){counting_resize, NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_guards),
        cmocka_unit_test(test_recompile_limit),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_baked_number),
        cmocka_unit_test(test_captured),
        cmocka_unit_test(test_writes),
        cmocka_unit_test(test_checked),
        cmocka_unit_test(test_identity_of_results),
        cmocka_unit_test(test_shared_inputs),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_kept_state),
        cmocka_unit_test(test_value_request),
        cmocka_unit_test(test_value_request_in_replay),
        cmocka_unit_test(test_fullgraph),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_module),
        cmocka_unit_test(test_replaced_parameter),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_explain),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_memory_flat),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, free_everything);
}
