/* Places for temporaries (sched/memory.c). */
#ifndef CARBIDE_SCHED_MEMORY_H
#define CARBIDE_SCHED_MEMORY_H

#include "sched/plan.h"

/* Gives every VALUE_TEMPORARY of the plan its offset and sets plan->arena_bytes. Steps and outputs
 * are final. */
void plan_memory(Plan *plan);

#endif
