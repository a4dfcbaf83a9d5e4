/* What explain says of guards, and of calls that no graph takes: both values, by name. */
#include "capture/function.h"
#include "capture_support.h"

static int way;
static cb_tensor *outside;
static cb_module *module;

static cb_tensor *many_ways(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, way == 1 ? 3.0 : 2.0);
    y = way == 2 ? cb_sin(y) : cb_exp(y);
    y = cb_leaky_relu(y, way == 3 ? 0.25 : 0.125);
    y = cb_add(y, outside);
    if (way == 4) y = cb_neg(y);
    if (way == 5) return cb_add(y, 1);
    return cb_sqrt(y);
}

static void expect_said(cb_function *fast, const char *text) {
    char *said = cb_explain(fast);
    if (!strstr(said, text)) print_error("%s\nis not in\n%s", text, said);
    assert_non_null(strstr(said, text));
    cb_free_text(said);
}

/* Another op, number, attribute or tensor. */
static void ops(void **state) {
    (void)state;
    const char *said[] = {"after 0 ops: mul of 3.0 in place of 2.0",
                          "after 1 op: sin in place of exp",
                          "after 2 ops: leaky_relu with slope=0.25 in place of 0.125",
                          "after 4 ops: neg in place of sqrt"};
    cb_scope_open();
    cb_function *fast = cb_compile(many_ways, "backend=vm, dynamic=off");
    cb_tensor *x = ramp(2, 3);
    outside = ramp(2, 3);
    for (way = 0; way < 5; way++) {
        cb_call(fast, x);
        if (way) expect_said(fast, said[way - 1]);
    }
    way = 0;
    outside = ramp(1, 3);
    cb_call(fast, x);
    expect_said(fast, "after 3 ops: add of f32[1, 3] in place of f32[2, 3] as operand 1");
    cb_function_free(fast);
    cb_scope_close();
}

static cb_tensor *divided(cb_tensor *x) { return cb_floor_divide(x, way); }

/* A number that may not stand where an entry has an argument: as i8 it is 0. */
static void arguments(void **state) {
    (void)state;
    const int ways[] = {4, 2, 8, 256}, notes[] = {0, 1, 1, 2};
    cb_scope_open();
    cb_function *fast = cb_compile(divided, "backend=vm");
    cb_tensor *x = cb_to(ramp(2, 3), CB_I32);
    for (int i = 0; i < 4; i++) {
        way = ways[i];
        cb_call(fast, x);
        Note note[MAX_NOTES];
        assert_int_equal(function_notes(fast, note), notes[i]);
    }
    expect_said(fast, "after 0 ops: floor_divide of 256, which is no argument there: entry");
    cb_function_free(fast);
    cb_scope_close();
}

/* ---- calls that run op by op ----------------------------------------------------------------- */

static cb_tensor *picks(cb_tensor *x) { return cb_mul(cb_index_select(x, 0, outside), 2.0); }
static cb_tensor *does_not_fit(cb_tensor *x) { return cb_add(x, cb_ones(cb_dims(7))); }
static cb_tensor *asks(cb_tensor *x) { return cb_item(cb_sum(x)) > 0 ? x : cb_neg(x); }
static cb_tensor *doubles(cb_tensor *x) { return cb_mul(x, 2.0); }

static void expect_reason(cb_function_1 *function, const char *options, const char *text) {
    cb_function *fast = cb_compile(function, options);
    cb_call(fast, ramp(2, 3));
    cb_clear_error();
    expect_said(fast, text);
    cb_function_free(fast);
}

/* Whatever becomes of a call, a row says it. */
static void eager_calls(void **state) {
    (void)state;
    const int64_t index[] = {1, 9};
    cb_scope_open();
    outside = cb_from_data(index, CB_I64, cb_dims(2));
    expect_reason(picks, "backend=vm", "a step of the graph failed: the ops ran one by one (");
    expect_reason(does_not_fit, "backend=vm", " 0 eager\n");
    expect_reason(does_not_fit, "backend=vm",
                  "failed: an op of the function failed, or it left an "
                  "error: so did the call");
    expect_reason(asks, "fullgraph=1", "break: the function asked for a value");
    expect_reason(asks, "backend=vm", "another one behind (cb_item) at ");
    cb_set_option("stance", "force_eager");
    expect_reason(doubles, "backend=vm", "fallback: it was to run eagerly: ");
    cb_set_option("stance", "default");
    cb_disable_open();
    expect_reason(doubles, "backend=vm", "fallback: it was to run eagerly: ");
    cb_disable_close();
    cb_scope_close();
}

static cb_tensor *other_attributes(cb_tensor *x) {
    cb_tensor *y = cb_reshape(x, way == 1 ? cb_dims(3, 2) : cb_dims(6));
    y = way == 2 ? cb_add(y, outside) : cb_add(y, 2);
    y = cb_to(y, (cb_dtype)(way == 3 ? CB_F64 : CB_F16));
    y = cb_sum(y, way == 4 ? cb_dims(0) : cb_dims(-1));
    y = cb_clamp(y, 0.5, way == 5 ? 1 : 2);
    return cb_max_pool1d(cb_expand(cb_sum(y), cb_dims(2, 8)), way == 6 ? cb_dims(2) : cb_dims(4));
}

/* Lists, dtypes and numbers as they are written; a tensor where a number was. */
static void attributes(void **state) {
    (void)state;
    const char *said[] = {"after 0 ops: reshape with sizes=[3, 2] in place of [6])",
                          "after 1 op: add of f32[6] in place of 2 as operand 1)",
                          "after 2 ops: to with dtype=f64 in place of f16)",
                          "after 3 ops: sum with dim=[0] in place of [-1])",
                          "after 4 ops: clamp with high=1 in place of 2)",
                          "with kernel_size=[2] in place of [4])"};
    cb_scope_open();
    cb_function *fast = cb_compile(other_attributes, "backend=vm, dynamic=off");
    cb_tensor *x = ramp(2, 3);
    outside = cb_reshape(ramp(2, 3), cb_dims(6));
    for (way = 0; way < 7; way++) {
        cb_call(fast, x);
        if (way) expect_said(fast, said[way - 1]);
    }
    cb_function_free(fast);
    cb_scope_close();
    assert_string_equal(cb_error() ? cb_error() : "", "");
}

static int any_number(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)user;
    out[0] = cb_mul(x[0], (double)count);
    return 1;
}

/* Inputs: how many, of which sizes, strides. */
static void inputs(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile_n(any_number, NULL, VM);
    cb_tensor *x[] = {ramp(3, 3), ramp(3, 3)}, *out;
    cb_call_n(fast, x, 1, &out, 1);
    cb_call_n(fast, x, 2, &out, 1);
    expect_said(fast, "(another number of inputs, 2: entry 0 has 1)");
    x[1] = cb_transpose(x[1], 0, 1);
    cb_call_n(fast, x, 2, &out, 1);
    expect_said(fast, "(input 1 is f32[3, 3] of strides [1, 3], entry 1 has f32[3, 3] of strides "
                      "[3, 1])");
    expect_said(fast, "input 1: f32[3, 3] strides [1, 3]");
    x[1] = cb_slice(ramp(3, 6), 1, 0, 6, 2);
    cb_call_n(fast, x, 2, &out, 1);
    expect_said(fast, "(input 1 is f32[3, 3] of strides [6, 2], entry 2 has f32[3, 3] of strides "
                      "[1, 3])");
    cb_function_free(fast);
    cb_scope_close();
}

static double rate;

static cb_tensor *forward(cb_module *self, cb_tensor *const *x, int count) {
    (void)count;
    return cb_mul(cb_add(x[0], cb_module_get(self, "layer.bias")), rate);
}

/* Parameters by their path, arguments by their kind. */
static void names(void **state) {
    (void)state;
    cb_scope_open();
    module = cb_module_new("Net", forward, NULL);
    cb_module *layer = cb_module_add(module, "layer", cb_module_new("Layer", NULL, NULL));
    cb_module_parameter(layer, "bias", ramp(2, 3));
    cb_function *fast = cb_compile(module, VM);
    for (rate = 1; rate < 4; rate++) cb_call(fast, ramp(2, 3));
    expect_said(fast, "captured %1: f32[2, 3], layer.bias");
    expect_said(fast, "argument 0: any float");
    cb_function_free(fast);
    cb_module_free(module);
    cb_scope_close();
    assert_null(cb_error());
}

static int two(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)user, (void)count;
    out[0] = cb_add_(x[0], x[1]);
    return 1;
}

/* Each kind of guard in turn, both values named. */
static void kinds(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile_n(two, NULL, VM);
    cb_tensor *x[] = {ramp(2, 3), ramp(2, 3)}, *out;
    cb_call_n(fast, x, 2, &out, 1);
    cb_tensor *joined[] = {x[0], x[0]};
    cb_call_n(fast, joined, 2, &out, 1);
    expect_said(fast, "(input 1 is the same tensor as input 0, which is written: not in entry 0)");
    expect_said(fast, "cb_clone makes another one");
    cb_tensor *wide[] = {cb_to(x[0], CB_F64), x[1]};
    cb_call_n(fast, wide, 2, &out, 1);
    expect_said(fast, "(input 0 is f64[2, 3], entry 1 has f32[2, 3])");
    cb_tensor *longer[] = {ramp(2, 4), ramp(2, 4)};
    cb_call_n(fast, longer, 2, &out, 1);
    expect_said(fast, "(input 0 is f32[2, 4], entry 2 has f64[2, 3])");
    cb_tensor *flat[] = {cb_reshape(longer[0], cb_dims(8)), cb_reshape(longer[1], cb_dims(8))};
    cb_call_n(fast, flat, 2, &out, 1);
    expect_said(fast, "(input 0 is f32[8], entry 3 has f32[2, 4])");
    cb_autocast_open(CB_BF16);
    cb_call_n(fast, flat, 2, &out, 1);
    expect_said(fast, "autocast is bf16, for entry 4 it was off");
    expect_said(fast, "or autocast is another one than when it was recorded");
    cb_autocast_close();
    cb_set_option("precise", "1");
    cb_call_n(fast, flat, 2, &out, 1);
    expect_said(fast, "option precise is 1, for entry 5 it was 0");
    cb_set_option("precise", "0");
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

/* ---- gradients ------------------------------------------------------------------------------- */

static cb_tensor *leaf[2];

static cb_tensor *learns(cb_tensor *x) {
    cb_tensor *loss = cb_sum(cb_mul(cb_mul(x, leaf[0]), leaf[1]));
    cb_backward(loss, NULL);
    return way ? loss : cb_mul(loss, 2.0);
}

static cb_tensor *counts(cb_tensor *x) {
    cb_tensor *loss = cb_sum(cb_mul(x, leaf[0]));
    cb_zero_grad(leaf[0]);
    cb_backward(loss, NULL);
    cb_assign(outside, cb_add(outside, outside));
    return way ? cb_sin(loss) : cb_exp(loss);
}

/* A sum of the function's own, behind cb_backward, is none of gradients. */
static void sums(void **state) {
    (void)state;
    cb_scope_open();
    leaf[0] = cb_requires_grad_(ramp(2, 3), true);
    outside = cb_zeros(cb_dims(1));
    cb_function *fast = cb_compile(counts, VM);
    for (way = 0; way < 2; way++) cb_call(fast, ramp(2, 3));
    expect_said(fast, "sin in place of exp");
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

/* Of a function that adds a gradient to `outside`, in its second way. */
static void expect_departure(cb_function_1 *function, const char *said) {
    cb_scope_open();
    leaf[0] = cb_requires_grad_(ramp(2, 3), true);
    outside = cb_zeros(cb_dims(2, 3));
    cb_function *fast = cb_compile(function, VM);
    for (way = 0; way < 2; way++) cb_call(fast, ramp(2, 3));
    expect_said(fast, said);
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

/* On one line, as what cb_backward adds itself is. */
static cb_tensor *has_momentum(cb_tensor *x) {
    cb_tensor *loss = cb_sum(cb_mul(x, leaf[0]));
    cb_no_grad_open();
    cb_backward(loss, NULL), cb_add_(outside, cb_tensor_grad(leaf[0]));
    cb_tensor *y = way ? cb_sin(x) : cb_exp(x);
    cb_zero_grad(leaf[0]);
    cb_no_grad_close();
    return y;
}

/* Nor is one of a gradient and what is the function's own. */
static void momentum(void **state) {
    (void)state;
    expect_departure(has_momentum, "sin in place of exp");
}

static cb_tensor *adds_or_not(cb_tensor *x) {
    cb_backward(cb_sum(cb_mul(x, leaf[0])), NULL);
    cb_no_grad_open();
    if (way)
        outside = cb_sin(outside);
    else
        cb_add_(outside, cb_tensor_grad(leaf[0]));
    cb_zero_grad(leaf[0]);
    cb_no_grad_close();
    return cb_exp(outside);
}

/* Also where the run leaves the trace at that sum. */
static void no_momentum(void **state) {
    (void)state;
    expect_departure(adds_or_not, "sin in place of add");
}

static cb_tensor *times_found(cb_tensor *x) { return cb_detach(cb_mul(x, outside)); }

/* A leaf with a gradient, and one without any more, with an op behind it and with none. */
static void gradients(void **state) {
    (void)state;
    static const char *const said[] = {
        "a leaf has a gradient and had none, or the other way round (captured %3 has a gradient "
        "now, and entry 0 was recorded without one)",
        "(captured %3 has no gradient now, and entry 0 was recorded with one)"};
    for (int k = 0; k < 8; k++) {
        cb_scope_open();
        bool whole = k & 4, had = k & 2;
        way = k & 1;
        cb_tensor *x = ramp(2, 3);
        for (int i = 0; i < 2; i++) leaf[i] = cb_requires_grad_(ramp(2, 3), true);
        cb_function *fast = cb_compile(learns, whole ? "backend=vm, fullgraph=1" : VM);
        learns(x);
        if (!had) cb_zero_grad(leaf[1]);
        cb_call(fast, x);
        if (had) cb_zero_grad(leaf[1]);
        cb_call(fast, x);
        expect_said(fast, said[had]);
        assert_int_equal(cb_stats(fast).graphs, 2);
        cb_function_free(fast);
        cb_scope_close();
    }
    assert_null(cb_error());
}

/* Inputs, and what the function finds: whether they require a gradient, and their sizes. */
static void histories(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = ramp(2, 3);
    outside = ramp(2, 3);
    cb_function *fast = cb_compile(times_found, VM);
    cb_call(fast, x);
    cb_requires_grad_(outside, true);
    cb_call(fast, x);
    expect_said(fast, "a tensor requires a gradient and did not, or the other way round (after 0 "
                      "ops: mul of captured %1, which required no gradient)");
    cb_call(fast, cb_requires_grad_(ramp(2, 3), true));
    expect_said(fast,
                "or the other way round (input 0 is f32[2, 3] that requires a gradient, entry "
                "1 has f32[2, 3] that requires no gradient)");
    cb_function_free(fast);
    fast = cb_compile(times_found, VM);
    outside = ramp(2, 3);
    cb_call(fast, x);
    outside = ramp(1, 3);
    cb_call(fast, x);
    expect_said(fast,
                "a tensor that it finds has other sizes, strides or another dtype than before "
                "(after 0 ops: mul of f32[1, 3] in place of f32[2, 3] as operand 1)");
    outside = cb_transpose(ramp(3, 2), 0, 1);
    cb_call(fast, x);
    expect_said(fast, ", which lies otherwise now");
    cb_function_free(fast);
    cb_scope_close();
    assert_null(cb_error());
}

/* A parameter that was a constant, where the function does not run to find it. */
static void constants(void **state) {
    (void)state;
    cb_scope_open();
    rate = 2;
    module = cb_module_new("Net", forward, NULL);
    cb_module *layer = cb_module_add(module, "layer", cb_module_new("Layer", NULL, NULL));
    cb_module_parameter(layer, "bias", ramp(2, 3));
    cb_module_train(module, false);
    cb_function *fast = cb_compile(module, "backend=vm, fullgraph=1");
    cb_call(fast, ramp(2, 3));
    cb_fill_(cb_module_get(module, "layer.bias"), 1.5);
    expect_equal(cb_call(fast, ramp(2, 3)), cb_forward(module, ramp(2, 3)));
    expect_said(fast, "a constant of the graph was written to (layer.bias is of version 1, entry 0 "
                      "was compiled for version 0)");
    cb_function_free(fast);
    cb_module_free(module);
    cb_scope_close();
    assert_null(cb_error());
}

static cb_tensor *weight;

/* Steps of one kernel each, as many as there are rows. */
static cb_tensor *steps(cb_tensor *x) {
    cb_tensor *h = cb_zeros(cb_dims(2, 4));
    for (int i = 0; i < cb_size(x, 0); i++)
        h = cb_tanh(cb_add(cb_matmul(h, weight), cb_reshape(cb_select(x, 0, i), cb_dims(2, 4))));
    return h;
}

/* All of them are one kernel, another one for each number of rows. */
static cb_tensor *one_kernel(cb_tensor *x) {
    cb_tensor *y = cb_mul(cb_select(x, 0, 0), 0.5);
    for (int i = 1; i < cb_size(x, 0); i++) y = cb_add(cb_sin(cb_mul(y, 0.5)), cb_select(x, 0, i));
    return y;
}

/* Of 3 to 7 rows, below a limit of 3: whether the option dynamic is advised, how many ran
 * eagerly, and how many were compiled. */
static void expect_steps(cb_function_1 *function, const char *options, bool advised, int eager,
                         int compiled) {
    cb_function *fast = cb_compile(function, options);
    for (int n = 3; n < 8; n++)
        expect_tensor(cb_call(fast, ramp(n, 8)), function(ramp(n, 8)), 2e-5, 2e-5);
    cb_function_stats stats = cb_stats(fast);
    assert_int_equal(stats.eager_calls, eager);
    assert_in_range(stats.compiled, compiled ? compiled - 1 : 0,
                    compiled); /* 1 of them may be there already */
    char *text = cb_explain_summary(fast);
    assert_int_equal(strstr(text, "dynamic=1 may do") != NULL, advised);
    cb_free_text(text);
    cb_function_free(fast);
}

/* Where a size is how many ops there are: at the limit explain says what would do, which does. */
static void number_of_ops(void **state) {
    (void)state;
    cb_set_option("recompile_limit", "3");
    cb_scope_open();
    weight = cb_mul(ramp(4, 4), 0.3);
    expect_steps(steps, "", true, 2, 3);
    expect_steps(steps, "dynamic=1", false, 0, 1);
    expect_steps(steps, "dynamic=0", false, 2, 3);
    expect_steps(steps, VM, false, 2, 0);
    expect_steps(one_kernel, "", false, 2, 3);
    cb_scope_close();
    cb_set_option("recompile_limit", "8");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops),       cmocka_unit_test(eager_calls),
        cmocka_unit_test(arguments), cmocka_unit_test(attributes),
        cmocka_unit_test(inputs),    cmocka_unit_test(number_of_ops),
        cmocka_unit_test(names),     cmocka_unit_test(kinds),
        cmocka_unit_test(gradients), cmocka_unit_test(sums),
        cmocka_unit_test(momentum),  cmocka_unit_test(no_momentum),
        cmocka_unit_test(histories), cmocka_unit_test(constants),
    };
    return run_counted(tests);
}
