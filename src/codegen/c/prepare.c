/* How a kernel is written in C: the shape of its loop nest, lanes, strips and what it keeps
 * (kernel.h), chosen from its sizes and expressions alone.
 *
 * In: a kernel, and of a row the piece that is written (NULL: all of it). Out: a CKernel, of which
 * c.c writes the frame and sweep.c the inside. */
#include "codegen/c/kernel.h"

#include "base/cpu.h"
#include "base/round.h"
#include "lower/index.h"

enum {
    WRITTEN_OUT = 400,      /* terms of a NESTED kernel times its inner points */
    NESTED_INNER = 8,       /* longest inner range that is unrolled inside of the lanes */
    NESTED_SHORT = 16,      /* the same of a short run without conditions: a window of 4 x 4 */
    SHORT_RUN = 128,        /* lanes whose loops cost as much as what they compute */
    WHOLE_RUN = 1 << 30,    /* lanes of a kernel that keeps nothing in arrays */
    TURN_BYTES = 256 << 10, /* from this size of a buffer on */
    ARRAY_BYTES = 32 << 10, /* of all arrays of an ARRAY kernel: they stay in L1 */
    VARYING_ROWS = 128,     /* of a block: of 24 elements they stay in L1, too */
    KEEP_BYTES = 64 << 10,  /* of what ARRAY kernels keep: half of an L2 at the least */
    ROW_SUM_BLOCK = 4096,   /* terms of one partial sum in strips */
    SUM_BLOCK = 1024,       /* the same without strips */
    STRIP_BYTES = 128,      /* of a strip: two vectors of AVX-512, whose sums do not wait */
    SCAN_BYTES = 1024,      /* of a strip of scans: vectors do not wait for the loop before */
    LINE_BYTES = 64,
    WEAVE_ROWS = 4, /* of scans at a time: with what they write, less lines than a set has */
    WEAVE_LANES = 16,
    WEAVE_COST = 12, /* additions for each point, from which on vectors make up for gathering */
    FEW_LANES = 64,  /* four vectors of AVX-512, which stay in registers for all of few points: */
    FEW_ROWS = 128,  /* of so many, if what they keep leaves room */
    LEAST_OF_SEVERAL = 256, /* rows of which several are lanes at a time */
    PART_LANES = 9          /* of a piece of a row whose length varies: its own does, too */
};

int c_own_cost(const Expr *x) {
    if (x->op == EX_load) return 1;
    return x->op < OP_COUNT && x->op != OP_constant ? op_info(x->op)->cost : 0;
}

/* A load with a condition, at the border of a padded window. ARRAY kernels test it once for all
 * lanes. */
static bool has_guard(const Kernel *kernel) {
    for (int id = 0; id < length(kernel->expr); id++)
        if (kernel->expr[id]->op == EX_load && kernel->expr[id]->input_count > 1) return true;
    return false;
}

/* Whether an expression is computed in the lanes of a NESTED kernel. Index arithmetic mostly stays
 * outside, unless conditions need it. */
static bool is_term(const CKernel *c, int id) {
    return c->e.info.expr[id].users || has_guard(c->e.kernel);
}

int64_t c_whole_cost(const CKernel *c) {
    int64_t cost = 0;
    for (int id = 0; id < length(c->e.kernel->expr); id++)
        if (is_term(c, id)) cost += c_own_cost(c->e.kernel->expr[id]);
    return cost;
}

/* Whether lanes along the axis load or store elements of a buffer, or compute with values as wide.
 * What is one for all of them is no vector, and what only says where others are is read one by one
 * (c_gather). */
static bool meets_lanes(const CKernel *c, int axis, int buffer) {
    const Kernel *kernel = c->e.kernel;
    size_t size = cb_dtype_size(kernel->buffer[buffer].dtype);
    for (int s = 0; s < length(kernel->store); s++) {
        const Store *store = &kernel->store[s];
        if (store->buffer == buffer && expr_uses_axis(store->index, axis)) return true;
    }
    for (int id = 0; id < length(kernel->expr); id++) {
        const Expr *x = kernel->expr[id];
        bool vector = expr_uses_axis(x, axis) || x->op == EX_reduce;
        if (!vector || !c->e.info.expr[id].users || index_is_computed(x)) continue;
        bool loads = x->op == EX_load && x->imm.i == buffer;
        if (loads || (size > sizeof(float) && cb_dtype_size(x->dtype) >= size)) return true;
    }
    return false;
}

/* The widest element that meets lanes along an axis. */
static int64_t widest(const CKernel *c, int axis) {
    int64_t bytes = 4;
    for (int b = 0; b < length(c->e.kernel->buffer); b++) {
        int64_t own = (int64_t)cb_dtype_size(c->e.kernel->buffer[b].dtype);
        if (own > bytes && meets_lanes(c, axis, b)) bytes = own;
    }
    return bytes;
}

static bool has_buffer_of(const Kernel *kernel, cb_dtype dtype) {
    for (int b = 0; b < length(kernel->buffer); b++)
        if (kernel->buffer[b].dtype == dtype) return true;
    return false;
}

/* Converted one by one they cost more than all else. */
bool c_has_halves(const Kernel *kernel) {
    return has_buffer_of(kernel, CB_F16) || has_buffer_of(kernel, CB_BF16);
}

static bool sets_alone(const Kernel *kernel) {
    for (int s = 0; s < length(kernel->store); s++)
        if (kernel->store[s].mode != STORE_SET) return false;
    return true;
}

/* Rows of scans that lie in memory one after the other: lanes across all of them would take a cache
 * line for each element, and be back for the next one of the line when it has left the cache. A few
 * rows, as many as keep the adder busy, are woven: walked side by side. Where there is much to
 * compute besides, lanes go along the row (scan.c), or across a vector of rows that are short. */
static void choose_scans(CKernel *c, int64_t cost) {
    const Kernel *kernel = c->e.kernel;
    int lane = kernel->outer_count - 1, last = length(kernel->axis) - 1;
    if (!kernel_has_scan(kernel) || last <= lane) return;
    bool light = cost < WEAVE_COST && !c_has_halves(kernel);
    bool strips = axis_typical(kernel, last) >= SCAN_BYTES / widest(c, last) && sets_alone(kernel);
    if (!light && strips) {
        c->shape = SHAPE_ROW;
        c->e.lane_axis = last;
    } else if (lane >= 0 && axis_typical(kernel, lane) >= WEAVE_ROWS) {
        c->shape = SHAPE_ARRAY;
        c->e.lane_axis = lane;
        c->weave = light ? WEAVE_ROWS : WEAVE_LANES;
        c->scalar = c->e.one_by_one = light;
    }
}

/* Of a kernel that is one of few points (choose_few). */
static bool has_few(const Kernel *kernel, bool inner) {
    for (int a = 0; a < length(kernel->axis); a++)
        if (kernel->axis[a].few && kernel->axis[a].varies && kernel->axis[a].inner == inner)
            return true;
    return false;
}

static void choose_shape(CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    int axes = length(kernel->axis), outer = kernel->outer_count;
    bool folds = length(c->e.info.reduce) > 0;
    c->e.lane_axis = NO_LANE;
    c->shape = SHAPE_SERIAL;
    int64_t cost = c_whole_cost(c);
    int64_t inner_size = kernel_typical_row(kernel);
    bool heavy = inner_size * cost > HEAVY_ARITHMETIC;
    bool gathers = c_gathers_rows(c->e.kernel, folds, cost);
    c_choose_columns(c, heavy || (folds && gathers), STRIP_BYTES / widest(c, outer));
    bool slab = c_choose_slab(c),
         short_scan = inner_size <= NESTED_INNER && kernel_has_scan(kernel);
    bool across = kernel->form == FORM_TILE || c->columns || short_scan || slab;
    if (across && outer > 0 && axis_typical(kernel, outer - 1) > 1) {
        bool run_is_short = axis_typical(kernel, outer - 1) <= SHORT_RUN;
        int64_t most = run_is_short && !has_guard(kernel) ? NESTED_SHORT : NESTED_INNER;
        bool by_point = inner_size > most || gathers || c->columns || c->slab ||
                        has_few(kernel, true) || has_few(kernel, false);
        bool arrays = c->inner_count > 0 && (c->split || by_point || heavy);
        c->shape = arrays ? SHAPE_ARRAY : SHAPE_NESTED;
        c->e.lane_axis = outer - 1;
    }
    if (c->shape != SHAPE_ARRAY) c->columns = 0;
    if (!across) choose_scans(c, cost);
    bool row = !across && axes > outer && axis_typical(kernel, axes - 1) > 1;
    if (row && !kernel_in_order(kernel)) {
        c->shape = SHAPE_ROW;
        c->e.lane_axis = axes - 1;
    }
}

/* Compilers vectorize lanes around straight code, so short inner ranges become that. */
static void choose_text(CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    int64_t size = 0;
    for (int id = 0; id < length(kernel->expr); id++)
        size += is_term(c, id) * kernel_typical_row(kernel);
    c->written_out = c->shape == SHAPE_NESTED && c->inner_count && size <= WRITTEN_OUT;
    c->e.written_out = c->written_out && !kernel_has_scan(kernel);
}

/* Levels of the loops, outermost first (emit.h). */
static void choose_levels(CKernel *c) {
    Emit *e = &c->e;
    int outer = e->kernel->outer_count, m = c->inner_count;
    e->axis_level = arena_new_array(e->arena, int, outer + m + 1);
    bool nested = c->shape == SHAPE_NESTED, array = c->shape == SHAPE_ARRAY;
    for (int j = 0; j < m; j++) e->axis_level[outer + j] = j + (nested || c->slab ? 2 : 1);
    e->row_level = nested ? 1 : array ? m + 1 : 0;
    e->lane_level = nested ? 1 : m + 1;
    e->body_level = c->shape == SHAPE_SERIAL ? m : m + 1;
    if (e->lane_axis != NO_LANE) e->axis_level[e->lane_axis] = e->lane_level;
}

static bool turns_at(CKernel *c, Expr *index, int buffer) {
    Kernel *kernel = c->e.kernel;
    int64_t *stride = arena_new_array(c->e.arena, int64_t, length(kernel->axis));
    Expr *rest;
    const KernelBuffer *b = &kernel->buffer[buffer];
    int lane = c->e.lane_axis;
    bool varies = kernel->axis[lane].varies || kernel->axis[lane - 1].varies;
    if (!varies && b->numel * (int64_t)cb_dtype_size(b->dtype) < TURN_BYTES) return false;
    if (!index_affine(kernel, index, stride, &rest)) return false;
    bool apart = stride[lane] >= TURN_LANES || stride_varies(kernel, stride[lane]);
    bool close = stride[lane - 1] < TURN_LANES && !stride_varies(kernel, stride[lane - 1]);
    return apart && close && stride[lane - 1] > 0;
}

/* Whether walking along the lanes alone would touch a cache line for each element and come back for
 * the next one of the line a whole run later. */
static void choose_turns(CKernel *c) {
    Kernel *kernel = c->e.kernel;
    int lane = c->e.lane_axis, count = length(kernel->expr);
    if (c->shape != SHAPE_NESTED || lane < 1) return;
    if (axis_typical(kernel, lane) < TURN_LANES || axis_typical(kernel, lane - 1) < TURN_LANES)
        return;
    bool straight = false;
    for (int id = 0; id < count; id++) {
        const Expr *x = kernel->expr[id];
        if (x->op != EX_load) continue;
        bool turns = turns_at(c, x->input[0], (int)x->imm.i);
        c->turns |= turns, straight |= !turns && expr_uses_axis(x->input[0], lane);
    }
    for (int s = 0; s < c->store_count; s++)
        c->turns |= turns_at(c, kernel->store[s].index, kernel->store[s].buffer);
    /* Each number is compiled; rows that are read straight are gathered by some of them. */
    bool cheap = TURN_FEW * c_whole_cost(c) <= HEAVY_ARITHMETIC && !straight;
    c->turns_few = c->turns && cheap && kernel->axis[lane].varies && !c->inner_count && !c->split;
}

static int array_count(const Kernel *kernel) {
    int count = 4; /* row-level values, partial sums */
    for (int id = 0; id < length(kernel->expr); id++)
        count += kernel->expr[id]->op == EX_reduce || kernel->expr[id]->op == EX_scan;
    return count;
}

static bool has_float_sum(const Kernel *kernel) {
    for (int id = 0; id < length(kernel->expr); id++) {
        const Expr *x = kernel->expr[id];
        if (x->op == EX_reduce && reduce_adds(x->imm.i) && dtype_is_float(x->dtype)) return true;
    }
    return false;
}

/* Whether lanes are rows behind one another whose length varies: each point of a block comes back
 * to the lines of the one before. */
static bool rows_vary(const CKernel *c) {
    Kernel *kernel = c->e.kernel;
    for (int id = 0, count = length(kernel->expr); id < count; id++) {
        const Expr *x = kernel->expr[id];
        int64_t stride;
        Expr *rest;
        if (x->op != EX_load || !expr_uses_inner(kernel, x->input[0])) continue;
        bool linear = index_linear(kernel, x->input[0], c->e.lane_axis, &stride, &rest);
        if (linear && stride_varies(kernel, stride)) return true;
    }
    return false;
}

static void choose_lanes(CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    c->lanes = 0;
    if (c->shape == SHAPE_NESTED)
        c->lanes = c->any_stream || has_buffer_of(kernel, CB_F16) ? STREAM_LANES : WHOLE_RUN;
    if (c->turns) c->lanes = TURN_LANES;
    if (c->shape == SHAPE_ARRAY) {
        int64_t lanes = ARRAY_BYTES / (8 * array_count(kernel)) / 64 * 64;
        c->lanes = lanes < 64 ? 64 : lanes > STREAM_LANES ? STREAM_LANES : lanes;
        if (c->columns) c->lanes = least(c->lanes, c_flat_lanes(c));
        if (rows_vary(c) && !c->columns_vary) c->lanes = least(c->lanes, VARYING_ROWS);
        if (c->weave) c->lanes = c->weave;
        if (c->slab) c->lanes = c->slab;
        if (has_few(kernel, true) && !c->columns) c->lanes = FEW_LANES;
        if (has_few(kernel, false)) c->lanes = SEVERAL_LANES;
    }
    c->e.origin_level = 0;
    c->out_lanes = c->lanes;
    if (c->shape != SHAPE_ROW) return;
    int64_t row = axis_typical(kernel, c->e.lane_axis);
    int64_t block = c->strip ? ROW_SUM_BLOCK : SUM_BLOCK;
    if (row > block + block / 2 && has_float_sum(kernel))
        c->lanes = block;
    else if (row > WHOLE_RUN)
        c->lanes = WHOLE_RUN;
    if (c->any_stream && row > 4 * STREAM_LANES) c->lanes = STREAM_LANES;
    c->out_lanes = c->lanes ? c->lanes : row;
    if (c->lanes) c->e.origin_level = c->e.lane_level - 1;
}

/* Lanes of a row, or of the piece of one. A piece that is a good part of a row that varies does,
 * too. */
static int64_t run_of(const CKernel *c) {
    int64_t row = axis_typical(c->e.kernel, c->e.lane_axis);
    if (!c->range) return row;
    int64_t lanes = c->range->high - c->range->low;
    bool part = c->e.kernel->axis[c->e.lane_axis].varies && lanes >= PART_LANES;
    return part ? row / 2 : lanes;
}

/* Whether all elements of lanes have four bytes, as f16 have in arrays, or all have eight: AVX2
 * leaves out no others. */
static bool has_one_width(const CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    int64_t wide = widest(c, c->e.lane_axis);
    for (int b = 0; b < length(kernel->buffer); b++) {
        cb_dtype dtype = kernel->buffer[b].dtype;
        int64_t own = dtype == CB_F16 ? (int64_t)sizeof(float) : (int64_t)cb_dtype_size(dtype);
        if (own != wide && meets_lanes(c, c->e.lane_axis, b)) return false;
    }
    return true;
}

/* Whether the compiler must not see the length of a run that has a tail: it makes vectors of just
 * so many lanes of it, and where an accumulator is stored by one, whoever reads the whole one
 * waits. AVX2's masks are as slow as that. Where no mask leaves lanes out (may_mask), nothing is
 * hidden: a short run is then better no strip at all. */
static bool run_is_hidden(const CKernel *c, int64_t strip) {
    const Axis *axis = &c->e.kernel->axis[c->e.lane_axis];
    bool cut = c->lanes || c->range || c->split || c->slab, folds = length(c->e.info.reduce) > 0;
    return cpu_level() >= CPU_V4 && folds && !axis->varies && !cut && axis->size > strip / 2 &&
           axis->size % (strip / 2) != 0 && has_one_width(c);
}

static void choose_strip(CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    if (c->shape != SHAPE_ROW) return;
    int64_t bytes = kernel_has_scan(kernel) ? SCAN_BYTES : STRIP_BYTES;
    int64_t strip = bytes / widest(c, c->e.lane_axis), run = run_of(c);
    for (int s = 0; s < c->store_count; s++) {
        int64_t line =
            LINE_BYTES / (int64_t)cb_dtype_size(kernel->buffer[kernel->store[s].buffer].dtype);
        if (c->streams[s] && line > strip) strip = line;
    }
    bool whole = run % strip == 0;
    if (c->split && c->e.lane_axis == kernel->outer_count) {
        int64_t part = (axis_typical(kernel, c->e.lane_axis) + kernel->split - 1) / kernel->split;
        run = least(run, part);
        whole &= part % strip == 0 && !c->range; /* parts end anywhere in a piece */
    }
    bool open = kernel->axis[c->e.lane_axis].varies && !c->any_stream; /* others are no multiple */
    c->tail = !whole || open;
    bool long_enough = run >= strip || run_is_hidden(c, strip);
    c->strip = open || ((whole || !c->any_stream) && long_enough) ? strip : 0;
}

static const char *origin(const CKernel *c) {
    bool row = c->shape == SHAPE_ROW;
    if (c->e.lane_axis == NO_LANE) return NULL;
    if (c->range && !c->lanes) return "from";
    if (!row || c->lanes) return arena_format(c->e.arena, "a%d", c->e.lane_axis);
    return c->split && c->e.lane_axis == c->e.kernel->outer_count ? "begin" : NULL;
}

/* Inner points that arrays have room for: where sizes vary, those of the next power of two, and in
 * whole vectors where the compiler must not find out how long a row is. */
int64_t c_room_of_rows(const CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    bool varies = false;
    for (int a = kernel->outer_count; a < length(kernel->axis); a++)
        varies |= kernel->axis[a].varies;
    if (c->few_points) return c->few_points;
    if (!varies && c->shape == SHAPE_ROW) return (kernel->inner_size + 63) / 64 * 64;
    if (!varies) return kernel->inner_size;
    int64_t room = TYPICAL_MOST;
    while (room < kernel->inner_size) room *= 2;
    return room;
}

/* ARRAY kernels keep the values that cost much and that a later sweep uses, for all lanes of a
 * block, if blocks need not become too small for it. */
static void keep_columns(CKernel *c) {
    Emit *e = &c->e;
    if (c->shape != SHAPE_ARRAY || c->split || has_few(e->kernel, false)) return;
    int64_t *cost = arena_new_array(e->arena, int64_t, e->count + 1);
    int64_t kept = 0;
    for (int id = 0; id < e->count; id++) {
        const Expr *x = e->kernel->expr[id];
        Local *local = &e->local[id];
        cost[id] = c_own_cost(x);
        for (int i = 0; i < x->input_count; i++) {
            const Local *input = &e->local[x->input[i]->id];
            if (input->inner && !input->cached && cost[id] < KEEP_COST)
                cost[id] += cost[x->input[i]->id];
        }
        bool again = e->info.expr[id].users && local->last_use > e->info.expr[id].pass;
        bool value = local->inner && local->level == e->body_level && x->op != EX_scan;
        local->cached = again && value && cost[id] >= KEEP_COST;
        kept += local->cached;
    }
    if (has_few(e->kernel, true))
        c->few_points = kept ? least(FEW_ROWS, KEEP_BYTES / (8 * FEW_LANES * kept)) : FEW_ROWS;
    int64_t bytes = 8 * kept * c_room_of_rows(c);
    int64_t lanes = bytes ? KEEP_BYTES / bytes / 64 * 64 : c->lanes;
    if (c->slab && bytes * c->slab <= KEEP_BYTES) return;
    if (lanes >= 64 && lanes < c->lanes) c->lanes = c->out_lanes = lanes;
    for (int id = 0; id < e->count && lanes < 64; id++) e->local[id].cached = false;
    c->row_stride = c->lanes;
}

/* Calls do not vectorize inside of loops that are inside of the lanes. */
static void choose_calls(CKernel *c) {
    Emit *e = &c->e;
    int64_t cost = 0, copies = c->written_out ? e->kernel->inner_size : 1;
    e->apart = c->shape != SHAPE_NESTED || c->inner_count == 0 || c->written_out;
    for (int id = 0; id < e->count; id++) {
        const Expr *x = e->kernel->expr[id];
        if (!e->info.expr[id].users || !emit_calls_apart(e, x)) continue;
        cost += op_info(x->op)->cost * (e->local[id].inner ? copies : 1);
    }
    e->apart &= cost > APART_ARITHMETIC;
}

/* Elements of one width, and nothing that gcc leaves scalar below a condition (calls), or compiles
 * wrongly (loads that have one already: PRAGMAS). */
static bool may_mask(const CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    if (!has_one_width(c)) return false;
    for (int s = 0; s < length(kernel->store); s++) {
        StoreMode mode = kernel->store[s].mode;
        if (kernel->store[s].guard || (mode != STORE_SET && mode != STORE_SUM)) return false;
    }
    for (int id = 0; id < c->e.count; id++) {
        const Expr *x = kernel->expr[id];
        if (!c->e.info.expr[id].users && !c->e.info.expr[id].index_only) continue;
        bool guarded = x->op == EX_load && x->input_count > 1;
        bool calls = emit_calls_apart(&c->e, x) && c->shape == SHAPE_ROW;
        if (guarded || calls) return false;
    }
    return !kernel_has_scan(kernel);
}

/* Whether what lanes load and store lies side by side. */
static bool is_straight(const CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    for (int id = 0; id < c->e.count; id++) {
        const Expr *x = kernel->expr[id];
        const Access *access = &c->e.load[id];
        if (x->op != EX_load || !expr_uses_axis(x, c->e.lane_axis)) continue;
        if (!access->linear || access->stride != 1) return false;
    }
    for (int s = 0; s < c->store_count; s++)
        if (!c->e.store[s].linear || c->e.store[s].stride != 1) return false;
    return true;
}

/* Sums by lane of columns, and points of rows whose length varies: one by one, what is left of a
 * run behind its last whole vector would cost as much as many of these. */
static bool has_line_ends(const CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    if (c->any_stream || c->e.lane_axis == NO_LANE) return false;
    const Axis *axis = &kernel->axis[c->e.lane_axis];
    if (c->shape == SHAPE_NESTED)
        return axis->varies && c->e.lane_axis > 0 && !c->inner_count && !c->turns &&
               !c_has_halves(kernel);
    if (c->shape != SHAPE_ARRAY || c->columns || c->slab || c->weave) return false;
    if (has_few(kernel, true) || has_few(kernel, false)) return false;
    return axis->varies || c->e.usage->holes ||
           axis->size % (LINE_BYTES / widest(c, c->e.lane_axis)) > 1;
}

/* Such lanes end in a vector under a mask. Not where all are known to be whole lines
 * (has_whole_lines), or one is left, which costs no more by itself. */
static void choose_line(CKernel *c) {
    if (!has_line_ends(c) || !is_straight(c) || !may_mask(c)) return;
    int64_t wide = widest(c, c->e.lane_axis);
    c->masks_wide = wide > (int64_t)sizeof(float);
    c->line = (int)(LINE_BYTES / wide);
}

/* Of a slab: elements that are one for all columns are read one by one. */
static bool reads_rows(const CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    for (int id = 0; id < length(kernel->expr); id++) {
        const Expr *x = kernel->expr[id];
        bool row = x->op == EX_load && expr_uses_inner(kernel, x);
        if (row && !expr_uses_axis(x, c->e.lane_axis)) return true;
    }
    return false;
}

/* Lanes of the tail are left out by a mask where their number is not in the text. */
static void choose_masks(CKernel *c) {
    if (!c->strip || !c->tail || (c->slab && reads_rows(c)) || !may_mask(c)) return;
    c->hides_run = run_is_hidden(c, c->strip);
    c->masks_wide = widest(c, c->e.lane_axis) > (int64_t)sizeof(float);
    int along = c->slab ? c->e.kernel->outer_count : c->e.lane_axis;
    c->masked = c->hides_run || c->e.kernel->axis[along].varies;
}

/* Columns whose number varies, or that are no whole vectors, of so many rows that adding up those
 * of several at the end costs little. */
static bool are_several(const CKernel *c) {
    const Axis *columns = &c->e.kernel->axis[c->e.lane_axis];
    bool rows = kernel_typical_row(c->e.kernel) >= LEAST_OF_SEVERAL;
    if (columns->varies) return c->e.usage->holes;
    return rows && columns->size <= SEVERAL_COLUMNS && columns->size % (LINE_BYTES / 4) != 0;
}

/* Columns that are folded over rows whose number varies and may be small: what lanes keep in arrays
 * from row to row costs more than the rows then. For few there is another text, whose lanes are
 * so many that they stay in registers. And where the number of columns varies, one for few of
 * these, whose lanes are those of several rows. */
static void choose_few(CKernel *c) {
    Kernel *kernel = c->e.kernel;
    int rows = kernel->outer_count, lane = c->e.lane_axis;
    bool one = c->shape == SHAPE_ARRAY && c->inner_count == 1 && c->reduce_count;
    c->several = has_few(kernel, false);
    if (!one || c->several || has_few(kernel, true)) return;
    if (c->columns || c->slab || c->weave || kernel_has_scan(kernel)) return;
    if (FEW_POINTS * c_whole_cost(c) > APART_ARITHMETIC || c_has_halves(kernel) || c->any_stream)
        return;
    if (kernel->axis[rows].varies && !c->split && c->e.usage->holes) {
        CKernel *few =
            c_prepare(kernel_of_few(kernel, rows), NULL, TURNS_CHOSEN, c->e.usage, c->e.out);
        /* rows that lie are gathered in both */
        if (!rows_vary(c) || c_keeps_any(few)) c->few = few;
    }
    if (are_several(c) && c_may_go_by_several(c))
        c->few_columns =
            c_prepare(kernel_of_few(kernel, lane), NULL, TURNS_CHOSEN, c->e.usage, c->e.out);
}

/* The longest row with a text of its own, of those that take the compiler no longer than all else;
 * 0: none. */
int c_longest_text(const CKernel *c) {
    int64_t cost = c_whole_cost(c), points = 0;
    int longest = 0;
    for (int length = 2; length <= LENGTH_MOST; length = c_next_length(length)) {
        points += length;
        if (points * cost <= HEAVY_ARITHMETIC) longest = length;
    }
    return longest;
}

/* Rows of a few points, each a lane, whose number varies: for some numbers, which compilers take
 * apart in registers, there are texts in which they are literal. */
void c_choose_lengths(CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    bool rows = c->shape == SHAPE_ARRAY && c->inner_count == 1 && !c->split && !c->any_stream;
    if (!rows || !c->e.usage->holes || !kernel->axis[kernel->outer_count].varies) return;
    if (c->columns || c->slab || c_has_halves(kernel) || has_guard(kernel)) return;
    if (rows_vary(c)) c->longest = c_longest_text(c);
}

/* Dear rows whose length varies have another text for up to ACROSS_POINTS, with lanes across them,
 * as literal ones of these lengths have (least_along in sched/form.c). Where lanes go across rows
 * anyway, what is stored for each point goes along them in it. */
void c_choose_across(CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    const RowWork work = kernel_row_work(kernel);
    int points = kernel->outer_count;
    bool folds = c->inner_count == 1 && points > 0 && row_is_dear(&work) && !c->split;
    if (!folds || !c->e.usage->holes || !kernel->axis[points].varies || c->any_stream) return;
    if (c_has_halves(kernel) || !sets_alone(kernel) || kernel_has_scan(kernel)) return;
    if (c->shape != SHAPE_ROW && c->shape != SHAPE_ARRAY) return;
    Kernel *few = kernel_of_few(kernel, points);
    few->form = FORM_TILE;
    CKernel *across = c_prepare(few, NULL, TURNS_CHOSEN, c->e.usage, c->e.out);
    if (across->shape != SHAPE_ARRAY || c_keeps_any(across)) return;
    if (c->shape == SHAPE_ROW || across->columns) c->across = across;
}

CKernel *c_prepare(Kernel *kernel, const RowRange *range, Turning turns, Usage *usage,
                   Buffer *out) {
    CKernel *c = arena_zalloc(out->arena, sizeof *c);
    Emit *e = &c->e;
    c->range = range;
    c->turns = turns == TURNS_IN;
    *e = (Emit){.target = &c_target,
                .kernel = kernel,
                .arena = out->arena,
                .out = out,
                .usage = usage,
                .suffix = "",
                .keeps_rows = true};
    c->axis_value = arena_new_array(e->arena, int64_t, length(kernel->axis) + 1);
    for (int axis = 0; axis < length(kernel->axis); axis++) c->axis_value[axis] = -1;
    c->split = kernel->split > 1;
    c->inner_count = length(kernel->axis) - kernel->outer_count;
    c->store_count = length(kernel->store);
    e->info = kernel_analyze(kernel, out->arena);
    choose_shape(c);
    choose_text(c);
    choose_levels(c);
    if (turns != TURNS_NEVER) choose_turns(c);
    c_choose_outs(c);
    choose_strip(c);
    choose_lanes(c);
    c->origin = origin(c);
    c_flat_accesses(c);
    emit_prepare(e);
    choose_calls(c);
    c->reduce_count = length(e->info.reduce);
    keep_columns(c);
    if (c->columns_vary && !c_is_any_flat(c)) c->columns = 0, c->columns_vary = false;
    if (c->columns) c_choose_outs(c); /* anew: where rows are kept, no sweep is flat */
    choose_masks(c);
    choose_line(c);
    choose_few(c);
    return c;
}
