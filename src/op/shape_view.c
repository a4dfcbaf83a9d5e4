/* Shape rules of views, with their attributes made canonical: -1 resolved, dims non-negative,
 * slices clamped.
 *
 *     reshape f32[2, 6] sizes=[3, -1]      -> f32[3, 4], sizes=[3, 4]
 *     slice   f32[10] dim=-1, start=-3     -> f32[3], dim=0, start=7, end=10 */
#include "op/infer.h"

#include <string.h>

static void set_size(Meta *result, const int64_t *size, int rank) {
    result->rank = (uint8_t)rank;
    memcpy(result->size, size, sizeof(int64_t) * (size_t)rank);
}

static void append(Meta *result, int64_t size) { result->size[result->rank++] = size; }

/* False. divides: one of the sizes is -1, and the others hold `product`. */
static bool refuse_sizes(const InferCall *call, const cb_dim_list *sizes, int64_t product,
                         int64_t numel, bool divides) {
    char text[CB_MAX_RANK * 22 + 1] = "";
    size_t used = 0;
    for (int i = 0; i < sizes->count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, i ? ", %lld" : "%lld",
                                 (long long)sizes->at[i]);
    if (divides)
        return infer_fail(call, CB_ERR_SHAPE,
                          "no sizes [%s]: %lld elements are no multiple of %lld", text,
                          (long long)numel, (long long)product);
    return infer_fail(call, CB_ERR_SHAPE, "the sizes [%s] hold %lld elements, not %lld", text,
                      (long long)product, (long long)numel);
}

/* Finds the one -1 among sizes so that the product is numel; refuses what does not fit. */
static bool resolve_sizes(const InferCall *call, cb_dim_list *sizes, int64_t numel) {
    int unknown = -1;
    int64_t product = 1;
    if (sizes->count < 0 || sizes->count > CB_MAX_RANK)
        return infer_fail(call, CB_ERR_SHAPE, "sizes must be a list of at most %d", CB_MAX_RANK);
    for (int i = 0; i < sizes->count; i++) {
        if (sizes->at[i] == -1 && unknown >= 0)
            return infer_fail(call, CB_ERR_SHAPE, "only one size can be -1");
        if (sizes->at[i] == -1) {
            unknown = i;
        } else if (sizes->at[i] < 0) {
            return infer_fail(call, CB_ERR_SHAPE, "size %lld cannot be taken",
                              (long long)sizes->at[i]);
        } else if (__builtin_mul_overflow(product, sizes->at[i], &product)) {
            return infer_fail(call, CB_ERR_SHAPE, "the result has too many elements");
        }
    }
    if (unknown >= 0 && product == 0)
        return infer_fail(call, CB_ERR_SHAPE, "-1 may be any size beside a size of 0");
    if (unknown >= 0 && numel % product == 0) {
        sizes->at[unknown] = numel / product;
        return true;
    }
    if (unknown >= 0 || product != numel)
        return refuse_sizes(call, sizes, product, numel, unknown >= 0);
    return true;
}

static bool infer_reshape(InferCall *call, int word) {
    cb_dim_list sizes = attr_dims(call->attrs, word);
    if (!resolve_sizes(call, &sizes, meta_numel(&call->input[0]))) return false;
    set_size(&call->out->result, sizes.at, sizes.count);
    attr_set_dims(call->attrs, word, sizes);
    return true;
}

static bool infer_permute(InferCall *call) {
    const Meta *x = &call->input[0];
    cb_dim_list dims = attr_dims(call->attrs, ATTR_permute_dims);
    if (dims.count != x->rank)
        return infer_fail(call, CB_ERR_ARGUMENT, "%d dims given for a rank of %d", dims.count,
                          x->rank);
    if (!infer_dims(call, &dims, x->rank, false)) return false;
    for (int i = 0; i < dims.count; i++) append(&call->out->result, x->size[dims.at[i]]);
    attr_set_dims(call->attrs, ATTR_permute_dims, dims);
    return true;
}

static bool infer_expand(InferCall *call, int word) {
    const Meta *x = &call->input[0];
    cb_dim_list sizes = attr_dims(call->attrs, word);
    if (sizes.count < x->rank || sizes.count > CB_MAX_RANK)
        return infer_fail(call, CB_ERR_SHAPE, "%d sizes given for a rank of %d", sizes.count,
                          x->rank);
    int added = sizes.count - x->rank;
    for (int i = 0; i < sizes.count; i++) {
        int64_t from = i < added ? 1 : x->size[i - added];
        if (sizes.at[i] == -1 && i >= added) sizes.at[i] = from;
        if (sizes.at[i] < 0)
            return infer_fail(call, CB_ERR_SHAPE, "size %lld cannot be taken",
                              (long long)sizes.at[i]);
        if (from != 1 && from != sizes.at[i])
            return infer_fail(call, CB_ERR_SHAPE,
                              "a dimension of size %lld does not expand to %lld", (long long)from,
                              (long long)sizes.at[i]);
    }
    set_size(&call->out->result, sizes.at, sizes.count);
    attr_set_dims(call->attrs, word, sizes);
    return true;
}

static bool infer_slice_view(InferCall *call) {
    const Meta *x = &call->input[0];
    int64_t *word = call->attrs->word, *dim = &word[ATTR_slice_dim];
    if (!infer_dim(call, dim, x->rank)) return false;
    int64_t count = infer_slice(call, x->size[*dim], &word[ATTR_slice_start], &word[ATTR_slice_end],
                                word[ATTR_slice_step]);
    if (count < 0) return false;
    set_size(&call->out->result, x->size, x->rank);
    call->out->result.size[*dim] = count;
    return true;
}

static bool infer_flip(InferCall *call) {
    const Meta *x = &call->input[0];
    cb_dim_list dims = attr_dims(call->attrs, ATTR_flip_dims);
    if (!infer_dims(call, &dims, x->rank, true)) return false;
    set_size(&call->out->result, x->size, x->rank);
    attr_set_dims(call->attrs, ATTR_flip_dims, dims);
    return true;
}

static bool infer_flatten(InferCall *call) {
    const Meta *x = &call->input[0];
    int64_t *first = &call->attrs->word[ATTR_flatten_start_dim];
    int64_t *last = &call->attrs->word[ATTR_flatten_end_dim];
    int rank = x->rank ? x->rank : 1; /* a zero-dimensional tensor becomes one of one element */
    if (!infer_dim(call, first, rank) || !infer_dim(call, last, rank)) return false;
    if (*first > *last)
        return infer_fail(call, CB_ERR_ARGUMENT, "start_dim %lld comes after end_dim %lld",
                          (long long)*first, (long long)*last);
    Meta *result = &call->out->result;
    int64_t merged = 1;
    for (int i = 0; i < *first; i++) append(result, x->size[i]);
    for (int64_t i = *first; i <= *last && i < x->rank; i++) merged *= x->size[i];
    append(result, merged);
    for (int64_t i = *last + 1; i < x->rank; i++) append(result, x->size[i]);
    return true;
}

static bool infer_unflatten(InferCall *call) {
    const Meta *x = &call->input[0];
    int64_t *dim = &call->attrs->word[ATTR_unflatten_dim];
    cb_dim_list sizes = attr_dims(call->attrs, ATTR_unflatten_sizes);
    if (!infer_dim(call, dim, x->rank) || !resolve_sizes(call, &sizes, x->size[*dim])) return false;
    if (sizes.count == 0 || x->rank - 1 + sizes.count > CB_MAX_RANK)
        return infer_fail(call, CB_ERR_SHAPE, "%d sizes cannot replace one", sizes.count);
    Meta *result = &call->out->result;
    for (int i = 0; i < *dim; i++) append(result, x->size[i]);
    for (int i = 0; i < sizes.count; i++) append(result, sizes.at[i]);
    for (int i = (int)*dim + 1; i < x->rank; i++) append(result, x->size[i]);
    attr_set_dims(call->attrs, ATTR_unflatten_sizes, sizes);
    return true;
}

/* The canonical dims are those that go: of size 1. */
static bool infer_squeeze(InferCall *call) {
    const Meta *x = &call->input[0];
    cb_dim_list dims = attr_dims(call->attrs, ATTR_squeeze_dim), gone = {0, {0}};
    if (!infer_dims(call, &dims, x->rank, true)) return false;
    int next = 0;
    for (int i = 0; i < x->rank; i++) {
        bool listed = next < dims.count && dims.at[next] == i;
        next += listed;
        if (listed && x->size[i] == 1)
            gone.at[gone.count++] = i;
        else
            append(&call->out->result, x->size[i]);
    }
    attr_set_dims(call->attrs, ATTR_squeeze_dim, gone);
    return true;
}

static bool infer_unsqueeze(InferCall *call) {
    const Meta *x = &call->input[0];
    int64_t *dim = &call->attrs->word[ATTR_unsqueeze_dim];
    if (x->rank == CB_MAX_RANK)
        return infer_fail(call, CB_ERR_SHAPE, "the result has more than %d dimensions",
                          CB_MAX_RANK);
    if (!infer_dim(call, dim, x->rank + 1)) return false;
    for (int i = 0; i <= x->rank; i++)
        append(&call->out->result, i == *dim ? 1 : x->size[i - (i > *dim)]);
    return true;
}

static bool infer_transpose(InferCall *call) {
    const Meta *x = &call->input[0];
    int64_t *a = &call->attrs->word[ATTR_transpose_dim0];
    int64_t *b = &call->attrs->word[ATTR_transpose_dim1];
    int rank = x->rank ? x->rank : 1;
    if (!infer_dim(call, a, rank) || !infer_dim(call, b, rank)) return false;
    set_size(&call->out->result, x->size, x->rank);
    if (x->rank == 0) return true;
    call->out->result.size[*a] = x->size[*b];
    call->out->result.size[*b] = x->size[*a];
    return true;
}

static bool infer_t(InferCall *call) {
    const Meta *x = &call->input[0];
    if (x->rank > 2) return infer_fail(call, CB_ERR_SHAPE, "more than two dimensions");
    for (int i = x->rank - 1; i >= 0; i--) append(&call->out->result, x->size[i]);
    return true;
}

static bool infer_select(InferCall *call) {
    const Meta *x = &call->input[0];
    int64_t *dim = &call->attrs->word[ATTR_select_dim];
    int64_t *index = &call->attrs->word[ATTR_select_index];
    if (!infer_dim(call, dim, x->rank)) return false;
    int64_t size = x->size[*dim];
    if (*index < -size || *index >= size)
        return infer_fail(call, CB_ERR_INDEX, "index %lld is outside of dim %lld of size %lld",
                          (long long)*index, (long long)*dim, (long long)size);
    if (*index < 0) *index += size;
    for (int i = 0; i < x->rank; i++)
        if (i != *dim) append(&call->out->result, x->size[i]);
    return true;
}

static bool infer_narrow(InferCall *call) {
    const Meta *x = &call->input[0];
    int64_t *dim = &call->attrs->word[ATTR_narrow_dim];
    int64_t *start = &call->attrs->word[ATTR_narrow_start];
    int64_t length = call->attrs->word[ATTR_narrow_length];
    if (!infer_dim(call, dim, x->rank)) return false;
    int64_t size = x->size[*dim];
    if (*start < 0 && *start >= -size) *start += size;
    if (*start < 0 || length < 0 || *start > size || length > size - *start)
        return infer_fail(call, CB_ERR_INDEX,
                          "start %lld and length %lld are outside of dim %lld of size %lld",
                          (long long)*start, (long long)length, (long long)*dim, (long long)size);
    set_size(&call->out->result, x->size, x->rank);
    call->out->result.size[*dim] = length;
    return true;
}

static bool infer_window(InferCall *call) {
    const Meta *x = &call->input[0];
    const int64_t *word = call->attrs->word;
    int64_t *dim = &call->attrs->word[ATTR_window_dim], extent;
    int64_t size = word[ATTR_window_size], step = word[ATTR_window_step];
    if (!infer_dim(call, dim, x->rank ? x->rank : 1)) return false;
    if (x->rank == CB_MAX_RANK)
        return infer_fail(call, CB_ERR_SHAPE, "the result has more than %d dimensions",
                          CB_MAX_RANK);
    if (x->rank == 0 && size == 1) { /* the one window of a tensor of rank 0 */
        append(&call->out->result, 1);
        return true;
    }
    if (size < 0 || step <= 0 || word[ATTR_window_dilation] <= 0)
        return infer_fail(call, CB_ERR_ARGUMENT, "size, step and dilation must be positive");
    bool fits = !__builtin_mul_overflow(size - 1, word[ATTR_window_dilation], &extent) &&
                extent < x->size[*dim];
    if (size == 0) extent = -1, fits = true; /* windows of nothing stand behind the end, too */
    if (!fits)
        return infer_fail(call, CB_ERR_SHAPE,
                          "a window of %lld with dilation %lld is larger than dim %lld of size "
                          "%lld",
                          (long long)size, (long long)word[ATTR_window_dilation], (long long)*dim,
                          (long long)x->size[*dim]);
    set_size(&call->out->result, x->size, x->rank);
    call->out->result.size[*dim] = (x->size[*dim] - 1 - extent) / step + 1;
    append(&call->out->result, size);
    return true;
}

bool infer_view(InferCall *call) {
    switch (call->op) {
    case OP_reshape:
        return infer_reshape(call, ATTR_reshape_sizes);
    case OP_view:
        return infer_reshape(call, ATTR_view_sizes);
    case OP_permute:
        return infer_permute(call);
    case OP_expand:
        return infer_expand(call, ATTR_expand_sizes);
    case OP_broadcast_to:
        return infer_expand(call, ATTR_broadcast_to_sizes);
    case OP_slice:
        return infer_slice_view(call);
    case OP_flip:
        return infer_flip(call);
    case OP_flatten:
        return infer_flatten(call);
    case OP_unflatten:
        return infer_unflatten(call);
    case OP_squeeze:
        return infer_squeeze(call);
    case OP_unsqueeze:
        return infer_unsqueeze(call);
    case OP_transpose:
        return infer_transpose(call);
    case OP_t:
        return infer_t(call);
    case OP_select:
        return infer_select(call);
    case OP_narrow:
        return infer_narrow(call);
    case OP_window:
        return infer_window(call);
    default:
        check(false, "%s: a view without a shape rule", call->info->name);
        return false;
    }
}
