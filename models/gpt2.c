/* GPT-2: token and position embeddings, blocks of attention and MLP, a head tied to the tokens.
 *
 * In:  token numbers i64[batch, length].
 * Out: logits f32[batch, length, vocabulary].
 * Keys: wte, wpe, h.N.{ln1, ln2, qkv, proj, fc, fc2}, lnf, head; head.weight is wte.weight. There
 * is no GPT-2 in PyTorch itself: these are the names of tests/models/networks.py. */
#include "build.h"
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cb_gpt2_config cb_gpt2_124m_config(void) { return (cb_gpt2_config){50304, 1024, 768, 12, 12}; }

cb_gpt2_config cb_gpt2_tiny_config(void) { return (cb_gpt2_config){64, 32, 32, 2, 4}; }

/* The user pointer of a block is its number of heads. */
static cb_tensor *attend(cb_module *self, cb_tensor *x) {
    int64_t heads = (int64_t)(intptr_t)cb_module_user(self);
    int64_t batch = cb_size(x, 0), length = cb_size(x, 1), width = cb_size(x, 2);
    cb_tensor *qkv = cb_forward(cb_module_child(self, "qkv"), x), *part[3];
    if (cb_split(qkv, width, 2, part, 3) != 3) return NULL;
    for (int i = 0; i < 3; i++) {
        part[i] = cb_view(part[i], cb_dims(batch, length, heads, width / heads));
        part[i] = cb_transpose(part[i], 1, 2);
    }
    cb_tensor *y = cb_scaled_dot_product_attention(part[0], part[1], part[2], NULL, 0.0, true);
    return cb_reshape(cb_transpose(y, 1, 2), cb_dims(batch, length, width));
}

static cb_tensor *block_forward(cb_module *self, cb_tensor *const *inputs, int count) {
    cb_tensor *x = count > 0 ? inputs[0] : NULL;
    cb_tensor *y = cb_forward(cb_module_child(self, "ln1"), x);
    if (!y) return NULL;
    x = cb_add(x, cb_forward(cb_module_child(self, "proj"), attend(self, y)));
    y = cb_forward(cb_module_child(self, "fc"), cb_forward(cb_module_child(self, "ln2"), x));
    return cb_add(x, cb_forward(cb_module_child(self, "fc2"), cb_gelu(y, true)));
}

static cb_module *block_new(int64_t width, int64_t heads) {
    Build b = build_open("Block", block_forward, (void *)(intptr_t)heads);
    build_add(&b, "ln1", cb_nn_layer_norm(cb_dims(width), 1e-5));
    build_add(&b, "ln2", cb_nn_layer_norm(cb_dims(width), 1e-5));
    build_add(&b, "qkv", cb_nn_linear(width, 3 * width, true));
    build_add(&b, "proj", cb_nn_linear(width, width, true));
    build_add(&b, "fc", cb_nn_linear(width, 4 * width, true));
    build_add(&b, "fc2", cb_nn_linear(4 * width, width, true));
    return b.module;
}

static cb_tensor *forward(cb_module *self, cb_tensor *const *inputs, int count) {
    cb_tensor *tokens = count > 0 ? inputs[0] : NULL;
    cb_module *blocks = cb_module_child(self, "h");
    if (!tokens) return NULL;
    cb_tensor *places = cb_arange(0, cb_size(tokens, 1));
    cb_tensor *x = cb_add(cb_forward(cb_module_child(self, "wte"), tokens),
                          cb_forward(cb_module_child(self, "wpe"), places));
    for (int i = 0; i < cb_module_child_count(blocks); i++)
        x = cb_forward(cb_module_child_at(blocks, i, NULL), x);
    return cb_forward(cb_module_child(self, "head"), cb_forward(cb_module_child(self, "lnf"), x));
}

static cb_module *blocks_new(const cb_gpt2_config *config) {
    size_t count = (size_t)config->layers;
    cb_module **blocks = calloc(count + 1, sizeof *blocks);
    for (size_t i = 0; blocks && i < count; i++)
        blocks[i] = block_new(config->width, config->heads);
    cb_module *list = blocks ? cb_nn_module_list_n(blocks, (int)count) : NULL;
    free(blocks);
    return list;
}

/* The head is made without outputs, so that no table is drawn that wte's would take the place of:
 * that one is a quarter of all weights. */
static bool tie(cb_module *net, const cb_gpt2_config *config) {
    char extra[96];
    snprintf(extra, sizeof extra, "in_features=%" PRId64 ", out_features=%" PRId64 ", bias=False",
             config->width, config->vocabulary);
    cb_module *head = cb_module_child(net, "head");
    return cb_module_share(head, "weight", cb_module_get(net, "wte.weight")) &&
           cb_module_extra(head, extra) == CB_OK;
}

cb_module *build_gpt2(const cb_gpt2_config *config) {
    if (config->layers < 0 || config->layers > INT_MAX)
        return build_refuse("gpt2: %" PRId64 " layers", config->layers);
    if (config->heads < 1 || config->width % config->heads)
        return build_refuse("gpt2: %" PRId64 " heads do not divide a width of %" PRId64,
                            config->heads, config->width);
    Build b = build_open("GPT", forward, NULL);
    build_add(&b, "wte", cb_nn_embedding(config->vocabulary, config->width));
    build_add(&b, "wpe", cb_nn_embedding(config->length, config->width));
    build_add(&b, "h", blocks_new(config));
    build_add(&b, "lnf", cb_nn_layer_norm(cb_dims(config->width), 1e-5));
    build_add(&b, "head", cb_nn_linear(config->width, 0, false));
    if (!b.module) return NULL;
    if (tie(b.module, config)) return b.module;
    cb_module_free(b.module);
    return NULL;
}

typedef struct Start {
    double residuals; /* that are added up on the way through */
    bool fine;
} Start;

/* GPT-2's own. Tables of deviation 1, as layers have them, would make logits of one of sqrt(width)
 * through the tied head: their softmax, and all gradients behind it, would be mostly 0 and numbers
 * below 1e-38, which processors compute with many times slower. */
static void start(const char *name, cb_tensor *tensor, bool buffer, void *user) {
    Start *as = user;
    if (buffer || !strcmp(name, "head.weight")) return;
    bool last = strstr(name, ".proj.") || strstr(name, ".fc2.");
    if (cb_rank(tensor) > 1)
        as->fine &= cb_init_normal_(tensor, 0, last ? 0.02 / sqrt(as->residuals) : 0.02) != NULL;
    else if (strstr(name, ".bias"))
        as->fine &= cb_init_constant_(tensor, 0) != NULL;
}

cb_module *cb_model_gpt2(cb_gpt2_config config) {
    Start as = {2 * (double)config.layers, true};
    cb_module *net = build_gpt2(&config);
    if (net) cb_module_visit(net, start, &as);
    if (net && as.fine) return net;
    if (net) cb_module_free(net);
    return NULL;
}
