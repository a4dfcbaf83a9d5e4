/* The rows of src/nn/layers.def become the constructors of layers.
 *
 * Out: carbide_layers.h (declarations, macros that fill in defaults), layers_api.c (the
 * constructors
 *      of layers that are one op: their parameters are its attributes, in order).
 *
 *     LAYER(elu, "ELU", elu, "alpha:float=1", "alpha")
 *         ->  cb_module *cb_nn_elu(double alpha): forward is cb_elu(x, alpha), prints
 *             ELU(alpha=1.0) */
#include "opgen.h"

#include <string.h>

typedef struct Layer {
    const char *name, *type, *op, *schema, *shown; /* op NULL: its constructor is written in C */
} Layer;

#define LAYER(n, t, o, s, p) {#n, t, #o, s, p},
#define BUILT(n, s) {#n, NULL, NULL, s, NULL},
static const Layer layers[] = {
#include "nn/layers.def"
};
enum { LAYER_COUNT = sizeof layers / sizeof layers[0] };

static Schema schemas[LAYER_COUNT];
static const Api api = {"cb_module *", "cb_nn_", false};

/* The k-th attribute of an op. */
static const SchemaParam *attribute(const Schema *op, int k) {
    for (int i = 0; i < op->count; i++)
        if (!param_is_tensor(&op->param[i]) && k-- == 0) return &op->param[i];
    return NULL;
}

static void check_op(const Layer *layer, const Schema *schema) {
    const Schema *op = op_schema(layer->op);
    if (!op) schema_refuse(schema, "there is no op %s", layer->op);
    for (int i = 0; i < schema->count; i++) {
        const SchemaParam *own = attribute(op, i);
        if (!own || own->type != schema->param[i].type)
            schema_refuse(schema, "%s is no attribute %d of op %s", schema->param[i].name, i,
                          layer->op);
    }
}

void layers_parse(void) {
    for (int i = 0; i < LAYER_COUNT; i++) {
        Schema *schema = &schemas[i];
        *schema = (Schema){"src/nn/layers.def", "layer", layers[i].name, layers[i].schema};
        if (*schema->text) schema_parse(schema);
        if (schema->tensors) schema_refuse(schema, "a layer is made of numbers and texts");
        for (int k = 0; k < i; k++)
            if (!strcmp(layers[i].name, layers[k].name))
                schema_refuse(schema, "the name is taken twice");
        if (layers[i].op) check_op(&layers[i], schema);
    }
}

void layers_write_header(FILE *out) {
    fprintf(
        out,
        "/* Generated from src/nn/layers.def by tools/opgen_layers.c: the constructors of layers, "
        "which\n"
        " * carbide_nn.h describes. Each is a function and a macro of the same name, which takes "
        "an integer\n"
        " * where the function takes dims, and fills in trailing arguments that are left out. */\n"
        "#ifndef CARBIDE_LAYERS_H\n#define CARBIDE_LAYERS_H\n");
    for (int i = 0; i < LAYER_COUNT; i++) api_declare(out, api, &schemas[i]);
    fprintf(out, "\n#endif\n");
}

static int find_param(const Schema *schema, const char *name, size_t length) {
    for (int i = 0; i < schema->count; i++)
        if (strlen(schema->param[i].name) == length &&
            !strncmp(schema->param[i].name, name, length))
            return i;
    schema_refuse(schema, "'%.*s' is shown, and no parameter", (int)length, name);
}

/* What repr shows: "kernel_size, stride"; "*padding" is the value alone, "(stride)" a tuple even if
 * it is one number. */
static void write_shown(FILE *out, const Layer *layer, const Schema *schema) {
    const Schema *op = op_schema(layer->op);
    fprintf(out, "    static const LayerShown shown[] = {");
    for (const char *at = layer->shown; *at;) {
        size_t length = strcspn(at, ",");
        bool bare = *at == '*', tuple = *at == '(';
        int k = find_param(schema, at + (bare || tuple), length - bare - 2 * tuple);
        fprintf(out, "{\"%s\", %s, ATTR_%s_%s, %s}, ", bare ? "" : schema->param[k].name,
                type_info[schema->param[k].type].param, layer->op, attribute(op, k)->name,
                tuple ? "true" : "false");
        at += length;
        at += strspn(at, ", ");
    }
    fprintf(out, "{NULL, 0, 0, false}};\n");
}

void layers_write_api(FILE *out) {
    fprintf(out,
            "/* Generated from src/nn/layers.def: the constructors of layers that are one op. */\n"
            "#include \"nn/layer.h\"\n");
    for (int i = 0; i < LAYER_COUNT; i++) {
        const Layer *layer = &layers[i];
        const Schema *schema = &schemas[i];
        if (!layer->op) continue;
        fprintf(out, "\n");
        api_signature(out, api, schema, true);
        fprintf(out, " {\n");
        write_shown(out, layer, schema);
        fprintf(out, "    Attrs attrs = attrs_default(OP_%s);\n", layer->op);
        for (int k = 0; k < schema->count; k++) {
            const SchemaParam *param = &schema->param[k];
            if (param->same_as >= 0)
                fprintf(out, "    if (!%s.count) %s = %s;\n", param->name, param->name,
                        schema->param[param->same_as].name);
            api_pack(out, layer->op, attribute(op_schema(layer->op), k)->name, param);
        }
        fprintf(out, "    return layer_of_op(\"%s\", OP_%s, shown, &attrs);\n}\n", layer->type,
                layer->op);
    }
}

void layers_list(FILE *out) {
    for (int i = 0; i < LAYER_COUNT; i++)
        fprintf(out, "    {\"nn_%s\", \"carbide_nn.h\", \"cb_module *cb_nn_%s(%s)\"},\n",
                layers[i].name, layers[i].name, schemas[i].text);
}
