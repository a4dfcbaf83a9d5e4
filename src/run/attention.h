/* Attention on the CPU as one step: no matrix of scores in memory. */
#ifndef CARBIDE_RUN_ATTENTION_H
#define CARBIDE_RUN_ATTENTION_H

#include "sched/plan.h"

/* Pointers to element 0 of the values; mask NULL: none. Results do not depend on the number of
 * threads. There is at least one. false: no memory. */
bool attention_run(const AttentionStep *step, const void *query, const void *key,
                   const void *values, const void *mask, void *out);

#endif
