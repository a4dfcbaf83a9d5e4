/* Rows of lanes that are no whole vectors, walked as if they were (lower/whole.c): of 14 points, 16
 * go by one vector, where 8, 4 and 2 go by themselves. The last rows, and those that a thread has
 * only a part of, go lane by lane.
 *
 *     if (n == 14 && high - item >= 28 && (a0 < 511 || a1 < 13)) {
 *         enum { n = 16 };
 *         for (int l = 0; l < n; l++) ...
 *     }
 *     else ... */
#include "codegen/c/kernel.h"

enum {
    WHOLE_LEAST = 3,
    WHOLE_MOST = 63 /* of longer rows the rest is nothing */
};

static bool has_guard(const CKernel *c) {
    for (int id = 0; id < length(c->e.kernel->expr); id++)
        if (c->e.kernel->expr[id]->op == EX_load && c->e.kernel->expr[id]->input_count > 1)
            return true;
    return false;
}

/* Loops over lanes along the last outer axis, of which a row is known to be short. */
static bool has_short_runs(const CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    int lane = c->e.lane_axis;
    bool runs = c->shape == SHAPE_NESTED || c->shape == SHAPE_ARRAY;
    bool cut = c->split || c->turns || c->any_stream || c->columns || c->weave || c->slab;
    if (!runs || cut || lane < 1 || kernel->axis[lane].varies || kernel_has_scan(kernel))
        return false;
    int64_t size = kernel->axis[lane].size, most = has_guard(c) ? c->lanes : WHOLE_MOST;
    return size >= WHOLE_LEAST && size <= most;
}

void c_choose_whole(CKernel *c) {
    int row = c->e.lane_axis;
    if (!has_short_runs(c) || !kernel_stores_in_order(c->e.kernel)) return;
    c->row_low = arena_new_array(c->e.arena, int64_t, row);
    c->row_high = arena_new_array(c->e.arena, int64_t, row);
    c->whole_points = kernel_whole_row(c->e.kernel, row);
    if (!kernel_bounds_rows(c->e.kernel, row, c->whole_points, c->row_low, c->row_high)) return;
    CKernel *whole = c_prepare(kernel_unguarded(c->e.kernel), NULL, false, c->e.usage, c->e.out);
    if (!has_short_runs(whole)) return;
    whole->hidden = c->hidden;
    whole->origin = NULL; /* conditions on lane l are those on l */
    c->whole_row = whole;
    c->scalar = true; /* what is left: one row of many */
}

/* Which rows are whole in memory: by the first axis that says so of all that follow. */
static void put_bounds(const CKernel *c, Buffer *text, bool high) {
    Emit *e = (Emit *)&c->e;
    bool all = false;
    for (int a = 0; a < e->lane_axis && !kernel_varies(e->kernel); a++) {
        const Expr *axis = expr_axis(e->kernel, a);
        all |= high ? c->row_high[a] >= axis->high : c->row_low[a] <= axis->low;
    }
    for (int a = 0; a < e->lane_axis && !all; a++) {
        const char *bound = emit_size(e, high ? c->row_high[a] : c->row_low[a]);
        putf(text, "%s%sa%d %s %s", a ? "" : " && ", a ? " || " : "(", a,
             high ? "<=" : ">=", bound);
    }
    if (!all) put(text, ")");
}

void c_item_of_whole_rows(CKernel *c) {
    Emit *e = &c->e;
    CKernel *whole = c->whole_row;
    int64_t size = e->kernel->axis[e->lane_axis].size;
    Buffer text = buffer_new(e->arena);
    putf(&text, "n == %lld", (long long)size);
    if (size != c->whole_points) putf(&text, " && high - item >= %lld", 2 * (long long)size);
    put_bounds(c, &text, false);
    put_bounds(c, &text, true);
    emit_open(e, "if (%s)", buffer_text(&text));
    whole->e.indent = e->indent;
    emit_line(e, "enum { n = %lld };", (long long)c->whole_points);
    c_item(whole);
    emit_close(e);
    emit_open(e, "else");
    c_item(c);
    emit_close(e);
}
