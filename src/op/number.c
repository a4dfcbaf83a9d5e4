/* Numbers as the caller wrote them: an integer, a float or a bool, each exactly.
 *
 *     full([2], 9223372036854775807)  carries the integer, full([2], 1.0) a float; i64 and f32 come
 *                                     of it
 *
 * As attributes they take two words, what they are and their bits; none at all is two zeros. */
#include "op/op.h"

#include <math.h>
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
    if (is_float) return value.f >= (double)least && value.f <= (double)most;
    return value.i >= (dtype_info(to)->is_signed ? least : -most) && value.i <= most;
}

/* A number that some dtype refuses is looked at when the op is built. */
static bool may_be_refused(Op op, const cb_operand *number) {
    Scalar value = number_scalar(number);
    cb_dtype own = number_dtype(number);
    if (op == OP_floor_divide || op == OP_remainder || op == OP_fmod)
        return scalar_convert(value, own, CB_F64).f == 0;
    bool fits = own == CB_F64 ? number_fits(own, value, CB_F16)
                              : number_fits(own, value, CB_I8) && value.i >= 0;
    return op_info(op)->flags & FITS_NUMBER && !fits;
}

/* pow is much cheaper with a known exponent. A WIDE_NUMBER beside f16 or bf16 is no value of that
 * dtype, so it cannot be an input. */
bool number_may_vary(Op op, const cb_operand *number, bool beside_half) {
    const OpInfo *info = op_info(op);
    if (op == OP_pow || info->kind != KIND_POINTWISE) return false;
    return !may_be_refused(op, number) && !(beside_half && info->flags & WIDE_NUMBER);
}
