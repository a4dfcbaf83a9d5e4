/* STEP_CHECK: every index lies in its range (run/check_indices.c). */
#ifndef CARBIDE_RUN_CHECK_INDICES_H
#define CARBIDE_RUN_CHECK_INDICES_H

#include "sched/plan.h"
#include "tensor/tensor.h"

/* count indices at data, i64 (every op converts its own); strided: the tensor that they are, or
 * NULL when they are contiguous anyway. false with an error that names the op and the first index
 * outside of [0, check->bound). */
bool check_indices(const IndexBound *check, int64_t count, const int64_t *data,
                   const Tensor *strided);

#endif
