/* Strided copies of elements of one width (cpu/copy.c). */
#ifndef CARBIDE_CPU_COPY_H
#define CARBIDE_CPU_COPY_H

#include "tensor/tensor.h"

/* to[i...] = from[i...] over size[0 .. rank-1]; strides in elements of width bytes, 0 in
 * from_stride repeats. The two must not overlap. Spreads over threads. */
void copy_strided(void *to, const int64_t *to_stride, const void *from, const int64_t *from_stride,
                  int rank, const int64_t *size, size_t width);

#endif
