/* A queue with a thread of its own, for devices that are made of software (queue.c). */
#ifndef CARBIDE_DEVICE_QUEUE_H
#define CARBIDE_DEVICE_QUEUE_H

#include "device/device.h"

/* A pointer of a launch as the kernel gets it; NULL: it is not the device's. */
typedef void *QueueMap(void *pointer);

/* Copies the launch and returns; false with an error: no memory, no thread, or a forked child. */
bool queue_launch(const DeviceLaunch *launch, QueueMap *map);
uint64_t queue_ticket(void); /* of the last launch so far */
bool queue_reached(uint64_t ticket);
void queue_drain(void);           /* until what was launched so far is done */
cb_status queue_wait(int device); /* the same; a fault, with the error, which is over */
void queue_close(void); /* ends the thread; a forked child forgets its parent's launches */

#endif
