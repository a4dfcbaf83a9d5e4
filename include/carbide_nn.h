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

/* Takes over child under a name without dots; returns child. With a NULL child (its constructor
 * failed) nothing happens and NULL comes back. One child may be added at several places: it is
 * shared. */
CB_API cb_module *cb_module_add(cb_module *module, const char *name, cb_module *child);
/* Takes over a tensor, out of its scope, as a parameter (trained) or a buffer (not trained, but
 * part of the state dict); the same tensor comes back. A name that exists is replaced. NULL
 * registers an absent parameter, such as the bias of a layer without one. */
CB_API cb_tensor *cb_module_parameter(cb_module *module, const char *name, cb_tensor *tensor);
CB_API cb_tensor *cb_module_buffer(cb_module *module, const char *name, cb_tensor *tensor);
/* Registers another module's parameter here as well (tied weights): both names share one
 * storage. */
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
    return cb_module_forward(module, inputs, (int)sizeof...(T));
}
extern "C" {
#else
#define cb_forward(module, ...)                                                                    \
    cb_module_forward((module), (cb_tensor *[]){__VA_ARGS__},                                      \
                      (int)(sizeof((cb_tensor *[]){__VA_ARGS__}) / sizeof(cb_tensor *)))
#endif

/* A descendant, or a parameter or buffer, by path; NULL with an error when there is none. "" is the
 * module itself. An absent parameter is NULL without an error. */
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
/* Fills out with the parameters, as far as capacity goes, and returns how many there are. */
CB_API int cb_module_parameters(cb_module *module, cb_tensor **out, int capacity);
/* Converts all floating-point parameters and buffers; tied ones stay tied. */
CB_API cb_status cb_module_to(cb_module *module, cb_dtype dtype);

CB_API void cb_module_print(const cb_module *module); /* to stdout, in PyTorch's format */
CB_API char *cb_module_text(const cb_module *module); /* the same text; free it with cb_free_text */

/* ---- layers ---------------------------------------------------------------------------------
 * PyTorch's names in lower case; parameters are f32 and drawn from cb_manual_seed's generator. */

CB_API cb_module *cb_nn_linear(int64_t in_features, int64_t out_features, bool bias);
CB_API cb_module *cb_nn_embedding(int64_t count, int64_t dim);
CB_API cb_module *cb_nn_layer_norm(cb_dim_list normalized_shape, double eps); /* usual: 1e-5 */
CB_API cb_module *cb_nn_rms_norm(cb_dim_list normalized_shape, double eps);
CB_API cb_module *cb_nn_dropout(double p);
CB_API cb_module *cb_nn_relu(void);
CB_API cb_module *cb_nn_leaky_relu(double negative_slope);
CB_API cb_module *cb_nn_gelu(bool tanh); /* true: the tanh approximation */
CB_API cb_module *cb_nn_silu(void);
CB_API cb_module *cb_nn_tanh(void);
CB_API cb_module *cb_nn_sigmoid(void);
CB_API cb_module *cb_nn_softmax(int dim);
CB_API cb_module *cb_nn_log_softmax(int dim);
CB_API cb_module *cb_nn_identity(void);
CB_API cb_module *cb_nn_elu(double alpha); /* usual: 1 */
CB_API cb_module *cb_nn_relu6(void);
CB_API cb_module *cb_nn_hardswish(void);
CB_API cb_module *cb_nn_mish(void);
CB_API cb_module *cb_nn_softplus(double beta, double threshold); /* usual: 1, 20 */
CB_API cb_module *cb_nn_flatten(int start_dim, int end_dim); /* PyTorch's: 1, -1 */
/* Convolutions, pools and norms take [batch, channels, spatial...]. Trailing arguments may be left
 * out: stride 1, padding 0, dilation 1, one group, with a bias; a pool's stride is its kernel. A
 * plain integer stands for all spatial dims. */
CB_API cb_module *cb_nn_conv1d(int64_t in_channels, int64_t out_channels, cb_dim_list kernel_size,
                               cb_dim_list stride, cb_dim_list padding, cb_dim_list dilation,
                               int64_t groups, bool bias);
CB_API cb_module *cb_nn_conv2d(int64_t in_channels, int64_t out_channels, cb_dim_list kernel_size,
                               cb_dim_list stride, cb_dim_list padding, cb_dim_list dilation,
                               int64_t groups, bool bias);
CB_API cb_module *cb_nn_conv3d(int64_t in_channels, int64_t out_channels, cb_dim_list kernel_size,
                               cb_dim_list stride, cb_dim_list padding, cb_dim_list dilation,
                               int64_t groups, bool bias);
CB_API cb_module *cb_nn_conv_transpose2d(int64_t in_channels, int64_t out_channels,
                                         cb_dim_list kernel_size, cb_dim_list stride,
                                         cb_dim_list padding, cb_dim_list output_padding,
                                         int64_t groups, bool bias, cb_dim_list dilation);
CB_API cb_module *cb_nn_max_pool2d(cb_dim_list kernel_size, cb_dim_list stride,
                                   cb_dim_list padding, cb_dim_list dilation, bool ceil_mode);
CB_API cb_module *cb_nn_avg_pool2d(cb_dim_list kernel_size, cb_dim_list stride,
                                   cb_dim_list padding, bool ceil_mode, bool count_include_pad);
CB_API cb_module *cb_nn_adaptive_avg_pool2d(cb_dim_list output_size);
CB_API cb_module *cb_nn_upsample(double scale_factor, const char *mode); /* nearest, nearest-exact,
                                                                         * bilinear */
/* Training calls move running_mean and running_var by momentum (usual: 0.1), in place. */
CB_API cb_module *cb_nn_batch_norm1d(int64_t features, double eps, double momentum);
CB_API cb_module *cb_nn_batch_norm2d(int64_t features, double eps, double momentum);
CB_API cb_module *cb_nn_group_norm(int64_t groups, int64_t channels, double eps);
CB_API cb_module *cb_nn_instance_norm2d(int64_t features, double eps, bool affine);
/* forward takes x (attention of x to itself), or query, key, value, each [batch, length,
 * embed_dim] or without the batch, and after them a mask: bool, true where attention is forbidden,
 * or a float to add. What comes back is the output without the weights. */
CB_API cb_module *cb_nn_multihead_attention(int64_t embed_dim, int64_t heads, double dropout,
                                            bool bias);

/* PyTorch's whole call of such a module: key_padding_mask [batch, source] and attn_mask [length,
 * source] or [batch * heads, length, source] may be NULL, and are as above. With weights not NULL,
 * *weights are what each query gave to each key: [batch, length, source], the average over heads,
 * or [batch, heads, length, source]. Without them, no matrix of weights need be in memory. */
CB_API cb_tensor *cb_multihead_attention(cb_module *attention_module, cb_tensor *query,
                                         cb_tensor *key, cb_tensor *value,
                                         cb_tensor *key_padding_mask, cb_tensor *attn_mask,
                                         bool average_attn_weights, cb_tensor **weights);

#define CB_CONV_1(f, i, o, k) CB_CONV_6(f, i, o, k, 1, 0, 1, 1, true)
#define CB_CONV_2(f, i, o, k, s) CB_CONV_6(f, i, o, k, s, 0, 1, 1, true)
#define CB_CONV_3(f, i, o, k, s, p) CB_CONV_6(f, i, o, k, s, p, 1, 1, true)
#define CB_CONV_4(f, i, o, k, s, p, d) CB_CONV_6(f, i, o, k, s, p, d, 1, true)
#define CB_CONV_5(f, i, o, k, s, p, d, g) CB_CONV_6(f, i, o, k, s, p, d, g, true)
#define CB_CONV_6(f, i, o, k, s, p, d, g, b)                                                       \
    f((i), (o), cb_dims_of(k), cb_dims_of(s), cb_dims_of(p), cb_dims_of(d), (g), (b))
#define CB_CONV(f, i, o, ...)                                                                      \
    CB_PICK_6(__VA_ARGS__, CB_CONV_6, CB_CONV_5, CB_CONV_4, CB_CONV_3, CB_CONV_2, CB_CONV_1, )     \
    (f, i, o, __VA_ARGS__)
#define cb_nn_conv1d(i, o, ...) CB_CONV((cb_nn_conv1d), i, o, __VA_ARGS__)
#define cb_nn_conv2d(i, o, ...) CB_CONV((cb_nn_conv2d), i, o, __VA_ARGS__)
#define cb_nn_conv3d(i, o, ...) CB_CONV((cb_nn_conv3d), i, o, __VA_ARGS__)

#define CB_DECONV_1(i, o, k) CB_DECONV_7(i, o, k, 1, 0, 0, 1, true, 1)
#define CB_DECONV_2(i, o, k, s) CB_DECONV_7(i, o, k, s, 0, 0, 1, true, 1)
#define CB_DECONV_3(i, o, k, s, p) CB_DECONV_7(i, o, k, s, p, 0, 1, true, 1)
#define CB_DECONV_4(i, o, k, s, p, q) CB_DECONV_7(i, o, k, s, p, q, 1, true, 1)
#define CB_DECONV_5(i, o, k, s, p, q, g) CB_DECONV_7(i, o, k, s, p, q, g, true, 1)
#define CB_DECONV_6(i, o, k, s, p, q, g, b) CB_DECONV_7(i, o, k, s, p, q, g, b, 1)
#define CB_DECONV_7(i, o, k, s, p, q, g, b, d)                                                     \
    (cb_nn_conv_transpose2d)((i), (o), cb_dims_of(k), cb_dims_of(s), cb_dims_of(p), cb_dims_of(q), \
                             (g), (b), cb_dims_of(d))
#define cb_nn_conv_transpose2d(i, o, ...)                                                          \
    CB_PICK_7(__VA_ARGS__, CB_DECONV_7, CB_DECONV_6, CB_DECONV_5, CB_DECONV_4, CB_DECONV_3,        \
              CB_DECONV_2, CB_DECONV_1, )(i, o, __VA_ARGS__)

#define CB_MAX_POOL_1(k) CB_MAX_POOL_5(k, CB_NO_DIMS, 0, 1, false)
#define CB_MAX_POOL_2(k, s) CB_MAX_POOL_5(k, s, 0, 1, false)
#define CB_MAX_POOL_3(k, s, p) CB_MAX_POOL_5(k, s, p, 1, false)
#define CB_MAX_POOL_4(k, s, p, d) CB_MAX_POOL_5(k, s, p, d, false)
#define CB_MAX_POOL_5(k, s, p, d, c)                                                               \
    (cb_nn_max_pool2d)(cb_dims_of(k), cb_dims_of(s), cb_dims_of(p), cb_dims_of(d), (c))
#define cb_nn_max_pool2d(...)                                                                      \
    CB_PICK_5(__VA_ARGS__, CB_MAX_POOL_5, CB_MAX_POOL_4, CB_MAX_POOL_3, CB_MAX_POOL_2,             \
              CB_MAX_POOL_1, )(__VA_ARGS__)
#define CB_AVG_POOL_1(k) CB_AVG_POOL_5(k, CB_NO_DIMS, 0, false, true)
#define CB_AVG_POOL_2(k, s) CB_AVG_POOL_5(k, s, 0, false, true)
#define CB_AVG_POOL_3(k, s, p) CB_AVG_POOL_5(k, s, p, false, true)
#define CB_AVG_POOL_4(k, s, p, c) CB_AVG_POOL_5(k, s, p, c, true)
#define CB_AVG_POOL_5(k, s, p, c, i)                                                               \
    (cb_nn_avg_pool2d)(cb_dims_of(k), cb_dims_of(s), cb_dims_of(p), (c), (i))
#define cb_nn_avg_pool2d(...)                                                                      \
    CB_PICK_5(__VA_ARGS__, CB_AVG_POOL_5, CB_AVG_POOL_4, CB_AVG_POOL_3, CB_AVG_POOL_2,             \
              CB_AVG_POOL_1, )(__VA_ARGS__)
#define cb_nn_adaptive_avg_pool2d(size) (cb_nn_adaptive_avg_pool2d)(cb_dims_of(size))

/* Containers name their children "0", "1", ... and take them over, also when they fail (a NULL
 * among them). */
CB_API cb_module *cb_nn_sequential_n(cb_module *const *layers, int count);
CB_API cb_module *cb_nn_module_list_n(cb_module *const *layers, int count); /* has no forward */
#ifdef __cplusplus
}
template <typename... T> static inline cb_module *cb_nn_sequential(T... layer) {
    cb_module *layers[] = {layer...};
    return cb_nn_sequential_n(layers, (int)sizeof...(T));
}
template <typename... T> static inline cb_module *cb_nn_module_list(T... layer) {
    cb_module *layers[] = {layer...};
    return cb_nn_module_list_n(layers, (int)sizeof...(T));
}
extern "C" {
#else
#define CB_MODULES(...)                                                                            \
    (cb_module *[]){__VA_ARGS__}, (int)(sizeof((cb_module *[]){__VA_ARGS__}) / sizeof(cb_module *))
#define cb_nn_sequential(...) cb_nn_sequential_n(CB_MODULES(__VA_ARGS__))
#define cb_nn_module_list(...) cb_nn_module_list_n(CB_MODULES(__VA_ARGS__))
#endif

#endif
