/* Shared objects of generated code, as the files that they are. */
#ifndef CARBIDE_JIT_OBJECT_H
#define CARBIDE_JIT_OBJECT_H

#include <stdbool.h>
#include <stddef.h>

enum { OBJECT_PATH = 4096, OBJECT_WHY = 512 };

/* Opens a regular file that is this user's and that nobody else may write; -1: there is no such
 * file at path, but maybe something else, which is left alone. May be read and written. */
int object_open(const char *path);
/* The same of what is open; *bytes is its size. */
bool object_is_ours(int file, size_t *bytes);
/* Opens what a compiler left in a folder that nobody else can enter, whatever its mode. */
int object_take(const char *path);

/* dlopen of the very file that is open, not of whatever its path names by now. On a file system
 * that does not execute (noexec) a copy is loaded. NULL: why says more. */
void *object_load(int file, char why[OBJECT_WHY]);

/* A new folder, mode 0700, in the numbered place: 0 is first, if that is not "", and then come
 * those for temporary files, $TMPDIR, /tmp ... False: nothing can be written there. *more: there
 * are further places. */
bool object_folder(int place, const char *first, char path[OBJECT_PATH], bool *more);
/* A file or folder at work is somebody's while the descriptor is open, which a process that is
 * killed closes, too; -1: it cannot be told (network file systems). */
int object_hold(const char *path);
/* Somebody holds the name in the open folder, or it cannot be told. */
bool object_is_held(int folder, const char *name);
/* With all that is in it. */
void object_remove_folder(const char *path);

#endif
