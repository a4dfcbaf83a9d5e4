/* Places for temporaries (sched/memory.c). */
#ifndef CARBIDE_SCHED_MEMORY_H
#define CARBIDE_SCHED_MEMORY_H

#include "sched/plan.h"

/* Judges which mutations may be computed in place (in_place.c). Steps and outputs are final. */
void plan_in_place(Plan *plan);
/* Gives every VALUE_TEMPORARY of the plan its offset and sets plan->arena_bytes and aside_bytes.
 * Steps and outputs are final, and judged. */
void plan_memory(Plan *plan);

#endif
