/* A run of an engine with its n-th allocation failing, and all behind it, for every n. Each time it
 * says so and keeps nothing; the run that needs no more succeeds, and its result is the caller's to
 * look at. */
#ifndef CARBIDE_TEST_EACH_FAILS_H
#define CARBIDE_TEST_EACH_FAILS_H

#include "fixture.h"

static inline void each_allocation_fails(bool (*run)(void *user), void *user) {
    int n = 0;
    cb_set_allocator((cb_allocator){failing_resize, NULL});
    for (bool done = false; !done; n++) {
        cb_cleanup();      /* freed memory is taken again without an allocation */
        cb_set_threads(1); /* the error is told in the thread that fails */
        int64_t live = cb_memory().live_bytes;
        cb_clear_error();
        allocations_left = n;
        done = run(user);
        allocations_left = -1;
        assert_int_equal(cb_memory().live_bytes, live);
        assert_int_equal(cb_error_status(), done ? CB_OK : CB_ERR_MEMORY);
        assert_true(n < 100);
    }
    cb_clear_error();
    cb_cleanup();
    cb_set_allocator((cb_allocator){NULL, NULL});
}

#endif
