/* The other calls record the line of the caller, as the ops do: a macro for every public function
 * that can fail, of its name. Included by carbide.h, at its end; include that.
 *
 * A name in parentheses is the function itself, (cb_free)(x), and so is one without arguments. It
 * leaves the line as the call before it did. */
#ifndef CARBIDE_CALLS_H
#define CARBIDE_CALLS_H

#ifndef CARBIDE_BUILD /* the library's own calls keep the line of the user's */

/* ---- tensors, scopes, compiled functions ---------------------------------------------------- */

/* Three arguments are taken as the ops take theirs; in more, data is a literal with commas. */
#define CB_FOURTH(a, b, c, d, ...) d
#define CB_SECOND(a, b, ...) b
#define CB_THREE() ~, 1
#define CB_IS_THREE(...) CB_IS_THREE_(CB_FOURTH(__VA_ARGS__, CB_THREE, ~, )(), 0, )
#define CB_IS_THREE_(...) CB_SECOND(__VA_ARGS__)
#define CB_from_data_0(...) (CB_HERE, (cb_from_data)(__VA_ARGS__))
#define CB_from_data_1(data, dtype, sizes)                                                         \
    (CB_HERE, (cb_from_data)((data), cb_only_dtype(dtype), cb_dims_of(sizes)))
#define cb_from_data(...) CB_PASTE(CB_from_data_, CB_IS_THREE(__VA_ARGS__))(__VA_ARGS__)
#define CB_empty_1(sizes) (CB_HERE, (cb_empty)(cb_dims_of(sizes), CB_F32))
#define CB_empty_2(sizes, dtype) (CB_HERE, (cb_empty)(cb_dims_of(sizes), cb_only_dtype(dtype)))
#define cb_empty(...) CB_PICK_2(__VA_ARGS__, CB_empty_2, CB_empty_1, )(__VA_ARGS__)
#define cb_fail(...) (CB_HERE, (cb_fail)(__VA_ARGS__))
#define cb_scope_open() (CB_HERE, (cb_scope_open)())
#define cb_scope_close() (CB_HERE, (cb_scope_close)())
#define cb_keep(...) (CB_HERE, (cb_keep)(__VA_ARGS__))
#define cb_free(...) (CB_HERE, (cb_free)(__VA_ARGS__))
#define cb_scope_add(...) (CB_HERE, (cb_scope_add)(__VA_ARGS__))
#define cb_rank(...) (CB_HERE, (cb_rank)(__VA_ARGS__))
#define cb_size(...) (CB_HERE, (cb_size)(__VA_ARGS__))
#define cb_stride(...) (CB_HERE, (cb_stride)(__VA_ARGS__))
#define cb_numel(...) (CB_HERE, (cb_numel)(__VA_ARGS__))
#define cb_dtype_name(dtype) (cb_dtype_name)(cb_only_dtype(dtype))
#define cb_dtype_size(dtype) (cb_dtype_size)(cb_only_dtype(dtype))
#define cb_promote(a, b) (cb_promote)(cb_only_dtype(a), cb_only_dtype(b))
#define cb_dtype_of(...) (CB_HERE, (cb_dtype_of)(__VA_ARGS__))
#define cb_is_contiguous(...) (CB_HERE, (cb_is_contiguous)(__VA_ARGS__))
#define cb_shares_storage(...) (CB_HERE, (cb_shares_storage)(__VA_ARGS__))
#define cb_item(...) (CB_HERE, (cb_item)(__VA_ARGS__))
#define cb_item_int(...) (CB_HERE, (cb_item_int)(__VA_ARGS__))
#define cb_data(...) (CB_HERE, (cb_data)(__VA_ARGS__))
#define cb_data_const(...) (CB_HERE, (cb_data_const)(__VA_ARGS__))
#define cb_device(...) (CB_HERE, (cb_device)(__VA_ARGS__))
#define cb_to_device(...) (CB_HERE, (cb_to_device)(__VA_ARGS__))
#define cb_synchronize() (CB_HERE, (cb_synchronize)())
#define cb_changed(...) (CB_HERE, (cb_changed)(__VA_ARGS__))
#define cb_mark_dynamic(...) (CB_HERE, (cb_mark_dynamic)(__VA_ARGS__))
#define cb_read(x, out, dtype) (CB_HERE, (cb_read)((x), (out), cb_only_dtype(dtype)))
#define cb_print(...) (CB_HERE, (cb_print)(__VA_ARGS__))
#define cb_format(...) (CB_HERE, (cb_format)(__VA_ARGS__))
#define cb_npy_load(...) (CB_HERE, (cb_npy_load)(__VA_ARGS__))
#define cb_npy_save(...) (CB_HERE, (cb_npy_save)(__VA_ARGS__))
#define cb_padding(...) (CB_HERE, (cb_padding)(__VA_ARGS__))
#define cb_split(...) (CB_HERE, (cb_split)(__VA_ARGS__))
#define cb_chunk(...) (CB_HERE, (cb_chunk)(__VA_ARGS__))
#define cb_sort(...) (CB_HERE, (cb_sort)(__VA_ARGS__))
#define cb_topk(...) (CB_HERE, (cb_topk)(__VA_ARGS__))
#define cb_nonzero(...) (CB_HERE, (cb_nonzero)(__VA_ARGS__))
#define cb_masked_select(...) (CB_HERE, (cb_masked_select)(__VA_ARGS__))
#define cb_cat(...) (CB_HERE, (cb_cat)(__VA_ARGS__))
#define cb_stack(...) (CB_HERE, (cb_stack)(__VA_ARGS__))
#define cb_assign(...) (CB_HERE, (cb_assign)(__VA_ARGS__))
#define cb_assign_result(...) (CB_HERE, (cb_assign_result)(__VA_ARGS__))
#define cb_fill_(x, value) (CB_HERE, (cb_fill_)((x), cb_operand_of(value)))
#define cb_requires_grad_(...) (CB_HERE, (cb_requires_grad_)(__VA_ARGS__))
#define cb_backward(...) (CB_HERE, (cb_backward)(__VA_ARGS__))
#define cb_grad(...) (CB_HERE, (cb_grad)(__VA_ARGS__))
#define cb_grad_graph(...) (CB_HERE, (cb_grad_graph)(__VA_ARGS__))
#define cb_requires_grad(...) (CB_HERE, (cb_requires_grad)(__VA_ARGS__))
#define cb_tensor_grad(...) (CB_HERE, (cb_tensor_grad)(__VA_ARGS__))
#define cb_zero_grad(...) (CB_HERE, (cb_zero_grad)(__VA_ARGS__))
#define cb_no_grad_open() (CB_HERE, (cb_no_grad_open)())
#define cb_no_grad_close() (CB_HERE, (cb_no_grad_close)())
#define cb_register_op(...) (CB_HERE, (cb_register_op)(__VA_ARGS__))
#define cb_call_op(name, inputs, count, integers, floats)                                          \
    (CB_HERE, (cb_call_op)((name), (inputs), (count), cb_dims_of(integers), cb_floats_of(floats)))
#define cb_call_op_n(name, inputs, count, integers, floats, outputs, capacity)                     \
    (CB_HERE, (cb_call_op_n)((name), (inputs), (count), cb_dims_of(integers),                      \
                             cb_floats_of(floats), (outputs), (capacity)))
#define cb_autocast_open(dtype) (CB_HERE, (cb_autocast_open)(cb_only_dtype(dtype)))
#define cb_autocast_close() (CB_HERE, (cb_autocast_close)())
#define cb_disable_open() (CB_HERE, (cb_disable_open)())
#define cb_disable_close() (CB_HERE, (cb_disable_close)())
#define cb_reset() (CB_HERE, (cb_reset)())
#define cb_compile_1(...) (CB_HERE, (cb_compile_1)(__VA_ARGS__))
#define cb_compile_2(...) (CB_HERE, (cb_compile_2)(__VA_ARGS__))
#define cb_compile_3(...) (CB_HERE, (cb_compile_3)(__VA_ARGS__))
#define cb_compile_4(...) (CB_HERE, (cb_compile_4)(__VA_ARGS__))
#define cb_compile_n(...) (CB_HERE, (cb_compile_n)(__VA_ARGS__))
#define cb_compile_module(...) (CB_HERE, (cb_compile_module)(__VA_ARGS__))
#define cb_compile_graph(...) (CB_HERE, (cb_compile_graph)(__VA_ARGS__))
#define cb_function_free(...) (CB_HERE, (cb_function_free)(__VA_ARGS__))
#define cb_function_wait(...) (CB_HERE, (cb_function_wait)(__VA_ARGS__))
#define cb_save_artifacts(...) (CB_HERE, (cb_save_artifacts)(__VA_ARGS__))
#define cb_load_artifacts(...) (CB_HERE, (cb_load_artifacts)(__VA_ARGS__))
#define cb_call_n(...) (CB_HERE, (cb_call_n)(__VA_ARGS__))
#define cb_call_1(...) (CB_HERE, (cb_call_1)(__VA_ARGS__))
#define cb_explain(...) (CB_HERE, (cb_explain)(__VA_ARGS__))
#define cb_explain_summary(...) (CB_HERE, (cb_explain_summary)(__VA_ARGS__))
#define cb_explain_html(...) (CB_HERE, (cb_explain_html)(__VA_ARGS__))
#define cb_stats(...) (CB_HERE, (cb_stats)(__VA_ARGS__))
#define cb_set_option(...) (CB_HERE, (cb_set_option)(__VA_ARGS__))
#define cb_get_option(...) (CB_HERE, (cb_get_option)(__VA_ARGS__))
#define cb_set_threads(...) (CB_HERE, (cb_set_threads)(__VA_ARGS__))
#define cb_set_float32_matmul_precision(...)                                                       \
    (CB_HERE, (cb_set_float32_matmul_precision)(__VA_ARGS__))

/* ---- modules and files --------------------------------------------------------------------- */

#define cb_module_new(...) (CB_HERE, (cb_module_new)(__VA_ARGS__))
#define cb_module_user(...) (CB_HERE, (cb_module_user)(__VA_ARGS__))
#define cb_module_free(...) (CB_HERE, (cb_module_free)(__VA_ARGS__))
#define cb_module_on_free(...) (CB_HERE, (cb_module_on_free)(__VA_ARGS__))
#define cb_module_add(...) (CB_HERE, (cb_module_add)(__VA_ARGS__))
#define cb_module_parameter(...) (CB_HERE, (cb_module_parameter)(__VA_ARGS__))
#define cb_module_buffer(...) (CB_HERE, (cb_module_buffer)(__VA_ARGS__))
#define cb_module_share(...) (CB_HERE, (cb_module_share)(__VA_ARGS__))
#define cb_module_inputs(...) (CB_HERE, (cb_module_inputs)(__VA_ARGS__))
#define cb_module_extra(...) (CB_HERE, (cb_module_extra)(__VA_ARGS__))
#define cb_module_forward(...) (CB_HERE, (cb_module_forward)(__VA_ARGS__))
#define cb_module_child(...) (CB_HERE, (cb_module_child)(__VA_ARGS__))
#define cb_module_get(...) (CB_HERE, (cb_module_get)(__VA_ARGS__))
#define cb_module_child_count(...) (CB_HERE, (cb_module_child_count)(__VA_ARGS__))
#define cb_module_child_at(...) (CB_HERE, (cb_module_child_at)(__VA_ARGS__))
#define cb_module_type(...) (CB_HERE, (cb_module_type)(__VA_ARGS__))
#define cb_module_train(...) (CB_HERE, (cb_module_train)(__VA_ARGS__))
#define cb_module_training(...) (CB_HERE, (cb_module_training)(__VA_ARGS__))
#define cb_module_set_leaf(...) (CB_HERE, (cb_module_set_leaf)(__VA_ARGS__))
#define cb_module_is_leaf(...) (CB_HERE, (cb_module_is_leaf)(__VA_ARGS__))
#define cb_module_visit(...) (CB_HERE, (cb_module_visit)(__VA_ARGS__))
#define cb_module_parameters(...) (CB_HERE, (cb_module_parameters)(__VA_ARGS__))
#define cb_module_to(module, dtype) (CB_HERE, (cb_module_to)((module), cb_only_dtype(dtype)))
#define cb_module_print(...) (CB_HERE, (cb_module_print)(__VA_ARGS__))
#define cb_module_text(...) (CB_HERE, (cb_module_text)(__VA_ARGS__))
#define cb_nn_sequential_n(...) (CB_HERE, (cb_nn_sequential_n)(__VA_ARGS__))
#define cb_nn_module_list_n(...) (CB_HERE, (cb_nn_module_list_n)(__VA_ARGS__))
#define cb_init_constant_(...) (CB_HERE, (cb_init_constant_)(__VA_ARGS__))
#define cb_calculate_gain(...) (CB_HERE, (cb_calculate_gain)(__VA_ARGS__))
#define CB_init_uniform__1(x) (CB_HERE, (cb_init_uniform_)((x), 0.0, 1.0))
#define CB_init_uniform__2(x, a) (CB_HERE, (cb_init_uniform_)((x), (a), 1.0))
#define CB_init_uniform__3(x, a, b) (CB_HERE, (cb_init_uniform_)((x), (a), (b)))
#define cb_init_uniform_(...)                                                                      \
    CB_PICK_3(__VA_ARGS__, CB_init_uniform__3, CB_init_uniform__2, CB_init_uniform__1, )           \
    (__VA_ARGS__)
#define CB_init_normal__1(x) (CB_HERE, (cb_init_normal_)((x), 0.0, 1.0))
#define CB_init_normal__2(x, mean) (CB_HERE, (cb_init_normal_)((x), (mean), 1.0))
#define CB_init_normal__3(x, mean, std) (CB_HERE, (cb_init_normal_)((x), (mean), (std)))
#define cb_init_normal_(...)                                                                       \
    CB_PICK_3(__VA_ARGS__, CB_init_normal__3, CB_init_normal__2, CB_init_normal__1, )(__VA_ARGS__)
#define CB_init_trunc_normal__1(x) (CB_HERE, (cb_init_trunc_normal_)((x), 0.0, 1.0, -2.0, 2.0))
#define CB_init_trunc_normal__2(x, mean)                                                           \
    (CB_HERE, (cb_init_trunc_normal_)((x), (mean), 1.0, -2.0, 2.0))
#define CB_init_trunc_normal__3(x, mean, std)                                                      \
    (CB_HERE, (cb_init_trunc_normal_)((x), (mean), (std), -2.0, 2.0))
#define CB_init_trunc_normal__4(x, mean, std, a)                                                   \
    (CB_HERE, (cb_init_trunc_normal_)((x), (mean), (std), (a), 2.0))
#define CB_init_trunc_normal__5(x, mean, std, a, b)                                                \
    (CB_HERE, (cb_init_trunc_normal_)((x), (mean), (std), (a), (b)))
#define cb_init_trunc_normal_(...)                                                                 \
    CB_PICK_5(__VA_ARGS__, CB_init_trunc_normal__5, CB_init_trunc_normal__4,                       \
              CB_init_trunc_normal__3, CB_init_trunc_normal__2, CB_init_trunc_normal__1, )         \
    (__VA_ARGS__)
#define CB_init_xavier_uniform__1(x) (CB_HERE, (cb_init_xavier_uniform_)((x), 1.0))
#define CB_init_xavier_uniform__2(x, gain) (CB_HERE, (cb_init_xavier_uniform_)((x), (gain)))
#define cb_init_xavier_uniform_(...)                                                               \
    CB_PICK_2(__VA_ARGS__, CB_init_xavier_uniform__2, CB_init_xavier_uniform__1, )(__VA_ARGS__)
#define CB_init_xavier_normal__1(x) (CB_HERE, (cb_init_xavier_normal_)((x), 1.0))
#define CB_init_xavier_normal__2(x, gain) (CB_HERE, (cb_init_xavier_normal_)((x), (gain)))
#define cb_init_xavier_normal_(...)                                                                \
    CB_PICK_2(__VA_ARGS__, CB_init_xavier_normal__2, CB_init_xavier_normal__1, )(__VA_ARGS__)
#define CB_init_orthogonal__1(x) (CB_HERE, (cb_init_orthogonal_)((x), 1.0))
#define CB_init_orthogonal__2(x, gain) (CB_HERE, (cb_init_orthogonal_)((x), (gain)))
#define cb_init_orthogonal_(...)                                                                   \
    CB_PICK_2(__VA_ARGS__, CB_init_orthogonal__2, CB_init_orthogonal__1, )(__VA_ARGS__)
#define CB_init_kaiming_uniform__1(x)                                                              \
    (CB_HERE, (cb_init_kaiming_uniform_)((x), 0.0, "fan_in", "leaky_relu"))
#define CB_init_kaiming_uniform__2(x, a)                                                           \
    (CB_HERE, (cb_init_kaiming_uniform_)((x), (a), "fan_in", "leaky_relu"))
#define CB_init_kaiming_uniform__3(x, a, mode)                                                     \
    (CB_HERE, (cb_init_kaiming_uniform_)((x), (a), (mode), "leaky_relu"))
#define CB_init_kaiming_uniform__4(x, a, mode, nonlinearity)                                       \
    (CB_HERE, (cb_init_kaiming_uniform_)((x), (a), (mode), (nonlinearity)))
#define cb_init_kaiming_uniform_(...)                                                              \
    CB_PICK_4(__VA_ARGS__, CB_init_kaiming_uniform__4, CB_init_kaiming_uniform__3,                 \
              CB_init_kaiming_uniform__2, CB_init_kaiming_uniform__1, )                            \
    (__VA_ARGS__)
#define CB_init_kaiming_normal__1(x)                                                               \
    (CB_HERE, (cb_init_kaiming_normal_)((x), 0.0, "fan_in", "leaky_relu"))
#define CB_init_kaiming_normal__2(x, a)                                                            \
    (CB_HERE, (cb_init_kaiming_normal_)((x), (a), "fan_in", "leaky_relu"))
#define CB_init_kaiming_normal__3(x, a, mode)                                                      \
    (CB_HERE, (cb_init_kaiming_normal_)((x), (a), (mode), "leaky_relu"))
#define CB_init_kaiming_normal__4(x, a, mode, nonlinearity)                                        \
    (CB_HERE, (cb_init_kaiming_normal_)((x), (a), (mode), (nonlinearity)))
#define cb_init_kaiming_normal_(...)                                                               \
    CB_PICK_4(__VA_ARGS__, CB_init_kaiming_normal__4, CB_init_kaiming_normal__3,                   \
              CB_init_kaiming_normal__2, CB_init_kaiming_normal__1, )                              \
    (__VA_ARGS__)
#define cb_safetensors_open(...) (CB_HERE, (cb_safetensors_open)(__VA_ARGS__))
#define cb_safetensors_close(...) (CB_HERE, (cb_safetensors_close)(__VA_ARGS__))
#define cb_safetensors_count(...) (CB_HERE, (cb_safetensors_count)(__VA_ARGS__))
#define cb_safetensors_name(...) (CB_HERE, (cb_safetensors_name)(__VA_ARGS__))
#define cb_safetensors_get(...) (CB_HERE, (cb_safetensors_get)(__VA_ARGS__))
#define cb_safetensors_metadata(...) (CB_HERE, (cb_safetensors_metadata)(__VA_ARGS__))
#define cb_safetensors_save(...) (CB_HERE, (cb_safetensors_save)(__VA_ARGS__))
#define cb_module_load_state(...) (CB_HERE, (cb_module_load_state)(__VA_ARGS__))
#define cb_module_load_state_keys(...) (CB_HERE, (cb_module_load_state_keys)(__VA_ARGS__))
#define cb_module_save_state(...) (CB_HERE, (cb_module_save_state)(__VA_ARGS__))

/* ---- training ------------------------------------------------------------------------------- */

#define cb_optimizer_new(...) (CB_HERE, (cb_optimizer_new)(__VA_ARGS__))
#define cb_optimizer_free(...) (CB_HERE, (cb_optimizer_free)(__VA_ARGS__))
#define cb_optimizer_add(...) (CB_HERE, (cb_optimizer_add)(__VA_ARGS__))
#define cb_optimizer_add_module(...) (CB_HERE, (cb_optimizer_add_module)(__VA_ARGS__))
#define cb_optimizer_step(...) (CB_HERE, (cb_optimizer_step)(__VA_ARGS__))
#define cb_optimizer_zero_grad(...) (CB_HERE, (cb_optimizer_zero_grad)(__VA_ARGS__))
#define cb_optimizer_lr(...) (CB_HERE, (cb_optimizer_lr)(__VA_ARGS__))
#define cb_optimizer_set_lr(...) (CB_HERE, (cb_optimizer_set_lr)(__VA_ARGS__))
#define cb_optimizer_state(...) (CB_HERE, (cb_optimizer_state)(__VA_ARGS__))
#define cb_clip_grad_norm_(...) (CB_HERE, (cb_clip_grad_norm_)(__VA_ARGS__))
#define cb_clip_grad_value_(...) (CB_HERE, (cb_clip_grad_value_)(__VA_ARGS__))
#define cb_schedule_new(...) (CB_HERE, (cb_schedule_new)(__VA_ARGS__))
#define cb_schedule_then(...) (CB_HERE, (cb_schedule_then)(__VA_ARGS__))
#define cb_schedule_step(...) (CB_HERE, (cb_schedule_step)(__VA_ARGS__))
#define cb_schedule_state(...) (CB_HERE, (cb_schedule_state)(__VA_ARGS__))
#define cb_schedule_free(...) (CB_HERE, (cb_schedule_free)(__VA_ARGS__))
#define cb_scaler_new(...) (CB_HERE, (cb_scaler_new)(__VA_ARGS__))
#define cb_scaler_scale(...) (CB_HERE, (cb_scaler_scale)(__VA_ARGS__))
#define cb_scaler_unscale_(...) (CB_HERE, (cb_scaler_unscale_)(__VA_ARGS__))
#define cb_scaler_step(...) (CB_HERE, (cb_scaler_step)(__VA_ARGS__))
#define cb_scaler_update(...) (CB_HERE, (cb_scaler_update)(__VA_ARGS__))
#define cb_scaler_scale_now(...) (CB_HERE, (cb_scaler_scale_now)(__VA_ARGS__))
#define cb_scaler_state(...) (CB_HERE, (cb_scaler_state)(__VA_ARGS__))
#define cb_scaler_free(...) (CB_HERE, (cb_scaler_free)(__VA_ARGS__))
#define CB_training_save_4(...) (CB_HERE, (cb_training_save)(__VA_ARGS__, NULL, NULL))
#define CB_training_save_5(...) (CB_HERE, (cb_training_save)(__VA_ARGS__, NULL))
#define CB_training_save_6(...) (CB_HERE, (cb_training_save)(__VA_ARGS__))
#define cb_training_save(...)                                                                      \
    CB_PICK_6(__VA_ARGS__, CB_training_save_6, CB_training_save_5, CB_training_save_4, , , , )     \
    (__VA_ARGS__)
#define CB_training_load_4(...) (CB_HERE, (cb_training_load)(__VA_ARGS__, NULL, NULL))
#define CB_training_load_5(...) (CB_HERE, (cb_training_load)(__VA_ARGS__, NULL))
#define CB_training_load_6(...) (CB_HERE, (cb_training_load)(__VA_ARGS__))
#define cb_training_load(...)                                                                      \
    CB_PICK_6(__VA_ARGS__, CB_training_load_6, CB_training_load_5, CB_training_load_4, , , , )     \
    (__VA_ARGS__)

/* ---- FX graphs ------------------------------------------------------------------------------ */

#define cb_symbolic_trace(...) (CB_HERE, (cb_symbolic_trace)(__VA_ARGS__))
#define cb_symbolic_trace_with(...) (CB_HERE, (cb_symbolic_trace_with)(__VA_ARGS__))
#define cb_symbolic_trace_function(...) (CB_HERE, (cb_symbolic_trace_function)(__VA_ARGS__))
#define cb_symbolic_trace_function_with(...)                                                       \
    (CB_HERE, (cb_symbolic_trace_function_with)(__VA_ARGS__))
#define cb_graph_new(...) (CB_HERE, (cb_graph_new)(__VA_ARGS__))
#define cb_graph_parse(...) (CB_HERE, (cb_graph_parse)(__VA_ARGS__))
#define cb_register_backend(...) (CB_HERE, (cb_register_backend)(__VA_ARGS__))
#define cb_backend_inner(...) (CB_HERE, (cb_backend_inner)(__VA_ARGS__))
#define cb_backend_eager(...) (CB_HERE, (cb_backend_eager)(__VA_ARGS__))
#define cb_graph_copy(...) (CB_HERE, (cb_graph_copy)(__VA_ARGS__))
#define cb_graph_free(...) (CB_HERE, (cb_graph_free)(__VA_ARGS__))
#define cb_graph_module(...) (CB_HERE, (cb_graph_module)(__VA_ARGS__))
#define cb_graph_print(...) (CB_HERE, (cb_graph_print)(__VA_ARGS__))
#define cb_graph_text(...) (CB_HERE, (cb_graph_text)(__VA_ARGS__))
#define cb_graph_tabular(...) (CB_HERE, (cb_graph_tabular)(__VA_ARGS__))
#define cb_graph_readable(...) (CB_HERE, (cb_graph_readable)(__VA_ARGS__))
#define cb_graph_dot(...) (CB_HERE, (cb_graph_dot)(__VA_ARGS__))
#define cb_graph_code(...) (CB_HERE, (cb_graph_code)(__VA_ARGS__))
#define cb_graph_run(...) (CB_HERE, (cb_graph_run)(__VA_ARGS__))
#define cb_graph_propagate_shapes(...) (CB_HERE, (cb_graph_propagate_shapes)(__VA_ARGS__))
#define cb_graph_first(...) (CB_HERE, (cb_graph_first)(__VA_ARGS__))
#define cb_graph_last(...) (CB_HERE, (cb_graph_last)(__VA_ARGS__))
#define cb_node_next(...) (CB_HERE, (cb_node_next)(__VA_ARGS__))
#define cb_node_previous(...) (CB_HERE, (cb_node_previous)(__VA_ARGS__))
#define cb_graph_find(...) (CB_HERE, (cb_graph_find)(__VA_ARGS__))
#define cb_graph_node_count(...) (CB_HERE, (cb_graph_node_count)(__VA_ARGS__))
#define cb_node_opcode(...) (CB_HERE, (cb_node_opcode)(__VA_ARGS__))
#define cb_node_name(...) (CB_HERE, (cb_node_name)(__VA_ARGS__))
#define cb_node_target(...) (CB_HERE, (cb_node_target)(__VA_ARGS__))
#define cb_node_arg_count(...) (CB_HERE, (cb_node_arg_count)(__VA_ARGS__))
#define cb_node_arg(...) (CB_HERE, (cb_node_arg)(__VA_ARGS__))
#define cb_node_kwarg_count(...) (CB_HERE, (cb_node_kwarg_count)(__VA_ARGS__))
#define cb_node_kwarg_at(...) (CB_HERE, (cb_node_kwarg_at)(__VA_ARGS__))
#define cb_node_kwarg(...) (CB_HERE, (cb_node_kwarg)(__VA_ARGS__))
#define cb_node_input_count(...) (CB_HERE, (cb_node_input_count)(__VA_ARGS__))
#define cb_node_input(...) (CB_HERE, (cb_node_input)(__VA_ARGS__))
#define cb_node_user_count(...) (CB_HERE, (cb_node_user_count)(__VA_ARGS__))
#define cb_node_user(...) (CB_HERE, (cb_node_user)(__VA_ARGS__))
#define cb_node_strides(...) (CB_HERE, (cb_node_strides)(__VA_ARGS__))
#define cb_node_meta(...) (CB_HERE, (cb_node_meta)(__VA_ARGS__))
#define cb_graph_placeholder(...) (CB_HERE, (cb_graph_placeholder)(__VA_ARGS__))
#define cb_graph_get_attr(...) (CB_HERE, (cb_graph_get_attr)(__VA_ARGS__))
#define cb_graph_call_function(...) (CB_HERE, (cb_graph_call_function)(__VA_ARGS__))
#define cb_graph_call_method(...) (CB_HERE, (cb_graph_call_method)(__VA_ARGS__))
#define cb_graph_call_module(...) (CB_HERE, (cb_graph_call_module)(__VA_ARGS__))
#define cb_graph_output(...) (CB_HERE, (cb_graph_output)(__VA_ARGS__))
#define cb_graph_insert_before(...) (CB_HERE, (cb_graph_insert_before)(__VA_ARGS__))
#define cb_graph_insert_after(...) (CB_HERE, (cb_graph_insert_after)(__VA_ARGS__))
#define cb_node_set_arg(...) (CB_HERE, (cb_node_set_arg)(__VA_ARGS__))
#define cb_node_set_kwarg(...) (CB_HERE, (cb_node_set_kwarg)(__VA_ARGS__))
#define cb_node_set_target(...) (CB_HERE, (cb_node_set_target)(__VA_ARGS__))
#define cb_node_replace_all_uses(...) (CB_HERE, (cb_node_replace_all_uses)(__VA_ARGS__))
#define cb_graph_erase(...) (CB_HERE, (cb_graph_erase)(__VA_ARGS__))
#define cb_graph_dead_code(...) (CB_HERE, (cb_graph_dead_code)(__VA_ARGS__))
#define cb_graph_replace_pattern(...) (CB_HERE, (cb_graph_replace_pattern)(__VA_ARGS__))
#define cb_graph_lint(...) (CB_HERE, (cb_graph_lint)(__VA_ARGS__))

/* ---- templates and overloads ---------------------------------------------------------------- */

#ifdef __cplusplus
#define cb_compile(...) (CB_HERE, (cb_compile)(__VA_ARGS__))
#define cb_call(...) (CB_HERE, (cb_call)(__VA_ARGS__))
#define cb_forward(...) (CB_HERE, (cb_forward)(__VA_ARGS__))
#define cb_nn_sequential(...) (CB_HERE, (cb_nn_sequential)(__VA_ARGS__))
#define cb_nn_module_list(...) (CB_HERE, (cb_nn_module_list)(__VA_ARGS__))
#endif

#endif
#endif
