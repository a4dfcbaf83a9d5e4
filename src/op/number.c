/* Numbers as the caller wrote them: an integer, a float or a bool, each exactly.
 *
 *     full([2], 9223372036854775807)  carries the integer, full([2], 1.0) a float; i64 and f32 come
 *                                     of it
 *
 * As attributes they take two words, what they are and their bits; none at all is two zeros.
 *
 * Operands and attributes that change from call to call may be arguments of a compiled graph: which
 * ones, and with which values, is said here. */
#include "op/op.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

cb_operand attr_number(const Attrs *attrs, int word) {
    cb_operand number = {.kind = (int)attrs->word[word]};
    if (number.kind == CB_OPERAND_FLOAT)
        number.f = attr_float(attrs, word + 1);
    else
        number.i = attrs->word[word + 1];
    return number;
}

void attr_set_number(Attrs *attrs, int word, cb_operand number) {
    attrs->word[word] = number.kind;
    attrs->word[word + 1] = number_given(&number) ? number_scalar(&number).i : 0;
}

bool attr_take_number(Attrs *attrs, int word, cb_operand given, const char *op, const char *name) {
    attr_set_number(attrs, word, given);
    if (number_given(&given) || !given.tensor) return true;
    const OpInfo *info = op_info(op_find(op, strlen(op)));
    char order[256] = ""; /* of an op's arguments, which may have been confused */
    for (int i = 0; i < info->param_count; i++) {
        size_t used = strlen(order);
        snprintf(order + used, sizeof order - used, "%s%s", i ? ", " : "", info->param[i].name);
    }
    if (*order)
        fail(CB_ERR_ARGUMENT, "%s: %s is a number, and no tensor, in %s(%s)", op, name, op, order);
    else
        fail(CB_ERR_ARGUMENT, "%s: %s is a number, and no tensor", op, name);
    return false;
}

bool number_given(const cb_operand *operand) {
    return operand->kind == CB_OPERAND_FLOAT || operand->kind == CB_OPERAND_INT ||
           operand->kind == CB_OPERAND_BOOL;
}

cb_dtype number_dtype(const cb_operand *number) {
    if (number->kind == CB_OPERAND_FLOAT) return CB_F64;
    return number->kind == CB_OPERAND_INT ? CB_I64 : CB_BOOL;
}

Scalar number_scalar(const cb_operand *number) {
    if (number->kind == CB_OPERAND_FLOAT) return (Scalar){.f = number->f};
    return (Scalar){.i = number->kind == CB_OPERAND_BOOL ? number->i != 0 : number->i};
}

cb_operand number_from(cb_dtype dtype, Scalar value) {
    if (dtype_is_float(dtype)) return cb_operand_float(value.f);
    return dtype == CB_BOOL ? cb_operand_bool(value.i != 0) : cb_operand_int(value.i);
}

static bool float_fits(double value, cb_dtype dtype) {
    if (fabs(value) <= 1) return true; /* mostly: a rate, a slope */
    const DtypeInfo *info = dtype_info(dtype);
    double most = ldexp(2 - ldexp(1, 1 - info->digits), info->exponent);
    return !isfinite(value) || fabs(value) <= most;
}

/* A negative integer wraps around in what has no sign, and a float does not, as in PyTorch. */
bool number_fits(cb_dtype from, Scalar value, cb_dtype to) {
    bool is_float = dtype_is_float(from);
    if (from == CB_BOOL || to == CB_BOOL) return true;
    if (dtype_is_float(to)) return float_fits(is_float ? value.f : (double)value.i, to);
    int64_t least = scalar_identity(OP_amax, to).i, most = scalar_identity(OP_amin, to).i;
    if (is_float) return value.f >= (double)least && value.f <= (double)most && value.f < 0x1p63;
    return value.i >= (dtype_info(to)->is_signed ? least : -most) && value.i <= most;
}

bool number_converts(const cb_operand *number, cb_dtype dtype, char why[NUMBER_TEXT]) {
    Scalar value = number_scalar(number);
    cb_dtype own = number_dtype(number);
    if (number_fits(own, value, dtype)) return true;
    const char *name = cb_dtype_name(dtype);
    if (own == CB_F64)
        snprintf(why, NUMBER_TEXT, "the number %g is no %s", value.f, name);
    else
        snprintf(why, NUMBER_TEXT, "the number %lld is no %s", (long long)value.i, name);
    return false;
}

/* A number that some dtype refuses is looked at when the op is built. */
static bool may_be_refused(Op op, const cb_operand *number) {
    Scalar value = number_scalar(number);
    cb_dtype own = number_dtype(number);
    if (!op_divides(op) && !(op_info(op)->flags & FITS_NUMBER)) return false;
    if (op_divides(op)) /* 0 in some dtype: integers wrap around */
        return own == CB_F64 ? value.f == 0 : scalar_convert(value, own, CB_I8).i == 0;
    bool fits = own == CB_F64 ? number_fits(own, value, CB_F16)
                              : number_fits(own, value, CB_I8) && value.i >= 0;
    return !fits;
}

/* pow is much cheaper with a known exponent. A WIDE_NUMBER beside f16 or bf16 is no value of that
 * dtype, so it cannot be an input. */
bool number_may_vary(Op op, const cb_operand *number, bool beside_half) {
    const OpInfo *info = op_info(op);
    if (op == OP_pow || info->kind != KIND_POINTWISE) return false;
    return !may_be_refused(op, number) && !(beside_half && info->flags & WIDE_NUMBER);
}

double number_as_double(const cb_operand *number) {
    return scalar_convert(number_scalar(number), number_dtype(number), CB_F64).f;
}

bool pow_needs_f64(double exponent) {
    return trunc(exponent) == exponent && (float)exponent != exponent;
}

/* Powers that are computed otherwise (graph/rules.def, graph/build.c), and what rounds to one of
 * them in some dtype. Integers have no negative ones. */
bool pow_may_vary(int operand, const cb_operand *number) {
    static const double special[] = {0, 0.5, 1, 2, 3, 4, -0.5, -1, -2};
    double value = number_as_double(number);
    double near = scalar_convert((Scalar){.f = value}, CB_F64, CB_BF16).f;
    if (operand == 0) return near != 2;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (near == special[i]) return false;
    return !may_be_refused(OP_pow, number);
}

/* ---- attributes that vary -------------------------------------------------------------------- */

const Param *op_varying(Op op, int position) {
    const OpInfo *info = op_info(op);
    for (int i = 0; i < info->param_count; i++)
        if (info->param[i].varies != VARIES_NOT && position-- == 0) return &info->param[i];
    return NULL;
}

cb_operand attr_varying(const Param *param, const int64_t *word) {
    bool number = param->type == PARAM_NUMBER;
    word += param->word;
    if (param->varies == VARIES_START) return cb_operand_int(*word);
    return (cb_operand){.kind = number ? (int)word[0] : CB_OPERAND_FLOAT, .i = word[number]};
}

static double limit_of(const Attrs *attrs, int word) {
    cb_operand limit = attr_number(attrs, word);
    return number_as_double(&limit);
}

/* Its limits are values of x's dtype, in order. */
static bool hardtanh_varies(const Attrs *attrs, cb_dtype beside) {
    return dtype_is_float(beside) &&
           limit_of(attrs, ATTR_hardtanh_low) <= limit_of(attrs, ATTR_hardtanh_high);
}

/* What it will be converted to: clamp alone promotes x beside its limits. */
static cb_dtype dtype_beside(Op op, const Attrs *attrs, cb_dtype own, cb_dtype beside) {
    if (op == OP_full) beside = attrs->word[ATTR_full_dtype];
    bool above = op == OP_clamp && dtype_kind(own) > dtype_kind(beside);
    cb_dtype weak = dtype_is_float(own) ? CB_F32 : own;
    return above || beside == CB_SAME ? weak : beside;
}

bool attr_may_vary(Op op, const Param *param, const Attrs *attrs, cb_dtype beside) {
    cb_operand number = attr_varying(param, attrs->word);
    if (!number_given(&number) || (op == OP_hardtanh && !hardtanh_varies(attrs, beside)))
        return false;
    cb_dtype own = number_dtype(&number);
    double value = number_as_double(&number);
    bool holds = value == value && (param->varies != VARIES_WITHIN_1 || value < 1);
    holds &= param->varies == VARIES_FREELY || value > 0;
    return holds && number_fits(own, number_scalar(&number), dtype_beside(op, attrs, own, beside));
}

static const uint64_t argument_bits = 0x7ffbcb0000000000; /* and the number of the input */
static const uint64_t argument_mask = 0xffffffff00000000;

void attr_set_argument(Attrs *attrs, const Param *param, int input) {
    int64_t *word = &attrs->word[param->word];
    if (param->type == PARAM_NUMBER) *word++ = CB_OPERAND_FLOAT;
    *word = (int64_t)(argument_bits | (uint32_t)input);
}

int attr_argument(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & argument_mask) == argument_bits ? (int)(uint32_t)bits : -1;
}

void attrs_settle(Attrs *attrs, Op op) {
    const Param *param;
    for (int k = 0; (param = op_varying(op, k)); k++) {
        cb_operand number = attr_varying(param, attrs->word);
        int word = param->word + (param->type == PARAM_NUMBER);
        if (number.kind == CB_OPERAND_FLOAT && isnan(number.f)) attr_set_float(attrs, word, NAN);
    }
}
