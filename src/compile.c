/* The pipeline: a captured graph becomes an executable.
 *
 *     graph_optimize   the passes of graph/pass.def                     graph -> graph
 *     freeze_graph     compute what frozen inputs alone determine       graph -> graph, constants
 *     plan_build       fuse, lower to loops, place temporaries          graph -> plan
 *     executable_new   C code through the compiler, or the vector VM    plan -> executable
 *
 * Everything lives in the graph's arena, which the executable takes over. The only failure is
 * memory that runs out: it comes back here through the arena's guard. */
#include "capture/capture.h"

#include "base/clock.h"
#include "base/option.h"
#include "run/freeze.h"
#include <string.h>

static bool dumps(CompileOptions options, char letter) {
    return !options.oracle && strchr(option_text(OPTION_dump), letter);
}

static void dump(const char *title, const Buffer *text) {
    fprintf(stderr, "---- %s\n%s\n", title, buffer_text(text));
}

static void dump_plan(const Plan *plan, Arena *arena, CompileOptions options) {
    Buffer text = buffer_new(arena);
    for (int i = 0; dumps(options, 'l') && i < length(plan->kernel); i++)
        kernel_print(plan->kernel[i], &text);
    if (dumps(options, 'l')) dump("loops", &text);
    text = buffer_new(arena);
    if (dumps(options, 's')) {
        plan_print(plan, &text);
        dump("schedule", &text);
    }
}

static bool freeze(Graph *graph, const int64_t *const **stride, CompileOptions options,
                   Constants *constants) {
    if (!options.frozen) return true;
    if (!freeze_graph(graph, options.value, stride, constants)) return false;
    if (!dumps(options, 'g')) return true;
    Buffer text = buffer_new(graph->arena);
    graph_print(graph, &text);
    dump("frozen graph", &text);
    return true;
}

static bool generates(CompileOptions options) { return options.generate && !options.oracle; }

static Plan *build(Graph *graph, const int64_t *const *input_stride, CompileOptions options,
                   Constants *constants) {
    Arena *arena = graph->arena;
    if (arena_guard(arena)) return NULL;
    Buffer text = buffer_new(arena);
    int kernels_eager;
    int64_t bytes_eager;
    graph_eager_cost(graph, &kernels_eager, &bytes_eager);
    double start = clock_ms();
    graph->frozen = options.frozen;
    graph_optimize(graph, dumps(options, 'g') ? &text : NULL);
    if (dumps(options, 'g')) dump("graph", &text);
    if (!freeze(graph, &input_stride, options, constants)) return NULL;
    double scheduling = clock_ms();
    Plan *plan =
        plan_build(graph, arena, input_stride, (PlanOptions){options.fuse, generates(options)});
    plan->time =
        (PlanTime){.passes_ms = scheduling - start, .schedule_ms = clock_ms() - scheduling};
    plan->kernels_eager = kernels_eager;
    plan->bytes_eager = bytes_eager;
    dump_plan(plan, arena, options);
    return plan;
}

Executable *compile_graph(Graph *graph, const int64_t *const *input_stride,
                          CompileOptions options) {
    Arena *arena = graph->arena;
    Constants constants = {0};
    Plan *plan = build(graph, input_stride, options, &constants);
    if (!plan) {
        constants_free(&constants);
        arena_free(arena);
        return NULL;
    }
    ExecutableOptions how = {.generate = generates(options),
                             .oracle = options.oracle,
                             .choose = !options.oracle,
                             .tune = options.tune,
                             .constants = constants};
    Executable *executable = executable_new(plan, how);
    if (executable && dumps(options, 'k')) {
        ExecutableInfo info = executable_info(executable);
        fprintf(stderr, "---- kernels\n%s\n", info.source ? info.source : "(on the vector VM)");
    }
    return executable;
}
