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

typedef enum Side { SIDE_BOTH, SIDE_EAGER, SIDE_COMPILED } Side;

typedef struct Measured {         /* NaN: not measured */
    double eager_ms, compiled_ms; /* medians over calls */
    double first_ms; /* the first call: of the compiled function, with an empty cache; of a side
                      * that is measured alone */
    double cold_ms, warm_ms;      /* tracing and compiling: with an empty cache, from the disk (NaN:
                                   * nothing came from there) */
    double peak_mb;               /* resident memory at its highest */
    cb_function_stats stats;      /* of the function that was timed */
    Accuracy accuracy;
} Measured;

typedef struct MeasureOptions {
    const char *compile; /* options text of cb_compile */
    double seconds;      /* for the timing of one case, about */
    int64_t batches;     /* of the script */
    Side side;           /* what is called at all */
    Progress *progress;
} MeasureOptions;

/* False after an error of Carbide (cb_error) or a message. */
bool measure_case(const Subject *subject, const MeasureOptions *options, Measured *out);
bool accuracy_check(const Subject *subject, cb_function *fast, Accuracy *out); /* accuracy.c */

/* compiling.c: the cost of tracing and compiling, cold and from the disk. Returns a function that
 * has been called once, or NULL. */
cb_function *compile_timed(const Subject *subject, const MeasureOptions *options, Measured *out);
/* script.c: prints both times of a number of batches. False when outputs differ, or after an error
 * of Carbide. */
bool script_run(const Subject *subject, const MeasureOptions *options);
void resident_reset(void); /* resident.c: the high-water mark begins anew */
double resident_peak_mb(void);
double median(double *value, int count); /* sorts */

#endif
