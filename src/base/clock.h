/* The time for measurements: never set back. */
#ifndef CARBIDE_BASE_CLOCK_H
#define CARBIDE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double clock_ms(void) { return (double)clock_ns() * 1e-6; }

#endif
