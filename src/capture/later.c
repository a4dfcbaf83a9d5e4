/* Where the C code of an entry comes from: it is there when the entry is, or, with option async, a
 * job of the worker makes it while calls run on the vector VM.
 *
 *     entry_make -> an entry on the VM -> calls ...
 *                   its job: generate, compile, load -> the executable's engine -> calls in C code
 *
 * What became of it is a note of the function in either case. */
#include "capture/function.h"

#include "base/option.h"

#include <string.h>

/* The notice that the process runs without a C compiler, or with one that fails, is given once,
 * with the first line of what it says. */
static void notice_compiler(Reason reason, const char *message) {
    static atomic_flag given = ATOMIC_FLAG_INIT;
    if (reason != REASON_no_compiler && reason != REASON_compiler_failed &&
        reason != REASON_compiler_timeout)
        return;
    if (!option_int(OPTION_notices) || atomic_flag_test_and_set(&given)) return;
    const ReasonInfo *info = reason_info(reason);
    int words = message ? (int)strcspn(message, "\n") : 0;
    fprintf(stderr, "carbide: %s%s%.*s (%s)\n", info->text, words ? ": " : "", words,
            words ? message : "", info->hint);
}

double entry_compile_ms(const Entry *entry) {
    bool later = entry->executable && entry->function->options.async == CODE_LATER;
    return entry->compile_ms + (later ? executable_info(entry->executable).compiler_ms : 0);
}

bool entry_has_code(const Entry *entry, bool *compiled) {
    *compiled = entry->code && !entry_runs_ops(entry);
    if (entry->code) return true;
    ExecutableInfo info = executable_info(entry->executable);
    *compiled = info.files > 0 && info.source && info.reason == REASON_NONE;
    if (!length(executable_plan(entry->executable)->kernel)) return true;
    return info.source && info.reason == REASON_NONE && info.pending_ms < 0;
}

static void note_engine(Function *function, Entry *entry) {
    bool compiled;
    entry_has_code(entry, &compiled);
    if (compiled) atomic_store(&entry->counts, true);
    if (entry->code) {
        atomic_fetch_add(&function->compiled, compiled);
        return;
    }
    ExecutableInfo info = executable_info(entry->executable);
    atomic_fetch_add(&function->compiled, compiled && info.origin != CODE_IN_PROCESS);
    atomic_fetch_add(&function->loaded, compiled && info.origin == CODE_FROM_DISK);
    notice_compiler(info.reason, info.message);
    if (info.origin == CODE_FROM_DISK)
        atomic_fetch_add(&function->cache_hits, length(executable_plan(entry->executable)->kernel));
    if (info.cache != REASON_NONE) function_note(function, info.cache, (Site){0}, "%s", "");
    if (info.refusal.reason != REASON_NONE)
        function_note(function, info.refusal.reason, (Site){0}, "%s", info.refusal.detail);
    if (info.reason == REASON_NONE) return;
    function_note(function, info.reason, (Site){0}, "%s", info.message ? info.message : "");
}

static Entry *entry_of(WorkerJob *job) {
    return (Entry *)(void *)((char *)job - offsetof(Entry, job));
}

static void compile(WorkerJob *job) {
    Entry *entry = entry_of(job);
    if (compile_later(entry->executable, &job->stop))
        note_engine(entry->function, entry);
    else
        function_note(entry->function, REASON_compile_memory, (Site){0}, "%s", "");
}

void entry_compile_later(Entry *entry) {
    entry->job.run = compile;
    entry->job.owner = entry->function;
    if (entry->code || executable_info(entry->executable).pending_ms < 0)
        note_engine(entry->function, entry);
    else if (!worker_add(&entry->job))
        compile(&entry->job);
}

void entry_drop_job(Entry *entry) {
    if (entry->job.run) worker_drop(&entry->job);
}

cb_status cb_function_wait(cb_function *function) {
    if (!function) return fail(CB_ERR_ARGUMENT, "wait: the function is NULL");
    if (!tomb_lives(&function->tomb, "wait: the compiled function")) return cb_error_status();
    worker_wait(function);
    return CB_OK;
}
