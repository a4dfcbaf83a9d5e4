/* Split kernels whose chunks add to the same elements (run/bins.c). */
#ifndef CARBIDE_RUN_BINS_H
#define CARBIDE_RUN_BINS_H

#include "run/engine.h"

/* Every chunk of a split kernel with a STORE_ADD, then their sums; false: no memory. */
bool bins_run(const Launch *launch, void *const *buffer);

#endif
