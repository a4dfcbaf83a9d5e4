/* Calls of graph_op in few words (call.h).
 *
 *     call_number(graph, OP_mul, x, 2)  ->  mul(x, 2), the 2 weak in promotion */
#include "graph/call.h"

#include <math.h>
#include <string.h>

Node *call1(Graph *graph, Op op, Node *x) { return graph_op(graph, op, &x, 1, NULL, NULL); }

Node *call2(Graph *graph, Op op, Node *x, Node *y) {
    return graph_op(graph, op, (Node *[]){x, y}, 2, NULL, NULL);
}

Node *call3(Graph *graph, Op op, Node *x, Node *y, Node *z) {
    return graph_op(graph, op, (Node *[]){x, y, z}, 3, NULL, NULL);
}

Node *call_given(Graph *graph, cb_operand number) {
    int input = number.kind == CB_OPERAND_FLOAT ? attr_argument(number.f) : -1;
    if (input >= 0) return graph->input[input];
    if (!number_given(&number)) return NULL;
    return graph_constant(graph, number_dtype(&number), number_scalar(&number));
}

Node *call_number(Graph *graph, Op op, Node *x, double number) {
    bool integral = fabs(number) < 0x1p53 && number == floor(number);
    Node *given =
        call_given(graph, integral ? cb_operand_int((int64_t)number) : cb_operand_float(number));
    return graph_op(graph, op, (Node *[]){x, given}, 2, NULL, (bool[]){false, true});
}

_Static_assert(ATTR_sum_dim == ATTR_mean_dim && ATTR_sum_keepdim == ATTR_mean_keepdim,
               "mean is called like a reduction");

Node *call_reduce(Graph *graph, Op op, Node *x, cb_dim_list dims, bool keepdim) {
    Attrs attrs = attrs_default(op);
    attr_set_dims(&attrs, ATTR_sum_dim, dims);
    attrs.word[ATTR_sum_keepdim] = keepdim;
    return graph_op(graph, op, &x, 1, &attrs, NULL);
}

Node *call_loss_reduced(Graph *graph, const char *op, Node *loss, int64_t reduction) {
    cb_dim_list all = {-1, {0}};
    if (reduction == CB_REDUCE_MEAN) return call_reduce(graph, OP_mean, loss, all, false);
    if (reduction == CB_REDUCE_SUM) return call_reduce(graph, OP_sum, loss, all, false);
    if (reduction == CB_REDUCE_NONE) return loss;
    fail(CB_ERR_ARGUMENT, "%s: there is no reduction %lld", op, (long long)reduction);
    return NULL;
}

Node *call_slice(Graph *graph, Node *x, int dim, int64_t start, int64_t end) {
    Attrs attrs = attrs_default(OP_slice);
    attrs.word[ATTR_slice_dim] = dim;
    attrs.word[ATTR_slice_start] = start;
    attrs.word[ATTR_slice_end] = end;
    return graph_op(graph, OP_slice, &x, 1, &attrs, NULL);
}

Node *call_concat(Graph *graph, Node *x, Node *y, int dim) {
    Attrs attrs = attrs_default(OP_concat);
    attrs.word[ATTR_concat_dim] = dim;
    return graph_op(graph, OP_concat, (Node *[]){x, y}, 2, &attrs, NULL);
}

Node *call_permute(Graph *graph, Node *x, cb_dim_list dims) {
    Attrs attrs = {{0}};
    attr_set_dims(&attrs, ATTR_permute_dims, dims);
    return graph_op(graph, OP_permute, &x, 1, &attrs, NULL);
}

Node *call_flip(Graph *graph, Node *x, int dim) {
    Attrs attrs = {{0}};
    attr_set_dims(&attrs, ATTR_flip_dims, dims_one(dim));
    return graph_op(graph, OP_flip, &x, 1, &attrs, NULL);
}

Node *call_arange(Graph *graph, int64_t count, cb_dtype dtype) {
    Attrs attrs = attrs_default(OP_arange);
    attrs.word[ATTR_arange_end] = count;
    attrs.word[ATTR_arange_dtype] = dtype;
    return graph_op(graph, OP_arange, NULL, 0, &attrs, NULL);
}

static cb_dim_list dims_of(int rank, const int64_t *size) {
    cb_dim_list dims = {rank, {0}};
    if (rank) memcpy(dims.at, size, sizeof *size * (size_t)rank);
    return dims;
}

Node *call_full(Graph *graph, int rank, const int64_t *size, cb_operand value, cb_dtype dtype) {
    Attrs attrs = attrs_default(OP_full);
    attr_set_dims(&attrs, ATTR_full_sizes, dims_of(rank, size));
    attr_set_number(&attrs, ATTR_full_value, value);
    attrs.word[ATTR_full_dtype] = dtype;
    return graph_op(graph, OP_full, NULL, 0, &attrs, NULL);
}

Node *call_constant(Graph *graph, cb_dtype dtype, double value) {
    Scalar scalar = scalar_convert((Scalar){.f = value}, CB_F64, compute_dtype(dtype));
    return graph_constant(graph, dtype, scalar);
}

_Static_assert(ATTR_rand_sizes == ATTR_randn_sizes && ATTR_rand_dtype == ATTR_randn_dtype,
               "rand and randn are called alike");

Node *call_random(Graph *graph, Op op, const Node *like, cb_dtype dtype, int64_t draw) {
    Attrs attrs = attrs_default(op);
    attr_set_dims(&attrs, ATTR_rand_sizes, dims_of(like->rank, like->size));
    attrs.word[ATTR_rand_dtype] = dtype;
    Inferred inferred;
    if (!op_infer(op, NULL, 0, &attrs, &inferred)) return NULL;
    attrs.word[op_info(op)->word_count] = draw;
    return graph_intern(graph, op, &inferred.result, NULL, 0, &attrs);
}

Node *node_widen(Graph *graph, Node *x) {
    bool half = x && dtype_is_half(x->dtype);
    return half ? node_convert(graph, x, CB_F32) : x;
}

Node *node_narrow(Graph *graph, Node *x, const Node *as) {
    bool is_float = x && dtype_is_float(as->dtype);
    return is_float ? node_convert(graph, x, as->dtype) : x;
}

Node *node_splat(Graph *graph, const Node *like, Scalar value) {
    Node *constant = graph_constant(graph, like->dtype, value);
    return node_expand_to(graph, constant, like->rank, like->size);
}

cb_dim_list dims_one(int64_t dim) { return (cb_dim_list){1, {dim}}; }

int checked_dim(Op op, int64_t dim, int rank) {
    if (dim >= -rank && dim < rank) return (int)(dim < 0 ? dim + rank : dim);
    fail(CB_ERR_INDEX, "%s: dim %lld is outside of a tensor of %d dimensions", op_info(op)->name,
         (long long)dim, rank);
    return -1;
}

/* ---- spatial dims ------------------------------------------------------------------------- */

Node *call_pad(Graph *graph, Node *x, int n, const int64_t *left, const int64_t *right,
               cb_operand value) {
    Attrs attrs = attrs_default(OP_pad);
    cb_dim_list padding = {2 * n, {0}};
    bool pads = false;
    for (int i = 0; i < n; i++) {
        int last_first = 2 * (n - 1 - i);
        padding.at[last_first] = left[i];
        padding.at[last_first + 1] = right[i];
        pads |= left[i] || right[i];
    }
    attr_set_dims(&attrs, ATTR_pad_padding, padding);
    attr_set_number(&attrs, ATTR_pad_value, value);
    return pads ? graph_op(graph, OP_pad, &x, 1, &attrs, NULL) : x;
}

Node *call_window(Graph *graph, Node *x, int dim, int64_t size, int64_t step, int64_t dilation) {
    Attrs attrs = attrs_default(OP_window);
    attrs.word[ATTR_window_dim] = dim;
    attrs.word[ATTR_window_size] = size;
    attrs.word[ATTR_window_step] = step;
    attrs.word[ATTR_window_dilation] = dilation;
    return graph_op(graph, OP_window, &x, 1, &attrs, NULL);
}

Node *call_apart(Graph *graph, Node *x, int64_t number, bool own) {
    Attrs attrs = {{0}};
    attrs.word[ATTR_apart_number] = number;
    attrs.word[ATTR_apart_own] = own;
    return graph_op(graph, OP_apart, &x, 1, &attrs, NULL);
}

bool spatial_numbers(Op op, const Attrs *attrs, int word, const char *name, int n, int64_t low,
                     int64_t *out) {
    cb_dim_list dims = attr_dims(attrs, word);
    if (dims.count != 1 && dims.count != n) {
        fail(CB_ERR_ARGUMENT, "%s: %s needs one number or %d, not %d", op_info(op)->name, name, n,
             dims.count);
        return false;
    }
    for (int i = 0; i < n; i++) {
        out[i] = dims.at[dims.count == 1 ? 0 : i];
        if (out[i] >= low && out[i] <= INT32_MAX) continue;
        fail(CB_ERR_ARGUMENT, "%s: %s cannot be %lld", op_info(op)->name, name, (long long)out[i]);
        return false;
    }
    return true;
}
