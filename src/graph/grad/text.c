/* Gradients that are texts of the op table.
 *
 *     mul      "da = g * b; db = g * a"     g: the gradient of the result; a, b: its inputs
 *     softmax  "out * (g - sum(g * out, dim, true))"     without a name: of the first input
 *
 * In: a node, the gradient of its result, which inputs want one. Out: a node each. A statement is
 * built when it is wanted, or when one that is reads its name, and once. */
#include "graph/expand/expand.h"
#include "graph/grad/grad.h"

enum { MAX_STATEMENTS = 8 };

typedef struct TextScope {
    const GradCall *call;
    const Syntax *first;
    Term value[MAX_STATEMENTS];
    bool built[MAX_STATEMENTS];
} TextScope;

const Syntax *grad_parse(Graph *graph, Op op) {
    const char *text = op_gradient(op);
    Reader reader = {.text = text, .at = text, .arena = graph->arena};
    const Syntax *first = read_statements(&reader);
    check(first && read_at_end(&reader), "the gradient of %s: %s at '%s'", op_info(op)->name,
          reader.error, reader.at);
    return first;
}

static bool lookup(const Evaluator *evaluator, Word name, Term *out) {
    TextScope *scope = evaluator->user;
    const GradCall *call = scope->call;
    bool given = word_is(name, "g");
    if (given || word_is(name, "out")) {
        *out = (Term){.kind = TERM_NODE, .node = given ? call->given : call->out};
        return true;
    }
    int i = 0;
    for (const Syntax *statement = scope->first; statement; statement = statement->next, i++) {
        if (!word_same(statement->keyword, name)) continue;
        check(i < MAX_STATEMENTS, "a gradient of more than %d statements", MAX_STATEMENTS);
        if (!scope->built[i] && !evaluate(evaluator, statement, &scope->value[i])) return false;
        scope->built[i] = true;
        *out = scope->value[i];
        return true;
    }
    return formula_parameter(evaluator->graph, call->node->op, call->node->input, call->node->attrs,
                             name, out);
}

/* The statement of this input; NULL: it has no gradient. */
static const Syntax *statement_of(const Syntax *first, const char *input, bool is_first) {
    for (const Syntax *s = first; s; s = s->next) {
        Word name = s->keyword;
        if (name.length > 1 && name.text[0] == 'd' &&
            word_is((Word){name.text + 1, name.length - 1}, input))
            return s;
    }
    return is_first && !first->keyword.length ? first : NULL;
}

/* A number is the same for all elements, and 0 none. */
static Node *result_of(Graph *graph, const Term *term) {
    bool zero = term->kind == TERM_INT && term->number.i == 0;
    return zero ? NULL : term_node(graph, term);
}

static const char *input_name(Op op, int k) {
    const Param *param = op_info(op)->param;
    while (param->word >= 0 || k-- > 0) param++;
    return param->name;
}

bool grad_text(const GradCall *call, const Syntax *text, bool *stated) {
    Op op = call->node->op;
    TextScope scope = {.call = call, .first = text};
    Evaluator evaluator = {
        .graph = call->graph, .lookup = lookup, .user = &scope, .formula = op_info(op)->name};
    for (int k = 0; k < call->node->input_count; k++) {
        if (!call->wanted[k]) continue;
        const Syntax *statement = statement_of(text, input_name(op, k), k == 0);
        Term term;
        stated[k] = statement != NULL;
        if (!statement) continue;
        if (!evaluate(&evaluator, statement, &term)) return false;
        call->result[k] = result_of(call->graph, &term);
    }
    return true;
}
