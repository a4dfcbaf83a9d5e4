/* GPT-2 is trained: 124 million weights, from nothing or from those of Hugging Face.
 *
 *     gpt2 --batch 4 --length 512 --bf16 --data tokens.bin --tokens 2
 *     gpt2 --weights model.safetensors --vocabulary vocab.json --merges merges.txt --data my.txt
 *     gpt2 --eager --steps 5              the same step op by op, to compare
 *     gpt2 --resume                       goes on where the checkpoint is
 *
 * --data is a text, which is encoded into a token file beside the checkpoint by GPT-2's vocabulary,
 * or taken byte by byte where none is given; --tokens 2 says that it is a token file already, of
 * 16-bit numbers. In the end the network goes on with --prompt for --sample tokens. It prints
 * tokens a second and the memory it took; training.h and train_language.h are what it runs. */
#include "train_language.h"

typedef struct Sizes {
    int64_t layers, width, heads, positions, rows; /* rows: of the table of tokens */
    const char *weights, *vocabulary, *merges;
} Sizes;

/* The weights of a file, with its sizes, or new ones. */
static cb_module *network(const Sizes *sizes) {
    if (sizes->weights) return cb_model_gpt2_load(sizes->weights, sizes->heads);
    return cb_model_gpt2(
        (cb_gpt2_config){sizes->rows, sizes->positions, sizes->width, sizes->layers, sizes->heads});
}

/* The text as a token file, path, unless it is one. */
static bool encode(Language *language, const Sizes *sizes, char *path, size_t room) {
    bool pairs = sizes->vocabulary && sizes->merges;
    if (language->tokens && !pairs) return true; /* nothing can be written as text */
    language->tokenizer =
        pairs ? cb_tokenizer_gpt2(sizes->vocabulary, sizes->merges) : cb_tokenizer_bytes();
    if (!language->tokenizer || language->tokens) return language->tokenizer != NULL;
    language->tokens = pairs ? 2 : 1;
    if (!pairs) return true;
    snprintf(path, room, "%s.tokens", language->run.checkpoint);
    const char *text = language->text;
    language->text = path;
    return cb_tokenizer_encode_file(language->tokenizer, text, true, path, 2) == CB_OK;
}

static void teach(Language *language, const Sizes *sizes) {
    char path[4096];
    cb_manual_seed((uint64_t)language->run.seed);
    if (!encode(language, sizes, path, sizeof path)) return;
    language->run.net = network(sizes);
    if (!language->run.net) return;
    language->vocabulary = cb_size(cb_module_get(language->run.net, "wte.weight"), 0);
    language_run(language);
}

int main(int argc, char **argv) {
    static Language language;
    cb_gpt2_config full = cb_gpt2_124m_config();
    Sizes sizes = {full.layers,     full.width, full.heads, full.length,
                   full.vocabulary, NULL,       NULL,       NULL};
    language = (Language){.run = {.steps = 100,
                                  .warmup = 20,
                                  .save_every = 50,
                                  .validate_every = 50,
                                  .seed = 1,
                                  .lr = 3e-4,
                                  .checkpoint = "gpt2.safetensors"},
                          .length = 256,
                          .batch = 1,
                          .sample = 20,
                          .top_k = 40,
                          .temperature = 0.8,
                          .text = CARBIDE_EXAMPLE_DATA "/as_you_like_it.txt",
                          .prompt = "Enter ROSALIND"};
    const Flag flags[] = {{"layers", .whole = &sizes.layers},
                          {"width", .whole = &sizes.width},
                          {"heads", .whole = &sizes.heads},
                          {"positions", .whole = &sizes.positions},
                          {"rows", .whole = &sizes.rows},
                          {"weights", .text = &sizes.weights},
                          {"vocabulary", .text = &sizes.vocabulary},
                          {"merges", .text = &sizes.merges},
                          {"length", .whole = &language.length},
                          {"batch", .whole = &language.batch},
                          {"tokens", .whole = &language.tokens},
                          {"sample", .whole = &language.sample},
                          {"top-k", .whole = &language.top_k},
                          {"temperature", .real = &language.temperature},
                          {"data", .text = &language.text},
                          {"prompt", .text = &language.prompt}};
    if (!flags_parse(&language.run, "gpt2", flags, sizeof flags / sizeof *flags, argc, argv))
        return 2;
    cb_interrupt_catch();
    cb_scope_open();
    teach(&language, &sizes);
    cb_scope_close();
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    return cb_error() != NULL;
}
