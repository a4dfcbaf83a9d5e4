/* Structure that does no work: views of views, lossless conversions, trivial reductions and the
 * like.
 *
 *     permute(permute(x, [1, 0]), [1, 0])   ->  x
 *     to(to(x: u8, f32), f64)               ->  to(x, f64)
 *     add(x: f32[4, 8], expand(b, [4, 8]))  ->  add(x, b)       broadcasting is implicit
 *     sum(x: f32[4, 1], dim=[1])            ->  reshape(x, [4])
 *     amax(stack(x, y, z), dim=[0])         ->  maximum(maximum(x, y), z)
 *
 * In: a node whose inputs are simplified. Out: an equal node, or the node itself. */
#include "graph/call.h"
#include "graph/rewrite.h"

/* ---- conversions -------------------------------------------------------------------------- */

static Node *simplify_to(Graph *graph, Node *node) {
    Node *inner = node->input[0], *x = inner->input[0];
    if (!dtype_holds(inner->dtype, x->dtype)) return node;
    return node_convert(graph, x, node->dtype);
}

/* ---- views -------------------------------------------------------------------------------- */

/* Two permutations are one; one that moves only dimensions of size 1 is a reshape. */
static Node *simplify_permute(Graph *graph, Node *node) {
    Node *x = node->input[0];
    cb_dim_list dims = attr_dims(node->attrs, ATTR_permute_dims);
    if (x->op == OP_permute) {
        cb_dim_list inner = attr_dims(x->attrs, ATTR_permute_dims);
        for (int i = 0; i < dims.count; i++) dims.at[i] = inner.at[dims.at[i]];
        return call_permute(graph, x->input[0], dims);
    }
    int64_t last = -1;
    for (int i = 0; i < dims.count; i++) {
        if (x->size[dims.at[i]] == 1) continue;
        if (dims.at[i] < last) return node;
        last = dims.at[i];
    }
    return node_reshape(graph, x, node->rank, node->size);
}

/* Last element of count ones, step apart. */
static int64_t last_of(int64_t first, int64_t count, int64_t step) {
    return first + (count - 1) * step;
}

const Node *node_past_writes(const Node *x, int64_t dim, int64_t first, int64_t count,
                             int64_t step) {
    int64_t last = last_of(first, count, step);
    for (; x->op == OP_slice_scatter; x = x->input[0]) {
        const int64_t *write = x->attrs->word;
        int64_t start = write[ATTR_slice_scatter_start];
        int64_t end = last_of(start, x->input[1]->size[dim], write[ATTR_slice_scatter_step]);
        if (write[ATTR_slice_scatter_dim] != dim || (first <= end && start <= last)) return x;
    }
    return x;
}

/* A slice of what was written beside it is one of what stood there before; of what was written, one
 * of that: rows that are written one by one, each from others, ask nobody who wrote them. */
static Node *slice_past_writes(Graph *graph, Node *node) {
    Attrs attrs = *node->attrs;
    int64_t *word = attrs.word, dim = word[ATTR_slice_dim], first = word[ATTR_slice_start];
    int64_t count = node->size[dim], step = word[ATTR_slice_step];
    int64_t last = last_of(first, count, step);
    Node *x = (Node *)node_past_writes(node->input[0], dim, first, count, step);
    const int64_t *write = x->op == OP_slice_scatter ? x->attrs->word : NULL;
    bool within = write && write[ATTR_slice_scatter_dim] == dim &&
                  write[ATTR_slice_scatter_step] == 1 && write[ATTR_slice_scatter_start] <= first &&
                  last < write[ATTR_slice_scatter_start] + x->input[1]->size[dim];
    if (within) {
        word[ATTR_slice_start] -= write[ATTR_slice_scatter_start];
        word[ATTR_slice_end] -= write[ATTR_slice_scatter_start];
        x = x->input[1];
    }
    return x == node->input[0] ? node : graph_op(graph, OP_slice, &x, 1, &attrs, NULL);
}

static Node *simplify_slice(Graph *graph, Node *node) {
    Node *x = node->input[0];
    const int64_t *outer = node->attrs->word;
    if (x->op == OP_slice_scatter && node_numel(node)) return slice_past_writes(graph, node);
    if (x->op != OP_slice || x->attrs->word[ATTR_slice_dim] != outer[ATTR_slice_dim]) return node;
    const int64_t *inner = x->attrs->word;
    int64_t count = node->size[outer[ATTR_slice_dim]];
    if (!count) return node;
    Attrs attrs = *node->attrs;
    int64_t start = inner[ATTR_slice_start] + outer[ATTR_slice_start] * inner[ATTR_slice_step];
    int64_t step = inner[ATTR_slice_step] * outer[ATTR_slice_step];
    attrs.word[ATTR_slice_start] = start;
    attrs.word[ATTR_slice_step] = step;
    attrs.word[ATTR_slice_end] = start + (count - 1) * step + 1;
    return graph_op(graph, OP_slice, &x->input[0], 1, &attrs, NULL);
}

/* Dimensions that are flipped twice, or have one element, are not flipped. */
static Node *simplify_flip(Graph *graph, Node *node) {
    Node *x = node->input[0];
    bool nested = x->op == OP_flip;
    cb_dim_list dims = attr_dims(node->attrs, ATTR_flip_dims), left = {0, {0}};
    unsigned flipped = 0;
    for (int i = 0; i < dims.count; i++) flipped ^= 1u << dims.at[i];
    if (nested) {
        cb_dim_list inner = attr_dims(x->attrs, ATTR_flip_dims);
        for (int i = 0; i < inner.count; i++) flipped ^= 1u << inner.at[i];
    }
    for (int i = 0; i < node->rank; i++)
        if ((flipped >> i & 1) && node->size[i] > 1) left.at[left.count++] = i;
    if (!nested && left.count == dims.count) return node;
    Attrs attrs = attrs_default(OP_flip);
    attr_set_dims(&attrs, ATTR_flip_dims, left);
    return graph_op(graph, OP_flip, nested ? &x->input[0] : &x, 1, &attrs, NULL);
}

/* ---- reductions and the rest -------------------------------------------------------------- */

enum { MOST_PIECES = 32 }; /* more might not fit into one kernel */

/* The pieces of a concatenation along dim, if each is one element long there; their number, 0 when
 * one is longer or they are too many. */
static int unit_pieces(Node *x, int dim, Node **piece, int count) {
    if (x->size[dim] == 1) {
        if (count == MOST_PIECES) return 0;
        piece[count] = x;
        return count + 1;
    }
    if (x->op != OP_concat || x->attrs->word[ATTR_concat_dim] != dim) return 0;
    count = x->input[0]->size[dim] ? unit_pieces(x->input[0], dim, piece, count) : 0;
    return count ? unit_pieces(x->input[1], dim, piece, count) : 0;
}

/* What joins two elements of the reduction. OP_COUNT: halves, whose sum rounds once at its end. */
static Op joining(const Node *node) {
    bool half = dtype_is_half(node->dtype);
    switch (node->op) {
    case OP_sum:
        return half ? OP_COUNT : OP_add;
    case OP_prod:
        return half ? OP_COUNT : OP_mul;
    case OP_amax:
        return OP_maximum;
    case OP_amin:
        return OP_minimum;
    case OP_any:
        return OP_logical_or;
    default:
        return OP_logical_and;
    }
}

static Node *shaped(Graph *graph, Node *x, const Node *like) {
    Node *node = node_reshape(graph, x, like->rank, like->size);
    if (node->op == OP_reshape) node = simplify_node(graph, node);
    return node_convert(graph, node, like->dtype);
}

/* A reduction over a stack joins its pieces, in their order: a loop would ask for each element
 * which piece it is of. NULL: it is none. */
static Node *reduce_stack(Graph *graph, Node *node) {
    Node *piece[MOST_PIECES], *x = node->input[0];
    cb_dim_list dims = attr_dims(node->attrs, ATTR_sum_dim);
    Op op = joining(node);
    if (dims.count != 1 || op == OP_COUNT) return NULL;
    if (x->op == OP_to && x->dtype == node->dtype) x = x->input[0];
    int count = unit_pieces(x, (int)dims.at[0], piece, 0);
    if (count < 2) return NULL;
    Node *both[2] = {shaped(graph, piece[0], node)};
    if (node->op == OP_sum) { /* which begins at 0, so that -0 becomes that */
        both[1] = graph_constant(graph, node->dtype, scalar_identity(OP_sum, node->dtype));
        both[0] = graph_op(graph, op, both, 2, NULL, NULL);
    }
    for (int i = 1; i < count; i++) {
        both[1] = shaped(graph, piece[i], node);
        both[0] = graph_op(graph, op, both, 2, NULL, NULL);
    }
    return both[0];
}

/* Of one element: the element. Of nothing: the identity. */
static Node *simplify_reduce(Graph *graph, Node *node) {
    Node *x = node->input[0], *joined;
    if (node_numel(x) == 0) {
        Scalar identity = scalar_identity(node->op, node->dtype);
        Node *constant = graph_constant(graph, node->dtype, identity);
        return node_expand_to(graph, constant, node->rank, node->size);
    }
    if ((joined = reduce_stack(graph, node))) return joined;
    cb_dim_list dims = attr_dims(node->attrs, ATTR_sum_dim);
    for (int i = 0; i < dims.count; i++)
        if (x->size[dims.at[i]] != 1) return node;
    return node_reshape(graph, x, node->rank, node->size);
}

/* The sizes that the inputs broadcast to; they are known to. */
static void broadcast(Node *const *input, int count, Meta *result) {
    result->rank = 0;
    for (int i = 0; i < count; i++)
        if (input[i]->rank > result->rank) result->rank = input[i]->rank;
    for (int d = 0; d < result->rank; d++) result->size[d] = 1;
    for (int i = 0; i < count; i++) {
        int shift = result->rank - input[i]->rank;
        for (int d = 0; d < input[i]->rank; d++)
            if (result->size[d + shift] == 1) result->size[d + shift] = input[i]->size[d];
    }
}

/* Sums of few rows among many zeros need not be in memory for who reads them element by element. */
static Node *read_sums(Graph *graph, Node *node) {
    Node *input[NODE_MAX_INPUTS];
    for (int i = 0; i < node->input_count; i++) input[i] = read_row_sums(graph, node->input[i]);
    return graph_with_inputs(graph, node, input);
}

/* Operands are expanded as late as possible: by the op itself where the others have the result's
 * sizes, else after the op, which then computes fewer elements. */
static Node *simplify_pointwise(Graph *graph, Node *node) {
    Node *input[NODE_MAX_INPUTS];
    bool expanded = false;
    for (int i = 0; i < node->input_count; i++) {
        bool expand = node->input[i]->op == OP_expand;
        input[i] = expand ? node->input[i]->input[0] : node->input[i];
        expanded |= expand;
    }
    if (!expanded) return read_sums(graph, node);
    Meta meta = {.dtype = node->dtype};
    broadcast(input, node->input_count, &meta);
    Node *small = graph_intern(graph, node->op, &meta, input, node->input_count, node->attrs);
    return node_expand_to(graph, small, node->rank, node->size);
}

static bool pads_nothing(const Node *node) {
    cb_dim_list padding = attr_dims(node->attrs, ATTR_pad_padding);
    for (int i = 0; i < padding.count; i++)
        if (padding.at[i]) return false;
    return true;
}

/* Whether a write leaves nothing of one before it, which it is to the result of. One along another
 * dim has all of this one's, which no part covers. */
static bool covers(const Node *write, const Node *before) {
    if (before->op != OP_slice_scatter) return false;
    const int64_t *now = write->attrs->word, *then = before->attrs->word;
    int64_t dim = now[ATTR_slice_scatter_dim];
    int64_t first[2] = {now[ATTR_slice_scatter_start], then[ATTR_slice_scatter_start]};
    int64_t step[2] = {now[ATTR_slice_scatter_step], then[ATTR_slice_scatter_step]};
    int64_t count[2] = {write->input[1]->size[dim], before->input[1]->size[dim]};
    if (first[0] == first[1] && step[0] == step[1] && count[0] == count[1]) return true;
    return step[0] == 1 && first[0] <= first[1] &&
           last_of(first[1], count[1], step[1]) < first[0] + count[0];
}

/* A source of the full size replaces everything, and any one what was written there before. */
static Node *simplify_write(Graph *graph, Node *node) {
    Node *x = node->input[0];
    if (node_same_meta(x, node->input[1])) return node->input[1];
    while (covers(node, x)) x = x->input[0];
    if (x == node->input[0]) return node;
    return graph_op(graph, OP_slice_scatter, (Node *[]){x, node->input[1]}, 2, node->attrs, NULL);
}

static Node *simplify_join(Graph *graph, Node *node) {
    Node *x = node->input[0];
    int64_t dim;
    switch (node->op) {
    case OP_pad:
        return pads_nothing(node) ? x : node;
    case OP_concat:
        dim = node->attrs->word[ATTR_concat_dim];
        if (!x->size[dim]) return node->input[1];
        return node->input[1]->size[dim] ? node : x;
    case OP_dynamic_slice: /* all of it */
        return node_same_meta(x, node) ? x : node;
    case OP_slice_scatter:
        return simplify_write(graph, node);
    case OP_dynamic_slice_scatter:
        return node_same_meta(x, node->input[1]) ? node->input[1] : node;
    default:
        return node;
    }
}

Node *simplify_node(Graph *graph, Node *node) {
    Node *x = node->input_count ? node->input[0] : NULL;
    switch (node->op) {
    case OP_contiguous:
    case OP_clone:
        return x;
    case OP_to:
        if (x->op == OP_to) return simplify_to(graph, node);
        break;
    case OP_permute:
        return simplify_permute(graph, node);
    case OP_slice:
        return simplify_slice(graph, node);
    case OP_flip:
        return simplify_flip(graph, node);
    case OP_reshape:
        return x->op == OP_reshape ? node_reshape(graph, x->input[0], node->rank, node->size)
                                   : node;
    case OP_expand:
        return x->op == OP_expand ? node_expand_to(graph, x->input[0], node->rank, node->size)
                                  : node;
    default:
        break;
    }
    switch (op_info(node->op)->kind) {
    case KIND_POINTWISE:
        return simplify_pointwise(graph, node);
    case KIND_REDUCE:
        return simplify_reduce(graph, node);
    case KIND_SCAN:
        return x->size[node->attrs->word[ATTR_along_dim]] <= 1 || !node_numel(x) ? x : node;
    case KIND_JOIN:
        return simplify_join(graph, node);
    default:
        return node;
    }
}
