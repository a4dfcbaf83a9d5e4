/* Texts of a kernel for numbers that its other text does not know, and that are few: columns that
 * compilers take apart in registers, lanes that lie close to each other, rows that are one run.
 *
 *     if (n0 == 3) {
 *         const int64_t n0 = 3;
 *         for (int l = 0; l < n; l++) ... p9[l * n0] ...
 *         return;
 *     }
 *
 * In: a kernel whose number varies (Axis.varies). Out: text that the kernel's function begins with,
 * or functions of its own that it calls. */
#include "codegen/c/kernel.h"
#include "lower/index.h"

enum { NEAR_LANES = 3 /* so far apart lanes are read as vectors */ };

/* A text for one number, which is literal in it. */
static void open_length(Emit *e, const char *size, int length) {
    emit_open(e, "if (%s == %d)", size, length);
    if (*size != 'n') return;
    emit_line(e, "const int64_t %s = %d;", size, length); /* products of an int may wrap */
    emit_line(e, "const int i%s = %d;", size + 1, length);
}

bool c_has_turned_few(const CKernel *c) { return c->turns_few && !c->edge && c->e.usage->holes; }

/* Narrows what is known of lanes that an access has: how far apart they lie, other than by 1 and by
 * `size`. False: nobody knows, or others lie otherwise. */
static bool note_apart(CKernel *c, Expr *index, int64_t size, int64_t *apart) {
    int64_t stride;
    Expr *rest;
    if (!expr_uses_axis(index, c->e.lane_axis)) return true;
    if (!index_linear(c->e.kernel, index, c->e.lane_axis, &stride, &rest)) return false;
    if (stride == 1 || stride == size || stride == *apart) return true;
    if (*apart || stride < 0) return false;
    *apart = stride;
    return true;
}

/* 0: side by side, or there is no one number for all that are not. */
static int64_t lanes_apart(CKernel *c, int64_t size) {
    const Kernel *kernel = c->e.kernel;
    int64_t apart = 0;
    for (int id = 0, count = length(kernel->expr); id < count; id++) {
        const Expr *x = kernel->expr[id];
        if (x->op == EX_load && !note_apart(c, x->input[0], size, &apart)) return 0;
    }
    for (int s = 0; s < c->store_count; s++)
        if (!note_apart(c, kernel->store[s].index, size, &apart)) return 0;
    return apart;
}

static void rows_of_few(CKernel *c, Kernel *over_rows) {
    CKernel *rows = c_prepare(over_rows, NULL, TURNS_CHOSEN, c->e.usage, c->e.out);
    rows->e.indent = c->e.indent;
    rows->hidden = c->hidden;
    c_all_items(rows);
    emit_line(&c->e, "return;");
}

/* Whole rows of a few columns, whose number varies: for each number a loop with lanes across the
 * rows, in which it is literal. Along such rows a loop would take as long as 16 elements do. Parts
 * of rows that are few themselves are read as vectors, too. In a function of their own, so that the
 * walk over blocks has the registers. */
void c_function_of_turned_few(CKernel *c) {
    Emit *e = &c->e;
    c_open_function(c, "static __attribute__((noinline)) void", "_few");
    c_declare_strides(c);
    int64_t columns = e->kernel->axis[e->lane_axis].size;
    const char *size = emit_size(e, columns);
    for (int few = 2; few <= TURN_FEW; few++) {
        Kernel *kernel = kernel_by_rows(e->kernel, few, false);
        CKernel *rows = c_prepare(kernel, NULL, TURNS_CHOSEN, e->usage, e->out);
        int64_t apart = lanes_apart(rows, columns);
        open_length(e, size, few);
        for (int near = few + 1; apart && near <= NEAR_LANES; near++) {
            open_length(e, emit_size(e, apart), near);
            rows_of_few(c, kernel);
            emit_close(e);
        }
        rows_of_few(c, kernel);
        emit_close(e);
    }
    emit_close(e);
}

/* Whether lanes lie apart by a number that may vary: whether it does is not asked, since it may be
 * a multiple of a size that varies by chance. */
bool c_may_be_near(CKernel *c) {
    bool nested = c->shape == SHAPE_NESTED && !c->inner_count && !c->edge && !c->step_count;
    bool varies = c->e.usage->holes && kernel_varies(c->e.kernel);
    return nested && varies && NEAR_LANES * c_whole_cost(c) <= HEAVY_ARITHMETIC &&
           lanes_apart(c, 1);
}

/* Of such lanes a text for each small number, in which it is literal: compilers read them as
 * vectors then, and no blocks are walked. */
void c_function_of_near(CKernel *c) {
    Emit *e = &c->e;
    c_open_function(c, "static __attribute__((noinline)) void", "_near");
    const char *apart = emit_size(e, lanes_apart(c, 1));
    for (int near = 2; near <= NEAR_LANES; near++) {
        CKernel *runs = c_prepare(e->kernel, NULL, TURNS_NEVER, e->usage, e->out);
        open_length(e, apart, near);
        runs->e.indent = e->indent;
        c_all_items(runs);
        emit_close(e);
    }
    emit_close(e);
}

/* Rows of few points are none of its. */
void c_call_near(CKernel *c) {
    Emit *e = &c->e;
    const char *apart = emit_size(e, lanes_apart(c, 1));
    const char *points = emit_size(e, e->kernel->axis[e->lane_axis].size);
    emit_open(e, "if (%s > 1 && %s <= %d && %s > %d)", apart, apart, NEAR_LANES, points, TURN_FEW);
    emit_line(e, "%s_near(buffer, low, high, pass, slot);", e->kernel->name);
    emit_line(e, "return;");
    emit_close(e);
}

/* The kernel over rows of few points, each a lane, whose number is its last axis: a text for each
 * length that compilers take apart in registers. */
void c_rows_by_length(CKernel *c, Kernel *over_rows) {
    Emit *e = &c->e;
    int axis = over_rows->outer_count;
    const char *size = emit_size(e, over_rows->axis[axis].size);
    for (int points = 2; points <= c->longest; points = c_next_length(points)) {
        Kernel *kernel = kernel_of_points(over_rows, axis, points);
        CKernel *rows = c_prepare(kernel, NULL, TURNS_CHOSEN, e->usage, e->out);
        open_length(e, size, points);
        rows->e.indent = e->indent;
        rows->hidden = c->hidden;
        c_all_items(rows);
        emit_line(e, "return;");
        emit_close(e);
    }
}

/* One of the texts for rows of few columns, of those among first .. last that are its. */
static void items_of_flat_rows(CKernel *c, int i) {
    Emit *e = &c->e;
    CKernel *rows = c->flat_rows[i];
    const char *from = i ? emit_size(e, c->row_edge[i - 1]) : "first";
    const char *to = i < length(c->row_edge) ? emit_size(e, c->row_edge[i]) : "last";
    emit_block(e);
    emit_line(e, "int64_t low = first > %s ? first : %s;", from, from);
    emit_line(e, "int64_t high = last < %s ? last : %s;", to, to);
    emit_open(e, "if (low < high)");
    rows->e.indent = e->indent;
    c_repeat_columns(rows);
    c_all_items(rows);
    emit_close(e);
    emit_close(e);
}

/* Whole rows first .. last of a few columns. Parts of others before and behind them go by
 * themselves: no more than low .. high may have been computed that is read here. */
static void open_whole_rows(CKernel *c, const char *others, int most) {
    Emit *e = &c->e;
    const char *size = emit_size(e, e->kernel->axis[e->lane_axis].size);
    emit_line(e, "const int64_t first = (low + %s - 1) / %s, last = high / %s;", size, size, size);
    emit_open(e, "if (%s > 1 && %s <= %d && first < last)", size, size, most);
    emit_line(e, "if (low < first * %s) %s(buffer, low, first * %s, pass, slot);", size, others,
              size);
    emit_line(e, "if (last * %s < high) %s(buffer, last * %s, high, pass, slot);", size, others,
              size);
    if (!c->longest) return;
    emit_line(e, "low = first, high = last;");
    c_rows_by_length(c, kernel_by_rows(e->kernel, e->kernel->axis[e->lane_axis].size, true));
}

/* The kernel, where such rows are one run. Everything else is in a function of its own, whose
 * registers are for the loops over long rows. */
void c_kernel_of_flat_rows(CKernel *c) {
    Emit *e = &c->e;
    const char *all = arena_format(e->arena, "%s_all", e->kernel->name);
    c_open_function(c, "void", "");
    open_whole_rows(c, all, c->flat_most);
    for (int i = 0; i < length(c->flat_rows); i++) items_of_flat_rows(c, i);
    emit_line(e, "return;");
    emit_close(e);
    emit_line(e, "%s(buffer, low, high, pass, slot);", all);
    emit_close(e);
}

/* Every row, by one vector under a mask that all of them share, or by several. */
static void rows_under_masks(CKernel *c, bool one) {
    Emit *e = &c->e;
    CKernel *rows = c_prepare(e->kernel, NULL, TURNS_CHOSEN, e->usage, e->out);
    rows->e.indent = e->indent;
    rows->hidden = c->hidden;
    emit_open(&rows->e, "for (int64_t a0 = first; a0 < last; a0++)");
    emit_line(&rows->e, one ? "const int64_t a1 = 0, whole = 0;" : "const int64_t a1 = 0;");
    c_before_lanes(rows);
    if (one)
        c_masked_line(rows, rows->e.info.pass_count, c_store_points);
    else
        c_lines_loop(rows, rows->e.info.pass_count, c_store_points);
    emit_close(&rows->e);
}

/* Such rows that are no run, or would take expanding for one. */
void c_short_rows(CKernel *c) {
    Emit *e = &c->e;
    bool any = c->shape == SHAPE_NESTED && c->line && e->lane_axis == 1 && e->usage->holes;
    if (!any || c->edge || c->flat_rows || c->step_count) return;
    open_whole_rows(c, e->kernel->name, c->short_most ? c->short_most : c->line);
    emit_line(e, "const int n = (int)%s;", emit_size(e, e->kernel->axis[1].size));
    emit_line(e, "int all = n;");
    emit_line(e, "__asm__(\"\" : \"+r\"(all));");
    if (c->short_most) emit_open(e, "if (n <= %d)", c->line);
    emit_line(e, "const int left = all;");
    rows_under_masks(c, true);
    emit_line(e, "return;");
    emit_close(e);
    if (!c->short_most) return;
    rows_under_masks(c, false);
    emit_line(e, "return;");
    emit_close(e);
}
