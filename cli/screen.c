/* What a terminal shows (screen.h). */
#include "screen.h"
#include "base/environment.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

enum { MOST_LETTERS = 40 };

static const char *escape(const char *code) {
    const char *off = environment("NO_COLOR"), *terminal = environment("TERM");
    bool dumb = !terminal || !strcmp(terminal, "dumb");
    return isatty(STDOUT_FILENO) && !(off && *off) && !dumb ? code : "";
}

const char *screen_bold(void) { return escape("\033[1m"); }
const char *screen_green(void) { return escape("\033[32m"); }
const char *screen_plain(void) { return escape("\033[0m"); }

void screen_wrap(FILE *out, int used, int indent, const char *text) {
    int column = used;
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (column > indent && column + 1 + word > SCREEN_COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        }
        bool first = column == indent || column == used;
        column += fprintf(out, "%s%.*s", first ? "" : " ", word, text);
        text += word + (text[word] == ' ');
    }
    fputc('\n', out);
}

void screen_line(const char *text) {
    if (strlen(text) <= SCREEN_COLUMNS || !isatty(STDOUT_FILENO))
        puts(text);
    else
        printf("%.*s...\n", SCREEN_COLUMNS - 3, text);
}

/* ---- the word that was meant ----------------------------------------------------------------- */

static int least(int a, int b) { return a < b ? a : b; }

static bool is_same(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Letters to put in, take out or exchange; two neighbours that changed places count as one. */
static int distance(const char *a, const char *b) {
    int n = (int)strlen(a), m = (int)strlen(b);
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

Guess guess_begin(const char *word) { return (Guess){word, NULL, MOST_LETTERS}; }

void guess_try(Guess *guess, const char *known) {
    int differ = distance(guess->word, known);
    if (differ >= guess->distance) return;
    guess->distance = differ;
    guess->best = known;
}

void guess_print(const Guess *guess, FILE *out) {
    int near = (int)strlen(guess->word) / 3 + 1;
    if (guess->best && guess->distance <= near) fprintf(out, "; did you mean '%s'?", guess->best);
}
