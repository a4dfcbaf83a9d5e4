/* The locks of the process, all of them, so that fork() can know them.
 *
 * A forked child has the one thread that called fork(), and would wait forever for a lock that
 * another thread of its parent held. Therefore fork() takes every lock of locks.def first, and both
 * sides give them back. No other lock may exist in the library (tools/lint.py locks): what is too
 * long for a lock, such as running a compiler, is marked as being done instead, by the process that
 * does it (process_number), and waited for with lock_wait.
 *
 *     lock_take(LOCK_code);
 *     ...
 *     lock_give(LOCK_code); */
#ifndef CARBIDE_BASE_LOCK_H
#define CARBIDE_BASE_LOCK_H

#include <pthread.h>
#include <stdint.h>

/* LOCK_id is the first of a row, LOCKS_id how many there are. */
enum {
#define LOCK(id, count) LOCKS_##id = (count),
#include "base/locks.def"
#undef LOCK
};
enum {
#define LOCK(id, count) LOCK_##id, LOCK_##id##_last = LOCK_##id + LOCKS_##id - 1,
#include "base/locks.def"
#undef LOCK
    LOCK_COUNT
};

typedef struct LockCell {
    _Alignas(64) pthread_mutex_t mutex;
} LockCell;
extern LockCell lock_cells[LOCK_COUNT];

static inline void lock_take(int lock) { pthread_mutex_lock(&lock_cells[lock].mutex); }
static inline void lock_give(int lock) { pthread_mutex_unlock(&lock_cells[lock].mutex); }

/* Gives the lock, waits until another thread calls lock_wake, or for no reason, and takes it. */
void lock_wait(int lock);
void lock_wait_ms(int lock, int ms); /* no longer than that */
void lock_wake(int lock);

/* 1, in a forked child 2, in its child 3: whoever has another number has no thread here. */
uint32_t process_number(void);

/* For a state that must be carried over fork(): before runs in the parent, which holds all locks by
 * then, child in the child, which holds them still. Once, before there is anything to carry. */
void lock_watch_fork(void (*before)(void), void (*child)(void));

#endif
