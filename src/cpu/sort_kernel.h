/* The inner loops of sorts, compiled once per instruction set.
 *
 * An element of up to 32 bits and its position are one number, the key above the position: numbers
 * are never equal, and their order is the wanted one, of equal elements that in which they
 * stand. */
#ifndef CARBIDE_CPU_SORT_KERNEL_H
#define CARBIDE_CPU_SORT_KERNEL_H

#include "op/op.h"

enum {
    SORT_GROUP = 8 /* numbers that are compared at once: rows are filled up to a multiple of it */
};

typedef struct SortKernel {
    /* Rows up to this length are sorted by counting for each number those before it. */
    int64_t ranked;
    /* number[i] = element i of a row of a dtype of up to 32 bits; those up to a multiple of
     * SORT_GROUP are behind all. */
    void (*keys)(cb_dtype dtype, const void *row, int64_t stride, int64_t count, bool descending,
                 uint64_t *number);
    /* The first `keep` positions in the order, of up to `ranked` numbers; of up to SORT_GROUP
     * others may follow. */
    void (*rank)(const uint64_t *number, int64_t count, int64_t keep, int64_t *position);
    /* The first one from `from` on that is below the bound; count: there is none. */
    int64_t (*below)(const uint64_t *number, int64_t from, int64_t count, uint64_t bound);
} SortKernel;

extern const SortKernel sort_kernel_base;
#if defined(__x86_64__)
extern const SortKernel sort_kernel_v3, sort_kernel_v4;
#endif

#endif
