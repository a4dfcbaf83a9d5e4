/* The other views of a graph: Python as print_readable() writes it, print_tabular(), and dot.
 *
 *     class Block(torch.nn.Module):
 *         def forward(self, x: "f32[4, 4]"):
 *             linear: "f32[4, 4]" = self.linear(x)
 *             add: "f32[4, 4]" = linear + x;  linear = x = None
 *             return add */
#include "fx/fx.h"
#include <ctype.h>
#include <string.h>

/* How Python writes the functions of its operator module. */
static const struct {
    const char *name, *before, *between, *after;
} operators[] = {
    {"add", "", " + ", ""},       {"sub", "", " - ", ""},     {"mul", "", " * ", ""},
    {"floordiv", "", " // ", ""}, {"truediv", "", " / ", ""}, {"mod", "", " % ", ""},
    {"pow", "", " ** ", ""},      {"lshift", "", " << ", ""}, {"rshift", "", " >> ", ""},
    {"and_", "", " & ", ""},      {"or_", "", " | ", ""},     {"xor", "", " ^ ", ""},
    {"getitem", "", "[", "]"},    {"matmul", "", " @ ", ""},  {"eq", "", " == ", ""},
    {"ne", "", " != ", ""},       {"lt", "", " < ", ""},      {"gt", "", " > ", ""},
    {"le", "", " <= ", ""},       {"ge", "", " >= ", ""},     {"neg", "-", "", ""},
    {"invert", "~", "", ""},      {"pos", "+", "", ""}};

/* self.seq.0 cannot be written in Python: getattr(self.seq, "0"). */
static void put_path(Buffer *out, const char *path) {
    const char *text = "self";
    while (*path) {
        size_t size = strcspn(path, ".");
        bool plain = !isdigit((unsigned char)*path);
        text = arena_format(out->arena, plain ? "%s.%.*s" : "getattr(%s, \"%.*s\")", text,
                            (int)size, path);
        path += size + (path[size] == '.');
    }
    put(out, text);
}

static void put_call_args(Buffer *out, const FxNode *node, int first) {
    put(out, "(");
    for (int i = first; i < length(node->args); i++) {
        if (i > first) put(out, ", ");
        fx_put_arg(out, &node->args[i], FX_STYLE_PYTHON);
    }
    for (int i = 0; i < length(node->kwargs); i++) {
        putf(out, "%s%s = ", i > 0 || length(node->args) > first ? ", " : "", node->kwargs[i].key);
        fx_put_arg(out, &node->kwargs[i].value, FX_STYLE_PYTHON);
    }
    put(out, ")");
}

static bool put_operator(Buffer *out, const FxNode *node) {
    if (strncmp(node->target, "operator.", 9) != 0 || length(node->kwargs)) return false;
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        bool unary = !*operators[i].between;
        if (strcmp(node->target + 9, operators[i].name) != 0) continue;
        if (length(node->args) != (unary ? 1 : 2)) return false;
        put(out, operators[i].before);
        fx_put_arg(out, &node->args[0], FX_STYLE_PYTHON);
        put(out, operators[i].between);
        if (!unary) fx_put_arg(out, &node->args[1], FX_STYLE_PYTHON);
        put(out, operators[i].after);
        return true;
    }
    return false;
}

static void put_expression(Buffer *out, const FxNode *node) {
    if (node->opcode == CB_GET_ATTR) {
        put_path(out, node->target);
    } else if (node->opcode == CB_CALL_MODULE) {
        put_path(out, node->target);
        put_call_args(out, node, 0);
    } else if (node->opcode == CB_CALL_METHOD && length(node->args)) {
        fx_put_arg(out, &node->args[0], FX_STYLE_PYTHON);
        putf(out, ".%s", node->target);
        put_call_args(out, node, 1);
    } else if (!put_operator(out, node)) {
        put(out, node->target);
        put_call_args(out, node, 0);
    }
}

static void put_annotation(Buffer *out, const FxNode *node, int flags) {
    if (!node->has_meta) {
        if (node->type) putf(out, " : %s", node->type);
        return;
    }
    bool truth = node->meta.dtype == CB_BOOL; /* FX's abbreviation of bool is b8 */
    putf(out, ": \"%s", truth ? "b8" : cb_dtype_name(node->meta.dtype));
    put_sizes(out, node->meta.rank, node->meta.size);
    if (flags & CB_READABLE_STRIDE) put_sizes(out, node->meta.rank, node->stride);
    if (flags & CB_READABLE_DEVICE) put(out, "cpu");
    put(out, "\"");
}

static void put_signature(const FxGraph *graph, Buffer *out, int flags) {
    putf(out, "class %s(torch.nn.Module):\n    def forward(self",
         graph->root ? cb_module_type(graph->root) : "GraphModule");
    for (const FxNode *node = graph->first; node; node = node->next) {
        if (node->opcode != CB_PLACEHOLDER) continue;
        putf(out, ", %s", node->target);
        put_annotation(out, node, flags);
        if (!length(node->args)) continue;
        put(out, " = ");
        fx_put_arg(out, &node->args[0], FX_STYLE_PYTHON);
    }
    put(out, "):\n");
}

static void put_site(Buffer *out, const FxNode *node, Site *shown) {
    if (!node->site.file || node->opcode == CB_PLACEHOLDER || node->opcode == CB_OUTPUT) return;
    if (shown->line == node->site.line && shown->file && strcmp(shown->file, node->site.file) == 0)
        return;
    *shown = node->site;
    putf(out, "\n         # File: %s:%d\n", node->site.file, node->site.line);
}

static bool print_readable(const FxGraph *graph, Buffer *out, const void *options) {
    int flags = *(const int *)options;
    FxNode ***last = fx_last_uses(graph, out->arena);
    Site shown = {0};
    put_signature(graph, out, flags);
    for (const FxNode *node = graph->first; node; node = node->next) {
        if (flags & CB_READABLE_SITES) put_site(out, node, &shown);
        if (node->opcode == CB_PLACEHOLDER) {
            if (strcmp(node->name, node->target) != 0)
                putf(out, "        %s = %s\n", node->name, node->target);
            continue;
        }
        if (node->opcode == CB_OUTPUT) {
            put(out, "        return ");
            cb_arg none = cb_arg_none();
            fx_put_arg(out, length(node->args) ? &node->args[0] : &none, FX_STYLE_PYTHON);
            put(out, "\n");
            continue;
        }
        putf(out, "        %s", node->name);
        put_annotation(out, node, flags);
        put(out, " = ");
        put_expression(out, node);
        FxNode *const *dead = last[node->id];
        for (int i = 0; i < length(dead); i++) putf(out, "%s%s = ", i ? "" : ";  ", dead[i]->name);
        put(out, length(dead) ? "None\n" : "\n");
    }
    return true;
}

char *cb_graph_readable(const cb_graph *graph, int flags) {
    if (!fx_module_lives(graph, "cb_graph_readable: the graph's module")) return NULL;
    return fx_render(graph, print_readable, &flags);
}

/* ---- print_tabular -------------------------------------------------------------------------- */

enum { COLUMNS = 5 };

/* What Python's str() gives for the function that a target names. */
static const char *target_text(Arena *arena, const FxNode *node) {
    const char *target = node->target, *dot = strrchr(target, '.');
    if (node->opcode != CB_CALL_FUNCTION || !dot) return target;
    if (strncmp(target, "operator.", 9) == 0)
        return arena_format(arena, "<built-in function %s>", dot + 1);
    if (strncmp(target, "torch.nn.", 9) == 0) return arena_format(arena, "<function %s>", dot + 1);
    return arena_format(arena, "<built-in method %s>", dot + 1);
}

static void fill_row(Arena *arena, const FxNode *node, const char **cell) {
    Buffer args = buffer_new(arena), kwargs = buffer_new(arena);
    fx_put_args(&args, node, FX_STYLE_PYTHON);
    fx_put_kwargs(&kwargs, node, FX_STYLE_PYTHON);
    cell[0] = cb_opcode_name(node->opcode);
    cell[1] = node->name;
    cell[2] = target_text(arena, node);
    cell[3] = buffer_text(&args);
    cell[4] = buffer_text(&kwargs);
}

static void put_row(Buffer *out, const char *const *cell, const size_t *width) {
    for (int c = 0; c < COLUMNS; c++) putf(out, "%s%-*s", c ? "  " : "", (int)width[c], cell[c]);
    while (out->text[out->length - 1] == ' ') out->length--; /* a cell has text: the opcode */
    put(out, "\n");
}

static bool print_tabular(const FxGraph *graph, Buffer *out, const void *options) {
    static const char *const header[COLUMNS] = {"opcode", "name", "target", "args", "kwargs"};
    (void)options;
    const char **cell = arena_new_array(out->arena, const char *, (graph->count + 1) * COLUMNS);
    size_t width[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) width[c] = strlen(header[c]) + 2;
    int row = 0;
    for (const FxNode *node = graph->first; node; node = node->next, row++) {
        fill_row(out->arena, node, cell + row * COLUMNS);
        for (int c = 0; c < COLUMNS; c++) {
            size_t wide = strlen(cell[row * COLUMNS + c]);
            if (wide > width[c]) width[c] = wide;
        }
    }
    put_row(out, header, width);
    const char *dashes[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) {
        char *line = arena_alloc(out->arena, width[c] + 1);
        memset(line, '-', width[c]);
        line[width[c]] = 0;
        dashes[c] = line;
    }
    put_row(out, dashes, width);
    for (int r = 0; r < row; r++) put_row(out, cell + r * COLUMNS, width);
    return true;
}

char *cb_graph_tabular(const cb_graph *graph) { return fx_render(graph, print_tabular, NULL); }

/* ---- dot ------------------------------------------------------------------------------------ */

/* Inside a record label braces, bars, angles and quotes have a meaning. */
static void put_escaped(Buffer *out, const char *text) {
    for (; *text; text++) putf(out, strchr("{}|<>\"\\", *text) ? "\\%c" : "%c", *text);
}

static void put_label(Buffer *out, const FxNode *node) {
    putf(out, "{name=%%%s|op_code=%s|target=", node->name, cb_opcode_name(node->opcode));
    put_escaped(out, node->target);
    if (node->has_meta) {
        put(out, "|");
        char meta[160];
        meta_format(&node->meta, meta, sizeof meta);
        put_escaped(out, meta);
    }
    putf(out, "|num_users=%d}", length(node->users));
}

static bool print_dot(const FxGraph *graph, Buffer *out, const void *options) {
    static const char *const color[CB_OPCODE_COUNT] = {"aliceblue",  "lightsalmon", "palegreen",
                                                       "palegreen2", "khaki",       "lightgrey"};
    (void)options;
    putf(out,
         "digraph \"%s\" {\n    rankdir=TB;\n    node [shape=record, style=\"filled,rounded\"];\n",
         graph->root ? cb_module_type(graph->root) : "graph");
    for (const FxNode *node = graph->first; node; node = node->next) {
        putf(out, "    \"%s\" [fillcolor=%s, label=\"", node->name, color[node->opcode]);
        put_label(out, node);
        put(out, "\"];\n");
    }
    for (const FxNode *node = graph->first; node; node = node->next)
        for (int i = 0; i < length(node->inputs); i++)
            putf(out, "    \"%s\" -> \"%s\";\n", node->inputs[i]->name, node->name);
    put(out, "}\n");
    return true;
}

char *cb_graph_dot(const cb_graph *graph) {
    if (!fx_module_lives(graph, "cb_graph_dot: the graph's module")) return NULL;
    return fx_render(graph, print_dot, NULL);
}
