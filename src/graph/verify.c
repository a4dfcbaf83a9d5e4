/* The verifier: what every graph must be between passes.
 *
 *     inputs, outputs and indices belong to the graph, inputs come before users
 *     the metas are those that op_infer gives, and the inputs have the dtypes that it asks for
 *     attributes are canonical and each call has one node
 *     a composite is of the type of its expansion; draw numbers are below random_count
 *
 * In: a graph. Out: true, or false with the broken node's line of text and what is wrong with
 * it. */
#include "graph/node.h"
#include "graph/text.h"
#include "op/custom.h"

#include <stdarg.h>
#include <string.h>

typedef struct Check {
    Graph *graph;
    Node *const *order;
    Buffer *why;
} Check;

static bool belongs(const Graph *graph, const Node *node) {
    return node->id < (uint32_t)length(graph->node) && graph->node[node->id] == node;
}

/* Can it be written? Its inputs are all there, and have names. */
static bool is_whole(const Check *c, const char *const *names, const Node *node) {
    bool leaf = node->op == OP_input || node->op == OP_constant;
    if (node->input_count != (leaf ? 0 : op_info(node->op)->arity)) return false;
    for (int i = 0; i < node->input_count; i++) {
        const Node *input = node->input[i];
        if (!input && op_info(node->op)->kind == KIND_COMPOSITE) continue;
        if (!input || !belongs(c->graph, input) || (input->op != OP_constant && !names[input->id]))
            return false;
    }
    return true;
}

__attribute__((format(printf, 3, 4))) static bool broken(const Check *c, const Node *node,
                                                         const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    putf(c->why, "%s: ", text);
    const char **names = text_names(c->graph, c->order, c->why->arena);
    if (is_whole(c, names, node))
        text_node(names, node, c->why);
    else
        put(c->why, op_info(node->op)->name);
    return false;
}

static bool inputs_fine(const Check *c, const Node *node) {
    const OpInfo *info = op_info(node->op);
    bool leaf = node->op == OP_input || node->op == OP_constant, own = node->op == OP_custom;
    int most = leaf ? 0 : own ? custom_of(node->attrs)->inputs : info->arity;
    if (own ? node->input_count > most : node->input_count != most)
        return broken(c, node, "it has %d inputs", node->input_count);
    for (int i = 0; i < node->input_count; i++) {
        const Node *input = node->input[i];
        if (!input && !own && info->kind != KIND_COMPOSITE)
            return broken(c, node, "input %d is absent", i);
        if (!input) continue;
        if (!belongs(c->graph, input)) return broken(c, node, "input %d is of another graph", i);
        if (input->id >= node->id) return broken(c, node, "input %d comes later", i);
    }
    return true;
}

static bool composite_fine(const Check *c, const Node *node) {
    const Node *expansion = node->expansion;
    if (!expansion) return broken(c, node, "it has no expansion");
    if (!belongs(c->graph, expansion) || expansion->id >= node->id)
        return broken(c, node, "its expansion is not before it in the graph");
    if (!node_same_meta(node, expansion)) return broken(c, node, "its type is not its expansion's");
    return true;
}

static bool meta_fine(const Check *c, const Node *node) {
    Meta meta[NODE_MAX_INPUTS], own = node_meta(node);
    Attrs attrs = {{0}}, canonical;
    Inferred inferred;
    if (node->attrs) attrs = *node->attrs;
    canonical = attrs;
    for (int i = 0; i < node->input_count; i++) meta[i] = node_meta(node->input[i]);
    if (!op_infer(node->op, meta, node->input_count, &canonical, &inferred))
        return broken(c, node, "it cannot be inferred (%s)", cb_error());
    const Meta *result = &inferred.result;
    if (result->dtype != own.dtype || result->rank != own.rank ||
        memcmp(result->size, own.size, sizeof(int64_t) * own.rank)) {
        char is[128], should[128];
        meta_format(&own, is, sizeof is);
        meta_format(result, should, sizeof should);
        return broken(c, node, "it is %s and should be %s", is, should);
    }
    for (int i = 0; i < node->input_count; i++)
        if (inferred.input_dtype[i] != meta[i].dtype)
            return broken(c, node, "input %d should be %s", i,
                          cb_dtype_name(inferred.input_dtype[i]));
    size_t words = (size_t)op_info(node->op)->word_count;
    if (memcmp(canonical.word, attrs.word, sizeof(int64_t) * words))
        return broken(c, node, "its attributes are not canonical");
    return true;
}

static bool draw_fine(const Check *c, const Node *node) {
    Op op = node->op;
    if (!op_may_draw(op) || !op_draws(op, node->attrs)) return true;
    int64_t draw = node_draw(node);
    if (draw < 0 || draw >= c->graph->random_count)
        return broken(c, node, "%d draws were taken", c->graph->random_count);
    return true;
}

static bool node_fine(const Check *c, const Node *node) {
    if (!inputs_fine(c, node)) return false;
    if (node_lookup(c->graph, node) != node) return broken(c, node, "it is not interned");
    if (!draw_fine(c, node)) return false;
    if (node->op == OP_input || node->op == OP_constant) return true;
    if (op_info(node->op)->kind == KIND_COMPOSITE) return composite_fine(c, node);
    return meta_fine(c, node);
}

static bool roots_fine(Graph *graph, Buffer *why) {
    for (int i = 0; i < length(graph->input); i++) {
        const Node *input = graph->input[i];
        if (belongs(graph, input) && input->op == OP_input && input->attrs->word[0] == i) continue;
        putf(why, "input %d is broken", i);
        return false;
    }
    for (int i = 0; i < length(graph->output); i++)
        if (!graph->output[i] || !belongs(graph, graph->output[i])) {
            putf(why, "output %d is not of the graph", i);
            return false;
        }
    for (int i = 0; i < length(graph->mutation); i++) {
        const Mutation *mutation = &graph->mutation[i];
        bool fine = mutation->input >= 0 && mutation->input < length(graph->input) &&
                    mutation->value && belongs(graph, mutation->value) &&
                    node_same_meta(mutation->value, graph->input[mutation->input]);
        if (fine) continue;
        putf(why, "mutation %d is broken", i);
        return false;
    }
    for (int i = 0; i < length(graph->check); i++) {
        const IndexCheck *check = &graph->check[i];
        if (check->index && belongs(graph, check->index) && check->index->dtype == CB_I64) continue;
        putf(why, "check %d is broken", i);
        return false;
    }
    return true;
}

bool graph_verify(Graph *graph, Buffer *why) {
    if (!roots_fine(graph, why)) return false;
    Node **order = graph_order(graph);
    Check c = {graph, order, why};
    for (int i = 0; i < length(order); i++)
        if (!node_fine(&c, order[i])) return false;
    return true;
}
