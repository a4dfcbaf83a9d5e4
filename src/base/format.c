/* printf for the few signs that most texts have.
 *
 * In: a format with its arguments. Out: characters. %s, %c, %d, %u and %lld without widths are put
 * here, for they are most of what writes C and names things, a thousand for each new kernel, and a
 * vsnprintf costs as much as ten of them. A text with anything else is vsnprintf's. */
#include "base/format.h"

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct FormatText {
    char *start;
    size_t room, length; /* of all, also where it does not fit */
} FormatText;

static void add(FormatText *text, const char *bytes, size_t count) {
    if (text->length + count < text->room) memcpy(text->start + text->length, bytes, count);
    text->length += count;
}

static void add_number(FormatText *text, uint64_t magnitude, bool negative) {
    char digits[20];
    size_t first = sizeof digits;
    do digits[--first] = (char)('0' + magnitude % 10);
    while (magnitude /= 10);
    if (negative) add(text, "-", 1);
    add(text, digits + first, sizeof digits - first);
}

static void add_signed(FormatText *text, int64_t value) {
    add_number(text, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, value < 0);
}

static void add_string(FormatText *text, const char *string) {
    if (!string) string = "(null)";
    add(text, string, strlen(string));
}

/* The argument of the sign behind a %; the format behind it, or NULL: it is another sign. */
static const char *add_argument(FormatText *text, const char *sign, va_list *arguments) {
    char letter = *sign;
    if (letter == 's')
        add_string(text, va_arg(*arguments, const char *));
    else if (letter == 'd')
        add_signed(text, va_arg(*arguments, int));
    else if (letter == 'u')
        add_number(text, va_arg(*arguments, unsigned), false);
    else if (letter == 'c')
        add(text, (char[]){(char)va_arg(*arguments, int)}, 1);
    else if (letter == '%')
        add(text, "%", 1);
    else if (strncmp(sign, "lld", 3) == 0)
        add_signed(text, va_arg(*arguments, long long));
    else
        return NULL;
    return sign + (letter == 'l' ? 3 : 1);
}

/* False: it has other signs. */
static bool format_plainly(FormatText *text, const char *format, va_list *arguments) {
    while (format && *format) {
        size_t plain = 0;
        while (format[plain] && format[plain] != '%') plain++;
        add(text, format, plain);
        format += plain;
        if (*format) format = add_argument(text, format + 1, arguments);
    }
    return format;
}

size_t format_list(char *out, size_t room, const char *format, va_list arguments) {
    FormatText text = {out, room, 0};
    va_list own;
    va_copy(own, arguments);
    bool plain = format_plainly(&text, format, &own);
    va_end(own);
    if (plain) {
        if (text.length < room) out[text.length] = '\0';
        return text.length;
    }
    int length = vsnprintf(out, room, format, arguments);
    check(length >= 0, "bad format '%s'", format);
    return (size_t)length;
}
