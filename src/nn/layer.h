/* What the layers' files share: making a leaf with its printed text, initial values, inputs. */
#ifndef CARBIDE_NN_LAYER_H
#define CARBIDE_NN_LAYER_H

#include "nn/module.h"

Module *layer_new(const char *type, cb_forward_function *forward, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool layer_one_input(const Module *module, int count);

/* Initial values; never part of a trace that is going on. */
Tensor *layer_uniform(cb_dim_list sizes, double bound); /* in (-bound, bound) */
Tensor *layer_normal(cb_dim_list sizes);
Tensor *layer_filled(cb_dim_list sizes, double value, cb_dtype dtype);

/* Parameters of the layer itself stand at fixed places: no lookup by name on each call. */
static inline Tensor *layer_own(const Module *module, int index) {
    return index < module->tensor_count ? module->tensor[index].tensor : NULL;
}

/* A number of ours in a printed text: "1e-05", "2.0"; a list as Python's tuple, "(3, 3)",
 * "(3,)". */
typedef struct LayerText {
    char at[160];
} LayerText;
LayerText layer_number(double value);
LayerText layer_tuple(cb_dim_list list);
/* The list with one element for each of rank dims; false with an error when it has neither one nor
 * rank, or one below least. */
bool layer_spread(const char *type, const char *name, cb_dim_list *list, int rank, int64_t least);

#endif
