/* C for CPUs as a target, with the fixed text of its files: types, conversions, streaming copies.
 * Everything is branch-free where it stands in a vector loop. */
#include "codegen/c/kernel.h"

/* gcc makes branches of selects. no-tree-pre: of chains of them, which then do not vectorize (pow
 * after clamp was 19 times slower). no-thread-jumps, no-tree-sink: with loads inside, which become
 * masked ones; neighbouring loads whose masks differ then share the first one's (gcc 12 and 13,
 * with masks of another width than the elements): wrong values, test_codegen_compilers.c.
 * no-predictive-commoning: it reads what lies between two places that a loop stores to and stores
 * it again, while the sums there are another thread's: wrong values, test_splits.c. */
#define PRAGMAS                                                                                    \
    "#if defined __GNUC__ && !defined __clang__\n"                                                 \
    "#pragma GCC optimize(\"no-tree-pre\", \"no-thread-jumps\", \"no-tree-sink\")\n"               \
    "#pragma GCC optimize(\"no-predictive-commoning\")\n"                                          \
    "#endif\n"

#define TYPES                                                                                      \
    "typedef __INT64_TYPE__ int64_t;\n"                                                            \
    "typedef __INT32_TYPE__ int32_t;\n"                                                            \
    "typedef __INT16_TYPE__ int16_t;\n"                                                            \
    "typedef __INT8_TYPE__ int8_t;\n"                                                              \
    "typedef __UINT8_TYPE__ uint8_t;\n"                                                            \
    "typedef __UINT16_TYPE__ uint16_t;\n"                                                          \
    "typedef __UINT32_TYPE__ uint32_t;\n"

/* gcc makes vector versions of such functions; clang does not, and inlines. */
static const char apart_macro[] =
    "#if defined __GNUC__ && !defined __clang__ && defined __x86_64__\n"
    "#define APART __attribute__((simd(\"notinbranch\"), noinline, const)) static\n"
    "#else\n"
    "#define APART static inline\n"
    "#endif\n";

/* The ends of vector loops become straight code for each element that may be left, which pays where
 * there are few: half of the compile time of a concatenation of 50. */
static const char many_loops[] = "#if defined __GNUC__ && !defined __clang__\n"
                                 "#pragma GCC optimize(\"no-peel-loops\")\n"
                                 "#endif\n";

/* A load with a condition becomes a masked one. Where the next loop out leaves its address alone,
 * gcc's choice of induction variables hands it on as an expression, and gcc 12 evaluates that where
 * the load stands, when the variables in it have moved on: wrong values,
 * test_codegen_compilers.c. */
static const char guards[] = "#if defined __GNUC__ && !defined __clang__\n"
                             "#pragma GCC optimize(\"no-ivopts\")\n"
                             "#endif\n";

const Target c_target = {
#define DTYPE(id, name, stored, computed, ...)                                                     \
    .type[CB_##id] = #computed, .storage[CB_##id] = #stored,
#include "op/dtype_rows.h"
    .infinity = {"__builtin_inff()", "__builtin_inf()"},
    .nan = {"__builtin_nanf(\"\")", "__builtin_nan(\"\")"},
    .opening = PRAGMAS TYPES,
    .function = "static inline",
    .apart = "APART",
    .apart_opening = apart_macro,
    .many_loops_opening = many_loops,
    .guards_opening = guards,
    .hides_sums = true,
    .kernel = c_kernel,
    .axis = c_axis,
    .hide = "__asm__(\"\" : \"+r\"(%s));",
    .element = c_element,
    .scan = c_scan,
    .slot = c_slot,
    .row = c_row,
    .address = c_address,
    /* Integers in the order of the floats, NaN where the caller wants it: their extremes
     * vectorize. */
    .helper[HELPER_order_f32] =
        "static inline int32_t order_f32(float a, int32_t nan) {\n"
        "    union { float f; int32_t i; } both = {a};\n"
        "    int32_t i = a != a ? nan : both.i;\n"
        "    return i ^ (i >> 31 & 0x7fffffff);\n"
        "}\n"
        "static inline float unorder_f32(int32_t k) {\n"
        "    union { int32_t i; float f; } both = {k ^ (k >> 31 & 0x7fffffff)};\n"
        "    return both.f;\n"
        "}\n",
    .helper[HELPER_order_f64] =
        "static inline int64_t order_f64(double a, int64_t nan) {\n"
        "    union { double f; int64_t i; } both = {a};\n"
        "    int64_t i = a != a ? nan : both.i;\n"
        "    return i ^ (i >> 63 & 0x7fffffffffffffffL);\n"
        "}\n"
        "static inline double unorder_f64(int64_t k) {\n"
        "    union { int64_t i; double f; } both = {k ^ (k >> 63 & 0x7fffffffffffffffL)};\n"
        "    return both.f;\n"
        "}\n",
    /* The low half of to_i64_f32 by float arithmetic alone: multiples of 2^32 are taken off
     * exactly. */
    .helper[HELPER_to_i32_f32] = "static inline int32_t to_i32_f32(float a) {\n"
                                 "    float r = a - __builtin_truncf(a * 0x1p-32f) * 0x1p32f;\n"
                                 "    r = r >= 0x1p31f ? r - 0x1p32f : r;\n"
                                 "    r = r < -0x1p31f ? r + 0x1p32f : r;\n"
                                 "    return (r <= -1.0f) | (r >= 1.0f) ? (int32_t)r : 0;\n"
                                 "}\n",
    /* gcc 12 takes (float)(int64_t)a for trunc(a), which is -0 where the integer is 0: what is
     * truncated to 0, and NaN, is not left to the conversion. */
    .helper[HELPER_to_i64_f32] =
        "static inline int64_t to_i64_f32(float a) {\n"
        "    int64_t low = -9223372036854775807L - 1;\n"
        "    int64_t i = (a >= -0x1p63f) & (a < 0x1p63f) ? (int64_t)a : low;\n"
        "    return (a <= -1.0f) | (a >= 1.0f) ? i : 0;\n"
        "}\n",
    .helper[HELPER_to_i64_f64] =
        "static inline int64_t to_i64_f64(double a) {\n"
        "    int64_t low = -9223372036854775807L - 1;\n"
        "    int64_t i = (a >= -0x1p63) & (a < 0x1p63) ? (int64_t)a : low;\n"
        "    return (a <= -1.0) | (a >= 1.0) ? i : 0;\n"
        "}\n",
    /* Both halves as doubles, 2^52 and 2^84 above what they are; the last sum alone rounds. On the
     * way to f32 what is lost above 2^53 leaves an odd bit, so that it decides where it is half way
     * between two. */
    .helper[HELPER_from_i64] =
        "#if defined __AVX2__ && !defined __AVX512DQ__\n"
        "static inline double from_i64_f64(int64_t a) {\n"
        "    union { int64_t i; double f; } low = {(a & 0xffffffffL) | 0x4330000000000000L};\n"
        "    union { int64_t i; double f; } high = {\n"
        "        (int64_t)((__UINT64_TYPE__)a >> 32) ^ 0x4530000080000000L};\n"
        "    return (high.f - 0x1.00000801p84) + low.f;\n"
        "}\n"
        "static inline float from_i64_f32(int64_t a) {\n"
        "    int64_t odd = (a | ((a & 2047) + 2047)) & -2048;\n"
        "    return (float)from_i64_f64((a > 1L << 53) | (a < -(1L << 53)) ? odd : a);\n"
        "}\n"
        "#else\n"
        "static inline double from_i64_f64(int64_t a) { return (double)a; }\n"
        "static inline float from_i64_f32(int64_t a) { return (float)a; }\n"
        "#endif\n",
    .helper[HELPER_floor] = "static inline int64_t floor_quotient(int64_t a, int64_t b) {\n"
                            "    int64_t q = a / b;\n"
                            "    return q - ((a - q * b != 0) & ((a < 0) != (b < 0)));\n"
                            "}\n"
                            "static inline int64_t floor_remainder(int64_t a, int64_t b) {\n"
                            "    return a - floor_quotient(a, b) * b;\n"
                            "}\n",
    /* Compilers do not vectorize with the instruction, but the text of a conversion, which has ten
     * times as many. Vectors are as wide as those of the loop behind: a load that spans two stores
     * waits until both have left the core. So no two overlap, and the last ones of AVX-512 fill
     * their array up to a whole vector. clang would take the first element from the register and
     * the others one by one, if it knew where the stores go. */
    .helper[HELPER_halves] =
        "static inline float m_from_f16_f32(unsigned short);\n"
        "static inline unsigned short m_to_f16_f32(float);\n"
        "#ifdef __clang__\n"
        "#define HIDE(pointer) __asm__(\"\" : \"+r\"(pointer));\n"
        "#else\n"
        "#define HIDE(pointer)\n"
        "#endif\n"
        "#define HALVES(LANES) \\\n"
        "typedef short Halves __attribute__((vector_size(2 * LANES))); \\\n"
        "typedef float Wide __attribute__((vector_size(4 * LANES))); \\\n"
        "typedef Halves HalvesAt __attribute__((may_alias, aligned(2))); \\\n"
        "typedef Wide WideAt __attribute__((may_alias, aligned(4)));\n"
        "#if defined __AVX512BW__ && defined __AVX512VL__\n"
        "HALVES(16)\n"
        "#define WIDEN(halves) __builtin_ia32_vcvtph2ps512_mask(halves, (Wide){0}, -1, 4)\n"
        "#define NARROW(wide) __builtin_ia32_vcvtps2ph512_mask(wide, 0, (Halves){0}, -1)\n"
        "static inline void widen_f16(float *restrict to, const uint16_t *restrict from, int n) {\n"
        "    int i = 0;\n"
        "    HIDE(to)\n"
        "    for (; i + 16 <= n; i += 16)\n"
        "        *(WideAt *)(to + i) = WIDEN(*(const HalvesAt *)(from + i));\n"
        "    if (i < n)\n"
        "        *(WideAt *)(to + i) = WIDEN(__builtin_ia32_loaddquhi256_mask("
        "(const void *)(from + i), (Halves){0}, (1u << (n - i)) - 1));\n"
        "}\n"
        "static inline void narrow_f16(uint16_t *restrict to, const float *restrict from, int n) "
        "{\n"
        "    int i = 0;\n"
        "    for (; i + 16 <= n; i += 16)\n"
        "        *(HalvesAt *)(to + i) = NARROW(*(const WideAt *)(from + i));\n"
        "    if (i < n)\n"
        "        __builtin_ia32_storedquhi256_mask((void *)(to + i), "
        "NARROW(*(const WideAt *)(from + i)), (1u << (n - i)) - 1);\n"
        "}\n"
        "#else\n"
        "#ifdef __F16C__\n"
        "HALVES(8)\n"
        "#define WIDEN(i) *(WideAt *)(to + (i)) = __builtin_ia32_vcvtph2ps256("
        "*(const HalvesAt *)(from + (i)))\n"
        "#define NARROW(i) *(HalvesAt *)(to + (i)) = __builtin_ia32_vcvtps2ph256("
        "*(const WideAt *)(from + (i)), 0)\n"
        "#define EIGHTS(STEP) if (n >= 8) { \\\n"
        "    for (int i = 0; i + 8 <= n; i += 8) STEP(i); \\\n"
        "    STEP(n - 8); \\\n"
        "    return; \\\n"
        "}\n"
        "#else\n"
        "#define EIGHTS(STEP)\n"
        "#endif\n"
        "static inline void widen_f16(float *restrict to, const uint16_t *restrict from, int n) {\n"
        "    HIDE(to)\n"
        "    EIGHTS(WIDEN)\n"
        "    for (int i = 0; i < n; i++) to[i] = m_from_f16_f32(from[i]);\n"
        "}\n"
        "static inline void narrow_f16(uint16_t *restrict to, const float *restrict from, int n) "
        "{\n"
        "    EIGHTS(NARROW)\n"
        "    for (int i = 0; i < n; i++) to[i] = m_to_f16_f32(from[i]);\n"
        "}\n"
        "#endif\n",
    .helper[HELPER_half] = "static inline float m_from_f16_f32(unsigned short);\n"
                           "static inline unsigned short m_to_f16_f32(float);\n"
                           "#ifdef __F16C__\n"
                           "typedef short EightHalves __attribute__((vector_size(16)));\n"
                           "typedef float FourWide __attribute__((vector_size(16)));\n"
                           "#define widen_one_f16(half) "
                           "(__builtin_ia32_vcvtph2ps((EightHalves){(short)(half)})[0])\n"
                           "#define narrow_one_f16(wide) "
                           "((uint16_t)__builtin_ia32_vcvtps2ph((FourWide){wide}, 0)[0])\n"
                           "#else\n"
                           "#define widen_one_f16 m_from_f16_f32\n"
                           "#define narrow_one_f16 m_to_f16_f32\n"
                           "#endif\n",
    .helper[HELPER_masks] = "#ifdef __AVX2__\n"
                            "#define MASKED(yes, no) yes\n"
                            "#else\n"
                            "#define MASKED(yes, no) no\n"
                            "#endif\n",
    /* Past the caches, a line at a time; the ends of the run, which share lines with others, go
     * through them. */
    .helper[HELPER_stream] =
        "#ifdef __AVX512F__\n"
        "#define STREAM_BYTES 64\n"
        "#define stream_vector __builtin_ia32_movntps512\n"
        "#elif defined __AVX__\n"
        "#define STREAM_BYTES 32\n"
        "#define stream_vector __builtin_ia32_movntps256\n"
        "#elif defined __SSE__\n"
        "#define STREAM_BYTES 16\n"
        "#define stream_vector __builtin_ia32_movntps\n"
        "#else\n"
        "#define STREAM_BYTES 16\n"
        "#define stream_vector(to, value) (*(Stream *)(to) = (value))\n"
        "#endif\n"
        "#ifdef __clang__\n"
        "#undef stream_vector\n"
        "#define stream_vector(to, value) __builtin_nontemporal_store((value), (Stream *)(to))\n"
        "#endif\n"
        "#ifdef __SSE__\n"
        "#define stream_fence() __builtin_ia32_sfence()\n"
        "#else\n"
        "#define stream_fence() ((void)0)\n"
        "#endif\n"
        "typedef float Stream __attribute__((vector_size(STREAM_BYTES), may_alias));\n"
        "typedef float StreamFrom __attribute__((vector_size(STREAM_BYTES), may_alias, "
        "aligned(1)));\n"
        "static inline void stream_bytes(char *restrict to, const char *restrict from, int64_t n) "
        "{\n"
        "    for (int64_t i = 0; i < n; i++) to[i] = from[i];\n"
        "}\n"
        "static inline void stream(void *restrict to, const void *restrict from, int64_t bytes) {\n"
        "    char *restrict d = to;\n"
        "    const char *restrict s = from;\n"
        "    int64_t head = -(int64_t)d & 63, at;\n"
        "    if (head > bytes) head = bytes;\n"
        "    stream_bytes(d, s, head);\n"
        "    for (at = head; at + 64 <= bytes; at += 64)\n"
        "        for (int64_t i = at; i < at + 64; i += STREAM_BYTES)\n"
        "            stream_vector((float *)(void *)(d + i), *(const StreamFrom *)(const void *)(s "
        "+ i));\n"
        "    stream_bytes(d + at, s + at, bytes - at);\n"
        "}\n"
        "static inline void stream_lines(void *restrict to, const void *restrict from, int bytes) "
        "{\n"
        "    char *restrict d = to;\n"
        "    const char *restrict s = from;\n"
        "    if ((int64_t)d & 63) __builtin_memcpy(d, s, bytes);\n"
        "    else\n"
        "        for (int i = 0; i < bytes; i += STREAM_BYTES)\n"
        "            stream_vector((float *)(void *)(d + i), *(const StreamFrom *)(const void *)(s "
        "+ i));\n"
        "}\n",
};
