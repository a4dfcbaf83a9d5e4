/* Autocast: inside its scopes, ops that gain from it compute in a lower precision, and ops that
 * would lose by it in f32. The op table's column autocast says which.
 *
 * In:  an op call with its operands. Out: the op on operands converted before.
 *      linear(x: f32, w: f32), under bf16 -> linear(to(x, bf16), to(w, bf16)): bf16
 *
 * The conversions are op calls like any other, so a tracer records them, and what it recorded does
 * not depend on the scopes that are open when it repeats. Converting twice changes nothing. */
#include "eager/apply.h"
#include "tensor/thread.h"

/* x in dtype: a tensor to destroy after use (*temporary), a kept one, or NULL with an error. */
static Tensor *converted(Tensor *x, cb_dtype dtype, Tensor **temporary) {
    bool keeps = !thread_state.tracer && !x->history && x->storage && x->storage->parameter;
    Tensor *known = keeps ? autocast_known(x, dtype) : NULL;
    if (known) return known;
    *temporary = apply_to(x, dtype);
    if (keeps && *temporary) autocast_remember(x, *temporary);
    return *temporary;
}

static bool is_converted(const cb_operand *operand, cb_dtype dtype) {
    if (operand->kind != CB_OPERAND_TENSOR || !operand->tensor) return false;
    cb_dtype given = operand->tensor->dtype;
    return given >= 0 && given != dtype && given != CB_F64 && dtype_is_float(given);
}

Tensor *autocast_apply(Op op, const cb_operand *input, int input_count, const Attrs *attrs) {
    cb_operand operand[OP_MAX_INPUTS];
    Tensor *temporary[OP_MAX_INPUTS] = {NULL}, *result = NULL;
    cb_dtype before = autocast_set(CB_SAME); /* the op itself, and the conversions, go as given */
    cb_dtype dtype = op_info(op)->autocast == AUTOCAST_F32 ? CB_F32 : before;
    bool done = true;
    for (int i = 0; i < input_count && done; i++) {
        operand[i] = input[i];
        if (!is_converted(&input[i], dtype)) continue;
        operand[i].tensor = converted(input[i].tensor, dtype, &temporary[i]);
        done = operand[i].tensor != NULL;
    }
    if (done) result = apply(op, operand, input_count, attrs);
    for (int i = 0; i < input_count; i++) tensor_destroy(temporary[i]);
    autocast_set(before);
    return result;
}
