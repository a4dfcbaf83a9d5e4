/* Loads and stores of lanes that run along several axes: rows of a few elements each.
 *
 *     [50000, 4] + [50000, 1]: lanes 0 1 2 3 4 5 ... of the second lie at 0 0 0 0 1 1 ...
 *
 * A load packs the elements of a block side by side, as they are, and hands them to the block
 * function in one piece. With a guard, and for stores, it is one call for each row. */
#include "vm/instruction.h"

#define SIMD _Pragma("omp simd")

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct LaneWalk {
    const VmLevels *levels;
    int64_t at[VM_LANE_AXES]; /* place of the next lane, innermost first */
    int64_t element;          /* its distance from the first lane's */
} LaneWalk;

static LaneWalk begin(const VmLevels *levels, int64_t place) {
    LaneWalk walk = {.levels = levels};
    for (int i = 0; i < levels->count; i++) {
        walk.at[i] = place % levels->size[i];
        place /= levels->size[i];
    }
    return walk;
}

/* Lanes to the end of the row at hand. */
static int64_t left_in_row(const LaneWalk *walk, int64_t n) {
    int64_t left = walk->levels->size[0] - walk->at[0];
    return left < n ? left : n;
}

/* Moves on by `count` units of a level, which do not pass its end. */
static void move(LaneWalk *walk, int level, int64_t count) {
    const VmLevels *levels = walk->levels;
    walk->at[level] += count;
    walk->element += count * levels->stride[level];
    for (; walk->at[level] == levels->size[level] && level + 1 < levels->count; level++) {
        walk->element += levels->stride[level + 1] - levels->size[level] * levels->stride[level];
        walk->at[level] = 0;
        walk->at[level + 1]++;
    }
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Elements of any type, as bits. */
typedef uint8_t __attribute__((may_alias)) Bits8;
typedef uint16_t __attribute__((may_alias)) Bits16;
typedef uint32_t __attribute__((may_alias)) Bits32;
typedef uint64_t __attribute__((may_alias)) Bits64;

/* rows of n elements with a stride, row_stride apart, side by side. */
typedef void Pack(void *to, const void *from, int64_t rows, int64_t n, int64_t row_stride,
                  int64_t stride);

#define EACH_ROW(count, element)                                                                   \
    for (int64_t r = 0; r < rows; r++, x += row_stride, y += (count))                              \
        SIMD for (int64_t i = 0; i < (count); i++) y[i] = x[element];
#define SHORT_ROWS(wanted, element)                                                                \
    if (stride == wanted && n <= 4) {                                                              \
        if (n == 2) EACH_ROW(2, element)                                                           \
        if (n == 3) EACH_ROW(3, element)                                                           \
        if (n == 4) EACH_ROW(4, element)                                                           \
        if (n == 1) EACH_ROW(1, element)                                                           \
        return;                                                                                    \
    }
#define PACK(T)                                                                                    \
    static void pack_##T(void *to, const void *from, int64_t rows, int64_t n, int64_t row_stride,  \
                         int64_t stride) {                                                         \
        T *restrict y = to;                                                                        \
        const T *restrict x = from;                                                                \
        SHORT_ROWS(0, 0)                                                                           \
        SHORT_ROWS(1, i)                                                                           \
        if (stride == 0)                                                                           \
            EACH_ROW(n, 0)                                                                         \
        else if (stride == 1)                                                                      \
            EACH_ROW(n, i)                                                                         \
        else                                                                                       \
            EACH_ROW(n, i *stride)                                                                 \
    }
PACK(Bits8)
PACK(Bits16)
PACK(Bits32)
PACK(Bits64)

static Pack *pack_of(int size) {
    return size == 1 ? pack_Bits8 : size == 2 ? pack_Bits16 : size == 4 ? pack_Bits32 : pack_Bits64;
}

static void pack(const VmAccess *access, int64_t n, int64_t place, char *to, const char *from) {
    const VmLevels *levels = &access->levels;
    Pack *pack_rows = pack_of(access->size);
    LaneWalk walk = begin(levels, place);
    while (n > 0) {
        int64_t length = left_in_row(&walk, n), rows = 1;
        if (walk.at[0] == 0 && length == levels->size[0]) {
            rows = levels->size[1] - walk.at[1];
            if (rows > n / length) rows = n / length;
        }
        pack_rows(to, from + walk.element * access->size, rows, length, levels->stride[1],
                  levels->stride[0]);
        to += rows * length * access->size;
        n -= rows * length;
        if (length == levels->size[0])
            move(&walk, 1, rows);
        else
            move(&walk, 0, length);
    }
}

/* ---- entry ----------------------------------------------------------------------------------- */

void vm_walk_load(const VmInstr *in, const VmAccess *access, int64_t n, int64_t place, char *y,
                  const char *from, char *staging, const uint8_t *guard) {
    if (!guard) { /* of equal size are the types that registers hold as they are */
        bool same = access->lane_size == access->size;
        pack(access, n, place, same ? y : staging, from);
        if (!same) in->load(n, y, staging, 1, NULL, NULL);
        return;
    }
    LaneWalk walk = begin(&access->levels, place);
    for (int64_t length; n > 0; n -= length) {
        length = left_in_row(&walk, n);
        in->load(length, y, from + walk.element * access->size, access->levels.stride[0], NULL,
                 guard);
        y += length * access->lane_size;
        guard += length;
        move(&walk, 0, length);
    }
}

void vm_walk_store(const VmInstr *in, const VmAccess *access, int64_t n, int64_t place, char *to,
                   const char *x, const uint8_t *guard) {
    LaneWalk walk = begin(&access->levels, place);
    for (int64_t length; n > 0; n -= length) {
        length = left_in_row(&walk, n);
        in->store(length, to + walk.element * access->size, access->levels.stride[0], NULL, guard,
                  x);
        x += length * access->lane_size;
        if (guard) guard += length;
        move(&walk, 0, length);
    }
}
