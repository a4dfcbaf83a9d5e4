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
#define UNARY(name, fx, rule, cost, gradient, value) F64_##rule(OP_##name, value)
#define BINARY(name, fx, flags, rule, cost, gradient, value) F64_##rule(OP_##name, value)
#define INTERNAL(name, arity, rule, cost, value) F64_##rule(OP_##name, value)
#define REDUCE(name, fx, rule, cast, identity, gradient, combine) F64_##rule(OP_##name, combine)
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
#define UNARY(name, fx, rule, cost, gradient, value) I64_##rule(OP_##name, value)
#define BINARY(name, fx, flags, rule, cost, gradient, value) I64_##rule(OP_##name, value)
#define INTERNAL(name, arity, rule, cost, value) I64_##rule(OP_##name, value)
#define REDUCE(name, fx, rule, cast, identity, gradient, combine) I64_##rule(OP_##name, combine)
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
#define HALF_ROW(id, name, ...)                                                                    \
    case CB_##id:                                                                                  \
        return name##_to_f32(name##_from_f32((float)value));
#define FLOAT_ROW(id, name, storage, ...)                                                          \
    case CB_##id:                                                                                  \
        return (storage)value;
#include "op/dtype_rows.h"
    default:
        return value;
    }
}

/* The low bits of the value, with the sign of the highest of them where the dtype is signed. */
static int64_t wrap_int(int64_t value, cb_dtype dtype) {
    const DtypeInfo *info = dtype_info(dtype);
    if (info->kind == KIND_BOOL) return value != 0;
    int shift = 64 - 8 * info->size;
    uint64_t high = (uint64_t)value << shift;
    return info->is_signed ? (int64_t)high >> shift : (int64_t)(high >> shift);
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
    switch (dtype) {
#define LOADED(id, storage, field, value)                                                          \
    case CB_##id: {                                                                                \
        storage stored;                                                                            \
        memcpy(&stored, element, sizeof stored);                                                   \
        return (Scalar){.field = (value)};                                                         \
    }
#define BOOL_ROW(id, name, storage, ...) LOADED(id, storage, i, stored != 0)
#define NARROW_ROW(id, name, storage, ...) LOADED(id, storage, i, stored)
#define INTEGER_ROW NARROW_ROW
#define HALF_ROW(id, name, storage, ...) LOADED(id, storage, f, name##_to_f32(stored))
#define FLOAT_ROW(id, name, storage, ...) LOADED(id, storage, f, stored)
#include "op/dtype_rows.h"
    default:
        return (Scalar){.i = 0};
    }
}

void scalar_store(void *element, cb_dtype dtype, Scalar value) {
    switch (dtype) {
#define STORED(id, storage, value)                                                                 \
    case CB_##id: {                                                                                \
        storage stored = (storage)(value);                                                         \
        memcpy(element, &stored, sizeof stored);                                                   \
        return;                                                                                    \
    }
#define BOOL_ROW(id, name, storage, ...) STORED(id, storage, value.i != 0)
#define NARROW_ROW(id, name, storage, ...) STORED(id, storage, value.i)
#define INTEGER_ROW NARROW_ROW
#define HALF_ROW(id, name, storage, ...) STORED(id, storage, name##_from_f32((float)value.f))
#define FLOAT_ROW(id, name, storage, ...) STORED(id, storage, value.f)
#include "op/dtype_rows.h"
    default:
        return;
    }
}

/* ---- folds: the identity and combine columns of reductions --------------------------------- */

static double identity_f64(Op reduce) {
    switch (reduce) {
#define M(name) m_##name##_f64
#define K(literal) ((double)(literal))
#define REDUCE(name, fx, rule, cast, identity, gradient, combine)                                  \
    case OP_##name:                                                                                \
        return identity;
#include "op/op_rows.h"
#undef M
#undef K
    default:
        check(false, "%s is no reduction", op_info(reduce)->name);
        return 0;
    }
}

static int64_t highest(cb_dtype dtype) {
    return (int64_t)(UINT64_MAX >> (64 - dtype_info(dtype)->digits));
}

static int64_t lowest(cb_dtype dtype) {
    return dtype_info(dtype)->is_signed ? -highest(dtype) - 1 : 0;
}

static int64_t identity_i64(Op reduce, cb_dtype dtype) {
    switch (reduce) {
#define M(name) name(dtype)
#define K(literal) literal
#define REDUCE(name, fx, rule, cast, identity, gradient, combine)                                  \
    case OP_##name:                                                                                \
        return identity;
#include "op/op_rows.h"
#undef M
#undef K
    default:
        check(false, "%s is no reduction", op_info(reduce)->name);
        return 0;
    }
}

Scalar scalar_identity(Op reduce, cb_dtype dtype) {
    if (dtype_is_float(dtype)) return (Scalar){.f = identity_f64(reduce)};
    return (Scalar){.i = identity_i64(reduce, dtype)};
}

/* One loop per op: chosen inside, the switch would cost more than the arithmetic. */
#undef COMPILED
#define COMPILED(op, value)                                                                        \
    case op:                                                                                       \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const NUMBER a = total[i].FIELD, b = part[i].FIELD;                                    \
            total[i].FIELD = value;                                                                \
        }                                                                                          \
        return;

static void fold_f64(Op op, Scalar *restrict total, const Scalar *restrict part, int64_t count) {
    switch (op) {
#define NUMBER double
#define FIELD f
#define M(name) m_##name##_f64
#define REDUCE(name, fx, rule, cast, identity, gradient, combine) F64_##rule(OP_##name, combine)
#include "op/op_rows.h"
#undef NUMBER
#undef FIELD
#undef M
    default:
        check(false, "%s does not fold floats", op_info(op)->name);
    }
}

__attribute__((no_sanitize("signed-integer-overflow"))) static void
fold_i64(Op op, Scalar *restrict total, const Scalar *restrict part, int64_t count) {
    switch (op) {
#define NUMBER int64_t
#define FIELD i
#define M(name) m_##name##_i64
#define REDUCE(name, fx, rule, cast, identity, gradient, combine) I64_##rule(OP_##name, combine)
#include "op/op_rows.h"
#undef NUMBER
#undef FIELD
#undef M
    default:
        check(false, "%s does not fold integers", op_info(op)->name);
    }
}

void scalar_fold(Op reduce, cb_dtype dtype, Scalar *restrict total, const Scalar *restrict part,
                 int64_t count) {
    (dtype_is_float(dtype) ? fold_f64 : fold_i64)(reduce, total, part, count);
}
