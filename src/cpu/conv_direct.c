/* Convolution with channels last in x and in the result: the register tile reads the rows of x
 * where they lie, so nothing is gathered or copied.
 *
 *     out[p][o] = sum over positions q, channels i of x[p * stride + q][i] * weight[o][q][i]
 *
 * A tile is a few output positions, of any image, by two vectors of out channels. For each kernel
 * position q it needs one pointer per output position, to a row of channels or, outside of x, to
 * zeros. (q, channels) is cut into units of at most k_bytes, and units into blocks of that
 * size; weights are packed as [group][panel of out channels][q][i], each unit a panel of
 * gemm_kernel.h:
 *
 *     for each block of units:
 *       for each panel of out channels (its weights stay in L2), each tile of positions: rows_tile
 *     at the end: narrow to f16, bf16; epilogue
 *
 * Few channels (a picture) are copied once, channels last, with zeros at the ends of the lines:
 * then a whole line of the kernel is one run of memory, and takes the place of the channels. */
#include "base/parallel.h"
#include "cpu/conv_internal.h"
#include <string.h>

enum {
    BLOCK_TILES = 8,        /* of positions in a task */
    BLOCK_OUTPUTS = 512,    /* out channels of a task */
    LEAST_CHANNELS = 8,     /* fewer make poor loops */
    PACK_BYTES = 64 * 1024, /* of weights between two transpositions: a part of L2 */
    PACK_CHANNELS = 16,     /* whole vectors of them, where there are so many */
    ALIGNMENT = 64
};

static const _Alignas(64) char zeros[GEMM_K_BYTES]; /* a row outside of x */

typedef struct Direct {
    const Convolution *common;
    const ConvolutionTask *task;
    const GemmType *type;
    int64_t element, x_bytes;          /* those of common */
    int64_t inner, kernel;             /* channels of a group; kernel positions */
    int64_t limit, together;           /* elements of a block; packed at once */
    int64_t depth;                     /* k of a packed panel: of all kernel positions */
    int64_t line, line_step;           /* of inner: elements that weight_in steps through; then
                                        * line_step leads to the next of the kernel's line */
    int64_t chunk, chunks, units;      /* channels of a unit; units of one position; of all */
    int64_t panels, panel_bytes;       /* of out channels of a group */
    int64_t total, block, task_panels; /* output positions of all images; of a task; its panels */
    bool by_panel; /* tasks follow each other along positions: weights, the larger part, stay in the
                    * cache; else along panels, and the rows of x stay there */
    const char *packed;
} Direct;

/* Few channels, in lines of the kernel that are long enough together. */
static bool is_narrow(const ConvolutionTask *s) {
    return s->groups == 1 && s->channels < LEAST_CHANNELS && s->dilation[2] == 1 &&
           s->channels * s->kernel[2] >= LEAST_CHANNELS;
}

bool conv_is_direct(const ConvolutionTask *s) {
    if (!s->channels_last) return false;
    if (is_narrow(s)) return true;
    return s->x_channel == 1 && s->channels / s->groups >= LEAST_CHANNELS;
}

bool conv_direct_is_bf16(const ConvolutionTask *task) {
    (void)task;
    return gemm_bf16() && gemm_bf16()->rows_tile;
}

/* The same convolution over a copy of x with padded lines, a line of the kernel as its channels. */
static void narrow(ConvolutionTask *s) {
    int64_t width = s->in_size[2] + 2 * s->padding[2];
    s->x_offset = 0, s->x_channel = 1;
    s->x_spatial[2] = s->channels;
    s->x_spatial[1] = width * s->channels;
    s->x_spatial[0] = s->in_size[1] * s->x_spatial[1];
    s->x_batch = s->in_size[0] * s->x_spatial[0];
    s->channels *= s->kernel[2];
    s->in_size[2] = width - s->kernel[2] + 1;
    s->padding[2] = 0, s->kernel[2] = 1;
}

/* Enough tasks for the threads: first fewer positions, then fewer panels in each. */
static void cut(Direct *d) {
    int64_t rows = d->type->rows, tiles = divide_up(d->total, rows);
    int64_t wanted = 4 * parallel_threads(), groups = d->task->groups;
    int64_t block = BLOCK_TILES, panels = divide_up(BLOCK_OUTPUTS, d->type->columns);
    panels = least(panels, d->panels);
    while (block > 2 && divide_up(tiles, block) * divide_up(d->panels, panels) * groups < wanted)
        block = (block + 1) / 2;
    while (panels > 2 && divide_up(tiles, block) * divide_up(d->panels, panels) * groups < wanted)
        panels = (panels + 1) / 2;
    block = divide_up(tiles, divide_up(tiles, block));
    d->block = block * rows;
    d->task_panels = divide_up(d->panels, divide_up(d->panels, panels));
}

static Direct direct_of(const Convolution *common) {
    const ConvolutionTask *s = &common->task;
    Direct d = {.common = common, .task = s, .type = common->type, .element = common->element};
    int64_t unit = d.type->k_unit;
    d.x_bytes = common->x_bytes;
    d.limit = d.type->k_bytes / common->x_bytes;
    d.inner = s->channels / s->groups;
    d.line = common->line ? common->line : d.inner;
    d.line_step = s->weight_spatial[2];
    d.kernel = s->kernel[0] * s->kernel[1] * s->kernel[2];
    d.together = d.type->together;
    d.chunk = round_up(divide_up(d.inner, divide_up(d.inner, d.limit)), unit);
    d.chunks = divide_up(d.inner, d.chunk);
    d.units = d.kernel * d.chunks;
    d.depth = d.kernel * round_up(d.inner, unit);
    d.panels = divide_up(common->outputs, d.type->columns);
    d.panel_bytes = d.depth * d.type->columns * d.x_bytes;
    d.total = s->batch * common->positions;
    d.packed = common->packed;
    d.by_panel = d.panels * d.panel_bytes > d.total * d.inner * d.x_bytes;
    cut(&d);
    return d;
}

/* ---- weights ------------------------------------------------------------------------------ */

static int64_t weight_offset(const ConvolutionTask *s, int64_t q) {
    int64_t q2 = q % s->kernel[2], q1 = q / s->kernel[2] % s->kernel[1];
    int64_t q0 = q / s->kernel[2] / s->kernel[1];
    return q0 * s->weight_spatial[0] + q1 * s->weight_spatial[1] + q2 * s->weight_spatial[2];
}

/* Which k of the panel has channel i at kernel position q. */
static int64_t packed_k(const Direct *d, int64_t q, int64_t i) {
    return q * round_up(d->inner, d->type->k_unit) + i;
}

#define PACK(name, type)                                                                           \
    static void name(const Direct *d, type *to, const type *from, int lanes, int width) {          \
        int64_t together = d->together;                                                            \
        for (int64_t q = 0; q < d->kernel; q++) {                                                  \
            for (int64_t i = 0; i < d->inner; i++) {                                               \
                const type *at = from + weight_offset(d->task, q) +                                \
                                 i % d->line * d->task->weight_in + i / d->line * d->line_step;    \
                int64_t k = packed_k(d, q, i);                                                     \
                type *row = to + k / together * together * width + k % together;                   \
                for (int j = 0; j < lanes; j++) row[j * together] = at[j * d->task->weight_out];   \
            }                                                                                      \
        }                                                                                          \
    }
PACK(pack_2, uint16_t)
PACK(pack_4, uint32_t)
PACK(pack_8, uint64_t)

/* Channels and kernel positions that follow each other in memory, some channels at a time: their
 * lanes are transposed as they lie, then whole rows go to their positions. */
static void pack_rows(const Direct *d, char *to, const char *weight, int lanes, int width) {
    if (d->kernel == 1) {
        d->type->pack(to, weight, d->task->weight_out, 1, lanes, width, d->inner);
        return;
    }
    _Alignas(ALIGNMENT) char rows[PACK_BYTES];
    int64_t row = width * d->x_bytes, most = PACK_BYTES / (d->kernel * row);
    if (most > PACK_CHANNELS) most = most / PACK_CHANNELS * PACK_CHANNELS;
    for (int64_t i = 0; i < d->inner; i += most) {
        int64_t channels = least(most, d->inner - i);
        d->type->pack(rows, weight + i * d->kernel * d->x_bytes, d->task->weight_out, 1, lanes,
                      width, channels * d->kernel);
        for (int64_t q = 0; q < d->kernel; q++)
            for (int64_t k = 0; k < channels; k++)
                memcpy(to + packed_k(d, q, i + k) * row, rows + (k * d->kernel + q) * row,
                       (size_t)row);
    }
}

/* A channel's kernel positions follow each other in memory, and so do the channels. */
static bool is_contiguous(const Direct *d) {
    const ConvolutionTask *s = d->task;
    int64_t step = 1;
    bool follows = true;
    for (int k = 2; k >= 0; k--) {
        follows &= s->kernel[k] == 1 || s->weight_spatial[k] == step;
        step *= s->kernel[k];
    }
    return follows && d->together == 1 && d->line == d->inner && s->weight_in == step &&
           step * d->type->columns * d->x_bytes <= PACK_BYTES;
}

static void pack_panel(const Direct *d, char *to, int64_t output, int lanes, int width) {
    const Convolution *c = d->common;
    int64_t from = d->task->weight_offset + output * d->task->weight_out;
    const char *weight = c->weight + from * d->x_bytes;
    if (is_contiguous(d)) {
        pack_rows(d, to, weight, lanes, width);
        return;
    }
    memset(to, 0, (size_t)d->panel_bytes);
    if (d->x_bytes == 2)
        pack_2(d, (uint16_t *)to, (const uint16_t *)weight, lanes, width);
    else if (d->x_bytes == 4)
        pack_4(d, (uint32_t *)to, (const uint32_t *)weight, lanes, width);
    else
        pack_8(d, (uint64_t *)to, (const uint64_t *)weight, lanes, width);
}

static void pack_panels(void *user, int64_t low, int64_t high) {
    const Direct *d = user;
    int width = d->type->columns;
    for (int64_t i = low; i < high; i++) {
        int64_t group = i / d->panels, output = i % d->panels * width;
        pack_panel(d, (char *)d->packed + i * d->panel_bytes, group * d->common->outputs + output,
                   (int)least(width, d->common->outputs - output), width);
    }
}

Storage *conv_direct_pack(Convolution *given) {
    Convolution own = *given, *common = &own;
    if (is_narrow(&own.task)) {
        own.line = own.task.channels;
        narrow(&own.task);
    }
    Direct d = direct_of(common);
    Storage *storage = storage_new((size_t)(d.task->groups * d.panels * d.panel_bytes));
    if (!storage) return NULL;
    d.packed = storage->data;
    parallel_for(d.task->groups * d.panels, divide_up(128 * 1024, d.panel_bytes), pack_panels, &d);
    return storage;
}

/* ---- rows of x ---------------------------------------------------------------------------- */

typedef struct DirectPart {
    int64_t group, first, count; /* positions, of all images */
    int64_t panel, panels;
    const void **row; /* [tile][unit][row of the tile] */
    char *sum;        /* element (first position, first out channel of the task) */
    int64_t stride;   /* of sum, from position to position */
} DirectPart;

typedef struct
    DirectLine {       /* positions of one task that follow each other along the last spatial dim */
    int64_t at, count; /* number in the task */
    int64_t out[3];    /* of the first */
    const char *x;     /* the image, at the group's first channel */
} DirectLine;

static DirectLine line_at(const Direct *d, const DirectPart *t, int64_t at) {
    const ConvolutionTask *s = d->task;
    int64_t p = t->first + at, image = p / d->common->positions, rest = p % d->common->positions;
    DirectLine line = {.at = at};
    line.out[0] = rest / s->out_size[2] / s->out_size[1];
    line.out[1] = rest / s->out_size[2] % s->out_size[1];
    line.out[2] = rest % s->out_size[2];
    line.count = least(t->count - at, s->out_size[2] - line.out[2]);
    line.x = d->common->x + (s->x_offset + image * s->x_batch + t->group * d->inner) * d->x_bytes;
    return line;
}

/* Rows of `count` positions from number `at` of the task on, for the units of one kernel position:
 * `step` bytes apart, and a unit's channels behind those of the one before; or all zeros. */
static void set_rows(const Direct *d, const DirectPart *t, int64_t at, int64_t count, int64_t u,
                     const char *x, int64_t step) {
    int64_t rows = d->type->rows, chunk = x == zeros ? 0 : d->chunk * d->x_bytes;
    while (count > 0) {
        int64_t lane = at % rows, here = least(count, rows - lane);
        const void **row = t->row + (at / rows * d->units + u) * rows + lane;
        for (int64_t c = 0; c < d->chunks; c++, row += rows)
            for (int64_t i = 0; i < here; i++) row[i] = x + c * chunk + i * step;
        at += here, count -= here, x += here * step;
    }
}

/* The rows that a line's positions need at kernel position q, whose first unit is u; zeros outside
 * of x. */
static void line_rows(const Direct *d, const DirectPart *t, const DirectLine *line,
                      const int64_t *q, int64_t u) {
    const ConvolutionTask *s = d->task;
    int64_t at[3], from = 0, step = s->stride[2] * s->x_spatial[2];
    bool inside = true;
    for (int k = 0; k < 3; k++) {
        at[k] = line->out[k] * s->stride[k] + q[k] * s->dilation[k] - s->padding[k];
        from += at[k] * s->x_spatial[k];
        if (k < 2) inside &= (uint64_t)at[k] < (uint64_t)s->in_size[k];
    }
    /* Positions before x, and those up to its end. */
    int64_t before = at[2] < 0 ? divide_up(-at[2], s->stride[2]) : 0;
    int64_t within =
        inside && at[2] < s->in_size[2] ? divide_up(s->in_size[2] - at[2], s->stride[2]) : 0;
    before = least(before, line->count), within = least(within, line->count);
    if (within < before) within = before;
    set_rows(d, t, line->at, before, u, zeros, 0);
    set_rows(d, t, line->at + before, within - before, u,
             line->x + (from + before * step) * d->x_bytes, step * d->x_bytes);
    set_rows(d, t, line->at + within, line->count - within, u, zeros, 0);
}

static void find_rows(const Direct *d, const DirectPart *t) {
    const ConvolutionTask *s = d->task;
    for (int64_t at = 0; at < t->count;) {
        DirectLine line = line_at(d, t, at);
        int64_t q[3], u = 0;
        for (q[0] = 0; q[0] < s->kernel[0]; q[0]++)
            for (q[1] = 0; q[1] < s->kernel[1]; q[1]++)
                for (q[2] = 0; q[2] < s->kernel[2]; q[2]++, u += d->chunks)
                    line_rows(d, t, &line, q, u);
        at += line.count;
    }
}

/* ---- tasks -------------------------------------------------------------------------------- */

/* Channels of unit u, and how many units from there on make a block of equal ones. */
static int64_t unit_channels(const Direct *d, int64_t u) {
    return least(d->chunk, d->inner - u % d->chunks * d->chunk);
}

static int64_t block_units(const Direct *d, int64_t u) {
    if (d->chunks > 1) return 1;
    return least(d->units - u, d->limit / d->inner);
}

static void multiply(const Direct *d, const DirectPart *t, int64_t u, int64_t k_before) {
    const GemmType *type = d->type;
    int64_t k = unit_channels(d, u), taps = block_units(d, u);
    for (int64_t panel = 0; panel < t->panels; panel++) {
        int64_t output = (t->panel + panel) * type->columns;
        const char *b = d->packed + (t->group * d->panels + t->panel + panel) * d->panel_bytes +
                        k_before * type->columns * d->x_bytes;
        int columns = (int)least(type->columns, d->common->outputs - output);
        for (int64_t i = 0; i < t->count; i += type->rows) {
            const void **row = t->row + (i * d->units + u * type->rows);
            char *to = t->sum + (i * t->stride + panel * type->columns) * d->element;
            int rows = (int)least(type->rows, t->count - i);
            type->rows_tile(taps, k, row, b, to, t->stride, rows, columns, u > 0);
        }
    }
}

static void run_task(const Direct *d, DirectPart *t, char *scratch) {
    const Convolution *c = d->common;
    int64_t output = t->panel * d->type->columns;
    int64_t columns = least(t->panels * d->type->columns, c->outputs - output);
    int64_t first = t->first * d->task->out_channels + t->group * c->outputs + output;
    t->sum = c->narrow ? scratch : c->out + first * d->element;
    t->stride = c->narrow ? columns + GEMM_SUM_GAP : d->task->out_channels;
    find_rows(d, t);
    for (int64_t u = 0, k = 0; u < d->units;) {
        multiply(d, t, u, k);
        int64_t taps = block_units(d, u);
        k += taps * round_up(unit_channels(d, u), d->type->k_unit);
        u += taps;
    }
    conv_finish(c, first, d->task->out_channels, t->count, columns, (const float *)t->sum,
                t->stride);
}

static void run_tasks(void *user, int64_t low, int64_t high) {
    const Direct *d = user;
    int64_t blocks = divide_up(d->total, d->block);
    int64_t panel_blocks = divide_up(d->panels, d->task_panels);
    int64_t pointers = round_up(d->block * d->units * (int64_t)sizeof(void *), ALIGNMENT);
    int64_t sum_row = d->task_panels * d->type->columns + GEMM_SUM_GAP;
    int64_t sums = d->common->narrow ? d->block * sum_row * d->element : 0;
    Storage *storage = storage_new((size_t)(pointers + sums));
    if (!storage) {
        atomic_store_explicit(d->common->failed, true, memory_order_relaxed);
        return;
    }
    for (int64_t i = low; i < high; i++) {
        int64_t rest = i % (blocks * panel_blocks);
        int64_t panel = d->by_panel ? rest / blocks : rest % panel_blocks;
        int64_t block = d->by_panel ? rest % blocks : rest / panel_blocks;
        DirectPart t = {.panel = panel * d->task_panels, .row = storage->data};
        t.panels = least(d->task_panels, d->panels - t.panel);
        t.first = block * d->block;
        t.count = least(d->block, d->total - t.first);
        t.group = i / (blocks * panel_blocks);
        run_task(d, &t, (char *)storage->data + pointers);
    }
    storage_release(storage);
}

/* ---- few channels ------------------------------------------------------------------------- */

typedef struct LineCopy { /* of x, channels last, with padded lines */
    const Convolution *from;
    char *to;
} LineCopy;

#define COPY_LINES(name, type)                                                                     \
    static void name##_line(type *to, const type *from, int64_t count, int64_t step,               \
                            int64_t channels, int64_t channel) {                                   \
        const type *second = from + channel, *third = second + channel;                            \
        for (int64_t i = 0; i < count && channels == 3; i++, to += 3) /* a picture: a pass */      \
            to[0] = from[i * step], to[1] = second[i * step], to[2] = third[i * step];             \
        for (int64_t c = 0; c < channels && channels != 3; c++, from += channel)                   \
            for (int64_t i = 0; i < count; i++) to[i * channels + c] = from[i * step];             \
    }                                                                                              \
    static void name(void *user, int64_t low, int64_t high) {                                      \
        const LineCopy *copy = user;                                                               \
        const ConvolutionTask *s = &copy->from->task;                                              \
        int64_t pad = s->padding[2] * s->channels, width = s->in_size[2] * s->channels;            \
        for (int64_t line = low; line < high; line++) {                                            \
            int64_t y = line % s->in_size[1], z = line / s->in_size[1] % s->in_size[0];            \
            int64_t n = line / s->in_size[1] / s->in_size[0];                                      \
            const type *from = (const type *)copy->from->x + s->x_offset + n * s->x_batch +        \
                               z * s->x_spatial[0] + y * s->x_spatial[1];                          \
            type *to = (type *)copy->to + line * (width + 2 * pad);                                \
            for (int64_t i = 0; i < pad; i++) to[i] = to[pad + width + i] = 0;                     \
            name##_line(to + pad, from, s->in_size[2], s->x_spatial[2], s->channels,               \
                        s->x_channel);                                                             \
        }                                                                                          \
    }
COPY_LINES(copy_lines_2, uint16_t)
COPY_LINES(copy_lines_4, uint32_t)
COPY_LINES(copy_lines_8, uint64_t)

static Storage *copy_narrow(Convolution *c) {
    ConvolutionTask *s = &c->task;
    int64_t lines = s->batch * s->in_size[0] * s->in_size[1];
    int64_t width = (s->in_size[2] + 2 * s->padding[2]) * s->channels;
    Storage *storage = storage_new((size_t)(lines * width * c->x_bytes));
    if (!storage) return NULL;
    LineCopy copy = {c, storage->data};
    ParallelBody *copy_lines = c->x_bytes == 2   ? copy_lines_2
                               : c->x_bytes == 4 ? copy_lines_4
                                                 : copy_lines_8;
    parallel_for(lines, divide_up(16 * 1024, width), copy_lines, &copy);
    c->x = storage->data;
    c->line = s->channels;
    narrow(s);
    return storage;
}

/* ---- entry -------------------------------------------------------------------------------- */

static void run_direct(const Convolution *common) {
    Direct d = direct_of(common);
    int64_t tasks =
        d.task->groups * divide_up(d.total, d.block) * divide_up(d.panels, d.task_panels);
    int64_t products = d.block * d.task_panels * d.type->columns * d.inner * d.kernel;
    parallel_for(tasks, divide_up(CONV_TASK_PRODUCTS, products), run_tasks, &d);
}

void conv_direct_run(Convolution *common) {
    Convolution own = *common;
    Storage *copy = NULL;
    if (is_narrow(&own.task) && !(copy = copy_narrow(&own))) {
        atomic_store_explicit(own.failed, true, memory_order_relaxed);
        return;
    }
    run_direct(&own);
    if (copy) storage_release(copy);
}
