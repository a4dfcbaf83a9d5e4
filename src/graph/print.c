/* The text form of a graph, which graph_parse reads back to an equal graph.
 *
 *     graph(arg0: f32[128, 512], arg1: f32[512], arg2: i64[9]) {
 *       add = add(arg0, arg1)
 *       mul = mul(add, 2.0)
 *       softmax = softmax(mul, dim=1)
 *       mutate arg1 = mul
 *       check arg2 below 512 for gather
 *       return softmax
 *     }
 *
 * One line per node, inputs before users. A constant stands in its user's line: as a number where
 * the promotion of a number gives its dtype, as constant(2.0, f64) elsewhere. Arguments follow the
 * schema; from the first attribute on they are named, and those that have their default value are
 * left out. A random node shows its draw number; `draws 3` tells the number of draws where the
 * nodes do not. */
#include "graph/text.h"

#include "graph/index_check.h"
#include "graph/node.h"
#include "op/custom.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char **text_names(const Graph *graph, Node *const *order, Arena *arena) {
    const char **names = arena_new_array(arena, const char *, length(graph->node) + 1);
    int *used = arena_new_array(arena, int, OP_COUNT);
    for (int i = 0; i < length(order); i++) {
        const Node *node = order[i];
        if (node->op == OP_constant) continue;
        const char *name = node->op == OP_input ? "arg" : op_info(node->op)->name;
        int number = node->op == OP_input ? (int)node->attrs->word[0] : used[node->op]++;
        bool numbered = number || node->op == OP_input;
        const char *separator = node->op == OP_input ? "" : "_";
        names[node->id] = numbered ? arena_format(arena, "%s%s%d", name, separator, number) : name;
    }
    return names;
}

/* The shortest number that reads back in this dtype: 0.1, not 0.10000000149011612, for an f32. */
static double shortest_in(double value, cb_dtype dtype) {
    char text[40];
    if (dtype == CB_F64 || value != value) return value;
    double read;
    int digits = 0;
    do {
        snprintf(text, sizeof text, "%.*e", digits++, value);
        read = strtod(text, NULL);
    } while (scalar_convert((Scalar){.f = read}, CB_F64, compute_dtype(dtype)).f != value);
    return read;
}

static void put_scalar(Buffer *out, Scalar value, cb_dtype dtype) {
    if (dtype_is_float(dtype))
        put_double(out, shortest_in(value.f, dtype));
    else if (dtype == CB_BOOL)
        put(out, value.i ? "true" : "false");
    else
        putf(out, "%" PRId64, value.i);
}

/* True when numbers in place of the constants give the same node. */
static bool numbers_suffice(const Node *node) {
    const OpInfo *info = op_info(node->op);
    if (info->kind != KIND_POINTWISE || info->word_count) return false;
    Meta meta[NODE_MAX_INPUTS];
    int constants = 0;
    for (int i = 0; i < node->input_count; i++) {
        const Node *input = node->input[i];
        meta[i] = node_meta(input);
        if (input->op != OP_constant) continue;
        bool is_float = dtype_is_float(input->dtype);
        meta[i].number = true;
        if (input->dtype != CB_BOOL) meta[i].dtype = is_float ? CB_F64 : CB_I64;
        constants++;
    }
    if (!constants || constants == node->input_count) return false;
    Inferred inferred;
    Attrs none = {{0}};
    if (!op_infer(node->op, meta, node->input_count, &none, &inferred)) return false;
    for (int i = 0; i < node->input_count; i++)
        if (inferred.input_dtype[i] != node->input[i]->dtype) return false;
    return inferred.result.dtype == node->dtype;
}

static void put_operand(const char *const *names, const Node *operand, bool as_number,
                        Buffer *out) {
    if (!operand) {
        put(out, "none");
    } else if (operand->op != OP_constant) {
        put(out, names[operand->id]);
    } else {
        cb_dtype dtype = operand->dtype;
        if (!as_number) put(out, "constant(");
        put_scalar(out, node_constant(operand), dtype);
        if (!as_number) putf(out, ", %s)", cb_dtype_name(dtype));
    }
}

static bool has_default(const Param *param, const Attrs *attrs) {
    if (!param->has_default) return false;
    Attrs own = {{0}};
    if (param->type == PARAM_NUMBER)
        attr_set_number(&own, param->word, param->default_number);
    else if (param->type == PARAM_FLOAT)
        attr_set_float(&own, param->word, param->default_float);
    else
        own.word[param->word] = param->default_int;
    if (param->type == PARAM_DIMS) own.word[param->word + 1] = param->default_at;
    size_t words = (size_t)param_words(param);
    return !memcmp(&own.word[param->word], &attrs->word[param->word], sizeof(int64_t) * words);
}

/* "2.0" for a list of one. */
static void put_floats(Buffer *out, cb_float_list list) {
    if (list.count != 1) put(out, "[");
    for (int i = 0; i < list.count; i++) {
        put(out, i ? ", " : "");
        put_double(out, list.at[i]);
    }
    if (list.count != 1) put(out, "]");
}

/* One that is none is the default, which is not written. */
static void put_given(Buffer *out, cb_operand number) {
    put_scalar(out, number_scalar(&number), number_dtype(&number));
}

static void put_attribute(const Param *param, const Attrs *attrs, Buffer *out) {
    int64_t word = attrs->word[param->word];
    cb_dim_list dims;
    int input = param_may_be_input(param) ? attr_argument(attr_varying(param, attrs->word).f) : -1;
    if (input >= 0) {
        putf(out, "arg%d", input); /* as text_names has it */
        return;
    }
    switch (param->type) {
    case PARAM_FLOAT:
        put_double(out, attr_float(attrs, param->word));
        return;
    case PARAM_NUMBER:
        put_given(out, attr_number(attrs, param->word));
        return;
    case PARAM_FLOATS:
        put_floats(out, attr_floats(attrs, param->word));
        return;
    case PARAM_BOOL:
        put(out, word ? "true" : "false");
        return;
    case PARAM_DTYPE:
        put(out, cb_dtype_name(word));
        return;
    case PARAM_DIMS:
        dims = attr_dims(attrs, param->word);
        if (dims.count < 0)
            put(out, "all");
        else if (dims_are_same(dims))
            put(out, "same");
        else
            put_sizes(out, dims.count, dims.at);
        return;
    default:
        putf(out, "%" PRId64, word);
    }
}

/* Which custom op it is stands in the place of the op's name. */
static bool is_number_of(const Param *param) { return param->word == ATTR_custom_operation; }

static void put_arguments(const char *const *names, const Node *node, Buffer *out) {
    const OpInfo *info = op_info(node->op);
    bool as_numbers = numbers_suffice(node), named = false;
    const char *separator = "";
    for (int i = 0, tensor = 0; i < info->param_count; i++) {
        const Param *param = &info->param[i];
        bool is_tensor = param->word < 0;
        if (node->op == OP_custom &&
            (is_tensor ? tensor == node->input_count : is_number_of(param)))
            continue;
        const Node *operand = is_tensor ? node->input[tensor++] : NULL;
        if (is_tensor ? named && !operand : has_default(param, node->attrs)) {
            named = true;
            continue;
        }
        put(out, separator);
        separator = ", ";
        named |= !is_tensor;
        if (named) putf(out, "%s=", param->name);
        if (is_tensor)
            put_operand(names, operand, as_numbers, out);
        else
            put_attribute(param, node->attrs, out);
    }
    if (op_may_draw(node->op) && op_draws(node->op, node->attrs))
        putf(out, "%sdraw=%" PRId64, separator, node->attrs->word[info->word_count]);
}

void text_node(const char *const *names, const Node *node, Buffer *out) {
    if (node->op == OP_constant || node->op == OP_input) {
        put_operand(names, node, false, out);
        return;
    }
    putf(out, "%s = %s(", names[node->id],
         op_call_name(node->op, node->attrs ? node->attrs->word : NULL));
    put_arguments(names, node, out);
    put(out, ")");
}

static void put_header(const Graph *graph, const char *const *names, Buffer *out) {
    put(out, "graph(");
    for (int i = 0; i < length(graph->input); i++) {
        const Node *input = graph->input[i];
        putf(out, "%s%s: %s", i ? ", " : "", names[input->id], cb_dtype_name(input->dtype));
        put_sizes(out, input->rank, input->size);
    }
    put(out, ") {\n");
}

/* What a parser would count from the nodes printed. */
static int visible_draws(Node *const *order) {
    int draws = 0;
    for (int i = 0; i < length(order); i++) {
        Op op = order[i]->op;
        if (!op_may_draw(op) || !op_draws(op, order[i]->attrs)) continue;
        int64_t draw = node_draw(order[i]);
        if (draw >= draws) draws = (int)draw + 1;
    }
    return draws;
}

void graph_print(const Graph *graph, Buffer *out) {
    const IndexCheck *check = index_checks_left(graph, out->arena);
    Node **order = graph_walk(graph, out->arena, check, false);
    const char **names = text_names(graph, order, out->arena);
    put_header(graph, names, out);
    for (int i = 0; i < length(order); i++) {
        if (order[i]->op == OP_input || order[i]->op == OP_constant) continue;
        put(out, "  ");
        text_node(names, order[i], out);
        put(out, "\n");
    }
    if (visible_draws(order) != graph->random_count) putf(out, "  draws %d\n", graph->random_count);
    for (int i = 0; i < length(graph->mutation); i++) {
        const Mutation *mutation = &graph->mutation[i];
        putf(out, "  mutate %s = ", names[graph->input[mutation->input]->id]);
        put_operand(names, mutation->value, false, out);
        put(out, "\n");
    }
    for (int i = 0; i < length(check); i++) {
        put(out, "  check ");
        put_operand(names, check[i].index, false, out);
        putf(out, " below %" PRId64 " for %s\n", check[i].in.bound, op_info(check[i].in.op)->name);
    }
    put(out, "  return");
    for (int i = 0; i < length(graph->output); i++) {
        put(out, i ? ", " : " ");
        put_operand(names, graph->output[i], false, out);
    }
    put(out, "\n}\n");
}
