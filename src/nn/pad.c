/* Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad, 1d to 3d.
 *
 *     cb_nn_reflection_pad2d(1): forward is cb_reflection_pad(x, [1, 1, 1, 1]); prints
 *     ReflectionPad2d((1, 1, 1, 1)) */
#include "nn/layer.h"

/* One number stands for all sides. */
static bool spread_sides(const char *type, cb_dim_list *padding, int spatial) {
    if (padding->count == 1)
        for (; padding->count < 2 * spatial; padding->count++)
            padding->at[padding->count] = padding->at[0];
    if (padding->count == 2 * spatial) return true;
    fail(CB_ERR_ARGUMENT, "%s: padding is one number, or %d, not %d", type, 2 * spatial,
         padding->count);
    return false;
}

_Static_assert(ATTR_reflection_pad_padding == ATTR_pad_padding &&
                   ATTR_replication_pad_padding == ATTR_pad_padding &&
                   ATTR_circular_pad_padding == ATTR_pad_padding,
               "pads are called alike");

static Module *pad_layer(const char *type, Op op, cb_dim_list padding, int spatial) {
    Attrs attrs = attrs_default(op);
    if (!spread_sides(type, &padding, spatial)) return NULL;
    attr_set_dims(&attrs, ATTR_pad_padding, padding);
    return layer_new(type, op, &attrs, "%s", layer_tuple(padding).at);
}

static Module *constant_layer(const char *type, cb_dim_list padding, int spatial,
                              cb_operand value) {
    Attrs attrs = attrs_default(OP_pad);
    if (!spread_sides(type, &padding, spatial)) return NULL;
    attr_set_dims(&attrs, ATTR_pad_padding, padding);
    if (!attr_take_number(&attrs, ATTR_pad_value, value, type, "value")) return NULL;
    return layer_new(type, OP_pad, &attrs, "padding=%s, value=%s", layer_tuple(padding).at,
                     layer_operand(value).at);
}

#define PAD(name, type, op)                                                                        \
    cb_module *(cb_nn_##name##1d)(cb_dim_list p) { return pad_layer(type "1d", op, p, 1); }        \
    cb_module *(cb_nn_##name##2d)(cb_dim_list p) { return pad_layer(type "2d", op, p, 2); }        \
    cb_module *(cb_nn_##name##3d)(cb_dim_list p) { return pad_layer(type "3d", op, p, 3); }

PAD(zero_pad, "ZeroPad", OP_pad)
PAD(reflection_pad, "ReflectionPad", OP_reflection_pad)
PAD(replication_pad, "ReplicationPad", OP_replication_pad)
PAD(circular_pad, "CircularPad", OP_circular_pad)

cb_module *(cb_nn_constant_pad1d)(cb_dim_list padding, cb_operand value) {
    return constant_layer("ConstantPad1d", padding, 1, value);
}

cb_module *(cb_nn_constant_pad2d)(cb_dim_list padding, cb_operand value) {
    return constant_layer("ConstantPad2d", padding, 2, value);
}

cb_module *(cb_nn_constant_pad3d)(cb_dim_list padding, cb_operand value) {
    return constant_layer("ConstantPad3d", padding, 3, value);
}
