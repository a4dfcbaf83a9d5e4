/* Entries that leave: of those that no compiler ran for, since there was code of other sizes, the
 * last MOST_SIZES that were used stay. A size that comes back is recorded again.
 *
 * No lock is on the way of a call, so another thread may stand on an entry that has left the list.
 * Function.inside counts who may: an entry is freed when it has left, and nobody has been inside
 * since. Whoever comes later cannot find it. A call that the user's code leaves by a jump stays
 * inside until its frame is found abandoned (call.c).
 *
 * Entries point at each other besides: `then` at one that resumes, `wider` at one that has numbers
 * as arguments or goes on behind an event. Nobody clears these pointers, so none of what they may
 * point at leaves: that is what entry_may_leave says. After cb_reset all of them leave together.
 *
 *     function_enter(f);   find an entry, run it   function_leave(f);     frees what has left */
#include "capture/function.h"

enum { MOST_SIZES = 32 }; /* a sweep of 20 batch sizes comes back to all of them */

bool entry_may_leave(const Entry *entry) {
    return !entry->compiled && !entry->resumes && !entry->trace->goes_on &&
           !entry->trace->argument_count && !atomic_load(&entry->wider);
}

/* Its own next still leads on. */
static void leave_list(Function *function, _Atomic(Entry *) *at) {
    Entry *left = atomic_load(at);
    atomic_store(at, atomic_load(&left->next));
    left->left = atomic_load(&function->left);
    atomic_store(&function->left, left);
}

void function_retire(Function *function, const Entry *newest) {
    _Atomic(Entry *) *oldest = NULL;
    int64_t used = INT64_MAX;
    int count = 0;
    for (_Atomic(Entry *) *at = &function->first; atomic_load(at); at = &atomic_load(at)->next) {
        const Entry *e = atomic_load(at);
        if (!entry_may_leave(e)) continue;
        count++;
        if (e == newest || atomic_load(&e->used) >= used) continue;
        used = atomic_load(&e->used);
        oldest = at;
    }
    if (count <= MOST_SIZES || !oldest) return;
    leave_list(function, oldest);
}

void function_retire_all(Function *function) {
    while (atomic_load(&function->first)) leave_list(function, &function->first);
}

void function_enter(Function *function) { atomic_fetch_add(&function->inside, 1); }

void entries_free(Entry *left) {
    for (Entry *next; left; left = next) {
        next = left->left;
        entry_free(left);
    }
}

static void give_back(Function *function, Entry *left) {
    Entry *last = left;
    while (last->left) last = last->left;
    lock_take(function_lock(function));
    last->left = atomic_load(&function->left);
    atomic_store(&function->left, left);
    lock_give(function_lock(function));
}

void function_leave(Function *function) {
    Entry *left = NULL;
    if (atomic_load(&function->left)) {
        lock_take(function_lock(function));
        left = atomic_exchange(&function->left, NULL);
        lock_give(function_lock(function));
    }
    bool last = atomic_fetch_sub(&function->inside, 1) == 1;
    if (last)
        entries_free(left);
    else if (left)
        give_back(function, left);
}
