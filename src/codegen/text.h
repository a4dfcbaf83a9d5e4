/* The text of an expression, which knows how tightly it binds: parentheses follow from that, not
 * from another look at the text.
 *
 *     {"t3 + t4", TEXT_ADD}     as it is in `t5 = t3 + t4;`, (t3 + t4) as an operand */
#ifndef CARBIDE_CODEGEN_TEXT_H
#define CARBIDE_CODEGEN_TEXT_H

#include "base/buffer.h"

#include <stdbool.h>

/* Of the outermost operator, loosest first. A quotient is looser than a product: a * (b / c) is no
 * a * b / c. */
typedef enum Precedence {
    TEXT_SELECT, /* ?: and whatever else is looser than +: comparisons, bits */
    TEXT_ADD,
    TEXT_DIVIDE,
    TEXT_MULTIPLY,
    TEXT_SIGN, /* -x */
    TEXT_CAST, /* (float)x: from here on an operand of anything */
    TEXT_ATOM  /* a name, a literal, a call, an element */
} Precedence;

typedef struct Phrase {
    const char *text; /* without parentheses around all of it; NULL: there is none */
    Precedence precedence;
    bool simple; /* a name or a literal: standing twice costs nothing */
} Phrase;

static inline Phrase text_name(const char *name) { return (Phrase){name, TEXT_ATOM, true}; }
static inline Phrase text_atom(const char *text) { return (Phrase){text, TEXT_ATOM, false}; }
static inline Phrase text_of(Precedence precedence, const char *text) {
    return (Phrase){text, precedence, false};
}

/* In a place that takes what binds as tightly as least. */
static inline const char *text_in(Arena *arena, Phrase text, Precedence least) {
    return text.precedence >= least ? text.text : arena_format(arena, "(%s)", text.text);
}
static inline const char *text_operand(Arena *arena, Phrase text) {
    return text_in(arena, text, TEXT_CAST);
}

#endif
