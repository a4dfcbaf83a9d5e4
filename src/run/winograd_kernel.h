/* The transforms of Winograd convolution, compiled once per instruction set (winograd_kernel.c) and
 * driven by conv_winograd.c. All are vectorized over channels and compute in f32; x and the result
 * are f32, bf16 or f16. */
#ifndef CARBIDE_RUN_WINOGRAD_KERNEL_H
#define CARBIDE_RUN_WINOGRAD_KERNEL_H

#include <stdint.h>

enum { WINOGRAD_MAX_TILE = 7, WINOGRAD_MAX_KERNEL = 5, WINOGRAD_PANEL = 32 };

typedef enum WinogradElement { /* of x and the result */
    WINOGRAD_F32,
    WINOGRAD_BF16,
    WINOGRAD_F16,
    WINOGRAD_ELEMENTS
} WinogradElement;

/* to[point * stride + c] = the transform of the tile whose channels begin at row[point]. down,
 * across: the points of a column and a line, all or all but the last, at infinity, which only the
 * last position of the result takes part in. `to` is aligned to 64 bytes, as `stride` is, and
 * written up to the next whole vector. */
typedef void WinogradRead(const void *const *row, float *to, int64_t stride, int64_t channels,
                          int down, int across);
/* The inverse: out[i * line + j * column + c], i < rows, j < columns, from the sums
 * from[point * stride + c], aligned as above. Sums at infinity are read where all rows or columns
 * are asked for. */
typedef void WinogradWrite(const float *from, int64_t stride, void *out, int64_t line,
                           int64_t column, int rows, int columns, int64_t channels);

/* F(output x output, kernel x kernel): tiles of output + kernel - 1 inputs a side. Points of a tile
 * are numbered row by row. */
typedef struct WinogradType {
    int tile, output, kernel;
    WinogradRead *read[WINOGRAD_ELEMENTS];
    WinogradWrite *write[WINOGRAD_ELEMENTS];
    /* to[point * stride + lane] = the transform of the kernels from[position *
     * WINOGRAD_PANEL + lane], through f64 */
    void (*weight)(const float *from, float *to, int64_t stride);
} WinogradType;

typedef struct WinogradKernels {
    WinogradType f2k3, f4k3, f2k5, f5k3, f3k5; /* output, kernel */
} WinogradKernels;

extern const WinogradKernels winograd_kernels_base;
#if defined(__x86_64__)
extern const WinogradKernels winograd_kernels_v3, winograd_kernels_v4;
#endif

#endif
