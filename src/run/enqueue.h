/* What runs do, as launches of a device (enqueue.c). The host does the same in place. */
#ifndef CARBIDE_RUN_ENQUEUE_H
#define CARBIDE_RUN_ENQUEUE_H

#include "run/executable.h"
#include "tensor/random.h"

/* What a run hands to its kernels besides memory: numbers, and the random state. */
typedef struct RunArgument {
    RandomState random;
    int count;
    Scalar number[]; /* elements of tensors that lie on the host, in their own dtypes */
} RunArgument;

typedef struct Enqueued Enqueued;

/* A run on a device. Its launches are collected, so that they are launched whole or not at all:
 * what cannot be launched has done nothing, and may be done another way. */
typedef struct DeviceRun {
    const Executable *executable;
    const RunArgument *argument;
    void *failed;       /* NULL, or memory of the device that is not zero once a step of the run has
                   * failed: those behind it do nothing */
    DeviceFault *fault; /* of a run that is waited for; NULL: the device's */
    Enqueued *first, *last;
} DeviceRun;

/* All of them: false with an error. Faults come later. */
bool enqueue_step(DeviceRun *run, int step, const Operands *operands);
/* strided: how the indices lie; NULL: count of them, one after the other. */
bool enqueue_check(DeviceRun *run, int step, int64_t count, const void *data,
                   const Tensor *strided);
bool enqueue_copy(DeviceRun *run, void *to, const int64_t *to_stride, const void *from,
                  const int64_t *from_stride, int rank, const int64_t *size, size_t width);
bool enqueue_launch(DeviceRun *run); /* what was collected */
void enqueue_drop(DeviceRun *run);   /* forgets it */
/* Copies by strides, on the host at once. From a number: the element that it holds, everywhere. */
bool elements_copy(int device, void *to, const int64_t *to_stride, const void *from,
                   const int64_t *from_stride, int rank, const int64_t *size, size_t width);
bool elements_fill(int device, void *to, const int64_t *to_stride, const Scalar *number, int rank,
                   const int64_t *size, size_t width);
/* work_pack on the device, which then has the packed weight; waits. */
bool enqueue_pack(int device, Work *work, const void *weight, cb_dtype dtype);

#endif
