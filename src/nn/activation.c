/* Layers without weights, and the containers.
 *
 *     cb_nn_softmax(-1): Softmax(dim=-1), forward is cb_softmax(x, -1)
 *     cb_nn_sequential(a, b): children "0" and "1", forward is b(a(x)) */
#include "base/memory.h"
#include "nn/layer.h"

/* Each row: the function, PyTorch's type name, and forward's value from x and the layer's config
 * c. */
#define PLAIN_LAYER(name, type, ...)                                                               \
    static Tensor *name##_layer(Module *self, Tensor *const *inputs, int count) {                  \
        if (!layer_one_input(self, count)) return NULL;                                            \
        Tensor *x = inputs[0];                                                                     \
        return __VA_ARGS__;                                                                        \
    }                                                                                              \
    cb_module *cb_nn_##name(void) { return module_layer(type, name##_layer, true, ""); }

PLAIN_LAYER(relu, "ReLU", (cb_relu)(cb_operand_tensor(x)))
PLAIN_LAYER(silu, "SiLU", (cb_silu)(x))
PLAIN_LAYER(tanh, "Tanh", (cb_tanh)(cb_operand_tensor(x)))
PLAIN_LAYER(sigmoid, "Sigmoid", (cb_sigmoid)(cb_operand_tensor(x)))
PLAIN_LAYER(relu6, "ReLU6", (cb_relu6)(x))
PLAIN_LAYER(hardswish, "Hardswish", (cb_hardswish)(x))
PLAIN_LAYER(mish, "Mish", (cb_mish)(x))

static Module *configured(const char *type, cb_forward_function *forward, bool fresh, Config config,
                          const char *extra) {
    Module *module = module_layer(type, forward, fresh, extra);
    if (module) module->config = config;
    return module;
}

static Tensor *gelu(Module *self, Tensor *const *inputs, int count) {
    return layer_one_input(self, count) ? (cb_gelu)(inputs[0], self->config.first != 0) : NULL;
}

cb_module *cb_nn_gelu(bool tanh_form) {
    return configured("GELU", gelu, true, (Config){.first = tanh_form},
                      tanh_form ? "approximate='tanh'" : "approximate='none'");
}

static Tensor *softmax(Module *self, Tensor *const *inputs, int count) {
    return layer_one_input(self, count) ? (cb_softmax)(inputs[0], self->config.first) : NULL;
}

cb_module *cb_nn_softmax(int dim) {
    char extra[32];
    snprintf(extra, sizeof extra, "dim=%d", dim);
    return configured("Softmax", softmax, true, (Config){.first = dim}, extra);
}

static Tensor *log_softmax(Module *self, Tensor *const *inputs, int count) {
    return layer_one_input(self, count) ? (cb_log_softmax)(inputs[0], self->config.first) : NULL;
}

cb_module *cb_nn_log_softmax(int dim) {
    char extra[32];
    snprintf(extra, sizeof extra, "dim=%d", dim);
    return configured("LogSoftmax", log_softmax, true, (Config){.first = dim}, extra);
}

static Tensor *flatten(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count)) return NULL;
    return (cb_flatten)(inputs[0], self->config.first, self->config.second);
}

cb_module *cb_nn_flatten(int start_dim, int end_dim) {
    char extra[64];
    snprintf(extra, sizeof extra, "start_dim=%d, end_dim=%d", start_dim, end_dim);
    return configured("Flatten", flatten, true, (Config){.first = start_dim, .second = end_dim},
                      extra);
}

/* "NAME=VALUE" with the value as Python's repr, and what else the layer prints. */
static Module *with_number(const char *type, cb_forward_function *forward, bool fresh,
                           const char *name, double value, const char *rest) {
    Arena *arena = arena_new();
    if (!arena || arena_guard(arena)) {
        arena_free(arena);
        fail_memory(0);
        return NULL;
    }
    Buffer extra = buffer_new(arena);
    putf(&extra, "%s=", name);
    put_double(&extra, value);
    put(&extra, rest);
    Module *module =
        configured(type, forward, fresh, (Config){.number = value}, buffer_text(&extra));
    arena_free(arena);
    return module;
}

static Tensor *leaky_relu(Module *self, Tensor *const *inputs, int count) {
    return layer_one_input(self, count) ? (cb_leaky_relu)(inputs[0], self->config.number) : NULL;
}

cb_module *cb_nn_leaky_relu(double negative_slope) {
    return with_number("LeakyReLU", leaky_relu, true, "negative_slope", negative_slope, "");
}

static Tensor *elu(Module *self, Tensor *const *inputs, int count) {
    return layer_one_input(self, count) ? (cb_elu)(inputs[0], self->config.number) : NULL;
}

cb_module *cb_nn_elu(double alpha) { return with_number("ELU", elu, true, "alpha", alpha, ""); }

static Tensor *softplus(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count)) return NULL;
    return (cb_softplus)(inputs[0], self->config.number, self->config.second_number);
}

cb_module *cb_nn_softplus(double beta, double threshold) {
    char rest[192];
    snprintf(rest, sizeof rest, ", threshold=%s", layer_number(threshold).at);
    Module *module = with_number("Softplus", softplus, true, "beta", beta, rest);
    if (module) module->config.second_number = threshold;
    return module;
}

/* In evaluation the input itself comes back, as in PyTorch. */
static Tensor *dropout(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count)) return NULL;
    if (!self->training || self->config.number == 0) return inputs[0];
    return (cb_dropout)(inputs[0], self->config.number, true);
}

cb_module *cb_nn_dropout(double p) {
    if (!(p >= 0 && p <= 1)) {
        fail(CB_ERR_ARGUMENT, "Dropout: the probability is between 0 and 1, not %g", p);
        return NULL;
    }
    return with_number("Dropout", dropout, false, "p", p, ", inplace=False");
}

static Tensor *identity(Module *self, Tensor *const *inputs, int count) {
    return layer_one_input(self, count) ? inputs[0] : NULL;
}

cb_module *cb_nn_identity(void) { return module_layer("Identity", identity, false, ""); }

/* ---- containers ----------------------------------------------------------------------------- */

static Tensor *sequential(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count)) return NULL;
    Tensor *x = inputs[0];
    for (int i = 0; i < self->child_count && x; i++)
        x = cb_module_forward(self->child[i].module, &x, 1);
    return x;
}

static bool add_numbered(Module *container, Module *const *layers, int count) {
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        if (!cb_module_add(container, name, layers[i])) return false;
    }
    return true;
}

/* A failed container lets go of what it had taken over; then every layer is freed once. */
static void abandon(Module *container, Module *const *layers, int count) {
    for (int i = 0; container && i < container->child_count; i++) {
        container->child[i].module->parents--;
        memory_free(container->child[i].name);
    }
    if (container) container->child_count = 0;
    cb_module_free(container);
    for (int i = 0; layers && i < count; i++) {
        bool repeated = !layers[i];
        for (int j = 0; j < i; j++) repeated = repeated || layers[j] == layers[i];
        if (!repeated && layers[i]->parents == 0) cb_module_free(layers[i]);
    }
}

static Module *container_of(const char *type, cb_forward_function *forward, Module *const *layers,
                            int count) {
    bool whole = count == 0 || layers;
    for (int i = 0; whole && i < count; i++) whole = layers[i] != NULL;
    if (!whole && !cb_error()) fail(CB_ERR_ARGUMENT, "%s: a layer is NULL", type);
    Module *container = whole ? module_layer(type, forward, false, "") : NULL;
    if (container) container->leaf = false;
    if (container && add_numbered(container, layers, count)) return container;
    abandon(container, layers, count);
    return NULL;
}

cb_module *cb_nn_sequential_n(cb_module *const *layers, int count) {
    return container_of("Sequential", sequential, layers, count);
}

cb_module *cb_nn_module_list_n(cb_module *const *layers, int count) {
    Module *list = container_of("ModuleList", NULL, layers, count);
    if (list) list->grouped = true;
    return list;
}
