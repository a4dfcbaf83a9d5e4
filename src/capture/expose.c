/* Exposed storages: those that the function has a pointer into. Nobody sees when it reads and
 * writes there, so for the rest of the call ops on them run at once, in the order of the source.
 * All others are recorded and replayed as ever, with what those ops gave as tensors from outside.
 *
 *     y = mul(x, 2)            recorded
 *     p = cb_data(x)           an event: y is computed; x is exposed
 *     z = add(x, 1)            runs at once
 *     p[0] = 5                 z does not see it
 *     return mul(exp(y), z)    recorded: a segment that takes y and z
 *
 * What was recorded before runs first where the op needs a value of it, writes, draws random
 * numbers, or reads what it writes. */
#include "capture/call.h"

#include "eager/tape.h"
#include "graph/node.h"
#include "op/custom.h"

static bool is_exposed(const Call *call, const Tensor *x) {
    return x && x->storage && set_has(&call->exposed, x->storage->serial);
}

bool expose_meets(const Call *call, const cb_operand *input, int input_count) {
    for (int i = 0; i < input_count; i++)
        if (input[i].kind == CB_OPERAND_TENSOR && is_exposed(call, input[i].tensor)) return true;
    return false;
}

bool expose(Call *call, Tensor *x, Reason reason) {
    if (is_exposed(call, x)) return true;
    if (call->mode == CALL_RECORDS && !call->at)
        function_note(call->function, reason, site_current(), "%s", "");
    if (!call_event(call, reason, x)) return false;
    if (call->mode == CALL_IS_EAGER) return true;
    call_meet(call, x);
    segment_before_writes(call, x);
    if (!x->storage || set_add(&call->exposed, x->storage->serial)) return true;
    return call_break(call, REASON_out_of_memory, "while recording");
}

void expose_end(Call *call) {
    if (call->exposed.count) set_free(&call->exposed);
}

/* ---- ops at once ----------------------------------------------------------------------------- */

/* What was recorded has to run before an op that reads this. */
static bool comes_first(const Call *call, const cb_operand *operand) {
    if (operand->kind != CB_OPERAND_TENSOR || !operand->tensor) return false;
    const Tensor *x = operand->tensor;
    return !x->storage || (!is_exposed(call, x) && call_touches(call, x));
}

typedef struct Pause { /* of recording: the thread's ops are eager, as they come */
    Tracer *tracer;
    cb_dtype autocast; /* whose conversions have been made */
} Pause;

static Pause pause_recording(void) { return (Pause){tracer_set(NULL), autocast_set(CB_SAME)}; }

static void resume_recording(Pause pause) {
    autocast_set(pause.autocast);
    tracer_set(pause.tracer);
}

/* Its history begins in a segment that was left. */
static bool follows_promise(Op op, const cb_operand *input, int input_count, const Attrs *attrs) {
    bool promised = false;
    for (int i = 0; i < input_count; i++)
        if (input[i].kind == CB_OPERAND_TENSOR && input[i].tensor)
            promised |= tape_is_promised(input[i].tensor);
    return promised && grad_mode() && tape_follows_result(op, input, input_count, attrs);
}

Tensor *expose_apply(Call *call, Op op, const cb_operand *input, int input_count,
                     const Attrs *attrs) {
    bool waits = op_draws(op, attrs);
    for (int i = 0; i < input_count; i++) waits |= comes_first(call, &input[i]);
    if (waits && !call_event(call, REASON_pointer_given, NULL)) return NULL;
    if (call->mode == CALL_IS_EAGER) return apply(op, input, input_count, attrs);
    for (int i = 0; i < input_count; i++)
        if (input[i].kind == CB_OPERAND_TENSOR) call_meet(call, input[i].tensor);
    if (follows_promise(op, input, input_count, attrs))
        return call_needs_tape(call, promise_followed) ? apply(op, input, input_count, attrs)
                                                       : NULL;
    Pause pause = pause_recording();
    Tensor *result = apply(op, input, input_count, attrs);
    resume_recording(pause);
    return result;
}

Tensor *expose_assign(Call *call, Tensor *target, const cb_operand *value) {
    if (!call_event(call, REASON_pointer_given, NULL)) return NULL;
    if (call->mode == CALL_IS_EAGER) return apply_assign(target, value);
    call_meet(call, target);
    if (value->kind == CB_OPERAND_TENSOR) call_meet(call, value->tensor);
    segment_before_writes(call, target);
    Pause pause = pause_recording();
    Tensor *result = apply_assign(target, value);
    resume_recording(pause);
    return result;
}
