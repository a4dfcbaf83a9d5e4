/* Trees of expressions that have a row of the op table to themselves: one call of a block function
 * instead of four or five on the VM, and where it pays, an own way to compute it.
 *
 *     div(mul(x, clamp_value(add(x, 3), 0, 6)), 6)  ->  hardswish_value(x)
 *
 * The trees are written as the graph's rules and the rows before them leave them. Numbers are those
 * of the dtype: 0.7071 of a tree is the f32 next to it where the kernel computes in f32. */
#include "graph/syntax.h"
#include "lower/lower.h"

#include <pthread.h>
#include <string.h>

static const char *const texts[] = {
    "(x * 0.5) * (erf(x * 0.7071067811865476) + 1) -> gelu_value(x)",
    "where(at_least_value(x, y) > z, z, at_least_value(x, y)) -> clamp_value(x, y, z)",
    "where(x < y, y, x) -> at_least_value(x, y)",
    "where(x > y, y, x) -> at_most_value(x, y)",
    "(x * clamp_value(x + 3, 0, 6)) / 6 -> hardswish_value(x)",
    "clamp_value(x + 3, 0, 6) / 6 -> hardsigmoid_value(x)",
    "where(x > 0, x, x * y) -> leaky_value(x, y)",
    "where(abs(x) <= y, 0, x) -> hardshrink_value(x, y)",
    "where(abs(x) <= y, x * 0, where(x > 0, x - y, x + y)) -> softshrink_value(x, y)",
};
enum { JOIN_COUNT = sizeof texts / sizeof *texts, POOL_SIZE = 32 * JOIN_COUNT };

typedef struct Join {
    const Syntax *left, *right;
} Join;

static Syntax pool[POOL_SIZE]; /* these are constant after read_joins */
static Join joins[JOIN_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_joins(void) {
    int used = 0;
    for (int i = 0; i < JOIN_COUNT; i++) {
        Reader reader = {
            .text = texts[i], .at = texts[i], .pool = pool, .used = used, .capacity = POOL_SIZE};
        joins[i].left = read_expression(&reader);
        bool arrow = joins[i].left && read_expect(&reader, "->");
        joins[i].right = arrow ? read_expression(&reader) : NULL;
        check(joins[i].right && read_at_end(&reader), "'%s': %s", texts[i], reader.error);
        used = reader.used;
    }
}

/* Each stands for any expression. */
static const char letters[] = "xyz";
enum { VARIABLES = sizeof letters - 1 };

typedef struct JoinMatch {
    Expr *bound[VARIABLES];
} JoinMatch;

static bool match_name(const Syntax *name, Expr *e, JoinMatch *match) {
    Expr **bound = &match->bound[strchr(letters, name->name.text[0]) - letters];
    if (*bound) return *bound == e;
    *bound = e;
    return true;
}

static bool match_number(const Syntax *number, const Expr *e) {
    if (e->op != OP_constant || !dtype_is_float(e->dtype)) return false;
    double wanted = number->kind == SYNTAX_INT ? (double)number->value.i : number->value.f;
    return e->imm.f == (e->dtype == CB_F64 ? wanted : (double)(float)wanted);
}

static bool match_expr(const Syntax *tree, Expr *e, JoinMatch *match);

static bool match_inputs(const Syntax *first, Expr *const *input, int count, JoinMatch *match) {
    for (int i = 0; i < count; i++, first = first->next)
        if (!match_expr(first, input[i], match)) return false;
    return true;
}

/* e: op over input, which need not be interned. */
static bool match_call(const Syntax *tree, Op op, Expr *const *input, int count, JoinMatch *match) {
    if (tree->op != op) return false;
    JoinMatch before = *match;
    if (match_inputs(tree->child, input, count, match)) return true;
    *match = before;
    Expr *const turned[] = {input[1], input[0]};
    return op_info(op)->flags & COMMUTES && match_inputs(tree->child, turned, 2, match);
}

static bool match_expr(const Syntax *tree, Expr *e, JoinMatch *match) {
    if (tree->kind == SYNTAX_NAME) return match_name(tree, e, match);
    if (tree->kind != SYNTAX_CALL) return match_number(tree, e);
    return e->op < OP_COUNT && match_call(tree, e->op, e->input, e->input_count, match);
}

Op expr_join(Op op, cb_dtype dtype, Expr *const *input, int input_count, Expr **joined) {
    if (!dtype_is_float(dtype)) return OP_none;
    pthread_once(&once, read_joins);
    for (int i = 0; i < JOIN_COUNT; i++) {
        JoinMatch match = {{NULL}};
        if (!match_call(joins[i].left, op, input, input_count, &match)) continue;
        const Syntax *operand = joins[i].right->child;
        for (int k = 0; operand; k++, operand = operand->next)
            joined[k] = match.bound[strchr(letters, operand->name.text[0]) - letters];
        return joins[i].right->op;
    }
    return OP_none;
}
