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
    bool first = true; /* of its line */
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (column > indent && column + 1 + word > SCREEN_COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
            first = true;
        }
        column += fprintf(out, "%s%.*s", first ? "" : " ", word, text);
        first = false;
        text += word + (text[word] == ' ');
    }
    fputc('\n', out);
}

void screen_row(FILE *out, int margin, int indent, const char *left, const char *text) {
    int length = (int)strlen(left), pad = indent - margin;
    fprintf(out, "%*s", margin, "");
    if (length < pad && *text) {
        fprintf(out, "%-*s", pad, left);
    } else {
        screen_wrap(out, margin, margin + 2, left);
        if (*text) fprintf(out, "%*s", indent, "");
    }
    if (*text) screen_wrap(out, indent, indent, text);
}

void screen_error(const char *before, const char *otherwise) {
    const char *error = cb_error() ? cb_error() : otherwise, *place = strstr(error, ".c:");
    size_t file = strcspn(error, ". "), line = place ? strspn(place + 3, "0123456789") : 0;
    bool own = place == error + file && line && !strncmp(place + 3 + line, ": ", 2);
    screen_wrap(stderr, fprintf(stderr, "carbide%s%s: ", *before ? " " : "", before), 2,
                own ? place + 3 + line + 2 : error);
}

void guess_print(const Guess *guess, FILE *out) {
    char meant[GUESS_BYTES];
    fputs(guess_text(guess, meant), out);
}
