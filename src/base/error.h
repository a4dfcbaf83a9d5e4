/* Sticky errors of the thread, and check() for bugs.
 *
 * A failing public call records its message once and returns NULL or a status; later failures do
 * not overwrite it. The message opens with the source line that the macros of ops and calls
 * recorded, and with the path of the module whose forward runs:
 *     photo.c:31: matmul: inner sizes differ: f32[4, 3] x f32[5, 2]
 *     net.c:7: encoder.layers.3.linear: linear: ... */
#ifndef CARBIDE_BASE_ERROR_H
#define CARBIDE_BASE_ERROR_H

#include "base/near.h"
#include "carbide.h"

#include <limits.h>

typedef struct Site {
    const char *file; /* static text, NULL when unknown */
    int line;
    int checkpoint; /* of a recording: the outermost one that it is in (cb_checkpoint), 0: none;
                     * negative: what that computes again for gradients; or OF_GRADIENTS */
    const char *path; /* of the module, where one was recorded (trace.h); NULL: see Place */
} Site;

enum { OF_GRADIENTS = INT_MIN }; /* of a walk back that is not in the same checkpoint */

/* Where in a network the thread is. The layer of modules derives its own from it (nn/module.h); a
 * path is only written for errors and recordings. */
typedef struct Place Place;
struct Place {
    const Place *outer;
    void (*write)(const Place *place, char *out, size_t bytes); /* "encoder.linear" */
};
enum { PLACE_BYTES = 256 };

#undef fail /* a macro of cmocka.h, when a test includes that first */

extern _Thread_local Site thread_site NEAR __attribute__((visibility("hidden")));
static inline Site site_current(void) { return thread_site; }
/* File and line in one word, for records that are written often: addresses have 48 bits; of a line
 * above 65,534 the file alone is known. */
enum { NO_LINE = 0xFFFF };
static inline uint64_t site_pack(void) {
    int line = thread_site.line < NO_LINE ? thread_site.line : NO_LINE;
    return (uint64_t)(uintptr_t)thread_site.file << 16 | (uint64_t)line;
}
Site site_unpack(uint64_t packed);
bool site_same(Site a, Site b); /* one line of one file, whose name each library has a copy of */
void site_format(Site site, char *out, size_t bytes); /* "photo.c:31"; "photo.c" */
void site_set(Site site);
const Place *place_current(void); /* NULL: in no module */
void place_set(const Place *place);
/* Records the error at the thread's current site and returns its status. */
cb_status fail(cb_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A message that has its line: cb_error() of another thread. */
void fail_again(cb_status status, const char *text);
cb_status fail_memory(size_t bytes); /* 0: those that memory_alloc refused last */
cb_status fail_file(const char *call, const char *path); /* with errno, which says which kind */
unsigned error_count(void); /* of failures of the thread so far, recorded or behind another one */
const char *error_text(void); /* the message without line and path; NULL when there is none */
/* Another name in the place of the first bytes of that text. */
void fail_renamed(size_t bytes, const char *name);
/* Adds to the message that is recorded. */
void fail_also(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A broken invariant of ours: prints file, line and message, then aborts. */
void check_failed(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
#define check(condition, ...)                                                                      \
    ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, __VA_ARGS__))

#endif
