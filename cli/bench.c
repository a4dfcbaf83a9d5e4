/* `carbide bench`: times cases, one after the other, and prints a table or one JSON object a line.
 * A network that is named runs as the script of script.c, unless JSON is asked for.
 *
 *     carbide bench gelu softmax --threads 2
 *     carbide bench gelu --json          {"case": "gelu", "device": "cpu", ...}
 *     carbide bench alexnet --batch 32   Baseline time for 100 batches: ... seconds
 *     carbide bench list
 *
 * The exit status is 1 when a compiled result differs from eager's by more than the rule of
 * accuracy.c. */
#include "commands.h"
#include "measure.h"
#include "screen.h"

#include <math.h>
#include <string.h>

typedef struct BenchOptions {
    const char *device, *mode, *compile, *only;
    SubjectOptions subject;
    int64_t threads, batches;
    double seconds;
    bool json, demo, progress;
    bool named; /* the cases were */
} BenchOptions;

#define AT(field) offsetof(BenchOptions, field)
const ArgumentRow bench_rows[] = {
    {"device", ARGUMENT_TEXT, AT(device), "NAME", "where compiled code runs: cpu"},
    {"mode", ARGUMENT_TEXT, AT(mode), "NAME", "default, reduce-overhead, max-autotune..."},
    SUBJECT_ROWS(AT(subject)),
    {"threads", ARGUMENT_COUNT, AT(threads), "N", "threads of eager and compiled calls"},
    {"batches", ARGUMENT_COUNT, AT(batches), "N", "of a network's script: 100"},
    {"only", ARGUMENT_TEXT, AT(only), "SIDE",
     "eager or compiled: call nothing else, compare nothing"},
    {"options", ARGUMENT_TEXT, AT(compile), "TEXT",
     "more options of cb_compile: fullgraph=1,backend=vm"},
    {"seconds", ARGUMENT_TIME, AT(seconds), "N", "time for the calls of one case, about"},
    {"json", ARGUMENT_FLAG, AT(json), "", "one object a line"},
    {"demo", ARGUMENT_FLAG, AT(demo), "", "the cases of `make demo`"},
    {"progress", ARGUMENT_FLAG, AT(progress), "", "show progress also when stderr is no terminal"},
    {NULL, ARGUMENT_FLAG, 0, NULL, NULL},
};

enum { TEXT_BYTES = 256, CELL_BYTES = 48 };

/* ---- output -------------------------------------------------------------------------------- */

typedef struct BenchRow { /* one measured case */
    const Subject *subject;
    const BenchOptions *options;
    const Measured *measured;
} BenchRow;

static double rate(const Measured *m) { /* GB/s of compiled calls */
    return (double)m->stats.bytes / m->compiled_ms * 1e-6;
}

static void put_number(const char *name, double value) {
    if (isfinite(value))
        printf(", \"%s\": %.6g", name, value);
    else
        printf(", \"%s\": null", name);
}

static void print_json(const BenchRow *row) {
    const Measured *m = row->measured;
    const Subject *subject = row->subject;
    printf("{\"case\": \"%s\", \"device\": \"%s\", \"mode\": \"%s\", \"dtype\": \"%s\", "
           "\"autocast\": \"%s\", \"threads\": %d, \"batch\": %lld",
           subject->row->name, row->options->device, row->options->mode,
           cb_dtype_name(subject->dtype), subject_autocast(subject), cb_threads(),
           (long long)subject->batch);
    put_number("eager_ms", m->eager_ms);
    put_number("compiled_ms", m->compiled_ms);
    put_number("speedup", m->eager_ms / m->compiled_ms);
    printf(", \"kernels_eager\": %lld, \"kernels_compiled\": %lld, \"bytes_eager\": %lld, "
           "\"bytes_compiled\": %lld",
           (long long)m->stats.kernels_eager, (long long)m->stats.kernels,
           (long long)m->stats.bytes_eager, (long long)m->stats.bytes);
    put_number("gb_per_s", rate(m));
    put_number("compile_cold_ms", m->cold_ms);
    put_number("compile_warm_ms", m->warm_ms);
    put_number("first_call_ms", m->first_ms);
    put_number("max_error", m->accuracy.max_error);
    put_number("gflops", m->stats.flops ? (double)m->stats.flops / m->compiled_ms * 1e-6 : NAN);
    put_number("peak_memory_mb", m->peak_mb);
    puts("}");
    fflush(stdout);
}

static const char *bytes_text(char text[CELL_BYTES], int64_t bytes) {
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
    double value = (double)bytes;
    int power = 0;
    while (value >= 999.5 && power < 4) value /= 1000, power++;
    snprintf(text, CELL_BYTES, value < 99.95 && power ? "%.1f %s" : "%.0f %s", value, unit[power]);
    return text;
}

/* A figure, or "-" where it was not measured. */
static const char *figure(char text[CELL_BYTES], const char *format, double value) {
    if (isfinite(value))
        snprintf(text, CELL_BYTES, format, value);
    else
        snprintf(text, CELL_BYTES, "-");
    return text;
}

static const char *time_text(char text[CELL_BYTES], double ms) {
    if (!isfinite(ms)) return figure(text, "", ms);
    if (ms >= 0.1)
        snprintf(text, CELL_BYTES, ms < 10 ? "%.2f ms" : "%.1f ms", ms);
    else
        snprintf(text, CELL_BYTES, "%.2f us", ms * 1e3);
    return text;
}

static void print_header(void) {
    printf("%s%-15s %9s %8s %9s %9s %7s %5s %4s %6s%s\n", screen_bold(), "case", "kernels", "moved",
           "eager", "compiled", "speedup", "GB/s", "cc", "error", screen_plain());
}

static void print_row(const BenchRow *row) {
    const Measured *m = row->measured;
    char cell[7][CELL_BYTES], kernels[CELL_BYTES];
    double speedup = m->eager_ms / m->compiled_ms;
    snprintf(kernels, sizeof kernels, "%d -> %d", (int)m->stats.kernels_eager,
             (int)m->stats.kernels);
    printf("%-15s %9s %8s %9s %9s %s%7s%s %5s %4s %6s%s\n", row->subject->row->name, kernels,
           bytes_text(cell[0], m->stats.bytes), time_text(cell[1], m->eager_ms),
           time_text(cell[2], m->compiled_ms), speedup > 1 ? screen_green() : "",
           figure(cell[3], "%.1fx", speedup), speedup > 1 ? screen_plain() : "",
           figure(cell[4], "%.1f", rate(m)), figure(cell[5], "%.0f", m->cold_ms),
           figure(cell[6], "%.0e", m->accuracy.max_error), m->accuracy.agree ? "" : " DIFFERS");
    fflush(stdout);
}

static void print_legend(const BenchOptions *options) {
    printf("\n%s, %d threads; times are medians of calls in turn; moved, GB/s: by compiled\n"
           "calls; cc: milliseconds to compile with an empty cache; error: the largest,\n"
           "against the same function in float64; --json has more\n",
           options->device, cb_threads());
}

/* ---- running ------------------------------------------------------------------------------- */

static int list_cases(void) {
    for (int i = 0; i < case_count; i++)
        screen_wrap(stdout,
                    printf("%-16s %-4s %9lld  ", cases[i].name, cb_dtype_name(cases[i].dtype),
                           (long long)cases[i].batch),
                    33, cases[i].help);
    return STATUS_OK;
}

static int report(const char *what) {
    char before[64];
    snprintf(before, sizeof before, "bench: %s", what);
    screen_error(before, "failed");
    cb_clear_error();
    return STATUS_FAILED;
}

static int run_case(const Subject *subject, const BenchOptions *options,
                    const MeasureOptions *how) {
    const char *name = subject->row->name;
    Measured measured;
    bool done = measure_case(subject, how, &measured);
    progress_clear(how->progress);
    if (!done) return report(name);
    BenchRow line = {subject, options, &measured};
    options->json ? print_json(&line) : print_row(&line);
    if (measured.accuracy.agree) return STATUS_OK;
    fprintf(stderr, "carbide bench: %s: eager and compiled results differ\n", name);
    return STATUS_FAILED;
}

static int run_script(const Subject *subject, const MeasureOptions *how) {
    bool done = script_run(subject, how);
    progress_clear(how->progress);
    if (!done && cb_error()) return report(subject->row->name);
    return done ? STATUS_OK : STATUS_FAILED;
}

static bool is_script(const BenchCase *row, const BenchOptions *options,
                      const MeasureOptions *how) {
    return row->network && options->named && !options->json && how->side == SIDE_BOTH;
}

static int run_cases(const BenchCase *const *chosen, int count, const BenchOptions *options,
                     const MeasureOptions *how) {
    int status = STATUS_OK, rows = 0;
    for (int i = 0; i < count; i++) {
        Subject subject;
        bool script = is_script(chosen[i], options, how);
        if (!script && !options->json && !rows++) print_header();
        bool open = subject_open(&subject, chosen[i], options->subject);
        int got = !open    ? STATUS_FAILED
                  : script ? run_script(&subject, how)
                           : run_case(&subject, options, how);
        if (got != STATUS_OK) status = got;
        if (open) subject_close(&subject);
    }
    if (rows) print_legend(options);
    return status;
}

/* The named cases, or all of them (those of the demo); the count, or -1 after a message. */
static int choose(const BenchOptions *options, const char *const *word, int words,
                  const BenchCase *chosen[MAX_WORDS]) {
    int count = 0;
    for (int i = 0; i < words; i++) {
        chosen[count] = case_find(word[i]);
        if (!chosen[count++]) return -1;
    }
    for (int i = 0; i < case_count && !words; i++)
        if (cases[i].demo || !options->demo) chosen[count++] = &cases[i];
    for (int i = 0; i < count && options->subject.batch; i++) {
        if (chosen[i]->batch) continue;
        fprintf(stderr, "carbide bench: the case %s has no batch\n", chosen[i]->name);
        return -1;
    }
    return count;
}

static bool find_side(const char *name, Side *side) {
    static const char *const names[] = {"both", "eager", "compiled"};
    for (Side i = SIDE_BOTH; i <= SIDE_COMPILED; i++) {
        *side = i;
        if (!strcmp(name, names[i])) return true;
    }
    fprintf(stderr, "carbide bench: --only cannot be '%s'; it can be eager, compiled\n", name);
    return false;
}

int command_bench(int argc, char **argv) {
    BenchOptions options = {.device = "cpu",
                            .mode = "default",
                            .only = "both",
                            .subject = SUBJECT_OPTIONS_DEFAULT,
                            .seconds = 1.5,
                            .batches = 100};
    MeasureOptions how = {0};
    Progress progress;
    const char *word[MAX_WORDS];
    const BenchCase *chosen[MAX_WORDS];
    char compile[TEXT_BYTES];
    int words = arguments_parse("bench", bench_rows, argc, argv, &options, word);
    if (words < 0) return STATUS_USAGE;
    if (words == 1 && !strcmp(word[0], "list")) return list_cases();
    int count = choose(&options, word, words, chosen);
    if (count < 0) return STATUS_USAGE;
    if (!case_options(compile, sizeof compile, options.device, options.mode, options.compile) ||
        !find_side(options.only, &how.side))
        return STATUS_USAGE;
    if (options.threads) cb_set_threads((int)options.threads);
    progress_start(&progress, options.progress);
    options.named = words > 0;
    how.compile = compile;
    how.seconds = options.seconds;
    how.batches = options.batches;
    how.progress = &progress;
    return run_cases(chosen, count, &options, &how);
}
