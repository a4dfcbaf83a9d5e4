/* Sets of numbers, which only grow until they are freed.
 *
 * In: numbers. Out: whether they have been added.
 * Invariant: the room is a power of two, and at least half of it is free, so that a number stands
 * near the place that its hash says. */
#include "base/set.h"

#include "base/memory.h"

enum { FIRST_ROOM = 16 };

/* Where the number is, or would be. */
static int find_place(const Set *set, uint64_t number) {
    int at = (int)(number * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (set->room - 1);
    while (set->place[at] && set->place[at] != number) at = (at + 1) & (set->room - 1);
    return at;
}

static bool grow(Set *set) {
    Set grown = {.room = set->room ? 2 * set->room : FIRST_ROOM, .count = set->count};
    grown.place = memory_zalloc(sizeof *grown.place * (size_t)grown.room);
    if (!grown.place) return false;
    for (int i = 0; i < set->room; i++)
        if (set->place[i]) grown.place[find_place(&grown, set->place[i])] = set->place[i];
    memory_free(set->place);
    *set = grown;
    return true;
}

bool set_has(const Set *set, uint64_t number) {
    return set->count && set->place[find_place(set, number)];
}

bool set_add(Set *set, uint64_t number) {
    if (2 * set->count >= set->room && !grow(set)) return false;
    uint64_t *place = &set->place[find_place(set, number)];
    set->count += !*place;
    *place = number;
    return true;
}

void set_free(Set *set) {
    memory_free(set->place);
    *set = (Set){0};
}
