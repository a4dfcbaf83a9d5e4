/* Block functions of the VM: a loop over lanes for each row of the op table and each register
 * type, loads, stores, conversions. Compiled once per instruction set, with CB_LEVEL = base, v3 or
 * v4; the levels differ in speed and in the rounding of fused multiply-adds inside the scalar
 * functions.
 *
 *     exp, f32  ->  void block_exp_f32(n, y, a, ...) { for (i < n) y[i] = m_exp_f32(a[i]); } */
#include "op/math.h"
#include "vm/instruction.h"

#ifdef __clang__ /* a few rows hold loops and stay scalar: no reason to warn */
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

#include <string.h>
#ifdef __SSE__
#include <immintrin.h>
#endif

#define JOIN3_(a, b, c) a##b##c
#define JOIN3(a, b, c) JOIN3_(a, b, c)
#define SIMD _Pragma("omp simd")
#define KEEP(...) __VA_ARGS__
#define DROP(...)

enum {
    PARTS = 64, /* of a fold */
    GROUP = 16, /* of these */
    CHEAP = 4   /* binary rows up to this cost exist in three shapes; for a dearer one, filling a
               * vector with its number is nothing */
};

/* What a row's function gives, T being what it takes. */
#define RESULT_SAME T
#define RESULT_NUMERIC T
#define RESULT_FLOAT T
#define RESULT_BOOL uint8_t
#define RESULT_LOGICAL uint8_t
#define RESULT_INT T
#define RESULT_SHIFT T
#define RESULT_I64 T

/* ---- the rows, by type ----------------------------------------------------------------------- */

#define RULE_SAME KEEP
#define RULE_NUMERIC KEEP
#define RULE_FLOAT KEEP
#define RULE_BOOL KEEP
#define RULE_LOGICAL DROP
#define RULE_INT DROP
#define RULE_SHIFT DROP
#define RULE_I64 DROP
#define REDUCE_SUM KEEP
#define REDUCE_SAME KEEP
#define REDUCE_LOGICAL DROP

#define T float
#define TYPE f32
#define MATH_TYPE f32
#define WIDE double
#define FIELD f
#include "vm/block_rows.h"

#define T double
#define TYPE f64
#define MATH_TYPE f64
#define WIDE double
#define FIELD f
#include "vm/block_rows.h"

#undef RULE_FLOAT
#undef RULE_INT
#undef RULE_SHIFT
#define RULE_FLOAT DROP
#define RULE_INT KEEP
#define RULE_SHIFT KEEP

#define T int32_t
#define TYPE i32
#define MATH_TYPE i32
#define WIDE int64_t
#define FIELD i
#include "vm/block_rows.h"

#undef RULE_I64
#define RULE_I64 KEEP

#define T int64_t
#define TYPE i64
#define MATH_TYPE i64
#define WIDE int64_t
#define FIELD i
#include "vm/block_rows.h"

#undef RULE_SAME
#undef RULE_NUMERIC
#undef RULE_BOOL
#undef RULE_LOGICAL
#undef RULE_SHIFT
#undef RULE_I64
#undef REDUCE_SUM
#undef REDUCE_SAME
#undef REDUCE_LOGICAL
#define RULE_SAME DROP
#define RULE_NUMERIC DROP
#define RULE_BOOL DROP
#define RULE_LOGICAL KEEP
#define RULE_SHIFT DROP
#define RULE_I64 DROP
#define REDUCE_SUM DROP
#define REDUCE_SAME DROP
#define REDUCE_LOGICAL KEEP

#define T uint8_t
#define TYPE truth
#define MATH_TYPE i32
#define WIDE int64_t
#define FIELD i
#include "vm/block_rows.h"

/* ---- conversions ----------------------------------------------------------------------------- */

#define MAP(name, T, S, value)                                                                     \
    static void name(int64_t n, void *py, const void *pa, const void *pb, const void *pc) {        \
        T *y = py;                                                                                 \
        const S *ra = pa;                                                                          \
        (void)pb, (void)pc;                                                                        \
        SIMD for (int64_t i = 0; i < n; i++) {                                                     \
            const S a = ra[i];                                                                     \
            y[i] = (T)(value);                                                                     \
        }                                                                                          \
    }
#define FILL(name, T)                                                                              \
    static void name(int64_t n, void *py, const void *pa, const void *pb, const void *pc) {        \
        T *y = py;                                                                                 \
        const T a = *(const T *)pa;                                                                \
        (void)pb, (void)pc;                                                                        \
        SIMD for (int64_t i = 0; i < n; i++) y[i] = a;                                             \
    }

MAP(bool_to_i32, int32_t, uint8_t, a)
MAP(bool_to_i64, int64_t, uint8_t, a)
MAP(bool_to_f32, float, uint8_t, (int32_t)a)
MAP(bool_to_f64, double, uint8_t, (int32_t)a)
MAP(i32_to_bool, uint8_t, int32_t, a != 0)
MAP(i32_to_i64, int64_t, int32_t, a)
MAP(i32_to_f32, float, int32_t, a)
MAP(i32_to_f64, double, int32_t, a)
MAP(i64_to_bool, uint8_t, int64_t, a != 0)
MAP(i64_to_i32, int32_t, int64_t, (uint32_t)(uint64_t)a)
MAP(i64_to_i64, int64_t, int64_t, a)
MAP(i64_to_f32, float, int64_t, a)
MAP(i64_to_f64, double, int64_t, a)
MAP(f32_to_bool, uint8_t, float, a != 0)
MAP(f32_to_i32, int32_t, float, m_to_i32_f32(a))
MAP(f32_to_i64, int64_t, float, m_to_i64_f32(a))
MAP(f32_to_f64, double, float, a)
MAP(f64_to_bool, uint8_t, double, a != 0)
MAP(f64_to_i32, int32_t, double, m_to_i32_f64(a))
MAP(f64_to_i64, int64_t, double, m_to_i64_f64(a))
MAP(f64_to_f32, float, double, a)
MAP(f64_to_f64, double, double, a)

#define NARROW_ROW(id, name, storage, ...) MAP(wrap_##name, int32_t, int32_t, (storage)a)
#define HALF_ROW(id, name, ...)                                                                    \
    MAP(wrap_##name, float, float, m_from_##name##_f32(m_to_##name##_f32(a)))
#include "op/dtype_rows.h"

FILL(splat_1, uint8_t)
FILL(splat_i32, int32_t)
FILL(splat_i64, int64_t)
FILL(splat_f32, float)
FILL(splat_f64, double)

/* The rest of a row is written over by the next one. */
#define SPREAD(name, T)                                                                            \
    static void name(int64_t rows, int64_t n, void *py, const void *pa) {                          \
        T *y = py;                                                                                 \
        const T *a = pa;                                                                           \
        for (int64_t r = 0; r < rows; r++, y += n)                                                 \
            for (int64_t at = 0; at < n; at += VM_SLACK)                                           \
                SIMD for (int i = 0; i < VM_SLACK; i++) y[at + i] = a[r];                          \
    }
SPREAD(spread_1, uint8_t)
SPREAD(spread_i32, int32_t)
SPREAD(spread_i64, int64_t)
SPREAD(spread_f32, float)
SPREAD(spread_f64, double)

static void count_up(int64_t n, void *py, const void *pa, const void *pb, const void *pc) {
    int64_t *y = py;
    const int64_t a = *(const int64_t *)pa;
    (void)pb, (void)pc;
    SIMD for (int64_t i = 0; i < n; i++) y[i] = a + i;
}

/* floor(a / b) through f64: (a + 1/2) / b is at least 1/(2 b) away from every integer, more than
 * it rounds. The integers enter and leave in the low bits of numbers near 2^52, since AVX2 cannot
 * convert them. */
static inline __attribute__((always_inline)) int64_t quotient(int64_t a, double inverse) {
    const double whole = 4503599627370496.0, rounds = 6755399441055744.0; /* 2^52, 3 2^51 */
    double x = m_float_f64((uint64_t)a | 0x4330000000000000u) - (whole - 0.5);
    return (int64_t)(m_bits_f64((x * inverse - 0.5) + rounds) & 0x7ffffffffffffu);
}

static void divide(int64_t n, void *py, const void *pa, const void *pb, const void *pc) {
    int64_t *y = py;
    const int64_t *a = pa;
    const double inverse = 1.0 / (double)*(const int64_t *)pb;
    (void)pc;
    SIMD for (int64_t i = 0; i < n; i++) y[i] = quotient(a[i], inverse);
}

static void leave(int64_t n, void *py, const void *pa, const void *pb, const void *pc) {
    int64_t *y = py;
    const int64_t *a = pa, b = *(const int64_t *)pb;
    const double inverse = 1.0 / (double)b;
    (void)pc;
    SIMD for (int64_t i = 0; i < n; i++) y[i] = a[i] - quotient(a[i], inverse) * b;
}

#undef REDUCE_SUM
#undef REDUCE_LOGICAL
#define REDUCE_SUM KEEP
#define REDUCE_LOGICAL DROP
#define WIDEN(name, combine)                                                                       \
    static void wide_##name(int64_t n, void *py, const void *pa, const void *pb, const void *pc) { \
        double *y = py;                                                                            \
        const double *x = pa;                                                                      \
        const float *terms = pb;                                                                   \
        (void)pc;                                                                                  \
        SIMD for (int64_t i = 0; i < n; i++) {                                                     \
            const double a = x[i], b = terms[i];                                                   \
            y[i] = combine;                                                                        \
        }                                                                                          \
    }
#define REDUCE(name, fx, rule, cast, identity, gradient, combine)                                  \
    REDUCE_##rule(WIDEN(name, combine))
#include "op/op_rows.h"

/* ---- loads and stores ------------------------------------------------------------------------ */

#define LOAD(name, T, S, value)                                                                    \
    static void load_##name(int64_t n, void *py, const void *base, int64_t stride,                 \
                            const int64_t *index, const uint8_t *guard) {                          \
        T *y = py;                                                                                 \
        const S *x = base;                                                                         \
        if (guard && index) {                                                                      \
            SIMD for (int64_t i = 0; i < n; i++) {                                                 \
                S a = 0;                                                                           \
                if (guard[i]) a = x[index[i]];                                                     \
                y[i] = (T)(value);                                                                 \
            }                                                                                      \
        } else if (guard) {                                                                        \
            SIMD for (int64_t i = 0; i < n; i++) {                                                 \
                S a = 0;                                                                           \
                if (guard[i]) a = x[i * stride];                                                   \
                y[i] = (T)(value);                                                                 \
            }                                                                                      \
        } else if (index) {                                                                        \
            SIMD for (int64_t i = 0; i < n; i++) {                                                 \
                const S a = x[index[i]];                                                           \
                y[i] = (T)(value);                                                                 \
            }                                                                                      \
        } else if (stride == 1) {                                                                  \
            SIMD for (int64_t i = 0; i < n; i++) {                                                 \
                const S a = x[i];                                                                  \
                y[i] = (T)(value);                                                                 \
            }                                                                                      \
        } else if (stride == -1) {                                                                 \
            SIMD for (int64_t i = 0; i < n; i++) {                                                 \
                const S a = x[-i];                                                                 \
                y[i] = (T)(value);                                                                 \
            }                                                                                      \
        } else {                                                                                   \
            SIMD for (int64_t i = 0; i < n; i++) {                                                 \
                const S a = x[i * stride];                                                         \
                y[i] = (T)(value);                                                                 \
            }                                                                                      \
        }                                                                                          \
    }

LOAD(move_16, uint16_t, uint16_t, a)

#define STORE(name, S, T, value)                                                                   \
    static void store_##name(int64_t n, void *base, int64_t stride, const int64_t *index,          \
                             const uint8_t *guard, const void *px) {                               \
        S *y = base;                                                                               \
        const T *x = px;                                                                           \
        if (guard || index) {                                                                      \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const T a = x[i];                                                                  \
                if (!guard || guard[i]) y[index ? index[i] : i * stride] = (S)(value);             \
            }                                                                                      \
        } else if (stride == 1) {                                                                  \
            SIMD for (int64_t i = 0; i < n; i++) {                                                 \
                const T a = x[i];                                                                  \
                y[i] = (S)(value);                                                                 \
            }                                                                                      \
        } else {                                                                                   \
            SIMD for (int64_t i = 0; i < n; i++) {                                                 \
                const T a = x[i];                                                                  \
                y[i * stride] = (S)(value);                                                        \
            }                                                                                      \
        }                                                                                          \
    }

/* sum: what is stored for the element `old` and the lane a. Lanes that stand side by side never
 * meet, others may: in order. */
#define ADD(name, S, T, sum)                                                                       \
    static void add_##name(int64_t n, void *base, int64_t stride, const int64_t *index,            \
                           const uint8_t *guard, const void *px) {                                 \
        S *y = base;                                                                               \
        const T *x = px;                                                                           \
        if (!guard && !index && stride == 1) {                                                     \
            SIMD for (int64_t i = 0; i < n; i++) {                                                 \
                const S old = y[i];                                                                \
                const T a = x[i];                                                                  \
                y[i] = (S)(sum);                                                                   \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            if (guard && !guard[i]) continue;                                                      \
            S *at = y + (index ? index[i] : i * stride);                                           \
            const S old = *at;                                                                     \
            const T a = x[i];                                                                      \
            *at = (S)(sum);                                                                        \
        }                                                                                          \
    }

#define ACCESS(name, S, T, load_value, store_value, sum)                                           \
    LOAD(name, T, S, load_value)                                                                   \
    STORE(name, S, T, store_value)                                                                 \
    ADD(name, S, T, sum)

/* What loads and stores eight halves at a time takes the rest to this one. */
#ifdef __F16C__
#define load_f16 load_f16_each
#define store_f16 store_f16_each
#endif

#define SUM_OF(name, a, b) m_to_##name##_f32((float)(m_from_##name##_f32(a) + (b)))

ACCESS(truth, uint8_t, uint8_t, a, a, old | a)
#define NARROW_ROW(id, name, storage, ...) ACCESS(name, storage, int32_t, a, a, old + a)
#define INTEGER_ROW(id, name, storage, ...)                                                        \
    ACCESS(name, storage, storage, a, a, (uint64_t)old + (uint64_t)a)
#define HALF_ROW(id, name, storage, ...)                                                           \
    ACCESS(name, storage, float, m_from_##name##_f32(a), m_to_##name##_f32(a),                     \
           SUM_OF(name, old, a))                                                                   \
    ACCESS(wide_##name, storage, double, m_from_##name##_f32(a), m_to_##name##_f32((float)a),      \
           SUM_OF(name, old, a))
#define FLOAT_ROW(id, name, storage, ...)                                                          \
    ACCESS(name, storage, storage, a, a, old + a)                                                  \
    ACCESS(wide_##name, storage, double, a, a, old + a)
#include "op/dtype_rows.h"

#ifdef __F16C__ /* contiguous halves, eight at a time */
#undef load_f16
#undef store_f16
static void load_f16(int64_t n, void *py, const void *base, int64_t stride, const int64_t *index,
                     const uint8_t *guard) {
    const uint16_t *x = base;
    float *y = py;
    int64_t i = 0;
    if (stride == 1 && !index && !guard)
        for (; i + 8 <= n; i += 8)
            _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(x + i))));
    load_f16_each(n - i, y + i, x + i, stride, index, guard);
}

static void store_f16(int64_t n, void *base, int64_t stride, const int64_t *index,
                      const uint8_t *guard, const void *px) {
    const float *x = px;
    uint16_t *y = base;
    int64_t i = 0;
    if (stride == 1 && !index && !guard)
        for (; i + 8 <= n; i += 8)
            _mm_storeu_si128((void *)(y + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0));
    store_f16_each(n - i, y + i, stride, index, guard, x + i);
}
#endif

/* ---- past the caches ------------------------------------------------------------------------- */

#if defined __AVX512F__
enum { LINE = 64 };
#define STREAM(to, from) _mm512_stream_ps(to, _mm512_loadu_ps(from))
#elif defined __AVX__
enum { LINE = 32 };
#define STREAM(to, from) _mm256_stream_ps(to, _mm256_loadu_ps(from))
#elif defined __SSE__
enum { LINE = 16 };
#define STREAM(to, from) _mm_stream_ps(to, _mm_loadu_ps(from))
#endif

#ifdef STREAM
static void stream_bytes(int64_t bytes, void *base, const void *px) {
    char *y = base;
    const char *x = px;
    int64_t head = -(intptr_t)y & 63, at;
    if (head > bytes) head = bytes;
    memcpy(y, x, (size_t)head);
    for (at = head; at + LINE <= bytes; at += LINE)
        STREAM((float *)(void *)(y + at), (const float *)(const void *)(x + at));
    memcpy(y + at, x + at, (size_t)(bytes - at));
}

#define STREAMING(type, T)                                                                         \
    static void stream_##type(int64_t n, void *base, int64_t stride, const int64_t *index,         \
                              const uint8_t *guard, const void *px) {                              \
        (void)stride, (void)index, (void)guard;                                                    \
        stream_bytes(n *(int64_t)sizeof(T), base, px);                                             \
    }
STREAMING(f32, float)
STREAMING(f64, double)
#else
#define stream_f32 NULL
#define stream_f64 NULL
#endif

/* ---- the table ------------------------------------------------------------------------------- */

const VmOps JOIN3(vm_ops_, CB_LEVEL, ) = {
    .rows = {[VM_BOOL] = row_truth,
             [VM_I32] = row_i32,
             [VM_I64] = row_i64,
             [VM_F32] = row_f32,
             [VM_F64] = row_f64},
    .convert = {[VM_BOOL] = {NULL, bool_to_i32, bool_to_i64, bool_to_f32, bool_to_f64},
                [VM_I32] = {i32_to_bool, NULL, i32_to_i64, i32_to_f32, i32_to_f64},
                [VM_I64] = {i64_to_bool, i64_to_i32, i64_to_i64, i64_to_f32, i64_to_f64},
                [VM_F32] = {f32_to_bool, f32_to_i32, f32_to_i64, NULL, f32_to_f64},
                [VM_F64] = {f64_to_bool, f64_to_i32, f64_to_i64, f64_to_f32, f64_to_f64}},
    .wrap = {
#define NARROW_ROW(id, name, ...) [CB_##id] = wrap_##name,
#define HALF_ROW NARROW_ROW
#include "op/dtype_rows.h"
    },
    .splat = {splat_1, splat_i32, splat_i64, splat_f32, splat_f64},
    .spread = {spread_1, spread_i32, spread_i64, spread_f32, spread_f64},
    .count = count_up,
    .divide = divide,
    .remainder = leave,
    .wide = {
#define REDUCE(name, fx, rule, ...) REDUCE_##rule([OP_##name - OP_sum] = wide_##name, )
#include "op/op_rows.h"
    },
    .element = {
#define ELEMENT(id, one, other)                                                                    \
    [CB_##id] = {{load_##one, store_##one, add_##one}, {load_##other, store_##other, add_##other}},
#define BOOL_ROW(id, ...) ELEMENT(id, truth, truth)
#define NARROW_ROW(id, name, ...) ELEMENT(id, name, name)
#define INTEGER_ROW NARROW_ROW
#define HALF_ROW(id, name, ...) ELEMENT(id, name, wide_##name)
#define FLOAT_ROW HALF_ROW
#include "op/dtype_rows.h"
    },
    .move = {[1] = load_truth, [2] = load_move_16, [4] = load_f32, [8] = load_f64},
    .stream = {[VM_F32] = stream_f32, [VM_F64] = stream_f64},
    .reduce = {reduction_truth, reduction_i32, reduction_i64, reduction_f32, reduction_f64},
    .scan = {scanning_truth, scanning_i32, scanning_i64, scanning_f32, scanning_f64},
};
