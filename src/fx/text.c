/* print(graph) of torch.fx, to the letter, and what all printers share.
 *
 *     graph():
 *         %x : [num_users=1] = placeholder[target=x]
 *         %sum_1 : [num_users=1] = call_method[target=sum](args = (%x,), kwargs = {dim: 1})
 *         return sum_1
 *
 * Values print as Python's str() in args, and as its repr() in return and in tables. */
#include "base/memory.h"
#include "fx/fx.h"
#include <string.h>

const char *cb_opcode_name(cb_opcode opcode) {
    static const char *const name[CB_OPCODE_COUNT] = {"placeholder", "get_attr",    "call_function",
                                                      "call_method", "call_module", "output"};
    return opcode >= 0 && opcode < CB_OPCODE_COUNT ? name[opcode] : "unknown";
}

const char *fx_dtype_text(cb_dtype dtype) {
    return dtype >= 0 && dtype < CB_DTYPE_COUNT ? dtype_info(dtype)->torch : "None";
}

/* 'text' with Python's choice of quotes and its escapes. */
static void put_quoted(Buffer *out, const char *text) {
    char quote = strchr(text, '\'') && !strchr(text, '"') ? '"' : '\'';
    putf(out, "%c", quote);
    for (const char *c = text; *c; c++) {
        if (*c == quote || *c == '\\')
            putf(out, "\\%c", *c);
        else if (*c == '\n')
            put(out, "\\n");
        else
            putf(out, "%c", *c);
    }
    putf(out, "%c", quote);
}

static void put_items(Buffer *out, const cb_arg *arg, FxStyle style) {
    for (int i = 0; i < arg->count; i++) {
        if (i > 0) put(out, ", ");
        if (arg->kind == CB_ARG_DICT) {
            if (style == FX_STYLE_PYTHON)
                put_quoted(out, arg->keys[i]);
            else
                put(out, arg->keys[i]);
            put(out, ": ");
        }
        fx_put_arg(out, &arg->items[i], style);
    }
}

static void put_group(Buffer *out, const cb_arg *arg, FxStyle style) {
    static const char *const open[] = {
        [CB_ARG_LIST] = "[", [CB_ARG_TUPLE] = "(", [CB_ARG_DICT] = "{", [CB_ARG_SLICE] = "slice("};
    static const char *const close[] = {
        [CB_ARG_LIST] = "]", [CB_ARG_TUPLE] = ")", [CB_ARG_DICT] = "}", [CB_ARG_SLICE] = ")"};
    put(out, open[arg->kind]);
    put_items(out, arg, style);
    if (arg->kind == CB_ARG_TUPLE && arg->count == 1) put(out, ",");
    put(out, close[arg->kind]);
}

void fx_put_arg(Buffer *out, const cb_arg *arg, FxStyle style) {
    switch (arg->kind) {
    case CB_ARG_NONE:
        put(out, "None");
        break;
    case CB_ARG_NODE:
        if (style == FX_STYLE_GRAPH) put(out, "%");
        put(out, arg->node->name);
        break;
    case CB_ARG_INT:
        putf(out, "%lld", (long long)arg->i);
        break;
    case CB_ARG_FLOAT:
        put_double(out, arg->f);
        break;
    case CB_ARG_BOOL:
        put(out, arg->i ? "True" : "False");
        break;
    case CB_ARG_STRING:
        if (style == FX_STYLE_PYTHON)
            put_quoted(out, arg->text);
        else
            put(out, arg->text);
        break;
    case CB_ARG_DTYPE:
        put(out, fx_dtype_text(arg->i));
        break;
    case CB_ARG_ELLIPSIS:
        put(out, "Ellipsis");
        break;
    case CB_ARG_LIST:
    case CB_ARG_TUPLE:
    case CB_ARG_DICT:
    case CB_ARG_SLICE:
        put_group(out, arg, style);
        break;
    }
}

void fx_put_args(Buffer *out, const FxNode *node, FxStyle style) {
    cb_arg tuple = cb_arg_tuple(node->args, length(node->args));
    put_group(out, &tuple, style);
}

void fx_put_kwargs(Buffer *out, const FxNode *node, FxStyle style) {
    put(out, "{");
    for (int i = 0; i < length(node->kwargs); i++) {
        if (i > 0) put(out, ", ");
        if (style == FX_STYLE_PYTHON)
            put_quoted(out, node->kwargs[i].key);
        else
            put(out, node->kwargs[i].key);
        put(out, ": ");
        fx_put_arg(out, &node->kwargs[i].value, style);
    }
    put(out, "}");
}

static void print_node(Buffer *out, const FxNode *node) {
    put(out, "\n    ");
    if (node->opcode == CB_OUTPUT) {
        cb_arg none = cb_arg_none();
        put(out, "return ");
        fx_put_arg(out, length(node->args) ? &node->args[0] : &none, FX_STYLE_PYTHON);
        return;
    }
    putf(out, "%%%s : ", node->name);
    if (node->type) putf(out, "%s ", node->type);
    putf(out, "[num_users=%d] = %s[target=%s]", length(node->users), cb_opcode_name(node->opcode),
         node->target);
    if (node->opcode == CB_GET_ATTR) return;
    if (node->opcode == CB_PLACEHOLDER) {
        if (!length(node->args)) return;
        put(out, "(default=");
        fx_put_arg(out, &node->args[0], FX_STYLE_GRAPH);
        put(out, ")");
        return;
    }
    put(out, "(args = ");
    fx_put_args(out, node, FX_STYLE_GRAPH);
    put(out, ", kwargs = ");
    fx_put_kwargs(out, node, FX_STYLE_GRAPH);
    put(out, ")");
}

static bool print_graph(const FxGraph *graph, Buffer *out, const void *options) {
    (void)options;
    put(out, "graph():");
    for (const FxNode *node = graph->first; node; node = node->next) print_node(out, node);
    return true;
}

/* ---- shared --------------------------------------------------------------------------------- */

static bool render(Arena *arena, const FxGraph *graph, FxPrinter *printer, const void *options,
                   char **text) {
    if (arena_guard(arena)) return false;
    Buffer out = buffer_new(arena);
    if (!printer(graph, &out, options)) return true;
    *text = memory_copy_text(buffer_text(&out));
    return *text != NULL;
}

char *fx_render(const FxGraph *graph, FxPrinter *printer, const void *options) {
    if (!fx_lives(graph, "the graph")) return NULL;
    Arena *arena = arena_new();
    char *text = NULL;
    if (!arena || !render(arena, graph, printer, options, &text)) fail_memory(0);
    arena_free(arena);
    return text;
}

typedef struct LastUse {
    Arena *arena;
    bool *seen;
    FxNode ***last;
    const FxNode *user;
} LastUse;

static void note_use(void *user, FxNode *node) {
    LastUse *use = user;
    if (use->seen[node->id]) return;
    use->seen[node->id] = true;
    push(use->arena, use->last[use->user->id], node);
}

FxNode ***fx_last_uses(const FxGraph *graph, Arena *arena) {
    LastUse use = {arena, arena_new_array(arena, bool, graph->next_id + 1),
                   arena_new_array(arena, FxNode **, graph->next_id + 1), NULL};
    for (FxNode *node = graph->last; node; node = node->previous) {
        use.user = node;
        fx_visit_inputs(node, note_use, &use);
        if (!length(node->users)) push(arena, use.last[node->id], node);
    }
    return use.last;
}

char *cb_graph_text(const cb_graph *graph) { return fx_render(graph, print_graph, NULL); }

void cb_graph_print(const cb_graph *graph) {
    char *text = cb_graph_text(graph);
    if (text) puts(text);
    memory_free(text);
}
