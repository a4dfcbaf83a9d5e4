/* cpuid -> the level of instruction set. Cheap after the first call: the compiler's run-time
 * library keeps the feature bits in a constant table. */
#include "run/cpu.h"
#include <stdbool.h>

int cpu_level(void) {
#if defined(__x86_64__)
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("bmi2");
    if (!v3) return CPU_BASE;
    bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return v4 ? CPU_V4 : CPU_V3;
#else
    return CPU_BASE;
#endif
}
