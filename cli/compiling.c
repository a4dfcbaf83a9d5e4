/* What compiling costs: cold, with an empty kernel cache, and warm, with the kernels on disk.
 *
 * Each measurement compiles the case as a new cb_function, in a cache folder of its own under the
 * temporary directory. A new function knows no trace, and freeing the one before unloads its code,
 * so that the table of loaded code cannot serve the next. The figure is what cb_stats says of the
 * new entry: tracing, optimizing, planning, and the C compiler or the disk; the first run of the
 * kernels is not in it. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "measure.h"

#include "base/environment.h"

#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COLD_TIMES = 3, COLD_MS = 500 /* after these, no more times */, WARM_TIMES = 5 };
enum { PATH_BYTES = 512 };

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status, (void)kind, (void)place;
    return remove(path);
}

static void remove_folder(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static bool make_folder(char path[PATH_BYTES]) {
    const char *parent = environment("TMPDIR");
    snprintf(path, PATH_BYTES, "%s/carbide-bench-XXXXXX", parent && *parent ? parent : "/tmp");
    if (mkdtemp(path)) return cb_set_option("cache_dir", path) == CB_OK;
    perror("carbide: temporary folder");
    return false;
}

/* A new function after its first call; NULL on failure. *ms is NaN when stored asks for kernels
 * from the disk and some were not; *call_ms, when wanted, is the whole call. */
static cb_function *compile_once(const Subject *subject, const MeasureOptions *options, bool stored,
                                 double *ms, double *call_ms) {
    cb_function *fast = subject_compile(subject, options->compile);
    if (!fast) return NULL;
    double start = clock_ms();
    if (!subject_call(subject, fast)) {
        cb_function_free(fast);
        return NULL;
    }
    if (call_ms) *call_ms = clock_ms() - start;
    cb_function_stats stats = cb_stats(fast);
    *ms = stored && !stats.cache_hits ? NAN : stats.trace_ms + stats.compile_ms;
    return fast;
}

static bool time_cold(const Subject *subject, const MeasureOptions *options, Measured *out) {
    double ms[COLD_TIMES], call_ms[COLD_TIMES], start = clock_ms();
    int count = 0;
    for (; count < COLD_TIMES && (!count || clock_ms() - start < COLD_MS); count++) {
        char folder[PATH_BYTES];
        if (!make_folder(folder)) return false;
        cb_function *fast = compile_once(subject, options, false, &ms[count], &call_ms[count]);
        cb_function_free(fast);
        remove_folder(folder);
        if (!fast) return false;
    }
    out->cold_ms = median(ms, count);
    out->first_ms = median(call_ms, count);
    return true;
}

/* Fills the cache, then compiles from it; the last function is handed back. */
static cb_function *time_warm(const Subject *subject, const MeasureOptions *options, double *out) {
    double ms[WARM_TIMES + 1];
    cb_function *fast = NULL;
    for (int i = 0; i <= WARM_TIMES; i++) {
        cb_function_free(fast);
        fast = compile_once(subject, options, i > 0, &ms[i], NULL);
        if (!fast) return NULL;
    }
    *out = NAN;
    for (int i = 1; i <= WARM_TIMES; i++)
        if (isnan(ms[i])) return fast; /* no cache, or no compiler */
    *out = median(ms + 1, WARM_TIMES);
    return fast;
}

cb_function *compile_timed(const Subject *subject, const MeasureOptions *options, Measured *out) {
    char *before = strdup(cb_get_option("cache_dir")), folder[PATH_BYTES];
    cb_function *fast = NULL;
    subject_call(subject, NULL); /* the storages that a call needs are there from now on */
    if (before && time_cold(subject, options, out) && make_folder(folder)) {
        fast = time_warm(subject, options, &out->warm_ms);
        remove_folder(folder);
    }
    if (before) cb_set_option("cache_dir", before);
    free(before);
    return fast;
}
