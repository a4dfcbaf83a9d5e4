/* x, weight and result of a convolution in another dtype or another order of dims.
 *
 *     f16, and bf16 that is not multiplied as such  ->  f32, contiguous
 *     channels first                                ->  channels last, and the result back */
#include "base/parallel.h"
#include "cpu/conv_internal.h"
#include "cpu/copy.h"

/* ---- x and weight in the dtype that is multiplied ------------------------------------------- */

typedef struct Conversion {
    GemmConvert *convert;
    const char *from;
    char *to;
    int64_t from_bytes, to_bytes;
    int64_t inner, inner_stride, size[4], stride[4]; /* inner is the dim of the smallest stride */
} Conversion;

static void convert_rows(void *user, int64_t low, int64_t high) {
    const Conversion *w = user;
    for (int64_t row = low; row < high; row++) {
        int64_t at = 0, rest = row;
        for (int d = 3; d >= 0; d--) {
            at += rest % w->size[d] * w->stride[d];
            rest /= w->size[d];
        }
        const char *from = w->from + at * w->from_bytes;
        char *to = w->to + row * w->inner * w->to_bytes;
        int64_t run = w->inner_stride == 1 ? w->inner : 1;
        for (int64_t i = 0; i < w->inner; i += run)
            w->convert(from + i * w->inner_stride * w->from_bytes, to + i * w->to_bytes, run);
    }
}

/* A tensor of five dims: image or out channel, channel, three spatial ones. The copy's innermost
 * dim is the channel where that is contiguous, else the last spatial one. */
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

/* The tensor converted, contiguous; its strides are those of the copy afterwards. */
static Storage *convert_all(const Convolution *c, const char *from, int64_t offset, Five five) {
    const int *order = dim_order(&five);
    int64_t bytes = (int64_t)cb_dtype_size(c->task.dtype), rows = 1;
    Conversion w = {.convert = c->convert, .from_bytes = bytes, .to_bytes = c->x_bytes};
    w.from = from + offset * bytes;
    for (int d = 0; d < 4; d++) {
        w.size[d] = five.size[order[d]], w.stride[d] = *five.stride[order[d]];
        rows *= w.size[d];
    }
    w.inner = five.size[order[4]], w.inner_stride = *five.stride[order[4]];
    Storage *storage = storage_new((size_t)(rows * w.inner * c->x_bytes));
    if (!storage) return NULL;
    w.to = storage->data;
    parallel_for(rows, divide_up(16 * 1024, w.inner + 1), convert_rows, &w);
    set_contiguous(five, order);
    return storage;
}

static Five five_of_x(ConvolutionTask *s) {
    return (Five){
        {s->batch, s->channels, s->in_size[0], s->in_size[1], s->in_size[2]},
        {&s->x_batch, &s->x_channel, &s->x_spatial[0], &s->x_spatial[1], &s->x_spatial[2]}};
}

Storage *conv_convert_x(Convolution *c) {
    Storage *storage = convert_all(c, c->x, c->task.x_offset, five_of_x(&c->task));
    if (storage) c->x = storage->data, c->task.x_offset = 0;
    return storage;
}

Storage *conv_convert_weight(Convolution *c) {
    ConvolutionTask *s = &c->task;
    Five five = {
        {s->out_channels, s->channels / s->groups, s->kernel[0], s->kernel[1], s->kernel[2]},
        {&s->weight_out, &s->weight_in, &s->weight_spatial[0], &s->weight_spatial[1],
         &s->weight_spatial[2]}};
    Storage *storage = convert_all(c, c->weight, s->weight_offset, five);
    if (storage) c->weight = storage->data, s->weight_offset = 0;
    return storage;
}

void conv_converted_x(ConvolutionTask *s) {
    Five x = five_of_x(s);
    set_contiguous(x, dim_order(&x));
}

/* ---- channels last ------------------------------------------------------------------------ */

ConvolutionTask conv_turned(const ConvolutionTask *task) {
    ConvolutionTask s = *task;
    s.x_offset = 0, s.x_channel = 1, s.channels_last = true;
    conv_converted_x(&s);
    return s;
}

static void copy_turned(void *to, const void *from, Five to_order, Five from_order, size_t width) {
    int64_t to_stride[5], from_stride[5];
    for (int d = 0; d < 5; d++)
        to_stride[d] = *to_order.stride[d], from_stride[d] = *from_order.stride[d];
    copy_strided(to, to_stride, from, from_stride, 5, to_order.size, width);
}

/* From the result with channels last to the one that was asked for. */
static void turn_back(const Convolution *c, const void *sums) {
    const ConvolutionTask *s = &c->task;
    const int64_t size[5] = {s->batch, s->out_channels, s->out_size[0], s->out_size[1],
                             s->out_size[2]};
    int64_t stride[5], last_stride[5];
    Five first, last;
    for (int d = 0; d < 5; d++) {
        first.size[d] = last.size[d] = size[d];
        first.stride[d] = &stride[d], last.stride[d] = &last_stride[d];
    }
    last_stride[1] = 1, stride[1] = 0;
    set_contiguous(last, dim_order(&last));
    set_contiguous(first, dim_order(&first));
    copy_turned(c->out, sums, first, last, (size_t)c->out_bytes);
}

bool conv_turned_run(Convolution *c, const ConvolutionTask *last, int method) {
    ConvolutionTask s = *last;
    int64_t outs = s.batch * s.out_channels * c->positions;
    int64_t ins = s.batch * s.channels * s.in_size[0] * s.in_size[1] * s.in_size[2];
    size_t bytes = cb_dtype_size(s.dtype);
    Storage *x = storage_new((size_t)ins * bytes);
    Storage *out = x ? storage_new((size_t)(outs * c->out_bytes)) : NULL;
    if (out) {
        const char *from = c->x + c->task.x_offset * (int64_t)bytes;
        copy_turned(x->data, from, five_of_x(&s), five_of_x(&c->task), bytes);
    }
    Operands operands = {
        .in = {x ? x->data : NULL, c->weight}, .packed = c->packed, .out = out ? out->data : NULL};
    bool ok = out && convolution_run(&s, method, &operands);
    if (ok) turn_back(c, out->data);
    if (x) storage_release(x);
    if (out) storage_release(out);
    return ok;
}
