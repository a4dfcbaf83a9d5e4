/* Hooks: the user's functions that see the gradient of a leaf or a result on its way back.
 *
 *     cb_register_hook(w, halve, NULL)
 *     cb_backward(loss, NULL)           all that comes to w is added up, halve is called with it,
 *                                       and what it gives is added to w's gradient
 *
 * Those of a result of several are with what computed them: there may be more nodes of one than
 * that which the tensor has (tape_walk.c).
 *
 * In: a gradient that is complete. Out: what goes on in its place. A graph knows no code of the
 * user's, so to one a leaf with hooks is what ops outside computed: the tape goes on from there. */
#include "base/memory.h"
#include "eager/tape_node.h"
#include "tensor/tracer.h"

#include <limits.h>

struct TapeHook {
    TapeHook *next; /* the one that came later */
    cb_gradient_hook *call;
    void *user;
    int number;
    int part; /* of several results */
};

void hooks_move(TapeNode *whole, int part, TapeNode *to) {
    TapeHook **last = &to->hook;
    while (*last) last = &(*last)->next;
    for (TapeHook **place = &whole->hook; *place;) {
        TapeHook *hook = *place;
        if (hook->part != part) {
            place = &hook->next;
            continue;
        }
        *place = hook->next;
        *hook = (TapeHook){NULL, hook->call, hook->user, hook->number, to->part};
        *last = hook;
        last = &hook->next;
    }
    to->hooks = whole->hooks; /* numbers are given once */
}

void hooks_free(TapeNode *node) {
    while (node->hook) {
        TapeHook *next = node->hook->next;
        memory_free(node->hook);
        node->hook = next;
    }
}

static TapeNode *holder_of(TapeNode *node) {
    return node->kind == TAPE_PART ? node->producer[0] : node;
}

/* The first that came behind that number: hooks may have been removed, or moved, meanwhile. */
static const TapeHook *find_next(TapeNode *node, int number) {
    node = tape_meant(node);
    const TapeHook *hook = holder_of(node)->hook;
    while (hook && (hook->part != node->part || hook->number <= number)) hook = hook->next;
    return hook;
}

bool hooks_wait(TapeNode *node) { return find_next(node, 0); }

bool hooks_before(const TapeNode *whole, int part) {
    bool before = false;
    for (const TapeHook *hook = whole->hook; hook && !before; hook = hook->next)
        before = hook->part != part && whole->steps->is_behind(whole->state, part, hook->part);
    return before;
}

bool tape_is_hooked(const Tensor *x) { return x->history && hooks_wait(tape_node(x)); }

/* x has the history that it has in eager, and ops behind follow that: what was recorded of it so
 * far is computed. NULL with an error. */
static TapeNode *node_for_hooks(Tensor *x) {
    Tracer *tracer = tracer_current();
    if (tracer && tracer->take_hook && !tracer->take_hook(tracer, x)) return NULL;
    /* nobody goes back over a promise that is still one */
    if (x->history) return tape_meant(tape_node(x));
    tape_refuses_untracked("register_hook");
    return NULL;
}

int cb_register_hook(cb_tensor *handle, cb_gradient_hook *call, void *user) {
    Tensor *x = tensor_in(handle, "register_hook");
    if (!call) fail(CB_ERR_ARGUMENT, "register_hook: the hook is NULL");
    TapeNode *node = x && call ? node_for_hooks(x) : NULL;
    int number;
    if (node && checkpoint_is_again()) /* it is there since the first run */
        return checkpoint_told(&number) && number ? number : INT_MAX; /* which none has */
    TapeNode *holder = node ? holder_of(node) : NULL;
    if (!node || !checkpoint_tell(holder->hooks + 1)) return 0;
    TapeHook *hook = memory_zalloc(sizeof *hook);
    if (!hook) {
        fail_memory(sizeof *hook);
        return 0;
    }
    TapeHook **last = &holder->hook;
    while (*last) last = &(*last)->next;
    *hook = (TapeHook){NULL, call, user, ++holder->hooks, node->part};
    *last = hook;
    return hook->number;
}

void cb_remove_hook(cb_tensor *handle, int number) {
    Tensor *x = tensor_in(handle, "remove_hook");
    bool may = x && x->history && !checkpoint_is_again();
    TapeNode *node = may ? tape_meant(tape_node(x)) : NULL;
    TapeHook **place = node ? &holder_of(node)->hook : NULL;
    while (place && *place && ((*place)->number != number || (*place)->part != node->part))
        place = &(*place)->next;
    if (!place || !*place) return;
    TapeHook *hook = *place;
    *place = hook->next;
    memory_free(hook);
}

/* What it gives, or g: as another tensor of the caller's scope, since the hook may keep what it was
 * given, and gives. NULL with an error. */
static Tensor *call_hook(const TapeHook *hook, Tensor *g) {
    unsigned errors = error_count();
    cb_scope_open();
    Tensor *y = tensor_in(hook->call(tensor_out(tensor_double(g)), hook->user), "a hook");
    Meta meta = tensor_meta(g), given = tensor_meta(y ? y : g);
    bool fits = error_count() == errors && tape_fits("a hook", &meta, &given);
    Tensor *now = fits ? tensor_double(y ? y : g) : NULL;
    if (now) cb_keep(now);
    cb_scope_close();
    return now ? cb_scope_add(now) : NULL;
}

Tensor *hooks_call(TapeNode *node, Tensor *g, bool graph) {
    Tracer *tracer = tracer_current();
    if (tracer && tracer->meet_code) tracer->meet_code(tracer);
    tracer_set(NULL);
    int scopes = graph ? 0 : no_grad_set(1), number = 0;
    for (const TapeHook *hook; g && (hook = find_next(node, number));) {
        number = hook->number;
        g = call_hook(hook, g);
    }
    if (!graph) no_grad_set(scopes);
    tracer_set(tracer);
    return g;
}
