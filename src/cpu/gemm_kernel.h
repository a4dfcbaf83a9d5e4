/* The part of gemm that is compiled once per instruction set: register tiles and packing, for f32
 * and f64 with the matrix-vector loops (gemm_kernel.c), for bf16 where the processor has
 * instructions for it (gemm_bf16.c, gemm_amx.c). gemm_panels.c drives them. */
#ifndef CARBIDE_CPU_GEMM_KERNEL_H
#define CARBIDE_CPU_GEMM_KERNEL_H

#include "task/task.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    GEMM_K_BYTES = 2048, /* the most that k_bytes is */
    GEMM_SUM_BYTES = 256 * 1024,
    GEMM_LEAST_WIDTH = 4,
    GEMM_SMALL_K = 256 /* of small products whose columns are packed, on the stack */
};

/* Part `part` of `parts` of the bytes at panel. Given by its address: a copy loads at once what two
 * stores wrote, and so waits until the sums of the tile before are in memory. */
typedef struct GemmAhead {
    const char *panel;
    int64_t bytes;
    int64_t part, parts;
} GemmAhead;

/* Lanes that hold so many columns, or the most that there are: a power of two. */
static inline int gemm_lanes_for(int64_t most, int64_t columns) {
    int width = GEMM_LEAST_WIDTH;
    while (width < most && width < columns) width *= 2;
    return width;
}

/* Lanes of the next columns of a small product, of which `rest` are left: no more than there are
 * columns, and of the last ones as few as hold them, some for the second time. */
static inline int gemm_small_width(int most, int64_t columns, int64_t rest) {
    int width = GEMM_LEAST_WIDTH;
    while (width < most && 2 * width <= columns && width < rest) width *= 2;
    return width;
}

typedef void GemmConvert(const void *in, void *out, int64_t count);
typedef void GemmPack(void *panel, const void *in, int64_t lane_stride, int64_t k_stride, int lanes,
                      int width, int64_t k);

/* One element type on one instruction set. A panel is `rows` rows of A or `columns` columns of B,
 * stored k-major: element (k, lane) at k * width + lane. In panels of bf16 `together` elements of a
 * lane that follow each other along k stand side by side, as one element of f32's size; k is filled
 * up with zeros to a multiple of k_unit. Sums run over k in order, so the value of an element does
 * not depend on the tile that it falls into. */
typedef struct GemmType {
    int rows, columns; /* register tile */
    int together, k_unit;
    int k_bytes;   /* of one lane in a block of k, whose panel of columns serves many rows */
    int sum_bytes; /* of a task's sums that wait in a scratch: a part of L2 */
    void (*begin)(void), (*end)(void); /* around the tiles of a thread; or NULL */
    /* c[r * stride + j] (+)= sum over k of a(k, r) * b(k, j); r < rows, j < columns, at most one
     * tile. */
    void (*tile)(int64_t k, const void *a, const void *b, void *c, int64_t stride, int rows,
                 int columns, bool add);
    /* The same, k > 0, and meanwhile asks for a part of a panel that is read soon; or NULL. */
    void (*tile_ahead)(int64_t k, const void *a, const void *b, void *c, int64_t stride, int rows,
                       int columns, bool add, const GemmAhead *ahead);
    /* The same over full columns, both panels being parts of wider ones: element (k, lane) of a at
     * k * a_step + lane, of b at k * b_step + lane; of f32 and f64. */
    void (*wide_tile)(int64_t k, const void *a, int64_t a_step, const void *b, int64_t b_step,
                      void *c, int64_t stride, int rows, bool add);
    /* The same for rows of A where they lie, in `taps` pieces of k elements each: row[t * rows of
     * the tile + r] is piece t of row r; b is one panel of taps * k. NULL on AMX. */
    void (*rows_tile)(int64_t taps, int64_t k, const void *const *row, const void *b, void *c,
                      int64_t stride, int rows, int columns, bool add);
    /* The same, as tile_ahead does; of f32 and f64. */
    void (*rows_tile_ahead)(int64_t taps, int64_t k, const void *const *row, const void *b, void *c,
                            int64_t stride, int rows, int columns, bool add,
                            const GemmAhead *ahead);
    /* All rows of the tile where they lie, and half of its columns, which lie side by side in out:
     * out[r * columns / 2 + j] (+)=. Asks for the bytes from `next` on, `step` for each k. */
    void (*rows_half_tile)(int64_t k, const void *const *row, const void *b, void *out, bool add,
                           const char *next, int64_t step);
    /* Of sums to what is multiplied; or NULL. stream: past the caches, to be ended by end. */
    GemmConvert *narrow, *stream;
    /* out[p * pixel + c] = sum over t of row[t][p * jump + c] * weight[t][c]; p < count */
    void (*depthwise)(int64_t taps, const void *const *row, const void *const *weight,
                      int64_t count, int64_t jump, void *out, int64_t pixel, int64_t channels);
    /* Makes a panel of columns: element (k, lane) from in[lane * lane_stride + k * k_stride]; lanes
     * up to width are 0. pack_f32: from f32 that is rounded on the way; or NULL. pack_rows: a panel
     * of rows, for tile alone. */
    GemmPack *pack, *pack_f32, *pack_rows;
    /* One item of a small product (gemm_small.c) of four columns at least, which lie side by side,
     * or of a k up to GEMM_SMALL_K; its elements begin at a, b and out. */
    void (*small)(const MatmulTask *task, const void *a, const void *b, void *out);
    /* out[x] = sum over t of from[offset[t] + x] * weight[t]; x < count, rounded up to four
     * vectors: so much is read and written. */
    void (*planes)(int64_t taps, const int64_t *offset, const void *weight, const void *from,
                   int64_t count, void *out);
    /* y[j] = sum over k of x[k] * w[j * stride + k] */
    void (*dot)(int64_t k, int64_t columns, const void *x, const void *w, int64_t stride, void *y);
    /* y[j] = sum over k of x[k] * w[k * stride + j] */
    void (*sweep)(int64_t k, int64_t columns, const void *x, const void *w, int64_t stride,
                  void *y);
    /* out[r * stride + j] (+)= sum over t of a[r * a_m + t * a_k] * b[t * b_k + j]; r < rows, j <
     * width, a power of two from four to the tile's columns. Rows are stored in their order: what
     * lanes behind the last column of one left in the next is written over. thin_rows: rows that
     * share what is read of b where the width is the tile's; `rows` do where it is less. */
    int thin_rows;
    void (*thin)(int64_t rows, int64_t k, const void *a, int64_t a_m, int64_t a_k, const void *b,
                 int64_t b_k, int width, void *out, int64_t stride, bool add);
} GemmType;

typedef struct GemmKernels {
    GemmType f32, f64;
    GemmConvert *widen[CB_DTYPE_COUNT], *narrow[CB_DTYPE_COUNT]; /* halves, to and from float */
    GemmConvert *round[CB_DTYPE_COUNT]; /* floats to those that halves hold */
} GemmKernels;

extern const GemmKernels gemm_kernels_base;
#if defined(__x86_64__)
extern const GemmKernels gemm_kernels_v3, gemm_kernels_v4;
#endif

#endif
