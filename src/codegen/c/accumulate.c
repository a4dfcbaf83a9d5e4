/* Accumulators of a sweep, as C (kernel.h): declared before its loops, updated in their body,
 * folded after them. Beside each text: who writes it.
 *
 *     double r4 = 0.0f;                            c_begin_accumulators
 *     float q4[32] = {0};                          c_begin_partials: one sum by lane of a strip
 *     float w4[32] = {0};                          c_strip_sums: of STRIP_TERMS terms by lane
 *     ... w4[j] = w4[j] + t2;                      c_accumulate
 *     q4 = q4 + w4;                                c_strip_sums
 *     q4 folded in halves; r4 = r4 + q4[0];        c_end_partials
 *
 * Sums of f32 are taken in blocks, since a sum rounds at its own size: a block, or one run of the
 * innermost loop, has its own partial sum, and the sum of those is an f64. Float maxima of a ROW
 * run on ordered integers (order_f32), which any compiler turns into vector code that keeps NaN. */
#include "codegen/c/kernel.h"

#include <string.h>

enum { FOLD_LANES = 8 /* a row of a flat sweep is folded to */ };

/* ---- names and types ---------------------------------------------------------------------- */

static bool is_extreme(const Expr *x) { return reduce_chooses(x->imm.i); }
static bool is_sum(const Expr *x) { return reduce_adds(x->imm.i); }
/* Of extremes: the greatest. */
static bool is_high(const Expr *x) { return scalar_identity(x->imm.i, CB_F64).f < 0; }
static bool is_float(const Expr *x) { return dtype_is_float(x->dtype); }
static bool sums_single(const Expr *x) { return is_sum(x) && x->dtype == CB_F32; }

/* Lanes are points that are folded together. */
static bool folds_lanes(const CKernel *c) { return c->shape == SHAPE_ROW || c->slab; }

static bool by_order(const CKernel *c, const Expr *x) {
    return folds_lanes(c) && is_float(x) && is_extreme(x);
}

bool c_reduces_in(const CKernel *c, int r, int pass) {
    const Expr *x = c->e.info.reduce[r];
    return c->e.info.expr[x->id].pass == pass;
}

/* gcc does not vectorize what stores a _Bool. */
const char *c_array_type(const CKernel *c, cb_dtype dtype) {
    return c->e.target->type[dtype == CB_BOOL ? CB_U8 : dtype];
}

/* Lanes of a strip have bools as wide as what is compared, or vectors of them would be packed. */
static bool is_wide_bool(const CKernel *c, const Expr *x) {
    bool wide = false;
    for (int b = 0; b < length(c->e.kernel->buffer); b++)
        wide |= cb_dtype_size(c->e.kernel->buffer[b].dtype) > 1;
    return wide && c->strip && x->dtype == CB_BOOL;
}

/* Of terms. Vector reductions take int where the value type is narrower. */
static const char *term_type(CKernel *c, const Expr *x) {
    if (by_order(c, x)) return x->dtype == CB_F64 ? "int64_t" : "int32_t";
    if (is_wide_bool(c, x)) return "int32_t";
    if (c->shape == SHAPE_ARRAY || (c->strip && x->dtype == CB_BOOL))
        return c_array_type(c, x->dtype);
    bool narrow = !is_float(x) && x->dtype != CB_I32 && x->dtype != CB_I64;
    if (c->shape == SHAPE_ROW && narrow) return "int32_t";
    return c->e.target->type[x->dtype];
}

static Phrase ordered(CKernel *c, const Expr *x, Phrase value) {
    bool wide = x->dtype == CB_F64, high = is_high(x);
    const char *nan = wide ? (high ? "0x7ff8000000000000L" : "-0x8000000000000L")
                           : (high ? "0x7fc00000" : "-0x400000");
    c->e.usage->helper[wide ? HELPER_order_f64 : HELPER_order_f32] = true;
    return text_atom(
        arena_format(c->e.arena, "order_%s(%s, %s)", wide ? "f64" : "f32", value.text, nan));
}

static Phrase identity(CKernel *c, const Expr *x) {
    Phrase text = text_identity(&c->e, x);
    return by_order(c, x) ? ordered(c, x, text) : text;
}

/* The accumulator of a reduction. */
static Phrase reduce_name(CKernel *c, const Expr *x) {
    return c_array_element(c, 'r', c->accumulator ? c->accumulator[x->id] : x->id);
}

/* A float sum inside of further loops has a partial sum of its own; strips have one by lane. */
static bool has_partial(const CKernel *c, const Expr *x) {
    if (c->strip) return true;
    bool loops = c->inner_count > 1 || c->lanes;
    return c->shape == SHAPE_ROW && loops && is_float(x) && is_sum(x);
}

static bool any_single(const CKernel *c, int pass) {
    for (int r = 0; r < c->reduce_count; r++) {
        const Expr *x = c->e.info.reduce[r];
        if (c_reduces_in(c, r, pass) && sums_single(x)) return true;
    }
    return false;
}

/* Whether the accumulator of the whole sweep is an f64, and its terms are not. */
static bool is_wide(const CKernel *c, const Expr *x) { return has_partial(c, x) && sums_single(x); }

static const char *accumulator_type(CKernel *c, const Expr *x) {
    return is_wide(c, x) ? "double" : term_type(c, x);
}

/* Whether the lanes of a strip add up so many terms that these have partial sums themselves. */
bool c_sums_in_strips(const CKernel *c, int pass) {
    if (!c->strip) return false; /* then there may be no lane at all */
    int64_t run = c->slab    ? kernel_typical_row(c->e.kernel) * c->slab
                  : c->lanes ? c->lanes
                             : axis_typical(c->e.kernel, c->e.lane_axis);
    return run > STRIP_TERMS * c->strip && any_single(c, pass);
}

static bool strip_partial(const CKernel *c, const Expr *x, int pass) {
    return c_sums_in_strips(c, pass) && sums_single(x);
}

bool c_sums_in_blocks(const CKernel *c, int pass) {
    bool blocks = c->shape == SHAPE_ARRAY && !c->slab;
    if (!blocks || kernel_typical_row(c->e.kernel) <= 2 * ARRAY_SUM_BLOCK) return false;
    for (int id = 0; id < c->e.count; id++)
        if (c->e.kernel->expr[id]->op == EX_scan && c->e.local[id].needed) return false;
    return any_single(c, pass);
}

static bool array_partial(const CKernel *c, const Expr *x, int pass) {
    return c_sums_in_blocks(c, pass) && sums_single(x);
}

/* Where a term goes: r4, or the partial sum q4 or w4. */
static Phrase target_name(CKernel *c, const Expr *x, int pass) {
    bool partial = has_partial(c, x) || array_partial(c, x, pass);
    char letter = strip_partial(c, x, pass) && !c->in_tail ? 'w' : partial ? 'q' : 'r';
    if (c->strip)
        return text_atom(arena_format(c->e.arena, "%c%u[j]", letter, emit_number(&c->e, x->id)));
    return letter == 'r' ? reduce_name(c, x) : c_array_element(c, letter, x->id);
}

/* Extremes of a ROW compare: of floats, the ordered integers are compared. */
static const char *combined(CKernel *c, const Expr *x, Phrase a, Phrase b) {
    if (folds_lanes(c) && is_extreme(x))
        return arena_format(c->e.arena, "%s %c %s ? %s : %s", b.text, is_high(x) ? '>' : '<',
                            a.text, b.text, a.text);
    if (is_wide_bool(c, x)) /* the row of the table, not its function of two _Bool */
        return op_text_expand(c->e.arena, op_text_tokens(x->imm.i, CB_BOOL), CB_BOOL,
                              (Phrase[]){a, b, {0}})
            .text;
    return text_combine(&c->e, x, a, b).text;
}

/* A lane that is left out has a term that changes nothing. */
static Phrase masked(CKernel *c, const Expr *x, Phrase value) {
    return text_of(TEXT_SELECT, arena_format(c->e.arena, "%s ? %s : %s", c->e.kept,
                                             text_operand(c->e.arena, value), identity(c, x).text));
}

/* Where the terms of a run lie, as an array; NULL: they are computed into one. */
static const char *terms_in_memory(const CKernel *c, const Expr *x) {
    const Expr *term = x->input[0];
    const Access *access = &c->e.load[term->id];
    if (term->op != EX_load || c->columns < FOLD_LANES || access->stride != 1) return NULL;
    return c->e.kernel->buffer[term->imm.i].dtype == x->dtype ? access->name : NULL;
}

void c_accumulate(CKernel *c, const Expr *x, int pass) {
    Emit *e = &c->e;
    Phrase name = target_name(c, x, pass), value = text_value(e, x->input[0]);
    bool folds = folds_lanes(c);
    if (c->flat && c->folds_flat) {
        if (terms_in_memory(c, x)) return;
        emit_line(e, "w%u[l] = %s;", emit_number(e, x->id), value.text);
        return;
    }
    if (!folds || (!e->kept && !is_extreme(x))) {
        emit_line(e, "%s = %s;", name.text, combined(c, x, name, value));
        return;
    }
    if (by_order(c, x)) value = ordered(c, x, value);
    if (e->kept) value = masked(c, x, value);
    Phrase term = text_name(arena_format(e->arena, "x%u", emit_number(e, x->id)));
    emit_line(e, "const %s %s = %s;", term_type(c, x), term.text, value.text);
    emit_line(e, "%s = %s;", name.text, combined(c, x, name, term));
}

/* ---- rows of a flat sweep ------------------------------------------------------------------ */

/* Values as wide as what they are compared with. Of fewer points gathering is as fast, unless they
 * are halves, which are converted one by one then. */
bool c_folds_rows(const CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    int64_t points = axis_typical(kernel, kernel->outer_count);
    if (points < FOLD_LANES && !c_has_halves(kernel)) return false;
    for (int r = 0; r < length(c->e.info.reduce); r++)
        if (cb_dtype_size(c->e.info.reduce[r]->dtype) < sizeof(float)) return false;
    return length(c->e.info.reduce) > 0;
}

static void declare_terms(CKernel *c, const Expr *x, char letter, int64_t elements) {
    emit_line(&c->e, "%s %c%u[%lld] __attribute__((aligned(64)));", term_type(c, x), letter,
              emit_number(&c->e, x->id), (long long)elements);
}

void c_declare_folds(CKernel *c, int pass) {
    for (int r = 0; r < c->reduce_count; r++)
        if (c_reduces_in(c, r, pass)) declare_terms(c, c->e.info.reduce[r], 'r', c->lanes);
}

/* Rows of less than FOLD_LANES are read as if they had these. */
bool c_declare_terms(CKernel *c, int pass) {
    bool any = false;
    for (int r = 0; r < c->reduce_count; r++) {
        const Expr *x = c->e.info.reduce[r];
        if (!c_reduces_in(c, r, pass) || terms_in_memory(c, x)) continue;
        declare_terms(c, x, 'w', c->lanes * c->columns + FOLD_LANES);
        any = true;
    }
    return any;
}

/* What a row's lane j of FOLD_LANES is folded from. */
static Phrase lane_of_row(CKernel *c, const Expr *x) {
    Arena *arena = c->e.arena;
    long long columns = (long long)c->columns, left = columns % FOLD_LANES;
    const char *array = terms_in_memory(c, x);
    Phrase all = {0};
    if (!array) array = arena_format(arena, "w%u", emit_number(&c->e, x->id));
    for (long long k = 0; k < columns; k += FOLD_LANES) {
        bool part = k + FOLD_LANES > columns, ends = part && k;
        long long at = ends ? columns - FOLD_LANES : k; /* nothing behind the row is read */
        Phrase term =
            text_atom(arena_format(arena, "%s[l * %lldL + %lld + j]", array, columns, at));
        if (part && !(ends && is_extreme(x)))
            term =
                text_of(TEXT_SELECT, arena_format(arena, "j %s %lld ? %s : %s", ends ? ">=" : "<",
                                                  ends ? FOLD_LANES - left : left, term.text,
                                                  identity(c, x).text));
        all = all.text ? text_combine(&c->e, x, all, term) : term;
    }
    return all;
}

/* Each row to FOLD_LANES, a power of two, which compilers take apart across rows. */
static void fold_rows(CKernel *c, const Expr *x) {
    Emit *e = &c->e;
    uint32_t number = emit_number(e, x->id);
    Phrase part[FOLD_LANES];
    declare_terms(c, x, 'q', c->lanes * FOLD_LANES);
    emit_open(e, "for (int l = 0; l < n; l++)");
    emit_directive(e, "#pragma omp simd");
    emit_line(e, "for (int j = 0; j < %d; j++) q%u[l * %dL + j] = %s;", FOLD_LANES, number,
              FOLD_LANES, lane_of_row(c, x).text);
    emit_close(e);
    for (int j = 0; j < FOLD_LANES; j++)
        part[j] = text_atom(arena_format(e->arena, "q%u[l * %d + %d]", number, FOLD_LANES, j));
    for (int half = FOLD_LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++) part[j] = text_combine(e, x, part[j], part[j + half]);
    emit_directive(e, "#pragma omp simd");
    emit_line(e, "for (int l = 0; l < n; l++) %s = %s;", reduce_name(c, x).text, part[0].text);
}

void c_fold_rows(CKernel *c, int pass) {
    for (int r = 0; r < c->reduce_count; r++)
        if (c_reduces_in(c, r, pass)) fold_rows(c, c->e.info.reduce[r]);
}

/* The row that combines says "a + b": OpenMP says "+", and knows it of these. */
static const char *clause(CKernel *c, const Expr *x, int pass) {
    const char *row = op_info(x->imm.i)->value;
    char operator[2] = {row[2]};
    bool known = row[1] == ' ' && strchr("+*&|", row[2]) && row[3] == ' ';
    check(is_extreme(x) || known, "OpenMP has no operator of \"%s\"", row);
    const char *word = is_extreme(x) ? is_high(x) ? "max" : "min" : operator;
    return arena_format(c->e.arena, " reduction(%s:%s)", word, target_name(c, x, pass).text);
}

const char *c_reductions(CKernel *c, int pass) {
    Buffer text = buffer_new(c->e.arena);
    if (c->shape == SHAPE_ROW && !c->strip)
        for (int r = 0; r < c->reduce_count; r++)
            if (c_reduces_in(c, r, pass)) put(&text, clause(c, c->e.info.reduce[r], pass));
    return buffer_text(&text);
}

/* ---- around the loops ---------------------------------------------------------------------- */

static bool needed_scan(const CKernel *c, int id) {
    return c->e.kernel->expr[id]->op == EX_scan && c->e.local[id].needed;
}

/* Lanes of arrays, where they are not n: under masks all of whole vectors. */
static const char *whole_lines(const CKernel *c) {
    if (c->several) return "wide";
    if (!c->line || c->scalar) return NULL;
    return arena_format(c->e.arena, "(n + %d & -%d)", c->line - 1, c->line);
}

void c_declare_array(CKernel *c, const char *type, const char *name, uint32_t id) {
    emit_line(&c->e, "%s %s%u[%lld] __attribute__((aligned(64)));", type, name,
              emit_number(&c->e, id), (long long)c->lanes);
}

static void begin_array_accumulators(CKernel *c, int pass) {
    Emit *e = &c->e;
    bool any = false;
    for (int r = 0; r < c->reduce_count; r++)
        if (c_reduces_in(c, r, pass)) {
            const Expr *x = e->info.reduce[r];
            c_declare_array(c, accumulator_type(c, x), "r", x->id);
            if (array_partial(c, x, pass)) c_declare_array(c, term_type(c, x), "q", x->id);
            any = true;
        }
    for (int id = 0; id < e->count; id++)
        if (needed_scan(c, id)) {
            const char *type = c_array_type(c, expr_running(e->kernel->expr[id]));
            if (!e->local[id].started) c_declare_array(c, type, "c", (uint32_t)id);
            any = true;
        }
    if (any) c_open_lanes(c, "");
}

void c_repeat_lanes(CKernel *c, const char *array) {
    if (c->several) {
        emit_open(&c->e, "for (int done = n; done < wide; done *= 2)");
        emit_directive(&c->e, "#pragma omp simd");
        emit_line(&c->e, "for (int l = 0; l < done; l++) %s[done + l] = %s[l];", array, array);
        emit_close(&c->e);
        return;
    }
    if (whole_lines(c))
        emit_line(&c->e, "for (int l = n; l < %s; l++) %s[l] = 0;", whole_lines(c), array);
}

/* What several rows have been folded to becomes one for each column, which all of them read. */
static void fold_several(CKernel *c, const Expr *x, int pass) {
    Phrase all = reduce_name(c, x);
    const char *array = arena_format(c->e.arena, "r%u", emit_number(&c->e, x->id));
    Phrase other = text_atom(arena_format(c->e.arena, "%s[half + l]", array));
    emit_open(&c->e, "for (int half = wide / 2; half >= n; half /= 2)");
    emit_directive(&c->e, "#pragma omp simd");
    emit_line(&c->e, "for (int l = 0; l < half; l++) %s = %s;", all.text,
              combined(c, x, all, other));
    emit_close(&c->e);
    if (pass + 1 < c->e.info.pass_count) c_repeat_lanes(c, array);
}

void c_begin_accumulators(CKernel *c, int pass) {
    Emit *e = &c->e;
    bool array = c->shape == SHAPE_ARRAY, any = false;
    c->count = whole_lines(c);
    if (array) begin_array_accumulators(c, pass);
    c->count = NULL;
    for (int r = 0; r < c->reduce_count; r++) {
        if (!c_reduces_in(c, r, pass)) continue;
        const Expr *x = e->info.reduce[r];
        emit_line(e, "%s%s%s = %s;", array ? "" : accumulator_type(c, x), array ? "" : " ",
                  reduce_name(c, x).text, identity(c, x).text);
        any = true;
    }
    for (int id = 0; id < e->count; id++) {
        if (!needed_scan(c, id)) continue;
        const Expr *x = e->kernel->expr[id];
        bool declared = array || e->local[id].started;
        const char *type = declared ? "" : e->target->type[expr_running(x)];
        emit_line(e, "%s%s%s = %s;", type, declared ? "" : " ", c_scan(e, x).text,
                  identity(c, x).text);
        any = e->local[id].started = true;
    }
    if (array && any) emit_close(e);
}

static void begin_strip(CKernel *c, const Expr *x, char letter) {
    long long strip = (long long)c->strip;
    uint32_t number = emit_number(&c->e, x->id);
    emit_line(&c->e, "%s %c%u[%lld] __attribute__((aligned(64)));", term_type(c, x), letter, number,
              strip);
    emit_line(&c->e, "for (int l = 0; l < %lld; l++) %c%u[l] = %s;", strip, letter, number,
              identity(c, x).text);
}

void c_begin_partials(CKernel *c, int pass) {
    for (int r = 0; r < c->reduce_count; r++) {
        const Expr *x = c->e.info.reduce[r];
        if (!c_reduces_in(c, r, pass) || !has_partial(c, x)) continue;
        if (c->strip)
            begin_strip(c, x, 'q');
        else
            emit_line(&c->e, "%s q%u = %s;", term_type(c, x), emit_number(&c->e, x->id),
                      identity(c, x).text);
    }
}

/* Both ends of a few strips: their sums start, and join those of the lanes. */
void c_strip_sums(CKernel *c, int pass, bool begin) {
    for (int r = 0; r < c->reduce_count; r++) {
        const Expr *x = c->e.info.reduce[r];
        if (!c_reduces_in(c, r, pass) || !strip_partial(c, x, pass)) continue;
        if (begin) {
            begin_strip(c, x, 'w');
            continue;
        }
        Phrase all = text_atom(arena_format(c->e.arena, "q%u[l]", emit_number(&c->e, x->id)));
        Phrase few = text_atom(arena_format(c->e.arena, "w%u[l]", emit_number(&c->e, x->id)));
        emit_directive(&c->e, "#pragma omp simd");
        emit_line(&c->e, "for (int l = 0; l < %lld; l++) %s = %s;", (long long)c->strip, all.text,
                  combined(c, x, all, few));
    }
}

/* The lanes of a partial result become one, or one for each column of a slab, in halves. */
static void fold_lanes(CKernel *c, const Expr *x) {
    Phrase low = text_atom(arena_format(c->e.arena, "q%u[l]", emit_number(&c->e, x->id)));
    int64_t least = c->slab ? c->slab : 1;
    for (int64_t half = c->strip / 2; half >= least; half /= 2) {
        Phrase high = text_atom(
            arena_format(c->e.arena, "q%u[l + %lld]", emit_number(&c->e, x->id), (long long)half));
        if (half > 1) emit_directive(&c->e, "#pragma omp simd");
        emit_line(&c->e, "for (int l = 0; l < %lld; l++) %s = %s;", (long long)half, low.text,
                  combined(c, x, low, high));
    }
}

void c_end_partials(CKernel *c, int pass) {
    for (int r = 0; r < c->reduce_count; r++) {
        const Expr *x = c->e.info.reduce[r];
        if (!c_reduces_in(c, r, pass) || !has_partial(c, x)) continue;
        const char *lane = c->slab ? "[l]" : c->strip ? "[0]" : "";
        Phrase partial =
            text_atom(arena_format(c->e.arena, "q%u%s", emit_number(&c->e, x->id), lane));
        Phrase name = reduce_name(c, x);
        if (c->strip) fold_lanes(c, x);
        const char *each = !c->slab ? ""
                                    : arena_format(c->e.arena, "for (int l = 0; l < %lld; l++) ",
                                                   (long long)c->slab);
        emit_line(&c->e, "%s%s = %s;", each, name.text, combined(c, x, name, partial));
    }
}

/* Both ends of one block of an ARRAY sweep: partial sums start, and join the accumulators. */
void c_array_partials(CKernel *c, int pass, bool begin) {
    c->count = whole_lines(c);
    c_open_lanes(c, "");
    c->count = NULL;
    for (int r = 0; r < c->reduce_count; r++) {
        const Expr *x = c->e.info.reduce[r];
        if (!c_reduces_in(c, r, pass) || !array_partial(c, x, pass)) continue;
        Phrase partial = c_array_element(c, 'q', x->id), name = reduce_name(c, x);
        if (begin)
            emit_line(&c->e, "%s = %s;", partial.text, identity(c, x).text);
        else
            emit_line(&c->e, "%s = %s;", name.text, combined(c, x, name, partial));
    }
    emit_close(&c->e);
}

/* Of a slab each column has a value of its own. */
static void end_slab(CKernel *c, const Expr *x) {
    const char *type = c->e.target->type[x->dtype];
    bool order = by_order(c, x);
    Phrase name = reduce_name(c, x), value = c_array_element(c, 't', x->id);
    c_declare_array(c, c_array_type(c, x->dtype), "t", x->id);
    c_open_lanes(c, "");
    emit_line(&c->e, "%s = %s(%s);", value.text,
              !order               ? arena_format(c->e.arena, "(%s)", type)
              : x->dtype == CB_F64 ? "unorder_f64"
                                   : "unorder_f32",
              name.text);
    emit_close(&c->e);
    emit_name(&c->e, x, value);
}

/* The value of a completed reduce under a name that users can read. */
void c_end_accumulators(CKernel *c, int pass) {
    Emit *e = &c->e;
    for (int r = 0; r < c->reduce_count; r++) {
        if (!c_reduces_in(c, r, pass)) continue;
        const Expr *x = e->info.reduce[r];
        if (c->slab) {
            end_slab(c, x);
            continue;
        }
        if (c->several) fold_several(c, x, pass);
        Phrase name = reduce_name(c, x),
               value = text_name(arena_format(e->arena, "t%u", emit_number(e, x->id)));
        if (is_wide(c, x)) {
            const char *type = term_type(c, x);
            emit_line(e, "const %s %s = (%s)%s;", type, value.text, type, name.text);
            name = value;
        }
        if (by_order(c, x)) {
            emit_line(e, "const %s %s = unorder_%s(%s);", e->target->type[x->dtype], value.text,
                      x->dtype == CB_F64 ? "f64" : "f32", name.text);
            name = value;
        }
        emit_name(e, x, name);
    }
}
