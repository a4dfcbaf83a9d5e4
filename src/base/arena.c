/* The arena: a list of chunks, the newest being filled.
 *
 * In: sizes. Out: 16-byte aligned blocks that live until arena_free.
 * Invariants: a chunk holds capacity bytes behind its header; used <= capacity; used is a multiple
 * of 16. The arena itself sits in its first chunk, so an arena of one chunk is one heap
 * allocation. Chunks grow to LARGEST_STEP, no further: what the last one of an arena does not use
 * stays small, and one that was freed is what the next arena asks for.
 *
 * Such chunks are kept, up to MOST_KEPT: given back to the heap they become part of whatever is
 * asked for next, and the next compilation meets pages that nobody has touched, of which each costs
 * as much as recording an op. A host's allocator gets back what it gave. */
#include "base/arena.h"
#include "base/error.h"
#include "base/format.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/poison.h"
#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

enum { FIRST_CHUNK = 4 << 10, LARGEST_STEP = 64 << 10, ALIGNMENT = 16, FORMAT_BYTES = 128 };
enum { MOST_KEPT = 128 /* 8 MB: a plan of some 400 ops takes half of it */ };

typedef struct Chunk {
    struct Chunk *older;
    size_t capacity, used;
    size_t whole; /* the capacity that it was made with; arena_seal makes the other one less */
} Chunk;

struct Arena {
    Chunk *chunk;
    size_t bytes; /* of all chunks with their headers */
    bool guarded, sealed;
    Arena *outer, *inner; /* arena_inner */
    jmp_buf escape;
};

static_assert(sizeof(Chunk) % ALIGNMENT == 0, "blocks behind the header are aligned");

static size_t align(size_t bytes) { return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1); }

/* ---- chunks that are kept -------------------------------------------------------------------- */

static struct {
    Chunk *first;
    int count;
} kept;

static bool may_be_kept(size_t capacity) {
    return capacity == LARGEST_STEP - sizeof(Chunk) && !memory_of_host();
}

static Chunk *take_kept(void) {
    lock_take(LOCK_chunk);
    Chunk *chunk = kept.first;
    if (chunk) kept.first = chunk->older, kept.count--;
    lock_give(LOCK_chunk);
    if (chunk) memory_unpoison(chunk + 1, chunk->whole);
    return chunk;
}

/* False: there are enough. */
static bool keep(Chunk *chunk) {
    memory_poison(chunk + 1, chunk->whole);
    lock_take(LOCK_chunk);
    bool keeps = kept.count < MOST_KEPT;
    if (keeps) chunk->older = kept.first, kept.first = chunk, kept.count++;
    lock_give(LOCK_chunk);
    if (!keeps) memory_unpoison(chunk + 1, chunk->whole);
    return keeps;
}

void arenas_cleanup(void) {
    for (Chunk *chunk; (chunk = take_kept());) memory_free(chunk);
}

static Chunk *new_chunk(size_t capacity) {
    Chunk *chunk = may_be_kept(capacity) ? take_kept() : NULL;
    if (!chunk) chunk = memory_alloc(sizeof(Chunk) + capacity);
    if (chunk) *chunk = (Chunk){.capacity = capacity, .whole = capacity};
    return chunk;
}

static void free_chunk(Chunk *chunk) {
    if (!may_be_kept(chunk->whole) || !keep(chunk)) memory_free(chunk);
}

/* ---- arenas ---------------------------------------------------------------------------------- */

static void *take(Chunk *chunk, size_t bytes) {
    void *block = (char *)(chunk + 1) + chunk->used;
    chunk->used += bytes;
    return block;
}

Arena *arena_new(void) {
    Chunk *chunk = new_chunk(FIRST_CHUNK - sizeof(Chunk));
    if (!chunk) return NULL;
    Arena *arena = take(chunk, align(sizeof(Arena)));
    arena->chunk = chunk;
    arena->bytes = FIRST_CHUNK;
    arena->guarded = arena->sealed = false;
    arena->outer = arena->inner = NULL;
    return arena;
}

Arena *arena_inner(Arena *outer) {
    check(!outer->inner, "an arena has two inner ones");
    Arena *arena = arena_new();
    if (!arena) arena_escape(outer);
    arena->outer = outer;
    outer->inner = arena;
    return arena;
}

void arena_free(Arena *arena) {
    if (arena && arena->inner) arena_free(arena->inner);
    if (arena && arena->outer) arena->outer->inner = NULL;
    Chunk *chunk = arena ? arena->chunk : NULL;
    while (chunk) { /* the arena dies with one of them */
        Chunk *older = chunk->older;
        free_chunk(chunk);
        chunk = older;
    }
}

void arena_seal(Arena *arena) {
    arena->sealed = true;
    arena->chunk->capacity = arena->chunk->used; /* the next allocation looks for a chunk */
}

jmp_buf *arena_escape_point(Arena *arena) {
    check(!arena->sealed, "a finished arena is written to");
    arena->guarded = true;
    return &arena->escape;
}

void arena_escape(Arena *arena) {
    if (arena->outer) arena_escape(arena->outer);
    check(arena->guarded, "out of memory in an arena that nobody guards");
    longjmp(arena->escape, 1);
}

/* The chunk that the block comes from. What is larger than a step has one of its own, behind the
 * one that is being filled. */
static Chunk *add_chunk(Arena *arena, size_t bytes) {
    check(!arena->sealed, "a finished arena is written to");
    size_t step = arena->bytes < LARGEST_STEP ? arena->bytes : LARGEST_STEP;
    if (bytes > SIZE_MAX - 2 * sizeof(Chunk)) arena_escape(arena);
    bool large = bytes > step - sizeof(Chunk);
    size_t capacity = large ? bytes : step - sizeof(Chunk);
    Chunk *chunk = new_chunk(capacity);
    if (!chunk) arena_escape(arena);
    Chunk **place = large ? &arena->chunk->older : &arena->chunk;
    chunk->older = *place;
    *place = chunk;
    arena->bytes += sizeof(Chunk) + capacity;
    return chunk;
}

void *arena_alloc(Arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX - ALIGNMENT) arena_escape(arena);
    bytes = align(bytes);
    bool fits = bytes <= arena->chunk->capacity - arena->chunk->used;
    return take(fits ? arena->chunk : add_chunk(arena, bytes), bytes);
}

void *arena_zalloc(Arena *arena, size_t bytes) {
    return memset(arena_alloc(arena, bytes), 0, bytes);
}

char *arena_text(Arena *arena, const char *text) {
    size_t bytes = strlen(text) + 1;
    return memcpy(arena_alloc(arena, bytes), text, bytes);
}

char *arena_format(Arena *arena, const char *format, ...) {
    char head[FORMAT_BYTES]; /* all of most texts, which are formatted once */
    va_list arguments;
    va_start(arguments, format);
    size_t length = format_list(head, sizeof head, format, arguments);
    va_end(arguments);
    char *text = arena_alloc(arena, length + 1);
    if (length < sizeof head) return memcpy(text, head, length + 1);
    va_start(arguments, format);
    format_list(text, length + 1, format, arguments);
    va_end(arguments);
    return text;
}

size_t arena_bytes(const Arena *arena) { return arena->bytes; }
