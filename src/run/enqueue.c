/* Steps, checks and copies as launches of a device (enqueue.h).
 *
 * A kernel gets pointers and a copy of its argument, so what a step reads is told one by one:
 *
 *     pointers of a step   failed | packed | out | in 0 .. 3 | buffers of the kernel
 *     argument             StepArgument, then the run's: random state and numbers
 *
 * The host's structs that describe the work (plans, launches, tasks) are never written and outlive
 * the queue: an executable waits before it is freed. */
#include "run/enqueue.h"

#include "base/memory.h"
#include "cpu/copy.h"
#include "run/check_indices.h"

#include <string.h>

enum { FAILED, PACKED, OUT, IN, BUFFERS = IN + TASK_OPERANDS };

/* Nothing for who comes behind a step that has failed. */
static bool is_over(void *const *pointer) {
    const int64_t *failed = pointer[FAILED];
    return failed && *failed;
}

static bool note(bool done, void *const *pointer) {
    int64_t *failed = pointer[FAILED];
    if (!done && failed) *failed = 1;
    return done;
}

/* ---- the launches of a run ------------------------------------------------------------------- */

struct Enqueued {
    DeviceLaunch launch;
    Enqueued *next;
    void *pointer[]; /* and the argument behind them */
};

/* A launch behind those so far, whose pointers and argument are to be filled in. */
static Enqueued *add(DeviceRun *run, DeviceKernel *kernel, int pointers, size_t argument_bytes) {
    size_t head = sizeof(Enqueued) + sizeof(void *) * (size_t)pointers;
    Enqueued *added = memory_alloc(head + argument_bytes);
    if (!added) {
        fail_memory(head + argument_bytes);
        return NULL;
    }
    *added = (Enqueued){.launch = {.kernel = kernel,
                                   .argument = (char *)added + head,
                                   .argument_bytes = argument_bytes,
                                   .pointer = added->pointer,
                                   .pointer_count = pointers,
                                   .fault = run->fault}};
    if (run->first) {
        run->last->next = added;
        run->last->launch.next = &added->launch;
    } else {
        run->first = added;
    }
    run->last = added;
    return added;
}

static void *argument_of(Enqueued *added) { return &added->pointer[added->launch.pointer_count]; }

void enqueue_drop(DeviceRun *run) {
    for (Enqueued *next; run->first; run->first = next) {
        next = run->first->next;
        memory_free(run->first);
    }
}

bool enqueue_launch(DeviceRun *run) {
    bool launched = !run->first || devices[run->executable->device]->launch(&run->first->launch);
    enqueue_drop(run);
    return launched;
}

/* ---- steps ----------------------------------------------------------------------------------- */

typedef struct StepArgument {
    const Executable *executable;
    const Launch *launch;
    int64_t step;
    RunArgument run; /* last: its numbers follow */
} StepArgument;

static bool run(const Executable *executable, int64_t step, const Operands *operands) {
    if (executable->plan->step[step].kind == STEP_KERNEL)
        return launch_run(operands->epilogue, operands->epilogue_buffer);
    return work_run(&executable->work[step], *operands);
}

static bool run_enqueued(const void *argument, void *const *pointer) {
    const StepArgument *a = argument;
    if (is_over(pointer)) return true;
    int buffers = a->launch ? a->launch->buffer_count : 0;
    void *buffer[buffers + 1];
    for (int i = 0; i < buffers; i++) buffer[i] = pointer[BUFFERS + i];
    if (buffers && a->launch->argument) buffer[buffers - 1] = a->launch->argument;
    Operands operands = {.packed = pointer[PACKED], .out = pointer[OUT]};
    for (int i = 0; i < TASK_OPERANDS; i++) operands.in[i] = pointer[IN + i];
    operands.epilogue = a->launch;
    operands.epilogue_buffer = a->launch ? buffer : NULL;
    return note(run(a->executable, a->step, &operands), pointer);
}

static size_t argument_bytes(const RunArgument *argument) {
    return sizeof *argument + sizeof(Scalar) * (size_t)argument->count;
}

/* Where a pointer into the run's argument lies in a step's. */
static void *moved(const void *pointer, const RunArgument *from, const RunArgument *to) {
    uintptr_t at = (uintptr_t)pointer, begin = (uintptr_t)from;
    bool inside = at >= begin && at < begin + argument_bytes(from);
    return (void *)(inside ? (uintptr_t)to + (at - begin) : at);
}

bool enqueue_step(DeviceRun *run, int step, const Operands *operands) {
    const Launch *launch = operands->epilogue;
    size_t bytes = sizeof(StepArgument) + sizeof(Scalar) * (size_t)run->argument->count;
    int buffers = launch ? launch->buffer_count : 0;
    Enqueued *added = add(run, run_enqueued, BUFFERS + buffers, bytes);
    if (!added) return false;
    StepArgument *argument = argument_of(added);
    argument->executable = run->executable;
    argument->launch = launch;
    argument->step = step;
    memcpy(&argument->run, run->argument, argument_bytes(run->argument));
    void **pointer = added->pointer;
    pointer[FAILED] = run->failed;
    pointer[PACKED] = (void *)(uintptr_t)operands->packed;
    pointer[OUT] = operands->out;
    for (int i = 0; i < TASK_OPERANDS; i++)
        pointer[IN + i] = moved(operands->in[i], run->argument, &argument->run);
    for (int i = 0; i < buffers; i++)
        pointer[BUFFERS + i] = moved(operands->epilogue_buffer[i], run->argument, &argument->run);
    if (buffers && launch->argument) pointer[BUFFERS + buffers - 1] = NULL; /* the launch has it */
    return true;
}

/* ---- checks ---------------------------------------------------------------------------------- */

typedef struct CheckArgument {
    const IndexBound *bound;
    int64_t count;
    bool is_strided;
    Tensor strided;
    int64_t index; /* of a tensor on the host, which has one */
} CheckArgument;

static bool check_kernel(const void *argument, void *const *pointer) {
    const CheckArgument *a = argument;
    if (is_over(pointer)) return true;
    Storage storage = {.data = pointer[FAILED + 1]};
    Tensor strided = a->strided;
    strided.storage = &storage;
    strided.offset = 0;
    return note(check_indices(a->bound, a->count, storage.data, a->is_strided ? &strided : NULL),
                pointer);
}

bool enqueue_check(DeviceRun *run, int step, int64_t count, const void *data,
                   const Tensor *strided) {
    Enqueued *added = add(run, check_kernel, 2, sizeof(CheckArgument));
    if (!added) return false;
    CheckArgument *argument = argument_of(added);
    *argument = (CheckArgument){.bound = &run->executable->plan->step[step].check,
                                .count = count,
                                .is_strided = strided != NULL};
    if (strided) argument->strided = *strided;
    uintptr_t at = (uintptr_t)data, begin = (uintptr_t)run->argument;
    bool inside = at >= begin && at < begin + argument_bytes(run->argument);
    if (inside) memcpy(&argument->index, data, sizeof argument->index);
    added->pointer[FAILED] = run->failed;
    added->pointer[FAILED + 1] = inside ? &argument->index : (void *)at;
    return true;
}

/* ---- copies ---------------------------------------------------------------------------------- */

typedef struct CopyArgument {
    int64_t to_stride[CB_MAX_RANK], from_stride[CB_MAX_RANK], size[CB_MAX_RANK];
    int64_t rank;
    size_t width;
    Scalar number; /* with strides of 0, where there is no tensor to copy from */
} CopyArgument;

static bool copy_kernel(const void *argument, void *const *pointer) {
    const CopyArgument *a = argument;
    if (is_over(pointer)) return true;
    copy_strided(pointer[FAILED + 1], a->to_stride, pointer[FAILED + 2], a->from_stride,
                 (int)a->rank, a->size, a->width);
    return true;
}

static CopyArgument copy_of(const int64_t *to_stride, const int64_t *from_stride, int rank,
                            const int64_t *size, size_t width) {
    CopyArgument argument = {.rank = rank, .width = width};
    for (int i = 0; i < rank; i++) {
        argument.to_stride[i] = to_stride[i];
        argument.from_stride[i] = from_stride[i];
        argument.size[i] = size[i];
    }
    return argument;
}

static bool launch_copy(int device, void *to, const void *from, const CopyArgument *argument) {
    void *pointer[] = {NULL, to, (void *)(uintptr_t)from};
    return devices[device]->launch(&(DeviceLaunch){.kernel = copy_kernel,
                                                   .argument = argument,
                                                   .argument_bytes = sizeof *argument,
                                                   .pointer = pointer,
                                                   .pointer_count = 3});
}

bool elements_copy(int device, void *to, const int64_t *to_stride, const void *from,
                   const int64_t *from_stride, int rank, const int64_t *size, size_t width) {
    if (device_is_host(device)) {
        copy_strided(to, to_stride, from, from_stride, rank, size, width);
        return true;
    }
    CopyArgument argument = copy_of(to_stride, from_stride, rank, size, width);
    return launch_copy(device, to, from, &argument);
}

bool enqueue_copy(DeviceRun *run, void *to, const int64_t *to_stride, const void *from,
                  const int64_t *from_stride, int rank, const int64_t *size, size_t width) {
    if (device_is_host(run->executable->device)) {
        copy_strided(to, to_stride, from, from_stride, rank, size, width);
        return true;
    }
    Enqueued *added = add(run, copy_kernel, 3, sizeof(CopyArgument));
    if (!added) return false;
    *(CopyArgument *)argument_of(added) = copy_of(to_stride, from_stride, rank, size, width);
    added->pointer[FAILED] = run->failed;
    added->pointer[FAILED + 1] = to;
    added->pointer[FAILED + 2] = (void *)(uintptr_t)from;
    return true;
}

bool elements_fill(int device, void *to, const int64_t *to_stride, const Scalar *number, int rank,
                   const int64_t *size, size_t width) {
    static const int64_t nowhere[CB_MAX_RANK] = {0};
    if (device_is_host(device)) {
        copy_strided(to, to_stride, number, nowhere, rank, size, width);
        return true;
    }
    CopyArgument argument = copy_of(to_stride, nowhere, rank, size, width);
    argument.number = *number;
    return launch_copy(device, to, &argument.number, &argument);
}

/* ---- packing --------------------------------------------------------------------------------- */

typedef struct PackArgument {
    Work *work;
    int64_t dtype;
} PackArgument;

static bool pack_kernel(const void *argument, void *const *pointer) {
    const PackArgument *a = argument;
    return work_pack(a->work, pointer[0], a->dtype);
}

/* The kernel's own memory is the host's: what it packed goes over to the device. */
static bool move_packed(int device, Work *work) {
    Storage *local = work->packed;
    if (!local) return true;
    work->packed = storage_new_on(device, local->bytes);
    bool moved =
        work->packed && devices[device]->upload(work->packed->data, local->data, local->bytes);
    storage_release(local);
    return moved;
}

bool enqueue_pack(int device, Work *work, const void *weight, cb_dtype dtype) {
    PackArgument argument = {work, dtype};
    DeviceFault fault = {.status = CB_OK};
    void *pointer = (void *)(uintptr_t)weight;
    DeviceLaunch packs = {.kernel = pack_kernel,
                          .argument = &argument,
                          .argument_bytes = sizeof argument,
                          .pointer = &pointer,
                          .pointer_count = 1,
                          .fault = &fault};
    if (!devices[device]->launch(&packs)) return false;
    devices[device]->drain();
    return device_tell(device, &fault) == CB_OK && move_packed(device, work);
}
