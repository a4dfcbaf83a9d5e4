/* The pipeline: a graph becomes an executable.
 *
 *     graph_optimize   the passes of graph/pass.def                     graph -> graph
 *     graph_partition  of a joint one: the gradients wait               graph -> graph, graph
 *     graph_copy       what is needed of a large one                    graph -> graph
 *     constants_make   compute what frozen arguments alone determine    graph -> constants
 *     plan_build       fuse, lower to loops, place temporaries          graph -> plan
 *     executable_new   C code through the compiler, or the vector VM    plan -> executable
 *
 * Everything lives in the graph's arena, which the executable takes over: of a large graph in that
 * of a copy, since recording and passes leave several times what they made. The only failure is
 * memory that runs out: it comes back here through the arenas' guards. */
#include "run/compile.h"

#include "base/clock.h"
#include "base/option.h"
#include "base/timeline.h"
#include <string.h>

enum { WORTH_MOVING = 64 << 10 }; /* bytes of recording and passes */

static bool dumps(CompileOptions options, char letter) {
    return options.report && strchr(option_text(OPTION_dump), letter);
}

static void dump(const char *title, const char *text) {
    fprintf(stderr, "---- %s\n%s\n", title, text);
}

static void run_passes(Graph *graph, CompileOptions options) {
    Buffer text = buffer_new(graph->arena);
    bool dumped = dumps(options, 'g');
    if (options.optimize)
        graph_optimize(graph, dumped ? &text : NULL);
    else
        graph_prepare(graph);
    if (dumped) dump("graph", buffer_text(&text));
}

static void dump_plan(const Plan *plan, CompileOptions options) {
    if (!options.report) return;
    Buffer loops = buffer_new(plan->arena), schedule = buffer_new(plan->arena);
    for (int i = 0; dumps(options, 'l') && i < length(plan->kernel); i++)
        kernel_print(plan->kernel[i], &loops);
    if (dumps(options, 'l')) dump("loops", buffer_text(&loops));
    if (dumps(options, 's')) plan_print(plan, &schedule);
    if (dumps(options, 's')) dump("schedule", buffer_text(&schedule));
}

static void dump_source(const Executable *executable) {
    const char *source = executable_info(executable).source;
    dump("kernels", source ? source : "(on the vector VM)");
}

/* For option trace: a stage that ends now; when that was. */
static double end_stage(const char *name, double start, CompileOptions options) {
    double now = clock_ms();
    if (options.report) timeline_add("compile", name, (int64_t)(start * 1e6), (int64_t)(now * 1e6));
    return now;
}

typedef struct Recorded { /* what is known of a graph before it is a plan */
    double start;
    int kernels_eager;
    int64_t bytes_eager;
} Recorded;

/* False: memory ran out. */
static bool optimize(Graph *graph, CompileOptions options, Recorded *recorded) {
    if (arena_guard(graph->arena)) return false;
    if (options.report) graph_eager_cost(graph, &recorded->kernels_eager, &recorded->bytes_eager);
    recorded->start = clock_ms();
    for (int i = 0; options.joint && i < length(options.joint->gradient); i++)
        push(graph->arena, graph->output, options.joint->gradient[i]);
    graph->frozen = options.frozen;
    run_passes(graph, options);
    return true;
}

/* False: memory ran out. */
static bool part_gradients(Graph *graph, CompileOptions options) {
    if (!options.joint) return true;
    Arena *arena = arena_new();
    if (!arena || arena_guard(arena) || arena_guard(graph->arena)) {
        arena_free(arena);
        options.backward->graph = NULL;
        return false;
    }
    graph_partition(graph, options.joint, arena, options.backward);
    return true;
}

/* What a step reads in its graph while it runs: an operation of the user's, and the call that an
 * index out of range is an error of. */
static bool steps_read_graph(const Graph *graph) {
    for (int i = 0; i < length(graph->node); i++) {
        Op op = graph->node[i]->op;
        if (op_info(op)->kind == KIND_CUSTOM || op_has_index(op)) return true;
    }
    return false;
}

/* Where the plan goes, with the executable behind it: to the graph, or for options.lean to an arena
 * of its own; NULL when memory runs out. */
static Arena *home_of_plan(const Graph *graph, CompileOptions options) {
    return options.lean && !steps_read_graph(graph) ? arena_new() : graph->arena;
}

/* What the graph needs, in an arena of its own; the graph itself where that wins little, or memory
 * runs out. */
static Graph *move_needed(Graph *graph) {
    Arena *arena = arena_bytes(graph->arena) < WORTH_MOVING ? NULL : arena_new();
    if (!arena) return graph;
    if (arena_guard(graph->arena) || arena_guard(arena)) {
        arena_free(arena);
        return graph;
    }
    return graph_copy(graph, arena);
}

static Plan *plan_graph(Graph *graph, Arena *home, const int64_t *const *input_stride,
                        CompileOptions options, const Recorded *recorded, Constants *constants) {
    if (!home || arena_guard(graph->arena) || arena_guard(home)) return NULL;
    if (!constants_make(constants, graph, options.value, input_stride)) return NULL;
    double scheduling = end_stage("passes and constants", recorded->start, options);
    PlanOptions how = {.fuse = options.fuse, .generate = options.generate, .sizes = options.sizes};
    Plan *plan = plan_build(graph, home, input_stride, how);
    if (home != graph->arena) plan->graph = NULL, plan->refusal = NULL; /* which goes now */
    double end = end_stage("schedule", scheduling, options);
    plan->time = (PlanTime){scheduling - recorded->start, end - scheduling};
    plan->kernels_eager = recorded->kernels_eager;
    plan->bytes_eager = recorded->bytes_eager;
    dump_plan(plan, options);
    return plan;
}

static Executable *make_executable(const Plan *plan, CompileOptions options, Constants constants) {
    ExecutableOptions how = {.generate = options.generate,
                             .sizes = options.sizes,
                             .later = options.later,
                             .oracle = options.oracle,
                             .choose = options.choose,
                             .tune = options.tune,
                             .constants = constants};
    double start = clock_ms();
    Executable *executable = executable_new(plan, how);
    end_stage("code and weights", start, options);
    if (executable && !options.later && dumps(options, 'k')) dump_source(executable);
    return executable;
}

Executable *compile_graph(Graph *graph, const int64_t *const *input_stride,
                          CompileOptions options) {
    Constants constants = {0};
    Recorded recorded = {0};
    Arena *arena = graph->arena;
    bool optimized = optimize(graph, options, &recorded) && part_gradients(graph, options);
    if (optimized) graph = move_needed(graph);
    Arena *of_graph = graph->arena, *moved = of_graph == arena ? NULL : of_graph;
    Arena *home = optimized ? home_of_plan(graph, options) : NULL;
    const Plan *plan =
        optimized ? plan_graph(graph, home, input_stride, options, &recorded, &constants) : NULL;
    Executable *executable = plan ? make_executable(plan, options, constants) : NULL;
    if (!plan) constants_free(&constants);
    if (home != of_graph && !plan)
        arena_free(home); /* else it is the executable's, or gone with it */
    if (home != of_graph || !plan) arena_free(moved);
    if (home != arena || !plan) arena_free(arena);
    return executable;
}

bool compile_later(Executable *executable, Stop *stop) {
    if (!executable_generate(executable, stop)) return false;
    if (strchr(option_text(OPTION_dump), 'k')) dump_source(executable);
    return true;
}
