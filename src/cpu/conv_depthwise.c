/* Depthwise convolution, one channel to a group, with channels last: no products over channels, so
 * each vector of channels is summed by itself.
 *
 *     out[p][c] = sum over positions q of the kernel of x[p * stride + q][c] * weight[q][c]
 *
 * A work item is a line of output positions. Where the whole kernel lies inside of x a run of
 * positions is summed at once, with each weight read once for several of them; the positions at the
 * ends of the line and the lines at the edges sum over the taps that lie inside. */
#include "base/parallel.h"
#include "cpu/conv_internal.h"

enum { ALIGNMENT = 64, LINE_COST = 4 /* of a multiplication here, in those of register tiles */ };

typedef struct Depthwise {
    const Convolution *common;
    const ConvolutionTask *task;
    int64_t kernel;      /* positions */
    int64_t first, last; /* output positions of a line whose kernels lie inside */
    int64_t pixel, jump; /* elements from position to position: of the result; of x */
} Depthwise;

typedef struct DepthwiseLine {
    int64_t out[3], image;
    const char **row, **weight; /* taps: x for the first position of a run, and its weights */
    int64_t taps;
    char *sum;
} DepthwiseLine;

bool conv_fits_depthwise(const ConvolutionTask *s) {
    return s->channels_last && s->groups == s->channels && s->groups == s->out_channels &&
           (s->x_channel == 1 || s->channels == 1);
}

/* ---- weights ------------------------------------------------------------------------------ */

/* [kernel position][channel] */
#define PACK(name, type)                                                                           \
    static void name(const ConvolutionTask *s, const type *from, type *to) {                       \
        int64_t q[3];                                                                              \
        for (q[0] = 0; q[0] < s->kernel[0]; q[0]++)                                                \
            for (q[1] = 0; q[1] < s->kernel[1]; q[1]++)                                            \
                for (q[2] = 0; q[2] < s->kernel[2]; q[2]++)                                        \
                    for (int64_t c = 0; c < s->channels; c++)                                      \
                        *to++ = from[s->weight_offset + q[0] * s->weight_spatial[0] +              \
                                     q[1] * s->weight_spatial[1] + q[2] * s->weight_spatial[2] +   \
                                     c * s->weight_out];                                           \
    }
PACK(pack_f32, float)
PACK(pack_f64, double)

static int64_t kernel_positions(const ConvolutionTask *s) {
    return s->kernel[0] * s->kernel[1] * s->kernel[2];
}

Storage *conv_depthwise_pack(Convolution *c) {
    const ConvolutionTask *s = &c->task;
    Storage *storage = storage_new((size_t)(kernel_positions(s) * s->channels * c->element));
    if (!storage) return NULL;
    if (c->element == sizeof(float))
        pack_f32(s, (const float *)c->weight, storage->data);
    else
        pack_f64(s, (const double *)c->weight, storage->data);
    return storage;
}

/* ---- lines -------------------------------------------------------------------------------- */

/* The taps that lie inside of x at position `column` of the line. */
static void list_taps(const Depthwise *d, DepthwiseLine *line, int64_t column) {
    const Convolution *c = d->common;
    const ConvolutionTask *s = d->task;
    int64_t q[3], at[3], number = 0;
    line->taps = 0;
    for (q[0] = 0; q[0] < s->kernel[0]; q[0]++)
        for (q[1] = 0; q[1] < s->kernel[1]; q[1]++)
            for (q[2] = 0; q[2] < s->kernel[2]; q[2]++, number++) {
                int64_t from = s->x_offset + line->image * s->x_batch;
                bool inside = true;
                for (int k = 0; k < 3; k++) {
                    int64_t out = k == 2 ? column : line->out[k];
                    at[k] = out * s->stride[k] + q[k] * s->dilation[k] - s->padding[k];
                    from += at[k] * s->x_spatial[k];
                    inside &= (uint64_t)at[k] < (uint64_t)s->in_size[k];
                }
                if (!inside) continue;
                line->row[line->taps] = c->x + from * c->element;
                line->weight[line->taps++] = c->packed + number * s->channels * c->element;
            }
}

static void run_line(const Depthwise *d, DepthwiseLine *line) {
    const Convolution *c = d->common;
    for (int64_t x = 0; x < d->task->out_size[2];) {
        int64_t count = x >= d->first && x < d->last ? d->last - x : 1;
        list_taps(d, line, x);
        c->type->depthwise(line->taps, (const void *const *)line->row,
                           (const void *const *)line->weight, count, d->jump,
                           line->sum + x * d->pixel * c->element, d->pixel, d->task->channels);
        x += count;
    }
}

static void run_lines(void *user, int64_t low, int64_t high) {
    const Depthwise *d = user;
    const Convolution *c = d->common;
    const ConvolutionTask *s = d->task;
    int64_t pointers = round_up(2 * d->kernel * (int64_t)sizeof(char *), ALIGNMENT);
    int64_t width = s->out_size[2] * d->pixel;
    Storage *storage = storage_new((size_t)(pointers + (c->narrow ? width * c->element : 0)));
    if (!storage) {
        atomic_store_explicit(c->failed, true, memory_order_relaxed);
        return;
    }
    DepthwiseLine line = {.row = storage->data};
    line.weight = line.row + d->kernel;
    for (int64_t i = low; i < high; i++) {
        line.out[1] = i % s->out_size[1];
        line.out[0] = i / s->out_size[1] % s->out_size[0];
        line.image = i / s->out_size[1] / s->out_size[0];
        line.sum = c->narrow ? (char *)storage->data + pointers : c->out + i * width * c->element;
        run_line(d, &line);
        conv_finish(c, i * width, d->pixel, s->out_size[2], d->pixel, (const float *)line.sum,
                    d->pixel);
    }
    storage_release(storage);
}

/* ---- entry -------------------------------------------------------------------------------- */

void conv_depthwise_run(Convolution *c) {
    const ConvolutionTask *s = &c->task;
    Depthwise d = {.common = c, .task = s, .kernel = kernel_positions(s)};
    d.pixel = s->channels;
    d.jump = s->stride[2] * s->x_spatial[2];
    int64_t reach = (s->kernel[2] - 1) * s->dilation[2] - s->padding[2];
    d.first = divide_up(s->padding[2], s->stride[2]);
    d.last = s->in_size[2] > reach ? (s->in_size[2] - reach - 1) / s->stride[2] + 1 : 0;
    d.last = least(d.last, s->out_size[2]);
    int64_t products = s->out_size[2] * s->channels * d.kernel * LINE_COST;
    parallel_for(s->batch * s->out_size[0] * s->out_size[1],
                 divide_up(CONV_TASK_PRODUCTS, products), run_lines, &d);
}
