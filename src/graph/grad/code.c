/* Gradients that need sizes or a loop: products of matrices, products of elements, windows, max
 * pools, limits. Those of gathers and scatters are index.c, of convolutions convolution.c.
 *
 *     c = matmul(a, b)   to a: matmul(g, b transposed), to b: matmul(a transposed, g)
 *     p = prod(x)        to x: g * (product of those before) * (product of those behind): no
 *                        division, so an x with a 0 has its gradient, too */
#include "graph/grad/grad.h"
#include "op/custom.h"

#include <string.h>

/* ---- products of matrices -------------------------------------------------------------------- */

static Node *turned(Graph *graph, Node *x) {
    cb_dim_list dims = {x->rank, {0}};
    for (int i = 0; i < x->rank; i++) dims.at[i] = i;
    dims.at[x->rank - 2] = x->rank - 1, dims.at[x->rank - 1] = x->rank - 2;
    return call_permute(graph, x, dims);
}

/* x turned, when it is something else turned already. */
static bool is_turned(const Node *x) {
    if (x->op != OP_permute) return false;
    cb_dim_list dims = attr_dims(x->attrs, ATTR_permute_dims);
    for (int i = 0; i < dims.count - 2; i++)
        if (dims.at[i] != i) return false;
    return dims.at[dims.count - 2] == dims.count - 1;
}

/* The gradient a @ b of what `as` is. Where that is a weight that was turned for the product, its
 * gradient is the turned one: as the product of the factors turned, it needs no copy. */
static Node *product(Graph *graph, const Node *as, Node *a, Node *b) {
    if (!is_turned(as)) return call2(graph, OP_matmul, a, b);
    Node *other = call2(graph, OP_matmul, turned(graph, b), turned(graph, a));
    return other ? turned(graph, other) : NULL;
}

/* All but the last dim as rows. */
static Node *as_rows(Graph *graph, Node *x) {
    int64_t width = x->size[x->rank - 1], rows = 1;
    for (int i = 0; i < x->rank - 1; i++) rows *= x->size[i];
    return node_reshape(graph, x, 2, (int64_t[]){rows, width});
}

static void grad_matmul(const GradCall *call) {
    Graph *graph = call->graph;
    Node *a = call->node->input[0], *b = call->node->input[1], *g = call->given;
    int64_t size[CB_MAX_RANK];
    bool row = a->rank == 1, column = b->rank == 1;
    int batch = g->rank - !row - !column;
    if (batch) memcpy(size, g->size, sizeof *size * (size_t)batch);
    size[batch] = row ? 1 : g->size[batch];
    size[batch + 1] = column ? 1 : g->size[g->rank - 1];
    g = node_reshape(graph, g, batch + 2, size);
    Node *left = row ? node_reshape(graph, a, 2, (int64_t[]){1, a->size[0]}) : a;
    Node *right = column ? node_reshape(graph, b, 2, (int64_t[]){b->size[0], 1}) : b;
    if (call->wanted[0]) { /* a row may have met several matrices */
        Node *to = product(graph, left, g, turned(graph, right));
        size[batch] = a->size[a->rank - 1];
        call->result[0] = row ? node_reshape(graph, to, batch + 1, size) : to;
    }
    if (!call->wanted[1]) return;
    bool folds = right->rank == 2 && left->rank > 2; /* one product, not a sum of products */
    if (folds) left = as_rows(graph, left), g = as_rows(graph, g);
    Node *to = product(graph, right, turned(graph, left), g);
    call->result[1] = column && to ? node_reshape(graph, to, to->rank - 1, to->size) : to;
}

/* ---- products of elements -------------------------------------------------------------------- */

/* The dims `order` begins with are kept, the others become the last one; and back. */
typedef struct Rows {
    cb_dim_list order, back;
    int64_t size[CB_MAX_RANK]; /* in that order */
    int64_t rows, width;
} Rows;

static Rows rows_of(const Node *x, unsigned along) {
    Rows r = {.order = {x->rank, {0}}, .back = {x->rank, {0}}, .rows = 1, .width = 1};
    int used = 0;
    for (unsigned pass = 0; pass < 2; pass++)
        for (int i = 0; i < x->rank; i++) {
            if ((along >> i & 1) != pass) continue;
            *(pass ? &r.width : &r.rows) *= x->size[i];
            r.size[used] = x->size[i];
            r.back.at[i] = used;
            r.order.at[used++] = i;
        }
    return r;
}

static Node *to_rows(Graph *graph, Node *x, const Rows *r) {
    return node_reshape(graph, call_permute(graph, x, r->order), 2, (int64_t[]){r->rows, r->width});
}

static Node *from_rows(Graph *graph, Node *x, const Rows *r) {
    return call_permute(graph, node_reshape(graph, x, r->order.count, r->size), r->back);
}

static Node *call_cumprod(Graph *graph, Node *x, int dim) {
    Attrs attrs = attrs_default(OP_cumprod);
    attrs.word[ATTR_cumprod_dim] = dim;
    return graph_op(graph, OP_cumprod, &x, 1, &attrs, NULL);
}

/* [rows, width]: of each element the product of those before it. */
static Node *products_before(Graph *graph, Node *x) {
    Node *moved = call_pad(graph, x, 1, (int64_t[]){1}, (int64_t[]){-1}, cb_operand_int(1));
    return call_cumprod(graph, moved, 1);
}

static Node *products_behind(Graph *graph, Node *x) {
    return call_flip(graph, products_before(graph, call_flip(graph, x, 1)), 1);
}

static void grad_prod(const GradCall *call) {
    Graph *graph = call->graph;
    Node *x = call->node->input[0];
    cb_dim_list dims = attr_dims(call->node->attrs, ATTR_prod_dim);
    unsigned along = 0;
    for (int i = 0; i < dims.count; i++) along |= 1u << dims.at[i];
    Rows r = rows_of(x, along);
    if (!r.width) return; /* of nothing */
    Node *flat = to_rows(graph, x, &r);
    Node *g = node_reshape(graph, call->given, 2, (int64_t[]){r.rows, 1});
    Node *others = call2(graph, OP_mul, products_before(graph, flat), products_behind(graph, flat));
    call->result[0] = from_rows(graph, call2(graph, OP_mul, g, others), &r);
}

/* Element k is in every product from its own on, so it gets the sum over i >= k of g[i] times the
 * product of all elements up to i but itself: products_before[k] * sum of g[i] * between[k, i]. The
 * products between are width * width values, of a scan over x behind k with ones before; a division
 * by x[k] would need fewer, and fail where it is 0. */
static void grad_cumprod(const GradCall *call) {
    Graph *graph = call->graph;
    Node *x = call->node->input[0];
    Rows r = rows_of(x, 1u << call->node->attrs->word[ATTR_cumprod_dim]);
    if (!r.rows || !r.width) return;
    Node *flat = to_rows(graph, x, &r), *g = to_rows(graph, call->given, &r);
    int64_t wide[] = {r.rows, 1, r.width};
    Node *place = call_arange(graph, r.width, CB_I64);
    Node *column = node_reshape(graph, place, 2, (int64_t[]){r.width, 1});
    Node *behind = call2(graph, OP_gt, place, column), *from = call2(graph, OP_ge, place, column);
    Node *one = call_constant(graph, x->dtype, 1), *zero = call_constant(graph, g->dtype, 0);
    Node *between = call3(graph, OP_where, behind, node_reshape(graph, flat, 3, wide), one);
    between = call_cumprod(graph, between, 2);
    Node *terms = call2(graph, OP_mul, node_reshape(graph, g, 3, wide), between);
    terms = call3(graph, OP_where, from, terms, zero);
    Node *sum = call_reduce(graph, OP_sum, terms, dims_one(2), false);
    sum = call2(graph, OP_mul, sum, products_before(graph, flat));
    call->result[0] = from_rows(graph, sum, &r);
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Windows that do not overlap, with `step` between their starts: as they were, with the gaps. */
static Node *windows_joined(Graph *graph, Node *g, int dim, int64_t step, int64_t length) {
    int last = g->rank - 1;
    int64_t none[CB_MAX_RANK] = {0}, right[CB_MAX_RANK] = {0}, size[CB_MAX_RANK];
    cb_dim_list order = {g->rank, {0}};
    for (int i = 0, used = 0; i < last; i++) {
        order.at[used++] = i;
        if (i == dim) order.at[used++] = last;
    }
    g = call_permute(graph, g, order);
    right[0] = step - g->size[dim + 1];
    g = call_pad(graph, g, last - dim, none, right, cb_operand_int(0));
    for (int i = 0, used = 0; i < last; i++, used++)
        size[i] = i == dim ? g->size[used] * g->size[used + 1] : g->size[used], used += i == dim;
    g = node_reshape(graph, g, last, size);
    right[0] = length - g->size[dim];
    return call_pad(graph, g, last - dim, none, right, cb_operand_int(0));
}

/* What element w of all windows adds: at w * dilation, with `step` between them. */
static Node *windows_element(Graph *graph, const Node *x, Node *g, const Attrs *attrs, int64_t w) {
    int64_t dim = attrs->word[ATTR_window_dim], step = attrs->word[ATTR_window_step];
    int64_t start = w * attrs->word[ATTR_window_dilation], count = g->size[dim];
    Node *element = call_slice(graph, g, g->rank - 1, w, w + 1);
    element = node_reshape(graph, element, g->rank - 1, g->size);
    Attrs place = attrs_default(OP_slice_scatter);
    place.word[ATTR_slice_scatter_dim] = dim;
    place.word[ATTR_slice_scatter_start] = start;
    place.word[ATTR_slice_scatter_end] = start + (count - 1) * step + 1;
    place.word[ATTR_slice_scatter_step] = step;
    Node *zeros = node_splat(graph, x, (Scalar){0});
    return graph_op(graph, OP_slice_scatter, (Node *[]){zeros, element}, 2, &place, NULL);
}

/* Long windows that overlap: each element to its place. */
static Node *windows_scattered(Graph *graph, const Node *x, Node *g, const Attrs *attrs) {
    int dim = (int)attrs->word[ATTR_window_dim];
    int64_t count = g->size[dim], length = g->size[g->rank - 1], joined = count * length;
    Node *start = call_number(graph, OP_mul, call_arange(graph, count, CB_I64),
                              (double)attrs->word[ATTR_window_step]);
    Node *inside = call_number(graph, OP_mul, call_arange(graph, length, CB_I64),
                               (double)attrs->word[ATTR_window_dilation]);
    Node *place =
        call2(graph, OP_add, node_reshape(graph, start, 2, (int64_t[]){count, 1}), inside);
    int64_t along[CB_MAX_RANK];
    for (int i = 0; i < x->rank; i++) along[i] = i == dim ? joined : 1;
    place = node_reshape(graph, place, x->rank, along);
    g = windows_joined(graph, g, dim, length, joined);
    Attrs scatter = attrs_default(OP_scatter_add);
    scatter.word[ATTR_scatter_add_dim] = dim;
    Node *zeros = node_splat(graph, x, (Scalar){0});
    place = node_expand_to(graph, place, g->rank, g->size);
    return graph_op(graph, OP_scatter_add, (Node *[]){zeros, place, g}, 3, &scatter, NULL);
}

enum { FEW_ELEMENTS = 16 }; /* of a window: a sum of so many reads */

static Node *grad_window(Graph *graph, const Node *x, Node *g, const Attrs *attrs) {
    int dim = (int)attrs->word[ATTR_window_dim];
    int64_t length = g->size[g->rank - 1], step = attrs->word[ATTR_window_step];
    if (!node_numel(g)) return NULL;
    bool apart = length == 1 || (step >= length && attrs->word[ATTR_window_dilation] == 1);
    if (apart) return windows_joined(graph, g, dim, step, x->size[dim]);
    if (length > FEW_ELEMENTS) return windows_scattered(graph, x, g, attrs);
    Node *sum = NULL;
    for (int64_t w = 0; w < length; w++) {
        Node *element = windows_element(graph, x, g, attrs, w);
        sum = sum ? call2(graph, OP_add, sum, element) : element;
    }
    return sum;
}

/* ---- max pools ------------------------------------------------------------------------------- */

_Static_assert(OP_max_pool3d_indices - OP_max_pool1d_indices == OP_max_pool3d - OP_max_pool1d,
               "each max pool has its indices");

/* To the first of the greatest elements, as PyTorch; not shared among them, as amax does. */
static void grad_max_pool(const GradCall *call) {
    Graph *graph = call->graph;
    Node *x = call->node->input[0], *out = call->node;
    Op op = OP_max_pool1d_indices + (out->op - OP_max_pool1d);
    int first = x->rank - (out->op - OP_max_pool1d + 1);
    int64_t size[CB_MAX_RANK], places = 1, elements = 1;
    Node *place = graph_op(graph, op, &x, 1, out->attrs, NULL);
    for (int i = 0; i < x->rank; i++) {
        if (i < first) size[i] = x->size[i];
        if (i >= first) places *= x->size[i], elements *= out->size[i];
    }
    size[first] = places;
    Node *zeros = call_full(graph, first + 1, size, cb_operand_int(0), x->dtype);
    size[first] = elements;
    Attrs scatter = attrs_default(OP_scatter_add);
    scatter.word[ATTR_scatter_add_dim] = first;
    Node *input[] = {zeros, node_reshape(graph, place, first + 1, size),
                     node_reshape(graph, call->given, first + 1, size)};
    Node *sum = place ? graph_op(graph, OP_scatter_add, input, 3, &scatter, NULL) : NULL;
    call->result[0] = node_reshape(graph, sum, x->rank, x->size);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Between the limits, and at them, but not beyond: a NaN is on neither side. */
static void grad_clamp(const GradCall *call) {
    Graph *graph = call->graph;
    Node *x = call->node->input[0], *inside = NULL;
    for (int i = 0; i < 2; i++) {
        Node *limit =
            call_given(graph, attr_number(call->node->attrs, i ? ATTR_clamp_high : ATTR_clamp_low));
        if (!limit) continue;
        Node *within = graph_op(graph, i ? OP_le : OP_ge, (Node *[]){x, limit}, 2, NULL,
                                (bool[]){false, true});
        inside = inside ? call2(graph, OP_logical_and, inside, within) : within;
    }
    Node *zero = call_constant(graph, call->given->dtype, 0);
    call->result[0] = call3(graph, OP_where, inside, call->given, zero);
}

/* ---- operations of the user's ---------------------------------------------------------------- */

static Node *part(Graph *graph, Node *value, const CustomResults *results, int k) {
    if (results->count == 1 || !value) return value;
    Attrs attrs = custom_part_attrs(results, k);
    return graph_op(graph, OP_custom_part, &value, 1, &attrs, NULL);
}

/* One call of the op that was registered for it, whose results are the gradients of the inputs that
 * have one. */
static void grad_custom(const GradCall *call) {
    const Node *node = call->node;
    int count = node->input_count, next = 0;
    Node *input[OP_MAX_INPUTS];
    Meta meta[OP_MAX_INPUTS];
    Attrs attrs;
    CustomResults results;
    attrs_copy(&attrs, node->attrs, OP_custom);
    attrs.word[ATTR_custom_operation] = custom_gradient(node->attrs);
    for (int i = 0; i <= count; i++) {
        input[i] = i < count ? node->input[i] : call->given;
        meta[i] = node_meta(input[i]);
    }
    if (!custom_results(meta, count + 1, &attrs, &results)) return;
    Node *value = graph_op(call->graph, OP_custom, input, count + 1, &attrs, NULL);
    for (int i = 0; i < count && value; i++) {
        if (!dtype_is_float(meta[i].dtype)) continue;
        Node *g = next < results.count ? part(call->graph, value, &results, next) : NULL;
        if (g && node_same_meta(g, input[i]) && ++next)
            call->result[i] = g;
        else
            fail(CB_ERR_SHAPE, "%s gives no gradient for input %d of %s in its sizes and dtype",
                 custom_of(&attrs)->name, i, custom_of(node->attrs)->name);
    }
}

/* ---- entry ----------------------------------------------------------------------------------- */

bool grad_code(const GradCall *call) {
    const Node *node = call->node;
    switch (node->op) {
    case OP_matmul:
        grad_matmul(call);
        return true;
    case OP_prod:
        grad_prod(call);
        return true;
    case OP_cumprod:
        grad_cumprod(call);
        return true;
    case OP_clamp:
        grad_clamp(call);
        return true;
    case OP_window:
        call->result[0] = grad_window(call->graph, node->input[0], call->given, node->attrs);
        return true;
    case OP_convolution:
        grad_convolution(call);
        return true;
    case OP_scaled_dot_product_attention:
        return grad_attention(call);
    case OP_attention_gradient:
        grad_attention_gradient(call);
        return true;
    case OP_custom:
        grad_custom(call);
        return true;
    case OP_max_pool1d:
    case OP_max_pool2d:
    case OP_max_pool3d:
        grad_max_pool(call);
        return true;
    default:
        grad_index(call);
        return true;
    }
}
