/* Text that grows: GPT-2 with 124 million random weights from 8 tokens on, each round computed anew
 * and its most likely token appended, in turn eager and compiled. Least of the runs for each
 * length; compare_growing.py runs PyTorch's beside it.
 *
 *     bench_growing [THREADS] [TOKENS] [RUNS] [OPTIONS]
 *     {"compiled": 2, "graphs": 64, "eager": 0, "weights_mb": 652.4, "grown_mb": 70.1, "eager_ms":
 *     [60.1, ...],
 *      "compiled_ms": [...]}
 * grown_mb: what the process holds at most beside what it held when the weights had been made. */
#include <carbide.h>
#include <carbide_models.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PROMPT = 8, MOST_TOKENS = 512 };

static cb_module *net;

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* text: i64[1, n]; i64[1, 1], the token that follows. */
static cb_tensor *next_token(cb_tensor *text) {
    cb_tensor *last = cb_select(cb_forward(net, text), 1, cb_size(text, 1) - 1);
    return cb_argmax(last, 1, true);
}

/* Of /proc/self/status, in MB. */
static double memory_mb(const char *key) {
    FILE *file = fopen("/proc/self/status", "r");
    double kilobytes = 0;
    for (char line[256]; file && fgets(line, sizeof line, file);)
        if (!strncmp(line, key, strlen(key))) kilobytes = atof(line + strlen(key) + 1);
    if (file) fclose(file);
    return kilobytes / 1024;
}

typedef struct Times {
    double ms[2][MOST_TOKENS]; /* eager, compiled */
} Times;

static void generate(cb_function *fast, int tokens, Times *times) {
    cb_scope_open();
    cb_tensor *text = cb_randint(1, cb_gpt2_124m_config().vocabulary, cb_dims(1, PROMPT));
    for (int i = 0; i < tokens; i++) {
        cb_tensor *token = NULL;
        for (int compiled = 0; compiled < 2; compiled++) {
            double start = now_ms();
            cb_scope_open();
            token = cb_keep(compiled ? cb_call(fast, text) : next_token(text));
            cb_scope_close();
            times->ms[compiled][i] = fmin(times->ms[compiled][i], now_ms() - start);
            if (!compiled) cb_free(token);
        }
        text = cb_cat((cb_tensor *[]){text, token}, 2, 1);
        cb_free(token);
    }
    cb_scope_close();
}

static void print_list(const char *key, const double *ms, int count, const char *end) {
    printf("\"%s\": [", key);
    for (int i = 0; i < count; i++) printf("%s%.1f", i ? ", " : "", ms[i]);
    printf("]%s", end);
}

int main(int argc, char **argv) {
    cb_set_threads(argc > 1 ? atoi(argv[1]) : 2);
    int tokens = argc > 2 ? atoi(argv[2]) : 64, runs = argc > 3 ? atoi(argv[3]) : 3;
    if (tokens < 1 || tokens > MOST_TOKENS) return 1;
    cb_manual_seed(1);
    int64_t before = cb_memory().live_bytes;
    net = cb_model_gpt2(cb_gpt2_124m_config());
    cb_module_train(net, false);
    double weights = (double)(cb_memory().live_bytes - before) / 1e6, held = memory_mb("VmRSS:");
    cb_function *fast = cb_compile(next_token, argc > 4 ? argv[4] : NULL);
    Times times;
    for (int i = 0; i < tokens; i++) times.ms[0][i] = times.ms[1][i] = INFINITY;
    for (int run = 0; run < runs; run++) generate(fast, tokens, &times);
    cb_function_stats stats = cb_stats(fast);
    printf("{\"compiled\": %lld, \"graphs\": %lld, \"eager\": %lld, \"weights_mb\": %.1f, "
           "\"grown_mb\": %.1f, ",
           (long long)stats.compiled, (long long)stats.graphs, (long long)stats.eager_calls,
           weights, memory_mb("VmHWM:") - held);
    print_list("eager_ms", times.ms[0], tokens, ", ");
    print_list("compiled_ms", times.ms[1], tokens, "}\n");
    int failed = cb_error() != NULL;
    if (failed) fprintf(stderr, "%s\n", cb_error());
    cb_function_free(fast);
    cb_module_free(net);
    return failed;
}
