/* The transforms of Winograd convolution on one instruction set (run/level.h).
 *
 * A product of polynomials is known by its values at enough points (Toom, Cook; for convolutions
 * Winograd 1980, Lavin & Gray 2015, arXiv:1509.09308). A line of `tile` inputs d is read as its
 * values at tile - 1 points and infinity, the kernel g likewise; the values are multiplied, and the
 * `output` sums read back:
 *
 *     y = A^T [(G g) * (B^T d)]        for squares: Y = A^T [(G g G^T) * (B^T d B)] A
 *
 *     B^T row of point p: the coefficients of M(x) / (x - p), M(x) = product of (x - q), all q
 *     G   row of point p: p^k / product of (p - q), q other than p
 *     A^T row i:          p^i;   infinity: M(x) itself, the last coefficient of g, the last row
 *
 * Points decide the accuracy. Tiles of 4 take 0, 1, -1. Tiles of 6 take 0, +-5/8, +-3/2, tiles of 7
 * +-5/16, +-13/16, +-7/4: of the pairs that were tried they give the smallest errors, half of those
 * of the usual small integers (docs/architecture.md has the measurement; Barabasz et al. 2018,
 * arXiv:1803.10986, is on such choices). All constants are exact in f32. */
#include "run/winograd_kernel.h"
#include "run/level.h"
#include <string.h>

typedef float Vector __attribute__((vector_size(VECTOR_BYTES)));
typedef float Loose __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(float)), may_alias));
enum { LANES = VECTOR_BYTES / sizeof(float) };

#define P 0.625f /* the points of tiles of 6: 0, P, -P, Q, -Q */
#define Q 1.5f
#define R 0.3125f /* the points of tiles of 7: R, -R, S, -S, T, -T */
#define S 0.8125f
#define T 1.75f

/* Lanes of a vector that are there; the others are 0 and not stored. */
static inline Vector load(const float *from, int64_t lanes) {
    if (lanes >= LANES) return *(const Loose *)from;
    Vector v = {0};
    memcpy(&v, from, (size_t)lanes * sizeof(float));
    return v;
}

static inline void store(float *to, Vector v, int64_t lanes) {
    if (lanes >= LANES)
        *(Loose *)to = v;
    else
        memcpy(to, &v, (size_t)lanes * sizeof(float));
}

/* ---- lines: B^T d and A^T m --------------------------------------------------------------- */

static inline void read_4(const Vector *d, Vector *t) {
    t[0] = d[2] - d[0];
    t[1] = d[2] + d[1];
    t[2] = d[2] - d[1];
    t[3] = d[3] - d[1];
}

static inline void read_6(const Vector *d, Vector *t) {
    Vector even_p = d[4] - Q * Q * d[2], odd_p = d[3] - Q * Q * d[1];
    Vector even_q = d[4] - P * P * d[2], odd_q = d[3] - P * P * d[1];
    t[0] = d[4] - (P * P + Q * Q) * d[2] + P * P * Q * Q * d[0];
    t[1] = even_p + P * odd_p;
    t[2] = even_p - P * odd_p;
    t[3] = even_q + Q * odd_q;
    t[4] = even_q - Q * odd_q;
    t[5] = d[5] - (P * P + Q * Q) * d[3] + P * P * Q * Q * d[1];
}

static inline void read_7(const Vector *d, Vector *t) {
    Vector odd_r = d[5] - (S * S + T * T) * d[3] + S * S * T * T * d[1];
    Vector even_r = d[4] - (S * S + T * T) * d[2] + S * S * T * T * d[0];
    Vector odd_s = d[5] - (R * R + T * T) * d[3] + R * R * T * T * d[1];
    Vector even_s = d[4] - (R * R + T * T) * d[2] + R * R * T * T * d[0];
    Vector odd_t = d[5] - (R * R + S * S) * d[3] + R * R * S * S * d[1];
    Vector even_t = d[4] - (R * R + S * S) * d[2] + R * R * S * S * d[0];
    t[0] = odd_r + R * even_r;
    t[1] = odd_r - R * even_r;
    t[2] = odd_s + S * even_s;
    t[3] = odd_s - S * even_s;
    t[4] = odd_t + T * even_t;
    t[5] = odd_t - T * even_t;
    t[6] = d[6] - (R * R + S * S + T * T) * d[4] +
           (R * R * S * S + R * R * T * T + S * S * T * T) * d[2] - R * R * S * S * T * T * d[0];
}

static inline void write_2_of_4(const Vector *m, Vector *y) {
    y[0] = m[0] + (m[1] + m[2]);
    y[1] = m[3] + (m[1] - m[2]);
}

static inline void write_2_of_6(const Vector *m, Vector *y) {
    y[0] = m[0] + ((m[1] + m[2]) + (m[3] + m[4]));
    y[1] = m[5] + P * (m[1] - m[2]) + Q * (m[3] - m[4]);
}

static inline void write_4_of_6(const Vector *m, Vector *y) {
    Vector even_p = m[1] + m[2], odd_p = m[1] - m[2], even_q = m[3] + m[4], odd_q = m[3] - m[4];
    y[0] = m[0] + (even_p + even_q);
    y[1] = P * odd_p + Q * odd_q;
    y[2] = P * P * even_p + Q * Q * even_q;
    y[3] = m[5] + P * P * P * odd_p + Q * Q * Q * odd_q;
}

static inline void write_3_of_7(const Vector *m, Vector *y) {
    Vector even_r = m[0] + m[1], odd_r = m[0] - m[1], even_s = m[2] + m[3], odd_s = m[2] - m[3];
    Vector even_t = m[4] + m[5], odd_t = m[4] - m[5];
    y[0] = even_r + even_s + even_t;
    y[1] = R * odd_r + S * odd_s + T * odd_t;
    y[2] = m[6] + R * R * even_r + S * S * even_s + T * T * even_t;
}

static inline void write_5_of_7(const Vector *m, Vector *y) {
    Vector even_r = m[0] + m[1], odd_r = m[0] - m[1], even_s = m[2] + m[3], odd_s = m[2] - m[3];
    Vector even_t = m[4] + m[5], odd_t = m[4] - m[5];
    y[0] = even_r + even_s + even_t;
    y[1] = R * odd_r + S * odd_s + T * odd_t;
    y[2] = R * R * even_r + S * S * even_s + T * T * even_t;
    y[3] = R * R * R * odd_r + S * S * S * odd_s + T * T * T * odd_t;
    y[4] = m[6] + R * R * R * R * even_r + S * S * S * S * even_s + T * T * T * T * even_t;
}

/* ---- squares ------------------------------------------------------------------------------ */

#define READ(tile)                                                                                 \
    static inline void read_part_##tile(const float *const *row, int64_t c, float *to,             \
                                        int64_t stride, int64_t lanes) {                           \
        Vector half[tile][tile], d[tile], t[tile];                                                 \
        for (int j = 0; j < tile; j++) {                                                           \
            for (int i = 0; i < tile; i++) d[i] = load(row[i * tile + j] + c, lanes);              \
            read_##tile(d, t);                                                                     \
            for (int i = 0; i < tile; i++) half[i][j] = t[i];                                      \
        }                                                                                          \
        for (int i = 0; i < tile; i++) {                                                           \
            read_##tile(half[i], t);                                                               \
            for (int j = 0; j < tile; j++) store(to + (i * tile + j) * stride + c, t[j], lanes);   \
        }                                                                                          \
    }                                                                                              \
    static void read_square_##tile(const float *const *row, float *to, int64_t stride,             \
                                   int64_t channels) {                                             \
        int64_t c = 0;                                                                             \
        for (; c + LANES <= channels; c += LANES) read_part_##tile(row, c, to, stride, LANES);     \
        if (c < channels) read_part_##tile(row, c, to, stride, channels - c);                      \
    }
READ(4)
READ(6)
READ(7)

#define WRITE(output, tile)                                                                        \
    static inline void write_part_##output##_of_##tile(const float *from, int64_t stride,          \
                                                       float *out, int64_t line, int64_t column,   \
                                                       int rows, int columns, int64_t lanes) {     \
        Vector half[output][tile], m[tile], y[output];                                             \
        for (int j = 0; j < tile; j++) {                                                           \
            for (int i = 0; i < tile; i++) m[i] = load(from + (i * tile + j) * stride, lanes);     \
            write_##output##_of_##tile(m, y);                                                      \
            for (int i = 0; i < output; i++) half[i][j] = y[i];                                    \
        }                                                                                          \
        for (int i = 0; i < output; i++) {                                                         \
            if (i >= rows) break;                                                                  \
            write_##output##_of_##tile(half[i], y);                                                \
            for (int j = 0; j < output; j++)                                                       \
                if (j < columns) store(out + i * line + j * column, y[j], lanes);                  \
        }                                                                                          \
    }                                                                                              \
    static void write_square_##output##_of_##tile(const float *from, int64_t stride, float *out,   \
                                                  int64_t line, int64_t column, int rows,          \
                                                  int columns, int64_t channels) {                 \
        int64_t c = 0;                                                                             \
        for (; c + LANES <= channels; c += LANES)                                                  \
            write_part_##output##_of_##tile(from + c, stride, out + c, line, column, rows,         \
                                            columns, LANES);                                       \
        if (c < channels)                                                                          \
            write_part_##output##_of_##tile(from + c, stride, out + c, line, column, rows,         \
                                            columns, channels - c);                                \
    }
WRITE(2, 4)
WRITE(2, 6)
WRITE(4, 6)
WRITE(3, 7)
WRITE(5, 7)

/* ---- weights ------------------------------------------------------------------------------ */

/* G: [tile][kernel]. The points are those of the lines above, in their order. */
static void make_g(int tile, int kernel, double g[][WINOGRAD_MAX_KERNEL]) {
    static const double points_4[] = {0, 1, -1}, points_6[] = {0, P, -P, Q, -Q};
    static const double points_7[] = {R, -R, S, -S, T, -T};
    const double *point = tile == 4 ? points_4 : tile == 6 ? points_6 : points_7;
    for (int i = 0; i < tile - 1; i++) {
        double power = 1;
        for (int j = 0; j < tile - 1; j++)
            if (j != i) power /= point[i] - point[j];
        for (int k = 0; k < kernel; k++, power *= point[i]) g[i][k] = power;
    }
    for (int k = 0; k < kernel; k++) g[tile - 1][k] = k == kernel - 1;
}

static void weight(int tile, int kernel, const float *from, float *to, int64_t stride) {
    double g[WINOGRAD_MAX_TILE][WINOGRAD_MAX_KERNEL], half[WINOGRAD_MAX_KERNEL][WINOGRAD_PANEL];
    make_g(tile, kernel, g);
    for (int i = 0; i < tile; i++) {
        memset(half, 0, sizeof half);
        for (int k = 0; k < kernel; k++)
            for (int q = 0; q < kernel; q++)
                for (int lane = 0; lane < WINOGRAD_PANEL; lane++)
                    half[k][lane] += g[i][q] * from[(q * kernel + k) * WINOGRAD_PANEL + lane];
        for (int j = 0; j < tile; j++) {
            double sum[WINOGRAD_PANEL] = {0};
            for (int k = 0; k < kernel; k++)
                for (int lane = 0; lane < WINOGRAD_PANEL; lane++)
                    sum[lane] += g[j][k] * half[k][lane];
            for (int lane = 0; lane < WINOGRAD_PANEL; lane++)
                to[(i * tile + j) * stride + lane] = (float)sum[lane];
        }
    }
}

static void weight_4_3(const float *from, float *to, int64_t stride) {
    weight(4, 3, from, to, stride);
}
static void weight_6_3(const float *from, float *to, int64_t stride) {
    weight(6, 3, from, to, stride);
}
static void weight_6_5(const float *from, float *to, int64_t stride) {
    weight(6, 5, from, to, stride);
}

static void weight_7_3(const float *from, float *to, int64_t stride) {
    weight(7, 3, from, to, stride);
}
static void weight_7_5(const float *from, float *to, int64_t stride) {
    weight(7, 5, from, to, stride);
}

const WinogradKernels LEVEL_TABLE(winograd_kernels_) = {
    .f2k3 = {4, 2, 3, read_square_4, write_square_2_of_4, weight_4_3},
    .f4k3 = {6, 4, 3, read_square_6, write_square_4_of_6, weight_6_3},
    .f2k5 = {6, 2, 5, read_square_6, write_square_2_of_6, weight_6_5},
    .f5k3 = {7, 5, 3, read_square_7, write_square_5_of_7, weight_7_3},
    .f3k5 = {7, 3, 5, read_square_7, write_square_3_of_7, weight_7_5},
};
