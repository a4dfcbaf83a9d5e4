/* Hash map from 64-bit keys to pointers, and the hash function of everything (xxHash, XXH3-64).
 * An intern table is a map whose values chain on equal keys through the caller's own comparison:
 *
 *     for (MapEntry *e = map_first(m, hash); e; e = map_next(e)) if (same(e->value, key)) ...  */
#ifndef CARBIDE_BASE_MAP_H
#define CARBIDE_BASE_MAP_H

#include "base/arena.h"
#include <stdint.h>

typedef struct MapEntry {
    uint64_t key;
    void *value;
    struct MapEntry *next;
} MapEntry;

typedef struct Map {
    Arena *arena;
    MapEntry **bucket;
    uint32_t mask, count;
} Map;

Map map_new(Arena *arena);
void map_put(Map *map, uint64_t key, void *value); /* does not replace: the newest is found first */
void *map_get(const Map *map, uint64_t key);       /* NULL when absent */
MapEntry *map_first(const Map *map, uint64_t key);
MapEntry *map_next(const MapEntry *entry); /* next with the same key */

uint64_t hash_bytes(const void *bytes, size_t count, uint64_t seed);
/* Order matters. The two halves of a product, as in wyhash (Wang Yi): two words are too few for
 * hash_bytes to be worth its call. */
static inline uint64_t hash_mix(uint64_t a, uint64_t b) {
    __extension__ typedef unsigned __int128 Product;
    Product p = (Product)(a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xe7037ed1a0b428dbu);
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}
uint64_t hash_text(const char *text);

#endif
