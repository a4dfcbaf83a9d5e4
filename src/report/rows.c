/* An executable -> rows that fit a screen: steps with the same text are one row.
 *
 *     58 steps of ResNet-50  ->  3 x convolution f32: 1 x 64 channels into 256, kernel 1 x 1;
 *                                    direct, then add, relu     0.9 ms, 41.2 MB
 *                                ... */
#include "op/custom.h"
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

static void put_task(const Step *step, const Work *work, Buffer *out) {
    put(out, step->origin);
    task_info(step->task.kind)->explain(&step->task, out);
    size_t choice = strcspn(work->text, ":,(;"); /* what it rests on is for the full text */
    while (choice && work->text[choice - 1] == ' ') choice--;
    if (choice) put(out, "; ");
    put_bytes(out, work->text, choice);
}

void report_step(const Executable *executable, int number, Buffer *out) {
    const Plan *plan = executable_plan(executable);
    const Step *step = &plan->step[number];
    if (step->kind == STEP_CHECK) {
        putf(out, "check of the indices of %s", step->origin);
        return;
    }
    if (step->kind == STEP_CUSTOM || step->kind == STEP_WRITE) put(out, step->origin);
    if (step->kind == STEP_TASK) put_task(step, &executable_info(executable).work[number], out);
    if (step->kernel < 0) return;
    const Kernel *kernel = plan->kernel[step->kernel];
    if (step->list) putf(out, "%d kernels of ", length(step->list));
    putf(out, "%s%s", step->kind == STEP_TASK ? ", then " : "",
         kernel->origin ? kernel->origin : kernel->name);
    if (step->kind == STEP_KERNEL && kernel->inner_size > 1)
        putf(out, ": %lld x %lld", (long long)kernel->outer_size, (long long)kernel->inner_size);
    else if (step->kind == STEP_KERNEL)
        putf(out, ": %lld", (long long)kernel->outer_size);
}

static double copies_ms(const Executable *executable) {
    return executable_step_ms(executable, length(executable_plan(executable)->step));
}

bool report_copies(const Executable *executable, Buffer *out, int64_t *bytes) {
    int copies = executable_copies(executable, bytes);
    if (copies) putf(out, "copy into %d input%s, behind all steps", copies, plural(copies));
    return copies > 0;
}

double report_ms(const Executable *executable) {
    double all = 0;
    for (int i = 0; i < length(executable_plan(executable)->step); i++) {
        double ms = executable_step_ms(executable, i);
        if (ms <= 0) return -1;
        all += ms;
    }
    int64_t bytes;
    if (all > 0 && executable_copies(executable, &bytes)) all += copies_ms(executable);
    return all > 0 ? all : -1;
}

static StepRow *find(StepRow *rows, const char *text) {
    for (int i = 0; i < length(rows); i++)
        if (!strcmp(rows[i].text, text)) return &rows[i];
    return NULL;
}

static int dearest_first(const void *a, const void *b) {
    const StepRow *x = a, *y = b;
    if (x->ms != y->ms) return x->ms < y->ms ? 1 : -1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->first - y->first;
}

StepRow *report_rows(const Executable *executable, Arena *arena) {
    const Plan *plan = executable_plan(executable);
    bool timed = report_ms(executable) > 0;
    StepRow *rows = NULL;
    for (int i = 0; i < length(plan->step); i++) {
        Buffer text = buffer_new(arena);
        report_step(executable, i, &text);
        StepRow *row = find(rows, buffer_text(&text));
        if (!row) {
            push(arena, rows, (StepRow){.text = buffer_text(&text), .first = i});
            row = &rows[length(rows) - 1];
        }
        row->count++;
        row->bytes += step_bytes(plan, &plan->step[i]);
        row->flops += step_flops(&plan->step[i]);
        row->ms = timed ? row->ms + executable_step_ms(executable, i) : -1;
    }
    Buffer text = buffer_new(arena);
    StepRow copies = {.count = 1, .first = length(plan->step)};
    if (report_copies(executable, &text, &copies.bytes)) {
        copies.text = buffer_text(&text);
        copies.ms = timed ? copies_ms(executable) : -1;
        push(arena, rows, copies);
    }
    if (rows) qsort(rows, (size_t)length(rows), sizeof *rows, dearest_first);
    return rows;
}

/* ---- what was not fused ---------------------------------------------------------------------- */

static int most_first(const void *a, const void *b) {
    const RefusalRow *x = a, *y = b;
    if (x->count != y->count) return y->count - x->count;
    return x->first < y->first ? -1 : 1;
}

RefusalRow *report_refusals(const Plan *plan, Arena *arena) {
    RefusalRow *rows = NULL;
    for (int i = 0; i < length(plan->refusal); i++) {
        int k = 0;
        while (k < length(rows) && rows[k].first->rule != plan->refusal[i].rule) k++;
        if (k == length(rows)) push(arena, rows, (RefusalRow){.first = &plan->refusal[i]});
        rows[k].count++;
    }
    if (rows) qsort(rows, (size_t)length(rows), sizeof *rows, most_first);
    return rows;
}

static void put_node(const Node *node, Buffer *out) {
    Site site = node->origin.site;
    put(out, op_call_name(node->op, node->attrs ? node->attrs->word : NULL));
    if (site.path)
        putf(out, " (%s)", site.path);
    else if (site.file)
        putf(out, " (%s:%d)", site.file, site.line);
}

void report_refusal(const Refusal *refusal, Buffer *out) {
    put_node(refusal->producer, out);
    put(out, " -> ");
    put_node(refusal->consumer, out);
}

/* ---- code ------------------------------------------------------------------------------------ */

const char *report_engine(const Executable *executable) {
    ExecutableInfo info = executable_info(executable);
    if (!length(executable_plan(executable)->kernel)) return "none, there are no kernels";
    if (info.pending_ms >= 0) return "vector VM, while C is compiled in the background";
    if (!info.source || info.reason != REASON_NONE) return "vector VM";
    if (!info.files) return "C, compiled for other sizes";
    static const char *const origin[] = {[CODE_COMPILED] = "C, compiled now",
                                         [CODE_FROM_DISK] = "C, from the disk cache",
                                         [CODE_IN_PROCESS] = "C, which the process had"};
    return origin[info.origin];
}

static void put_packed(const Executable *executable, Buffer *out) {
    int64_t bytes;
    int users = executable_packed(executable, &bytes);
    if (!users) return;
    put(out, "  packed weights: ");
    put_byte_count(out, bytes);
    if (users > 1) putf(out, ", shared by %d entries", users);
    put(out, "\n");
}

void report_memory(const Executable *executable, Buffer *out) {
    const Plan *plan = executable_plan(executable);
    int64_t bytes = executable_moves(executable);
    put_byte_count(out, bytes);
    put(out, ", eager ");
    put_byte_count(out, plan->bytes_eager);
    if (bytes > 0) putf(out, " (%.1fx)", (double)plan->bytes_eager / (double)bytes);
    put(out, "; temporaries: ");
    put_byte_count(out, plan->arena_bytes);
    put(out, "\n");
    put_packed(executable, out);
}

const char *report_source(const char *source, const Kernel *kernel, Arena *arena) {
    size_t name = strlen(kernel->name);
    const char *at = source, *begin = NULL;
    for (; (at = strstr(at, kernel->name)) && at[name] != '('; at += name)
        if (!begin && !strncmp(at + name, "_all(", 5)) begin = at; /* of which it is a part */
    if (!at) return NULL;
    if (!begin) begin = at;
    const char *end = strstr(at, "\n}\n");
    if (!end) return NULL;
    while (begin > source && begin[-1] != '\n') begin--;
    size_t bytes = (size_t)(end + 3 - begin);
    char *text = arena_alloc(arena, bytes + 1);
    memcpy(text, begin, bytes);
    text[bytes] = '\0';
    return text;
}
