/* Template of the attention kernels of one element type; attention_kernel.c includes it once per
 * type, with
 *   ELEMENT      float or double
 *   NAME(x)      x with the type's suffix
 *   EXP2(x)      2^x for x in [LEAST, 0]
 *   LEAST        the least x whose 2^x is no denormal
 * A row of lanes is two vectors of VECTOR_BYTES, as a panel of gemm_tile.h is wide. */

typedef ELEMENT NAME(Vector) __attribute__((vector_size(VECTOR_BYTES), may_alias));
#define Vector NAME(Vector)
enum { NAME(LANES) = 2 * VECTOR_BYTES / sizeof(ELEMENT) };
#define LANES NAME(LANES)

static void NAME(scale)(int64_t count, void *values, double by) {
    ELEMENT *x = values, factor = (ELEMENT)by;
    SIMD for (int64_t i = 0; i < count; i++) x[i] *= factor;
}

static void NAME(add)(int64_t count, void *scores, const void *mask, double by) {
    ELEMENT *x = scores, factor = (ELEMENT)by;
    const ELEMENT *y = mask;
    SIMD for (int64_t i = 0; i < count; i++) x[i] += y[i] * factor;
}

static void NAME(causal)(int64_t keys, void *scores, int64_t shift) {
    ELEMENT *x = scores;
    for (int64_t key = 0; key < keys; key++) {
        int64_t hidden = key - shift < LANES ? key - shift : LANES;
        for (int64_t q = 0; q < hidden; q++) x[key * LANES + q] = -(ELEMENT)__builtin_inf();
    }
}

/* The larger of two, lane by lane; a NaN in b is not seen here, but in the weights that follow. */
static inline Vector NAME(larger)(Vector a, Vector b) {
    Vector result = a;
    for (size_t i = 0; i < LANES / 2; i++) result[i] = b[i] > a[i] ? b[i] : a[i];
    return result;
}

/* 2^x, and 0 where that would be denormal: masked scores have weights of 2^-infinity, and Intel's
 * cores take a hundred cycles more for a vector in which a denormal arises. */
static inline ELEMENT NAME(power)(ELEMENT x) {
    ELEMENT y = EXP2(x < LEAST ? LEAST : x);
    return x < LEAST ? 0 : y;
}

static bool NAME(softmax)(int64_t keys, void *scores, void *most, void *total, void *shrink) {
    ELEMENT *x = scores, *top = most, *sum = total, *less = shrink, base[LANES];
    Vector high0 = ((Vector *)top)[0], high1 = ((Vector *)top)[1];
    for (int64_t key = 0; key < keys; key++) {
        high0 = NAME(larger)(high0, ((Vector *)(x + key * LANES))[0]);
        high1 = NAME(larger)(high1, ((Vector *)(x + key * LANES))[1]);
    }
    bool raised = false;
    ELEMENT now[LANES];
    memcpy(now, &high0, sizeof high0);
    memcpy(now + LANES / 2, &high1, sizeof high1);
    for (int i = 0; i < LANES; i++) {
        raised |= now[i] > top[i];
        base[i] = now[i] > -(ELEMENT)__builtin_inf() ? now[i] : 0; /* all is masked: 2^-inf */
    }
    if (raised)
        SIMD for (int i = 0; i < LANES; i++) {
            less[i] = NAME(power)(top[i] - base[i]);
            sum[i] *= less[i];
            top[i] = now[i];
        }
    for (int64_t key = 0; key < keys; key++) {
        ELEMENT *row = x + key * LANES;
        SIMD for (int i = 0; i < LANES; i++) row[i] = NAME(power)(row[i] - base[i]);
    }
    Vector sum0 = ((Vector *)sum)[0], sum1 = ((Vector *)sum)[1];
    for (int64_t key = 0; key < keys; key++) {
        sum0 += ((Vector *)(x + key * LANES))[0];
        sum1 += ((Vector *)(x + key * LANES))[1];
    }
    ((Vector *)sum)[0] = sum0, ((Vector *)sum)[1] = sum1;
    return raised;
}

static void NAME(multiply)(int64_t rows, void *values, const void *by) {
    ELEMENT *x = values;
    Vector by0 = ((const Vector *)by)[0], by1 = ((const Vector *)by)[1];
    for (int64_t i = 0; i < rows; i++) {
        ((Vector *)(x + i * LANES))[0] *= by0;
        ((Vector *)(x + i * LANES))[1] *= by1;
    }
}

static void NAME(invert)(void *total) {
    ELEMENT *x = total;
    for (int i = 0; i < LANES; i++) x[i] = x[i] == 0 ? 0 : 1 / x[i];
}

static void NAME(slope)(int64_t keys, const void *weights, void *slopes, const void *inverse,
                        double by) {
    const ELEMENT *w = weights, *less = inverse;
    ELEMENT *x = slopes, factor = (ELEMENT)by, base[LANES];
    Vector sum0 = {0}, sum1 = {0};
    for (int64_t i = 0; i < keys * LANES; i += LANES) {
        sum0 += ((const Vector *)(w + i))[0] * ((const Vector *)(x + i))[0];
        sum1 += ((const Vector *)(w + i))[1] * ((const Vector *)(x + i))[1];
    }
    memcpy(base, &sum0, sizeof sum0);
    memcpy(base + LANES / 2, &sum1, sizeof sum1);
    for (int i = 0; i < LANES; i++) base[i] *= less[i];
    for (int64_t key = 0; key < keys; key++, x += LANES, w += LANES)
        SIMD for (int i = 0; i < LANES; i++) x[i] = w[i] * ((x[i] - base[i]) * factor);
}

static void NAME(widen_bool)(const uint8_t *in, int64_t stride, void *out, int64_t count) {
    ELEMENT *y = out;
    for (int64_t i = 0; i < count; i++) y[i] = in[i * stride] ? 0 : -(ELEMENT)__builtin_inf();
}

#undef Vector
#undef LANES
