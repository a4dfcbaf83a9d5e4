/* f64 scalar functions: m_<name>_f64 for the M(name) of ops.def. math_int.h states the rules of
 * these texts.
 *
 * Accuracy, measured by tests/unit/test_math.c: <= 2 ulp (erfc 3.5; tan, acosh 2.1); exp, log, sin,
 * cos, asin, tanh under 1.2.
 * fmod, remainder and floor_divide are exact for all quotients by a loop, which is not vectorized.
 * math_f64_angles.h goes on.
 *
 * Polynomials: tools/minimax.py. Reductions and correction terms follow the ideas of fdlibm (Sun).
 * Where a product's rounding error is needed, m_product_error_f64 gives it with or without FMA, so
 * that the compiler's contraction of a * b + c cannot hurt. */

//@ bits_f64:
MATH unsigned long m_bits_f64(double x) {
    unsigned long bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

//@ float_f64:
MATH double m_float_f64(unsigned long bits) {
    double x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

//@ abs_f64: bits_f64 float_f64
MATH double m_abs_f64(double a) { return m_float_f64(m_bits_f64(a) & 0x7ffffffffffffffful); }

//@ copysign_f64: bits_f64 float_f64
MATH double m_copysign_f64(double a, double b) {
    return m_float_f64((m_bits_f64(a) & 0x7ffffffffffffffful) |
                       (m_bits_f64(b) & 0x8000000000000000ul));
}

//@ maximum_f64: bits_f64 float_f64
/* -0 lies below 0, and NaN wins: the result is the same in every order of the operands, so engines,
 * lanes and threads agree. Both selects are one instruction; they differ for two zeros alone. */
MATH double m_maximum_f64(double a, double b) {
    double first = a > b ? a : b, second = b > a ? b : a;
    double most = m_float_f64(m_bits_f64(first) & m_bits_f64(second));
    return __builtin_isunordered(a, b) ? a + b : most;
}

//@ minimum_f64: bits_f64 float_f64
MATH double m_minimum_f64(double a, double b) {
    double first = a < b ? a : b, second = b < a ? b : a;
    double least = m_float_f64(m_bits_f64(first) | m_bits_f64(second));
    return __builtin_isunordered(a, b) ? a + b : least;
}

//@ sign_f64:
/* sign(NaN) is 0, as in PyTorch. */
MATH double m_sign_f64(double a) { return (a > 0.0 ? 1.0 : 0.0) - (a < 0.0 ? 1.0 : 0.0); }

//@ sqrt_f64:
MATH double m_sqrt_f64(double a) { return __builtin_sqrt(a); }

//@ round_f64: abs_f64 copysign_f64
/* Half to even. Without SSE4.1: 2^52 pushes the fraction out. */
MATH double m_round_f64(double a) {
#ifdef __SSE4_1__
    return __builtin_rint(a);
#else
    double t = m_abs_f64(a), r = (t + 4503599627370496.0) - 4503599627370496.0;
    return t < 4503599627370496.0 ? m_copysign_f64(r, a) : a;
#endif
}

//@ floor_f64: round_f64
MATH double m_floor_f64(double a) {
#ifdef __SSE4_1__
    return __builtin_floor(a);
#else
    double r = m_round_f64(a);
    return m_copysign_f64(r - (r > a ? 1.0 : 0.0), a);
#endif
}

//@ ceil_f64: round_f64
MATH double m_ceil_f64(double a) {
#ifdef __SSE4_1__
    return __builtin_ceil(a);
#else
    double r = m_round_f64(a);
    return m_copysign_f64(r + (r < a ? 1.0 : 0.0), a);
#endif
}

//@ trunc_f64: round_f64
MATH double m_trunc_f64(double a) {
#ifdef __SSE4_1__
    return __builtin_trunc(a);
#else
    double t = m_abs_f64(a), r = m_round_f64(t);
    return m_copysign_f64(r - (r > t ? 1.0 : 0.0), a);
#endif
}

//@ to_i64_f64:
/* Truncates; NaN gives 0, what does not fit the lowest integer. Narrower integers are the low bits
 * of this. */
MATH long m_to_i64_f64(double a) {
    long i = ((a >= -9223372036854775808.0) & (a < 9223372036854775808.0))
                 ? (long)a
                 : -9223372036854775807L - 1L;
    return a != a ? 0 : i;
}

//@ to_i32_f64: to_i64_f64
MATH int m_to_i32_f64(double a) { return (int)(unsigned)(unsigned long)m_to_i64_f64(a); }

//@ product_error_f64: bits_f64 float_f64
/* a * b - p for p = a * b rounded, exactly. */
MATH double m_product_error_f64(double a, double b, double p) {
#ifdef __FMA__
    return __builtin_fma(a, b, -p);
#else
    double ah = m_float_f64(m_bits_f64(a) & 0xfffffffff8000000ul), al = a - ah;
    double bh = m_float_f64(m_bits_f64(b) & 0xfffffffff8000000ul), bl = b - bh;
    return ((ah * bh - p) + ah * bl + al * bh) + al * bl;
#endif
}

//@ exp_tail_f64:
/* exp(r) - 1 on |r| <= ln(2)/2. */
MATH double m_exp_tail_f64(double r) {
    double p = 2.087534025894101e-09;
    p = M_FMA_F64(p, r, 2.510897893812974e-08);
    p = M_FMA_F64(p, r, 2.755740260336835e-07);
    p = M_FMA_F64(p, r, 2.7557244373969617e-06);
    p = M_FMA_F64(p, r, 2.4801587172592427e-05);
    p = M_FMA_F64(p, r, 0.00019841269885966222);
    p = M_FMA_F64(p, r, 0.001388888888896234);
    p = M_FMA_F64(p, r, 0.008333333333321691);
    p = M_FMA_F64(p, r, 0.04166666666666651);
    p = M_FMA_F64(p, r, 0.16666666666666677);
    p = M_FMA_F64(p, r, 0.5);
    return M_FMA_F64(r * r, p, r);
}

//@ exp_sum_f64: bits_f64 float_f64 exp_tail_f64
/* exp(x + low), low small beside x. The low bits of t hold n + 2046; 2^n is the product of two
 * powers, so that results round once into the denormals and overflow to infinity. What is 0 is
 * chosen, here and below: products that underflow are slow (m_exp_f32). */
MATH double m_exp_sum_f64(double x, double low) {
    double c = x < -746.0 ? 0.0 : x;
    c = c > 746.0 ? 746.0 : c;
    double t = M_FMA_F64(c, 1.4426950408889634, 6755399441057790.0);
    double n = t - 6755399441057790.0;
    double r = M_FMA_F64(n, -1.9082149292705877e-10, M_FMA_F64(n, -0.6931471803691238, c)) + low;
    unsigned long u = m_bits_f64(t) & 0xffful, h = u >> 1;
    double y = (1.0 + m_exp_tail_f64(r)) * m_float_f64(h << 52) * m_float_f64((u - h) << 52);
    return x < -746.0 ? 0.0 : y;
}

//@ exp_f64: exp_sum_f64
MATH double m_exp_f64(double a) { return m_exp_sum_f64(a, 0.0); }

//@ muladd_f64:
MATH double m_muladd_f64(double a, double b, double c) { return M_FMA_F64(a, b, c); }

//@ exp_nonpositive_f64: exp_f64
MATH double m_exp_nonpositive_f64(double a) { return m_exp_f64(a); }

//@ sigmoid_f64: exp_f64 abs_f64
/* Below 0 from exp(a), which is denormal where exp(-a) would be infinite. */
MATH double m_sigmoid_f64(double a) {
    double e = m_exp_f64(-m_abs_f64(a));
    return (a < 0.0 ? e : 1.0) / (1.0 + e);
}

//@ exp2_f64: bits_f64 float_f64 exp_tail_f64
MATH double m_exp2_f64(double a) {
    double c = a < -1076.0 ? 0.0 : a;
    c = c > 1025.0 ? 1025.0 : c;
    double t = c + 6755399441057790.0;
    double r = (c - (t - 6755399441057790.0)) * 0.6931471805599453;
    unsigned long u = m_bits_f64(t) & 0xffful, h = u >> 1;
    double y = (1.0 + m_exp_tail_f64(r)) * m_float_f64(h << 52) * m_float_f64((u - h) << 52);
    return a < -1076.0 ? 0.0 : y;
}

//@ expm1_quarter_f64: bits_f64 float_f64 exp_tail_f64
/* (exp(a) - 1) / 4 for -40 <= a <= 710.6: a quarter, so that sinh and cosh do not overflow early.
 * */
MATH double m_expm1_quarter_f64(double a) {
    double t = M_FMA_F64(a, 1.4426950408889634, 6755399441056765.0); /* n + 1021 in the low bits */
    double n = t - 6755399441056765.0;
    double r = M_FMA_F64(n, -1.9082149292705877e-10, M_FMA_F64(n, -0.6931471803691238, a));
    double scale = m_float_f64(m_bits_f64(t) << 52);
    return M_FMA_F64(scale, m_exp_tail_f64(r), scale - 0.25);
}

//@ expm1_f64: expm1_quarter_f64 abs_f64
MATH double m_expm1_f64(double a) {
    double c = a < -40.0 ? -40.0 : a;
    c = c > 710.0 ? 710.0 : c;
    double y = 4.0 * m_expm1_quarter_f64(c);
    return m_abs_f64(a) < 1e-17 ? a : y;
}

//@ sinh_f64: expm1_quarter_f64 abs_f64 copysign_f64
MATH double m_sinh_f64(double a) {
    double t = m_abs_f64(a), z = t * t;
    double p = 7.776588183401917e-13;
    p = M_FMA_F64(p, z, 1.60566594747868e-10);
    p = M_FMA_F64(p, z, 2.5052130995871317e-08);
    p = M_FMA_F64(p, z, 2.7557319106767997e-06);
    p = M_FMA_F64(p, z, 0.00019841269841593394);
    p = M_FMA_F64(p, z, 0.008333333333332912);
    p = M_FMA_F64(p, z, 0.16666666666666669);
    double small = M_FMA_F64(t, z * p, t);
    double c = t > 710.6 ? 710.6 : t;
    double q = m_expm1_quarter_f64(c);
    double large = 2.0 * (q + q / (4.0 * q + 1.0));
    return m_copysign_f64(t < 1.0 ? small : large, a);
}

//@ cosh_f64: expm1_quarter_f64 abs_f64
MATH double m_cosh_f64(double a) {
    double t = m_abs_f64(a);
    double c = t > 710.6 ? 710.6 : t;
    double e = m_expm1_quarter_f64(c) + 0.25;
    return 2.0 * e + 0.125 / e;
}

//@ tanh_f64: bits_f64 float_f64 exp_tail_f64 abs_f64 copysign_f64
/* 1 - 2 / (exp(2t) + 1), below 0.55 a polynomial in t t. */
MATH double m_tanh_f64(double a) {
    double t = m_abs_f64(a), z = t * t;
    double p = -1.9495027757801844e-05;
    p = M_FMA_F64(p, z, 8.331464091955253e-05);
    p = M_FMA_F64(p, z, -0.00023337882720022714);
    p = M_FMA_F64(p, z, 0.0005884428988924197);
    p = M_FMA_F64(p, z, -0.0014555423534109004);
    p = M_FMA_F64(p, z, 0.0035920919403066055);
    p = M_FMA_F64(p, z, -0.0088632325914672);
    p = M_FMA_F64(p, z, 0.021869488385202952);
    p = M_FMA_F64(p, z, -0.053968253963737035);
    p = M_FMA_F64(p, z, 0.1333333333332658);
    p = M_FMA_F64(p, z, -0.333333333333333);
    double small = M_FMA_F64(t, z * p, t);
    double c = t + t > 40.0 ? 40.0 : t + t;
    double u = M_FMA_F64(c, 1.4426950408889634, 6755399441056767.0); /* n + 1023 in the low bits */
    double n = u - 6755399441056767.0;
    double r = M_FMA_F64(n, -1.9082149292705877e-10, M_FMA_F64(n, -0.6931471803691238, c));
    double scale = m_float_f64(m_bits_f64(u) << 52);
    double e = M_FMA_F64(scale, m_exp_tail_f64(r), scale);
    double large = 1.0 - 2.0 / (e + 1.0);
    return m_copysign_f64(t < 0.55 ? small : large, a);
}

//@ log_series_f64:
/* s (2z/3 + ...) of log(1 + f) = f - s (f - R), s = f / (2 + f), z = s s: gives R. */
MATH double m_log_series_f64(double z) {
    double p = 0.13235810792571778;
    p = M_FMA_F64(p, z, 0.1325204197650433);
    p = M_FMA_F64(p, z, 0.15386993152179737);
    p = M_FMA_F64(p, z, 0.18181778268436424);
    p = M_FMA_F64(p, z, 0.22222222607875675);
    p = M_FMA_F64(p, z, 0.28571428569406626);
    p = M_FMA_F64(p, z, 0.4000000000000493);
    p = M_FMA_F64(p, z, 0.6666666666666666);
    return p * z;
}

//@ log_split_f64: bits_f64 float_f64
/* x = (1 + f) 2^k with 1 + f in [sqrt(1/2), sqrt(2)); denormals are scaled first. */
MATH double m_log_split_f64(double x, double *k) {
    int tiny = x < 2.2250738585072014e-308;
    double y = tiny ? x * 18014398509481984.0 : x;
    unsigned long u = m_bits_f64(y) + (0x3ff0000000000000ul - 0x3fe6a09e667f3bcdul);
    *k = (m_float_f64(0x4330000000000000ul | u >> 52) - 4503599627371519.0) - (tiny ? 54.0 : 0.0);
    return m_float_f64((u & 0xffffffffffffful) + 0x3fe6a09e667f3bcdul) - 1.0;
}

//@ log_ends_f64: float_f64
/* The logarithm y of x, corrected for what is not a positive finite number. */
MATH double m_log_ends_f64(double x, double y) {
    double r = x < __builtin_inf() ? y : x;
    r = x == 0.0 ? -__builtin_inf() : r;
    return x < 0.0 ? m_float_f64(0x7ff8000000000000ul) : r;
}

//@ log_sum_f64: log_series_f64
MATH double m_log_sum_f64(double f, double k) {
    double s = f / (2.0 + f), half = 0.5 * f * f;
    double R = m_log_series_f64(s * s);
    return k * 0.6931471803691238 - ((half - (s * (half + R) + k * 1.9082149292705877e-10)) - f);
}

//@ log_f64: log_split_f64 log_sum_f64 log_ends_f64
MATH double m_log_f64(double a) {
    double k, f = m_log_split_f64(a, &k);
    return m_log_ends_f64(a, m_log_sum_f64(f, k));
}

//@ log_high_f64: log_series_f64 bits_f64 float_f64
/* log(1 + f) as high + *low, high with 21 bits: its product with a 21-bit constant is exact. */
MATH double m_log_high_f64(double f, double *low) {
    double s = f / (2.0 + f), half = 0.5 * f * f;
    double R = m_log_series_f64(s * s);
    double high = m_float_f64(m_bits_f64(f - half) & 0xffffffff00000000ul);
    *low = ((f - high) - half) + s * (half + R);
    return high;
}

//@ log2_f64: log_split_f64 log_high_f64 log_ends_f64
MATH double m_log2_f64(double a) {
    double k, low, f = m_log_split_f64(a, &k), high = m_log_high_f64(f, &low);
    double v = high * 1.4426946640014648;
    double w = (low + high) * 3.768874985636099e-07 + low * 1.4426946640014648;
    double sum = k + v;
    return m_log_ends_f64(a, sum + (w + ((k - sum) + v)));
}

//@ log10_f64: log_split_f64 log_high_f64 log_ends_f64
MATH double m_log10_f64(double a) {
    double k, low, f = m_log_split_f64(a, &k), high = m_log_high_f64(f, &low);
    double v = high * 0.4342944622039795, y = k * 0.30102999566361177;
    double w = (low + high) * 1.9699272335463627e-08 + low * 0.4342944622039795;
    w = k * 3.694239077158931e-13 + w;
    double sum = y + v;
    return m_log_ends_f64(a, sum + (w + ((y - sum) + v)));
}

//@ log1p_f64: log_split_f64 log_sum_f64 bits_f64 float_f64 abs_f64
/* 1 + f = (1 + a) 2^-k is formed from a itself, so that no bit of a small a is lost. */
MATH double m_log1p_f64(double a) {
    double k, u = 1.0 + a, m = m_log_split_f64(u, &k);
    double t = 4503599627371519.0 - k; /* 1023 - k in the low bits */
    double scale = m_float_f64(m_bits_f64(t) << 52);
    double f = k > 64.0 ? m : a * scale + (scale - 1.0);
    double y = m_log_sum_f64(f, k);
    y = a < __builtin_inf() ? y : a;
    y = a == -1.0 ? -__builtin_inf() : y;
    y = a < -1.0 ? m_float_f64(0x7ff8000000000000ul) : y;
    return m_abs_f64(a) < 1e-17 ? a : y;
}

//@ erf_poly_f64:
/* erf(x) / x - 1 for |x| <= 1, u = x x */
MATH double m_erf_poly_f64(double u) {
    double p = -7.606532308401768e-10;
    p = M_FMA_F64(p, u, 1.361609011026382e-08);
    p = M_FMA_F64(p, u, -1.618386824219839e-07);
    p = M_FMA_F64(p, u, 1.6444136860574214e-06);
    p = M_FMA_F64(p, u, -1.4924464716737722e-05);
    p = M_FMA_F64(p, u, 0.00012055280458121724);
    p = M_FMA_F64(p, u, -0.0008548325484023049);
    p = M_FMA_F64(p, u, 0.005223977596721661);
    p = M_FMA_F64(p, u, -0.026866170641958096);
    p = M_FMA_F64(p, u, 0.11283791670936948);
    p = M_FMA_F64(p, u, -0.37612638903183343);
    return M_FMA_F64(p, u, 0.12837916709551256);
}

//@ erfc_large_f64: exp_sum_f64 bits_f64 float_f64
/* erfc(t) for t >= 1/2: exp(-t t) / (1 + 2 t) times a polynomial in (t - 2.5) / (t + 2.5); t t in
 * two parts. */
MATH double m_erfc_large_f64(double x) {
    double t = x > 28.0 ? 28.0 : x;
    double v = (t - 2.5) / (t + 2.5);
    double p = 2.225133449036151e-08;
    p = M_FMA_F64(p, v, -1.0474016015135222e-07);
    p = M_FMA_F64(p, v, -8.493480925818293e-08);
    p = M_FMA_F64(p, v, 5.400053793634772e-07);
    p = M_FMA_F64(p, v, 6.367603582952992e-07);
    p = M_FMA_F64(p, v, -1.608867404693854e-06);
    p = M_FMA_F64(p, v, -4.277540503260904e-06);
    p = M_FMA_F64(p, v, 2.626359368307821e-06);
    p = M_FMA_F64(p, v, 2.2720021061294547e-05);
    p = M_FMA_F64(p, v, 6.2593740733164846e-06);
    p = M_FMA_F64(p, v, -0.00011352684304858486);
    p = M_FMA_F64(p, v, -8.847775476906006e-05);
    p = M_FMA_F64(p, v, 0.0006321249680733398);
    p = M_FMA_F64(p, v, 0.000491865616790233);
    p = M_FMA_F64(p, v, -0.004382078393930847);
    p = M_FMA_F64(p, v, 0.0009318928320041842);
    p = M_FMA_F64(p, v, 0.03276089327122596);
    p = M_FMA_F64(p, v, -0.10296705603912319);
    p = M_FMA_F64(p, v, 0.157629919023161);
    p = M_FMA_F64(p, v, -0.09902453957359385);
    p = M_FMA_F64(p, v, -0.12235676308240391);
    p = M_FMA_F64(p, v, 1.2648381843668615);
    double high = m_float_f64(m_bits_f64(t) & 0xfffffffff8000000ul);
    return m_exp_sum_f64(-high * high, (high - t) * (high + t)) * (p / (1.0 + 2.0 * t));
}

//@ erf_f64: erf_poly_f64 erfc_large_f64 abs_f64 copysign_f64
MATH double m_erf_f64(double a) {
    double t = m_abs_f64(a);
    double flat = a + a * m_erf_poly_f64(a * a);
    return t < 1.0 ? flat : m_copysign_f64(1.0 - m_erfc_large_f64(t), a);
}

//@ erfc_f64: erf_poly_f64 erfc_large_f64 abs_f64
MATH double m_erfc_f64(double a) {
    double t = m_abs_f64(a), p = a * m_erf_poly_f64(a * a);
    double flat = a > 0.25 ? 0.5 - ((a - 0.5) + p) : 1.0 - (a + p);
    double large = m_erfc_large_f64(t);
    return t < 0.5 ? flat : a < 0.0 ? 2.0 - large : large;
}

//@ gelu_value_f64: erfc_f64
MATH double m_gelu_value_f64(double a) { return 0.5 * a * m_erfc_f64(a * -0.70710678118654752); }

//@ clamp_f64:
/* As where(b > high, high, b) of b = where(a < low, low, a): a zero of either sign is within
 * [0, high], so it stays, and a bound of NaN is none. */
MATH double m_clamp_f64(double a, double low, double high) {
    double b = a < low ? low : a;
    return b > high ? high : b;
}

//@ hypot_f64: abs_f64
MATH double m_hypot_f64(double a, double b) {
    double x = m_abs_f64(a), y = m_abs_f64(b);
    double large = x > y ? x : y;
    double scale = large > 1e150 ? 0x1p-600 : large < 1e-140 ? 0x1p600 : 1.0;
    double back = large > 1e150 ? 0x1p600 : large < 1e-140 ? 0x1p-600 : 1.0;
    double u = x * scale, v = y * scale;
    double r = __builtin_sqrt(u * u + v * v) * back;
    return ((x == __builtin_inf()) | (y == __builtin_inf())) ? __builtin_inf() : r;
}

//@ log_double_f64: log_split_f64 product_error_f64
/* log(x) as high + *low to about 2^-65 relative, x positive and finite: 2 s + (2/3) s^3 in
 * double-double, the rest of the series in f64. */
MATH double m_log_double_f64(double x, double *low) {
    double k, f = m_log_split_f64(x, &k);
    double bottom = 2.0 + f, s = f / bottom;
    double p = s * bottom;
    double rest = ((2.0 - bottom) + f); /* what rounding 2 + f lost */
    double sl = (((f - p) - m_product_error_f64(s, bottom, p)) - s * rest) / bottom;
    double z = s * s, zl = m_product_error_f64(s, s, z) + 2.0 * s * sl;
    double tail = 0.13197227128085756;
    tail = M_FMA_F64(tail, z, 0.1325672757875494);
    tail = M_FMA_F64(tail, z, 0.15386760893370327);
    tail = M_FMA_F64(tail, z, 0.18181784297168572);
    tail = M_FMA_F64(tail, z, 0.22222222520627602);
    tail = M_FMA_F64(tail, z, 0.2857142857009623);
    tail = M_FMA_F64(tail, z, 0.4000000000000226);
    double c = z * 0.6666666666666666; /* (2/3) z as c + cl */
    double cl = m_product_error_f64(z, 0.6666666666666666, c) + z * 3.700743415417188e-17 +
                zl * 0.6666666666666666 + z * z * tail;
    double d = s * c, dl = m_product_error_f64(s, c, d) + s * cl + sl * c;
    double nh = k * 0.6931471803691238, s2 = 2.0 * s;
    double h = nh + s2; /* |nh| >= |s2| or nh = 0 */
    double hl = (nh - h) + s2;
    double g = h + d, gl = (h - g) + d;
    double e = ((gl + hl) + (2.0 * sl + dl)) + k * 1.9082149292705877e-10;
    double high = g + e;
    *low = (g - high) + e;
    return high;
}

//@ pow_ends_f64: abs_f64 trunc_f64 float_f64 bits_f64
/* x^y from r = |x|^y, corrected for zeros, infinities, NaN and the signs of negative bases. */
MATH double m_pow_ends_f64(double x, double y, double r) {
    const double inf = __builtin_inf(), nan = m_float_f64(0x7ff8000000000000ul);
    double t = m_abs_f64(x);
    r = t == 0.0 ? (y < 0.0 ? inf : 0.0) : r;
    r = t == inf ? (y < 0.0 ? 0.0 : inf) : r;
    r = t == 1.0 ? 1.0 : r;
    int whole = m_trunc_f64(y) == y, odd = whole & (m_trunc_f64(0.5 * y) != 0.5 * y);
    r = (odd & ((long)m_bits_f64(x) < 0)) ? -r : r;
    r = ((x < 0.0) & !whole & (t < inf)) ? nan : r;
    r = ((x != x) | (y != y)) ? nan : r;
    return ((y == 0.0) | (x == 1.0)) ? 1.0 : r;
}

//@ pow_f64: log_double_f64 exp_sum_f64 pow_ends_f64 product_error_f64 abs_f64
MATH double m_pow_f64(double a, double b) {
    double low, high = m_log_double_f64(m_abs_f64(a), &low);
    double p = b * high;
    double pl = m_product_error_f64(b, high, p) + b * low;
    pl = m_abs_f64(p) < 800.0 ? pl : 0.0;
    return m_pow_ends_f64(a, b, m_exp_sum_f64(p, pl));
}

//@ fmod_f64: abs_f64 copysign_f64 float_f64
/* Long division: exact whatever the quotient. */
MATH double m_fmod_f64(double a, double b) {
    double r = m_abs_f64(a), d = m_abs_f64(b);
    int valid = (r < __builtin_inf()) & (d > 0.0);
    r = valid ? r : 0.0;
    d = valid ? d : 1.0;
    double t = d;
    while (t <= r * 0.5) t += t;
    while (r >= d) {
        r -= r >= t ? t : 0.0;
        t *= 0.5;
    }
    return valid ? m_copysign_f64(r, a) : m_float_f64(0x7ff8000000000000ul);
}

//@ remainder_f64: fmod_f64 bits_f64
MATH double m_remainder_f64(double a, double b) {
    double r = m_fmod_f64(a, b);
    return ((r != 0.0) & ((long)(m_bits_f64(r) ^ m_bits_f64(b)) < 0)) ? r + b : r;
}

//@ floor_divide_f64: fmod_f64 bits_f64 floor_f64 copysign_f64
MATH double m_floor_divide_f64(double a, double b) {
    double r = m_fmod_f64(a, b), q = (a - r) / b;
    q = ((r != 0.0) & ((long)(m_bits_f64(r) ^ m_bits_f64(b)) < 0)) ? q - 1.0 : q;
    double f = m_floor_f64(q);
    f = q - f > 0.5 ? f + 1.0 : f;
    f = q == 0.0 ? m_copysign_f64(0.0, a / b) : f;
    return b == 0.0 ? a / b : f;
}
