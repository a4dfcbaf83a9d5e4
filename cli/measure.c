/* Times a case: rounds of eager and of compiled calls in turn, so that both see the same machine in
 * the same second.
 *
 * A sample is the mean over as many calls as take SAMPLE_MS, since one call of a small case is
 * shorter than the clock is good for; a figure is the median over samples. The first call of a
 * round is thrown away: it finds in the caches what the other side left there, where a program
 * that calls one function again and again finds its own. */
#include "measure.h"

#include <stdlib.h>

enum { WARM_UP = 2, ROUND = 8, LEAST_SAMPLES = 16, MOST_SAMPLES = 1000, MOST_REPEATS = 10000 };
static const double SAMPLE_MS = 0.5;

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *value, int count) {
    qsort(value, (size_t)count, sizeof *value, ascending);
    return count % 2 ? value[count / 2] : (value[count / 2 - 1] + value[count / 2]) / 2;
}

typedef struct Side {  /* eager or compiled */
    cb_function *fast; /* NULL: eager */
    int repeats;
    double sample[MOST_SAMPLES];
} Side;

/* The mean time of a call, or a negative number. */
static double take_sample(const Subject *subject, const Side *side) {
    double start = clock_ms();
    for (int i = 0; i < side->repeats; i++)
        if (!subject_call(subject, side->fast)) return -1;
    return (clock_ms() - start) / side->repeats;
}

static bool warm_up(const Subject *subject, Side *side) {
    double ms = 0;
    side->repeats = 1;
    for (int i = 0; i < WARM_UP; i++) {
        ms = take_sample(subject, side);
        if (ms < 0) return false;
    }
    if (ms * MOST_REPEATS < SAMPLE_MS)
        side->repeats = MOST_REPEATS;
    else if (ms < SAMPLE_MS)
        side->repeats = (int)(SAMPLE_MS / ms) + 1;
    return true;
}

/* Adds ROUND samples to the `count` that the side has. */
static bool time_round(const Subject *subject, Side *side, int count) {
    if (!subject_call(subject, side->fast)) return false;
    for (int i = 0; i < ROUND; i++) {
        side->sample[count + i] = take_sample(subject, side);
        if (side->sample[count + i] < 0) return false;
    }
    return true;
}

static bool time_sides(const Subject *subject, Side *eager, Side *compiled,
                       const MeasureOptions *options, Measured *out) {
    if (!warm_up(subject, eager) || !warm_up(subject, compiled)) return false;
    double start = clock_ms(), limit = start + options->seconds * 1e3;
    int count = 0;
    while (count + ROUND <= MOST_SAMPLES && (count < LEAST_SAMPLES || clock_ms() < limit)) {
        progress_show(options->progress, "%s: timing, %.0f s", subject->row->name,
                      (clock_ms() - start) / 1e3);
        if (!time_round(subject, eager, count) || !time_round(subject, compiled, count))
            return false;
        count += ROUND;
    }
    out->eager_ms = median(eager->sample, count);
    out->compiled_ms = median(compiled->sample, count);
    return true;
}

static bool measure_with(const Subject *subject, const MeasureOptions *options, cb_function *fast,
                         Measured *out) {
    Side *side = calloc(2, sizeof *side);
    if (!side) {
        fputs("carbide: out of memory\n", stderr);
        return false;
    }
    side[1].fast = fast;
    bool done = time_sides(subject, &side[0], &side[1], options, out);
    free(side);
    out->stats = cb_stats(fast);
    progress_show(options->progress, "%s: comparing with float64", subject->row->name);
    return done && accuracy_check(subject, fast, &out->accuracy);
}

bool measure_case(const Subject *subject, const MeasureOptions *options, Measured *out) {
    *out = (Measured){0};
    progress_show(options->progress, "%s: compiling", subject->row->name);
    cb_function *fast = compile_timed(subject, options, out);
    bool done = fast && measure_with(subject, options, fast, out);
    cb_function_free(fast);
    return done;
}
