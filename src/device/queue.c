/* One queue, and the thread that runs what is launched into it, in order (queue.h).
 *
 *     queue_launch(kernel, {argument}, {p, &argument.seed})
 *         ->  | next | kernel | window of p, copy's seed | copy of argument |  ->  the thread
 *
 * What is launched waits as one block of the heap. The queue holds so many at the most: who
 * launches more waits. What is launched together comes in whole, or not at all. A kernel that fails
 * leaves a fault, the first one, with the line of the call that launched it: the launch's own, or
 * the queue's, which the next one who waits takes. The thread is started by the first launch, and
 * by the next one after queue_close. A forked child has no such thread, and is refused until it
 * closes the queue, whose launches are the parent's. */
#include "device/queue.h"

#include "base/error.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/subnormal.h"
#include "base/worker.h"

#include <string.h>

enum { MOST_WAITING = 4096, ARGUMENT_ALIGNMENT = 16 };

typedef struct QueueItem QueueItem;
struct QueueItem {
    QueueItem *next;
    DeviceKernel *kernel;
    Site site;           /* of the call, without its path, which may be gone by then */
    unsigned subnormals; /* bits of the thread that launched it */
    DeviceFault *fault;
    void *argument;
    void *pointer[];
};

/* Under LOCK_queue. */
static struct {
    QueueItem *first, *last;
    uint64_t launched, done;
    pthread_t thread;
    uint32_t process; /* that the thread is of; 0: there is none */
    bool ends;        /* somebody has it end, and waits for that */
    DeviceFault fault;
} queue;

/* ---- the thread ------------------------------------------------------------------------------ */

static void note(DeviceFault *fault) {
    lock_take(LOCK_queue);
    if (fault->status == CB_OK) {
        const char *text = cb_error();
        fault->status = text ? cb_error_status() : CB_ERR_MEMORY;
        snprintf(fault->text, sizeof fault->text, "%s",
                 text ? text : "a kernel has no memory left");
    }
    lock_give(LOCK_queue);
    cb_clear_error();
}

static void run(QueueItem *item) {
    site_set(item->site);
    subnormals_set(item->subnormals);
    if (!item->kernel(item->argument, item->pointer))
        note(item->fault ? item->fault : &queue.fault);
    memory_free(item);
}

static void *serve(void *user) {
    (void)user;
    lock_take(LOCK_queue);
    while (queue.first || !queue.ends) {
        QueueItem *item = queue.first;
        if (!item) {
            lock_wait(LOCK_queue);
            continue;
        }
        queue.first = item->next;
        lock_give(LOCK_queue);
        run(item);
        lock_take(LOCK_queue);
        queue.done++;
        lock_wake(LOCK_queue);
    }
    lock_give(LOCK_queue);
    return NULL;
}

/* Under the lock. */
static bool start(void) {
    if (queue.process && queue.process != process_number()) {
        fail(CB_ERR_ARGUMENT, "a device cannot be used in a forked child of who used it");
        return false;
    }
    while (queue.ends) lock_wait(LOCK_queue);
    if (queue.process) return true;
    int status = worker_thread(&queue.thread, serve);
    if (status == 0)
        queue.process = process_number();
    else
        fail(CB_ERR_MEMORY, "a device has no thread: %s", strerror(status));
    return status == 0;
}

/* ---- launching ------------------------------------------------------------------------------- */

static void bind(QueueItem *item, const DeviceLaunch *launch, QueueMap *map) {
    const char *argument = launch->argument;
    for (int i = 0; i < launch->pointer_count; i++) {
        char *pointer = launch->pointer[i];
        bool inside = pointer >= argument && pointer < argument + launch->argument_bytes;
        item->pointer[i] = !pointer ? NULL
                           : inside ? (char *)item->argument + (pointer - argument)
                                    : map(pointer);
        check(!pointer || item->pointer[i], "pointer %d of a launch is no memory of its device", i);
    }
}

static QueueItem *item_new(const DeviceLaunch *launch, QueueMap *map) {
    size_t head = sizeof(QueueItem) + sizeof(void *) * (size_t)launch->pointer_count;
    head = (head + ARGUMENT_ALIGNMENT - 1) / ARGUMENT_ALIGNMENT * ARGUMENT_ALIGNMENT;
    QueueItem *item = memory_alloc(head + launch->argument_bytes);
    if (!item) {
        fail_memory(head + launch->argument_bytes);
        return NULL;
    }
    *item = (QueueItem){.kernel = launch->kernel,
                        .site = {.file = site_current().file, .line = site_current().line},
                        .subnormals = subnormals_bits(),
                        .fault = launch->fault,
                        .argument = (char *)item + head};
    if (launch->argument_bytes) memcpy(item->argument, launch->argument, launch->argument_bytes);
    bind(item, launch, map);
    return item;
}

static void free_items(QueueItem *item) {
    for (QueueItem *next; item; item = next) {
        next = item->next;
        memory_free(item);
    }
}

/* A list of them all; *last is its end. */
static QueueItem *items_new(const DeviceLaunch *launch, QueueMap *map, QueueItem **last) {
    QueueItem *first = NULL;
    for (*last = NULL; launch; launch = launch->next) {
        QueueItem *item = item_new(launch, map);
        if (!item) {
            free_items(first);
            return NULL;
        }
        *(first ? &(*last)->next : &first) = item;
        *last = item;
    }
    return first;
}

bool queue_launch(const DeviceLaunch *launch, QueueMap *map) {
    QueueItem *last, *first = items_new(launch, map, &last);
    if (!first) return false;
    bool started;
    lock_take(LOCK_queue);
    while ((started = start()) && queue.launched - queue.done >= MOST_WAITING)
        lock_wait(LOCK_queue);
    if (started) {
        *(queue.first ? &queue.last->next : &queue.first) = first;
        queue.last = last;
        for (QueueItem *item = first; item; item = item->next) queue.launched++;
        lock_wake(LOCK_queue);
    }
    lock_give(LOCK_queue);
    if (!started) free_items(first);
    return started;
}

/* ---- waiting --------------------------------------------------------------------------------- */

uint64_t queue_ticket(void) {
    lock_take(LOCK_queue);
    uint64_t ticket = queue.launched;
    lock_give(LOCK_queue);
    return ticket;
}

bool queue_reached(uint64_t ticket) {
    lock_take(LOCK_queue);
    bool reached = queue.done >= ticket;
    lock_give(LOCK_queue);
    return reached;
}

/* Under the lock. In a forked child, what the parent launched is the parent's. */
static void drain(void) {
    uint64_t last = queue.launched;
    while (queue.process == process_number() && queue.done < last) lock_wait(LOCK_queue);
}

void queue_drain(void) {
    lock_take(LOCK_queue);
    drain();
    lock_give(LOCK_queue);
}

cb_status queue_wait(int device) {
    lock_take(LOCK_queue);
    drain();
    DeviceFault fault = queue.fault;
    queue.fault.status = CB_OK;
    lock_give(LOCK_queue);
    return device_tell(device, &fault);
}

/* In a forked child: what waited is forgotten. */
static void forget(void) {
    free_items(queue.first);
    queue.first = NULL;
    queue.done = queue.launched;
    queue.process = 0;
    queue.ends = false;
}

/* The thread does what waits before it ends; who launches meanwhile has a new one started. */
void queue_close(void) {
    lock_take(LOCK_queue);
    if (queue.process != process_number()) forget();
    while (queue.ends) lock_wait(LOCK_queue);
    if (queue.process) {
        queue.ends = true;
        lock_wake(LOCK_queue);
        lock_give(LOCK_queue);
        pthread_join(queue.thread, NULL);
        lock_take(LOCK_queue);
        queue.process = 0;
        queue.ends = false;
        lock_wake(LOCK_queue);
    }
    queue.fault.status = CB_OK;
    lock_give(LOCK_queue);
}
