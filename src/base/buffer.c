/* The string builder of every printer and renderer.
 *
 * In: pieces of text. Out: one NUL-terminated text in the arena. Numbers print the same in every
 * locale: put_double(out, 0.1) puts "0.1", never "0,1", since generated C goes through here. */
#include "base/buffer.h"
#include "base/format.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 240, MOST_DIGITS = 17 };

Buffer buffer_new(Arena *arena) { return (Buffer){.arena = arena}; }

/* Room for `extra` more characters and the NUL. */
static char *reserve(Buffer *out, size_t extra) {
    size_t needed = out->length + extra + 1;
    if (needed > out->capacity) {
        size_t capacity = out->capacity ? out->capacity : FIRST_CAPACITY;
        while (capacity < needed) capacity *= 2;
        char *text = arena_alloc(out->arena, capacity);
        if (out->length) memcpy(text, out->text, out->length);
        text[out->length] = '\0';
        out->text = text;
        out->capacity = capacity;
    }
    return out->text + out->length;
}

void put_bytes(Buffer *out, const char *bytes, size_t count) {
    char *end = reserve(out, count);
    if (count) memcpy(end, bytes, count);
    end[count] = '\0';
    out->length += count;
}

void put(Buffer *out, const char *text) { put_bytes(out, text, strlen(text)); }

/* Into what room there is at first: most text is formatted once. */
void putf_list(Buffer *out, const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    size_t room = out->capacity - out->length;
    size_t length = format_list(room ? out->text + out->length : NULL, room, format, arguments);
    if (length >= room) format_list(reserve(out, length), length + 1, format, again);
    va_end(again);
    out->length += length;
}

void putf(Buffer *out, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    putf_list(out, format, arguments);
    va_end(arguments);
}

/* The fewest significant digits that read back as the value, and its decimal exponent:
 * 0.00125 -> "125", exponent -3. Returns how many. */
static int shortest_digits(double value, char *digits, int *exponent) {
    char text[40];
    for (int count = 1;; count++) {
        snprintf(text, sizeof text, "%.*e", count - 1, value);
        if (count == MOST_DIGITS || strtod(text, NULL) == value) break;
    }
    int found = 0;
    const char *at = text;
    for (; *at != 'e'; at++) /* skips the decimal point of whatever locale */
        if (*at >= '0' && *at <= '9') digits[found++] = *at;
    *exponent = atoi(at + 1);
    return found;
}

/* Fixed notation for exponents -4..15, scientific beyond, as Python's repr. */
void put_double(Buffer *out, double value) {
    if (isnan(value)) {
        put(out, "nan");
        return;
    }
    if (signbit(value)) put(out, "-");
    value = fabs(value);
    if (isinf(value)) {
        put(out, "inf");
        return;
    }
    char digits[MOST_DIGITS];
    int exponent, count = shortest_digits(value, digits, &exponent);
    if (exponent < -4 || exponent > 15) {
        put_bytes(out, digits, 1);
        if (count > 1) put(out, ".");
        put_bytes(out, digits + 1, (size_t)count - 1);
        putf(out, "e%+03d", exponent);
        return;
    }
    int whole = exponent < 0 ? 0 : exponent + 1; /* digits before the point */
    int given = whole < count ? whole : count;
    if (!whole) put(out, "0");
    put_bytes(out, digits, (size_t)given);
    for (int i = given; i < whole; i++) put(out, "0");
    put(out, ".");
    for (int i = -1; i > exponent; i--) put(out, "0");
    put_bytes(out, digits + given, (size_t)(count - given));
    if (given == count) put(out, "0");
}

void put_sizes(Buffer *out, int rank, const int64_t *sizes) {
    put(out, "[");
    for (int i = 0; i < rank; i++) putf(out, "%s%" PRId64, i ? ", " : "", sizes[i]);
    put(out, "]");
}

void put_byte_count(Buffer *out, int64_t bytes) {
    if (bytes < 10000)
        putf(out, "%lld bytes", (long long)bytes);
    else if (bytes < 10000000)
        putf(out, "%.1f KB", (double)bytes / 1e3);
    else
        putf(out, "%.1f MB", (double)bytes / 1e6);
}

void put_ms(Buffer *out, double ms) { putf(out, "%.*f", MS_DIGITS(ms), ms); }

const char *buffer_text(const Buffer *out) { return out->text ? out->text : ""; }
