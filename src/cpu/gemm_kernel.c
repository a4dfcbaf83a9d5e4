/* The gemm kernels of one instruction set (base/level.h). Tiles: 14 x 2 vectors of 64 bytes fill 28
 * of 32 registers; 6 x 2 vectors fill 12 of 16. */
#include "cpu/gemm_kernel.h"
#include "base/level.h"
#include "cpu/tile.h"
#include <string.h>

#if VECTOR_BYTES == 64
#define TILE_ROWS 14
#define EACH_COUNT UP_TO_14
#else
#define TILE_ROWS 6
#define EACH_COUNT UP_TO_6
#endif

enum { AHEAD = 4096 }; /* bytes between what a tile reads of b and what it asks for */

#define ELEMENT float
#define NAME(x) x##_f32
#if VECTOR_BYTES == 64
#define LOW LOW_16
#define HIGH HIGH_16
#elif VECTOR_BYTES == 32
#define LOW LOW_8
#define HIGH HIGH_8
#else
#define LOW LOW_4
#define HIGH HIGH_4
#endif
#include "cpu/gemm_tile.h"
#undef ELEMENT
#undef NAME
#undef LOW
#undef HIGH

#define ELEMENT double
#define NAME(x) x##_f64
#if VECTOR_BYTES == 64
#define LOW LOW_8
#define HIGH HIGH_8
#elif VECTOR_BYTES == 32
#define LOW LOW_4
#define HIGH HIGH_4
#else
#define LOW LOW_2
#define HIGH HIGH_2
#endif
#include "cpu/gemm_tile.h"
#undef ELEMENT
#undef NAME
#undef LOW
#undef HIGH

/* ---- half precision, a row at a time ---- */

static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The exponent is moved by a multiplication, which also makes denormals right; infinity and NaN get
 * their exponent back by hand. */
static void widen_f16(const void *from, void *to, int64_t count) {
    const uint16_t *in = from;
    float *out = to;
    for (int64_t i = 0; i < count; i++) {
        uint32_t half = in[i], magnitude = (half & 0x7fff) << 13;
        uint32_t bits = bits_of(float_of(magnitude) * 0x1p112f);
        bits = (half & 0x7c00) == 0x7c00 ? magnitude | 0x7f800000 : bits;
        out[i] = float_of(bits | (half & 0x8000) << 16);
    }
}

static void widen_bf16(const void *from, void *to, int64_t count) {
    const uint16_t *in = from;
    float *out = to;
    for (int64_t i = 0; i < count; i++) out[i] = float_of((uint32_t)in[i] << 16);
}

/* Round to nearest even: adding half of the last place, minus one where it is even, carries rightly
 * into the exponent. Below 2^-14 the addition of 0.5 makes the processor round at the denormals'
 * place. */
static void narrow_f16(const void *from, void *to, int64_t count) {
    const float *in = from;
    uint16_t *out = to;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = bits_of(in[i]), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
        uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
        uint32_t small = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000;
        uint32_t half = magnitude < 0x38800000 ? small : normal;
        half = magnitude >= 0x47800000 ? 0x7c00 : half;
        half = magnitude > 0x7f800000 ? 0x7e00 : half;
        out[i] = (uint16_t)(half | sign);
    }
}

static void narrow_bf16(const void *from, void *to, int64_t count) {
    const float *in = from;
    uint16_t *out = to;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = bits_of(in[i]);
        uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        out[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
    }
}

#define TYPE(suffix)                                                                               \
    {                                                                                              \
        .rows = TILE_ROWS, .columns = COLUMNS_##suffix, .together = 1, .k_unit = 1,                \
        .k_bytes = GEMM_K_BYTES, .tile = tile_##suffix, .tile_ahead = tile_ahead_##suffix,         \
        .rows_tile = rows_tile_##suffix, .rows_tile_ahead = rows_tile_ahead_##suffix,              \
        .depthwise = depthwise_##suffix, .pack = pack_##suffix, .pack_rows = pack_##suffix,        \
        .dot = dot_##suffix, .sweep = sweep_##suffix                                               \
    }

const GemmKernels LEVEL_TABLE(gemm_kernels_) = {
    .f32 = TYPE(f32),
    .f64 = TYPE(f64),
    .widen_f16 = widen_f16,
    .widen_bf16 = widen_bf16,
    .narrow_f16 = narrow_f16,
    .narrow_bf16 = narrow_bf16,
};
