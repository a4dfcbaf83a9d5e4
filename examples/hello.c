/* The page-one program: eight operations are eight passes over memory in eager mode, and one kernel
 * compiled. */
#include <carbide.h>

static cb_tensor *gelu(cb_tensor *x) {
    cb_tensor *u = cb_mul(cb_add(x, cb_mul(cb_pow(x, 3.0), 0.044715)), 0.7978845608);
    return cb_mul(cb_mul(x, 0.5), cb_add(cb_tanh(u), 1.0));
}

int main(void) {
    cb_scope_open();
    cb_tensor *x = cb_randn(cb_dims(4, 1024));

    cb_function *fast = cb_compile(gelu); /* the one line */
    cb_tensor *y = cb_call(fast, x);      /* one kernel, one pass */

    double difference = cb_item(cb_max(cb_abs(cb_sub(y, gelu(x)))));
    cb_function_stats stats = cb_stats(fast);
    cb_print(cb_narrow(cb_select(y, 0, 0), 0, 0, 4));
    printf("%d ops became %d kernel; largest difference to eager %.1e\n", (int)stats.kernels_eager,
           (int)stats.kernels, difference);

    cb_function_free(fast);
    cb_scope_close();
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    return cb_error() || !(difference < 1e-6) || stats.kernels != 1;
}
