/* The expression parser: recursive descent, one function per precedence.
 *
 *     comparison: sum [(== != < <= > >=) sum]
 *     sum:        product {(+ -) product}
 *     product:    unary {(* /) unary}
 *     unary:      "-" unary | primary
 *     primary:    number | name | name "(" arguments ")" | "[" elements "]" | "(" comparison ")"
 *
 * Nesting is bounded, so no text can exhaust the stack. Numbers read the same in every locale. */
#include "graph/syntax.h"
#include "op/custom.h"

#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 200, LONGEST_NUMBER = 64 };

bool word_is(Word word, const char *text) {
    return (size_t)word.length == strlen(text) && !memcmp(word.text, text, (size_t)word.length);
}

bool word_same(Word a, Word b) {
    return a.length == b.length && !memcmp(a.text, b.text, (size_t)a.length);
}

void reader_error(Reader *reader, const char *format, ...) {
    if (reader->error_at) return;
    reader->error_at = reader->at;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->error, sizeof reader->error, format, arguments);
    va_end(arguments);
}

void text_position(const char *text, const char *at, int *line, int *column) {
    *line = 1;
    const char *start = text;
    for (const char *c = text; c < at; c++)
        if (*c == '\n') {
            (*line)++;
            start = c + 1;
        }
    *column = (int)(at - start) + 1;
}

void reader_fail(const Reader *reader) {
    int line, column;
    text_position(reader->text, reader->error_at, &line, &column);
    int shown = (int)strcspn(reader->error_at, " \t\r\n");
    if (shown > 24) shown = 24;
    if (!shown)
        fail(CB_ERR_GRAPH, "line %d, column %d: %s, found the end", line, column, reader->error);
    else
        fail(CB_ERR_GRAPH, "line %d, column %d: %s, found '%.*s'", line, column, reader->error,
             shown, reader->error_at);
}

/* ---- tokens ------------------------------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static void skip_space(Reader *reader) {
    for (;;) {
        while (*reader->at && strchr(" \t\r\n", *reader->at)) reader->at++;
        if (*reader->at != '#') return;
        while (*reader->at && *reader->at != '\n') reader->at++;
    }
}

bool read_at_end(Reader *reader) {
    skip_space(reader);
    return !*reader->at;
}

bool read_token(Reader *reader, const char *token) {
    skip_space(reader);
    size_t count = strlen(token);
    if (strncmp(reader->at, token, count)) return false;
    char after = reader->at[count];
    if (is_letter(token[0]) && (is_letter(after) || is_digit(after))) return false;
    reader->at += count;
    return true;
}

bool read_expect(Reader *reader, const char *token) {
    if (read_token(reader, token)) return true;
    reader_error(reader, "expected '%s'", token);
    return false;
}

bool read_name(Reader *reader, Word *name) {
    skip_space(reader);
    const char *end = reader->at;
    if (!is_letter(*end)) return false;
    while (is_letter(*end) || is_digit(*end)) end++;
    *name = (Word){reader->at, (int)(end - reader->at)};
    reader->at = end;
    return true;
}

bool read_int(Reader *reader, int64_t *value) {
    skip_space(reader);
    if (!is_digit(*reader->at)) return false;
    char *end;
    *value = strtoll(reader->at, &end, 10);
    reader->at = end;
    return true;
}

static Syntax *fresh(Reader *reader, SyntaxKind kind, const char *at) {
    Syntax *syntax;
    if (reader->used < reader->capacity) {
        syntax = &reader->pool[reader->used++];
        memset(syntax, 0, sizeof *syntax);
    } else {
        check(reader->arena, "the syntax pool is full at '%.40s'", at);
        syntax = arena_zalloc(reader->arena, sizeof *syntax);
    }
    syntax->kind = kind;
    syntax->at = at;
    return syntax;
}

/* ---- primaries ---------------------------------------------------------------------------- */

/* strtod with a point, whatever the locale's is. */
static double to_double(const char *digits, int count) {
    char copy[LONGEST_NUMBER + MB_LEN_MAX];
    const char *point = localeconv()->decimal_point;
    int used = 0;
    for (int i = 0; i < count; i++) {
        if (digits[i] != '.')
            copy[used++] = digits[i];
        else
            for (const char *p = point; *p; p++) copy[used++] = *p;
    }
    copy[used] = '\0';
    return strtod(copy, NULL);
}

static const char *skip_digits(const char *at) {
    while (is_digit(*at)) at++;
    return at;
}

/* The reader stands on a digit, or on a minus in front of one. */
static Syntax *read_number(Reader *reader) {
    const char *start = reader->at;
    const char *end = skip_digits(start + (*start == '-'));
    bool is_float = *end == '.';
    if (is_float) end = skip_digits(end + 1);
    if ((*end == 'e' || *end == 'E') &&
        (is_digit(end[1]) || ((end[1] == '-' || end[1] == '+') && is_digit(end[2])))) {
        end = skip_digits(end + 2);
        is_float = true;
    }
    Syntax *syntax = fresh(reader, is_float ? SYNTAX_FLOAT : SYNTAX_INT, start);
    if (end - start > LONGEST_NUMBER) {
        reader_error(reader, "expected a shorter number");
        return NULL;
    }
    if (is_float)
        syntax->value.f = to_double(start, (int)(end - start));
    else
        syntax->value.i = strtoll(start, NULL, 10);
    reader->at = end;
    return syntax;
}

static Syntax *deeper(Reader *reader, Syntax *(*read)(Reader *)) {
    if (++reader->depth > DEEPEST) {
        reader_error(reader, "expected fewer than %d nested expressions", DEEPEST);
        return NULL;
    }
    Syntax *syntax = read(reader);
    reader->depth--;
    return syntax;
}

static Syntax *read_argument(Reader *reader) {
    Word keyword;
    const char *start = reader->at;
    bool named = read_name(reader, &keyword);
    if (named) {
        skip_space(reader);
        named = reader->at[0] == '=' && reader->at[1] != '=';
    }
    if (named)
        reader->at++;
    else
        reader->at = start;
    Syntax *value = deeper(reader, read_expression);
    if (value && named) value->keyword = keyword;
    return value;
}

/* The opening bracket is read; fills child. */
static bool read_arguments(Reader *reader, Syntax *owner, const char *close) {
    Syntax **tail = &owner->child;
    if (read_token(reader, close)) return true;
    for (;;) {
        Syntax *argument = read_argument(reader);
        if (!argument) return false;
        *tail = argument;
        tail = &argument->next;
        if (read_token(reader, close)) return true;
        if (read_token(reader, ",")) continue;
        reader_error(reader, "expected ',' or '%s'", close);
        return false;
    }
}

static Syntax *literal(Reader *reader, Word name) {
    Syntax *syntax = fresh(reader, SYNTAX_NAME, name.text);
    bool is_true = word_is(name, "true");
    if (is_true || word_is(name, "false")) {
        syntax->kind = SYNTAX_BOOL;
        syntax->value.i = is_true;
    } else if (word_is(name, "inf") || word_is(name, "nan")) {
        syntax->kind = SYNTAX_FLOAT;
        syntax->value.f = name.text[0] == 'i' ? (double)INFINITY : (double)NAN;
    } else {
        syntax->name = name;
    }
    return syntax;
}

/* "library.operation", of which a name is the beginning. */
static void read_rest(Reader *reader, Word *name) {
    while (reader->at[0] == '.' && is_letter(reader->at[1]))
        for (reader->at++; is_letter(*reader->at) || is_digit(*reader->at);) reader->at++;
    name->length = (int)(reader->at - name->text);
}

static Op find_op(Word name) {
    size_t length = (size_t)name.length;
    Op op = op_find(name.text, length);
    return op == OP_none && custom_find(name.text, length) != CUSTOM_NONE ? OP_custom : op;
}

static Syntax *read_primary(Reader *reader) {
    Word name;
    skip_space(reader);
    const char *start = reader->at;
    if (is_digit(*start)) return read_number(reader);
    if (read_token(reader, "(")) {
        Syntax *inside = deeper(reader, read_expression);
        return inside && read_expect(reader, ")") ? inside : NULL;
    }
    if (read_token(reader, "[")) {
        Syntax *list = fresh(reader, SYNTAX_LIST, start);
        return read_arguments(reader, list, "]") ? list : NULL;
    }
    if (!read_name(reader, &name)) {
        reader_error(reader, "expected an operand");
        return NULL;
    }
    read_rest(reader, &name);
    if (!read_token(reader, "(")) return literal(reader, name);
    Syntax *call = fresh(reader, SYNTAX_CALL, start);
    call->name = name;
    call->op = find_op(name);
    return read_arguments(reader, call, ")") ? call : NULL;
}

/* ---- operators ---------------------------------------------------------------------------- */

static Syntax *make_call(Reader *reader, Op op, const char *at, Syntax *left, Syntax *right) {
    Syntax *call = fresh(reader, SYNTAX_CALL, at);
    const char *name = op_info(op)->name;
    call->op = op;
    call->name = (Word){name, (int)strlen(name)};
    call->child = left;
    left->next = right;
    return call;
}

static Syntax *read_unary(Reader *reader) {
    skip_space(reader);
    const char *start = reader->at;
    if (*start != '-') return read_primary(reader);
    if (is_digit(start[1])) return read_number(reader);
    reader->at++;
    Syntax *operand = deeper(reader, read_unary);
    if (!operand) return NULL;
    if (operand->kind == SYNTAX_FLOAT) {
        operand->value.f = -operand->value.f;
        return operand;
    }
    return make_call(reader, OP_neg, start, operand, NULL);
}

typedef struct Operator {
    const char *token;
    Op op;
} Operator;

static Op read_operator(Reader *reader, const Operator *operators) {
    skip_space(reader);
    if (!strncmp(reader->at, "->", 2)) return OP_none; /* the arrow of a rule */
    for (; operators->token; operators++)
        if (read_token(reader, operators->token)) return operators->op;
    return OP_none;
}

static Syntax *read_chain(Reader *reader, const Operator *operators, Syntax *(*operand)(Reader *)) {
    skip_space(reader);
    const char *start = reader->at;
    Syntax *left = operand(reader);
    while (left) {
        Op op = read_operator(reader, operators);
        if (op == OP_none) break;
        Syntax *right = operand(reader);
        left = right ? make_call(reader, op, start, left, right) : NULL;
    }
    return left;
}

static Syntax *read_product(Reader *reader) {
    static const Operator operators[] = {{"*", OP_mul}, {"/", OP_div}, {NULL, OP_none}};
    return read_chain(reader, operators, read_unary);
}

static Syntax *read_sum(Reader *reader) {
    static const Operator operators[] = {{"+", OP_add}, {"-", OP_sub}, {NULL, OP_none}};
    return read_chain(reader, operators, read_product);
}

Syntax *read_expression(Reader *reader) {
    static const Operator operators[] = {{"==", OP_eq},  {"!=", OP_ne}, {"<=", OP_le},
                                         {">=", OP_ge},  {"<", OP_lt},  {">", OP_gt},
                                         {NULL, OP_none}};
    skip_space(reader);
    const char *start = reader->at;
    Syntax *left = read_sum(reader);
    if (!left) return NULL;
    Op op = read_operator(reader, operators);
    if (op == OP_none) return left;
    Syntax *right = read_sum(reader);
    return right ? make_call(reader, op, start, left, right) : NULL;
}

/* ---- statements --------------------------------------------------------------------------- */

static Syntax *read_statement(Reader *reader) {
    Word name = {NULL, 0};
    const char *start = reader->at;
    bool named = read_name(reader, &name) && !read_token(reader, "==") && read_token(reader, "=");
    if (!named) reader->at = start;
    Syntax *value = read_expression(reader);
    if (value) value->keyword = named ? name : (Word){NULL, 0};
    return value;
}

Syntax *read_statements(Reader *reader) {
    Syntax *first = NULL, **tail = &first;
    do {
        Syntax *statement = read_statement(reader);
        if (!statement) return NULL;
        *tail = statement;
        tail = &statement->next;
    } while (read_token(reader, ";"));
    return first;
}
