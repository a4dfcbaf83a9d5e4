/* Which of the compiled-in instruction sets this processor runs: chosen once, shared by the VM and
 * gemm. Files that are compiled once per level get
 * CB_LEVEL = base, v3 or v4 and export a table with that suffix. */
#ifndef CARBIDE_RUN_CPU_H
#define CARBIDE_RUN_CPU_H

#include <stdbool.h>

enum { CPU_BASE, CPU_V3 /* AVX2, FMA */, CPU_V4 /* AVX-512 F, BW, DQ, VL */ };

int cpu_level(void);

bool cpu_has_bf16(void); /* AVX512-BF16, above CPU_V4 */
bool cpu_is_amd(void);
/* AMX tiles of bf16, above that. The first call asks the system for them, for the whole process:
 * they are off until a process asks. */
bool cpu_has_amx(void);

#endif
