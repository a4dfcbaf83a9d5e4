/* Handles: what users hold of tensors, and how a dead one is told from a live one.
 *
 * Tensors lie in slots of 256 bytes that are used for nothing else, so the word that opens a slot
 * can always be read: it is the handle of the tensor that lives there. A handle is the slot's
 * address with a number in its lowest 8 and highest 16 bits. When a tensor dies its slot gets the
 * handle of the next one, with the number that follows; the handle that was given out names nothing
 * from then on, however often the slot is used again. After 16,776,704 tensors a slot has had every
 * number, and is not used any more: no handle is given out twice.
 *
 *     slot 0x5581_9c40_2300 -> handles 0x0001_5581_9c40_2300, 0x0001_5581_9c40_2301, ...
 *
 * Where a dead tensor was made and freed is known from its slot until that is used again, and from
 * its thread's list of the last deaths. With the option check, slots wait before they are used
 * again, and what lay there is overwritten; under AddressSanitizer it is poisoned, too. */
#include "tensor/thread.h"

#include "base/lock.h"
#include "base/memory.h"
#include "base/pages.h"
#include "base/poison.h"
#include <string.h>

enum {
    SLAB_SLOTS = 64,
    SPARE_SLOTS = 4096,      /* that a thread keeps to itself */
    WAITING_SLOTS = 1 << 14, /* with the option check: that wait in a thread */
    HEAD_BYTES = 64,         /* of a slot, which can be read when it is free */
    OVERWRITE = 0xA5
};

typedef struct Slab Slab;
struct Slab {
    Slab *next;
    int idle;            /* slots in the pool: counted by slots_cleanup */
    _Atomic int retired; /* slots that have had every number */
    bool paged;
    char *first; /* slot */
};
enum { SLAB_BYTES = sizeof(Slab) + (SLAB_SLOTS + 1) * SLOT_BYTES };

/* The process's free slots, of no thread, and its slabs: a documented singleton, under
 * LOCK_slot. */
static struct {
    Slab *slabs;
    Tensor *free;
    uintptr_t first_number; /* of new slots: highest bits */
} pool = {.first_number = HANDLE_FIRST};

SlotRange slot_ranges[16];

/* ---- slots ----------------------------------------------------------------------------------- */

/* A host may hand out addresses that use the highest bits; then the system's own are taken. */
static Slab *take_slab(void) {
    Slab *slab = memory_alloc(SLAB_BYTES);
    bool paged = slab && (uintptr_t)slab >> 48;
    if (paged) {
        memory_free(slab);
        slab = pages_alloc(SLAB_BYTES);
    }
    if (!slab) return NULL;
    uintptr_t first = ((uintptr_t)(slab + 1) + SLOT_BYTES - 1) / SLOT_BYTES * SLOT_BYTES;
    *slab = (Slab){.paged = paged, .first = (char *)first};
    return slab;
}

static void free_slab(Slab *slab) {
    memory_unpoison(slab->first, SLAB_SLOTS * SLOT_BYTES);
    if (slab->paged)
        pages_free(slab, SLAB_BYTES);
    else
        memory_free(slab);
}

static void give(Tensor *x) {
    x->next = pool.free;
    pool.free = x;
}

/* A slab that lies across two of them is in both. */
static void range_grow(SlotRange *range, uintptr_t first, uintptr_t end) {
    uintptr_t known = atomic_load_explicit(&range->end, memory_order_relaxed);
    if (!known || first < atomic_load_explicit(&range->first, memory_order_relaxed))
        atomic_store(&range->first, first);
    if (end > known) atomic_store(&range->end, end);
}

static void make_slots(Slab *slab) {
    uintptr_t first = (uintptr_t)slab->first, last = first + (SLAB_SLOTS - 1) * SLOT_BYTES;
    slab->next = pool.slabs;
    pool.slabs = slab;
    range_grow(&slot_ranges[first >> 44], first, last + 1);
    range_grow(&slot_ranges[last >> 44], first, last + 1);
    for (int i = SLAB_SLOTS - 1; i >= 0; i--) {
        Tensor *x = (Tensor *)(slab->first + i * SLOT_BYTES);
        atomic_store_explicit(&x->handle, (uintptr_t)x | pool.first_number, memory_order_relaxed);
        x->made = 0;
        x->slab = slab;
        memory_poison((char *)x + HEAD_BYTES, SLOT_BYTES - HEAD_BYTES);
        give(x);
    }
}

static void take_from_pool(ThreadState *t) {
    for (int i = 0; i < SLAB_SLOTS && pool.free; i++) {
        Tensor *x = pool.free;
        pool.free = x->next;
        x->next = t->slots;
        t->slots = x;
        t->slot_count++;
    }
}

bool slots_refill(ThreadState *t) {
    lock_take(LOCK_slot);
    take_from_pool(t);
    lock_give(LOCK_slot);
    Slab *slab = t->slots ? NULL : take_slab();
    if (!slab) return t->slots;
    lock_take(LOCK_slot);
    make_slots(slab);
    take_from_pool(t);
    lock_give(LOCK_slot);
    return true;
}

static __attribute__((noinline, cold)) void give_back(ThreadState *t, int kept) {
    lock_take(LOCK_slot);
    while (t->slot_count > kept) {
        Tensor *x = t->slots;
        t->slots = x->next;
        t->slot_count--;
        give(x);
    }
    lock_give(LOCK_slot);
}

void slots_end(ThreadState *t) {
    while (t->waiting) {
        Tensor *x = t->waiting;
        t->waiting = x->next;
        x->next = t->slots;
        t->slots = x;
        t->slot_count++;
    }
    t->waiting_count = 0;
    give_back(t, 0);
    memory_free(t->deaths);
    t->deaths = NULL;
}

/* Slabs without a tensor go back to the heap. What was freed before is no more recognised: that
 * memory is somebody else's now; but no new handle is like an old one. */
void slots_cleanup(void) {
    threads_forget_ended();
    Slab *empty = NULL;
    uintptr_t highest = 0;
    lock_take(LOCK_slot);
    for (Slab *slab = pool.slabs; slab; slab = slab->next) {
        memory_unpoison(slab->first, SLAB_SLOTS * SLOT_BYTES);
        slab->idle = atomic_load_explicit(&slab->retired, memory_order_relaxed);
    }
    for (Tensor *x = pool.free; x; x = x->next) x->slab->idle++;
    Tensor *left = NULL;
    for (Tensor *x = pool.free, *next; x; x = next) {
        next = x->next;
        uintptr_t handle = atomic_load_explicit(&x->handle, memory_order_relaxed);
        if (handle > highest) highest = handle;
        if (x->slab->idle == SLAB_SLOTS) continue;
        x->next = left;
        left = x;
    }
    pool.free = left;
    for (Slab **at = &pool.slabs; *at;) {
        Slab *slab = *at;
        if (slab->idle < SLAB_SLOTS) {
            at = &slab->next;
            continue;
        }
        *at = slab->next;
        slab->next = empty;
        empty = slab;
    }
    highest >>= 48;
    if (highest >= pool.first_number >> 48 && highest < HANDLE_LAST >> 48)
        pool.first_number = (highest + 1) << 48;
    lock_give(LOCK_slot);
    for (Slab *next; empty; empty = next) {
        next = empty->next;
        free_slab(empty);
    }
}

/* ---- dying ----------------------------------------------------------------------------------- */

/* None, beyond HANDLE_LAST, where the slot has had them all. */
static uintptr_t next_handle(uintptr_t handle) {
    return (handle & 0xFF) == 0xFF ? handle - 0xFF + HANDLE_FIRST : handle + 1;
}

/* The slot that has waited while WAITING_SLOTS others died; NULL: none has, yet. */
static Tensor *wait(ThreadState *t, Tensor *x) {
    memset((char *)x + HEAD_BYTES, OVERWRITE, offsetof(Tensor, slab) - HEAD_BYTES);
    memory_poison((char *)x + HEAD_BYTES, SLOT_BYTES - HEAD_BYTES);
    x->next = NULL;
    *(t->waiting ? &t->last_waiting->next : &t->waiting) = x;
    t->last_waiting = x;
    if (++t->waiting_count <= WAITING_SLOTS) return NULL;
    x = t->waiting;
    t->waiting = x->next;
    t->waiting_count--;
    return x;
}

/* What it died by, beside the line: line * FREED_WAYS + by, where that fits. */
enum { FREED_LINES = 0xFFFF / FREED_WAYS - 1 };

static inline uint64_t freed_here(FreedBy by) {
    uint64_t site = site_pack(), line = site & 0xFFFF;
    return site - line + (line < FREED_LINES ? line : FREED_LINES) * FREED_WAYS + by;
}

static FreedBy read_freed(uint64_t freed, Site *site) {
    uint64_t way = freed & 0xFFFF, line = way / FREED_WAYS;
    *site = site_unpack(freed - way + (line < FREED_LINES ? line : NO_LINE));
    return (FreedBy)(way % FREED_WAYS);
}

/* Where the next death comes. The line behind this one is fetched: the list is longer than the
 * first cache. */
static inline Death *remember(Death *deaths, Death *death, const Tensor *x, uint64_t freed) {
    if (!death) return NULL;
    uintptr_t handle = atomic_load_explicit(&x->handle, memory_order_relaxed);
    atomic_store_explicit(&death->handle, handle, memory_order_relaxed);
    atomic_store_explicit(&death->made, x->made, memory_order_relaxed);
    atomic_store_explicit(&death->freed, freed, memory_order_relaxed);
    __builtin_prefetch(death + 4, 1);
    return death == &deaths[LAST_DEATHS - 1] ? deaths : death + 1;
}

/* Its lowest 8 bits have had every number. False: so have the others, and it is not used again. */
static __attribute__((noinline, cold)) bool carry(Tensor *x, uintptr_t next) {
    atomic_store_explicit(&x->handle, next, memory_order_relaxed);
    if (next <= HANDLE_LAST) return true;
    x->dtype = SLOT_IS_FREE;
    atomic_fetch_add_explicit(&x->slab->retired, 1, memory_order_relaxed);
    return false;
}

/* The handle names nothing any more. False: there is none for another tensor in the slot. */
static inline bool end_handle(Tensor *x, uint64_t freed) {
    uintptr_t handle = atomic_load_explicit(&x->handle, memory_order_relaxed);
    x->freed = freed; /* for errors, until the slot is used again */
    if (__builtin_expect((uint8_t)handle == 0xFF, 0)) return carry(x, next_handle(handle));
    atomic_store_explicit(&x->handle, handle + 1, memory_order_relaxed);
    return true;
}

/* A slot that may be used again, or NULL. */
static inline Tensor *leave_slot(ThreadState *t, Tensor *x, uint64_t freed, bool checks) {
    x->storage = NULL;
    x->dtype = SLOT_IS_FREE;
    if (!end_handle(x, freed)) return NULL;
    return checks || POISONS ? wait(t, x) : x;
}

void slot_free(ThreadState *t, Tensor *x, bool checks) {
    uint64_t freed = freed_here(FREED_ALONE);
    t->oldest_death = remember(t->deaths, t->oldest_death, x, freed);
    Tensor *slot = leave_slot(t, x, freed, checks);
    if (!slot) return;
    slot->next = t->slots;
    t->slots = slot;
    if (++t->slot_count > SPARE_SLOTS) give_back(t, SPARE_SLOTS / 2);
}

/* As slot_free of each when their scope ends, with what they share kept in registers. */
void slots_free(ThreadState *t, Tensor *first, FreedBy by, bool checks) {
    uint64_t freed = freed_here(by);
    Death *deaths = t->deaths, *death = t->oldest_death;
    Tensor *slots = t->slots;
    int count = t->slot_count;
    for (Tensor *x = first, *next; x; x = next) {
        next = x->next;
        death = remember(deaths, death, x, freed);
        Tensor *slot = leave_slot(t, x, freed, checks);
        if (!slot) continue;
        slot->next = slots;
        slots = slot;
        count++;
    }
    t->oldest_death = death;
    t->slots = slots;
    t->slot_count = count;
    if (count > SPARE_SLOTS) give_back(t, SPARE_SLOTS / 2);
}

/* The next shell on its seat finds it as it is now: it had no storage to take strides from. */
static inline void take_seat(Tensor *x, const Tracer *tracer, uint64_t freed) {
    int v = x->number;
    tracer->value[v] = NULL;
    tracer->handle[v] = NO_HANDLE;
    tracer->seat[v] = end_handle(x, freed) ? x : NULL;
    x->seated = atomic_load_explicit(&x->handle, memory_order_relaxed);
    x->scope = NULL;
    x->kept = false;
}

void seat_free(ThreadState *t, Tensor *x) {
    x->is_gradient = false;
    uint64_t freed = freed_here(FREED_ALONE);
    t->oldest_death = remember(t->deaths, t->oldest_death, x, freed);
    take_seat(x, t->tracer, freed);
    t->tracer->alive--;
}

Tensor *seat_double(ThreadState *t, const Tracer *tracer, int value, const Tensor *x) {
    Tensor *y = tracer->seat[value];
    if (!y) return NULL;
    y->traits = x->traits;
    y->kept = true;
    y->storage = x->storage ? storage_retain(x->storage) : NULL;
    y->history = x->history ? history_retain(x->history) : NULL;
    y->offset = x->offset;
    copy_dims(y->size, x->size, x->rank);
    copy_dims(y->stride, x->stride, x->rank);
    count_live(t, 1);
    return y;
}

/* Its handle is nobody's, so no error will name it. */
void seat_end_double(ThreadState *t, Tracer *tracer, int value) {
    Tensor *x = tracer->value[value];
    tracer->value[value] = NULL;
    if (x->storage) storage_release(x->storage);
    if (x->history) history_release(x->history);
    x->storage = NULL;
    x->history = NULL;
    x->trace = 0;
    x->value = NULL;
    x->kept = false;
    tracer->seat[value] = end_handle(x, x->made) ? x : NULL;
    x->seated = atomic_load_explicit(&x->handle, memory_order_relaxed);
    count_live(t, -1);
}

/* With what they share kept in registers. */
Tensor *seats_free(ThreadState *t, Tensor *x, FreedBy by, int *count) {
    Tracer *tracer = t->tracer;
    if (!x || !has_seat(tracer, x)) return x;
    uint64_t serial = tracer->serial, freed = freed_here(by);
    Death *deaths = t->deaths, *death = t->oldest_death;
    int freed_count = 0;
    for (Tensor *next; x && x->trace == serial && !x->storage; x = next, freed_count++) {
        next = x->next;
        /* where the one behind is, when all are as far apart as these */
        __builtin_prefetch((const void *)(2 * (uintptr_t)next - (uintptr_t)x), 1);
        death = remember(deaths, death, x, freed);
        take_seat(x, tracer, freed);
    }
    t->oldest_death = death;
    tracer->alive -= freed_count;
    *count += freed_count;
    return x;
}

static void survivors_add(Survivors *survivors, int v) {
    if (survivors->count < MOST_SURVIVORS) survivors->at[survivors->count] = v;
    survivors->count++;
}

/* They stay in no list of deaths: their seats know the last one. */
void residents_die(ThreadState *t) {
    Tracer *tracer = t->tracer;
    tracer->survivors.count = 0;
    Tensor **value = tracer->value, **seat = tracer->seat;
    uint64_t freed = freed_here(FREED_BY_CALL);
    int count = 0;
    for (int v = tracer->first, seats = tracer->seats; v < seats; v++) {
        Tensor *x = value[v];
        if (!x) continue;
        if (!is_resident(x, tracer)) {
            survivors_add(&tracer->survivors, v);
            continue;
        }
        value[v] = NULL;
        if (!end_handle(x, freed)) seat[v] = NULL;
        count++;
    }
    tracer->survivors.of = tracer->survivors.count <= MOST_SURVIVORS ? tracer->seats : 0;
    tracer->home = NULL;
    tracer->alive -= count;
    count_live(t, -count);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static bool find_in(const Death *deaths, uintptr_t handle, uint64_t *made, uint64_t *freed) {
    for (int i = 0; deaths && i < LAST_DEATHS; i++) {
        const Death *death = &deaths[i];
        if (atomic_load_explicit(&death->handle, memory_order_relaxed) != handle) continue;
        *made = atomic_load_explicit(&death->made, memory_order_relaxed);
        *freed = atomic_load_explicit(&death->freed, memory_order_relaxed);
        return true;
    }
    return false;
}

/* Of a resident, or that one is to sit in. */
static bool is_seat(const Tensor *x) {
    return !is_linked(x) && !x->kept && !x->storage && x->dtype != SLOT_IS_FREE;
}

static const char call_end[] = "the end of an earlier call";

static bool find_death(const Tensor *x, uintptr_t handle, uint64_t *made, uint64_t *freed) {
    *made = x->made;
    *freed = x->freed;
    uintptr_t now = atomic_load_explicit(&x->handle, memory_order_relaxed);
    bool is_last = next_handle(handle) == now;
    if (is_seat(x) && x->seated <= handle && handle < now) { /* made by the same op of the trace */
        if (!is_last) *freed = (uint64_t)(uintptr_t)call_end << 16;
        return true;
    }
    return (is_last && x->dtype == SLOT_IS_FREE) ||
           find_in(thread_state.deaths, handle, made, freed) ||
           threads_find(find_in, handle, made, freed);
}

void tensors_out(Tensor *const *x, int count, cb_tensor **out) {
    for (int i = 0; i < count; i++) out[i] = tensor_out(x[i]);
}

/* A slot opens with a handle of its own; nothing else holds its own address with such a number. */
static bool is_slot(uintptr_t bits) {
    if (bits != (bits & HANDLE_ADDRESS) || !slot_may_lie(bits)) return false;
    const Tensor *x = (const Tensor *)bits; // NOLINT(performance-no-int-to-ptr)
    uintptr_t own = atomic_load_explicit(&x->handle, memory_order_relaxed);
    return handle_is_one(own) && (own & HANDLE_ADDRESS) == bits;
}

static void refuse(uintptr_t bits, const char *what) {
    static const char *const end[] = {
        "", ", where its scope ended",
        ", where the call that made it ended: cb_keep keeps what is not returned"};
    uint64_t made, freed;
    if (!handle_is_one(bits) || !slot_may_lie(bits & HANDLE_ADDRESS)) {
        fail(CB_ERR_ARGUMENT, "%s: %#llx is no tensor, but a number or another pointer", what,
             (unsigned long long)bits);
        return;
    }
    char text[2][160] = {"before the last tensors of its thread", ""};
    if (find_death((const Tensor *)(bits & HANDLE_ADDRESS), bits, &made, &freed)) {
        site_format(site_unpack(made), text[0], sizeof text[0]);
        Site last;
        FreedBy by = read_freed(freed, &last);
        bool in_words = last.file == thread_end || last.file == call_end;
        site_format(last, text[1], sizeof text[1]);
        fail(CB_ERR_ARGUMENT, "%s: the tensor is gone: it was made at %s and freed at %s%s", what,
             text[0], in_words ? last.file : text[1], in_words ? "" : end[by]);
    } else {
        fail(CB_ERR_ARGUMENT, "%s: the tensor is gone: it was freed long ago", what);
    }
}

Tensor *handle_other(const cb_tensor *handle, const char *what) {
    uintptr_t bits = (uintptr_t)handle;
    if (is_slot(bits)) return (Tensor *)bits;
    if (bits) refuse(bits, what);
    return NULL;
}

bool tensors_in(cb_tensor *const *handle, int count, const char *what, Tensor **out) {
    for (int i = 0; i < count; i++) {
        uintptr_t bits = (uintptr_t)handle[i];
        if (handle_lives(handle[i], &out[i])) continue;
        out[i] = is_slot(bits) ? (Tensor *)bits : NULL;
        if (out[i] || !bits) continue;
        char input[96];
        snprintf(input, sizeof input, "%s: input %d", what, i);
        refuse(bits, input);
        return false;
    }
    return true;
}
