/* Text -> loop IR, for tests: what kernel_print writes. Index arithmetic goes through the normal
 * form, so printing and parsing an index gives the same expression. */
#include "lower/index.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct KernelParser {
    Arena *arena;
    Kernel *kernel;
    const char *text, *at;
    Map name;  /* number of a t -> expression */
    int depth; /* of parentheses */
    bool failed;
} KernelParser;

enum { MOST_DEPTH = 200, MOST_AXES = 31 /* a bit each in Expr.axes */ };

static void *stop(KernelParser *p, const char *expected) {
    int line = 1;
    for (const char *c = p->text; c < p->at; c++) line += *c == '\n';
    if (!p->failed)
        fail(CB_ERR_GRAPH, "kernel text, line %d: expected %s at '%.20s'", line, expected, p->at);
    p->failed = true;
    return NULL;
}

static void blank(KernelParser *p) {
    while (isspace((unsigned char)*p->at)) p->at++;
}

static bool accept(KernelParser *p, const char *token) {
    blank(p);
    size_t n = strlen(token);
    if (strncmp(p->at, token, n)) return false;
    if (n > 1 && isalpha((unsigned char)*token) &&
        (isalnum((unsigned char)p->at[n]) || p->at[n] == '_'))
        return false;
    p->at += n;
    return true;
}

static void expect(KernelParser *p, const char *token) {
    if (!p->failed && !accept(p, token)) stop(p, token);
}

static int64_t integer(KernelParser *p) {
    char *end;
    blank(p);
    int64_t value = strtoll(p->at, &end, 10);
    if (end == p->at || !index_writes(value)) {
        stop(p, "a number");
        return 0;
    }
    p->at = end;
    return value;
}

static int below(KernelParser *p, int limit, const char *expected) {
    int64_t value = integer(p);
    if (value >= 0 && value < limit) return (int)value;
    stop(p, expected);
    return -1;
}

static int buffer_number(KernelParser *p) {
    return below(p, length(p->kernel->buffer), "the number of a buffer");
}

static const char *word(KernelParser *p, size_t *count) {
    blank(p);
    const char *start = p->at;
    while (isalnum((unsigned char)*p->at) || *p->at == '_') p->at++;
    *count = (size_t)(p->at - start);
    if (!*count) stop(p, "a name");
    return start;
}

static cb_dtype dtype(KernelParser *p) {
    size_t count;
    const char *name = word(p, &count);
    for (int d = 0; d < CB_DTYPE_COUNT; d++)
        if (strlen(cb_dtype_name(d)) == count && !strncmp(cb_dtype_name(d), name, count)) return d;
    stop(p, "a dtype");
    return CB_F32;
}

static Expr *named(KernelParser *p) {
    Expr *e = map_get(&p->name, (uint64_t)integer(p));
    return e ? e : stop(p, "an earlier expression");
}

static Expr *index_text(KernelParser *p);

static Expr *index_pair(KernelParser *p) {
    expect(p, "(");
    Expr *a = p->failed ? NULL : index_text(p);
    blank(p);
    char sign = a && *p->at ? *p->at++ : '\0';
    Expr *b = sign ? index_text(p) : NULL;
    expect(p, ")");
    if (p->failed || !b) return stop(p, "an index");
    if (sign == '+') return index_add(p->kernel, a, b);
    if (b->op != OP_constant) return stop(p, "a constant factor or divisor");
    if (sign == '*') return index_scale(p->kernel, a, b->imm.i);
    if (b->imm.i <= 0) return stop(p, "a positive divisor");
    if (sign == '/') return index_divide(p->kernel, a, b->imm.i);
    if (sign == '%') return index_remainder(p->kernel, a, b->imm.i);
    return stop(p, "one of + * / %");
}

static Expr *index_text(KernelParser *p) {
    blank(p);
    if (isdigit((unsigned char)*p->at) || *p->at == '-') {
        int64_t value = integer(p);
        return p->failed ? NULL : expr_int(p->kernel, value);
    }
    if (*p->at == 'a') {
        p->at++;
        int axis = below(p, length(p->kernel->axis), "the number of an axis");
        return axis < 0 ? NULL : expr_axis(p->kernel, axis);
    }
    if (*p->at == 't') {
        p->at++;
        Expr *e = named(p);
        return !e || e->dtype == CB_I64 ? e : stop(p, "an expression of i64");
    }
    if (p->depth == MOST_DEPTH) return stop(p, "fewer parentheses");
    p->depth++;
    Expr *pair = index_pair(p);
    p->depth--;
    return pair;
}

static Expr *literal(KernelParser *p) {
    char *end;
    Scalar value = {.i = 0};
    double number = 0;
    if (accept(p, "true"))
        number = value.i = 1;
    else if (!accept(p, "false")) {
        number = strtod(p->at, &end);
        if (end == p->at) return stop(p, "an operand");
        value.i = strtoll(p->at, NULL, 10);
        p->at = end;
    }
    expect(p, ":");
    cb_dtype d = dtype(p);
    if (dtype_is_float(d))
        value.f = number;
    else if (d == CB_BOOL)
        value.i = number != 0;
    return p->failed ? NULL : expr_constant(p->kernel, d, value);
}

static Expr *operand(KernelParser *p) {
    blank(p);
    if (*p->at == 't' && isdigit((unsigned char)p->at[1])) return p->at++, named(p);
    if (!accept(p, "[")) return literal(p);
    Expr *e = index_text(p);
    expect(p, "]");
    return e;
}

static Op op_word(KernelParser *p) {
    size_t count;
    const char *name = word(p, &count);
    Op op = op_find(name, count);
    if (op == OP_none) stop(p, "an op");
    return op;
}

/* As op/scalar.c has it: some ops have a value on floats alone, others on integers alone. */
static bool has_value(const OpInfo *info, cb_dtype type) {
    bool integers =
        info->dtype == DTYPE_INT || info->dtype == DTYPE_SHIFT || info->dtype == DTYPE_I64;
    return dtype_is_float(type) ? !integers : info->dtype != DTYPE_FLOAT;
}

/* Whether the op can be this kind of expression, with these operands. */
static bool op_fits(Op op, bool reduce, bool scan, Expr *const *input, int count) {
    const OpInfo *info = op_info(op);
    if (reduce || scan) return info->kind == KIND_REDUCE && count == 1;
    if (op == OP_to) return count == 1;
    if (op == OP_clone || op == OP_contiguous) return false; /* their operand stands for them */
    if (!has_value(info, input[op == OP_where && count > 1]->dtype)) return false;
    bool combines = info->kind == KIND_REDUCE && count == 2;
    return (info->kind == KIND_POINTWISE && count == info->arity) || combines;
}

static Expr *expression(KernelParser *p, cb_dtype type) {
    if (accept(p, "load")) {
        expect(p, "b");
        int buffer = buffer_number(p);
        expect(p, "[");
        Expr *index = index_text(p);
        expect(p, "]");
        Expr *guard = accept(p, "if") ? operand(p) : NULL;
        return p->failed ? NULL : expr_load(p->kernel, buffer, type, index, guard);
    }
    bool reduce = accept(p, "reduce"), scan = !reduce && accept(p, "scan");
    Op op = op_word(p);
    cb_dtype to = op == OP_to ? dtype(p) : type;
    Expr *input[3];
    int count = 0;
    do {
        input[count] = p->failed ? NULL : operand(p);
        if (!input[count++]) return NULL;
    } while (count < 3 && accept(p, ","));
    if (!op_fits(op, reduce, scan, input, count)) return stop(p, "another op, or other operands");
    if (reduce) return expr_reduce(p->kernel, op, input[0]);
    if (scan) return expr_scan(p->kernel, op, input[0]);
    return op == OP_to ? expr_to(p->kernel, input[0], to)
                       : expr_op(p->kernel, op, type, input, count);
}

static void statement(KernelParser *p) {
    bool add = accept(p, "add"), last = !add && accept(p, "last");
    bool sum = !add && !last && accept(p, "sum");
    if (add || last || sum || accept(p, "store")) {
        expect(p, "b");
        int buffer = buffer_number(p);
        expect(p, "[");
        Expr *index = index_text(p);
        expect(p, "]");
        expect(p, "=");
        Expr *value = operand(p), *guard = accept(p, "if") ? operand(p) : NULL;
        if (!p->failed)
            kernel_store(p->kernel, buffer, index, value, guard,
                         add    ? STORE_ADD
                         : last ? STORE_LAST
                         : sum  ? STORE_SUM
                                : STORE_SET);
        return;
    }
    expect(p, "t");
    uint64_t number = (uint64_t)integer(p);
    expect(p, "=");
    cb_dtype type = dtype(p);
    Expr *e = p->failed ? NULL : expression(p, type);
    if (e) map_put(&p->name, number, e);
}

static void buffer_line(KernelParser *p) {
    (void)integer(p);
    expect(p, ":");
    bool shared = accept(p, "shared");
    bool inout = accept(p, "inout"), in = !inout && accept(p, "in");
    if (!inout && !in) expect(p, "out");
    cb_dtype type = dtype(p);
    expect(p, "[");
    int64_t numel = integer(p);
    expect(p, "]");
    if (p->failed) return;
    BufferRole role = inout ? BUFFER_INOUT : in ? BUFFER_IN : BUFFER_OUT;
    int number = kernel_buffer(p->kernel, type, role, numel, length(p->kernel->buffer));
    p->kernel->buffer[number].shared = shared;
}

static void header(KernelParser *p) {
    size_t count;
    expect(p, "kernel");
    const char *name = word(p, &count);
    p->kernel->name = arena_format(p->arena, "%.*s", (int)count, name);
    expect(p, "(");
    while (!p->failed && !accept(p, ")")) {
        bool inner = accept(p, "inner");
        if (!inner && p->kernel->outer_count < length(p->kernel->axis)) stop(p, "an inner axis");
        if (!inner) expect(p, "outer");
        if (length(p->kernel->axis) == MOST_AXES) stop(p, "fewer axes");
        expect(p, "a");
        (void)integer(p);
        expect(p, ":");
        int64_t size = integer(p);
        if (size < 0) stop(p, "a size");
        bool varies = accept(p, "+");
        if (!p->failed) kernel_axis(p->kernel, size, inner);
        if (!p->failed) p->kernel->axis[length(p->kernel->axis) - 1].varies = varies;
        (void)accept(p, ",");
    }
    p->kernel->form = accept(p, "row") ? FORM_ROW : FORM_TILE;
    (void)accept(p, "tile");
    if (accept(p, "split")) p->kernel->split = integer(p);
    if (accept(p, "parts")) p->kernel->parts = integer(p);
    expect(p, "{");
}

Kernel *kernel_parse(Arena *arena, const char *text) {
    KernelParser p = {.arena = arena, .kernel = kernel_new(arena), .text = text, .at = text};
    p.name = map_new(arena);
    header(&p);
    while (!p.failed && !accept(&p, "}")) {
        blank(&p);
        if (*p.at == 'b' && isdigit((unsigned char)p.at[1]))
            p.at++, buffer_line(&p);
        else
            statement(&p);
    }
    return p.failed ? NULL : p.kernel;
}
