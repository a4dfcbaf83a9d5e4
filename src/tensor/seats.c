/* Seats: the slots that a thread keeps for the shells of the traces that it replays (thread.h).
 *
 * A table by trace: one that finds another one's place taken gets it when it has asked PATIENCE
 * times and the other one has not, so that two which take turns do not fill seats for each other.
 * What they hold together counts as the thread's own free slots do, and is limited alike.
 *
 * Invariant: what a seat holds is a free slot, in no other list, or, while the call that has taken
 * the seats replays, a shell of its that lives. A thread that ends has no call any more: all that
 * its seats hold is free. */
#include "tensor/thread.h"

#include "base/memory.h"
#include "base/option.h"

enum {
    FEW_SEATS = 4, /* of fewer values a call is not longer for want of them */
    PATIENCE = 16,
    MOST_VALUES = 1 << 14 /* that a list is kept for */
};

static Seats *find(Seats *table, uint64_t trace) {
    return &table[trace * UINT64_C(0x9E3779B97F4A7C15) >> (64 - SEATS_BITS)];
}

static void empty(ThreadState *t, Seats *seats) {
    for (int i = 0; i < seats->count; i++) {
        Tensor *x = seats->slot[i];
        if (!x) continue;
        x->dtype = SLOT_IS_FREE;
        x->next = t->slots;
        t->slots = x;
        t->slot_count++;
    }
    memory_free(seats->slot);
    *seats = (Seats){0};
}

bool seats_give_back(ThreadState *t) {
    for (int i = 0; t->seats && i < 1 << SEATS_BITS; i++)
        if (!t->seats[i].taken) empty(t, &t->seats[i]);
    return t->slots;
}

void seats_end(ThreadState *t) {
    for (int i = 0; t->seats && i < 1 << SEATS_BITS; i++) empty(t, &t->seats[i]);
    memory_free(t->seats);
    t->seats = NULL;
    memory_free(t->values.value);
    t->values = (ValueList){0};
}

static int count_all(const ThreadState *t) {
    int count = 0;
    for (int i = 0; i < 1 << SEATS_BITS; i++) count += t->seats[i].count;
    return count;
}

/* Seats of another trace, or of none, become this one's. NULL: not yet, or no memory. */
static __attribute__((noinline, cold)) Seats *change(ThreadState *t, Seats *seats, uint64_t trace,
                                                     int count) {
    bool full = count_all(t) - seats->count + count > MOST_SEATS;
    if (seats->taken || count > MOST_SEATS) return NULL;
    if ((seats->trace || full) && ++seats->refused < PATIENCE) return NULL;
    if (full) seats_give_back(t);
    empty(t, seats);
    if (count_all(t) + count > MOST_SEATS) return NULL;
    Tensor **slot = memory_zalloc(sizeof *slot * (size_t)count);
    if (!slot) return NULL;
    *seats = (Seats){.trace = trace, .slot = slot, .count = count, .taken = true};
    return seats;
}

/* With the option check slots wait before they are used again. */
Seats *seats_take(ThreadState *t, uint64_t trace, int count) {
    if (count < FEW_SEATS || POISONS || option_now(OPTION_check)) return NULL;
    if (!t->seats) t->seats = memory_zalloc(sizeof *t->seats << SEATS_BITS);
    Seats *seats = t->seats ? find(t->seats, trace) : NULL;
    if (!seats) return NULL;
    if (seats->trace != trace) return change(t, seats, trace, count);
    if (seats->taken) return NULL;
    seats->taken = true;
    seats->refused = 0;
    return seats;
}

void residents_join(Tracer *tracer) {
    for (int v = tracer->first; tracer->home && v < tracer->seats; v++) {
        Tensor *x = tracer->value[v];
        if (x && is_resident(x, tracer)) link_tensor(tracer->home, x);
    }
    tracer->home = NULL;
}

/* What lives has its seat no more. */
void seats_leave(Seats *seats, const Tracer *tracer) {
    int count = seats->count;
    for (int v = tracer->first; (v = values_next(tracer, v, count)) < count; v++)
        seats->slot[v] = NULL;
    seats->taken = false;
}

/* ---- values -------------------------------------------------------------------------------- */

ValueList values_take(ThreadState *t, int capacity) {
    ValueList list = t->values;
    if (list.capacity >= capacity) {
        t->values = (ValueList){0};
        return list;
    }
    list.value = memory_zalloc((sizeof *list.value + sizeof *list.handle) * (size_t)capacity);
    list.handle = (uintptr_t *)(void *)(list.value + capacity);
    list.capacity = capacity;
    return list;
}

void values_give(ThreadState *t, ValueList list) {
    if (list.capacity <= t->values.capacity || list.capacity > MOST_VALUES) {
        memory_free(list.value);
        return;
    }
    memory_free(t->values.value);
    t->values = list;
}

static inline bool none_of_four(Tensor *const *x) {
    return !((uintptr_t)x[0] | (uintptr_t)x[1] | (uintptr_t)x[2] | (uintptr_t)x[3]);
}

int values_next(const Tracer *tracer, int v, int count) {
    Tensor *const *value = tracer->value;
    const Survivors *survivors = &tracer->survivors;
    if (survivors->of == count) {
        int i = 0;
        while (i < survivors->count && (survivors->at[i] < v || !value[survivors->at[i]])) i++;
        return i < survivors->count ? survivors->at[i] : count;
    }
    while (v + 8 <= count && none_of_four(&value[v]) && none_of_four(&value[v + 4])) v += 8;
    while (v < count && !value[v]) v++;
    return v;
}
