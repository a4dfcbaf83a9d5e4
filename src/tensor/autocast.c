/* Autocast: inside its scopes, ops that gain from it compute in a lower precision, and ops that
 * would lose by it in f32. The op table's column autocast says which.
 *
 * In:  an op call with its operands. Out: the op on operands converted before.
 *      linear(x: f32, w: f32), under bf16 -> linear(to(x, bf16), to(w, bf16)): bf16
 *
 * The conversions are op calls like any other, so a tracer records them, and what it recorded does
 * not depend on the scopes that are open when it repeats. Converting twice changes nothing.
 * Conversions of module parameters are kept until the outermost scope closes, or the parameter is
 * written to. */
#include "tensor/thread.h"

#include "base/memory.h"

struct CachedCast {
    Tensor *source; /* a view of our own: its storage cannot go and come back as another */
    Tensor *result;
    uint64_t version; /* of the storage, when it was converted */
};

static uint64_t storage_version(const Storage *storage) {
    return atomic_load_explicit(&storage->version, memory_order_relaxed);
}

/* ---- scopes -------------------------------------------------------------------------------- */

static bool can_compute_in(cb_dtype dtype) {
    return dtype == CB_BF16 || dtype == CB_F16 || dtype == CB_SAME;
}

void cb_autocast_open(cb_dtype dtype) {
    AutocastState *state = &thread_now()->autocast;
    int depth = state->depth++;
    if (depth >= AUTOCAST_DEPTH) {
        fail(CB_ERR_ARGUMENT, "autocast_open: more than %d scopes in each other", AUTOCAST_DEPTH);
        return;
    }
    state->outer[depth] = state->lower;
    if (can_compute_in(dtype)) {
        state->lower = dtype == CB_SAME ? AUTOCAST_OFF : dtype;
        return;
    }
    const char *name = (unsigned)dtype < CB_DTYPE_COUNT ? cb_dtype_name(dtype) : "this";
    fail(CB_ERR_DTYPE,
         "autocast_open: %s is no lower precision; there are bf16 and f16, and "
         "CB_SAME to switch autocast off",
         name);
}

void cb_autocast_close(void) {
    AutocastState *state = &thread_now()->autocast;
    if (state->depth <= state->base) {
        fail(CB_ERR_ARGUMENT, "autocast_close: no autocast is open in this %s",
             state->base ? "compiled function" : "thread");
        return;
    }
    if (--state->depth < AUTOCAST_DEPTH) state->lower = state->outer[state->depth];
    if (state->depth == 0) autocast_forget(state);
}

cb_dtype cb_autocast_dtype(void) {
    cb_dtype lower = thread_now()->autocast.lower;
    return lower == AUTOCAST_OFF ? CB_SAME : lower;
}

AutocastFrame autocast_frame(void) {
    const AutocastState *state = &thread_state.autocast;
    return (AutocastFrame){state->depth, state->base, state->lower};
}

AutocastFrame autocast_enter(void) {
    AutocastFrame frame = autocast_frame();
    thread_state.autocast.base = frame.depth;
    return frame;
}

bool autocast_leave(AutocastFrame frame) {
    AutocastState *state = &thread_state.autocast;
    int left = state->depth - frame.depth;
    state->depth = frame.depth;
    state->base = frame.base;
    state->lower = frame.lower;
    return left == 0;
}

cb_dtype autocast_set(cb_dtype dtype) {
    cb_dtype before = cb_autocast_dtype();
    thread_state.autocast.lower = dtype == CB_SAME ? AUTOCAST_OFF : dtype;
    return before;
}

/* ---- conversions --------------------------------------------------------------------------- */

void autocast_forget(AutocastState *state) {
    for (int i = 0; i < state->cached_count; i++) {
        tensor_destroy(state->cached[i].source);
        tensor_destroy(state->cached[i].result);
    }
    memory_free(state->cached);
    state->cached = NULL;
    state->cached_count = state->cached_capacity = 0;
}

static Tensor *convert(Tensor *x, cb_dtype dtype) {
    Attrs attrs = attrs_default(OP_to);
    attrs.word[ATTR_to_dtype] = dtype;
    cb_operand input = cb_operand_tensor(x);
    return apply(OP_to, &input, 1, &attrs);
}

static Tensor *find_cached(const AutocastState *state, const Tensor *x, cb_dtype dtype) {
    for (int i = 0; i < state->cached_count; i++) {
        const CachedCast *cast = &state->cached[i];
        if (cast->source->storage == x->storage && same_tensor(cast->source, x) &&
            cast->result->dtype == dtype && cast->version == storage_version(x->storage))
            return cast->result;
    }
    return NULL;
}

/* Without memory to remember it, the conversion is the caller's alone. */
static void remember(AutocastState *state, Tensor *x, Tensor *result) {
    if (state->cached_count == state->cached_capacity) {
        int capacity = state->cached_capacity ? state->cached_capacity * 2 : 32;
        CachedCast *grown = memory_resize(state->cached, sizeof *grown * (size_t)capacity);
        if (!grown) return;
        state->cached = grown;
        state->cached_capacity = capacity;
    }
    Meta meta = tensor_meta(x), converted = tensor_meta(result);
    CachedCast cast = {.version = storage_version(x->storage)};
    cast.source = cb_keep(tensor_view_of(x, &meta, x->stride, x->offset));
    cast.result = cb_keep(tensor_view_of(result, &converted, result->stride, result->offset));
    if (cast.source && cast.result) {
        state->cached[state->cached_count++] = cast;
        return;
    }
    tensor_destroy(cast.source);
    tensor_destroy(cast.result);
}

/* x in dtype: a tensor to destroy after use (*temporary), a kept one, or NULL with an error. */
static Tensor *converted(Tensor *x, cb_dtype dtype, Tensor **temporary) {
    AutocastState *state = &thread_state.autocast;
    bool keeps = !thread_state.tracer && x->storage && x->storage->parameter;
    Tensor *known = keeps ? find_cached(state, x, dtype) : NULL;
    if (known) return known;
    *temporary = convert(x, dtype);
    if (keeps && *temporary) remember(state, x, *temporary);
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
