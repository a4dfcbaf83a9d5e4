/* Devices: whoever has memory and runs kernels. A row of DEVICES, a struct of hooks.
 *
 *     storage, tensor, graph, executable     each belongs to one device, known by its number
 *     allocate, release                      its memory, which the host need not be able to touch
 *     upload, download, copy                 the ways there, out, and within
 *     launch                                 a kernel, with its arguments and pointers, in a queue
 *     wait                                   the host waits, and hears what went wrong meanwhile
 *
 * The rules, which the device guarded holds everybody to:
 *   1. Nothing above this folder dereferences memory of a device that is not the host's. Values
 *      leave it by download, which waits for the queue.
 *   2. A launch says all that its kernel gets: pointers into memory of the device, and arguments,
 *      which are copied, so scalars and the random state of a call are arguments. A pointer into
 *      the arguments becomes one into their copy. A host pointer is a bug that stops the program.
 *   3. A device has one queue, in whose order everything runs: memory that is released may be given
 *      out again at once, since whoever gets it comes later.
 *   4. What fails in a kernel (an index out of range) is a fault of the device: its results mean
 *      nothing, and who waits next gets the error, which names the line of the call. Until then
 *      calls go on. Who waits for its launches in any case gives them a fault of their own, so
 *      that what others did is not taken for theirs.
 *   5. What is launched together is launched whole or not at all: what was not has done nothing,
 *      and may be computed another way.
 * The host's kernels run in the caller, at once, without a launch. */
#ifndef CARBIDE_DEVICE_DEVICE_H
#define CARBIDE_DEVICE_DEVICE_H

#include "base/option.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Its name, and its struct. A tensor knows its device by the position, by which the words of the
 * option device stand, too. */
#define DEVICES(DEVICE)                                                                            \
    DEVICE(cpu, device_host)        /* the host itself */                                          \
    DEVICE(guarded, device_guarded) /* a second machine inside the process, for tests */

#define DEVICE_ID(id, device) DEVICE_##id,
typedef enum DeviceId { DEVICES(DEVICE_ID) DEVICE_COUNT } DeviceId;
#undef DEVICE_ID

/* argument: the copy. false with the thread's error: a fault of the device. */
typedef bool DeviceKernel(const void *argument, void *const *pointer);

/* What failed first. */
typedef struct DeviceFault {
    cb_status status; /* CB_OK: nothing has */
    char text[1000];
} DeviceFault;

typedef struct DeviceLaunch DeviceLaunch;
struct DeviceLaunch {
    DeviceKernel *kernel;
    const void *argument;
    size_t argument_bytes;
    void *const *pointer; /* NULL, into memory of the device, or into the argument */
    int pointer_count;
    DeviceFault
        *fault; /* the host's, of who drains the device before it goes; NULL: the device's */
    const DeviceLaunch *next; /* NULL, or what is launched behind it: all of them, or none */
};

/* A moment in the queue. */
typedef struct DeviceEvent {
    uint64_t ticket;     /* of the last launch before it */
    _Atomic int64_t *ns; /* NULL, or where the device notes its clock */
} DeviceEvent;

/* What scheduling knows of a machine. It is of a kind of machines: the order in which sums are
 * added follows from it, and must not differ between two processors. In points and elements. */
typedef struct DeviceMachine {
    int64_t short_row; /* lanes along fewer make poor vectors */
    int64_t flat_row;  /* rows of so many at the most are walked together, where that can be done */
    int64_t many_rows; /* ... where there are this many rows to walk across instead */
    int64_t small; /* a buffer of so many stays in the nearest cache, wherever it is read from */
    int64_t rows_busy;   /* so many outer points keep it busy, lanes along the rows; with fewer, the
                         * rows are split */
    int64_t tiles_busy;  /* the same with lanes across the rows */
    int64_t chunk;       /* points of a part of a split row that pay for adding it up */
    int64_t chunk_bytes; /* traffic that pays for it, too */
    int64_t most_chunks;
} DeviceMachine;

typedef struct Device {
    const char *name;
    const DeviceMachine *machine;
    bool host; /* its memory is the host's, and kernels run in the caller */
    /* NULL with an error: out of memory, or the device cannot be used. kind: for release. */
    void *(*allocate)(size_t bytes, uint8_t *kind);
    void (*release)(void *memory, size_t bytes, uint8_t kind);
    /* false with an error. What upload reads may change when it returns. */
    bool (*upload)(void *to, const void *from, size_t bytes);
    bool (*download)(void *to, const void *from, size_t bytes); /* waits, and reports a fault */
    bool (*copy)(void *to, const void *from, size_t bytes);
    bool (*fill)(void *to, int byte, size_t bytes);
    bool (*launch)(const DeviceLaunch *launch);
    bool (*record)(DeviceEvent *event); /* after what was launched so far */
    bool (*reached)(const DeviceEvent *event);
    void (*drain)(void);     /* waits for everything */
    cb_status (*wait)(void); /* the same; of a fault, with the error, which is over then */
    void (*close)(void);     /* gives back what it holds; no storage of it lives */
} Device;

extern const DeviceMachine machine_cpu; /* of host.c: code of the host runs on all devices so far */
#define DEVICE_ROW(id, device) extern const Device device;
DEVICES(DEVICE_ROW)
#undef DEVICE_ROW
extern const Device *const devices[DEVICE_COUNT];

static inline bool device_is_host(int id) { return id == DEVICE_cpu; }
/* Where tensors are made that come from no other tensor. */
static inline int device_default(void) { return (int)option_int(OPTION_device); }
int device_find(const char *name); /* -1 with an error that names all */
/* Its status, with the thread's error. */
cb_status device_tell(int id, const DeviceFault *fault);
cb_status devices_wait(void); /* of the first fault, with an error */
void devices_close(void);

#endif
