/* Beam search over GPT-2, eager and compiled: a loop whose texts grow, with a value that ends it.
 *
 *     beam_search [LENGTH]         of the small network, texts of 32 tokens
 *     beam_search LENGTH full      of GPT-2's 124 million weights: 0.5 GB
 *
 * The weights are random, so what it says is noise; beam_search.h is what to read. Each round asks
 * whether all beams are over. What lies between two questions runs compiled, a graph for each
 * length, which go through the same kernels. */
#include "beam_search.h"

#include <carbide_models.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Milliseconds of one search with its own random numbers; fast NULL: eager. */
static double run(cb_function *fast, Search *search, cb_tensor *prompt, cb_tensor *result[2]) {
    cb_manual_seed(7);
    double start = now_ms();
    if (fast)
        cb_call_n(fast, &prompt, 1, result, 2);
    else
        beam_search(&prompt, 1, result, search);
    return now_ms() - start;
}

static void show(cb_tensor *const result[2]) {
    for (int beam = 0; beam < BEAMS; beam++) {
        int64_t length = cb_size(result[0], 1);
        printf("%8.2f ", cb_item(cb_select(result[1], 0, beam)));
        for (int64_t i = 0; i < length; i++) {
            int64_t token = cb_item_int(cb_select(cb_select(result[0], 0, beam), 0, i));
            printf(" %d", (int)token);
            if (token == END) break;
        }
        puts("");
    }
}

static bool same(cb_tensor *const a[2], cb_tensor *const b[2]) {
    return cb_size(a[0], 1) == cb_size(b[0], 1) && cb_item(cb_all(cb_eq(a[0], b[0]))) != 0;
}

int main(int argc, char **argv) {
    bool full = argc > 2 && !strcmp(argv[2], "full");
    cb_scope_open();
    cb_manual_seed(1);
    cb_gpt2_config config = full ? cb_gpt2_124m_config() : cb_gpt2_tiny_config();
    cb_module *net = cb_model_gpt2(config);
    cb_module_train(net, false);
    Search search = {net, argc > 1 ? atoi(argv[1]) : 32, 1};
    cb_tensor *prompt = cb_from_data(((int64_t[]){20, 5, 24, 20}), CB_I64, cb_dims(1, 4));
    cb_function *fast = cb_compile_n(beam_search, &search, NULL); /* the one line */

    cb_tensor *eager[2], *compiled[2];
    double first_ms = run(fast, &search, prompt, compiled), eager_ms = 1e30, compiled_ms = 1e30;
    for (int i = 0; i < 3; i++) {
        eager_ms = fmin(eager_ms, run(NULL, &search, prompt, eager));
        compiled_ms = fmin(compiled_ms, run(fast, &search, prompt, compiled));
    }
    show(compiled);
    bool equal = same(eager, compiled);
    cb_function_stats stats = cb_stats(fast);
    printf(
        "%d lengths are %d graphs, %d of them compiled: eager %.1f ms, compiled %.1f (first call "
        "%.0f); %s\n",
        (int)(cb_size(compiled[0], 1) - cb_size(prompt, 1)), (int)stats.graphs, (int)stats.compiled,
        eager_ms, compiled_ms, first_ms, equal ? "the same texts" : "other texts");

    cb_function_free(fast);
    cb_module_free(net);
    cb_scope_close();
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    return cb_error() || !equal || stats.eager_calls;
}
