/* A growable array on a plain pointer: T *v = NULL; push(arena, v, x); v[i]; length(v).
 * The header sits before element 0, in the arena. An empty vector is NULL. */
#ifndef CARBIDE_BASE_VEC_H
#define CARBIDE_BASE_VEC_H

#include "base/arena.h"
#include <stdbool.h>

typedef struct VecHeader {
    int length, capacity;
} VecHeader;

void *vec_grow(Arena *arena, void *vec, int extra, size_t element); /* room for extra more */

#define vec_header(v) ((VecHeader *)(void *)((char *)(v) - 16))

static inline int vec_length(const void *vec) { return vec ? vec_header(vec)->length : 0; }

static inline void vec_truncate(void *vec, int count) {
    if (vec) vec_header(vec)->length = count;
}

#define length(v) vec_length(v)
/* Mostly there is room. */
static inline bool vec_is_full(const void *vec) {
    return !vec || vec_header(vec)->length == vec_header(vec)->capacity;
}

#define push(arena, v, ...)                                                                        \
    do {                                                                                           \
        if (vec_is_full(v)) (v) = vec_grow((arena), (v), 1, sizeof *(v));                          \
        (v)[vec_header(v)->length++] = (__VA_ARGS__);                                              \
    } while (0)
#define pop(v) ((v)[--vec_header(v)->length])
#define truncate_to(v, n) vec_truncate((v), (n))

#endif
