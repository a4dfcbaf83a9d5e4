/* The word that was meant, of those that are known: "thread" -> "; did you mean 'threads'?". */
#ifndef CARBIDE_BASE_GUESS_H
#define CARBIDE_BASE_GUESS_H

#include <stddef.h>

enum { GUESS_BYTES = 80 };

typedef struct Guess { /* the known word that is nearest to what was written */
    const char *word, *best;
    int length, distance; /* of the word; letters that differ */
} Guess;

Guess guess_begin(const char *word); /* which stays while others are tried */
Guess guess_part(const char *word, size_t length); /* of a longer text */
void guess_try(Guess *guess, const char *known);
const char *guess_word(const Guess *guess); /* NULL: none is near */
/* "; did you mean 'gelu'?", when one is near; else "". Returns text. */
const char *guess_text(const Guess *guess, char text[GUESS_BYTES]);

#endif
