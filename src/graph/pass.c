/* Runs the passes of pass.def in order: contract, bisection, verification, dump.
 *
 *     CARBIDE_SKIP=rewrite     leaves a pass out
 *     CARBIDE_PASSES=12        stops after twelve rewrites
 *     CARBIDE_VERIFY=1         checks the graph after every pass; a broken one is a bug and aborts
 *
 * In: any graph. Out: an equal one that has every property that lowering needs. Dead nodes need no
 * pass: what the outputs, mutations and checks do not reach is in no order. */
#include "base/option.h"
#include "graph/node.h"
#include "graph/rewrite.h"

enum { PRIMITIVE = 1, NORMAL = 2 };

typedef struct Pass {
    const char *name;
    char letter;
    int needs, gives, breaks;
    bool skippable;
    void (*run)(Graph *graph, Budget *budget);
} Pass;

static const Pass passes[] = {
#define PASS(name, letter, needs, gives, breaks, skippable)                                        \
    {#name, letter, needs, gives, breaks, skippable, pass_##name},
#include "graph/pass.def"
#undef PASS
};

static void verify_properties(Graph *graph, const char *after, int properties) {
    Node **order = graph_order(graph);
    for (int i = 0; i < length(order); i++) {
        const char *name = op_info(order[i]->op)->name;
        check(!(properties & PRIMITIVE) || !order[i]->expansion, "%s is left after %s", name,
              after);
        check(!(properties & NORMAL) || node_is_normal(graph, order[i]),
              "%s is not normal after %s", name, after);
    }
}

static void verify(Graph *graph, const char *after, int properties) {
    Buffer why = buffer_new(graph->arena);
    bool fine = graph_verify(graph, &why);
    check(fine, "the graph is broken after %s: %s", after, buffer_text(&why));
    verify_properties(graph, after, properties);
}

static void dump_text(Graph *graph, const Pass *pass, Buffer *dump) {
    if (pass)
        putf(dump, "# %c: after %s\n", pass->letter, pass->name);
    else
        put(dump, "# as captured\n");
    graph_print(graph, dump);
}

static void run_passes(Graph *graph, bool all, Buffer *dump) {
    Budget budget = {option_int(OPTION_passes)};
    bool verified = option_int(OPTION_verify);
    int properties = 0;
    graph->optimizing = true;
    if (verified) verify(graph, "capture", properties);
    if (dump) dump_text(graph, NULL, dump);
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        const Pass *pass = &passes[i];
        if (pass->skippable && (!all || option_lists(OPTION_skip, pass->name))) continue;
        check((properties & pass->needs) == pass->needs, "%s runs too early", pass->name);
        pass->run(graph, &budget);
        properties = (properties | pass->gives) & ~pass->breaks;
        if (verified) verify(graph, pass->name, properties);
        if (dump) dump_text(graph, pass, dump);
    }
}

void graph_optimize(Graph *graph, Buffer *dump) { run_passes(graph, true, dump); }

void graph_prepare(Graph *graph) { run_passes(graph, false, NULL); }
