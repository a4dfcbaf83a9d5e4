/* The memory plan on hand-made plans: lives never overlap, chains reuse, holes join, big plans stay
 * fast. */
#include "test_support.h"

#include "base/clock.h"
#include "sched/memory.h"
#include <stdlib.h>

static Plan new_plan(void) { return (Plan){.arena = arena_new()}; }

static int new_value(Plan *plan, ValuePlace place, int64_t floats) {
    PlanValue value = {.dtype = CB_F32, .place = (uint8_t)place, .numel = floats, .offset = -1};
    push(plan->arena, plan->value, value);
    return length(plan->value) - 1;
}

/* A kernel step that reads a and b (-1: nothing) and writes out. */
static void new_step(Plan *plan, int a, int b, int out) {
    Kernel *kernel = kernel_new(plan->arena);
    if (a >= 0) kernel_buffer(kernel, CB_F32, BUFFER_IN, plan->value[a].numel, a);
    if (b >= 0) kernel_buffer(kernel, CB_F32, BUFFER_IN, plan->value[b].numel, b);
    kernel_buffer(kernel, CB_F32, BUFFER_OUT, plan->value[out].numel, out);
    push(plan->arena, plan->kernel, kernel);
    push(plan->arena, plan->step,
         (Step){.kind = STEP_KERNEL, .out = -1, .kernel = length(plan->kernel) - 1});
}

static int64_t end_of(const PlanValue *value) { return value->offset + value->numel * 4; }

static void lives(const Plan *plan, int *first, int *last) {
    int steps = length(plan->step);
    for (int v = 0; v < length(plan->value); v++) first[v] = steps, last[v] = -1;
    for (int s = 0; s < steps; s++) {
        const KernelBuffer *buffer = plan->kernel[plan->step[s].kernel]->buffer;
        for (int i = 0; i < length(buffer); i++) {
            int v = buffer[i].value;
            if (s < first[v]) first[v] = s;
            if (s > last[v]) last[v] = s;
        }
    }
    for (int i = 0; i < length(plan->output); i++) last[plan->output[i].value] = steps;
}

/* Every two temporaries: apart in time or in memory; all inside the block, all aligned. */
static void expect_sound(const Plan *plan) {
    int count = length(plan->value);
    int *first = malloc(sizeof(int) * (size_t)count), *last = malloc(sizeof(int) * (size_t)count);
    lives(plan, first, last);
    for (int v = 0; v < count; v++) {
        const PlanValue *a = &plan->value[v];
        if (a->place != VALUE_TEMPORARY || last[v] < first[v]) continue;
        assert_int_equal(a->offset % 64, 0);
        assert_true(a->offset >= 0 && end_of(a) <= plan->arena_bytes);
        for (int w = 0; w < v; w++) {
            const PlanValue *b = &plan->value[w];
            if (b->place != VALUE_TEMPORARY || first[v] > last[w] || first[w] > last[v]) continue;
            if (a->numel == 0 || b->numel == 0) continue;
            assert_true(end_of(a) <= b->offset || end_of(b) <= a->offset);
        }
    }
    free(first), free(last);
}

static void a_chain_needs_two_places(void **state) {
    (void)state;
    Plan plan = new_plan();
    int before = new_value(&plan, VALUE_INPUT, 256);
    for (int i = 0; i < 10; i++) {
        int value = new_value(&plan, VALUE_TEMPORARY, 256);
        new_step(&plan, before, -1, value);
        before = value;
    }
    new_step(&plan, before, -1, new_value(&plan, VALUE_OUTPUT, 256));
    plan_memory(&plan);
    expect_sound(&plan);
    assert_int_equal(plan.arena_bytes, 2 * 1024);
    arena_free(plan.arena);
}

static void inputs_and_outputs_take_nothing(void **state) {
    (void)state;
    Plan plan = new_plan();
    int in = new_value(&plan, VALUE_INPUT, 1000);
    new_step(&plan, in, -1, new_value(&plan, VALUE_OUTPUT, 1000));
    new_value(&plan, VALUE_TEMPORARY, 1000); /* nobody touches it */
    plan_memory(&plan);
    assert_int_equal(plan.arena_bytes, 0);
    arena_free(plan.arena);
}

static void freed_neighbours_become_one_hole(void **state) {
    (void)state;
    Plan plan = new_plan();
    int a = new_value(&plan, VALUE_TEMPORARY, 100), b = new_value(&plan, VALUE_TEMPORARY, 100);
    int c = new_value(&plan, VALUE_TEMPORARY, 16), d = new_value(&plan, VALUE_TEMPORARY, 180);
    new_step(&plan, -1, -1, a);
    new_step(&plan, -1, -1, b);
    new_step(&plan, a, b, c);
    new_step(&plan, c, -1, d);
    new_step(&plan, d, -1, new_value(&plan, VALUE_OUTPUT, 180));
    plan_memory(&plan);
    expect_sound(&plan);
    assert_int_equal(plan.value[d].offset, 0);
    arena_free(plan.arena);
}

/* The small value leaves the large hole to the large one. */
static void the_smallest_hole_that_fits_is_taken(void **state) {
    (void)state;
    Plan plan = new_plan();
    int small = new_value(&plan, VALUE_TEMPORARY, 64),
        between = new_value(&plan, VALUE_TEMPORARY, 16);
    int large = new_value(&plan, VALUE_TEMPORARY, 1024),
        last = new_value(&plan, VALUE_TEMPORARY, 16);
    int c = new_value(&plan, VALUE_TEMPORARY, 64), d = new_value(&plan, VALUE_TEMPORARY, 1024);
    const int first[] = {small, between, large, last};
    for (int i = 0; i < 4; i++) new_step(&plan, -1, -1, first[i]);
    new_step(&plan, small, large, new_value(&plan, VALUE_OUTPUT, 64));
    new_step(&plan, -1, -1, c);
    new_step(&plan, -1, -1, d);
    new_step(&plan, c, d, new_value(&plan, VALUE_OUTPUT, 64));
    new_step(&plan, between, last, new_value(&plan, VALUE_OUTPUT, 16));
    plan_memory(&plan);
    expect_sound(&plan);
    assert_int_equal(plan.value[c].offset, plan.value[small].offset);
    assert_int_equal(plan.value[d].offset, plan.value[large].offset);
    assert_int_equal(plan.arena_bytes, 4 * (64 + 16 + 1024 + 16) + 64);
    arena_free(plan.arena);
}

/* A kernel that writes many rows of a page each would wait for the few lines of L1 that they
 * share. */
static void pages_are_not_in_step(void **state) {
    (void)state;
    Plan plan = new_plan();
    int value[8];
    for (int i = 0; i < 8; i++)
        new_step(&plan, -1, -1, value[i] = new_value(&plan, VALUE_TEMPORARY, 1024));
    for (int i = 0; i < 8; i++) new_step(&plan, value[i], -1, new_value(&plan, VALUE_OUTPUT, 1024));
    plan_memory(&plan);
    expect_sound(&plan);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < i; j++)
            assert_true((plan.value[i].offset - plan.value[j].offset) % 4096);
    arena_free(plan.arena);
}

static void the_last_hole_grows(void **state) {
    (void)state;
    Plan plan = new_plan();
    int small = new_value(&plan, VALUE_TEMPORARY, 16),
        large = new_value(&plan, VALUE_TEMPORARY, 160);
    new_step(&plan, -1, -1, small);
    new_step(&plan, -1, -1, large);
    plan_memory(&plan);
    expect_sound(&plan);
    assert_int_equal(plan.arena_bytes, 640);
    arena_free(plan.arena);
}

static void a_mutation_lives_to_the_end(void **state) {
    (void)state;
    Plan plan = new_plan();
    int kept = new_value(&plan, VALUE_TEMPORARY, 64), other = new_value(&plan, VALUE_TEMPORARY, 64);
    new_step(&plan, -1, -1, kept);
    new_step(&plan, -1, -1, other);
    push(plan.arena, plan.output,
         (PlanOutput){.value = kept, .mutated_input = 0, .alias_input = -1});
    plan_memory(&plan);
    assert_true(plan.value[kept].offset != plan.value[other].offset);
    arena_free(plan.arena);
}

static void products_and_their_epilogues_count(void **state) {
    (void)state;
    Plan plan = new_plan();
    int a = new_value(&plan, VALUE_TEMPORARY, 64), b = new_value(&plan, VALUE_TEMPORARY, 64);
    int out = new_value(&plan, VALUE_TEMPORARY, 64), bias = new_value(&plan, VALUE_TEMPORARY, 64);
    int result = new_value(&plan, VALUE_TEMPORARY, 64),
        check = new_value(&plan, VALUE_TEMPORARY, 64);
    new_step(&plan, -1, -1, a);
    new_step(&plan, -1, -1, b);
    new_step(&plan, -1, -1, bias);
    new_step(&plan, out, bias, result); /* gives the kernel; the step becomes the product */
    plan.step[3] = (Step){.kind = STEP_TASK, .in = {a, b}, .in_count = 2, .out = out, .kernel = 3};
    Step reads = {.kind = STEP_CHECK, .in = {check}, .in_count = 1, .out = -1, .kernel = -1};
    push(plan.arena, plan.step, reads);
    reads = (Step){.kind = STEP_TASK, .in = {result}, .in_count = 1, .out = a, .kernel = -1};
    push(plan.arena, plan.step, reads);
    plan_memory(&plan);
    const int together[] = {a, b, out, bias, result};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < i; j++)
            assert_true(plan.value[together[i]].offset != plan.value[together[j]].offset);
    assert_true(plan.value[check].offset != plan.value[result].offset);
    arena_free(plan.arena);
}

static void what_is_in_place_is_put_aside(void **state) {
    (void)state;
    Plan plan = new_plan();
    int x = new_value(&plan, VALUE_INPUT, 256), y = new_value(&plan, VALUE_TEMPORARY, 256);
    new_step(&plan, x, x, y);
    push(plan.arena, plan.output, ((PlanOutput){.value = y, .mutated_input = 0}));
    plan_memory(&plan);
    assert_int_equal(plan.arena_bytes, 1024);
    assert_int_equal(plan.aside_bytes, 0);
    plan.arena_bytes = 0;
    plan.output[0].in_place = true;
    plan_memory(&plan);
    assert_int_equal(plan.arena_bytes, 0);
    assert_int_equal(plan.aside_bytes, 1024);
    arena_free(plan.arena);
}

static void random_plans_are_sound(void **state) {
    (void)state;
    uint32_t seed = 7;
    for (int round = 0; round < 30; round++) {
        Plan plan = new_plan();
        new_value(&plan, VALUE_INPUT, 10);
        int64_t all = 0;
        for (int s = 0; s < 120; s++) {
            int from[2];
            for (int i = 0; i < 2; i++) {
                seed = seed * 1664525 + 1013904223;
                int back = (int)(seed >> 24) % (i ? 40 : 4), last = length(plan.value) - 1;
                from[i] = last > back ? last - back : 0;
            }
            int64_t size = (int64_t)(seed >> 16) % 500;
            int out = new_value(&plan, VALUE_TEMPORARY, size);
            all += size * 4;
            new_step(&plan, from[0], from[1], out);
        }
        plan_memory(&plan);
        expect_sound(&plan);
        assert_true(plan.arena_bytes < all);
        arena_free(plan.arena);
    }
}

static void thousands_of_steps_are_quick(void **state) {
    (void)state;
    Plan plan = new_plan();
    int before = new_value(&plan, VALUE_INPUT, 256), old = before;
    for (int i = 0; i < 20000; i++) {
        int value = new_value(&plan, VALUE_TEMPORARY, 100 + i % 77);
        new_step(&plan, before, old, value);
        if (i % 9 == 0) old = value;
        before = value;
    }
    double start = clock_ms();
    plan_memory(&plan);
    assert_true(clock_ms() - start < 1000); /* takes milliseconds; quadratic would be seconds */
    assert_true(plan.arena_bytes <= 8 * 1024);
    arena_free(plan.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_needs_two_places),
        cmocka_unit_test(inputs_and_outputs_take_nothing),
        cmocka_unit_test(freed_neighbours_become_one_hole),
        cmocka_unit_test(the_smallest_hole_that_fits_is_taken),
        cmocka_unit_test(pages_are_not_in_step),
        cmocka_unit_test(the_last_hole_grows),
        cmocka_unit_test(a_mutation_lives_to_the_end),
        cmocka_unit_test(products_and_their_epilogues_count),
        cmocka_unit_test(what_is_in_place_is_put_aside),
        cmocka_unit_test(random_plans_are_sound),
        cmocka_unit_test(thousands_of_steps_are_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
