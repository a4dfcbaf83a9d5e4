/* Which kernels multiply a dtype on this processor, and what is converted around them.
 *
 *     dtype   with AVX512-BF16 of AMD or AMX     without
 *     bf16    as it is, sums narrowed            widened to f32, sums narrowed
 *     f32     as it is; reduced: to bf16         as it is
 *     f16     widened to f32, sums narrowed      the same, as any other half would be
 *
 * The dot product of AVX512-BF16 does twice the work of an f32 one at the same rate on AMD's Zen 5;
 * on Intel's Sapphire Rapids it is the slower way: AlexNet took 204 ms with it, 130 ms widened. */
#include "base/cpu.h"
#include "base/option.h"
#include "cpu/gemm_bf16.h"
#include "cpu/gemm_internal.h"

static const GemmKernels *kernels_of_level(void) {
    static const GemmKernels *const of_level[] = CPU_LEVELS(&gemm_kernels_);
    return of_level[cpu_level()];
}

static const GemmType *find_bf16(void) {
    if (option_lists(OPTION_skip, "bf16")) return NULL;
#if defined(CARBIDE_HAVE_AMX)
    if (!option_lists(OPTION_skip, "amx") && cpu_has_amx()) return &gemm_bf16_amx;
#endif
#if defined(CARBIDE_HAVE_BF16)
    if (cpu_has_bf16() && cpu_is_amd()) return &gemm_bf16_dot;
#endif
    return NULL;
}

/* Packed weights hold the format that was chosen, so it stays for the life of the process. */
const GemmType *gemm_bf16(void) {
    static _Atomic(const GemmType *) chosen;
    static const GemmType none;
    const GemmType *type = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!type) {
        const GemmType *found = find_bf16();
        atomic_compare_exchange_strong(&chosen, &type, found ? found : &none);
        type = atomic_load_explicit(&chosen, memory_order_relaxed);
    }
    return type == &none ? NULL : type;
}

GemmConvert *gemm_rounds(const GemmType *type, cb_dtype dtype) {
    const GemmKernels *kernels = kernels_of_level();
    return type == &kernels->f32 ? kernels->round[dtype] : kernels->narrow[dtype];
}

GemmChoice gemm_choose(cb_dtype dtype, bool reduced, bool bf16) {
    const GemmKernels *kernels = kernels_of_level();
    const GemmType *native = NULL;
    if (bf16 && (dtype == CB_BF16 || (dtype == CB_F32 && reduced))) native = gemm_bf16();
    if (dtype == CB_F64) return (GemmChoice){.type = &kernels->f64};
    if (!native) return (GemmChoice){&kernels->f32, kernels->widen[dtype], kernels->narrow[dtype]};
    if (dtype == CB_F32) return (GemmChoice){.type = native, .convert = kernels->narrow[CB_BF16]};
    return (GemmChoice){.type = native, .narrow = native->narrow};
}
