/* Nodes and the intern table: same op, inputs and attributes give the same pointer.
 *
 * In: calls whose inputs are converted, whose attributes are canonical and whose meta is known.
 * Out: a node of the graph's arena. Invariants: an input has a smaller id than its users; of a
 * commuting pair a constant stands second, and mul(a, b) and mul(b, a) are one node, in the order
 * first written; NaN constants have one bit pattern.
 *
 *     graph_intern(g, OP_add, f32[3], {x, y}) == graph_intern(g, OP_add, f32[3], {y, x}) */
#include "graph/node.h"
#include "op/custom.h"

#include <math.h>
#include <string.h>

Graph *graph_new(Arena *arena) {
    Graph *graph = arena_zalloc(arena, sizeof *graph);
    graph->arena = arena;
    graph->ambient = ambient_of_op();
    graph->table = map_new(arena);
    graph->attrs = map_new(arena);
    return graph;
}

bool op_may_draw(Op op) {
    return op_info(op)->kind == KIND_RANDOM || op == OP_rand_like || op == OP_randn_like ||
           op == OP_dropout || op == OP_scaled_dot_product_attention || op == OP_custom;
}

bool op_draws(Op op, const Attrs *attrs) {
    if (op == OP_custom) return custom_of(attrs)->effects;
    if (op == OP_scaled_dot_product_attention)
        return attr_float(attrs, ATTR_scaled_dot_product_attention_dropout_p) > 0;
    if (op != OP_dropout) return op_may_draw(op);
    double p = attr_float(attrs, ATTR_dropout_p);
    return attrs->word[ATTR_dropout_training] && ((p > 0 && p < 1) || attr_argument(p) >= 0);
}

int op_attr_words(Op op) {
    if (op == OP_input || op == OP_constant) return 1;
    return op_info(op)->word_count + op_may_draw(op);
}

/* ---- interning ---------------------------------------------------------------------------- */

typedef struct Key {
    Op op;
    int dtype, input_count, words;
    Node *const *input;
    const Attrs *attrs;
    bool commutes;
    int again; /* what a checkpoint computes again is no other node; 0: it is not */
} Key;

static uint64_t input_hash(const Key *key, int i) {
    return key->input[i] ? key->input[i]->id + 1u : 0u;
}

static uint64_t hash_key(const Key *key) {
    uint64_t part[NODE_MAX_INPUTS + 1];
    part[0] = (uint64_t)key->op << 8 | (uint8_t)key->dtype;
    for (int i = 0; i < key->input_count; i++) part[i + 1] = input_hash(key, i);
    if (key->commutes && part[1] > part[2]) {
        uint64_t swapped = part[1];
        part[1] = part[2];
        part[2] = swapped;
    }
    uint64_t hash = hash_bytes(part, sizeof *part * (size_t)(key->input_count + 1), 0);
    if (key->words) hash = hash_bytes(key->attrs->word, 8 * (size_t)key->words, hash);
    return hash;
}

static bool same_inputs(const Key *key, const Node *node) {
    bool straight = true;
    for (int i = 0; i < key->input_count; i++) straight &= node->input[i] == key->input[i];
    if (straight || !key->commutes) return straight; /* untested: equal hashes */
    const Node *a = node->input[0], *b = node->input[1];
    return a == key->input[1] && b == key->input[0]; /* untested: equal hashes */
}

static bool same_words(const Key *key, const Node *node) {
    return !key->words || !memcmp(node->attrs->word, key->attrs->word, 8 * (size_t)key->words);
}

static Node *find(const Graph *graph, const Key *key, uint64_t hash) {
    for (MapEntry *e = map_first(&graph->table, hash); e; e = map_next(e)) {
        Node *node = e->value;
        if (node->op != key->op || node->dtype != key->dtype) continue; /* untested: equal hashes */
        if (node->input_count != key->input_count) continue;            /* untested: equal hashes */
        if (node_again(node) != key->again) continue;
        if (!same_inputs(key, node)) continue;  /* untested: equal hashes */
        if (same_words(key, node)) return node; /* untested: equal hashes */
    }
    return NULL;
}

/* Sizes are shared with the first input where they are equal, as in chains of pointwise ops. */
static const int64_t *copy_sizes(Graph *graph, const Meta *meta, Node *const *input, int count) {
    if (!meta->rank) return NULL;
    size_t bytes = sizeof(int64_t) * meta->rank;
    const Node *first = count ? input[0] : NULL;
    if (first && first->rank == meta->rank && !memcmp(first->size, meta->size, bytes))
        return first->size;
    return memcpy(arena_alloc(graph->arena, bytes), meta->size, bytes);
}

/* The whole struct, so that *node->attrs may be copied; unused words are zero. Layers of a network
 * have the same ones, so they share them: 384 bytes are five nodes. */
static const Attrs *copy_attrs(Graph *graph, const Attrs *attrs, int words) {
    if (!words) return NULL;
    Attrs whole = {{0}};
    memcpy(whole.word, attrs->word, 8 * (size_t)words);
    uint64_t hash = hash_bytes(whole.word, 8 * (size_t)words, (uint64_t)words);
    for (MapEntry *e = map_first(&graph->attrs, hash); e; e = map_next(e))
        if (!memcmp(e->value, &whole, sizeof whole)) return e->value;
    Attrs *copy = memcpy(arena_alloc(graph->arena, sizeof *copy), &whole, sizeof whole);
    map_put(&graph->attrs, hash, copy);
    return copy;
}

static bool commutes(Op op, int input_count) {
    return input_count == 2 && (op_info(op)->flags & COMMUTES);
}

Node *node_intern(Graph *graph, Op op, const Meta *meta, Node *const *input, int input_count,
                  const Attrs *attrs, Node *expansion) {
    Key key = {op,
               meta->dtype,
               input_count,
               op_attr_words(op),
               input,
               attrs,
               commutes(op, input_count),
               origin_again(graph->origin)};
    check(input_count <= NODE_MAX_INPUTS, "%s: %d inputs", op_info(op)->name, input_count);
    Node *swapped[2];
    if (key.commutes && input[0]->op == OP_constant && input[1]->op != OP_constant) {
        swapped[0] = input[1];
        swapped[1] = input[0];
        key.input = swapped;
    }
    uint64_t hash = hash_key(&key);
    Node *node = find(graph, &key, hash);
    if (node) {
        node->found = true;
        return node;
    }
    node = arena_alloc(graph->arena, sizeof *node + sizeof(Node *) * (size_t)input_count);
    *node = (Node){.op = op,
                   .dtype = meta->dtype,
                   .rank = meta->rank,
                   .input_count = (uint8_t)input_count,
                   .id = (uint32_t)length(graph->node),
                   .hash = hash,
                   .size = copy_sizes(graph, meta, key.input, input_count),
                   .attrs = copy_attrs(graph, attrs, key.words),
                   .expansion = expansion,
                   .origin = graph->origin};
    for (int i = 0; i < input_count; i++) node->input[i] = key.input[i];
    push(graph->arena, graph->node, node);
    map_put(&graph->table, hash, node);
    return node;
}

Node *node_lookup(const Graph *graph, const Node *node) {
    Op op = node->op;
    Key key = {op,
               node->dtype,
               node->input_count,
               op_attr_words(op),
               node->input,
               node->attrs,
               commutes(op, node->input_count),
               node_again(node)};
    return find(graph, &key, hash_key(&key));
}

Node *graph_intern(Graph *graph, Op op, const Meta *meta, Node *const *input, int input_count,
                   const Attrs *attrs) {
    check(op_info(op)->kind != KIND_COMPOSITE, "%s needs its expansion", op_info(op)->name);
    return node_intern(graph, op, meta, input, input_count, attrs, NULL);
}

/* ---- leaves ------------------------------------------------------------------------------- */

bool graph_is_argument(const Graph *graph, const Node *node) {
    int arguments = length(graph->input) - length(graph->constant);
    return node->op == OP_input && node->attrs->word[0] < arguments;
}

bool graph_shifts(const Graph *graph, const Node *node) {
    bool is = node->op == OP_dynamic_slice || node->op == OP_dynamic_slice_scatter;
    return is && graph_is_argument(graph, node->input[node->input_count - 1]);
}

bool graph_views(const Graph *graph, const Node *node) {
    bool shifts = node->op == OP_dynamic_slice && graph_shifts(graph, node);
    return shifts || op_info(node->op)->kind == KIND_VIEW;
}

Node *graph_input(Graph *graph, const Meta *meta) {
    Attrs attrs = {{length(graph->input)}};
    Node *node = graph_intern(graph, OP_input, meta, NULL, 0, &attrs);
    push(graph->arena, graph->input, node);
    return node;
}

Node *graph_constant(Graph *graph, cb_dtype dtype, Scalar value) {
    bool is_float = dtype_is_float(dtype);
    value = scalar_convert(value, is_float ? CB_F64 : CB_I64, compute_dtype(dtype));
    if (is_float && value.f != value.f) value.f = (double)NAN;
    Meta meta = {.dtype = dtype};
    Attrs attrs = {{value.i}};
    return graph_intern(graph, OP_constant, &meta, NULL, 0, &attrs);
}

Scalar node_constant(const Node *node) { return (Scalar){.i = node->attrs->word[0]}; }

bool node_is_power_of_two(const Node *node) {
    if (node->op != OP_constant || !dtype_is_float(node->dtype)) return false;
    double value = node_constant(node).f;
    if (!isfinite(value) || value == 0) return false;
    int exponent;
    if (fabs(frexp(value, &exponent)) != 0.5) return false;
    Scalar inverse = scalar_convert((Scalar){.f = 1 / value}, CB_F64, node->dtype);
    return inverse.f == 1 / value;
}

bool node_is_number(const Node *node, double value) {
    if (node->op != OP_constant) return false;
    Scalar scalar = node_constant(node);
    if (!dtype_is_float(node->dtype)) return (double)scalar.i == value;
    return scalar.f == value && signbit(scalar.f) == signbit(value);
}

bool node_has_literal(const Node *node, int i) {
    OpKind kind = op_info(node->op)->kind;
    if (node->input[i]->op != OP_constant) return false;
    if (kind != KIND_POINTWISE && kind != KIND_COMPOSITE) return false;
    for (int k = 0; k < node->input_count; k++) {
        const Node *other = node->input[k];
        if (other && other->op != OP_constant && other->dtype == node->input[i]->dtype) return true;
    }
    return false;
}

cb_operand node_literal(const Node *constant) {
    return number_from(dtype_is_float(constant->dtype) ? CB_F64 : constant->dtype,
                       node_constant(constant));
}

Meta node_meta(const Node *node) {
    Meta meta = {.dtype = node->dtype, .rank = node->rank};
    if (node->rank) memcpy(meta.size, node->size, sizeof(int64_t) * node->rank);
    return meta;
}

int64_t node_numel(const Node *node) { return sizes_numel(node->rank, node->size); }

int64_t node_bytes(const Node *node) {
    return node_numel(node) * (int64_t)cb_dtype_size(node->dtype);
}

bool node_has_sizes(const Node *node, int rank, const int64_t *size) {
    if (node->rank != rank) return false;
    bool equal = !rank || node->size == size; /* without dims there may be no list */
    return equal || !memcmp(node->size, size, sizeof *size * (size_t)rank);
}

bool node_same_meta(const Node *a, const Node *b) {
    return a->dtype == b->dtype && node_has_sizes(a, b->rank, b->size);
}
