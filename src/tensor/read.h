/* Reading elements in row-major order, whatever the strides. */
#ifndef CARBIDE_TENSOR_READ_H
#define CARBIDE_TENSOR_READ_H

#include "tensor/tensor.h"

/* Copies elements [first, first + count) of x's row-major order, converted to dtype, to out.
 * x has storage. */
void tensor_read_range(const Tensor *x, int64_t first, int64_t count, void *out, cb_dtype dtype);

/* Hands the elements over, in row-major order, as bytes: in pieces of a multiple of 16 KB, but for
 * the last one. False when take gave false, or there is no memory. */
typedef bool BytesTaker(void *user, const void *bytes, size_t count);
bool tensor_hand_over(const Tensor *x, BytesTaker *take, void *user);
/* The same to a file; false with errno. */
bool tensor_write(int file, const Tensor *x);

/* A call of the user's, named without cb_, that may ask for values by calls of its own: they are
 * the outermost one's, where somebody is told who asked. begin gives what end is to be given. */
const char *asking_begin(const char *what);
void asking_end(const char *before);

/* A value request by name: false with an error when x is NULL or has no value. */
bool tensor_request(Tensor *x, const char *what);

/* The only element of x, which is asked for as cb_item asks; false with an error. */
bool tensor_item(Tensor *x, const char *what, Scalar *value);

#endif
