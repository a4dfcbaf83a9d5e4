/* Template of the gemm kernels of one element type; gemm_kernel.c includes it once per type, with
 *   ELEMENT      float or double
 *   NAME(x)      x with the type's suffix
 *   TILE_ROWS    rows of the register tile; its columns are two vectors of VECTOR_BYTES
 *   EACH_COUNT   UP_TO_ the same number, EACH_ROW EACH_ it (cpu/tile.h)
 *   LOW, HIGH    of cpu/tile.h, for a vector of the type
 * The tile keeps its accumulators in named variables (c0_0, c0_1, c1_0 ...). There is one function
 * per number of rows, so an edge wastes no work. */

typedef ELEMENT NAME(Vector) __attribute__((vector_size(VECTOR_BYTES)));
typedef ELEMENT NAME(Loose)
    __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(ELEMENT)), may_alias));
typedef ELEMENT NAME(Four) __attribute__((vector_size(4 * sizeof(ELEMENT))));
typedef ELEMENT NAME(LooseFour)
    __attribute__((vector_size(4 * sizeof(ELEMENT)), aligned(sizeof(ELEMENT)), may_alias));
#if VECTOR_BYTES == 64
typedef ELEMENT NAME(Eight) __attribute__((vector_size(8 * sizeof(ELEMENT))));
typedef ELEMENT NAME(LooseEight)
    __attribute__((vector_size(8 * sizeof(ELEMENT)), aligned(sizeof(ELEMENT)), may_alias));
#define Eight NAME(Eight)
#define LooseEight NAME(LooseEight)
#endif

#define Vector NAME(Vector)
#define Loose NAME(Loose)
#define Four NAME(Four)
#define LooseFour NAME(LooseFour)
enum { NAME(LANES) = VECTOR_BYTES / sizeof(ELEMENT), NAME(COLUMNS) = 2 * NAME(LANES) };
#define LANES NAME(LANES)
#define COLUMNS NAME(COLUMNS)

/* ---- register tiles ---- */

#define OPEN(r) Vector c##r##_0 = {0}, c##r##_1 = {0};
#define STEP(r) c##r##_0 += b0 * a[r], c##r##_1 += b1 * a[r];
#define CLOSE(r)                                                                                   \
    {                                                                                              \
        Loose *to = (Loose *)(c + r * stride);                                                     \
        if (add) c##r##_0 += to[0], c##r##_1 += to[1];                                             \
        to[0] = c##r##_0, to[1] = c##r##_1;                                                        \
    }
#define TILE(count)                                                                                \
    static void NAME(tile_##count)(int64_t k, const ELEMENT *a, int64_t a_step, const ELEMENT *b,  \
                                   int64_t b_step, ELEMENT *c, int64_t stride, bool add,           \
                                   const char *next, int64_t step) {                               \
        EACH_##count(OPEN);                                                                        \
        for (; k > 0; k--, a += a_step, b += b_step, next += step) {                               \
            __builtin_prefetch(next), __builtin_prefetch(next + 64);                               \
            Vector b0 = ((const Loose *)b)[0], b1 = ((const Loose *)b)[1];                         \
            EACH_##count(STEP);                                                                    \
        }                                                                                          \
        EACH_##count(CLOSE);                                                                       \
    }
EACH_COUNT(TILE)

typedef void NAME(Tile)(int64_t k, const ELEMENT *a, int64_t a_step, const ELEMENT *b,
                        int64_t b_step, ELEMENT *c, int64_t stride, bool add, const char *next,
                        int64_t step);
#define TILE_NAME(count) NAME(tile_##count),
static NAME(Tile) *const NAME(tiles)[TILE_ROWS] = {EACH_COUNT(TILE_NAME)};

static void NAME(add_columns)(const ELEMENT *full, ELEMENT *to, int64_t stride, int rows,
                              int columns, bool add) {
    for (int r = 0; r < rows; r++, full += COLUMNS, to += stride) {
        int j = 0;
        for (; j + LANES <= columns; j += LANES) {
            Vector sums = *(const Loose *)(full + j);
            if (add) sums += *(const Loose *)(to + j);
            *(Loose *)(to + j) = sums;
        }
        for (; j + 4 <= columns; j += 4) {
            Four sums = *(const LooseFour *)(full + j);
            if (add) sums += *(const LooseFour *)(to + j);
            *(LooseFour *)(to + j) = sums;
        }
        for (; j < columns; j++) to[j] = add ? to[j] + full[j] : full[j];
    }
}

/* A tile that is not full in columns goes through a full one on the stack. */
static inline void NAME(any_tile)(int64_t k, const void *a, const void *b, void *c, int64_t stride,
                                  int rows, int columns, bool add, const char *next,
                                  int64_t step) {
    if (columns == COLUMNS) {
        NAME(tiles)[rows - 1](k, a, TILE_ROWS, b, COLUMNS, c, stride, add, next, step);
        return;
    }
    ELEMENT full[TILE_ROWS * COLUMNS];
    NAME(tiles)[rows - 1](k, a, TILE_ROWS, b, COLUMNS, full, COLUMNS, false, next, step);
    NAME(add_columns)(full, c, stride, rows, columns, add);
}

static void NAME(tile_ahead)(int64_t k, const void *a, const void *b, void *c, int64_t stride,
                             int rows, int columns, bool add, const GemmAhead *ahead) {
    int64_t bytes = ahead->bytes / ahead->parts;
    NAME(any_tile)(k, a, b, c, stride, rows, columns, add, ahead->panel + ahead->part * bytes,
                   (bytes + k - 1) / k);
}

static void NAME(tile)(int64_t k, const void *a, const void *b, void *c, int64_t stride, int rows,
                       int columns, bool add) {
    NAME(any_tile)(k, a, b, c, stride, rows, columns, add, (const char *)b + AHEAD,
                   COLUMNS * (int64_t)sizeof(ELEMENT));
}

/* The same with both panels in wider ones; all columns. What is in L1 already is not asked for. */
static void NAME(wide_tile)(int64_t k, const void *a, int64_t a_step, const void *b, int64_t b_step,
                            void *c, int64_t stride, int rows, bool add) {
    NAME(tiles)[rows - 1](k, a, a_step, b, b_step, c, stride, add, b, 0);
}

/* ---- the same, with the rows of A where they lie ---- */

/* b streams through once: it is asked for long before it is read, across the ends of pages, where
 * the processor's own prefetcher stops. */

#define ROW(r) const ELEMENT *a##r = row[r];
#define ROW_STEP(r) c##r##_0 += b0 * a##r[i], c##r##_1 += b1 * a##r[i];
#define ROWS_TILE(count)                                                                           \
    static void NAME(rows_tile_##count)(int64_t taps, int64_t k, const ELEMENT *const *row,        \
                                        const ELEMENT *b, ELEMENT *c, int64_t stride, bool add,    \
                                        const char *next, int64_t step) {                          \
        EACH_##count(OPEN);                                                                        \
        for (; taps > 0; taps--, row += TILE_ROWS) {                                               \
            EACH_##count(ROW);                                                                     \
            for (int64_t i = 0; i < k; i++, b += COLUMNS, next += step) {                          \
                __builtin_prefetch(next), __builtin_prefetch(next + 64);                           \
                Vector b0 = ((const Loose *)b)[0], b1 = ((const Loose *)b)[1];                     \
                EACH_##count(ROW_STEP);                                                            \
            }                                                                                      \
        }                                                                                          \
        EACH_##count(CLOSE);                                                                       \
    }
EACH_COUNT(ROWS_TILE)

typedef void NAME(RowsTile)(int64_t taps, int64_t k, const ELEMENT *const *row, const ELEMENT *b,
                            ELEMENT *c, int64_t stride, bool add, const char *next, int64_t step);
#define ROWS_TILE_NAME(count) NAME(rows_tile_##count),
static NAME(RowsTile) *const NAME(rows_tiles)[TILE_ROWS] = {EACH_COUNT(ROWS_TILE_NAME)};

static inline void NAME(any_rows_tile)(int64_t taps, int64_t k, const void *const *row,
                                       const void *b, void *c, int64_t stride, int rows,
                                       int columns, bool add, const char *next, int64_t step) {
    const ELEMENT *const *from = (const ELEMENT *const *)row;
    if (columns == COLUMNS) {
        NAME(rows_tiles)[rows - 1](taps, k, from, b, c, stride, add, next, step);
        return;
    }
    ELEMENT full[TILE_ROWS * COLUMNS];
    NAME(rows_tiles)[rows - 1](taps, k, from, b, full, COLUMNS, false, next, step);
    NAME(add_columns)(full, c, stride, rows, columns, add);
}

static void NAME(rows_tile_ahead)(int64_t taps, int64_t k, const void *const *row, const void *b,
                                  void *c, int64_t stride, int rows, int columns, bool add,
                                  const GemmAhead *ahead) {
    int64_t bytes = ahead->bytes / ahead->parts, steps = taps * k;
    NAME(any_rows_tile)(taps, k, row, b, c, stride, rows, columns, add,
                        ahead->panel + ahead->part * bytes, (bytes + steps - 1) / steps);
}

static void NAME(rows_tile)(int64_t taps, int64_t k, const void *const *row, const void *b, void *c,
                            int64_t stride, int rows, int columns, bool add) {
    NAME(any_rows_tile)(taps, k, row, b, c, stride, rows, columns, add, (const char *)b + AHEAD,
                        COLUMNS * (int64_t)sizeof(ELEMENT));
}

/* One vector of columns: half a tile, with all its rows. */
#define HALF_OPEN(r) Vector c##r = {0};
#define HALF_STEP(r) c##r += b0 * a##r[i];
#define HALF_CLOSE(r)                                                                              \
    {                                                                                              \
        Loose *to = (Loose *)(c + r * LANES);                                                      \
        if (add) c##r += *to;                                                                      \
        *to = c##r;                                                                                \
    }
static void NAME(rows_half_tile)(int64_t k, const void *const *rows, const void *panel, void *out,
                                 bool add, const char *next, int64_t step) {
    const ELEMENT *const *row = (const ELEMENT *const *)rows;
    const ELEMENT *b = panel;
    ELEMENT *c = out;
    EACH_ROW(HALF_OPEN);
    EACH_ROW(ROW);
    for (int64_t i = 0; i < k; i++, b += LANES, next += step) {
        __builtin_prefetch(next);
        Vector b0 = *(const Loose *)b;
        EACH_ROW(HALF_STEP);
    }
    EACH_ROW(HALF_CLOSE);
}

/* ---- one channel at a time ---- */

#define CHAIN(r) Vector c##r = {0};
#define CHAIN_STEP(r) c##r += w * *(const Loose *)(x + r * jump);
#define CHAIN_CLOSE(r) *(Loose *)(y + r * pixel + c) = c##r;
#define DEPTHWISE(count)                                                                           \
    static void NAME(depthwise_##count)(                                                           \
        int64_t taps, const ELEMENT *const *row, const ELEMENT *const *weight, int64_t from,       \
        int64_t jump, ELEMENT *y, int64_t pixel, int64_t channels) {                               \
        int64_t c = 0;                                                                             \
        for (; c + LANES <= channels; c += LANES) {                                                \
            EACH_##count(CHAIN);                                                                   \
            for (int64_t t = 0; t < taps; t++) {                                                   \
                const ELEMENT *x = row[t] + from + c;                                              \
                Vector w = *(const Loose *)(weight[t] + c);                                        \
                EACH_##count(CHAIN_STEP);                                                          \
            }                                                                                      \
            EACH_##count(CHAIN_CLOSE);                                                             \
        }                                                                                          \
        for (; c < channels; c++)                                                                  \
            for (int r = 0; r < count; r++) {                                                      \
                ELEMENT sum = 0;                                                                   \
                for (int64_t t = 0; t < taps; t++)                                                 \
                    sum += row[t][from + r * jump + c] * weight[t][c];                             \
                y[r * pixel + c] = sum;                                                            \
            }                                                                                      \
    }
DEPTHWISE(1)
DEPTHWISE(4)
DEPTHWISE(8)

static void NAME(depthwise)(int64_t taps, const void *const *row, const void *const *weight,
                            int64_t count, int64_t jump, void *out, int64_t pixel,
                            int64_t channels) {
    const ELEMENT *const *r = (const ELEMENT *const *)row;
    const ELEMENT *const *w = (const ELEMENT *const *)weight;
    ELEMENT *y = out;
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        NAME(depthwise_8)(taps, r, w, i * jump, jump, y + i * pixel, pixel, channels);
    for (; i + 4 <= count; i += 4)
        NAME(depthwise_4)(taps, r, w, i * jump, jump, y + i * pixel, pixel, channels);
    for (; i < count; i++)
        NAME(depthwise_1)(taps, r, w, i * jump, jump, y + i * pixel, pixel, channels);
}

/* ---- positions as lanes ---- */

#define PLANES_STEP(r) c##r += w * ((const Loose *)x)[r];
#define PLANES_CLOSE(r) ((Loose *)y)[r] = c##r;
static void NAME(planes)(int64_t taps, const int64_t *offset, const void *weight, const void *from,
                         int64_t count, void *out) {
    const ELEMENT *in = from, *each = weight;
    for (ELEMENT *y = out; count > 0; count -= 4 * LANES, in += 4 * LANES, y += 4 * LANES) {
        EACH_4(CHAIN);
        for (int64_t t = 0; t < taps; t++) {
            const ELEMENT *x = in + offset[t], w = each[t];
            EACH_4(PLANES_STEP);
        }
        EACH_4(PLANES_CLOSE);
    }
}

/* ---- few columns, or few of k ---- */

#define THIN_OPEN(r) ThinRow c##r = {0};
#define THIN_STEP(r) c##r += w * a[r * a_m];
#define THIN_CLOSE(r)                                                                              \
    {                                                                                              \
        LooseThinRow *to = (LooseThinRow *)(out + r * stride);                                     \
        if (add) c##r += *to;                                                                      \
        *to = c##r;                                                                                \
    }
#define THIN_OF(name, type, loose, count)                                                          \
    static void NAME(name##_##count)(int64_t k, const ELEMENT *a, int64_t a_m, int64_t a_k,        \
                                     const ELEMENT *b, int64_t b_k, ELEMENT *out, int64_t stride,  \
                                     bool add) {                                                   \
        typedef type ThinRow;                                                                      \
        typedef loose LooseThinRow;                                                                \
        EACH_##count(THIN_OPEN);                                                                   \
        for (; k > 0; k--, a += a_k, b += b_k) {                                                   \
            ThinRow w = *(const LooseThinRow *)b;                                                  \
            IN_REGISTER(w);                                                                        \
            EACH_##count(THIN_STEP);                                                               \
        }                                                                                          \
        EACH_##count(THIN_CLOSE);                                                                  \
    }
#define THIN_FOUR(count) THIN_OF(thin_four, Four, LooseFour, count)
#define THIN_LANES(count) THIN_OF(thin_lanes, Vector, Loose, count)
EACH_COUNT(THIN_FOUR)
EACH_COUNT(THIN_LANES)
#if VECTOR_BYTES == 64
#define THIN_EIGHT(count) THIN_OF(thin_eight, Eight, LooseEight, count)
#define THIN_EIGHT_NAME(count) NAME(thin_eight_##count),
EACH_COUNT(THIN_EIGHT)
#endif

#define THIN_STEP_BOTH(r) c##r##_0 += w0 * a[r * a_m], c##r##_1 += w1 * a[r * a_m];
#define THIN_COLUMNS(count)                                                                        \
    static void NAME(thin_columns_##count)(int64_t k, const ELEMENT *a, int64_t a_m, int64_t a_k,  \
                                           const ELEMENT *b, int64_t b_k, ELEMENT *c,              \
                                           int64_t stride, bool add) {                             \
        EACH_##count(OPEN);                                                                        \
        for (; k > 0; k--, a += a_k, b += b_k) {                                                   \
            Vector w0 = ((const Loose *)b)[0], w1 = ((const Loose *)b)[1];                         \
            IN_REGISTER(w0);                                                                       \
            IN_REGISTER(w1);                                                                       \
            EACH_##count(THIN_STEP_BOTH);                                                          \
        }                                                                                          \
        EACH_##count(CLOSE);                                                                       \
    }
EACH_THIN(THIN_COLUMNS)

typedef void NAME(Thin)(int64_t k, const ELEMENT *a, int64_t a_m, int64_t a_k, const ELEMENT *b,
                        int64_t b_k, ELEMENT *out, int64_t stride, bool add);
#define THIN_FOUR_NAME(count) NAME(thin_four_##count),
#define THIN_LANES_NAME(count) NAME(thin_lanes_##count),
#define THIN_COLUMNS_NAME(count) NAME(thin_columns_##count),
static NAME(Thin) *const NAME(thin_four)[] = {EACH_COUNT(THIN_FOUR_NAME)};
static NAME(Thin) *const NAME(thin_lanes)[] = {EACH_COUNT(THIN_LANES_NAME)};
static NAME(Thin) *const NAME(thin_columns)[] = {EACH_THIN(THIN_COLUMNS_NAME)};

static NAME(Thin) *const *NAME(thin_of)(int width) {
    if (width == COLUMNS) return NAME(thin_columns);
    if (width == LANES) return NAME(thin_lanes);
#if VECTOR_BYTES == 64
    static NAME(Thin) *const eight[] = {EACH_COUNT(THIN_EIGHT_NAME)};
    if (width == 8) return eight;
#endif
    return NAME(thin_four);
}

/* Groups of rows are as large as each other: few sums wait for themselves. */
static void NAME(thin)(int64_t rows, int64_t k, const void *a, int64_t a_m, int64_t a_k,
                       const void *b, int64_t b_k, int width, void *out, int64_t stride,
                       bool add) {
    NAME(Thin) *const *of = NAME(thin_of)(width);
    const ELEMENT *from = a;
    ELEMENT *to = out;
    int64_t most = width == COLUMNS ? THIN_ROWS : TILE_ROWS;
    for (int64_t groups = (rows + most - 1) / most; groups > 0; groups--) {
        int64_t each = (rows + groups - 1) / groups;
        of[each - 1](k, from, a_m, a_k, b, b_k, to, stride, add);
        rows -= each, from += each * a_m, to += each * stride;
    }
}

/* ---- packing ---- */

/* As many lanes as a vector has, each contiguous along k. A block of as many k is transposed in
 * registers. */
static void NAME(pack_lanes)(ELEMENT *out, const ELEMENT *in, int64_t lane_stride, int width,
                             int64_t k) {
    int64_t i = 0;
    for (; i + LANES <= k; i += LANES, out += (int64_t)LANES * width) {
        Vector row[LANES];
        for (int r = 0; r < LANES; r++) row[r] = *(const Loose *)(in + r * lane_stride + i);
        TRANSPOSE(Vector, row, LANES, LOW, HIGH);
        for (int r = 0; r < LANES; r++) *(Loose *)(out + r * width) = row[r];
    }
    for (; i < k; i++, out += width)
        for (int r = 0; r < LANES; r++) out[r] = in[r * lane_stride + i];
}

/* Four lanes, each contiguous along k: 4 x 4 blocks are transposed in registers. The next four
 * lanes are far away in memory, out of the sight of the processor's own prefetcher. */
static void NAME(pack_four)(ELEMENT *out, const ELEMENT *in, int64_t lane_stride, int width,
                            int64_t k) {
    const ELEMENT *r0 = in, *r1 = in + lane_stride, *r2 = r1 + lane_stride, *r3 = r2 + lane_stride;
    int64_t i = 0, ahead = 4 * lane_stride;
    for (; i + 4 <= k; i += 4, out += 4 * width) {
        if (i * sizeof(ELEMENT) % 64 == 0) {
            __builtin_prefetch(r0 + i + ahead), __builtin_prefetch(r1 + i + ahead);
            __builtin_prefetch(r2 + i + ahead), __builtin_prefetch(r3 + i + ahead);
        }
        Four a = *(const LooseFour *)(r0 + i), b = *(const LooseFour *)(r1 + i);
        Four c = *(const LooseFour *)(r2 + i), d = *(const LooseFour *)(r3 + i);
        Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
        Four cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
        Four ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
        Four cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        *(LooseFour *)out = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
        *(LooseFour *)(out + width) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
        *(LooseFour *)(out + 2 * width) = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
        *(LooseFour *)(out + 3 * width) = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
    }
    for (; i < k; i++, out += width) out[0] = r0[i], out[1] = r1[i], out[2] = r2[i], out[3] = r3[i];
}

/* Lanes side by side: whole vectors of a full panel, else parts of some, the last of which may
 * overlap the one before it. From one k to the next it is a row of the matrix, whose lines nobody
 * has asked for yet. */
static void NAME(pack_rows)(ELEMENT *out, const ELEMENT *in, int lanes, int width, int64_t k,
                            int64_t k_stride) {
    for (; k > 0; k--, in += k_stride, out += width) {
        const ELEMENT *ahead = in + PACK_AHEAD * k_stride;
        __builtin_prefetch(ahead), __builtin_prefetch(ahead + lanes - 1);
        int j = 0, rest = lanes - PACK_PART;
        if (lanes == COLUMNS)
            for (; j < COLUMNS; j += LANES) *(Loose *)(out + j) = *(const Loose *)(in + j);
        for (; j <= rest; j += PACK_PART)
            memcpy(out + j, in + j, PACK_PART * sizeof(ELEMENT));
        if (rest >= 0 && j < lanes)
            memcpy(out + rest, in + rest, PACK_PART * sizeof(ELEMENT));
        else
            for (; j < lanes; j++) out[j] = in[j];
    }
}

static void NAME(pack)(void *panel, const void *matrix, int64_t lane_stride, int64_t k_stride,
                       int lanes, int width, int64_t k) {
    ELEMENT *out = panel;
    const ELEMENT *in = matrix;
    if (lanes < width) memset(out, 0, (size_t)(k * width) * sizeof(ELEMENT));
    if (lane_stride == 1) {
        NAME(pack_rows)(out, in, lanes, width, k, k_stride);
    } else {
        int lane = 0;
        if (k_stride == 1)
            for (; lane + LANES <= lanes; lane += LANES)
                NAME(pack_lanes)(out + lane, in + lane * lane_stride, lane_stride, width, k);
        if (k_stride == 1)
            for (; lane + 4 <= lanes; lane += 4)
                NAME(pack_four)(out + lane, in + lane * lane_stride, lane_stride, width, k);
        if (lane < lanes)
            for (int64_t i = 0; i < k; i++)
                for (int j = lane; j < lanes; j++)
                    out[i * width + j] = in[j * lane_stride + i * k_stride];
    }
}

/* ---- products of a few elements ---- */

/* Columns as lanes; those that are not side by side are packed. */
static void NAME(small)(const MatmulTask *task, const void *a, const void *b, void *out) {
    ELEMENT packed[GEMM_SMALL_K * COLUMNS];
    int64_t n = task->n;
    for (int64_t next = 0, width; next < n; next += width) {
        width = gemm_small_width(COLUMNS, n, n - next);
        int64_t j = next + width <= n ? next : n - width;
        const ELEMENT *from = (const ELEMENT *)b + j * task->b_n;
        bool lies = task->b_n == 1;
        if (!lies)
            NAME(pack)(packed, from, task->b_n, task->b_k, (int)width, (int)width, task->k);
        NAME(thin)(task->m, task->k, a, task->a_m, task->a_k, lies ? from : packed,
                   lies ? task->b_k : width, (int)width, (ELEMENT *)out + j, n, false);
    }
}

/* ---- matrix times vector ---- */

/* The halves of a vector added up, down to four lanes. */
static inline void NAME(fold)(Vector v, Four *four) {
    Four quarter[4] = {{0}};
    memcpy(quarter, &v, sizeof v);
    if (LANES == 16) quarter[0] += quarter[2], quarter[1] += quarter[3];
    *four = LANES > 4 ? quarter[0] + quarter[1] : quarter[0];
}

/* What is left of k behind whole vectors goes by four, and up to three by themselves: in rows that
 * are short it is all there is. Each column has its own accumulators, in one order whether it is
 * done alone or with three others. */
#define DOT_OPEN(j)                                                                                \
    Vector s##j##_0 = {0}, s##j##_1 = {0};                                                         \
    Four f##j = {0};
#define DOT_STEP(j)                                                                                \
    {                                                                                              \
        const Loose *from = (const Loose *)(w + j * stride + i);                                   \
        s##j##_0 += x0 * from[0], s##j##_1 += x1 * from[1];                                        \
    }
#define DOT_LANES(j) s##j##_0 += x0 * *(const Loose *)(w + j * stride + i);
#define DOT_FOLD(j) NAME(fold)(s##j##_0 + s##j##_1, &f##j);
#define DOT_FOUR(j) f##j += x4 * *(const LooseFour *)(w + j * stride + i);
#define DOT_SUMS(count)                                                                            \
    EACH_##count(DOT_OPEN);                                                                        \
    int64_t i = 0;                                                                                 \
    for (; i + COLUMNS <= k; i += COLUMNS) {                                                       \
        Vector x0 = *(const Loose *)(x + i), x1 = *(const Loose *)(x + i + LANES);                 \
        EACH_##count(DOT_STEP);                                                                    \
    }                                                                                              \
    if (i + LANES <= k) {                                                                          \
        Vector x0 = *(const Loose *)(x + i);                                                       \
        EACH_##count(DOT_LANES);                                                                   \
        i += LANES;                                                                                \
    }                                                                                              \
    if (i > 0) {                                                                                   \
        EACH_##count(DOT_FOLD);                                                                    \
    }                                                                                              \
    for (; i + 4 <= k; i += 4) {                                                                   \
        Four x4 = *(const LooseFour *)(x + i);                                                     \
        EACH_##count(DOT_FOUR);                                                                    \
    }

static ELEMENT NAME(dot_1)(int64_t k, const ELEMENT *x, const ELEMENT *w) {
    enum { stride = 0 };
    DOT_SUMS(1);
    ELEMENT sum = (f0[0] + f0[2]) + (f0[1] + f0[3]);
    for (; i < k; i++) sum += x[i] * w[i];
    return sum;
}

static void NAME(dot_4)(int64_t k, const ELEMENT *x, const ELEMENT *w, int64_t stride,
                        ELEMENT *y) {
    DOT_SUMS(4);
    Four low = __builtin_shufflevector(f0, f1, 0, 4, 1, 5) +
               __builtin_shufflevector(f0, f1, 2, 6, 3, 7);
    Four high = __builtin_shufflevector(f2, f3, 0, 4, 1, 5) +
                __builtin_shufflevector(f2, f3, 2, 6, 3, 7);
    Four sum = __builtin_shufflevector(low, high, 0, 1, 4, 5) +
               __builtin_shufflevector(low, high, 2, 3, 6, 7);
    for (; i < k; i++)
        sum += x[i] * (Four){w[i], w[stride + i], w[2 * stride + i], w[3 * stride + i]};
    *(LooseFour *)y = sum;
}

static void NAME(dot)(int64_t k, int64_t columns, const void *vector, const void *matrix,
                      int64_t stride, void *result) {
    const ELEMENT *w = matrix;
    ELEMENT *y = result;
    int64_t j = 0;
    for (; j + 4 <= columns; j += 4) NAME(dot_4)(k, vector, w + j * stride, stride, y + j);
    for (; j < columns; j++) y[j] = NAME(dot_1)(k, vector, w + j * stride);
}

/* Eight rows of the matrix at a time, each read from left to right, y in L1. Every element still
 * sums in order of k. */
#define SWEEP_STEP(r) sum += *(const Loose *)(w + r * stride + j) * x[r];
#define SWEEP_STEP_ONE(r) sum += w[r * stride + j] * x[r];
#define SWEEP(count)                                                                               \
    static void NAME(sweep_##count)(int64_t columns, const ELEMENT *x, const ELEMENT *w,           \
                                    int64_t stride, ELEMENT *y) {                                  \
        int64_t j = 0;                                                                             \
        for (; j + LANES <= columns; j += LANES) {                                                 \
            Vector sum = *(const Loose *)(y + j);                                                  \
            EACH_##count(SWEEP_STEP);                                                              \
            *(Loose *)(y + j) = sum;                                                               \
        }                                                                                          \
        for (; j < columns; j++) {                                                                 \
            ELEMENT sum = y[j];                                                                    \
            EACH_##count(SWEEP_STEP_ONE);                                                          \
            y[j] = sum;                                                                            \
        }                                                                                          \
    }
SWEEP(1)
SWEEP(8)

static void NAME(sweep)(int64_t k, int64_t columns, const void *vector, const void *matrix,
                        int64_t stride, void *result) {
    const ELEMENT *x = vector, *w = matrix;
    memset(result, 0, (size_t)columns * sizeof(ELEMENT));
    for (; k >= 8; k -= 8, x += 8, w += 8 * stride) NAME(sweep_8)(columns, x, w, stride, result);
    for (; k > 0; k--, x++, w += stride) NAME(sweep_1)(columns, x, w, stride, result);
}

#undef OPEN
#undef STEP
#undef CLOSE
#undef TILE
#undef TILE_NAME
#undef ROW
#undef ROW_STEP
#undef ROWS_TILE
#undef ROWS_TILE_NAME
#undef CHAIN
#undef CHAIN_STEP
#undef CHAIN_CLOSE
#undef DEPTHWISE
#undef PLANES_STEP
#undef PLANES_CLOSE
#undef THIN_OPEN
#undef THIN_STEP
#undef THIN_CLOSE
#undef THIN_OF
#undef THIN_FOUR
#undef THIN_LANES
#undef THIN_EIGHT
#undef THIN_EIGHT_NAME
#undef THIN_STEP_BOTH
#undef THIN_COLUMNS
#undef THIN_FOUR_NAME
#undef THIN_LANES_NAME
#undef THIN_COLUMNS_NAME
#undef DOT_OPEN
#undef DOT_STEP
#undef DOT_LANES
#undef DOT_FOLD
#undef DOT_FOUR
#undef DOT_SUMS
#undef SWEEP_STEP
#undef SWEEP_STEP_ONE
#undef SWEEP
#undef Vector
#undef Loose
#undef Four
#undef LooseFour
#undef Eight
#undef LooseEight
#undef LANES
#undef COLUMNS
