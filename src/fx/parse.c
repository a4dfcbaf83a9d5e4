/* Text in: what cb_graph_text printed, and what print(graph) of torch.fx prints for ops that we
 * have.
 *
 *     graph():
 *         %x : [num_users=1] = placeholder[target=x]
 *         %relu : [num_users=1] = call_method[target=relu](args = (%x,), kwargs = {})
 *         return relu
 *
 * The number of users is counted anew. Errors name the line: "line 3: %y is not defined". */
#include "fx/fx.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64 }; /* nesting of values in hostile text */

typedef struct FxParser {
    FxGraph *graph;
    const char *at;
    int line, depth;
    bool good;
} FxParser;

static cb_arg parse_value(FxParser *parser, bool bare_nodes);

static void error(FxParser *parser, const char *message, const char *start, size_t size) {
    if (!parser->good) return;
    parser->good = false;
    if (size > 60) size = 60;
    fail(CB_ERR_GRAPH, "FX text, line %d: %s%s%.*s%s", parser->line, message, size ? ": '" : "",
         (int)size, start, size ? "'" : "");
}

static bool accept(FxParser *parser, const char *text) {
    size_t size = strlen(text);
    if (strncmp(parser->at, text, size) != 0) return false;
    parser->at += size;
    return true;
}

static void expect(FxParser *parser, const char *text) {
    if (!parser->good || accept(parser, text)) return;
    char message[64];
    snprintf(message, sizeof message, "expected '%s'", text);
    error(parser, message, parser->at, strcspn(parser->at, "\n"));
}

static void skip_spaces(FxParser *parser) { parser->at += strspn(parser->at, " \r"); }

static size_t name_size(const char *text) {
    size_t size = 0;
    while (isalnum((unsigned char)text[size]) || text[size] == '_') size++;
    return size;
}

static FxNode *find_node(const FxParser *parser, const char *name, size_t size) {
    for (FxNode *node = parser->graph->last; node; node = node->previous)
        if (strncmp(node->name, name, size) == 0 && !node->name[size]) return node;
    return NULL;
}

static cb_arg parse_node(FxParser *parser) {
    size_t size = name_size(parser->at);
    FxNode *node = find_node(parser, parser->at, size);
    if (!node) error(parser, "this node is not defined before it is used", parser->at, size);
    parser->at += size;
    return node ? cb_arg_node(node) : cb_arg_none();
}

static cb_arg parse_quoted(FxParser *parser) {
    char quote = *parser->at++;
    char *text = arena_alloc(parser->graph->arena, strcspn(parser->at, "\n") + 1);
    size_t n = 0;
    while (*parser->at && *parser->at != quote && *parser->at != '\n') {
        bool escaped = *parser->at == '\\' && parser->at[1] && parser->at[1] != '\n';
        parser->at += escaped;
        text[n++] = escaped && *parser->at == 'n' ? '\n' : *parser->at;
        parser->at++;
    }
    text[n] = 0;
    if (*parser->at == quote)
        parser->at++;
    else
        error(parser, "a quoted text does not end", "", 0);
    return cb_arg_string(text);
}

/* Of a dict: a word, or quoted. */
static const char *parse_key(FxParser *parser) {
    if (*parser->at == '\'' || *parser->at == '"') return parse_quoted(parser).text;
    size_t size = strcspn(parser->at, ":\n");
    const char *key = arena_format(parser->graph->arena, "%.*s", (int)size, parser->at);
    parser->at += size;
    return key;
}

/* Items up to the closing character. */
static cb_arg parse_group(FxParser *parser, cb_arg_kind kind, char close, bool bare_nodes) {
    cb_arg *items = NULL, group = cb_arg_none();
    const char **keys = NULL;
    Arena *arena = parser->graph->arena;
    if (++parser->depth > MAX_DEPTH) error(parser, "values are nested too deeply", "", 0);
    skip_spaces(parser);
    while (parser->good && *parser->at != close) {
        if (kind == CB_ARG_DICT) {
            push(arena, keys, parse_key(parser));
            expect(parser, ": ");
        }
        if (!parser->good) break;
        cb_arg item = parse_value(parser, bare_nodes);
        push(arena, items, item);
        skip_spaces(parser);
        if (!accept(parser, ",") && *parser->at != close)
            error(parser, "expected ',' or the end of the list", parser->at,
                  strcspn(parser->at, "\n"));
        skip_spaces(parser);
    }
    if (parser->good) parser->at++;
    parser->depth--;
    group.kind = kind;
    group.count = length(items);
    group.items = items;
    group.keys = keys;
    if (kind == CB_ARG_SLICE && group.count != 3) error(parser, "a slice has three parts", "", 0);
    return group;
}

static bool parse_number(FxParser *parser, cb_arg *value) {
    const char *text = parser->at + (*parser->at == '-');
    bool special = strncmp(text, "inf", 3) == 0 || strncmp(text, "nan", 3) == 0;
    size_t size = strspn(text, "0123456789.eE+-");
    if (special && name_size(text) == 3)
        size = 3;
    else if (!isdigit((unsigned char)*text) && *text != '.')
        return false;
    char *end;
    bool whole = !special && !memchr(text, '.', size) && !memchr(text, 'e', size) &&
                 !memchr(text, 'E', size);
    *value =
        whole ? cb_arg_int(strtoll(parser->at, &end, 10)) : cb_arg_float(strtod(parser->at, &end));
    if (end != text + size) return false;
    parser->at = end;
    return true;
}

/* None, True, a dtype, an unquoted string, and after return the names of nodes. */
static cb_arg parse_word(FxParser *parser, bool bare_nodes) {
    const char *word = parser->at;
    size_t size = strcspn(word, ",)]}\r\n");
    while (size && word[size - 1] == ' ') size--;
    if (!size) error(parser, "a value is missing", word, strcspn(word, "\n"));
    parser->at += size;
    const char *text = arena_format(parser->graph->arena, "%.*s", (int)size, word);
    cb_arg value = cb_arg_none();
    if (strcmp(text, "None") == 0) return value;
    if (strcmp(text, "True") == 0 || strcmp(text, "False") == 0) return cb_arg_bool(*text == 'T');
    if (strcmp(text, "Ellipsis") == 0) {
        value.kind = CB_ARG_ELLIPSIS;
        return value;
    }
    for (cb_dtype dtype = 0; dtype < CB_DTYPE_COUNT; dtype++)
        if (strcmp(text, fx_dtype_text(dtype)) == 0) return cb_arg_dtype(dtype);
    if (!bare_nodes) return cb_arg_string(text);
    FxNode *node = find_node(parser, text, size);
    if (!node) error(parser, "this node is not defined", word, size);
    return node ? cb_arg_node(node) : value;
}

static cb_arg parse_value(FxParser *parser, bool bare_nodes) {
    cb_arg number;
    skip_spaces(parser);
    if (accept(parser, "%")) return parse_node(parser);
    if (accept(parser, "(")) return parse_group(parser, CB_ARG_TUPLE, ')', bare_nodes);
    if (accept(parser, "[")) return parse_group(parser, CB_ARG_LIST, ']', bare_nodes);
    if (accept(parser, "{")) return parse_group(parser, CB_ARG_DICT, '}', bare_nodes);
    if (accept(parser, "slice(")) return parse_group(parser, CB_ARG_SLICE, ')', bare_nodes);
    if (*parser->at == '\'' || *parser->at == '"') return parse_quoted(parser);
    if (parse_number(parser, &number)) return number;
    return parse_word(parser, bare_nodes);
}

/* ---- lines ---------------------------------------------------------------------------------- */

static cb_opcode parse_opcode(FxParser *parser) {
    for (cb_opcode op = 0; op < CB_OUTPUT; op++) {
        const char *name = cb_opcode_name(op);
        size_t size = strlen(name);
        if (strncmp(parser->at, name, size) != 0 || parser->at[size] != '[') continue;
        parser->at += size;
        return op;
    }
    error(parser, "unknown opcode", parser->at, strcspn(parser->at, "[\n"));
    return CB_OPCODE_COUNT;
}

static void parse_arguments(FxParser *parser, FxNode *node) {
    FxGraph *graph = parser->graph;
    expect(parser, "(args = (");
    if (!parser->good) return;
    cb_arg args = parse_group(parser, CB_ARG_TUPLE, ')', false);
    for (int i = 0; i < args.count; i++) push(graph->arena, node->args, args.items[i]);
    expect(parser, ", kwargs = {");
    if (!parser->good) return;
    cb_arg kwargs = parse_group(parser, CB_ARG_DICT, '}', false);
    for (int i = 0; i < kwargs.count; i++) fx_add_kwarg(node, kwargs.keys[i], kwargs.items[i]);
    expect(parser, ")");
}

/* "relu : [num_users=1] = call_method[target=relu](...)", the % already read */
static void parse_node_line(FxParser *parser) {
    FxGraph *graph = parser->graph;
    size_t size = name_size(parser->at), type_size;
    const char *name = arena_format(graph->arena, "%.*s", (int)size, parser->at);
    if (!size || fx_name_taken(graph, name))
        error(parser, "this name is defined twice or empty", name, size);
    parser->at += size;
    expect(parser, " : ");
    const char *type = parser->at, *users = strstr(type, "[num_users=");
    type_size = users && users > type ? (size_t)(users - type) - 1 : 0;
    if (!users || memchr(type, '\n', (size_t)(users - type)))
        error(parser, "expected [num_users=N]", "", 0);
    if (!parser->good) return;
    parser->at = users + 11;
    parser->at += strspn(parser->at, "0123456789");
    expect(parser, "] = ");
    cb_opcode opcode = parser->good ? parse_opcode(parser) : CB_OPCODE_COUNT;
    expect(parser, "[target=");
    size = strcspn(parser->at, "]\n");
    if (parser->good && !size) error(parser, "the target is empty", "", 0);
    if (!parser->good) return;
    const char *target = arena_format(graph->arena, "%.*s", (int)size, parser->at);
    parser->at += size;
    expect(parser, "]");
    FxNode *node = fx_node_new(graph, opcode, target, name);
    if (type_size) node->type = arena_format(graph->arena, "%.*s", (int)type_size, type);
    if (opcode == CB_PLACEHOLDER && accept(parser, "(default=")) {
        cb_arg value = parse_value(parser, false);
        push(graph->arena, node->args, value);
        expect(parser, ")");
    } else if (opcode != CB_PLACEHOLDER && opcode != CB_GET_ATTR) {
        parse_arguments(parser, node);
    }
    fx_link_before(graph, node, NULL);
    fx_refresh(node);
}

static void parse_line(FxParser *parser) {
    if (fx_output_node(parser->graph)) error(parser, "nodes follow the return", "", 0);
    if (accept(parser, "%")) {
        parse_node_line(parser);
    } else if (accept(parser, "return ")) {
        cb_arg value = parse_value(parser, true);
        if (parser->good) fx_create(parser->graph, NULL, CB_OUTPUT, "output", &value, 1);
    } else {
        error(parser, "expected a node or return", parser->at, strcspn(parser->at, "\n"));
    }
    skip_spaces(parser);
    if (parser->good && *parser->at && *parser->at != '\n')
        error(parser, "the line goes on", parser->at, strcspn(parser->at, "\n"));
}

static bool parse_text(FxGraph *graph, const char *text) {
    FX_GUARD(graph, false);
    FxParser parser = {graph, text, 1, 0, true};
    while (isspace((unsigned char)*parser.at)) parser.line += *parser.at++ == '\n';
    expect(&parser, "graph():");
    while (parser.good && *parser.at) {
        if (*parser.at == '\n') {
            parser.line++;
            parser.at++;
        } else if (*parser.at == ' ' || *parser.at == '\r' || *parser.at == '\t') {
            parser.at++;
        } else {
            parse_line(&parser);
        }
    }
    return parser.good;
}

cb_graph *cb_graph_parse(const char *text, cb_module *module) {
    if (!text) {
        fail(CB_ERR_ARGUMENT, "cb_graph_parse: the text is NULL");
        return NULL;
    }
    FxGraph *graph = cb_graph_new(module);
    if (!graph || parse_text(graph, text)) return graph;
    cb_graph_free(graph);
    return NULL;
}
