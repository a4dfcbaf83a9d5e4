/* Rows of lanes that are no whole vectors, walked as if they were (lower/whole.c): of 14 points, 16
 * go by one vector, where 8, 4 and 2 go by themselves. The last rows, and those that a thread has
 * only a part of, go lane by lane.
 *
 *     int64_t rows = (high - item) / 14 - 1;
 *     if (rows > 13 - a1 + 1) rows = 13 - a1 + 1;
 *     if (!(a0 <= 510) && rows > 12 - a1 + 1) rows = 12 - a1 + 1;
 *     if (n == 14 && rows > 0) {
 *         for (int64_t row = 0; row < rows; row++) {
 *             const int64_t a1 = first + row;
 *             enum { n = 16 };
 *             for (int l = 0; l < n; l++) ...
 *         }
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
    CKernel *whole =
        c_prepare(kernel_unguarded(c->e.kernel), NULL, TURNS_CHOSEN, c->e.usage, c->e.out);
    if (!has_short_runs(whole)) return;
    whole->hidden = c->hidden;
    whole->origin = NULL; /* conditions on lane l are those on l */
    c->whole_row = whole;
    c->scalar = true; /* what is left: one row of many */
}

/* Whether rows are whole in memory by a coordinate of the first `axes` axes; false: all are. */
static bool put_bounds(const CKernel *c, Buffer *text, int axes, bool high) {
    Emit *e = (Emit *)&c->e;
    for (int a = 0; a < e->lane_axis && !kernel_varies(e->kernel); a++) {
        const Expr *axis = expr_axis(e->kernel, a);
        if (high ? c->row_high[a] >= axis->high : c->row_low[a] <= axis->low) return false;
    }
    put(text, "(");
    for (int a = 0; a < axes; a++)
        putf(text, "%sa%d %s %s", a ? " || " : "", a,
             high ? "<=" : ">=", emit_size(e, high ? c->row_high[a] : c->row_low[a]));
    put(text, ")");
    return true;
}

/* How many rows follow one another along the axis before that are whole, the last one of a range
 * left out. */
static void count_rows(CKernel *c) {
    Emit *e = &c->e;
    int before = e->lane_axis - 1;
    long long size = (long long)e->kernel->axis[e->lane_axis].size;
    const char *last = emit_size(e, expr_axis(e->kernel, before)->high);
    Buffer others = buffer_new(e->arena);
    emit_line(e, "int64_t rows = (high - item) / %lld%s;", size,
              size == c->whole_points ? "" : " - 1");
    emit_line(e, "if (rows > %s - a%d + 1) rows = %s - a%d + 1;", last, before, last, before);
    if (!put_bounds(c, &others, before, true)) return;
    const char *end = emit_size(e, c->row_high[before]);
    const char *unless = before ? arena_format(e->arena, "!%s && ", buffer_text(&others)) : "";
    emit_line(e, "if (%srows > %s - a%d + 1) rows = %s - a%d + 1;", unless, end, before, end,
              before);
}

void c_item_of_whole_rows(CKernel *c) {
    Emit *e = &c->e;
    CKernel *whole = c->whole_row;
    int before = e->lane_axis - 1;
    long long size = (long long)e->kernel->axis[e->lane_axis].size;
    Buffer text = buffer_new(e->arena), low = buffer_new(e->arena);
    count_rows(c);
    putf(&text, "n == %lld && rows > 0", size);
    if (put_bounds(c, &low, e->lane_axis, false)) putf(&text, " && %s", buffer_text(&low));
    emit_open(e, "if (%s)", buffer_text(&text));
    emit_line(e, "const int64_t first = a%d;", before);
    emit_open(e, "for (int64_t row = 0; row < rows; row++)");
    emit_line(e, "const int64_t a%d = first + row;", before);
    emit_line(e, "enum { n = %lld };", (long long)c->whole_points);
    whole->e.indent = e->indent;
    c_keep_rows(whole); /* its expressions have numbers of their own */
    c_item(whole);
    emit_close(e);
    emit_line(e, "item += (rows - 1) * %lld, at%d += rows - 1;", size, before);
    emit_close(e);
    emit_open(e, "else");
    c_item(c);
    emit_close(e);
}
