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
#include "run/execute.h"

bool constants_new(Constants *out, int count) {
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

static Plan *plan_conversion(Arena *arena, const ConstantRecipe *recipe) {
    if (arena_guard(arena)) return NULL;
    Graph *graph = graph_new(arena);
    Meta meta = tensor_meta(recipe->input[0]);
    Node *input = graph_input(graph, &meta);
    push(arena, graph->output, node_convert(graph, input, recipe->dtype));
    graph_prepare(graph);
    return plan_build(graph, arena, NULL, (PlanOptions){.fuse = true});
}

static bool make_runnable(ConstantRecipe *recipe) {
    if (recipe->executable) return true;
    Arena *arena = arena_new();
    Plan *plan = arena ? plan_conversion(arena, recipe) : NULL;
    if (plan)
        recipe->executable = executable_new(plan, (ExecutableOptions){0});
    else
        arena_free(arena);
    return recipe->executable != NULL;
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
