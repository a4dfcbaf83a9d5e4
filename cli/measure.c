/* Times a case: rounds of eager and of compiled calls in turn, so that both see the same machine in
 * the same second.
 *
 * A sample is the mean over as many calls as take SAMPLE_MS, since one call of a small case is
 * shorter than the clock is good for; a figure is the median over samples. The first call of a
 * round is thrown away: it finds in the caches what the other side left there, where a program
 * that calls one function again and again finds its own. */
#include "measure.h"
#include "base/clock.h"

#include <math.h>
#include <stdlib.h>

enum { WARM_UP = 2, ROUND = 8, LEAST_ROUNDS = 2, MOST_SAMPLES = 1000, MOST_REPEATS = 10000 };
enum { SLOW_ROUND = 3 }; /* where a call takes more than SLOW_MS */
static const double SAMPLE_MS = 0.5, SLOW_MS = 20;

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *value, int count) {
    qsort(value, (size_t)count, sizeof *value, ascending);
    return count % 2 ? value[count / 2] : (value[count / 2 - 1] + value[count / 2]) / 2;
}

typedef struct Caller { /* eager or compiled calls */
    cb_function *fast;  /* NULL: eager */
    int repeats, round; /* calls of a sample; samples of a round */
    double sample[MOST_SAMPLES];
} Caller;

/* The mean time of a call, or a negative number. */
static double take_sample(const Subject *subject, const Caller *caller) {
    double start = clock_ms();
    for (int i = 0; i < caller->repeats; i++)
        if (!subject_call(subject, caller->fast)) return -1;
    return (clock_ms() - start) / caller->repeats;
}

static bool warm_up(const Subject *subject, Caller *caller) {
    double ms = 0;
    caller->repeats = 1;
    for (int i = 0; i < WARM_UP; i++) {
        ms = take_sample(subject, caller);
        if (ms < 0) return false;
    }
    if (ms * MOST_REPEATS < SAMPLE_MS)
        caller->repeats = MOST_REPEATS;
    else if (ms < SAMPLE_MS)
        caller->repeats = (int)(SAMPLE_MS / ms) + 1;
    caller->round = ms < SLOW_MS ? ROUND : SLOW_ROUND;
    return true;
}

/* Adds a round of samples to the `count` that the caller has. */
static bool time_round(const Subject *subject, Caller *caller, int count) {
    if (!subject_call(subject, caller->fast)) return false;
    for (int i = 0; i < caller->round; i++) {
        caller->sample[count + i] = take_sample(subject, caller);
        if (caller->sample[count + i] < 0) return false;
    }
    return true;
}

/* Rounds of each caller in turn; a count of 1 leaves the other one out. */
static bool time_callers(const Subject *subject, Caller *caller, int callers,
                         const MeasureOptions *options, double *ms) {
    for (int c = 0; c < callers; c++)
        if (!warm_up(subject, &caller[c])) return false;
    int round = caller[0].round, count = 0;
    if (callers > 1 && caller[1].round > round) round = caller[1].round;
    for (int c = 0; c < callers; c++) caller[c].round = round;
    double start = clock_ms(), limit = start + options->seconds * 1e3;
    while (count + round <= MOST_SAMPLES && (count < LEAST_ROUNDS * round || clock_ms() < limit)) {
        progress_show(options->progress, "%s: timing, %.0f s", subject->row->name,
                      (clock_ms() - start) / 1e3);
        for (int c = 0; c < callers; c++)
            if (!time_round(subject, &caller[c], count)) return false;
        count += round;
    }
    for (int c = 0; c < callers; c++) ms[c] = median(caller[c].sample, count);
    return true;
}

/* Fills eager_ms and compiled_ms, as far as the side asks for them. */
static bool time_sides(const Subject *subject, const MeasureOptions *options, cb_function *fast,
                       Measured *out) {
    Caller *caller = calloc(2, sizeof *caller);
    double ms[2];
    if (!caller) {
        fputs("carbide: out of memory\n", stderr);
        return false;
    }
    bool both = options->side == SIDE_BOTH;
    caller[both ? 1 : 0].fast = fast;
    bool done = time_callers(subject, caller, both ? 2 : 1, options, ms);
    free(caller);
    if (!done) return false;
    if (options->side != SIDE_COMPILED) out->eager_ms = ms[0];
    if (options->side != SIDE_EAGER) out->compiled_ms = ms[both ? 1 : 0];
    out->peak_mb = resident_peak_mb();
    if (fast) out->stats = cb_stats(fast);
    return true;
}

static bool measure_both(const Subject *subject, const MeasureOptions *options, cb_function *fast,
                         Measured *out) {
    if (!time_sides(subject, options, fast, out)) return false;
    progress_show(options->progress, "%s: comparing with float64", subject->row->name);
    return accuracy_check(subject, fast, &out->accuracy);
}

/* As a program that has nothing but this side: the user's kernel cache, no comparison. */
static bool measure_side(const Subject *subject, const MeasureOptions *options, cb_function *fast,
                         Measured *out) {
    double start = clock_ms();
    if (!subject_call(subject, fast)) return false;
    out->first_ms = clock_ms() - start;
    out->accuracy = (Accuracy){NAN, NAN, true};
    cb_function_stats stats = fast ? cb_stats(fast) : (cb_function_stats){0};
    if (fast)
        *(stats.cache_hits ? &out->warm_ms : &out->cold_ms) = stats.trace_ms + stats.compile_ms;
    return time_sides(subject, options, fast, out);
}

bool measure_case(const Subject *subject, const MeasureOptions *options, Measured *out) {
    *out = (Measured){NAN, NAN, NAN, NAN, NAN, .accuracy = {NAN, NAN, false}};
    progress_show(options->progress, "%s: compiling", subject->row->name);
    resident_reset();
    if (options->side == SIDE_EAGER) return measure_side(subject, options, NULL, out);
    bool both = options->side == SIDE_BOTH;
    cb_function *fast =
        both ? compile_timed(subject, options, out) : subject_compile(subject, options->compile);
    bool done = fast && (both ? measure_both(subject, options, fast, out)
                              : measure_side(subject, options, fast, out));
    cb_function_free(fast);
    return done;
}
