/* Gives syntax trees meaning: binds arguments to an op's parameters and builds nodes.
 *
 *     sum(e, dim, true)   with e a node, dim = [1]   ->   node sum(e, dim=[1], keepdim=true)
 *     count(x, dim) - 1   with x: f32[4, 8]          ->   the number 7
 *
 * Arguments bind by position in schema order or by name. Functions that are no ops: count(x, dim),
 * the number of elements along dim; choose(flag, p, q), which looks at one branch only;
 * constant(value, dtype). In formulas also as(number, x), the number in the dtype of x,
 * need(condition), which refuses the call, reduce(loss, reduction), and choose(input, p, q) by
 * whether an optional input is given; keep, sizes, inverse and negative are for gradients. */
#include "graph/evaluate.h"

#include "graph/call.h"
#include "op/custom.h"

#include <stdarg.h>
#include <string.h>

/* ---- terms -------------------------------------------------------------------------------- */

static bool is_plain(const Term *term) {
    return term->kind == TERM_INT || term->kind == TERM_FLOAT || term->kind == TERM_BOOL;
}

static bool is_number(const Term *term) { return is_plain(term) || term->weak; }

static cb_dtype plain_dtype(const Term *term) {
    if (term->kind == TERM_NODE) return term->node->dtype;
    return term->kind == TERM_FLOAT ? CB_F64 : term->kind == TERM_INT ? CB_I64 : CB_BOOL;
}

Node *term_node(Graph *graph, const Term *term) {
    if (term->kind == TERM_NODE) return term->node;
    return is_plain(term) ? graph_constant(graph, plain_dtype(term), term->number) : NULL;
}

static Term number_term(cb_dtype dtype, Scalar value) {
    TermKind kind = dtype_is_float(dtype) ? TERM_FLOAT : dtype == CB_BOOL ? TERM_BOOL : TERM_INT;
    return (Term){.kind = kind, .number = value};
}

__attribute__((format(printf, 3, 4))) static bool
refuse(const Evaluator *evaluator, const Syntax *syntax, const char *format, ...) {
    char text[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    check(evaluator->text, "a formula or a rule: %s", text);
    int line, column;
    text_position(evaluator->text, syntax->at, &line, &column);
    Site site = site_current();
    site_set((Site){0});
    fail(CB_ERR_GRAPH, "line %d, column %d: %s", line, column, text);
    site_set(site);
    return false;
}

/* ---- arguments ---------------------------------------------------------------------------- */

static bool find_dtype(Word name, Term *out) {
    for (cb_dtype dtype = 0; dtype < CB_DTYPE_COUNT; dtype++)
        if (word_is(name, cb_dtype_name(dtype))) {
            *out = (Term){.kind = TERM_DTYPE, .number.i = dtype};
            return true;
        }
    return false;
}

static bool evaluate_list(const Evaluator *evaluator, const Syntax *list, Term *out) {
    *out = (Term){.kind = TERM_DIMS};
    for (const Syntax *s = list->child; s; s = s->next) {
        Term element;
        if (!evaluate(evaluator, s, &element)) return false;
        if (element.kind != TERM_INT) return refuse(evaluator, s, "expected an integer");
        if (out->dims.count == CB_MAX_RANK)
            return refuse(evaluator, s, "more than %d dimensions", CB_MAX_RANK);
        out->dims.at[out->dims.count++] = element.number.i;
    }
    return true;
}

static double plain_value(const Term *term) {
    return term->kind == TERM_FLOAT ? term->number.f : (double)term->number.i;
}

/* A list of numbers, or one number. */
static bool evaluate_floats(const Evaluator *evaluator, const Syntax *syntax, Term *out) {
    *out = (Term){.kind = TERM_FLOATS};
    bool list = syntax->kind == SYNTAX_LIST;
    for (const Syntax *s = list ? syntax->child : syntax; s; s = list ? s->next : NULL) {
        Term element;
        if (!evaluate(evaluator, s, &element)) return false;
        if (!is_plain(&element)) return refuse(evaluator, s, "expected a number");
        if (out->floats.count == CB_MAX_RANK)
            return refuse(evaluator, s, "more than %d numbers", CB_MAX_RANK);
        out->floats.at[out->floats.count++] = plain_value(&element);
    }
    return true;
}

/* An argument for a parameter of this type; names of dtypes and `all` exist only where they fit. */
static bool evaluate_as(const Evaluator *evaluator, const Syntax *syntax, ParamType type,
                        Term *out) {
    if (type == PARAM_DIMS && syntax->kind == SYNTAX_NAME && word_is(syntax->name, "all")) {
        *out = (Term){.kind = TERM_DIMS, .dims.count = -1};
        return true;
    }
    if (type == PARAM_DIMS && syntax->kind == SYNTAX_NAME && word_is(syntax->name, "same")) {
        *out = (Term){.kind = TERM_DIMS, .dims = cb_dims_one(PADDING_SAME)};
        return true;
    }
    if (type == PARAM_DTYPE && syntax->kind == SYNTAX_NAME &&
        !evaluator->lookup(evaluator, syntax->name, out)) {
        if (find_dtype(syntax->name, out)) return true;
        return refuse(evaluator, syntax, "expected a dtype");
    }
    if (type == PARAM_FLOATS) return evaluate_floats(evaluator, syntax, out);
    if (!evaluate(evaluator, syntax, out)) return false;
    if (type == PARAM_DIMS && out->kind == TERM_INT) {
        out->kind = TERM_DIMS;
        out->dims = (cb_dim_list){1, {out->number.i}};
    }
    return true;
}

static const char *const type_names[] = {"a tensor",           "a tensor or none",  "an integer",
                                         "a number",           "true or false",     "a dtype",
                                         "a list of integers", "a list of numbers", "a number"};

static bool set_attribute(const Param *param, const Term *term, Attrs *attrs) {
    int64_t *word = &attrs->word[param->word];
    if (term->kind == TERM_NODE && param_may_be_input(param)) {
        bool fits = term->node->op == OP_input && !term->node->rank;
        if (fits) attr_set_argument(attrs, param, (int)term->node->attrs->word[0]);
        return fits;
    }
    switch (param->type) {
    case PARAM_NUMBER:
        if (is_plain(term))
            attr_set_number(attrs, param->word, number_from(plain_dtype(term), term->number));
        else
            attr_set_number(attrs, param->word, cb_operand_tensor(NULL));
        return is_plain(term) || term->kind == TERM_NONE;
    case PARAM_FLOAT:
        if (!is_plain(term)) return false;
        attr_set_float(attrs, param->word, plain_value(term));
        return true;
    case PARAM_FLOATS:
        attr_set_floats(attrs, param->word, term->floats); /* evaluate_as gives nothing else */
        return true;
    case PARAM_DIMS:
        if (term->kind == TERM_DIMS) attr_set_dims(attrs, param->word, term->dims);
        return term->kind == TERM_DIMS;
    case PARAM_DTYPE:
        *word = term->number.i;
        return term->kind == TERM_DTYPE;
    case PARAM_BOOL:
        *word = term->number.i != 0;
        return term->kind == TERM_BOOL || term->kind == TERM_INT;
    default:
        *word = term->number.i;
        return term->kind == TERM_INT || term->kind == TERM_BOOL;
    }
}

typedef struct Binding {
    const OpInfo *info;
    Term input[NODE_MAX_INPUTS];
    Attrs attrs;
    unsigned given; /* parameters that have an argument, as bits */
    int64_t draw;   /* -1: not given */
} Binding;

static int tensor_number(const OpInfo *info, int param) {
    int number = 0;
    for (int i = 0; i < param; i++) number += info->param[i].word < 0;
    return number;
}

static int find_param(const OpInfo *info, Word name) {
    for (int i = 0; i < info->param_count; i++)
        if (word_is(name, info->param[i].name)) return i;
    return -1;
}

static bool bind_one(const Evaluator *evaluator, const Syntax *argument, int number,
                     Binding *binding) {
    const Param *param = &binding->info->param[number];
    if (binding->given >> number & 1)
        return refuse(evaluator, argument, "%s: '%s' is given twice", binding->info->name,
                      param->name);
    binding->given |= 1u << number;
    Term term;
    if (!evaluate_as(evaluator, argument, param->type, &term)) return false;
    bool fits;
    if (param->word < 0) {
        binding->input[tensor_number(binding->info, number)] = term;
        fits = term.kind == TERM_NODE || is_plain(&term) ||
               (term.kind == TERM_NONE && param->type == PARAM_OPTIONAL_TENSOR);
    } else {
        fits = set_attribute(param, &term, &binding->attrs);
    }
    if (fits) return true;
    return refuse(evaluator, argument, "%s: expected %s for '%s'", binding->info->name,
                  type_names[param->type], param->name);
}

static bool bind_draw(const Evaluator *evaluator, const Syntax *argument, Binding *binding) {
    Term term;
    if (!evaluate(evaluator, argument, &term)) return false;
    if (term.kind != TERM_INT || term.number.i < 0 || term.number.i > INT32_MAX - 1)
        return refuse(evaluator, argument, "expected a draw number");
    binding->draw = term.number.i;
    return true;
}

/* Its first parameter is said by the name of the call. Gives the position of the next one. */
static int bind_custom(Word name, Binding *binding) {
    binding->attrs.word[ATTR_custom_operation] = custom_find(name.text, (size_t)name.length);
    binding->given |= 1;
    return 1;
}

static bool bind(const Evaluator *evaluator, const Syntax *call, Binding *binding) {
    const OpInfo *info = op_info(call->op);
    *binding = (Binding){.info = info, .attrs = attrs_default(call->op), .draw = -1};
    int position = call->op == OP_custom ? bind_custom(call->name, binding) : 0;
    for (const Syntax *argument = call->child; argument; argument = argument->next) {
        int number = position;
        if (argument->keyword.length) {
            number = find_param(info, argument->keyword);
            if (number < 0 && op_may_draw(call->op) && word_is(argument->keyword, "draw")) {
                if (!bind_draw(evaluator, argument, binding)) return false;
                continue;
            }
            if (number < 0)
                return refuse(evaluator, argument, "%s has no parameter '%.*s'", info->name,
                              argument->keyword.length, argument->keyword.text);
        } else if (position++ >= info->param_count) {
            return refuse(evaluator, argument, "%s takes %d arguments", info->name,
                          info->param_count);
        }
        if (!bind_one(evaluator, argument, number, binding)) return false;
    }
    for (int i = 0; i < info->param_count; i++) {
        const Param *param = &info->param[i];
        bool needed = !param->has_default && param->type != PARAM_OPTIONAL_TENSOR;
        if (needed && !(binding->given >> i & 1))
            return refuse(evaluator, call, "%s: '%s' is missing", info->name, param->name);
    }
    return true;
}

/* ---- calls -------------------------------------------------------------------------------- */

/* Pointwise over numbers alone: floats in f64, the others in i64. */
static bool evaluate_numbers(const Evaluator *evaluator, const Syntax *call, const Binding *binding,
                             Term *out) {
    const OpInfo *info = binding->info;
    bool is_float = info->dtype == DTYPE_FLOAT, is_bool = false;
    int first = call->op == OP_where;
    for (int i = first; i < info->arity; i++)
        is_float |= dtype_is_float(plain_dtype(&binding->input[i]));
    if (is_float && (info->dtype == DTYPE_INT || info->dtype == DTYPE_SHIFT))
        return refuse(evaluator, call, "%s: expected integers", info->name);
    if (info->dtype == DTYPE_LOGICAL) is_bool = true;
    cb_dtype dtype = is_bool ? CB_BOOL : is_float ? CB_F64 : CB_I64;
    Scalar input[3] = {{0}};
    for (int i = 0; i < info->arity; i++)
        input[i] = scalar_convert(binding->input[i].number, plain_dtype(&binding->input[i]),
                                  i < first ? CB_BOOL : dtype);
    Scalar value = scalar_eval(call->op, dtype, input);
    *out = number_term(info->dtype == DTYPE_BOOL ? CB_BOOL : dtype, value);
    return true;
}

/* The same when the graph runs; what is true or false is so for all that the numbers may be, unless
 * one of them varies freely. */
static Term number_node(Graph *graph, const Binding *binding, Op op, const Term *value) {
    bool freely = false, compares = value->kind == TERM_BOOL;
    for (int i = 0; i < binding->info->arity; i++) freely |= binding->input[i].freely;
    if (compares && !freely) return *value;
    Node *input[NODE_MAX_INPUTS];
    for (int i = 0; i < binding->info->arity; i++) {
        input[i] = term_node(graph, &binding->input[i]);
        if (!compares) input[i] = node_convert(graph, input[i], plain_dtype(value));
    }
    return (Term){.kind = TERM_NODE,
                  .weak = true,
                  .freely = freely,
                  .number = value->number,
                  .node = graph_op(graph, op, input, binding->info->arity, NULL, NULL)};
}

static bool evaluate_op(const Evaluator *evaluator, const Syntax *call, Term *out) {
    Graph *graph = evaluator->graph;
    Binding binding;
    if (!bind(evaluator, call, &binding)) return false;
    const OpInfo *info = binding.info;
    Node *input[NODE_MAX_INPUTS];
    bool numbers[NODE_MAX_INPUTS];
    int number_count = 0, weak = 0;
    for (int i = 0; i < info->arity; i++) {
        numbers[i] = is_number(&binding.input[i]);
        number_count += numbers[i];
        weak += binding.input[i].weak;
    }
    if (info->kind == KIND_POINTWISE && number_count == info->arity && !info->word_count) {
        if (!evaluate_numbers(evaluator, call, &binding, out)) return false;
        if (weak) *out = number_node(graph, &binding, call->op, out);
        return out->kind != TERM_NODE || out->node;
    }
    for (int i = 0; i < info->arity; i++) input[i] = term_node(graph, &binding.input[i]);
    int draws = graph->random_count;
    if (binding.draw >= 0) graph->random_count = (int)binding.draw;
    *out = (Term){.kind = TERM_NODE};
    out->node = graph_op(graph, call->op, input, info->arity, &binding.attrs, numbers);
    if (graph->random_count < draws) graph->random_count = draws;
    return out->node != NULL;
}

static int argument_count(const Syntax *call) {
    int count = 0;
    for (const Syntax *s = call->child; s; s = s->next) count++;
    return count;
}

/* The dims of x that an argument names, as bits; all when it names none, as reductions have it. */
static bool evaluate_dims(const Evaluator *evaluator, const Syntax *syntax, const Node *x,
                          unsigned *bits) {
    Term dims;
    if (!evaluate_as(evaluator, syntax, PARAM_DIMS, &dims)) return false;
    if (dims.kind != TERM_DIMS) return refuse(evaluator, syntax, "count takes a tensor and dims");
    *bits = dims.dims.count <= 0 ? ~0u : 0;
    for (int i = 0; i < dims.dims.count; i++) {
        int64_t dim = dims.dims.at[i], rank = x->rank ? x->rank : 1;
        if (dim < 0) dim += rank;
        if (dim < 0 || dim >= rank)
            return refuse(evaluator, syntax, "count: there is no dimension %lld",
                          (long long)dims.dims.at[i]);
        *bits |= 1u << dim;
    }
    return true;
}

static bool evaluate_count(const Evaluator *evaluator, const Syntax *call, Term *out) {
    Term x;
    unsigned bits;
    if (argument_count(call) != 2) return refuse(evaluator, call, "count takes a tensor and dims");
    if (!evaluate(evaluator, call->child, &x)) return false;
    if (x.kind != TERM_NODE) return refuse(evaluator, call, "count takes a tensor and dims");
    if (!evaluate_dims(evaluator, call->child->next, x.node, &bits)) return false;
    *out = (Term){.kind = TERM_INT, .number.i = 1};
    for (int i = 0; i < x.node->rank; i++)
        if (bits >> i & 1) out->number.i *= x.node->size[i];
    return true;
}

/* keep(y, x, dim): y, a reduction of x along dim, with that dim kept. */
static bool evaluate_keep(const Evaluator *evaluator, const Syntax *call, Term *out) {
    Term x;
    unsigned bits;
    const Syntax *second = call->child->next;
    if (!evaluate(evaluator, call->child, out) || !evaluate(evaluator, second, &x)) return false;
    if (!evaluate_dims(evaluator, second->next, x.node, &bits)) return false;
    int64_t size[CB_MAX_RANK];
    for (int i = 0; i < x.node->rank; i++) size[i] = bits >> i & 1 ? 1 : x.node->size[i];
    out->node = node_reshape(evaluator->graph, out->node, x.node->rank, size);
    return true;
}

static bool evaluate_sizes(const Evaluator *evaluator, const Syntax *call, Term *out) {
    Term x;
    if (!evaluate(evaluator, call->child, &x)) return false;
    *out = (Term){.kind = TERM_DIMS, .dims.count = x.node->rank};
    for (int i = 0; i < x.node->rank; i++) out->dims.at[i] = x.node->size[i];
    return true;
}

/* inverse(dims): the permutation that undoes dims. */
static bool evaluate_inverse(const Evaluator *evaluator, const Syntax *call, Term *out) {
    Term dims;
    if (!evaluate(evaluator, call->child, &dims)) return false;
    *out = dims;
    for (int i = 0; i < dims.dims.count; i++) out->dims.at[dims.dims.at[i]] = i;
    return true;
}

static bool evaluate_negative(const Evaluator *evaluator, const Syntax *call, Term *out) {
    if (!evaluate(evaluator, call->child, out)) return false;
    for (int i = 0; i < out->dims.count; i++) out->dims.at[i] = -out->dims.at[i];
    return true;
}

static bool evaluate_choose(const Evaluator *evaluator, const Syntax *call, Term *out) {
    Term flag;
    if (argument_count(call) != 3)
        return refuse(evaluator, call, "choose takes a flag and two values");
    if (!evaluate(evaluator, call->child, &flag)) return false;
    bool given = flag.kind == TERM_NODE && evaluator->formula;
    bool absent = flag.kind == TERM_NONE && evaluator->formula;
    if (flag.kind != TERM_BOOL && flag.kind != TERM_INT && !given && !absent)
        return refuse(evaluator, call, "choose: the flag must be true or false");
    const Syntax *yes = call->child->next;
    return evaluate(evaluator, given || (!absent && flag.number.i) ? yes : yes->next, out);
}

static bool evaluate_constant(const Evaluator *evaluator, const Syntax *call, Term *out) {
    Term value, dtype;
    if (argument_count(call) != 2)
        return refuse(evaluator, call, "constant takes a number and a dtype");
    if (!evaluate(evaluator, call->child, &value)) return false;
    if (!evaluate_as(evaluator, call->child->next, PARAM_DTYPE, &dtype)) return false;
    if (!is_plain(&value) || dtype.kind != TERM_DTYPE)
        return refuse(evaluator, call, "constant takes a number and a dtype");
    Node *node = term_node(evaluator->graph, &value);
    *out = (Term){.kind = TERM_NODE, .node = node_convert(evaluator->graph, node, dtype.number.i)};
    return true;
}

static bool as_dtype(const Evaluator *evaluator, const Syntax *call, bool halves, Term *out) {
    Term value, x;
    check(argument_count(call) == 2, "%s: as takes a number and a tensor", evaluator->formula);
    if (!evaluate(evaluator, call->child, &value)) return false;
    if (!evaluate(evaluator, call->child->next, &x)) return false;
    check(is_number(&value) && x.kind == TERM_NODE, "%s: as takes a number and a tensor",
          evaluator->formula);
    bool plain = !halves && dtype_is_half(x.node->dtype);
    cb_dtype dtype = plain ? CB_F32 : x.node->dtype;
    cb_operand number = number_from(plain_dtype(&value), value.number);
    *out = (Term){.kind = TERM_NODE};
    out->node = value.weak ? node_convert(evaluator->graph, value.node, dtype)
                           : node_number(evaluator->graph, evaluator->formula, number, dtype);
    bool fits = out->node != NULL;
    if (plain) *out = value; /* as a node, f32 would promote what it meets */
    return fits;
}

/* The number as a value of the dtype of x: PyTorch refuses one that the dtype cannot hold. */
static bool evaluate_as_dtype(const Evaluator *evaluator, const Syntax *call, Term *out) {
    return as_dtype(evaluator, call, true, out);
}

/* The same, but as it is beside f16 and bf16, which PyTorch's kernels compute in f32. */
static bool evaluate_as_computed(const Evaluator *evaluator, const Syntax *call, Term *out) {
    return as_dtype(evaluator, call, false, out);
}

static bool evaluate_need(const Evaluator *evaluator, const Syntax *call, Term *out) {
    const Syntax *condition = call->child;
    check(argument_count(call) == 1, "%s: need takes a condition", evaluator->formula);
    if (!evaluate(evaluator, condition, out)) return false;
    check(out->kind == TERM_BOOL, "%s: need takes a condition of numbers", evaluator->formula);
    if (out->number.i) return true;
    fail(CB_ERR_ARGUMENT, "%s: needs %.*s", evaluator->formula, (int)strcspn(condition->at, ");"),
         condition->at);
    return false;
}

/* Where PyTorch does not broadcast. */
static bool evaluate_same_sizes(const Evaluator *evaluator, const Syntax *call, Term *out) {
    const Syntax *first = call->child, *second = first->next;
    Term other;
    if (!evaluate(evaluator, first, out) || !evaluate(evaluator, second, &other)) return false;
    const Node *x = out->node, *y = other.node;
    if (node_has_sizes(x, y->rank, y->size)) return true;
    fail(CB_ERR_SHAPE, "%s: needs %.*s and %.*s of the same sizes", evaluator->formula,
         first->name.length, first->name.text, second->name.length, second->name.text);
    return false;
}

static bool evaluate_reduce(const Evaluator *evaluator, const Syntax *call, Term *out) {
    Term reduction;
    if (!evaluate(evaluator, call->child, out)) return false;
    if (!evaluate(evaluator, call->child->next, &reduction)) return false;
    Node *loss = term_node(evaluator->graph, out);
    *out = (Term){.kind = TERM_NODE};
    out->node = call_loss_reduced(evaluator->graph, evaluator->formula, loss, reduction.number.i);
    return out->node != NULL;
}

static bool evaluate_call(const Evaluator *evaluator, const Syntax *call, Term *out) {
    static const struct {
        const char *name;
        bool (*function)(const Evaluator *, const Syntax *, Term *);
    } special[] = {{"count", evaluate_count},       {"choose", evaluate_choose},
                   {"constant", evaluate_constant}, {"as", evaluate_as_dtype},
                   {"need", evaluate_need},         {"same_sizes", evaluate_same_sizes},
                   {"keep", evaluate_keep},         {"sizes", evaluate_sizes},
                   {"inverse", evaluate_inverse},   {"negative", evaluate_negative},
                   {"reduce", evaluate_reduce},     {"as_computed", evaluate_as_computed}};
    size_t known = evaluator->formula ? sizeof special / sizeof *special : 3;
    for (size_t i = 0; i < known; i++)
        if (word_is(call->name, special[i].name)) return special[i].function(evaluator, call, out);
    bool unnamed = call->op == OP_custom && word_is(call->name, op_info(OP_custom)->name);
    if (call->op == OP_none || call->op == OP_input || unnamed)
        return refuse(evaluator, call, "there is no op '%.*s'", call->name.length, call->name.text);
    return evaluate_op(evaluator, call, out);
}

bool evaluate(const Evaluator *evaluator, const Syntax *syntax, Term *out) {
    switch (syntax->kind) {
    case SYNTAX_INT:
        *out = (Term){.kind = TERM_INT, .number = syntax->value};
        return true;
    case SYNTAX_FLOAT:
        *out = (Term){.kind = TERM_FLOAT, .number = syntax->value};
        return true;
    case SYNTAX_BOOL:
        *out = (Term){.kind = TERM_BOOL, .number = syntax->value};
        return true;
    case SYNTAX_LIST:
        return evaluate_list(evaluator, syntax, out);
    case SYNTAX_CALL:
        return evaluate_call(evaluator, syntax, out);
    default:
        if (evaluator->lookup(evaluator, syntax->name, out)) return true;
        if (word_is(syntax->name, "none")) {
            *out = (Term){.kind = TERM_NONE};
            return true;
        }
        return refuse(evaluator, syntax, "'%.*s' is not defined", syntax->name.length,
                      syntax->name.text);
    }
}
