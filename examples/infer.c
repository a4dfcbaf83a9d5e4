/* A network on weights from PyTorch, eager and compiled.
 *
 *     infer NET WEIGHTS INPUT OUTPUT [DTYPE [OPTIONS]]
 *
 * NET: alexnet, resnet18, resnet50, gpt2, gpt2-tiny. WEIGHTS: a state dict, INPUT: its tensor "x",
 * both safetensors. OUTPUT gets "eager" and "compiled", in f32. DTYPE: f32 (the default), bf16, f64
 * for weights and floating-point inputs, or autocast: f32, and bf16 where cb_autocast_open takes
 * it; OPTIONS: those of cb_compile. Where INPUT has a "y" as well, the compiled result has to be
 * near it. */
#include <carbide.h>
#include <carbide_models.h>
#include <math.h>
#include <string.h>

static cb_module *build(const char *net) {
    if (!strcmp(net, "alexnet")) return cb_model_alexnet(cb_alexnet_config_default());
    if (!strcmp(net, "resnet18")) return cb_model_resnet(cb_resnet18_config());
    if (!strcmp(net, "resnet50")) return cb_model_resnet(cb_resnet50_config());
    if (!strcmp(net, "gpt2")) return cb_model_gpt2(cb_gpt2_124m_config());
    if (!strcmp(net, "gpt2-tiny")) return cb_model_gpt2(cb_gpt2_tiny_config());
    fprintf(stderr, "there is no network '%s'\n", net);
    return NULL;
}

typedef struct Precision {
    const char *name;
    cb_dtype dtype; /* of weights and floating-point inputs */
    bool autocast;
} Precision;

static const Precision *precision_named(const char *name) {
    static const Precision all[] = {{"f32", CB_F32, false},
                                    {"bf16", CB_BF16, false},
                                    {"f64", CB_F64, false},
                                    {"autocast", CB_F32, true}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(name, all[i].name)) return &all[i];
    fprintf(stderr, "DTYPE cannot be '%s'; it can be f32, bf16, f64, autocast\n", name);
    return NULL;
}

/* y: what is expected, or NULL. False when it is not what came out. */
static bool report(cb_function *fast, cb_tensor *eager, cb_tensor *compiled, cb_tensor *y,
                   cb_dtype dtype) {
    cb_function_stats stats = cb_stats(fast);
    double largest = cb_item(cb_max(cb_abs(eager)));
    printf("%d ops became %d steps, compiled in %.0f ms; largest value %.4g, largest difference to "
           "eager %.1e",
           (int)stats.kernels_eager, (int)stats.kernels, stats.compile_ms, largest,
           cb_item(cb_max(cb_abs(cb_sub(compiled, eager)))));
    double difference = y ? cb_item(cb_max(cb_abs(cb_sub(compiled, y)))) : 0;
    if (y) printf(", to the expected %.1e", difference);
    puts("");
    return difference <= (dtype == CB_BF16 ? 5e-2 : 1e-4) * largest;
}

static bool run(cb_module *net, char **path, const Precision *precision, const char *options) {
    cb_safetensors *file = cb_safetensors_open(path[1]);
    cb_tensor *x = file ? cb_safetensors_get(file, "x") : NULL, *y = NULL;
    for (int i = 0; file && i < cb_safetensors_count(file); i++)
        if (!strcmp(cb_safetensors_name(file, i), "y")) y = cb_safetensors_get(file, "y");
    cb_safetensors_close(file);
    if (!x || cb_module_load_state(net, path[0], true) || cb_module_to(net, precision->dtype))
        return false;
    if (cb_dtype_of(x) == CB_F32) x = cb_to(x, precision->dtype);
    cb_module_train(net, false);

    if (precision->autocast) cb_autocast_open(CB_BF16);
    cb_tensor *eager = cb_forward(net, x);
    cb_function *fast = cb_compile_module(net, options);
    cb_tensor *compiled = cb_call(fast, x);
    if (precision->autocast) cb_autocast_close();
    cb_tensor *result[] = {cb_to(eager, CB_F32), cb_to(compiled, CB_F32)};
    static const char *const name[] = {"eager", "compiled"};
    bool good = !cb_error() && cb_safetensors_save(path[2], name, result, 2) == CB_OK;
    good = good && report(fast, result[0], result[1], y, cb_dtype_of(compiled));
    cb_function_free(fast);
    return good;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "infer NET WEIGHTS INPUT OUTPUT [DTYPE [OPTIONS]]\n");
        return 2;
    }
    const Precision *precision = precision_named(argc > 5 ? argv[5] : "f32");
    if (!precision) return 2;
    cb_scope_open();
    cb_module *net = build(argv[1]);
    bool good = net && run(net, argv + 2, precision, argc > 6 ? argv[6] : "fullgraph=1");
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    cb_module_free(net);
    cb_scope_close();
    return !good;
}
