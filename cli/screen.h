/* The terminal: colours where there is one, lines that fit, and the word that was meant. */
#ifndef CARBIDE_CLI_SCREEN_H
#define CARBIDE_CLI_SCREEN_H

#include <stdbool.h>
#include <stdio.h>

enum { SCREEN_COLUMNS = 80 };

/* The escape that begins bold or green text or, as "", nothing: stdout is no terminal, TERM is
 * dumb, or NO_COLOR is set. screen_plain ends either. */
const char *screen_bold(void);
const char *screen_green(void);
const char *screen_plain(void);
/* Text in lines that fit: the first one begins at column `used`, the others at `indent`. Ends with
 * a new line. */
void screen_wrap(FILE *out, int used, int indent, const char *text);
/* A line that is cut where a terminal ends; whole elsewhere. */
void screen_line(const char *text);

typedef struct Guess { /* the known word that is nearest to what was written */
    const char *word, *best;
    int distance; /* letters that differ */
} Guess;

Guess guess_begin(const char *word);
void guess_try(Guess *guess, const char *known);
void guess_print(const Guess *guess, FILE *out); /* "; did you mean 'gelu'?", when one is near */

#endif
