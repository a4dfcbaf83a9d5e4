/* Every rewrite rule as an equation: both sides are computed for ordinary values, +-0, +-1,
 * infinities, NaN, tiny and huge ones, in every dtype of the rule's domain. And every rule must
 * fire. */
#include "graph/evaluate.h"
#include "graph/node.h"
#include "graph/rewrite.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const char letters[] = "xyzckl";
enum { VARIABLES = 6 };

static const double float_values[] = {0.0, -0.0, 1.0,   -1.0, 0.5,     2.0,       -3.75,
                                      7.0, 1e-3, 1e20,  -1e4, 1e-20,   -INFINITY, INFINITY,
                                      NAN, 3e38, -3e38, 1e30, 0x1p100, 1e-40,     -1e-45};
static const int64_t int_values[] = {0, 1, -1, 2, 3, -7, 100, -128, 127, 255, INT64_MIN, INT64_MAX};

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Whether the variable occurs: a letter that is no part of a longer word. */
static bool occurs(const char *text, char letter) {
    for (const char *c = text; *c; c++)
        if (*c == letter && (c == text || !is_letter(c[-1])) && !is_letter(c[1])) return true;
    return false;
}

typedef struct Values {
    Graph *graph;
    Node *value[VARIABLES];
} Values;

static bool lookup(const Evaluator *evaluator, Word name, Term *out) {
    const Values *values = evaluator->user;
    const char *found = name.length == 1 ? strchr(letters, name.text[0]) : NULL;
    if (!found) return false;
    *out = (Term){.kind = TERM_NODE, .node = values->value[found - letters]};
    return true;
}

/* Folds a tree of constants, inputs first. */
static Node *fold_tree(Graph *graph, Node *node) {
    Node *input[NODE_MAX_INPUTS];
    for (int i = 0; i < node->input_count; i++) input[i] = fold_tree(graph, node->input[i]);
    Node *folded = fold_node(graph, graph_with_inputs(graph, node, input));
    if (folded->op != OP_constant) fail_msg("%s does not fold", op_info(node->op)->name);
    return folded;
}

typedef struct Sides {
    const Syntax *left, *right;
} Sides;

static Sides read_rule(Arena *arena, const char *text) {
    Reader reader = {.text = text, .at = text, .arena = arena};
    Sides sides;
    sides.left = read_expression(&reader);
    assert_true(read_expect(&reader, "->"));
    sides.right = read_expression(&reader);
    return sides;
}

static Node *side(Values *values, const Syntax *syntax) {
    Evaluator evaluator = {.graph = values->graph, .lookup = lookup, .user = values};
    Term term;
    if (!evaluate(&evaluator, syntax, &term)) fail_msg("%s", cb_error());
    return term_node(values->graph, &term);
}

static int value_count(bool is_bool, cb_dtype dtype) {
    if (is_bool || dtype == CB_BOOL) return 2;
    return dtype_is_float(dtype) ? (int)(sizeof float_values / sizeof *float_values)
                                 : (int)(sizeof int_values / sizeof *int_values);
}

static Node *value_at(Graph *graph, cb_dtype dtype, int number) {
    Scalar value = {.i = dtype == CB_BOOL ? number : 0};
    if (dtype_is_float(dtype))
        value.f = float_values[number];
    else if (dtype != CB_BOOL)
        value.i = int_values[number];
    return graph_constant(graph, dtype, value);
}

/* -0 is not 0. */
static bool equal(Scalar a, Scalar b, cb_dtype dtype, const Rule *rule) {
    if (!dtype_is_float(dtype)) return a.i == b.i;
    if (a.f != a.f || b.f != b.f) return a.f != a.f && b.f != b.f;
    if (a.f == b.f) return signbit(a.f) == signbit(b.f);
    static const double epsilon[] = {
        [CB_F16] = 1e-3, [CB_BF16] = 8e-3, [CB_F32] = 1.2e-7, [CB_F64] = 2.3e-16};
    if (!(rule->domain & DOMAIN_ROUNDS)) return false;
    if (rule->domain & DOMAIN_CANCELS && fabs(a.f - b.f) <= 4 * epsilon[dtype]) return true;
    return fabs(a.f - b.f) <= 8 * epsilon[dtype] * fmax(fabs(a.f), fabs(b.f)) ||
           fmax(fabs(a.f), fabs(b.f)) < (dtype == CB_F16 ? 1e-6 : 1e-37);
}

static void compare(Values *values, const Sides *sides, const Rule *rule) {
    Node *left = fold_tree(values->graph, side(values, sides->left));
    Node *right = fold_tree(values->graph, side(values, sides->right));
    cb_dtype dtype = left->dtype;
    Scalar a = node_constant(left);
    Scalar b = scalar_convert(node_constant(right), right->dtype, compute_dtype(dtype));
    if (equal(a, b, dtype, rule)) return;
    char text[256] = "";
    for (int v = 0; v < VARIABLES; v++) {
        if (!values->value[v]) continue;
        Scalar s = node_constant(values->value[v]);
        bool is_float = dtype_is_float(values->value[v]->dtype);
        snprintf(text + strlen(text), sizeof text - strlen(text), " %c=%g", letters[v],
                 is_float ? s.f : (double)s.i);
    }
    bool is_float = dtype_is_float(dtype);
    fail_msg("%s in %s:%s gives %.17g and %.17g", rule->text,
             cb_dtype_name(values->value[0]->dtype), text, is_float ? a.f : (double)a.i,
             is_float ? b.f : (double)b.i);
}

/* Every combination of values for the variables from `variable` on. */
static void try_values(Values *values, const Sides *sides, const Rule *rule, cb_dtype dtype,
                       int variable) {
    if (variable == VARIABLES) {
        bool k_fits = !rule->guard || rule->guard(values->value[strchr(letters, 'k') - letters]);
        if (k_fits) compare(values, sides, rule);
        return;
    }
    values->value[variable] = NULL;
    char letter = letters[variable];
    if (!occurs(rule->text, letter)) {
        try_values(values, sides, rule, dtype, variable + 1);
        return;
    }
    for (int i = 0; i < value_count(letter == 'c', dtype); i++) {
        values->value[variable] = value_at(values->graph, letter == 'c' ? CB_BOOL : dtype, i);
        try_values(values, sides, rule, dtype, variable + 1);
    }
}

static int domain_of(cb_dtype dtype) {
    return dtype_is_float(dtype) ? DOMAIN_FLOAT : dtype == CB_BOOL ? DOMAIN_BOOL : DOMAIN_INT;
}

/* A literal of the rule that the dtype lacks, such as -1 in u8, cannot match there. */
static bool has_literals(const Rule *rule, cb_dtype dtype) {
    return dtype != CB_U8 || !strstr(rule->text, "-1");
}

static void test_equations(void **state) {
    (void)state;
    static const cb_dtype dtypes[] = {CB_BOOL, CB_U8,  CB_I8,  CB_I32, CB_I64,
                                      CB_BF16, CB_F16, CB_F32, CB_F64};
    for (int i = 0; i < rule_count(); i++) {
        const Rule *rule = rule_at(i);
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            if (!(rule->domain & domain_of(dtypes[d])) || !has_literals(rule, dtypes[d])) continue;
            Arena *arena = arena_new();
            Values values = {graph_new(arena), {NULL}};
            Sides sides = read_rule(arena, rule->text);
            try_values(&values, &sides, rule, dtypes[d], 0);
            arena_free(arena);
        }
    }
}

/* The optimized left side is the optimized right side, on inputs of different sizes. */
static void expect_fires(const Rule *rule, cb_dtype dtype) {
    Arena *arena = arena_new();
    Graph *graph[2] = {graph_new(arena), graph_new(arena)};
    Sides sides = read_rule(arena, rule->text);
    for (int s = 0; s < 2; s++) {
        Values values = {graph[s], {NULL}};
        for (int v = 0; v < VARIABLES; v++) {
            Meta meta = {.dtype = (int8_t)(letters[v] == 'c' ? CB_BOOL : dtype),
                         .rank = (uint8_t)(2 - v % 2),
                         .size = {3, 3}};
            bool constant = letters[v] == 'k' || letters[v] == 'l';
            values.value[v] = constant ? value_at(graph[s], dtype, letters[v] == 'k' ? 5 : 7)
                                       : graph_input(graph[s], &meta);
        }
        Node *left = side(&values, sides.left);
        Node *node = s ? node_convert(graph[s], side(&values, sides.right), left->dtype) : left;
        push(arena, graph[s]->output, node_expand_to(graph[s], node, left->rank, left->size));
        graph_optimize(graph[s], NULL);
    }
    Buffer text = buffer_new(arena);
    graph_print(graph[0], &text);
    graph_print(graph[1], &text);
    if (!graph_equal(graph[0], graph[1]))
        fail_msg("%s in %s:\n%s", rule->text, cb_dtype_name(dtype), buffer_text(&text));
    arena_free(arena);
}

static void test_rules_fire(void **state) {
    (void)state;
    for (int i = 0; i < rule_count(); i++) {
        const Rule *rule = rule_at(i);
        if (rule->domain & DOMAIN_FLOAT) expect_fires(rule, CB_F32);
        if (rule->domain & DOMAIN_INT) expect_fires(rule, CB_I32);
        if (rule->domain & DOMAIN_BOOL) expect_fires(rule, CB_BOOL);
    }
}

/* What looks true and is not: these must stay as they are. */
static void test_refused(void **state) {
    (void)state;
    static const char *const kept[] = {"x + 0.0",
                                       "x - x",
                                       "x * 0",
                                       "0 / x",
                                       "exp(log(x))",
                                       "x / x",
                                       "(x * 3) * 0.3",
                                       "logical_not(x < x * 2)",
                                       "x == x",
                                       "x / 3",
                                       "x / 7.174648137343064e-43", /* 2^-140: 1 / it is infinite */
                                       "abs(relu(x))",
                                       "maximum(x, 0)",
                                       "-(x - y)",
                                       "(x + y) - y",
                                       "(x * 1e30) * 1.2676506002282294e30",
                                       "(x * 0.5) * (y * 2)",
                                       "(x * 3) * 0.5",
                                       "(x * 0.25) * 2"};
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const char *text =
            arena_format(arena, "graph(x: f32[3], y: f32[3]) { return %s }", kept[i]);
        Graph *before = graph_parse(arena, text), *after = graph_parse(arena, text);
        assert_true(before && after);
        graph_optimize(after, NULL);
        if (!graph_equal(before, after)) fail_msg("%s was rewritten", kept[i]);
    }
    arena_free(arena);
}

/* Operands that commute are tried in both orders, each from the beginning. */
static void test_both_orders(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"-x + y", "y - x"}, {"y + -x", "y - x"}, {"maximum(y, maximum(x, y))", "maximum(x, y)"}};
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        Graph *graph[2];
        for (int s = 0; s < 2; s++) {
            graph[s] =
                graph_parse(arena, arena_format(arena, "graph(x: f32[3], y: f32[3]) { return %s }",
                                                pairs[i][s]));
            assert_non_null(graph[s]);
            graph_optimize(graph[s], NULL);
        }
        if (!graph_equal(graph[0], graph[1])) fail_msg("%s stays", pairs[i][0]);
    }
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equations),
        cmocka_unit_test(test_rules_fire),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_both_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
