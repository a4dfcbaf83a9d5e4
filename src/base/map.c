/* Hash map with chains, in an arena: 64-bit keys, which are hashes already, to pointers.
 *
 * In: keys and values. Out: the values of a key, newest first.
 * Invariants: the bucket count is a power of two, at least the entry count; entries of equal keys
 * keep their order when the table grows, so that lookups and everything printed from them are
 * deterministic. */
#define XXH_INLINE_ALL
#include "base/map.h"
#include <string.h>
#include <xxhash.h>

enum { FIRST_BUCKETS = 16 };

Map map_new(Arena *arena) { return (Map){.arena = arena}; }

/* Doubles the table: the entries of one old bucket go, in order, to two new ones. */
static void grow(Map *map) {
    uint32_t old_count = map->bucket ? map->mask + 1 : 0;
    uint32_t count = old_count ? 2 * old_count : FIRST_BUCKETS;
    MapEntry **bucket = arena_new_array(map->arena, MapEntry *, count);
    for (uint32_t i = 0; i < old_count; i++) {
        MapEntry **tail[2] = {&bucket[i], &bucket[i + old_count]};
        for (MapEntry *entry = map->bucket[i]; entry; entry = entry->next) {
            int half = (entry->key & old_count) != 0;
            *tail[half] = entry;
            tail[half] = &entry->next;
        }
        *tail[0] = *tail[1] = NULL;
    }
    map->bucket = bucket;
    map->mask = count - 1;
}

void map_put(Map *map, uint64_t key, void *value) {
    if (!map->bucket || map->count > map->mask) grow(map);
    MapEntry **bucket = &map->bucket[key & map->mask];
    MapEntry *entry = arena_alloc(map->arena, sizeof *entry);
    *entry = (MapEntry){.key = key, .value = value, .next = *bucket};
    *bucket = entry;
    map->count++;
}

static MapEntry *find(MapEntry *entry, uint64_t key) {
    while (entry && entry->key != key) entry = entry->next;
    return entry;
}

MapEntry *map_first(const Map *map, uint64_t key) {
    return map->bucket ? find(map->bucket[key & map->mask], key) : NULL;
}

MapEntry *map_next(const MapEntry *entry) { return find(entry->next, entry->key); }

void *map_get(const Map *map, uint64_t key) {
    MapEntry *entry = map_first(map, key);
    return entry ? entry->value : NULL;
}

uint64_t hash_bytes(const void *bytes, size_t count, uint64_t seed) {
    return XXH3_64bits_withSeed(bytes, count, seed);
}

uint64_t hash_text(const char *text) { return hash_bytes(text, strlen(text), 0); }
