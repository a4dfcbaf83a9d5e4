/* Training steps: forward, loss, gradients, clipping and AdamW of a network, as one graph or in
 * eager. compare_train.py runs PyTorch's beside them, sample by sample.
 *
 *     bench_train CASE [eager|compiled] [THREADS]
 *                                 (digits, gpt_small, gpt, cnn, gpt2, gpt2_bf16, resnet18)
 *     0.5                         stdin: steps for so many seconds (at least three) ...
 *     {"median_ms": .., "least_ms": .., "cpu_ms": ..}  ... and what one took; cpu: by all threads
 *                                 an empty line or the end: the facts
 *     {"first_ms": .., "compile_ms": .., "kernels": 160, "graphs": 1, "peak_mb": ..,
 *                                  "model_mb": .., "loss": ..}
 *
 * peak_mb is the most that the process was resident with, model_mb what it was before the first
 * step, loss that of the first step. CARBIDE_EXPLAIN=1 tells the time of each kernel as the program
 * ends. */
#include <carbide.h>
#include <carbide_models.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct Case {
    const char *name;
    int64_t batch, size; /* size: pixels, tokens or the side of a picture */
    cb_module *(*network)(int64_t size);
    int64_t classes;
    bool tokens, autocast; /* autocast: forward pass and loss in bf16 */
} Case;

typedef struct Run {
    const Case *of;
    cb_module *net;
    cb_optimizer *optimizer;
    cb_tensor *parameter[512];
    int count;
    double loss; /* of the last step */
} Run;

static double clock_ms(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double now_ms(void) { return clock_ms(CLOCK_MONOTONIC); }

/* Of /proc/self/status, in MB of 1e6 bytes. */
static double resident_mb(const char *key) {
    FILE *file = fopen("/proc/self/status", "r");
    double kilobytes = 0;
    for (char line[256]; file && fgets(line, sizeof line, file);)
        if (!strncmp(line, key, strlen(key))) kilobytes = atof(line + strlen(key) + 1);
    if (file) fclose(file);
    return kilobytes * 1024 / 1e6;
}

/* ---- the networks --------------------------------------------------------------------------- */

static cb_module *digits(int64_t pixels) {
    return cb_model_mlp((int64_t[]){pixels, 128, 64, 10}, 4);
}

static cb_module *gpt_small(int64_t length) {
    return cb_model_gpt2((cb_gpt2_config){256, length, 128, 2, 4});
}

static cb_module *gpt(int64_t length) {
    return cb_model_gpt2((cb_gpt2_config){256, length, 384, 6, 6});
}

static cb_module *stage(int64_t in, int64_t out, int64_t stride) {
    return cb_nn_sequential(cb_nn_conv2d(in, out, 3, stride, 1), cb_nn_batch_norm2d(out),
                            cb_nn_relu());
}

/* Pictures of 3 channels. */
static cb_module *cnn(int64_t side) {
    (void)side;
    cb_module *layers[] = {stage(3, 32, 1),    stage(32, 64, 2),
                           stage(64, 64, 1),   stage(64, 128, 2),
                           stage(128, 128, 1), cb_nn_adaptive_avg_pool2d(1),
                           cb_nn_flatten(),    cb_nn_linear(128, 10, true)};
    return cb_nn_sequential_n(layers, sizeof layers / sizeof *layers);
}

static cb_module *gpt2(int64_t length) {
    (void)length;
    return cb_model_gpt2(cb_gpt2_124m_config());
}

static cb_module *resnet18(int64_t side) {
    (void)side;
    return cb_model_resnet(cb_resnet18_config());
}

static const Case cases[] = {{"digits", 64, 64, digits, 10, false, false},
                             {"gpt_small", 4, 64, gpt_small, 256, true, false},
                             {"gpt", 12, 256, gpt, 256, true, false},
                             {"cnn", 16, 32, cnn, 10, false, false},
                             {"gpt2", 1, 256, gpt2, 50304, true, false},
                             {"gpt2_bf16", 1, 256, gpt2, 50304, true, true},
                             {"resnet18", 8, 224, resnet18, 1000, false, false}};

static bool pictures(const Case *of) { return of->network == cnn || of->network == resnet18; }

static cb_tensor *input(const Case *of) {
    if (of->tokens) return cb_randint(0, of->classes, cb_dims(of->batch, of->size));
    if (pictures(of)) return cb_randn(cb_dims(of->batch, 3, of->size, of->size));
    return cb_randn(cb_dims(of->batch, of->size));
}

static cb_tensor *target(const Case *of) {
    return cb_randint(0, of->classes,
                      of->tokens ? cb_dims(of->batch * of->size) : cb_dims(of->batch));
}

/* ---- the step ------------------------------------------------------------------------------- */

/* Gradients are freed before it returns, so that as one graph it stores none. */
static int step(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    Run *run = user;
    (void)count;
    if (run->of->autocast) cb_autocast_open(CB_BF16);
    cb_tensor *logits = cb_forward(run->net, in[0]);
    if (run->of->tokens) logits = cb_reshape(logits, cb_dims(-1, run->of->classes));
    out[0] = cb_cross_entropy(logits, in[1]);
    if (run->of->autocast) cb_autocast_close();
    cb_backward(out[0], NULL);
    cb_clip_grad_norm_(run->parameter, run->count, 1.0, 2);
    cb_optimizer_step(run->optimizer);
    cb_optimizer_zero_grad(run->optimizer);
    return 1;
}

static double step_ms(Run *run, cb_function *fast, cb_tensor **in) {
    cb_tensor *out[1] = {NULL};
    double start = now_ms();
    cb_scope_open();
    if (fast)
        cb_call_n(fast, in, 2, out, 1);
    else
        step(in, 2, out, run);
    run->loss = cb_item(out[0]);
    cb_scope_close();
    return isfinite(run->loss) ? now_ms() - start : NAN;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sample(Run *run, cb_function *fast, cb_tensor **in, double seconds) {
    enum { MOST = 100000, FEWEST = 3 };
    static double ms[MOST];
    int count = 0;
    double worked = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    for (double end = now_ms() + seconds * 1e3; count < MOST && (count < FEWEST || now_ms() < end);)
        ms[count++] = step_ms(run, fast, in);
    worked = clock_ms(CLOCK_PROCESS_CPUTIME_ID) - worked;
    qsort(ms, (size_t)count, sizeof *ms, by_size);
    printf("{\"median_ms\": %.4f, \"least_ms\": %.4f, \"cpu_ms\": %.4f}\n", ms[count / 2], ms[0],
           worked / count);
    fflush(stdout);
}

static const Case *find(const char *name) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, name)) return &cases[i];
    fprintf(stderr, "bench_train: there is no case '%s'\n", name);
    return NULL;
}

int main(int argc, char **argv) {
    Run run = {.of = find(argc > 1 ? argv[1] : "digits")};
    if (!run.of) return 2;
    bool eager = argc > 2 && !strcmp(argv[2], "eager");
    cb_set_threads(argc > 3 ? atoi(argv[3]) : 2);
    cb_manual_seed(1);
    run.net = run.of->network(run.of->size);
    run.optimizer = cb_optimizer_new("AdamW", NULL);
    cb_optimizer_add_module(run.optimizer, run.net, NULL);
    run.count = cb_module_parameters(run.net, run.parameter, 512);
    cb_function *fast = eager ? NULL : cb_compile_n(step, &run, NULL);
    cb_tensor *in[2] = {input(run.of), target(run.of)};
    double model = resident_mb("VmRSS:"), first = step_ms(&run, fast, in), loss = run.loss;
    for (char line[64]; fgets(line, sizeof line, stdin) && *line != '\n' && !cb_error();)
        sample(&run, fast, in, atof(line));
    cb_function_stats stats = fast ? cb_stats(fast) : (cb_function_stats){0};
    printf("{\"first_ms\": %.1f, \"compile_ms\": %.1f, \"kernels\": %lld, \"graphs\": %lld, "
           "\"peak_mb\": %.1f, \"model_mb\": %.1f, \"loss\": %.4f}\n",
           first, stats.trace_ms + stats.compile_ms, (long long)stats.kernels,
           (long long)stats.graphs, resident_mb("VmHWM:"), model, loss);
    bool failed = cb_error() || !isfinite(first) || stats.eager_calls;
    if (failed) fprintf(stderr, "bench_train: %s\n", cb_error() ? cb_error() : "not compiled");
    if (fast) cb_function_free(fast);
    cb_optimizer_free(run.optimizer);
    cb_module_free(run.net);
    return failed;
}
