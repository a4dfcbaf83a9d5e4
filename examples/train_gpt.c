/* A GPT over characters learns Shakespeare, or any other text, and then writes some of its own.
 *
 *     train_gpt                                    four layers of 128, 500 steps
 *     train_gpt --layers 6 --width 384 --heads 6 --length 256 --batch 12 --steps 5000
 *     train_gpt --resume                           goes on where the checkpoint is
 *     train_gpt --steps 0 --resume --sample 500 --prompt "ROSALIND" --temperature 0.8 --top-k 40
 *
 * A step - forward, loss, backward, clipping, AdamW - is one function, and cb_compile makes it one
 * graph. The last tenth of the text is kept for validation. The checkpoint is written every
 * --save-every steps, at the end, after Ctrl-C, and after --stop-after steps; a run that goes on
 * from it computes the same numbers as one that was never stopped. A token is a byte; --tokens 2
 * reads a file of 16-bit numbers below --vocabulary instead, of which nothing is written as text.
 */
#include <carbide_data.h>
#include <carbide_models.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Settings {
    int64_t layers, width, heads, length, batch, steps, warmup, save_every, validate_every, tokens;
    int64_t vocabulary, seed, sample, top_k, stop_after;
    double lr, temperature;
    const char *data, *checkpoint, *log, *curve, *prompt;
    bool resume, eager;
} Settings;

/* ---- the command line ----------------------------------------------------------------------- */

typedef struct SettingFlag {
    const char *name;
    int64_t *whole; /* one of these takes what follows */
    double *real;
    const char **text;
    bool *set; /* nothing follows */
} SettingFlag;

static bool take(const SettingFlag *flag, const char *value) {
    char *end = NULL;
    errno = 0;
    if (flag->set)
        *flag->set = true;
    else if (flag->text)
        *flag->text = value;
    else if (flag->whole)
        *flag->whole = strtoll(value, &end, 10);
    else
        *flag->real = strtod(value, &end);
    bool taken = (!end || (end != value && !*end)) && errno == 0;
    taken = taken && !(flag->whole && *flag->whole < 0);
    if (!taken) fprintf(stderr, "train_gpt: --%s %s is no such number\n", flag->name, value);
    return taken;
}

static bool parse(Settings *s, int argc, char **argv) {
    const SettingFlag flags[] = {{"layers", .whole = &s->layers},
                                 {"width", .whole = &s->width},
                                 {"heads", .whole = &s->heads},
                                 {"length", .whole = &s->length},
                                 {"batch", .whole = &s->batch},
                                 {"steps", .whole = &s->steps},
                                 {"warmup", .whole = &s->warmup},
                                 {"save-every", .whole = &s->save_every},
                                 {"validate-every", .whole = &s->validate_every},
                                 {"tokens", .whole = &s->tokens},
                                 {"vocabulary", .whole = &s->vocabulary},
                                 {"seed", .whole = &s->seed},
                                 {"sample", .whole = &s->sample},
                                 {"top-k", .whole = &s->top_k},
                                 {"stop-after", .whole = &s->stop_after},
                                 {"lr", .real = &s->lr},
                                 {"temperature", .real = &s->temperature},
                                 {"data", .text = &s->data},
                                 {"checkpoint", .text = &s->checkpoint},
                                 {"log", .text = &s->log},
                                 {"curve", .text = &s->curve},
                                 {"prompt", .text = &s->prompt},
                                 {"resume", .set = &s->resume},
                                 {"eager", .set = &s->eager}};
    enum { COUNT = sizeof flags / sizeof *flags };
    struct option options[COUNT + 1] = {{0}};
    for (int i = 0; i < COUNT; i++)
        options[i] = (struct option){flags[i].name, !flags[i].set, NULL, 0};
    int at = 0, found;
    while ((found = getopt_long(argc, argv, "", options, &at)) == 0)
        if (!take(&flags[at], optarg)) return false;
    return found == -1 && optind == argc;
}

/* ---- the network and its step --------------------------------------------------------------- */

enum { MOST_PARAMETERS = 1024 };

typedef struct Run {
    Settings settings;
    cb_module *net;
    cb_optimizer *optimizer;
    cb_schedule *schedule;
    cb_tensor *decayed[MOST_PARAMETERS], *plain[MOST_PARAMETERS], *all[MOST_PARAMETERS];
    int decayed_count, plain_count, all_count;
    cb_function *step, *logits; /* NULL: eager */
} Run;

/* GPT-2's initial values, and its groups: matrices decay, biases and norms do not. The head's
 * weight is the embedding's. */
static void prepare(const char *name, cb_tensor *tensor, bool buffer, void *user) {
    Run *run = user;
    if (buffer || !strcmp(name, "head.weight") || run->all_count == MOST_PARAMETERS) return;
    bool matrix = cb_rank(tensor) > 1, last = strstr(name, ".proj.") || strstr(name, ".fc2.");
    double residuals = 2 * (double)run->settings.layers; /* added up on the way through */
    if (matrix)
        cb_init_normal_(tensor, 0, last ? 0.02 / sqrt(residuals) : 0.02);
    else if (strstr(name, ".bias"))
        cb_init_constant_(tensor, 0);
    if (matrix)
        run->decayed[run->decayed_count++] = tensor;
    else
        run->plain[run->plain_count++] = tensor;
    run->all[run->all_count++] = tensor;
}

static cb_tensor *loss_of(Run *run, cb_tensor *inputs, cb_tensor *targets) {
    cb_tensor *logits = cb_forward(run->net, inputs);
    logits = cb_reshape(logits, cb_dims(-1, run->settings.vocabulary));
    return cb_cross_entropy(logits, cb_reshape(targets, -1));
}

/* in[0] is a batch of tokens, in[1] those that follow each. */
static int step(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    Run *run = user;
    (void)count;
    cb_optimizer_zero_grad(run->optimizer);
    out[0] = loss_of(run, in[0], in[1]);
    cb_backward(out[0], NULL);
    cb_clip_grad_norm_(run->all, run->all_count, 1.0, 2);
    cb_optimizer_step(run->optimizer);
    return 1;
}

static int logits(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    Run *run = user;
    (void)count;
    out[0] = cb_forward(run->net, in[0]);
    return 1;
}

static bool open_run(Run *run) {
    const Settings *s = &run->settings;
    cb_manual_seed((uint64_t)s->seed);
    cb_gpt2_config config = {s->vocabulary, s->length, s->width, s->layers, s->heads};
    run->net = cb_model_gpt2(config);
    if (!run->net) return false;
    cb_module_visit(run->net, prepare, run);
    char text[160];
    snprintf(text, sizeof text, "lr=%g, betas=(0.9, 0.95), weight_decay=0.1", s->lr);
    run->optimizer = cb_optimizer_new("AdamW", text);
    cb_optimizer_add(run->optimizer, run->decayed, run->decayed_count, NULL);
    cb_optimizer_add(run->optimizer, run->plain, run->plain_count, "weight_decay=0");
    int64_t warmup = s->warmup > 0 ? s->warmup : 1, falls = s->steps - warmup;
    snprintf(text, sizeof text, "start_factor=0.01, total_iters=%d", (int)warmup);
    run->schedule = cb_schedule_new(run->optimizer, "LinearLR", text);
    snprintf(text, sizeof text, "T_max=%d, eta_min=%g", (int)(falls > 1 ? falls : 1), s->lr / 10);
    cb_schedule_then(run->schedule, warmup, "CosineAnnealingLR", text);
    run->step = s->eager ? NULL : cb_compile_n(step, run, NULL);
    run->logits = s->eager ? NULL : cb_compile_n(logits, run, NULL);
    return !cb_error();
}

static void close_run(Run *run) {
    if (run->step) cb_function_free(run->step);
    if (run->logits) cb_function_free(run->logits);
    if (run->schedule) cb_schedule_free(run->schedule);
    if (run->optimizer) cb_optimizer_free(run->optimizer);
    if (run->net) cb_module_free(run->net);
}

/* ---- training ------------------------------------------------------------------------------- */

static double learn(Run *run, cb_token_reader *reader) {
    cb_tensor *in[2], *out[1] = {NULL};
    if (cb_token_reader_next(reader, &in[0], &in[1]) != CB_OK) return NAN;
    int given = run->step ? cb_call_n(run->step, in, 2, out, 1) : step(in, 2, out, run);
    return given == 1 ? cb_item(out[0]) : NAN;
}

/* The mean over eight batches of the text that is not learned, the same ones each time. */
static double validate(Run *run, const cb_tokens *text, int64_t from) {
    enum { BATCHES = 8 };
    const Settings *s = &run->settings;
    cb_token_reader *reader =
        cb_token_reader_new(text, from, cb_tokens_count(text), s->batch, s->length, 7);
    double sum = 0;
    cb_no_grad_open();
    for (int i = 0; i < BATCHES && reader; i++) {
        cb_tensor *inputs, *targets, *out[1] = {NULL};
        if (cb_token_reader_next(reader, &inputs, &targets) != CB_OK) break;
        int given =
            run->logits ? cb_call_n(run->logits, &inputs, 1, out, 1) : logits(&inputs, 1, out, run);
        if (given != 1) break;
        cb_tensor *rows = cb_reshape(out[0], cb_dims(-1, s->vocabulary));
        sum += cb_item(cb_cross_entropy(rows, cb_reshape(targets, -1)));
    }
    cb_no_grad_close();
    cb_token_reader_free(reader);
    return sum / BATCHES;
}

/* Steps first + 1 .. settings.steps, or until Ctrl-C; the last one that was done. */
static int64_t train(Run *run, const cb_tokens *text, int64_t learned, cb_token_reader *reader,
                     int64_t first, cb_progress *progress) {
    const Settings *s = &run->settings;
    int64_t done = first;
    int64_t end = s->stop_after ? first + s->stop_after : s->steps;
    if (end > s->steps) end = s->steps;
    while (done < end && !cb_interrupted() && !cb_error()) {
        cb_scope_open();
        double lr = cb_optimizer_lr(run->optimizer, 0), loss = learn(run, reader);
        cb_schedule_step(run->schedule, 0);
        if (!cb_error()) done++;
        cb_progress_step(progress, done, loss, lr);
        bool last = done == s->steps;
        if (s->validate_every && (last || done % s->validate_every == 0))
            cb_progress_value(progress, done, "validation", validate(run, text, learned));
        if (!cb_error() && s->save_every && done % s->save_every == 0 && !last)
            cb_training_save(s->checkpoint, run->net, run->optimizer, run->schedule,
                             cb_token_reader_state(reader));
        cb_scope_close();
    }
    return done;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* One of the k greatest logits, by softmax at a temperature; the greatest at 0. */
static int64_t choose(const Settings *s, cb_tensor *row) {
    int64_t k = s->top_k < s->vocabulary && s->top_k > 0 ? s->top_k : s->vocabulary;
    cb_tensor *index, *best = cb_topk(row, s->temperature > 0 ? k : 1, -1, true, &index);
    if (s->temperature <= 0) return cb_item_int(index);
    cb_tensor *share = cb_cumsum(cb_softmax(cb_div(best, s->temperature), -1), -1);
    /* How many shares lie below a number of 0..1; rounding may leave the last one below 1. */
    double below = cb_item(cb_sum(cb_lt(share, cb_rand(cb_dims(1)))));
    return cb_item_int(cb_select(index, 0, below < (double)k ? (int64_t)below : k - 1));
}

/* Always `length` tokens go in, so that one compilation serves: what stands behind the text is seen
 * by nobody, as attention looks back alone. */
static void write_text(Run *run) {
    const Settings *s = &run->settings;
    int64_t *token = calloc((size_t)s->length, sizeof *token), known = 0;
    for (const char *c = s->prompt; token && *c && known < s->length; c++)
        token[known++] = (unsigned char)*c;
    printf("%s", s->prompt);
    cb_no_grad_open();
    for (int64_t n = 0; token && n < s->sample && !cb_error(); n++) {
        cb_scope_open();
        cb_tensor *in = cb_from_data(token, CB_I64, cb_dims(1, s->length)), *out[1] = {NULL};
        int given = run->logits ? cb_call_n(run->logits, &in, 1, out, 1) : logits(&in, 1, out, run);
        cb_tensor *row = given == 1 ? cb_select(cb_select(out[0], 0, 0), 0, known - 1) : NULL;
        int64_t next = row ? choose(s, row) : 0;
        cb_scope_close();
        if (cb_error()) break;
        putchar((int)next);
        if (known == s->length) memmove(token, token + 1, (size_t)--known * sizeof *token);
        token[known++] = next;
    }
    cb_no_grad_close();
    putchar('\n');
    free(token);
}

/* ---- the run -------------------------------------------------------------------------------- */

/* How many steps the checkpoint has behind it; -1 with an error. */
static int64_t resume(Run *run, cb_token_reader *reader) {
    if (!run->settings.resume) return 0;
    if (cb_training_load(run->settings.checkpoint, run->net, run->optimizer, run->schedule,
                         cb_token_reader_state(reader)) != CB_OK)
        return -1;
    return cb_item_int(cb_select(cb_module_get(cb_token_reader_state(reader), "position"), 0, 1));
}

static void train_and_write(Run *run, const cb_tokens *text, cb_token_reader *reader,
                            int64_t learned) {
    const Settings *s = &run->settings;
    int64_t first = resume(run, reader), steps = s->steps > first ? s->steps : first;
    cb_progress *progress =
        first < 0 ? NULL : cb_progress_new(first, steps, s->batch * s->length, "tokens", s->log);
    if (!progress) return;
    int64_t done = train(run, text, learned, reader, first, progress);
    double seconds = cb_progress_seconds(progress);
    if (done > first && !cb_error())
        cb_training_save(s->checkpoint, run->net, run->optimizer, run->schedule,
                         cb_token_reader_state(reader));
    if (s->curve && done > first && !cb_error()) cb_progress_curve(progress, s->curve);
    cb_progress_free(progress);
    if (done > first && !cb_error())
        printf("%s after step %d: %d tokens/s, compiling included; %s\n",
               done < s->steps ? "stopped" : "done", (int)done,
               (int)((double)(s->batch * s->length * (done - first)) / seconds), s->checkpoint);
    if (!cb_error() && s->sample && s->tokens == 1 && *s->prompt) write_text(run);
}

int main(int argc, char **argv) {
    static Run run;
    run.settings = (Settings){.layers = 4,
                              .width = 128,
                              .heads = 4,
                              .length = 64,
                              .batch = 16,
                              .steps = 500,
                              .warmup = 50,
                              .save_every = 100,
                              .validate_every = 100,
                              .tokens = 1,
                              .vocabulary = 256,
                              .seed = 1,
                              .sample = 300,
                              .top_k = 40,
                              .lr = 1e-3,
                              .temperature = 0.8,
                              .data = CARBIDE_EXAMPLE_DATA "/as_you_like_it.txt",
                              .checkpoint = "gpt.safetensors",
                              .prompt = "ROSALIND\t"};
    if (!parse(&run.settings, argc, argv)) return 2;
    const Settings *s = &run.settings;
    cb_interrupt_catch();
    cb_scope_open();
    cb_tokens *text = cb_tokens_open(s->data, (int)s->tokens, s->vocabulary);
    int64_t learned = cb_tokens_count(text) / 10 * 9;
    cb_token_reader *reader =
        text ? cb_token_reader_new(text, 0, learned, s->batch, s->length, (uint64_t)s->seed) : NULL;
    if (reader && open_run(&run)) train_and_write(&run, text, reader, learned);
    close_run(&run);
    cb_token_reader_free(reader);
    cb_tokens_close(text);
    cb_scope_close();
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    return cb_error() != NULL;
}
