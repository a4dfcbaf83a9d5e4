/* The device guarded: a second machine inside of the process, which proves that the host leaves
 * memory of devices alone. It has no more than the option guarded_mb says.
 *
 *     addresses   0x7f10'00000000 ... : no access, for anybody, ever: what the host is given
 *     window      0x7e40'00000000 ... : the memory itself, known to this file alone
 *
 * A kernel or a copy gets its pointers moved from the addresses to the window, and runs on the
 * queue's thread. So a host that dereferences an address dies at once, whatever runs meanwhile, and
 * so does a kernel with a pointer that its launch did not tell. No page ever changes its
 * protection. Kernels are code of the host: the VM, generated C, our products and convolutions.
 *
 * Blocks lie in one list by address, free or taken; free neighbours are one block. */
#include "device/queue.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/memory.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 64 };

typedef struct GuardedBlock GuardedBlock;
struct GuardedBlock {
    GuardedBlock *next; /* by address */
    size_t offset, bytes;
    bool taken;
};

/* Under LOCK_device; what `map` and the handler read never changes while a block is taken. */
static struct {
    char *addresses, *window; /* NULL: not open */
    size_t bytes;
    GuardedBlock *first;
    struct sigaction before; /* of SIGSEGV */
} memory;

/* ---- the stray dereference ------------------------------------------------------------------- */

static const GuardedBlock *block_at(size_t offset) {
    const GuardedBlock *block = memory.first;
    while (block && block->offset + block->bytes <= offset) block = block->next;
    return block;
}

static void tell(const char *address) {
    char text[400];
    size_t offset = (size_t)(address - memory.addresses);
    const GuardedBlock *block = block_at(offset);
    int length = snprintf(text, sizeof text,
                          "carbide: the host touched memory of device guarded: byte %zu of a %s of "
                          "%zu bytes at %p. cb_read copies elements to the host, cb_to_device a "
                          "tensor\n",
                          block ? offset - block->offset : offset,
                          !block         ? "device"
                          : block->taken ? "tensor's block"
                                         : "block that no tensor has",
                          block ? block->bytes : memory.bytes, (const void *)address);
    (void)!write(STDERR_FILENO, text, (size_t)length);
}

static bool is_address(const char *pointer) {
    return memory.addresses && pointer >= memory.addresses &&
           pointer < memory.addresses + memory.bytes;
}

/* Tells of addresses of the device, and leaves the fault itself to whoever was asked before. */
static void on_fault(int number, siginfo_t *info, void *context) {
    if (is_address(info->si_addr)) {
        tell(info->si_addr);
        (void)sigaction(SIGSEGV, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    } else if (memory.before.sa_flags & SA_SIGINFO) {
        memory.before.sa_sigaction(number, info, context);
    } else if (memory.before.sa_handler != SIG_DFL && memory.before.sa_handler != SIG_IGN) {
        memory.before.sa_handler(number);
    } else {
        (void)sigaction(SIGSEGV, &memory.before, NULL); /* and the access is made again */
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static char *reserve(size_t bytes, int protection) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *pages = mmap(NULL, bytes, protection, flags, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

static bool is_ours(const struct sigaction *action) {
    return action->sa_flags & SA_SIGINFO && action->sa_sigaction == on_fault;
}

static void listen(void) {
    struct sigaction now;
    (void)sigaction(SIGSEGV, NULL, &now);
    if (is_ours(&now)) return;
    memory.before = now;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    (void)sigaction(SIGSEGV, &action, NULL);
}

/* What the program has set since stays. */
static void stop_listening(void) {
    struct sigaction now;
    (void)sigaction(SIGSEGV, NULL, &now);
    if (is_ours(&now)) (void)sigaction(SIGSEGV, &memory.before, NULL);
}

static void forget(void) {
    if (memory.addresses) munmap(memory.addresses, memory.bytes);
    if (memory.window) munmap(memory.window, memory.bytes);
    memory_free(memory.first);
    memory.addresses = memory.window = NULL;
    memory.first = NULL;
}

static bool open_memory(void) {
    if (memory.addresses) return true;
    int64_t megabytes = option_int(OPTION_guarded_mb);
    memory.bytes = (size_t)(megabytes > 0 ? megabytes : 1) << 20;
    memory.addresses = reserve(memory.bytes, PROT_NONE);
    memory.window = reserve(memory.bytes, PROT_READ | PROT_WRITE);
    memory.first = memory_zalloc(sizeof *memory.first);
    if (!memory.addresses || !memory.window || !memory.first) {
        forget();
        return false;
    }
    memory.first->bytes = memory.bytes;
    listen();
    return true;
}

/* The first free block that is large enough, cut to size; NULL: there is none, or no memory of the
 * host for what is left of it. */
static GuardedBlock *take(size_t bytes) {
    GuardedBlock *block = memory.first;
    while (block && (block->taken || block->bytes < bytes)) block = block->next;
    if (!block) return NULL;
    if (block->bytes > bytes) {
        GuardedBlock *rest = memory_alloc(sizeof *rest);
        if (!rest) return NULL;
        *rest = (GuardedBlock){block->next, block->offset + bytes, block->bytes - bytes, false};
        block->next = rest;
        block->bytes = bytes;
    }
    block->taken = true;
    return block;
}

static void *allocate(size_t bytes, uint8_t *kind) {
    *kind = 0;
    lock_take(LOCK_device);
    bool opened = open_memory();
    GuardedBlock *block = opened ? take((bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT) : NULL;
    char *address = block ? memory.addresses + block->offset : NULL;
    lock_give(LOCK_device);
    return address;
}

static void join_next(GuardedBlock *block) {
    GuardedBlock *next = block->next;
    if (!next || next->taken) return;
    block->bytes += next->bytes;
    block->next = next->next;
    memory_free(next);
}

static void release(void *address, size_t bytes, uint8_t kind) {
    (void)bytes, (void)kind;
    lock_take(LOCK_device);
    size_t offset = (size_t)((char *)address - memory.addresses);
    GuardedBlock *before = NULL, *block = memory.first;
    while (block->offset < offset) before = block, block = block->next;
    check(block->offset == offset && block->taken, "release of what is no block of the device");
    block->taken = false;
    join_next(block);
    if (before && !before->taken) join_next(before);
    lock_give(LOCK_device);
}

/* ---- the queue ------------------------------------------------------------------------------- */

static void *map(void *pointer) {
    if (!is_address(pointer)) return NULL;
    return memory.window + ((char *)pointer - memory.addresses);
}

static bool launch(const DeviceLaunch *launch) { return queue_launch(launch, map); }

static bool run(DeviceKernel *kernel, const void *argument, size_t bytes, void *const *pointer,
                int count) {
    return launch(&(DeviceLaunch){.kernel = kernel,
                                  .argument = argument,
                                  .argument_bytes = bytes,
                                  .pointer = pointer,
                                  .pointer_count = count});
}

static cb_status wait_all(void) { return queue_wait(DEVICE_guarded); }

static bool copy_kernel(const void *argument, void *const *pointer) {
    const size_t *bytes = argument;
    memmove(pointer[0], pointer[1], *bytes);
    return true;
}

static bool copy(void *to, const void *from, size_t bytes) {
    void *pointer[] = {to, (void *)(uintptr_t)from};
    return bytes == 0 || run(copy_kernel, &bytes, sizeof bytes, pointer, 2);
}

/* Between host and device, of which one is a host pointer: an argument, not a pointer. */
typedef struct GuardedTransfer {
    void *host;
    size_t bytes;
} GuardedTransfer;

static bool upload_kernel(const void *argument, void *const *pointer) {
    const GuardedTransfer *transfer = argument;
    memcpy(pointer[0], transfer->host, transfer->bytes);
    return true;
}

static bool download_kernel(const void *argument, void *const *pointer) {
    const GuardedTransfer *transfer = argument;
    memcpy(transfer->host, pointer[0], transfer->bytes);
    return true;
}

/* A fault of what was launched before is the next one's who asks for values. */
static bool upload(void *to, const void *from, size_t bytes) {
    GuardedTransfer transfer = {(void *)(uintptr_t)from, bytes};
    if (bytes == 0) return true;
    if (!run(upload_kernel, &transfer, sizeof transfer, &to, 1)) return false;
    queue_drain();
    return true;
}

static bool download(void *to, const void *from, size_t bytes) {
    GuardedTransfer transfer = {to, bytes};
    void *pointer = (void *)(uintptr_t)from;
    if (bytes && !run(download_kernel, &transfer, sizeof transfer, &pointer, 1)) return false;
    return wait_all() == CB_OK;
}

typedef struct GuardedFill {
    size_t bytes;
    int byte;
} GuardedFill;

static bool fill_kernel(const void *argument, void *const *pointer) {
    const GuardedFill *how = argument;
    memset(pointer[0], how->byte, how->bytes);
    return true;
}

static bool fill(void *to, int byte, size_t bytes) {
    GuardedFill how = {bytes, byte};
    return run(fill_kernel, &how, sizeof how, &to, 1);
}

static bool clock_kernel(const void *argument, void *const *pointer) {
    (void)pointer;
    atomic_store(*(_Atomic int64_t *const *)argument, clock_ns());
    return true;
}

static bool record(DeviceEvent *event) {
    if (event->ns && !run(clock_kernel, &event->ns, sizeof event->ns, NULL, 0)) return false;
    event->ticket = queue_ticket();
    return true;
}

static bool reached(const DeviceEvent *event) { return queue_reached(event->ticket); }

/* What was launched since the queue was closed may use blocks that are free by now. */
static void shut(void) {
    queue_close();
    lock_take(LOCK_device);
    bool unused = memory.first && !memory.first->next && !memory.first->taken;
    if (unused && queue_reached(queue_ticket())) {
        stop_listening();
        forget();
    }
    lock_give(LOCK_device);
}

const Device device_guarded = {.name = "guarded",
                               .machine = &machine_cpu,
                               .allocate = allocate,
                               .release = release,
                               .upload = upload,
                               .download = download,
                               .copy = copy,
                               .fill = fill,
                               .launch = launch,
                               .record = record,
                               .reached = reached,
                               .drain = queue_drain,
                               .wait = wait_all,
                               .close = shut};
