/* GPT-2's weights as Hugging Face's files have them: other names, and matrices the other way round.
 *
 *     h.0.attn.c_attn.weight [768, 2304]  ->  h.0.qkv.weight [2304, 768]
 *
 * Some files begin every name with "transformer."; masks (h.0.attn.bias) and the tied head are left
 * alone. */
#include "build.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct WeightFile {
    const cb_safetensors *file;
    const char *path, *prefix;
    bool fine;
} WeightFile;

/* Ours, of a block or the whole, and theirs. */
static const char *const layers[][2] = {
    {"ln1", "ln_1"},         {"ln2", "ln_2"},    {"qkv", "attn.c_attn"},
    {"proj", "attn.c_proj"}, {"fc", "mlp.c_fc"}, {"fc2", "mlp.c_proj"},
    {"lnf", "ln_f"},         {"wte", "wte"},     {"wpe", "wpe"}};

/* "h.0.qkv.weight" -> "transformer.h.0.attn.c_attn.weight" */
static void their_name(const char *prefix, const char *name, char *theirs, size_t room) {
    const char *last = strrchr(name, '.'), *layer = last;
    while (layer > name && layer[-1] != '.') layer--;
    size_t length = (size_t)(last - layer);
    const char *called = layer;
    int bytes = (int)length;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        if (strlen(layers[i][0]) == length && !memcmp(layers[i][0], layer, length))
            called = layers[i][1], bytes = (int)strlen(called);
    snprintf(theirs, room, "%s%.*s%.*s%s", prefix, (int)(layer - name), name, bytes, called, last);
}

static bool same_sizes(const cb_tensor *a, const cb_tensor *b) {
    if (!b || cb_rank(a) != cb_rank(b)) return false;
    for (int i = 0; i < cb_rank(a); i++)
        if (cb_size(a, i) != cb_size(b, i)) return false;
    return true;
}

static void take(const char *name, cb_tensor *tensor, bool buffer, void *user) {
    WeightFile *from = user;
    if (buffer || !from->fine || !strcmp(name, "head.weight")) return;
    char theirs[128];
    their_name(from->prefix, name, theirs, sizeof theirs);
    cb_scope_open();
    cb_tensor *value = cb_safetensors_get(from->file, theirs);
    bool linear = !strncmp(name, "h.", 2) && value && cb_rank(value) == 2;
    if (linear) value = cb_t(value);
    from->fine = same_sizes(tensor, value) && cb_assign(tensor, value);
    if (value && !from->fine)
        build_refuse("gpt2: %s: %s has other sizes than the rest of the file says", from->path,
                     theirs);
    cb_scope_close();
}

/* What the sizes of the embeddings and the number of blocks say. */
static bool read_config(const WeightFile *from, cb_gpt2_config *config) {
    char name[64];
    snprintf(name, sizeof name, "%swte.weight", from->prefix);
    cb_tensor *tokens = cb_safetensors_get(from->file, name);
    snprintf(name, sizeof name, "%swpe.weight", from->prefix);
    cb_tensor *places = tokens ? cb_safetensors_get(from->file, name) : NULL;
    if (!places) return false;
    if (cb_rank(tokens) != 2 || cb_rank(places) != 2)
        return build_refuse("gpt2: %s: the embeddings are no matrices", from->path), false;
    config->vocabulary = cb_size(tokens, 0), config->length = cb_size(places, 0);
    config->width = cb_size(tokens, 1);
    if (!config->heads) config->heads = config->width / 64;
    size_t before = strlen(from->prefix);
    for (int i = 0; i < cb_safetensors_count(from->file); i++) {
        const char *found = cb_safetensors_name(from->file, i);
        if (!strncmp(found, from->prefix, before) && !strncmp(found + before, "h.", 2) &&
            strstr(found, ".ln_1.weight"))
            config->layers++;
    }
    return true;
}

cb_module *cb_model_gpt2_load(const char *path, int64_t heads) {
    cb_gpt2_config config = {.heads = heads};
    cb_safetensors *file = cb_safetensors_open(path);
    if (!file) return NULL;
    WeightFile from = {file, path, "", true};
    for (int i = 0; i < cb_safetensors_count(file); i++)
        if (!strncmp(cb_safetensors_name(file, i), "transformer.", 12))
            from.prefix = "transformer.";
    cb_scope_open();
    bool read = read_config(&from, &config);
    cb_scope_close();
    cb_module *net = read ? build_gpt2(&config) : NULL;
    if (net) cb_module_visit(net, take, &from);
    cb_safetensors_close(file);
    if (net && from.fine) return net;
    if (net) cb_module_free(net);
    return NULL;
}
