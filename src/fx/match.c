/* Pattern rewrite: every place of a graph that looks like a pattern becomes its replacement.
 *
 *     pattern      return relu(add(x, y))          placeholders stand for any value
 *     replacement  return maximum(add(y, x), 0)    its k-th placeholder is the pattern's k-th
 *
 * A place is found at the node that would be the pattern's result, and grows towards its inputs.
 * Nodes are equal when they call the same op with the same attributes, however written; other nodes
 * when target and arguments are the same. Inner nodes that anything outside the place uses keep the
 * place as it is, and so does a write between its first node and its result. */
#include "fx/fx.h"
#include <string.h>

typedef struct FxMatch {
    const FxGraph *pattern;
    FxNode **node; /* by pattern node id: what it stands for here; NULL: not yet */
    cb_arg *wild;  /* by pattern node id: what a placeholder stands for */
    bool *bound;
} FxMatch;

static bool match_node(FxMatch *match, const FxNode *pattern, FxNode *node);
static bool match_arg(FxMatch *match, const cb_arg *pattern, const cb_arg *arg);

static bool same_literal(const cb_arg *a, const cb_arg *b) {
    if (fx_is_number(a) && fx_is_number(b)) return fx_number(a) == fx_number(b);
    if (a->kind != b->kind) return false;
    if (a->kind == CB_ARG_NODE) return a->node == b->node;
    if (a->kind == CB_ARG_STRING) return strcmp(a->text, b->text) == 0;
    return a->kind != CB_ARG_DTYPE || a->i == b->i;
}

static bool match_wild(FxMatch *match, const FxNode *placeholder, const cb_arg *arg) {
    if (arg->kind != CB_ARG_NODE && !fx_is_number(arg)) return false;
    if (match->bound[placeholder->id]) return same_literal(&match->wild[placeholder->id], arg);
    match->bound[placeholder->id] = true;
    match->wild[placeholder->id] = *arg;
    return true;
}

static bool match_arg(FxMatch *match, const cb_arg *pattern, const cb_arg *arg) {
    if (pattern->kind == CB_ARG_NODE) {
        if (pattern->node->opcode == CB_PLACEHOLDER) return match_wild(match, pattern->node, arg);
        return arg->kind == CB_ARG_NODE && match_node(match, pattern->node, arg->node);
    }
    if (pattern->count != arg->count || !same_literal(pattern, arg)) return false;
    for (int i = 0; i < pattern->count; i++) {
        if (pattern->kind == CB_ARG_DICT && strcmp(pattern->keys[i], arg->keys[i]) != 0)
            return false;
        if (!match_arg(match, &pattern->items[i], &arg->items[i])) return false;
    }
    return true;
}

/* The same op, bound to its schema, so that softmax(x, 1) is softmax(x, dim=1). */
static bool match_call(FxMatch *match, const FxNode *pattern, const FxNode *node) {
    FxCall a, b;
    check(fx_bind(pattern, &a), "a node of a pattern that was looked through does not bind");
    check(fx_bind(node, &b), "a node of a graph that was looked through does not bind");
    if (memcmp(&a.attrs, &b.attrs, sizeof a.attrs) != 0) return false;
    if (a.list && !match_arg(match, a.list, b.list)) return false;
    for (int i = 0; i < a.operand_count; i++)
        if (!match_arg(match, &a.operand[i], &b.operand[i])) return false;
    return true;
}

static bool match_raw(FxMatch *match, const FxNode *pattern, const FxNode *node) {
    if (strcmp(pattern->target, node->target) != 0) return false;
    cb_arg a = cb_arg_tuple(pattern->args, length(pattern->args));
    cb_arg b = cb_arg_tuple(node->args, length(node->args));
    if (length(pattern->kwargs) != length(node->kwargs) || !match_arg(match, &a, &b)) return false;
    for (int i = 0; i < length(pattern->kwargs); i++)
        if (strcmp(pattern->kwargs[i].key, node->kwargs[i].key) != 0 ||
            !match_arg(match, &pattern->kwargs[i].value, &node->kwargs[i].value))
            return false;
    return true;
}

static bool match_node(FxMatch *match, const FxNode *pattern, FxNode *node) {
    if (match->node[pattern->id]) return match->node[pattern->id] == node;
    if (node->inplace || pattern->inplace || fx_random(node)) return false;
    bool ops = pattern->op != OP_none && pattern->op == node->op &&
               strcmp(pattern->target, "operator.getitem") != 0 &&
               strcmp(node->target, "operator.getitem") != 0;
    if (!ops && pattern->opcode != node->opcode) return false;
    match->node[pattern->id] = node;
    return ops ? match_call(match, pattern, node) : match_raw(match, pattern, node);
}

static bool among(const FxMatch *match, const FxNode *node) {
    for (int id = 0; id < match->pattern->next_id; id++)
        if (match->node[id] == node) return true;
    return false;
}

/* Everything inside the place, but its result, is used only inside. */
static bool is_closed(const FxMatch *match, const FxNode *result) {
    for (int id = 0; id < match->pattern->next_id; id++) {
        const FxNode *node = match->node[id];
        if (!node || node == result || node->opcode == CB_GET_ATTR) continue;
        for (int u = 0; u < length(node->users); u++)
            if (!among(match, node->users[u])) return false;
    }
    return true;
}

/* The replacement reads, at the result's place, what the place read at its first node. */
static bool is_unwritten(const FxMatch *match, const FxNode *result) {
    const FxNode *first = result;
    for (const FxNode *node = result; node; node = node->previous)
        if (node->opcode != CB_GET_ATTR && among(match, node)) first = node;
    return !fx_written_between(first, result);
}

/* ---- rewriting ------------------------------------------------------------------------------ */

typedef struct ReplacementCopy {
    const cb_arg *value; /* by node id of the replacement */
} ReplacementCopy;

static cb_arg copied(void *user, FxNode *node) {
    return ((const ReplacementCopy *)user)->value[node->id];
}

static const FxNode *nth_placeholder(const FxGraph *graph, int index) {
    for (const FxNode *node = graph->first; node; node = node->next)
        if (node->opcode == CB_PLACEHOLDER && index-- == 0) return node;
    return NULL;
}

static FxNode *copy_node(FxGraph *graph, const FxNode *node, FxNode *where, ReplacementCopy *copy) {
    FxNode *made = fx_node_new(graph, node->opcode, node->target, NULL);
    for (int i = 0; i < length(node->args); i++)
        push(graph->arena, made->args, fx_copy_arg(graph, &node->args[i], copied, copy));
    for (int i = 0; i < length(node->kwargs); i++)
        fx_add_kwarg(made, node->kwargs[i].key,
                     fx_copy_arg(graph, &node->kwargs[i].value, copied, copy));
    made->site = where->site;
    fx_link_before(graph, made, where);
    fx_refresh(made);
    return made;
}

/* Copies the replacement before result, sends result's users there, and drops what nobody uses
 * now. */
static void rewrite(FxGraph *graph, const FxMatch *match, const FxGraph *replacement,
                    FxNode *result) {
    cb_arg *value = arena_new_array(graph->arena, cb_arg, replacement->next_id + 1);
    ReplacementCopy copy = {value};
    int input = 0;
    for (const FxNode *node = replacement->first; node; node = node->next) {
        if (node->opcode == CB_OUTPUT) continue;
        if (node->opcode == CB_PLACEHOLDER)
            value[node->id] = match->wild[nth_placeholder(match->pattern, input++)->id];
        else
            value[node->id] = cb_arg_node(copy_node(graph, node, result, &copy));
    }
    cb_arg made = value[fx_output_node(replacement)->args[0].node->id];
    while (length(result->users)) fx_replace_uses(result->users[0], result, made);
    for (FxNode *node = result, *previous; node; node = previous) {
        previous = node->previous;
        if (among(match, node) && !length(node->users)) fx_unlink(node);
    }
}

/* The node that a pattern returns; NULL with an error when it returns no single computed value. */
static const FxNode *returned(const FxGraph *graph, const char *what, bool computed) {
    const FxNode *output = fx_output_node(graph);
    const cb_arg value = cb_node_arg(output, 0);
    bool node = value.kind == CB_ARG_NODE;
    if (node && (!computed || value.node->opcode != CB_PLACEHOLDER)) return value.node;
    fail(CB_ERR_GRAPH, "replace_pattern: the %s must return one %s", what,
         computed ? "computed value" : "value");
    return NULL;
}

static bool usable(const FxGraph *pattern, const FxGraph *replacement) {
    if (!returned(pattern, "pattern", true) || !returned(replacement, "replacement", false))
        return false;
    int count = 0;
    while (nth_placeholder(replacement, count)) count++;
    if (count == 0 || nth_placeholder(pattern, count - 1)) {
        for (const FxNode *node = pattern->first; node; node = node->next) {
            if ((node->opcode != CB_CALL_FUNCTION && node->opcode != CB_CALL_METHOD) || node->op)
                continue;
            fx_fail(CB_ERR_GRAPH, node, "no op has this name");
            return false;
        }
        return true;
    }
    fail(CB_ERR_GRAPH, "replace_pattern: the replacement takes %d inputs, more than the pattern",
         count);
    return false;
}

/* Binding a node whose arguments are wrong would record an error in the middle of a search, which
 * may come through what was put in. */
static bool all_bind(const FxGraph *graph) {
    for (const FxNode *node = graph->first; node; node = node->next) {
        FxCall call;
        if (node->op != OP_none && !fx_bind(node, &call)) return false;
    }
    return true;
}

/* Every input of the replacement was seen in the place, and a returned number has nowhere to go. */
static bool is_complete(const FxMatch *match, const FxGraph *replacement) {
    const FxNode *result = returned(replacement, "replacement", false);
    for (int i = 0; nth_placeholder(replacement, i); i++) {
        int id = nth_placeholder(match->pattern, i)->id;
        if (!match->bound[id]) return false;
        if (nth_placeholder(replacement, i) == result && match->wild[id].kind != CB_ARG_NODE)
            return false;
    }
    return true;
}

static int replace(FxGraph *graph, const FxGraph *pattern, const FxGraph *replacement) {
    FX_GUARD(graph, CB_ERR_MEMORY);
    const FxNode *wanted = returned(pattern, "pattern", true);
    int places = 0, size = pattern->next_id + 1;
    FxMatch match = {pattern, arena_new_array(graph->arena, FxNode *, size),
                     arena_new_array(graph->arena, cb_arg, size),
                     arena_new_array(graph->arena, bool, size)};
    for (FxNode *node = graph->first, *next; node; node = next) {
        next = node->next;
        memset(match.node, 0, sizeof *match.node * (size_t)size);
        memset(match.bound, 0, sizeof *match.bound * (size_t)size);
        if (node->opcode == CB_PLACEHOLDER || node->opcode == CB_OUTPUT) continue;
        if (!match_node(&match, wanted, node) || !is_closed(&match, node)) continue;
        if (!is_complete(&match, replacement) || !is_unwritten(&match, node)) continue;
        rewrite(graph, &match, replacement, node);
        places++;
    }
    return places;
}

int cb_graph_replace_pattern(cb_graph *graph, const cb_graph *pattern,
                             const cb_graph *replacement) {
    if (!graph || !pattern || !replacement) return fail(CB_ERR_ARGUMENT, "replace_pattern: NULL");
    if (graph == pattern || graph == replacement)
        return fail(CB_ERR_ARGUMENT, "replace_pattern: the pattern is the graph itself");
    const FxGraph *all[] = {graph, pattern, replacement};
    for (int i = 0; i < 3; i++) {
        if (!fx_lives(all[i], "replace_pattern: a graph")) return CB_ERR_ARGUMENT;
        cb_status status = fx_check_order(all[i]); /* an edit may have closed a circle */
        if (status) return status;
    }
    if (!usable(pattern, replacement)) return CB_ERR_GRAPH;
    for (int i = 0; i < 3; i++)
        if (!all_bind(all[i])) return CB_ERR_GRAPH;
    return replace(graph, pattern, replacement);
}
