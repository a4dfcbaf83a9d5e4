/* The word that was meant (guess.h). */
#include "base/guess.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MOST_LETTERS = 40 };

static int least(int a, int b) { return a < b ? a : b; }

static bool is_same(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Letters to put in, take out or exchange; two neighbours that changed places count as one. */
static int distance(const char *a, int n, const char *b) {
    int m = (int)strlen(b);
    int row[MOST_LETTERS + 1][MOST_LETTERS + 1];
    if (n > MOST_LETTERS || m > MOST_LETTERS) return MOST_LETTERS;
    for (int i = 0; i <= n; i++) row[i][0] = i;
    for (int k = 0; k <= m; k++) row[0][k] = k;
    for (int i = 1; i <= n; i++)
        for (int k = 1; k <= m; k++) {
            int changed = row[i - 1][k - 1] + !is_same(a[i - 1], b[k - 1]);
            row[i][k] = least(changed, least(row[i - 1][k], row[i][k - 1]) + 1);
            if (i > 1 && k > 1 && is_same(a[i - 1], b[k - 2]) && is_same(a[i - 2], b[k - 1]))
                row[i][k] = least(row[i][k], row[i - 2][k - 2] + 1);
        }
    return row[n][m];
}

Guess guess_part(const char *word, size_t length) {
    int letters = length < MOST_LETTERS ? (int)length : MOST_LETTERS + 1;
    return (Guess){word, NULL, letters, MOST_LETTERS};
}

Guess guess_begin(const char *word) { return guess_part(word, strlen(word)); }

void guess_try(Guess *guess, const char *known) {
    int differ = distance(guess->word, guess->length, known);
    bool begins = guess->length >= 3 && !strncasecmp(guess->word, known, (size_t)guess->length);
    if (begins && differ) differ = 1; /* conv: conv2d, not cos */
    bool shorter = begins && guess->best && strlen(known) < strlen(guess->best);
    if (differ > guess->distance || (differ == guess->distance && !shorter)) return;
    guess->distance = differ;
    guess->best = known;
}

const char *guess_word(const Guess *guess) {
    int most = guess->length < 5 ? 1 : (guess->length + 1) / 3; /* bmm is not sum */
    return guess->distance <= most ? guess->best : NULL;
}

const char *guess_text(const Guess *guess, char text[GUESS_BYTES]) {
    const char *word = guess_word(guess);
    *text = 0;
    if (word) snprintf(text, GUESS_BYTES, "; did you mean '%s'?", word);
    return text;
}
