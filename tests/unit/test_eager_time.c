/* What eager takes, beside what an entry takes, for explain: told where it is asked for, and
 * nothing else differs from a run without. */
#include "capture/function.h"
#include "capture_support.h"
#include "custom_ops.h"
#include "report/page.h"

#include <pthread.h>
#include <unistd.h>

enum { CALLS = 6, THREADS = 4, DRAWS = 64 };
static cb_tensor *weight;

/* Draws, writes to its input and to what it finds, and goes back to a leaf. */
static cb_tensor *step(cb_tensor *x, cb_tensor *y) {
    cb_tensor *h = cb_dropout(cb_tanh(cb_matmul(x, weight)), 0.5, true);
    cb_backward(cb_sum(cb_mul(h, y)), NULL);
    cb_add_(y, cb_rand(cb_dims(3, 4)));
    cb_no_grad_open();
    cb_sub_(weight, cb_mul(cb_tensor_grad(weight), 0.25));
    cb_no_grad_close();
    cb_zero_grad(weight);
    return cb_detach(h);
}

/* The same calls from the same state: bytes of results, of what is written to, and of the next
 * random numbers. The text of explain behind them. */
static char *run_steps(const char *profile, float *out) {
    cb_set_option("profile", profile);
    cb_manual_seed(7);
    cb_function *fast = cb_compile(step, VM);
    cb_tensor *x = ramp(3, 4), *y = ramp(3, 4);
    weight = cb_requires_grad_(ramp(4, 4), true);
    for (int i = 0; i < CALLS; i++, out += 24) {
        cb_read(cb_call(fast, x, y), out, CB_F32);
        cb_read(y, out + 12, CB_F32);
    }
    cb_read(cb_detach(weight), out, CB_F32);
    cb_read(cb_rand(cb_dims(8)), out + 16, CB_F32);
    assert_null(cb_error());
    assert_int_equal(cb_stats(fast).graphs, 1);
    char *text = cb_explain_summary(fast);
    cb_function_free(fast);
    cb_set_option("profile", "0");
    return text;
}

static void nothing_differs(void **state) {
    (void)state;
    float with[CALLS * 24 + 24], without[CALLS * 24 + 24];
    double ms, eager;
    cb_scope_open();
    char *text = run_steps("0", without);
    assert_null(strstr(text, "a call takes"));
    cb_free_text(text);
    text = run_steps("1", with);
    const char *said = strstr(text, "a call takes");
    assert_int_equal(sscanf(said, "a call takes %lf ms at its best, eager %lf ms", &ms, &eager), 2);
    assert_true(ms > 0 && eager > 0);
    assert_non_null(strstr(said, " of the roofline, "));
    assert_non_null(strstr(said, "% in cache\n"));
    cb_free_text(text);
    assert_memory_equal(with, without, sizeof with);
    cb_scope_close();
}

static cb_tensor *sleeps(cb_tensor *x) {
    usleep(2000);
    return cb_mul(x, 2.0);
}

/* A call is all that the user waits for, the function too; ops that take less are said to. */
static void calls_are_whole(void **state) {
    (void)state;
    double call, eager, steps;
    cb_scope_open();
    cb_set_option("profile", "1");
    cb_function *fast = cb_compile(sleeps, VM);
    for (int i = 0; i < 2; i++) cb_call(fast, ramp(3, 4)); /* which run the ops as well */
    char *text = cb_explain_summary(fast);
    assert_null(strstr(strstr(text, "a call takes"), "    graph "));
    cb_free_text(text);
    for (int i = 0; i < CALLS; i++) cb_call(fast, ramp(3, 4));
    text = cb_explain_summary(fast);
    const char *said = strstr(text, "a call takes");
    int read = sscanf(said,
                      "a call takes %lf ms at its best, eager %lf ms (0.0x: slower)\n"
                      "    graph %lf ms: ",
                      &call, &eager, &steps);
    if (read != 3) fail_msg("%s", said);
    assert_true(call >= 2 && eager < 2 && steps < 2);
    cb_free_text(text);
    cb_function_free(fast);
    cb_set_option("profile", "0");
    cb_scope_close();
}

static cb_tensor *picked(cb_tensor *x, cb_tensor *index) {
    return cb_index_select(cb_mul(x, 2.0), 0, index);
}

/* What fails is said once, as without. */
static void failures(void **state) {
    (void)state;
    char said[2][256];
    cb_scope_open();
    cb_tensor *x = ramp(3, 4), *good = cb_from_data((int64_t[]){1}, CB_I64, cb_dims(1));
    cb_tensor *bad = cb_from_data((int64_t[]){5}, CB_I64, cb_dims(1));
    for (int k = 0; k < 2; k++) {
        cb_set_option("profile", k ? "1" : "0");
        cb_function *fast = cb_compile(picked, VM);
        assert_non_null(cb_call(fast, x, good));
        assert_null(cb_call(fast, x, bad));
        snprintf(said[k], sizeof said[k], "%s", cb_error());
        cb_clear_error();
        assert_non_null(cb_call(fast, x, good));
        cb_function_free(fast);
    }
    cb_set_option("profile", "0");
    assert_string_equal(said[0], said[1]);
    cb_scope_close();
}

static cb_tensor *counted(cb_tensor *x, cb_tensor *y) {
    cb_tensor *both[] = {x, y};
    cb_tensor *sum = cb_call_op("test.add_count", both, 2, CB_NO_DIMS, CB_NO_FLOATS);
    return cb_mul(sum, 2.0);
}
static cb_tensor *noted(cb_tensor *x) {
    call_note(x, 3);
    return cb_mul(x, 2.0);
}

/* A kernel that writes to its input does it once for each call; one with effects is not timed. */
static void effects(void **state) {
    (void)state;
    cb_scope_open();
    cb_set_option("profile", "1");
    assert_int_equal(register_test_ops(), CB_OK);
    cb_function *fast = cb_compile(counted, VM);
    cb_tensor *x = cb_zeros(cb_dims(4)), *y = cb_zeros(cb_dims(4));
    for (int i = 0; i < CALLS; i++) cb_call(fast, x, y);
    assert_true(cb_item(cb_select(y, 0, 0)) == CALLS);
    cb_function_free(fast);
    fast = cb_compile(noted, VM);
    for (int i = 0; i < 3; i++) cb_call(fast, x);
    assert_string_equal(custom_log, "3:0 3:0 3:0 ");
    cb_function_free(fast);
    cb_set_option("profile", "0");
    cb_scope_close();
}

static cb_tensor *drawn(cb_tensor *x) { return cb_add(cb_rand(cb_dims(2), CB_F64), x); }

static cb_function *shared;
static void *draw_often(void *user) {
    double *out = user;
    for (int i = 0; i < DRAWS; i++) {
        cb_scope_open();
        cb_read(cb_call(shared, cb_zeros(cb_dims(2), CB_F64)), out + 2 * i, CB_F64);
        cb_scope_close();
    }
    return NULL;
}

/* Threads that call it draw numbers of their own. */
static void threads(void **state) {
    (void)state;
    static double drew[THREADS * DRAWS * 2];
    pthread_t thread[THREADS];
    cb_set_option("profile", "1");
    shared = cb_compile(drawn, VM);
    for (int t = 0; t < THREADS; t++)
        pthread_create(&thread[t], NULL, draw_often, drew + (ptrdiff_t)t * DRAWS * 2);
    for (int t = 0; t < THREADS; t++) pthread_join(thread[t], NULL);
    cb_function_free(shared);
    cb_set_option("profile", "0");
    assert_null(cb_error());
    for (int i = 0; i < THREADS * DRAWS; i++)
        for (int k = 0; k < i; k++)
            assert_true(memcmp(drew + (ptrdiff_t)2 * i, drew + (ptrdiff_t)2 * k, 2 * sizeof *drew));
}

/* In place is the first addition alone: the assignments behind it are of what another op gave, of
 * what is read, of what is not the op's, and of no op that a program may have in place. */
static cb_tensor *updates(cb_tensor *x, cb_tensor *y) {
    cb_add_(cb_slice(x, 0, 1, 3), cb_select(y, 0, 0));
    cb_assign(y, cb_mul(x, 2.0));
    cb_tensor *less = cb_sub(y, 1.0);
    cb_assign(y, less);
    cb_mul(y, 3.0);
    cb_assign(y, x);
    cb_assign(y, cb_softmax(y, 1));
    return cb_neg(less);
}

/* What an op in place gives is where it lies, as in a program. */
static void in_place(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(updates, VM);
    cb_tensor *x = ramp(3, 4), *y = ramp(3, 4), *own[] = {cb_clone(x), cb_clone(y)};
    cb_call(fast, cb_clone(x), cb_clone(y));
    const Trace *trace = atomic_load(&fast->first)->trace;
    Tensor *real[16] = {NULL};
    assert_true(handle_lives(x, &real[0]) && handle_lives(y, &real[1]));
    Arena *arena = arena_new();
    const bool *in_place = trace_find_updates(trace, arena);
    assert_true(length(trace->value) < 16 && trace_run_in_place(trace, in_place, NULL, real));
    int given = 0;
    for (int v = 2; v < length(trace->value); v++) given += real[v] != NULL;
    assert_int_equal(given, length(trace->value) - 2 - 1); /* but the first sum */
    updates(own[0], own[1]);
    expect_equal(x, own[0]);
    expect_equal(y, own[1]);
    for (int v = 2; v < length(trace->value); v++) tensor_destroy(real[v]);
    arena_free(arena);
    cb_function_free(fast);
    cb_scope_close();
}

static cb_tensor *followed(cb_tensor *x, cb_tensor *w) {
    cb_tensor *sum = cb_add(x, w);
    cb_no_grad_open();
    cb_assign(x, sum);
    cb_sub_(x, w);
    cb_no_grad_close();
    return cb_neg(x);
}

/* What the tape knows of is computed as such, also where what it gives is written without. */
static void in_place_with_a_tape(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(followed, VM);
    assert_non_null(cb_call(fast, ramp(3, 4), cb_requires_grad_(ramp(3, 4), true)));
    const Trace *trace = atomic_load(&fast->first)->trace;
    Arena *arena = arena_new();
    const bool *in_place = trace_find_updates(trace, arena);
    int count = 0;
    for (int i = 0; i < length(trace->op); i++) count += in_place[i];
    assert_int_equal(count, 1);
    arena_free(arena);
    cb_function_free(fast);
    cb_scope_close();
}

static cb_tensor *product_and_more(cb_tensor *x) { return cb_cumsum(cb_matmul(x, x), 0); }

/* What the caches hold is compared with no copy; what a product computes, all the same. */
static void what_fits_the_caches(void **state) {
    (void)state;
    const Roof memory = {.bytes = 1, .flops = 1}, cached = {.bytes = 1, .flops = 1, .cache = 192};
    cb_scope_open();
    cb_set_option("profile", "1");
    cb_function *fast = cb_compile(product_and_more, VM);
    cb_tensor *x = ramp(4, 4);
    for (int i = 0; i < 2; i++) assert_non_null(cb_call(fast, x));
    const Executable *executable = atomic_load(&fast->first)->executable;
    const Plan *plan = executable_plan(executable);
    assert_int_equal(length(plan->step), 2);
    for (int i = 0; i < 2; i++) {
        const bool product = step_flops(&plan->step[i]) > 0;
        assert_true(step_bytes(plan, &plan->step[i]) <= 192);
        assert_true(roof_share(memory, executable, i) > 0);
        assert_false(roof_is_cached(memory, executable, i));
        assert_int_equal(roof_share(cached, executable, i) > 0, product);
        assert_int_equal(roof_is_cached(cached, executable, i), !product);
    }
    RoofTimes times = report_roof(executable);
    assert_true(times.cached > 0 && times.compared > 0);
    assert_true(times.cached + times.compared <= 1.01 * report_ms(executable));
    cb_function_free(fast);
    cb_set_option("profile", "0");
    cb_scope_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_differs),
        cmocka_unit_test(failures),
        cmocka_unit_test(calls_are_whole),
        cmocka_unit_test(effects),
        cmocka_unit_test(threads),
        cmocka_unit_test(in_place),
        cmocka_unit_test(in_place_with_a_tape),
        cmocka_unit_test(what_fits_the_caches),
    };
    return run_counted(tests);
}
