/* The compile lifetime: a bump allocator, freed in one call.
 *
 * An arena never returns NULL: when memory runs out it jumps to the escape that its owner set with
 * arena_guard. Compile code therefore has no error paths for memory, and leaks nothing, as long as
 * all that it allocates comes from the arena.
 *
 *     Arena *arena = arena_new();
 *     if (!arena || arena_guard(arena)) { arena_free(arena); return out of memory; }
 *     ... passes, each allocating from the arena ...
 *     arena_free(arena);
 *
 * The vectors (vec.h), string buffers (buffer.h) and maps (map.h) of the compiler live in
 * arenas. */
#ifndef CARBIDE_BASE_ARENA_H
#define CARBIDE_BASE_ARENA_H

#include <setjmp.h>
#include <stddef.h>

typedef struct Arena Arena;

Arena *arena_new(void); /* NULL when out of memory */
/* One for work whose result goes to the outer one, to be freed before it is forgotten. Where memory
 * runs out it jumps to the outer one's escape, and it is freed with that one. One at a time. */
Arena *arena_inner(Arena *outer);
void arena_free(Arena *arena); /* NULL is allowed */
void arenas_cleanup(void);     /* chunks that no arena has, for cb_cleanup */
void *arena_alloc(Arena *arena, size_t bytes);  /* 16-byte aligned, uninitialized */
void *arena_zalloc(Arena *arena, size_t bytes); /* zeroed */
char *arena_text(Arena *arena, const char *text);
char *arena_format(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
size_t arena_bytes(const Arena *arena); /* what it holds of the heap */
/* What it holds is finished, and may be read by any thread: an allocation or a guard from now on is
 * a bug, which ends the program. */
void arena_seal(Arena *arena);
void arena_escape(Arena *arena) __attribute__((noreturn)); /* out of memory, from above the arena */

jmp_buf *arena_escape_point(Arena *arena);
/* Non-zero when it returns for the second time, after memory ran out. Call it in a small
 * function. */
#define arena_guard(arena) setjmp(*arena_escape_point(arena))

#define arena_new_array(arena, type, count)                                                        \
    ((type *)arena_zalloc((arena), sizeof(type) * (size_t)(count)))

#endif
