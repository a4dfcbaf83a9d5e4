/* A task made ready to run: who computes it, and what was made for that once. It lies beside the
 * plan, which nothing writes to: an executable has one for each step. */
#ifndef CARBIDE_METHOD_WORK_H
#define CARBIDE_METHOD_WORK_H

#include "method/provided.h"
#include "method/table.h"

typedef struct Work {
    const Task *task;     /* NULL: the step is no task */
    const Method *method; /* of our own */
    Provided *provided;   /* owned; it computes the task; NULL: the method does */
    Storage *packed;      /* owned; the weight as the method wants it, or NULL */
    KnownEnd end;
    char text[256]; /* for explain: the choice and what it rests on */
} Work;

/* The weight, element 0 of a value of dtype, as the method wants it: work->packed stays NULL when
 * packing wins nothing. false: memory ran out. */
bool work_pack(Work *work, const void *weight, cb_dtype dtype);
/* Whether work_pack takes a weight of this dtype; that of the task it takes always. */
bool work_packs_from(const Work *work, cb_dtype dtype);
/* Whether the weight itself is not read by work_run. */
bool work_packs(const Work *work);
/* Where the packed weight lies; NULL: there is none. */
static inline const void *work_packed(const Work *work) {
    return work->packed ? work->packed->data : NULL;
}
/* operands without end, which the work knows. false: no memory, or an error is set. */
bool work_run(const Work *work, Operands operands);
void work_free(Work *work);

#endif
