/* The text of one expression, given the names of what is declared (emit.h).
 *
 *     mul(t3, exp(load b0[...]))   ->   t3 * m_exp_f32(p2[l])
 *
 * Where things lie (coordinates, elements, what a loop has accumulated) is the target's text. */
#include "codegen/emit.h"
#include "lower/index.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAST_ARITHMETIC = 3, CAST_WIDE_ARITHMETIC = 1 }; /* that pay for casts in vectors: to f64 */

/* ---- literals ---------------------------------------------------------------------------- */

/* printf writes the decimal point of the host's locale. */
static void put_point(char *text) {
    for (char *c = text; *c; c++)
        if (!strchr("0123456789+-e", *c)) *c = '.';
}

static Phrase float_literal(Emit *e, double value, bool single) {
    const Target *target = e->target;
    if (value != value) return text_atom(target->nan[!single]);
    if (isinf(value) && value > 0) return text_atom(target->infinity[!single]);
    if (isinf(value))
        return text_of(TEXT_SIGN, arena_format(e->arena, "-%s", target->infinity[!single]));
    char text[40];
    for (int digits = single ? 6 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value) break;
    }
    put_point(text);
    const char *point = strpbrk(text, ".e") ? "" : ".0";
    const char *literal = arena_format(e->arena, "%s%s%s", text, point, single ? "f" : "");
    return signbit(value) ? text_of(TEXT_SIGN, literal) : text_name(literal);
}

static Phrase literal_of(Emit *e, cb_dtype dtype, Scalar value) {
    if (dtype_is_float(dtype)) return float_literal(e, value.f, dtype != CB_F64);
    if (value.i == INT64_MIN) return text_of(TEXT_ADD, "-9223372036854775807L - 1");
    const char *wide = value.i > INT32_MAX || value.i < -INT32_MAX ? "L" : "";
    const char *literal = arena_format(e->arena, "%lld%s", (long long)value.i, wide);
    return value.i < 0 ? text_of(TEXT_SIGN, literal) : text_name(literal);
}

/* A constant of the kernel. An op that costs much is another one where an operand is literal. */
static Phrase constant_of(Emit *e, const Expr *x) {
    Phrase literal = literal_of(e, x->dtype, x->imm);
    if (!e->usage->holes || x->dtype == CB_BOOL) return literal;
    cb_dtype dtype = dtype_is_float(x->dtype) && x->dtype != CB_F64 ? CB_F32 : x->dtype;
    if (!dtype_is_float(dtype)) dtype = CB_I64;
    if (dtype_is_float(dtype) && !isfinite(x->imm.f)) return literal;
    return hole_value(e->usage->holes, (TextNumber){x->imm, dtype, false}, x->dtype != CB_I64,
                      literal);
}

const char *emit_size(Emit *e, int64_t value) {
    return hole_size(e->usage->holes, e->arena, value, "");
}

/* Where an axis varies, or did before it was replaced by one of so many points. */
static bool follows_axis(const Kernel *kernel, int64_t stride) {
    while (kernel && !stride_varies(kernel, stride)) kernel = kernel->below;
    return kernel != NULL;
}

/* Few elements side by side are what a compiler makes vectors of by their number: a stride of 2
 * stays one, unless it follows a size that varies. */
const char *emit_long(Emit *e, int64_t value) {
    bool opens = hole_is_open(value) || follows_axis(e->kernel, value);
    return hole_size(opens ? e->usage->holes : NULL, e->arena, value, "L");
}

/* ---- indices -------------------------------------------------------------------------------- */

static Phrase text_number(Emit *e, const Expr *x, bool narrow);

static bool fits_int(const Emit *e, const Expr *x) {
    if (!e->local[x->id].plain || x->low < -INT32_MAX || x->high > INT32_MAX) return false;
    for (int i = 0; i < x->input_count; i++)
        if (!fits_int(e, x->input[i])) return false;
    return true;
}

static Phrase number_of(Emit *e, Scalar value, bool narrow) {
    Phrase literal = literal_of(e, CB_I64, value);
    /* where an axis varies, one less than its size, or where a part begins */
    bool opens =
        hole_is_open(value.i) || ((value.i > 1 || value.i < -1) && kernel_varies(e->kernel));
    if (!e->usage->holes || !opens) return literal;
    return hole_value(e->usage->holes, (TextNumber){value, CB_I64, true}, narrow, literal);
}

static Phrase quotient(Emit *e, const Expr *x, bool narrow) {
    bool divides = x->op == OP_floor_divide;
    Phrase number = text_number(e, x->input[0], narrow), by = text_number(e, x->input[1], narrow);
    if (x->input[0]->low < 0) {
        e->usage->helper[HELPER_floor] = true;
        const char *function = divides ? "floor_quotient" : "floor_remainder";
        return text_atom(arena_format(e->arena, "%s(%s, %s)", function, number.text, by.text));
    }
    const char *a = text_in(e->arena, number, TEXT_MULTIPLY), *b = text_operand(e->arena, by);
    char sign = divides ? '/' : '%';
    if (!narrow) return text_of(TEXT_DIVIDE, arena_format(e->arena, "%s %c %s", a, sign, b));
    bool open = e->usage->holes;
    const char *text = arena_format(
        e->arena, open ? "(int)((unsigned)%s %c (unsigned)%s)" : "(int)((unsigned)%s %c %su)", a,
        sign, b);
    return text_of(TEXT_CAST, text);
}

static Phrase text_number(Emit *e, const Expr *x, bool narrow) {
    if (x->op == EX_axis) return e->target->axis(e, (int)x->imm.i, narrow);
    if (x->op == OP_constant) return number_of(e, x->imm, narrow);
    bool seen_through = e->local[x->id].plain || !e->info.expr[x->id].users;
    if (x->dtype != CB_I64 || !seen_through) return text_value(e, x);
    if (index_divides(x, OP_floor_divide) || index_divides(x, OP_remainder))
        return quotient(e, x, narrow);
    if (x->op != OP_add && x->op != OP_mul) return text_value(e, x);
    Phrase a = text_number(e, x->input[0], narrow), b = text_number(e, x->input[1], narrow);
    Precedence own = x->op == OP_add ? TEXT_ADD : TEXT_MULTIPLY;
    const char *left = text_in(e->arena, a, own), *right = text_in(e->arena, b, TEXT_MULTIPLY);
    return text_of(own,
                   arena_format(e->arena, own == TEXT_ADD ? "%s + %s" : "%s * %s", left, right));
}

Phrase text_index(Emit *e, const Expr *index, bool narrow) {
    return text_number(e, index, narrow && fits_int(e, index));
}

/* ---- memory --------------------------------------------------------------------------------- */

/* function(argument) */
static Phrase call(Emit *e, const char *function, Phrase argument) {
    return text_atom(arena_format(e->arena, "%s(%s)", function, argument.text));
}

/* One f16 at a time: where there are no lanes, or fewer than compilers make a vector of. */
static bool converts_one(Emit *e, cb_dtype stored) {
    enum { FEW_LANES = 8 };
    if (stored != CB_F16 || !e->target->helper[HELPER_half]) return false;
    bool few = e->lane_axis == NO_LANE || axis_typical(e->kernel, e->lane_axis) < FEW_LANES;
    bool one = few || e->one_by_one;
    e->usage->helper[HELPER_half] |= one;
    return one;
}

Phrase text_widen(Emit *e, cb_dtype stored, Phrase text) {
    if (!dtype_is_half(stored)) return text;
    e->usage->widens[stored] = true;
    if (converts_one(e, stored)) return call(e, "widen_one_f16", text);
    return call(e, arena_format(e->arena, "m_from_%s_f32", cb_dtype_name(stored)), text);
}

Phrase text_narrow(Emit *e, cb_dtype stored, Phrase text) {
    if (!dtype_is_half(stored)) return text;
    e->usage->narrows[stored] = true;
    if (converts_one(e, stored)) return call(e, "narrow_one_f16", text);
    return call(e, arena_format(e->arena, "m_to_%s_f32", cb_dtype_name(stored)), text);
}

static bool is_masked(const Emit *e, const Expr *x) {
    return e->mask && expr_uses_axis(x, e->lane_axis);
}

/* A text, or 0 where the guard says so. */
static Phrase guarded_text(Emit *e, const Expr *x, const char *guard, Phrase text) {
    Scalar zero = {.i = 0}; /* 0.0 has the same bits */
    return text_of(TEXT_SELECT, arena_format(e->arena, "%s ? %s : %s", guard, text.text,
                                             literal_of(e, x->dtype, zero).text));
}

/* What was kept of the row. Under a mask it is 0 in the lanes that are left out: else a compiler
 * loads into whatever the register held, perhaps denormals, which are computed with. By the count
 * of loads: of the one that stores ask for it would see that nobody wants those lanes. */
static Phrase row_text(Emit *e, const Expr *x) {
    Phrase text = e->target->row(e, x);
    return is_masked(e, x) ? guarded_text(e, x, e->mask, text) : text;
}

static Phrase load_text(Emit *e, const Expr *x) {
    int buffer = (int)x->imm.i;
    bool guarded = x->input_count == 2;
    Phrase text = e->target->element(e, buffer, &e->load[x->id], x->input[0], guarded);
    e->usage->guards |= guarded;
    if (!e->load[x->id].wide) text = text_widen(e, e->kernel->buffer[buffer].dtype, text);
    bool masked = is_masked(e, x);
    if ((!guarded || e->local[x->id].chosen) && !masked) return text;
    check(!guarded || !masked, "a load under a mask has a guard");
    return guarded_text(e, x, masked ? e->mask : text_operand(e->arena, text_value(e, x->input[1])),
                        text);
}

/* ---- conversions ------------------------------------------------------------------------- */

static Phrase cast(Emit *e, cb_dtype dtype, Phrase text) {
    const char *operand = text_operand(e->arena, text);
    return text_of(TEXT_CAST, arena_format(e->arena, "(%s)%s", e->target->type[dtype], operand));
}

static Phrase from_float(Emit *e, cb_dtype from, cb_dtype to, Phrase text) {
    if (from == CB_F64) {
        e->usage->helper[HELPER_to_i64_f64] = true;
        text = call(e, "to_i64_f64", text);
        return to == CB_I64 ? text : cast(e, to, text);
    }
    bool wide = to == CB_I64;
    e->usage->helper[wide ? HELPER_to_i64_f32 : HELPER_to_i32_f32] = true;
    text = call(e, wide ? "to_i64_f32" : "to_i32_f32", text);
    return wide || to == CB_I32 ? text : cast(e, to, text);
}

/* A choice of two numbers: gcc 12 vectorizes no conversion of what joins two comparisons. */
static Phrase from_bool(Emit *e, cb_dtype to, Phrase text) {
    const char *one = literal_of(e, to, (Scalar){.f = 1}).text;
    const char *zero = literal_of(e, to, (Scalar){.f = 0}).text;
    return text_of(TEXT_SELECT,
                   arena_format(e->arena, "%s ? %s : %s", text_operand(e->arena, text), one, zero));
}

/* Arithmetic on floats beside the conversions of a kernel. */
static int float_arithmetic(const Emit *e) {
    int cost = 0;
    for (int id = 0; id < e->count; id++) {
        const Expr *x = e->kernel->expr[id];
        bool counts = e->info.expr[id].users && x->op < OP_COUNT && x->op != OP_to;
        if (counts && dtype_is_float(x->dtype)) cost += op_info(x->op)->cost;
    }
    return cost;
}

/* AVX2 has no instruction for 64-bit integers, so that a loop with a cast of one stays scalar. That
 * is faster where nothing much follows. */
static bool casts_slowly(const Emit *e, cb_dtype from, cb_dtype to) {
    bool vector = e->lane_axis != NO_LANE && e->target->helper[HELPER_from_i64];
    int pays = to == CB_F64 ? CAST_WIDE_ARITHMETIC : CAST_ARITHMETIC;
    return vector && from == CB_I64 && dtype_is_float(to) && float_arithmetic(e) >= pays;
}

static Phrase from_i64(Emit *e, cb_dtype to, Phrase text) {
    e->usage->helper[HELPER_from_i64] = true;
    return call(e, to == CB_F64 ? "from_i64_f64" : "from_i64_f32", text);
}

/* What scalar_convert does, for one value. */
static Phrase to_text(Emit *e, cb_dtype from, cb_dtype to, Phrase text) {
    if (to == CB_BOOL)
        return text_of(TEXT_SELECT,
                       arena_format(e->arena, "%s != 0", text_operand(e->arena, text)));
    if (dtype_is_half(to))
        return text_widen(
            e, to, text_narrow(e, to, from == CB_F32 ? text : to_text(e, from, CB_F32, text)));
    if (from == CB_BOOL && dtype_is_float(to)) return from_bool(e, to, text);
    if (casts_slowly(e, from, to)) return from_i64(e, to, text);
    bool down = dtype_is_float(from) && !dtype_is_float(to);
    return down ? from_float(e, from, to, text) : cast(e, to, text);
}

/* ---- values ------------------------------------------------------------------------------ */

static bool compares(Op op) {
    return op == OP_eq || op == OP_ne || op == OP_lt || op == OP_le || op == OP_gt || op == OP_ge;
}

/* An operand: numbers of index arithmetic stay int where the user is indifferent to the width. */
static Phrase operand(Emit *e, const Expr *user, const Expr *x) {
    bool stays =
        x->op == OP_constant && user->op < OP_COUNT && op_info(user->op)->cost >= APART_COST;
    if (stays) return literal_of(e, x->dtype, x->imm);
    if (!e->local[x->id].plain || e->local[x->id].name.text) return text_value(e, x);
    bool narrow = compares(user->op) && fits_int(e, user->input[0]) && fits_int(e, user->input[1]);
    narrow |= user->op == OP_to;
    return text_index(e, x, narrow);
}

/* What its operand is converted from: a position that fits is an int. */
static cb_dtype converted_from(const Emit *e, const Expr *x) {
    const Expr *from = x->input[0];
    bool narrow = e->local[from->id].plain && !e->local[from->id].name.text && fits_int(e, from);
    return narrow ? CB_I32 : from->dtype;
}

/* op_sub_f32(t3, 1.0f) */
static Phrase call_function(Emit *e, const char *prefix, Op op, cb_dtype dtype,
                            const Phrase *argument, int count) {
    Buffer text = buffer_new(e->arena);
    putf(&text, "%s_%s_%s(", prefix, op_info(op)->name, cb_dtype_name(dtype));
    for (int i = 0; i < count; i++) putf(&text, i ? ", %s" : "%s", argument[i].text);
    put(&text, ")");
    return text_atom(buffer_text(&text));
}

static Phrase call_apart(Emit *e, const Expr *x, const Phrase *argument) {
    e->usage->apart[x->op][x->dtype] = true;
    return call_function(e, "apart", x->op, x->dtype, argument, x->input_count);
}

static Phrase call_op(Emit *e, Op op, cb_dtype compute, const Phrase *argument, int count) {
    e->usage->function[op][compute] = true;
    return call_function(e, "op", op, compute, argument, count);
}

/* Whether the text of x tells the compiler that x is no -0, or is the negative of such a number. */
static bool shows_sign(const Emit *e, const Expr *x) {
    const Expr *const *in = (const Expr *const *)x->input;
    if (e->local[x->id].name.text) return false;
    if (x->op == OP_to) return !dtype_is_float(in[0]->dtype);
    if (x->op == OP_where) return in[1]->op == OP_constant && in[2]->op == OP_constant;
    if (x->op == OP_neg) return shows_sign(e, in[0]);
    bool product = x->op == OP_mul || x->op == OP_div;
    return product && (shows_sign(e, in[0]) || shows_sign(e, in[1]));
}

/* gcc 12 and 13 take 0 - x and -x + 0 for -x where they read in the same expression that x is no
 * -0: of an integer 0 that was converted this makes -0. The 0 may be one that they found
 * themselves. Of the parameters of a function they read nothing, and inline it all the same. */
static bool hides_sum(const Emit *e, const Expr *x) {
    bool sum = dtype_is_float(x->dtype) && (x->op == OP_add || x->op == OP_sub);
    return sum && (shows_sign(e, x->input[0]) || shows_sign(e, x->input[1]));
}

/* Loaded on the condition of its user alone. */
static bool is_chosen(const Emit *e, const Expr *x) {
    return e->local[x->id].chosen && !e->local[x->id].name.text;
}

static Phrase op_value(Emit *e, const Expr *x) {
    Phrase argument[3];
    for (int i = 0; i < x->input_count; i++) argument[i] = operand(e, x, x->input[i]);
    if (x->op == OP_to) return to_text(e, converted_from(e, x), x->imm.i, argument[0]);
    if (x->op == OP_where && (is_chosen(e, x->input[1]) || is_chosen(e, x->input[2])))
        return text_of(TEXT_SELECT,
                       arena_format(e->arena, "%s ? %s : %s", text_operand(e->arena, argument[0]),
                                    argument[1].text, argument[2].text));
    cb_dtype compute = x->op == OP_where ? x->input[1]->dtype : x->input[0]->dtype;
    if (emit_calls_apart(e, x)) return call_apart(e, x, argument);
    if (e->target->hides_sums && hides_sum(e, x))
        return call_op(e, x->op, compute, argument, x->input_count);
    return text_op(e, x->op, compute, x->dtype, argument, x->input_count);
}

Phrase text_value(Emit *e, const Expr *x) {
    const Local *local = &e->local[x->id];
    if (x->op == OP_constant) return constant_of(e, x);
    if (local->name.text) return local->name;
    if (local->plain) return text_index(e, x, false);
    if (local->kept) return row_text(e, x);
    if (x->op == EX_load) return load_text(e, x);
    if (x->op == EX_reduce) return e->target->slot(e, x);
    return op_value(e, x);
}

Phrase text_op(Emit *e, Op op, cb_dtype compute, cb_dtype result, const Phrase *argument,
               int count) {
    bool simple = true;
    for (int i = 0; i < count; i++) simple &= argument[i].simple;
    if (!op_text_inlines(op, compute, simple)) return call_op(e, op, compute, argument, count);
    e->usage->math[op][compute] = true;
    Phrase text = op_text_expand(e->arena, op_text_tokens(op, compute), compute, argument);
    DtypeKind kind = dtype_info(result)->kind;
    bool wraps = kind != KIND_INTEGER && kind != KIND_FLOAT && result == compute;
    return wraps ? cast(e, result, text) : text;
}

Phrase text_combine(Emit *e, const Expr *fold, Phrase total, Phrase term) {
    cb_dtype dtype = fold->op == EX_scan ? expr_running(fold) : fold->dtype;
    return text_op(e, fold->imm.i, dtype, dtype, (Phrase[]){total, term}, 2);
}

Phrase text_identity(Emit *e, const Expr *fold) {
    cb_dtype dtype = fold->dtype;
    return literal_of(e, dtype, scalar_identity(fold->imm.i, dtype));
}
