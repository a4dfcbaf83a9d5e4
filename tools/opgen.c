/* Build-time generator: the rows of src/op/ops.def become the C API and the parsed op table.
 *
 *     opgen SOURCE_DIR OUT_DIR
 *
 * In:  ops.def (included through op_rows.h, so the preprocessor does the reading) and the scalar
 *      functions src/op/math_*.h.
 * Out: carbide_ops.h (public declarations and macros), op_attrs.h (ATTR_op_param offsets),
 * ops_api.c
 *      (definitions), op_table.c (OpInfo rows), math_text.c (the scalar functions as text).
 *
 * A row that makes no sense ends the build with a message that names it. Example, for the schema
 * "x, dim:dims=all, keepdim:bool=false" of sum:
 *
 *     CB_API cb_tensor *cb_sum(cb_tensor *x, cb_dim_list dim, bool keepdim);
 *     #define CB_sum_1(x) (CB_HERE, (cb_sum)(x, CB_ALL, false))
 *     #define CB_sum_2(x, dim) ...
 *     #define cb_sum(...) CB_PICK_3(__VA_ARGS__, CB_sum_3, CB_sum_2, CB_sum_1, )(__VA_ARGS__)
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARAMS = 8, MAX_TENSORS = 5, MAX_WORDS = 47, DIMS_WORDS = 9, NAME_SIZE = 32 };

typedef enum RowKind { ROW_SPECIAL, ROW_OPERAND, ROW_TENSOR, ROW_INTERNAL } RowKind;

typedef struct Row {
    const char *name;
    RowKind api; /* what the C function takes: operands, tensors, or there is none */
    const char *fx, *kind, *schema, *dtype, *flags, *cost, *value, *identity, *formula, *scan_of;
    const char *autocast; /* NULL or "": NONE */
} Row;

#define ROW(row_name, ...) {.name = #row_name, __VA_ARGS__},
#define UNARY(n, f, d, c, ...)                                                                     \
    ROW(n, .api = ROW_OPERAND, .fx = f, .kind = "POINTWISE", .schema = "x", .dtype = #d,           \
        .cost = #c, .value = #__VA_ARGS__)
#define BINARY(n, f, g, d, c, ...)                                                                 \
    ROW(n, .api = ROW_OPERAND, .fx = f, .kind = "POINTWISE", .schema = "a, b", .dtype = #d,        \
        .flags = #g, .cost = #c, .value = #__VA_ARGS__)
#define TERNARY(n, f, g, d, c, ...)                                                                \
    ROW(n, .api = ROW_OPERAND, .fx = f, .kind = "POINTWISE", .schema = "a, b, c", .dtype = #d,     \
        .flags = #g, .cost = #c, .value = #__VA_ARGS__)
#define INTERNAL(n, arity, d, c, ...)                                                              \
    ROW(n, .api = ROW_INTERNAL, .fx = "carbide." #n, .kind = "POINTWISE",                          \
        .schema = (arity) == 1   ? "a"                                                             \
                  : (arity) == 2 ? "a, b"                                                          \
                                 : "a, b, c",                                                      \
        .flags = "LOWERED", .dtype = #d, .cost = #c, .value = #__VA_ARGS__)
#define REDUCE(n, f, d, a, i, ...)                                                                 \
    ROW(n, .api = ROW_TENSOR, .fx = f, .kind = "REDUCE",                                           \
        .schema = "x, dim:dims=all, keepdim:bool=false", .dtype = #d, .cost = "1",                 \
        .value = #__VA_ARGS__, .identity = #i, .autocast = #a)
#define SCAN(n, f, s, d, r)                                                                        \
    ROW(n, .api = ROW_TENSOR, .fx = f, .kind = "SCAN", .schema = s, .dtype = #d, .cost = "1",      \
        .scan_of = #r)
#define VIEW(n, f, s)                                                                              \
    ROW(n, .api = ROW_TENSOR, .fx = f, .kind = "VIEW", .schema = s, .dtype = "KEEP")
#define STRUCTURED(n, f, k, s, d, ...)                                                             \
    ROW(n, .api = ROW_TENSOR, .fx = f, .kind = #k, .schema = s, .dtype = #d,                       \
        .autocast = #__VA_ARGS__)
#define COMPOSITE(n, f, s, t, ...)                                                                 \
    ROW(n, .api = ROW_TENSOR, .fx = f, .kind = "COMPOSITE", .schema = s, .dtype = "SAME",          \
        .formula = t, .autocast = #__VA_ARGS__)

static const Row rows[] = {
    {.name = "input",
     .fx = "placeholder",
     .kind = "SPECIAL",
     .schema = "number:int",
     .dtype = "KEEP"},
    {.name = "constant",
     .fx = "constant",
     .kind = "SPECIAL",
     .schema = "bits:int",
     .dtype = "KEEP"},
#include "op/op_rows.h"
};
enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

typedef enum Type { TENSOR, OPTIONAL, INT, FLOAT, BOOL, DTYPE, DIMS } Type;

static const struct {
    const char *name, *c_type, *param;
} type_info[] = {
    [TENSOR] = {"tensor", "cb_tensor *", "PARAM_TENSOR"},
    [OPTIONAL] = {"tensor", "cb_tensor *", "PARAM_OPTIONAL_TENSOR"},
    [INT] = {"int", "int64_t ", "PARAM_INT"},
    [FLOAT] = {"float", "double ", "PARAM_FLOAT"},
    [BOOL] = {"bool", "bool ", "PARAM_BOOL"},
    [DTYPE] = {"dtype", "cb_dtype ", "PARAM_DTYPE"},
    [DIMS] = {"dims", "cb_dim_list ", "PARAM_DIMS"},
};

typedef struct Param {
    char name[NAME_SIZE];
    Type type;
    char text[NAME_SIZE]; /* default as the schema has it, "" for none */
    char macro[48];       /* default as a C expression of the public header */
    int word;             /* attributes only, else -1 */
    int count;            /* dims: of the default list */
} Param;

typedef struct Schema {
    Param param[MAX_PARAMS];
    int count, tensors, words, required; /* required: parameters before the first default */
} Schema;

static Schema schemas[ROW_COUNT];

static void __attribute__((noreturn, format(printf, 2, 3)))
refuse(const Row *row, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "src/op/ops.def: op %s: ", row->name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n    schema \"%s\"\n", row->schema);
    va_end(arguments);
    exit(1);
}

/* ---- schemas ------------------------------------------------------------------------------ */

static bool is_tensor(const Param *param) {
    return param->type == TENSOR || param->type == OPTIONAL;
}

static bool is_name(const char *text) {
    if (!isalpha((unsigned char)*text)) return false;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && *text != '_') return false;
    return true;
}

static bool one_of(const char *text, const char *list) {
    size_t length = strlen(text);
    for (const char *at = strstr(list, text); at; at = strstr(at + 1, text))
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return length > 0;
    return false;
}

static Type parse_type(const Row *row, const char *text) {
    for (Type type = INT; type <= DIMS; type++)
        if (!strcmp(text, type_info[type].name)) return type;
    refuse(row, "unknown type '%s'; int, float, bool, dtype and dims exist", text);
}

static void default_float(const Row *row, Param *param) {
    if (!strcmp(param->text, "inf") || !strcmp(param->text, "-inf")) {
        bool negative = param->text[0] == '-';
        snprintf(param->macro, sizeof param->macro, "%s__builtin_inf()", negative ? "-" : "");
        return;
    }
    char *end;
    strtod(param->text, &end);
    if (*end) refuse(row, "'%s' is no number", param->text);
    bool whole = !strpbrk(param->text, ".e");
    snprintf(param->macro, sizeof param->macro, "%s%s", param->text, whole ? ".0" : "");
}

/* "all", "none", or one integer: a list of it, which the op repeats for each of its dimensions. */
static void default_dims(const Row *row, Param *param) {
    const char *text = param->text;
    char *end;
    param->count = !strcmp(text, "all") ? -1 : strcmp(text, "none") != 0;
    if (param->count <= 0) {
        snprintf(param->macro, sizeof param->macro, param->count < 0 ? "CB_ALL" : "CB_NO_DIMS");
        return;
    }
    strtoll(text, &end, 10);
    if (*end) refuse(row, "the default of dims is 'all', 'none' or an integer, not '%s'", text);
    snprintf(param->macro, sizeof param->macro, "cb_dims_one(%s)", text);
}

/* The default as C, checked against the type. */
static void parse_default(const Row *row, Param *param) {
    const char *text = param->text;
    char *end;
    switch (param->type) {
    case TENSOR:
    case OPTIONAL:
        refuse(row, "tensor %s has a default; write %s?", param->name, param->name);
    case FLOAT:
        default_float(row, param);
        return;
    case INT:
        strtoll(text, &end, 10);
        if (*end) refuse(row, "'%s' is no integer", text);
        snprintf(param->macro, sizeof param->macro, "%s", text);
        return;
    case BOOL:
        if (!one_of(text, "true false")) refuse(row, "'%s' is neither true nor false", text);
        snprintf(param->macro, sizeof param->macro, "%s", text);
        return;
    case DTYPE:
        if (!one_of(text, "bool u8 i8 i16 i32 i64 f16 bf16 f32 f64 same"))
            refuse(row, "'%s' is no dtype", text);
        snprintf(param->macro, sizeof param->macro, "CB_%s", text);
        for (char *c = param->macro; *c; c++) *c = (char)toupper((unsigned char)*c);
        return;
    case DIMS:
        default_dims(row, param);
        return;
    }
}

/* One parameter, in place: "name", "name?", "name:type" or "name:type=default". */
static void parse_param(const Row *row, Schema *schema, char *text) {
    if (schema->count == MAX_PARAMS) refuse(row, "more than %d parameters", MAX_PARAMS);
    Param *param = &schema->param[schema->count++];
    param->word = -1;
    char *colon = strchr(text, ':'), *equals = strchr(text, '=');
    if (equals) *equals++ = '\0';
    if (colon) *colon++ = '\0';
    size_t length = strlen(text);
    if (!colon && length && text[length - 1] == '?') {
        text[length - 1] = '\0';
        param->type = OPTIONAL;
        strcpy(param->macro, "NULL");
    }
    if (colon) param->type = parse_type(row, colon);
    if (!is_name(text) || strlen(text) >= NAME_SIZE) refuse(row, "'%s' is no name", text);
    strcpy(param->name, text);
    if (equals) {
        if (!*equals || strlen(equals) >= NAME_SIZE) refuse(row, "bad default of %s", text);
        strcpy(param->text, equals);
        parse_default(row, param);
    }
    if (is_tensor(param)) {
        if (++schema->tensors > MAX_TENSORS) refuse(row, "more than %d tensors", MAX_TENSORS);
    } else {
        param->word = schema->words;
        schema->words += param->type == DIMS ? DIMS_WORDS : 1;
    }
}

static void parse_schema(const Row *row, Schema *schema) {
    char text[256], *at = text;
    if (strlen(row->schema) >= sizeof text) refuse(row, "schema too long");
    strcpy(text, row->schema);
    while (at) {
        char *comma = strchr(at, ',');
        if (comma) *comma++ = '\0';
        at += strspn(at, " ");
        parse_param(row, schema, at);
        at = comma;
    }
    if (schema->words > MAX_WORDS) refuse(row, "attributes take more than %d words", MAX_WORDS);
    for (int i = 0; i < schema->count; i++) {
        bool optional = schema->param[i].macro[0] != '\0';
        if (!optional && schema->required < i) {
            refuse(row, "%s stands behind a default and has none", schema->param[i].name);
        }
        if (!optional) schema->required = i + 1;
        for (int k = 0; k < i; k++)
            if (!strcmp(schema->param[i].name, schema->param[k].name))
                refuse(row, "two parameters are named %s", schema->param[i].name);
    }
}

/* Reads all rows; the columns that are tokens are checked here, so that errors name the row. */
static void parse_rows(void) {
    for (int i = 0; i < ROW_COUNT; i++) {
        const Row *row = &rows[i];
        parse_schema(row, &schemas[i]);
        for (int k = 0; k < i; k++)
            if (!strcmp(row->name, rows[k].name)) refuse(row, "the name is taken twice");
        if (!one_of(row->kind, "SPECIAL POINTWISE REDUCE SCAN VIEW SOURCE RANDOM INDEX CONTRACT "
                               "OPAQUE COMPOSITE"))
            refuse(row, "unknown kind %s", row->kind);
        if (!one_of(row->dtype, "SAME NUMERIC FLOAT BOOL LOGICAL INT SHIFT WHERE SUM KEEP INDEX "
                                "ATTR I64"))
            refuse(row, "unknown dtype rule %s", row->dtype);
        if (row->autocast && *row->autocast && !one_of(row->autocast, "NONE LOWER F32"))
            refuse(row, "autocast is NONE, LOWER or F32, not %s", row->autocast);
        if (row->scan_of) {
            bool found = false;
            for (int k = 0; k < ROW_COUNT; k++)
                found |= !strcmp(rows[k].kind, "REDUCE") && !strcmp(rows[k].name, row->scan_of);
            if (!found) refuse(row, "it scans %s, which is no reduction", row->scan_of);
        }
    }
}

/* ---- carbide_ops.h ------------------------------------------------------------------------ */

static const char *c_type(const Row *row, const Param *param) {
    if (row->api == ROW_OPERAND && is_tensor(param)) return "cb_operand ";
    return type_info[param->type].c_type;
}

static void write_signature(FILE *out, const Row *row, const Schema *schema, const char *name) {
    fprintf(out, "cb_tensor *%s(", name);
    for (int i = 0; i < schema->count; i++)
        fprintf(out, "%s%s%s", i ? ", " : "", c_type(row, &schema->param[i]),
                schema->param[i].name);
    fprintf(out, ")");
}

/* The macro's body with the first `given` arguments taken and the others at their defaults. */
static void write_call(FILE *out, const Row *row, const Schema *schema, int given) {
    fprintf(out, "(CB_HERE, (cb_%s)(", row->name);
    for (int i = 0; i < schema->count; i++) {
        const Param *param = &schema->param[i];
        const char *wrap = row->api == ROW_OPERAND && is_tensor(param) ? "cb_operand_of"
                           : param->type == DIMS                       ? "cb_dims_of"
                                                                       : "";
        if (i) fprintf(out, ", ");
        if (i >= given)
            fprintf(out, "%s", param->macro);
        else
            fprintf(out, *wrap ? "%s(%s)" : "%s%s", wrap, param->name);
    }
    fprintf(out, "))\n");
}

static void write_macro(FILE *out, const Row *row, const Schema *schema, const char *name,
                        int given) {
    fprintf(out, "#define %s(", name);
    for (int i = 0; i < given; i++) fprintf(out, "%s%s", i ? ", " : "", schema->param[i].name);
    fprintf(out, ") ");
    write_call(out, row, schema, given);
}

static void write_api_row(FILE *out, const Row *row, const Schema *schema) {
    char name[NAME_SIZE + 16];
    snprintf(name, sizeof name, "cb_%s", row->name);
    fprintf(out, "\n/* %s(%s) */\nCB_API ", row->name, row->schema);
    write_signature(out, row, schema, name);
    fprintf(out, ";\n");
    if (schema->required == schema->count) {
        write_macro(out, row, schema, name, schema->count);
        return;
    }
    for (int given = schema->required; given <= schema->count; given++) {
        snprintf(name, sizeof name, "CB_%s_%d", row->name, given);
        write_macro(out, row, schema, name, given);
    }
    fprintf(out, "#define cb_%s(...) CB_PICK_%d(__VA_ARGS__, ", row->name, schema->count);
    for (int given = schema->count; given > 0; given--) {
        if (given >= schema->required)
            fprintf(out, "CB_%s_%d, ", row->name, given);
        else
            fprintf(out, "cb_too_few_arguments, ");
    }
    fprintf(out, ")(__VA_ARGS__)\n");
}

static void write_header(FILE *out) {
    fprintf(
        out,
        "/* Generated from src/op/ops.def by tools/opgen.c: the ops of carbide.h, which includes "
        "this.\n"
        " *\n"
        " * Every op is a function and a macro of the same name. The macro notes the source line "
        "of the\n"
        " * call, takes a number where the function takes an operand, an integer where it takes "
        "dims,\n"
        " * and fills in the defaults of trailing arguments that are left out. */\n"
        "#ifndef CARBIDE_OPS_H\n#define CARBIDE_OPS_H\n\n"
        "#ifdef CARBIDE_BUILD /* the library's own calls keep the line of the user's call */\n"
        "#define CB_HERE ((void)0)\n#else\n#define CB_HERE cb_site(__FILE__, __LINE__)\n"
        "#endif\n\n"
        "/* CB_PICK_n(arguments, macro for n, ..., macro for 1, ): the macro for their number */"
        "\n");
    for (int n = 1; n <= MAX_PARAMS; n++) {
        fprintf(out, "#define CB_PICK_%d(", n);
        for (int i = 1; i <= n; i++) fprintf(out, "_%d, ", i);
        fprintf(out, "name, ...) name\n");
    }
    for (int i = 0; i < ROW_COUNT; i++)
        if (rows[i].api == ROW_OPERAND || rows[i].api == ROW_TENSOR)
            write_api_row(out, &rows[i], &schemas[i]);
    fprintf(out, "\n#endif\n");
}

/* ---- op_attrs.h and ops_api.c ------------------------------------------------------------- */

static void write_attrs(FILE *out) {
    fprintf(out, "/* Generated from src/op/ops.def: word offsets of attributes (op.h: Attrs). */\n"
                 "#ifndef CARBIDE_OP_ATTRS_H\n#define CARBIDE_OP_ATTRS_H\n\nenum {\n");
    for (int i = 0; i < ROW_COUNT; i++)
        for (int k = 0; k < schemas[i].count; k++) {
            const Param *param = &schemas[i].param[k];
            if (param->word >= 0)
                fprintf(out, "    ATTR_%s_%s = %d,\n", rows[i].name, param->name, param->word);
        }
    fprintf(out, "};\n\n#endif\n");
}

static void write_packing(FILE *out, const Row *row, const Param *param) {
    const char *n = param->name;
    if (param->type == DIMS)
        fprintf(out, "    attr_set_dims(&attrs, ATTR_%s_%s, %s);\n", row->name, n, n);
    else if (param->type == FLOAT)
        fprintf(out, "    attr_set_float(&attrs, ATTR_%s_%s, %s);\n", row->name, n, n);
    else
        fprintf(out, "    attrs.word[ATTR_%s_%s] = %s;\n", row->name, n, n);
}

static void write_function(FILE *out, const Row *row, const Schema *schema) {
    char name[NAME_SIZE + 16];
    snprintf(name, sizeof name, "(cb_%s)", row->name);
    fprintf(out, "\n");
    write_signature(out, row, schema, name);
    fprintf(out, schema->words ? " {\n    Attrs attrs = {{0}};\n"
                               : " {\n    static const Attrs attrs;\n");
    for (int i = 0; i < schema->count; i++)
        if (!is_tensor(&schema->param[i])) write_packing(out, row, &schema->param[i]);
    if (schema->tensors) {
        fprintf(out, "    const cb_operand input[] = {");
        for (int i = 0, put = 0; i < schema->count; i++) {
            const Param *param = &schema->param[i];
            if (!is_tensor(param)) continue;
            if (put++) fprintf(out, ", ");
            fprintf(out, row->api == ROW_OPERAND ? "%s" : "cb_operand_tensor(%s)", param->name);
        }
        fprintf(out, "};\n");
    }
    fprintf(out, "    return apply(OP_%s, %s, %d, &attrs);\n}\n", row->name,
            schema->tensors ? "input" : "NULL", schema->tensors);
}

static void write_api(FILE *out) {
    fprintf(out, "/* Generated from src/op/ops.def: the public op functions pack and apply. */\n"
                 "#include \"tensor/apply.h\"\n");
    for (int i = 0; i < ROW_COUNT; i++)
        if (rows[i].api == ROW_OPERAND || rows[i].api == ROW_TENSOR)
            write_function(out, &rows[i], &schemas[i]);
}

/* ---- op_table.c and math_text.c ----------------------------------------------------------- */

static void write_string(FILE *out, const char *text) {
    if (!text) {
        fprintf(out, "NULL");
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '\n') {
            fprintf(out, text[1] ? "\\n\"\n    \"" : "\\n");
            continue;
        }
        if (*text == '"' || *text == '\\') fputc('\\', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void write_param(FILE *out, const Param *param) {
    fprintf(out, "            {.name = \"%s\", .type = %s, .word = %d", param->name,
            type_info[param->type].param, param->word);
    if (param->macro[0]) {
        const char *value = param->type == OPTIONAL ? "0" : param->macro;
        fprintf(out, ", .has_default = true");
        if (param->type == DIMS)
            fprintf(out, ", .default_int = %d, .default_at = %s", param->count,
                    param->count > 0 ? param->text : "0");
        else
            fprintf(out, ", .default_%s = %s", param->type == FLOAT ? "float" : "int", value);
    }
    fprintf(out, "},\n");
}

static void write_table_row(FILE *out, const Row *row, const Schema *schema) {
    const struct {
        const char *field, *text;
    } texts[] = {{"fx", row->fx},
                 {"schema", row->schema},
                 {"value", row->value},
                 {"formula", row->formula},
                 {"identity", row->identity}};
    fprintf(out, "    [OP_%s] = {\n        .name = \"%s\",\n", row->name, row->name);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (!texts[i].text) continue;
        fprintf(out, "        .%s = ", texts[i].field);
        write_string(out, texts[i].text);
        fprintf(out, ",\n");
    }
    fprintf(out, "        .kind = KIND_%s,\n        .dtype = DTYPE_%s,\n", row->kind, row->dtype);
    fprintf(out, "        .flags = %s,\n        .cost = %s,\n", row->flags ? row->flags : "0",
            row->cost ? row->cost : "0");
    fprintf(out, "        .arity = %d,\n        .param_count = %d,\n        .word_count = %d,\n",
            schema->tensors, schema->count, schema->words);
    if (row->scan_of) fprintf(out, "        .scan_of = OP_%s,\n", row->scan_of);
    if (row->autocast && *row->autocast)
        fprintf(out, "        .autocast = AUTOCAST_%s,\n", row->autocast);
    fprintf(out, "        .param = {\n");
    for (int i = 0; i < schema->count; i++) write_param(out, &schema->param[i]);
    fprintf(out, "        },\n    },\n");
}

static void write_table(FILE *out) {
    fprintf(out,
            "/* Generated from src/op/ops.def: the op table with parsed schemas. */\n"
            "#include \"op/op.h\"\n\n"
            "_Static_assert(OP_MAX_PARAMS == %d && OP_MAX_INPUTS == %d && ATTR_WORDS > %d &&\n"
            "                   DIMS_WORDS == %d,\n"
            "               \"tools/opgen.c and op/op.h disagree\");\n\n"
            "static const OpInfo op_table[OP_COUNT] = {\n"
            "    [OP_none] = {.name = \"none\", .fx = \"none\", .schema = \"\"},\n",
            MAX_PARAMS, MAX_TENSORS, MAX_WORDS, DIMS_WORDS);
    for (int i = 0; i < ROW_COUNT; i++) write_table_row(out, &rows[i], &schemas[i]);
    fprintf(out, "};\n\nconst OpInfo *op_info(Op op) {\n"
                 "    check((unsigned)op < OP_COUNT, \"op %%d\", (int)op);\n"
                 "    return &op_table[op];\n}\n");
}

static const char *source_dir;

/* The file's text, NUL-terminated; an empty text when it does not exist. */
static char *read_text(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/src/op/%s", source_dir, name);
    FILE *in = fopen(path, "rb");
    char *text = calloc(1, 1);
    size_t length = 0;
    for (int c; text && in && (c = fgetc(in)) != EOF;) {
        if (!((length + 1) & length)) text = realloc(text, 2 * length + 4);
        if (!text) break;
        text[length++] = (char)c;
        text[length] = '\0';
    }
    if (in) fclose(in);
    return text;
}

static void write_math(FILE *out) {
    const char *types[] = {"f32", "f64", "int"};
    fprintf(out, "/* Generated: src/op/math_*.h as text, for generated code. */\n"
                 "#include \"op/math_text.h\"\n");
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "math_%s.h", types[i]);
        char *text = read_text(name);
        fprintf(out, "\nconst char math_text_%s[] =\n    ", types[i]);
        write_string(out, text ? text : "");
        fprintf(out, ";\n");
        free(text);
    }
}

static void write_file(const char *dir, const char *name, void (*write)(FILE *out)) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *out = fopen(path, "w");
    if (out) write(out);
    if (!out || ferror(out) || fclose(out) != 0) {
        perror(path);
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: opgen SOURCE_DIR OUT_DIR\n");
        return 2;
    }
    source_dir = argv[1];
    parse_rows();
    write_file(argv[2], "carbide_ops.h", write_header);
    write_file(argv[2], "op_attrs.h", write_attrs);
    write_file(argv[2], "ops_api.c", write_api);
    write_file(argv[2], "op_table.c", write_table);
    write_file(argv[2], "math_text.c", write_math);
    return 0;
}
