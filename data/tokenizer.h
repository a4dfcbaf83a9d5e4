/* Inside of the tokenizers: a vocabulary, its merges, and who works with them.
 *
 * Written while a tokenizer is made, and by cb_tokenizer_add_special; encoding and decoding only
 * read, so that any number of threads may share one. */
#ifndef CARBIDE_DATA_TOKENIZER_H
#define CARBIDE_DATA_TOKENIZER_H

#include "files.h"

enum { NO_TOKEN = -1 };

typedef struct Token {
    uint64_t start; /* in bytes */
    uint32_t length;
    bool whole;   /* merging its bytes gives this token: a word that is one needs no merging */
    bool special; /* stands for no text of its own, unless it is asked for */
} Token;

/* left and right, side by side, may become the token of their bytes; the lowest rank goes first. */
typedef struct PairMerge {
    int32_t left, right, token;
    int32_t rank; /* NO_TOKEN: the slot is empty */
} PairMerge;

struct cb_tokenizer {
    Token *token;
    int32_t count, token_capacity;
    uint8_t *bytes; /* of all tokens, one behind the other */
    size_t bytes_count, bytes_capacity;
    int32_t *slot; /* tokens by the hash of their bytes; capacity is a power of two */
    size_t slots;
    PairMerge *merge; /* by the hash of left and right, as well */
    size_t merges;
    int32_t merge_count;
    int32_t of_byte[256];
    int32_t specials;
};

/* ---- tokenizer.c ---------------------------------------------------------------------------- */

/* False with an error: no memory. Whoever adds looks first whether the bytes are there. */
bool tokenizer_add(cb_tokenizer *tokenizer, const void *bytes, size_t length);
int32_t tokenizer_find(const cb_tokenizer *tokenizer, const void *bytes, size_t length);

/* ---- merge.c -------------------------------------------------------------------------------- */

/* What the merging of a word needs; grows with the longest one. All 0 to begin with. */
typedef struct MergeSpace {
    struct Piece *piece;
    struct WaitingPair *heap;
    size_t capacity; /* bytes of a word */
} MergeSpace;

void merge_space_free(MergeSpace *space);
/* Room for so many merges, before the first one is added. */
bool merge_table_make(cb_tokenizer *tokenizer, size_t merges);
/* False: the pair is there. */
bool merge_add(cb_tokenizer *tokenizer, PairMerge merge);
/* The tokens of a word, of which ids has room for as many as there are bytes; -1 with an error. */
int64_t merge_word(const cb_tokenizer *tokenizer, MergeSpace *space, const uint8_t *word,
                   size_t bytes, int32_t *ids);

/* ---- split.c -------------------------------------------------------------------------------- */

/* How many bytes the first word of a text has, which is not empty. */
size_t split_word(const uint8_t *text, size_t bytes);

#endif
