/* Large blocks, cut one after the other from regions of address space that ask for huge pages.
 *
 * 250 MB that are touched for the first time take 50 ms in pages of 4 KB and 8 ms in huge ones of
 * 2 MB (2 threads, Zen 5). A huge page must lie in one mapping as a whole, so a block of a few
 * megabytes from malloc gets one or none. Here its neighbours share them:
 *
 *     region of 64 MB   | block 1 | block 2 | block 3 ->            not touched: no memory |
 *     huge pages        |    |    |    |    |    |    |    |    |    |    |    |    |    |
 *
 * pages_free gives the block's own pages back to the system, and their addresses. There is no
 * lock, so a fork finds none taken: `next` moves by compare-and-exchange. */
#include "base/pages.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((uintptr_t)2 << 20)
#define REGION ((uintptr_t)64 << 20) /* also what its address is a multiple of */
#define OWN_REGION (REGION / 2)      /* larger blocks have one each */

/* Where the next block begins. At a multiple of REGION that region is full, or there is none. */
static _Atomic uintptr_t next;

static uintptr_t down(uintptr_t value, uintptr_t unit) { return value / unit * unit; }
static uintptr_t up(uintptr_t value, uintptr_t unit) { return down(value + unit - 1, unit); }
static uintptr_t page(void) { return (uintptr_t)sysconf(_SC_PAGESIZE); }

static void unmap(uintptr_t low, uintptr_t high) {
    if (low < high) munmap((void *)low, high - low);
}

/* 0: out of memory. */
static uintptr_t map(uintptr_t bytes, uintptr_t alignment) {
    uintptr_t room = bytes + alignment;
    void *memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    uintptr_t low = (uintptr_t)memory, at = up(low, alignment);
    unmap(low, at);
    unmap(at + bytes, low + room);
    (void)madvise((void *)at, bytes, MADV_HUGEPAGE); /* refused: its pages are small */
    return at;
}

/* The next `bytes` of the region, or of a new one: what the old one has left is given back. */
static uintptr_t cut(uintptr_t bytes) {
    uintptr_t at = atomic_load_explicit(&next, memory_order_relaxed), end = up(at, REGION);
    for (; end - at >= bytes; end = up(at, REGION)) /* at: as it is by now */
        if (atomic_compare_exchange_weak(&next, &at, at + bytes)) return at;
    uintptr_t region = map(REGION, REGION);
    if (!region) return 0;
    if (atomic_compare_exchange_strong(&next, &at, region + bytes)) {
        unmap(at, end);
        return region;
    }
    unmap(region + bytes, region + REGION); /* another thread was first */
    return region;
}

void *pages_alloc(size_t bytes) {
    uintptr_t whole = up(bytes, page());
    uintptr_t at = whole > OWN_REGION ? 0 : cut(whole);
    return (void *)(at ? at : map(whole, HUGE_PAGE));
}

void pages_free(void *pages, size_t bytes) {
    unmap((uintptr_t)pages, (uintptr_t)pages + up(bytes, page()));
}

void pages_advise(void *block, size_t bytes) {
    uintptr_t low = up((uintptr_t)block, page()), high = down((uintptr_t)block + bytes, page());
    if (low < high) (void)madvise((void *)low, high - low, MADV_HUGEPAGE);
}
