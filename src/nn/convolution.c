/* Conv1d, Conv2d, Conv3d, ConvTranspose2d, with PyTorch's keys, initialization and repr.
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
    int rank; /* spatial dims */
    int64_t in, out, groups;
    bool bias, transposed;
    cb_dim_list kernel, stride, padding, output_padding, dilation;
} Window;

static Tensor *forward_1d(Module *self, Tensor *const *inputs, int count) {
    const Config *c = &self->config;
    if (!layer_one_input(self, count)) return NULL;
    return (cb_conv1d)(inputs[0], layer_own(self, 0), layer_own(self, 1), c->stride, c->padding,
                       c->dilation, c->first);
}

static Tensor *forward_2d(Module *self, Tensor *const *inputs, int count) {
    const Config *c = &self->config;
    if (!layer_one_input(self, count)) return NULL;
    return (cb_conv2d)(inputs[0], layer_own(self, 0), layer_own(self, 1), c->stride, c->padding,
                       c->dilation, c->first);
}

static Tensor *forward_3d(Module *self, Tensor *const *inputs, int count) {
    const Config *c = &self->config;
    if (!layer_one_input(self, count)) return NULL;
    return (cb_conv3d)(inputs[0], layer_own(self, 0), layer_own(self, 1), c->stride, c->padding,
                       c->dilation, c->first);
}

static Tensor *forward_transposed(Module *self, Tensor *const *inputs, int count) {
    const Config *c = &self->config;
    if (!layer_one_input(self, count)) return NULL;
    return (cb_conv_transpose2d)(inputs[0], layer_own(self, 0), layer_own(self, 1), c->stride,
                                 c->padding, c->dims, c->first, c->dilation);
}

static bool check_window(const char *type, Window *w) {
    if (w->in < 1 || w->out < 1 || w->groups < 1 || w->in % w->groups || w->out % w->groups) {
        fail(CB_ERR_ARGUMENT, "%s: %lld groups do not divide %lld input and %lld output channels",
             type, (long long)w->groups, (long long)w->in, (long long)w->out);
        return false;
    }
    return layer_spread(type, "kernel_size", &w->kernel, w->rank, 1) &&
           layer_spread(type, "stride", &w->stride, w->rank, 1) &&
           layer_spread(type, "padding", &w->padding, w->rank, 0) &&
           layer_spread(type, "output_padding", &w->output_padding, w->rank, 0) &&
           layer_spread(type, "dilation", &w->dilation, w->rank, 1);
}

static bool every(cb_dim_list list, int64_t value) {
    for (int i = 0; i < list.count; i++)
        if (list.at[i] != value) return false;
    return true;
}

static void append(char *text, size_t bytes, const char *name, const char *value) {
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, ", %s=%s", name, value);
}

static void write_extra(const Window *w, char *text, size_t bytes) {
    snprintf(text, bytes, "%lld, %lld", (long long)w->in, (long long)w->out);
    append(text, bytes, "kernel_size", layer_tuple(w->kernel).at);
    append(text, bytes, "stride", layer_tuple(w->stride).at);
    if (!every(w->padding, 0)) append(text, bytes, "padding", layer_tuple(w->padding).at);
    if (!every(w->dilation, 1)) append(text, bytes, "dilation", layer_tuple(w->dilation).at);
    if (!every(w->output_padding, 0))
        append(text, bytes, "output_padding", layer_tuple(w->output_padding).at);
    char groups[24];
    snprintf(groups, sizeof groups, "%lld", (long long)w->groups);
    if (w->groups != 1) append(text, bytes, "groups", groups);
    if (!w->bias) append(text, bytes, "bias", "False");
}

static Module *convolution(const char *type, cb_forward_function *forward, Window *w) {
    char extra[512];
    if (!check_window(type, w)) return NULL;
    write_extra(w, extra, sizeof extra);
    cb_dim_list sizes = {w->rank + 2, {w->out, w->in / w->groups}};
    if (w->transposed) sizes = (cb_dim_list){w->rank + 2, {w->in, w->out / w->groups}};
    double fan = (double)sizes.at[1];
    for (int i = 0; i < w->rank; i++) {
        sizes.at[2 + i] = w->kernel.at[i];
        fan *= (double)w->kernel.at[i];
    }
    Module *module = layer_new(type, forward, "%s", extra);
    if (!module) return NULL;
    module->config = (Config){.first = w->groups,
                              .dims = w->output_padding,
                              .stride = w->stride,
                              .padding = w->padding,
                              .dilation = w->dilation};
    double bound = 1.0 / sqrt(fan);
    if (!module_init(&module, "weight", layer_uniform(sizes, bound), false)) return NULL;
    if (w->bias)
        module_init(&module, "bias", layer_uniform(cb_dims(w->out), bound), false);
    else
        cb_module_parameter(module, "bias", NULL);
    return module;
}

cb_module *(cb_nn_conv1d)(int64_t in_channels, int64_t out_channels, cb_dim_list kernel_size,
                          cb_dim_list stride, cb_dim_list padding, cb_dim_list dilation,
                          int64_t groups, bool bias) {
    Window w = {1,           in_channels, out_channels, groups,     bias,    false,
                kernel_size, stride,      padding,      cb_dims(0), dilation};
    return convolution("Conv1d", forward_1d, &w);
}

cb_module *(cb_nn_conv2d)(int64_t in_channels, int64_t out_channels, cb_dim_list kernel_size,
                          cb_dim_list stride, cb_dim_list padding, cb_dim_list dilation,
                          int64_t groups, bool bias) {
    Window w = {2,           in_channels, out_channels, groups,     bias,    false,
                kernel_size, stride,      padding,      cb_dims(0), dilation};
    return convolution("Conv2d", forward_2d, &w);
}

cb_module *(cb_nn_conv3d)(int64_t in_channels, int64_t out_channels, cb_dim_list kernel_size,
                          cb_dim_list stride, cb_dim_list padding, cb_dim_list dilation,
                          int64_t groups, bool bias) {
    Window w = {3,           in_channels, out_channels, groups,     bias,    false,
                kernel_size, stride,      padding,      cb_dims(0), dilation};
    return convolution("Conv3d", forward_3d, &w);
}

cb_module *(cb_nn_conv_transpose2d)(int64_t in_channels, int64_t out_channels,
                                    cb_dim_list kernel_size, cb_dim_list stride,
                                    cb_dim_list padding, cb_dim_list output_padding, int64_t groups,
                                    bool bias, cb_dim_list dilation) {
    Window w = {2,           in_channels, out_channels, groups,         bias,    true,
                kernel_size, stride,      padding,      output_padding, dilation};
    return convolution("ConvTranspose2d", forward_transposed, &w);
}
