/* The heap: what Carbide takes passes resize() of the host's allocator, all of it when there is one
 * (storages of a program without take pages, base/pages.h).
 *
 * In: sizes. Out: blocks, or NULL without an error message (the caller knows what to say).
 * The allocator is a process singleton that the host sets before any other call. */
#include "base/memory.h"
#include "carbide.h"
#include <stdlib.h>
#include <string.h>

static void *heap_resize(void *user, void *pointer, size_t bytes) {
    (void)user;
    if (bytes) return realloc(pointer, bytes);
    free(pointer);
    return NULL;
}

static cb_allocator allocator = {heap_resize, NULL};

void cb_set_allocator(cb_allocator host) {
    allocator = host.resize ? host : (cb_allocator){heap_resize, NULL};
}

bool memory_of_host(void) { return allocator.resize != heap_resize; }

static _Thread_local size_t refused; /* what the thread asked for last and did not get */

size_t memory_refused(void) { return refused; }

void *memory_resize(void *pointer, size_t bytes) {
    /* Zero bytes would mean free to the host. */
    void *block = allocator.resize(allocator.user, pointer, bytes ? bytes : 1);
    if (!block) refused = bytes;
    return block;
}

void *memory_alloc(size_t bytes) { return memory_resize(NULL, bytes); }

void *memory_zalloc(size_t bytes) {
    void *block = memory_alloc(bytes);
    if (block) memset(block, 0, bytes);
    return block;
}

void memory_free(void *pointer) {
    if (pointer) allocator.resize(allocator.user, pointer, 0);
}

char *memory_copy_text(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = memory_alloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}
