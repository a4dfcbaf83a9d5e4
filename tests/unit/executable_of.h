/* Executables of graphs that are written as text, for either engine: state points at whether C is
 * generated. */
#ifndef CARBIDE_TEST_EXECUTABLE_OF_H
#define CARBIDE_TEST_EXECUTABLE_OF_H

#include "fixture.h"

#include "graph/graph.h"
#include "inside.h"
#include "run/execute.h"
#include <math.h>
#include <stdlib.h>

/* The executable of a graph's text; stride: of input 0, or NULL. */
static inline Executable *executable_of(void **state, const char *text, const int64_t *stride) {
    bool generate = *(const bool *)*state;
    Arena *arena = arena_new();
    assert_non_null(arena);
    if (arena_guard(arena)) abort();
    Graph *graph = graph_parse(arena, text);
    if (!graph) print_error("%s\n", cb_error());
    assert_non_null(graph);
    graph_optimize(graph, NULL);
    const int64_t *strides[CB_MAX_ARGS] = {stride};
    Plan *plan =
        plan_build(graph, arena, strides, (PlanOptions){.fuse = true, .generate = generate});
    Executable *executable = executable_new(plan, (ExecutableOptions){.generate = generate});
    assert_non_null(executable);
    if (executable_info(executable).message)
        print_error("%s\n", executable_info(executable).message);
    assert_int_equal(executable_info(executable).reason, REASON_NONE);
    return executable;
}

/* first, first + step, first + 2 * step, ... */
static inline cb_tensor *ramp(cb_dim_list sizes, float first, float step) {
    cb_tensor *x = cb_empty(sizes, CB_F32);
    float *data = cb_data(x);
    for (int64_t i = 0; i < cb_numel(x); i++) data[i] = first + (float)i * step;
    return x;
}

static inline void expect_near(double got, double expected, double tolerance) {
    if (!(fabs(got - expected) <= tolerance)) print_error("%g is not %g\n", got, expected);
    assert_true(fabs(got - expected) <= tolerance);
}

#define ONE(test)                                                                                  \
    cmocka_unit_test_prestate_setup_teardown(test, open_scope, close_scope_without_error, state)

#endif
