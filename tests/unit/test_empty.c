/* Tensors without elements: every op that meets them does what PyTorch 2.11 does, reads and writes
 * nothing, optimized or not, on the VM and as generated C. */
#include "capture_support.h"

#include "graph/graph.h"
#include "inside.h"
#include "run/execute.h"

/* All of them are wanted, not the first alone. */
#define COMPLAIN(...) (print_error(__VA_ARGS__), print_error("\n"), complaints++)

static int complaints;

/* A result that has elements holds `value` everywhere; inputs are all 1. */
typedef struct Row {
    const char *inputs, *call, *result; /* result NULL: refused */
    double value;
} Row;

static const Row rows[] = {
    {"x: f32[3, 4], i: i64[0]", "gather(x, 0, i)", "f32[0]", 0},
    {"x: f32[3, 4], i: i64[0, 2, 3]", "gather(x, 0, i)", "f32[0, 2, 3]", 0},
    {"x: f32[3, 4], i: i64[5, 0]", "gather(x, 1, i)", "f32[5, 0]", 0},
    {"x: f32[0, 4], i: i64[0, 9]", "gather(x, 1, i)", "f32[0, 9]", 0},
    {"x: f32[3, 4], i: i64[0]", "gather(x, 2, i)", NULL, 0},
    {"x: f32[3, 4], i: f32[2, 0]", "gather(x, 1, i)", "f32[2, 0]", 0},
    {"x: i64[], i: bool[0]", "gather(x, 0, i)", "i64[0]", 0},
    {"x: f32[3, 4], i: f32[2, 1]", "gather(x, 1, i)", NULL, 0},
    {"x: f32[3, 4], i: f32[0]", "index_select(x, 0, i)", NULL, 0},
    {"x: f32[3, 4], i: i64[0]", "index_select(x, 0, i)", "f32[0, 4]", 0},
    {"x: f32[0, 4], i: i64[0]", "index_select(x, 0, i)", "f32[0, 4]", 0},
    {"x: f32[3, 0], i: i64[2]", "index_select(x, 0, i)", "f32[2, 0]", 0},
    {"x: f32[0, 4], i: i64[2]", "index_select(x, 1, i)", "f32[0, 2]", 0},
    {"x: f32[3, 4], i: i64[0], s: f32[2]", "scatter(x, 0, i, s)", "f32[3, 4]", 1},
    {"x: f32[3, 4], i: i64[0, 9], s: f32[5]", "scatter_add(x, 0, i, s)", "f32[3, 4]", 1},
    {"x: f32[3, 4], i: i64[0, 4], s: f32[0, 4]", "scatter(x, 0, i, s)", "f32[3, 4]", 1},
    {"x: f32[3, 4], i: i64[3, 0], s: f32[3, 0]", "scatter_add(x, 1, i, s)", "f32[3, 4]", 1},
    {"x: f32[3, 4], i: f64[0, 3], s: f32[5]", "scatter(x, 0, i, s)", "f32[3, 4]", 1},
    {"x: f32[3, 4], i: bool[0, 9], s: f32[5]", "scatter_add(x, 0, i, s)", "f32[3, 4]", 1},
    {"x: f32[3, 4], i: f32[0, 3], s: f64[5]", "scatter(x, 0, i, s)", NULL, 0},
    {"x: f32[40000], i: i64[0], s: f32[0]", "scatter_add(x, 0, i, s)", "f32[40000]", 1},
    {"x: f32[0], i: i64[0], s: f32[0]", "scatter_add(x, 0, i, s)", "f32[0]", 0},
    {"x: f32[3, 4], i: i64[2, 3], s: f32[0]", "scatter_add(x, 0, i, s)", NULL, 0},
    {"x: f32[3, 0]", "sum(x, dim=[1])", "f32[3]", 0},
    {"x: f32[3, 0]", "sum(x)", "f32[]", 0},
    {"x: f32[3, 0]", "prod(x, dim=[1])", "f32[3]", 1},
    {"x: f32[3, 0]", "any(x, dim=[1])", "bool[3]", 0},
    {"x: f32[3, 0]", "all(x, dim=[1])", "bool[3]", 1},
    {"x: f32[0, 3]", "amax(x, dim=[1])", "f32[0]", 0},
    {"x: f32[0, 3]", "argmax(x, dim=[1])", "i64[0]", 0},
    {"x: f32[3, 0]", "amax(x, dim=[1])", NULL, 0},
    {"x: f32[3, 0]", "softmax(x, 1)", "f32[3, 0]", 0},
    {"x: f32[3, 0]", "log_softmax(x, 1)", "f32[3, 0]", 0},
    {"x: f32[0, 3]", "softmax(x, 1)", "f32[0, 3]", 0},
    {"x: f32[3, 0]", "cumsum(x, 1)", "f32[3, 0]", 0},
    {"x: f32[0, 3]", "cumsum(x, 1)", "f32[0, 3]", 0},
    {"x: f32[3, 0], y: f32[0, 4]", "matmul(x, y)", "f32[3, 4]", 0},
    {"x: f32[0, 3], y: f32[3, 4]", "matmul(x, y)", "f32[0, 4]", 0},
    {"x: f32[3, 0], y: f32[4, 0], b: f32[4]", "linear(x, y, b)", "f32[3, 4]", 1},
    {"x: f32[0, 2, 5], w: f32[3, 2, 2]", "conv1d(x, w)", "f32[0, 3, 4]", 0},
    {"x: f32[0, 3]", "argsort(x, 0)", "i64[0, 3]", 0},
    {"x: f32[3, 0]", "argsort(x, 1)", "i64[3, 0]", 0},
    {"x: f32[0, 5]", "argtopk(x, 3, 1)", "i64[0, 3]", 0},
    {"x: f32[3, 5]", "argtopk(x, 0, 1)", "i64[3, 0]", 0},
    {"i: i64[0], w: f32[5, 4]", "embedding(i, w)", "f32[0, 4]", 0},
    {"i: i64[0], w: f32[0, 4]", "embedding(i, w)", "f32[0, 4]", 0},
    {"i: f32[0], w: f32[5, 4]", "embedding(i, w)", NULL, 0},
    {"x: f32[3, 0]", "flip(x, [1])", "f32[3, 0]", 0},
    {"x: f32[0, 3]", "pad(x, [1, 1])", "f32[0, 5]", 0},
    {"x: f32[0, 3]", "pad(x, [0, 0, 1, 1])", "f32[2, 3]", 0},
    {"x: f32[0, 3], y: f32[2, 3]", "concat(x, y, 0)", "f32[2, 3]", 1},
    {"x: f32[3, 0]", "reshape(x, [0, 7])", "f32[0, 7]", 0},
    {"x: f32[3, 0]", "unfold(x, 0, 2, 1)", NULL, 0},
    {"x: f32[3, 0]", "window(x, 0, 2, 1)", "f32[2, 0, 2]", 0},
    {"x: f32[0]", "window(x, 0, 0, 1)", "f32[1, 0]", 0},
    {"x: f32[3, 0], y: f32[1]", "x * y + 1", "f32[3, 0]", 0},
    {"x: f32[2, 0, 4], k: f32[2, 0, 4]", "scaled_dot_product_attention(x, k, k)", "f32[2, 0, 4]",
     0},
    {"x: f32[2, 3, 4], k: f32[2, 0, 4]", "scaled_dot_product_attention(x, k, k)", "f32[2, 3, 4]",
     0},
    {"x: f32[0, 6], w: f32[6]", "layer_norm(x, [6], w)", "f32[0, 6]", 0},
    {"x: f32[0, 2, 4, 4]", "max_pool2d(x, [2])", "f32[0, 2, 2, 2]", 0},
    {"x: f32[0, 3]", "sum(x, dim=[0]) + 2", "f32[3]", 2},
    {"x: f32[3, 0]", "logsumexp(x, [1])", "f32[3]", -INFINITY},
    {"x: f32[0]", "mean(x)", "f32[]", NAN},
    {"x: f32[3, 0]", "mean(x, [1])", "f32[3]", NAN},
    {"x: f32[3, 0]", "var(x, [1])", "f32[3]", NAN},
    {"x: f32[3, 0]", "std(x, [1])", "f32[3]", NAN},
    {"x: f32[0, 3], i: i64[0]", "cross_entropy(x, i)", "f32[]", NAN},
    {"x: f32[0], y: f32[0]", "mse_loss(x, y)", "f32[]", NAN},
    {"x: f32[0, 3], m: f32[3], v: f32[3]", "batch_norm(x, m, v)", "f32[0, 3]", 0},
    {"x: f32[3, 0]", "layer_norm(x, [0])", "f32[3, 0]", 0},
    {"x: f32[0, 4, 3]", "group_norm(x, 2)", "f32[0, 4, 3]", 0},
    {"x: f32[0, 2, 4, 4], w: f32[2, 3, 2, 2]", "conv_transpose2d(x, w)", "f32[0, 3, 5, 5]", 0},
    {"i: i64[0]", "one_hot(i, 5)", "i64[0, 5]", 0},
    {"x: f32[0, 2, 4, 4]", "interpolate(x, [8, 8])", "f32[0, 2, 8, 8]", 0},
    {"x: f32[3, 0]", "cumprod(x, 1)", "f32[3, 0]", 0},
    {"x: f32[3, 0]", "normalize(x)", "f32[3, 0]", 0},
    {"x: f32[0, 3]", "tril(x)", "f32[0, 3]", 0},
    {"x: f32[3, 0]", "repeat(x, [2, 2])", "f32[6, 0]", 0},
    {"x: f32[0, 4]", "glu(x)", "f32[0, 2]", 0},
    {"x: f32[0, 4, 2, 2]", "pixel_shuffle(x, 2)", "f32[0, 1, 4, 4]", 0},
    {"x: f32[0, 2, 4, 4]", "adaptive_avg_pool2d(x, [2, 2])", "f32[0, 2, 2, 2]", 0},
    {"x: f32[2, 3, 0], y: f32[2, 0, 5]", "matmul(x, y)", "f32[2, 3, 5]", 0},
    {"x: f32[3, 0], y: f32[0]", "matmul(x, y)", "f32[3]", 0},
    {"x: f32[0, 3]", "roll(x, 1, 0)", "f32[0, 3]", 0},
    {"x: f32[3, 0]", "softplus(x)", "f32[3, 0]", 0},
    {"x: f32[3, 0]", "norm(x, dim=[1])", "f32[3]", 0},
    {"x: f32[3]", "window(x, 0, 0, 2)", "f32[2, 0]", 0},
};

enum { ROWS = sizeof rows / sizeof *rows };

static void check_result(const Row *row, cb_tensor *y, const char *how) {
    char text[128];
    Meta meta = meta_of(y);
    meta_format(&meta, text, sizeof text);
    if (!row->result || strcmp(text, row->result) != 0)
        COMPLAIN("%s of %s, %s: %s, not %s", row->call, row->inputs, how, text,
                 row->result ? row->result : "refused");
    for (int64_t i = 0; i < cb_numel(y); i++) {
        double value = cb_item(cb_select(cb_reshape(y, cb_dims(cb_numel(y))), 0, i));
        if (value == row->value || (isnan(value) && isnan(row->value))) continue;
        COMPLAIN("%s of %s, %s: %g, not %g", row->call, row->inputs, how, value, row->value);
        return;
    }
}

static Plan *plan_of(const Row *row, Arena *own) {
    Graph *graph = graph_parse(
        own, arena_format(own, "graph(%s) { z = %s\nreturn z }", row->inputs, row->call));
    if (!graph) {
        arena_free(own);
        return NULL;
    }
    graph->device = device_default();
    graph_optimize(graph, NULL);
    return plan_build(graph, own, NULL, (PlanOptions){.fuse = true});
}

static void check_row(const Row *row, bool generate, const char *how) {
    cb_tensor *in[4], *out = NULL;
    cb_scope_open();
    Plan *plan = plan_of(row, arena_new());
    if (!plan != !row->result)
        COMPLAIN("%s of %s, %s: %s", row->call, row->inputs, how,
                 plan ? "not refused" : cb_error());
    cb_clear_error();
    if (plan) {
        for (int i = 0; i < length(plan->input); i++) {
            const Meta *meta = &plan->input[i];
            cb_dim_list sizes = {meta->rank, {0}};
            memcpy(sizes.at, meta->size, sizeof meta->size);
            in[i] = cb_ones(sizes, meta->dtype);
        }
        Executable *executable = executable_new(plan, (ExecutableOptions){.generate = generate});
        assert_non_null(executable);
        if (!run_executable(executable, in, &out)) COMPLAIN("%s: %s", row->call, cb_error());
        check_result(row, out, how);
        executable_free(executable);
    }
    cb_scope_close();
}

static void every_row(void **state) {
    (void)state;
    for (int i = 0; i < ROWS; i++) check_row(&rows[i], false, "on the VM");
    assert_int_equal(complaints, 0);
}

static void without_passes(void **state) {
    (void)state;
    assert_int_equal(cb_set_option("skip", "fold,rewrite"), CB_OK);
    for (int i = 0; i < ROWS; i++) check_row(&rows[i], false, "on the VM, not optimized");
    for (int i = 0; i < ROWS; i += 8) check_row(&rows[i], true, "as generated C");
    assert_int_equal(cb_set_option("skip", ""), CB_OK);
    assert_int_equal(complaints, 0);
}

/* An index out of range is one, even where no element is looked up. */
static void an_index_is_checked(void **state) {
    (void)state;
    cb_scope_open();
    const int64_t index[] = {1, 7};
    assert_null(
        cb_index_select(cb_zeros(cb_dims(3, 0)), 0, cb_from_data(index, CB_I64, cb_dims(2))));
    assert_non_null(strstr(cb_error(), "index 7 is out of range"));
    cb_clear_error();
    cb_tensor *first = cb_zeros(cb_dims(1), CB_I64), *none = cb_zeros(cb_dims(0));
    assert_null(cb_scatter(none, 0, first, cb_ones(cb_dims(1))));
    assert_non_null(strstr(cb_error(), "scatter: index 0 is out of range for size 0"));
    cb_clear_error();
    assert_non_null(cb_scatter(none, 0, cb_zeros(cb_dims(0), CB_I64), cb_ones(cb_dims(1))));
    cb_scope_close();
}

/* ---- in place -------------------------------------------------------------------------------- */

static void empty_targets_take_everything(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = cb_clone(cb_zeros(cb_dims(5, 0, 16)));
    assert_int_equal(cb_stride(x, 0), 16);
    assert_int_equal(cb_stride(x, 1), 16);
    assert_ptr_equal(cb_add_(x, 1.0), x);
    assert_ptr_equal(cb_assign(x, cb_ones(cb_dims(5, 0, 16))), x);
    cb_tensor *every = cb_slice(x, 2, 0, 16, 2);
    assert_ptr_equal(cb_fill_(every, 3.0), every);
    cb_tensor *spread = cb_expand(cb_zeros(cb_dims(1, 0)), cb_dims(7, 0));
    assert_ptr_equal(cb_fill_(spread, 3.0), spread);
    assert_ptr_equal(cb_fill_(cb_transpose(x, 0, 2), 3.0) != NULL ? x : NULL, x);
    cb_scope_close();
    assert_null(cb_error());
}

static int written(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = cb_mul(in[0], 1.0);
    out[1] = cb_clone(in[0]);
    cb_fill_(in[0], 7.0);
    return 2;
}

/* The old value of what is written is kept aside: no bytes, at no place. */
static void the_old_value_of_nothing(void **state) {
    (void)state;
    static const char *const engine[] = {"backend=vm", ""};
    for (int e = 0; e < 2; e++) {
        cb_scope_open();
        cb_tensor *x = cb_zeros(cb_dims(0, 3)), *out[2];
        cb_function *fast = cb_compile_n(written, NULL, engine[e]);
        for (int round = 0; round < 2; round++) {
            assert_int_equal(cb_call_n(fast, &x, 1, out, 2), 2);
            for (int i = 0; i < 2; i++) assert_int_equal(cb_numel(out[i]), 0);
        }
        cb_function_free(fast);
        cb_scope_close();
    }
    assert_null(cb_error());
}

static int joined(cb_tensor *const *inputs, int input_count, cb_tensor **outputs, void *user) {
    (void)user;
    outputs[0] = cb_cat(inputs, input_count, 0);
    return outputs[0] ? 1 : -1;
}

/* torch.cat leaves [0] out of the shape, not out of the promotion. */
static void cat_promotes_what_it_leaves_out(void **state) {
    (void)state;
    static const cb_dtype dtypes[][3] = {{CB_I32, CB_F32, CB_F32},
                                         {CB_F64, CB_F16, CB_F64},
                                         {CB_U8, CB_I8, CB_I16},
                                         {CB_I32, CB_BOOL, CB_I32}};
    for (int k = 0; k < 4; k++) {
        cb_scope_open();
        cb_function *fast = cb_compile_n(joined, NULL, "backend=vm,fullgraph=1");
        cb_tensor *x[] = {cb_ones(cb_dims(2, 3), dtypes[k][0]), cb_ones(cb_dims(0), dtypes[k][1])};
        cb_tensor *y[2] = {NULL};
        joined(x, 2, &y[0], NULL);
        cb_call_n(fast, x, 2, &y[1], 1);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(cb_dtype_of(y[i]), dtypes[k][2]);
            assert_int_equal(cb_size(y[i], 1), 3);
            assert_true(cb_item(cb_sum(y[i])) == 6);
        }
        cb_function_free(fast);
        cb_scope_close();
    }
    assert_null(cb_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cat_promotes_what_it_leaves_out),
        cmocka_unit_test(every_row),
        cmocka_unit_test(without_passes),
        cmocka_unit_test(an_index_is_checked),
        cmocka_unit_test(empty_targets_take_everything),
        cmocka_unit_test(the_old_value_of_nothing),
    };
    return run_counted(tests);
}
