/* The gemm kernels of one instruction set (base/level.h). Tiles: 14 x 2 vectors of 64 bytes fill 28
 * of 32 registers; 6 x 2 vectors fill 12 of 16. */
#include "cpu/gemm_kernel.h"
#include "base/level.h"
#include "cpu/tile.h"
#include "op/math.h"
#include <string.h>

#if VECTOR_BYTES == 64
#define TILE_ROWS 14
#define EACH_COUNT UP_TO_14
#define EACH_ROW EACH_14
#define THIN_ROWS 8
#define EACH_THIN UP_TO_8
#else
#define TILE_ROWS 6
#define EACH_COUNT UP_TO_6
#define EACH_ROW EACH_6
#define THIN_ROWS 4
#define EACH_THIN UP_TO_4
#endif

/* For two or three users gcc reads a vector from memory as often, at the price of two lines of the
 * cache each time where rows are not aligned: three rows took longer than four. */
#if VECTOR_BYTES > 16
#define IN_REGISTER(vector) __asm__("" : "+v"(vector))
#else
#define IN_REGISTER(vector) (void)0
#endif

enum {
    AHEAD = 4096,                     /* bytes between what a tile reads of b and asks for */
    PACK_AHEAD = 16,                  /* of k, the same where rows are packed */
    PACK_PART = TILE_ROWS > 8 ? 8 : 4 /* lanes, copied at once */
};

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

#define HALF_ROW(id, name, storage, ...)                                                           \
    static void widen_##name(const void *from, void *to, int64_t count) {                          \
        const storage *in = from;                                                                  \
        float *out = to;                                                                           \
        for (int64_t i = 0; i < count; i++) out[i] = m_from_##name##_f32(in[i]);                   \
    }                                                                                              \
    static void narrow_##name(const void *from, void *to, int64_t count) {                         \
        const float *in = from;                                                                    \
        storage *out = to;                                                                         \
        for (int64_t i = 0; i < count; i++) out[i] = m_to_##name##_f32(in[i]);                     \
    }                                                                                              \
    static void round_##name(const void *from, void *to, int64_t count) {                          \
        const float *in = from;                                                                    \
        float *out = to;                                                                           \
        for (int64_t i = 0; i < count; i++)                                                        \
            out[i] = m_from_##name##_f32(m_to_##name##_f32(in[i]));                                \
    }
#include "op/dtype_rows.h"

#define TYPE(suffix)                                                                               \
    {                                                                                              \
        .rows = TILE_ROWS, .columns = COLUMNS_##suffix, .together = 1, .k_unit = 1,                \
        .k_bytes = GEMM_K_BYTES, .sum_bytes = GEMM_SUM_BYTES, .tile = tile_##suffix,               \
        .tile_ahead = tile_ahead_##suffix, .wide_tile = wide_tile_##suffix,                        \
        .rows_tile = rows_tile_##suffix, .rows_tile_ahead = rows_tile_ahead_##suffix,              \
        .rows_half_tile = rows_half_tile_##suffix, .depthwise = depthwise_##suffix,                \
        .small = small_##suffix, .planes = planes_##suffix, .pack = pack_##suffix,                 \
        .pack_rows = pack_##suffix, .dot = dot_##suffix, .sweep = sweep_##suffix,                  \
        .thin_rows = THIN_ROWS, .thin = thin_##suffix                                              \
    }

const GemmKernels LEVEL_TABLE(gemm_kernels_) = {
    .f32 = TYPE(f32),
    .f64 = TYPE(f64),
#define HALF_ROW(id, name, ...)                                                                    \
    .widen[CB_##id] = widen_##name, .narrow[CB_##id] = narrow_##name,                              \
    .round[CB_##id] = round_##name,
#include "op/dtype_rows.h"
};
