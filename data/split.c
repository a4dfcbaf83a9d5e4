/* GPT-2's pre-tokenizer: a text -> the words that byte pairs are merged within.
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 *     "I'm   42!"  ->  "I" "'m" "  " " 42" "!"
 *
 * Alternatives are tried in this order, and every character is in one of them, so that the words
 * follow each other without gaps. A byte that is no UTF-8 is a character of no class. */
#include "tokenizer.h"

#include "unicode_classes.h"
#include <string.h>

enum { OTHER, LETTER, NUMBER, SPACE };

/* ---- characters ----------------------------------------------------------------------------- */

static int class_of(uint32_t character) {
    size_t low = 0, high = sizeof class_starts / sizeof *class_starts;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (class_starts[middle] >> 2 <= character)
            low = middle;
        else
            high = middle;
    }
    return class_starts[low] & 3;
}

static int class_of_ascii(uint8_t byte) {
    if ((uint8_t)((byte | 32) - 'a') < 26) return LETTER;
    if ((uint8_t)(byte - '0') < 10) return NUMBER;
    return byte == ' ' || (uint8_t)(byte - 9) < 5 ? SPACE : OTHER;
}

/* The shortest form alone, no surrogates, nothing above U+10FFFF: RFC 3629. */
static int class_of_utf8(const uint8_t *at, const uint8_t *end, int *length) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int bytes = *at >= 0xf0 ? 4 : *at >= 0xe0 ? 3 : 2;
    *length = 1;
    if (*at < 0xc2 || *at > 0xf4 || end - at < bytes) return OTHER;
    uint32_t character = *at & (0xffu >> (bytes + 1));
    for (int i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80) return OTHER;
        character = character << 6 | (at[i] & 0x3fu);
    }
    bool surrogate = character >= 0xd800 && character < 0xe000;
    if (character < least[bytes] || character > 0x10ffff || surrogate) return OTHER;
    *length = bytes;
    return class_of(character);
}

static int class_at(const uint8_t *at, const uint8_t *end, int *length) {
    if (*at >= 0x80) return class_of_utf8(at, end, length);
    *length = 1;
    return class_of_ascii(*at);
}

/* ---- words ---------------------------------------------------------------------------------- */

static int contraction(const uint8_t *at, const uint8_t *end) {
    static const char *const tail[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; *at == '\'' && i < sizeof tail / sizeof *tail; i++) {
        int length = (int)strlen(tail[i]);
        if (end - at >= length && memcmp(at, tail[i], (size_t)length) == 0) return length;
    }
    return 0;
}

/* Behind all characters of a class from at on; last is where the last one of them begins. */
static const uint8_t *run_of(int class, const uint8_t *at, const uint8_t *end,
                             const uint8_t **last) {
    for (int length; at < end && class_at(at, end, &length) == class; at += length) *last = at;
    return at;
}

size_t split_word(const uint8_t *at, size_t bytes) {
    const uint8_t *end = at + bytes, *last = at, *from = at + (*at == ' ');
    int length = contraction(at, end);
    if (length) return (size_t)length;
    int class = from < end ? class_at(from, end, &length) : SPACE;
    if (class != SPACE) return (size_t)(run_of(class, from, end, &last) - at);
    /* Of several spaces the last one is left to the word behind them. */
    const uint8_t *behind = run_of(SPACE, at, end, &last);
    return (size_t)((behind < end && last > at ? last : behind) - at);
}
