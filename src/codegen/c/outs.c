/* Runs of elements that go through arrays on their way between memory and the lanes (kernel.h):
 * stores that go past the caches, and f16, which are converted several at once.
 *
 *     float out0[1024], h0[1024];
 *     widen_f16(h0, p4, n);
 *     for (int l = 0; l < n; l++) out0[l] = h0[l] + t1;       the vector loop
 *     narrow_f16(s0, out0, n); */
#include "base/round.h"
#include "codegen/c/kernel.h"

enum {
    STREAM_BYTES_MIN = 32 << 20, /* outputs above this go past the caches: they would not fit */
    STREAM_ROWS_MIN = 4 << 20,   /* rows, written in bursts that would wait for memory, earlier */
    STREAM_RUN_MIN = 512,        /* and only in runs of at least so many elements */
    STREAMS_MAX = 4,
    HALVES_AT_ONCE = 16 /* that conversions fill arrays with, and read out of them */
};

/* ---- choices ----------------------------------------------------------------------------- */

/* Whether the sweep that does a store walks whole rows as one run. */
static bool stores_flat(const CKernel *c, int s) {
    int pass = c->e.info.store_pass[s];
    return pass < c->e.info.pass_count && c_is_flat(c, pass);
}

/* Whether a store writes runs along the lanes that nothing in the kernel reads. */
static bool writes_runs(const CKernel *c, int s) {
    Kernel *kernel = c->e.kernel;
    const Store *store = &kernel->store[s];
    int64_t stride;
    Expr *rest;
    int along = stores_flat(c, s) ? kernel->outer_count : c->e.lane_axis;
    if (c->e.lane_axis == NO_LANE || store->guard || store->mode != STORE_SET) return false;
    if (kernel->buffer[store->buffer].role != BUFFER_OUT) return false;
    return index_linear(kernel, store->index, along, &stride, &rest) && stride == 1;
}

/* Whether runs are long, and too much for the caches, which no load has brought there before. */
static bool may_stream(const CKernel *c, int s) {
    const KernelBuffer *buffer = &c->e.kernel->buffer[c->e.kernel->store[s].buffer];
    int64_t bytes = buffer->numel * (int64_t)cb_dtype_size(buffer->dtype);
    int64_t least = c->shape == SHAPE_ROW ? STREAM_ROWS_MIN : STREAM_BYTES_MIN;
    int64_t run = axis_typical(c->e.kernel, c->e.lane_axis) * (stores_flat(c, s) ? c->columns : 1);
    return bytes >= least && run >= STREAM_RUN_MIN && !buffer->shared;
}

/* NESTED kernels can copy out after their lane loop only, ROW kernels within their sweeps only. */
void c_choose_outs(CKernel *c) {
    Kernel *kernel = c->e.kernel;
    int streams = 0;
    c->any_stream = false;
    c->streams = arena_new_array(c->e.arena, bool, c->store_count + 1);
    c->narrows = arena_new_array(c->e.arena, bool, c->store_count + 1);
    for (int s = 0; s < c->store_count; s++) {
        const Store *store = &kernel->store[s];
        uint32_t axes = store->index->axes | store->value->axes;
        bool inner = axes >> kernel->outer_count != 0;
        bool place = c->shape == SHAPE_ARRAY || inner == (c->shape == SHAPE_ROW);
        if (!place || c->turns || !writes_runs(c, s)) continue;
        bool may = streams < STREAMS_MAX && !(c->shape == SHAPE_ROW && kernel_has_scan(kernel));
        c->streams[s] = may && may_stream(c, s);
        c->narrows[s] = !c->streams[s] && kernel->buffer[store->buffer].dtype == CB_F16;
        c->any_stream |= c->streams[s];
        streams += c->streams[s];
    }
}

/* ---- into arrays ------------------------------------------------------------------------- */

static void use_halves(Emit *e) {
    e->usage->helper[HELPER_halves] = true;
    e->usage->widens[CB_F16] = e->usage->narrows[CB_F16] = true;
}

/* f16 that lie side by side come through arrays into the loop that is about to open. */
void c_widen(CKernel *c, int64_t lanes, const char *start, const char *count) {
    Emit *e = &c->e;
    for (int id = 0; id < e->count; id++) {
        const Expr *x = e->kernel->expr[id];
        Access *access = &e->load[id];
        const Local *local = &e->local[id];
        access->wide = NULL;
        bool read = x->op == EX_load && local->needed && !local->kept && !local->name.text;
        if (!read || !access->name || access->stride != 1 || x->input_count > 1) continue;
        const KernelBuffer *buffer = &e->kernel->buffer[x->imm.i];
        if (buffer->dtype != CB_F16 || buffer->role != BUFFER_IN || lanes > WIDE_LANES) continue;
        access->wide = arena_format(e->arena, "h%d", c->wide_count++);
        emit_line(e, "float %s[%lld] __attribute__((aligned(64)));", access->wide,
                  (long long)round_up(lanes, HALVES_AT_ONCE));
        emit_line(e, "widen_f16(%s, %s%s, %s);", access->wide, access->name, start, count);
        use_halves(e);
    }
}

/* Whether a load of the region comes through an array: one whose place is a value, which gcc knows
 * no vectors for unless it knows the processor; and of a tail under masks all that do not lie side
 * by side, for which it has none. */
static bool is_gathered(const CKernel *c, const Expr *x, bool masked) {
    const Emit *e = &c->e;
    const Local *local = &e->local[x->id];
    const Access *access = &e->load[x->id];
    bool read = x->op == EX_load && local->needed && !local->kept && !local->name.text;
    if (!read || !e->info.expr[x->id].users || !expr_uses_axis(x, e->lane_axis)) return false;
    if (x->input_count > 1) return false;
    return access->linear ? masked && access->stride != 1
                          : masked || !e->local[x->input[0]->id].plain;
}

/* Whether compilers read it as vectors wherever its lanes are: an int says where. */
static bool fills_vectors(const CKernel *c, const Expr *x) {
    const Access *access = &c->e.load[x->id];
    const Axis *lane = &c->e.kernel->axis[c->e.lane_axis];
    bool fits = !lane->varies && lane->size < INT32_MAX / 8 && !hole_is_open(access->stride);
    return access->linear && (fits || access->stride == -1);
}

/* What is gathered, into arrays from h<first> on. As vectors: of whole ones, since lanes that are
 * stored one by one leave whoever reads a vector of them waiting; those behind the last one have
 * the first one's element. */
static void fill_arrays(CKernel *c, Expr *const *gathered, int first, bool vectors,
                        const char *start, const char *count) {
    Emit *e = &c->e;
    bool any = false;
    emit_begin(e);
    for (int i = 0; i < length(gathered); i++) {
        if (fills_vectors(c, gathered[i]) != vectors) continue;
        emit_root(e, gathered[i], e->body_level);
        any = true;
    }
    if (!any) return;
    emit_collect(e);
    Mark mark = emit_mark(e);
    if (vectors) {
        emit_directive(e, "#pragma omp simd");
        emit_open(e, "for (int j = 0; j < %lld; j++)", (long long)c->strip);
        emit_line(e, "const int l = j < %s ? (int)%s + j : 0;", count, start);
    } else {
        emit_open(e, "for (int j = 0; j < %s; j++)", count);
        emit_line(e, "const int64_t l = %s + j;", start);
    }
    c->in_strip = true, c->narrow = vectors;
    emit_declare(e, e->body_level);
    for (int i = 0; i < length(gathered); i++)
        if (fills_vectors(c, gathered[i]) == vectors)
            emit_line(e, "h%d[j] = %s;", first + i, text_value(e, gathered[i]).text);
    c->in_strip = c->narrow = false;
    emit_close(e);
    emit_forget(e, mark);
}

void c_gather(CKernel *c, int pass, const char *start, const char *count, const char *mask) {
    Emit *e = &c->e;
    Expr **gathered = NULL;
    int first = c->wide_count;
    c_collect(c, pass); /* what strips have gathered, the tail gathers anew */
    for (int id = 0; id < e->count; id++)
        if (is_gathered(c, e->kernel->expr[id], mask != NULL))
            push(e->arena, gathered, e->kernel->expr[id]);
    if (!length(gathered)) return;
    for (int i = 0; i < length(gathered); i++)
        emit_line(e, "%s h%d[%lld] __attribute__((aligned(64)));",
                  c_array_type(c, gathered[i]->dtype), c->wide_count++, (long long)c->strip);
    fill_arrays(c, gathered, first, true, start, count);
    fill_arrays(c, gathered, first, false, start, count);
    for (int i = 0; i < length(gathered); i++) {
        Phrase text = text_atom(arena_format(e->arena, "h%d[j]", first + i));
        if (mask)
            text = text_of(TEXT_SELECT, arena_format(e->arena, "%s ? %s : 0", mask, text.text));
        emit_name(e, gathered[i], text);
    }
    c_collect(c, pass);
}

/* ---- out of arrays ----------------------------------------------------------------------- */

/* The arrays of what is copied out after the lanes. */
void c_declare_outs(CKernel *c, int pass, int64_t lanes) {
    Emit *e = &c->e;
    for (int s = 0; s < c->store_count; s++) {
        if (!(c->streams[s] || c->narrows[s]) || !c_stores_in(c, s, pass)) continue;
        cb_dtype dtype = e->kernel->buffer[e->kernel->store[s].buffer].dtype;
        const char *type = c->narrows[s] ? "float" : e->target->storage[dtype];
        int64_t room = c->narrows[s] ? round_up(lanes, HALVES_AT_ONCE) : lanes;
        emit_line(e, "%s out%d[%lld] __attribute__((aligned(64)));", type, s, (long long)room);
        if (c->narrows[s]) e->store[s].wide = arena_format(e->arena, "out%d", s);
    }
}

void c_narrow_outs(CKernel *c, int pass, const char *start, const char *count) {
    for (int s = 0; s < c->store_count; s++) {
        if (!c->narrows[s] || !c_stores_in(c, s, pass)) continue;
        emit_line(&c->e, "narrow_f16(%s%s, out%d, %s);", c->e.store[s].name, start, s, count);
        use_halves(&c->e);
    }
}

void c_flush_outs(CKernel *c, int pass) {
    c_narrow_outs(c, pass, "", c_count(c));
    for (int s = 0; s < c->store_count; s++)
        if (c->streams[s] && c_stores_in(c, s, pass))
            emit_line(&c->e, "stream(%s, out%d, %s * (int64_t)sizeof *out%d);", c->e.store[s].name,
                      s, c_count(c), s);
}

void c_flush_strip(CKernel *c, int pass) {
    Emit *e = &c->e;
    c_narrow_outs(c, pass, " + k", arena_format(e->arena, "%lld", (long long)c->strip));
    for (int s = 0; s < c->store_count; s++)
        if (c->streams[s] && c_stores_in(c, s, pass))
            emit_line(e, "stream_lines(%s + k, out%d, sizeof out%d);", e->store[s].name, s, s);
}
