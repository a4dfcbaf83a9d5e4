/* Containers: Sequential and ModuleList.
 *
 *     cb_nn_sequential(a, b): children "0" and "1", forward is b(a(x)) */
#include "base/memory.h"
#include "nn/layer.h"

static Tensor *sequential(Module *self, Tensor *const *inputs, int count) {
    if (!layer_one_input(self, count)) return NULL;
    Tensor *x = inputs[0];
    for (int i = 0; i < self->child_count && x; i++)
        x = module_forward(self->child[i].module, &x, 1);
    return x;
}

static bool add_numbered(Module *container, Module *const *layers, int count) {
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        if (!module_add(container, name, layers[i])) return false;
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
    Module *container = whole ? module_layer(type, forward, "") : NULL;
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
