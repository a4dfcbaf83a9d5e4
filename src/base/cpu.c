/* cpuid -> the level of instruction set (cpu.h). */
#include "base/cpu.h"

#include "base/option.h"

#include <stdatomic.h>
#include <stddef.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__x86_64__)

typedef struct Feature {
    unsigned leaf, subleaf, word /* 0: eax ... 3: edx */, bit;
} Feature;

/* All that -march=x86-64-v3, -march=x86-64-v4 and the flags of products in CMakeLists.txt let a
 * compiler use: a hypervisor may hide any one of them. */
static const Feature of_v3[] = {
    {1, 0, 2, 12} /* fma */,          {1, 0, 2, 13} /* cx16 */,   {1, 0, 2, 20} /* sse4.2 */,
    {1, 0, 2, 22} /* movbe */,        {1, 0, 2, 23} /* popcnt */, {1, 0, 2, 29} /* f16c */,
    {7, 0, 1, 3} /* bmi */,           {7, 0, 1, 5} /* avx2 */,    {7, 0, 1, 8} /* bmi2 */,
    {0x80000001, 0, 2, 0} /* lahf */, {0x80000001, 0, 2, 5} /* lzcnt */};
static const Feature of_v4[] = {{7, 0, 1, 16} /* avx512f */,
                                {7, 0, 1, 17} /* dq */,
                                {7, 0, 1, 28} /* cd */,
                                {7, 0, 1, 30} /* bw */,
                                {7, 0, 1, 31} /* vl */};
static const Feature of_bf16[] = {{7, 1, 0, 5}};
static const Feature of_amx[] = {{7, 0, 3, 22} /* bf16 */, {7, 0, 3, 24} /* tiles */};

/* No branch in what follows: no one processor would take both sides of it. */
static bool has(const Feature *feature, size_t bytes) {
    unsigned all = 1;
    for (size_t i = 0; i < bytes / sizeof *feature; i++) {
        unsigned word[4] = {0}; /* stays so where there is no such leaf */
        const Feature *f = &feature[i];
        __get_cpuid_count(f->leaf, f->subleaf, &word[0], &word[1], &word[2], &word[3]);
        all &= word[f->word] >> f->bit;
    }
    return all;
}

/* Each level has all of those below. __builtin_cpu_supports also asks whether the system keeps the
 * registers. */
static CpuLevel detect(void) {
    int v3 = (__builtin_cpu_supports("avx2") != 0) & has(of_v3, sizeof of_v3);
    int v4 = v3 & (__builtin_cpu_supports("avx512f") != 0) & has(of_v4, sizeof of_v4);
    int bf16 = v4 & has(of_bf16, sizeof of_bf16), amx = bf16 & has(of_amx, sizeof of_amx);
    return CPU_BASE + v3 + v4 + bf16 + amx;
}

bool cpu_is_amd(void) { return __builtin_cpu_is("amd"); }

bool cpu_divides_slowly(void) {
    return __builtin_cpu_is("skylake-avx512") | __builtin_cpu_is("cascadelake") |
           __builtin_cpu_is("icelake-server");
}

#else

static CpuLevel detect(void) { return CPU_BASE; }
bool cpu_is_amd(void) { return false; }
bool cpu_divides_slowly(void) { return false; }

#endif

/* Of all five. */
static CpuLevel level(void) {
    static atomic_int chosen; /* 0: not yet */
    int known = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!known) {
        int limit = (int)option_fix(OPTION_level) - 1; /* 0 is auto */
        int found = (int)detect();
        known = 1 + (limit >= 0 && limit < found ? limit : found);
        atomic_store_explicit(&chosen, known, memory_order_relaxed);
    }
    return known - 1;
}

int cpu_level(void) {
    CpuLevel all = level();
    return all < CPU_V4 ? (int)all : CPU_V4;
}

const char *cpu_level_name(void) {
    static const char *const names[] = {"base", "v3", "v4", "bf16", "amx"};
    return names[level()];
}

bool cpu_has_bf16(void) { return level() >= CPU_BF16; }

bool cpu_has_amx(void) {
#if defined(__x86_64__) && defined(__linux__)
    enum { REQUEST_PERMISSION = 0x1023 /* ARCH_REQ_XCOMP_PERM */, TILE_DATA = 18 };
    return level() == CPU_AMX && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}
