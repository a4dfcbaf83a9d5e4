/* Scalar functions: the value column of the op table compiled for one element, for constant
 * folding.
 *
 *     scalar_eval(OP_mul, CB_U8, {200, 2})     -> 144: computed in i64, wrapped to u8
 *     scalar_eval(OP_exp, CB_F32, {1.0})       -> e, computed in f64, rounded to f32
 *
 * Floats of every width are computed in f64 and rounded once, which is exact for + - * / and sqrt
 * and at least as good as f32 elsewhere; integers and bool are computed in i64 and wrapped.
 * Conversion of a float to an integer truncates; what i64 cannot hold becomes INT64_MIN, NaN
 * becomes 0, and i64 then wraps to the narrower type. PyTorch leaves those cases undefined. */
#include "op/math.h"
#include "op/op.h"

#include <math.h>
#include <string.h>

/* Which rows exist for which compute type: F64_RULE(op, value) and I64_RULE(op, value). */
#define COMPILED(op, value)                                                                        \
    case op:                                                                                       \
        return value;
#define F64_SAME COMPILED
#define F64_NUMERIC COMPILED
#define F64_FLOAT COMPILED
#define F64_BOOL COMPILED
#define F64_SUM COMPILED
#define F64_LOGICAL(op, value)
#define F64_INT(op, value)
#define F64_SHIFT(op, value)
#define I64_SAME COMPILED
#define I64_NUMERIC COMPILED
#define I64_FLOAT(op, value)
#define I64_BOOL COMPILED
#define I64_SUM COMPILED
#define I64_LOGICAL COMPILED
#define I64_INT COMPILED
#define I64_SHIFT COMPILED
#define F64_I64(op, value)
#define I64_I64 COMPILED

static double eval_f64(Op op, double a, double b, double c) {
#define M(name) m_##name##_f64
#define K(literal) ((double)(literal))
    switch (op) {
#define UNARY(name, fx, rule, cost, value) F64_##rule(OP_##name, value)
#define BINARY(name, fx, flags, rule, cost, value) F64_##rule(OP_##name, value)
#define INTERNAL(name, arity, rule, cost, value) F64_##rule(OP_##name, value)
#define REDUCE(name, fx, rule, cast, identity, combine) F64_##rule(OP_##name, combine)
#include "op/op_rows.h"
    default:
        check(false, "%s has no value on floats", op_info(op)->name);
        return 0;
    }
#undef M
#undef K
}

/* Overflow wraps: nothing here lets the compiler assume that it cannot happen. */
__attribute__((no_sanitize("signed-integer-overflow"))) static int64_t
eval_i64(Op op, int64_t a, int64_t b, int64_t c) {
#define M(name) m_##name##_i64
#define K(literal) ((int64_t)(literal))
    switch (op) {
#define UNARY(name, fx, rule, cost, value) I64_##rule(OP_##name, value)
#define BINARY(name, fx, flags, rule, cost, value) I64_##rule(OP_##name, value)
#define INTERNAL(name, arity, rule, cost, value) I64_##rule(OP_##name, value)
#define REDUCE(name, fx, rule, cast, identity, combine) I64_##rule(OP_##name, combine)
#include "op/op_rows.h"
    default:
        check(false, "%s has no value on integers", op_info(op)->name);
        return 0;
    }
#undef M
#undef K
}

static double round_float(double value, cb_dtype dtype) {
    switch (dtype) {
    case CB_F16:
        return f16_to_f32(f16_from_f32((float)value));
    case CB_BF16:
        return bf16_to_f32(bf16_from_f32((float)value));
    case CB_F32:
        return (float)value;
    default:
        return value;
    }
}

static int64_t wrap_int(int64_t value, cb_dtype dtype) {
    switch (dtype) {
    case CB_BOOL:
        return value != 0;
    case CB_U8:
        return (uint8_t)value;
    case CB_I8:
        return (int8_t)(uint8_t)value;
    case CB_I16:
        return (int16_t)(uint16_t)value;
    case CB_I32:
        return (int32_t)(uint32_t)value;
    default:
        return value;
    }
}

static int64_t truncate_float(double value) {
    if (value != value) return 0;
    return value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN;
}

Scalar scalar_convert(Scalar value, cb_dtype from, cb_dtype to) {
    bool from_float = dtype_is_float(from), to_float = dtype_is_float(to);
    if (from_float && to_float) return (Scalar){.f = round_float(value.f, to)};
    if (to_float) { /* straight to f32, so that an i64 is rounded once */
        double converted = to == CB_F64 ? (double)value.i : (double)(float)value.i;
        return (Scalar){.f = round_float(converted, to)};
    }
    if (from_float && to == CB_BOOL) return (Scalar){.i = value.f != 0};
    return (Scalar){.i = wrap_int(from_float ? truncate_float(value.f) : value.i, to)};
}

Scalar scalar_eval(Op op, cb_dtype dtype, const Scalar *input) {
    const OpInfo *info = op_info(op);
    int arity = info->kind == KIND_REDUCE ? 2 : info->arity;
    bool is_bool = info->dtype == DTYPE_BOOL || info->dtype == DTYPE_LOGICAL;
    if (op == OP_where) return input[0].i ? input[1] : input[2];
    if (op == OP_clone || op == OP_contiguous) return input[0];
    if (op == OP_bitwise_not && dtype == CB_BOOL) return (Scalar){.i = !input[0].i};
    if (dtype_is_float(dtype) && info->dtype != DTYPE_LOGICAL) {
        double value =
            eval_f64(op, input[0].f, arity > 1 ? input[1].f : 0, arity > 2 ? input[2].f : 0);
        if (is_bool) return (Scalar){.i = value != 0};
        return (Scalar){.f = round_float(value, dtype)};
    }
    int64_t value =
        eval_i64(op, input[0].i, arity > 1 ? input[1].i : 0, arity > 2 ? input[2].i : 0);
    return (Scalar){.i = wrap_int(value, is_bool ? CB_BOOL : dtype)};
}

Scalar scalar_load(const void *element, cb_dtype dtype) {
    union {
        uint8_t u8;
        int8_t i8;
        int16_t i16;
        uint16_t u16;
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
    } bits;
    memcpy(&bits, element, cb_dtype_size(dtype));
    switch (dtype) {
    case CB_BOOL:
        return (Scalar){.i = bits.u8 != 0};
    case CB_U8:
        return (Scalar){.i = bits.u8};
    case CB_I8:
        return (Scalar){.i = bits.i8};
    case CB_I16:
        return (Scalar){.i = bits.i16};
    case CB_I32:
        return (Scalar){.i = bits.i32};
    case CB_F16:
        return (Scalar){.f = f16_to_f32(bits.u16)};
    case CB_BF16:
        return (Scalar){.f = bf16_to_f32(bits.u16)};
    case CB_F32:
        return (Scalar){.f = bits.f32};
    case CB_F64:
        return (Scalar){.f = bits.f64};
    default:
        return (Scalar){.i = bits.i64};
    }
}

void scalar_store(void *element, cb_dtype dtype, Scalar value) {
    uint16_t half;
    float single;
    switch (dtype) {
    case CB_F16:
        half = f16_from_f32((float)value.f);
        break;
    case CB_BF16:
        half = bf16_from_f32((float)value.f);
        break;
    case CB_F32:
        single = (float)value.f;
        memcpy(element, &single, sizeof single);
        return;
    case CB_F64:
        memcpy(element, &value.f, sizeof value.f);
        return;
    default: /* the low bytes of a little-endian integer are the wrapped one */
        if (dtype == CB_BOOL) value.i = value.i != 0;
        memcpy(element, &value.i, cb_dtype_size(dtype));
        return;
    }
    memcpy(element, &half, sizeof half);
}

static Scalar extreme(cb_dtype dtype, bool highest) {
    if (dtype_is_float(dtype)) return (Scalar){.f = highest ? (double)INFINITY : -(double)INFINITY};
    switch (dtype) {
    case CB_BOOL:
        return (Scalar){.i = highest};
    case CB_U8:
        return (Scalar){.i = highest ? UINT8_MAX : 0};
    case CB_I8:
        return (Scalar){.i = highest ? INT8_MAX : INT8_MIN};
    case CB_I16:
        return (Scalar){.i = highest ? INT16_MAX : INT16_MIN};
    case CB_I32:
        return (Scalar){.i = highest ? INT32_MAX : INT32_MIN};
    default:
        return (Scalar){.i = highest ? INT64_MAX : INT64_MIN};
    }
}

static Scalar of_number(cb_dtype dtype, int64_t number) {
    return dtype_is_float(dtype) ? (Scalar){.f = (double)number} : (Scalar){.i = number};
}

Scalar scalar_identity(Op reduce, cb_dtype dtype) {
    switch (reduce) {
    case OP_sum:
    case OP_any:
        return of_number(dtype, 0);
    case OP_prod:
    case OP_all:
        return of_number(dtype, 1);
    case OP_amax:
        return extreme(dtype, false);
    case OP_amin:
        return extreme(dtype, true);
    default:
        check(false, "%s is no reduction", op_info(reduce)->name);
        return of_number(dtype, 0);
    }
}
