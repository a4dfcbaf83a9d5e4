/* ConvolutionStep -> the result, as a matrix product whose one factor is never stored: the windows
 * of x are gathered into the panels of the register tiles of gemm (gemm_kernel.h).
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
 * Where k is cut depends on k alone and every element sums in order of k, so the number of threads
 * changes nothing. With channels_last the windows are the rows of the product, else its columns.
 * f16 and bf16 are widened to f32 as a whole before, and narrowed by each task. */
#include "run/conv.h"
#include "base/parallel.h"
#include "run/gemm_internal.h"
#include <string.h>

enum {
    K_BYTES = 2048,             /* of one lane in a k block, as in gemm.c */
    WINDOW_BYTES = 256 * 1024,  /* gathered windows of one task: a part of L2 */
    TASK_PRODUCTS = 250 * 1000, /* multiplications that are worth waking a thread for */
    ALIGNMENT = 64
};

typedef struct Tap { /* one k: an input channel at one kernel position */
    int64_t x,
        weight;    /* element offsets from the window's origin, from the out channel's weights */
    int64_t at[3]; /* the position, times the dilation */
} Tap;

typedef struct Convolution { /* one call of convolution_run */
    ConvolutionStep step;
    const Launch *epilogue;
    void *const *epilogue_buffer;
    const GemmKernels *kernels;
    const GemmType *type;
    int64_t element, input_bytes; /* bytes of one summed element; of one of x, weight, out */
    const char *x, *weight;
    char *out;
    bool half;
    const Tap *tap;
    int64_t taps, tap_block, tap_blocks;
    int64_t positions, block; /* of one image; of one task */
    int64_t outputs;          /* out channels of a group */
    int window_width, weight_width;
    int64_t weight_panels;
    char *packed; /* weights: [group][k block][panel] */
    _Atomic bool *failed;
} Convolution;

static int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
static int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- taps --------------------------------------------------------------------------------- */

/* Channels innermost where they are contiguous in x, else kernel positions: neighbouring k then
 * read neighbouring memory. */
static void list_taps(const ConvolutionStep *s, Tap *tap) {
    int64_t channels = s->channels / s->groups, q[3];
    bool inner_channels = s->x_channel == 1;
    int64_t positions = s->kernel[0] * s->kernel[1] * s->kernel[2];
    for (int64_t k = 0; k < channels * positions; k++) {
        int64_t channel = inner_channels ? k % channels : k / positions;
        int64_t position = inner_channels ? k / channels : k % positions;
        q[2] = position % s->kernel[2];
        q[1] = position / s->kernel[2] % s->kernel[1];
        q[0] = position / s->kernel[2] / s->kernel[1];
        tap[k] = (Tap){.x = channel * s->x_channel, .weight = channel * s->weight_in};
        for (int d = 0; d < 3; d++) {
            tap[k].at[d] = q[d] * s->dilation[d];
            tap[k].x += tap[k].at[d] * s->x_spatial[d];
            tap[k].weight += q[d] * s->weight_spatial[d];
        }
    }
}

/* ---- weights ------------------------------------------------------------------------------ */

static int64_t panel_elements(const Convolution *c) { return c->weight_width * c->tap_block; }

static char *weight_panel(const Convolution *c, int64_t group, int64_t tap_block, int64_t panel) {
    int64_t number = (group * c->tap_blocks + tap_block) * c->weight_panels + panel;
    return c->packed + number * panel_elements(c) * c->element;
}

#define PACK(name, type)                                                                           \
    static void name(const Convolution *c, type *panel, const type *from, int64_t k,               \
                     int64_t count, int lanes) {                                                   \
        for (int64_t i = 0; i < count; i++, panel += c->weight_width)                              \
            for (int j = 0; j < c->weight_width; j++)                                              \
                panel[j] =                                                                         \
                    j < lanes ? from[j * c->step.weight_out + c->tap[k + i].weight] : (type)0;     \
    }
PACK(pack_f32, float)
PACK(pack_f64, double)

static void pack_weights(void *user, int64_t low, int64_t high) {
    const Convolution *c = user;
    for (int64_t i = low; i < high; i++) {
        int64_t panel = i % c->weight_panels, rest = i / c->weight_panels;
        int64_t tap_block = rest % c->tap_blocks, group = rest / c->tap_blocks;
        int64_t k = tap_block * c->tap_block, count = least(c->tap_block, c->taps - k);
        int64_t output = panel * c->weight_width;
        int lanes = (int)least(c->weight_width, c->outputs - output);
        int64_t from = c->step.weight_offset + (group * c->outputs + output) * c->step.weight_out;
        char *to = weight_panel(c, group, tap_block, panel);
        if (c->element == sizeof(float))
            pack_f32(c, (float *)to, (const float *)c->weight + from, k, count, lanes);
        else
            pack_f64(c, (double *)to, (const double *)c->weight + from, k, count, lanes);
    }
}

/* ---- windows ------------------------------------------------------------------------------ */

typedef struct Run { /* lanes of a panel that lie in one row of positions */
    int lane, count;
    int64_t at[3]; /* of the first lane's window origin in x, padding counted off */
    int64_t from;  /* element offset of that origin */
} Run;

/* Cuts positions [first, first + lanes) at the ends of rows. */
static int find_runs(const Convolution *c, int64_t image, int64_t first, int lanes, Run *run) {
    const ConvolutionStep *s = &c->step;
    int count = 0;
    for (int lane = 0; lane < lanes;) {
        int64_t p = first + lane, column = p % s->out_size[2];
        Run *r = &run[count++];
        int64_t position[3] = {p / s->out_size[2] / s->out_size[1],
                               p / s->out_size[2] % s->out_size[1], column};
        *r = (Run){.lane = lane, .count = (int)least(lanes - lane, s->out_size[2] - column)};
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
static void inside(const ConvolutionStep *s, const Run *run, const Tap *tap, int *low, int *high) {
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
    static void name(const Convolution *c, type *panel, const Run *run, int runs, int64_t k,       \
                     int64_t count, int lanes) {                                                   \
        const ConvolutionStep *s = &c->step;                                                       \
        int64_t step = s->stride[2] * s->x_spatial[2];                                             \
        int width = c->window_width;                                                               \
        for (int64_t i = 0; i < count; i++, panel += width) {                                      \
            const Tap *tap = &c->tap[k + i];                                                       \
            for (int r = 0; r < runs; r++) {                                                       \
                int low, high;                                                                     \
                inside(s, &run[r], tap, &low, &high);                                              \
                const type *from = (const type *)c->x + run[r].from + tap->x;                      \
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
GATHER(gather_f32, float)
GATHER(gather_f64, double)

/* The windows of positions [first, first + lanes) of an image and group for taps [k, k + count). */
static void gather(const Convolution *c, char *panel, int64_t image, int64_t first, int lanes,
                   int64_t k, int64_t count) {
    Run run[GEMM_MAX_WIDTH];
    int runs = find_runs(c, image, first, lanes, run);
    if (c->element == sizeof(float))
        gather_f32(c, (float *)panel, run, runs, k, count, lanes);
    else
        gather_f64(c, (double *)panel, run, runs, k, count, lanes);
}

/* ---- one task ----------------------------------------------------------------------------- */

typedef struct Piece {
    int64_t image, group, first, count; /* positions */
    char *windows;
    char *sum; /* element (output 0, position first) */
    int64_t
        stride; /* of sum: from output to output, or with channels_last from position to position */
} Piece;

static int64_t out_index(const Convolution *c, const Piece *p, int64_t output, int64_t position) {
    const ConvolutionStep *s = &c->step;
    int64_t channel = p->group * c->outputs + output;
    if (s->channels_last) return (p->image * c->positions + position) * s->out_channels + channel;
    return (p->image * s->out_channels + channel) * c->positions + position;
}

static void multiply_block(const Convolution *c, const Piece *p, int64_t tap_block) {
    int64_t k = tap_block * c->tap_block, count = least(c->tap_block, c->taps - k);
    int64_t window_bytes = c->window_width * count * c->element;
    const ConvolutionStep *s = &c->step;
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
                c->type->tile(count, windows, weights, p->sum + (i * p->stride + o) * c->element,
                              p->stride, positions, outputs, tap_block > 0);
            else
                c->type->tile(count, weights, windows, p->sum + (o * p->stride + i) * c->element,
                              p->stride, outputs, positions, tap_block > 0);
        }
    }
}

static void run_epilogue(const Convolution *c, int64_t low, int64_t count) {
    const Launch *launch = c->epilogue;
    if (launch->function)
        launch->function(c->epilogue_buffer, low, low + count, 0, NULL);
    else
        program_run(launch->program, c->epilogue_buffer, low, low + count, 0, NULL);
}

/* Rows of the piece as they lie in the result: narrowed, then the epilogue on as much as is
 * contiguous. */
static void finish(const Convolution *c, const Piece *p) {
    bool last = c->step.channels_last;
    int64_t rows = last ? p->count : c->outputs, columns = last ? c->outputs : p->count;
    if (c->half) {
        void (*narrow)(const float *, uint16_t *, int64_t) =
            c->step.dtype == CB_F16 ? c->kernels->narrow_f16 : c->kernels->narrow_bf16;
        for (int64_t r = 0; r < rows; r++) {
            int64_t to = last ? out_index(c, p, 0, p->first + r) : out_index(c, p, r, p->first);
            narrow((const float *)p->sum + r * p->stride, (uint16_t *)c->out + to, columns);
        }
    }
    if (!c->epilogue) return;
    bool whole = last ? columns == c->step.out_channels : columns == c->positions;
    if (whole) {
        run_epilogue(c, out_index(c, p, 0, p->first), rows * columns);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        run_epilogue(c, last ? out_index(c, p, 0, p->first + r) : out_index(c, p, r, p->first),
                     columns);
}

static Storage *own_open(const Convolution *c, Piece *p) {
    int64_t windows = round_up(c->block, c->window_width) * c->tap_block * c->element;
    int64_t sums = c->half ? c->outputs * c->block * c->element : 0;
    Storage *storage = storage_new((size_t)(round_up(windows, ALIGNMENT) + sums));
    if (!storage) return NULL;
    p->windows = storage->data;
    p->sum = p->windows + round_up(windows, ALIGNMENT);
    return storage;
}

static void run_tasks(void *user, int64_t low, int64_t high) {
    const Convolution *c = user;
    int64_t blocks = divide_up(c->positions, c->block);
    Piece p;
    Storage *storage = own_open(c, &p);
    if (!storage) {
        atomic_store_explicit(c->failed, true, memory_order_relaxed);
        return;
    }
    for (int64_t task = low; task < high; task++) {
        p.first = task % blocks * c->block;
        p.count = least(c->block, c->positions - p.first);
        p.group = task / blocks % c->step.groups;
        p.image = task / blocks / c->step.groups;
        if (c->half) {
            p.stride = c->step.channels_last ? c->outputs : p.count;
        } else {
            p.sum = c->out + out_index(c, &p, 0, p.first) * c->element;
            p.stride = c->step.channels_last ? c->step.out_channels : c->positions;
        }
        for (int64_t b = 0; b < c->tap_blocks; b++) multiply_block(c, &p, b);
        finish(c, &p);
    }
    storage_release(storage);
}

/* ---- half precision ----------------------------------------------------------------------- */

typedef struct Widen {
    const Convolution *c;
    const uint16_t *from;
    float *to;
    int64_t inner, inner_stride, size[4], stride[4]; /* inner is the dim of the smallest stride */
} Widen;

static void widen_rows(void *user, int64_t low, int64_t high) {
    const Widen *w = user;
    void (*widen)(const uint16_t *, float *, int64_t) =
        w->c->step.dtype == CB_F16 ? w->c->kernels->widen_f16 : w->c->kernels->widen_bf16;
    for (int64_t row = low; row < high; row++) {
        int64_t from = 0, rest = row;
        for (int d = 3; d >= 0; d--) {
            from += rest % w->size[d] * w->stride[d];
            rest /= w->size[d];
        }
        float *to = w->to + row * w->inner;
        if (w->inner_stride == 1)
            widen(w->from + from, to, w->inner);
        else
            for (int64_t i = 0; i < w->inner; i++)
                widen(w->from + from + i * w->inner_stride, to + i, 1);
    }
}

/* A tensor of five dims: image or out channel, channel, three spatial ones. The copy's innermost dim
 * is the channel where that is contiguous, else the last spatial one. */
typedef struct Five {
    int64_t size[5], *stride[5];
} Five;

static const int *dim_order(const Five *five) {
    static const int channel_last[] = {0, 2, 3, 4, 1}, spatial_last[] = {0, 1, 2, 3, 4};
    return *five->stride[1] == 1 ? channel_last : spatial_last;
}

static void set_contiguous(Five five, const int *order) {
    int64_t step = 1;
    for (int d = 4; d >= 0; d--) {
        *five.stride[order[d]] = step;
        step *= five.size[order[d]];
    }
}

/* The tensor as contiguous f32; its strides are those of the copy afterwards. */
static Storage *widen_all(const Convolution *c, const void *from, int64_t offset, Five five) {
    const int *order = dim_order(&five);
    Widen w = {.c = c, .from = (const uint16_t *)from + offset};
    int64_t rows = 1;
    for (int d = 0; d < 4; d++) {
        w.size[d] = five.size[order[d]], w.stride[d] = *five.stride[order[d]];
        rows *= w.size[d];
    }
    w.inner = five.size[order[4]], w.inner_stride = *five.stride[order[4]];
    Storage *storage = storage_new((size_t)(rows * w.inner) * sizeof(float));
    if (!storage) return NULL;
    w.to = storage->data;
    parallel_for(rows, divide_up(16 * 1024, w.inner + 1), widen_rows, &w);
    set_contiguous(five, order);
    return storage;
}

static Five five_of_x(ConvolutionStep *s) {
    return (Five){
        {s->batch, s->channels, s->in_size[0], s->in_size[1], s->in_size[2]},
        {&s->x_batch, &s->x_channel, &s->x_spatial[0], &s->x_spatial[1], &s->x_spatial[2]}};
}

static Storage *widen_x(Convolution *c) {
    Storage *storage = widen_all(c, c->x, c->step.x_offset, five_of_x(&c->step));
    if (storage) c->x = storage->data, c->step.x_offset = 0;
    return storage;
}

static Storage *widen_weight(Convolution *c) {
    ConvolutionStep *s = &c->step;
    Five five = {
        {s->out_channels, s->channels / s->groups, s->kernel[0], s->kernel[1], s->kernel[2]},
        {&s->weight_out, &s->weight_in, &s->weight_spatial[0], &s->weight_spatial[1],
         &s->weight_spatial[2]}};
    Storage *storage = widen_all(c, c->weight, s->weight_offset, five);
    if (storage) c->weight = storage->data, s->weight_offset = 0;
    return storage;
}

/* ---- entry -------------------------------------------------------------------------------- */

static void cut(Convolution *c) {
    int64_t limit = K_BYTES / c->element, threads = parallel_threads();
    c->tap_block = round_up(divide_up(c->taps, divide_up(c->taps, limit)), 4);
    c->tap_blocks = divide_up(c->taps, c->tap_block);
    c->block = WINDOW_BYTES / (c->tap_block * c->element) / c->window_width * c->window_width;
    int64_t images = c->step.batch * c->step.groups;
    int64_t wanted = images >= 4 * threads ? 1 : divide_up(4 * threads, images);
    int64_t share = round_up(divide_up(c->positions, wanted), c->window_width);
    if (c->block > share) c->block = share;
    if (c->block < c->window_width) c->block = c->window_width;
}

static int64_t tap_bytes(const Convolution *c) {
    return round_up(c->taps * (int64_t)sizeof(Tap), ALIGNMENT);
}

static void use_packed(Convolution *c, const void *packed) {
    c->tap = packed;
    c->packed = (char *)packed + tap_bytes(c);
}

/* Taps and packed weights in one block of memory. */
static Storage *pack(Convolution *c) {
    Storage *widened = c->half ? widen_weight(c) : NULL;
    if (c->half && !widened) return NULL;
    int64_t panels = c->step.groups * c->tap_blocks * c->weight_panels;
    Storage *storage =
        storage_new((size_t)(tap_bytes(c) + panels * panel_elements(c) * c->element));
    if (storage) {
        list_taps(&c->step, storage->data);
        use_packed(c, storage->data);
        parallel_for(panels, divide_up(32 * 1024, panel_elements(c)), pack_weights, c);
    }
    if (widened) storage_release(widened);
    return storage;
}

static bool run(Convolution *c) {
    Storage *x = c->half ? widen_x(c) : NULL, *packed = NULL;
    if (c->half && !x) return false;
    if (c->step.packed)
        use_packed(c, c->step.packed);
    else
        packed = pack(c);
    bool ready = c->step.packed || packed;
    if (ready) {
        int64_t tasks = c->step.batch * c->step.groups * divide_up(c->positions, c->block);
        int64_t products = c->outputs * c->block * c->taps;
        parallel_for(tasks, divide_up(TASK_PRODUCTS, products), run_tasks, c);
    }
    if (packed) storage_release(packed);
    if (x) storage_release(x);
    return ready && !atomic_load_explicit(c->failed, memory_order_relaxed);
}

static bool run_empty_sum(const Convolution *c) {
    int64_t numel = c->step.batch * c->step.out_channels * c->positions;
    memset(c->out, 0, (size_t)(numel * c->input_bytes));
    if (c->epilogue) run_epilogue(c, 0, numel);
    return true;
}

static Convolution convolution_of(const ConvolutionStep *step, const void *x, const void *weight,
                                  void *out) {
    Convolution c = {.step = *step, .x = x, .weight = weight, .out = out};
    c.kernels = gemm_kernels();
    c.half = step->dtype == CB_F16 || step->dtype == CB_BF16;
    c.type = step->dtype == CB_F64 ? &c.kernels->f64 : &c.kernels->f32;
    c.element = step->dtype == CB_F64 ? sizeof(double) : sizeof(float);
    c.input_bytes = (int64_t)cb_dtype_size(step->dtype);
    c.positions = step->out_size[0] * step->out_size[1] * step->out_size[2];
    c.outputs = step->out_channels / step->groups;
    c.taps = step->channels / step->groups * step->kernel[0] * step->kernel[1] * step->kernel[2];
    c.window_width = step->channels_last ? c.type->rows : c.type->columns;
    c.weight_width = step->channels_last ? c.type->columns : c.type->rows;
    c.weight_panels = divide_up(c.outputs, c.weight_width);
    if (c.taps > 0) cut(&c);
    return c;
}

bool convolution_pack(const ConvolutionStep *step, const void *weight, Storage **packed) {
    Convolution c = convolution_of(step, NULL, weight, NULL);
    Five x = five_of_x(&c.step);
    *packed = NULL;
    if (c.taps == 0 || c.outputs == 0 || c.positions == 0) return true;
    if (c.half) set_contiguous(x, dim_order(&x)); /* as widen_x will leave it */
    *packed = pack(&c);
    return *packed != NULL;
}

bool convolution_run(const ConvolutionStep *step, const void *x, const void *weight, void *out,
                     const Launch *epilogue, void *const *epilogue_buffer) {
    _Atomic bool failed = false;
    Convolution c = convolution_of(step, x, weight, out);
    c.epilogue = epilogue;
    c.epilogue_buffer = epilogue_buffer;
    c.failed = &failed;
    if (step->batch * c.outputs * c.positions == 0) return true;
    return c.taps == 0 ? run_empty_sum(&c) : run(&c);
}
