/* Views over strides: where the elements of a view lie, and shorthand views in terms of the five
 * that lowering knows.
 *
 *     transpose f32[2, 3] strides [3, 1]        -> f32[3, 2] strides [1, 3]
 *     reshape   f32[3, 2] strides [1, 3] to [6] -> not a view: false
 *     squeeze   f32[2, 1, 3]                    = reshape sizes=[2, 3]
 *
 * Attributes and result come from op_infer, so they are canonical and fit. */
#include "op/op.h"

#include "base/error.h"
#include <string.h>

void contiguous_strides(int rank, const int64_t *size, int64_t *stride) {
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= size[i] > 1 ? size[i] : 1;
    }
}

bool strides_contiguous(int rank, const int64_t *size, const int64_t *stride) {
    bool dense = true;
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        if (size[i] == 0) return true;
        if (size[i] == 1) continue;
        if (stride[i] != step) dense = false;
        step *= size[i];
    }
    return dense;
}

int64_t sizes_numel(int rank, const int64_t *size) {
    int64_t numel = 1;
    for (int i = 0; i < rank; i++) numel *= size[i];
    return numel;
}

/* Walks both shapes from the last dimension: a run of input dimensions in which each stride is the
 * next one's extent is one block of memory, which the result may cut as it likes. */
static bool reshape_strides(const Meta *input, const Meta *result, const int64_t *stride,
                            int64_t *out) {
    if (meta_numel(input) == 0 || input->rank == 0) {
        contiguous_strides(result->rank, result->size, out);
        return true;
    }
    int to = result->rank - 1;
    int64_t block_stride = stride[input->rank - 1], block = 1, taken = 1;
    for (int from = input->rank - 1; from >= 0; from--) {
        block *= input->size[from];
        bool joins =
            from > 0 && (input->size[from - 1] == 1 || stride[from - 1] == block * block_stride);
        if (joins) continue;
        while (to >= 0 && (taken < block || result->size[to] == 1)) {
            out[to] = taken * block_stride;
            taken *= result->size[to--];
        }
        if (taken != block) return false;
        if (from > 0) {
            block_stride = stride[from - 1];
            block = taken = 1;
        }
    }
    return to < 0;
}

static bool same_strides(const Meta *result, const int64_t *stride, int64_t *out) {
    memcpy(out, stride, sizeof(int64_t) * result->rank);
    return true;
}

static bool expand_strides(const Meta *input, const Meta *result, const int64_t *stride,
                           int64_t *out) {
    int added = result->rank - input->rank;
    for (int i = 0; i < result->rank; i++) {
        bool repeated = i < added || input->size[i - added] != result->size[i];
        out[i] = repeated ? 0 : stride[i - added];
    }
    return true;
}

static bool squeeze_strides(const Attrs *attrs, const Meta *input, const int64_t *stride,
                            int64_t *out) {
    cb_dim_list gone = attr_dims(attrs, ATTR_squeeze_dim);
    int next = 0, rank = 0;
    for (int i = 0; i < input->rank; i++) {
        if (next < gone.count && gone.at[next] == i)
            next++;
        else
            out[rank++] = stride[i];
    }
    return true;
}

static bool unsqueeze_strides(int64_t dim, const Meta *result, const int64_t *stride,
                              int64_t *out) {
    for (int i = 0; i < result->rank; i++)
        if (i != dim) out[i] = stride[i - (i > dim)];
    out[dim] = dim + 1 < result->rank ? out[dim + 1] * result->size[dim + 1] : 1;
    return true;
}

static bool swap_strides(int64_t a, int64_t b, const Meta *result, const int64_t *stride,
                         int64_t *out) {
    same_strides(result, stride, out);
    if (result->rank == 0) return true;
    out[a] = stride[b];
    out[b] = stride[a];
    return true;
}

static bool permute_strides(const Attrs *attrs, const int64_t *stride, int64_t *out) {
    cb_dim_list dims = attr_dims(attrs, ATTR_permute_dims);
    for (int i = 0; i < dims.count; i++) out[i] = stride[dims.at[i]];
    return true;
}

/* Of expanded dims, and of windows that overlap: with dims in order of their strides, one steps no
 * further than those before it reach. */
bool view_repeats(const Meta *meta, const int64_t *stride) {
    int order[CB_MAX_RANK], count = 0;
    for (int i = 0; i < meta->rank; i++) {
        if (meta->size[i] == 0) return false;
        if (meta->size[i] == 1) continue;
        int at = count++;
        for (; at > 0 && stride[order[at - 1]] > stride[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    int64_t reach = 0;
    for (int k = 0; k < count; k++) {
        if (stride[order[k]] <= reach) return true;
        reach += (meta->size[order[k]] - 1) * stride[order[k]];
    }
    return false;
}

bool view_strides(Op op, const Attrs *attrs, const Meta *input, const Meta *result,
                  const int64_t *stride, int64_t offset, int64_t *out_stride, int64_t *out_offset) {
    const int64_t *word = attrs ? attrs->word : NULL;
    int64_t *out = out_stride;
    *out_offset = offset;
    switch (op) {
    case OP_reshape:
    case OP_view:
    case OP_flatten:
    case OP_unflatten:
        return reshape_strides(input, result, stride, out);
    case OP_permute:
        return permute_strides(attrs, stride, out);
    case OP_transpose:
        return swap_strides(word[ATTR_transpose_dim0], word[ATTR_transpose_dim1], result, stride,
                            out);
    case OP_t:
        return swap_strides(0, result->rank - 1, result, stride, out);
    case OP_expand:
    case OP_broadcast_to:
        return expand_strides(input, result, stride, out);
    case OP_squeeze:
        return squeeze_strides(attrs, input, stride, out);
    case OP_unsqueeze:
        return unsqueeze_strides(word[ATTR_unsqueeze_dim], result, stride, out);
    case OP_slice: {
        int64_t dim = word[ATTR_slice_dim];
        if (meta_numel(result)) *out_offset += word[ATTR_slice_start] * stride[dim];
        same_strides(result, stride, out);
        out[dim] *= word[ATTR_slice_step];
        return true;
    }
    case OP_narrow: {
        int64_t dim = word[ATTR_narrow_dim];
        if (meta_numel(result)) *out_offset += word[ATTR_narrow_start] * stride[dim];
        return same_strides(result, stride, out);
    }
    case OP_select: {
        int64_t dim = word[ATTR_select_dim];
        *out_offset += word[ATTR_select_index] * stride[dim];
        for (int i = 0; i < result->rank; i++) out[i] = stride[i + (i >= dim)];
        return true;
    }
    case OP_window: {
        int64_t dim = word[ATTR_window_dim];
        if (input->rank == 0) return out[0] = 1, true;
        memcpy(out, stride, sizeof(int64_t) * input->rank);
        out[dim] *= word[ATTR_window_step];
        out[input->rank] = stride[dim] * word[ATTR_window_dilation];
        return true;
    }
    case OP_flip:
        return false; /* strides here are never negative */
    default:
        check(false, "%s: a view without strides", op_info(op)->name);
        return false;
    }
}

bool op_is_identity(Op op, const Attrs *attrs, cb_dtype dtype, int rank, const int64_t *size,
                    const int64_t *stride) {
    if (op == OP_contiguous) return strides_contiguous(rank, size, stride);
    if (op == OP_detach) return true;
    if (op != OP_to) return false;
    int64_t wanted = attrs->word[ATTR_to_dtype];
    return wanted == dtype || wanted == CB_SAME;
}

bool view_refuse(const Meta *from, const Meta *to) {
    char given[128], wanted[128];
    meta_format(from, given, sizeof given);
    meta_format(to, wanted, sizeof wanted);
    fail(CB_ERR_SHAPE, "view: %s with these strides is no %s without a copy; use reshape", given,
         wanted);
    return false;
}

static Op as_sizes(Op op, int word, const Meta *result, Attrs *out) {
    attr_set_dims(out, word, size_list(result->rank, result->size));
    return op;
}

static Op as_permute(int rank, int64_t a, int64_t b, Attrs *out) {
    cb_dim_list dims = {rank, {0}};
    for (int i = 0; i < rank; i++) dims.at[i] = i == a ? b : i == b ? a : i;
    attr_set_dims(out, ATTR_permute_dims, dims);
    return OP_permute;
}

Op view_canonical(Op op, const Attrs *attrs, const Meta *input, const Meta *result, Attrs *out) {
    Attrs given = attrs ? *attrs : (Attrs){{0}}; /* attrs and out may be the same */
    const int64_t *word = given.word;
    memset(out, 0, sizeof *out);
    switch (op) {
    case OP_view:
    case OP_flatten:
    case OP_unflatten:
    case OP_squeeze:
    case OP_unsqueeze:
        return as_sizes(OP_reshape, ATTR_reshape_sizes, result, out);
    case OP_broadcast_to:
        return as_sizes(OP_expand, ATTR_expand_sizes, result, out);
    case OP_transpose:
        return as_permute(input->rank, word[ATTR_transpose_dim0], word[ATTR_transpose_dim1], out);
    case OP_t:
        return as_permute(input->rank, 0, input->rank - 1, out);
    case OP_narrow:
        out->word[ATTR_slice_dim] = word[ATTR_narrow_dim];
        out->word[ATTR_slice_start] = word[ATTR_narrow_start];
        out->word[ATTR_slice_end] = word[ATTR_narrow_start] + word[ATTR_narrow_length];
        out->word[ATTR_slice_step] = 1;
        return OP_slice;
    default:
        check(false, "%s: a view that is none of lowering's, nor one of them in other words",
              op_info(op)->name);
        return op;
    }
}

/* ---- where views begin ---- */

bool view_has_start(Op op) { return op == OP_slice || op == OP_select || op == OP_narrow; }

/* As it is mostly called: all of it is of x as it is. */
static bool begins_within(Op op, const Meta *x, const int64_t *word) {
    int64_t dim = view_reach(op, word).dim;
    if (dim < 0 || dim >= x->rank) return false;
    int64_t start = op == OP_slice    ? word[ATTR_slice_start]
                    : op == OP_narrow ? word[ATTR_narrow_start]
                                      : word[ATTR_select_index];
    int64_t left = x->size[dim] - start;
    if (start < 0 || left <= 0) return false;
    if (op == OP_slice) return word[ATTR_slice_step] > 0 && word[ATTR_slice_end] > start;
    int64_t count = view_reach(op, word).count;
    return count > 0 && count <= left;
}

bool view_normalize(Op op, const Meta *x, Attrs *attrs) {
    Inferred inferred;
    int64_t *word = attrs->word;
    if (begins_within(op, x, word)) {
        if (op != OP_slice) return true;
        int64_t step = word[ATTR_slice_step], start = word[ATTR_slice_start];
        int64_t size = x->size[word[ATTR_slice_dim]], end = word[ATTR_slice_end];
        word[ATTR_slice_end] = ((end < size ? end : size) - 1 - start) / step * step + 1;
        return true;
    }
    if (!op_infer(op, x, 1, attrs, &inferred)) return false;
    if (op != OP_slice) return true;
    int64_t count = inferred.result.size[word[ATTR_slice_dim]];
    word[ATTR_slice_end] = count ? (count - 1) * word[ATTR_slice_step] + 1 : 0;
    return true;
}

void view_from_normal(Op op, Attrs *attrs) {
    if (op == OP_slice) attrs->word[ATTR_slice_end] += attrs->word[ATTR_slice_start];
}

ViewReach view_reach(Op op, const int64_t *word) {
    switch (op) {
    case OP_slice:
        return (ViewReach){word[ATTR_slice_dim], word[ATTR_slice_end]};
    case OP_narrow:
        return (ViewReach){word[ATTR_narrow_dim], word[ATTR_narrow_length]};
    default:
        return (ViewReach){word[ATTR_select_dim], 1};
    }
}
