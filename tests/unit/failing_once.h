/* An allocator that fails once, for cb_set_allocator: at the countdown-th allocation from now;
 * below 0: never. With stays_failed from then on, until countdown is set anew: storage is asked for
 * again when what is cached was given back. (fixture.h has one that always fails so.) */
#ifndef CARBIDE_TEST_FAILING_ONCE_H
#define CARBIDE_TEST_FAILING_ONCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static _Atomic int64_t countdown = -1, live_blocks;
static bool stays_failed;

static inline void *fail_once(void *user, void *pointer, size_t bytes) {
    (void)user;
    if (bytes == 0) {
        live_blocks -= pointer != NULL;
        free(pointer);
        return NULL;
    }
    if (countdown >= 0 && countdown-- == 0) {
        if (stays_failed) countdown = 0;
        return NULL;
    }
    void *block = realloc(pointer, bytes);
    live_blocks += block && !pointer;
    return block;
}

#endif
