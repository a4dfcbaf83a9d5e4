/* Flat sweeps of ARRAY kernels: rows of a few elements that lie one behind the other are one run of
 * lanes, a whole block of rows at a time. What is one value for each row is expanded before, by
 * stores of whole vectors of which the next row overwrites the rest; what is one for each column is
 * a pattern that is made once.
 *
 *     for (int l = 0; l < n; l++) {
 *         const float x7 = v7[l];
 *         for (int j = 0; j < 8; j++) u7[l * 5 + j] = x7;
 *     }
 *     const int m = n * 5;
 *     for (int l = 0; l < m; l++) s0[l] = p6[l] * u7[l] + u9[l];
 *
 * Rows of eight points and more are folded in such sweeps, too (folds_flat, accumulate.c): their
 * terms are a run, w4[l] = p6[l] * u7[l], and each row of them becomes eight lanes of q4, which
 * compilers take apart across rows.
 *
 * And slabs: rows of up to 15 columns that are folded over the rows. A slab is one run of lanes, in
 * strips of so many rows as are whole vectors; each lane has its column's sum of every such row:
 *
 *     float q4[48] = {0};                                        three columns, 16 rows
 *     for (int64_t k = 0; k < whole; k += 48)
 *         for (int j = 0; j < 48; j++) q4[j] = q4[j] + p1[k + j];
 *     q4 folded in halves, down to three; r4[l] = r4[l] + q4[l];
 *
 * Who reads what each column has been folded to reads u4[j], which repeats it. A slab is its first
 * column's item: a range of items has those that begin in it. */
#include "base/cpu.h"
#include "base/round.h"
#include "codegen/c/kernel.h"
#include "lower/index.h"

enum {
    FLAT_LEAST = 5,        /* columns; fewer are taken apart in registers */
    FLAT_MOST = 64,        /* longer rows are runs themselves */
    FLAT_ELEMENTS = 384,   /* of a block: what is expanded stays in L1 */
    FLAT_VARYING = 1024,   /* of one whose columns vary: few are behind its last whole vector */
    FLAT_BYTES = 64 << 10, /* of all that is expanded */
    FLAT_ROWS = 16,        /* a block is a multiple of so many rows, and whole vectors */
    FOLD_ROWS = 64,        /* of a block that is folded: what is stored last is not read at once */
    FLAT_COLUMNS = 63,     /* of rows whose length varies, with AVX-512, */
    FLAT_NARROW = 16,      /* and without */
    SHORT_COLUMNS = 63,    /* where each has a value that would be expanded: vectors under masks */
    SLAB_COLUMNS = 15,     /* more are lanes of their own, or of several rows */
    SLAB_STRIP = 32,       /* lanes at the least: two vectors of f32, whose sums do not wait, */
    SLAB_LANES = 16,       /* and whole ones */
    SLAB_PART = 4096,      /* terms of one partial sum */
    VECTOR_BYTES = 64,     /* at the most */
    LEAST_VECTOR_BYTES = 16,
    FEW_VECTOR_BYTES = 32
};

/* ---- choices ----------------------------------------------------------------------------- */

static int inner_axis(const CKernel *c) { return c->e.kernel->outer_count; }

bool c_is_any_flat(const CKernel *c) {
    for (int pass = 0; pass < c->e.info.pass_count; pass++)
        if (c_is_flat(c, pass)) return true;
    return false;
}

/* Kept rows lie point by point, as they are folded. */
bool c_keeps_any(const CKernel *c) {
    for (int id = 0; id < c->e.count; id++)
        if (c->e.local[id].cached) return true;
    return false;
}

static bool stores_in(const CKernel *c, int pass) {
    bool stores = false;
    for (int s = 0; s < c->store_count; s++) stores |= c_stores_in(c, s, pass);
    return stores;
}

bool c_is_flat(const CKernel *c, int pass) {
    if (!c->columns || (c_keeps_any(c) && !c->folds_flat)) return false;
    for (int r = 0; r < length(c->e.info.reduce); r++)
        if (c_reduces_in(c, r, pass)) return c->folds_flat;
    return stores_in(c, pass);
}

/* Rows of few points that lanes would go along, of which there are many: along a run of them lanes
 * are whole vectors, and several are folded at a time. strip: lanes of one. */
static bool are_short_rows(const CKernel *c, int64_t strip) {
    const Kernel *kernel = c->e.kernel;
    int points = kernel->outer_count;
    if (!c_folds_rows(c) || axis_typical(kernel, points - 1) < FLAT_ROWS) return false;
    return axis_typical(kernel, points) < (c_has_halves(kernel) ? FLAT_MOST : strip);
}

/* Kernels with points of their own for some columns are cut there (pieces.c). */
void c_choose_columns(CKernel *c, bool by_point, int64_t strip) {
    Kernel *kernel = c->e.kernel;
    int axis = inner_axis(c);
    if (c->inner_count != 1 || !axis || c->split || axis_typical(kernel, axis - 1) < 2) return;
    bool across = kernel->form == FORM_TILE || !length(c->e.info.reduce);
    if (!across && !are_short_rows(c, strip)) return;
    bool few = kernel->axis[axis].few;
    if (kernel->axis[axis].varies != few) return; /* columns are literal here, or up to few */
    int64_t columns = axis_typical(kernel, axis);
    bool registers = !by_point && !few && (columns < FLAT_LEAST || columns == 8);
    if (columns > FLAT_MOST || registers) return;
    if (!few && length(kernel_edges(kernel, axis, c->e.arena))) return;
    if (!kernel_runs_flat(kernel, axis, few)) return;
    c->columns = columns;
    c->folds_flat = !few && c_folds_rows(c);
    if (!c_is_any_flat(c)) c->columns = 0;
    c->columns_vary = c->columns && few;
}

/* Their number, as text. */
static const char *columns_text(CKernel *c) {
    if (c->columns_vary) return emit_size(&c->e, c->e.kernel->axis[inner_axis(c)].size);
    return arena_format(c->e.arena, "%lld", (long long)c->columns);
}

/* Of a block: rows times columns at the most. */
static int64_t most_elements(const CKernel *c) {
    return c->columns_vary ? FLAT_VARYING : c->lanes * c->columns;
}

static bool is_along(const CKernel *c, const Expr *index) {
    return expr_uses_axis(index, inner_axis(c) - 1) && expr_uses_axis(index, inner_axis(c));
}

int64_t c_flat_lanes(const CKernel *c) {
    if (c->columns_vary) return FLAT_VARYING / 2; /* of two columns */
    if (c->folds_flat) return FOLD_ROWS;
    int64_t expanded = 1;
    for (int id = 0; id < length(c->e.kernel->expr); id++) {
        const Expr *x = c->e.kernel->expr[id];
        expanded += x->op == EX_load && !is_along(c, x->input[0]);
    }
    int64_t elements = least(FLAT_ELEMENTS, FLAT_BYTES / (8 * expanded));
    int64_t rows = elements / c->columns / FLAT_ROWS * FLAT_ROWS;
    return rows < FLAT_ROWS ? FLAT_ROWS : rows;
}

/* Loads under a condition on the row, which trap where that leaves out all of a far one. */
static bool asks_rows(const CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    uint32_t rows = (1u << kernel->outer_count) - 1;
    for (int id = 0; id < length(kernel->expr); id++) {
        const Expr *x = kernel->expr[id];
        bool asks = x->op == EX_load && x->input_count > 1 && c->e.info.expr[id].users;
        if (asks && x->input[1]->axes & rows) return true;
    }
    return false;
}

/* A load that is one for all of a row, which is expanded for a run over many rows. */
static bool has_row_value(const CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    int lane = c->e.lane_axis;
    for (int id = 0; id < length(kernel->expr); id++) {
        const Expr *x = kernel->expr[id];
        bool row = x->op == EX_load && expr_uses_axis(x, lane - 1);
        if (row && !expr_uses_axis(x, lane) && c->e.info.expr[id].users) return true;
    }
    return false;
}

/* Rows that are as short as a loop's overhead: where their length varies, and few columns would be
 * lanes, there is another text that walks whole rows of these as one run. */
void c_choose_flat_rows(CKernel *c) {
    Kernel *kernel = c->e.kernel;
    int lane = c->e.lane_axis;
    bool nested = c->shape == SHAPE_NESTED && !c->inner_count && lane > 0 && !c->turns;
    CKernel **made = NULL;
    if (!nested || c->step_count || c->any_stream || !c->e.usage->holes) return;
    if (!kernel->axis[lane].varies || c_has_halves(kernel) || c_whole_cost(c) > HEAVY_ARITHMETIC)
        return;
    Kernel *by_rows = kernel_by_rows(kernel, kernel->axis[lane].size, true);
    int64_t *edge = lane > 1 ? NULL : kernel_edges(by_rows, 0, c->e.arena);
    for (int i = 0; i <= length(edge); i++) {
        int64_t low = i ? edge[i - 1] : 0,
                high = i < length(edge) ? edge[i] : by_rows->axis[0].size;
        Kernel *piece = length(edge) ? kernel_piece(by_rows, 0, low, high) : by_rows;
        CKernel *rows = c_prepare(piece, NULL, TURNS_CHOSEN, c->e.usage, c->e.out);
        if (!rows->columns || asks_rows(rows)) return;
        push(c->e.arena, made, rows);
    }
    bool expands = has_row_value(c);
    if (expands) c->longest = c_longest_text(c);
    if (expands && c->line && lane == 1 && !c->edge) {
        c->short_most = SHORT_COLUMNS;
        return;
    }
    c->flat_rows = made;
    c->row_edge = edge;
    c->flat_most = cpu_level() < CPU_V4 ? FLAT_NARROW : FLAT_COLUMNS;
}

/* ---- accesses ---------------------------------------------------------------------------- */

/* Along the run, from the first element of the first row. */
static Access flat_access(const CKernel *c, Expr *index) {
    Access access = {.linear = true, .level = 0};
    int row = c->slab ? inner_axis(c) : c->e.lane_axis;
    int column = c->slab ? c->e.lane_axis : inner_axis(c);
    int64_t stride;
    index_linear(c->e.kernel, index, column, &access.stride, &access.rest);
    index_linear(c->e.kernel, access.rest, row, &stride, &access.rest);
    return access;
}

/* Before expressions are numbered: these are new ones. */
void c_flat_accesses(CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    int count = length(kernel->expr);
    if (!c->columns && !c->slab) return;
    c->flat_load = arena_new_array(c->e.arena, Access, count + 1);
    c->flat_store = arena_new_array(c->e.arena, Access, c->store_count + 1);
    for (int id = 0; id < count; id++) {
        const Expr *x = kernel->expr[id];
        if (x->op == EX_load && is_along(c, x->input[0]))
            c->flat_load[id] = flat_access(c, x->input[0]);
    }
    for (int s = 0; s < c->store_count; s++)
        if (is_along(c, kernel->store[s].index))
            c->flat_store[s] = flat_access(c, kernel->store[s].index);
}

/* Accesses along the run and the others change places. */
static void swap_accesses(CKernel *c) {
    Emit *e = &c->e;
    for (int id = 0; id < e->count; id++) {
        Access other = e->load[id];
        if (e->kernel->expr[id]->op != EX_load || !c->flat_load[id].linear) continue;
        e->load[id] = c->flat_load[id];
        c->flat_load[id] = other;
    }
    for (int s = 0; s < c->store_count; s++) {
        Access other = e->store[s];
        if (!c->flat_store[s].linear) continue;
        e->store[s] = c->flat_store[s];
        c->flat_store[s] = other;
    }
}

/* ---- arrays ------------------------------------------------------------------------------ */

static const char *expanded(const CKernel *c, const Expr *x) {
    return arena_format(c->e.arena, "u%u", emit_number(&c->e, x->id));
}

/* Elements that one row stores: as few vectors as possible. */
static int64_t stored_at_once(const CKernel *c, const Expr *x) {
    int64_t size = (int64_t)cb_dtype_size(x->dtype), row = c->columns * size;
    int64_t vector = LEAST_VECTOR_BYTES;
    if (c->columns_vary) return FEW_VECTOR_BYTES / size; /* most fit into a line */
    while (vector < row && vector < VECTOR_BYTES) vector *= 2;
    return round_up(row, vector) / size;
}

static void declare_expanded(CKernel *c, const Expr *x) {
    int64_t elements = most_elements(c) + stored_at_once(c, x);
    emit_line(&c->e, "%s %s[%lld] __attribute__((aligned(64)));", c_array_type(c, x->dtype),
              expanded(c, x), (long long)elements);
}

static void store_row(CKernel *c, const Expr *x, const char *value) {
    long long at_once = (long long)stored_at_once(c, x);
    if (c->columns_vary)
        emit_open(&c->e, "for (int i = 0; i < %s; i += %lld)", columns_text(c), at_once);
    emit_directive(&c->e, "#pragma omp simd");
    emit_line(&c->e, "for (int j = 0; j < %lld; j++) %s[l * (int64_t)%s + %sj] = %s;", at_once,
              expanded(c, x), columns_text(c), c->columns_vary ? "i + " : "", value);
    if (c->columns_vary) emit_close(&c->e);
}

/* Row-level values under these names, but those that an earlier sweep expanded. */
static void expand_rows(CKernel *c, Expr *const *all, const Phrase *name) {
    Emit *e = &c->e;
    Expr **row = NULL;
    for (int i = 0; i < length(all); i++) {
        if (e->local[all[i]->id].started) continue;
        e->local[all[i]->id].started = true;
        declare_expanded(c, all[i]);
        push(e->arena, row, all[i]);
    }
    if (!length(row)) return;
    emit_open(e, "for (int l = 0; l < n; l++)");
    for (int i = 0; i < length(row); i++) {
        const Expr *x = row[i];
        const char *value = arena_format(e->arena, "x%u", emit_number(e, x->id));
        emit_line(e, "const %s %s = %s;", c_array_type(c, x->dtype), value, name[x->id].text);
        store_row(c, x, value);
    }
    emit_close(e);
}

/* The pattern of a value of each column, over so many rows. */
static void repeat_column(CKernel *c, Expr *x, const char *rows) {
    Emit *e = &c->e;
    long long whole = (long long)stored_at_once(c, x);
    const char *array = expanded(c, x), *columns = columns_text(c);
    int axis = inner_axis(c);
    bool flat = e->flat, boundary = e->boundary;
    declare_expanded(c, x);
    e->flat = e->boundary = false;
    emit_begin(e);
    emit_root(e, x, 1);
    emit_collect(e);
    Mark mark = emit_mark(e);
    emit_block(e); /* another pattern may begin with the same values */
    emit_declare(e, 0);
    emit_open(e, "for (int64_t a%d = 0; a%d < %s; a%d++)", axis, axis, columns, axis);
    emit_declare(e, 1);
    emit_line(e, "%s[a%d] = %s;", array, axis, text_value(e, x).text);
    emit_close(e);
    emit_forget(e, mark);
    emit_close(e);
    if (whole > c->columns || c->columns_vary)
        emit_line(e, "for (int j = %s; j < %s%lld; j++) %s[j] = %s[j - %s];", columns,
                  c->columns_vary ? arena_format(e->arena, "%s + ", columns) : "", whole, array,
                  array, columns);
    emit_open(e, "for (int l = 1; l < %s; l++)", rows);
    store_row(c, x, arena_format(e->arena, c->columns_vary ? "%s[i + j]" : "%s[j]", array));
    emit_close(e);
    e->flat = flat, e->boundary = boundary;
}

/* ---- sweeps ------------------------------------------------------------------------------ */

/* What the sweep reads from arrays, the values of columns apart. */
static void find_arrays(CKernel *c, int pass, Expr ***row, Expr ***column) {
    Emit *e = &c->e;
    e->flat = e->boundary = true;
    c_collect(c, pass);
    for (int i = 0; i < length(e->queue); i++) {
        Expr *x = e->queue[i];
        if (e->local[x->id].inner)
            push(e->arena, *column, x);
        else
            push(e->arena, *row, x);
    }
}

/* Lanes of a vector of the narrowest elements, whose loop goes by so many. */
static long long widest_vector(const CKernel *c) {
    size_t least = 4;
    for (int b = 0; b < length(c->e.kernel->buffer); b++) {
        size_t own = cb_dtype_size(c->e.kernel->buffer[b].dtype);
        if (own < least) least = own;
    }
    for (int id = 0; id < c->e.count; id++) /* patterns of bools are bytes */
        if (c->e.info.expr[id].users && c->e.kernel->expr[id]->dtype == CB_BOOL) least = 1;
    return VECTOR_BYTES / (long long)least;
}

/* The rows of a block, whose number of columns varies: of those that fit, so many that next to none
 * of its elements are left behind its last whole vector, or where they are folded whole vectors of
 * rows. */
static void choose_rows(CKernel *c, const char *columns, long long lanes) {
    Emit *e = &c->e;
    if (c->reduce_count) {
        emit_line(e, "int64_t most = %d / %s & -%d;", FLAT_VARYING, columns, FLAT_ROWS);
        emit_line(e, "if (most > %lld) most = %lld;", lanes, lanes);
        return;
    }
    const char *left = arena_format(e->arena, "* %s & %lld", columns, widest_vector(c) - 1);
    emit_line(e, "const int64_t fit = %d / %s;", FLAT_VARYING, columns);
    emit_line(e, "int64_t most = fit;");
    emit_line(
        e, "for (int64_t rows = fit < high - low ? fit : 0; 2 * rows > fit && (most %s); rows--)",
        left);
    emit_line(e, "    if ((rows %s) < (most %s)) most = rows;", left, left);
}

/* What is the same in every block of rows. */
void c_repeat_columns(CKernel *c) {
    Emit *e = &c->e;
    c->repeated = arena_new_array(e->arena, bool, e->count + 1);
    const char *most = arena_format(e->arena, "%lld", (long long)c->lanes);
    if (c->columns_vary) {
        choose_rows(c, columns_text(c), (long long)c->lanes);
        most = "most";
    }
    for (int pass = 0; pass < e->info.pass_count; pass++) {
        Expr **row = NULL, **column = NULL;
        if (!c_is_flat(c, pass)) continue;
        find_arrays(c, pass, &row, &column);
        for (int i = 0; i < length(column); i++) {
            Expr *x = column[i];
            if (x->axes != 1u << inner_axis(c) || c->repeated[x->id]) continue;
            repeat_column(c, x, arena_format(e->arena, "%s && l < high - low", most));
            c->repeated[x->id] = true;
        }
    }
    e->flat = e->boundary = false;
}

/* Row-level values have arrays already; here they are to be read from longer ones. */
static Phrase *hide_rows(CKernel *c) {
    Emit *e = &c->e;
    Phrase *name = arena_new_array(e->arena, Phrase, e->count + 1);
    for (int id = 0; id < e->count; id++) {
        Local *local = &e->local[id];
        if (local->inner || local->level != e->lane_level) continue;
        name[id] = local->name;
        local->name = (Phrase){0};
    }
    return name;
}

static void show_rows(CKernel *c, const Phrase *name) {
    for (int id = 0; id < c->e.count; id++)
        if (name[id].text) c->e.local[id].name = name[id];
}

static void name_arrays(CKernel *c, Expr *const *array) {
    for (int i = 0; i < length(array); i++)
        emit_name(&c->e, array[i], c_lane(c, expanded(c, array[i])));
}

void c_flat_sweep(CKernel *c, int pass) {
    Emit *e = &c->e;
    Expr **row = NULL, **column = NULL;
    const char *origin = c->origin;
    int64_t lanes = c->out_lanes;
    Phrase *name = hide_rows(c);
    Mark mark = emit_mark(e);
    find_arrays(c, pass, &row, &column);
    expand_rows(c, row, name);
    c_declare_folds(c, pass);
    emit_block(e);
    for (int i = 0; i < length(column); i++)
        if (!c->repeated[column[i]->id]) repeat_column(c, column[i], "n");
    name_arrays(c, row);
    name_arrays(c, column);
    swap_accesses(c);
    c->flat = true;
    const char *columns = columns_text(c);
    c->origin = arena_format(e->arena, c->columns_vary ? "%s * %s" : "%s * %sL", origin, columns);
    c->out_lanes = most_elements(c);
    c_collect(c, pass);
    emit_declare(e, 0);
    emit_line(e, "const int m = n * %s;", columns);
    if (c_declare_terms(c, pass) || stores_in(c, pass)) c_lane_loop(c, pass);
    c_fold_rows(c, pass);
    emit_close(e);
    emit_forget(e, mark);
    c->flat = e->flat = false;
    c->origin = origin;
    c->out_lanes = lanes;
    swap_accesses(c);
    show_rows(c, name);
}

/* ---- slabs ------------------------------------------------------------------------------- */

static bool goes_on(const CKernel *c, Expr *index, int lane) {
    return !expr_uses_axis(index, lane) || index_continues(c->e.kernel, index, inner_axis(c), lane);
}

/* What is read and written at each point lies behind one another. */
static bool all_flat(const CKernel *c, int lane) {
    Kernel *kernel = c->e.kernel;
    for (int s = 0; s < length(kernel->store); s++) {
        const Store *store = &kernel->store[s];
        bool inner = expr_uses_inner(kernel, store->index);
        if (store->mode != STORE_SET || store->guard) return false;
        if (kernel->buffer[store->buffer].role != BUFFER_OUT) return false;
        if (inner && !(expr_uses_axis(store->index, lane) && goes_on(c, store->index, lane)))
            return false;
    }
    for (int id = 0, count = length(kernel->expr); id < count; id++) {
        const Expr *x = kernel->expr[id];
        if (x->op == EX_scan || (x->op == EX_load && x->input_count > 1)) return false;
        bool walks = x->op == EX_load && expr_uses_inner(kernel, x->input[0]);
        if (walks && !goes_on(c, x->input[0], lane)) return false;
    }
    return true;
}

/* Nor is anything one value for all columns, or asks where it is: lanes of several rows of columns
 * are as those of one. */
bool c_may_go_by_several(const CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    int lane = c->e.lane_axis;
    for (int id = 0; id < length(kernel->expr); id++) {
        const Expr *x = kernel->expr[id];
        bool row = x->op == EX_load && expr_uses_inner(kernel, x) && !expr_uses_axis(x, lane);
        if (row || (x->op == EX_axis && c->e.info.expr[id].users)) return false;
    }
    return all_flat(c, lane);
}

/* A strip is a power of two of rows, so that they can be folded in halves. True: lanes go along the
 * columns, at least. */
bool c_choose_slab(CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    int lane = kernel->outer_count - 1;
    if (c->inner_count != 1 || lane < 0 || !length(c->e.info.reduce)) return false;
    int64_t columns = kernel->axis[lane].size, rows = kernel_typical_row(kernel), strip = columns;
    if (kernel->axis[lane].varies || columns < 2 || columns > SLAB_COLUMNS) return false;
    if (!all_flat(c, lane)) return false;
    while (strip < SLAB_STRIP || strip % SLAB_LANES) strip *= 2;
    if (rows * columns < 2 * strip) return true;
    if (kernel->inner_size > INT32_MAX / columns) return true;
    c->slab = columns, c->strip = strip;
    c->tail = rows * columns % strip || c->split || kernel->axis[inner_axis(c)].varies;
    return true;
}

/* Of a value of each column, for a strip. */
static void repeat_in_strip(CKernel *c, const Expr *x, const char *value) {
    Emit *e = &c->e;
    emit_line(e, "%s %s[%lld] __attribute__((aligned(64)));", c_array_type(c, x->dtype),
              expanded(c, x), (long long)c->strip);
    emit_open(e, "for (int i = 0; i < %lld; i += %lld)", (long long)c->strip, (long long)c->slab);
    emit_line(e, "for (int l = 0; l < %lld; l++) %s[i + l] = %s;", (long long)c->slab,
              expanded(c, x), value);
    emit_close(e);
}

/* Sums of f32 are taken in parts. */
static void slab_loops(CKernel *c, int pass) {
    Emit *e = &c->e;
    long long part = (long long)round_up(SLAB_PART, c->strip);
    const char *rows = c->split ? "(end - begin)" : emit_size(e, e->kernel->inner_size);
    emit_line(e, "const int64_t all = %s * %lldL;", rows, (long long)c->slab);
    emit_open(e, "for (int64_t done = 0; done < all; done += %lld)", part);
    emit_line(e, "const int n = all - done < %lld ? (int)(all - done) : %lld;", part, part);
    emit_declare(e, 0);
    c_begin_partials(c, pass);
    c_lane_loop(c, pass);
    c_end_partials(c, pass);
    emit_close(e);
}

void c_slab_sweep(CKernel *c, int pass) {
    Emit *e = &c->e;
    Expr **row = NULL, **column = NULL;
    const char *origin = c->origin;
    Phrase *name = hide_rows(c);
    Mark mark = emit_mark(e);
    emit_block(e);
    find_arrays(c, pass, &row, &column);
    for (int i = 0; i < length(row); i++) repeat_in_strip(c, row[i], name[row[i]->id].text);
    for (int i = 0; i < length(row); i++)
        emit_name(e, row[i], text_atom(arena_format(e->arena, "%s[j]", expanded(c, row[i]))));
    swap_accesses(c);
    c->flat = true;
    c->origin =
        c->split ? arena_format(e->arena, "(begin * %lldL + done)", (long long)c->slab) : "done";
    c_collect(c, pass);
    slab_loops(c, pass);
    emit_close(e);
    emit_forget(e, mark);
    c->flat = e->flat = false;
    c->origin = origin;
    swap_accesses(c);
    show_rows(c, name);
}
