/* The option anomaly: every op that runs at once is looked at, and the first that gives a NaN is an
 * error, as with torch.autograd.set_detect_anomaly, and forward, too. */
#ifndef CARBIDE_EAGER_ANOMALY_H
#define CARBIDE_EAGER_ANOMALY_H

#include "base/option.h"
#include "tensor/tensor.h"

static inline bool anomaly_wanted(void) { return option_now(OPTION_anomaly); }
/* y as it is. NULL with an error, and y is freed: it has a NaN, which the op made, or an operand
 * holds that no op made. What has no tensor among its operands may be NaN by intent. */
Tensor *anomaly_pass(Tensor *y, Op op, const cb_operand *input, int count);
/* The same of the gradient by operand k of an op that ran at site, which was given `given`, but
 * what is refused stays: false. */
bool anomaly_pass_gradient(const Tensor *gradient, const Tensor *given, Op op, Site site, int k);

#endif
