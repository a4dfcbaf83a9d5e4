/* Loop IR -> C: the frame of a kernel's function, and files of kernels (c.h).
 *
 * In: kernels. Out: text. The same kernel gives the same text. A pointwise kernel becomes
 *
 *     void k0_gelu(void *const *buffer, int64_t low, int64_t high, int pass, void *slot) {
 *         const float *restrict b0 = buffer[0];
 *         float *restrict b1 = buffer[1];
 *         for (int64_t item = low; item < high;) {
 *             const int64_t a0 = item;
 *             const int n = ...;
 *             const float *p0 = b0 + (a0);
 *             #pragma omp simd
 *             for (int l = 0; l < n; l++) ...
 *             item += n;
 *         }
 *     }
 *
 * kernel.h tells the shapes of loop nests apart; sweep.c writes what stands inside of an
 * item. */
#include "codegen/c/c.h"

#include "base/round.h"
#include "codegen/c/kernel.h"

enum {
    TURN_ROWS = 128,  /* most rows of a block of a transposition */
    LINE_LANES = 16,  /* of f32; what has narrower elements has some left, which come in halves */
    NARROW_LANES = 64 /* of a vector of bytes: all wider values take several vectors then */
};

/* ---- frame ------------------------------------------------------------------------------- */

static void bind_buffers(CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    bool inout = false;
    for (int b = 0; b < length(kernel->buffer); b++)
        inout |= kernel->buffer[b].role == BUFFER_INOUT;
    for (int b = 0; b < length(kernel->buffer); b++) {
        const KernelBuffer *buffer = &kernel->buffer[b];
        bool alone = buffer->role == BUFFER_OUT || (buffer->role == BUFFER_IN && !inout);
        alone = alone && !buffer->shared;
        emit_line(&c->e, "%s%s *%sb%d = buffer[%d];", buffer->role == BUFFER_IN ? "const " : "",
                  c_target.storage[buffer->dtype], alone ? "restrict " : "", b, b);
    }
}

/* a0, a1 ...; a split kernel's chunk is the slowest digit. */
static void decompose(CKernel *c, bool chunked) {
    Emit *e = &c->e;
    const Kernel *kernel = e->kernel;
    const char *point = "item";
    if (c->turns) {
        emit_line(e, "const int64_t point = line + row, a%d = column + block;", e->lane_axis);
        emit_coordinates(e, e->lane_axis, "point", "const int64_t a");
        return;
    }
    if (chunked) {
        int64_t first = kernel->axis[kernel->outer_count].size;
        const char *points = emit_size(e, kernel->outer_size), *size = emit_size(e, first);
        const char *step = emit_size(e, divide_up(first, kernel->split));
        emit_line(e, "const int64_t chunk = item / %s, outer = item %% %s;", points, points);
        emit_line(e, "const int64_t begin = chunk * %s;", step);
        emit_line(e, "const int64_t end = begin + %s < %s ? begin + %s : %s;", step, size, step,
                  size);
        point = "outer";
    } else if (c->split) {
        emit_line(e, "const int64_t outer = item;");
    }
    emit_coordinates(e, kernel->outer_count, point, "const int64_t a");
}

static bool tiled(const CKernel *c) { return c->shape == SHAPE_NESTED || c->shape == SHAPE_ARRAY; }

/* Whether a thread begins and ends at whole lines, so that the compiler sees that no loop over
 * lanes has elements left: their code would be most of the kernel's, and of its compile time. Not
 * where nothing is folded: an epilogue is run on what is there of a product, no element more; nor
 * in code that may serve other sizes. */
static bool has_whole_lines(const CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    if (!tiled(c) || c->turns || c->slab || c_weaves(c) || !c->inner_count) return false;
    if (c->e.usage->holes) return false;
    const Axis *lane = &kernel->axis[c->e.lane_axis];
    bool cut = c->edge && c->piece_axis == c->e.lane_axis;
    return !cut && !lane->varies && lane->size % LINE_LANES == 0;
}

/* Before anything that asks how many items there are. */
static void end_at_whole_lines(CKernel *c) {
    if (!has_whole_lines(c)) return;
    emit_line(&c->e, "low = (low + %d) & -%d, high = (high + %d) & -%d;", LINE_LANES - 1,
              LINE_LANES, LINE_LANES - 1, LINE_LANES);
}

/* n of a kernel that has another text for few inner points, and fewer lanes in it. */
static void count_of_few(CKernel *c) {
    Emit *e = &c->e;
    const char *points = emit_size(e, e->kernel->inner_size);
    long long few = (long long)c->few->lanes, lanes = (long long)c->lanes;
    emit_line(e, "const int few = %s > 1 && %s <= %lld && run >= %lld;", points, points,
              (long long)c->few->few_points, few);
    emit_line(e, "const int n = few ? %lld : run < %lld ? (int)run : %lld;", few, lanes, lanes);
}

/* n: lanes of this block, within its run along the last outer axis, and within one piece. */
static void count_lanes(CKernel *c, bool chunked) {
    Emit *e = &c->e;
    int axis = e->lane_axis;
    if (c->slab) {
        emit_line(e, "enum { n = %lld };", (long long)c->slab);
        return;
    }
    if (c->several) {
        const char *columns = emit_size(e, e->kernel->axis[axis].size);
        const char *rows = emit_size(e, e->kernel->axis[e->kernel->outer_count].size);
        emit_line(e, "const int n = (int)%s;", columns);
        emit_line(e, "int several = 4, wide = 4 * n;");
        emit_line(e, "while (wide <= %d && 8 * several <= %s) several *= 2, wide *= 2;",
                  SEVERAL_LANES / 2, rows);
        return;
    }
    emit_line(e, "int64_t run = high - item;");
    if (axis > 0 || chunked) {
        const char *size = emit_size(e, e->kernel->axis[axis].size);
        emit_line(e, "if (run > %s - a%d) run = %s - a%d;", size, axis, size, axis);
    }
    if (c->columns_vary)
        emit_line(e, "const int n = run < most ? (int)run : (int)most;");
    else if (c->edge && c->piece_axis == axis)
        emit_line(e, "int n;"); /* known within a piece */
    else if (c->few)
        count_of_few(c);
    else if (c_weaves(c))
        emit_line(e, "const int n = run < %lld ? 1 : %lld;", (long long)c->lanes,
                  (long long)c->lanes);
    else
        emit_line(e,
                  has_whole_lines(c) ? "const int n = (run < %lld ? (int)run : %lld) & -%d;"
                                     : "const int n = run < %lld ? (int)run : %lld;",
                  (long long)c->lanes, (long long)c->lanes, LINE_LANES);
}

/* No block has lanes of two pieces. */
static void end_before(CKernel *c, int64_t edge) {
    const char *end = emit_size(&c->e, edge);
    emit_line(&c->e, "if (column + block < %s && left > %s - column - block)", end, end);
    emit_line(&c->e, "    left = %s - column - block;", end);
}

static Mark open_items(CKernel *c, bool chunked);
static void close_items(CKernel *c, Mark mark);

/* Blocks of TURN_LANES columns, the last one of those that are left, too, and up to TURN_ROWS rows;
 * what is no whole row goes by itself. */
static void open_turns(CKernel *c) {
    Emit *e = &c->e;
    const char *size = emit_size(e, e->kernel->axis[e->lane_axis].size);
    emit_line(e, "const int64_t line = item / %s, column = item %% %s;", size, size);
    emit_line(e, "int64_t rows = column ? 0 : (high - item) / %s, width = %s;", size, size);
    if (c_has_turned_few(c)) {
        emit_open(e, "if (rows && %s <= %d)", size, TURN_FEW);
        emit_line(e, "%s_few(buffer, line, line + rows, pass, slot);", e->kernel->name);
        emit_line(e, "item += rows * %s;", size);
        emit_line(e, "continue;");
        emit_close(e);
    }
    emit_line(e, "if (rows > %d) rows = %d;", TURN_ROWS, TURN_ROWS);
    emit_open(e, "if (!rows)");
    emit_line(e, "rows = 1;");
    emit_line(e, "width = high - item < %s - column ? high - item : %s - column;", size, size);
    emit_close(e);
    emit_open(e, "for (int64_t block = 0; block < width;)");
    emit_line(e, "int64_t left = width - block;");
    for (int i = 0; c->edge && c->piece_axis == e->lane_axis && i < length(c->edge); i++)
        end_before(c, c->edge[i]);
    emit_line(e, "const int n = left < %d ? (int)left : %d;", 2 * TURN_LANES, TURN_LANES);
    emit_open(e, "for (int64_t row = 0; row < rows; row++)");
}

/* Whether blocks of lanes are counted on from the first one's coordinates, where dividing for each
 * would cost as much as what a short run computes. */
static bool counts_on(const CKernel *c) {
    return tiled(c) && c->e.kernel->outer_count > 1 && !c->turns && !c->split;
}

/* From one block to the next one, which begins in this run or with another. */
static void count_on(CKernel *c) {
    Emit *e = &c->e;
    int lane = e->lane_axis;
    emit_line(e, "at%d += n;", lane);
    for (int axis = lane; axis > 0; axis--) {
        emit_open(e, "if (at%d == %s)", axis, emit_size(e, e->kernel->axis[axis].size));
        emit_line(e, "at%d = 0, at%d++;", axis, axis - 1);
    }
    for (int axis = lane; axis > 0; axis--) emit_close(e);
}

static Mark open_items(CKernel *c, bool chunked) {
    Emit *e = &c->e;
    Mark mark = emit_mark(e);
    int axes = e->kernel->outer_count;
    long long slab = (long long)c->slab;
    if (slab) emit_line(e, "low = (low + %lld) / %lld * %lld;", slab - 1, slab, slab);
    if (c->several) {
        const char *columns = emit_size(e, e->kernel->axis[e->lane_axis].size);
        emit_line(e, "low = (low + %s - 1) / %s * %s;", columns, columns, columns);
    }
    if (counts_on(c)) emit_coordinates(e, axes, "low", "int64_t at");
    emit_open(e, "for (int64_t item = low; item < high;%s)", tiled(c) ? "" : " item++");
    if (c->turns) open_turns(c);
    if (counts_on(c))
        for (int axis = 0; axis < axes; axis++)
            emit_line(e, "const int64_t a%d = at%d;", axis, axis);
    else
        decompose(c, chunked);
    if (tiled(c) && !c->turns) count_lanes(c, chunked);
    return mark;
}

static void close_items(CKernel *c, Mark mark) {
    Emit *e = &c->e;
    if (c->turns) {
        emit_close(e);
        emit_line(e, "block += n;");
        emit_close(e);
        emit_line(e, "item += (rows - 1) * %s + width;",
                  emit_size(e, e->kernel->axis[e->lane_axis].size));
    } else if (tiled(c)) {
        emit_line(e, "item += n;");
        if (counts_on(c)) count_on(c);
    }
    emit_close(e);
    emit_forget(e, mark);
}

void c_store_points(CKernel *c, int pass) {
    (void)pass;
    c_finish(c);
}

void c_lanes_of_item(CKernel *c) {
    Emit *e = &c->e;
    Mark mark = emit_mark(e);
    bool nested = c->shape == SHAPE_NESTED;
    if (c->step_count) {
        c_lanes_in_steps(c);
        return;
    }
    if (nested && c->line) {
        c_lines_loop(c, e->info.pass_count, c_store_points);
        return;
    }
    if (nested) c_open_reading_lanes(c, "");
    for (int pass = 0; pass < e->info.pass_count; pass++) c_sweep(c, pass);
    c_finish(c);
    if (!nested) return;
    emit_close(e);
    emit_forget(e, mark);
    c_flush_outs(c, e->info.pass_count);
}

static Phrase *copy_of_names(CKernel *c) {
    size_t count = c->point_name ? (size_t)(c->e.kernel->inner_size * c->e.count) : 0;
    Phrase *names = arena_new_array(c->e.arena, Phrase, count + 1);
    for (size_t i = 0; i < count; i++) names[i] = c->point_name[i];
    return names;
}

/* What one text declares is unknown to the other. */
static void forget_text(CKernel *c, Mark mark, Phrase *names) {
    emit_forget(&c->e, mark);
    c->point_name = names;
    for (int id = 0; id < c->e.count; id++) c->e.local[id].started = c->e.local[id].kept = false;
}

static void item_of_lanes(CKernel *c, int64_t lanes) {
    emit_line(&c->e, "enum { n = %lld };", (long long)lanes);
    c_lanes_of_item(c);
}

static void item_of_few(CKernel *c) {
    CKernel *few = c->few;
    emit_open(&c->e, "if (few)");
    few->e.indent = c->e.indent;
    few->hidden = c->hidden;
    c_keep_rows(few);
    item_of_lanes(few, few->lanes);
    emit_close(&c->e);
    emit_open(&c->e, "else");
}

/* Of walks over blocks nearly all have TURN_LANES columns: so many are text, which spares the
 * compiler's loop for others. Rows that are woven are as many as they can be, or one. */
void c_item(CKernel *c) {
    Emit *e = &c->e;
    bool tiles = length(c->tiled) > 0;
    bool twice = (c->turns && !tiles) || c_weaves(c);
    if (c->shape == SHAPE_NESTED) c_before_lanes(c);
    if (tiles) {
        c_item_of_tiles(c);
        emit_open(e, "else");
    }
    if (twice) {
        Phrase *names = copy_of_names(c);
        Mark mark = emit_mark(e);
        emit_open(e, "if (n == %lld)", (long long)c->lanes);
        item_of_lanes(c, c->lanes);
        emit_close(e);
        emit_open(e, "else");
        forget_text(c, mark, names);
    }
    if (c->few) item_of_few(c);
    if (c_weaves(c))
        item_of_lanes(c, 1);
    else
        c_lanes_of_item(c);
    if (twice || c->few) emit_close(e);
    if (tiles) emit_close(e);
}

/* ---- split kernels ----------------------------------------------------------------------- */

/* Where the slots of a reduction begin. */
static const char *first_slot(Emit *e, int reduce) {
    return emit_long(e, reduce * e->kernel->outer_size * e->kernel->split);
}

/* Accumulators that the pass completes -> the caller's slots (lower/function.h). */
static void write_slots(CKernel *c, int pass) {
    Emit *e = &c->e;
    bool array = c->shape == SHAPE_ARRAY, any = false;
    for (int r = 0; r < c->reduce_count; r++) {
        const Expr *x = e->info.reduce[r];
        if (e->info.expr[x->id].pass != pass) continue;
        if (array && !any) c_open_lanes(c, "");
        any = true;
        emit_line(e, "%s[%s + item%s] = %s;", dtype_is_float(x->dtype) ? "slot_f" : "slot_i",
                  first_slot(e, r), array ? " + l" : "", e->local[x->id].name.text);
    }
    if (array && any) emit_close(e);
}

static void split_passes(CKernel *c) {
    Emit *e = &c->e;
    emit_line(e, "double *slot_f = slot;");
    emit_line(e, "int64_t *slot_i = slot;");
    e->reduce_leaves = true;
    c->slot_item = "outer";
    for (int pass = 0; pass <= e->info.pass_count; pass++) {
        bool last = pass == e->info.pass_count;
        emit_open(e, "if (pass == %d)", pass);
        Mark mark = open_items(c, !last);
        if (last) {
            c_finish(c);
        } else {
            c_sweep(c, pass);
            write_slots(c, pass);
        }
        close_items(c, mark);
        emit_close(e);
    }
}

/* ---- entry ------------------------------------------------------------------------------- */

void c_keep_rows(CKernel *c) {
    Emit *e = &c->e;
    int64_t lanes = c->shape == SHAPE_ARRAY ? c->lanes : 1;
    for (int id = 0; id < e->count; id++)
        if (e->local[id].cached)
            emit_line(e, "%s row%u[%lld] __attribute__((aligned(64)));",
                      c_array_type(c, e->kernel->expr[id]->dtype), emit_number(e, (uint32_t)id),
                      (long long)(c_room_of_rows(c) * lanes));
}

/* Additions in the text of the kernel's loops. */
static int64_t arithmetic(const CKernel *c) {
    int64_t cost = 0;
    for (int id = 0; id < c->e.count; id++) {
        const Expr *x = c->e.kernel->expr[id];
        bool counts = c->e.info.expr[id].users && x->op < OP_COUNT && x->op != OP_constant;
        int64_t copies = c->written_out && c->e.local[id].inner ? c->e.kernel->inner_size : 1;
        if (counts) cost += copies * op_info(x->op)->cost;
    }
    return cost;
}

/* Bytes beside wider values: a vector of bytes makes several of everything else. Where no elements
 * are left over at the end of a run, or few, the scalar code for them costs nothing. */
static int64_t vectors_at_once(const CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    int axis = c->e.lane_axis;
    if (axis == NO_LANE) return 1;
    int64_t lanes = axis_typical(kernel, axis);
    if (lanes % NARROW_LANES && lanes < 16 * NARROW_LANES) return 1;
    for (int b = 0; b < length(kernel->buffer); b++)
        if (cb_dtype_size(kernel->buffer[b].dtype) == 1) return 4;
    return 1;
}

void c_all_items(CKernel *c) {
    if (c->split) {
        split_passes(c);
        return;
    }
    Mark mark = open_items(c, false);
    c_item_in_pieces(c);
    close_items(c, mark);
}

/* Columns that are few, or may be. */
static void items_of_few_columns(CKernel *c) {
    Emit *e = &c->e;
    const Axis *axis = &e->kernel->axis[e->lane_axis];
    const char *columns = emit_size(e, axis->size);
    if (axis->varies) emit_open(e, "if (%s > 1 && %s <= %d)", columns, columns, SEVERAL_COLUMNS);
    c->few_columns->e.indent = e->indent;
    c->few_columns->hidden = c->hidden;
    c_all_items(c->few_columns);
    if (!axis->varies) return;
    emit_line(e, "return;");
    emit_close(e);
}

/* Dear rows of few points. */
static void items_across(CKernel *c) {
    Emit *e = &c->e;
    const char *points = emit_size(e, e->kernel->axis[e->kernel->outer_count].size);
    emit_open(e, "if (%s > 1 && %s <= %d)", points, points, ACROSS_POINTS);
    c->across->e.indent = e->indent;
    c->across->hidden = c->hidden;
    c_keep_rows(c->across);
    if (c->across->columns) c_repeat_columns(c->across);
    c_all_items(c->across);
    emit_line(e, "return;");
    emit_close(e);
}

void c_open_function(CKernel *c, const char *kind, const char *suffix) {
    Emit *e = &c->e;
    emit_open(e, "%s %s%s(void *const *buffer, int64_t low, int64_t high, int pass, void *slot)",
              kind, e->kernel->name, suffix);
    hole_declare(e->usage->holes, length(e->kernel->buffer), e->out);
    bind_buffers(c);
}

bool c_kernel(Kernel *kernel, Usage *usage, Buffer *out) {
    CKernel *c = c_prepare(kernel, NULL, TURNS_CHOSEN, usage, out);
    Emit *e = &c->e;
    usage->strips |= c->strip > 0;
    c_choose_pieces(c);
    c_choose_steps(c);
    c_choose_flat_rows(c);
    c_choose_lengths(c);
    c_choose_across(c);
    c_choose_tiles(c);
    put(out, "\n");
    c_lane_functions(c);
    if (kernel->origin && kernel->origin[0]) putf(out, "/* %s */\n", kernel->origin);
    bool apart = c->flat_rows != NULL;
    if (c_has_turned_few(c)) c_function_of_turned_few(c);
    bool near = c_may_be_near(c);
    if (near) c_function_of_near(c);
    bool tiles = c->tiled && usage->holes;
    if (tiles) c_function_of_tiles(c);
    c_open_function(c, apart ? "static __attribute__((noinline)) void" : "void",
                    apart ? "_all" : "");
    if (near) c_call_near(c);
    if (tiles) c_call_tiles(c);
    c_keep_rows(c);
    c_hide_run(c);
    c_declare_strides(c);
    end_at_whole_lines(c);
    if (c->columns) c_repeat_columns(c);
    if (c->few_columns) items_of_few_columns(c);
    if (c->longest && c->shape == SHAPE_ARRAY) c_rows_by_length(c, e->kernel);
    if (c->across) items_across(c);
    c_short_rows(c);
    bool all = !c->few_columns || kernel->axis[e->lane_axis].varies;
    if (all) c_all_items(c);
    if (c->any_stream) emit_line(e, "stream_fence();");
    usage->helper[HELPER_stream] |= c->any_stream;
    emit_close(e);
    if (apart) c_kernel_of_flat_rows(c);
    return arithmetic(c) * vectors_at_once(c) > HEAVY_ARITHMETIC;
}

void c_render(const Kernel *const *kernel, Holes *holes, int count, Buffer *out) {
    Buffer file = buffer_new(out->arena);
    if (target_render(&c_target, kernel, holes, count, &file)) put(out, C_HEAVY);
    put_bytes(out, file.text, file.length);
}

void c_render_kernel(const Kernel *kernel, Holes *holes, Buffer *out) {
    Usage *usage = arena_zalloc(out->arena, sizeof *usage);
    usage->holes = holes;
    c_kernel(kernel_over(kernel, out->arena), usage, out);
}
