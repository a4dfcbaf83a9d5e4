/* Where tensors lie (place.c). */
#ifndef CARBIDE_TENSOR_PLACE_H
#define CARBIDE_TENSOR_PLACE_H

#include "tensor/tensor.h"

/* The device of an op, operand by operand: begins as PLACE_NOWHERE. False with an error that names
 * the op and both devices. */
enum { PLACE_NOWHERE = -1, PLACE_NUMBERS = -2 };
bool place_operand(int *place, const char *op, const Meta *x);
int place_device(int place, int made_on); /* DeviceId, when all operands are in; made_on: without */

/* A copy on another device, under x's strides; NULL with an error. To the host it waits. */
Tensor *tensor_to(const Tensor *x, int device);
Tensor *tensor_placed(Tensor *x); /* from the host to the default device; x dies if it moves */
/* x where the host may touch its elements: x itself, or a copy; NULL with an error. What was
 * written there gets to x by tensor_write_back. */
const Tensor *tensor_local(const Tensor *x);
void tensor_local_end(const Tensor *local, const Tensor *x);
bool tensor_write_back(const Tensor *local, const Tensor *x);

#endif
