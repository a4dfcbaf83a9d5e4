/* Whether the thread's processor takes subnormal numbers for 0: bits of a register that each thread
 * has, and that a new thread has from who starts it.
 *
 * The bits are asked, no copy of them: a program's own code sets them, too, as one does that was
 * linked with -ffast-math. */
#ifndef CARBIDE_BASE_SUBNORMAL_H
#define CARBIDE_BASE_SUBNORMAL_H

#include <stdbool.h>
#if defined(__x86_64__)
#include <xmmintrin.h>

enum { SUBNORMALS_ZERO = 0x8040 }; /* of what is computed, and of what is read */
static inline unsigned subnormals_bits(void) { return _mm_getcsr() & SUBNORMALS_ZERO; }
static inline void subnormals_set(unsigned bits) {
    unsigned now = _mm_getcsr(), wanted = (now & ~(unsigned)SUBNORMALS_ZERO) | bits;
    if (now != wanted) _mm_setcsr(wanted);
}
#else
enum { SUBNORMALS_ZERO = 0 }; /* here it cannot be chosen */
static inline unsigned subnormals_bits(void) { return 0; }
static inline void subnormals_set(unsigned bits) { (void)bits; }
#endif

static inline bool subnormals_are_zero(void) { return subnormals_bits() != 0; }

#endif
