/* Threads of the tensor layer: registered at their first tensor, cleaned up when they end.
 *
 * Invariants: a registered thread has scope != NULL; the number of live tensors is what the ended
 * threads left over plus the sum of the registered ones. After fork() the child knows one thread,
 * its own. */
#include "tensor/thread.h"

#include "base/lock.h"
#include "base/memory.h"
#include <pthread.h>
#include <string.h>

enum { SERIAL_BLOCK = 1024 };

_Thread_local ThreadState thread_state;

/* The process's registry: a documented singleton. */
static struct {
    pthread_once_t once;
    pthread_key_t key; /* its destructor ends a thread */
    ThreadState *first;
    int64_t ended_live;      /* left over by threads that ended */
    int64_t others_live;     /* between before_fork and begin_child */
    Death *ended_deaths;     /* a ring of LAST_DEATHS: of threads that ended; NULL: none did */
    Death *oldest_ended;     /* of ended_deaths */
    _Atomic uint64_t serial; /* next block of serials */
} registry = {.once = PTHREAD_ONCE_INIT, .serial = 1};

static int64_t load_live(const ThreadState *t) {
    return atomic_load_explicit(&t->live, memory_order_relaxed);
}

static void register_thread(ThreadState *t) {
    lock_take(LOCK_thread);
    t->previous = NULL;
    t->next = registry.first;
    if (t->next) t->next->previous = t;
    registry.first = t;
    lock_give(LOCK_thread);
}

/* The deaths of a thread that ends, behind those of the ones before it: its handles may be used
 * by others still. */
static void inherit_deaths(ThreadState *t) {
    if (!t->deaths) return;
    if (!registry.ended_deaths) {
        registry.ended_deaths = t->deaths;
        registry.oldest_ended = t->oldest_death;
        t->deaths = t->oldest_death = NULL;
        return;
    }
    ptrdiff_t first = t->oldest_death - t->deaths;
    for (int i = 0; i < LAST_DEATHS; i++) {
        const Death *from = &t->deaths[(first + i) % LAST_DEATHS];
        if (atomic_load_explicit(&from->handle, memory_order_relaxed) == 0) continue;
        memcpy((void *)registry.oldest_ended, (const void *)from, sizeof *from);
        if (++registry.oldest_ended == registry.ended_deaths + LAST_DEATHS)
            registry.oldest_ended = registry.ended_deaths;
    }
}

void threads_forget_ended(void) {
    lock_take(LOCK_thread);
    memory_free(registry.ended_deaths);
    registry.ended_deaths = registry.oldest_ended = NULL;
    lock_give(LOCK_thread);
}

static void unregister_thread(ThreadState *t) {
    lock_take(LOCK_thread);
    inherit_deaths(t);
    *(t->previous ? &t->previous->next : &registry.first) = t->next;
    if (t->next) t->next->previous = t->previous;
    registry.ended_live += load_live(t);
    atomic_store_explicit(&t->live, 0, memory_order_relaxed);
    lock_give(LOCK_thread);
}

const char thread_end[] = "the end of its thread";

/* Frees what the thread owns: tensors of its open scopes, scopes; its slots become everybody's. */
static void end_thread(void *state) {
    ThreadState *t = state;
    site_set((Site){.file = thread_end});
    frames_end(t);
    t->tracer = NULL;
    autocast_forget(&t->autocast);
    t->autocast = (AutocastState){0};
    t->unopened = 0;
    while (t->scope != &t->outermost) scope_close_innermost(t);
    while (t->outermost.first) tensor_destroy(t->outermost.first);
    t->scope = NULL;
    frames_cleanup(t);
    scopes_cleanup(t);
    unregister_thread(t);
    seats_end(t);
    slots_end(t);
}

static void before_fork(void) {
    registry.others_live = 0;
    for (ThreadState *t = registry.first; t; t = t->next)
        if (t != &thread_state) registry.others_live += load_live(t);
}

/* The other threads do not exist in the child: their tensors stay counted, their states go. */
static void begin_child(void) {
    registry.ended_live += registry.others_live;
    bool registered = thread_state.scope;
    registry.first = registered ? &thread_state : NULL;
    thread_state.previous = thread_state.next = NULL;
    frames_begin_child(&thread_state);
}

static void start_process(void) {
    check(!pthread_key_create(&registry.key, end_thread), "no thread-specific key is left");
    lock_watch_fork(before_fork, begin_child);
}

void thread_start(void) {
    ThreadState *t = &thread_state;
    pthread_once(&registry.once, start_process);
    t->scope = &t->outermost;
    t->deaths = t->oldest_death = memory_zalloc(LAST_DEATHS * sizeof *t->deaths);
    register_thread(t);
    /* Without memory for the key's slot the thread's leftovers stay until the process ends. */
    (void)pthread_setspecific(registry.key, t);
}

int64_t thread_live_tensors(void) {
    lock_take(LOCK_thread);
    int64_t live = registry.ended_live;
    for (ThreadState *t = registry.first; t; t = t->next) live += load_live(t);
    lock_give(LOCK_thread);
    return live;
}

bool threads_find(DeathFinder *find, uintptr_t handle, uint64_t *made, uint64_t *freed) {
    lock_take(LOCK_thread);
    bool found = find(registry.ended_deaths, handle, made, freed);
    for (ThreadState *t = registry.first; t && !found; t = t->next)
        found = find(t->deaths, handle, made, freed);
    lock_give(LOCK_thread);
    return found;
}

uint64_t serial_next(void) {
    ThreadState *t = &thread_state;
    if (t->serial == t->serial_end) {
        t->serial = atomic_fetch_add_explicit(&registry.serial, SERIAL_BLOCK, memory_order_relaxed);
        t->serial_end = t->serial + SERIAL_BLOCK;
    }
    return t->serial++;
}

uint64_t serial_above(void) {
    thread_state.serial = thread_state.serial_end;
    return serial_next();
}

Tracer *tracer_current(void) {
    ThreadState *t = &thread_state;
    if (t->frame) thread_now();
    return t->tracer;
}

Tracer *tracer_set(Tracer *tracer) {
    Tracer *before = thread_state.tracer;
    thread_state.tracer = tracer;
    return before;
}

bool tracer_may_change(const char *what, AmbientChange change) {
    Tracer *tracer = thread_state.tracer;
    return !tracer || !tracer->change_ambient || tracer->change_ambient(tracer, what, change);
}

static void set_disabled(ThreadState *t, int disabled) {
    t->disabled = disabled;
    if (t->tracer) t->tracer->disabled = disabled;
}

void cb_disable_open(void) {
    ThreadState *t = thread_now();
    if (t->tracer && t->tracer->pause && !t->disabled) t->tracer->pause(t->tracer);
    set_disabled(t, t->disabled + 1);
}

void cb_disable_close(void) {
    ThreadState *t = thread_now();
    if (t->disabled)
        set_disabled(t, t->disabled - 1);
    else
        fail(CB_ERR_ARGUMENT, "disable_close: none is open");
}

void cb_no_grad_open(void) { thread_now()->no_grad++; }

void cb_no_grad_close(void) {
    ThreadState *t = thread_now();
    if (t->no_grad)
        t->no_grad--;
    else
        fail(CB_ERR_ARGUMENT, "no_grad_close: none is open");
}

bool grad_mode(void) { return thread_state.no_grad == 0; }

int no_grad_set(int scopes) {
    int before = thread_state.no_grad;
    thread_state.no_grad = scopes;
    return before;
}

struct Checkpoint *checkpoint_current(void) {
    return thread_state.checkpoint;
}

struct Checkpoint *checkpoint_set(struct Checkpoint *checkpoint) {
    struct Checkpoint *before = thread_state.checkpoint;
    thread_state.checkpoint = checkpoint;
    return before;
}

int checkpoint_traced(void) { return thread_state.traced_checkpoint; }

void checkpoint_set_traced(int number) { thread_state.traced_checkpoint = number; }

bool tracer_disabled(void) { return thread_state.disabled > 0; }

bool tensor_may_cleanup(const char *what) {
    tracer_current(); /* what was left by a jump is closed */
    if (!thread_state.frame) return true;
    fail(CB_ERR_ARGUMENT, "%s: a compiled function or a forward runs", what);
    return false;
}

void tensor_cleanup(void) {
    if (thread_state.scope) {
        (void)pthread_setspecific(registry.key, NULL);
        end_thread(&thread_state);
    }
    slots_cleanup();
    storage_trim();
}
