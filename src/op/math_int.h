/* Integer scalar functions, and what every math_*.h file shares.
 *
 * In: the M(name) of ops.def as m_<name>_i32 and m_<name>_i64; bool and the narrow integers
 * compute in i32. These texts are compiled into the VM and the folder and embedded into generated
 * C, so: no #include, no libm, no tables but where lanes go one by one; selects instead of branches
 * where a vectorizer should take them; no undefined behaviour for any argument. LP64 is
 * assumed: int has 32 bits, long 64.
 *
 * Every section opens with a line  //@ name: sections it uses . A user of some functions emits the
 * sections that they need, in the order of math.h. Section "prelude" comes first.
 *
 * Compile with -fwrapv -fno-math-errno -fno-trapping-math: NaN and inf behave, -ffast-math is not
 * wanted.
 *
 * Integer division by zero gives 0 (PyTorch raises), as does remainder; the lowest integer divided
 * by -1 wraps. Shifts out of range give 0, right shifts the sign. */

//@ prelude:
#ifndef MATH
#define MATH static inline __attribute__((always_inline))
#endif
#define MATH_APART static __attribute__((noinline, unused))
/* A function that a vectorized loop calls once for all lanes, where each takes its own branch. */
#ifdef __clang__
#define MATH_LANES MATH_APART
#else
#define MATH_LANES MATH_APART __attribute__((const, simd("notinbranch")))
#endif
/* a * b + c, fused where that is one instruction: does not depend on -ffp-contract. */
#ifdef __FMA__
#define M_FMA_F32(a, b, c) __builtin_fmaf(a, b, c)
#define M_FMA_F64(a, b, c) __builtin_fma(a, b, c)
#else
#define M_FMA_F32(a, b, c) ((a) * (b) + (c))
#define M_FMA_F64(a, b, c) ((a) * (b) + (c))
#endif

//@ limits:
#define m_lowest_bool 0
#define m_highest_bool 1
#define m_lowest_u8 0
#define m_highest_u8 255
#define m_lowest_i8 (-128)
#define m_highest_i8 127
#define m_lowest_i16 (-32768)
#define m_highest_i16 32767
#define m_lowest_i32 (-2147483647 - 1)
#define m_highest_i32 2147483647
#define m_lowest_i64 (-9223372036854775807L - 1L)
#define m_highest_i64 9223372036854775807L
#define m_lowest_f32 (-__builtin_inff())
#define m_highest_f32 __builtin_inff()
#define m_lowest_f64 (-__builtin_inf())
#define m_highest_f64 __builtin_inf()
/* No integer is infinite: as a float it compares with any of them. */
#define m_infinity_i32 __builtin_inff()
#define m_infinity_i64 __builtin_inff()
#define m_infinity_f32 __builtin_inff()
#define m_infinity_f64 __builtin_inf()

//@ abs_i32:
MATH int m_abs_i32(int a) { return a < 0 ? (int)(0u - (unsigned)a) : a; }

//@ abs_i64:
MATH long m_abs_i64(long a) { return a < 0 ? (long)(0ul - (unsigned long)a) : a; }

//@ maximum_i32:
MATH int m_maximum_i32(int a, int b) { return a > b ? a : b; }

//@ maximum_i64:
MATH long m_maximum_i64(long a, long b) { return a > b ? a : b; }

//@ minimum_i32:
MATH int m_minimum_i32(int a, int b) { return a < b ? a : b; }

//@ minimum_i64:
MATH long m_minimum_i64(long a, long b) { return a < b ? a : b; }

//@ sign_i32:
MATH int m_sign_i32(int a) { return (a > 0) - (a < 0); }

//@ sign_i64:
MATH long m_sign_i64(long a) { return (long)(a > 0) - (long)(a < 0); }

//@ floor_i32:
MATH int m_floor_i32(int a) { return a; }

//@ floor_i64:
MATH long m_floor_i64(long a) { return a; }

//@ ceil_i32:
MATH int m_ceil_i32(int a) { return a; }

//@ ceil_i64:
MATH long m_ceil_i64(long a) { return a; }

//@ round_i32:
MATH int m_round_i32(int a) { return a; }

//@ round_i64:
MATH long m_round_i64(long a) { return a; }

//@ trunc_i32:
MATH int m_trunc_i32(int a) { return a; }

//@ trunc_i64:
MATH long m_trunc_i64(long a) { return a; }

//@ divide_i32:
/* Truncated quotient, through f64, where every quotient of two i32 truncates right: vectors have
 * no integer division. */
MATH int m_divide_i32(int a, int b) {
    int safe = ((b == 0) | (b == -1)) ? 1 : b;
    int q = (int)((double)a / (double)safe);
    q = b == -1 ? (int)(0u - (unsigned)a) : q;
    return b == 0 ? 0 : q;
}

//@ divide_i64:
MATH long m_divide_i64(long a, long b) {
    long safe = ((b == 0) | (b == -1)) ? 1 : b;
    long q = a / safe;
    q = b == -1 ? (long)(0ul - (unsigned long)a) : q;
    return b == 0 ? 0 : q;
}

//@ fmod_i32: divide_i32
/* The sign of the dividend. */
MATH int m_fmod_i32(int a, int b) {
    unsigned r = (unsigned)a - (unsigned)m_divide_i32(a, b) * (unsigned)b;
    return b == 0 ? 0 : (int)r;
}

//@ fmod_i64: divide_i64
MATH long m_fmod_i64(long a, long b) {
    unsigned long r = (unsigned long)a - (unsigned long)m_divide_i64(a, b) * (unsigned long)b;
    return b == 0 ? 0 : (long)r;
}

//@ remainder_i32: fmod_i32
/* The sign of the divisor. */
MATH int m_remainder_i32(int a, int b) {
    int r = m_fmod_i32(a, b);
    return ((r != 0) & ((r ^ b) < 0)) ? (int)((unsigned)r + (unsigned)b) : r;
}

//@ remainder_i64: fmod_i64
MATH long m_remainder_i64(long a, long b) {
    long r = m_fmod_i64(a, b);
    return ((r != 0) & ((r ^ b) < 0)) ? (long)((unsigned long)r + (unsigned long)b) : r;
}

//@ floor_divide_i32: divide_i32
MATH int m_floor_divide_i32(int a, int b) {
    int q = m_divide_i32(a, b);
    unsigned r = (unsigned)a - (unsigned)q * (unsigned)b;
    return ((b != 0) & (r != 0) & ((a ^ b) < 0)) ? q - 1 : q;
}

//@ floor_divide_i64: divide_i64
MATH long m_floor_divide_i64(long a, long b) {
    long q = m_divide_i64(a, b);
    unsigned long r = (unsigned long)a - (unsigned long)q * (unsigned long)b;
    return ((b != 0) & (r != 0) & ((a ^ b) < 0)) ? q - 1 : q;
}

//@ pow_i64:
/* By squaring, wrapping. A negative exponent leaves 0 but for the bases 1 and -1. */
MATH long m_pow_i64(long a, long b) {
    unsigned long base = (unsigned long)a, result = 1;
    unsigned long e = b < 0 ? (unsigned long)b & 1ul : (unsigned long)b;
    while (e) {
        result = e & 1ul ? result * base : result;
        base *= base;
        e >>= 1;
    }
    return ((b < 0) & (a != 1) & (a != -1)) ? 0 : (long)result;
}

//@ pow_i32: pow_i64
/* The low half of the 64-bit power is the 32-bit power. */
MATH int m_pow_i32(int a, int b) { return (int)(unsigned)(unsigned long)m_pow_i64(a, b); }

//@ left_shift_i32:
MATH int m_left_shift_i32(int a, int b) {
    return (unsigned)b < 32u ? (int)((unsigned)a << ((unsigned)b & 31u)) : 0;
}

//@ left_shift_i64:
MATH long m_left_shift_i64(long a, long b) {
    return (unsigned long)b < 64ul ? (long)((unsigned long)a << ((unsigned long)b & 63ul)) : 0;
}

//@ right_shift_i32:
MATH int m_right_shift_i32(int a, int b) { return a >> ((unsigned)b < 32u ? b : 31); }

//@ right_shift_i64:
MATH long m_right_shift_i64(long a, long b) { return a >> ((unsigned long)b < 64ul ? b : 63); }

//@ philox_i64:
/* Philox4x32-10 (Salmon et al. 2011). Key: the halves of seed, low first. Counter: the halves of
 * index in words 0 and 1, those of offset in words 2 and 3. Result: words 1 and 0 as one number,
 * without its lowest bit: 63 random bits. The words stay in 64-bit lanes, where the multiplier of
 * vectors works. */
MATH long m_philox_i64(long seed, long offset, long index) {
    const unsigned long low = 0xfffffffful;
    unsigned long k0 = (unsigned long)seed & low, k1 = (unsigned long)seed >> 32;
    unsigned long c0 = (unsigned long)index & low, c1 = (unsigned long)index >> 32;
    unsigned long c2 = (unsigned long)offset & low, c3 = (unsigned long)offset >> 32;
#define M_PHILOX_ROUND                                                                             \
    do {                                                                                           \
        unsigned long p0 = c0 * 0xd2511f53ul, p1 = c2 * 0xcd9e8d57ul;                              \
        c0 = (p1 >> 32) ^ c1 ^ k0;                                                                 \
        c2 = (p0 >> 32) ^ c3 ^ k1;                                                                 \
        c1 = p1 & low;                                                                             \
        c3 = p0 & low;                                                                             \
        k0 = (k0 + 0x9e3779b9ul) & low;                                                            \
        k1 = (k1 + 0xbb67ae85ul) & low;                                                            \
    } while (0)
    M_PHILOX_ROUND;
    M_PHILOX_ROUND;
    M_PHILOX_ROUND;
    M_PHILOX_ROUND;
    M_PHILOX_ROUND;
    M_PHILOX_ROUND;
    M_PHILOX_ROUND;
    M_PHILOX_ROUND;
    M_PHILOX_ROUND;
    M_PHILOX_ROUND;
#undef M_PHILOX_ROUND
    return (long)((c1 << 32 | c0) >> 1);
}
