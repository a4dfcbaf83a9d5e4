/* Built ops by key: a process-wide table of at most SHARDS * SHARD_LIMIT executables, a documented
 * singleton.
 *
 * A shard is chosen by the hash and has a lock, a few hash chains, and a list in order of use; when
 * it is full its least recently used entry goes. Nothing is built, run or freed under a lock. */
#include "base/lock.h"
#include "base/map.h"
#include "base/memory.h"
#include "eager/eager.h"
#include <stdatomic.h>
#include <string.h>

enum { SHARDS = LOCKS_eager, SHARD_LIMIT = 64, CHAINS = 64 };

struct EagerEntry {
    Executable *executable;
    GradientNeeds needs;
    _Atomic int references; /* the table's and those of running calls */
    EagerEntry *chain;      /* next in its hash chain */
    EagerEntry *newer, *older;
    uint64_t hash;
    int words;
    int64_t key[];
};

typedef struct Shard {
    EagerEntry *chain[CHAINS];
    EagerEntry *newest, *oldest;
    int count;
} Shard;

static Shard shards[SHARDS]; /* each under its lock */

static Shard *shard_of(uint64_t hash) { return &shards[hash % SHARDS]; }

static EagerEntry **chain_of(Shard *shard, uint64_t hash) {
    return &shard->chain[hash / SHARDS % CHAINS];
}

static int lock_of(const Shard *shard) { return LOCK_eager + (int)(shard - shards); }

/* ---- under the shard's lock ---- */

static void unlink_use(Shard *shard, EagerEntry *entry) {
    *(entry->newer ? &entry->newer->older : &shard->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &shard->oldest) = entry->newer;
}

static void link_newest(Shard *shard, EagerEntry *entry) {
    entry->newer = NULL, entry->older = shard->newest;
    *(shard->newest ? &shard->newest->newer : &shard->oldest) = entry;
    shard->newest = entry;
}

static EagerEntry *look_up(Shard *shard, const int64_t *key, int words, uint64_t hash) {
    EagerEntry *entry = *chain_of(shard, hash);
    while (entry && (entry->hash != hash || entry->words != words ||
                     memcmp(entry->key, key, sizeof *key * (size_t)words) != 0))
        entry = entry->chain;
    if (!entry) return NULL;
    if (entry != shard->newest) {
        unlink_use(shard, entry);
        link_newest(shard, entry);
    }
    atomic_fetch_add_explicit(&entry->references, 1, memory_order_relaxed);
    return entry;
}

static EagerEntry *remove_oldest(Shard *shard) {
    EagerEntry *entry = shard->oldest, **link = chain_of(shard, entry->hash);
    while (*link != entry) link = &(*link)->chain;
    *link = entry->chain;
    unlink_use(shard, entry);
    shard->count--;
    return entry;
}

/* ---- entries ---- */

EagerEntry *eager_find(const int64_t *key, int words, uint64_t hash) {
    Shard *shard = shard_of(hash);
    lock_take(lock_of(shard));
    EagerEntry *entry = look_up(shard, key, words, hash);
    lock_give(lock_of(shard));
    return entry;
}

EagerEntry *eager_add(const int64_t *key, int words, uint64_t hash, Executable *executable,
                      GradientNeeds needs) {
    size_t bytes = sizeof(EagerEntry) + sizeof *key * (size_t)words;
    EagerEntry *entry = memory_alloc(bytes);
    if (!entry) {
        executable_free(executable);
        fail_memory(bytes);
        return NULL;
    }
    *entry = (EagerEntry){
        .executable = executable, .needs = needs, .references = 2, .hash = hash, .words = words};
    memcpy(entry->key, key, sizeof *key * (size_t)words);
    Shard *shard = shard_of(hash);
    lock_take(lock_of(shard));
    EagerEntry *out = shard->count == SHARD_LIMIT ? remove_oldest(shard) : NULL;
    entry->chain = *chain_of(shard, hash);
    *chain_of(shard, hash) = entry;
    link_newest(shard, entry);
    shard->count++;
    lock_give(lock_of(shard));
    if (out) eager_release(out);
    return entry;
}

GradientNeeds eager_needs(const EagerEntry *entry) { return entry->needs; }

const Executable *eager_executable(const EagerEntry *entry) { return entry->executable; }

void eager_release(EagerEntry *entry) {
    if (atomic_fetch_sub_explicit(&entry->references, 1, memory_order_acq_rel) != 1) return;
    executable_free(entry->executable);
    memory_free(entry);
}

void eager_cleanup(void) {
    for (int i = 0; i < SHARDS; i++)
        for (bool more = true; more;) {
            lock_take(LOCK_eager + i);
            EagerEntry *out = shards[i].count ? remove_oldest(&shards[i]) : NULL;
            lock_give(LOCK_eager + i);
            if (out) eager_release(out);
            more = out != NULL;
        }
}
