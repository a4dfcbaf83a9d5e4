/* The loops of one instruction set (base/level.h): keys from elements, positions by counting, and
 * what is below a bound. */
#include "cpu/sort_kernel.h"
#include "base/level.h"
#include "op/math.h"

#define SIMD _Pragma("omp simd")

/* ---- keys ---- */

static inline uint32_t key_of_float(float value) {
    uint32_t bits = m_bits_f32(value + 0.0f); /* -0 becomes 0 */
    uint32_t key = bits >> 31 ? ~bits : bits | (uint32_t)1 << 31;
    return value != value ? UINT32_MAX : key;
}

/* The least integer of a type becomes key 0. */
#define LEAST(type) ((type)-1 < 1 ? UINT32_MAX << (8 * sizeof(type) - 1) : 0)

#define KEYS(name, type, key)                                                                      \
    static void keys_##name(const void *row, int64_t stride, int64_t count, uint32_t turn,         \
                            uint64_t *number) {                                                    \
        const type *from = row;                                                                    \
        if (stride == 1) {                                                                         \
            SIMD for (int64_t i = 0; i < count; i++) {                                             \
                const type x = from[i];                                                            \
                number[i] = (uint64_t)((uint32_t)(key) ^ turn) << 32 | (uint64_t)i;                \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const type x = from[i * stride];                                                       \
            number[i] = (uint64_t)((uint32_t)(key) ^ turn) << 32 | (uint64_t)i;                    \
        }                                                                                          \
    }
#define NARROW_ROW(id, name, storage, ...) KEYS(name, storage, (uint32_t)x - LEAST(storage))
#define HALF_ROW(id, name, storage, ...) KEYS(name, storage, key_of_float(m_from_##name##_f32(x)))
#include "op/dtype_rows.h"
KEYS(truth, uint8_t, x != 0)
KEYS(i32, int32_t, (uint32_t)x - LEAST(int32_t))
KEYS(f32, float, key_of_float(x))

static void keys(cb_dtype dtype, const void *row, int64_t stride, int64_t count, bool descending,
                 uint64_t *number) {
    static void (*const of[CB_DTYPE_COUNT])(const void *, int64_t, int64_t, uint32_t,
                                            uint64_t *) = {
#define NARROW_ROW(id, name, ...) [CB_##id] = keys_##name,
#define HALF_ROW NARROW_ROW
#include "op/dtype_rows.h"
        [CB_BOOL] = keys_truth, [CB_I32] = keys_i32, [CB_F32] = keys_f32};
    of[dtype](row, stride, count, descending ? UINT32_MAX : 0, number);
    for (int64_t i = count; i % SORT_GROUP; i++) number[i] = UINT64_MAX;
}

/* ---- short rows ---- */

/* Each pair once: nothing is guessed. A loop whose length is known is unrolled. */
static inline __attribute__((always_inline)) void rank_pairs(const uint64_t *number, int count,
                                                             int64_t keep, int64_t *position) {
    int place[SORT_GROUP] = {0};
    for (int i = 1; i < count; i++)
        for (int j = 0; j < i; j++) {
            int before = number[j] < number[i];
            place[i] += before, place[j] += 1 - before;
        }
    for (int i = 0; i < count; i++)
        if (place[i] < keep) position[place[i]] = i;
}

static void rank_few(const uint64_t *number, int64_t count, int64_t keep, int64_t *position) {
#define FEW(n)                                                                                     \
    case n:                                                                                        \
        if (keep == n)                                                                             \
            rank_pairs(number, n, n, position);                                                    \
        else                                                                                       \
            rank_pairs(number, n, keep, position);                                                 \
        break
    switch (count) {
        FEW(1);
        FEW(2);
        FEW(3);
        FEW(4);
        FEW(5);
        FEW(6);
        FEW(7);
        FEW(8);
    }
}

static void rank(const uint64_t *number, int64_t count, int64_t keep, int64_t *position) {
    if (count <= SORT_GROUP) {
        rank_few(number, count, keep, position);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        uint64_t mine = number[i], part[SORT_GROUP] = {0}, place = 0;
        for (int64_t j = 0; j < count; j += SORT_GROUP)
            SIMD for (int g = 0; g < SORT_GROUP; g++) part[g] += number[j + g] < mine;
        for (int g = 0; g < SORT_GROUP; g++) place += part[g];
        if ((int64_t)place < keep) position[place] = i;
    }
}

/* ---- few of many ---- */

static int64_t below(const uint64_t *number, int64_t from, int64_t count, uint64_t bound) {
    for (; from < count && from % SORT_GROUP; from++)
        if (number[from] < bound) return from;
    for (; from < count; from += SORT_GROUP) {
        uint64_t any = 0;
        SIMD for (int g = 0; g < SORT_GROUP; g++) any |= number[from + g] < bound;
        if (!any) continue;
        while (number[from] >= bound) from++;
        return from;
    }
    return count;
}

/* A comparison with 8, 4 or 1 at a time. */
enum { RANKED = VECTOR_BYTES == 64 ? 64 : VECTOR_BYTES == 32 ? 32 : SORT_GROUP };

const SortKernel LEVEL_TABLE(sort_kernel_) = {RANKED, keys, rank, below};
