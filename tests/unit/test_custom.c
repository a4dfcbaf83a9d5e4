/* Operations of the user's: registered, called eagerly and in compiled functions, which give the
 * same without a break. */
#include "capture_support.h"
#include "custom_ops.h"

#include <pthread.h>

static void expect_error(const char *part, cb_status status) {
    assert_non_null(cb_error());
    if (!strstr(cb_error(), part)) print_error("%s\n", cb_error());
    assert_non_null(strstr(cb_error(), part));
    assert_int_equal(cb_error_status(), status);
    cb_clear_error();
}

static void expect_elements(cb_tensor *x, const float *wanted, int64_t count) {
    expect_tensor(cb_reshape(x, -1), cb_from_data(wanted, CB_F32, count), 0, 0);
}

static int begin(void **state) {
    (void)state;
    cb_scope_open();
    *custom_log = 0, custom_runs = 0;
    return register_test_ops();
}

static int end(void **state) {
    (void)state;
    cb_scope_close();
    return cb_error() != NULL;
}

/* The function compiled under fullgraph: one graph, no break, no eager call. */
static void expect_whole_2(cb_function_2 *function) {
    expect_same_2(function, VM, 1);
    expect_same_2(function, VM ",fullgraph=1", 1);
    expect_same_2(function, "fuse=0," VM, 1);
    cb_function *fast = cb_compile(function, VM);
    for (int i = 0; i < 3; i++) {
        cb_tensor *x = ramp(3, 4), *y = ramp(3, 4);
        cb_call(fast, x, y);
    }
    cb_function_stats stats = cb_stats(fast);
    assert_int_equal(stats.breaks + stats.eager_calls, 0);
    cb_function_free(fast);
}

/* ---- pure ------------------------------------------------------------------------------------ */

static cb_tensor *between_kernels(cb_tensor *x, cb_tensor *y) {
    cb_tensor *most = call_max(cb_sub(cb_mul(x, 2.0), cb_sum(y)));
    return cb_add(cb_relu(most), y);
}

static cb_tensor *of_views(cb_tensor *x, cb_tensor *y) {
    cb_tensor *turned = call_max(cb_transpose(x, 0, 1)), *row = call_max(cb_select(y, 0, 1));
    cb_tensor *spread = call_max(cb_expand(cb_slice(y, 1, 0, 1), cb_dims(3, 4)));
    return cb_add(cb_add(cb_transpose(turned, 0, 1), row), cb_add(spread, call_max(y)));
}

static cb_tensor *returned(cb_tensor *x, cb_tensor *y) {
    (void)y;
    return call_max(x);
}

static cb_tensor *of_numbers(cb_tensor *x, cb_tensor *y) {
    return cb_add(call_max(cb_full(cb_dims(3, 4), 2.5)), cb_add(x, y));
}

static void pure(void **state) {
    (void)state;
    float data[] = {1, 3, 2, 5, 4, 0};
    cb_tensor *x = cb_from_data(data, CB_F32, cb_dims(2, 3));
    expect_elements(call_max(x), (float[]){1, 3, 3, 5, 5, 5}, 6);
    expect_elements(call_max(cb_transpose(x, 0, 1)), (float[]){1, 5, 5, 5, 5, 5}, 6);
    expect_whole_2(between_kernels);
    expect_whole_2(of_views);
    expect_whole_2(returned);
    expect_whole_2(of_numbers);
}

static cb_tensor *twice_and_unused(cb_tensor *x, cb_tensor *y) {
    call_max(y);
    return cb_add(call_max(x), call_max(x));
}

static void equal_calls_are_one(void **state) {
    (void)state;
    cb_function *fast = cb_compile(twice_and_unused, VM);
    cb_tensor *x = ramp(3, 4), *y = ramp(3, 4);
    cb_call(fast, x, y);
    custom_runs = 0;
    cb_call(fast, x, y);
    assert_int_equal(custom_runs, 1);
    cb_function_free(fast);
}

/* An input that is strided at the call, and one that is not of f32. */
static void strided_inputs(void **state) {
    (void)state;
    cb_function *fast = cb_compile(returned, VM);
    cb_tensor *x = cb_transpose(ramp(4, 3), 0, 1), *y = ramp(3, 4);
    for (int i = 0; i < 2; i++) expect_tensor(cb_call(fast, x, y), call_max(x), 0, 0);
    cb_function_free(fast);
}

/* ---- several results ------------------------------------------------------------------------- */

static int split_both(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *flat = cb_add(cb_reshape(in[0], cb_dims(-1)), 0.5), *part[2];
    if (cb_call_op_n("test.split", &flat, 1, 5, CB_NO_FLOATS, part, 2) != 2) return -1;
    out[0] = cb_mul(part[0], 2.0);
    out[1] = part[1];
    return 2;
}

static void several_results(void **state) {
    (void)state;
    cb_function *fast = cb_compile_n(split_both, NULL, VM ",fullgraph=1");
    for (int i = 0; i < 3; i++) {
        cb_tensor *x = cb_mul(ramp(3, 4), (double)i), *wanted[2], *got[2];
        assert_int_equal(split_both(&x, 1, wanted, NULL), 2);
        assert_int_equal(cb_call_n(fast, &x, 1, got, 2), 2);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(cb_dtype_of(got[k]), cb_dtype_of(wanted[k]));
            expect_tensor(got[k], wanted[k], 0, 0);
        }
        assert_false(cb_shares_storage(wanted[0], wanted[1]));
    }
    cb_function_free(fast);
    cb_tensor *x = cb_reshape(ramp(3, 4), 12), *part[2];
    for (int at = 0; at <= 12; at += 12) { /* one of them is empty */
        assert_int_equal(cb_call_op_n("test.split", &x, 1, at, CB_NO_FLOATS, part, 2), 2);
        assert_int_equal(cb_numel(part[0]), at);
        assert_int_equal(cb_numel(part[1]), 12 - at);
    }
    assert_int_equal(cb_numel(cb_call_op("test.split", &x, 1, 3, CB_NO_FLOATS)), 3);
}

/* ---- writes ---------------------------------------------------------------------------------- */

static cb_tensor *writes(cb_tensor *x, cb_tensor *y) {
    cb_tensor *before = cb_add(x, 1.0), *z = cb_mul(x, y);
    call_scale(x, 3.0);                  /* an input */
    call_scale(cb_select(y, 0, 1), 0.5); /* a view of one */
    call_scale(z, 2.0);                  /* a temporary */
    call_scale(cb_slice(z, 1, 0, 4, 2), -1.0);
    return cb_add(cb_add(before, x), cb_mul(z, y));
}

static cb_tensor *writes_and_gives(cb_tensor *x, cb_tensor *y) {
    cb_tensor *both[] = {x, y}, *same[] = {x, x};
    cb_tensor *a = cb_call_op("test.add_count", both, 2, CB_NO_DIMS, CB_NO_FLOATS);
    cb_tensor *b = cb_call_op("test.add_count", both, 2, CB_NO_DIMS, CB_NO_FLOATS);
    cb_tensor *c = cb_call_op("test.add_count", same, 2, CB_NO_DIMS, CB_NO_FLOATS);
    return cb_add(cb_add(a, b), cb_add(c, y));
}

static void writes_inputs(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(cb_dims(2, 2)), *row = cb_select(x, 1, 0);
    assert_ptr_equal(call_scale(row, 4.0), row);
    expect_elements(x, (float[]){4, 1, 4, 1}, 4);
    expect_whole_2(writes);
    expect_whole_2(writes_and_gives);
}

/* ---- effects --------------------------------------------------------------------------------- */

static cb_tensor *notes(cb_tensor *x, cb_tensor *y) {
    cb_tensor *late = cb_add(x, 1.0);
    call_note(cb_sum(y), 1);
    call_note(late, 2);
    call_note(late, 2); /* no other call */
    call_scale(x, 2.0);
    call_note(x, 3);
    call_note(cb_mul(cb_exp(cb_sub(late, late)), 7.0), 4);
    return cb_add(late, x);
}

static void effects_in_order(void **state) {
    (void)state;
    static const char wanted[] = "1:4.5 2:0 2:0 3:-2 4:7 ";
    cb_tensor *x = ramp(3, 4), *y = ramp(3, 4);
    notes(x, y);
    assert_string_equal(custom_log, wanted);
    const char *options[] = {VM, VM ",fullgraph=1", VM ",fuse=0"};
    for (int i = 0; i < 9; i++) {
        cb_function *fast = i % 3 ? NULL : cb_compile(notes, options[i / 3]);
        for (int call = 0; call < 3 && fast; call++) {
            *custom_log = 0;
            cb_tensor *u = ramp(3, 4), *v = ramp(3, 4);
            cb_call(fast, u, v);
            assert_string_equal(custom_log, wanted);
        }
        if (fast) assert_int_equal(cb_stats(fast).breaks, 0);
        cb_function_free(fast);
    }
    expect_whole_2(notes);
}

static cb_tensor *noised(cb_tensor *x, cb_tensor *y) {
    cb_tensor *a = cb_call_op("test.noise", &x, 1, CB_NO_DIMS, CB_NO_FLOATS);
    cb_tensor *b = cb_mul(cb_rand(cb_dims(3, 4)), y);
    cb_tensor *c = cb_call_op("test.noise", &x, 1, CB_NO_DIMS, CB_NO_FLOATS);
    return cb_add(cb_add(a, b), cb_mul(c, 1000.0));
}

static void same_random_numbers(void **state) {
    (void)state;
    cb_function *fast = cb_compile(noised, VM);
    cb_tensor *x = ramp(3, 4), *y = ramp(3, 4), *wanted[3];
    cb_manual_seed(5);
    for (int i = 0; i < 3; i++) wanted[i] = noised(x, y);
    cb_manual_seed(5);
    for (int i = 0; i < 3; i++) expect_tensor(cb_call(fast, x, y), wanted[i], 1e-5, 1e-5);
    cb_function_free(fast);
}

/* Writes come before and behind the op that fails; one needs its result. */
static cb_tensor *writes_and_tries(cb_tensor *x, cb_tensor *y) {
    cb_assign(x, cb_mul(y, 2.0));
    call_note(cb_sum(y), 1);
    cb_tensor *tried = cb_call_op("test.tries", &y, 1, CB_NO_DIMS, CB_NO_FLOATS);
    cb_assign(x, cb_add(x, 1.0));
    return cb_assign(y, cb_add(tried, x));
}

/* What does not need it is written as in eager; what has happened does not happen twice. */
static void effects_that_fail(void **state) {
    (void)state;
    const char *options[] = {VM, VM ",fullgraph=1"};
    for (int i = 0; i < 2; i++) {
        cb_function *fast = cb_compile(writes_and_tries, options[i]);
        for (int call = 0; call < 3; call++) {
            cb_tensor *x = ramp(3, 4), *y = ramp(3, 4), *u = ramp(3, 4), *v = ramp(3, 4);
            *custom_log = 0;
            assert_null(writes_and_tries(x, y));
            expect_error("it was tried, in test.tries(f32[3, 4])", CB_ERR_IO);
            assert_string_equal(custom_log, "1:4.5 t ");
            *custom_log = 0;
            assert_null(cb_call(fast, u, v));
            expect_error("it was tried, in test.tries(f32[3, 4])", CB_ERR_IO);
            assert_string_equal(custom_log, "1:4.5 t ");
            expect_tensor(u, x, 0, 0);
            expect_tensor(v, y, 0, 0);
        }
        cb_function_free(fast);
    }
}

/* ---- draws and failures ---------------------------------------------------------------------- */

static double drawn_beside;
static bool draws_beside;

static void *draw_one(void *unused) {
    cb_scope_open();
    drawn_beside = cb_item(cb_rand(1));
    cb_scope_close();
    return unused;
}

/* It took a draw, and another thread draws before it fails. */
static cb_status fails_beside(const cb_op_call *call) {
    (void)call;
    pthread_t other;
    if (draws_beside && !pthread_create(&other, NULL, draw_one, NULL)) pthread_join(other, NULL);
    return cb_fail(CB_ERR_ARGUMENT, "as it was asked to");
}

static cb_tensor *tries_beside(cb_tensor *x) {
    return cb_call_op("test.fails_beside", &x, 1, CB_NO_DIMS, CB_NO_FLOATS);
}

/* What a failed call drew is drawn again, unless another thread would have the same number then. */
static void draws_of_a_failed_call(void **state) {
    (void)state;
    cb_custom_op op = {"test.fails_beside", 1, 1, .effects = true, .kernel = fails_beside};
    assert_int_equal(cb_register_op(&op), CB_OK);
    cb_function *fast = cb_compile(tries_beside, VM),
                *backend = cb_compile(tries_beside, "backend=eager");
    cb_function *ways[] = {NULL, fast, fast, backend, backend};
    for (int i = 0; i < 10; i++) {
        cb_function *way = ways[i / 2];
        draws_beside = i % 2;
        cb_manual_seed(7);
        double first = cb_item(cb_rand(1));
        cb_manual_seed(7);
        assert_null(way ? cb_call(way, ramp(3, 4)) : tries_beside(ramp(3, 4)));
        cb_clear_error();
        double next = cb_item(cb_rand(1));
        if (draws_beside)
            assert_true(next != drawn_beside && next != first);
        else
            assert_true(next == first);
    }
    cb_function_free(fast);
    cb_function_free(backend);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static cb_tensor *failing(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    return cb_add(cb_call_op("test.fails", &y, 1, CB_NO_DIMS, CB_NO_FLOATS), 1.0);
}

static void errors_of_kernels(void **state) {
    (void)state;
    cb_tensor *x = ramp(3, 4);
    assert_null(failing(x));
    expect_error("the disk is full, in test.fails(f32[3, 4])", CB_ERR_IO);
    assert_null(cb_call_op("test.fails_silently", &x, 1, CB_NO_DIMS, CB_NO_FLOATS));
    expect_error("test_custom.c", CB_ERR_IO);
    assert_null(cb_call_op("test.shapeless", &x, 1, CB_NO_DIMS, CB_NO_FLOATS));
    expect_error("its shape rule gives output 0 no possible dtype and sizes", CB_ERR_SHAPE);
    cb_function *fast = cb_compile(failing, VM);
    for (int i = 0; i < 3; i++) {
        assert_null(cb_call(fast, x));
        expect_error("test_custom.c", CB_ERR_IO);
    }
    cb_function_free(fast);
}

static void errors_of_calls(void **state) {
    (void)state;
    cb_tensor *x = ramp(3, 4), *none = NULL, *part[2];
    assert_null(cb_call_op("test.nothing", &x, 1, CB_NO_DIMS, CB_NO_FLOATS));
    expect_error("no operation 'test.nothing'", CB_ERR_ARGUMENT);
    assert_null(cb_call_op(NULL, &x, 1, CB_NO_DIMS, CB_NO_FLOATS));
    expect_error("no operation 'NULL'", CB_ERR_ARGUMENT);
    assert_null(cb_call_op("test.running_max", &none, 1, CB_NO_DIMS, CB_NO_FLOATS));
    expect_error("test.running_max: input 0 is NULL", CB_ERR_ARGUMENT);
    assert_null(cb_call_op("test.running_max", &x, 1, 3, CB_NO_FLOATS));
    expect_error("takes 1 tensors, 0 integers and 0 floats, not 1, 1 and 0", CB_ERR_ARGUMENT);
    double zero = 0;
    assert_null(cb_call_op("test.scale_", &x, 1, CB_NO_DIMS, zero));
    expect_error("1 floats, not 1, 0 and 0; a plain number that is 0 is none: write cb_floats(x)",
                 CB_ERR_ARGUMENT);
    assert_true(cb_call_op_n("test.split", &x, 1, 3, CB_NO_FLOATS, part, 1) < 0);
    expect_error("2 outputs do not fit", CB_ERR_ARGUMENT);
    assert_true(cb_call_op_n("test.split", &x, 1, 3, CB_NO_FLOATS, part, 2) < 0);
    expect_error("only vectors are split, in test.split(f32[3, 4])", CB_ERR_SHAPE);
    cb_tensor *flat = cb_reshape(x, 12);
    assert_true(cb_call_op_n("test.split", &flat, 1, 13, CB_NO_FLOATS, part, 2) < 0);
    expect_error("test.split failed, in test.split(f32[12])", CB_ERR_ARGUMENT);
}

static void refused(cb_custom_op op, const char *part) {
    assert_int_equal(cb_register_op(&op), CB_ERR_ARGUMENT);
    expect_error(part, CB_ERR_ARGUMENT);
}

static void refusals(void **state) {
    (void)state;
    cb_custom_op good = {.name = "test.good", .inputs = 1, .outputs = 1, .kernel = running_max};
    cb_custom_op op = good;
    assert_int_equal(cb_register_op(NULL), CB_ERR_ARGUMENT);
    expect_error("the name is NULL", CB_ERR_ARGUMENT);
    const char *names[] = {"", "good", "test.", ".good", "test.1", "te st.good", "test..x"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        op.name = names[i];
        refused(op, "is no \"library.operation\"");
    }
    op.name = "torch.relu";
    refused(op, "are taken");
    op = good, op.kernel = NULL;
    refused(op, "has no kernel");
    op = good, op.inputs = 9;
    refused(op, "9 inputs; 1 to 8");
    op = good, op.outputs = 9;
    refused(op, "9 outputs; 0 to 8");
    op = good, op.floats = 9;
    refused(op, "0 integers and 9 floats");
    op = good, op.mutates = 2;
    refused(op, "writes to an input that it has not");
    op = good, op.outputs = 0;
    refused(op, "gives nothing");
    assert_int_equal(cb_register_op(&good), CB_OK);
    assert_int_equal(cb_register_op(&good), CB_OK);
    op = good, op.outputs = 2;
    refused(op, "test.good is another op already");
}

/* ---- text ------------------------------------------------------------------------------------ */

static void explained(void **state) {
    (void)state;
    cb_function *fast = cb_compile(notes, VM);
    cb_tensor *x = ramp(3, 4), *y = ramp(3, 4);
    cb_call(fast, x, y);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "test.note(%"));
    assert_non_null(strstr(text, "integers=[3], draw=3)"));
    assert_non_null(strstr(text, "\n    test.scale_\n"));
    cb_free_text(text);
    cb_function_free(fast);
}

/* ---- FX graphs and other devices ------------------------------------------------------------- */

static int one_of_two(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *x = in[0];
    call_note(x, 8);
    out[0] = cb_relu(call_max(cb_call_op("test.noise", &x, 1, CB_NO_DIMS, CB_NO_FLOATS)));
    return 1;
}

static void traced(void **state) {
    (void)state;
    cb_tensor *x = ramp(3, 4), *wanted, *got;
    cb_graph *graph = cb_symbolic_trace_function(one_of_two, NULL, 1, NULL);
    assert_non_null(graph);
    char *text = cb_graph_text(graph);
    assert_non_null(strstr(text, "call_function[target=test.running_max](args = (%noise,)"));
    assert_non_null(strstr(text, "call_function[target=test.note](args = (%x,), kwargs = "));
    assert_int_equal(cb_graph_dead_code(graph), 0); /* effects stay */
    cb_manual_seed(2);
    one_of_two(&x, 1, &wanted, NULL);
    cb_graph *again = cb_graph_parse(text, NULL);
    assert_non_null(again);
    cb_manual_seed(2);
    assert_int_equal(cb_graph_run(again, &x, 1, &got, 1), 1);
    expect_tensor(got, wanted, 0, 0);
    assert_string_equal(custom_log, "8:-1 8:-1 ");
    cb_free_text(text);
    cb_graph_free(again);
    cb_graph_free(graph);
    assert_null(cb_symbolic_trace_function(split_both, NULL, 1, NULL));
    expect_error("traced with examples alone", CB_ERR_GRAPH);
}

static void other_devices(void **state) {
    (void)state;
    cb_tensor *x = cb_to_device(ramp(3, 4), "guarded"), *y = cb_to_device(ramp(3, 4), "guarded");
    assert_null(call_max(x));
    expect_error("test.running_max: its kernel runs on the host", CB_ERR_ARGUMENT);
    cb_function *fast = cb_compile(between_kernels, VM);
    assert_null(cb_call(fast, x, y));
    expect_error("test.running_max: its kernel runs on the host", CB_ERR_ARGUMENT);
    cb_function_free(fast);
}

static double named_factor;
static cb_tensor *scaled_by_name(cb_tensor *x) { return call_scale(cb_mul(x, 1.5), named_factor); }

/* What is told of a call says whose operation it is. */
static void reasons_name_the_operation(void **state) {
    (void)state;
    cb_function *fast = cb_compile(scaled_by_name, VM);
    cb_scope_open();
    for (named_factor = 2; named_factor < 4; named_factor++)
        assert_non_null(cb_call(fast, cb_ones(cb_dims(3))));
    char *text = cb_explain(fast);
    if (!strstr(text, "after 1 op: test.scale_ with")) print_error("%s\n", text);
    assert_non_null(strstr(text, "after 1 op: test.scale_ with"));
    cb_free_text(text);
    cb_scope_close();
    cb_function_free(fast);
}

int main(void) {
    cb_set_option("verify", "1");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pure, begin, end),
        cmocka_unit_test_setup_teardown(equal_calls_are_one, begin, end),
        cmocka_unit_test_setup_teardown(strided_inputs, begin, end),
        cmocka_unit_test_setup_teardown(several_results, begin, end),
        cmocka_unit_test_setup_teardown(writes_inputs, begin, end),
        cmocka_unit_test_setup_teardown(effects_in_order, begin, end),
        cmocka_unit_test_setup_teardown(same_random_numbers, begin, end),
        cmocka_unit_test_setup_teardown(effects_that_fail, begin, end),
        cmocka_unit_test_setup_teardown(draws_of_a_failed_call, begin, end),
        cmocka_unit_test_setup_teardown(errors_of_kernels, begin, end),
        cmocka_unit_test_setup_teardown(errors_of_calls, begin, end),
        cmocka_unit_test_setup_teardown(refusals, begin, end),
        cmocka_unit_test_setup_teardown(traced, begin, end),
        cmocka_unit_test_setup_teardown(other_devices, begin, end),
        cmocka_unit_test_setup_teardown(reasons_name_the_operation, begin, end),
        cmocka_unit_test_setup_teardown(explained, begin, end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
