/* Entries that leave, and those that count for the limit and stay.
 *
 * An entry counts that has C files of its own, whoever compiled them, or code of a backend of the
 * user's. Where no compiler runs (backend vm, no compiler, or, with async, none so far) sizes are
 * not what counts, nor are numbers that are to be arguments: one that is an entry which is known
 * but for these does not. Nobody stops counting; whose compiler comes later may begin to.
 *
 * Those that do not count stay while they hold no more memory than the option entries_mb says,
 * and in any case the MOST_SIZES of the same ops that were used last, up to MOST_ENTRIES of all.
 * Beyond that the one leaves that was not used for longest. What comes back is recorded again.
 *
 * No lock is on the way of a call, so another thread may stand on an entry that has left the list.
 * Function.inside counts who may: an entry is freed when it has left, and nobody has been inside
 * since. Whoever comes later cannot find it. A call that the user's code leaves by a jump stays
 * inside until its frame is found abandoned (call.c).
 *
 * The function points at the one that its last call began with (`last`), and entries at each other:
 * `then` at one that resumes, `after` at one that the next call began with, `wider` at one that has
 * numbers as arguments or lets more values cross. Nothing of the list points at one that has left
 * it: that clears the first three, which are guesses, and goes on with its own `wider` in place of
 * the fourth, under the lock.
 * Whoever makes a guess has no lock, so it looks afterwards whether the entry has gone meanwhile:
 * either it sees that, or who leaves sees the pointer. What has left may point anywhere, since only
 * those who have been inside since then stand on it.
 *
 *     function_enter(f);   find an entry, run it   function_leave(f);     frees what has left */
#include "capture/find.h"
#include "capture/function.h"

enum { MOST_SIZES = 8, MOST_ENTRIES = 256 };

/* ---- counting -------------------------------------------------------------------------------- */

static bool resembles(const Entry *a, const Entry *b) {
    return a->resumes == b->resumes && trace_resembles(a->trace, b->trace);
}

/* It is one of the list before `end` (NULL: all of it) over other sizes. */
static bool is_resized(const Function *function, const Entry *entry, const Entry *end) {
    bool found = false;
    if (function->options.dynamic == DYNAMIC_OFF) return false;
    for (Entry *e = atomic_load(&function->first); e && e != end && !found;
         e = atomic_load(&e->next))
        found = e != entry && e->resumes == entry->resumes &&
                ambient_equal(e->ambient, entry->ambient) &&
                trace_resized(e->trace, entry->trace) && numbers_may_differ(e->trace, entry->trace);
    return found;
}

static void choose_counts(const Function *function, Entry *entry) {
    bool compiled;
    bool has_code = entry_has_code(entry, &compiled);
    if (compiled || (!has_code && !is_resized(function, entry, NULL)))
        atomic_store(&entry->counts, true);
}

/* Where sizes vary, each kind of size (1, few, many to be shared out) may have code of its own, and
 * several sizes vary at once: that many kinds are no sign of a function that never settles. */
enum { KINDS_OF_SIZES = 8 };

int function_alternatives(const Function *function, bool resume, bool resized) {
    int kinds = 0, sizes = 0;
    for (Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next)) {
        if (e->resumes != resume || entry_widest(e) != e || entry_may_leave(e)) continue;
        if (is_resized(function, e, e))
            sizes++;
        else
            kinds++;
    }
    return sizes / KINDS_OF_SIZES + (resized ? 0 : kinds);
}

/* The last one before `end` that has inputs as these, but for sizes. */
static Entry *find_alike(const Function *function, const Entry *end, Tensor *const *input,
                         int input_count) {
    Entry *found = NULL;
    for (Entry *e = atomic_load(&function->first); e && e != end; e = atomic_load(&e->next)) {
        bool alike = !e->resumes && e->input_count == input_count;
        for (int i = 0; i < input_count && alike; i++)
            alike = guard_holds_resized(&e->guard[i], input[i], grad_mode());
        if (alike) found = e;
    }
    return found;
}

Entry *function_find_resized(const Function *function, Tensor *const *input, int input_count) {
    Entry *found = NULL;
    if (function->options.dynamic == DYNAMIC_OFF) return NULL;
    do found = find_alike(function, found, input, input_count);
    while (found && !is_resized(function, found, NULL)); /* mostly the first that is asked is */
    return found;
}

/* ---- pointers -------------------------------------------------------------------------------- */

void entry_guess(_Atomic(Entry *) *guess, Entry *entry) {
    atomic_store(guess, entry);
    if (atomic_load(&entry->gone)) atomic_compare_exchange_strong(guess, &entry, NULL);
}

void entry_begins(Entry *entry) {
    Function *function = entry->function;
    Entry *last = atomic_load_explicit(&function->last, memory_order_acquire);
    if (last && atomic_load_explicit(&last->after, memory_order_relaxed) != entry)
        entry_guess(&last->after, entry);
    if (last != entry) entry_guess(&function->last, entry);
}

void entry_set_wider(Entry *entry, Entry *wider) {
    if (!atomic_load(&wider->gone)) atomic_store(&entry->wider, wider);
}

static void forget_entry(Function *function, Entry *gone) {
    Entry *last = gone;
    atomic_compare_exchange_strong(&function->last, &last, NULL);
    for (Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next)) {
        Entry *then = gone, *after = gone;
        atomic_compare_exchange_strong(&e->then, &then, NULL);
        atomic_compare_exchange_strong(&e->after, &after, NULL);
        if (atomic_load(&e->wider) == gone) atomic_store(&e->wider, atomic_load(&gone->wider));
    }
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* Its own next still leads on. */
static void leave_list(Function *function, _Atomic(Entry *) *at) {
    Entry *left = atomic_load(at);
    atomic_store(&left->gone, true);
    atomic_store(at, atomic_load(&left->next));
    find_remove(function, left);
    forget_entry(function, left);
    left->left = atomic_load(&function->left);
    atomic_store(&function->left, left);
}

/* Without the weights, which belong to no entry, and what an allocator keeps beside. */
static int64_t entry_bytes(const Entry *entry) {
    return (int64_t)(arena_bytes(entry->trace->arena) + arena_bytes(entry->graph->arena));
}

typedef struct Leavers { /* of some entries, those that may leave */
    int count;
    int64_t bytes;
    _Atomic(Entry *) *oldest; /* who points at the one that was not used for longest */
} Leavers;

static void add_leaver(Leavers *leavers, _Atomic(Entry *) *at, const Entry *newest) {
    leavers->count++;
    leavers->bytes += entry_bytes(atomic_load(at));
    if (atomic_load(at) == newest) return;
    if (!leavers->oldest ||
        atomic_load(&atomic_load(at)->used) < atomic_load(&atomic_load(leavers->oldest)->used))
        leavers->oldest = at;
}

/* Some must leave: more than count of them hold more than they may. */
static bool too_many(const Leavers *leavers, int count) {
    return leavers->count > count &&
           leavers->bytes > (int64_t)option_int(OPTION_entries_mb) * (1 << 20);
}

void function_retire(Function *function, Entry *newest) {
    Leavers all = {0, 0, NULL}, alike = {0, 0, NULL};
    choose_counts(function, newest);
    for (_Atomic(Entry *) *at = &function->first; atomic_load(at); at = &atomic_load(at)->next) {
        const Entry *e = atomic_load(at);
        if (!entry_may_leave(e)) continue;
        add_leaver(&all, at, newest);
        if (resembles(e, newest)) add_leaver(&alike, at, newest);
    }
    if (too_many(&alike, MOST_SIZES))
        leave_list(function, alike.oldest);
    else if (too_many(&all, MOST_ENTRIES))
        leave_list(function, all.oldest);
}

void function_retire_all(Function *function) {
    while (atomic_load(&function->first)) leave_list(function, &function->first);
}

/* ---- who is inside --------------------------------------------------------------------------- */

void function_enter(Function *function) { inside_enter(&function->inside); }

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
    if (inside_leave(&function->inside))
        entries_free(left);
    else if (left)
        give_back(function, left);
}
