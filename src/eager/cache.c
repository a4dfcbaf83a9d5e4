/* Built ops by key: a process-wide table, a documented singleton, of what is used: it grows as keys
 * come, up to SHARD_BYTES of built ops in each of SHARDS parts.
 *
 * A shard is chosen by the hash and has a lock and hash chains. When it is full, a hand goes round
 * its chains, passes over what was used since it last came by, and takes the next one: chains lie
 * in no order of time, so that of a cycle of more keys than there is room for many are found,
 * where the least recently used one would always be the next to come. Nothing is built, run or
 * freed under a lock. */
#include "base/lock.h"
#include "base/map.h"
#include "base/memory.h"
#include "eager/eager.h"
#include <stdatomic.h>
#include <string.h>

enum { SHARDS = LOCKS_eager, SHARD_BYTES = 8 << 20, CHAINS = 1024 };

struct EagerEntry {
    Executable *executable;
    GradientNeeds needs;
    _Atomic int references; /* the table's and those of running calls */
    EagerEntry *chain;      /* next in its hash chain */
    uint64_t hash;
    size_t bytes; /* with its executable */
    bool used;    /* since the hand passed it */
    int words;
    int64_t key[];
};

typedef struct Shard {
    EagerEntry *chain[CHAINS];
    int hand; /* the chain that it comes to next */
    EagerCounts counts;
} Shard;

static Shard shards[SHARDS]; /* each under its lock */

static Shard *shard_of(uint64_t hash) { return &shards[hash % SHARDS]; }

static EagerEntry **chain_of(Shard *shard, uint64_t hash) {
    return &shard->chain[hash / SHARDS % CHAINS];
}

static int lock_of(const Shard *shard) { return LOCK_eager + (int)(shard - shards); }

/* ---- under the shard's lock ---- */

static EagerEntry *look_up(Shard *shard, const int64_t *key, int words, uint64_t hash) {
    EagerEntry *entry = *chain_of(shard, hash);
    while (entry && (entry->hash != hash || entry->words != words ||
                     memcmp(entry->key, key, sizeof *key * (size_t)words) != 0))
        entry = entry->chain;
    if (!entry) return NULL;
    entry->used = true;
    atomic_fetch_add_explicit(&entry->references, 1, memory_order_relaxed);
    return entry;
}

/* What the hand takes, of a shard that is not empty. */
static EagerEntry *remove_one(Shard *shard) {
    for (;;) {
        EagerEntry **link = &shard->chain[shard->hand], *entry;
        shard->hand = (shard->hand + 1) % CHAINS;
        for (; (entry = *link) && entry->used; link = &entry->chain) entry->used = false;
        if (!entry) continue;
        *link = entry->chain;
        shard->counts.entries--;
        shard->counts.bytes -= (int64_t)entry->bytes;
        return entry;
    }
}

/* A list, by chain, of at least `bytes` less; or all. */
static EagerEntry *make_room(Shard *shard, int64_t bytes) {
    EagerEntry *out = NULL;
    while (shard->counts.entries && shard->counts.bytes + bytes > SHARD_BYTES) {
        EagerEntry *one = remove_one(shard);
        one->chain = out;
        out = one;
    }
    return out;
}

/* ---- entries ---- */

EagerEntry *eager_find(const int64_t *key, int words, uint64_t hash) {
    Shard *shard = shard_of(hash);
    lock_take(lock_of(shard));
    EagerEntry *entry = look_up(shard, key, words, hash);
    lock_give(lock_of(shard));
    return entry;
}

static EagerEntry *entry_new(const int64_t *key, int words, uint64_t hash, Executable *executable,
                             GradientNeeds needs) {
    size_t bytes = sizeof(EagerEntry) + sizeof *key * (size_t)words;
    EagerEntry *entry = memory_alloc(bytes);
    if (!entry) return NULL;
    *entry = (EagerEntry){.executable = executable,
                          .needs = needs,
                          .references = 2,
                          .hash = hash,
                          .bytes = bytes + executable_bytes(executable),
                          .words = words};
    memcpy(entry->key, key, sizeof *key * (size_t)words);
    return entry;
}

static void release_all(EagerEntry *out) {
    for (EagerEntry *next; out; out = next) {
        next = out->chain;
        eager_release(out);
    }
}

EagerEntry *eager_add(const int64_t *key, int words, uint64_t hash, Executable *executable,
                      GradientNeeds needs) {
    EagerEntry *entry = entry_new(key, words, hash, executable, needs);
    if (!entry) {
        executable_free(executable);
        fail_memory(sizeof *entry);
        return NULL;
    }
    Shard *shard = shard_of(hash);
    lock_take(lock_of(shard));
    EagerEntry *out = make_room(shard, (int64_t)entry->bytes);
    entry->chain = *chain_of(shard, hash);
    *chain_of(shard, hash) = entry;
    shard->counts.built++;
    shard->counts.entries++;
    shard->counts.bytes += (int64_t)entry->bytes;
    lock_give(lock_of(shard));
    release_all(out);
    return entry;
}

GradientNeeds eager_needs(const EagerEntry *entry) { return entry->needs; }

const Executable *eager_executable(const EagerEntry *entry) { return entry->executable; }

void eager_release(EagerEntry *entry) {
    if (atomic_fetch_sub_explicit(&entry->references, 1, memory_order_acq_rel) != 1) return;
    executable_free(entry->executable);
    memory_free(entry);
}

EagerCounts eager_counts(void) {
    EagerCounts counts = {0};
    for (int i = 0; i < SHARDS; i++) {
        lock_take(LOCK_eager + i);
        counts.built += shards[i].counts.built;
        counts.entries += shards[i].counts.entries;
        counts.bytes += shards[i].counts.bytes;
        lock_give(LOCK_eager + i);
    }
    return counts;
}

void eager_cleanup(void) {
    for (int i = 0; i < SHARDS; i++) {
        lock_take(LOCK_eager + i);
        EagerEntry *out = make_room(&shards[i], SHARD_BYTES + 1);
        lock_give(LOCK_eager + i);
        release_all(out);
    }
}
