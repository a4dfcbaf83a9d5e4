/* Rows of the op table as text: "K(1) / (K(1) + M(exp)(-a))" on f32 becomes
 *
 *     static inline float op_sigmoid_f32(float a) { return 1.0f / (1.0f + m_exp_f32(-a)); }
 *
 * and the m_ functions that such texts call are copied from the texts that math.h includes, section
 * by section. "//@ exp_f32: bits_f32" opens the section exp_f32, which calls
 * bits_f32. */
#include "codegen/emit.h"
#include "op/math_text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { INLINE_TOKENS = 26, MAX_SECTIONS = 512 };

const char *op_text_tokens(Op op, cb_dtype compute) {
    bool whole = !dtype_is_float(compute);
    if (op == OP_bitwise_not && compute == CB_BOOL) return "!a";
    if (op == OP_isinf && whole) return "a != a";
    if (op == OP_isnan && whole) return "a != a";
    if (op == OP_isfinite && whole) return "a == a";
    return op_info(op)->value;
}

/* bool and the narrow integers compute in i32. */
static const char *math_suffix(cb_dtype dtype) {
    bool narrow = !dtype_is_float(dtype) && dtype != CB_I64;
    return cb_dtype_name(narrow ? CB_I32 : dtype);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool is_argument(const char *start, const char *at) {
    bool alone = (at == start || !is_name(at[-1])) && !is_name(at[1]);
    return alone && *at >= 'a' && *at <= 'c' &&
           !(at > start && at[-1] == '(' && at[1] == ')' && at >= start + 2 && at[-2] == 'M');
}

static void put_literal(Buffer *out, const char *text, size_t bytes, cb_dtype dtype) {
    bool point = memchr(text, '.', bytes) || memchr(text, 'e', bytes);
    put_bytes(out, text, bytes);
    if (dtype_is_float(dtype) && !point) put(out, ".0");
    if (dtype == CB_F32) put(out, "f");
}

/* The loosest operator of the row that stands in no parentheses. */
static Precedence row_precedence(const char *tokens) {
    static const struct {
        const char *signs;
        Precedence precedence;
    } binary[] = {
        {"?<>=!&|^", TEXT_SELECT}, {"+-", TEXT_ADD}, {"/%", TEXT_DIVIDE}, {"*", TEXT_MULTIPLY}};
    Precedence loosest = TEXT_ATOM;
    int depth = 0;
    for (const char *at = tokens; *at; at++) {
        depth += (*at == '(') - (*at == ')');
        if (depth) continue;
        if (at == tokens && strchr("-!~", *at)) loosest = TEXT_SIGN;
        for (size_t i = 0; i < sizeof binary / sizeof *binary && at > tokens; i++)
            if (strchr(binary[i].signs, *at) && binary[i].precedence < loosest)
                loosest = binary[i].precedence;
    }
    return loosest;
}

Phrase op_text_expand(Arena *arena, const char *tokens, cb_dtype dtype, const Phrase *argument) {
    Buffer out = buffer_new(arena);
    for (const char *at = tokens; *at; at++) {
        bool macro =
            (*at == 'M' || *at == 'K') && at[1] == '(' && (at == tokens || !is_name(at[-1]));
        if (macro) {
            const char *open = at + 2, *close = strchr(open, ')');
            if (*at == 'M') {
                putf(&out, "m_%.*s_%s", (int)(close - open), open, math_suffix(dtype));
            } else {
                put_literal(&out, open, (size_t)(close - open), dtype);
            }
            at = close;
        } else if (is_argument(tokens, at)) {
            bool opens = at > tokens && (at[-1] == '(' || (at[-1] == ' ' && at[-2] == ','));
            bool alone = opens && (at[1] == ')' || at[1] == ','); /* within the row's own ( ) */
            Phrase text = argument[*at - 'a'];
            put(&out, alone ? text.text : text_operand(arena, text));
        } else {
            put_bytes(&out, at, 1);
        }
    }
    return text_of(row_precedence(tokens), buffer_text(&out));
}

bool op_text_inlines(Op op, cb_dtype compute, bool simple) {
    const char *tokens = op_text_tokens(op, compute);
    int uses[3] = {0};
    if (strlen(tokens) > INLINE_TOKENS) return false;
    if (!simple && (strchr(tokens, '?') || strchr(tokens, '|') || strchr(tokens, '&')))
        return false;
    for (const char *at = tokens; *at; at++)
        if (is_argument(tokens, at)) uses[*at - 'a']++;
    return simple || (uses[0] <= 1 && uses[1] <= 1 && uses[2] <= 1);
}

/* ---- sections of the math text -------------------------------------------------------------- */

typedef struct Section {
    const char *name, *needs, *body, *end;
    size_t name_bytes;
    bool wanted;
} Section;

typedef struct Library {
    int count;
    Section section[MAX_SECTIONS];
} Library;

static const char *next_line(const char *at) {
    const char *end = strchr(at, '\n');
    return end ? end + 1 : at + strlen(at);
}

static void read_sections(Library *library, const char *text) {
    Section *open = NULL;
    for (const char *at = text; *at; at = next_line(at)) {
        if (strncmp(at, "//@ ", 4)) continue;
        check(library->count < MAX_SECTIONS, "more than %d sections of math text", MAX_SECTIONS);
        if (open) open->end = at;
        open = &library->section[library->count++];
        *open = (Section){.name = at + 4, .name_bytes = strcspn(at + 4, ": \n")};
        open->needs = open->name + open->name_bytes;
        open->body = next_line(at);
        open->end = text + strlen(text);
    }
}

static Section *find_section(Library *library, const char *name, size_t bytes) {
    for (int i = 0; i < library->count; i++) {
        Section *section = &library->section[i];
        if (section->name_bytes == bytes && !memcmp(section->name, name, bytes)) return section;
    }
    check(false, "no section %.*s in the math text", (int)bytes, name);
    return NULL;
}

/* Marks the section and what it calls, to any depth. */
static void want(Library *library, const char *name, size_t bytes) {
    Section *section = find_section(library, name, bytes);
    if (section->wanted) return;
    section->wanted = true;
    const char *at = section->needs;
    while (at += strspn(at, ":, "), at < section->body && *at != '\n') {
        size_t length_of_name = strcspn(at, ", \n");
        want(library, at, length_of_name);
        at += length_of_name;
    }
}

/* What the M(...) of one row call. */
static void want_tokens(Library *library, const char *tokens, cb_dtype dtype) {
    for (const char *at = strstr(tokens, "M("); at; at = strstr(at + 2, "M(")) {
        char name[64];
        int bytes = (int)strcspn(at + 2, ")");
        if (!strncmp(at + 2, "infinity", 8))
            snprintf(name, sizeof name, "limits");
        else
            snprintf(name, sizeof name, "%.*s_%s", bytes, at + 2, math_suffix(dtype));
        want(library, name, strlen(name));
    }
}

static void want_half(Library *library, const char *direction, cb_dtype half) {
    char name[64];
    int bytes = snprintf(name, sizeof name, "%s_%s_f32", direction, cb_dtype_name(half));
    want(library, name, (size_t)bytes);
}

static void put_math(const Usage *usage, Buffer *out) {
    Library library = {0};
    read_sections(&library, math_text_int);
    read_sections(&library, math_text_f64);
    read_sections(&library, math_text_f64_angles);
    read_sections(&library, math_text_f32);
    read_sections(&library, math_text_f32_angles);
    bool any = false;
    for (Op op = 0; op < OP_COUNT; op++)
        for (cb_dtype dtype = 0; dtype < CB_DTYPE_COUNT; dtype++) {
            bool used =
                usage->function[op][dtype] || usage->math[op][dtype] || usage->apart[op][dtype];
            if (used) want_tokens(&library, op_text_tokens(op, dtype), dtype);
        }
    for (cb_dtype dtype = 0; dtype < CB_DTYPE_COUNT; dtype++) {
        if (usage->widens[dtype]) want_half(&library, "from", dtype);
        if (usage->narrows[dtype]) want_half(&library, "to", dtype);
    }
    for (int i = 0; i < library.count; i++) any |= library.section[i].wanted;
    if (any) want(&library, "prelude", strlen("prelude"));
    for (int i = 0; i < library.count; i++) {
        const Section *section = &library.section[i];
        if (section->wanted) put_bytes(out, section->body, (size_t)(section->end - section->body));
    }
}

/* ---- op functions ------------------------------------------------------------------------ */

static void put_function(Op op, cb_dtype dtype, const Target *target, const char *qualifier,
                         const char *prefix, Buffer *out) {
    const Phrase names[3] = {text_name("a"), text_name("b"), text_name("c")};
    const OpInfo *info = op_info(op);
    bool is_bool = info->dtype == DTYPE_BOOL || info->dtype == DTYPE_LOGICAL;
    int arity = info->kind == KIND_REDUCE ? 2 : info->arity;
    putf(out, "%s %s %s_%s_%s(", qualifier, target->type[is_bool ? CB_BOOL : dtype], prefix,
         info->name, cb_dtype_name(dtype));
    for (int i = 0; i < arity; i++) {
        const char *type = target->type[op == OP_where && i == 0 ? CB_BOOL : dtype];
        putf(out, i ? ", %s %s" : "%s %s", type, names[i].text);
    }
    const char *tokens = op_text_tokens(op, dtype);
    putf(out, ") { return %s; }\n", op_text_expand(out->arena, tokens, dtype, names).text);
}

void op_text_functions(const Usage *usage, const Target *target, Buffer *out) {
    put_math(usage, out);
    for (Op op = 0; op < OP_COUNT; op++)
        for (cb_dtype dtype = 0; dtype < CB_DTYPE_COUNT; dtype++) {
            if (usage->function[op][dtype])
                put_function(op, dtype, target, target->function, "op", out);
            if (usage->apart[op][dtype])
                put_function(op, dtype, target, target->apart, "apart", out);
        }
}
