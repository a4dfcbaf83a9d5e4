/* What users of torch.compile do: a warm-up, a number of batches as it is, the same batches
 * compiled, both times and the speed-up. Batches are whole calls, one after the other; of a network
 * that learns, steps.
 *
 *     Baseline time for 100 batches: 24.0612 seconds
 *     Compiled time for 100 batches: 15.2210 seconds
 *     Speedup: 1.58x
 *     Kernels: 2261, compiled 189
 *     Peak memory: 1629 MB, compiled 971 MB */
#include "base/clock.h"
#include "measure.h"

enum { WARM_UP = 3 };

/* Seconds of all batches; negative on failure. */
static double time_batches(const Subject *subject, cb_function *fast, const char *what,
                           const MeasureOptions *options) {
    for (int i = 0; i < WARM_UP; i++)
        if (!subject_call(subject, fast)) return -1;
    double start = clock_ms();
    for (int64_t i = 0; i < options->batches; i++) {
        progress_bar(options->progress, what, i, options->batches);
        if (!subject_call(subject, fast)) return -1;
    }
    double seconds = (clock_ms() - start) / 1e3;
    progress_clear(options->progress);
    return seconds;
}

static bool compare(const Subject *subject, cb_function *fast, const MeasureOptions *options) {
    Accuracy accuracy;
    progress_show(options->progress, "comparing with float64");
    bool done = accuracy_check(subject, fast, &accuracy);
    progress_clear(options->progress);
    if (!done) return false;
    printf("Outputs %s: largest error against float64 %.1e, uncompiled %.1e\n",
           accuracy.agree ? "agree" : "DIFFER", accuracy.max_error, accuracy.eager_error);
    return accuracy.agree;
}

static void print_costs(cb_function *fast, double baseline_mb, double compiled_mb) {
    cb_function_stats stats = cb_stats(fast);
    printf("Kernels: %lld, compiled %lld\n", (long long)stats.kernels_eager,
           (long long)stats.kernels);
    printf("Peak memory: %.0f MB, compiled %.0f MB\n", baseline_mb, compiled_mb);
}

static bool run(const Subject *subject, cb_function *fast, const MeasureOptions *options) {
    long long batches = (long long)options->batches;
    resident_reset();
    double baseline = time_batches(subject, NULL, "Baseline", options);
    if (baseline < 0) return false;
    double baseline_mb = resident_peak_mb();
    printf("Baseline time for %lld batches: %.4f seconds\n", batches, baseline);
    fflush(stdout);
    resident_reset();
    double start = clock_ms();
    if (!subject_call(subject, fast)) return false;
    double first = (clock_ms() - start) / 1e3;
    double compiled = time_batches(subject, fast, "Compiled", options);
    if (compiled < 0) return false;
    printf("Compiled time for %lld batches: %.4f seconds\n", batches, compiled);
    printf("Speedup: %.2fx\n", baseline / compiled);
    printf("First compiled call, with tracing and compiling: %.4f seconds\n", first);
    print_costs(fast, baseline_mb, resident_peak_mb());
    return compare(subject, fast, options);
}

bool script_run(const Subject *subject, const MeasureOptions *options) {
    const char *autocast = subject_autocast(subject);
    printf("%s, batch %lld, %s%s%s, %d threads\n", subject->row->name, (long long)subject->batch,
           cb_dtype_name(subject->dtype), *autocast ? ", autocast " : "", autocast, cb_threads());
    fflush(stdout);
    cb_function *fast = subject_compile(subject, options->compile);
    bool done = fast && run(subject, fast, options);
    cb_function_free(fast);
    return done;
}
