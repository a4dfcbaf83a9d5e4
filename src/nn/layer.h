/* What the layers' files share: making a leaf with its printed text, initial values, inputs. */
#ifndef CARBIDE_NN_LAYER_H
#define CARBIDE_NN_LAYER_H

#include "nn/module.h"

/* A leaf whose forward is one op: over its input, then over the layer's own tensors in the order of
 * their registration, with attrs. format: what repr prints. */
Module *layer_new(const char *type, Op op, const Attrs *attrs, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same, of what repr prints by name: for the rows of layers.def. Ends with a NULL name; "" has
 * its value printed alone. */
typedef struct LayerShown {
    const char *name;
    ParamType type;
    int word;   /* of attrs */
    bool tuple; /* a list is one even with a single number */
} LayerShown;
Module *layer_of_op(const char *type, Op op, const LayerShown *shown, const Attrs *attrs);

bool layer_one_input(const Module *module, int count);
/* The op of a layer over x, with further tensors of its own. */
Tensor *layer_apply(const Module *module, Tensor *x);

/* Register a tensor's initial value, or its absence. When anything fails, the module is freed and
 * *module NULL; with that nothing happens but that the value is let go. */
void layer_value(Module **module, const char *name, Tensor *value);
void layer_buffer(Module **module, const char *name, Tensor *value);
void layer_absent(Module **module, const char *name);

/* Initial values; never part of a trace that is going on. */
Tensor *layer_uniform(cb_dim_list sizes, double bound); /* in (-bound, bound) */
Tensor *layer_normal(cb_dim_list sizes);
Tensor *layer_filled(cb_dim_list sizes, double value, cb_dtype dtype);

/* Tensors of the layer itself stand at fixed places: no lookup by name on each call. */
static inline Tensor *layer_own(const Module *module, int index) {
    return index < module->tensor_count ? module->tensor[index].tensor : NULL;
}

/* A value of ours in a printed text: "1e-05", "2.0"; "True"; a list as Python's tuple, "(3, 3)",
 * "(3,)"; "3" for a list that was given as one number. */
typedef struct LayerText {
    char at[160];
} LayerText;
LayerText layer_number(double value);
LayerText layer_operand(cb_operand number); /* "2", "2.0", "True", "None" */
LayerText layer_numbers(cb_float_list list); /* "(2.0, 1.5)", "2.0" for a list of one */
LayerText layer_tuple(cb_dim_list list);
LayerText layer_given(cb_dim_list list);
static inline const char *layer_bool(bool value) { return value ? "True" : "False"; }
/* The list with one element for each of rank dims; false with an error when it has neither one nor
 * rank, or one below least. */
bool layer_spread(const char *type, const char *name, cb_dim_list *list, int rank, int64_t least);

#endif
