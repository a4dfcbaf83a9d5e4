/* What a compiled function has done, on one screen: counts and reasons, then for each graph what it
 * is of, what it launches and moves, its dearest steps and what keeps the others apart. Lines fit
 * 80 columns; what is left out is counted. One graph is a screen of 24 lines: its dearest steps
 * get what room the rest leaves. explain.c has all of it.
 *
 *     ResNet, compiled at net.c:12
 *       3 calls, 1 graph, 0 breaks, 0 recorded again, 1 compiled, 0 eager
 *     graph 0: 1 input, 267 tensors of its own, 267 of them constants; 175 ops
 *       steps: 58, eager would launch 175; they move 215.7 MB, eager 426.0 MB (2.0x)
 *       ... */
#include "capture/joint.h"

#include "nn/module.h"
#include "report/report.h"
#include <string.h>

enum { COLUMNS = 79, LINES = 23 /* and the prompt */, FEWEST_ROWS = 3 /* of a graph */ };
enum { MOST_GRAPHS = 4, MOST_REASONS = 6, MOST_INPUTS = 3, MOST_REFUSALS = 2 };

/* Where a line that is longer than the screen is cut: behind a word, or within a long one. */
static size_t cut(const char *text, size_t columns) {
    size_t end = columns;
    while (end > columns / 2 && text[end] != ' ') end--;
    if (text[end] == ' ') return end;
    for (end = columns; ((unsigned char)text[end] & 0xC0) == 0x80;) end--; /* no half characters */
    return end;
}

/* As many lines as it takes, or most: all but the first begin below column `indent`. Cut where the
 * last one ends. */
static void put_lines(Buffer *out, const Buffer *line, int indent, int most) {
    const char *text = buffer_text(line);
    size_t room = COLUMNS;
    for (int i = 1; i < most && strlen(text) > room; i++) {
        size_t end = cut(text, room);
        put_bytes(out, text, end);
        text += end + (text[end] == ' ');
        putf(out, "\n%*s", indent, "");
        room = (size_t)(COLUMNS - indent);
    }
    bool fits = strlen(text) <= room;
    put_bytes(out, text, fits ? strlen(text) : cut(text, room - 3));
    put(out, fits ? "\n" : "...\n");
}

static void put_line(Buffer *out, const Buffer *line, int indent) {
    put_lines(out, line, indent, 2);
}

static void put_count(Buffer *out, int64_t count, const char *what) {
    putf(out, "%lld %s%s", (long long)count, what, plural(count));
}

void function_name(const Function *function, Buffer *out) {
    const char *kind = function->callee == CALLEE_GRAPH ? "FX graph" : "function";
    put(out, *function->name ? function->name : kind);
    if (function->made.file)
        putf(out, ", compiled at %s:%d", function->made.file, function->made.line);
}

/* Graphs that were recorded, and for how many of them the compiler ran: others find their code on
 * the disk, run that of other sizes, or run on the vector VM. */
void function_counts(Function *function, Buffer *out) {
    cb_function_stats stats = function_stats(function);
    int64_t loaded = atomic_load(&function->loaded);
    put_count(out, stats.calls, "call");
    put(out, ", ");
    put_count(out, stats.graphs, "graph");
    put(out, ", ");
    put_count(out, stats.breaks, "break");
    putf(out, ", %lld recorded again, %lld compiled", (long long)stats.recompiles,
         (long long)(stats.compiled - loaded));
    if (loaded) putf(out, ", %lld loaded", (long long)loaded);
    putf(out, ", %lld eager", (long long)stats.eager_calls);
}

/* ---- reasons --------------------------------------------------------------------------------- */

/* What a row of reasons.def says is told as a whole. */
enum { REASON_LINES = 8 };

static void put_indented_line(const char *label, const char *text, int most, Buffer *out) {
    Buffer line = buffer_new(out->arena);
    putf(&line, "    %s%.*s", label, (int)strcspn(text, "\n"), text);
    put_lines(out, &line, 6, most);
}

static void put_note(const Note *note, Buffer *out) {
    Buffer line = buffer_new(out->arena);
    const ReasonInfo *info = reason_info(note->reason);
    putf(&line, "  %s", info->kind);
    if (note->site.file) putf(&line, " at %s:%d", note->site.file, note->site.line);
    if (note->count > 1) putf(&line, ", %lld times", (long long)note->count);
    putf(&line, ": %s", info->text);
    put_lines(out, &line, 4, REASON_LINES);
    if (*note->detail) put_indented_line("", note->detail, 2, out);
    if (*info->hint) put_indented_line("hint: ", info->hint, REASON_LINES, out);
}

static void put_notes(Function *function, Buffer *out) {
    Note note[MAX_NOTES];
    int count = function_notes(function, note);
    for (int i = 0; i < count && i < MOST_REASONS; i++) put_note(&note[i], out);
    if (count > MOST_REASONS) putf(out, "  and %d more reasons\n", count - MOST_REASONS);
}

/* ---- a graph --------------------------------------------------------------------------------- */

static void put_inputs(const Entry *entry, Buffer *out) {
    Buffer line = buffer_new(out->arena);
    int constants = 0, tensors = entry->captured_count - entry->trace->argument_count;
    for (int v = 0; entry->frozen && v < length(entry->trace->value); v++)
        constants += entry->frozen[v].serial != 0;
    putf(&line, "graph %d%s: ", entry->number, entry->resumes ? ", behind a value" : "");
    put_count(&line, entry->input_count, "input");
    for (int i = 0; i < entry->input_count && i < MOST_INPUTS; i++) {
        put(&line, i ? ", " : " ");
        guard_print(&entry->guard[i], &line);
    }
    if (entry->input_count > MOST_INPUTS) put(&line, ", ...");
    put_line(out, &line, 4);
    if (entry->trace->again.text) {
        line = buffer_new(out->arena);
        putf(&line, "  recorded again: %s", entry->trace->again.text);
        put_line(out, &line, 4);
    }
    if (tensors) {
        put(out, "  ");
        put_count(out, tensors, "tensor");
        putf(out, " found elsewhere, %d of them constants\n", constants);
    }
    if (!entry->trace->argument_count) return;
    put(out, "  ");
    put_count(out, entry->trace->argument_count, "number");
    put(out, ": any of the same kind\n");
}

static void put_times(const Entry *entry, Buffer *out) {
    ExecutableInfo info = executable_info(entry->executable);
    Buffer line = buffer_new(out->arena);
    putf(&line, "  compiled in %.1f ms; engine: %s", entry->trace_ms + entry_compile_ms(entry),
         report_engine(entry->executable));
    if (info.pending_ms >= 0) putf(&line, ", since %.0f ms", info.pending_ms);
    if (info.source) {
        put(&line, "; ");
        put_count(&line, info.functions, "different kernel");
    }
    put_line(out, &line, 4);
}

static void put_totals(const Entry *entry, Buffer *out) {
    const Plan *plan = executable_plan(entry->executable);
    put(out, "  ");
    put_count(out, length(entry->trace->op), "op");
    put(out, " recorded; ");
    put_count(out, length(plan->step) + plan->copies, "step");
    putf(out, ", eager would launch %d\n  a call moves ", plan->kernels_eager);
    report_memory(entry->executable, out);
    if (entry->backward) put(out, "  "), backward_print(entry->backward, out), put(out, "\n");
    Buffer speed = buffer_new(out->arena);
    if (entry_print_speed(entry, "\n    ", &speed))
        putf(out, "  a call takes %s\n", buffer_text(&speed));
}

static void put_row(const StepRow *row, double all_ms, Buffer *out) {
    Buffer line = buffer_new(out->arena), bytes = buffer_new(out->arena);
    put_byte_count(&bytes, row->bytes);
    if (row->ms > 0)
        putf(&line, " %9.*f %3.0f%%", MS_DIGITS(row->ms), row->ms, 100 * row->ms / all_ms);
    putf(&line, " %10s ", buffer_text(&bytes));
    int column = (int)line.length;
    if (row->count > 1) putf(&line, "%d x ", row->count);
    put(&line, row->text);
    put_line(out, &line, column);
}

static int count_lines(const Buffer *text) {
    int lines = 0;
    for (size_t i = 0; i < text->length; i++) lines += buffer_text(text)[i] == '\n';
    return lines;
}

/* As many rows as fit into so many lines, of which two are the head and what is left out. */
static void put_rows(const Entry *entry, int lines, Buffer *out) {
    StepRow *rows = report_rows(entry->executable, out->arena);
    double all_ms = report_ms(entry->executable), ms = 0;
    if (!rows) return;
    put(out, all_ms > 0 ? "        ms           bytes steps, the dearest first\n"
                        : "      bytes steps, the dearest first\n");
    int shown = 0, steps = 0;
    int64_t bytes = 0;
    for (lines -= 2; shown < length(rows); shown++) {
        Buffer row = buffer_new(out->arena);
        put_row(&rows[shown], all_ms, &row);
        lines -= count_lines(&row);
        if (shown >= FEWEST_ROWS && lines < 0) break;
        put(out, buffer_text(&row));
    }
    for (int i = shown; i < length(rows); i++)
        steps += rows[i].count, bytes += rows[i].bytes, ms += rows[i].ms;
    if (!steps) return;
    put(out, "  and ");
    put_count(out, steps, "more step");
    put(out, " of ");
    put_byte_count(out, bytes);
    if (all_ms > 0) put(out, " and "), put_ms(out, ms), put(out, " ms");
    put(out, "\n");
}

/* All rules that say the same, from row i on; how many pairs. They count as told from then on. */
static int put_refusal(RefusalRow *rows, int i, Buffer *out) {
    const Refusal *first = rows[i].first;
    Buffer line = buffer_new(out->arena), rules = buffer_new(out->arena);
    int pairs = 0;
    for (int k = i; k < length(rows); k++) {
        if (rows[k].first->rule->reason != first->rule->reason) continue;
        putf(&rules, "%s%s", pairs ? ", " : "", rows[k].first->rule->name);
        pairs += rows[k].count;
        rows[k].count = 0;
    }
    putf(&line, "  not fused, %d x: %s (%s)", pairs, reason_info(first->rule->reason)->text,
         buffer_text(&rules));
    put_line(out, &line, 4);
    line = buffer_new(out->arena);
    put(&line, pairs > 1 ? "    first: " : "    ");
    report_refusal(first, &line);
    put_line(out, &line, 6);
    return pairs;
}

static void put_refusals(const Entry *entry, Buffer *out) {
    const Plan *plan = executable_plan(entry->executable);
    RefusalRow *rows = report_refusals(plan, out->arena);
    int told = 0;
    for (int i = 0, most = MOST_REFUSALS; i < length(rows) && most; i++) {
        if (!rows[i].count) continue;
        told += put_refusal(rows, i, out);
        most--;
    }
    if (told < length(plan->refusal))
        putf(out, "  not fused for other reasons: %d x\n", length(plan->refusal) - told);
}

/* Of one graph of several its dearest steps, of one alone what there is room for. */
static void put_graph(const Entry *entry, bool alone, Buffer *out) {
    put_inputs(entry, out);
    if (entry_backend(entry)) {
        putf(out, "  %d op%s recorded; made and run by backend %s\n", length(entry->trace->op),
             plural(length(entry->trace->op)), entry_backend(entry));
        return;
    }
    put_totals(entry, out);
    put_times(entry, out);
    Buffer refusals = buffer_new(out->arena);
    put_refusals(entry, &refusals);
    put_rows(entry, alone ? LINES - count_lines(out) - count_lines(&refusals) : 0, out);
    put(out, buffer_text(&refusals));
}

void summary_print(Function *function, Buffer *out) {
    cb_function_stats stats = function_stats(function);
    Buffer line = buffer_new(out->arena);
    function_name(function, &line);
    put_line(out, &line, 2);
    line = buffer_new(out->arena);
    put(&line, "  ");
    function_counts(function, &line);
    put_line(out, &line, 4);
    put_notes(function, out);
    int graphs = 0, i = 0;
    for (const Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next)) graphs++;
    int shown = graphs > MOST_GRAPHS ? MOST_GRAPHS : graphs;
    for (const Entry *e = atomic_load(&function->first); e && i < shown; e = atomic_load(&e->next))
        put_graph(e, graphs == 1, out), i++;
    if (graphs > shown) putf(out, "and %d more graph%s\n", graphs - shown, plural(graphs - shown));
    if (stats.graphs > graphs) {
        put_count(out, stats.graphs - graphs, "earlier graph");
        put(out, " left: later ones take their calls\n");
    }
}
