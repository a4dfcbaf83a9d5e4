/* For tests that count what is allocated, in C and C++. */
#ifndef CARBIDE_TEST_SETTLE_H
#define CARBIDE_TEST_SETTLE_H

#include <carbide.h>

/* Under AddressSanitizer the slots of dead tensors wait until 2^14 others of their thread have died
 * (src/tensor/handle.c), and new ones are allocated so long. Afterwards a few hundred tensors at a
 * time come from slots that are there. */
static inline void settle_slots(void) {
    for (int i = 0; i < 1 << 14; i++) cb_free(cb_ones(cb_dims(1)));
    cb_scope_open();
    for (int i = 0; i < 256; i++) cb_ones(cb_dims(1));
    cb_scope_close();
}

#endif
