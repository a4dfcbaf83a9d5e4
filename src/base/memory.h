/* Heap allocation through the allocator that the host set (cb_set_allocator).
 * Everything that Carbide allocates comes from here or from an arena above it, so a test can make
 * any single allocation fail; but for the large storages of a program that set no allocator, which
 * are pages of their own (base/pages.h). */
#ifndef CARBIDE_BASE_MEMORY_H
#define CARBIDE_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

void *memory_alloc(size_t bytes);  /* NULL when out of memory, without an error message */
void *memory_zalloc(size_t bytes); /* the same, zeroed */
void *memory_resize(void *pointer, size_t bytes);
void memory_free(void *pointer);
size_t memory_refused(void); /* the bytes of the thread's last NULL */
bool memory_of_host(void); /* whether an allocator was set */
char *memory_copy_text(const char *text);

#endif
