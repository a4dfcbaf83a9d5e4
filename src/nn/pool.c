/* MaxPool2d, AvgPool2d, AdaptiveAvgPool2d, Upsample: layers over spatial dims, without weights.
 *
 *     cb_nn_max_pool2d(3, 2): forward is cb_max_pool2d(x, 3, 2); prints
 *     MaxPool2d(kernel_size=3, stride=2, padding=0, dilation=1, ceil_mode=False) */
#include "nn/layer.h"
#include <string.h>

/* As the user gave it: an integer, or a tuple. */
static LayerText given(cb_dim_list list) {
    LayerText text = layer_tuple(list);
    if (list.count == 1) snprintf(text.at, sizeof text.at, "%lld", (long long)list.at[0]);
    return text;
}

static bool check_list(const char *type, const char *name, cb_dim_list list, int64_t least) {
    cb_dim_list spread = list;
    return layer_spread(type, name, &spread, 2, least);
}

static bool check_window(const char *type, cb_dim_list kernel, cb_dim_list *stride,
                         cb_dim_list padding, cb_dim_list dilation) {
    if (stride->count == 0) *stride = kernel;
    return check_list(type, "kernel_size", kernel, 1) && check_list(type, "stride", *stride, 1) &&
           check_list(type, "padding", padding, 0) && check_list(type, "dilation", dilation, 1);
}

static Tensor *max_pool2d(Module *self, Tensor *const *inputs, int count) {
    const Config *c = &self->config;
    if (!layer_one_input(self, count)) return NULL;
    return (cb_max_pool2d)(inputs[0], c->dims, c->stride, c->padding, c->dilation, c->flag);
}

cb_module *(cb_nn_max_pool2d)(cb_dim_list kernel_size, cb_dim_list stride, cb_dim_list padding,
                              cb_dim_list dilation, bool ceil_mode) {
    if (!check_window("MaxPool2d", kernel_size, &stride, padding, dilation)) return NULL;
    Module *module = layer_new("MaxPool2d", max_pool2d,
                               "kernel_size=%s, stride=%s, padding=%s, dilation=%s, ceil_mode=%s",
                               given(kernel_size).at, given(stride).at, given(padding).at,
                               given(dilation).at, ceil_mode ? "True" : "False");
    if (module)
        module->config = (Config){.dims = kernel_size,
                                  .stride = stride,
                                  .padding = padding,
                                  .dilation = dilation,
                                  .flag = ceil_mode};
    return module;
}

static Tensor *avg_pool2d(Module *self, Tensor *const *inputs, int count) {
    const Config *c = &self->config;
    if (!layer_one_input(self, count)) return NULL;
    return (cb_avg_pool2d)(inputs[0], c->dims, c->stride, c->padding, c->flag, c->second_flag, 0);
}

cb_module *(cb_nn_avg_pool2d)(cb_dim_list kernel_size, cb_dim_list stride, cb_dim_list padding,
                              bool ceil_mode, bool count_include_pad) {
    if (!check_window("AvgPool2d", kernel_size, &stride, padding, cb_dims(1))) return NULL;
    Module *module = layer_new("AvgPool2d", avg_pool2d, "kernel_size=%s, stride=%s, padding=%s",
                               given(kernel_size).at, given(stride).at, given(padding).at);
    if (module)
        module->config = (Config){.dims = kernel_size,
                                  .stride = stride,
                                  .padding = padding,
                                  .flag = ceil_mode,
                                  .second_flag = count_include_pad};
    return module;
}

static Tensor *adaptive_avg_pool2d(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count)) return NULL;
    return (cb_adaptive_avg_pool2d)(inputs[0], self->config.dims);
}

cb_module *(cb_nn_adaptive_avg_pool2d)(cb_dim_list output_size) {
    if (!check_list("AdaptiveAvgPool2d", "output_size", output_size, 1)) return NULL;
    Module *module = layer_new("AdaptiveAvgPool2d", adaptive_avg_pool2d, "output_size=%s",
                               given(output_size).at);
    if (module) module->config.dims = output_size;
    return module;
}

static Tensor *upsample(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count)) return NULL;
    return (cb_interpolate)(inputs[0], CB_NO_DIMS, self->config.number, self->config.flag, false,
                            self->config.second_flag);
}

cb_module *cb_nn_upsample(double scale_factor, const char *mode) {
    bool bilinear = mode && strcmp(mode, "bilinear") == 0;
    bool exact = mode && strcmp(mode, "nearest-exact") == 0;
    if (!mode || (!bilinear && !exact && strcmp(mode, "nearest") != 0) || !(scale_factor > 0)) {
        fail(CB_ERR_ARGUMENT,
             "Upsample: a positive factor and mode nearest, nearest-exact or bilinear, not %g, %s",
             scale_factor, mode ? mode : "NULL");
        return NULL;
    }
    Module *module = layer_new("Upsample", upsample, "scale_factor=%s, mode='%s'",
                               layer_number(scale_factor).at, mode);
    if (module)
        module->config = (Config){.number = scale_factor, .flag = bilinear, .second_flag = exact};
    return module;
}
