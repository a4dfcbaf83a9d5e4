/* Sticky errors of the thread, and check() for bugs.
 *
 * A failing public call records its message once and returns NULL or a status; later failures do
 * not overwrite it. The message opens with the source line that the op macros recorded:
 *     photo.c:31: matmul: inner sizes differ: f32[4, 3] x f32[5, 2] */
#ifndef CARBIDE_BASE_ERROR_H
#define CARBIDE_BASE_ERROR_H

#include "carbide.h"

typedef struct Site {
    const char *file; /* static text, NULL when unknown */
    int line;
} Site;

#undef fail /* a macro of cmocka.h, when a test includes that first */

Site site_current(void);
/* Records the error at the thread's current site and returns its status. */
cb_status fail(cb_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
cb_status fail_memory(size_t bytes);
cb_status fail_file(const char *call, const char *path); /* with errno, which says which kind */
/* Adds to the message that is recorded. */
void fail_also(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A broken invariant of ours: prints file, line and message, then aborts. */
void check_failed(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
#define check(condition, ...)                                                                      \
    ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, __VA_ARGS__))

#endif
