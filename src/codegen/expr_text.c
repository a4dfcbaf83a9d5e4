/* The text of one expression, given the names of what is declared (emit.h).
 *
 *     mul(t3, exp(load b0[...]))   ->   (t3 * m_exp_f32(p2[l]))
 *
 * Results are operands: identifiers, calls, or text in parentheses. */
#include "codegen/emit.h"
#include "lower/index.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- literals ---------------------------------------------------------------------------- */

/* printf writes the decimal point of the host's locale. */
static void put_point(char *text) {
    for (char *c = text; *c; c++)
        if (!strchr("0123456789+-e", *c)) *c = '.';
}

static const char *float_literal(Emit *e, double value, bool single) {
    const char *suffix = single ? "f" : "";
    if (value != value) return arena_format(e->arena, "__builtin_nan%s(\"\")", suffix);
    if (isinf(value))
        return arena_format(e->arena, value < 0 ? "(-__builtin_inf%s())" : "__builtin_inf%s()",
                            suffix);
    char text[40];
    for (int digits = single ? 6 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value) break;
    }
    put_point(text);
    const char *point = strpbrk(text, ".e") ? "" : ".0";
    return arena_format(e->arena, text[0] == '-' ? "(%s%s%s)" : "%s%s%s", text, point, suffix);
}

const char *text_literal(Emit *e, cb_dtype dtype, Scalar value) {
    if (dtype_is_float(dtype)) return float_literal(e, value.f, dtype != CB_F64);
    if (value.i == INT64_MIN) return "(-9223372036854775807L - 1)";
    const char *wide = value.i > INT32_MAX || value.i < -INT32_MAX ? "L" : "";
    return arena_format(e->arena, value.i < 0 ? "(%lld%s)" : "%lld%s", (long long)value.i, wide);
}

/* ---- indices -------------------------------------------------------------------------------- */

static bool fits_int(const Emit *e, const Expr *x) {
    if (!e->local[x->id].plain || x->low < -INT32_MAX || x->high > INT32_MAX) return false;
    for (int i = 0; i < x->input_count; i++)
        if (!fits_int(e, x->input[i])) return false;
    return true;
}

static const char *axis_text(Emit *e, int axis, bool narrow) {
    if (e->axis_value[axis] >= 0)
        return arena_format(e->arena, "%lld", (long long)e->axis_value[axis]);
    if (axis != e->lane_axis) return arena_format(e->arena, narrow ? "(int)a%d" : "a%d", axis);
    if (!e->origin) return "l";
    return arena_format(e->arena, narrow ? "(int)(%s + l)" : "(%s + l)", e->origin);
}

static const char *number(Emit *e, const Expr *x, bool narrow);

static const char *quotient(Emit *e, const Expr *x, bool narrow) {
    bool divides = x->op == OP_floor_divide;
    const char *a = number(e, x->input[0], narrow), *b = number(e, x->input[1], narrow);
    if (x->input[0]->low < 0) {
        e->usage->helper[HELPER_floor] = true;
        return arena_format(e->arena, "%s(%s, %s)", divides ? "floor_quotient" : "floor_remainder",
                            text_bare(e, a), text_bare(e, b));
    }
    char sign = divides ? '/' : '%';
    if (narrow) return arena_format(e->arena, "(int)((unsigned)%s %c %su)", a, sign, b);
    return arena_format(e->arena, "(%s %c %s)", a, sign, b);
}

static const char *number(Emit *e, const Expr *x, bool narrow) {
    if (x->op == EX_axis) return axis_text(e, (int)x->imm.i, narrow);
    if (x->op == OP_constant) return text_literal(e, CB_I64, x->imm);
    bool seen_through = e->local[x->id].plain || !e->info.expr[x->id].users;
    bool arithmetic = x->dtype == CB_I64 && seen_through;
    if (arithmetic && (index_divides(x, OP_floor_divide) || index_divides(x, OP_remainder)))
        return quotient(e, x, narrow);
    if (arithmetic && x->op == OP_add)
        return arena_format(e->arena, "(%s + %s)", text_bare(e, number(e, x->input[0], narrow)),
                            number(e, x->input[1], narrow));
    if (arithmetic && x->op == OP_mul)
        return arena_format(e->arena, "%s * %s", number(e, x->input[0], narrow),
                            number(e, x->input[1], narrow));
    return text_value(e, x);
}

const char *text_index(Emit *e, const Expr *index, bool narrow) {
    const char *text = number(e, index, narrow && fits_int(e, index));
    bool atom = text[0] == '(' || !strpbrk(text, " ");
    return atom ? text : arena_format(e->arena, "(%s)", text);
}

/* Row-major position among the inner axes; with arrays, the lanes of a point are neighbours. */
const char *text_row_position(Emit *e) {
    const char *text = e->arrays ? "l" : NULL;
    int64_t stride = e->arrays ? e->row_stride : 1;
    for (int axis = length(e->kernel->axis) - 1; axis >= e->kernel->outer_count; axis--) {
        const char *at = axis_text(e, axis, false);
        if (stride > 1) at = arena_format(e->arena, "%s * %lldL", at, (long long)stride);
        text = text ? arena_format(e->arena, "%s + %s", at, text) : at;
        stride *= e->kernel->axis[axis].size;
    }
    return text ? text : "0";
}

/* ---- memory --------------------------------------------------------------------------------- */

const char *text_element(Emit *e, int buffer, const Access *access, const Expr *index,
                         bool guarded) {
    bool narrow = e->lane_axis != NO_LANE && !access->linear; /* int wraps, which hides strides */
    if (!access->name)
        return arena_format(e->arena, "b%d[%s]", buffer,
                            text_bare(e, text_index(e, index, narrow)));
    const char *step =
        access->stride == 1 ? "l" : arena_format(e->arena, "l * %lldL", (long long)access->stride);
    if (!guarded) return arena_format(e->arena, "%s[%s]", access->name, step);
    return arena_format(e->arena, "b%d[%s + %s]", buffer, access->name, step);
}

/* function(argument) */
static const char *call(Emit *e, const char *function, const char *argument) {
    return arena_format(e->arena, "%s(%s)", function, text_bare(e, argument));
}

const char *text_widen(Emit *e, cb_dtype stored, const char *text) {
    if (!dtype_is_half(stored)) return text;
    e->usage->widens[stored] = true;
    return call(e, arena_format(e->arena, "m_from_%s_f32", cb_dtype_name(stored)), text);
}

const char *text_narrow(Emit *e, cb_dtype stored, const char *text) {
    if (!dtype_is_half(stored)) return text;
    e->usage->narrows[stored] = true;
    return call(e, arena_format(e->arena, "m_to_%s_f32", cb_dtype_name(stored)), text);
}

static const char *load_text(Emit *e, const Expr *x) {
    int buffer = (int)x->imm.i;
    cb_dtype dtype = e->kernel->buffer[buffer].dtype;
    bool guarded = x->input_count == 2;
    const char *text = text_element(e, buffer, &e->load[x->id], x->input[0], guarded);
    text = text_widen(e, dtype, text);
    if (!guarded) return text;
    Scalar zero = {.i = 0}; /* 0.0 has the same bits */
    return arena_format(e->arena, "(%s ? %s : %s)", text_value(e, x->input[1]), text,
                        text_literal(e, x->dtype, zero));
}

/* ---- conversions ------------------------------------------------------------------------- */

static const char *cast(Emit *e, cb_dtype dtype, const char *text) {
    return arena_format(e->arena, "(%s)%s", e->target->type[dtype], text);
}

static const char *from_float(Emit *e, cb_dtype from, cb_dtype to, const char *text) {
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

/* What scalar_convert does, for one value. */
static const char *to_text(Emit *e, cb_dtype from, cb_dtype to, const char *text) {
    if (to == CB_BOOL) return arena_format(e->arena, "(%s != 0)", text);
    if (dtype_is_half(to)) {
        if (from != CB_F32) text = cast(e, CB_F32, text);
        return text_widen(e, to, text_narrow(e, to, text));
    }
    bool down = dtype_is_float(from) && !dtype_is_float(to);
    return down ? from_float(e, from, to, text) : arena_format(e->arena, "(%s)", cast(e, to, text));
}

/* ---- values ------------------------------------------------------------------------------ */

static bool compares(Op op) {
    return op == OP_eq || op == OP_ne || op == OP_lt || op == OP_le || op == OP_gt || op == OP_ge;
}

/* An operand: numbers of index arithmetic stay int where the user is indifferent to the width. */
static const char *operand(Emit *e, const Expr *user, const Expr *x) {
    if (!e->local[x->id].plain || e->local[x->id].name) return text_value(e, x);
    bool narrow =
        compares((Op)user->op) && fits_int(e, user->input[0]) && fits_int(e, user->input[1]);
    narrow |= user->op == OP_to;
    return text_index(e, x, narrow);
}

/* op_sub_f32(t3, 1.0f) */
static const char *call_function(Emit *e, const char *prefix, Op op, cb_dtype dtype,
                                 const char *const *argument, int count) {
    Buffer text = buffer_new(e->arena);
    putf(&text, "%s_%s_%s(", prefix, op_info(op)->name, cb_dtype_name(dtype));
    for (int i = 0; i < count; i++) putf(&text, i ? ", %s" : "%s", text_bare(e, argument[i]));
    put(&text, ")");
    return buffer_text(&text);
}

static const char *call_apart(Emit *e, const Expr *x, const char *const *argument) {
    e->usage->apart[x->op][x->dtype] = true;
    return call_function(e, "apart", (Op)x->op, (cb_dtype)x->dtype, argument, x->input_count);
}

static const char *call_op(Emit *e, Op op, cb_dtype compute, const char *const *argument,
                           int count) {
    e->usage->function[op][compute] = true;
    return call_function(e, "op", op, compute, argument, count);
}

/* Whether the text of x tells the compiler that x is no -0, or is the negative of such a number. */
static bool shows_sign(const Emit *e, const Expr *x) {
    const Expr *const *in = (const Expr *const *)x->input;
    if (e->local[x->id].name) return false;
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

static const char *op_value(Emit *e, const Expr *x) {
    const char *argument[3];
    for (int i = 0; i < x->input_count; i++) argument[i] = operand(e, x, x->input[i]);
    if (x->op == OP_to) return to_text(e, x->input[0]->dtype, (cb_dtype)x->imm.i, argument[0]);
    cb_dtype compute = x->op == OP_where ? x->input[1]->dtype : x->input[0]->dtype;
    if (emit_calls_apart(e, x)) return call_apart(e, x, argument);
    if (hides_sum(e, x)) return call_op(e, (Op)x->op, compute, argument, x->input_count);
    return text_op(e, (Op)x->op, compute, x->dtype, argument, x->input_count);
}

static const char *slot_text(Emit *e, const Expr *x) {
    int position = 0;
    while (e->info.reduce[position] != x) position++;
    const char *slot = dtype_is_float(x->dtype) ? "slot_f" : "slot_i";
    const char *lane = e->arrays ? " + l" : "";
    int64_t first = position * e->kernel->outer_size * e->kernel->split;
    return arena_format(e->arena, "(%s)%s[%lldL + %s%s]", e->target->type[x->dtype], slot,
                        (long long)first, e->slot_item, lane);
}

const char *text_value(Emit *e, const Expr *x) {
    const Local *local = &e->local[x->id];
    if (x->op == OP_constant) return text_literal(e, x->dtype, x->imm);
    if (local->name) return local->name;
    if (local->plain) return text_index(e, x, false);
    if (local->kept) return arena_format(e->arena, "row%u[%s]", x->id, text_row_position(e));
    if (x->op == EX_load) return load_text(e, x);
    if (x->op == EX_reduce) return slot_text(e, x);
    return op_value(e, x);
}

static bool simple(const char *text) { return !strpbrk(text, " ?(["); }

const char *text_op(Emit *e, Op op, cb_dtype compute, cb_dtype result, const char *const *argument,
                    int count) {
    bool clean = true;
    for (int i = 0; i < count; i++) clean &= simple(argument[i]);
    if (!op_text_inlines(op, compute, clean)) return call_op(e, op, compute, argument, count);
    Buffer text = buffer_new(e->arena);
    e->usage->math[op][compute] = true;
    op_text_expand(&text, op_text_tokens(op, compute), compute, argument);
    DtypeKind kind = dtype_info(result)->kind;
    bool wraps = kind != KIND_INTEGER && kind != KIND_FLOAT && result == compute;
    const char *cast_to = wraps ? arena_format(e->arena, "(%s)", e->target->type[result]) : "";
    const char *plain = buffer_text(&text);
    bool is_call = !wraps && plain[0] != '-' && strchr(plain, '(') && !strchr(plain, ' ');
    return arena_format(e->arena, is_call ? "%s%s" : "%s(%s)", cast_to, plain);
}

/* "(a + b)" -> "a + b", but "(a) + (b)" stays. */
const char *text_bare(Emit *e, const char *text) {
    size_t bytes = strlen(text);
    if (text[0] != '(' || text[bytes - 1] != ')') return text;
    int depth = 0;
    for (size_t i = 0; i < bytes; i++) {
        depth += (text[i] == '(') - (text[i] == ')');
        if (depth == 0 && i + 1 < bytes) return text;
    }
    return arena_format(e->arena, "%.*s", (int)bytes - 2, text + 1);
}
