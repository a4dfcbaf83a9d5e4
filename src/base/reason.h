/* The table of reasons (reasons.def): whatever is refused, falls back or breaks has a row there.
 * A reason carries its row, the site and a detail text; explain prints them, counters count
 * them. */
#ifndef CARBIDE_BASE_REASON_H
#define CARBIDE_BASE_REASON_H

#include "base/error.h"

typedef enum Reason {
    REASON_NONE,
#define REASON(id, kind, text, hint) REASON_##id,
#include "base/reasons.def"
#undef REASON
    REASON_COUNT
} Reason;

typedef struct ReasonInfo {
    const char *id, *kind, *text, *hint;
} ReasonInfo;

const ReasonInfo *reason_info(Reason reason);

#endif
