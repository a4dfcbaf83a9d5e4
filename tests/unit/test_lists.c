/* Lists: which kernels wait for each other, on hand-made plans, and that what runs as one launch
 * computes what its kernels would one by one. */
#include "fixture.h"

#include "engines.h"
#include "sched/list.h"
#include "test_support.h"

/* ---- plans ----------------------------------------------------------------------------------- */

enum { SMALL = 64, LARGE = 1 << 20 };

static int value(Plan *plan, ValuePlace place, int64_t floats) {
    PlanValue v = {.dtype = CB_F32, .place = (uint8_t)place, .numel = floats};
    push(plan->arena, plan->value, v);
    return length(plan->value) - 1;
}

/* A kernel along one axis that reads in and writes out. */
static void step(Plan *plan, const char *origin, int in, int out) {
    Kernel *kernel = kernel_new(plan->arena);
    kernel->origin = origin;
    kernel->kind = hash_text(origin);
    kernel_axis(kernel, plan->value[in].numel, false);
    kernel_buffer(kernel, CB_F32, BUFFER_IN, plan->value[in].numel, in);
    kernel_buffer(kernel, CB_F32, BUFFER_OUT, plan->value[out].numel, out);
    kernel->bytes = 4 * (plan->value[in].numel + plan->value[out].numel);
    push(plan->arena, plan->kernel, kernel);
    push(plan->arena, plan->step,
         (Step){.kind = STEP_KERNEL, .out = -1, .kernel = length(plan->kernel) - 1});
}

static Plan new_plan(void) { return (Plan){.arena = arena_new()}; }

/* The kernels of each step: "0 2; 1". */
static void expect_steps(Plan *plan, const char *expected) {
    char text[200] = "";
    join_lists(plan, plan->arena, 0);
    for (int s = 0; s < length(plan->step); s++)
        for (int i = 0; i < step_kernels(&plan->step[s]); i++)
            sprintf(text + strlen(text), "%s%d",
                    i   ? " "
                    : s ? "; "
                        : "",
                    step_kernel(&plan->step[s], i));
    assert_string_equal(text, expected);
    arena_free(plan->arena);
}

/* From inputs to outputs, with steps of other kinds between them. */
static void kernels_wait_for_the_last_of_their_kind(void **state) {
    (void)state;
    Plan plan = new_plan();
    const char *const origins[] = {"mul", "exp", "mul", "exp", "mul"};
    for (int i = 0; i < 5; i++)
        step(&plan, origins[i], value(&plan, VALUE_INPUT, SMALL + i),
             value(&plan, VALUE_OUTPUT, SMALL + i));
    expect_steps(&plan, "1 3; 0 2 4");
}

static void nobody_waits_past_a_reader(void **state) {
    (void)state;
    Plan plan = new_plan();
    int in = value(&plan, VALUE_INPUT, SMALL), a = value(&plan, VALUE_TEMPORARY, SMALL);
    step(&plan, "mul", in, a);
    step(&plan, "exp", a, value(&plan, VALUE_OUTPUT, SMALL));
    step(&plan, "mul", in, value(&plan, VALUE_OUTPUT, SMALL));
    step(&plan, "mul", a, value(&plan, VALUE_OUTPUT, SMALL));
    expect_steps(&plan, "0; 1; 2 3");
}

static void a_chain_stays_a_chain(void **state) {
    (void)state;
    Plan plan = new_plan();
    int at = value(&plan, VALUE_INPUT, SMALL);
    for (int i = 0; i < 3; i++) {
        int next = value(&plan, i < 2 ? VALUE_TEMPORARY : VALUE_OUTPUT, SMALL);
        step(&plan, "mul", at, next);
        at = next;
    }
    expect_steps(&plan, "0; 1; 2");
}

/* What has just been written is read while it is in cache; neighbours need not wait for that. */
static void large_operands_do_not_wait_in_memory(void **state) {
    (void)state;
    Plan plan = new_plan();
    int in = value(&plan, VALUE_INPUT, LARGE), fresh = value(&plan, VALUE_TEMPORARY, LARGE);
    step(&plan, "exp", in, fresh);
    step(&plan, "mul", fresh, value(&plan, VALUE_OUTPUT, SMALL));
    step(&plan, "sin", in, value(&plan, VALUE_OUTPUT, LARGE));
    step(&plan, "mul", in, value(&plan, VALUE_OUTPUT, SMALL));
    step(&plan, "mul", fresh, value(&plan, VALUE_OUTPUT, SMALL));
    expect_steps(&plan, "0; 1; 2; 3 4");
}

/* Waiting must not keep more alive: what the first one reads would go, and what it writes is
 * less. */
static void nothing_lives_longer(void **state) {
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        Plan plan = new_plan();
        int in = value(&plan, VALUE_INPUT, SMALL), a = value(&plan, VALUE_TEMPORARY, SMALL);
        step(&plan, "exp", in, a);
        step(&plan, "mul", a, value(&plan, VALUE_OUTPUT, 1));
        step(&plan, "sin", in, value(&plan, VALUE_OUTPUT, SMALL));
        step(&plan, "mul", in, value(&plan, VALUE_OUTPUT, 1));
        if (kept) step(&plan, "cos", a, value(&plan, VALUE_OUTPUT, SMALL));
        expect_steps(&plan, kept ? "0; 2; 1 3; 4" : "0; 1; 2; 3");
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

enum { TENSORS = 4 };
static const int64_t sizes[TENSORS] = {100000, 17, 5000, 40000};

/* w and g of each tensor -> 3 w - g of each, and the sum of the squares of all g. */
static int update(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[TENSORS] = cb_full(CB_NO_DIMS, 0.0);
    for (int i = 0; i < TENSORS; i++) {
        out[i] = cb_sub(cb_mul(in[2 * i], 3.0), in[2 * i + 1]);
        out[TENSORS] = cb_add(out[TENSORS], cb_sum(cb_square(in[2 * i + 1])));
    }
    return TENSORS + 1;
}

static void lists_compute_what_their_kernels_do(void **state) {
    (void)state;
    cb_tensor *in[2 * TENSORS];
    double *expected[TENSORS + 1], squares = 0;
    expected[TENSORS] = &squares;
    for (int i = 0; i < TENSORS; i++) {
        in[2 * i] = cb_remainder(cb_arange(0, sizes[i], 1, CB_F32), 7.0 + i);
        in[2 * i + 1] = cb_remainder(cb_arange(0, sizes[i], 1, CB_F32), 3.0);
        expected[i] = calloc((size_t)sizes[i], sizeof(double));
        for (int64_t k = 0; k < sizes[i]; k++) {
            expected[i][k] = (double)(3 * (k % (7 + i)) - k % 3);
            squares += (double)((k % 3) * (k % 3));
        }
    }
    expect_everywhere(update, in, 2 * TENSORS, expected, TENSORS + 1);
    for (int i = 0; i < TENSORS; i++) free(expected[i]);
}

/* The first tensor's update and squares are one kernel; two sums of squares are one step, the last
 * one has the sum of all, and the other updates are one step. */
static void lists_are_steps(void **state) {
    (void)state;
    cb_tensor *in[2 * TENSORS], *out[TENSORS + 1] = {NULL};
    for (int i = 0; i < 2 * TENSORS; i++) in[i] = cb_ones(cb_dims(sizes[i / 2]));
    cb_function *fast = cb_compile_n(update, NULL, "backend=vm");
    cb_call_n(fast, in, 2 * TENSORS, out, TENSORS + 1);
    assert_true(cb_item(out[TENSORS]) == 145017);
    cb_function_stats stats = cb_stats(fast);
    assert_int_equal(stats.kernels, 4);
    cb_function_free(fast);
}

/* The first one's update is in place, unless another one of its list reads what it overwrites. */
static int overwrite(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *old = cb_narrow(in[0], 0, 0, 1000);
    out[0] = cb_sub(in[1], old);
    cb_sub_(in[0], in[2]);
    return 1;
}

static void nobody_reads_what_another_one_has_overwritten(void **state) {
    (void)state;
    cb_function *fast = cb_compile_n(overwrite, NULL, "backend=vm");
    for (int i = 0; i < 20; i++) {
        cb_scope_open();
        cb_tensor *in[] = {cb_ones(cb_dims(4000)), cb_full(cb_dims(1000), 5.0),
                           cb_full(cb_dims(4000), 3.0)};
        cb_tensor *y = cb_call_1(fast, in, 3);
        assert_true(cb_item(cb_amin(y)) == 4 && cb_item(cb_amax(y)) == 4);
        assert_true(cb_item(cb_amin(in[0])) == -2 && cb_item(cb_amax(in[0])) == -2);
        cb_scope_close();
    }
    assert_int_equal(cb_stats(fast).kernels, 1);
    cb_function_free(fast);
}

static int sum_each(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)user;
    for (int i = 0; i < count; i++) out[i] = cb_sum(in[i]);
    return count;
}

/* A list that is no work for one thread, and one of which each kernel is split into chunks. */
static void lists_of_any_length(void **state) {
    (void)state;
    static const int64_t lengths[] = {20, 700000};
    for (int k = 0; k < 2; k++) {
        cb_scope_open();
        cb_function *fast = cb_compile_n(sum_each, NULL, "backend=vm");
        cb_tensor *in[3], *out[3] = {NULL};
        for (int i = 0; i < 3; i++) in[i] = cb_full(cb_dims(lengths[k] + i), 1.0 + i);
        assert_int_equal(cb_call_n(fast, in, 3, out, 3), 3);
        assert_int_equal(cb_stats(fast).kernels, 1);
        for (int i = 0; i < 3; i++)
            assert_true(cb_item(out[i]) == (double)((1 + i) * (lengths[k] + i)));
        cb_function_free(fast);
        cb_scope_close();
    }
}

static int columns_of_each(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)user;
    for (int i = 0; i < count; i++) out[i] = cb_sum(in[i], 0);
    return count;
}

/* Sums of columns are added in one order, whoever has which of them. */
static void threads_change_no_sum_of_columns(void **state) {
    (void)state;
    enum { LISTED = 3, COLUMNS = 170, ROWS = 150 };
    cb_tensor *in[LISTED];
    float first[LISTED][COLUMNS], now[COLUMNS];
    for (int i = 0; i < LISTED; i++) in[i] = cb_randn(cb_dims(ROWS + 1000 * i, COLUMNS - i));
    cb_function *fast = cb_compile_n(columns_of_each, NULL, "backend=vm");
    for (int run = 0; run < 6; run++) {
        cb_tensor *out[LISTED] = {NULL};
        cb_set_threads(run < 2 ? 1 : run < 4 ? 3 : 16);
        if (run % 2)
            columns_of_each(in, LISTED, out, NULL);
        else
            cb_call_n(fast, in, LISTED, out, LISTED);
        for (int i = 0; i < LISTED; i++) {
            assert_int_equal(cb_read(out[i], run ? now : first[i], CB_F32), CB_OK);
            if (run) assert_memory_equal(now, first[i], sizeof(float) * (size_t)(COLUMNS - i));
        }
    }
    cb_set_threads(0);
    cb_function_free(fast);
}

int main(void) {
#define ONE(test) cmocka_unit_test_setup_teardown(test, open_scope, close_scope_without_error)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_wait_for_the_last_of_their_kind),
        cmocka_unit_test(nobody_waits_past_a_reader),
        cmocka_unit_test(a_chain_stays_a_chain),
        cmocka_unit_test(large_operands_do_not_wait_in_memory),
        cmocka_unit_test(nothing_lives_longer),
        ONE(lists_compute_what_their_kernels_do),
        ONE(lists_are_steps),
        ONE(threads_change_no_sum_of_columns),
        ONE(lists_of_any_length),
        ONE(nobody_reads_what_another_one_has_overwritten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
