/* What a terminal shows (screen.h). */
#include "screen.h"
#include "base/environment.h"
#include "carbide.h"

#include <string.h>
#include <unistd.h>

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

void screen_error(const char *before, const char *otherwise) {
    const char *error = cb_error() ? cb_error() : otherwise, *place = strstr(error, ".c:");
    size_t file = strcspn(error, ". "), line = place ? strspn(place + 3, "0123456789") : 0;
    bool own = place == error + file && line && !strncmp(place + 3 + line, ": ", 2);
    screen_wrap(stderr, fprintf(stderr, "carbide%s%s: ", *before ? " " : "", before), 2,
                own ? place + 3 + line + 2 : error);
}

void screen_line(const char *text) {
    if (strlen(text) <= SCREEN_COLUMNS || !isatty(STDOUT_FILENO))
        puts(text);
    else
        printf("%.*s...\n", SCREEN_COLUMNS - 3, text);
}

void guess_print(const Guess *guess, FILE *out) {
    char meant[GUESS_BYTES];
    fputs(guess_text(guess, meant), out);
}
