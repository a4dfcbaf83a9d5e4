/* fork() in a program of threads: the child has the one thread that called it, and would wait
 * forever for a lock that another one held. */
#ifndef CARBIDE_BASE_FORK_H
#define CARBIDE_BASE_FORK_H

#include <pthread.h>

/* Defines watch_forks, to be called once: from then on fork() waits for the mutex. */
#define WATCH_FORKS(mutex)                                                                         \
    static void lock_for_fork(void) { pthread_mutex_lock(&(mutex)); }                              \
    static void unlock_for_fork(void) { pthread_mutex_unlock(&(mutex)); }                          \
    static void watch_forks(void) {                                                                \
        pthread_atfork(lock_for_fork, unlock_for_fork, unlock_for_fork);                           \
    }

#endif
