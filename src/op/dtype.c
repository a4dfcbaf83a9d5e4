/* Element types: names, sizes, the promotion lattice, and the 16-bit floats.
 *
 * cb_promote(CB_U8, CB_I8) == CB_I16; cb_promote(CB_I64, CB_F16) == CB_F16. */
#include "op/op.h"

#include <string.h>

static const struct {
    const char *name;
    size_t size;
} table[CB_DTYPE_COUNT] = {
    [CB_BOOL] = {"bool", 1}, [CB_U8] = {"u8", 1},   [CB_I8] = {"i8", 1},   [CB_I16] = {"i16", 2},
    [CB_I32] = {"i32", 4},   [CB_I64] = {"i64", 8}, [CB_F16] = {"f16", 2}, [CB_BF16] = {"bf16", 2},
    [CB_F32] = {"f32", 4},   [CB_F64] = {"f64", 8},
};

static bool known(cb_dtype dtype) { return (int)dtype >= 0 && dtype < CB_DTYPE_COUNT; }

const char *cb_dtype_name(cb_dtype dtype) { return known(dtype) ? table[dtype].name : "?"; }

size_t cb_dtype_size(cb_dtype dtype) { return known(dtype) ? table[dtype].size : 0; }

bool dtype_is_float(cb_dtype dtype) { return dtype >= CB_F16 && dtype <= CB_F64; }

cb_dtype compute_dtype(cb_dtype dtype) {
    return dtype == CB_F16 || dtype == CB_BF16 ? CB_F32 : dtype;
}

bool dtype_is_int(cb_dtype dtype) { return dtype >= CB_U8 && dtype <= CB_I64; }

int dtype_kind(cb_dtype dtype) { return dtype_is_float(dtype) ? 2 : dtype != CB_BOOL; }

cb_dtype cb_promote(cb_dtype a, cb_dtype b) {
    cb_dtype low = a < b ? a : b, high = a < b ? b : a;
    if (low == CB_U8 && high == CB_I8) return CB_I16; /* neither holds the other's range */
    if (low == CB_F16 && high == CB_BF16) return CB_F32;
    return high; /* the enum lists the rest in lattice order: bool, integers, floats */
}

static uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
    if (magnitude >= 0x7c00) return bits_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    if (magnitude >= 0x400) return bits_float(sign | ((magnitude << 13) + 0x38000000));
    float denormal = (float)magnitude * 0x1p-24f;
    return bits_float(sign | float_bits(denormal));
}

uint16_t f16_from_f32(float value) {
    uint32_t bits = float_bits(value), magnitude = bits & 0x7fffffff;
    uint32_t sign = bits >> 16 & 0x8000;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00); /* as all engines do */
    if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) /* the sum's unit in the last place is f16's denormal step */
        return (uint16_t)(sign | (float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000));
    uint32_t odd =
        magnitude >> 13 & 1; /* to even: 0xfff below an even digit, 0x1000 below an odd */
    return (uint16_t)(sign | (magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

float bf16_to_f32(uint16_t bits) { return bits_float((uint32_t)bits << 16); }

uint16_t bf16_from_f32(float value) {
    uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
