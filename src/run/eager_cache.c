/* Built ops by key: a process-wide table of at most SHARDS * SHARD_LIMIT executables, a documented
 * singleton.
 *
 * A shard is chosen by the hash and has a lock, a few hash chains, and a list in order of use; when
 * it is full its least recently used entry goes. Nothing is built, run or freed under a lock. */
#include "base/map.h"
#include "base/memory.h"
#include "run/eager.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { SHARDS = 8, SHARD_LIMIT = 64, CHAINS = 64 };

struct EagerEntry {
    Executable *executable;
    _Atomic int references; /* the table's and those of running calls */
    EagerEntry *chain;      /* next in its hash chain */
    EagerEntry *newer, *older;
    uint64_t hash;
    int words;
    int64_t key[];
};

typedef struct Shard {
    _Alignas(64) pthread_mutex_t mutex;
    EagerEntry *chain[CHAINS];
    EagerEntry *newest, *oldest;
    int count;
} Shard;

static Shard shards[SHARDS] = {[0 ... SHARDS - 1] = {.mutex = PTHREAD_MUTEX_INITIALIZER}};

static Shard *shard_of(uint64_t hash) { return &shards[hash % SHARDS]; }

static EagerEntry **chain_of(Shard *shard, uint64_t hash) {
    return &shard->chain[hash / SHARDS % CHAINS];
}

/* ---- fork: a child must not inherit a lock that another thread of its parent held ---- */

static void lock_all(void) {
    for (int i = 0; i < SHARDS; i++) pthread_mutex_lock(&shards[i].mutex);
}

static void unlock_all(void) {
    for (int i = SHARDS - 1; i >= 0; i--) pthread_mutex_unlock(&shards[i].mutex);
}

static void watch_fork(void) { pthread_atfork(lock_all, unlock_all, unlock_all); }

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
    pthread_mutex_lock(&shard->mutex);
    EagerEntry *entry = look_up(shard, key, words, hash);
    pthread_mutex_unlock(&shard->mutex);
    return entry;
}

EagerEntry *eager_add(const int64_t *key, int words, uint64_t hash, Executable *executable) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_fork);
    size_t bytes = sizeof(EagerEntry) + sizeof *key * (size_t)words;
    EagerEntry *entry = memory_alloc(bytes);
    if (!entry) {
        executable_free(executable);
        fail_memory(bytes);
        return NULL;
    }
    *entry = (EagerEntry){.executable = executable, .references = 2, .hash = hash, .words = words};
    memcpy(entry->key, key, sizeof *key * (size_t)words);
    Shard *shard = shard_of(hash);
    pthread_mutex_lock(&shard->mutex);
    EagerEntry *out = shard->count == SHARD_LIMIT ? remove_oldest(shard) : NULL;
    entry->chain = *chain_of(shard, hash);
    *chain_of(shard, hash) = entry;
    link_newest(shard, entry);
    shard->count++;
    pthread_mutex_unlock(&shard->mutex);
    if (out) eager_release(out);
    return entry;
}

const Executable *eager_executable(const EagerEntry *entry) { return entry->executable; }

void eager_release(EagerEntry *entry) {
    if (atomic_fetch_sub_explicit(&entry->references, 1, memory_order_acq_rel) != 1) return;
    executable_free(entry->executable);
    memory_free(entry);
}

void eager_cleanup(void) {
    for (int i = 0; i < SHARDS; i++)
        for (bool more = true; more;) {
            pthread_mutex_lock(&shards[i].mutex);
            EagerEntry *out = shards[i].count ? remove_oldest(&shards[i]) : NULL;
            pthread_mutex_unlock(&shards[i].mutex);
            if (out) eager_release(out);
            more = out != NULL;
        }
}
