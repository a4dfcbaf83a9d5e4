/* The transforms of Winograd convolution, compiled once per instruction set (winograd_kernel.c) and
 * driven by conv_winograd.c. All are vectorized over channels, in f32. */
#ifndef CARBIDE_RUN_WINOGRAD_KERNEL_H
#define CARBIDE_RUN_WINOGRAD_KERNEL_H

#include <stdint.h>

enum { WINOGRAD_MAX_TILE = 7, WINOGRAD_MAX_KERNEL = 5, WINOGRAD_PANEL = 32 };

/* F(output x output, kernel x kernel): tiles of output + kernel - 1 inputs a side. Points of a tile
 * are numbered row by row. */
typedef struct WinogradType {
    int tile, output, kernel;
    /* to[point * stride + c] = the transform of the tile whose channels begin at row[point] */
    void (*read)(const float *const *row, float *to, int64_t stride, int64_t channels);
    /* The inverse: out[i * line + j * column + c], i < rows, j < columns, from the sums
     * from[point * stride + c]. */
    void (*write)(const float *from, int64_t stride, float *out, int64_t line, int64_t column,
                  int rows, int columns, int64_t channels);
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
