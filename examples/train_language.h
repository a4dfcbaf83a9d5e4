/* A GPT that learns to tell the next token of a text, and writes some of its own: what train_gpt.c
 * and gpt2.c have in common beside training.h. Nine tenths of the text are learned, the last one
 * is for validation. */
#ifndef TRAIN_LANGUAGE_H
#define TRAIN_LANGUAGE_H

#include "training.h"

#include <carbide_models.h>

typedef struct Language {
    Training run;               /* first: a Training is this */
    int64_t length, batch;      /* tokens of a sequence, sequences of a step */
    int64_t tokens, vocabulary; /* bytes of a token in the file, and how many there are */
    int64_t sample, top_k;      /* tokens to write in the end */
    double temperature;         /* logits are divided by it; 0: the likeliest token */
    const char *text, *prompt;  /* a file of tokens */
    cb_tokenizer *tokenizer;    /* NULL: what is no text is not written */
    cb_tokens *file;
    cb_token_reader *reader;
    int64_t learned; /* tokens before this one */
} Language;

/* ---- the network ---------------------------------------------------------------------------- */

static inline cb_tensor *language_loss(Training *run, cb_tensor *inputs, cb_tensor *targets) {
    cb_tensor *logits = cb_forward(run->net, inputs);
    logits = cb_reshape(logits, cb_dims(-1, ((Language *)run)->vocabulary));
    return cb_cross_entropy(logits, cb_reshape(targets, -1));
}

/* The mean over eight batches of the text that is not learned, the same ones each time. */
static inline double language_validate(Training *run) {
    enum { BATCHES = 8 };
    const Language *language = (const Language *)run;
    cb_token_reader *reader =
        cb_token_reader_new(language->file, language->learned, cb_tokens_count(language->file),
                            language->batch, language->length, 7);
    double sum = 0;
    for (int i = 0; i < BATCHES && reader; i++) {
        cb_tensor *inputs, *targets;
        if (cb_token_reader_next(reader, &inputs, &targets) != CB_OK) break;
        cb_tensor *rows = training_forward(run, inputs);
        if (!rows) break;
        rows = cb_reshape(rows, cb_dims(-1, language->vocabulary));
        sum += cb_item(cb_cross_entropy(rows, cb_reshape(targets, -1)));
    }
    cb_token_reader_free(reader);
    return sum / BATCHES;
}

static inline cb_status language_next(Training *run, cb_tensor **inputs, cb_tensor **targets) {
    return cb_token_reader_next(((Language *)run)->reader, inputs, targets);
}

/* ---- writing -------------------------------------------------------------------------------- */

/* One of the k greatest logits, by softmax at a temperature; the greatest at 0. */
static inline int64_t language_choose(const Language *language, cb_tensor *row) {
    int64_t most = cb_size(row, 0), k = language->top_k;
    if (k < 1 || k > most) k = most;
    double temperature = language->temperature;
    cb_tensor *index, *best = cb_topk(row, temperature > 0 ? k : 1, -1, true, &index);
    if (temperature <= 0) return cb_item_int(index);
    cb_tensor *share = cb_cumsum(cb_softmax(cb_div(best, temperature), -1), -1);
    /* How many shares lie below a number of 0..1; rounding may leave the last one below 1. */
    double below = cb_item(cb_sum(cb_lt(share, cb_rand(cb_dims(1)))));
    return cb_item_int(cb_select(index, 0, below < (double)k ? (int64_t)below : k - 1));
}

/* The prompt's tokens, the last ones of as many as fit, into token; how many. */
static inline int64_t language_prompt(const Language *language, int64_t *token) {
    size_t bytes = strlen(language->prompt);
    int32_t *id = calloc(bytes + 1, sizeof *id);
    int64_t all =
        id ? cb_tokenizer_encode(language->tokenizer, language->prompt, (int64_t)bytes, true, id)
           : 0;
    int64_t known = all < language->length ? all : language->length;
    for (int64_t i = 0; i < known; i++) token[i] = id[all - known + i];
    free(id);
    return known;
}

/* Always `length` tokens go in, so that one compilation serves: what stands behind the text is seen
 * by nobody, as attention looks back alone. */
static inline void language_write(Language *language) {
    int64_t length = language->length, *token = calloc((size_t)length, sizeof *token);
    int64_t known = token ? language_prompt(language, token) : 0;
    printf("%s", language->prompt);
    for (int64_t n = 0; known > 0 && n < language->sample && !cb_error(); n++) {
        cb_scope_open();
        cb_tensor *in = cb_from_data(token, CB_I64, cb_dims(1, length));
        cb_tensor *out = training_forward(&language->run, in);
        cb_no_grad_open();
        int64_t next = language_choose(language, cb_select(cb_select(out, 0, 0), 0, known - 1));
        cb_no_grad_close();
        cb_scope_close();
        int64_t bytes = 0;
        const char *text =
            cb_error() ? NULL : cb_tokenizer_token(language->tokenizer, (int32_t)next, &bytes);
        if (!text) break;
        fwrite(text, 1, (size_t)bytes, stdout);
        if (known == length) memmove(token, token + 1, (size_t)--known * sizeof *token);
        token[known++] = next;
    }
    putchar('\n');
    free(token);
}

/* ---- the run -------------------------------------------------------------------------------- */

/* Reads the text, trains language->run.net, writes. What the program has to say is in language
 * already; what is made here is freed here, and the network. */
static inline void language_run(Language *language) {
    Training *run = &language->run;
    language->file = cb_tokens_open(language->text, (int)language->tokens, language->vocabulary);
    language->learned = cb_tokens_count(language->file) / 10 * 9;
    if (language->file)
        language->reader =
            cb_token_reader_new(language->file, 0, language->learned, language->batch,
                                language->length, (uint64_t)run->seed);
    run->loss = language_loss, run->next = language_next, run->validate = language_validate;
    run->validated = "validation", run->unit = "tokens";
    run->samples = language->batch * language->length;
    run->data = language->reader ? cb_token_reader_state(language->reader) : NULL;
    if (run->data && training_open(run, "AdamW", "betas=(0.9, 0.95), weight_decay=0.1"))
        training_run(run);
    if (!cb_error() && language->sample && language->tokenizer && *language->prompt)
        language_write(language);
    training_close(run);
    cb_token_reader_free(language->reader);
    cb_tokens_close(language->file);
    cb_tokenizer_free(language->tokenizer);
}

#endif
