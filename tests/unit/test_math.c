/* The scalar functions of op/math_*.h against libm: error in ulp over dense sweeps, special
 * values, integers. The worst error of each function is printed; a bound in the table that is
 * passed fails the test. */
#include "test_support.h"

#include "op/math.h"
#include "op/op.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { POINTS = 12000 };

/* ---- errors in ulp --------------------------------------------------------------------------- */

static double ulp(double exponent_of, int mantissa, int lowest) {
    int exponent;
    frexp(exponent_of, &exponent);
    int unit = exponent - mantissa;
    return ldexp(1.0, unit < lowest ? lowest : unit);
}

/* wanted has the bits of a wider type. Beyond the largest float, that and infinity are right. */
static double error_f32(float got, double wanted) {
    if (isnan(wanted) || isnan(got)) return isnan(wanted) && isnan(got) ? 0 : 1e9;
    float rounded = (float)wanted;
    if (isinf(rounded) || isinf(got)) return got == rounded || fabs(wanted) > 3.4028e38 ? 0 : 1e9;
    return fabs((double)got - wanted) / ulp(wanted, 24, -149);
}

static double error_f64(double got, long double wanted) {
    double rounded = (double)wanted;
    if (isnan(rounded) || isnan(got)) return isnan(rounded) && isnan(got) ? 0 : 1e9;
    if (isinf(rounded) || isinf(got))
        return got == rounded || fabsl(wanted) > 1.7976931348623e308L ? 0 : 1e9;
    return (double)(fabsl((long double)got - wanted) / (long double)ulp(rounded, 53, -1074));
}

static uint64_t state = 88172645463325252u;
static double random_number(void) { /* in [0, 1) */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) * 0x1p-53;
}

static const double special[] = {
    0.0,   -0.0,  1.0,   -1.0,   0.5,    -0.5,   2.0,    -2.0,   0.25, 1.5,      3.0,      10.0,
    -10.0, 88.7,  -88.7, 103.9,  -103.9, 709.7,  -745.0, 1000.0, 1e5,  -1e5,     1e-5,     -1e-5,
    1e-8,  -1e-8, 1e-40, -1e-40, 1e-45,  1e-310, 1e38,   1e300,  NAN,  INFINITY, -INFINITY};
enum { SPECIALS = sizeof special / sizeof *special };

/* Even points over the range, and points that approach 0. */
static double point(int i, double low, double high) {
    if (i < SPECIALS) return special[i];
    double x = low + (high - low) * random_number();
    return i & 1 ? x : x * exp2(-30 * random_number());
}

/* ---- one argument ---------------------------------------------------------------------------- */

typedef struct MathFunction {
    const char *name;
    float (*narrow)(float);
    double (*wide)(double);
    double (*narrow_reference)(double);
    long double (*wide_reference)(long double);
    double low, high, narrow_bound, wide_bound;
} MathFunction;

#define WRAP(name)                                                                                 \
    static float narrow_##name(float a) { return m_##name##_f32(a); }                              \
    static double wide_##name(double a) { return m_##name##_f64(a); }
#define ROW(name, reference, low, high, narrow_bound, wide_bound)                                  \
    {                                                                                              \
#name, narrow_##name, wide_##name, reference, reference##l, low, high, narrow_bound,       \
            wide_bound                                                                             \
    }
WRAP(sqrt)
WRAP(exp)
WRAP(exp2)
WRAP(expm1)
WRAP(log)
WRAP(log2)
WRAP(log10)
WRAP(log1p)
WRAP(sin)
WRAP(cos)
WRAP(tan)
WRAP(asin)
WRAP(acos)
WRAP(atan)
WRAP(sinh)
WRAP(cosh)
WRAP(tanh)
WRAP(asinh)
WRAP(acosh)
WRAP(atanh)
WRAP(erf)
WRAP(erfc)
WRAP(sigmoid)
WRAP(floor)
WRAP(ceil)
WRAP(round)
WRAP(trunc)
WRAP(abs)

static double sigmoid(double x) { return (double)(1 / (1 + expl(-(long double)x))); }
static long double sigmoidl(long double x) { return 1 / (1 + expl(-x)); }

static const MathFunction functions[] = {
    ROW(abs, fabs, -5, 5, 0, 0),
    ROW(floor, floor, -9, 9, 0, 0),
    ROW(ceil, ceil, -9, 9, 0, 0),
    ROW(trunc, trunc, -9, 9, 0, 0),
    ROW(round, rint, -9, 9, 0, 0),
    ROW(floor, floor, -1e8, 1e8, 0, 0),
    ROW(round, rint, -1e8, 1e8, 0, 0),
    ROW(sqrt, sqrt, 0, 100, 0.51, 0.51),
    ROW(exp, exp, -104, 89, 1.2, 1.1),
    ROW(exp, exp, -746, 710, 1.2, 1.1),
    ROW(exp2, exp2, -150, 128, 1.2, 1.1),
    ROW(exp2, exp2, -1075, 1024, 1.2, 1.1),
    ROW(expm1, expm1, -2, 2, 2, 2),
    ROW(expm1, expm1, -40, 710, 2, 2),
    ROW(log, log, 0, 4, 1, 1),
    ROW(log, log, 0, 1e30, 1, 1),
    ROW(log2, log2, 0, 4, 1.1, 1),
    ROW(log10, log10, 0, 4, 1, 1),
    ROW(log1p, log1p, -1, 3, 1.6, 1.5),
    ROW(log1p, log1p, 0, 1e30, 1, 1),
    ROW(sigmoid, sigmoid, -5, 5, 2, 2),
    ROW(sigmoid, sigmoid, -87, 87, 2, 2.2),
    ROW(sigmoid, sigmoid, -110, -87, 2, 2.2),
    ROW(sigmoid, sigmoid, -750, 750, 2, 2.2),
    ROW(sin, sin, -10, 10, 1.6, 1),
    ROW(sin, sin, -1e5, 1e5, 1.6, 1),
    ROW(cos, cos, -10, 10, 1.6, 1),
    ROW(cos, cos, -1e5, 1e5, 1.6, 1),
    ROW(tan, tan, -10, 10, 1, 2.1),
    ROW(tan, tan, -1e5, 1e5, 1, 2.1),
    ROW(asin, asin, -1, 1, 1, 1),
    ROW(acos, acos, -1, 1, 1.2, 1.2),
    ROW(atan, atan, -4, 4, 2, 2),
    ROW(atan, atan, -1e6, 1e6, 2, 2),
    ROW(sinh, sinh, -3, 3, 2, 2),
    ROW(sinh, sinh, -711, 711, 2, 2),
    ROW(cosh, cosh, -3, 3, 1.6, 1.6),
    ROW(cosh, cosh, -711, 711, 1.6, 1.6),
    ROW(tanh, tanh, -2, 2, 2, 1.6),
    ROW(tanh, tanh, -20, 20, 2, 1.6),
    ROW(asinh, asinh, -4, 4, 0.51, 1.8),
    ROW(acosh, acosh, 1, 4, 0.51, 2.2),
    ROW(atanh, atanh, -1, 1, 0.51, 2.1),
    ROW(erf, erf, -1, 1, 2.3, 1.3),
    ROW(erf, erf, -6, 6, 2.3, 1.3),
    ROW(erfc, erfc, -2, 2, 0.51, 3.5),
    ROW(erfc, erfc, -6, 28, 0.51, 3.5),
};

static void same_sign(const char *name, double x, double got, double wanted) {
    if (isnan(wanted) || signbit(got) == signbit(wanted)) return;
    FAIL("%s(%g) = %g: its sign is wrong", name, x, got);
}

static void check_function(const MathFunction *f) {
    double worst = 0, worst_wide = 0, at = 0, at_wide = 0;
    for (int i = 0; i < POINTS; i++) {
        double x = point(i, f->low, f->high);
        float narrow_x = (float)x;
        float narrow = f->narrow(narrow_x);
        double wide = f->wide(x), wanted = f->narrow_reference(narrow_x);
        long double wide_wanted = f->wide_reference(x);
        double error = error_f32(narrow, wanted), wide_error = error_f64(wide, wide_wanted);
        if (error > worst) worst = error, at = narrow_x;
        if (wide_error > worst_wide) worst_wide = wide_error, at_wide = x;
        if (i >= SPECIALS) continue;
        same_sign(f->name, narrow_x, narrow, wanted);
        same_sign(f->name, x, wide, (double)wide_wanted);
    }
    printf("%-6s on [%g, %g]: f32 %.3f ulp at %.9g, f64 %.3f ulp at %.17g\n", f->name, f->low,
           f->high, worst, at, worst_wide, at_wide);
    if (worst > f->narrow_bound) FAIL("%s_f32: %g ulp at %.9g", f->name, worst, at);
    if (worst_wide > f->wide_bound) FAIL("%s_f64: %g ulp at %.17g", f->name, worst_wide, at_wide);
}

/* What softmax takes: no value above 0. */
static void test_exp_nonpositive(void **unused) {
    (void)unused;
    for (int i = 0; i < POINTS; i++) {
        float narrow = (float)(-110 * fabs(random_number()));
        double error = error_f32(m_exp_nonpositive_f32(narrow), exp((double)narrow));
        if (error > 1.2) FAIL("exp_nonpositive_f32(%g): %g ulp", (double)narrow, error);
    }
    assert_true(m_exp_nonpositive_f32(0.0f) == 1.0f);
    assert_true(m_exp_nonpositive_f32(-0.0f) == 1.0f);
    assert_true(m_exp_nonpositive_f32(-INFINITY) == 0.0f);
    assert_true(m_exp_nonpositive_f32(-100.0f) > 0.0f); /* log(softmax(x)) is finite there */
    assert_true(isnan(m_exp_nonpositive_f32(NAN)));
    assert_true(isnan(m_exp_nonpositive_f64(NAN)));
    assert_true(m_exp_nonpositive_f64(-1) == m_exp_f64(-1));
}

/* In proportion to a, gelu is as exact as f32; left of the middle it keeps its digits, too. */
static void test_gelu(void **unused) {
    (void)unused;
    double worst = 0, left = 0;
    for (int i = 0; i < POINTS; i++) {
        float narrow = (float)(16 * random_number() - 8);
        double x = narrow, wanted = 0.5 * x * erfc(-x * sqrt(0.5));
        double error = fabs((double)m_gelu_value_f32(narrow) - wanted);
        assert_false(isnan(error)); /* which fmax leaves out */
        worst = fmax(worst, error / fabs(x));
        if (x > -2) left = fmax(left, error / fabs(wanted));
        assert_true(fabs(m_gelu_value_f64(x) - wanted) <= 1e-15 * fabs(x));
    }
    printf("gelu: errors of %.3g x, %.3g of itself for x > -2\n", worst, left);
    assert_true(worst < 1.5e-7 && left < 1e-6);
    for (float x = 0.001f; x < 1e38f; x *= 1.01f) {
        assert_true(fabsf(m_gelu_value_f32(-x)) <= 0.17f);
        assert_true(x < 6 || fabsf(m_gelu_value_f32(-x)) < 1e-8f);
        assert_true(x < 6 || m_gelu_value_f32(x) == x);
    }
    assert_true(m_gelu_value_f32(INFINITY) == INFINITY && isnan(m_gelu_value_f32(NAN)));
    assert_true(m_gelu_value_f32(0.0f) == 0 && signbit(m_gelu_value_f32(-0.0f)));
    assert_true(m_gelu_value_f64(INFINITY) == INFINITY && isnan(m_gelu_value_f64(NAN)));
}

static void test_functions(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) check_function(&functions[i]);
}

/* Angles all over the range and close to multiples of pi/2, with what mpmath gives at 1400 bits. */
static const struct Angle {
    double x, sin, cos, tan;
} angles[] = {
    {0x0.012688b70e62bp-1022, 0x0.012688b70e62bp-1022, 0x1p0, 0x0.012688b70e62bp-1022},
    {0x1p-1, 0x1.eaee8744b05fp-2, 0x1.c1528065b7d5p-1, 0x1.17b4f5bf3474ap-1},
    {0x1.921fb54442d18p0, 0x1p0, 0x1.1a62633145c07p-54, 0x1.d02967c31cdb5p53},
    {0x1.921fb54442d18p1, 0x1.1a62633145c07p-53, -0x1p0, -0x1.1a62633145c07p-53},
    {0x1.6p3, -0x1.fffeb762e93ebp-1, 0x1.220ae41ee2fdfp-8, -0x1.c3e6d558b0924p7},
    {0x1.86a08p16, -0x1.ca7e13c8a7c7fp-2, -0x1.c9cf67d7425b8p-1, 0x1.0061ac6d6e98dp-1},
    {0x1.921fbp20, -0x1.4b02e5be91e9ep-2, 0x1.e4831257a62dap-1, -0x1.5dca6bd170c6fp-2},
    {0x1.312dp20, -0x1.cdb471bc5768fp-1, -0x1.ba985d4421afap-2, 0x1.0b0d9c96ca45dp1},
    {0x1.78c29dccccccdp23, -0x1.cb6bcc6c2b873p-1, 0x1.c4004c876f9c8p-2, -0x1.0433d1eb1db31p1},
    {0x1p31, -0x1.f14f913e9af98p-1, 0x1.e70c2d5131e55p-3, -0x1.0564ff9979ed5p2},
    {0x1.2a05f2p33, -0x1.f334c7896a4e3p-2, 0x1.bf098901c931ap-1, -0x1.1de000f443f5p-1},
    {0x1.764f4fa0a241p48, -0x1.ea162592fa96ap-4, -0x1.fc52655fb7f03p-1, 0x1.eda1f8d711cd5p-4},
    {0x1.c6bf52634p49, 0x1.b76f88136cebap-1, -0x1.06c154609d33fp-1, -0x1.ac23600a95be4p0},
    {0x1p53, -0x1.b2a66c8f35586p-1, -0x1.0e9918bb35aacp-1, 0x1.9b33af5ae241fp0},
    {0x1.1c37937e08p53, 0x1.8f334432ebba5p-1, -0x1.40991e398dbfcp-1, -0x1.3ec3afb0422dfp0},
    {0x1.0f0cf064dd592p73, -0x1.b453ab76bf397p-1, 0x1.0be2cef01c8f4p-1, -0x1.a0f79c1b6b257p0},
    {0x1.f37c8ap95, 0x1p0, -0x1.bbdd52a58eafbp-30, -0x1.274c1bb79adb7p29},
    {0x1.92b532p90, -0x1.781764cbe32fbp-3, 0x1.f74af8fa44c14p-1, -0x1.7e990f64c78ecp-3},
    {0x1.fffffep127, -0x1.0b33665089575p-1, 0x1.b4bf2c79bdfcep-1, -0x1.393d94b4988c2p-1},
    {0x1p120, 0x1.82e34655e6fcbp-2, -0x1.da0cd0b66d8cep-1, -0x1.a1dc27cab0816p-2},
    {0x1.93e5939a08ceap99, 0x1.31c608f107767p-7, -0x1.fffa4b11f1b45p-1, -0x1.31c97177a233p-7},
    {0x1.6ac5b262ca1ffp849, 0x1p0, -0x1.14ae72e6ba22fp-61, -0x1.d9ba9a7975636p60},
    {0x1.249ad2594c37dp332, -0x1.85c5e5b929359p-2, 0x1.d9757496841f5p-1, -0x1.a5807d6f76f7dp-2},
    {0x1.4e718d7d7625ap664, -0x1.49b644938c64cp-1, 0x1.87b4df51f679ep-1, -0x1.aef7845d41e88p-1},
    {0x1.7e43c8800759cp996, -0x1.a2c16b010e385p-1, -0x1.2699022adc4c1p-1, 0x1.6be411f37ac77p0},
    {0x1p1023, 0x1.205248cbdb76p-1, -0x1.a719f26c232bfp-1, -0x1.5ce6b4c0d02a3p-1},
    {0x1.fffffffffffffp1023, 0x1.452fc98b34e97p-8, -0x1.fffe62ecfab75p-1, -0x1.4530cfe729484p-8},
    {0x1.6c6cbc45dc8dep11, 0x1.6d61b58c99c43p-55, 0x1p0, 0x1.6d61b58c99c43p-55},
    {0x1.5c9508c58aafap32, 0x1p0, 0x1.7091a64747dabp-54, 0x1.639fc53ae5ff2p53},
    {0x1.5cba89af1f855p52, 0x1.b5ebde2aae00bp-54, -0x1p0, -0x1.b5ebde2aae00bp-54},
    {0x1.4d8d546c1ba7p59, -0x1p0, -0x1.defded3db2442p-54, 0x1.11a430d03b18cp53},
    {0x1.99caa5236feeap76, 0x1p0, 0x1.b88a70d18604ep-57, 0x1.298675c26f34dp56},
    {0x1.d99e1681eadap107, -0x1.e1584cde91f3p-54, -0x1p0, 0x1.e1584cde91f3p-54},
    {0x1.51856420e8c52p251, 0x1p0, -0x1.dd9fcf709f0f1p-54, -0x1.126cc7af1de15p53},
    {0x1.22e6cf95d097ep551, -0x1p0, -0x1.44eecc3ff30c5p-53, 0x1.9361c1ccc4decp52},
    {0x1.e1987122b7e06p951, 0x1p0, 0x1.62c5dcf7f8d24p-57, 0x1.717407d201e67p56},
};

static void check_angle(const struct Angle *row) {
    double got[3] = {m_sin_f64(row->x), m_cos_f64(row->x), m_tan_f64(row->x)};
    const double wanted[3] = {row->sin, row->cos, row->tan};
    float x = (float)row->x;
    float narrow[3] = {m_sin_f32(x), m_cos_f32(x), m_tan_f32(x)};
    for (int i = 0; i < 3; i++) {
        if (error_f64(got[i], wanted[i]) > 2.1)
            FAIL("function %d of %a is %a, not %a", i, row->x, got[i], wanted[i]);
        if ((double)x == row->x && error_f32(narrow[i], wanted[i]) > 1.7)
            FAIL("function %d of %a is %a, not %a", i, row->x, (double)narrow[i], wanted[i]);
    }
}

/* Every power of two and some numbers behind it; beyond every number is infinity. */
static void test_large_angles(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof angles / sizeof *angles; i++) check_angle(&angles[i]);
    for (float power = 0x1p-149f; power < INFINITY; power *= 2) {
        for (int i = 0; i < 60; i++) {
            float x = (float)(power * (1 + (i ? random_number() : 0))), at = i & 1 ? -x : x;
            if (isinf(x)) continue;
            double y = at;
            if (error_f32(m_sin_f32(at), sin(y)) > 1.6 || error_f32(m_cos_f32(at), cos(y)) > 1.6 ||
                error_f32(m_tan_f32(at), tan(y)) > 1)
                FAIL("sin, cos or tan of %a", y);
        }
    }
    for (double power = 0x1p-1074; power < INFINITY; power *= 2) {
        for (int i = 0; i < 20; i++) {
            double x = power * (1 + (i ? random_number() : 0)), at = i & 1 ? -x : x;
            if (error_f64(m_sin_f64(at), sinl(at)) > 1 || error_f64(m_cos_f64(at), cosl(at)) > 1 ||
                error_f64(m_tan_f64(at), tanl(at)) > 2.1)
                FAIL("sin, cos or tan of %a", at);
        }
    }
    assert_true(isnan(m_sin_f64(INFINITY)) && isnan(m_cos_f32(-INFINITY)) && isnan(m_tan_f32(NAN)));
}

/* ---- two arguments --------------------------------------------------------------------------- */

typedef struct Pair {
    const char *name;
    float (*narrow)(float, float);
    double (*wide)(double, double);
    double (*narrow_reference)(double, double);
    long double (*wide_reference)(long double, long double);
    double low_a, high_a, low_b, high_b, narrow_bound, wide_bound;
} Pair;

#define WRAP_PAIR(name)                                                                            \
    static float narrow_##name(float a, float b) { return m_##name##_f32(a, b); }                  \
    static double wide_##name(double a, double b) { return m_##name##_f64(a, b); }
#define ROW_PAIR(name, ...)                                                                        \
    { #name, narrow_##name, wide_##name, name, name##l, __VA_ARGS__ }
WRAP_PAIR(pow)
WRAP_PAIR(atan2)
WRAP_PAIR(hypot)
WRAP_PAIR(fmod)
WRAP_PAIR(copysign)

static const Pair pairs[] = {
    ROW_PAIR(pow, 0, 10, -30, 30, 0.51, 1.2),      ROW_PAIR(pow, 0, 1e3, -100, 100, 0.51, 1.2),
    ROW_PAIR(pow, 0.9, 1.1, -1e3, 1e3, 0.51, 1.2), ROW_PAIR(pow, -5, 5, -3, 3, 0.51, 1.2),
    ROW_PAIR(atan2, -5, 5, -5, 5, 0.51, 2),        ROW_PAIR(hypot, -5, 5, -5, 5, 0.51, 1.3),
    ROW_PAIR(fmod, -1e3, 1e3, -5, 5, 0, 0),        ROW_PAIR(fmod, -1e30, 1e30, -1e-5, 1e-5, 0, 0),
    ROW_PAIR(copysign, -5, 5, -5, 5, 0, 0),
};

static void check_pair(const Pair *f) {
    double worst = 0, worst_wide = 0, at[4] = {0};
    for (int i = 0; i < POINTS; i++) {
        bool grid = i < SPECIALS * SPECIALS;
        double a = grid ? special[i / SPECIALS] : point(SPECIALS + i, f->low_a, f->high_a);
        double b = grid ? special[i % SPECIALS] : point(SPECIALS, f->low_b, f->high_b);
        if (f->low_b == -3 && i & 1) b = round(b);
        float narrow_a = (float)a, narrow_b = (float)b;
        float narrow = f->narrow(narrow_a, narrow_b);
        double wide = f->wide(a, b), wanted = f->narrow_reference(narrow_a, narrow_b);
        long double wide_wanted = f->wide_reference(a, b);
        double error = error_f32(narrow, wanted), wide_error = error_f64(wide, wide_wanted);
        if (error > worst) worst = error, at[0] = narrow_a, at[1] = narrow_b;
        if (wide_error > worst_wide) worst_wide = wide_error, at[2] = a, at[3] = b;
        if (fabs(wanted) >= 1e-45) same_sign(f->name, a, narrow, wanted);
        same_sign(f->name, a, wide, (double)wide_wanted);
    }
    printf("%-8s: f32 %.3f ulp at %.9g %.9g, f64 %.3f ulp at %.17g %.17g\n", f->name, worst, at[0],
           at[1], worst_wide, at[2], at[3]);
    if (worst > f->narrow_bound) FAIL("%s_f32: %g ulp at %.9g, %.9g", f->name, worst, at[0], at[1]);
    if (worst_wide > f->wide_bound)
        FAIL("%s_f64: %g ulp at %.17g, %.17g", f->name, worst_wide, at[2], at[3]);
}

static void test_pairs(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) check_pair(&pairs[i]);
}

/* What torch 2.11 gives. */
static void test_division(void **unused) {
    static const float rows[][5] = {/* a, b, remainder, fmod, floor_divide */
                                    {7, 3, 1, 1, 2},
                                    {-7, 3, 2, -1, -3},
                                    {7, -3, -2, 1, -3},
                                    {-7, -3, -1, -1, 2},
                                    {1, 0, NAN, NAN, INFINITY},
                                    {-1, 0, NAN, NAN, -INFINITY},
                                    {0, 0, NAN, NAN, NAN},
                                    {INFINITY, 2, NAN, NAN, NAN},
                                    {5, INFINITY, 5, 5, 0},
                                    {-5, INFINITY, INFINITY, -5, -1},
                                    {NAN, 1, NAN, NAN, NAN},
                                    {-0.0f, 3, -0.0f, -0.0f, -0.0f}};
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float a = rows[i][0], b = rows[i][1];
        float got[3] = {m_remainder_f32(a, b), m_fmod_f32(a, b), m_floor_divide_f32(a, b)};
        double wide[3] = {m_remainder_f64(a, b), m_fmod_f64(a, b), m_floor_divide_f64(a, b)};
        for (int k = 0; k < 3; k++) {
            float wanted = rows[i][2 + k];
            if (isnan(wanted) ? !isnan(got[k]) : memcmp(&got[k], &wanted, 4) != 0)
                FAIL("row %zu, %d: %g, wanted %g", i, k, got[k], wanted);
            if (isnan(wanted) ? !isnan(wide[k]) : wide[k] != (double)wanted)
                FAIL("row %zu, %d: %g, wanted %g", i, k, wide[k], wanted);
        }
    }
    assert_true(m_sign_f32(NAN) == 0 && m_sign_f64(-3) == -1 && m_sign_f32(-0.0f) == 0);
}

/* ---- integers -------------------------------------------------------------------------------- */

static const int64_t whole[] = {0,  1,   -1,   2,   -2,    3,      7,          -7,         8,
                                -8, 100, -128, 127, 32767, -32768, 2147483647, -2147483648};
enum { WHOLE = sizeof whole / sizeof *whole };

static void check_whole(int64_t a, int64_t b) {
    int64_t floored = 0, left = 0, rest = 0;
    if (b) {
        rest = a % b;
        left = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
        floored = (a - left) / b;
    }
    assert_int_equal(m_floor_divide_i64(a, b), floored);
    assert_int_equal(m_remainder_i64(a, b), left);
    assert_int_equal(m_fmod_i64(a, b), rest);
    assert_int_equal(m_floor_divide_i32((int)a, (int)b), (int32_t)floored);
    assert_int_equal(m_remainder_i32((int)a, (int)b), (int32_t)left);
    assert_int_equal(m_fmod_i32((int)a, (int)b), (int32_t)rest);
    int64_t left_shift = b >= 0 && b < 32 ? (int32_t)(uint32_t)((uint64_t)a << b) : 0;
    assert_int_equal(m_left_shift_i32((int)a, (int)b), left_shift);
    assert_int_equal(m_right_shift_i32((int)a, (int)b), a >> (b >= 0 && b < 32 ? b : 31));
    assert_int_equal(m_left_shift_i64(a, b), b >= 0 && b < 64 ? (int64_t)((uint64_t)a << b) : 0);
    assert_int_equal(m_right_shift_i64(a, b), a >> (b >= 0 && b < 64 ? b : 63));
}

static void test_integers(void **unused) {
    (void)unused;
    for (int i = 0; i < WHOLE; i++)
        for (int k = 0; k < WHOLE; k++) check_whole(whole[i], whole[k]);
    assert_int_equal(m_floor_divide_i64(INT64_MIN, -1), INT64_MIN);
    assert_int_equal(m_remainder_i64(INT64_MIN, -1), 0);
    assert_int_equal(m_abs_i32(INT32_MIN), INT32_MIN);
    assert_int_equal(m_sign_i64(INT64_MIN), -1);
    assert_int_equal(m_pow_i64(3, 40), -6289078614652622815);
    assert_int_equal(m_pow_i64(2, 70), 0);
    assert_int_equal(m_pow_i64(2, -1), 0);
    assert_int_equal(m_pow_i64(-1, -3), -1);
    assert_int_equal(m_pow_i64(-1, -2), 1);
    assert_int_equal(m_pow_i64(0, 0), 1);
    assert_int_equal(m_pow_i32(7, 20), (int32_t)79792266297612001);
}

/* The known answers of Random123: words 0 and 1 of the result. */
static void test_philox(void **unused) {
    (void)unused;
    assert_int_equal(m_philox_i64(0, 0, 0), 0xe169c58d6627e8d5u >> 1);
    assert_int_equal(m_philox_i64(-1, -1, -1), 0x41c83b0e408f276du >> 1);
    assert_int_equal(
        m_philox_i64(0x299f31d0a4093822, 0x0370734413198a2e, (int64_t)0x85a308d3243f6a88),
        0x94fdccebd16cfe09u >> 1);
}

static void test_conversions(void **unused) {
    (void)unused;
    assert_int_equal(m_to_i32_f32(-3.9f), -3);
    assert_int_equal(m_to_i64_f64(1e300), INT64_MIN);
    assert_int_equal(m_to_i64_f32(NAN), 0);
    assert_int_equal(m_to_i32_f64(3e9), (int32_t)(uint32_t)3000000000u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),   cmocka_unit_test(test_exp_nonpositive),
        cmocka_unit_test(test_gelu),        cmocka_unit_test(test_large_angles),
        cmocka_unit_test(test_pairs),       cmocka_unit_test(test_division),
        cmocka_unit_test(test_integers),    cmocka_unit_test(test_philox),
        cmocka_unit_test(test_conversions),
    };
    return cmocka_run_group_tests_name("math", tests, NULL, NULL);
}
