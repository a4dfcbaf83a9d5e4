/* Storages: reference-counted blocks of a device's memory, from a cache by device and size class.
 *
 * storage_new(bytes) -> a block of the smallest class that holds them, 64-byte aligned, contents
 * undefined. The last storage_release puts the block into the cache of its class, from where the
 * next storage_new of that class takes it, pages already faulted in. Classes are multiples of 64
 * bytes up to 512, then eight steps to each doubling, so at most an eighth of a block is unused.
 *
 * Invariants: cached bytes stay under the option storage_limit_mb; when they would pass it, or
 * when no memory is left, the whole cache goes back to where it came from (device/device.h). The
 * block of the host's memory lies in front of its elements, any other one on the heap. One lock per
 * class group; nothing is allocated or freed under a lock.
 *
 * Sizes that grow leave blocks behind that nobody asks for again. So whoever finds no large block
 * gives idle ones back: those whose time in the cache, in bytes of large storages that were made
 * meanwhile, is IDLE_TIMES what was freed after them and IDLE_FLOOR. What went and was asked for
 * again tells how long blocks of its class wait: none of them goes before MISSED_TIMES of that, so
 * what is made over and over in the same sizes finds its blocks after a few rounds.
 *
 * Elements of large blocks begin at one of SPREADS places in a page. Where all begin at the same
 * one, a loop over more of them than a cache has ways finds its lines gone before it comes back.
 *
 *     storage_new(1000) -> class of 1024 bytes: 960 < 1000 <= 1024 */
#include "tensor/thread.h"

#include "base/lock.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/poison.h"

enum { ALIGNMENT = 64, CLASS_COUNT = 320 };
enum { SPREADS = 8, SPREAD = 4096 / SPREADS + ALIGNMENT, SPREAD_FROM = 1 << 16 };
enum { IDLE_TIMES = 4, IDLE_FLOOR = 4 << 20, MISSED_TIMES = 2 };
#define LARGEST_BLOCK ((size_t)1 << 46)

typedef struct StorageBlock StorageBlock;
struct StorageBlock {
    Storage storage;    /* first: a Storage is its StorageBlock */
    StorageBlock *next; /* in the cache */
    int slot;
    uint8_t kind; /* of its memory, as its device calls it */
};
_Static_assert(sizeof(StorageBlock) <= ALIGNMENT, "one cache line in front of the elements");

/* The process's storage cache: a documented singleton. */
static struct {
    StorageBlock *free[DEVICE_COUNT][CLASS_COUNT]; /* each under its lock */
    _Atomic int64_t held;                          /* live + cached */
    _Atomic int64_t live, peak;
    _Atomic unsigned large;          /* blocks that were made */
    _Atomic int64_t traffic, looked; /* bytes of large storages; as it was when idle ones went */
    struct {
        _Atomic int64_t since;  /* the traffic when the idle block that went last had come */
        _Atomic int64_t waited; /* how long it had been idle when it was asked for again */
    } gone[CLASS_COUNT];
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

static StorageBlock *take(int device, int slot) {
    lock_take(lock_of(slot));
    StorageBlock *block = cache.free[device][slot];
    if (block) cache.free[device][slot] = block->next;
    lock_give(lock_of(slot));
    return block;
}

static void give(StorageBlock *block) {
    lock_take(lock_of(block->slot));
    StorageBlock **list = &cache.free[block->storage.device][block->slot];
    block->next = *list;
    *list = block;
    lock_give(lock_of(block->slot));
}

/* In the host's memory: the block before its elements, which begin at a multiple of ALIGNMENT. */
static size_t bytes_of(size_t capacity) {
    size_t room = capacity >= SPREAD_FROM ? (SPREADS - 1) * SPREAD : 0;
    return sizeof(StorageBlock) + ALIGNMENT - 1 + room + capacity;
}

static uintptr_t spread(size_t capacity) {
    if (capacity < SPREAD_FROM) return 0;
    return atomic_fetch_add_explicit(&cache.large, 1, memory_order_relaxed) % SPREADS * SPREAD;
}

static StorageBlock *take_memory(int device, size_t capacity) {
    uint8_t kind;
    bool host = device_is_host(device);
    void *memory = devices[device]->allocate(host ? bytes_of(capacity) : capacity, &kind);
    if (!memory) return NULL;
    StorageBlock *block = host ? memory : memory_alloc(sizeof *block);
    if (!block) {
        devices[device]->release(memory, capacity, kind);
        return NULL;
    }
    uintptr_t after = ((uintptr_t)(block + 1) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    block->storage.data = host ? (void *)(after + spread(capacity)) : memory;
    block->storage.device = (uint8_t)device;
    block->kind = kind;
    return block;
}

static void give_memory(StorageBlock *block) {
    const Device *device = devices[block->storage.device];
    size_t capacity = block->storage.bytes;
    device->release(device->host ? block : block->storage.data,
                    device->host ? bytes_of(capacity) : capacity, block->kind);
    if (!device->host) memory_free(block);
}

static void drop(StorageBlock *block) {
    if (device_is_host(block->storage.device))
        memory_unpoison(block->storage.data, block->storage.bytes);
    atomic_fetch_sub_explicit(&cache.held, (int64_t)block->storage.bytes, memory_order_relaxed);
    give_memory(block);
}

static void drop_all(StorageBlock *block) {
    for (StorageBlock *next; block; block = next) {
        next = block->next;
        drop(block);
    }
}

/* ---- idle blocks ----------------------------------------------------------------------------- */

/* Of a block in the cache, the serial is the traffic when it came. */
static int64_t idle_since(const StorageBlock *block, int64_t now) {
    int64_t idle = now - (int64_t)block->storage.serial;
    return idle > 0 ? idle : 1;
}

/* held: bytes by the power of two that their idle time has reached. */
static void add_idle(int device, int slot, int64_t now, int64_t held[64]) {
    lock_take(lock_of(slot));
    for (StorageBlock *b = cache.free[device][slot]; b; b = b->next)
        held[63 - __builtin_clzll((uint64_t)idle_since(b, now))] += (int64_t)b->storage.bytes;
    lock_give(lock_of(slot));
}

/* A list begins with what came last. */
static StorageBlock *take_idle(int device, int slot, int64_t now, int64_t least) {
    int64_t missed = atomic_load_explicit(&cache.gone[slot].waited, memory_order_relaxed);
    if (least < MISSED_TIMES * missed) least = MISSED_TIMES * missed;
    lock_take(lock_of(slot));
    StorageBlock **at = &cache.free[device][slot];
    while (*at && idle_since(*at, now) < least) at = &(*at)->next;
    StorageBlock *idle = *at;
    *at = NULL;
    lock_give(lock_of(slot));
    if (idle)
        atomic_store_explicit(&cache.gone[slot].since, (int64_t)idle->storage.serial,
                              memory_order_relaxed);
    return idle;
}

/* A block of this class is made anew: one that went was missed, if there was one. */
static void note_missed(int slot) {
    int64_t now = atomic_load_explicit(&cache.traffic, memory_order_relaxed);
    int64_t since = atomic_exchange_explicit(&cache.gone[slot].since, 0, memory_order_relaxed);
    if (since) atomic_store_explicit(&cache.gone[slot].waited, now - since, memory_order_relaxed);
}

static void drop_idle(int device, int first_slot) {
    int64_t held[64] = {0}, now = atomic_load_explicit(&cache.traffic, memory_order_relaxed);
    int64_t looked = atomic_load_explicit(&cache.looked, memory_order_relaxed), newer = IDLE_FLOOR;
    if (now - looked < IDLE_FLOOR) return;
    atomic_store_explicit(&cache.looked, now, memory_order_relaxed);
    for (int slot = first_slot; slot < CLASS_COUNT; slot++) add_idle(device, slot, now, held);
    int power = 0;
    while (power < 62 && (!held[power] || (int64_t)1 << power < IDLE_TIMES * newer))
        newer += held[power++];
    if (power == 62) return;
    for (int slot = first_slot; slot < CLASS_COUNT; slot++)
        drop_all(take_idle(device, slot, now, (int64_t)1 << power));
}

static void fail_no_memory(int device, size_t bytes) {
    if (device_is_host(device))
        fail_memory(bytes);
    else
        fail(CB_ERR_MEMORY, "out of memory: %zu bytes could not be allocated on device %s", bytes,
             devices[device]->name);
}

static StorageBlock *allocate(int device, int slot, size_t capacity) {
    size_t least;
    if (capacity >= SPREAD_FROM) {
        note_missed(slot);
        drop_idle(device, size_class(SPREAD_FROM, &least));
    }
    StorageBlock *block = take_memory(device, capacity);
    if (!block) {
        storage_trim();
        block = take_memory(device, capacity);
    }
    if (!block) {
        fail_no_memory(device, capacity);
        return NULL;
    }
    block->storage.bytes = capacity;
    block->slot = slot;
    atomic_fetch_add_explicit(&cache.held, (int64_t)capacity, memory_order_relaxed);
    return block;
}

static void raise_peak(int64_t live) {
    int64_t peak = atomic_load_explicit(&cache.peak, memory_order_relaxed);
    while (live > peak &&
           !atomic_compare_exchange_weak_explicit(&cache.peak, &peak, live, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

/* With NaN; where a device cannot be used any more, nobody reads it. */
static void overwrite(const Storage *storage) {
    cb_status before = cb_error_status();
    bool filled = devices[storage->device]->fill(storage->data, 0xFF, storage->bytes);
    if (!filled && before == CB_OK) cb_clear_error();
}

/* Who reads through a pointer into it sees NaN with the option check, and is stopped by
 * AddressSanitizer. */
static void recycle(StorageBlock *block) {
    int64_t bytes = (int64_t)block->storage.bytes;
    int device = block->storage.device;
    if (option_now(OPTION_check)) overwrite(&block->storage);
    if (device_is_host(device)) memory_poison(block->storage.data, block->storage.bytes);
    int64_t live = atomic_fetch_sub_explicit(&cache.live, bytes, memory_order_relaxed) - bytes;
    int64_t cached =
        atomic_load_explicit(&cache.held, memory_order_relaxed) - live; /* with block */
    int64_t limit = option_int(OPTION_storage_limit_mb) * (1 << 20);
    if (cached <= limit) {
        block->storage.serial =
            (uint64_t)atomic_load_explicit(&cache.traffic, memory_order_relaxed);
        give(block);
    } else {
        drop(block);
        storage_trim();
    }
}

void storage_written(Storage *storage) {
    atomic_fetch_add_explicit(&storage->version, 1, memory_order_relaxed);
}

Storage *storage_new_on(int device, size_t bytes) {
    if (bytes > LARGEST_BLOCK) {
        fail_memory(bytes);
        return NULL;
    }
    size_t capacity;
    int slot = size_class(bytes, &capacity);
    StorageBlock *block = take(device, slot);
    if (!block) block = allocate(device, slot, capacity);
    if (!block) return NULL;
    if (device_is_host(device)) memory_unpoison(block->storage.data, capacity);
    atomic_store_explicit(&block->storage.references, 1, memory_order_relaxed);
    block->storage.parameter = false;
    block->storage.serial = serial_next();
    atomic_store_explicit(&block->storage.version, 0, memory_order_relaxed);
    int64_t added = (int64_t)capacity;
    if (capacity >= SPREAD_FROM)
        atomic_fetch_add_explicit(&cache.traffic, added, memory_order_relaxed);
    raise_peak(atomic_fetch_add_explicit(&cache.live, added, memory_order_relaxed) + added);
    return &block->storage;
}

Storage *storage_new(size_t bytes) { return storage_new_on(DEVICE_cpu, bytes); }

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

static void trim(StorageBlock **first, int lock) {
    lock_take(lock);
    StorageBlock *block = *first;
    *first = NULL;
    lock_give(lock);
    drop_all(block);
}

void storage_trim(void) {
    for (int slot = 0; slot < CLASS_COUNT; slot++) {
        atomic_store_explicit(&cache.gone[slot].since, 0, memory_order_relaxed);
        atomic_store_explicit(&cache.gone[slot].waited, 0, memory_order_relaxed);
    }
    for (int device = 0; device < DEVICE_COUNT; device++)
        for (int slot = 0; slot < CLASS_COUNT; slot++)
            trim(&cache.free[device][slot], lock_of(slot));
}

cb_memory_stats storage_stats(void) {
    cb_memory_stats stats = {0};
    stats.live_bytes = atomic_load_explicit(&cache.live, memory_order_relaxed);
    stats.peak_bytes = atomic_load_explicit(&cache.peak, memory_order_relaxed);
    int64_t cached = atomic_load_explicit(&cache.held, memory_order_relaxed) - stats.live_bytes;
    stats.cached_bytes = cached > 0 ? cached : 0; /* both numbers move while other threads work */
    return stats;
}
