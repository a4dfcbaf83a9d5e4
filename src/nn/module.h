/* Modules inside: a tree of named parameters and children with a forward function.
 * The layers (layer.h) are modules with an op and its attributes; symbolic trace (src/fx/trace.c)
 * hooks into the call door through ModuleTracer. */
#ifndef CARBIDE_NN_MODULE_H
#define CARBIDE_NN_MODULE_H

#include "base/buffer.h"
#include "base/tomb.h"
#include "eager/apply.h"

#include <math.h>

typedef struct cb_module Module;

/* What a number may be, low and high included. */
typedef struct ValueRange {
    const char *name, *text; /* "at least 0" */
    double low, high;
    bool whole;
} ValueRange;
static inline bool value_within(const ValueRange *range, double value) {
    return value >= range->low && value <= range->high && (!range->whole || value == floor(value));
}

typedef struct ModuleTensor {
    char *name;
    Tensor *tensor; /* kept; NULL: registered as absent */
    bool buffer;
    bool decides;            /* what is recorded depends on its elements */
    const ValueRange *range; /* of what a file may give it; NULL: everything */
} ModuleTensor;

typedef struct ModuleChild {
    char *name;
    Module *module;
} ModuleChild;

/* What a layer that is more than one op was made with besides its attributes. */
typedef struct Config {
    double number;
    int64_t first, second;
    cb_dim_list dims;
    bool flag, other;
} Config;

struct cb_module {
    Tomb tomb; /* first */
    char *type, *extra, *inputs;
    cb_forward_function *forward; /* NULL: a module that only holds others */
    void *user;
    void (*destroy)(void *user);
    ModuleTensor *tensor;
    ModuleChild *child;
    int tensor_count, tensor_capacity, child_count, child_capacity;
    int parents; /* modules that hold this one */
    bool training, leaf;
    bool ours;    /* forward is the library's own: it takes and gives tensors, the user's handles */
    bool fresh;   /* forward always returns a new tensor, and holds on to none of its inputs */
    bool grouped; /* prints equal neighbours as one line, as ModuleList does */
    Op op;        /* built-in layers: what forward calls (layer.h), with these attributes */
    Attrs attrs;
    Config config;
};

/* False for NULL, and with an error for a module that was freed. */
static inline bool module_lives(const Module *module, const char *what) {
    return module && tomb_lives(&module->tomb, what);
}

/* A layer of our own: a leaf. extra is copied. */
Module *module_layer(const char *type, cb_forward_function *forward, const char *extra);
bool module_set_type(Module *module, const char *type); /* its name in repr; false: no memory */
/* cb_module_add, but a child that finds no place stays the caller's. */
Module *module_add(Module *module, const char *name, Module *child);
/* Registers value. When that fails, or value or *module is NULL, value and module are freed and
 * *module is NULL. */
void module_init(Module **module, const char *name, Tensor *value, bool buffer);

/* The slot's tensor is another one, NULL for none, which is the module's from now on, as it is
 * that of other slots that hold it. The one before is freed when no slot holds it any more. */
void module_hold(ModuleTensor *slot, Tensor *tensor);
/* cb_module_forward, inside. */
Tensor *module_forward(Module *module, Tensor *const *inputs, int count);

/* Is it the module itself, or a descendant? */
bool module_contains(const Module *module, const Module *wanted);

/* The slot of a path, NULL without an error when there is none. */
ModuleTensor *module_find_tensor(const Module *module, const char *path);
Module *module_find_child(const Module *module, const char *path);
/* Writes the path from root to a descendant, or to a parameter or buffer; false when it is not
 * below root. */
bool module_path_of_child(const Module *root, const Module *module, Buffer *out);
bool module_path_of_tensor(const Module *root, const Tensor *tensor, Buffer *out);

/* The module whose forward runs is where errors happen: its path, from the outermost module that
 * runs, opens their message. Between enter and leave lies the work; leave gives the thread's line
 * back, too. */
typedef struct ModuleFrame {
    Place place; /* first: write() gets back to the frame from it */
    const Module *module;
    Site site;
} ModuleFrame;
void module_enter(ModuleFrame *frame, const Module *module);
void module_leave(const ModuleFrame *frame);
/* How it is set decides what happens now: the thread's tracer hears of it. */
void module_met(const Module *module);
/* Runs forward in a frame of its own. NULL comes with an error. */
Tensor *module_run(Module *module, Tensor *const *inputs, int count);
/* How the innermost module that runs is set, or the one that ran last since module_mode_forget. */
typedef enum __attribute__((packed)) ModuleMode {
    MODULE_UNKNOWN,
    MODULE_EVALUATES,
    MODULE_TRAINS
} ModuleMode;
ModuleMode module_mode(void);
void module_mode_forget(void);

/* A symbolic trace of this thread: leaf calls go to call while tracer is the current one. */
typedef struct ModuleTracer ModuleTracer;
struct ModuleTracer {
    Tracer *tracer;
    Tensor *(*call)(ModuleTracer *self, Module *module, Tensor *const *inputs, int count);
};
ModuleTracer *module_tracer_set(ModuleTracer *tracer); /* returns the one before */

#endif
