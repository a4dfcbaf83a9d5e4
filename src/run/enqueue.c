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

/* ---- steps ----------------------------------------------------------------------------------- */

typedef struct StepArgument {
    const Executable *executable;
    int64_t step;
    RunArgument run; /* last: its numbers follow */
} StepArgument;

static bool run(const Executable *executable, int64_t step, const Operands *operands) {
    if (executable->plan->step[step].kind == STEP_KERNEL)
        return launch_run(operands->epilogue, operands->epilogue_buffer);
    return work_run(&executable->work[step], *operands);
}

static bool step_kernel(const void *argument, void *const *pointer) {
    const StepArgument *a = argument;
    if (is_over(pointer)) return true;
    int kernel = a->executable->plan->step[a->step].kernel;
    Operands operands = {.packed = pointer[PACKED], .out = pointer[OUT]};
    for (int i = 0; i < TASK_OPERANDS; i++) operands.in[i] = pointer[IN + i];
    if (kernel >= 0) {
        operands.epilogue = &a->executable->launch[kernel];
        operands.epilogue_buffer = pointer + BUFFERS;
    }
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

bool enqueue_step(const DeviceRun *run, int step, const Operands *operands) {
    const Launch *launch = operands->epilogue;
    size_t bytes = sizeof(StepArgument) + sizeof(Scalar) * (size_t)run->argument->count;
    int buffers = launch ? launch->buffer_count : 0;
    void **pointer = memory_alloc(sizeof *pointer * (size_t)(BUFFERS + buffers) + bytes);
    if (!pointer) {
        fail_memory(bytes);
        return false;
    }
    StepArgument *argument = (StepArgument *)(pointer + BUFFERS + buffers);
    argument->executable = run->executable;
    argument->step = step;
    memcpy(&argument->run, run->argument, argument_bytes(run->argument));
    pointer[FAILED] = run->failed;
    pointer[PACKED] = (void *)(uintptr_t)operands->packed;
    pointer[OUT] = operands->out;
    for (int i = 0; i < TASK_OPERANDS; i++)
        pointer[IN + i] = moved(operands->in[i], run->argument, &argument->run);
    for (int i = 0; i < buffers; i++)
        pointer[BUFFERS + i] = moved(operands->epilogue_buffer[i], run->argument, &argument->run);
    bool launched = devices[run->executable->device]->launch(
        &(DeviceLaunch){step_kernel, argument, bytes, pointer, BUFFERS + buffers});
    memory_free(pointer);
    return launched;
}

/* ---- checks ---------------------------------------------------------------------------------- */

typedef struct CheckArgument {
    const IndexBound *bound;
    int64_t count;
    bool is_strided;
    Tensor strided;
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

bool enqueue_check(const DeviceRun *run, int step, int64_t count, const void *data,
                   const Tensor *strided) {
    const IndexBound *bound = &run->executable->plan->step[step].check;
    struct {
        CheckArgument check;
        int64_t index; /* of a tensor on the host, which has one */
    } argument = {.check = {.bound = bound, .count = count, .is_strided = strided != NULL}};
    if (strided) argument.check.strided = *strided;
    const void *at = moved(data, run->argument, run->argument);
    const char *number = (const char *)run->argument;
    bool inside =
        (const char *)at >= number && (const char *)at < number + argument_bytes(run->argument);
    if (inside) memcpy(&argument.index, data, sizeof argument.index);
    void *pointer[] = {run->failed, inside ? &argument.index : (void *)(uintptr_t)data};
    return devices[run->executable->device]->launch(
        &(DeviceLaunch){check_kernel, &argument, sizeof argument, pointer, 2});
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

static CopyArgument copy_of(const int64_t *to_stride, int rank, const int64_t *size, size_t width) {
    CopyArgument argument = {.rank = rank, .width = width};
    for (int i = 0; i < rank; i++) {
        argument.to_stride[i] = to_stride[i];
        argument.size[i] = size[i];
    }
    return argument;
}

static bool launch_copy(int device, void *failed, void *to, const void *from,
                        const CopyArgument *argument) {
    void *pointer[] = {failed, to, (void *)(uintptr_t)from};
    return devices[device]->launch(
        &(DeviceLaunch){copy_kernel, argument, sizeof *argument, pointer, 3});
}

static bool copy_on(int device, void *failed, void *to, const int64_t *to_stride, const void *from,
                    const int64_t *from_stride, int rank, const int64_t *size, size_t width) {
    if (device_is_host(device)) {
        copy_strided(to, to_stride, from, from_stride, rank, size, width);
        return true;
    }
    CopyArgument argument = copy_of(to_stride, rank, size, width);
    for (int i = 0; i < rank; i++) argument.from_stride[i] = from_stride[i];
    return launch_copy(device, failed, to, from, &argument);
}

bool elements_copy(int device, void *to, const int64_t *to_stride, const void *from,
                   const int64_t *from_stride, int rank, const int64_t *size, size_t width) {
    return copy_on(device, NULL, to, to_stride, from, from_stride, rank, size, width);
}

bool enqueue_copy(const DeviceRun *run, void *to, const int64_t *to_stride, const void *from,
                  const int64_t *from_stride, int rank, const int64_t *size, size_t width) {
    return copy_on(run->executable->device, run->failed, to, to_stride, from, from_stride, rank,
                   size, width);
}

bool elements_fill(int device, void *to, const int64_t *to_stride, const Scalar *number, int rank,
                   const int64_t *size, size_t width) {
    CopyArgument argument = copy_of(to_stride, rank, size, width);
    argument.number = *number;
    if (!device_is_host(device)) return launch_copy(device, NULL, to, &argument.number, &argument);
    copy_strided(to, to_stride, number, argument.from_stride, rank, size, width);
    return true;
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
    void *pointer = (void *)(uintptr_t)weight;
    DeviceLaunch packs = {pack_kernel, &argument, sizeof argument, &pointer, 1};
    return devices[device]->launch(&packs) && devices[device]->wait() == CB_OK &&
           move_packed(device, work);
}
