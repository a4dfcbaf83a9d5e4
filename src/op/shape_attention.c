/* The shape rules of attention and its gradient.
 *
 *     f32[2, 12, 128, 64], f32[2, 12, 128, 64], f32[2, 12, 128, 64], mask bool[128, 128]
 *         ->  f32[2, 12, 128, 64], or f32[2, 128, 12, 64] with behind=1
 *
 * query is [batch..., rows, depth], key [batch..., columns, depth], value [batch..., columns,
 * width] and the mask broadcasts to [batch..., rows, columns]; the batch dims of all broadcast.
 *
 *     the same, gradient f32[2, 12, 128, 64], mask   ->  f32[589824]: of query, of key, of value */
#include "op/infer.h"

#include <string.h>

static bool operands_fit(const InferCall *call) {
    const Meta *q = &call->input[0], *k = &call->input[1], *v = &call->input[2];
    if (!dtype_is_float(q->dtype))
        return infer_fail(call, CB_ERR_DTYPE, "%s is not a floating point dtype",
                          cb_dtype_name(q->dtype));
    if (q->rank < 2 || k->rank < 2 || v->rank < 2)
        return infer_fail(call, CB_ERR_SHAPE, "query, key and value have at least 2 dims");
    if (q->size[q->rank - 1] != k->size[k->rank - 1])
        return infer_fail(call, CB_ERR_SHAPE, "the last sizes of query and key differ");
    if (k->size[k->rank - 2] != v->size[v->rank - 2])
        return infer_fail(call, CB_ERR_SHAPE, "key and value have different lengths");
    return true;
}

static bool mask_fits(const InferCall *call, int64_t rows, int64_t columns) {
    const Meta *mask = &call->input[call->input_count - 1];
    if (mask->dtype != CB_BOOL && !dtype_is_float(mask->dtype))
        return infer_fail(call, CB_ERR_DTYPE, "a mask of %s is neither bool nor floating point",
                          cb_dtype_name(mask->dtype));
    int64_t wanted[] = {columns, rows};
    for (int i = 0; i < 2 && i < mask->rank; i++) {
        int64_t size = mask->size[mask->rank - 1 - i];
        if (size != 1 && size != wanted[i])
            return infer_fail(call, CB_ERR_SHAPE, "the mask does not broadcast to %lld x %lld",
                              (long long)rows, (long long)columns);
    }
    return true;
}

/* result: of attention itself. */
static bool infer_gradient(const InferCall *call, const Meta *result) {
    const Meta *q = &call->input[0], *k = &call->input[1], *given = &call->input[3];
    int64_t batch = 1, width = result->size[result->rank - 1], depth = q->size[q->rank - 1];
    bool same = given->rank == result->rank;
    for (int i = 0; i < result->rank && same; i++) same = given->size[i] == result->size[i];
    if (!same)
        return infer_fail(call, CB_ERR_SHAPE, "the gradient has other sizes than the result");
    for (int i = 0; i < result->rank - 2; i++) batch *= result->size[i];
    int64_t numel = q->size[q->rank - 2] * depth + k->size[k->rank - 2] * (depth + width);
    call->out->result = (Meta){.dtype = result->dtype, .rank = 1, .size = {batch * numel}};
    return true;
}

bool infer_attention(InferCall *call) {
    const Meta *q = &call->input[0], *v = &call->input[2];
    Meta *result = &call->out->result;
    bool gradient = call->op == OP_attention_gradient;
    int64_t *causal =
        &call->attrs->word[gradient ? ATTR_attention_gradient_is_causal : ATTR_attention_is_causal];
    if (!operands_fit(call)) return false;
    int64_t rows = q->size[q->rank - 2];
    if (!mask_fits(call, rows, v->size[v->rank - 2])) return false;
    *result = (Meta){.dtype = result->dtype};
    for (int i = 0; i < call->input_count; i++) {
        const Meta *input = &call->input[i];
        int rank = input->rank < 2 ? 0 : input->rank - 2;
        if (!infer_broadcast(call, result, input->size, rank)) return false;
    }
    int64_t behind = gradient ? 0 : call->attrs->word[ATTR_attention_behind];
    if (behind < 0 || behind > result->rank)
        return infer_fail(call, CB_ERR_ARGUMENT, "%lld of %d batch dims cannot stand behind",
                          (long long)behind, result->rank);
    *causal = *causal != 0;
    int at = result->rank - (int)behind;
    memmove(result->size + at + 1, result->size + at, sizeof *result->size * (size_t)behind);
    result->size[at] = rows;
    result->size[result->rank + 1] = v->size[v->rank - 1];
    result->rank = (uint8_t)(result->rank + 2);
    Meta own = *result;
    return !gradient || infer_gradient(call, &own);
}
