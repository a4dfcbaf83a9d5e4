/* What batch_norm and instance_norm write to when they train: their running statistics.
 *
 *     cb_batch_norm(x, mean, var, w, b, true, 0.1)
 *         ->  the op, then mean = lerp(mean, mean of x, 0.1), var = lerp(var, variance of x, 0.1)
 *
 * The op itself writes nothing: traces hold it and the two assignments one by one. The variance is
 * that over n - 1, as in PyTorch; of an instance norm, both are means over the instances. An x
 * without elements moves nothing. */
#include "eager/apply.h"
#include "eager/tape.h"
#include "op_calls.h"

_Static_assert(ATTR_batch_norm_training == ATTR_instance_norm_use_input_stats &&
                   ATTR_batch_norm_momentum == ATTR_instance_norm_momentum,
               "batch_norm and instance_norm are called alike");

enum { MEAN = 1, VAR }; /* inputs of both ops */

bool norm_statistics(Op op, Tensor *x, Tensor **mean, Tensor **var) {
    bool instance = op == OP_instance_norm;
    cb_dim_list dims = CB_NO_DIMS;
    int rank = cb_rank(x);
    for (int i = 0; i < rank; i++)
        if (i != 1 && !(instance && i == 0)) dims.at[dims.count++] = i;
    if (cb_dtype_of(x) != CB_F64) x = op_to(x, CB_F32);
    *mean = op_mean(x, dims, false);
    *var = op_var(x, dims, 1, false);
    if (instance) {
        *mean = op_mean(*mean, cb_dims_one(0), false);
        *var = op_mean(*var, cb_dims_one(0), false);
    }
    return *mean && *var;
}

bool norm_moves(Op op, const Attrs *attrs, int i) {
    return (op == OP_batch_norm || op == OP_instance_norm) && (i == MEAN || i == VAR) &&
           attrs->word[ATTR_batch_norm_training];
}

static bool move(Tensor *value, Tensor *towards, double momentum) {
    return (cb_assign)(value, op_lerp(value, towards, momentum));
}

bool norm_move_begin(NormMove *move) {
    if (checkpoint_is_again()) return false;
    move->checkpoint = checkpoint_set(NULL); /* what is computed does not depend on them */
    cb_scope_open();
    cb_no_grad_open(); /* statistics are no part of what is differentiated */
    return true;
}

void norm_move_end(const NormMove *move) {
    cb_no_grad_close();
    cb_scope_close();
    checkpoint_set(move->checkpoint);
}

Tensor *norm_moved(Tensor *y, Op op, const cb_operand *input, const Attrs *attrs) {
    Tensor *running_mean = input[MEAN].tensor, *running_var = input[VAR].tensor, *mean, *var;
    const Tracer *tracer = tracer_current();
    bool moves = attrs->word[ATTR_batch_norm_training] && running_mean; /* both, or none */
    NormMove now;
    if (!y || !moves || (tracer && tracer->whole_calls)) return y;
    if (cb_numel(input[0].tensor) == 0 || !norm_move_begin(&now)) return y;
    double momentum = attr_float(attrs, ATTR_batch_norm_momentum);
    bool moved = norm_statistics(op, input[0].tensor, &mean, &var) &&
                 move(running_mean, mean, momentum) && move(running_var, var, momentum);
    norm_move_end(&now);
    return moved ? y : NULL;
}
