/* Shape rules, and the entry of inference: input metas and attributes -> canonical attributes, the
 * result's meta and what each input is converted to.
 *
 *     op_infer(OP_add, {f32[4, 1], i64[3]}) -> f32[4, 3], both inputs f32
 *     op_infer(OP_sum, {f32[4, 3]}, dim = {-1}) -> f32[4], dim = {1}
 *
 * Canonical attributes infer to themselves. This file has broadcasting, reductions, scans, sources;
 * shape_view.c and shape_index.c the others. */
#include "op/infer.h"

#include <stdarg.h>
#include <string.h>

bool infer_fail(const InferCall *call, cb_status status, const char *format, ...) {
    char text[256], metas[384] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const char *between = call->info->kind == KIND_CONTRACT ? " x " : ", ";
    for (int i = 0; i < call->input_count; i++) {
        char meta[128];
        meta_format(&call->input[i], meta, sizeof meta);
        size_t used = strlen(metas);
        snprintf(metas + used, sizeof metas - used, "%s%s", i ? between : "", meta);
    }
    fail(status, "%s: %s%s%s", call->info->name, text, metas[0] ? ": " : "", metas);
    return false;
}

bool infer_dim(const InferCall *call, int64_t *dim, int rank) {
    int64_t given = *dim;
    if (given < -rank || given >= rank) {
        if (rank == 0) return infer_fail(call, CB_ERR_INDEX, "it has no dimension");
        return infer_fail(call, CB_ERR_INDEX, "dim %lld is outside of %d..%d", (long long)given,
                          -rank, rank - 1);
    }
    if (given < 0) *dim = given + rank;
    return true;
}

static void sort_dims(cb_dim_list *dims) {
    for (int i = 1; i < dims->count; i++)
        for (int j = i; j > 0 && dims->at[j] < dims->at[j - 1]; j--) {
            int64_t swapped = dims->at[j];
            dims->at[j] = dims->at[j - 1];
            dims->at[j - 1] = swapped;
        }
}

bool infer_dims(const InferCall *call, cb_dim_list *dims, int rank, bool sorted) {
    if (dims->count < 0) {
        dims->count = rank;
        for (int i = 0; i < rank; i++) dims->at[i] = i;
        return true;
    }
    if (dims->count > CB_MAX_RANK)
        return infer_fail(call, CB_ERR_SHAPE, "%d dimensions, more than %d", dims->count,
                          CB_MAX_RANK);
    unsigned seen = 0;
    for (int i = 0; i < dims->count; i++) {
        if (!infer_dim(call, &dims->at[i], rank ? rank : 1)) return false;
        if (seen >> dims->at[i] & 1)
            return infer_fail(call, CB_ERR_ARGUMENT, "dim %lld is given twice",
                              (long long)dims->at[i]);
        seen |= 1u << dims->at[i];
    }
    if (sorted) sort_dims(dims);
    if (rank == 0) dims->count = 0; /* a tensor of rank 0 takes dims as one of rank 1 */
    return true;
}

int64_t infer_slice(const InferCall *call, int64_t size, int64_t *start, int64_t *end,
                    int64_t step) {
    if (step <= 0) {
        infer_fail(call, CB_ERR_ARGUMENT, "step %lld is not positive", (long long)step);
        return -1;
    }
    if (*start < 0) *start = *start < -size ? 0 : *start + size;
    if (*end < 0) *end = *end < -size ? 0 : *end + size;
    if (*start > size) *start = size;
    if (*end > size) *end = size;
    if (*end < *start) *end = *start;
    int64_t length = *end - *start;
    return length / step + (length % step != 0);
}

bool infer_broadcast(const InferCall *call, Meta *result, const int64_t *size, int rank) {
    int shift = rank - result->rank;
    if (shift > 0) {
        memmove(result->size + shift, result->size, sizeof(int64_t) * result->rank);
        for (int i = 0; i < shift; i++) result->size[i] = 1;
        result->rank = (uint8_t)rank;
        shift = 0;
    }
    for (int i = 0; i < rank; i++) {
        int64_t *merged = &result->size[i - shift];
        if (*merged == 1)
            *merged = size[i];
        else if (size[i] != 1 && size[i] != *merged)
            return infer_fail(call, CB_ERR_SHAPE, "sizes do not broadcast (%lld and %lld)",
                              (long long)*merged, (long long)size[i]);
    }
    return true;
}

static bool infer_pointwise(InferCall *call) {
    call->out->result.rank = 0;
    for (int i = 0; i < call->input_count; i++)
        if (!infer_broadcast(call, &call->out->result, call->input[i].size, call->input[i].rank))
            return false;
    return true;
}

/* No dims, like CB_ALL, means all of them, as in PyTorch. */
static bool infer_reduce(InferCall *call) {
    const Meta *x = &call->input[0];
    Meta *result = &call->out->result;
    cb_dim_list dims = attr_dims(call->attrs, ATTR_sum_dim);
    if (dims.count == 0) dims.count = -1;
    if (!infer_dims(call, &dims, x->rank, true)) return false;
    call->attrs->word[ATTR_sum_keepdim] = call->attrs->word[ATTR_sum_keepdim] != 0;
    bool keep = call->attrs->word[ATTR_sum_keepdim];
    unsigned reduced = 0;
    for (int i = 0; i < dims.count; i++) reduced |= 1u << dims.at[i];
    result->rank = 0;
    for (int i = 0; i < x->rank; i++) {
        bool gone = reduced >> i & 1;
        bool needs_elements = call->op == OP_amax || call->op == OP_amin;
        if (gone && needs_elements && x->size[i] == 0)
            return infer_fail(call, CB_ERR_SHAPE, "dim %d is empty and has no extreme value", i);
        if (!gone || keep) result->size[result->rank++] = gone ? 1 : x->size[i];
    }
    attr_set_dims(call->attrs, ATTR_sum_dim, dims);
    return true;
}

static bool infer_scan(InferCall *call) {
    const Meta *x = &call->input[0];
    if (!infer_dim(call, &call->attrs->word[ATTR_along_dim], x->rank)) return false;
    call->out->result.rank = x->rank;
    memcpy(call->out->result.size, x->size, sizeof x->size);
    return true;
}

bool infer_number(const InferCall *call, int word) {
    cb_operand number = attr_number(call->attrs, word);
    char why[NUMBER_TEXT];
    return number_converts(&number, call->out->result.dtype, why) ||
           infer_fail(call, CB_ERR_ARGUMENT, "%s", why);
}

static bool infer_sizes(InferCall *call, int word) {
    cb_dim_list sizes = attr_dims(call->attrs, word);
    if (sizes.count < 0 || sizes.count > CB_MAX_RANK)
        return infer_fail(call, CB_ERR_SHAPE, "sizes must be a list of at most %d", CB_MAX_RANK);
    for (int i = 0; i < sizes.count; i++) {
        if (sizes.at[i] < 0)
            return infer_fail(call, CB_ERR_SHAPE, "size %lld is negative", (long long)sizes.at[i]);
        call->out->result.size[i] = sizes.at[i];
    }
    call->out->result.rank = (uint8_t)sizes.count;
    attr_set_dims(call->attrs, word, sizes);
    return true;
}

static bool infer_arange(InferCall *call) {
    int64_t start = call->attrs->word[ATTR_arange_start], end = call->attrs->word[ATTR_arange_end];
    int64_t step = call->attrs->word[ATTR_arange_step], length;
    if (step == 0) return infer_fail(call, CB_ERR_ARGUMENT, "step is 0");
    if (__builtin_sub_overflow(end, start, &length) || length == INT64_MIN)
        return infer_fail(call, CB_ERR_SHAPE, "too many elements");
    if (length != 0 && (length > 0) != (step > 0))
        return infer_fail(call, CB_ERR_ARGUMENT, "step %lld leads away from the end",
                          (long long)step);
    call->out->result.rank = 1;
    call->out->result.size[0] = length / step + (length % step != 0);
    return true;
}

/* Numbers of low .. most are of the dtype; those of a float without a sign that is lost. */
static bool randint_fits(InferCall *call, int64_t low, int64_t most) {
    cb_dtype dtype = call->out->result.dtype;
    bool sign = low >= 0 || dtype_info(dtype)->is_signed;
    Scalar least = {.i = low}, largest = {.i = most};
    if (sign && number_fits(CB_I64, least, dtype) && number_fits(CB_I64, largest, dtype))
        return true;
    return infer_fail(call, CB_ERR_ARGUMENT, "%s does not hold every number from %lld to %lld",
                      cb_dtype_name(dtype), (long long)low, (long long)most);
}

static bool infer_source(InferCall *call) {
    switch (call->op) {
    case OP_full:
        return infer_number(call, ATTR_full_value) && infer_sizes(call, ATTR_full_sizes);
    case OP_arange:
        return infer_arange(call);
    case OP_rand:
        return infer_sizes(call, ATTR_rand_sizes);
    case OP_randn:
        return infer_sizes(call, ATTR_randn_sizes);
    case OP_randint: {
        int64_t low = call->attrs->word[ATTR_randint_low];
        int64_t high = call->attrs->word[ATTR_randint_high];
        if (low >= high)
            return infer_fail(call, CB_ERR_ARGUMENT, "low %lld is not below high %lld",
                              (long long)low, (long long)high);
        return randint_fits(call, low, high - 1) && infer_sizes(call, ATTR_randint_sizes);
    }
    default:
        check(false, "%s: a source without a shape rule", call->info->name);
        return false;
    }
}

/* Strides and byte counts of the result must fit, also around dimensions of size 0. */
static bool fits(const InferCall *call) {
    int64_t bytes = (int64_t)cb_dtype_size(call->out->result.dtype);
    for (int i = 0; i < call->out->result.rank; i++) {
        int64_t size = call->out->result.size[i];
        if (__builtin_mul_overflow(bytes, size ? size : 1, &bytes))
            return infer_fail(call, CB_ERR_SHAPE, "the result has too many elements");
    }
    return true;
}

static bool inputs_valid(const InferCall *call) {
    if (call->info->kind != KIND_CUSTOM && call->input_count != call->info->arity)
        return infer_fail(call, CB_ERR_ARGUMENT, "takes %d tensors, not %d", call->info->arity,
                          call->input_count);
    for (int i = 0; i < call->input_count; i++) {
        const Meta *input = &call->input[i];
        check(input->rank <= CB_MAX_RANK && input->dtype >= 0 && input->dtype < CB_DTYPE_COUNT,
              "%s: input %d has a broken meta", call->info->name, i);
    }
    return true;
}

bool op_infer(Op op, const Meta *input, int input_count, Attrs *attrs, Inferred *out) {
    memset(out, 0, sizeof *out);
    InferCall call = {op, op_info(op), input, input_count, attrs, out};
    if (!inputs_valid(&call)) return false;
    if (call.info->kind == KIND_CUSTOM) return infer_custom(&call) && fits(&call);
    if (!infer_dtypes(&call)) return false;
    bool inferred = false;
    switch (call.info->kind) {
    case KIND_POINTWISE:
        inferred = infer_pointwise(&call);
        break;
    case KIND_REDUCE:
        inferred = infer_reduce(&call);
        break;
    case KIND_SCAN:
        inferred = infer_scan(&call);
        break;
    case KIND_VIEW:
        inferred = infer_view(&call);
        break;
    case KIND_SOURCE:
    case KIND_RANDOM:
        inferred = infer_source(&call);
        break;
    case KIND_JOIN:
    case KIND_GATHER:
    case KIND_SCATTER:
    case KIND_CONTRACT:
    case KIND_OPAQUE:
        inferred = infer_index(&call);
        break;
    default:
        check(false, "%s has no inference rule of its own", call.info->name);
    }
    return inferred && fits(&call);
}
