/* Coded expansions of creation and rearrangement: full_like, eye, linspace, tril, repeat, roll...
 *
 *     tril(x: f32[4, 4])     ->  where(columns <= rows, x, 0)
 *     roll(x, shift=1, dim)  ->  concat(last one, the others before it) */
#include "graph/expand/expand.h"

#include <string.h>

static Node *eye(Graph *graph, const Attrs *attrs) {
    int64_t rows = attrs->word[ATTR_eye_n], columns = attrs->word[ATTR_eye_m];
    if (columns == -1) columns = rows;
    if (rows < 0 || columns < 0) {
        fail(CB_ERR_SHAPE, "eye: sizes must not be negative");
        return NULL;
    }
    Node *row = node_reshape(graph, call_arange(graph, rows, CB_I64), 2, (int64_t[]){rows, 1});
    Node *diagonal = call2(graph, OP_eq, row, call_arange(graph, columns, CB_I64));
    return node_convert(graph, diagonal, attrs->word[ATTR_eye_dtype]);
}

/* end + k * (distance / gaps). Of integers the product comes first: exact below 2^53, and the
 * quotient is an integer where it should be one, so that truncation finds it. */
static Node *between(Graph *graph, Node *end, Node *k, double distance, double gaps, bool whole) {
    Node *way = whole ? call_number(graph, OP_div, call_number(graph, OP_mul, k, distance), gaps)
                      : call_number(graph, OP_mul, k, distance / gaps);
    return call2(graph, OP_add, way, end);
}

/* Counted from the nearer end, so that both ends are exact. For integers the ends become integers
 * first; what lies between is computed in f64 and truncated. */
static Node *linspace(Graph *graph, const Attrs *attrs) {
    cb_operand start = attr_number(attrs, ATTR_linspace_start);
    cb_operand end = attr_number(attrs, ATTR_linspace_end);
    int64_t steps = attrs->word[ATTR_linspace_steps];
    cb_dtype dtype = attrs->word[ATTR_linspace_dtype];
    if (steps < 0 || (dtype == CB_BOOL && steps > 1)) {
        fail(CB_ERR_ARGUMENT, "linspace: %lld steps of %s", (long long)steps, cb_dtype_name(dtype));
        return NULL;
    }
    if (steps < 2) return call_full(graph, 1, &steps, steps ? start : cb_operand_int(0), dtype);
    bool whole = !dtype_is_float(dtype);
    cb_dtype compute = dtype == CB_F64 || whole ? CB_F64 : CB_F32;
    Node *first = node_convert(graph, node_number(graph, "linspace", start, dtype), compute);
    Node *last = node_convert(graph, node_number(graph, "linspace", end, dtype), compute);
    if (!first || !last) return NULL;
    double distance = node_constant(last).f - node_constant(first).f, gaps = (double)(steps - 1);
    Node *index = call_arange(graph, steps, CB_I64);
    Node *position = node_convert(graph, index, compute);
    Node *left = between(graph, first, position, distance, gaps, whole);
    Node *from_end = call_number(graph, OP_sub, position, gaps);
    Node *right = between(graph, last, from_end, distance, gaps, whole);
    Node *first_half = call_number(graph, OP_lt, index, (double)(steps / 2));
    Node *value = call3(graph, OP_where, first_half, left, right);
    return node_convert(graph, value, dtype);
}

static Node *triangle(Graph *graph, Op op, Node *x, int64_t diagonal) {
    if (x->rank < 2) {
        fail(CB_ERR_SHAPE, "%s: needs at least two dimensions", op_info(op)->name);
        return NULL;
    }
    int64_t rows = x->size[x->rank - 2], columns = x->size[x->rank - 1];
    Node *row = node_reshape(graph, call_arange(graph, rows, CB_I64), 2, (int64_t[]){rows, 1});
    Node *column = call_arange(graph, columns, CB_I64);
    Node *limit = diagonal ? call_number(graph, OP_add, row, (double)diagonal) : row;
    Node *keep = call2(graph, op == OP_tril ? OP_le : OP_ge, column, limit);
    return call3(graph, OP_where, keep, x, call_constant(graph, x->dtype, 0));
}

/* One dimension at a time, seen as [before, 1, rest], so that the rank never grows beyond 3. */
static Node *repeat(Graph *graph, Node *x, cb_dim_list repeats) {
    int rank = repeats.count;
    int64_t size[CB_MAX_RANK], total = 16; /* bytes of the largest dtype, and some room */
    bool fits = rank >= x->rank && rank <= CB_MAX_RANK;
    for (int i = 0; fits && i < rank; i++) fits = repeats.at[i] >= 0;
    if (!fits) {
        fail(CB_ERR_SHAPE, "repeat: needs a count, not negative, for each of %d dimensions",
             x->rank);
        return NULL;
    }
    for (int i = 0; i < rank; i++) size[i] = i < rank - x->rank ? 1 : x->size[i - (rank - x->rank)];
    for (int i = 0; fits && i < rank; i++)
        fits = !__builtin_mul_overflow(total, size[i] ? size[i] : 1, &total) &&
               !__builtin_mul_overflow(total, repeats.at[i] ? repeats.at[i] : 1, &total);
    if (!fits) {
        fail(CB_ERR_SHAPE, "repeat: the result has too many elements");
        return NULL;
    }
    x = node_reshape(graph, x, rank, size);
    for (int i = 0; i < rank; i++) {
        if (repeats.at[i] == 1) continue;
        int64_t before = 1, rest = 1;
        for (int k = 0; k < rank; k++) *(k < i ? &before : &rest) *= size[k];
        Node *view = node_reshape(graph, x, 3, (int64_t[]){before, 1, rest});
        view = node_expand_to(graph, view, 3, (int64_t[]){before, repeats.at[i], rest});
        size[i] *= repeats.at[i];
        x = node_reshape(graph, view, rank, size);
    }
    return x;
}

static Node *roll(Graph *graph, Node *x, int64_t shift, int64_t given) {
    int dim = checked_dim(OP_roll, given, x->rank);
    if (dim < 0) return NULL;
    int64_t size = x->size[dim];
    if (size) shift = ((shift % size) + size) % size;
    if (!size || !shift) return x;
    Node *last = call_slice(graph, x, dim, size - shift, size);
    Node *first = call_slice(graph, x, dim, 0, size - shift);
    return call_concat(graph, last, first, dim);
}

static Node *embedding(Graph *graph, Node *index, Node *weight) {
    if (dtype_is_float(index->dtype)) {
        fail(CB_ERR_DTYPE, "embedding: the index stands first and is of integers, not %s",
             cb_dtype_name(index->dtype));
        return NULL;
    }
    if (weight->rank != 2 || index->rank == CB_MAX_RANK) {
        fail(CB_ERR_SHAPE,
             "embedding: the weight must be a matrix, and the index have fewer than "
             "%d dimensions",
             CB_MAX_RANK);
        return NULL;
    }
    int64_t count = node_numel(index), size[CB_MAX_RANK];
    Attrs attrs = attrs_default(OP_index_select);
    Node *flat = node_reshape(graph, index, 1, &count);
    Node *rows = graph_op(graph, OP_index_select, (Node *[]){weight, flat}, 2, &attrs, NULL);
    if (!rows) return NULL;
    for (int i = 0; i < index->rank; i++) size[i] = index->size[i];
    size[index->rank] = weight->size[1];
    return node_reshape(graph, rows, index->rank + 1, size);
}

static bool one_hot_valid(const Node *x, int64_t classes) {
    if (x->dtype != CB_I64)
        fail(CB_ERR_ARGUMENT, "one_hot: needs i64, not %s", cb_dtype_name(x->dtype));
    else if (x->rank == CB_MAX_RANK)
        fail(CB_ERR_ARGUMENT, "one_hot: needs fewer than %d dimensions", CB_MAX_RANK);
    else if (classes <= 0) /* PyTorch's -1: sizes are no values here */
        fail(CB_ERR_ARGUMENT,
             "one_hot: %lld classes: at least 1, their number is not taken from the elements",
             (long long)classes);
    else
        return true;
    return false;
}

/* Rows of the unit matrix: a class outside of it is an index out of range. */
static Node *one_hot(Graph *graph, Node *x, int64_t classes) {
    if (!one_hot_valid(x, classes)) return NULL;
    Attrs attrs = attrs_default(OP_eye);
    attrs.word[ATTR_eye_n] = classes;
    attrs.word[ATTR_eye_dtype] = CB_I64;
    Node *rows = graph_op(graph, OP_eye, NULL, 0, &attrs, NULL);
    return rows ? embedding(graph, x, rows) : NULL;
}

Node *expand_shape(Graph *graph, Op op, Node *const *input, const Attrs *attrs) {
    Node *x = input[0];
    switch (op) {
    case OP_full_like:
        return call_full(graph, x->rank, x->size, attr_number(attrs, ATTR_full_like_value),
                         x->dtype);
    case OP_rand_like:
    case OP_randn_like: /* no parameters: the draw is the first word */
        return call_random(graph, op == OP_rand_like ? OP_rand : OP_randn, x, x->dtype,
                           attrs->word[0]);
    case OP_eye:
        return eye(graph, attrs);
    case OP_linspace:
        return linspace(graph, attrs);
    case OP_tril:
    case OP_triu:
        return triangle(graph, op, x, attrs->word[ATTR_tril_diagonal]);
    case OP_repeat:
        return repeat(graph, x, attr_dims(attrs, ATTR_repeat_repeats));
    case OP_roll:
        return roll(graph, x, attrs->word[ATTR_roll_shift], attrs->word[ATTR_roll_dim]);
    case OP_one_hot:
        return one_hot(graph, x, attrs->word[ATTR_one_hot_classes]);
    case OP_embedding:
        return embedding(graph, input[0], input[1]);
    default:
        check(false, "%s has neither a formula nor an expansion", op_info(op)->name);
        return NULL;
    }
}
