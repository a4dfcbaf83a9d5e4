/* Who computes a product or a convolution: our own engine, in one of its methods, or a provider. */
#ifndef CARBIDE_METHOD_METHOD_H
#define CARBIDE_METHOD_METHOD_H

#include "method/work.h"

/* The weight of a task, when it never changes. */
typedef struct ConstantWeight {
    const void *(*make)(void *owner, int number); /* element 0; NULL: memory ran out */
    void *owner;
    int number; /* negative: it may change */
} ConstantWeight;

/* By option provider: our own by the recorded model, the named provider where it can, or, when it
 * is auto, by measuring (tune) or the model. Sets *out but for what is packed.
 * The weight is made only for a method that reads it here. epilogue: NULL, or made runnable. */
void method_choose(const Plan *plan, const Step *step, ConstantWeight weight,
                   const Launch *epilogue, bool tune, Work *out, MethodRefusal *refusal);

#endif
