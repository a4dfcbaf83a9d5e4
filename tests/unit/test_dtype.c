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
    assert_string_equal(cb_dtype_name(CB_DTYPE_COUNT), "?");
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
        TEST(irs_keep_dtypes),
        TEST(fx_keeps_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
