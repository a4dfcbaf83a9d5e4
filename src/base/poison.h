/* Memory that is kept but belongs to nobody: AddressSanitizer reports who touches it. Without it
 * these are nothing. */
#ifndef CARBIDE_BASE_POISON_H
#define CARBIDE_BASE_POISON_H

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
enum { POISONS = 1 };
#define memory_poison(start, bytes) __asan_poison_memory_region(start, bytes)
#define memory_unpoison(start, bytes) __asan_unpoison_memory_region(start, bytes)
#else
enum { POISONS = 0 };
#define memory_poison(start, bytes) ((void)(start), (void)(bytes))
#define memory_unpoison(start, bytes) ((void)(start), (void)(bytes))
#endif

/* Sanitizers hold blocks of their heap to a limit, and write shadow for whatever else is mapped. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { HEAP_IS_WATCHED = 1 };
#else
enum { HEAP_IS_WATCHED = 0 };
#endif

#endif
