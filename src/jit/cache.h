/* Disk cache of compiled kernels: one directory, one file per entry.
 *
 *     <key>.so = shared object | description | footer (magic, sizes, XXH3 of everything before it)
 *
 * The key is a hash of the description, a few lines that name all that the object depends on:
 *
 *     carbide 0.1.0
 *     flags -O2 -march=x86-64 -mtune=native -mavx2 ...
 *     source 5f0c... 2210
 *     compiler /usr/bin/x86_64-linux-gnu-gcc-12 1092264 1672531200
 *     cpu v4 x86 00a20f10 7ed8320b ...
 *
 * Loaders ignore what follows the object, so an entry is checked as a whole and appears, by rename,
 * as a whole; what was checked is a descriptor, which is then loaded (jit/object.h). Any number of
 * processes may share the directory. Nothing is synced to the disk: an entry that a crash cut short
 * fails its checksum and is compiled again. */
#ifndef CARBIDE_JIT_CACHE_H
#define CARBIDE_JIT_CACHE_H

#include "base/buffer.h"
#include "base/reason.h"

enum { CACHE_PATH = 4096, CACHE_KEY = 33 /* 32 hexadecimal digits */, CACHE_TEXT = 8192 };

/* Option cache_dir, or $XDG_CACHE_HOME/carbide, or ~/.cache/carbide; made with mode 0700 when
 * missing, the last two only below a folder of this user: root with somebody's HOME leaves nothing
 * in it. REASON_NONE, or why it cannot be used (cache_unsafe, cache_unusable, foreign_caller). */
Reason cache_directory(char directory[CACHE_PATH]);

void cache_key(const char *description, char key[CACHE_KEY]);
void cache_path(const char *directory, const char *key, char path[CACHE_PATH]);

typedef enum CacheLookup { CACHE_MISS, CACHE_HIT, CACHE_DAMAGED } CacheLookup;
/* Checks the entry and marks it as just used. A hit: *file is what was checked, for the caller to
 * load and close. */
CacheLookup cache_open(const char *directory, const char *key, const char *description, int *file);
/* The shared object that is open, at path in the directory, becomes the entry; false: it stays as
 * it was, more or less. */
bool cache_put(const char *directory, const char *key, const char *description, int file,
               const char *path);
/* Entries that hold a text in the place of an object: what the tuner measured (method/tune.c). A
 * text that does not fit counts as damaged. */
CacheLookup cache_get(const char *directory, const char *key, const char *description, char *out,
                      size_t bytes);
bool cache_set(const char *directory, const char *key, const char *description, const char *text);
bool cache_write(const char *directory, const char *key, const char *description,
                 const void *content, size_t bytes);
/* A whole sound entry, as artifacts carry it (jit/artifact.c). False: missing or damaged, or, when
 * errno is ENOMEM, out of memory; otherwise content is the caller's. */
typedef struct CacheContent {
    char *content; /* object, then description */
    size_t object_bytes, text_bytes;
} CacheContent;
bool cache_read(const char *directory, const char *key, CacheContent *out);
/* Removes entries, least recently used first, until they fit option cache_limit_mb, and sweeps. */
void cache_trim(const char *directory);
/* Behind a new entry: trims where it is a thousandth of the limit, else one time in 16, since all
 * entries are asked for their sizes. */
void cache_added(const char *directory, const char *key);
/* Removes what killed processes left: files and folders that nobody has written to for a minute and
 * nobody holds (jit/object.h), or for an hour, while a compiler may run for 10 minutes (20 times
 * option cc_timeout_ms). */
void cache_sweep(const char *directory);
/* The same, at the first call of the process. */
void cache_sweep_once(const char *directory);

/* ---- for the command --------------------------------------------------------------------- */
typedef struct CacheEntry {
    char key[CACHE_KEY];
    int64_t bytes, used; /* used: seconds since 1970 */
} CacheEntry;
typedef void CacheVisit(void *user, const CacheEntry *entry);
int cache_visit(const char *directory, CacheVisit *visit,
                void *user); /* entries; -1: no directory */
bool cache_describe(const char *directory, const char *key, char description[CACHE_TEXT]);
/* Whether an object of this description is there, or else in which lines the nearest entry of the
 * same source differs. */
void cache_why(const char *directory, const char *description, Buffer *out);
/* In which lines the entry of the same source that is most like it differs, where that is another
 * one; false: no other one has the source. */
bool cache_other_key(const char *directory, const char *description, Buffer *out);
int cache_clear(const char *directory); /* entries removed */

#endif
