/* One line on stderr that says what is going on, from the first second on. */
#ifndef CARBIDE_CLI_PROGRESS_H
#define CARBIDE_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Progress {
    bool on;    /* stderr is a terminal, or --progress */
    bool line;  /* there is a line to wipe */
    double next_ms; /* when the line changes again */
} Progress;

void progress_start(Progress *progress, bool always);
void progress_show(Progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "Compiled [=====>    ]  52/100"; shown from the first step on. */
void progress_bar(Progress *progress, const char *what, int64_t done, int64_t all);
void progress_clear(Progress *progress); /* before anything is printed */

#endif
