/* What is done with work (table.h), whoever does it. */
#ifndef CARBIDE_METHOD_WORK_H
#define CARBIDE_METHOD_WORK_H

#include "method/table.h"

/* The weight, element 0 of a value of dtype, as the method wants it: work->packed stays NULL when
 * packing wins nothing. false: memory ran out. */
bool work_pack(Work *work, const void *weight, cb_dtype dtype);
/* Appends what the packed form depends on besides the weight's elements; false: it is not
 * packed. */
bool work_layout(const Work *work, Buffer *out);
/* Whether work_pack takes a weight of this dtype; that of the task it takes always. */
bool work_packs_from(const Work *work, cb_dtype dtype);
/* Where the packed weight lies; NULL: there is none. */
static inline const void *work_packed(const Work *work) {
    return work->packed ? work->packed->data : NULL;
}
/* operands without end, which the work knows. false: no memory, or an error is set. */
bool work_run(const Work *work, Operands operands);
void work_free(Work *work);

#endif
