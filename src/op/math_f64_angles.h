/* f64 scalar functions of angles and their inverses, with those of the hyperbola; behind
 * math_f64.h, whose functions they call.
 *
 * Trigonometry reduces its argument with 119 bits of pi, good to |x| <= 1.6e6 (2^20 pi/2). What
 * lies beyond goes one by one through a function apart, which a loop calls with a vector of them:
 * table lookups in the loop itself would slow all angles down. */

//@ reduce_f64: bits_f64
/* x = n pi/2 + r + *low, |r| <= pi/4 for 0 <= x <= 1.6e6; gives r, n modulo 2^51 in *quadrant.
 * Beyond, m_far_f64 replaces what follows from this. */
MATH double m_reduce_f64(double x, double *low, unsigned long *quadrant) {
    double t = x * 0.6366197723675814 + 6755399441055744.0;
    double n = t - 6755399441055744.0;
    double a = x - n * 1.5707963267341256; /* 33 bits: exact */
    double b = n * 6.077100506303966e-11;  /* the next 33 */
    double s = a - b, v = a - s;
    double e = (a - (s + v)) + (v - b) - n * 2.0222662487959506e-21;
    double r = s + e;
    double l = (s - r) + e;
    *quadrant = m_bits_f64(t);
    *low = l;
    return r;
}

//@ far_f64: bits_f64 float_f64 product_error_f64
/* The same for a finite x >= 2^20: what is left of x 2/pi, the product of two integers, modulo 4
 * (Payne and Hanek). bits: those of 2/pi behind 64 zeros; the window's first makes a multiple of 2
 * of the last bit of x. */
MATH_APART double m_far_f64(double x, double *low, unsigned long *quadrant) {
    static const unsigned long bits[20] = {0x0ul,
                                           0xa2f9836e4e441529ul,
                                           0xfc2757d1f534ddc0ul,
                                           0xdb6295993c439041ul,
                                           0xfe5163abdebbc561ul,
                                           0xb7246e3a424dd2e0ul,
                                           0x6492eea09d1921cul,
                                           0xfe1deb1cb129a73eul,
                                           0xe88235f52ebb4484ul,
                                           0xe99c7026b45f7e41ul,
                                           0x3991d639835339f4ul,
                                           0x9c845f8bbdf9283bul,
                                           0x1ff897ffde05980ful,
                                           0xef2f118b5a0a6d1ful,
                                           0x6d367ecf27cb09b7ul,
                                           0x4f463f669e5fea2dul,
                                           0x7527bac7ebe5f17bul,
                                           0x3d0739f78a5292eaul,
                                           0x6bfb5fb11f8d5d08ul,
                                           0x56033046fc7b6babul};
    unsigned at = (unsigned)(m_bits_f64(x) >> 52) - 1013u, shift = at & 63u;
    const unsigned long *word = bits + (at >> 6);
    unsigned long whole = (m_bits_f64(x) & 0xffffffffffffful) | 0x10000000000000ul, window[3];
    for (int i = 0; i < 3; i++) window[i] = word[i] << shift | word[i + 1] >> 1 >> (63u - shift);
    __extension__ typedef unsigned __int128 Wide;
    Wide product = (Wide)whole * window[1] + (unsigned long)((Wide)whole * window[2] >> 64);
    product += (Wide)(whole * window[0]) << 64;
    Wide turn = product << 2;
    unsigned long negative = (unsigned long)(turn >> 127);
    *quadrant = (unsigned long)(product >> 126) + negative;
    turn = negative ? -turn : turn; /* > 2^64: no x comes closer to a multiple of pi/2 */
    int zeros = __builtin_clzl((unsigned long)(turn >> 64));
    turn <<= zeros;
    double scale = m_float_f64((unsigned long)(970 - zeros) << 52); /* 2^-53 2^-zeros */
    double high = (double)(long)(unsigned long)(turn >> 75) * (negative ? -scale : scale);
    double rest = (double)(long)((unsigned long)(turn >> 22) & 0x1ffffffffffffful);
    rest *= (negative ? -scale : scale) * 0x1p-53;
    double p = high * 1.5707963267948966;
    double e = m_product_error_f64(high, 1.5707963267948966, p) +
               (high * 6.123233995736766e-17 + rest * 1.5707963267948966);
    double r = p + e;
    *low = (p - r) + e;
    return r;
}

//@ sin_poly_f64:
/* sin(r + low) */
MATH double m_sin_poly_f64(double r, double low) {
    double z = r * r;
    double p = -7.389474747308044e-13;
    p = M_FMA_F64(p, z, 1.6054311740171567e-10);
    p = M_FMA_F64(p, z, -2.5052070923849542e-08);
    p = M_FMA_F64(p, z, 2.755731907398549e-06);
    p = M_FMA_F64(p, z, -0.00019841269840962473);
    p = M_FMA_F64(p, z, 0.008333333333333042);
    double v = z * r;
    return r - ((z * (0.5 * low - v * p) - low) - v * -0.16666666666666666);
}

//@ cos_poly_f64:
/* cos(r + low) */
MATH double m_cos_poly_f64(double r, double low) {
    double z = r * r;
    double p = 4.59295852863779e-14;
    p = M_FMA_F64(p, z, -1.1466866501091832e-11);
    p = M_FMA_F64(p, z, 2.0876722038299926e-09);
    p = M_FMA_F64(p, z, -2.7557319060761485e-07);
    p = M_FMA_F64(p, z, 2.4801587301180895e-05);
    p = M_FMA_F64(p, z, -0.0013888888888888389);
    p = M_FMA_F64(p, z, 0.041666666666666664);
    double half = 0.5 * z, w = 1.0 - half;
    return w + (((1.0 - w) - half) + (z * z * p - r * low));
}

//@ sin_turn_f64: sin_poly_f64 cos_poly_f64 bits_f64 float_f64
/* sin(a) for |a| = q pi/2 + r + low */
MATH double m_sin_turn_f64(double a, double r, double low, unsigned long q) {
    double y = q & 1ul ? m_cos_poly_f64(r, low) : m_sin_poly_f64(r, low);
    return m_float_f64(m_bits_f64(y) ^ (q << 62 & 0x8000000000000000ul) ^
                       (m_bits_f64(a) & 0x8000000000000000ul));
}

//@ sin_far_f64: far_f64 sin_turn_f64 abs_f64
MATH_LANES double m_sin_far_f64(double a, double near) {
    double x = m_abs_f64(a), low;
    unsigned long q;
    if (!(x > 1.6e6) || x == __builtin_inf()) return near;
    double r = m_far_f64(x, &low, &q);
    return m_sin_turn_f64(a, r, low, q);
}

//@ sin_f64: reduce_f64 sin_turn_f64 sin_far_f64 abs_f64
MATH double m_sin_f64(double a) {
    double low;
    unsigned long q;
    double r = m_reduce_f64(m_abs_f64(a), &low, &q);
    return m_sin_far_f64(a, m_sin_turn_f64(a, r, low, q));
}

//@ cos_turn_f64: sin_poly_f64 cos_poly_f64 bits_f64 float_f64
/* cos(q pi/2 + r + low) */
MATH double m_cos_turn_f64(double r, double low, unsigned long q) {
    double y = q & 1ul ? m_sin_poly_f64(r, low) : m_cos_poly_f64(r, low);
    return m_float_f64(m_bits_f64(y) ^ ((q + 1ul) << 62 & 0x8000000000000000ul));
}

//@ cos_far_f64: far_f64 cos_turn_f64 abs_f64
MATH_LANES double m_cos_far_f64(double a, double near) {
    double x = m_abs_f64(a), low;
    unsigned long q;
    if (!(x > 1.6e6) || x == __builtin_inf()) return near;
    double r = m_far_f64(x, &low, &q);
    return m_cos_turn_f64(r, low, q);
}

//@ cos_f64: reduce_f64 cos_turn_f64 cos_far_f64 abs_f64
MATH double m_cos_f64(double a) {
    double low;
    unsigned long q;
    double r = m_reduce_f64(m_abs_f64(a), &low, &q);
    return m_cos_far_f64(a, m_cos_turn_f64(r, low, q));
}

//@ tan_turn_f64: sin_poly_f64 cos_poly_f64 bits_f64 float_f64
/* tan(a) for |a| = q pi/2 + r + low */
MATH double m_tan_turn_f64(double a, double r, double low, unsigned long q) {
    double s = m_sin_poly_f64(r, low), c = m_cos_poly_f64(r, low);
    double y = (q & 1ul ? c : s) / (q & 1ul ? s : c);
    return m_float_f64(m_bits_f64(y) ^ (q << 63) ^ (m_bits_f64(a) & 0x8000000000000000ul));
}

//@ tan_far_f64: far_f64 tan_turn_f64 abs_f64
MATH_LANES double m_tan_far_f64(double a, double near) {
    double x = m_abs_f64(a), low;
    unsigned long q;
    if (!(x > 1.6e6) || x == __builtin_inf()) return near;
    double r = m_far_f64(x, &low, &q);
    return m_tan_turn_f64(a, r, low, q);
}

//@ tan_f64: reduce_f64 tan_turn_f64 tan_far_f64 abs_f64
MATH double m_tan_f64(double a) {
    double low;
    unsigned long q;
    double r = m_reduce_f64(m_abs_f64(a), &low, &q);
    return m_tan_far_f64(a, m_tan_turn_f64(a, r, low, q));
}

//@ atan_poly_f64:
/* atan(z) / z - 1 for |z| <= tan(pi/8), u = z z */
MATH double m_atan_poly_f64(double u) {
    double p = 0.014901979106661056;
    p = M_FMA_F64(p, u, -0.033183020968636324);
    p = M_FMA_F64(p, u, 0.044909072257502645);
    p = M_FMA_F64(p, u, -0.052152634858831724);
    p = M_FMA_F64(p, u, 0.05876528712444459);
    p = M_FMA_F64(p, u, -0.06666175855008487);
    p = M_FMA_F64(p, u, 0.07692279273134495);
    p = M_FMA_F64(p, u, -0.09090907988624869);
    p = M_FMA_F64(p, u, 0.11111111083807264);
    p = M_FMA_F64(p, u, -0.14285714285317092);
    p = M_FMA_F64(p, u, 0.19999999999997098);
    p = M_FMA_F64(p, u, -0.33333333333333326);
    return p * u;
}

//@ atan_f64: atan_poly_f64 abs_f64 copysign_f64
MATH double m_atan_f64(double a) {
    double t = m_abs_f64(a);
    int far = t > 2.414213562373095, middle = t > 0.41421356237309503;
    double top = far ? -1.0 : middle ? t - 1.0 : t;
    double bottom = far ? t : middle ? t + 1.0 : 1.0;
    double high = far ? 1.5707963267948966 : middle ? 0.7853981633974483 : 0.0;
    double low = far ? 6.123233995736766e-17 : middle ? 3.061616997868383e-17 : 0.0;
    double z = top / bottom;
    return m_copysign_f64(high + (z + (z * m_atan_poly_f64(z * z) + low)), a);
}

//@ atan2_f64: atan_poly_f64 abs_f64 copysign_f64 bits_f64 float_f64
MATH double m_atan2_f64(double a, double b) {
    double y = m_abs_f64(a), x = m_abs_f64(b);
    int both = (y == __builtin_inf()) & (x == __builtin_inf());
    y = both ? 1.0 : y;
    x = both ? 1.0 : x;
    int steep = y > x;
    double small = steep ? x : y, large = steep ? y : x;
    double scale = large > 1e300 ? 1e-30 : 1.0; /* small + large stays finite */
    small *= scale;
    large *= scale;
    int middle = small > 0.41421356237309503 * large;
    double top = middle ? small - large : small, bottom = middle ? small + large : large;
    double z = top / (bottom == 0.0 ? 1.0 : bottom);
    double angle = (middle ? 0.7853981633974483 : 0.0) +
                   (z + (z * m_atan_poly_f64(z * z) + (middle ? 3.061616997868383e-17 : 0.0)));
    angle = steep ? 1.5707963267948966 - (angle - 6.123233995736766e-17) : angle;
    int left = (long)m_bits_f64(b) < 0;
    angle = left ? 3.141592653589793 - (angle - 1.2246467991473532e-16) : angle;
    return ((a != a) | (b != b)) ? m_float_f64(0x7ff8000000000000ul) : m_copysign_f64(angle, a);
}

//@ asin_poly_f64:
/* asin(s) / s - 1 for s <= 1/2, u = s s */
MATH double m_asin_poly_f64(double u) {
    double p = 0.032626435458112994;
    p = M_FMA_F64(p, u, -0.020995386550112013);
    p = M_FMA_F64(p, u, 0.021704706302643675);
    p = M_FMA_F64(p, u, 0.003707603392730517);
    p = M_FMA_F64(p, u, 0.010779915354324716);
    p = M_FMA_F64(p, u, 0.011398976913161859);
    p = M_FMA_F64(p, u, 0.013980811976118274);
    p = M_FMA_F64(p, u, 0.017351612798179938);
    p = M_FMA_F64(p, u, 0.022372214938903203);
    p = M_FMA_F64(p, u, 0.030381942709762765);
    p = M_FMA_F64(p, u, 0.044642857174562865);
    p = M_FMA_F64(p, u, 0.07499999999970865);
    p = M_FMA_F64(p, u, 0.1666666666666676);
    return p * u;
}

//@ asin_f64: asin_poly_f64 bits_f64 float_f64 abs_f64 copysign_f64
/* Above 1/2: pi/2 - 2 asin(sqrt((1 - t)/2)), the root as w + c with w short, so that 2 w subtracts
 * exactly. */
MATH double m_asin_f64(double a) {
    double t = m_abs_f64(a);
    double u = t > 0.5 ? (1.0 - t) * 0.5 : t * t;
    double root = __builtin_sqrt(u);
    double w = m_float_f64(m_bits_f64(root) & 0xffffffff00000000ul);
    double c = (u - w * w) / (root + w);
    c = u == 0.0 ? 0.0 : c;
    double p = m_asin_poly_f64(u);
    double steep = 0.7853981633974483 - ((2.0 * root * p - (6.123233995736766e-17 - 2.0 * c)) -
                                         (0.7853981633974483 - 2.0 * w));
    return m_copysign_f64(t > 0.5 ? steep : t + t * p, a);
}

//@ acos_f64: asin_poly_f64 abs_f64
MATH double m_acos_f64(double a) {
    double t = m_abs_f64(a);
    double u = t > 0.5 ? (1.0 - t) * 0.5 : t * t;
    double root = __builtin_sqrt(u), p = m_asin_poly_f64(u);
    double flat = 1.5707963267948966 - (a - (6.123233995736766e-17 - a * p));
    double right = 2.0 * (root + root * p);
    double left = 3.141592653589793 - 2.0 * (root + (root * p - 6.123233995736766e-17));
    return t > 0.5 ? (a > 0.0 ? right : left) : flat;
}

//@ asinh_f64: log1p_f64 abs_f64 copysign_f64
MATH double m_asinh_f64(double a) {
    double t = m_abs_f64(a);
    int large = t > 1e150;
    double u = large ? t : t + t * t / (1.0 + __builtin_sqrt(1.0 + t * t));
    double y = m_log1p_f64(u) + (large ? 0.6931471805599453 : 0.0);
    return m_copysign_f64(y, a);
}

//@ acosh_f64: log1p_f64 float_f64
MATH double m_acosh_f64(double a) {
    double t = a - 1.0;
    int large = a > 1e150;
    double u = large ? a : t + __builtin_sqrt(2.0 * t + t * t);
    double y = m_log1p_f64(u) + (large ? 0.6931471805599453 : 0.0);
    return a < 1.0 ? m_float_f64(0x7ff8000000000000ul) : y;
}

//@ atanh_f64: log1p_f64 abs_f64 copysign_f64
MATH double m_atanh_f64(double a) {
    double t = m_abs_f64(a);
    return m_copysign_f64(0.5 * m_log1p_f64(2.0 * t / (1.0 - t)), a);
}
