/* The choice of a product's type, for which AVX512-BF16 stands for AMX: amx.c needs that level. */
#define cpu_has_amx cpu_has_bf16
#include "cpu/gemm_type.c"
