/* Convolution by gathering: a matrix product whose one factor is never stored. The windows of x are
 * gathered into the panels of the register tiles of gemm (gemm_kernel.h).
 *
 *     out[o][p] = sum over k of weight[o][k] * window[k][p]        k = (channel, kernel position)
 *
 * The weights are packed first, for all tasks. A task is an image, a group and a block of spatial
 * positions; it goes over k by blocks:
 *
 *     for each k block:       gather the windows of the block of positions (stays in L2)
 *       for each panel of weights (L1), each panel of windows: register tile
 *     at the end: narrow to f16, bf16; epilogue
 *
 * Where k is cut depends on k alone. With channels_last the windows are the rows of the product,
 * else its columns. Any strides of x and weight will do. */
#include "base/parallel.h"
#include "cpu/conv_internal.h"

enum {
    WINDOW_BYTES = 256 * 1024, /* gathered windows of one task: a part of L2 */
    ALIGNMENT = 64
};

typedef struct GatherTap { /* one k: an input channel at one kernel position */
    int64_t x,
        weight;    /* element offsets from the window's origin, from the out channel's weights */
    int64_t at[3]; /* the position, times the dilation */
} GatherTap;

typedef struct Gather {
    const Convolution *common;
    const ConvolutionTask *task;
    const GatherTap *tap;
    int64_t element, x_bytes, outputs; /* those of common */
    int64_t taps, tap_block, tap_blocks;
    int64_t block; /* positions of one task */
    int window_width, weight_width;
    int64_t weight_panels;
    char *packed; /* weights: [group][k block][panel] */
} Gather;

/* ---- taps --------------------------------------------------------------------------------- */

/* Channels innermost where they are contiguous in x, else kernel positions: neighbouring k then
 * read neighbouring memory. */
static void list_taps(const ConvolutionTask *s, GatherTap *tap) {
    int64_t channels = s->channels / s->groups, q[3];
    bool inner_channels = s->x_channel == 1;
    int64_t positions = s->kernel[0] * s->kernel[1] * s->kernel[2];
    for (int64_t k = 0; k < channels * positions; k++) {
        int64_t channel = inner_channels ? k % channels : k / positions;
        int64_t position = inner_channels ? k / channels : k % positions;
        q[2] = position % s->kernel[2];
        q[1] = position / s->kernel[2] % s->kernel[1];
        q[0] = position / s->kernel[2] / s->kernel[1];
        tap[k] = (GatherTap){.x = channel * s->x_channel, .weight = channel * s->weight_in};
        for (int d = 0; d < 3; d++) {
            tap[k].at[d] = q[d] * s->dilation[d];
            tap[k].x += tap[k].at[d] * s->x_spatial[d];
            tap[k].weight += q[d] * s->weight_spatial[d];
        }
    }
}

/* ---- weights ------------------------------------------------------------------------------ */

static int64_t panel_elements(const Gather *c) { return c->weight_width * c->tap_block; }

/* The panel of two-byte elements that wait in `rows`, [count][width] without pairs. */
static void pack_pairs(const Gather *c, bool columns, char *panel, const uint16_t *rows, int width,
                       int64_t count) {
    (columns ? c->common->type->pack : c->common->type->pack_rows)(panel, rows, 1, width, width,
                                                                   width, count);
}

static char *weight_panel(const Gather *c, int64_t group, int64_t tap_block, int64_t panel) {
    int64_t number = (group * c->tap_blocks + tap_block) * c->weight_panels + panel;
    return c->packed + number * panel_elements(c) * c->x_bytes;
}

#define PACK(name, type)                                                                           \
    static void name(const Gather *c, type *panel, const type *from, int64_t k, int64_t count,     \
                     int lanes) {                                                                  \
        for (int64_t i = 0; i < count; i++, panel += c->weight_width)                              \
            for (int j = 0; j < c->weight_width; j++)                                              \
                panel[j] =                                                                         \
                    j < lanes ? from[j * c->task->weight_out + c->tap[k + i].weight] : (type)0;    \
    }
PACK(pack_2, uint16_t)
PACK(pack_4, uint32_t)
PACK(pack_8, uint64_t)

static void pack_weights(void *user, int64_t low, int64_t high) {
    const Gather *c = user;
    for (int64_t i = low; i < high; i++) {
        int64_t panel = i % c->weight_panels, rest = i / c->weight_panels;
        int64_t tap_block = rest % c->tap_blocks, group = rest / c->tap_blocks;
        int64_t k = tap_block * c->tap_block, count = least(c->tap_block, c->taps - k);
        int64_t output = panel * c->weight_width;
        int lanes = (int)least(c->weight_width, c->outputs - output);
        int64_t from = c->task->weight_offset + (group * c->outputs + output) * c->task->weight_out;
        char *to = weight_panel(c, group, tap_block, panel);
        const char *weight = c->common->weight + from * c->x_bytes;
        uint16_t rows[GEMM_MAX_WIDTH * GEMM_K_BYTES / 2];
        if (c->x_bytes == 2) {
            pack_2(c, rows, (const uint16_t *)weight, k, count, lanes);
            pack_pairs(c, c->task->channels_last, to, rows, c->weight_width, count);
        } else if (c->x_bytes == 4) {
            pack_4(c, (uint32_t *)to, (const uint32_t *)weight, k, count, lanes);
        } else {
            pack_8(c, (uint64_t *)to, (const uint64_t *)weight, k, count, lanes);
        }
    }
}

/* ---- windows ------------------------------------------------------------------------------ */

typedef struct LaneRun { /* lanes of a panel that lie in one row of positions */
    int lane, count;
    int64_t at[3]; /* of the first lane's window origin in x, padding counted off */
    int64_t from;  /* element offset of that origin */
} LaneRun;

/* Cuts positions [first, first + lanes) at the ends of rows. */
static int find_runs(const Gather *c, int64_t image, int64_t first, int lanes, LaneRun *run) {
    const ConvolutionTask *s = c->task;
    int count = 0;
    for (int lane = 0; lane < lanes;) {
        int64_t p = first + lane, column = p % s->out_size[2];
        LaneRun *r = &run[count++];
        int64_t position[3] = {p / s->out_size[2] / s->out_size[1],
                               p / s->out_size[2] % s->out_size[1], column};
        *r = (LaneRun){.lane = lane, .count = (int)least(lanes - lane, s->out_size[2] - column)};
        r->from = image;
        for (int d = 0; d < 3; d++) {
            r->at[d] = position[d] * s->stride[d] - s->padding[d];
            r->from += r->at[d] * s->x_spatial[d];
        }
        lane += r->count;
    }
    return count;
}

/* The lanes [*low, *high) of a run whose element for this tap lies inside of x. */
static void inside(const ConvolutionTask *s, const LaneRun *run, const GatherTap *tap, int *low,
                   int *high) {
    *low = *high = 0;
    for (int d = 0; d < 2; d++)
        if ((uint64_t)(run->at[d] + tap->at[d]) >= (uint64_t)s->in_size[d]) return;
    int64_t start = run->at[2] + tap->at[2], step = s->stride[2];
    int64_t first = start < 0 ? divide_up(-start, step) : 0;
    int64_t last = start < s->in_size[2] ? divide_up(s->in_size[2] - start, step) : 0;
    if (first >= run->count || last <= first) return;
    *low = (int)first;
    *high = (int)least(last, run->count);
}

#define GATHER(name, type)                                                                         \
    static void name(const Gather *c, type *panel, const LaneRun *run, int runs, int64_t k,        \
                     int64_t count, int lanes) {                                                   \
        const ConvolutionTask *s = c->task;                                                        \
        int64_t step = s->stride[2] * s->x_spatial[2];                                             \
        int width = c->window_width;                                                               \
        for (int64_t i = 0; i < count; i++, panel += width) {                                      \
            const GatherTap *tap = &c->tap[k + i];                                                 \
            for (int r = 0; r < runs; r++) {                                                       \
                int low, high;                                                                     \
                inside(s, &run[r], tap, &low, &high);                                              \
                const type *from = (const type *)c->common->x + run[r].from + tap->x;              \
                type *to = panel + run[r].lane;                                                    \
                for (int j = 0; j < low; j++) to[j] = 0;                                           \
                if (step == 1)                                                                     \
                    for (int j = low; j < high; j++) to[j] = from[j];                              \
                else                                                                               \
                    for (int j = low; j < high; j++) to[j] = from[j * step];                       \
                for (int j = high; j < run[r].count; j++) to[j] = 0;                               \
            }                                                                                      \
            for (int j = lanes; j < width; j++) panel[j] = 0;                                      \
        }                                                                                          \
    }
GATHER(gather_2, uint16_t)
GATHER(gather_4, uint32_t)
GATHER(gather_8, uint64_t)

/* The windows of positions [first, first + lanes) of an image and group for taps [k, k + count). */
static void gather(const Gather *c, char *panel, int64_t image, int64_t first, int lanes, int64_t k,
                   int64_t count) {
    LaneRun run[GEMM_MAX_WIDTH];
    int runs = find_runs(c, image, first, lanes, run);
    uint16_t rows[GEMM_MAX_WIDTH * GEMM_K_BYTES / 2];
    if (c->x_bytes == 2) {
        gather_2(c, rows, run, runs, k, count, lanes);
        pack_pairs(c, !c->task->channels_last, panel, rows, c->window_width, count);
    } else if (c->x_bytes == 4) {
        gather_4(c, (uint32_t *)panel, run, runs, k, count, lanes);
    } else {
        gather_8(c, (uint64_t *)panel, run, runs, k, count, lanes);
    }
}

/* ---- one task ----------------------------------------------------------------------------- */

typedef struct GatherPart {
    int64_t image, group, first, count; /* positions */
    char *windows;
    char *sum; /* element (output 0, position first) */
    int64_t
        stride; /* of sum: from output to output, or with channels_last from position to position */
} GatherPart;

static int64_t out_index(const Gather *c, const GatherPart *p, int64_t output, int64_t position) {
    const ConvolutionTask *s = c->task;
    int64_t channel = p->group * c->outputs + output;
    if (s->channels_last)
        return (p->image * c->common->positions + position) * s->out_channels + channel;
    return (p->image * s->out_channels + channel) * c->common->positions + position;
}

static void multiply_block(const Gather *c, const GatherPart *p, int64_t tap_block) {
    int64_t k = tap_block * c->tap_block, count = least(c->tap_block, c->taps - k);
    int64_t packed = round_up(count, c->common->type->k_unit);
    int64_t window_bytes = c->window_width * packed * c->x_bytes;
    const ConvolutionTask *s = c->task;
    int64_t image =
        s->x_offset + p->image * s->x_batch + p->group * (s->channels / s->groups) * s->x_channel;
    for (int64_t i = 0; i < p->count; i += c->window_width)
        gather(c, p->windows + i / c->window_width * window_bytes, image, p->first + i,
               (int)least(c->window_width, p->count - i), k, count);
    for (int64_t o = 0; o < c->outputs; o += c->weight_width) {
        const char *weights = weight_panel(c, p->group, tap_block, o / c->weight_width);
        int outputs = (int)least(c->weight_width, c->outputs - o);
        for (int64_t i = 0; i < p->count; i += c->window_width) {
            const char *windows = p->windows + i / c->window_width * window_bytes;
            int positions = (int)least(c->window_width, p->count - i);
            if (s->channels_last)
                c->common->type->tile(count, windows, weights,
                                      p->sum + (i * p->stride + o) * c->element, p->stride,
                                      positions, outputs, tap_block > 0);
            else
                c->common->type->tile(count, weights, windows,
                                      p->sum + (o * p->stride + i) * c->element, p->stride, outputs,
                                      positions, tap_block > 0);
        }
    }
}

/* With channels_last the rows of the piece are positions, else channels. */
static void finish(const Gather *c, const GatherPart *p) {
    bool last = c->task->channels_last;
    int64_t first = out_index(c, p, 0, p->first), rows = last ? p->count : c->outputs;
    int64_t step = last ? c->task->out_channels : c->common->positions;
    conv_finish(c->common, first, step, rows, last ? c->outputs : p->count, (const float *)p->sum,
                p->stride);
}

static Storage *own_open(const Gather *c, GatherPart *p) {
    int64_t windows = round_up(c->block, c->window_width) * c->tap_block * c->x_bytes;
    int64_t sums = c->common->narrow ? c->outputs * c->block * c->element : 0;
    Storage *storage = storage_new((size_t)(round_up(windows, ALIGNMENT) + sums));
    if (!storage) return NULL;
    p->windows = storage->data;
    p->sum = p->windows + round_up(windows, ALIGNMENT);
    return storage;
}

static void run_tasks(void *user, int64_t low, int64_t high) {
    const Gather *c = user;
    int64_t blocks = divide_up(c->common->positions, c->block);
    GatherPart p;
    Storage *storage = own_open(c, &p);
    if (!storage) {
        atomic_store_explicit(c->common->failed, true, memory_order_relaxed);
        return;
    }
    const GemmType *type = c->common->type;
    if (type->begin) type->begin();
    for (int64_t task = low; task < high; task++) {
        p.first = task % blocks * c->block;
        p.count = least(c->block, c->common->positions - p.first);
        p.group = task / blocks % c->task->groups;
        p.image = task / blocks / c->task->groups;
        if (c->common->narrow) {
            p.stride = c->task->channels_last ? c->outputs : p.count;
        } else {
            p.sum = c->common->out + out_index(c, &p, 0, p.first) * c->element;
            p.stride = c->task->channels_last ? c->task->out_channels : c->common->positions;
        }
        for (int64_t b = 0; b < c->tap_blocks; b++) multiply_block(c, &p, b);
        finish(c, &p);
    }
    if (type->end) type->end();
    storage_release(storage);
}

/* ---- entry -------------------------------------------------------------------------------- */

static void cut(Gather *c) {
    int64_t limit = c->common->type->k_bytes / c->x_bytes, threads = parallel_threads();
    int64_t unit = c->common->type->k_unit;
    c->tap_block = round_up(divide_up(c->taps, divide_up(c->taps, limit)), unit < 4 ? 4 : unit);
    c->tap_blocks = divide_up(c->taps, c->tap_block);
    c->block = WINDOW_BYTES / (c->tap_block * c->x_bytes) / c->window_width * c->window_width;
    int64_t images = c->task->batch * c->task->groups;
    int64_t wanted = images >= 4 * threads ? 1 : divide_up(4 * threads, images);
    int64_t share = round_up(divide_up(c->common->positions, wanted), c->window_width);
    if (c->block > share) c->block = share;
    if (c->block < c->window_width) c->block = c->window_width;
}

static Gather gather_of(const Convolution *common) {
    const ConvolutionTask *s = &common->task;
    Gather c = {.common = common, .task = s, .element = common->element};
    c.x_bytes = common->x_bytes;
    c.outputs = common->outputs;
    c.taps = s->channels / s->groups * s->kernel[0] * s->kernel[1] * s->kernel[2];
    c.window_width = s->channels_last ? common->type->rows : common->type->columns;
    c.weight_width = s->channels_last ? common->type->columns : common->type->rows;
    c.weight_panels = divide_up(c.outputs, c.weight_width);
    cut(&c);
    return c;
}

static int64_t tap_bytes(const Gather *c) {
    return round_up(c->taps * (int64_t)sizeof(GatherTap), ALIGNMENT);
}

/* Taps and packed weights in one block of memory. */
Storage *conv_gather_pack(Convolution *common) {
    Gather c = gather_of(common);
    int64_t panels = c.task->groups * c.tap_blocks * c.weight_panels;
    Storage *storage =
        storage_new((size_t)(tap_bytes(&c) + panels * panel_elements(&c) * c.x_bytes));
    if (!storage) return NULL;
    list_taps(c.task, storage->data);
    c.tap = storage->data;
    c.packed = (char *)storage->data + tap_bytes(&c);
    parallel_for(panels, divide_up(32 * 1024, panel_elements(&c)), pack_weights, &c);
    return storage;
}

void conv_gather_run(Convolution *common) {
    Gather c = gather_of(common);
    c.tap = (const GatherTap *)common->packed;
    c.packed = (char *)common->packed + tap_bytes(&c);
    int64_t tasks = c.task->batch * c.task->groups * divide_up(common->positions, c.block);
    int64_t products = c.outputs * c.block * c.taps;
    parallel_for(tasks, divide_up(CONV_TASK_PRODUCTS, products), run_tasks, &c);
}
