/* Graph text -> graph. The inverse of graph_print, and more lenient: values may be whole
 * expressions.
 *
 *     graph(x: f32[128, 512], w: f32[512]) {   # comments run to the end of the line
 *       y = exp(x) * 2 + w
 *       draws 3                                # random draws taken, when the nodes do not show it
 *       mutate x = y
 *       check i below 5 for gather             # whether or not an op that is needed reads i
 *       return softmax(y, dim=1), w
 *     }
 *
 * An error names line and column and what was expected there. */
#include "graph/evaluate.h"
#include "graph/node.h"

#include <string.h>

typedef struct Named {
    Word name;
    Term term;
} Named;

typedef struct GraphParser {
    Graph *graph;
    Reader reader;
    Evaluator evaluator;
    Map names;
    const char *line_at; /* up to here, lines are counted */
    int line;
} GraphParser;

enum { STATEMENT_POOL = 512 };

static bool lookup(const Evaluator *evaluator, Word name, Term *out) {
    const GraphParser *parser = evaluator->user;
    uint64_t hash = hash_bytes(name.text, (size_t)name.length, 0);
    for (MapEntry *e = map_first(&parser->names, hash); e; e = map_next(e)) {
        const Named *named = e->value;
        if (!word_same(named->name, name)) continue; /* untested: equal hashes */
        *out = named->term;
        return true;
    }
    return false;
}

static bool define(GraphParser *parser, Word name, const Term *term) {
    Term before;
    if (lookup(&parser->evaluator, name, &before)) {
        parser->reader.at = name.text;
        reader_error(&parser->reader, "expected a new name");
        return false;
    }
    Named *named = arena_alloc(parser->graph->arena, sizeof *named);
    *named = (Named){name, *term};
    map_put(&parser->names, hash_bytes(name.text, (size_t)name.length, 0), named);
    return true;
}

/* Errors of inference come without a position: the site says the line. */
static void set_site(GraphParser *parser) {
    for (; parser->line_at < parser->reader.at; parser->line_at++)
        parser->line += *parser->line_at == '\n';
    cb_site("graph text", parser->line);
    parser->graph->origin.site = site_current();
}

static bool read_value(GraphParser *parser, Term *term) {
    parser->reader.used = 0;
    (void)read_at_end(&parser->reader); /* to the first token, for its line */
    set_site(parser);
    const Syntax *syntax = read_expression(&parser->reader);
    return syntax && evaluate(&parser->evaluator, syntax, term);
}

static Node *read_node(GraphParser *parser) {
    Term term;
    if (!read_value(parser, &term)) return NULL;
    Node *node = term_node(parser->graph, &term);
    if (!node) reader_error(&parser->reader, "expected a tensor before this");
    return node;
}

/* ---- header ------------------------------------------------------------------------------- */

static bool read_dtype(Reader *reader, cb_dtype *dtype) {
    Word name = {"", 0};
    const char *start = reader->at;
    if (read_name(reader, &name))
        for (cb_dtype i = 0; i < CB_DTYPE_COUNT; i++)
            if (word_is(name, cb_dtype_name(i))) {
                *dtype = i;
                return true;
            }
    reader->at = name.length ? name.text : start;
    reader_error(reader, "expected a dtype");
    return false;
}

static bool read_meta(Reader *reader, Meta *meta) {
    *meta = (Meta){0};
    if (!read_dtype(reader, &meta->dtype)) return false;
    if (!read_token(reader, "[") || read_token(reader, "]")) return true;
    for (;;) {
        int64_t size;
        if (meta->rank == CB_MAX_RANK) {
            reader_error(reader, "expected at most %d dimensions", CB_MAX_RANK);
            return false;
        }
        if (!read_int(reader, &size)) {
            reader_error(reader, "expected a size");
            return false;
        }
        meta->size[meta->rank++] = size;
        if (read_token(reader, "]")) return true;
        if (!read_expect(reader, ",")) return false;
    }
}

static bool read_inputs(GraphParser *parser) {
    Reader *reader = &parser->reader;
    if (!read_expect(reader, "graph") || !read_expect(reader, "(")) return false;
    if (read_token(reader, ")")) return true;
    for (;;) {
        Word name;
        Meta meta;
        if (!read_name(reader, &name)) {
            reader_error(reader, "expected the name of an input");
            return false;
        }
        if (!read_expect(reader, ":") || !read_meta(reader, &meta)) return false;
        set_site(parser);
        Term term = {.kind = TERM_NODE, .node = graph_input(parser->graph, &meta)};
        if (!define(parser, name, &term)) return false;
        if (read_token(reader, ")")) return true;
        if (!read_expect(reader, ",")) return false;
    }
}

/* ---- statements --------------------------------------------------------------------------- */

static bool read_mutation(GraphParser *parser) {
    Reader *reader = &parser->reader;
    Word name;
    Term target;
    const char *start = reader->at;
    if (!read_name(reader, &name) || !lookup(&parser->evaluator, name, &target) ||
        target.kind != TERM_NODE || target.node->op != OP_input) {
        reader->at = start + strspn(start, " \t\r\n");
        reader_error(reader, "expected the name of an input");
        return false;
    }
    if (!read_expect(reader, "=")) return false;
    Node *value = read_node(parser);
    if (!value) return false;
    if (!node_same_meta(value, target.node)) {
        fail(CB_ERR_GRAPH, "the value of a mutation differs in type from its input");
        return false;
    }
    Mutation mutation = {(int)target.node->attrs->word[0], value};
    push(parser->graph->arena, parser->graph->mutation, mutation);
    return true;
}

/* below 5 for gather */
static bool read_bound(Reader *reader, IndexBound *bound) {
    Word name = {"", 0};
    if (!read_expect(reader, "below")) return false;
    if (!read_int(reader, &bound->bound)) {
        reader_error(reader, "expected a bound");
        return false;
    }
    if (!read_expect(reader, "for")) return false;
    const char *start = reader->at;
    if (read_name(reader, &name)) bound->op = op_find(name.text, (size_t)name.length);
    if (bound->op != OP_none && (op_has_index(bound->op) || op_refuses(bound->op))) return true;
    reader->at = name.length ? name.text : start;
    reader_error(reader, "expected an op with an index");
    return false;
}

static bool read_check(GraphParser *parser) {
    IndexCheck check = {.index = read_node(parser)};
    if (!check.index || !read_bound(&parser->reader, &check.in)) return false;
    if (check.index->dtype != CB_I64) {
        fail(CB_ERR_GRAPH, "an index is i64, not %s", cb_dtype_name(check.index->dtype));
        return false;
    }
    check.in.origin = parser->graph->origin;
    push(parser->graph->arena, parser->graph->check, check);
    return true;
}

static bool read_draws(GraphParser *parser) {
    int64_t draws;
    if (!read_int(&parser->reader, &draws) || draws < parser->graph->random_count ||
        draws > INT32_MAX) {
        reader_error(&parser->reader, "expected the number of draws");
        return false;
    }
    parser->graph->random_count = (int)draws;
    return true;
}

static bool read_outputs(GraphParser *parser) {
    if (read_token(&parser->reader, "}")) return true;
    do {
        Node *node = read_node(parser);
        if (!node) return false;
        push(parser->graph->arena, parser->graph->output, node);
    } while (read_token(&parser->reader, ","));
    return read_expect(&parser->reader, "}");
}

static bool read_assignment(GraphParser *parser) {
    Word name;
    Term term;
    if (!read_name(&parser->reader, &name)) {
        reader_error(&parser->reader, "expected a statement");
        return false;
    }
    return read_expect(&parser->reader, "=") && read_value(parser, &term) &&
           define(parser, name, &term);
}

static bool read_graph(GraphParser *parser) {
    Reader *reader = &parser->reader;
    if (!read_inputs(parser) || !read_expect(reader, "{")) return false;
    while (!read_token(reader, "return")) {
        bool fine = read_token(reader, "mutate")  ? read_mutation(parser)
                    : read_token(reader, "check") ? read_check(parser)
                    : read_token(reader, "draws") ? read_draws(parser)
                                                  : read_assignment(parser);
        if (!fine) return false;
        (void)read_token(reader, ";");
    }
    if (!read_outputs(parser)) return false;
    if (read_at_end(reader)) return true;
    reader_error(reader, "expected nothing after the graph");
    return false;
}

Graph *graph_parse(Arena *arena, const char *text) {
    Site caller = site_current();
    GraphParser parser = {
        .graph = graph_new(arena), .names = map_new(arena), .line_at = text, .line = 1};
    parser.reader = (Reader){.text = text,
                             .at = text,
                             .pool = arena_new_array(arena, Syntax, STATEMENT_POOL),
                             .capacity = STATEMENT_POOL,
                             .arena = arena};
    parser.evaluator =
        (Evaluator){.graph = parser.graph, .lookup = lookup, .user = &parser, .text = text};
    bool read = read_graph(&parser);
    if (!read && parser.reader.error_at) {
        cb_site(NULL, 0);
        reader_fail(&parser.reader);
    }
    site_set(caller);
    return read ? parser.graph : NULL;
}
