/* Expressions in the text IR over x, w and v, vectors of 1024 simple numbers that the reference
 * scripts know, too: built as a graph, planned, run on the vector VM. */
#ifndef CARBIDE_TEST_EXPRESSION_H
#define CARBIDE_TEST_EXPRESSION_H

#include "graph/graph.h"
#include "inside.h"
#include "run/execute.h"

enum { COUNT = 1024 };

static inline double input_value(int64_t i, int64_t seed) {
    return (double)((i * 37 + seed * 11) % 23 - 11) / 8 + (double)((i * i + seed) % 7) / 16;
}

static inline cb_tensor *input(int64_t seed, cb_dtype dtype) {
    double value[COUNT];
    for (int64_t i = 0; i < COUNT; i++) value[i] = input_value(i, seed);
    cb_tensor *x = cb_from_data(value, CB_F64, cb_dims(COUNT));
    return cb_to(x, dtype);
}

/* NULL with an error: the expression is refused. */
static inline cb_tensor *evaluate(const char *call, cb_dtype dtype) {
    Arena *arena = arena_new();
    const char *name = cb_dtype_name(dtype);
    const char *text = arena_format(arena,
                                    "graph(x: %s[1024], w: %s[1024], v: %s[1024]) { y = %s\n"
                                    "return y }",
                                    name, name, name, call);
    Graph *graph = graph_parse(arena, text);
    if (!graph) {
        arena_free(arena);
        return NULL;
    }
    graph->device = device_default();
    graph_optimize(graph, NULL);
    Executable *executable = executable_new(
        plan_build(graph, arena, NULL, (PlanOptions){.fuse = true}), (ExecutableOptions){0});
    check(executable, "no memory");
    cb_tensor *inputs[3] = {input(0, dtype), input(1, dtype), input(2, dtype)}, *output = NULL;
    bool done = run_executable(executable, inputs, &output);
    check(done, "%s does not run", call);
    executable_free(executable);
    return output;
}

#endif
