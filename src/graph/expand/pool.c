/* Expansions of pooling: windows over the spatial dims, folded.
 *
 *     max_pool2d(x, 3, stride=2, padding=1)
 *         ->  amax(window(window(pad(x, -inf), 2, 3, 2), 3, 3, 2), dim=[-2, -1])
 *     adaptive_avg_pool2d(x: f32[8, 64, 7, 7], 1)  ->  the mean over windows of 7 x 7
 *
 * Adaptive windows that do not divide their dim have different lengths: they are gathered as rows
 * of the longest one, with a mask. Half precision is summed in f32 and rounded once. */
#include "graph/expand/expand.h"

#include <string.h>

_Static_assert(ATTR_max_pool1d_ceil_mode == ATTR_max_pool3d_ceil_mode &&
                   ATTR_max_pool1d_ceil_mode == ATTR_max_pool3d_indices_ceil_mode &&
                   ATTR_max_pool1d_padding == ATTR_avg_pool2d_padding &&
                   ATTR_avg_pool1d_count_include_pad == ATTR_avg_pool3d_count_include_pad,
               "pools of all ranks have one layout of attributes");

typedef struct Pool {
    Graph *graph;
    Op op;
    int n, first; /* spatial dims, and the first of them */
    int64_t kernel[3], stride[3], padding[3], dilation[3], extra[3]; /* extra: right padding */
} Pool;

static bool takes(Op op, const Node *x, int n) {
    bool fits = (x->rank == n + 1 || x->rank == n + 2) && x->size[x->rank - n - 1] > 0;
    if (!fits)
        fail(CB_ERR_SHAPE, "%s: needs channels, %d spatial dims and perhaps a batch",
             op_info(op)->name, n);
    return fits;
}

/* ---- fixed windows ------------------------------------------------------------------------ */

/* The padding on the right that gives the last window its elements. */
static bool place_windows(Pool *pool, const Node *x, bool ceil_mode) {
    for (int i = 0; i < pool->n; i++) {
        int64_t size = x->size[pool->first + i], step = pool->stride[i], pad = pool->padding[i];
        int64_t extent = (pool->kernel[i] - 1) * pool->dilation[i] + 1;
        if (2 * pad > pool->kernel[i]) { /* whatever the dilation, as PyTorch has it */
            fail(CB_ERR_ARGUMENT, "%s: padding %lld is more than half of the kernel size %lld",
                 op_info(pool->op)->name, (long long)pad, (long long)pool->kernel[i]);
            return false;
        }
        int64_t room = size + 2 * pad - extent;
        int64_t count = room < 0 && !ceil_mode ? 0 : (room + (ceil_mode ? step - 1 : 0)) / step + 1;
        if (ceil_mode && (count - 1) * step >= size + pad) count--;
        if (count < 1 || room + step <= 0) {
            fail(CB_ERR_SHAPE, "%s: a window of %lld does not fit into dim %d of size %lld",
                 op_info(pool->op)->name, (long long)extent, pool->first + i, (long long)size);
            return false;
        }
        int64_t missing = (count - 1) * step + extent - (size + 2 * pad);
        pool->extra[i] = pad + (missing > 0 ? missing : 0);
    }
    return true;
}

static bool open_pool(Pool *pool, const Node *x, const Attrs *attrs, bool dilated, bool ceil_mode) {
    cb_dim_list stride = attr_dims(attrs, ATTR_max_pool1d_stride);
    int kernel_word = ATTR_max_pool1d_kernel_size;
    bool own_stride = stride.count != 0;
    for (int i = 0; i < 3; i++) pool->dilation[i] = 1;
    pool->first = x->rank - pool->n;
    return takes(pool->op, x, pool->n) &&
           spatial_numbers(pool->op, attrs, kernel_word, "kernel_size", pool->n, 1, pool->kernel) &&
           spatial_numbers(pool->op, attrs, own_stride ? ATTR_max_pool1d_stride : kernel_word,
                           "stride", pool->n, 1, pool->stride) &&
           spatial_numbers(pool->op, attrs, ATTR_max_pool1d_padding, "padding", pool->n, 0,
                           pool->padding) &&
           (!dilated || spatial_numbers(pool->op, attrs, ATTR_max_pool1d_dilation, "dilation",
                                        pool->n, 1, pool->dilation)) &&
           place_windows(pool, x, ceil_mode);
}

/* x with a trailing dim of window elements for each spatial dim. */
static Node *windows(const Pool *pool, Node *x, cb_operand padding) {
    x = call_pad(pool->graph, x, pool->n, pool->padding, pool->extra, padding);
    for (int i = 0; i < pool->n; i++)
        x = call_window(pool->graph, x, pool->first + i, pool->kernel[i], pool->stride[i],
                        pool->dilation[i]);
    return x;
}

static Node *fold_windows(Graph *graph, Op op, Node *x, int n) {
    cb_dim_list dims = {n, {0}};
    for (int i = 0; i < n; i++) dims.at[i] = i - n;
    return call_reduce(graph, op, x, dims, false);
}

static cb_operand lowest(cb_dtype dtype) {
    return number_from(dtype, scalar_identity(OP_amax, dtype));
}

static Node *max_pool(Graph *graph, Op op, Node *x, const Attrs *attrs) {
    Pool pool = {.graph = graph, .op = op, .n = op - OP_max_pool1d + 1};
    if (!open_pool(&pool, x, attrs, true, attrs->word[ATTR_max_pool1d_ceil_mode])) return NULL;
    Node *seen = windows(&pool, x, lowest(x->dtype));
    return fold_windows(graph, OP_amax, seen, pool.n);
}

/* Places, counted through the spatial dims, are folded in a dtype as wide as elements of f32 where
 * they fit: a vector holds as many. */
typedef struct Places {
    cb_dtype dtype;
    int64_t nowhere; /* behind the place of any element */
    Node *seen;      /* in windows: [1, ...] of x's rank */
} Places;

static Places window_places(const Pool *pool, const Node *x) {
    int64_t size[CB_MAX_RANK] = {1, 1}, count = 1;
    for (int i = 0; i < pool->n; i++) count *= size[pool->first + i] = x->size[pool->first + i];
    bool few = count < INT32_MAX;
    Places places = {few ? CB_I32 : CB_I64, few ? INT32_MAX : INT64_MAX, NULL};
    Node *place = call_arange(pool->graph, count, places.dtype);
    place = node_reshape(pool->graph, place, x->rank, size);
    places.seen = windows(pool, place, cb_operand_int(places.nowhere));
    return places;
}

/* The first place of the greatest element, or the last NaN, as PyTorch; never in padding, unless
 * a dilated window holds nothing else: then 0. */
static Node *max_pool_indices(Graph *graph, Op op, Node *x, const Attrs *attrs) {
    Pool pool = {.graph = graph, .op = op, .n = op - OP_max_pool1d_indices + 1};
    cb_dtype dtype = x->dtype;
    if (!open_pool(&pool, x, attrs, true, attrs->word[ATTR_max_pool1d_ceil_mode])) return NULL;
    Places place = window_places(&pool, x);
    Node *seen = windows(&pool, x, lowest(dtype));
    Node *most = fold_windows(graph, OP_amax, seen, pool.n);
    if (!most) return NULL;
    int64_t size[CB_MAX_RANK];
    for (int i = 0; i < seen->rank; i++) size[i] = i < most->rank ? most->size[i] : 1;
    Node *wide = node_reshape(graph, most, seen->rank, size);
    Node *nowhere = graph_constant(graph, place.dtype, (Scalar){.i = place.nowhere});
    Node *first = call3(graph, OP_where, call2(graph, OP_eq, seen, wide), place.seen, nowhere);
    first = fold_windows(graph, OP_amin, first, pool.n);
    Node *zero = graph_constant(graph, place.dtype, (Scalar){.i = 0});
    first = call3(graph, OP_where, call2(graph, OP_eq, first, nowhere), zero, first);
    if (!dtype_is_float(dtype)) return node_convert(graph, first, CB_I64);
    nowhere = graph_constant(graph, place.dtype, (Scalar){.i = -1});
    Node *last = call3(graph, OP_where, call1(graph, OP_isnan, seen), place.seen, nowhere);
    first = call3(graph, OP_where, call1(graph, OP_isnan, most),
                  fold_windows(graph, OP_amax, last, pool.n), first);
    return node_convert(graph, first, CB_I64);
}

/* How many elements the windows of spatial dim i count: those of x, and of its padding if asked
 * for, but never what ceil_mode adds. Shaped to broadcast over the result. */
static Node *window_counts(const Pool *pool, int i, const Node *sum, int64_t size, bool include) {
    Graph *graph = pool->graph;
    int64_t shape[CB_MAX_RANK], pad = pool->padding[i], count = sum->size[pool->first + i];
    Node *start =
        call_number(graph, OP_mul, call_arange(graph, count, CB_I64), (double)pool->stride[i]);
    start = call_number(graph, OP_sub, start, (double)pad);
    Node *end = call_number(graph, OP_add, start, (double)pool->kernel[i]);
    end = call_number(graph, OP_minimum, end, (double)(include ? size + pad : size));
    if (!include) start = call_number(graph, OP_maximum, start, 0);
    Node *counts = call2(graph, OP_sub, end, start);
    for (int d = 0; d < pool->n - i; d++) shape[d] = d ? 1 : count;
    counts = node_reshape(graph, counts, pool->n - i, shape);
    return node_convert(graph, counts, sum->dtype);
}

/* Integers are divided as in C, towards 0. */
static Node *divided(Graph *graph, Node *sum, Node *count) {
    if (dtype_is_float(sum->dtype)) return call2(graph, OP_div, sum, count);
    Node *below =
        call2(graph, OP_ne, call_number(graph, OP_lt, sum, 0), call_number(graph, OP_lt, count, 0));
    Node *size =
        call2(graph, OP_floor_divide, call1(graph, OP_abs, sum), call1(graph, OP_abs, count));
    return call3(graph, OP_where, below, call1(graph, OP_neg, size), size);
}

static Node *divide_by_counts(const Pool *pool, Node *sum, const Node *x, bool include) {
    int64_t fixed = 1;
    Node *counts = NULL;
    if (!sum) return NULL;
    for (int i = 0; i < pool->n; i++) {
        bool whole = pool->extra[i] == pool->padding[i] && (include || !pool->padding[i]);
        if (whole) {
            fixed *= pool->kernel[i];
            continue;
        }
        Node *own = window_counts(pool, i, sum, x->size[pool->first + i], include);
        counts = counts ? call2(pool->graph, OP_mul, counts, own) : own;
    }
    if (!counts && fixed == 1) return sum;
    Node *rest = call_constant(pool->graph, sum->dtype, (double)fixed);
    if (counts) rest = fixed > 1 ? call2(pool->graph, OP_mul, counts, rest) : counts;
    return divided(pool->graph, sum, rest);
}

static Node *too_long(const Pool *pool, const Node *x, int i) {
    fail(CB_ERR_SHAPE, "%s: a window of %lld is longer than dim %d of size %lld, without padding",
         op_info(pool->op)->name, (long long)pool->kernel[i], pool->first + i,
         (long long)x->size[pool->first + i]);
    return NULL;
}

static Node *avg_pool(Graph *graph, Op op, Node *given, const Attrs *attrs) {
    Pool pool = {.graph = graph, .op = op, .n = op - OP_avg_pool1d + 1};
    if (!open_pool(&pool, given, attrs, false, attrs->word[ATTR_avg_pool1d_ceil_mode])) return NULL;
    for (int i = 0; pool.n == 3 && i < 3; i++) /* PyTorch counts the padding in 1d and 2d alone */
        if (pool.kernel[i] > given->size[pool.first + i]) return too_long(&pool, given, i);
    int64_t divisor = pool.n > 1 ? attrs->word[ATTR_avg_pool2d_divisor_override] : 0;
    Node *x = node_widen(graph, given);
    Node *sum = fold_windows(graph, OP_sum, windows(&pool, x, cb_operand_int(0)), pool.n);
    if (sum && divisor)
        sum = divided(graph, sum, call_constant(graph, sum->dtype, (double)divisor));
    else
        sum = divide_by_counts(&pool, sum, x, attrs->word[ATTR_avg_pool1d_count_include_pad]);
    return node_convert(graph, sum, given->dtype);
}

/* ---- adaptive windows --------------------------------------------------------------------- */

/* Window o of a dim of size n cut into `count`: [o * n / count, ceil((o + 1) * n / count)). */
static int64_t longest_window(int64_t n, int64_t count) {
    int64_t longest = 0;
    for (int64_t o = 0; o < count; o++) {
        int64_t length = ((o + 1) * n + count - 1) / count - o * n / count;
        if (length > longest) longest = length;
    }
    return longest;
}

/* One dim that the windows do not divide evenly, as windows by elements of the longest one, with
 * `neutral` behind the shorter ones. lengths: of each window, to broadcast over its sum. */
static Node *ragged(Graph *graph, Node *x, int dim, int64_t count, Scalar neutral, Node **lengths) {
    int64_t n = x->size[dim], longest = longest_window(n, count), size[CB_MAX_RANK] = {0};
    Node *number = call_arange(graph, count, CB_I64);
    Node *start = call_number(graph, OP_mul, number, (double)n);
    Node *end = call_number(graph, OP_add, start, (double)(n + count - 1));
    start = call_number(graph, OP_floor_divide, start, (double)count);
    end = call_number(graph, OP_floor_divide, end, (double)count);
    *lengths = call2(graph, OP_sub, end, start);
    Node *inside = call_arange(graph, longest, CB_I64);
    Node *column = node_reshape(graph, start, 2, (int64_t[]){count, 1});
    Node *index =
        call_number(graph, OP_minimum, call2(graph, OP_add, column, inside), (double)(n - 1));
    index = node_reshape(graph, index, 1, (int64_t[]){count * longest});
    Attrs attrs = attrs_default(OP_index_select);
    attrs.word[ATTR_index_select_dim] = dim;
    x = graph_op(graph, OP_index_select, (Node *[]){x, index}, 2, &attrs, NULL);
    if (!x) return NULL;
    for (int d = 0, k = 0; d < x->rank; d++) {
        size[k++] = d == dim ? count : x->size[d];
        if (d == dim) size[k++] = longest;
    }
    x = node_reshape(graph, x, x->rank + 1, size);
    int64_t tail[CB_MAX_RANK] = {count, longest, 1, 1, 1, 1, 1, 1};
    Node *valid =
        call2(graph, OP_lt, inside, node_reshape(graph, *lengths, 2, (int64_t[]){count, 1}));
    valid = node_reshape(graph, valid, x->rank - dim, tail);
    tail[1] = 1;
    *lengths = node_reshape(graph, *lengths, x->rank - 1 - dim, tail);
    return call3(graph, OP_where, valid, x, graph_constant(graph, x->dtype, neutral));
}

static Node *ragged_mean(Graph *graph, Node *x, int dim, int64_t count) {
    Node *lengths;
    x = ragged(graph, x, dim, count, (Scalar){0}, &lengths);
    if (!x) return NULL;
    x = call_reduce(graph, OP_sum, x, dims_one(dim + 1), false);
    return call2(graph, OP_div, x, node_convert(graph, lengths, x->dtype));
}

static Node *no_windows(Graph *graph, const Node *x, int n, const int64_t *output) {
    int64_t size[CB_MAX_RANK];
    for (int i = 0; i < x->rank; i++)
        size[i] = i < x->rank - n ? x->size[i] : output[i - (x->rank - n)];
    return call_full(graph, x->rank, size, cb_operand_int(0), x->dtype);
}

/* A max pool of windows side by side: its gradient goes to the first of equal elements. */
static Node *adaptive_max(Graph *graph, int n, Node *x, const int64_t *output) {
    Op op = OP_max_pool1d + n - 1;
    Attrs attrs = attrs_default(op);
    cb_dim_list length = {n, {0}};
    int64_t size[CB_MAX_RANK];
    memcpy(size, x->size, sizeof size);
    for (int i = 0; x && i < n; i++) {
        int dim = x->rank - n + i;
        length.at[i] = x->size[dim] / output[i];
        if (x->size[dim] % output[i] == 0) continue;
        Node *lengths;
        Node *apart =
            ragged(graph, x, dim, output[i], scalar_identity(OP_amax, x->dtype), &lengths);
        if (!apart) return NULL;
        length.at[i] = apart->size[dim + 1];
        size[dim] = output[i] * length.at[i];
        x = node_reshape(graph, apart, x->rank, size);
    }
    attr_set_dims(&attrs, ATTR_max_pool1d_kernel_size, length);
    return graph_op(graph, op, &x, 1, &attrs, NULL);
}

static Node *adaptive_pool(Graph *graph, Op op, Node *given, const Attrs *attrs) {
    bool mean = op <= OP_adaptive_avg_pool3d;
    int n = op - (mean ? OP_adaptive_avg_pool1d : OP_adaptive_max_pool1d) + 1, even = 0;
    int first = given->rank - n;
    int64_t output[3], elements = 1;
    if (!takes(op, given, n) || !spatial_numbers(op, attrs, ATTR_adaptive_avg_pool1d_output_size,
                                                 "output_size", n, 0, output))
        return NULL;
    for (int i = 0; i < n; i++)
        if (given->size[first + i] == 0)
            return fail(CB_ERR_SHAPE, "%s: a spatial dim is empty", op_info(op)->name), NULL;
    for (int i = 0; i < n; i++)
        if (output[i] == 0) return no_windows(graph, given, n, output);
    if (!mean) return adaptive_max(graph, n, given, output);
    Node *x = node_widen(graph, given);
    for (int i = 0; i < n; i++) {
        int64_t step = given->size[first + i] / output[i];
        if (given->size[first + i] % output[i] || step == 1) continue;
        x = call_window(graph, x, first + i, step, step, 1);
        elements *= step;
        even++;
    }
    if (even) x = fold_windows(graph, OP_sum, x, even);
    if (even) x = call_number(graph, OP_div, x, (double)elements);
    for (int i = 0; x && i < n; i++)
        if (given->size[first + i] % output[i]) x = ragged_mean(graph, x, first + i, output[i]);
    return node_narrow(graph, x, given);
}

Node *expand_pool(Graph *graph, Op op, Node *x, const Attrs *attrs) {
    if (op <= OP_max_pool3d) return max_pool(graph, op, x, attrs);
    if (op <= OP_avg_pool3d) return avg_pool(graph, op, x, attrs);
    if (op <= OP_adaptive_max_pool3d) return adaptive_pool(graph, op, x, attrs);
    return max_pool_indices(graph, op, x, attrs);
}
