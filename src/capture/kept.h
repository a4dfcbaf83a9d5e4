/* What one call keeps for gradients by its results: backward.c, which goes back by a compiled
 * graph; unroll.c, by the ops. */
#ifndef CARBIDE_CAPTURE_KEPT_H
#define CARBIDE_CAPTURE_KEPT_H

#include "capture/joint.h"

/* Where a tensor was that lay there before the call. Nothing is held by it. */
typedef struct KeptBefore {
    const cb_tensor *handle;
    const History *history; /* to be found among those of sources */
} KeptBefore;

typedef struct Kept {
    Backward *backward;
    RandomState random; /* that its first draw took */
    uint64_t digest;    /* of what it did, in a checkpoint */
    const void *thread; /* that called: thread_state */
    bool all;           /* x has all that the ops read, and copies of what the call writes to */
    bool copies;        /* it has those copies */
    History **part;     /* by root */
    Tensor **x; /* what there was before, as Backward.kept, NULL where it is not held; then what was
                 * saved */
    uint64_t *version;  /* by x, also of what is not held */
    KeptBefore *before; /* as Backward.kept */
    int64_t *argument;  /* of the trace */
} Kept;

/* x, which is what place stands for, has not been written to since; false with an error, of what
 * somebody has called. */
bool kept_is_as_it_was(const Kept *kept, int place, const Tensor *x, const char *what);
/* In a storage of its own, with the strides that it has: a reshape is a copy of both, or of
 * none. */
Tensor *kept_copy(const Tensor *x);
bool kept_unroll(void *state, const char *what, History *const *source, Tensor **out); /* tape.h */

#endif
