/* Winograd convolution (Lavin & Gray 2015, arXiv:1509.09308): stride 1, no dilation, no groups,
 * channels last, 3x3 and 5x5 kernels; f32, bf16 and f16, computed in f32.
 *
 * x is cut into overlapping square tiles, the result into squares of `output` positions a side.
 * With the transforms of winograd_kernel.c a result is, at each of the points of a tile, a product
 * over channels alone, and there are fewer points than positions times kernel positions:
 *
 *     F(2x2, 3x3)  16 points for 36 multiplications
 *     F(4x4, 3x3)  36 for 144    F(5x5, 3x3)  49 for 225
 *     F(2x2, 5x5)  36 for 100    F(3x3, 5x5)  49 for 225
 *     F(7x7, 3x3)  81 for 441    F(5x5, 5x5)  81 for 625
 *
 *     x -> read[tile][point][channel] -> sum[point][tile][out channel] -> half -> result
 *
 * A task is a block of tiles and a range of panels. It goes by columns of points, so that what it
 * multiplies stays in L2 and its sums in L1; weights are transformed once, to [column][panel of out
 * channels][point of the column][channel][lane of the panel], the order in which they are needed:
 *
 *     read the tiles (or, where several tasks share them, all tiles are read before)
 *     for each column of points:
 *       for each panel:
 *         for each point of the column, row of tiles: register tile
 *         fold the sums along the column: half of the transform back
 *     write the tiles, the other half, to the result
 *     epilogue (where several tasks share the tiles, afterwards)
 *
 * An element is one sum in one order, whatever the tasks are.
 *
 * Sizes that are no multiple of `output` end in tiles that lack the last position. They need no
 * points at infinity, in their lines, their columns or both: 13 is 5 + 4 + 4 for F(5x5, 3x3), with
 * 7 + 6 + 6 points. A block keeps tiles of the same points together. */
#include "base/cpu.h"
#include "base/parallel.h"
#include "cpu/conv_internal.h"
#include "cpu/winograd_kernel.h"
#include <string.h>

enum {
    SUM_CHANNELS = 128,  /* of one block of a sum: shorter sums round less */
    READ_CHANNELS = 512, /* that zeros has */
    BLOCK_TILES = 36,    /* of a task: weights are read once for all of them */
    LINE = 64 / sizeof(float),
    POINTS = WINOGRAD_MAX_TILE * WINOGRAD_MAX_TILE
};

static const _Alignas(64) float zeros[READ_CHANNELS]; /* a position outside of x */

typedef struct Cover { /* tiles along a line or a column: `full` ones, then those without the last
                      * position */
    int64_t tiles, full;
} Cover;

typedef struct Winograd {
    const Convolution *common;
    const ConvolutionTask *task;
    const WinogradType *type;
    WinogradElement element;
    int64_t x_bytes; /* of an element of x and the result */
    int points;
    Cover across, down; /* a line, a column */
    int64_t total;      /* tiles of all images */
    int64_t panels, panel_floats;
    int64_t block, task_panels; /* tiles, panels of a task */
    int64_t row, half_row;      /* from tile to tile in read and half, in floats */
    float *shared;              /* read, of all tiles; NULL: tasks read their own */
    const float *packed;
} Winograd;

static const WinogradType *type_of(const Convolution *c) {
    static const WinogradKernels *const of_level[] = CPU_LEVELS(&winograd_kernels_);
    const WinogradType *type = of_level[cpu_level()]->type;
    while (type->tile != c->method->tile || type->kernel != c->task.kernel[1]) type++;
    return type;
}

/* ---- what fits ---------------------------------------------------------------------------- */

static bool is_square(const ConvolutionTask *s, int64_t kernel) {
    return s->kernel[0] == 1 && s->kernel[1] == kernel && s->kernel[2] == kernel;
}

static bool is_read(cb_dtype dtype) {
    return dtype == CB_F32 || dtype == CB_F16 || dtype == CB_BF16;
}

static bool fits(const ConvolutionTask *s) {
    bool flat = s->in_size[0] == 1 && s->out_size[0] == 1 && s->padding[0] == 0;
    for (int d = 1; d < 3; d++) flat &= s->stride[d] == 1 && s->dilation[d] == 1;
    return flat && is_read(s->dtype) && !s->wide && s->groups == 1 && s->channels_last &&
           s->x_channel == 1;
}

bool conv_fits_winograd_4(const ConvolutionTask *s) { return fits(s) && is_square(s, 3); }

bool conv_fits_winograd_67(const ConvolutionTask *s) {
    return fits(s) && (is_square(s, 3) || is_square(s, 5));
}

bool conv_fits_winograd_9(const ConvolutionTask *s) {
    return conv_fits_winograd_67(s) && (s->dtype != CB_F32 || s->reduced);
}

/* ---- cutting the work --------------------------------------------------------------------- */

/* Blocks of tiles, as many as threads or a multiple; fewer tiles are shared by tasks of a few
 * panels each. */
static void cut(Winograd *w) {
    int64_t threads = parallel_threads(), blocks = divide_up(w->total, BLOCK_TILES), parts = 1;
    if (blocks >= threads && blocks < 8 * threads) blocks = round_up(blocks, threads);
    if (blocks < threads) parts = least(w->panels, divide_up(2 * threads, blocks));
    w->block = divide_up(w->total, blocks);
    w->task_panels = divide_up(w->panels, parts);
    w->half_row = w->task_panels * w->common->type->columns * w->type->tile * w->type->output;
}

static Cover cover_of(int64_t size, int64_t output) {
    int64_t tiles = divide_up(size, output), missing = tiles * output - size;
    return (Cover){tiles, missing < tiles ? tiles - missing : 0};
}

static int64_t points_of(int64_t size, int64_t tile, int64_t kernel) {
    Cover cover = cover_of(size, tile - kernel + 1);
    return cover.full * tile + (cover.tiles - cover.full) * (tile - 1);
}

int64_t conv_winograd_points(const ConvolutionTask *s, int64_t tile) {
    return s->batch * points_of(s->out_size[1], tile, s->kernel[1]) *
           points_of(s->out_size[2], tile, s->kernel[2]);
}

static WinogradElement element_of(cb_dtype dtype) {
    if (dtype == CB_BF16) return WINOGRAD_BF16;
    return dtype == CB_F16 ? WINOGRAD_F16 : WINOGRAD_F32;
}

static Winograd winograd_of(const Convolution *common) {
    const ConvolutionTask *s = &common->task;
    const WinogradType *type = type_of(common);
    Winograd w = {.common = common, .task = s, .type = type, .points = type->tile * type->tile};
    w.element = element_of(s->dtype);
    w.x_bytes = common->out_bytes;
    w.down = cover_of(s->out_size[1], type->output);
    w.across = cover_of(s->out_size[2], type->output);
    w.total = s->batch * w.down.tiles * w.across.tiles;
    w.panels = divide_up(s->out_channels, common->type->columns);
    w.panel_floats = s->channels * common->type->columns;
    w.row = round_up(s->channels, LINE); /* an odd number of lines: rows spread over cache sets */
    if (w.row / LINE % 2 == 0) w.row += LINE;
    w.packed = (const float *)common->packed;
    cut(&w);
    return w;
}

/* ---- weights ------------------------------------------------------------------------------ */

/* The kernels from one channel to WINOGRAD_PANEL out channels: [position][lane]. */
static void gather_weights(const Winograd *w, int64_t output, int64_t channel, float *to) {
    const ConvolutionTask *s = w->task;
    int kernel = w->type->kernel, lanes = (int)least(WINOGRAD_PANEL, s->out_channels - output);
    const float *from = (const float *)w->common->weight + s->weight_offset +
                        output * s->weight_out + channel * s->weight_in;
    for (int i = 0; i < kernel; i++)
        for (int j = 0; j < kernel; j++, to += WINOGRAD_PANEL) {
            const float *at = from + i * s->weight_spatial[1] + j * s->weight_spatial[2];
            for (int lane = 0; lane < WINOGRAD_PANEL; lane++)
                to[lane] = lane < lanes ? at[lane * s->weight_out] : 0;
        }
}

static const float *weights_of(const Winograd *w, int point, int64_t panel) {
    int tile = w->type->tile, row = point / tile, column = point % tile;
    return w->packed + ((column * w->panels + panel) * tile + row) * w->panel_floats;
}

/* A work item is WINOGRAD_PANEL out channels: one panel or, of narrower vectors, a few. */
static void pack_weights(void *user, int64_t low, int64_t high) {
    const Winograd *w = user;
    int columns = w->common->type->columns;
    float kernels[WINOGRAD_MAX_KERNEL * WINOGRAD_MAX_KERNEL * WINOGRAD_PANEL];
    float points[POINTS * WINOGRAD_PANEL];
    for (int64_t item = low; item < high; item++) {
        int64_t first = item * WINOGRAD_PANEL / columns;
        int64_t count = least(WINOGRAD_PANEL / columns, w->panels - first);
        for (int64_t channel = 0; channel < w->task->channels; channel++) {
            gather_weights(w, item * WINOGRAD_PANEL, channel, kernels);
            w->type->weight(kernels, points, WINOGRAD_PANEL);
            for (int point = 0; point < w->points; point++)
                for (int64_t p = 0; p < count; p++)
                    memcpy((float *)weights_of(w, point, first + p) + channel * columns,
                           points + point * WINOGRAD_PANEL + p * columns,
                           (size_t)columns * sizeof(float));
        }
    }
}

Storage *conv_winograd_pack(Convolution *common) {
    Winograd w = winograd_of(common);
    Storage *storage = storage_new((size_t)(w.points * w.panels * w.panel_floats) * sizeof(float));
    if (!storage) return NULL;
    w.packed = storage->data;
    parallel_for(divide_up(w.task->out_channels, WINOGRAD_PANEL),
                 divide_up(CONV_TASK_PRODUCTS, 1000 * w.task->channels), pack_weights, &w);
    return storage;
}

/* ---- tiles -------------------------------------------------------------------------------- */

typedef struct WinogradTile {
    int64_t image, y, x; /* of its first position */
    int down, across;    /* points of a column, of a line */
} WinogradTile;

/* The tiles of a block, those with points at infinity in their columns alone first, then those with
 * them in lines and columns, then in lines alone, then without: where each kind ends. */
typedef struct WinogradBlock {
    WinogradTile tile[BLOCK_TILES];
    int64_t end[4];
} WinogradBlock;

/* Where tile `at` of an axis begins. */
static int64_t cover_start(Cover cover, int64_t output, int64_t at) {
    return at * output - (at > cover.full ? at - cover.full : 0);
}

static WinogradTile tile_at(const Winograd *w, int64_t at) {
    int side = w->type->tile, output = w->type->output;
    int64_t rest = at % (w->down.tiles * w->across.tiles);
    int64_t y = rest / w->across.tiles, x = rest % w->across.tiles;
    return (WinogradTile){at / (w->down.tiles * w->across.tiles), cover_start(w->down, output, y),
                          cover_start(w->across, output, x), y < w->down.full ? side : side - 1,
                          x < w->across.full ? side : side - 1};
}

static int kind_of(const Winograd *w, const WinogradTile *tile) {
    bool down = tile->down == w->type->tile, across = tile->across == w->type->tile;
    return down ? across : across ? 2 : 3;
}

static void find_tiles(const Winograd *w, int64_t first, int64_t count, WinogradBlock *block) {
    int64_t next[4] = {0}, end = 0;
    for (int64_t i = 0; i < count; i++) {
        WinogradTile tile = tile_at(w, first + i);
        next[kind_of(w, &tile)]++;
    }
    for (int kind = 0; kind < 4; kind++) {
        block->end[kind] = end + next[kind];
        next[kind] = end, end = block->end[kind];
    }
    for (int64_t i = 0; i < count; i++) {
        WinogradTile tile = tile_at(w, first + i);
        block->tile[next[kind_of(w, &tile)]++] = tile;
    }
}

/* Where the channels of each position of a tile begin; zeros outside of x, and where the tile needs
 * nothing. */
static void find_rows(const Winograd *w, const WinogradTile *tile, const void **row) {
    const ConvolutionTask *s = w->task;
    int side = w->type->tile;
    int64_t y = tile->y - s->padding[1], x = tile->x - s->padding[2];
    const char *image = w->common->x + (s->x_offset + tile->image * s->x_batch) * w->x_bytes;
    for (int i = 0; i < side; i++, y++) {
        bool inside = i < tile->down && (uint64_t)y < (uint64_t)s->in_size[1];
        int64_t size = inside ? s->in_size[2] : 0;
        const char *line = image + (y * s->x_spatial[1] + x * s->x_spatial[2]) * w->x_bytes;
        for (int j = 0; j < side; j++)
            row[i * side + j] = j < tile->across && (uint64_t)(x + j) < (uint64_t)size
                                    ? line + j * s->x_spatial[2] * w->x_bytes
                                    : (const char *)zeros;
    }
}

static void read_tile(const Winograd *w, const WinogradTile *tile, float *to) {
    const void *row[POINTS];
    find_rows(w, tile, row);
    for (int64_t c = 0; c < w->task->channels; c += READ_CHANNELS) {
        w->type->read[w->element](row, to + c, w->row, least(READ_CHANNELS, w->task->channels - c),
                                  tile->down, tile->across);
        for (int i = 0; i < w->points; i++)
            if (row[i] != zeros) row[i] = (const char *)row[i] + READ_CHANNELS * w->x_bytes;
    }
}

static void read_shared(void *user, int64_t low, int64_t high) {
    const Winograd *w = user;
    WinogradBlock block;
    for (int64_t i = low; i < high; i++) {
        int64_t slot = i % w->block;
        if (i == low || slot == 0)
            find_tiles(w, i - slot, least(w->block, w->total - i + slot), &block);
        read_tile(w, &block.tile[slot], w->shared + i * w->points * w->row);
    }
}

/* ---- tasks -------------------------------------------------------------------------------- */

typedef struct WinogradPart {
    int64_t first, count;  /* tiles */
    int64_t panel, panels; /* panels */
    const float *read;     /* [tile][point][channel] */
    float *sum;            /* [point of a column][tile][lane of a panel] */
    float *half;           /* of each tile what fold makes */
    WinogradBlock block;
} WinogradPart;

/* The tiles of a task that have a point. */
static void tiles_of(const Winograd *w, const WinogradPart *t, int row, int column, int64_t *low,
                     int64_t *high) {
    int last = w->type->tile - 1;
    *low = column == last ? t->block.end[0] : 0;
    *high = t->block.end[row == last ? 1 : column == last ? 2 : 3];
}

/* One panel at one point, for all tiles of the task. */
static void multiply(const Winograd *w, const WinogradPart *t, int row, int column, int64_t panel) {
    const GemmType *type = w->common->type;
    const void *from[GEMM_MAX_WIDTH];
    int64_t channels = w->task->channels, first, end;
    tiles_of(w, t, row, column, &first, &end);
    int64_t count = end - first, groups = divide_up(count, type->rows);
    int64_t block = divide_up(channels, divide_up(channels, SUM_CHANNELS));
    const float *read = t->read + (column * w->type->tile + row) * w->row;
    const float *weights = weights_of(w, row * w->type->tile + column, t->panel + panel);
    float *sum = t->sum + row * t->count * type->columns;
    for (int64_t c = 0; c < channels; c += block)
        for (int64_t g = 0; g < groups; g++) { /* rows of about equal height */
            int64_t low = first + count * g / groups, rows = first + count * (g + 1) / groups - low;
            for (int64_t r = 0; r < rows; r++) from[r] = read + (low + r) * w->points * w->row + c;
            const float *b = weights + c * type->columns;
            int64_t k = least(block, channels - c), bytes = k * type->columns * (int64_t)sizeof *b;
            type->rows_tile_ahead(1, k, from, b, sum + low * type->columns, type->columns,
                                  (int)rows, type->columns, c > 0,
                                  &(GemmAhead){(const char *)b + bytes, bytes, g, groups});
        }
}

static void run_column(const Winograd *w, const WinogradPart *t, int column) {
    int64_t columns = w->common->type->columns, low, high;
    tiles_of(w, t, 0, column, &low, &high);
    for (int64_t panel = 0; panel < t->panels; panel++) {
        for (int row = 0; row < w->type->tile; row++) multiply(w, t, row, column, panel);
        int64_t place = panel * columns * w->type->tile * w->type->output;
        for (int64_t i = low; i < high; i++)
            w->type->fold(t->sum + i * columns, t->count * columns,
                          t->half + i * w->half_row + place, columns, column,
                          t->block.tile[i].down);
    }
}

static void write_tiles(const Winograd *w, const WinogradPart *t) {
    const ConvolutionTask *s = w->task;
    int64_t columns = w->common->type->columns, output = t->panel * columns;
    int64_t channels = least(t->panels * columns, s->out_channels - output);
    for (int64_t i = 0; i < t->count; i++) {
        const WinogradTile *at = &t->block.tile[i];
        int64_t position = (at->image * s->out_size[1] + at->y) * s->out_size[2] + at->x;
        w->type->write[w->element](
            t->half + i * w->half_row,
            w->common->out + (position * s->out_channels + output) * w->x_bytes,
            s->out_size[2] * s->out_channels, s->out_channels,
            (int)least(at->down - w->type->kernel + 1, s->out_size[1] - at->y),
            (int)least(at->across - w->type->kernel + 1, s->out_size[2] - at->x), channels);
    }
}

/* The epilogue on the tiles of a task that wrote all of their channels: tiles side by side are runs
 * of memory. */
static void finish_tiles(const Winograd *w, const WinogradPart *t) {
    const ConvolutionTask *s = w->task;
    for (int64_t i = 0; i < t->count;) {
        WinogradTile at = tile_at(w, t->first + i);
        int64_t x = (t->first + i) % w->across.tiles,
                tiles = least(t->count - i, w->across.tiles - x);
        int64_t position = (at.image * s->out_size[1] + at.y) * s->out_size[2] + at.x;
        int64_t end = least(cover_start(w->across, w->type->output, x + tiles), s->out_size[2]);
        conv_epilogue(w->common, position * s->out_channels, s->out_size[2] * s->out_channels,
                      least(at.down - w->type->kernel + 1, s->out_size[1] - at.y),
                      (end - at.x) * s->out_channels);
        i += tiles;
    }
}

static void finish_positions(void *user, int64_t low, int64_t high) {
    const Winograd *w = user;
    int64_t channels = w->task->out_channels;
    conv_epilogue(w->common, low * channels, channels, high - low, channels);
}

static void run_task(const Winograd *w, WinogradPart *t, float *read) {
    find_tiles(w, t->first, t->count, &t->block);
    for (int64_t i = 0; i < t->count && !w->shared; i++)
        read_tile(w, &t->block.tile[i], read + i * w->points * w->row);
    t->read = w->shared ? w->shared + t->first * w->points * w->row : read;
    for (int column = 0; column < w->type->tile; column++) run_column(w, t, column);
    write_tiles(w, t);
    if (!w->shared) finish_tiles(w, t);
}

static void run_tasks(void *user, int64_t low, int64_t high) {
    const Winograd *w = user;
    int64_t columns = w->common->type->columns, parts = divide_up(w->panels, w->task_panels);
    int64_t read = w->shared ? 0 : w->block * w->points * w->row, half = w->block * w->half_row;
    int64_t sum = w->type->tile * w->block * columns;
    Storage *storage = storage_new((size_t)(read + sum + half) * sizeof(float));
    if (!storage) {
        atomic_store_explicit(w->common->failed, true, memory_order_relaxed);
        return;
    }
    float *own = storage->data;
    WinogradPart t = {.sum = own + read, .half = own + read + sum};
    for (int64_t i = low; i < high; i++) {
        t.first = i / parts * w->block, t.panel = i % parts * w->task_panels;
        t.count = least(w->block, w->total - t.first);
        t.panels = least(w->task_panels, w->panels - t.panel);
        run_task(w, &t, own);
    }
    storage_release(storage);
}

/* ---- entry -------------------------------------------------------------------------------- */

void conv_winograd_run(Convolution *common) {
    Winograd w = winograd_of(common);
    int64_t parts = divide_up(w.panels, w.task_panels), blocks = divide_up(w.total, w.block);
    Storage *shared = NULL;
    if (parts > 1) {
        shared = storage_new((size_t)(w.points * w.total * w.row) * sizeof(float));
        if (!shared) {
            atomic_store_explicit(common->failed, true, memory_order_relaxed);
            return;
        }
        w.shared = shared->data;
        parallel_for(w.total, divide_up(CONV_TASK_PRODUCTS, 100 * w.points * w.task->channels),
                     read_shared, &w);
    }
    int64_t products = w.points * w.block * w.task_panels * w.panel_floats;
    parallel_for(blocks * parts, divide_up(CONV_TASK_PRODUCTS, products), run_tasks, &w);
    if (!shared) return;
    storage_release(shared);
    int64_t positions = w.task->batch * common->positions;
    if (common->epilogue)
        parallel_for(positions, divide_up(32 * 1024, w.task->out_channels), finish_positions, &w);
}
