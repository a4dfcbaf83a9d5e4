/* How a kernel that was made runnable is called, whoever made it: the vector VM (vm/program.h) and
 * generated code (jit/code.h) offer the same function. */
#ifndef CARBIDE_LOWER_FUNCTION_H
#define CARBIDE_LOWER_FUNCTION_H

#include <stdint.h>

/* Runs work items [low, high) of a kernel; buffer[i] is the pointer bound to kernel buffer i.
 *
 * Not split: one call does every pass; items are outer points in row-major order, in TILE form as
 *   in ROW form (a TILE engine cuts the range itself into runs along the last outer axis). pass is
 *   0, slot NULL.
 * Split: item = chunk * outer_size + outer point. The caller (vm/launch.c) calls pass 0, 1, ...:
 *   pass p sweeps its chunk of the inner range and writes, for every reduce r that pass p completes
 *   (r is its position in KernelInfo.reduce), the accumulator of its chunk into slot[r * outer_size
 *   * split + item]; the caller then combines the chunks of each outer point in order, into the
 *   slot of chunk 0, from where later passes read it. pass == pass_count does the row-level stores;
 *   its items are outer points.
 * A slot is 8 bytes: double for floats, int64_t for the others (any value of a compute dtype
 * converts there and back). */
typedef void KernelFunction(void *const *buffer, int64_t low, int64_t high, int pass, void *slot);

#endif
