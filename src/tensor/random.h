/* The random state of the process (random.c). */
#ifndef CARBIDE_TENSOR_RANDOM_H
#define CARBIDE_TENSOR_RANDOM_H

#include <stdint.h>

/* One draw takes one offset. */
typedef struct RandomState {
    int64_t seed, offset;
} RandomState;
RandomState random_take(int draws); /* state for the first of them; advances by draws */
/* What was taken has not been used, as if the call had not been: the next draw takes it again,
 * unless another thread has drawn meanwhile. */
void random_return(RandomState first, int64_t draws);
int64_t random_drawn(void); /* how many this thread has ever taken */
/* From now on the thread takes its draws from there, NULL: from the process's state. Returns what
 * it took them from. */
RandomState *random_lend(RandomState *own);
void random_set(RandomState next); /* what random_take takes next */

#endif
