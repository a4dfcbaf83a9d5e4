/* What the examples that train have in common: flags, a step that is one graph, a loop with
 * checkpoints, a log and a curve. Shared by train_gpt.c, gpt2.c and train_resnet.c.
 *
 * A program says where batches come from and what a batch costs. A step - forward, loss, backward,
 * clipping, update - is one function, and cb_compile makes it one graph. The checkpoint is written
 * every --save-every steps, at the end, after Ctrl-C, and after --stop-after steps; a run that goes
 * on from it computes the same numbers as one that was never stopped. */
#ifndef TRAINING_H
#define TRAINING_H

#include <carbide_data.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { MOST_PARAMETERS = 1024, MOST_FLAGS = 40 };

typedef struct Training {
    /* What flags say. */
    int64_t steps, warmup, save_every, validate_every, seed, stop_after;
    double lr;
    const char *checkpoint, *log, *curve;
    bool resume, eager, bf16;
    /* What the program says. */
    cb_module *net, *data; /* data: the state of what batches are read by */
    cb_tensor *(*loss)(struct Training *run, cb_tensor *input, cb_tensor *target);
    cb_status (*next)(struct Training *run, cb_tensor **input, cb_tensor **target);
    double (*validate)(struct Training *run); /* NULL: nothing is kept for it */
    const char *validated;                    /* what its number is called in the log */
    int64_t samples;                          /* of a step */
    const char *unit;                         /* what they are called */
    /* What training_open makes. */
    cb_optimizer *optimizer;
    cb_schedule *schedule;
    cb_function *step, *forward; /* NULL: eager */
    cb_tensor *parameter[MOST_PARAMETERS];
    int parameters;
} Training;

/* ---- flags ---------------------------------------------------------------------------------- */

typedef struct Flag {
    const char *name;
    int64_t *whole; /* one of these takes what follows */
    double *real;
    const char **text;
    bool *set; /* nothing follows */
} Flag;

static inline bool flag_take(const char *program, const Flag *flag, const char *value) {
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
    if (!taken) fprintf(stderr, "%s: --%s %s is no such number\n", program, flag->name, value);
    return taken;
}

/* The program's own flags, and those of every run. False: the words make no sense, which is
 * said. */
static inline bool flags_parse(Training *run, const char *program, const Flag *own, int count,
                               int argc, char **argv) {
    const Flag common[] = {{"steps", .whole = &run->steps},
                           {"warmup", .whole = &run->warmup},
                           {"save-every", .whole = &run->save_every},
                           {"validate-every", .whole = &run->validate_every},
                           {"seed", .whole = &run->seed},
                           {"stop-after", .whole = &run->stop_after},
                           {"lr", .real = &run->lr},
                           {"checkpoint", .text = &run->checkpoint},
                           {"log", .text = &run->log},
                           {"curve", .text = &run->curve},
                           {"resume", .set = &run->resume},
                           {"eager", .set = &run->eager},
                           {"bf16", .set = &run->bf16}};
    enum { COMMON = sizeof common / sizeof *common };
    Flag flags[MOST_FLAGS];
    struct option options[MOST_FLAGS + 1] = {{0}};
    for (int i = 0; i < count + COMMON; i++) {
        flags[i] = i < count ? own[i] : common[i - count];
        options[i] = (struct option){flags[i].name, !flags[i].set, NULL, 0};
    }
    int at = 0, found;
    while ((found = getopt_long(argc, argv, "", options, &at)) == 0)
        if (!flag_take(program, &flags[at], optarg)) return false;
    if (found == -1 && optind == argc) return true;
    fprintf(stderr, "%s:", program);
    for (int i = 0; i < count + COMMON; i++)
        fprintf(stderr, " --%s%s", flags[i].name, flags[i].set ? "" : " ...");
    fprintf(stderr, "\n");
    return false;
}

/* ---- the step ------------------------------------------------------------------------------- */

/* in[0] is a batch, in[1] what the network should make of it. Gradients are freed before the step
 * returns, so that as one graph it stores none that only the update reads. */
static inline int training_step(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    Training *run = user;
    (void)count;
    if (run->bf16) cb_autocast_open(CB_BF16);
    out[0] = run->loss(run, in[0], in[1]);
    if (run->bf16) cb_autocast_close();
    cb_backward(out[0], NULL);
    cb_clip_grad_norm_(run->parameter, run->parameters, 1.0, 2);
    cb_optimizer_step(run->optimizer);
    cb_optimizer_zero_grad(run->optimizer);
    return 1;
}

static inline int training_run_forward(cb_tensor *const *in, int count, cb_tensor **out,
                                       void *user) {
    Training *run = user;
    (void)count;
    if (run->bf16) cb_autocast_open(CB_BF16);
    out[0] = cb_forward(run->net, in[0]);
    if (run->bf16) cb_autocast_close();
    return 1;
}

/* What the network makes of x, without gradients; NULL with an error. */
static inline cb_tensor *training_forward(Training *run, cb_tensor *x) {
    cb_tensor *out = NULL;
    cb_no_grad_open();
    int given = run->forward ? cb_call_n(run->forward, &x, 1, &out, 1)
                             : training_run_forward(&x, 1, &out, run);
    cb_no_grad_close();
    return given == 1 ? out : NULL;
}

/* The optimizer of all parameters, of which matrices (and filters) alone decay, and its rates: up
 * to lr, then down to a tenth of it on half a cosine. */
static inline bool training_open(Training *run, const char *optimizer, const char *arguments) {
    cb_tensor *plain[MOST_PARAMETERS];
    int matrices = 0, others = 0;
    char text[160];
    if (!run->net) return false;
    run->parameters = cb_module_parameters(run->net, run->parameter, MOST_PARAMETERS);
    if (run->parameters > MOST_PARAMETERS) {
        cb_fail(CB_ERR_ARGUMENT, "there are too many parameters for this example");
        return false;
    }
    for (int i = 0; i < run->parameters; i++) /* matrices come first now */
        if (cb_rank(run->parameter[i]) > 1)
            run->parameter[matrices++] = run->parameter[i];
        else
            plain[others++] = run->parameter[i];
    memcpy(run->parameter + matrices, plain, (size_t)others * sizeof *plain);
    snprintf(text, sizeof text, "lr=%g, %s", run->lr, arguments);
    run->optimizer = cb_optimizer_new(optimizer, text);
    cb_optimizer_add(run->optimizer, run->parameter, matrices, NULL);
    cb_optimizer_add(run->optimizer, plain, others, "weight_decay=0");
    int64_t warmup = run->warmup > 0 ? run->warmup : 1, falls = run->steps - warmup;
    snprintf(text, sizeof text, "start_factor=0.01, total_iters=%d", (int)warmup);
    run->schedule = cb_schedule_new(run->optimizer, "LinearLR", text);
    snprintf(text, sizeof text, "T_max=%d, eta_min=%g", (int)(falls > 1 ? falls : 1), run->lr / 10);
    cb_schedule_then(run->schedule, warmup, "CosineAnnealingLR", text);
    run->step = run->eager ? NULL : cb_compile_n(training_step, run, NULL);
    run->forward = run->eager ? NULL : cb_compile_n(training_run_forward, run, NULL);
    return !cb_error();
}

static inline void training_close(Training *run) {
    if (run->step) cb_function_free(run->step);
    if (run->forward) cb_function_free(run->forward);
    if (run->schedule) cb_schedule_free(run->schedule);
    if (run->optimizer) cb_optimizer_free(run->optimizer);
    if (run->net) cb_module_free(run->net);
}

/* ---- the loop ------------------------------------------------------------------------------- */

static inline cb_status training_save(Training *run) {
    return cb_training_save(run->checkpoint, run->net, run->optimizer, run->schedule, run->data);
}

/* The loss of one step; NAN with an error. */
static inline double training_learn(Training *run) {
    cb_tensor *in[2], *out[1] = {NULL};
    if (run->next(run, &in[0], &in[1]) != CB_OK) return NAN;
    int given = run->step ? cb_call_n(run->step, in, 2, out, 1) : training_step(in, 2, out, run);
    return given == 1 ? cb_item(out[0]) : NAN;
}

enum { FIRST_STEPS = 2 }; /* which compile: the second one finds the state of the first */

/* Steps first + 1 .. run->steps, or until Ctrl-C; the last one that was done. seconds: until the
 * first steps were done. */
static inline int64_t training_loop(Training *run, int64_t first, cb_progress *progress,
                                    double *seconds) {
    int64_t done = first, end = run->stop_after ? first + run->stop_after : run->steps;
    if (end > run->steps) end = run->steps;
    while (done < end && !cb_interrupted() && !cb_error()) {
        cb_scope_open();
        double lr = cb_optimizer_lr(run->optimizer, 0), loss = training_learn(run);
        cb_schedule_step(run->schedule, 0);
        if (!cb_error()) done++;
        cb_progress_step(progress, done, loss, lr);
        if (done - first <= FIRST_STEPS) *seconds = cb_progress_seconds(progress);
        bool last = done == run->steps;
        bool due = run->validate_every && (last || done % run->validate_every == 0);
        if (run->validate && due && !cb_error())
            cb_progress_value(progress, done, run->validated, run->validate(run));
        if (!cb_error() && run->save_every && done % run->save_every == 0 && !last)
            training_save(run);
        cb_scope_close();
    }
    return done;
}

static inline void training_report(const Training *run, int64_t first, int64_t done,
                                   double first_seconds, double seconds) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage); /* in KiB */
    int64_t timed = done - first - FIRST_STEPS;
    printf("%s after step %d: ", done < run->steps ? "stopped" : "done", (int)done);
    if (timed > 0)
        printf("%.0f %s/s behind %d steps of %.1f s; ",
               (double)(run->samples * timed) / (seconds - first_seconds), run->unit, FIRST_STEPS,
               first_seconds);
    printf("at most %.1f MB in tensors, %.1f MB in all; %s\n", (double)cb_memory().peak_bytes / 1e6,
           (double)usage.ru_maxrss * 1024 / 1e6, run->checkpoint);
}

/* The half cosine of the checkpoint gets another length: a step goes on from the rate before, so
 * this one becomes what it would be had the run been of this length from the start. */
static inline void training_stretch(Training *run, cb_module *falling, int64_t falls) {
    cb_module *state = cb_schedule_state(run->schedule);
    double most = cb_item(cb_select(cb_module_get(state, "base_lrs"), 0, 0));
    double least = cb_item(cb_module_get(falling, "eta_min"));
    int64_t done = cb_item_int(cb_module_get(state, "last_epoch")) -
                   cb_item_int(cb_module_get(falling, "milestone"));
    cb_fill_(cb_module_get(falling, "T_max"), falls);
    double turn = acos(-1) * (double)done / (double)falls;
    double lr = least + (most - least) * (1 + cos(turn)) / 2;
    for (int group = 0; group < 2 && done >= 0; group++)
        cb_optimizer_set_lr(run->optimizer, group, lr);
}

/* How many steps the checkpoint has behind it, by the position of its data; -1 with an error. The
 * schedule is the checkpoint's, but for the step that it ends at. */
static inline int64_t training_resume(Training *run) {
    if (!run->resume) return 0;
    if (cb_training_load(run->checkpoint, run->net, run->optimizer, run->schedule, run->data) !=
        CB_OK)
        return -1;
    cb_module *falling = cb_module_child(cb_schedule_state(run->schedule), "_schedulers.1");
    int64_t falls = run->steps - cb_item_int(cb_module_get(falling, "milestone"));
    if (falls > 1 && (double)falls != cb_item(cb_module_get(falling, "T_max")))
        training_stretch(run, falling, falls);
    return cb_item_int(cb_select(cb_module_get(run->data, "position"), 0, 1));
}

/* The whole run: goes on where --resume says, trains, saves, reports. Errors are cb_error(). */
static inline void training_run(Training *run) {
    int64_t first = training_resume(run), steps = run->steps > first ? run->steps : first;
    cb_progress *progress =
        first < 0 ? NULL : cb_progress_new(first, steps, run->samples, run->unit, run->log);
    if (!progress) return;
    double first_seconds = 0;
    int64_t done = training_loop(run, first, progress, &first_seconds);
    double seconds = cb_progress_seconds(progress);
    bool moved = done > first;
    if (moved && !cb_error()) training_save(run);
    if (run->curve && moved && !cb_error()) cb_progress_curve(progress, run->curve);
    cb_progress_free(progress);
    if (moved && !cb_error()) training_report(run, first, done, first_seconds, seconds);
}

#endif
