/* Constants of a plan (constant.h).
 *
 *     c0: recipe w * s  --constant_make-->  c0: f32[64, 3, 7, 7]  --pack, constant_drop-->  -
 *     c1: recipe to(w, bf16)                      --gemm_pack, from w-->                    -
 *
 * A constant is made when its step is prepared and dropped once it is packed: the next one finds
 * its memory in the storage cache, and in the processor's. What is made is derived (derived.h):
 * plans that differ in the sizes of their inputs alone have the same constants, once. */
#include "run/constant.h"

#include "base/memory.h"
#include "graph/node.h"
#include "run/compile.h"

#include <string.h>

enum { OWN_RECIPE = 1 << 18 }; /* elements that are worth a recipe of their own */

static bool constants_new(Constants *out, int count) {
    size_t room = (size_t)(count + 1);
    *out = (Constants){.at = memory_zalloc(sizeof *out->at * room),
                       .count = count,
                       .group.number = memory_zalloc(sizeof *out->group.number * room)};
    return out->at && out->group.number;
}

static void recipe_free(ConstantRecipe *recipe) {
    if (!recipe) return;
    executable_free(recipe->executable);
    if (recipe->graph) arena_free(recipe->graph->arena);
    memory_free(recipe);
}

static void forget_ways(Constant *constant) {
    recipe_free(constant->recipe);
    tensor_destroy(constant->computed); /* NULL is allowed */
    constant->recipe = NULL;
    constant->computed = NULL;
}

void constants_free(Constants *constants) {
    for (int i = 0; i < constants->count && constants->at; i++) constant_drop(constants, i);
    recipe_free(constants->group.recipe);
    memory_free(constants->at);
    memory_free(constants->group.number);
    *constants = (Constants){0};
}

/* ---- digests ------------------------------------------------------------------------------- */

typedef struct DigestText { /* words that a digest is the hash of */
    Arena *arena;
    uint64_t *word; /* vec */
} DigestText;

static void put_word(DigestText *text, uint64_t word) { push(text->arena, text->word, word); }

/* The elements of a frozen argument: no other write, storage or place leads to the same words. */
static void put_argument(DigestText *text, const Tensor *x) {
    put_word(text, x->storage->serial);
    put_word(text, atomic_load_explicit(&x->storage->version, memory_order_relaxed));
    put_word(text, (uint64_t)x->offset);
    for (int d = 0; d < x->rank; d++) put_word(text, (uint64_t)x->stride[d]);
}

static void put_node(DigestText *text, const Node *node, const ConstantDigest *digest) {
    put_word(text, (uint64_t)node->op << 16 | (uint64_t)node->dtype << 8 | node->rank);
    for (int d = 0; d < node->rank; d++) put_word(text, (uint64_t)node->size[d]);
    if (node->op == OP_input) return;
    for (int w = 0; w < op_attr_words(node->op); w++)
        put_word(text, (uint64_t)node->attrs->word[w]);
    for (int k = 0; k < node->input_count; k++)
        for (int half = 0; half < 2; half++)
            put_word(text, node->input[k] ? digest[node->input[k]->id].word[half] : 0);
}

static ConstantDigest digest_of(const DigestText *text) {
    ConstantDigest digest;
    size_t bytes = sizeof *text->word * (size_t)length(text->word);
    for (int half = 0; half < 2; half++)
        digest.word[half] = hash_bytes(text->word, bytes, (uint64_t)half + 1);
    return digest;
}

/* By node id: what follows from frozen arguments alone; of others, nothing to rely on. */
static ConstantDigest *find_digests(const Graph *graph, Tensor *const *value) {
    Arena *arena = graph->arena;
    ConstantDigest *digest = arena_new_array(arena, ConstantDigest, length(graph->node) + 1);
    int arguments = length(graph->input) - length(graph->constant);
    DigestText text = {arena, NULL};
    for (int id = 0; id < length(graph->node); id++) {
        const Node *node = graph->node[id];
        truncate_to(text.word, 0);
        put_word(&text, ambient_word(graph->ambient));
        put_word(&text, (uint64_t)graph->device);
        put_node(&text, node, digest);
        int64_t number = node->op == OP_input ? node->attrs->word[0] : arguments;
        if (number < arguments && graph->frozen[number]) put_argument(&text, value[number]);
        digest[id] = digest_of(&text);
    }
    return digest;
}

/* ---- recipes ------------------------------------------------------------------------------- */

typedef struct FrozenResults { /* of one executable, and the arguments that they need */
    const Graph *graph;
    Node **node;             /* vec */
    const IndexCheck *check; /* vec */
    int *input;              /* vec: their numbers in the whole graph */
    const int64_t **stride;  /* by number there */
} FrozenResults;

/* By node id: the results, the indices that are checked, and all that they come from. */
static bool *find_needed(const FrozenResults *r, Arena *arena) {
    bool *needed = arena_new_array(arena, bool, length(r->graph->node) + 1);
    for (int i = 0; i < length(r->node); i++) needed[r->node[i]->id] = true;
    for (int i = 0; i < length(r->check); i++) needed[r->check[i].index->id] = true;
    graph_need_inputs(r->graph, needed);
    return needed;
}

/* Results and checks as a graph of their own, over the arguments that it needs; NULL: no memory. */
static Graph *copy_results(FrozenResults *r, const int64_t *const *stride, Arena *arena) {
    if (!arena || arena_guard(arena)) return NULL;
    const bool *needed = find_needed(r, arena);
    Graph *copy = graph_new(arena);
    copy->ambient = r->graph->ambient;
    copy->device = r->graph->device;
    Node **now = arena_new_array(arena, Node *, length(r->graph->node) + 1);
    for (int id = 0; id < length(r->graph->node); id++) {
        const Node *node = r->graph->node[id];
        Meta meta = node_meta(node);
        if (!needed[id]) continue;
        now[id] =
            node->op == OP_input ? graph_input(copy, &meta) : graph_copy_node(copy, node, now);
        if (node->op != OP_input) continue;
        int number = (int)node->attrs->word[0];
        push(arena, r->input, number);
        push(arena, r->stride, stride ? stride[number] : NULL);
    }
    for (int i = 0; i < length(r->node); i++) push(arena, copy->output, now[r->node[i]->id]);
    for (int i = 0; i < length(r->check); i++) {
        IndexCheck check = r->check[i];
        check.index = now[check.index->id];
        push(arena, copy->check, check);
    }
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
    recipe->graph = copy, recipe->stride = r.stride;
    return recipe;
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
    recipe->converts = true, recipe->dtype = node->dtype;
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

/* False: memory ran out, now or when it was tried before. */
static bool make_runnable(ConstantRecipe *recipe) {
    if (recipe->executable) return true;
    Graph *graph = recipe->graph;
    recipe->graph = NULL; /* compile_graph takes it over */
    if (!graph && recipe->converts) {
        Arena *arena = arena_new();
        graph = conversion(arena, recipe);
        if (!graph) arena_free(arena);
    }
    const int64_t *const *stride = (const int64_t *const *)recipe->stride;
    if (graph) recipe->executable = compile_graph(graph, stride, (CompileOptions){.fuse = true});
    return recipe->executable != NULL;
}

static bool recipe_run(ConstantRecipe *recipe, Tensor **tensor) {
    return make_runnable(recipe) && executable_run(recipe->executable, recipe->input, tensor);
}

/* ---- making -------------------------------------------------------------------------------- */

/* A recipe stays where it failed: who asks again must not find nothing. */
static bool compute_group(Constants *constants) {
    ConstantGroup *group = &constants->group;
    Tensor **tensor = memory_zalloc(sizeof *tensor * (size_t)group->count);
    bool done = tensor && recipe_run(group->recipe, tensor);
    for (int i = 0; done && i < group->count; i++) {
        Constant *constant = &constants->at[group->number[i]];
        if (constant->dropped)
            tensor_destroy(tensor[i]);
        else
            constant->computed = cb_keep(tensor[i]);
    }
    memory_free(tensor);
    if (!done) return false;
    recipe_free(group->recipe);
    group->recipe = NULL;
    return true;
}

typedef struct ConstantPlace {
    Constants *constants;
    int number;
} ConstantPlace;

/* A kept tensor. */
static void *compute(void *user) {
    const ConstantPlace *place = user;
    Constant *constant = &place->constants->at[place->number];
    Tensor *tensor = NULL;
    if (constant->recipe) return recipe_run(constant->recipe, &tensor) ? cb_keep(tensor) : NULL;
    if (!constant->computed && !compute_group(place->constants)) return NULL;
    tensor = constant->computed;
    constant->computed = NULL;
    return tensor;
}

static void drop_tensor(void *tensor) { tensor_destroy(tensor); }

/* How the constant will be made: by itself, or with others, which are pushed. False: no memory. */
static bool plan_constant(Constants *out, int number, const Graph *graph, FrozenResults *together,
                          Tensor *const *value, const int64_t *const *stride) {
    Constant *constant = &out->at[number];
    Node *node = graph->constant[number];
    if (node->op == OP_input) {
        constant->tensor = cb_keep(tensor_alias(value[node->attrs->word[0]]));
        return constant->tensor;
    }
    if (node_numel(node) < OWN_RECIPE) {
        push(graph->arena, together->node, node);
        out->group.number[out->group.count++] = number;
        return true;
    }
    constant->recipe = recipe_for(graph, node, value, stride);
    return constant->recipe;
}

/* Now: who compiles wants to know. */
static bool check_fixed(const Graph *graph, Tensor *const *value, const int64_t *const *stride) {
    if (!length(graph->fixed)) return true;
    FrozenResults none = {.graph = graph, .check = graph->fixed};
    ConstantRecipe *recipe = recipe_new(none, value, stride);
    Tensor *tensor;
    bool fine = recipe && recipe_run(recipe, &tensor);
    recipe_free(recipe);
    return fine;
}

bool constants_make(Constants *out, const Graph *graph, Tensor *const *value,
                    const int64_t *const *stride) {
    int count = length(graph->constant);
    if (!check_fixed(graph, value, stride)) return false;
    if (!count) return true;
    if (!constants_new(out, count)) return false;
    const ConstantDigest *digest = find_digests(graph, value);
    FrozenResults together = {.graph = graph};
    for (int i = 0; i < count; i++) {
        out->at[i].digest = digest[graph->constant[i]->id];
        if (!plan_constant(out, i, graph, &together, value, stride)) return false;
    }
    if (out->group.count) out->group.recipe = recipe_new(together, value, stride);
    return !out->group.count || out->group.recipe;
}

bool constant_make(Constants *constants, int number) {
    static const DerivedWay way = {compute, drop_tensor};
    Constant *constant = &constants->at[number];
    if (constant->tensor) return true;
    const DerivedKey key = {(const char *)&constant->digest, sizeof constant->digest};
    constant->derived = derived_take(&key, &way, &(ConstantPlace){constants, number});
    if (!constant->derived) return false;
    constant->tensor = derived_value(constant->derived);
    forget_ways(constant);
    return true;
}

const Tensor *constant_source(const Constants *constants, int number) {
    const ConstantRecipe *recipe = constants->at[number].recipe;
    return recipe && recipe->converts && !recipe->executable ? recipe->input[0] : NULL;
}

const void *constant_data(Constants *constants, int number) {
    return constant_make(constants, number) ? tensor_data(constants->at[number].tensor) : NULL;
}

void constant_drop(Constants *constants, int number) {
    Constant *constant = &constants->at[number];
    forget_ways(constant);
    if (constant->derived)
        derived_give(constant->derived);
    else
        tensor_destroy(constant->tensor); /* NULL is allowed */
    constant->derived = NULL;
    constant->tensor = NULL;
    constant->dropped = true;
}
