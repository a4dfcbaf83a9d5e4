/* One sweep over the inner axes, as C (kernel.h): loops and stores.
 *
 *     float r4 = 0.0f;
 *     float q4[32] = {0};
 *     for (int64_t k = 0; k < 1024; k += 32) {
 *         #pragma omp simd
 *         for (int j = 0; j < 32; j++) {
 *             const int64_t l = k + j;
 *             const float t2 = m_exp_f32(p0[l] - t1);
 *             row2[l] = t2;
 *             q4[j] = q4[j] + t2;
 *         }
 *     }
 *     q4 folded in halves; r4 = r4 + q4[0];
 *
 * A run that is no multiple of a strip has a vector loop for its tail; one that is shorter than a
 * strip is a single vector loop with a reduction clause.
 * accumulate.c writes the accumulators. */
#include "codegen/c/kernel.h"

enum {
    PREFETCH_BYTES_MIN = 1 << 20 /* a smaller buffer is in a cache already */
};

/* ---- body -------------------------------------------------------------------------------- */

void c_store(CKernel *c, int s) {
    Emit *e = &c->e;
    const Store *store = &e->kernel->store[s];
    Phrase element = c_element(e, store->buffer, &e->store[s], store->index, store->guard != NULL);
    if (c->streams[s]) element = c_lane(c, arena_format(e->arena, "out%d", s));
    emit_store(e, s, element);
}

void c_lane_body(CKernel *c, int pass) {
    emit_declare(&c->e, c->e.body_level);
    for (int r = 0; r < c->reduce_count; r++)
        if (c_reduces_in(c, r, pass)) c_accumulate(c, c->e.info.reduce[r], pass);
    for (int s = 0; s < c->store_count; s++)
        if (c_stores_in(c, s, pass)) c_store(c, s);
}

void c_open_lanes(CKernel *c, const char *reductions) {
    c->e.usage->lane_loops += !c->scalar;
    if (!c->scalar) emit_directive(&c->e, "#pragma omp simd%s", reductions);
    if (c_weaves(c)) emit_directive(&c->e, "#pragma GCC unroll %lld", (long long)c->weave);
    emit_open(&c->e, "for (int l = 0; l < %s; l++)", c_count(c));
}

void c_open_reading_lanes(CKernel *c, const char *reductions) {
    c_widen(c, c->out_lanes, "", c_count(c));
    c_open_lanes(c, reductions);
}

/* While this row is worked on, the next one comes into the cache. */
static void prefetch(CKernel *c) {
    Emit *e = &c->e;
    const Kernel *kernel = e->kernel;
    for (int id = 0; id < length(kernel->expr) && kernel->outer_count; id++) {
        const Expr *x = kernel->expr[id];
        const Access *access = &e->load[id];
        int64_t next;
        Expr *rest;
        if (x->op != EX_load || x->input_count > 1 || !access->name || access->stride != 1)
            continue;
        const KernelBuffer *buffer = &kernel->buffer[x->imm.i];
        int64_t size = (int64_t)cb_dtype_size(buffer->dtype);
        if (!e->usage->holes && buffer->numel * size < PREFETCH_BYTES_MIN) continue;
        if (!index_linear(e->kernel, x->input[0], kernel->outer_count - 1, &next, &rest) || !next)
            continue;
        for (int64_t l = 0; l < c->strip; l += 64 / size)
            emit_line(e, "__builtin_prefetch(%s + k + %s + %lld);", access->name,
                      emit_size(e, next), (long long)l);
    }
}

static void one_strip(CKernel *c, int pass) {
    Emit *e = &c->e;
    if (pass == 1 && !c->split && !c->slab) prefetch(c);
    const char *strip = arena_format(e->arena, "%lld", (long long)c->strip);
    c_declare_outs(c, pass, c->strip);
    c_scan_strip(c, pass, "k", strip);
    c_widen(c, c->strip, " + k", strip);
    c_gather(c, pass, "k", strip, NULL);
    emit_directive(e, "#pragma omp simd");
    emit_open(e, "for (int j = 0; j < %s; j++)", strip);
    emit_line(e, "const int64_t l = k + j;");
    c->in_strip = true;
    c_lane_body(c, pass);
    c->in_strip = false;
    emit_close(e);
    c_flush_strip(c, pass);
}

static void strip_loop(CKernel *c, int pass) {
    Emit *e = &c->e;
    Mark mark = emit_mark(e);
    long long strip = (long long)c->strip, terms = STRIP_TERMS * strip;
    const char *end = c->tail ? "whole" : "n", *start = "0";
    bool sums = c_sums_in_strips(c, pass);
    if (c->tail) emit_line(e, "const int whole = n - n %% %lld;", strip);
    if (sums) {
        emit_open(e, "for (int64_t block = 0; block < %s; block += %lld)", end, terms);
        emit_line(e, "const int64_t stop = %s - block < %lld ? %s : block + %lld;", end, terms, end,
                  terms);
        c_strip_sums(c, pass, true);
        start = "block", end = "stop";
    }
    emit_open(e, "for (int64_t k = %s; k < %s; k += %lld)", start, end, strip);
    one_strip(c, pass);
    emit_close(e);
    if (sums) {
        c_strip_sums(c, pass, false);
        emit_close(e);
    }
    emit_forget(e, mark);
    if (c->tail) c_tail_loop(c, pass);
}

static void whole_lines(CKernel *c, int pass, LaneBody *write) {
    Emit *e = &c->e;
    Mark mark = emit_mark(e);
    e->usage->lane_loops++;
    c_widen(c, c->out_lanes, "", "n");
    emit_directive(e, "#pragma omp simd");
    emit_open(e, "for (int l = 0; l < (n & -%d); l++)", c->line);
    write(c, pass);
    emit_close(e);
    emit_forget(e, mark);
}

void c_masked_line(CKernel *c, int pass, LaneBody *write) {
    Emit *e = &c->e;
    const char *mask = c->masks_wide ? "int64_t" : "int";
    e->usage->helper[HELPER_masks] = true;
    emit_directive(e, "#pragma omp simd");
    emit_open(e, "for (%s i = 0; i < MASKED(%d, n - whole); i++)", mask, c->line);
    emit_line(e, "const int64_t l = whole + i;");
    emit_line(e, "const %s on = MASKED(i < n - whole, 1), kept = MASKED(i < left, 1);", mask);
    e->mask = "on", e->kept = "kept";
    write(c, pass);
    e->mask = e->kept = NULL;
    emit_close(e);
}

void c_lines_loop(CKernel *c, int pass, LaneBody *write) {
    Emit *e = &c->e;
    whole_lines(c, pass, write);
    emit_open(e, "if (n & %d)", c->line - 1);
    emit_line(e, "const int64_t whole = n & -%d;", c->line); /* an int could wrap */
    emit_line(e, "int left = (int)(n - whole);");
    emit_line(e, "__asm__(\"\" : \"+r\"(left));");
    c_masked_line(c, pass, write);
    emit_close(e);
}

void c_lane_loop(CKernel *c, int pass) {
    Emit *e = &c->e;
    if (c->strip) {
        strip_loop(c, pass);
        return;
    }
    Mark mark = emit_mark(e);
    c_declare_outs(c, pass, c->out_lanes);
    if (c->line && !c->scalar) {
        c_lines_loop(c, pass, c_lane_body);
    } else {
        c_open_reading_lanes(c, c_reductions(c, pass));
        c_lane_body(c, pass);
        emit_close(e);
    }
    c_flush_outs(c, pass);
    emit_forget(e, mark);
}

/* ---- loops ------------------------------------------------------------------------------- */

/* Bounds of an inner axis; the first one of a split kernel is cut by the chunk. */
static const char *bound(CKernel *c, int axis, bool high) {
    if (c->range && axis == c->e.lane_axis) return high ? "to" : "from";
    if (c->split && axis == c->e.kernel->outer_count) return high ? "end" : "begin";
    int64_t size = c->e.kernel->axis[axis].size;
    if (!high) return "0";
    return c->shape == SHAPE_NESTED ? arena_format(c->e.arena, "%lld", (long long)size)
                                    : emit_size(&c->e, size); /* NESTED: unrolled */
}

/* Opens the loops over inner axes [first, last); their number is how many blocks to close. */
static int open_inner(CKernel *c, int first, int last, int level) {
    Emit *e = &c->e;
    for (int i = first; i < last; i++) {
        int axis = e->kernel->outer_count + i;
        const char *low = bound(c, axis, false), *high = bound(c, axis, true);
        if (c->shape == SHAPE_NESTED)
            emit_directive(e, "#pragma GCC unroll %lld", (long long)e->kernel->axis[axis].size);
        emit_open(e, "for (int64_t a%d = %s; a%d < %s; a%d++)", axis, low, axis, high, axis);
        emit_declare(e, level + i);
    }
    return last - first;
}

static void row_lanes(CKernel *c, int pass) {
    Emit *e = &c->e;
    int axis = e->lane_axis;
    const char *low = bound(c, axis, false), *high = bound(c, axis, true);
    if (c->lanes) {
        emit_open(e, "for (int64_t a%d = %s; a%d < %s; a%d += %lld)", axis, low, axis, high, axis,
                  (long long)c->lanes);
        emit_line(e, "const int n = %s - a%d < %lld ? (int)(%s - a%d) : %lld;", high, axis,
                  (long long)c->lanes, high, axis, (long long)c->lanes);
        emit_declare(e, e->lane_level - 1);
    } else if (c->range || (c->split && axis == e->kernel->outer_count)) {
        emit_line(e, "const int n = (int)(%s - %s);", high, low);
    } else {
        emit_line(e, "const int n = %s;", c->hides_run ? "run" : high);
    }
    c_begin_partials(c, pass);
    c_lane_loop(c, pass);
    c_end_partials(c, pass);
    if (c->lanes) emit_close(e);
}

void c_hide_run(CKernel *c) {
    if (!c->hides_run) return;
    emit_line(&c->e, "int run = %s;", bound(c, c->e.lane_axis, true));
    emit_line(&c->e, "__asm__(\"\" : \"+r\"(run));");
}

void c_row_of_piece(CKernel *piece, int pass) {
    Emit *e = &piece->e;
    Mark mark = emit_mark(e);
    int axis = e->lane_axis;
    bool cut = piece->split && axis == e->kernel->outer_count;
    const char *low = emit_size(e, piece->range->low), *high = emit_size(e, piece->range->high);
    if (cut) {
        emit_line(e, "const int64_t from = begin > %s ? begin : %s;", low, low);
        emit_line(e, "const int64_t to = end < %s ? end : %s;", high, high);
        emit_open(e, "if (from < to)");
    } else {
        emit_line(e, "const int64_t from = %s, to = %s;", low, high);
    }
    int outside = piece->lanes ? e->lane_level - 1 : e->body_level; /* of the loop over blocks */
    for (int level = 0; level < outside; level++) emit_declare(e, level);
    row_lanes(piece, pass);
    if (cut) emit_close(e);
    emit_forget(e, mark);
}

/* where(condition, value, identity of the reduction): the condition; else NULL. */
static const Expr *term_condition(const Expr *reduce) {
    const Expr *term = reduce->input[0];
    if (term->op != OP_where || term->input[2]->op != OP_constant) return NULL;
    Scalar other = term->input[2]->imm, none = scalar_identity(reduce->imm.i, reduce->dtype);
    bool same = dtype_is_float(reduce->dtype) ? other.f == none.f : other.i == none.i;
    return same ? term->input[0] : NULL;
}

/* The condition under which a point of the inner range matters to any lane, as where windows have
 * padding; NULL: there is none, or it differs from lane to lane. */
static const Expr *lanes_condition(const CKernel *c, int pass) {
    const Expr *all = NULL;
    for (int s = 0; s < c->store_count; s++)
        if (c_stores_in(c, s, pass)) return NULL;
    for (int id = 0; id < c->e.count; id++) {
        const Local *local = &c->e.local[id];
        if (local->needed && (local->cached || c->e.kernel->expr[id]->op == EX_scan)) return NULL;
    }
    for (int r = 0; r < c->reduce_count; r++) {
        if (!c_reduces_in(c, r, pass)) continue;
        const Expr *condition = term_condition(c->e.info.reduce[r]);
        if (!condition || (all && condition != all)) return NULL;
        all = condition;
    }
    return all && c->e.local[all->id].level < c->e.lane_level ? all : NULL;
}

/* Lanes are the columns of several rows, or of what is left of them. */
static void loop_over_several(CKernel *c, int pass, const char *low, const char *high) {
    Emit *e = &c->e;
    int axis = e->kernel->outer_count;
    emit_open(e, "for (int64_t a%d = %s; a%d < %s; a%d += several)", axis, low, axis, high, axis);
    emit_line(e, "const int some = %s - a%d < several ? (int)(%s - a%d) * n : wide;", high, axis,
              high, axis);
    emit_declare(e, 1);
    c->count = "some";
    c_lane_loop(c, pass);
    c->count = NULL;
    emit_close(e);
}

/* The same, in blocks whose sums are partial. */
static void loops_over_several(CKernel *c, int pass) {
    Emit *e = &c->e;
    int axis = e->kernel->outer_count;
    const char *low = bound(c, axis, false), *high = bound(c, axis, true);
    if (!c_sums_in_blocks(c, pass)) {
        loop_over_several(c, pass, low, high);
        return;
    }
    const char *terms = arena_format(e->arena, "%d * several", ARRAY_SUM_BLOCK);
    emit_open(e, "for (int64_t block = %s; block < %s; block += %s)", low, high, terms);
    emit_line(e, "const int64_t stop = block + %s < %s ? block + %s : %s;", terms, high, terms,
              high);
    c_array_partials(c, pass, true);
    loop_over_several(c, pass, "block", "stop");
    c_array_partials(c, pass, false);
    emit_close(e);
}

static void array_loops(CKernel *c, int pass) {
    Emit *e = &c->e;
    int first = e->kernel->outer_count, opened = 0;
    bool blocks = c_sums_in_blocks(c, pass);
    if (blocks) {
        const char *low = bound(c, first, false), *high = bound(c, first, true);
        int64_t rest = kernel_typical_row(e->kernel) / axis_typical(e->kernel, first);
        int64_t step = rest < ARRAY_SUM_BLOCK ? ARRAY_SUM_BLOCK / rest : 1;
        emit_open(e, "for (int64_t block = %s; block < %s; block += %lld)", low, high,
                  (long long)step);
        emit_line(e, "const int64_t stop = block + %lld < %s ? block + %lld : %s;", (long long)step,
                  high, (long long)step, high);
        c_array_partials(c, pass, true);
        emit_open(e, "for (int64_t a%d = block; a%d < stop; a%d++)", first, first, first);
        emit_declare(e, 1);
        opened = open_inner(c, 1, c->inner_count, 1) + 1;
    } else {
        opened = open_inner(c, 0, c->inner_count, 1);
    }
    const Expr *condition = lanes_condition(c, pass);
    if (condition) emit_open(e, "if (%s)", text_value(e, condition).text);
    opened += condition != NULL;
    c_lane_loop(c, pass);
    while (opened--) emit_close(e);
    if (!blocks) return;
    c_array_partials(c, pass, false);
    emit_close(e);
}

bool c_collect(CKernel *c, int pass) {
    Emit *e = &c->e;
    bool any = false;
    emit_begin(e);
    for (int r = 0; r < c->reduce_count; r++)
        if (c_reduces_in(c, r, pass)) {
            emit_root(e, e->info.reduce[r]->input[0], e->body_level);
            any = true;
        }
    for (int s = 0; s < c->store_count; s++)
        if (c_stores_in(c, s, pass)) {
            emit_root_store(e, s, e->body_level);
            any = true;
        }
    emit_collect(e);
    return any;
}

/* Coordinates and names of one point of a written-out inner range. */
static Mark open_point(CKernel *c, int64_t point) {
    Emit *e = &c->e;
    const Kernel *kernel = e->kernel;
    const Phrase *name = c->point_name + point * e->count;
    Mark mark = emit_mark(e);
    int64_t rest = point;
    e->suffix = arena_format(e->arena, "_%lld", (long long)point);
    for (int axis = length(kernel->axis) - 1; axis >= kernel->outer_count; axis--) {
        c->axis_value[axis] = rest % kernel->axis[axis].size;
        rest /= kernel->axis[axis].size;
    }
    for (int id = 0; id < e->count && e->names_last; id++)
        if (name[id].text) emit_name(e, kernel->expr[id], name[id]);
    return mark;
}

static void close_point(CKernel *c, int64_t point, Mark mark) {
    Emit *e = &c->e;
    Phrase *name = c->point_name + point * e->count;
    for (int id = 0; id < e->count; id++)
        name[id] = e->local[id].inner ? e->local[id].name : (Phrase){0};
    emit_forget(e, mark);
    e->suffix = "";
    for (int axis = 0; axis < length(e->kernel->axis); axis++) c->axis_value[axis] = -1;
}

/* The inner range of a NESTED kernel, written out: compilers vectorize the lanes around straight
 * code. A scan has to go through all of its values again, so nothing is remembered beside one. */
static void written_out(CKernel *c, int pass) {
    Emit *e = &c->e;
    e->names_last = e->written_out;
    e->pass = pass;
    if (!e->names_last) emit_block(e);
    for (int64_t point = 0; point < e->kernel->inner_size; point++) {
        Mark mark = open_point(c, point);
        c_collect(c, pass);
        for (int level = e->row_level + 1; level < e->body_level; level++) emit_declare(e, level);
        c_lane_body(c, pass);
        close_point(c, point, mark);
    }
    if (!e->names_last) emit_close(e);
    e->names_last = false;
}

static void loops(CKernel *c, int pass) {
    Emit *e = &c->e;
    Mark mark = emit_mark(e);
    if (c->written_out) {
        written_out(c, pass);
    } else if (c->several) {
        loops_over_several(c, pass);
    } else if (c->shape == SHAPE_ARRAY) {
        array_loops(c, pass);
    } else if (c->shape == SHAPE_ROW) {
        bool scoped = c->inner_count == 1 && !c->lanes; /* n is declared in it */
        if (scoped) emit_block(e);
        int opened = open_inner(c, 0, c->inner_count - 1, 1);
        if (c->row_piece)
            c_row_in_pieces(c, pass);
        else
            row_lanes(c, pass);
        while (opened--) emit_close(e);
        if (scoped) emit_close(e);
    } else {
        int opened = open_inner(c, 0, c->inner_count, e->row_level + 1);
        if (!opened) emit_block(e);
        c_lane_body(c, pass);
        for (opened += !opened; opened; opened--) emit_close(e);
    }
    emit_forget(e, mark);
}

/* ---- entry ------------------------------------------------------------------------------- */

/* Values of an ARRAY kernel that its inner loops read but that do not change in them: one lane loop
 * before. */
static void make_arrays(CKernel *c) {
    Emit *e = &c->e;
    Expr **queue = NULL;
    for (int i = 0; i < length(e->queue); i++) push(e->arena, queue, e->queue[i]);
    e->boundary = false;
    emit_begin(e);
    for (int i = 0; i < length(queue); i++) emit_root(e, queue[i], e->lane_level);
    emit_collect(e);
    emit_declare(e, 0);
    for (int i = 0; i < length(queue); i++)
        c_declare_array(c, c_array_type(c, queue[i]->dtype), "v", queue[i]->id);
    c_open_reading_lanes(c, "");
    Mark mark = emit_mark(e);
    emit_declare(e, e->lane_level);
    for (int i = 0; i < length(queue); i++)
        emit_line(e, "v%u[l] = %s;", emit_number(e, queue[i]->id), text_value(e, queue[i]).text);
    emit_close(e);
    emit_forget(e, mark);
    for (int i = 0; i < length(queue); i++)
        c_repeat_lanes(c, arena_format(e->arena, "v%u", emit_number(e, queue[i]->id)));
    for (int i = 0; i < length(queue); i++)
        emit_name(e, queue[i], c_array_element(c, 'v', queue[i]->id));
}

void c_sweep(CKernel *c, int pass) {
    Emit *e = &c->e;
    e->boundary = c->shape == SHAPE_ARRAY;
    if (!c_collect(c, pass)) return;
    if (c->row_piece) emit_begin(e); /* its pieces declare what they need */
    if (length(e->queue)) {
        make_arrays(c);
        e->boundary = true;
        c_collect(c, pass);
    }
    bool runs = e->kernel->inner_size > 0, flat = c_is_flat(c, pass) || c->slab;
    if (c->slab)
        emit_declare(e, 0);
    else if (runs && flat)
        c_flat_sweep(c, pass);
    else if (runs && c->shape == SHAPE_ARRAY)
        emit_declare(e, 0);
    else if (runs)
        emit_declare(e, e->row_level);
    if (!(flat && c->folds_flat)) c_begin_accumulators(c, pass);
    if (runs && c->slab)
        c_slab_sweep(c, pass);
    else if (runs && !flat)
        loops(c, pass);
    c_end_accumulators(c, pass);
    for (int id = 0; id < e->count; id++)
        e->local[id].kept |= e->local[id].needed && e->local[id].cached;
    e->boundary = false;
}

static void collect_all(CKernel *c) {
    Emit *e = &c->e;
    emit_begin(e);
    for (int r = 0; r < c->reduce_count; r++)
        emit_root(e, e->info.reduce[r]->input[0], e->body_level);
    for (int s = 0; s < c->store_count; s++) emit_root_store(e, s, e->body_level);
    emit_collect(e);
}

void c_before_lanes(CKernel *c) {
    Emit *e = &c->e;
    bool leaves = e->reduce_leaves;
    e->reduce_leaves = true; /* nothing at level 0 depends on a reduce */
    collect_all(c);
    emit_declare(e, 0);
    if (c->written_out)
        c->point_name = arena_new_array(e->arena, Phrase, e->kernel->inner_size * e->count + 1);
    e->at_point = true;
    for (int64_t point = 0; e->written_out && point < e->kernel->inner_size; point++) {
        Mark mark = open_point(c, point);
        collect_all(c);
        emit_declare(e, 0);
        close_point(c, point, mark);
    }
    e->at_point = false;
    c_declare_outs(c, e->info.pass_count, c->out_lanes);
    e->reduce_leaves = leaves;
}

void c_finish(CKernel *c) {
    Emit *e = &c->e;
    int pass = e->info.pass_count;
    bool any = false;
    emit_begin(e);
    for (int s = 0; s < c->store_count; s++)
        if (c_stores_in(c, s, pass)) {
            emit_root_store(e, s, e->row_level);
            any = true;
        }
    if (!any) return;
    emit_collect(e);
    if (c->shape == SHAPE_ARRAY) {
        emit_declare(e, 0);
        c_declare_outs(c, pass, c->out_lanes);
        c_open_reading_lanes(c, "");
    }
    Mark mark = emit_mark(e);
    emit_declare(e, e->row_level);
    for (int s = 0; s < c->store_count; s++)
        if (c_stores_in(c, s, pass)) c_store(c, s);
    if (c->shape != SHAPE_ARRAY) return;
    emit_close(e);
    emit_forget(e, mark);
    c_flush_outs(c, pass);
}
