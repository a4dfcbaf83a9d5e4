/* The transforms of Winograd convolution on one instruction set (base/level.h).
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
 * +-5/16, +-13/16, +-7/4, tiles of 9 +-1/4, +-5/8, +-9/8, +-17/8: of the pairs that were tried they
 * give the smallest errors, half of those of the usual small integers (docs/numerics.md has the
 * measurement; Barabasz et al. 2018, arXiv:1803.10986, is on such choices). All constants of B and
 * A but (17/8)^6 are exact in f32; those of G are quotients, which round. */
#include "cpu/winograd_kernel.h"
#include "base/level.h"

#include "cpu/half.h" /* behind level.h */
#include <string.h>

#define P 0.625f /* the points of tiles of 6: 0, P, -P, Q, -Q */
#define Q 1.5f
#define R 0.3125f /* the points of tiles of 7: R, -R, S, -S, T, -T */
#define S 0.8125f
#define T 1.75f
#define U 0.25f /* the points of tiles of 9: U, -U, V, -V, W, -W, X, -X */
#define V 0.625f
#define W 1.125f
#define X 2.125f

/* Loops over the positions of a tile: unrolled where what they index can stay in registers. */
#if defined(__clang__)
#define OUTLINE __attribute__((noinline))
#else
#define OUTLINE __attribute__((noinline, noclone))
#endif
#define ROLLED _Pragma("GCC unroll 1")
#define UNROLLED _Pragma("GCC unroll 16")

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

/* The points p and -p, where M(x) has the roots p, -p and those of (x^2 - a)(x^2 - b)... */
static inline void read_pair_7(const Vector *d, float p, float a, float b, Vector *t) {
    Vector odd = d[5] - (a + b) * d[3] + a * b * d[1];
    Vector even = d[4] - (a + b) * d[2] + a * b * d[0];
    t[0] = odd + p * even;
    t[1] = odd - p * even;
}

static inline void read_pair_9(const Vector *d, float p, float a, float b, float c, Vector *t) {
    Vector odd = d[7] - (a + b + c) * d[5] + (a * b + a * c + b * c) * d[3] - a * b * c * d[1];
    Vector even = d[6] - (a + b + c) * d[4] + (a * b + a * c + b * c) * d[2] - a * b * c * d[0];
    t[0] = odd + p * even;
    t[1] = odd - p * even;
}

static inline void read_7(const Vector *d, Vector *t) {
    const float r = R * R, s = S * S, u = T * T;
    read_pair_7(d, R, s, u, t);
    read_pair_7(d, S, r, u, t + 2);
    read_pair_7(d, T, r, s, t + 4);
    t[6] = d[6] - (r + s + u) * d[4] + (r * s + r * u + s * u) * d[2] - r * s * u * d[0];
}

static inline void read_9(const Vector *d, Vector *t) {
    const float u = U * U, v = V * V, w = W * W, x = X * X;
    read_pair_9(d, U, v, w, x, t);
    read_pair_9(d, V, u, w, x, t + 2);
    read_pair_9(d, W, u, v, x, t + 4);
    read_pair_9(d, X, u, v, w, t + 6);
    t[8] = d[8] - (u + v + w + x) * d[6] + (u * v + (u + v) * (w + x) + w * x) * d[4] -
           (u * v * (w + x) + (u + v) * w * x) * d[2] + u * v * w * x * d[0];
}

/* G g of the points of tiles of 6, the kernel being four of what is summed over. */
static inline void spread_4_to_6(const Vector *g, Vector *t) {
    const float zero = 1 / (P * P * Q * Q), p = 1 / (2 * P * P * (P * P - Q * Q));
    const float q = 1 / (2 * Q * Q * (Q * Q - P * P));
    Vector even_p = p * g[0] + p * P * P * g[2], odd_p = p * P * g[1] + p * P * P * P * g[3];
    Vector even_q = q * g[0] + q * Q * Q * g[2], odd_q = q * Q * g[1] + q * Q * Q * Q * g[3];
    t[0] = zero * g[0];
    t[1] = even_p + odd_p;
    t[2] = even_p - odd_p;
    t[3] = even_q + odd_q;
    t[4] = even_q - odd_q;
    t[5] = g[3];
}

static inline void write_2_of_4(const Vector *m, Vector *y) {
    y[0] = m[0] + (m[1] + m[2]);
    y[1] = m[3] + (m[1] - m[2]);
}

static inline void write_2_of_6(const Vector *m, Vector *y) {
    y[0] = m[0] + ((m[1] + m[2]) + (m[3] + m[4]));
    y[1] = m[5] + P * (m[1] - m[2]) + Q * (m[3] - m[4]);
}

static inline void write_3_of_6(const Vector *m, Vector *y) {
    Vector even_p = m[1] + m[2], even_q = m[3] + m[4];
    y[0] = m[0] + (even_p + even_q);
    y[1] = P * (m[1] - m[2]) + Q * (m[3] - m[4]);
    y[2] = m[5] + P * P * even_p + Q * Q * even_q;
}

static inline void write_4_of_6(const Vector *m, Vector *y) {
    Vector even_p = m[1] + m[2], odd_p = m[1] - m[2], even_q = m[3] + m[4], odd_q = m[3] - m[4];
    y[0] = m[0] + (even_p + even_q);
    y[1] = P * odd_p + Q * odd_q;
    y[2] = P * P * even_p + Q * Q * even_q;
    y[3] = m[5] + P * P * P * odd_p + Q * Q * Q * odd_q;
}

#define POWER_0(x) 1
#define POWER_1(x) (x)
#define POWER_2(x) ((x) * (x))
#define POWER_3(x) (POWER_2(x) * (x))
#define POWER_4(x) (POWER_2(x) * POWER_2(x))
#define POWER_5(x) (POWER_4(x) * (x))
#define POWER_6(x) (POWER_4(x) * POWER_2(x))
#define SUM_7(i, m) POWER_##i(R) * m[0] + POWER_##i(S) * m[1] + POWER_##i(T) * m[2]
#define SUM_9(i, m)                                                                                \
    POWER_##i(U) * m[0] + POWER_##i(V) * m[1] + POWER_##i(W) * m[2] + POWER_##i(X) * m[3]

/* Pairs of points: their sums go to the even positions, their differences to the odd ones. */
static inline void pair_up(const Vector *m, int pairs, Vector *even, Vector *odd) {
    UNROLLED for (int i = 0; i < pairs; i++) even[i] = m[2 * i] + m[2 * i + 1],
                                             odd[i] = m[2 * i] - m[2 * i + 1];
}

/* y of all positions before number 2, 4, 6. */
#define BEFORE_2(tile) y[0] = SUM_##tile(0, even), y[1] = SUM_##tile(1, odd);
#define BEFORE_4(tile) BEFORE_2(tile) y[2] = SUM_##tile(2, even), y[3] = SUM_##tile(3, odd);
#define BEFORE_6(tile) BEFORE_4(tile) y[4] = SUM_##tile(4, even), y[5] = SUM_##tile(5, odd);
#define WRITE_PAIRS(output, tile, pairs, last)                                                     \
    static inline void write_##output##_of_##tile(const Vector *m, Vector *y) {                    \
        Vector even[pairs], odd[pairs];                                                            \
        pair_up(m, pairs, even, odd);                                                              \
        BEFORE_##last(tile) y[last] = m[tile - 1] + SUM_##tile(last, even);                        \
    }
WRITE_PAIRS(3, 7, 3, 2)
WRITE_PAIRS(5, 7, 3, 4)
WRITE_PAIRS(5, 9, 4, 4)
WRITE_PAIRS(7, 9, 4, 6)

/* ---- squares ------------------------------------------------------------------------------ */

/* The channels that make no whole vector, behind `skip` bytes of each row, with zeros after
 * them. */
static void pad_rows(const void *const *row, int64_t skip, int64_t bytes, void *to, size_t width,
                     const void **padded, int count) {
    memset(to, 0, (size_t)count * width);
    for (int i = 0; i < count; i++) {
        padded[i] = (char *)to + (size_t)i * width;
        memcpy((char *)to + (size_t)i * width, (const char *)row[i] + skip, (size_t)bytes);
    }
}

#define READ(tile, element, type)                                                                  \
    static OUTLINE void read_##tile##_##element##_vectors(const void *const *row, float *to,       \
                                                          int64_t stride, int64_t channels,        \
                                                          int down, int across) {                  \
        for (int64_t c = 0; c < channels; c += LANES) {                                            \
            Vector half[tile][tile], d[tile], t[tile];                                             \
            d[tile - 1] = (Vector){0};                                                             \
            for (int j = 0; j < tile; j++) half[j][tile - 1] = (Vector){0};                        \
            ROLLED for (int i = 0; i < down; i++) {                                                \
                const void *const *at = row + i * tile;                                            \
                UNROLLED for (int j = 0; j < tile - 1; j++) d[j] =                                 \
                    load_##element((const type *)at[j] + c);                                       \
                if (across == tile) d[tile - 1] = load_##element((const type *)at[tile - 1] + c);  \
                read_##tile(d, t);                                                                 \
                UNROLLED for (int j = 0; j < tile; j++) half[j][i] = t[j];                         \
            }                                                                                      \
            ROLLED for (int j = 0; j < across; j++) {                                              \
                float *column = to + j * tile * stride + c;                                        \
                read_##tile(half[j], t);                                                           \
                UNROLLED for (int i = 0; i < tile - 1; i++) * (Vector *)(column + i * stride) =    \
                    t[i];                                                                          \
                if (down == tile) *(Vector *)(column + (tile - 1) * stride) = t[tile - 1];         \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void read_##tile##_##element(const void *const *row, float *to, int64_t stride,         \
                                        int64_t channels, int down, int across) {                  \
        int64_t c = channels / LANES * LANES;                                                      \
        read_##tile##_##element##_vectors(row, to, stride, c, down, across);                       \
        if (c == channels) return;                                                                 \
        type rest[tile * tile][LANES];                                                             \
        const void *padded[tile * tile];                                                           \
        pad_rows(row, c *(int64_t)sizeof(type), (channels - c) * (int64_t)sizeof(type), rest,      \
                 sizeof *rest, padded, tile * tile);                                               \
        read_##tile##_##element##_vectors(padded, to + c, stride, LANES, down, across);            \
    }

#define FOLD(output, tile)                                                                         \
    static void fold_##output##_of_##tile(const float *from, int64_t stride, float *to,            \
                                          int64_t channels, int column, int down) {                \
        for (int64_t c = 0; c < channels; c += LANES) {                                            \
            float *half = to + (c * tile + column * LANES) * output;                               \
            Vector m[tile], y[output];                                                             \
            m[tile - 1] = (Vector){0};                                                             \
            UNROLLED for (int i = 0; i < tile - 1; i++) m[i] =                                     \
                *(const Vector *)(from + i * stride + c);                                          \
            if (down == tile) m[tile - 1] = *(const Vector *)(from + (tile - 1) * stride + c);     \
            write_##output##_of_##tile(m, y);                                                      \
            UNROLLED for (int i = 0; i < output; i++) * (Vector *)(half + i * LANES) = y[i];       \
        }                                                                                          \
    }

#define WRITE(output, tile, element, type)                                                         \
    static OUTLINE void write_##output##_of_##tile##_##element##_vectors(                          \
        const float *from, type *out, int64_t line, int64_t column, int rows, int columns,         \
        int64_t channels) {                                                                        \
        for (int64_t c = 0; c < channels; c += LANES) {                                            \
            ROLLED for (int i = 0; i < rows; i++) {                                                \
                const float *half = from + c * tile * output + i * LANES;                          \
                type *to = out + i * line + c;                                                     \
                Vector m[tile], y[output];                                                         \
                m[tile - 1] = (Vector){0};                                                         \
                UNROLLED for (int j = 0; j < tile - 1; j++) m[j] =                                 \
                    *(const Vector *)(half + j * output * LANES);                                  \
                if (columns == output)                                                             \
                    m[tile - 1] = *(const Vector *)(half + (tile - 1) * output * LANES);           \
                write_##output##_of_##tile(m, y);                                                  \
                ROLLED for (int j = 0; j < columns; j++) store_##element(to + j * column, y[j]);   \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void write_##output##_of_##tile##_##element(const float *from, void *out, int64_t line, \
                                                       int64_t column, int rows, int columns,      \
                                                       int64_t channels) {                         \
        int64_t c = channels / LANES * LANES;                                                      \
        write_##output##_of_##tile##_##element##_vectors(from, out, line, column, rows, columns,   \
                                                         c);                                       \
        if (c == channels) return;                                                                 \
        type rest[output * output * LANES];                                                        \
        write_##output##_of_##tile##_##element##_vectors(                                          \
            from + c * tile * output, rest, output * LANES, LANES, rows, columns, LANES);          \
        for (int i = 0; i < rows; i++)                                                             \
            for (int j = 0; j < columns; j++)                                                      \
                memcpy((type *)out + i * line + j * column + c, rest + (i * output + j) * LANES,   \
                       (size_t)(channels - c) * sizeof(type));                                     \
    }

/* Of the square of 4 x 4 whose channels begin at row[position] the values at all points. */
static void spread_squares(const float *const *row, float *to, int64_t stride, int64_t channels) {
    for (int64_t c = 0; c < channels; c += LANES) {
        Vector half[6][4], d[4], t[6];
        ROLLED for (int i = 0; i < 4; i++) {
            UNROLLED for (int j = 0; j < 4; j++) d[j] = load_f32(row[4 * i + j] + c);
            spread_4_to_6(d, t);
            UNROLLED for (int j = 0; j < 6; j++) half[j][i] = t[j];
        }
        ROLLED for (int j = 0; j < 6; j++) {
            float *column = to + j * 6 * stride + c;
            spread_4_to_6(half[j], t);
            UNROLLED for (int i = 0; i < 6; i++) * (Vector *)(column + i * stride) = t[i];
        }
    }
}

static void spread_4_to_6_f32(const void *const *row, float *to, int64_t stride, int64_t channels) {
    int64_t c = channels / LANES * LANES;
    spread_squares((const float *const *)row, to, stride, c);
    if (c == channels) return;
    float rest[16][LANES];
    const void *padded[16];
    int64_t bytes = (int64_t)sizeof(float);
    pad_rows(row, c * bytes, (channels - c) * bytes, rest, sizeof *rest, padded, 16);
    spread_squares((const float *const *)padded, to + c, stride, LANES);
}

#define EACH_ELEMENT(M, ...)                                                                       \
    M(__VA_ARGS__, f32, float) M(__VA_ARGS__, bf16, uint16_t) M(__VA_ARGS__, f16, uint16_t)
#define WRITES(output, tile) FOLD(output, tile) EACH_ELEMENT(WRITE, output, tile)
EACH_ELEMENT(READ, 4)
EACH_ELEMENT(READ, 6)
EACH_ELEMENT(READ, 7)
EACH_ELEMENT(READ, 9)
WRITES(2, 4)
WRITES(2, 6)
WRITES(4, 6)
FOLD(3, 6)
WRITE(3, 6, f32, float)
WRITES(3, 7)
WRITES(5, 7)
WRITES(5, 9)
WRITES(7, 9)

/* ---- weights ------------------------------------------------------------------------------ */

/* G: [tile][kernel]. The points are those of the lines above, in their order. */
static void make_g(int tile, int kernel, double g[][WINOGRAD_MAX_KERNEL]) {
    static const double points_4[] = {0, 1, -1}, points_6[] = {0, P, -P, Q, -Q};
    static const double points_7[] = {R, -R, S, -S, T, -T};
    static const double points_9[] = {U, -U, V, -V, W, -W, X, -X};
    static const double *const points[] = {
        [4] = points_4, [6] = points_6, [7] = points_7, [9] = points_9};
    const double *point = points[tile];
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

#define WEIGHT(tile, kernel)                                                                       \
    static void weight_##tile##_##kernel(const float *from, float *to, int64_t stride) {           \
        weight(tile, kernel, from, to, stride);                                                    \
    }
WEIGHT(4, 3)
WEIGHT(6, 3)
WEIGHT(6, 5)
WEIGHT(7, 3)
WEIGHT(7, 5)
WEIGHT(9, 3)
WEIGHT(9, 5)

#define TYPE(tile, output, kernel)                                                                 \
    {                                                                                              \
        tile, output, kernel, {read_##tile##_f32, read_##tile##_bf16, read_##tile##_f16},          \
            fold_##output##_of_##tile,                                                             \
            {write_##output##_of_##tile##_f32, write_##output##_of_##tile##_bf16,                  \
             write_##output##_of_##tile##_f16},                                                    \
            weight_##tile##_##kernel                                                               \
    }

const WinogradKernels LEVEL_TABLE(winograd_kernels_) = {
    {
        TYPE(4, 2, 3),
        TYPE(6, 4, 3),
        TYPE(6, 2, 5),
        TYPE(7, 5, 3),
        TYPE(7, 3, 5),
        TYPE(9, 7, 3),
        TYPE(9, 5, 5),
    },
    {read_6_f32, spread_4_to_6_f32, fold_3_of_6, write_3_of_6_f32}};
