/* Their neighbours, which compile without a warning in C and C++: sizes as people type them. */
#include <carbide.h>

/* A doubled argument would be 2^25 of them here. */
#define NEST(x) cb_mul(cb_sub(cb_add(cb_mul(cb_add(x, 1), 2.0), 1.5f), true), 1.5f)

void taken(int rows, unsigned columns, size_t count, int64_t wide, float *data, cb_tensor *x,
           bool half);

void taken(int rows, unsigned columns, size_t count, int64_t wide, float *data, cb_tensor *x,
           bool half) {
    const short small = 3;
    const short least = -1;
    const unsigned char byte = 3;
    const unsigned short two_bytes = 3;
    const unsigned long long widest = 3;
    const cb_reduction reduction = CB_REDUCE_SUM;
    const cb_dtype dtype = half ? CB_F16 : CB_F32;
    cb_zeros(2);
    cb_zeros(2, CB_I32);
    cb_zeros(rows, dtype);
    cb_ones(columns, cb_dtype_of(x));
    cb_rand(count, cb_promote(CB_F16, dtype));
    cb_randn(wide);
    cb_randn(cb_dims(rows, 3), CB_BF16);
    cb_randint(0, 10, rows + 1);
    cb_full(rows, 1.0, CB_F64);
    cb_empty(3);
    cb_empty(cb_dims(2, 3));
    cb_empty(count, CB_I8);
    cb_empty(cb_dims(2, 3), dtype);
    cb_eye(2, 2, CB_I32);
    cb_arange(0, 4, 1, CB_I32);
    cb_arange(0, wide, rows);
    cb_slice(x, 0, rows, wide);
    cb_select(x, true, 'a');
    cb_roll(x, small, least);
    cb_to(x, dtype);
    cb_read(x, data, dtype);
    cb_from_data(data, CB_F32, 6);
    cb_from_data(data, CB_F32, rows);
    cb_from_data(data, dtype, cb_dims(2, 3));
    cb_reshape(x, -1);
    cb_sum(x, 0);
    cb_conv2d(x, x, CB_NULL, 1, "same");
    cb_conv2d(x, x, CB_NULL, 1, cb_dims(1, 2));
    cb_conv1d(x, x, CB_NULL, 1, rows);
    cb_module_free(cb_nn_conv2d(1, 2, 3, 1, "valid"));
    cb_sum(x, cb_dims());
    cb_sum(x, cb_dims(0, rows, small, count, wide, columns, -1, 2), half);
    cb_sum(x, cb_dims(count), half);
    cb_view(x, cb_dims(count, -1));
    cb_view(x, cb_dims(widest, byte, two_bytes));
    cb_zeros(widest, CB_I8);
    cb_sum(x, byte);
    cb_slice(x, 0, count, widest);
    cb_slice(x, 0, byte, two_bytes);
    cb_full(cb_dims(count, 2), widest);
    cb_zeros(cb_dims(cb_size(x, 0), cb_size(cb_reshape(x, cb_dims(rows, -1)), 1)));
    cb_relu_(cb_add_(cb_sub_(x, 1), cb_mul_(cb_div_(x, x), 2.5f)));
    cb_add(x, columns);
    cb_add(1.0, NEST(NEST(NEST(NEST(NEST(x)))))); /* 25 calls deep */
    cb_autocast_open(CB_BF16);
    cb_mse_loss(x, x, CB_REDUCE_SUM);
    cb_mse_loss(x, x, half ? CB_REDUCE_SUM : CB_REDUCE_NONE);
    cb_l1_loss(x, x, rows);
    cb_l1_loss(x, x, wide);
    cb_cross_entropy(x, x, CB_NULL, -100, reduction, 0.1F);
    cb_elu(x, 2);
    cb_elu(x, rows * 0.5);
    switch (dtype) {
    case CB_F16:
    case CB_F32:
        cb_autocast_close();
        break;
    default:
        break;
    }
#ifndef __cplusplus
    cb_from_data((const float[]){1, 2, 3, 4, 5, 6}, CB_F32, cb_dims(2, 3));
    cb_from_data((const float[]){1, 2}, CB_F32, cb_dims(2));
#endif
}
