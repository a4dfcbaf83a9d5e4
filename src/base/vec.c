/* Growable arrays: a header of 16 bytes, then the elements, in an arena.
 *
 * In: a vector (or NULL) and how many more elements must fit. Out: the vector, perhaps moved.
 * Capacities begin with 8, or with fewer large elements, and double, so n pushes copy fewer than 2n
 * elements; what was outgrown stays in the arena. */
#include "base/vec.h"
#include "base/error.h"
#include <limits.h>
#include <stdint.h>
#include <string.h>

enum { HEADER = 16, FIRST_CAPACITY = 8, FIRST_BYTES = 512 };

static int first_capacity(size_t element) {
    if (element * FIRST_CAPACITY <= FIRST_BYTES) return FIRST_CAPACITY;
    return element < FIRST_BYTES ? FIRST_BYTES / (int)element : 1;
}

void *vec_grow(Arena *arena, void *vec, int extra, size_t element) {
    int used = length(vec), capacity = vec ? vec_header(vec)->capacity : 0;
    check(extra >= 0 && used <= INT_MAX / 2 - extra, "a vector of %d + %d elements", used, extra);
    if (used + extra <= capacity && vec) return vec;
    capacity = capacity ? capacity : first_capacity(element);
    while (capacity < used + extra) capacity *= 2;
    if (element > (SIZE_MAX - HEADER) / (size_t)capacity) arena_escape(arena);
    char *block = arena_alloc(arena, HEADER + element * (size_t)capacity);
    char *grown = block + HEADER;
    *vec_header(grown) = (VecHeader){.length = used, .capacity = capacity};
    if (used) memcpy(grown, vec, element * (size_t)used);
    return grown;
}
