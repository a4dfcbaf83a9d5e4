/* Formulas: composites as text of the op table, parsed once per process.
 *
 *     softmax  "e = exp(x - amax(x, dim, true)); e / sum(e, dim, true)"
 *
 * In: the inputs and attributes of a call. Out: the node of the last statement, built through
 * graph_op. Names are the op's parameters and earlier statements. */
#include "graph/expand/expand.h"

#include <pthread.h>
#include <string.h>

enum { POOL_SIZE = 4096, MAX_STATEMENTS = 6 };

static Syntax pool[POOL_SIZE];         /* constant after parse_all */
static const Syntax *parsed[OP_COUNT]; /* first statement; the others follow by next */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void parse_all(void) {
    int used = 0;
    for (Op op = 0; op < OP_COUNT; op++) {
        const char *text = op_info(op)->formula;
        if (!text) continue;
        Reader reader = {
            .text = text, .at = text, .pool = pool, .used = used, .capacity = POOL_SIZE};
        parsed[op] = read_statements(&reader);
        check(parsed[op], "formula of %s: %s at '%s'", op_info(op)->name, reader.error,
              reader.error_at);
        check(read_at_end(&reader), "formula of %s: what is '%s'?", op_info(op)->name, reader.at);
        used = reader.used;
    }
}

typedef struct FormulaScope {
    Op op;
    Node *const *input;
    const Attrs *attrs;
    Word name[MAX_STATEMENTS];
    Term value[MAX_STATEMENTS];
    int statements;
} FormulaScope;

static Term number_term(cb_operand number) {
    static const TermKind kinds[] = {[CB_OPERAND_TENSOR] = TERM_NONE,
                                     [CB_OPERAND_FLOAT] = TERM_FLOAT,
                                     [CB_OPERAND_INT] = TERM_INT,
                                     [CB_OPERAND_BOOL] = TERM_BOOL};
    return (Term){.kind = kinds[number.kind], .number = number_scalar(&number)};
}

/* 0.5: what conditions ask for is the same for all that a row allows above 0. */
static Term argument_term(const Graph *graph, int input, bool freely) {
    Node *node = graph->input[input];
    Scalar some = scalar_convert((Scalar){.f = 0.5}, CB_F64, node->dtype);
    return (Term){.kind = TERM_NODE, .weak = true, .freely = freely, .node = node, .number = some};
}

static Term attribute_term(const Graph *graph, const Param *param, const Attrs *attrs) {
    if (param_may_be_input(param)) {
        int input = attr_argument(attr_varying(param, attrs->word).f);
        if (input >= 0) return argument_term(graph, input, param->varies == VARIES_FREELY);
    }
    Term term = {.kind = TERM_INT, .number.i = attrs->word[param->word]};
    check(param->type != PARAM_FLOATS, "a formula reads the list of numbers %s", param->name);
    switch (param->type) {
    case PARAM_FLOAT:
        return (Term){.kind = TERM_FLOAT, .number.f = attr_float(attrs, param->word)};
    case PARAM_NUMBER:
        return number_term(attr_number(attrs, param->word));
    case PARAM_BOOL:
        term.kind = TERM_BOOL;
        return term;
    case PARAM_DTYPE:
        term.kind = TERM_DTYPE;
        return term;
    case PARAM_DIMS:
        return (Term){.kind = TERM_DIMS, .dims = attr_dims(attrs, param->word)};
    default:
        return term;
    }
}

bool formula_parameter(const Graph *graph, Op op, Node *const *inputs, const Attrs *attrs,
                       Word name, Term *out) {
    const OpInfo *info = op_info(op);
    int input = 0;
    for (int i = 0; i < info->param_count; i++) {
        const Param *param = &info->param[i];
        bool is_input = param->word < 0;
        if (word_is(name, param->name)) {
            *out = is_input ? (Term){.kind = TERM_NODE, .node = inputs[input]}
                            : attribute_term(graph, param, attrs);
            if (is_input && !out->node) out->kind = TERM_NONE;
            return true;
        }
        input += is_input;
    }
    return false;
}

static bool lookup(const Evaluator *evaluator, Word name, Term *out) {
    const FormulaScope *scope = evaluator->user;
    for (int i = scope->statements - 1; i >= 0; i--)
        if (word_same(scope->name[i], name)) {
            *out = scope->value[i];
            return true;
        }
    return formula_parameter(evaluator->graph, scope->op, scope->input, scope->attrs, name, out);
}

Node *expand_formula(Graph *graph, Op op, Node *const *input, const Attrs *attrs) {
    pthread_once(&once, parse_all);
    FormulaScope scope = {.op = op, .input = input, .attrs = attrs};
    Evaluator evaluator = {
        .graph = graph, .lookup = lookup, .user = &scope, .formula = op_info(op)->name};
    Term term = {.kind = TERM_NONE};
    for (const Syntax *statement = parsed[op];; statement = statement->next) {
        if (!evaluate(&evaluator, statement, &term)) return NULL;
        if (!statement->next) break;
        check(scope.statements < MAX_STATEMENTS, "formula of %s is too long", op_info(op)->name);
        scope.name[scope.statements] = statement->keyword;
        scope.value[scope.statements++] = term;
    }
    return term_node(graph, &term);
}
