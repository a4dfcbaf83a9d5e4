/* Split kernels whose chunks add to the same elements (vm/bins.c). */
#ifndef CARBIDE_VM_BINS_H
#define CARBIDE_VM_BINS_H

#include "vm/launch.h"

/* Every chunk of a split kernel with a STORE_ADD, then their sums; false: no memory. */
bool bins_run(const Launch *launch, void *const *buffer);

#endif
