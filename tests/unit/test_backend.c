/* Backends of the user's: what they are given, that their code gives what eager does, and what
 * happens where they fail. */
#include "backends.h"
#include "capture_support.h"
#include "custom_ops.h"
#include "fixture.h"
#include <pthread.h>

static const char *const good[] = {"backend=eager", "backend=counting", "backend=inner"};
enum { GOOD = sizeof good / sizeof *good };

static int begin(void **state) {
    memset(&seen, 0, sizeof seen);
    open_scope(state);
    return register_test_backends() || register_test_ops();
}

static int end(void **state) {
    cb_free_text(seen.text);
    return close_scope_without_error(state);
}

static int64_t count_notes(cb_function *fast, const char *text) {
    char *explained = cb_explain(fast);
    int64_t count = 0;
    for (const char *at = explained; (at = strstr(at, text)); at++) count++;
    cb_free_text(explained);
    return count;
}

static void expect_whole(cb_function *fast) {
    cb_function_stats stats = cb_stats(fast);
    assert_int_equal(stats.eager_calls + stats.breaks + stats.recompiles, 0);
    assert_int_equal(count_notes(fast, "fallback:"), 0);
}

static void expect_same_by_all(cb_function_2 *function) {
    char options[80];
    for (int i = 0; i < GOOD; i++) {
        expect_same_2(function, good[i], 1);
        snprintf(options, sizeof options, "fullgraph=1,%s", good[i]);
        expect_same_2(function, options, 1);
    }
}

/* ---- what it is given ------------------------------------------------------------------------ */

static cb_tensor *half_of_sum(cb_tensor *x, cb_tensor *y) {
    return cb_relu(cb_mul(cb_add(x, y), 0.5));
}

/* A window of nothing, of a tensor without dims, is a call that backends can make again. */
static cb_tensor *windows_of_nothing(cb_tensor *x) {
    return cb_mul(cb_flip(cb_window(x, 0, 0), 0), cb_window(x, 0, 1));
}

static void windows_without_dims(void **state) {
    (void)state;
    for (int i = 0; i < GOOD; i++) {
        cb_function *fast = cb_compile(windows_of_nothing, good[i]);
        cb_tensor *x = cb_full(CB_NO_DIMS, 3.0);
        for (int call = 0; call < 2; call++) expect_equal(cb_call(fast, x), windows_of_nothing(x));
        expect_whole(fast);
        cb_function_free(fast);
    }
}

static void the_graph_is_as_called(void **state) {
    (void)state;
    cb_function *fast = cb_compile(half_of_sum, "backend=counting");
    for (int i = 0; i < 3; i++) {
        cb_tensor *x = ramp(3, 4), *y = cb_transpose(ramp(4, 3), 0, 1);
        expect_equal(cb_call(fast, x, y), half_of_sum(x, y));
    }
    assert_int_equal(seen.compiled, 1);
    assert_int_equal(seen.runs, 3);
    expect_whole(fast);
    assert_string_equal(
        seen.text,
        "graph():\n"
        "    %arg0 : [num_users=1] = placeholder[target=arg0]\n"
        "    %arg1 : [num_users=1] = placeholder[target=arg1]\n"
        "    %add : [num_users=1] = call_function[target=operator.add](args = (%arg0, %arg1), "
        "kwargs = {})\n"
        "    %mul : [num_users=1] = call_function[target=operator.mul](args = (%add, 0.5), "
        "kwargs = {})\n"
        "    %relu : [num_users=1] = call_method[target=relu](args = (%mul,), kwargs = {})\n"
        "    return (relu,)");
    assert_int_equal(count_notes(fast, "by backend counting"), 1);
    assert_int_equal(count_notes(fast, "backend=counting"), 1);
    char *summary = cb_explain_summary(fast);
    assert_non_null(strstr(summary, "made and run by backend counting"));
    cb_free_text(summary);
    assert_int_equal(cb_stats(fast).compiled, 1);
    cb_function_free(fast);
    assert_int_equal(seen.freed, 1);
}

static void strided_inputs_are_as_they_lie(void **state) {
    (void)state;
    for (int i = 0; i < GOOD; i++) {
        cb_function *fast = cb_compile(half_of_sum, good[i]);
        cb_tensor *x = ramp(3, 4), *y = cb_transpose(ramp(4, 3), 0, 1);
        for (int round = 0; round < 2; round++)
            expect_equal(cb_call(fast, x, y), half_of_sum(x, y));
        expect_whole(fast);
        cb_function_free(fast);
    }
}

static bool metas_seen;

static cb_status look_at_metas(cb_graph *graph, cb_backend_code *code, void *user) {
    (void)user;
    cb_dtype dtype;
    cb_dim_list sizes, strides;
    const cb_node *turned = cb_graph_find(graph, "arg1"), *mul = cb_graph_find(graph, "mul");
    metas_seen = cb_node_meta(turned, &dtype, &sizes) && cb_node_strides(turned, &strides) &&
                 dtype == CB_F32 && sizes.count == 2 && sizes.at[0] == 3 && sizes.at[1] == 4 &&
                 strides.count == 2 && strides.at[0] == 1 && strides.at[1] == 3 &&
                 cb_node_meta(mul, &dtype, &sizes) && dtype == CB_F32 && sizes.at[1] == 4;
    char *text = cb_graph_readable(graph, CB_READABLE_SITES);
    metas_seen &= strstr(text, "test_backend.c") != NULL;
    cb_free_text(text);
    return cb_backend_eager(graph, code);
}

static void metas_and_lines_are_known(void **state) {
    (void)state;
    assert_int_equal(cb_register_backend("metas", look_at_metas, NULL), CB_OK);
    cb_function *fast = cb_compile(half_of_sum, "backend=metas");
    cb_call(fast, ramp(3, 4), cb_transpose(ramp(4, 3), 0, 1));
    assert_true(metas_seen);
    cb_function_free(fast);
}

static void parameters_go_by_their_path(void **state) {
    (void)state;
    cb_module *net = cb_nn_sequential(cb_nn_linear(4, 8), cb_nn_relu(), cb_nn_linear(8, 2));
    cb_tensor *x = ramp(3, 4);
    for (int i = 0; i < GOOD; i++) {
        cb_function *fast = cb_compile(net, good[i]);
        expect_equal(cb_call(fast, x), cb_forward(net, x));
        cb_function_free(fast);
    }
    assert_non_null(seen.text);
    assert_non_null(strstr(seen.text, "placeholder[target=_0_weight]"));
    assert_non_null(strstr(seen.text, "placeholder[target=_2_bias]"));
    cb_module_free(net);
}

static cb_tensor *outside;
static double rate;

static cb_tensor *with_rate(cb_tensor *x) { return cb_sub(cb_add(x, outside), cb_mul(x, rate)); }

/* A number that changes is an input without dimensions from the second graph on. */
static void numbers_become_inputs(void **state) {
    (void)state;
    outside = ramp(3, 4);
    for (int i = 0; i < GOOD; i++) {
        cb_function *fast = cb_compile(with_rate, good[i]);
        for (rate = 0.1; rate < 1; rate += 0.2) {
            cb_tensor *x = ramp(3, 4);
            expect_equal(cb_call(fast, x), with_rate(x));
        }
        assert_int_equal(cb_stats(fast).graphs, 2);
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
    assert_non_null(strstr(seen.text, "placeholder[target=captured0]"));
    assert_non_null(strstr(seen.text, "placeholder[target=number0]"));
}

/* ---- the same as eager ----------------------------------------------------------------------- */

static cb_tensor *swap_inputs(cb_tensor *x, cb_tensor *y) {
    cb_tensor *before = cb_clone(x);
    cb_assign(x, y);
    cb_assign(y, before);
    return cb_select(x, 0, 1);
}

static cb_tensor *give_back(cb_tensor *x, cb_tensor *y) {
    (void)y;
    return cb_transpose(x, 0, 1);
}

static cb_tensor *mixed_dtypes(cb_tensor *x, cb_tensor *y) {
    cb_tensor *half = cb_mul(cb_to(x, CB_F64), 1.0 / 3), *whole = cb_to(cb_mul(y, 4.0), CB_I32);
    cb_tensor *odd = cb_where(cb_eq(cb_remainder(whole, 2), 1), 1.0, 0.0);
    return cb_add(cb_to(cb_pow(half, 2), CB_F32), cb_add(odd, cb_where(cb_gt(y, 0.0), x, 0.5)));
}

static cb_tensor *halves(cb_tensor *x, cb_tensor *y) {
    cb_tensor *u = cb_to(x, CB_F16), *v = cb_to(y, CB_BF16);
    return cb_add(cb_add(cb_div(cb_mul(u, 0.1), 3.3), 0.7), cb_to(cb_lerp(v, v, 0.3), CB_F16));
}

static cb_tensor *structure(cb_tensor *x, cb_tensor *y) {
    cb_tensor *both = cb_cat((cb_tensor *[]){x, y, cb_flip(x, 0)}, 3, 0);
    cb_tensor *picked = cb_index_select(both, 0, cb_argsort(cb_sum(both, 1), 0));
    return cb_softmax(cb_matmul(cb_slice(picked, 0, 1, 8, 2), cb_t(y)), -1);
}

static cb_tensor *own_ops(cb_tensor *x, cb_tensor *y) {
    cb_tensor *z = call_max(cb_mul(x, 2.0));
    call_scale(y, 3.0);
    call_note(z, 1);
    return cb_add(z, y);
}

static void results_are_as_in_eager(void **state) {
    (void)state;
    cb_function_2 *const functions[] = {half_of_sum,  write_views, write_input_view, swap_inputs,
                                        mixed_dtypes, structure,   give_back,        own_ops};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        expect_same_by_all(functions[i]);
}

/* Op by op, so that not even what is between two ops is kept in f32. */
static void numbers_beside_halves_are_as_given(void **state) {
    (void)state;
    cb_function *fast = cb_compile(halves, "backend=counting");
    cb_tensor *x = ramp(3, 4), *y = cb_add(ramp(3, 4), 0.3);
    expect_tensor(cb_call(fast, x, y), halves(x, y), 0, 0);
    expect_whole(fast);
    cb_function_free(fast);
}

static void draws_are_as_in_eager(void **state) {
    (void)state;
    for (int i = 0; i < GOOD; i++) {
        cb_function *fast = cb_compile(noisy, good[i]);
        for (int round = 0; round < 3; round++) {
            cb_tensor *x = ramp(3, 4);
            cb_manual_seed(5);
            cb_tensor *expected = cb_add(noisy(x), cb_rand(4));
            cb_manual_seed(5);
            expect_equal(cb_add(cb_call(fast, x), cb_rand(4)), expected);
        }
        expect_whole(fast);
        cb_function_free(fast);
    }
}

static cb_tensor *until_small(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, x);
    while (cb_item(cb_sum(y)) > 1) y = cb_mul(y, 0.5);
    return cb_add(y, x);
}

/* Each segment between two values is a graph of its own. */
static void segments_are_graphs(void **state) {
    (void)state;
    for (int i = 0; i < GOOD; i++) {
        memset(&seen.compiled, 0, sizeof seen.compiled);
        cb_function *fast = cb_compile(until_small, good[i]);
        for (int round = 0; round < 4; round++) {
            cb_tensor *x = cb_mul(ramp(3, 4), 1.0 + round);
            expect_equal(cb_call(fast, x), until_small(x));
        }
        assert_true(cb_stats(fast).graphs > 1);
        if (i) assert_int_equal(seen.compiled, cb_stats(fast).graphs);
        assert_int_equal(count_notes(fast, "fallback:"), 0);
        cb_function_free(fast);
    }
}

static void autocast_is_in_the_graph(void **state) {
    (void)state;
    cb_module *net = cb_nn_linear(4, 8);
    cb_tensor *x = ramp(3, 4);
    for (int i = 0; i < GOOD; i++) {
        cb_function *fast = cb_compile(net, good[i]);
        cb_autocast_open(CB_BF16);
        cb_tensor *expected = cb_forward(net, x), *got = cb_call(fast, x);
        cb_autocast_close();
        assert_int_equal(cb_dtype_of(got), CB_BF16);
        expect_tensor(got, expected, 1e-2, 1e-2);
        cb_function_free(fast);
        char options[80];
        snprintf(options, sizeof options, "autocast=0,%s", good[i]);
        fast = cb_compile(net, options);
        cb_autocast_open(CB_BF16);
        got = cb_call(fast, x);
        cb_autocast_close();
        expect_equal(got, cb_forward(net, x));
        expect_whole(fast);
        cb_function_free(fast);
    }
    cb_module_free(net);
}

/* The oracle judges the code of a backend, too. */
static void check_compares_them(void **state) {
    (void)state;
    cb_set_option("check", "1");
    expect_same_2(write_input_view, "backend=counting", 1);
    cb_set_option("check", "0");
}

/* ---- changing the graph ---------------------------------------------------------------------- */

static cb_status subtract_instead(cb_graph *graph, cb_backend_code *code, void *user) {
    for (cb_node *node = cb_graph_first(graph); node; node = cb_node_next(node))
        if (!strcmp(cb_node_target(node), "operator.add")) cb_node_set_target(node, "operator.sub");
    return user ? cb_backend_inner(graph, "backend=vm", code) : cb_backend_eager(graph, code);
}

static cb_status through_function(void *state, cb_tensor *const *inputs, int count,
                                  cb_tensor **outputs, int capacity) {
    return cb_call_n(state, inputs, count, outputs, capacity) == capacity ? CB_OK : CB_ERR_COMPILE;
}

static void free_function(void *state) { cb_function_free(state); }

/* The graph is one more thing that cb_compile takes. */
static cb_status compile_function(cb_graph *graph, cb_backend_code *code, void *user) {
    (void)user;
    cb_function *inner = cb_compile(graph, "backend=vm");
    *code = (cb_backend_code){through_function, free_function, inner};
    return inner ? count_code(code) : CB_ERR_COMPILE;
}

/* The pairs of a join become one list of everything. */
static cb_status join_at_once(cb_graph *graph, cb_backend_code *code, void *user) {
    (void)user;
    cb_arg part[] = {cb_arg_node(cb_graph_find(graph, "arg0")),
                     cb_arg_node(cb_graph_find(graph, "arg1")),
                     cb_arg_node(cb_graph_find(graph, "arg2"))};
    cb_node *last = NULL;
    for (cb_node *node = cb_graph_first(graph); node; node = cb_node_next(node))
        if (!strcmp(cb_node_target(node), "torch.cat")) last = node;
    assert_non_null(last);
    assert_int_equal(cb_node_set_arg(last, 0, cb_arg_list(part, 3)), CB_OK);
    cb_graph_dead_code(graph);
    return cb_backend_inner(graph, "backend=vm", code);
}

static int join_three(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)user;
    out[0] = cb_cat(x, count, 0);
    return 1;
}

/* i64 and f16 alone would promote to f16, in which 100001 is inf. */
static void lists_are_joined_in_the_dtype_of_all(void **state) {
    (void)state;
    cb_register_backend("joining", join_at_once, NULL);
    cb_tensor *x[] = {cb_full(cb_dims(2), 100001, CB_I64), cb_ones(cb_dims(3), CB_F16),
                      cb_zeros(cb_dims(1))};
    cb_tensor *joined, *wanted = cb_cat(x, 3, 0);
    cb_function *fast = cb_compile_n(join_three, NULL, "backend=joining");
    assert_int_equal(cb_call_n(fast, x, 3, &joined, 1), 1);
    expect_equal(joined, wanted);
    cb_function_free(fast);
}

static int returns_one(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_item(cb_sum(x[1]));
    out[0] = x[0];
    out[1] = cb_add(x[1], 1.0);
    return 2;
}

/* Behind an event, what is only returned: other sizes of it are another entry. */
static void what_is_only_returned_has_its_sizes(void **state) {
    (void)state;
    cb_function *fast = cb_compile_n(returns_one, NULL, "backend=inner");
    for (int round = 0; round < 2; round++)
        for (int n = 3; n < 6; n++) {
            cb_tensor *x[] = {cb_ones(cb_dims(n)), cb_ones(cb_dims(4))}, *out[2];
            assert_int_equal(cb_call_n(fast, x, 2, out, 2), 2);
            assert_int_equal(cb_size(out[0], 0), n);
        }
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    assert_int_equal(count_notes(fast, "fallback:"), 0);
    cb_function_free(fast);
}

static void graphs_are_changed_and_handed_on(void **state) {
    (void)state;
    static int hands_on;
    cb_register_backend("subtracting", subtract_instead, NULL);
    cb_register_backend("subtracting_inner", subtract_instead, &hands_on);
    cb_register_backend("function", compile_function, NULL);
    cb_tensor *x = ramp(3, 4), *y = cb_mul(ramp(3, 4), 0.25);
    cb_tensor *changed = cb_relu(cb_mul(cb_sub(x, y), 0.5));
    static const char *const options[] = {"backend=subtracting", "backend=subtracting_inner",
                                          "backend=function"};
    for (int i = 0; i < 3; i++) {
        cb_function *fast = cb_compile(half_of_sum, options[i]);
        for (int round = 0; round < 2; round++)
            expect_equal(cb_call(fast, x, y), i < 2 ? changed : half_of_sum(x, y));
        expect_whole(fast);
        cb_function_free(fast);
    }
    assert_int_equal(seen.freed, 1);
    expect_same_by_all(write_input_view);
}

/* ---- where it fails -------------------------------------------------------------------------- */

static cb_status refuse(cb_graph *graph, cb_backend_code *code, void *user) {
    (void)graph, (void)code;
    return user ? (cb_status)(intptr_t)user : cb_fail(CB_ERR_GRAPH, "too many ops for me");
}

static cb_status give_nothing(cb_graph *graph, cb_backend_code *code, void *user) {
    (void)graph, (void)code, (void)user;
    return CB_OK;
}

static cb_status make_and_fail(cb_graph *graph, cb_backend_code *code, void *user) {
    (void)user;
    cb_status status = cb_backend_eager(graph, code);
    if (status == CB_OK) status = count_code(code);
    cb_fail(CB_ERR_GRAPH, "an op on the way failed");
    return status;
}

/* The whole work is done by Carbide's compiler, and a reason says who refused and why. */
static void refused_graphs_compile(void **state) {
    (void)state;
    cb_set_option("notices", "0");
    cb_register_backend("refusing", refuse, NULL);
    cb_register_backend("refusing_silently", refuse, (void *)(intptr_t)CB_ERR_MEMORY);
    cb_register_backend("giving_nothing", give_nothing, NULL);
    cb_register_backend("failing_late", make_and_fail, NULL);
    static const char *const options[][2] = {
        {"backend=refusing", "(refusing: "},
        {"backend=refusing_silently", "(refusing_silently: it failed)"},
        {"backend=giving_nothing", "it gave nothing to run)"},
        {"backend=failing_late", "an op on the way failed)"}};
    for (int i = 0; i < 4; i++) {
        cb_function *fast = cb_compile(half_of_sum, options[i][0]);
        for (int round = 0; round < 2; round++) {
            cb_tensor *x = ramp(3, 4), *y = ramp(3, 4);
            expect_equal(cb_call(fast, x, y), half_of_sum(x, y));
        }
        assert_int_equal(count_notes(fast, options[i][1]), 1);
        assert_int_equal(cb_stats(fast).kernels, 1);
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
    assert_int_equal(seen.freed, 1);
    cb_set_option("notices", "1");
}

static enum {
    FAIL_LOUDLY,
    FAIL_SILENTLY,
    GIVE_NULL,
    GIVE_OTHER_SIZES,
    GIVE_OTHER_DTYPE,
    LEAVE_AUTOCAST,
    DRAW_AND_FAIL,
    WAYS_TO_FAIL
} way;
static cb_backend_code behind; /* what would have been right */

static cb_status run_badly(void *state, cb_tensor *const *inputs, int input_count,
                           cb_tensor **outputs, int output_count) {
    (void)state;
    switch (way) {
    case FAIL_LOUDLY:
        return cb_fail(CB_ERR_IO, "the accelerator is on fire");
    case FAIL_SILENTLY:
        return CB_ERR_IO;
    case GIVE_OTHER_SIZES:
        outputs[0] = cb_zeros(cb_dims(2, 2));
        return CB_OK;
    case GIVE_OTHER_DTYPE:
        outputs[0] = cb_zeros(cb_dims(3, 4), CB_F64);
        return CB_OK;
    case LEAVE_AUTOCAST:
        cb_autocast_open(CB_BF16);
        return behind.run(behind.state, inputs, input_count, outputs, output_count);
    case DRAW_AND_FAIL:
        cb_rand(4);
        return CB_ERR_IO;
    default:
        return CB_OK;
    }
}

static cb_status compile_badly(cb_graph *graph, cb_backend_code *code, void *user) {
    (void)user;
    code->run = run_badly;
    return cb_backend_eager(graph, &behind);
}

static cb_tensor *write_and_draw(cb_tensor *x, cb_tensor *y) {
    cb_add_(x, cb_mul(y, 2.0));
    return cb_add(x, cb_rand_like(x));
}

/* Nothing of a run that failed is seen: writes happen once, draws are given back. */
static void failing_code_runs_op_by_op(void **state) {
    (void)state;
    cb_set_option("notices", "0");
    cb_register_backend("bad", compile_badly, NULL);
    static const char *const why[] = {"the accelerator is on fire, in backend bad",
                                      "recorded no error, in backend bad",
                                      "output 0 is NULL, where the graph gives f32[3, 4]",
                                      "output 0 is f32[2, 2], where the graph gives f32[3, 4]",
                                      "output 0 is f64[3, 4], where",
                                      "did not close it, in backend bad",
                                      "recorded no error, in backend bad"};
    for (way = 0; way < WAYS_TO_FAIL; way++)
        for (int whole = 0; whole < 2; whole++) {
            cb_function *fast =
                cb_compile(write_and_draw, whole ? "backend=bad,fullgraph=1" : "backend=bad");
            for (int round = 0; round < 2; round++) {
                cb_tensor *x = ramp(3, 4), *y = ramp(3, 4), *u = ramp(3, 4);
                cb_manual_seed(3);
                cb_tensor *expected = write_and_draw(x, y);
                cb_manual_seed(3);
                expect_equal(cb_call(fast, u, y), expected);
                expect_equal(u, x);
            }
            assert_int_equal(count_notes(fast, why[way]), 1);
            assert_int_equal(cb_stats(fast).eager_calls, 2);
            cb_function_free(fast);
        }
    cb_set_option("notices", "1");
}

static cb_tensor *with_effect(cb_tensor *x) {
    call_note(x, 1);
    return cb_mul(x, 2.0);
}

/* Effects do not happen twice: then the failure is the call's. */
static void failing_code_with_effects(void **state) {
    (void)state;
    cb_set_option("notices", "0");
    cb_register_backend("bad", compile_badly, NULL);
    way = FAIL_LOUDLY;
    cb_function *fast = cb_compile(with_effect, "backend=bad");
    *custom_log = 0;
    cb_tensor *x = ramp(3, 4);
    assert_null(cb_call(fast, x));
    expect_error("the accelerator is on fire, in backend bad");
    assert_string_equal(custom_log, "");
    cb_function_free(fast);
    cb_set_option("notices", "1");
}

static cb_tensor *pick(cb_tensor *x, cb_tensor *index) { return cb_index_select(x, 0, index); }

/* An op that fails in the code fails as it does in eager. */
static void errors_of_ops_are_those_of_eager(void **state) {
    (void)state;
    cb_set_option("notices", "0");
    for (int i = 0; i < GOOD; i++) {
        cb_function *fast = cb_compile(pick, good[i]);
        cb_tensor *x = ramp(3, 4);
        assert_non_null(cb_call(fast, x, cb_from_data(((int64_t[]){2, 0}), CB_I64, 2)));
        assert_null(cb_call(fast, x, cb_from_data(((int64_t[]){2, 3}), CB_I64, 2)));
        expect_error("index_select");
        cb_function_free(fast);
    }
    cb_set_option("notices", "1");
}

/* ---- outputs that are not its own ------------------------------------------------------------ */

static cb_tensor *constant;

static cb_status give_shared(void *state, cb_tensor *const *inputs, int input_count,
                             cb_tensor **outputs, int output_count) {
    (void)state, (void)input_count, (void)output_count;
    outputs[0] = inputs[0];
    cb_tensor *both = cb_cat((cb_tensor *[]){cb_neg(inputs[0]), inputs[0]}, 2, 0);
    outputs[1] = cb_slice(both, 0, 3, 6);
    cb_free(both); /* its second half alone is left, and nobody else has it */
    outputs[2] = outputs[1];
    outputs[3] = constant;
    cb_free(inputs[1]);
    return CB_OK;
}

static cb_status compile_shared(cb_graph *graph, cb_backend_code *code, void *user) {
    (void)graph, (void)user;
    code->run = give_shared;
    return CB_OK;
}

static int four(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    for (int i = 0; i < 4; i++) out[i] = cb_add(x[i % 2], (double)i);
    return 4;
}

static void outputs_are_nobody_elses(void **state) {
    (void)state;
    cb_register_backend("sharing", compile_shared, NULL);
    cb_function *fast = cb_compile_n(four, NULL, "backend=sharing");
    cb_tensor *x[] = {ramp(3, 4), ramp(3, 4)}, *out[4];
    constant = cb_full(cb_dims(3, 4), 7.0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(cb_call_n(fast, x, 2, out, 4), 4);
        expect_equal(out[1], x[0]);
        for (int i = 0; i < 4; i++) {
            for (int k = 0; k < i; k++) assert_false(cb_shares_storage(out[i], out[k]));
            assert_false(cb_shares_storage(out[i], x[0]) || cb_shares_storage(out[i], constant));
            cb_fill_(out[i], 9.0);
        }
        expect_equal(x[0], ramp(3, 4));
        expect_equal(x[1], ramp(3, 4));
        assert_true(cb_item(cb_max(constant)) == 7);
    }
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

/* ---- lifetimes ------------------------------------------------------------------------------- */

static void reset_frees_the_code(void **state) {
    (void)state;
    cb_function *fast = cb_compile(half_of_sum, "backend=inner");
    cb_tensor *x = ramp(3, 4);
    cb_call(fast, x, x);
    assert_int_equal(cb_reset(), CB_OK);
    cb_call(fast, x, x);
    assert_int_equal(seen.compiled, 2);
    assert_int_equal(seen.freed, 1);
    cb_function_free(fast);
    assert_int_equal(seen.freed, 2);
}

static cb_function *recursive;

static cb_status compile_recursively(cb_graph *graph, cb_backend_code *code, void *user) {
    (void)user;
    cb_tensor *x = ramp(3, 4);
    expect_equal(cb_call(recursive, x, x), half_of_sum(x, x));
    return cb_backend_eager(graph, code);
}

static void a_backend_may_call_its_function(void **state) {
    (void)state;
    cb_register_backend("recursive", compile_recursively, NULL);
    recursive = cb_compile(half_of_sum, "backend=recursive");
    cb_tensor *x = ramp(3, 4);
    expect_equal(cb_call(recursive, x, x), half_of_sum(x, x));
    assert_int_equal(cb_stats(recursive).eager_calls, 1);
    cb_function_free(recursive);
}

enum { THREADS = 4, ROUNDS = 50 };

static void *call_often(void *user) {
    for (int i = 0; i < ROUNDS; i++) {
        cb_scope_open();
        cb_tensor *x = cb_full(cb_dims(3, 4), (double)i), *y = ramp(3, 4), *u = ramp(3, 4);
        cb_tensor *got = cb_call(user, y, x), *expected = write_input_view(u, x);
        bool same = got && cb_item(cb_max(cb_abs(cb_sub(got, expected)))) < 1e-4 &&
                    cb_item(cb_max(cb_abs(cb_sub(y, u)))) < 1e-4;
        cb_scope_close();
        if (!same) return user;
    }
    return NULL;
}

static void threads_run_one_code(void **state) {
    (void)state;
    for (int i = 0; i < GOOD; i++) {
        cb_function *fast = cb_compile(write_input_view, good[i]);
        pthread_t thread[THREADS];
        for (int t = 0; t < THREADS; t++) pthread_create(&thread[t], NULL, call_often, fast);
        for (int t = 0; t < THREADS; t++) {
            void *failed;
            pthread_join(thread[t], &failed);
            assert_null(failed);
        }
        assert_int_equal(cb_stats(fast).graphs, 1);
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
    assert_int_equal(seen.runs, 2 * THREADS * ROUNDS);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void names_are_checked(void **state) {
    (void)state;
    assert_int_equal(cb_register_backend("counting", compile_counting, NULL), CB_OK);
    assert_int_equal(cb_register_backend("counting", compile_inner, NULL), CB_ERR_ARGUMENT);
    expect_error("register_backend: counting is another backend already");
    assert_int_equal(cb_register_backend("counting", compile_counting, &way), CB_ERR_ARGUMENT);
    expect_error("counting is another");
    assert_int_equal(cb_register_backend("vm", refuse, NULL), CB_ERR_ARGUMENT);
    expect_error("vm is another backend already");
    assert_int_equal(cb_register_backend("eager", refuse, NULL), CB_ERR_ARGUMENT);
    expect_error("eager is another");
    assert_int_equal(cb_register_backend("a b", refuse, NULL), CB_ERR_ARGUMENT);
    expect_error("'a b' is no name");
    assert_int_equal(cb_register_backend("", refuse, NULL), CB_ERR_ARGUMENT);
    expect_error("'' is no name");
    assert_int_equal(cb_register_backend(NULL, refuse, NULL), CB_ERR_ARGUMENT);
    expect_error("is NULL");
    assert_int_equal(cb_register_backend("none", NULL, NULL), CB_ERR_ARGUMENT);
    expect_error("is NULL");
    assert_null(cb_compile(half_of_sum, "backend=unheard_of"));
    expect_error("option backend cannot be 'unheard_of'; it can be c, vm, eager");
}

static const char *asked;

static cb_status note_and_refuse(cb_graph *graph, cb_backend_code *code, void *user) {
    (void)graph, (void)code;
    asked = user;
    return CB_ERR_COMPILE;
}

/* A name that is a word of switches is that backend's all the same. */
static void switches_are_names(void **state) {
    (void)state;
    static const char *const name[] = {"on", "true", "1", "off"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(cb_register_backend(name[i], note_and_refuse, (void *)(uintptr_t)name[i]),
                         CB_OK);
    for (int i = 0; i < 4; i++) {
        char option[32];
        snprintf(option, sizeof option, "backend=%s", name[i]);
        cb_function *fast = cb_compile(half_of_sum, option);
        assert_non_null(cb_call(fast, cb_ones(cb_dims(2)), cb_ones(cb_dims(2))));
        assert_ptr_equal(asked, name[i]);
        cb_function_free(fast);
    }
}

static void inner_says_what_it_does_not_take(void **state) {
    (void)state;
    cb_backend_code code;
    cb_graph *graph =
        cb_graph_parse("graph():\n"
                       "    %x : [num_users=1] = placeholder[target=x]\n"
                       "    %relu_ : [num_users=1] = call_method[target=relu_](args = "
                       "(%x,), kwargs = {})\n"
                       "    return relu_",
                       NULL);
    assert_int_equal(cb_backend_inner(graph, NULL, &code), CB_ERR_GRAPH);
    expect_error("node %x (placeholder x): its dtype and sizes are not known");
    cb_tensor *x = ramp(3, 4);
    cb_graph_propagate_shapes(graph, &x, 1);
    assert_int_equal(cb_backend_inner(graph, NULL, &code), CB_ERR_GRAPH);
    expect_error("node %relu_ (call_method relu_): the compiler takes ops that write to nothing");
    cb_node_set_target(cb_graph_find(graph, "relu_"), "relu");
    assert_int_equal(cb_backend_inner(graph, "backend=eager", &code), CB_ERR_OPTION);
    expect_error("the backend is Carbide's own");
    assert_int_equal(cb_backend_inner(graph, "mode=fast", &code), CB_ERR_OPTION);
    expect_error("mode");
    assert_int_equal(cb_backend_inner(NULL, NULL, &code), CB_ERR_ARGUMENT);
    expect_error("NULL");
    assert_int_equal(cb_backend_eager(graph, NULL), CB_ERR_ARGUMENT);
    expect_error("NULL");
    assert_int_equal(cb_backend_inner(graph, "backend=vm", &code), CB_OK);
    cb_tensor *y, *wrong[] = {ramp(4, 3), cb_transpose(ramp(4, 3), 0, 1)};
    assert_int_equal(code.run(code.state, &x, 1, &y, 1), CB_OK);
    expect_equal(y, cb_relu(x));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(code.run(code.state, &wrong[i], 1, &y, 1), CB_ERR_ARGUMENT);
        expect_error("input 0 is not as its placeholder says");
    }
    assert_int_equal(code.run(code.state, &x, 1, &y, 0), CB_ERR_ARGUMENT);
    expect_error("1 inputs and 1 outputs, not 1 and 0");
    code.free(code.state);
    cb_graph_free(graph);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {TEST(the_graph_is_as_called),
                                       TEST(strided_inputs_are_as_they_lie),
                                       TEST(metas_and_lines_are_known),
                                       TEST(parameters_go_by_their_path),
                                       TEST(numbers_become_inputs),
                                       TEST(what_is_only_returned_has_its_sizes),
                                       TEST(results_are_as_in_eager),
                                       TEST(numbers_beside_halves_are_as_given),
                                       TEST(draws_are_as_in_eager),
                                       TEST(windows_without_dims),
                                       TEST(segments_are_graphs),
                                       TEST(autocast_is_in_the_graph),
                                       TEST(check_compares_them),
                                       TEST(lists_are_joined_in_the_dtype_of_all),
                                       TEST(graphs_are_changed_and_handed_on),
                                       TEST(refused_graphs_compile),
                                       TEST(failing_code_runs_op_by_op),
                                       TEST(failing_code_with_effects),
                                       TEST(errors_of_ops_are_those_of_eager),
                                       TEST(outputs_are_nobody_elses),
                                       TEST(reset_frees_the_code),
                                       TEST(a_backend_may_call_its_function),
                                       TEST(threads_run_one_code),
                                       TEST(switches_are_names),
                                       TEST(names_are_checked),
                                       TEST(inner_says_what_it_does_not_take)};
    return cmocka_run_group_tests_name("backend", tests, NULL, clean_up);
}
