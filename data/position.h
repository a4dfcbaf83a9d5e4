/* Where a reader of batches stands: seed and position, and nothing else, as a module's buffer,
 * which a checkpoint takes. */
#ifndef CARBIDE_DATA_POSITION_H
#define CARBIDE_DATA_POSITION_H

#include "files.h"

typedef struct BatchPosition {
    cb_module *state; /* has the buffer position, i64[2] of seed and position */
    cb_tensor *words;
} BatchPosition;

/* False with an error; of the module's name is "TokenReader". */
bool position_open(BatchPosition *position, const char *name, uint64_t seed);
void position_close(BatchPosition *position);
bool position_read(const BatchPosition *position, uint64_t *seed, int64_t *batch);
bool position_write(BatchPosition *position, uint64_t seed, int64_t batch);

#endif
