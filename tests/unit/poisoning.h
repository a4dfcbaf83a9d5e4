/* An allocator for cb_set_allocator that overwrites what is freed: who goes on reading it finds
 * addresses that are none. */
#ifndef CARBIDE_TEST_POISONING_H
#define CARBIDE_TEST_POISONING_H

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static inline void *poison_freed(void *user, void *pointer, size_t bytes) {
    (void)user;
    if (bytes && !pointer) return malloc(bytes);
    size_t had = pointer ? malloc_usable_size(pointer) : 0;
    void *moved = bytes ? malloc(bytes) : NULL;
    if (bytes && !moved) return NULL;
    if (bytes) memcpy(moved, pointer, had < bytes ? had : bytes);
    if (pointer) memset(pointer, 0xEE, had);
    __asm__ volatile("" ::: "memory"); /* what is freed next is not read: it would be left out */
    free(pointer);
    return moved;
}

#endif
