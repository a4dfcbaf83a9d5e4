/* AlexNet as torchvision lays it out: features (five convolutions), avgpool, classifier.
 *
 * In:  images f32[batch, 3, height, width], at least 63 x 63; 224 x 224 usually.
 * Out: scores f32[batch, classes]. */
#include "build.h"

cb_alexnet_config cb_alexnet_config_default(void) {
    return (cb_alexnet_config){{64, 192, 384, 256, 256}, 4096, 1000, 0.5};
}

static cb_tensor *forward(cb_module *self, cb_tensor *const *inputs, int count) {
    cb_tensor *x = count > 0 ? inputs[0] : NULL;
    x = cb_forward(cb_module_child(self, "features"), x);
    x = cb_forward(cb_module_child(self, "avgpool"), x);
    return cb_forward(cb_module_child(self, "classifier"), cb_flatten(x, 1));
}

static cb_module *features(const int64_t *c) {
    return cb_nn_sequential(
        cb_nn_conv2d(3, c[0], 11, 4, 2), cb_nn_relu(), cb_nn_max_pool2d(3, 2),
        cb_nn_conv2d(c[0], c[1], 5, 1, 2), cb_nn_relu(), cb_nn_max_pool2d(3, 2),
        cb_nn_conv2d(c[1], c[2], 3, 1, 1), cb_nn_relu(), cb_nn_conv2d(c[2], c[3], 3, 1, 1),
        cb_nn_relu(), cb_nn_conv2d(c[3], c[4], 3, 1, 1), cb_nn_relu(), cb_nn_max_pool2d(3, 2));
}

cb_module *cb_model_alexnet(cb_alexnet_config config) {
    Build build = build_open("AlexNet", forward, NULL);
    build_add(&build, "features", features(config.channels));
    build_add(&build, "avgpool", cb_nn_adaptive_avg_pool2d(cb_dims(6, 6)));
    build_add(&build, "classifier",
              cb_nn_sequential(cb_nn_dropout(config.dropout),
                               cb_nn_linear(config.channels[4] * 36, config.hidden, true),
                               cb_nn_relu(), cb_nn_dropout(config.dropout),
                               cb_nn_linear(config.hidden, config.hidden, true), cb_nn_relu(),
                               cb_nn_linear(config.hidden, config.classes, true)));
    return build.module;
}
