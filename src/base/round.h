/* Sizes: rounded to whole units, the smaller of two. */
#ifndef CARBIDE_BASE_ROUND_H
#define CARBIDE_BASE_ROUND_H

#include <stdint.h>

static inline int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }
static inline int64_t round_up(int64_t value, int64_t to) { return divide_up(value, to) * to; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

#endif
