/* Recipes: random straight-line programs over the op table, for the fuzzer. */
#ifndef CARBIDE_FUZZ_RECIPE_H
#define CARBIDE_FUZZ_RECIPE_H

#include "op/op.h"
#include "eager/apply.h"

enum { MAX_INPUTS = 3, MAX_STEPS = 24, MAX_VALUES = MAX_INPUTS + MAX_STEPS };

typedef struct Operand { /* a value of the recipe, or a number */
    int value;           /* -1: number */
    double number;
} Operand;

typedef struct RecipeStep {
    Op op;
    int count;
    Operand input[3];
    Attrs attrs;
} RecipeStep;

typedef struct Recipe {
    uint64_t seed;
    uint64_t jitter; /* not 0: every rounding goes another way by a last bit or two, by this seed */
    int input_count, step_count;
    Meta input[MAX_INPUTS];
    RecipeStep step[MAX_STEPS];
    Meta meta[MAX_VALUES]; /* of inputs, then of steps */
    int output_count;
    int output[2]; /* values */
    bool widened;  /* run with f64 in place of f32 */
    bool exact; /* every op of it rounds correctly or not at all: all engines give the same bits */
    bool multiplies; /* exact: it has products, and no sums that a product could be fused into */
} Recipe;

/* The same seed makes the same recipe. */
void recipe_random(Recipe *recipe, uint64_t seed);
/* Runs it through the public door, eagerly or under capture: a cb_function_n with the recipe as
 * user. */
int recipe_call(cb_tensor *const *inputs, int input_count, cb_tensor **outputs, void *user);
/* New input tensors, the same values for f32 and widened programs. */
void recipe_inputs(const Recipe *recipe, cb_tensor **out);
/* Without step number `step`: its users take its first operand of the same shape. false:
 * impossible. */
bool recipe_without(const Recipe *recipe, int step, Recipe *out);
void recipe_print(const Recipe *recipe, FILE *out);

#endif
