/* Pass rewrite: folding, structure and the rules of rules.def, to a fixed point.
 * needs primitive ops; keeps them; breaks nothing.
 *
 *     relu(relu(mul(x, 1)))  ->  relu(x)
 *
 * The rules are read into syntax trees once per process. Nodes are visited inputs first, so that a
 * node's inputs are in normal form when it is looked at; what a rule builds is brought to normal
 * form node by node as it is built, as LuaJIT's FOLD does. One visit per node therefore reaches the
 * fixed point, in linear time: the normal form of every node is remembered.
 *
 * The result keeps the root's dtype, and its sizes: where the right side is smaller, it is
 * expanded. */
#include "graph/rewrite.h"

#include "base/option.h"
#include "graph/node.h"
#include "graph/syntax.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

/* Twice k is a number of its dtype. */
static bool doubles(const Node *k) {
    Scalar twice = scalar_convert((Scalar){.f = 2 * node_constant(k).f}, CB_F64, k->dtype);
    return isfinite(twice.f);
}

enum {
    BOOL = DOMAIN_BOOL,
    INT = DOMAIN_INT,
    FLOAT = DOMAIN_FLOAT,
    ROUNDS = DOMAIN_ROUNDS,
    CANCELS = DOMAIN_CANCELS,
    NUMBER = INT | FLOAT,
    ANY = BOOL | INT | FLOAT
};

static const Rule rules[] = {
#define RULE(text, domain) {text, domain, NULL},
#define RULE_IF(text, domain, guard) {text, domain, guard},
#include "graph/rules.def"
#undef RULE
#undef RULE_IF
};

enum { RULE_COUNT = sizeof rules / sizeof *rules, POOL_SIZE = 16 * RULE_COUNT, MAX_ROUNDS = 64 };

int rule_count(void) { return RULE_COUNT; }
const Rule *rule_at(int number) { return &rules[number]; }

/* ---- reading the rules -------------------------------------------------------------------- */

typedef struct Parsed {
    const Syntax *left, *right;
    int next; /* rule with the same root op; -1: none */
} Parsed;

static Syntax pool[POOL_SIZE]; /* these three are constant after parse_rules */
static Parsed parsed[RULE_COUNT];
static int bucket[OP_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void parse_rules(void) {
    int used = 0;
    for (int op = 0; op < OP_COUNT; op++) bucket[op] = -1;
    for (int i = RULE_COUNT - 1; i >= 0; i--) { /* so that buckets are in the order of the file */
        const char *text = rules[i].text;
        Reader reader = {
            .text = text, .at = text, .pool = pool, .used = used, .capacity = POOL_SIZE};
        parsed[i].left = read_expression(&reader);
        check(parsed[i].left && read_expect(&reader, "->"), "rule '%s': %s", text, reader.error);
        parsed[i].right = read_expression(&reader);
        check(parsed[i].right && read_at_end(&reader), "rule '%s': %s", text, reader.error);
        check(parsed[i].left->kind == SYNTAX_CALL && parsed[i].left->op, "rule '%s': no op", text);
        parsed[i].next = bucket[parsed[i].left->op];
        bucket[parsed[i].left->op] = i;
        used = reader.used;
    }
}

/* ---- matching ----------------------------------------------------------------------------- */

enum { X, Y, Z, C, K, L, VARIABLES };
typedef struct RuleMatch {
    Node *bound[VARIABLES];
} RuleMatch;

static int variable(const Syntax *name) {
    static const char letters[] = "xyzckl";
    const char *found = strchr(letters, name->name.text[0]);
    check(found && name->name.length == 1, "rule: what is '%.*s'?", name->name.length,
          name->name.text);
    return (int)(found - letters);
}

static bool match_variable(const Syntax *pattern, Node *node, RuleMatch *match) {
    int which = variable(pattern);
    if (which == K || which == L) node = node_uniform(node);
    if (!node || (which == C && node->dtype != CB_BOOL)) return false;
    if (match->bound[which]) return match->bound[which] == node;
    match->bound[which] = node;
    return true;
}

static bool match_number(const Syntax *pattern, Node *node) {
    const Node *constant = node_uniform(node);
    if (!constant) return false;
    if (pattern->kind == SYNTAX_BOOL)
        return constant->dtype == CB_BOOL && node_constant(constant).i == pattern->value.i;
    double wanted = pattern->kind == SYNTAX_FLOAT ? pattern->value.f : (double)pattern->value.i;
    return node_is_number(constant, wanted);
}

static bool match_node(const Syntax *pattern, Node *node, RuleMatch *match);

static bool match_inputs(const Syntax *pattern, Node *node, RuleMatch *match) {
    const Syntax *operand = pattern->child;
    for (int i = 0; i < node->input_count; i++, operand = operand->next)
        if (!match_node(operand, node->input[i], match)) return false;
    return true;
}

static bool match_node(const Syntax *pattern, Node *node, RuleMatch *match) {
    if (pattern->kind == SYNTAX_NAME) return match_variable(pattern, node, match);
    if (pattern->kind != SYNTAX_CALL) return match_number(pattern, node);
    if (pattern->op != node->op) return false;
    RuleMatch before = *match;
    if (match_inputs(pattern, node, match)) return true;
    *match = before;
    if (!(op_info(pattern->op)->flags & COMMUTES)) return false;
    return match_node(pattern->child, node->input[1], match) &&
           match_node(pattern->child->next, node->input[0], match);
}

/* With the option precise halves are rounded after every op: of the steps of another form, too. */
static bool in_domain(int domain, const Node *node, bool precise) {
    cb_dtype dtype = node->dtype;
    bool half = dtype_is_half(dtype);
    if (half && domain & (ROUNDS | CANCELS) && precise) return false;
    int kind = dtype_is_float(dtype) ? DOMAIN_FLOAT : dtype == CB_BOOL ? DOMAIN_BOOL : DOMAIN_INT;
    return domain & kind;
}

static bool match_rule(int number, Node *node, bool precise, RuleMatch *match) {
    *match = (RuleMatch){{NULL}};
    if (!match_node(parsed[number].left, node, match)) return false;
    const Node *x = match->bound[X] ? match->bound[X] : match->bound[Y];
    const Rule *rule = &rules[number];
    return in_domain(rule->domain, x, precise) && (!rule->guard || rule->guard(match->bound[K]));
}

/* ---- building ----------------------------------------------------------------------------- */

typedef struct Rewriter {
    Graph *graph;
    Budget *budget;
    Node **normal; /* vec by id: the normal form, NULL when unknown */
    bool fold;     /* the pass fold is not switched off */
} Rewriter;

static Node *normalize(Rewriter *rewriter, Node *node);

static Node *literal(Graph *graph, const Syntax *number) {
    cb_dtype dtype = number->kind == SYNTAX_FLOAT ? CB_F64
                     : number->kind == SYNTAX_INT ? CB_I64
                                                  : CB_BOOL;
    return graph_constant(graph, dtype, number->value);
}

static Node *build(Rewriter *rewriter, const Syntax *right, const RuleMatch *match) {
    Graph *graph = rewriter->graph;
    if (right->kind == SYNTAX_NAME) return match->bound[variable(right)];
    if (right->kind != SYNTAX_CALL) return literal(graph, right);
    Node *input[NODE_MAX_INPUTS] = {NULL};
    bool numbers[NODE_MAX_INPUTS] = {false}, constant = true;
    int count = 0;
    for (const Syntax *s = right->child; s; s = s->next, count++) {
        input[count] = build(rewriter, s, match);
        numbers[count] = s->kind == SYNTAX_INT || s->kind == SYNTAX_FLOAT || s->kind == SYNTAX_BOOL;
        constant &= input[count]->op == OP_constant;
    }
    Node *node = graph_op(graph, right->op, input, count, NULL, numbers);
    check(node, "a rule builds %s, which fails: %s", op_info(right->op)->name, cb_error());
    return constant ? fold_node(graph, node) : normalize(rewriter, node);
}

static Node *apply_rules(Rewriter *rewriter, Node *node) {
    RuleMatch match;
    for (int i = bucket[node->op]; i >= 0; i = parsed[i].next) {
        if (!match_rule(i, node, rewriter->graph->ambient.precise, &match)) continue;
        if (!budget_spend(rewriter->budget)) return node;
        Node *built = build(rewriter, parsed[i].right, &match);
        if (built->op == OP_constant) built = node_convert(rewriter->graph, built, node->dtype);
        check(built->dtype == node->dtype, "the rule '%s' changes the dtype", rules[i].text);
        return node_expand_to(rewriter->graph, built, node->rank, node->size);
    }
    return node;
}

static Node *step(Rewriter *rewriter, Node *node) {
    Node *next = rewriter->fold ? fold_node(rewriter->graph, node) : node;
    if (next == node) next = simplify_node(rewriter->graph, node);
    if (next != node) return budget_spend(rewriter->budget) ? next : node;
    return apply_rules(rewriter, node);
}

static Node *known(const Rewriter *rewriter, const Node *node) {
    return (int)node->id < length(rewriter->normal) ? rewriter->normal[node->id] : NULL;
}

static void remember(Rewriter *rewriter, const Node *node, Node *normal) {
    while (length(rewriter->normal) <= (int)node->id)
        push(rewriter->graph->arena, rewriter->normal, NULL);
    rewriter->normal[node->id] = normal;
}

/* What fold and simplify build may stand on new nodes: those come first. */
static Node *normalize_inputs(Rewriter *rewriter, Node *node) {
    Node *input[NODE_MAX_INPUTS];
    for (int i = 0; i < node->input_count; i++) {
        input[i] = known(rewriter, node->input[i]);
        if (!input[i]) input[i] = normalize(rewriter, node->input[i]);
    }
    return graph_with_inputs(rewriter->graph, node, input);
}

static Node *normalize(Rewriter *rewriter, Node *node) {
    Node *now = node;
    for (int round = 0; round < MAX_ROUNDS; round++) {
        Node *found = known(rewriter, now);
        if (found) {
            now = found;
            break;
        }
        Node *next = step(rewriter, now);
        if (next == now) break;
        now = normalize_inputs(rewriter, next);
    }
    remember(rewriter, node, now);
    remember(rewriter, now, now);
    return now;
}

static Node *rewrite_node(Graph *graph, Node *node, void *user) {
    (void)graph;
    return normalize(user, node);
}

void pass_rewrite(Graph *graph, Budget *budget) {
    pthread_once(&once, parse_rules);
    Rewriter rewriter = {graph, budget, NULL, !option_lists(OPTION_skip, "fold")};
    graph_rewrite(graph, rewrite_node, &rewriter);
}
