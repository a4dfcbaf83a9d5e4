/* Schedules: the learning rate of each group of an optimizer from the rate that it has.
 *
 *     StepLR   lr * gamma in every step_size-th step
 *
 * As PyTorch computes them: each step goes on from the rate before, whoever set it, so that several
 * schedules of one optimizer multiply; OneCycleLR alone knows every rate from its arguments. A
 * schedule is a row of `curves`; ReduceLROnPlateau, which looks at a metric, is the other sort.
 * Counters and arguments are buffers of a module, and so in files:
 *
 *     root  StepLR, step_size, gamma, last_epoch, base_lrs
 *           _schedulers  1 LinearLR, milestone, start_factor, ...     by cb_schedule_then */
#include "base/guess.h"
#include "base/memory.h"
#include "tensor/read.h"
#include "train/train.h"

#include <math.h>
#include <string.h>

#define ARG(name) argument(arguments, name)

/* The rate of step n from lr, which is that of the step before; of step 0 from the one that it
 * begins with. base: the one before all schedules, NAN for a group that was added since. */
typedef double Curve(const TrainArguments *arguments, double base, double lr, double n);

static double linear_curve(const TrainArguments *arguments, double base, double lr, double n) {
    double start = ARG("start_factor"), total = ARG("total_iters"),
           more = ARG("end_factor") - start;
    (void)base;
    if (n == 0) return lr * start;
    return n > total ? lr : lr * (1 + more / (total * start + (n - 1) * more));
}

static double step_curve(const TrainArguments *arguments, double base, double lr, double n) {
    (void)base;
    return n == 0 || fmod(n, ARG("step_size")) != 0 ? lr : lr * ARG("gamma");
}

static double exponential_curve(const TrainArguments *arguments, double base, double lr, double n) {
    (void)base;
    return n == 0 ? lr : lr * ARG("gamma");
}

static double cosine(double from, double to, double share) {
    return to + (from - to) * (1 + cos(M_PI * share)) / 2;
}

/* Behind a step whose rate is eta_min there is nothing to multiply: up again by the first step of
 * the base. */
static double cosine_curve(const TrainArguments *arguments, double base, double lr, double n) {
    double least = ARG("eta_min"), half = ARG("T_max");
    if (n == 0) return lr;
    if (fmod(n - 1 - half, 2 * half) == 0) return lr + (base - least) * (1 - cos(M_PI / half)) / 2;
    double ratio = (1 + cos(M_PI * n / half)) / (1 + cos(M_PI * (n - 1) / half));
    return ratio * (lr - least) + least;
}

/* From max_lr / div_factor up, down, and, in three phases, on from there. NAN behind the last step,
 * of a group that was added since, and where a phase has none: PyTorch raises there. */
static double one_cycle_curve(const TrainArguments *arguments, double base, double lr, double n) {
    (void)lr;
    double total = ARG("total_steps"), top = ARG("max_lr");
    double first = top / ARG("div_factor"), last = first / ARG("final_div_factor");
    bool three = ARG("three_phase") != 0;
    double up = ARG("pct_start") * total - 1;
    double ends[] = {up, three ? 2 * up : total - 1, total - 1};
    double rates[] = {first, top, three ? first : last, last};
    double begin = 0;
    if (n > total || isnan(base)) return NAN;
    for (int phase = 0; phase < 2 + three; phase++) {
        double share = (n - begin) / (ends[phase] - begin), from = rates[phase];
        if (n <= ends[phase] || phase == 1 + three)
            return ARG("anneal_linear") != 0 ? from + (rates[phase + 1] - from) * share
                                             : cosine(from, rates[phase + 1], share);
        begin = ends[phase];
    }
    return last;
}

static const struct {
    const char *name, *arguments;
    Curve *curve; /* NULL: ReduceLROnPlateau */
} curves[] = {
    {"LinearLR", "start_factor=0.3333333333333333, end_factor=1, total_iters=5", linear_curve},
    {"StepLR", "step_size, gamma=0.1", step_curve},
    {"ExponentialLR", "gamma", exponential_curve},
    {"CosineAnnealingLR", "T_max, eta_min=0", cosine_curve},
    {"OneCycleLR",
     "max_lr, total_steps, pct_start=0.3, anneal_linear=False, div_factor=25, "
     "final_div_factor=1e4, "
     "three_phase=False",
     one_cycle_curve},
    {"ReduceLROnPlateau",
     "factor=0.1, patience=10, threshold=1e-4, cooldown=0, min_lr=0, eps=1e-8, maximize=False, "
     "absolute=False",
     NULL},
};

typedef struct ScheduleStage {
    TrainArguments arguments; /* as the last step found them in the module */
    Curve *curve;
    cb_module *module; /* the root for the first one */
    cb_tensor *begin;  /* i64; NULL: 0 */
} ScheduleStage;

enum { MOST_STAGES = 8 };
struct cb_schedule {
    Tomb tomb; /* first */
    cb_optimizer *optimizer;
    cb_module *root;
    cb_tensor *steps, *base_lrs;                 /* i64, f64 by group; root owns them, as these: */
    cb_tensor *best, *num_bad_epochs, *cooldown; /* of ReduceLROnPlateau, else NULL */
    ScheduleStage stage[MOST_STAGES];
    int stages;
};

static bool schedule_lives(const cb_schedule *schedule, const char *what) {
    return tomb_lives(schedule ? &schedule->tomb : NULL, what);
}

static bool stage_make(ScheduleStage *stage, const char *name, const char *text) {
    Guess guess = guess_begin(name ? name : "");
    char meant[GUESS_BYTES];
    for (size_t i = 0; name && i < sizeof curves / sizeof *curves; i++) {
        guess_try(&guess, curves[i].name);
        if (strcmp(curves[i].name, name)) continue;
        *stage = (ScheduleStage){.arguments = arguments_of(curves[i].name, curves[i].arguments),
                                 .curve = curves[i].curve};
        return arguments_take(&stage->arguments, text) && arguments_complete(&stage->arguments) &&
               arguments_within(&stage->arguments);
    }
    char known[256] = "";
    for (size_t i = 0, used = 0; i < sizeof curves / sizeof *curves; i++, used = strlen(known))
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", curves[i].name);
    fail(CB_ERR_ARGUMENT,
         "there is no schedule '%s': %s; others are cb_optimizer_set_lr in each step%s",
         name ? name : "NULL", known, guess_text(&guess, meant));
    return false;
}

/* Its arguments and, of one behind the first, the step that it begins at become buffers. */
static bool stage_keep(ScheduleStage *stage, cb_module *module, const int64_t *begin) {
    stage->module = module;
    if (begin) stage->begin = buffer_number(module, "milestone", (double)*begin, CB_I64);
    return (!begin || stage->begin) && buffer_number(module, stage->arguments.owner, 1, CB_BOOL) &&
           arguments_keep(&stage->arguments, module);
}

/* ---- stepping -------------------------------------------------------------------------------- */

/* The buffers say what the arguments are: a file may have been loaded since the last step. */
static bool stage_recall(ScheduleStage *stage) {
    TrainArguments now = stage->arguments;
    if (!arguments_recall(&now, stage->module) || !arguments_within(&now)) return false;
    stage->arguments = now;
    return true;
}

static int64_t begin_of(const ScheduleStage *stage) {
    return stage->begin ? cb_item_int(stage->begin) : 0;
}

/* The rate that a group gets, NAN with an error. */
static double rate_of(const cb_schedule *schedule, const ScheduleStage *stage, int group,
                      double n) {
    const double *base_lrs = cb_data_const(schedule->base_lrs);
    bool known = group < cb_numel(schedule->base_lrs);
    double base = base_lrs && known ? base_lrs[group] : NAN;
    double lr = cb_optimizer_lr(schedule->optimizer, group);
    if (n == 0 && stage != schedule->stage) lr = base; /* of SequentialLR, whatever was before */
    double rate = stage->curve(&stage->arguments, base, lr, n);
    if (isfinite(rate)) return fmax(rate, 0);
    if (known)
        fail(CB_ERR_ARGUMENT, "cb_schedule_step: %s has no rate for step %g of %g",
             stage->arguments.owner, n, argument_or_zero(&stage->arguments, "total_steps"));
    else
        fail(CB_ERR_ARGUMENT,
             "cb_schedule_step: group %d was added behind cb_schedule_new: %s has no base rate for "
             "its step %g",
             group, stage->arguments.owner, n);
    return NAN;
}

/* All groups get a rate, or none does. */
static cb_status apply_curve(cb_schedule *schedule) {
    int64_t n = cb_item_int(schedule->steps);
    ScheduleStage *stage = schedule->stage;
    for (int i = 1; i < schedule->stages && n >= begin_of(stage + 1); i++) stage++;
    n -= begin_of(stage);
    if (!stage_recall(stage)) return cb_error_status();
    int groups = schedule->optimizer->groups;
    for (int g = 0; g < groups; g++)
        if (isnan(rate_of(schedule, stage, g, (double)n))) return cb_error_status();
    for (int g = 0; g < groups; g++) {
        double rate = rate_of(schedule, stage, g, (double)n);
        if ((cb_optimizer_set_lr)(schedule->optimizer, g, rate)) return cb_error_status();
    }
    return CB_OK;
}

static bool better(const TrainArguments *arguments, double metric, double best) {
    double threshold = ARG("threshold"), sign = ARG("maximize") != 0 ? -1 : 1;
    double bound = ARG("absolute") != 0 ? best - sign * threshold : best * (1 - sign * threshold);
    return sign * metric < sign * bound;
}

static cb_status reduce(cb_schedule *schedule) {
    const TrainArguments *arguments = &schedule->stage[0].arguments;
    for (int g = 0; g < schedule->optimizer->groups; g++) {
        double old = cb_optimizer_lr(schedule->optimizer, g);
        double lr = fmax(old * ARG("factor"), ARG("min_lr"));
        if (old - lr > ARG("eps") && cb_optimizer_set_lr(schedule->optimizer, g, lr))
            return cb_error_status();
    }
    return CB_OK;
}

static cb_status apply_metric(cb_schedule *schedule, double metric) {
    const TrainArguments *arguments = &schedule->stage[0].arguments;
    if (!stage_recall(&schedule->stage[0])) return cb_error_status();
    int64_t bad = cb_item_int(schedule->num_bad_epochs), rest = cb_item_int(schedule->cooldown);
    if (better(arguments, metric, cb_item(schedule->best))) {
        if (!cb_fill_(schedule->best, cb_operand_float(metric))) return cb_error_status();
        bad = 0;
    } else {
        bad++;
    }
    if (rest > 0) rest--, bad = 0;
    if ((double)bad > ARG("patience")) {
        if (reduce(schedule)) return cb_error_status();
        rest = (int64_t)ARG("cooldown"), bad = 0;
    }
    bool fine = cb_fill_(schedule->num_bad_epochs, cb_operand_int(bad)) &&
                cb_fill_(schedule->cooldown, cb_operand_int(rest));
    return fine ? CB_OK : cb_error_status();
}

cb_status cb_schedule_step(cb_schedule *schedule, double metric) {
    if (!schedule_lives(schedule, "cb_schedule_step: the schedule")) return CB_ERR_ARGUMENT;
    if (!optimizer_lives(schedule->optimizer, "cb_schedule_step: the optimizer"))
        return CB_ERR_ARGUMENT;
    cb_scope_open();
    bool counted = cb_add_(schedule->steps, 1) != NULL;
    cb_scope_close();
    if (!counted) return cb_error_status();
    const char *before = asking_begin("schedule_step");
    cb_status status = schedule->best ? apply_metric(schedule, metric) : apply_curve(schedule);
    asking_end(before);
    return status;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* By group, as the first schedule of each found them: a second one does not begin at the rates of
 * the first one's warm-up. That of OneCycleLR is its own. */
static cb_tensor *initial_rates(const cb_schedule *schedule) {
    const ScheduleStage *first = schedule->stage;
    const TrainArguments *arguments = &first->arguments;
    cb_tensor *rates = cb_empty(cb_dims_one(schedule->optimizer->groups), CB_F64);
    double *rate = cb_data(rates);
    for (int g = 0; rate && g < schedule->optimizer->groups; g++) {
        double *initial = &schedule->optimizer->group[g].initial_lr;
        rate[g] = isnan(*initial) ? cb_optimizer_lr(schedule->optimizer, g) : *initial;
        if (first->curve == one_cycle_curve) rate[g] = ARG("max_lr") / ARG("div_factor");
        if (first->curve) *initial = rate[g];
    }
    return rates;
}

static bool buffers_make(cb_schedule *schedule) {
    Module *root = schedule->root;
    ScheduleStage *first = &schedule->stage[0];
    if (!stage_keep(first, root, NULL) ||
        !cb_module_add(root, "_schedulers", cb_module_new("Schedulers", NULL, NULL)))
        return false;
    schedule->steps = buffer_number(root, "last_epoch", 0, CB_I64);
    cb_tensor *rates = initial_rates(schedule);
    schedule->base_lrs = rates ? buffer_ranged(root, "base_lrs", rates) : NULL;
    if (!schedule->steps || !schedule->base_lrs) return false;
    if (first->curve) return true;
    double worst = argument(&first->arguments, "maximize") != 0 ? -INFINITY : INFINITY;
    schedule->best = buffer_number(root, "best", worst, CB_F64);
    schedule->num_bad_epochs = buffer_number(root, "num_bad_epochs", 0, CB_I64);
    schedule->cooldown = buffer_number(root, "cooldown_counter", 0, CB_I64);
    return schedule->best && schedule->num_bad_epochs && schedule->cooldown;
}

cb_schedule *cb_schedule_new(cb_optimizer *optimizer, const char *name, const char *arguments) {
    ScheduleStage stage;
    if (!optimizer_lives(optimizer, "cb_schedule_new: the optimizer")) return NULL;
    if (!optimizer->groups)
        return fail(CB_ERR_ARGUMENT, "cb_schedule_new: no parameters yet"), NULL;
    if (!stage_make(&stage, name, arguments)) return NULL;
    cb_schedule *schedule = memory_zalloc(sizeof *schedule);
    if (!schedule) return fail_memory(sizeof *schedule), NULL;
    schedule->optimizer = optimizer;
    schedule->stage[schedule->stages++] = stage;
    schedule->root = cb_module_new("Schedule", NULL, NULL);
    Tracer *tracer = tracer_set(NULL);
    cb_scope_open();
    bool fine = schedule->root && buffers_make(schedule) &&
                (schedule->best || apply_curve(schedule) == CB_OK);
    cb_scope_close();
    tracer_set(tracer);
    if (fine) return schedule;
    cb_schedule_free(schedule);
    return NULL;
}

static bool stage_add(cb_schedule *schedule, ScheduleStage *stage, int64_t milestone) {
    char name[16];
    snprintf(name, sizeof name, "%d", schedule->stages);
    cb_module *module = cb_module_new("Schedule", NULL, NULL);
    Tracer *tracer = tracer_set(NULL);
    cb_scope_open();
    bool kept = module && stage_keep(stage, module, &milestone);
    cb_scope_close();
    tracer_set(tracer);
    if (kept) return cb_module_add(cb_module_child(schedule->root, "_schedulers"), name, module);
    cb_module_free(module);
    return false;
}

cb_status cb_schedule_then(cb_schedule *schedule, int64_t milestone, const char *name,
                           const char *arguments) {
    ScheduleStage stage;
    if (!schedule_lives(schedule, "cb_schedule_then: the schedule")) return CB_ERR_ARGUMENT;
    if (!stage_make(&stage, name, arguments)) return CB_ERR_ARGUMENT;
    int64_t before = begin_of(&schedule->stage[schedule->stages - 1]);
    if (!stage.curve || schedule->best || milestone <= before || schedule->stages == MOST_STAGES)
        return fail(CB_ERR_ARGUMENT,
                    "cb_schedule_then: %s at step %lld, after one at %lld; at most "
                    "%d, none of them ReduceLROnPlateau",
                    name, (long long)milestone, (long long)before, MOST_STAGES);
    int64_t made = cb_item_int(schedule->steps);
    if (milestone <= made)
        return fail(CB_ERR_ARGUMENT,
                    "cb_schedule_then: %s at step %lld, where %lld steps were made already", name,
                    (long long)milestone, (long long)made);
    if (!stage_add(schedule, &stage, milestone)) return cb_error_status();
    schedule->stage[schedule->stages++] = stage;
    return CB_OK;
}

cb_module *cb_schedule_state(cb_schedule *schedule) {
    return schedule_lives(schedule, "cb_schedule_state: the schedule") ? schedule->root : NULL;
}

void cb_schedule_free(cb_schedule *schedule) {
    if (!schedule || !schedule_lives(schedule, "cb_schedule_free: the schedule")) return;
    cb_module_free(schedule->root);
    tomb_bury(&schedule->tomb);
}
