/* Schemas of the op table and of the layers: text in, parameters out; and the public functions that
 * they describe, with a macro for every number of arguments that may be left out.
 *
 *     "x, dim:dims=all, keepdim:bool=false"
 *         ->  cb_tensor *cb_sum(cb_tensor *x, cb_dim_list dim, bool keepdim); CB_sum_1 to
 *             CB_sum_3 */
#include "opgen.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const TypeInfo type_info[TYPE_COUNT] = {
    [TENSOR] = {"tensor", "cb_tensor *", "PARAM_TENSOR", ""},
    [OPTIONAL] = {"tensor", "cb_tensor *", "PARAM_OPTIONAL_TENSOR", ""},
    [INT] = {"int", "int64_t ", "PARAM_INT", "cb_integer_of"},
    [FLOAT] = {"float", "double ", "PARAM_FLOAT", "cb_float_of"},
    [BOOL] = {"bool", "bool ", "PARAM_BOOL", "cb_flag_of"},
    [DTYPE] = {"dtype", "cb_dtype ", "PARAM_DTYPE", "cb_only_dtype"},
    [DIMS] = {"dims", "cb_dim_list ", "PARAM_DIMS", "cb_dims_of"},
    [FLOATS] = {"floats", "cb_float_list ", "PARAM_FLOATS", "cb_floats_of"},
    [NUMBER] = {"number", "cb_operand ", "PARAM_NUMBER", "cb_operand_of"},
    [REDUCTION] = {"reduction", "int64_t ", "PARAM_REDUCTION", "cb_reduction_of"},
    [TEXT] = {"text", "const char *", NULL, ""},
};

void schema_refuse(const Schema *schema, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: %s %s: ", schema->file, schema->kind, schema->name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n    schema \"%s\"\n", schema->text);
    va_end(arguments);
    exit(1);
}

bool param_is_tensor(const SchemaParam *param) {
    return param->type == TENSOR || param->type == OPTIONAL;
}

bool one_of(const char *text, const char *list) {
    size_t length = strlen(text);
    for (const char *at = strstr(list, text); at; at = strstr(at + 1, text))
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return length > 0;
    return false;
}

static const char dtypes[] =
#define DTYPE(id, name, ...) #name " "
#include "op/dtype_rows.h"
    "same";

/* ---- reading ------------------------------------------------------------------------------ */

static bool is_name(const char *text) {
    if (!isalpha((unsigned char)*text)) return false;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && *text != '_') return false;
    return true;
}

static Type parse_type(const Schema *schema, const char *text) {
    for (Type type = INT; type < TYPE_COUNT; type++)
        if (!strcmp(text, type_info[type].name)) return type;
    schema_refuse(schema,
                  "unknown type '%s'; int, float, number, bool, dtype, dims, padding, floats, "
                  "reduction and text exist",
                  text);
}

static void default_float(const Schema *schema, SchemaParam *param) {
    if (!strcmp(param->text, "inf") || !strcmp(param->text, "-inf")) {
        bool negative = param->text[0] == '-';
        snprintf(param->macro, sizeof param->macro, "%s__builtin_inf()", negative ? "-" : "");
        return;
    }
    char *end;
    strtod(param->text, &end);
    if (*end) schema_refuse(schema, "'%s' is no number", param->text);
    bool whole = !strpbrk(param->text, ".e");
    snprintf(param->macro, sizeof param->macro, "%s%s", param->text, whole ? ".0" : "");
}

/* "none", an integer or a float: it is what it is written as. */
static void default_number(const Schema *schema, SchemaParam *param) {
    if (!strcmp(param->text, "none")) {
        param->number = "CB_OPERAND_TENSOR";
        strcpy(param->macro, "cb_operand_tensor(CB_NULL)");
        return;
    }
    default_float(schema, param);
    char text[sizeof param->text];
    strcpy(text, param->text);
    bool whole = !strpbrk(text, ".e");
    param->number = whole ? "CB_OPERAND_INT" : "CB_OPERAND_FLOAT";
    snprintf(param->macro, sizeof param->macro, "cb_operand_%s(%s)", whole ? "int" : "float", text);
}

/* "all", "none", a list before it, or one integer: a list of it, which the op repeats for each of
 * its dimensions. */
static void default_dims(const Schema *schema, SchemaParam *param) {
    const char *text = param->text;
    char *end;
    for (int i = 0; i < schema->count - 1; i++)
        if (schema->param[i].type == DIMS && !strcmp(text, schema->param[i].name))
            param->same_as = i;
    bool none = !strcmp(text, "none") || param->same_as >= 0;
    param->count = !strcmp(text, "all") ? -1 : !none;
    if (param->count <= 0) {
        snprintf(param->macro, sizeof param->macro, param->count < 0 ? "CB_ALL" : "CB_NO_DIMS");
        return;
    }
    strtoll(text, &end, 10);
    if (*end)
        schema_refuse(schema, "the default of dims is 'all', 'none' or an integer, not '%s'", text);
    snprintf(param->macro, sizeof param->macro, "cb_dims_one(%s)", text);
}

/* CB_F32 for f32. */
static void default_constant(SchemaParam *param, const char *prefix) {
    snprintf(param->macro, sizeof param->macro, "%s%s", prefix, param->text);
    for (char *c = param->macro; *c; c++) *c = (char)toupper((unsigned char)*c);
}

/* The default as C, checked against the type. */
static void parse_default(const Schema *schema, SchemaParam *param) {
    const char *text = param->text;
    char *end;
    switch (param->type) {
    case FLOAT:
        default_float(schema, param);
        return;
    case NUMBER:
        default_number(schema, param);
        return;
    case INT:
        strtoll(text, &end, 10);
        if (*end) schema_refuse(schema, "'%s' is no integer", text);
        snprintf(param->macro, sizeof param->macro, "%s", text);
        return;
    case BOOL:
        if (!one_of(text, "true false"))
            schema_refuse(schema, "'%s' is neither true nor false", text);
        snprintf(param->macro, sizeof param->macro, "%s", text);
        return;
    case DTYPE:
        if (!one_of(text, dtypes)) schema_refuse(schema, "'%s' is no dtype", text);
        default_constant(param, "CB_");
        return;
    case REDUCTION:
        if (!one_of(text, "none mean sum batchmean"))
            schema_refuse(schema, "'%s' is no reduction", text);
        default_constant(param, "CB_REDUCE_");
        return;
    case DIMS:
        default_dims(schema, param);
        return;
    case FLOATS:
        if (strcmp(text, "none") != 0)
            schema_refuse(schema, "the default of floats is 'none', not '%s'", text);
        snprintf(param->macro, sizeof param->macro, "CB_NO_FLOATS");
        return;
    case TEXT:
        snprintf(param->macro, sizeof param->macro, "\"%s\"", text);
        return;
    default:
        schema_refuse(schema, "tensor %s has a default; write %s?", param->name, param->name);
    }
}

/* What follows a type is taken off it. */
static void parse_varies(const Schema *schema, SchemaParam *param, char *type) {
    static const char *const names[] = {"FREELY", "ABOVE_0", "WITHIN_1", "START"};
    static const char signs[] = "~+%@";
    char *last = type + strlen(type) - 1;
    const char *sign = *type ? strchr(signs, *last) : NULL;
    if (!sign) return;
    bool start = *sign == '@';
    *last = '\0';
    if (!one_of(type, start ? "int" : "float number"))
        schema_refuse(schema, "%s cannot vary", type);
    param->varies = names[sign - signs];
}

/* One parameter, in place: "name", "name?", "name:type" or "name:type=default". */
static void parse_param(Schema *schema, char *text) {
    if (schema->count == MAX_PARAMS) schema_refuse(schema, "more than %d parameters", MAX_PARAMS);
    SchemaParam *param = &schema->param[schema->count++];
    *param = (SchemaParam){.word = -1, .same_as = -1, .varies = "NOT"};
    char *colon = strchr(text, ':'), *equals = strchr(text, '=');
    if (equals) *equals++ = '\0';
    if (colon) *colon++ = '\0';
    size_t length = strlen(text);
    if (!colon && length && text[length - 1] == '?') {
        text[length - 1] = '\0';
        param->type = OPTIONAL;
        strcpy(param->macro, "CB_NULL");
    }
    if (colon) parse_varies(schema, param, colon);
    param->named = colon && !strcmp(colon, "padding");
    if (colon) param->type = param->named ? DIMS : parse_type(schema, colon);
    if (!is_name(text) || strlen(text) >= NAME_SIZE) schema_refuse(schema, "'%s' is no name", text);
    strcpy(param->name, text);
    if (equals) {
        if (!*equals || strlen(equals) >= NAME_SIZE)
            schema_refuse(schema, "bad default of %s", text);
        strcpy(param->text, equals);
        parse_default(schema, param);
    }
    if (param_is_tensor(param)) {
        if (++schema->tensors > MAX_TENSORS)
            schema_refuse(schema, "more than %d tensors", MAX_TENSORS);
    } else {
        param->word = schema->words;
        schema->words += param->type == NUMBER                          ? NUMBER_WORDS
                         : param->type == DIMS || param->type == FLOATS ? LIST_WORDS
                                                                        : 1;
    }
}

void schema_parse(Schema *schema) {
    char text[320], *at = text;
    if (strlen(schema->text) >= sizeof text) schema_refuse(schema, "schema too long");
    strcpy(text, schema->text);
    while (at) {
        char *comma = strchr(at, ',');
        if (comma) *comma++ = '\0';
        at += strspn(at, " ");
        parse_param(schema, at);
        at = comma;
    }
    for (int i = 0; i < schema->count; i++) {
        bool optional = schema->param[i].macro[0] != '\0';
        if (!optional && schema->required < i)
            schema_refuse(schema, "%s stands behind a default and has none", schema->param[i].name);
        if (!optional) schema->required = i + 1;
        for (int k = 0; k < i; k++)
            if (!strcmp(schema->param[i].name, schema->param[k].name))
                schema_refuse(schema, "two parameters are named %s", schema->param[i].name);
    }
}

/* ---- public functions --------------------------------------------------------------------- */

static void write_parameter(FILE *out, Api api, const SchemaParam *param, int before) {
    bool operand = api.operands && param_is_tensor(param);
    fprintf(out, "%s%s%s", before ? ", " : "",
            operand ? "cb_operand " : type_info[param->type].c_type, param->name);
}

void api_signature(FILE *out, Api api, const Schema *schema, bool in_parentheses) {
    fprintf(out, in_parentheses ? "%s(%s%s)(" : "%s%s%s(", api.result, api.prefix, schema->name);
    for (int i = 0; i < schema->count; i++) write_parameter(out, api, &schema->param[i], i);
    fprintf(out, schema->count ? ")" : "void)");
}

/* Whether an argument may be a call of ops, so that the line is set behind the arguments. */
static bool takes_operands(const Schema *schema) {
    for (int i = 0; i < schema->count; i++)
        if (param_is_tensor(&schema->param[i]) || schema->param[i].type == NUMBER) return true;
    return false;
}

/* The macro's body with the first `given` arguments taken and the others at their defaults. */
static void write_call(FILE *out, Api api, const Schema *schema, int given) {
    bool at = takes_operands(schema);
    fprintf(out, at ? "CB_AT(%s%s" : "(CB_HERE, (%s%s)(", api.prefix, schema->name);
    for (int i = 0; i < schema->count; i++) {
        const SchemaParam *param = &schema->param[i];
        bool operand = api.operands && param_is_tensor(param);
        const char *wrap = operand        ? "cb_operand_of"
                           : param->named ? "cb_padding_of"
                                          : type_info[param->type].wrap;
        if (at || i) fprintf(out, ", ");
        if (i >= given)
            fprintf(out, "%s", param->macro);
        else
            fprintf(out, *wrap ? "%s(%s)" : "%s%s", wrap, param->name);
    }
    fprintf(out, at ? ")\n" : "))\n");
}

/* What CB_AT calls: the function behind its arguments and the line. */
static void write_at(FILE *out, Api api, const Schema *schema) {
    fprintf(out, "CB_AT_GIVES(%s, %s%s, (", api.result, api.prefix, schema->name);
    for (int i = 0; i < schema->count; i++) write_parameter(out, api, &schema->param[i], i);
    fprintf(out, "), (");
    for (int i = 0; i < schema->count; i++)
        fprintf(out, "%s%s", i ? ", " : "", schema->param[i].name);
    fprintf(out, "))\n");
}

static void write_macro(FILE *out, Api api, const Schema *schema, const char *name, int given) {
    fprintf(out, "#define %s(", name);
    for (int i = 0; i < given; i++) fprintf(out, "%s%s", i ? ", " : "", schema->param[i].name);
    fprintf(out, ") ");
    write_call(out, api, schema, given);
}

void api_declare(FILE *out, Api api, const Schema *schema) {
    char name[NAME_SIZE + 16];
    fprintf(out, "\n/* %s(%s) */\nCB_API ", schema->name, schema->text);
    api_signature(out, api, schema, false);
    fprintf(out, ";\n");
    if (takes_operands(schema)) write_at(out, api, schema);
    snprintf(name, sizeof name, "%s%s", api.prefix, schema->name);
    if (schema->required == schema->count) {
        write_macro(out, api, schema, name, schema->count);
        return;
    }
    const char *rest = api.prefix + strlen("cb_"); /* CB_sum_2, CB_nn_elu_1 */
    for (int given = schema->required; given <= schema->count; given++) {
        snprintf(name, sizeof name, "CB_%s%s_%d", rest, schema->name, given);
        write_macro(out, api, schema, name, given);
    }
    bool may_be_empty = schema->required == 0;
    if (may_be_empty)
        fprintf(out,
                "#define %s%s(...) CB_PASTE(CB_%s%s_some_, CB_IS_EMPTY(__VA_ARGS__))(__VA_ARGS__)\n"
                "#define CB_%s%s_some_1 CB_%s%s_0\n#define CB_%s%s_some_0",
                api.prefix, schema->name, rest, schema->name, rest, schema->name, rest,
                schema->name, rest, schema->name);
    else
        fprintf(out, "#define %s%s", api.prefix, schema->name);
    fprintf(out, "(...) CB_PICK_%d(__VA_ARGS__, ", schema->count);
    for (int given = schema->count; given > 0; given--) {
        if (given >= schema->required)
            fprintf(out, "CB_%s%s_%d, ", rest, schema->name, given);
        else
            fprintf(out, "CB_TOO_FEW_ARGUMENTS, ");
    }
    fprintf(out, ")(__VA_ARGS__)\n");
}

void api_pack(FILE *out, const char *op, const char *attribute, const SchemaParam *param) {
    if (param->type == DIMS)
        fprintf(out, "    attr_set_dims(&attrs, ATTR_%s_%s, %s);\n", op, attribute, param->name);
    else if (param->type == FLOATS)
        fprintf(out, "    attr_set_floats(&attrs, ATTR_%s_%s, %s);\n", op, attribute, param->name);
    else if (param->type == NUMBER)
        fprintf(out,
                "    if (!attr_take_number(&attrs, ATTR_%s_%s, %s, \"%s\", \"%s\")) return NULL;\n",
                op, attribute, param->name, op, param->name);
    else if (param->type == FLOAT)
        fprintf(out, "    attr_set_float(&attrs, ATTR_%s_%s, %s);\n", op, attribute, param->name);
    else
        fprintf(out, "    attrs.word[ATTR_%s_%s] = %s;\n", op, attribute, param->name);
}
