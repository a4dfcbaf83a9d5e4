/* Threads: a range of work spread over OpenMP threads. The split never changes results: every work
 * item is computed by itself. */
#ifndef CARBIDE_BASE_PARALLEL_H
#define CARBIDE_BASE_PARALLEL_H

#include <stdint.h>

typedef void ParallelBody(void *user, int64_t low, int64_t high);

int parallel_threads(void); /* OpenMP threads that parallel_for may use from here; at least 1 */
/* Calls body on disjoint ranges that cover [0, count); ranges are multiples of grain items, and a
 * count of at most one grain stays on the calling thread. */
void parallel_for(int64_t count, int64_t grain, ParallelBody *body, void *user);

#endif
