/* Golden tests: a graph as text goes through the middle of the pipeline, what comes out is compared
 * to the letter.
 *
 *     # what the file shows
 *     graph(x: f32[4096, 1024]) {
 *       y = softmax(x, dim=1)
 *       return y
 *     }
 *     --- plan
 *       k0_amax_sub_exp_sum(v0, v1)
 *
 * Stages: graph (optimized), plan (steps), loops (kernels); grad, the graph with the gradients of
 * its floating point inputs behind its results, and grad plan, the steps of that. A line
 * "# arguments: 1" says that the inputs behind the first are frozen, and constants of the plan.
 * CARBIDE_GOLDEN_UPDATE=1 rewrites the files: read the difference before you commit it. Usage:
 * golden file.t... */
#include "base/buffer.h"
#include "graph/grad/grad.h"
#include "sched/plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct Golden {
    Arena *arena;
    const char *path, *text, *source;
    Graph *graph;
    Plan *plan;
} Golden;

static char *read_file(Arena *arena, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    Buffer out = buffer_new(arena);
    char block[4096];
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) put_bytes(&out, block, n);
    fclose(file);
    return arena_text(arena, buffer_text(&out));
}

/* An input g of the size of each result, and the gradients that follow from those. */
static Graph *differentiate(Golden *g) {
    Graph *graph = graph_parse(g->arena, g->source);
    int outputs = length(graph->output), inputs = length(graph->input);
    Node **cotangent = arena_new_array(g->arena, Node *, outputs + 1);
    Node **gradient = arena_new_array(g->arena, Node *, inputs + 1);
    for (int i = 0; i < outputs; i++) {
        Meta meta = node_meta(graph->output[i]);
        cotangent[i] = graph_input(graph, &meta);
    }
    if (!graph_grad(graph, graph->output, cotangent, outputs, graph->input, inputs, gradient, NULL))
        return NULL;
    for (int i = 0; i < inputs; i++)
        if (gradient[i]) push(graph->arena, graph->output, gradient[i]);
    return graph;
}

static void put_gradients(Golden *g, bool plan, Buffer *out) {
    Graph *graph = differentiate(g);
    if (!graph) {
        putf(out, "%s\n", cb_error());
    } else if (plan) {
        graph_optimize(graph, NULL);
        plan_print_steps(plan_build(graph, g->arena, NULL, (PlanOptions){.fuse = true}), out);
    } else {
        graph_print(graph, out);
    }
}

static void put_stage(Golden *g, const char *stage, Buffer *out) {
    if (strcmp(stage, "graph") == 0)
        graph_print(g->graph, out);
    else if (strcmp(stage, "plan") == 0)
        plan_print_steps(g->plan, out);
    else if (strcmp(stage, "loops") == 0)
        for (int i = 0; i < length(g->plan->kernel); i++) kernel_print(g->plan->kernel[i], out);
    else if (strncmp(stage, "grad", 4) == 0)
        put_gradients(g, strcmp(stage, "grad plan") == 0, out);
    else
        putf(out, "unknown stage %s\n", stage);
}

/* The whole file as it should be: the graph's text, then each stage that the file asks for. */
static const char *expected(Golden *g) {
    Buffer out = buffer_new(g->arena);
    const char *stage = strstr(g->text, "\n--- ");
    put_bytes(&out, g->text, stage ? (size_t)(stage + 1 - g->text) : strlen(g->text));
    while (stage) {
        const char *name = stage + 5, *end = strchr(name, '\n');
        if (!end) break;
        putf(&out, "--- %.*s\n", (int)(end - name), name);
        put_stage(g, arena_format(g->arena, "%.*s", (int)(end - name), name), &out);
        stage = strstr(end, "\n--- ");
    }
    return buffer_text(&out);
}

/* Optimized; inputs behind those of "# arguments: n" are frozen. */
static Graph *prepare(Golden *g, const char *source) {
    Graph *graph = graph_parse(g->arena, source);
    const char *arguments = strstr(g->text, "# arguments: ");
    if (!graph) return NULL;
    bool *frozen = arena_new_array(g->arena, bool, length(graph->input) + 1);
    for (int i = 0; i < length(graph->input) && arguments; i++)
        frozen[i] = i >= atoi(arguments + strlen("# arguments: "));
    graph->frozen = arguments ? frozen : NULL;
    graph_optimize(graph, NULL);
    return graph;
}

static bool build(Golden *g) {
    const char *start = strstr(g->text, "graph(");
    const char *stage = strstr(g->text, "\n--- ");
    if (!start || !stage) return false;
    g->source = arena_format(g->arena, "%.*s", (int)(stage + 1 - start), start);
    g->graph = prepare(g, g->source);
    if (!g->graph) return false;
    g->plan = plan_build(g->graph, g->arena, NULL, (PlanOptions){.fuse = true});
    Buffer why = buffer_new(g->arena);
    for (int i = 0; i < length(g->plan->kernel); i++)
        if (!kernel_verify(g->plan->kernel[i], &why)) {
            printf("%s: %s: %s\n", g->path, g->plan->kernel[i]->name, buffer_text(&why));
            return false;
        }
    return true;
}

static bool run(const char *path) {
    Golden g = {.arena = arena_new(), .path = path};
    cb_scope_open();
    bool ok = g.arena && (g.text = read_file(g.arena, path)) && build(&g);
    if (!ok) printf("%s: %s\n", path, cb_error() ? cb_error() : "no graph, or no stage");
    if (ok) {
        const char *want = expected(&g);
        ok = strcmp(want, g.text) == 0;
        if (!ok && getenv("CARBIDE_GOLDEN_UPDATE")) {
            FILE *file = fopen(path, "wb");
            ok = file && fputs(want, file) >= 0;
            if (file) ok = fclose(file) == 0 && ok;
        } else if (!ok) {
            printf("%s differs; it should be\n%s\n", path, want);
        }
    }
    arena_free(g.arena);
    cb_scope_close();
    cb_clear_error();
    return ok;
}

int main(int argc, char **argv) {
    int failed = 0;
    for (int i = 1; i < argc; i++) failed += !run(argv[i]);
    printf("%d golden files, %d differ\n", argc - 1, failed);
    return failed != 0 || argc < 2;
}
