/* The scopes of autocast, and the conversions that they keep (eager/autocast.c makes them).
 *
 * Conversions of module parameters are kept until the outermost scope closes, or the parameter is
 * written to. */
#include "tensor/thread.h"

#include "base/memory.h"

struct CachedCast {
    Tensor *source; /* a view of our own: its storage cannot go and come back as another */
    Tensor *result;
    uint64_t version; /* of the storage, when it was converted */
};

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

Tensor *autocast_known(const Tensor *x, cb_dtype dtype) {
    const AutocastState *state = &thread_state.autocast;
    for (int i = 0; i < state->cached_count; i++) {
        const CachedCast *cast = &state->cached[i];
        if (cast->source->storage == x->storage && same_tensor(cast->source, x) &&
            cast->result->dtype == dtype && cast->version == storage_version(x->storage))
            return cast->result;
    }
    return NULL;
}

/* Without memory to remember it, the conversion is the caller's alone. */
void autocast_remember(Tensor *x, Tensor *result) {
    AutocastState *state = &thread_state.autocast;
    if (state->cached_count == state->cached_capacity) {
        int capacity = state->cached_capacity ? state->cached_capacity * 2 : 32;
        CachedCast *grown = memory_resize(state->cached, sizeof *grown * (size_t)capacity);
        if (!grown) return;
        state->cached = grown;
        state->cached_capacity = capacity;
    }
    CachedCast cast = {.version = storage_version(x->storage)};
    cast.source = cb_keep(tensor_alias(x));
    cast.result = cb_keep(tensor_alias(result));
    if (cast.source && cast.result) {
        state->cached[state->cached_count++] = cast;
        return;
    }
    tensor_destroy(cast.source);
    tensor_destroy(cast.result);
}
