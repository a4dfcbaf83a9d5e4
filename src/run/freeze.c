/* What a graph computes from frozen inputs alone, computed once, at compile time.
 *
 *     graph(x, w, s, t) with w, s, t frozen             graph(x, c0: f32[64, 3, 7, 7], c1: f32[64])
 *       y = convolution(x, w * s) + t        ->           y = convolution(x, c0) + c1
 *
 * c0 is the result of a plan of its own, run on the vector VM, and for large results only when it
 * is asked for (constant.h); c1 is t itself. Views of frozen values stay views: they cost nothing,
 * and a copy would take memory. So does what would become much larger than the frozen values that
 * it comes from, and what is returned. */
#include "run/freeze.h"
#include "base/memory.h"
#include "graph/node.h"
#include "run/execute.h"
#include <string.h>

enum {
    ALWAYS_KEPT = 1 << 16, /* elements that may always be kept */
    GROWTH = 2,            /* others, when they are at most this many times what they come from */
    OWN_RECIPE = 1 << 18   /* elements that are worth a recipe of their own */
};

typedef struct Part { /* the frozen parts of one graph */
    Graph *graph;
    Node **order;
    const Node **base; /* by node id */
    bool *frozen;
    Node **computed, **used; /* vecs: results to compute, frozen inputs that stay in use */
    bool *listed;            /* by node id: in one of the two */
} Part;

/* ---- choosing ----------------------------------------------------------------------------- */

/* By node id: what stands below the views. */
static const Node **bases(const Part *p) {
    const Node **base = arena_new_array(p->graph->arena, const Node *, length(p->graph->node) + 1);
    for (int i = 0; i < length(p->order); i++) {
        const Node *node = p->order[i];
        bool view = op_info((Op)node->op)->kind == KIND_VIEW;
        base[node->id] = view ? base[node->input[0]->id] : node;
    }
    return base;
}

/* Elements of the largest frozen input below each node. */
static int64_t *largest_inputs(const Part *p) {
    int64_t *largest = arena_new_array(p->graph->arena, int64_t, length(p->graph->node) + 1);
    for (int i = 0; i < length(p->order); i++) {
        const Node *node = p->order[i];
        if (node->op == OP_input) largest[node->id] = node_numel(node);
        for (int k = 0; k < node->input_count; k++)
            if (largest[node->input[k]->id] > largest[node->id])
                largest[node->id] = largest[node->input[k]->id];
    }
    return largest;
}

/* What is too large, or an output, is not kept: it does not count as frozen, its inputs do. */
static void exclude(Part *p) {
    const int64_t *largest = largest_inputs(p);
    bool *output = arena_new_array(p->graph->arena, bool, length(p->graph->node) + 1);
    for (int i = 0; i < length(p->graph->output); i++)
        output[p->base[p->graph->output[i]->id]->id] = output[p->graph->output[i]->id] = true;
    for (int i = 0; i < length(p->graph->mutation); i++) {
        const Node *value = p->graph->mutation[i].value;
        output[p->base[value->id]->id] = output[value->id] = true;
    }
    for (int i = 0; i < length(p->order); i++) {
        const Node *node = p->order[i];
        bool view = op_info((Op)node->op)->kind == KIND_VIEW, lost = output[node->id];
        int64_t numel = node_numel(node);
        lost |= !view && numel > ALWAYS_KEPT && numel > GROWTH * largest[node->id];
        for (int k = 0; k < node->input_count; k++) {
            const Node *input = node->input[k]; /* excluded inputs exclude */
            lost |= p->frozen[node->id] && largest[input->id] && !p->frozen[input->id];
        }
        if (lost) p->frozen[node->id] = false;
    }
}

static void list(Part *p, const Node *user_input) {
    if (!p->frozen[user_input->id]) return;
    Node *base = p->graph->node[p->base[user_input->id]->id];
    if (!p->frozen[base->id] || p->listed[base->id]) return; /* a view of a literal */
    p->listed[base->id] = true;
    if (base->op == OP_input)
        push(p->graph->arena, p->used, base);
    else
        push(p->graph->arena, p->computed, base);
}

static Part choose(Graph *graph) {
    Part p = {.graph = graph, .order = graph_order(graph)};
    const uint8_t *fixed = graph_fixed(graph, NULL);
    p.frozen = arena_new_array(graph->arena, bool, length(graph->node) + 1);
    for (int id = 0; id < length(graph->node); id++) p.frozen[id] = fixed[id] == FIXED_FROZEN;
    p.base = bases(&p);
    p.listed = arena_new_array(graph->arena, bool, length(graph->node) + 1);
    exclude(&p);
    for (int i = 0; i < length(p.order); i++) {
        const Node *node = p.order[i];
        for (int k = 0; k < node->input_count && !p.frozen[node->id]; k++) list(&p, node->input[k]);
    }
    return p;
}

/* ---- computing ---------------------------------------------------------------------------- */

typedef struct
    FrozenResults { /* of one plan: computed parts, and the frozen inputs that they need */
    const Part *part;
    Node **node; /* vec */
    int *input;  /* vec: their numbers in the whole graph */
} FrozenResults;

/* By node id: the results and all that they come from. */
static bool *find_needed(const FrozenResults *r, Arena *arena) {
    const Part *p = r->part;
    bool *needed = arena_new_array(arena, bool, length(p->graph->node) + 1);
    for (int i = 0; i < length(r->node); i++) needed[r->node[i]->id] = true;
    for (int i = length(p->order) - 1; i >= 0; i--) {
        const Node *node = p->order[i];
        for (int k = 0; k < node->input_count && needed[node->id]; k++)
            needed[node->input[k]->id] = true;
    }
    return needed;
}

/* The results as a graph of their own, over the frozen inputs that it needs. */
static Graph *copy_results(FrozenResults *r, Arena *arena) {
    const Part *p = r->part;
    const bool *needed = find_needed(r, arena);
    Graph *copy = graph_new(arena);
    copy->ambient = p->graph->ambient;
    Node **now = arena_new_array(arena, Node *, length(p->graph->node) + 1);
    for (int i = 0; i < length(p->order); i++) {
        const Node *node = p->order[i];
        Node *input[NODE_MAX_INPUTS];
        Meta meta = node_meta(node);
        if (!needed[node->id]) continue;
        node_inputs_now(node, now, input);
        if (node->op == OP_input) push(arena, r->input, (int)node->attrs->word[0]);
        now[node->id] = node->op == OP_input ? graph_input(copy, &meta)
                                             : graph_intern(copy, (Op)node->op, &meta, input,
                                                            node->input_count, node->attrs);
    }
    for (int i = 0; i < length(r->node); i++) push(arena, copy->output, now[r->node[i]->id]);
    return copy;
}

static Plan *plan_results(FrozenResults *r, const int64_t *const *stride, Arena *arena) {
    if (arena_guard(arena)) return NULL;
    Graph *copy = copy_results(r, arena);
    const int64_t **used = arena_new_array(arena, const int64_t *, length(r->input) + 1);
    for (int i = 0; i < length(r->input) && stride; i++) used[i] = stride[r->input[i]];
    graph_prepare(copy);
    return plan_build(copy, arena, used, (PlanOptions){.fuse = true});
}

static ConstantRecipe *recipe_new(FrozenResults r, Tensor *const *value,
                                  const int64_t *const *stride) {
    Arena *arena = arena_new();
    Plan *plan = arena ? plan_results(&r, stride, arena) : NULL;
    int inputs = plan ? length(r.input) : 0;
    ConstantRecipe *recipe =
        plan ? memory_zalloc(sizeof *recipe + sizeof *recipe->input * (size_t)inputs) : NULL;
    if (!recipe) {
        arena_free(arena);
        return NULL;
    }
    for (int i = 0; i < inputs; i++) recipe->input[i] = value[r.input[i]];
    recipe->executable = executable_new(plan, (ExecutableOptions){0});
    if (recipe->executable) return recipe;
    memory_free(recipe);
    return NULL;
}

/* Results that are computed now, by one plan; at[i]: the number of the constant that it is. */
static bool compute(FrozenResults r, const int *at, Tensor *const *value,
                    const int64_t *const *stride, Constants *out) {
    int count = length(r.node);
    if (!count) return true;
    Tensor **tensor = memory_zalloc(sizeof *tensor * (size_t)count);
    ConstantRecipe *recipe = tensor ? recipe_new(r, value, stride) : NULL;
    bool done = recipe && executable_run(recipe->executable, recipe->input, tensor);
    for (int i = 0; done && i < count; i++) out->tensor[at[i]] = cb_keep(tensor[i]);
    if (recipe) executable_free(recipe->executable);
    memory_free(recipe);
    memory_free(tensor);
    return done;
}

static bool is_conversion(const Node *node, Tensor *const *value) {
    if (node->op != OP_to || node->input[0]->op != OP_input) return false;
    return tensor_contiguous(value[node->input[0]->attrs->word[0]]);
}

static ConstantRecipe *recipe_for(const Part *p, Node *node, Tensor *const *value,
                                  const int64_t *const *stride) {
    if (!is_conversion(node, value)) {
        FrozenResults one = {.part = p};
        push(p->graph->arena, one.node, node);
        return recipe_new(one, value, stride);
    }
    ConstantRecipe *recipe = memory_zalloc(sizeof *recipe + sizeof *recipe->input);
    if (!recipe) return NULL;
    recipe->dtype = (cb_dtype)node->dtype;
    recipe->input[0] = value[node->input[0]->attrs->word[0]];
    return recipe;
}

static bool make_constants(const Part *p, Tensor *const *value, const int64_t *const *stride,
                           Constants *out) {
    Arena *arena = p->graph->arena;
    int computed = length(p->computed), *at = NULL;
    FrozenResults together = {.part = p};
    for (int i = 0; i < computed; i++) {
        if (node_numel(p->computed[i]) < OWN_RECIPE) {
            push(arena, together.node, p->computed[i]);
            push(arena, at, i);
            continue;
        }
        out->recipe[i] = recipe_for(p, p->computed[i], value, stride);
        if (!out->recipe[i]) return false;
    }
    for (int i = 0; i < length(p->used); i++) {
        Tensor *x = value[p->used[i]->attrs->word[0]];
        Meta meta = tensor_meta(x);
        Tensor *view = tensor_view_of(x, &meta, x->stride, x->offset);
        if (!view) return false;
        out->tensor[computed + i] = cb_keep(view);
    }
    return compute(together, at, value, stride, out);
}

/* ---- replacing ---------------------------------------------------------------------------- */

static void use_constants(Part *p, const int64_t *const **stride, const Constants *constants) {
    Graph *graph = p->graph;
    int inputs = length(graph->input), computed = length(p->computed);
    const int64_t **all =
        arena_new_array(graph->arena, const int64_t *, inputs + constants->count + 1);
    for (int i = 0; i < inputs && *stride; i++) all[i] = (*stride)[i];
    Node **now = arena_new_array(graph->arena, Node *, length(graph->node) + constants->count + 1);
    for (int i = 0; i < constants->count; i++) {
        const Node *old = i < computed ? p->computed[i] : p->used[i - computed];
        Meta meta = node_meta(old);
        now[old->id] = graph_input(graph, &meta);
        if (old->op == OP_input) all[inputs + i] = all[old->attrs->word[0]];
    }
    graph->constant_count += constants->count;
    *stride = all;
    for (int i = 0; i < length(p->order); i++) {
        Node *node = p->order[i], *input[NODE_MAX_INPUTS];
        if (now[node->id]) continue;
        node_inputs_now(node, now, input);
        now[node->id] = graph_with_inputs(graph, node, input);
    }
    graph_replace_results(graph, now);
}

bool freeze_graph(Graph *graph, Tensor *const *value, const int64_t *const **stride,
                  Constants *out) {
    Part part = choose(graph);
    if (!length(part.computed) && !length(part.used)) return true;
    if (!constants_new(out, length(part.computed) + length(part.used)) ||
        !make_constants(&part, value, *stride, out)) {
        constants_free(out);
        return false;
    }
    use_constants(&part, stride, out);
    return true;
}
