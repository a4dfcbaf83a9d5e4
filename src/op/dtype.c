/* Element types: what dtype.def says of each, their promotion, and the 16-bit floats.
 *
 * cb_promote(CB_U8, CB_I8) == CB_I16; cb_promote(CB_I64, CB_F16) == CB_F16. */
#include "op/math.h"
#include "op/op.h"

/* The rows stand in the order of the public enum. */
enum {
#define DTYPE(id, ...) ROW_##id,
#include "op/dtype_rows.h"
    ROW_COUNT
};
_Static_assert((int)ROW_COUNT == (int)CB_DTYPE_COUNT, "a row for each dtype of carbide.h");
#define DTYPE(id, ...) _Static_assert((int)ROW_##id == (int)CB_##id, "CB_" #id " is row " #id);
#include "op/dtype_rows.h"

static const DtypeInfo infos[CB_DTYPE_COUNT] = {
#define INFO(id, text, of_kind, stored, computed, bits, range, npy_name, io_name, torch_name)      \
    [CB_##id] = {.kind = of_kind,                                                                  \
                 .size = sizeof(stored),                                                           \
                 .digits = bits,                                                                   \
                 .exponent = range,                                                                \
                 .is_signed = (of_kind) == KIND_HALF || (stored)-1 < 1,                            \
                 .name = text,                                                                     \
                 .symbol = "CB_" #id,                                                              \
                 .storage = #stored,                                                               \
                 .npy = npy_name,                                                                  \
                 .safetensors = io_name,                                                           \
                 .torch = "torch." torch_name},
#define BOOL_ROW(id, name, ...) INFO(id, #name, KIND_BOOL, __VA_ARGS__)
#define NARROW_ROW(id, name, ...) INFO(id, #name, KIND_NARROW, __VA_ARGS__)
#define INTEGER_ROW(id, name, ...) INFO(id, #name, KIND_INTEGER, __VA_ARGS__)
#define HALF_ROW(id, name, ...) INFO(id, #name, KIND_HALF, __VA_ARGS__)
#define FLOAT_ROW(id, name, ...) INFO(id, #name, KIND_FLOAT, __VA_ARGS__)
#include "op/dtype_rows.h"
};

static bool known(cb_dtype dtype) { return dtype >= 0 && dtype < CB_DTYPE_COUNT; }

const DtypeInfo *dtype_info(cb_dtype dtype) {
    check(known(dtype), "dtype %d", (int)dtype);
    return &infos[dtype];
}

const char *cb_dtype_name(cb_dtype dtype) { return known(dtype) ? infos[dtype].name : "?"; }

size_t cb_dtype_size(cb_dtype dtype) { return known(dtype) ? infos[dtype].size : 0; }

bool dtype_is_half(cb_dtype dtype) { return known(dtype) && infos[dtype].kind == KIND_HALF; }

bool dtype_is_float(cb_dtype dtype) { return known(dtype) && infos[dtype].kind >= KIND_HALF; }

cb_dtype compute_dtype(cb_dtype dtype) { return dtype_is_half(dtype) ? CB_F32 : dtype; }

bool dtype_is_int(cb_dtype dtype) {
    return known(dtype) && infos[dtype].kind != KIND_BOOL && !dtype_is_float(dtype);
}

int dtype_kind(cb_dtype dtype) { return dtype_is_float(dtype) ? 2 : dtype != CB_BOOL; }

bool dtype_holds(cb_dtype to, cb_dtype from) {
    const DtypeInfo *a = dtype_info(from), *b = dtype_info(to);
    if (dtype_is_float(from) && !dtype_is_float(to)) return false;
    return a->digits <= b->digits && a->exponent <= b->exponent && (!a->is_signed || b->is_signed);
}

/* The narrowest of their kind that holds both: i16 for u8 and i8, f32 for f16 and bf16. */
cb_dtype cb_promote(cb_dtype a, cb_dtype b) {
    cb_dtype best = a > b ? a : b;
    if (a == b || !known(a) || !known(b)) return best;
    int kind = dtype_kind(a);
    if (kind != dtype_kind(b)) return kind > dtype_kind(b) ? a : b;
    size_t size = SIZE_MAX;
    for (cb_dtype d = 0; d < CB_DTYPE_COUNT; d++) {
        if (dtype_kind(d) != kind || !dtype_holds(d, a) || !dtype_holds(d, b)) continue;
        if (infos[d].size < size) size = infos[best = d].size;
    }
    return best;
}

/* The text of all engines, compiled once. */
#define HALF_ROW(id, name, storage, ...)                                                           \
    float name##_to_f32(storage bits) { return m_from_##name##_f32(bits); }                        \
    storage name##_from_f32(float value) { return m_to_##name##_f32(value); }
#include "op/dtype_rows.h"
