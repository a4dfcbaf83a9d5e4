/* The queue of freed objects; tomb.h says what for. */
#include "base/tomb.h"

#include "base/lock.h"
#include "base/memory.h"

/* The process's: a documented singleton, under LOCK_tomb. */
static struct {
    Tomb *first, *last;
    int count;
} buried;

bool tomb_lives(const Tomb *tomb, const char *what) {
    if (tomb && !tomb_is_dead(tomb)) return true;
    if (!tomb) {
        fail(CB_ERR_ARGUMENT, "%s: NULL", what);
        return false;
    }
    char where[160];
    site_format(site_unpack(tomb->freed), where, sizeof where);
    fail(CB_ERR_ARGUMENT, "%s was freed at %s", what, where);
    return false;
}

static Tomb *take_first(void) {
    Tomb *tomb = buried.first;
    buried.first = tomb->next;
    buried.count--;
    return tomb;
}

/* Into the queue; what falls out of it at the other end. */
static Tomb *enqueue(Tomb *tomb) {
    tomb->next = NULL;
    *(buried.first ? &buried.last->next : &buried.first) = tomb;
    buried.last = tomb;
    return ++buried.count > MOST_TOMBS ? take_first() : NULL;
}

void tomb_bury(Tomb *tomb) {
    tomb->freed = site_pack();
    lock_take(LOCK_tomb);
    atomic_store_explicit(&tomb->dead, true, memory_order_release);
    Tomb *oldest = tomb->holders ? NULL : enqueue(tomb);
    lock_give(LOCK_tomb);
    memory_free(oldest);
}

void tomb_hold(Tomb *tomb) {
    lock_take(LOCK_tomb);
    tomb->holders++;
    lock_give(LOCK_tomb);
}

void tomb_drop(Tomb *tomb) {
    lock_take(LOCK_tomb);
    Tomb *oldest = --tomb->holders == 0 && tomb_is_dead(tomb) ? enqueue(tomb) : NULL;
    lock_give(LOCK_tomb);
    memory_free(oldest);
}

void tombs_cleanup(void) {
    lock_take(LOCK_tomb);
    Tomb *tomb = buried.first;
    buried.first = NULL;
    buried.count = 0;
    lock_give(LOCK_tomb);
    while (tomb) {
        Tomb *next = tomb->next;
        memory_free(tomb);
        tomb = next;
    }
}
