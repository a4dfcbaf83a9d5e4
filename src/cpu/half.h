/* Vectors of one instruction set (base/level.h, to be included before) over floats, and elements of
 * f32, bf16 and f16 read into and written from them. */
#ifndef CARBIDE_CPU_HALF_H
#define CARBIDE_CPU_HALF_H

#include <stdint.h>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

typedef float Vector __attribute__((vector_size(VECTOR_BYTES)));
typedef float Loose __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(float)), may_alias));
typedef uint32_t Bits __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t Halves __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef uint16_t LooseHalves
    __attribute__((vector_size(VECTOR_BYTES / 2), aligned(sizeof(uint16_t)), may_alias));
enum { LANES = VECTOR_BYTES / sizeof(float) };

static inline Vector load_f32(const void *from) { return *(const Loose *)from; }
static inline void store_f32(void *to, Vector v) { *(Loose *)to = v; }

static inline Bits load_halves(const void *from) {
    return __builtin_convertvector(*(const LooseHalves *)from, Bits);
}

static inline void store_halves(void *to, Bits bits) {
    *(LooseHalves *)to = __builtin_convertvector(bits, Halves);
}

static inline Bits pick(Bits mask, Bits yes, Bits no) { return (mask & yes) | (~mask & no); }

/* The conversions of op/math_f32.h, a vector at a time. */

static inline Vector load_bf16(const void *from) { return (Vector)(load_halves(from) << 16); }

#if defined(__AVX512BF16__)
static inline void store_bf16(void *to, Vector v) { /* denormals become 0, as to its products */
    _mm256_storeu_si256(to, (__m256i)_mm512_cvtneps_pbh((__m512)v));
}
#else
static inline void store_bf16(void *to, Vector v) {
    Bits bits = (Bits)v, nan = (Bits)((bits & 0x7fffffff) > 0x7f800000);
    Bits rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    store_halves(to, pick(nan, bits >> 16 | 0x40, rounded));
}
#endif

static inline Vector load_f16(const void *from) {
    Bits half = load_halves(from), magnitude = (half & 0x7fff) << 13;
    Bits special = (Bits)((half & 0x7c00) == 0x7c00) & 0x7f800000;
    Bits small = (Bits)((Vector)(magnitude + 0x38800000) - 0x1p-14f);
    Bits moved = (Bits)((Vector)(magnitude | special) * 0x1p112f);
    Bits bits = pick((Bits)(magnitude < 0x00800000), small, moved);
    return (Vector)(bits | (half & 0x8000) << 16);
}

static inline void store_f16(void *to, Vector v) {
    Bits bits = (Bits)v, sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    Bits normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    Bits small = (Bits)((Vector)magnitude + 0.5f) - 0x3f000000;
    Bits half = pick((Bits)(magnitude < 0x38800000), small, normal);
    Bits infinite = (Bits)(magnitude >= 0x47800000), nan = (Bits)(magnitude > 0x7f800000);
    half = pick(infinite, (Bits){0} + 0x7c00, half);
    store_halves(to, pick(nan, 0x7e00 | (magnitude >> 13 & 0x1ff), half) | sign);
}

#endif
