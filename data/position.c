/* The state of a reader of batches. */
#include "position.h"

#include <inttypes.h>

#define MOST_BATCHES ((int64_t)1 << 60) /* beyond, some are asked for ahead */

bool position_open(BatchPosition *position, const char *name, uint64_t seed) {
    int64_t words[] = {(int64_t)seed, 0};
    *position = (BatchPosition){cb_module_new(name, NULL, NULL), NULL};
    cb_tensor *made = position->state ? cb_from_data(words, CB_I64, cb_dims_one(2)) : NULL;
    if (made) position->words = cb_module_buffer(position->state, "position", made);
    return position->words != NULL;
}

void position_close(BatchPosition *position) {
    if (position->state) cb_module_free(position->state);
}

bool position_read(const BatchPosition *position, uint64_t *seed, int64_t *batch) {
    int64_t words[2];
    if (cb_read(position->words, words, CB_I64) != CB_OK) return false;
    *seed = (uint64_t)words[0], *batch = words[1];
    if (*batch >= 0 && *batch < MOST_BATCHES) return true;
    data_refuse(CB_ERR_INDEX, "a reader's position is %" PRId64 ": not from 0 to 2^60", *batch);
    return false;
}

bool position_write(BatchPosition *position, uint64_t seed, int64_t batch) {
    int64_t words[] = {(int64_t)seed, batch};
    cb_tensor *next = cb_from_data(words, CB_I64, cb_dims_one(2));
    bool moved = next && cb_assign(position->words, next);
    cb_free(next);
    return moved;
}
