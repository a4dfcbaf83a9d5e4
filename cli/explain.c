/* `carbide explain CASE`: compiles a case, runs it once and prints what became of it on a screen;
 * with --full all that cb_explain says: guards, graph, fusion decisions with their reasons, kernels
 * with source, bytes moved; with --profile the time of each step. */
#include "base/clock.h"
#include "cases.h"
#include "commands.h"
#include "progress.h"
#include "screen.h"

typedef struct ExplainOptions {
    const char *device, *mode, *compile, *html;
    SubjectOptions subject;
    int64_t threads;
    bool profile, full;
} ExplainOptions;

enum { PROFILE_CALLS = 1000, PROFILE_MS = 1000 };

#define AT(field) offsetof(ExplainOptions, field)
const ArgumentRow explain_rows[] = {
    {"device", ARGUMENT_TEXT, AT(device), "NAME", "where compiled code runs: cpu"},
    {"mode", ARGUMENT_TEXT, AT(mode), "NAME", "default, reduce-overhead, max-autotune..."},
    SUBJECT_ROWS(AT(subject)),
    {"options", ARGUMENT_TEXT, AT(compile), "TEXT",
     "more options of cb_compile: fuse=0,backend=vm"},
    {"threads", ARGUMENT_COUNT, AT(threads), "N", "threads of the kernels"},
    {"html", ARGUMENT_TEXT, AT(html), "FILE", "all of it as a page for a browser"},
    {"full", ARGUMENT_FLAG, AT(full), "", "guards, captured ops, graph and source, too"},
    {"profile", ARGUMENT_FLAG, AT(profile), "", "time every step, for a second"},
    {NULL, ARGUMENT_FLAG, 0, NULL, NULL},
};

/* Calls it, with times of its steps for about a second. */
static bool call(const Subject *subject, cb_function *fast, bool profile) {
    bool called = subject_call(subject, fast);
    double end = clock_ms() + PROFILE_MS;
    for (int i = 0; i < PROFILE_CALLS && called && profile && clock_ms() < end; i++)
        called = subject_call(subject, fast);
    return called;
}

static bool print(cb_function *fast, const ExplainOptions *options) {
    if (options->html) return cb_explain_html(fast, options->html) == CB_OK;
    char *text = options->full ? cb_explain(fast) : cb_explain_summary(fast);
    if (text) fputs(text, stdout);
    cb_free_text(text);
    return text;
}

static int explain(const Subject *subject, const char *compile, const ExplainOptions *options) {
    bool profile = options->profile || options->html;
    if (profile) cb_set_option("profile", "1");
    cb_function *fast = subject_compile(subject, compile);
    bool done = fast && call(subject, fast, profile) && print(fast, options);
    if (!done) screen_error("explain", "the case failed");
    if (done && options->html) printf("the page is %s\n", options->html);
    cb_function_free(fast);
    return done ? STATUS_OK : STATUS_FAILED;
}

int command_explain(int argc, char **argv) {
    ExplainOptions options = {
        .device = "cpu", .mode = "default", .subject = SUBJECT_OPTIONS_DEFAULT};
    const char *word[MAX_WORDS];
    char compile[256];
    int words = arguments_parse("explain", explain_rows, argc, argv, &options, word);
    if (words < 0) return STATUS_USAGE;
    if (words != 1) {
        fputs("carbide explain: name one case; `carbide bench list` shows them\n", stderr);
        return STATUS_USAGE;
    }
    const BenchCase *row = case_find(word[0]);
    if (!row) return STATUS_USAGE;
    if (options.subject.batch && !row->batch) {
        fprintf(stderr, "carbide explain: the case %s has no batch\n", row->name);
        return STATUS_USAGE;
    }
    if (!case_options(compile, sizeof compile, options.device, options.mode, options.compile))
        return STATUS_USAGE;
    if (options.threads) cb_set_threads((int)options.threads);
    Subject subject;
    if (!subject_open(&subject, row, options.subject)) return STATUS_FAILED;
    int status = explain(&subject, compile, &options);
    subject_close(&subject);
    return status;
}
