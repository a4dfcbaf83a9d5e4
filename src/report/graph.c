/* An executable as a part of a page: the drawing, its steps as a table with what they take of the
 * machine, the C of its kernels, and the pairs of nodes that were not fused.
 *
 * In: an executable and its graph. Out: HTML without a frame. */
#include "report/page.h"

#include <string.h>

enum { MOST_PAIRS = 300 };

/* ---- steps ----------------------------------------------------------------------------------- */

static void put_share(Buffer *out, double share, const char *kind) {
    int shown = share > 100 ? 100 : (int)(share + 0.5);
    putf(out,
         "<td class=\"number\">%s%d %%<div class=\"bar %s\"><div style=\"width:%d%%\"></div>"
         "</div></td>",
         share > 100.5 ? "&gt; " : "", shown, kind, shown);
}

static void put_rates(const Executable *executable, int number, Roof roof, Buffer *out) {
    const Plan *plan = executable_plan(executable);
    double ms = executable_step_ms(executable, number), all = report_ms(executable);
    int64_t flops = step_flops(&plan->step[number]);
    if (ms <= 0 || all <= 0) return;
    put(out, "<td class=\"number\">");
    put_ms(out, ms);
    put(out, "</td>");
    put_share(out, 100 * ms / all, "time");
    putf(out, "<td class=\"number\">%.1f</td>",
         (double)step_bytes(plan, &plan->step[number]) / ms * 1e-6);
    putf(out, flops ? "<td class=\"number\">%.0f</td>" : "<td></td>", (double)flops / ms * 1e-6);
    double share = roof_share(roof, executable, number);
    if (share > 0)
        put_share(out, share, "roof");
    else
        put(out, roof_is_cached(roof, executable, number) ? "<td class=\"number\">in cache</td>"
                                                          : "<td></td>");
}

static void put_step(const Executable *executable, int number, const char *id, Roof roof,
                     Buffer *out) {
    const Plan *plan = executable_plan(executable);
    Buffer text = buffer_new(out->arena);
    report_step(executable, number, &text);
    putf(out, "<tr id=\"%ss%d\"><td class=\"number\">%d</td><td>", id, number, number);
    page_text(out, buffer_text(&text));
    if (plan->step[number].kernel >= 0) {
        const char *name = plan->kernel[plan->step[number].kernel]->name;
        putf(out, " <a class=\"code\" href=\"#%sk%d\">", id, plan->step[number].kernel);
        page_text(out, name);
        put(out, "</a>");
    }
    put(out, "</td><td class=\"number\">");
    put_byte_count(out, step_bytes(plan, &plan->step[number]));
    put(out, "</td>");
    put_rates(executable, number, roof, out);
    put(out, "</tr>\n");
}

static void put_steps(const Executable *executable, const char *id, Buffer *out) {
    const Plan *plan = executable_plan(executable);
    bool timed = report_ms(executable) > 0;
    static const char *const timings[] = {"ms", "of the call", "GB/s", "GFLOP/s",
                                          "of the roofline"};
    Roof roof = timed ? roof_now() : (Roof){0};
    put(out, "<div class=\"wide\"><table class=\"steps\"><tr><th></th><th>step</th><th "
             "class=\"number\">moves</th>");
    if (timed)
        for (size_t i = 0; i < sizeof timings / sizeof *timings; i++)
            putf(out, "<th class=\"number\">%s</th>", timings[i]);
    put(out, "</tr>\n");
    for (int i = 0; i < length(plan->step); i++) put_step(executable, i, id, roof, out);
    put(out, "</table></div>\n");
    if (timed && roof.bytes > 0)
        putf(out,
             "<p class=\"note\">Times are the shortest of all calls. The roofline is what this "
             "machine did as the report was written, or in a step out of cache: %.1f GB/s in a "
             "copy, %.0f GFLOP/s in a product of f32. What fits the caches, %.0f MB, is not "
             "compared with the copy, and products of other dtypes are not compared at all. A step "
             "is above it when its data lies in cache all the same, when its method multiplies "
             "less (winograd), or when it reads few rows of a table.</p>\n",
             roof.bytes * 1e-6, roof.flops * 1e-6, roof.cache * 1e-6);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void put_kernel(const Plan *plan, int number, const char *source, const char *id,
                       Buffer *out) {
    const Kernel *kernel = plan->kernel[number];
    const char *text = source ? report_source(source, kernel, out->arena) : NULL;
    putf(out, "<details id=\"%sk%d\"><summary><code>", id, number);
    page_text(out, kernel->name);
    putf(out, "</code> %s, %lld", kernel->form == FORM_ROW ? "row by row" : "element by element",
         (long long)kernel->outer_size);
    if (kernel->inner_size != 1) putf(out, " x %lld", (long long)kernel->inner_size);
    put(out, " points, ");
    put_byte_count(out, kernel->bytes);
    put(out, text ? "" : source ? "; the same code as an earlier kernel" : "; on the vector VM");
    put(out, "</summary><pre>");
    if (text) {
        page_text(out, text);
    } else {
        Buffer loops = buffer_new(out->arena);
        kernel_print(kernel, &loops);
        page_text(out, buffer_text(&loops));
    }
    put(out, "</pre></details>\n");
}

static void put_kernels(const Executable *executable, const char *id, Buffer *out) {
    const Plan *plan = executable_plan(executable);
    ExecutableInfo info = executable_info(executable);
    if (!length(plan->kernel)) return;
    putf(out, "<h4>Kernels</h4>\n<p class=\"note\">Engine: %s", report_engine(executable));
    if (info.source)
        putf(out, "; %d kernel%s, %d different", length(plan->kernel), plural(length(plan->kernel)),
             info.functions);
    put(out, ".</p>\n");
    if (info.message && *info.message) page_fold(out, "what the compiler said", info.message);
    for (int k = 0; k < length(plan->kernel); k++) put_kernel(plan, k, info.source, id, out);
}

/* ---- what was not fused ---------------------------------------------------------------------- */

static void put_pairs(const Plan *plan, const FusionRule *rule, Buffer *out) {
    int put_so_far = 0;
    put(out, "<ul>\n");
    for (int i = 0; i < length(plan->refusal) && put_so_far < MOST_PAIRS; i++) {
        if (plan->refusal[i].rule != rule) continue;
        Buffer pair = buffer_new(out->arena);
        report_refusal(&plan->refusal[i], &pair);
        put(out, "<li>");
        page_text(out, buffer_text(&pair));
        put(out, "</li>\n");
        put_so_far++;
    }
    put(out, "</ul>\n");
}

static void put_refusals(const Plan *plan, Buffer *out) {
    RefusalRow *rows = report_refusals(plan, out->arena);
    if (rows) put(out, "<h4>Not fused</h4>\n");
    for (int i = 0; i < length(rows); i++) {
        const FusionRule *rule = rows[i].first->rule;
        putf(out, "<details><summary>%d x %s <code>%s</code></summary>\n", rows[i].count,
             reason_info(rule->reason)->text, rule->name);
        put_pairs(plan, rule, out);
        put(out, "</details>\n");
    }
}

void page_graph(const Executable *executable, const Graph *graph, int inputs, const char *id,
                Buffer *out) {
    page_drawing(executable, graph, inputs, id, out);
    put(out, "<h4>Steps</h4>\n");
    put_steps(executable, id, out);
    put_kernels(executable, id, out);
    put_refusals(executable_plan(executable), out);
}
