/* Convolutions as a kind of task (task.h). */
#include "task/task.h"

/* Spatial dims of the op, written behind sizes of 1 so that there are three. */
static void spatial_sizes(int rank, const int64_t *from, int64_t *out, int64_t none) {
    for (int i = 0; i < 3; i++) out[i] = i < 3 - rank ? none : from[i - (3 - rank)];
}

static void make(const TaskCall *call, Task *task) {
    const TaskOperand *x = &call->operand[0], *weight = &call->operand[1];
    const int64_t *word = call->attrs->word;
    bool last = word[ATTR_convolution_channels_last];
    int rank = call->result.rank - 2, spatial = last ? 1 : 2, channel = last ? rank + 1 : 1;
    ConvolutionTask c = {.dtype = call->result.dtype, .channels_last = last, .rank = rank};
    c.wide = call->wide, c.reduced = call->reduced;
    c.batch = call->result.size[0];
    c.channels = x->meta.size[channel];
    c.out_channels = weight->meta.size[0];
    c.groups = word[ATTR_convolution_groups];
    c.x_offset = x->offset, c.x_batch = x->stride[0], c.x_channel = x->stride[channel];
    c.weight_offset = weight->offset;
    c.weight_out = weight->stride[0], c.weight_in = weight->stride[channel];
    spatial_sizes(rank, x->meta.size + spatial, c.in_size, 1);
    spatial_sizes(rank, call->result.size + spatial, c.out_size, 1);
    spatial_sizes(rank, weight->meta.size + spatial, c.kernel, 1);
    spatial_sizes(rank, x->stride + spatial, c.x_spatial, 0);
    spatial_sizes(rank, weight->stride + spatial, c.weight_spatial, 0);
    spatial_sizes(rank, word + ATTR_convolution_stride + 1, c.stride, 1);
    spatial_sizes(rank, word + ATTR_convolution_padding + 1, c.padding, 0);
    spatial_sizes(rank, word + ATTR_convolution_dilation + 1, c.dilation, 1);
    task->convolution = c;
}

static int64_t flops(const Task *task) {
    const ConvolutionTask *c = &task->convolution;
    int64_t window = 1, positions = 1;
    for (int d = 0; d < 3; d++) window *= c->kernel[d], positions *= c->out_size[d];
    return 2 * c->batch * positions * c->out_channels * (c->channels / c->groups) * window;
}

static void put_sizes_by(int rank, const int64_t *size, const char *between, Buffer *out) {
    for (int i = 3 - rank; i < 3; i++)
        putf(out, "%s%lld", i > 3 - rank ? between : "", (long long)size[i]);
}

static void put_unless(const char *name, int rank, const int64_t *size, int64_t usual,
                       Buffer *out) {
    bool shown = false;
    for (int i = 3 - rank; i < 3; i++) shown |= size[i] != usual;
    if (!shown) return;
    putf(out, ", %s ", name);
    put_sizes_by(rank, size, "x", out);
}

/* 8 x 3 of 224x224 -> 64 of 112x112, kernel 7x7, stride 2x2, padding 3x3 */
static void print(const Task *task, Buffer *out) {
    const ConvolutionTask *c = &task->convolution;
    putf(out, "%lld x %lld of ", (long long)c->batch, (long long)c->channels);
    put_sizes_by(c->rank, c->in_size, "x", out);
    putf(out, " -> %lld of ", (long long)c->out_channels);
    put_sizes_by(c->rank, c->out_size, "x", out);
    put(out, ", kernel ");
    put_sizes_by(c->rank, c->kernel, "x", out);
    put_unless("stride", c->rank, c->stride, 1, out);
    put_unless("padding", c->rank, c->padding, 0, out);
    put_unless("dilation", c->rank, c->dilation, 1, out);
    if (c->groups > 1) putf(out, ", groups %lld", (long long)c->groups);
    if (c->reduced) put(out, ", may round to bf16");
    if (c->wide) put(out, ", sums in f32");
    if (c->channels_last) put(out, ", channels last");
}

static void explain(const Task *task, Buffer *out) {
    const ConvolutionTask *c = &task->convolution;
    putf(out, " %s: %lld x %lld channels into %lld, kernel ", cb_dtype_name(c->dtype),
         (long long)c->batch, (long long)c->channels, (long long)c->out_channels);
    put_sizes_by(c->rank, c->kernel, " x ", out);
    if (c->groups > 1) putf(out, ", %lld groups", (long long)c->groups);
}

static void describe(const Task *task, Buffer *out) {
    const ConvolutionTask *c = &task->convolution;
    put_numbers(out, "of", (int64_t[]){c->batch, c->channels, c->out_channels, c->groups}, 4);
    put_numbers(out, "in", c->in_size, 3), put_numbers(out, "kernel", c->kernel, 3);
    put_numbers(out, "stride", c->stride, 3), put_numbers(out, "padding", c->padding, 3);
    put_numbers(out, "dilation", c->dilation, 3);
    put_numbers(out, "x", (int64_t[]){c->x_batch, c->x_channel}, 2);
    put_numbers(out, "and", c->x_spatial, 3);
    put_numbers(out, "weight", (int64_t[]){c->weight_out, c->weight_in}, 2);
    put_numbers(out, "and", c->weight_spatial, 3);
    put(out, c->channels_last ? " channels last" : " channels first");
    if (c->reduced) put(out, " reduced");
}

static int64_t span(const Task *task, int operand) {
    const ConvolutionTask *c = &task->convolution;
    if (operand == 0)
        return task_span(c->x_offset, 3, c->in_size, c->x_spatial) +
               task_span(0, 2, (int64_t[]){c->batch, c->channels},
                         (int64_t[]){c->x_batch, c->x_channel});
    return task_span(c->weight_offset, 3, c->kernel, c->weight_spatial) +
           task_span(0, 2, (int64_t[]){c->out_channels, c->channels / c->groups},
                     (int64_t[]){c->weight_out, c->weight_in});
}

static void channels(const Task *task, int64_t *count, int64_t *stride) {
    const ConvolutionTask *c = &task->convolution;
    *count = c->out_channels;
    *stride = c->channels_last ? 1 : c->out_size[0] * c->out_size[1] * c->out_size[2];
}

const TaskInfo task_convolution = {
    .op = {OP_convolution},
    .between = " * ",
    /* Above, an epilogue that is scale, bias, residual and relu rounds once by itself in bf16, in
     * the pass that narrows the sums (cpu/end_kernel.c); that is faster. */
    .wide_elements = 1 << 14,
    .make = make,
    .flops = flops,
    .print = print,
    .explain = explain,
    .describe = describe,
    .span = span,
    .channels = channels,
};
