/* What the parts of opgen share: schemas, and the public functions that they describe. */
#ifndef CARBIDE_TOOLS_OPGEN_H
#define CARBIDE_TOOLS_OPGEN_H

#include <stdbool.h>
#include <stdio.h>

enum { MAX_PARAMS = 11, MAX_OP_PARAMS = 11, MAX_TENSORS = 8, MAX_WORDS = 47 };
enum { LIST_WORDS = 9, NUMBER_WORDS = 2, NAME_SIZE = 32 };

/* TEXT: a C string; not an attribute, so layers alone have it. */
typedef enum Type { TENSOR, OPTIONAL, INT, FLOAT, BOOL, DTYPE, DIMS, FLOATS, NUMBER, REDUCTION, TEXT, TYPE_COUNT } Type;

typedef struct TypeInfo {
    const char *name, *c_type, *param;
    const char *wrap; /* what the public macros give an argument to; "": nothing */
} TypeInfo;
extern const TypeInfo type_info[TYPE_COUNT];

typedef struct SchemaParam {
    char name[NAME_SIZE];
    Type type;
    char text[NAME_SIZE]; /* default as the schema has it, "" for none */
    char macro[48];       /* default as a C expression of the public header */
    int word;             /* attributes only, else -1 */
    int count;            /* dims: of the default list */
    bool named;           /* dims: a padding, for which "same" or "valid" may stand */
    const char *number;   /* numbers: the kind of the default, CB_OPERAND_INT */
    const char *varies;   /* the rest of a Varies of op.h */
    int same_as;          /* dims: the parameter that stands in when the list is empty, or -1 */
} SchemaParam;

typedef struct Schema {
    const char *file, *kind, *name, *text; /* "src/op/ops.def", "op", "sum", "x, dim:dims=all" */
    SchemaParam param[MAX_PARAMS];
    int count, tensors, words, required; /* required: parameters before the first default */
} Schema;

/* Reads schema->text into the rest; ends the program with a message when it makes no sense. */
void schema_parse(Schema *schema);
void __attribute__((noreturn, format(printf, 2, 3)))
schema_refuse(const Schema *schema, const char *format, ...);
bool param_is_tensor(const SchemaParam *param);
bool one_of(const char *text, const char *list); /* a word of a list with spaces between */

/* The declaration "result *prefix_name(parameters)" and its macros, which fill in defaults. */
typedef struct Api {
    const char *result, *prefix; /* "cb_tensor *", "cb_" */
    bool operands;               /* tensors are taken as cb_operand, numbers too */
} Api;
void api_signature(FILE *out, Api api, const Schema *schema, bool in_parentheses);
void api_declare(FILE *out, Api api, const Schema *schema);
/* Statements that pack a parameter into attrs, under the name of an op's attribute. */
void api_pack(FILE *out, const char *op, const char *attribute, const SchemaParam *param);

/* tools/opgen_layers.c */
const Schema *op_schema(const char *name); /* NULL: there is no such op */
void layers_parse(void);
void layers_write_header(FILE *out);
void layers_write_api(FILE *out);
void layers_list(FILE *out); /* rows as those of functions_write */

/* tools/opgen_functions.c */
void functions_write(FILE *out, const char *source_dir);

#endif
