/* Running what was made ready (work.h). */
#include "method/work.h"

bool work_packs_from(const Work *work, cb_dtype dtype) {
    const Method *method = work->method;
    return method->packs_from && method->packs_from(work->task, method->variant, dtype);
}

bool work_pack(Work *work, const void *weight, cb_dtype dtype) {
    const Method *method = work->method;
    if (!method->pack) return true;
    bool done = method->pack(work->task, method->variant, weight, dtype, &work->packed);
    work->packs = work->packed != NULL;
    return done;
}

bool work_layout(const Work *work, Buffer *out) {
    const Method *method = work->method;
    putf(out, "%s ", method->name);
    return method->pack && method->layout(work->task, method->variant, out);
}

bool work_run(const Work *work, Operands operands) {
    operands.end = &work->end;
    return work->method->run(work, &operands);
}

void work_free(Work *work) {
    if (work->packed) storage_release(work->packed);
    if (work->state) work->method->free(work);
}
