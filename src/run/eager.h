/* Eager: one op, run at once on the vector VM (run/eager.c). tensor/apply.h declares the
 * entries. */
#ifndef CARBIDE_RUN_EAGER_H
#define CARBIDE_RUN_EAGER_H

#include "run/execute.h"

void eager_cleanup(void); /* for cb_cleanup: frees the built ops; no op may run meanwhile */

/* The cache (run/eager_cache.c): keys are words, compared exactly. A found or added entry is held
 * until it is released; an entry that is thrown out while held lives until then. */
typedef struct EagerEntry EagerEntry;
EagerEntry *eager_find(const int64_t *key, int words, uint64_t hash); /* NULL: not there */
/* Takes the executable over, also on failure, which is NULL with an error. */
EagerEntry *eager_add(const int64_t *key, int words, uint64_t hash, Executable *executable);
const Executable *eager_executable(const EagerEntry *entry);
void eager_release(EagerEntry *entry);

#endif
