/* The rows of dtype.def: each name is of one dtype, and comes back from every form that writes
 * it. */
#include "fx/fx.h"
#include "io/safetensors.h"
#include "lower/loop.h"
#include <unistd.h>

#include "graph_support.h"

#include "fixture.h"

/* Whether no row before this one has the name; NULL is none. */
static bool is_new(const char *(*name_of)(const DtypeInfo *), cb_dtype dtype) {
    const char *name = name_of(dtype_info(dtype));
    for (cb_dtype i = 0; name && i < dtype; i++) {
        const char *other = name_of(dtype_info(i));
        if (other && !strcmp(name, other)) return false;
    }
    return true;
}

#define NAME(field)                                                                                \
    static const char *field##_of(const DtypeInfo *info) { return info->field; }
NAME(name)
NAME(symbol)
NAME(npy)
NAME(safetensors)
NAME(torch)

static void names_are_of_one_dtype(void **state) {
    (void)state;
    for (cb_dtype d = 0; d < CB_DTYPE_COUNT; d++) {
        assert_true(is_new(name_of, d));
        assert_true(is_new(symbol_of, d));
        assert_true(is_new(npy_of, d));
        assert_true(is_new(safetensors_of, d));
        assert_true(is_new(torch_of, d));
    }
    assert_string_equal(cb_dtype_name((cb_dtype)CB_DTYPE_COUNT), "?");
    assert_int_equal(cb_dtype_size(CB_SAME), 0);
    assert_false(dtype_is_float(CB_SAME) || dtype_is_int(CB_SAME) || dtype_is_half(CB_SAME));
}

/* 0 and 1, or the bytes of any two elements. */
static cb_tensor *two_elements(cb_dtype dtype) {
    return cb_to(cb_from_data(((const double[]){0, 1}), CB_F64, cb_dims(2)), dtype);
}

static void expect_same(cb_tensor *x, cb_tensor *y) {
    assert_null(cb_error());
    assert_int_equal(cb_dtype_of(x), cb_dtype_of(y));
    char a[16], b[16];
    cb_read(x, a, cb_dtype_of(x));
    cb_read(y, b, cb_dtype_of(x));
    assert_memory_equal(a, b, 2 * cb_dtype_size(cb_dtype_of(x)));
}

static void files_keep_dtypes(void **state) {
    (void)state;
    char path[] = "/tmp/carbide_dtype_XXXXXX";
    int made = mkstemp(path);
    assert_true(made >= 0);
    close(made);
    for (cb_dtype d = 0; d < CB_DTYPE_COUNT; d++) {
        cb_tensor *x = two_elements(d);
        const char *name = "x";
        assert_int_equal(cb_safetensors_save(path, &name, &x, 1), CB_OK);
        cb_safetensors *file = cb_safetensors_open(path);
        expect_same(cb_safetensors_get(file, name), x);
        cb_safetensors_close(file);
        if (dtype_info(d)->npy) {
            assert_int_equal(cb_npy_save(path, x), CB_OK);
            expect_same(cb_npy_load(path), x);
        } else {
            assert_int_equal(cb_npy_save(path, x), CB_ERR_DTYPE);
            expect_error("the npy format has no");
        }
    }
    unlink(path);
}

/* ---- products and convolutions, of halves without kernels of their own, too ---- */

static cb_tensor *product(cb_tensor *a, cb_tensor *b) { return cb_matmul(a, b); }

static cb_tensor *convolve(cb_tensor *x, cb_tensor *weight) {
    return cb_conv2d(x, weight, NULL, 1, 1, 1, 1);
}

/* The result of f eagerly and compiled, read as f64; whole numbers that every dtype holds. */
static void expect_result(cb_function_2 *f, cb_tensor *a, cb_tensor *b, const double *wanted) {
    cb_function *fast = cb_compile(f);
    for (int compiled = 0; compiled < 2; compiled++) {
        cb_tensor *y = compiled ? cb_call(fast, a, b) : f(a, b);
        assert_null(cb_error());
        assert_int_equal(cb_dtype_of(y), cb_dtype_of(a));
        double *got = calloc((size_t)cb_numel(y), sizeof *got);
        assert_int_equal(cb_read(y, got, CB_F64), CB_OK);
        for (int64_t i = 0; i < cb_numel(y); i++)
            if (got[i] != wanted[i])
                fail_msg("%s, compiled %d: element %d is %g, not %g", cb_dtype_name(cb_dtype_of(a)),
                         compiled, (int)i, got[i], wanted[i]);
        free(got);
    }
    cb_function_free(fast);
}

static void every_dtype_is_multiplied(void **state) {
    (void)state;
    enum { M = 3, K = 5, N = 4 };
    double a[M * K], b[K * N], wanted[M * N] = {0};
    for (int i = 0; i < M * K; i++) a[i] = i % 3 != 0;
    for (int i = 0; i < K * N; i++) b[i] = i % 4 != 1;
    for (int i = 0; i < M * N * K; i++)
        wanted[i / K] += a[i / (N * K) * K + i % K] * b[i % K * N + i / K % N];
    for (cb_dtype d = CB_BOOL + 1; d < CB_DTYPE_COUNT; d++) /* bool is refused */
        expect_result(product, cb_to(cb_from_data(a, CB_F64, cb_dims(M, K)), d),
                      cb_to(cb_from_data(b, CB_F64, cb_dims(K, N)), d), wanted);
}

/* Every element sums the ones that its window of 3 by 3 has in 16 channels. */
static void every_float_is_convolved(void **state) {
    (void)state;
    enum { CHANNELS = 16, SIDE = 8 };
    static double wanted[CHANNELS * SIDE * SIDE];
    for (int i = 0; i < CHANNELS * SIDE * SIDE; i++) {
        int y = i / SIDE % SIDE, x = i % SIDE;
        wanted[i] = CHANNELS * (y % (SIDE - 1) ? 3 : 2) * (x % (SIDE - 1) ? 3 : 2);
    }
    for (cb_dtype d = 0; d < CB_DTYPE_COUNT; d++)
        if (dtype_is_float(d))
            expect_result(convolve, cb_to(cb_ones(cb_dims(1, CHANNELS, SIDE, SIDE)), d),
                          cb_to(cb_ones(cb_dims(CHANNELS, CHANNELS, 3, 3)), d), wanted);
}

/* An integer that a half holds passes through it: to(to(x, f16), f32) is to(x, f32). */
static void halves_have_signs(void **state) {
    (void)state;
    assert_true(dtype_holds(CB_F16, CB_I8) && dtype_holds(CB_BF16, CB_I8));
    assert_false(dtype_holds(CB_F16, CB_I16) || dtype_holds(CB_U8, CB_I8));
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static void fx_keeps_dtypes(void **state) {
    (void)state;
    for (cb_dtype d = 0; d < CB_DTYPE_COUNT; d++) {
        const DtypeInfo *info = dtype_info(d);
        const char *text = arena_format(arena,
                                        "graph():\n    %%x : [num_users=1] = "
                                        "placeholder[target=x]\n    %%to : [num_users=1] = "
                                        "call_method[target=to](args = (%%x, %s), kwargs = {})\n"
                                        "    return to",
                                        info->torch);
        cb_graph *graph = cb_graph_parse(text, NULL);
        assert_null(cb_error());
        cb_arg given = cb_node_arg(cb_graph_find(graph, "to"), 1);
        assert_int_equal(given.kind, CB_ARG_DTYPE);
        assert_int_equal(given.i, d);
        char *again = cb_graph_text(graph);
        assert_string_equal(again, text);
        cb_free_text(again);
        char *code = cb_graph_code(graph, "f");
        assert_null(cb_error());
        assert_non_null(strstr(code, arena_format(arena, "cb_to(x, %s)", info->symbol)));
        cb_free_text(code);
        cb_tensor *x = cb_ones(cb_dims(2)), *y;
        assert_int_equal(cb_graph_run(graph, &x, 1, &y, 1), 1);
        assert_int_equal(cb_dtype_of(y), d);
        cb_free(x);
        cb_free(y);
        cb_graph_free(graph);
    }
}

static void irs_keep_dtypes(void **state) {
    (void)state;
    for (cb_dtype d = 0; d < CB_DTYPE_COUNT; d++) {
        const char *name = cb_dtype_name(d);
        Graph *graph =
            parse(arena_format(arena, "graph(x: %s[2]) { return exp(to(x, f64)) }", name));
        Meta meta = node_meta(graph->input[0]);
        assert_int_equal(meta.dtype, d);
        assert_true(graph_equal(graph, parse(print(graph))));
        Kernel *kernel = kernel_parse(
            arena,
            arena_format(arena, "kernel k(outer a0:2) row split 1 {\n  b0: out %s[2]\n}", name));
        assert_non_null(kernel);
        assert_int_equal(kernel->buffer[0].dtype, d);
        Buffer out = buffer_new(arena);
        kernel_print(kernel, &out);
        assert_non_null(strstr(buffer_text(&out), arena_format(arena, "b0: out %s[2]", name)));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_of_one_dtype),
        cmocka_unit_test_setup_teardown(files_keep_dtypes, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(every_dtype_is_multiplied, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(every_float_is_convolved, open_scope, close_scope),
        cmocka_unit_test(halves_have_signs),
        TEST(irs_keep_dtypes),
        TEST(fx_keeps_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
