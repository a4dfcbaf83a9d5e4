/* The transforms of Winograd convolution, compiled once per instruction set (winograd_kernel.c) and
 * driven by conv_winograd.c. All are vectorized over channels and compute in f32; x and the result
 * are f32, bf16 or f16. */
#ifndef CARBIDE_CPU_WINOGRAD_KERNEL_H
#define CARBIDE_CPU_WINOGRAD_KERNEL_H

#include <stdint.h>

enum { WINOGRAD_MAX_TILE = 9, WINOGRAD_MAX_KERNEL = 5, WINOGRAD_PANEL = 32, WINOGRAD_TYPES = 7 };

typedef enum WinogradElement { /* of x and the result */
    WINOGRAD_F32,
    WINOGRAD_BF16,
    WINOGRAD_F16,
    WINOGRAD_ELEMENTS
} WinogradElement;

/* Points are numbered by column and, in it, by row. down, across: the points of a column and of a
 * row, all or all but the last one, at infinity, which only the last position of the result takes
 * part in. Memory in f32 is aligned to 64 bytes, as strides are.
 *
 * Read: to[point * stride + c] = the transform of the tile whose channels begin at row[position],
 * position by position, line by line. Written up to the next whole vector. */
typedef void WinogradRead(const void *const *row, float *to, int64_t stride, int64_t channels,
                          int down, int across);
/* Fold: the sums from[i * stride + c] at the points of a column, transformed back along it, go to
 * their places in `to`, which holds all columns of a tile: tile * output floats a channel. */
typedef void WinogradFold(const float *from, int64_t stride, float *to, int64_t channels,
                          int column, int down);
/* Write: out[i * line + j * column + c], i < rows, j < columns, from what fold left. The last
 * column is read where all columns of the result are asked for. */
typedef void WinogradWrite(const float *from, void *out, int64_t line, int64_t column, int rows,
                           int columns, int64_t channels);

/* F(output x output, kernel x kernel): tiles of output + kernel - 1 inputs a side. */
typedef struct WinogradType {
    int tile, output, kernel;
    WinogradRead *read[WINOGRAD_ELEMENTS];
    WinogradFold *fold;
    WinogradWrite *write[WINOGRAD_ELEMENTS];
    /* to[point * stride + lane] = the transform of the kernels from[position *
     * WINOGRAD_PANEL + lane], through f64 */
    void (*weight)(const float *from, float *to, int64_t stride);
} WinogradType;

/* Spread: to[point * stride + c] = the transform of a square of 4 x 4 that is summed over, at the
 * points of a tile of 6; otherwise as Read. */
typedef void WinogradSpread(const void *const *row, float *to, int64_t stride, int64_t channels);

/* F(3x3, 4x4): the square of x that meets a square of the gradient in the nine positions of a
 * kernel has 6 a side. */
typedef struct WinogradSums {
    WinogradRead *read;
    WinogradSpread *spread;
    WinogradFold *fold;
    WinogradWrite *write;
} WinogradSums;

typedef struct WinogradKernels {
    WinogradType type[WINOGRAD_TYPES];
    WinogradSums sums;
} WinogradKernels;

extern const WinogradKernels winograd_kernels_base;
#if defined(__x86_64__)
extern const WinogradKernels winograd_kernels_v3, winograd_kernels_v4;
#endif

#endif
