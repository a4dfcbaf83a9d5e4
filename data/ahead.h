/* Batches that threads make before they are asked for.
 *
 * A batch depends on its number alone, and batches are given out in the order of their numbers, so
 * that nobody can tell how many threads there are. */
#ifndef CARBIDE_DATA_AHEAD_H
#define CARBIDE_DATA_AHEAD_H

#include "files.h"

/* What went wrong with a batch: threads have no caller whose line an error could name. */
typedef struct BatchError {
    cb_status status; /* CB_OK: nothing */
    char text[400];
} BatchError;

void batch_refuse(BatchError *error, cb_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes batch number n of a user's; several threads may be inside. */
typedef void BatchMaker(void *user, uint64_t seed, int64_t n, void *batch, BatchError *error);

typedef struct Ahead Ahead;

/* Batches of so many bytes by so many threads, 0 for none; NULL with an error. */
Ahead *ahead_new(BatchMaker *make, void *user, size_t bytes, int threads);
void ahead_free(Ahead *ahead); /* ends the threads */
/* The bytes of batch n, valid until the next call; NULL with an error. What was made for another
 * seed, or for other numbers than those that follow the last one, is dropped. */
const void *ahead_get(Ahead *ahead, uint64_t seed, int64_t n);

#endif
