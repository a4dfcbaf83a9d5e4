/* f32 scalar functions of angles and their inverses, with the inverses of those of the hyperbola;
 * behind math_f32.h, whose functions they call.
 *
 * sin, cos and tan reduce every argument to its full precision, in f64. atan2, asinh, acosh and
 * atanh compute in f64. */

//@ turn_f32: bits_f64
/* x = (n + r) pi/2, |r| <= 1/2 for every x >= 0 of 24 bits; gives r, n modulo 2^51 in *quadrant.
 * From 2^51 on the first bits of 2/pi only make multiples of 4: one of four windows of 29, 29 and
 * 53 bits of it stays, whose first two products are exact, with or without FMA. */
MATH double m_turn_f32(double x, unsigned long *quadrant) {
    int second = x >= 0x1p51, third = x >= 0x1p77, fourth = x >= 0x1p103;
    double high = second ? 0x1.727220ap-27 : 0x1.45f306dp-1;
    double middle = second ? 0x1.29fc275p-56 : 0x1.9391054p-30;
    double low = second ? 0x1.f47d4d377036ep-86 : 0x1.4fe13abe8fa9ap-59;
    high = third ? 0x1.4a7f09cp-54 : high;
    middle = third ? 0x1.5f47d4dp-82 : middle;
    low = third ? 0x1.bb81b6c52b328p-113 : low;
    high = fourth ? 0x1.abe8fa9p-79 : high;
    middle = fourth ? 0x1.4ddc0dbp-108 : middle;
    low = fourth ? 0x1.8a5664f10e41p-138 : low;
    double p = x * high;
    double t = p + 6755399441055744.0;
    double s = M_FMA_F64(x, middle, p - (t - 6755399441055744.0));
    double u = s + 6755399441055744.0;
    *quadrant = m_bits_f64(t) + m_bits_f64(u);
    return M_FMA_F64(x, low, s - (u - 6755399441055744.0));
}

//@ reduce_f32: turn_f32
/* x = n pi/2 + r, |r| <= pi/4 for x >= 0; gives r, the low bits of n in *quadrant. */
MATH float m_reduce_f32(float x, unsigned *quadrant) {
    unsigned long n;
    double r = m_turn_f32((double)x, &n);
    *quadrant = (unsigned)n;
    return (float)(r * 1.5707963267948966);
}

//@ sin_poly_f32:
MATH float m_sin_poly_f32(float r) {
    float z = r * r;
    float p = -0.000195178975f;
    p = M_FMA_F32(p, z, 0.00833218731f);
    p = M_FMA_F32(p, z, -0.166666552f);
    return M_FMA_F32(r, z * p, r);
}

//@ cos_poly_f32:
MATH float m_cos_poly_f32(float r) {
    float z = r * r;
    float p = 2.44323273e-05f;
    p = M_FMA_F32(p, z, -0.00138873095f);
    p = M_FMA_F32(p, z, 0.0416666456f);
    p = M_FMA_F32(p, z, -0.5f);
    return M_FMA_F32(p, z, 1.0f);
}

//@ sin_f32: reduce_f32 sin_poly_f32 cos_poly_f32 bits_f32 float_f32 abs_f32
MATH float m_sin_f32(float a) {
    unsigned q;
    float r = m_reduce_f32(m_abs_f32(a), &q);
    float y = q & 1u ? m_cos_poly_f32(r) : m_sin_poly_f32(r);
    return m_float_f32(m_bits_f32(y) ^ (q << 30 & 0x80000000u) ^ (m_bits_f32(a) & 0x80000000u));
}

//@ cos_f32: reduce_f32 sin_poly_f32 cos_poly_f32 bits_f32 float_f32 abs_f32
MATH float m_cos_f32(float a) {
    unsigned q;
    float r = m_reduce_f32(m_abs_f32(a), &q);
    float y = q & 1u ? m_sin_poly_f32(r) : m_cos_poly_f32(r);
    return m_float_f32(m_bits_f32(y) ^ ((q + 1u) << 30 & 0x80000000u));
}

//@ tan_f32: turn_f32 bits_f32 float_f32 abs_f32
/* In f64: three roundings to f32 would leave 3 ulp. */
MATH float m_tan_f32(float a) {
    unsigned long q;
    double r = m_turn_f32((double)m_abs_f32(a), &q) * 1.5707963267948966;
    double z = r * r, s = -0.000195178975, c = 2.44323273e-05;
    s = M_FMA_F64(s, z, 0.00833218731);
    s = M_FMA_F64(s, z, -0.166666552);
    s = r + r * (z * s);
    c = M_FMA_F64(c, z, -0.00138873095);
    c = M_FMA_F64(c, z, 0.0416666456);
    c = M_FMA_F64(c, z, -0.5);
    c = M_FMA_F64(c, z, 1.0);
    float y = (float)((q & 1ul ? c : s) / (q & 1ul ? s : c));
    return m_float_f32(m_bits_f32(y) ^ ((unsigned)q << 31) ^ (m_bits_f32(a) & 0x80000000u));
}

//@ atan_f32: abs_f32 copysign_f32
MATH float m_atan_f32(float a) {
    float t = m_abs_f32(a);
    int far = t > 2.41421366f, middle = t > 0.414213568f;
    float top = far ? -1.0f : middle ? t - 1.0f : t;
    float bottom = far ? t : middle ? t + 1.0f : 1.0f;
    float high = far ? 1.57079637f : middle ? 0.785398185f : 0.0f;
    float low = far ? -4.37113883e-08f : middle ? -2.18556941e-08f : 0.0f;
    float z = top / bottom, u = z * z;
    float p = -0.0609005243f;
    p = M_FMA_F32(p, u, 0.105991684f);
    p = M_FMA_F32(p, u, -0.14244391f);
    p = M_FMA_F32(p, u, 0.199985281f);
    p = M_FMA_F32(p, u, -0.333333164f);
    return m_copysign_f32(high + (z + (z * (u * p) + low)), a);
}

//@ asin_poly_f32:
/* asin(s) / s - 1 for s <= 1/2, u = s s */
MATH float m_asin_poly_f32(float u) {
    float p = 0.0421583988f;
    p = M_FMA_F32(p, u, 0.0241847411f);
    p = M_FMA_F32(p, u, 0.0454691537f);
    p = M_FMA_F32(p, u, 0.0749530941f);
    p = M_FMA_F32(p, u, 0.166667521f);
    return p * u;
}

//@ asin_f32: asin_poly_f32 bits_f32 float_f32 abs_f32 copysign_f32
/* Above 1/2: pi/2 - 2 asin(sqrt((1 - t)/2)), the root as w + c with w short, so that 2 w subtracts
 * exactly. */
MATH float m_asin_f32(float a) {
    float t = m_abs_f32(a);
    float u = t > 0.5f ? (1.0f - t) * 0.5f : t * t;
    float root = __builtin_sqrtf(u);
    float w = m_float_f32(m_bits_f32(root) & 0xfffff000u);
    float c = (u - w * w) / (root + w);
    c = u == 0.0f ? 0.0f : c;
    float p = m_asin_poly_f32(u);
    float steep = 0.785398185f -
                  ((2.0f * root * p - (-4.37113883e-08f - 2.0f * c)) - (0.785398185f - 2.0f * w));
    return m_copysign_f32(t > 0.5f ? steep : t + t * p, a);
}

//@ acos_f32: asin_poly_f32 abs_f32
MATH float m_acos_f32(float a) {
    float t = m_abs_f32(a);
    float u = t > 0.5f ? (1.0f - t) * 0.5f : t * t;
    float root = __builtin_sqrtf(u), p = m_asin_poly_f32(u);
    float flat = 1.57079637f - (a - (-4.37113883e-08f - a * p));
    float right = 2.0f * (root + root * p);
    float left = 3.14159274f - 2.0f * (root + (root * p - -4.37113883e-08f));
    return t > 0.5f ? (a > 0.0f ? right : left) : flat;
}

//@ asinh_f32: asinh_f64
MATH float m_asinh_f32(float a) { return (float)m_asinh_f64((double)a); }

//@ acosh_f32: acosh_f64
MATH float m_acosh_f32(float a) { return (float)m_acosh_f64((double)a); }

//@ atanh_f32: atanh_f64
MATH float m_atanh_f32(float a) { return (float)m_atanh_f64((double)a); }

//@ atan2_f32: atan2_f64
MATH float m_atan2_f32(float a, float b) { return (float)m_atan2_f64((double)a, (double)b); }
