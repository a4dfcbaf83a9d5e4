/* Calls that the compiler refuses, one a line: too few arguments, an integer where a dtype belongs,
 * a number with a fraction, a bool or a dtype where sizes do, one with a fraction where an integer
 * does, a dtype or a reduction where a number does, and a text, a tensor or a number with a
 * fraction where a bool does, in C++ a pointer where a tensor does, which would be a bool; and what
 * cb_compile does not take. C and C++; tests/refused/refused.sh asks for an error in every line
 * that ends with "refused", and for none elsewhere. */
#include <carbide.h>

void refused(int rows, unsigned columns, size_t count, float *data, cb_tensor *x, bool keepdim,
             cb_function_n *general);

void refused(int rows, unsigned columns, size_t count, float *data, cb_tensor *x, bool keepdim,
             cb_function_n *general) {
    cb_zeros(2, 3);                                    /* refused */
    cb_zeros(rows, rows);                              /* refused */
    cb_zeros(rows, columns);                           /* refused */
    cb_zeros(count, count);                            /* refused */
    cb_ones(2, 8);                                     /* refused */
    cb_rand(2, 3);                                     /* refused */
    cb_randn(cb_dims(2, 3), 8);                        /* refused */
    cb_full(2, 1.0, 3);                                /* refused */
    cb_empty(2, 3);                                    /* refused */
    cb_eye(2, 2, 2);                                   /* refused */
    cb_arange(0, 4, 1, 2);                             /* refused */
    cb_arange(10);                                     /* refused */
    cb_nn_linear(3);                                   /* refused */
    cb_gather(x, 0);                                   /* refused */
    cb_to(x, 8);                                       /* refused */
    cb_to(x, rows);                                    /* refused */
    cb_read(x, data, 8);                               /* refused */
    cb_from_data(data, 3, 2);                          /* refused */
    cb_from_data(data, rows, cb_dims(2, 3));           /* refused */
    cb_autocast_open(7);                               /* refused */
    cb_zeros(2.5);                                     /* refused */
    cb_zeros(CB_F32);                                  /* refused */
    cb_sum(x, data);                                   /* refused */
    cb_arange(0, 1, 0.25);                             /* refused */
    cb_arange(0.5, 5);                                 /* refused */
    cb_slice(x, 0, 1.5F);                              /* refused */
    cb_select(x, 0, data[0]);                          /* refused */
    cb_randint(0, 9.5, 3);                             /* refused */
    cb_nn_linear(4, rows * 0.5);                       /* refused */
    cb_dtype_name(3);                                  /* refused */
    cb_dtype_size(rows);                               /* refused */
    cb_promote(CB_F16, 2);                             /* refused */
    cb_zeros(cb_dims(2.7, 2.5f));                      /* refused */
    cb_sum(x, cb_dims(0.9));                           /* refused */
    cb_sum(x, cb_dims(0, data[0]));                    /* refused */
    cb_zeros(cb_dims(2, data));                        /* refused */
    cb_zeros(cb_dims(x));                              /* refused */
    cb_zeros(cb_dims("valid", 2));                     /* refused */
    cb_sum(x, keepdim);                                /* refused */
    cb_sum(x, cb_dims(0, keepdim));                    /* refused */
    cb_zeros(cb_dims(2, 3, CB_F32));                   /* refused */
    cb_arange(0, 20, CB_F32);                          /* refused */
    cb_eye(2, CB_F64);                                 /* refused */
    cb_sum(x, 1, CB_F64);                              /* refused */
    cb_mean(x, 0, cb_dtype_of(x));                     /* refused */
    cb_full(3, CB_F32);                                /* refused */
    cb_full_like(x, CB_F32);                           /* refused */
    cb_one_hot(x, CB_F32);                             /* refused */
    cb_linspace(0, 1, CB_F32);                         /* refused */
    cb_add(x, CB_F16);                                 /* refused */
    cb_fill_(x, CB_F16);                               /* refused */
    cb_nn_linear(4, 4, CB_F16);                        /* refused */
    cb_gelu(x, "none");                                /* refused */
    cb_mean(x, 1, x);                                  /* refused */
    cb_sum(x, 1, 0.5);                                 /* refused */
    cb_sum(x, 1, data[0]);                             /* refused */
    cb_cross_entropy(x, x, NULL, CB_REDUCE_SUM);       /* refused */
    cb_nll_loss(x, x, x, CB_REDUCE_NONE, 1);           /* refused */
    cb_cross_entropy(x, x, NULL, 0, 1, CB_REDUCE_SUM); /* refused */
    cb_smooth_l1_loss(x, x, 1, CB_REDUCE_SUM);         /* refused */
    cb_kl_div(x, x, 1, CB_REDUCE_BATCHMEAN);           /* refused */
    cb_sum(x, CB_REDUCE_SUM);                          /* refused */
    cb_zeros(cb_dims(2, CB_REDUCE_NONE));              /* refused */
    cb_mul(x, CB_REDUCE_SUM);                          /* refused */
    cb_interpolate(x, CB_NO_DIMS, CB_REDUCE_SUM);      /* refused */
    cb_mse_loss(x, x, CB_F32);                         /* refused */
    cb_mse_loss(x, x, 1.0);                            /* refused */
    cb_elu(x, CB_F32);                                 /* refused */
    cb_to(x, CB_REDUCE_SUM);                           /* refused */
    cb_size(x);                                        /* refused */
    cb_npy_save("x.npy");                              /* refused */
    cb_softmax(x, x);                                  /* refused */
    cb_sum(x, "0");                                    /* refused */
    cb_zeros("3");                                     /* refused */
    cb_avg_pool2d(x, 2, 2, "same");                    /* refused */
    cb_conv2d(x, x, NULL, 1, x);                       /* refused */
    cb_compile(refused);                               /* refused */
    cb_compile(x, "fullgraph=1");                      /* refused */
    cb_compile(general);                               /* refused */
#ifdef __cplusplus
    const cb_tensor *constant = x;
    cb_mul(x, constant);                /* refused in C++ */
    cb_from_data(data, CB_F32, {2, 3}); /* refused in C++ */
    cb_mul(x, &x);                      /* refused in C++ */
    cb_mul(x, data);                    /* refused in C++ */
    cb_mul(x, "abc");                   /* refused in C++ */
    cb_sum(x, 1, x);                    /* refused in C++ */
#endif
    cb_view(x, cb_dims(1, 1, 1, 1, 1, 1, 1, 1, 1)); /* refused */
}
