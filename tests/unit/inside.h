/* The library's insides for tests, which hold handles of tensors (tensor/handle.c): each is looked
 * up on the way in. What comes out needs no handle, since public functions take both. */
#ifndef CARBIDE_TEST_INSIDE_H
#define CARBIDE_TEST_INSIDE_H

#include "run/execute.h"
#include "eager/apply.h"
#include <string.h>

static inline Tensor *tensor_at(const cb_tensor *x) { return tensor_in(x, "test"); }

static inline Meta meta_of(const cb_tensor *x) { return tensor_meta(tensor_at(x)); }

static inline bool run_executable(const Executable *executable, cb_tensor *const *in,
                                  cb_tensor **out) {
    Tensor *x[CB_MAX_ARGS];
    for (int i = 0; i < length(executable_plan(executable)->input); i++) x[i] = tensor_at(in[i]);
    return executable_run(executable, x, out);
}

static inline cb_tensor *apply_op(Op op, const cb_operand *input, int count, const Attrs *attrs) {
    cb_operand operand[OP_MAX_INPUTS];
    if (count) memcpy(operand, input, sizeof *operand * (size_t)count);
    return apply_handles(op, operand, count, attrs);
}

#endif
