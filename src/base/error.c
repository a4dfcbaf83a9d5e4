/* The thread's sticky error and the source line it points at.
 *
 * In: fail(CB_ERR_SHAPE, "matmul: ...") somewhere below a public call. Out: cb_error() gives
 * "photo.c:31: matmul: ...", the first one since cb_clear_error. State is thread-local; what every
 * call sets is a load or store from the thread pointer. */
#include "base/error.h"
#include "base/memory.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_BYTES = 1024 };

/* In one cache line: a store over two costs more than the rest of many a call. */
_Thread_local _Alignas(32) Site thread_site NEAR;
static _Thread_local const Place *place NEAR;
static _Thread_local cb_status first;
static _Thread_local unsigned failures;
static _Thread_local int text_start; /* of the message, behind line and path */
static _Thread_local char message[MESSAGE_BYTES];

void cb_site(const char *file, int line) { thread_site = (Site){.file = file, .line = line}; }

Site site_unpack(uint64_t packed) {
    int line = packed & 0xFFFF;
    return (Site){.file = (const char *)(uintptr_t)(packed >> 16),
                  .line = line == NO_LINE ? 0 : line};
}

bool site_same(Site a, Site b) {
    if (a.line != b.line || a.file == b.file) return a.line == b.line;
    return a.file && b.file && !strcmp(a.file, b.file);
}

void site_set(Site site) { thread_site = site; }

const Place *place_current(void) { return place; }

void place_set(const Place *other) { place = other; }

const char *cb_error(void) { return first == CB_OK ? NULL : message; }

cb_status cb_error_status(void) { return first; }

unsigned error_count(void) { return failures; }

const char *error_text(void) { return first == CB_OK ? NULL : message + text_start; }

void cb_clear_error(void) { first = CB_OK; }

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void append(int used, const char *format, va_list arguments) {
    int length = vsnprintf(message + used, (size_t)(MESSAGE_BYTES - used), format, arguments);
    if (used + length >= MESSAGE_BYTES) strcpy(message + MESSAGE_BYTES - 4, "...");
}

void site_format(Site site, char *out, size_t bytes) {
    if (!site.file)
        snprintf(out, bytes, "an unknown line");
    else if (!site.line)
        snprintf(out, bytes, "%s", base_name(site.file));
    else
        snprintf(out, bytes, "%s:%d", base_name(site.file), site.line);
}

/* "net.c:7: encoder.linear: "; its length. */
static int write_position(void) {
    char path[PLACE_BYTES] = "";
    if (thread_site.path)
        snprintf(path, sizeof path, "%s", thread_site.path);
    else if (place)
        place->write(place, path, sizeof path);
    int used = 0;
    if (thread_site.file)
        used = snprintf(message, MESSAGE_BYTES / 4, "%s:%d: ", base_name(thread_site.file),
                        thread_site.line);
    if (used >= MESSAGE_BYTES / 4) used = MESSAGE_BYTES / 4 - 1;
    if (*path) used += snprintf(message + used, PLACE_BYTES + 2, "%s: ", path);
    return used;
}

cb_status fail(cb_status status, const char *format, ...) {
    check(status < CB_OK, "fail() with status %d", (int)status);
    failures++;
    if (first != CB_OK) return status;
    first = status;
    text_start = write_position();
    va_list arguments;
    va_start(arguments, format);
    append(text_start, format, arguments);
    va_end(arguments);
    return status;
}

void fail_again(cb_status status, const char *text) {
    failures++;
    if (first != CB_OK) return;
    first = status;
    text_start = 0;
    snprintf(message, MESSAGE_BYTES, "%s", text);
}

void fail_also(const char *format, ...) {
    if (first == CB_OK) return;
    va_list arguments;
    va_start(arguments, format);
    append((int)strlen(message), format, arguments);
    va_end(arguments);
}

void fail_renamed(size_t bytes, const char *name) {
    char rest[MESSAGE_BYTES];
    memcpy(rest, message + text_start + bytes, strlen(message + text_start + bytes) + 1);
    message[text_start] = '\0';
    fail_also("%s%s", name, rest);
}

cb_status cb_fail(cb_status status, const char *text) {
    return fail(status < CB_OK ? status : CB_ERR_ARGUMENT, "%s", text ? text : "no message");
}

cb_status fail_memory(size_t bytes) {
    return fail(CB_ERR_MEMORY, "out of memory: %zu bytes could not be allocated",
                bytes ? bytes : memory_refused());
}

cb_status fail_file(const char *call, const char *path) {
    return fail(errno == ENOMEM ? CB_ERR_MEMORY : CB_ERR_IO, "%s: %s: %s", call, path,
                strerror(errno));
}

void check_failed(const char *file, int line, const char *format, ...) {
    fprintf(stderr, "carbide: %s:%d: internal error: ", base_name(file), line);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    abort();
}
