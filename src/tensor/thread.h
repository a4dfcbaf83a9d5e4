/* The thread's state of the tensor layer: its scopes, its tracer, its free slots.
 *
 * A thread that makes its first tensor is registered (thread_start); when it ends, its open scopes
 * are closed and its slots are given back. Only this folder and
 * the door (eager/apply.c, autocast.c) include this header. */
#ifndef CARBIDE_TENSOR_THREAD_H
#define CARBIDE_TENSOR_THREAD_H

#include "base/near.h"
#include "base/poison.h"
#include "tensor/frame.h"

#include <string.h>

enum { AUTOCAST_DEPTH = 32 };
#define AUTOCAST_OFF CB_BOOL /* 0, in which nobody computes */

typedef struct CachedCast CachedCast; /* a parameter and what it was converted to */

typedef struct AutocastState {
    cb_dtype lower;                 /* dtype to compute in */
    cb_dtype outer[AUTOCAST_DEPTH]; /* lower as it was before each open scope */
    int depth, base; /* scopes; below base they belong to a caller of this compiled function */
    CachedCast *cached;
    int cached_count, cached_capacity;
} AutocastState;

/* Where the last tensors that died were made and freed: site_pack. Other threads read it. */
typedef struct Death {
    _Atomic uint64_t handle, made, freed;
} Death;
enum { LAST_DEATHS = 4096 };

/* Slots that the thread keeps for a trace that it replays, one for each of its values: the next
 * call finds the shell as the last one left it, with its dtype, sizes, strides and number, and
 * writes little more than where it was made. While the call replays, a seat whose shell lives keeps
 * it; it becomes empty when the shell outlives that, and what fills it next is written as a whole.
 * seats.c
 *
 * A shell that a seat gives to the function's own scope is a resident: it is in no list, and the
 * values of the call say which there are when that scope ends. Whatever else becomes of the call
 * first puts its residents into the scope (residents_join). */
typedef struct Seats {
    uint64_t trace; /* Trace.serial, 0: of none */
    Tensor **slot;  /* by value; free ones, unless a call has taken the seats */
    int count;
    int refused; /* calls of other traces since */
    bool taken;  /* by a call */
} Seats;

/* Room for what a call knows of its values, by number: the tensors, all NULL in a list that is
 * nobody's, and their handles. One block of memory: a thread keeps the largest that a call has
 * given back, of up to 16,384 values, until it ends. */
typedef struct ValueList {
    Tensor **value; /* NULL: there is none */
    uintptr_t *handle;
    int capacity;
} ValueList;
#define NO_HANDLE ((uintptr_t)1) /* no tensor's, and not NULL's */

typedef struct ThreadState ThreadState;
struct ThreadState {
    Scope *scope; /* innermost; NULL until thread_start */
    Tracer *tracer;
    Frame *frame; /* innermost; NULL: the library has called no code of the user's */
    Frame *spare_frames;
    uintptr_t stack; /* where it begins, from below; 0: nobody has asked */
    Scope *spare_scopes; /* chained by parent */
    Tensor *slots; /* free ones, chained by next */
    int slot_count;
    Tensor *waiting, *last_waiting; /* free ones that are not to be used yet (handle.c) */
    int waiting_count;
    Death *deaths;       /* a ring of LAST_DEATHS; NULL: no memory for it */
    Death *oldest_death; /* of deaths */
    Seats *seats;        /* a table; NULL: none yet */
    ValueList values;    /* that no call has */
    AutocastState autocast;
    const char *writes;          /* what the user calls the write in place; NULL: assign */
    const char *asks;            /* the outermost call that asks for a value; NULL: none does */
    int disabled;                /* scopes of cb_disable_open */
    int no_grad;                 /* scopes of cb_no_grad_open */
    struct Checkpoint *checkpoint; /* whose function runs; NULL: none */
    int traced_checkpoint;         /* whose function is traced; 0: none */
    struct RandomState *random;  /* what draws are taken from; NULL: the process's (random.c) */
    int64_t drawn;               /* how many draws it has taken, ever */
    int unopened;                /* scopes that cb_scope_open had no memory for */
    uint64_t serial, serial_end; /* numbers that this thread may hand out */
    _Atomic int64_t live;        /* tensors made minus tensors freed by this thread */
    Scope outermost;
    ThreadState *previous, *next; /* all registered threads */
};

extern _Thread_local ThreadState thread_state NEAR __attribute__((visibility("hidden")));

void thread_start(void);
/* frame.c: for thread_now, where the innermost frame does not live; the end of a thread, and its
 * spare memory. */
void frames_recover(ThreadState *t, const char *caller);
void frames_begin_child(ThreadState *t); /* a forked child has this thread alone */
void frames_end(ThreadState *t);
void frames_cleanup(ThreadState *t);
void scope_close_innermost(ThreadState *t);
void scopes_cleanup(ThreadState *t); /* spare memory of a thread that ends */

/* What the opener called is deeper on the stack; what is deeper may also be called by somebody who
 * came after it, and has the mark's place for something else. */
__attribute__((no_sanitize("address", "thread"))) static inline bool
frame_lives(const Frame *frame, const char *caller) {
    return caller < (const char *)frame->mark && *frame->mark == frame->serial;
}

/* Where the stack ends: without a frame pointer, which every op would pay for. */
static inline const char *stack_here(void) {
#if defined(__x86_64__)
    const char *here;
    __asm__ volatile("mov %%rsp, %0" : "=r"(here));
    return here;
#elif defined(__aarch64__)
    const char *here;
    __asm__ volatile("mov %0, sp" : "=r"(here));
    return here;
#else
    return __builtin_frame_address(0);
#endif
}

/* For a call of the library: the thread is registered, and what a jump left behind is put back. */
static inline ThreadState *thread_now(void) {
    ThreadState *t = &thread_state;
    const char *here;
    if (!t->scope) thread_start();
    if (t->frame && !frame_lives(t->frame, here = stack_here())) frames_recover(t, here);
    return t;
}
Tensor *tensor_alloc(void); /* in the current scope, only the scope and trace fields set; or NULL */
int64_t thread_live_tensors(void); /* of all threads */
typedef bool DeathFinder(const Death *deaths, uintptr_t handle, uint64_t *made, uint64_t *freed);
/* Asks all threads' lists until one of them has it. */
bool threads_find(DeathFinder *find, uintptr_t handle, uint64_t *made, uint64_t *freed);
/* Those of threads that ended. */
void threads_forget_ended(void);
/* The file of the site where a thread's end frees what it left. */
extern const char thread_end[];

/* What a tensor dies by: cb_free and the like, the end of its scope, or of that of a function. */
typedef enum FreedBy { FREED_ALONE, FREED_BY_SCOPE, FREED_BY_CALL, FREED_WAYS } FreedBy;

/* handle.c: slots for tensors. Some free ones for the thread, false: no memory; a slot whose
 * tensor has died, those of a list of them, checks: with the option check; all slots of a thread
 * that ends; everything, for cb_cleanup. */
bool slots_refill(ThreadState *t);
void slot_free(ThreadState *t, Tensor *x, bool checks);
void slots_free(ThreadState *t, Tensor *first, FreedBy by, bool checks);
void slots_end(ThreadState *t);
void slots_cleanup(void);
static inline Tensor *slot_take(ThreadState *t) { /* there is one */
    Tensor *x = t->slots;
    t->slots = x->next;
    t->slot_count--;
    memory_unpoison(x, SLOT_BYTES);
    x->made = site_pack();
    return x;
}

#define SLOT_IS_FREE ((cb_dtype)INT8_MIN) /* no dtype; those on seats have that of their values */

enum { SEATS_BITS = 3, MOST_SEATS = 4096 }; /* of the table by trace; slots of a thread */
/* seats.c: those of the trace for a call, NULL: none; the call is over; all that no call has go
 * back to the free slots, false: there were none; all, as the thread ends. */
Seats *seats_take(ThreadState *t, uint64_t trace, int count);
void seats_leave(Seats *seats, const Tracer *tracer);
bool seats_give_back(ThreadState *t);
void seats_end(ThreadState *t);
/* A list of at least so many, value NULL: no memory; it is nobody's any more. */
ValueList values_take(ThreadState *t, int capacity);
void values_give(ThreadState *t, ValueList list);
/* The first of the tracer's values from v on that is not NULL, or count: most are. Not for
 * inputs. */
int values_next(const Tracer *tracer, int v, int count);
/* handle.c: x, a shell of the tracer's that its seat waits for, has died. Of those of a scope from
 * x on, as many as there are before another tensor: which one that is. */
void seat_free(ThreadState *t, Tensor *x);
/* A double of x, kept, for the value that its seat is of, and its death: also of one from
 * elsewhere, which sits there from then on. NULL: the seat is empty. */
Tensor *seat_double(ThreadState *t, const Tracer *tracer, int value, const Tensor *x);
void seat_end_double(ThreadState *t, Tracer *tracer, int value);
Tensor *seats_free(ThreadState *t, Tensor *x, FreedBy by, int *count);
/* The residents of the tracer die, with their scope; or they are tensors of it like others. */
void residents_die(ThreadState *t);
void residents_join(Tracer *tracer);
static inline bool has_seat(const Tracer *tracer, const Tensor *x) {
    return tracer && tracer->seats && x->trace == tracer->serial && !x->storage;
}

/* What a resident of the tracer has for a scope: no address of one. */
static inline Scope *residence(const Tracer *tracer) { return (Scope *)((uintptr_t)tracer | 1); }
static inline bool is_linked(const Tensor *x) { return x->scope && !((uintptr_t)x->scope & 1); }
static inline bool is_resident(const Tensor *x, const Tracer *tracer) {
    return x->scope == residence(tracer);
}

static inline void count_live(ThreadState *t, int change) {
    int64_t live = atomic_load_explicit(&t->live, memory_order_relaxed);
    atomic_store_explicit(&t->live, live + change, memory_order_relaxed);
}

static inline void link_tensor(Scope *scope, Tensor *x) {
    x->scope = scope;
    x->previous = NULL;
    x->next = scope->first;
    if (x->next) x->next->previous = x;
    scope->first = x;
}

/* slot is a free one. */
static inline void slot_begin(ThreadState *t, Tensor *x, int number, uint64_t trace) {
    x->kept = false;
    x->owners = 0;
    x->is_gradient = false;
    x->history = x->paused = NULL;
    x->dynamic = 0;
    x->number = number;
    x->value = NULL;
    x->trace = trace;
    link_tensor(t->scope, x);
    count_live(t, 1);
}

/* Most have few dimensions: a copy of so many is a few wide moves. */
static inline void copy_dims(int64_t *to, const int64_t *from, int rank) {
    enum { FEW = 4 };
    memcpy(to, from, sizeof *to * FEW);
    if (rank > FEW) memcpy(to + FEW, from + FEW, sizeof *to * (CB_MAX_RANK - FEW));
}

/* The shell is on its seat, as it was left. */
static inline void seat_begin(ThreadState *t, Tensor *x, uint64_t traits, const Tracer *tracer) {
    x->made = site_pack();
    x->traits = traits;
    x->trace = tracer->serial;
    if (t->scope == tracer->home)
        x->scope = residence(tracer);
    else
        link_tensor(t->scope, x);
    count_live(t, 1);
}

/* autocast.c: what a parameter was converted to in the scopes that are open, or NULL; keeps one;
 * lets all go. */
Tensor *autocast_known(const Tensor *x, cb_dtype dtype);
void autocast_remember(Tensor *x, Tensor *result);
void autocast_forget(AutocastState *state);

cb_memory_stats storage_stats(void); /* all but live_tensors */

#endif
