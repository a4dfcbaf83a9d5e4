/* Modules: network layers with named parameters, buffers and children, after torch.nn.
 * Included by carbide.h; include that.
 *
 *     static cb_tensor *forward(cb_module *self, cb_tensor *const *inputs, int count) {
 *         cb_tensor *x = inputs[0];
 *         return cb_relu(cb_add(cb_forward(cb_module_child(self, "linear"), x), x));
 *     }
 *
 *     cb_module *block = cb_module_new("Block", forward, NULL);
 *     cb_module_add(block, "linear", cb_nn_linear(4, 4, true));
 *     cb_tensor *y = cb_forward(block, x);
 *     cb_module_print(block);                  as PyTorch prints
 *     cb_module_free(block);                   children and parameters with it
 *
 * Layer names, parameter names and default initialization are PyTorch's, so that a state dict has
 * the same keys ("0.weight"). A module owns its children and its parameters: parameters belong to
 * no scope and live until cb_module_free. Paths ("layer1.0") lead from a module to a descendant.
 * Modules are not changed by calls, so several threads may call one; changing one needs a single
 * thread. */
#ifndef CARBIDE_NN_H
#define CARBIDE_NN_H

/* Computes one tensor from inputs[0 .. count-1]; NULL with an error recorded when it cannot. */
typedef cb_tensor *cb_forward_function(cb_module *self, cb_tensor *const *inputs, int count);

/* ---- building ------------------------------------------------------------------------------ */

/* A module of the user's own. user is handed back by cb_module_user and is not owned. */
CB_API cb_module *cb_module_new(const char *type, cb_forward_function *forward, void *user);
CB_API void *cb_module_user(const cb_module *module);
/* Frees the module, its parameters and its children; a child that other modules hold too stays. A
 * module that still has a parent is freed with it, and refused here. */
CB_API void cb_module_free(cb_module *module);
/* destroy(user) is called when the module is freed. */
CB_API void cb_module_on_free(cb_module *module, void (*destroy)(void *user));

/* Takes over child under a name without dots; returns child. One child may be added at several
 * places: it is shared. With a NULL child (its constructor failed) nothing happens and NULL comes
 * back. Child is taken over also when the call fails, or module is NULL: NULL comes back, and a
 * child that no module holds is freed; one that has module among its descendants stays as it
 * was. */
CB_API cb_module *cb_module_add(cb_module *module, const char *name, cb_module *child);
/* Takes over a tensor, out of its scope, as a parameter (trained) or a buffer (not trained, but
 * part of the state dict); the same tensor comes back. A name that exists is replaced. NULL
 * registers an absent parameter, such as the bias of a layer without one. When the call fails, the
 * tensor stays its scope's; so it does not take what cb_tensor_grad gives. */
CB_API cb_tensor *cb_module_parameter(cb_module *module, const char *name, cb_tensor *tensor);
CB_API cb_tensor *cb_module_buffer(cb_module *module, const char *name, cb_tensor *tensor);
/* Registers another module's parameter here as well (tied weights): it is the same tensor under
 * both names, with one gradient, and the last module that has it frees it. Of a tensor that is no
 * module's, it is another one over the same elements. */
CB_API cb_tensor *cb_module_share(cb_module *module, const char *name, cb_tensor *parameter);
/* The names of forward's inputs, "x, mask"; the default is one input, "x". Symbolic trace uses
 * them. */
CB_API cb_status cb_module_inputs(cb_module *module, const char *names);
/* What cb_module_print writes between the parentheses of a module without children. */
CB_API cb_status cb_module_extra(cb_module *module, const char *text);

/* ---- using --------------------------------------------------------------------------------- */

/* The door of every module call: a symbolic trace records leaf modules here instead of running
 * them. */
CB_API cb_tensor *cb_module_forward(cb_module *module, cb_tensor *const *inputs, int count);
/* cb_forward(module, x, ...) is the same for inputs written one by one. */
#ifdef __cplusplus
}
template <typename... T> static inline cb_tensor *cb_forward(cb_module *module, T... x) {
    cb_tensor *inputs[] = {x...};
    return cb_module_forward(module, inputs, static_cast<int>(sizeof...(T)));
}
extern "C" {
#else
#define cb_forward(module, ...)                                                                    \
    CB_AT(cb_module_forward, (module), (cb_tensor *[]){__VA_ARGS__},                               \
          (int)(sizeof((cb_tensor *[]){__VA_ARGS__}) / sizeof(cb_tensor *)))
#endif

/* A descendant, or a parameter or buffer, by path; NULL with an error when there is none. "" is the
 * module itself. An absent parameter is NULL without an error. All stay the module's: nobody frees
 * them. */
CB_API cb_module *cb_module_child(cb_module *module, const char *path);
CB_API cb_tensor *cb_module_get(cb_module *module, const char *path);
CB_API int cb_module_child_count(const cb_module *module);
CB_API cb_module *cb_module_child_at(const cb_module *module, int index, const char **name);
CB_API const char *cb_module_type(const cb_module *module);

CB_API void cb_module_train(cb_module *module, bool training); /* with all descendants */
CB_API bool cb_module_training(const cb_module *module);       /* new modules train */
/* Leaves are recorded whole by symbolic trace. Built-in layers are leaves, containers and the
 * user's own modules are not. */
CB_API void cb_module_set_leaf(cb_module *module, bool leaf);
CB_API bool cb_module_is_leaf(const cb_module *module);

/* Calls visit for every parameter and buffer that exists, in the order of PyTorch's state dict.
 * name is valid during the call only. */
typedef void cb_tensor_visitor(const char *name, cb_tensor *tensor, bool buffer, void *user);
CB_API void cb_module_visit(cb_module *module, cb_tensor_visitor *visit, void *user);
/* Fills out with the parameters, as far as capacity goes, and returns how many there are: tied ones
 * (cb_module_share) once, under their first name. */
CB_API int cb_module_parameters(cb_module *module, cb_tensor **out, int capacity);
/* Converts all floating-point parameters and buffers; tied ones stay tied, and what requires a
 * gradient requires one still, but has none. Optimizers that were made before hold the old ones,
 * which are gone: make them behind it. Without memory some are converted; a second call goes on. */
CB_API cb_status cb_module_to(cb_module *module, cb_dtype dtype);

CB_API void cb_module_print(const cb_module *module); /* to stdout, in PyTorch's format */
CB_API char *cb_module_text(const cb_module *module); /* the same text; free it with cb_free_text */

/* ---- initial values --------------------------------------------------------------------------
 * torch.nn.init: x is written in place, whatever requires a gradient, and comes back; NULL with an
 * error. Random ones draw from cb_manual_seed's generator, right where x lies when that is one
 * piece: no second tensor is made, and what x holds is undefined if memory runs out all the same.
 * Trailing arguments may be left out:
 *
 *     cb_init_uniform_(x, a=0, b=1)                 cb_init_normal_(x, mean=0, std=1)
 *     cb_init_trunc_normal_(x, mean=0, std=1, a=-2, b=2)    normal, of a..b alone
 *     cb_init_xavier_uniform_(x, gain=1)            cb_init_xavier_normal_(x, gain=1)
 *     cb_init_kaiming_uniform_(x, a=0, mode="fan_in", nonlinearity="leaky_relu"), and
 *     cb_init_kaiming_normal_; mode is "fan_in" or "fan_out", a the slope of leaky_relu
 *     cb_init_orthogonal_(x, gain=1)     rows (or, of a tall matrix, columns) at right angles
 *
 * xavier, kaiming and orthogonal take [out, in, ...]: two dims at least. */
CB_API cb_tensor *cb_init_constant_(cb_tensor *x, double value);
CB_API cb_tensor *cb_init_uniform_(cb_tensor *x, double a, double b);
CB_API cb_tensor *cb_init_normal_(cb_tensor *x, double mean, double std);
CB_API cb_tensor *cb_init_trunc_normal_(cb_tensor *x, double mean, double std, double a, double b);
CB_API cb_tensor *cb_init_xavier_uniform_(cb_tensor *x, double gain);
CB_API cb_tensor *cb_init_xavier_normal_(cb_tensor *x, double gain);
CB_API cb_tensor *cb_init_kaiming_uniform_(cb_tensor *x, double a, const char *mode,
                                           const char *nonlinearity);
CB_API cb_tensor *cb_init_kaiming_normal_(cb_tensor *x, double a, const char *mode,
                                          const char *nonlinearity);
CB_API cb_tensor *cb_init_orthogonal_(cb_tensor *x, double gain);
/* torch.nn.init.calculate_gain: "linear", "conv1d" .. "conv_transpose3d", "sigmoid", "tanh",
 * "relu", "selu", "leaky_relu" (with the slope param). NAN with an error for another. */
CB_API double cb_calculate_gain(const char *nonlinearity, double param);

/* ---- layers ---------------------------------------------------------------------------------
 * One constructor per row of src/nn/layers.def, with PyTorch's names in lower case, its parameters,
 * their order and defaults: cb_nn_conv2d(3, 64, 7, 2, 3), cb_nn_max_pool2d(3, 2), cb_nn_relu(),
 * cb_nn_layer_norm(768). Trailing arguments that have a default may be left out, an integer stands
 * for a list, and the padding of a convolution may be "same". Parameters are f32 and drawn from
 * cb_manual_seed's generator.
 *
 * Convolutions, pools and norms take [batch, channels, spatial...]. Batch norms in training, and
 * instance norms that track, move running_mean and running_var in place. The forward of a
 * multihead attention takes x (attention of x to itself), or query, key, value, each [length,
 * batch, embed_dim] (kdim wide for key, vdim for value), or [batch, length, embed_dim] when it was
 * made with batch_first true, or without the batch, and after them a mask: bool, true where
 * attention is forbidden, or a float to add. What comes back is the output without the weights. */
#include <carbide_layers.h>

/* PyTorch's whole call of such a module: key_padding_mask [batch, source] ([source] without a
 * batch) and attn_mask [length, source] or [batch * heads, length, source] may be NULL, and are as
 * above. With weights not NULL, *weights are what each query gave to each key: [batch, length,
 * source], the average over heads, or [batch, heads, length, source]; keys that add_bias_kv and
 * add_zero_attn append count in source there. Without weights, no matrix of them need be in memory.
 * is_causal, which may be left out, has query i see the keys up to i; next to an attn_mask it
 * changes nothing, as PyTorch's hint. */
CB_API cb_tensor *cb_multihead_attention(cb_module *attention_module, cb_tensor *query,
                                         cb_tensor *key, cb_tensor *value,
                                         cb_tensor *key_padding_mask, cb_tensor *attn_mask,
                                         bool average_attn_weights, cb_tensor **weights,
                                         bool is_causal);
CB_AT_GIVES(cb_tensor *, cb_multihead_attention, (cb_module *attention_module, cb_tensor *query,
                                                  cb_tensor *key, cb_tensor *value,
                                                  cb_tensor *key_padding_mask,
                                                  cb_tensor *attn_mask, bool average_attn_weights,
                                                  cb_tensor **weights, bool is_causal),
            (attention_module, query, key, value, key_padding_mask, attn_mask, average_attn_weights,
             weights, is_causal))
#define CB_multihead_attention_8(...) CB_AT(cb_multihead_attention, __VA_ARGS__, false)
#define CB_multihead_attention_9(...) CB_AT(cb_multihead_attention, __VA_ARGS__)
#define cb_multihead_attention(...)                                                                \
    CB_PICK_9(__VA_ARGS__, CB_multihead_attention_9, CB_multihead_attention_8,                     \
              CB_TOO_FEW_ARGUMENTS, CB_TOO_FEW_ARGUMENTS, CB_TOO_FEW_ARGUMENTS,                    \
              CB_TOO_FEW_ARGUMENTS, CB_TOO_FEW_ARGUMENTS, CB_TOO_FEW_ARGUMENTS,                    \
              CB_TOO_FEW_ARGUMENTS, )                                                              \
    (__VA_ARGS__)

/* Containers name their children "0", "1", ... and take them over, also when they fail (a NULL
 * among them). */
CB_API cb_module *cb_nn_sequential_n(cb_module *const *layers, int count);
CB_API cb_module *cb_nn_module_list_n(cb_module *const *layers, int count); /* has no forward */
#ifdef __cplusplus
}
template <typename... T> static inline cb_module *cb_nn_sequential(T... layer) {
    cb_module *layers[] = {layer...};
    return cb_nn_sequential_n(layers, static_cast<int>(sizeof...(T)));
}
template <typename... T> static inline cb_module *cb_nn_module_list(T... layer) {
    cb_module *layers[] = {layer...};
    return cb_nn_module_list_n(layers, static_cast<int>(sizeof...(T)));
}
extern "C" {
#else
#define CB_MODULES(...)                                                                            \
    (cb_module *[]){__VA_ARGS__}, (int)(sizeof((cb_module *[]){__VA_ARGS__}) / sizeof(cb_module *))
#define cb_nn_sequential(...) cb_nn_sequential_n(CB_MODULES(__VA_ARGS__))
#define cb_nn_module_list(...) cb_nn_module_list_n(CB_MODULES(__VA_ARGS__))
#endif

#endif
