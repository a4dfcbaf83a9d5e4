/* The recorded model of products: what the methods take (MethodCost), by sizes alone, so that the
 * number of threads changes no result.
 *
 * Multiplying is done by register tiles, and a step of one along k takes as long as what it is
 * longest at: its products (two vectors a cycle), its operands (two loads a cycle: the columns of
 * B, an element of each row of A), or the four cycles after which a sum can be added to again. What
 * else costs is copying: a product that packs its operands pays for each element of them, however
 * few products that element is in; one that reads them where they lie does not, but has smaller
 * tiles. Memory is not counted: all of them read the same, and what is written once more shows in
 * the packing. */
#include "base/round.h"
#include "cpu/gemm_internal.h"
#include <math.h>

/* Cycles. Measured on a Xeon (Sapphire Rapids); what counts is how they compare. */
static const double sum_latency = 4;      /* from a sum to the next one of the same element */
static const double call_cycles = 40;     /* of a tile, with its sums */
static const double pack_beside = .4;     /* an element that is packed beside its neighbours */
static const double pack_across = .35;    /* the same, from a row to a column */
static const double pack_rows = .8;       /* the same of A, whose panels are no whole vectors */
static const double again_cycles = .1;    /* a sum that is read and written once more */
static const double scattered = .2;       /* an element of a result that panels write ... */
static const double scattered_far = .7;   /* ... where that does not fit L2 */
static const double line_cycles = 1.2;    /* of B, packed, that comes from L2 */
static const double scalar_cycles = 1.7;  /* a product by itself */
static const double turn_cycles = 1.3;    /* an element of a result that is turned */
static const double panels_cycles = 1500; /* memory, and cutting the work */
static const double direct_cycles = 400;
static const double item_cycles = 40;
static const double cycle_ns = .4;
/* Of tiles of bf16: a product of four along 32 of k; a row of sums that is moved and rounded; an
 * element that is converted, or packed by itself. */
static const double four_tiles = 84, moved_row = 35, converted = .3, scattered_lane = 2;
enum { TILE_K = 32, FAR_BYTES = 2 << 20, NEAR_BYTES = 32 << 10 };

static const GemmType *type_of(const MatmulTask *s) {
    return gemm_choose(s->dtype, false, false).type;
}

/* A step along k of `rows` x `vectors`. */
static double step_cycles(double rows, double vectors) {
    return fmax(fmax(rows * vectors, rows + vectors) / 2, sum_latency);
}

/* All rows of a panel, in groups of at most so many. */
static double panel_cycles(int64_t m, int64_t k, int most, int vectors) {
    double groups = (double)divide_up(m, most);
    return groups * (call_cycles + (double)k * step_cycles((double)m / groups, vectors));
}

/* By tiles where A lies, of panels as wide as the tile, and of one as narrow as the rest allows. */
static double thin_cycles(const MatmulTask *s, int64_t k) {
    const GemmType *type = type_of(s);
    int64_t rest = s->n % type->columns;
    double full = panel_cycles(s->m, k, type->thin_rows, 2);
    double cycles = (double)(s->n / type->columns) * full;
    if (2 * rest > type->columns) return cycles + full;
    return rest ? cycles + panel_cycles(s->m, k, type->rows, 1) : cycles;
}

static double packed_cycles(const MatmulTask *s, int64_t k, int64_t n, bool beside) {
    return (double)(k * n) * (beside ? pack_beside : s->b_k == 1 ? pack_across : pack_rows);
}

MethodCost gemm_cost_of(double cycles) { return (MethodCost){cycles * cycle_ns, 1}; }

/* ---- methods ---- */

/* Fewer columns than a panel has are two narrow ones, unless they are a power of two: of 12 lanes
 * 8 and 4. */
double gemm_small_cycles(const MatmulTask *s) {
    const GemmType *type = type_of(s);
    if (s->n < GEMM_LEAST_WIDTH) return item_cycles + scalar_cycles * (double)(s->m * s->n * s->k);
    bool two = s->n < type->columns && (s->n & (s->n - 1)) != 0;
    double cycles = item_cycles;
    cycles += two ? 2 * panel_cycles(s->m, s->k, type->rows, 1) : thin_cycles(s, s->k);
    return s->b_n == 1 ? cycles : cycles + packed_cycles(s, s->k, s->n, false);
}

MethodCost gemm_small_cost(const MatmulTask *s, bool constant) {
    (void)constant;
    return gemm_cost_of((double)s->batch * gemm_small_cycles(s));
}

MethodCost gemm_swept_cost(const MatmulTask *s, bool constant) {
    (void)constant;
    double runs = (double)s->k / GEMM_RUN_K, sums = (double)(s->m * s->n);
    double item = 2 * item_cycles + thin_cycles(s, least(s->k, GEMM_RUN_K)) * fmax(runs, 1) +
                  runs * sums * again_cycles;
    return gemm_cost_of(direct_cycles + (double)s->batch * item);
}

MethodCost gemm_tall_cost(const MatmulTask *s, bool constant) {
    (void)constant;
    double bytes = (double)(s->k * s->n) * (double)cb_dtype_size(s->dtype);
    double b = packed_cycles(s, s->k, s->n, s->b_n == 1);
    if (bytes > NEAR_BYTES)
        b += (double)divide_up(s->m, type_of(s)->thin_rows) * bytes / 64 * line_cycles;
    if (dtype_is_half(s->dtype)) b += (double)(s->m * (s->k + s->n)) * converted;
    return gemm_cost_of(direct_cycles + thin_cycles(s, s->k) + b);
}

MethodCost gemm_long_cost(const MatmulTask *s, bool constant) {
    (void)constant;
    double pieces = (double)divide_up(s->k, GEMM_LONG_PIECE), sums = (double)(s->m * s->n);
    double b = s->b_n == 1 ? 0 : packed_cycles(s, s->k, s->n, false);
    return gemm_cost_of(direct_cycles + thin_cycles(s, s->k) + b + pieces * sums);
}

/* B that never changes is packed once. */
MethodCost gemm_panels_cost(const MatmulTask *s, bool constant) {
    const GemmType *type = type_of(s);
    int64_t panels = divide_up(s->n, type->columns), sums = s->m * s->n;
    double a = (double)(s->m * s->k) * (s->a_m == 1 ? pack_beside : pack_rows);
    double b = packed_cycles(s, s->k, panels * type->columns, s->b_n == 1);
    if (dtype_is_half(s->dtype)) {
        a += (double)(s->m * s->k) * 2 * converted + (double)(s->m * panels) * moved_row;
        b += (double)(s->k * s->n) * 2 * converted;
    }
    bool far = sums * (int64_t)cb_dtype_size(s->dtype) > FAR_BYTES;
    double item = (double)(panels + divide_up(s->m, type->rows)) * item_cycles;
    item += a + (constant && gemm_copies(s) ? 0 : b) +
            (double)panels * panel_cycles(s->m, s->k, type->rows, 2) +
            (double)sums * (far ? scattered_far : scattered);
    return gemm_cost_of(panels_cycles + (double)s->batch * item);
}

/* By what multiplies bf16 itself: tiles of AMX, or dot products of pairs. */
MethodCost gemm_bf16_cost(const MatmulTask *s, bool constant) {
    const GemmType *type = gemm_bf16();
    int64_t panels = divide_up(s->n, type->columns), groups = divide_up(s->m, type->rows);
    double each = s->a_k == 1 || s->a_m == 1 ? converted : scattered_lane;
    double a = (double)(s->m * s->k) * (each + (s->dtype == CB_F32 ? converted : 0));
    double b = (double)(panels * type->columns * s->k) * converted;
    double item = a + (constant && gemm_copies(s) ? 0 : b) + (double)(s->m * panels) * moved_row;
    if (type->rows_tile)
        item += (double)panels * panel_cycles(s->m, divide_up(s->k, 2), type->rows, 2);
    else
        item += (double)(panels * groups) *
                (call_cycles + (double)divide_up(s->k, TILE_K) * four_tiles);
    return gemm_cost_of(panels_cycles + (double)s->batch * item);
}

/* The result is computed by rows of B, and turned. */
double gemm_turned_cycles(const MatmulTask *s) {
    const GemmType *type = type_of(s);
    int64_t half = type->columns / 2, halves = divide_up(s->m, half);
    double a = (double)(s->m * s->k) * (s->a_m == 1 ? pack_beside : pack_across);
    double tiles = (double)(halves / 2) * panel_cycles(s->n, s->k, type->rows, 2) +
                   (double)(halves % 2) * panel_cycles(s->n, s->k, type->rows, 1);
    return panels_cycles + a + tiles + (double)(s->m * s->n) * turn_cycles;
}
