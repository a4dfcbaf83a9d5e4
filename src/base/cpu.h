/* Which instruction set is used: of those that are compiled into the library, and of generated
 * code. It is what the processor and the system have, or less: option level (CARBIDE_LEVEL) lowers
 * it. Asked for once: packed weights and compiled kernels hold what was chosen, so the first use
 * fixes the option for the life of the process.
 *
 * Files that are compiled once per level get CB_LEVEL = base, v3 or v4 and export a table with that
 * suffix. */
#ifndef CARBIDE_BASE_CPU_H
#define CARBIDE_BASE_CPU_H

#include <stdbool.h>

typedef enum CpuLevel {
    CPU_BASE,
    CPU_V3,   /* AVX2, FMA and what else x86-64-v3 names */
    CPU_V4,   /* AVX-512 F, BW, CD, DQ, VL */
    CPU_BF16, /* AVX512-BF16; this and the next are of products alone */
    CPU_AMX   /* tiles of bf16 */
} CpuLevel;

int cpu_level(void);              /* at most CPU_V4 */
const char *cpu_level_name(void); /* "base" ... "amx": of all five */

/* What exists once per level, as an initializer of an array that cpu_level() indexes:
 * CPU_LEVELS(f_) lists f_base, f_v3, f_v4. */
#if defined(__x86_64__)
#define CPU_LEVELS(name)                                                                           \
    { [CPU_BASE] = name##base, [CPU_V3] = name##v3, [CPU_V4] = name##v4 }
#else
#define CPU_LEVELS(name)                                                                           \
    { [CPU_BASE] = name##base }
#endif

bool cpu_has_bf16(void);
bool cpu_is_amd(void);
/* The processor has AMX and the option allows it. The first call asks the system for the tiles, for
 * the whole process: they are off until a process asks. */
bool cpu_has_amx(void);
/* One division of 16 floats costs as much as 32 multiply-adds (op/math_f32.h: SLOW_DIVISION). */
bool cpu_divides_slowly(void);

#endif
