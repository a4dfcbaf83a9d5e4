/* The attention kernels of one instruction set (base/level.h). */
#include "cpu/attention_kernel.h"
#include "base/level.h"

#include "op/math.h" /* behind level.h: contracted */

#include <stddef.h>
#include <string.h>

#define SIMD _Pragma("omp simd")

/* 2^x on [-126, 0]: one factor is the power of two, which is never denormal. */
static inline float exp2_below_0_f32(float x) {
    float t = x + 12583039.0f; /* n + 127 in the low bits */
    float r = (x - (t - 12583039.0f)) * 0.693147182f;
    return m_exp_poly_f32(r) * m_float_f32(m_bits_f32(t) << 23);
}

#define ELEMENT float
#define NAME(x) x##_f32
#define EXP2(x) exp2_below_0_f32(x)
#define LEAST (-126.0f)
#include "cpu/attention_tile.h"
#undef ELEMENT
#undef NAME
#undef EXP2
#undef LEAST

#define ELEMENT double
#define NAME(x) x##_f64
#define EXP2(x) m_exp2_f64(x)
#define LEAST (-1022.0)
#include "cpu/attention_tile.h"
#undef ELEMENT
#undef NAME
#undef EXP2
#undef LEAST

static void pair(int64_t keys, const void *weights, void *panel) {
    const float *x = weights;
    uint32_t *out = panel;
    for (int64_t key = 0; key + 2 <= keys; key += 2, x += 2 * LANES_f32, out += LANES_f32)
        SIMD for (int i = 0; i < LANES_f32; i++) out[i] =
            m_to_bf16_f32(x[i]) | (uint32_t)m_to_bf16_f32(x[LANES_f32 + i]) << 16;
    for (int i = 0; i < LANES_f32 && keys % 2; i++) out[i] = m_to_bf16_f32(x[i]);
}

const AttentionKernels LEVEL_TABLE(attention_kernels_) = {
    .f32 = {LANES_f32, scale_f32, add_f32, causal_f32, softmax_f32, pair, multiply_f32, invert_f32,
            slope_f32, widen_bool_f32},
    .f64 = {LANES_f64, scale_f64, add_f64, causal_f64, softmax_f64, NULL, multiply_f64, invert_f64,
            slope_f64, widen_bool_f64},
};
