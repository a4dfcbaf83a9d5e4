/* Autocast against PyTorch's result dtypes, op by op; scopes and their misuse; compiled functions:
 * guards, options, one conversion of each parameter. */
#include "eager/apply.h"
#include "graph/graph.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "autocast_cases.h"
#include "elements.h"
#include "inside.h"

/* ---- the table ------------------------------------------------------------------------------ */

static cb_operand evaluate(const Node *node, Tensor *const *argument) {
    cb_operand input[OP_MAX_INPUTS];
    if (node->op == OP_input) return cb_operand_tensor(argument[node->attrs->word[0]]);
    if (node->op == OP_constant && dtype_is_float(node->dtype))
        return cb_operand_float(node_constant(node).f);
    if (node->op == OP_constant) return cb_operand_int(node_constant(node).i);
    for (int i = 0; i < node->input_count; i++)
        input[i] = node->input[i] ? evaluate(node->input[i], argument) : cb_operand_tensor(NULL);
    static const Attrs none;
    Tensor *y = apply_op(node->op, input, node->input_count, node->attrs ? node->attrs : &none);
    if (!y) fail_msg("%s: %s", op_info(node->op)->name, cb_error());
    return cb_operand_tensor(y);
}

static Graph *parse_case(Arena *arena, size_t k) {
    Buffer text = buffer_new(arena);
    put(&text, "graph(");
    for (int i = 0; i < 5 && cases[k].sizes[i]; i++)
        putf(&text, "%s%c: f32%s", i ? ", " : "", 'a' + i, cases[k].sizes[i]);
    putf(&text, ") { y = %s\nreturn y }", cases[k].call);
    Graph *graph = graph_parse(arena, buffer_text(&text));
    if (!graph) fail_msg("%s: %s", cases[k].call, cb_error());
    return graph;
}

static void expect_case(size_t k, cb_dtype lower) {
    const cb_dtype first[] = {CB_F32, lower, lower, CB_F64};
    const cb_dtype others[] = {CB_F32, lower, CB_F32, CB_F64};
    Arena *arena = arena_new();
    Graph *graph = parse_case(arena, k);
    for (int variant = 0; variant < 4; variant++) {
        const char *expected = cases[k].dtype[variant];
        if (!*expected) continue;
        cb_scope_open();
        Tensor *argument[5] = {NULL};
        for (int i = 0; i < length(graph->input); i++) {
            const Node *node = graph->input[i];
            cb_dim_list sizes = {node->rank, {0}};
            memcpy(sizes.at, node->size, sizeof *node->size * node->rank);
            cb_dtype dtype = i ? others[variant] : first[variant];
            argument[i] = cb_to((cb_rand)(sizes, CB_F32), dtype);
        }
        cb_autocast_open(lower);
        cb_dtype found = cb_dtype_of(evaluate(graph->output[0], argument).tensor);
        cb_autocast_close();
        if (lower == CB_F16 && !strcmp(expected, "bf16")) expected = "f16";
        if (strcmp(cb_dtype_name(found), expected))
            fail_msg("%s under %s, operands %d: %s, PyTorch: %s", cases[k].call,
                     cb_dtype_name(lower), variant, cb_dtype_name(found), expected);
        cb_scope_close();
    }
    arena_free(arena);
}

static void result_dtypes_are_pytorchs(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        expect_case(k, CB_BF16);
        expect_case(k, CB_F16);
    }
    assert_null(cb_error());
}

/* ---- scopes --------------------------------------------------------------------------------- */

static cb_dtype product_dtype(void) {
    cb_scope_open();
    cb_tensor *x = cb_ones(cb_dims(2, 2));
    cb_dtype dtype = cb_dtype_of(cb_matmul(x, x));
    cb_scope_close();
    return dtype;
}

static void *in_another_thread(void *found) {
    *(cb_dtype *)found = product_dtype();
    return NULL;
}

static void scopes_nest(void **state) {
    (void)state;
    assert_int_equal(cb_autocast_dtype(), CB_SAME);
    cb_autocast_open(CB_BF16);
    assert_int_equal(product_dtype(), CB_BF16);
    cb_autocast_open(CB_SAME);
    assert_int_equal(product_dtype(), CB_F32);
    cb_autocast_open(CB_F16);
    assert_int_equal(product_dtype(), CB_F16);
    cb_autocast_close();
    assert_int_equal(product_dtype(), CB_F32);
    cb_autocast_close();
    assert_int_equal(cb_autocast_dtype(), CB_BF16);
    pthread_t thread;
    cb_dtype found = CB_BOOL;
    assert_int_equal(pthread_create(&thread, NULL, in_another_thread, &found), 0);
    pthread_join(thread, NULL);
    assert_int_equal(found, CB_F32);
    cb_autocast_close();
    assert_int_equal(product_dtype(), CB_F32);
    assert_null(cb_error());
}

static void expect_error(const char *words) {
    assert_non_null(cb_error());
    if (!strstr(cb_error(), words)) fail_msg("%s", cb_error());
    cb_clear_error();
}

static void misuse_is_an_error(void **state) {
    (void)state;
    cb_autocast_close();
    expect_error("no autocast is open in this thread");
    cb_autocast_open(CB_BF16);
    cb_autocast_open(CB_F64); /* refused, but open: what closes it closes nothing else */
    expect_error("autocast_open: f64 is no lower precision");
    assert_int_equal(product_dtype(), CB_BF16);
    cb_autocast_close();
    assert_int_equal(product_dtype(), CB_BF16);
    cb_autocast_close();
    const cb_dtype dtypes[] = {CB_BF16, CB_F16};
    for (int i = 0; i < 40; i++) cb_autocast_open(dtypes[i % 2]);
    expect_error("more than 32 scopes");
    for (int i = 0; i < 40; i++) cb_autocast_close();
    assert_null(cb_error());
    assert_int_equal(product_dtype(), CB_F32);
}

static void parameters_are_converted_once(void **state) {
    (void)state;
    cb_scope_open();
    cb_module *linear = cb_nn_linear(64, 64, false);
    cb_tensor *weight = cb_module_get(linear, "weight"), *x = cb_ones(cb_dims(1, 64));
    cb_autocast_open(CB_BF16);
    cb_tensor *y = cb_forward(linear, x);
    int64_t live = cb_memory().live_tensors;
    cb_scope_open();
    for (int i = 0; i < 5; i++) cb_forward(linear, x);
    cb_scope_close();
    assert_int_equal(cb_memory().live_tensors, live);
    cb_fill_(weight, 2); /* written to: converted again */
    assert_true(cb_item(cb_select(cb_forward(linear, x), 1, 3)) == 128);
    cb_fill_(cb_select(cb_select(weight, 0, 3), 0, 0), 3); /* through a view of it, too */
    assert_true(cb_item(cb_select(cb_forward(linear, x), 1, 3)) == 129);
    assert_int_equal(cb_dtype_of(y), CB_BF16);
    cb_autocast_close();
    cb_module_free(linear);
    cb_scope_close();
    assert_null(cb_error());
}

static cb_tensor *parameter(cb_tensor *const *in, const char *name, cb_module *module) {
    return cb_matmul(in[0], cb_module_get(module, name));
}

/* Two parameters may be parts of one tensor, and one be wanted in two dtypes. */
static void conversions_are_of_a_view_in_a_dtype(void **state) {
    (void)state;
    cb_scope_open();
    cb_module *module = cb_module_new("Parts", NULL, NULL);
    cb_tensor *both = cb_to(cb_reshape(cb_arange(0, 18), cb_dims(6, 3)), CB_F32);
    cb_tensor *x = cb_ones(cb_dims(1, 3));
    cb_module_parameter(module, "upper", cb_narrow(both, 0, 0, 3));
    cb_module_parameter(module, "lower", cb_narrow(both, 0, 3, 3));
    cb_autocast_open(CB_BF16);
    for (int i = 0; i < 2; i++) {
        assert_true(cb_item(cb_amin(parameter(&x, "upper", module), CB_ALL, false)) == 9);
        assert_true(cb_item(cb_amin(parameter(&x, "lower", module), CB_ALL, false)) == 36);
        cb_autocast_open(CB_F16);
        assert_int_equal(cb_dtype_of(parameter(&x, "upper", module)), CB_F16);
        cb_autocast_close();
        assert_int_equal(cb_dtype_of(parameter(&x, "upper", module)), CB_BF16);
    }
    cb_autocast_close();
    cb_module_free(module);
    cb_scope_close();
    assert_null(cb_error());
}

static void conversions_go_with_the_outermost_scope(void **state) {
    (void)state;
    cb_scope_open();
    cb_module *linear = cb_nn_linear(64, 64, true);
    cb_tensor *x = cb_ones(cb_dims(1, 64));
    int64_t before = cb_memory().live_tensors;
    cb_autocast_open(CB_BF16);
    cb_autocast_open(CB_F16);
    cb_scope_open();
    cb_forward(linear, x);
    cb_scope_close();
    cb_autocast_close();
    assert_true(cb_memory().live_tensors > before);
    cb_autocast_close();
    assert_int_equal(cb_memory().live_tensors, before);
    cb_module_free(linear);
    cb_scope_close();
    assert_null(cb_error());
}

/* ---- compiled functions --------------------------------------------------------------------- */

static cb_tensor *product(cb_tensor *a, cb_tensor *b) {
    return cb_mul(cb_matmul(cb_relu(a), b), 0.5);
}

static cb_tensor *product_within(cb_tensor *a, cb_tensor *b) {
    cb_autocast_open(CB_BF16);
    cb_tensor *y = cb_matmul(a, b);
    cb_autocast_open(CB_SAME);
    y = cb_add(cb_matmul(a, b), y);
    cb_autocast_close();
    cb_autocast_close();
    return y;
}

static cb_tensor *unclosed(cb_tensor *a, cb_tensor *b) {
    cb_autocast_open(CB_BF16);
    return cb_matmul(a, b);
}

static cb_tensor *closes_its_callers(cb_tensor *a, cb_tensor *b) {
    cb_autocast_close();
    return cb_matmul(a, b);
}

static void expect_equal(cb_tensor *found, cb_tensor *expected, double tolerance) {
    expect_tensor(found, expected, tolerance, 0);
}

static void compiled_functions_guard(const char *options) {
    cb_scope_open();
    cb_function *fast = cb_compile(product, options);
    cb_tensor *a = cb_randn(cb_dims(5, 70)), *b = cb_randn(cb_dims(70, 9));
    for (int i = 0; i < 3; i++) {
        expect_equal(cb_call(fast, a, b), product(a, b), 1e-5);
        cb_autocast_open(CB_BF16);
        expect_equal(cb_call(fast, a, b), product(a, b), 0.1);
        cb_autocast_close();
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "autocast is bf16, for entry 0 it was off"));
    assert_non_null(strstr(text, "  autocast: bf16\n"));
    cb_free_text(text);
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

static void guards(void **state) {
    (void)state;
    compiled_functions_guard("backend=vm");
    compiled_functions_guard("backend=vm, fullgraph=1");
}

static void the_option(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *bf16 = cb_compile(product, "backend=vm, autocast=bf16");
    cb_function *never = cb_compile(product, "backend=vm, autocast=0, fullgraph=1");
    cb_tensor *a = cb_randn(cb_dims(5, 70)), *b = cb_randn(cb_dims(70, 9));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(cb_dtype_of(cb_call(bf16, a, b)), CB_BF16);
        assert_int_equal(cb_dtype_of(cb_call(never, a, b)), CB_F32);
        if (i == 1) cb_autocast_open(CB_F16);
    }
    cb_autocast_close();
    assert_int_equal(cb_stats(bf16).graphs, 1);
    assert_int_equal(cb_stats(never).graphs, 1);
    cb_function_free(bf16);
    cb_function_free(never);
    assert_null(cb_compile(product, "autocast=f32"));
    expect_error("option autocast cannot be 'f32'; it can be auto, bf16, f16, 0");
    cb_scope_close();
}

static void scopes_inside_functions(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *a = cb_randn(cb_dims(5, 70)), *b = cb_randn(cb_dims(70, 9));
    cb_function *fast = cb_compile(product_within, "backend=vm");
    for (int i = 0; i < 3; i++) expect_equal(cb_call(fast, a, b), product_within(a, b), 0.1);
    assert_int_equal(cb_stats(fast).graphs, 1);
    cb_function_free(fast);
    fast = cb_compile(unclosed, "backend=vm");
    assert_null(cb_call(fast, a, b));
    expect_error("the function opened an autocast and did not close it");
    assert_int_equal(product_dtype(), CB_F32);
    cb_function_free(fast);
    fast = cb_compile(closes_its_callers, "backend=vm");
    cb_autocast_open(CB_F16);
    assert_null(cb_call(fast, a, b));
    expect_error("no autocast is open in this compiled function");
    assert_int_equal(product_dtype(), CB_F16);
    cb_autocast_close();
    cb_function_free(fast);
    cb_scope_close();
}

static int count(const char *text, const char *word) {
    int found = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) found++;
    return found;
}

static cb_tensor *twice(cb_module *self, cb_tensor *const *inputs, int input_count) {
    (void)input_count;
    cb_tensor *weight = cb_module_get(self, "weight");
    return cb_matmul(cb_matmul(inputs[0], weight), weight);
}

static void one_conversion_in_a_graph(void **state) {
    (void)state;
    cb_scope_open();
    cb_module *module = cb_module_new("Twice", twice, NULL);
    cb_module_parameter(module, "weight", cb_randn(cb_dims(8, 8)));
    cb_tensor *x = cb_randn(cb_dims(3, 8));
    for (int frozen = 0; frozen < 2; frozen++) {
        cb_module_train(module, !frozen);
        cb_function *fast = cb_compile(module, "backend=vm, autocast=bf16");
        cb_autocast_open(CB_BF16);
        expect_equal(cb_call(fast, x), cb_forward(module, x), 0.3);
        cb_autocast_close();
        char *text = cb_explain(fast);
        const char *graph = strstr(text, "  graph:\n");
        assert_int_equal(count(graph, "dtype=bf16)"), frozen ? 1 : 2); /* of x, of the weight */
        cb_free_text(text);
        cb_function_free(fast);
    }
    cb_module_free(module);
    cb_scope_close();
    assert_null(cb_error());
}

static cb_tensor *matmul_forward(cb_module *self, cb_tensor *const *inputs, int input_count) {
    (void)self, (void)input_count;
    return cb_matmul(inputs[0], inputs[0]);
}

static void fx_graphs_have_the_ops_as_written(void **state) {
    (void)state;
    cb_scope_open();
    cb_module *module = cb_module_new("Square", matmul_forward, NULL);
    cb_autocast_open(CB_BF16);
    cb_graph *graph = cb_symbolic_trace(module);
    assert_non_null(graph);
    cb_tensor *x = cb_ones(cb_dims(2, 2)), *y = NULL;
    assert_int_equal(cb_graph_run(graph, &x, 1, &y, 1), 1);
    assert_int_equal(cb_dtype_of(y), CB_BF16);
    cb_autocast_close();
    assert_int_equal(cb_graph_run(graph, &x, 1, &y, 1), 1);
    assert_int_equal(cb_dtype_of(y), CB_F32);
    cb_graph_free(graph);
    cb_module_free(module);
    cb_scope_close();
    assert_null(cb_error());
}

/* A forward of many layers under one scope: each weight is converted once, however many there are;
 * the bias that is not there is no operand. */
static void many_parameters(void **state) {
    (void)state;
    enum { LAYERS = 70 };
    cb_module *net = cb_nn_sequential();
    char name[8];
    cb_scope_open();
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "%d", i);
        cb_module_add(net, name, cb_nn_linear(4, 4, false));
    }
    cb_tensor *x = cb_randn(cb_dims(2, 4));
    cb_autocast_open(CB_BF16);
    cb_tensor *y = cb_forward(net, x);
    int64_t before = cb_memory().live_tensors;
    expect_equal(cb_forward(net, x), y, 0);
    assert_true(cb_memory().live_tensors <= before + LAYERS + 8); /* none of a weight */
    assert_int_equal(cb_dtype_of(y), CB_BF16);
    int64_t held = cb_memory().live_tensors;
    cb_autocast_close();
    assert_true(cb_memory().live_tensors <= held - 2 * LAYERS); /* a view of it, and the result */
    cb_module_free(net);
    cb_scope_close();
    assert_null(cb_error());
}

/* Scopes inside of a symbolic trace, where no dtype is known, are left to who runs the graph. */
static cb_tensor *opens_and_multiplies(cb_module *self, cb_tensor *const *inputs, int input_count) {
    (void)self, (void)input_count;
    cb_autocast_open(CB_BF16);
    cb_tensor *y = cb_linear(inputs[0], inputs[0], NULL);
    cb_autocast_close();
    return y;
}

static void symbolic_traces_do_not_convert(void **state) {
    (void)state;
    cb_scope_open();
    cb_module *module = cb_module_new("Opens", opens_and_multiplies, NULL);
    cb_graph *graph = cb_symbolic_trace(module);
    assert_non_null(graph);
    char *text = cb_graph_text(graph);
    assert_null(strstr(text, "bf"));
    cb_free_text(text);
    cb_tensor *x = cb_ones(cb_dims(2, 2)), *y = NULL;
    assert_int_equal(cb_graph_run(graph, &x, 1, &y, 1), 1);
    assert_int_equal(cb_dtype_of(y), CB_F32);
    cb_graph_free(graph);
    cb_module_free(module);
    cb_scope_close();
    assert_null(cb_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(result_dtypes_are_pytorchs),
        cmocka_unit_test(scopes_nest),
        cmocka_unit_test(misuse_is_an_error),
        cmocka_unit_test(parameters_are_converted_once),
        cmocka_unit_test(conversions_are_of_a_view_in_a_dtype),
        cmocka_unit_test(conversions_go_with_the_outermost_scope),
        cmocka_unit_test(guards),
        cmocka_unit_test(the_option),
        cmocka_unit_test(scopes_inside_functions),
        cmocka_unit_test(one_conversion_in_a_graph),
        cmocka_unit_test(fx_graphs_have_the_ops_as_written),
        cmocka_unit_test(many_parameters),
        cmocka_unit_test(symbolic_traces_do_not_convert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
