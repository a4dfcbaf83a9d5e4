/* What `carbide bench` finds out about one case. */
#ifndef CARBIDE_CLI_MEASURE_H
#define CARBIDE_CLI_MEASURE_H

#include "cases.h"
#include "progress.h"

typedef struct Accuracy {
    double max_error;    /* of the compiled result against float64 */
    double eager_error;  /* of eager's */
    bool agree;          /* by the rule of accuracy.c */
} Accuracy;

typedef struct Measured {
    double eager_ms, compiled_ms; /* medians over calls */
    double cold_ms, warm_ms;      /* tracing and compiling: with an empty cache, from the disk (NaN:
                                   * nothing came from there) */
    cb_function_stats stats;      /* of the function that was timed */
    Accuracy accuracy;
} Measured;

typedef struct MeasureOptions {
    const char *compile; /* options text of cb_compile */
    double seconds;      /* for the timing of one case, about */
    Progress *progress;
} MeasureOptions;

/* False after an error of Carbide (cb_error) or a message. */
bool measure_case(const Subject *subject, const MeasureOptions *options, Measured *out);
bool accuracy_check(const Subject *subject, cb_function *fast, Accuracy *out); /* accuracy.c */

/* compiling.c: the cost of tracing and compiling, cold and from the disk. Returns a function that
 * has been called once, or NULL. */
cb_function *compile_timed(const Subject *subject, const MeasureOptions *options, Measured *out);
double median(double *value, int count); /* sorts */

#endif
