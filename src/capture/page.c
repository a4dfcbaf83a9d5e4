/* Compiled functions as a page: one line of the summary and one section for each.
 *
 *     function_row(f)       <tr> ResNet, compiled at net.c:12 | 3 calls | 1 graph ...
 *     function_section(f)   its reasons, and each graph with its drawing, steps, kernels, guards */
#include "capture/function.h"

#include "base/option.h"
#include "report/page.h"
#include <string.h>

/* ---- the summary ----------------------------------------------------------------------------- */

static void add_times(Totals *totals, const Entry *entry) {
    double eager, ms = entry_ms(entry, &eager);
    totals->ms += ms;
    totals->ms_eager += eager;
    totals->timed += ms > 0;
    totals->timed_eager += eager > 0;
    if (ms <= 0) return;
    RoofTimes roof = report_roof(entry->executable);
    totals->roof.least += roof.least;
    totals->roof.compared += roof.compared;
    totals->roof.cached += roof.cached;
}

void totals_add(Totals *totals, Function *function) {
    cb_function_stats stats = function_stats(function);
    totals->functions++;
    totals->calls += stats.calls;
    totals->graphs += stats.graphs;
    totals->breaks += stats.breaks;
    totals->recompiles += stats.recompiles;
    totals->compiled += stats.compiled - atomic_load(&function->loaded);
    totals->loaded += atomic_load(&function->loaded);
    totals->eager_calls += stats.eager_calls;
    function_enter(function);
    for (const Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next)) {
        if (!e->executable) continue;
        const Plan *plan = executable_plan(e->executable);
        totals->steps += length(plan->step) + plan->copies;
        totals->steps_eager += plan->kernels_eager;
        totals->bytes += executable_moves(e->executable);
        totals->bytes_eager += plan->bytes_eager;
        add_times(totals, e);
    }
    function_leave(function);
}

/* "12.3 -> 4.5", where both are known of the same graphs. */
static void put_times(const Totals *totals, Buffer *out) {
    if (totals->timed && totals->timed_eager == totals->timed)
        put_ms(out, totals->ms_eager), put(out, " \u2192 ");
    if (totals->timed) put_ms(out, totals->ms);
}

static void put_card(Buffer *out, const char *value, const char *what) {
    putf(out, "<div class=\"card\"><b>%s</b><span>%s</span></div>\n", value, what);
}

static void put_count_card(Buffer *out, int64_t count, const char *one, const char *many) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)count);
    put_card(out, text, count == 1 ? one : many);
}

void totals_print(const Totals *totals, Buffer *out) {
    char steps[80];
    Buffer bytes = buffer_new(out->arena);
    snprintf(steps, sizeof steps, "%lld \u2192 %lld", (long long)totals->steps_eager,
             (long long)totals->steps);
    put_byte_count(&bytes, totals->bytes_eager);
    put(&bytes, " \u2192 ");
    put_byte_count(&bytes, totals->bytes);
    put(out, "<div class=\"cards\">\n");
    put_count_card(out, totals->functions, "function", "functions");
    put_count_card(out, totals->calls, "call", "calls");
    put_count_card(out, totals->graphs, "graph", "graphs");
    put_count_card(out, totals->breaks, "break", "breaks");
    put_count_card(out, totals->recompiles, "recorded again", "recorded again");
    put_count_card(out, totals->compiled, "compiled", "compiled");
    put_count_card(out, totals->loaded, "loaded from the cache", "loaded from the cache");
    put_count_card(out, totals->eager_calls, "eager call", "eager calls");
    put_card(out, steps, "launches, eager \u2192 compiled");
    put_card(out, buffer_text(&bytes), "moved, eager \u2192 compiled");
    if (totals->timed) {
        bytes = buffer_new(out->arena);
        put_times(totals, &bytes);
        put_card(out, buffer_text(&bytes), "ms at best, eager \u2192 compiled");
    }
    if (totals->roof.compared > 0) {
        snprintf(steps, sizeof steps, "%.0f %%", 100 * totals->roof.least / totals->roof.compared);
        put_card(out, steps, "of the roofline");
    }
    if (totals->roof.cached > 0) {
        bytes = buffer_new(out->arena);
        put_ms(&bytes, totals->roof.cached);
        put_card(out, buffer_text(&bytes), "ms on data that fits the caches");
    }
    put(out, "</div>\n");
    static const char *const columns[] = {"calls",          "graphs",   "breaks",
                                          "recorded again", "compiled", "eager",
                                          "launches",       "moves",    "ms"};
    put(out, "<div class=\"wide\"><table><tr><th>function</th>");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        putf(out, "<th class=\"number\">%s</th>", columns[i]);
    put(out, "</tr>\n");
}

static void put_cell(Buffer *out, int64_t count) {
    putf(out, "<td class=\"number\">%lld</td>", (long long)count);
}

void function_row(Function *function, Buffer *out) {
    Totals totals = {0};
    totals_add(&totals, function);
    Buffer name = buffer_new(out->arena);
    function_name(function, &name);
    putf(out, "<tr><td><a href=\"#f%d\">", function->number);
    page_text(out, buffer_text(&name));
    put(out, "</a></td>");
    put_cell(out, totals.calls);
    put_cell(out, totals.graphs);
    put_cell(out, totals.breaks);
    put_cell(out, totals.recompiles);
    put_cell(out, totals.compiled);
    put_cell(out, totals.eager_calls);
    putf(out, "<td class=\"number\">%lld \u2192 %lld</td><td class=\"number\">",
         (long long)totals.steps_eager, (long long)totals.steps);
    put_byte_count(out, totals.bytes_eager);
    put(out, " \u2192 ");
    put_byte_count(out, totals.bytes);
    put(out, "</td><td class=\"number\">");
    put_times(&totals, out);
    put(out, "</td></tr>\n");
}

/* ---- a function ------------------------------------------------------------------------------ */

static void put_note(const Note *note, Buffer *out) {
    const ReasonInfo *info = reason_info(note->reason);
    putf(out, "<div class=\"reason\"><span class=\"kind\">%s</span>", info->kind);
    if (note->site.file) {
        put(out, "<code>");
        page_text(out, note->site.file);
        putf(out, ":%d</code> ", note->site.line);
    }
    page_text(out, info->text);
    if (note->count > 1)
        putf(out, " <span class=\"dim\">%lld times</span>", (long long)note->count);
    if (*note->detail) {
        put(out, "<br><code>");
        page_text(out, note->detail);
        put(out, "</code>");
    }
    if (*info->hint) {
        put(out, "<br><span class=\"dim\">");
        page_text(out, info->hint);
        put(out, "</span>");
    }
    put(out, "</div>\n");
}

static void put_facts(const Entry *entry, Buffer *out) {
    const Plan *plan = executable_plan(entry->executable);
    const PlanTime *time = &plan->time;
    int64_t bytes = executable_moves(entry->executable);
    ExecutableInfo info = executable_info(entry->executable);
    Buffer speed = buffer_new(out->arena);
    bool timed = entry_print_speed(entry, "; ", &speed);
    int ops = length(entry->trace->op), steps = length(plan->step) + plan->copies;
    putf(out, "<p>%d op%s became %d step%s, where eager launches %d. A call moves ", ops,
         plural(ops), steps, plural(steps), plan->kernels_eager);
    put_byte_count(out, bytes);
    put(out, ", eager ");
    put_byte_count(out, plan->bytes_eager);
    if (bytes > 0) putf(out, " (%.1fx)", (double)plan->bytes_eager / (double)bytes);
    put(out, "; its temporaries take ");
    put_byte_count(out, plan->arena_bytes);
    put(out, ".");
    if (timed) putf(out, " It takes %s.", buffer_text(&speed));
    putf(out,
         "</p>\n<p class=\"note\">Compiled in %.1f ms: tracing %.1f, passes %.1f, schedule %.1f, "
         "source %.1f, compiler or disk %.1f.</p>\n",
         entry->trace_ms + entry_compile_ms(entry), entry->trace_ms, time->passes_ms,
         time->schedule_ms, info.source_ms, info.compiler_ms);
}

static void put_graph(const Entry *entry, int function, Buffer *out) {
    char id[32];
    snprintf(id, sizeof id, "f%dg%d", function, entry->number);
    putf(out, "<h3 id=\"%s\">Graph %d%s</h3>\n", id, entry->number,
         entry->resumes ? ", behind a value that the function asked for" : "");
    if (entry->trace->again.text) {
        put(out, "<p>Recorded again: ");
        page_text(out, entry->trace->again.text);
        put(out, ".</p>\n");
    }
    if (entry_backend(entry))
        putf(out, "<p>%d op%s, made and run by backend %s.</p>\n", length(entry->trace->op),
             plural(length(entry->trace->op)), entry_backend(entry));
    else
        put_facts(entry, out);
    Buffer guards = buffer_new(out->arena), captured = buffer_new(out->arena);
    Buffer graph = buffer_new(out->arena);
    entry_print_guards(entry, &guards);
    trace_print(entry->trace, &captured);
    graph_print(entry->graph, &graph);
    if (entry->executable) page_graph(entry->executable, entry->graph, entry->input_count, id, out);
    put(out, "<h4>Text</h4>\n");
    Buffer miss = buffer_new(out->arena);
    if (entry->executable) entry_print_miss(entry, &miss);
    if (miss.length)
        page_fold(out, "compiled now: why the cache did not serve", buffer_text(&miss));
    page_fold(out, "guards: what a call must bring along", buffer_text(&guards));
    page_fold(out, "what the function called", buffer_text(&captured));
    page_fold(out, "the graph after all passes", buffer_text(&graph));
}

void function_section(Function *function, Buffer *out) {
    Buffer name = buffer_new(out->arena), options = buffer_new(out->arena);
    Note note[MAX_NOTES];
    function_name(function, &name);
    options_print(&function->options, &options);
    putf(out, "<section><h2 id=\"f%d\">", function->number);
    page_text(out, buffer_text(&name));
    put(out, "</h2>\n<p class=\"note\"><code>");
    page_text(out, buffer_text(&options));
    put(out, "</code></p>\n");
    int notes = function_notes(function, note);
    for (int i = 0; i < notes; i++) put_note(&note[i], out);
    for (const Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next))
        put_graph(e, function->number, out);
    put(out, "</section>\n");
}

/* ---- one function ---------------------------------------------------------------------------- */

void function_page(Function *function, Buffer *out) {
    Totals totals = {0};
    Buffer name = buffer_new(out->arena);
    function_name(function, &name);
    totals_add(&totals, function);
    page_head(out, buffer_text(&name));
    totals_print(&totals, out);
    function_row(function, out);
    put(out, "</table></div>\n");
    function_section(function, out);
    page_foot(out);
}
