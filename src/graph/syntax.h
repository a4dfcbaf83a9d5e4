/* Expressions as text, read into trees: what graph text, formulas and rewrite rules share.
 *
 *     "e / sum(e, dim, true)"  ->  call div(name e, call sum(name e, name dim, bool true))
 *
 * Operators are calls of their ops: + - * / < <= > >= == != and the unary minus, which is part of a
 * number in front of one. Names mean nothing yet: evaluate.h and rewrite.c give them meaning. */
#ifndef CARBIDE_GRAPH_SYNTAX_H
#define CARBIDE_GRAPH_SYNTAX_H

#include "base/arena.h"
#include "op/op.h"

typedef enum SyntaxKind {
    SYNTAX_INT,
    SYNTAX_FLOAT,
    SYNTAX_BOOL,
    SYNTAX_NAME,
    SYNTAX_CALL,
    SYNTAX_LIST
} SyntaxKind;

typedef struct Word { /* a piece of the text */
    const char *text;
    int length;
} Word;

typedef struct Syntax Syntax;
struct Syntax {
    SyntaxKind kind;
    Op op;                /* SYNTAX_CALL: OP_none when the table has no such op */
    Scalar value;         /* numbers */
    Word name;            /* names and calls; otherwise empty */
    Word keyword;         /* arguments given by name; the name of a statement */
    const char *at;       /* where it begins */
    Syntax *child, *next; /* operands or elements; sibling */
};

/* Reads text token by token. Nodes come from the pool, and from the arena when that is used up. */
typedef struct Reader {
    const char *text, *at;
    Syntax *pool;
    int used, capacity;
    Arena *arena; /* may be NULL: a full pool is then a bug */
    int depth;
    const char *error_at; /* NULL: no error so far */
    char error[128];      /* "expected an operand" */
} Reader;

bool word_is(Word word, const char *text);
bool word_same(Word a, Word b);

/* NULL with reader->error set. */
Syntax *read_expression(Reader *reader);
/* "name = value; name = value; value": the first, the others by next, a name as keyword. */
Syntax *read_statements(Reader *reader);
/* Skips spaces and # comments; true when the next token is this one, which is then consumed. */
bool read_token(Reader *reader, const char *token);
bool read_expect(Reader *reader, const char *token); /* records an error when it is not there */
bool read_name(Reader *reader, Word *name); /* false, consuming nothing, when it is not there */
bool read_int(Reader *reader, int64_t *value);
bool read_at_end(Reader *reader);
void reader_error(Reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Records the error as the thread's, as "line 3, column 7: expected an operand, found ')'". */
void reader_fail(const Reader *reader);
void text_position(const char *text, const char *at, int *line, int *column); /* from 1 */

#endif
