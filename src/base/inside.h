/* How many are inside of something whose parts are freed by the last one who leaves.
 *
 * Those who were inside on other threads when the process was forked are not in the child, and will
 * never leave: the count is of one process, whose number is its upper half. A child counts the
 * frames anew that it has come along with (frames_begin_child); whoever is inside without a frame
 * leaves as the only one. */
#ifndef CARBIDE_BASE_INSIDE_H
#define CARBIDE_BASE_INSIDE_H

#include "base/lock.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef _Atomic uint64_t Inside;

static inline uint64_t inside_of_process(void) { return (uint64_t)process_number() << 32; }

static inline void inside_enter(Inside *inside) {
    uint64_t was = atomic_load(inside), process = inside_of_process(), is;
    do {
        is = (was >> 32 == process >> 32 ? was : process) + 1;
    } while (!atomic_compare_exchange_weak(inside, &was, is));
}

/* True: nobody is left. */
static inline bool inside_leave(Inside *inside) {
    uint64_t was = atomic_load(inside), process = inside_of_process(), is;
    do {
        is = was >> 32 == process >> 32 ? was - 1 : process;
    } while (!atomic_compare_exchange_weak(inside, &was, is));
    return is == process;
}

#endif
