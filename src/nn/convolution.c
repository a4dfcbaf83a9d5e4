/* Conv1d to Conv3d and ConvTranspose1d to ConvTranspose3d, with PyTorch's keys, initialization and
 * repr.
 *
 *     cb_nn_conv2d(3, 64, 11, 4, 2): parameters weight f32[64, 3, 11, 11] and bias f32[64]; prints
 *     Conv2d(3, 64, kernel_size=(11, 11), stride=(4, 4), padding=(2, 2))
 *
 * Weights are uniform in (-b, b), b = 1 / sqrt(fan in): what kaiming_uniform with a = sqrt(5) comes
 * to; fan in is what the second dim of the weight and the kernel make. */
#include "nn/layer.h"
#include <math.h>
#include <string.h>

typedef struct Window {
    const char *type;
    Op op;
    bool transposed;
    int64_t in, out, groups;
    bool bias;
    cb_dim_list kernel, stride, padding, output_padding, dilation;
    const char *mode; /* of padding */
    int rank;         /* spatial dims */
    bool same;        /* the padding was given as "same" */
} Window;

/* Zeros come from the convolution itself, other modes from an op before it. */
static bool find_mode(const Window *w, Op *pad) {
    *pad = OP_none;
    if (w->mode && strcmp(w->mode, "zeros") == 0) return true;
    if (w->mode) *pad = pad_op(w->mode);
    if (*pad != OP_none && *pad != OP_pad) return true;
    fail(CB_ERR_ARGUMENT, "%s: padding_mode is zeros, reflect, replicate or circular, not %s",
         w->type, w->mode ? w->mode : "NULL");
    return false;
}

static bool every(cb_dim_list list, int64_t value) {
    for (int i = 0; i < list.count; i++)
        if (list.at[i] != value) return false;
    return true;
}

static bool check_window(Window *w) {
    const char *type = w->type;
    if (w->in < 1 || w->out < 1 || w->groups < 1 || w->in % w->groups || w->out % w->groups) {
        fail(CB_ERR_ARGUMENT, "%s: %lld groups do not divide %lld input and %lld output channels",
             type, (long long)w->groups, (long long)w->in, (long long)w->out);
        return false;
    }
    w->same = !w->transposed && dims_are_same(w->padding);
    if (w->same) w->padding = cb_dims_one(0);
    if (!layer_spread(type, "kernel_size", &w->kernel, w->rank, 1) ||
        !layer_spread(type, "stride", &w->stride, w->rank, 1) ||
        !layer_spread(type, "padding", &w->padding, w->rank, 0) ||
        !layer_spread(type, "output_padding", &w->output_padding, w->rank, 0) ||
        !layer_spread(type, "dilation", &w->dilation, w->rank, 1))
        return false;
    if (!w->same || every(w->stride, 1)) return true;
    fail(CB_ERR_ARGUMENT, "%s: padding 'same' goes with a stride of 1, not %s", type,
         layer_tuple(w->stride).at);
    return false;
}

/* ---- what it prints ------------------------------------------------------------------------- */

static void append(char *text, size_t bytes, const char *name, const char *value) {
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, ", %s=%s", name, value);
}

static void write_extra(const Window *w, char *text, size_t bytes) {
    snprintf(text, bytes, "%lld, %lld", (long long)w->in, (long long)w->out);
    append(text, bytes, "kernel_size", layer_tuple(w->kernel).at);
    append(text, bytes, "stride", layer_tuple(w->stride).at);
    if (w->same)
        append(text, bytes, "padding", "same");
    else if (!every(w->padding, 0))
        append(text, bytes, "padding", layer_tuple(w->padding).at);
    if (!every(w->dilation, 1)) append(text, bytes, "dilation", layer_tuple(w->dilation).at);
    if (!every(w->output_padding, 0))
        append(text, bytes, "output_padding", layer_tuple(w->output_padding).at);
    char groups[24];
    snprintf(groups, sizeof groups, "%lld", (long long)w->groups);
    if (w->groups != 1) append(text, bytes, "groups", groups);
    if (!w->bias) append(text, bytes, "bias", "False");
    if (strcmp(w->mode, "zeros") != 0) append(text, bytes, "padding_mode", w->mode);
}

/* ---- what it does --------------------------------------------------------------------------- */

static Attrs attributes(const Window *w, bool pads) {
    Attrs attrs = attrs_default(w->op);
    cb_dim_list padding = w->same ? cb_dims_one(PADDING_SAME) : w->padding;
    if (pads) padding = cb_dims_one(0);
    if (w->transposed) {
        attr_set_dims(&attrs, ATTR_conv_transpose1d_stride, w->stride);
        attr_set_dims(&attrs, ATTR_conv_transpose1d_padding, padding);
        attr_set_dims(&attrs, ATTR_conv_transpose1d_output_padding, w->output_padding);
        attr_set_dims(&attrs, ATTR_conv_transpose1d_dilation, w->dilation);
        attrs.word[ATTR_conv_transpose1d_groups] = w->groups;
        return attrs;
    }
    attr_set_dims(&attrs, ATTR_conv1d_stride, w->stride);
    attr_set_dims(&attrs, ATTR_conv1d_padding, padding);
    attr_set_dims(&attrs, ATTR_conv1d_dilation, w->dilation);
    attrs.word[ATTR_conv1d_groups] = w->groups;
    return attrs;
}

/* Left and right for each spatial dim, the last dim first; of "same" the odd one is on the
 * right. */
static cb_dim_list sides(const Window *w) {
    cb_dim_list list = {2 * w->rank, {0}};
    for (int i = 0; i < w->rank; i++) {
        int dim = w->rank - 1 - i;
        int64_t taken = w->dilation.at[dim] * (w->kernel.at[dim] - 1);
        list.at[2 * i] = w->same ? taken / 2 : w->padding.at[dim];
        list.at[2 * i + 1] = w->same ? taken - taken / 2 : w->padding.at[dim];
    }
    return list;
}

static Tensor *padded_forward(Module *self, Tensor *const *inputs, int count) {
    Attrs attrs = {{0}};
    if (!layer_one_input(self, count)) return NULL;
    cb_operand x = cb_operand_tensor(inputs[0]);
    attr_set_dims(&attrs, ATTR_reflection_pad_padding, self->config.dims);
    return layer_apply(self, apply(self->config.first, &x, 1, &attrs));
}

static Module *convolution(Window w) {
    char extra[512];
    Op pad = OP_none;
    w.rank = w.op - (w.transposed ? OP_conv_transpose1d : OP_conv1d) + 1;
    if (!check_window(&w) || !find_mode(&w, &pad)) return NULL;
    write_extra(&w, extra, sizeof extra);
    cb_dim_list sizes = {w.rank + 2, {w.out, w.in / w.groups}};
    if (w.transposed) sizes = (cb_dim_list){w.rank + 2, {w.in, w.out / w.groups}};
    double fan = (double)sizes.at[1];
    for (int i = 0; i < w.rank; i++) {
        sizes.at[2 + i] = w.kernel.at[i];
        fan *= (double)w.kernel.at[i];
    }
    Attrs attrs = attributes(&w, pad != OP_none);
    double bound = 1.0 / sqrt(fan);
    Module *module = layer_new(w.type, w.op, &attrs, "%s", extra);
    layer_value(&module, "weight", layer_uniform(sizes, bound));
    if (w.bias)
        layer_value(&module, "bias", layer_uniform(cb_dims(w.out), bound));
    else
        layer_absent(&module, "bias");
    if (!module || !pad) return module;
    module->forward = padded_forward;
    module->config = (Config){.first = pad, .dims = sides(&w)};
    return module;
}

#define CONV(n)                                                                                    \
    cb_module *(cb_nn_conv##n##d)(int64_t in_channels, int64_t out_channels,                       \
                                  cb_dim_list kernel_size, cb_dim_list stride,                     \
                                  cb_dim_list padding, cb_dim_list dilation, int64_t groups,       \
                                  bool bias, const char *padding_mode) {                           \
        return convolution((Window){"Conv" #n "d", OP_conv##n##d, false, in_channels,              \
                                    out_channels, groups, bias, kernel_size, stride, padding,      \
                                    cb_dims_one(0), dilation, padding_mode, 0, false});            \
    }                                                                                              \
    cb_module *(cb_nn_conv_transpose##n##d)(int64_t in_channels, int64_t out_channels,             \
                                            cb_dim_list kernel_size, cb_dim_list stride,           \
                                            cb_dim_list padding, cb_dim_list output_padding,       \
                                            int64_t groups, bool bias, cb_dim_list dilation) {     \
        return convolution((Window){"ConvTranspose" #n "d", OP_conv_transpose##n##d, true,         \
                                    in_channels, out_channels, groups, bias, kernel_size, stride,  \
                                    padding, output_padding, dilation, "zeros", 0, false});        \
    }

CONV(1)
CONV(2)
CONV(3)
