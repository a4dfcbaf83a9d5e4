/* printf for the few signs that most texts have. */
#ifndef CARBIDE_BASE_FORMAT_H
#define CARBIDE_BASE_FORMAT_H

#include <stdarg.h>
#include <stddef.h>

/* As vsnprintf, but that what does not fit leaves something unfinished in out: the text's length
 * is what counts then, which the caller makes room for. Ends the process at a bad format. */
size_t format_list(char *out, size_t room, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

#endif
