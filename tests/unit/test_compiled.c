/* Compiled functions as objects: nesting, modules, copies, options, errors, threads, memory. */
#include "capture_support.h"
#include <pthread.h>

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

static cb_tensor *turned_sum(cb_tensor *x) { return cb_t(cb_add(x, 1.0)); }

/* A view of all of a result lies in memory as it does in eager. */
static cb_tensor *attends(cb_tensor *x) {
    return cb_relu(cb_scaled_dot_product_attention(x, x, x));
}

static cb_tensor *multiplies(cb_tensor *x) { return cb_matmul(cb_exp(x), cb_t(x)); }

/* Multiplications and additions of products and attention; what kernels compute is not counted. */
static void test_flops(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *attention = cb_compile(attends, VM), *product = cb_compile(multiplies, VM);
    cb_call(attention, cb_ones(cb_dims(2, 3, 128, 64)));
    cb_call(product, cb_ones(cb_dims(6, 5)));
    assert_int_equal(cb_stats(attention).flops, 2 * 2 * 2 * 3 * 128 * 128 * 64);
    assert_int_equal(cb_stats(product).flops, 2 * 6 * 6 * 5);
    cb_function_free(attention);
    cb_function_free(product);
    cb_scope_close();
}

static void test_views_of_everything(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = ramp(3, 4);
    cb_function *f = cb_compile(turned_sum, VM), *g = cb_compile(turned_sum, VM ", fullgraph=1");
    for (int i = 0; i < 3; i++) {
        cb_tensor *y[] = {cb_call(f, x), cb_call(g, x)};
        for (int k = 0; k < 2; k++) {
            expect_equal(y[k], turned_sum(x));
            assert_int_equal(cb_stride(y[k], 0), 1);
            assert_int_equal(cb_stride(y[k], 1), 4);
        }
    }
    cb_function_free(f);
    cb_function_free(g);
    cb_scope_close();
}

/* The least element is taken from each as it was when it was found. */
static cb_tensor *scaled_from_least(cb_tensor *x) {
    cb_tensor *y = cb_mul(cb_to(cb_to(cb_mul(x, x), CB_BF16), CB_F32), 1.1);
    return cb_sqrt(cb_sub(y, cb_amin(y)));
}

static void test_least_is_least(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *f = cb_compile(scaled_from_least, NULL);
    cb_manual_seed(3);
    for (int i = 0; i < 20; i++) {
        cb_tensor *y = cb_call(f, cb_add(cb_rand(cb_dims(20, 64), CB_F32), 0.5));
        assert_true(cb_item(cb_all(cb_isfinite(y))));
    }
    cb_function_free(f);
    cb_scope_close();
}

/* Of two sums in one kernel that is split, the second over what the first gave, and both wanted at
 * the end, each is added up once. */
static cb_tensor *sums_of_sums(cb_tensor *x) {
    cb_tensor *first = cb_sum(x, CB_ALL, true);
    cb_tensor *second = cb_sum(cb_add(x, first), CB_ALL, true);
    return cb_add(cb_add(x, first), second);
}

static void test_long_rows(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = cb_ones(cb_dims(1, 100000), CB_F64);
    cb_function *f = cb_compile(sums_of_sums, VM);
    cb_tensor *y = cb_call(f, x);
    double expected = 1 + 1e5 + 1e5 * (1 + 1e5);
    assert_true(cb_item(cb_amin(y)) == expected && cb_item(cb_amax(y)) == expected);
    cb_function_free(f);
    cb_scope_close();
}

static void test_options(void **state) {
    (void)state;
    expect_refused("mode=fastest", "fastest");
    expect_refused(",", "'' is no 'name=value'");
    expect_refused("fullgraph=1,,dynamic=1", "'' is no 'name=value'");
    expect_refused("speed=1", "speed");
    expect_refused("fullgraph", "fullgraph");
    expect_refused("device=cuda", "cuda");
    expect_refused("fullgraph=2", "fullgraph");
    cb_function *fast =
        cb_compile(gelu, " mode=max-autotune ,fullgraph=0,dynamic=auto, device=cpu,fuse=1," VM);
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

static void expect_explained(cb_function *function, const char *words) {
    char *text = cb_explain(function);
    if (!strstr(text, words)) print_error("expected '%s' in:\n%s\n", words, text);
    assert_non_null(strstr(text, words));
    cb_free_text(text);
}

static void test_switches(void **state) {
    (void)state;
    static const char *const said[][2] = {
        {"fullgraph=1", "fullgraph=1"},   {"fullgraph=true", "fullgraph=1"},
        {"fullgraph=on", "fullgraph=1"},  {"fullgraph=True", "fullgraph=1"},
        {"fullgraph=0", "fullgraph=0"},   {"fullgraph=false", "fullgraph=0"},
        {"fullgraph=off", "fullgraph=0"}, {"freeze=off", "freeze=0"},
        {"freeze=ON", "freeze=1"},        {"fuse=false", "fuse=0"},
        {"dynamic=true", "dynamic=1"},    {"autocast=off", "autocast=0"},
    };
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        cb_function *fast = cb_compile(gelu, said[i][0]);
        expect_explained(fast, said[i][1]);
        cb_function_free(fast);
    }
    expect_refused("mode=on", "cannot be 'on'");
    expect_refused("fullgraph=yes", "cannot be 'yes'");
    expect_refused("fullgraph=o", "cannot be 'o'");
}

static cb_module *dropping;
static cb_tensor *calls_module(cb_tensor *x) { return cb_add(cb_forward(dropping, x), 1.0); }

/* train and eval are two entries, and explain says why there are two. */
static void test_modes(void **state) {
    (void)state;
    static const char *const words = "a module was switched between train and eval";
    cb_scope_open();
    cb_tensor *x = ramp(4, 4);
    dropping = cb_nn_sequential(cb_nn_linear(4, 4), cb_nn_dropout(0.5));
    for (int i = 0; i < 6; i++) {
        cb_function *fast = i < 2   ? cb_compile(dropping, VM)
                            : i < 4 ? cb_compile(dropping, "fullgraph=1, " VM)
                                    : cb_compile(calls_module, VM);
        for (int k = 0; k < 4; k++) {
            cb_module_train(dropping, (i ^ k) & 1);
            assert_non_null(cb_call(fast, x));
        }
        assert_int_equal(cb_stats(fast).recompiles, 1);
        expect_explained(fast, words);
        cb_function_free(fast);
    }
    cb_module_free(dropping);
    assert_null(cb_error());
    cb_scope_close();
}

static void test_errors(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(bad_shapes, VM), *safe = cb_compile(recovers, VM);
    cb_tensor *x = ramp(3, 4);
    for (int i = 0; i < 2; i++) {
        assert_null(cb_call(fast, x));
        assert_non_null(strstr(cb_error(), "add: sizes do not broadcast"));
        assert_non_null(strstr(cb_error(), "test_compiled.c:"));
        cb_clear_error();
        expect_equal(cb_call(safe, x), recovers(x));
    }
    assert_int_equal(cb_stats(fast).graphs, 0);
    assert_null(cb_call(fast, NULL));
    assert_non_null(strstr(cb_error(), "input 0 is NULL"));
    cb_clear_error();
    cb_tensor *two[2] = {x, x};
    assert_null(cb_call_1(fast, two, 2));
    assert_non_null(strstr(cb_error(), "takes 1 tensor, not 2"));
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
    const char *expected[] = {"f32[4, 8]",          "pow(",   "graph(", "memory traffic",
                              "capture_support.h:", "1 graph"};
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
                if (!(fabsf(a[k] - b[k]) <= 1e-5f)) *(int *)failed = 1;
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

/* Sums are exact in f32 and more than f16 and bf16 hold: what reads them tells whether they were
 * rounded. */
static int over_sums(cb_tensor *const *inputs, int input_count, cb_tensor **outputs, void *user) {
    (void)input_count, (void)user;
    cb_tensor *x = inputs[0];
    outputs[0] = cb_sub(cb_sum(x, 1, true), 2048.0);
    outputs[1] = cb_sub(cb_cumsum(x, 1), x);
    outputs[2] = cb_sub(cb_mul(x, 3.0), 2048.0);
    outputs[3] = cb_sub(cb_prod(cb_sub(cb_slice(x, 1, 0, 2), 600.0), 1, true), x);
    outputs[4] = cb_sub(cb_mean(x, 1, true), 683.0);
    return 5;
}

/* With the option precise, a compiled function gives the bits of eager. */
static void test_precise(void **state) {
    (void)state;
    static const char *const engine[] = {VM, "backend=c"};
    cb_set_option("precise", "1");
    for (int k = 0; k < 4; k++) {
        cb_scope_open();
        cb_dtype dtype = k < 2 ? CB_F16 : CB_BF16;
        cb_function *fast = cb_compile_n(over_sums, NULL, engine[k % 2]);
        cb_tensor *x = cb_to(cb_add(cb_reshape(cb_arange(0, 12), cb_dims(4, 3)), 679), dtype);
        cb_tensor *expected[5], *y[5];
        over_sums(&x, 1, expected, NULL);
        assert_int_equal(cb_call_n(fast, &x, 1, y, 5), 5);
        for (int i = 0; i < 5; i++) expect_equal(y[i], expected[i]);
        cb_function_free(fast);
        cb_scope_close();
    }
    cb_set_option("precise", "0");
}

/* Strides leave no other way than sums, and of integers those are exact in any order. Of three in a
 * row channels come last. */
static int after_convolutions(cb_tensor *const *in, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    cb_tensor *y = in[0];
    for (int i = 0; i < 3; i++) y = cb_add(cb_conv2d(y, in[1], NULL, 2, 1), in[2]);
    outputs[0] = y;
    return 1;
}

/* Sums that become halves before what is added to them: no method's own end does that. */
static void test_precise_epilogue(void **state) {
    (void)state;
    cb_set_option("precise", "1");
    cb_scope_open();
    cb_manual_seed(5);
    cb_tensor *in[] = {cb_to(cb_randint(-8, 9, cb_dims(2, 64, 24, 24)), CB_BF16),
                       cb_to(cb_randint(-3, 4, cb_dims(64, 64, 3, 3)), CB_BF16),
                       cb_to(cb_randint(-200, 201, cb_dims(64, 1, 1)), CB_BF16)};
    cb_tensor *expected, *y;
    cb_function *fast = cb_compile_n(after_convolutions, NULL, "");
    after_convolutions(in, 3, &expected, NULL);
    assert_int_equal(cb_call_n(fast, in, 3, &y, 1), 1);
    expect_equal(y, expected);
    cb_function_free(fast);
    cb_scope_close();
    cb_set_option("precise", "0");
}

static int converted(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    outputs[0] = cb_to(inputs[0], CB_F32);
    outputs[1] = cb_tanh(outputs[0]); /* pays for conversions in vectors */
    outputs[2] = cb_to(inputs[1], CB_F64);
    outputs[3] = cb_mul(outputs[2], 0.5);
    return 4;
}

static int converted_alone(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    outputs[0] = cb_to(inputs[0], CB_F32);
    return 1;
}

/* Integers beside where one float ends and the next begins, in vectors: what a cast gives. */
static void test_wide_integers(void **state) {
    (void)state;
    enum { N = 4096 };
    static int64_t number[N];
    cb_scope_open();
    for (int i = 0; i < N; i++) {
        int64_t middle = ((1 << 23) + i % 7) * 2 + 1; /* of two f32 */
        int64_t beside = i / 8 % 5 - 2, value = (middle << i % 38) + beside;
        number[i] = i / 40 % 2 ? -value : value;
    }
    number[0] = INT64_MAX, number[1] = INT64_MIN, number[2] = 0, number[3] = -1;
    number[4] = (1ll << 53) + 1, number[5] = -(1ll << 53) - 1, number[6] = INT64_MAX - 511;
    cb_tensor *x = cb_from_data(number, CB_I64, N), *in[] = {x, x}, *out[4];
    cb_function *fast = cb_compile_n(converted, NULL, "backend=c");
    cb_function *alone = cb_compile_n(converted_alone, NULL, "backend=c");
    assert_int_equal(cb_call_n(fast, in, 2, out, 4), 4);
    for (int i = 0; i < N; i++) {
        assert_true(((const float *)cb_data(out[0]))[i] == (float)number[i]);
        assert_true(((const double *)cb_data(out[2]))[i] == (double)number[i]);
    }
    assert_int_equal(cb_call_n(alone, in, 1, out, 4), 1);
    char *text = cb_explain(fast), *other = cb_explain(alone);
    assert_non_null(strstr(text, "= from_i64_f32("));
    assert_non_null(strstr(text, "= from_i64_f64("));
    assert_null(strstr(other, "from_i64_f32("));
    cb_free_text(text);
    cb_free_text(other);
    cb_function_free(fast);
    cb_function_free(alone);
    cb_scope_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_module),
        cmocka_unit_test(test_replaced_parameter),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_flops),
        cmocka_unit_test(test_views_of_everything),
        cmocka_unit_test(test_least_is_least),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_precise),
        cmocka_unit_test(test_precise_epilogue),
        cmocka_unit_test(test_wide_integers),
        cmocka_unit_test(test_switches),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_explain),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_memory_flat),
        cmocka_unit_test(test_failing_allocations),
    };
    return run_counted(tests);
}
