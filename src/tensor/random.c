/* The random state of the process: a seed and the offset of the next draw.
 *
 * Numbers come from Philox keyed by (seed, offset, element index), so the state is two integers,
 * and eager and compiled code that take the same offsets draw the same numbers. Draws of several
 * threads take disjoint offsets, in the order in which they happen. Who computes something once
 * more lends the thread the state that it was first drawn from. */
#include "tensor/random.h"
#include "carbide.h"
#include "tensor/thread.h"
#include "tensor/tracer.h"

#include <stdatomic.h>

enum { DEFAULT_SEED = 42 };

/* A documented singleton, as torch's default generator. */
static struct { _Atomic int64_t seed, offset; } state = {DEFAULT_SEED, 0};

void cb_manual_seed(uint64_t seed) {
    if (!tracer_may_change("the seed", CHANGES_DRAWS)) return;
    if (thread_state.random) { /* what seeds itself does so again */
        *thread_state.random = (RandomState){(int64_t)seed, 0};
        return;
    }
    atomic_store(&state.seed, (int64_t)seed);
    atomic_store(&state.offset, 0);
}

void random_set(RandomState next) {
    atomic_store(&state.seed, next.seed);
    atomic_store(&state.offset, next.offset);
}

RandomState *random_lend(RandomState *own) {
    RandomState *before = thread_state.random;
    thread_state.random = own;
    return before;
}

RandomState random_take(int draws) {
    RandomState taken, *own = thread_state.random;
    thread_state.drawn += draws;
    if (own) {
        taken = *own;
        own->offset += draws;
        return taken;
    }
    taken.offset = atomic_fetch_add(&state.offset, draws);
    taken.seed = atomic_load(&state.seed);
    return taken;
}

void random_return(RandomState first, int64_t draws) {
    RandomState *own = thread_state.random;
    int64_t end = first.offset + draws;
    if (!own)
        atomic_compare_exchange_strong(&state.offset, &end, first.offset);
    else if (own->offset == end)
        own->offset = first.offset;
}

int64_t random_drawn(void) { return thread_state.drawn; }
