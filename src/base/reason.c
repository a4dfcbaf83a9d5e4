/* The rows of reasons.def by number: reason_info(REASON_no_compiler)->text. */
#include "base/reason.h"

static const ReasonInfo reasons[REASON_COUNT] = {
    [REASON_NONE] = {"none", "", "", ""},
#define REASON(id, kind, text, hint) [REASON_##id] = {#id, kind, text, hint},
#include "base/reasons.def"
#undef REASON
};

const ReasonInfo *reason_info(Reason reason) {
    check((unsigned)reason < REASON_COUNT, "reason %d", (int)reason);
    return &reasons[reason];
}
