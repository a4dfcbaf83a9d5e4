/* AMX in plain C: linked in front of the library with amx_type.c, which finds it, so that the tests
 * of products and convolutions run gemm_amx.c and conv_amx.c on processors that have no tiles. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* Of these, `make coverage` counts nothing: threads that raise one count wait for each other. */
#define EMULATED static __attribute__((noinline, no_profile_instrument_function))

static _Thread_local float tile_data[8][16][16];
static _Thread_local int configured;

EMULATED void tile_configure(const void *config) { configured = ((const uint8_t *)config)[0] == 1; }

EMULATED void tile_load(int to, const void *from, int64_t stride) {
    for (int r = 0; r < 16; r++)
        memcpy(tile_data[to][r], (const char *)from + r * stride, sizeof tile_data[to][r]);
}

EMULATED void tile_store(int from, void *to, int64_t stride) {
    for (int r = 0; r < 16; r++)
        memcpy((char *)to + r * stride, tile_data[from][r], sizeof tile_data[from][r]);
}

static inline __attribute__((always_inline)) float half_of_pair(float pair, int which) {
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    bits = which ? bits & 0xffff0000 : bits << 16;
    memcpy(&pair, &bits, sizeof pair);
    return pair;
}

EMULATED void tile_multiply(int sum, int a, int b) {
    if (!configured) __builtin_trap();
    for (int r = 0; r < 16; r++) {
        float sums[16]; /* a vector of their own: the three tiles could be one */
        memcpy(sums, tile_data[sum][r], sizeof sums);
        for (int k = 0; k < 16; k++) {
            float even = half_of_pair(tile_data[a][r][k], 0);
            float odd = half_of_pair(tile_data[a][r][k], 1);
            for (int j = 0; j < 16; j++) sums[j] += even * half_of_pair(tile_data[b][k][j], 0);
            for (int j = 0; j < 16; j++) sums[j] += odd * half_of_pair(tile_data[b][k][j], 1);
        }
        memcpy(tile_data[sum][r], sums, sizeof sums);
    }
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig tile_configure
#define _tile_release() (configured = 0)
#define _tile_loadd(to, from, stride) tile_load(to, from, stride)
#define _tile_stored(from, to, stride) tile_store(from, to, stride)
#define _tile_zero(to) memset(tile_data[to], 0, sizeof tile_data[to])
#define _tile_dpbf16ps(sum, a, b) tile_multiply(sum, a, b)

#include "cpu/conv_amx.c"
#include "cpu/gemm_amx.c"
