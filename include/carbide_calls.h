/* The other calls record the line of the caller, as the ops do: a macro for every public function
 * that can fail, of its name. Included by carbide.h, at its end; include that.
 *
 * What takes a tensor or another handle may get it from a function of the caller's that makes calls
 * of its own: there CB_AT sets the line when the arguments are known, and CB_AT_GIVES (carbide.h)
 * makes what it calls. Elsewhere CB_HERE will do.
 *
 * A name in parentheses is the function itself, (cb_free)(x), and so is one without arguments. It
 * leaves the line as the call before it did. */
#ifndef CARBIDE_CALLS_H
#define CARBIDE_CALLS_H

#ifndef CARBIDE_BUILD /* the library's own calls keep the line of the user's */

/* ---- tensors, scopes, compiled functions ---------------------------------------------------- */

/* Three arguments are taken as the ops take theirs. In more, data is a literal with commas, or
 * sizes are: then what stands in the parentheses that data begins with tells the elements, if it is
 * the type of an array or a pointer; other data, such as a literal of rows, are taken for
 * anything. */
#define CB_FOURTH(a, b, c, d, ...) d
#define CB_SECOND(a, b, ...) b
#define CB_THREE() ~, 1
#define CB_IS_THREE(...) CB_IS_THREE_(CB_FOURTH(__VA_ARGS__, CB_THREE, ~, )(), 0, )
#define CB_IS_THREE_(...) CB_SECOND(__VA_ARGS__)
#define CB_FIRST(...) CB_FIRST_(__VA_ARGS__, )
#define CB_FIRST_(a, ...) a
#define CB_INSIDE(...) __VA_ARGS__,
#define CB_TWO_INSIDE(...) ~, 1,
#define CB_HAS_INSIDE(a) CB_IS_THREE_(CB_TWO_INSIDE a, 0, )
#define CB_ELEMENT_FIRST_0(...) 1
#define CB_ELEMENT_FIRST_1(...) CB_ELEMENT_INSIDE(CB_FIRST(CB_INSIDE __VA_ARGS__))
#define CB_ELEMENT_FIRST(...)                                                                      \
    CB_PASTE(CB_ELEMENT_FIRST_, CB_HAS_INSIDE(CB_FIRST(__VA_ARGS__)))(__VA_ARGS__)
#define CB_from_data_0(...) (CB_HERE, cb_from_pointer(CB_ELEMENT_FIRST(__VA_ARGS__), __VA_ARGS__))
#ifdef __cplusplus
extern "C++" {
/* Sizes of a type: {2, 3} would be a list of the two dims 3 and 0. */
template <class T, class Sizes>
inline cb_tensor *cb_from_pointer(int, T data, cb_dtype dtype, const Sizes &sizes) {
    return (cb_from_data)(data, cb_data_dtype(dtype, CB_ELEMENT(data)), cb_dims_of(sizes));
}
}
#else
static inline cb_tensor *cb_from_pointer(int element, const void *data, cb_dtype dtype,
                                         cb_dim_list sizes) {
    return (cb_from_data)(data, cb_data_dtype(dtype, element), sizes);
}
#endif
#define CB_from_data_1(data, dtype, sizes)                                                         \
    (CB_HERE, (cb_from_data)(data, cb_data_dtype(cb_only_dtype(dtype), CB_ELEMENT(data)),          \
                             cb_dims_of(sizes)))
#define cb_from_data(...) CB_PASTE(CB_from_data_, CB_IS_THREE(__VA_ARGS__))(__VA_ARGS__)
#define CB_empty_1(sizes) (CB_HERE, (cb_empty)(cb_dims_of(sizes), CB_F32))
#define CB_empty_2(sizes, dtype) (CB_HERE, (cb_empty)(cb_dims_of(sizes), cb_only_dtype(dtype)))
#define cb_empty(...) CB_PICK_2(__VA_ARGS__, CB_empty_2, CB_empty_1, )(__VA_ARGS__)
#define cb_fail(...) (CB_HERE, (cb_fail)(__VA_ARGS__))
#define cb_scope_open() (CB_HERE, (cb_scope_open)())
#define cb_scope_close() (CB_HERE, (cb_scope_close)())
CB_AT_GIVES(cb_tensor *, cb_keep, (cb_tensor *x), (x))
#define cb_keep(...) CB_AT(cb_keep, __VA_ARGS__)
CB_AT_VOID(cb_free, (cb_tensor *x), (x))
#define cb_free(...) CB_AT(cb_free, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_scope_add, (cb_tensor *x), (x))
#define cb_scope_add(...) CB_AT(cb_scope_add, __VA_ARGS__)
CB_AT_GIVES(int, cb_rank, (const cb_tensor *x), (x))
#define cb_rank(...) CB_AT(cb_rank, __VA_ARGS__)
CB_AT_GIVES(int64_t, cb_size, (const cb_tensor *x, int dim), (x, dim))
#define cb_size(...) CB_AT(cb_size, __VA_ARGS__)
CB_AT_GIVES(int64_t, cb_stride, (const cb_tensor *x, int dim), (x, dim))
#define cb_stride(...) CB_AT(cb_stride, __VA_ARGS__)
CB_AT_GIVES(int64_t, cb_numel, (const cb_tensor *x), (x))
#define cb_numel(...) CB_AT(cb_numel, __VA_ARGS__)
#define cb_dtype_name(dtype) (cb_dtype_name)(cb_only_dtype(dtype))
#define cb_dtype_size(dtype) (cb_dtype_size)(cb_only_dtype(dtype))
#define cb_promote(a, b) (cb_promote)(cb_only_dtype(a), cb_only_dtype(b))
CB_AT_GIVES(cb_dtype, cb_dtype_of, (const cb_tensor *x), (x))
#define cb_dtype_of(...) CB_AT(cb_dtype_of, __VA_ARGS__)
CB_AT_GIVES(bool, cb_is_contiguous, (const cb_tensor *x), (x))
#define cb_is_contiguous(...) CB_AT(cb_is_contiguous, __VA_ARGS__)
CB_AT_GIVES(bool, cb_shares_storage, (const cb_tensor *x, const cb_tensor *y), (x, y))
#define cb_shares_storage(...) CB_AT(cb_shares_storage, __VA_ARGS__)
CB_AT_GIVES(double, cb_item, (cb_tensor *x), (x))
#define cb_item(...) CB_AT(cb_item, __VA_ARGS__)
CB_AT_GIVES(int64_t, cb_item_int, (cb_tensor *x), (x))
#define cb_item_int(...) CB_AT(cb_item_int, __VA_ARGS__)
CB_AT_GIVES(void *, cb_data, (cb_tensor *x), (x))
#define cb_data(...) CB_AT(cb_data, __VA_ARGS__)
CB_AT_GIVES(const void *, cb_data_const, (cb_tensor *x), (x))
#define cb_data_const(...) CB_AT(cb_data_const, __VA_ARGS__)
CB_AT_GIVES(const char *, cb_device, (const cb_tensor *x), (x))
#define cb_device(...) CB_AT(cb_device, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_to_device, (cb_tensor *x, const char *device), (x, device))
#define cb_to_device(...) CB_AT(cb_to_device, __VA_ARGS__)
#define cb_synchronize() (CB_HERE, (cb_synchronize)())
CB_AT_VOID(cb_changed, (cb_tensor *x), (x))
#define cb_changed(...) CB_AT(cb_changed, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_mark_dynamic, (cb_tensor *x, int dim), (x, dim))
#define cb_mark_dynamic(...) CB_AT(cb_mark_dynamic, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_read, (cb_tensor *x, void *out, cb_dtype dtype), (x, out, dtype))
#define cb_read(x, out, dtype)                                                                     \
    CB_AT(cb_read, x, out, cb_data_dtype(cb_only_dtype(dtype), CB_ELEMENT(out)))
CB_AT_VOID(cb_print, (cb_tensor *x), (x))
#define cb_print(...) CB_AT(cb_print, __VA_ARGS__)
CB_AT_GIVES(size_t, cb_format, (cb_tensor *x, char *out, size_t bytes), (x, out, bytes))
#define cb_format(...) CB_AT(cb_format, __VA_ARGS__)
#define cb_npy_load(...) (CB_HERE, (cb_npy_load)(__VA_ARGS__))
CB_AT_GIVES(cb_status, cb_npy_save, (const char *path, cb_tensor *x), (path, x))
#define cb_npy_save(...) CB_AT(cb_npy_save, __VA_ARGS__)
#define cb_padding(...) (CB_HERE, (cb_padding)(__VA_ARGS__))
CB_AT_GIVES(int, cb_split, (cb_tensor *x, int64_t size, int dim, cb_tensor **out, int capacity),
            (x, size, dim, out, capacity))
#define cb_split(...) CB_AT(cb_split, __VA_ARGS__)
CB_AT_GIVES(int, cb_chunk, (cb_tensor *x, int64_t chunks, int dim, cb_tensor **out, int capacity),
            (x, chunks, dim, out, capacity))
#define cb_chunk(...) CB_AT(cb_chunk, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_sort, (cb_tensor *x, int dim, bool descending, cb_tensor **indices),
            (x, dim, descending, indices))
#define cb_sort(...) CB_AT(cb_sort, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_topk, (cb_tensor *x, int64_t k, int dim, bool largest,
                                   cb_tensor **indices), (x, k, dim, largest, indices))
#define cb_topk(...) CB_AT(cb_topk, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_nonzero, (cb_tensor *x), (x))
#define cb_nonzero(...) CB_AT(cb_nonzero, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_masked_select, (cb_tensor *x, cb_tensor *mask), (x, mask))
#define cb_masked_select(...) CB_AT(cb_masked_select, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_cat, (cb_tensor *const *x, int count, int dim), (x, count, dim))
#define cb_cat(...) CB_AT(cb_cat, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_stack, (cb_tensor *const *x, int count, int dim), (x, count, dim))
#define cb_stack(...) CB_AT(cb_stack, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_assign, (cb_tensor *x, cb_tensor *value), (x, value))
#define cb_assign(...) CB_AT(cb_assign, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_assign_result, (cb_tensor *x, cb_tensor *result), (x, result))
#define cb_assign_result(...) CB_AT(cb_assign_result, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_fill_, (cb_tensor *x, cb_operand value), (x, value))
#define cb_fill_(x, value) CB_AT(cb_fill_, x, cb_operand_of(value))
CB_AT_GIVES(cb_tensor *, cb_requires_grad_, (cb_tensor *x, bool on), (x, on))
#define cb_requires_grad_(...) CB_AT(cb_requires_grad_, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_backward, (cb_tensor *y, cb_tensor *gradient), (y, gradient))
#define cb_backward(...) CB_AT(cb_backward, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_grad, (cb_tensor *y, cb_tensor *gradient, cb_tensor *const *wrt,
                                 int count, cb_tensor **out), (y, gradient, wrt, count, out))
#define cb_grad(...) CB_AT(cb_grad, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_grad_graph, (cb_tensor *y, cb_tensor *gradient, cb_tensor *const *wrt,
                                       int count, cb_tensor **out), (y, gradient, wrt, count, out))
#define cb_grad_graph(...) CB_AT(cb_grad_graph, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_jvp, (cb_tensor *y, cb_tensor *const *wrt, cb_tensor *const *direction,
                                int count, cb_tensor **out), (y, wrt, direction, count, out))
#define cb_jvp(...) CB_AT(cb_jvp, __VA_ARGS__)
CB_AT_GIVES(bool, cb_requires_grad, (const cb_tensor *x), (x))
#define cb_requires_grad(...) CB_AT(cb_requires_grad, __VA_ARGS__)
CB_AT_GIVES(int, cb_register_hook, (cb_tensor *x, cb_gradient_hook *hook, void *user),
            (x, hook, user))
#define cb_register_hook(...) CB_AT(cb_register_hook, __VA_ARGS__)
CB_AT_VOID(cb_remove_hook, (cb_tensor *x, int number), (x, number))
#define cb_remove_hook(...) CB_AT(cb_remove_hook, __VA_ARGS__)
CB_AT_GIVES(int, cb_checkpoint_n, (cb_function_n *function, void *user, cb_tensor *const *inputs,
                                   int count, cb_tensor **outputs, int capacity),
            (function, user, inputs, count, outputs, capacity))
#define cb_checkpoint_n(...) CB_AT(cb_checkpoint_n, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_checkpoint, (cb_function_n *function, void *user,
                                         cb_tensor *const *inputs, int count),
            (function, user, inputs, count))
#define cb_checkpoint(...) CB_AT(cb_checkpoint, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_tensor_grad, (const cb_tensor *x), (x))
#define cb_tensor_grad(...) CB_AT(cb_tensor_grad, __VA_ARGS__)
CB_AT_VOID(cb_zero_grad, (cb_tensor *x), (x))
#define cb_zero_grad(...) CB_AT(cb_zero_grad, __VA_ARGS__)
#define cb_no_grad_open() (CB_HERE, (cb_no_grad_open)())
#define cb_no_grad_close() (CB_HERE, (cb_no_grad_close)())
#define cb_register_op(...) (CB_HERE, (cb_register_op)(__VA_ARGS__))
CB_AT_GIVES(cb_tensor *, cb_call_op, (const char *name, cb_tensor *const *inputs, int count,
                                      cb_dim_list integers, cb_float_list floats),
            (name, inputs, count, integers, floats))
#define cb_call_op(name, inputs, count, integers, floats)                                          \
    CB_AT(cb_call_op, name, inputs, count, cb_dims_of(integers), cb_floats_of(floats))
CB_AT_GIVES(int, cb_call_op_n, (const char *name, cb_tensor *const *inputs, int count,
                                cb_dim_list integers, cb_float_list floats, cb_tensor **outputs,
                                int capacity),
            (name, inputs, count, integers, floats, outputs, capacity))
#define cb_call_op_n(name, inputs, count, integers, floats, outputs, capacity)                     \
    CB_AT(cb_call_op_n, name, inputs, count, cb_dims_of(integers), cb_floats_of(floats),           \
          outputs, capacity)
#define cb_autocast_open(dtype) (CB_HERE, (cb_autocast_open)(cb_only_dtype(dtype)))
#define cb_autocast_close() (CB_HERE, (cb_autocast_close)())
#define cb_disable_open() (CB_HERE, (cb_disable_open)())
#define cb_disable_close() (CB_HERE, (cb_disable_close)())
#define cb_reset() (CB_HERE, (cb_reset)())
CB_AT_GIVES(cb_function *, cb_compile_1, (cb_function_1 *function, const char *options),
            (function, options))
#define cb_compile_1(...) cb_compiled_as(CB_AT(cb_compile_1, __VA_ARGS__), #__VA_ARGS__)
CB_AT_GIVES(cb_function *, cb_compile_2, (cb_function_2 *function, const char *options),
            (function, options))
#define cb_compile_2(...) cb_compiled_as(CB_AT(cb_compile_2, __VA_ARGS__), #__VA_ARGS__)
CB_AT_GIVES(cb_function *, cb_compile_3, (cb_function_3 *function, const char *options),
            (function, options))
#define cb_compile_3(...) cb_compiled_as(CB_AT(cb_compile_3, __VA_ARGS__), #__VA_ARGS__)
CB_AT_GIVES(cb_function *, cb_compile_4, (cb_function_4 *function, const char *options),
            (function, options))
#define cb_compile_4(...) cb_compiled_as(CB_AT(cb_compile_4, __VA_ARGS__), #__VA_ARGS__)
#define cb_compile_n(...)                                                                          \
    (CB_HERE, cb_compiled_as((cb_compile_n)(__VA_ARGS__), #__VA_ARGS__))
CB_AT_GIVES(cb_function *, cb_compile_module, (cb_module *module, const char *options),
            (module, options))
#define cb_compile_module(...) CB_AT(cb_compile_module, __VA_ARGS__)
CB_AT_GIVES(cb_function *, cb_compile_graph, (cb_graph *graph, const char *options),
            (graph, options))
#define cb_compile_graph(...) CB_AT(cb_compile_graph, __VA_ARGS__)
CB_AT_VOID(cb_function_free, (cb_function *function), (function))
#define cb_function_free(...) CB_AT(cb_function_free, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_function_wait, (cb_function *function), (function))
#define cb_function_wait(...) CB_AT(cb_function_wait, __VA_ARGS__)
#define cb_save_artifacts(...) (CB_HERE, (cb_save_artifacts)(__VA_ARGS__))
#define cb_load_artifacts(...) (CB_HERE, (cb_load_artifacts)(__VA_ARGS__))
CB_AT_GIVES(int, cb_call_n, (cb_function *function, cb_tensor *const *inputs, int input_count,
                             cb_tensor **outputs, int capacity),
            (function, inputs, input_count, outputs, capacity))
#define cb_call_n(...) CB_AT(cb_call_n, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_call_1, (cb_function *function, cb_tensor *const *inputs,
                                     int input_count), (function, inputs, input_count))
#define cb_call_1(...) CB_AT(cb_call_1, __VA_ARGS__)
CB_AT_GIVES(char *, cb_explain, (cb_function *function), (function))
#define cb_explain(...) CB_AT(cb_explain, __VA_ARGS__)
CB_AT_GIVES(char *, cb_explain_summary, (cb_function *function), (function))
#define cb_explain_summary(...) CB_AT(cb_explain_summary, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_explain_html, (cb_function *function, const char *path), (function, path))
#define cb_explain_html(...) CB_AT(cb_explain_html, __VA_ARGS__)
CB_AT_GIVES(cb_function_stats, cb_stats, (cb_function *function), (function))
#define cb_stats(...) CB_AT(cb_stats, __VA_ARGS__)
#define cb_set_option(...) (CB_HERE, (cb_set_option)(__VA_ARGS__))
#define cb_get_option(...) (CB_HERE, (cb_get_option)(__VA_ARGS__))
#define cb_set_threads(...) (CB_HERE, (cb_set_threads)(__VA_ARGS__))
#define cb_set_float32_matmul_precision(...)                                                       \
    (CB_HERE, (cb_set_float32_matmul_precision)(__VA_ARGS__))

/* ---- modules and files --------------------------------------------------------------------- */

#define cb_module_new(...) (CB_HERE, (cb_module_new)(__VA_ARGS__))
CB_AT_GIVES(void *, cb_module_user, (const cb_module *module), (module))
#define cb_module_user(...) CB_AT(cb_module_user, __VA_ARGS__)
CB_AT_VOID(cb_module_free, (cb_module *module), (module))
#define cb_module_free(...) CB_AT(cb_module_free, __VA_ARGS__)
CB_AT_VOID(cb_module_on_free, (cb_module *module, void (*destroy)(void *user)), (module, destroy))
#define cb_module_on_free(...) CB_AT(cb_module_on_free, __VA_ARGS__)
CB_AT_GIVES(cb_module *, cb_module_add, (cb_module *module, const char *name, cb_module *child),
            (module, name, child))
#define cb_module_add(...) CB_AT(cb_module_add, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_module_parameter, (cb_module *module, const char *name,
                                               cb_tensor *tensor), (module, name, tensor))
#define cb_module_parameter(...) CB_AT(cb_module_parameter, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_module_buffer, (cb_module *module, const char *name, cb_tensor *tensor),
            (module, name, tensor))
#define cb_module_buffer(...) CB_AT(cb_module_buffer, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_module_share, (cb_module *module, const char *name,
                                           cb_tensor *parameter), (module, name, parameter))
#define cb_module_share(...) CB_AT(cb_module_share, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_module_inputs, (cb_module *module, const char *names), (module, names))
#define cb_module_inputs(...) CB_AT(cb_module_inputs, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_module_extra, (cb_module *module, const char *text), (module, text))
#define cb_module_extra(...) CB_AT(cb_module_extra, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_module_forward, (cb_module *module, cb_tensor *const *inputs,
                                             int count), (module, inputs, count))
#define cb_module_forward(...) CB_AT(cb_module_forward, __VA_ARGS__)
CB_AT_GIVES(cb_module *, cb_module_child, (cb_module *module, const char *path), (module, path))
#define cb_module_child(...) CB_AT(cb_module_child, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_module_get, (cb_module *module, const char *path), (module, path))
#define cb_module_get(...) CB_AT(cb_module_get, __VA_ARGS__)
CB_AT_GIVES(int, cb_module_child_count, (const cb_module *module), (module))
#define cb_module_child_count(...) CB_AT(cb_module_child_count, __VA_ARGS__)
CB_AT_GIVES(cb_module *, cb_module_child_at, (const cb_module *module, int index,
                                              const char **name), (module, index, name))
#define cb_module_child_at(...) CB_AT(cb_module_child_at, __VA_ARGS__)
CB_AT_GIVES(const char *, cb_module_type, (const cb_module *module), (module))
#define cb_module_type(...) CB_AT(cb_module_type, __VA_ARGS__)
CB_AT_VOID(cb_module_train, (cb_module *module, bool training), (module, training))
#define cb_module_train(...) CB_AT(cb_module_train, __VA_ARGS__)
CB_AT_GIVES(bool, cb_module_training, (const cb_module *module), (module))
#define cb_module_training(...) CB_AT(cb_module_training, __VA_ARGS__)
CB_AT_VOID(cb_module_set_leaf, (cb_module *module, bool leaf), (module, leaf))
#define cb_module_set_leaf(...) CB_AT(cb_module_set_leaf, __VA_ARGS__)
CB_AT_GIVES(bool, cb_module_is_leaf, (const cb_module *module), (module))
#define cb_module_is_leaf(...) CB_AT(cb_module_is_leaf, __VA_ARGS__)
CB_AT_VOID(cb_module_visit, (cb_module *module, cb_tensor_visitor *visit, void *user),
            (module, visit, user))
#define cb_module_visit(...) CB_AT(cb_module_visit, __VA_ARGS__)
CB_AT_GIVES(int, cb_module_parameters, (cb_module *module, cb_tensor **out, int capacity),
            (module, out, capacity))
#define cb_module_parameters(...) CB_AT(cb_module_parameters, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_module_to, (cb_module *module, cb_dtype dtype), (module, dtype))
#define cb_module_to(module, dtype) CB_AT(cb_module_to, module, cb_only_dtype(dtype))
CB_AT_VOID(cb_module_print, (const cb_module *module), (module))
#define cb_module_print(...) CB_AT(cb_module_print, __VA_ARGS__)
CB_AT_GIVES(char *, cb_module_text, (const cb_module *module), (module))
#define cb_module_text(...) CB_AT(cb_module_text, __VA_ARGS__)
CB_AT_GIVES(cb_module *, cb_nn_sequential_n, (cb_module *const *layers, int count), (layers, count))
#define cb_nn_sequential_n(...) CB_AT(cb_nn_sequential_n, __VA_ARGS__)
CB_AT_GIVES(cb_module *, cb_nn_module_list_n, (cb_module *const *layers, int count),
            (layers, count))
#define cb_nn_module_list_n(...) CB_AT(cb_nn_module_list_n, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_init_constant_, (cb_tensor *x, double value), (x, value))
#define cb_init_constant_(...) CB_AT(cb_init_constant_, __VA_ARGS__)
#define cb_calculate_gain(...) (CB_HERE, (cb_calculate_gain)(__VA_ARGS__))
CB_AT_GIVES(cb_tensor *, cb_init_uniform_, (cb_tensor *x, double a, double b), (x, a, b))
#define CB_init_uniform__1(x) CB_AT(cb_init_uniform_, x, 0.0, 1.0)
#define CB_init_uniform__2(x, a) CB_AT(cb_init_uniform_, x, a, 1.0)
#define CB_init_uniform__3(x, a, b) CB_AT(cb_init_uniform_, x, a, b)
#define cb_init_uniform_(...)                                                                      \
    CB_PICK_3(__VA_ARGS__, CB_init_uniform__3, CB_init_uniform__2, CB_init_uniform__1, )           \
    (__VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_init_normal_, (cb_tensor *x, double mean, double std), (x, mean, std))
#define CB_init_normal__1(x) CB_AT(cb_init_normal_, x, 0.0, 1.0)
#define CB_init_normal__2(x, mean) CB_AT(cb_init_normal_, x, mean, 1.0)
#define CB_init_normal__3(x, mean, std) CB_AT(cb_init_normal_, x, mean, std)
#define cb_init_normal_(...)                                                                       \
    CB_PICK_3(__VA_ARGS__, CB_init_normal__3, CB_init_normal__2, CB_init_normal__1, )(__VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_init_trunc_normal_, (cb_tensor *x, double mean, double std, double a,
                                                 double b), (x, mean, std, a, b))
#define CB_init_trunc_normal__1(x) CB_AT(cb_init_trunc_normal_, x, 0.0, 1.0, -2.0, 2.0)
#define CB_init_trunc_normal__2(x, mean) CB_AT(cb_init_trunc_normal_, x, mean, 1.0, -2.0, 2.0)
#define CB_init_trunc_normal__3(x, mean, std) CB_AT(cb_init_trunc_normal_, x, mean, std, -2.0, 2.0)
#define CB_init_trunc_normal__4(x, mean, std, a) CB_AT(cb_init_trunc_normal_, x, mean, std, a, 2.0)
#define CB_init_trunc_normal__5(x, mean, std, a, b) CB_AT(cb_init_trunc_normal_, x, mean, std, a, b)
#define cb_init_trunc_normal_(...)                                                                 \
    CB_PICK_5(__VA_ARGS__, CB_init_trunc_normal__5, CB_init_trunc_normal__4,                       \
              CB_init_trunc_normal__3, CB_init_trunc_normal__2, CB_init_trunc_normal__1, )         \
    (__VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_init_xavier_uniform_, (cb_tensor *x, double gain), (x, gain))
#define CB_init_xavier_uniform__1(x) CB_AT(cb_init_xavier_uniform_, x, 1.0)
#define CB_init_xavier_uniform__2(x, gain) CB_AT(cb_init_xavier_uniform_, x, gain)
#define cb_init_xavier_uniform_(...)                                                               \
    CB_PICK_2(__VA_ARGS__, CB_init_xavier_uniform__2, CB_init_xavier_uniform__1, )(__VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_init_xavier_normal_, (cb_tensor *x, double gain), (x, gain))
#define CB_init_xavier_normal__1(x) CB_AT(cb_init_xavier_normal_, x, 1.0)
#define CB_init_xavier_normal__2(x, gain) CB_AT(cb_init_xavier_normal_, x, gain)
#define cb_init_xavier_normal_(...)                                                                \
    CB_PICK_2(__VA_ARGS__, CB_init_xavier_normal__2, CB_init_xavier_normal__1, )(__VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_init_orthogonal_, (cb_tensor *x, double gain), (x, gain))
#define CB_init_orthogonal__1(x) CB_AT(cb_init_orthogonal_, x, 1.0)
#define CB_init_orthogonal__2(x, gain) CB_AT(cb_init_orthogonal_, x, gain)
#define cb_init_orthogonal_(...)                                                                   \
    CB_PICK_2(__VA_ARGS__, CB_init_orthogonal__2, CB_init_orthogonal__1, )(__VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_init_kaiming_uniform_, (cb_tensor *x, double a, const char *mode,
                                                    const char *nonlinearity),
            (x, a, mode, nonlinearity))
#define CB_init_kaiming_uniform__1(x)                                                              \
    CB_AT(cb_init_kaiming_uniform_, x, 0.0, "fan_in", "leaky_relu")
#define CB_init_kaiming_uniform__2(x, a)                                                           \
    CB_AT(cb_init_kaiming_uniform_, x, a, "fan_in", "leaky_relu")
#define CB_init_kaiming_uniform__3(x, a, mode)                                                     \
    CB_AT(cb_init_kaiming_uniform_, x, a, mode, "leaky_relu")
#define CB_init_kaiming_uniform__4(x, a, mode, nonlinearity)                                       \
    CB_AT(cb_init_kaiming_uniform_, x, a, mode, nonlinearity)
#define cb_init_kaiming_uniform_(...)                                                              \
    CB_PICK_4(__VA_ARGS__, CB_init_kaiming_uniform__4, CB_init_kaiming_uniform__3,                 \
              CB_init_kaiming_uniform__2, CB_init_kaiming_uniform__1, )                            \
    (__VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_init_kaiming_normal_, (cb_tensor *x, double a, const char *mode,
                                                   const char *nonlinearity),
            (x, a, mode, nonlinearity))
#define CB_init_kaiming_normal__1(x) CB_AT(cb_init_kaiming_normal_, x, 0.0, "fan_in", "leaky_relu")
#define CB_init_kaiming_normal__2(x, a) CB_AT(cb_init_kaiming_normal_, x, a, "fan_in", "leaky_relu")
#define CB_init_kaiming_normal__3(x, a, mode)                                                      \
    CB_AT(cb_init_kaiming_normal_, x, a, mode, "leaky_relu")
#define CB_init_kaiming_normal__4(x, a, mode, nonlinearity)                                        \
    CB_AT(cb_init_kaiming_normal_, x, a, mode, nonlinearity)
#define cb_init_kaiming_normal_(...)                                                               \
    CB_PICK_4(__VA_ARGS__, CB_init_kaiming_normal__4, CB_init_kaiming_normal__3,                   \
              CB_init_kaiming_normal__2, CB_init_kaiming_normal__1, )                              \
    (__VA_ARGS__)
#define cb_safetensors_open(...) (CB_HERE, (cb_safetensors_open)(__VA_ARGS__))
CB_AT_VOID(cb_safetensors_close, (cb_safetensors *file), (file))
#define cb_safetensors_close(...) CB_AT(cb_safetensors_close, __VA_ARGS__)
CB_AT_GIVES(int, cb_safetensors_count, (const cb_safetensors *file), (file))
#define cb_safetensors_count(...) CB_AT(cb_safetensors_count, __VA_ARGS__)
CB_AT_GIVES(const char *, cb_safetensors_name, (const cb_safetensors *file, int index),
            (file, index))
#define cb_safetensors_name(...) CB_AT(cb_safetensors_name, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_safetensors_get, (const cb_safetensors *file, const char *name),
            (file, name))
#define cb_safetensors_get(...) CB_AT(cb_safetensors_get, __VA_ARGS__)
CB_AT_GIVES(const char *, cb_safetensors_metadata, (const cb_safetensors *file, const char *key),
            (file, key))
#define cb_safetensors_metadata(...) CB_AT(cb_safetensors_metadata, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_safetensors_save, (const char *path, const char *const *names,
                                             cb_tensor *const *tensors, int count),
            (path, names, tensors, count))
#define cb_safetensors_save(...) CB_AT(cb_safetensors_save, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_module_load_state, (cb_module *module, const char *path, bool strict),
            (module, path, strict))
#define cb_module_load_state(...) CB_AT(cb_module_load_state, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_module_load_state_keys, (cb_module *module, const char *path,
                                                   bool strict, char **keys),
            (module, path, strict, keys))
#define cb_module_load_state_keys(...) CB_AT(cb_module_load_state_keys, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_module_save_state, (cb_module *module, const char *path), (module, path))
#define cb_module_save_state(...) CB_AT(cb_module_save_state, __VA_ARGS__)

/* ---- training ------------------------------------------------------------------------------- */

#define cb_optimizer_new(...) (CB_HERE, (cb_optimizer_new)(__VA_ARGS__))
CB_AT_VOID(cb_optimizer_free, (cb_optimizer *optimizer), (optimizer))
#define cb_optimizer_free(...) CB_AT(cb_optimizer_free, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_optimizer_add, (cb_optimizer *optimizer, cb_tensor *const *parameters,
                                          int count, const char *arguments),
            (optimizer, parameters, count, arguments))
#define cb_optimizer_add(...) CB_AT(cb_optimizer_add, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_optimizer_add_module, (cb_optimizer *optimizer, cb_module *module,
                                                 const char *arguments),
            (optimizer, module, arguments))
#define cb_optimizer_add_module(...) CB_AT(cb_optimizer_add_module, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_optimizer_step, (cb_optimizer *optimizer), (optimizer))
#define cb_optimizer_step(...) CB_AT(cb_optimizer_step, __VA_ARGS__)
CB_AT_VOID(cb_optimizer_zero_grad, (cb_optimizer *optimizer), (optimizer))
#define cb_optimizer_zero_grad(...) CB_AT(cb_optimizer_zero_grad, __VA_ARGS__)
CB_AT_GIVES(double, cb_optimizer_lr, (cb_optimizer *optimizer, int group), (optimizer, group))
#define cb_optimizer_lr(...) CB_AT(cb_optimizer_lr, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_optimizer_set_lr, (cb_optimizer *optimizer, int group, double lr),
            (optimizer, group, lr))
#define cb_optimizer_set_lr(...) CB_AT(cb_optimizer_set_lr, __VA_ARGS__)
CB_AT_GIVES(cb_module *, cb_optimizer_state, (cb_optimizer *optimizer), (optimizer))
#define cb_optimizer_state(...) CB_AT(cb_optimizer_state, __VA_ARGS__)
CB_AT_GIVES(cb_tensor *, cb_clip_grad_norm_, (cb_tensor *const *tensors, int count,
                                              double max_norm, double norm_type),
            (tensors, count, max_norm, norm_type))
#define cb_clip_grad_norm_(...) CB_AT(cb_clip_grad_norm_, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_clip_grad_value_, (cb_tensor *const *tensors, int count, double value),
            (tensors, count, value))
#define cb_clip_grad_value_(...) CB_AT(cb_clip_grad_value_, __VA_ARGS__)
CB_AT_GIVES(cb_schedule *, cb_schedule_new, (cb_optimizer *optimizer, const char *name,
                                             const char *arguments), (optimizer, name, arguments))
#define cb_schedule_new(...) CB_AT(cb_schedule_new, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_schedule_then, (cb_schedule *schedule, int64_t milestone,
                                          const char *name, const char *arguments),
            (schedule, milestone, name, arguments))
#define cb_schedule_then(...) CB_AT(cb_schedule_then, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_schedule_step, (cb_schedule *schedule, double metric), (schedule, metric))
#define cb_schedule_step(...) CB_AT(cb_schedule_step, __VA_ARGS__)
CB_AT_GIVES(cb_module *, cb_schedule_state, (cb_schedule *schedule), (schedule))
#define cb_schedule_state(...) CB_AT(cb_schedule_state, __VA_ARGS__)
CB_AT_VOID(cb_schedule_free, (cb_schedule *schedule), (schedule))
#define cb_schedule_free(...) CB_AT(cb_schedule_free, __VA_ARGS__)
#define cb_scaler_new(...) (CB_HERE, (cb_scaler_new)(__VA_ARGS__))
CB_AT_GIVES(cb_tensor *, cb_scaler_scale, (cb_scaler *scaler, cb_tensor *loss), (scaler, loss))
#define cb_scaler_scale(...) CB_AT(cb_scaler_scale, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_scaler_unscale_, (cb_scaler *scaler, cb_optimizer *optimizer),
            (scaler, optimizer))
#define cb_scaler_unscale_(...) CB_AT(cb_scaler_unscale_, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_scaler_step, (cb_scaler *scaler, cb_optimizer *optimizer),
            (scaler, optimizer))
#define cb_scaler_step(...) CB_AT(cb_scaler_step, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_scaler_update, (cb_scaler *scaler), (scaler))
#define cb_scaler_update(...) CB_AT(cb_scaler_update, __VA_ARGS__)
CB_AT_GIVES(double, cb_scaler_scale_now, (cb_scaler *scaler), (scaler))
#define cb_scaler_scale_now(...) CB_AT(cb_scaler_scale_now, __VA_ARGS__)
CB_AT_GIVES(cb_module *, cb_scaler_state, (cb_scaler *scaler), (scaler))
#define cb_scaler_state(...) CB_AT(cb_scaler_state, __VA_ARGS__)
CB_AT_VOID(cb_scaler_free, (cb_scaler *scaler), (scaler))
#define cb_scaler_free(...) CB_AT(cb_scaler_free, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_training_save, (const char *path, cb_module *model,
                                          cb_optimizer *optimizer, cb_schedule *schedule,
                                          cb_module *data, cb_scaler *scaler),
            (path, model, optimizer, schedule, data, scaler))
#define CB_training_save_2(...)                                                                    \
    CB_AT(cb_training_save, __VA_ARGS__, CB_NULL, CB_NULL, CB_NULL, CB_NULL)
#define CB_training_save_3(...)                                                                    \
    CB_AT(cb_training_save, __VA_ARGS__, CB_NULL, CB_NULL, CB_NULL)
#define CB_training_save_4(...) CB_AT(cb_training_save, __VA_ARGS__, CB_NULL, CB_NULL)
#define CB_training_save_5(...) CB_AT(cb_training_save, __VA_ARGS__, CB_NULL)
#define CB_training_save_6(...) CB_AT(cb_training_save, __VA_ARGS__)
#define cb_training_save(...)                                                                      \
    CB_PICK_6(__VA_ARGS__, CB_training_save_6, CB_training_save_5, CB_training_save_4,             \
              CB_training_save_3, CB_training_save_2, CB_TOO_FEW_ARGUMENTS, )                      \
    (__VA_ARGS__)
CB_AT_GIVES(cb_status, cb_training_load, (const char *path, cb_module *model,
                                          cb_optimizer *optimizer, cb_schedule *schedule,
                                          cb_module *data, cb_scaler *scaler),
            (path, model, optimizer, schedule, data, scaler))
#define CB_training_load_2(...)                                                                    \
    CB_AT(cb_training_load, __VA_ARGS__, CB_NULL, CB_NULL, CB_NULL, CB_NULL)
#define CB_training_load_3(...)                                                                    \
    CB_AT(cb_training_load, __VA_ARGS__, CB_NULL, CB_NULL, CB_NULL)
#define CB_training_load_4(...) CB_AT(cb_training_load, __VA_ARGS__, CB_NULL, CB_NULL)
#define CB_training_load_5(...) CB_AT(cb_training_load, __VA_ARGS__, CB_NULL)
#define CB_training_load_6(...) CB_AT(cb_training_load, __VA_ARGS__)
#define cb_training_load(...)                                                                      \
    CB_PICK_6(__VA_ARGS__, CB_training_load_6, CB_training_load_5, CB_training_load_4,             \
              CB_training_load_3, CB_training_load_2, CB_TOO_FEW_ARGUMENTS, )                      \
    (__VA_ARGS__)

/* ---- FX graphs ------------------------------------------------------------------------------ */

CB_AT_GIVES(cb_graph *, cb_symbolic_trace, (cb_module *module), (module))
#define cb_symbolic_trace(...) CB_AT(cb_symbolic_trace, __VA_ARGS__)
CB_AT_GIVES(cb_graph *, cb_symbolic_trace_with, (cb_module *module, cb_tensor *const *examples,
                                                 int count), (module, examples, count))
#define cb_symbolic_trace_with(...) CB_AT(cb_symbolic_trace_with, __VA_ARGS__)
#define cb_symbolic_trace_function(...) (CB_HERE, (cb_symbolic_trace_function)(__VA_ARGS__))
CB_AT_GIVES(cb_graph *, cb_symbolic_trace_function_with, (cb_function_n *function, void *user,
                                                          const char *names,
                                                          cb_tensor *const *examples, int count),
            (function, user, names, examples, count))
#define cb_symbolic_trace_function_with(...) CB_AT(cb_symbolic_trace_function_with, __VA_ARGS__)
CB_AT_GIVES(cb_graph *, cb_graph_new, (cb_module *module), (module))
#define cb_graph_new(...) CB_AT(cb_graph_new, __VA_ARGS__)
CB_AT_GIVES(cb_graph *, cb_graph_parse, (const char *text, cb_module *module), (text, module))
#define cb_graph_parse(...) CB_AT(cb_graph_parse, __VA_ARGS__)
#define cb_register_backend(...) (CB_HERE, (cb_register_backend)(__VA_ARGS__))
CB_AT_GIVES(cb_status, cb_backend_inner, (const cb_graph *graph, const char *options,
                                          cb_backend_code *code), (graph, options, code))
#define cb_backend_inner(...) CB_AT(cb_backend_inner, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_backend_eager, (const cb_graph *graph, cb_backend_code *code),
            (graph, code))
#define cb_backend_eager(...) CB_AT(cb_backend_eager, __VA_ARGS__)
CB_AT_GIVES(cb_graph *, cb_graph_copy, (const cb_graph *graph), (graph))
#define cb_graph_copy(...) CB_AT(cb_graph_copy, __VA_ARGS__)
CB_AT_VOID(cb_graph_free, (cb_graph *graph), (graph))
#define cb_graph_free(...) CB_AT(cb_graph_free, __VA_ARGS__)
CB_AT_GIVES(cb_module *, cb_graph_module, (const cb_graph *graph), (graph))
#define cb_graph_module(...) CB_AT(cb_graph_module, __VA_ARGS__)
CB_AT_VOID(cb_graph_print, (const cb_graph *graph), (graph))
#define cb_graph_print(...) CB_AT(cb_graph_print, __VA_ARGS__)
CB_AT_GIVES(char *, cb_graph_text, (const cb_graph *graph), (graph))
#define cb_graph_text(...) CB_AT(cb_graph_text, __VA_ARGS__)
CB_AT_GIVES(char *, cb_graph_tabular, (const cb_graph *graph), (graph))
#define cb_graph_tabular(...) CB_AT(cb_graph_tabular, __VA_ARGS__)
CB_AT_GIVES(char *, cb_graph_readable, (const cb_graph *graph, int flags), (graph, flags))
#define cb_graph_readable(...) CB_AT(cb_graph_readable, __VA_ARGS__)
CB_AT_GIVES(char *, cb_graph_dot, (const cb_graph *graph), (graph))
#define cb_graph_dot(...) CB_AT(cb_graph_dot, __VA_ARGS__)
CB_AT_GIVES(char *, cb_graph_code, (const cb_graph *graph, const char *function_name),
            (graph, function_name))
#define cb_graph_code(...) CB_AT(cb_graph_code, __VA_ARGS__)
CB_AT_GIVES(int, cb_graph_run, (const cb_graph *graph, cb_tensor *const *inputs, int input_count,
                                cb_tensor **outputs, int capacity),
            (graph, inputs, input_count, outputs, capacity))
#define cb_graph_run(...) CB_AT(cb_graph_run, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_graph_propagate_shapes, (cb_graph *graph, cb_tensor *const *inputs,
                                                   int count), (graph, inputs, count))
#define cb_graph_propagate_shapes(...) CB_AT(cb_graph_propagate_shapes, __VA_ARGS__)
CB_AT_GIVES(cb_node *, cb_graph_first, (const cb_graph *graph), (graph))
#define cb_graph_first(...) CB_AT(cb_graph_first, __VA_ARGS__)
CB_AT_GIVES(cb_node *, cb_graph_last, (const cb_graph *graph), (graph))
#define cb_graph_last(...) CB_AT(cb_graph_last, __VA_ARGS__)
CB_AT_GIVES(cb_node *, cb_node_next, (const cb_node *node), (node))
#define cb_node_next(...) CB_AT(cb_node_next, __VA_ARGS__)
CB_AT_GIVES(cb_node *, cb_node_previous, (const cb_node *node), (node))
#define cb_node_previous(...) CB_AT(cb_node_previous, __VA_ARGS__)
CB_AT_GIVES(cb_node *, cb_graph_find, (const cb_graph *graph, const char *name), (graph, name))
#define cb_graph_find(...) CB_AT(cb_graph_find, __VA_ARGS__)
CB_AT_GIVES(int, cb_graph_node_count, (const cb_graph *graph), (graph))
#define cb_graph_node_count(...) CB_AT(cb_graph_node_count, __VA_ARGS__)
CB_AT_GIVES(cb_opcode, cb_node_opcode, (const cb_node *node), (node))
#define cb_node_opcode(...) CB_AT(cb_node_opcode, __VA_ARGS__)
CB_AT_GIVES(const char *, cb_node_name, (const cb_node *node), (node))
#define cb_node_name(...) CB_AT(cb_node_name, __VA_ARGS__)
CB_AT_GIVES(const char *, cb_node_target, (const cb_node *node), (node))
#define cb_node_target(...) CB_AT(cb_node_target, __VA_ARGS__)
CB_AT_GIVES(int, cb_node_arg_count, (const cb_node *node), (node))
#define cb_node_arg_count(...) CB_AT(cb_node_arg_count, __VA_ARGS__)
CB_AT_GIVES(cb_arg, cb_node_arg, (const cb_node *node, int index), (node, index))
#define cb_node_arg(...) CB_AT(cb_node_arg, __VA_ARGS__)
CB_AT_GIVES(int, cb_node_kwarg_count, (const cb_node *node), (node))
#define cb_node_kwarg_count(...) CB_AT(cb_node_kwarg_count, __VA_ARGS__)
CB_AT_GIVES(cb_arg, cb_node_kwarg_at, (const cb_node *node, int index, const char **key),
            (node, index, key))
#define cb_node_kwarg_at(...) CB_AT(cb_node_kwarg_at, __VA_ARGS__)
CB_AT_GIVES(cb_arg, cb_node_kwarg, (const cb_node *node, const char *key), (node, key))
#define cb_node_kwarg(...) CB_AT(cb_node_kwarg, __VA_ARGS__)
CB_AT_GIVES(int, cb_node_input_count, (const cb_node *node), (node))
#define cb_node_input_count(...) CB_AT(cb_node_input_count, __VA_ARGS__)
CB_AT_GIVES(cb_node *, cb_node_input, (const cb_node *node, int index), (node, index))
#define cb_node_input(...) CB_AT(cb_node_input, __VA_ARGS__)
CB_AT_GIVES(int, cb_node_user_count, (const cb_node *node), (node))
#define cb_node_user_count(...) CB_AT(cb_node_user_count, __VA_ARGS__)
CB_AT_GIVES(cb_node *, cb_node_user, (const cb_node *node, int index), (node, index))
#define cb_node_user(...) CB_AT(cb_node_user, __VA_ARGS__)
CB_AT_GIVES(bool, cb_node_strides, (const cb_node *node, cb_dim_list *strides), (node, strides))
#define cb_node_strides(...) CB_AT(cb_node_strides, __VA_ARGS__)
CB_AT_GIVES(bool, cb_node_meta, (const cb_node *node, cb_dtype *dtype, cb_dim_list *sizes),
            (node, dtype, sizes))
#define cb_node_meta(...) CB_AT(cb_node_meta, __VA_ARGS__)
CB_AT_GIVES(cb_node *, cb_graph_placeholder, (cb_graph *graph, const char *name), (graph, name))
#define cb_graph_placeholder(...) CB_AT(cb_graph_placeholder, __VA_ARGS__)
CB_AT_GIVES(cb_node *, cb_graph_get_attr, (cb_graph *graph, const char *path), (graph, path))
#define cb_graph_get_attr(...) CB_AT(cb_graph_get_attr, __VA_ARGS__)
CB_AT_GIVES(cb_node *, cb_graph_call_function, (cb_graph *graph, const char *target,
                                                const cb_arg *args, int count),
            (graph, target, args, count))
#define cb_graph_call_function(...) CB_AT(cb_graph_call_function, __VA_ARGS__)
CB_AT_GIVES(cb_node *, cb_graph_call_method, (cb_graph *graph, const char *target,
                                              const cb_arg *args, int count),
            (graph, target, args, count))
#define cb_graph_call_method(...) CB_AT(cb_graph_call_method, __VA_ARGS__)
CB_AT_GIVES(cb_node *, cb_graph_call_module, (cb_graph *graph, const char *path,
                                              const cb_arg *args, int count),
            (graph, path, args, count))
#define cb_graph_call_module(...) CB_AT(cb_graph_call_module, __VA_ARGS__)
CB_AT_GIVES(cb_node *, cb_graph_output, (cb_graph *graph, cb_arg value), (graph, value))
#define cb_graph_output(...) CB_AT(cb_graph_output, __VA_ARGS__)
CB_AT_GIVES(cb_node *, cb_graph_insert_before, (cb_graph *graph, cb_node *where, cb_opcode opcode,
                                                const char *target, const cb_arg *args, int count),
            (graph, where, opcode, target, args, count))
#define cb_graph_insert_before(...) CB_AT(cb_graph_insert_before, __VA_ARGS__)
CB_AT_GIVES(cb_node *, cb_graph_insert_after, (cb_graph *graph, cb_node *where, cb_opcode opcode,
                                               const char *target, const cb_arg *args, int count),
            (graph, where, opcode, target, args, count))
#define cb_graph_insert_after(...) CB_AT(cb_graph_insert_after, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_node_set_arg, (cb_node *node, int index, cb_arg value),
            (node, index, value))
#define cb_node_set_arg(...) CB_AT(cb_node_set_arg, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_node_set_kwarg, (cb_node *node, const char *key, cb_arg value),
            (node, key, value))
#define cb_node_set_kwarg(...) CB_AT(cb_node_set_kwarg, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_node_set_target, (cb_node *node, const char *target), (node, target))
#define cb_node_set_target(...) CB_AT(cb_node_set_target, __VA_ARGS__)
CB_AT_GIVES(int, cb_node_replace_all_uses, (cb_node *node, cb_node *by), (node, by))
#define cb_node_replace_all_uses(...) CB_AT(cb_node_replace_all_uses, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_graph_erase, (cb_graph *graph, cb_node *node), (graph, node))
#define cb_graph_erase(...) CB_AT(cb_graph_erase, __VA_ARGS__)
CB_AT_GIVES(int, cb_graph_dead_code, (cb_graph *graph), (graph))
#define cb_graph_dead_code(...) CB_AT(cb_graph_dead_code, __VA_ARGS__)
CB_AT_GIVES(int, cb_graph_replace_pattern, (cb_graph *graph, const cb_graph *pattern,
                                            const cb_graph *replacement),
            (graph, pattern, replacement))
#define cb_graph_replace_pattern(...) CB_AT(cb_graph_replace_pattern, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_graph_lint, (const cb_graph *graph), (graph))
#define cb_graph_lint(...) CB_AT(cb_graph_lint, __VA_ARGS__)

/* ---- templates and overloads ---------------------------------------------------------------- */

#ifdef __cplusplus
}
#define CB_AT_OVERLOAD(type)                                                                       \
    static inline cb_function *cb_compile_at_line(CB_SITE, type f, const char *o = NULL) {         \
        cb_site(cb_file, cb_line);                                                                 \
        return (cb_compile)(f, o);                                                                 \
    }
CB_AT_OVERLOAD(cb_function_1 *)
CB_AT_OVERLOAD(cb_function_2 *)
CB_AT_OVERLOAD(cb_function_3 *)
CB_AT_OVERLOAD(cb_function_4 *)
CB_AT_OVERLOAD(cb_module *)
CB_AT_OVERLOAD(cb_graph *)
/* The compiler shows the line, so it says what is taken. */
cb_function *cb_compile_at_line(CB_SITE, ...) = delete; /* a function of 1 to 4 tensors, or
                                                         * module */
cb_function *cb_compile_at_line(CB_SITE, cb_function_n *, ...) = delete; /* takes cb_compile_n */
#undef CB_AT_OVERLOAD
/* The first argument, the function or the module, is given its type, as NULL has none. */
#define CB_AT_TEMPLATE(result, name, type)                                                         \
    template <typename... T> static inline result name##_at_line(CB_SITE, type what, T... x) {     \
        cb_site(cb_file, cb_line);                                                                 \
        return (name)(what, x...);                                                                 \
    }
CB_AT_TEMPLATE(cb_tensor *, cb_call, cb_function *)
CB_AT_TEMPLATE(cb_tensor *, cb_forward, cb_module *)
CB_AT_TEMPLATE(cb_module *, cb_nn_sequential, cb_module *)
CB_AT_TEMPLATE(cb_module *, cb_nn_module_list, cb_module *)
#undef CB_AT_TEMPLATE
extern "C" {
#define cb_compile(...)                                                                            \
    cb_compiled_as(cb_compile_at_line(__FILE__, __LINE__, __VA_ARGS__), #__VA_ARGS__)
#define cb_call(...) cb_call_at_line(__FILE__, __LINE__, __VA_ARGS__)
#define cb_forward(...) cb_forward_at_line(__FILE__, __LINE__, __VA_ARGS__)
#define cb_nn_sequential(...) cb_nn_sequential_at_line(__FILE__, __LINE__, __VA_ARGS__)
#define cb_nn_module_list(...) cb_nn_module_list_at_line(__FILE__, __LINE__, __VA_ARGS__)
#endif

#endif
#endif
