/* Who computes a product or a convolution: our own engine, in one of its methods, or a provider. */
#ifndef CARBIDE_RUN_METHOD_H
#define CARBIDE_RUN_METHOD_H

#include "base/reason.h"
#include "run/constant.h"
#include "run/provided.h"

typedef struct StepMethod {
    Provided *provided; /* owned; NULL: our own engine computes the step */
    char text[256];     /* for explain: the choice and what it rests on; "" for kernels */
} StepMethod;

typedef struct MethodRefusal { /* why a provider that was wanted does not run; the first one */
    Reason reason;
    char detail[768];
} MethodRefusal;

/* By option provider: our own, the named provider where it can, or, when it is auto, the faster
 * one by a recorded model, or by measurement (tune). A convolution's method is set in the step.
 * weight: the number of the constant that it is, made only for a method that reads it here;
 * negative when it may change. epilogue: NULL, or made runnable. */
void method_choose(const Plan *plan, Step *step, Constants *constants, int weight,
                   const Launch *epilogue, bool tune, StepMethod *out, MethodRefusal *refusal);

#endif
