/* f32 scalar functions: m_<name>_f32 for the M(name) of ops.def, and f16, bf16 conversions.
 * math_int.h states the rules of these texts; math_f64.h comes before this one.
 *
 * Accuracy, measured by tests/unit/test_math.c: <= 2 ulp everywhere, most under 1 (erf:
 * 2.2 where there is no FMA). pow, hypot, erfc compute in f64. fmod, remainder and floor_divide are
 * exact for every quotient. math_f32_angles.h goes on.
 *
 * f16 and bf16 are converted here for every engine. F16C and AVX512-BF16 give the same bits, those
 * of a NaN too: it is quiet, with as much of its payload as fits. (AVX512-BF16 takes f32 denormals
 * for 0, in products as well.) test_half_bits.c holds all of them together.
 *
 * Polynomials: tools/minimax.py. */

//@ bits_f32:
MATH unsigned m_bits_f32(float x) {
    unsigned bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

//@ float_f32:
MATH float m_float_f32(unsigned bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

//@ abs_f32: bits_f32 float_f32
MATH float m_abs_f32(float a) { return m_float_f32(m_bits_f32(a) & 0x7fffffffu); }

//@ copysign_f32: bits_f32 float_f32
MATH float m_copysign_f32(float a, float b) {
    return m_float_f32((m_bits_f32(a) & 0x7fffffffu) | (m_bits_f32(b) & 0x80000000u));
}

//@ maximum_f32: bits_f32 float_f32
/* -0 lies below 0, and NaN wins: the result is the same in every order of the operands, so engines,
 * lanes and threads agree. Both selects are one instruction; they differ for two zeros alone. */
MATH float m_maximum_f32(float a, float b) {
    float first = a > b ? a : b, second = b > a ? b : a;
    float most = m_float_f32(m_bits_f32(first) & m_bits_f32(second));
    return __builtin_isunordered(a, b) ? a + b : most;
}

//@ minimum_f32: bits_f32 float_f32
MATH float m_minimum_f32(float a, float b) {
    float first = a < b ? a : b, second = b < a ? b : a;
    float least = m_float_f32(m_bits_f32(first) | m_bits_f32(second));
    return __builtin_isunordered(a, b) ? a + b : least;
}

//@ sign_f32:
/* sign(NaN) is 0, as in PyTorch. */
MATH float m_sign_f32(float a) { return (a > 0.0f ? 1.0f : 0.0f) - (a < 0.0f ? 1.0f : 0.0f); }

//@ sqrt_f32:
MATH float m_sqrt_f32(float a) { return __builtin_sqrtf(a); }

//@ round_f32: abs_f32 copysign_f32
/* Half to even. Without SSE4.1: 2^23 pushes the fraction out. */
MATH float m_round_f32(float a) {
#ifdef __SSE4_1__
    return __builtin_rintf(a);
#else
    float t = m_abs_f32(a), r = (t + 8388608.0f) - 8388608.0f;
    return t < 8388608.0f ? m_copysign_f32(r, a) : a;
#endif
}

//@ floor_f32: round_f32
MATH float m_floor_f32(float a) {
#ifdef __SSE4_1__
    return __builtin_floorf(a);
#else
    float r = m_round_f32(a);
    return m_copysign_f32(r - (r > a ? 1.0f : 0.0f), a);
#endif
}

//@ ceil_f32: round_f32
MATH float m_ceil_f32(float a) {
#ifdef __SSE4_1__
    return __builtin_ceilf(a);
#else
    float r = m_round_f32(a);
    return m_copysign_f32(r + (r < a ? 1.0f : 0.0f), a);
#endif
}

//@ trunc_f32: round_f32
MATH float m_trunc_f32(float a) {
#ifdef __SSE4_1__
    return __builtin_truncf(a);
#else
    float t = m_abs_f32(a), r = m_round_f32(t);
    return m_copysign_f32(r - (r > t ? 1.0f : 0.0f), a);
#endif
}

//@ to_i64_f32:
/* Truncates; NaN gives 0, what does not fit the lowest integer. Narrower integers are the low bits
 * of this. */
MATH long m_to_i64_f32(float a) {
    long i = ((a >= -9223372036854775808.0f) & (a < 9223372036854775808.0f))
                 ? (long)a
                 : -9223372036854775807L - 1L;
    return a != a ? 0 : i;
}

//@ to_i32_f32: to_i64_f32
MATH int m_to_i32_f32(float a) { return (int)(unsigned)(unsigned long)m_to_i64_f32(a); }

//@ from_f16_f32: bits_f32 float_f32
/* The multiplication moves the exponent, and makes NaN quiet. Denormals are mantissas of 2^-14 that
 * it is taken off: as floats they would be denormal, too, and 0 under cb_set_flush_denormal. */
MATH float m_from_f16_f32(unsigned short h) {
    unsigned body = (unsigned)(h & 0x7fff) << 13, sign = (unsigned)(h & 0x8000) << 16;
    unsigned small = m_bits_f32(m_float_f32(body + 0x38800000u) - 0x1p-14f);
    unsigned whole = body >= 0x0f800000u ? body | 0x7f800000u : body; /* inf, NaN */
    unsigned moved = m_bits_f32(m_float_f32(whole) * 0x1p112f);
    return m_float_f32((body < 0x00800000u ? small : moved) | sign);
}

//@ to_f16_f32: bits_f32 float_f32
/* To nearest even. Denormals: adding 1/2 leaves the rounded mantissa in the low bits. */
MATH unsigned short m_to_f16_f32(float x) {
    unsigned bits = m_bits_f32(x), sign = bits >> 16 & 0x8000u, body = bits & 0x7fffffffu;
    unsigned finite = body < 0x47800000u ? body : 0x47800000u; /* 2^16 becomes inf */
    unsigned normal = (finite + 0xc8000fffu + (body >> 13 & 1u)) >> 13;
    unsigned small = m_bits_f32(m_float_f32(body) + 0.5f) - 0x3f000000u;
    unsigned h = body < 0x38800000u ? small : normal;
    h = x == x ? h : 0x7e00u | (body >> 13 & 0x1ffu);
    return (unsigned short)(h | sign);
}

//@ from_bf16_f32: float_f32
MATH float m_from_bf16_f32(unsigned short h) { return m_float_f32((unsigned)h << 16); }

//@ to_bf16_f32: bits_f32
MATH unsigned short m_to_bf16_f32(float x) {
    unsigned bits = m_bits_f32(x);
    unsigned rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (unsigned short)(x == x ? rounded : (bits >> 16 | 0x40u));
}

//@ exp_tail_f32:
/* exp(r) - 1 on |r| <= ln(2)/2. */
MATH float m_exp_tail_f32(float r) {
    float p = 0.00138825236f;
    p = M_FMA_F32(p, r, 0.00836652052f);
    p = M_FMA_F32(p, r, 0.0416672006f);
    p = M_FMA_F32(p, r, 0.166665435f);
    p = M_FMA_F32(p, r, 0.49999997f);
    return M_FMA_F32(r * r, p, r);
}

//@ exp_poly_f32:
/* exp(r) on |r| <= ln(2)/2. */
MATH float m_exp_poly_f32(float r) {
    float p = 0.00138145976f;
    p = M_FMA_F32(p, r, 0.00836871658f);
    p = M_FMA_F32(p, r, 0.041668389f);
    p = M_FMA_F32(p, r, 0.166665211f);
    p = M_FMA_F32(p, r, 0.49999994f);
    p = M_FMA_F32(p, r, 1.0f);
    return M_FMA_F32(p, r, 1.0f);
}

//@ exp_f32: bits_f32 float_f32 exp_poly_f32
/* The low bits of t hold n + 254; 2^n is the product of two powers, so that results round once
 * into the denormals and overflow to infinity. What is 0 is chosen, here and below: a product that
 * underflows takes a core of Intel's some 150 cycles for each vector, and masks are -1e9. */
MATH float m_exp_f32(float a) {
    float c = a < -104.0f ? 0.0f : a;
    c = c > 104.0f ? 104.0f : c;
    float t = M_FMA_F32(c, 1.44269502f, 12583166.0f);
    float n = t - 12583166.0f;
    float r = M_FMA_F32(n, -1.42860677e-06f, M_FMA_F32(n, -0.693145752f, c));
    unsigned u = m_bits_f32(t) & 0x3ffu, h = u >> 1;
    float y = m_exp_poly_f32(r) * m_float_f32(h << 23) * m_float_f32((u - h) << 23);
    return a < -104.0f ? 0.0f : y;
}

//@ muladd_f32:
MATH float m_muladd_f32(float a, float b, float c) { return M_FMA_F32(a, b, c); }

//@ exp_nonpositive_f32: bits_f32 float_f32 exp_poly_f32
/* exp(a) for a <= 0: 2^(n + 64) is in the low bits of t, and 2^-64 rounds into the denormals. */
MATH float m_exp_nonpositive_f32(float a) {
    float c = a < -104.0f ? 0.0f : a;
    float t = M_FMA_F32(c, 1.44269502f, 12583103.0f);
    float n = t - 12583103.0f;
    float r = M_FMA_F32(n, -1.42860677e-06f, M_FMA_F32(n, -0.693145752f, c));
    float y = m_exp_poly_f32(r) * m_float_f32(m_bits_f32(t) << 23) * 0x1p-64f;
    return a < -104.0f ? 0.0f : y;
}

//@ scaled_inverse_f32: bits_f32 float_f32
/* 2^-30 / d for d in [2^-30, 2^126], 0 above. Intel's cores take 16 cycles to divide 16 floats, as
 * long as for 32 multiply-adds: there Newton's iteration from a guess in the bits, 3.5 to 24 bits
 * in 3 steps. Sapphire Rapids divides: gelu waits for its chain of results, which Newton's steps
 * make longer (GPT-2's product with gelu in bf16: 0.323 ms, and 0.339 by Newton's). */
#if defined(SLOW_DIVISION) /* jit/compiler.c: these processors */
MATH float m_scaled_inverse_f32(float d) {
    float y = m_float_f32(0x7ef311c7u - m_bits_f32(d));
    y = M_FMA_F32(y, M_FMA_F32(-d, y, 1.0f), y);
    y = M_FMA_F32(y, M_FMA_F32(-d, y, 1.0f), y);
    y = M_FMA_F32(y, M_FMA_F32(-d, y, 1.0f), y);
    return d > 0x1p126f ? 0.0f : y * 0x1p-30f;
}
#else
MATH float m_scaled_inverse_f32(float d) { return 0x1p-30f / d; }
#endif

//@ sigmoid_f32: bits_f32 float_f32 exp_poly_f32 scaled_inverse_f32
/* 1 / (1 + exp(-a)), of which both sides are scaled by 2^-30: exp(-a) stays finite down to the
 * least denormal quotient, where a is -104. Above 66 the result is 1. */
MATH float m_sigmoid_f32(float a) {
    float c = a < -104.0f ? 0.0f : -a;
    c = c < -66.0f ? -66.0f : c;
    unsigned u = m_bits_f32(M_FMA_F32(c, 1.44269502f, 12583009.0f)); /* n + 97 in the low bits */
    float n = m_float_f32(u) - 12583009.0f;
    float r = M_FMA_F32(n, -1.42860677e-06f, M_FMA_F32(n, -0.693145752f, c));
    float d = M_FMA_F32(m_float_f32(u << 23), m_exp_poly_f32(r), 0x1p-30f);
    float y = m_scaled_inverse_f32(d);
    return a < -104.0f ? 0.0f : y;
}

//@ exp2_f32: bits_f32 float_f32 exp_poly_f32
MATH float m_exp2_f32(float a) {
    float c = a < -151.0f ? 0.0f : a;
    c = c > 129.0f ? 129.0f : c;
    float t = c + 12583166.0f;
    float r = (c - (t - 12583166.0f)) * 0.693147182f;
    unsigned u = m_bits_f32(t) & 0x3ffu, h = u >> 1;
    float y = m_exp_poly_f32(r) * m_float_f32(h << 23) * m_float_f32((u - h) << 23);
    return a < -151.0f ? 0.0f : y;
}

//@ expm1_quarter_f32: bits_f32 float_f32 exp_tail_f32
/* (exp(a) - 1) / 4 for -20 <= a <= 89.6: a quarter, so that sinh and cosh do not overflow early. */
MATH float m_expm1_quarter_f32(float a) {
    float t = M_FMA_F32(a, 1.44269502f, 12583037.0f); /* n + 125 in the low bits */
    float n = t - 12583037.0f;
    float r = M_FMA_F32(n, -1.42860677e-06f, M_FMA_F32(n, -0.693145752f, a));
    float scale = m_float_f32(m_bits_f32(t) << 23);
    return M_FMA_F32(scale, m_exp_tail_f32(r), scale - 0.25f);
}

//@ expm1_f32: expm1_quarter_f32 abs_f32
MATH float m_expm1_f32(float a) {
    float c = a < -20.0f ? -20.0f : a;
    c = c > 89.0f ? 89.0f : c;
    float y = 4.0f * m_expm1_quarter_f32(c);
    return m_abs_f32(a) < 1e-8f ? a : y;
}

//@ sinh_f32: expm1_quarter_f32 abs_f32 copysign_f32
MATH float m_sinh_f32(float a) {
    float t = m_abs_f32(a), z = t * t;
    float p = 2.78223024e-06f;
    p = M_FMA_F32(p, z, 0.000198428941f);
    p = M_FMA_F32(p, z, 0.00833331048f);
    p = M_FMA_F32(p, z, 0.166666672f);
    float small = M_FMA_F32(t, z * p, t);
    float c = t > 89.6f ? 89.6f : t;
    float q = m_expm1_quarter_f32(c);
    float large = 2.0f * (q + q / (4.0f * q + 1.0f));
    return m_copysign_f32(t < 1.0f ? small : large, a);
}

//@ cosh_f32: expm1_quarter_f32 abs_f32
MATH float m_cosh_f32(float a) {
    float t = m_abs_f32(a);
    float c = t > 89.6f ? 89.6f : t;
    float e = m_expm1_quarter_f32(c) + 0.25f;
    return 2.0f * e + 0.125f / e;
}

//@ tanh_f32: bits_f32 float_f32 abs_f32
/* 1 - 2 / (exp(2t) + 1), below 0.51 a polynomial in t t. The clamp is one of integers and turns NaN
 * into a number; the polynomial keeps it. */
MATH float m_tanh_f32(float a) {
    unsigned bits = m_bits_f32(a) & 0x7fffffffu;
    float t = m_float_f32(bits), z = t * t;
    float q = 0.0170843881f;
    q = M_FMA_F32(q, z, -0.0529780388f);
    q = M_FMA_F32(q, z, 0.133250222f);
    q = M_FMA_F32(q, z, -0.333331138f);
    float small = M_FMA_F32(t, z * q, t);
    float c = m_float_f32(bits < 0x41200000u ? bits : 0x41200000u); /* 10 */
    float u = M_FMA_F32(c, 2.88539004f, 12583039.0f);               /* n + 127 in the low bits */
    float r = M_FMA_F32(u - 12583039.0f, -0.346573591f, c);         /* n ln(2)/2 + r = c */
    float p = 0.0884134248f;
    p = M_FMA_F32(p, r, 0.26779893f);
    p = M_FMA_F32(p, r, 0.666694224f);
    p = M_FMA_F32(p, r, 1.33332169f);
    p = M_FMA_F32(p, r, 1.99999976f);
    p = M_FMA_F32(p, r, 2.0f);
    p = M_FMA_F32(p, r, 1.0f);
    float large = 1.0f - 2.0f / M_FMA_F32(m_float_f32(m_bits_f32(u) << 23), p, 1.0f);
    return m_float_f32(m_bits_f32(t >= 0.51f ? large : small) | (m_bits_f32(a) & 0x80000000u));
}

//@ erf_f32: bits_f32 float_f32 exp_tail_f32 abs_f32
/* 1 - exp(-g), g = -log(1 - erf(t)) a polynomial, in the form that keeps small results exact. */
MATH float m_erf_f32(float a) {
    float t = m_abs_f32(a);
    t = t > 3.925f ? 3.925f : t;
    float p = -9.26371195e-06f;
    p = M_FMA_F32(p, t, 0.000117710209f);
    p = M_FMA_F32(p, t, -0.000633091608f);
    p = M_FMA_F32(p, t, 0.00166750955f);
    p = M_FMA_F32(p, t, -0.000160893862f);
    p = M_FMA_F32(p, t, -0.0191527884f);
    p = M_FMA_F32(p, t, 0.102777757f);
    p = M_FMA_F32(p, t, 0.636619389f);
    p = M_FMA_F32(p, t, -5.4115155e-08f);
    float g = M_FMA_F32(t, -1.12837923f, -(t * p));
    float u = M_FMA_F32(g, 1.44269502f, 12583039.0f);
    float r = M_FMA_F32(u - 12583039.0f, -0.693147182f, g); /* n is small: one constant does */
    float scale = m_float_f32(m_bits_f32(u) << 23);
    float y = M_FMA_F32(scale, -m_exp_tail_f32(r), 1.0f - scale);
    return m_float_f32(m_bits_f32(y) | (m_bits_f32(a) & 0x80000000u));
}

//@ gelu_value_f32: bits_f32 float_f32 abs_f32
/* a Phi(a), Phi(-t) = 2^p(t) with p(0) = -1 exactly. p is fitted to |t| <= 6; beyond, it falls fast
 * enough for the result to vanish. Errors are below 1.3e-7 |a|, and for a > -2 below 1e-6 of the
 * result: a (1 + erf(a / sqrt(2))) / 2 loses its digits there. */
MATH float m_gelu_value_f32(float a) {
    float t = m_abs_f32(a);
    float p = -2.46722334e-06f;
    p = M_FMA_F32(p, t, 3.53621363e-05f);
    p = M_FMA_F32(p, t, -0.000169031191f);
    p = M_FMA_F32(p, t, -0.00017349713f);
    p = M_FMA_F32(p, t, 0.00710457237f);
    p = M_FMA_F32(p, t, -0.0525199063f);
    p = M_FMA_F32(p, t, -0.459201992f);
    p = M_FMA_F32(p, t, -1.15110576f);
    p = M_FMA_F32(p, t, -1.0f);
    p = p < -127.0f ? -127.0f : p; /* there the scale is 0 */
    float u = p + 12583039.0f, r = p - (u - 12583039.0f);
    float e = 0.00132647308f;
    e = M_FMA_F32(e, r, 0.00967151392f);
    e = M_FMA_F32(e, r, 0.0555073358f);
    e = M_FMA_F32(e, r, 0.240222424f);
    e = M_FMA_F32(e, r, 0.693147004f);
    e = M_FMA_F32(e, r, 1.0f) * m_float_f32(m_bits_f32(u) << 23);
    return a * (a < 0.0f ? e : 1.0f - e);
}

//@ clamp_f32:
/* As where(b > high, high, b) of b = where(a < low, low, a): a zero of either sign is within
 * [0, high], so it stays, and a bound of NaN is none. */
MATH float m_clamp_f32(float a, float low, float high) {
    float b = a < low ? low : a;
    return b > high ? high : b;
}

//@ log_split_f32: bits_f32 float_f32
/* x = (1 + f) 2^k with 1 + f in [sqrt(1/2), sqrt(2)); denormals are scaled first. */
MATH float m_log_split_f32(float x, float *k) {
    int tiny = x < 1.17549435e-38f;
    float y = tiny ? x * 8388608.0f : x;
    unsigned u = m_bits_f32(y) + (0x3f800000u - 0x3f3504f3u);
    *k = (float)((int)(u >> 23) - (tiny ? 150 : 127));
    return m_float_f32((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
}

//@ log_ends_f32: float_f32
/* The logarithm y of x, corrected for what is not a positive finite number. */
MATH float m_log_ends_f32(float x, float y) {
    float r = x < __builtin_inff() ? y : x;
    r = x == 0.0f ? -__builtin_inff() : r;
    return x < 0.0f ? m_float_f32(0x7fc00000u) : r;
}

//@ log_tail_f32:
/* log(1 + f) - f */
MATH float m_log_tail_f32(float f) {
    float z = f * f;
    float p = -0.0763447955f;
    p = M_FMA_F32(p, f, 0.127615601f);
    p = M_FMA_F32(p, f, -0.13160181f);
    p = M_FMA_F32(p, f, 0.142017603f);
    p = M_FMA_F32(p, f, -0.166233584f);
    p = M_FMA_F32(p, f, 0.200012267f);
    p = M_FMA_F32(p, f, -0.250008196f);
    p = M_FMA_F32(p, f, 0.333333313f);
    return z * M_FMA_F32(f, p, -0.5f);
}

//@ log_f32: log_split_f32 log_tail_f32 log_ends_f32
MATH float m_log_f32(float a) {
    float k, f = m_log_split_f32(a, &k);
    float y = (m_log_tail_f32(f) + k * 1.42860677e-06f) + f;
    return m_log_ends_f32(a, M_FMA_F32(k, 0.693145752f, y));
}

//@ log_high_f32: log_tail_f32 bits_f32 float_f32
/* log(1 + f) as high + *low, high with 12 bits: its product with a 12-bit constant is exact. */
MATH float m_log_high_f32(float f, float *low) {
    float tail = m_log_tail_f32(f);
    float high = m_float_f32(m_bits_f32(f + tail) & 0xfffff000u);
    *low = (f - high) + tail;
    return high;
}

//@ log2_f32: log_split_f32 log_high_f32 log_ends_f32
MATH float m_log2_f32(float a) {
    float k, low, f = m_log_split_f32(a, &k), high = m_log_high_f32(f, &low);
    float w = (low + high) * 0.000312228396f + low * 1.44238281f;
    return m_log_ends_f32(a, k + (high * 1.44238281f + w));
}

//@ log10_f32: log_split_f32 log_high_f32 log_ends_f32
MATH float m_log10_f32(float a) {
    float k, low, f = m_log_split_f32(a, &k), high = m_log_high_f32(f, &low);
    float w = (low + high) * 9.03803375e-05f + low * 0.434204102f;
    w = k * 4.60503907e-06f + w;
    return m_log_ends_f32(a, k * 0.301025391f + (high * 0.434204102f + w));
}

//@ log1p_f32: log_split_f32 log_tail_f32 bits_f32 float_f32 abs_f32
/* 1 + f = (1 + a) 2^-k is formed from a itself, so that no bit of a small a is lost. */
MATH float m_log1p_f32(float a) {
    float k, u = 1.0f + a, m = m_log_split_f32(u, &k);
    float t = 12583039.0f - k; /* 127 - k in the low bits */
    float scale = m_float_f32(m_bits_f32(t) << 23);
    float f = k > 32.0f ? m : a * scale + (scale - 1.0f);
    float y = k * 0.693145752f + ((m_log_tail_f32(f) + k * 1.42860677e-06f) + f);
    y = a < __builtin_inff() ? y : a;
    y = a == -1.0f ? -__builtin_inff() : y;
    y = a < -1.0f ? m_float_f32(0x7fc00000u) : y;
    return m_abs_f32(a) < 1e-8f ? a : y;
}

//@ erfc_f32: bits_f64 float_f64 abs_f32
/* In f64, where t t is exact: exp(-t t) v p(v), v = 1 / (t + 3) by a quotient in f32 and one of
 * Newton's steps. From 10.2 on the result is 0, chosen as in exp_f32. */
MATH float m_erfc_f32(float a) {
    float top = m_abs_f32(a), t = top > 10.2f ? 10.2f : top;
    double x = (double)t, w = x + 3.0, v = (double)(1.0f / (t + 3.0f));
    v = M_FMA_F64(v, M_FMA_F64(-w, v, 1.0), v);
    double p = -14456.901413589258;
    p = M_FMA_F64(p, v, 32340.89454388276);
    p = M_FMA_F64(p, v, -28920.455029136137);
    p = M_FMA_F64(p, v, 13080.658798002274);
    p = M_FMA_F64(p, v, -3656.79376137468);
    p = M_FMA_F64(p, v, 901.2024797444934);
    p = M_FMA_F64(p, v, -43.95935634006126);
    p = M_FMA_F64(p, v, 42.15225037738692);
    p = M_FMA_F64(p, v, 11.904774956937565);
    p = M_FMA_F64(p, v, 4.832062552931926);
    p = M_FMA_F64(p, v, 1.6915721826879098);
    p = M_FMA_F64(p, v, 0.5642017942896106);
    double c = -x * x, u = M_FMA_F64(c, 1.4426950408889634, 6755399441056767.0); /* n + 1023 */
    double r = M_FMA_F64(u - 6755399441056767.0, -0.6931471805599453, c);
    double e = 0.00019775152697254787;
    e = M_FMA_F64(e, r, 0.0013948195036644062);
    e = M_FMA_F64(e, r, 0.008333561191530505);
    e = M_FMA_F64(e, r, 0.041666225251487936);
    e = M_FMA_F64(e, r, 0.16666665125173807);
    e = M_FMA_F64(e, r, 0.5000000104597886);
    e = M_FMA_F64(e, r, 1.0000000002432878);
    e = M_FMA_F64(e, r, 0.9999999999616523);
    double y = e * m_float_f64(m_bits_f64(u) << 52) * (v * p);
    y = top > 10.2f ? 0.0 : y;
    return (float)(a < 0.0f ? 2.0 - y : y);
}

//@ hypot_f32: abs_f32
MATH float m_hypot_f32(float a, float b) {
    float r = (float)__builtin_sqrt((double)a * a + (double)b * b);
    float x = m_abs_f32(a), y = m_abs_f32(b);
    int infinite = (x == __builtin_inff()) | (y == __builtin_inff());
    return infinite ? __builtin_inff() : r;
}

//@ pow_f32: log_f64 exp_f64 pow_ends_f64 abs_f64
MATH float m_pow_f32(float a, float b) {
    double r = m_exp_f64((double)b * m_log_f64(m_abs_f64((double)a)));
    return (float)m_pow_ends_f64((double)a, (double)b, r);
}

//@ fmod_f32: abs_f64 abs_f32 copysign_f32 float_f32
/* Long division in f64, 28 bits of quotient a step: every product and difference is exact. The
 * quotients round to nearest, so r may fall to -d/2 at the last step. */
MATH float m_fmod_f32(float a, float b) {
    const double magic = 6755399441055744.0;
    double r = m_abs_f64((double)a), d = m_abs_f64((double)b), inverse = 1.0 / d;
#define M_FMOD_STEP(up, down) r -= ((r * (inverse * (down)) + magic) - magic) * (d * (up))
    M_FMOD_STEP(0x1p252, 0x1p-252);
    M_FMOD_STEP(0x1p224, 0x1p-224);
    M_FMOD_STEP(0x1p196, 0x1p-196);
    M_FMOD_STEP(0x1p168, 0x1p-168);
    M_FMOD_STEP(0x1p140, 0x1p-140);
    M_FMOD_STEP(0x1p112, 0x1p-112);
    M_FMOD_STEP(0x1p84, 0x1p-84);
    M_FMOD_STEP(0x1p56, 0x1p-56);
    M_FMOD_STEP(0x1p28, 0x1p-28);
    M_FMOD_STEP(1.0, 1.0);
#undef M_FMOD_STEP
    r = r < 0.0 ? r + d : r;
    float y = d == __builtin_inf() ? a : m_copysign_f32((float)r, a);
    float top = m_abs_f32(a);
    int valid = (top < __builtin_inff()) & (d > 0.0);
    return valid ? y : m_float_f32(0x7fc00000u);
}

//@ remainder_f32: fmod_f32 copysign_f32
/* The signs are compared by a product: two conditions joined are a branch to gcc, which then makes
 * no vectors of the loop. */
MATH float m_remainder_f32(float a, float b) {
    float r = m_fmod_f32(a, b);
    return r * m_copysign_f32(1.0f, b) < 0.0f ? r + b : r;
}

//@ floor_divide_f32: fmod_f32 floor_f32 copysign_f32
MATH float m_floor_divide_f32(float a, float b) {
    float r = m_fmod_f32(a, b), q = (a - r) / b;
    q = r * m_copysign_f32(1.0f, b) < 0.0f ? q - 1.0f : q;
    float f = m_floor_f32(q);
    f = q - f > 0.5f ? f + 1.0f : f;
    f = q == 0.0f ? m_copysign_f32(0.0f, a / b) : f;
    return b == 0.0f ? a / b : f;
}
