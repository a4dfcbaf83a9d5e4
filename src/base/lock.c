/* The locks of the process and fork() (lock.h). */
#include "base/lock.h"

#include "base/error.h"

#include <stdatomic.h>
#include <time.h>

LockCell lock_cells[LOCK_COUNT] = {[0 ... LOCK_COUNT - 1] = {PTHREAD_MUTEX_INITIALIZER}};

static struct {
    pthread_cond_t woken[LOCK_COUNT]; /* whoever waits for something under this lock looks again */
    _Atomic uint32_t number;
    void (*before)(void), (*child)(void);
} process = {.woken = {[0 ... LOCK_COUNT - 1] = PTHREAD_COND_INITIALIZER}, .number = 1};

_Static_assert(LOCK_COUNT < 60, "ThreadSanitizer follows a thread that holds 64 locks");

uint32_t process_number(void) {
    return atomic_load_explicit(&process.number, memory_order_relaxed);
}

void lock_wait(int lock) { pthread_cond_wait(&process.woken[lock], &lock_cells[lock].mutex); }

void lock_wait_ms(int lock, int ms) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ms % 1000 * 1000000L;
    until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&process.woken[lock], &lock_cells[lock].mutex, &until);
}

void lock_wake(int lock) { pthread_cond_broadcast(&process.woken[lock]); }

/* ---- fork -------------------------------------------------------------------------------- */

static void take_all(void) {
    for (int i = 0; i < LOCK_COUNT; i++) lock_take(i);
    if (process.before) process.before();
}

static void give_all(void) {
    for (int i = LOCK_COUNT - 1; i >= 0; i--) lock_give(i);
}

static void begin_child(void) {
    atomic_fetch_add(&process.number, 1);
    for (int i = 0; i < LOCK_COUNT; i++) /* those who waited are not here */
        process.woken[i] = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    if (process.child) process.child();
    give_all();
}

/* When the library is loaded: before any of its locks can be held. */
__attribute__((constructor)) static void watch_forks(void) {
    int status = pthread_atfork(take_all, give_all, begin_child);
    check(status == 0, "pthread_atfork: %d", status);
}

void lock_watch_fork(void (*before)(void), void (*child)(void)) {
    lock_take(LOCK_thread); /* any lock: fork() holds them all when it reads these */
    process.before = before;
    process.child = child;
    lock_give(LOCK_thread);
}
