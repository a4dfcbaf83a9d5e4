/* The terminal: colours where there is one, and lines that fit. */
#ifndef CARBIDE_CLI_SCREEN_H
#define CARBIDE_CLI_SCREEN_H

#include "base/guess.h"

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
/* What is on the left of a list, `margin` columns from its edge, and the text from column `indent`
 * on: behind it where it ends before that, below it elsewhere. */
void screen_row(FILE *out, int margin, int indent, const char *left, const char *text);
/* "carbide BEFORE: ", or "carbide: ", and the error, without the line of the command's that met
 * it. */
void screen_error(const char *before, const char *otherwise);

void guess_print(const Guess *guess, FILE *out); /* its text */

#endif
