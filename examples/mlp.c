/* A small classifier: three linear layers with relu, compiled as one module. Each layer is one
 * step: the matrix product with its bias and relu in the epilogue. */
#include <carbide.h>

enum { BATCH = 64, INPUTS = 784, HIDDEN = 512, CLASSES = 10 };

int main(void) {
    cb_scope_open();
    cb_manual_seed(1);
    cb_module *layers[] = {cb_nn_linear(INPUTS, HIDDEN, true), cb_nn_relu(),
                           cb_nn_linear(HIDDEN, HIDDEN, true), cb_nn_relu(),
                           cb_nn_linear(HIDDEN, CLASSES, true)};
    cb_module *net = cb_nn_sequential_n(layers, 5);
    cb_module_print(net);

    cb_tensor *x = cb_randn(cb_dims(BATCH, INPUTS));
    cb_tensor *eager = cb_module_forward(net, &x, 1);
    cb_function *fast = cb_compile(net);
    cb_tensor *logits = cb_call(fast, x);

    double difference = cb_item(cb_max(cb_abs(cb_sub(logits, eager))));
    cb_function_stats stats = cb_stats(fast);
    printf("%d ops became %d steps; largest difference to eager %.1e\n", (int)stats.kernels_eager,
           (int)stats.kernels, difference);
    cb_print(cb_argmax(logits, 1));

    cb_function_free(fast);
    cb_module_free(net);
    cb_scope_close();
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    return cb_error() || !(difference < 1e-4) || stats.kernels != 3;
}
