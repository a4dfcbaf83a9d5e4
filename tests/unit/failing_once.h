/* An allocator that fails once, for cb_set_allocator: at the countdown-th allocation from now;
 * below 0: never. (fixture.h has one that fails from then on.) */
#ifndef CARBIDE_TEST_FAILING_ONCE_H
#define CARBIDE_TEST_FAILING_ONCE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static _Atomic int64_t countdown = -1;

static inline void *fail_once(void *user, void *pointer, size_t bytes) {
    (void)user;
    if (bytes == 0) {
        free(pointer);
        return NULL;
    }
    if (countdown >= 0 && countdown-- == 0) return NULL;
    return realloc(pointer, bytes);
}

#endif
