/* String builder of every printer and renderer. Lives in an arena. */
#ifndef CARBIDE_BASE_BUFFER_H
#define CARBIDE_BASE_BUFFER_H

#include "base/arena.h"
#include <stdarg.h>
#include <stdint.h>

typedef struct Buffer {
    Arena *arena;
    char *text; /* NUL-terminated once anything was put */
    size_t length, capacity;
} Buffer;

Buffer buffer_new(Arena *arena);
void put(Buffer *out, const char *text);
void put_bytes(Buffer *out, const char *bytes, size_t count);
void putf(Buffer *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void putf_list(Buffer *out, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));
void put_double(Buffer *out, double value); /* shortest text that reads back, as Python's repr */
void put_sizes(Buffer *out, int rank, const int64_t *sizes); /* [2, 3] */
static inline const char *plural(int64_t count) { return count == 1 ? "" : "s"; } /* "%d op%s" */
void put_byte_count(Buffer *out, int64_t bytes);             /* 1.5 KB */
/* 12.345, 0.00045: calls of tiny functions, too */
#define MS_DIGITS(ms) ((ms) < 0.1 ? 5 : 3)
void put_ms(Buffer *out, double ms);
const char *buffer_text(const Buffer *out);                  /* "" when nothing was put */

#endif
