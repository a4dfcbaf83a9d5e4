/* Winograd's method for the gradient of a 3x3 weight, stride 1, f32: a convolution that has 3x3
 * positions, each the sum over a whole picture,
 *
 *     out[r][q][c] = sum over pictures n, positions p of a[n][p + q - padding][r] * b[n][p][c]
 *
 * where a is x of the task, b its weight, pictures are its channels, the lanes r and c its batch
 * and out channels. p is cut into squares of 4 x 4, a into the squares of 6 x 6 that these meet:
 * F(3x3, 4x4) of winograd_kernel.c, 36 multiplications in place of 144. At each point what is left
 * is a product over squares:
 *
 *     a -> rows[point][square][r], b -> columns[point][square][c]
 *     sum[point][r][c] += rows^T columns
 *     sum -> half -> out[r][3][3][c]
 *
 * A task is SIDE lanes r, SIDE lanes c and a part of the squares, SQUARES at a time, so that all of
 * it stays in L2: with more lanes sums would not, with fewer the transforms would take as long.
 * Parts are of so many squares by sizes alone, and are added up in their order. */
#include "base/cpu.h"
#include "base/parallel.h"
#include "cpu/conv_internal.h"
#include "cpu/winograd_kernel.h"
#include <string.h>

enum {
    KERNEL = 3,
    TILE = 6,
    SQUARE = 4,
    POINTS = TILE * TILE,
    SIDE = 64,       /* lanes of a task, both ways */
    SQUARES = 48,    /* that are transformed before they are multiplied: sums stay short, too */
    PART = 128,      /* squares of a part, at least: its sums are read back once */
    MOST_TASKS = 64, /* parts are as many as fill these */
    LINE = 64 / sizeof(float)
};

static const _Alignas(64) float zeros[SIDE]; /* a position outside of a picture */

typedef struct SumsOperand { /* one of both operands */
    const float *at;
    int64_t lanes, lane, picture, down, across; /* how many lanes; strides */
    int64_t size[2], padding[2];
    int tile; /* positions of a square's side */
} SumsOperand;

typedef struct SumsCall {
    const Convolution *common;
    const WinogradSums *type;
    const GemmType *gemm;
    SumsOperand a, b;
    int64_t line_squares, picture_squares, squares; /* of a line of them, a picture, all */
    int64_t rows, columns, parts;                   /* blocks of lanes, of squares */
    float *partial;                                 /* [part][out]; of one part the result */
    int64_t numel;
} SumsCall;

/* ---- what fits ---------------------------------------------------------------------------- */

/* Pictures are summed over: of operands that lie picture by picture, lanes are inside of them. */
static bool lanes_are_inside(const ConvolutionTask *s) {
    bool inside = s->x_batch < s->x_channel && s->weight_out < s->weight_in;
    return inside || s->channels == 1; /* a step that is never taken may be any */
}

bool conv_fits_winograd_sums(const ConvolutionTask *s) {
    bool flat = s->in_size[0] == 1 && s->kernel[0] == 1 && s->padding[0] == 0;
    for (int d = 1; d < 3; d++)
        flat &= s->stride[d] == 1 && s->dilation[d] == 1 && s->out_size[d] == KERNEL;
    return flat && s->dtype == CB_F32 && !s->wide && s->groups == 1 && s->channels_last &&
           lanes_are_inside(s);
}

/* ---- squares ------------------------------------------------------------------------------ */

static const float *position(const SumsOperand *side, const float *picture, int64_t y, int64_t x) {
    bool inside = (uint64_t)y < (uint64_t)side->size[0] && (uint64_t)x < (uint64_t)side->size[1];
    return inside ? picture + y * side->down + x * side->across : NULL;
}

/* Where `lanes` of them begin at each position of a square; lanes that are apart are copied. */
static void find_rows(const SumsCall *w, const SumsOperand *side, int64_t square, int64_t first,
                      int64_t lanes, float (*copy)[SIDE], const void **row) {
    int64_t rest = square % w->picture_squares;
    int64_t y = rest / w->line_squares * SQUARE - side->padding[0];
    int64_t x = rest % w->line_squares * SQUARE - side->padding[1];
    const float *picture =
        side->at + square / w->picture_squares * side->picture + first * side->lane;
    for (int i = 0; i < side->tile * side->tile; i++) {
        const float *at = position(side, picture, y + i / side->tile, x + i % side->tile);
        row[i] = at ? at : zeros;
        if (!at || side->lane == 1) continue;
        for (int64_t lane = 0; lane < lanes; lane++) copy[i][lane] = at[lane * side->lane];
        row[i] = copy[i];
    }
}

static void transform(const SumsCall *w, const SumsOperand *side, int64_t square, int64_t first,
                      float *to, int64_t stride) {
    const void *row[POINTS];
    float copy[POINTS][SIDE];
    int64_t lanes = least(SIDE, side->lanes - first);
    find_rows(w, side, square, first, lanes, copy, row);
    if (side->tile == TILE)
        w->type->read(row, to, stride, lanes, TILE, TILE);
    else
        w->type->spread(row, to, stride, lanes);
}

/* ---- tasks -------------------------------------------------------------------------------- */

typedef struct SumsPart {
    int64_t row, column;   /* first lanes */
    int64_t first, end;    /* squares */
    float *rows, *columns; /* [point][square][lane], points `step` apart */
    float *sum, *half;     /* [point][row][lane]; of one row what fold makes */
    int64_t step;
} SumsPart;

enum { SUM_STEP = SIDE * SIDE + LINE };

static void multiply(const SumsCall *w, const SumsPart *t, int64_t squares, bool add) {
    const GemmType *gemm = w->gemm;
    int64_t rows = least(SIDE, w->a.lanes - t->row), columns = least(SIDE, w->b.lanes - t->column);
    int64_t groups = divide_up(rows, gemm->rows);
    for (int64_t point = 0; point < POINTS; point++)
        for (int64_t c = 0; c < columns; c += gemm->columns)
            for (int64_t g = 0; g < groups; g++) { /* of about equal height */
                int64_t low = rows * g / groups, high = rows * (g + 1) / groups;
                gemm->wide_tile(squares, t->rows + point * t->step + low, SIDE,
                                t->columns + point * t->step + c, SIDE,
                                t->sum + point * SUM_STEP + low * SIDE + c, SIDE, (int)(high - low),
                                add);
            }
}

static void write_back(const SumsCall *w, const SumsPart *t, float *out) {
    int64_t lanes = w->b.lanes, rows = least(SIDE, w->a.lanes - t->row);
    int64_t columns = least(SIDE, lanes - t->column);
    for (int64_t r = 0; r < rows; r++) {
        for (int column = 0; column < TILE; column++)
            w->type->fold(t->sum + column * TILE * SUM_STEP + r * SIDE, SUM_STEP, t->half, columns,
                          column, TILE);
        w->type->write(t->half, out + (t->row + r) * KERNEL * KERNEL * lanes + t->column,
                       KERNEL * lanes, lanes, KERNEL, KERNEL, columns);
    }
}

static void run_task(const SumsCall *w, SumsPart *t, float *out) {
    for (int64_t at = t->first; at < t->end;) {
        int64_t left = t->end - at, squares = divide_up(left, divide_up(left, SQUARES));
        for (int64_t i = 0; i < squares; i++) {
            transform(w, &w->a, at + i, t->row, t->rows + i * SIDE, t->step);
            transform(w, &w->b, at + i, t->column, t->columns + i * SIDE, t->step);
        }
        multiply(w, t, squares, at > t->first);
        at += squares;
    }
    write_back(w, t, out);
}

static void run_tasks(void *user, int64_t low, int64_t high) {
    const SumsCall *w = user;
    int64_t step = SQUARES * SIDE + LINE; /* points fall into different sets of the cache */
    int64_t half = SIDE * TILE * KERNEL;
    Storage *storage = storage_new((size_t)(POINTS * (2 * step + SUM_STEP) + half) * sizeof(float));
    if (!storage) {
        atomic_store_explicit(w->common->failed, true, memory_order_relaxed);
        return;
    }
    SumsPart t = {.rows = storage->data, .step = step};
    t.columns = t.rows + POINTS * step, t.sum = t.columns + POINTS * step;
    t.half = t.sum + POINTS * SUM_STEP;
    for (int64_t i = low; i < high; i++) {
        int64_t block = i % (w->rows * w->columns), part = i / (w->rows * w->columns);
        t.row = block / w->columns * SIDE, t.column = block % w->columns * SIDE;
        t.first = w->squares * part / w->parts, t.end = w->squares * (part + 1) / w->parts;
        run_task(w, &t, w->partial + part * w->numel);
    }
    storage_release(storage);
}

/* Adds up parts, in their order. */
static void join(void *user, int64_t low, int64_t high) {
    const SumsCall *w = user;
    float *out = (float *)w->common->out;
    memcpy(out + low, w->partial + low, (size_t)(high - low) * sizeof *out);
    for (int64_t part = 1; part < w->parts; part++) {
        const float *from = w->partial + part * w->numel;
        for (int64_t i = low; i < high; i++) out[i] += from[i];
    }
}

static void finish(void *user, int64_t low, int64_t high) {
    conv_epilogue(user, low, high - low, 1, high - low);
}

/* ---- entry -------------------------------------------------------------------------------- */

static SumsCall sums_of(const Convolution *common) {
    static const WinogradKernels *const of_level[] = CPU_LEVELS(&winograd_kernels_);
    const ConvolutionTask *s = &common->task;
    SumsCall w = {.common = common, .gemm = common->type, .type = &of_level[cpu_level()]->sums};
    w.a = (SumsOperand){(const float *)common->x + s->x_offset,
                        s->batch,
                        s->x_batch,
                        s->x_channel,
                        s->x_spatial[1],
                        s->x_spatial[2],
                        {s->in_size[1], s->in_size[2]},
                        {s->padding[1], s->padding[2]},
                        TILE};
    w.b = (SumsOperand){(const float *)common->weight + s->weight_offset,
                        s->out_channels,
                        s->weight_out,
                        s->weight_in,
                        s->weight_spatial[1],
                        s->weight_spatial[2],
                        {s->kernel[1], s->kernel[2]},
                        {0, 0},
                        SQUARE};
    w.line_squares = divide_up(s->kernel[2], SQUARE);
    w.picture_squares = w.line_squares * divide_up(s->kernel[1], SQUARE);
    w.squares = s->channels * w.picture_squares;
    w.rows = divide_up(w.a.lanes, SIDE), w.columns = divide_up(w.b.lanes, SIDE);
    int64_t most = divide_up(MOST_TASKS, w.rows * w.columns);
    w.parts = least(most, divide_up(w.squares, PART));
    w.numel = w.a.lanes * KERNEL * KERNEL * w.b.lanes;
    w.partial = (float *)common->out;
    return w;
}

void conv_winograd_sums_run(Convolution *common) {
    SumsCall w = sums_of(common);
    Storage *partial = NULL;
    if (w.parts > 1) {
        partial = storage_new((size_t)(w.parts * w.numel) * sizeof(float));
        if (!partial) {
            atomic_store_explicit(common->failed, true, memory_order_relaxed);
            return;
        }
        w.partial = partial->data;
    }
    int64_t products = POINTS * SIDE * SIDE * divide_up(w.squares, w.parts);
    parallel_for(w.rows * w.columns * w.parts, divide_up(CONV_TASK_PRODUCTS, products), run_tasks,
                 &w);
    if (partial) {
        parallel_for(w.numel, 16 * 1024, join, &w);
        storage_release(partial);
    }
    if (common->epilogue) parallel_for(w.numel, 16 * 1024, finish, common);
}
