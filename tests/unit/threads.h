/* The same by several threads at once. */
#ifndef CARBIDE_TEST_THREADS_H
#define CARBIDE_TEST_THREADS_H

#include "test_support.h"

#include <pthread.h>

/* wrong: a bool of the thread's own, which it sets to say that something was. */
static inline void run_at_once(void *(*body)(void *wrong)) {
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    bool wrong[THREADS] = {false};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, body, &wrong[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_false(wrong[i]);
    }
}

#endif
