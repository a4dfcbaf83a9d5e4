/* The host as a device: its memory is the process's, and everything happens at once.
 *
 * Small blocks come from the heap. Large ones have pages of their own (base/pages.h), unless the
 * program set an allocator, which then gets all that there is. */
#include "device/device.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/pages.h"
#include "base/poison.h"

#include <string.h>

enum { PAGED_BYTES = 128 << 10 };
enum { FROM_HEAP, FROM_PAGES };

/* Sanitizers see blocks of the heap: red zones around them, and an end to what is too large. */
static void *allocate(size_t bytes, uint8_t *kind) {
    bool large = bytes >= PAGED_BYTES;
    *kind = large && !memory_of_host() && !HEAP_IS_WATCHED ? FROM_PAGES : FROM_HEAP;
    if (*kind == FROM_PAGES) return pages_alloc(bytes);
    void *memory = memory_alloc(bytes);
    if (memory && large) pages_advise(memory, bytes);
    return memory;
}

static void release(void *memory, size_t bytes, uint8_t kind) {
    if (kind == FROM_PAGES)
        pages_free(memory, bytes);
    else
        memory_free(memory);
}

static bool copy(void *to, const void *from, size_t bytes) {
    if (bytes) memcpy(to, from, bytes);
    return true;
}

static bool fill(void *to, int byte, size_t bytes) {
    memset(to, byte, bytes);
    return true;
}

static bool launch(const DeviceLaunch *launch) {
    return launch->kernel(launch->argument, launch->pointer);
}

static bool record(DeviceEvent *event) {
    if (event->ns) atomic_store(event->ns, clock_ns());
    return true;
}

static bool reached(const DeviceEvent *event) {
    (void)event;
    return true;
}

static void drain(void) {}
static cb_status wait_all(void) { return CB_OK; }
static void shut(void) {}

/* Vectors of 4 to 16 floats, a few dozen cores, blocks of 64 KB that are worth a thread. */
const DeviceMachine machine_cpu = {.short_row = 16,
                                   .flat_row = 63,
                                   .many_rows = 64,
                                   .small = 256,
                                   .rows_busy = 16,
                                   .tiles_busy = 4096,
                                   .chunk = 1 << 14,
                                   .chunk_bytes = 1 << 16,
                                   .most_chunks = 256};

const Device device_host = {.name = "cpu",
                            .machine = &machine_cpu,
                            .host = true,
                            .allocate = allocate,
                            .release = release,
                            .upload = copy,
                            .download = copy,
                            .copy = copy,
                            .fill = fill,
                            .launch = launch,
                            .record = record,
                            .reached = reached,
                            .drain = drain,
                            .wait = wait_all,
                            .close = shut};
