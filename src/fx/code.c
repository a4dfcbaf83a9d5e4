/* The code generator: a graph becomes a C function over carbide.h that computes the same.
 *
 *     int block(cb_tensor *const *inputs, int input_count, cb_tensor **outputs, void *user) {
 *         cb_module *self = user;
 *         if (input_count != 1) return CB_ERR_ARGUMENT;
 *         cb_tensor *x = inputs[0];
 *         cb_tensor *linear = cb_forward(cb_module_child(self, "linear"), x);
 *         cb_tensor *add = cb_add(linear, x);
 *         cb_free(linear);
 *         ...
 *
 * One statement a node, with the node's name; a value that nothing else can refer to is freed after
 * its last use. Constants of the graph are written out as data. A node without a C form is an
 * error. */
#include "fx/fx.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONSTANT = 4096 }; /* elements of a constant that are written out */

typedef struct Coder {
    const FxGraph *graph;
    Buffer *out;
    const char **name; /* by node id: the C variable */
    bool good;
} Coder;

/* Names that a local variable cannot have, or that the function uses itself; sorted for bsearch. */
static const char *const reserved[] = {
    "BUFSIZ",   "EOF",         "NULL",     "alignas", "alignof",  "asm",      "auto",     "bool",
    "break",    "case",        "char",     "const",   "continue", "default",  "do",       "double",
    "else",     "enum",        "extern",   "false",   "float",    "for",      "goto",     "if",
    "inline",   "input_count", "inputs",   "int",     "linux",    "long",     "offsetof", "outputs",
    "register", "restrict",    "return",   "self",    "short",    "signed",   "sizeof",   "static",
    "stderr",   "stdin",       "stdout",   "struct",  "switch",   "true",     "typedef",  "typeof",
    "union",    "unix",        "unsigned", "user",    "void",     "volatile", "while"};

static int compare_names(const void *a, const void *b) {
    return strcmp(a, *(const char *const *)b);
}

static bool is_reserved(const char *name) {
    return bsearch(name, reserved, sizeof reserved / sizeof *reserved, sizeof *reserved,
                   compare_names) != NULL;
}

/* The data of a constant, data_tensor_constant0, is an array of this name. */
static bool is_data(const char *name) { return strncmp(name, "data_tensor_constant", 20) == 0; }

static const char *variable(const Coder *coder, const char *function, const FxNode *node) {
    const char *name = node->name;
    while (is_reserved(name) || strcmp(name, function) == 0 || strncmp(name, "cb_", 3) == 0 ||
           is_data(name) || (name != node->name && fx_name_taken(coder->graph, name)))
        name = arena_format(coder->out->arena, "v_%s", name);
    return name;
}

/* ---- values --------------------------------------------------------------------------------- */

static void put_number(Buffer *out, double value) {
    if (isinf(value))
        put(out, value < 0 ? "-__builtin_inf()" : "__builtin_inf()");
    else if (isnan(value))
        put(out, "__builtin_nan(\"\")");
    else
        put_double(out, value);
}

static void put_integer(Buffer *out, int64_t value) {
    if (value == INT64_MIN)
        put(out, "INT64_MIN");
    else if (value > INT32_MAX || value < -INT32_MAX)
        putf(out, "%lldLL", (long long)value);
    else
        putf(out, "%lld", (long long)value);
}

static void put_dims(Buffer *out, cb_dim_list dims) {
    if (dims.count <= 0) {
        put(out, dims.count < 0 ? "CB_ALL" : "CB_NO_DIMS");
        return;
    }
    if (dims_are_same(dims)) {
        put(out, "\"same\"");
        return;
    }
    for (int i = 0; i < dims.count; i++) {
        put(out, i ? ", " : "cb_dims(");
        put_integer(out, dims.at[i]);
    }
    put(out, ")");
}

static void put_floats(Buffer *out, cb_float_list floats) {
    if (floats.count == 0) put(out, "CB_NO_FLOATS");
    for (int i = 0; i < floats.count; i++) {
        if (floats.count > 1) put(out, i ? ", " : "cb_floats(");
        put_number(out, floats.at[i]);
    }
    if (floats.count > 1) put(out, ")");
}

/* As the caller of the op would write it: bool is an int in C, so it says what it is. */
static void put_given(Buffer *out, cb_operand number) {
    switch (number.kind) {
    case CB_OPERAND_FLOAT:
        put_number(out, number.f);
        break;
    case CB_OPERAND_INT:
        put_integer(out, number.i);
        break;
    case CB_OPERAND_BOOL:
        putf(out, "cb_operand_bool(%s)", number.i ? "true" : "false");
        break;
    default:
        put(out, "NULL");
        break;
    }
}

static const char *dtype_name(cb_dtype dtype) {
    return dtype >= 0 ? dtype_info(dtype)->symbol : "CB_SAME";
}

static void put_reduction(Buffer *out, int64_t reduction) {
    static const char *const names[] = {[CB_REDUCE_NONE] = "CB_REDUCE_NONE",
                                        [CB_REDUCE_MEAN] = "CB_REDUCE_MEAN",
                                        [CB_REDUCE_SUM] = "CB_REDUCE_SUM",
                                        [CB_REDUCE_BATCHMEAN] = "CB_REDUCE_BATCHMEAN"};
    if (text_of_reduction(reduction))
        put(out, names[reduction]);
    else
        put_integer(out, reduction); /* which the op refuses */
}

static void put_attribute(Buffer *out, const Param *param, const Attrs *attrs) {
    int64_t word = attrs->word[param->word];
    switch (param->type) {
    case PARAM_FLOAT:
        put_number(out, attr_float(attrs, param->word));
        break;
    case PARAM_NUMBER:
        put_given(out, attr_number(attrs, param->word));
        break;
    case PARAM_BOOL:
        put(out, word ? "true" : "false");
        break;
    case PARAM_DTYPE:
        put(out, dtype_name(word));
        break;
    case PARAM_REDUCTION:
        put_reduction(out, word);
        break;
    case PARAM_FLOATS:
        put_floats(out, attr_floats(attrs, param->word));
        break;
    case PARAM_DIMS:
        put_dims(out, attr_dims(attrs, param->word));
        break;
    default:
        put_integer(out, word);
        break;
    }
}

static void put_operand(const Coder *coder, const cb_arg *arg) {
    Buffer *out = coder->out;
    switch (arg->kind) {
    case CB_ARG_NODE:
        put(out, coder->name[arg->node->id]);
        break;
    case CB_ARG_FLOAT:
    case CB_ARG_INT:
    case CB_ARG_BOOL:
        put_given(out, fx_operand(arg));
        break;
    default:
        put(out, "NULL");
        break;
    }
}

static void put_text(Buffer *out, const char *text) {
    put(out, "\"");
    for (; *text; text++) putf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    put(out, "\"");
}

/* ---- calls ---------------------------------------------------------------------------------- */

static bool is_default(const Param *param, const FxCall *call, const cb_arg *operand) {
    if (!param->has_default) return false;
    if (operand) return operand->kind == CB_ARG_NONE;
    Attrs usual = attrs_default(call->op);
    int words = param_words(param);
    return memcmp(&usual.word[param->word], &call->attrs.word[param->word],
                  sizeof(int64_t) * (size_t)words) == 0;
}

/* cb_sum(x, cb_dims(1), true): arguments in schema order up to the last that is not its default. */
static void put_op(Coder *coder, const FxNode *node, const FxCall *call) {
    const OpInfo *info = op_info(call->op);
    const cb_arg *operand[OP_MAX_PARAMS] = {NULL};
    int last = 0;
    for (int i = 0, next = 0; i < info->param_count; i++) {
        if (info->param[i].word < 0) operand[i] = &call->operand[next++];
        if (!is_default(&info->param[i], call, operand[i])) last = i + 1;
    }
    putf(coder->out, "cb_%s(", info->name);
    for (int i = 0; i < last; i++) {
        if (i > 0) put(coder->out, ", ");
        if (!operand[i]) {
            put_attribute(coder->out, &info->param[i], &call->attrs);
            continue;
        }
        if (fx_is_number(operand[i]) && info->kind != KIND_POINTWISE) {
            fx_fail(CB_ERR_GRAPH, node, "cb_%s takes a tensor where this node has a number",
                    info->name);
            coder->good = false;
        }
        put_operand(coder, operand[i]);
    }
    put(coder->out, ")");
}

static void put_list(Coder *coder, const FxCall *call) {
    put(coder->out, "cb_cat((cb_tensor *[]){");
    for (int i = 0; i < call->list->count; i++) {
        if (i > 0) put(coder->out, ", ");
        put_operand(coder, &call->list->items[i]);
    }
    putf(coder->out, "}, %d, %lld)", call->list->count,
         (long long)call->attrs.word[ATTR_concat_dim]);
}

static void put_index(Coder *coder, const FxCall *call) {
    Buffer *out = coder->out;
    const char *x = coder->name[call->operand[0].node->id];
    if (call->step_count == 0) putf(out, "cb_slice(%s, 0)", x);
    for (int i = call->step_count - 1; i >= 0; i--)
        putf(out, "cb_%s(", op_info(call->step[i].op)->name);
    if (call->step_count) put(out, x);
    for (int i = 0; i < call->step_count; i++) {
        const FxIndex *step = &call->step[i];
        putf(out, ", %lld", (long long)step->dim);
        if (step->op == OP_select) putf(out, ", %lld", (long long)step->start);
        if (step->op != OP_slice) {
            put(out, ")");
            continue;
        }
        put(out, ", ");
        put_integer(out, step->start);
        put(out, ", ");
        if (step->end == INT64_MAX)
            put(out, "INT64_MAX");
        else
            put_integer(out, step->end);
        put(out, ", ");
        put_integer(out, step->step);
        put(out, ")");
    }
}

static void put_call(Coder *coder, const FxNode *node) {
    FxCall call;
    if (!fx_bind(node, &call)) {
        coder->good = false;
        return;
    }
    bool copy = call.inplace && strcmp(node->target, "copy_") == 0;
    if (copy && fx_is_number(&call.operand[0])) {
        putf(coder->out, "cb_fill_(%s, ", coder->name[node->args[0].node->id]);
        put_given(coder->out, fx_operand(&call.operand[0]));
        put(coder->out, ")");
        return;
    }
    if (call.inplace) putf(coder->out, "cb_assign(%s, ", coder->name[node->args[0].node->id]);
    if (copy)
        put_operand(coder, &call.operand[0]);
    else if (call.list)
        put_list(coder, &call);
    else if (call.indexing)
        put_index(coder, &call);
    else
        put_op(coder, node, &call);
    if (call.inplace) put(coder->out, ")");
}

static void put_module(Coder *coder, const FxNode *node) {
    Buffer *out = coder->out;
    put(out, "cb_module_forward(cb_module_child(self, ");
    put_text(out, node->target);
    put(out, "), (cb_tensor *[]){");
    for (int i = 0; i < length(node->args); i++) {
        if (i > 0) put(out, ", ");
        put_operand(coder, &node->args[i]);
    }
    putf(out, "}, %d)", length(node->args));
    if (!length(node->kwargs) && length(node->args)) return;
    fx_fail(CB_ERR_GRAPH, node, "modules take positional tensors");
    coder->good = false;
}

/* ---- constants ------------------------------------------------------------------------------ */

static const char *element_type(cb_dtype dtype) {
    return dtype == CB_BOOL ? "bool" : dtype_info(dtype)->storage;
}

/* Halves are written as their bits, floats in hexadecimal: the data is exact. */
static void put_element(Buffer *out, const char *data, cb_dtype dtype) {
    Scalar value = scalar_load(data, dtype);
    if (dtype_is_half(dtype)) {
        uint16_t bits;
        memcpy(&bits, data, sizeof bits);
        putf(out, "0x%04x", bits);
    } else if (!dtype_is_float(dtype)) {
        put_integer(out, value.i);
    } else if (isfinite(value.f)) {
        putf(out, "%a", value.f);
    } else {
        put_number(out, value.f);
    }
}

static bool put_data(const Coder *coder, const FxNode *node, Tensor *constant) {
    Buffer *out = coder->out;
    cb_dtype dtype = constant->dtype;
    Meta meta = tensor_meta(constant);
    int64_t count = meta_numel(&meta);
    if (count > MAX_CONSTANT) {
        fx_fail(CB_ERR_GRAPH, node,
                "a constant of %lld elements is too large to write out; %d is the limit",
                (long long)count, MAX_CONSTANT);
        return false;
    }
    char *data = arena_alloc(out->arena, (size_t)(count + 1) * cb_dtype_size(dtype));
    if (cb_read(constant, data, dtype) != CB_OK) return false;
    putf(out, "static const %s data%s[] = {", element_type(dtype), node->target);
    for (int64_t i = 0; i < count; i++) {
        put(out, i == 0 ? "" : i % 8 ? ", " : ",\n    ");
        put_element(out, data + (size_t)i * cb_dtype_size(dtype), dtype);
    }
    put(out, count ? "};\n" : "0};\n");
    return true;
}

static void put_attr(const Coder *coder, const FxNode *node) {
    Tensor *constant = fx_constant(coder->graph, node->target);
    if (!constant) {
        put(coder->out, "cb_module_get(self, ");
        put_text(coder->out, node->target);
        put(coder->out, ")");
        return;
    }
    cb_dim_list sizes = {.count = constant->rank};
    memcpy(sizes.at, constant->size, sizeof sizes.at);
    putf(coder->out, "cb_from_data(data%s, %s, ", node->target, dtype_name(constant->dtype));
    put_dims(coder->out, sizes);
    put(coder->out, ")");
}

/* ---- the function --------------------------------------------------------------------------- */

static void put_return(Coder *coder, const FxNode *node) {
    Buffer *out = coder->out;
    int count = 0;
    const cb_arg *value = length(node->args) ? &node->args[0] : NULL;
    bool group = value && (value->kind == CB_ARG_TUPLE || value->kind == CB_ARG_LIST ||
                           value->kind == CB_ARG_DICT);
    const cb_arg *items = group ? value->items : value;
    int item_count = group ? value->count : value && value->kind != CB_ARG_NONE;
    for (; count < item_count; count++) {
        if (items[count].kind != CB_ARG_NODE) {
            fx_fail(CB_ERR_GRAPH, node, "returns something else than tensors");
            coder->good = false;
            return;
        }
        putf(out, "    outputs[%d] = %s;\n", count, coder->name[items[count].node->id]);
    }
    put(out, "    return cb_error() ? (int)cb_error_status() : ");
    putf(out, "%d;\n", count);
}

static void put_statement(Coder *coder, FxNode *node, int *input) {
    Buffer *out = coder->out;
    bool used = length(node->users) > 0;
    if (node->opcode == CB_OUTPUT) {
        put_return(coder, node);
        return;
    }
    if (node->opcode == CB_PLACEHOLDER) {
        if (used) putf(out, "    cb_tensor *%s = inputs[%d];\n", coder->name[node->id], *input);
        (*input)++;
        return;
    }
    if (node->opcode == CB_GET_ATTR && !used) return;
    bool temporary = fx_is_temporary(node);
    put(out, "    ");
    if (used)
        putf(out, "cb_tensor *%s = ", coder->name[node->id]);
    else if (temporary)
        put(out, "cb_free(");
    if (node->opcode == CB_GET_ATTR)
        put_attr(coder, node);
    else if (node->opcode == CB_CALL_MODULE)
        put_module(coder, node);
    else
        put_call(coder, node);
    put(out, !used && temporary ? ");\n" : ";\n");
}

static void put_frees(Coder *coder, FxNode *const *dead, const FxNode *node) {
    for (int i = 0; i < length(dead); i++)
        if (dead[i] != node && fx_is_temporary(dead[i]))
            putf(coder->out, "    cb_free(%s);\n", coder->name[dead[i]->id]);
}

static void put_head(Coder *coder, const char *function) {
    Buffer *out = coder->out;
    int inputs = 0;
    bool attributes = false, used = false, output = false;
    put(out, "#include <carbide.h>\n\n");
    for (const FxNode *node = coder->graph->first; node; node = node->next) {
        Tensor *constant = NULL;
        inputs += node->opcode == CB_PLACEHOLDER;
        used = used || (node->opcode == CB_PLACEHOLDER && length(node->users));
        if (node->opcode == CB_OUTPUT)
            output = length(node->args) && node->args[0].kind != CB_ARG_NONE;
        if (node->opcode == CB_CALL_MODULE) attributes = true;
        if (node->opcode != CB_GET_ATTR || !length(node->users)) continue;
        constant = fx_constant(coder->graph, node->target);
        if (!constant)
            attributes = true;
        else if (!put_data(coder, node, constant))
            coder->good = false;
    }
    putf(out,
         "int %s(cb_tensor *const *inputs, int input_count, cb_tensor **outputs, void *user);\n",
         function);
    putf(out,
         "int %s(cb_tensor *const *inputs, int input_count, cb_tensor **outputs, void *user) {\n",
         function);
    put(out, attributes ? "    cb_module *self = (cb_module *)user;\n" : "    (void)user;\n");
    if (!used) put(out, "    (void)inputs;\n");
    if (!output) put(out, "    (void)outputs;\n");
    putf(out, "    if (input_count != %d) return CB_ERR_ARGUMENT;\n", inputs);
}

static bool print_code(const FxGraph *graph, Buffer *out, const void *options) {
    const char *function = options;
    Coder coder = {graph, out, arena_new_array(out->arena, const char *, graph->next_id + 1), true};
    for (const FxNode *node = graph->first; node; node = node->next)
        coder.name[node->id] = variable(&coder, function, node);
    FxNode ***last = fx_last_uses(graph, out->arena);
    put_head(&coder, function);
    int input = 0;
    for (FxNode *node = graph->first; node && coder.good; node = node->next) {
        put_statement(&coder, node, &input);
        put_frees(&coder, last[node->id], node);
    }
    if (!fx_output_node(graph)) put(out, "    return 0;\n");
    put(out, "}\n");
    return coder.good;
}

static bool is_identifier(const char *name) {
    if (!name || !*name || isdigit((unsigned char)*name) || is_reserved(name)) return false;
    if (strncmp(name, "cb_", 3) == 0) return false; /* what the header declares */
    return name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] ==
           0;
}

char *cb_graph_code(const cb_graph *graph, const char *function_name) {
    if (!is_identifier(function_name)) {
        fail(CB_ERR_ARGUMENT, "cb_graph_code: '%s' is no name of a C function",
             function_name ? function_name : "");
        return NULL;
    }
    return fx_render(graph, print_code, function_name);
}
