/* A heap that counts what lives, and fails when it is told to. */
#ifndef CARBIDE_TEST_COUNTING_HEAP_H
#define CARBIDE_TEST_COUNTING_HEAP_H

#include "test_support.h"

#include "base/option.h"
#include <stdlib.h>

static int live, budget; /* budget: allocations until the first failure; negative: never */

static void *counting_resize(void *user, void *pointer, size_t bytes) {
    assert_ptr_equal(user, &live);
    if (!bytes) {
        live -= pointer != NULL;
        free(pointer);
        return NULL;
    }
    if (budget == 0) return NULL;
    if (budget > 0) budget--;
    live += pointer == NULL;
    return realloc(pointer, bytes);
}

static int use_counting_heap(void **state) {
    (void)state;
    option_reset();
    live = 0;
    budget = -1;
    cb_set_allocator((cb_allocator){counting_resize, &live});
    cb_clear_error();
    return 0;
}

static int use_heap(void **state) {
    (void)state;
    option_reset();
    assert_int_equal(live, 0);
    cb_set_allocator((cb_allocator){NULL, NULL});
    return 0;
}

#endif
