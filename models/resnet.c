/* ResNet as torchvision lays it out (version 1.5: the stride of a bottleneck is in its 3x3).
 *
 * In:  images f32[batch, 3, height, width], 224 x 224 usually.
 * Out: scores f32[batch, classes].
 *
 *     block(x) = relu(convolutions(x) + x), with x through downsample where the shape changes */
#include "build.h"
#include <inttypes.h>
#include <math.h>

cb_resnet_config cb_resnet18_config(void) {
    return (cb_resnet_config){{2, 2, 2, 2}, false, 64, 1000};
}

cb_resnet_config cb_resnet50_config(void) {
    return (cb_resnet_config){{3, 4, 6, 3}, true, 64, 1000};
}

/* What a block's user pointer says. */
enum { PLAIN, BOTTLENECK = 1, DOWNSAMPLE = 2 };
static const char block_kinds[4]; /* their addresses are the user pointers: kind n is &[n] */

static cb_tensor *step(cb_module *self, const char *conv, const char *norm, cb_tensor *x) {
    return cb_forward(cb_module_child(self, norm), cb_forward(cb_module_child(self, conv), x));
}

static cb_tensor *block_forward(cb_module *self, cb_tensor *const *inputs, int count) {
    int kind = (int)((const char *)cb_module_user(self) - block_kinds);
    cb_tensor *x = count > 0 ? inputs[0] : NULL;
    cb_module *relu = cb_module_child(self, "relu");
    cb_tensor *y = step(self, "conv1", "bn1", x);
    y = step(self, "conv2", "bn2", cb_forward(relu, y));
    if (kind & BOTTLENECK) y = step(self, "conv3", "bn3", cb_forward(relu, y));
    if (kind & DOWNSAMPLE) x = cb_forward(cb_module_child(self, "downsample"), x);
    return cb_forward(relu, cb_add(y, x));
}

/* He's initialization by fan out, as torchvision's. */
static cb_module *convolution(int64_t in, int64_t out, int64_t size, int64_t stride) {
    cb_module *conv = cb_nn_conv2d(in, out, size, stride, size / 2, 1, 1, false);
    if (!conv) return NULL;
    cb_scope_open();
    double deviation = sqrt(2.0 / (double)(out * size * size));
    cb_tensor *weight = cb_module_get(conv, "weight");
    bool fine = cb_assign(weight, cb_mul(cb_randn(cb_dims(out, in, size, size)), deviation));
    cb_scope_close();
    if (fine) return conv;
    cb_module_free(conv);
    return NULL;
}

static cb_module *norm(int64_t channels) { return cb_nn_batch_norm2d(channels, 1e-5, 0.1); }

static cb_module *block_new(bool bottleneck, int64_t in, int64_t width, int64_t stride) {
    int64_t out = bottleneck ? width * 4 : width;
    bool changes = stride != 1 || in != out;
    int kind = (bottleneck ? BOTTLENECK : PLAIN) | (changes ? DOWNSAMPLE : PLAIN);
    Build b = build_open(bottleneck ? "Bottleneck" : "BasicBlock", block_forward,
                         (void *)&block_kinds[kind]);
    build_add(&b, "conv1",
              bottleneck ? convolution(in, width, 1, 1) : convolution(in, width, 3, stride));
    build_add(&b, "bn1", norm(width));
    if (!bottleneck) build_add(&b, "relu", cb_nn_relu());
    build_add(&b, "conv2", convolution(width, width, 3, bottleneck ? stride : 1));
    build_add(&b, "bn2", norm(width));
    if (bottleneck) {
        build_add(&b, "conv3", convolution(width, out, 1, 1));
        build_add(&b, "bn3", norm(out));
        build_add(&b, "relu", cb_nn_relu());
    }
    if (changes)
        build_add(&b, "downsample", cb_nn_sequential(convolution(in, out, 1, stride), norm(out)));
    return b.module;
}

enum { MOST_BLOCKS = 64 }; /* of a stage */

static cb_module *stage_new(const cb_resnet_config *config, int stage, int64_t *channels) {
    cb_module *blocks[MOST_BLOCKS];
    int count = config->blocks[stage];
    int64_t width = config->width << stage;
    for (int i = 0; i < count; i++) {
        int64_t stride = i == 0 && stage > 0 ? 2 : 1;
        blocks[i] = block_new(config->bottleneck, *channels, width, stride);
        *channels = config->bottleneck ? width * 4 : width;
    }
    return cb_nn_sequential_n(blocks, count);
}

static const char *const stages[] = {"layer1", "layer2", "layer3", "layer4"};

static cb_tensor *forward(cb_module *self, cb_tensor *const *inputs, int count) {
    cb_tensor *x = step(self, "conv1", "bn1", count > 0 ? inputs[0] : NULL);
    x = cb_forward(cb_module_child(self, "relu"), x);
    x = cb_forward(cb_module_child(self, "maxpool"), x);
    for (int i = 0; i < 4; i++) x = cb_forward(cb_module_child(self, stages[i]), x);
    x = cb_forward(cb_module_child(self, "avgpool"), x);
    return cb_forward(cb_module_child(self, "fc"), cb_flatten(x, 1));
}

cb_module *cb_model_resnet(cb_resnet_config config) {
    if (config.width < 1) return build_refuse("resnet: a width of %" PRId64, config.width);
    for (int i = 0; i < 4; i++)
        if (config.blocks[i] < 0 || config.blocks[i] > MOST_BLOCKS)
            return build_refuse("resnet: %d blocks in %s; 0 to %d can be", config.blocks[i],
                                stages[i], MOST_BLOCKS);
    int64_t channels = config.width;
    Build b = build_open("ResNet", forward, NULL);
    cb_module *first = cb_nn_conv2d(3, channels, 7, 2, 3, 1, 1, false);
    build_add(&b, "conv1", first);
    build_add(&b, "bn1", norm(channels));
    build_add(&b, "relu", cb_nn_relu());
    build_add(&b, "maxpool", cb_nn_max_pool2d(3, 2, 1));
    for (int i = 0; i < 4; i++) build_add(&b, stages[i], stage_new(&config, i, &channels));
    build_add(&b, "avgpool", cb_nn_adaptive_avg_pool2d(cb_dims(1, 1)));
    build_add(&b, "fc", cb_nn_linear(channels, config.classes, true));
    return b.module;
}
