/* A second target, for tests: scalar C, one point at a time, as a thread of a GPU would take it. It
 * has none of what codegen/c does (lanes, vector loops, blocks of sums, streams), a dialect of its
 * own (names of types, of NaN, of infinity), and uses of src/codegen what is neutral. What it needs
 * is what any target needs. */
#ifndef CARBIDE_TEST_PLAIN_TARGET_H
#define CARBIDE_TEST_PLAIN_TARGET_H

#include "codegen/emit.h"

typedef struct Plain {
    Emit e; /* first: the target's functions get it */
    bool split;
} Plain;

/* ---- where things are ---- */

static Phrase plain_axis(Emit *e, int axis, bool narrow) {
    if (!narrow) return text_name(arena_format(e->arena, "a%d", axis));
    return text_of(TEXT_CAST, arena_format(e->arena, "(int)a%d", axis));
}

static Phrase plain_element(Emit *e, int buffer, const Access *access, const Expr *index,
                            bool guarded) {
    (void)access, (void)guarded;
    return text_atom(arena_format(e->arena, "b%d[%s]", buffer, text_index(e, index, false).text));
}

static Phrase plain_scan(Emit *e, const Expr *x) {
    return text_name(arena_format(e->arena, "c%u", x->id));
}

/* Of the reduction's first chunk, or of the chunk of this item. */
static Phrase plain_slot_at(Emit *e, const Expr *x, const char *item) {
    int position = 0;
    while (e->info.reduce[position] != x) position++;
    const char *type = dtype_is_float(x->dtype) ? "f64" : "i64";
    int64_t first = position * e->kernel->outer_size * e->kernel->split;
    return text_atom(
        arena_format(e->arena, "((%s *)slot)[%lldL + %s]", type, (long long)first, item));
}

static Phrase plain_slot(Emit *e, const Expr *x) {
    Phrase slot = plain_slot_at(e, x, "outer");
    return text_of(TEXT_CAST,
                   arena_format(e->arena, "(%s)%s", e->target->type[x->dtype], slot.text));
}

/* ---- one sweep over the inner axes ---- */

static bool plain_reduces(const Emit *e, const Expr *x, int pass) {
    return e->info.expr[x->id].pass == pass;
}

/* A long sum of f32 would lose digits. */
static const char *plain_total_type(const Emit *e, const Expr *x) {
    bool wide = x->dtype == CB_F32 && reduce_adds(x->imm.i);
    return e->target->type[wide ? CB_F64 : x->dtype];
}

static bool plain_collect(Emit *e, int pass, int level) {
    bool any = false;
    emit_begin(e);
    for (int r = 0; r < length(e->info.reduce); r++)
        if (plain_reduces(e, e->info.reduce[r], pass)) {
            emit_root(e, e->info.reduce[r]->input[0], level);
            any = true;
        }
    for (int s = 0; s < length(e->kernel->store); s++)
        if (e->info.store_pass[s] == pass) {
            emit_root_store(e, s, level);
            any = true;
        }
    if (any) emit_collect(e);
    return any;
}

static void plain_totals(Emit *e, int pass) {
    for (int r = 0; r < length(e->info.reduce); r++) {
        const Expr *x = e->info.reduce[r];
        if (plain_reduces(e, x, pass))
            emit_line(e, "%s r%u = %s;", plain_total_type(e, x), x->id, text_identity(e, x).text);
    }
    for (int id = 0; id < e->count; id++) {
        const Expr *x = e->kernel->expr[id];
        if (x->op != EX_scan || !e->local[id].needed) continue;
        const char *type = e->local[id].started ? "" : e->target->type[expr_running(x)];
        emit_line(e, "%s c%u = %s;", type, x->id, text_identity(e, x).text);
        e->local[id].started = true;
    }
}

static void plain_stores(Emit *e, int pass) {
    for (int s = 0; s < length(e->kernel->store); s++) {
        const Store *store = &e->kernel->store[s];
        if (e->info.store_pass[s] != pass) continue;
        emit_store(e, s, plain_element(e, store->buffer, NULL, store->index, false));
    }
}

static void plain_body(Emit *e, int pass) {
    for (int r = 0; r < length(e->info.reduce); r++) {
        const Expr *x = e->info.reduce[r];
        if (!plain_reduces(e, x, pass)) continue;
        Phrase total = text_name(arena_format(e->arena, "r%u", x->id));
        Phrase sum = text_combine(e, x, total, text_value(e, x->input[0]));
        emit_line(e, "%s = %s;", total.text, sum.text);
    }
    plain_stores(e, pass);
}

static void plain_loops(Plain *p, int pass) {
    Emit *e = &p->e;
    const Kernel *kernel = e->kernel;
    Mark mark = emit_mark(e);
    emit_block(e);
    for (int axis = kernel->outer_count; axis < length(kernel->axis); axis++) {
        bool cut = p->split && axis == kernel->outer_count;
        const char *size = arena_format(e->arena, "%lld", (long long)kernel->axis[axis].size);
        emit_open(e, "for (i64 a%d = %s; a%d < %s; a%d++)", axis, cut ? "begin" : "0", axis,
                  cut ? "end" : size, axis);
        emit_declare(e, e->axis_level[axis]);
    }
    plain_body(e, pass);
    for (int axis = kernel->outer_count; axis < length(kernel->axis); axis++) emit_close(e);
    emit_close(e);
    emit_forget(e, mark);
}

static void plain_sweep(Plain *p, int pass) {
    Emit *e = &p->e;
    if (!plain_collect(e, pass, e->body_level)) return;
    emit_declare(e, e->row_level);
    plain_totals(e, pass);
    plain_loops(p, pass);
    for (int r = 0; r < length(e->info.reduce); r++) {
        const Expr *x = e->info.reduce[r];
        if (!plain_reduces(e, x, pass)) continue;
        Phrase name = text_name(arena_format(e->arena, "t%u", x->id));
        emit_line(e, "const %s %s = r%u;", e->target->type[x->dtype], name.text, x->id);
        emit_name(e, x, name);
        if (p->split) emit_line(e, "%s = %s;", plain_slot_at(e, x, "item").text, name.text);
    }
}

/* ---- one point ---- */

static void plain_finish(Emit *e) {
    int pass = e->info.pass_count;
    if (!plain_collect(e, pass, e->row_level)) return;
    emit_declare(e, e->row_level);
    plain_stores(e, pass);
}

/* The chunk of the first inner axis that an item of a split kernel sweeps. */
static void plain_chunk(Emit *e) {
    const Kernel *kernel = e->kernel;
    long long size = kernel->axis[kernel->outer_count].size;
    long long step = (size + kernel->split - 1) / kernel->split;
    emit_line(e, "const i64 outer = item %% %lld;", (long long)kernel->outer_size);
    emit_line(e, "const i64 begin = item / %lld * %lld;", (long long)kernel->outer_size, step);
    emit_line(e, "const i64 end = begin + %lld < %lld ? begin + %lld : %lld;", step, size, step,
              size);
}

static void plain_passes(Plain *p) {
    Emit *e = &p->e;
    e->reduce_leaves = true;
    for (int pass = 0; pass <= e->info.pass_count; pass++) {
        bool last = pass == e->info.pass_count;
        Mark mark = emit_mark(e);
        emit_open(e, "if (pass == %d)", pass);
        if (last)
            emit_line(e, "const i64 outer = item;");
        else
            plain_chunk(e);
        emit_coordinates(e, e->kernel->outer_count, "outer", "const int64_t a");
        if (last)
            plain_finish(e);
        else
            plain_sweep(p, pass);
        emit_close(e);
        emit_forget(e, mark);
    }
}

static void plain_point(Plain *p) {
    Emit *e = &p->e;
    const Kernel *kernel = e->kernel;
    emit_open(e, "static void %s_point(void *const *buffer, i64 item, int pass, void *slot)",
              kernel->name);
    for (int b = 0; b < length(kernel->buffer); b++)
        emit_line(e, "%s *b%d = buffer[%d];", e->target->storage[kernel->buffer[b].dtype], b, b);
    if (p->split) {
        plain_passes(p);
    } else {
        emit_coordinates(e, kernel->outer_count, "item", "const int64_t a");
        for (int pass = 0; pass < e->info.pass_count; pass++) plain_sweep(p, pass);
        plain_finish(e);
    }
    emit_close(e);
}

static bool plain_kernel(Kernel *kernel, Usage *usage, Buffer *out);

static const Target plain_target = {
#define DTYPE(id, name, ...) .type[CB_##id] = #name, .storage[CB_##id] = #name,
#define HALF_ROW(id, name, ...) .type[CB_##id] = "f32", .storage[CB_##id] = "bits16",
#include "op/dtype_rows.h"
    .infinity = {"infinite_f32", "infinite_f64"},
    .nan = {"nan_f32", "nan_f64"},
    .guards_opening = "",
    .opening = "#define MATH static\n"
               "typedef _Bool bool;\n"
               "typedef unsigned char u8;\n"
               "typedef signed char i8;\n"
               "typedef short i16;\n"
               "typedef unsigned short bits16;\n"
               "typedef int i32;\n"
               "typedef long i64, int64_t;\n"
               "typedef float f32;\n"
               "typedef double f64;\n"
               "static const f32 infinite_f32 = 1e39f, nan_f32 = 1e39f - 1e39f;\n"
               "static const f64 infinite_f64 = 1e309, nan_f64 = 1e309 - 1e309;\n",
    .helper[HELPER_to_i64_f32] =
        "static i64 to_i64_f32(f32 a) {\n"
        "    if (a != a) return 0;\n"
        "    return a >= -0x1p63f && a < 0x1p63f ? (i64)a : (i64)1 << 63;\n"
        "}\n",
    .helper[HELPER_to_i32_f32] = "static i32 to_i32_f32(f32 a) {\n"
                                 "    if (a != a) return 0;\n"
                                 "    return a >= -0x1p63f && a < 0x1p63f ? (i32)(i64)a : 0;\n"
                                 "}\n",
    .helper[HELPER_to_i64_f64] = "static i64 to_i64_f64(f64 a) {\n"
                                 "    if (a != a) return 0;\n"
                                 "    return a >= -0x1p63 && a < 0x1p63 ? (i64)a : (i64)1 << 63;\n"
                                 "}\n",
    .helper[HELPER_floor] = "static i64 floor_quotient(i64 a, i64 b) {\n"
                            "    return a / b - (a % b < 0);\n"
                            "}\n"
                            "static i64 floor_remainder(i64 a, i64 b) {\n"
                            "    return a % b < 0 ? a % b + b : a % b;\n"
                            "}\n",
    .function = "static",
    .hides_sums = true, /* of the C compiler that the test has */
    .kernel = plain_kernel,
    .axis = plain_axis,
    .element = plain_element,
    .scan = plain_scan,
    .slot = plain_slot,
};

static bool plain_kernel(Kernel *kernel, Usage *usage, Buffer *out) {
    Plain p = {.split = kernel->split > 1};
    Emit *e = &p.e;
    *e = (Emit){.target = &plain_target,
                .kernel = kernel,
                .arena = out->arena,
                .out = out,
                .usage = usage,
                .suffix = "",
                .lane_axis = NO_LANE};
    int axes = length(kernel->axis);
    e->axis_level = arena_new_array(e->arena, int, axes + 1);
    for (int axis = kernel->outer_count; axis < axes; axis++)
        e->axis_level[axis] = axis - kernel->outer_count + 1;
    e->body_level = axes - kernel->outer_count;
    e->lane_level = e->body_level + 1;
    emit_prepare(e);
    plain_point(&p);
    emit_open(e, "void %s(void *const *buffer, i64 low, i64 high, int pass, void *slot)",
              kernel->name); /* the launch */
    emit_line(e, "for (i64 item = low; item < high; item++) %s_point(buffer, item, pass, slot);",
              kernel->name);
    emit_close(e);
    return false;
}

#endif
