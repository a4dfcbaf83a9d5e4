/* The table of methods: who can compute a task. The recorded model, the tuner and explain go over
 * its rows and know no names. */
#ifndef CARBIDE_METHOD_TABLE_H
#define CARBIDE_METHOD_TABLE_H

#include "base/reason.h"
#include "cpu/operands.h"
#include "sched/plan.h"
#include "tensor/tensor.h"

typedef struct Method Method;

/* How the epilogue of a task runs: on each block of the result while that is in cache, as a part of
 * the task, or after it. */
typedef enum EpilogueWay { EPILOGUE_ON_BLOCKS, EPILOGUE_FUSED, EPILOGUE_AFTER } EpilogueWay;

/* A task made ready to run: who computes it, and what was made for that once. It lies beside the
 * plan, which nothing writes to: an executable has one for each step. */
typedef struct Work {
    const Task *task; /* NULL: the step is no task */
    const Method *method;
    void *state;     /* owned; what the method's create made; or NULL */
    Storage *packed; /* owned; the weight as the method's pack made it; or NULL */
    bool packs;      /* runs do not read the weight itself */
    KnownEnd end;
    EpilogueWay epilogue;
    const char *version; /* of somebody else's library; or NULL */
    char text[256];      /* for explain: the choice and what it rests on */
} Work;

typedef struct MethodRefusal { /* why somebody who was wanted does not run; the first one */
    Reason reason;
    char detail[768];
} MethodRefusal;

/* What a method is created from. */
typedef struct MethodCall {
    const char *name; /* of the plugin */
    const Step *step;
    const void *weight; /* element 0 of its value when it never changes, else NULL */
} MethodCall;

struct Method {
    TaskKind kind;
    const char *name;
    int variant;   /* what the functions are told, where several rows share them */
    bool provider; /* of the plugin with this name, or another one that was asked for */
    bool (*fits)(const Task *task, int variant); /* NULL: every task of the kind */
    /* Its time by the recorded model; constant: the weight is packed once. NULL: no row of the kind
     * behind it was measured to be faster. */
    MethodCost (*cost)(const Task *task, int variant, bool constant);
    /* Sets state and what else of the work is not the same for all; false: it cannot, the refusal
     * says why. NULL: there is nothing to make. */
    bool (*create)(Work *work, const MethodCall *call, MethodRefusal *refusal);
    /* The weight, element 0 of a value of dtype, as the method wants it; *packed is NULL when
     * packing wins nothing; false: no memory. NULL: no operand is a weight, or create packed it. */
    bool (*pack)(const Task *task, int variant, const void *weight, cb_dtype dtype,
                 Storage **packed);
    /* With pack: what that form depends on besides the weight's elements, so that tasks of equal
     * layouts share one. false: packing wins nothing. */
    bool (*layout)(const Task *task, int variant, Buffer *out);
    /* Whether pack takes a weight of another dtype than the task's; NULL: it does not. */
    bool (*packs_from)(const Task *task, int variant, cb_dtype dtype);
    /* operands with packed and end; false: no memory, or an error is set. */
    bool (*run)(const Work *work, const Operands *operands);
    void (*free)(Work *work); /* NULL: there is no state */
};

/* The kind's rows, from 0 on, our own first; NULL: behind the last. */
const Method *method_row(TaskKind kind, int number);
const Method *method_provider(TaskKind kind); /* the row of plugins; NULL: none computes the kind */
bool method_fits(const Method *method, const Task *task);
/* The row that takes least by the recorded model. */
const Method *method_own(const Task *task, bool constant);

#endif
