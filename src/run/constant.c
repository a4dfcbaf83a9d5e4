/* Constants of a plan (constant.h).
 *
 *     c0: recipe w * s  --constant_make-->  c0: f32[64, 3, 7, 7]  --pack, constant_drop-->  -
 *     c1: recipe to(w, bf16)                      --gemm_pack, from w-->                    -
 *
 * A large constant is made when its step is prepared and dropped once it is packed: the next one
 * finds its memory in the storage cache, and in the processor's. */
#include "run/constant.h"

#include "base/memory.h"
#include "graph/node.h"
#include "run/compile.h"

enum { OWN_RECIPE = 1 << 18 }; /* elements that are worth a recipe of their own */

static bool constants_new(Constants *out, int count) {
    *out = (Constants){.tensor = memory_zalloc(sizeof *out->tensor * (size_t)(count + 1)),
                       .recipe = memory_zalloc(sizeof *out->recipe * (size_t)(count + 1)),
                       .count = count};
    return out->tensor && out->recipe;
}

static void forget_recipe(Constants *constants, int number) {
    ConstantRecipe *recipe = constants->recipe[number];
    if (recipe) executable_free(recipe->executable);
    memory_free(recipe);
    constants->recipe[number] = NULL;
}

void constants_free(Constants *constants) {
    for (int i = 0; i < constants->count && constants->tensor && constants->recipe; i++)
        constant_drop(constants, i);
    memory_free(constants->tensor);
    memory_free(constants->recipe);
    *constants = (Constants){0};
}

/* ---- recipes ------------------------------------------------------------------------------- */

typedef struct FrozenResults { /* of one executable, and the arguments that they need */
    const Graph *graph;
    Node **node;            /* vec */
    int *input;             /* vec: their numbers in the whole graph */
    const int64_t **stride; /* by number there */
} FrozenResults;

/* By node id: the results and all that they come from. */
static bool *find_needed(const FrozenResults *r, Arena *arena) {
    Node *const *node = r->graph->node;
    bool *needed = arena_new_array(arena, bool, length(node) + 1);
    for (int i = 0; i < length(r->node); i++) needed[r->node[i]->id] = true;
    for (int id = length(node) - 1; id >= 0; id--)
        for (int k = 0; k < node[id]->input_count && needed[id]; k++)
            needed[node[id]->input[k]->id] = true;
    return needed;
}

/* The results as a graph of their own, over the arguments that it needs; NULL: no memory. */
static Graph *copy_results(FrozenResults *r, const int64_t *const *stride, Arena *arena) {
    if (!arena || arena_guard(arena)) return NULL;
    const bool *needed = find_needed(r, arena);
    Graph *copy = graph_new(arena);
    copy->ambient = r->graph->ambient;
    copy->device = r->graph->device;
    Node **now = arena_new_array(arena, Node *, length(r->graph->node) + 1);
    for (int id = 0; id < length(r->graph->node); id++) {
        const Node *node = r->graph->node[id];
        Node *input[NODE_MAX_INPUTS];
        Meta meta = node_meta(node);
        if (!needed[id]) continue;
        node_inputs_now(node, now, input);
        now[id] = node->op == OP_input
                      ? graph_input(copy, &meta)
                      : graph_intern(copy, node->op, &meta, input, node->input_count, node->attrs);
        if (node->op != OP_input) continue;
        int number = (int)node->attrs->word[0];
        push(arena, r->input, number);
        push(arena, r->stride, stride ? stride[number] : NULL);
    }
    for (int i = 0; i < length(r->node); i++) push(arena, copy->output, now[r->node[i]->id]);
    return copy;
}

static ConstantRecipe *recipe_new(FrozenResults r, Tensor *const *value,
                                  const int64_t *const *stride) {
    Arena *arena = arena_new();
    Graph *copy = copy_results(&r, stride, arena);
    int inputs = copy ? length(r.input) : 0;
    ConstantRecipe *recipe =
        copy ? memory_zalloc(sizeof *recipe + sizeof *recipe->input * (size_t)inputs) : NULL;
    if (!recipe) {
        arena_free(arena);
        return NULL;
    }
    for (int i = 0; i < inputs; i++) recipe->input[i] = value[r.input[i]];
    recipe->executable = compile_graph(copy, r.stride, (CompileOptions){.fuse = true});
    if (recipe->executable) return recipe;
    memory_free(recipe);
    return NULL;
}

static bool is_conversion(const Node *node, Tensor *const *value) {
    if (node->op != OP_to || node->input[0]->op != OP_input) return false;
    return tensor_contiguous(value[node->input[0]->attrs->word[0]]);
}

static ConstantRecipe *recipe_for(const Graph *graph, Node *node, Tensor *const *value,
                                  const int64_t *const *stride) {
    if (!is_conversion(node, value)) {
        FrozenResults one = {.graph = graph};
        push(graph->arena, one.node, node);
        return recipe_new(one, value, stride);
    }
    ConstantRecipe *recipe = memory_zalloc(sizeof *recipe + sizeof *recipe->input);
    if (!recipe) return NULL;
    recipe->dtype = node->dtype;
    recipe->input[0] = value[node->input[0]->attrs->word[0]];
    return recipe;
}

static Graph *conversion(Arena *arena, const ConstantRecipe *recipe) {
    if (!arena || arena_guard(arena)) return NULL;
    Graph *graph = graph_new(arena);
    Meta meta = tensor_meta(recipe->input[0]);
    graph->device = meta.device;
    Node *input = graph_input(graph, &meta);
    push(arena, graph->output, node_convert(graph, input, recipe->dtype));
    return graph;
}

static bool make_runnable(ConstantRecipe *recipe) {
    if (recipe->executable) return true;
    Arena *arena = arena_new();
    Graph *graph = conversion(arena, recipe);
    if (graph)
        recipe->executable = compile_graph(graph, NULL, (CompileOptions){.fuse = true});
    else
        arena_free(arena);
    return recipe->executable != NULL;
}

/* ---- making -------------------------------------------------------------------------------- */

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

bool constants_make(Constants *out, const Graph *graph, Tensor *const *value,
                    const int64_t *const *stride) {
    int count = length(graph->constant), *at = NULL;
    if (!count) return true;
    if (!constants_new(out, count)) return false;
    FrozenResults together = {.graph = graph};
    for (int i = 0; i < count; i++) {
        Node *node = graph->constant[i];
        if (node->op == OP_input) {
            out->tensor[i] = cb_keep(tensor_alias(value[node->attrs->word[0]]));
            if (!out->tensor[i]) return false;
        } else if (node_numel(node) < OWN_RECIPE) {
            push(graph->arena, together.node, node);
            push(graph->arena, at, i);
        } else {
            out->recipe[i] = recipe_for(graph, node, value, stride);
            if (!out->recipe[i]) return false;
        }
    }
    return compute(together, at, value, stride, out);
}

bool constant_make(Constants *constants, int number) {
    ConstantRecipe *recipe = constants->recipe[number];
    if (!recipe) return true;
    Tensor **tensor = &constants->tensor[number];
    bool done = make_runnable(recipe) && executable_run(recipe->executable, recipe->input, tensor);
    if (!done) return false; /* the recipe stays: who asks again must not find nothing */
    cb_keep(*tensor);
    forget_recipe(constants, number);
    return true;
}

const Tensor *constant_source(const Constants *constants, int number) {
    const ConstantRecipe *recipe = constants->recipe[number];
    return recipe && !recipe->executable ? recipe->input[0] : NULL;
}

const void *constant_data(Constants *constants, int number) {
    return constant_make(constants, number) ? tensor_data(constants->tensor[number]) : NULL;
}

void constant_drop(Constants *constants, int number) {
    forget_recipe(constants, number);
    tensor_destroy(constants->tensor[number]); /* NULL is allowed */
    constants->tensor[number] = NULL;
}
