/* Shape rules of concat, pad, slice_scatter, gather and scatter, matmul, argsort and argtopk. The
 * result of an op without a rule is of the shape of its first operand.
 *
 *     matmul  f32[5, 4, 3] x f32[3, 2]            -> f32[5, 4, 2]
 *     pad     f32[2, 3] padding=[1, 0, 2, 2]      -> f32[6, 4]   last dimension first, as PyTorch
 *     gather  f32[4, 9] dim=1, i64[4, 2]          -> f32[4, 2] */
#include "op/infer.h"

#include <string.h>

static void same_size(InferCall *call, const Meta *as) {
    call->out->result.rank = as->rank;
    memcpy(call->out->result.size, as->size, sizeof as->size);
}

/* ---- rules: of what differs from the first operand ---- */

static bool infer_concat(InferCall *call) {
    const Meta *a = &call->input[0], *b = &call->input[1];
    int64_t *dim = &call->attrs->word[ATTR_concat_dim];
    if (a->rank != b->rank) return infer_fail(call, CB_ERR_SHAPE, "ranks differ");
    if (!infer_dim(call, dim, a->rank)) return false;
    for (int i = 0; i < a->rank; i++)
        if (i != *dim && a->size[i] != b->size[i])
            return infer_fail(call, CB_ERR_SHAPE, "sizes of dim %d differ", i);
    if (__builtin_add_overflow(a->size[*dim], b->size[*dim], &call->out->result.size[*dim]))
        return infer_fail(call, CB_ERR_SHAPE, "the result has too many elements");
    return true;
}

static bool infer_pad(InferCall *call) {
    const Meta *x = &call->input[0];
    cb_dim_list padding = attr_dims(call->attrs, ATTR_pad_padding);
    if (padding.count < 0 || padding.count % 2 || padding.count / 2 > x->rank)
        return infer_fail(call, CB_ERR_ARGUMENT, "padding needs pairs, at most one per dimension");
    bool pads = false;
    for (int i = 0; i < padding.count; i++) pads |= padding.at[i] > 0;
    if (pads && !infer_number(call, ATTR_pad_value)) return false;
    for (int i = 0; i < padding.count; i += 2) {
        int64_t *size = &call->out->result.size[x->rank - 1 - i / 2];
        int64_t left = padding.at[i], right = padding.at[i + 1];
        bool crops = (left < 0 && left < -*size) || (right < 0 && right < -*size) ||
                     (left < 0 && right < 0 && left + *size < -right);
        if (crops || __builtin_add_overflow(*size, padding.at[i], size) ||
            __builtin_add_overflow(*size, padding.at[i + 1], size))
            return infer_fail(call, CB_ERR_SHAPE, "padding (%lld, %lld) gives no possible size",
                              (long long)padding.at[i], (long long)padding.at[i + 1]);
    }
    return true;
}

static bool infer_slice_scatter(InferCall *call) {
    const Meta *x = &call->input[0], *source = &call->input[1];
    int64_t *word = call->attrs->word, *dim = &word[ATTR_slice_scatter_dim];
    if (!infer_dim(call, dim, x->rank)) return false;
    int64_t count = infer_slice(call, x->size[*dim], &word[ATTR_slice_scatter_start],
                                &word[ATTR_slice_scatter_end], word[ATTR_slice_scatter_step]);
    if (count < 0) return false;
    if (source->rank != x->rank) return infer_fail(call, CB_ERR_SHAPE, "ranks differ");
    for (int i = 0; i < x->rank; i++)
        if (source->size[i] != (i == *dim ? count : x->size[i]))
            return infer_fail(call, CB_ERR_SHAPE,
                              "the source does not have the slice's size (dim "
                              "%d: %lld)",
                              i, (long long)(i == *dim ? count : x->size[i]));
    return true;
}

/* The start is behind the other inputs. */
static bool takes_start(const InferCall *call) {
    const Meta *start = &call->input[call->input_count - 1];
    if (!start->rank && dtype_is_int(start->dtype)) return true;
    return infer_fail(call, CB_ERR_SHAPE, "the start is no integer without dimensions");
}

static bool infer_dynamic_slice(InferCall *call) {
    const Meta *x = &call->input[0];
    int64_t *dim = &call->attrs->word[ATTR_dynamic_slice_dim];
    int64_t size = call->attrs->word[ATTR_dynamic_slice_size];
    if (!takes_start(call) || !infer_dim(call, dim, x->rank)) return false;
    if (size < 0 || size > x->size[*dim])
        return infer_fail(call, CB_ERR_ARGUMENT, "%lld elements of dim %lld of size %lld",
                          (long long)size, (long long)*dim, (long long)x->size[*dim]);
    call->out->result.size[*dim] = size;
    return true;
}

static bool infer_dynamic_slice_scatter(InferCall *call) {
    const Meta *x = &call->input[0], *source = &call->input[1];
    int64_t *dim = &call->attrs->word[ATTR_dynamic_slice_scatter_dim];
    if (!takes_start(call) || !infer_dim(call, dim, x->rank)) return false;
    if (source->rank != x->rank) return infer_fail(call, CB_ERR_SHAPE, "ranks differ");
    for (int i = 0; i < x->rank; i++)
        if (source->size[i] > x->size[i] || (i != *dim && source->size[i] < x->size[i]))
            return infer_fail(call, CB_ERR_SHAPE, "the source does not fit in dim %d", i);
    return true;
}

/* index may be smaller than x except along dim, and than the source everywhere; without elements it
 * may have any shape. */
static bool index_fits(InferCall *call, int64_t dim, const Meta *source) {
    const Meta *x = &call->input[0], *index = &call->input[1];
    if (meta_numel(index) == 0) return true;
    if (index->rank != x->rank || (source && source->rank != x->rank))
        return infer_fail(call, CB_ERR_SHAPE, "ranks differ");
    for (int i = 0; i < x->rank; i++) {
        if (i != dim && index->size[i] > x->size[i])
            return infer_fail(call, CB_ERR_SHAPE, "the index is larger than the tensor in dim %d",
                              i);
        if (source && index->size[i] > source->size[i])
            return infer_fail(call, CB_ERR_SHAPE, "the index is larger than the source in dim %d",
                              i);
    }
    return true;
}

static bool infer_gather(InferCall *call) {
    int64_t *dim = &call->attrs->word[ATTR_along_dim];
    if (!infer_dim(call, dim, call->input[0].rank) || !index_fits(call, *dim, NULL)) return false;
    same_size(call, &call->input[1]);
    return true;
}

static bool infer_index_select(InferCall *call) {
    const Meta *x = &call->input[0], *index = &call->input[1];
    int64_t *dim = &call->attrs->word[ATTR_along_dim];
    if (!infer_dim(call, dim, x->rank)) return false;
    if (index->rank > 1) return infer_fail(call, CB_ERR_SHAPE, "the index is not a vector");
    call->out->result.size[*dim] = meta_numel(index);
    return true;
}

/* scatter and scatter_add */
static bool infer_scatter(InferCall *call) {
    int64_t *dim = &call->attrs->word[ATTR_along_dim];
    return infer_dim(call, dim, call->input[0].rank) && index_fits(call, *dim, &call->input[2]);
}

/* A vector counts as a row on the left and as a column on the right; that dimension goes again. */
static bool infer_matmul(InferCall *call) {
    const Meta *a = &call->input[0], *b = &call->input[1];
    Meta *result = &call->out->result;
    if (!a->rank || !b->rank)
        return infer_fail(call, CB_ERR_SHAPE, "both need at least one dimension");
    int64_t inner_a = a->size[a->rank - 1];
    int64_t inner_b = b->rank == 1 ? b->size[0] : b->size[b->rank - 2];
    if (inner_a != inner_b) return infer_fail(call, CB_ERR_SHAPE, "inner sizes differ");
    int batch_a = a->rank > 2 ? a->rank - 2 : 0, batch_b = b->rank > 2 ? b->rank - 2 : 0;
    *result = (Meta){.dtype = result->dtype};
    if (!infer_broadcast(call, result, a->size, batch_a)) return false;
    if (!infer_broadcast(call, result, b->size, batch_b)) return false;
    if (a->rank > 1) result->size[result->rank++] = a->size[a->rank - 2];
    if (b->rank > 1) result->size[result->rank++] = b->size[b->rank - 1];
    return true;
}

static bool infer_argsort(InferCall *call) {
    if (!infer_dim(call, &call->attrs->word[ATTR_argsort_dim], call->input[0].rank)) return false;
    int64_t *descending = &call->attrs->word[ATTR_argsort_descending];
    *descending = *descending != 0;
    return true;
}

static bool infer_argtopk(InferCall *call) {
    const Meta *x = &call->input[0];
    int64_t *dim = &call->attrs->word[ATTR_argtopk_dim], k = call->attrs->word[ATTR_argtopk_k];
    int64_t *largest = &call->attrs->word[ATTR_argtopk_largest];
    if (!infer_dim(call, dim, x->rank)) return false;
    if (k < 0 || k > x->size[*dim])
        return infer_fail(call, CB_ERR_ARGUMENT, "k %lld is outside of dim %lld of size %lld",
                          (long long)k, (long long)*dim, (long long)x->size[*dim]);
    *largest = *largest != 0;
    call->out->result.size[*dim] = k;
    return true;
}

static bool infer_positions(InferCall *call) {
    const Meta *mask = &call->input[0];
    int64_t count = call->attrs->word[ATTR_positions_count];
    if (mask->rank != 1 || mask->dtype != CB_BOOL)
        return infer_fail(call, CB_ERR_DTYPE, "the mask is one row of bools");
    if (count < 0 || count > mask->size[0])
        return infer_fail(call, CB_ERR_ARGUMENT, "%lld of %lld positions", (long long)count,
                          (long long)mask->size[0]);
    call->out->result.size[0] = count;
    return true;
}

/* ---- entry ---- */

bool infer_index(InferCall *call) {
    static const struct {
        Op op;
        bool (*infer)(InferCall *call);
    } rules[] = {
        {OP_matmul, infer_matmul},
        {OP_concat, infer_concat},
        {OP_pad, infer_pad},
        {OP_slice_scatter, infer_slice_scatter},
        {OP_dynamic_slice, infer_dynamic_slice},
        {OP_dynamic_slice_scatter, infer_dynamic_slice_scatter},
        {OP_gather, infer_gather},
        {OP_index_select, infer_index_select},
        {OP_scatter, infer_scatter},
        {OP_scatter_add, infer_scatter},
        {OP_convolution, infer_convolution},
        {OP_attention, infer_attention},
        {OP_attention_gradient, infer_attention},
        {OP_argsort, infer_argsort},
        {OP_argtopk, infer_argtopk},
        {OP_positions, infer_positions},
    };
    same_size(call, &call->input[0]);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].op == call->op) return rules[i].infer(call);
    return true;
}
