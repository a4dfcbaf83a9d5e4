/* Random graphs: eager, the VM and compiled C agree.
 *
 *     fuzz [first_seed [count [c_every]]]     c_every: every n-th recipe also goes through the C
 *     compiler
 *
 * Outputs are judged as PyTorch's suites do: close to eager, or else not worse than eager against
 * the same recipe run in f64. A failure is shrunk step by step and printed. */
#include "recipe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ELEMENTS = 4096, DRAWS = 4 };

typedef struct Result {
    int count;
    bool failed;
    Meta meta[2];
    double value[2][MAX_ELEMENTS];
} Result;

static void collect(Result *result, Tensor **output, int count) {
    result->count = count;
    result->failed = count < 0;
    for (int i = 0; i < count; i++) {
        if (!output[i] || cb_read(output[i], result->value[i], CB_F64)) {
            result->failed = true;
            return;
        }
        result->meta[i] = tensor_meta(output[i]);
    }
}

/* options NULL: eager */
static void run(const Recipe *recipe, const char *options, Result *result) {
    Tensor *input[MAX_INPUTS], *output[2] = {0};
    cb_scope_open();
    recipe_inputs(recipe, input);
    if (!options) {
        collect(result, output, recipe_call(input, recipe->input_count, output, (void *)recipe));
    } else {
        cb_function *f = cb_compile_n(recipe_call, (void *)recipe, options);
        for (int call = 0; call < 2; call++) { /* recorded, then replayed */
            int count = cb_call_n(f, input, recipe->input_count, output, 2);
            collect(result, output, count);
        }
        cb_function_free(f);
    }
    cb_scope_close();
}

static double rmse(const double *a, const double *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(a[i]) && isfinite(b[i])) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return count ? sqrt(sum / (double)count) : 0;
}

static bool close_to(const double *a, const double *b, int64_t count, double tolerance) {
    for (int64_t i = 0; i < count; i++) {
        if (isnan(a[i]) && isnan(b[i])) continue;
        if (a[i] == b[i]) continue;
        if (!(fabs(a[i] - b[i]) <= tolerance + tolerance * fabs(b[i]))) return false;
    }
    return true;
}

static bool agree(const Result *eager, const Result *other, const Result *wide, const char **why) {
    *why = "one fails";
    if (eager->failed != other->failed || eager->count != other->count) return false;
    for (int i = 0; i < eager->count && !eager->failed; i++) {
        *why = "metas differ";
        if (memcmp(&eager->meta[i], &other->meta[i], sizeof(Meta))) return false;
        int64_t n = meta_numel(&eager->meta[i]);
        *why = "values differ";
        if (close_to(other->value[i], eager->value[i], n, 1e-4)) continue;
        bool judged = !wide->failed && wide->count > i && meta_numel(&wide->meta[i]) == n;
        if (!judged) return false;
        double mine = rmse(other->value[i], wide->value[i], n),
               ref = rmse(eager->value[i], wide->value[i], n);
        if (!(mine <= 3 * ref + 1e-5) || ref == 0) return false;
    }
    return true;
}

static bool passes_once(const Recipe *recipe, const char *options, const char **why) {
    static Result eager, other, wide;
    Recipe wider = *recipe;
    wider.widened = true;
    run(recipe, NULL, &eager);
    run(recipe, options, &other);
    run(&wider, NULL, &wide);
    bool ok = agree(&eager, &other, &wide, why);
    cb_clear_error();
    return ok;
}

/* A comparison or a floor right at a step may go either way by a last bit; a bug shows for any
 * values. */
static bool passes(const Recipe *recipe, const char *options, const char **why) {
    Recipe tried = *recipe;
    for (tried.draw = 0; tried.draw < DRAWS; tried.draw++)
        if (passes_once(&tried, options, why)) return true;
    return false;
}

static void shrink(Recipe *recipe, const char *options) {
    const char *why;
    Recipe smaller;
    for (int step = recipe->step_count - 1; step >= 0; step--) {
        if (step >= recipe->step_count || !recipe_without(recipe, step, &smaller)) continue;
        if (!passes(&smaller, options, &why)) *recipe = smaller, step = recipe->step_count;
    }
}

static bool check_seed(uint64_t seed, const char *options) {
    const char *why;
    Recipe recipe;
    cb_scope_open();
    recipe_random(&recipe, seed);
    bool ok = passes(&recipe, options, &why);
    if (!ok) {
        shrink(&recipe, options);
        (void)passes(&recipe, options, &why);
        printf("seed %llu, %s: %s\n", (unsigned long long)seed, options, why);
        recipe_print(&recipe, stdout);
        fflush(stdout);
    }
    cb_scope_close();
    return ok;
}

int main(int argc, char **argv) {
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int count = argc > 2 ? atoi(argv[2]) : 500, every = argc > 3 ? atoi(argv[3]) : 10;
    int failed = 0, compiled = 0;
    for (int i = 0; i < count; i++) {
        failed += !check_seed(first + (uint64_t)i, "backend=vm");
        if (every > 0 && i % every == 0)
            failed += !check_seed(first + (uint64_t)i, "backend=c"), compiled++;
        if (failed > 20) break;
    }
    cb_cleanup();
    printf("%d random graphs, %d of them also compiled: %d failed\n", count, compiled, failed);
    return failed != 0;
}
