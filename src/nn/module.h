/* Modules inside: a tree of named parameters and children with a forward function.
 * The layers (layer.h) are modules with a Config; symbolic
 * trace (src/fx/trace.c) hooks into the call door through ModuleTracer. */
#ifndef CARBIDE_NN_MODULE_H
#define CARBIDE_NN_MODULE_H

#include "base/buffer.h"
#include "tensor/apply.h"

typedef struct cb_module Module;

typedef struct ModuleTensor {
    char *name;
    Tensor *tensor; /* kept; NULL: registered as absent */
    bool buffer;
} ModuleTensor;

typedef struct ModuleChild {
    char *name;
    Module *module;
} ModuleChild;

/* What a built-in layer was made with. */
typedef struct Config {
    double number, second_number;
    int64_t first, second;
    cb_dim_list dims;
    cb_dim_list stride, padding, dilation; /* windows */
    bool flag, second_flag;
} Config;

struct cb_module {
    char *type, *extra, *inputs;
    cb_forward_function *forward; /* NULL: a module that only holds others */
    void *user;
    void (*destroy)(void *user);
    ModuleTensor *tensor;
    ModuleChild *child;
    int tensor_count, tensor_capacity, child_count, child_capacity;
    int parents; /* modules that hold this one */
    bool training, leaf;
    bool fresh;   /* forward always returns a new tensor, and holds on to none of its inputs */
    bool grouped; /* prints equal neighbours as one line, as ModuleList does */
    Config config;
};

/* A layer of our own: a leaf. extra is copied. */
Module *module_layer(const char *type, cb_forward_function *forward, bool fresh, const char *extra);
/* Registers value. When that fails, or value is NULL, the module is freed, *module is NULL, and
 * false comes back. */
bool module_init(Module **module, const char *name, Tensor *value, bool buffer);

/* The slot of a path, NULL without an error when there is none. */
ModuleTensor *module_find_tensor(const Module *module, const char *path);
Module *module_find_child(const Module *module, const char *path);
/* Writes the path from root to a descendant, or to a parameter or buffer; false when it is not
 * below root. */
bool module_path_of_child(const Module *root, const Module *module, Buffer *out);
bool module_path_of_tensor(const Module *root, const Tensor *tensor, Buffer *out);

/* A symbolic trace of this thread: leaf calls go to call while tracer is the current one. */
typedef struct ModuleTracer ModuleTracer;
struct ModuleTracer {
    Tracer *tracer;
    Tensor *(*call)(ModuleTracer *self, Module *module, Tensor *const *inputs, int count);
};
ModuleTracer *module_tracer_set(ModuleTracer *tracer); /* returns the one before */

#endif
