/* The two kinds of native bf16 products, each compiled with its own flags where the compiler has
 * them (CMakeLists.txt): gemm_bf16.c (AVX512-BF16) and gemm_amx.c (AMX). */
#ifndef CARBIDE_CPU_GEMM_BF16_H
#define CARBIDE_CPU_GEMM_BF16_H

#include "cpu/gemm_kernel.h"

#if defined(CARBIDE_HAVE_BF16)
extern const GemmType gemm_bf16_dot;
#endif
#if defined(CARBIDE_HAVE_AMX)
extern const GemmType gemm_bf16_amx;
#endif

/* Shared by both: panels of columns, from bf16 and from f32; a part of a full tile moved, or added,
 * to the result; f32 sums rounded to bf16. */
void gemm_bf16_pack(void *panel, const void *matrix, int64_t lane_stride, int64_t k_stride,
                    int lanes, int width, int64_t k);
void gemm_bf16_pack_f32(void *panel, const void *matrix, int64_t lane_stride, int64_t k_stride,
                        int lanes, int width, int64_t k);
void gemm_bf16_move(const float *from, int64_t from_stride, float *to, int64_t stride, int rows,
                    int columns, bool add);
void gemm_bf16_narrow(const void *from, void *to, int64_t count);
void gemm_bf16_stream(const void *from, void *to, int64_t count);

#endif
