/* One sweep over the inner axes, as C (c_kernel.h): loops, accumulators, stores.
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
 * Runs that are no multiple of a strip have one vector loop with a reduction clause instead.
 * Float sums are taken in blocks: a block, or one run of the innermost loop, has its own partial
 * sum. Float maxima of a ROW run on ordered integers (order_f32), which any compiler turns into
 * vector code that keeps NaN. */
#include "codegen/c_kernel.h"

enum {
    ARRAY_SUM_BLOCK = 1024,      /* terms that one lane of an ARRAY kernel adds up in a row */
    PREFETCH_BYTES_MIN = 1 << 20 /* a smaller buffer is in a cache already */
};

typedef Emit *E;

/* ---- accumulators
 * ------------------------------------------------------------------------------ */

static bool is_extreme(const Expr *x) { return x->imm.i == OP_amax || x->imm.i == OP_amin; }
static bool is_sum(const Expr *x) { return x->imm.i == OP_sum || x->imm.i == OP_prod; }
static bool is_float(const Expr *x) { return dtype_is_float(x->dtype); }

static bool by_order(const CKernel *c, const Expr *x) {
    return c->shape == SHAPE_ROW && is_float(x) && is_extreme(x);
}

static bool reduces_in(const CKernel *c, int r, int pass) {
    const Expr *x = c->e.info.reduce[r];
    return c->e.info.expr[x->id].pass == pass;
}

/* Vector reductions take int where the value type is narrower. */
static const char *accumulator_type(CKernel *c, const Expr *x) {
    if (by_order(c, x)) return x->dtype == CB_F64 ? "int64_t" : "int32_t";
    bool narrow = !is_float(x) && x->dtype != CB_I32 && x->dtype != CB_I64;
    if (c->shape == SHAPE_ROW && narrow) return "int32_t";
    return c_target.type[x->dtype];
}

static const char *ordered(CKernel *c, const Expr *x, const char *value) {
    bool wide = x->dtype == CB_F64, high = x->imm.i == OP_amax;
    const char *nan = wide ? (high ? "0x7ff8000000000000L" : "-0x8000000000000L")
                           : (high ? "0x7fc00000" : "-0x400000");
    c->e.usage->helper[wide ? HELPER_order_f64 : HELPER_order_f32] = true;
    return arena_format(c->e.arena, "order_%s(%s, %s)", wide ? "f64" : "f32",
                        text_bare(&c->e, value), nan);
}

static const char *identity(CKernel *c, const Expr *x) {
    Scalar value = scalar_identity((Op)x->imm.i, x->dtype);
    const char *text = text_literal(&c->e, x->dtype, value);
    return by_order(c, x) ? ordered(c, x, text) : text;
}

/* The accumulator of a reduction: r4, r4[l] */
static const char *reduce_name(CKernel *c, const Expr *x) {
    return arena_format(c->e.arena, c->shape == SHAPE_ARRAY ? "r%u[l]" : "r%u", x->id);
}

/* A float sum inside of further loops has a partial sum of its own; strips have one by lane. */
static bool has_partial(const CKernel *c, const Expr *x) {
    if (c->strip) return true;
    bool loops = c->inner_count > 1 || c->lanes;
    return c->shape == SHAPE_ROW && loops && is_float(x) && is_sum(x);
}

static bool array_blocks(const CKernel *c, int pass) {
    if (c->shape != SHAPE_ARRAY || c->e.kernel->inner_size <= 4 * ARRAY_SUM_BLOCK) return false;
    bool sums = false;
    for (int r = 0; r < c->reduce_count; r++)
        sums |=
            reduces_in(c, r, pass) && is_float(c->e.info.reduce[r]) && is_sum(c->e.info.reduce[r]);
    for (int id = 0; id < c->e.count; id++)
        if (c->e.kernel->expr[id]->op == EX_scan && c->e.local[id].needed) return false;
    return sums;
}

static bool array_partial(const CKernel *c, const Expr *x, int pass) {
    return array_blocks(c, pass) && is_float(x) && is_sum(x);
}

/* Where a term goes: r4, or the partial sum s4. */
static const char *target_name(CKernel *c, const Expr *x, int pass) {
    bool partial = has_partial(c, x) || array_partial(c, x, pass);
    const char *lane = c->strip ? "[j]" : c->shape == SHAPE_ARRAY ? "[l]" : "";
    return arena_format(c->e.arena, "%c%u%s", partial ? 'q' : 'r', x->id, lane);
}

/* Extremes of a ROW compare: of floats, the ordered integers are compared. */
static const char *combined(CKernel *c, const Expr *x, const char *a, const char *b) {
    if (c->shape == SHAPE_ROW && is_extreme(x))
        return arena_format(c->e.arena, "%s %c %s ? %s : %s", b, x->imm.i == OP_amax ? '>' : '<', a,
                            b, a);
    const char *argument[2] = {a, b};
    return text_bare(&c->e, text_op(&c->e, (Op)x->imm.i, x->dtype, x->dtype, argument, 2));
}

static void update(CKernel *c, const Expr *x, int pass) {
    E e = &c->e;
    const char *name = target_name(c, x, pass), *value = text_value(e, x->input[0]);
    if (c->shape != SHAPE_ROW || !is_extreme(x)) {
        emit_line(e, "%s = %s;", name, combined(c, x, name, value));
        return;
    }
    if (by_order(c, x)) value = ordered(c, x, value);
    emit_line(e, "const %s x%u = %s;", accumulator_type(c, x), x->id, text_bare(e, value));
    emit_line(e, "%s = %s;", name, combined(c, x, name, arena_format(e->arena, "x%u", x->id)));
}

static const char *clause(CKernel *c, const Expr *x, int pass) {
    static const struct {
        Op op;
        const char *text;
    } word[] = {{OP_sum, "+"},    {OP_prod, "*"}, {OP_amax, "max"},
                {OP_amin, "min"}, {OP_any, "|"},  {OP_all, "&"}};
    int i = 0;
    while (word[i].op != (Op)x->imm.i) i++;
    return arena_format(c->e.arena, " reduction(%s:%s)", word[i].text, target_name(c, x, pass));
}

static const char *clauses(CKernel *c, int pass) {
    Buffer text = buffer_new(c->e.arena);
    if (c->shape == SHAPE_ROW && !c->strip)
        for (int r = 0; r < c->reduce_count; r++)
            if (reduces_in(c, r, pass)) put(&text, clause(c, c->e.info.reduce[r], pass));
    return buffer_text(&text);
}

/* ---- declarations around the loops
 * --------------------------------------------------------------- */

static const char *scan_name(CKernel *c, const Expr *x) {
    return arena_format(c->e.arena, c->shape == SHAPE_ARRAY ? "c%u[l]" : "c%u", x->id);
}

static bool needed_scan(const CKernel *c, int id) {
    return c->e.kernel->expr[id]->op == EX_scan && c->e.local[id].needed;
}

static void declare_array(CKernel *c, const char *type, const char *name, uint32_t id) {
    emit_line(&c->e, "%s %s%u[%lld] __attribute__((aligned(64)));", type, name, id,
              (long long)c->lanes);
}

static void begin_array_accumulators(CKernel *c, int pass) {
    E e = &c->e;
    bool any = false;
    for (int r = 0; r < c->reduce_count; r++)
        if (reduces_in(c, r, pass)) {
            const Expr *x = e->info.reduce[r];
            declare_array(c, accumulator_type(c, x), "r", x->id);
            if (array_partial(c, x, pass)) declare_array(c, accumulator_type(c, x), "q", x->id);
            any = true;
        }
    for (int id = 0; id < e->count; id++)
        if (needed_scan(c, id)) {
            const char *type = e->target->type[e->kernel->expr[id]->dtype];
            if (!e->local[id].started) declare_array(c, type, "c", (uint32_t)id);
            any = true;
        }
    if (any) c_open_lanes(c, "");
}

static void begin_accumulators(CKernel *c, int pass) {
    E e = &c->e;
    bool array = c->shape == SHAPE_ARRAY, any = false;
    if (array) begin_array_accumulators(c, pass);
    for (int r = 0; r < c->reduce_count; r++) {
        if (!reduces_in(c, r, pass)) continue;
        const Expr *x = e->info.reduce[r];
        emit_line(e, "%s%s%s = %s;", array ? "" : accumulator_type(c, x), array ? "" : " ",
                  reduce_name(c, x), text_bare(e, identity(c, x)));
        any = true;
    }
    for (int id = 0; id < e->count; id++) {
        if (!needed_scan(c, id)) continue;
        const Expr *x = e->kernel->expr[id];
        bool declared = array || e->local[id].started;
        emit_line(e, "%s%s%s = %s;", declared ? "" : e->target->type[x->dtype], declared ? "" : " ",
                  scan_name(c, x), text_bare(e, identity(c, x)));
        any = e->local[id].started = true;
    }
    if (array && any) emit_close(e);
}

static void begin_partials(CKernel *c, int pass) {
    for (int r = 0; r < c->reduce_count; r++) {
        const Expr *x = c->e.info.reduce[r];
        if (!reduces_in(c, r, pass) || !has_partial(c, x)) continue;
        const char *type = accumulator_type(c, x), *value = text_bare(&c->e, identity(c, x));
        if (!c->strip) {
            emit_line(&c->e, "%s q%u = %s;", type, x->id, value);
            continue;
        }
        emit_line(&c->e, "%s q%u[%lld] __attribute__((aligned(64)));", type, x->id,
                  (long long)c->strip);
        emit_line(&c->e, "for (int l = 0; l < %lld; l++) q%u[l] = %s;", (long long)c->strip, x->id,
                  value);
    }
}

/* The lanes of a partial result become one, in halves. */
static void fold_lanes(CKernel *c, const Expr *x) {
    const char *low = arena_format(c->e.arena, "q%u[l]", x->id);
    for (int64_t half = c->strip / 2; half; half /= 2) {
        const char *high = arena_format(c->e.arena, "q%u[l + %lld]", x->id, (long long)half);
        if (half > 1) emit_line(&c->e, "#pragma omp simd");
        emit_line(&c->e, "for (int l = 0; l < %lld; l++) %s = %s;", (long long)half, low,
                  combined(c, x, low, high));
    }
}

static void end_partials(CKernel *c, int pass) {
    for (int r = 0; r < c->reduce_count; r++) {
        const Expr *x = c->e.info.reduce[r];
        if (!reduces_in(c, r, pass) || !has_partial(c, x)) continue;
        const char *partial = arena_format(c->e.arena, c->strip ? "q%u[0]" : "q%u", x->id);
        const char *name = reduce_name(c, x);
        if (c->strip) fold_lanes(c, x);
        emit_line(&c->e, "%s = %s;", name, combined(c, x, name, partial));
    }
}

/* Both ends of one block of an ARRAY sweep: partial sums start, and join the accumulators. */
static void array_partials(CKernel *c, int pass, bool begin) {
    c_open_lanes(c, "");
    for (int r = 0; r < c->reduce_count; r++) {
        const Expr *x = c->e.info.reduce[r];
        if (!reduces_in(c, r, pass) || !array_partial(c, x, pass)) continue;
        const char *partial = arena_format(c->e.arena, "q%u[l]", x->id), *name = reduce_name(c, x);
        if (begin)
            emit_line(&c->e, "%s = %s;", partial, identity(c, x));
        else
            emit_line(&c->e, "%s = %s;", name, combined(c, x, name, partial));
    }
    emit_close(&c->e);
}

/* The value of a completed reduce under a name that users can read. */
static void end_accumulators(CKernel *c, int pass) {
    E e = &c->e;
    for (int r = 0; r < c->reduce_count; r++) {
        if (!reduces_in(c, r, pass)) continue;
        const Expr *x = e->info.reduce[r];
        const char *name = reduce_name(c, x);
        if (by_order(c, x)) {
            const char *value = arena_format(e->arena, "t%u", x->id);
            emit_line(e, "const %s %s = unorder_%s(%s);", e->target->type[x->dtype], value,
                      x->dtype == CB_F64 ? "f64" : "f32", name);
            name = value;
        }
        emit_name(e, x, name);
    }
}

/* ---- body -------------------------------------------------------------------------------- */

static void store(CKernel *c, int s) {
    E e = &c->e;
    const Store *store = &e->kernel->store[s];
    cb_dtype dtype = e->kernel->buffer[store->buffer].dtype;
    const char *value = text_value(e, store->value);
    const char *element =
        text_element(e, store->buffer, &e->store[s], store->index, store->guard != NULL);
    if (c->streams[s]) element = arena_format(e->arena, c->in_strip ? "out%d[j]" : "out%d[l]", s);
    if (store->mode == STORE_ADD) {
        const char *old = element;
        if (e->target->load[dtype]) old = text_call(e, e->target->load[dtype], element);
        const char *argument[2] = {old, value};
        value = text_op(e, OP_add, store->value->dtype, store->value->dtype, argument, 2);
    }
    if (e->target->store[dtype]) value = text_call(e, e->target->store[dtype], value);
    const char *guard = store->guard ? text_bare(e, text_value(e, store->guard)) : NULL;
    if (guard)
        emit_line(e, "if (%s) %s = %s;", guard, element, text_bare(e, value));
    else
        emit_line(e, "%s = %s;", element, text_bare(e, value));
}

static bool stores_in(const CKernel *c, int s, int pass) { return c->e.info.store_pass[s] == pass; }

static void body(CKernel *c, int pass) {
    emit_declare(&c->e, c->e.body_level);
    for (int r = 0; r < c->reduce_count; r++)
        if (reduces_in(c, r, pass)) update(c, c->e.info.reduce[r], pass);
    for (int s = 0; s < c->store_count; s++)
        if (stores_in(c, s, pass)) store(c, s);
}

void c_open_lanes(CKernel *c, const char *reductions) {
    emit_line(&c->e, "#pragma omp simd%s", reductions);
    emit_open(&c->e, "for (int l = 0; l < n; l++)");
}

static void declare_streams(CKernel *c, int pass, int64_t lanes) {
    E e = &c->e;
    for (int s = 0; s < c->store_count; s++)
        if (c->streams[s] && stores_in(c, s, pass))
            emit_line(e, "%s out%d[%lld] __attribute__((aligned(64)));",
                      e->target->storage[e->kernel->buffer[e->kernel->store[s].buffer].dtype], s,
                      (long long)lanes);
}

void c_flush_streams(CKernel *c, int pass) {
    for (int s = 0; s < c->store_count; s++)
        if (c->streams[s] && stores_in(c, s, pass))
            emit_line(&c->e, "stream(%s, out%d, n * (int64_t)sizeof *out%d);", c->e.store[s].name,
                      s, s);
}

/* While this row is worked on, the next one comes into the cache. */
static void prefetch(CKernel *c) {
    E e = &c->e;
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
        if (buffer->numel * size < PREFETCH_BYTES_MIN) continue;
        if (!index_linear(e->kernel, x->input[0], kernel->outer_count - 1, &next, &rest) || !next)
            continue;
        for (int64_t l = 0; l < c->strip; l += 64 / size)
            emit_line(e, "__builtin_prefetch(%s + k + %lld);", access->name, (long long)(next + l));
    }
}

static void strip_loop(CKernel *c, int pass) {
    E e = &c->e;
    Mark mark = emit_mark(e);
    long long strip = (long long)c->strip;
    emit_open(e, "for (int64_t k = 0; k < n; k += %lld)", strip);
    if (pass == 1 && !c->split) prefetch(c);
    declare_streams(c, pass, c->strip);
    emit_line(e, "#pragma omp simd");
    emit_open(e, "for (int j = 0; j < %lld; j++)", strip);
    emit_line(e, "const int64_t l = k + j;");
    c->in_strip = true;
    body(c, pass);
    c->in_strip = false;
    emit_close(e);
    for (int s = 0; s < c->store_count; s++)
        if (c->streams[s] && stores_in(c, s, pass))
            emit_line(e, "stream_lines(%s + k, out%d, sizeof out%d);", e->store[s].name, s, s);
    emit_close(e);
    emit_forget(e, mark);
}

static void lane_loop(CKernel *c, int pass) {
    E e = &c->e;
    if (c->strip) {
        strip_loop(c, pass);
        return;
    }
    Mark mark = emit_mark(e);
    declare_streams(c, pass, c->out_lanes);
    c_open_lanes(c, clauses(c, pass));
    body(c, pass);
    emit_close(e);
    c_flush_streams(c, pass);
    emit_forget(e, mark);
}

/* ---- loops ------------------------------------------------------------------------------- */

/* Bounds of an inner axis; the first one of a split kernel is cut by the chunk. */
static const char *bound(CKernel *c, int axis, bool high) {
    if (c->split && axis == c->e.kernel->outer_count) return high ? "end" : "begin";
    return high ? arena_format(c->e.arena, "%lld", (long long)c->e.kernel->axis[axis].size) : "0";
}

/* Opens the loops over inner axes [first, last); their number is how many blocks to close. */
static int open_inner(CKernel *c, int first, int last, int level) {
    E e = &c->e;
    for (int i = first; i < last; i++) {
        int axis = e->kernel->outer_count + i;
        const char *low = bound(c, axis, false), *high = bound(c, axis, true);
        if (c->shape == SHAPE_NESTED)
            emit_line(e, "#pragma GCC unroll %lld", (long long)e->kernel->axis[axis].size);
        emit_open(e, "for (int64_t a%d = %s; a%d < %s; a%d++)", axis, low, axis, high, axis);
        emit_declare(e, level + i);
    }
    return last - first;
}

static void row_lanes(CKernel *c, int pass) {
    E e = &c->e;
    int axis = e->lane_axis;
    const char *low = bound(c, axis, false), *high = bound(c, axis, true);
    if (c->lanes) {
        emit_open(e, "for (int64_t a%d = %s; a%d < %s; a%d += %lld)", axis, low, axis, high, axis,
                  (long long)c->lanes);
        emit_line(e, "const int n = %s - a%d < %lld ? (int)(%s - a%d) : %lld;", high, axis,
                  (long long)c->lanes, high, axis, (long long)c->lanes);
        emit_declare(e, e->lane_level - 1);
    } else if (c->split && axis == e->kernel->outer_count) {
        emit_line(e, "const int n = (int)(end - begin);");
    } else {
        emit_line(e, "const int n = %s;", high);
    }
    begin_partials(c, pass);
    lane_loop(c, pass);
    end_partials(c, pass);
    if (c->lanes) emit_close(e);
}

static void array_loops(CKernel *c, int pass) {
    E e = &c->e;
    int first = e->kernel->outer_count, opened = 0;
    bool blocks = array_blocks(c, pass);
    if (blocks) {
        const char *low = bound(c, first, false), *high = bound(c, first, true);
        int64_t rest = e->kernel->inner_size / e->kernel->axis[first].size;
        int64_t step = rest < ARRAY_SUM_BLOCK ? ARRAY_SUM_BLOCK / rest : 1;
        emit_open(e, "for (int64_t block = %s; block < %s; block += %lld)", low, high,
                  (long long)step);
        emit_line(e, "const int64_t stop = block + %lld < %s ? block + %lld : %s;", (long long)step,
                  high, (long long)step, high);
        array_partials(c, pass, true);
        emit_open(e, "for (int64_t a%d = block; a%d < stop; a%d++)", first, first, first);
        emit_declare(e, 1);
        opened = open_inner(c, 1, c->inner_count, 1) + 1;
    } else {
        opened = open_inner(c, 0, c->inner_count, 1);
    }
    lane_loop(c, pass);
    while (opened--) emit_close(e);
    if (!blocks) return;
    array_partials(c, pass, false);
    emit_close(e);
}

/* Sets the region of one sweep; false: the sweep has nothing to do. */
static bool collect(CKernel *c, int pass) {
    E e = &c->e;
    bool any = false;
    emit_begin(e);
    for (int r = 0; r < c->reduce_count; r++)
        if (reduces_in(c, r, pass)) {
            emit_root(e, e->info.reduce[r]->input[0], e->body_level);
            any = true;
        }
    for (int s = 0; s < c->store_count; s++)
        if (stores_in(c, s, pass)) {
            emit_root_store(e, s, e->body_level);
            any = true;
        }
    emit_collect(e);
    return any;
}

/* Coordinates and names of one point of a written-out inner range. */
static Mark open_point(CKernel *c, int64_t point) {
    E e = &c->e;
    const Kernel *kernel = e->kernel;
    const char **name = c->point_name + point * e->count;
    Mark mark = emit_mark(e);
    int64_t rest = point;
    e->suffix = arena_format(e->arena, "_%lld", (long long)point);
    for (int axis = length(kernel->axis) - 1; axis >= kernel->outer_count; axis--) {
        e->axis_value[axis] = rest % kernel->axis[axis].size;
        rest /= kernel->axis[axis].size;
    }
    for (int id = 0; id < e->count && e->names_last; id++)
        if (name[id]) emit_name(e, kernel->expr[id], name[id]);
    return mark;
}

static void close_point(CKernel *c, int64_t point, Mark mark) {
    E e = &c->e;
    const char **name = c->point_name + point * e->count;
    for (int id = 0; id < e->count; id++) name[id] = e->local[id].inner ? e->local[id].name : NULL;
    emit_forget(e, mark);
    e->suffix = "";
    for (int axis = 0; axis < length(e->kernel->axis); axis++) e->axis_value[axis] = -1;
}

/* The inner range of a NESTED kernel, written out: compilers vectorize the lanes around straight
 * code. A scan has to go through all of its values again, so nothing is remembered beside one. */
static void written_out(CKernel *c, int pass) {
    E e = &c->e;
    e->names_last = e->written_out;
    e->pass = pass;
    if (!e->names_last) emit_block(e);
    for (int64_t point = 0; point < e->kernel->inner_size; point++) {
        Mark mark = open_point(c, point);
        collect(c, pass);
        for (int level = e->row_level + 1; level < e->body_level; level++) emit_declare(e, level);
        body(c, pass);
        close_point(c, point, mark);
    }
    if (!e->names_last) emit_close(e);
    e->names_last = false;
}

static void loops(CKernel *c, int pass) {
    E e = &c->e;
    Mark mark = emit_mark(e);
    if (c->written_out) {
        written_out(c, pass);
    } else if (c->shape == SHAPE_ARRAY) {
        array_loops(c, pass);
    } else if (c->shape == SHAPE_ROW) {
        bool scoped = c->inner_count == 1 && !c->lanes; /* n is declared in it */
        if (scoped) emit_block(e);
        int opened = open_inner(c, 0, c->inner_count - 1, 1);
        row_lanes(c, pass);
        while (opened--) emit_close(e);
        if (scoped) emit_close(e);
    } else {
        int opened = open_inner(c, 0, c->inner_count, e->row_level + 1);
        if (!opened) emit_block(e);
        body(c, pass);
        for (opened += !opened; opened; opened--) emit_close(e);
    }
    emit_forget(e, mark);
}

/* ---- entry ------------------------------------------------------------------------------- */

/* Values of an ARRAY kernel that its inner loops read but that do not change in them: one lane loop
 * before. */
static void make_arrays(CKernel *c) {
    E e = &c->e;
    Expr **queue = NULL;
    for (int i = 0; i < length(e->queue); i++) push(e->arena, queue, e->queue[i]);
    e->boundary = false;
    emit_begin(e);
    for (int i = 0; i < length(queue); i++) emit_root(e, queue[i], e->lane_level);
    emit_collect(e);
    emit_declare(e, 0);
    for (int i = 0; i < length(queue); i++)
        declare_array(c, e->target->type[queue[i]->dtype], "v", queue[i]->id);
    c_open_lanes(c, "");
    Mark mark = emit_mark(e);
    emit_declare(e, e->lane_level);
    for (int i = 0; i < length(queue); i++)
        emit_line(e, "v%u[l] = %s;", queue[i]->id, text_bare(e, text_value(e, queue[i])));
    emit_close(e);
    emit_forget(e, mark);
    for (int i = 0; i < length(queue); i++)
        emit_name(e, queue[i], arena_format(e->arena, "v%u[l]", queue[i]->id));
}

void c_sweep(CKernel *c, int pass) {
    E e = &c->e;
    e->boundary = c->shape == SHAPE_ARRAY;
    if (!collect(c, pass)) return;
    if (length(e->queue)) {
        make_arrays(c);
        e->boundary = true;
        collect(c, pass);
    }
    bool runs = e->kernel->inner_size > 0;
    if (runs && c->shape == SHAPE_ARRAY)
        emit_declare(e, 0);
    else if (runs)
        emit_declare(e, e->row_level);
    begin_accumulators(c, pass);
    if (runs) loops(c, pass);
    end_accumulators(c, pass);
    for (int id = 0; id < e->count; id++)
        e->local[id].kept |= e->local[id].needed && e->local[id].cached;
    e->boundary = false;
}

static void collect_all(CKernel *c) {
    E e = &c->e;
    emit_begin(e);
    for (int r = 0; r < c->reduce_count; r++)
        emit_root(e, e->info.reduce[r]->input[0], e->body_level);
    for (int s = 0; s < c->store_count; s++) emit_root_store(e, s, e->body_level);
    emit_collect(e);
}

void c_before_lanes(CKernel *c) {
    E e = &c->e;
    bool leaves = e->reduce_leaves;
    e->reduce_leaves = true; /* nothing at level 0 depends on a reduce */
    collect_all(c);
    emit_declare(e, 0);
    if (c->written_out)
        c->point_name =
            arena_new_array(e->arena, const char *, e->kernel->inner_size * e->count + 1);
    e->at_point = true;
    for (int64_t point = 0; e->written_out && point < e->kernel->inner_size; point++) {
        Mark mark = open_point(c, point);
        collect_all(c);
        emit_declare(e, 0);
        close_point(c, point, mark);
    }
    e->at_point = false;
    declare_streams(c, e->info.pass_count, c->out_lanes);
    e->reduce_leaves = leaves;
}

void c_finish(CKernel *c) {
    E e = &c->e;
    int pass = e->info.pass_count;
    bool any = false;
    emit_begin(e);
    for (int s = 0; s < c->store_count; s++)
        if (stores_in(c, s, pass)) {
            emit_root_store(e, s, e->row_level);
            any = true;
        }
    if (!any) return;
    emit_collect(e);
    if (c->shape == SHAPE_ARRAY) {
        emit_declare(e, 0);
        declare_streams(c, pass, c->out_lanes);
        c_open_lanes(c, "");
    }
    Mark mark = emit_mark(e);
    emit_declare(e, e->row_level);
    for (int s = 0; s < c->store_count; s++)
        if (stores_in(c, s, pass)) store(c, s);
    if (c->shape != SHAPE_ARRAY) return;
    emit_close(e);
    emit_forget(e, mark);
    c_flush_streams(c, pass);
}
