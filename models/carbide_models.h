/* Networks built through Carbide's public API, with the layouts and state dict keys of their
 * PyTorch originals (of torchvision; GPT-2's are told below), so that weights from there load.
 *
 *     cb_module *net = cb_model_alexnet(cb_alexnet_config_default());
 *     cb_module_load_state(net, "alexnet.safetensors", true);
 *     cb_module_train(net, false);
 *     cb_tensor *scores = cb_forward(net, images);            f32[batch, 3, 224, 224]
 *     cb_module_free(net);
 *
 * Link with -lcarbide_models -lcarbide; CMake's Carbide::carbide_models brings carbide_static. A
 * constructor that fails returns NULL with cb_error() set. */
#ifndef CARBIDE_MODELS_H
#define CARBIDE_MODELS_H

#include <carbide.h>

#ifdef __cplusplus
extern "C" {
#endif

/* torchvision.models.alexnet */
typedef struct cb_alexnet_config {
    int64_t channels[5]; /* of the five convolutions */
    int64_t hidden;      /* features of the classifier's two layers */
    int64_t classes;
    double dropout;
} cb_alexnet_config;
cb_alexnet_config cb_alexnet_config_default(void); /* 64 192 384 256 256, 4096, 1000, 0.5 */
cb_module *cb_model_alexnet(cb_alexnet_config config);

/* torchvision.models.resnet18, resnet50 */
typedef struct cb_resnet_config {
    int blocks[4];   /* of the four stages */
    bool bottleneck; /* blocks of three convolutions, four times as wide at their end */
    int64_t width;   /* channels of the first stage */
    int64_t classes;
} cb_resnet_config;
cb_resnet_config cb_resnet18_config(void);
cb_resnet_config cb_resnet50_config(void);
cb_module *cb_model_resnet(cb_resnet_config config);

/* GPT-2 with the keys of models/gpt2.c, linear weights [out, in] as in nn.Linear. forward takes
 * token numbers i64[batch, length] and gives logits f32[batch, length, vocabulary]. The head shares
 * the weight of the token embedding. Initial values are GPT-2's: normal with a deviation of 0.02,
 * that over sqrt(2 layers) where a block ends, biases 0. */
typedef struct cb_gpt2_config {
    int64_t vocabulary, length; /* of the longest input */
    int64_t width, layers, heads;
} cb_gpt2_config;
cb_gpt2_config cb_gpt2_124m_config(void); /* 50304, 1024, 768, 12, 12 */
cb_gpt2_config cb_gpt2_tiny_config(void); /* 64, 32, 32, 2, 4: for tests */
cb_module *cb_model_gpt2(cb_gpt2_config config);
/* GPT-2 with the weights and sizes of a safetensors file of Hugging Face's (openai-community/gpt2:
 * wte.weight, h.0.attn.c_attn.weight, ...; with or without "transformer." in front). It does not
 * say how many heads there are: 0 makes them 64 wide, as all of OpenAI's are. NULL with an error
 * that names what is missing or has other sizes than the rest. */
cb_module *cb_model_gpt2_load(const char *path, int64_t heads);

/* Linear layers with relu between them: widths 64, 128, 10 are two layers. Keys as
 * nn.Sequential's. */
cb_module *cb_model_mlp(const int64_t *width, int count);

#ifdef __cplusplus
}
#endif
#endif
