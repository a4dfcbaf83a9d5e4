/* What the readers share: mapped files, files that are written as a whole, errors, numbers drawn by
 * their place.
 *
 * Everything is over the public API. Names of functions begin with data_, as the static library of
 * all programs holds them beside Carbide's own. */
#ifndef CARBIDE_DATA_FILES_H
#define CARBIDE_DATA_FILES_H

#include "carbide_data.h"

typedef struct MappedFile {
    const uint8_t *at; /* NULL: empty */
    size_t count;
} MappedFile;

/* Records the error at the caller's line, and gives status back. */
cb_status data_refuse(cb_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same for a call of the system, with errno: "tokens_open: a/b: No such file or directory". */
cb_status data_refuse_file(const char *call, const char *path);

/* False with an error that opens with call; a file of no bytes has none at NULL. */
bool data_map(const char *call, const char *path, MappedFile *file);
void data_unmap(MappedFile *file);

/* All bytes, through interruptions and partial writes; false with errno. */
bool data_write(int file, const void *bytes, size_t count);
/* path holds what was there before, or all of the new content; what is no regular file is written
 * to as it is. False with an error that opens with call. */
bool data_save(const char *call, const char *path, const void *bytes, size_t count);

/* A number that depends on both alone, evenly in 0 .. limit-1; limit > 0. */
uint64_t data_draw(uint64_t seed, uint64_t place, uint64_t limit);
/* The place of i in an order of 0 .. count-1 that depends on seed alone; 0 <= i < count. */
uint64_t data_shuffle(uint64_t seed, uint64_t i, uint64_t count);

#endif
