/* The table of methods: who can compute a task. The recorded model, the tuner and explain go over
 * its rows and know no names. */
#ifndef CARBIDE_METHOD_TABLE_H
#define CARBIDE_METHOD_TABLE_H

#include "cpu/operands.h"
#include "tensor/tensor.h"

typedef struct Method {
    TaskKind kind;
    const char *name;
    int variant;   /* what the functions are told, where several rows share them */
    bool provider; /* of a plugin with this name (method/provided.h), which has no functions here */
    bool (*fits)(const Task *task, int variant); /* NULL: every task of the kind */
    /* Its time by the recorded model; constant: the weight is packed once. NULL: no row of the kind
     * behind it was measured to be faster. */
    MethodCost (*cost)(const Task *task, int variant, bool constant);
    /* The weight, element 0 of a value of dtype, as the method wants it; *packed is NULL when
     * packing wins nothing; false: no memory. NULL: no operand is a weight. */
    bool (*pack)(const Task *task, int variant, const void *weight, cb_dtype dtype,
                 Storage **packed);
    /* Whether pack takes a weight of another dtype than the task's; NULL: it does not. */
    bool (*packs_from)(const Task *task, int variant, cb_dtype dtype);
    bool (*run)(const Task *task, int variant, const Operands *operands); /* false: no memory */
} Method;

/* The kind's rows, from 0 on, our own first; NULL: behind the last. */
const Method *method_row(TaskKind kind, int number);
bool method_fits(const Method *method, const Task *task);
/* The row of our own that takes least by the recorded model. */
const Method *method_own(const Task *task, bool constant);

#endif
