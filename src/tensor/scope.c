/* Scopes own tensors.
 *
 * Invariant: a tensor is in exactly one scope of one thread (is_linked), or kept (scope == NULL),
 * or a resident of a call, whose function's scope it is in without a link. Scopes belong to their
 * thread: a tensor that another thread will free must be kept.
 *
 *     cb_scope_open();
 *     cb_tensor *y = cb_keep(cb_add(x, 1.0));     every temporary dies here, y does not:
 *     cb_scope_close(); */
#include "tensor/thread.h"

#include "base/memory.h"
#include "base/option.h"
#include <string.h>

enum { CLOSED_AT_ONCE = 64 };

/* x goes on in another scope, or kept, or dies: its own links are left as they are. */
static void leave_scope(Tensor *x) {
    if (!is_linked(x)) return;
    *(x->previous ? &x->previous->next : &x->scope->first) = x->next;
    if (x->next) x->next->previous = x->previous;
}

static __attribute__((noinline, cold)) bool refill(ThreadState *t) {
    if (slots_refill(t) || seats_give_back(t)) return true;
    fail_memory(sizeof(Tensor));
    return false;
}

Tensor *tensor_alloc(void) {
    ThreadState *t = thread_now();
    if (!t->slots && !refill(t)) return NULL;
    Tensor *x = slot_take(t);
    slot_begin(t, x, 0, 0);
    return x;
}

Tensor *tensor_shell_traced(const Meta *meta, const int64_t *stride, int64_t offset, int number,
                            uint64_t trace) {
    ThreadState *t = &thread_state;
    if (!t->slots && !refill(t)) return NULL;
    Tensor *x = slot_take(t);
    slot_begin(t, x, number, trace);
    x->storage = NULL;
    x->offset = offset;
    x->dtype = meta->dtype;
    x->rank = meta->rank;
    x->device = meta->device;
    copy_dims(x->size, meta->size, meta->rank);
    copy_dims(x->stride, stride, meta->rank);
    return x;
}

/* What the tensor holds; its slot is still its own. */
static void let_go(ThreadState *t, Tensor *x) {
    if (t->tracer) t->tracer->destroy_tensor(t->tracer, x);
    if (x->storage) storage_release(x->storage);
    if (x->history) history_release(x->history);
    if (x->paused) history_release(x->paused);
}

void tensor_destroy(Tensor *x) {
    if (!x) return;
    ThreadState *t = thread_now();
    leave_scope(x);
    count_live(t, -1);
    if (has_seat(t->tracer, x)) {
        seat_free(t, x);
        return;
    }
    let_go(t, x);
    slot_free(t, x, option_now(OPTION_check));
}

static Scope *take_scope(ThreadState *t) {
    Scope *scope = t->spare_scopes;
    if (!scope) return memory_alloc(sizeof *scope);
    t->spare_scopes = scope->parent;
    return scope;
}

void scopes_cleanup(ThreadState *t) {
    for (Scope *scope; (scope = t->spare_scopes);) {
        t->spare_scopes = scope->parent;
        memory_free(scope);
    }
}

void cb_scope_open(void) {
    ThreadState *t = thread_now();
    Scope *scope = t->unopened ? NULL : take_scope(t);
    if (!scope) {
        t->unopened++; /* its tensors go to the scope around it */
        fail_memory(sizeof *scope);
        return;
    }
    *scope = (Scope){.parent = t->scope};
    t->scope = scope;
}

void scope_close_innermost(ThreadState *t) {
    Scope *scope = t->scope;
    t->scope = scope->parent;
    bool checks = option_now(OPTION_check);
    const FreedBy by = scope->in_frame ? FREED_BY_CALL : FREED_BY_SCOPE;
    int count = 0;
    if (t->tracer && t->tracer->home == scope) residents_die(t);
    for (Tensor *x = seats_free(t, scope->first, by, &count); x; x = seats_free(t, x, by, &count)) {
        Tensor *first = x, *last = x; /* a part at once, which stays in the first cache */
        for (int i = 0; x && i < CLOSED_AT_ONCE && !has_seat(t->tracer, x); x = x->next, i++) {
            let_go(t, last = x);
            count++;
        }
        last->next = NULL;
        slots_free(t, first, by, checks);
    }
    count_live(t, -count);
    if (scope->in_frame) return;
    scope->parent = t->spare_scopes;
    t->spare_scopes = scope;
}

void cb_scope_close(void) {
    ThreadState *t = thread_now();
    if (t->unopened)
        t->unopened--;
    else if (t->scope->in_frame || !t->scope->parent)
        fail(CB_ERR_ARGUMENT, "scope_close: no scope is open in this %s",
             t->scope->in_frame ? "compiled function" : "thread");
    else
        scope_close_innermost(t);
}

void tensor_keep(Tensor *x) {
    leave_scope(x);
    x->scope = NULL;
    x->kept = true;
}

void tensor_scope_add(Tensor *x) {
    leave_scope(x);
    x->kept = false;
    link_tensor(thread_state.scope, x);
}

cb_tensor *cb_keep(cb_tensor *handle) {
    Tensor *x = tensor_in(handle, "keep");
    if (!x) return NULL;
    thread_now();
    tensor_keep(x);
    return handle;
}

static bool refuse_owned(const Tensor *x, const char *what) {
    if (!x->owners && !x->is_gradient) return false;
    fail(CB_ERR_ARGUMENT, "%s: the tensor is %s, which frees it", what,
         x->owners ? "a parameter or buffer of a module"
                   : "the gradient of one that requires it (cb_zero_grad)");
    return true;
}

cb_tensor *cb_scope_add(cb_tensor *handle) {
    Tensor *x = tensor_in(handle, "scope_add");
    if (!x || refuse_owned(x, "scope_add")) return NULL;
    thread_now();
    tensor_scope_add(x);
    return handle;
}

void cb_free(cb_tensor *handle) {
    Tensor *x = tensor_in(handle, "free");
    if (x && !refuse_owned(x, "free")) tensor_destroy(x);
}

cb_memory_stats cb_memory(void) {
    cb_memory_stats stats = storage_stats();
    stats.live_tensors = thread_live_tensors();
    return stats;
}
