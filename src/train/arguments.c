/* Reads arguments: name=number, name=True, name=(number, number), and keeps them as buffers. */
#include "train/train.h"

#include "base/guess.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static Argument *find(TrainArguments *arguments, const char *name, size_t length) {
    for (int i = 0; i < arguments->count; i++) {
        const char *known = arguments->argument[i].name;
        if (strncmp(known, name, length) == 0 && !known[length]) return &arguments->argument[i];
    }
    return NULL;
}

static const char *skip(const char *at) { return at + strspn(at, " "); }

/* A number or a bool; NULL when there is none. */
static const char *read_value(const char *at, double *value) {
    static const struct {
        const char *text;
        double value;
    } words[] = {{"True", 1}, {"False", 0}, {"true", 1}, {"false", 0}};
    at = skip(at);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i].text);
        if (strncmp(at, words[i].text, length)) continue;
        *value = words[i].value;
        return skip(at + length);
    }
    char number[40], *end; /* strtod takes the locale's point */
    size_t length = strcspn(at, " ,)");
    if (length >= sizeof number) return NULL;
    memcpy(number, at, length);
    number[length] = '\0';
    char *point = strchr(number, '.');
    if (point) *point = *localeconv()->decimal_point;
    *value = strtod(number, &end);
    return *end || !length || isnan(*value) ? NULL : skip(at + length);
}

static const char *read_values(const char *at, Argument *argument) {
    bool pair = *skip(at) == '(';
    if (pair) at = skip(at) + 1;
    argument->count = 1 + pair;
    for (int i = 0; i < argument->count; i++) {
        at = read_value(at, &argument->value[i]);
        if (!at || (pair && *at++ != (i ? ')' : ','))) return NULL;
    }
    return skip(at);
}

static void refuse_name(const TrainArguments *arguments, const char *name, size_t length) {
    char known[MOST_ARGUMENTS * NAME_BYTES] = "", meant[GUESS_BYTES];
    Guess guess = guess_part(name, length);
    for (int i = 0; i < arguments->count; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                 arguments->argument[i].name);
        guess_try(&guess, arguments->argument[i].name);
    }
    fail(CB_ERR_ARGUMENT, "%s has no argument '%.*s'; there are %s%s", arguments->owner,
         (int)length, name, known, guess_text(&guess, meant));
}

/* One that is no value, or has none, or another number of them than `to` by default. */
static void refuse_value(const TrainArguments *arguments, const Argument *to, const char *name,
                         int length, bool pair, const char *behind) {
    if (behind && find((TrainArguments *)arguments, behind, strcspn(behind, " =,")))
        fail(CB_ERR_ARGUMENT, "%s: a comma is missing behind the value of '%.*s'", arguments->owner,
             length, name);
    else if (to && to->count > 1)
        fail(CB_ERR_ARGUMENT, "%s: '%.*s' needs a pair of numbers: %.*s=(0.9, 0.999)",
             arguments->owner, length, name, length, name);
    else
        fail(CB_ERR_ARGUMENT, "%s: '%.*s' needs a value: a number, True or False%s",
             arguments->owner, length, name, pair ? ", and no pair" : "");
}

/* Reads one argument and the comma behind it; the position of the next, NULL with an error. */
static const char *take_one(TrainArguments *arguments, const char *at, bool defaults) {
    size_t length = strcspn(at, " =,");
    Argument *to = find(arguments, at, length), read = {.count = 0};
    if (defaults) {
        to = &arguments->argument[arguments->count++];
        memcpy(to->name, at, length);
    } else if (!to) {
        refuse_name(arguments, at, length);
        return NULL;
    }
    const char *name = at;
    at = skip(at + length);
    bool given = *at == '=';
    if (given) at = read_values(at + 1, &read);
    bool fine = at && (*at == ',' || !*at) && (given || defaults) &&
                (defaults || !to->count || to->count == read.count);
    if (!fine) {
        refuse_value(arguments, to, name, (int)length, read.count > 1, given ? at : NULL);
        return NULL;
    }
    to->count = read.count;
    memcpy(to->value, read.value, sizeof to->value);
    return *at ? skip(at + 1) : at;
}

TrainArguments arguments_of(const char *owner, const char *defaults) {
    TrainArguments arguments = {.owner = owner};
    while (*defaults) defaults = take_one(&arguments, defaults, true);
    return arguments;
}

bool arguments_take(TrainArguments *arguments, const char *text) {
    for (text = skip(text ? text : ""); *text;) {
        text = take_one(arguments, text, false);
        if (!text) return false;
    }
    return true;
}

bool arguments_complete(const TrainArguments *arguments) {
    for (int i = 0; i < arguments->count; i++) {
        if (arguments->argument[i].count) continue;
        fail(CB_ERR_ARGUMENT, "%s needs %s", arguments->owner, arguments->argument[i].name);
        return false;
    }
    return true;
}

double argument(const TrainArguments *arguments, const char *name) {
    const Argument *found = find((TrainArguments *)arguments, name, strlen(name));
    check(found, "%s has no %s", arguments->owner, name);
    return found->value[0];
}

double argument_second(const TrainArguments *arguments, const char *name) {
    return find((TrainArguments *)arguments, name, strlen(name))->value[1];
}

double argument_or_zero(const TrainArguments *arguments, const char *name) {
    return find((TrainArguments *)arguments, name, strlen(name)) ? argument(arguments, name) : 0;
}

#define COUNTS "a whole number between 0 and 2^53"

/* What is taken of arguments and of the numbers in files, by their names; torch.optim's
 * constructors refuse the rest, but for infinite numbers and, of schedules, 0 steps, numbers below
 * 0 and a cooldown that is no count. */
static const ValueRange ranges[] = {
    {"lr", "finite and at least 0", 0, DBL_MAX, false},
    {"eps", "finite and at least 0", 0, DBL_MAX, false},
    {"weight_decay", "finite and at least 0", 0, DBL_MAX, false},
    {"momentum", "finite and at least 0", 0, DBL_MAX, false},
    {"lr_decay", "finite and at least 0", 0, DBL_MAX, false},
    {"alpha", "finite and at least 0", 0, DBL_MAX, false},
    {"initial_accumulator_value", "finite and at least 0", 0, DBL_MAX, false},
    {"betas", "at least 0 and below 1", 0, 1 - DBL_EPSILON / 2, false},
    {"ns_steps", "a whole number below 100", 0, 99, true},
    {"step", COUNTS, 0, 0x1p53, true},
    {"factor", "at least 0 and below 1", 0, 1 - DBL_EPSILON / 2, false},
    {"start_factor", "above 0 and at most 1", DBL_MIN, 1, false},
    {"end_factor", "between 0 and 1", 0, 1, false},
    {"pct_start", "between 0 and 1", 0, 1, false},
    {"total_iters", "finite and above 0", DBL_MIN, DBL_MAX, false},
    {"step_size", "finite and above 0", DBL_MIN, DBL_MAX, false},
    {"gamma", "finite and at least 0", 0, DBL_MAX, false},
    {"T_max", "finite and above 0", DBL_MIN, DBL_MAX, false},
    {"eta_min", "finite and at least 0", 0, DBL_MAX, false},
    {"min_lr", "finite and at least 0", 0, DBL_MAX, false},
    {"max_lr", "finite and at least 0", 0, DBL_MAX, false},
    {"div_factor", "finite and above 0", DBL_MIN, DBL_MAX, false},
    {"final_div_factor", "finite and above 0", DBL_MIN, DBL_MAX, false},
    {"total_steps", "a whole number above 0", 1, DBL_MAX, true},
    {"patience", "finite and at least 0", 0, DBL_MAX, false},
    {"cooldown", COUNTS, 0, 0x1p53, true},
    {"base_lrs", "finite and at least 0", 0, DBL_MAX, false},
    {"last_epoch", COUNTS, 0, 0x1p53, true},
    {"milestone", "a whole number above 0", 1, 0x1p53, true},
    {"num_bad_epochs", COUNTS, 0, 0x1p53, true},
    {"cooldown_counter", COUNTS, 0, 0x1p53, true},
    {"init_scale", "above 0", DBL_MIN, FLT_MAX, false},
    {"scale", "above 0", DBL_MIN, FLT_MAX, false},
    {"growth_factor", "finite and above 1", 1 + DBL_EPSILON, DBL_MAX, false},
    {"backoff_factor", "above 0 and below 1", DBL_MIN, 1 - DBL_EPSILON / 2, false},
    {"growth_interval", "a whole number above 0", 1, DBL_MAX, true},
    {"_growth_tracker", COUNTS, 0, 0x1p53, true},
};

const ValueRange *range_of(const char *name) {
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!strcmp(ranges[i].name, name)) return &ranges[i];
    return NULL;
}

bool arguments_within(const TrainArguments *arguments) {
    for (int i = 0; i < arguments->count; i++) {
        const Argument *a = &arguments->argument[i];
        const ValueRange *range = range_of(a->name);
        for (int k = 0; range && k < a->count; k++) {
            if (value_within(range, a->value[k])) continue;
            fail(CB_ERR_ARGUMENT, "%s: %s is %g, and has to be %s", arguments->owner, a->name,
                 a->value[k], range->text);
            return false;
        }
    }
    return true;
}

/* ---- as buffers ------------------------------------------------------------------------------ */

cb_tensor *buffer_ranged(cb_module *module, const char *name, cb_tensor *value) {
    cb_tensor *owned = cb_module_buffer(module, name, value);
    if (owned) module_find_tensor(module, name)->range = range_of(name);
    return owned;
}

bool arguments_keep(const TrainArguments *arguments, cb_module *module) {
    for (int i = 0; i < arguments->count; i++) {
        const Argument *a = &arguments->argument[i];
        cb_dim_list sizes = a->count == 2 ? cb_dims_one(2) : CB_NO_DIMS;
        cb_tensor *value = cb_from_data(a->value, CB_F64, sizes);
        if (!value || !buffer_ranged(module, a->name, value)) return false;
        module->tensor[module->tensor_count - 1].decides = strcmp(a->name, "lr") != 0;
    }
    return true;
}

/* Under fullgraph the tracer refuses to read values, and has the module guarded instead. */
bool arguments_recall(TrainArguments *arguments, const cb_module *module) {
    Tracer *tracer = tracer_current();
    bool guarded = tracer && tracer->meet_module, fine = true;
    module_met(module);
    if (guarded) tracer_set(NULL);
    for (int i = 0; i < module->tensor_count && fine; i++) {
        const ModuleTensor *kept = &module->tensor[i];
        if (!kept->decides) continue;
        Argument *a = find(arguments, kept->name, strlen(kept->name));
        fine = kept->tensor && cb_numel(tensor_out(kept->tensor)) == a->count;
        if (!fine)
            fail(CB_ERR_SHAPE, "%s: its buffer %s was replaced", arguments->owner, kept->name);
        else
            fine = cb_read(tensor_out(kept->tensor), a->value, CB_F64) == CB_OK;
    }
    if (guarded) tracer_set(tracer);
    return fine;
}
