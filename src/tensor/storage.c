/* Storages: reference-counted blocks from a cache by size class.
 *
 * storage_new(bytes) -> a block of the smallest class that holds them, 64-byte aligned, contents
 * undefined. The last storage_release puts the block into the cache of its class, from where the
 * next storage_new of that class takes it, pages already faulted in. Classes are multiples of 64
 * bytes up to 512, then eight steps to each doubling, so at most an eighth of a block is unused.
 *
 * Invariants: cached bytes stay under the option storage_limit_mb; when they would pass it, or
 * when no memory is left, the whole cache goes back to where it came from: the heap, for large
 * blocks the system (base/pages.h). One lock per class group; nothing is allocated or freed under a
 * lock.
 *
 *     storage_new(1000) -> class of 1024 bytes: 960 < 1000 <= 1024 */
#include "tensor/thread.h"

#include "base/lock.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/pages.h"
#include "base/poison.h"
#include <string.h>

enum {
    ALIGNMENT = 64,
    CLASS_COUNT = 320,
    PAGED_BLOCK = 128 << 10 /* from here on blocks have pages of their own */
};
#define LARGEST_BLOCK ((size_t)1 << 46)

typedef struct StorageBlock StorageBlock;
struct StorageBlock {
    Storage storage;    /* first: a Storage is its StorageBlock */
    StorageBlock *next; /* in the cache */
    int slot;
    bool paged; /* from pages_alloc, not from the heap */
};

/* The process's storage cache: a documented singleton. */
static struct {
    StorageBlock *free[CLASS_COUNT]; /* each under its lock */
    _Atomic int64_t held;            /* live + cached */
    _Atomic int64_t live, peak;
} cache;

static int size_class(size_t bytes, size_t *capacity) {
    if (bytes <= 512) {
        int units = bytes ? (int)((bytes + ALIGNMENT - 1) / ALIGNMENT) : 1;
        *capacity = (size_t)units * ALIGNMENT;
        return units;
    }
    int exponent = 63 - __builtin_clzll(bytes - 1);
    int shift = exponent - 3;
    int step = (int)((bytes - 1) >> shift); /* 8 .. 15 */
    *capacity = (size_t)(step + 1) << shift;
    return 9 + (exponent - 9) * 8 + (step - 8);
}

static int lock_of(int slot) { return LOCK_storage + slot % LOCKS_storage; }

static StorageBlock *take(int slot) {
    lock_take(lock_of(slot));
    StorageBlock *block = cache.free[slot];
    if (block) cache.free[slot] = block->next;
    lock_give(lock_of(slot));
    return block;
}

static void give(StorageBlock *block) {
    lock_take(lock_of(block->slot));
    block->next = cache.free[block->slot];
    cache.free[block->slot] = block;
    lock_give(lock_of(block->slot));
}

/* In memory: the block before its elements, which begin at a multiple of ALIGNMENT. */
static size_t bytes_of(size_t capacity) { return sizeof(StorageBlock) + ALIGNMENT - 1 + capacity; }

static StorageBlock *take_memory(size_t capacity) {
    size_t bytes = bytes_of(capacity);
    bool large = capacity >= PAGED_BLOCK, paged = large && !memory_of_host();
    StorageBlock *block = paged ? pages_alloc(bytes) : memory_alloc(bytes);
    if (block) block->paged = paged;
    if (block && large && !paged) pages_advise(block, bytes);
    return block;
}

static void give_memory(StorageBlock *block) {
    if (block->paged)
        pages_free(block, bytes_of(block->storage.bytes));
    else
        memory_free(block);
}

static StorageBlock *allocate(int slot, size_t capacity) {
    StorageBlock *block = take_memory(capacity);
    if (!block) {
        storage_trim();
        block = take_memory(capacity);
    }
    if (!block) {
        fail_memory(capacity);
        return NULL;
    }
    uintptr_t data = ((uintptr_t)(block + 1) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    block->storage.bytes = capacity;
    block->storage.data = (void *)data;
    block->slot = slot;
    atomic_fetch_add_explicit(&cache.held, (int64_t)capacity, memory_order_relaxed);
    return block;
}

static void drop(StorageBlock *block) {
    memory_unpoison(block->storage.data, block->storage.bytes);
    atomic_fetch_sub_explicit(&cache.held, (int64_t)block->storage.bytes, memory_order_relaxed);
    give_memory(block);
}

static void raise_peak(int64_t live) {
    int64_t peak = atomic_load_explicit(&cache.peak, memory_order_relaxed);
    while (live > peak &&
           !atomic_compare_exchange_weak_explicit(&cache.peak, &peak, live, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

/* Who reads through a pointer into it sees NaN with the option check, and is stopped by
 * AddressSanitizer. */
static void recycle(StorageBlock *block) {
    int64_t bytes = (int64_t)block->storage.bytes;
    if (option_now(OPTION_check)) memset(block->storage.data, 0xFF, block->storage.bytes);
    memory_poison(block->storage.data, block->storage.bytes);
    int64_t live = atomic_fetch_sub_explicit(&cache.live, bytes, memory_order_relaxed) - bytes;
    int64_t cached =
        atomic_load_explicit(&cache.held, memory_order_relaxed) - live; /* with block */
    int64_t limit = option_int(OPTION_storage_limit_mb) * (1 << 20);
    if (cached <= limit) {
        give(block);
    } else {
        drop(block);
        storage_trim();
    }
}

void storage_written(Storage *storage) {
    atomic_fetch_add_explicit(&storage->version, 1, memory_order_relaxed);
}

Storage *storage_new(size_t bytes) {
    if (bytes > LARGEST_BLOCK) {
        fail_memory(bytes);
        return NULL;
    }
    size_t capacity;
    int slot = size_class(bytes, &capacity);
    StorageBlock *block = take(slot);
    if (!block) block = allocate(slot, capacity);
    if (!block) return NULL;
    memory_unpoison(block->storage.data, capacity);
    atomic_store_explicit(&block->storage.references, 1, memory_order_relaxed);
    block->storage.parameter = false;
    block->storage.serial = serial_next();
    atomic_store_explicit(&block->storage.version, 0, memory_order_relaxed);
    int64_t added = (int64_t)capacity;
    raise_peak(atomic_fetch_add_explicit(&cache.live, added, memory_order_relaxed) + added);
    return &block->storage;
}

Storage *storage_retain(Storage *storage) {
    atomic_fetch_add_explicit(&storage->references, 1, memory_order_relaxed);
    return storage;
}

void storage_release(Storage *storage) {
    /* A sole owner needs no atomic read-modify-write: nobody else can retain it meanwhile. */
    if (atomic_load_explicit(&storage->references, memory_order_acquire) != 1 &&
        atomic_fetch_sub_explicit(&storage->references, 1, memory_order_acq_rel) != 1)
        return;
    recycle((StorageBlock *)storage);
}

void storage_trim(void) {
    for (int slot = 0; slot < CLASS_COUNT; slot++) {
        lock_take(lock_of(slot));
        StorageBlock *block = cache.free[slot];
        cache.free[slot] = NULL;
        lock_give(lock_of(slot));
        while (block) {
            StorageBlock *next = block->next;
            drop(block);
            block = next;
        }
    }
}

cb_memory_stats storage_stats(void) {
    cb_memory_stats stats = {0};
    stats.live_bytes = atomic_load_explicit(&cache.live, memory_order_relaxed);
    stats.peak_bytes = atomic_load_explicit(&cache.peak, memory_order_relaxed);
    int64_t cached = atomic_load_explicit(&cache.held, memory_order_relaxed) - stats.live_bytes;
    stats.cached_bytes = cached > 0 ? cached : 0; /* both numbers move while other threads work */
    return stats;
}
