/* What the files share that are compiled once per instruction set (CB_LEVEL base, v3, v4, see
 * base/cpu.h), with that level's flags: nothing in them may be called before cpu_level() has been
 * asked.
 *
 * A product and its sum are one fused operation where the processor has it: unlike in pointwise
 * code, nobody expects the rounding of the product alone. */
#ifndef CARBIDE_BASE_LEVEL_H
#define CARBIDE_BASE_LEVEL_H

#if defined(__clang__)
#pragma clang fp contract(fast)
#else
#pragma GCC optimize("fp-contract=fast")
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

/* The name of this level's table: LEVEL_TABLE(gemm_kernels_) is gemm_kernels_v3. */
#define LEVEL_JOIN_(name, level) name##level
#define LEVEL_JOIN(name, level) LEVEL_JOIN_(name, level)
#define LEVEL_TABLE(name) LEVEL_JOIN(name, CB_LEVEL)

#endif
