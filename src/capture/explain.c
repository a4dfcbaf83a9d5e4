/* What a compiled function has done, as text for people: entries with guards, the captured ops and
 * their source lines, the optimized graph, kernels with what they compute and move, refused
 * fusions, the generated source, and every reason that was given on the way.
 *
 * Calls may go on meanwhile: it enters the function as they do (retire.c), and what changes after
 * an entry is appended, as its engine and times, is read as it is at that moment. */
#include "capture/joint.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/option.h"
#include "jit/code.h"
#include "report/report.h"
#include <string.h>

/* Text of several lines, each behind an indent. */
static void put_indented(Buffer *out, const char *text) {
    while (*text) {
        size_t line = strcspn(text, "\n");
        put(out, "    ");
        put_bytes(out, text, line);
        put(out, "\n");
        text += line + (text[line] == '\n');
    }
}

static const char *kind_of(const Node *argument) {
    static const char *const kinds[] = {"bool", "integer", "float"};
    return kinds[dtype_kind(argument->dtype)];
}

static void print_captured(const Entry *entry, int k, Buffer *out) {
    int v = entry->captured[k];
    const TraceValue *value = &entry->trace->value[v];
    char meta[128];
    meta_format(&value->meta, meta, sizeof meta);
    putf(out, "  captured %%%d: %s%s%s", v, meta, value->path ? ", " : "",
         value->path ? value->path : "");
    if (!value->contiguous) put(out, ", strided");
    putf(out, "%s%s\n", entry->held[k] && !value->own ? ", held" : "",
         entry->frozen && entry->frozen[v].serial ? ", a constant" : "");
}

void entry_print_guards(const Entry *entry, Buffer *out) {
    for (int i = 0; i < entry->input_count; i++) {
        putf(out, "  input %d: ", i);
        guard_print(&entry->guard[i], out);
        if (entry->first[i] != i) putf(out, ", the same tensor as input %d", entry->first[i]);
        put(out, "\n");
    }
    ambient_print(entry->ambient, out);
    for (int k = 0; k < entry->captured_count; k++) {
        if (entry->captured[k] != NO_VALUE) print_captured(entry, k, out);
    }
    for (int k = 0, next = 0; k < entry->captured_count; k++)
        if (entry->captured[k] == NO_VALUE)
            putf(out, "  argument %d: any %s\n", next++,
                 kind_of(entry->graph->input[entry->input_count + k]));
    for (int i = 0; i < entry->mutated_count; i++)
        putf(out, "  writes to %%%d in place, no other tensor may overlap it\n", entry->mutated[i]);
}

static void print_kernel(const Kernel *kernel, Buffer *out) {
    putf(out, "    %s: %s\n      %s, ", kernel->name, kernel->origin ? kernel->origin : "",
         kernel->form == FORM_ROW ? "row by row" : "element by element");
    putf(out, "%lld", (long long)kernel->outer_size);
    if (kernel->inner_size != 1) putf(out, " x %lld", (long long)kernel->inner_size);
    put(out, " points");
    if (kernel->split > 1) putf(out, ", %lld chunks", (long long)kernel->split);
    put(out, ", ");
    put_byte_count(out, kernel->bytes);
    put(out, "\n");
}

static void print_task(const Plan *plan, const Step *step, const Work *work, Buffer *out) {
    putf(out, "    %s", step->origin);
    task_info(step->task.kind)->explain(&step->task, out);
    if (*work->text) putf(out, "; %s", work->text);
    static const char *const then[] = {[EPILOGUE_ON_BLOCKS] = ", then on each block:\n",
                                       [EPILOGUE_FUSED] = ", with:\n",
                                       [EPILOGUE_AFTER] = ", then:\n"};
    put(out, step->kernel < 0 ? "\n" : then[work->epilogue]);
    if (step->kernel >= 0) print_kernel(plan->kernel[step->kernel], out);
}

static void print_step(const Plan *plan, const Step *step, const Work *work, Buffer *out) {
    switch (step->kind) {
    case STEP_KERNEL:
        for (int i = 0; i < step_kernels(step); i++)
            print_kernel(plan->kernel[step_kernel(step, i)], out);
        break;
    case STEP_TASK:
        print_task(plan, step, work, out);
        break;
    case STEP_CHECK:
        putf(out, "    check of the indices of %s: below %lld\n", step->origin,
             (long long)step->check.bound);
        break;
    case STEP_CUSTOM:
        putf(out, "    %s\n", step->origin);
        break;
    case STEP_WRITE:
        putf(out, "    %s of %d part%s\n", step->origin, length(step->part),
             plural(length(step->part)));
        break;
    }
}

/* With the option profile: what a step took of all, and its rates. */
static void print_time(double ms, double all, int64_t bytes, int64_t flops, Buffer *out) {
    if (ms <= 0) return;
    put(out, "      ");
    put_ms(out, ms);
    putf(out, " ms (%.1f%%), %.1f GB/s", 100 * ms / all, (double)bytes / ms * 1e-6);
    if (flops) putf(out, ", %.0f GFLOP/s", (double)flops / ms * 1e-6);
    put(out, "\n");
}

static void print_steps(const Executable *executable, Buffer *out) {
    const Plan *plan = executable_plan(executable);
    const Work *work = executable_info(executable).work;
    int steps = length(plan->step);
    int64_t bytes;
    Buffer copies = buffer_new(out->arena);
    bool copied = report_copies(executable, &copies, &bytes);
    double all = 0;
    putf(out, "  steps: %d", steps);
    if (plan->copies) putf(out, " and %d cop%s", plan->copies, plan->copies == 1 ? "y" : "ies");
    putf(out, ", eager would launch %d\n", plan->kernels_eager);
    for (int i = 0; i < steps + copied; i++) all += executable_step_ms(executable, i);
    for (int i = 0; i < steps; i++) {
        const Step *step = &plan->step[i];
        print_step(plan, step, &work[i], out);
        print_time(executable_step_ms(executable, i), all, step_bytes(plan, step), step_flops(step),
                   out);
    }
    if (copied) {
        putf(out, "    %s: ", buffer_text(&copies));
        put_byte_count(out, bytes);
        put(out, "\n");
        print_time(executable_step_ms(executable, steps), all, bytes, 0, out);
    }
    if (all <= 0) return;
    put(out, "    shortest times, in all: ");
    put_ms(out, all);
    put(out, " ms\n");
}

/* Refusals first .. end - 1 that read like this one. */
static int count_alike(const Plan *plan, const Refusal *like, int first, int end) {
    int count = 0;
    for (int i = first; i < end; i++) {
        const Refusal *other = &plan->refusal[i];
        count += other->rule == like->rule && other->producer->op == like->producer->op &&
                 other->consumer->op == like->consumer->op;
    }
    return count;
}

static void print_refusals(const Plan *plan, Buffer *out) {
    if (length(plan->refusal)) put(out, "  not fused:\n");
    for (int i = 0; i < length(plan->refusal); i++) {
        const Refusal *refusal = &plan->refusal[i];
        if (count_alike(plan, refusal, 0, i)) continue;
        int count = count_alike(plan, refusal, i, length(plan->refusal));
        put(out, "    ");
        if (count > 1) putf(out, "%d x ", count);
        putf(out, "%s -> %s: %s (%s)\n", op_info(refusal->producer->op)->name,
             op_info(refusal->consumer->op)->name, reason_info(refusal->rule->reason)->text,
             refusal->rule->name);
    }
}

static void print_declined(const Graph *graph, Buffer *out) {
    if (length(graph->declined)) put(out, "  not claimed by a template:\n");
    for (int i = 0; i < length(graph->declined); i++) {
        const Declined *declined = &graph->declined[i];
        putf(out, "    %s: %s\n", op_info(declined->op)->name, reason_info(declined->reason)->text);
    }
}

static void print_source(const char *source, const Kernel *kernel, Buffer *out) {
    const char *text = report_source(source, kernel, out->arena);
    if (text) put_indented(out, text);
}

void entry_print_miss(const Entry *entry, Buffer *out) {
    ExecutableInfo info = executable_info(entry->executable);
    char directory[CACHE_PATH], description[CACHE_TEXT];
    if (!info.files || info.origin != CODE_COMPILED) return;
    if (info.reason != REASON_NONE || info.pending_ms >= 0) return;
    if (!option_int(OPTION_cache) || cache_directory(directory) != REASON_NONE) return;
    if (!code_describe(info.source, info.file_bytes[0], description, sizeof description)) return;
    Buffer lines = buffer_new(out->arena);
    if (cache_other_key(directory, description, &lines))
        putf(out, "the cache had the same source under another key:\n%s", buffer_text(&lines));
    else
        put(out, "the cache had nothing of the same source\n");
}

static void print_saved(const Entry *entry, Buffer *out) {
    for (int k = entry_results(entry); k < entry->graph_output_count; k++) {
        const Node *node = entry->graph->output[k];
        char meta[128], line[64];
        Meta of = node_meta(node);
        meta_format(&of, meta, sizeof meta);
        site_format(node->origin.site, line, sizeof line);
        putf(out, "    saved: %s of %s (%s)\n", meta, op_info(node->op)->name, line);
    }
}

/* What leads back from the results, and what that takes. */
static void print_backward(const Entry *entry, Buffer *out) {
    const Backward *backward = entry->backward;
    if (!backward) return;
    put(out, "  ");
    backward_print(backward, out);
    put(out, "\n");
    print_saved(entry, out);
    const Executable *executable = atomic_load(&backward->executable);
    if (executable) print_steps(executable, out);
}

static void print_plan(const Entry *entry, Buffer *out) {
    const Plan *plan = executable_plan(entry->executable);
    ExecutableInfo info = executable_info(entry->executable);
    print_steps(entry->executable, out);
    print_declined(entry->graph, out);
    print_refusals(plan, out);
    put(out, "  memory traffic: ");
    report_memory(entry->executable, out);
    print_backward(entry, out);
    Buffer speed = buffer_new(out->arena);
    if (entry_print_speed(entry, "; ", &speed)) putf(out, "  a call: %s\n", buffer_text(&speed));
    putf(out, "  engine: %s", report_engine(entry->executable));
    if (info.pending_ms >= 0) putf(out, ", since %.0f ms", info.pending_ms);
    if (info.source)
        putf(out, "; %d kernel%s, %d different", length(plan->kernel), plural(length(plan->kernel)),
             info.functions);
    put(out, "\n");
    Buffer miss = buffer_new(out->arena);
    entry_print_miss(entry, &miss);
    put_indented(out, buffer_text(&miss));
    if (info.message && *info.message) {
        put(out, "  compiler:\n");
        put_indented(out, info.message);
    }
    if (!info.source) return;
    put(out, "  source (dump=k shows the scalar functions too):\n");
    for (int i = 0; i < length(plan->kernel); i++) print_source(info.source, plan->kernel[i], out);
}

static void print_capture(const Entry *entry, Buffer *out) {
    entry_print_guards(entry, out);
    Buffer text = buffer_new(out->arena);
    trace_print(entry->trace, &text);
    put(out, "  captured:\n");
    put_indented(out, buffer_text(&text));
}

static void dump(const Entry *entry, Arena *arena) {
    if (arena_guard(arena)) return;
    Buffer out = buffer_new(arena);
    print_capture(entry, &out);
    fprintf(stderr, "---- capture: entry %d\n%s\n", entry->number, buffer_text(&out));
}

void entry_dump(const Entry *entry) {
    Arena *arena = arena_new();
    if (arena) dump(entry, arena);
    arena_free(arena);
}

static void print_times(const Entry *entry, Buffer *out) {
    putf(out, "\nentry %d (traced in %.2f ms, compiled in %.2f ms", entry->number, entry->trace_ms,
         entry_compile_ms(entry));
    if (entry_backend(entry)) {
        putf(out, " by backend %s)\n", entry_backend(entry));
        return;
    }
    const PlanTime *time = &executable_plan(entry->executable)->time;
    ExecutableInfo info = executable_info(entry->executable);
    putf(out, ": passes %.2f, schedule %.2f, source %.2f, compiler or disk %.2f)\n",
         time->passes_ms, time->schedule_ms, info.source_ms, info.compiler_ms);
}

static void print_entry(const Entry *entry, Buffer *out) {
    print_times(entry, out);
    if (entry->trace->again.text) putf(out, "  recorded again: %s\n", entry->trace->again.text);
    print_capture(entry, out);
    Buffer text = buffer_new(out->arena);
    graph_print(entry->graph, &text);
    put(out, "  graph:\n");
    put_indented(out, buffer_text(&text));
    if (entry->executable) print_plan(entry, out);
}

static void print_notes(Function *function, Buffer *out) {
    Note note[MAX_NOTES];
    int count = function_notes(function, note);
    for (int i = 0; i < count; i++) {
        const ReasonInfo *info = reason_info(note[i].reason);
        putf(out, "  %s: %s", info->kind, info->text);
        if (*note[i].detail) putf(out, " (%s)", note[i].detail);
        if (note[i].site.file) putf(out, " at %s:%d", note[i].site.file, note[i].site.line);
        if (note[i].count > 1) putf(out, ", %lld times", (long long)note[i].count);
        put(out, "\n");
        if (*info->hint) putf(out, "    hint: %s\n", info->hint);
    }
}

void explain_print(Function *function, Buffer *out) {
    putf(out, "compiled function%s%s: ", *function->name ? " " : "", function->name);
    function_counts(function, out);
    put(out, "\n  options: ");
    options_print(&function->options, out);
    put(out, "\n");
    print_notes(function, out);
    for (Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next))
        print_entry(e, out);
}

/* ---- the public API -------------------------------------------------------------------------- */

static char *text_of(Function *function, FunctionPrint *print, Arena *arena) {
    if (arena_guard(arena)) return NULL;
    Buffer out = buffer_new(arena);
    print(function, &out);
    return memory_copy_text(buffer_text(&out));
}

char *function_text(Function *function, FunctionPrint *print) {
    Arena *arena = arena_new();
    function_enter(function);
    char *text = arena ? text_of(function, print, arena) : NULL;
    function_leave(function);
    arena_free(arena);
    if (!text) fail_memory(0);
    return text;
}

static bool explains(const Function *function) {
    if (function) return tomb_lives(&function->tomb, "explain: the compiled function");
    fail(CB_ERR_ARGUMENT, "explain: the function is NULL");
    return false;
}

static char *tell(Function *function, FunctionPrint *print) {
    if (!explains(function)) return NULL;
    int64_t calls = atomic_load(&function->calls);
    char *text = function_text(function, print);
    atomic_store(&function->asked, text ? print : NULL);
    atomic_store(&function->asked_calls, calls);
    return text;
}

char *cb_explain(cb_function *function) { return tell(function, explain_print); }

char *cb_explain_summary(cb_function *function) { return tell(function, summary_print); }

static bool save(int file, void *user) { return file_write(file, user, strlen(user)); }

cb_status cb_explain_html(cb_function *function, const char *path) {
    if (!explains(function)) return cb_error_status();
    if (!path) return fail(CB_ERR_ARGUMENT, "explain: the path is NULL");
    char *text = function_text(function, function_page);
    if (!text) return cb_error_status();
    bool saved = file_save(path, save, text);
    memory_free(text);
    return saved ? CB_OK : fail_file("explain", path);
}

void cb_free_text(char *text) { memory_free(text); }

static const Entry *newest(const Function *function) {
    const Entry *last = NULL;
    for (Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next)) last = e;
    return last;
}

static void add_entry(cb_function_stats *stats, const Entry *entry) {
    stats->trace_ms = entry->trace_ms;
    stats->compile_ms = entry_compile_ms(entry);
    if (!entry->executable) return;
    const Plan *plan = executable_plan(entry->executable);
    stats->kernels = length(plan->step) + plan->copies;
    stats->kernels_eager = plan->kernels_eager;
    stats->bytes = executable_moves(entry->executable);
    stats->bytes_eager = plan->bytes_eager;
    stats->flops = plan->flops;
    stats->passes_ms = plan->time.passes_ms;
    stats->schedule_ms = plan->time.schedule_ms;
    ExecutableInfo info = executable_info(entry->executable);
    stats->source_ms = info.source_ms;
    stats->compiler_ms = info.compiler_ms;
}

cb_function_stats function_stats(Function *function) {
    cb_function_stats stats = {0};
    stats.calls = atomic_load(&function->calls);
    stats.graphs = atomic_load(&function->entry_count);
    stats.breaks = atomic_load(&function->breaks);
    stats.recompiles = atomic_load(&function->recompiles);
    stats.eager_calls = atomic_load(&function->eager_calls);
    stats.cache_hits = atomic_load(&function->cache_hits);
    stats.compiled = atomic_load(&function->compiled);
    function_enter(function);
    const Entry *entry = newest(function);
    if (entry) add_entry(&stats, entry);
    function_leave(function);
    return stats;
}

cb_function_stats cb_stats(cb_function *function) {
    bool lives = function && tomb_lives(&function->tomb, "stats: the compiled function");
    if (!function) fail(CB_ERR_ARGUMENT, "stats: the function is NULL");
    return lives ? function_stats(function) : (cb_function_stats){0};
}
