// The header as C++: every macro form, overload and default that differs from C. Exits 0 when the
// values are right.
#include <carbide.h>

#include <cmath>
#include <cstdio>
#include <cstring>

static cb_tensor *scaled_softmax(cb_tensor *x) {
    return cb_softmax(cb_mul(cb_sub(x, 1.0), 2), -1);
}

static int failures = 0;

static void expect(const char *what, bool right) {
    if (right) return;
    std::fprintf(stderr, "test_cpp: %s: %s\n", what, cb_error() ? cb_error() : "wrong value");
    failures++;
}

static bool near(cb_tensor *x, double value) {
    return x && std::fabs(cb_item(x) - value) < 1e-5 * (1 + std::fabs(value));
}

static void test_ops() {
    cb_tensor *x = cb_reshape(cb_to(cb_arange(0, 6), CB_F32), cb_dims(2, 3));
    expect("sizes", cb_rank(x) == 2 && cb_size(x, 0) == 2 && cb_size(x, -1) == 3);
    const double wide[] = {1, 2, 3, 4};
    expect("elements of another dtype", !cb_from_data(wide, CB_F32, cb_dim_list{2, {2, 2}}) && cb_error());
    cb_clear_error();
    expect("elements", near(cb_sum(cb_from_data(wide, CB_F64, cb_dim_list{2, {2, 2}})), 10));
    expect("sum of all", near(cb_sum(x), 15));
    expect("sum of named dims", near(cb_sum(x, cb_dims(0, 1)), 15));
    expect("sum over one dim", cb_size(cb_sum(x, 0), 0) == 3);
    expect("keepdim", cb_rank(cb_sum(x, 1, true)) == 2);
    expect("number first", near(cb_sum(cb_add(1, x)), 21));
    expect("float, bool and where", near(cb_sum(cb_where(cb_gt(x, 2.5f), x, 0)), 12));
    expect("defaults in the middle", near(cb_sum(cb_clamp(x, 1)), 16));
    expect("no number", near(cb_sum(cb_clamp(x, nullptr, 3)), 12));
    expect("numbers stay", cb_dtype_of(cb_full(cb_dims(2), true)) == CB_BOOL &&
                               cb_item_int(cb_full(CB_NO_DIMS, INT64_MAX)) == INT64_MAX &&
                               cb_dtype_of(cb_full(cb_dims(2), 1.0)) == CB_F32);
    expect("optional tensors", near(cb_sum(cb_layer_norm(x, 3)), 0));
    expect("dims of nothing", near(cb_reshape(cb_sum(x, CB_ALL, true), CB_NO_DIMS), 15));
}

static void test_layers() {
    cb_module *net = cb_nn_sequential(cb_nn_conv2d(1, 2, 3, 1, "same"), cb_nn_elu(), cb_nn_elu(0.5),
                                      cb_nn_flatten(), cb_nn_linear(24, 2));
    expect("layers", cb_size(cb_forward(net, cb_ones(cb_dims(5, 1, 3, 4))), 0) == 5);
    expect("no error", !cb_error());
    cb_module_free(net);
}

static void test_compile() {
    cb_tensor *x = cb_reshape(cb_to(cb_arange(0, 6), CB_F32), cb_dims(2, 3));
    cb_function *fast = cb_compile(scaled_softmax);
    expect("compile", fast != nullptr);
    cb_tensor *difference = cb_sub(cb_call(fast, x), scaled_softmax(x));
    expect("compiled equals eager", near(cb_amax(cb_abs(difference)), 0));
    cb_function_free(fast);
    cb_function *lambda = cb_compile([](cb_tensor *y) { return cb_mul(y, 2.0); }, "backend=vm");
    expect("compile a lambda", near(cb_call(lambda, cb_ones(cb_dims(1))), 2));
    cb_function_free(lambda);
}

// Errors name the line of templates and overloads, too.
#define EXPECT_LINE(call)                                                                          \
    do {                                                                                           \
        cb_site("elsewhere.cc", 1);                                                                \
        (void)(call);                                                                              \
        char start[32];                                                                            \
        std::snprintf(start, sizeof start, "test_cpp.cc:%d: ", __LINE__);                          \
        expect(#call, cb_error() && !std::strncmp(cb_error(), start, std::strlen(start)));         \
        cb_clear_error();                                                                          \
    } while (0)

static cb_tensor *layer(cb_tensor *x) { return cb_relu(cb_add(x, 1)); }
static cb_module *block() { return cb_nn_sequential(cb_nn_relu(), cb_nn_linear(2, 2)); }

// So they do where the arguments make calls in other lines.
static void test_lines_of_nested_calls() {
    cb_tensor *x = cb_ones(cb_dims(2, 3));
    cb_module *net = block();
    EXPECT_LINE(cb_matmul(layer(x), layer(x)));
    EXPECT_LINE(cb_sum(layer(x), 5));
    EXPECT_LINE(cb_item(layer(x)));
    EXPECT_LINE(cb_add_(x, layer(cb_ones(5))));
    EXPECT_LINE(cb_forward(cb_module_child(net, "1"), layer(x)));
    EXPECT_LINE(cb_call(nullptr, layer(x)));
    EXPECT_LINE(cb_compile(net = cb_nn_sequential(net, block()), "no=1"));
    cb_module_free(net);
    EXPECT_LINE(cb_nn_module_list(nullptr, block()));
}

static void test_lines() {
    cb_module *net = cb_nn_sequential(cb_nn_relu(), cb_nn_linear(2, 2));
    cb_tensor *x = cb_ones(2);
    EXPECT_LINE(cb_compile(net, "no=1"));
    EXPECT_LINE(cb_compile(scaled_softmax, "no=1"));
    EXPECT_LINE(cb_call((cb_function *)nullptr, x));
    EXPECT_LINE(cb_forward(net, cb_ones(3)));
    EXPECT_LINE(cb_nn_sequential((cb_module *)nullptr));
    EXPECT_LINE(cb_size(x, 3));
    EXPECT_LINE(cb_fail(CB_ERR_IO, "mine"));
    cb_module_free(net);
}

int main() {
    cb_scope_open();
    test_lines();
    test_lines_of_nested_calls();
    test_ops();
    test_layers();
    test_compile();
    cb_scope_close();
    cb_cleanup();
    return failures != 0;
}
