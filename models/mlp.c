/* Linear layers with relu between them.
 *
 * In:  features f32[batch, width[0]].
 * Out: f32[batch, width[count - 1]].
 * Keys: those of nn.Sequential: 0.weight, 0.bias, 2.weight, 2.bias, ... */
#include "build.h"

enum { MOST_LAYERS = 32 };

cb_module *cb_model_mlp(const int64_t *width, int count) {
    cb_module *layers[2 * MOST_LAYERS];
    if (count < 2 || count > MOST_LAYERS)
        return build_refuse("mlp: %d widths; 2 to %d can be", count, MOST_LAYERS);
    int used = 0;
    for (int i = 0; i + 1 < count; i++) {
        if (i) layers[used++] = cb_nn_relu();
        layers[used++] = cb_nn_linear(width[i], width[i + 1], true);
    }
    return cb_nn_sequential_n(layers, used);
}
