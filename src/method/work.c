/* Running what was made ready (work.h). */
#include "method/work.h"

bool work_packs_from(const Work *work, cb_dtype dtype) {
    const Method *method = work->method;
    return method->packs_from && method->packs_from(work->task, method->variant, dtype);
}

bool work_pack(Work *work, const void *weight, cb_dtype dtype) {
    const Method *method = work->method;
    return method->pack(work->task, method->variant, weight, dtype, &work->packed);
}

bool work_packs(const Work *work) {
    return work->provided ? provided_packs(work->provided) : work->packed != NULL;
}

bool work_run(const Work *work, Operands operands) {
    if (work->provided) return provided_run(work->provided, &operands);
    operands.end = &work->end;
    return work->method->run(work->task, work->method->variant, &operands);
}

void work_free(Work *work) {
    if (work->packed) storage_release(work->packed);
    provided_free(work->provided);
}
