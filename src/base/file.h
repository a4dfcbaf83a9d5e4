/* Writing files: completely, and in one step.
 *
 *     file_save(path, write, user): write(file, user) puts the content, which then stands at
 *     path */
#ifndef CARBIDE_BASE_FILE_H
#define CARBIDE_BASE_FILE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* All bytes, through interruptions and partial writes; false with errno. Neither a limit on the
 * size of files nor a pipe without a reader sends the process a signal: EFBIG, EPIPE. */
bool file_write(int file, const void *bytes, size_t count);

/* The same around writes by other means. */
typedef struct Quiet {
    sigset_t before;  /* blocked by the thread */
    sigset_t earlier; /* pending already: the host's own affair */
} Quiet;
Quiet signals_hold(void);
void signals_release(const Quiet *quiet);

/* Writes beside path, then renames: path holds what was there before, or all of the new content.
 * What is no regular file (a device, a pipe) is written to as it is. False with errno when write
 * gave false or anything else failed; then nothing is left behind. */
bool file_save(const char *path, bool (*write)(int file, void *user), void *user);

#endif
