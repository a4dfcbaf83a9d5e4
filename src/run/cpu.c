/* cpuid -> the level of instruction set. Cheap after the first call: the compiler's run-time
 * library keeps the feature bits in a constant table. */
#include "run/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

bool cpu_has_bf16(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return cpu_level() == CPU_V4 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 5 & 1;
#else
    return false;
#endif
}

bool cpu_is_amd(void) {
#if defined(__x86_64__)
    return __builtin_cpu_is("amd");
#else
    return false;
#endif
}

bool cpu_has_amx(void) {
#if defined(__x86_64__) && defined(__linux__)
    enum { REQUEST_PERMISSION = 0x1023 /* ARCH_REQ_XCOMP_PERM */, TILE_DATA = 18 };
    unsigned a, b, c, d;
    /* bf16 */
    bool has = cpu_has_bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 22 & 1 &&
               d >> 24 & 1; /* tiles */
    return has && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}
