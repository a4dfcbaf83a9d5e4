/* The door: an op call is checked for missing operands and goes to the thread's tracer or to eager.
 *
 * Eager views are made here: a new shell over the same storage, without work. What strides do not
 * express (flip, the reshape of a transposed tensor) is copied by eager_apply.
 *
 *     apply(OP_transpose, {x: f32[2, 3]}, {0, 1}) -> f32[3, 2], strides [1, 3], x's storage */
#include "eager/apply.h"
#include "eager/anomaly.h"
#include "eager/checkpoint.h"
#include "eager/eager.h"
#include "eager/tape.h"
#include "tensor/thread.h"

#include <string.h>

/* The k-th tensor of the op's schema, which has that many. */
static const Param *tensor_param(const OpInfo *info, int k) {
    const Param *param = info->param;
    for (;; param++) {
        if (param->type != PARAM_TENSOR && param->type != PARAM_OPTIONAL_TENSOR) continue;
        if (k-- == 0) return param;
    }
}

/* False with an error (the first one stays) when a required tensor is NULL. */
static bool operands_present(Op op, const cb_operand *input, int input_count) {
    for (int i = 0; i < input_count; i++) {
        if (input[i].kind != CB_OPERAND_TENSOR || input[i].tensor) continue;
        const Param *param = tensor_param(op_info(op), i);
        if (param->type == PARAM_OPTIONAL_TENSOR) continue;
        fail(CB_ERR_ARGUMENT, "%s: input %d (%s) is NULL", op_info(op)->name, i, param->name);
        return false;
    }
    return true;
}

/* An operand whose handle does not live. */
static __attribute__((noinline, cold)) Tensor *operand_other(Op op, int i,
                                                             const cb_tensor *handle) {
    char what[96];
    snprintf(what, sizeof what, "%s: input %d (%s)", op_info(op)->name, i,
             tensor_param(op_info(op), i)->name);
    return handle_other(handle, what);
}

/* A tensor of a trace that is over has no value, and no tracer that could compute it. */
static bool operands_real(Op op, const cb_operand *input, int input_count) {
    for (int i = 0; i < input_count; i++) {
        if (input[i].kind != CB_OPERAND_TENSOR || !input[i].tensor) continue;
        if (input[i].tensor->storage) continue;
        fail(CB_ERR_GRAPH, "%s: input %d %s", op_info(op)->name, i, never_computed);
        return false;
    }
    return true;
}

/* For the checkpoint whose function runs; false with an error. *doubts: what the op makes is
 * doubtful. */
static bool operands_read(Op op, const cb_operand *input, int input_count, const Attrs *attrs,
                          bool *doubts) {
    bool done = true, follows = tape_follows(input, input_count);
    for (int i = 0; i < input_count && done; i++) {
        const Tensor *x = input[i].kind == CB_OPERAND_TENSOR ? input[i].tensor : NULL;
        if (x && !norm_moves(op, attrs, i))
            done = follows ? checkpoint_reads(x) : checkpoint_reads_else(x, doubts);
    }
    return done;
}

/* Into what was made in the checkpoint's run. */
static bool operands_go_into(const Tensor *target, Op op, const cb_operand *input,
                             int input_count) {
    bool doubts = false;
    return operands_read(op, input, input_count, &attrs_none, &doubts) &&
           (!doubts || checkpoint_doubts(target->storage));
}

static Tensor *apply_view(Op op, const cb_operand *input, const Attrs *attrs) {
    Tensor *x = input->tensor;
    Meta meta = tensor_meta(x);
    Attrs canonical;
    Inferred inferred;
    attrs_copy(&canonical, attrs, op);
    if (!op_infer(op, &meta, 1, &canonical, &inferred)) return NULL;
    int64_t stride[CB_MAX_RANK], offset;
    if (view_strides(op, &canonical, &meta, &inferred.result, x->stride, x->offset, stride,
                     &offset))
        return tensor_view_of(x, &inferred.result, stride, offset);
    if (op != OP_view) return eager_apply(op, input, 1, attrs);
    view_refuse(&meta, &inferred.result);
    return NULL;
}

/* Dropout that draws. */
static bool drops(const Attrs *attrs) {
    double p = attr_float(attrs, ATTR_dropout_p);
    return attrs->word[ATTR_dropout_training] && p > 0 && p < 1;
}

static Tensor *compute(Op op, const cb_operand *input, int input_count, const Attrs *attrs) {
    if (input_count == 1 && input->kind == CB_OPERAND_TENSOR) {
        if (op_info(op)->kind == KIND_VIEW) return apply_view(op, input, attrs);
        Tensor *x = input->tensor;
        if (op_is_identity(op, attrs, x->dtype, x->rank, x->size, x->stride))
            return tensor_alias(x);
    }
    Tensor *y = eager_apply(op, input, input_count, attrs);
    return anomaly_wanted() ? anomaly_pass(y, op, input, input_count) : y;
}

/* With its history. */
static __attribute__((noinline, cold)) Tensor *
compute_recorded(Op op, const cb_operand *input, int input_count, const Attrs *attrs) {
    if (op == OP_dropout && drops(attrs)) return tape_dropout(input->tensor, attrs);
    if (!tape_takes(op, attrs)) return NULL;
    return tape_record(compute(op, input, input_count, attrs), op, input, input_count, attrs);
}

/* The op runs at once: eager, or what autocast makes of it. */
static __attribute__((noinline)) Tensor *apply_now(Op op, const cb_operand *input, int input_count,
                                                   const Attrs *attrs) {
    if (thread_state.autocast.lower != AUTOCAST_OFF && op_info(op)->autocast != AUTOCAST_NONE)
        return autocast_apply(op, input, input_count, attrs);
    Tracer *tracer = thread_state.tracer;
    if (tracer) return tracer->apply(tracer, op, input, input_count, attrs);
    if (!operands_real(op, input, input_count)) return NULL;
    bool doubts = false;
    if (thread_state.checkpoint && !operands_read(op, input, input_count, attrs, &doubts))
        return NULL;
    if (tape_follows(input, input_count)) return compute_recorded(op, input, input_count, attrs);
    Tensor *y = compute(op, input, input_count, attrs);
    return !doubts || !y || checkpoint_doubts(y->storage) ? y : NULL;
}

/* What a jump left behind is put back before anything else. */
static __attribute__((noinline, cold)) Tensor *
apply_after_jump(Op op, const cb_operand *input, int input_count, const Attrs *attrs) {
    thread_now();
    return apply_now(op, input, input_count, attrs);
}

/* The operands are present. */
static inline Tensor *apply_present(Op op, const cb_operand *input, int input_count,
                                    const Attrs *attrs) {
    const Frame *frame = thread_state.frame;
    if (frame && !frame_lives(frame, stack_here()))
        return apply_after_jump(op, input, input_count, attrs);
    Tracer *tracer = thread_state.tracer;
    if (!tracer || thread_state.autocast.lower != AUTOCAST_OFF)
        return apply_now(op, input, input_count, attrs);
    return tracer->apply(tracer, op, input, input_count, attrs);
}

Tensor *apply(Op op, const cb_operand *input, int input_count, const Attrs *attrs) {
    if (!operands_present(op, input, input_count)) return NULL;
    return apply_present(op, input, input_count, attrs);
}

Tensor *apply_to(Tensor *x, cb_dtype dtype) {
    Attrs attrs = attrs_default(OP_to);
    attrs.word[ATTR_to_dtype] = dtype;
    cb_operand input = cb_operand_tensor(x);
    return apply(OP_to, &input, 1, &attrs);
}

/* ---- in-place -------------------------------------------------------------------------------- */

const char *write_name(void) { return thread_state.writes ? thread_state.writes : "assign"; }

enum { NOWHERE = -1, WINDOWS = CB_MAX_RANK };

/* The dimension along which several elements are one in memory, or NOWHERE. */
static int repeats_along(const Tensor *target) {
    if (tensor_contiguous(target)) return NOWHERE;
    if (tensor_span_bytes(target) == 0) return NOWHERE; /* nothing is written */
    for (int i = 0; i < target->rank; i++)
        if (target->stride[i] == 0 && target->size[i] > 1) return i;
    Meta meta = tensor_meta(target);
    return view_repeats(&meta, target->stride) ? WINDOWS : NOWHERE;
}

static bool check_target(const Tensor *target) {
    int along = repeats_along(target);
    if (along == NOWHERE) return true;
    if (along == WINDOWS)
        fail(CB_ERR_SHAPE,
             "%s: the target's windows overlap: several elements are one in memory; "
             "clone it first",
             write_name());
    else
        fail(CB_ERR_SHAPE,
             "%s: dimension %d of the target is expanded: several elements are one "
             "in memory; clone it first",
             write_name(), along);
    return false;
}

/* "assign: i64[2] does not broadcast to f32[2, 3]" */
static void fail_metas(cb_status status, const char *result, const Tensor *from,
                       const char *between, const Tensor *to) {
    char text[2][128];
    Meta meta[2] = {tensor_meta(from), tensor_meta(to)};
    for (int i = 0; i < 2; i++) meta_format(&meta[i], text[i], sizeof text[i]);
    fail(status, "%s: %s%s does not %s %s%s", write_name(), result, text[0], between, text[1],
         *result ? " in place" : "");
}

static bool check_broadcast(const Tensor *target, const Tensor *value) {
    bool fits = value->rank <= target->rank;
    for (int i = 0; fits && i < value->rank; i++) {
        int64_t size = value->size[i];
        fits = size == 1 || size == target->size[i + target->rank - value->rank];
    }
    if (fits) return true;
    fail_metas(CB_ERR_SHAPE, "", value, "broadcast to", target);
    return false;
}

/* A number is one of the target's dtype, as it is for full. */
static bool check_number(const Tensor *target, const cb_operand *value) {
    char why[NUMBER_TEXT];
    if (number_converts(value, target->dtype, why)) return true;
    fail(CB_ERR_ARGUMENT, "%s: %s", write_name(), why);
    return false;
}

/* A write that somebody's gradient would have to know of. */
static bool write_recorded(Tensor *target, const cb_operand *value) {
    const cb_operand both[] = {cb_operand_tensor(target), *value};
    if (!tape_follows(both, 2)) return true;
    return tape_refuses_write(target->history);
}

Tensor *apply_assign(Tensor *target, const cb_operand *value) {
    Tensor *x = value->tensor;
    bool tensor = value->kind == CB_OPERAND_TENSOR;
    if (!target || (tensor && !x)) {
        fail(CB_ERR_ARGUMENT, "%s: %s", write_name(),
             target ? "the value is NULL; a number is written by cb_fill_" : "the target is NULL");
        return NULL;
    }
    bool known = target->dtype >= 0 && (!tensor || x->dtype >= 0);
    if (!check_target(target)) return NULL;
    if (known && !(tensor ? check_broadcast(target, x) : check_number(target, value))) return NULL;
    Tracer *tracer = tracer_current();
    if (tracer) return tracer->assign(tracer, target, value);
    if (!target->storage || (tensor && !x->storage)) {
        fail(CB_ERR_GRAPH, "%s: %s %s", write_name(), target->storage ? "the value" : "the target",
             never_computed);
        return NULL;
    }
    if (thread_state.checkpoint && !checkpoint_writes(target->storage)) return target;
    if (tensor && checkpoint_of(target->storage) && !operands_go_into(target, OP_assign, value, 1))
        return NULL;
    if (!write_recorded(target, value) || !eager_assign(target, value)) return NULL;
    storage_written(target->storage);
    return target;
}

Tensor *apply_result(Tensor *target, Tensor *result) {
    bool known = target && result && target->dtype >= 0 && result->dtype >= 0;
    cb_operand operand = cb_operand_tensor(result);
    if (!known || dtype_kind(result->dtype) <= dtype_kind(target->dtype))
        return apply_assign(target, &operand);
    fail_metas(CB_ERR_DTYPE, "a result of ", result, "fit", target);
    return NULL;
}

Tensor *apply_into(Tensor *target, Op op, const cb_operand *input, int input_count) {
    if (!target || !target->storage || tracer_current() ||
        thread_state.autocast.lower != AUTOCAST_OFF) {
        Attrs attrs = attrs_default(op);
        return apply_result(target, apply(op, input, input_count, &attrs));
    }
    if (!operands_present(op, input, input_count) || !operands_real(op, input, input_count) ||
        !check_target(target))
        return NULL;
    if (thread_state.checkpoint) {
        if (!checkpoint_writes(target->storage)) return target;
        if (!operands_go_into(target, op, input, input_count)) return NULL;
    }
    if (!eager_into(target, op, input, input_count)) return NULL;
    storage_written(target->storage);
    return target;
}

/* ---- handles --------------------------------------------------------------------------------- */

static __attribute__((noinline)) Tensor *apply_moving(Op op, const cb_operand *input,
                                                      int input_count, const Attrs *attrs) {
    Tensor *y = apply(op, input, input_count, attrs);
    return norm_moved(y, op, input, attrs);
}

Tensor *apply_call(Op op, const cb_operand *input, int input_count, const Attrs *attrs) {
    return op_moves(op) ? apply_moving(op, input, input_count, attrs)
                        : apply(op, input, input_count, attrs);
}

/* The call from input i on, whose handle does not live: NULL, or an address. */
static __attribute__((noinline, cold)) cb_tensor *
apply_others(Op op, cb_operand *input, int input_count, const Attrs *attrs, int i) {
    for (; i < input_count; i++) {
        if (input[i].kind != CB_OPERAND_TENSOR || !input[i].tensor) continue;
        cb_tensor *handle = input[i].tensor;
        if (handle_lives(handle, &input[i].tensor)) continue;
        input[i].tensor = operand_other(op, i, handle);
        if (!input[i].tensor) return NULL;
    }
    return tensor_out(apply_call(op, input, input_count, attrs));
}

cb_tensor *apply_unexpected(Op op, cb_operand *input, int input_count, const Attrs *attrs) {
    for (int i = 0; i < input_count; i++) {
        Tensor *x;
        if (input[i].kind != CB_OPERAND_TENSOR) continue;
        if (!handle_lives(input[i].tensor, &x))
            return apply_others(op, input, input_count, attrs, i);
        input[i].tensor = x;
    }
    Tensor *y = op_moves(op) ? apply_moving(op, input, input_count, attrs)
                             : apply_present(op, input, input_count, attrs);
    return tensor_out(y);
}

cb_tensor *apply_handles(Op op, cb_operand *input, int input_count, const Attrs *attrs) {
    Tracer *tracer = thread_state.tracer;
    if (!tracer || !tracer->expect || op_moves(op))
        return apply_unexpected(op, input, input_count, attrs);
    return tracer->expect(tracer, op, input, input_count, attrs);
}

cb_tensor *apply_two_unexpected(cb_operand a, cb_operand b, int op, Tracer *tracer) {
    (void)tracer;
    cb_operand input[] = {a, b};
    return apply_unexpected((Op)op, input, 2, &attrs_none);
}

cb_tensor *apply_two(cb_operand a, cb_operand b, int op) {
    Tracer *tracer = thread_state.tracer;
    if (!tracer) return apply_two_unexpected(a, b, op, tracer);
    return tracer->expect_two(a, b, op, tracer);
}

typedef Tensor *Assigning(Tensor *target, const cb_operand *value);

/* The tensor of a handle that is not NULL, or NULL with an error. */
static Tensor *written_part(const char *name, const char *part, const cb_tensor *handle) {
    Tensor *x;
    if (handle_lives(handle, &x)) return x;
    char what[32];
    snprintf(what, sizeof what, "%s: %s", name, part);
    return handle_other(handle, what);
}

/* name: of the call, for errors. */
static cb_tensor *assign(const char *name, cb_tensor *handle, cb_operand value, Assigning *how) {
    Tracer *tracer = thread_state.tracer;
    if (tracer && tracer->expect_assign &&
        tracer->expect_assign(tracer, cb_operand_tensor(handle), value))
        return handle;
    Tensor *x = handle ? written_part(name, "the target", handle) : NULL;
    if (handle && !x) return NULL;
    if (value.kind == CB_OPERAND_TENSOR && value.tensor) {
        value.tensor = written_part(name, "the value", value.tensor);
        if (!value.tensor) return NULL;
    }
    thread_state.writes = name;
    Tensor *written = how(x, &value);
    thread_state.writes = NULL;
    return written ? handle : NULL;
}

cb_tensor *cb_assign(cb_tensor *x, cb_tensor *value) {
    return assign("assign", x, cb_operand_tensor(value), apply_assign);
}

cb_tensor *cb_fill_(cb_tensor *x, cb_operand value) {
    return assign("fill_", x, value, apply_assign);
}

static Tensor *take_result(Tensor *target, const cb_operand *result) {
    return apply_result(target, result->tensor);
}

cb_tensor *cb_assign_result(cb_tensor *x, cb_tensor *result) {
    return assign("assign", x, cb_operand_tensor(result), take_result);
}

/* ---- ops in place ---------------------------------------------------------------------------- */

/* Whether eager takes the op at once, and nothing asks for what it gives or was before: then its
 * operands are tensors in place of handles. */
static bool takes_in_place(cb_operand *input, int count) {
    cb_operand tensor[2];
    if (tracer_current() || thread_state.autocast.lower != AUTOCAST_OFF || anomaly_wanted())
        return false;
    for (int i = 0; i < count; i++) {
        tensor[i] = input[i];
        if (tensor[i].kind != CB_OPERAND_TENSOR) continue;
        if (!tensor[i].tensor || !handle_lives(tensor[i].tensor, &tensor[i].tensor)) return false;
        if (!tensor[i].tensor->storage) return false;
    }
    if (tape_follows(tensor, count) || repeats_along(tensor->tensor) != NOWHERE) return false;
    memcpy(input, tensor, sizeof *tensor * (size_t)count);
    return true;
}

/* In a checkpoint what changes a tensor from before is done once, with all that it reads. *once: it
 * was. False with an error. */
static bool meets_checkpoint(Op op, const cb_operand *input, int count, bool *once) {
    const Storage *storage = input->tensor->storage;
    *once = !checkpoint_writes(storage);
    return *once || !checkpoint_of(storage) || operands_go_into(input->tensor, op, input, count);
}

/* The op's own errors come first, and have its name. */
static __attribute__((noinline)) cb_tensor *in_place(const char *name, Op op, cb_tensor *x,
                                                     cb_operand y, int count) {
    cb_operand input[] = {cb_operand_tensor(x), y};
    cb_tensor *result;
    bool once = false;
    if (takes_in_place(input, count)) {
        if (thread_state.checkpoint && !meets_checkpoint(op, input, count, &once)) return NULL;
        if (once) return x;
        Tensor *now = eager_in_place(op, input, count);
        if (now == input->tensor) return x;
        result = tensor_out(now);
    } else {
        result = apply_handles(op, input, count, &attrs_none);
    }
    return result ? assign(name, x, cb_operand_tensor(result), take_result) : NULL;
}

#define IN_PLACE(op)                                                                               \
    cb_tensor *(cb_##op##_)(cb_tensor * x, cb_operand y) {                                         \
        return in_place(#op "_", OP_##op, x, y, 2);                                                \
    }
IN_PLACE(add)
IN_PLACE(sub)
IN_PLACE(mul)
IN_PLACE(div)
#undef IN_PLACE

cb_tensor *(cb_relu_)(cb_tensor *x) { return in_place("relu_", OP_relu, x, (cb_operand){0}, 1); }
