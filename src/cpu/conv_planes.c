/* Convolutions of few channels to a group (a picture has one group of one to three), channels first
 * and of stride 1 over one or two dims: nothing is turned. Positions are the lanes.
 *
 *     out[o][p] = sum over channels i of o's group, positions q of the kernel of
 *                     x[i][p + q] * weight[o][i][q]
 *
 * A work item is a band of lines of one group: its part of x is copied with the padding around it.
 * A tap is then a distance in the copy, the same for all positions, so the band is summed as one
 * run; what falls on the padding between lines is left out behind. */
#include "base/parallel.h"
#include "cpu/conv_internal.h"
#include <string.h>

enum {
    MOST_CHANNELS = 7,      /* of a group: more make good tiles elsewhere, */
    MOST_OUTPUTS = 8,       /* and so do more than half of the widest vector */
    BAND_BYTES = 64 * 1024, /* of the copy: a part of L2 */
    SLACK = 64,             /* elements that are read and written behind a run: four vectors */
    PRODUCT_COST = 2        /* of a multiplication here, in those of register tiles */
};

typedef struct Planes {
    const Convolution *common;
    const ConvolutionTask *task;
    int64_t inner, taps;  /* channels of a group; multiplications of an element */
    int64_t width, reach; /* of a line of the copy; lines that a kernel takes besides the first */
    int64_t lines, bands; /* of a band; of a plane */
} Planes;

typedef struct Band {
    int64_t image, group, line, lines; /* of the result */
    char *copy, *sum;
} Band;

bool conv_fits_planes(const ConvolutionTask *s) {
    bool flat = s->in_size[0] == 1 && s->kernel[0] == 1 && s->padding[0] == 0;
    return !s->channels_last && flat && s->stride[1] == 1 && s->stride[2] == 1 &&
           s->channels <= MOST_CHANNELS * s->groups && s->out_channels <= MOST_OUTPUTS * s->groups;
}

static int64_t taps_of(const ConvolutionTask *s) {
    return s->channels / s->groups * s->kernel[1] * s->kernel[2];
}

#define COPY_APART(name, type)                                                                     \
    static void name(type *restrict to, const type *restrict from, int64_t count,                  \
                     int64_t stride) {                                                             \
        for (int64_t i = 0; i < count; i++) to[i] = from[i * stride];                              \
    }
COPY_APART(copy_apart_f32, float)
COPY_APART(copy_apart_f64, double)

static void copy_line(char *to, const char *from, int64_t count, int64_t stride, int64_t element) {
    if (stride == 1)
        memcpy(to, from, (size_t)(count * element));
    else if (element == sizeof(float))
        copy_apart_f32((float *)(void *)to, (const float *)(const void *)from, count, stride);
    else
        copy_apart_f64((double *)(void *)to, (const double *)(const void *)from, count, stride);
}

/* [out channel][channel][position of the kernel] */
Storage *conv_planes_pack(Convolution *c) {
    const ConvolutionTask *s = &c->task;
    Storage *storage = storage_new((size_t)(s->out_channels * taps_of(s) * c->element));
    if (!storage) return NULL;
    char *to = storage->data;
    for (int64_t o = 0; o < s->out_channels; o++)
        for (int64_t i = 0; i < s->channels / s->groups; i++)
            for (int64_t y = 0; y < s->kernel[1]; y++, to += s->kernel[2] * c->element) {
                int64_t from = s->weight_offset + o * s->weight_out + i * s->weight_in +
                               y * s->weight_spatial[1];
                copy_line(to, c->weight + from * c->element, s->kernel[2], s->weight_spatial[2],
                          c->element);
            }
    return storage;
}

/* ---- bands -------------------------------------------------------------------------------- */

/* The part of x below the band, channel by channel, each line between its padding. */
static void copy_band(const Planes *p, const Band *band) {
    const Convolution *c = p->common;
    const ConvolutionTask *s = p->task;
    int64_t height = band->lines + p->reach, plane = height * p->width;
    memset(band->copy, 0, (size_t)((p->inner * plane + SLACK) * c->element));
    for (int64_t i = 0; i < p->inner; i++)
        for (int64_t y = 0; y < height; y++) {
            int64_t at = band->line + y - s->padding[1];
            if (at < 0 || at >= s->in_size[1]) continue;
            int64_t from = s->x_offset + band->image * s->x_batch +
                           (band->group * p->inner + i) * s->x_channel + at * s->x_spatial[1];
            copy_line(band->copy + (i * plane + y * p->width + s->padding[2]) * c->element,
                      c->x + from * c->element, s->in_size[2], s->x_spatial[2], c->element);
        }
}

/* Distances in the copy of a band of so many lines. */
static void find_offsets(const Planes *p, int64_t lines, int64_t *offset) {
    const ConvolutionTask *s = p->task;
    int64_t plane = (lines + p->reach) * p->width;
    for (int64_t i = 0; i < p->inner; i++)
        for (int64_t y = 0; y < s->kernel[1]; y++)
            for (int64_t x = 0; x < s->kernel[2]; x++)
                *offset++ = i * plane + y * s->dilation[1] * p->width + x * s->dilation[2];
}

static void run_band(const Planes *p, const Band *band, const int64_t *offset) {
    const Convolution *c = p->common;
    const ConvolutionTask *s = p->task;
    int64_t columns = s->out_size[2], run = (band->lines - 1) * p->width + columns;
    copy_band(p, band);
    for (int64_t i = 0; i < c->outputs; i++) {
        int64_t o = band->group * c->outputs + i;
        c->type->planes(p->taps, offset, c->packed + o * p->taps * c->element, band->copy, run,
                        band->sum);
        int64_t first = (band->image * s->out_channels + o) * c->positions + band->line * columns;
        for (int64_t y = 0; y < band->lines && !c->narrow; y++)
            memcpy(c->out + (first + y * columns) * c->element,
                   band->sum + y * p->width * c->element, (size_t)(columns * c->element));
        conv_finish(c, first, columns, band->lines, columns, (const float *)band->sum, p->width);
    }
}

static void run_bands(void *user, int64_t low, int64_t high) {
    const Planes *p = user;
    const Convolution *c = p->common;
    const ConvolutionTask *s = p->task;
    int64_t copy = (p->inner * (p->lines + p->reach) * p->width + SLACK) * c->element;
    int64_t sum = (p->lines * p->width + SLACK) * c->element;
    int64_t offsets = p->taps * (int64_t)sizeof(int64_t), cut = 0;
    Storage *storage = storage_new((size_t)(offsets + copy + sum));
    if (!storage) {
        atomic_store_explicit(c->failed, true, memory_order_relaxed);
        return;
    }
    int64_t *offset = storage->data;
    Band band = {.copy = (char *)storage->data + offsets};
    band.sum = band.copy + copy;
    for (int64_t i = low; i < high; i++) {
        band.line = i % p->bands * p->lines;
        band.lines = least(p->lines, s->out_size[1] - band.line);
        band.group = i / p->bands % s->groups;
        band.image = i / p->bands / s->groups;
        if (cut != band.lines) find_offsets(p, cut = band.lines, offset);
        run_band(p, &band, offset);
    }
    storage_release(storage);
}

/* ---- entry -------------------------------------------------------------------------------- */

void conv_planes_run(Convolution *c) {
    const ConvolutionTask *s = &c->task;
    Planes p = {.common = c, .task = s, .inner = s->channels / s->groups, .taps = taps_of(s)};
    p.width = s->in_size[2] + 2 * s->padding[2];
    p.reach = (s->kernel[1] - 1) * s->dilation[1];
    int64_t most = BAND_BYTES / (p.inner * p.width * c->element) - p.reach;
    p.lines = least(most < 1 ? 1 : most, s->out_size[1]);
    p.bands = divide_up(s->out_size[1], p.lines);
    p.lines = divide_up(s->out_size[1], p.bands);
    int64_t products = p.lines * s->out_size[2] * p.taps * c->outputs * PRODUCT_COST;
    parallel_for(s->batch * s->groups * p.bands, divide_up(CONV_TASK_PRODUCTS, products), run_bands,
                 &p);
}
