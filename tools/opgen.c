/* Build-time generator: the rows of src/op/ops.def become the C API and the parsed op table, those
 * of src/nn/layers.def the constructors of layers (opgen_layers.c).
 *
 *     opgen SOURCE_DIR OUT_DIR
 *
 * In:  ops.def (included through op_rows.h, so the preprocessor does the reading) and the scalar
 *      functions src/op/math_*.h.
 * Out: carbide_ops.h (public declarations and macros), op_calls.h (the same inside), op_attrs.h
 *      (ATTR_op_param offsets),
 * ops_api.c
 *      (definitions), op_table.c (OpInfo rows), math_text.c (the scalar functions as text).
 *
 * A row that makes no sense ends the build with a message that names it. Example, for the schema
 * "x, dim:dims=all, keepdim:bool=false" of sum:
 *
 *     CB_API cb_tensor *cb_sum(cb_tensor *x, cb_dim_list dim, bool keepdim);
 *     CB_AT_GIVES(cb_tensor *, cb_sum, (...), (x, dim, keepdim))
 *     #define CB_sum_1(x) CB_AT(cb_sum, x, CB_ALL, false)
 *     #define CB_sum_2(x, dim) ...
 *     #define cb_sum(...) CB_PICK_3(__VA_ARGS__, CB_sum_3, CB_sum_2, CB_sum_1, )(__VA_ARGS__)
 */
#include "opgen.h"

#include <stdlib.h>
#include <string.h>

typedef enum RowKind { ROW_SPECIAL, ROW_OPERAND, ROW_TENSOR, ROW_INTERNAL } RowKind;

typedef struct Row {
    const char *name;
    RowKind api; /* what the C function takes: operands, tensors, or there is none */
    const char *fx, *kind, *schema, *dtype, *flags, *cost, *value, *identity, *formula, *scan_of;
    const char *autocast; /* NULL or "": NONE */
    const char *gradient; /* NULL or "": through the expansion */
} Row;

/* The gradient column as the library has it (op_gradient), but for its spaces. */
#define CODE "@"
#define NONE(reason) "!" reason
#define REFUSED(reason) "?" reason
#define ANOTHER_VIEW NONE("becomes another view")

#define ROW(row_name, ...) {.name = #row_name, __VA_ARGS__},
#define UNARY(n, f, d, c, g, ...)                                                                  \
    ROW(n, .api = ROW_OPERAND, .fx = f, .kind = "POINTWISE", .schema = "x", .dtype = #d,           \
        .cost = #c, .gradient = g, .value = #__VA_ARGS__)
#define BINARY(n, f, l, d, c, g, ...)                                                              \
    ROW(n, .api = ROW_OPERAND, .fx = f, .kind = "POINTWISE", .schema = "a, b", .dtype = #d,        \
        .flags = #l, .cost = #c, .gradient = g, .value = #__VA_ARGS__)
#define TERNARY(n, f, l, d, c, g, ...)                                                             \
    ROW(n, .api = ROW_OPERAND, .fx = f, .kind = "POINTWISE", .schema = "a, b, c", .dtype = #d,     \
        .flags = #l, .cost = #c, .gradient = g, .value = #__VA_ARGS__)
#define INTERNAL(n, arity, d, c, ...)                                                              \
    ROW(n, .api = ROW_INTERNAL, .fx = "carbide." #n, .kind = "POINTWISE",                          \
        .schema = (arity) == 1   ? "a"                                                             \
                  : (arity) == 2 ? "a, b"                                                          \
                                 : "a, b, c",                                                      \
        .flags = "LOWERED", .dtype = #d, .cost = #c, .value = #__VA_ARGS__,                        \
        .gradient = NONE("lowering makes it"))
#define REDUCE(n, f, d, a, i, g, ...)                                                              \
    ROW(n, .api = ROW_TENSOR, .fx = f, .kind = "REDUCE",                                           \
        .schema = "x, dim:dims=all, keepdim:bool=false", .dtype = #d, .cost = "1",                 \
        .value = #__VA_ARGS__, .identity = #i, .autocast = #a, .gradient = g)
#define SCAN(n, f, s, d, r, g)                                                                     \
    ROW(n, .api = ROW_TENSOR, .fx = f, .kind = "SCAN", .schema = s, .dtype = #d, .cost = "1",      \
        .scan_of = #r, .gradient = g)
#define VIEW(n, f, s, g)                                                                           \
    ROW(n, .api = ROW_TENSOR, .fx = f, .kind = "VIEW", .schema = s, .dtype = "KEEP", .gradient = g)
#define STRUCTURED(n, f, k, s, d, g, ...)                                                          \
    ROW(n, .api = ROW_TENSOR, .fx = f, .kind = #k, .schema = s, .dtype = #d,                       \
        .autocast = #__VA_ARGS__, .gradient = g)
#define COMPOSITE(n, f, d, s, ...)                                                                 \
    ROW(n, .api = ROW_TENSOR, .fx = f, .kind = "COMPOSITE", .schema = s, .dtype = #d,              \
        COMPOSITE_TEXTS(__VA_ARGS__, , , ))
#define COMPOSITE_TEXTS(t, a, g, ...) .formula = t, .autocast = #a, .gradient = "" g
#define HIDDEN(n, k, s, d, t, g)                                                                   \
    ROW(n, .api = ROW_INTERNAL, .fx = "carbide." #n, .kind = #k, .schema = s, .dtype = #d,         \
        .flags = "LOWERED", .formula = t, .gradient = g)
#define CUSTOM(n, s)                                                                               \
    ROW(n, .api = ROW_INTERNAL, .fx = "carbide." #n, .kind = "CUSTOM", .schema = s,                \
        .dtype = "KEEP", .flags = "LOWERED", .gradient = NONE("of a program's own"))

static const Row rows[] = {
    {.name = "input",
     .fx = "placeholder",
     .kind = "SPECIAL",
     .schema = "number:int",
     .dtype = "KEEP",
     .gradient = NONE("no input")},
    {.name = "constant",
     .fx = "constant",
     .kind = "SPECIAL",
     .schema = "bits:int",
     .dtype = "KEEP",
     .gradient = NONE("no input")},
#include "op/op_rows.h"
};
enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

static Schema schemas[ROW_COUNT];

static void parse_attributes(Schema *schema) {
    schema_parse(schema);
    if (schema->words > MAX_WORDS)
        schema_refuse(schema, "attributes take more than %d words", MAX_WORDS);
    if (schema->count > MAX_OP_PARAMS)
        schema_refuse(schema, "more than %d parameters", MAX_OP_PARAMS);
    for (int i = 0; i < schema->count; i++) {
        const SchemaParam *param = &schema->param[i];
        if (param->type == TEXT || param->same_as >= 0)
            schema_refuse(schema, "%s: only layers have texts, and lists like others", param->name);
    }
}

const Schema *op_schema(const char *name) {
    for (int i = 0; i < ROW_COUNT; i++)
        if (!strcmp(rows[i].name, name)) return &schemas[i];
    return NULL;
}

/* A statement "dNAME = ..." per input that has a gradient, or none of them named; other names are
 * used behind where they stand. */
static void check_gradient(const Row *row, const Schema *schema) {
    const char *text = row->gradient;
    bool any = false, composite = !strcmp(row->kind, "COMPOSITE");
    if (!text || !*text) {
        if (!composite) schema_refuse(schema, "a gradient, CODE or NONE(\"why\") is missing");
        return;
    }
    if (*text == '@' || *text == '!' || *text == '?') return;
    for (int i = 0; i < schema->count; i++) {
        char name[NAME_SIZE + 8];
        snprintf(name, sizeof name, "d%s = ", schema->param[i].name);
        const char *at = strstr(text, name);
        any |= at && (at == text || at[-1] == ' ') && param_is_tensor(&schema->param[i]);
    }
    if (!any && strstr(text, " = "))
        schema_refuse(schema, "the gradient \"%s\" is that of no input", text);
}

/* Reads all rows; the columns that are tokens are checked here, so that errors name the row. */
static void parse_rows(void) {
    for (int i = 0; i < ROW_COUNT; i++) {
        const Row *row = &rows[i];
        schemas[i] = (Schema){"src/op/ops.def", "op", row->name, row->schema};
        parse_attributes(&schemas[i]);
        for (int k = 0; k < i; k++)
            if (!strcmp(row->name, rows[k].name))
                schema_refuse(&schemas[i], "the name is taken twice");
        if (!one_of(row->kind, "SPECIAL POINTWISE REDUCE SCAN VIEW SOURCE RANDOM JOIN GATHER "
                               "SCATTER CONTRACT OPAQUE CUSTOM COMPOSITE"))
            schema_refuse(&schemas[i], "unknown kind %s", row->kind);
        if (!one_of(row->dtype, "SAME NUMERIC FLOAT FLOATING BOOL LOGICAL INT SHIFT WHERE "
                                "SUM KEEP INDEX ATTR I64"))
            schema_refuse(&schemas[i], "unknown dtype rule %s", row->dtype);
        if (row->autocast && *row->autocast && !one_of(row->autocast, "NONE LOWER F32"))
            schema_refuse(&schemas[i], "autocast is NONE, LOWER or F32, not %s", row->autocast);
        check_gradient(row, &schemas[i]);
        bool indexes = one_of(row->kind, "GATHER SCATTER"); /* ATTR_along_dim of op/op.h */
        const char *begins = indexes ? "x, dim:int, index" : "x, dim:int";
        if ((indexes || !strcmp(row->kind, "SCAN")) &&
            strncmp(row->schema, begins, strlen(begins)) != 0)
            schema_refuse(&schemas[i], "the schema of a %s begins with '%s'", row->kind, begins);
        bool reduces = !strcmp(row->kind, "REDUCE");
        if (reduces && strncmp(row->value, "M(", 2) &&
            !(strlen(row->value) == 5 && row->value[0] == 'a' && row->value[4] == 'b'))
            schema_refuse(&schemas[i], "combine is one operator or an M(...), not %s", row->value);
        if (row->scan_of) {
            bool found = false;
            for (int k = 0; k < ROW_COUNT; k++)
                found |= !strcmp(rows[k].kind, "REDUCE") && !strcmp(rows[k].name, row->scan_of);
            if (!found)
                schema_refuse(&schemas[i], "it scans %s, which is no reduction", row->scan_of);
        }
    }
}

/* ---- carbide_ops.h ------------------------------------------------------------------------ */

static Api api_of(const Row *row) { return (Api){"cb_tensor *", "cb_", row->api == ROW_OPERAND}; }

/* CB_IS_EMPTY, after Jens Gustedt: no arguments are the ones with which CB_COMMA () has a comma,
 * and nothing shorter. */
static const char choosing[] =
    "#define CB_PASTE(a, b) CB_PASTE_(a, b)\n"
    "#define CB_PASTE_(a, b) a##b\n"
    "#define CB_COMMA(...) ,\n"
    "#define CB_HAS_COMMA(...) CB_PICK_10(__VA_ARGS__, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, )\n"
    "#define CB_IS_EMPTY(...) \\\n"
    "    CB_IS_EMPTY_4(CB_HAS_COMMA(__VA_ARGS__), CB_HAS_COMMA(CB_COMMA __VA_ARGS__), \\\n"
    "                  CB_HAS_COMMA(__VA_ARGS__ ()), CB_HAS_COMMA(CB_COMMA __VA_ARGS__ ()))\n"
    "#define CB_IS_EMPTY_4(a, b, c, d) CB_IS_EMPTY_5(a, b, c, d)\n"
    "#define CB_IS_EMPTY_5(a, b, c, d) CB_HAS_COMMA(CB_IS_EMPTY_##a##b##c##d)\n"
    "#define CB_IS_EMPTY_0001 ,\n";

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
        "/* CB_PICK_n(arguments, macro for n, ..., macro for 1, ): the macro for their number */"
        "\n");
    for (int n = 1; n <= MAX_PARAMS; n++) {
        fprintf(out, "#define CB_PICK_%d(", n);
        for (int i = 1; i <= n; i++) fprintf(out, "_%d, ", i);
        fprintf(out, "name, ...) name\n");
    }
    fprintf(out, "/* 1 or 0: whether there are no arguments */\n%s", choosing);
    for (int i = 0; i < ROW_COUNT; i++)
        if (rows[i].api == ROW_OPERAND || rows[i].api == ROW_TENSOR)
            api_declare(out, api_of(&rows[i]), &schemas[i]);
    fprintf(out, "\n#endif\n");
}

/* ---- op_attrs.h and ops_api.c ------------------------------------------------------------- */

static void write_attrs(FILE *out) {
    fprintf(out, "/* Generated from src/op/ops.def: word offsets of attributes (op.h: Attrs). */\n"
                 "#ifndef CARBIDE_OP_ATTRS_H\n#define CARBIDE_OP_ATTRS_H\n\nenum {\n");
    for (int i = 0; i < ROW_COUNT; i++)
        for (int k = 0; k < schemas[i].count; k++) {
            const SchemaParam *param = &schemas[i].param[k];
            if (param->word >= 0)
                fprintf(out, "    ATTR_%s_%s = %d,\n", rows[i].name, param->name, param->word);
        }
    fprintf(out, "};\n\n#endif\n");
}

/* The function that users call takes handles; op_NAME, which the library calls, tensors. Each sets
 * all words that its op has, and no other. */
static void write_function(FILE *out, const Row *row, const Schema *schema, bool inside) {
    Api api = api_of(row);
    fprintf(out, inside ? "\nstatic inline " : "\n");
    if (inside) api.result = "Tensor *", api.prefix = "op_";
    api_signature(out, api, schema, !inside);
    fprintf(out, schema->words ? " {\n    Attrs attrs;\n" : " {\n");
    if (!inside && !schema->words && schema->tensors == 2) {
        const char *wrap = row->api == ROW_OPERAND ? "" : "cb_operand_tensor";
        fprintf(out, "    return apply_two(%s(%s), %s(%s), OP_%s);\n}\n", wrap,
                schema->param[0].name, wrap, schema->param[1].name, row->name);
        return;
    }
    for (int i = 0; i < schema->count; i++)
        if (!param_is_tensor(&schema->param[i]))
            api_pack(out, row->name, schema->param[i].name, &schema->param[i]);
    if (schema->tensors) {
        fprintf(out, "    cb_operand input[] = {");
        for (int i = 0, put = 0; i < schema->count; i++) {
            const SchemaParam *param = &schema->param[i];
            if (!param_is_tensor(param)) continue;
            if (put++) fprintf(out, ", ");
            fprintf(out, row->api == ROW_OPERAND ? "%s" : "cb_operand_tensor(%s)", param->name);
        }
        fprintf(out, "};\n");
    }
    fprintf(out, "    return %s(OP_%s, %s, %d, &%s);\n}\n", inside ? "apply_call" : "apply_handles",
            row->name, schema->tensors ? "input" : "NULL", schema->tensors,
            schema->words ? "attrs" : "attrs_none");
}

static void write_functions(FILE *out, bool inside) {
    for (int i = 0; i < ROW_COUNT; i++)
        if (rows[i].api == ROW_OPERAND || rows[i].api == ROW_TENSOR)
            write_function(out, &rows[i], &schemas[i], inside);
}

static void write_api(FILE *out) {
    fprintf(out, "/* Generated from src/op/ops.def: the public op functions pack and apply. */\n"
                 "#include \"eager/apply.h\"\n");
    write_functions(out, false);
}

static void write_calls(FILE *out) {
    fprintf(out, "/* Generated from src/op/ops.def: the same for the library's own calls, with\n"
                 " * tensors in place of handles. */\n"
                 "#ifndef CARBIDE_OP_CALLS_H\n#define CARBIDE_OP_CALLS_H\n\n"
                 "#include \"eager/apply.h\"\n");
    write_functions(out, true);
    fprintf(out, "\n#endif\n");
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

static void write_param(FILE *out, const SchemaParam *param) {
    fprintf(out, "    {.name = \"%s\", .type = %s, .word = %d", param->name,
            type_info[param->type].param, param->word);
    if (param->macro[0]) {
        const char *value = param->type == OPTIONAL ? "0" : param->macro;
        fprintf(out, ", .has_default = true");
        if (param->type == DIMS)
            fprintf(out, ", .default_int = %d, .default_at = %s", param->count,
                    param->count > 0 ? param->text : "0");
        else if (param->type == NUMBER)
            fprintf(out, ", .default_number = {.kind = %s, .%s = %s}", param->number,
                    strstr(param->number, "FLOAT") ? "f" : "i",
                    !strcmp(param->text, "none") ? "0" : param->text);
        else if (param->type != FLOATS)
            fprintf(out, ", .default_%s = %s", param->type == FLOAT ? "float" : "int", value);
    }
    if (strcmp(param->varies, "NOT") != 0) fprintf(out, ", .varies = VARIES_%s", param->varies);
    fprintf(out, "},\n");
}

/* The first row with this schema: those that have it too share its parameters. */
static const char *params_owner(const char *schema) {
    int i = 0;
    while (strcmp(rows[i].schema, schema) != 0) i++;
    return rows[i].name;
}

static void write_params(FILE *out, const Row *row, const Schema *schema) {
    if (params_owner(row->schema) != row->name) return;
    fprintf(out, "static const Param params_%s[] = {\n", row->name);
    for (int i = 0; i < schema->count; i++) write_param(out, &schema->param[i]);
    fprintf(out, "};\n");
}

static void write_table_row(FILE *out, const Row *row, const Schema *schema) {
    const struct {
        const char *field, *text;
    } texts[] = {{"fx", row->fx},
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
    fprintf(out, "        .param = params_%s,\n    },\n", params_owner(row->schema));
}

/* One text of all gradients, each once and ended by NUL, and where each row's begins: pointers
 * would take more room than the texts. */
static void write_gradients(FILE *out) {
    size_t start[ROW_COUNT], used = 1;
    fprintf(out, "\nstatic const char gradients[] = \"\\0\"");
    for (int i = 0; i < ROW_COUNT; i++) {
        const char *text = rows[i].gradient ? rows[i].gradient : "";
        start[i] = 0;
        for (int k = 0; k < i && *text; k++)
            if (rows[k].gradient && !strcmp(rows[k].gradient, text)) start[i] = start[k];
        if (!*text || start[i]) continue;
        start[i] = used;
        fprintf(out, "\n    \"");
        for (; *text; text++)
            if (*text != ' ' || *rows[i].gradient == '!' || *rows[i].gradient == '?')
                fputc(*text, out), used++;
        fprintf(out, "\\0\""), used++;
    }
    fprintf(out, ";\nstatic const uint16_t gradient_of[OP_COUNT] = {\n");
    for (int i = 0; i < ROW_COUNT; i++)
        if (start[i]) fprintf(out, "    [OP_%s] = %zu,\n", rows[i].name, start[i]);
    fprintf(out, "};\n\nconst char *op_gradient(Op op) { return gradients + gradient_of[op]; }\n");
}

static void write_table(FILE *out) {
    fprintf(out,
            "/* Generated from src/op/ops.def: the op table with parsed schemas. */\n"
            "#include \"op/op.h\"\n\n"
            "_Static_assert(OP_MAX_PARAMS == %d && OP_MAX_INPUTS == %d && ATTR_WORDS > %d &&\n"
            "                   LIST_WORDS == %d && NUMBER_WORDS == %d,\n"
            "               \"tools/opgen.c and op/op.h disagree\");\n\n",
            MAX_OP_PARAMS, MAX_TENSORS, MAX_WORDS, LIST_WORDS, NUMBER_WORDS);
    for (int i = 0; i < ROW_COUNT; i++) write_params(out, &rows[i], &schemas[i]);
    fprintf(out, "\nstatic const OpInfo op_table[OP_COUNT] = {\n"
                 "    [OP_none] = {.name = \"none\", .fx = \"none\"},\n");
    for (int i = 0; i < ROW_COUNT; i++) write_table_row(out, &rows[i], &schemas[i]);
    fprintf(out, "};\n\nconst OpInfo *op_info(Op op) {\n"
                 "    check((unsigned)op < OP_COUNT, \"op %%d\", (int)op);\n"
                 "    return &op_table[op];\n}\n");
    write_gradients(out);
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

/* What a compiler needs of a C text, in place: without comments, indentation and empty lines. */
static void compact(char *text) {
    char *to = text;
    for (const char *at = text; *at;) {
        if (!strncmp(at, "/*", 2)) {
            at = strstr(at, "*/") + 2;
        } else if ((to == text || to[-1] == '\n') && strchr(" \n", *at)) {
            at++;
        } else {
            if (*at == '\n')
                while (to > text && to[-1] == ' ') to--;
            *to++ = *at++;
        }
    }
    *to = '\0';
}

static void write_math(FILE *out) {
    const char *types[] = {"f32", "f32_angles", "f64", "f64_angles", "int"};
    fprintf(out,
            "/* Generated: src/op/math_*.h as text, for generated code; comments stay there. */\n"
            "#include \"op/math_text.h\"\n");
    for (int i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "math_%s.h", types[i]);
        char *text = read_text(name);
        if (text) compact(text);
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

static void write_api_functions(FILE *out) { functions_write(out, source_dir); }

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: opgen SOURCE_DIR OUT_DIR\n");
        return 2;
    }
    source_dir = argv[1];
    parse_rows();
    layers_parse();
    write_file(argv[2], "carbide_ops.h", write_header);
    write_file(argv[2], "op_attrs.h", write_attrs);
    write_file(argv[2], "op_calls.h", write_calls);
    write_file(argv[2], "ops_api.c", write_api);
    write_file(argv[2], "op_table.c", write_table);
    write_file(argv[2], "math_text.c", write_math);
    write_file(argv[2], "carbide_layers.h", layers_write_header);
    write_file(argv[2], "layers_api.c", layers_write_api);
    write_file(argv[2], "api_functions.h", write_api_functions);
    return 0;
}
