/* The progress line: written at most ten times a second, wiped before output. */
#include "progress.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum { FIRST_MS = 1000, STEP_MS = 100 };

void progress_start(Progress *progress, bool always) {
    *progress = (Progress){.on = always || isatty(STDERR_FILENO), .next_ms = clock_ms() + FIRST_MS};
}

void progress_show(Progress *progress, const char *format, ...) {
    double now = clock_ms();
    if (!progress->on || now < progress->next_ms) return;
    va_list arguments;
    va_start(arguments, format);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, format, arguments);
    fflush(stderr);
    va_end(arguments);
    progress->line = true;
    progress->next_ms = now + STEP_MS;
}

void progress_bar(Progress *progress, const char *what, int64_t done, int64_t all) {
    static const char full[] = "========================================";
    const int width = (int)sizeof full - 1, part = (int)(done * width / all);
    if (!progress->line) progress->next_ms = 0;
    progress_show(progress, "%-8s [%.*s%s%*s] %*lld/%lld", what, part, full,
                  part < width ? ">" : "", part < width ? width - part - 1 : 0, "",
                  all < 1000 ? 3 : 6, (long long)done, (long long)all);
}

void progress_clear(Progress *progress) {
    if (progress->line) fputs("\r\033[K", stderr);
    progress->line = false;
}
