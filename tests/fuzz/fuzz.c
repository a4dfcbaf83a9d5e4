/* Random graphs: eager, the VM, compiled C and backends of the user's agree.
 *
 *     fuzz [first_seed [count [c_every]]]     c_every: every n-th recipe also goes through the C
 *     compiler
 *
 * Recipes for the C compiler are gathered: up to BUNDLE of them are one compiled function, with
 * the inputs and outputs of all, so that the compiler starts once for many. A compiled function
 * runs twice, recorded and then replayed, and may not have fallen back to another engine. How
 * outputs are judged: judge.h. A failure is shrunk step by step and printed. */
#include "judge.h"

#include <stdlib.h>
#include <string.h>

enum { BUNDLE = 20, OTHERS = 4 }; /* of OTHERS recipes, one goes through each backend */

typedef struct Bundle {
    int count;
    Recipe recipe[BUNDLE];
} Bundle;

static struct { int failed, compiled, by_jitter; } total;

static int bundle_call(cb_tensor *const *inputs, int input_count, cb_tensor **outputs, void *user) {
    const Bundle *bundle = user;
    int in = 0, out = 0;
    (void)input_count;
    for (int i = 0; i < bundle->count; i++) {
        const Recipe *r = &bundle->recipe[i];
        recipe_call(inputs + in, r->input_count, outputs + out, (void *)r);
        in += r->input_count;
        out += r->output_count;
    }
    return out;
}

static bool fell_back(cb_function *f) {
    char *text = cb_explain(f);
    bool found = !text || strstr(text, "fallback: ");
    cb_free_text(text);
    return found;
}

static bool same_bits(cb_tensor *x, cb_tensor *y) {
    static double a[MAX_ELEMENTS], b[MAX_ELEMENTS];
    if (!x || !y || cb_numel(x) != cb_numel(y)) return x == y;
    cb_read(x, a, CB_F64);
    cb_read(y, b, CB_F64);
    return !memcmp(a, b, sizeof *a * (size_t)cb_numel(x));
}

/* result[i]: of recipe i. NULL when the run is sound in itself, else what is wrong with it. */
static const char *run_bundle(const Bundle *bundle, const char *options, Result *result) {
    cb_tensor *input[CB_MAX_ARGS], *output[2][CB_MAX_ARGS] = {{0}};
    const char *wrong = NULL;
    int in = 0, out = 0, count[2];
    cb_scope_open();
    for (int i = 0; i < bundle->count; i++) {
        recipe_inputs(&bundle->recipe[i], input + in);
        in += bundle->recipe[i].input_count;
        out += bundle->recipe[i].output_count;
    }
    cb_function *f = cb_compile_n(bundle_call, (void *)bundle, options);
    for (int call = 0; call < 2; call++)
        count[call] = cb_call_n(f, input, in, output[call], CB_MAX_ARGS);
    if (count[0] >= 0 && (count[0] != out || count[1] != out)) wrong = "outputs are missing";
    for (int i = 0; i < out && !wrong; i++)
        if (!same_bits(output[0][i], output[1][i])) wrong = "replay differs from the first call";
    if (!wrong && count[0] >= 0 && fell_back(f)) wrong = "another engine ran";
    for (int i = 0, at = 0; i < bundle->count; i++) {
        int outputs = bundle->recipe[i].output_count;
        result_collect(&result[i], output[0] + at, count[0] < 0 ? -1 : outputs);
        at += outputs;
    }
    cb_function_free(f);
    cb_scope_close();
    return wrong;
}

/* The first recipe of the bundle that is off, -1: none. *why: what is wrong. */
static int check_bundle(const Bundle *bundle, const char *options, const char **why) {
    static Result eager, other[BUNDLE];
    *why = run_bundle(bundle, options, other);
    cb_clear_error();
    if (*why) return 0;
    for (int i = 0; i < bundle->count; i++) {
        run_eager(&bundle->recipe[i], &eager);
        Verdict verdict = judge(&bundle->recipe[i], &eager, &other[i], why);
        cb_clear_error();
        if (verdict == DIFFER) return i;
        total.by_jitter += verdict == AGREE_BY_JITTER;
    }
    return -1;
}

static bool passes(const Recipe *recipe, const char *options, const char **why) {
    static Bundle one;
    one.count = 1;
    one.recipe[0] = *recipe;
    return check_bundle(&one, options, why) < 0;
}

static void shrink(Recipe *recipe, const char *options) {
    const char *why;
    Recipe smaller;
    for (int step = recipe->step_count - 1; step >= 0; step--) {
        if (step >= recipe->step_count || !recipe_without(recipe, step, &smaller)) continue;
        if (!passes(&smaller, options, &why)) *recipe = smaller, step = recipe->step_count;
    }
}

static void report(Recipe *recipe, const char *options, const char *why) {
    const char *alone = why;
    total.failed++;
    if (!passes(recipe, options, &alone)) {
        shrink(recipe, options);
        (void)passes(recipe, options, &alone);
    } else
        printf("only beside its neighbours: ");
    printf("seed %llu, %s: %s\n", (unsigned long long)recipe->seed, options, alone ? alone : why);
    recipe_print(recipe, stdout);
    fflush(stdout);
}

static void check_one(Recipe *recipe, const char *options) {
    const char *why;
    if (!passes(recipe, options, &why)) report(recipe, options, why);
}

static void check_compiled(Bundle *bundle) {
    const char *why, *reason;
    int at = bundle->count ? check_bundle(bundle, "backend=c", &why) : -1;
    total.compiled += bundle->count;
    if (at >= 0 && !passes(&bundle->recipe[at], "backend=c", &reason))
        report(&bundle->recipe[at], "backend=c", why);
    else if (at >= 0) /* the bundle is the failure, or several of it are */
        for (int i = 0, before = total.failed; i < bundle->count && total.failed == before; i++)
            if (i == bundle->count - 1 || !passes(&bundle->recipe[i], "backend=c", &reason))
                report(&bundle->recipe[i], "backend=c", why);
    bundle->count = 0;
}

static cb_status compile_inner(cb_graph *graph, cb_backend_code *code, void *user) {
    (void)user;
    return cb_backend_inner(graph, "backend=vm", code);
}

int main(int argc, char **argv) {
    static Bundle bundle;
    static Recipe recipe;
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int count = argc > 2 ? atoi(argv[2]) : 500, every = argc > 3 ? atoi(argv[3]) : 10;
    cb_register_backend("inner", compile_inner, NULL);
    for (int i = 0; i < count && total.failed <= 20; i++) {
        cb_scope_open();
        recipe_random(&recipe, first + (uint64_t)i);
        cb_clear_error();
        check_one(&recipe, "backend=vm");
        if (i % OTHERS == 0) check_one(&recipe, "backend=eager");
        if (i % OTHERS == 1) check_one(&recipe, "backend=inner");
        if (every > 0 && i % every == 0) bundle.recipe[bundle.count++] = recipe;
        if (bundle.count == BUNDLE) check_compiled(&bundle);
        cb_scope_close();
    }
    check_compiled(&bundle);
    cb_cleanup();
    printf("%d random graphs, %d of them also compiled: %d failed; %d at a discontinuity\n", count,
           total.compiled, total.failed, total.by_jitter);
    return total.failed != 0;
}
