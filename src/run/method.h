/* Who computes a product or a convolution: our own engine, in one of its methods, or a provider. */
#ifndef CARBIDE_RUN_METHOD_H
#define CARBIDE_RUN_METHOD_H

#include "base/reason.h"
#include "run/constant.h"
#include "run/work.h"

typedef struct MethodRefusal { /* why a provider that was wanted does not run; the first one */
    Reason reason;
    char detail[768];
} MethodRefusal;

/* By option provider: our own, the named provider where it can, or, when it is auto, the faster
 * one by a recorded model, or by measurement (tune). Sets *out but for what is packed.
 * weight: the number of the constant that it is, made only for a method that reads it here;
 * negative when it may change. epilogue: NULL, or made runnable. */
void method_choose(const Plan *plan, const Step *step, Constants *constants, int weight,
                   const Launch *epilogue, bool tune, Work *out, MethodRefusal *refusal);

#endif
