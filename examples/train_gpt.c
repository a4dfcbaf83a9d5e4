/* A GPT over characters learns Shakespeare, or any other text, and then writes some of its own.
 *
 *     train_gpt                                    four layers of 128, 500 steps
 *     train_gpt --layers 6 --width 384 --heads 6 --length 256 --batch 12 --steps 5000
 *     train_gpt --resume                           goes on where the checkpoint is
 *     train_gpt --steps 0 --resume --sample 500 --prompt "ROSALIND" --temperature 0.8 --top-k 40
 *
 * The network and its loop are train_language.h's and training.h's, which say what is compiled and
 * when the checkpoint is written. A token is a byte; --tokens 2 reads a file of 16-bit numbers
 * below --vocabulary instead, of which nothing is written as text. */
#include "train_language.h"

int main(int argc, char **argv) {
    static Language language;
    int64_t layers = 4, width = 128, heads = 4;
    language = (Language){.run = {.steps = 500,
                                  .warmup = 50,
                                  .save_every = 100,
                                  .validate_every = 100,
                                  .seed = 1,
                                  .lr = 1e-3,
                                  .checkpoint = "gpt.safetensors"},
                          .length = 64,
                          .batch = 16,
                          .tokens = 1,
                          .vocabulary = 256,
                          .sample = 300,
                          .top_k = 40,
                          .temperature = 0.8,
                          .text = CARBIDE_EXAMPLE_DATA "/as_you_like_it.txt",
                          .prompt = "ROSALIND\t"};
    const Flag flags[] = {{"layers", .whole = &layers},
                          {"width", .whole = &width},
                          {"heads", .whole = &heads},
                          {"length", .whole = &language.length},
                          {"batch", .whole = &language.batch},
                          {"tokens", .whole = &language.tokens},
                          {"vocabulary", .whole = &language.vocabulary},
                          {"sample", .whole = &language.sample},
                          {"top-k", .whole = &language.top_k},
                          {"temperature", .real = &language.temperature},
                          {"data", .text = &language.text},
                          {"prompt", .text = &language.prompt}};
    if (!flags_parse(&language.run, "train_gpt", flags, sizeof flags / sizeof *flags, argc, argv))
        return 2;
    cb_interrupt_catch();
    cb_scope_open();
    cb_manual_seed((uint64_t)language.run.seed);
    language.run.net =
        cb_model_gpt2((cb_gpt2_config){language.vocabulary, language.length, width, layers, heads});
    if (language.tokens == 1) language.tokenizer = cb_tokenizer_bytes();
    if (!cb_error()) language_run(&language);
    cb_scope_close();
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    return cb_error() != NULL;
}
