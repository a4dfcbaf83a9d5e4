/* The functions of the public headers, for `carbide ops`, which knows those that are no ops, too.
 *
 *     CB_API cb_tensor *cb_keep(cb_tensor *x);
 *         ->  {"keep", "carbide.h", "cb_tensor *cb_keep(cb_tensor *x)"}, */
#include "opgen.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *const headers[] = {"carbide.h",      "carbide_backend.h", "carbide_custom.h",
                                      "carbide_data.h", "carbide_fx.h",      "carbide_grad.h",
                                      "carbide_io.h",   "carbide_nn.h",      "carbide_train.h"};
static const char function_mark[] = "\nCB_API ", macro_mark[] = "\n#define cb_";

static char *read_header(const char *source_dir, const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/include/%s", source_dir, name);
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    if (!file || !text || !fread(text, 1, (1 << 20) - 1, file)) {
        perror(path);
        exit(1);
    }
    fclose(file);
    return text;
}

/* In one line, without what stands between two blanks for looks. */
static void write_declaration(FILE *out, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (!isspace((unsigned char)text[i]))
            fputc(text[i], out);
        else if (!isspace((unsigned char)text[i + 1]))
            fputc(' ', out);
    }
}

static void write_function(FILE *out, const char *header, const char *text) {
    const char *open = strchr(text, '('), *name = open;
    while (name > text && (isalnum((unsigned char)name[-1]) || name[-1] == '_')) name--;
    if (strncmp(name, "cb_", 3) != 0) return; /* a variable, or the macro itself */
    fprintf(out, "    {\"%.*s\", \"%s\", \"", (int)(open - name - 3), name + 3, header);
    write_declaration(out, text, strcspn(text, ";"));
    fprintf(out, "\"},\n");
}

/* Those that are functions of other names: cb_call(function, ...). */
static void write_macro(FILE *out, const char *header, const char *text) {
    size_t name = strcspn(text, "( "), whole = strcspn(text, ")");
    if (text[name] != '(') return;
    fprintf(out, "    {\"%.*s\", \"%s\", \"cb_", (int)name, text, header);
    write_declaration(out, text, whole + 1);
    fprintf(out, "\"},\n");
}

void functions_write(FILE *out, const char *source_dir) {
    fprintf(out, "/* Generated from include by tools/opgen_functions.c: rows of cli/names.c. */\n");
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        char *text = read_header(source_dir, headers[i]);
        for (const char *at = text; (at = strstr(at, function_mark)); at++)
            write_function(out, headers[i], at + strlen(function_mark));
        for (const char *at = text; (at = strstr(at, macro_mark)); at++)
            write_macro(out, headers[i], at + strlen(macro_mark));
        free(text);
    }
    layers_list(out);
}
